//! Which bytes of code are instructions that answer differently on each core.
//!
//! Bytes that look like one can be part of a longer instruction, or data between functions. Where
//! instructions begin is found by decoding from several places before: after a few instructions
//! the decodings fall into step.
//!
//! Two questions are asked. May these bytes be replaced? Only if most decodings arrive there, none
//! of which has met what no compiler emits, and code follows: what is executable need not be code.
//! Many linkers put tables and constants beside it, and a program whose data is replaced goes wrong
//! in all replicas alike. May an instruction be overlooked that the machine can trap instead: one
//! that reads the time stamp counter, or `cpuid`? So of bytes that look like one, and are not
//! replaced, it must be plain that they are no instruction: if it is not, the answer is
//! [`Found::Doubt`], and they have to trap.
//!
//! Not covered: jumps into the middle of an instruction.

use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Opcode};

use crate::arch::decoded::{Decoded, Step};
use crate::arch::search::effort;
use crate::arch::{clusters, detour, saved};

/// How far before a candidate decoding starts; the next if what is before cannot be decoded.
const LEADS: [usize; 4] = [128, 64, 32, 16];
/// So many decodings are needed there that meet nothing which no compiler emits.
const ENOUGH: usize = 4;
/// Different starting points whose decodings must agree.
const STARTS: usize = 16;
/// Bytes needed before a candidate.
pub(crate) const BEFORE: usize = LEADS[0] + STARTS;
/// Bytes looked at from a candidate on.
pub(crate) const TRAIL: usize = 80;
/// Prefixes that are looked for before an instruction.
const PREFIXES: usize = 3;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Each `cpuid`, because the machine could trap them. Else one may be overlooked.
    pub(crate) cpuid: bool,
    /// All that reads the time stamp counter.
    pub(crate) counter: bool,
    /// No `cpuid`: they trap.
    pub(crate) no_cpuid: bool,
}

impl Wanted {
    /// Is there anything that may not be overlooked?
    pub(crate) const fn doubts(self) -> bool {
        self.cpuid || self.counter
    }

    /// In a word, for those that differ at the start of a search.
    pub(crate) const fn word(self) -> u64 {
        self.cpuid as u64 | (self.counter as u64) << 1
    }

    /// What is looked for still when all traps that the machine can trap.
    pub(crate) const fn in_doubt(self) -> Self {
        Self {
            cpuid: false,
            counter: false,
            no_cpuid: self.cpuid || self.no_cpuid,
        }
    }
}

/// What stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Cpuid,
    /// The same in so many bytes that a jump can take the place of, for no branch leads into them.
    Asked(u8),
    /// A system call of a loader, and a comparison behind it, that a jump can take the place of.
    Call,
    /// `rdrand`, `rdseed` or `rdpid`; the length of the instruction, which reports no success.
    Random(u8),
    /// `rdtsc` or `rdtscp`, which are two and three bytes long.
    Counter(u8),
    /// `xsave` in so many bytes that a jump can take the place of; else it is left alone.
    Saved(u8),
    /// Perhaps an instruction that may not be overlooked, and none that can be replaced.
    Doubt,
}

impl Found {
    /// In one byte.
    pub(crate) const fn pack(self) -> u64 {
        match self {
            Self::Cpuid => 0,
            Self::Random(len) => len as u64,
            Self::Asked(len) => Self::ASKED | len as u64,
            Self::Counter(len) => Self::COUNTER | len as u64,
            Self::Saved(len) => Self::SAVED | len as u64,
            Self::Call => Self::CALL,
            Self::Doubt => Self::DOUBT,
        }
    }

    const ASKED: u64 = 0x20;
    const CALL: u64 = 0x30;
    const COUNTER: u64 = 0x40;
    const SAVED: u64 = 0x50;
    const DOUBT: u64 = 0x80;

    pub(crate) fn unpack(word: u64) -> Self {
        match u8::try_from(word & 0xff).unwrap_or(0) {
            0 => Self::Cpuid,
            0x80.. => Self::Doubt,
            len @ 0x50.. => Self::Saved(len - 0x50),
            len @ 0x40.. => Self::Counter(len - 0x40),
            0x30.. => Self::Call,
            len @ 0x20.. => Self::Asked(len - 0x20),
            len => Self::Random(len),
        }
    }

