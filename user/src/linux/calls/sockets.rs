//! Calls about sockets: TCP and UDP over IPv4, and streams in the machine.
//!
//! A program listens, and who comes from the host by a published port, or from the machine itself,
//! is a peer; so is who it connects to in the machine, or beyond it if the user wants that.

use linux_raw_sys::errno::{
    EADDRINUSE, EAFNOSUPPORT, ECONNRESET, EINVAL, EMSGSIZE, ENOTCONN, ENOTSOCK, EOPNOTSUPP, EPIPE,
    EPROTONOSUPPORT,
};
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, POLLIN};
use linux_raw_sys::net::{
    AF_INET, AF_UNIX, MSG_CONFIRM, MSG_DONTWAIT, MSG_EOR, MSG_MORE, MSG_NOSIGNAL, SHUT_RD,
    SHUT_RDWR, SHUT_WR, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM,
};
use rcoe_abi::Rights;

use super::PARTS;
use super::rights::Sending;
use super::streams::Pieces;
use crate::linux::arch::nr;
use crate::linux::errno::LATER;
use crate::linux::sockets::{Connected, LOOPBACK, Link, Listens, Name, OWN, Socket, Sockets};
use crate::linux::streams::{Side, Target};
use crate::linux::{Answer, Errno, Machine, Process};
use crate::socket::{Incoming, SocketError};

/// There are fewer kinds of sockets.
const KINDS: u32 = 11;
/// TCP and UDP, by their numbers among protocols.
const TCP: u64 = 6;
const UDP: u64 = 17;
/// Bytes that are moved at once.
const PORTION: usize = 4096;
/// Most connections of the machine that wait to be accepted at one socket.
const WAITING: usize = 16;
/// What may be asked for of a message.
const SENDING: u32 = MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE | MSG_EOR;
const SENDING_UDP: u32 = MSG_NOSIGNAL | MSG_DONTWAIT | MSG_EOR | MSG_CONFIRM;

