//! A program that reads its own code where a jump to a stub stands.
//!
//! The pages with the jump can be executed only, so it faults there. It makes the instruction that
//! reads with the original bytes, and then goes on with the jump. That takes thousands of times as
//! long as the instruction, and is no progress of the program: who reads too much in a phase ends
//! its run to the target, so that nobody has to wait for it.
//!
//! Contract: the program never reads a byte of the jump.
//!
//! Not covered: what [`crate::coupling::patch`] says.

use core::sync::atomic::Ordering;

use rcoe_core::coupling::Stop;

use crate::arch::frames::{SigContext, SigInfo, UContext};
use crate::coupling::state::layout;
use crate::kernel::Kernel;
use crate::protocol::meeting::going::{drive, set_stepping, uproot};
use crate::protocol::meeting::{Doing, Meeting, Outcome, cpu_now};

/// What a fault and a trap cost beside what is seen in their handlers, in ns.
const UNSEEN_NS: u64 = 1_500;
/// The part of the timeout that may go into reading while others wait.
const PART: u64 = 4;

/// How the program reads its own code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// It makes the instruction that reads, which began then; and the key of the code.
    now: Option<(u64, u32)>,
    /// What reading has taken since the stub was planted, in ns.
    spent: u64,
}

impl Reading {
    /// Does it make such an instruction?
    pub(super) const fn is_on(&self) -> bool {
        self.now.is_some()
    }
}

/// The program has faulted: as it has read its own code, and what comes of that?
pub(crate) fn reads(
    kernel: &mut Kernel,
    info: &SigInfo,
    context: &mut UContext,
) -> Option<Outcome> {
    let timeout = kernel.control.timeout_ns.load(Ordering::Relaxed);
    let meeting = &mut kernel.replica.env_mut().meeting;
    let key = info.key().filter(|_| meeting.site.hides(info.first))?;
    let may = meeting.reading.spent < timeout / PART && !meeting.reading.is_on();
    if may && meeting.open(key, context) {
        return Some(Outcome::GoOn);
    }
    // Its run ends here; it reads what is there.
    assert!(uproot(kernel, context), "faults are at instructions");
    let meeting = &mut kernel.replica.env_mut().meeting;
    match meeting.doing {
        Doing::Running { .. } => meeting.ran(Stop::Overran, cpu_now()),
        _ => meeting.doing = Doing::Nothing,
    }
    Some(drive(kernel, context))
}

impl Meeting {
    /// The interrupted program makes one instruction with the original code.
    fn open(&mut self, key: u32, context: &mut UContext) -> bool {
        if !set_right(&mut context.machine, key, true) || !self.site.lift(true) {
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
        let closed = set_right(&mut context.machine, key, false);
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
