//! Answers `pingpong`: the next number of a sequence.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{recv, reply_recv};

rcoe_user::program!(main);

fn main(_argument: u64) -> u64 {
    let mut message = recv(service::SLOT_PEER);
    loop {
        let [value, round, ..] = message.words;
        let next = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round | 1);
        message = reply_recv(service::SLOT_PEER, 0, &[next]);
    }
}
