//! Are two stopped replicas in one state? All registers and all private memory, from outside.
//!
//! Compared are the registers that ptrace shows, the legacy part of the extended state, and each
//! page outside the agent's range that is present in either replica and backed by no file.
//!
//! Not covered: upper halves of vector registers, which ptrace does not show here. The programs'
//! handler folds the whole extended state into memory, which is compared at the next point.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use nix::libc::{user_fpregs_struct, user_regs_struct};
use rcoe_linux_abi::{AGENT_BASE, AGENT_END};

use crate::maps::{self, PAGE, Region};

/// Trap and resume flags, which no program has of its own.
const UNSEEN: u64 = 1 << 8 | 1 << 16;
/// Pages that are read at once.
const BATCH: u64 = 256;

/// The registers of a replica at a point.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// General ones; the instruction pointer is the program's.
    pub general: user_regs_struct,
    /// Those of x87 and SSE.
    pub legacy: user_fpregs_struct,
}

impl Registers {
    /// Everything that counts, by name.
    fn words(&self) -> Vec<(String, u64)> {
        let it = &self.general;
        let named = [
            ("rip", it.rip),
            ("rsp", it.rsp),
            ("rflags", it.eflags & !UNSEEN),
            ("rax", it.rax),
            ("rbx", it.rbx),
            ("rcx", it.rcx),
            ("rdx", it.rdx),
            ("rsi", it.rsi),
            ("rdi", it.rdi),
            ("rbp", it.rbp),
            ("r8", it.r8),
            ("r9", it.r9),
            ("r10", it.r10),
            ("r11", it.r11),
            ("r12", it.r12),
            ("r13", it.r13),
            ("r14", it.r14),
            ("r15", it.r15),
            ("fs_base", it.fs_base),
            ("gs_base", it.gs_base),
        ];
        let mut words: Vec<_> = named.map(|(name, word)| (name.to_owned(), word)).into();
        let it = &self.legacy;
        let control = [
            ("x87 control", it.cwd.into()),
            ("x87 status", it.swd.into()),
            ("x87 tags", it.ftw.into()),
            ("mxcsr", it.mxcsr.into()),
        ];
        words.extend(control.map(|(name, word)| (name.to_owned(), word)));
        let mut add = |name: &str, list: &[u32]| {
            let parts = list.iter().enumerate();
            words.extend(
                parts.map(|(at, part)| (format!("{name}{}+{}", at / 4, at % 4), u64::from(*part))),
            );
        };
        add("st", &it.st_space);
        add("xmm", &it.xmm_space);
        words
    }

    /// The first one that differs, in words.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let pairs = self.words().into_iter().zip(other.words());
        let mut differ = pairs.filter(|(one, other)| one != other);
        differ
            .next()
            .map(|((name, one), (_, other))| format!("{name}: {one:#x} and {other:#x}"))
    }
}

/// How much was compared, and what differed first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Pages.
    pub pages: u64,
    /// Address and bytes.
    pub difference: Option<String>,
}

/// Compares the memory of two stopped replicas.
///
/// # Errors
///
/// If one is gone or may not be looked at.
pub fn memory(one: i32, other: i32) -> Result<Compared> {
    let mut pages = private_pages(one)?;
    pages.extend(private_pages(other)?);
    let open = |pid: i32| File::open(format!("/proc/{pid}/mem")).context("a replica is gone");
    let files = [open(one)?, open(other)?];
    let mut compared = Compared {
        pages: pages.len() as u64,
        difference: None,
    };
    for (start, count) in runs(&pages) {
        if let Some(found) = differs(&files, start, count) {
            compared.difference = Some(found);
            break;
        }
    }
    Ok(compared)
}

