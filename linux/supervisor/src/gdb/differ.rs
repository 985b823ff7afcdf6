//! What differs between the replicas of a program that stands still: registers, and memory that the
//! program can write.
//!
//! Contract: the agent's memory is left out. What is told is bounded: the first places only.

use super::replicas::Replicas;
use super::tracee::{Tracee, is_agent};
use crate::scene::{Area, areas};

/// Bytes that are compared at once.
const PIECE: usize = 1 << 16;
/// Places that are told of, for each replica.
const PLACES: usize = 16;
/// Memory that is compared at every stop; more is when it is asked for.
const QUICK: u64 = 64 << 20;

/// How much is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Registers,
    /// Memory, too, if there is little of it.
    Quick,
    All,
}

impl Replicas {
    /// What differs from the replica that is shown, a line each; nothing if nothing does.
    pub(super) fn differences(&self, depth: Depth) -> Vec<String> {
        let Some(shown) = self.shown() else {
            return Vec::new();
        };
        let areas = match depth {
            Depth::Registers => Vec::new(),
            _ => writable(shown),
        };
        let total: u64 = areas.iter().map(|it| it.end - it.start).sum();
        let areas = if depth == Depth::All || total <= QUICK {
            areas
        } else {
            Vec::new()
        };
        let others = self.living().filter(|it| it.index != shown.index);
        let all = others.map(|other| {
            let mut lines = registers(shown, other);
            lines.extend(memory(shown, other, &areas));
            lines
        });
        all.flatten().collect()
    }

    /// Where each replica stands, a line each.
    pub(super) fn places(&self) -> Vec<String> {
        let place = |it: &Tracee| {
            let rip = it.registers().map_or(0, |registers| registers.rip);
            let (index, pid) = (it.index, it.pid);
            format!("replica {index} (process {pid}) at {rip:#x}")
        };
        self.living().map(place).collect()
    }
}

fn registers(shown: &Tracee, other: &Tracee) -> Vec<String> {
    let (Ok(one), Ok(two)) = (shown.registers(), other.registers()) else {
        return Vec::new();
    };
    let names = one.differing(&two);
    if names.is_empty() {
        return Vec::new();
    }
    let rips = format!("rip {:#x} and {:#x}", one.rip, two.rip);
    let (one, two) = (shown.index, other.index);
    let names = names.join(", ");
    vec![format!(
        "replicas {one} and {two} differ in {names}; {rips}"
    )]
}

/// The program's memory that it can write, as long as it is no other process's.
fn writable(shown: &Tracee) -> Vec<Area> {
    let mut all = areas(shown.pid.as_raw().cast_unsigned());
    all.retain(|it| it.may.starts_with("rw") && it.may.ends_with('p') && !is_agent(it.start));
    all
}

fn memory(shown: &Tracee, other: &Tracee, areas: &[Area]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left_out = 0_u64;
    let (one, two) = (shown.index, other.index);
    for area in areas {
        let mut at = area.start;
        while at < area.end {
            let bytes = usize::try_from(area.end - at).map_or(PIECE, |left| left.min(PIECE));
            for (place, mine, theirs) in words_that_differ(shown, other, at, bytes) {
                if lines.len() == PLACES {
                    left_out += 1;
                    continue;
                }
                lines.push(format!(
                    "replicas {one} and {two} differ at {place:#x}{}: {mine:#018x} and \
                     {theirs:#018x}",
                    within(area)
                ));
            }
            at += bytes as u64;
        }
    }
    if left_out > 0 {
        lines.push(format!(
            "replicas {one} and {two} differ in {left_out} more words"
        ));
    }
    lines
}

fn within(area: &Area) -> String {
    match area.name.as_str() {
        "" => String::new(),
        name => format!(" in {name}"),
    }
}

/// Words of this range that are not alike, and what both have there.
fn words_that_differ(one: &Tracee, two: &Tracee, at: u64, bytes: usize) -> Vec<(u64, u64, u64)> {
    let [mut mine, mut theirs] = [vec![0; bytes], vec![0; bytes]];
    one.read(at, &mut mine);
    two.read(at, &mut theirs);
    if mine == theirs {
        return Vec::new();
    }
    let (mine, theirs) = (mine.as_chunks::<8>().0, theirs.as_chunks::<8>().0);
    let pairs = mine.iter().zip(theirs).zip((at..).step_by(8));
    let differ = pairs.filter(|((mine, theirs), _)| mine != theirs);
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    differ
        .map(|((mine, theirs), at)| (at, word(mine), word(theirs)))
        .collect()
}
