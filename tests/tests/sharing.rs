//! Processes that share memory: as without rcoe where that is determined, and alike in all replicas
//! where it is not.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;

use rcoe_tests::launch::{Ended, Outcome, signal};
use rcoe_tests::memory::{peek, poke};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, LIMIT, Scene, until};
use rustix::process::Signal;
use serde_json::Value;

/// Compiles a program of `sharing/` and demands that replicas do what a plain run does.
#[track_caller]
fn like_native(name: &str, source: &str) {
    Scene::new().program_like_native(name, source, &["-pthread", "-w"]);
}

#[test]
fn locks_of_all_kinds_exclude_other_processes() {
    like_native("locks", include_str!("sharing/locks.c"));
}

#[test]
fn a_process_in_an_empty_loop_holds_nobody_up() {
    like_native("idle", include_str!("sharing/idle.c"));
}

#[test]
fn what_the_kernel_refuses_is_refused() {
    like_native("refused", include_str!("sharing/refused.c"));
}

#[test]
fn paths_are_resolved_no_further_than_asked_for() {
    like_native("resolve", include_str!("sharing/resolve.c"));
}

#[test]
fn memory_is_found_by_its_name() {
    like_native("named", include_str!("sharing/named.c"));
}

#[test]
fn segments_live_until_they_are_removed() {
    like_native("segments", include_str!("sharing/segments.c"));
}

#[test]
fn segments_are_for_whom_their_modes_say() {
    like_native("permissions", include_str!("sharing/permissions.c"));
}

#[test]
fn what_cannot_be_written_stays_so() {
    like_native("readonly", include_str!("sharing/readonly.c"));
}

#[test]
fn semaphores_and_queues_of_system_v() {
    like_native("ipc", include_str!("sharing/ipc.c"));
}

