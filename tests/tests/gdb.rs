//! `rcoe run --gdb`: the real gdb on a replicated program.

use rcoe_tests::launch::{self, Ended, Outcome, Running, signal};
use rcoe_tests::memory::{poke, symbol};
use rcoe_tests::rcoe::{Group, LIMIT, Scene, until};
use rustix::process::Signal;

const SUMS: &str = r#"#include <stdio.h>
volatile int total = 5;
volatile unsigned long spare = 7;
int add(int a, int b) {
  int sum = a + b;
  total += sum;
  return sum;
}
int main(void) {
  int x = add(2, 3);
  printf("x %d\n", x);
  x = add(x, 1);
  printf("x %d, total %d, spare %lu\n", x, total, spare);
  return 7;
}
"#;

/// Makes a call of the system often, and then once more.
const CALLS: &str = r#"#include <stdio.h>
__attribute__((noinline)) long ask(void) {
  long result;
  __asm__ volatile("mov $110, %%eax; syscall" : "=a"(result) : : "rcx", "r11", "memory");
  return result;
}
void last(void) {
  long parent = ask();
  printf("%s\n", parent > 0 ? "a parent" : "none");
}
int main(void) {
  for (int i = 0; i < 200; i++) ask();
  last();
  return 0;
}
"#;

const LOOP: &str = r#"#include <stdio.h>
volatile unsigned long count;
volatile int go = 1;
int main(void) {
  printf("computing\n");
  fflush(stdout);
  while (go) count++;
  printf("went out\n");
  return 3;
}
"#;

const FORKS: &str = r#"#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int work(int n) { return n + 1; }
int main(void) {
  int status = 0;
  pid_t child = fork();
  if (child == 0) _exit(work(4));
  if (waitpid(child, &status, 0) != child) return 1;
  printf("child %d, own %d\n", WEXITSTATUS(status), work(1));
  return 0;
}
"#;

const FAULT: &str = r#"int *volatile nowhere = (int *)NOWHERE;
int main(void) {
  *nowhere = 1;
  return 0;
}
"#;

/// As a user of gdb compiles.
const PLAIN: &[&str] = &["-g", "-O0"];
/// The same at addresses that are known beforehand.
const FIXED: &[&str] = &["-g", "-O0", "-no-pie"];

/// Starts a program that waits for gdb; also where.
fn debugged(scene: &Scene, replicas: &str, program: &str) -> (Group, String) {
    let group = scene.start_group(&["-n", replicas, "--no-ledger", "--gdb", "0"], &[program]);
    let address = until("the address", || {
        let said = group.running.stderr_so_far().expect("its errors");
        let (address, _) = said.split_once("target remote ")?.1.split_once('\n')?;
        Some(address.to_owned())
    });
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    (group, address)
}

/// Starts gdb on what waits there.
fn start_gdb(scene: &Scene, address: &str, program: &str, commands: &[&str]) -> Running {
    let connect = format!("target remote {address}");
    let mut argv = vec![
        "gdb",
        "-nx",
        "-batch",
        "-ex",
        "set confirm off",
        "-ex",
        // By itself it takes an answer that came late for that of its next question.
        "set remotetimeout 60",
        "-ex",
        &connect,
    ];
    argv.extend(commands.iter().flat_map(|command| ["-ex", command]));
    argv.push(program);
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    launch::start(&argv, scene.path(), None).expect("gdb")
}

/// What gdb has said.
fn said(gdb: Running) -> String {
    let outcome = gdb.finish(LIMIT).expect("waiting for gdb");
    format!("{}{}", outcome.out(), outcome.err())
}

/// Has gdb carry out these commands on so many replicas; what gdb has said, and what came of them.
fn session(scene: &Scene, replicas: &str, program: &str, commands: &[&str]) -> (String, Outcome) {
    let (group, address) = debugged(scene, replicas, program);
    let said = said(start_gdb(scene, &address, program, commands));
    (said, group.finish().0)
}

#[track_caller]
fn assert_said(said: &str, all: &[&str]) {
    for text in all {
        assert!(said.contains(text), "{text:?} is not in:\n{said}");
    }
}

#[test]
fn it_breaks_prints_steps_and_ends_as_without_replicas() {
    let scene = Scene::new();
    let program = scene.compile("sums", SUMS, PLAIN);
    let native = scene.run(&[&program]);
    let commands = [
        "break add",
        "continue",
        "print a",
        "next",
        "print sum",
        "stepi",
        "info registers xmm0",
        "monitor rcoe differ",
        "finish",
        "delete",
        "continue",
    ];
    for replicas in ["1", "2", "3"] {
        let (said, outcome) = session(&scene, replicas, &program, &commands);
        let expected = [
            "Breakpoint 1, add (a=2, b=3)",
            "$1 = 2",
            "$2 = 5",
            "the replicas are alike",
            "Value returned is $3 = 5",
            "exited with code 07",
        ];
        assert_said(&said, &expected);
        assert!(!said.contains("differ"), "{said}");
        assert_eq!(outcome.ended, Ended::Exit(7), "{said}{}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{said}");
    }
}

#[test]
fn what_is_set_is_set_in_all_and_code_is_not_written() {
    let scene = Scene::new();
    let program = scene.compile("sums", SUMS, PLAIN);
    let commands = [
        "break add",
        "continue",
        "set var a = 40",
        "set var $rbx = 77",
        "print $rbx",
        "monitor rcoe differ",
        "set var *(char *)add = 0",
        "delete",
        "continue",
    ];
    let (said, outcome) = session(&scene, "3", &program, &commands);
    assert_said(
        &said,
        &["$1 = 77", "the replicas are alike", "Cannot access memory"],
    );
    assert_eq!(outcome.ended, Ended::Exit(7), "{said}{}", outcome.err());
    assert_eq!(outcome.out(), "x 43\nx 44, total 92, spare 7\n", "{said}");
}

