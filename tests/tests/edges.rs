//! What programs rarely do: as without rcoe, or refused by name; never a hang and never an alarm.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{self, LIMIT, Scene};
use rustix::process::Signal;

/// Compiles a program of `edges/` and runs it with each of the arguments: replicas must do what a
/// plain run does.
#[track_caller]
fn like_native(name: &str, source: &str, arguments: &[&[&str]]) {
    let scene = Scene::new();
    let program = scene.compile(name, source, &["-pthread", "-w"]);
    for more in arguments {
        let command = [&[program.as_str()], *more].concat();
        let native = scene.like_native("exec \"$@\"", &command);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
        assert!(!native.out().is_empty());
    }
}

#[test]
fn a_child_of_the_shell_that_has_executed_rcoe_is_neither_waited_for_nor_ended() {
    let scene = Scene::new();
    let script = "setsid sleep 60 >/dev/null 2>&1 & echo $! >sleeper; exec \"$@\"";
    let rcoe = rcoe::binary().unwrap().display().to_string();
    let argv = ["sh", "-c", script, "sh", &rcoe];
    let outcome = scene.run(&[&argv[..], &["run", "-n", "2", "--", "echo", "done"]].concat());
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "done\n");
    let sleeper = fs::read_to_string(scene.path().join("sleeper")).unwrap();
    signal(sleeper.trim().parse().unwrap(), Signal::KILL).expect("it still sleeps");
}

#[test]
fn what_fails_at_once_does_not_wait() {
    let source = include_str!("edges/vain.c");
    like_native("vain", source, &[&["threads"], &["shared"]]);
}

#[test]
fn threads_wake_each_other_in_shared_memory() {
    like_native("wakes", include_str!("edges/wakes.c"), &[&[]]);
}

#[test]
fn ranges_of_memory_are_checked_and_locked() {
    like_native("ranges", include_str!("edges/ranges.c"), &[&[]]);
}

#[test]
fn all_that_is_listed_can_be_locked_but_for_the_agent() {
    let scene = Scene::new();
    let program = scene.compile("ranges", include_str!("edges/ranges.c"), &["-w"]);
    let native = scene.run(&[&program, "listed"]);
    assert_eq!(native.out(), "not locked: 0\n");
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program, "listed"]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(0), "{err}");
        assert_eq!(outcome.out(), native.out(), "{err}");
        assert!(err.lines().all(|line| line.contains("agent")), "{err}");
    }
}

#[test]
fn guards_in_memory_are_refused() {
    let scene = Scene::new();
    let program = scene.compile("guards", include_str!("edges/guards.c"), &["-w"]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let refused = "100: 22\n101: 22\n102: 22\n103: 22\nchild 100\n";
        assert_eq!(outcome.out(), refused, "{}", outcome.err());
    }
}

#[test]
fn barriers_are_had_by_whoever_has_registered_for_them() {
    like_native("barriers", include_str!("edges/barriers.c"), &[&[]]);
}

#[test]
fn attributes_of_scheduling_are_told_and_set() {
    like_native("attributes", include_str!("edges/attributes.c"), &[&[]]);
}

/// The host would grant one to each replica.
#[test]
fn a_deadline_is_refused_to_who_may_have_one() {
    let scene = Scene::new();
    let program = scene.compile("deadline", include_str!("edges/deadline.c"), &["-w"]);
    if scene.run(&[&program]).out() == "EPERM\n" {
        return;
    }
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), "ENOSYS\n", "{}", outcome.err());
        assert!(outcome.err().contains("sched_setattr"), "{}", outcome.err());
    }
}

#[test]
fn ids_of_peers_senders_and_owners_are_the_programs() {
    like_native("ids", include_str!("edges/ids.c"), &[&[]]);
}

#[test]
fn files_in_memory_are_sealed_as_far_as_they_are_not_mapped() {
    like_native("seals", include_str!("edges/seals.c"), &[&[], &["forked"]]);
}

#[test]
fn a_seal_that_leaves_writing_to_mappings_is_refused() {
    let scene = Scene::new();
    let program = scene.compile("future", include_str!("edges/future.c"), &["-w"]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(0), "{err}");
        assert_eq!(outcome.out(), "22\nhello\n", "{err}");
        assert!(
            err.contains("F_ADD_SEALS") && err.lines().count() == 1,
            "{err}"
        );
    }
}

#[test]
fn what_is_open_for_writing_is_not_executed() {
    like_native("busy", include_str!("edges/busy.c"), &[&[]]);
}

#[test]
fn what_is_executed_is_not_written_to() {
    like_native("written", include_str!("edges/written.c"), &[&[]]);
}

#[test]
fn nothing_is_cut_short_by_signals_that_are_not_heeded() {
    like_native("whole", include_str!("edges/whole.c"), &[&[]]);
}

