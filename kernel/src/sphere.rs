//! The replication part: what the objects ask of the trace, of votes and of devices, done by the
//! protocol core.
//!
//! Device access is the papers' pattern (EDCC'15, IV-D; DSN'19, `FT_Mem_Access`): what is written
//! is voted first; the primary alone touches the device; its result reaches the others through the
//! results stream and joins every trace.

use rcoe_abi::layout::{PORT_OFF, PORT_PAUSE};
use rcoe_core::portions::Plan;
use rcoe_core::{Cause, Compare, Consumed, Halt, Kind, Ports, Replica, ReplicaId, ReplicaSet, mix};
use rcoe_kernel_objects::{IRQ_LINES, Memory, Ref, Sphere, kind};

use crate::arch::{self, Parameters, interrupts};
use crate::config::{Config, Pause};
use crate::diary::Diary;
use crate::env::{Surroundings, core_of, wait_until};
use crate::meter::Meter;
use crate::recorders::Recorders;
use crate::report;

/// In the place of an access: it is device memory, not a port.
pub(crate) const DEVICE: u64 = 1 << 63;

/// Words of the longest input that is copied: a page.
const PAGE_WORDS: usize = 512;

/// Action: the tick. The bits above are interrupt lines.
pub(crate) const TICK: u64 = 1;

/// Action: a lost replica is to be replaced.
pub(crate) const REPLACE: u64 = 1 << 63;

/// The action of an interrupt line.
pub(crate) const fn action_of(line: u32) -> u64 {
    2 << line
}

/// The interrupt lines among actions, from the lowest on.
pub(crate) fn lines_of(actions: u64) -> impl Iterator<Item = u32> {
    let mut rest = actions >> 1 & ((1 << IRQ_LINES) - 1);
    core::iter::from_fn(move || {
        let line = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        line
    })
}

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
    /// Rendezvous so far.
    votes: u64,
    meter: Meter,
    pause: Option<Pause>,
    /// For tests: the place whose write this replica does not survive as the primary.
    breaks_at: Option<u64>,
    /// Lines that are to let interrupts through, one bit each.
    enabled: u32,
    /// Does this replica program the I/O APIC?
    routes: bool,
    base: u64,
    /// What a place of transfer memory is away from its address on the bus.
    transfer: u64,
    root: u64,
    kernel_entry: u64,
}

impl Replicated {
    pub(crate) fn new(parameters: &Parameters, config: &Config, ports: Ports<'static>) -> Self {
        let number = u8::try_from(parameters.replica).expect("a small number");
        let members = ReplicaSet::all(usize::try_from(parameters.replicas).expect("few"));
        let diary = Diary::of(u16::from(number));
        let limit = config.timeout * parameters.cycles;
        let recorders = Recorders::new(&ports);
        let surroundings = Surroundings::new(diary, limit, config.mask, recorders);
        report::set_alone(members.len() == 1);
        let mut replica = Replica::new(ReplicaId::new(number), members, ports, surroundings);
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
            votes: 0,
            meter: Meter::default(),
            pause: config
                .pause
                .filter(|pause| pause.replica == parameters.replica),
            breaks_at: config
                .breaks
                .filter(|breaks| breaks.replica == parameters.replica)
                .map(|breaks| breaks.place),
            enabled: 0,
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

    /// The lowest replica that was lost, if there are at least two left that agree.
    pub(crate) fn lost(&self) -> Option<ReplicaId> {
        let members = self.replica.members();
        let lost = ReplicaSet::all(self.wanted).minus(members).lowest();
        lost.filter(|_| members.len() >= 2)
    }

    /// The members, and how often they changed.
    pub(crate) const fn group(&self) -> (ReplicaSet, u64) {
        (self.replica.members(), self.replica.epoch())
    }

    /// Who has effects.
    pub(crate) const fn primary_id(&self) -> ReplicaId {
        self.replica.primary()
    }

    /// All members meet: nobody has gone on from here.
    pub(crate) fn meet_members(&mut self) {
        self.vote();
    }

    /// Each tells a word; what a group then has that is still the one of the plan.
    fn exchange_words(&mut self, plan: &Plan, word: u64) -> Result<(), &'static str> {
        arch::publish_digest(self.replica.id(), word);
        // All have told theirs when they have met.
        self.vote();
        self.check_group(plan)
    }

