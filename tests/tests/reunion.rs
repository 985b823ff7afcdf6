//! A lost replica of processes that share memory comes back in all of them, and shares memory with
//! itself again.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rcoe_tests::launch::{Ended, Outcome, signal};
use rcoe_tests::memory::{poke, symbol};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Process ids by process of the program and replica.
type Pids = BTreeMap<(u64, usize), u32>;

struct Run {
    scene: Scene,
    group: Group,
    program: String,
    /// Processes that share.
    processes: usize,
    /// What of the events was seen.
    seen: usize,
    pids: Pids,
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).expect("a small number")
}

impl Run {
    fn start(name: &str, source: &str, options: &[&str], processes: usize) -> Self {
        let scene = Scene::new();
        let program = scene.compile(name, source, &["-static", "-no-pie", "-pthread", "-w"]);
        let group = scene.start_group(options, &[&program]);
        Self::of(scene, group, program, processes)
    }

    fn of(scene: Scene, group: Group, program: String, processes: usize) -> Self {
        let process = u64::from(group.running.pid());
        let root = group.replicas.iter().enumerate();
        let pids = root.map(|(replica, &pid)| ((process, replica), pid));
        Self {
            pids: pids.collect(),
            scene,
            group,
            program,
            processes,
            seen: 0,
        }
    }

    fn root(&self) -> u64 {
        self.group.running.pid().into()
    }

    fn lines(&self) -> usize {
        let text = self.group.running.stdout_so_far().expect("readable output");
        text.lines().count()
    }

    fn until_more_lines(&self) {
        let before = self.lines();
        until("more lines", || (self.lines() > before + 5).then_some(()));
    }

    fn events(&self, stage: &str) -> Vec<Value> {
        let mut events = events_of(&self.group.events);
        events.retain(|event| event["stage"] == stage);
        events
    }

    fn kill(&self, process: u64, replica: usize) {
        signal(self.pids[&(process, replica)], Signal::KILL).expect("a living replica");
    }

    /// Waits until all processes have this replica again. A copy that was lost is made once more.
    #[track_caller]
    fn until_back(&mut self, replica: usize) {
        let wanted = self.seen + self.processes;
        let done = until("the replica to be back in all", || {
            let done = self.events("done");
            let mut lost = events_of(&self.group.events);
            lost.retain(|event| event["type"] == "downgrade");
            (done.len() >= wanted && done.len() >= lost.len()).then_some(done)
        });
        for event in &done[self.seen..] {
            assert_eq!(number(&event["replica"]), replica, "{event}");
            let process = event["process"].as_u64().expect("a process");
            let pid = u32::try_from(number(&event["pid"])).expect("a process id");
            self.pids.insert((process, replica), pid);
        }
        self.seen = done.len();
    }

    /// Kills the replica of one process, and waits until it is back in all.
    fn lose(&mut self, process: u64, replica: usize) {
        self.kill(process, replica);
        self.until_back(replica);
    }

    /// Lets the program end, which must have told every number once.
    #[track_caller]
    fn finish(self) -> (Outcome, Vec<Value>) {
        self.group.finish_counting(&self.scene)
    }
}

const EXCHANGE: &str = include_str!("sharing/exchange.c");

#[test]
fn each_replica_of_each_process_comes_back() {
    let mut run = Run::start("exchange", EXCHANGE, &["-n", "3"], 3);
    run.until_more_lines();
    for replica in [1, 0, 2] {
        run.lose(run.root(), replica);
        run.until_more_lines();
    }
    let all: Vec<(u64, usize)> = run.pids.keys().copied().collect();
    assert_eq!(all.len(), 9, "three processes of three replicas");
    for (process, replica) in all {
        run.lose(process, replica);
    }
    run.until_more_lines();
    let (_, events) = run.finish();
    let stop = events.last().expect("events");
    assert_eq!(stop["counts"]["replicas"], 3, "{events:?}");
}