    /// Bytes of the instruction.
    pub(crate) const fn len(self) -> u64 {
        match self {
            Self::Cpuid | Self::Asked(_) => 2,
            Self::Call => clusters::CALL as u64,
            Self::Random(len) | Self::Counter(len) | Self::Saved(len) => len as u64,
            Self::Doubt => 1,
        }
    }
}

/// The first byte of each of them, its prefixes left out.
pub(crate) const ESCAPE: u8 = 0x0f;

/// What stands behind that in them.
#[inline]
pub(crate) const fn seconds(wanted: Wanted) -> &'static [u8] {
    if wanted.counter {
        &[0xa2, 0xc7, 0x31, 0x01, 0xae]
    } else {
        &[0xa2, 0xc7, 0xae]
    }
}

/// Could one of them begin with these two bytes, its prefixes left out?
#[inline]
pub(crate) fn is_candidate(pair: u16, wanted: Wanted) -> bool {
    let [first, second] = pair.to_le_bytes();
    first == ESCAPE && seconds(wanted).contains(&second)
}

/// Is there such an instruction at `at`, or one whose prefix is right before; and where does it
/// begin? `code` has [`BEFORE`] bytes before and [`TRAIL`] from there, or begins or ends earlier
/// because the mapping does. `decoded` knows where it begins.
pub(crate) fn recognise(
    code: &[u8],
    at: usize,
    wanted: Wanted,
    decoded: &mut Decoded,
) -> Option<(usize, Found)> {
    if wanted.counter && may_read_counter(code, at) || wanted.cpuid && may_be_cpuid(code, at) {
        return judge(code, at, decoded);
    }
    if !matches!(code[at..], [ESCAPE, 0xa2 | 0xc7 | 0xae, ..]) {
        return None;
    }
    // Prefixes (operand size, REX) belong to the instruction.
    let before = prefixes(code, at).len().min(PREFIXES - 1);
    for prefix in (0..=before).rev() {
        let position = at - prefix;
        let Some(what) = to_replace(&code[position..]) else {
            continue;
        };
        if what == Found::Cpuid && (prefix != 0 || wanted.no_cpuid) {
            continue;
        }
        if is_sure(code, position, decoded) {
            return Some((position, what));
        }
    }
    None
}

/// Is it plain that an instruction begins there?
fn is_sure(code: &[u8], at: usize, decoded: &mut Decoded) -> bool {
    let mut arriving = LEADS.iter().map(|lead| decodings(code, at, *lead, decoded));
    let telling = arriving.find(|it| it.is_enough());
    telling.is_some_and(|it| it.is_sure()) && may_be_code(code, at, decoded)
}

/// What the code begins with, if that is replaced.
fn to_replace(code: &[u8]) -> Option<Found> {
    if let Some(len) = saved::window(code) {
        return u8::try_from(len).ok().map(Found::Saved);
    }
    match decode(code)? {
        (Opcode::CPUID, _) => Some(Found::Cpuid),
        (Opcode::RDRAND | Opcode::RDSEED | Opcode::RDPID, len) => Some(Found::Random(len)),
        _ => None,
    }
}

/// Does the code begin with what was found there? Of a doubt nothing can be said.
pub(crate) fn holds(code: &[u8], found: Found, wanted: Wanted) -> bool {
    match found {
        Found::Counter(_) => wanted.counter && counter_at(code, 0) == Some(found),
        Found::Doubt => wanted.doubts(),
        Found::Cpuid => code.starts_with(&[0x0f, 0xa2]),
        Found::Asked(len) => detour::window(code) == Some(usize::from(len)),
        Found::Call => clusters::is_call(code),
        Found::Saved(len) => saved::window(code) == Some(usize::from(len)),
        Found::Random(len) => random_at(code, len),
    }
}

/// Is this one of the random instructions, of this length? By its bytes alone: looking up what was
/// found before is to bring in no decoder.
fn random_at(code: &[u8], len: u8) -> bool {
    let code = code.get(..usize::from(len));
    let Some([before @ .., 0x0f, 0xc7, 0xf0..=0xff]) = code else {
        return false;
    };
    before.iter().all(|byte| is_prefix(*byte))
}

