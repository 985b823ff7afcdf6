//! Exclusive loads and stores: may what was executed of such a sequence be executed once more?
//!
//! Whatever enters the kernel between the two has the store fail, so a replica that is entered
//! where the others are not goes another way than they do. What stands between the two is little,
//! and none of it a load or a store: so who is interrupted there begins anew at the load, as if it
//! had not been executed, and then has executed as much as everybody else.
//!
//! *Contract*: what [`begun`] tells can be taken back: the same instructions find the same
//! registers once more, and leave the same ones.
//!
//! *Not covered*: sequences that use a register and then overwrite it, jump within themselves, are
//! longer than [`LONGEST`], or have other instructions than those of general registers between the
//! two. Those are told to be none.

/// Most instructions between the load and the store.
pub const LONGEST: u64 = 16;

/// Bytes of an instruction.
const BYTES: u64 = 4;
/// Beside a bit for each general register, that of the conditions. Register 31 is none, or the
/// stack pointer, which nothing here writes.
const FLAGS: u64 = 1 << 32;
const NONE: u64 = 31;

/// Part of such a sequence, by instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Those that were executed, the load among them.
    pub executed: u64,
    /// Those that are left, the store among them.
    pub left: u64,
}

/// What an instruction that may stand between the two does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Effect {
    reads: u64,
    writes: u64,
    /// By how many instructions it jumps, if it does.
    jump: Option<u64>,
}

/// So many bits from this one on.
const fn bits(word: u32, first: u32, count: u32) -> u64 {
    (word >> first) as u64 & ((1 << count) - 1)
}

/// The set of the register whose number begins at this bit.
const fn register(word: u32, first: u32) -> u64 {
    1 << bits(word, first, 5)
}

/// Exclusive loads and stores. Compare-and-swap of pairs is encoded among them and is none, as are
/// loads and stores that are ordered only.
const fn is_exclusive(word: u32) -> bool {
    let swaps_pair = bits(word, 21, 1) == 1 && bits(word, 31, 1) == 0;
    bits(word, 24, 6) == 0x08 && bits(word, 23, 1) == 0 && !swaps_pair
}

const fn is_load(word: u32) -> bool {
    is_exclusive(word) && bits(word, 22, 1) == 1
}

const fn is_store(word: u32) -> bool {
    is_exclusive(word) && bits(word, 22, 1) == 0
}

/// An instruction that computes.
const fn computes(reads: u64, result: u64, flags: bool) -> Effect {
    let flags = if flags { FLAGS } else { 0 };
    Effect {
        reads,
        writes: result & !(1 << NONE) | flags,
        jump: None,
    }
}

/// An exclusive load.
const fn load(word: u32) -> Effect {
    let second = if bits(word, 21, 1) == 1 {
        register(word, 10)
    } else {
        0
    };
    computes(register(word, 5), register(word, 0) | second, false)
}

/// Computing with a number in the instruction.
const fn with_number(word: u32) -> Option<Effect> {
    let (result, first) = (register(word, 0), register(word, 5));
    let (kind, way) = (bits(word, 23, 3), bits(word, 29, 2));
    let (reads, flags) = match (kind, way) {
        (0 | 1, _) | (5, 0 | 2) => (0, false),
        (2, _) => (first, way & 1 == 1),
        (4, _) => (first, way == 3),
        (5, 3) => (result, false),
        (6, 0 | 2) => (first, false),
        (6, 1) => (first | result, false),
        (7, 0) => (first | register(word, 16), false),
        _ => return None,
    };
    let to_stack = matches!(kind, 2 | 4) && !flags && result == 1 << NONE;
    if to_stack {
        return None;
    }
    Some(computes(reads, result, flags))
}

/// Computing with registers.
const fn with_registers(word: u32) -> Option<Effect> {
    let (result, first, second) = (register(word, 0), register(word, 5), register(word, 16));
    let (both, way) = (first | second, bits(word, 29, 2));
    if bits(word, 28, 1) == 0 {
        let adds = bits(word, 24, 1) == 1;
        let flags = if adds { way & 1 == 1 } else { way == 3 };
        let extends = adds && bits(word, 21, 1) == 1;
        if extends && !flags && result == 1 << NONE {
            return None;
        }
        return Some(computes(both, result, flags));
    }
    Some(match (bits(word, 21, 4), way) {
        (0, _) if bits(word, 10, 6) == 0 => computes(both | FLAGS, result, way & 1 == 1),
        (2, 1 | 3) => {
            let second = if bits(word, 11, 1) == 0 { second } else { 0 };
            computes(first | second | FLAGS, 0, true)
        }
        (4, 0 | 2) => computes(both | FLAGS, result, false),
        (6, 0) => computes(both, result, false),
        (6, 2) if bits(word, 16, 5) == 0 => computes(first, result, false),
        (8..=15, 0) => computes(both | register(word, 10), result, false),
        _ => return None,
    })
}

