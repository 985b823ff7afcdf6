//! What a network is made of and needs no machine for: frames in a card's memory, and TCP/IP on
//! frames.
//!
//! All of it computes on bytes it is given, so that it runs in tests on the host, where it meets
//! frames that no well-meaning card or peer sends. The driver and the process of the stack
//! (`user/src/bin/rtl8139.rs`, `user/src/bin/net.rs`) are thin shells around it. The rules for who
//! gives what in a replicated machine are theirs: time and randomness come in as arguments.

mod driver;
mod link;
pub mod ring;
mod stack;
#[cfg(test)]
mod tests;

pub use driver::Shown;
pub use link::{FRAME_MAX, FRAME_MIN, Link};
pub use stack::{
    DATAGRAM_MAX, DATAGRAMS, Peer, Ready, Received, Refused, SOCKETS, Stack, Storage, Unmade,
    Unsent,
};
