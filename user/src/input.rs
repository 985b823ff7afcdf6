//! What the machine's user gives its program to read, by the driver of the input
//! (`user/src/bin/input.rs`), for the driver's client.
//!
//! Nothing is fetched from the host before the client wants it, and what the client did not take is
//! kept for it.
//!
//! One program of a machine can be the client.

use rcoe_abi::service;

use crate::{accept, call, call_with, recv, reply_with, spawn};

/// Slots that this takes: the driver's endpoint.
const DRIVER: u64 = 0;
/// Words of an answer before its bytes.
const BEFORE: usize = 2;

/// There is no input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoInput;

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// Nothing as yet.
    Nothing,
    /// So many bytes, and whether there are more to be taken.
    Bytes(usize, bool),
    /// Nothing will come any more.
    End,
}

/// The input, with the slot that its client uses for it.
#[derive(Debug)]
pub struct Input {
    first: u64,
}

impl Input {
    /// Starts the driver, and uses a slot of the own table.
    ///
    /// # Errors
    /// If there is none, or it does not work.
    pub fn start(first: u64) -> Result<Self, NoInput> {
        accept(service::SLOT_CNODE, first + DRIVER, 1);
        if !spawn("input", 0) {
            return Err(NoInput);
        }
        let message = recv(service::SLOT_PEER);
        accept(service::SLOT_CNODE, 0, 0);
        if message.label != service::INPUT_JOIN || message.caps != 1 {
            return Err(NoInput);
        }
        // Whoever sends to the group next does not mean this program.
        reply_with(&[], &[]);
        Ok(Self { first })
    }

    /// Has the driver signal what is in this slot whenever something came that was wanted.
    pub fn tell(&self, slot: u64) {
        call_with(self.first + DRIVER, service::INPUT_TELL, &[], &[slot]);
    }

    /// Takes what came, and has more fetched if nothing did.
    pub fn take(&self, into: &mut [u8]) -> Came {
        let answer = call(
            self.first + DRIVER,
            service::INPUT_TAKE,
            &[into.len() as u64],
        );
        let [what, count, ..] = answer.words;
        let count = usize::try_from(count).unwrap_or(0).min(into.len());
        match (answer.label, what) {
            (0, service::INPUT_NOTHING) => Came::Nothing,
            (0, service::INPUT_BYTES | service::INPUT_MORE) if count > 0 => {
                for (index, chunk) in into[..count].chunks_mut(8).enumerate() {
                    let word = answer.word(BEFORE + index).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
                Came::Bytes(count, what == service::INPUT_MORE)
            }
            _ => Came::End,
        }
    }

    /// Waits until something came that was wanted, or so many ticks of a hundredth of a second have
    /// passed; 0 if it does not matter how many.
    pub fn wait(&self, ticks: u64) {
        call(self.first + DRIVER, service::INPUT_WAIT, &[ticks]);
    }
}