/// A jump further on that depends on something.
const fn jumps(word: u32) -> Option<Effect> {
    let (reads, width) = if word & 0xff00_0010 == 0x5400_0000 {
        (FLAGS, 19)
    } else if word & 0x7e00_0000 == 0x3400_0000 {
        (register(word, 0), 19)
    } else if word & 0x7e00_0000 == 0x3600_0000 {
        (register(word, 0), 14)
    } else {
        return None;
    };
    let by = bits(word, 5, width);
    if by == 0 || by >> (width - 1) != 0 {
        return None;
    }
    Some(Effect {
        reads,
        writes: 0,
        jump: Some(by),
    })
}

/// What may stand between the two.
const fn between(word: u32) -> Option<Effect> {
    const NOTHING: u32 = 0xd503_201f;
    const BARRIER: u32 = 0xd503_30bf;
    match bits(word, 25, 4) {
        0b1000 | 0b1001 => with_number(word),
        0b0101 | 0b1101 => with_registers(word),
        _ if word == NOTHING || word & 0xffff_f0ff == BARRIER => Some(computes(0, 0, false)),
        _ => jumps(word),
    }
}

/// How many instructions are left, the store among them, from this one on; none if it does not
/// follow.
fn left(ip: u64, code: &impl Fn(u64) -> Option<u32>) -> Option<u64> {
    for ahead in 0..=LONGEST {
        let word = code(ip.wrapping_add(ahead * BYTES))?;
        if is_store(word) {
            return Some(ahead + 1);
        }
        between(word)?;
    }
    None
}

/// Do so many instructions, of which the first is the load, find what they found if they are
/// executed once more?
fn repeats(words: impl Iterator<Item = u32>, count: u64) -> bool {
    let (mut reads, mut writes) = (0, 0);
    for (at, word) in (0..).zip(words) {
        let effect = if at == 0 {
            Some(load(word))
        } else {
            between(word)
        };
        let Some(effect) = effect else {
            return false;
        };
        if effect.jump.is_some_and(|by| at + by <= count) {
            return false;
        }
        reads |= effect.reads & !writes;
        writes |= effect.writes;
    }
    reads & writes == 0
}

/// What was executed of such a sequence by who stands before the instruction `ip` of this code;
/// none if it stands in none.
#[must_use]
pub fn begun(ip: u64, code: impl Fn(u64) -> Option<u32>) -> Option<Begun> {
    let before = |back: u64| code(ip.wrapping_sub(back * BYTES));
    let mut back = 1;
    while !is_load(before(back)?) {
        between(before(back)?)?;
        back += 1;
        if back > LONGEST {
            return None;
        }
    }
    let words = (1..=back).rev().map_while(before);
    let left = left(ip, &code)?;
    let executed = back;
    repeats(words, back).then_some(Begun { executed, left })
}

