//! Programs of Linux in the system sphere that send datagrams by UDP: to each other, and to a
//! server of the host.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rcoe_tests::launch::Ended;
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::machine::{Reached, flip_text, removed};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system};

/// The host's loopback, as the machine sees it.
const HOST: &str = "10.0.2.2";

const WITHIN: &str = include_str!("system_linux_udp/within.c");
const ASKS: &str = include_str!("system_linux_udp/asks.c");

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

/// The card's address in the network, which is in each frame that the stack sends.
const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Megabytes of a replica.
const MEGABYTES: usize = 64;

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
            let whole = (MEGABYTES << 20) - rcoe_tests::machine::OBJECTS;
            reached.change(victim, rcoe_tests::machine::OBJECTS, whole, |bytes| {
                flip_text(bytes, &CARD);
            });
            until("the replica to be back", || {
                server.answer();
                let events = events_of(&reached.scene.path().join("e"));
                let back = events.iter().filter(|event| event["stage"] == "done");
                (back.count() == index + 1).then_some(())
            });
        }
        server.answer();
        let over = AtomicBool::new(false);
        let (outcome, events) = thread::scope(|scope| {
            scope.spawn(|| server.end(&over));
            let finished = reached.finish();
            over.store(true, Ordering::Relaxed);
            finished
        });
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(removed(&events), victims.map(|victim| victim as u64));
    }
}
