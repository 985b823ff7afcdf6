//! The system sphere: Linux as a guest, to its shell, replicated (AArch64).
//!
//! Linux is not the project's: these tests are left out unless the environment names a kernel for
//! arm64 (`RCOE_GUEST_LINUX`, an `Image`) and a static busybox for it (`RCOE_GUEST_BUSYBOX`).

use std::path::PathBuf;

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::system::system_with;

/// What the shell runs: programs, a pipe, a loop; then it switches the machine off.
const SCRIPT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox echo begin
for round in 1 2 3 4 5 6 7 8; do
    /bin/busybox seq 20000 | /bin/busybox md5sum
done
/bin/busybox grep -c processor /proc/cpuinfo
/bin/busybox poweroff -f
";

/// Begins Linux with the script; none if there is no Linux here.
struct Linux {
    scene: Scene,
    kernel: PathBuf,
}

impl Linux {
    fn find() -> Option<Self> {
        let named = |name| std::env::var_os(name).map(PathBuf::from);
        let (kernel, busybox) = (named("RCOE_GUEST_LINUX"), named("RCOE_GUEST_BUSYBOX"));
        let (Some(kernel), Some(busybox)) = (kernel, busybox) else {
            eprintln!("skipped: no Linux is named, nor a busybox for it");
            return None;
        };
        let busybox = std::fs::read(busybox).unwrap();
        let scene = Scene::new();
        let files = archive(&[
            ("proc", 0o40_755, b""),
            ("bin", 0o40_755, b""),
            ("bin/busybox", 0o100_755, &busybox),
            ("init", 0o100_755, SCRIPT.as_bytes()),
        ]);
        std::fs::write(scene.path().join("files"), files).unwrap();
        Some(Self { scene, kernel })
    }

    fn run(&self, words: &str, options: &[&str]) -> Outcome {
        let kernel = self.kernel.to_str().unwrap();
        let fixed = ["--arch", "aarch64", "--guest", kernel, "--initrd", "files"];
        let options = [&fixed, options].concat();
        let line = ["console=ttyAMA0", "panic=-1"];
        system_with(&self.scene, words, &options, &line)
    }
}

/// An archive of such files (cpio, `newc`): paths, modes, contents.
fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let end: (&str, u32, &[u8]) = ("TRAILER!!!", 0, b"");
    let mut made = Vec::new();
    for (number, (path, mode, content)) in files.iter().chain([&end]).enumerate() {
        made.extend(b"070701");
        let (name, len) = (path.len() + 1, content.len());
        // Number, mode, owners, links, time, length, devices, length of the path, sum.
        let mode = usize::try_from(*mode).unwrap();
        for field in [number, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name, 0] {
            made.extend(format!("{field:08x}").bytes());
        }
        made.extend(path.bytes().chain([0]));
        made.resize(made.len().next_multiple_of(4), 0);
        made.extend(*content);
        made.resize(made.len().next_multiple_of(4), 0);
    }
    made
}

/// What the script prints, among what the kernel tells.
fn printed(outcome: &Outcome) -> Vec<String> {
    let out = outcome.out();
    let lines = out.lines().map(|line| line.trim_end().to_owned());
    lines.filter(|line| !line.starts_with('[')).collect()
}

fn right() -> Vec<String> {
    let sums = std::iter::repeat_n("e071f707df7bbeee2a6a1eb48011ddd0  -", 8);
    let lines = ["begin"].into_iter().chain(sums).chain(["1"]);
    lines.map(str::to_owned).collect()
}

#[test]
fn linux_comes_to_its_shell_replicated_or_not() {
    let Some(linux) = Linux::find() else {
        return;
    };
    for options in [
        &["-n", "1"][..],
        &["-n", "2"],
        &["-n", "3"],
        &["-n", "2", "--stop-by", "breakpoint"],
        // Whoever asks where its code is too often must not leave a trace in its tables.
        &["-n", "2", "--tick", "1ms"],
    ] {
        let outcome = linux.run("", options);
        let what = format!("{options:?}: {} {}", outcome.out(), outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(printed(&outcome), right(), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
    }
}

/// Each replica breaks in Linux' first moments and is brought back while it goes on, the primary
/// first.
#[test]
fn linux_outlives_each_replica_and_each_comes_back() {
    let Some(linux) = Linux::find() else {
        return;
    };
    for victim in ["0", "1", "2"] {
        let words = format!("probe=sudden victim={victim}");
        let options = ["-n", "3", "--tick", "2ms", "--events", "e"];
        let outcome = linux.run(&words, &options);
        let what = format!("{victim}: {} {}", outcome.out(), outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(printed(&outcome), right(), "{what}");
        let events = events_of(&linux.scene.path().join("e"));
        let is = |kind: &str| events.iter().any(|event| event["type"] == kind);
        assert_eq!(is("takeover"), victim == "0", "{what} {events:?}");
        let back = events.iter().any(|event| event["stage"] == "done");
        assert!(is("downgrade") && back, "{what} {events:?}");
    }
}
