//! The one place at which a replica is to be stopped: its stub, and the jump to it.
//!
//! Contract: there is a stub, and its area is mapped, exactly as long as the jump is in.

use linux_raw_sys::general::{PROT_EXEC, PROT_READ};

use crate::arch::entry::{Cpu, landing};
use crate::coupling::decode::Refused;
use crate::coupling::emit::Code;
use crate::coupling::patch::{self, Patch, Protection, Unwritten};
use crate::coupling::place::Window;
use crate::coupling::stub::{AREA, Data, Stop, Stub, Wanted};
use crate::memory::nearby::map_area;
use crate::one_thread::OneThread;
use crate::sys;

/// What the stub reads and writes.
#[unsafe(link_section = ".bss.own.1")]
static DATA: OneThread<Data> = OneThread::new(Data::ZERO);

fn data() -> &'static mut Data {
    // SAFETY: one kernel thread; the stub that uses it, too, does not run while the agent does.
    unsafe { &mut *DATA.get() }
}

/// How code is mapped in which replicas are stopped.
const CODE: Protection = Protection {
    bits: PROT_READ | PROT_EXEC,
    is_private: true,
};

/// Why there is no stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unplanted {
    /// No room within reach of the code.
    NoRoom,
    /// The window's instructions cannot be executed elsewhere.
    Refused(Refused),
    /// The code cannot be written.
    Unwritten(Unwritten),
}

/// A stub, or none.
#[derive(Debug)]
pub(crate) struct Site {
    stub: Option<Stub>,
    patch: Patch,
}

impl Site {
    /// Nothing is planted.
    pub(crate) const EMPTY: Self = Self {
        stub: None,
        patch: Patch::NONE,
    };

    /// Is there one?
    pub(crate) const fn is_planted(&self) -> bool {
        self.stub.is_some()
    }

    /// Stops this replica at the window when it has what is wanted, or at the first visit.
    ///
    /// # Errors
    /// The code is not of the kind that can be.
    pub(crate) fn plant(
        &mut self,
        window: &Window,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<(), Unplanted> {
        assert!(self.stub.is_none(), "one stub at a time");
        let area = map_area(window.at, AREA).ok_or(Unplanted::NoRoom)?;
        let planted = self.plant_at(area, window, wanted);
        if planted.is_err() {
            unmap(area);
        }
        planted
    }

    fn plant_at(
        &mut self,
        area: u64,
        window: &Window,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<(), Unplanted> {
        let mut code = Code::new();
        let (to, _) = landing();
        let stub = Stub::new(area, window, wanted, data(), to, &mut code);
        let stub = stub.map_err(Unplanted::Refused)?;
        patch::write(area, code.bytes(), CODE).map_err(Unplanted::Unwritten)?;
        let put_in = self.patch.put_in(window, stub.at, CODE);
        put_in.map_err(Unplanted::Unwritten)?;
        self.stub = Some(stub);
        Ok(())
    }

    /// Makes the code what it was.
    ///
    /// # Panics
    /// It cannot be: then nobody may go on with it.
    pub(crate) fn take_out(&mut self) {
        let Some(stub) = self.stub.take() else {
            return;
        };
        let done = self.patch.take_out(CODE);
        assert!(done.is_ok(), "code is put back: {done:?}");
        unmap(stub.at);
    }

    /// Where a replica goes on that is at the window and was refused there.
    pub(crate) fn past(&self) -> Option<u64> {
        self.stub.as_ref().map(Stub::past)
    }

    /// Where a replica goes on that is in the midst of the window.
    pub(crate) fn resumed(&self, rip: u64) -> u64 {
        self.stub.as_ref().map_or(rip, |stub| stub.resumed(rip))
    }

    /// Makes registers those that the program would have without a stub. False if it has to go on
    /// first, in the midst of what takes one instruction's place.
    pub(crate) fn original(&self, cpu: &mut Cpu) -> bool {
        let Some(stub) = &self.stub else {
            return true;
        };
        let within = stub.at..stub.at + AREA;
        stub.original(cpu, data()) != Stop::Elsewhere || !within.contains(&cpu.rip)
    }

    /// Where a replica goes on that has faulted at a word of memory that only others have.
    pub(crate) fn after_fault(&self, rip: u64) -> Option<u64> {
        self.stub.as_ref().and_then(|stub| stub.after_fault(rip))
    }

    /// Is this an address whose content the jump to the stub may have changed, so that the program
    /// cannot read there?
    pub(crate) const fn hides(&self, address: u64) -> bool {
        self.patch.hides(address)
    }

    /// The code is what it was for the one instruction that reads it, or no more. False if the host
    /// refuses.
    pub(crate) fn lift(&mut self, up: bool) -> bool {
        self.patch.lift(up).is_ok()
    }

    /// Visits to the stub.
    pub(crate) fn visits(&self) -> u64 {
        self.stub.as_ref().map_or(0, |_| data().visits())
    }

    /// The window at which the stub stands.
    pub(crate) fn window_at(&self) -> Option<u64> {
        self.stub.as_ref().map(|stub| stub.window().at)
    }
}

fn unmap(area: u64) {
    // SAFETY: an area of the agent's own, which nobody executes.
    let done = unsafe { sys::munmap(area, AREA) };
    done.expect("mapped until now");
}
