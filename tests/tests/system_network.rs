//! The system sphere's network: a client on the host and a server in the machine, by the user-level
//! drivers of two network cards and a TCP/IP stack in a process of its own.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rcoe_tests::launch::{self, Ended, Outcome, Running};
use rcoe_tests::machine::{OBJECTS, Reached, flip_text, removed};
use rcoe_tests::network::{CARD, address, bytes, connect, exchange};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system, words};
use rustix::process::Signal;

/// The host's port.
const PORT: u16 = 8007;

/// The network cards: one that finds frames by its registers, one by descriptors in memory.
const RTL8139: &str = "rtl8139";
const VIRTIO: &str = "virtio";

/// All of them, or half on the processor that is not usual.
fn less<T: Debug>(all: Vec<T>) -> Vec<T> {
    if is_aarch64() { sampled(all) } else { all }
}

/// What the option says.
fn publish(host: SocketAddrV4) -> String {
    format!("{host}:7")
}

/// A server, from its first output on.
fn serve(scene: &Scene, options: &[&str]) -> Running {
    serve_by(scene, words(options, &["echo"]))
}

fn serve_by(scene: &Scene, words: Vec<String>) -> Running {
    let running = launch::start(&words, scene.path(), None).unwrap();
    until("the server", || {
        let out = running.stdout_so_far().unwrap();
        let listens = out.contains("listens at port 7");
        assert!(
            listens || !running.has_ended(),
            "{}",
            running.stderr_so_far().unwrap()
        );
        listens.then_some(())
    });
    running
}

fn stop(running: Running) -> Outcome {
    launch::signal(running.pid(), Signal::TERM).unwrap();
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.survivors, 0, "nothing outlives rcoe");
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    outcome
}

#[test]
fn a_client_exchanges_bytes_with_a_replicated_server() {
    let ways = sampled(pairs(&["1", "2", "3"], &["io", "args", "every"])).into_iter();
    let others = sampled(vec![("1", "every"), ("2", "args"), ("3", "io")]).into_iter();
    let ways = ways.map(|way| (RTL8139, way));
    for (card, (replicas, compare)) in ways.chain(others.map(|way| (VIRTIO, way))) {
        let (scene, host) = (Scene::new(), address(PORT));
        let published = publish(host);
        let mode = ["-n", replicas, "--compare", compare];
        let options = [&mode[..], &["--nic", card, "--publish", &published]].concat();
        let running = serve(&scene, &options);
        // Some that say nothing, and two at a time.
        drop(connect(host));
        let first = connect(host);
        let mut second = connect(host);
        second.write_all(b"who comes second").unwrap();
        let mut back = [0; 16];
        second.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"who comes second");
        exchange(first, 50_000);
        exchange(second, 1);
        let outcome = stop(running);
        assert_eq!(
            outcome.err(),
            "",
            "{card} -n {replicas} --compare {compare}"
        );
    }
}

/// More clients than the stack has sockets, one after the other and many at once: those who come
/// too late are served when others have gone.
#[test]
fn sockets_come_back_from_clients_that_go() {
    let (scene, host) = (Scene::new(), address(PORT));
    let running = serve(&scene, &["-n", "2", "--publish", &publish(host)]);
    for turn in 0..40 {
        exchange(connect(host), 100 + turn);
    }
    // Clients that vanish: the rest of their bytes comes back to nobody.
    for _ in 0..20 {
        let mut stream = connect(host);
        stream.write_all(&bytes(0, 3000)).unwrap();
        // Whoever goes with bytes unread resets the connection.
        stream.read_exact(&mut [0]).unwrap();
    }
    exchange(connect(host), 20_000);
    assert_eq!(stop(running).err(), "");
}

/// A client that sends without an end and takes back what comes, while other things happen.
struct Client {
    stop: AtomicBool,
    back: AtomicU64,
}

