//! What kind of file a descriptor stands for, as far as taking over an effect on it goes.
//!
//! A primary would have to ask the host at every call; so it remembers the answer until the
//! descriptor is closed, which all replicas see. A new file under a number has a new kind only
//! after the number was free. A child has a table of its own, and begins with nothing. In the same
//! way it remembers up to where all numbers are taken.

use rcoe_linux_syscalls::{Class, Descriptors, Resolved};

use crate::calls::Call;
use crate::convert::{low32, size};
use crate::one_thread::OneThread;
use crate::sys;

/// Descriptors that are remembered.
const NUMBERS: usize = 1024;

/// How an effect on a file can be found out about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Not asked yet, or not open.
    Unknown = 0,
    /// Reading and writing move its position.
    Positioned = 1,
    /// A pipe or socket: what is read is gone, and what is written is out.
    Stream = 2,
    /// A terminal or another device.
    Device = 3,
    /// Something without a name, as counters and timers are: as a stream.
    Counter = 4,
    /// Reading and writing change nothing: `/dev/null` and the like.
    Free = 5,
}

/// What is remembered.
struct Memory {
    kinds: [Kind; NUMBERS],
    /// All lower numbers are taken.
    taken: u32,
}

#[unsafe(link_section = ".bss.own.2")]
static KINDS: OneThread<Memory> = OneThread::new(NOTHING);

const NOTHING: Memory = Memory {
    kinds: [Kind::Unknown; NUMBERS],
    taken: 0,
};

fn memory() -> &'static mut Memory {
    // SAFETY: a replica is one kernel thread, and no caller keeps the reference.
    unsafe { &mut *KINDS.get() }
}

/// The kind of this descriptor's file.
pub(super) fn kind_of(fd: u64) -> Kind {
    let number = size(u64::from(low32(fd)));
    match memory().kinds.get_mut(number) {
        Some(Kind::Unknown) => {
            let kind = ask(fd);
            memory().kinds[number] = kind;
            kind
        }
        Some(known) => *known,
        None => ask(fd),
    }
}

fn ask(fd: u64) -> Kind {
    const TYPE: u32 = 0o170_000;
    const CHARACTERS: u32 = 0o020_000;
    const POSITIONED: [u32; 3] = [0o100_000, 0o040_000, 0o060_000];
    const PIPES: [u32; 2] = [0o010_000, 0o140_000];
    /// `null`, `zero`, `full`, `random` and `urandom`.
    const FREE: [u64; 5] = [0x103, 0x105, 0x107, 0x108, 0x109];
    match sys::file_type(fd) {
        None => Kind::Unknown,
        Some((mode, _)) if POSITIONED.contains(&(mode & TYPE)) => Kind::Positioned,
        Some((mode, device)) if mode & TYPE == CHARACTERS && FREE.contains(&device) => Kind::Free,
        Some((mode, _)) if mode & TYPE == CHARACTERS => Kind::Device,
        Some((mode, _)) if PIPES.contains(&(mode & TYPE)) => Kind::Stream,
        Some(_) => Kind::Counter,
    }
}

/// The first free descriptor from `least` on.
pub(super) fn first_free(least: u32) -> u32 {
    let from = least.max(memory().taken);
    let is_free = |fd: &u32| !sys::is_open(fd.cast_signed());
    let free = (from..u32::MAX).find(is_free).unwrap_or(u32::MAX);
    if least <= memory().taken {
        memory().taken = free;
    }
    free
}

/// All replicas, after any call: forgets what was closed.
#[inline(always)]
pub(crate) fn after(call: &Call, what: &Resolved) {
    let number = match what.facts.descriptors {
        Descriptors::Stay if what.class == Class::Process => {
            memory().taken = 0;
            return;
        }
        Descriptors::Stay | Descriptors::Copies => return,
        Descriptors::Closes(fd) | Descriptors::Replaces(fd) => call.arg(usize::from(fd)),
        Descriptors::ClosesRange(..) | Descriptors::ClosesMarked => {
            *memory() = NOTHING;
            return;
        }
        Descriptors::ClosesOwn => {
            let memory = memory();
            memory.taken = memory.taken.min(low32(sys::FIRST_OWN));
            return;
        }
    };
    let memory = memory();
    memory.taken = memory.taken.min(low32(number));
    if let Some(kind) = memory.kinds.get_mut(size(u64::from(low32(number)))) {
        *kind = Kind::Unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};

    fn number(fd: impl Into<OwnedFd>) -> (OwnedFd, u64) {
        let fd = fd.into();
        let number = u64::try_from(fd.as_raw_fd()).unwrap();
        (fd, number)
    }

    #[test]
    fn kinds_are_told_apart_and_forgotten() {
        let open = |path: &str| number(std::fs::File::open(path).unwrap());
        for (path, kind) in [
            ("/proc/self/exe", Kind::Positioned),
            ("/", Kind::Positioned),
            ("/dev/null", Kind::Free),
            ("/dev/urandom", Kind::Free),
        ] {
            assert_eq!(ask(open(path).1), kind, "{path}");
        }
        let (end, _other) = std::io::pipe().unwrap();
        let (end, fd) = number(end);
        assert_eq!(kind_of(fd), Kind::Stream);
        drop(end);
        assert_eq!(kind_of(fd), Kind::Stream, "remembered");
        let call = Call::new(3, [fd, 0, 0, 0, 0, 0]).unwrap();
        after(&call, call.what);
        assert_eq!(kind_of(fd), Kind::Unknown);
    }
}
