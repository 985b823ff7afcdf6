//! Job control: who is stopped, and whose a terminal is.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::GROUPS;

/// A process was stopped by a signal, or continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobState {
    /// Counts the changes, from 1.
    pub count: u32,
    /// The signal that stopped it; `None` once it was continued.
    pub stopped_by: Option<u8>,
}

impl JobState {
    /// As a word; never 0.
    #[must_use]
    pub const fn pack(self) -> u64 {
        let signal = match self.stopped_by {
            Some(signal) => signal,
            None => 0,
        };
        (self.count as u64) << 8 | signal as u64
    }

    /// Reads the word; `None` while nothing has happened.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "fields of that many bits")]
    pub const fn unpack(word: u64) -> Option<Self> {
        if word == 0 {
            return None;
        }
        Some(Self {
            count: (word >> 8) as u32,
            stopped_by: match word as u8 {
                0 => None,
                signal => Some(signal),
            },
        })
    }
}

/// The controlling terminal of a session.
#[repr(C)]
#[derive(Debug)]
pub struct Terminal {
    /// Its device number as `TIOCGDEV` tells it; 0 for an empty place.
    pub device: AtomicU32,
    /// The session.
    pub session: AtomicU32,
    /// The process group in its foreground.
    pub foreground: AtomicU32,
    /// Process id of the host's process that leads a session on this terminal for the program's;
    /// 0 for the one that rcoe has.
    pub deputy: AtomicU32,
}

/// What job control needs to know of a process. The supervisor alone writes it.
#[repr(C)]
#[derive(Debug)]
pub struct Job {
    /// [`JobState::pack`] of the last stop or continuation, or 0.
    pub state: AtomicU64,
    /// Place of its terminal in [`crate::Control::terminals`] of group 0, plus one; 0 without one.
    pub terminal: AtomicU32,
    /// How often it was told that it has used its terminal from the background.
    pub rebukes: AtomicU32,
    /// 1 while nobody of its session could continue its process group: the group is orphaned.
    pub orphaned: AtomicU32,
}

/// A terminal for every session there can be. The first is the one that rcoe has.
pub type Terminals = [Terminal; GROUPS];

impl Job {
    /// The place of its terminal.
    #[must_use]
    pub fn terminal(&self) -> Option<usize> {
        let place = self.terminal.load(Ordering::Acquire);
        usize::try_from(place).ok()?.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_a_round_trip() {
        for stopped_by in [None, Some(19), Some(64)] {
            let state = JobState {
                count: u32::MAX,
                stopped_by,
            };
            assert_eq!(JobState::unpack(state.pack()), Some(state));
        }
        assert_eq!(JobState::unpack(0), None);
    }
}
