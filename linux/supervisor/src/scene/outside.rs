//! Looks at a replica from outside, as a debugger does.
//!
//! Contract: a replica that the kernel does not stop in time is let be. Its ends are never taken in
//! here: they are the reaper's.
//!
//! Not covered: threads of the program other than the one that has the processor. They are the
//! agent's, and no threads of the host.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::unistd::Pid;
use rcoe_linux_abi::scene::{
    GENERAL, LASTING, RAX, REGISTERS, RIP, RSP, STACK_WORDS, STUB_CALL, STUB_RETURN,
};
use rcoe_linux_abi::{AGENT_BASE, AGENT_END};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::{CallSeen, Place, Registers, call_of};

/// How long a replica may take to stop.
const STOPPING: Duration = Duration::from_millis(200);
/// Between two looks at it.
const LOOK: Duration = Duration::from_micros(50);

/// A replica that stands still, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Stopped {
    pid: Pid,
    memory: File,
}

impl Stopped {
    /// Stops it; `None` if it is gone, or the host does not let us.
    pub(crate) fn new(pid: u32) -> Option<Self> {
        let number = i32::try_from(pid).ok()?;
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let pid = Pid::from_raw(number);
        ptrace::seize(pid, ptrace::Options::empty()).ok()?;
        let stopped = Self { pid, memory };
        ptrace::interrupt(pid).ok()?;
        let deadline = Instant::now() + STOPPING;
        let of_it = WaitId::Pid(rustix::process::Pid::from_raw(number)?);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while Instant::now() < deadline {
            match waitid(of_it.clone(), options) {
                Ok(Some(_)) => return Some(stopped),
                Ok(None) => sleep(LOOK),
                Err(_) => break,
            }
        }
        None
    }

    /// Reads its memory; returns how many bytes could be read.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.memory.read_at(bytes, address).unwrap_or(0)
    }

    /// Where the program stands. Within the agent that is what the entry has saved at `frame`, if
    /// that is known.
    pub(crate) fn place(&self, frame: u64) -> Option<Place> {
        let now = ptrace::getregs(self.pid).ok()?;
        let bases = [now.fs_base, now.gs_base];
        let general = [
            now.r15, now.r14, now.r13, now.r12, now.r11, now.r10, now.r9, now.r8, now.rdi, now.rsi,
            now.rbp, now.rbx, now.rdx, now.rcx, now.rax,
        ];
        let is_agent = (AGENT_BASE as u64..AGENT_END as u64).contains(&now.rip);
        if is_agent {
            let saved = words(&self.memory, frame, REGISTERS);
            return saved_place(&self.memory, &saved, bases);
        }
        let registers = Registers {
            rip: now.rip,
            rsp: now.rsp,
            general,
        };
        Some(place_at(&self.memory, registers, bases, None))
    }
}

/// Where the program stands in a replica that waits in a vote, or halts: read while it may still
/// run, as it no longer leaves the call of which it has saved the registers at `frame`. `None` if
/// they are not those of the call whose number is at `asked`.
pub(crate) fn place_in_vote(pid: u32, frame: u64, asked: u64) -> Option<Place> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let saved = words(&memory, frame, REGISTERS);
    let call = words(&memory, asked, 1).first()? & !LASTING;
    let place = saved_place(&memory, &saved, [0, 0])?;
    (saved.get(RAX) == Some(&call)).then_some(place)
}

/// What the entry has saved.
fn saved_place(memory: &File, saved: &[u64], bases: [u64; 2]) -> Option<Place> {
    let general: [u64; GENERAL] = saved.get(..GENERAL)?.try_into().ok()?;
    let registers = Registers {
        rip: *saved.get(RIP)?,
        rsp: *saved.get(RSP)?,
        general,
    };
    let call = Some(call_of(general[RAX], &general));
    Some(place_at(memory, registers, bases, call))
}

/// A place, with what the replica's memory tells of it.
fn place_at(memory: &File, registers: Registers, bases: [u64; 2], call: Option<CallSeen>) -> Place {
    let stub = registers.rip.wrapping_sub(STUB_RETURN);
    let behind = words(memory, stub.wrapping_add(STUB_CALL), 1);
    Place {
        behind: behind.first().copied().unwrap_or(0),
        stack: words(memory, registers.rsp, STACK_WORDS),
        registers,
        bases,
        call,
    }
}

/// As many words of a replica's memory as can be read.
fn words(memory: &File, address: u64, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; count * 8];
    let read = memory.read_at(&mut bytes, address).unwrap_or(0);
    let (words, _) = bytes[..read].as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // One that did not stop stays attached, and is ended before long.
        let _ = ptrace::detach(self.pid, None);
    }
}

/// The order of `struct user_regs_struct`, which core files have.
pub(crate) fn user_registers(place: &Place) -> Vec<u64> {
    const ORDER: [usize; 10] = [0, 1, 2, 3, 10, 11, 4, 5, 6, 7];
    const REST: [usize; 5] = [14, 13, 12, 9, 8];
    let Registers { rip, rsp, general } = place.registers;
    let number = place.call.as_ref().map_or(u64::MAX, |call| call.number);
    let mut all: Vec<u64> = ORDER.iter().chain(&REST).map(|&at| general[at]).collect();
    let [fs, gs] = place.bases;
    all.extend([number, rip, 0x33, 0x202, rsp, 0x2b, fs, gs, 0, 0, 0, 0]);
    all
}
