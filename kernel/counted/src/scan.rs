//! Finds in a linked program what is not counted.
//!
//! All code is decoded from the beginning of each section, one instruction after the other. A
//! branch must follow a count directly; what is no instruction, and what branches but is none of
//! the branches that are counted, is refused. So is what uses the registers that count.
//!
//! *Not covered*: jumps into the middle of an instruction, which no compiler makes.

mod aarch64;
mod x86_64;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use thiserror::Error;

use crate::Arch;

/// Why a program is not one that counts its branches.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Uncounted {
    /// It has no sections, so where its code is cannot be told.
    #[error("it is no ELF program with sections and symbols")]
    NoProgram,
    /// An instruction stands against it.
    #[error("{what} at {address:#x}{}", within(.symbol))]
    At {
        /// Where it is.
        address: u64,
        /// The function that it is in, if the program says that.
        symbol: String,
        /// What it is.
        what: &'static str,
    },
}

fn within(symbol: &str) -> String {
    match symbol {
        "" => String::new(),
        name => format!(", in {name}"),
    }
}

/// What stands at an address.
type Found = (u64, &'static str);

/// A branch that no count precedes.
const BRANCH: &str = "a branch that is not counted";
/// An instruction with a register that counts.
const REGISTER: &str = "a use of a register that counts branches";
/// Bytes that are no instruction.
const NO_CODE: &str = "no instruction that is known";
/// A branch that nothing could count.
const FAR: &str = "a branch that cannot be counted";

/// Does this program count all its branches?
///
/// # Errors
/// The first thing that stands against it.
pub fn scan(content: &[u8]) -> Result<(), Uncounted> {
    let read = || {
        let header = elf::FileHeader64::<Endianness>::parse(content).ok()?;
        let endian = header.endian().ok()?;
        let arch = match header.e_machine(endian) {
            elf::EM_X86_64 => Arch::X86_64,
            elf::EM_AARCH64 => Arch::Aarch64,
            _ => return None,
        };
        Some((header, endian, arch, header.sections(endian, content).ok()?))
    };
    let (_, endian, arch, sections) = read().ok_or(Uncounted::NoProgram)?;
    let mut scanned = false;
    for section in sections.iter() {
        if section.sh_flags(endian).0 & elf::SHF_EXECINSTR.0 == 0 {
            continue;
        }
        let code = section.data(endian, content);
        let code = code.map_err(|_| Uncounted::NoProgram)?;
        let start = section.sh_addr(endian);
        scanned = true;
        let found = match arch {
            Arch::X86_64 => x86_64::find(start, code),
            Arch::Aarch64 => aarch64::find(start, code),
        };
        if let Some((address, what)) = found {
            return Err(Uncounted::At {
                address,
                symbol: symbol(content, address),
                what,
            });
        }
    }
    if scanned {
        Ok(())
    } else {
        Err(Uncounted::NoProgram)
    }
}

/// The function that an address is in, by the last symbol before it.
fn symbol(content: &[u8], address: u64) -> String {
    let read = || {
        let header = elf::FileHeader64::<Endianness>::parse(content).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, content).ok()?;
        let symbols = sections.symbols(endian, content, elf::SHT_SYMTAB).ok()?;
        let code = symbols.iter().filter(|it| {
            let typed = [elf::STT_FUNC, elf::STT_NOTYPE].contains(&it.st_type());
            typed && it.st_value(endian) <= address && it.st_name(endian) != 0
        });
        let nearest = code.max_by_key(|it| it.st_value(endian))?;
        let name = nearest.name(endian, symbols.strings()).ok()?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests;
