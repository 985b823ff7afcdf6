//! Calls about what goes beside the bytes of a message: descriptors (`SCM_RIGHTS`), and who sends
//! it (`SCM_CREDENTIALS`).

use linux_raw_sys::errno::{EBADF, EINVAL, ENOBUFS};
use linux_raw_sys::net::{MSG_CMSG_CLOEXEC, MSG_CTRUNC, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};
use rcoe_abi::Rights;

use crate::linux::rights::OF_ONE;
use crate::linux::senders::Who;
use crate::linux::sockets::{Link, Name, Socket};
use crate::linux::{Errno, Machine, Process};

/// Where a message says what goes beside it, and what came of it.
const CONTROL: u64 = 32;
const FLAGS: u64 = 48;
/// Bytes before what is said of one kind; and most that may be said.
const HEADER: u64 = 16;
const LONGEST: u64 = 20_480;
/// Bytes of who sends a message.
const WHO: u64 = 12;

/// Descriptors of a message that is to be sent, and who says to send it.
pub(super) struct Sending {
    pub(super) who: Option<Who>,
    places: [usize; OF_ONE],
    count: usize,
}

impl Sending {
    pub(super) const NONE: Self = Self {
        who: None,
        places: [0; OF_ONE],
        count: 0,
    };

    fn add(&mut self, place: usize) -> Result<(), Errno> {
        *self.places.get_mut(self.count).ok_or(Errno(EINVAL))? = place;
        self.count += 1;
        Ok(())
    }

    pub(super) fn places(&self) -> &[usize] {
        &self.places[..self.count]
    }
}

impl<M: Machine> Process<'_, M> {
    /// What is to be sent beside the bytes of a message, by a socket in the machine. By TCP nothing
    /// is, as Linux has it, and by UDP nothing can be.
    pub(super) fn sent_beside(&mut self, file: u64, message: u64) -> Result<Sending, Errno> {
        let mut sending = Sending::NONE;
        let (start, bytes) = self.beside(message)?;
        if bytes > LONGEST {
            return Err(Errno(ENOBUFS));
        }
        let socket = self.socket(file)?;
        let is_near = matches!(self.streams.sockets[socket].name(), Some(Name::Unix(_)));
        if bytes >= HEADER && matches!(self.streams.sockets[socket], Socket::Udp(_)) {
            return Err(self.refuse_beside());
        }
        let mut at = 0;
        while is_near && bytes - at >= HEADER {
            let place = start.wrapping_add(at);
            let (len, kind) = (self.word(place)?, self.word(place.wrapping_add(8))?);
            if len < HEADER || len > bytes - at {
                return Err(Errno(EINVAL));
            }
            self.add_beside(&mut sending, place.wrapping_add(HEADER), len - HEADER, kind)?;
            at = (at + len.next_multiple_of(8)).min(bytes);
        }
        Ok(sending)
    }

    /// Where is said what goes beside a message, and in how many bytes.
    fn beside(&self, message: u64) -> Result<(u64, u64), Errno> {
        let place = message.wrapping_add(CONTROL);
        Ok((self.word(place)?, self.word(place.wrapping_add(8))?))
    }

    fn add_beside(
        &mut self,
        sending: &mut Sending,
        from: u64,
        bytes: u64,
        kind: u64,
    ) -> Result<(), Errno> {
        const SOCKETS: u64 = SOL_SOCKET as u64;
        const DESCRIPTORS: u64 = SCM_RIGHTS as u64;
        const OWN: u64 = SCM_CREDENTIALS as u64;
        match (kind & 0xffff_ffff, kind >> 32) {
            (SOCKETS, DESCRIPTORS) => {}
            (SOCKETS, OWN) if bytes == WHO => {
                sending.who = Some(self.who_at(from)?);
                return Ok(());
            }
            (SOCKETS, _) => return Err(Errno(EINVAL)),
            _ => return Ok(()),
        }
        for index in 0..bytes / 4 {
            let mut number = [0; 4];
            self.read(from.wrapping_add(4 * index), &mut number)?;
            let place = self.files.place(u32::from_le_bytes(number).into());
            sending.add(place.map_err(|_| Errno(EBADF))?)?;
        }
        Ok(())
    }

    /// The pipe into which a socket sends, and how many bytes stand there.
    pub(super) fn way_out(&mut self, file: u64) -> Option<(usize, usize)> {
        let socket = self.socket(file).ok()?;
        match self.streams.sockets[socket] {
            Socket::Connected(it) if !it.mute => match it.link {
                Link::Pipes { sends, .. } => Some((sends, self.streams.pipes[sends].len)),
                Link::Card(_) => None,
            },
            _ => None,
        }
    }

    /// Some of a message has gone into a pipe that held so much before: so has what is beside it.
    pub(super) fn send_beside(&mut self, sending: &Sending, (pipe, start): (usize, usize)) {
        let end = self.streams.pipes[pipe].len;
        if end > start {
            for &place in sending.places() {
                self.files.hold(place);
                self.rights.send(place, pipe, [start, end]);
            }
        }
    }

    /// Makes descriptors of what came with a message, as far as there is room, and says so.
    pub(super) fn received_beside(
        &mut self,
        message: u64,
        flags: u32,
        lost: u32,
    ) -> Result<(), Errno> {
        let (start, all) = self.beside(message)?;
        let (first, short) = self.tell_who(start, all)?;
        let lost = lost | if short { MSG_CTRUNC } else { 0 };
        let (to, room) = (start.wrapping_add(first), all - first);
        let mut most = room.saturating_sub(HEADER) / 4;
        if self.check(to, HEADER + 4 * most, Rights::WRITE).is_err() {
            most = 0;
        }
        let private = flags & MSG_CMSG_CLOEXEC != 0;
        let (mut count, mut told) = (0, flags & MSG_CMSG_CLOEXEC | lost);
        while self.rights.first().is_some() {
            let made = (count < most).then(|| self.take_right(private)).flatten();
            let Some(Ok(number)) = made else {
                told |= MSG_CTRUNC;
                break;
            };
            let place = to.wrapping_add(HEADER + 4 * count);
            self.write_half(place, number as u64)?;
            count += 1;
        }
        let mut used = 0;
        if count > 0 {
            let kind = u64::from(SOL_SOCKET) | u64::from(SCM_RIGHTS) << 32;
            self.write_words(to, &[HEADER + 4 * count, kind])?;
            used = (HEADER + 4 * count).next_multiple_of(8).min(room);
        }
        self.write_words(message.wrapping_add(CONTROL + 8), &[first + used])?;
        self.write_half(message.wrapping_add(FLAGS), told.into())
    }
}
