//! A lost replica is replaced by a copy of another one while the program goes on.
//!
//! The programs write numbered lines to a pipe and to a file until they are told to stop, so a line
//! that is lost or doubled shows, whenever a replica is lost or copied.

use std::fs::OpenOptions;
use std::io::Write as _;

use rcoe_tests::launch::{Ended, Outcome, signal};
use rcoe_tests::memory::{poke, symbol};
use rcoe_tests::proc;
use rcoe_tests::rcoe::{Group, Scene, events_of, until};
use rustix::process::Signal;
use serde_json::Value;

/// Writes lines until there is a file `stop`; `wrong` changes what it writes, `unused` does not.
const LINES: &str = include_str!("reintegration/lines.c");

/// The same by four threads in turn, with a lock, a condition and storage of their own.
const THREADS: &str = include_str!("reintegration/threads.c");

/// A process that only waits for its child, which writes.
const FAMILY: &str = include_str!("reintegration/family.c");

/// Waits in a read for ever, and then for a second one.
const READER: &str = include_str!("reintegration/reader.c");

/// Fills 64 MiB and then writes lines, changing a page before each and checking all at the end.
const FILLED: &str = include_str!("reintegration/filled.c");

/// Writes lines from memory that its children do not get, or find empty, and tells at the end
/// whether a child still finds it so.
const WITHHELD: &str = include_str!("reintegration/withheld.c");

/// Counts in a file that it has mapped, brings that out now and then, and reads it by other calls.
const MAPPED: &str = include_str!("reintegration/mapped.c");

/// Writes each line by a child that it awaits.
const AWAITS: &str = include_str!("reintegration/awaits.c");

/// Writes lines, none right whose writer has lost a policy that is not for children.
const RESET: &str = include_str!("reintegration/reset.c");

struct Run {
    scene: Scene,
    group: Group,
    program: String,
    /// Process ids by replica, as far as they are known to live.
    replicas: Vec<u32>,
    /// Re-integrations seen so far.
    seen: usize,
}

impl Run {
    fn start(source: &str, options: &[&str]) -> Self {
        Self::start_in(Scene::new(), source, options)
    }

    fn start_in(scene: Scene, source: &str, options: &[&str]) -> Self {
        let program = scene.compile("program", source, &["-static", "-no-pie", "-pthread"]);
        let group = scene.start_group(options, &[&program]);
        let run = Self {
            replicas: group.replicas.clone(),
            scene,
            group,
            program,
            seen: 0,
        };
        run.lines_after(0);
        run
    }

    /// Waits until more is written than so many bytes; says how much.
    fn lines_after(&self, before: usize) -> usize {
        until("more lines", || {
            let len = self.group.running.stdout_so_far().unwrap().len();
            (len > before).then_some(len)
        })
    }

    fn stages(&self, stage: &str) -> Vec<Value> {
        let mut events = events_of(&self.group.events);
        events.retain(|event| event["type"] == "reintegration" && event["stage"] == stage);
        events
    }

    /// The same of the first process alone, not of its children.
    fn of_the_first(&self, stage: &str) -> Vec<Value> {
        let mut events = self.stages(stage);
        events.retain(|event| event["process"] == self.group.running.pid());
        events
    }

    fn kill(&self, replica: usize) {
        signal(self.replicas[replica], Signal::KILL).unwrap();
    }

    /// Waits for the next re-integration of the first process to be done.
    fn until_back(&mut self) -> usize {
        let done = until("the replica to be back", || {
            self.of_the_first("done").get(self.seen).cloned()
        });
        self.seen += 1;
        let replica = usize::try_from(done["replica"].as_u64().unwrap()).unwrap();
        self.replicas[replica] = u32::try_from(done["pid"].as_u64().unwrap()).unwrap();
        replica
    }

    /// Sets a word of the program in one replica.
    fn set(&self, replica: usize, word: &str) {
        let address = symbol(&self.program, word);
        poke(self.replicas[replica], address, &1_u64.to_le_bytes()).unwrap();
    }

