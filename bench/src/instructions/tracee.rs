//! One process that executes its instructions one at a time.
//!
//! It is seized by ptrace and resumed with `PTRACE_SINGLESTEP` only. A step over a system call may
//! last: its end is looked for without blocking, so that another process can be stepped meanwhile
//! that this one waits for. Every other step ends by itself, and is waited for.
//!
//! Each step takes the CPU away, and rcoe's agent looks whether that has happened before it makes
//! an effect ([`Kind::Look`]). What counts is a replica that is left alone: that look finds none.
//!
//! The agent's timer of CPU time ([`TICK`]) counts what steps take, a thousand times what the
//! program does: what it tells is left out.
//!
//! Each round of a repeated string instruction (`rep movsb`) is a step of its own: that is how the
//! processor traps, and it is work.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rcoe_faultlab::points::symbols::agent_image;

use super::profile::address_of;

/// What one iteration took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Instructions in user mode.
    pub(super) instructions: u64,
    /// Those of them that were `syscall`.
    pub(super) host_calls: u64,
    /// How often it looked in vain for what others had yet to do.
    pub(super) looks: u64,
}

/// What matters of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pause,
    Syscall,
    /// The agent compares the word in which the kernel tells of a loss of the CPU.
    Look,
    Other,
}

/// By which the host tells the agent that the program has computed for so long.
const TICK: Signal = Signal::SIGPWR;

/// The structure in whose second word the kernel tells of that.
const AREA: &str = "RCOE_RSEQ";
const WORD: u64 = 8;
/// `cmp qword ptr [rip + ...], r8`, without the distance.
const COMPARE: [u8; 3] = [0x4c, 0x39, 0x05];
const COMPARE_BYTES: u64 = 7;
/// The flag that says that two were equal.
const EQUAL: u64 = 1 << 6;

/// Most steps of one turn: far more than any call takes.
const MOST_STEPS: u32 = 1_000_000;
/// Looks for the end of a system call without a pause, giving up the CPU in between.
const YIELDS: u32 = 200;
/// The pause between later looks.
const PAUSE: Duration = Duration::from_millis(1);
/// Looks in a row that must find a process asleep before others get their turn.
const ASLEEP: u32 = 3;
/// Stops that a killed process may have reported before its end.
const MOST_STOPS: u32 = 16;

/// A seized process; it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Tracee {
    pid: Pid,
    /// Where it stopped; nothing while it has been resumed and was not seen to stop.
    registers: Option<user_regs_struct>,
    /// To be delivered when it is resumed.
    signal: Option<Signal>,
    /// What lies at the addresses it came by; after the warm-up code does not change.
    code: HashMap<u64, Kind>,
    /// Address of that word, if there is one.
    word: Option<u64>,
    current: Sample,
    samples: Vec<Sample>,
    /// How often the present iteration came by each address, and the last whole one did.
    visits: [HashMap<u64, u64>; 2],
}

impl Tracee {
    /// Seizes and stops a process.
    pub(super) fn seize(pid: i32) -> Result<Self> {
        let pid = Pid::from_raw(pid);
        ptrace::seize(pid, ptrace::Options::empty())
            .with_context(|| format!("cannot seize process {pid}"))?;
        let mut tracee = Self {
            pid,
            registers: None,
            signal: None,
            code: HashMap::new(),
            word: None,
            current: Sample::default(),
            samples: Vec::new(),
            visits: Default::default(),
        };
        ptrace::interrupt(pid)?;
        tracee.reap()?;
        tracee.word = address_of(&tracee.image()?, AREA).map(|area| area + WORD);
        // A call that the stop has interrupted is made again first, and may last.
        tracee.resume()?;
        Ok(tracee)
    }

    /// What came of the iterations so far.
    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// How often the last whole iteration executed the instruction at each address.
    pub(super) const fn visits(&self) -> &HashMap<u64, u64> {
        &self.visits[1]
    }

    /// The image that this process executes: the agent's, where it has one.
    pub(super) fn image(&self) -> Result<Vec<u8>> {
        if let Some(agent) = agent_image(self.pid.as_raw())? {
            return Ok(agent);
        }
        let path = format!("/proc/{}/exe", self.pid);
        fs::read(&path).with_context(|| format!("cannot read {path}"))
    }

