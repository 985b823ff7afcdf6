//! Jumps that code is given as it is mapped: stubs in rows near the code, and the way back.
//!
//! What a stub is: [`crate::arch::detour`] for a `cpuid`, [`saved`] for an `xsave`,
//! [`crate::arch::rewrite`] for a call.
//! Which of them get one is known with what else was found in a file. A jump lies within one page,
//! so that a page that is read anew from its file has all of what stood there.

use core::ops::Range;

use rcoe_linux_abi::PAGE;

use crate::arch::clusters::CALL;
use crate::arch::detour::{self, JUMP, STUB, TRAP};
use crate::arch::recognise::Found;
use crate::arch::rewrite::{Rewriter, jump, patch, read_code, write_code};
use crate::arch::saved;
use crate::arch::sites::{PLANTED, Traps};

/// Most stubs that are made at once. What goes beyond traps.
const MOST: usize = 64;
/// Bytes that are looked at from a `cpuid` on.
const NEAR: usize = 16;

/// Is there room for a jump in the place of what was found? If so, what that is, and the bytes that
/// no branch may lead into.
pub(super) fn room(at: u64, end: u64, what: Found) -> Option<(Found, Range<u64>)> {
    if what == Found::Call {
        return Some((what, at + 1..at + CALL as u64));
    }
    let found = match what {
        Found::Saved(_) => what,
        Found::Cpuid => Found::Asked(asked_window(at, end)?),
        _ => return None,
    };
    let jump = at..at + JUMP as u64;
    let within = jump.start / PAGE == (jump.end - 1) / PAGE;
    within.then_some((found, jump.start + 1..jump.end))
}

/// Bytes that a jump in the place of the `cpuid` there takes up.
fn asked_window(at: u64, end: u64) -> Option<u8> {
    let mut code = [0; NEAR];
    if at + NEAR as u64 > end || read_code(&mut code, at).is_none() {
        return None;
    }
    u8::try_from(detour::window(&code)?).ok()
}

/// Where a program's sites are kept.
pub(super) struct Tables<'a> {
    pub(super) rewriter: &'a mut Rewriter,
    pub(super) traps: &'a mut Traps,
    /// Calls that were rewritten.
    pub(super) calls: u64,
}

/// A row of stubs for the sites of one piece of code, in order.
pub(super) struct Row {
    start: u64,
    count: usize,
    next: usize,
}

impl Row {
    const NONE: Self = Self {
        start: 0,
        count: 0,
        next: 0,
    };

    /// Makes stubs for those of these sites that can have one.
    pub(super) fn make(
        tables: &mut Tables<'_>,
        sites: impl Iterator<Item = (u64, Found)> + Clone,
    ) -> Self {
        let jumps = sites.filter(|(_, what)| is_jump(*what));
        let count = jumps.clone().count().min(MOST);
        let Some((first, _)) = jumps.clone().next() else {
            return Self::NONE;
        };
        Self::fill(tables, first, count, jumps).unwrap_or(Self::NONE)
    }

    fn fill(
        tables: &mut Tables<'_>,
        near: u64,
        count: usize,
        sites: impl Iterator<Item = (u64, Found)>,
    ) -> Option<Self> {
        let start = tables.rewriter.allocate_row(near, count)?;
        let mut stubs = [[0; STUB]; MOST];
        let places = (start..).step_by(STUB);
        for ((stub, place), (at, what)) in stubs[..count].iter_mut().zip(places).zip(sites) {
            let mut code = [0; NEAR];
            let len = match what {
                Found::Asked(len) | Found::Saved(len) => usize::from(len),
                _ => CALL,
            };
            read_code(&mut code[..len], at)?;
            if what == Found::Call {
                *stub = tables.rewriter.adopt(place, at, &code[..len])?;
                tables.calls += 1;
                continue;
            }
            if matches!(what, Found::Saved(_)) {
                *stub = saved::stub(place, at, &code[..len])?;
                continue;
            }
            *stub = detour::stub(place, at, &code[..len]);
            if !tables.traps.has_room(place + TRAP as u64) {
                return None;
            }
            tables.traps.add(place + TRAP as u64, Found::Cpuid);
        }
        patch(start, stubs[..count].as_flattened())?;
        Some(Self {
            start,
            count,
            next: 0,
        })
    }

    /// The stub of the next of those sites, if it has one.
    pub(super) fn next(&mut self, what: Found) -> Option<u64> {
        if !is_jump(what) {
            return None;
        }
        let index = self.next;
        self.next += 1;
        (index < self.count).then_some(self.start + (index * STUB) as u64)
    }
}

/// Does a jump take its place?
const fn is_jump(what: Found) -> bool {
    matches!(what, Found::Asked(_) | Found::Saved(_) | Found::Call)
}

/// Rewrites a site, in code that can be written to; false if it cannot.
pub(super) fn plant(at: u64, what: Found, stub: Option<u64>) -> bool {
    match (what, stub) {
        (_, Some(stub)) => write_code(at, &jump(at, stub)).is_some(),
        (Found::Call | Found::Saved(_), None) => true,
        _ => write_code(at, &PLANTED).is_some(),
    }
}

/// Code is about to go elsewhere: what was a jump becomes an instruction that traps, or what it
/// was.
pub(super) fn undo(traps: &Traps, start: u64, len: u64) {
    let end = start.saturating_add(len);
    for (at, what) in traps.all() {
        if (start..end).contains(&at) {
            // What cannot be read or written is no jump of ours any more.
            let _ = undo_one(at, what);
        }
    }
}

fn undo_one(at: u64, what: Found) -> Option<()> {
    let len = match what {
        Found::Asked(len) | Found::Saved(len) => usize::from(len),
        _ => return None,
    };
    let (mut code, mut stub) = ([0; JUMP], [0; STUB]);
    read_code(&mut code, at)?;
    read_code(&mut stub, detour::target(at, code)?)?;
    if matches!(what, Found::Saved(_)) {
        return patch(at, &saved::original(&stub)?);
    }
    code[..PLANTED.len()].copy_from_slice(&PLANTED);
    let moved = detour::moved(&stub, len)?;
    code[PLANTED.len()..].copy_from_slice(&moved[..JUMP - PLANTED.len()]);
    patch(at, &code)
}
