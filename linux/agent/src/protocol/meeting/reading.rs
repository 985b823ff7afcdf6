//! A program that reads its own code where a jump to a stub stands, or writes there.
//!
//! The pages with the jump can be executed only, or not be written if the program has made that
//! code, so it faults there. It makes the instruction with the original bytes, and then goes on
//! with the jump, unless it has changed them. That takes thousands of times as long as the
//! instruction, and is no progress of the program: who does that too often in a phase ends its run
//! to the target, so that nobody has to wait for it.
//!
//! Contract: the program never reads a byte of the jump, and what it writes stays.
//!
//! Not covered: what [`crate::coupling::patch`] says.

use crate::arch::frames::{SigContext, UContext};
use crate::coupling::state::layout;
use crate::protocol::meeting::going::set_stepping;
use crate::protocol::meeting::{Doing, Meeting, cpu_now};

/// What a fault and a trap cost beside what is seen in their handlers, in ns.
const UNSEEN_NS: u64 = 1_500;
/// The part of the timeout that may go into reading while others wait.
const PART: u64 = 4;

/// How the program reads its own code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// It makes the instruction, which began then; and the key of the code, if that has one.
    now: Option<(u64, Option<u32>)>,
    /// What reading has taken since the stub was planted, in ns.
    spent: u64,
}

impl Reading {
    /// Does it make such an instruction?
    pub(super) const fn is_on(&self) -> bool {
        self.now.is_some()
    }

    /// May it make one more while others wait for it, who do so for this long?
    pub(super) const fn may_go_on(&self, timeout: u64) -> bool {
        !self.is_on() && self.spent < timeout / PART
    }
}

impl Meeting {
    /// The interrupted program makes one instruction with the original code.
    pub(super) fn open(&mut self, key: Option<u32>, context: &mut UContext) -> bool {
        let may = key.is_none_or(|key| set_right(&mut context.machine, key, true));
        if !may || !self.site.lift() {
            return false;
        }
        self.reading.now = Some((cpu_now(), key));
        self.stepping = true;
        set_stepping(context, true);
        true
    }

    /// It has made that instruction, or has been stopped before it. False if it had none to make.
    pub(super) fn close(&mut self, context: &mut UContext) -> bool {
        let Some((since, key)) = self.reading.now.take() else {
            return false;
        };
        self.stepping = false;
        set_stepping(context, false);
        let closed = key.is_none_or(|key| set_right(&mut context.machine, key, false));
        assert!(closed, "the host saves what it has saved before");
        let spent = cpu_now().saturating_sub(since) + UNSEEN_NS;
        self.reading.spent += spent;
        self.leave_out(spent);
        self.planted = self.planted.saturating_add(spent);
        if let Doing::Running { since, .. } = &mut self.doing {
            *since = since.saturating_add(spent);
        }
        true
    }
}

/// Lets the interrupted program read pages with this key, or not. False if its rights are not to be
/// found.
fn set_right(machine: &mut SigContext, key: u32, may: bool) -> bool {
    /// Offsets of how much the kernel has saved, and of which components.
    const HELD: u64 = 480;
    const SAVED: u64 = 512;
    let refused = 1_u32 << (2 * key);
    // SAFETY: the kernel's own frame on the agent's stack, which says there how long it is.
    unsafe {
        let held = ((machine.fpstate + HELD) as *const u32).read();
        let saved = ((machine.fpstate + SAVED) as *const u64).read();
        let Some(at) = layout().rights(saved) else {
            return false;
        };
        if at as u64 + 4 > u64::from(held) {
            return false;
        }
        let rights = (machine.fpstate + at as u64) as *mut u32;
        let now = rights.read();
        rights.write(if may { now & !refused } else { now | refused });
    }
    true
}
