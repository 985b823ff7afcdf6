//! The system sphere on AArch64: network and disk of unmodified programs of Linux. What is of the
//! drivers alone is in suites that run for both processors (`cargo xtask test --only aarch64`).

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::thread;

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::linux::AARCH64;
use rcoe_tests::machine::{Reached, removed};
use rcoe_tests::network::{CARD, address, connect, exchange, welcomed};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{system, system_with};
use rustix::process::Signal;

const ARCH: &str = "--arch=aarch64";

/// Sources of other suites: a server that sends back what comes, a client that asks one number
/// after the other, and a program that has each number on the disk before it goes on.
const SERVER: &str = include_str!("system_linux_net/server.c");
const ASKS: &str = include_str!("system_linux_out/asks.c");
const COUNTS: &str = include_str!("system_linux_disk/counts.c");
/// Says what the files that it is told of hold.
const SAYS: &str = include_str!("system_network_aarch64/says.c");

/// The host's port, and megabytes of a replica.
const PORT: u16 = 8043;
const MEGABYTES: usize = 48;

fn compiled(name: &str, source: &str) -> Scene {
    let scene = Scene::new();
    compile(&scene, name, source);
    scene
}

fn compile(scene: &Scene, name: &str, source: &str) {
    let words = ["-static", "-O2", "-w", "-pthread"];
    scene.compile_by(AARCH64, name, source, &words);
}

fn start(scene: Scene, options: &[&str], command: &[&str]) -> Reached {
    Reached::start_sized(scene, MEGABYTES, &[&[ARCH], options].concat(), command)
}

fn stop(reached: Reached) -> (Outcome, Vec<serde_json::Value>) {
    launch::signal(reached.running.pid(), Signal::TERM).unwrap();
    let (outcome, events) = reached.finish();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    (outcome, events)
}

/// Has each of these send other frames than its siblings, and waits until it is back, while there
/// is something to do.
fn lose(reached: &Reached, victims: &[usize], mut busy: impl FnMut()) {
    for (index, &victim) in victims.iter().enumerate() {
        reached.flip(victim, &CARD);
        until("the replica to be back", || {
            busy();
            (reached.brought_back() == index + 1).then_some(())
        });
    }
}

#[test]
fn a_server_of_linux_serves_clients_of_the_host() {
    for (how, replicas) in sampled(pairs(&[&["watch"][..], &[]], &["1", "3"])) {
        let (scene, host) = (compiled("server", SERVER), address(PORT));
        let published = format!("{host}:7");
        let options = ["-n", replicas, "--publish", &published];
        let reached = start(scene, &options, &[&["./server"], how].concat());
        drop(connect(host));
        let clients = [0, 1, 30_000].map(|count| (welcomed(host), count));
        thread::scope(|scope| {
            for (stream, count) in clients {
                scope.spawn(move || exchange(stream, count));
            }
        });
        exchange(welcomed(host), 100);
        let (outcome, _) = stop(reached);
        assert_eq!(outcome.out(), "listens at port 7\n");
        assert_eq!(outcome.err(), "", "{how:?} {replicas}");
    }
}

#[test]
fn replicas_of_a_server_are_lost_the_primary_first_and_its_client_sees_nothing_of_it() {
    let (scene, host) = (compiled("server", SERVER), address(PORT));
    let published = format!("{host}:7");
    let options = ["-n", "3", "--publish", &published];
    let reached = start(scene, &options, &["./server", "watch"]);
    let mut stream = connect(host);
    let mut count = 0_u64;
    lose(&reached, &[0, 1, 2], || {
        let (asked, mut back) = (count.to_le_bytes(), [0; 8]);
        stream.write_all(&asked).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, asked);
        count += 1;
    });
    exchange(welcomed(host), 5_000);
    let (_, events) = stop(reached);
    assert_eq!(removed(&events), [0, 1, 2]);
}

#[test]
fn a_client_connects_to_a_server_of_the_host_and_its_primary_is_lost() {
    let scene = compiled("asks", ASKS);
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let options = ["-n", "3", "--outgoing"];
    let reached = start(scene, &options, &["./asks", &port]);
    let (mut stream, _) = server.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut count = 0_u64;
    lose(&reached, &[0], || {
        let mut asked = [0; 8];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(asked, count.to_le_bytes());
        stream.write_all(&asked).unwrap();
        count += 1;
    });
    // The last question is not answered.
    stream.read_exact(&mut [0; 8]).unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    let (outcome, events) = reached.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(removed(&events), [0]);
}

#[test]
fn files_of_the_disk_are_there_in_the_next_machine() {
    let scene = compiled("counts", COUNTS);
    compile(&scene, "says", SAYS);
    for (writers, readers) in sampled(vec![("1", "3"), ("3", "2")]) {
        let options = [ARCH, "-n", writers, "--disk", "disk"];
        let outcome = system(&scene, &options, &["./counts", writers]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let options = [ARCH, "-n", readers, "--disk", "disk"];
        let outcome = system(&scene, &options, &["./says", "/disk/count"]);
        assert_eq!(outcome.out(), format!("counted up to {writers}\n"));
        assert_eq!(outcome.err(), "", "{writers} {readers}");
    }
}

/// The byte of device memory that is the first register of the disk: behind the console, the timer
/// and the configuration of devices, 8 pages before the end of a window of 256.
const REGISTERS: u64 = (2 + 256 + 248) << 12;

/// The disk has got what the first primary wrote, and the others do not know.
#[test]
fn a_primary_that_is_lost_within_a_write_to_the_disk_is_masked() {
    // Its state; which queue is meant, which is where all agree; where the queue is; that a request
    // is there.
    for register in sampled(vec![0x14, 0x16, 0x20, 0x3000]) {
        let scene = compiled("counts", COUNTS);
        compile(&scene, "says", SAYS);
        let options = [ARCH, "-n", "3", "--disk", "disk", "--events", "e"];
        let kernel = format!("breaks-at-register={} victim=0", REGISTERS + register);
        let outcome = system_with(&scene, &kernel, &options, &["./counts", "40"]);
        let what = format!("{register:#x}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), "1\n17\n33\n", "{what}");
        assert!(what.contains("break while it writes"), "{what}");
        let events = events_of(&scene.path().join("e"));
        let takeover = events.iter().any(|event| event["type"] == "takeover");
        assert!(takeover, "{what} {events:?}");
        let options = [ARCH, "-n", "1", "--disk", "disk"];
        let outcome = system(&scene, &options, &["./says", "/disk/count"]);
        assert_eq!(outcome.out(), "counted up to 40\n", "{what}");
    }
}
