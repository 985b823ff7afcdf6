//! The choice of the place at which a replica is stopped: the next one on its way that can take a
//! five-byte jump.
//!
//! From where it was interrupted a replica goes on for certain as far as nothing branches, and
//! into the target of a direct jump or call. On this way the first place is taken where one
//! instruction fills the jump, for nobody can enter the midst of it; else the first that will do.
//! If there is none, the replica takes one step and is asked again.
//!
//! Contract: the program's code is as it was mapped: no patch of [`crate::coupling::patch`] is in.
//!
//! Not covered: indirect branches into the midst of a window of several instructions; jumps into
//! code from other mappings than its own.

use core::ops::Range;

use crate::convert::size;
use crate::coupling::decode::{Decoded, Flow, LONGEST, Refused};
use crate::coupling::entered;
use crate::memory::guest;

/// Bytes of a jump.
pub(crate) const JUMP: usize = 5;
/// Most bytes of instructions that a jump overwrites, wholly or in part.
pub(crate) const MOST: usize = JUMP - 1 + LONGEST;
/// Instructions that are looked at on the way.
const WAY: usize = 24;

/// Instructions that a jump overwrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Where it begins.
    pub(crate) at: u64,
    /// The program can write to it.
    pub(crate) is_writable: bool,
    len: u8,
    code: [u8; MOST],
}

impl Window {
    /// The instructions.
    pub(crate) fn code(&self) -> &[u8] {
        &self.code[..usize::from(self.len)]
    }

    /// Where the next instruction begins.
    pub(crate) fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }

    /// Each instruction with its address.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = (u64, Decoded, &[u8])> {
        let mut offset = 0;
        core::iter::from_fn(move || {
            let code = self.code().get(offset..).filter(|code| !code.is_empty())?;
            let at = self.at + offset as u64;
            let found = Decoded::new(code, at).expect("decoded when it was chosen");
            offset += usize::from(found.len);
            Some((at, found, code))
        })
    }
}

/// Where the program's code is, around an instruction pointer.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings<'a> {
    /// The mapping of code.
    pub(crate) code: Range<u64>,
    /// What is not the program's: the agent, the vDSO, areas of stubs.
    pub(crate) others: &'a [Range<u64>],
    /// It was made at run time, and is writable or not.
    pub(crate) made: Option<Made>,
    /// As long as this number stays the same so does the code; `None` if it may change at any time.
    pub(crate) changes: Option<u64>,
}

/// Code that the program has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) is_writable: bool,
}

impl Surroundings<'_> {
    /// Is this the program's code?
    fn check(&self, at: u64) -> Result<(), Refused> {
        if self.others.iter().any(|other| other.contains(&at)) {
            return Err(Refused::NotTheProgram);
        }
        // Whoever looks for branches reads some bytes ahead.
        if at < self.code.start || at + MOST as u64 > self.code.end {
            return Err(Refused::NoCode);
        }
        Ok(())
    }

    /// As many bytes of code as a window may have.
    pub(crate) fn read(&self, at: u64) -> Result<[u8; MOST], Refused> {
        self.check(at)?;
        guest::read::<[u8; MOST]>(at).map_err(|_| Refused::NoCode)
    }
}

/// What to do with a replica that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It comes to this place for certain, and can be stopped there.
    At(Window),
    /// Let it execute one instruction, and ask again.
    Step(Refused),
    /// It comes to a system call for certain, at this address: a point by itself.
    Call(u64),
    /// There is no place in this code.
    Refused(Refused),
}

/// The next place for a replica that was interrupted at `rip`.
pub(crate) fn choose(rip: u64, around: &Surroundings<'_>) -> Choice {
    if let Err(refused) = around.check(rip) {
        return Choice::Refused(refused);
    }
    let way = Way::from(rip, around);
    let wide = |at: &&u64| is_wide(**at, around);
    let wide = way.places().iter().filter(wide);
    let all = way.places().iter();
    let mut first = None;
    for at in wide.chain(all) {
        match window(*at, around) {
            Ok(found) => return Choice::At(found),
            Err(refused) => first = first.or(Some(refused)),
        }
    }
    match way.call {
        Some(at) => Choice::Call(at),
        None => Choice::Step(first.unwrap_or(Refused::TooShort)),
    }
}

/// Does the first instruction fill a jump?
fn is_wide(at: u64, around: &Surroundings<'_>) -> bool {
    let code = around.read(at);
    let found = code.and_then(|code| Decoded::new(&code, at));
    found.is_ok_and(|it| usize::from(it.len) >= JUMP)
}

/// The window that begins there.
///
/// # Errors
/// It cannot take a jump.
pub(crate) fn window(at: u64, around: &Surroundings<'_>) -> Result<Window, Refused> {
    let code = around.read(at)?;
    let mut len = 0;
    while len < JUMP {
        let here = at + len as u64;
        let found = Decoded::new(&code[len..], here)?;
        if let Some(refused) = found.fixed {
            return Err(refused);
        }
        if around.made.is_some() {
            fits_into_made(&found)?;
        }
        len += usize::from(found.len);
        if matches!(found.flow, Flow::To(_) | Flow::Away) && len < JUMP {
            return Err(Refused::TooShort);
        }
    }
    if entered::is_entered(at + 1..at + JUMP as u64, around) {
        return Err(Refused::InnerBranch);
    }
    Ok(Window {
        at,
        is_writable: around.made.is_some_and(|made| made.is_writable),
        len: u8::try_from(len).map_err(|_| Refused::Unknown)?,
        code,
    })
}

/// What a program makes is entered by more than direct branches, and it looks up constants there:
/// only one instruction that fills a jump, and holds none, has nobody see the jump.
const fn fits_into_made(found: &Decoded) -> Result<(), Refused> {
    match () {
        () if found.holds => Err(Refused::Constant),
        () if (found.len as usize) < JUMP => Err(Refused::TooShort),
        () => Ok(()),
    }
}

/// Instructions that are executed for certain, in order.
struct Way {
    places: [u64; WAY],
    count: usize,
    /// The system call to which they lead.
    call: Option<u64>,
}

impl Way {
    fn from(rip: u64, around: &Surroundings<'_>) -> Self {
        let mut way = Self {
            places: [0; WAY],
            count: 0,
            call: None,
        };
        let mut at = rip;
        while way.count < WAY && !way.places().contains(&at) {
            let found = around.read(at).and_then(|code| Decoded::new(&code, at));
            let Ok(found) = found else { break };
            if found.fixed == Some(Refused::SystemCall) {
                way.call = Some(at);
                break;
            }
            way.places[way.count] = at;
            way.count += 1;
            at = match found.flow {
                // An instruction that traps may never be done with.
                _ if found.fixed == Some(Refused::Traps) => break,
                Flow::On => at + u64::from(found.len),
                Flow::To(target) => target,
                Flow::Either(_) | Flow::Away => break,
            };
        }
        way
    }

    fn places(&self) -> &[u64] {
        &self.places[..size(self.count as u64)]
    }
}
