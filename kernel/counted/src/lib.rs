//! Programs that count their own branches (DSN'19, III-D: compiler-assisted counting), for close
//! coupling where no counter of the processor's, and none of the emulator's, is to be had.
//!
//! An instruction before each branch, call and return adds one to a vector register, the last that
//! compilers hand out: it changes no flags, no general register and no stack, so it may stand
//! anywhere. Between two of them a program executes one straight run, so that count and instruction
//! pointer name one instruction.
//!
//! [`add_counts`] puts them into a program's assembler text, of whatever language that was;
//! [`scan()`] finds in a linked program what is not counted, or uses the register for something
//! else. Who runs a program trusts the scan alone.
//!
//! *Not covered*: programs that need the register, which are refused; code that a program makes at
//! run time, which programs of the system sphere cannot.
#![forbid(unsafe_code)]

mod scan;
mod text;

pub use scan::{Uncounted, scan};
pub use text::{TextError, add_counts};

/// A processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// `xmm15` counts.
    X86_64,
    /// `d31` counts; `d30` holds what is added.
    Aarch64,
}

impl Arch {
    /// The processor of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The register in which the count is, and the other one that counting needs.
    const fn registers(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["xmm15", "ymm15", "zmm15"],
            Self::Aarch64 => &[
                "v30", "q30", "d30", "s30", "h30", "b30", "v31", "q31", "d31", "s31", "h31", "b31",
            ],
        }
    }

    /// Names of the count's registers in this text of an instruction's operands.
    fn takes_register(self, operands: &str) -> bool {
        let mut words = operands.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        words.any(|word| self.registers().contains(&word))
    }
}
