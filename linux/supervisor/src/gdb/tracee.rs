//! One replica under ptrace: its registers, its memory, and where it is to be stopped.
//!
//! Contract: whoever calls knows that the replica is stopped, but for its memory, which can be
//! reached at any time. What fails because the replica is gone fails silently: its end is the
//! reaper's to tell.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rcoe_linux_abi::scene::{STUB_BYTES, STUB_CALL, STUB_ENTRY};
use rcoe_linux_abi::{AGENT_BASE, AGENT_END};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::registers::Registers;
use crate::numbers::SIGTRAP;

/// `int3`.
pub(super) const INT3: u8 = 0xcc;

/// Why a replica stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Before the program's first instruction.
    Start,
    /// At a breakpoint of the debugger's.
    Breakpoint,
    /// One instruction was made.
    Step,
    /// The debugger has interrupted the program.
    Pause,
    /// The program is about to get this signal for what it did.
    Fault(i32),
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    Stands(Why),
    Gone,
}

/// What follows when a replica comes to a trap that is set for it alone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Stand(Why),
    /// A handler of the agent's returns: its context lies there, and the program was to make one
    /// instruction from the second address.
    Return(u64, u64),
    /// The handler has not moved the program, which makes its instruction now.
    Again,
}

#[derive(Clone, Copy, Debug)]
struct Trap {
    at: u64,
    original: u8,
    then: Then,
}

/// A replica that is traced.
#[derive(Debug)]
pub(super) struct Tracee {
    pub(super) index: usize,
    pub(super) pid: Pid,
    pub(super) state: State,
    memory: File,
    trap: Option<Trap>,
}

/// What came of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// It was made; the replica stands behind it.
    Made,
    /// A signal came first, or instead.
    Signal(i32),
    Gone,
}

