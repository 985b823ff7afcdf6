//! What the system sphere says to whoever starts it: refusals, signals, and its help.

use rcoe_tests::launch::{self, Ended};
use rcoe_tests::rcoe::{LIMIT, Scene, events_of, until};
use rcoe_tests::system::{image, system, words};
use rustix::process::Signal;

#[test]
fn a_signal_ends_the_machine_and_is_told() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let scene = Scene::new();
        let words = words(&["-n", "2", "--events", "e"], &["sleep", "1000000"]);
        let running = launch::start(&words, scene.path(), None).unwrap();
        until("the first output", || {
            let out = running.stdout_so_far().unwrap();
            out.contains('\n').then_some(())
        });
        launch::signal(running.pid(), signal).unwrap();
        let outcome = running.finish(LIMIT).unwrap();
        assert_eq!(outcome.ended, Ended::Signal(number), "{}", outcome.err());
        assert_eq!(outcome.err(), "");
        let events = events_of(&scene.path().join("e"));
        let last = events.last().unwrap();
        assert_eq!(last["type"], "stop", "{events:?}");
        assert_eq!(last["reason"], format!("signal {number}"));
        assert_eq!(last["status"], 128 + number);
    }
}

#[test]
fn output_that_nobody_reads_is_told_once() {
    let scene = Scene::new();
    let words = words(&["-n", "1", "--events", "e"], &["hello"]).join(" ");
    let script = format!("({words}; echo $? >status) | true");
    let outcome = scene.run(&["sh", "-c", &script]);
    assert_eq!(outcome.err().matches("Broken pipe").count(), 1);
    let status = std::fs::read_to_string(scene.path().join("status")).unwrap();
    assert_eq!(status, "125\n");
    let events = events_of(&scene.path().join("e"));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "stop", "{events:?}");
    assert!(last["reason"].as_str().unwrap().contains("Broken pipe"));
}

#[test]
fn what_the_emulator_cannot_use_is_named_by_its_option() {
    let scene = Scene::new();
    let nowhere = format!("{}/none/file", scene.path().display());
    for (option, value) in [
        ("--memory-file", nowhere.as_str()),
        ("--memory-file", "."),
        ("--memory-file", "/dev/null"),
        ("--debugger", nowhere.as_str()),
        ("--tick", "24h"),
        ("--tick", "0.5us"),
    ] {
        let outcome = system(&scene, &["-n", "1", option, value], &["hello"]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(125), "{option} {value}: {err}");
        assert!(err.contains(option) && !err.contains("qemu"), "{err}");
        assert_eq!(outcome.out(), "");
    }
    let comma = system(&scene, &["-n", "1", "--memory-file", "a,b"], &["hello"]);
    assert_eq!(comma.ended, Ended::Exit(0), "{}", comma.err());
    assert!(scene.path().join("a,b").is_file());
    // What a machine has left there would be other memory for each replica.
    let again = system(&scene, &["-n", "1", "--memory-file", "a,b"], &["hello"]);
    assert_eq!(again.ended, Ended::Exit(125), "{}", again.err());
    assert!(again.err().contains("a,b: is not empty"), "{}", again.err());
}

#[test]
fn a_machine_of_another_kind_or_with_a_counted_clock_is_not_the_hosts_processors() {
    let scene = Scene::new();
    let other = if cfg!(target_arch = "x86_64") {
        "aarch64"
    } else {
        "x86_64"
    };
    for (options, why) in [
        (["--arch", other], "runs machines of"),
        (["--core-threads", "counted"], "add --core-threads multi"),
        (["--core-threads", "single"], "add --core-threads multi"),
    ] {
        let options = [&["--accel", "kvm", "-n", "1"][..], &options].concat();
        let outcome = system(&scene, &options, &["hello"]);
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(125), "{what}");
        assert!(
            outcome.err().contains("--accel kvm") && outcome.err().contains(why),
            "{what}"
        );
    }
    let told = scene.rcoe(&["doctor"]).out();
    assert!(
        told.contains("KVM") && told.contains("--accel kvm"),
        "{told}"
    );
}

#[test]
fn the_help_names_the_programs_of_each_machine() {
    let scene = Scene::new();
    let help = scene.rcoe(&["run", "--help"]).out();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, list) = help.split_once("PROGRAM, which is ").unwrap();
    let (list, _) = list.split_once(", or an ELF file").unwrap();
    let (both, pc) = list.split_once(", on x86_64 also ").unwrap();
    let names = |text: &str| -> Vec<String> {
        let text = text.replace(" or ", ", ");
        let mut names: Vec<String> = text.split(", ").map(str::to_owned).collect();
        names.sort();
        names
    };
    let all = names(&format!("{both}, {pc}"));
    for (arch, told) in [("aarch64", names(both)), ("x86_64", all)] {
        let outcome = system(&scene, &["--arch", arch], &["nonesuch"]);
        let err = outcome.err();
        let (_, there) = err.split_once('(').unwrap();
        let (there, _) = there.split_once(')').unwrap();
        assert_eq!(names(there), told, "{arch}, image at {}", image().display());
    }
}
