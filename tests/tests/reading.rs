//! Files that each replica reads by itself: what others change meanwhile is no fault, and a flip in
//! what one has read is found before anything wrong goes out.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rcoe_tests::launch::{Ended, Outcome, start};
use rcoe_tests::memory::{of_agent, symbol};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use serde_json::Value;

/// Prints a sum of each pass through a file.
const PASSES: &str = include_str!("reading/passes.c");
/// Flips what a replica reads of it.
const FLIP: &str = include_str!("reading/flip.c");
/// Bytes of that file.
const SIZE: usize = 1 << 18;

/// Reads a file in pieces of so many bytes, again and again, until there is a file `stop`, at least
/// a thousand times. It may be cut short and grow meanwhile.
const READER: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n
#include <unistd.h>\n
int main(int argc, char **argv) {
  int piece = atoi(argv[1]), reads = 0, got;
  unsigned char *bytes = malloc(piece);
  unsigned long sum = 0;
  do {
    int fd = open(\"changing\", O_RDONLY);
    if (fd < 0) return 1;
    while ((got = read(fd, bytes, piece)) > 0) {
      for (int at = 0; at < got; at++) sum = sum * 31 + bytes[at];
      reads++;
    }
    if (got < 0) return 2;
    close(fd);
    if (access(\"turn\", F_OK) == 0) printf(\"%lx\\n\", sum), fflush(stdout);
  } while (reads < 1000 || access(\"stop\", F_OK) != 0);
  printf(\"%lx\\n\", sum);
  return 3;
}";

/// Rewrites a file so many times, by calls, by stores to a mapping, and by cutting it short, with
/// nobody writing in between for as long as a file must be at rest.
const WRITER: &str = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <stdlib.h>\n
#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n
enum { SIZE = 1 << 20 };
int main(int argc, char **argv) {
  static char bytes[SIZE];
  for (int round = 0; round < atoi(argv[1]); round++) {
    int fd = open(\"changing\", O_RDWR);
    memset(bytes, round, SIZE);
    switch (round % 3) {
    case 0:
      for (int at = 0; at < SIZE; at += 4096) pwrite(fd, bytes, 4096, at);
      break;
    case 1: {
      char *map = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      for (int times = 0; times < 4; times++)
        for (int at = 0; at < SIZE; at += 64) map[at]++;
      munmap(map, SIZE);
      break;
    }
    default:
      ftruncate(fd, SIZE / 2 + 77);
      pwrite(fd, bytes, SIZE, 0);
    }
    close(fd);
    usleep(30000);
  }
  close(open(\"stop\", O_WRONLY | O_CREAT, 0600));
  return 0;
}";

fn read_while_somebody_writes(piece: &str, replicas: &str) {
    let scene = Scene::new();
    let reader = scene.compile("reader", READER, &["-O1"]);
    let writer = scene.compile("writer", WRITER, &["-w"]);
    let content: Vec<u8> = (0..1_u32 << 20)
        .map(|at| u8::try_from(at / 7 % 251).expect("small"))
        .collect();
    scene.write("changing", content);
    let events = scene.path().join("events");
    let options = ["run", "-n", replicas, "--events"];
    let file = events.to_str().expect("a plain path");
    let options = [&options[..], &[file, "--", &reader, piece]].concat();
    let running = scene.start(&options);
    let writing = start(&[writer, "40".to_owned()], scene.path(), None).expect("it starts");
    let limit = std::time::Duration::from_secs(120);
    let outcome = running.finish(limit).expect("it ends");
    let wrote = writing.finish(limit).expect("it ends");
    assert_eq!(wrote.ended, Ended::Exit(0));
    let told = (outcome.err(), events_of(&events));
    assert_eq!(outcome.ended, Ended::Exit(3), "{piece} {replicas} {told:?}");
    assert_eq!(outcome.err(), "", "{piece} {replicas}");
}

#[test]
fn a_file_that_somebody_rewrites_meanwhile_is_no_fault() {
    read_while_somebody_writes("4096", "2");
    read_while_somebody_writes("100000", "2");
}

#[test]
fn three_replicas_read_a_file_that_somebody_rewrites() {
    read_while_somebody_writes("16384", "3");
}

/// A program that reads a file again and again, and what it has to say of it.
struct Passes {
    scene: Scene,
    program: String,
    flip: String,
}

impl Passes {
    fn new() -> Self {
        const EXT: i64 = 0xef53;
        let scene = Scene::new();
        let kind = rustix::fs::statfs(scene.path()).expect("a folder").f_type;
        assert_eq!(
            kind, EXT,
            "replicas read by themselves on ext2 to ext4: TMPDIR"
        );
        scene.write("data", content(1));
        let program = scene.compile("passes", PASSES, &["-static", "-no-pie"]);
        let flip = scene.compile("flip", FLIP, &["-w"]);
        Self {
            scene,
            program,
            flip,
        }
    }

    fn data(&self) -> PathBuf {
        self.scene.path().join("data")
    }

    fn start(&self, options: &[&str], file: &Path) -> Group {
        let options = [options, &["--timeout", "30s"]].concat();
        let file = file.to_str().expect("a plain path");
        self.scene.start_group(&options, &[&self.program, file])
    }

    /// Waits until the replica makes a digest of what it has read of the file, and meddles.
    fn flip(&self, group: &Group, replica: usize, when: &str) -> Outcome {
        let pid = group.replicas[replica];
        let place = |name: &str| of_agent(pid, name).0.to_string();
        let argv = [
            self.flip.clone(),
            pid.to_string(),
            when.to_owned(),
            symbol(&self.program, "bytes").to_string(),
            place("rcoe_digest_by_aes"),
            place("arch6digest5plain"),
        ];
        let outcome = self.scene.run(&argv.each_ref().map(String::as_str));
        assert_eq!(outcome.out(), "done\n", "{when}: {}", outcome.err());
        outcome
    }

    /// Ends the program; what came of it.
    fn end(&self, group: Group) -> (Outcome, Vec<Value>) {
        self.scene.write("stop", "");
        group.finish()
    }
}

/// What a file has.
fn content(seed: u8) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / 7 + at % 3) % 251).expect("small") ^ seed;
    (0..SIZE).map(byte).collect()
}

/// What the program says of such a file.
fn line(content: &[u8]) -> String {
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add((*byte).into());
    format!("{} {:x}", content.len(), content.iter().fold(0, add))
}

/// Waits until the program has said this.
fn await_line(group: &Group, line: &str) {
    until("a pass through the file", || {
        let said = group.running.stdout_so_far().expect("readable");
        (said.lines().last() == Some(line) && said.ends_with('\n')).then_some(())
    });
}

/// Two replicas, and three of which a fault stops all.
const STOPPING: [&[&str]; 2] = [&["-n", "2"], &["-n", "3", "--on-fault", "stop"]];

#[test]
fn a_flip_while_a_follower_reads_is_read_over() {
    for options in STOPPING {
        let passes = Passes::new();
        let group = passes.start(options, &passes.data());
        passes.flip(&group, 1, "before");
        let (outcome, events) = passes.end(group);
        let what = format!("{options:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
        let right = line(&content(1));
        assert!(outcome.out().lines().all(|said| said == right), "{what}");
    }
}

#[test]
fn what_was_hit_in_one_replica_is_found_before_it_goes_out() {
    for (replica, when) in [(0, "before"), (0, "after"), (1, "twice"), (1, "after")] {
        for options in STOPPING {
            let passes = Passes::new();
            let group = passes.start(options, &passes.data());
            passes.flip(&group, replica, when);
            let (outcome, events) = passes.end(group);
            let what = format!("{options:?} {replica} {when}: {} {events:?}", outcome.err());
            assert_eq!(outcome.ended, Ended::Exit(86), "{what}");
            let right = line(&content(1));
            assert!(outcome.out().lines().all(|said| said == right), "{what}");
            let mut told = events.iter();
            let told = told.find(|event| event["type"] == "divergence");
            let told = told.expect("a difference is told");
            assert_eq!(told["kind"], "mismatch", "{what}");
            if options.len() > 2 {
                assert_eq!(told["replica"], replica, "{what}");
            }
        }
    }
}

#[test]
fn what_changes_between_two_readings_is_taken_from_the_primary() {
    for options in STOPPING {
        let passes = Passes::new();
        let group = passes.start(options, &passes.data());
        passes.flip(&group, 1, "change");
        let last = line(&content(0));
        await_line(&group, &last);
        let (outcome, events) = passes.end(group);
        let what = format!("{options:?}: {} {events:?}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
        assert_eq!(outcome.err(), "", "{what}");
        let first = line(&content(1));
        let said = outcome.out();
        let others = said.lines().filter(|it| **it != first && **it != last);
        assert_eq!(others.count(), 0, "the primary had read all: {said}");
    }
}

/// Changes the file while it is read: what is said last is right, and nothing is a fault.
#[track_caller]
fn goes_on(passes: &Passes, file: &Path, change: impl FnOnce(&Group), last: &[u8]) -> Outcome {
    let group = passes.start(&["-n", "2"], file);
    await_line(&group, &line(&content(1)));
    change(&group);
    await_line(&group, &line(last));
    let (outcome, events) = passes.end(group);
    let what = format!("{} {events:?}", outcome.err());
    assert_eq!(outcome.ended, Ended::Exit(3), "{what}");
    assert_eq!(outcome.err(), "", "{what}");
    outcome
}

#[test]
fn a_file_that_is_cut_short_is_read_up_to_its_end() {
    let passes = Passes::new();
    let data = passes.data();
    let length = SIZE / 2 + 77;
    let cut = |group: &Group| {
        // So that it is known to be read by each.
        passes.flip(group, 1, "before");
        let file = File::options().write(true).open(&data).expect("ours");
        file.set_len(length as u64).expect("it can be cut short");
    };
    goes_on(&passes, &data, cut, &content(1)[..length]);
}

#[test]
fn a_file_that_another_replaces_is_read_on() {
    let passes = Passes::new();
    let data = passes.data();
    let replace = |group: &Group| {
        passes.flip(group, 1, "before");
        let other = passes.scene.write("other", content(2));
        fs::rename(other, &data).expect("one folder");
        passes.flip(group, 1, "before");
    };
    let outcome = goes_on(&passes, &data, replace, &content(1));
    let right = line(&content(1));
    assert!(outcome.out().lines().all(|said| said == right));
}

#[test]
fn a_file_in_memory_that_changes_is_read_right() {
    let passes = Passes::new();
    let folder = tempfile::tempdir_in("/dev/shm").expect("files in memory");
    let file = folder.path().join("data");
    fs::write(&file, content(1)).expect("room");
    let change = |_: &Group| {
        let writer = File::options().write(true).open(&file).expect("ours");
        writer.write_all_at(&content(2), 0).expect("room");
    };
    goes_on(&passes, &file, change, &content(2));
}

/// Maps `data` shared, and stores to each page again and again, each time another byte, until there
/// is a file `stored`; then what is to stay.
const MAPPER: &str = "#include <fcntl.h>\n#include <sys/mman.h>\n#include <unistd.h>\n
enum { SIZE = 1 << 18 };
int main(void) {
  int fd = open(\"data\", O_RDWR);
  unsigned char *map = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || map == MAP_FAILED) return 1;
  close(fd);
  for (int byte = 0; access(\"stored\", F_OK); byte++)
    for (int at = 0; at < SIZE; at += 64) map[at] = byte;
  for (int at = 0; at < SIZE; at++) map[at] = at;
  return 0;
}";

#[test]
fn stores_to_a_mapping_of_the_file_are_no_fault() {
    let passes = Passes::new();
    let mapper = passes.scene.compile("mapper", MAPPER, &["-w"]);
    let data = passes.data();
    let store = |group: &Group| {
        passes.flip(group, 1, "before");
        let mapping = start(&[mapper], passes.scene.path(), None).expect("it starts");
        let said = || {
            group
                .running
                .stdout_so_far()
                .expect("readable")
                .lines()
                .count()
        };
        let before = said();
        until("passes meanwhile", || (said() > before + 50).then_some(()));
        passes.scene.write("stored", "");
        let limit = std::time::Duration::from_secs(120);
        let ended = mapping.finish(limit).expect("it ends").ended;
        assert_eq!(ended, Ended::Exit(0));
    };
    let last: Vec<u8> = (0..SIZE)
        .map(|at| u8::try_from(at & 0xff).expect("a byte"))
        .collect();
    goes_on(&passes, &data, store, &last);
}

/// Once there is a file `go`, reads `long` in pieces of so many bytes, says so, and waits for a
/// file `stop`.
const ONCE: &str = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n
int main(int argc, char **argv) {
  int piece = atoi(argv[1]), fd = open(\"long\", O_RDONLY), got;
  char *bytes = malloc(piece);
  write(1, \"ready\\n\", 6);
  while (access(\"go\", F_OK) != 0);
  while ((got = read(fd, bytes, piece)) > 0);
  write(1, \"done\\n\", 5);
  while (access(\"stop\", F_OK) != 0);
  return got ? 1 : 3;
}";

/// Bytes that a process has got by calls that read.
fn bytes_read(pid: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).expect("it runs");
    let bytes = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    bytes.and_then(|it| it.parse().ok()).expect("a number")
}

#[test]
fn all_but_the_first_pieces_a_follower_reads_by_itself_however_far_it_is_behind() {
    const LONG: usize = 16 << 20;
    /// By which it is found that the file is read in a row.
    const FIRST: usize = 4;
    for piece in [4096, 1 << 16, 1 << 17] {
        let scene = Scene::new();
        scene.write("long", vec![5; LONG]);
        let once = scene.compile("once", ONCE, &["-w"]);
        let options = ["-n", "2", "--timeout", "30s"];
        let group = scene.start_group(&options, &[&once, &piece.to_string()]);
        await_line(&group, "ready");
        let before = bytes_read(group.replicas[1]);
        scene.write("go", "");
        await_line(&group, "done");
        let own = bytes_read(group.replicas[1]) - before;
        scene.write("stop", "");
        let (outcome, events) = group.finish();
        assert_eq!(
            outcome.ended,
            Ended::Exit(3),
            "{} {events:?}",
            outcome.err()
        );
        let least = LONG - FIRST * piece;
        assert!(own >= least as u64, "{own} of {LONG} in pieces of {piece}");
    }
}
