//! The agent's executable, carried inside this one.

use object::elf::{FileHeader64, PF_W, PF_X, PT_LOAD};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader};
use rcoe_linux_abi::{AGENT_BOOTSTRAP, PAGE};
use rcoe_linux_sys::host::{Image, Paged, Part};

use crate::error::{Doing, RunError};

static AGENT: &Paged<[u8]> = &Paged(*include_bytes!(concat!(env!("OUT_DIR"), "/rcoe-agent")));

/// What can be executed to become the agent.
pub(crate) fn image() -> Result<Image, RunError> {
    let plan = plan().expect("the linker has made it");
    let parts = (&plan.0[..], plan.1);
    Image::within(c"rcoe-agent", AGENT, parts, AGENT_BOOTSTRAP as u64)
        .doing("finding the agent in the executable of rcoe")
}

/// How the agent lies in memory, and where it is entered.
fn plan() -> object::Result<(Vec<Part>, u64)> {
    let header = FileHeader64::<LittleEndian>::parse(&AGENT.0)?;
    let endian = header.endian()?;
    let mut parts = Vec::new();
    for segment in header.program_headers(endian, &AGENT.0)? {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let may = |flag| segment.p_flags(endian).contains(flag);
        let (start, offset) = (segment.p_vaddr(endian), segment.p_offset(endian));
        let within = start % PAGE;
        let stored = (start + segment.p_filesz(endian)).next_multiple_of(PAGE);
        let end = (start + segment.p_memsz(endian)).next_multiple_of(PAGE);
        let part = |from: u64, to: u64, offset| Part {
            address: from,
            len: to - from,
            writable: may(PF_W),
            executable: may(PF_X),
            offset,
        };
        parts.push(part(start - within, stored, Some(offset - within)));
        if end > stored {
            parts.push(part(stored, end, None));
        }
    }
    Ok((parts, header.e_entry(endian)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use object::elf::SHT_NOBITS;
    use object::read::elf::SectionHeader;

    use super::*;

    /// All that may touch the extended state: what keeps and loads it for the program, what clears
    /// vector registers after the host's code, and loops over many bytes, whose callers keep them.
    const KNOWN: [&str; 12] = [
        // Clears upper halves that are zero.
        "delivery13load_extended",
        "rcoe_bulk_leads",
        "rcoe_bulk_marks",
        "rcoe_bulk_pairs",
        "rcoe_bulk_difference",
        "rcoe_bulk_sums",
        "rcoe_digest_by_aes",
        "rcoe_keep_vectors",
        "rcoe_load_extended",
        "rcoe_load_vectors",
        "rcoe_save_extended",
        "rcoe_vdso_entry",
    ];

    #[test]
    fn what_begins_as_zero_has_pages_of_its_own() {
        let (parts, entry) = plan().unwrap();
        let zero = parts.iter().find(|part| part.offset.is_none()).unwrap();
        assert!(zero.writable && !zero.executable);
        let holds = |part: &Part| (part.address..part.address + part.len).contains(&entry);
        let code = parts.iter().find(|part| holds(part)).unwrap();
        assert!(code.executable && !code.writable);
        let header = FileHeader64::<LittleEndian>::parse(&AGENT.0).unwrap();
        let sections = header.sections(LittleEndian, &AGENT.0).unwrap();
        let mut empty = sections
            .iter()
            .filter(|it| it.sh_type(LittleEndian) == SHT_NOBITS);
        assert!(empty.all(|it| it.sh_addr(LittleEndian) >= zero.address));
    }

    /// Does an instruction, as it is listed, have to do with vectors, floating point or how both
    /// are computed?
    fn is_extended(instruction: &str) -> bool {
        const REGISTERS: [&str; 7] = ["xmm", "ymm", "zmm", "tmm", "mm", "st", "k"];
        // There is none of another kind that begins with these letters and is for programs.
        const NAMES: [&str; 8] = [
            "v",
            "f",
            "emms",
            "ldmxcsr",
            "stmxcsr",
            "xsave",
            "xrstor",
            "ldtilecfg",
        ];
        let begins = |text: &str, all: &[&str]| all.iter().any(|name| text.starts_with(name));
        let name = instruction.split_whitespace().next().unwrap_or_default();
        let mut registers = instruction.split('%').skip(1);
        begins(name, &NAMES) || registers.any(|it| begins(it, &REGISTERS))
    }

    /// The instruction in a line of a listing.
    fn instruction(line: &str) -> Option<&str> {
        let (address, instruction) = line.split_once('\t')?;
        address.ends_with(':').then_some(instruction)
    }

    #[test]
    fn the_extended_state_is_the_programs_wherever_the_agent_works() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &AGENT.0).expect("room");
        let listing = Command::new("objdump")
            .args(["--disassemble", "--no-show-raw-insn"])
            .arg(file.path())
            .output()
            .expect("the C compiler's package has objdump");
        let listing = String::from_utf8(listing.stdout).expect("text");
        let mut function = "";
        let (mut found, mut seen) = (BTreeSet::new(), 0);
        for line in listing.lines() {
            if let Some((_, name)) = line.strip_suffix(">:").and_then(|it| it.split_once('<')) {
                function = name;
            } else if let Some(it) = instruction(line) {
                seen += 1;
                if is_extended(it) {
                    found.insert(function);
                }
            }
        }
        assert!(
            seen > 50_000,
            "the agent is larger than {seen} instructions"
        );
        let known = |name: &&str| KNOWN.iter().any(|it| *it == *name || name.contains(it));
        let all_known = found.iter().all(known) && found.len() == KNOWN.len();
        assert!(all_known, "{found:?}");
    }

    #[test]
    fn extended_state_is_told_from_other_registers() {
        for line in [
            "movaps %xmm0,(%rdi)",
            "vpxor %ymm1,%ymm1,%ymm1",
            "vzeroupper",
            "fld %st(1)",
            "fldcw (%rdi)",
            "kmovq (%rdi),%k1",
            "ldmxcsr -0x4(%rsp)",
            "xrstor64 (%rdi)",
            "movq %mm0,%rax",
        ] {
            assert!(is_extended(line), "{line}");
        }
        for line in [
            "mov %rsp,%rax",
            "call 40 <xmm>",
            "mov %esi,%edi",
            "xchg %rax,%rbx",
        ] {
            assert!(!is_extended(line), "{line}");
        }
        assert_eq!(instruction("  6f00:\tmov %rsp,%rax"), Some("mov %rsp,%rax"));
        assert_eq!(instruction("a line of\tanother kind"), None);
    }
}