impl Tracee {
    /// Begins to trace a replica, which goes on.
    pub(super) fn seize(index: usize, pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).map_err(io::Error::other)?;
        let pid = Pid::from_raw(number);
        let born = ptrace::Options::PTRACE_O_TRACEFORK
            | ptrace::Options::PTRACE_O_TRACEVFORK
            | ptrace::Options::PTRACE_O_TRACECLONE;
        ptrace::seize(pid, born)?;
        Ok(Self {
            index,
            pid,
            state: State::Runs,
            memory: open_memory(pid)?,
            trap: None,
        })
    }

    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.memory.read_at(bytes, address).unwrap_or(0)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        (self.read(address, &mut byte) == 1).then_some(byte[0])
    }

    /// Does it stand at an instruction that the agent carries out for the program: `cpuid`, one
    /// that reads the time stamp counter, or what stands in the place of such a one?
    pub(super) fn is_at_emulated(&self) -> bool {
        let mut code = [0; 3];
        let known = self.general().map(|user| self.read(user.rip, &mut code));
        let emulated: [&[u8]; 4] = [
            &[0x0f, 0xa2],
            &[0x0f, 0x31],
            &[0x0f, 0x01, 0xf9],
            &[0xf4, 0x90],
        ];
        known.is_some() && emulated.iter().any(|it| code.starts_with(it))
    }

    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    }

    pub(super) fn registers(&self) -> nix::Result<Registers> {
        let unit = ptrace::getregset::<ptrace::regset::NT_PRFPREG>(self.pid)?;
        Ok(Registers::new(&ptrace::getregs(self.pid)?, &unit))
    }

    pub(super) fn set_registers(&self, all: &Registers) -> nix::Result<()> {
        let mut user = ptrace::getregs(self.pid)?;
        let mut unit = ptrace::getregset::<ptrace::regset::NT_PRFPREG>(self.pid)?;
        all.store(&mut user, &mut unit);
        ptrace::setregset::<ptrace::regset::NT_PRFPREG>(self.pid, unit)?;
        ptrace::setregs(self.pid, user)
    }

    pub(super) fn general(&self) -> Option<nix::libc::user_regs_struct> {
        ptrace::getregs(self.pid).ok()
    }

    /// The next instruction that it makes is this one.
    pub(super) fn set_rip(&self, rip: u64) {
        if let Some(mut user) = self.general() {
            user.rip = rip;
            let _ = ptrace::setregs(self.pid, user);
        }
    }

    /// The signal of the fault at which it stands, or 0.
    pub(super) const fn fault(&self) -> i32 {
        match self.state {
            State::Stands(Why::Fault(signal)) => signal,
            _ => 0,
        }
    }

    /// It goes on, and takes a signal.
    pub(super) fn go(&mut self, signal: i32) {
        self.state = State::Runs;
        let _ = ptrace::cont(self.pid, Signal::try_from(signal).ok());
    }

    /// It is traced no more, goes on, and takes a signal.
    pub(super) fn release(&mut self, signal: i32) {
        self.take_trap();
        self.state = State::Gone;
        let _ = ptrace::detach(self.pid, Signal::try_from(signal).ok());
    }

    /// It stops at this address, once.
    pub(super) fn set_trap(&mut self, at: u64, then: Then) {
        self.take_trap();
        if let Some(original) = self.byte(at)
            && self.write(at, &[INT3]).is_ok()
        {
            self.trap = Some(Trap { at, original, then });
        }
    }

    pub(super) const fn has_trap(&self) -> bool {
        self.trap.is_some()
    }

    /// The trap is no more; what was to follow from it, if it was at this address.
    pub(super) fn spring(&mut self, at: u64) -> Option<Then> {
        let then = self.trap.filter(|trap| trap.at == at)?.then;
        self.take_trap();
        Some(then)
    }

    fn take_trap(&mut self) {
        if let Some(Trap { at, original, .. }) = self.trap.take() {
            heal(&self.memory, at, original);
        }
    }

    /// Where bytes are that a process born of this one must not have, and what belongs there.
    pub(super) fn trap(&self) -> Option<(u64, u8)> {
        self.trap.map(|trap| (trap.at, trap.original))
    }

    /// Has it make one instruction, or begin to handle a signal.
    pub(super) fn step(&self, signal: i32) -> Stepped {
        if ptrace::step(self.pid, Signal::try_from(signal).ok()).is_err() {
            return Stepped::Gone;
        }
        let Some(pid) = rustix::process::Pid::from_raw(self.pid.as_raw()) else {
            return Stepped::Gone;
        };
        // An end is left for the reaper.
        let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), look) {
            Ok(Some(status)) if status.trapped() || status.stopped() => {
                let take = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(pid), take);
                match status.trapping_signal().or(status.stopping_signal()) {
                    Some(SIGTRAP) => Stepped::Made,
                    Some(other) => Stepped::Signal(other),
                    None => Stepped::Gone,
                }
            }
            _ => Stepped::Gone,
        }
    }

    /// Whether this address is in a stub that stands for a rewritten call.
    pub(super) fn is_stub(&self, address: u64) -> bool {
        let stub = address - address % STUB_BYTES;
        let entry = self.word(stub.wrapping_add(STUB_ENTRY)).unwrap_or(0);
        let call = self.word(stub.wrapping_add(STUB_CALL)).unwrap_or(0);
        is_agent(entry) && call != 0 && !is_agent(call)
    }
}

/// Whether this is an address of the agent's.
pub(super) fn is_agent(address: u64) -> bool {
    (AGENT_BASE as u64..AGENT_END as u64).contains(&address)
}

/// The memory of a process that is traced.
pub(super) fn open_memory(pid: Pid) -> io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    File::options().read(true).write(true).open(path)
}

/// Puts a byte of the program back, unless something else than a trap is there by now.
pub(super) fn heal(memory: &File, at: u64, original: u8) {
    let mut byte = [0];
    if matches!(memory.read_at(&mut byte, at), Ok(1)) && byte == [INT3] {
        let _ = memory.write_all_at(&[original], at);
    }
}
