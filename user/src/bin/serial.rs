//! The driver of the serial line: writes what clients send to the console.
//!
//! All replicas run it. Each byte that goes out is voted by the kernel, and the primary writes it.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{Received, recv, reply_recv, serial};

rcoe_user::program!(main);

/// Looks at the status before the line counts as broken and bytes are dropped.
const PATIENCE: u32 = 100_000;

fn main(_argument: u64) -> u64 {
    if serial::prepare().is_err() {
        return 1;
    }
    let mut message = recv(service::SLOT_CONSOLE);
    loop {
        let written = if message.label == service::CONSOLE_WRITE {
            write(&message)
        } else {
            0
        };
        message = reply_recv(service::SLOT_CONSOLE, 0, &[written]);
    }
}

/// Writes a message's bytes; how many.
fn write(message: &Received) -> u64 {
    let room = message.len.saturating_sub(1) * 8;
    let len = usize::try_from(message.words[0])
        .unwrap_or_default()
        .min(room);
    // Taken out first: each access to a port is a message of its own.
    let mut bytes = [0; 8 * rcoe_abi::MAX_MESSAGE];
    for (index, chunk) in bytes[..len].chunks_mut(8).enumerate() {
        let word = message.word(index + 1).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    for chunk in bytes[..len].chunks(serial::QUEUE) {
        if !wait_until_empty() {
            break;
        }
        if serial::write(chunk).is_err() {
            break;
        }
    }
    len as u64
}

fn wait_until_empty() -> bool {
    (0..PATIENCE).any(|_| serial::is_empty())
}
