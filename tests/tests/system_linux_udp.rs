//! Programs of Linux in the system sphere that send datagrams by UDP: to each other, to a server of
//! the host, and to its clients.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::machine::{OBJECTS, Reached, flip_text, removed};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system};
use serde_json::Value;

/// The host's loopback, as the machine sees it.
const HOST: &str = "10.0.2.2";

const WITHIN: &str = include_str!("system_linux_udp/within.c");
const ASKS: &str = include_str!("system_linux_udp/asks.c");
const SERVES: &str = include_str!("system_linux_udp/serves.c");

/// Has a port, and sends where nothing leads.
const MUTE: &str = r#"
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

int main(int count, char **words)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(53)};
    int file = socket(AF_INET, SOCK_DGRAM, 0);

    (void)count;
    if (bind(file, (void *)&at, sizeof at))
        return 3;
    inet_pton(AF_INET, words[1], &at.sin_addr);
    return sendto(file, "x", 1, 0, (void *)&at, sizeof at) >= 0 || errno != ENETUNREACH;
}
"#;

fn compile(scene: &Scene, name: &str, compiler: &[&str], source: &str) {
    scene.compile_by(compiler, name, source, &["-O1", "-w", "-pthread"]);
}

#[test]
fn datagrams_in_the_machine_do_what_they_do_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (name, compiler) in [("musl", MUSL), ("glibc", GLIBC)] {
        compile(&scene, name, compiler, WITHIN);
        let program = format!("./{name}");
        let native = scene.run(&[&program]);
        assert_eq!(native.ended, Ended::Exit(7), "{}", native.out());
        let ways = pairs(&["1", "2", "3"], &["io", "every"]);
        for (replicas, compare) in sampled(ways) {
            let options = ["-n", replicas, "--compare", compare];
            let carried = system(&scene, &options, &[&program]);
            assert_alike(&carried, &native, &format!("{name} {replicas} {compare}"));
        }
    }
}

/// A server at a port of the loopback that nobody else has.
struct Server {
    socket: UdpSocket,
    port: String,
    /// How many questions came for the first time.
    count: u64,
}

/// What is asked with a number.
fn question(number: u64) -> Vec<u8> {
    let len = 8 + number * 97 % (1472 - 7);
    let body = (8..len).map(|at| (at * 31 + number * 7).to_le_bytes()[0]);
    number.to_le_bytes().into_iter().chain(body).collect()
}

impl Server {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port().to_string();
        Self {
            socket,
            port,
            count: 0,
        }
    }

    /// The next question, which has to be whole: the one that was last, or the one behind it.
    fn next(&mut self) -> (Vec<u8>, SocketAddr) {
        self.socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut room = [0; 4096];
        let (count, from) = self.socket.recv_from(&mut room).unwrap();
        let number = u64::from_le_bytes(*room.first_chunk().unwrap());
        assert!(
            room[..count] == question(number),
            "{number} has {count} bytes"
        );
        match self.count.checked_sub(number) {
            Some(0) => self.count += 1,
            Some(1) => {}
            _ => panic!("{number} came, where {} were asked", self.count),
        }
        (room[..count].to_vec(), from)
    }

    fn answer(&mut self) {
        let (bytes, from) = self.next();
        self.socket.send_to(&bytes, from).unwrap();
    }

    /// Ends the client, however often that takes, until it is said to be enough.
    fn end(&self, over: &AtomicBool) {
        self.socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        while !over.load(Ordering::Relaxed) {
            match self.socket.recv_from(&mut [0; 4096]) {
                Ok((_, from)) => drop(self.socket.send_to(&[0xff; 8], from).unwrap()),
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                    "{error}"
                ),
            }
        }
    }
}

#[test]
fn a_client_of_linux_is_answered_by_a_server_of_the_host() {
    if is_aarch64() {
        return;
    }
    let ways = pairs(&[MUSL, GLIBC], &[&[][..], &["connected"]]);
    for ((compiler, how), replicas) in sampled(pairs(&ways, &["1", "2", "3"])) {
        let scene = Scene::new();
        compile(&scene, "asks", compiler, ASKS);
        let mut server = Server::new();
        let port = server.port.clone();
        let over = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while server.count < 200 {
                    server.answer();
                }
                server.end(&over);
            });
            let words = [&["./asks", HOST, &port], how].concat();
            let outcome = system(&scene, &["-n", replicas, "--outgoing"], &words);
            over.store(true, Ordering::Relaxed);
            outcome
        });
        let what = format!("{compiler:?} {how:?} {replicas}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

/// A host's port, at an address of the loopback that no other test has.
fn address() -> SocketAddrV4 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddrV4::new(Ipv4Addr::new(127, high, low, last), 8053)
}

/// What `serves` has in its memory, and in all that it sends.
const MASK: &[u8; 21] = b"what all answers bear";

/// What `serves` makes of a question.
fn masked(mut bytes: Vec<u8>) -> Vec<u8> {
    for (at, byte) in bytes.iter_mut().enumerate().skip(8) {
        *byte ^= MASK[at % MASK.len()];
    }
    bytes
}

/// A client of a published port, which asks again until it is answered.
struct Client {
    socket: UdpSocket,
    count: u64,
}

impl Client {
    fn new(host: SocketAddrV4) -> Self {
        // The one address of the loopback that the emulator takes for the host.
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(host).unwrap();
        let pause = Some(Duration::from_secs(1));
        socket.set_read_timeout(pause).unwrap();
        Self { socket, count: 0 }
    }