/// Is the instruction `ip` one of such a sequence, from the load to the store?
#[must_use]
pub fn is_within(ip: u64, code: impl Fn(u64) -> Option<u32>) -> bool {
    let begins = code(ip).is_some_and(is_load) && left(ip.wrapping_add(BYTES), &code).is_some();
    begins || begun(ip, code).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ldxr x0, [x1]`, and `stxr w2, x0, [x1]`.
    const LOAD: u32 = 0xc85f_7c20;
    const STORE: u32 = 0xc802_7c20;
    /// `add x0, x0, #1`; `cbnz w2`, so many instructions back; `nop`.
    const ADD: u32 = 0x9100_0400;
    const NOP: u32 = 0xd503_201f;

    fn back(by: u32) -> u32 {
        0x3500_0002 | (0x8_0000 - by) << 5
    }

    fn told(words: &[u32], at: u64) -> Option<u64> {
        let code = |place: u64| {
            let index = usize::try_from(place.checked_sub(0x1000)? / 4).ok()?;
            words.get(index).copied()
        };
        let told = begun(0x1000 + at * 4, code);
        assert!(told.is_none() || is_within(0x1000 + at * 4, code));
        if let Some(Begun { executed, left }) = told {
            let store = usize::try_from(at + left - 1).unwrap();
            assert!(is_store(words[store]), "{executed} {left}");
        }
        Some(told?.executed)
    }

    #[test]
    fn who_stands_between_the_two_begins_anew() {
        let words = [NOP, LOAD, ADD, STORE, back(2), NOP];
        let right = [None, None, Some(1), Some(2), None, None];
        for (at, right) in (0..).zip(right) {
            assert_eq!(told(&words, at), right, "{at}");
        }
        let code = |place: u64| words.get(usize::try_from(place / 4).ok()?).copied();
        let within: std::vec::Vec<bool> = (0..6).map(|at| is_within(at * 4, code)).collect();
        assert_eq!(within, [false, true, true, true, false, false]);
    }

    /// Linux's compare-and-exchange, of one register and of two; a lock; a sum with conditions.
    #[test]
    fn what_linux_has_between_the_two_may_be_executed_once_more() {
        for (words, at) in [
            // ldxr w0, [x2]; eor w1, w0, w3; cbnz w1, 3f; stlxr w1, w4, [x2]
            (
                &[0x885f_7c40_u32, 0x4a03_0001, 0x3500_0061, 0x8801_fc44][..],
                3,
            ),
            // ldxp x0, x1, [x2]; eor x0, x0, x3; eor x1, x1, x4; orr x1, x0, x1; cbnz x1, 3f;
            // stxp w5, x6, x7, [x2]
            (
                &[
                    0xc87f_0440,
                    0xca03_0000,
                    0xca04_0021,
                    0xaa01_0001,
                    0xb500_0061,
                    0xc825_1c46,
                ],
                5,
            ),
            // ldaxr w0, [x2]; add w1, w0, w5; cmp w0, w3; b.ne 3f; stxr w3, w1, [x2]
            (
                &[
                    0x885f_fc40,
                    0x0b05_0001,
                    0x6b03_001f,
                    0x5400_0061,
                    0x8803_7c41,
                ],
                4,
            ),
            // ldxr x0, [x2]; cmp x0, x3; csel x1, x0, x3, hi; stxr w4, x1, [x2]
            (&[0xc85f_7c40, 0xeb03_001f, 0x9a83_8001, 0xc804_7c41], 3),
        ] {
            assert_eq!(told(words, at), Some(at), "{words:x?}");
        }
    }

    #[test]
    fn what_would_find_something_else_is_not_executed_once_more() {
        for (words, at) in [
            // The address, or another register that was read, is overwritten: ldxr x1, [x1];
            // add x3, x0, x4 and then add x4, x4, #1; add sp, sp, #16.
            (&[0xc85f_7c21, NOP, STORE][..], 2),
            (&[LOAD, 0x8b04_0003, 0x9100_0484, STORE], 3),
            (&[LOAD, 0x9100_43ff, STORE], 2),
            // movk x3, #1; a condition that is read and set: adcs x0, x0, x0
            (&[LOAD, 0xf280_0023, STORE], 2),
            (&[LOAD, 0xba00_0000, STORE], 2),
            // A load; a call; a wait; the end of exclusive access; a jump back.
            (&[LOAD, 0xf940_0063, STORE], 2),
            (&[LOAD, 0xd400_0002, STORE], 2),
            (&[LOAD, 0xd503_205f, STORE], 2),
            (&[LOAD, 0xd503_305f, STORE], 2),
            (&[LOAD, back(1), STORE], 2),
            // A jump over an instruction, to where it stands.
            (&[LOAD, 0x3500_0043, NOP, STORE], 3),
            // No store follows, or no load comes before; another store was before.
            (&[LOAD, NOP, NOP], 2),
            (&[NOP, NOP, STORE], 2),
            (&[LOAD, STORE, NOP, STORE], 3),
        ] {
            assert_eq!(told(words, at), None, "{words:x?}");
        }
        let long = [&[LOAD][..], &[NOP; 40], &[STORE]].concat();
        assert_eq!((told(&long, 1), told(&long, 41)), (None, None));
    }
}
