//! The primary's side of [`crate::protocol::transfer`]: laying a result out in the ring, and making
//! sure that it is what the host gave.

use core::hint::black_box;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_core::{Checksum, MAX_RECORD};
use rcoe_linux_syscalls::{Content, Offset, Resolved};

use crate::calls::{Call, acting};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::protocol::reread::{File, LastRead};
use crate::protocol::segments::Segments;
use crate::protocol::transfer::{FIRST, Outcome};
use crate::protocol::{brief, direct};

/// Words of content in a full record.
const CONTENT: usize = MAX_RECORD - FIRST;

/// Primary: publishes the outcome and what the call filled.
pub(crate) fn publish(kernel: &mut Kernel, call: &Call, outcome: &Outcome) {
    let brief = kernel.signals.is_nothing_new(outcome)
        && brief::publish(
            &mut kernel.replica,
            (outcome.result, kernel.segments.only(outcome.result)),
            || black_box(outcome).result,
        );
    if !brief {
        publish_at_length(kernel, call, outcome);
    }
}

/// Primary: publishes a result with which nothing else has come, as it was noted. `what`: of the
/// call, where more is known of it; its effect was begun as `repeatable`, or not.
#[inline(always)]
pub(crate) fn publish_noted(kernel: &mut Kernel, call: &Call, what: &Resolved, repeatable: bool) {
    let Kernel {
        replica,
        segments,
        made,
        ..
    } = &mut *kernel;
    let result = made.noted();
    let filled = || segments.only_known(what, result);
    // Asked first: nothing is gained by finding out what a long one has filled.
    let brief = brief::is_short(result)
        && brief::publish_effect(replica, repeatable, (result, filled()), || made.noted());
    if !brief {
        publish_noted_apart(kernel, call);
    }
}

/// The same to several, or with a wait.
#[inline(never)]
fn publish_noted_apart(kernel: &mut Kernel, call: &Call) {
    let Kernel {
        replica,
        segments,
        made,
        ..
    } = &mut *kernel;
    let result = made.noted();
    let brief = brief::is_short(result)
        && brief::publish(replica, (result, segments.only(result)), || made.noted());
    if !brief {
        let outcome = kernel.signals.nothing_new(kernel.made.noted());
        publish_at_length(kernel, call, &outcome);
    }
}

#[inline(never)]
fn publish_at_length(kernel: &mut Kernel, call: &Call, outcome: &Outcome) {
    let result = acting::of_host(call, outcome.result);
    let at = read_at(call);
    let whole = at.is_some() && kernel.segments.settle_whole(result);
    if whole && publish_digest(kernel, call, outcome, at).is_some() {
        return;
    }
    if kernel.segments.settle(result).is_err() {
        panic!("the kernel wrote a length that cannot be read");
    }
    if !whole && publish_digest(kernel, call, outcome, at).is_some() {
        return;
    }
    let mut file = file_read(&mut kernel.last_read, call, outcome.result);
    let words = total(&kernel.segments);
    for part in 0..words.div_ceil(CONTENT) {
        publish_part(kernel, outcome, &mut file, part, share(part, words));
    }
}

/// The file that the call has read.
fn file_read(last: &mut LastRead, call: &Call, result: i64) -> Option<File> {
    let length = u64::try_from(result).ok()?;
    last.file(call.arg(0), read_at(call)?, length)
}

/// Where in its file a call reads: at an offset, or at its position.
#[expect(clippy::option_option, reason = "two questions")]
fn read_at(call: &Call) -> Option<Option<u64>> {
    let facts = &call.what.facts;
    match (facts.content, facts.offset) {
        (Content::Reads, Offset::At(offset)) => Some(Some(call.arg(usize::from(offset)))),
        (Content::Reads, Offset::Position) => Some(None),
        _ => None,
    }
}

/// Of a file that each replica can read itself: publishes a digest. None if nothing was done.
fn publish_digest(
    kernel: &mut Kernel,
    call: &Call,
    outcome: &Outcome,
    at: Option<Option<u64>>,
) -> Option<()> {
    let at = at?;
    let fd = call.arg(0);
    let noted = kernel.outgoing.reads_directly(fd)?;
    let plain = kernel.signals.is_nothing_new(outcome) && !kernel.turns.is_member();
    if !plain || kernel.masks {
        return None;
    }
    let Kernel {
        direct,
        replica,
        segments,
        ..
    } = &mut *kernel;
    let reading = direct::Reading {
        fd,
        at,
        result: outcome.result,
        noted,
    };
    direct.publish(replica, segments, reading)?;
    kernel.outgoing.read_directly(fd);
    Some(())
}

/// Which words of a result of `words` are in this part of it.
fn share(part: usize, words: usize) -> Range<usize> {
    let start = part * CONTENT;
    start..words.min(start + CONTENT)
}

/// Times that a record is written before the agent gives itself up: one flip in a register that
/// addresses memory spoils one of them.
const ATTEMPTS: usize = 3;

/// Publishes these words of the result as one record.
fn publish_part(
    kernel: &mut Kernel,
    outcome: &Outcome,
    file: &mut Option<File>,
    part: usize,
    range: Range<usize>,
) {
    let (segments, last) = (&kernel.segments, &mut kernel.last_read);
    let len = FIRST + range.len();
    let published = kernel.replica.publish_in_place(len, |cells| {
        let fill = |purpose| {
            let mut record = Record {
                cells,
                range: range.clone(),
                purpose,
                same: true,
            };
            record.word(0, part as u64);
            let laid_out = lay_out(segments, outcome, &mut record);
            record.same && range == share(part, laid_out)
        };
        assert!(
            put(fill, file, last),
            "what is published is what the host gave"
        );
        let [first, second] = cells;
        guest::checksum(second, guest::checksum(first, Checksum::EMPTY))
    });
    if let Err(halt) = published {
        kernel.park(halt);
    }
}

