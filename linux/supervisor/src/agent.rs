//! The agent's executable, carried inside this one.

use std::os::fd::OwnedFd;

use rcoe_linux_sys::host::image_from_bytes;

use crate::error::{Doing, RunError};

static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rcoe-agent"));

/// Puts the agent where it can be executed.
pub(crate) fn image() -> Result<OwnedFd, RunError> {
    image_from_bytes(c"rcoe-agent", AGENT).doing("unpacking the agent")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::AGENT;

    /// All that may touch vector registers: what keeps and loads them for the program, what clears
    /// them after the host's code, and loops over many bytes, whose callers keep them.
    const KNOWN: [&str; 11] = [
        "rcoe_bulk_candidates",
        "rcoe_bulk_difference",
        "rcoe_bulk_sums",
        "rcoe_digest_by_aes",
        "rcoe_keep_vectors",
        "rcoe_leave",
        "rcoe_load_extended",
        "rcoe_load_vectors",
        "rcoe_point",
        "rcoe_save_extended",
        "rcoe_vdso_entry",
    ];

    /// Does a line of a listing name a register of vectors or of floating point?
    fn names_vectors(line: &str) -> bool {
        let mut registers = line.split('%').skip(1);
        registers.any(|it| {
            ["xmm", "ymm", "zmm", "mm", "st"]
                .iter()
                .any(|name| it.starts_with(name))
        })
    }

    #[test]
    fn vector_registers_are_the_programs_wherever_the_agent_works() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), AGENT).expect("room");
        let listing = Command::new("objdump")
            .args(["--disassemble", "--no-show-raw-insn"])
            .arg(file.path())
            .output()
            .expect("the C compiler's package has objdump");
        let listing = String::from_utf8(listing.stdout).expect("text");
        let mut function = "";
        let mut found = BTreeSet::new();
        for line in listing.lines() {
            if let Some((_, name)) = line.strip_suffix(">:").and_then(|it| it.split_once('<')) {
                function = name;
            } else if names_vectors(line) {
                found.insert(function);
            }
        }
        assert!(found.iter().eq(KNOWN.iter()), "{found:?}");
    }

    #[test]
    fn vector_registers_are_told_from_others() {
        for line in [
            "movaps %xmm0,(%rdi)",
            "vpxor %ymm1,%ymm1,%ymm1",
            "fld %st(1)",
            "movq %mm0,%rax",
        ] {
            assert!(names_vectors(line), "{line}");
        }
        for line in ["mov %rsp,%rax", "call 40 <xmm>", "mov %esi,%edi"] {
            assert!(!names_vectors(line), "{line}");
        }
    }
}
