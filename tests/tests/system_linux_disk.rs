//! The system sphere: files of programs of Linux that outlive the machine, on its disk.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::linux::MUSL;
use rcoe_tests::machine::{OBJECTS, Reached, flip_text, removed};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{is_aarch64, system, system_with};
use rustix::process::Signal;

fn shell(scene: &Scene, replicas: &str, script: &str) -> Outcome {
    let options = ["-n", replicas, "--disk", "disk"];
    system(scene, &options, &["busybox", "sh", "-c", script])
}

/// What a script says that ends well.
fn told(scene: &Scene, replicas: &str, script: &str) -> String {
    let outcome = shell(scene, replicas, script);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.err(), "");
    outcome.out().to_owned()
}

#[test]
fn files_of_the_disk_are_there_in_the_next_machine() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let made = told(
        &scene,
        "1",
        "mkdir /disk/a && seq 5000 > /disk/a/numbers && ln -s a/numbers /disk/link && \
         echo gone > /gone && md5sum < /disk/link",
    );
    let found = told(
        &scene,
        "2",
        "md5sum < /disk/link; ls / | grep gone || rm /disk/link",
    );
    assert_eq!(found, made);
    let found = told(&scene, "3", "md5sum < /disk/a/numbers; ls /disk");
    assert_eq!(found, format!("{made}a\n"));
}

/// A database, by the distribution's own program, whose transactions are what the disk has to keep.
#[test]
fn a_database_goes_on_in_the_next_machine() {
    if is_aarch64() || !Path::new("/usr/bin/sqlite3").exists() {
        return;
    }
    let scene = Scene::new();
    let options = ["-n", "2", "--memory", "128M", "--disk", "disk:/data"];
    for round in 1..3 {
        let sql = "create table if not exists t (x); begin; insert into t values (1), (2); \
                   commit; select count(*) from t;";
        let outcome = system(&scene, &options, &["sqlite3", "/data/db", sql]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), format!("{}\n", 2 * round));
    }
}

/// What the program writes begins with this.
const TEXT: &str = "counted up to ";

/// Starts the program that has each number on the disk before it goes on to the next one.
fn start_counting(replicas: &str) -> Reached {
    let scene = Scene::new();
    let source = include_str!("system_linux_disk/counts.c");
    scene.compile_by(MUSL, "counts", source, &["-O2"]);
    let options = ["-n", replicas, "--disk", "disk"];
    Reached::start_sized(scene, 32, &options, &["./counts"])
}

/// How far the program says that it is.
fn count(reached: &Reached) -> u64 {
    let told = reached.running.stdout_so_far().unwrap();
    let whole = told.rfind('\n').map_or("", |end| &told[..end]);
    whole
        .lines()
        .last()
        .and_then(|it| it.parse().ok())
        .unwrap_or(0)
}

/// What the disk holds when the machine is gone, by another one.
fn kept(scene: &Scene) -> u64 {
    let told = told(scene, "1", "cat /disk/count");
    told.trim().strip_prefix(TEXT).unwrap().parse().unwrap()
}

#[test]
fn what_was_synced_outlives_a_machine_that_is_killed() {
    if is_aarch64() {
        return;
    }
    let reached = start_counting("2");
    until("some rounds", || (count(&reached) > 40).then_some(()));
    launch::signal(reached.running.pid(), Signal::KILL).unwrap();
    let said = count(&reached);
    let scene = reached.scene;
    drop(reached.running);
    until("the machine to be gone", || {
        let outcome = shell(&scene, "1", "cat /disk/count");
        // Its emulator holds the file until it is gone.
        (outcome.ended == Ended::Exit(0)).then_some(())
    });
    assert!(kept(&scene) >= said, "{said}");
}

#[test]
fn a_replica_that_writes_something_else_is_outvoted_before_the_disk_has_it() {
    if is_aarch64() {
        return;
    }
    for victim in sampled(vec![0, 2]) {
        let reached = start_counting("3");
        until("some rounds", || (count(&reached) > 20).then_some(()));
        // What it writes is wrong from here on.
        reached.change(victim, OBJECTS, (32 << 20) - OBJECTS, |bytes| {
            flip_text(bytes, TEXT.as_bytes());
        });
        let events = reached.scene.path().join("e");
        until("the replica to be back", || {
            let events = events_of(&events);
            let mut back = events.iter().filter(|event| event["stage"] == "done");
            back.next().map(|_| ())
        });
        let before = count(&reached);
        until("more rounds", || {
            (count(&reached) > before + 16).then_some(())
        });
        launch::signal(reached.running.pid(), Signal::TERM).unwrap();
        let (said, scene) = (count(&reached), Scene::new());
        let disk = reached.scene.path().join("disk");
        let kept_disk = scene.path().join("disk");
        std::fs::hard_link(disk, kept_disk).unwrap();
        let (outcome, events) = reached.finish();
        assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
        assert_eq!(removed(&events), [victim as u64], "{events:?}");
        assert!(kept(&scene) >= said, "{said}");
    }
}

/// An address of the loopback that no other test has.
fn address() -> SocketAddrV4 {
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, high, low, 77), 8033)
}

