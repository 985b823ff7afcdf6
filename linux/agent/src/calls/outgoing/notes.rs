//! What all replicas note of the program's descriptors.
//!
//! A word for each: whether effects on it may wait, and how much of them, or whether its end can be
//! seen outside. Notes follow from the calls of the program and from records, so they are the same
//! in all replicas. Whatever is not known to be harmless is [`State::Other`].

use crate::convert::{low32, size};

/// Descriptors of which notes are kept.
pub(super) const DESCRIPTORS: usize = 1024;
/// Refusals of which the program was not told.
const FAILURES: usize = 8;

/// What all replicas know of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing by which anything about it could go otherwise than usual.
    Other,
    /// It was opened for reading.
    Opened,
    /// And is a regular file.
    Regular,
    /// And each replica reads it by itself.
    Direct,
    /// A socket that this process has made or accepted.
    Fresh,
    /// It has been written to.
    Written,
    /// A stream that takes so many bytes more, counted as the host does.
    Stream { room: u32, never_waits: bool },
}

impl State {
    const STREAM: u32 = 1 << 31;
    const NEVER_WAITS: u32 = 1 << 30;
    const MOST_ROOM: u32 = Self::NEVER_WAITS - 1;

    pub(super) const fn word(self) -> u32 {
        match self {
            Self::Other => 0,
            Self::Opened => 1,
            Self::Regular => 2,
            Self::Fresh => 3,
            Self::Written => 4,
            Self::Direct => 5,
            Self::Stream { room, never_waits } => {
                let room = if room < Self::MOST_ROOM {
                    room
                } else {
                    Self::MOST_ROOM
                };
                let flag = if never_waits { Self::NEVER_WAITS } else { 0 };
                Self::STREAM | flag | room
            }
        }
    }

    pub(super) const fn of(word: u32) -> Self {
        match word {
            1 => Self::Opened,
            2 => Self::Regular,
            3 => Self::Fresh,
            4 => Self::Written,
            5 => Self::Direct,
            word if word & Self::STREAM != 0 => Self::Stream {
                room: word & Self::MOST_ROOM,
                never_waits: word & Self::NEVER_WAITS != 0,
            },
            _ => Self::Other,
        }
    }

    /// After something about it was changed.
    pub(super) const fn forgotten(self) -> Self {
        match self {
            Self::Fresh | Self::Written | Self::Stream { .. } => Self::Fresh,
            Self::Other | Self::Opened | Self::Regular | Self::Direct => Self::Other,
        }
    }
}

/// What all replicas know alike. Words without gaps: replicas are compared byte by byte. As zeroes
/// nothing is known and nothing waits.
#[repr(C)]
pub(crate) struct Outgoing {
    /// Effects may wait in this group.
    pub(super) enabled: u32,
    /// The program locks parts of files: then closing one of a file's descriptors ends all locks.
    pub(super) locks: u32,
    /// Effects since the last rendezvous, and their bytes.
    pub(super) count: u32,
    pub(super) bytes: u32,
    /// Descriptor and errno of effects that were refused.
    failed: [[u32; 2]; FAILURES],
    pub(super) failures: u32,
    /// Which descriptors are to be closed, and how many.
    pub(super) closings: u32,
    closing: Marks,
    /// Of which streams it is known how many were read.
    followed: Marks,
    /// From which streams something is to be taken out that was read, and how often.
    taking: Marks,
    takings: u32,
    states: [u32; DESCRIPTORS],
    /// Of streams: how many bytes were written to them, and read from them, counted as the host
    /// does.
    written: [u32; DESCRIPTORS],
    read: [u32; DESCRIPTORS],
}

/// A mark for each descriptor.
#[repr(C)]
struct Marks([u32; DESCRIPTORS / 32]);

impl Marks {
    fn has(&self, fd: u32) -> bool {
        let word = self.0.get(size(u64::from(fd) / 32));
        word.is_some_and(|word| word & 1 << (fd % 32) != 0)
    }

    fn set(&mut self, fd: u32, mark: bool) {
        if let Some(word) = self.0.get_mut(size(u64::from(fd) / 32)) {
            let bit = 1 << (fd % 32);
            *word = if mark { *word | bit } else { *word & !bit };
        }
    }
}

impl Outgoing {
    /// Does anything wait, or may?
    #[inline(always)]
    pub(crate) const fn is_open(&self) -> bool {
        self.count != 0
    }

    /// Is there anything to tell of this descriptor, or a refusal of which nobody was told?
    #[inline(always)]
    pub(crate) fn knows(&self, fd: u64) -> bool {
        let word = self.states.get(size(fd & 0xffff_ffff));
        self.failures != 0 || word.is_some_and(|&word| word != 0)
    }

    /// Every descriptor may be another's, too, or is none any more.
    pub(crate) fn forget_all(&mut self) {
        self.states.fill(State::Other.word());
        self.failures = 0;
    }

    #[inline]
    pub(super) fn state(&self, fd: u64) -> State {
        let word = self.states.get(size(low32(fd).into()));
        word.map_or(State::Other, |word| State::of(*word))
    }

    pub(super) fn set(&mut self, fd: u64, state: State) {
        if let Some(word) = self.states.get_mut(size(low32(fd).into())) {
            *word = state.word();
        }
    }

    /// May each replica read this file by itself, and is it noted that it does?
    #[inline]
    pub(crate) fn reads_directly(&self, fd: u64) -> Option<bool> {
        match self.state(fd) {
            State::Opened | State::Regular => Some(false),
            State::Direct => Some(true),
            _ => None,
        }
    }

