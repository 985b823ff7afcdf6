//! What files tell of a process: its numbers, its state, its memory, and what it was given.

use core::fmt::{self, Write as _};

use super::told::Teller;
use crate::linux::Machine;
use crate::linux::files::FILE_NUMBERS;
use crate::linux::machine::PAGE;
use crate::linux::signals::QUEUE;
use crate::linux::space::{Region, STACK_BYTES, STACK_TOP};
use crate::linux::tasks::{Life, Task};
use crate::linux::threads::State;

/// Bytes of a word that are looked at, and most words.
const WORD: usize = 4096;
const WORDS: u64 = 1024;
/// Where names of memory stand in their lines.
const NAMES: usize = 73;
/// Bytes that are moved at once.
const PORTION: usize = 256;

/// Pages of a memory: all, those that were given, and those that are shared.
#[derive(Default)]
struct Sizes {
    all: u64,
    given: u64,
    shared: u64,
    locked: u64,
}

/// What a page that is mapped is for.
const fn label(region: &Region, heap: [u64; 2]) -> &'static str {
    match region.start {
        start if start >= STACK_TOP - STACK_BYTES => "[stack]",
        start if start >= heap[0] && region.end <= heap[1] => "[heap]",
        _ => "",
    }
}

impl<M: Machine> Teller<'_, '_, M> {
    fn task(&self, place: usize) -> &Task {
        &self.process.task.all()[place]
    }

    /// What it is called.
    pub(super) fn name(&mut self, place: usize) -> fmt::Result {
        let name = self.task(place).name;
        self.bytes(name.bytes())
    }

    /// Whether its first thread runs or waits, or it has ended; and how many threads it has.
    fn state(&self, place: usize) -> (char, &'static str, usize) {
        let threads = &self.process.threads;
        let first = threads.first_of(place).map(|it| it.state);
        let (letter, word) = match self.task(place).life {
            Life::Ended(_) => ('Z', "zombie"),
            _ if first == Some(State::Waits) => ('S', "sleeping"),
            _ => ('R', "running"),
        };
        (letter, word, threads.count_of(place).max(1))
    }

    fn each_region(&mut self, place: usize, mut see: impl FnMut(&mut Self, Region)) {
        if !self.task(place).lives() {
            return;
        }
        let memory = self.task(place).memory;
        let mut from = 0;
        loop {
            let next = self
                .process
                .within(memory, |it| it.space.region(&it.store, from));
            let Some(region) = next else {
                return;
            };
            from = region.end;
            see(self, region);
        }
    }

    fn pages(&mut self, place: usize) -> Sizes {
        let mut sizes = Sizes::default();
        self.each_region(place, |_, region| {
            let pages = (region.end - region.start) / PAGE;
            sizes.all += pages;
            sizes.given += region.given;
            sizes.locked += region.locked;
            sizes.shared += if region.shared { region.given } else { 0 };
        });
        sizes
    }

    /// `status`: lines of a name and a value.
    pub(super) fn status(&mut self, place: usize) -> fmt::Result {
        self.write_str("Name:\t")?;
        self.name(place)?;
        let mask = self.process.files.mask_of(place);
        let (letter, word, threads) = self.state(place);
        let task = self.task(place);
        let (number, parent) = (task.number, task.parent);
        let [pending, ignored, caught] = task.signals.sets();
        writeln!(self, "\nUmask:\t{mask:04o}\nState:\t{letter} ({word})")?;
        writeln!(
            self,
            "Tgid:\t{number}\nNgid:\t0\nPid:\t{number}\nPPid:\t{parent}"
        )?;
        writeln!(self, "TracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0")?;
        writeln!(self, "FDSize:\t{FILE_NUMBERS}\nGroups:\t ")?;
        if self.task(place).lives() {
            let sizes = self.pages(place);
            for (what, pages) in [
                ("VmSize", sizes.all),
                ("VmLck", sizes.locked),
                ("VmRSS", sizes.given),
            ] {
                writeln!(self, "{what}:\t{:8} kB", pages * PAGE / 1024)?;
            }
        }
        let (queued, blocked, own) = self.process.signals_of(place);
        writeln!(self, "Threads:\t{threads}\nSigQ:\t{queued}/{QUEUE}")?;
        writeln!(self, "SigPnd:\t{own:016x}\nShdPnd:\t{pending:016x}")?;
        writeln!(self, "SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}")?;
        writeln!(self, "SigCgt:\t{caught:016x}\nNoNewPrivs:\t0\nSeccomp:\t0")?;
        writeln!(self, "Cpus_allowed:\t1\nCpus_allowed_list:\t0")
    }

