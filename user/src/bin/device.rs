//! Has a device compute and move data, by the driver `edu`. Argument: copies (3).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{ObjectType, Rights, service};
use rcoe_user::share::Page;
use rcoe_user::{add_trace, call, call_with, make, object, println, spawn, squeeze};

rcoe_user::program!(main);

/// Own slots: the two frames, and the loan of the first.
const FIRST: u64 = service::SLOT_FREE;
const SECOND: u64 = FIRST + 1;
const LOAN: u64 = FIRST + 2;

const FROM: Page = Page(0);
const TO: Page = Page(1);

fn main(argument: u64) -> u64 {
    let copies = if argument == 0 { 3 } else { argument };
    if prepare().is_none() || !spawn("edu", 0) {
        println!("device: no memory, or no driver");
        return 2;
    }
    for number in [5, 10, 12] {
        let answer = call(service::SLOT_PEER, service::EDU_FACTORIAL, &[number]);
        println!("{number}! = {}", answer.words[0]);
    }
    let mut seed = 1_u64;
    for copy in 1..=copies {
        let mut data = [0; service::EDU_BYTES];
        for byte in &mut data {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            [.., *byte] = seed.to_le_bytes();
        }
        let Some(digest) = copied(&data) else {
            println!("copy {copy} failed");
            return 1;
        };
        println!("copy {copy}: {digest:016x}");
    }
    0
}

fn prepare() -> Option<()> {
    let made = make(ObjectType::Frame, FIRST) && make(ObjectType::Frame, SECOND);
    made.then_some(())?;
    FROM.map(FIRST, Rights::READ_WRITE).ok()?;
    TO.map(SECOND, Rights::READ).ok()?;
    object::copy(service::SLOT_CNODE, LOAN, FIRST, Rights::READ).ok()
}

/// Has data copied; the digest of what came back, if it is what was sent.
fn copied(data: &[u8]) -> Option<u64> {
    FROM.write(data);
    let words = [data.len() as u64];
    let answer = call_with(
        service::SLOT_PEER,
        service::EDU_COPY,
        &words,
        &[LOAN, SECOND],
    );
    let mut back = [0; service::EDU_BYTES];
    TO.read(&mut back);
    let digest = squeeze::digest(&back);
    add_trace(&[answer.label, digest]);
    (answer.label == 0 && back == data).then_some(digest)
}
