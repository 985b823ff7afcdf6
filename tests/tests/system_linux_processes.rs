//! The system sphere: processes of unmodified programs of Linux, with one replica and more.
//!
//! Each program prints what it sees, and does the same on the host.

use rcoe_tests::launch::{self, Ended};
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::machine::{OBJECTS, Reached, flip_text, removed};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rcoe_tests::sample::sampled;
use rcoe_tests::system::{is_aarch64, system};
use rustix::process::Signal;

const CHILDREN: &str = include_str!("system_linux_processes/children.c");

#[test]
fn children_have_what_they_inherit_and_are_waited_for_as_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in sampled(vec![
        (GLIBC, "1", "args"),
        (GLIBC, "2", "every"),
        (MUSL, "3", "io"),
    ]) {
        scene.compile_by(compiler, "children", CHILDREN, &["-O2"]);
        let native = scene.run(&["./children"]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./children"]);
        assert_eq!(native.ended, Ended::Exit(0));
        assert_alike(
            &outcome,
            &native,
            &format!("{compiler:?} {replicas} {compare}"),
        );
    }
}

const SHARED: &str = include_str!("system_linux_processes/shared.c");

#[test]
fn processes_share_memory_and_wait_for_each_other_there() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in sampled(vec![
        (GLIBC, "1", "args"),
        (MUSL, "2", "every"),
        (GLIBC, "3", "io"),
    ]) {
        scene.compile_by(compiler, "shared", SHARED, &["-O2"]);
        let native = scene.run(&["./shared"]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./shared"]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

const MAPPED: &str = include_str!("system_linux_processes/mapped.c");

#[test]
fn files_that_are_mapped_hold_what_any_process_writes_there() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in sampled(vec![
        (GLIBC, "1", "args"),
        (MUSL, "2", "every"),
        (GLIBC, "3", "io"),
    ]) {
        scene.compile_by(compiler, "mapped", MAPPED, &["-O2"]);
        let native = scene.run(&["./mapped"]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./mapped"]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

/// More than one that it can be had by has to be there when nothing is left: page tables, threads,
/// room for notes of pages.
#[test]
fn a_program_that_took_all_memory_leaves_it_to_those_after_it() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let program = include_str!("system_linux_processes/all.c");
    scene.compile_by(GLIBC, "all", program, &["-O2"]);
    for replicas in ["1", "2"] {
        let outcome = system(&scene, &["-n", replicas], &["./all"]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(0), "{} {err}", outcome.out());
        assert_eq!(outcome.out(), "3 rounds, 6 children at once\n", "{err}");
    }
}

const ROOTED: &str = include_str!("system_linux_processes/rooted.c");

#[test]
fn a_folder_is_the_root_for_processes_as_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in sampled(vec![
        (GLIBC, "1", "args"),
        (MUSL, "2", "every"),
        (GLIBC, "3", "io"),
    ]) {
        scene.compile_by(compiler, "rooted", ROOTED, &["-O2"]);
        // Only the superuser may do that; whoever runs the tests may be it in a place of its own.
        let native = scene.run(&["unshare", "-r", "./rooted"]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./rooted"]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

const FACTS: &str = include_str!("system_linux_processes/facts.c");

#[test]
fn files_tell_of_processes_and_the_machine_as_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in sampled(vec![
        (GLIBC, "1", "args"),
        (MUSL, "2", "every"),
        (GLIBC, "3", "io"),
    ]) {
        scene.compile_by(compiler, "facts", FACTS, &["-O2"]);
        let command = ["./facts", "old", ""];
        let native = scene.run(&command);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &command);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

/// All that a shell does without another program.
#[test]
fn a_shell_has_subshells_pipes_and_jobs_in_the_background() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let script = "(exit 3); echo $?; x=$(echo sub); echo $x; \
                  echo one | { read y; echo got $y; }; { echo later; } & wait; \
                  for i in 1 2 3; do (echo $i); done | while read n; do echo line $n; done";
    let native = scene.run(&["busybox", "sh", "-c", script]);
    for replicas in sampled(vec!["1", "3"]) {
        let command = ["busybox", "sh", "-c", script];
        let outcome = system(&scene, &["-n", replicas], &command);
        assert_alike(&outcome, &native, replicas);
    }
}

const PROGRAMS: &str = include_str!("system_linux_processes/programs.c");

/// The host's busybox, where the machine finds a shell.
fn shell() -> String {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join("busybox"));
    let path = paths.find(|path| path.is_file());
    let path = path.expect("busybox is installed");
    format!("{}:/bin/sh", path.display())
}

#[test]
fn programs_execute_others_and_begin_with_what_they_are_given() {
    if is_aarch64() {
        return;
    }
    let (scene, shell) = (Scene::new(), shell());
    for (compiler, replicas, compare) in sampled(vec![
        (GLIBC, "1", "io"),
        (GLIBC, "3", "args"),
        (MUSL, "2", "every"),
    ]) {
        scene.compile_by(compiler, "programs", PROGRAMS, &["-O2"]);
        let program = scene.path().join("programs");
        let program = program.to_str().unwrap();
        let native = scene.run(&[program]);
        let options = ["-n", replicas, "--compare", compare, "--file", &shell];
        let outcome = system(&scene, &options, &[program]);
        assert_eq!(native.ended, Ended::Exit(42));
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}

/// A script runs the programs of busybox, each a process of its own.
#[test]
fn a_shell_script_runs_programs_in_pipelines_loops_and_jobs() {
    if is_aarch64() {
        return;
    }
    let (scene, shell) = (Scene::new(), shell());
    let script = "#!/bin/sh\n\
        echo \"$# $2\"; printf 'b\\na\\n' > own.txt; sort own.txt | cat -n\n\
        x=$(expr 3 \\* 7; echo sub); echo \"$x\"; seq 1 5 | grep -v 3 | wc -l\n\
        for i in 1 2 3; do expr $i + 1; done; sleep 0.01 & wait; env -i A=b env\n\
        lost 2>&1; echo $?; cat own.txt | while read line; do basename /x/$line; done\n\
        printf '#!/bin/sh\\necho inner $*\\nexec echo replaced\\n' > own.sh\n\
        chmod +x own.sh; ./own.sh 1 2; rm own.sh own.txt; trap 'echo trapped' EXIT; exit 5\n";
    scene.write("script", script);
    let native = scene.run(&["busybox", "sh", "script", "x", "y z"]);
    assert_eq!(native.ended, Ended::Exit(5));
    for replicas in sampled(vec!["1", "3"]) {
        let options = ["-n", replicas, "--file", "script:/script", "--file", &shell];
        let command = ["busybox", "sh", "script", "x", "y z"];
        let outcome = system(&scene, &options, &command);
        assert_alike(&outcome, &native, replicas);
    }
}

#[test]
fn a_program_that_cannot_be_carried_is_told_of_when_it_is_executed() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    scene.write("elf", "\x7fELF, and nothing else");
    scene.run(&["chmod", "+x", "elf"]);
    let options = ["-n", "2", "--file", "elf:/bin/elf"];
    let command = ["busybox", "sh", "-c", "/bin/elf 2> /dev/null; echo on"];
    let outcome = system(&scene, &options, &command);
    assert_eq!(outcome.out(), "on\n", "{}", outcome.err());
    let told = "/bin/elf cannot be executed: not a 64-bit ELF program";
    assert!(outcome.err().contains(told), "{}", outcome.err());
}

const RING: &str = include_str!("system_linux_processes/ring.c");
/// Rounds in which each child is replaced once.
const TURN: usize = 12;

/// How often a replica has come back.
fn back(reached: &Reached) -> usize {
    let events = events_of(&reached.scene.path().join("e"));
    let back = events.iter().filter(|event| event["stage"] == "done");
    back.count()
}

/// Rounds that are told of by now.
fn rounds(reached: &Reached) -> usize {
    let told = reached.running.stdout_so_far().unwrap();
    told.matches("round ").count()
}

/// Runs a program without an end. What is lost tells wrong words from here on; a replica that came
/// back and did not hold all that each process has would tell of wrong sums, and be lost again.
fn lose_in_turn(name: &str, text: &str) {
    const MEGABYTES: usize = 48;
    if is_aarch64() {
        return;
    }
    let [scene, native] = [Scene::new(), Scene::new()];
    let program = format!("./{name}");
    scene.compile_by(GLIBC, name, text, &["-O2"]);
    native.compile_by(GLIBC, name, text, &["-O2"]);
    let reached = Reached::start_sized(scene, MEGABYTES, &["-n", "3"], &[&program]);
    let victims = [0, 1, 2, 0];
    for (index, victim) in victims.into_iter().enumerate() {
        reached.change(victim, OBJECTS, (MEGABYTES << 20) - OBJECTS, |bytes| {
            flip_text(bytes, b"round %d: ");
        });
        until("the replica to be back", || {
            (back(&reached) == index + 1).then_some(())
        });
        let before = rounds(&reached);
        until("all children to be replaced", || {
            (rounds(&reached) > before + TURN).then_some(())
        });
    }
    let more = (rounds(&reached) + TURN).to_string();
    launch::signal(reached.running.pid(), Signal::TERM).unwrap();
    let (outcome, events) = reached.finish();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    assert_eq!(removed(&events), [0, 1, 2, 0]);
    let native = native.run(&[&program, &more]);
    assert!(
        native.out().starts_with(&outcome.out()),
        "{}",
        outcome.out()
    );
}

#[test]
fn replicas_are_lost_while_several_processes_compute_and_all_of_them_are_copied() {
    lose_in_turn("ring", RING);
}

const MEET: &str = include_str!("system_linux_processes/meet.c");

#[test]
fn replicas_are_lost_while_processes_meet_by_files_pipes_and_messages() {
    lose_in_turn("meet", MEET);
}
