//! Datagrams in the machine: messages that stay whole, from whoever knows a name or is connected.
//!
//! A socket has one pipe for all that it receives. Before each message stand its length, the name
//! of whoever sent it, and who that is; so it is with those by UDP. One that is as long as there is
//! room waits, and one that is longer than a pipe is refused. Messages of a connection
//! (`SOCK_SEQPACKET`) are the same in its pipes.

use linux_raw_sys::errno::{
    ECONNREFUSED, EINVAL, EMSGSIZE, ENOBUFS, ENOENT, ENOTCONN, EPERM, EPIPE, EPROTOTYPE,
};
use linux_raw_sys::general::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};
use linux_raw_sys::net::{AF_UNIX, AF_UNSPEC, MSG_TRUNC, SHUT_RD, SHUT_WR};
use rcoe_abi::Rights;

use super::rights::Sending;
use super::streams::Pieces;
use crate::linux::arch::nr;
use crate::linux::senders::Who;
use crate::linux::sockets::{Connected, Datagrams, LABEL, Label, Link, Name, Socket, Sockets};
use crate::linux::streams::{PAGE_BYTES, PIPE_PAGES, Pipe, Side, Target};
use crate::linux::udp::Udp;
use crate::linux::{Answer, Errno, Machine, Process};

/// Bytes before a message, the longest message, and bytes that are moved at once.
pub(super) const HEADER: usize = 28 + LABEL;
/// Where in a header stands whether the name is one in the machine, where that begins, and where it
/// says who the sender is.
const FAMILY: usize = 9;
const NAME: usize = 16;
const WHO: usize = NAME + LABEL;
const PIPE: usize = PIPE_PAGES * PAGE_BYTES;
pub(super) const LONGEST: usize = PIPE - HEADER;
const PORTION: usize = 1024;

/// Is there room for a message of a page?
pub(super) const fn has_room_for_message(pipe: &Pipe) -> bool {
    has_room_for(pipe, PAGE_BYTES)
}

/// Is there room for a message of so many bytes?
pub(super) const fn has_room_for(pipe: &Pipe, bytes: usize) -> bool {
    pipe.len + HEADER + bytes <= PIPE
}

/// A message that came: how much of it the program has, how long it was, and from whom, if it has
/// a name.
pub(super) struct Came {
    pub(super) bytes: u64,
    pub(super) whole: u64,
    pub(super) sender: Option<Name>,
}

impl Came {
    /// Bytes of a connection.
    pub(super) const fn stream(bytes: u64) -> Self {
        Self {
            bytes,
            whole: bytes,
            sender: None,
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

/// Where a message goes: the name that its sender has; the socket at the other end, if there is
/// one; and the pipe, unless nobody will receive from there.
struct Outlet {
    from: Label,
    to: Option<usize>,
    inbox: Option<usize>,
}

fn header_of(sender: &Name, who: Who, bytes: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&(bytes as u64).to_le_bytes());
    match sender {
        Name::Unix(label) => {
            let name = label.bytes();
            header[8] = u8::try_from(name.len()).unwrap_or(0);
            header[12..NAME].copy_from_slice(&label.file.to_le_bytes());
            header[NAME..NAME + name.len()].copy_from_slice(name);
        }
        Name::Inet((address, port)) => {
            header[FAMILY] = 1;
            header[NAME..NAME + 4].copy_from_slice(address);
            header[NAME + 4..NAME + 6].copy_from_slice(&port.to_le_bytes());
        }
    }
    header[WHO..].copy_from_slice(who.map(u32::to_le_bytes).as_flattened());
    header
}

/// The name of the sender, if it has one.
fn sender_of(header: &[u8; HEADER]) -> Result<Option<Name>, Errno> {
    let name = &header[NAME..];
    if header[FAMILY] == 1 {
        let [a, b, c, d, low, high] = *name.first_chunk().ok_or(Errno(EINVAL))?;
        let port = u16::from_le_bytes([low, high]);
        return Ok(Some(Name::Inet(([a, b, c, d], port))));
    }
    let mut label = Label::new(&name[..usize::from(header[8])])?;
    let [.., a, b, c, d] = *header.first_chunk::<NAME>().ok_or(Errno(EINVAL))?;
    label.file = u32::from_le_bytes([a, b, c, d]);
    Ok((label != Label::NONE).then_some(Name::Unix(label)))
}

impl<M: Machine> Process<'_, M> {
    /// A socket for datagrams, by UDP or in the machine, which has no name yet.
    pub(super) fn new_datagrams(&mut self, udp: bool) -> Result<Target, Errno> {
        let inbox = self.streams.add_pipe()?;
        let socket = match udp {
            true => Socket::Udp(Udp::new(inbox)),
            false => Socket::Datagrams(Datagrams::new(inbox, self.streams.number())),
        };
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
            other => {
                let own = other.name();
                own.is_some_and(|own| own.hears(&wanted) || own.is_file_of(&wanted))
            }
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
        let bytes = self.readable(pieces)?;
        if let Socket::Udp(it) = self.streams.sockets[socket] {
            return self.send_udp(socket, it, (pieces, bytes), to);
        }
        self.rights.has_room(sending.places().len())?;
        let outlet = self.outlet(socket, to)?;
        if bytes > LONGEST {
            let text = format_args!(
                "the system sphere carries datagrams of up to {LONGEST} bytes: the program got \
                 EMSGSIZE"
            );
            self.tell_once(nr::__NR_sendto.into(), text);
            return Err(Errno(EMSGSIZE));
        }
        let inbox = outlet.inbox.ok_or(Errno(EPIPE))?;
        let start = self.streams.pipes[inbox].len;
        if !has_room_for(&self.streams.pipes[inbox], bytes) {
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLOUT);
            return Err(self.later(file, Side::Sends));
        }
        let who = self.sender(socket, outlet.to, sending.who);
        let from = Name::Unix(outlet.from);
        self.put_datagram(inbox, (&from, who), pieces, bytes)?;
        self.send_beside(sending, (inbox, start));
        Ok(bytes as u64)
    }

