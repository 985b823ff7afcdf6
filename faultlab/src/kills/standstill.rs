//! What each replica does while a service stands still, written down so that the cause can be told
//! from it later.
//!
//! A service stands still if its peer, which always waits for some answer, has had none for so long
//! that no fault and no load explains it. Told of are what `rcoe top` shows, and of every process
//! below rcoe its state, what it waits for in the host, and its registers: a flip in one of them is
//! the cause as likely as not.
//!
//! Contract: looking stops each process for a moment, as injecting does. What cannot be read is
//! left out.
//!
//! Not covered: peers that do not measure answers.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::answers::Slowest;
use super::victims::Place;
use crate::inject;

/// No answer for so long is a standstill.
const LONG: Duration = Duration::from_secs(8);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(500);
/// Most times that a run is looked at.
const MOST: u32 = 4;
/// Where it is written, in the folder of the run.
pub(super) const FILE: &str = "standstill";

/// Watches until `over`, and writes down what is found at each standstill.
pub(super) fn watch(place: &Place<'_>, slowest: &Slowest, over: &AtomicBool) {
    let mut told = String::new();
    let (mut times, mut due) = (0, LONG);
    while !over.load(Ordering::Relaxed) && times < MOST {
        thread::sleep(LOOK);
        let silent = slowest.silent_for();
        if silent < LONG {
            due = LONG;
        } else if silent >= due {
            times += 1;
            due = 2 * silent;
            let _ = writeln!(told, "no answer for {silent:?}");
            told += &describe(place);
            // It is told of in any case, as far as there is room for it.
            let _ = fs::write(place.folder.join(FILE), &told);
        }
    }
}

/// What the run and its processes do at this moment.
fn describe(place: &Place<'_>) -> String {
    let mut text = place.snapshot().map_or_else(
        |error| format!("{error:#}\n"),
        |shown| format!("{shown:#}\n"),
    );
    for pid in below(place.job) {
        text += &process(pid);
    }
    text
}

/// A process and all that descend from it.
fn below(root: u32) -> Vec<u32> {
    let (mut found, mut left) = (Vec::new(), VecDeque::from([root]));
    while let Some(pid) = left.pop_front() {
        let children = read(Path::new(&format!("/proc/{pid}/task/{pid}/children")));
        left.extend(
            children
                .split_ascii_whitespace()
                .flat_map(str::parse::<u32>),
        );
        found.push(pid);
    }
    found
}

/// State, place in the host and registers of a process.
fn process(pid: u32) -> String {
    let told = |name: &str| read(Path::new(&format!("/proc/{pid}/{name}")));
    let mut text = format!("{pid} {}", told("stat"));
    for name in ["wchan", "syscall", "schedstat", "stack"] {
        let _ = writeln!(text, "  {name}: {}", told(name).trim().replace('\n', " "));
    }
    let registers = i32::try_from(pid).ok().and_then(inject::registers);
    let _ = writeln!(text, "  {}", registers.unwrap_or_default());
    text
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_told_of_with_its_registers() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let told = process(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(
            told.starts_with(&format!("{0} {0} (", child.id())),
            "{told}"
        );
        assert!(told.contains("rbx 0x"), "{told}");
    }

    #[test]
    fn descendants_are_found() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let found = below(std::process::id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(found.starts_with(&[std::process::id()]), "{found:?}");
    }
}