#[test]
fn of_four_two_lost_at_once_come_back() {
    let run = Run::start("exchange", EXCHANGE, &["-n", "4"], 3);
    run.until_more_lines();
    run.kill(run.root(), 3);
    // By then the first process has voted on the loss: two in one vote would leave no majority.
    let of_root = |event: &Value| event["process"] == run.root();
    until("a copy", || run.events("copied").into_iter().find(of_root));
    run.kill(run.root(), 1);
    let all = run.processes;
    until("both to be back in all", || {
        let back = |replica: usize| {
            let done = run.events("done");
            done.iter().filter(|it| it["replica"] == replica).count() >= all
        };
        (back(1) && back(3)).then_some(())
    });
    run.until_more_lines();
    run.finish();
}

/// Where `exchange.c` has its shared memory.
const SHARED: u64 = 0x1_0000_0000;

/// A word that the first process does not use is other in replica 1 when 2 is lost.
#[track_caller]
fn not_spread(word: impl Fn(&Run) -> u64, reason: &str) {
    // What differs is to be found by the comparison of the copies.
    let options = ["-n", "3", "--scrub", "off"];
    let mut run = Run::start("exchange", EXCHANGE, &options, 3);
    run.until_more_lines();
    let set = |run: &Run, replica: usize| {
        let pid = run.pids[&(run.root(), replica)];
        poke(pid, word(run), &1_u64.to_le_bytes()).expect("a living replica");
    };
    set(&run, 1);
    run.kill(run.root(), 2);
    let refused = until("all refusals", || {
        let all = run.events("abandoned");
        (all.len() >= run.processes).then_some(all)
    });
    let told = |it: &Value| it["reason"].as_str().is_some_and(|it| it.contains(reason));
    assert!(refused.iter().any(told), "{refused:?}");
    assert!(run.events("done").is_empty());
    // Both have it from here on.
    set(&run, 0);
    run.until_back(2);
    let (outcome, _) = run.finish();
    let told = outcome.err().matches("cannot be brought back").count();
    assert_eq!(told, 1, "{}", outcome.err());
}

#[test]
fn memory_that_differs_is_not_spread() {
    not_spread(|run| symbol(&run.program, "unused"), "the memory at");
}

#[test]
fn shared_memory_that_differs_is_not_spread() {
    not_spread(|_| SHARED, "the shared memory differs");
}

