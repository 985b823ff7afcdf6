//! Whole programs as workloads: nginx, a shell pipeline, and Python programs with threads and with
//! processes. Of databases: [`super::database`] and [`super::redis`].
//!
//! They are what people run, so nothing in them helps to count. The peer asks nginx for numbered
//! pages and finds each number once, in order, in nginx's own log; pipeline and Python get numbered
//! lines and must give each back once, changed, in order.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};

use super::load::{Ends, PATIENCE, Workload};
use super::{database, redis};

/// Numbered lines come out with a bracket and in capitals, whatever the pipes hold back.
const PIPELINE: &str = "tr a-z A-Z | sed 's/^/[/' | cat";

/// The same by root and two other users. The last one has each 64 lines put out by a program that
/// it starts for them, so that processes of another user begin and end all the time.
const USERS: &str = r#"
as() { user=$1; shift; setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }
tr a-z A-Z | as 1000 sed -u 's/^/[/' | as 2000 sh -c '
some() {
    count=0
    set --
    while [ $count -lt 64 ] && IFS= read -r line; do
        set -- "$@" "$line"
        count=$((count + 1))
    done
    [ $count -gt 0 ] && /usr/bin/printf "%s\\n" "$@"
}
while some; do :; done'
"#;

/// Four threads take lines from a queue, a fifth puts them out in order.
const PYTHON: &str = "
import queue, sys, threading
todo, done = queue.Queue(64), {}
changed = threading.Condition()
def work():
    while (item := todo.get()) is not None:
        number, line = item
        with changed:
            done[number] = '[' + line.upper()
            changed.notify_all()
def tell():
    number = 0
    while True:
        with changed:
            changed.wait_for(lambda: number in done)
            line = done.pop(number)
        if line is None:
            return
        sys.stdout.write(line)
        sys.stdout.flush()
        number += 1
threads = [threading.Thread(target=work) for _ in range(4)]
teller = threading.Thread(target=tell)
for thread in threads + [teller]:
    thread.start()
count = 0
for line in sys.stdin:
    todo.put((count, line))
    count += 1
for _ in threads:
    todo.put(None)
for thread in threads:
    thread.join()
with changed:
    done[count] = None
    changed.notify_all()
teller.join()
";

/// Three processes change lines and count them in memory that they share.
const POOL: &str = "
import multiprocessing, sys, threading
room = threading.Semaphore(64)
counter = multiprocessing.Value('q')
def work(line):
    with counter.get_lock():
        counter.value += 1
    return '[' + line.upper()
def lines():
    for line in sys.stdin:
        room.acquire()
        yield line
count = 0
with multiprocessing.Pool(3) as pool:
    for line in pool.imap(work, lines()):
        sys.stdout.write(line)
        sys.stdout.flush()
        count += 1
        room.release()
    pool.close()
    pool.join()
sys.exit(counter.value != count)
";

/// The words of a program's command, its files put into the folder; `None` for other workloads.
pub(super) fn command(workload: Workload, folder: &Path) -> Result<Option<Vec<String>>> {
    let words: &[&str] = match workload {
        Workload::Shell => &["sh", "-c", PIPELINE],
        Workload::Users => {
            ensure!(nix::unistd::geteuid().is_root(), "`users` needs root");
            &["sh", "-c", USERS]
        }
        Workload::Python => &["python3", "-S", "-c", PYTHON],
        Workload::Pool => &["python3", "-S", "-c", POOL],
        Workload::Postgres => return database::prepare(folder).map(Some),
        Workload::Redis => return redis::prepare(folder).map(Some),
        Workload::Nginx | Workload::Web => {
            configure(folder, workload == Workload::Web)?;
            &["nginx", "-p", ".", "-e", "errors", "-c", "nginx.conf"]
        }
        _ => return Ok(None),
    };
    Ok(Some(words.iter().map(|&word| word.to_owned()).collect()))
}

