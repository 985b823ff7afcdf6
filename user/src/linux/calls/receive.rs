//! Receiving messages: all that was asked for, or what is there; and looking at them.

use linux_raw_sys::errno::{EAGAIN, EINVAL, EOPNOTSUPP};
use linux_raw_sys::net::{
    MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC,
    MSG_WAITALL,
};

use super::datagrams::Came;
use super::sockets::low;
use super::streams::Pieces;
use crate::linux::arch::nr;
use crate::linux::errno::LATER;
use crate::linux::sockets::{Connected, Link, Name, Socket};
use crate::linux::{Answer, Errno, Machine, Process};

/// What may be asked for of a message.
const RECEIVING: u32 = MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL | MSG_PEEK | MSG_WAITALL;

impl<M: Machine> Process<'_, M> {
    pub(super) fn receive_from(&mut self, words: [u64; 4], to: u64, room: u64) -> Answer {
        let [file, address, bytes, flags] = words;
        let came = self.receive_pieces(file, Pieces::One(address, bytes), low(flags))?;
        if to != 0 {
            self.tell_sender(&came, to, room)?;
        }
        Ok(came.told(low(flags)))
    }

    pub(super) fn receive_message(&mut self, file: u64, message: u64, flags: u32) -> Answer {
        self.socket(file)?;
        if self.word(message)? != 0 {
            self.name_in(message)?;
        }
        let (table, count) = self.message(message)?;
        let came = self.receive_pieces(file, Pieces::Table(table, count), flags)?;
        let to = self.word(message)?;
        if to != 0 {
            self.tell_sender(&came, to, message.wrapping_add(8))?;
        } else {
            self.write(message.wrapping_add(8), &[0; 4])?;
        }
        let lost = if came.whole > came.bytes {
            MSG_TRUNC
        } else {
            0
        };
        self.received_beside(message, flags, lost)?;
        Ok(came.told(flags))
    }

    /// Tells the address of whoever sent a datagram; of a connection none is told.
    fn tell_sender(&mut self, came: &Came, to: u64, room: u64) -> Result<(), Errno> {
        match &came.sender {
            None => {
                let mut had = [0; 4];
                self.read(room, &mut had)?;
                if i32::from_le_bytes(had) < 0 {
                    return Err(Errno(EINVAL));
                }
                self.write(room, &[0; 4])
            }
            Some(sender) => self.tell_address(sender, to, room),
        }
    }

    fn receive_pieces(&mut self, file: u64, pieces: Pieces, flags: u32) -> Result<Came, Errno> {
        let socket = self.socket(file)?;
        self.check_errors(socket, flags)?;
        let is_datagram = self.has_messages(file);
        let known = RECEIVING | if is_datagram { MSG_TRUNC } else { 0 };
        self.check_flags(flags, known)?;
        if flags & MSG_PEEK != 0 {
            self.check_peek(file)?;
            self.rights.begin_peek();
        }
        if self.streams.telling[socket] {
            self.senders.ask();
        }
        let before = self.files.of(file)?.flags;
        self.at_once(file, flags, before)?;
        let received = if is_datagram {
            self.receive_datagram(file, pieces)
        } else {
            let taken = self.take_pieces(file, pieces, flags & MSG_WAITALL != 0);
            if flags & MSG_PEEK == 0 && taken == Ok(0) {
                self.take_beside_alone(socket);
            }
            taken.map(Came::stream)
        };
        self.at_once(file, 0, before)?;
        received
    }

    /// What a socket of IPv4 says who asks for what never comes: what has gone wrong with messages,
    /// and by TCP what is more urgent than the rest.
    fn check_errors(&self, socket: usize, flags: u32) -> Result<(), Errno> {
        let it = self.streams.sockets[socket];
        if !matches!(it.name(), Some(Name::Inet(_))) {
            return Ok(());
        }
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno(EAGAIN));
        }
        match it {
            Socket::Connected(_) if flags & MSG_OOB != 0 => Err(Errno(EINVAL)),
            _ => Ok(()),
        }
    }

    /// Nothing was read of a stream, so what comes with its next message comes by itself.
    fn take_beside_alone(&mut self, socket: usize) {
        if let Socket::Connected(Connected {
            link: Link::Pipes { receives, .. },
            deaf: false,
            ..
        }) = self.streams.sockets[socket]
        {
            self.rights.arrive(receives);
        }
    }

    /// What the network has can only be taken.
    fn check_peek(&mut self, file: u64) -> Result<(), Errno> {
        let socket = self.socket(file)?;
        let (Socket::Connected(Connected {
            link: Link::Card(_),
            ..
        })
        | Socket::Asks { .. }) = self.streams.sockets[socket]
        else {
            return Ok(());
        };
        let text = format_args!(
            "the system sphere does not look at what came from beyond the machine without taking \
             it (MSG_PEEK): the program got EOPNOTSUPP"
        );
        self.tell_once(nr::__NR_recvmsg.into(), text);
        Err(Errno(EOPNOTSUPP))
    }

    /// Receives what is there, or the whole of what was asked for, waiting if need be.
    fn take_pieces(&mut self, file: u64, pieces: Pieces, whole: bool) -> Answer {
        let (mut skip, mut all) = (self.threads.now().wait.done, 0);
        let count = self.count_of(pieces)?;
        for index in 0..count {
            let (address, bytes) = self.piece(pieces, index)?;
            let mut at = skip.min(bytes);
            (skip, all) = (skip - at, all + at);
            while at < bytes {
                match self.take(file, address.wrapping_add(at), bytes - at) {
                    // At the end of all, or of a message.
                    Ok(0) => return Ok(all),
                    Ok(done) => (at, all) = (at + done, all + done),
                    Err(LATER) if whole || all == 0 => return Err(self.whole_later(all)),
                    Err(error) if all == 0 => return Err(error),
                    Err(_) => return Ok(all),
                }
                if at < bytes && !whole {
                    return Ok(all);
                }
            }
        }
        Ok(all)
    }

    /// A call goes on when more has come; what it only looked at it looks at again.
    fn whole_later(&mut self, all: u64) -> Errno {
        if self.rights.peeked().is_none() {
            self.threads.current().wait.done = all;
        }
        LATER
    }
}
