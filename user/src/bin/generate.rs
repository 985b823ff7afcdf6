//! The first stage of `pipeline`: makes blocks of text. Argument: how many.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{ObjectType, Rights, service};
use rcoe_user::share::Page;
use rcoe_user::{accept, call, call_with, exit, make, object, println, squeeze};

rcoe_user::program!(main);

/// Own slots: the endpoint of the next stage, the frame, and the loan of it.
const OUT: u64 = service::SLOT_FREE;
const FRAME: u64 = OUT + 1;
const LOAN: u64 = OUT + 2;

/// Bytes of a block: packed, it fits into a frame whatever it is.
const BLOCK: usize = 2048;

/// What the text is made of.
const WORDS: [&str; 8] = [
    "replica ", "kernel ", "votes ", "on ", "every ", "output ", "and ", "agrees, ",
];

fn main(argument: u64) -> u64 {
    let mut seed = 0x243f_6a88_85a3_08d3_u64;
    if prepare().is_none() {
        println!("generate: cannot start");
        exit(1);
    }
    for number in 0..argument {
        let mut text = [0; BLOCK];
        fill(&mut text, &mut seed);
        Page(0).write(&text);
        let words = [number, BLOCK as u64, squeeze::digest(&text)];
        // Back when the next stage has read it.
        call_with(OUT, service::PIPE_BLOCK, &words, &[LOAN]);
    }
    call(OUT, service::PIPE_BLOCK, &[argument, 0, 0]);
    0
}

/// Learns the next stage, and makes a frame of which others get the right to read only.
fn prepare() -> Option<()> {
    accept(service::SLOT_CNODE, OUT, 1);
    let answer = call(service::SLOT_PEER, service::PIPE_READY, &[0]);
    let made = answer.caps == 1 && make(ObjectType::Frame, FRAME);
    made.then_some(())?;
    Page(0).map(FRAME, Rights::READ_WRITE).ok()?;
    object::copy(service::SLOT_CNODE, LOAN, FRAME, Rights::READ).ok()
}

fn fill(text: &mut [u8], seed: &mut u64) {
    let mut at = 0;
    while at < text.len() {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = WORDS[usize::try_from(*seed >> 61).unwrap_or_default()].as_bytes();
        let len = word.len().min(text.len() - at);
        text[at..at + len].copy_from_slice(&word[..len]);
        at += len;
    }
}
