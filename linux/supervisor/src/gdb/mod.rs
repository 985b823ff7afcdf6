//! A debugger on the replicated program: one gdb at a port of the loopback.
//!
//! Intuition: the supervisor is the parent of all replicas, so it can trace them, in the thread of
//! its loop. It hears of their stops where it hears of their ends, and of gdb where it hears of
//! others that ask. What gdb says is read by `gdbstub`; what it means for them is in [`replicas`].
//!
//! Contract: the program waits at the gate before its first instruction until gdb has come. When
//! gdb goes away the program goes on by itself, and nobody traces it any more; when gdb kills it
//! the run ends.
//!
//! Not covered: child processes, which run on whatever the debugger does; a program that is
//! replaced by another (`execve`) is debugged as if it were the old one.

mod differ;
mod registers;
mod replicas;
mod target;
mod tracee;

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use gdbstub::common::Signal;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{BaseStopReason, DisconnectReason, GdbStub, SingleThreadStopReason};
use linux_raw_sys::general;
use rcoe_linux_abi::Ending;
use rustix::process::WaitStatus;

use crate::dumps::auxiliary;
use crate::scene::areas;
use crate::supervise::Outcome;
use crate::team::Team;
use differ::Depth;
use replicas::Replicas;
use tracee::{State, Why};

/// How long gdb may take to receive something.
const SENDING: Duration = Duration::from_secs(5);

/// Between two interruptions of replicas for a sibling.
const CALLING: Duration = Duration::from_millis(5);

type Machine = GdbStubStateMachine<'static, Replicas, TcpStream>;

/// A connection with gdb.
struct Session {
    stream: TcpStream,
    /// Taken while it works.
    machine: Option<Machine>,
}

/// The debugger of a run.
pub(crate) struct Debugger {
    /// Until gdb has come.
    listener: Option<TcpListener>,
    session: Option<Session>,
    /// Once all have come to the gate.
    replicas: Option<Replicas>,
    program: Vec<u8>,
    /// When replicas were interrupted last.
    called: Option<Instant>,
}

/// What the run has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    /// The program is to end at once.
    Kill,
}

