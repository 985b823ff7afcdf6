//! Instructions whose result is not the same everywhere: `rdtsc`, `cpuid`, `rdrand` and kin.
//!
//! * `rdtsc`, `rdtscp`: the primary reads the counter, the siblings get it. They are rewritten to
//!   `hlt` likewise, see [`tsc`], and trap by PR_SET_TSC where one could be overlooked.
//! * `cpuid` is rewritten to `hlt` in all code that gets mapped executable, at instruction
//!   boundaries only ([`recognise`]). Where one could be overlooked it traps by CPUID faulting, if
//!   the machine has that; not always, because a virtual machine is left twice for each switch
//!   between a process that has it and one that has not, and for each `cpuid`, but not for `hlt` in
//!   user mode.
//!   What it answers has no per-core fields and does not offer RDRAND, RDSEED, RDPID or RTM: see
//!   [`cpuid`].
//! * `xsave` becomes a jump to a stub that settles what it notes of unused registers: see
//!   [`saved`](crate::arch::saved).
//! * `rdrand`, `rdseed` and `rdpid` in code that does not ask `cpuid` are rewritten likewise: the
//!   random ones report failure (carry clear), which every correct user must handle.
//!
//! Not covered: code that is generated, or made executable, after it was looked at, or that grows
//! by `mremap`; more than [`SITES`] such instructions.

use core::ops::Range;
use core::sync::atomic::Ordering;

use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE, SIGSEGV};

use rcoe_linux_abi::{MAX_REPLICAS, Note, StatClass};

use crate::arch::branches::branches_into_each;
use crate::arch::decoded::Decoded;
use crate::arch::frames::SigContext;
use crate::arch::known::{self, Part};
use crate::arch::recognise::{self, Found, Wanted};
use crate::arch::search::{Candidates, Next};
use crate::arch::sites::{PLANTED, SITES};
use crate::arch::tsc;
use crate::arch::{clusters, cpuid, detours};
use crate::convert::{low32, size};
use crate::kernel::{self, Kernel, kind};
use crate::memory::guest;
use crate::memory::loader::{Code, page_down, page_up};
use crate::memory::regions::{self, control};
use crate::protocol::transfer;
use crate::sys;

/// Makes `rdtsc` and `cpuid` trap in this replica, or not, as the state says.
pub(crate) fn arm() {
    arm_counter(kernel::kernel());
    cpuid::arm();
}

/// Emulates the instruction at the fault, if it is one of ours.
pub(crate) fn emulate(kernel: &mut Kernel, signal: u32, machine: &mut SigContext) -> bool {
    let Ok(code) = guest::read::<[u8; 2]>(machine.rip) else {
        return false;
    };
    match (signal, code) {
        (SIGSEGV, [0x0f, 0x31]) => read_tsc(kernel, machine, 2),
        (SIGSEGV, [0x0f, 0x01]) => match guest::read::<[u8; 3]>(machine.rip) {
            Ok([_, _, 0xf9]) => read_tsc(kernel, machine, 3),
            _ => return false,
        },
        (SIGSEGV, [0x0f, 0xa2]) => tell_cpu(machine),
        (SIGSEGV, PLANTED) => match kernel.traps.find(machine.rip) {
            Some(Found::Cpuid | Found::Asked(_)) => tell_cpu(machine),
            Some(Found::Random(len)) => no_random(machine, len),
            Some(Found::Counter(len)) => read_tsc(kernel, machine, u64::from(len)),
            Some(Found::Call | Found::Saved(_) | Found::Doubt) | None => return false,
        },
        _ => return false,
    }
    kernel.count_call(StatClass::Instruction);
    kernel.event(kind::of(0, kind::INSTRUCTION), machine.rip);
    true
}

