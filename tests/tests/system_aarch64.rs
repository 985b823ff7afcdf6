//! The system sphere on AArch64: programs print what they print on a PC, and what is its own. All
//! else is in the suites that run for both processors (`cargo xtask test --only aarch64`).

use rcoe_tests::launch::Ended;
use rcoe_tests::machine::slept;
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{system, system_with};

const ARCH: &str = "--arch=aarch64";

#[test]
fn programs_print_the_same_as_on_a_pc_replicated_or_not() {
    for (program, counts) in [
        (["hello", "7"], &["1", "2", "3", "4"][..]),
        (["hash", "1"], &["1", "3"]),
        (["float", "20"], &["3"]),
        (["pingpong", "50"], &["1", "2"]),
        (["sleep", "20"], &["1", "3"]),
        (["pipeline", "2"], &["2"]),
        (["device", "2"], &["1", "3"]),
        (["clock", "2"], &["1", "2"]),
        (["sieve", "30000"], &["1", "3"]),
    ] {
        let scene = Scene::new();
        let base = system(&scene, &["-n", "1"], &program);
        assert!(!base.out().is_empty(), "{program:?}: {}", base.err());
        for replicas in counts {
            let outcome = system(&scene, &[ARCH, "-n", replicas], &program);
            let what = format!("{program:?} {replicas}: {}", outcome.err());
            assert_eq!(outcome.ended, base.ended, "{what}");
            assert_eq!(outcome.out(), base.out(), "{what}");
        }
    }
}

#[test]
fn where_instructions_are_counted_a_run_takes_as_many_cycles_as_the_last() {
    let scene = Scene::new();
    let options = [ARCH, "-n", "3", "--core-threads", "counted", "--stats"];
    let runs = [(); 2].map(|()| {
        let outcome = system(&scene, &options, &["hash", "1"]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        outcome.err()
    });
    assert!(runs[0].starts_with("cycles "), "{}", runs[0]);
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn a_core_that_goes_round_for_ever_starves_none_where_instructions_are_counted() {
    for victim in sampled(vec!["0", "2"]) {
        let words = format!("probe=loop victim={victim}");
        let options = [
            ARCH,
            "-n",
            "3",
            "--core-threads",
            "counted",
            "--timeout",
            "50ms",
        ];
        let outcome = system_with(&Scene::new(), &words, &options, &["sleep", "30"]);
        let what = format!("{victim}: {} {}", outcome.out(), outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert!(outcome.err().contains("is faulty (timeout)"), "{what}");
    }
}

#[test]
fn a_device_and_shared_pages_outlive_their_primary() {
    for (program, argument, begun_anew) in [("device", "3", false), ("clock", "40", true)] {
        let base = system(&Scene::new(), &["-n", "1"], &[program, argument]);
        for victim in sampled(vec!["0", "2"]) {
            let scene = Scene::new();
            let words = format!("probe=sudden victim={victim}");
            let options = [ARCH, "-n", "3", "--events", "e"];
            let outcome = system_with(&scene, &words, &options, &[program, argument]);
            let what = format!("{program} {victim}: {} {}", outcome.out(), outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
            // How often a round is begun anew is chance, what is read is not.
            let lines = if begun_anew { 1 } else { usize::MAX };
            let (out, right) = (outcome.out(), base.out());
            assert!(
                out.lines().take(lines).eq(right.lines().take(lines)),
                "{what}"
            );
            let events = events_of(&scene.path().join("e"));
            let takeover = events.iter().any(|event| event["type"] == "takeover");
            assert_eq!(takeover, victim == "0", "{what} {events:?}");
            assert!(
                events.iter().any(|event| event["stage"] == "done"),
                "{what}"
            );
        }
    }
}

#[test]
fn a_primary_that_is_lost_within_a_write_is_masked_where_that_is_repeatable() {
    // The start of the timer, and a byte of the console.
    for (place, status) in [("4096", 0), ("0", 86)] {
        let scene = Scene::new();
        let words = format!("breaks-at-register={place} victim=0");
        let outcome = system_with(&scene, &words, &[ARCH, "-n", "3"], &["sleep", "30"]);
        let what = format!("{place}: {} {}", outcome.out(), outcome.err());
        assert!(what.contains("break while it writes"), "{what}");
        assert_eq!(outcome.ended, Ended::Exit(status), "{what}");
        assert!(slept().starts_with(&outcome.out()), "{what}");
        assert_eq!(what.contains("lost-effect"), status == 86, "{what}");
    }
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let scene = Scene::new();
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    for (program, status, text) in [
        ("hpet", 127, "neither a program"),
        (own, 126, "for x86_64, where the machine's is aarch64"),
    ] {
        let outcome = system(&scene, &[ARCH, "-n", "1"], &[program]);
        let what = format!("{program}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(status), "{what}");
        assert!(outcome.err().contains(text), "{what}");
    }
}