fn configure(folder: &Path, with_workers: bool) -> Result<()> {
    let processes = if with_workers {
        // Root's workers are another user.
        for place in folder.ancestors().take(2) {
            std::fs::set_permissions(place, Permissions::from_mode(0o755))?;
        }
        "worker_processes 2"
    } else {
        "master_process off"
    };
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let text = format!(
        "daemon off; {processes}; pid nginx.pid;
events {{ worker_connections 64; }}
http {{
  log_format plain $request_uri;
  access_log log plain;
  sendfile off; keepalive_requests 1000000;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d;
  scgi_temp_path e;
  server {{ listen 127.0.0.1:{port}; root .; location / {{ try_files /page =404; }} }}
}}"
    );
    std::fs::write(folder.join("nginx.conf"), text)?;
    std::fs::write(folder.join("page"), page())?;
    std::fs::write(folder.join("port"), port.to_string())?;
    Ok(())
}

fn page() -> String {
    let mut page = String::new();
    for line in 0..2000 {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "line {line}");
    }
    page
}

/// Line `number` as it goes in.
fn line(number: u64) -> String {
    format!("line {number} of a workload\n")
}

/// The same as it must come out.
fn answer(number: u64) -> String {
    format!("[LINE {number} OF A WORKLOAD")
}

/// Each line comes back once, changed, in order.
pub(super) fn lines(mut ends: Ends) -> Result<u64> {
    let ready = ends.ready.clone();
    let output = ends.output;
    let reader = thread::spawn(move || -> Result<u64> {
        let mut got = 0;
        for told in output.lines() {
            let told = told?;
            ensure!(told == answer(got), "line {got} came back as {told:?}");
            got += 1;
            ready.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(got)
    });
    let mut sent = 0;
    let mut broken = None;
    while !ends.over.load(std::sync::atomic::Ordering::Relaxed) && broken.is_none() {
        let burst: String = (sent..sent + 1 + ends.rng.next() % 200).map(line).collect();
        sent += burst.lines().count() as u64;
        broken = ends.input.write_all(burst.as_bytes()).err();
        thread::sleep(Duration::from_micros(ends.rng.next() % 2000));
    }
    drop(ends.input);
    let got = match reader.join() {
        Ok(got) => got?,
        Err(_) => bail!("the reader panicked"),
    };
    ensure!(broken.is_none(), "the input was closed: {broken:?}");
    ensure!(got == sent, "{sent} lines were sent, {got} came back");
    Ok(got)
}

/// Each page comes whole, and stands once in the log.
pub(super) fn pages(mut ends: Ends) -> Result<u64> {
    let port = std::fs::read_to_string(ends.folder.join("port"))?.parse()?;
    let page = page();
    let mut number = 0;
    while !ends.is_over() {
        let mut client = BufReader::new(connect(port)?);
        for _ in 0..1 + ends.rng.next() % 50 {
            let request = format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n");
            let asked = Instant::now();
            client.get_mut().write_all(request.as_bytes())?;
            let body = response(&mut client).with_context(|| format!("page {number}"))?;
            ends.slowest.note(asked);
            ensure!(body == page.as_bytes(), "page {number} is another one");
            number += 1;
            ends.ready.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        ends.pause();
    }
    kill(ends.server, Signal::SIGTERM).context("cannot end nginx")?;
    let folder = ends.folder.clone();
    ends.finish()?;
    let log = std::fs::read_to_string(folder.join("log"))?;
    // Of two workers each writes its line when it has answered.
    let mut log: Vec<&str> = log.lines().collect();
    log.sort_by_key(|line| (line.len(), *line));
    let expected: Vec<String> = (0..number).map(|number| format!("/{number}")).collect();
    ensure!(log == expected, "{number} pages, but the log is another");
    Ok(number)
}

/// A connection as soon as the server listens.
pub(super) fn connect(port: u16) -> Result<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(client) => {
                client.set_read_timeout(Some(PATIENCE))?;
                return Ok(client);
            }
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error).context("connecting"),
        }
    }
}

/// The body of the next response.
fn response(client: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    let mut length = None;
    let mut status = String::new();
    client.read_line(&mut status)?;
    ensure!(status.starts_with("HTTP/1.1 200"), "nginx says {status:?}");
    loop {
        let mut header = String::new();
        client.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(told) = header.strip_prefix("Content-Length:") {
            length = Some(told.trim().parse()?);
        }
    }
    let mut body = vec![0; length.context("no length")?];
    client.read_exact(&mut body)?;
    Ok(body)
}