pub(super) const fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn socket_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, _] = words;
        Some(match call {
            nr::__NR_socket => self.make_socket(low(first), low(second), third & 0xffff_ffff),
            nr::__NR_socketpair => {
                self.make_pair(low(first), low(second), third & 0xffff_ffff, fourth)
            }
            nr::__NR_bind => self.bind(first, second, third),
            nr::__NR_listen => self.listen(first, second),
            nr::__NR_accept => self.accept(first, second, third, 0),
            nr::__NR_accept4 => self.accept(first, second, third, low(fourth)),
            nr::__NR_connect => self.connect(first, second, third),
            nr::__NR_getsockname => self.own_name(first, second, third),
            nr::__NR_getpeername => self.peer_name(first, second, third),
            nr::__NR_setsockopt => self.set_option(first, [second, third, fourth, fifth]),
            nr::__NR_getsockopt => self.option(first, [second, third, fourth, fifth]),
            nr::__NR_shutdown => self.shut_down(first, low(second)),
            nr::__NR_sendto => {
                let pieces = Pieces::One(second, third);
                let to = [fifth, words[5] & 0xffff_ffff];
                self.send_message(first, pieces, low(fourth), (&Sending::NONE, to))
            }
            nr::__NR_sendmsg => self.send_one(first, second, low(third)),
            nr::__NR_sendmmsg => self.send_many(first, [second, third], low(fourth)),
            nr::__NR_recvmmsg => self.receive_many(first, [second, third], low(fourth), fifth),
            nr::__NR_recvfrom => self.receive_from([first, second, third, fourth], fifth, words[5]),
            nr::__NR_recvmsg => self.receive_message(first, second, low(third)),
            _ => return None,
        })
    }

    fn make_socket(&mut self, family: u32, kind: u32, protocol: u64) -> Answer {
        let name = self.socket_name(family, kind, protocol)?;
        let socket = match kind & 0xf {
            SOCK_DGRAM => self.new_datagrams(family == AF_INET)?,
            _ => self.streams.add_socket(Socket::New(name))?,
        };
        self.open_stream(socket, kind & (O_CLOEXEC | O_NONBLOCK))
    }

    /// The name that a socket of this kind has at first: none.
    pub(super) fn socket_name(
        &mut self,
        family: u32,
        kind: u32,
        protocol: u64,
    ) -> Result<Name, Errno> {
        if kind & !0xf & !(O_CLOEXEC | O_NONBLOCK) != 0 || kind & 0xf >= KINDS {
            return Err(Errno(EINVAL));
        }
        let mut name = Name::none(family).ok_or(Errno(EAFNOSUPPORT))?;
        let (kinds, protocols) = match &mut name {
            Name::Inet(_) if kind & 0xf == SOCK_DGRAM => ([SOCK_DGRAM; 3], [0, UDP]),
            Name::Inet(_) => ([SOCK_STREAM; 3], [0, TCP]),
            Name::Unix(label) => {
                label.packets = kind & 0xf == SOCK_SEQPACKET;
                let kinds = [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET];
                (kinds, [0, AF_UNIX.into()])
            }
        };
        if !kinds.contains(&(kind & 0xf)) || !protocols.contains(&protocol) {
            let text = format_args!(
                "the system sphere carries streams by TCP and datagrams by UDP over IPv4, and both \
                 in the machine: the program got EPROTONOSUPPORT for another socket"
            );
            self.tell_once(nr::__NR_socket.into(), text);
            return Err(Errno(EPROTONOSUPPORT));
        }
        Ok(name)
    }

    /// The place of a socket.
    pub(super) fn socket(&mut self, file: u64) -> Result<usize, Errno> {
        match self.files.of(file)?.target {
            Target::Socket(socket) => Ok(socket),
            _ => Err(Errno(ENOTSOCK)),
        }
    }

    fn listen(&mut self, file: u64, backlog: u64) -> Answer {
        let socket = self.socket(file)?;
        let most = usize::try_from(low(backlog)).map_or(WAITING, |it| it.saturating_add(1));
        let most = most.min(WAITING);
        let mut name = match self.streams.sockets[socket] {
            Socket::New(name) => name,
            Socket::Listens(had) => {
                self.streams.sockets[socket] = Socket::Listens(Listens { most, ..had });
                return Ok(0);
            }
            Socket::Datagrams(_) | Socket::Udp(_) => return Err(Errno(EOPNOTSUPP)),
            _ => return Err(Errno(EINVAL)),
        };
        if let Name::Inet((_, port @ 0)) = &mut name {
            *port = self.streams.free_port();
        }
        let card = match name {
            Name::Inet((address, port)) if address[0] != LOOPBACK => self.listen_outside(port)?,
            Name::Unix(_) if name.is_none() => return Err(Errno(EINVAL)),
            _ => None,
        };
        let by = self.task.number;
        self.streams.sockets[socket] = Socket::Listens(Listens {
            name,
            by,
            card,
            most,
        });
        Ok(0)
    }

    /// Listens in the network, if there is one.
    fn listen_outside(&mut self, port: u16) -> Result<Option<usize>, Errno> {
        match self.machine.listen(port) {
            Ok(listener) => Ok(Some(listener)),
            Err(SocketError::NoCard | SocketError::NoStack) => {
                let text = format_args!(
                    "the program listens at port {port}, which only programs in the machine reach: \
                     add --publish HOST:{port} for others"
                );
                self.tell_once(nr::__NR_listen.into(), text);
                Ok(None)
            }
            Err(_) => Err(Errno(EADDRINUSE)),
        }
    }

    fn accept(&mut self, file: u64, to: u64, room: u64, flags: u32) -> Answer {
        let socket = self.socket(file)?;
        let it = match self.streams.sockets[socket] {
            Socket::Listens(it) => it,
            Socket::Datagrams(_) | Socket::Udp(_) => return Err(Errno(EOPNOTSUPP)),
            _ => return Err(Errno(EINVAL)),
        };
        if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
            return Err(Errno(EINVAL));
        }
        // Nobody is taken in for whom there is no place.
        let new = self.streams.add_socket(Socket::New(it.name))?;
        let number = self.open_stream(new, flags)?;
        let Some((arrived, telling)) = self.arrived(socket, &it) else {
            self.close(number)?;
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLIN);
            return Err(self.later(file, Side::Receives));
        };
        if let Target::Socket(new) = new {
            self.streams.sockets[new] = Socket::Connected(arrived);
            self.streams.telling[new] = telling;
            if let Name::Inet(_) = it.name {
                self.streams.patience[new] = self.streams.patience[socket];
            }
        }
        if to != 0 {
            self.tell_address(&arrived.peer, to, room)?;
        }
        Ok(number)
    }

    /// A connection to this listener, of the machine or of the network; and whether it tells who
    /// sends to it.
    fn arrived(&mut self, listener: usize, it: &Listens) -> Option<(Connected, bool)> {
        if let Some(place) = self.streams.sockets.first_at(listener)
            && let Socket::Waits { it, .. } = self.streams.sockets[place]
        {
            self.streams.sockets[place] = Socket::Free;
            return Some((it, self.streams.telling[place]));
        }
        self.ready = None;
        let (connection, peer) = self.machine.accept(it.card?)?;
        let port = match it.name {
            Name::Inet((_, port)) => port,
            Name::Unix(_) => return None,
        };
        let arrived = Connected {
            name: Name::Inet((OWN, port)),
            peer: Name::Inet(peer),
            with: 0,
            link: Link::Card(connection),
            deaf: false,
            mute: false,
        };
        Some((arrived, false))
    }

    fn own_name(&mut self, file: u64, to: u64, room: u64) -> Answer {
        let socket = self.socket(file)?;
        let name = self.streams.sockets[socket].name().ok_or(Errno(ENOTSOCK))?;
        self.tell_address(&name, to, room).map(|()| 0)
    }

    fn peer_name(&mut self, file: u64, to: u64, room: u64) -> Answer {
        let socket = self.socket(file)?;
        if let Socket::Udp(it) = self.streams.sockets[socket] {
            let name = Name::Inet(it.peer.ok_or(Errno(ENOTCONN))?);
            return self.tell_address(&name, to, room).map(|()| 0);
        }
        if self.datagrams(socket).is_some() {
            let (_, other) = self.receiver(socket, [0; 2]).map_err(|_| Errno(ENOTCONN))?;
            let name = Name::Unix(other.label);
            return self.tell_address(&name, to, room).map(|()| 0);
        }
        if self.hear_of(socket).is_err() {
            return Err(Errno(ENOTCONN));
        }
        let Socket::Connected(it) = self.streams.sockets[socket] else {
            return Err(Errno(ENOTCONN));
        };
        self.tell_address(&it.peer, to, room).map(|()| 0)
    }

    fn shut_down(&mut self, file: u64, how: u32) -> Answer {
        let socket = self.socket(file)?;
        if how > SHUT_RDWR {
            return Err(Errno(EINVAL));
        }
        if self.streams.sockets[socket].is_for_datagrams() {
            return self.shut_datagrams(socket, how);
        }
        if matches!(self.streams.sockets[socket], Socket::Asks { .. }) {
            self.ask_no_more(socket)?;
        }
        let Socket::Connected(mut it) = self.streams.sockets[socket] else {
            return Err(Errno(ENOTCONN));
        };
        self.ready = None;
        if how != SHUT_WR && !it.deaf {
            it.deaf = true;
            if let Link::Pipes { receives, .. } = it.link {
                self.release(Target::Reader(receives));
            }
        }
        if how != SHUT_RD && !it.mute {
            it.mute = true;
            match it.link {
                Link::Card(connection) => self.machine.shut_down(connection),
                Link::Pipes { sends, .. } => self.release(Target::Writer(sends)),
            }
        }
        self.streams.sockets[socket] = Socket::Connected(it);
        Ok(0)
    }

    /// Takes what came; a call that has to wait is made again.
    pub(super) fn receive(&mut self, socket: usize, address: u64, bytes: u64) -> Answer {
        self.hear_of(socket)?;
        let it = match self.streams.sockets[socket] {
            Socket::Connected(it) if it.deaf => return Ok(0),
            Socket::Connected(it) => it,
            Socket::Broken(_) => return Ok(0),
            _ => return Err(Errno(ENOTCONN)),
        };
        let connection = match it.link {
            Link::Card(connection) => connection,
            Link::Pipes { receives, .. } => return self.read_pipe(receives, address, bytes),
        };
        let most = usize::try_from(bytes).unwrap_or(PORTION).min(PORTION);
        self.check(address, most as u64, Rights::WRITE)?;
        self.ready = None;
        let (mut portion, mut done) = ([0; PORTION], 0);
        while done < bytes {
            let most = usize::try_from(bytes - done)
                .unwrap_or(PORTION)
                .min(PORTION);
            let to = address.wrapping_add(done);
            if done > 0 && self.check(to, most as u64, Rights::WRITE).is_err() {
                break;
            }
            match self.machine.receive(connection, &mut portion[..most]) {
                Ok(Incoming::Bytes(0)) if done == 0 => return Err(LATER),
                Ok(Incoming::Bytes(count)) => {
                    self.write(to, &portion[..count])?;
                    done += count as u64;
                    if count < most {
                        break;
                    }
                }
                Ok(Incoming::End) => break,
                Err(_) if done > 0 => break,
                Err(_) => {
                    self.streams.sockets[socket] = Socket::Broken(it);
                    return Err(Errno(ECONNRESET));
                }
            }
        }
        Ok(done)
    }

    /// Sends what is taken now.
    pub(super) fn send(&mut self, socket: usize, address: u64, bytes: u64) -> Answer {
        self.hear_of(socket)?;
        let it = match self.streams.sockets[socket] {
            Socket::Connected(it) if it.mute => return Err(Errno(EPIPE)),
            Socket::Connected(it) => it,
            Socket::Broken(_) => return Err(Errno(EPIPE)),
            // TCP says the same of a connection that there never was.
            it if matches!(it.name(), Some(Name::Inet(_))) => return Err(Errno(EPIPE)),
            _ => return Err(Errno(ENOTCONN)),
        };
        let connection = match it.link {
            Link::Card(connection) => connection,
            Link::Pipes { sends, .. } => return self.send_near(socket, sends, address, bytes),
        };
        self.ready = None;
        let (mut portion, mut done) = ([0; PORTION], 0);
        while done < bytes {
            let len = usize::try_from(bytes - done)
                .unwrap_or(PORTION)
                .min(PORTION);
            self.outgoing(address.wrapping_add(done), &mut portion[..len])?;
            match self.machine.send(connection, &portion[..len]) {
                Ok(0) if done == 0 => return Err(LATER),
                Ok(taken) => {
                    done += taken as u64;
                    if taken < len {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(_) => {
                    self.streams.sockets[socket] = Socket::Broken(it);
                    return Err(Errno(EPIPE));
                }
            }
        }
        Ok(done)
    }

    /// What has to wait does not: the program said so of this one call.
    pub(super) fn at_once(&mut self, file: u64, flags: u32, before: u32) -> Result<(), Errno> {
        let open = self.files.of(file)?;
        let kept = open.flags & !O_NONBLOCK | before & O_NONBLOCK;
        open.flags = if flags & MSG_DONTWAIT != 0 {
            kept | O_NONBLOCK
        } else {
            kept
        };
        Ok(())
    }

    /// Refuses what is asked for of a message and not carried.
    pub(super) fn check_flags(&mut self, flags: u32, known: u32) -> Result<(), Errno> {
        if flags & !known == 0 {
            return Ok(());
        }
        let text = format_args!(
            "the system sphere does not carry messages with the flags {:#x}: the program got \
             EOPNOTSUPP",
            flags & !known
        );
        self.tell_once(nr::__NR_recvfrom.into(), text);
        Err(Errno(EOPNOTSUPP))
    }

    /// Sends the message that is told of at a place.
    pub(super) fn send_one(&mut self, file: u64, message: u64, flags: u32) -> Answer {
        let sending = self.sent_beside(file, message)?;
        let (table, count) = self.message(message)?;
        let pieces = Pieces::Table(table, count);
        let to = self.name_in(message)?;
        self.send_message(file, pieces, flags, (&sending, to))
    }

    fn send_message(
        &mut self,
        file: u64,
        pieces: Pieces,
        flags: u32,
        (sending, to): (&Sending, [u64; 2]),
    ) -> Answer {
        let socket = self.socket(file)?;
        let is_udp = matches!(self.streams.sockets[socket], Socket::Udp(_));
        // By UDP more would belong to the same datagram.
        self.check_flags(flags, if is_udp { SENDING_UDP } else { SENDING })?;
        // It went with the first bytes, if there were any by now.
        let begins = self.threads.now().wait.done == 0;
        self.rights.has_room(sending.places().len())?;
        let whole = self.has_messages(file);
        let way = self.way_out(file).filter(|_| begins && !whole);
        self.senders.say(sending.who);
        let before = self.files.of(file)?.flags;
        self.at_once(file, flags, before)?;
        let sent = match whole {
            true => self.send_datagram(file, pieces, to, sending),
            false => self.put_all(file, pieces, flags & MSG_NOSIGNAL != 0),
        };
        self.at_once(file, 0, before)?;
        if let Some(way) = way {
            self.send_beside(sending, way);
        }
        sent
    }

    /// The name that stands in a message: one without bytes is none.
    pub(super) fn name_in(&self, message: u64) -> Result<[u64; 2], Errno> {
        let place = self.word(message)?;
        match self.word(message.wrapping_add(8))? & 0xffff_ffff {
            0 => Ok([0; 2]),
            0x8000_0000.. => Err(Errno(EINVAL)),
            bytes => Ok([place, bytes]),
        }
    }

    /// The table of a message's pieces, and how many there are.
    pub(super) fn message(&self, message: u64) -> Result<(u64, u64), Errno> {
        let table = self.word(message.wrapping_add(16))?;
        let count = self.word(message.wrapping_add(24))?;
        if count > PARTS {
            return Err(Errno(EMSGSIZE));
        }
        Ok((table, count))
    }
}
