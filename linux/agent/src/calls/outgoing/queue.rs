//! The effects that wait to be released.
//!
//! An entry is laid out when the program asks for it, compared with the program's memory, and its
//! digest kept; it is compared with that digest again just before it goes out, so that a flip in
//! what waits is found. One that was released is never looked at again.
//!
//! The primary releases. Where the group goes on without a lost primary its siblings keep the same
//! entries, until all have heard that they are out. How many bytes a stream has taken the host
//! knows, so a successor asks that once, and begins where the lost one ended.

use rcoe_core::POSTS;

use crate::arch::faults::SIG_TICK;
use crate::convert::size;
use crate::lifetime::{PerCopy, PerProcess, Who};
use crate::memory::guest::{self, Fault};
use crate::one_thread::OneThread;
use crate::sys;
use crate::sys::ticks::Ticker;

/// Bytes of all entries together.
pub(super) const BYTES: usize = 64 * 1024;
/// How often the host reminds the primary of effects that wait.
const TICK_NS: u64 = 1_000_000;
/// Reminders in vain before it stops.
const IDLE_TICKS: u32 = 4;
/// Refusals that are kept between two rendezvous.
const REFUSALS: usize = 8;

/// One effect: bytes for a stream, so many that are to be taken out of one, or the end of a
/// descriptor.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) fd: u32,
    /// Where its bytes begin, and how many there are.
    start: usize,
    len: usize,
    /// How many of them the host has taken.
    sent: usize,
    /// Position of the first one in its stream.
    at: u32,
    /// Bytes to be taken out, if it is that; then it has none itself.
    takes: u32,
    /// It is the end of the descriptor.
    closes: bool,
    /// What is neither sent nor to be sent was done.
    done: bool,
    /// Of its bytes, or of the descriptor that ends.
    digest: u64,
    /// Number of the post that all must have made.
    pub(super) post: u64,
}

impl Entry {
    /// Nothing for no descriptor.
    const NONE: Self = Self {
        fd: 0,
        start: 0,
        len: 0,
        sent: 0,
        at: 0,
        takes: 0,
        closes: false,
        done: false,
        digest: 0,
        post: 0,
    };

    /// Are these bytes for a stream?
    const fn sends(&self) -> bool {
        self.takes == 0 && !self.closes
    }
}

/// What became of an entry.
pub(super) enum Released {
    /// The host has taken it.
    All,
    /// The host has no room for the rest.
    Rest,
    /// The host refuses it with this errno.
    Refused(u32),
    /// It is not what it was.
    Damaged,
}

#[unsafe(link_section = ".bss.own.1")]
static BUFFER: OneThread<[u8; BYTES]> = OneThread::new([0; BYTES]);

/// Effects in the order in which they were asked for. As zeroes it is empty.
pub(crate) struct Queue {
    entries: [Entry; POSTS],
    /// The first one that is not released, and how many there are with those released.
    first: usize,
    count: usize,
    /// A primary before this one may have released some of them.
    inherited: bool,
    /// What reminds of them, if it was made.
    ticker: Ticker,
    has_ticker: bool,
    ticking: bool,
    idle: u32,
    /// Descriptor and errno of those that the host refused, of which nobody was told.
    refused: [(u32, u32); REFUSALS],
    refusals: usize,
}

impl PerProcess for Queue {
    /// No timer of the host comes to a child, and nothing waits in it.
    fn in_child(&mut self, _: &Who) {
        (self.has_ticker, self.ticking) = (false, false);
        self.forget();
    }
}

impl PerCopy for Queue {
    fn in_copy(&mut self, who: &Who) {
        self.in_child(who);
    }
}

impl Queue {
    /// Is there a timer that will remind of what waits? Makes it if there is none.
    pub(super) fn can_be_reminded(&mut self) -> bool {
        if !self.has_ticker
            && let Some(ticker) = Ticker::new(SIG_TICK)
        {
            self.ticker = ticker;
            self.has_ticker = true;
        }
        self.has_ticker
    }

    /// Where the next entry's bytes begin.
    fn end(&self) -> usize {
        let last = self.count.checked_sub(1).map(|at| &self.entries[at]);
        last.map_or(0, |entry| entry.start + entry.len)
    }

