//! Answers `pingpong`: with the next number of a sequence, or with nothing if that is wanted.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{recv, reply_recv};

rcoe_user::program!(main);

/// A message that wants an empty answer.
const PLAIN: u64 = 41;

fn main(_argument: u64) -> u64 {
    let mut message = recv(service::SLOT_PEER);
    loop {
        if message.label == PLAIN {
            message = reply_recv(service::SLOT_PEER, 0, &[]);
            continue;
        }
        let [value, round, ..] = message.words;
        let next = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round | 1);
        message = reply_recv(service::SLOT_PEER, 0, &[next]);
    }
}
