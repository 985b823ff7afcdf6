//! What a program gets to know of a signal (`siginfo`).

use linux_raw_sys::general::{
    CLD_EXITED, CLD_KILLED, SI_KERNEL, SI_TIMER, SI_TKILL, SI_USER, SIGCHLD,
};

use super::ENDED_BY;

/// Bytes that a program gets, and those of them that are not zero.
pub(super) const INFO_BYTES: usize = 128;
const KNOWN_BYTES: usize = 48;

/// What is known of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Info {
    pub(super) signal: u32,
    pub(super) errno: u32,
    /// Where it is from.
    pub(super) code: u32,
    /// What else there is depends on that.
    pub(super) rest: [u64; 4],
    /// The timer that it is of, if it is of one.
    pub(super) timer: Option<u32>,
}

#[expect(clippy::cast_sign_loss, reason = "as it stands in memory")]
const BY_TKILL: u32 = SI_TKILL as u32;
#[expect(clippy::cast_sign_loss, reason = "as it stands in memory")]
const BY_TIMER: u32 = SI_TIMER as u32;

impl Info {
    /// Sent by a process, to a process or to a thread.
    pub(crate) const fn sent(signal: u32, to_thread: bool, by: u64) -> Self {
        let code = if to_thread { BY_TKILL } else { SI_USER };
        Self {
            signal,
            errno: 0,
            code,
            rest: [by, 0, 0, 0],
            timer: None,
        }
    }

    /// Of the end of a child.
    pub(crate) fn of_child(child: u64, ended: u64) -> Self {
        let (code, status) = match ended.checked_sub(ENDED_BY) {
            Some(signal) => (CLD_KILLED, signal),
            None => (CLD_EXITED, ended),
        };
        Self {
            signal: SIGCHLD,
            errno: 0,
            code,
            rest: [child, status, 0, 0],
            timer: None,
        }
    }

    /// Sent by the system.
    pub(super) const fn of_system(signal: u32) -> Self {
        Self::of_fault(signal, SI_KERNEL, 0)
    }

    /// Of what a thread did, with an address.
    pub(super) const fn of_fault(signal: u32, code: u32, address: u64) -> Self {
        Self {
            signal,
            errno: 0,
            code,
            rest: [address, 0, 0, 0],
            timer: None,
        }
    }

    /// Sent by a timer, with its value.
    pub(super) fn of_timer(signal: u32, timer: u32, value: u64) -> Self {
        Self {
            signal,
            errno: 0,
            code: BY_TIMER,
            rest: [timer.into(), value, 0, 0],
            timer: Some(timer),
        }
    }

    /// Says how often its timer rang besides.
    pub(super) const fn missed(mut self, times: u64) -> Self {
        self.rest[0] |= times << 32;
        self
    }

    /// One of which nothing could be kept.
    pub(super) const fn lost(signal: u32) -> Self {
        Self {
            signal,
            errno: 0,
            code: SI_USER,
            rest: [0; 4],
            timer: None,
        }
    }

    /// As a program says.
    pub(super) fn from_bytes(signal: u32, bytes: &[u8; INFO_BYTES]) -> Self {
        let half = |at: usize| {
            let mut half = [0; 4];
            half.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(half)
        };
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        Self {
            signal,
            errno: half(4),
            code: half(8),
            rest: [word(16), word(24), word(32), word(40)],
            timer: None,
        }
    }

    /// Did `kill` send it, of which less is told if there is no room?
    pub(super) const fn is_plain(&self) -> bool {
        self.code == SI_USER
    }

    /// Does it say that the kernel sent it, or `kill` or `tkill`?
    pub(super) const fn is_of_kernel(&self) -> bool {
        self.code >> 31 == 0 || self.code == BY_TKILL
    }

    pub(crate) fn bytes(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[..4].copy_from_slice(&self.signal.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.code.to_le_bytes());
        let rest = bytes[16..KNOWN_BYTES].chunks_exact_mut(8);
        for (place, word) in rest.zip(self.rest) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}
