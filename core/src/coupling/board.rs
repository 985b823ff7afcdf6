//! The board: all that a replica tells the others while they agree on a point, in memory that it
//! alone writes.
//!
//! A board of zero bytes is a valid fresh one. Its words are [`Post`]s: two reports in turn, so
//! that one stays readable during the next, even if that is of another attempt; the target, if this
//! replica owns it; a question to the target's owner; the owner's answer to each of the others; the
//! seal, a digest of the state at a target to which all have come; and the verdict, which stays
//! readable until the next.

use super::counts::Counted;
use super::post::{Post, Stamp, size};
use super::time::Standing;
use crate::guards::{Bug, Guards};
use crate::primitive::{AtomicU64, Ordering};
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// The most words of a state that the search for it compares: registers, in an order that the
/// sphere defines.
pub const REGISTERS: usize = 20;

/// The most pages that a list names; [`super::EVERYTHING`] stands for more.
pub const PAGES: usize = 256;

/// The most words of an area: of a page, and of the vector state.
pub const SHEET: usize = 512;

/// How large the boards of a group are; the same for all of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Numbers of replicas that there can be, at most [`MAX_REPLICAS`].
    pub replicas: usize,
    /// Words of registers, at most [`REGISTERS`].
    pub registers: usize,
    /// Pages that a list can name, at most [`PAGES`].
    pub pages: usize,
    /// Words of an area, at most [`SHEET`].
    pub sheet: usize,
}

/// Words of a report.
const REPORT: usize = 2 + STANDING;
/// Words of a standing.
const STANDING: usize = 10;

impl Shape {
    /// Words of a board.
    #[must_use]
    pub const fn words(self) -> usize {
        self.answer(self.replicas)
    }

    const fn target(self) -> usize {
        2 * size(REPORT)
    }

    const fn question(self) -> usize {
        self.target() + size(STANDING + self.registers + self.pages)
    }

    const fn verdict(self) -> usize {
        self.question() + size(2 + self.pages)
    }

    const fn seal(self) -> usize {
        self.verdict() + size(2)
    }

    const fn answer(self, reader: usize) -> usize {
        let digests = 2 * self.pages + 2;
        let words = if digests > self.sheet {
            digests
        } else {
            self.sheet
        };
        self.seal() + size(1) + reader * size(words)
    }
}

/// What one replica publishes.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    cells: &'a [AtomicU64],
    shape: Shape,
}

/// The boards of a group, indexed by id.
pub type Boards<'a> = [Option<Board<'a>>; MAX_REPLICAS];

/// What came of a phase for one replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Came {
    /// It is where the target is, in the same state.
    Equal,
    /// It is not; or there was no target yet.
    Apart,
}

/// What a replica says at the end of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Report {
    pub(crate) came: Came,
    /// Of the target's owner: whose state it found equal to its own, itself too.
    pub(crate) alike: ReplicaSet,
    /// Of the target's owner: nobody can be stopped there.
    pub(crate) nowhere: bool,
    /// What it looked for was damaged meanwhile, so that it could find nothing.
    pub(crate) spoilt: bool,
    /// It has passed the target for certain, and had another state there.
    pub(crate) passed: bool,
    pub(crate) standing: Standing,
}

/// The state that the others are to reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Target {
    pub(crate) standing: Standing,
    pub(crate) registers: [u64; REGISTERS],
}

/// A question to the target's owner, beside the list of pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Question {
    /// What is your digest of the pages that either of us has written? This is mine.
    Digest(u64),
    /// What are the words of this area?
    Area(u64),
}

/// What a replica has decided, or proposes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Verdict {
    /// These are missing, or differ from a majority.
    Charge(ReplicaSet),
    /// All have met in this phase.
    Agreed,
}

