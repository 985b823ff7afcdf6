//! Programs of Linux in the system sphere that look for names: their own, those of files, and those
//! that a server knows which the host asks.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::linux::{GLIBC, MUSL};
use rcoe_tests::rcoe::Scene;
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system, words};

const HOST: &str = include_str!("system_linux_names/host.c");
const FINDS: &str = include_str!("system_linux_names/finds.c");

/// A dynamic program of the host's own libc.
const DYNAMIC: &[&str] = &["gcc"];

fn scene(compiler: &[&str]) -> Scene {
    let scene = Scene::new();
    scene.compile_by(compiler, "finds", FINDS, &["-O1", "-w"]);
    scene
}

/// Runs a program on a host of its own, on which nothing but this test has ports and names.
fn on_own_host(scene: &Scene, options: &[&str], command: &[&str]) -> Outcome {
    scene.compile_by(GLIBC, "host", HOST, &["-O1", "-w"]);
    scene.write("resolv.conf", "nameserver 127.0.0.1\n");
    let host = ["unshare", "-rnm", "./host", "resolv.conf"];
    let words = words(options, command);
    let words = words.iter().map(String::as_str);
    let all: Vec<&str> = host.into_iter().chain(words).collect();
    scene.run(&all)
}

#[test]
fn names_that_the_host_can_find_are_found() {
    if is_aarch64() {
        return;
    }
    let libraries = [MUSL, GLIBC, DYNAMIC];
    for (compiler, replicas) in sampled(pairs(&libraries, &["1", "2", "3"])) {
        let scene = scene(compiler);
        let options = ["-n", replicas, "--outgoing"];
        let command = ["./finds", "one.example", "two.example", "localhost", "rcoe"];
        let outcome = on_own_host(&scene, &options, &command);
        let what = format!("{compiler:?} {replicas}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        let wanted = "one.example 10.0.2.2:80\ntwo.example is unknown\n\
                      localhost 127.0.0.1:80\nrcoe 10.0.2.15:80\n";
        assert_eq!(outcome.out(), wanted, "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

#[test]
fn busybox_gets_a_page_by_its_name() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let page = "http://one.example:8000/page";
    let words = ["busybox", "wget", "-q", "-O", "-", page];
    let outcome = on_own_host(&scene, &["-n", "3", "--outgoing"], &words);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "found by it");
    let words = ["busybox", "nslookup", "one.example"];
    let outcome = on_own_host(&scene, &["-n", "2", "--outgoing"], &words);
    assert!(outcome.out().contains("10.0.2.2"), "{}", outcome.out());
}

#[test]
fn names_of_files_are_found_without_a_network() {
    if is_aarch64() {
        return;
    }
    for compiler in sampled(vec![MUSL, GLIBC, DYNAMIC]) {
        let scene = scene(compiler);
        let command = ["./finds", "localhost", "rcoe", "127.0.0.9"];
        let outcome = system(&scene, &["-n", "2"], &command);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let own = "localhost 127.0.0.1:80\nrcoe 10.0.2.15:80\n127.0.0.9 127.0.0.9:80\n";
        assert_eq!(outcome.out(), own, "{compiler:?}: {}", outcome.err());
        // The user's own file comes first.
        scene.write("hosts", "10.9.8.7 mine\n");
        let options = ["-n", "2", "--file", "hosts:/etc/hosts"];
        let outcome = system(&scene, &options, &["./finds", "mine"]);
        assert_eq!(outcome.out(), "mine 10.9.8.7:80\n", "{}", outcome.err());
    }
}
