//! Datagrams by UDP, between programs of the machine, and with others in the network.
//!
//! What is sent goes at once or is dropped: nobody waits to send. Whoever is connected, and sends
//! to where nobody is in the machine, is told by its next call, as Linux does it; of others nothing
//! is known.
//!
//! Not covered: datagrams to all and to groups, those beyond the machine that do not go into one
//! frame, and what goes beside a message, as the address to which it was sent.

use linux_raw_sys::errno::{
    EACCES, EADDRINUSE, ECONNREFUSED, EDESTADDRREQ, EHOSTUNREACH, EINVAL, EMSGSIZE, ENETUNREACH,
    ENOBUFS, EOPNOTSUPP, EPIPE,
};
use linux_raw_sys::general::{POLLERR, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};
use linux_raw_sys::net::{AF_INET, AF_UNSPEC, MSG_DONTWAIT, MSG_PEEK};

use super::PARTS;
use super::datagrams::{LONGEST, has_room_for};
use super::outgoing::leads_out;
use super::streams::Pieces;
use crate::linux::arch::nr;
use crate::linux::errno::LATER;
use crate::linux::senders::NOBODY;
use crate::linux::sockets::{ANY, HOME, LOOPBACK, Name, Socket, Sockets};
use crate::linux::stat::SECOND;
use crate::linux::streams::Target;
use crate::linux::udp::Udp;
use crate::linux::{Answer, Errno, Machine, Process};
use crate::network::{DATAGRAM_MAX, Peer};
use crate::socket::SocketError;

/// Bytes of the longest datagram of IPv4.
const MOST: usize = 65_507;

/// Of many messages none is waited for but the first.
const MSG_WAITFORONE: u32 = 0x1_0000;
/// Bytes from one message of many to the next, and where in one stands how long it was.
const MESSAGE: u64 = 64;
const LENGTH: u64 = 56;

