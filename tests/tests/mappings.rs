//! Shared writable mappings of files.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

const SOURCE: &str = "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n
#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n
int main(void) {
  char text[8] = { 0 };
  int fd = open(\"mapped\", O_RDWR | O_CREAT | O_TRUNC, 0600);
  ftruncate(fd, 5 * 4096 + 100);
  char *at = mmap(0, 6 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) { perror(\"mmap\"); return 1; }
  strcpy(at + 10, \"one\");
  pread(fd, text, 4, 10);
  printf(\"the file has %s\\n\", text);
  pwrite(fd, \"two\", 3, 4096);
  printf(\"the mapping has %.3s and still %s\\n\", at + 4096, at + 10);
  strcpy(at + 8192, \"three\");
  printf(\"msync %d\\n\", msync(at, 3 * 4096, MS_SYNC));
  strcpy(at + 3 * 4096 + 7, \"four\");
  printf(\"munmap %d\\n\", munmap(at + 3 * 4096, 4096));
  strcpy(at + 4 * 4096, \"five\");
  at[5 * 4096 + 99] = 'e';
  close(fd);
  strcpy(at + 20, \"six\");
  int reader = open(\"mapped\", O_RDONLY);
  char *view = mmap(0, 4096, PROT_READ, MAP_SHARED, reader, 0);
  printf(\"a view has %.3s\\n\", view + 10);
  void *bad = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0);
  printf(\"writing to what is only read: %d\\n\", bad == MAP_FAILED ? errno : 0);
  return 9;
}";

#[test]
fn what_a_program_writes_into_a_mapping_reaches_the_file() {
    let scene = Scene::new();
    let program = scene.compile("mapper", SOURCE, &["-w"]);
    let native = scene.run(&[&program]);
    assert_eq!(native.ended, Ended::Exit(9), "{}", native.err());
    let file = scene.path().join("mapped");
    let expected = std::fs::read(&file).unwrap();
    for replicas in ["1", "2", "3"] {
        for compare in ["io", "args", "every"] {
            std::fs::remove_file(&file).unwrap();
            let options = ["run", "-n", replicas, "--compare", compare, "--", &program];
            let outcome = scene.rcoe(&options);
            assert_eq!(
                outcome.ended,
                Ended::Exit(9),
                "{options:?} {}",
                outcome.err()
            );
            assert_eq!(outcome.out(), native.out(), "{options:?}");
            assert_eq!(outcome.err(), "", "{options:?}");
            assert!(std::fs::read(&file).unwrap() == expected, "{options:?}");
        }
    }
}

const TWICE: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n
#include <sys/mman.h>\n#include <sys/wait.h>\n#include <unistd.h>\n
int main(void) {
  int fd = open(\"mapped\", O_RDWR | O_CREAT | O_TRUNC, 0600);
  ftruncate(fd, 8192);
  char *one = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  char *two = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
  strcpy(one + 4096, \"both\");
  printf(\"%s\\n\", two);
  fflush(stdout);
  if (fork() == 0) { strcpy(two, \"all\"); one[0] = 'c'; _exit(0); }
  wait(0);
  printf(\"%s %c\\n\", one + 4096, one[0]);
  return 0;
}";

#[test]
fn a_file_mapped_twice_is_the_same_memory_also_in_a_child() {
    let scene = Scene::new();
    let program = scene.compile("aliases", TWICE, &["-w"]);
    let native = scene.like_native("\"$@\" && cat mapped", &[&program]);
    assert!(
        native.out().starts_with("both\nall c\nc"),
        "{}",
        native.out()
    );
}

#[test]
fn shared_mappings_grow_shrink_and_move() {
    let scene = Scene::new();
    let program = scene.compile("resize", include_str!("mappings/resize.c"), &[]);
    let native = scene.like_native("\"$@\" && cat alone mapped", &[&program]);
    assert!(
        native.out().contains("grown elsewhere: 1"),
        "{}",
        native.out()
    );
}

const BEYOND: &str = "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n
#include <sys/mman.h>\n
int main(void) {
  char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  printf(\"%d\\n\", mremap(at, 4096, 1 << 20, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0);
  at[0] = 1;
  return 0;
}";

#[test]
fn growing_beyond_what_there_is_to_show_is_refused() {
    let scene = Scene::new();
    let program = scene.compile("beyond", BEYOND, &[]);
    let outcome = scene.rcoe(&["run", "-n", "2", "--", &program]);
    assert_eq!(outcome.ended, Ended::Exit(0));
    assert_eq!(outcome.out(), "38\n");
    assert!(
        outcome.err().contains("mremap of a shared mapping"),
        "{}",
        outcome.err()
    );
}
