//! What a replica asks of the supervisor: matters of more than one group.
//!
//! Intuition: a request is a record in the region of the replica that asks, in a [`Letter`] that it
//! alone writes, and the supervisor is called by the [`crate::Doorbell`]. Who asks is known from
//! where the record lies. So asking depends on nothing of the host that the program can change:
//! neither on whom it may signal, nor on its limits, filters and descriptors; and nobody else can
//! ask in its name.
//!
//! The answer comes back in the group's [`crate::Control`]. Requests of a group are numbered; one
//! that comes again, from the successor of a lost primary, is answered again and not carried out
//! twice. Only a birth is made again, because the first may have had no issue.
//!
//! Contract: a record whose words do not fit together is none. That is also what the supervisor
//! sees while one is being written.
//!
//! # What the primary asks is what all would ask
//!
//! Before the vote that every numbered request comes after, each replica leaves the request that it
//! would make itself, with its number, in [`crate::Report::plan`]. The supervisor acts only if what
//! is asked is what most living members have left; otherwise the answer is [`NOT_AGREED`]. Nobody
//! has to be waited for: a member leaves the vote only after all have come to it, so all have left
//! their records, and none leaves another before it has the answer, as the call's result.
//!
//! | request | what is compared |
//! |---|---|
//! | [`Ask::Kill`], [`Ask::Queue`] | all: target, signal, what is enclosed |
//! | [`Ask::Birth`] | whether it wants a stand-in, and the signal at its end |
//! | [`Ask::StandIn`], [`Ask::Stop`] | all |
//! | [`Ask::SetGroup`], [`Ask::NewSession`], [`Ask::GetGroup`], [`Ask::GetSession`] | all |
//! | [`Ask::SetForeground`], [`Ask::TakeTerminal`], [`Ask::LeaveTerminal`] | all |
//! | [`Ask::Background`], [`Ask::Expired`] | nothing |
//!
//! Of a birth the members are not compared, which the vote may change, nor the attempt, which only
//! the primary counts. The last two only the primary finds out, and they do little: a rebuke gives
//! the sender's own process group SIGTTIN or SIGTTOU, no other signal, and only if that group is in
//! the background by the supervisor's books; a timer ends the sender's own process, by a signal
//! that all living members say is deadly.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of each argument: enough for every process id that Linux gives.
const FIELD_BITS: u32 = 22;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A group for a child of which these members (one bit each) have a replica, the first of them
    /// the sender; the answer is the group's number.
    Birth {
        /// Members of the parent.
        members: u8,
        /// A process is to stand in for the child, as for [`Ask::StandIn`].
        stand_in: bool,
        /// By which signal the parent wants to be told of its end, or a number that is none.
        exit_signal: u8,
    },
    /// `kill`, if the target is within the program: the answer is the call's result, or
    /// [`NOT_OURS`].
    Kill {
        /// As in the call.
        target: i32,
        /// As in the call.
        signal: u8,
    },
    /// The same for one process, with what the request encloses.
    Queue {
        /// As in the call.
        pid: u32,
        /// As in the call.
        signal: u8,
    },
    /// The process of the host that stands in for a process of the program: it ends when that one
    /// does. The answer is its process id, or [`NOT_OURS`].
    StandIn {
        /// The process of the program.
        pid: u32,
    },
    /// `setpgid`.
    SetGroup {
        /// As in the call.
        pid: u32,
        /// As in the call.
        group: u32,
    },
    /// `setsid`.
    NewSession,
    /// `getpgid`.
    GetGroup {
        /// As in the call.
        pid: u32,
    },
    /// `getsid`.
    GetSession {
        /// As in the call.
        pid: u32,
    },
    /// A signal's default action stops the program; answered when it goes on.
    Stop {
        /// The signal.
        signal: u8,
    },
    /// `tcsetpgrp` of the session's terminal.
    SetForeground {
        /// As in the call.
        group: u32,
    },
    /// The terminal that this descriptor leads to becomes the controlling one of the sender's
    /// session (`TIOCSCTTY`). The answer is the call's result, or [`NOT_OURS`] if the host does not
    /// let the supervisor have the descriptor.
    TakeTerminal {
        /// As in the call; in the table of the replica that sends this.
        fd: u32,
        /// It may be another session's.
        steal: bool,
    },
    /// The sender gives up its controlling terminal (`TIOCNOTTY`).
    LeaveTerminal,
    /// The program has used its terminal from the background. Numbered by itself; answered by
    /// [`crate::Job::rebukes`].
    Background {
        /// The signal that its process group gets for it.
        signal: u8,
    },
    /// A timer of the program is due whose signal ends it, and the program computes.
    /// Numbered by itself, and not answered.
    Expired {
        /// The signal.
        signal: u8,
    },
}

/// Answer to [`Ask::Kill`] and [`Ask::StandIn`]: the target is none of the program's processes; see
/// also [`Ask::TakeTerminal`].
pub const NOT_OURS: i64 = -1000;

/// Answer to a request that is not the one which most members have left: nothing was done.
pub const NOT_AGREED: i64 = -1001;

