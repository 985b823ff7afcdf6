//! Which pages are looked at next.
//!
//! Pages of which no replica has a copy of its own come from one file, or are empty, and need no
//! look. The kernel's tables are read for many looks at once. Of the memory that processes share
//! those pages are looked at that have content in some slice, and none besides: reading them would
//! give them some.

use std::collections::VecDeque;
use std::fs::{File, read_to_string};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use rcoe_linux_abi::{PAGE, SCRUB_PAGES};

use crate::slices::page_number;
use crate::team::Team;
use crate::twins::{has_own_page, private_areas};

const WINDOW: usize = SCRUB_PAGES;
/// Pages whose entries are read at a time.
const CHUNK: u64 = 4096;
/// Chunks gone through for one plan, and looks that are enough for one.
const SEARCHED: usize = 16;
const ENOUGH: usize = 16;

/// Looks to come, each a range of pages by number, and where to go on.
#[derive(Debug, Default)]
pub(super) struct Plan {
    looks: VecDeque<Range<u64>>,
    next: u64,
    /// Passes over all memory that were begun.
    pub(super) passes: u64,
}

impl Plan {
    /// The pages to look at next; `None` if there are none, or none that were found yet. With
    /// `slices` the memory that the process shares with others is among them.
    pub(super) fn next(&mut self, team: &Team, slices: bool) -> Option<Range<u64>> {
        if self.looks.is_empty() {
            self.refill(team, slices);
        }
        self.looks.pop_front()
    }

    fn refill(&mut self, team: &Team, slices: bool) -> Option<()> {
        let pids = team.members().filter_map(|index| team.group.pid(index));
        let tables = pids.map(|pid| File::open(format!("/proc/{pid}/pagemap")).ok());
        let tables: Vec<File> = tables.collect::<Option<_>>()?;
        let primary = team.group.pid(team.primary()?)?;
        let maps = read_to_string(format!("/proc/{primary}/maps")).ok()?;
        let from = slices.then_some(self.next);
        let areas = areas(team, &maps, from);
        for _ in 0..SEARCHED {
            let Some((range, kind)) = areas.iter().find(|(range, _)| range.end > self.next) else {
                self.next = 0;
                self.passes += 1;
                break;
            };
            let start = self.next.max(range.start);
            let end = range.end.min(start + CHUNK * PAGE);
            self.next = end;
            let pages = start / PAGE..end / PAGE;
            match kind {
                Kind::Private { of_file } => {
                    let own = own_pages(&tables, pages, *of_file);
                    self.looks.extend(windows(start / PAGE, &own));
                }
                Kind::Slices(content) => {
                    self.looks.extend(pieces(content, &pages));
                    // There may be more of them than was looked for.
                    break;
                }
            }
            if self.looks.len() >= ENOUGH {
                break;
            }
        }
        Some(())
    }
}

/// What an area holds.
enum Kind {
    Private {
        of_file: bool,
    },
    /// Memory that processes share; which pages of it have content.
    Slices(Vec<Range<u64>>),
}

/// The areas of a process that are looked at, in the order of their addresses; what of the slices
/// comes next from `slices` on among them.
fn areas(team: &Team, maps: &str, slices: Option<u64>) -> Vec<(Range<u64>, Kind)> {
    let own = private_areas(maps).into_iter();
    let own = own.map(|(range, of_file)| (range, Kind::Private { of_file }));
    let mut all: Vec<(Range<u64>, Kind)> = own.collect();
    // What cannot be found out is looked at in the next pass.
    let content = slices.and_then(|from| content(team, from).ok());
    let content = content.unwrap_or_default();
    if let (Some(first), Some(last)) = (content.first(), content.last()) {
        let range = first.start * PAGE..last.end * PAGE;
        all.push((range, Kind::Slices(content)));
        all.sort_by_key(|(range, _)| range.start);
    }
    all
}