impl Client {
    const fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            back: AtomicU64::new(0),
        }
    }

    /// Sends until it is stopped; how much that was.
    fn write(&self, mut stream: &TcpStream) -> u64 {
        let mut sent = 0;
        while !self.stop.load(Ordering::Relaxed) {
            // Never far ahead, so that much of it is on the way and not in buffers of the host.
            if sent > self.back.load(Ordering::Relaxed) + 4000 {
                thread::yield_now();
                continue;
            }
            let count = 1 + usize::try_from(sent % 1999).unwrap();
            stream.write_all(&bytes(sent, count)).unwrap();
            sent += count as u64;
        }
        stream.shutdown(Shutdown::Write).unwrap();
        sent
    }

    /// Takes back until the end; how much that was.
    fn read(&self, mut stream: &TcpStream) -> u64 {
        let mut room = [0; 4096];
        loop {
            let count = stream.read(&mut room).unwrap();
            let from = self.back.load(Ordering::Relaxed);
            if count == 0 {
                return from;
            }
            let good = room[..count] == bytes(from, count)[..];
            assert!(good, "wrong bytes among {count} from byte {from} on");
            self.back.store(from + count as u64, Ordering::Relaxed);
        }
    }

    /// Waits until more has come back.
    fn progress(&self) {
        let from = self.back.load(Ordering::Relaxed);
        until("bytes to come back", || {
            (self.back.load(Ordering::Relaxed) > from + 10_000).then_some(())
        });
    }
}

/// Ends a client, however a test ends: nothing waits for it then.
struct Ending<'a>(&'a Client, &'a TcpStream);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        if thread::panicking() {
            let _ = self.1.shutdown(Shutdown::Both);
        }
    }
}

/// Where the card's registers are in device memory: the last four pages of a window of 256. On
/// AArch64 there are others before it.
fn registers() -> u64 {
    let before = if is_aarch64() { 2 + 256 } else { 0 };
    (before + 252) * 4096
}

#[test]
fn replicas_are_lost_in_the_midst_of_a_connection_and_the_client_sees_nothing_of_it() {
    let ways = vec![(RTL8139, "io"), (RTL8139, "args"), (RTL8139, "every")];
    for (card, compare) in less([ways, vec![(VIRTIO, "args")]].concat()) {
        let host = address(PORT);
        let published = publish(host);
        let mode = ["-n", "3", "--compare", compare, "--nic", card];
        let options = [&mode[..], &["--publish", &published]].concat();
        let reached = Reached::start(&options, &["echo"]);
        let stream = connect(host);
        let client = Client::new();
        // The first one leads, then so does the second, and the first again in the end.
        let victims = [0, 1, 2, 0];
        thread::scope(|scope| {
            let writer = scope.spawn(|| client.write(&stream));
            let reader = scope.spawn(|| client.read(&stream));
            let ending = Ending(&client, &stream);
            for (index, victim) in victims.into_iter().enumerate() {
                client.progress();
                reached.change(victim, OBJECTS, 4 << 20, |bytes| flip_text(bytes, &CARD));
                until("the replica to be back", || {
                    (reached.brought_back() == index + 1).then_some(())
                });
            }
            client.progress();
            drop(ending);
            let (sent, back) = (writer.join().unwrap(), reader.join().unwrap());
            assert_eq!(back, sent, "{card} {compare}");
        });
        // New clients are served as before.
        exchange(connect(host), 5_000);
        launch::signal(reached.running.pid(), Signal::TERM).unwrap();
        let (outcome, events) = reached.finish();
        assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
        assert_eq!(removed(&events), [0, 1, 2, 0], "{card} {compare}");
    }
}

/// The card has got what the first primary wrote, and the others do not know. All registers are
/// written by the time a connection is made, so its bytes come later.
#[test]
fn a_primary_that_is_lost_within_a_write_to_the_card_is_masked() {
    // Lengths and places of frames; the ring; commands; up to where the ring was read; what is
    // acknowledged; the alarm.
    let registers = less(vec![0x10, 0x20, 0x30, 0x37, 0x38, 0x3e, 0x48, 0x54]);
    thread::scope(|scope| {
        for register in registers {
            scope.spawn(move || lost_within_a_write(RTL8139, register));
        }
    });
}

#[test]
fn a_primary_that_is_lost_within_a_write_to_a_card_with_descriptors_is_masked() {
    // Its state; which queue is meant, which is where all agree; where a queue is; that there are
    // buffers, or frames.
    let registers = less(vec![0x14, 0x16, 0x20, 0x30, 0x3000, 0x3004]);
    thread::scope(|scope| {
        for register in registers {
            scope.spawn(move || lost_within_a_write(VIRTIO, register));
        }
    });
}