    /// Where a message goes that a socket sends, to an address or to its peer.
    fn outlet(&mut self, socket: usize, to: [u64; 2]) -> Result<Outlet, Errno> {
        match self.streams.sockets[socket] {
            Socket::Datagrams(own) if own.mute => Err(Errno(EPIPE)),
            Socket::Datagrams(own) => {
                let (to, other) = self.receiver(socket, to)?;
                Ok(Outlet {
                    from: own.label,
                    to: Some(to),
                    inbox: (!other.deaf).then_some(other.inbox),
                })
            }
            // An address does not matter to who is connected.
            Socket::Connected(Connected {
                name: Name::Unix(from),
                link: Link::Pipes { sends, .. },
                mute,
                ..
            }) => {
                let hears = !mute && self.streams.pipes[sends].readers;
                Ok(Outlet {
                    from,
                    to: self.streams.sockets.receiver_of(sends).filter(|_| hears),
                    inbox: hears.then_some(sends),
                })
            }
            _ => Err(Errno(ENOTCONN)),
        }
    }

    /// The pipe of the messages that a socket receives, and whether there will be no more; none
    /// if the socket receives nothing from now on.
    fn inlet(&mut self, socket: usize) -> Result<(Option<usize>, bool), Errno> {
        match self.streams.sockets[socket] {
            Socket::Udp(it) => {
                self.hear_udp(socket)?;
                Ok((Some(it.inbox), it.deaf))
            }
            Socket::Datagrams(own) => Ok((Some(own.inbox), own.deaf)),
            Socket::Connected(Connected { deaf: true, .. }) => Ok((None, true)),
            Socket::Connected(Connected {
                link: Link::Pipes { receives, .. },
                ..
            }) => Ok((Some(receives), !self.streams.pipes[receives].writers)),
            _ => Err(Errno(ENOTCONN)),
        }
    }

    /// Does a descriptor lead to a socket whose messages stay whole?
    pub(super) fn has_messages(&mut self, file: u64) -> bool {
        let socket = self.socket(file).map(|it| self.streams.sockets[it]);
        socket.is_ok_and(|it| it.is_for_datagrams() || it.has_packets())
    }

    /// How many bytes these pieces have, all of which can be read.
    pub(super) fn readable(&mut self, pieces: Pieces) -> Result<usize, Errno> {
        let mut all = 0_u64;
        for index in 0..self.count_of(pieces)? {
            let (address, bytes) = self.piece(pieces, index)?;
            if bytes > 0 && self.carried.is_none() {
                self.check(address, bytes.min(PIPE as u64), Rights::READ)?;
            }
            all = all.saturating_add(bytes);
        }
        usize::try_from(all).map_err(|_| Errno(EMSGSIZE))
    }