/// The next pages of the slices from an address on, by number and in order, of which some slice has
/// content.
fn content(team: &Team, from: u64) -> io::Result<Vec<Range<u64>>> {
    let arena = team.memory.arena()?;
    let from = from.saturating_sub(page_number(0) * PAGE);
    let mut start = None;
    for slice in team.members() {
        let next = arena.data(slice, from.max(arena.compared().start))?;
        start = start.into_iter().chain(next).min();
    }
    let mut all = Vec::new();
    for slice in team.members() {
        let within = start.map_or(0..0, |start| start..start + CHUNK * PAGE);
        all.extend(arena.content(slice, within)?);
    }
    all.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in all {
        let pages = page_number(range.start)..page_number(range.end + PAGE - 1);
        match joined.last_mut() {
            Some(last) if pages.start <= last.end => last.end = last.end.max(pages.end),
            _ => joined.push(pages),
        }
    }
    Ok(joined)
}

/// Looks at those of the pages that are within `window`.
fn pieces(content: &[Range<u64>], window: &Range<u64>) -> Vec<Range<u64>> {
    let within = content
        .iter()
        .map(|it| it.start.max(window.start)..it.end.min(window.end));
    let look = |pages: Range<u64>| {
        let starts = (pages.start..pages.end).step_by(WINDOW);
        starts.map(move |at| at..pages.end.min(at + SCRUB_PAGES as u64))
    };
    within.filter(|it| !it.is_empty()).flat_map(look).collect()
}

/// Of which of these pages some process has a copy of its own.
fn own_pages(tables: &[File], pages: Range<u64>, of_file: bool) -> Vec<bool> {
    let count = usize::try_from(pages.end - pages.start).unwrap_or(0);
    let mut own = vec![false; count];
    let mut bytes = vec![0; count * 8];
    for table in tables {
        if table.read_exact_at(&mut bytes, pages.start * 8).is_err() {
            continue;
        }
        let (entries, _) = bytes.as_chunks();
        for (own, entry) in own.iter_mut().zip(entries) {
            *own |= has_own_page(u64::from_le_bytes(*entry), of_file);
        }
    }
    own
}

/// Ranges of pages, none longer than a look, that hold all from page `first` on that count.
fn windows(first: u64, own: &[bool]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(more) = own[at..].iter().position(|own| *own) {
        let start = at + more;
        at = own.len().min(start + WINDOW);
        let last = own[start..at].iter().rposition(|own| *own).unwrap_or(0);
        let number = |index: usize| first + u64::try_from(index).unwrap_or(0);
        found.push(number(start)..number(start + last + 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_pages_are_seen() {
        let pagemap = [File::open("/proc/self/pagemap").expect("of this process")];
        let memory = vec![1_u8; 3 * usize::try_from(PAGE).expect("small")];
        let inside = (memory.as_ptr() as u64).div_ceil(PAGE);
        assert_eq!(own_pages(&pagemap, inside..inside + 1, false), [true]);
        assert_eq!(own_pages(&pagemap, 0..16, false), [false; 16]);
    }

    #[test]
    fn windows_hold_all_own_pages_and_little_else() {
        assert_eq!(windows(7, &[]), []);
        assert_eq!(windows(7, &[false; 100]), []);
        assert_eq!(windows(7, &[true; 130]), [7..71, 71..135, 135..137]);
        let mut some = [false; 200];
        some[3] = true;
        some[60] = true;
        some[199] = true;
        assert_eq!(windows(100, &some), [103..161, 299..300]);
    }

    #[test]
    fn of_shared_memory_only_what_has_content_is_looked_at() {
        let content = [5..6, 100..300];
        assert_eq!(pieces(&content, &(0..4)), []);
        assert_eq!(pieces(&content, &(0..200)), [5..6, 100..164, 164..200]);
        assert_eq!(pieces(&content, &(200..4096)), [200..264, 264..300]);
    }
}
