//! Events that a lost primary may have been told: they are armed again.
//!
//! What a set of `epoll` tells as a level is told again by itself. What it tells as an edge is told
//! once; setting the same events anew makes the kernel look again, so that the successor is told
//! what is ready, perhaps a second time, which programs of edges have to expect.
//!
//! Not covered: EPOLLONESHOT. Whether a disarmed one was told to the program cannot be known.

use core::fmt::Write as _;

use linux_raw_sys::general::{EPOLLET, EPOLLONESHOT};

use crate::calls::descriptors::descriptor;
use crate::sys::{self, events};
use crate::text::Text;

/// Bits that say how events are told, not which.
const MANNERS: u32 = 0xf000_0000;
/// Longest line of interest; entries are shorter.
const LINE: usize = 256;

/// One entry of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    fd: u64,
    events: u32,
    data: u64,
}

impl Entry {
    /// A line like `tfd: 5 events: 19 data: 5 pos:0 ino:1 sdev:8`; numbers are hexadecimal but the
    /// first.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = core::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("tfd:") {
            return None;
        }
        let fd = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        let data = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        Some(Self { fd, events, data })
    }
}

/// Arms all events of the set again. False if that cannot be done.
pub(super) fn arm_again(set: u64) -> bool {
    let mut known = true;
    let read = each_entry(set, |entry| {
        if entry.events & EPOLLONESHOT != 0 {
            known &= entry.events & !MANNERS != 0;
        }
        if entry.events & EPOLLET != 0 && entry.events & !MANNERS != 0 {
            // A number that means another file by now is left as it is.
            events::set_events(set, entry.fd, entry.events, entry.data);
        }
    });
    known && read
}

#[inline(never)]
fn each_entry(set: u64, mut visit: impl FnMut(Entry)) -> bool {
    let mut path = Text::<48>::new();
    let written = write!(path, "/proc/self/fdinfo/{}\0", descriptor(set));
    let Ok(file) = sys::open_file(path.as_bytes(), false) else {
        return false;
    };
    written.expect("short");
    let (mut line, mut len) = ([0; LINE], 0);
    let mut buffer = [0; 1024];
    let complete = loop {
        let read = match sys::read(file, &mut buffer) {
            Ok(0) => break true,
            Ok(read) => read,
            Err(_) => break false,
        };
        for byte in &buffer[..read] {
            if *byte == b'\n' {
                Entry::parse(&line[..len]).into_iter().for_each(&mut visit);
                len = 0;
            } else if len < LINE {
                line[len] = *byte;
                len += 1;
            }
        }
    };
    sys::close(file);
    complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_the_kernel_writes_them() {
        let line = b"tfd:       12 events: 80000019 data:     500000007  pos:0 ino:2b sdev:8";
        let entry = Entry {
            fd: 12,
            events: 0x8000_0019,
            data: 0x5_0000_0007,
        };
        assert_eq!(Entry::parse(line), Some(entry));
        assert_eq!(Entry::parse(b"flags:\t02"), None);
    }

    #[test]
    fn an_edge_is_told_again() {
        let counter = events::new_counter(0).cast_unsigned();
        events::count_one(counter);
        let set = events::new_set(counter, EPOLLET | 1, 77);
        let told = || {
            let mut told = [0_u32; 3];
            // SAFETY: room for one event.
            let count = unsafe { events::events_now(set, told.as_mut_ptr() as u64, 1) };
            (count, told[1])
        };
        assert_eq!(told(), (1, 77));
        assert_eq!(told().0, 0, "once");
        assert!(arm_again(set));
        assert_eq!(told(), (1, 77));
        events::set_events(set, counter, EPOLLONESHOT | 1, 77);
        assert!(arm_again(set), "not told yet");
        assert_eq!(told(), (1, 77));
        assert!(!arm_again(set), "told to whom?");
        for fd in [set, counter] {
            sys::close(descriptor(fd));
        }
    }
}
