//! Instructions whose result is not the same everywhere: `rdtsc`, `cpuid`, `rdrand` and kin.
//!
//! * `rdtsc`, `rdtscp` trap by PR_SET_TSC. The primary reads the counter, the siblings get it.
//! * `cpuid` traps by CPUID faulting where the machine has it. Where it has not, `cpuid` is
//!   rewritten to `hlt` in all code that gets mapped executable, at instruction boundaries only.
//!   A virtual machine is left for an undefined instruction, not for this one.
//!   What it answers has no per-core fields and does not offer RDRAND, RDSEED, RDPID or RTM: see
//!   [`cpuid`].
//! * `rdrand`, `rdseed` and `rdpid` in code that does not ask `cpuid` are rewritten likewise: the
//!   random ones report failure (carry clear), which every correct user must handle.
//!
//! Not covered: code that is generated, or made executable, after it was looked at; more than
//! [`SITES`] such instructions.

use core::ops::Range;
use core::sync::atomic::Ordering;

use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE, SIGSEGV};
use linux_raw_sys::prctl::{PR_SET_TSC, PR_TSC_ENABLE, PR_TSC_SIGSEGV};
use rcoe_linux_abi::{MAX_REPLICAS, Note, StatClass};
use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Opcode};

use crate::arch::cpuid;
use crate::arch::frames::SigContext;
use crate::arch::known::{self, Part};
use crate::convert::{low32, size};
use crate::kernel::{Kernel, kind};
use crate::lifetime::{PerProgram, Program};
use crate::memory::guest;
use crate::memory::loader::{page_down, page_up};
use crate::memory::regions::{self, control};
use crate::protocol::transfer;
use crate::sys;

/// Most rewritten instructions in one program. Others are left as they are, and the user is told.
const SITES: usize = 4096;

/// `hlt`, which traps, and `nop`: the first two bytes of what is rewritten.
const PLANTED: [u8; 2] = [0xf4, 0x90];

/// What stood where a `hlt` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rewritten {
    Cpuid,
    /// `rdrand`, `rdseed` or `rdpid`; the length of the instruction, which reports no success.
    Random(u8),
}

impl Rewritten {
    const fn pack(self) -> u64 {
        match self {
            Self::Cpuid => 0,
            Self::Random(len) => len as u64,
        }
    }

    fn unpack(word: u64) -> Self {
        match u8::try_from(word).unwrap_or(0) {
            0 => Self::Cpuid,
            len => Self::Random(len),
        }
    }
}

/// Rewritten instructions of this program: address and [`Rewritten::pack`], without gaps, since
/// replicas are compared byte by byte. Zeroes are none.
pub(crate) struct Traps {
    sites: [[u64; 2]; SITES],
    count: usize,
}

impl PerProgram for Traps {
    /// Nothing is rewritten.
    fn in_program(&mut self, _: &Program) {
        let Self { sites, count } = self;
        sites[..*count].fill([0; 2]);
        *count = 0;
    }
}

impl Traps {
    fn find(&self, address: u64) -> Option<Rewritten> {
        self.sites[..self.count]
            .iter()
            .find(|[at, _]| *at == address)
            .map(|[_, what]| Rewritten::unpack(*what))
    }

    /// Is there room for this one?
    fn has_room(&self, address: u64) -> bool {
        self.count < SITES || self.find(address).is_some()
    }

    fn add(&mut self, address: u64, what: Rewritten) {
        if let Some(known) = self.sites[..self.count]
            .iter_mut()
            .find(|[at, _]| *at == address)
        {
            known[1] = what.pack();
            return;
        }
        self.sites[self.count] = [address, what.pack()];
        self.count += 1;
    }
}

/// Makes `rdtsc`, and `cpuid` where the machine can, trap in this replica.
pub(crate) fn arm() {
    if control(0).replicas.load(Ordering::Relaxed) > 1 {
        sys::prctl(PR_SET_TSC, [u64::from(PR_TSC_SIGSEGV), 0, 0, 0])
            .expect("every x86 kernel can trap rdtsc");
    }
    // Without CPUID faulting this fails, and the instruction is rewritten instead.
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
            Some(Rewritten::Cpuid) => tell_cpu(machine),
            Some(Rewritten::Random(len)) => no_random(machine, len),
            None => return false,
        },
        _ => return false,
    }
    kernel.count_call(StatClass::Instruction);
    kernel.event(kind::of(0, kind::INSTRUCTION), machine.rip);
    true
}