    /// Each replica reads this file by itself: its number must stay what it is until all have.
    pub(crate) fn read_directly(&mut self, fd: u64) {
        self.set(fd, State::Direct);
    }

    /// The position in a stream of the next byte to be written.
    pub(super) fn position(&self, fd: u32) -> u32 {
        let position = self.written.get(size(fd.into()));
        position.copied().unwrap_or(0)
    }

    pub(super) fn set_position(&mut self, fd: u32, position: u32) {
        if let Some(word) = self.written.get_mut(size(fd.into())) {
            *word = position;
        }
    }

    /// The position in a stream of the next byte to be read; `None` if that is not known.
    pub(super) fn read_position(&self, fd: u32) -> Option<u32> {
        let position = self.read.get(size(fd.into())).copied();
        position.filter(|_| self.followed.has(fd))
    }

    pub(super) fn set_read_position(&mut self, fd: u32, position: Option<u32>) {
        self.followed.set(fd, position.is_some());
        if let (Some(position), Some(word)) = (position, self.read.get_mut(size(fd.into()))) {
            *word = position;
        }
    }

    /// Is something to be taken out of this stream that was read?
    pub(super) fn is_taking(&self, fd: u32) -> bool {
        self.taking.has(fd)
    }

    pub(super) fn take_later(&mut self, fd: u32) {
        self.taking.set(fd, true);
        self.takings += 1;
        self.count += 1;
    }

    /// Is this descriptor to be closed?
    pub(super) fn is_closing(&self, fd: u32) -> bool {
        self.closing.has(fd)
    }

    pub(super) fn close_later(&mut self, fd: u32) {
        self.closing.set(fd, true);
        self.closings += 1;
        self.count += 1;
    }

    /// Nothing waits any more.
    pub(super) const fn settle(&mut self) {
        self.count = 0;
        self.bytes = 0;
        if self.takings != 0 {
            self.taking = Marks([0; DESCRIPTORS / 32]);
            self.takings = 0;
        }
        if self.closings != 0 {
            self.closing = Marks([0; DESCRIPTORS / 32]);
            self.closings = 0;
        }
    }

    /// The errno that the next write to this descriptor fails with.
    pub(super) fn take_failure(&mut self, fd: u32) -> Option<u32> {
        let count = size(self.failures.into());
        let at = self.failed[..count].iter().position(|it| it[0] == fd)?;
        let [_, errno] = self.failed[at];
        self.failed.copy_within(at + 1..count, at);
        self.failures -= 1;
        Some(errno)
    }

    /// The number may soon be another's, whom no refusal is about.
    pub(super) fn forget_failures(&mut self, fd: u32) {
        while self.take_failure(fd).is_some() {}
    }

    pub(super) fn add_failure(&mut self, fd: u32, errno: u32) {
        self.set(fd.into(), State::Other);
        if let Some(place) = self.failed.get_mut(size(self.failures.into())) {
            *place = [fd, errno];
            self.failures += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Outgoing = Outgoing {
        enabled: 0,
        locks: 0,
        count: 0,
        bytes: 0,
        failed: [[0; 2]; FAILURES],
        failures: 0,
        states: [0; DESCRIPTORS],
        written: [0; DESCRIPTORS],
        read: [0; DESCRIPTORS],
        followed: Marks([0; DESCRIPTORS / 32]),
        taking: Marks([0; DESCRIPTORS / 32]),
        takings: 0,
        closing: Marks([0; DESCRIPTORS / 32]),
        closings: 0,
    };

    #[test]
    fn a_state_is_a_word() {
        let stream = |room, never_waits| State::Stream { room, never_waits };
        for state in [
            State::Other,
            State::Opened,
            State::Regular,
            State::Fresh,
            State::Written,
            State::Direct,
            stream(0, false),
            stream(77, true),
            stream(State::MOST_ROOM, true),
        ] {
            assert_eq!(State::of(state.word()), state);
        }
        let more = stream(u32::MAX, false);
        assert_eq!(State::of(more.word()), stream(State::MOST_ROOM, false));
    }

    #[test]
    fn a_refusal_is_told_once_and_of_its_descriptor() {
        let mut outgoing = NOTHING;
        outgoing.set(7, State::Written);
        outgoing.add_failure(7, 32);
        outgoing.add_failure(9, 104);
        assert_eq!(outgoing.state(7), State::Other, "it is written to at once");
        assert_eq!(outgoing.take_failure(8), None);
        assert_eq!(outgoing.take_failure(7), Some(32));
        assert_eq!(outgoing.take_failure(7), None);
        assert_eq!(outgoing.take_failure(9), Some(104));
    }

    #[test]
    fn of_a_number_that_is_free_no_refusal_is_known() {
        let mut outgoing = NOTHING;
        for (fd, errno) in [(7, 104), (9, 32), (7, 32)] {
            outgoing.add_failure(fd, errno);
        }
        outgoing.forget_failures(7);
        assert_eq!(outgoing.take_failure(7), None);
        assert_eq!(outgoing.take_failure(9), Some(32));
    }

    #[test]
    fn more_refusals_than_places_do_no_harm() {
        let mut outgoing = NOTHING;
        for fd in 0..20 {
            outgoing.add_failure(fd, 32);
        }
        assert_eq!(outgoing.take_failure(7), Some(32));
        assert_eq!(outgoing.take_failure(8), None);
    }

    #[test]
    fn descriptors_beyond_the_notes_are_like_any_other() {
        let mut outgoing = NOTHING;
        outgoing.set(1 << 20, State::Fresh);
        assert_eq!(outgoing.state(1 << 20), State::Other);
        assert_eq!(outgoing.state(u64::MAX), State::Other);
    }
}
