//! Who sent the bytes of connections in the machine (`SCM_CREDENTIALS`).
//!
//! Bytes of which that is said stand in a table as runs: a pipe, where the run begins and ends, and
//! who sent it. It is said if the socket at either end tells it, or if the sender says it itself;
//! nobody is known of all other bytes. Who is told reads no further at once than the bytes of one
//! sender. Messages that stay whole have it in their headers instead.

use linux_raw_sys::errno::ETOOMANYREFS;

use super::Errno;

/// A process, its user and its group.
pub(crate) type Who = [u32; 3];

/// Nobody, as Linux tells of it.
pub(crate) const NOBODY: Who = [0, 65_534, 65_534];
/// Most runs.
const MOST: usize = 256;

/// Bytes of one sender.
#[derive(Clone, Copy, Debug)]
struct Run {
    pipe: usize,
    start: usize,
    end: usize,
    who: Who,
}

/// All of them, and what is known of them in the call at hand.
#[derive(Debug)]
pub(crate) struct Senders {
    runs: [Option<Run>; MOST],
    /// Does the call tell who sent what it receives, and who was that?
    asked: bool,
    found: Option<Who>,
    /// Who sends, as the program says.
    said: Option<Who>,
}

impl Senders {
    pub(crate) const fn new() -> Self {
        Self {
            runs: [None; MOST],
            asked: false,
            found: None,
            said: None,
        }
    }

    /// The call at hand tells who sent what it receives.
    pub(crate) const fn ask(&mut self) {
        self.asked = true;
    }

    /// Does it?
    pub(crate) const fn is_asked(&self) -> bool {
        self.asked
    }

    /// This one sent what the call at hand receives.
    pub(crate) const fn found(&mut self, who: Who) {
        self.found = Some(who);
    }

    /// Who sent it, if there was anything.
    pub(crate) const fn sender(&self) -> Option<Who> {
        self.found
    }

    /// The program says who sends by the call at hand.
    pub(crate) const fn say(&mut self, who: Option<Who>) {
        self.said = who;
    }

    /// Who that is.
    pub(crate) const fn said(&self) -> Option<Who> {
        self.said
    }

    /// A call is over.
    pub(crate) const fn end_call(&mut self) {
        (self.asked, self.found, self.said) = (false, None, None);
    }

    fn of(&self, pipe: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().flatten().filter(move |it| it.pipe == pipe)
    }

    /// Is there room for one more, or do bytes behind these belong to the same run?
    pub(crate) fn has_room(&self, pipe: usize, start: usize, who: Who) -> Result<(), Errno> {
        let mut all = self.of(pipe);
        let goes_on = all.any(|it| it.end == start && it.who == who);
        let free = self.runs.iter().any(Option::is_none);
        (goes_on || free).then_some(()).ok_or(Errno(ETOOMANYREFS))
    }

    /// The bytes of a pipe between these are of this sender. There is room.
    pub(crate) fn send(&mut self, pipe: usize, [start, end]: [usize; 2], who: Who) {
        let mut all = self.runs.iter_mut().flatten();
        let last = all.find(|it| it.pipe == pipe && it.end == start && it.who == who);
        if let Some(last) = last {
            last.end = end;
            return;
        }
        let free = self.runs.iter_mut().find(|it| it.is_none());
        *free.expect("there is room") = Some(Run {
            pipe,
            start,
            end,
            who,
        });
    }

    /// How many bytes of a pipe can be read at once, behind those that were looked at: any, unless
    /// it is told who sent them. `None` if that is somebody else than of those before.
    pub(crate) fn most(&mut self, pipe: usize, skip: usize) -> Option<usize> {
        if !self.asked {
            return Some(usize::MAX);
        }
        let here = self.of(pipe).find(|it| (it.start..it.end).contains(&skip));
        let (who, end) = match here {
            Some(run) => (run.who, run.end),
            None => {
                let next = self.of(pipe).map(|it| it.start).filter(|&it| it > skip);
                (NOBODY, next.min().unwrap_or(usize::MAX))
            }
        };
        if *self.found.get_or_insert(who) != who {
            return None;
        }
        Some(end - skip)
    }

    /// So many bytes of a pipe were read.
    pub(crate) fn read(&mut self, pipe: usize, bytes: usize) {
        for place in &mut self.runs {
            if let Some(it) = place.as_mut().filter(|it| it.pipe == pipe) {
                it.start = it.start.saturating_sub(bytes);
                it.end = it.end.saturating_sub(bytes);
                if it.end == 0 {
                    *place = None;
                }
            }
        }
    }

    /// Nobody reads this pipe any more.
    pub(crate) fn lose(&mut self, pipe: usize) {
        for place in &mut self.runs {
            if place.is_some_and(|it| it.pipe == pipe) {
                *place = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_sender_are_one_run_wherever_they_are_read() {
        let (one, two) = ([2, 0, 0], [3, 0, 0]);
        let mut all = Senders::new();
        for (start, end, who) in [(4, 6, one), (6, 9, one), (9, 10, two)] {
            all.send(1, [start, end], who);
        }
        all.send(2, [0, 9], two);
        assert_eq!(all.runs.iter().flatten().count(), 3);
        assert_eq!(all.most(1, 0), Some(usize::MAX));
        all.ask();
        assert_eq!((all.most(1, 0), all.sender()), (Some(4), Some(NOBODY)));
        assert_eq!(all.most(1, 4), None);
        all.read(1, 5);
        (all.found, all.asked) = (None, true);
        assert_eq!((all.most(1, 0), all.sender()), (Some(4), Some(one)));
        assert_eq!(all.most(1, 3), Some(1));
        assert_eq!(all.most(1, 4), None);
        all.read(1, 4);
        all.end_call();
        all.ask();
        assert_eq!((all.most(1, 0), all.sender()), (Some(1), Some(two)));
        all.lose(1);
        assert_eq!(all.runs.iter().flatten().count(), 1);
    }

    #[test]
    fn there_is_an_end_of_runs() {
        let mut all = Senders::new();
        for at in 0..MOST {
            all.send(0, [at, at + 1], [u32::try_from(at).unwrap(), 0, 0]);
        }
        let last = [u32::try_from(MOST - 1).unwrap(), 0, 0];
        assert_eq!(all.has_room(0, MOST, last), Ok(()));
        assert_eq!(all.has_room(0, MOST, NOBODY), Err(Errno(ETOOMANYREFS)));
    }
}
