//! What a failed test says of the command it ran, so that a failure seen once can be explained.
//!
//! Contract: only text for people, written while the test that failed unwinds; it may be
//! incomplete, since what it tells of goes on meanwhile. Not covered: memory and registers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::proc;

/// Most lines of a file that are shown, from its end.
const LINES: usize = 80;
/// Most characters of a line.
const COLUMNS: usize = 240;

/// The living processes of a session, and what each one waits for.
#[must_use]
pub fn processes(session: u32) -> String {
    let mut text = String::new();
    for process in proc::session(session) {
        let told = |name: &str| {
            let file = format!("/proc/{}/{name}", process.pid);
            fs::read_to_string(file)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let (name, place, call) = (told("comm"), told("wchan"), told("syscall"));
        let _ = writeln!(
            text,
            "{} {name} {} parent {} ticks {} in {place} call {call}",
            process.pid, process.state, process.parent, process.ticks
        );
    }
    text
}

/// The last lines of a text.
#[must_use]
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LINES);
    let mut shown = String::new();
    for line in &lines[first..] {
        shown.extend(line.chars().take(COLUMNS));
        shown.push('\n');
    }
    shown
}

/// The last lines of a file, nothing if there is none.
#[must_use]
pub fn tail_of(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    tail(&String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_of() {
        let own = proc::find(std::process::id()).unwrap();
        let told = processes(own.session);
        assert!(told.contains(&format!("{} ", own.pid)), "{told}");
    }

    #[test]
    fn the_end_of_a_text_is_shown() {
        let text: Vec<String> = (0..200).map(|line| line.to_string()).collect();
        let shown = tail(&text.join("\n"));
        assert!(
            shown.starts_with("120\n") && shown.ends_with("199\n"),
            "{shown}"
        );
        assert_eq!(tail(&"x".repeat(1000)).len(), COLUMNS + 1);
    }
}
