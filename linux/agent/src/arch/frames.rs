//! The kernel's signal frame, as handlers of the agent receive it and as the agent builds it for
//! the program's handlers.

use crate::arch::entry::{Cpu, Registers};

/// Size of `siginfo_t`.
pub(crate) const SIGINFO_BYTES: usize = 128;

/// `siginfo_t`, as far as the agent looks into it.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigInfo {
    pub(crate) signo: i32,
    pub(crate) errno: i32,
    pub(crate) code: i32,
    pad: i32,
    /// `si_addr` of a fault; `si_pid` (low) and `si_uid` (high) of a sent signal.
    pub(crate) first: u64,
    rest: [u64; 13],
}

const _: () = assert!(size_of::<SigInfo>() == SIGINFO_BYTES);

impl SigInfo {
    /// Value of [`SigInfo::architecture`] for 64-bit calls (AUDIT_ARCH_X86_64).
    pub(crate) const X86_64: u32 = 0xc000_003e;

    /// `si_arch` of a SIGSYS: which table the call's number belongs to.
    pub(crate) const fn architecture(&self) -> u32 {
        crate::convert::low32(self.rest[0] >> 32)
    }

    /// Was an access refused by what the page allows?
    pub(crate) const fn is_forbidden(&self) -> bool {
        /// `SEGV_ACCERR`.
        const REFUSED: i32 = 2;
        const SEGV: i32 = linux_raw_sys::general::SIGSEGV.cast_signed();
        self.signo == SEGV && self.code == REFUSED
    }

    /// Has a breakpoint of the agent's been come upon?
    pub(crate) const fn is_breakpoint(&self) -> bool {
        const TRAP: i32 = linux_raw_sys::general::SIGTRAP.cast_signed();
        self.signo == TRAP && self.code == crate::sys::breakpoints::TRAP_PERF
    }

    /// The protection key by which an access was refused, if that was the reason.
    pub(crate) const fn key(&self) -> Option<u32> {
        /// `SEGV_PKUERR`.
        const KEY: i32 = 4;
        const SEGV: i32 = linux_raw_sys::general::SIGSEGV.cast_signed();
        match self.signo == SEGV && self.code == KEY {
            true => Some(crate::convert::low32(self.rest[1]) & 15),
            false => None,
        }
    }

    /// A signal with these words after the first sixteen bytes.
    pub(crate) fn with(signo: u32, errno: i32, code: i32, words: [u64; 3]) -> Self {
        let mut rest = [0; 13];
        rest[..2].copy_from_slice(&words[1..]);
        Self {
            signo: signo.cast_signed(),
            errno,
            code,
            pad: 0,
            first: words[0],
            rest,
        }
    }

    /// The second and third word after the first sixteen bytes.
    pub(crate) const fn rest(&self) -> [u64; 2] {
        [self.rest[0], self.rest[1]]
    }
}

/// `struct sigcontext` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SigContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    pub(crate) rax: u64,
    pub(crate) rcx: u64,
    pub(crate) rsp: u64,
    pub(crate) rip: u64,
    eflags: u64,
    /// Segments: cs, gs, fs, ss.
    segments: [u16; 4],
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    pub(crate) fpstate: u64,
    reserved: [u64; 8],
}

/// `struct ucontext` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UContext {
    pub(crate) flags: u64,
    pub(crate) link: u64,
    /// `stack_t`: pointer, flags, size.
    pub(crate) stack: [u64; 3],
    pub(crate) machine: SigContext,
    pub(crate) mask: u64,
}

impl SigContext {
    /// The registers in this context.
    pub(crate) fn cpu(&self) -> Cpu {
        Cpu {
            regs: Registers {
                r15: self.r15,
                r14: self.r14,
                r13: self.r13,
                r12: self.r12,
                r11: self.r11,
                r10: self.r10,
                r9: self.r9,
                r8: self.r8,
                rdi: self.rdi,
                rsi: self.rsi,
                rbp: self.rbp,
                rbx: self.rbx,
                rdx: self.rdx,
                rcx: self.rcx,
                rax: self.rax,
            },
            rip: self.rip,
            cs: 0x33,
            rflags: self.eflags,
            rsp: self.rsp,
            ss: 0x2b,
        }
    }

    /// Goes on at this address, which is not where the program was interrupted. The processor
    /// skips breakpoints at the first instruction if the resume flag is set, and it is where the
    /// program has just faulted.
    pub(crate) const fn enter(&mut self, at: u64) {
        const RESUME: u64 = 1 << 16;
        self.rip = at;
        self.eflags &= !RESUME;
    }

    /// Replaces the registers; everything else stays.
    pub(crate) fn set_cpu(&mut self, cpu: &Cpu) {
        let Registers {
            r15,
            r14,
            r13,
            r12,
            r11,
            r10,
            r9,
            r8,
            rdi,
            rsi,
            rbp,
            rbx,
            rdx,
            rcx,
            rax,
        } = cpu.regs;
        let kept = *self;
        *self = Self {
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rdi,
            rsi,
            rbp,
            rbx,
            rdx,
            rax,
            rcx,
            rsp: cpu.rsp,
            rip: cpu.rip,
            eflags: cpu.rflags,
            ..kept
        };
    }

    /// Error code, trap number and address of the fault, which a program's handler may want.
    pub(crate) fn set_fault(&mut self, from: &Self) {
        self.err = from.err;
        self.trapno = from.trapno;
        self.cr2 = from.cr2;
    }

    /// Fills the segment registers of a fresh context.
    pub(crate) fn set_segments(&mut self) {
        self.segments = [0x33, 0, 0, 0x2b];
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::frames::{SigContext, UContext};

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<UContext>(), 304);
        assert_eq!(core::mem::offset_of!(UContext, machine), 40);
        assert_eq!(core::mem::offset_of!(SigContext, rsp), 15 * 8);
        assert_eq!(core::mem::offset_of!(SigContext, rip), 16 * 8);
        assert_eq!(core::mem::offset_of!(SigContext, fpstate), 184);
    }

    #[test]
    fn a_breakpoint_at_another_place_counts_after_a_fault() {
        let mut machine = SigContext {
            eflags: 1 << 16 | 0x246,
            ..SigContext::default()
        };
        machine.enter(7);
        assert_eq!((machine.rip, machine.eflags), (7, 0x246));
    }

    #[test]
    fn registers_survive_a_round_trip() {
        let mut machine = SigContext::default();
        let mut cpu = machine.cpu();
        cpu.regs.r8 = 8;
        cpu.regs.rdi = 1;
        cpu.regs.rax = 2;
        cpu.rip = 3;
        cpu.rsp = 4;
        cpu.rflags = 5;
        machine.set_cpu(&cpu);
        let back = machine.cpu();
        assert_eq!((back.regs.r8, back.regs.rdi, back.regs.rax), (8, 1, 2));
        assert_eq!((back.rip, back.rsp, back.rflags), (3, 4, 5));
    }
}