/// The primary reads the counter, the siblings take its value.
fn read_tsc(kernel: &mut Kernel, machine: &mut SigContext, len: u64) {
    let trapped = is_trapped(kernel);
    let value = transfer::agree(kernel, || tsc::read(trapped));
    let mut cpu = machine.cpu();
    cpu.regs.rax = value & 0xffff_ffff;
    cpu.regs.rdx = value >> 32;
    if len == 3 {
        // `rdtscp` also names the CPU; the program sees a single one.
        cpu.regs.rcx = 0;
    }
    cpu.rip += len;
    machine.set_cpu(&cpu);
}

fn no_random(machine: &mut SigContext, len: u8) {
    const CARRY: u64 = 1;
    let mut cpu = machine.cpu();
    cpu.rflags &= !CARRY;
    cpu.rip += u64::from(len);
    machine.set_cpu(&cpu);
}

fn tell_cpu(machine: &mut SigContext) {
    let mut cpu = machine.cpu();
    let (leaf, sub) = (low32(cpu.regs.rax), low32(cpu.regs.rcx));
    let [a, b, c, d] = cpuid::answer(leaf, sub);
    cpu.regs.rax = u64::from(a);
    cpu.regs.rbx = u64::from(b);
    cpu.regs.rcx = u64::from(c);
    cpu.regs.rdx = u64::from(d);
    cpu.rip += 2;
    machine.set_cpu(&cpu);
}

/// The time stamp counter traps in this replica or not, as the state says.
fn arm_counter(kernel: &Kernel) {
    if !kernel.alone {
        tsc::set(kernel.clock.is_open());
    }
}

/// Is there anything to be gained by a counter that does not trap?
const fn is_looked_for(kernel: &Kernel) -> bool {
    !kernel.alone && kernel.clock.could_be_open()
}

/// Does the counter trap?
const fn is_trapped(kernel: &Kernel) -> bool {
    !kernel.alone && !kernel.clock.is_open()
}

/// All code of a new program was looked through.
pub(crate) fn settle(kernel: &mut Kernel) {
    let distrusted = kernel.traps.is_distrusted();
    turn(kernel, is_looked_for(kernel) && !distrusted);
    trap_cpuid(kernel, distrusted);
}

/// From here on there may be an instruction that nobody has found.
pub(crate) fn distrust(kernel: &mut Kernel) {
    kernel.traps.distrust();
    turn(kernel, false);
    trap_cpuid(kernel, true);
}

/// Makes `cpuid` trap, or not. A replica that never had siblings may see what the machine says.
fn trap_cpuid(kernel: &Kernel, trapped: bool) {
    if !kernel.alone {
        cpuid::trap(trapped);
    }
}

/// The program may execute, or change, what is mapped so.
pub(crate) fn before_mapping(kernel: &mut Kernel, prot: u64) {
    let both = u64::from(PROT_EXEC | PROT_WRITE);
    if prot & both == both {
        distrust(kernel);
    }
}

/// Code is mapped here: file's, and looked through, or not.
pub(crate) fn add_code(kernel: &mut Kernel, code: &Code) {
    if code.part == Part::FLEETING || !kernel.traps.code.add(code.start, code.len) {
        distrust(kernel);
    }
}

/// The mapping is about to move or to grow, or its pages to be read anew.
pub(crate) fn before_change(kernel: &mut Kernel, start: u64, len: u64) {
    if kernel.traps.code.meets(start, len) {
        distrust(kernel);
        detours::undo(&kernel.traps, start, len);
    }
}

/// A mapping has moved, and what was rewritten in it; `stays`: what was there is read anew.
pub(crate) fn moved(kernel: &mut Kernel, old: (u64, u64), new: (u64, u64), stays: bool) {
    if old.0 == new.0 || !kernel.traps.code.meets(old.0, old.1) {
        return;
    }
    if !kernel.traps.moved(old.0, old.1.min(new.1), new.0) {
        kernel.note(Note::TooManyInstructions, SITES as u64);
    }
    if !kernel.traps.code.add(new.0, new.1) {
        distrust(kernel);
    }
    if stays {
        restored(kernel, old.0, old.1);
    }
}

