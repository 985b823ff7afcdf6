//! Connections that a program makes to others beyond the machine, if the user wants that.
//!
//! Who asks for one waits until it is made or refused, or is told later: by `poll`, by
//! `SO_ERROR`, by the next `connect`, or by whatever it does with the socket next. One that got no
//! connection is as it was before it asked, and can ask again.

use linux_raw_sys::errno::{
    EADDRNOTAVAIL, EAGAIN, EALREADY, ECONNREFUSED, EINPROGRESS, ENETUNREACH, ENOTCONN, ETIMEDOUT,
};
use linux_raw_sys::general::{O_NONBLOCK, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};
use linux_raw_sys::general::{POLLRDNORM, POLLWRNORM};
use rcoe_abi::bundle::Word;

use super::poll::connection_events;
use crate::linux::arch::nr;
use crate::linux::errno::LATER;
use crate::linux::sockets::{ANY, Connected, LOOPBACK, Link, Name, OWN, Socket};
use crate::linux::streams::Side;
use crate::linux::{Answer, Errno, Machine, Process};
use crate::network::Peer;
use crate::socket::SocketError;

/// What the bundle says where programs may connect to others.
const OUTGOING: u64 = 2;

/// Is that beyond the machine?
pub(super) fn leads_out(wanted: &Name) -> Option<Peer> {
    match wanted {
        Name::Inet((address, port)) => {
            let here = [ANY, OWN].contains(address) || address[0] == LOOPBACK;
            (!here).then_some((*address, *port))
        }
        Name::Unix(_) => None,
    }
}

impl<M: Machine> Process<'_, M> {
    /// Asks for a connection, for a socket that is called so.
    pub(super) fn ask_outside(&mut self, file: u64, own: Name, peer: Peer) -> Answer {
        let socket = self.socket(file)?;
        self.check_outside(peer)?;
        let port = match own {
            Name::Inet((_, 0)) | Name::Unix(_) => self.streams.free_port(),
            Name::Inet((_, port)) => port,
        };
        self.ready = None;
        let connection = self.machine.connect(peer, port).map_err(|why| match why {
            SocketError::NoCard | SocketError::NoStack => self.nothing_leads_to(peer),
            _ => Errno(EADDRNOTAVAIL),
        })?;
        let it = Connected {
            name: Name::Inet((OWN, port)),
            peer: Name::Inet(peer),
            with: 0,
            link: Link::Card(connection),
            deaf: false,
            mute: false,
        };
        self.streams.sockets[socket] = Socket::Asks { it, before: own };
        match self.later(file, Side::Sends) {
            LATER => Err(LATER),
            _ => Err(Errno(EINPROGRESS)),
        }
    }

    /// May a program reach others beyond the machine?
    pub(super) fn check_outside(&mut self, peer: Peer) -> Result<(), Errno> {
        match self.bundle.word(Word::Network) {
            Some(OUTGOING) => Ok(()),
            _ => Err(self.nothing_leads_to(peer)),
        }
    }

    pub(super) fn nothing_leads_to(&mut self, ([a, b, c, d], port): Peer) -> Errno {
        let text = format_args!(
            "the program wants to reach {a}.{b}.{c}.{d}:{port}, and from the machine nothing \
             leads to others: add --outgoing; the program got ENETUNREACH"
        );
        self.tell_once(nr::__NR_connect.into(), text);
        Errno(ENETUNREACH)
    }

    /// `connect` of a socket that has asked for a connection.
    pub(super) fn ask_again(&mut self, file: u64, socket: usize) -> Answer {
        match self.hear_of(socket) {
            Ok(()) => Ok(0),
            Err(LATER) if self.files.of(file)?.flags & O_NONBLOCK != 0 => Err(Errno(EALREADY)),
            Err(LATER) => match self.later(file, Side::Sends) {
                Errno(EAGAIN) => Err(Errno(EINPROGRESS)),
                other => Err(other),
            },
            Err(why) => Err(why),
        }
    }

    /// A socket that has asked for a connection has it, or is told why not.
    ///
    /// # Errors
    /// That, or that it is not known yet.
    pub(super) fn hear_of(&mut self, socket: usize) -> Result<(), Errno> {
        self.look(socket);
        let had = self.streams.sockets[socket];
        match had {
            Socket::Asks { it, .. } if self.is_made(&it) => {
                self.streams.sockets[socket] = Socket::Connected(it);
                Ok(())
            }
            Socket::Asks { .. } => Err(LATER),
            Socket::Refused { before, why } => {
                self.streams.sockets[socket] = Socket::New(before);
                Err(why)
            }
            _ => Ok(()),
        }
    }

    /// A socket for which there is no connection has that noted.
    fn look(&mut self, socket: usize) {
        let Socket::Asks { it, before } = self.streams.sockets[socket] else {
            return;
        };
        let Link::Card(connection) = it.link else {
            return;
        };
        let why = match self.machine.is_made(connection) {
            Ok(_) => return,
            Err(SocketError::Unanswered) => Errno(ETIMEDOUT),
            Err(_) => Errno(ECONNREFUSED),
        };
        self.ready = None;
        self.release_link(&it);
        self.streams.sockets[socket] = Socket::Refused { before, why };
    }

    fn is_made(&mut self, it: &Connected) -> bool {
        match it.link {
            Link::Card(connection) => self.machine.is_made(connection) == Ok(true),
            Link::Pipes { .. } => true,
        }
    }

    /// Events of a socket that has asked for a connection.
    pub(super) fn events_of_asking(&mut self, socket: usize) -> u32 {
        let Socket::Asks { it, .. } = self.streams.sockets[socket] else {
            return EVENTS_OF_REFUSED;
        };
        let Link::Card(connection) = it.link else {
            return EVENTS_OF_REFUSED;
        };
        if self.network().sends >> connection & 1 == 0 {
            return 0;
        }
        self.look(socket);
        if !matches!(self.streams.sockets[socket], Socket::Asks { .. }) {
            return EVENTS_OF_REFUSED;
        }
        // Since it is made it may have received something, too.
        self.ready = None;
        connection_events(self.network(), connection, &it)
    }

    /// `SO_ERROR`: why a socket got no connection, which it is told once.
    pub(super) fn take_error(&mut self, socket: usize) -> u32 {
        self.look(socket);
        match &mut self.streams.sockets[socket] {
            Socket::Refused { before, why } => {
                let (before, why) = (*before, *why);
                self.streams.sockets[socket] = Socket::New(before);
                why.0
            }
            Socket::Udp(it) => match core::mem::take(&mut it.refused) {
                true => ECONNREFUSED,
                false => 0,
            },
            // Who reads or writes learns of other errors.
            _ => 0,
        }
    }

    /// `shutdown` of a socket that has asked for a connection: it wants none any more.
    pub(super) fn ask_no_more(&mut self, socket: usize) -> Result<(), Errno> {
        match self.hear_of(socket) {
            Err(LATER) => {}
            Err(_) => return Err(Errno(ENOTCONN)),
            Ok(()) => return Ok(()),
        }
        if let Socket::Asks { it, before } = self.streams.sockets[socket] {
            self.ready = None;
            self.release_link(&it);
            self.streams.sockets[socket] = Socket::New(before);
        }
        Ok(())
    }
}

/// A socket that got no connection is at its end in every way.
const EVENTS_OF_REFUSED: u32 =
    POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLRDHUP | POLLERR | POLLHUP;