/// `rdtsc` or `rdtscp` without a prefix.
fn counter_at(code: &[u8], at: usize) -> Option<Found> {
    match code.get(at..)? {
        [0x0f, 0x31, ..] => Some(Found::Counter(2)),
        [0x0f, 0x01, 0xf9, ..] => Some(Found::Counter(3)),
        _ => None,
    }
}

/// One without a prefix that may not be overlooked.
fn exactly_at(code: &[u8], at: usize) -> Option<Found> {
    match code.get(at..)? {
        [0x0f, 0xa2, ..] => Some(Found::Cpuid),
        _ => counter_at(code, at),
    }
}

/// Does an instruction that the kernel's flag against `rdtsc` governs have these bytes behind its
/// prefixes: `rdtsc`, `rdtscp`, `rdpru`, or with a prefix `umwait` and `tpause`?
fn may_read_counter(code: &[u8], at: usize) -> bool {
    match code.get(at..).unwrap_or(&[]) {
        [0x0f, 0x01, 0xfd, ..] => true,
        [0x0f, 0xae, 0xf0..=0xf7, ..] => prefixes(code, at)
            .iter()
            .any(|byte| matches!(byte, 0x66 | 0xf2)),
        // The code ends in the midst of it, and another mapping may follow.
        [0x0f] | [0x0f, 0x01 | 0xae] => true,
        _ => counter_at(code, at).is_some(),
    }
}

/// Has a `cpuid` these bytes, or its first one where the code ends?
fn may_be_cpuid(code: &[u8], at: usize) -> bool {
    matches!(code.get(at..), Some([0x0f, 0xa2, ..] | [0x0f]))
}

/// What could be prefixes of an instruction, right before it.
fn prefixes(code: &[u8], at: usize) -> &[u8] {
    let before = &code[at.saturating_sub(PREFIXES)..at];
    let others = before.iter().rposition(|byte| !is_prefix(*byte));
    &before[others.map_or(0, |other| other + 1)..]
}

const fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

/// What of bytes that look like an instruction which may not be overlooked?
fn judge(code: &[u8], at: usize, decoded: &mut Decoded) -> Option<(usize, Found)> {
    let first = at - prefixes(code, at).len();
    for lead in LEADS {
        let arriving = decodings(code, at, lead, decoded);
        if !arriving.is_enough() {
            continue;
        }
        let there = arriving.there;
        let mut before = first..at;
        let prefixed = before.any(|it| decodings(code, it, lead, decoded).there > 0);
        if there == 0 && !prefixed {
            return None;
        }
        let sure = arriving.is_sure() && !prefixed && plausible(code, at, decoded);
        let found = exactly_at(code, at).filter(|_| sure);
        return Some((at, found.unwrap_or(Found::Doubt)));
    }
    // Neither what comes before nor what follows is code: data.
    may_be_code(code, at, decoded).then_some((at, Found::Doubt))
}

fn decode(code: &[u8]) -> Option<(Opcode, u8)> {
    effort::decode();
    let instruction = InstDecoder::default().decode_slice(code).ok()?;
    let len = u8::try_from(instruction.len().to_const()).ok()?;
    Some((instruction.opcode(), len))
}

/// Length of the instruction that the code begins with, or 1 if there is none.
pub(crate) fn length(code: &[u8]) -> u64 {
    decode(code).map_or(1, |(_, len)| u64::from(len))
}

/// Decodings from different places.
#[derive(Clone, Copy, Debug, Default)]
struct Arriving {
    /// Those that do, and have met nothing on their way that no compiler emits.
    there: usize,
    /// Those that pass it by, and have met nothing either.
    by: usize,
}

impl Arriving {
    /// Do they tell anything?
    fn is_enough(self) -> bool {
        self.there + self.by >= ENOUGH
    }

    /// Do most of them arrive?
    const fn is_sure(self) -> bool {
        self.there * 4 >= (self.there + self.by) * 3
    }
}

