//! The replication part: what the objects ask of the trace, of votes and of devices, done by the
//! protocol core.
//!
//! Here are the state of one replica, the points at which all perform an action (EDCC'15,
//! `trigger_action`), and who takes interrupts. [`objects`] is what the objects see of it,
//! [`access`] how the world outside is touched, [`copies`] what members agree on while a lost
//! replica is brought back.

mod access;
mod actions;
mod copies;
mod objects;
mod turns;
mod unheard;

use core::cell::Cell;

use rcoe_abi::layout::PORT_PAUSE;
use rcoe_core::{Cause, Compare, Halt, Ports, Replica, ReplicaId, ReplicaSet};
use rcoe_kernel_objects::{IRQ_LINES, Sphere, kind};

use crate::arch::{self, Count as _, Counter, Parameters, interrupts};
use crate::config::{Config, Pause};
use crate::coupling::Baton;
use crate::diary::Diary;
use crate::env::{Surroundings, core_of};
use crate::meter::Meter;
use crate::recorders::Recorders;
use crate::report;

pub(crate) use access::{DEVICE, READ, TRANSFER};
use actions::action_of;
pub(crate) use actions::{REPLACE, TICK, lines_of};
use unheard::Unheard;

/// The part of the time for which a replica may be late, after which a core that waits for the
/// baton takes it to be lost, times its place; but others run for a few ticks in between, and
/// longer where they look for the event at which replicas differ.
const PARTS: u64 = 4;
const TICKS: u64 = 4;

/// Replication of one replica.
#[derive(Debug)]
pub(crate) struct Replicated {
    replica: Replica<'static, Surroundings>,
    diary: Diary,
    compare: Compare,
    limit: u64,
    mask: bool,
    /// Replicas at the start.
    wanted: usize,
    /// Processor cycles at the start.
    began: u64,
    /// Instructions that programs have executed since the last event, where they are counted.
    progress: u64,
    /// Rendezvous so far.
    votes: u64,
    meter: Meter,
    pause: Option<Pause>,
    /// For tests: the place whose write this replica does not survive as the primary.
    breaks_at: Option<u64>,
    /// The place of a reading that a test has go wrong, and how many go well before.
    misreads: Cell<Option<(u64, u64)>>,
    /// Lines that are to let interrupts through, one bit each.
    enabled: u32,
    unheard: Unheard,
    /// Does this replica program the I/O APIC?
    routes: bool,
    base: u64,
    /// What a place of transfer memory is away from its address on the bus.
    transfer: u64,
    root: u64,
    kernel_entry: u64,
}

impl Replicated {
    pub(crate) fn new(
        parameters: &Parameters,
        config: &Config,
        ports: Ports<'static>,
        counter: Option<Counter>,
    ) -> Self {
        let number = u8::try_from(parameters.replica).expect("a small number");
        let members = ReplicaSet::all(usize::try_from(parameters.replicas).expect("few"));
        let diary = Diary::of(u16::from(number));
        let limit = config.timeout * parameters.cycles;
        let recorders = Recorders::new(&ports);
        let own = ReplicaId::new(number);
        let others = TICKS * members.len() as u64 * config.tick * parameters.cycles / 1_000;
        let turns = counter.and_then(|it| it.turns());
        let limit = if turns.is_some() {
            limit.max(PARTS * others)
        } else {
            limit
        };
        let baton = turns.map(|it| Baton::new(it, own, members, limit / PARTS));
        let surroundings = Surroundings::new(diary, limit, config.mask, recorders, baton);
        report::set_alone(members.len() == 1);
        let mut replica = Replica::new(own, members, ports, surroundings);
        // The tick brings all into their kernels.
        replica.set_punctual(config.tick > 0);
        Self {
            replica,
            diary,
            compare: config.compare,
            limit,
            mask: config.mask,
            wanted: members.len(),
            began: arch::cycles(),
            progress: 0,
            votes: 0,
            meter: Meter::default(),
            pause: config
                .pause
                .filter(|pause| pause.replica == parameters.replica),
            breaks_at: config
                .breaks
                .filter(|breaks| breaks.replica == parameters.replica)
                .map(|breaks| breaks.place),
            misreads: Cell::new(
                config
                    .misreads
                    .filter(|misreads| misreads.replica == parameters.replica)
                    .map(|misreads| (misreads.place, misreads.after)),
            ),
            enabled: 0,
            unheard: Unheard::new(config.tick),
            routes: false,
            base: arch::objects_base(parameters),
            transfer: arch::transfer_offset(parameters),
            root: parameters.root,
            kernel_entry: arch::kernel_entry(parameters),
        }
    }

    pub(crate) const fn diary(&self) -> Diary {
        self.diary
    }

