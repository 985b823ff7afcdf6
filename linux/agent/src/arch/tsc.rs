//! When the time stamp counter traps.
//!
//! The counter is another one at each reading, so what a program reads has to be the primary's word
//! for all. An instruction that reads it is a trap of its own where it was found in the code and
//! replaced ([`crate::arch::instructions`]). If all of a program's code was looked through the
//! counter need not trap besides, and the primary reads clocks by the host's vDSO.
//!
//! Contract: the counter traps in all replicas, from the same point of the trace on, before there
//! is memory that can be executed and was not looked through, or can change afterwards; and until
//! the program executes another one. What decides is alike in all replicas: what the program asks
//! for, the bytes of its files, and the primary's word on what a descriptor is. A replica that
//! decides otherwise by a fault has other memory than its siblings; at worst it reads other values.
//!
//! It traps once the program
//! * maps anonymous, shared or writable memory as executable, or a file without a name: it changes;
//! * makes memory executable later, which may have been written;
//! * moves or enlarges a mapping with code, or has its pages read anew: there is more of it, or
//!   what was replaced is back;
//! * writes to its own memory by `/proc/self/mem`, in spite of its protection;
//! * makes all readable memory executable (`personality`);
//! * has bytes in its code of which it is not plain that they are no such instruction.
//!
//! Not covered: a file of a name that changes in place while its code is mapped privately, and
//! jumps into the middle of an instruction. The counter may then be read behind the agent's back:
//! the replicas differ, which is a mismatch and a stop.

use linux_raw_sys::prctl::{PR_SET_TSC, PR_TSC_ENABLE, PR_TSC_SIGSEGV};

pub(crate) use crate::arch::instructions::{
    add_code, before_change, before_mapping, distrust, moved, restored, settle,
};
use crate::sys;

pub(super) fn set(open: bool) {
    let how = if open { PR_TSC_ENABLE } else { PR_TSC_SIGSEGV };
    sys::prctl(PR_SET_TSC, [u64::from(how), 0, 0, 0]).expect("every x86 kernel can trap rdtsc");
}

/// The counter, for the agent.
pub(crate) fn read(trapped: bool) -> u64 {
    if trapped {
        set(true);
    }
    // SAFETY: open, at least for this moment.
    let value = unsafe { core::arch::x86_64::_rdtsc() };
    if trapped {
        set(false);
    }
    value
}

/// Most ranges that are known.
const RANGES: usize = 128;

/// Where the program has, or has had, code. Words without gaps; zeroes are none.
pub(crate) struct Ranges {
    list: [[u64; 2]; RANGES],
    count: usize,
}

impl Ranges {
    /// A new program has none.
    pub(crate) fn clear(&mut self) {
        self.list[..self.count].fill([0; 2]);
        self.count = 0;
    }

    pub(super) fn meets(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len.max(1));
        let mut live = self.list[..self.count].iter();
        live.any(|[from, to]| *from < end && start < *to)
    }

    /// Adds a range to those that it meets or touches; false if there is no room.
    pub(super) fn add(&mut self, start: u64, len: u64) -> bool {
        let mut all = [start, start.saturating_add(len)];
        let mut at = 0;
        while at < self.count {
            let [from, to] = self.list[at];
            if from <= all[1] && all[0] <= to {
                all = [all[0].min(from), all[1].max(to)];
                self.count -= 1;
                self.list[at] = self.list[self.count];
                self.list[self.count] = [0; 2];
                at = 0;
            } else {
                at += 1;
            }
        }
        let room = self.count < RANGES;
        if room {
            self.list[self.count] = all;
            self.count += 1;
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Ranges = Ranges {
        list: [[0; 2]; RANGES],
        count: 0,
    };

    #[test]
    fn ranges_that_touch_are_one() {
        let mut ranges = NONE;
        assert!(ranges.add(100, 10) && ranges.add(120, 10) && ranges.add(200, 10));
        assert_eq!(ranges.count, 3);
        assert!(ranges.add(110, 10));
        assert_eq!(ranges.count, 2);
        assert!(!ranges.meets(90, 10) && ranges.meets(90, 11));
        assert!(ranges.meets(129, 1) && !ranges.meets(130, 70));
        assert!(ranges.meets(205, 0), "a length of 0 is of one place");
        assert!(ranges.meets(0, u64::MAX));
        ranges.clear();
        assert!(!ranges.meets(0, u64::MAX));
        assert_eq!(ranges.list, NONE.list);
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let mut ranges = NONE;
        let most = RANGES as u64;
        assert!((0..most).all(|at| ranges.add(at * 10, 5)));
        assert!(!ranges.add(most * 10, 5));
        assert!(ranges.add(15, 5), "between two that it joins");
        assert!(ranges.add(most * 10, 5));
    }
}
