//! Makes frames of 2 MiB, maps them beside pages and in their place, lends one to a second process,
//! and has all of them end. Argument: rounds (1); one is lent in the first.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{Error, ObjectType, Rights, service};
use rcoe_user::object::{self, Outcome};
use rcoe_user::share::Large;
use rcoe_user::{accept, add_trace, call, make_sized, println, recv, reply_recv_with, send, spawn};

rcoe_user::program!(main);

/// Slots: memory for two large frames and for what is small, and what is made of it.
const MEMORY: u64 = service::SLOT_FREE;
const SCRAPS: u64 = MEMORY + 1;
const FIRST: u64 = MEMORY + 2;
const SECOND: u64 = MEMORY + 3;
const COPY: u64 = MEMORY + 4;
const LOAN: u64 = MEMORY + 5;
const TABLE: u64 = MEMORY + 6;
const PAGE: u64 = MEMORY + 7;
const AGAIN: u64 = MEMORY + 8;

/// Logarithm of the bytes of two large frames, and of some pages.
const MEMORY_BITS: u32 = 22;
const SCRAPS_BITS: u32 = 14;

/// The second process asks for what it is to read, then tells its sum.
const ASK: u64 = 40;
const TELL: u64 = 41;

/// The argument of the second process.
const READER: u64 = u64::MAX;

/// What the words of a frame are made from.
const SEEDS: [u64; 2] = [3, 77];

const CNODE: u64 = service::SLOT_CNODE;
const DATA: Rights = Rights::READ_WRITE;

fn main(argument: u64) -> u64 {
    if argument == READER {
        return read();
    }
    match run(argument) {
        Ok(sum) => {
            println!("large frames mapped, lent, exchanged and ended: {sum:016x}");
            0
        }
        Err(why) => {
            println!("large: {why}");
            1
        }
    }
}

/// The second process: what it is lent has a sum.
fn read() -> u64 {
    accept(CNODE, FIRST, 1);
    let answer = call(service::SLOT_PEER, ASK, &[]);
    if answer.caps != 1 || Large(9).map(FIRST, Rights::READ).is_err() {
        return 1;
    }
    send(
        service::SLOT_PEER,
        TELL,
        &[sum_of(|word| Large(9).word(word))],
    );
    0
}

const fn word(seed: u64, place: u64) -> u64 {
    (place ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn sum_of(word: impl Fn(u64) -> u64) -> u64 {
    (0..Large::WORDS).fold(0, |sum: u64, place| sum.rotate_left(5) ^ word(place))
}

/// An error of the kernel, and where.
struct Why(&'static str, Option<Error>);

impl core::fmt::Display for Why {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {:?}", self.0, self.1)
    }
}

/// What came of a step.
fn done(what: &'static str, outcome: Outcome) -> Result<(), Why> {
    outcome.map_err(|error| Why(what, Some(error)))
}

fn check(what: &'static str, is_so: bool) -> Result<(), Why> {
    is_so.then_some(()).ok_or(Why(what, None))
}

fn run(rounds: u64) -> Result<u64, Why> {
    let made = make_sized(ObjectType::Untyped, MEMORY_BITS, MEMORY)
        && make_sized(ObjectType::Untyped, SCRAPS_BITS, SCRAPS);
    check("memory", made)?;
    let sum = fill()?;
    lend(sum)?;
    exchange()?;
    begin_anew()?;
    for _ in 1..rounds {
        for memory in [MEMORY, SCRAPS] {
            done("revoking memory", object::revoke(CNODE, memory))?;
        }
        check("the sum again", fill()? == sum)?;
        exchange()?;
        add_trace(&[sum]);
    }
    Ok(sum)
}

/// Two frames, each with words of its own, one of them mapped twice; the sum of that.
fn fill() -> Result<u64, Why> {
    let made = object::retype(MEMORY, ObjectType::LargeFrame, 0, CNODE, FIRST, 2);
    done("two frames", made)?;
    for (place, frame) in [(0, FIRST), (1, SECOND)] {
        let (large, seed) = (Large(place), SEEDS[usize::from(place == 1)]);
        done("mapping", large.map(frame, DATA))?;
        for place in 0..Large::WORDS {
            large.set_word(place, word(seed, place));
        }
    }
    done("copying", object::copy(CNODE, COPY, FIRST, Rights::READ))?;
    done("mapping a copy", Large(510).map(COPY, DATA))?;
    let sum = sum_of(|place| word(SEEDS[0], place));
    check("a copy", sum_of(|place| Large(510).word(place)) == sum)?;
    Ok(sum)
}

/// A second process reads one of them.
fn lend(sum: u64) -> Result<(), Why> {
    done("a loan", object::copy(CNODE, LOAN, FIRST, Rights::READ))?;
    check("a second process", spawn("large", READER))?;
    let asked = recv(service::SLOT_PEER);
    check("a question", asked.label == ASK)?;
    let told = reply_recv_with(service::SLOT_PEER, 0, &[], &[LOAN]);
    check("its sum", told.label == TELL && told.words[0] == sum)?;
    // All that was derived goes, wherever it is mapped.
    done("revoking", object::revoke(CNODE, FIRST))?;
    let gone = object::unmap_frame(COPY) == Err(Error::InvalidCapability);
    check("a copy that was revoked", gone)
}

/// Where one frame was there is the other, then a table with a page, then the first again.
fn exchange() -> Result<(), Why> {
    let holds = |seed: usize| {
        let right = |place: &u64| Large(0).word(*place) == word(SEEDS[seed], *place);
        (0..Large::WORDS).step_by(509).all(|place| right(&place))
    };
    check("the first", holds(0))?;
    for frame in [FIRST, SECOND] {
        done("unmapping", object::unmap_frame(frame))?;
    }
    done("the second in its place", Large(0).map(SECOND, DATA))?;
    check("the second", holds(1))?;
    for (kind, slot) in [(ObjectType::PageTable, TABLE), (ObjectType::Frame, PAGE)] {
        done("pages", object::retype(SCRAPS, kind, 0, CNODE, slot, 1))?;
    }
    let (space, place) = (service::SLOT_VSPACE, Large(0).address());
    let over = object::map_table(TABLE, space, place);
    check("a table over it", over == Err(Error::DeleteFirst))?;
    done("unmapping", object::unmap_frame(SECOND))?;
    done("a table", object::map_table(TABLE, space, place))?;
    done("a page", object::map_frame(PAGE, space, place, DATA))?;
    check("a page in its place", Large(0).word(0) == 0)?;
    Large(0).set_word(1, 5);
    let over = Large(0).map(FIRST, DATA);
    check("a frame over a table", over == Err(Error::DeleteFirst))?;
    done("unmapping", object::unmap_table(TABLE))?;
    done("the first again", Large(0).map(FIRST, DATA))?;
    check("the first again", holds(0))
}

/// Memory whose frames have ended makes new ones, which are zero.
fn begin_anew() -> Result<(), Why> {
    done("revoking memory", object::revoke(CNODE, MEMORY))?;
    let made = object::retype(MEMORY, ObjectType::LargeFrame, 0, CNODE, AGAIN, 1);
    done("a frame anew", made)?;
    done("mapping it", Large(0).map(AGAIN, DATA))?;
    check(
        "zeros",
        (0..Large::WORDS).all(|place| Large(0).word(place) == 0),
    )
}