impl Debugger {
    /// Waits for gdb at a port of the loopback; 0 for any.
    pub(crate) fn listen(port: u16, program: Vec<u8>) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let debugger = Self {
            listener: Some(listener),
            session: None,
            replicas: None,
            program,
            called: None,
        };
        Ok((debugger, address))
    }

    /// What can be heard of gdb, if anything is to be.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let session = self.session.as_ref().map(|it| it.stream.as_fd());
        let standing = self.replicas.as_ref().and_then(Replicas::stands);
        let listener = self.listener.as_ref().filter(|_| standing.is_some());
        session.or(listener.map(AsFd::as_fd))
    }

    /// Whether all replicas stand still for the debugger: none of them is late.
    pub(crate) fn holds(&self) -> bool {
        let replicas = self.replicas.as_ref();
        replicas.is_some_and(|it| it.stands().is_some())
    }

    /// Whether it is time to interrupt replicas for a sibling again. Each interruption is a stop of
    /// which the loop hears, so without a pause nobody would get beyond handling it.
    pub(crate) fn may_call(&mut self) -> bool {
        let may = self.called.is_none_or(|since| since.elapsed() >= CALLING);
        if may {
            self.called = Some(Instant::now());
        }
        may
    }

    /// How long to wait for news at most, so that a call is not forgotten.
    pub(crate) fn due(&self) -> Option<Duration> {
        (self.replicas.is_some() && !self.holds()).then_some(CALLING)
    }

    /// The kernel tells of stops. Returns those that are the business of job control.
    pub(crate) fn hear(&mut self, stops: Vec<(u32, WaitStatus)>) -> Vec<(u32, WaitStatus)> {
        let Some(replicas) = &mut self.replicas else {
            return stops;
        };
        let keep = |&(pid, status): &(u32, WaitStatus)| replicas.hear(pid, status);
        stops.into_iter().filter(keep).collect()
    }

    /// Looks what has become of the replicas, and tells gdb.
    ///
    /// # Errors
    /// A line for the user: the host does not let us trace them.
    pub(crate) fn follow(&mut self, team: &Team) -> Result<(), String> {
        let Some(replicas) = &mut self.replicas else {
            return self.seize(team);
        };
        for tracee in &mut replicas.all {
            if team.group.has_left(tracee.index) {
                tracee.state = State::Gone;
            }
        }
        replicas.shown = team.primary().unwrap_or(0);
        let report = team.memory.report(replicas.shown);
        replicas.fatal = report.fatal.load(Relaxed);
        // Who stands at a breakpoint meets nobody, and the others come there, too.
        if replicas.asks_pause && replicas.all_run() {
            replicas.order_pause(team);
        }
        if let Some(why) = replicas.stands() {
            self.tell_stop(why);
        }
        Ok(())
    }

    /// Takes the replicas as soon as all have come to the gate.
    fn seize(&mut self, team: &Team) -> Result<(), String> {
        let at_gate = |index| team.memory.report(index).at_gate.load(Acquire) != 0;
        if !team.group.is_complete() || !team.members().all(at_gate) {
            return Ok(());
        }
        let mut replicas = Replicas::seize(team, self.program.clone())?;
        let pid = team.group.pid(0).unwrap_or(0);
        let executes = team.memory.report(0).executes[1].load(Relaxed);
        for entry in auxiliary(&areas(pid), executes) {
            replicas.auxiliary.extend(entry.a_type.to_le_bytes());
            replicas.auxiliary.extend(entry.a_val.to_le_bytes());
        }
        self.replicas = Some(replicas);
        team.memory.open_gate();
        Ok(())
    }

    /// Gdb has said something, or come, or gone.
    pub(crate) fn attend(&mut self) -> Wish {
        let Some(session) = &mut self.session else {
            self.welcome();
            return Wish::Nothing;
        };
        let mut bytes = [0; 4096];
        match session.stream.read(&mut bytes) {
            Ok(0) | Err(_) => self.part(),
            Ok(count) => return self.take(&bytes[..count]),
        }
        Wish::Nothing
    }

    fn welcome(&mut self) {
        let accepted = self.listener.as_ref().map(TcpListener::accept);
        let Some(Ok((stream, _))) = accepted else {
            return;
        };
        if let Some(session) = self
            .replicas
            .as_mut()
            .and_then(|it| Session::new(stream, it))
        {
            self.session = Some(session);
            self.listener = None;
        }
    }

    /// Bytes have come from gdb.
    fn take(&mut self, bytes: &[u8]) -> Wish {
        let (Some(session), Some(replicas)) = (&mut self.session, &mut self.replicas) else {
            return Wish::Nothing;
        };
        for &byte in bytes {
            match session.pump(replicas, byte) {
                None => {}
                Some(DisconnectReason::Kill) => {
                    self.session = None;
                    return Wish::Kill;
                }
                Some(_) => {
                    self.part();
                    return Wish::Nothing;
                }
            }
        }
        Wish::Nothing
    }

    /// Gdb is gone; the program goes on.
    fn part(&mut self) {
        self.session = None;
        if let Some(replicas) = &mut self.replicas {
            replicas.leave();
        }
    }

    fn tell_stop(&mut self, why: Why) {
        let (Some(session), Some(replicas)) = (&mut self.session, &mut self.replicas) else {
            return;
        };
        if !session.awaits_stop() {
            return;
        }
        let (reason, depth) = match why {
            Why::Start => (BaseStopReason::Signal(Signal::SIGTRAP), Depth::Quick),
            Why::Breakpoint => (BaseStopReason::SwBreak(()), Depth::Quick),
            Why::Step => (BaseStopReason::DoneStep, Depth::Registers),
            Why::Fault(signal) => {
                let signal = u8::try_from(signal).unwrap_or(0);
                (BaseStopReason::Signal(named(signal)), Depth::Quick)
            }
            Why::Pause => (BaseStopReason::Signal(Signal::SIGINT), Depth::Quick),
        };
        let mut lines = std::mem::take(&mut replicas.notes);
        lines.extend(replicas.differences(depth));
        session.say(&lines);
        replicas.told();
        if !session.report(replicas, reason) {
            self.part();
        }
    }

    /// The run is over: gdb hears how.
    pub(crate) fn tell_end(&mut self, outcome: Option<&Outcome>) {
        let (Some(session), Some(replicas)) = (&mut self.session, &mut self.replicas) else {
            return;
        };
        if !session.awaits_stop() {
            return;
        }
        let reason = match outcome {
            Some(Outcome::Ended(Ending::Exit(status))) => BaseStopReason::Exited(*status),
            Some(Outcome::Ended(Ending::Signal(signal))) => {
                BaseStopReason::Terminated(named(*signal))
            }
            Some(Outcome::FailStop) => {
                session.say(&["the replicas differ, and the run was stopped".to_owned()]);
                BaseStopReason::Exited(Outcome::FailStop.status())
            }
            None => return,
        };
        session.report(replicas, reason);
    }
}