/// Pages of its own that a process has outside the agent's range.
fn private_pages(pid: i32) -> Result<BTreeSet<u64>> {
    const OF_FILE: u64 = 1 << 61;
    let mut pages = BTreeSet::new();
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).context("a replica is gone")?;
    for Region { range, flags, name } in maps::read(pid)? {
        let agents = range.start < AGENT_END as u64 && range.end > AGENT_BASE as u64;
        // What is only reserved has no pages, and may be huge.
        if agents || flags[3] != b'p' || flags == *b"---p" || name.starts_with("[v") {
            continue;
        }
        pages.extend(
            maps::entries(&pagemap, &range)?.filter_map(|(page, entry)| {
                (entry & maps::PRESENT != 0 && entry & OF_FILE == 0).then_some(page)
            }),
        );
    }
    Ok(pages)
}

/// Pages in a row, of which each run is short enough to be read at once.
fn runs(pages: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((start, count)) if *start + *count * PAGE == page && *count < BATCH => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

/// The first difference in so many pages. What only one of them can read differs.
fn differs(files: &[File; 2], start: u64, count: u64) -> Option<String> {
    let bytes = usize::try_from(count * PAGE).expect("a batch is short");
    let read = |file: &File| {
        let mut content = vec![0; bytes];
        file.read_exact_at(&mut content, start).map(|()| content)
    };
    match [read(&files[0]), read(&files[1])] {
        [Ok(one), Ok(other)] if one == other => None,
        [Ok(one), Ok(other)] => {
            let at = one
                .iter()
                .zip(&other)
                .position(|(one, other)| one != other)?;
            let show = |content: &[u8]| format!("{:02x?}", &content[at..bytes.min(at + 8)]);
            let (one, other) = (show(&one), show(&other));
            Some(format!("{:#x}: {one} and {other}", start + at as u64))
        }
        [Err(_), Err(_)] => Some(format!("{start:#x} can be read in neither")),
        [one, other] => {
            let (one, other) = (one.is_ok(), other.is_ok());
            Some(format!("{start:#x} can be read: {one} and {other}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Registers, memory, runs};
    use nix::libc::{user_fpregs_struct, user_regs_struct};
    use nix::sys::ptrace;

    fn registers() -> Registers {
        let mut sleeper = Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("it starts");
        let pid = i32::try_from(sleeper.id()).expect("a pid");
        let seized = crate::inject::Seized::stop(pid).expect("it runs");
        let general: user_regs_struct = ptrace::getregs(seized.pid).expect("it is stopped");
        let legacy: user_fpregs_struct =
            ptrace::getregset::<ptrace::regset::NT_PRFPREG>(seized.pid).expect("it is stopped");
        drop(seized);
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it is ours");
        Registers { general, legacy }
    }

    #[test]
    fn each_register_counts_but_for_flags_that_no_program_has() {
        let one = registers();
        assert_eq!(one.difference(&one), None);
        let mut other = one;
        other.general.eflags ^= 1 << 16;
        assert_eq!(one.difference(&other), None);
        other.general.r15 ^= 1;
        assert!(
            one.difference(&other)
                .is_some_and(|it| it.starts_with("r15"))
        );
        let mut other = one;
        other.legacy.xmm_space[63] ^= 1;
        let found = one.difference(&other).expect("it differs");
        assert!(found.starts_with("xmm15+3"), "{found}");
    }

    #[test]
    fn memory_that_differs_is_found() {
        let start = || {
            Command::new("sleep")
                .arg("1000")
                .spawn()
                .expect("it starts")
        };
        let mut sleepers = [start(), start()];
        let [one, other] = [0, 1].map(|it: usize| sleepers[it].id().cast_signed());
        // They may still be starting.
        let stop = |pid: i32| crate::inject::Seized::stop(pid).expect("it runs");
        let stopped = [stop(one), stop(other)];
        let same = memory(one, one).expect("it runs");
        let different = memory(one, other).expect("they run");
        drop(stopped);
        for sleeper in &mut sleepers {
            sleeper.kill().expect("it is ours");
            sleeper.wait().expect("it is ours");
        }
        assert!(same.pages > 0 && same.difference.is_none(), "{same:?}");
        assert!(different.difference.is_some(), "stacks are at other places");
    }

    #[test]
    fn pages_in_a_row_are_read_at_once() {
        let pages = [0, 4096, 3 * 4096].into();
        assert_eq!(runs(&pages), [(0, 2), (3 * 4096, 1)]);
    }
}