/// Asks the server once, and again as long as it does not serve yet; what it answers.
fn ask(host: SocketAddrV4, command: &str) -> String {
    until("an answer", || {
        let mut stream = TcpStream::connect(host).ok()?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(command.as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        (!line.is_empty() && !line.starts_with("-LOADING")).then_some(line)
    })
}

/// Redis as the distribution has it, which is to lose nothing: each answer is behind an `fsync`.
#[test]
fn redis_has_all_that_it_answered_after_its_machine_was_killed() {
    if is_aarch64() || !Path::new("/usr/bin/redis-server").exists() {
        return;
    }
    let (mut scene, host) = (Scene::new(), address());
    let published = format!("{host}:6379");
    let mut count = 0;
    for replicas in sampled(vec!["2", "3"]) {
        let options = ["-n", replicas, "--publish", &published, "--disk", "disk"];
        let keeps = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = ["redis-server", "--protected-mode", "no", "--dir", "/disk"];
        let server = [&server[..], &keeps].concat();
        let reached = Reached::start_sized(scene, 256, &options, &server);
        for _ in 0..20 {
            count += 1;
            assert_eq!(ask(host, "INCR k\r\n"), format!(":{count}\r\n"));
        }
        if replicas == "2" {
            let said = ask(host, "BGREWRITEAOF\r\n");
            assert!(said.starts_with("+Background"), "{said}");
        }
        launch::signal(reached.running.pid(), Signal::TERM).unwrap();
        scene = Scene::new();
        let disk = reached.scene.path().join("disk");
        std::fs::hard_link(disk, scene.path().join("disk")).unwrap();
        let (outcome, _) = reached.finish();
        assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    }
}

/// The byte of device memory that is the first register of the disk.
const REGISTERS: u64 = 248 << 12;

/// The disk has got what the first primary wrote, and the others do not know.
#[test]
fn a_primary_that_is_lost_within_a_write_to_the_disk_is_masked() {
    if is_aarch64() {
        return;
    }
    // Its state; which queue is meant, which is where all agree; where the queue is; that a request
    // is there.
    for register in [0x14, 0x16, 0x20, 0x3000] {
        let scene = Scene::new();
        let source = include_str!("system_linux_disk/counts.c");
        scene.compile_by(MUSL, "counts", source, &["-O2"]);
        let options = ["-n", "3", "--disk", "disk", "--events", "e"];
        let kernel = format!("breaks-at-register={} victim=0", REGISTERS + register);
        let outcome = system_with(&scene, &kernel, &options, &["./counts", "40"]);
        let what = format!("{register:#x}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), "1\n17\n33\n", "{what}");
        assert!(what.contains("break while it writes"), "{what}");
        let events = events_of(&scene.path().join("e"));
        let takeover = events.iter().any(|event| event["type"] == "takeover");
        assert!(takeover, "{what} {events:?}");
        assert_eq!(kept(&scene), 40, "{what}");
    }
}

/// Words of transfer memory that say what became of a request.
const STATUS_WORDS: u64 = 11;

/// One look whether a request is done is all replicas', and wrong: nothing diverges, and nobody
/// waits for an interrupt that never comes.
#[test]
fn a_wrong_reading_of_the_primary_leaves_the_disk_at_work() {
    if is_aarch64() {
        return;
    }
    for after in sampled(vec![0, 3, 40]) {
        let scene = Scene::new();
        let source = include_str!("system_linux_disk/counts.c");
        scene.compile_by(MUSL, "counts", source, &["-O2"]);
        let kernel = format!("misreads-transfer={STATUS_WORDS} victim=0 after={after}");
        let options = ["-n", "2", "--disk", "disk"];
        let outcome = system_with(&scene, &kernel, &options, &["./counts", "20"]);
        let what = format!("{after}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), "1\n17\n", "{what}");
        assert_eq!(kept(&scene), 20, "{what}");
    }
}

#[test]
fn a_disk_that_is_damaged_or_somebody_elses_is_refused_by_name() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    told(&scene, "1", "echo one > /disk/a; sync; echo two > /disk/a");
    let disk = scene.path().join("disk");
    let file = File::options().read(true).write(true).open(&disk).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let half = file.metadata().unwrap().len() / 2;
    file.read_exact_at(&mut bytes, half).unwrap();
    let at = bytes.windows(4).position(|it| it == b"one\n").unwrap() as u64;
    file.write_all_at(b"0", half + at).unwrap();
    let outcome = shell(&scene, "2", "cat /disk/a");
    assert_eq!(outcome.ended, Ended::Exit(126), "{}", outcome.err());
    let told = format!("{}{}", outcome.out(), outcome.err());
    assert!(told.contains("the disk is damaged"), "{told}");
    file.write_all_at(b"another system's", 0).unwrap();
    let outcome = shell(&scene, "2", "cat /disk/a");
    let told = format!("{}{}", outcome.out(), outcome.err());
    assert!(told.contains("what rcoe did not write"), "{told}");
}

#[test]
fn disks_that_cannot_be_are_refused_before_a_machine_starts() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    std::fs::write(scene.path().join("small"), "x").unwrap();
    for (options, command, why) in [
        (
            &["--disk", "small"][..],
            &["busybox", "true"][..],
            "truncate -s",
        ),
        (
            &["--disk", "no/such/folder"],
            &["busybox", "true"],
            "No such file",
        ),
        (
            &["--disk", "/dev/null"],
            &["busybox", "true"],
            "no regular file",
        ),
        (&["--disk", "d:/"], &["busybox", "true"], "but the root"),
        (
            &["--disk", "d:/tmp"],
            &["busybox", "true"],
            "name another folder",
        ),
        (
            &["--disk", "d", "--file", "small:/disk/x"],
            &["busybox", "true"],
            "/disk/x is there",
        ),
        (&["--disk", "d"], &["hello"], "for programs of Linux"),
    ] {
        let outcome = system(&scene, &[&["-n", "1"], options].concat(), command);
        let told = outcome.err();
        assert!(
            matches!(outcome.ended, Ended::Exit(1 | 2 | 125 | 126)),
            "{told}"
        );
        assert!(told.contains(why), "{options:?}: {told}");
    }
}