impl Session {
    fn new(stream: TcpStream, replicas: &mut Replicas) -> Option<Self> {
        stream.set_write_timeout(Some(SENDING)).ok()?;
        let stub = GdbStub::new(stream.try_clone().ok()?);
        let machine = stub.run_state_machine(replicas).ok()?;
        Some(Self {
            stream,
            machine: Some(machine),
        })
    }

    /// Whether gdb waits for the program to stop.
    const fn awaits_stop(&self) -> bool {
        matches!(self.machine, Some(GdbStubStateMachine::Running(_)))
    }

    /// Takes a byte; tells why gdb goes, if it does. What it says that makes no sense, and what
    /// cannot be sent, counts as that.
    fn pump(&mut self, replicas: &mut Replicas, byte: u8) -> Option<DisconnectReason> {
        let next = match self.machine.take()? {
            GdbStubStateMachine::Idle(idle) => idle.incoming_data(replicas, byte),
            GdbStubStateMachine::Running(running) => running.incoming_data(replicas, byte),
            other => Ok(other),
        };
        let next = match next {
            Ok(GdbStubStateMachine::CtrlCInterrupt(interrupt)) => {
                replicas.interrupt();
                interrupt.interrupt_handled(replicas, None::<SingleThreadStopReason<u64>>)
            }
            other => other,
        };
        match next {
            Ok(GdbStubStateMachine::Disconnected(gone)) => Some(gone.get_reason()),
            Ok(machine) => {
                self.machine = Some(machine);
                None
            }
            Err(_) => Some(DisconnectReason::Disconnect),
        }
    }

    /// Tells gdb why the program stands; false if that is not possible any more.
    fn report(&mut self, replicas: &mut Replicas, reason: SingleThreadStopReason<u64>) -> bool {
        let Some(GdbStubStateMachine::Running(running)) = self.machine.take() else {
            return false;
        };
        self.machine = running.report_stop(replicas, reason).ok();
        self.machine.is_some()
    }

    /// Shows lines on gdb's console, where it waits for the program to stop.
    fn say(&mut self, lines: &[String]) {
        for line in lines {
            let text = format!("rcoe: {line}\n");
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            let packet = format!("O{hex}");
            let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
            // A debugger that hears nothing is noticed when it is told of the stop.
            let _ = self
                .stream
                .write_all(format!("${packet}#{sum:02x}").as_bytes());
        }
    }
}

/// A signal by the number that gdb has for it on all systems.
const fn named(signal: u8) -> Signal {
    match signal as u32 {
        general::SIGBUS => Signal::SIGBUS,
        general::SIGUSR1 => Signal::SIGUSR1,
        general::SIGUSR2 => Signal::SIGUSR2,
        general::SIGSYS => Signal::SIGSYS,
        general::SIGVTALRM => Signal::SIGVTALRM,
        general::SIGPROF => Signal::SIGPROF,
        general::SIGXCPU => Signal::SIGXCPU,
        general::SIGXFSZ => Signal::SIGXFSZ,
        general::SIGIO => Signal::SIGIO,
        general::SIGPWR => Signal::SIGPWR,
        // These have one number everywhere.
        1..=6 | 8 | 9 | 11 | 13..=15 => Signal(signal),
        _ => Signal::UNKNOWN,
    }
}
