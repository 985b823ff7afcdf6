//! Closed and full streams, full disks: the program's to handle, as without rcoe.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

#[test]
fn closed_streams_are_seen_as_closed() {
    let scene = Scene::new();
    for script in [
        "exec \"$@\" >&-",
        "exec \"$@\" <&-",
        "exec \"$@\" 2>&-",
        "exec \"$@\" <&- >&-",
        "exec \"$@\" <&- >&- 2>&-",
    ] {
        scene.like_native(script, &["cat", "/etc/hostname", "-"]);
    }
}

#[test]
fn a_full_device_is_the_programs_error() {
    let scene = Scene::new();
    let native = scene.like_native("exec \"$@\" >/dev/full", &["seq", "100000"]);
    assert_eq!(native.ended, Ended::Exit(1));
    assert!(native.err().contains("No space left"));
}

#[test]
fn a_limited_file_is_the_programs_error() {
    let scene = Scene::new();
    // The limit is 32 MiB: rcoe's own shared memory counts against it too.
    let copy = ["dd", "if=/dev/zero", "of=out", "bs=1M", "count=40"];
    let quiet = "2>/dev/null";
    scene.like_native(
        &format!("trap '' XFSZ; ulimit -f 65536; exec \"$@\" {quiet}"),
        &copy,
    );
    let script = format!("ulimit -c 0; ulimit -f 65536; exec \"$@\" {quiet}");
    let native = scene.like_native(&script, &copy);
    assert_eq!(native.ended, Ended::Signal(25));
}

#[test]
fn a_reader_that_leaves_ends_the_writer() {
    let scene = Scene::new();
    let script = "{ \"$@\"; echo $? >&2; } | head -n 1";
    let native = scene.like_native(script, &["seq", "1000000"]);
    assert_eq!(
        (native.out().as_str(), native.err().as_str()),
        ("1\n", "141\n")
    );
}

#[test]
fn a_program_may_close_every_descriptor() {
    let source = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <unistd.h>\n
int main(int argc, char **argv) {
  if (argc > 1) close_range(0, ~0u, 0);
  else for (int fd = 0; fd < 1024; fd++) close(fd);
  int fd = open(\"out\", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int again = open(\"out\", O_RDONLY);
  if (write(1, \"x\", 1) != -1) return 9;
  if (write(fd, \"written\\n\", 8) != 8) return 8;
  char buffer[9] = {0};
  if (read(again, buffer, 8) != 8 || buffer[6] != 'n') return 7;
  return 40 + fd * 2 + again;
}";
    let scene = Scene::new();
    let program = scene.compile("closer", source, &[]);
    for arguments in [&[&*program][..], &[&*program, "all"]] {
        let native = scene.like_native("rm -f out; exec \"$@\"", arguments);
        assert_eq!(native.ended, Ended::Exit(41));
        assert_eq!(
            std::fs::read(scene.path().join("out")).unwrap(),
            b"written\n"
        );
    }
}

#[test]
fn descriptors_are_numbered_as_without_rcoe() {
    let scene = Scene::new();
    let script = "exec 5</etc/hostname; exec \"$@\"";
    scene.like_native(script, &["dash", "-c", "cat=x; read line <&5; echo $line"]);
    scene.like_native("exec \"$@\"", &["ls", "/proc/self/fd"]);
}

#[test]
fn an_events_file_on_a_full_device_is_only_a_warning() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&[
        "run",
        "-n",
        "2",
        "--events",
        "/dev/full",
        "--",
        "echo",
        "hello",
    ]);
    assert_eq!(
        (outcome.ended, outcome.out().as_str()),
        (Ended::Exit(0), "hello\n")
    );
    assert!(outcome.err().contains("--events"), "{}", outcome.err());
}

#[test]
fn input_from_a_pipe_reaches_all_replicas() {
    let scene = Scene::new();
    scene.like_native("seq 20000 | \"$@\"", &["sort", "-rn"]);
    scene.like_native("seq 20000 | \"$@\" | tail -n 3", &["cat"]);
}
