//! Asks for memory in small pieces, more often than a table of capabilities has slots, and has its
//! own table grow. Argument: MiB (72), of which each piece has a sixteenth.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::object::SLOT_BITS;
use rcoe_abi::{Error, ObjectType, Rights, service};
use rcoe_user::object::{self, Outcome};
use rcoe_user::{add_trace, make, make_sized, memory, now_message, println, send};

rcoe_user::program!(main);

/// Words of a piece.
const PIECE: usize = 1 << 13;
/// Slots: memory for tables, the table of tables, a further table, and what is handed out again and
/// again.
const MEMORY: u64 = service::SLOT_FREE;
const TOP: u64 = MEMORY + 1;
const TABLE: u64 = MEMORY + 2;
const MADE: u64 = MEMORY + 3;

/// Logarithms of the slots of tables: those of a program's own, of the table of tables, and of a
/// table that follows the own one.
const OWN_BITS: u64 = service::CNODE_BITS as u64;
const TOP_BITS: u32 = 4;
const TABLE_BITS: u32 = 8;
/// Objects that are handed out and deleted: more than the root task's first table has slots.
const HANDED: u64 = 17_000;

fn main(argument: u64) -> u64 {
    let size = if argument == 0 { 72 } else { argument };
    let grown = grow();
    if grown.is_err() {
        println!("grow: its own table: {grown:?}");
        return 1;
    }
    let handed = (0..HANDED).all(|_| {
        let made = make(ObjectType::Endpoint, MADE);
        made && object::delete(service::SLOT_CNODE, MADE).is_ok()
    });
    if !handed {
        println!("grow: not so many objects");
        return 1;
    }
    match fill(size * 16) {
        Some(sum) => {
            println!("{size} MiB in pieces, and tables that grow: {sum:016x}");
            0
        }
        None => {
            println!("grow: no {size} MiB of memory in pieces");
            1
        }
    }
}

/// Has a second table behind the own one, and uses a capability there.
fn grow() -> Outcome {
    let bits = TABLE_BITS + SLOT_BITS + 1;
    if !make_sized(ObjectType::Untyped, bits, MEMORY) {
        return Err(Error::NotEnoughMemory);
    }
    let own = service::SLOT_CNODE;
    for (bits, slot) in [(TABLE_BITS, TABLE), (TOP_BITS, TOP)] {
        object::retype(MEMORY, ObjectType::CNode, bits, own, slot, 1)?;
    }
    for (place, table) in [(0, own), (1, TABLE)] {
        object::mint(TOP, place, table, Rights::ALL, 0)?;
    }
    object::set_table(service::SLOT_TCB, TOP, 64 - OWN_BITS - u64::from(TOP_BITS))?;
    // A pointer that the own table alone has no slot for.
    let far = (1 << OWN_BITS) + 77;
    object::retype(MEMORY, ObjectType::Notification, 0, TABLE, 77, 1)?;
    object::mint(own, MADE, far, Rights::ALL, 5)?;
    send(MADE, 0, &[]);
    let heard = now_message(far).badge == 5;
    object::delete(own, MADE)?;
    heard.then_some(()).ok_or(Error::IllegalOperation)
}

/// Fills pieces of memory, all of which stay; a sum of what is in them at the end.
fn fill(pieces: u64) -> Option<u64> {
    let mut last: Option<&'static mut [u64]> = None;
    let mut sum = 0_u64;
    for piece in 0..pieces {
        let words = memory(PIECE)?;
        let step = words.iter_mut().step_by(64).zip(piece..);
        step.for_each(|(word, value)| *word = value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if let Some(last) = last.replace(words) {
            sum = last.iter().fold(sum, |sum, word| sum.rotate_left(1) ^ word);
        }
        add_trace(&[sum]);
    }
    Some(sum)
}
