//! Bad input gets one clear line on standard error and the right exit status, before anything runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn rcoe(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rcoe"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("rcoe starts")
}

/// Asserts status and message; the message must be rcoe's and name all of `parts`.
fn refuses(args: &[&str], status: i32, parts: &[&str]) {
    let output = rcoe(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    assert!(text.starts_with("rcoe: "), "{args:?}: {text}");
    assert!(!text.contains('\u{1b}'), "no colour into a pipe: {text}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for part in parts {
        assert!(text.contains(part), "{args:?}: '{part}' is not in: {text}");
    }
}

fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> String {
    let path = folder.join(name);
    fs::write(&path, content).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode set");
    path.to_str().expect("text").to_owned()
}

#[test]
fn wrong_usage_is_125() {
    refuses(&["run"], 125, &["PROGRAM"]);
    refuses(&["run", "-n", "0", "--", "true"], 125, &["'0'", "-n 2"]);
    refuses(
        &["run", "-n", "99", "--", "true"],
        125,
        &["'99'", "at most 8"],
    );
    refuses(&["run", "--timeout", "3", "--", "true"], 125, &["unit"]);
    refuses(
        &["run", "--compare", "some", "--", "true"],
        125,
        &["io", "args", "every"],
    );
    refuses(
        &["run", "--no-such-option", "true"],
        125,
        &["--no-such-option"],
    );
    refuses(
        &["run", "-n", "2", "--on-fault", "mask", "--", "true"],
        125,
        &["-n 3"],
    );
}

#[test]
fn impossible_cores_are_125() {
    refuses(
        &["run", "--cores", "1000", "--", "true"],
        125,
        &["CPU 1000", "allowed"],
    );
    refuses(&["run", "--cores", "x", "--", "true"], 125, &["'x'"]);
    refuses(&["run", "--cores", "0,0", "--", "true"], 125, &["twice"]);
}

#[test]
fn an_unwritable_events_file_stops_before_the_start() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let made = folder.path().join("made");
    let made = made.to_str().expect("text");
    refuses(
        &["run", "--events", "/no/such/folder/x", "--", "touch", made],
        125,
        &["/no/such/folder/x"],
    );
    assert!(!Path::new(made).exists(), "the program must not have run");
}

#[test]
fn missing_programs_are_127() {
    refuses(
        &["run", "--", "no-such-program"],
        127,
        &["no-such-program", "not found"],
    );
    refuses(
        &["run", "--", "./no/such"],
        127,
        &["./no/such", "not found"],
    );
    let folder = tempfile::tempdir().expect("temporary folder");
    let script = file(folder.path(), "script", b"#!/no/interpreter\n", 0o755);
    refuses(&["run", "--", &script], 127, &[&script, "/no/interpreter"]);
}

#[test]
fn programs_that_cannot_run_are_126() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let bytes = fs::read("/bin/true").expect("/bin/true");
    let cases: [(&str, &[u8], u32, &str); 3] = [
        ("locked", &bytes, 0o644, "permission"),
        ("text", b"hello\n", 0o755, "not an executable"),
        ("cut", &bytes[..100], 0o755, "truncated"),
    ];
    for (name, content, mode, reason) in cases {
        let path = file(folder.path(), name, content, mode);
        refuses(&["run", "--", &path], 126, &[&path, reason]);
    }
    let path = folder.path().to_str().expect("text");
    refuses(&["run", "--", path], 126, &[path, "directory"]);
}

#[test]
fn help_and_version_go_to_standard_output() {
    for args in [
        ["--help"].as_slice(),
        &["--version"],
        &["help", "run"],
        &["run", "--help"],
    ] {
        let output = rcoe(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{args:?}"
        );
    }
    let help = rcoe(&["help", "run"]);
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(help.contains("Examples:") && help.contains("86"), "{help}");
}

#[test]
fn the_doctor_speaks_json() {
    let output = rcoe(&["doctor", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let usable = value["usable"].as_bool().expect("usable");
    assert_eq!(output.status.code(), Some(i32::from(!usable)));
    assert!(
        value["findings"]
            .as_array()
            .is_some_and(|list| list.len() >= 8)
    );
    for name in ["write protection", "soft-dirty bits"] {
        let finding = value["findings"]
            .as_array()
            .and_then(|list| list.iter().find(|finding| finding["name"] == name));
        let answer = finding.and_then(|finding| finding["answer"].as_str());
        assert!(matches!(answer, Some("yes" | "no")), "{name}: {answer:?}");
    }
}

#[test]
fn a_full_disk_is_told() {
    let full = fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = Command::new(env!("CARGO_BIN_EXE_rcoe"))
        .arg("doctor")
        .stdout(full)
        .output()
        .expect("rcoe starts");
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"));
}
