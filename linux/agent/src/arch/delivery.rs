//! Signal frames on the program's stack: built for its handlers, taken back at `rt_sigreturn`.
//!
//! The layout is the kernel's, extended state and its software-reserved words included, because
//! programs and unwinders look into it.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::entry::{self, Cpu, TrapFrame, guarded};
use crate::arch::frames::{SIGINFO_BYTES, SigContext, SigInfo, UContext};
use crate::arch::mem_functions::copy_forward;
use crate::convert;
use crate::memory::guest::{self, Fault};

/// Bytes below the stack pointer that belong to the interrupted function.
const RED_ZONE: u64 = 128;
/// Where the legacy part of the extended state keeps words for software.
const SOFTWARE_WORDS: u64 = 464;
/// Where the header of the extended state is.
const HEADER: u64 = 512;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Extended state present, segments valid, stack segment restored strictly.
const CONTEXT_FLAGS: u64 = 7;
/// Direction, trap and resume flags, which a handler starts without.
const CLEARED_FLAGS: u64 = 1 << 10 | 1 << 8 | 1 << 16;

/// Size of the extended state with the features the kernel has enabled, and these features.
static EXTENDED_BYTES: AtomicU64 = AtomicU64::new(0);
static EXTENDED_FEATURES: AtomicU64 = AtomicU64::new(0);

/// Asks the CPU how large the extended state is; before `cpuid` is trapped.
pub(crate) fn measure() {
    let leaf = core::arch::x86_64::__cpuid_count(0xd, 0);
    EXTENDED_BYTES.store(u64::from(leaf.ebx), Ordering::Relaxed);
    let features = u64::from(leaf.edx) << 32 | u64::from(leaf.eax);
    EXTENDED_FEATURES.store(features, Ordering::Relaxed);
}

/// Size of the extended state.
pub(crate) fn extended_bytes() -> u64 {
    EXTENDED_BYTES.load(Ordering::Relaxed)
}

/// Components of which `xsave` writes the bytes also where the CPU knows that they are as they were
/// at the start: x87, SSE, AVX, bounds, AVX-512, protection keys and APX. Those that are only there
/// on demand, like AMX, are not among them: loading one that was not asked for faults.
const STEADY: u64 = 0x2ff | 1 << 19;

/// Saves the program's whole extended state into `area` (XSAVE format), the same bytes for the same
/// state.
///
/// Which components the CPU tracks as unused depends on when it was last interrupted, so replicas
/// would differ in the header. Here it calls all used, which loads the same.
///
/// # Safety
/// As for [`entry::save_extended`].
pub(crate) unsafe fn save_extended(frame: &TrapFrame, area: *mut u8) {
    // SAFETY: forwarded from the caller.
    unsafe {
        entry::save_extended(frame, area);
        call_used(area);
    }
}

/// Marks all steady components of a whole image as used.
///
/// # Safety
/// `area` must be writable, and hold an image with all components that the CPU has enabled.
unsafe fn call_used(area: *mut u8) {
    let steady = STEADY & EXTENDED_FEATURES.load(Ordering::Relaxed);
    // SAFETY: the header is part of the image, which is aligned.
    unsafe { *area.add(convert::size(HEADER)).cast::<u64>() |= steady };
}

/// How a handler is entered.
pub(crate) struct Entry {
    pub(crate) signal: u32,
    pub(crate) handler: u64,
    pub(crate) restorer: u64,
    /// Mask to go back to.
    pub(crate) mask: u64,
    /// The program's alternate stack.
    pub(crate) stack: [u64; 3],
    /// The handler asks for it, and there is one.
    pub(crate) on_stack: bool,
}