impl<'a> Board<'a> {
    /// The board in `cells`.
    ///
    /// # Panics
    /// If `cells` are not as many as `shape` asks for, or that is beyond its bounds.
    #[must_use]
    pub const fn new(cells: &'a [AtomicU64], shape: Shape) -> Self {
        assert!(shape.replicas <= MAX_REPLICAS && shape.registers <= REGISTERS);
        assert!(shape.pages <= PAGES && shape.sheet <= SHEET);
        assert!(cells.len() == shape.words(), "a board has its size");
        Self { cells, shape }
    }

    /// Makes it a fresh one: of a newcomer, in whose place somebody was lost.
    pub fn clear(&self) {
        for cell in self.cells {
            cell.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    fn post(&self, from: usize, to: usize) -> Post<'a> {
        Post(&self.cells[from..to])
    }

    fn report_at(&self, place: usize) -> Post<'a> {
        let at = place * size(REPORT);
        self.post(at, at + size(REPORT))
    }

    fn target_at(&self) -> Post<'a> {
        self.post(self.shape.target(), self.shape.question())
    }

    fn question_at(&self) -> Post<'a> {
        self.post(self.shape.question(), self.shape.verdict())
    }

    fn verdict_at(&self) -> Post<'a> {
        self.post(self.shape.verdict(), self.shape.seal())
    }

    fn seal_at(&self) -> Post<'a> {
        self.post(self.shape.seal(), self.shape.answer(0))
    }

    fn answer_at(&self, reader: ReplicaId) -> Post<'a> {
        let reader = reader.index();
        self.post(self.shape.answer(reader), self.shape.answer(reader + 1))
    }

    /// Reports in the one or the other of two places; what is in that one is gone.
    pub(crate) fn put_report(&self, other: bool, stamp: Stamp, report: &Report) {
        let mut words = [0; REPORT];
        words[0] = u64::from(report.came == Came::Equal)
            | u64::from(report.nowhere) << 1
            | u64::from(report.spoilt) << 2
            | u64::from(report.passed) << 3;
        words[1] = u64::from(report.alike.bits());
        words[2..].copy_from_slice(&pack(&report.standing));
        self.report_at(usize::from(other)).write(stamp, &words);
    }

    /// The report of the moment `stamp`, if it is there.
    pub(crate) fn report(&self, stamp: Stamp, guards: Guards) -> Option<Report> {
        (0..2).find_map(|place| self.report_in(place, stamp, guards))
    }

    fn report_in(&self, place: usize, stamp: Stamp, guards: Guards) -> Option<Report> {
        let mut words = [0; REPORT];
        let (found, _) = self.report_at(place).read(&mut words, false)?;
        is_of(found, stamp, guards).then(|| Report {
            came: if words[0] & 1 == 0 {
                Came::Apart
            } else {
                Came::Equal
            },
            nowhere: words[0] & 2 != 0,
            spoilt: words[0] & 4 != 0,
            passed: words[0] & 8 != 0,
            alike: ReplicaSet::from_bits(words[1].to_le_bytes()[0]),
            standing: unpack(&words[2..]),
        })
    }

    /// The moment of the newest report, whichever phase it is of.
    pub(crate) fn newest(&self) -> Stamp {
        let mut words = [0; REPORT];
        let mut stamp = |phase| self.report_at(phase).read(&mut words, false);
        let stamps = [stamp(0), stamp(1)];
        let found = stamps.into_iter().flatten().map(|(stamp, _)| stamp);
        found.max().unwrap_or_default()
    }

    pub(crate) fn put_target(&self, stamp: Stamp, target: &Target, list: &[u64]) {
        let mut words = [0; STANDING + REGISTERS + PAGES];
        let registers = self.shape.registers;
        words[..STANDING].copy_from_slice(&pack(&target.standing));
        words[STANDING..][..registers].copy_from_slice(&target.registers[..registers]);
        let end = STANDING + registers + list.len();
        words[STANDING + registers..end].copy_from_slice(list);
        self.target_at().write(stamp, &words[..end]);
    }

    /// The target of the moment `stamp`, if it is there; the pages that its owner has written, and
    /// how many, go into `list`.
    pub(crate) fn target(
        &self,
        stamp: Stamp,
        list: &mut [u64; PAGES],
        guards: Guards,
    ) -> Option<(Target, usize)> {
        let mut words = [0; STANDING + REGISTERS + PAGES];
        let trust = guards.off(Bug::TargetUnchecked);
        let (found, len) = self.target_at().read(&mut words, trust)?;
        let head = STANDING + self.shape.registers;
        let pages = len.checked_sub(head)?;
        list[..pages].copy_from_slice(&words[head..len]);
        let mut registers = [0; REGISTERS];
        registers[..self.shape.registers].copy_from_slice(&words[STANDING..head]);
        let target = Target {
            standing: unpack(&words),
            registers,
        };
        is_of(found, stamp, guards).then_some((target, pages))
    }

    pub(crate) fn put_question(&self, stamp: Stamp, question: Question, list: &[u64]) {
        let mut words = [0; 2 + PAGES];
        (words[0], words[1]) = match question {
            Question::Digest(digest) => (0, digest),
            Question::Area(area) => (1, area),
        };
        words[2..][..list.len()].copy_from_slice(list);
        self.question_at().write(stamp, &words[..2 + list.len()]);
    }

    /// The last question of the phase of `stamp`, its stamp, and how many pages are in `list`.
    pub(crate) fn question(
        &self,
        stamp: Stamp,
        list: &mut [u64; PAGES],
        guards: Guards,
    ) -> Option<(Stamp, Question, usize)> {
        let mut words = [0; 2 + PAGES];
        let (found, len) = self.question_at().read(&mut words, false)?;
        let pages = len.checked_sub(2)?;
        list[..pages].copy_from_slice(&words[2..len]);
        let question = match words[0] {
            0 => Question::Digest(words[1]),
            _ => Question::Area(words[1]),
        };
        let turn = Stamp {
            turn: found.turn,
            ..stamp
        };
        is_of(found, turn, guards).then_some((turn, question, pages))
    }

    pub(crate) fn put_answer(&self, reader: ReplicaId, stamp: Stamp, words: &[u64]) {
        self.answer_at(reader).write(stamp, words);
    }

    /// The answer to the question of the moment `stamp`, and of how many words it is.
    pub(crate) fn answer(
        &self,
        reader: ReplicaId,
        stamp: Stamp,
        words: &mut [u64],
        guards: Guards,
    ) -> Option<usize> {
        let (found, len) = self.answer_at(reader).read(words, false)?;
        is_of(found, stamp, guards).then_some(len)
    }

    /// The digest of this replica's state, over the pages that anybody has written.
    pub(crate) fn put_seal(&self, stamp: Stamp, digest: u64) {
        self.seal_at().write(stamp, &[digest]);
    }

    pub(crate) fn seal(&self, stamp: Stamp, guards: Guards) -> Option<u64> {
        let mut words = [0; 1];
        let (found, _) = self.seal_at().read(&mut words, false)?;
        is_of(found, stamp, guards).then_some(words[0])
    }

    pub(crate) fn put_verdict(&self, stamp: Stamp, verdict: Verdict) {
        let words = match verdict {
            Verdict::Charge(charged) => [1, u64::from(charged.bits())],
            Verdict::Agreed => [2, 0],
        };
        self.verdict_at().write(stamp, &words);
    }

    /// The last verdict and its moment.
    pub(crate) fn verdict(&self) -> Option<(Stamp, Verdict)> {
        let mut words = [0; 2];
        let (stamp, _) = self.verdict_at().read(&mut words, false)?;
        let verdict = match words[0] {
            1 => Verdict::Charge(ReplicaSet::from_bits(words[1].to_le_bytes()[0])),
            _ => Verdict::Agreed,
        };
        Some((stamp, verdict))
    }
}

