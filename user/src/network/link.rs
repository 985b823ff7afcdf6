//! What the stack needs of a card: frames in, frames out.

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Bytes of the largest frame, without checksum.
pub const FRAME_MAX: usize = 1514;
/// Bytes of the smallest one: the header, which has addresses and a type. Cards send and receive
/// none below 60, to which the sender fills it up.
pub const FRAME_MIN: usize = 14;
/// What a frame is filled up to.
const FILLED: usize = 60;

/// A card.
pub trait Link {
    /// Copies the next frame that was received to the beginning of `into`; its bytes.
    fn receive(&mut self, into: &mut [u8; FRAME_MAX]) -> Option<usize>;
    /// Sends a frame, or loses it, as networks may.
    fn send(&mut self, frame: &[u8]);
}

/// A card as the stack wants it.
pub(super) struct Port<'a, L> {
    pub(super) link: &'a mut L,
    pub(super) received: [u8; FRAME_MAX],
    pub(super) sent: [u8; FRAME_MAX],
}

impl<L: Link> Device for Port<'_, L> {
    type RxToken<'b>
        = Incoming<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Outgoing<'b, L>
    where
        Self: 'b;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming<'_>, Outgoing<'_, L>)> {
        let len = self.link.receive(&mut self.received)?;
        let outgoing = Outgoing {
            link: self.link,
            frame: &mut self.sent,
        };
        Some((Incoming(self.received.get(..len)?), outgoing))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_, L>> {
        Some(Outgoing {
            link: self.link,
            frame: &mut self.sent,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        // All checksums are made and verified here: the card's would be outside the sphere.
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_MAX;
        capabilities
    }
}

/// A frame that came.
pub(super) struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// Room for a frame that goes out.
pub(super) struct Outgoing<'a, L> {
    link: &'a mut L,
    frame: &'a mut [u8; FRAME_MAX],
}

impl<L: Link> TxToken for Outgoing<'_, L> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        self.frame[..len.max(FILLED)].fill(0);
        let result = fill(&mut self.frame[..len]);
        self.link.send(&self.frame[..len.max(FILLED)]);
        result
    }
}
