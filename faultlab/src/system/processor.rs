//! What differs between processors: registers as the emulator numbers them, entries of page tables,
//! and where memory begins.

use anyhow::{Result, bail};

const PAGE: u64 = 4096;
/// From a root table of the kernel's to its first table.
const FIRST_TABLE: u64 = PAGE;

/// A processor, with the machine that it is in.
#[derive(Debug, PartialEq, Eq)]
pub struct Processor {
    /// As `--arch` names it.
    pub name: &'static str,
    /// General registers by number, with instruction pointer and flags.
    pub(super) general: &'static [&'static str],
    pub(super) ip: usize,
    pub(super) flags: usize,
    /// The bit of the flags that tells a kernel from a program, if there is one.
    kernel_mode: u64,
    /// Bits of the flags that are flipped.
    pub(super) flag_bits: &'static [u64],
    /// Name, first number and number of vector registers.
    pub(super) vectors: (&'static str, usize, usize),
    /// Cores of the machine before those of replicas: a PC's first one starts the others and halts.
    first_core: usize,
    /// Cores of the machine for each replica, of which the first is the replica's.
    cores_each: usize,
    /// First byte of memory.
    pub(super) memory: u64,
    /// Where the entry leads by which every root table of a program maps the kernel, or is known
    /// for one, seen from the root table of the kernel.
    kernel_entry: u64,
    /// In an entry: is there one, where it leads, and, if these bits have this value, can it be
    /// written, and does it map memory itself above the lowest level?
    present: u64,
    address: u64,
    writable: (u64, u64),
    large: (u64, u64),
}

/// A PC.
const X86_64: Processor = Processor {
    name: "x86_64",
    general: &[
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15", "rip", "eflags",
    ],
    ip: 16,
    flags: 17,
    kernel_mode: 0,
    flag_bits: &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    ],
    vectors: ("xmm", 49, 16),
    first_core: 1,
    cores_each: 1,
    memory: 0,
    kernel_entry: FIRST_TABLE,
    present: 1,
    address: 0x000f_ffff_ffff_f000,
    writable: (2, 2),
    large: (1 << 7, 1 << 7),
};

/// The machine `virt`. Of the flags those that programs compute with and those that mask
/// interrupts: the emulator does not survive other modes that are written from outside.
const AARCH64: Processor = Processor {
    name: "aarch64",
    general: &[
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
        "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26",
        "x27", "x28", "x29", "x30", "sp", "pc", "cpsr",
    ],
    ip: 32,
    flags: 33,
    kernel_mode: 1 << 3,
    flag_bits: &[6, 7, 8, 9, 28, 29, 30, 31],
    vectors: ("v", 34, 32),
    first_core: 0,
    cores_each: 2,
    memory: 0x4000_0000,
    kernel_entry: 0,
    present: 1,
    address: 0x0000_ffff_ffff_f000,
    writable: (1 << 7, 0),
    large: (1 << 1, 0),
};

impl Processor {
    /// The one of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(name: &str) -> Result<&'static Self> {
        const ALL: [&Processor; 2] = [&X86_64, &AARCH64];
        match ALL.into_iter().find(|processor| processor.name == name) {
            Some(processor) => Ok(processor),
            None => bail!("--arch is x86_64 or aarch64, not {name}"),
        }
    }

    /// What journals that do not name one are of.
    #[must_use]
    pub fn usual() -> String {
        X86_64.name.to_owned()
    }

    /// The core of a replica, as the emulator counts.
    pub(super) const fn core_of(&self, replica: usize) -> usize {
        self.first_core + replica * self.cores_each
    }

    /// Does a core with these flags run a program, not a kernel?
    pub(super) const fn is_program(&self, flags: u64) -> bool {
        flags & self.kernel_mode == 0
    }

    /// Where an entry leads, if anywhere.
    pub(super) const fn target(&self, entry: u64) -> Option<u64> {
        if entry & self.present == 0 {
            return None;
        }
        Some(entry & self.address)
    }

    /// Does an entry above the lowest level map memory itself?
    pub(super) const fn is_large(&self, entry: u64) -> bool {
        entry & self.large.0 == self.large.1
    }

    /// Can what an entry maps be written?
    pub(super) const fn is_writable(&self, entry: u64) -> bool {
        entry & self.writable.0 == self.writable.1
    }

    /// Is this the last entry of a program's root table, given the kernel's?
    pub(super) const fn maps_kernel(&self, entry: u64, root: u64) -> bool {
        entry & self.address == root + self.kernel_entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_numbered_without_gaps_up_to_the_flags() {
        for name in ["x86_64", "aarch64"] {
            let processor = Processor::of(name).unwrap();
            assert_eq!(processor.general.len(), processor.flags + 1, "{name}");
            assert_eq!(processor.ip + 1, processor.flags, "{name}");
            assert!(processor.vectors.1 > processor.flags, "{name}");
        }
        assert!(Processor::of("mips").is_err());
    }
}
