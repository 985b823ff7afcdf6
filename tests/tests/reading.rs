//! Files that each replica reads by itself: what others change meanwhile is no fault.

use rcoe_tests::launch::{Ended, start};
use rcoe_tests::rcoe::{Scene, events_of};

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
