//! Connections between sockets of the machine: of one program, or of several. Those to others begin
//! here, too, and go on in `outgoing`.

use linux_raw_sys::errno::{
    EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, EINVAL, EISCONN, ENOENT, EPROTOTYPE,
};
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, POLLIN, POLLOUT, POLLRDHUP};
use linux_raw_sys::general::{POLLHUP, POLLRDNORM, POLLWRNORM};
use linux_raw_sys::net::{AF_UNIX, SOCK_DGRAM};
use rcoe_abi::Rights;

use super::datagrams::has_room_for_message;
use super::outgoing::leads_out;
use crate::linux::files::Kind;
use crate::linux::sockets::{
    ANY, Connected, Datagrams, HOME, LOOPBACK, Label, Link, Listens, Name, OWN, Socket, Sockets,
};
use crate::linux::streams::{Side, Target};
use crate::linux::{Answer, Errno, Machine, Process};
use crate::network::Peer;

impl<M: Machine> Process<'_, M> {
    /// `bind`: gives a socket a name.
    pub(super) fn bind(&mut self, file: u64, place: u64, bytes: u64) -> Answer {
        let socket = self.socket(file)?;
        if let Socket::Udp(it) = self.streams.sockets[socket] {
            return self.bind_udp(socket, it, [place, bytes]);
        }
        let datagrams = self.datagrams(socket);
        let had = match (self.streams.sockets[socket], datagrams) {
            (Socket::New(had), _) => had,
            (_, Some(it)) => Name::Unix(it.label),
            _ => return Err(Errno(EINVAL)),
        };
        let wanted = self.address(had.family(), place, bytes)?.like(&had);
        if !had.is_none() {
            return Err(Errno(EINVAL));
        }
        let name = match wanted {
            Name::Inet(wanted) => self.free_name(wanted)?,
            Name::Unix(label) => self.make_label(label, datagrams.is_some())?,
        };
        self.streams.sockets[socket] = match (datagrams, name) {
            (Some(it), Name::Unix(label)) => Socket::Datagrams(Datagrams { label, ..it }),
            _ => Socket::New(name),
        };
        Ok(0)
    }

    /// A name of the machine, with a port if it says none.
    pub(super) fn own_place(&mut self, (address, port): Peer) -> Result<Peer, Errno> {
        if ![OWN, ANY].contains(&address) && address[0] != LOOPBACK {
            return Err(Errno(EADDRNOTAVAIL));
        }
        let port = match port {
            0 => self.streams.free_port(),
            port => port,
        };
        Ok((address, port))
    }

    fn free_name(&mut self, wanted: Peer) -> Result<Name, Errno> {
        let name = Name::Inet(self.own_place(wanted)?);
        if self.streams.sockets.has_name(&name) {
            return Err(Errno(EADDRINUSE));
        }
        Ok(name)
    }

    /// A name in the machine: that of a new file, or one that nobody has. Names that are no file's
    /// are others for datagrams than for streams.
    fn make_label(&mut self, mut label: Label, datagrams: bool) -> Result<Name, Errno> {
        if label.is_abstract() {
            let name = Name::Unix(label);
            let has = |it: &Socket| matches!(it, Socket::Datagrams(it) if it.label == label);
            let taken = match datagrams {
                true => self.streams.sockets.iter().any(has),
                false => self.streams.sockets.has_name(&name),
            };
            return if taken {
                Err(Errno(EADDRINUSE))
            } else {
                Ok(name)
            };
        }
        let path = self.meant(self.files.folder(), label.bytes(), false)?;
        if self.files.find(path).is_some() {
            return Err(Errno(EADDRINUSE));
        }
        label.file = self.streams.number();
        let mode = self.files.masked(0o777);
        self.files.make(path, Kind::Socket(label.file), mode)?;
        Ok(Name::Unix(label))
    }

    /// `connect`: to who listens in the machine, or to others.
    pub(super) fn connect(&mut self, file: u64, place: u64, bytes: u64) -> Answer {
        let socket = self.socket(file)?;
        let own = match self.streams.sockets[socket] {
            Socket::Udp(it) => return self.connect_udp(socket, it, [place, bytes]),
            Socket::Datagrams(_) => return self.connect_datagrams(socket, place, bytes),
            Socket::New(own) => own,
            Socket::Asks { .. } | Socket::Refused { .. } => return self.ask_again(file, socket),
            _ => return Err(Errno(EISCONN)),
        };
        let wanted = self.address(own.family(), place, bytes)?.like(&own);
        if let Some(peer) = leads_out(&wanted) {
            return self.ask_outside(file, own, peer);
        }
        let wanted = self.within_machine(wanted)?;
        let listener = self.streams.sockets.listener(&wanted);
        let listener = listener.ok_or_else(|| self.refused(&wanted))?;
        let Socket::Listens(heard) = self.streams.sockets[listener] else {
            return Err(Errno(ECONNREFUSED));
        };
        if self.streams.sockets.count_at(listener) >= heard.most {
            return Err(self.later(file, Side::Sends));
        }
        let (name, peer) = match (own, wanted) {
            (Name::Inet((_, port)), Name::Inet((address, _))) => {
                let port = match port {
                    0 => self.streams.free_port(),
                    port => port,
                };
                (Name::Inet((address, port)), wanted)
            }
            _ => (own, heard.name),
        };
        let [near, far] = self.link([name, peer], heard.by)?;
        let order = self.streams.number().into();
        let waits = Socket::Waits {
            it: far,
            listener,
            order,
        };
        let waiting = match self.streams.add_socket(waits) {
            Ok(target) => target,
            Err(error) => {
                self.release_link(&near);
                self.release_link(&far);
                return Err(error);
            }
        };
        if let Target::Socket(waiting) = waiting {
            self.streams.telling[waiting] = self.streams.telling[listener];
        }
        self.streams.sockets[socket] = Socket::Connected(near);
        Ok(0)
    }

    /// Why a connection cannot lead to a name.
    fn refused(&self, wanted: &Name) -> Errno {
        let mut all = self.streams.sockets.iter();
        let other = all.any(|it| match it {
            Socket::Datagrams(it) => Name::Unix(it.label).is_file_of(wanted),
            Socket::New(name) | Socket::Listens(Listens { name, .. }) => {
                name.is_file_of(wanted) && !name.hears(wanted)
            }
            _ => false,
        });
        Errno(if other { EPROTOTYPE } else { ECONNREFUSED })
    }

    /// What a name means to who connects to it, if that can be in the machine.
    fn within_machine(&self, wanted: Name) -> Result<Name, Errno> {
        match wanted {
            Name::Inet((ANY, port)) => return Ok(Name::Inet((HOME, port))),
            Name::Inet(_) => {}
            Name::Unix(label) if label.is_abstract() => {}
            Name::Unix(label) => {
                let path = self.meant(self.files.folder(), label.bytes(), true)?;
                self.files.find(path).ok_or(Errno(ENOENT))?;
            }
        }
        Ok(wanted)
    }

    /// Both ends of a new connection, of one who is called so and its peer, to this process.
    fn link(&mut self, names: [Name; 2], to: u64) -> Result<[Connected; 2], Errno> {
        let there = self.streams.add_pipe()?;
        let back = self.streams.add_pipe().inspect_err(|_| {
            let pipe = &mut self.streams.pipes[there];
            (pipe.readers, pipe.writers) = (false, false);
        })?;
        let end = |[name, peer]: [Name; 2], with, [receives, sends]: [usize; 2]| Connected {
            name,
            peer,
            with,
            link: Link::Pipes { receives, sends },
            deaf: false,
            mute: false,
        };
        let [name, peer] = names;
        let near = end(names, to, [back, there]);
        Ok([near, end([peer, name], self.task.number, [there, back])])
    }

    /// An end of a connection is no more.
    pub(in crate::linux) fn release_link(&mut self, it: &Connected) {
        match it.link {
            Link::Card(connection) => self.machine.hang_up(connection),
            Link::Pipes { receives, sends } => {
                if !it.deaf {
                    self.release(Target::Reader(receives));
                }
                if !it.mute {
                    self.release(Target::Writer(sends));
                }
            }
        }
    }

    /// `socketpair`.
    pub(super) fn make_pair(&mut self, family: u32, kind: u32, protocol: u64, to: u64) -> Answer {
        let none = self.socket_name(family, kind, protocol)?;
        if family != AF_UNIX {
            return Err(Errno(linux_raw_sys::errno::EOPNOTSUPP));
        }
        self.check(to, 8, Rights::WRITE)?;
        let flags = kind & (O_CLOEXEC | O_NONBLOCK);
        if kind & 0xf == SOCK_DGRAM {
            return self.pair_datagrams(flags, to);
        }
        let [near, far] = self.link([none; 2], self.task.number)?;
        let near = self
            .open_link(near, flags)
            .inspect_err(|_| self.release_link(&far))?;
        let far = self.open_link(far, flags).inspect_err(|_| {
            // It is open.
            let _ = self.close(near);
        })?;
        self.write_words(to, &[near | far << 32]).map(|()| 0)
    }

    /// A descriptor for an end of a connection, which is no more if there is none.
    fn open_link(&mut self, it: Connected, flags: u32) -> Answer {
        match self.streams.add_socket(Socket::Connected(it)) {
            Ok(target) => self.open_stream(target, flags),
            Err(error) => {
                self.release_link(&it);
                Err(error)
            }
        }
    }

    /// Events of a connection in the machine.
    pub(super) fn link_events(&self, it: &Connected, receives: usize, sends: usize) -> u32 {
        let pipes = &self.streams.pipes;
        // An end that was given up may be another one's by now.
        let ended = it.deaf || !pipes[receives].writers;
        let reads = ended || pipes[receives].len > 0;
        let lost = !it.mute && !pipes[sends].readers;
        let has_room = match it.name {
            Name::Unix(label) if label.packets => has_room_for_message(&pipes[sends]),
            _ => pipes[sends].has_room(),
        };
        let writes = it.mute || lost || has_room;
        let mut events = 0;
        if reads {
            events |= POLLIN | POLLRDNORM;
        }
        if writes {
            events |= POLLOUT | POLLWRNORM;
        }
        if ended {
            events |= POLLRDHUP;
        }
        if ended && (it.mute || lost) {
            events |= POLLHUP;
        }
        events
    }
}