/// Where the interrupted extended state is.
pub(crate) enum ExtendedState<'a> {
    /// Still in the registers, but for the sixteen that the entry saved.
    Live(&'a TrapFrame),
    /// In the kernel's frame of a fault.
    Saved(&'a SigContext),
}

/// Pushes a frame for `entry` and points `cpu` at the handler.
///
/// # Errors
/// The stack has no room.
pub(crate) fn push_frame(
    cpu: &mut Cpu,
    entry: &Entry,
    info: &SigInfo,
    state: &ExtendedState<'_>,
) -> Result<(), Fault> {
    let bytes = EXTENDED_BYTES.load(Ordering::Relaxed);
    let extended = (stack_top(cpu, entry) - bytes - 8) & !63;
    let frame = ((extended - (8 + size_of::<UContext>() + SIGINFO_BYTES) as u64) & !15) - 8;
    let context_at = frame + 8;
    let info_at = context_at + size_of::<UContext>() as u64;
    save_state(extended, bytes, state)?;
    let mut context = UContext {
        flags: CONTEXT_FLAGS,
        stack: entry.stack,
        mask: entry.mask,
        ..UContext::default()
    };
    context.machine.set_segments();
    if let ExtendedState::Saved(machine) = state {
        context.machine.set_fault(machine);
    }
    context.machine.set_cpu(cpu);
    context.machine.fpstate = extended;
    guest::write(frame, &entry.restorer)?;
    guest::write(context_at, &context)?;
    guest::write(info_at, info)?;
    cpu.regs.rdi = u64::from(entry.signal);
    cpu.regs.rsi = info_at;
    cpu.regs.rdx = context_at;
    cpu.regs.rax = 0;
    cpu.rsp = frame;
    cpu.rip = entry.handler;
    cpu.rflags &= !CLEARED_FLAGS;
    Ok(())
}

fn stack_top(cpu: &Cpu, entry: &Entry) -> u64 {
    let [base, _, size] = entry.stack;
    let already = cpu.rsp > base && cpu.rsp <= base.saturating_add(size);
    if entry.on_stack && !already {
        base + size
    } else {
        cpu.rsp - RED_ZONE
    }
}

fn save_state(to: u64, bytes: u64, state: &ExtendedState<'_>) -> Result<(), Fault> {
    guest::write(to + HEADER, &[0_u64; 8])?;
    let saved = match state {
        ExtendedState::Live(frame) => guarded(|| {
            // SAFETY: aligned, its header cleared just now; a bad stack faults, which the guard
            // catches.
            unsafe { save_extended(frame, to as *mut u8) };
            0
        }),
        ExtendedState::Saved(machine) => guarded(|| {
            // SAFETY: the kernel's own area of this size; a bad stack faults as above.
            unsafe {
                copy_forward(
                    to as *mut u8,
                    machine.fpstate as *const u8,
                    convert::size(bytes),
                );
                call_used(to as *mut u8);
            };
            0
        }),
    };
    if saved != 0 {
        return Err(Fault);
    }
    let size = u32::try_from(bytes).map_err(|_| Fault)?;
    let features = EXTENDED_FEATURES.load(Ordering::Relaxed);
    let [low, high] = [convert::low32(features), convert::low32(features >> 32)];
    guest::write(
        to + SOFTWARE_WORDS,
        &[MAGIC1, size + 4, low, high, size, 0, 0, 0],
    )?;
    guest::write(to + bytes, &MAGIC2)
}

/// Takes the frame below the stack pointer back into the registers; returns its context.
///
/// # Errors
/// There is no readable frame.
pub(crate) fn pop_frame(frame: &mut TrapFrame) -> Result<UContext, Fault> {
    // The handler's `ret` has consumed the restorer's address.
    let context = guest::read::<UContext>(frame.cpu.rsp)?;
    if context.machine.fpstate != 0 {
        let loaded = guarded(|| {
            // SAFETY: a malformed or missing area faults, which the guard catches.
            unsafe { entry::load_extended(frame, context.machine.fpstate as *const u8) };
            0
        });
        if loaded != 0 {
            return Err(Fault);
        }
    }
    frame.cpu = context.machine.cpu();
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 16 << 10;

    #[repr(C, align(64))]
    struct Area([u8; ROOM]);

    #[test]
    fn an_unused_state_is_saved_as_a_used_one() {
        measure();
        assert!(extended_bytes() <= ROOM as u64);
        let (mut unused, mut used) = (Area([0; ROOM]), Area([0; ROOM]));
        let mut frame = TrapFrame::ZERO;
        entry::reset_extended(&mut frame);
        // SAFETY: aligned and large enough, the headers zeroed; what is loaded was saved before.
        unsafe {
            save_extended(&frame, unused.0.as_mut_ptr());
            entry::load_extended(&mut frame, unused.0.as_ptr());
            save_extended(&frame, used.0.as_mut_ptr());
        }
        let steady = STEADY & EXTENDED_FEATURES.load(Ordering::Relaxed);
        assert_ne!(steady, 0);
        let header = unused.0[512..520].try_into().unwrap();
        assert_eq!(u64::from_le_bytes(header) & steady, steady);
        assert!(unused.0 == used.0, "the same bytes");
    }
}