    fn check_group(&self, plan: &Plan) -> Result<(), &'static str> {
        let (members, epoch) = self.group();
        let holds = plan.holds(members, epoch);
        holds.then_some(()).ok_or("another replica was lost")
    }

    /// What the donor offers, given what this replica would.
    pub(crate) fn offered(
        &mut self,
        plan: &Plan,
        donor: ReplicaId,
        offer: u64,
    ) -> Result<u64, &'static str> {
        self.exchange_words(plan, offer)?;
        let offered = arch::digest_of(donor);
        // What was read is compared before anything is done about it.
        self.event(kind::ALIKE, offered);
        self.vote();
        self.check_group(plan)?;
        Ok(offered)
    }

    /// Given a digest of what this replica has in the portion: which members were found to differ
    /// from most. All members say the same.
    pub(crate) fn compare(
        &mut self,
        plan: &mut Plan,
        digest: u64,
    ) -> Result<ReplicaSet, &'static str> {
        self.exchange_words(plan, digest)?;
        let before = plan.odd();
        let alike = plan.judge(arch::digest_of);
        self.event(kind::ALIKE, alike.map_or(0, |alike| alike.bits().into()));
        self.vote();
        self.check_group(plan)?;
        alike.ok_or("the replicas left differ in memory")?;
        Ok(plan.odd().minus(before))
    }

    /// Is this replica that one?
    pub(crate) fn is(&self, replica: ReplicaId) -> bool {
        self.replica.id() == replica
    }

    /// All members: one of them is about to be copied.
    pub(crate) fn expect(&mut self, lost: ReplicaId) {
        self.replica.expect_newcomer(lost);
    }

    /// The copy: it is somebody else from here on.
    pub(crate) fn become_copy(&mut self, parameters: &Parameters) {
        let number = u16::try_from(parameters.replica).expect("a small number");
        self.diary = Diary::of(number);
        self.pause = None;
        self.breaks_at = None;
        self.meter = Meter::default();
        self.routes = false;
        self.base = arch::objects_base(parameters);
        self.transfer = arch::transfer_offset(parameters);
        self.root = parameters.root;
        self.kernel_entry = arch::kernel_entry(parameters);
        let recorders = self.replica.env().recorders;
        let surroundings = Surroundings::new(self.diary, self.limit, self.mask, recorders);
        self.replica.become_newcomer(surroundings);
    }

    /// Members and copy, once the copy is made: has a core begun in it? All say the same.
    pub(crate) fn has_begun(&mut self) -> bool {
        // Copying takes its time: before all have met, nobody is waited for.
        self.vote();
        let limit = self.limit;
        let came = self.effect_of(true, |sphere| {
            u64::from(wait_until(limit, || sphere.replica.newcomer_came()))
        });
        if came == 0 {
            self.replica.forget_newcomer();
        }
        came != 0
    }

    /// Members and copy: the copy is taken in, or not.
    pub(crate) fn admit(&mut self) -> bool {
        let result = self.replica.admit();
        let admitted = self.go_on(result);
        report::set_alone(self.members() == 1);
        if !admitted {
            self.replica.forget_newcomer();
        }
        admitted
    }

    /// A portion of a copy was made; all waited so many cycles for that.
    pub(crate) const fn note_portion(&mut self, cycles: u64) {
        self.meter.portion(cycles);
    }

    /// A replica was brought back; all waited so many cycles for that.
    pub(crate) const fn note_copy(&mut self, cycles: u64) {
        self.meter.copied(cycles);
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

    /// The actions to be performed at this point of the trace: voted, because a tick bounds how
    /// long a divergence goes unnoticed.
    pub(crate) fn actions(&mut self) -> u64 {
        let result = self.replica.handle_action();
        let set = self.go_on(result).0;
        if set != 0 {
            self.replica.env_mut().clear_suspects();
            self.event(kind::ACTION, set);
            self.vote();
            if set & !(TICK | REPLACE) != 0 {
                self.meter.delivers();
            }
        }
        set
    }

    /// A result of the protocol; without one this replica does not go on.
    fn go_on<T>(&self, result: Result<T, Halt>) -> T {
        result.unwrap_or_else(|why| self.halt(why))
    }

    /// This replica does not go on. Where that is because of a difference, it says which.
    #[cold]
    fn halt(&self, why: Halt) -> ! {
        let others_go_on = self.replica.others_go_on();
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
        report::halt(Halt::FailStop(Cause::Timeout), self.replica.others_go_on())
    }

    /// The primary does it and tells what came of it; all get that.
    fn effect(&mut self, repeatable: bool, perform: impl Fn() -> u64) -> u64 {
        self.effect_of(repeatable, |_| perform())
    }

    /// As [`Self::effect`], of something that concerns the replica itself.
    fn effect_of(&mut self, repeatable: bool, perform: impl Fn(&Self) -> u64) -> u64 {
        loop {
            if self.replica.is_primary() {
                self.replica.begin_effect(repeatable);
                let value = perform(self);
                let result = self.replica.publish(&[value]);
                self.go_on(result);
                return value;
            }
            let mut record = [0];
            let result = self.replica.consume(&mut record);
            match self.go_on(result) {
                Consumed::Record(_) => return record[0],
                Consumed::TakeOver => {}
            }
        }
    }

    /// All get what is in the primary's transfer memory, unless it is not the primary that is
    /// meant: a device stored nothing into a successor's. That can be told twice, so a primary that
    /// is lost here harms nobody.
    fn exchange(&mut self, place: u64, words: &mut [u64], generation: u64) -> bool {
        let mut record = [0; 1 + PAGE_WORDS];
        let record = &mut record[..=words.len()];
        loop {
            if self.replica.is_primary() {
                self.replica.begin_effect(true);
                record[0] = u64::from(self.generation() == generation);
                for (word, at) in record[1..].iter_mut().zip((place..).step_by(8)) {
                    *word = arch::device_read(at, 8);
                }
                let result = self.replica.publish(record);
                self.go_on(result);
                break;
            }
            let result = self.replica.consume(record);
            match self.go_on(result) {
                Consumed::Record(_) => break,
                Consumed::TakeOver => {}
            }
        }
        let good = record[0] == 1;
        if good {
            words.copy_from_slice(&record[1..]);
        }
        good
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

    /// What the primary alone reads, by a number that stands for where.
    fn input(&mut self, place: u64, repeatable: bool, perform: impl Fn() -> u64) -> u64 {
        self.event(kind::OUTPUT, place);
        if !repeatable {
            // A primary that went astray is found before it reads what cannot be read again.
            self.vote();
        }
        let value = self.effect(repeatable, perform);
        self.event(kind::INPUT, value);
        value
    }

    /// What the primary alone writes, by a number that stands for where.
    fn output(&mut self, place: u64, digest: u64, repeatable: bool, perform: impl Fn()) {
        self.event(kind::OUTPUT, digest);
        self.vote();
        self.effect_of(repeatable, |sphere| {
            perform();
            let breaks = sphere.breaks_at == Some(place);
            assert!(!breaks, "a test has this replica break while it writes");
            0
        });
    }
}

/// A digest of words in which every word and its place count.
fn digest_of(place: u64, words: &[u64]) -> u64 {
    words.iter().fold(
        mix(place),
        |digest, &word| mix(digest.rotate_left(9) ^ word),
    )
}

impl Sphere for Replicated {
    fn compare(&self) -> Compare {
        self.compare
    }

    fn event(&mut self, kind: u32, value: u64) {
        self.replica.add_event(Kind(kind), value);
        if self.pause.is_some() {
            self.stand_still();
        }
    }

    fn vote(&mut self) {
        self.votes += 1;
        let (members, began) = (self.replica.members(), arch::cycles());
        let result = self.replica.rendezvous();
        self.go_on(result);
        let events = self.replica.events();
        self.replica.env_mut().recorders.agree(events);
        if self.replica.members() != members {
            // A new primary is one only when the interrupts are its own.
            self.settle();
            report::set_alone(self.members() == 1);
            self.meter.downgraded(arch::cycles() - began);
        }
    }

    fn port_in(&mut self, port: u16, width: u8, repeatable: bool) -> u32 {
        let place = u64::from(port) << 8 | u64::from(width);
        let value = self.input(place, repeatable, || u64::from(arch::port_in(port, width)));
        u32::try_from(value).expect("as wide as a port")
    }

    fn port_out(&mut self, port: u16, width: u8, value: u32, repeatable: bool) {
        if port == PORT_OFF && self.is_primary() {
            self.tell_figures();
        }
        let place = u64::from(port) << 8 | u64::from(width);
        let digest = mix(place) ^ u64::from(value);
        self.output(port.into(), digest, repeatable, || {
            arch::port_out(port, width, value);
        });
    }

    fn port_out_bytes(&mut self, port: u16, bytes: &[u8]) {
        let digest = mix(u64::from(port)) ^ rcoe_kernel_objects::digest(bytes);
        self.output(port.into(), digest, false, || {
            for &byte in bytes {
                arch::port_out(port, 1, u32::from(byte));
            }
        });
    }

    fn device_read(&mut self, place: u64, width: u8, repeatable: bool) -> u64 {
        let where_from = DEVICE | place << 8 | u64::from(width);
        self.input(where_from, repeatable, || arch::device_read(place, width))
    }

    fn device_write(&mut self, place: u64, width: u8, value: u64, repeatable: bool) {
        let where_to = DEVICE | place << 8 | u64::from(width);
        let digest = mix(mix(where_to) ^ value);
        self.output(DEVICE | place, digest, repeatable, || {
            arch::device_write(place, width, value);
        });
    }

    fn device_write_address(&mut self, place: u64, width: u8, target: u64, repeatable: bool) {
        let where_to = DEVICE | place << 8 | u64::from(width);
        // The address itself is another one in each replica.
        let address = self.transfer + target;
        let digest = mix(mix(where_to) ^ target);
        self.output(DEVICE | place, digest, repeatable, || {
            arch::device_write(place, width, address);
        });
    }

    fn generation(&self) -> u64 {
        self.replica.epoch()
    }

    fn copy_out(&mut self, place: u64, words: &[u64]) {
        // Nothing goes out before the device is told to fetch it, and that is voted.
        self.event(kind::OUTPUT, digest_of(place, words));
        for (&word, at) in words.iter().zip((place..).step_by(8)) {
            arch::device_write(at, 8, word);
        }
    }

    fn copy_in(&mut self, place: u64, words: &mut [u64], generation: u64) -> bool {
        self.event(
            kind::OUTPUT,
            mix(mix(place) ^ generation) ^ words.len() as u64,
        );
        // A primary that went astray is found before anybody takes over what it has.
        self.vote();
        let good = self.exchange(place, words, generation);
        let value = if good { digest_of(place, words) } else { 0 };
        self.event(kind::INPUT, value);
        good
    }

    fn primary(&self) -> u64 {
        self.replica.primary().index() as u64
    }

    fn own(&self) -> u64 {
        self.replica.id().index() as u64
    }

    fn device_page(&self, page: u32, owner: u64) -> u64 {
        arch::device_page(page, owner)
    }

    fn blank_page(&self) -> u64 {
        arch::BLANK_PAGE
    }

    fn irq_enable(&mut self, line: u32, enabled: bool) {
        self.enabled = self.enabled & !(1 << line) | u32::from(enabled) << line;
        if self.routes {
            interrupts::route(line, enabled);
        }
    }

    fn flush(&mut self) {
        arch::flush();
    }

    fn leave_space(&mut self) {
        arch::enter_kernel_space(self.root, self.kernel_entry);
    }

    fn kernel_entry(&self) -> u64 {
        self.kernel_entry
    }

    fn base(&self) -> u64 {
        self.base
    }

    fn unhandled(&mut self, thread: Ref) {
        self.vote();
        if self.is_primary() {
            self.diary()
                .line(format_args!("unhandled fault of thread {thread:?}"));
            arch::power_off();
        }
    }

    fn switch_fpu(&mut self, memory: &mut Memory<'_>, from: Option<Ref>, to: Ref) {
        arch::switch_fpu(memory, from, to);
    }
}
