//! Files that tell of processes and the machine: which there are, below `/proc`.
//!
//! They stand among all files, those of a process in the folder of whoever asks. Another process's
//! have no names of their own: its number in a path leads to the same names.

use super::files::{FILE_NUMBERS, Files, Kind, OPEN, Path};
use super::streams::PIPE_BYTES;
use super::threads::THREADS;

/// What such a file tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fact {
    Status,
    Stat,
    Statm,
    Cmdline,
    Comm,
    Maps,
    SizedMaps,
    Memory,
    Processor,
    Uptime,
    Load,
    Counts,
    Version,
    /// What the system calls itself: which of its names.
    Name(usize),
    LastProcess,
    /// How much there can be of something, or whether the system is as it began.
    Limit(u64),
    /// What holds files, and where.
    Mounts,
}

/// The folder of all of it, and that of the process that asks.
pub(crate) const ALL: &[u8] = b"/proc";
pub(crate) const OWN: &[u8] = b"/proc/self";

/// The files.
pub(super) const FACTS: [(&[u8], Fact); 27] = [
    (b"/proc/self/status", Fact::Status),
    (b"/proc/self/stat", Fact::Stat),
    (b"/proc/self/statm", Fact::Statm),
    (b"/proc/self/cmdline", Fact::Cmdline),
    (b"/proc/self/comm", Fact::Comm),
    (b"/proc/self/maps", Fact::Maps),
    (b"/proc/self/smaps", Fact::SizedMaps),
    (b"/proc/meminfo", Fact::Memory),
    (b"/proc/cpuinfo", Fact::Processor),
    (b"/proc/uptime", Fact::Uptime),
    (b"/proc/loadavg", Fact::Load),
    (b"/proc/stat", Fact::Counts),
    (b"/proc/version", Fact::Version),
    (b"/proc/sys/kernel/ostype", Fact::Name(0)),
    (b"/proc/sys/kernel/hostname", Fact::Name(1)),
    (b"/proc/sys/kernel/osrelease", Fact::Name(2)),
    (b"/proc/sys/kernel/version", Fact::Name(3)),
    (b"/proc/sys/kernel/domainname", Fact::Name(5)),
    (b"/proc/sys/kernel/pid_max", Fact::LastProcess),
    (b"/proc/sys/kernel/tainted", Fact::Limit(0)),
    (b"/proc/sys/kernel/threads-max", Fact::Limit(THREADS as u64)),
    (b"/proc/sys/kernel/ngroups_max", Fact::Limit(65536)),
    (b"/proc/sys/fs/file-max", Fact::Limit(OPEN as u64)),
    (b"/proc/sys/fs/nr_open", Fact::Limit(FILE_NUMBERS as u64)),
    (b"/proc/sys/fs/pipe-max-size", Fact::Limit(PIPE_BYTES)),
    (b"/proc/mounts", Fact::Mounts),
    (b"/proc/self/mounts", Fact::Mounts),
];

impl Files<'_> {
    /// The number that a path names in the folder of all processes, and what is behind it.
    fn number_in<'p>(&self, path: &'p Path) -> Option<(u64, &'p [u8])> {
        let rest = path.bytes().strip_prefix(ALL)?.strip_prefix(b"/")?;
        let end = rest.iter().position(|&byte| byte == b'/');
        let (number, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let is_number = number.first().is_some_and(|it| (b'1'..=b'9').contains(it));
        let number = core::str::from_utf8(number).ok().filter(|_| is_number)?;
        let number = number.parse().ok()?;
        self.numbers().contains(&number).then_some((number, rest))
    }

    /// The process whose folder a path leads into, if it is not that of who asks.
    pub(crate) fn whose(&self, path: &Path) -> Option<u64> {
        self.number_in(path).map(|(number, _)| number)
    }

    /// Is that the folder of the process at hand, by its number?
    pub(super) fn is_own(&self, path: &Path) -> bool {
        let found = self.number_in(path);
        found.is_some_and(|(number, rest)| number == self.own_number() && rest.is_empty())
    }

    /// What is at a path in the folder of a process, whoever that is.
    pub(super) fn fact_at(&self, path: &Path) -> Option<usize> {
        let (_, rest) = self.number_in(path)?;
        let own = Path::new(OWN).ok()?;
        let own = own.join(rest.strip_prefix(b"/").unwrap_or(rest)).ok()?;
        let node = self.name_at(own)?;
        let is_fact = matches!(self.node(node).kind, Kind::Told { .. });
        (is_fact || rest.is_empty()).then_some(node)
    }
}
