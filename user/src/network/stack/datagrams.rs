//! UDP: sockets that have a port and tell apart whole datagrams.
//!
//! Datagrams that come are kept in the order in which they came, up to a bound; what comes then is
//! dropped, as on any network. What is sent goes out at once, unless the router or the name server
//! has not said yet where it is: then a few wait, and what is sent beyond that is dropped too.
//!
//! Not covered: datagrams of more than one frame, which are refused or dropped, and those to all or
//! to groups.

use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, SendError, Socket};
use smoltcp::wire::{IpAddress, IpEndpoint, Ipv4Address};

use super::{ADDRESS, NAMES, Peer, ROUTER, Refused, Stack};
use crate::network::FRAME_MAX;

/// Sockets for datagrams.
pub const DATAGRAMS: usize = 16;
/// Bytes of the longest datagram: what a frame has behind the headers of Ethernet, IPv4 and UDP.
pub const DATAGRAM_MAX: usize = FRAME_MAX - 14 - 20 - 8;
/// Datagrams and their bytes that a socket keeps of those that came, and that wait to be sent.
const CAME: usize = 32;
const CAME_BYTES: usize = 16 << 10;
const SENT: usize = 4;
const SENT_BYTES: usize = 4 << 10;
/// Bytes of memory that all sockets need.
pub(super) const MEMORY: usize = DATAGRAMS * (CAME_BYTES + SENT_BYTES);

/// What is known of the datagrams of one socket.
pub(super) type Headers = ([PacketMetadata; CAME], [PacketMetadata; SENT]);
/// Of none.
pub(super) const NO_HEADERS: Headers =
    ([PacketMetadata::EMPTY; CAME], [PacketMetadata::EMPTY; SENT]);

/// A socket that has no port yet.
pub(super) fn socket<'a>(
    headers: &'a mut Headers,
    memory: &mut impl FnMut(usize) -> &'a mut [u8],
) -> Socket<'a> {
    let (came, sent) = headers;
    Socket::new(
        PacketBuffer::new(&mut came[..], memory(CAME_BYTES)),
        PacketBuffer::new(&mut sent[..], memory(SENT_BYTES)),
    )
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// There is no such socket, or no such peer.
    Refused,
    /// It has more bytes than there are in a frame.
    Long,
}

impl<'a> Stack<'a> {
    /// A socket for datagrams at a port; its number.
    ///
    /// # Errors
    /// If somebody has the port, there are too many, or port 0 is asked for.
    pub fn open(&mut self, port: u16) -> Result<usize, Refused> {
        let all = (0..DATAGRAMS).map(|number| self.endpoint(number));
        if port == 0 || all.clone().any(|it| it == port) {
            return Err(Refused);
        }
        let free = all.clone().position(|it| it == 0).ok_or(Refused)?;
        self.datagrams(free).bind(port).map_err(|_| Refused)?;
        Ok(free)
    }

    /// Sends a datagram, or drops it if many wait.
    ///
    /// # Errors
    /// If there is no such socket, nobody can be at that address, or the datagram is too long.
    pub fn send_to(&mut self, number: usize, peer: Peer, bytes: &[u8]) -> Result<(), Unsent> {
        if bytes.len() > DATAGRAM_MAX {
            return Err(Unsent::Long);
        }
        let address = Ipv4Address::from(peer.0);
        if !self.is_open(number) || !is_somebody(address) {
            return Err(Unsent::Refused);
        }
        let to = IpEndpoint::new(address.into(), peer.1);
        match self.datagrams(number).send_slice(bytes, to) {
            Ok(()) | Err(SendError::BufferFull) => Ok(()),
            Err(SendError::Unaddressable) => Err(Unsent::Refused),
        }
    }

    /// Takes the next datagram that came, if there is one: how many bytes it has, and from whom.
    /// What `into` has no room for is lost.
    ///
    /// # Errors
    /// If there is no such socket.
    pub fn take(
        &mut self,
        number: usize,
        into: &mut [u8],
    ) -> Result<Option<(usize, Peer)>, Refused> {
        if !self.is_open(number) {
            return Err(Refused);
        }
        let Ok((bytes, from)) = self.datagrams(number).recv() else {
            return Ok(None);
        };
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        let IpAddress::Ipv4(address) = from.endpoint.addr;
        Ok(Some((count, (address.octets(), from.endpoint.port))))
    }

    /// Which sockets have a datagram that came, one bit for each.
    pub(super) fn came(&self) -> u64 {
        let all = self.datagrams.iter().enumerate();
        all.fold(0, |bits, (number, handle)| {
            let came = self.sockets.get::<Socket<'_>>(*handle).can_recv();
            bits | u64::from(came) << number
        })
    }

    /// Closes a socket for datagrams. What came and nobody took is lost.
    ///
    /// # Errors
    /// If there is no such socket.
    pub fn shut(&mut self, number: usize) -> Result<(), Refused> {
        if !self.is_open(number) {
            return Err(Refused);
        }
        self.datagrams(number).close();
        Ok(())
    }

    fn is_open(&self, number: usize) -> bool {
        number < DATAGRAMS && self.endpoint(number) != 0
    }

    /// The port of a socket, or 0.
    fn endpoint(&self, number: usize) -> u16 {
        let socket = self.sockets.get::<Socket<'_>>(self.datagrams[number]);
        socket.endpoint().port
    }

    fn datagrams(&mut self, number: usize) -> &mut Socket<'a> {
        self.sockets.get_mut(self.datagrams[number])
    }
}

/// Can anybody be there? In the machine's own network are but the router and the name server: for
/// others a datagram would wait for ever, and all behind it.
fn is_somebody(address: Ipv4Address) -> bool {
    let [first, second, third, _] = ADDRESS.octets();
    let is_near = address.octets().starts_with(&[first, second, third]);
    let is_one = !address.is_broadcast() && !address.is_multicast() && !address.is_unspecified();
    is_one && !address.is_loopback() && (!is_near || [ROUTER, NAMES].contains(&address))
}
