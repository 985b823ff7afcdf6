//! The system sphere: unmodified dynamic programs of Linux, with their own loaders and libraries.
//!
//! Each program prints what it sees, and does the same on the host.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;

use rcoe_tests::launch::{self, Ended};
use rcoe_tests::linux::assert_alike;
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{is_aarch64, system, system_with, words};

/// Compilers, and words that make libraries.
const MUSL: &[&str] = &["musl-gcc"];
const GLIBC: &[&str] = &["gcc"];
const LIBRARY: &[&str] = &["-shared", "-fPIC", "-O2"];

const PROGRAM: &str = include_str!("system_linux_dynamic/program.c");
const OWN: &str = include_str!("system_linux_dynamic/own.c");
const MODULE: &str = include_str!("system_linux_dynamic/module.c");
const OTHER: &str = include_str!("system_linux_dynamic/other.c");
const CODE: &str = include_str!("system_linux_dynamic/code.c");

/// A program with a library of its own and a module beside it.
fn compile(scene: &Scene, compiler: &[&str], words: &[&str], of_library: &[&str]) {
    for folder in ["lib", "modules"] {
        std::fs::create_dir_all(scene.path().join(folder)).unwrap();
    }
    let folder = |name: &str| format!("-L{}/{name}", scene.path().display());
    let library = |name: &str, source: &str, words: &[&str]| {
        scene.compile_by(compiler, name, source, &[LIBRARY, words].concat());
    };
    library("lib/libown.so", OWN, of_library);
    library("modules/libother.so", OTHER, &[]);
    let beside = [&folder("modules"), "-lother", "-Wl,-rpath,$ORIGIN"];
    library("modules/module.so", MODULE, &beside);
    let with = ["-O2", "-pthread", &folder("lib"), "-lown", "-lm", "-ldl"];
    let path = ["-Wl,-rpath,$ORIGIN/lib"];
    let words = [words, &with, &path].concat();
    scene.compile_by(compiler, "program", PROGRAM, &words);
}

#[test]
fn a_program_has_its_loader_its_libraries_and_its_modules() {
    if is_aarch64() {
        return;
    }
    let older = &["-no-pie", "-Wl,--disable-new-dtags", "-Wl,-z,now"];
    let together = &["-Wl,-z,noseparate-code"][..];
    for (compiler, words, of_library, replicas, compare) in sampled(vec![
        (GLIBC, &["-pie"][..], &[][..], "1", "args"),
        (GLIBC, older, together, "2", "io"),
        (MUSL, &["-pie"], &[], "3", "every"),
        (MUSL, older, together, "1", "io"),
    ]) {
        let scene = Scene::new();
        compile(&scene, compiler, words, of_library);
        let native = scene.run(&["./program", "a b", "c"]);
        assert_eq!(native.ended, Ended::Exit(42), "{}", native.err());
        assert!(native.out().contains("module: 11 22"), "{}", native.out());
        let file = "--file=modules/module.so";
        let options = ["-n", replicas, "--compare", compare, file];
        let outcome = system(&scene, &options, &["./program", "a b", "c"]);
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

#[test]
fn any_replica_of_a_dynamic_program_is_lost_and_comes_back() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, GLIBC, &[], &[]);
    let command = ["./program", "400000"];
    let native = scene.run(&command);
    for (probe, victim) in sampled(vec![("astray", 0), ("sudden", 1)]) {
        let kernel = format!("probe={probe} victim={victim}");
        let options = ["-n", "3", "--events", "e", "--file=modules"];
        let outcome = system_with(&scene, &kernel, &options, &command);
        assert_eq!(outcome.ended, native.ended, "{kernel}: {}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{kernel}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().any(|event| {
            event["type"] == "reintegration"
                && event["replica"] == victim
                && event["stage"] == "done"
        });
        assert!(back, "{kernel}: {events:?}");
    }
}

