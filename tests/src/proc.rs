//! Which processes live, read from the proc file system.

use std::fs;

/// One process as `/proc/PID/stat` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// One letter: `R`unning, `S`leeping, s`T`opped, `Z`ombie and so on.
    pub state: char,
    /// Its parent's id.
    pub parent: u32,
    /// The session it belongs to.
    pub session: u32,
    /// CPU time used so far, user and system, in clock ticks.
    pub ticks: u64,
}

/// Parses a line of `/proc/PID/stat`; the command in it may hold blanks and parentheses.
#[must_use]
pub fn parse(line: &str) -> Option<Process> {
    let pid = line.split(' ').next()?.parse().ok()?;
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let fields: Vec<&str> = fields.collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid,
        state,
        parent: u32::try_from(number(0)?).ok()?,
        session: u32::try_from(number(2)?).ok()?,
        ticks: number(10)? + number(11)?,
    })
}

/// What a supervisor has made for the program: its children but for those of its own kind, such as
/// the guardian, which execute what it executes itself.
#[must_use]
pub fn made_by(supervisor: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    let image = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = image(supervisor);
    let list = list.unwrap_or_default();
    let pids = list.split_ascii_whitespace();
    pids.filter_map(|word| word.parse().ok())
        .filter(|&pid| own.is_none() || image(pid) != own)
        .collect()
}

/// The process with this id, if there is one.
#[must_use]
pub fn find(pid: u32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes of a session but zombies.
#[must_use]
pub fn session(id: u32) -> Vec<Process> {
    let Ok(items) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    items
        .filter_map(|item| item.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(find)
        .filter(|process| process.session == id && process.state != 'Z')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_a_parenthesis_does_not_confuse() {
        let line = "42 (a) b (c) S 7 42 40 0 -1 4 1 2 3 4 11 22 0 0 20 0 1 0 5";
        let expected = Process {
            pid: 42,
            state: 'S',
            parent: 7,
            session: 40,
            ticks: 33,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn this_process_is_found() {
        assert_eq!(find(std::process::id()).unwrap().pid, std::process::id());
    }
}