    /// Copies these buffers of the program, so many bytes in all; `None` if they cannot be read or
    /// the copy is not the same as they.
    pub(super) fn lay_out(&mut self, parts: &[[u64; 2]], len: usize) -> Result<u64, Fault> {
        let start = self.end();
        // SAFETY: no other reference to the bytes is alive: each method makes its own.
        let bytes = unsafe { &mut *BUFFER.get() };
        let room = bytes.get_mut(start..start + len).ok_or(Fault)?;
        let mut rest = &mut *room;
        for &[base, len] in parts {
            let (here, after) = rest.split_at_mut(size(len));
            guest::copy_in(here, base)?;
            rest = after;
        }
        let mut rest = &*room;
        for &[base, len] in parts {
            let (here, after) = rest.split_at(size(len));
            if !guest::equals(here, base) {
                return Err(Fault);
            }
            rest = after;
        }
        digest_of(room).ok_or(Fault)
    }

    /// Keeps what was laid out last, `len` bytes for the stream of `fd` from position `at` on.
    pub(super) fn push(&mut self, (fd, at): (u32, u32), len: usize, digest: u64, post: u64) {
        self.add(Entry {
            fd,
            at,
            len,
            digest,
            post,
            ..Entry::NONE
        });
    }

    /// Keeps that a descriptor is to be closed.
    pub(super) fn push_closing(&mut self, fd: u32, post: u64) {
        self.add(Entry {
            fd,
            closes: true,
            digest: seal(fd),
            post,
            ..Entry::NONE
        });
    }

    /// Keeps that so many bytes are to be taken out of the stream of `fd`, from position `at` on.
    pub(super) fn push_taking(&mut self, (fd, at): (u32, u32), takes: u32, post: u64) {
        self.add(Entry {
            fd,
            at,
            takes,
            post,
            ..Entry::NONE
        });
    }

    /// Adds an entry, whose bytes begin where those of the last one end.
    fn add(&mut self, entry: Entry) {
        let start = self.end();
        self.entries[self.count] = Entry { start, ..entry };
        self.count += 1;
    }

    /// Follower: others release what it has kept.
    pub(super) const fn follow(&mut self) {
        self.inherited = true;
    }

    /// Primary: sees to it that it is reminded.
    pub(super) fn remind(&mut self) {
        if !self.ticking && self.can_be_reminded() {
            self.ticker.every(TICK_NS);
            self.ticking = true;
        }
        self.idle = 0;
    }

    /// The same of an effect that can wait for the next call, and is not worth a timer of its own.
    pub(super) fn remind_too(&mut self) {
        if self.has_ticker {
            self.remind();
        }
    }

    /// The next one to be released.
    pub(super) fn next(&self) -> Option<&Entry> {
        self.entries[..self.count].get(self.first)
    }

    /// Primary, before it releases anything: takes note of what a lost one has released, by the
    /// positions up to which streams were written and read, and which descriptors are open. `None`
    /// if positions are not known, or cannot be.
    pub(super) fn catch_up(
        &mut self,
        written: impl Fn(u32) -> Option<u32>,
        read: impl Fn(u32) -> Option<u32>,
        is_open: impl Fn(u32) -> bool,
    ) -> Option<()> {
        if !core::mem::take(&mut self.inherited) {
            return Some(());
        }
        for at in self.first..self.count {
            let Entry {
                fd, takes, closes, ..
            } = self.entries[at];
            let mut before = self.entries[self.first..at].iter();
            if closes {
                self.entries[at].done = !is_open(fd);
            } else if takes > 0 {
                self.mark_taken(at, read(fd)?)?;
            } else if before.all(|entry| entry.fd != fd || !entry.sends()) {
                self.mark_sent(at, written(fd)?)?;
            }
        }
        Some(())
    }

    /// Nothing is taken in part, and of no stream twice before all have met.
    fn mark_taken(&mut self, index: usize, position: u32) -> Option<()> {
        let entry = &mut self.entries[index];
        let taken = position.wrapping_sub(entry.at);
        entry.done = taken == entry.takes;
        (taken == 0 || entry.done).then_some(())
    }

    /// The stream of which this is the first entry has taken bytes up to a position.
    fn mark_sent(&mut self, first: usize, position: u32) -> Option<()> {
        let Entry { fd, at, .. } = self.entries[first];
        let mut taken = size(position.wrapping_sub(at).into());
        let entries = self.entries[first..self.count].iter_mut();
        for entry in entries.filter(|entry| entry.fd == fd && entry.sends()) {
            entry.sent = taken.min(entry.len);
            taken -= entry.sent;
        }
        (taken == 0).then_some(())
    }

