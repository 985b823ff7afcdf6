//! What another user sees of a run and can do to it: as little as to any program of its user.
//!
//! Only root can become somebody else; as anybody else these tests look at modes alone.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Group, Scene};
use rcoe_tests::victim::Victim;

/// A user of no program, and of no file.
const OTHER: &str = "65534";

/// Runs a script as another user; `None` if this one cannot become it.
fn as_other(scene: &Scene, script: &str, words: &[&str]) -> Option<Outcome> {
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    let (reuid, regid) = (format!("--reuid={OTHER}"), format!("--regid={OTHER}"));
    let become_it = [
        "setpriv",
        &reuid,
        &regid,
        "--clear-groups",
        "--bounding-set=-all",
    ];
    let argv = [&become_it[..], &["sh", "-c", script, "sh"], words].concat();
    (own == 0).then(|| scene.run(&argv))
}

/// rcoe and its replicas.
fn processes(group: &Group) -> Vec<String> {
    let all = group.replicas.iter().copied();
    all.chain([group.running.pid()])
        .map(|pid| pid.to_string())
        .collect()
}

#[test]
fn another_user_reaches_no_process_of_a_run() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "3", "--timeout", "30s"]);
    let script = "for pid; do
        for file in mem maps environ auxv stack syscall; do
            head -c 1 /proc/$pid/$file >/dev/null 2>&1 && echo $pid $file
        done
        ls /proc/$pid/fd >/dev/null 2>&1 && echo $pid descriptors
        ls /proc/$pid/map_files >/dev/null 2>&1 && echo $pid mappings
        kill -0 $pid 2>/dev/null && echo $pid signal
        test -d /proc/$pid || echo $pid is gone
    done; true";
    let pids = processes(&group);
    let pids: Vec<&str> = pids.iter().map(String::as_str).collect();
    if let Some(outcome) = as_other(&victim.scene, script, &pids) {
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), "", "reached by another user");
    }
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.out(), victim.expected, "{}", outcome.err());
}

#[test]
fn memory_that_is_shared_has_no_name() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "3", "--timeout", "30s"]);
    for pid in processes(&group) {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a living process");
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let shared = words[1].ends_with('s');
            let name = words.get(5).copied().unwrap_or_default();
            let nameless = name.starts_with("/memfd:") && line.ends_with("(deleted)");
            assert!(
                !shared || nameless || name.is_empty() || name.starts_with("anon_inode:"),
                "{line}"
            );
            // Nothing that can be written can be run: what was rewritten is closed again.
            assert!(
                !(words[1].contains('w') && words[1].contains('x')),
                "{line}"
            );
        }
    }
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.out(), victim.expected, "{}", outcome.err());
}

#[test]
fn only_the_user_can_ask_for_the_state_of_a_run() {
    let victim = Victim::new();
    let runtime = victim.scene.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    // Of the folders above only that of rcoe keeps others out.
    for path in [victim.scene.path(), &runtime] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let place = format!("XDG_RUNTIME_DIR={}", runtime.display());
    let words = [
        &place,
        &rcoe(),
        "run",
        "-n",
        "2",
        "--",
        &victim.program,
        "wait",
    ];
    let argv: Vec<String> = ["/usr/bin/env"]
        .iter()
        .chain(&words)
        .map(|&it| it.to_owned())
        .collect();
    let running = rcoe_tests::launch::start(&argv, victim.scene.path(), None).expect("rcoe starts");
    let folder = runtime.join("rcoe");
    let socket = folder.join(running.pid().to_string());
    rcoe_tests::rcoe::until("the socket", || socket.exists().then_some(()));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    let script = "python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).connect(sys.argv[1])' \"$1\" 2>&1 | tail -n 1";
    let path = socket.display().to_string();
    if let Some(outcome) = as_other(&victim.scene, script, &[&path]) {
        assert!(
            outcome.out().contains("Permission denied"),
            "{}",
            outcome.out()
        );
    }
    rcoe_tests::launch::signal(running.pid(), rustix::process::Signal::TERM).unwrap();
    let outcome = running.finish(rcoe_tests::rcoe::LIMIT).expect("an end");
    assert_eq!((outcome.ended, outcome.survivors), (Ended::Signal(15), 0));
}

fn rcoe() -> String {
    rcoe_tests::rcoe::binary()
        .expect("a built rcoe")
        .display()
        .to_string()
}