/// Alone, with shared memory of no file.
const ALONE: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/mman.h>\n
#include <unistd.h>\n
int main(void) {
  long *all = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int file = open(\"lines\", O_WRONLY | O_CREAT | O_APPEND, 0644);
  char line[32];
  do {
    int len = snprintf(line, sizeof line, \"%ld\\n\", *all);
    long *at = all + *all * 13 % (1 << 17);
    if (at != all) ++*at;
    ++*all;
    write(1, line, len); write(file, line, len);
    usleep(300);
  } while (access(\"stop\", F_OK) != 0);
  int len = snprintf(line, sizeof line, \"end %ld\\n\", *all);
  write(1, line, len); write(file, line, len);
  return 7;
}";

#[test]
fn a_process_that_could_share_comes_back_alone() {
    let mut run = Run::start("alone", ALONE, &["-n", "3"], 1);
    run.until_more_lines();
    for replica in [0, 1, 2, 0] {
        run.lose(run.root(), replica);
        run.until_more_lines();
    }
    run.finish();
}

/// A process that shares memory waits for its child, and makes no call meanwhile.
const IDLE: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/mman.h>\n
#include <sys/wait.h>\n#include <unistd.h>\n
int main(void) {
  long *all = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int file = open(\"lines\", O_WRONLY | O_CREAT | O_APPEND, 0644), over, status;
  char line[32];
  if (fork() > 0) return wait(&status) > 0 ? WEXITSTATUS(status) : 1;
  do {
    over = access(\"stop\", F_OK) == 0;
    int len = snprintf(line, sizeof line, over ? \"end %ld\\n\" : \"%ld\\n\", (*all)++);
    write(1, line, len); write(file, line, len);
    usleep(300);
  } while (!over);
  return 7;
}";

/// None of its siblings waits for it, but replicas of other processes wait for its turns.
#[test]
fn a_stopped_replica_of_a_process_that_waits_comes_back() {
    for scrub in ["off", "64"] {
        let options = ["-n", "3", "--timeout", "500ms", "--scrub", scrub];
        let mut run = Run::start("idle", IDLE, &options, 2);
        run.until_more_lines();
        for replica in [1, 0, 2] {
            let pid = run.pids[&(run.root(), replica)];
            signal(pid, Signal::STOP).expect("a living replica");
            run.until_back(replica);
            run.until_more_lines();
        }
        run.finish();
    }
}

/// A segment that no process has attached for most of the time.
const SEGMENT: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/shm.h>\n
#include <unistd.h>\n
int main(void) {
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  int file = open(\"lines\", O_WRONLY | O_CREAT | O_APPEND, 0644), over;
  char line[32];
  do {
    long *at = shmat(id, 0, 0);
    over = access(\"stop\", F_OK) == 0;
    int len = snprintf(line, sizeof line, over ? \"end %ld\\n\" : \"%ld\\n\", *at);
    ++*at;
    shmdt(at);
    write(1, line, len); write(file, line, len);
    usleep(2000);
  } while (!over);
  shmctl(id, IPC_RMID, 0);
  return 7;
}";

#[test]
fn a_segment_is_there_again_for_who_comes_back() {
    let mut run = Run::start("segment", SEGMENT, &["-n", "3"], 1);
    run.until_more_lines();
    for replica in [2, 0, 1] {
        run.lose(run.root(), replica);
        run.until_more_lines();
    }
    run.finish();
}

const NGINX: &str = "daemon off; worker_processes 2; pid nginx.pid; error_log error.log notice;
events { worker_connections 64; }
http { access_log access.log; client_body_temp_path body; proxy_temp_path proxy;
  fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server { listen unix:socket; root site; } }\n";

/// Asks for a page; what came without its header.
fn get(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(format!("no answer: {text:?}")))
}

#[test]
fn a_server_with_two_workers_serves_on() {
    let scene = Scene::new();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scene.path(), all).unwrap();
    std::fs::create_dir(scene.path().join("site")).unwrap();
    let page = "page\n".repeat(5000);
    scene.write("site/page", &page);
    scene.write("nginx.conf", NGINX);
    let folder = format!("{}/", scene.path().display());
    let command = [
        "/usr/sbin/nginx",
        "-e",
        "error.log",
        "-p",
        &folder,
        "-c",
        "nginx.conf",
    ];
    let group = scene.start_group(&["-n", "3"], &command);
    let socket = scene.path().join("socket");
    until("the first answer", || get(&socket).ok());
    let mut run = Run::of(scene, group, String::new(), 3);
    let (stop, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ask = || {
            while !stop.load(Ordering::Relaxed) {
                assert!(get(&socket).expect("an answer") == page);
                answers.fetch_add(1, Ordering::Relaxed);
            }
        };
        let clients = [scope.spawn(ask), scope.spawn(ask)];
        let until_asked = || {
            let before = answers.load(Ordering::Relaxed);
            until("more answers", || {
                (answers.load(Ordering::Relaxed) > before + 10).then_some(())
            });
        };
        let serve = || {
            until_asked();
            for replica in [1, 0, 2] {
                run.lose(run.root(), replica);
                until_asked();
            }
            let root = run.root();
            let workers: Vec<_> = run.pids.keys().copied().filter(|it| it.0 != root).collect();
            assert_eq!(workers.len(), 6, "two workers of three replicas");
            for (process, replica) in workers {
                run.lose(process, replica);
                until_asked();
            }
            run
        };
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client that was always answered");
        }
        let run = served.expect("all replicas back");
        signal(run.group.running.pid(), Signal::QUIT).unwrap();
        let (outcome, events) = run.group.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{events:?}");
    });
}
