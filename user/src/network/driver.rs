//! What the driver of a network card has for the TCP/IP stack of its group.

use rcoe_abi::Error;
use rcoe_abi::service::{self, NIC_FRAMES};

use crate::object::Outcome;
use crate::{accept, call_with};

/// Slots of what the stack is given: by what it asks the driver, the frame of what is sent, and the
/// first of [`NIC_FRAMES`] frames of what was received.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// See [`Shown`].
    pub requester: u64,
    /// See [`Shown`].
    pub sent: u64,
    /// See [`Shown`].
    pub received: u64,
}

impl Shown {
    /// Gives the stack all that, with the card's address in the network, and gets what is to be
    /// signalled, in that slot ([`service::NIC_JOIN`]).
    ///
    /// # Errors
    /// `InvalidCapability` if the stack does not take it.
    pub fn join(self, address: u64, signal: u64) -> Outcome {
        accept(service::SLOT_CNODE, signal, 1);
        let ask = |part, caps: &[u64]| {
            let words = [part, address];
            call_with(service::SLOT_PEER, service::NIC_JOIN, &words, caps)
        };
        let mut answer = ask(0, &[self.requester, self.sent]);
        for part in 0..NIC_FRAMES {
            answer = ask(part + 1, &[self.received + part]);
        }
        match (answer.label, answer.caps) {
            (0, 1) => Ok(()),
            _ => Err(Error::InvalidCapability),
        }
    }
}