    /// Lets the program end, which must have written every line once.
    #[track_caller]
    fn finish(self) -> (Outcome, Vec<Value>) {
        self.group.finish_counting(&self.scene)
    }
}

fn stop(events: &[Value]) -> &Value {
    let last = events.last().expect("events");
    assert_eq!(last["type"], "stop");
    last
}

#[test]
fn replicas_killed_in_turn_come_back_fifty_times() {
    let scene = Scene::new();
    let pipe = scene.make_pipe("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    let mut run = Run::start_in(scene, LINES, &["-n", "3"]);
    for round in 0..50 {
        let victim = round % 3;
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
    }
    let (outcome, events) = run.finish();
    assert_eq!(reader.join().unwrap(), outcome.out());
    let counts = &stop(&events)["counts"];
    assert_eq!(counts["downgrades"], 50);
    assert_eq!(counts["reintegrations"], 50);
    assert_eq!(counts["replicas"], 3);
}

#[test]
fn replicas_that_go_wrong_come_back() {
    let mut run = Run::start(LINES, &["-n", "3", "--scrub", "off"]);
    for victim in [0, 2, 1, 0, 1, 2] {
        run.set(victim, "wrong");
        assert_eq!(run.until_back(), victim);
    }
    let (_, events) = run.finish();
    let mismatches = events.iter().filter(|event| event["kind"] == "mismatch");
    assert_eq!(mismatches.count(), 6);
}

#[test]
fn threads_come_along() {
    let mut run = Run::start(THREADS, &["-n", "3"]);
    for victim in [1, 0, 2, 1, 2, 0] {
        let before = run.lines_after(0);
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        run.lines_after(before);
    }
    run.finish();
}

/// The host takes a copy for a child, and gives it none of that.
#[test]
fn a_policy_that_is_not_for_children_comes_along() {
    let mut run = Run::start(RESET, &["-n", "3"]);
    for victim in [0, 1, 2] {
        let before = run.lines_after(0);
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        run.lines_after(before);
    }
    let (_, events) = run.finish();
    assert_eq!(stop(&events)["counts"]["downgrades"], 3);
}

/// The replicas of processes other than the first.
fn children_of(group: &Group, first: &[u32]) -> Vec<u32> {
    let mut pids = proc::made_by(group.running.pid());
    pids.retain(|pid| !first.contains(pid));
    pids
}

#[test]
fn a_process_that_waits_and_its_child_both_come_back() {
    let mut run = Run::start(FAMILY, &["-n", "3"]);
    for victim in [0, 1, 2] {
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
    }
    let children = until("three replicas of the child", || {
        let children = children_of(&run.group, &run.replicas);
        (children.len() == 3).then_some(children)
    });
    for (round, victim) in children.into_iter().enumerate() {
        signal(victim, Signal::KILL).unwrap();
        until("the child's replica to be back", || {
            let mut done = run.stages("done");
            done.retain(|event| event["process"] != run.group.running.pid());
            done.get(round).cloned()
        });
    }
    run.finish();
}

/// Kills replica 2 of the first process and stops its copy before that is a member; none if it was
/// too late. Copies of its children may have ended when they are heard of.
fn hold_up_copy(run: &Run) -> Option<u32> {
    let known = run.of_the_first("copied").len();
    let members = run.of_the_first("verified").len();
    run.kill(2);
    let copied = until("a copy", || run.of_the_first("copied").get(known).cloned());
    let pid = u32::try_from(copied["pid"].as_u64().unwrap()).unwrap();
    signal(pid, Signal::STOP).unwrap();
    if run.of_the_first("verified").len() == members {
        return Some(pid);
    }
    signal(pid, Signal::CONT).unwrap();
    None
}

/// What children have used, and who they were, stands where the supervisor keeps it until all have
/// read it; a copy that is late reads it too, or it differs from the others ever after.
#[test]
fn a_copy_that_is_late_learns_the_same_of_children_that_are_gone() {
    let mut run = Run::start(AWAITS, &["-n", "3"]);
    let mut held = false;
    for _ in 0..20 {
        if let Some(copy) = hold_up_copy(&run) {
            for _ in 0..3 {
                run.lines_after(run.lines_after(0));
            }
            // One that was a member already has been voted out meanwhile.
            held = signal(copy, Signal::CONT).is_ok();
        }
        assert_eq!(run.until_back(), 2);
        if held {
            break;
        }
    }
    assert!(held, "no copy was stopped before it was a member");
    for victim in [0, 1] {
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
    }
    assert_whole(run);
}

/// No copy was found wrong, and all replicas live at the end.
fn assert_whole(run: Run) {
    let (_, events) = run.finish();
    let refused = |event: &&Value| {
        let reason = event["reason"].as_str();
        reason.is_some_and(|reason| reason.contains("may be wrong"))
    };
    assert_eq!(events.iter().find(refused), None);
    assert_eq!(stop(&events)["counts"]["replicas"], 3);
}

/// Of much memory the clones take so long that the original has awaited other children before its
/// copy tells anything. That of these it has awaited none is what the copy has to tell then.
#[test]
fn a_copy_that_begins_late_learns_the_same_of_children_that_are_gone() {
    let mut run = Run::start(&format!("#define MUCH (128 << 20)\n{AWAITS}"), &["-n", "3"]);
    for victim in [2, 0, 1, 2] {
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        // Its children have all replicas by then.
        run.lines_after(run.lines_after(0));
    }
    assert_whole(run);
}

#[test]
fn followers_come_back_while_the_primary_is_blocked() {
    let scene = Scene::new();
    let program = scene.compile("reader", READER, &[]);
    let outcome = scene.run(&["sh", "-c", "echo x | ./reader"]);
    assert_eq!(outcome.out(), "0\nx");
    let fifo = scene.make_pipe("input");
    // Open for both, so that nobody waits for the other end.
    let end = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .unwrap();
    let script = "exec \"$0\" <input";
    let group = scene.start_group(&["-n", "3"], &["/bin/sh", "-c", script, &program]);
    let mut run = Run {
        replicas: group.replicas.clone(),
        scene,
        group,
        program,
        seen: 0,
    };
    run.lines_after(0);
    // Of a primary that is lost in a read of a pipe nobody knows what it has read.
    for victim in [2, 1, 2] {
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
    }
    (&end).write_all(b"y").unwrap();
    let (outcome, events) = run.group.finish();
    assert_eq!(outcome.ended, Ended::Exit(7), "{events:?}");
    assert_eq!(outcome.out(), "0\ny");
}

#[test]
fn a_flip_that_lies_unused_in_the_copied_replica_is_not_spread() {
    // After the loss of 2 the follower 1 is copied, whose memory only 0 can vouch for.
    for flipped in [0, 1] {
        let run = Run::start(LINES, &["-n", "3", "--scrub", "off"]);
        run.set(flipped, "unused");
        run.kill(2);
        until("the refusal", || run.stages("abandoned").pop());
        let (outcome, events) = run.finish();
        assert!(
            outcome.err().contains("cannot be brought back"),
            "{}",
            outcome.err()
        );
        assert_eq!(stop(&events)["counts"]["replicas"], 2, "{events:?}");
    }
}

#[test]
fn two_that_differ_are_asked_again_until_that_is_overwritten() {
    let mut run = Run::start(LINES, &["-n", "3", "--scrub", "off"]);
    run.set(1, "unused");
    run.kill(2);
    until("two refusals", || {
        run.stages("abandoned").into_iter().nth(1)
    });
    run.set(0, "unused");
    assert_eq!(run.until_back(), 2);
    let (outcome, _) = run.finish();
    let told = outcome.err().matches("cannot be brought back").count();
    assert_eq!(told, 1, "{}", outcome.err());
}

#[test]
fn four_replicas_know_whose_memory_is_wrong() {
    // 3 is lost and 2 would be copied.
    let mut run = Run::start(LINES, &["-n", "4", "--scrub", "off"]);
    run.set(2, "unused");
    run.kill(3);
    assert_eq!(run.until_back(), 3);
    assert_ne!(run.stages("done")[0]["donor"], 2);
    // A wrong one among those that are not copied changes nothing.
    run.kill(3);
    assert_eq!(run.until_back(), 3);
    run.finish();
}

#[test]
fn a_copy_that_dies_is_made_again() {
    let mut run = Run::start(LINES, &["-n", "3"]);
    run.kill(2);
    let copied = until("a copy", || run.stages("copied").pop());
    let pid = u32::try_from(copied["pid"].as_u64().unwrap()).unwrap();
    signal(pid, Signal::KILL).unwrap();
    // If it was a member already, it is brought back once more.
    until("another copy", || {
        let back = run.stages("done").last()?["pid"] != copied["pid"];
        back.then_some(())
    });
    run.until_back();
    let (_, events) = run.finish();
    assert_eq!(stop(&events)["counts"]["replicas"], 3, "{events:?}");
}

#[test]
fn with_four_a_member_lost_meanwhile_is_masked() {
    for victim in [0, 1, 2] {
        let mut run = Run::start(LINES, &["-n", "4"]);
        run.kill(3);
        until("a copy", || run.stages("copied").pop());
        run.kill(victim);
        run.until_back();
        run.until_back();
        let (_, events) = run.finish();
        assert_eq!(stop(&events)["counts"]["replicas"], 4, "{events:?}");
    }
}

#[test]
fn with_three_a_member_lost_meanwhile_stops_the_run_or_is_masked() {
    for victim in [0, 1] {
        let run = Run::start(LINES, &["-n", "3"]);
        run.kill(2);
        until("a copy", || run.stages("copied").pop());
        run.kill(victim);
        run.scene.write("stop", "");
        let (outcome, events) = run.group.finish();
        let expected = [Ended::Exit(86), Ended::Exit(7)];
        assert!(expected.contains(&outcome.ended), "{events:?}");
        let text = outcome.out();
        let numbers = text.lines().filter(|line| !line.starts_with("end"));
        let numbers = numbers.map(|line| line.parse::<usize>().unwrap());
        assert!(numbers.enumerate().all(|(at, number)| at == number));
    }
}

#[test]
fn much_memory_comes_along_and_the_end_tells_what_it_took() {
    let mut run = Run::start(FILLED, &["-n", "3", "--stats"]);
    for victim in [2, 0, 1] {
        let before = run.lines_after(0);
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        run.lines_after(before);
    }
    let (outcome, events) = run.finish();
    let counts = &stop(&events)["counts"];
    assert_eq!(counts["reintegrations"], 3);
    let longest = |name: &str, stage: &str, field: &str| {
        let all = events.iter().filter(|it| it["type"] == name);
        let all = all.filter(|it| stage.is_empty() || it["stage"] == stage);
        all.filter_map(|it| it[field].as_u64()).max()
    };
    let removal = counts["longest_removal_us"].as_u64();
    assert_eq!(removal, longest("recovery", "", "us"));
    let whole = counts["longest_reintegration_us"].as_u64();
    assert_eq!(whole, longest("reintegration", "done", "us"));
    let pause = counts["longest_pause_us"].as_u64();
    assert_eq!(pause, longest("reintegration", "done", "pause_us"));
    let row = |name: &str| {
        let err = outcome.err();
        let line = err.lines().find_map(|line| line.strip_prefix(name));
        let word = line.expect(name).split_whitespace().next();
        word.expect(name).parse::<u64>().expect("a number")
    };
    assert_eq!(counts["takeovers"], 2);
    assert_eq!(row("primaries removed"), 2);
    assert_eq!(row("followers removed"), 1);
    assert_eq!(row("re-integrations"), 3);
}

#[test]
fn memory_withheld_from_children_comes_along() {
    let mut run = Run::start(WITHHELD, &["-n", "3"]);
    for victim in [1, 0, 2, 0] {
        let before = run.lines_after(0);
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        run.lines_after(before);
    }
    run.finish();
}

/// What the counters of [`MAPPED`] are after so many lines.
fn counted(lines: i64) -> Vec<u8> {
    const PAGES: i64 = 64;
    let mut file = vec![0; 64 * 4096];
    let mut add = |page: i64, word: usize, value: &dyn Fn(i64) -> i64| {
        let at = usize::try_from(page).unwrap() * 4096 + word * 8;
        let cell = &mut file[at..at + 8];
        let old = i64::from_le_bytes(cell.try_into().unwrap());
        cell.copy_from_slice(&value(old).to_le_bytes());
    };
    for line in 0..lines {
        add(line % PAGES, 1, &|old| old + 1);
        add(line % PAGES, 2, &|old| old + line);
        if line % 7 == 0 {
            add(line * 7 % PAGES, 3, &|_| line);
        }
    }
    file
}

#[test]
fn files_that_are_mapped_come_along() {
    let mut run = Run::start(MAPPED, &["-n", "3"]);
    for victim in [1, 0, 2, 0, 1, 2] {
        let before = run.lines_after(0);
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        run.lines_after(before);
    }
    let file = run.scene.path().join("mapped");
    run.scene.write("stop", "");
    let (outcome, events) = run.group.finish();
    assert_eq!(outcome.ended, Ended::Exit(7), "{events:?}");
    let lines = i64::try_from(outcome.out().lines().count()).unwrap() - 1;
    assert!(outcome.out().ends_with(&format!("\nend {lines}\n")));
    assert!(!outcome.out().contains("wrong"), "{}", outcome.out());
    assert!(std::fs::read(file).unwrap() == counted(lines));
    assert_eq!(stop(&events)["counts"]["replicas"], 3, "{events:?}");
}

/// Writes rows through the write-ahead log, whose index is mapped, until there is a file `stop`.
const ROWS: &str = "
import os, sqlite3
base = sqlite3.connect('base')
base.execute('pragma journal_mode=wal')
base.execute('create table t (a integer primary key, b text)')
i = 0
while not os.path.exists('stop'):
    with base:
        base.execute('insert into t values (?, ?)', (i, str(i) * 20))
    print(base.execute('select count(*) from t').fetchone()[0], flush=True)
    i += 1
print('end', base.execute('pragma integrity_check').fetchone()[0])
";

#[test]
fn a_database_with_a_write_ahead_log_gets_its_replicas_back() {
    let scene = Scene::new();
    let script = scene.write("rows.py", ROWS).display().to_string();
    let group = scene.start_group(&["-n", "3"], &["/usr/bin/python3", &script]);
    let mut run = Run {
        replicas: group.replicas.clone(),
        scene,
        group,
        program: script,
        seen: 0,
    };
    run.lines_after(0);
    for victim in [2, 0, 1] {
        let before = run.lines_after(0);
        run.kill(victim);
        assert_eq!(run.until_back(), victim);
        run.lines_after(before);
    }
    run.scene.write("stop", "");
    let (outcome, events) = run.group.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{events:?}");
    let text = outcome.out();
    let rows = text.lines().count() - 1;
    let mut expected: Vec<String> = (1..=rows).map(|row| row.to_string()).collect();
    expected.push("end ok".to_owned());
    assert!(text.lines().eq(expected), "{text}");
}

#[test]
fn it_can_be_turned_off() {
    let run = Run::start(LINES, &["-n", "3", "--no-reintegrate"]);
    run.kill(1);
    let before = until("the downgrade", || {
        let events = events_of(&run.group.events);
        let gone = events.iter().any(|event| event["type"] == "downgrade");
        gone.then(|| run.lines_after(0))
    });
    run.lines_after(before);
    let (_, events) = run.finish();
    assert!(!events.iter().any(|event| event["type"] == "reintegration"));
    assert_eq!(stop(&events)["counts"]["replicas"], 2);
}