/// Decodings from places so far before `position`.
///
/// They soon fall into step, so only what one of them comes by is decoded, and once.
fn decodings(code: &[u8], position: usize, lead: usize, decoded: &mut Decoded) -> Arriving {
    let lead = (lead + STARTS).min(position);
    let start = position - lead;
    let all = (lead + 1).min(STARTS);
    let mut reached = [false; BEFORE + 1];
    let mut next = [0; BEFORE + 1];
    let mut sound = [true; BEFORE + 1];
    reached[..all].fill(true);
    for at in 0..lead {
        if !reached[at] {
            continue;
        }
        let step = decoded.at(code, start + at, step);
        let to = at + usize::from(step.len);
        (next[at], sound[at]) = (to, step.is_sound);
        if to < lead {
            reached[to] = true;
        }
    }
    let mut there = [false; BEFORE + 1];
    there[lead] = true;
    for at in (0..lead).rev().filter(|at| reached[*at]) {
        there[at] = there[..=lead].get(next[at]) == Some(&true);
        sound[at] &= sound[..=lead].get(next[at]) != Some(&false);
    }
    let count = |wanted: &dyn Fn(usize) -> bool| (0..all).filter(|at| wanted(*at)).count();
    Arriving {
        there: count(&|at| there[at] && sound[at]),
        by: count(&|at| !there[at] && sound[at]),
    }
}

/// Does what follows look like compiled code, rather than like data between functions?
fn plausible(code: &[u8], mut at: usize, decoded: &mut Decoded) -> bool {
    while at + 16 < code.len() {
        let step = decoded.at(code, at, step);
        if !step.is_sound {
            return false;
        }
        at += usize::from(step.len);
    }
    true
}

/// Could it be code, up to the end of a function?
fn may_be_code(code: &[u8], mut at: usize, decoded: &mut Decoded) -> bool {
    while at + 16 < code.len() {
        let step = decoded.at(code, at, step);
        if step.ends || !step.is_sound {
            return step.ends;
        }
        at += usize::from(step.len);
    }
    true
}

/// What the code begins with.
fn step(code: &[u8]) -> Step {
    let decoded = decode(code);
    let ends = [Opcode::RETURN, Opcode::JMP, Opcode::UD2];
    Step {
        len: decoded.map_or(1, |(_, len)| len),
        is_sound: decoded.is_some_and(|(opcode, _)| !is_odd(opcode, code[0])),
        ends: decoded.is_some_and(|(opcode, _)| ends.contains(&opcode)),
    }
}