/// Those of the machine that the tests run on, with what they need.
#[test]
fn programs_of_a_distribution_run_as_they_are() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let lines: Vec<String> = (0..500).map(|it| (it * 7919 % 1009).to_string()).collect();
    scene.write("data", lines.join("\n") + "\n");
    let gawk = "BEGIN { for (i = 1; i < 5; i++) print i, 2^(i * 20), sin(i) }";
    let shell = "for i in 1 2 3; do echo $((i * i)); done; (exit 4); echo $?; echo a | { \
                 read x; echo got $x; }";
    let query = "create table t(a, b); insert into t values (1, 2.5), (3, 4.25); \
                 select sum(a), avg(b), sqlite_version() from t;";
    let mut any = false;
    for (replicas, command) in sampled(vec![
        ("1", &["dash", "-c", shell][..]),
        ("3", &["gawk", gawk]),
        ("2", &["sqlite3", ":memory:", query]),
        (
            "1",
            &["lua5.4", "-e", "print(_VERSION, ('x'):rep(9), math.sin(1))"],
        ),
        ("2", &["sort", "-n", "data"]),
        ("1", &["sha256sum", "data"]),
        ("1", &["openssl", "dgst", "-sha512", "data"]),
        ("1", &["stat", "-c", "%n %s %F", "data"]),
        ("1", &["find", "data", "-size", "1k"]),
    ]) {
        if !Path::new("/usr/bin").join(command[0]).exists() {
            continue;
        }
        any = true;
        let native = scene.run(command);
        let outcome = system(&scene, &["-n", replicas, "--file=data"], command);
        assert_alike(&outcome, &native, &format!("{command:?}"));
    }
    assert!(any, "there is none of these programs");
}

/// A server as the distribution has it, with a library of cryptography in which tables stand among
/// code.
#[test]
fn a_server_of_a_distribution_serves_clients_of_the_host() {
    if is_aarch64() || !Path::new("/usr/bin/redis-server").exists() {
        return;
    }
    let scene = Scene::new();
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = SocketAddrV4::new(Ipv4Addr::new(127, high, low, 77), 8019);
    let published = format!("{host}:6379");
    let server = ["redis-server", "--save", "", "--protected-mode", "no"];
    let words = words(&["-n", "2", "--publish", &published], &server);
    let running = launch::start(&words, scene.path(), None).unwrap();
    until("the server", || {
        let said = running.stdout_so_far().unwrap();
        said.contains("Ready to accept").then_some(())
    });
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let asked = b"set a 41\r\nincr a\r\neval 'return {redis.call(\"get\", \"a\")}' 0\r\n";
    let expected = b"+OK\r\n:42\r\n*1\r\n$2\r\n42\r\n";
    stream.write_all(asked).unwrap();
    let mut told = vec![0; expected.len()];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(
        told.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    stream.write_all(b"shutdown nosave\r\n").unwrap();
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.survivors, 0, "nothing outlives rcoe");
}

#[test]
fn what_is_missing_is_named_before_a_machine_starts() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, GLIBC, &[], &[]);
    let moved = |from: &str, to: &str| {
        std::fs::rename(scene.path().join(from), scene.path().join(to)).unwrap();
    };
    moved("lib/libown.so", "kept");
    let outcome = system(&scene, &["-n", "1"], &["./program"]);
    assert_eq!(outcome.ended, Ended::Exit(126), "{}", outcome.err());
    let said = "it needs libown.so, which is not where its loader looks: install it, or give it by \
                --file HOST:/lib/x86_64-linux-gnu/libown.so";
    assert!(outcome.err().contains(said), "{}", outcome.err());
    // Given there it is found.
    let given = "--file=kept:/lib/x86_64-linux-gnu/libown.so";
    let outcome = system(&scene, &["-n", "1", given], &["./program", "x"]);
    assert_eq!(outcome.ended, Ended::Exit(42), "{}", outcome.err());
    assert!(outcome.out().contains("no module"), "{}", outcome.out());
    // What is no ELF file is no library.
    let given = "--file=program.c:/lib/libown.so";
    let outcome = system(&scene, &["-n", "1", given], &["./program", "x"]);
    assert!(outcome.err().contains(said), "{}", outcome.err());
    let loader = "-Wl,--dynamic-linker=/lib/absent.so";
    scene.compile_by(GLIBC, "lost", "int main(void) { return 0; }", &[loader]);
    let outcome = system(&scene, &["-n", "1"], &["./lost"]);
    assert_eq!(outcome.ended, Ended::Exit(126), "{}", outcome.err());
    let said = "it needs /lib/absent.so, which is not there";
    assert!(outcome.err().contains(said), "{}", outcome.err());
}

#[test]
fn code_comes_from_packed_files_alone() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    scene.write("text", "no program");
    scene.compile_by(GLIBC, "code", CODE, &["-O2"]);
    let outcome = system(&scene, &["-n", "2", "--file=text"], &["./code"]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let refused = "Permission denied";
    let expected = [
        ("headers", refused),
        ("code", "mapped"),
        ("aside", "Invalid argument"),
        ("beyond", refused),
        ("writable", refused),
        ("shared", refused),
        ("copy", refused),
        ("text", refused),
        ("none", refused),
        ("data", "mapped"),
    ];
    let expected = expected.map(|(what, how)| format!("{what}: {how}\n"));
    assert_eq!(outcome.out(), expected.concat());
    let said = "does not carry code that a program makes";
    assert_eq!(outcome.err().matches(said).count(), 1, "{}", outcome.err());
}
