//! The event at which replicas differ, as a kernel has found it, and in words.

use rcoe_abi::{Syscall, trace};

/// What a replica recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Recorded {
    replica: u64,
    kind: u32,
    value: u64,
}

/// An event of which replicas recorded different versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its number in the trace, from 1.
    pub event: u64,
    /// Is it the first that differs? If not, what precedes it was not recorded any more.
    pub first: bool,
    recorded: Vec<Recorded>,
}

impl Difference {
    /// Reads what stands behind `event` in a line of a diary.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let event = words.next()?.parse().ok()?;
        let first = match words.next()? {
            "first" => true,
            "later" => false,
            _ => return None,
        };
        let recorded = words.map(recorded).collect::<Option<Vec<_>>>()?;
        Some(Self {
            event,
            first,
            recorded,
        })
    }

    /// Expected and seen, where the replica at fault is known; else what each has.
    #[must_use]
    pub fn in_words(&self, culprit: Option<u64>) -> String {
        let doubt = match self.first {
            true => "",
            false => ", maybe not the first that differs",
        };
        let event = format!("event {}{doubt}", self.event);
        let is_culprit = |it: &&Recorded| Some(it.replica) == culprit;
        let seen = self.recorded.iter().find(is_culprit);
        let expected = self.recorded.iter().find(|it| !is_culprit(it));
        let show = |it: Option<&Recorded>| it.map_or_else(|| "nothing".to_owned(), describe);
        if culprit.is_some() {
            return format!("{event}: expected {}, seen {}", show(expected), show(seen));
        }
        let each = self.recorded.iter();
        let each = each.map(|it| format!("replica {} {}", it.replica, describe(it)));
        format!("{event}: {}", each.collect::<Vec<_>>().join(", "))
    }
}

/// Replica, kind and value.
fn recorded(word: &str) -> Option<Recorded> {
    let mut parts = word.splitn(3, ':');
    Some(Recorded {
        replica: parts.next()?.parse().ok()?,
        kind: parts.next()?.parse().ok()?,
        value: parts.next()?.parse().ok()?,
    })
}

fn describe(recorded: &Recorded) -> String {
    let Recorded { kind, value, .. } = *recorded;
    let text = match trace::in_words(kind) {
        Some((_, 0)) if kind == trace::SYSCALL => "a call of another system".to_owned(),
        Some((text, 0)) => text.to_owned(),
        Some((text, number)) => {
            let call = Syscall::from_number(number.into()).map_or("of no name", Syscall::name);
            format!("{text} {call}")
        }
        None => format!("an event of no kind ({kind:#x})"),
    };
    format!("{text} ({value:#x})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Difference {
        Difference::parse(text).unwrap()
    }

    #[test]
    fn a_known_culprit_is_told_as_expected_and_seen() {
        let difference = read("17 first 0:6:18 1:6:19 2:6:18");
        assert_eq!((difference.event, difference.first), (17, true));
        assert_eq!(
            difference.in_words(Some(1)),
            "event 17: expected data that a program added to the trace (0x12), \
             seen data that a program added to the trace (0x13)"
        );
    }

    #[test]
    fn without_a_culprit_each_is_told_and_so_is_doubt() {
        let call = trace::of_call(Syscall::Yield as u32);
        let text = format!("9 later 0:{call}:0 1:{}:5", trace::SYSCALL);
        assert_eq!(
            read(&text).in_words(None),
            "event 9, maybe not the first that differs: replica 0 the system call Yield (0x0), \
             replica 1 a call of another system (0x5)"
        );
    }

    #[test]
    fn garbage_is_described_or_refused() {
        let wild = read("1 first 0:4294967295:18446744073709551615");
        assert!(wild.in_words(Some(0)).contains("an event of no kind"));
        assert!(wild.in_words(Some(3)).contains("seen nothing"));
        for text in [
            "",
            "1",
            "x first",
            "1 second",
            "1 first 0:1",
            "1 first 0:x:1",
        ] {
            assert_eq!(Difference::parse(text), None, "{text}");
        }
    }
}
