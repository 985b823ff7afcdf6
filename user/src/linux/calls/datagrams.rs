//! Datagrams in the machine: messages that stay whole, from whoever knows a name or is connected.
//!
//! A socket has one pipe for all that it receives. Before each message stand its length and the
//! name of whoever sent it. One that is as long as there is room waits, and one that is longer
//! than a pipe is refused.

use linux_raw_sys::errno::{
    ECONNREFUSED, EINVAL, EMSGSIZE, ENOBUFS, ENOENT, ENOTCONN, EPERM, EPIPE, EPROTOTYPE,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};
use linux_raw_sys::net::{AF_UNIX, AF_UNSPEC, MSG_TRUNC, SHUT_RD, SHUT_WR};
use rcoe_abi::Rights;

use super::PARTS;
use super::rights::Sending;
use super::streams::Pieces;
use crate::linux::sockets::{Datagrams, LABEL, Label, Name, Socket};
use crate::linux::streams::{PAGE_BYTES, PIPE_PAGES, Side, Target};
use crate::linux::{Answer, Errno, Machine, Process};

/// Bytes before a message, the longest message, and bytes that are moved at once.
const HEADER: usize = 16 + LABEL;
const PIPE: usize = PIPE_PAGES * PAGE_BYTES;
const LONGEST: usize = PIPE - HEADER;
const PORTION: usize = 1024;

/// A message that came: how much of it the program has, how long it was, and from whom.
pub(super) struct Came {
    pub(super) bytes: u64,
    pub(super) whole: u64,
    pub(super) sender: Label,
}

impl Came {
    /// Bytes of a connection.
    pub(super) const fn stream(bytes: u64) -> Self {
        Self {
            bytes,
            whole: bytes,
            sender: Label::NONE,
        }
    }

    /// What the call comes to that received it.
    pub(super) const fn told(&self, flags: u32) -> u64 {
        match flags & MSG_TRUNC {
            0 => self.bytes,
            _ => self.whole,
        }
    }
}

