//! Decoding under fire: a fast generator of system calls, as many as are asked for.
//!
//! `RCOE_FUZZ_CALLS=100000000 cargo test --release -p rcoe-kernel-objects fuzz` makes a hundred
//! million. `RCOE_FUZZ_SEED` repeats a run.

use std::vec::Vec;

use rcoe_abi::{CAPS_WORD, MessageInfo, RECEIVE_WORD, Syscall, boot};
use rcoe_core::mix;

use super::random::furnished;
use super::world::{FREE, memory};
use crate::Fault;
use crate::arch::{CAP, INFO, MESSAGE, NUMBER};

/// Calls of a usual run.
const USUAL: u64 = 300_000;
/// Calls after which the world is made anew, so that it is never used up for long.
const LIFE: u64 = 20_000;

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A word that means something, for the most part.
    fn word(&mut self) -> u64 {
        let word = self.next();
        match word >> 60 {
            0..8 => FREE + word % 24,
            8 | 9 => word % 64,
            10 => boot::SLOT_CNODE + word % 6,
            11 => boot::SLOT_UNTYPED + word % 24,
            12 => (word % 64) << 12,
            13 => (word % 4) << 21,
            _ => word,
        }
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn fuzz_decode_of_any_message_panics_never() {
    let seed = setting("RCOE_FUZZ_SEED", 1);
    let calls = setting("RCOE_FUZZ_CALLS", USUAL);
    let mut numbers = Numbers(seed);
    let mut words: Vec<u64> = memory();
    let mut accepted = 0_u64;
    let mut made = 0;
    while made < calls {
        words.fill(0);
        let mut kernel = furnished(&mut words);
        for call in 0..LIFE.min(calls - made) {
            made += 1;
            let Some(tcb) = kernel.current() else { break };
            let number = match numbers.next() % 16 {
                0 => numbers.next() % 11,
                _ => Syscall::Call as u64,
            };
            let label = 14 + numbers.next() % 46;
            kernel.set_register(tcb, NUMBER, number);
            let pointer = numbers.word();
            kernel.set_register(tcb, CAP, pointer);
            let len = usize::try_from(numbers.next() % 8).unwrap();
            let caps = usize::try_from(numbers.next() % 4).unwrap();
            let info = MessageInfo::new(label, len).with_caps(caps, 0);
            kernel.set_register(tcb, INFO, info.word());
            if let Some(buffer) = kernel.buffer(tcb) {
                for index in CAPS_WORD..RECEIVE_WORD + 3 {
                    let word = numbers.word();
                    kernel.mem.set(buffer, index, word);
                }
            }
            for register in MESSAGE {
                let word = numbers.word();
                kernel.set_register(tcb, register, word);
            }
            kernel.syscall();
            accepted += u64::from(kernel.info(tcb).label() == 0);
            if call % 64 == 63 {
                kernel.give_way();
            }
            if call % 1024 == 1023 && kernel.current().is_some() {
                kernel.fault(Fault::UnknownSyscall);
            }
            kernel.schedule();
        }
    }
    // Most are nonsense, but the rest must have got through to be worth anything.
    assert!(
        accepted * 50 > made,
        "seed {seed}: {accepted} of {made} were accepted"
    );
}