/// The same, of which an assembler or a rare turn of a compiler may have one or another.
fn is_odd(opcode: Opcode, first: u8) -> bool {
    let by_byte = matches!(first, 0x00 | 0xa0..=0xa3 | 0x9b | 0x9e | 0x9f | 0xcd | 0xe3);
    let by_name = matches!(
        opcode,
        Opcode::SLDT
            | Opcode::STR
            | Opcode::LLDT
            | Opcode::LTR
            | Opcode::VERR
            | Opcode::VERW
            | Opcode::SGDT
            | Opcode::SIDT
            | Opcode::LGDT
            | Opcode::LIDT
            | Opcode::SMSW
            | Opcode::LMSW
            | Opcode::INVLPG
            | Opcode::WRMSR
            | Opcode::RDMSR
            | Opcode::CLTS
            | Opcode::INVD
            | Opcode::WBINVD
            | Opcode::SYSENTER
            | Opcode::SYSEXIT
            | Opcode::SYSRET
            | Opcode::STD
            | Opcode::CMC
    );
    by_byte || by_name || is_rare(opcode)
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
    use super::*;

    const ALL: Wanted = Wanted {
        cpuid: true,
        counter: true,
        no_cpuid: false,
    };
    const NO_CPUID: Wanted = Wanted {
        cpuid: false,
        ..ALL
    };
    /// `mov %rsp,%rbp`, `add $1,%rax`.
    const CODE: [u8; 7] = [0x48, 0x89, 0xe5, 0x48, 0x83, 0xc0, 0x01];
    /// No instructions: `push %es` and what does not exist.
    const DATA: [u8; 7] = [0x06, 0xd6, 0x60, 0x0e, 0x16, 0x61, 0x62];

    /// What is found in `body` between these, and how far from its beginning.
    fn between(before: &[u8], body: &[u8], after: &[u8], wanted: Wanted) -> Vec<(usize, Found)> {
        let mut code = before.repeat(30);
        let begin = code.len();
        code.extend_from_slice(body);
        code.extend_from_slice(&after.repeat(30));
        let candidates = (0..code.len() - 1).filter(|at| {
            let pair = u16::from_le_bytes([code[*at], code[*at + 1]]);
            is_candidate(pair, wanted)
        });
        let found = candidates.filter_map(|at| {
            let low = at.saturating_sub(BEFORE);
            let window = &code[low..(at + TRAIL).min(code.len())];
            let (place, what) = recognise(window, at - low, wanted, &mut Decoded::new())?;
            let distance = (low + place).wrapping_sub(begin);
            Some((distance, what))
        });
        found.collect()
    }

    fn found(body: &[u8], wanted: Wanted) -> Vec<(usize, Found)> {
        between(&CODE, body, &CODE, wanted)
    }

    /// What comes of each decoding by itself.
    fn each_by_itself(code: &[u8], position: usize, lead: usize) -> (usize, usize) {
        let lead = (lead + STARTS).min(position);
        let code = &code[position - lead..];
        let (mut there, mut by) = (0, 0);
        for start in 0..(lead + 1).min(STARTS) {
            let (mut at, mut sound) = (start, true);
            while at < lead {
                match decode(&code[at..]) {
                    Some((opcode, len)) => {
                        sound &= !is_odd(opcode, code[at]);
                        at += usize::from(len);
                    }
                    None => (at, sound) = (at + 1, false),
                }
            }
            there += usize::from(sound && at == lead);
            by += usize::from(sound && at != lead);
        }
        (there, by)
    }

    #[test]
    fn decodings_that_fall_into_step_are_what_each_is_by_itself() {
        let mut state = 5_u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        let (mut arrived, mut passed) = (0, 0);
        for round in 0..400 {
            // Code with a few bytes that are none, or nothing but such.
            let mut code: Vec<u8> = CODE.iter().copied().cycle().take(400).collect();
            let every = [3, 20, 60, 200][round % 4];
            for at in (0..code.len()).step_by(every) {
                code[at] = byte();
            }
            let position = [7, 42, 161, 200][round / 4 % 4];
            for lead in LEADS {
                let Arriving { there, by } = decodings(&code, position, lead, &mut Decoded::new());
                assert_eq!(
                    (there, by),
                    each_by_itself(&code, position, lead),
                    "{round}"
                );
                arrived += usize::from(there > by);
                passed += usize::from(by > there);
            }
        }
        assert!(arrived > 100 && passed > 100, "{arrived} {passed}");
    }

    #[test]
    fn untrappable_instructions_are_found_with_their_prefixes() {
        assert_eq!(found(&[0x0f, 0xa2], ALL), [(0, Found::Cpuid)]);
        assert_eq!(found(&[0x0f, 0xa2], NO_CPUID), [(0, Found::Cpuid)]);
        let rdrand = &[0x0f, 0xc7, 0xf0];
        assert_eq!(found(rdrand, ALL), [(0, Found::Random(3))]);
        let rdseed = &[0x48, 0x0f, 0xc7, 0xf8];
        assert_eq!(found(rdseed, NO_CPUID), [(0, Found::Random(4))]);
        let rdpid = &[0xf3, 0x0f, 0xc7, 0xf8];
        assert_eq!(found(rdpid, NO_CPUID), [(0, Found::Random(4))]);
    }

    #[test]
    fn what_was_found_is_told_by_its_bytes() {
        let kinds = [
            (Found::Random(3), &[0x0f, 0xc7, 0xf0][..]),
            (Found::Random(4), &[0x48, 0x0f, 0xc7, 0xf8]),
            (Found::Random(4), &[0xf3, 0x0f, 0xc7, 0xf8]),
            (Found::Cpuid, &[0x0f, 0xa2]),
            (Found::Asked(5), &[0x0f, 0xa2, 0x41, 0x89, 0xc0]),
            (
                Found::Call,
                &[0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff],
            ),
        ];
        for (what, bytes) in kinds {
            let code = [bytes, &CODE, &CODE].concat();
            assert!(holds(&code, what, ALL), "{what:?}");
            for at in 0..bytes.len() {
                let mut other = code.clone();
                other[at] = 0x90;
                assert!(!holds(&other, what, ALL), "{what:?} without byte {at}");
            }
            assert!(!holds(&bytes[..bytes.len() - 1], what, ALL), "{what:?} cut");
            assert_eq!(Found::unpack(what.pack()), what);
        }
    }

    /// Entries of a table of relocations, in one of which these bytes are.
    fn relocations(bytes: &[u8]) -> Vec<u8> {
        let entry = |at: u64| [at, 8, at + 0x0100_1230].map(u64::to_le_bytes).concat();
        let mut table: Vec<u8> = (0..60).flat_map(|at| entry(0x4aa_8000 + at * 8)).collect();
        let middle = table.len() / 2;
        table[middle + 17..][..bytes.len()].copy_from_slice(bytes);
        table
    }

    #[test]
    fn tables_beside_code_are_left_alone() {
        let all = [ALL, NO_CPUID, ALL.in_doubt()];
        for bytes in [&[0x0f, 0xa2][..], &[0x0f, 0xc7, 0xf0], &[0x0f, 0x31]] {
            let table = relocations(bytes);
            for wanted in all {
                let places = 1..table.len() - 1;
                let found = places.filter_map(|at| {
                    let low = at.saturating_sub(BEFORE);
                    let window = &table[low..(at + TRAIL).min(table.len())];
                    let pair = u16::from_le_bytes([table[at], table[at + 1]]);
                    let candidate = is_candidate(pair, wanted);
                    candidate.then(|| recognise(window, at - low, wanted, &mut Decoded::new()))?
                });
                let found: Vec<_> = found.filter(|it| it.1 != Found::Doubt).collect();
                assert_eq!(found, [], "{bytes:x?} {wanted:?}");
            }
        }
    }

    #[test]
    fn what_traps_anyway_is_not_replaced() {
        assert_eq!(found(&[0x0f, 0xa2], ALL.in_doubt()), []);
        let unable = NO_CPUID.in_doubt();
        assert_eq!(found(&[0x0f, 0xa2], unable), [(0, Found::Cpuid)]);
    }

    #[test]
    fn look_alikes_are_left_alone() {
        assert_eq!(
            found(&[0xb8, 0x0f, 0xa2, 0x00, 0x00], ALL),
            [],
            "a constant"
        );
        assert_eq!(found(&[0x0f, 0xc7, 0x0f], ALL), [], "cmpxchg8b (%rdi)");
    }

    #[test]
    fn what_reads_the_counter_is_found() {
        assert_eq!(found(&[0x0f, 0x31], ALL), [(0, Found::Counter(2))]);
        assert_eq!(found(&[0x0f, 0x01, 0xf9], ALL), [(0, Found::Counter(3))]);
        let not_wanted = Wanted {
            counter: false,
            ..ALL
        };
        assert_eq!(found(&[0x0f, 0x31], not_wanted), []);
    }

    #[test]
    fn what_cannot_be_replaced_and_may_not_be_overlooked_is_a_doubt() {
        let doubtful: [&[u8]; 8] = [
            &[0x66, 0x0f, 0xa2],
            &[0xf3, 0x48, 0x0f, 0xa2],
            &[0xf3, 0x0f, 0x31],
            &[0x66, 0x48, 0x0f, 0x31],
            &[0x66, 0x0f, 0x01, 0xf9],
            &[0x0f, 0x01, 0xfd],
            &[0x66, 0x0f, 0xae, 0xf0],
            &[0xf2, 0x41, 0x0f, 0xae, 0xf3],
        ];
        for body in doubtful {
            let all = found(body, ALL);
            assert!(
                matches!(all[..], [(_, Found::Doubt)]),
                "{body:x?}: {all:x?}"
            );
        }
    }

    #[test]
    fn parts_of_other_instructions_are_none() {
        let harmless: [&[u8]; 8] = [
            &[0xe8, 0x0f, 0xa2, 0x00, 0x00],
            &[0x48, 0x8d, 0x3d, 0x0f, 0xa2, 0x01, 0x00],
            // Compilers write this often: a short jump by 15, and `xor %eax,%eax` behind it.
            &[0x74, 0x0f, 0x31, 0xc0],
            &[0xb8, 0x0f, 0x31, 0x00, 0x00],
            &[0x8b, 0x14, 0x0f, 0x31, 0xc0],
            // `mfence`, `lfence`, `xgetbv`.
            &[0x0f, 0xae, 0xf0],
            &[0x0f, 0xae, 0xe8],
            &[0x0f, 0x01, 0xd0],
        ];
        for body in harmless {
            assert_eq!(found(body, ALL), [], "{body:x?}");
        }
    }

    #[test]
    fn data_between_functions_is_left_alone() {
        assert_eq!(between(&DATA, &[0x0f, 0x31], &DATA, ALL), []);
    }

    #[test]
    fn what_could_begin_a_function_behind_data_is_a_doubt() {
        let doubt = [(0, Found::Doubt)];
        assert_eq!(between(&DATA, &[0x0f, 0x31], &CODE, ALL), doubt);
        let function = [0x0f, 0x31, 0xc3];
        assert_eq!(between(&DATA, &function, &DATA, ALL), doubt, "a short one");
        // Data that happens to decode, and at whose end all decodings pass over the place.
        assert_eq!(between(&CODE, &[0x0f, 0x31], &DATA, ALL), doubt);
    }

    #[test]
    fn code_that_ends_within_an_instruction_is_a_doubt() {
        for cut in [&[0x0f][..], &[0x0f, 0x01]] {
            let mut code = CODE.repeat(30);
            code.extend_from_slice(cut);
            let low = code.len() - cut.len() - BEFORE;
            let found = recognise(&code[low..], BEFORE, ALL, &mut Decoded::new());
            assert_eq!(found, Some((BEFORE, Found::Doubt)), "{cut:x?}");
        }
    }

    #[test]
    fn what_was_found_is_found_again() {
        let all = [
            (Found::Cpuid, &[0x0f, 0xa2][..]),
            (Found::Random(4), &[0x48, 0x0f, 0xc7, 0xf8]),
            (Found::Counter(2), &[0x0f, 0x31]),
            (Found::Counter(3), &[0x0f, 0x01, 0xf9]),
            (Found::Saved(5), &[0x0f, 0xae, 0x64, 0x24, 0x40]),
        ];
        for (what, code) in all {
            assert_eq!(Found::unpack(what.pack()), what);
            assert!(holds(code, what, ALL), "{what:?}");
            assert!(!holds(&[0x90; 4], what, ALL), "{what:?}");
        }
        assert_eq!(Found::unpack(Found::Doubt.pack()), Found::Doubt);
        assert!(!holds(&[0x0f, 0x31], Found::Counter(3), ALL));
    }

    /// Tells what the code of files holds, for `docs/bench/code.md`: `RCOE_SURVEY` names a list of
    /// them. Beside each file are bytes that look like an instruction that reads the counter,
    /// those that are replaced, and doubts.
    #[test]
    #[ignore = "tells of the files of a machine"]
    fn survey() {
        let list = std::env::var("RCOE_SURVEY").expect("a list of files");
        for path in std::fs::read_to_string(list).unwrap().lines() {
            let Ok(bytes) = std::fs::read(path) else {
                continue;
            };
            if let Some(counts) = count(&bytes) {
                println!("{path}\t{}\t{}\t{}", counts[0], counts[1], counts[2]);
            }
        }
    }

    /// In the executable segments of an ELF file.
    fn count(file: &[u8]) -> Option<[usize; 3]> {
        let elf = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(file).ok()?;
        let code = |it: &elf::segment::ProgramHeader| {
            it.p_type == elf::abi::PT_LOAD && it.p_flags & 1 != 0
        };
        let mut counts = [0; 3];
        for segment in elf.segments()?.iter().filter(code) {
            let bytes = elf.segment_data(&segment).ok()?;
            for at in (0..bytes.len()).filter(|at| may_read_counter(bytes, *at)) {
                counts[0] += 1;
                let low = at.saturating_sub(BEFORE);
                let window = &bytes[low..(at + TRAIL).min(bytes.len())];
                match recognise(window, at - low, ALL, &mut Decoded::new()) {
                    Some((_, Found::Counter(_))) => counts[1] += 1,
                    Some(_) => counts[2] += 1,
                    None => {}
                }
            }
        }
        Some(counts)
    }
}
