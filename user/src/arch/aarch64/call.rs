//! The instruction that enters the kernel.

use core::arch::asm;

use rcoe_abi::{IN_REGISTERS, Syscall};

/// What a call takes and brings in registers: pointer or badge, message info, first words.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub(crate) pointer: u64,
    pub(crate) info: u64,
    pub(crate) words: [u64; IN_REGISTERS],
}

/// Makes a system call.
pub(crate) fn enter(number: Syscall, registers: Registers) -> Registers {
    let [mut a, mut b, mut c, mut d] = registers.words;
    let (mut badge, mut answer) = (registers.pointer, registers.info);
    // SAFETY: the kernel changes the registers named here only; what it does for the call was
    // allowed by capabilities to this thread's own memory at most.
    unsafe {
        asm!("svc #0",
            in("x8") number as u64,
            inlateout("x0") badge,
            inlateout("x1") answer,
            inlateout("x2") a,
            inlateout("x3") b,
            inlateout("x4") c,
            inlateout("x5") d,
            options(nostack),
        );
    }
    Registers {
        pointer: badge,
        info: answer,
        words: [a, b, c, d],
    }
}
