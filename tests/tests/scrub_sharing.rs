//! Flips that lie unused in processes that share memory, or in that memory, are found and repaired
//! while the program goes on.

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::memory::{AGENT_CODE, area, peek, poke, symbol};
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

const EXCHANGE: &str = include_str!("sharing/exchange.c");
/// Processes of `exchange.c`.
const PROCESSES: usize = 3;
/// Where it has its shared memory: first a word that nobody uses, in a page that changes.
const SHARED: u64 = 0x1_0000_0000;
/// A number in one of its pages that is to be equal to the one behind it.
const PAIR: u64 = SHARED + 112 + 77 * 4096 + 8;
/// A page of that memory in which nobody writes.
const REST: u64 = SHARED + 600 * 4096 + 1024;

fn start(scene: &Scene, options: &[&str]) -> (Group, String) {
    let build = ["-static", "-no-pie", "-pthread", "-w"];
    let program = scene.compile("exchange", EXCHANGE, &build);
    let group = scene.start_group(options, &[&program]);
    until_more_lines(&group);
    (group, program)
}

fn lines(group: &Group) -> usize {
    let text = group.running.stdout_so_far().unwrap();
    text.lines().count()
}

fn until_more_lines(group: &Group) {
    let before = lines(group);
    until("more lines", || (lines(group) > before + 20).then_some(()));
}

fn repairs(group: &Group) -> Vec<Value> {
    let mut events = events_of(&group.events);
    events.retain(|event| event["type"] == "scrub");
    events
}

fn returns(group: &Group) -> Vec<Value> {
    let mut events = events_of(&group.events);
    events.retain(|event| event["stage"] == "done");
    events
}

/// Loses a replica of the first process, waits until all processes have it again, and tells their
/// process ids.
fn lose(group: &Group, replica: usize) -> Vec<u32> {
    let pid = group.replicas[replica];
    let seen = returns(group).len();
    signal(pid, Signal::KILL).unwrap();
    let all = until("the replica to be back in all", || {
        let all = returns(group);
        (all.len() == seen + PROCESSES).then_some(all)
    });
    let pid = |event: &Value| u32::try_from(event["pid"].as_u64().unwrap()).unwrap();
    all[seen..].iter().map(pid).collect()
}

/// Flips a bit in a replica, and waits until it is as before.
#[track_caller]
fn flip(group: &Group, (replica, pid): (usize, u32), address: u64) {
    let before = peek(pid, address);
    let seen = repairs(group).len();
    poke(pid, address, &(before ^ 0x1000).to_le_bytes()).unwrap();
    let event = until("the repair", || repairs(group).get(seen).cloned());
    assert_eq!(event["replica"], replica, "{event}");
    assert_eq!(event["repaired"], true, "{event}");
    let place = event["address"].as_u64().unwrap();
    let shared = (SHARED..SHARED + (1 << 30)).contains(&address);
    if shared {
        assert_eq!(place % 4096, (address + 1) % 4096, "{event}");
    } else {
        assert_eq!(place, address + 1, "{event}");
    }
    assert_eq!(peek(pid, address), before);
}

/// Ends the program, which must have told every number once, with three replicas.
#[track_caller]
fn finish(group: Group, scene: &Scene) -> (String, Value) {
    let (outcome, mut events) = group.finish_counting(scene);
    let counts = events.pop().unwrap()["counts"].take();
    assert_eq!(counts["replicas"], 3, "{events:?}");
    (outcome.err(), counts)
}

#[test]
fn private_and_shared_memory_is_repaired_in_every_process() {
    let scene = Scene::new();
    let (group, program) = start(&scene, &["-n", "3", "--scrub", "256"]);
    let (_, agent) = area(group.replicas[0], &["r-xp", AGENT_CODE]);
    let private = [
        symbol(&program, "unused"),
        symbol(&program, "constant") + 4096,
        agent - 8,
    ];
    let shared = [SHARED, REST];
    for replica in 0..2 {
        let victim = (replica, group.replicas[replica]);
        for address in private.into_iter().chain(shared) {
            flip(&group, victim, address);
        }
    }
    let pids = lose(&group, 2);
    for pid in pids {
        for address in private.into_iter().chain(shared) {
            flip(&group, (2, pid), address);
        }
    }
    until_more_lines(&group);
    let (_, counts) = finish(group, &scene);
    assert_eq!(counts["repairs"], 25, "nothing else differs");
    assert_eq!(counts["divergences"], 1, "the replica that was killed");
}

