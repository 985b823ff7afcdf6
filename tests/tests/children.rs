//! Programs with several processes: the same to the outside as without rcoe, and as safe.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{LIMIT, Scene, binary, until};
use rustix::process::Signal;

/// Runs a shell script natively and as one, two and three replicas; nothing may differ.
#[track_caller]
fn script(shell: &str, text: &str) {
    Scene::new().like_native("exec \"$@\"", &[shell, "-c", text]);
}

#[test]
fn pipelines_subshells_and_statuses() {
    script("sh", "echo a; ls / | wc -l; (exit 3); echo $?");
    script(
        "bash",
        "for i in 1 2 3 4 5; do (exit $i); echo $?; done; x=$(echo hi | tr a-z A-Z); echo $x; \
         (kill -TERM $BASHPID); echo $?; exit 7",
    );
    script(
        "bash",
        "seq 2000 | sort -r | (head -3; cat >/dev/null); echo ${PIPESTATUS[@]}",
    );
}

#[test]
fn signals_between_processes() {
    script("bash", "trap 'echo got' USR1; kill -USR1 $$; echo done");
    script("bash", "sleep 100 & p=$!; kill $p; wait $p; echo $?");
    script(
        "bash",
        "sleep 100 & p=$!; kill -9 $p; wait $p 2>/dev/null; echo $?",
    );
    script(
        "bash",
        "trap 'echo parent; exit 4' USR1; (kill -USR1 $$) & \
         while :; do sleep 0.01; done",
    );
    script(
        "bash",
        "trap 'echo child ended' CHLD; /bin/true; echo after",
    );
}

#[test]
fn processes_have_descriptors() {
    let source = include_str!("children/pidfd.c");
    Scene::new().program_like_native("pidfd", source, &["-pthread"]);
}

#[test]
fn children_are_not_awaited_or_counted() {
    let source = include_str!("children/unawaited.c");
    Scene::new().program_like_native("unawaited", source, &[]);
}

#[test]
fn orphans_get_the_signal_that_they_want() {
    let source = include_str!("children/orphans.c");
    Scene::new().program_like_native("orphans", source, &["-w"]);
}

#[test]
fn orphans_go_to_the_nearest_ancestor_that_takes_them_in() {
    let source = include_str!("children/reapers.c");
    Scene::new().program_like_native("reapers", source, &["-w"]);
}

#[test]
fn ends_are_told_by_the_signal_that_was_asked_for() {
    let source = include_str!("children/farewells.c");
    Scene::new().program_like_native("farewells", source, &["-w"]);
}

#[test]
fn processes_find_out_about_each_other() {
    let source = include_str!("children/others.c");
    Scene::new().program_like_native("others", source, &[]);
}

#[test]
fn who_may_not_schedule_another_process_is_told_so() {
    let source = include_str!("children/unchanged.c");
    Scene::new().program_like_native("unchanged", source, &["-w"]);
}

#[test]
fn requests_come_to_nothing_again_and_again() {
    let source = include_str!("children/vain.c");
    Scene::new().program_like_native("vain", source, &["-w"]);
}

#[test]
fn programs_are_found_or_refused_as_by_the_kernel() {
    let scene = Scene::new();
    let write = |name: &str, text: &str, mode: &str| {
        let path = scene.write(name, text).display().to_string();
        assert_eq!(scene.run(&["chmod", mode, &path]).ended, Ended::Exit(0));
    };
    write("inner", "#!/bin/sh -e\necho \"$0: $@\"\n", "755");
    write("outer", "#! ./inner  two words \n", "755");
    write("bare", "echo bare $1\n", "755");
    write("closed", "#!/bin/sh\n", "644");
    write("lost", "#!/nonexistent/sh\n", "755");
    let text = "./inner a b; ./outer c; ./bare d; for p in ./closed ./lost ./none /; do \
                $p 2>/dev/null; echo $?; done; exec ./inner last";
    scene.like_native("exec \"$@\"", &["bash", "-c", text]);
}

