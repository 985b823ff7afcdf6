//! Where replicas of the system act: at one event, or at one instruction.

use std::path::Path;

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

use crate::machine::{Accel, Threads};
use crate::run::Settings;
use crate::{Arch, SystemError};

/// How closely replicas are coupled (DSN'19, III).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coupling {
    /// They are preempted at one event of the trace: programs must be free of races.
    #[default]
    Loose,
    /// They are preempted at one instruction: programs may race.
    Close,
}

impl Coupling {
    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loose => "loose",
            Self::Close => "close",
        }
    }
}

/// What stops closely coupled replicas at one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Approach {
    /// The counter of instructions, behind the very one.
    #[default]
    Counter,
    /// A breakpoint, before which the counter comes a little too early.
    Breakpoint,
}

impl Approach {
    /// What the kernel calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Breakpoint => "breakpoint",
        }
    }
}

/// What counts what closely coupled programs execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counting {
    /// The processor, or a plugin of the emulator.
    #[default]
    Machine,
    /// The programs themselves, by code that their build put in (DSN'19, III-D).
    Compiler,
}

/// Can a machine with these settings couple its replicas so?
///
/// # Errors
/// What stands against it, and what to do.
pub(crate) fn check(settings: &Settings) -> Result<(), SystemError> {
    if settings.coupling == Coupling::Loose {
        return Ok(());
    }
    let compiler = settings.counting == Counting::Compiler;
    let why = if settings.accel != Accel::Tcg {
        "was never tried on a processor's own counter: leave out --accel"
    } else if compiler && settings.approach == Approach::Counter {
        "--count-by compiler has no counter that could stop a replica: leave out --stop-by, or say \
         breakpoint"
    } else if compiler && settings.guest.is_some() {
        "--count-by compiler is for programs that were built for it, and a guest is none: leave \
         out --count-by"
    } else if compiler && settings.linux.is_some() {
        "--count-by compiler is for programs of the microkernel, and this is one of Linux: leave \
         out --count-by"
    } else if !compiler && settings.arch == Arch::Aarch64 && settings.threads != Threads::Counted {
        "on aarch64 needs a clock that counts instructions: leave out --core-threads, or say \
         counted"
    } else {
        return Ok(());
    };
    Err(SystemError::Setting(format!("--coupling close {why}")))
}

/// Refuses a program with exclusive loads and stores: an interruption between the two has them
/// fail, so that replicas would execute different numbers of instructions.
///
/// # Errors
/// Where the first one is.
pub(crate) fn check_program(name: &str, path: &Path) -> Result<(), SystemError> {
    let content = std::fs::read(path).map_err(SystemError::host(path.display().to_string()))?;
    match first_exclusive(&content) {
        Some(address) => Err(refuse_exclusive(name, address)),
        None => Ok(()),
    }
}

/// Refuses a program that does not count its own branches.
///
/// # Errors
/// Where the first one is that is not counted.
pub(crate) fn check_counts(name: &str, path: &Path) -> Result<(), SystemError> {
    let content = std::fs::read(path).map_err(SystemError::host(path.display().to_string()))?;
    rcoe_counted::scan(&content).map_err(|why| {
        SystemError::Setting(format!(
            "--count-by compiler: {name} does not count its branches: {why}; build it with cargo \
             xtask counted, or leave out --count-by"
        ))
    })
}

/// Why a program with an exclusive load or store at an address is refused.
pub(crate) fn refuse_exclusive(name: &str, address: u64) -> SystemError {
    let why = format!(
        "{name} has an exclusive load or store at {address:#x}, which no two replicas execute \
         alike with --coupling close; build it with -C target-feature=+lse (C: -march=armv8.1-a), \
         or use --coupling loose"
    );
    SystemError::Setting(why)
}

/// The address of the first exclusive load or store in what can be executed. What is no ELF file
/// is refused elsewhere.
pub(crate) fn first_exclusive(content: &[u8]) -> Option<u64> {
    let header = elf::FileHeader64::<Endianness>::parse(content).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, content).ok()?;
    let code = segments
        .iter()
        .filter(|it| it.p_type(endian) == elf::PT_LOAD && it.p_flags(endian).0 & elf::PF_X.0 != 0);
    code.filter_map(|it| Some((it.p_vaddr(endian), it.data(endian, content).ok()?)))
        .find_map(|(start, bytes)| {
            let words = bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().expect("of four bytes")));
            let at = words.enumerate().find(|&(_, word)| is_exclusive(word))?.0;
            Some(start + 4 * at as u64)
        })
}

/// Is it a load or store of the group of exclusive ones? Compare-and-swap of pairs is encoded among
/// them and is none, as are loads and stores that are ordered only.
const fn is_exclusive(word: u32) -> bool {
    let of_group = word >> 24 & 0x3f == 0x08;
    let ordered_only = word & 1 << 23 != 0;
    let swaps_pair = word & (1 << 21 | 1 << 31) == 1 << 21;
    of_group && !ordered_only && !swaps_pair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_loads_and_stores_are_known() {
        // ldxr, stxr, ldaxr, stlxr, ldxrb, stxrh, ldxp, stlxp
        for word in [
            0xc85f_7c20,
            0xc802_7c20,
            0xc85f_fc20,
            0xc802_fc20,
            0x085f_7c20,
            0x4802_7c20,
            0xc87f_0c20,
            0xc822_8c20,
        ] {
            assert!(is_exclusive(word), "{word:#x}");
        }
        // ldar, stlr, cas, casal, casp, ldadd, swp, ldr, nop
        for word in [
            0xc8df_fc20,
            0xc89f_fc20,
            0xc8a2_7c20,
            0xc8e2_fc20,
            0x4822_7c24,
            0xf822_0020,
            0xf822_8020,
            0xf940_0020,
            0xd503_201f,
        ] {
            assert!(!is_exclusive(word), "{word:#x}");
        }
    }

    /// A program of one segment, with these instructions at an address.
    fn program(address: u64, code: &[u32]) -> Vec<u8> {
        let bytes = 4 * code.len() as u64;
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        // Executable, AArch64, version; entry, headers of segments, none of sections; flags; sizes.
        file.extend([2, 0, 183, 0, 1, 0, 0, 0]);
        file.extend([address, 64, 0].map(u64::to_le_bytes).concat());
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        // To be loaded, read and executed: offset, addresses, bytes, alignment.
        file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        let segment = [120, address, address, bytes, bytes, 4];
        file.extend(segment.map(u64::to_le_bytes).concat());
        file.extend(code.iter().flat_map(|word| word.to_le_bytes()));
        file
    }

    #[test]
    fn a_program_with_an_exclusive_load_is_refused_by_its_place() {
        let (nop, load) = (0xd503_201f, 0xc85f_7c20);
        let with = program(0x40_1000, &[nop, nop, load, nop]);
        assert_eq!(first_exclusive(&with), Some(0x40_1008));
        let without = program(0x40_1000, &[nop; 4]);
        assert_eq!(first_exclusive(&without), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, with).unwrap();
        let refused = check_program("program", &path).unwrap_err().to_string();
        assert!(
            refused.contains("0x401008") && refused.contains("+lse"),
            "{refused}"
        );
        std::fs::write(&path, without).unwrap();
        assert!(check_program("program", &path).is_ok());
    }

    #[test]
    fn what_is_no_program_has_none() {
        assert_eq!(first_exclusive(b"text"), None);
    }
}