    pub(super) fn count_of(&self, pieces: Pieces) -> Result<u64, Errno> {
        match pieces {
            Pieces::One(..) => Ok(1),
            Pieces::Table(table, count) => self.check_parts(table, count).map(|()| count),
        }
    }

    /// Puts a message into a pipe that has room for it.
    pub(super) fn put_datagram(
        &mut self,
        inbox: usize,
        sender: (&Name, Who),
        pieces: Pieces,
        bytes: usize,
    ) -> Result<(), Errno> {
        self.put_whole(inbox, sender, bytes, |it| {
            let mut portion = [0; PORTION];
            for index in 0..it.count_of(pieces)? {
                let (address, bytes) = it.piece(pieces, index)?;
                let mut done = 0;
                while done < bytes {
                    let len = super::portion_of(bytes - done);
                    it.outgoing(address.wrapping_add(done), &mut portion[..len])?;
                    it.append(inbox, &portion[..len])?;
                    done += len as u64;
                }
            }
            Ok(())
        })
    }

    /// Puts the header of a message of so many bytes into a pipe, and those: all or nothing.
    pub(super) fn put_whole(
        &mut self,
        inbox: usize,
        (sender, who): (&Name, Who),
        bytes: usize,
        put: impl FnOnce(&mut Self) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let start = self.streams.pipes[inbox].len;
        let header = header_of(sender, who, bytes);
        let done = self.append(inbox, &header).and_then(|()| put(self));
        done.inspect_err(|_| {
            // There was no memory for all of it.
            self.streams.pipes[inbox].len = start;
            if start == 0 {
                self.empty_pipe(inbox);
            }
        })
    }

    /// The next message of a socket, as far as there is room for it: the rest is lost, unless it is
    /// only looked at.
    pub(super) fn receive_datagram(&mut self, file: u64, pieces: Pieces) -> Result<Came, Errno> {
        let socket = self.socket(file)?;
        let (inbox, ended) = self.inlet(socket)?;
        let filled = inbox.filter(|&inbox| self.streams.pipes[inbox].len > 0);
        let Some(inbox) = filled else {
            if ended {
                return Ok(Came::stream(0));
            }
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLIN);
            return Err(self.later(file, Side::Receives));
        };
        let mut header = [0; HEADER];
        self.fetch(inbox, 0, &mut header);
        let whole = usize::try_from(self.next_length(inbox)).unwrap_or(0);
        let sender = sender_of(&header)?;
        let bytes = self.fetch_pieces(inbox, pieces, whole)?;
        let (words, _) = header[WHO..].as_chunks::<4>();
        self.senders
            .found([0, 1, 2].map(|at| u32::from_le_bytes(words[at])));
        let all = HEADER + whole;
        match self.rights.peeked() {
            Some(_) => self.peek(inbox, all)?,
            None => self.take_from_pipe(inbox, all),
        }
        if self.streams.pipes[inbox].len == 0 {
            // What comes next is new to who is told of each once.
            let place = self.files.place(file)?;
            self.streams.drained(place, POLLIN);
        }
        self.rights.end_message();
        Ok(Came {
            bytes,
            whole: whole as u64,
            sender,
        })
    }

    /// How many bytes the next message in a pipe has; 0 if there is none.
    pub(super) fn next_length(&self, inbox: usize) -> u64 {
        let mut length = [0; 8];
        if self.streams.pipes[inbox].len > 0 {
            self.fetch(inbox, 0, &mut length);
        }
        u64::from_le_bytes(length)
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
        let (is_connected, deaf, mute) = match &mut self.streams.sockets[socket] {
            Socket::Datagrams(it) => (it.peer.is_some(), &mut it.deaf, &mut it.mute),
            Socket::Udp(it) => (it.peer.is_some(), &mut it.deaf, &mut it.mute),
            _ => return Err(Errno(ENOTCONN)),
        };
        if !is_connected {
            return Err(Errno(ENOTCONN));
        }
        *deaf |= how != SHUT_WR;
        *mute |= how != SHUT_RD;
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
        if peer.is_none_or(|inbox| has_room_for_message(&pipes[inbox])) {
            events |= POLLOUT | POLLWRNORM;
        }
        events
    }

    /// Two sockets for datagrams that are connected to each other.
    pub(super) fn pair_datagrams(&mut self, flags: u32, to: u64) -> Answer {
        let near = self.new_datagrams(false)?;
        let far = self
            .new_datagrams(false)
            .inspect_err(|_| self.release(near))?;
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