#[test]
fn a_call_may_come_with_the_alignment_check() {
    like_native("flags", include_str!("edges/flags.c"), &[&[]]);
}

#[test]
fn a_flag_without_meaning_ends_at_a_call() {
    let source = "#include <stdio.h>\n#include <unistd.h>\n
int main(void) {
  for (int i = 0; i < 3; i++) {
    long flags;
    asm volatile(\"pushf; orl $0x4000, (%%rsp); popf; mov $39, %%eax; syscall; pushf; pop %0\"
                 : \"=r\"(flags) : : \"rax\", \"rcx\", \"r11\", \"memory\", \"cc\");
    if (flags & 0x4000) return 1;
  }
  puts(\"gone\");
}";
    let scene = Scene::new();
    let program = scene.compile("nested", source, &[]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.out(), "gone\n", "{}", outcome.err());
    }
}

#[test]
fn timers_tell_in_every_way_that_the_kernel_knows() {
    like_native("timers", include_str!("edges/timers.c"), &[&[]]);
}

#[test]
fn numbers_beyond_bounds_reach_nobody_and_stacks_grow() {
    like_native("bounds", include_str!("edges/bounds.c"), &[&[]]);
}

#[test]
fn threads_send_each_other_messages() {
    like_native("mail", include_str!("edges/mail.c"), &[&[]]);
}

#[test]
fn what_a_call_writes_before_it_faults_is_written_in_all_replicas() {
    like_native("partial", include_str!("edges/partial.c"), &[&[]]);
}

#[test]
fn what_a_call_does_not_write_need_not_be_there() {
    like_native("counted", include_str!("edges/counted.c"), &[&[]]);
}

#[test]
fn what_need_not_wait_is_made_whatever_comes() {
    like_native("begun", include_str!("edges/begun.c"), &[&[]]);
}

#[test]
fn a_descriptor_that_is_not_open_yet_is_mapped_by_no_replica() {
    like_native("unopened", include_str!("edges/unopened.c"), &[&[]]);
}

#[test]
fn code_that_is_moved_replaced_or_read_is_the_programs_own() {
    like_native("moved", include_str!("edges/moved.c"), &[&[]]);
}

#[test]
fn what_lies_near_rewritten_code_is_not_unmapped() {
    let scene = Scene::new();
    let program = scene.compile("moved", include_str!("edges/moved.c"), &["-w", "-pthread"]);
    assert_eq!(scene.run(&[&program, "nearby"]).ended, Ended::Exit(0));
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program, "nearby"]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(0), "{err}");
        assert_eq!(outcome.out(), "works\n", "{err}");
        assert!(
            !err.is_empty() && err.lines().all(|line| line.contains("agent")),
            "{err}"
        );
    }
}

#[test]
fn a_file_that_is_read_in_pieces_is_what_it_is() {
    like_native("pieces", include_str!("edges/pieces.c"), &[&[]]);
}

#[test]
fn a_file_that_others_change_is_the_same_in_all_replicas() {
    let source = "#include <fcntl.h>\n#include <stdio.h>\n#include <unistd.h>\n
int main(void) {
  static unsigned char buffer[32768];
  unsigned long sum = 0, bytes = 0;
  for (int round = 0; round < 60; round++) {
    int fd = open(\"shared\", O_RDONLY);
    long got, piece = round % 3 ? 4096 : sizeof buffer;
    while ((got = read(fd, buffer, piece)) > 0) {
      for (long at = 0; at < got; at++) sum = (sum ^ buffer[at]) * 1099511628211;
      bytes += got;
    }
    close(fd);
    printf(\"%lx\\n\", sum);
    fflush(stdout);
  }
  printf(\"%lu\\n\", bytes);
}";
    const BYTES: usize = 256 * 1024;
    let scene = Scene::new();
    let program = scene.compile("reader", source, &[]);
    let shared = scene.write("shared", vec![0; BYTES]);
    let shared = File::options().write(true).open(shared).expect("a file");
    for replicas in ["2", "3"] {
        let running = scene.start(&["run", "-n", replicas, "--", &program]);
        let mut round = 0_u8;
        while !running.has_ended() {
            round = round.wrapping_add(1);
            shared.write_all_at(&vec![round; BYTES], 0).expect("room");
        }
        let outcome = running.finish(LIMIT).expect("it ends");
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.err(), "", "nobody is at fault");
        let total = (60 * BYTES).to_string();
        assert_eq!(outcome.out().lines().last(), Some(total.as_str()));
    }
}

#[test]
fn execveat_takes_and_refuses_what_linux_does() {
    like_native("program", include_str!("edges/program.c"), &[&[]]);
}