    /// Steps on until it waits for others or reaches `mark`; there a sample ends.
    pub(super) fn turn(&mut self, mark: u64) -> Result<()> {
        for _ in 0..MOST_STEPS {
            if !self.has_stopped()? {
                return Ok(());
            }
            let registers = self.registers.context("it has stopped")?;
            let kind = self.kind(registers.rip)?;
            let yields = kind == Kind::Syscall && registers.rax == libc::SYS_sched_yield as u64;
            let looks = kind == Kind::Pause || yields;
            self.current.instructions += 1;
            self.current.host_calls += u64::from(kind == Kind::Syscall);
            self.current.looks += u64::from(looks);
            *self.visits[0].entry(registers.rip).or_default() += 1;
            self.resume()?;
            if kind != Kind::Syscall {
                self.reap()?;
            }
            if kind == Kind::Look {
                self.find_equal()?;
            }
            if looks {
                return Ok(());
            }
            if self
                .registers
                .is_some_and(|registers| registers.rip == mark)
            {
                self.samples.push(std::mem::take(&mut self.current));
                self.visits[1] = std::mem::take(&mut self.visits[0]);
                return Ok(());
            }
        }
        bail!(
            "process {} does not come to an end of its iteration",
            self.pid
        )
    }

    fn kind(&mut self, address: u64) -> Result<Kind> {
        if let Some(kind) = self.code.get(&address) {
            return Ok(*kind);
        }
        let word = ptrace::read(self.pid, address as ptrace::AddressType)?;
        let kind = match word.to_le_bytes() {
            [0xf3, 0x90, ..] => Kind::Pause,
            [0x0f, 0x05, ..] => Kind::Syscall,
            [a, b, c, distance @ .., _] if [a, b, c] == COMPARE => {
                let distance = i64::from(i32::from_le_bytes(distance));
                let named = (address + COMPARE_BYTES).wrapping_add_signed(distance);
                if self.word == Some(named) {
                    Kind::Look
                } else {
                    Kind::Other
                }
            }
            _ => Kind::Other,
        };
        self.code.insert(address, kind);
        Ok(kind)
    }

    /// The comparison that was just made found two words equal.
    fn find_equal(&mut self) -> Result<()> {
        let registers = self.registers.as_mut().context("it has stopped")?;
        registers.eflags |= EQUAL;
        Ok(ptrace::setregs(self.pid, *registers)?)
    }

    fn resume(&mut self) -> Result<()> {
        ptrace::step(self.pid, self.signal.take())?;
        self.registers = None;
        Ok(())
    }

    /// Has the present step come to its end? Not so if the process sleeps in a system call.
    fn has_stopped(&mut self) -> Result<bool> {
        let mut asleep = 0;
        for look in 0_u32.. {
            if self.registers.is_some() {
                break;
            }
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL))? {
                WaitStatus::StillAlive if look < YIELDS => thread::yield_now(),
                WaitStatus::StillAlive => {
                    asleep = if self.sleeps() { asleep + 1 } else { 0 };
                    if asleep >= ASLEEP {
                        return Ok(false);
                    }
                    thread::sleep(PAUSE);
                }
                status => self.note(status)?,
            }
        }
        Ok(true)
    }

    fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
        matches!(state, Some("S" | "D"))
    }

    fn reap(&mut self) -> Result<()> {
        let status = waitpid(self.pid, Some(WaitPidFlag::__WALL))?;
        self.note(status)
    }

    fn note(&mut self, status: WaitStatus) -> Result<()> {
        match status {
            WaitStatus::Stopped(_, Signal::SIGTRAP) | WaitStatus::PtraceEvent(..) => {}
            WaitStatus::Stopped(_, TICK) => {}
            WaitStatus::Stopped(_, signal) => self.signal = Some(signal),
            other => bail!("process {} ended while it was stepped: {other:?}", self.pid),
        }
        self.registers = Some(ptrace::getregs(self.pid)?);
        Ok(())
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // One that is gone already is what is wanted.
        let _ = kill(self.pid, Signal::SIGKILL);
        for _ in 0..MOST_STOPS {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..)) => {}
                _ => break,
            }
        }
    }
}
