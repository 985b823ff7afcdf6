//! What the protocol core of a replica has published, read from its outbox.
//!
//! Contract: nothing read here is trusted further than a report goes, because a faulty replica can
//! have written it; the judge believes majorities only.

use std::sync::atomic::Ordering::Relaxed;

use rcoe_core::diagnose::{self, Divergence, first_divergence, latest_event, report};
use rcoe_core::{Cause, Halt as CoreHalt, HaltState, Kind, MAX_REPLICAS, ReplicaId, ReplicaSet};

use rcoe_linux_abi::event;

use crate::events::DivergenceKind;
use crate::judge::Halt;
use crate::memory::Memory;
use crate::notes::call;

/// Phase of a ballot in which its verdict is final.
const COMPLETE: u8 = 3;

/// The published words that matter to the judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// Why this replica stopped for good, if it did.
    pub(crate) halt: Option<Halt>,
    /// The members of its group by its account, one bit each.
    pub(crate) members: Option<u8>,
    /// Rendezvous so far.
    pub(crate) rendezvous: u64,
}

impl Published {
    /// Reads the outbox of replica `index`.
    pub(crate) fn read(memory: &Memory, index: usize) -> Self {
        let report = report(memory.outbox(index));
        let halt = match report.halt {
            HaltState::Running => None,
            HaltState::Halted {
                halt: CoreHalt::Convicted,
                ..
            } => Some(Halt::Convicted),
            // A damaged word asks for attention as a fail-stop does; alone it is outvoted.
            HaltState::Halted { .. } | HaltState::Garbled(_) => Some(Halt::FailStop),
        };
        // A replica publishes its new membership only after those voted out are gone, so the
        // completed verdict of its last vote counts as well.
        let accused = if report.phase == COMPLETE {
            report.verdict.bits()
        } else {
            0
        };
        let known = if report.epoch == 0 {
            u8::MAX
        } else {
            report.members.bits()
        };
        let members = Some(known & !accused);
        Self {
            halt,
            members,
            rendezvous: report.rendezvous,
        }
    }
}

/// What the outboxes tell about a divergence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: DivergenceKind,
    /// The replica at fault, if the replicas agree on one.
    pub(crate) suspect: Option<usize>,
    /// Number of the first event that differs.
    pub(crate) event: Option<u64>,
    pub(crate) detail: String,
}

impl Finding {
    /// Reads all outboxes; `suspect` is the replica that was convicted, if one was.
    pub(crate) fn gather(memory: &Memory, suspect: Option<usize>) -> Self {
        let mut outboxes = [None; MAX_REPLICAS];
        for (index, outbox) in outboxes.iter_mut().enumerate().take(memory.replicas()) {
            *outbox = Some(memory.outbox(index));
        }
        let reports = outboxes
            .iter()
            .flatten()
            .map(|outbox| report(outbox))
            .collect::<Vec<_>>();
        let mut absent = reports
            .iter()
            .fold(ReplicaSet::empty(), |all, it| all.union(it.absent));
        let mut cause = None;
        for report in &reports {
            match report.halt {
                HaltState::Halted { halt, culprits } if halt != CoreHalt::Convicted => {
                    cause = Some(halt);
                    if halt == CoreHalt::FailStop(Cause::Timeout) {
                        absent = absent.union(culprits);
                    }
                }
                _ => {}
            }
        }
        let missing = match suspect {
            Some(index) => absent.iter().any(|id| id.index() == index),
            None => cause == Some(CoreHalt::FailStop(Cause::Timeout)),
        };
        let suspect = suspect.or_else(|| sole(absent).filter(|_| missing));
        let kind = match (missing, cause) {
            (true, _) => DivergenceKind::Timeout,
            (_, Some(CoreHalt::LostEffect)) => DivergenceKind::Death,
            _ => DivergenceKind::Mismatch,
        };
        let difference = match kind {
            DivergenceKind::Mismatch => first_divergence(&outboxes, latest_event(&outboxes)),
            _ => None,
        };
        let mut parts = vec![cause.map_or(summary(kind), reason).to_owned()];
        parts.extend(difference.as_ref().map(|it| compare(it, suspect)));
        parts.extend(calls(memory));
        Self {
            kind,
            suspect,
            event: difference.map(|it| it.event),
            detail: parts.join("; "),
        }
    }
}

/// The only member of a set.
fn sole(set: ReplicaSet) -> Option<usize> {
    set.lowest()
        .filter(|_| set.len() == 1)
        .map(ReplicaId::index)
}

const fn summary(kind: DivergenceKind) -> &'static str {
    match kind {
        DivergenceKind::Timeout => "it did not come in time",
        _ => "it differs from the others",
    }
}

const fn reason(halt: CoreHalt) -> &'static str {
    match halt {
        CoreHalt::FailStop(Cause::Mismatch) => "the replicas differ and none can tell who is right",
        CoreHalt::FailStop(Cause::Timeout) => "a replica did not come in time",
        CoreHalt::FailStop(Cause::Disagreement) => "the replicas disagree on who is at fault",
        CoreHalt::FailStop(Cause::NoMajority) => "too few replicas agree",
        CoreHalt::FailStop(Cause::Livelock) => "the replicas vote again and again and find nothing",
        CoreHalt::LostEffect => {
            "the primary was lost inside an outside effect, which may have happened or not"
        }
        CoreHalt::Convicted => "it was outvoted",
        CoreHalt::Broken => "it found itself broken",
        CoreHalt::NotAdmitted => "it was not taken in",
    }
}