    /// Hands the next one to the host.
    pub(super) fn release(&mut self) -> Released {
        let entry = &mut self.entries[self.first];
        if !entry.sends() && !entry.done && !perform(entry) {
            return Released::Damaged;
        }
        if entry.sent == entry.len {
            self.first += 1;
            return Released::All;
        }
        // SAFETY: no other reference to the bytes is alive: each method makes its own.
        let bytes = unsafe { &*BUFFER.get() };
        let bytes = &bytes[entry.start..entry.start + entry.len];
        if digest_of(bytes) != Some(entry.digest) {
            return Released::Damaged;
        }
        let sent = sys::sockets::send(entry.fd, &bytes[entry.sent..]);
        match usize::try_from(sent) {
            Ok(sent) if entry.sent + sent < entry.len => {
                entry.sent += sent;
                Released::Rest
            }
            Ok(_) => {
                self.first += 1;
                Released::All
            }
            Err(_) if sent == sys::error(linux_raw_sys::errno::EAGAIN) => Released::Rest,
            Err(_) => Released::Refused(u32::try_from(-sent).unwrap_or(0)),
        }
    }

    /// The next one cannot be had any more, nor those after it for the same stream. Of a stream the
    /// first refusal is told: until then the program may write to it more often.
    pub(super) fn give_up(&mut self, errno: u32) {
        let fd = self.entries[self.first].fd;
        let known = self.refused[..self.refusals].iter().any(|it| it.0 == fd);
        // Who is not told of it finds out from the host at the next call.
        if let Some(place) = self.refused.get_mut(self.refusals)
            && !known
        {
            *place = (fd, errno);
            self.refusals += 1;
        }
        let mut kept = self.first;
        for at in self.first..self.count {
            if self.entries[at].fd != fd || !self.entries[at].sends() {
                self.entries[kept] = self.entries[at];
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// A refusal that nobody was told of: descriptor and errno.
    pub(super) fn take_refusal(&mut self) -> Option<(u32, u32)> {
        self.refusals = self.refusals.checked_sub(1)?;
        Some(self.refused[self.refusals])
    }

    /// Are all released?
    pub(super) const fn is_empty(&self) -> bool {
        self.first == self.count
    }

    /// Has the host refused any of which nobody was told?
    pub(super) const fn has_refusals(&self) -> bool {
        self.refusals != 0
    }

    /// All have heard that all are released.
    pub(super) const fn forget(&mut self) {
        self.first = 0;
        self.count = 0;
        self.inherited = false;
        self.refusals = 0;
    }

    /// A reminder has come: true if something waits. Stops it after several in vain.
    pub(super) fn tick(&mut self) -> bool {
        if self.first < self.count {
            return true;
        }
        self.idle += 1;
        if self.idle >= IDLE_TICKS && self.ticking {
            self.ticker.every(0);
            self.ticking = false;
        }
        false
    }
}

/// Does what is not to be sent; false if that is not as it should be.
fn perform(entry: &Entry) -> bool {
    if entry.closes {
        entry.digest == seal(entry.fd) && sys::close_open(entry.fd)
    } else {
        take_out(entry)
    }
}

/// By which a flip in the number of a descriptor that waits for its end is noticed.
const fn seal(fd: u32) -> u64 {
    !(fd as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes bytes out of a stream that were read; false if it is not they that are there. A stream
/// whose end has come has nothing to be taken any more.
fn take_out(entry: &Entry) -> bool {
    let taken = sys::sockets::discard(entry.fd, entry.takes);
    let ended = taken < 0 && taken != sys::error(linux_raw_sys::errno::EAGAIN);
    ended || taken == i64::from(entry.takes)
}

/// Digest of bytes of the agent's own.
fn digest_of(bytes: &[u8]) -> Option<u64> {
    guest::digest(bytes.as_ptr() as u64, bytes.len() as u64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test has a descriptor of this number.
    const NOBODY: u32 = 1 << 20;

    fn keep(queue: &mut Queue, fd: u32, words: &[u8]) {
        let part = [words.as_ptr() as u64, words.len() as u64];
        let digest = queue.lay_out(&[part], words.len()).expect("it is there");
        let start = queue.end();
        let at = u32::MAX.wrapping_add(u32::try_from(start).expect("small"));
        queue.push((fd, at), words.len(), digest, 0);
    }

    /// One test, because there is one buffer.
    #[test]
    fn what_was_laid_out_is_what_goes_out_or_nothing_does() {
        // SAFETY: zeroes are an empty queue.
        let mut queue: Queue = unsafe { core::mem::zeroed() };
        keep(&mut queue, NOBODY, b"first");
        keep(&mut queue, NOBODY + 1, b"second");
        keep(&mut queue, NOBODY, b"third");
        // SAFETY: no other reference is alive.
        let bytes = unsafe { &mut *BUFFER.get() };
        assert_eq!(&bytes[..16], b"firstsecondthird");
        bytes[2] ^= 1;
        assert!(matches!(queue.release(), Released::Damaged));
        // SAFETY: no other reference is alive.
        let bytes = unsafe { &mut *BUFFER.get() };
        bytes[2] ^= 1;
        let Released::Refused(errno) = queue.release() else {
            panic!("no such descriptor");
        };
        queue.give_up(errno);
        assert_eq!(queue.next().map(|entry| entry.fd), Some(NOBODY + 1));
        assert_eq!(queue.take_refusal(), Some((NOBODY, errno)));
        assert_eq!(queue.take_refusal(), None);
        assert!(matches!(queue.release(), Released::Refused(_)));
        queue.give_up(errno);
        assert!(queue.is_empty());
        keep(&mut queue, NOBODY + 1, b"fourth");
        assert!(matches!(queue.release(), Released::Refused(_)));
        queue.give_up(errno + 1);
        assert_eq!(queue.take_refusal(), Some((NOBODY + 1, errno)));
        assert_eq!(queue.take_refusal(), None, "of a stream the first is told");
        queue.forget();
        let much = [0_u8; BYTES + 1];
        let all = [much.as_ptr() as u64, much.len() as u64];
        assert!(queue.lay_out(&[all], much.len()).is_err(), "it has no room");
    }

    /// Sends and takings of two streams; what a successor finds done.
    #[test]
    fn a_successor_goes_on_where_each_stream_has_come_to() {
        // SAFETY: zeroes are an empty queue.
        let mut queue: Queue = unsafe { core::mem::zeroed() };
        queue.push_taking((5, 100), 40, 0);
        queue.push((5, u32::MAX - 3), 10, 0, 1);
        queue.push_taking((6, 7), 1, 2);
        queue.push((5, 6), 20, 0, 3);
        queue.push((6, 0), 8, 0, 4);
        queue.follow();
        let written = |fd: u32| Some(if fd == 5 { 11 } else { 0 });
        let read = |fd: u32| Some(if fd == 5 { 140 } else { 7 });
        queue.push_closing(7, 5);
        queue.push_closing(8, 6);
        let is_open = |fd: u32| fd == 8;
        assert_eq!(queue.catch_up(written, read, is_open), Some(()));
        let found = queue.entries.each_ref().map(|it| (it.sent, it.done));
        let streams = [(0, true), (10, false), (0, false), (5, false), (0, false)];
        assert_eq!(found[..5], streams);
        assert_eq!(found[5..7], [(0, true), (0, false)], "one is closed");
        queue.follow();
        let other = |_: u32| Some(200);
        let caught_up = queue.catch_up(written, other, is_open);
        assert_eq!(caught_up, None, "it was not asked for");
        queue.follow();
        assert_eq!(queue.catch_up(other, read, is_open), None, "nor that");
    }

    #[test]
    fn a_descriptor_is_closed_once_and_no_other() {
        use std::os::fd::AsRawFd as _;
        // Numbers that no other test is given in between.
        let number = || {
            let file = std::fs::File::open("/").expect("it is there");
            let fd = u64::try_from(file.as_raw_fd()).expect("it is open");
            u32::try_from(sys::duplicate(fd, 700)).expect("room")
        };
        let [first, other] = [number(), number()];
        // SAFETY: zeroes are an empty queue.
        let mut queue: Queue = unsafe { core::mem::zeroed() };
        queue.push_closing(first, 0);
        queue.entries[0].fd = other;
        assert!(matches!(queue.release(), Released::Damaged));
        queue.entries[0].fd = first;
        assert!(matches!(queue.release(), Released::All));
        let is_open = |fd: u32| sys::is_open(fd.cast_signed());
        assert!(!is_open(first) && is_open(other));
        queue.push_closing(first, 1);
        assert!(
            matches!(queue.release(), Released::Damaged),
            "it is not open"
        );
    }
}
