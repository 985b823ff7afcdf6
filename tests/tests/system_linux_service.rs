//! The system sphere: unmodified servers of Linux that make processes, with clients on the host.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::machine::{OBJECTS, Reached, flip_text, story};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
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

fn removed(events: &[serde_json::Value]) -> Vec<u64> {
    let removed = story(events).into_iter();
    removed.filter_map(|(_, removed)| removed).collect()
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