/// A request with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number among those that are answered of its group; of the others, which one it is of
    /// this replica. Never 0.
    pub number: u64,
    /// Tells a request from the same one made anew, since its first issue came to nothing.
    pub attempt: u8,
    /// What it asks for.
    pub ask: Ask,
    /// What comes with a signal ([`Ask::Queue`]): `si_code`, the sender's user above and its
    /// process below, the value.
    pub enclosed: [u64; 3],
}

/// Words of a record.
const WORDS: usize = 6;

/// A record as it lies in memory: number, request, what is enclosed, and a check of all.
pub type Record = [u64; WORDS];

/// Of no words that are all zero.
fn check(words: &[u64]) -> u64 {
    let mixed = words.iter().fold(0x5bd1_e995_9d1b_58d5_u64, |sum, word| {
        (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    });
    mixed | 1
}

impl Ask {
    const fn pack(self) -> (u64, u32, u32) {
        match self {
            Self::Birth {
                members,
                stand_in,
                exit_signal,
            } => (
                1,
                members as u32,
                stand_in as u32 | (exit_signal as u32) << 1,
            ),
            Self::Kill { target, signal } => (
                if target < 0 { 7 } else { 2 },
                target.unsigned_abs(),
                signal as u32,
            ),
            Self::SetGroup { pid, group } => (3, pid, group),
            Self::NewSession => (4, 0, 0),
            Self::GetGroup { pid } => (5, pid, 0),
            Self::GetSession { pid } => (6, pid, 0),
            Self::Expired { signal } => (8, signal as u32, 0),
            Self::Queue { pid, signal } => (9, pid, signal as u32),
            Self::StandIn { pid } => (10, pid, 0),
            Self::Stop { signal } => (11, signal as u32, 0),
            Self::SetForeground { group } => (12, group, 0),
            Self::Background { signal } => (13, signal as u32, 0),
            Self::TakeTerminal { fd, steal } => (14, fd, steal as u32),
            Self::LeaveTerminal => (15, 0, 0),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "packed again to compare")]
    const fn unpack(kind: u64, first: u32, second: u32) -> Option<Self> {
        Some(match kind {
            1 => Self::Birth {
                members: first as u8,
                stand_in: second & 1 != 0,
                exit_signal: (second >> 1) as u8,
            },
            2 => Self::Kill {
                target: first.cast_signed(),
                signal: second as u8,
            },
            3 => Self::SetGroup {
                pid: first,
                group: second,
            },
            4 => Self::NewSession,
            5 => Self::GetGroup { pid: first },
            6 => Self::GetSession { pid: first },
            7 => Self::Kill {
                target: first.cast_signed().wrapping_neg(),
                signal: second as u8,
            },
            8 => Self::Expired {
                signal: first as u8,
            },
            9 => Self::Queue {
                pid: first,
                signal: second as u8,
            },
            10 => Self::StandIn { pid: first },
            11 => Self::Stop {
                signal: first as u8,
            },
            12 => Self::SetForeground { group: first },
            13 => Self::Background {
                signal: first as u8,
            },
            14 => Self::TakeTerminal {
                fd: first,
                steal: second != 0,
            },
            15 => Self::LeaveTerminal,
            _ => return None,
        })
    }
}

impl Request {
    /// As a record.
    #[must_use]
    pub fn pack(self) -> Record {
        let (kind, first, second) = self.ask.pack();
        let tag = kind << 56
            | u64::from(self.attempt) << 48
            | (u64::from(first) & FIELD_MASK) << FIELD_BITS
            | u64::from(second) & FIELD_MASK;
        let [code, sender, value] = self.enclosed;
        let mut words = [self.number, tag, code, sender, value, 0];
        words[WORDS - 1] = check(&words[..WORDS - 1]);
        words
    }

    /// Reads a record; `None` if it is none.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "fields of that many bits")]
    pub fn unpack(words: Record) -> Option<Self> {
        let [number, tag, code, sender, value, _] = words;
        let first = (tag >> FIELD_BITS & FIELD_MASK) as u32;
        let second = (tag & FIELD_MASK) as u32;
        let request = Self {
            number,
            attempt: (tag >> 48) as u8,
            ask: Ask::unpack(tag >> 56, first, second)?,
            enclosed: [code, sender, value],
        };
        (number != 0 && request.pack() == words).then_some(request)
    }
}

impl Ask {
    /// What all members can know of it before they vote.
    const fn common(self) -> Self {
        match self {
            Self::Birth {
                stand_in,
                exit_signal,
                ..
            } => Self::Birth {
                members: 0,
                stand_in,
                exit_signal,
            },
            other => other,
        }
    }
}

impl Request {
    /// Whether a replica that left this record would ask the same.
    #[must_use]
    pub fn is_planned(self, plan: Record) -> bool {
        let is_first = self.attempt == 0 || matches!(self.ask, Ask::Birth { .. });
        is_first && self.planned().pack() == plan
    }

    /// As it is left before the vote.
    #[must_use]
    pub const fn planned(self) -> Self {
        Self {
            attempt: 0,
            ask: self.ask.common(),
            ..self
        }
    }
}

/// A place for one request, which one replica writes: the last one that it has made.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Letter([AtomicU64; WORDS]);

impl Letter {
    /// Writes the request; the supervisor is to be called then.
    pub fn post(&self, request: Request) {
        for (cell, word) in self.0.iter().zip(request.pack()) {
            cell.store(word, Ordering::Release);
        }
    }

    /// Takes it back.
    pub fn clear(&self) {
        for cell in &self.0 {
            cell.store(0, Ordering::Release);
        }
    }

    /// The words, which may be changing.
    #[must_use]
    pub fn words(&self) -> Record {
        core::array::from_fn(|at| self.0[at].load(Ordering::Acquire))
    }

    /// Number of the last request.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0[0].load(Ordering::Acquire)
    }
}