#[test]
fn a_flip_in_one_replica_is_told() {
    let scene = Scene::new();
    let program = scene.compile("sums", SUMS, FIXED);
    let spare = symbol(&program, "spare");
    let (group, address) = debugged(&scene, "3", &program);
    let commands = [
        "break add",
        "continue",
        "monitor rcoe differ",
        "shell touch stands; while [ ! -e flipped ]; do sleep 0.01; done",
        "monitor rcoe differ",
        "continue",
        "kill",
    ];
    let gdb = start_gdb(&scene, &address, &program, &commands);
    let path = scene.path().join("stands");
    until("the first stop", || path.exists().then_some(()));
    poke(group.replicas[1], spare, &[6]).expect("its memory");
    scene.write("flipped", "");
    let said = said(gdb);
    let place = format!("replicas 0 and 1 differ at {spare:#x}");
    // By the command, and by the next stop.
    assert_said(
        &said,
        &["the replicas are alike", &format!("rcoe: {place}")],
    );
    assert_eq!(said.matches(&place).count(), 2, "{said}");
    assert!(!said.contains("replicas 0 and 2 differ"), "{said}");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Signal(9), "{}", outcome.err());
}

#[test]
fn an_interruption_stops_all_at_one_point_of_a_computation() {
    let scene = Scene::new();
    let program = scene.compile("loop", LOOP, PLAIN);
    for replicas in ["1", "2", "3"] {
        let (group, address) = debugged(&scene, replicas, &program);
        let commands = [
            "continue",
            "monitor rcoe differ",
            "set var go = 0",
            "continue",
        ];
        let gdb = start_gdb(&scene, &address, &program, &commands);
        until("the program's line", || {
            let said = group.running.stdout_so_far().expect("its output");
            said.contains("computing").then_some(())
        });
        signal(gdb.pid(), Signal::INT).expect("gdb");
        let said = said(gdb);
        let expected = ["SIGINT", "the replicas are alike", "exited with code 03"];
        assert_said(&said, &expected);
        let (outcome, _) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(3), "{said}{}", outcome.err());
        assert_eq!(outcome.out(), "computing\nwent out\n", "{said}");
    }
}

#[test]
fn a_program_that_gdb_leaves_goes_on() {
    let scene = Scene::new();
    let program = scene.compile("sums", SUMS, PLAIN);
    let native = scene.run(&[&program]);
    for last in ["detach", "quit"] {
        let commands = ["break add", "continue", last];
        let (said, outcome) = session(&scene, "2", &program, &commands);
        assert_said(&said, &["Breakpoint 1, add", "detached"]);
        assert_eq!(outcome.ended, Ended::Exit(7), "{said}{}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{said}");
    }
}

#[test]
fn a_call_is_one_instruction_and_code_is_that_of_the_file() {
    let scene = Scene::new();
    let program = scene.compile("calls", CALLS, PLAIN);
    let commands = [
        "break last",
        "continue",
        "disassemble ask",
        "stepi 14",
        "where 1",
        "monitor rcoe differ",
        "continue",
    ];
    let (said, outcome) = session(&scene, "2", &program, &commands);
    let expected = [
        "mov    $0x6e,%eax",
        "syscall",
        "#0  ",
        "the replicas are alike",
        "exited normally",
    ];
    assert_said(&said, &expected);
    assert!(!said.contains("?? ()"), "{said}");
    assert_eq!(outcome.ended, Ended::Exit(0), "{said}{}", outcome.err());
    assert_eq!(outcome.out(), "a parent\n", "{said}");
}

#[test]
fn children_run_without_breakpoints() {
    let scene = Scene::new();
    let program = scene.compile("forks", FORKS, PLAIN);
    let commands = ["break work", "continue", "print n", "continue"];
    let (said, outcome) = session(&scene, "2", &program, &commands);
    assert_said(&said, &["$1 = 1", "exited normally"]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{said}{}", outcome.err());
    assert_eq!(outcome.out(), "child 5, own 2\n", "{said}");
}

#[test]
fn a_deadly_fault_is_seen_where_it_happens() {
    // Of the second, which is no address at all, the processor tells nothing but the instruction.
    for nowhere in ["0x0", "0x7593714e2e5b7bfc"] {
        let scene = Scene::new();
        let place = format!("-DNOWHERE={nowhere}");
        let program = scene.compile("fault", FAULT, &[PLAIN, &[&place]].concat());
        let commands = ["continue", "print nowhere", "continue"];
        let (said, outcome) = session(&scene, "2", &program, &commands);
        let value = format!("$1 = (int * volatile) {nowhere}");
        let expected = [
            "Program received signal SIGSEGV",
            "*nowhere = 1;",
            &value,
            "Program terminated with signal SIGSEGV",
        ];
        assert_said(&said, &expected);
        assert_eq!(outcome.ended, Ended::Signal(11), "{said}{}", outcome.err());
    }
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let scene = Scene::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let outcome = scene.rcoe(&["run", "--gdb", &port, "--", "true"]);
    assert_eq!(outcome.ended, Ended::Exit(125));
    let expected = format!("--gdb {port}: ");
    assert!(outcome.err().contains(&expected), "{}", outcome.err());
    let outcome = scene.rcoe(&["run", "--gdb", "0", "--slice", "10ms", "--", "true"]);
    assert_eq!(outcome.ended, Ended::Exit(125));
    let expected = "--gdb and --slice do not go together";
    assert!(outcome.err().contains(expected), "{}", outcome.err());
}
