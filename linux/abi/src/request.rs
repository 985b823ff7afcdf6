//! What a group's primary asks of the supervisor: matters of more than one group.
//!
//! A request travels as the value of a queued [`crate::SIG_NOTIFY`]. The answer comes back in the
//! group's [`crate::Control`]. Requests of a group are numbered; one that comes again, from the
//! successor of a lost primary, is answered again and not carried out twice. Only a birth is made
//! again, because the first may have had no issue.

/// Highest process id that Linux gives.
const PID_BITS: u32 = 22;
const PID_MASK: u64 = (1 << PID_BITS) - 1;

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
    },
    /// `kill`, if the target is within the program: the answer is the call's result, or
    /// [`NOT_OURS`].
    Kill {
        /// As in the call.
        target: i32,
        /// As in the call.
        signal: u8,
    },
    /// The same for one process, with what [`crate::Report::enclosed`] says.
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
    /// The program has used its terminal from the background. Not numbered; answered by
    /// [`crate::Job::rebukes`].
    Background {
        /// The signal that its process group gets for it.
        signal: u8,
    },
    /// A timer of the program is due whose signal ends it, and the program computes. Not numbered,
    /// and not answered.
    Expired {
        /// The signal.
        signal: u8,
    },
}

/// Answer to [`Ask::Kill`] and [`Ask::StandIn`]: the target is none of the program's processes; see
/// also [`Ask::TakeTerminal`].
pub const NOT_OURS: i64 = -1000;

/// A request with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Low bits of its number within its group.
    pub number: u8,
    /// What it asks for.
    pub ask: Ask,
}

impl Request {
    /// As the value of a signal; never 0.
    #[must_use]
    pub const fn pack(self) -> u64 {
        let (kind, first, second) = match self.ask {
            Ask::Birth { members, stand_in } => (1, members as u32, stand_in as u32),
            Ask::Kill { target, signal } => (
                if target < 0 { 7 } else { 2 },
                target.unsigned_abs(),
                signal as u32,
            ),
            Ask::SetGroup { pid, group } => (3, pid, group),
            Ask::NewSession => (4, 0, 0),
            Ask::GetGroup { pid } => (5, pid, 0),
            Ask::GetSession { pid } => (6, pid, 0),
            Ask::Expired { signal } => (8, signal as u32, 0),
            Ask::Queue { pid, signal } => (9, pid, signal as u32),
            Ask::StandIn { pid } => (10, pid, 0),
            Ask::Stop { signal } => (11, signal as u32, 0),
            Ask::SetForeground { group } => (12, group, 0),
            Ask::Background { signal } => (13, signal as u32, 0),
            Ask::TakeTerminal { fd, steal } => (14, fd, steal as u32),
            Ask::LeaveTerminal => (15, 0, 0),
        };
        kind << 56
            | (self.number as u64) << 48
            | (first as u64 & PID_MASK) << PID_BITS
            | second as u64 & PID_MASK
    }

    /// Reads the value of a signal; `None` if it is no request.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "fields of that many bits")]
    pub const fn unpack(word: u64) -> Option<Self> {
        let first = (word >> PID_BITS & PID_MASK) as u32;
        let second = (word & PID_MASK) as u32;
        let ask = match word >> 56 {
            1 => Ask::Birth {
                members: first as u8,
                stand_in: second != 0,
            },
            2 => Ask::Kill {
                target: first.cast_signed(),
                signal: second as u8,
            },
            3 => Ask::SetGroup {
                pid: first,
                group: second,
            },
            4 => Ask::NewSession,
            5 => Ask::GetGroup { pid: first },
            6 => Ask::GetSession { pid: first },
            7 => Ask::Kill {
                target: -first.cast_signed(),
                signal: second as u8,
            },
            8 => Ask::Expired {
                signal: first as u8,
            },
            9 => Ask::Queue {
                pid: first,
                signal: second as u8,
            },
            10 => Ask::StandIn { pid: first },
            11 => Ask::Stop {
                signal: first as u8,
            },
            12 => Ask::SetForeground { group: first },
            13 => Ask::Background {
                signal: first as u8,
            },
            14 => Ask::TakeTerminal {
                fd: first,
                steal: second != 0,
            },
            15 => Ask::LeaveTerminal,
            _ => return None,
        };
        Some(Self {
            number: (word >> 48) as u8,
            ask,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_a_round_trip() {
        for ask in [
            Ask::Birth {
                members: 0b101,
                stand_in: true,
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
            let request = Request { number: 255, ask };
            assert_eq!(Request::unpack(request.pack()), Some(request));
        }
        assert_eq!(Request::unpack(0), None);
        assert_eq!(Request::unpack(u64::MAX), None);
    }
}