    /// Asks the next question, and has to get the whole answer.
    fn ask(&mut self) {
        let asked = question(self.count);
        let wanted = masked(asked.clone());
        until("an answer", || {
            self.socket.send(&asked).unwrap();
            let mut room = [0; 4096];
            // Answers to what was asked twice come twice.
            while let Ok(count) = self.socket.recv(&mut room) {
                if room[..8] == asked[..8] {
                    assert!(room[..count] == wanted, "{count} bytes of {}", asked.len());
                    return Some(());
                }
            }
            None
        });
        self.count += 1;
    }

    /// Ends the server, however often that takes.
    fn end(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            // Nobody may be there any more.
            let _ = self.socket.send(&[]);
            let _ = self.socket.recv(&mut [0; 4096]);
        }
    }
}

#[test]
fn a_server_of_linux_answers_clients_of_the_host_at_a_published_port() {
    if is_aarch64() {
        return;
    }
    for (compiler, replicas) in sampled(pairs(&[MUSL, GLIBC], &["1", "2", "3"])) {
        let (scene, host) = (Scene::new(), address());
        compile(&scene, "serves", compiler, SERVES);
        let published = format!("{host}:53/udp");
        let options = ["-n", replicas, "--outgoing", "--publish", &published];
        let reached = Reached::start_sized(scene, MEGABYTES, &options, &["./serves"]);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = Client::new(host);
                    for _ in 0..40 {
                        client.ask();
                    }
                });
            }
        });
        let (outcome, _) = finish(reached, |over| Client::new(host).end(over));
        let what = format!("{compiler:?} {replicas}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(
            (outcome.out(), outcome.err()),
            ("serves\n".into(), String::new())
        );
    }
}

#[test]
fn replicas_of_a_server_are_lost_and_its_clients_are_answered() {
    if is_aarch64() {
        return;
    }
    let (scene, host) = (Scene::new(), address());
    compile(&scene, "serves", MUSL, SERVES);
    let published = format!("{host}:53/udp");
    let options = ["-n", "3", "--outgoing", "--publish", &published];
    let reached = Reached::start_sized(scene, MEGABYTES, &options, &["./serves"]);
    let mut client = Client::new(host);
    client.ask();
    // The first one is the primary.
    let victims = [0, 2, 1];
    for (index, victim) in victims.into_iter().enumerate() {
        lose(&reached, victim, MASK);
        until("the replica to be back", || {
            client.ask();
            is_back(&reached, index + 1)
        });
    }
    client.ask();
    let (outcome, events) = finish(reached, |over| client.end(over));
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(removed(&events), victims.map(|victim| victim as u64));
}

#[test]
fn datagrams_are_published_only_where_answers_can_leave() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "serves", MUSL, SERVES);
    let published = format!("{}:53/udp", address());
    let options = ["-n", "2", "--publish", &published];
    let refused = system(&scene, &options, &["./serves"]);
    assert_eq!(refused.ended, Ended::Exit(125));
    let err = refused.err();
    assert!(
        err.contains(&published) && err.contains("--outgoing"),
        "{err}"
    );
    // Who serves what nobody reaches is told.
    scene.compile_by(MUSL, "mute", MUTE, &["-O1", "-w"]);
    let outcome = system(&scene, &["-n", "2"], &["./mute", HOST]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let err = outcome.err();
    assert!(err.contains("--publish HOST:53/udp"), "{err}");
    assert!(err.contains("add --outgoing"), "{err}");
}

/// The card's address in the network, which is in each frame that the stack sends.
const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Megabytes of a replica.
const MEGABYTES: usize = 64;

/// Has a replica send other frames than its siblings, in all of which this is.
fn lose(reached: &Reached, victim: usize, text: &[u8]) {
    let whole = (MEGABYTES << 20) - OBJECTS;
    reached.change(victim, OBJECTS, whole, |bytes| flip_text(bytes, text));
}

/// Have so many replicas come back?
fn is_back(reached: &Reached, count: usize) -> Option<()> {
    let events = events_of(&reached.scene.path().join("e"));
    let back = events.iter().filter(|event| event["stage"] == "done");
    (back.count() == count).then_some(())
}

/// What came of a machine, which somebody beside it ends, until it has ended.
fn finish(reached: Reached, end: impl FnOnce(&AtomicBool) + Send) -> (Outcome, Vec<Value>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| end(&over));
        let finished = reached.finish();
        over.store(true, Ordering::Relaxed);
        finished
    })
}

#[test]
fn replicas_of_a_client_are_lost_and_its_datagrams_stay_whole() {
    if is_aarch64() {
        return;
    }
    // The first one is the primary.
    for victims in sampled(vec![[0, 1], [2, 0]]) {
        let scene = Scene::new();
        compile(&scene, "asks", MUSL, ASKS);
        let mut server = Server::new();
        let words = ["./asks", HOST, &server.port];
        let options = ["-n", "3", "--outgoing"];
        let reached = Reached::start_sized(scene, MEGABYTES, &options, &words);
        server.answer();
        for (index, victim) in victims.into_iter().enumerate() {
            // It has asked, and asks again: then that one sends something else.
            server.next();
            lose(&reached, victim, &CARD);
            until("the replica to be back", || {
                server.answer();
                is_back(&reached, index + 1)
            });
        }
        server.answer();
        let (outcome, events) = finish(reached, |over| server.end(over));
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(removed(&events), victims.map(|victim| victim as u64));
    }
}
