//! Calls about sockets: TCP over IPv4, for those who are called.
//!
//! Nothing leads from the machine to others, and it has no loopback: a program listens, and who
//! comes from the host by a published port is a peer.

use linux_raw_sys::errno::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, EFAULT, EINVAL, EISCONN,
    ENETDOWN, ENETUNREACH, ENOTCONN, ENOTSOCK, EOPNOTSUPP, EPIPE, EPROTONOSUPPORT,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, POLLIN};
use linux_raw_sys::net::{
    AF_INET, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, SHUT_RD, SHUT_RDWR, SHUT_WR,
    SOCK_STREAM,
};
use rcoe_abi::Rights;

use super::streams::Pieces;
use crate::linux::errno::LATER;
use crate::linux::streams::{Connected, Socket, Target};
use crate::linux::{Answer, Errno, Machine, Process};
use crate::network::Peer;
use crate::socket::{Incoming, SocketError};

/// TCP, by its number among protocols.
const TCP: u64 = 6;
/// Bytes of an address, and of what is moved at once.
const ADDRESS_BYTES: u64 = 16;
const PORTION: usize = 4096;
/// The machine's own address, that of nobody in particular, and the first byte of the loopback's.
const OWN: [u8; 4] = [10, 0, 2, 15];
const ANY: [u8; 4] = [0; 4];
const LOOPBACK: u8 = 127;
/// What may be asked for of a message.
const SENDING: u32 = MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE;
const RECEIVING: u32 = MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL;

const fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn socket_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, _] = words;
        Some(match call {
            nr::__NR_socket => self.make_socket(low(first), low(second), third & 0xffff_ffff),
            nr::__NR_socketpair => Err(Errno(EAFNOSUPPORT)),
            nr::__NR_bind => self.bind(first, second, third),
            nr::__NR_listen => self.listen(first),
            nr::__NR_accept => self.accept(first, second, third, 0),
            nr::__NR_accept4 => self.accept(first, second, third, low(fourth)),
            nr::__NR_connect => self.connect(first, second, third),
            nr::__NR_getsockname => self.own_name(first, second, third),
            nr::__NR_getpeername => self.peer_name(first, second, third),
            nr::__NR_setsockopt => self.set_option(first, [second, third, fourth, fifth]),
            nr::__NR_getsockopt => self.option(first, [second, third, fourth, fifth]),
            nr::__NR_shutdown => self.shut_down(first, low(second)),
            nr::__NR_sendto => self.send_message(first, Pieces::One(second, third), low(fourth)),
            nr::__NR_sendmsg => {
                let table = self.message(second);
                table.and_then(|(table, count)| {
                    self.send_message(first, Pieces::Table(table, count), low(third))
                })
            }
            nr::__NR_recvfrom => self.receive_from([first, second, third, fourth], fifth, words[5]),
            nr::__NR_recvmsg => self.receive_message(first, second, low(third)),
            _ => return None,
        })
    }

    fn make_socket(&mut self, family: u32, kind: u32, protocol: u64) -> Answer {
        let (flags, kind) = (kind & (O_CLOEXEC | O_NONBLOCK), kind & 0xf);
        if family != AF_INET {
            return Err(Errno(EAFNOSUPPORT));
        }
        if kind != SOCK_STREAM || ![0, TCP].contains(&protocol) {
            let text = format_args!(
                "the system sphere carries sockets of TCP over IPv4 only: the program got \
                 EPROTONOSUPPORT"
            );
            self.tell_once(nr::__NR_socket.into(), text);
            return Err(Errno(EPROTONOSUPPORT));
        }
        let socket = self.streams.add_socket(Socket::New { port: 0 })?;
        self.open_stream(socket, flags)
    }

    /// The place of a socket.
    pub(super) fn socket(&mut self, file: u64) -> Result<usize, Errno> {
        match self.files.of(file)?.target {
            Target::Socket(socket) => Ok(socket),
            _ => Err(Errno(ENOTSOCK)),
        }
    }

    /// An address that a program gives.
    fn address(&self, place: u64, bytes: u64) -> Result<Peer, Errno> {
        if bytes & 0xffff_ffff < ADDRESS_BYTES {
            return Err(Errno(EINVAL));
        }
        let mut given = [0; 8];
        self.read(place, &mut given)?;
        let [low, high, port_high, port_low, a, b, c, d] = given;
        if u32::from(u16::from_le_bytes([low, high])) != AF_INET {
            return Err(Errno(EAFNOSUPPORT));
        }
        Ok(([a, b, c, d], u16::from_be_bytes([port_high, port_low])))
    }

    /// Tells a program an address, as far as it has room.
    fn tell_address(&mut self, (address, port): Peer, to: u64, room: u64) -> Result<(), Errno> {
        let mut words = [0; 4];
        self.read(room, &mut words)?;
        let has = u64::from(u32::from_le_bytes(words));
        let mut told = [0; 16];
        told[..2].copy_from_slice(&AF_INET.to_le_bytes()[..2]);
        told[2..4].copy_from_slice(&port.to_be_bytes());
        told[4..8].copy_from_slice(&address);
        let len = usize::try_from(has.min(ADDRESS_BYTES)).map_err(|_| Errno(EFAULT))?;
        self.write(to, &told[..len])?;
        self.write(room, &ADDRESS_BYTES.to_le_bytes()[..4])
    }

    fn bind(&mut self, file: u64, place: u64, bytes: u64) -> Answer {
        let socket = self.socket(file)?;
        let (address, wanted) = self.address(place, bytes)?;
        if self.streams.sockets[socket] != (Socket::New { port: 0 }) {
            return Err(Errno(EINVAL));
        }
        if address[0] == LOOPBACK {
            let text = format_args!(
                "the machine has no loopback: have the program use the address 0.0.0.0, which \
                 --publish leads to; it got EADDRNOTAVAIL"
            );
            self.tell_once(nr::__NR_bind.into(), text);
        }
        if ![OWN, ANY].contains(&address) {
            return Err(Errno(EADDRNOTAVAIL));
        }
        if wanted != 0 && self.streams.has_port(wanted) {
            return Err(Errno(EADDRINUSE));
        }
        let port = match wanted {
            0 => self.streams.free_port(),
            port => port,
        };
        self.streams.sockets[socket] = Socket::New { port };
        Ok(0)
    }

    fn listen(&mut self, file: u64) -> Answer {
        let socket = self.socket(file)?;
        let mut port = match self.streams.sockets[socket] {
            Socket::New { port } => port,
            Socket::Listens { .. } => return Ok(0),
            _ => return Err(Errno(EINVAL)),
        };
        if port == 0 {
            port = self.streams.free_port();
        }
        let listener = match self.machine.listen(port) {
            Ok(listener) => listener,
            Err(SocketError::Refused | SocketError::Broken) => return Err(Errno(EADDRINUSE)),
            Err(SocketError::NoCard | SocketError::NoStack) => {
                let text = format_args!(
                    "the program listens at port {port}, but the machine has no network: add \
                     --publish HOST:{port}; it got ENETDOWN"
                );
                self.tell_once(nr::__NR_listen.into(), text);
                return Err(Errno(ENETDOWN));
            }
        };
        self.streams.sockets[socket] = Socket::Listens { port, listener };
        Ok(0)
    }

    fn accept(&mut self, file: u64, to: u64, room: u64, flags: u32) -> Answer {
        let socket = self.socket(file)?;
        let Socket::Listens { port, listener } = self.streams.sockets[socket] else {
            return Err(Errno(EINVAL));
        };
        if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
            return Err(Errno(EINVAL));
        }
        // Nobody is taken in for whom there is no place.
        let new = self.streams.add_socket(Socket::New { port: 0 })?;
        let number = self.open_stream(new, flags)?;
        self.ready = None;
        let Some((connection, peer)) = self.machine.accept(listener) else {
            self.close(number)?;
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLIN);
            return Err(self.later(file));
        };
        if let Target::Socket(new) = new {
            self.streams.sockets[new] = Socket::Connected(Connected {
                port,
                peer,
                connection,
                deaf: false,
                mute: false,
            });
        }
        if to != 0 {
            self.tell_address(peer, to, room)?;
        }
        Ok(number)
    }

    fn connect(&mut self, file: u64, place: u64, bytes: u64) -> Answer {
        let socket = self.socket(file)?;
        if !matches!(self.streams.sockets[socket], Socket::New { .. }) {
            return Err(Errno(EISCONN));
        }
        let (address, _) = self.address(place, bytes)?;
        if address[0] == LOOPBACK || address == OWN || address == ANY {
            return Err(Errno(ECONNREFUSED));
        }
        Err(Errno(ENETUNREACH))
    }

    fn own_name(&mut self, file: u64, to: u64, room: u64) -> Answer {
        let socket = self.socket(file)?;
        let name = match self.streams.sockets[socket] {
            Socket::Free => (ANY, 0),
            Socket::New { port } | Socket::Listens { port, .. } => (ANY, port),
            Socket::Connected(it) | Socket::Broken(it) => (OWN, it.port),
        };
        self.tell_address(name, to, room).map(|()| 0)
    }

    fn peer_name(&mut self, file: u64, to: u64, room: u64) -> Answer {
        let socket = self.socket(file)?;
        let Socket::Connected(it) = self.streams.sockets[socket] else {
            return Err(Errno(ENOTCONN));
        };
        self.tell_address(it.peer, to, room).map(|()| 0)
    }

    fn shut_down(&mut self, file: u64, how: u32) -> Answer {
        let socket = self.socket(file)?;
        let Socket::Connected(mut it) = self.streams.sockets[socket] else {
            return Err(Errno(ENOTCONN));
        };
        if ![SHUT_RD, SHUT_WR, SHUT_RDWR].contains(&how) {
            return Err(Errno(EINVAL));
        }
        it.deaf |= how != SHUT_WR;
        if how != SHUT_RD && !it.mute {
            it.mute = true;
            self.ready = None;
            self.machine.shut_down(it.connection);
        }
        self.streams.sockets[socket] = Socket::Connected(it);
        Ok(0)
    }

    /// Takes what came; a call that has to wait is made again.
    pub(super) fn receive(&mut self, socket: usize, address: u64, bytes: u64) -> Answer {
        let it = match self.streams.sockets[socket] {
            Socket::Connected(it) if it.deaf => return Ok(0),
            Socket::Connected(it) => it,
            Socket::Broken(_) => return Ok(0),
            _ => return Err(Errno(ENOTCONN)),
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
            match self.machine.receive(it.connection, &mut portion[..most]) {
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
        let it = match self.streams.sockets[socket] {
            Socket::Connected(it) if it.mute => return Err(Errno(EPIPE)),
            Socket::Connected(it) => it,
            Socket::Broken(_) => return Err(Errno(EPIPE)),
            _ => return Err(Errno(ENOTCONN)),
        };
        self.ready = None;
        let (mut portion, mut done) = ([0; PORTION], 0);
        while done < bytes {
            let len = usize::try_from(bytes - done)
                .unwrap_or(PORTION)
                .min(PORTION);
            self.read(address.wrapping_add(done), &mut portion[..len])?;
            match self.machine.send(it.connection, &portion[..len]) {
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
    fn at_once(&mut self, file: u64, flags: u32, before: u32) -> Result<(), Errno> {
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
    fn check_flags(&mut self, flags: u32, known: u32) -> Result<(), Errno> {
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

    fn send_message(&mut self, file: u64, pieces: Pieces, flags: u32) -> Answer {
        self.socket(file)?;
        self.check_flags(flags, SENDING)?;
        let before = self.files.of(file)?.flags;
        self.at_once(file, flags, before)?;
        let sent = self.put_all(file, pieces, flags & MSG_NOSIGNAL != 0);
        self.at_once(file, 0, before)?;
        sent
    }

    fn receive_from(&mut self, words: [u64; 4], to: u64, room: u64) -> Answer {
        let [file, address, bytes, flags] = words;
        self.socket(file)?;
        self.check_flags(low(flags), RECEIVING)?;
        let before = self.files.of(file)?.flags;
        self.at_once(file, low(flags), before)?;
        let received = self.take(file, address, bytes);
        self.at_once(file, 0, before)?;
        if received.is_ok() && to != 0 {
            // Of a connection no address is told.
            self.write(room, &[0; 4])?;
        }
        received
    }

    /// The table of a message's pieces, and how many there are.
    fn message(&self, message: u64) -> Result<(u64, u64), Errno> {
        let table = self.word(message.wrapping_add(16))?;
        Ok((table, self.word(message.wrapping_add(24))?))
    }

    fn receive_message(&mut self, file: u64, message: u64, flags: u32) -> Answer {
        self.socket(file)?;
        self.check_flags(flags, RECEIVING)?;
        let (table, count) = self.message(message)?;
        let before = self.files.of(file)?.flags;
        self.at_once(file, flags, before)?;
        let received = self.parts([file, table, count], |process, file, address, bytes, _| {
            process.take(file, address, bytes)
        });
        self.at_once(file, 0, before)?;
        if received.is_ok() {
            // No address, nothing beside the bytes, no flags.
            self.write(message.wrapping_add(8), &[0; 4])?;
            self.write_words(message.wrapping_add(40), &[0, 0])?;
        }
        received
    }
}