#[test]
fn what_a_process_is_survives_its_replacement() {
    let source = "#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n\
#include <stdlib.h>\n#include <unistd.h>\n
int main(int argc, char **argv) {
  if (argc > 1) {
    struct sigaction ignored, handled;
    sigset_t mask;
    sigaction(SIGUSR1, 0, &ignored);
    sigaction(SIGUSR2, 0, &handled);
    sigprocmask(0, 0, &mask);
    printf(\"%d %d %d\\n\", ignored.sa_handler == SIG_IGN, handled.sa_handler == SIG_DFL,
           sigismember(&mask, SIGTERM));
    printf(\"%d %d\\n\", fcntl(atoi(argv[1]), F_GETFD), fcntl(atoi(argv[2]), F_GETFD));
    printf(\"%d %s\\n\", getpid() == atoi(argv[3]), getenv(\"X\"));
    return 9;
  }
  char kept[9], closed[9], pid[20];
  sigset_t mask;
  signal(SIGUSR1, SIG_IGN);
  signal(SIGUSR2, exit);
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigprocmask(SIG_BLOCK, &mask, 0);
  sprintf(kept, \"%d\", open(\"/dev/null\", O_RDONLY));
  sprintf(closed, \"%d\", open(\"/dev/null\", O_RDONLY | O_CLOEXEC));
  sprintf(pid, \"%d\", getpid());
  execle(argv[0], argv[0], kept, closed, pid, (char *)0, (char *[]){ \"X=y\", 0 });
  return 1;
}";
    let scene = Scene::new();
    let program = scene.compile("again", source, &[]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(native.ended, Ended::Exit(9));
    assert_eq!(native.out(), "1 1 1\n0 -1\n1 y\n");
}

#[test]
fn spawning_tells_its_error_and_waiting_its_choice() {
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <spawn.h>\n\
#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n
extern char **environ;
int main(void) {
  pid_t pid;
  char *none[] = { \"/nonexistent\", 0 }, *sh[] = { \"sh\", \"-c\", \"exit 5\", 0 };
  printf(\"%d\\n\", posix_spawn(&pid, none[0], 0, 0, none, environ));
  int status = -1;
  printf(\"%d\\n\", posix_spawnp(&pid, \"sh\", 0, 0, sh, environ));
  printf(\"%d\", waitpid(pid, &status, 0) == pid);
  printf(\" %d\\n\", WEXITSTATUS(status));
  printf(\"%d %d\\n\", system(\"exit 6\") >> 8, system(\"kill -9 $$\"));
  printf(\"%d %d\\n\", waitpid(-1, 0, 0), errno == ECHILD);
  pid_t first = fork();
  if (!first) _exit(1);
  siginfo_t info = { 0 };
  waitid(P_PID, first, &info, WEXITED | WNOWAIT);
  printf(\"%d %d %d\\n\", info.si_pid == first, info.si_code, info.si_status);
  int gate[2];
  pipe(gate);
  pid_t second = fork();
  if (!second) { char c; close(gate[1]); read(gate[0], &c, 1); _exit(2); }
  printf(\"%d\\n\", waitpid(second, &status, WNOHANG));
  printf(\"%d\", waitpid(-1, &status, 0) == first);
  printf(\" %d\\n\", WEXITSTATUS(status));
  close(gate[1]);
  printf(\"%d\", wait(&status) == second);
  printf(\" %d\\n\", WEXITSTATUS(status));
  pid_t third = vfork();
  if (!third) _exit(3);
  waitpid(third, &status, 0);
  printf(\"%d\\n\", WEXITSTATUS(status));
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("spawner", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

#[test]
fn groups_and_sessions_are_its_own() {
    let source = "#include <errno.h>\n#include <signal.h>\n#include <stdio.h>\n\
#include <sys/wait.h>\n#include <unistd.h>\n
int main(void) {
  int ready[2], status;
  char c;
  pipe(ready);
  pid_t child = fork();
  if (!child) {
    setpgid(0, 0);
    write(ready[1], \"x\", 1);
    for (;;) pause();
  }
  read(ready[0], &c, 1);
  printf(\"%d %d\\n\", getpgid(child) == child, getpgrp() != child);
  printf(\"%d\", kill(-child, SIGTERM));
  waitpid(-child, &status, 0);
  printf(\" %d\\n\", WTERMSIG(status));
  printf(\"%d %d\\n\", kill(child, 0), errno == ESRCH);
  child = fork();
  if (!child) {
    int own = setsid() == getpid() && getsid(0) == getpid() && getpgrp() == getpid();
    _exit(own && setsid() == -1 && errno == EPERM ? 7 : 8);
  }
  waitpid(child, &status, 0);
  printf(\"%d\\n\", WEXITSTATUS(status));
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("groups", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

#[test]
fn tools_that_run_tools() {
    script(
        "bash",
        "cd $(mktemp -d) && printf '#include <stdio.h>\\nint main(){puts(\"hello\");return 5;}' \
         > h.c && cc h.c -o h && ./h; echo $?; printf 'all: a b\\na b:\\n\\t@echo make $@\\n' \
         > Makefile; make; rm -rf $PWD",
    );
    script(
        "bash",
        "tar cf - -C /etc passwd group | gzip | gzip -d | tar tf -",
    );
    script(
        "bash",
        "find /etc -maxdepth 1 -name 'p*' | sort | xargs -n2 echo",
    );
}

/// Computes after saying that it does, until there is a file `go` at the end of a round.
const WORKER: &str = "#include <stdio.h>\n#include <unistd.h>\n
int main(void) {
  write(1, \"ready\\n\", 6);
  unsigned long x;
  do {
    x = 88172645463325252UL;
    for (int i = 0; i < 20000000; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
  } while (access(\"go\", F_OK));
  printf(\"%016lx\\n\", x);
  return 5;
}";

/// Runs a worker as the child of a shell, kills one replica, and tells what came of it.
fn lose(replicas: &str, of_child: bool, index: usize) -> (rcoe_tests::launch::Outcome, String) {
    let scene = Scene::new();
    let program = scene.compile("worker", WORKER, &[]);
    let text = format!("{program}; echo $?");
    let go = scene.write("go", "");
    let native = scene.run(&["sh", "-c", &text]).out();
    std::fs::remove_file(&go).unwrap();
    let group = scene.start_group(&["-n", replicas, "--timeout", "30s"], &["sh", "-c", &text]);
    let ready = || {
        let out = group.running.stdout_so_far().unwrap();
        out.starts_with("ready\n").then_some(())
    };
    until("the worker's first line", ready);
    let victim = if of_child {
        let root = proc::find(group.replicas[0]).unwrap();
        until("all replicas of the worker", || {
            let all = proc::session(root.session).into_iter();
            let ours = all.filter(|process| process.parent == root.parent);
            // The shell's twins keep the shell's name.
            let is_worker = |pid: &u32| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                name.is_ok_and(|name| name == "worker\n")
            };
            let mut workers: Vec<u32> = ours.map(|process| process.pid).filter(is_worker).collect();
            workers.sort_unstable();
            (workers.len() == group.replicas.len()).then(|| workers[index])
        })
    } else {
        group.replicas[index]
    };
    signal(victim, Signal::KILL).unwrap();
    scene.write("go", "");
    (group.finish().0, native)
}

#[test]
fn three_go_on_without_a_replica_of_any_process() {
    for (of_child, index) in [(true, 0), (true, 2), (false, 0), (false, 1)] {
        let (outcome, native) = lose("3", of_child, index);
        assert_eq!(outcome.out(), native, "{}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert!(
            outcome.err().contains("going on with 2"),
            "{}",
            outcome.err()
        );
    }
}

#[test]
fn two_stop_at_the_loss_of_a_replica_of_any_process() {
    for (of_child, index) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let (outcome, _) = lose("2", of_child, index);
        assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    }
}

/// Forks when told to; the child computes until it is told to stop. Much memory makes a birth slow.
const FORKER: &str = "#include <sys/wait.h>\n#include <unistd.h>\n
enum { BYTES = 96 << 20 };
volatile unsigned long fork_now, end_now;
char memory[BYTES];
int main(void) {
  int status;
  for (int i = 0; i < BYTES; i += 4096) memory[i] = 1;
  write(1, \"ready\\n\", 6);
  while (!fork_now) {}
  if (!fork()) {
    while (!end_now) {}
    write(1, \"child\\n\", 6);
    _exit(3);
  }
  wait(&status);
  return WEXITSTATUS(status);
}";

/// Kills the first process that appears for a child, at whatever it is doing by then.
fn lose_at_birth(scene: &Scene, program: &str) -> rcoe_tests::launch::Outcome {
    use std::os::unix::fs::FileExt as _;
    let output = std::process::Command::new("nm")
        .arg(program)
        .output()
        .unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(name)).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let set = |pid: u32, name: &str| {
        let memory = std::fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/mem"));
        // Whoever is gone need not be told.
        let _ = memory.and_then(|memory| memory.write_all_at(&[1], address(name)));
    };
    let group = scene.start_group(&["-n", "3", "--timeout", "30s"], &[program]);
    until("the first line", || {
        let out = group.running.stdout_so_far().unwrap();
        out.starts_with("ready\n").then_some(())
    });
    let rcoe = group.running.pid();
    let others = || {
        let mut pids = proc::made_by(rcoe);
        pids.retain(|pid| !group.replicas.contains(pid));
        pids
    };
    for &pid in &group.replicas {
        set(pid, "fork_now");
    }
    // As early as can be: no pause between two looks.
    let deadline = std::time::Instant::now() + LIMIT;
    let first = loop {
        assert!(std::time::Instant::now() < deadline, "no child comes");
        if let Some(&first) = others().first() {
            break first;
        }
    };
    signal(first, Signal::KILL).unwrap();
    until("the child's line or the end", || {
        others().iter().for_each(|&pid| set(pid, "end_now"));
        let told = group.running.stdout_so_far().unwrap().ends_with("child\n");
        let over = proc::find(rcoe).is_none_or(|process| process.state == 'Z');
        (told || over).then_some(())
    });
    group.finish().0
}

#[test]
fn three_go_on_without_the_first_replica_of_a_child_however_early_it_is_lost() {
    let scene = Scene::new();
    let program = scene.compile("forker", FORKER, &["-static", "-no-pie"]);
    for _ in 0..8 {
        let outcome = lose_at_birth(&scene, &program);
        assert_eq!(outcome.out(), "ready\nchild\n", "{}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(3), "{}", outcome.err());
    }
}

#[test]
fn a_child_that_becomes_another_user_keeps_its_memory() {
    let source = "#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n\
#include <sys/wait.h>\n#include <unistd.h>\n
int main(void) {
  size_t size = 8 << 20;
  long sum = 0;
  int status;
  char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(at, 7, size);
  if (fork() == 0) {
    int changed = setregid(65534, 65534) | setreuid(65534, 65534);
    for (size_t i = 0; i < size; i += 4096) { sum += at[i]; at[i] = 1; }
    printf(\"%d %d %ld\\n\", changed, getuid() == 65534, sum);
    return 3;
  }
  wait(&status);
  printf(\"%x\\n\", status);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("dropper", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

/// The host lets nobody look at another process who is not its user by all of the other's names,
/// unless with a capability that is not in effect then. Root's own, so as another user it shows
/// nothing.
#[test]
fn children_of_a_program_that_acts_for_another_user_keep_its_memory() {
    let source = "#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n\
#include <sys/wait.h>\n#include <unistd.h>\n
int main(void) {
  size_t size = 8 << 20;
  int status, changed = setegid(65534) | seteuid(65534);
  char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(at, 7, size);
  if (fork() == 0) {
    long sum = 0;
    for (size_t i = 0; i < size; i += 4096) { sum += at[i]; at[i] = 1; }
    printf(\"%d %d %ld\\n\", changed, geteuid() == 65534, sum);
    fflush(stdout);
    if (fork() == 0) {
      for (size_t i = 0; i < size; i += 4096) sum += at[i];
      printf(\"%d %ld\\n\", seteuid(0) || geteuid(), sum);
      return 4;
    }
    wait(&status);
    printf(\"%x\\n\", status);
    return 3;
  }
  wait(&status);
  printf(\"%x\\n\", status);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("acting", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

#[test]
fn the_host_shows_the_environment_of_a_program_that_was_executed() {
    let command = [
        "env",
        "-i",
        "FIRST=1",
        "SECOND=two words",
        "cat",
        "/proc/self/environ",
    ];
    let native = Scene::new().like_native("exec \"$@\"", &command);
    assert_eq!(native.out(), "FIRST=1\0SECOND=two words\0");
}

/// Page faults of one fork, exec and end, beside those of two native ones: of the agent and of the
/// supervisor.
const MORE_FAULTS: u64 = 230;

#[test]
fn a_child_that_executes_costs_few_page_faults() {
    let (replicated, native) = faults_of_a_child(&[], None);
    let most = 2 * native + MORE_FAULTS;
    assert!(replicated <= most, "{replicated}, native {native}");
}

/// The same of a child that executes code which no process before it has executed but its siblings.
const MORE_FAULTS_IN_OTHER_CODE: u64 = 240;

#[test]
fn code_that_a_sibling_has_executed_is_not_looked_through_again() {
    let (replicated, native) = faults_of_a_child(&["-static"], Some("/usr/bin/true"));
    let most = 2 * native + MORE_FAULTS_IN_OTHER_CODE;
    assert!(replicated <= most, "{replicated}, native {native}");
}

/// Page faults of one fork, exec and end with two replicas, and natively: of a program compiled
/// with these options that executes itself, or another program.
fn faults_of_a_child(options: &[&str], executes: Option<&str>) -> (u64, u64) {
    const ROUNDS: u64 = 30;
    let scene = Scene::new();
    let program = scene.compile("faults", include_str!("children/faults.c"), options);
    let faults = |prefix: &[&str], rounds: u64| {
        let rounds = rounds.to_string();
        let mut command = [prefix, &[&program, "loop", &rounds]].concat();
        command.extend(executes);
        let outcome = scene.run(&[&[program.as_str(), "meter"], &command[..]].concat());
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        outcome.out().trim().parse::<u64>().unwrap()
    };
    let each = |prefix: &[&str]| (faults(prefix, ROUNDS + 1) - faults(prefix, 1)) / ROUNDS;
    let rcoe = binary().unwrap();
    let replicated = each(&[rcoe.to_str().unwrap(), "run", "-n", "2", "--"]);
    (replicated, each(&[]))
}
