//! The system sphere: unmodified programs of Linux that connect to others of the same machine.
//!
//! Each program prints what it sees, and does the same on the host.

use rcoe_tests::launch::Ended;
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::rcoe::Scene;
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{is_aarch64, system};

const LOCAL: &str = include_str!("system_linux_local/local.c");

/// Descriptors that are sent from one process to another.
const RIGHTS: &str = include_str!("system_linux_local/rights.c");

/// Sockets that wait for all, for a time, or take nothing.
const RECEIVE: &str = include_str!("system_linux_local/receive.c");

/// Messages that stay whole.
const DATAGRAMS: &str = include_str!("system_linux_local/datagrams.c");

/// Connections of whole messages.
const PACKETS: &str = include_str!("system_linux_local/packets.c");

/// Who sent a message.
const CREDENTIALS: &str = include_str!("system_linux_local/credentials.c");

/// Pipes with names.
const FIFOS: &str = include_str!("system_linux_local/fifos.c");

/// Runs a program with so many replicas each, compared so, and natively.
fn alike(name: &str, text: &str, runs: [(&[&str], &str, &str); 3]) {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let program = format!("./{name}");
    for (compiler, replicas, compare) in sampled(runs.to_vec()) {
        scene.compile_by(compiler, name, text, &["-O2"]);
        let native = scene.run(&[&program]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &[&program]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

/// Every number of replicas, and every manner of comparing.
const RUNS: [(&[&str], &str, &str); 3] = [
    (GLIBC, "1", "args"),
    (MUSL, "2", "every"),
    (GLIBC, "3", "io"),
];

#[test]
fn servers_and_clients_of_one_machine_do_what_they_do_on_linux() {
    alike("local", LOCAL, RUNS);
}

#[test]
fn descriptors_go_by_messages_as_they_do_on_linux() {
    alike("rights", RIGHTS, RUNS);
}

#[test]
fn sockets_wait_for_all_or_for_a_time_as_they_do_on_linux() {
    alike("receive", RECEIVE, RUNS);
}

#[test]
fn datagrams_of_one_machine_are_those_of_linux() {
    alike("datagrams", DATAGRAMS, RUNS);
}

#[test]
fn connections_of_whole_messages_are_those_of_linux() {
    alike("packets", PACKETS, RUNS);
}

#[test]
fn who_sent_a_message_is_told_as_on_linux() {
    alike("credentials", CREDENTIALS, RUNS);
}

#[test]
fn named_pipes_are_those_of_linux() {
    alike("fifos", FIFOS, RUNS);
}