    /// Who has effects.
    pub(crate) const fn primary_id(&self) -> ReplicaId {
        self.replica.primary()
    }

    pub(crate) const fn members(&self) -> usize {
        self.replica.members().len()
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.replica.is_primary()
    }

    /// A new primary takes the interrupts over. Each line that is on is flagged once: one that its
    /// predecessor took and told nobody of must not be lost.
    pub(crate) fn settle(&mut self) {
        if self.routes || !self.replica.is_primary() {
            return;
        }
        self.routes = true;
        let first = self.replica.epoch() == 0;
        if !first {
            self.diary()
                .line(format_args!("primary {}", self.replica.id().index()));
        }
        for line in 0..IRQ_LINES {
            let on = self.enabled & 1 << line != 0;
            interrupts::route(line, on);
            if on && !first {
                self.trigger(action_of(line));
            }
        }
    }

    /// Flags actions for all and calls the others into their kernels (EDCC'15, `trigger_action`).
    pub(crate) fn trigger(&mut self, actions: u64) {
        self.replica.trigger_action(actions);
        for peer in self.replica.members().without(self.replica.id()) {
            interrupts::call(core_of(peer));
        }
    }

    /// An interrupt line of the primary's: off until the handler acknowledges.
    pub(crate) fn line_came(&mut self, line: u32) {
        if !self.routes {
            // Meant for a primary that this core was before it was lost; its successor has flagged
            // it.
            return;
        }
        self.meter.interrupt_came(arch::cycles());
        interrupts::route(line, false);
        self.trigger(action_of(line));
    }

    /// The kernel is left for a program.
    pub(crate) fn leaves(&mut self) {
        self.meter.left();
    }

    /// Does any replica want actions performed?
    pub(crate) fn is_flagged(&self) -> bool {
        self.replica.is_flagged()
    }

    /// The actions to be performed at this point of the trace.
    pub(crate) fn actions(&mut self) -> u64 {
        let result = self.replica.handle_action();
        let set = self.go_on(result).0;
        if set != 0 {
            self.replica.env_mut().clear_suspects();
        }
        set
    }

    /// All are about to perform actions: voted, because a tick bounds how long a divergence goes
    /// unnoticed.
    pub(crate) fn performs(&mut self, actions: u64) {
        if actions == 0 {
            return;
        }
        self.event(kind::ACTION, actions);
        self.vote();
        let due = self.unheard.note(actions, self.enabled);
        // One of them flags it for all.
        let last = self.replica.members().iter().last();
        if due != 0 && last == Some(self.replica.id()) {
            self.trigger(due);
        }
        if actions & !(TICK | REPLACE) != 0 {
            self.meter.delivers();
        }
    }

    /// A result of the protocol; without one this replica does not go on.
    fn go_on<T>(&self, result: Result<T, Halt>) -> T {
        result.unwrap_or_else(|why| self.halt(why))
    }

    /// This replica does not go on. Where that is because of a difference, it says which.
    #[cold]
    fn halt(&self, why: Halt) -> ! {
        let others_go_on = self.replica.others_go_on();
        arch::permit_off(!others_go_on);
        self.diary.noticed();
        if let Halt::FailStop(Cause::Mismatch | Cause::Disagreement | Cause::NoMajority) = why
            && !others_go_on
        {
            let recorders = self.replica.env().recorders;
            recorders.tell(self.diary, self.replica.members());
        }
        report::halt(why, others_go_on)
    }

    /// Stops as where the group cannot go on.
    pub(crate) fn stop(&self) -> ! {
        let others_go_on = self.replica.others_go_on();
        arch::permit_off(!others_go_on);
        report::halt(Halt::FailStop(Cause::Timeout), others_go_on)
    }

    /// Takes it that a vote has removed all others.
    pub(crate) fn exclude_others(&mut self) {
        let others = self.replica.members().without(self.replica.id());
        let excluded = self.replica.exclude(others);
        self.go_on(excluded);
    }

    /// The machine stands still here, if it is time. Before all have met, other cores may not have
    /// begun.
    fn stand_still(&mut self) {
        if self.votes == 0 {
            return;
        }
        let spent = arch::cycles() - self.began;
        if let Some(pause) = &mut self.pause
            && spent >= pause.at
        {
            pause.at = spent + pause.every;
            arch::port_out(PORT_PAUSE, 1, 1);
        }
    }

    /// What the host is told at the end.
    fn tell_figures(&self) {
        let spent = arch::cycles() - self.began;
        let (events, votes) = (self.replica.events(), self.votes);
        self.diary
            .line(format_args!("stats {spent} {events} {votes}"));
        self.diary.line(format_args!("meter {}", self.meter));
    }
}
