//! The system sphere: unmodified servers of Linux that make processes, with clients on the host.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::linux::{GLIBC, MUSL};
use rcoe_tests::machine::{OBJECTS, Reached, flip_text, removed};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::is_aarch64;
use rustix::process::Signal;

/// A host's port, at an address of the loopback that no other test has.
fn address() -> SocketAddrV4 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddrV4::new(Ipv4Addr::new(127, high, low, last), 8021)
}

fn connect(host: SocketAddrV4) -> TcpStream {
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn stop(reached: Reached) -> (Outcome, Vec<serde_json::Value>) {
    launch::signal(reached.running.pid(), Signal::TERM).unwrap();
    let (outcome, events) = reached.finish();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    (outcome, events)
}

/// The card's address in the network, which is in each frame that the stack sends.
const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Megabytes of a replica's partition in which all copies of it are that are used.
const NEAR: usize = 64;

/// What this replica sends is wrong from here on.
fn lose(reached: &Reached, victim: usize) {
    reached.change(victim, OBJECTS, (NEAR << 20) - OBJECTS, |bytes| {
        flip_text(bytes, &CARD);
    });
}

/// How often a replica has come back.
fn back(reached: &Reached) -> usize {
    let events = events_of(&reached.scene.path().join("e"));
    let back = events.iter().filter(|event| event["stage"] == "done");
    back.count()
}

/// A client of Redis.
struct Client(TcpStream);

impl Client {
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }

    /// What is answered to a command: a line, or text of a given length.
    fn ask(&mut self, words: &[&str]) -> String {
        let mut asked = format!("*{}\r\n", words.len());
        for word in words {
            asked += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.write_all(asked.as_bytes()).unwrap();
        let line = self.line();
        let Some(len) = line.strip_prefix('$') else {
            return line;
        };
        let mut text = vec![0; len.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut text).unwrap();
        text.truncate(text.len() - 2);
        String::from_utf8(text).unwrap()
    }
}

/// How the last copy of all data ended, which a process of its own writes: `None` while it does.
fn saved(client: &mut Client) -> Option<bool> {
    let told = client.ask(&["INFO", "persistence"]);
    let is = |what: &str| told.lines().any(|line| line == what);
    is("rdb_bgsave_in_progress:0").then(|| is("rdb_last_bgsave_status:ok"))
}

/// Redis as the distribution has it. It says nothing while replicas are lost, as a primary that is
/// lost amid output stops the machine.
#[test]
fn redis_counts_on_and_saves_while_replicas_are_lost() {
    if is_aarch64() || !Path::new("/usr/bin/redis-server").exists() {
        return;
    }
    let (scene, host) = (Scene::new(), address());
    let published = format!("{host}:6379");
    let options = ["-n", "3", "--publish", &published];
    let server = ["redis-server", "--save", "", "--protected-mode", "no"];
    let reached = Reached::start_sized(scene, 256, &options, &server);
    until("the server", || {
        let told = reached.running.stdout_so_far().unwrap();
        told.contains("Ready to accept").then_some(())
    });
    let mut clients = [(); 3].map(|()| Client(connect(host)));
    for client in &mut clients {
        assert_eq!(client.ask(&["CONFIG", "SET", "loglevel", "warning"]), "+OK");
    }
    let mut count = 0;
    let mut ask = |client: &mut Client| {
        count += 1;
        assert_eq!(client.ask(&["INCR", "counter"]), format!(":{count}"));
    };
    for (index, victim) in [0, 1, 2, 0].into_iter().enumerate() {
        let started = clients[0].ask(&["BGSAVE"]);
        assert_eq!(started, "+Background saving started");
        lose(&reached, victim);
        until("the replica to be back", || {
            clients.iter_mut().for_each(&mut ask);
            (back(&reached) == index + 1).then_some(())
        });
        let saved = until("all to be saved", || saved(&mut clients[0]));
        assert!(saved, "loss {index}");
        clients.iter_mut().for_each(&mut ask);
    }
    let (_, events) = stop(reached);
    assert_eq!(removed(&events), [0, 1, 2, 0]);
}

const SERVER: &str = include_str!("system_linux_service/server.c");
const MEGABYTES: usize = 64;

/// Runs a server in this manner, has clients of it do something, and tells what it said.
fn served(how: &str, compiler: &[&str], replicas: &str, act: impl Fn(SocketAddrV4)) -> String {
    let (scene, host) = (Scene::new(), address());
    scene.compile_by(compiler, "server", SERVER, &["-O2"]);
    let published = format!("{host}:7");
    let options = ["-n", replicas, "--publish", &published];
    let reached = Reached::start_sized(scene, MEGABYTES, &options, &["./server", how]);
    act(host);
    let (outcome, _) = stop(reached);
    assert_eq!(outcome.err(), "", "{how} {replicas}");
    outcome.out()
}

/// A client that has been answered: what it sends next is sent by a connection that is made.
fn welcomed(host: SocketAddrV4, said: &[u8]) -> TcpStream {
    let mut stream = connect(host);
    let mut back = vec![0; said.len()];
    stream.write_all(said).unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, said);
    stream
}