fn lost_within_a_write(card: &str, register: u64) {
    let (scene, host) = (Scene::new(), address(PORT));
    let published = publish(host);
    let mode = ["-n", "3", "--nic", card, "--events", "e"];
    let options = [&mode[..], &["--publish", &published]].concat();
    let mut words = words(&options, &["echo"]);
    let place = registers() + register;
    words.insert(
        1,
        format!("RCOE_SYSTEM_WORDS=breaks-at-register={place} victim=0"),
    );
    let running = serve_by(&scene, words);
    let stream = connect(host);
    until("the replica to be back", || {
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().any(|event| event["stage"] == "done");
        back.then_some(())
    });
    exchange(stream, 20_000);
    let outcome = stop(running);
    let what = format!("{card} {register:#x}: {}", outcome.err());
    assert!(what.contains("break while it writes"), "{what}");
    let events = events_of(&scene.path().join("e"));
    let takeover = events.iter().any(|event| event["type"] == "takeover");
    assert!(takeover, "{what} {events:?}");
}

/// One reading of what the card wants is all replicas', and wrong: nothing diverges, and the card
/// is heard of all the same.
#[test]
fn a_wrong_reading_of_the_primary_leaves_the_card_at_work() {
    let wanted = format!("register={}", registers() + 0x3e);
    // What came; where a driver looks whether a place is empty, and whether something came.
    let done = ["transfer=9", "transfer=1"];
    let ways = [
        (RTL8139, wanted.as_str()),
        (VIRTIO, done[0]),
        (VIRTIO, done[1]),
    ];
    for ((card, what), after) in less(pairs(&ways, &[20, 61, 150])) {
        let (scene, host) = (Scene::new(), address(PORT));
        let published = publish(host);
        let options = ["-n", "2", "--nic", card, "--publish", &published];
        let mut words = words(&options, &["echo"]);
        let word = format!("misreads-{what} victim=0 after={after}");
        words.insert(1, format!("RCOE_SYSTEM_WORDS={word}"));
        let running = serve_by(&scene, words);
        exchange(connect(host), 200_000);
        stop(running);
    }
}

/// Nobody but the primary hears devices, so nothing diverges where it hears none: then drivers look
/// at them every second.
#[test]
fn a_primary_that_hears_no_device_answers_late() {
    if is_aarch64() {
        // There a line's level interrupts again and again.
        return;
    }
    for (card, replicas) in sampled(vec![(RTL8139, "2"), (VIRTIO, "1"), (VIRTIO, "3")]) {
        let (scene, host) = (Scene::new(), address(PORT));
        let published = publish(host);
        let options = ["-n", replicas, "--nic", card, "--publish", &published];
        let mut words = words(&options, &["echo"]);
        words.insert(1, "RCOE_SYSTEM_WORDS=probe=devices victim=0".to_owned());
        let running = serve_by(&scene, words);
        exchange(connect(host), 100);
        assert_eq!(stop(running).err(), "", "{card} {replicas}");
    }
}

#[test]
fn what_cannot_be_published_is_refused_by_name() {
    let scene = Scene::new();
    let taken = TcpListener::bind(address(PORT)).unwrap();
    let host = taken.local_addr().unwrap();
    let busy = format!("{host}:7");
    for (value, status, why) in [
        (
            busy.as_str(),
            125,
            "cannot be offered: Address already in use",
        ),
        ("7", 125, "[ADDRESS:]HOST:GUEST"),
        ("localhost:8007:7", 125, "'localhost' is no IPv4 address"),
        ("8007:0", 125, "port 0 is none"),
        ("192.0.2.1:8007:7", 125, "192.0.2.1:8007 cannot be offered"),
    ] {
        let outcome = system(&scene, &["--publish", value], &["echo"]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(status), "{value}: {err}");
        assert!(err.contains(why), "{value}: {err}");
        assert!(err.contains("--publish"), "{value}: {err}");
        assert_eq!(outcome.out(), "", "{value}");
    }
    let process = scene.rcoe(&["run", "--publish", "8007:7", "--", "true"]);
    assert!(
        process.err().contains("for the system sphere"),
        "{}",
        process.err()
    );
}

#[test]
fn a_server_without_a_network_says_so() {
    let scene = Scene::new();
    for replicas in sampled(vec!["1", "3"]) {
        let outcome = system(&scene, &["-n", replicas], &["echo", "7000"]);
        assert_eq!(outcome.ended, Ended::Exit(2), "{}", outcome.err());
        assert!(
            outcome.out().contains("add --publish HOST:7000"),
            "{}",
            outcome.out()
        );
    }
    let outcome = system(&scene, &["-n", "1"], &["echo", "65536"]);
    assert_eq!(outcome.ended, Ended::Exit(2), "{}", outcome.err());
    assert!(
        outcome.out().contains("65536 is no port"),
        "{}",
        outcome.out()
    );
}
