//! What `execve` does to a process, compared with the host's own, as far as credentials go: the
//! new program is, has and may do no more.
//!
//! Where these tests run without privileges, most steps fail, natively as under rcoe, and what is
//! compared is an ordinary user's.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;
use rustix::fs::{XattrFlags, setxattr};

/// Starts the probe, which finds the secret wherever it goes.
const SCRIPT: &str = "SECRET=$PWD exec \"$@\"";

/// A scene in which other users may execute the probe, but not read the secret.
fn scene() -> (Scene, String) {
    let scene = Scene::new();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of our own");
    };
    open(scene.path(), 0o755);
    open(&scene.write("secret", "a password"), 0o600);
    let probe = scene.compile("probe", include_str!("exec/probe.c"), &[]);
    (scene, probe)
}

/// The probe after an exec with these steps before, natively and replicated, tells the same.
#[track_caller]
fn same(rows: &[&str]) {
    let (scene, probe) = scene();
    for row in rows {
        let mut command = vec![probe.as_str()];
        command.extend(row.split_whitespace());
        let native = scene.like_native(SCRIPT, &command);
        assert_eq!(native.ended, Ended::Exit(0), "{row}: {}", native.out());
    }
}

#[test]
fn every_line_of_the_table_is_told() {
    let (scene, probe) = scene();
    let out = scene.run(&["sh", "-c", SCRIPT, "sh", &probe]).out();
    let told: Vec<&str> = out
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let table = include_str!("../../docs/EXEC.md");
    let listed: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert_eq!(told, listed);
}

#[test]
fn signals_timers_and_memory_are_renewed_as_natively() {
    same(&[
        "unsettle",
        "lock",
        "persona=0x400000",
        "dumpable=0",
        "dumpable=0 uid=1000,1000,1000",
        "stack=16777216",
        "stack=16777216 uid=1000,0,0",
    ]);
}

#[test]
fn names_limits_and_descriptors_are_renewed_as_natively() {
    same(&[
        "adorn",
        "orphan=10",
        "orphan=10 fsuid=1000",
        "orphan=10 uid=1000,0,0",
        "uid=1000,1000,1000 orphan=10",
        "orphan=10 uid=1000,1000,1000",
    ]);
}

#[test]
fn users_and_groups_are_renewed_as_natively() {
    same(&[
        "",
        "gid=1000,1000,1000 uid=1000,1000,1000",
        "gid=1000,1000,0 uid=1000,1000,0",
        "gid=0,1000,0 uid=0,1000,0",
        "gid=1000,0,0 uid=1000,0,0",
        "fsuid=1000 fsgid=1000",
        "no-groups fsgid=7 no-new",
    ]);
}

#[test]
fn capabilities_kept_over_a_change_of_user_are_lost() {
    same(&[
        "keep uid=1000,1000,1000",
        "keep uid=1000,1000,1000 effective",
        "keep uid=1000,1000,0 effective",
        "secure=4 uid=1000,1000,1000",
        "keep uid=1000,1000,1000 effective inheritable=0xff",
    ]);
}

#[test]
fn what_root_means_is_ruled_by_flags_and_the_bounding_set() {
    same(&[
        "secure=3",
        "secure=3 inheritable=0xff",
        "unbound",
        "unbound inheritable=0xff",
        "effective=0x1",
        "unbound uid=1000,0,1000",
    ]);
}

/// What replicas know of the bounding set is what the host would say, whoever asked before: the
/// parent, who drops something after it has made a child or before, or another program.
#[test]
fn what_is_dropped_from_the_bounding_set_stays_dropped() {
    same(&[
        "child unbound",
        "unbound child child",
        "child drop=0 child drop=1 child",
        "child drop=0 exec drop=1 exec",
        "exec unbound exec child",
        "child exec unbound child exec inheritable=0xff child",
        "child drop=0 drop=99 child drop=1 exec effective=0x1",
        "child drop=0 child drop=1 exec effective=0x1 child",
        "child drop=0 child drop=1 uid=1000,0,1000 exec",
        "child drop=0 child drop=1 uid=1000,0,1000 child exec child",
    ]);
}

#[test]
fn ambient_capabilities_are_passed_on() {
    same(&[
        "keep inheritable=0x3 uid=1000,1000,1000 effective ambient=1",
        "keep inheritable=0x3 gid=0,5,0 uid=1000,1000,1000 effective ambient=1",
        "keep inheritable=0x3 uid=1000,1000,0 effective ambient=1",
        "secure=3 inheritable=0x3 ambient=0 ambient=1",
    ]);
}

#[test]
fn no_new_privileges_stay_and_bind() {
    same(&[
        "no-new",
        "uid=1000,2000,0 no-new",
        "keep inheritable=0x3 uid=1000,1000,1000 effective ambient=1 no-new",
        "permitted=0xff no-new",
        "uid=1000,0,0 permitted=0xff no-new",
    ]);
}

#[test]
fn programs_that_are_given_nothing_get_an_empty_argument() {
    let source = include_str!("exec/nothing.c");
    Scene::new().program_like_native("nothing", source, &["-w"]);
}

/// Lines of the probe, by name.
fn lines(out: &str) -> HashMap<&str, &str> {
    out.lines()
        .filter_map(|line| line.split_once(' '))
        .collect()
}