/// Sends bytes while it takes them back, and words of the server behind them; then the server has
/// to close.
fn exchange(mut stream: TcpStream, count: usize, last: &[u8]) {
    let mut all: Vec<u8> = (0..count)
        .map(|at| (at * 31 / 7).to_le_bytes()[0] | 0x80)
        .collect();
    let mut writer = stream.try_clone().unwrap();
    let sent = all.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    all.extend_from_slice(last);
    assert!(back == all, "{} bytes came back of {count}", back.len());
}

/// Clients that come together, more than a server has processes ahead.
fn crowd(host: SocketAddrV4) {
    thread::scope(|scope| {
        for count in [0, 1, 20_000, 9_000, 30_000, 2, 5_000] {
            scope.spawn(move || exchange(welcomed(host, b"hello"), count, b""));
        }
    });
}

/// The server's process closes its copy of a connection, whose own process goes on with it.
#[test]
fn a_process_for_each_client_serves_it_to_its_end() {
    if is_aarch64() {
        return;
    }
    for (compiler, replicas) in sampled(vec![(GLIBC, "1"), (MUSL, "3")]) {
        let said = served("each", compiler, replicas, |host| {
            crowd(host);
            // There is room for more, as processes and connections are given back.
            for _ in 0..2 {
                crowd(host);
            }
            // A process that ends closes.
            exchange(welcomed(host, b"."), 0, b"");
        });
        assert_eq!(said, "listens\n");
    }
}

/// What one process has closed, and another has yet, is not closed for the client.
#[test]
fn a_connection_ends_with_its_last_descriptor() {
    if is_aarch64() {
        return;
    }
    for (compiler, replicas) in sampled(vec![(MUSL, "1"), (GLIBC, "3")]) {
        // The process that made the serving one ends, again and again.
        let said = served("each", compiler, replicas, |host| {
            let mut stream = welcomed(host, b"hello");
            for _ in 0..20 {
                let mut back = [0];
                stream.write_all(b">").unwrap();
                stream.read_exact(&mut back).unwrap();
                assert_eq!(&back, b">");
            }
            exchange(stream, 10_000, b"");
        });
        assert_eq!(said, "listens\n");
        // The serving one ends, and the other has a word to say yet.
        let said = served("keeps", compiler, replicas, |host| {
            exchange(welcomed(host, b"hello"), 10_000, b"kept");
            exchange(welcomed(host, b"."), 0, b"kept");
        });
        assert_eq!(said, "listens\n");
    }
}

#[test]
fn processes_made_ahead_accept_at_one_listener() {
    if is_aarch64() {
        return;
    }
    for (how, compiler, replicas) in sampled(vec![
        ("ahead", GLIBC, "1"),
        ("ahead", MUSL, "3"),
        ("herd", MUSL, "1"),
        ("herd", GLIBC, "3"),
    ]) {
        let said = served(how, compiler, replicas, |host| {
            crowd(host);
            // One ends, and another one takes its place.
            for _ in 0..6 {
                exchange(welcomed(host, b"."), 0, b"");
            }
            crowd(host);
        });
        assert_eq!(
            said,
            format!("listens\n{}", "a worker ended: 0\n".repeat(6))
        );
    }
}