impl<M: Machine> Process<'_, M> {
    /// The address of IPv4 at a place.
    fn inet_address(&self, [place, bytes]: [u64; 2]) -> Result<Peer, Errno> {
        match self.address(AF_INET, place, bytes)? {
            Name::Inet(peer) => Ok(peer),
            Name::Unix(_) => Err(Errno(EINVAL)),
        }
    }

    fn set_udp(&mut self, socket: usize, it: Udp) {
        self.streams.sockets[socket] = Socket::Udp(it);
    }

    /// `bind`: gives a socket a name, by which others in the network reach it too, unless it is one
    /// of the machine alone.
    pub(super) fn bind_udp(&mut self, socket: usize, it: Udp, place: [u64; 2]) -> Answer {
        let wanted = self.inet_address(place)?;
        if it.own.1 != 0 {
            return Err(Errno(EINVAL));
        }
        let own = self.own_place(wanted)?;
        let meets = |it: &Socket| matches!(it, Socket::Udp(it) if it.meets(own));
        if self.streams.sockets.iter().any(meets) {
            return Err(Errno(EADDRINUSE));
        }
        let mut it = Udp { own, ..it };
        if it.is_outside() {
            it.card = self.open_outside(own.1, wanted.1 != 0)?;
        }
        self.set_udp(socket, it);
        Ok(0)
    }

    /// A port in the network, if there is one.
    fn open_outside(&mut self, port: u16, is_wanted: bool) -> Result<Option<usize>, Errno> {
        self.ready = None;
        match self.machine.open(port) {
            Ok(card) => Ok(Some(card)),
            Err(SocketError::NoCard | SocketError::NoStack) => {
                let text = format_args!(
                    "the program takes datagrams at port {port}, which only programs in the \
                     machine reach: add --outgoing, and --publish HOST:{port}/udp for others"
                );
                if is_wanted {
                    self.tell_once(nr::__NR_bind.into(), text);
                }
                Ok(None)
            }
            Err(_) => Err(Errno(ENOBUFS)),
        }
    }

    /// `connect`: names the one peer of a socket, or has it have none.
    pub(super) fn connect_udp(&mut self, socket: usize, it: Udp, place: [u64; 2]) -> Answer {
        let mut family = [0; 2];
        self.read(place[0], &mut family)?;
        if u32::from(u16::from_le_bytes(family)) == AF_UNSPEC {
            self.set_udp(socket, Udp { peer: None, ..it });
            return Ok(0);
        }
        let peer = self.meant_peer(self.inet_address(place)?, &it)?;
        let it = self.with_port(it);
        let peer = Some(peer);
        self.set_udp(socket, Udp { peer, ..it });
        Ok(0)
    }

    /// Whom an address means, if a socket can send there.
    fn meant_peer(&mut self, (address, port): Peer, it: &Udp) -> Result<Peer, Errno> {
        let address = if address == ANY { HOME } else { address };
        let peer = (address, port);
        if let Some(peer) = leads_out(&Name::Inet(peer)) {
            self.check_outside(peer)?;
            self.check_one(peer)?;
            if it.own.0[0] == LOOPBACK {
                return Err(Errno(EINVAL));
            }
        }
        Ok(peer)
    }

    /// Refuses what is meant for all or for a group.
    fn check_one(&mut self, (address, _): Peer) -> Result<(), Errno> {
        let (why, error) = match address {
            [255, 255, 255, 255] | [10, 0, 2, 255] => ("to all", EACCES),
            [224..=239, ..] => ("to groups", ENETUNREACH),
            _ => return Ok(()),
        };
        let text = format_args!(
            "the system sphere does not carry datagrams {why}: the program got {}",
            if error == EACCES {
                "EACCES"
            } else {
                "ENETUNREACH"
            }
        );
        self.tell_once(nr::__NR_sendmsg.into(), text);
        Err(Errno(error))
    }

    /// A socket that has a port, whichever it is.
    fn with_port(&mut self, it: Udp) -> Udp {
        let port = match it.own.1 {
            0 => self.streams.free_port(),
            port => port,
        };
        Udp {
            own: (it.own.0, port),
            ..it
        }
    }

    /// Sends a datagram to an address or to the peer.
    pub(super) fn send_udp(
        &mut self,
        socket: usize,
        it: Udp,
        (pieces, bytes): (Pieces, usize),
        to: [u64; 2],
    ) -> Answer {
        self.take_refusal(socket)?;
        if bytes > MOST {
            return Err(Errno(EMSGSIZE));
        }
        let peer = match to {
            [0, _] => it.peer.ok_or(Errno(EDESTADDRREQ))?,
            place => {
                let peer = self.inet_address(place)?;
                self.meant_peer(peer, &it)?
            }
        };
        if peer.1 == 0 {
            return Err(Errno(EINVAL));
        }
        if it.mute {
            return Err(Errno(EPIPE));
        }
        let it = self.with_port(it);
        self.set_udp(
            socket,
            Udp {
                refused: false,
                ..it
            },
        );
        match leads_out(&Name::Inet(peer)) {
            Some(peer) => self.send_outside(socket, peer, (pieces, bytes))?,
            None => self.send_within(socket, peer, (pieces, bytes))?,
        }
        Ok(bytes as u64)
    }

    /// Sends to whoever is called so in the machine. One that has no room gets nothing.
    fn send_within(
        &mut self,
        socket: usize,
        peer: Peer,
        (pieces, bytes): (Pieces, usize),
    ) -> Result<(), Errno> {
        let Socket::Udp(it) = self.streams.sockets[socket] else {
            return Ok(());
        };
        if bytes > LONGEST {
            return Err(self.too_long(LONGEST));
        }
        let from = (it.address_to(peer.0), it.own.1);
        let Some(place) = self.streams.sockets.hearer(peer, from) else {
            // Whoever is connected is told later.
            let refused = it.peer == Some(peer);
            self.set_udp(socket, Udp { refused, ..it });
            return Ok(());
        };
        let Socket::Udp(Udp { inbox, .. }) = self.streams.sockets[place] else {
            return Ok(());
        };
        if has_room_for(&self.streams.pipes[inbox], bytes) {
            self.put_datagram(inbox, (&Name::Inet(from), NOBODY), pieces, bytes)?;
        }
        Ok(())
    }

    fn too_long(&mut self, most: usize) -> Errno {
        let text = format_args!(
            "the system sphere carries such datagrams of up to {most} bytes: the program got \
             EMSGSIZE"
        );
        self.tell_once(nr::__NR_sendto.into(), text);
        Errno(EMSGSIZE)
    }

    /// Sends to others in the network.
    fn send_outside(
        &mut self,
        socket: usize,
        peer: Peer,
        (pieces, bytes): (Pieces, usize),
    ) -> Result<(), Errno> {
        let Socket::Udp(it) = self.streams.sockets[socket] else {
            return Ok(());
        };
        let mut whole = [0; DATAGRAM_MAX];
        let Some(whole) = whole.get_mut(..bytes) else {
            return Err(self.too_long(DATAGRAM_MAX));
        };
        let mut rest = &mut *whole;
        for index in 0..self.count_of(pieces)? {
            let (address, bytes) = self.piece(pieces, index)?;
            let bytes = usize::try_from(bytes).map_err(|_| Errno(EMSGSIZE))?;
            // The program may name its pieces anew between two looks.
            let part = rest.split_off_mut(..bytes).ok_or(Errno(EMSGSIZE))?;
            self.outgoing(address, part)?;
        }
        let card = match it.card {
            Some(card) => card,
            None => match self.open_outside(it.own.1, false)? {
                Some(card) => card,
                None => return Err(self.nothing_leads_to(peer)),
            },
        };
        let card = Some(card);
        self.set_udp(socket, Udp { card, ..it });
        self.ready = None;
        let card = card.ok_or(Errno(ENOBUFS))?;
        self.machine
            .send_to(card, peer, whole)
            .map_err(|why| match why {
                SocketError::Long => Errno(EMSGSIZE),
                SocketError::Refused => Errno(EHOSTUNREACH),
                _ => Errno(ENETUNREACH),
            })
    }

    /// What a socket receives next is in its pipe, if there is anything.
    ///
    /// # Errors
    /// If the program is to be told that nobody was there to whom it sent.
    pub(super) fn hear_udp(&mut self, socket: usize) -> Result<(), Errno> {
        self.take_refusal(socket)?;
        let Socket::Udp(it) = self.streams.sockets[socket] else {
            return Ok(());
        };
        let Some(card) = it.card else {
            return Ok(());
        };
        self.ready = None;
        let mut bytes = [0; DATAGRAM_MAX];
        // The stack holds so many at most, whoever goes on sending.
        while has_room_for(&self.streams.pipes[it.inbox], DATAGRAM_MAX)
            && let Some((count, from)) = self.machine.take_from(card, &mut bytes)
        {
            let bytes = &bytes[..count];
            // Nobody beyond the machine has an address that is its own.
            let is_outside = leads_out(&Name::Inet(from)).is_some();
            if is_outside && it.peer.is_none_or(|peer| peer == from) {
                let sender = (&Name::Inet(from), NOBODY);
                // Without memory for it, it is lost, as any datagram may be.
                let _ = self.put_whole(it.inbox, sender, count, |process| {
                    process.append(it.inbox, bytes)
                });
            }
        }
        Ok(())
    }

    /// How many bytes the next datagram has that came, 0 if none did; none if a socket has none by
    /// UDP.
    pub(super) fn next_udp(&mut self, file: u64) -> Result<Option<u64>, Errno> {
        let Target::Socket(socket) = self.files.of(file)?.target else {
            return Ok(None);
        };
        let Socket::Udp(it) = self.streams.sockets[socket] else {
            return Ok(None);
        };
        if !it.refused {
            self.hear_udp(socket)?;
        }
        Ok(Some(self.next_length(it.inbox)))
    }

    /// `sendmmsg`: sends one message after the other, by UDP.
    pub(super) fn send_many(&mut self, file: u64, messages: [u64; 2], flags: u32) -> Answer {
        self.check_many(file, nr::__NR_sendmmsg, 0)?;
        let [table, count] = messages;
        let mut done = 0;
        while done < (count & 0xffff_ffff).min(PARTS) {
            let message = table.wrapping_add(MESSAGE * done);
            match self.send_one(file, message, flags) {
                Ok(bytes) => self.write_half(message.wrapping_add(LENGTH), bytes)?,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += 1;
        }
        Ok(done)
    }

    /// `recvmmsg`: receives one message after the other, by UDP, and waits for each unless the
    /// flags say otherwise.
    pub(super) fn receive_many(
        &mut self,
        file: u64,
        messages: [u64; 2],
        flags: u32,
        limit: u64,
    ) -> Answer {
        let until = match limit {
            0 => None,
            // What is no time is told before anything else.
            limit => Some(self.last_message(limit)?),
        };
        self.check_many(file, nr::__NR_recvmmsg, (flags & MSG_PEEK).into())?;
        let [table, count] = messages;
        let mut done = self.threads.now().wait.done;
        while done < (count & 0xffff_ffff).min(PARTS) {
            let message = table.wrapping_add(MESSAGE * done);
            let at_once = done > 0 && flags & MSG_WAITFORONE != 0;
            let manner = flags & !MSG_WAITFORONE | if at_once { MSG_DONTWAIT } else { 0 };
            self.rights.begin_message();
            match self.receive_message(file, message, manner) {
                Ok(bytes) => self.write_half(message.wrapping_add(LENGTH), bytes)?,
                Err(LATER) => {
                    self.threads.current().wait.done = done;
                    return Err(LATER);
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += 1;
            if let Some(until) = until {
                let left = until.saturating_sub(self.machine.now());
                self.write_words(limit, &[left / SECOND, left % SECOND])?;
                if left == 0 {
                    break;
                }
            }
        }
        Ok(done)
    }

    /// When no more messages are received after one that came: that ends no wait, as on Linux.
    fn last_message(&mut self, limit: u64) -> Answer {
        let time = self.time_at(limit)?;
        let until = self.machine.now().saturating_add(time);
        Ok(*self.threads.current().wait.last.get_or_insert(until))
    }

    /// Refuses many messages at once that are not by UDP, and what is asked for beside them.
    fn check_many(&mut self, file: u64, call: u32, beside: u64) -> Result<(), Errno> {
        let socket = self.socket(file)?;
        if matches!(self.streams.sockets[socket], Socket::Udp(_)) && beside == 0 {
            return Ok(());
        }
        let text = format_args!(
            "the system sphere carries several messages of one call by UDP alone, and without \
             MSG_PEEK: the program got EOPNOTSUPP"
        );
        self.tell_once(call.into(), text);
        Err(Errno(EOPNOTSUPP))
    }

    /// Nothing goes beside a datagram.
    pub(super) fn refuse_beside(&mut self) -> Errno {
        let text = format_args!(
            "the system sphere carries nothing beside a datagram by UDP (IP_PKTINFO and others): \
             the program got EINVAL"
        );
        self.tell_once(nr::__NR_sendmsg.into(), text);
        Errno(EINVAL)
    }

    /// Tells a program, once, that nobody was there to whom it sent.
    fn take_refusal(&mut self, socket: usize) -> Result<(), Errno> {
        match self.take_error(socket) {
            ECONNREFUSED => Err(Errno(ECONNREFUSED)),
            _ => Ok(()),
        }
    }

    /// Events of a socket for datagrams by UDP. It can always send.
    pub(super) fn udp_events(&mut self, socket: usize) -> u32 {
        let Socket::Udp(it) = self.streams.sockets[socket] else {
            return 0;
        };
        let mut events = POLLOUT | POLLWRNORM;
        if it.refused {
            events |= POLLERR;
        } else if it
            .card
            .is_some_and(|card| self.network().came >> card & 1 != 0)
        {
            // It has no error to tell.
            let _ = self.hear_udp(socket);
        }
        if self.streams.pipes[it.inbox].len > 0 || it.deaf {
            events |= POLLIN | POLLRDNORM;
        }
        if it.deaf {
            events |= POLLRDHUP;
        }
        events
    }

    /// A socket is in the network no more.
    pub(in crate::linux) fn shut_udp(&mut self, socket: usize) {
        if let Socket::Udp(Udp {
            card: Some(card), ..
        }) = self.streams.sockets[socket]
        {
            self.machine.shut(card);
        }
    }
}
