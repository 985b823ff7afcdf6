//! To which file that acts on a process an open descriptor leads.
//!
//! Asked of the host: the file system that the file lies in, and its path. By what name, link or
//! other descriptor it was opened makes no difference.
//!
//! Not covered: a proc file system of another space of process numbers.

use rcoe_linux_syscalls::{FILES, Place, file};

use crate::calls::descriptors::descriptor;
use crate::sys;

/// Of no row of the table: a file of a process that the table does not know.
pub(super) const UNKNOWN: usize = FILES.len();

/// Most bytes of a path that are looked at.
const LOOK: usize = 512;

/// Such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Row of the table, or [`UNKNOWN`].
    pub(super) row: usize,
    /// The process of the host that it is of; 0 for a control group.
    pub(super) process: u32,
    /// It is in the folder of one of that process's threads.
    pub(super) of_thread: bool,
}

/// Where the descriptor leads; `None` if to no such file.
#[inline(never)]
pub(super) fn of_descriptor(fd: u64) -> Option<Target> {
    const PROC: u64 = 0x9fa0;
    const GROUPS: [u64; 3] = [0x0027_e0eb, 0x6367_7270, 0x0765_5821];
    let system = sys::file_system(fd)?;
    if system != PROC && !GROUPS.contains(&system) {
        return None;
    }
    let mut path = [0; LOOK];
    let len = sys::descriptor_target(descriptor(fd), &mut path);
    let path = path[..len]
        .strip_suffix(b" (deleted)")
        .unwrap_or(&path[..len]);
    if system == PROC {
        in_proc(path)
    } else {
        in_group(path)
    }
}

/// A file of a control group in which processes are named.
fn in_group(path: &[u8]) -> Option<Target> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let row = match (path.is_empty(), file(Place::Cgroup, name)) {
        (true, _) => UNKNOWN,
        (false, row) => row?,
    };
    Some(Target {
        row,
        process: 0,
        of_thread: false,
    })
}

/// A file of a process. A path that cannot be told is taken for one.
fn in_proc(path: &[u8]) -> Option<Target> {
    if path.is_empty() {
        return Some(Target {
            row: UNKNOWN,
            process: 0,
            of_thread: false,
        });
    }
    let mut before: &[u8] = b"";
    let mut rest = path;
    while let Some((part, after)) = cut(rest) {
        let process = number(part).filter(|_| before != b"irq");
        (before, rest) = (part, after);
        let Some(process) = process.filter(|_| !after.is_empty()) else {
            continue;
        };
        let thread = after
            .strip_prefix(b"task/")
            .and_then(cut)
            .filter(|(tid, _)| number(tid).is_some());
        let (name, _) = cut(thread.map_or(after, |(_, file)| file))?;
        return Some(Target {
            row: file(Place::Process, name).unwrap_or(UNKNOWN),
            process,
            of_thread: thread.is_some(),
        });
    }
    None
}

/// The first part of a path and what follows it.
fn cut(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    if path.is_empty() {
        return None;
    }
    let end = path.iter().position(|byte| *byte == b'/');
    let end = end.unwrap_or(path.len());
    Some((&path[..end], path.get(end + 1..).unwrap_or_default()))
}

/// The number of a process, as its folder is named.
fn number(name: &[u8]) -> Option<u32> {
    if name.first() == Some(&b'0') {
        return None;
    }
    core::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str) -> Option<(Option<&'static str>, u32, bool)> {
        let target = in_proc(path.as_bytes())?;
        let name = FILES.get(target.row).map(|file| file.name);
        Some((name, target.process, target.of_thread))
    }

    #[test]
    fn files_of_processes_are_told_by_their_path() {
        assert_eq!(told("/proc/12/mem"), Some((Some("mem"), 12, false)));
        assert_eq!(
            told("/mnt/proc/12/task/34/comm"),
            Some((Some("comm"), 12, true))
        );
        assert_eq!(
            told("/proc/7/task/8/attr/apparmor/exec"),
            Some((Some("attr"), 7, true))
        );
        assert_eq!(told("/proc/7/something"), Some((None, 7, false)));
        assert_eq!(told("/proc/sys/kernel/core_pattern"), None);
        assert_eq!(told("/proc/irq/12/smp_affinity"), None);
        assert_eq!(told("/proc/12"), None);
    }

    #[test]
    fn a_path_that_cannot_be_told_is_no_known_file() {
        assert_eq!(told(""), Some((None, 0, false)));
        assert_eq!(in_group(b"").map(|target| target.row), Some(UNKNOWN));
    }

    #[test]
    fn of_control_groups_those_files_count_that_name_processes() {
        let joins = in_group(b"/sys/fs/cgroup/a/cgroup.procs").expect("a row");
        assert_eq!(FILES[joins.row].name, "cgroup.procs");
        assert_eq!(in_group(b"/sys/fs/cgroup/a/memory.max"), None);
    }

    #[test]
    fn descriptors_lead_to_what_was_opened() {
        use std::os::fd::AsRawFd as _;
        let told = |path: &str| {
            let file = std::fs::File::open(path).expect("a file");
            of_descriptor(u64::try_from(file.as_raw_fd()).expect("open"))
        };
        let own = told("/proc/thread-self/comm").expect("a file of this process");
        assert_eq!((own.process, own.of_thread), (std::process::id(), true));
        assert_eq!(FILES[own.row].name, "comm");
        assert_eq!(told("/proc/uptime"), None);
        assert_eq!(told("/dev/null"), None);
    }
}
