//! The one place at which a replica is to be stopped: its stub, and the jump to it; or a
//! breakpoint of the processor where the code is not to be changed.
//!
//! Contract: there is a stub, and its area is mapped, exactly as long as the jump is in. There is a
//! stub or a breakpoint, or neither.

use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
use rcoe_core::coupling::States;

use crate::arch::entry::{Cpu, landing};
use crate::coupling::decode::Refused;
use crate::coupling::emit::Code;
use crate::coupling::patch::{self, Patch, Protection, Unwritten};
use crate::coupling::place::Window;
use crate::coupling::stub::{AREA, Data, Stop, Stops, Stub, Wanted};
use crate::coupling::watch::Watch;
use crate::memory::nearby::{close_area, map_area, map_open_area};
use crate::one_thread::OneThread;
use crate::sys::{self, Errno};

/// The flag with which a breakpoint at the next instruction is passed by.
const RESUME: u64 = 1 << 16;

/// What the stub reads and writes.
#[unsafe(link_section = ".bss.own.1")]
static DATA: OneThread<Data> = OneThread::new(Data::ZERO);

fn data() -> &'static mut Data {
    // SAFETY: one kernel thread; the stub that uses it, too, does not run while the agent does.
    unsafe { &mut *DATA.get() }
}

/// How code is mapped in which replicas are stopped, and that of stubs.
const CODE: Protection = Protection {
    bits: PROT_READ | PROT_EXEC,
    is_private: true,
};

/// How a window is.
const fn protection(window: &Window) -> Protection {
    let write = if window.is_writable { PROT_WRITE } else { 0 };
    Protection {
        bits: CODE.bits | write,
        ..CODE
    }
}

/// Why there is no stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unplanted {
    /// No room within reach of the code.
    NoRoom,
    /// The window's instructions cannot be executed elsewhere.
    Refused(Refused),
    /// The code cannot be written.
    Unwritten(Unwritten),
    /// There is no breakpoint.
    Unwatched(Errno),
}

/// A place at which a replica can be stopped, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot {
    /// By a jump to a stub.
    Jump(Window),
    /// By a breakpoint, where the program may change its code.
    Breakpoint(u64),
}

impl Spot {
    /// Its address.
    pub(crate) const fn at(&self) -> u64 {
        match self {
            Self::Jump(window) => window.at,
            Self::Breakpoint(at) => *at,
        }
    }

    /// Does it take the place of the instruction there, or stop before it?
    pub(crate) fn takes(&self, instruction: u64) -> bool {
        match self {
            Self::Jump(window) => (window.at..window.end()).contains(&instruction),
            Self::Breakpoint(at) => *at == instruction,
        }
    }
}

/// A stub, a breakpoint, or none.
#[derive(Debug)]
pub(crate) struct Site {
    stub: Option<Stub>,
    patch: Patch,
    watch: Option<Watch>,
}

impl Site {
    /// Nothing is planted.
    pub(crate) const EMPTY: Self = Self {
        stub: None,
        patch: Patch::NONE,
        watch: None,
    };

    /// Is there one?
    pub(crate) const fn is_planted(&self) -> bool {
        self.stub.is_some() || self.watch.is_some()
    }

