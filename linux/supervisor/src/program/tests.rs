use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;
use crate::error::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary folder"))
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode set");
        path
    }
}

fn command(words: &[&OsStr]) -> Vec<OsString> {
    words.iter().map(|&word| word.to_os_string()).collect()
}

fn resolve(path: &Path) -> Result<Program, ProgramError> {
    Program::resolve(&command(&[path.as_os_str(), OsStr::new("x")]), None)
}

fn refusal(path: &Path) -> String {
    let error = resolve(path).expect_err("must be refused");
    assert_eq!(error.exit_status(), EXIT_NOT_EXECUTABLE, "{error}");
    assert!(
        error.to_string().contains(&path.display().to_string()),
        "{error}"
    );
    error.to_string()
}

fn true_bytes() -> Vec<u8> {
    fs::read("/bin/true").expect("/bin/true")
}

#[test]
fn path_is_searched_and_made_canonical() {
    let folder = Folder::new();
    let real = folder.file("real", &true_bytes(), 0o755);
    symlink(&real, folder.0.path().join("link")).expect("link");
    let program = Program::resolve(
        &command(&[OsStr::new("link"), OsStr::new("1")]),
        Some(folder.0.path().as_os_str()),
    )
    .expect("resolved");
    assert_eq!(program.exe, real.canonicalize().expect("canonical"));
    assert_eq!(program.path, folder.0.path().join("link"));
    assert_eq!(program.argv, ["link", "1"]);
}

#[test]
fn search_prefers_what_can_run_and_else_says_why() {
    let (first, second) = (Folder::new(), Folder::new());
    first.file("tool", b"", 0o644);
    let path = std::env::join_paths([first.0.path(), second.0.path()]).expect("path");
    let words = command(&[OsStr::new("tool")]);
    let error = Program::resolve(&words, Some(&path)).expect_err("not executable");
    assert_eq!(error.exit_status(), EXIT_NOT_EXECUTABLE);
    let good = second.file("tool", &true_bytes(), 0o755);
    let program = Program::resolve(&words, Some(&path)).expect("resolved");
    assert_eq!(program.path, good);
}

#[test]
fn missing_programs_are_127() {
    for name in ["no-such-program", "./no/such/program", "/bin/true/x", ""] {
        let error = Program::resolve(&command(&[OsStr::new(name)]), None).expect_err(name);
        assert_eq!(error.exit_status(), EXIT_NOT_FOUND, "{error}");
    }
}

#[test]
fn what_cannot_run_is_126_with_a_reason() {
    let folder = Folder::new();
    let bytes = true_bytes();
    assert!(refusal(folder.0.path()).contains("directory"));
    assert!(refusal(&folder.file("plain", &bytes, 0o644)).contains("permission denied"));
    assert!(refusal(&folder.file("text", b"echo hello\n", 0o755)).contains("not an executable"));
    assert!(refusal(&folder.file("empty", b"", 0o755)).contains("not an executable"));
}

#[test]
fn set_id_bits_matter_if_they_are_for_somebody_else() {
    let own = [1000, 100];
    let cases = [
        (0o4755, [0, 0], Some("setuid")),
        (0o6755, [1000, 0], Some("setgid")),
        (0o2755, [1000, 0], Some("setgid")),
        (0o2745, [1000, 0], None),
        (0o6755, [1000, 100], None),
        (0o755, [0, 0], None),
    ];
    for (mode, owner, expected) in cases {
        assert_eq!(
            changes_ids(mode, owner, own),
            expected,
            "{mode:o} {owner:?}"
        );
    }
}

#[test]
fn scripts_follow_the_kernels_rules() {
    let folder = Folder::new();
    let shell = Path::new("/bin/sh").canonicalize().expect("a shell");
    let script = folder.file("script", b"#! /bin/sh  -e -u \nexit 0\n", 0o755);
    let program = resolve(&script).expect("resolved");
    assert_eq!(program.exe, shell);
    assert_eq!(program.path, script);
    let expected = [
        OsStr::new("/bin/sh"),
        OsStr::new("-e -u"),
        script.as_os_str(),
        OsStr::new("x"),
    ];
    assert_eq!(program.argv, expected);

    let outer = format!("#!{}\n", script.display());
    let outer = folder.file("outer", outer.as_bytes(), 0o755);
    let program = resolve(&outer).expect("resolved");
    let words = [
        Path::new("/bin/sh"),
        Path::new("-e -u"),
        &script,
        &outer,
        Path::new("x"),
    ];
    assert_eq!(program.argv, words);
}

#[test]
fn bad_scripts_are_refused() {
    let folder = Folder::new();
    let lost = folder.file("lost", b"#!/no/such/interpreter\n", 0o755);
    let error = resolve(&lost).expect_err("no interpreter");
    assert_eq!(error.exit_status(), EXIT_NOT_FOUND);
    assert!(
        error.to_string().contains("/no/such/interpreter"),
        "{error}"
    );
    assert!(refusal(&folder.file("blank", b"#!   \n", 0o755)).contains("#!"));
    let path = folder.0.path().join("loop");
    let line = format!("#!{}\n", path.display());
    let error = resolve(&folder.file("loop", line.as_bytes(), 0o755)).expect_err("a loop");
    assert_eq!(error.exit_status(), EXIT_NOT_EXECUTABLE);
    let long = [b"#!/".as_slice(), &[b'a'; 300]].concat();
    assert!(refusal(&folder.file("long", &long, 0o755)).contains("too long"));
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let folder = Folder::new();
    let bytes = true_bytes();
    assert!(refusal(&folder.file("cut", &bytes[..bytes.len() / 3], 0o755)).contains("truncated"));
    assert!(refusal(&folder.file("tiny", &bytes[..20], 0o755)).contains("truncated"));
    let mut narrow = bytes.clone();
    narrow[4] = 1;
    assert!(refusal(&folder.file("narrow", &narrow, 0o755)).contains("32-bit"));
    let mut arm = bytes.clone();
    arm[18] = 183;
    assert!(refusal(&folder.file("arm", &arm, 0o755)).contains("AArch64"));
    let mut object = bytes.clone();
    object[16] = 1;
    assert!(refusal(&folder.file("object", &object, 0o755)).contains("object file"));
    let at = bytes
        .windows(6)
        .position(|window| window == b"/lib64")
        .expect("a loader");
    let mut lost = bytes;
    lost[at + 1] = b'X';
    let error = resolve(&folder.file("lost", &lost, 0o755)).expect_err("no loader");
    assert_eq!(error.exit_status(), EXIT_NOT_FOUND);
    assert!(error.to_string().contains("/Xib64"), "{error}");
}