/// Pages were read anew from their file: what was rewritten in them is again.
pub(crate) fn restored(kernel: &Kernel, start: u64, len: u64) {
    if !kernel.traps.code.meets(start, len) {
        return;
    }
    let all = Wanted {
        cpuid: true,
        counter: true,
        no_cpuid: false,
    };
    let end = start.saturating_add(len);
    for (at, what) in kernel
        .traps
        .all()
        .filter(|(at, what)| (start..end).contains(at) && !matches!(what, Found::Saved(_)))
    {
        if stands_at(at, at + 16, what, all) && guest::copy_out(at, &PLANTED).is_err() {
            let page = page_down(at);
            let span = page_up(at + what.len()) - page;
            // SAFETY: code of the program, which is not running; executable again below.
            let opened = unsafe { sys::mprotect(page, span, PROT_READ | PROT_WRITE) };
            let _ = opened.map(|()| guest::copy_out(at, &PLANTED));
            // SAFETY: as above.
            let _ = unsafe { sys::mprotect(page, span, PROT_READ | PROT_EXEC) };
        }
    }
}

fn turn(kernel: &mut Kernel, open: bool) {
    if !kernel.alone && kernel.clock.is_open() != open {
        tsc::set(open);
        kernel.clock.set_open(open);
    }
}

/// Code of which a program needs the smaller part, as a rule. What was only looked at is let go.
const LARGE: u64 = 256 << 10;
/// Most code that is looked through for branches: in more that takes longer than traps do.
const WIDE: u64 = 1 << 20;

/// Rewrites the instructions above in code that was just mapped.
pub(crate) fn rewrite(kernel: &mut Kernel, code: &Code) {
    let Code {
        start, len, part, ..
    } = *code;
    let mut batch = Batch::new(Wanted {
        cpuid: part != Part::FLEETING && cpuid::can_trap(),
        counter: part != Part::FLEETING && is_looked_for(kernel),
        no_cpuid: false,
    });
    let part = part.sought(batch.wanted.word() | u64::from(code.interprets) << 2);
    if batch.recall(part, start, len) {
        return batch.plant(kernel, start);
    }
    let shares = kernel.processes.shares_finds();
    if shares && batch.hear(part, start, len) {
        known::keep(part, batch.sites());
        return batch.plant(kernel, start);
    }
    let mut from = Some(start);
    let mut first = true;
    while let Some(at) = from {
        from = batch.fill(at, start..start + len);
        let all = first && from.is_none();
        if all && len <= WIDE && (part.is_of_a_version() || batch.has_saved()) {
            batch.widen(code);
        } else {
            batch.leave_saved();
        }
        if all && part.is_of_a_version() {
            known::keep(part, batch.sites());
            if shares {
                regions::with_own_notebook(|it| known::write(it, part, batch.sites()));
            }
            if len >= LARGE {
                // SAFETY: a part of a file that was mapped just now.
                unsafe { sys::let_go(start, len) };
            }
        }
        first = false;
        batch.plant(kernel, start);
    }
}

/// Instructions to be rewritten, in order.
struct Batch {
    /// Offset from where the code begins, and [`Found::pack`] in the low byte.
    sites: [u64; Batch::MOST],
    count: usize,
    wanted: Wanted,
}

impl Batch {
    /// More than nearly any file has.
    const MOST: usize = 128;

    const fn new(wanted: Wanted) -> Self {
        Self {
            sites: [0; Self::MOST],
            count: 0,
            wanted,
        }
    }

    fn sites(&self) -> &[u64] {
        &self.sites[..self.count]
    }

    /// Offsets from where the code begins.
    fn offsets(&self) -> impl DoubleEndedIterator<Item = (u64, Found)> + Clone {
        self.sites().iter().map(|site| unpack(*site))
    }

