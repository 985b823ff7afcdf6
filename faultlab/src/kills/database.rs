//! PostgreSQL as a workload: a server whose processes share memory, and `pgbench` as its client.
//!
//! The cluster is made and filled bare, then served as replicas. Every transaction of `pgbench`
//! adds one number to an account, a teller and a branch, and a line to the history; so in the end
//! all sums must agree, and the history must have as many lines as the clients were told of.
//!
//! The leader of a parallel query polls for its workers without a system call, by which each turn
//! of the processes that share memory lasts for long; so there are no parallel workers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Uid, User, chown};

use super::load::{Ends, PATIENCE};

/// Who runs the server if root, for which it refuses to run, starts the campaign.
const USER: &str = "postgres";
/// Transactions of each of the two clients in one batch, which has connections of its own: with
/// each, a process begins to share memory, and all wait longer for lost replicas.
const BATCH: u64 = 200;
/// What must hold at the end, with the number of lines that the history must have.
const SUMS: &str = "select
 (select sum(abalance) from pgbench_accounts)
 = (select coalesce(sum(delta), 0) from pgbench_history)
 and (select sum(tbalance) from pgbench_tellers) = (select sum(abalance) from pgbench_accounts)
 and (select sum(bbalance) from pgbench_branches) = (select sum(abalance) from pgbench_accounts),
 (select count(*) from pgbench_history)";

/// The words before a command that has to run as the server does.
pub(super) fn user() -> Vec<String> {
    if !Uid::effective().is_root() {
        return Vec::new();
    }
    let words = ["setpriv", "--clear-groups"].map(str::to_owned);
    let ids = ["reuid", "regid"].map(|id| format!("--{id}={USER}"));
    words.into_iter().chain(ids).collect()
}

/// The folder with the server's programs, which are on nobody's path.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let folders = versions.flatten().map(|entry| entry.path().join("bin"));
    let newest = folders.filter(|bin| bin.join("postgres").exists()).max();
    newest.context("PostgreSQL is not installed")
}

/// Runs a command as the server's user to its end, which must be a good one.
fn run(folder: &Path, words: &[&str]) -> Result<String> {
    let mut all = user();
    all.extend(words.iter().map(|&word| word.to_owned()));
    let (first, rest) = all.split_first().context("no command")?;
    let output = Command::new(first).args(rest).current_dir(folder).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.with_context(|| format!("cannot start {first}"))?;
    let told = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{words:?}: {status}: {}", told.trim());
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// What all clients have to say first.
fn client<'a>(program: &'a str, folder: &'a str) -> [&'a str; 5] {
    [program, "-h", folder, "-U", "bench"]
}

/// Makes and fills a cluster; the words of the server's command.
pub(super) fn prepare(folder: &Path) -> Result<Vec<String>> {
    if Uid::effective().is_root() {
        let user = User::from_name(USER)?.context("there is no user `postgres`")?;
        chown(folder, Some(user.uid), Some(user.gid))?;
        for place in folder.ancestors().take(2) {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755))?;
        }
    }
    let bin = programs()?;
    let program = |name: &str| bin.join(name).display().to_string();
    let (initdb, control, server) = (program("initdb"), program("pg_ctl"), program("postgres"));
    let place = folder.display().to_string();
    run(
        folder,
        &[
            &initdb,
            "-D",
            "data",
            "-A",
            "trust",
            "-U",
            "bench",
            "--no-sync",
            "--no-instructions",
        ],
    )?;
    let settings = "fsync = off\nmax_parallel_workers = 0\nautovacuum = off\n\
                    listen_addresses = ''\nunix_socket_directories = '.'\n";
    let settings = settings.replace("'.'", &format!("'{place}'"));
    let file = folder.join("data/postgresql.conf");
    let old = fs::read_to_string(&file)?;
    fs::write(&file, old + &settings)?;
    run(
        folder,
        &[&control, "-D", "data", "-l", "log", "-w", "start"],
    )?;
    let tables = [&client("pgbench", &place)[..], &["-i", "-q", "postgres"]].concat();
    let filled = run(folder, &tables);
    run(
        folder,
        &[&control, "-D", "data", "-m", "fast", "-w", "stop"],
    )?;
    filled?;
    Ok([&server, "-D", "data"].map(str::to_owned).to_vec())
}

/// Every transaction is done once.
pub(super) fn transactions(ends: Ends) -> Result<u64> {
    let folder = ends.folder.clone();
    let place = folder.display().to_string();
    let ask = |query: &str| {
        let words = [&client("psql", &place)[..], &["-XAtc", query, "postgres"]].concat();
        run(&folder, &words)
    };
    let deadline = Instant::now() + PATIENCE;
    while ask("select 1").is_err() {
        ensure!(Instant::now() < deadline, "the server does not answer");
        thread::sleep(Duration::from_millis(50));
    }
    let count = BATCH.to_string();
    let batch = [
        &client("pgbench", &place)[..],
        &["-n", "-c", "2", "-t", &count, "postgres"],
    ]
    .concat();
    let mut done = 0;
    while !ends.is_over() {
        let told = run(&folder, &batch)?;
        let all = format!("actually processed: {0}/{0}", 2 * BATCH);
        ensure!(told.contains(&all), "pgbench says {told:?}");
        done += 2 * BATCH;
        ends.ready.store(true, Ordering::Relaxed);
    }
    let sums = ask(SUMS)?;
    kill(ends.server, Signal::SIGTERM).context("cannot end the server")?;
    ends.finish()?;
    ensure!(
        sums.trim() == format!("t|{done}"),
        "{done} transactions, but the sums are {sums:?}"
    );
    Ok(done)
}
