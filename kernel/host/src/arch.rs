//! Kinds of machines.

/// A kind of processor, with the machine that QEMU has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arch {
    /// A PC (q35).
    #[default]
    X86_64,
    /// The machine `virt`.
    Aarch64,
}

impl Arch {
    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The emulator.
    pub(crate) const fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
        }
    }

    /// The Debian package that it is in.
    pub(crate) const fn package(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86",
            Self::Aarch64 => "qemu-system-arm",
        }
    }

    /// Megabytes of memory that the machine can have below 4 GiB, in one piece.
    pub(crate) const fn memory(self) -> u64 {
        match self {
            // One more and the emulator has half of it elsewhere.
            Self::X86_64 => 2815,
            Self::Aarch64 => 3072,
        }
    }

    /// The emulator's status after the machine switched itself off.
    pub(crate) const fn switched_off(self) -> i32 {
        match self {
            Self::X86_64 => 1,
            Self::Aarch64 => 0,
        }
    }

    /// Its status after a processor reset the machine, where one does.
    pub(crate) const fn reset(self) -> Option<i32> {
        match self {
            Self::X86_64 => Some(0),
            Self::Aarch64 => None,
        }
    }

    /// Where a folder with system images has that for this machine.
    pub(crate) const fn subfolder(self) -> &'static str {
        match self {
            Self::X86_64 => "",
            Self::Aarch64 => "aarch64",
        }
    }
}