    /// Takes what was found before in code from this part; false if nobody has looked, or if
    /// anything else stands there.
    fn recall(&mut self, part: Part, start: u64, len: u64) -> bool {
        let Some(sites) = known::sites(part).filter(|sites| sites.len() <= Self::MOST) else {
            return false;
        };
        self.sites[..sites.len()].copy_from_slice(sites);
        self.holds(sites.len(), start, len)
    }

    /// The same of what other processes have found.
    fn hear(&mut self, part: Part, start: u64, len: u64) -> bool {
        let started = size(u64::from(control(0).replicas.load(Ordering::Relaxed)));
        let notebooks = (0..started.min(MAX_REPLICAS)).map(regions::notebook);
        let told = known::alike(part, notebooks, started.min(2), &mut self.sites);
        told.is_some_and(|count| self.holds(count, start, len))
    }

    /// Does the code have all of the first so many sites? Then they are what there is.
    fn holds(&mut self, count: usize, start: u64, len: u64) -> bool {
        let same = self.sites[..count].iter().all(|site| {
            let (offset, what) = unpack(*site);
            offset < len && stands_at(start + offset, start + len, what, self.wanted)
        });
        self.count = if same { count } else { 0 };
        same
    }

    /// Looks for more in the code, at or after `from`; where to look next if there was no room.
    fn fill(&mut self, from: u64, code: Range<u64>) -> Option<u64> {
        self.count = 0;
        let mut candidates = Candidates::new(from..code.end);
        let mut decoded = Decoded::new();
        loop {
            let at = match candidates.next(self.wanted) {
                Next::At(at) => at,
                Next::End => return None,
                Next::Hole => {
                    // Behind the end of its file nothing can be executed either. What can be
                    // executed and not be read is another matter.
                    if self.wanted.doubts() && guest::read::<u8>(code.start).is_err() {
                        self.add_doubt(0);
                    }
                    return None;
                }
            };
            if self.count + 1 >= Self::MOST {
                return Some(at);
            }
            match find(at, &code, self.wanted, &mut decoded) {
                Some((begin, Found::Doubt)) => self.add_doubt(begin - code.start),
                Some((begin, what)) => {
                    self.add(begin - code.start, what);
                    candidates.skip_to(begin + what.len());
                }
                None => {}
            }
        }
    }

    fn add(&mut self, offset: u64, what: Found) {
        self.sites[self.count] = pack(offset, what);
        self.count += 1;
    }

    /// One tells as much as many: what the machine can trap does then, and nothing else of that is
    /// in doubt.
    fn add_doubt(&mut self, offset: u64) {
        if !self.has_doubt() {
            self.add(offset, Found::Doubt);
        }
        self.wanted = self.wanted.in_doubt();
    }

    fn has_doubt(&self) -> bool {
        self.offsets().any(|(_, what)| what == Found::Doubt)
    }

    /// Is there an `xsave` for which there may be room for a jump?
    fn has_saved(&self) -> bool {
        self.offsets()
            .any(|(_, what)| matches!(what, Found::Saved(_)))
    }

    /// Nobody has found out whether there is room: those are left alone.
    fn leave_saved(&mut self) {
        for site in &mut self.sites[..self.count] {
            if matches!(unpack(*site), (_, Found::Saved(_))) {
                *site = Self::GONE;
            }
        }
        self.close_ranks();
    }

    /// Finds out where there is room for a jump: at a `cpuid`, an `xsave`, and calls of a loader.
    fn widen(&mut self, code: &Code) {
        let range = code.start..code.start + code.len;
        if code.interprets {
            clusters::calls(&range, |at| self.insert(pack(at - code.start, Found::Call)));
        }
        let mut windows = [const { 0..0 }; Self::MOST];
        let mut places = [0; Self::MOST];
        let mut count = 0;
        for (index, site) in self.sites[..self.count].iter_mut().enumerate() {
            let (offset, what) = unpack(*site);
            if let Some((wide, window)) = detours::room(range.start + offset, range.end, what) {
                *site = pack(offset, wide);
                windows[count] = window;
                places[count] = index;
                count += 1;
            } else if matches!(what, Found::Saved(_)) {
                *site = Self::GONE;
            }
        }
        branches_into_each(&range, &windows[..count], |index| {
            let site = &mut self.sites[places[index]];
            *site = match unpack(*site) {
                (_, Found::Call | Found::Saved(_)) => Self::GONE,
                (offset, _) => pack(offset, Found::Cpuid),
            };
        });
        self.close_ranks();
    }