/// Expected and seen, where the replica at fault is known; else what each has.
fn compare(difference: &Divergence, suspect: Option<usize>) -> String {
    let event = difference.event;
    let show = |recorded: Option<(Kind, u64)>| {
        recorded.map_or("nothing".into(), |(Kind(code), value)| {
            describe(code, value)
        })
    };
    let all = difference.recorded.iter().enumerate();
    if let Some(suspect) = suspect {
        let expected = all
            .clone()
            .find(|(index, it)| *index != suspect && it.is_some());
        let expected = expected.and_then(|(_, it)| *it);
        let seen = difference.recorded[suspect];
        return format!(
            "event {event}: expected {}, seen {}",
            show(expected),
            show(seen)
        );
    }
    let each = all.filter(|(_, it)| it.is_some());
    let each = each
        .map(|(index, it)| format!("replica {index} {}", show(*it)))
        .collect::<Vec<_>>();
    format!("event {event}: {}", each.join(", "))
}

/// What a replica has recorded as this event, in words.
pub(crate) fn recorded(memory: &Memory, index: usize, event: u64) -> Option<String> {
    let noted = diagnose::recorded(memory.outbox(index), event)?;
    let Kind(code) = noted.kind;
    let values = &noted.values[..noted.len.min(noted.values.len())];
    match event::split(code) {
        Some((number, event::CALL)) if values.len() > 1 => Some(whole_call(number, values)),
        _ => Some(describe(code, values[0])),
    }
}

/// A call with all that it brings.
fn whole_call(number: u64, values: &[u64]) -> String {
    let count = rcoe_linux_syscalls::entry(number).map_or(values.len(), |it| it.nargs.into());
    let arguments = values.iter().skip(event::ARG as usize).take(count);
    let arguments: Vec<String> = arguments.map(|value| format!("{value:#x}")).collect();
    let name = rcoe_linux_syscalls::name(number);
    let content = values[event::CONTENT as usize];
    let content = match content {
        0 => String::new(),
        digest => format!(" with content of digest {digest:#x}"),
    };
    format!("{name}({}){content}", arguments.join(", "))
}

/// An event in words.
fn describe(code: u32, value: u64) -> String {
    let Some((number, what)) = event::split(code) else {
        return "nothing".into();
    };
    let name = rcoe_linux_syscalls::name(number);
    match what {
        event::BEFORE => format!("result {} before {name}", value.cast_signed()),
        event::CONTENT => format!("{name} content (digest {value:#x})"),
        event::ARG..event::NUMBER => format!("{name} argument {} = {value:#x}", what - event::ARG),
        event::NUMBER => format!("system call {}", call(number)),
        event::RESULT => format!("{name} result {}", value.cast_signed()),
        // A replica that has come to none has an event of its own.
        event::POINT if value > u64::from(u32::MAX) => "no point between calls".into(),
        event::POINT => format!("point {value} between calls"),
        event::TURN => format!("turn {value} among the processes that share memory"),
        event::TRACE => format!("data given to rcoe_add_trace (digest {value:#x})"),
        event::FAULTY_POINTER => format!("{name} with an unreadable buffer at {value:#x}"),
        event::FAULT => format!("a fault ({value:#x})"),
        event::END => format!("the program's end ({value:#x})"),
        event::INSTRUCTION => format!("a trapped instruction ({value:#x})"),
        event::SIGNALS => format!("signals {value:#x}"),
        event::LAYOUT => format!("memory layout {value:#x}"),
        _ => format!("unknown event {code:#x} = {value:#x}"),
    }
}

/// The system call in which each replica is or was last.
fn calls(memory: &Memory) -> Option<String> {
    let numbers = (0..memory.replicas()).map(|index| memory.report(index).in_call.load(Relaxed));
    let numbers = numbers.collect::<Vec<_>>();
    let name = |number: u64| match number.checked_sub(1) {
        None => "in the program".into(),
        Some(number) => format!("in system call {}", call(number)),
    };
    let first = *numbers.first()?;
    if numbers.iter().all(|&number| number == first) {
        return Some(format!("all {}", name(first)));
    }
    let each = numbers.iter().enumerate();
    let each = each.map(|(index, &number)| format!("replica {index} {}", name(number)));
    Some(each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(recorded: &[Option<(Kind, u64)>]) -> Divergence {
        let mut all = [None; MAX_REPLICAS];
        all[..recorded.len()].copy_from_slice(recorded);
        Divergence {
            event: 17,
            recorded: all,
        }
    }

    #[test]
    fn a_known_suspect_is_told_as_expected_and_seen() {
        let arg = Kind(event::code(1, event::ARG + 2));
        let text = compare(&difference(&[Some((arg, 4)), Some((arg, 5))]), Some(1));
        assert_eq!(
            text,
            "event 17: expected write argument 2 = 0x4, seen write argument 2 = 0x5"
        );
    }

    #[test]
    fn without_suspect_each_is_told() {
        let call = |nr| Some((Kind(event::code(nr, event::NUMBER)), 0));
        let text = compare(&difference(&[call(0), None, call(1)]), None);
        let expected = "event 17: replica 0 system call read (0), replica 2 system call write (1)";
        assert_eq!(text, expected);
    }

    #[test]
    fn garbage_is_described_too() {
        for code in [0, 1, 24, 31, 32, u32::MAX] {
            assert!(!describe(code, u64::MAX).is_empty());
        }
    }
}
