//! Sockets for datagrams by UDP: what they are called, and whom they hear.
//!
//! What one sends to another of the machine goes straight into that one's pipe; what comes from the
//! network is moved there when the program looks. So there is one order of all that a socket has.

use super::sockets::{ANY, HOME, LOOPBACK, OWN};
use crate::network::Peer;

/// A socket for datagrams by UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Udp {
    /// The name that it was given, or none.
    pub(crate) own: Peer,
    pub(crate) peer: Option<Peer>,
    /// The pipe of all that it receives.
    pub(crate) inbox: usize,
    /// Its number in the network, if it is there.
    pub(crate) card: Option<usize>,
    /// The program receives no more, and sends no more.
    pub(crate) deaf: bool,
    pub(crate) mute: bool,
    /// Nobody was there to whom it sent, which the program was not told.
    pub(crate) refused: bool,
}

impl Udp {
    /// One that has no name and no peer.
    pub(crate) const fn new(inbox: usize) -> Self {
        Self {
            own: (ANY, 0),
            peer: None,
            inbox,
            card: None,
            deaf: false,
            mute: false,
            refused: false,
        }
    }

    /// What it is called: with an address of its own as soon as it has a peer.
    pub(crate) const fn name(&self) -> Peer {
        match self.peer {
            Some((address, _)) => (self.address_to(address), self.own.1),
            None => self.own,
        }
    }

    /// The address from which it sends to another one.
    pub(crate) const fn address_to(&self, address: [u8; 4]) -> [u8; 4] {
        match (self.own.0, address) {
            (ANY, [LOOPBACK, ..] | ANY) => HOME,
            (ANY, _) => OWN,
            (own, _) => own,
        }
    }

    /// Does it get what this peer sends to that name? One that is connected hears its peer alone.
    pub(crate) fn hears(&self, to: Peer, from: Peer) -> bool {
        let (address, port) = self.name();
        let is_meant = port == to.1 && [ANY, to.0].contains(&address);
        is_meant && self.peer.is_none_or(|peer| peer == from)
    }

    /// Would it get what is meant for one that is called so?
    pub(crate) fn meets(&self, (address, port): Peer) -> bool {
        let same = self.own.0 == address || [self.own.0, address].contains(&ANY);
        self.own.1 == port && same
    }

    /// Is it one that others in the network reach?
    pub(crate) const fn is_outside(&self) -> bool {
        self.own.0[0] != LOOPBACK
    }
}