    /// Those that are no sites are left out.
    fn close_ranks(&mut self) {
        let mut kept = 0;
        for index in 0..self.count {
            if self.sites[index] != Self::GONE {
                self.sites[kept] = self.sites[index];
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// No site.
    const GONE: u64 = u64::MAX;

    /// One more, where it belongs, if there is room.
    fn insert(&mut self, site: u64) {
        if self.count + 1 < Self::MOST {
            let at = self.sites().partition_point(|known| *known < site);
            self.sites.copy_within(at..self.count, at + 1);
            self.sites[at] = site;
            self.count += 1;
        }
    }

    /// Rewrites them in the code at `start`.
    fn plant(&self, kernel: &mut Kernel, start: u64) {
        if self.has_doubt() {
            distrust(kernel);
        }
        let mut sites = self.offsets().filter(|(_, what)| *what != Found::Doubt);
        let Some((first, what)) = sites.next() else {
            return;
        };
        let (last, what) = sites.next_back().unwrap_or((first, what));
        let page = page_down(start + first);
        let span = page_up(start + last + what.len()) - page;
        let known = self.offsets().map(|(offset, what)| (start + offset, what));
        let mut tables = detours::Tables {
            rewriter: &mut kernel.rewriter,
            traps: &mut kernel.traps,
            calls: 0,
        };
        let mut stubs = detours::Row::make(&mut tables, known.clone());
        kernel::count(&kernel.report.sites, tables.calls);
        // SAFETY: code of the program, which is not running; executable again below.
        let opened = unsafe { sys::mprotect(page, span, PROT_READ | PROT_WRITE) };
        for (address, what) in known {
            let stub = stubs.next(what);
            if what == Found::Doubt {
                continue;
            }
            if what == Found::Call || matches!(what, Found::Saved(_)) && stub.is_none() {
                let _ = opened.map(|()| detours::plant(address, what, stub));
                continue;
            }
            if !kernel.traps.has_room(address) {
                kernel.note(Note::TooManyInstructions, SITES as u64);
            } else if opened.is_ok() && detours::plant(address, what, stub) {
                kernel.traps.add(address, what);
                continue;
            }
            if matches!(what, Found::Counter(_) | Found::Cpuid | Found::Asked(_)) {
                distrust(kernel);
            }
        }
        // SAFETY: as above.
        let closed = unsafe { sys::mprotect(page, span, PROT_READ | PROT_EXEC) };
        closed.expect("what was executable can be again");
    }
}

fn pack(offset: u64, what: Found) -> u64 {
    offset << 8 | what.pack()
}

fn unpack(site: u64) -> (u64, Found) {
    (site >> 8, Found::unpack(site & 0xff))
}

/// Is there really such an instruction at `at`, or one whose prefix is right before?
fn find(at: u64, code: &Range<u64>, wanted: Wanted, decoded: &mut Decoded) -> Option<(u64, Found)> {
    let mut bytes = [0_u8; recognise::BEFORE + recognise::TRAIL];
    let low = at.saturating_sub(recognise::BEFORE as u64).max(code.start);
    let high = (at + recognise::TRAIL as u64).min(code.end);
    // Where the file ends within the mapping, code ends with the page.
    let ends = [high, high.min(page_up(at + 1))];
    let read = |high: &u64| guest::copy_in(&mut bytes[..size(high - low)], low).is_ok();
    let Some(high) = ends.into_iter().find(read) else {
        return wanted.doubts().then_some((at, Found::Doubt));
    };
    let window = &bytes[..size(high - low)];
    decoded.start = low - code.start;
    let (begin, what) = recognise::recognise(window, size(at - low), wanted, decoded)?;
    Some((low + begin as u64, what))
}

/// Is this what the code has at `at`?
fn stands_at(at: u64, end: u64, what: Found, wanted: Wanted) -> bool {
    let mut code = [0; 16];
    let len = size(end.saturating_sub(at).min(code.len() as u64));
    guest::copy_in(&mut code[..len], at).is_ok() && recognise::holds(&code[..len], what, wanted)
}

/// Length of the instruction at `at`, or 1 if there is none. To be called under a guard, with 16
/// readable bytes.
pub(crate) fn length_at(at: u64) -> u64 {
    // SAFETY: the caller's guard catches a hole.
    let code = unsafe { (at as *const [u8; 16]).read_unaligned() };
    recognise::length(&code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::search::effort;

    const ALL: Wanted = Wanted {
        cpuid: true,
        counter: true,
        no_cpuid: false,
    };

    #[test]
    fn what_was_found_is_kept_in_a_word() {
        for what in [
            Found::Cpuid,
            Found::Random(4),
            Found::Counter(3),
            Found::Doubt,
        ] {
            assert_eq!(unpack(pack(0x1234_5678, what)), (0x1234_5678, what));
        }
    }

    #[test]
    fn one_doubt_tells_as_much_as_many() {
        let mut batch = Batch::new(ALL);
        batch.add_doubt(10);
        batch.add_doubt(20);
        batch.add(30, Found::Counter(2));
        assert_eq!(batch.sites().len(), 2);
        assert!(batch.has_doubt());
    }

    /// Bytes of a text whose search is counted.
    const TEXT: usize = 1 << 20;

    /// Instructions decoded to look through a text that has these bytes at such distances, among
    /// instructions, and whether there was a doubt.
    fn decoded(body: &[u8], distance: usize) -> (u64, bool) {
        const MOVE: [u8; 3] = [0x48, 0x89, 0xe5];
        let mut unit = MOVE.repeat((distance - body.len()) / MOVE.len());
        unit.extend_from_slice(body);
        let text = unit.repeat(TEXT / unit.len());
        let start = text.as_ptr() as u64;
        let code = start..start + text.len() as u64;
        let mut batch = Batch::new(ALL);
        let (mut from, mut doubt) = (Some(start), false);
        effort::take();
        while let Some(at) = from {
            from = batch.fill(at, code.clone());
            doubt |= batch.has_doubt();
        }
        let [bytes, instructions] = effort::take();
        assert!(bytes <= 5 * TEXT as u64, "{body:x?}: {bytes}");
        (instructions, doubt)
    }

    #[test]
    fn few_instructions_are_decoded_for_each_candidate() {
        let text = TEXT as u64;
        // A short jump and `xor`, `lfence`, `rdrand`, `rdtsc`.
        let sure: [&[u8]; 4] = [
            &[0x74, 0x0f, 0x31, 0xc0],
            &[0x0f, 0xae, 0xe8],
            &[0x0f, 0xc7, 0xf0],
            &[0x0f, 0x31],
        ];
        for body in sure {
            let (instructions, doubt) = decoded(body, 256);
            assert!(0 < instructions && instructions <= text, "{instructions}");
            assert!(!doubt, "{body:x?}");
        }
        let (fences, _) = decoded(&[0x0f, 0xae, 0xe8], 3);
        assert!(fences <= 2 * text, "three for each: {fences}");
        let (instructions, doubt) = decoded(&[0xf3, 0x0f, 0x31], 6);
        assert!(
            doubt && instructions <= text,
            "one is enough: {instructions}"
        );
        assert_eq!(decoded(&[0x90], 64), (0, false));
    }
}