/// A futex by which replicas call the supervisor: all of them may write it, and only that it
/// changes means something.
#[repr(C)]
#[derive(Debug)]
pub struct Doorbell(pub AtomicU32);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ask: Ask) -> Request {
        Request {
            number: 255,
            attempt: 3,
            ask,
            enclosed: [1, 2, u64::MAX],
        }
    }

    #[test]
    fn requests_survive_a_round_trip() {
        for ask in [
            Ask::Birth {
                members: 0b101,
                stand_in: true,
                exit_signal: 255,
            },
            Ask::Queue {
                pid: 4_194_303,
                signal: 64,
            },
            Ask::StandIn { pid: 9 },
            Ask::Kill {
                target: 4_194_303,
                signal: 64,
            },
            Ask::Kill {
                target: -4_194_303,
                signal: 9,
            },
            Ask::SetGroup {
                pid: 0,
                group: 4_194_303,
            },
            Ask::NewSession,
            Ask::GetGroup { pid: 7 },
            Ask::GetSession { pid: 8 },
            Ask::Expired { signal: 64 },
            Ask::Stop { signal: 20 },
            Ask::SetForeground { group: 4_194_303 },
            Ask::Background { signal: 21 },
            Ask::TakeTerminal {
                fd: 4_194_303,
                steal: true,
            },
            Ask::LeaveTerminal,
        ] {
            let request = request(ask);
            assert_eq!(Request::unpack(request.pack()), Some(request));
        }
        assert_eq!(Request::unpack([0; WORDS]), None);
        assert_eq!(Request::unpack([u64::MAX; WORDS]), None);
    }

    #[test]
    fn a_record_with_one_wrong_bit_is_none() {
        let ask = Ask::Kill {
            target: -77,
            signal: 15,
        };
        let record = request(ask).pack();
        for bit in 0..WORDS * 64 {
            let mut words = record;
            words[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(Request::unpack(words), None, "bit {bit}");
        }
    }

    #[test]
    fn a_record_half_written_is_none() {
        let [old, new] = [Ask::NewSession, Ask::GetGroup { pid: 7 }].map(request);
        let new = Request { number: 256, ..new };
        for written in 1..WORDS {
            let mut words = old.pack();
            words[..written].copy_from_slice(&new.pack()[..written]);
            assert_eq!(Request::unpack(words), None, "{written} words");
        }
    }

    #[test]
    fn only_the_same_request_is_planned() {
        let kill = |target, signal| Request {
            attempt: 0,
            ..request(Ask::Kill { target, signal })
        };
        let plan = kill(77, 10).planned().pack();
        assert!(kill(77, 10).is_planned(plan));
        let other = Request {
            number: 256,
            ..kill(77, 10)
        };
        let again = Request {
            attempt: 1,
            ..kill(77, 10)
        };
        let more = Request {
            enclosed: [1, 2, 3],
            ..kill(77, 10)
        };
        for wrong in [
            kill(76, 10),
            kill(-77, 10),
            kill(77, 12),
            other,
            again,
            more,
        ] {
            assert!(!wrong.is_planned(plan), "{wrong:?}");
        }
        assert!(!kill(77, 10).is_planned([0; WORDS]));
    }

    #[test]
    fn a_birth_is_planned_whatever_the_vote_made_of_the_members() {
        let birth = |members, stand_in, exit_signal| {
            request(Ask::Birth {
                members,
                stand_in,
                exit_signal,
            })
        };
        let plan = birth(0b111, true, 17).planned().pack();
        assert!(birth(0b110, true, 17).is_planned(plan));
        assert!(!birth(0b111, false, 17).is_planned(plan));
        assert!(!birth(0b111, true, 10).is_planned(plan));
    }

    #[test]
    fn a_letter_holds_the_last_request() {
        let letter = Letter(core::array::from_fn(|_| AtomicU64::new(0)));
        assert_eq!(Request::unpack(letter.words()), None);
        let request = request(Ask::NewSession);
        letter.post(request);
        assert_eq!(Request::unpack(letter.words()), Some(request));
        assert_eq!(letter.number(), 255);
        letter.clear();
        assert_eq!(Request::unpack(letter.words()), None);
    }
}