/// A set of capabilities that the probe has told.
fn set(lines: &HashMap<&str, &str>, name: &str) -> u64 {
    u64::from_str_radix(lines[name], 16).expect("a set")
}

#[test]
fn capabilities_that_an_exec_would_add_are_not_given_and_that_is_told() {
    let (scene, probe) = scene();
    for row in ["permitted=0", "permitted=0xff", "uid=0,1000,0 permitted=0"] {
        let mut command = vec![probe.as_str()];
        command.extend(row.split_whitespace());
        let native = scene.run(&[&["sh", "-c", SCRIPT, "sh"], command.as_slice()].concat());
        let (native_out, native) = (native.out(), native.ended);
        let before = lines(&native_out);
        for replicas in ["1", "2", "3"] {
            let arguments = [&["run", "-n", replicas, "--"], command.as_slice()].concat();
            let outcome = scene.rcoe_by(SCRIPT, &arguments);
            assert_eq!(outcome.ended, native, "{row}: {}", outcome.err());
            let out = outcome.out();
            let after = lines(&out);
            for (name, value) in &before {
                match *name {
                    "effective" | "permitted" => {
                        assert_eq!(set(&after, name) & !set(&before, name), 0, "{row}: {out}");
                    }
                    // What capabilities give can only be refused.
                    "reads-secret" | "owns-secret" | "back-to-root" | "back-to-root-group" => {}
                    _ => assert_eq!(after[name], *value, "{row}: {name}"),
                }
            }
            let fewer = set(&after, "permitted") != set(&before, "permitted");
            let told = outcome.err().matches("without capabilities").count();
            assert_eq!(told, usize::from(fewer), "{row}: {}", outcome.err());
        }
    }
}

#[test]
fn a_lock_that_only_the_host_can_open_is_refused_by_name() {
    let (scene, probe) = scene();
    let native = scene.run(&[&probe, "secure=48"]);
    if native.out().contains("secure=48 -") {
        // Without privileges there is no such lock.
        return;
    }
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &probe, "secure=48"]);
        assert_eq!(outcome.ended, Ended::Exit(1), "{}", outcome.out());
        assert!(
            outcome
                .out()
                .contains("not executed: Operation not permitted")
        );
        assert!(
            outcome.err().contains("SECBIT_KEEP_CAPS"),
            "{}",
            outcome.err()
        );
    }
}

/// Takes a random walk of each seed in the role of `who`, natively and replicated, and compares all
/// that the walks tell.
#[track_caller]
fn walks(who: &str, first: u32, count: u32) {
    let scene = Scene::new();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of our own");
    };
    open(scene.path(), 0o755);
    for (name, user, group, mode) in [
        ("of-root", 0, 0, 0o600),
        ("of-1000", 1000, 1000, 0o600),
        ("of-2000", 2000, 2000, 0o600),
        ("of-group", 0, 1000, 0o060),
    ] {
        let path = scene.write(name, "content");
        // Without privileges all files are this user's, natively as well.
        let _ = chown(&path, Some(user), Some(group));
        open(&path, mode);
    }
    let fuzz = scene.compile("fuzz", include_str!("exec/fuzz.c"), &[]);
    let (first, count) = (first.to_string(), count.to_string());
    let command = [fuzz.as_str(), who, &first, &count, "14"];
    let native = scene.run(&command);
    assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
    for replicas in ["1", "2", "3"] {
        let arguments = [&["run", "-n", replicas, "--"], command.as_slice()].concat();
        let outcome = scene.rcoe(&arguments);
        let (out, expected) = (outcome.out(), native.out());
        let difference = out.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert_eq!(difference, None, "{who} -n {replicas}: {}", outcome.err());
        assert_eq!((outcome.ended, out), (native.ended, expected));
    }
}

#[test]
fn random_walks_of_root_are_as_natively() {
    walks("root", 0, 8);
}

#[test]
fn random_walks_of_a_container_are_as_natively() {
    walks("container", 1000, 8);
}

#[test]
fn random_walks_of_a_user_are_as_natively() {
    walks("user", 2000, 8);
}

#[test]
fn files_with_capabilities_are_refused_but_for_root() {
    let (scene, probe) = scene();
    let raised = scene.path().join("raised");
    std::fs::copy(&probe, &raised).expect("a copy");
    // CAP_CHOWN, permitted and effective, in the kernel's second form.
    let value = [0x0200_0001_u32, 1, 0, 0, 0].map(u32::to_le_bytes).concat();
    let name = "security.capability";
    if setxattr(&raised, name, &value, XattrFlags::empty()).is_err() {
        // Only the privileged can make such a file.
        return;
    }
    let raised = raised.display().to_string();
    scene.like_native(SCRIPT, &["sh", "-c", "exec \"$@\"", "sh", &raised]);
    let user = ["setpriv", "--reuid", "1000", "--clear-groups", &raised];
    let outcome = scene.rcoe_by(
        SCRIPT,
        &[&["run", "-n", "2", "--"], user.as_slice()].concat(),
    );
    assert!(
        outcome.err().contains("file capabilities"),
        "{}",
        outcome.err()
    );
    assert!(!outcome.out().contains("effective"), "{}", outcome.out());
}
