//! The calls of a program: which there are, and what is not one call's alone.
//!
//! A call gets its number and six words, and comes to a word. Each group of calls knows its own; a
//! call that none knows is refused, and the user is told.

mod addresses;
mod copies;
mod datagrams;
mod epoll;
mod facts;
mod fifos;
mod files;
mod links;
mod live;
mod local;
mod locks;
mod manners;
mod mapped;
mod memory;
mod names;
mod options;
mod outgoing;
mod poll;
mod processes;
mod programs;
mod ranks;
mod receive;
mod reserve;
mod rights;
mod senders;
mod sockets;
mod streams;
mod system;
mod threads;
mod times;
mod told;
mod told_of;
mod udp;

use linux_raw_sys::errno::{EFAULT, ENAMETOOLONG};

use super::errno::LATER;
use super::tasks::Life;
use super::{Answer, Errno, Machine, Process};
use crate::linux::arch::{call_of, nr};
use names::HERE;

/// The first process.
pub(crate) const PROCESS: u64 = 2;
/// Longest string of a program's that is looked at, and bytes that are copied at once.
const STRING: usize = 256;
const PORTION: usize = 1024;
/// Most parts of one call.
const PARTS: u64 = 1024;

/// How many of the bytes that are left are copied at once.
fn portion_of(left: u64) -> usize {
    usize::try_from(left).map_or(PORTION, |left| left.min(PORTION))
}

/// How a program goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// With the answer to its call.
    Answer(Answer),
    /// With registers that it was given.
    Resume,
    /// With the same call again, when something may have changed.
    Wait,
    /// Without this thread, which ended with this status.
    Gone(u64),
    /// Not at all: it ended with this status.
    Exit(u64),
}

/// A string of a program's.
pub(super) struct Text {
    bytes: [u8; STRING],
    len: usize,
}

impl Text {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; STRING],
        len: 0,
    };

    /// This string.
    pub(super) fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let mut text = Self::EMPTY;
        let place = text.bytes.get_mut(..bytes.len());
        place.ok_or(Errno(ENAMETOOLONG))?.copy_from_slice(bytes);
        text.len = bytes.len();
        Ok(text)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<M: Machine> Process<'_, M> {
    /// Makes a call.
    pub fn call(&mut self, number: u64, words: [u64; 6]) -> Next {
        let numbers = self.task.all().each_ref().map(|it| match it.life {
            Life::Free => 0,
            _ => it.number,
        });
        self.files.set_numbers(numbers);
        let next = self.make_call(number, words);
        self.tend_rights();
        self.tend_fifos();
        self.tend_mappings();
        next
    }

    fn make_call(&mut self, number: u64, words: [u64; 6]) -> Next {
        let [first, second, third, ..] = words;
        let number = number & 0xffff_ffff;
        let call = call_of(number);
        match call {
            nr::__NR_exit => return Next::Gone(first & 0xff),
            nr::__NR_rt_sigreturn => return self.leave_handler(),
            nr::__NR_exit_group => return Next::Exit(first & 0xff),
            nr::__NR_execve => return self.execute([HERE, first, second, third, 0]),
            nr::__NR_execveat => return self.execute(core::array::from_fn(|at| words[at])),
            _ => {}
        }
        let answer = self
            .memory_call(call, words)
            .or_else(|| self.file_call(call, words))
            .or_else(|| self.copy_call(call, words))
            .or_else(|| self.reserve_call(call, words))
            .or_else(|| self.name_call(call, words))
            .or_else(|| self.link_call(call, words))
            .or_else(|| self.time_call(call, words))
            .or_else(|| self.system_call(call, words))
            .or_else(|| self.fact_call(call, words))
            .or_else(|| self.rank_call(call, words))
            .or_else(|| self.manner_call(call, words))
            .or_else(|| self.signal_call(call, words))
            .or_else(|| self.epoll_call(call, words))
            .or_else(|| self.thread_call(call, words))
            .or_else(|| self.process_call(call, words))
            .or_else(|| self.socket_call(call, words))
            .or_else(|| self.poll_call(call, words))
            .or_else(|| self.stream_call(call, words));
        if let Some(status) = self.task.ended {
            return Next::Exit(status);
        }
        match answer {
            Some(Err(LATER)) => Next::Wait,
            Some(answer) => Next::Answer(answer),
            None => Next::Answer(Err(self.refuse(number))),
        }
    }

    /// A string of the program's, up to its zero byte.
    fn text(&self, address: u64) -> Result<Text, Errno> {
        let mut text = Text::EMPTY;
        while text.len < STRING {
            let at = address.checked_add(text.len as u64).ok_or(Errno(EFAULT))?;
            let mut byte = [0];
            self.read(at, &mut byte)?;
            if byte[0] == 0 {
                return Ok(text);
            }
            text.bytes[text.len] = byte[0];
            text.len += 1;
        }
        Err(Errno(ENAMETOOLONG))
    }
}
