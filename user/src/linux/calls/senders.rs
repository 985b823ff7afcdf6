//! What calls say and tell of who sends messages in the machine.

use linux_raw_sys::errno::{EINVAL, ESRCH};
use linux_raw_sys::net::{SCM_CREDENTIALS, SOL_SOCKET};

use crate::linux::senders::{NOBODY, Who};
use crate::linux::sockets::Sockets;
use crate::linux::tasks::Life;
use crate::linux::{Answer, Errno, Machine, Process};

/// Bytes before what is said, those of it, and of both with what they are filled up by.
const HEADER: u64 = 16;
const LENGTH: u64 = HEADER + 12;
const SPACE: u64 = LENGTH.next_multiple_of(8);

impl<M: Machine> Process<'_, M> {
    /// Who sends, as a program says. It is the superuser, so it may say this of any process that
    /// there is, and of any user.
    pub(super) fn who_at(&self, place: u64) -> Result<Who, Errno> {
        let mut bytes = [0; 12];
        self.read(place, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        let who @ [process, user, group] = [0, 1, 2].map(|at| u32::from_le_bytes(words[at]));
        if [user, group].contains(&u32::MAX) {
            return Err(Errno(EINVAL));
        }
        let number = u64::from(process);
        let mut all = self.task.all().iter();
        let is_there = all.any(|it| it.life != Life::Free && it.number == number)
            || self.threads.anywhere(number).is_some();
        is_there.then_some(who).ok_or(Errno(ESRCH))
    }

    /// Who is told to have sent what a socket sends to another one.
    pub(super) fn sender(&self, socket: usize, to: Option<usize>, said: Option<Who>) -> Who {
        let telling = &self.streams.telling;
        let own = u32::try_from(self.task.number).unwrap_or(0);
        match said {
            Some(who) => who,
            None if telling[socket] || to.is_some_and(|to| telling[to]) => [own, 0, 0],
            None => NOBODY,
        }
    }

    /// Sends bytes into the pipe of a connection in the machine.
    pub(super) fn send_near(
        &mut self,
        socket: usize,
        pipe: usize,
        address: u64,
        bytes: u64,
    ) -> Answer {
        let to = self.streams.sockets.receiver_of(pipe);
        let who = self.sender(socket, to, self.senders.said());
        let start = self.streams.pipes[pipe].len;
        if who != NOBODY {
            self.senders.has_room(pipe, start, who)?;
        }
        let sent = self.write_pipe(pipe, address, bytes);
        let end = self.streams.pipes[pipe].len;
        if who != NOBODY && end > start {
            self.senders.send(pipe, [start, end], who);
        }
        sent
    }

    /// Tells who sent what was received, if that was asked for: how much room that took, and
    /// whether there was too little of it.
    pub(super) fn tell_who(&mut self, to: u64, room: u64) -> Result<(u64, bool), Errno> {
        if !self.senders.is_asked() {
            return Ok((0, false));
        }
        let who = self.senders.sender().unwrap_or(NOBODY);
        if room < HEADER {
            return Ok((0, true));
        }
        let len = LENGTH.min(room);
        let kind = u64::from(SOL_SOCKET) | u64::from(SCM_CREDENTIALS) << 32;
        self.write_words(to, &[len, kind])?;
        let end = usize::try_from(len - HEADER).unwrap_or(0);
        let who = who.map(u32::to_le_bytes);
        self.write(to.wrapping_add(HEADER), &who.as_flattened()[..end])?;
        Ok((SPACE.min(room), len < LENGTH))
    }
}