/// The primary reads the counter, the siblings take its value.
fn read_tsc(kernel: &mut Kernel, machine: &mut SigContext, len: u64) {
    let value = transfer::agree(kernel, || {
        // The counter is open to the agent only for this moment; both changes always succeed.
        let _ = sys::prctl(PR_SET_TSC, [u64::from(PR_TSC_ENABLE), 0, 0, 0]);
        // SAFETY: enabled just now.
        let value = unsafe { core::arch::x86_64::_rdtsc() };
        let _ = sys::prctl(PR_SET_TSC, [u64::from(PR_TSC_SIGSEGV), 0, 0, 0]);
        value
    });
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

/// Code of which a program needs the smaller part, as a rule. What was only looked at is let go.
const LARGE: u64 = 256 << 10;

/// Rewrites the instructions above in `len` bytes of code that was just mapped at `start`; it came
/// from this part of a file.
pub(crate) fn rewrite(kernel: &mut Kernel, start: u64, len: u64, part: Part) {
    let mut batch = Batch::NONE;
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
        if first && from.is_none() && part != Part::NONE {
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
    /// Offset from where the code begins, and [`Rewritten::pack`] in the low byte.
    sites: [u64; Batch::MOST],
    count: usize,
}

impl Batch {
    /// More than nearly any file has.
    const MOST: usize = 128;
    const NONE: Self = Self {
        sites: [0; Self::MOST],
        count: 0,
    };

    fn sites(&self) -> &[u64] {
        &self.sites[..self.count]
    }

    /// Offsets from where the code begins.
    fn offsets(&self) -> impl DoubleEndedIterator<Item = (u64, Rewritten)> {
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
        let cpuid_traps = cpuid::traps();
        let same = self.sites[..count].iter().all(|site| {
            let (offset, what) = unpack(*site);
            offset < len && stands_at(start + offset, start + len, cpuid_traps) == Some(what)
        });
        self.count = if same { count } else { 0 };
        same
    }

    /// Looks for more in the code, at or after `from`; where to look next if there was no room.
    fn fill(&mut self, mut from: u64, code: Range<u64>) -> Option<u64> {
        let cpuid_traps = cpuid::traps();
        self.count = 0;
        while let Some(at) = next_candidate(from, code.end) {
            if self.count == Self::MOST {
                return Some(at);
            }
            from = at + 1;
            if let Some((begin, what)) = recognise(at, code.start, code.end, cpuid_traps) {
                self.sites[self.count] = pack(begin - code.start, what);
                self.count += 1;
                from = begin + len_of(what);
            }
        }
        None
    }

    /// Rewrites them in the code at `start`.
    fn plant(&self, kernel: &mut Kernel, start: u64) {
        let (Some((first, _)), Some((last, what))) =
            (self.offsets().next(), self.offsets().next_back())
        else {
            return;
        };
        let page = page_down(start + first);
        let span = page_up(start + last + len_of(what)) - page;
        // SAFETY: code of the program, which is not running; executable again below.
        let opened = unsafe { sys::mprotect(page, span, PROT_READ | PROT_WRITE) };
        for (offset, what) in self.offsets().filter(|_| opened.is_ok()) {
            let address = start + offset;
            if !kernel.traps.has_room(address) {
                kernel.note(Note::TooManyInstructions, SITES as u64);
            } else if guest::copy_out(address, &PLANTED).is_ok() {
                kernel.traps.add(address, what);
            }
        }
        // SAFETY: as above.
        let closed = unsafe { sys::mprotect(page, span, PROT_READ | PROT_EXEC) };
        closed.expect("what was executable can be again");
    }
}

fn pack(offset: u64, what: Rewritten) -> u64 {
    offset << 8 | what.pack()
}

fn unpack(site: u64) -> (u64, Rewritten) {
    (site >> 8, Rewritten::unpack(site & 0xff))
}

const fn len_of(what: Rewritten) -> u64 {
    match what {
        Rewritten::Cpuid => 2,
        Rewritten::Random(len) => len as u64,
    }
}

/// Bytes looked at without a decision in between, so that the loop becomes vector code.
const BLOCK: u64 = 512;

/// Is there a candidate that begins in the block at `at`? To be called under a guard.
fn block_has_candidate(at: u64) -> bool {
    [at, at + 1].into_iter().any(|at| {
        // SAFETY: mapped code that nobody changes meanwhile; a hole faults, which the caller's
        // guard catches.
        let code = unsafe { core::slice::from_raw_parts(at as *const u8, size(BLOCK)) };
        let hits = code.chunks_exact(2).fold(0, |hits: u16, pair| {
            let pair = u16::from_le_bytes([pair[0], pair[1]]);
            hits | u16::from(pair == 0xa20f) | u16::from(pair == 0xc70f)
        });
        hits != 0
    })
}

/// Address of the next `0f a2` or `0f c7` at or after `from`; `None` also if memory ends early.
fn next_candidate(from: u64, end: u64) -> Option<u64> {
    let mut found = None;
    crate::arch::entry::guarded(|| {
        let mut at = from;
        while at + 2 <= end {
            while at + BLOCK < end && !block_has_candidate(at) {
                at += BLOCK;
            }
            // SAFETY: mapped code; a hole faults, which the guard catches.
            let pair = unsafe { (at as *const u16).read_unaligned() };
            if pair == 0xa20f || pair == 0xc70f {
                found = Some(at);
                return 0;
            }
            at += 1;
        }
        0
    });
    found
}

/// How far before a candidate decoding starts.
const LEAD: u64 = 48;
/// Different starting points whose decoding must agree.
const STARTS: u64 = 16;
/// Bytes looked at behind a candidate.
const TRAIL: u64 = 24;

/// Is there really such an instruction at `at`, or one whose prefix is right before?
fn recognise(at: u64, start: u64, end: u64, cpuid_traps: bool) -> Option<(u64, Rewritten)> {
    let mut bytes = [0_u8; size(LEAD + STARTS + TRAIL)];
    let low = at.saturating_sub(LEAD + STARTS).max(start);
    let high = (at + TRAIL).min(end);
    let code = &mut bytes[..size(high - low)];
    guest::copy_in(code, low).ok()?;
    // Prefixes (operand size, REX) belong to the instruction.
    for prefix in [2, 1, 0] {
        let Some(position) = size(at - low).checked_sub(prefix) else {
            continue;
        };
        let Some(what) = to_rewrite(&code[position..], cpuid_traps) else {
            continue;
        };
        if what == Rewritten::Cpuid && prefix != 0 {
            continue;
        }
        if agreed_boundary(code, position) && plausible(&code[position..]) {
            return Some((low + position as u64, what));
        }
    }
    None
}

/// Is there one of the instructions that are rewritten at `at`?
fn stands_at(at: u64, end: u64, cpuid_traps: bool) -> Option<Rewritten> {
    let mut code = [0; 16];
    let len = size(end.saturating_sub(at).min(code.len() as u64));
    guest::copy_in(&mut code[..len], at).ok()?;
    to_rewrite(&code[..len], cpuid_traps)
}

/// What the code begins with, if that is rewritten.
fn to_rewrite(code: &[u8], cpuid_traps: bool) -> Option<Rewritten> {
    match decode(code)? {
        (Opcode::CPUID, _) if !cpuid_traps => Some(Rewritten::Cpuid),
        (Opcode::RDRAND | Opcode::RDSEED | Opcode::RDPID, len) => Some(Rewritten::Random(len)),
        _ => None,
    }
}

fn decode(code: &[u8]) -> Option<(Opcode, u8)> {
    let instruction = InstDecoder::default().decode_slice(code).ok()?;
    let len = u8::try_from(instruction.len().to_const()).ok()?;
    Some((instruction.opcode(), len))
}

/// Length of the instruction at `at`, or 1 if there is none. To be called under a guard, with 16
/// readable bytes.
pub(crate) fn length_at(at: u64) -> u64 {
    // SAFETY: the caller's guard catches a hole.
    let code = unsafe { (at as *const [u8; 16]).read_unaligned() };
    decode(&code).map_or(1, |(_, len)| u64::from(len))
}

/// Do decodings from most starting points before `position` arrive exactly there?
fn agreed_boundary(code: &[u8], position: usize) -> bool {
    let lead = size(LEAD).min(position);
    let starts = (position - lead + 1).min(size(STARTS));
    // Backwards, so that each place is decoded once.
    let mut arrives = [false; size(LEAD + STARTS) + 1];
    arrives[position] = true;
    for at in (0..position).rev() {
        let len = decode(&code[at..]).map_or(1, |(_, len)| usize::from(len));
        arrives[at] = arrives[..=position].get(at + len) == Some(&true);
    }
    let arriving = arrives[..starts].iter().filter(|it| **it).count();
    arriving * 4 >= starts * 3
}

/// Does what follows look like compiled code, rather than like data between functions?
fn plausible(code: &[u8]) -> bool {
    let mut at = 0;
    while at + 16 < code.len() {
        let Some((opcode, len)) = decode(&code[at..]) else {
            return false;
        };
        if is_rare(opcode) {
            return false;
        }
        at += usize::from(len);
    }
    true
}

/// Instructions that no compiler emits into a program.
fn is_rare(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::IN
            | Opcode::OUT
            | Opcode::INS
            | Opcode::OUTS
            | Opcode::HLT
            | Opcode::CLI
            | Opcode::STI
            | Opcode::IRET
            | Opcode::RETF
            | Opcode::ENTER
            | Opcode::XLAT
            | Opcode::LOOP
            | Opcode::LOOPZ
            | Opcode::LOOPNZ
            | Opcode::CALLF
            | Opcode::JMPF
    )
}

#[cfg(test)]
mod tests {
    use crate::arch::instructions::{Rewritten, next_candidate, recognise};

    /// `body` among ordinary instructions: `mov %rsp,%rbp`, `add $1,%rax`.
    fn code(body: &[u8]) -> (Vec<u8>, u64) {
        let filler = [0x48, 0x89, 0xe5, 0x48, 0x83, 0xc0, 0x01];
        let mut code = filler.repeat(20);
        let at = code.len();
        code.extend_from_slice(body);
        code.extend_from_slice(&filler.repeat(20));
        let address = code.as_ptr() as u64 + at as u64;
        (code, address)
    }

    fn found(body: &[u8], cpuid_traps: bool) -> Option<(u64, Rewritten)> {
        let (code, begin) = code(body);
        let start = code.as_ptr() as u64;
        let end = start + code.len() as u64;
        let at = next_candidate(start, end)?;
        recognise(at, start, end, cpuid_traps).map(|(at, what)| (at - begin, what))
    }

    #[test]
    fn untrappable_instructions_are_found_with_their_prefixes() {
        assert_eq!(found(&[0x0f, 0xa2], false), Some((0, Rewritten::Cpuid)));
        assert_eq!(found(&[0x0f, 0xa2], true), None, "the machine traps it");
        assert_eq!(
            found(&[0x0f, 0xc7, 0xf0], false),
            Some((0, Rewritten::Random(3))),
            "rdrand"
        );
        let wide = &[0x48, 0x0f, 0xc7, 0xf8];
        assert_eq!(
            found(wide, true),
            Some((0, Rewritten::Random(4))),
            "rdseed %rax"
        );
        let pid = &[0xf3, 0x0f, 0xc7, 0xf8];
        assert_eq!(found(pid, true), Some((0, Rewritten::Random(4))), "rdpid");
    }

    #[test]
    fn look_alikes_are_left_alone() {
        assert_eq!(
            found(&[0xb8, 0x0f, 0xa2, 0x00, 0x00], false),
            None,
            "a constant"
        );
        assert_eq!(found(&[0x0f, 0xc7, 0x0f], false), None, "cmpxchg8b (%rdi)");
    }
}