impl<M: Machine> Process<'_, M> {
    /// A socket for datagrams, which has no name yet.
    pub(super) fn new_datagrams(&mut self) -> Result<Target, Errno> {
        let inbox = self.streams.add_pipe()?;
        let number = self.streams.number();
        let socket = Socket::Datagrams(Datagrams::new(inbox, number));
        self.streams.add_socket(socket).inspect_err(|_| {
            let pipe = &mut self.streams.pipes[inbox];
            (pipe.readers, pipe.writers) = (false, false);
        })
    }

    /// The datagrams of a socket, if those are what it is for.
    pub(super) fn datagrams(&self, socket: usize) -> Option<Datagrams> {
        match self.streams.sockets[socket] {
            Socket::Datagrams(it) => Some(it),
            _ => None,
        }
    }

    /// The same, by what a descriptor leads to.
    pub(super) fn datagrams_of(&mut self, file: u64) -> Option<(usize, Datagrams)> {
        let socket = self.socket(file).ok()?;
        Some((socket, self.datagrams(socket)?))
    }

    /// Connects a socket for datagrams, or has it be connected no more.
    pub(super) fn connect_datagrams(&mut self, socket: usize, place: u64, bytes: u64) -> Answer {
        let Socket::Datagrams(own) = self.streams.sockets[socket] else {
            return Err(Errno(EINVAL));
        };
        let mut family = [0; 2];
        self.read(place, &mut family)?;
        let peer = if u32::from(u16::from_le_bytes(family)) == AF_UNSPEC {
            None
        } else {
            let to = self.receiver_called(place, bytes)?;
            let other = self.datagrams(to).ok_or(Errno(EPROTOTYPE))?;
            if !other.hears(own.number) {
                return Err(Errno(EPERM));
            }
            Some((to, other.number))
        };
        self.streams.sockets[socket] = Socket::Datagrams(Datagrams { peer, ..own });
        Ok(0)
    }

    /// The socket that is called so, which is for datagrams.
    fn receiver_called(&mut self, place: u64, bytes: u64) -> Result<usize, Errno> {
        let wanted = self.address(AF_UNIX, place, bytes)?;
        let Name::Unix(label) = wanted else {
            return Err(Errno(EINVAL));
        };
        if !label.is_abstract() {
            let path = self.meant(self.files.folder(), label.bytes(), true)?;
            self.files.find(path).ok_or(Errno(ENOENT))?;
        }
        let bound = |it: &Socket| match it {
            Socket::Waits { .. } | Socket::Connected(_) => false,
            // Names that are no file's are others for streams.
            Socket::New(_) | Socket::Listens(_) if label.is_abstract() => false,
            other => other.name().is_some_and(|own| own.hears(&wanted)),
        };
        let all = self.streams.sockets.iter().enumerate();
        let mut found = all.filter(|(_, it)| bound(it));
        let (place, socket) = found.next().ok_or(Errno(ECONNREFUSED))?;
        match socket {
            Socket::Datagrams(_) => Ok(place),
            _ => Err(Errno(EPROTOTYPE)),
        }
    }

    /// Whoever gets what a socket sends, to an address or to its peer.
    pub(super) fn receiver(
        &mut self,
        socket: usize,
        to: [u64; 2],
    ) -> Result<(usize, Datagrams), Errno> {
        let own = self.datagrams(socket).ok_or(Errno(ENOTCONN))?;
        if to[0] != 0 && to[1] != 0 {
            let place = self.receiver_called(to[0], to[1])?;
            let other = self.datagrams(place).ok_or(Errno(EPROTOTYPE))?;
            return if other.hears(own.number) {
                Ok((place, other))
            } else {
                Err(Errno(EPERM))
            };
        }
        let (place, number) = own.peer.ok_or(Errno(ENOTCONN))?;
        match self.datagrams(place).filter(|it| it.number == number) {
            Some(other) if !other.hears(own.number) => Err(Errno(EPERM)),
            Some(other) => Ok((place, other)),
            None => {
                let peer = None;
                self.streams.sockets[socket] = Socket::Datagrams(Datagrams { peer, ..own });
                Err(Errno(ECONNREFUSED))
            }
        }
    }

    /// Sends a message as a whole.
    pub(super) fn send_datagram(
        &mut self,
        file: u64,
        pieces: Pieces,
        to: [u64; 2],
        sending: &Sending,
    ) -> Answer {
        let socket = self.socket(file)?;
        let own = self.datagrams(socket).ok_or(Errno(ENOTCONN))?;
        let bytes = self.readable(pieces)?;
        self.rights.has_room(sending.places().len())?;
        if own.mute {
            return Err(Errno(EPIPE));
        }
        let (_, other) = self.receiver(socket, to)?;
        if bytes > LONGEST {
            let text = format_args!(
                "the system sphere carries datagrams of up to {LONGEST} bytes: the program got \
                 EMSGSIZE"
            );
            self.tell_once(nr::__NR_sendto.into(), text);
            return Err(Errno(EMSGSIZE));
        }
        if other.deaf {
            return Err(Errno(EPIPE));
        }
        let start = self.streams.pipes[other.inbox].len;
        if PIPE - start < HEADER + bytes {
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLOUT);
            return Err(self.later(file, Side::Sends));
        }
        let put = self.put_datagram(other.inbox, &own.label, pieces, bytes);
        put.inspect_err(|_| {
            // There was no memory for all of it.
            self.streams.pipes[other.inbox].len = start;
            if start == 0 {
                self.empty_pipe(other.inbox);
            }
        })?;
        self.send_beside(sending, (other.inbox, start));
        Ok(bytes as u64)
    }

    /// How many bytes these pieces have, all of which can be read.
    fn readable(&mut self, pieces: Pieces) -> Result<usize, Errno> {
        let mut all = 0_u64;
        for index in 0..self.count_of(pieces)? {
            let (address, bytes) = self.piece(pieces, index)?;
            if bytes > 0 {
                self.check(address, bytes.min(PIPE as u64), Rights::READ)?;
            }
            all = all.saturating_add(bytes);
        }
        usize::try_from(all).map_err(|_| Errno(EMSGSIZE))
    }

    pub(super) fn count_of(&self, pieces: Pieces) -> Result<u64, Errno> {
        match pieces {
            Pieces::One(..) => Ok(1),
            Pieces::Table(_, count) if count > PARTS => Err(Errno(EINVAL)),
            Pieces::Table(_, count) => Ok(count),
        }
    }

    fn put_datagram(
        &mut self,
        inbox: usize,
        sender: &Label,
        pieces: Pieces,
        bytes: usize,
    ) -> Result<(), Errno> {
        let mut header = [0; HEADER];
        let name = sender.bytes();
        header[..8].copy_from_slice(&(bytes as u64).to_le_bytes());
        header[8] = u8::try_from(name.len()).unwrap_or(0);
        header[12..16].copy_from_slice(&sender.file.to_le_bytes());
        header[16..16 + name.len()].copy_from_slice(name);
        self.append(inbox, &header)?;
        let mut portion = [0; PORTION];
        for index in 0..self.count_of(pieces)? {
            let (address, bytes) = self.piece(pieces, index)?;
            let mut done = 0;
            while done < bytes {
                let len = super::portion_of(bytes - done);
                self.read(address.wrapping_add(done), &mut portion[..len])?;
                self.append(inbox, &portion[..len])?;
                done += len as u64;
            }
        }
        Ok(())
    }

    /// The next message of a socket, as far as there is room for it: the rest is lost, unless it is
    /// only looked at.
    pub(super) fn receive_datagram(&mut self, file: u64, pieces: Pieces) -> Result<Came, Errno> {
        let (_, own) = self.datagrams_of(file).ok_or(Errno(ENOTCONN))?;
        if self.streams.pipes[own.inbox].len == 0 {
            if own.deaf {
                return Ok(Came::stream(0));
            }
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLIN);
            return Err(self.later(file, Side::Receives));
        }
        let mut header = [0; HEADER];
        self.fetch(own.inbox, 0, &mut header);
        let [a, b, c, d, ..] = header;
        let whole = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(0);
        let mut sender = Label::new(&header[16..16 + usize::from(header[8])])?;
        let [.., a, b, c, d] = *header.first_chunk::<16>().ok_or(Errno(EINVAL))?;
        sender.file = u32::from_le_bytes([a, b, c, d]);
        let bytes = self.fetch_pieces(own.inbox, pieces, whole)?;
        let all = HEADER + whole;
        match self.rights.peeked() {
            Some(_) => self.peek(own.inbox, all)?,
            None => self.take_from_pipe(own.inbox, all),
        }
        self.rights.end_message();
        Ok(Came {
            bytes,
            whole: whole as u64,
            sender,
        })
    }

    /// The same for who wants its bytes alone.
    pub(super) fn read_datagram(&mut self, file: u64, pieces: Pieces) -> Answer {
        let came = self.receive_datagram(file, pieces)?;
        Ok(came.bytes)
    }

    fn fetch_pieces(&mut self, inbox: usize, pieces: Pieces, whole: usize) -> Answer {
        let (mut done, mut portion) = (0, [0; PORTION]);
        for index in 0..self.count_of(pieces)? {
            let (address, bytes) = self.piece(pieces, index)?;
            let mut at = 0;
            while at < bytes && done < whole {
                let len = super::portion_of(bytes - at).min(whole - done);
                self.fetch(inbox, HEADER + done, &mut portion[..len]);
                self.check(address.wrapping_add(at), len as u64, Rights::WRITE)?;
                self.write(address.wrapping_add(at), &portion[..len])?;
                (at, done) = (at + len as u64, done + len);
            }
        }
        Ok(done as u64)
    }

    /// Closes a side of a socket for datagrams.
    pub(super) fn shut_datagrams(&mut self, socket: usize, how: u32) -> Answer {
        let Socket::Datagrams(mut it) = self.streams.sockets[socket] else {
            return Err(Errno(ENOTCONN));
        };
        it.peer.ok_or(Errno(ENOTCONN))?;
        it.deaf |= how != SHUT_WR;
        it.mute |= how != SHUT_RD;
        self.streams.sockets[socket] = Socket::Datagrams(it);
        Ok(0)
    }

    /// Events of a socket for datagrams. Whoever is connected to one that is full cannot send.
    pub(super) fn datagram_events(&self, own: &Datagrams) -> u32 {
        let pipes = &self.streams.pipes;
        let mut events = 0;
        if pipes[own.inbox].len > 0 || own.deaf {
            events |= POLLIN | POLLRDNORM;
        }
        let peer = own.peer.and_then(|(place, number)| {
            let other = self.datagrams(place)?;
            (other.number == number).then_some(other.inbox)
        });
        if peer.is_none_or(|inbox| pipes[inbox].len + HEADER + PAGE_BYTES <= PIPE) {
            events |= POLLOUT | POLLWRNORM;
        }
        events
    }

    /// Two sockets for datagrams that are connected to each other.
    pub(super) fn pair_datagrams(&mut self, flags: u32, to: u64) -> Answer {
        let near = self.new_datagrams()?;
        let far = self.new_datagrams().inspect_err(|_| self.release(near))?;
        let (Target::Socket(first), Target::Socket(second)) = (near, far) else {
            return Err(Errno(ENOBUFS));
        };
        for (own, other) in [(first, second), (second, first)] {
            let number = self.datagrams(other).map(|it| it.number);
            if let Socket::Datagrams(it) = &mut self.streams.sockets[own] {
                it.peer = number.map(|number| (other, number));
                it.with = self.task.number;
            }
        }
        let near = self
            .open_stream(near, flags)
            .inspect_err(|_| self.release(far))?;
        let far = self.open_stream(far, flags).inspect_err(|_| {
            // It is open.
            let _ = self.close(near);
        })?;
        self.write_words(to, &[near | far << 32]).map(|()| 0)
    }
}
