//! The fault lab as a process: what it leaves when it is killed or interrupted.

use std::fs;
use std::path::Path;

use rcoe_tests::launch::{self, Ended};
use rcoe_tests::rcoe::{LIMIT, Scene, binary, until};
use rcoe_tests::system::is_aarch64;
use rustix::process::Signal;

/// Children of a process, by its first thread.
fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn is_there(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

#[test]
fn a_machine_does_not_outlive_a_lab_that_is_killed() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let lab = binary().unwrap().with_file_name("rcoe-faultlab");
    let words = [lab.to_str().unwrap(), "frames", "--count", "1000000000"];
    let running = launch::start(&words.map(str::to_owned), scene.path(), None).unwrap();
    let pid = running.pid();
    let machine = until("a machine", || {
        let said = running.stderr_so_far().unwrap();
        assert!(!running.has_ended(), "it ends by itself: {said}");
        let rcoe = children(pid);
        let emulator = rcoe.first().map(|rcoe| children(*rcoe)).unwrap_or_default();
        // It is bound to rcoe before it becomes that.
        let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let runs = emulator.iter().any(|pid| comm(pid).starts_with("qemu"));
        runs.then(|| [rcoe, emulator].concat())
    });
    assert!(machine.iter().all(|pid| is_there(*pid)));
    launch::signal(running.pid(), Signal::KILL).unwrap();
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.survivors, 0, "nothing outlives the lab");
    until("the machine to end", || {
        (!machine.iter().any(|pid| is_there(*pid))).then_some(())
    });
    // Whoever is killed cannot tidy up.
    let folder = format!("/dev/shm/rcoe-faultlab-{pid}");
    if Path::new(&folder).exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_campaign_that_is_interrupted_tells_what_it_found() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let lab = binary().unwrap().with_file_name("rcoe-faultlab");
    let (journal, counts) = (scene.path().join("journal"), scene.path().join("counts"));
    let mut words = vec![lab.to_str().unwrap(), "campaign", "--count", "1000000"];
    words.extend(["-n", "2", "--program", "md5sum"]);
    words.extend(["--journal", journal.to_str().unwrap()]);
    words.extend(["--counts", counts.to_str().unwrap()]);
    let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
    let running = launch::start(&words, scene.path(), None).unwrap();
    until("two injections", || {
        let said = running.stderr_so_far().unwrap();
        assert!(!running.has_ended(), "it ends by itself: {said}");
        let text = fs::read_to_string(&journal).unwrap_or_default();
        // The first line tells what was asked for.
        (text.lines().count() > 2).then_some(())
    });
    launch::signal(running.pid(), Signal::INT).unwrap();
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.survivors, 0);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let table = outcome.out();
    assert!(table.contains("md5sum"), "{table}");
    let counts = fs::read_to_string(counts).unwrap();
    assert!(counts.contains("faults"), "{counts}");
}
