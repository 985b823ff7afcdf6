//! The second stage of `pipeline`: packs the blocks that it is lent, and lends the result on.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{ObjectType, Rights, service};
use rcoe_user::share::{BYTES, Page};
use rcoe_user::{
    Received, accept, call, call_with, exit, make, object, println, recv, reply_recv, squeeze,
};

rcoe_user::program!(main);

/// Own slots: the two endpoints, the frame that comes, the own one, and the loan of it.
const IN: u64 = service::SLOT_FREE;
const OUT: u64 = IN + 1;
const FRAME: u64 = IN + 2;
const OWN: u64 = IN + 3;
const LOAN: u64 = IN + 4;

/// Where they are mapped.
const COMES: Page = Page(0);
const GOES: Page = Page(1);

fn main(_argument: u64) -> u64 {
    if prepare().is_none() {
        println!("compress: cannot start");
        exit(1);
    }
    let mut message = recv(IN);
    loop {
        let [number, len, digest, _] = message.words;
        if len == 0 {
            call(OUT, service::PIPE_BLOCK, &[number, 0, 0]);
            return 0;
        }
        let Some(packed) = pack(&message) else {
            println!("compress: no use of block {number}");
            exit(1);
        };
        let words = [number, packed, digest];
        call_with(OUT, service::PIPE_BLOCK, &words, &[LOAN]);
        message = reply_recv(IN, 0, &[]);
    }
}

fn prepare() -> Option<()> {
    accept(service::SLOT_CNODE, IN, 2);
    let answer = call(service::SLOT_PEER, service::PIPE_READY, &[1]);
    let made = answer.caps == 2 && make(ObjectType::Frame, OWN);
    made.then_some(())?;
    GOES.map(OWN, Rights::READ_WRITE).ok()?;
    object::copy(service::SLOT_CNODE, LOAN, OWN, Rights::READ).ok()?;
    accept(service::SLOT_CNODE, FRAME, 1);
    Some(())
}

/// Packs the block that came; how long it is then.
fn pack(message: &Received) -> Option<u64> {
    let (mut text, mut packed) = ([0; BYTES], [0; BYTES]);
    let text = text.get_mut(..usize::try_from(message.words[1]).ok()?)?;
    (message.caps == 1).then_some(())?;
    COMES.map(FRAME, Rights::READ).ok()?;
    COMES.read(text);
    // The loan ends, and the slot is free for the next one.
    object::delete(service::SLOT_CNODE, FRAME).ok()?;
    let len = squeeze::pack(text, &mut packed)?;
    GOES.write(&packed[..len]);
    Some(len as u64)
}