    /// Is it a breakpoint at this address?
    pub(crate) fn is_watched(&self, at: u64) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.at == at)
    }

    /// Stops this replica whenever it is there, from this CPU time on.
    ///
    /// # Errors
    /// There is no breakpoint.
    pub(crate) fn watch(&mut self, at: u64, now: u64) -> Result<(), Unplanted> {
        assert!(!self.is_planted(), "one place at a time");
        let watch = Watch::set(at, now).map_err(Unplanted::Unwatched)?;
        self.watch = Some(watch);
        Ok(())
    }

    /// Has the processor a breakpoint for this address?
    pub(crate) fn can_watch(at: u64) -> bool {
        Watch::set(at, 0).map(Watch::end).is_ok()
    }

    /// This replica has come by the breakpoint, at this CPU time.
    pub(crate) fn note_visit(&mut self, now: u64) {
        if let Some(watch) = &mut self.watch {
            watch.note(now);
        }
    }

    /// Stops this replica at the window, then if ever.
    ///
    /// # Errors
    /// The code is not of the kind that can be.
    pub(crate) fn plant(&mut self, window: &Window, stops: Stops<'_>) -> Result<(), Unplanted> {
        assert!(!self.is_planted(), "one place at a time");
        let stub = match made(window, stops, map_open_area, fill) {
            // By a host that lets nothing be executed that could be written.
            Err(Unplanted::Unwritten(_)) => made(window, stops, map_area, write_closed)?,
            made => made?,
        };
        let put_in = self.patch.put_in(window, stub.at, protection(window));
        match put_in {
            Ok(_) => self.stub = Some(stub),
            Err(_) => unmap(stub.at),
        }
        put_in.map(drop).map_err(Unplanted::Unwritten)
    }

    /// From here on the stub that stands stops this replica when it has what is wanted. The jump to
    /// it stays in. False if there is none, or if its code cannot be written: then it has to be
    /// taken out.
    pub(crate) fn want(&mut self, wanted: &Wanted<'_>) -> bool {
        let Some(stub) = &self.stub else {
            return false;
        };
        let mut code = Code::new();
        let (to, _) = landing();
        let stops = Stops::At(wanted);
        let new = Stub::new(stub.at, stub.window(), stops, data(), to, &mut code);
        match new {
            Ok(new) if write_closed(stub.at, code.bytes()).is_ok() => {
                self.stub = Some(new);
                true
            }
            _ => false,
        }
    }

    /// Makes the code what it was.
    ///
    /// # Panics
    /// It cannot be: then nobody may go on with it.
    pub(crate) fn take_out(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end();
        }
        let Some(stub) = self.stub.take() else {
            return;
        };
        let done = self.patch.take_out(protection(stub.window()));
        assert!(done.is_ok(), "code is put back: {done:?}");
        unmap(stub.at);
    }

    /// A replica that is at the place and was refused there goes on behind it.
    pub(crate) fn pass(&self, cpu: &mut Cpu) {
        match &self.stub {
            Some(stub) => cpu.rip = stub.past(),
            None => cpu.rflags |= RESUME,
        }
    }

    /// A replica goes on that is anywhere, and comes to the place if it is there.
    pub(crate) fn resume(&self, cpu: &mut Cpu) {
        if self.is_watched(cpu.rip) {
            cpu.rflags &= !RESUME;
        }
        if let Some(stub) = &self.stub {
            cpu.rip = stub.resumed(cpu.rip);
        }
    }

    /// Makes registers those that the program would have without a stub, and tells where in the
    /// stub it was. `None` if it has to go on first, in the midst of what takes one instruction's
    /// place.
    pub(crate) fn original(&self, cpu: &mut Cpu) -> Option<Stop> {
        let Some(stub) = &self.stub else {
            return Some(Stop::Elsewhere);
        };
        let within = stub.at..stub.at + AREA;
        let stop = stub.original(cpu, data());
        (stop != Stop::Elsewhere || !within.contains(&cpu.rip)).then_some(stop)
    }

    /// Where a replica goes on that has faulted at a word of memory that only others have.
    pub(crate) fn after_fault(&self, rip: u64) -> Option<u64> {
        self.stub.as_ref().and_then(|stub| stub.after_fault(rip))
    }

    /// Is this an address whose content the jump to the stub may have changed, so that the program
    /// cannot read there, or cannot write?
    pub(crate) const fn hides(&self, address: u64) -> bool {
        self.patch.hides(address)
    }

    /// The code is what it was, for one instruction. False if the host refuses.
    pub(crate) fn lift(&mut self) -> bool {
        self.patch.lift().is_ok()
    }

    /// The jump is in again. False if the instruction has changed the code there.
    ///
    /// # Panics
    /// The host refuses.
    pub(crate) fn put_back(&mut self) -> bool {
        let Some(stub) = &self.stub else {
            return false;
        };
        match self.patch.put_back(stub.window()) {
            Err(Unwritten::Changed) => false,
            done => done.map(|()| true).expect("code is written as before"),
        }
    }

    /// Visits to the stub, if there is one.
    pub(crate) fn visits(&self) -> u64 {
        self.stub.as_ref().map_or(0, |_| data().visits())
    }

    /// Is everybody stopped there who has what is wanted? A breakpoint may miss a visit.
    pub(crate) const fn is_certain(&self) -> bool {
        self.stub.is_some()
    }

    /// How much of the CPU time since it was planted went into visits.
    pub(crate) fn toll(&self, since: u64) -> u64 {
        match (&self.stub, &self.watch) {
            (Some(_), _) => since - States::progress(data().visits(), since),
            (_, Some(watch)) => watch.toll(since),
            (None, None) => 0,
        }
    }

    /// The place at which it stands.
    pub(crate) fn place(&self) -> Option<u64> {
        let stub = self.stub.as_ref().map(|stub| stub.window().at);
        stub.or_else(|| self.watch.as_ref().map(|watch| watch.at))
    }
}

/// Makes a stub in an area that is mapped and written in these ways.
fn made(
    window: &Window,
    stops: Stops<'_>,
    map: fn(u64, u64) -> Option<u64>,
    write: fn(u64, &[u8]) -> Result<(), Unwritten>,
) -> Result<Stub, Unplanted> {
    let area = map(window.at, AREA).ok_or(Unplanted::NoRoom)?;
    let mut code = Code::new();
    let (to, _) = landing();
    let stub = Stub::new(area, window, stops, data(), to, &mut code);
    let stub = stub.map_err(Unplanted::Refused).and_then(|stub| {
        let written = write(area, code.bytes());
        written.map(|()| stub).map_err(Unplanted::Unwritten)
    });
    if stub.is_err() {
        unmap(area);
    }
    stub
}

/// Writes the code of a stub into an area that can be written, and is executed from then on.
fn fill(area: u64, bytes: &[u8]) -> Result<(), Unwritten> {
    patch::fill(area, bytes)?;
    close_area(area, AREA).map_err(Unwritten::Refused)
}

/// The same where it can be executed already.
fn write_closed(area: u64, bytes: &[u8]) -> Result<(), Unwritten> {
    patch::write(area, bytes, CODE).map(drop)
}

fn unmap(area: u64) {
    // SAFETY: an area of the agent's own, which nobody executes.
    let done = unsafe { sys::munmap(area, AREA) };
    done.expect("mapped until now");
}