fn is_of(found: Stamp, wanted: Stamp, guards: Guards) -> bool {
    found == wanted || guards.off(Bug::StampUnread)
}

fn pack(standing: &Standing) -> [u64; STANDING] {
    let [a, b] = standing.signature;
    let call = u64::from(standing.at_call);
    let Standing {
        events,
        progress,
        ip,
        left,
        counted: Counted { since, least, most },
        ..
    } = *standing;
    let since = u64::from(since);
    [events, a, b, call, progress, ip, left, since, least, most]
}

fn unpack(words: &[u64]) -> Standing {
    Standing {
        events: words[0],
        signature: [words[1], words[2]],
        at_call: words[3] != 0,
        progress: words[4],
        ip: words[5],
        left: words[6],
        counted: Counted {
            since: u32::try_from(words[7] & u64::from(u32::MAX)).expect("cut down"),
            least: words[8],
            most: words[9],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        replicas: 2,
        registers: 3,
        pages: 4,
        sheet: 8,
    };

    fn cells() -> [AtomicU64; SHAPE.words()] {
        [const { AtomicU64::new(0) }; SHAPE.words()]
    }

    const STAMP: Stamp = Stamp {
        generation: 3,
        epoch: 1,
        phase: 2,
        turn: 0,
    };

    const STANDING: Standing = Standing {
        events: 1,
        signature: [2, 3],
        at_call: true,
        progress: 4,
        ip: 5,
        left: 6,
        counted: Counted {
            since: 7,
            least: 8,
            most: 9,
        },
    };

    #[test]
    fn all_that_is_said_is_read_beside_each_other() {
        let cells = cells();
        let board = Board::new(&cells, SHAPE);
        let report = Report {
            came: Came::Equal,
            alike: ReplicaSet::all(2),
            nowhere: true,
            spoilt: true,
            passed: true,
            standing: STANDING,
        };
        let mut registers = [0; REGISTERS];
        registers[..3].copy_from_slice(&[7, 8, 9]);
        let target = Target {
            standing: STANDING,
            registers,
        };
        let reader = ReplicaId::new(1);
        let turn = Stamp { turn: 5, ..STAMP };
        let before = Stamp { phase: 1, ..STAMP };
        board.put_report(false, before, &report);
        board.put_report(true, STAMP, &report);
        board.put_target(STAMP, &target, &[1, 2]);
        board.put_question(turn, Question::Area(4), &[3]);
        board.put_answer(reader, turn, &[1, 2, 3]);
        board.put_verdict(STAMP, Verdict::Charge(ReplicaSet::all(1)));
        board.put_seal(STAMP, 77);
        let guards = Guards::ON;
        assert_eq!(board.report(before, guards), Some(report));
        assert_eq!(board.report(STAMP, guards), Some(report));
        assert_eq!(board.newest(), STAMP);
        assert_eq!(board.seal(STAMP, guards), Some(77));
        assert_eq!(board.seal(before, guards), None);
        let mut list = [0; PAGES];
        assert_eq!(board.target(STAMP, &mut list, guards), Some((target, 2)));
        assert_eq!(list[..2], [1, 2]);
        let asked = board.question(STAMP, &mut list, guards);
        assert_eq!(asked, Some((turn, Question::Area(4), 1)));
        assert_eq!(list[0], 3);
        let mut words = [0; 8];
        assert_eq!(board.answer(reader, turn, &mut words, guards), Some(3));
        assert_eq!(words[..3], [1, 2, 3]);
        let charge = Verdict::Charge(ReplicaSet::all(1));
        assert_eq!(board.verdict(), Some((STAMP, charge)));
    }

    #[test]
    fn posts_of_another_moment_are_not_there() {
        let cells = cells();
        let board = Board::new(&cells, SHAPE);
        let (came, alike) = (Came::Apart, ReplicaSet::empty());
        let standing = STANDING;
        board.put_report(
            true,
            STAMP,
            &Report {
                came,
                alike,
                nowhere: false,
                spoilt: false,
                passed: false,
                standing,
            },
        );
        for other in [
            Stamp {
                generation: 4,
                ..STAMP
            },
            Stamp { epoch: 2, ..STAMP },
            Stamp { phase: 4, ..STAMP },
        ] {
            assert_eq!(board.report(other, Guards::ON), None);
        }
    }
}
