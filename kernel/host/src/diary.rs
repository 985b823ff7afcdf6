//! What replicas write into their diaries: lines of a word and its arguments.

use crate::Difference;

/// A line of a replica's diary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// All replicas run; so many.
    Start(u64),
    /// A replica was removed, for this reason: `mismatch` or `timeout`; and by which vote. Each
    /// survivor tells it, some when the replica is a member again.
    Removed(u64, String, u64),
    /// A lost replica is a member again, as a copy of another.
    Joined(u64),
    /// It could not be brought back, for this reason; it will be tried again.
    Abandoned(u64, String),
    /// Replicas differ, and this is the event at which they do; `None` if they recorded none.
    Event(Option<Difference>),
    /// This member's memory is other than that of most, so it is not copied.
    Differs(u64),
    /// This replica is the primary from here on.
    Primary(u64),
    /// The machine stops because of a fault that cannot be masked.
    FailStop(String),
    /// The others outvoted this replica.
    Convicted,
    /// This replica found itself broken.
    Broken(String),
    /// A thread without a fault handler faulted.
    Unhandled(String),
    /// The kernel cannot start.
    Refused(String),
    /// A personality tells the user something beside the program's output.
    Note(String),
    /// At the end: processor cycles since the start, events, rendezvous.
    Stats([u64; 3]),
    /// At the end: interrupts delivered and their cycles, replicas removed and the cycles of that,
    /// and the same of those that were brought back; portions of copies and the cycles of the
    /// longest; points at one instruction and the cycles of coming there, and how many of them were
    /// at events.
    Meter([u64; 11]),
    /// A bit was changed in this replica at this cycle, as somebody asked for.
    Flipped(u64),
    /// A fault was found at this cycle.
    Noticed(u64),
    /// Anything else.
    Other(String),
}

impl Entry {
    /// Reads a line. Whatever a faulty replica wrote is an entry.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = |text: &str| text.parse::<u64>().ok();
        let known = match word {
            "start" => number(rest).map(Self::Start),
            "primary" => number(rest).map(Self::Primary),
            "joined" => number(rest).map(Self::Joined),
            "differs" => number(rest).map(Self::Differs),
            "event" if rest == "unknown" => Some(Self::Event(None)),
            "event" => Difference::parse(rest).map(|found| Self::Event(Some(found))),
            "abandoned" => reason(rest).map(|(who, why)| Self::Abandoned(who, why)),
            "removed" => removal(rest),
            "fail-stop" => Some(Self::FailStop(rest.to_owned())),
            "convicted" => Some(Self::Convicted),
            "panic" | "exception" | "shutdown" | "withdraws" => Some(Self::Broken(line.to_owned())),
            "unhandled" => Some(Self::Unhandled(line.to_owned())),
            "stats" => numbers(rest).map(Self::Stats),
            "meter" => numbers(rest).map(Self::Meter),
            "flipped" => number(rest).map(Self::Flipped),
            "noticed" => number(rest).map(Self::Noticed),
            "note" => Some(Self::Note(rest.to_owned())),
            "refused" => Some(Self::Refused(rest.to_owned())),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other(line.to_owned()))
    }
}

/// A number and a reason.
fn reason(text: &str) -> Option<(u64, String)> {
    let (who, why) = text.split_once(' ')?;
    Some((who.parse().ok()?, why.to_owned()))
}

/// A number, a reason and the number of a vote.
fn removal(text: &str) -> Option<Entry> {
    let (who, rest) = reason(text)?;
    let (why, vote) = rest.rsplit_once(' ')?;
    Some(Entry::Removed(who, why.to_owned(), vote.parse().ok()?))
}

fn numbers<const COUNT: usize>(text: &str) -> Option<[u64; COUNT]> {
    let numbers: Vec<u64> = text
        .split(' ')
        .map_while(|word| word.parse().ok())
        .collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_and_garbage_is_kept() {
        assert_eq!(Entry::parse("start 3"), Entry::Start(3));
        assert_eq!(
            Entry::parse("removed 2 timeout 17"),
            Entry::Removed(2, "timeout".into(), 17)
        );
        assert_eq!(
            Entry::parse("abandoned 1 they differ"),
            Entry::Abandoned(1, "they differ".into())
        );
        assert_eq!(Entry::parse("differs 1"), Entry::Differs(1));
        assert_eq!(Entry::parse("primary 1"), Entry::Primary(1));
        assert_eq!(Entry::parse("flipped 5"), Entry::Flipped(5));
        assert_eq!(Entry::parse("noticed 6"), Entry::Noticed(6));
        assert_eq!(Entry::parse("event unknown"), Entry::Event(None));
        let event = Entry::parse("event 7 first 0:1:2 1:1:3");
        assert!(matches!(
            event,
            Entry::Event(Some(Difference { event: 7, .. }))
        ));
        assert_eq!(
            Entry::parse("fail-stop mismatch"),
            Entry::FailStop("mismatch".into())
        );
        assert_eq!(
            Entry::parse("withdraws timeout"),
            Entry::Broken("withdraws timeout".into())
        );
        assert_eq!(Entry::parse("stats 1 2 3"), Entry::Stats([1, 2, 3]));
        let meter = Entry::Meter([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(Entry::parse("meter 1 2 3 4 5 6 7 8 9 10 11"), meter);
        for garbage in [
            "",
            "start",
            "start x",
            "removed 1",
            "removed 1 timeout",
            "removed x y 1",
            "removed 1 timeout x",
            "stats 1 2",
            "event 1 first 0:1",
            "\u{fffd}\u{fffd} 7",
        ] {
            assert_eq!(Entry::parse(garbage), Entry::Other(garbage.into()));
        }
    }
}
