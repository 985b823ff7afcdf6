//! What a program of Linux reads while its machine runs: this process's standard input, handed over
//! in portions for which the machine asks ([`rcoe_abi::input`]).
//!
//! Nothing is read before the machine wants it, so nothing is taken from a user that the program
//! never reads, and a command in the background reads its terminal only if its program does. The
//! portion that was sent last is kept, as it may be asked for again.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;

use rcoe_abi::input::{FRAME, PORTION, Portion, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::SystemError;

/// Bytes that are read from the user at once.
const ROOM: usize = 4096;
/// Requests that are looked at in one round.
const REQUESTS: usize = 64;

/// The input, as far as it was handed over.
#[derive(Debug)]
pub(crate) struct LiveInput {
    user: File,
    /// What the machine asks for, and where it gets it.
    asked: File,
    given: File,
    /// What the user gave at once, and how much of it was sent.
    bytes: Vec<u8>,
    sent: usize,
    ended: bool,
    /// The number of the next portion, and whether it was asked for.
    next: u8,
    wanted: bool,
    last: Option<[u8; FRAME]>,
}

impl LiveInput {
    /// This process's standard input, for a machine that asks by one pipe and gets by another.
    pub(crate) fn new(asked: File, given: File) -> io::Result<Self> {
        let user = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self::of(user.into(), asked, given))
    }

    const fn of(user: File, asked: File, given: File) -> Self {
        Self {
            user,
            asked,
            given,
            bytes: Vec::new(),
            sent: 0,
            ended: false,
            next: 0,
            wanted: false,
            last: None,
        }
    }

    /// What is to be waited for.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let user = (self.wanted && self.has_sent_all() && !self.ended).then_some(&self.user);
        [Some(&self.asked), user]
            .into_iter()
            .flatten()
            .map(|file| PollFd::new(file, PollFlags::IN))
    }

    const fn has_sent_all(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Answers what was asked, as far as the user has given anything.
    pub(crate) fn round(&mut self) -> Result<(), SystemError> {
        let fail = SystemError::host("handing over the input");
        self.hear().and_then(|()| self.answer()).map_err(fail)
    }

    /// Looks at what was asked.
    fn hear(&mut self) -> io::Result<()> {
        let mut numbers = [0; REQUESTS];
        let count = match self.asked.read(&mut numbers) {
            Err(error) if is_later(&error) => 0,
            other => other?,
        };
        for &number in &numbers[..count] {
            if number == self.next {
                self.wanted = true;
            } else if let Some(last) = self.last.filter(|last| last[0] == number) {
                self.give(&last)?;
            }
        }
        Ok(())
    }

    /// Sends the next portion, if it was asked for and there is one.
    fn answer(&mut self) -> io::Result<()> {
        if !self.wanted {
            return Ok(());
        }
        if self.has_sent_all() && !self.ended && has_come(&self.user) {
            self.read();
        }
        let rest = &self.bytes[self.sent..];
        if rest.is_empty() && !self.ended {
            return Ok(());
        }
        let len = rest.len().min(PORTION);
        let portion = Portion::new(&rest[..len], len < rest.len()).unwrap_or(Portion::END);
        let frame = frame(self.next, &portion);
        self.sent += len;
        self.next = self.next.wrapping_add(1);
        (self.wanted, self.last) = (false, Some(frame));
        self.give(&frame)
    }

    /// Reads what the user has given. What cannot be read is at its end.
    fn read(&mut self) {
        let mut bytes = [0; ROOM];
        let count = self.user.read(&mut bytes);
        if count.as_ref().is_err_and(is_later) {
            return;
        }
        let count = count.unwrap_or(0);
        self.bytes = bytes[..count].to_vec();
        (self.sent, self.ended) = (0, count == 0);
    }

    /// Hands a frame over. A pipe that is full has thousands of them, for which nobody asked and
    /// which the emulator never took: one more is lost.
    fn give(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.given.write_all(frame) {
            Err(error) if is_later(&error) => Ok(()),
            other => other,
        }
    }
}

/// Is there nothing now?
fn is_later(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

/// Can something be read now, be it the end?
fn has_come(file: &File) -> bool {
    let mut files = [PollFd::new(file, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rcoe_abi::input::open;

    use super::*;

    /// The input of a user, the machine's two ends, and where the user writes.
    fn input() -> (LiveInput, [File; 3]) {
        let pipe = || {
            let (reader, writer) = io::pipe().unwrap();
            rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
            let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)];
            (File::from(reader), File::from(writer))
        };
        let [(user, gives), (asked, asks), (gets, given)] = [pipe(), pipe(), pipe()];
        (LiveInput::of(user, asked, given), [asks, gets, gives])
    }

    fn next(gets: &mut File) -> Option<(u8, Portion)> {
        let mut frame = [0; FRAME];
        gets.read_exact(&mut frame).ok()?;
        Some(open(&frame).unwrap())
    }

    #[test]
    fn nothing_is_read_before_it_is_wanted() {
        let (mut input, [mut asks, mut gets, mut gives]) = input();
        gives.write_all(b"a line\n").unwrap();
        input.round().unwrap();
        assert!(next(&mut gets).is_none() && has_come(&input.user));
        assert_eq!(input.polled().count(), 1);
        asks.write_all(&[0]).unwrap();
        input.round().unwrap();
        let (number, portion) = next(&mut gets).unwrap();
        assert_eq!((number, portion.bytes()), (0, &b"a line\n"[..]));
        assert!(!has_come(&input.user));
    }

    #[test]
    fn what_was_given_at_once_comes_in_portions_that_say_so() {
        let (mut input, [mut asks, mut gets, mut gives]) = input();
        gives.write_all(b"twelve bytes and more").unwrap();
        let mut all = Vec::new();
        for number in 0..2 {
            asks.write_all(&[number]).unwrap();
            input.round().unwrap();
            let (which, portion) = next(&mut gets).unwrap();
            assert_eq!((which, portion.goes_on()), (number, number == 0));
            all.extend(portion.bytes().to_vec());
        }
        assert_eq!(all, b"twelve bytes and more");
        asks.write_all(&[2]).unwrap();
        input.round().unwrap();
        assert!(next(&mut gets).is_none());
        assert_eq!(input.polled().count(), 2);
        drop(gives);
        input.round().unwrap();
        let (which, portion) = next(&mut gets).unwrap();
        assert_eq!((which, portion), (2, Portion::END));
    }

    #[test]
    fn a_portion_is_given_again_and_no_other_for_it() {
        let (mut input, [mut asks, mut gets, mut gives]) = input();
        gives.write_all(b"once").unwrap();
        asks.write_all(&[0, 0]).unwrap();
        input.round().unwrap();
        let first = next(&mut gets);
        assert!(first.is_some() && next(&mut gets).is_none());
        gives.write_all(b"twice").unwrap();
        asks.write_all(&[0, 0, 7]).unwrap();
        input.round().unwrap();
        assert_eq!((next(&mut gets), next(&mut gets)), (first, first));
        assert!(next(&mut gets).is_none());
        asks.write_all(&[1]).unwrap();
        input.round().unwrap();
        assert_eq!(next(&mut gets).unwrap().1.bytes(), b"twice");
    }
}
