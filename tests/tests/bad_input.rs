//! Bad input: one clear line, the right status, and nothing is started.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

/// Runs rcoe with arguments it must refuse with `status` and a line that holds `hint`.
#[track_caller]
fn refused(scene: &Scene, arguments: &[&str], status: i32, hint: &str) {
    let outcome = scene.rcoe(arguments);
    let errors = outcome.err();
    assert_eq!(
        outcome.ended,
        Ended::Exit(status),
        "{arguments:?}: {errors}"
    );
    assert!(
        errors.contains(hint),
        "{arguments:?}: no \"{hint}\" in: {errors}"
    );
    assert!(
        outcome.stdout.is_empty(),
        "{arguments:?} printed {}",
        outcome.out()
    );
    assert!(!errors.contains("panicked"), "{errors}");
}

/// Lays out an executable file and tries to run it.
#[track_caller]
fn refused_file(content: &[u8], mode: u32, status: i32, hint: &str) {
    let scene = Scene::new();
    let path = scene.write("program", content);
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    refused(
        &scene,
        &["run", "-n", "2", "--", &path.display().to_string()],
        status,
        hint,
    );
}

fn real_program() -> Vec<u8> {
    std::fs::read("/bin/true").unwrap()
}

#[test]
fn without_a_word_there_is_help() {
    let outcome = Scene::new().rcoe(&[]);
    let errors = outcome.err();
    assert_eq!(outcome.ended, Ended::Exit(125));
    assert!(errors.starts_with("Runs ordinary software"), "{errors}");
    assert!(errors.contains("Usage: rcoe <COMMAND>"), "{errors}");
}

#[test]
fn a_missing_program_is_127() {
    let scene = Scene::new();
    refused(
        &scene,
        &["run", "--", "no-such-program"],
        127,
        "no-such-program",
    );
    refused(
        &scene,
        &["run", "--", "./no-such-program"],
        127,
        "no-such-program",
    );
    refused(
        &scene,
        &["run", "--", "/no/such/folder/program"],
        127,
        "not found",
    );
}

#[test]
fn what_cannot_be_executed_is_126() {
    let scene = Scene::new();
    let folder = scene.path().display().to_string();
    refused(&scene, &["run", "--", &folder], 126, &folder);
    refused_file(&real_program(), 0o644, 126, "program");
    refused_file(b"just some text\n", 0o755, 126, "program");
    refused_file(b"", 0o755, 126, "program");
}

#[test]
fn a_script_without_its_interpreter_is_127() {
    refused_file(
        b"#!/no/such/interpreter\n",
        0o755,
        127,
        "/no/such/interpreter",
    );
    refused_file(b"#!\n", 0o755, 126, "program");
}

#[test]
fn a_script_runs_by_its_interpreter() {
    let scene = Scene::new();
    let path = scene.write("script", "#!/bin/dash -e\necho \"$0\" \"$@\"\nexit 4\n");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    scene.like_native("exec \"$@\"", &[&path.display().to_string(), "a b", "c"]);
    let native = scene.like_native("exec \"$@\"", &["./script", "x"]);
    assert_eq!(native.ended, Ended::Exit(4));
}

#[test]
fn foreign_and_damaged_programs_are_126() {
    let mut narrow = real_program();
    narrow[4] = 1;
    refused_file(&narrow, 0o755, 126, "32-bit");
    let mut foreign = real_program();
    foreign[18] = 0xb7;
    refused_file(&foreign, 0o755, 126, "program");
    for length in [4, 20, 63, 64, 100, 200] {
        refused_file(&real_program()[..length], 0o755, 126, "program");
    }
}

#[test]
fn a_program_cut_off_in_its_segments_never_runs_wrongly() {
    let scene = Scene::new();
    for length in [4096, 8192, real_program().len() / 2] {
        let path = scene.write("program", &real_program()[..length]);
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let outcome = scene.rcoe(&["run", "-n", "2", "--", &path.display().to_string()]);
        assert_ne!(outcome.ended, Ended::Exit(0), "{length}: {}", outcome.err());
        assert_ne!(outcome.ended, Ended::Late, "{length}: {}", outcome.err());
    }
}

/// A program of this mode, which belongs to another user and group if that can be had.
fn set_id_program(scene: &Scene, mode: u32, others: bool) -> String {
    let path = scene.write("program", real_program());
    if others && std::os::unix::fs::chown(&path, Some(1), Some(1)).is_err() {
        return "/bin/su".into();
    }
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

#[test]
fn a_program_that_would_change_the_user_is_126() {
    for (mode, hint) in [(0o4755, "setuid"), (0o6755, "setuid")] {
        let scene = Scene::new();
        let program = set_id_program(&scene, mode, true);
        refused(&scene, &["run", "-n", "2", "--", &program], 126, hint);
        let options = ["run", "-n", "2", "--", "sh", "-c", &format!("{program}; :")];
        let outcome = scene.rcoe(&options);
        assert!(outcome.err().contains("privileges"), "{}", outcome.err());
    }
}

#[test]
fn a_set_user_id_program_of_the_same_user_runs() {
    let scene = Scene::new();
    let program = set_id_program(&scene, 0o6755, false);
    let script = format!("{program} && exec {program}");
    for words in [&[&*program][..], &["sh", "-c", &script]] {
        let outcome = scene.rcoe(&[&["run", "-n", "2", "--"], words].concat());
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.err(), "");
    }
}

#[test]
fn bad_options_are_125() {
    let scene = Scene::new();
    for options in [
        &["-n", "0"][..],
        &["-n", "99"],
        &["-n", "-1"],
        &["-n", "two"],
        &["--compare", "nothing"],
        &["--on-fault", "panic"],
        &["--on-fault", "mask", "-n", "2"],
        &["--cores", "4096"],
        &["--cores", "x"],
        &["--timeout", "soon"],
        &["--timeout", "0s"],
        &["--no-such-option"],
        &["--events", "no/such/folder/events"],
        &["--events", "."],
    ] {
        let arguments = [&["run"], options, &["--", "touch", "started"]].concat();
        let names_it = |errors: &str| options.iter().any(|word| errors.contains(word));
        let outcome = scene.rcoe(&arguments);
        assert_eq!(
            outcome.ended,
            Ended::Exit(125),
            "{options:?}: {}",
            outcome.err()
        );
        assert!(names_it(&outcome.err()), "{options:?}: {}", outcome.err());
        assert!(
            !Path::new(&scene.path().join("started")).exists(),
            "{options:?}"
        );
    }
    refused(&scene, &["run"], 125, "PROGRAM");
    refused(&scene, &["run", "--"], 125, "PROGRAM");
    refused(&scene, &["walk"], 125, "walk");
}

#[test]
fn help_and_version_succeed() {
    let scene = Scene::new();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["doctor"],
    ] {
        let outcome = scene.rcoe(arguments);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{arguments:?}: {}",
            outcome.err()
        );
        assert!(!outcome.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_number_of_replicas_beyond_the_cores_works() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&[
        "run", "-n", "8", "--cores", "0", "--", "echo", "all", "agree",
    ]);
    assert_eq!(
        (outcome.ended, outcome.out().as_str()),
        (Ended::Exit(0), "all agree\n")
    );
    assert_eq!(outcome.err(), "");
}
