//! All replicas of a program under a debugger: what it asks is done in all, and they stop alike.
//!
//! Intuition: replicas make the same instructions, each in its own time. A breakpoint is a trap in
//! the code of all; each comes to it at the same point of its own execution and stands there, and
//! the program has stopped when the last one has come. A step is one instruction of each. Between
//! calls nothing but the agent can bring replicas to one point, so an interruption is an order to
//! the agents, which trap when they carry it out ([`Order::Pause`]).
//!
//! The agent is no part of the program. An instruction that leads into it (a call, a fault that it
//! handles) is made as a whole: the replica stands again where the program goes on.
//!
//! Contract: signals that are not the debugger's traps go on to the replica at once. Processes that
//! a replica gives birth to run on whatever the debugger does.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Acquire;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rcoe_linux_abi::scene::{PAUSE, RIP};
use rcoe_linux_abi::{Order, SIG_KICK, SerialOrder};
use rcoe_linux_sys::host::listen_traced;
use rustix::process::WaitStatus;

use super::tracee::{INT3, State, Stepped, Then, Tracee, Why, heal, is_agent, open_memory};
use crate::numbers::SIGTRAP;
use crate::numbers::{SI_KERNEL, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
use crate::team::Team;

/// `PTRACE_EVENT_STOP`: the process stands still without a signal to handle, or by job control.
const EVENT_STOP: i32 = 128;
/// `si_code` of a trap by `int3`.
const BY_INT3: i32 = SI_KERNEL;
/// `si_code` of a fault by an instruction that may not be used, or an impossible address.
const BY_INSTRUCTION: i32 = SI_KERNEL;
/// Faults of which debuggers hear, if they end the program.
const FAULTS: [u32; 3] = [SIGSEGV, SIGBUS, SIGFPE];
/// Instructions of a stub, at most.
const STUB_STEPS: u32 = 32;
/// In what the kernel leaves for a handler: where a word of the interrupted registers is.
const CONTEXT_RIP: u64 = 168;

/// A breakpoint of the debugger's: the byte that belongs there.
type Breakpoints = BTreeMap<u64, u8>;

/// The replicas of the program's first process.
#[derive(Debug)]
pub(super) struct Replicas {
    pub(super) all: Vec<Tracee>,
    pub(super) breakpoints: Breakpoints,
    /// All that there ever were, and what belongs there.
    ever: Breakpoints,
    /// Processes of the program that are traced and not debugged.
    bystanders: Vec<Pid>,
    /// Whose registers and memory are shown.
    pub(super) shown: usize,
    /// Signals that would end the program (bit `n - 1` for signal `n`).
    pub(super) fatal: u64,
    /// The file that the program is.
    pub(super) program: Vec<u8>,
    /// The auxiliary vector, as far as debuggers need it.
    pub(super) auxiliary: Vec<u8>,
    /// What the user is to be told when the program stops next.
    pub(super) notes: Vec<String>,
    /// The debugger has gone: whoever stops is let go.
    leaving: bool,
    /// The user has asked for a stop that has not come.
    wants_pause: bool,
    /// What the supervisor is to tell the agents.
    pub(super) asks_pause: bool,
    /// Number of the last order to stop.
    pauses: u32,
}

impl Replicas {
    /// Traces all members, which wait at the gate, and lets them come to the program's first
    /// instruction.
    pub(super) fn seize(team: &Team, program: Vec<u8>) -> Result<Self, String> {
        let mut all = Vec::new();
        for index in team.members() {
            let pid = team.group.pid(index).unwrap_or(0);
            let told = |error| format!("tracing replica {index} (process {pid}): {error}");
            let mut tracee = Tracee::seize(index, pid).map_err(told)?;
            let entry = team.memory.report(index).at_gate.load(Acquire);
            tracee.set_trap(entry, Then::Stand(Why::Start));
            if !tracee.has_trap() {
                return Err(format!("replica {index}: no trap at its entry {entry:#x}"));
            }
            all.push(tracee);
        }
        Ok(Self {
            all,
            breakpoints: Breakpoints::new(),
            ever: Breakpoints::new(),
            bystanders: Vec::new(),
            shown: 0,
            fatal: 0,
            program,
            auxiliary: Vec::new(),
            notes: Vec::new(),
            leaving: false,
            wants_pause: false,
            asks_pause: false,
            pauses: 0,
        })
    }

    /// Those that are there.
    pub(super) fn living(&self) -> impl Iterator<Item = &Tracee> {
        self.all.iter().filter(|it| it.state != State::Gone)
    }

    /// The one that is shown, or the first that is there.
    pub(super) fn shown(&self) -> Option<&Tracee> {
        let shown = self.living().find(|it| it.index == self.shown);
        shown.or_else(|| self.living().next())
    }

    /// Why all stand still, if they do: by the word of the one that is shown.
    pub(super) fn stands(&self) -> Option<Why> {
        let stand = |it: &Tracee| matches!(it.state, State::Stands(_));
        match self.shown()?.state {
            State::Stands(why) if self.living().all(stand) => Some(why),
            _ => None,
        }
    }

    /// Whether none stands.
    pub(super) fn all_run(&self) -> bool {
        self.living().all(|it| it.state == State::Runs)
    }

    /// The kernel tells that a process has stopped. True if that is the business of job control, of
    /// which others are to hear.
    pub(super) fn hear(&mut self, pid: u32, status: WaitStatus) -> bool {
        let (signal, event) = (status.as_raw() >> 8 & 0xff, status.as_raw() >> 16);
        let pid = Pid::from_raw(pid.cast_signed());
        let Some(at) = self.all.iter().position(|it| it.pid == pid) else {
            return self.bystander(pid, signal, event);
        };
        match event {
            0 => self.signalled(at, signal),
            EVENT_STOP if signal != SIGTRAP => {
                listen_traced(pid.as_raw());
                return true;
            }
            _ if self.leaving => self.all[at].release(0),
            _ => self.all[at].go(0),
        }
        false
    }

    /// A process that was born of a replica, or of such a process, is not debugged. But it has
    /// inherited breakpoints, and its replicas make their memory equal to that of their parents',
    /// so it stays traced, and gets its code back where it comes to one.
    fn bystander(&mut self, pid: Pid, signal: i32, event: i32) -> bool {
        if !self.bystanders.contains(&pid) {
            if event == 0 {
                return true;
            }
            let own = self.all.iter().filter_map(Tracee::trap);
            self.ever.extend(own);
            self.bystanders.push(pid);
        }
        if event == EVENT_STOP && signal != SIGTRAP {
            listen_traced(pid.as_raw());
            return true;
        }
        let signal = match event {
            0 if signal == SIGTRAP && self.is_healed(pid) => 0,
            0 => signal,
            _ => 0,
        };
        let signal = Signal::try_from(signal).ok();
        let gone = match self.leaving {
            true => {
                self.heal(pid);
                ptrace::detach(pid, signal).is_ok()
            }
            false => ptrace::cont(pid, signal).is_err(),
        };
        if gone {
            self.bystanders.retain(|it| *it != pid);
        }
        false
    }

    /// Gives a bystander back what belongs where it has come to a breakpoint; false if it has not.
    fn is_healed(&self, pid: Pid) -> bool {
        let (Ok(mut user), Ok(memory)) = (ptrace::getregs(pid), open_memory(pid)) else {
            return false;
        };
        user.rip = user.rip.wrapping_sub(1);
        let Some(&byte) = self.ever.get(&user.rip).filter(|_| is_by_int3(pid)) else {
            return false;
        };
        heal(&memory, user.rip, byte);
        ptrace::setregs(pid, user).is_ok()
    }

    /// Gives a bystander all its code back.
    fn heal(&self, pid: Pid) {
        if let Ok(memory) = open_memory(pid) {
            self.ever
                .iter()
                .for_each(|(&at, &byte)| heal(&memory, at, byte));
        }
    }

    fn signalled(&mut self, at: usize, signal: i32) {
        if signal == SIGTRAP && self.trapped(at) {
            if self.leaving && self.all[at].state != State::Runs {
                self.all[at].release(0);
            }
        } else if self.leaving {
            self.all[at].release(signal);
        } else if self.is_deadly(at, signal) {
            self.all[at].state = State::Stands(Why::Fault(signal));
        } else {
            self.all[at].go(signal);
        }
    }

    /// Is this a fault of the program that ends it? By others the agent is called.
    fn is_deadly(&self, at: usize, signal: i32) -> bool {
        let tracee = &self.all[at];
        let bit = 1_u64 << ((signal - 1) & 63);
        let is_programs = || tracee.general().is_some_and(|user| !is_agent(user.rip));
        let code = || ptrace::getsiginfo(tracee.pid).map_or(BY_INSTRUCTION, |info| info.si_code);
        FAULTS.contains(&signal.cast_unsigned())
            && self.fatal & bit != 0
            && is_programs()
            && !(code() == BY_INSTRUCTION && tracee.is_at_emulated())
    }

    /// A trap; false if it is none of the debugger's.
    fn trapped(&mut self, at: usize) -> bool {
        let tracee = &mut self.all[at];
        let Some(user) = tracee.general() else {
            return true;
        };
        let here = user.rip.wrapping_sub(1);
        if is_agent(here) && user.rsi == PAUSE {
            self.paused(at, user.rdi);
            return true;
        }
        if let Some(then) = tracee.spring(here) {
            tracee.set_rip(here);
            self.arrived(at, then);
        } else if self.breakpoints.contains_key(&here) {
            tracee.set_rip(here);
            tracee.state = State::Stands(Why::Breakpoint);
        } else if is_by_int3(tracee.pid) && tracee.byte(here).is_some_and(|it| it != INT3) {
            // It was taken out when this replica had come to it.
            tracee.set_rip(here);
            tracee.go(0);
        } else {
            return false;
        }
        true
    }

    /// A replica has come to where it was to stop.
    fn arrived(&mut self, at: usize, then: Then) {
        let tracee = &mut self.all[at];
        match then {
            Then::Stand(why) => {
                tracee.state = State::Stands(why);
                let here = tracee.general().map_or(0, |user| user.rip);
                if tracee.is_stub(here) {
                    self.step_one(at, why);
                }
            }
            Then::Again => {
                tracee.state = State::Stands(Why::Step);
                self.step_one(at, Why::Step);
            }
            Then::Return(context, from) => {
                let back = tracee
                    .word(context.wrapping_add(CONTEXT_RIP))
                    .unwrap_or(from);
                // To the agent leads what happens at a point between calls; the program goes on
                // where it was.
                let (to, then) = match is_agent(back) || back == from {
                    true => (from, Then::Again),
                    false => (back, Then::Stand(Why::Step)),
                };
                tracee.set_trap(to, then);
                tracee.go(0);
            }
        }
    }

    /// An agent carries out the order to stop: the program does where it goes on.
    fn paused(&mut self, at: usize, saved: u64) {
        let wanted = self.wants_pause;
        let tracee = &mut self.all[at];
        let to = tracee.word(saved.wrapping_add(RIP as u64 * 8));
        // One that has an aim stops there.
        if let Some(to) = to.filter(|_| wanted && !tracee.has_trap()) {
            tracee.set_trap(to, Then::Stand(Why::Pause));
        }
        tracee.go(0);
    }

    /// All go on.
    pub(super) fn go_on(&mut self) {
        let stand = |it: &&mut Tracee| matches!(it.state, State::Stands(_));
        self.all
            .iter_mut()
            .filter(stand)
            .for_each(|it| it.go(it.fault()));
    }

    /// All make one instruction.
    pub(super) fn step(&mut self) {
        for at in 0..self.all.len() {
            if matches!(self.all[at].state, State::Stands(_)) {
                self.step_one(at, Why::Step);
            }
        }
    }

    /// One makes an instruction of the program, or leaves a stub and stands there for this reason.
    fn step_one(&mut self, at: usize, why: Why) {
        let tracee = &mut self.all[at];
        let Some(from) = tracee.general().map(|user| user.rip) else {
            return;
        };
        let fault = tracee.fault();
        if fault != 0 {
            return self.handle(at, fault, from);
        }
        let mut last = from;
        for _ in 0..STUB_STEPS {
            match tracee.step(0) {
                Stepped::Made => {}
                Stepped::Signal(signal) => return self.handle(at, signal, last),
                Stepped::Gone => return,
            }
            let Some(user) = tracee.general() else {
                return;
            };
            if is_agent(user.rip) {
                // A stub leaves the way back in a register, a function of the vDSO on the stack.
                let back = match tracee.is_stub(last) {
                    true => Some(user.rcx),
                    false => tracee.word(user.rsp),
                };
                tracee.set_trap(back.unwrap_or(from), Then::Stand(why));
                return tracee.go(0);
            }
            if !tracee.is_stub(user.rip) {
                tracee.state = State::Stands(why);
                return;
            }
            last = user.rip;
        }
        tracee.state = State::Stands(why);
    }

    /// Instead of making its instruction at `from` a replica gets a signal for the agent.
    fn handle(&mut self, at: usize, signal: i32, from: u64) {
        let tracee = &mut self.all[at];
        if signal.cast_unsigned() == SIGSYS {
            let behind = tracee.general().map_or(from, |user| user.rip);
            tracee.set_trap(behind, Then::Stand(Why::Step));
            return tracee.go(signal);
        }
        if tracee.step(signal) != Stepped::Made {
            return;
        }
        let Some(user) = tracee.general() else {
            return;
        };
        // The handler returns to what brings the context back, which lies above that address.
        let back = tracee.word(user.rsp).unwrap_or(from);
        tracee.set_trap(back, Then::Return(user.rsp.wrapping_add(8), from));
        tracee.go(0);
    }

    /// The user has asked for a stop.
    pub(super) const fn interrupt(&mut self) {
        self.wants_pause = true;
        self.asks_pause = true;
    }

    /// A stop was told of: one that was asked for before is not wanted any more.
    pub(super) const fn told(&mut self) {
        self.wants_pause = false;
        self.asks_pause = false;
    }

    /// Has the agents agree on a point at which to stop.
    pub(super) fn order_pause(&mut self, team: &Team) {
        self.asks_pause = false;
        self.pauses += 1;
        let order = SerialOrder {
            serial: self.pauses,
            order: Order::Pause,
        };
        team.memory.order(order.pack());
        for index in team.members() {
            team.group.signal(index, SIG_KICK);
        }
    }

    /// Sets a breakpoint in all; false if that is not possible everywhere.
    pub(super) fn add(&mut self, at: u64) -> bool {
        if self.breakpoints.contains_key(&at) {
            return true;
        }
        let Some(byte) = self.shown().and_then(|it| it.byte(at)) else {
            return false;
        };
        let alike = |it: &Tracee| it.byte(at) == Some(byte);
        if is_agent(at) || !self.living().all(alike) {
            return false;
        }
        let written = self.living().all(|it| it.write(at, &[INT3]).is_ok());
        self.breakpoints.insert(at, byte);
        self.ever.insert(at, byte);
        if !written {
            self.remove(at);
        }
        written
    }

    pub(super) fn remove(&mut self, at: u64) -> bool {
        let Some(byte) = self.breakpoints.remove(&at) else {
            return false;
        };
        for tracee in self.living() {
            if tracee.byte(at) == Some(INT3) {
                let _ = tracee.write(at, &[byte]);
            }
        }
        true
    }

    /// The debugger goes away: the program goes on by itself.
    pub(super) fn leave(&mut self) {
        let all: Vec<u64> = self.breakpoints.keys().copied().collect();
        all.into_iter().for_each(|at| {
            self.remove(at);
        });
        self.leaving = true;
        for pid in &self.bystanders {
            let _ = ptrace::interrupt(*pid);
        }
        for tracee in &mut self.all {
            match tracee.state {
                State::Stands(_) => tracee.release(tracee.fault()),
                State::Runs => {
                    let _ = ptrace::interrupt(tracee.pid);
                }
                State::Gone => {}
            }
        }
    }
}

fn is_by_int3(pid: Pid) -> bool {
    ptrace::getsiginfo(pid).is_ok_and(|info| info.si_code == BY_INT3)
}