#[test]
fn a_lost_primary_gives_no_semaphore_back() {
    let source = "#include <stdio.h>\n#include <sys/sem.h>\n#include <unistd.h>\n
int main(void) {
  int id = semget(IPC_PRIVATE, 1, 0600);
  semctl(id, 0, SETVAL, 1);
  semop(id, &(struct sembuf){ 0, -1, SEM_UNDO }, 1);
  printf(\"taken\\n\");
  fflush(stdout);
  while (access(\"go\", F_OK)) usleep(1000);
  printf(\"%d\\n\", semctl(id, 0, GETVAL));
  semctl(id, 0, IPC_RMID);
}";
    let scene = Scene::new();
    let program = scene.compile("holder", source, &[]);
    let group = scene.start_group(&["-n", "3"], &[&program]);
    until("the semaphore", || {
        let text = group.running.stdout_so_far().expect("readable output");
        text.contains("taken").then_some(())
    });
    signal(group.replicas[0], Signal::KILL).expect("a living primary");
    until("the downgrade", || {
        let told = group.running.stderr_so_far().expect("readable output");
        told.contains("going on with 2").then_some(())
    });
    scene.write("go", "");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "taken\n0\n");
}

#[test]
fn python_shares_by_fork_and_by_spawn() {
    let scene = Scene::new();
    let script = scene.write("pool.py", include_str!("sharing/pool.py"));
    let script = script.display().to_string();
    for method in ["fork", "spawn"] {
        let native = scene.like_native("exec \"$@\"", &["/usr/bin/python3", &script, method]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
        assert!(native.out().ends_with("terminated -15\n"));
    }
}

#[test]
fn a_process_that_keeps_the_others_waiting_is_told_of() {
    let scene = Scene::new();
    let program = scene.compile("spin", include_str!("sharing/spin.c"), &[]);
    let running = scene.start(&["run", "-n", "2", "--slice", "off", "--", &program]);
    until("the warning", || {
        let errors = running.stderr_so_far().ok()?;
        errors.contains("without a system call").then_some(())
    });
    // A deadly signal would wait for the one that computes.
    signal(running.pid(), Signal::KILL).expect("rcoe runs");
    let outcome = running.finish(LIMIT).expect("an end");
    assert_eq!(outcome.err().lines().count(), 1, "{}", outcome.err());
    assert_eq!(outcome.out(), "");
}

#[test]
fn others_share_memory_after_one_was_ended_in_its_turn() {
    like_native("midturn", include_str!("sharing/midturn.c"));
}

#[test]
fn a_protection_of_no_bytes_is_none() {
    like_native("nobytes", include_str!("sharing/nobytes.c"));
}

#[test]
fn a_race_between_processes_varies_but_not_between_replicas() {
    let scene = Scene::new();
    let program = scene.compile("race", include_str!("sharing/race.c"), &[]);
    let mut values = BTreeSet::new();
    for replicas in ["1", "2", "3"] {
        for compare in ["io", "args", "every"] {
            for _ in 0..4 {
                let options = ["run", "-n", replicas, "--compare", compare, "--", &program];
                let outcome = scene.rcoe(&options);
                assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
                assert_eq!(outcome.err(), "");
                values.insert(outcome.out());
            }
        }
    }
    assert!(values.len() > 5, "the race does not vary: {values:?}");
}

/// Kills one replica of the first process or of one of its children while they share memory, and
/// tells what came of it.
fn lose(replicas: &str, of_child: bool, index: usize) -> (Outcome, String) {
    let scene = Scene::new();
    let program = scene.compile("loss", include_str!("sharing/loss.c"), &["-pthread", "-w"]);
    let go = scene.write("go", "");
    let native = scene.run(&[&program]).out();
    std::fs::remove_file(&go).unwrap();
    // Nobody comes back, so that each loss is one of those that are counted.
    let options = ["-n", replicas, "--timeout", "30s", "--no-reintegrate"];
    let group = scene.start_group(&options, &[&program]);
    let begun = || {
        let out = group.running.stdout_so_far().unwrap();
        (out == "xx").then_some(())
    };
    until("the processes' first steps", begun);
    let victim = if of_child {
        let root = proc::find(group.replicas[0]).unwrap();
        let of_two = || {
            let all = proc::session(root.session).into_iter();
            let ours = all.filter(|process| process.parent == root.parent);
            let mut others: Vec<u32> = ours.map(|process| process.pid).collect();
            others.retain(|pid| !group.replicas.contains(pid));
            others.sort_unstable();
            (others.len() == 2 * group.replicas.len()).then_some(others)
        };
        until("the replicas of both children, and nobody else", of_two)[index]
    } else {
        group.replicas[index]
    };
    signal(victim, Signal::KILL).unwrap();
    let all_know = || {
        let told = group.running.stderr_so_far().unwrap();
        let removals = told.matches("going on with 2").count();
        (removals == 3 || told.contains("fail-stop")).then_some(())
    };
    until("all processes' loss of a replica, or the end", all_know);
    scene.write("go", "");
    (group.finish().0, native)
}

#[test]
fn three_go_on_without_one_replica_of_all_that_share() {
    for (of_child, index) in [(false, 0), (false, 2), (true, 0), (true, 1)] {
        let (outcome, native) = lose("3", of_child, index);
        assert_eq!(outcome.out(), native, "{}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let err = outcome.err();
        assert_eq!(err.matches("going on with 2").count(), 3, "{err}");
    }
}

#[test]
fn two_stop_at_the_loss_of_one_that_shares() {
    for (of_child, index) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let (outcome, _) = lose("2", of_child, index);
        assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    }
}

/// Where every replica sees the ring of claims, and how many places it has.
const CLAIMS: u64 = 0x6f21_0000_0000;
const PLACES: u64 = 512;

/// Where every replica sees a slice; its first word says whose turn it is there.
const fn slice(index: u64) -> u64 {
    0x6f22_0000_0000 + index * (7 << 30)
}

/// Waits until nobody has a turn, nor wants one; the number of the next.
fn until_all_wait(replicas: &[u32]) -> u64 {
    let quiet = || {
        let next = peek(replicas[0], CLAIMS);
        let mut own = replicas.iter().zip(0..);
        let rests = own.all(|(&pid, at)| peek(pid, slice(at)) & 0xffff_ffff == next);
        let asleep = |pid: u32| proc::find(pid).is_some_and(|it| it.state == 'S');
        let supervisor = proc::find(replicas[0]).expect("a living replica").parent;
        let all = proc::made_by(supervisor);
        let whole = all.len() == 2 * replicas.len() && all.into_iter().all(asleep);
        (rests && whole && peek(replicas[0], CLAIMS) == next).then_some(next)
    };
    until("all to wait for the outside", quiet)
}

/// Two processes that share memory and wait for the outside: `input` wakes the first, nothing but
/// rcoe the second.
struct Waiting {
    scene: Scene,
    group: Group,
    input: File,
    /// Replicas of the second, the primary first.
    second: Vec<u32>,
}

impl Waiting {
    fn start(options: &[&str]) -> Self {
        let scene = Scene::new();
        let program = scene.compile("left", include_str!("sharing/left.c"), &["-w"]);
        let pipe = scene.make_pipe("in");
        let quiet = ["-n", "3", "--no-reintegrate", "--scrub", "off"];
        let group = scene.start_group(&[&quiet, options].concat(), &[&program]);
        let input = File::create(pipe).expect("a reader");
        let mut waiting = Self {
            scene,
            group,
            input,
            second: Vec::new(),
        };
        waiting.until_told("ready\n");
        let supervisor = waiting.group.running.pid();
        let replicas = &waiting.group.replicas;
        until_all_wait(replicas);
        let mut second = proc::made_by(supervisor);
        second.retain(|pid| !replicas.contains(pid));
        second.sort_unstable();
        waiting.second = second;
        waiting
    }

    fn until_told(&self, what: &str) {
        until(what, || {
            let out = self.group.running.stdout_so_far().expect("readable output");
            out.ends_with(what).then_some(())
        });
    }

    /// The second process claims a turn, as its primary leaves it that does not get so far as to
    /// take it.
    fn claim(&self) {
        let turn = until_all_wait(&self.group.replicas);
        let place = CLAIMS + 8 * (1 + turn % PLACES);
        let words = [(place, (turn + 1) << 8 | 1), (CLAIMS, turn + 1)];
        for (address, word) in words {
            poke(self.second[0], address, &word.to_ne_bytes()).expect("the ring");
        }
    }

    /// The first process still answers, and all come to their end.
    #[track_caller]
    fn finish(mut self) -> Vec<Value> {
        self.input.write_all(b".").expect("a reader");
        self.until_told("42\n");
        drop(self.input);
        let (outcome, events) = self.group.finish();
        assert_eq!(outcome.ended, Ended::Exit(7), "{}", outcome.err());
        drop(self.scene);
        events
    }
}

#[test]
fn a_replica_that_fails_where_nobody_of_its_process_waits_for_it_is_removed() {
    // Thirty times as long is what one may take that gets nowhere.
    let waiting = Waiting::start(&["--timeout", "10s"]);
    let follower = waiting.second[1];
    // It looks now and then, and has none to tell of meanwhile.
    let stack = until("a replica that waits in the host", || {
        let told = std::fs::read_to_string(format!("/proc/{follower}/syscall"));
        let told = told.expect("a living replica");
        let stack = told.split_whitespace().rev().nth(1)?;
        u64::from_str_radix(stack.trim_start_matches("0x"), 16).ok()
    });
    // Whatever the agent goes on with when it looks next, it is no address.
    let nonsense = [0xa5; 2048];
    poke(follower, stack, &nonsense).expect("the agent's stack");
    until("the loss of a replica in both processes", || {
        let told = waiting
            .group
            .running
            .stderr_so_far()
            .expect("readable output");
        (told.matches("going on with 2").count() == 2).then_some(())
    });
    let events = waiting.finish();
    let divergence = events.iter().find(|event| event["type"] == "divergence");
    assert_eq!(divergence.expect("a divergence")["kind"], "fault");
}

#[test]
fn a_turn_that_a_lost_primary_has_claimed_is_taken_by_its_successor_at_once() {
    let waiting = Waiting::start(&[]);
    waiting.claim();
    signal(waiting.second[0], Signal::KILL).expect("a living primary");
    waiting.finish();
}

#[test]
fn a_primary_that_does_not_come_to_the_turn_that_it_has_claimed_is_removed() {
    let waiting = Waiting::start(&["--timeout", "500ms"]);
    let child = u64::from(waiting.second[0]);
    waiting.claim();
    let events = waiting.finish();
    let divergence = events.iter().find(|event| event["type"] == "divergence");
    let divergence = divergence.expect("a divergence");
    assert_eq!(divergence["kind"], "timeout", "{divergence}");
    assert_eq!(divergence["process"], child, "{divergence}");
    assert_eq!(divergence["replica"], 0, "{divergence}");
}