    /// `stat`: the same and more in one line.
    pub(super) fn stat(&mut self, place: usize) -> fmt::Result {
        let sizes = self.pages(place);
        let (letter, _, threads) = self.state(place);
        let (_, blocked, _) = self.process.signals_of(place);
        let task = self.task(place);
        let [pending, ignored, caught] = task.signals.sets();
        let (number, start) = (task.number, task.start);
        let numbers = [task.parent, task.group, task.session];
        write!(self, "{number} (")?;
        self.name(place)?;
        write!(self, ") {letter}")?;
        for number in numbers {
            write!(self, " {number}")?;
        }
        // No terminal, flags, faults or times; then how it is scheduled.
        write!(self, " 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 0")?;
        let bytes = sizes.all * PAGE;
        write!(
            self,
            " {bytes} {} {} 0 0 {start} 0 0",
            sizes.given,
            u64::MAX
        )?;
        let low = |set: u64| set & 0x7fff_ffff;
        for set in [pending, blocked, ignored, caught] {
            write!(self, " {}", low(set))?;
        }
        // It tells of its end by SIGCHLD, and runs on the one core.
        writeln!(self, " 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
    }

    /// `statm`: pages.
    pub(super) fn sizes(&mut self, place: usize) -> fmt::Result {
        let Sizes {
            all, given, shared, ..
        } = self.pages(place);
        writeln!(self, "{all} {given} {shared} 0 0 {} 0", given - shared)
    }

    /// `maps`: where memory is, with what rights; and what else is told of each region.
    pub(super) fn maps(
        &mut self,
        place: usize,
        more: impl Fn(&mut Self, &Region) -> fmt::Result,
    ) -> fmt::Result {
        let memory = self.task(place).memory;
        let heap = self.process.within(memory, |it| it.space.heap());
        let mut all = Ok(());
        self.each_region(place, |it, region| {
            all = all.and_then(|()| {
                it.region(&region, label(&region, heap))?;
                more(it, &region)
            });
        });
        all
    }

    /// What `smaps` tells of a region. A child begins with a copy of what is not shared, so that
    /// a process has all of that for itself; and no file is behind any memory.
    pub(super) fn sizes_of(&mut self, region: &Region) -> fmt::Result {
        let kilobytes = PAGE / 1024;
        let given = region.given * kilobytes;
        let [shared, own] = if region.shared {
            [given, 0]
        } else {
            [0, given]
        };
        for (what, size) in [
            ("Size", (region.end - region.start) / 1024),
            ("KernelPageSize", kilobytes),
            ("MMUPageSize", kilobytes),
            ("Rss", given),
            ("Shared_Clean", 0),
            ("Shared_Dirty", shared),
            ("Private_Clean", 0),
            ("Private_Dirty", own),
            ("Referenced", given),
            ("Anonymous", own),
            ("Swap", 0),
            ("Locked", region.locked * kilobytes),
        ] {
            // The column of the names is as wide as Linux has it.
            let width = 23 - what.len();
            writeln!(self, "{what}:{size:width$} kB")?;
        }
        Ok(())
    }

    fn region(&mut self, region: &Region, label: &str) -> fmt::Result {
        let Region {
            start,
            end,
            letters,
            ..
        } = region;
        let kind = if region.shared { 's' } else { 'p' };
        let before = self.length();
        write!(self, "{start:08x}-{end:08x} ")?;
        self.bytes(letters)?;
        write!(self, "{kind} 00000000 00:00 0 ")?;
        if !label.is_empty() {
            // Linux has names stand below each other.
            let len = usize::try_from(self.length() - before).unwrap_or(0);
            let width = NAMES - len.min(NAMES);
            write!(self, "{:width$}{label}", "")?;
        }
        writeln!(self)
    }

    /// `cmdline`: its words, each with a zero byte, as they are by now.
    pub(super) fn arguments(&mut self, place: usize) -> fmt::Result {
        let task = self.task(place);
        if !task.lives() {
            return Ok(());
        }
        let (memory, start) = (task.memory, task.start);
        let word = |it: &mut Self, at: u64| it.process.within(memory, |it| it.word(at));
        let count = word(self, start).unwrap_or(0).min(WORDS);
        for index in 0..count {
            let Ok(mut at) = word(self, start + 8 + 8 * index) else {
                break;
            };
            let end = at.saturating_add(WORD as u64);
            while at < end {
                let mut byte = [0; PORTION];
                let len = self
                    .process
                    .within(memory, |it| it.read_some(at, &mut byte));
                let text = &byte[..len];
                let zero = text.iter().position(|&byte| byte == 0);
                self.bytes(&text[..zero.unwrap_or(len)])?;
                at += len as u64;
                if zero.is_some() || len == 0 {
                    break;
                }
            }
            self.bytes(&[0])?;
        }
        Ok(())
    }
}
