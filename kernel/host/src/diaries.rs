//! Reading the diaries of all replicas so that causes come before what they cause.
//!
//! A replica writes that it is broken before the others miss it, but diaries are read one after the
//! other: one that was read early in a round may get the cause while a later one is read that tells
//! the effect. So each round is followed by a second look. Whatever was read in the round has its
//! cause there at the latest; breakdowns found there are told with the round, and all else is kept
//! for the next. Breakdowns go first, the rest is in order for each replica, and no order is
//! promised between replicas.

use std::fs::File;
use std::io::{self, Read};

use rustix::event::{PollFd, PollFlags};

use crate::{Entry, SystemError};

/// Longest line of a diary; a faulty replica may write without end.
const LINE_MAX: usize = 4096;

/// A diary that is being read, without waiting.
struct Diary<F> {
    file: F,
    rest: Vec<u8>,
}

impl<F: Read> Diary<F> {
    /// Reads what is there, line by line.
    fn lines(&mut self, mut each: impl FnMut(&str)) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => self.rest.extend(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                each(&String::from_utf8_lossy(&line[..end]));
            }
            self.rest.truncate(LINE_MAX);
        }
    }
}

/// An entry, with the number of the replica that wrote it.
pub(crate) type Told = (usize, Entry);

/// The diaries of all replicas.
pub(crate) struct Diaries<F = File> {
    diaries: Vec<Diary<F>>,
    /// What the second look of the last round has found.
    kept: Vec<Told>,
}

impl<F: Read> Diaries<F> {
    /// Diaries in the order of their replicas. Reading them must not block.
    pub(crate) fn new(files: Vec<F>) -> Self {
        let diary = |file| Diary {
            file,
            rest: Vec::new(),
        };
        let diaries = files.into_iter().map(diary).collect();
        let kept = Vec::new();
        Self { diaries, kept }
    }

    /// What can be told now, breakdowns first.
    pub(crate) fn round(&mut self) -> Result<Vec<Told>, SystemError> {
        let mut round = std::mem::take(&mut self.kept);
        round.extend(self.look()?);
        let (causes, others) = self.look()?.into_iter().partition(is_cause);
        self.kept = others;
        round.extend(causes);
        round.sort_by_key(|told| !is_cause(told));
        Ok(round)
    }

    fn look(&mut self) -> Result<Vec<Told>, SystemError> {
        let mut found = Vec::new();
        for (replica, diary) in self.diaries.iter_mut().enumerate() {
            let read = diary.lines(|line| found.push((replica, Entry::parse(line))));
            read.map_err(SystemError::host("reading a diary"))?;
        }
        Ok(found)
    }

    /// Is there nothing left that was read but not told?
    pub(crate) const fn told_all(&self) -> bool {
        self.kept.is_empty()
    }
}

impl Diaries {
    /// What to wait for.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let files = self.diaries.iter().map(|diary| &diary.file);
        files.map(|file| PollFd::new(file, PollFlags::IN))
    }
}

const fn is_cause((_, entry): &Told) -> bool {
    matches!(entry, Entry::Broken(_))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    /// What reads of a diary find, one look after the other.
    struct Scripted(RefCell<VecDeque<&'static str>>);

    impl Read for Scripted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let text = self.0.borrow_mut().pop_front().unwrap_or("");
            if text.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            buffer[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        }
    }

    /// Diaries whose looks find these; an empty text is a look that finds nothing.
    fn diaries<const N: usize>(texts: [&[&'static str]; N]) -> Diaries<Scripted> {
        let script = |text: &&'static str| match *text {
            "" => vec![""],
            text => vec![text, ""],
        };
        let file = |texts: &[&'static str]| {
            Scripted(RefCell::new(texts.iter().flat_map(script).collect()))
        };
        Diaries::new(texts.map(file).into_iter().collect())
    }

    fn entries<const N: usize>(lines: [(usize, &str); N]) -> Vec<Told> {
        let parsed = lines.map(|(replica, line)| (replica, Entry::parse(line)));
        parsed.into_iter().collect()
    }

    #[test]
    fn a_breakdown_is_told_before_the_removal_that_it_causes() {
        let mut read = diaries([
            &["removed 1 timeout 9\njoined 1\n"],
            &["exception vector=14\n"],
            &["removed 1 timeout 9\n"],
        ]);
        let expected = entries([
            (1, "exception vector=14"),
            (0, "removed 1 timeout 9"),
            (0, "joined 1"),
            (2, "removed 1 timeout 9"),
        ]);
        assert_eq!(read.round().unwrap(), expected);
    }

    #[test]
    fn a_breakdown_written_while_a_later_diary_is_read_is_told_first_too() {
        let mut read = diaries([
            &["", "removed 1 timeout 9\n"],
            &["", "exception vector=14\n"],
            &["removed 1 timeout 9\n", "primary 2\n"],
        ]);
        let first = entries([(1, "exception vector=14"), (2, "removed 1 timeout 9")]);
        assert_eq!(read.round().unwrap(), first);
        assert!(!read.told_all(), "what it causes waits its turn");
        let second = entries([(0, "removed 1 timeout 9"), (2, "primary 2")]);
        assert_eq!(read.round().unwrap(), second);
        assert!(read.told_all());
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let long: &'static str = Box::leak("x".repeat(4000).into_boxed_str());
        let mut read = diaries([&[long, "", long, "", "y\n"]]);
        assert_eq!(read.round().unwrap(), []);
        assert_eq!(read.round().unwrap(), []);
        let Entry::Other(line) = &read.round().unwrap()[0].1 else {
            panic!("a line");
        };
        assert!(line.len() <= LINE_MAX + 1, "{}", line.len());
    }
}