/// Has the record written, and compared with its source: read a second time if that is a file,
/// else copied. False if it never becomes what it is to be.
fn put(fill: impl Fn(Purpose) -> bool, file: &mut Option<File>, last: &mut LastRead) -> bool {
    let write = |purpose| {
        fill(purpose);
        fill(Purpose::Compare)
    };
    let reread = file.as_mut().is_some_and(|file| {
        write(Purpose::Reread(*file))
            || file.read_anew(last) && write(Purpose::Reread(*file))
            || file.make_sure(last) && {
                fill(Purpose::Restore(*file));
                write(Purpose::Reread(*file))
            }
    });
    reread || (0..ATTEMPTS).any(|_| write(Purpose::Copy))
}

/// Words of the whole result.
fn total(segments: &Segments) -> usize {
    let words = |(_, len)| 1 + convert::size(len).div_ceil(8);
    OUTCOME_WORDS + segments.filled().map(words).sum::<usize>()
}

/// Result, two words on what has arrived, order.
const OUTCOME_WORDS: usize = 4;

/// Goes through all words of the result, and says how many there are; the record picks its own.
#[inline(never)]
fn lay_out(segments: &Segments, outcome: &Outcome, record: &mut Record<'_>) -> usize {
    let head = [
        outcome.result.cast_unsigned(),
        outcome.due,
        outcome.taken,
        outcome.order,
    ];
    for (at, word) in head.into_iter().enumerate() {
        record.content_word(at, word);
    }
    let mut at = OUTCOME_WORDS;
    let mut before = 0;
    for (address, bytes) in segments.filled() {
        let len = convert::size(bytes);
        record.content_word(at, bytes);
        record.content_bytes(
            at + 1,
            Source {
                address,
                len,
                before,
            },
        );
        at += 1 + len.div_ceil(8);
        before += bytes;
    }
    at
}

/// What is done with the words of a record.
#[derive(Clone, Copy)]
enum Purpose {
    /// Written, from the program's memory.
    Copy,
    /// Written, bytes of the program from the file they were read from.
    Reread(File),
    /// The program's memory is read from the file again; the record stays as it is.
    Restore(File),
    /// Compared with the program's memory.
    Compare,
}

/// One record in the ring, being written or compared with what it is to hold.
///
/// A primary that publishes anything else than what the host gave would make all its followers
/// alike, and wrong: they would outvote it. So every record is compared with its source before it
/// is published.
struct Record<'a> {
    cells: [&'a [AtomicU64]; 2],
    /// Words of the result that lie in this record.
    range: Range<usize>,
    purpose: Purpose,
    same: bool,
}

impl Record<'_> {
    /// Word `at` of the record itself.
    fn word(&mut self, at: usize, word: u64) {
        let [first, second] = self.cells;
        let cell = first.get(at).unwrap_or_else(|| &second[at - first.len()]);
        match self.purpose {
            Purpose::Compare => self.same &= cell.load(Ordering::Relaxed) == word,
            Purpose::Copy | Purpose::Reread(_) => cell.store(word, Ordering::Relaxed),
            Purpose::Restore(_) => {}
        }
    }

    /// Word `at` of the result.
    fn content_word(&mut self, at: usize, word: u64) {
        if self.range.contains(&at) {
            self.word(FIRST + at - self.range.start, word);
        }
    }

    /// Bytes of the program, from word `at` of the result on.
    fn content_bytes(&mut self, at: usize, source: Source) {
        let words = at..at + source.len.div_ceil(8);
        let start = words.start.max(self.range.start);
        let end = words.end.min(self.range.end);
        if start >= end {
            return;
        }
        let skipped = (start - at) * 8;
        let len = (source.len - skipped).min((end - start) * 8);
        if !len.is_multiple_of(8) && !matches!(self.purpose, Purpose::Compare) {
            self.word(FIRST + end - 1 - self.range.start, 0);
        }
        self.bytes(FIRST + start - self.range.start, source.part(skipped, len));
    }

    /// Bytes of the program, from word `at` of the record on; the ring may wrap in between.
    fn bytes(&mut self, at: usize, source: Source) {
        let [first, second] = self.cells;
        let split = first.len().saturating_sub(at) * 8;
        let here = source.len.min(split);
        self.piece(&first[at.min(first.len())..], source.part(0, here));
        let rest = &second[at.saturating_sub(first.len())..];
        self.piece(rest, source.part(here, source.len - here));
    }

    fn piece(&mut self, cells: &[AtomicU64], source: Source) {
        let Source { address, len, .. } = source;
        if len == 0 {
            return;
        }
        match self.purpose {
            Purpose::Compare => self.same &= guest::equals_cells(cells, address, len),
            Purpose::Copy => {
                guest::copy_to_cells(cells, address, len).expect("the kernel has written here");
            }
            // What cannot be read again shows as a difference.
            Purpose::Reread(file) => file.put(cells, source.before, len),
            Purpose::Restore(file) => file.restore(address, source.before, len),
        }
    }
}

/// Bytes of the program that are part of a result.
#[derive(Clone, Copy)]
struct Source {
    address: u64,
    len: usize,
    /// Bytes of the result's data that come before them.
    before: u64,
}

impl Source {
    fn part(self, skip: usize, len: usize) -> Self {
        Self {
            address: self.address + skip as u64,
            len,
            before: self.before + skip as u64,
        }
    }
}