/// Stops the supervisor, with no order under way; returns its process id.
fn hold(group: &Group) -> u32 {
    let supervisor = group.running.pid();
    signal(supervisor, Signal::STOP).unwrap();
    until_more_lines(group);
    until_more_lines(group);
    supervisor
}

/// A flip that comes to nothing in one of three, and the loss of another one before that memory is
/// looked at again: what all had there before tells which of the two is right.
#[track_caller]
fn known(place: impl Fn(&str) -> u64) {
    for flipped in [0, 1] {
        let scene = Scene::new();
        let (group, program) = start(&scene, &["-n", "3", "--scrub", "256"]);
        let place = place(&program);
        let victim = |replica: usize| (replica, group.replicas[replica]);
        // From then on the replicas have pages of their own there, which are looked at.
        flip(&group, victim(2), place);
        // All memory is looked at in between.
        for other in [SHARED, symbol(&program, "unused")] {
            flip(&group, victim(2), other);
            flip(&group, victim(2), other);
        }
        let supervisor = hold(&group);
        let pid = group.replicas[flipped];
        let before = peek(pid, place);
        poke(pid, place, &[0x55]).unwrap();
        signal(group.replicas[2], Signal::KILL).unwrap();
        signal(supervisor, Signal::CONT).unwrap();
        until("the replica to be back in all", || {
            (returns(&group).len() >= PROCESSES).then_some(())
        });
        assert_eq!(peek(pid, place), before);
        let repair = repairs(&group).pop().unwrap();
        assert_eq!(repair["replica"], flipped, "{repair}");
        assert_eq!(repair["repaired"], true, "{repair}");
        let address = repair["address"].as_u64().unwrap();
        assert_eq!(address % 4096, place % 4096, "{repair}");
        let (told, _) = finish(group, &scene);
        assert!(!told.contains("cannot be brought back"), "{told}");
    }
}

#[test]
fn of_two_the_one_whose_private_memory_is_as_all_were_is_right() {
    known(|program| symbol(program, "constant") + 4096);
}

#[test]
fn of_two_the_one_whose_shared_memory_is_as_all_were_is_right() {
    known(|_| REST);
}

/// Without scrubbing, which needs a majority, a flip in shared memory is noticed when it is used.
#[test]
fn two_replicas_stop_when_they_use_shared_memory_that_differs() {
    let scene = Scene::new();
    let (group, _) = start(&scene, &["-n", "2"]);
    poke(group.replicas[1], PAIR, &u64::MAX.to_le_bytes()).unwrap();
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{events:?}");
    let out = outcome.out();
    let numbers = (0..out.lines().count()).map(|it| it.to_string());
    assert!(out.lines().eq(numbers), "{out}");
}

/// Processes that share memory come and go, some of them with threads and signals.
const POOL: &str = "import multiprocessing, signal, threading, time
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
def work(number):
    with total.get_lock():
        total.value += number
    thread = threading.Thread(target=time.sleep, args=(0.001,))
    thread.start()
    thread.join()
    return number
def begin(its):
    global total
    total = its
if __name__ == '__main__':
    total = multiprocessing.Value('l', 0)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    with multiprocessing.Pool(2, begin, (total,), maxtasksperchild=20) as pool:
        numbers = pool.map(work, range(120), 1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(sum(numbers) == total.value)
";

#[test]
fn nothing_differs_in_healthy_processes_that_share() {
    let scene = Scene::new();
    let pool = scene.write("pool.py", POOL).display().to_string();
    let options = ["-n", "3", "--scrub", "1024"];
    let group = scene.start_group(&options, &["/usr/bin/python3", &pool]);
    let (outcome, events) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), "True\n");
    let repairs = events.iter().filter(|event| event["type"] == "scrub");
    assert_eq!(repairs.collect::<Vec<_>>(), Vec::<&Value>::new());

    let scene = Scene::new();
    let (group, _) = start(&scene, &options);
    until("some numbers", || (lines(&group) > 2000).then_some(()));
    let (_, counts) = finish(group, &scene);
    assert_eq!(counts["repairs"], 0);
}
