//! A pipeline of three programs: `generate` makes blocks of text, `compress` packs them, and this
//! one unpacks, checks and prints. Argument: blocks (16).
//!
//! The stages know nobody at first. They ask for their endpoints, which come as capabilities with
//! the replies; every block goes on as a frame, lent for reading, by a capability in a message. No
//! stage can write what it was lent, or talk to any stage but its neighbours.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{ObjectType, Rights, service};
use rcoe_user::share::{BYTES, Page};
use rcoe_user::{
    Received, accept, add_trace, make, object, println, recv, reply_recv, reply_recv_with, spawn,
    squeeze,
};

rcoe_user::program!(main);

/// Own slots: the two endpoints, what is handed out of them, and the frame of a block.
const FIRST: u64 = service::SLOT_FREE;
const SECOND: u64 = FIRST + 1;
const ENDS: [u64; 3] = [FIRST + 2, FIRST + 3, FIRST + 4];
const FRAME: u64 = FIRST + 5;

/// Status if a block is not what was sent.
const DAMAGED: u64 = 1;
/// Status if the pipeline cannot be built.
const NOT_BUILT: u64 = 2;

fn main(argument: u64) -> u64 {
    let blocks = if argument == 0 { 16 } else { argument };
    if build(blocks).is_none() {
        println!("pipeline: cannot be built");
        return NOT_BUILT;
    }
    let mut message = serve_stages();
    let mut sums = [0; 3];
    while message.words[1] > 0 {
        let Some(bytes) = take(&message) else {
            println!("pipeline: block {} is damaged", message.words[0]);
            return DAMAGED;
        };
        let [_, packed, digest, _] = message.words;
        sums = [
            sums[0] + bytes,
            sums[1] + packed,
            squeeze::chain(sums[2], digest),
        ];
        println!(
            "block {}: {bytes} bytes in {packed}, {digest:016x}",
            message.words[0]
        );
        message = reply_recv(SECOND, 0, &[]);
    }
    let [bytes, packed, digest] = sums;
    add_trace(&sums);
    println!("pipeline of {blocks} blocks: {bytes} bytes in {packed}, {digest:016x}");
    0
}

/// Makes the endpoints, with what each stage may do at them, and starts the stages.
fn build(blocks: u64) -> Option<()> {
    let made = make(ObjectType::Endpoint, FIRST) && make(ObjectType::Endpoint, SECOND);
    let sender = Rights::WRITE.or(Rights::GRANT);
    let ends = [(FIRST, sender), (FIRST, Rights::READ), (SECOND, sender)];
    for (slot, (endpoint, rights)) in ENDS.into_iter().zip(ends) {
        object::copy(service::SLOT_CNODE, slot, endpoint, rights).ok()?;
    }
    (made && spawn("generate", blocks) && spawn("compress", 0)).then_some(())
}

/// Gives each stage its endpoints; the first block that arrives then.
fn serve_stages() -> Received {
    let [write_first, read_first, write_second] = ENDS;
    let mut message = recv(service::SLOT_PEER);
    for served in 0..2 {
        let caps: &[u64] = match message.words[0] {
            0 => &[write_first],
            _ => &[read_first, write_second],
        };
        // The first block is the answer to nobody, so it may come with the last reply.
        let from = if served == 0 {
            service::SLOT_PEER
        } else {
            SECOND
        };
        accept(service::SLOT_CNODE, FRAME, 1);
        message = reply_recv_with(from, 0, &[], caps);
    }
    message
}

/// Takes a block out of the frame that came; how many bytes it is, if it is what was sent.
fn take(message: &Received) -> Option<u64> {
    let [_, packed, digest, _] = message.words;
    let (mut text, mut whole) = ([0; BYTES], [0; BYTES]);
    let packed = text.get_mut(..usize::try_from(packed).ok()?)?;
    (message.caps == 1).then_some(())?;
    Page(0).map(FRAME, Rights::READ).ok()?;
    Page(0).read(packed);
    // The loan ends, and the slot is free for the next one.
    object::delete(service::SLOT_CNODE, FRAME).ok()?;
    let len = squeeze::unpack(packed, &mut whole)?;
    (squeeze::digest(&whole[..len]) == digest).then_some(len as u64)
}
