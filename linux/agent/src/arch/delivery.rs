//! Signal frames on the program's stack: built for its handlers, taken back at `rt_sigreturn`.
//!
//! The layout is the kernel's, extended state and its software-reserved words included, because
//! programs and unwinders look into it.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::cpuid::Answer;
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
/// Where in it the upper halves of the first 16 ZMM registers are.
static ZMM_HALVES: AtomicU64 = AtomicU64::new(0);

/// Asks by `cpuid` how large the extended state is.
pub(crate) fn measure(cpuid: impl Fn(u32, u32) -> Answer) {
    let [low, bytes, _, high] = cpuid(0xd, 0);
    EXTENDED_BYTES.store(u64::from(bytes), Ordering::Relaxed);
    let features = u64::from(high) << 32 | u64::from(low);
    EXTENDED_FEATURES.store(features, Ordering::Relaxed);
    let [_, zmm, ..] = cpuid(0xd, ZMM.trailing_zeros());
    ZMM_HALVES.store(u64::from(zmm), Ordering::Relaxed);
}

/// Size of the extended state.
pub(crate) fn extended_bytes() -> u64 {
    EXTENDED_BYTES.load(Ordering::Relaxed)
}

/// Components of which `xsave` writes the bytes also where the CPU knows that they are as they were
/// at the start: x87, SSE, AVX, bounds, AVX-512, protection keys and APX. Those that are only there
/// on demand, like AMX, are not among them: loading one that was not asked for faults.
const STEADY: u64 = 0x2ff | 1 << 19;

/// Components of the upper halves of vector registers, where the first is in any image, and how
/// many words they have.
const AVX: u64 = 1 << 2;
const ZMM: u64 = 1 << 6;
const YMM_HALVES: u64 = 576;
const YMM_WORDS: usize = 32;
const ZMM_WORDS: usize = 64;

/// Loads the program's whole extended state from `area`.
///
/// Processors take long for instructions of 128 bits as long as they believe that a register has an
/// upper half, and an image that calls all components used ([`save_extended`]) has them believe so.
/// Where these halves are all zero they are told better.
///
/// # Safety
/// As for [`entry::load_extended`].
pub(crate) unsafe fn load_extended(area: *const u8) {
    // SAFETY: forwarded from the caller; with upper halves that are zero the last instruction
    // changes nothing that programs see.
    unsafe {
        entry::load_extended(area);
        if EXTENDED_FEATURES.load(Ordering::Relaxed) & AVX != 0 && has_no_upper_halves(area) {
            core::arch::asm!("vzeroupper", options(nomem, nostack, preserves_flags));
        }
    }
}

/// Are the upper halves of the first 16 vector registers all zero in this image?
///
/// # Safety
/// `area` must hold a valid image.
unsafe fn has_no_upper_halves(area: *const u8) -> bool {
    let present = EXTENDED_FEATURES.load(Ordering::Relaxed);
    let zmm = ZMM_HALVES.load(Ordering::Relaxed);
    // SAFETY: the image has the components that the CPU has enabled, at these places.
    unsafe {
        let used = area.add(convert::size(HEADER)).cast::<u64>().read();
        let zero = |component: u64, at: u64, words: usize| {
            let words = core::slice::from_raw_parts(area.add(convert::size(at)).cast(), words);
            used & present & component == 0
                || words.iter().fold(0, |all, word: &u64| all | word) == 0
        };
        zero(AVX, YMM_HALVES, YMM_WORDS) && zero(ZMM, zmm, ZMM_WORDS)
    }
}

/// Saves the program's whole extended state into `area` (XSAVE format), the same bytes for the same
/// state.
///
/// Which components the CPU tracks as unused depends on when it was last interrupted, so replicas
/// would differ in the header. Here it calls all used, which loads the same.
///
/// # Safety
/// As for [`entry::save_extended`].
pub(crate) unsafe fn save_extended(area: *mut u8) {
    // SAFETY: forwarded from the caller.
    unsafe {
        entry::save_extended(area);
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
    /// Still in the registers.
    Live,
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
        ExtendedState::Live => guarded(|| {
            // SAFETY: aligned, its header cleared just now; a bad stack faults, which the guard
            // catches.
            unsafe { save_extended(to as *mut u8) };
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
            unsafe { load_extended(context.machine.fpstate as *const u8) };
            0
        });
        if loaded != 0 {
            // As the kernel does: a part may have been loaded.
            entry::reset_extended();
            return Err(Fault);
        }
    }
    frame.cpu = context.machine.cpu();
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::cpuid;

    const ROOM: usize = 16 << 10;
    /// The lower halves of vector registers in an image.
    const VECTORS: core::ops::Range<usize> = 160..416;

    #[repr(C, align(64))]
    struct Area([u8; ROOM]);

    #[test]
    fn an_unused_state_is_saved_as_a_used_one() {
        measure(cpuid::machine);
        assert!(extended_bytes() <= ROOM as u64);
        let (mut unused, mut used) = (Area([0; ROOM]), Area([0; ROOM]));
        // SAFETY: aligned and large enough, the headers zeroed; what is loaded was saved before.
        unsafe {
            entry::reset_extended();
            save_extended(unused.0.as_mut_ptr());
            entry::load_extended(unused.0.as_ptr());
            save_extended(used.0.as_mut_ptr());
        }
        // Tests are compiled for a processor that has these.
        for area in [&mut unused, &mut used] {
            area.0[VECTORS].fill(0);
        }
        let steady = STEADY & EXTENDED_FEATURES.load(Ordering::Relaxed);
        assert_ne!(steady, 0);
        let header = unused.0[512..520].try_into().unwrap();
        assert_eq!(u64::from_le_bytes(header) & steady, steady);
        assert!(unused.0 == used.0, "the same bytes");
    }

    /// Components that the CPU tracks as used, if it tells.
    fn in_use() -> Option<u64> {
        const TELLS: u32 = 1 << 2;
        if core::arch::x86_64::__cpuid_count(0xd, 1).eax & TELLS == 0 {
            return None;
        }
        let (low, high): (u32, u32);
        // SAFETY: the CPU has the instruction with this argument; it changes nothing else.
        unsafe {
            core::arch::asm!("xgetbv", in("ecx") 1, out("eax") low, out("edx") high);
        }
        Some(u64::from(high) << 32 | u64::from(low))
    }

    #[test]
    fn registers_without_upper_halves_are_known_to_have_none() {
        measure(cpuid::machine);
        if EXTENDED_FEATURES.load(Ordering::Relaxed) & AVX == 0 {
            return;
        }
        let mut area = Area([0; ROOM]);
        let load = |area: &Area| {
            // SAFETY: an image that was saved in this test.
            unsafe { load_extended(area.0.as_ptr()) };
            let used = in_use();
            // Nothing that the test goes on with is in upper halves.
            // SAFETY: there is AVX.
            unsafe { core::arch::asm!("vzeroupper", options(nomem, nostack)) };
            used.map(|used| used & AVX)
        };
        entry::reset_extended();
        // SAFETY: aligned and large enough, the header zeroed.
        unsafe { save_extended(area.0.as_mut_ptr()) };
        assert!(matches!(load(&area), None | Some(0)));
        area.0[convert::size(YMM_HALVES) + 255] = 1;
        assert!(matches!(load(&area), None | Some(AVX)));
        // SAFETY: as above.
        unsafe { assert!(!has_no_upper_halves(area.0.as_ptr())) };
    }
}
