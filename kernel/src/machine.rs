//! One replica as a whole: its kernel, entered and left.

use rcoe_core::Ports;
use rcoe_kernel_objects::arch::{CALL_BYTES, CONTEXT_WORDS, IP};
use rcoe_kernel_objects::{
    BootInput, Checksum, Fault, IRQ_LINES, Kernel, Memory, Space, Sphere, kind,
};

use crate::arch::{self, Counter, Parameters, interrupts};
use crate::bring_back::{Copying, PAUSE};
use crate::config::{self, Config, Probe, Source};
use crate::coupling::{Coupling, Next};
use crate::env::pass;
use crate::flip::Striker;
use crate::report;
use crate::sphere::{REPLACE, Replicated, TICK};

/// Ticks of its own after which a follower asks for the one that the primary did not.
const PATIENCE: u32 = 8;

/// Milliseconds by which a test has a copy begin late.
const LATE: u64 = 200;

/// The counter by which replicas are coupled closely. Without one they cannot be.
fn find_counter(config: &Config, units: u64) -> Counter {
    if config.counter == Source::Compiler && config.tick == 0 {
        report::refuse(&"without ticks nobody looks at what programs count");
    }
    match Counter::find(config.counter, units) {
        Ok(counter) => counter,
        Err(why) => report::refuse(&format_args!(
            "this processor cannot count for close coupling: {why}"
        )),
    }
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) kernel: Kernel<'static, Replicated>,
    base: u64,
    /// Units of the local timer between ticks.
    period: u32,
    /// Own ticks since the last that all performed.
    waited: u32,
    /// Primary: ticks until a lost replica is replaced, if one is lost.
    pub(crate) patience: u32,
    pub(crate) reintegrate: bool,
    /// The copy of a replica that is being made.
    pub(crate) copying: Option<Copying>,
    /// How all come to one instruction before they act; without it they act at one event.
    pub(crate) coupling: Option<Coupling>,
    /// Is it the others' turn?
    yields: bool,
    probe: Option<(u64, Probe)>,
    /// A bit that this replica is to change.
    striker: Option<Striker>,
    /// Does a test have this replica hear no device?
    deaf: bool,
    /// Does a test have copies begin late?
    late: bool,
    /// Does a test have lost replicas leave nothing of use behind?
    soils: bool,
    pub(crate) parameters: Parameters,
}

impl Machine {
    /// Makes the kernel and its root task.
    pub(crate) fn new(
        parameters: &Parameters,
        command: &[u8],
        memory: Memory<'static>,
        ports: Ports<'static>,
    ) -> Self {
        let config = Config::read(command);
        let counter = config
            .close
            .then(|| find_counter(&config, parameters.timer));
        let mut sphere = Replicated::new(parameters, &config, ports, counter);
        let coupling = counter.map(|counter| Coupling::new(counter, &sphere, &config));
        let digest = config.timeout << 32 | config.tick << 8 | config.compare as u64;
        sphere.event(kind::START, digest);
        let mut kernel = Kernel::new(memory, arch::kept(), sphere);
        let input = BootInput {
            image_bytes: parameters.image,
            command: config::of_root_task(command),
            replica: parameters.replica,
        };
        if kernel.boot(&input).is_none() {
            report::refuse(&"the boot image has no root task, or memory is too small");
        }
        let period = config.tick * parameters.timer / 1_000;
        let period = u32::try_from(period).unwrap_or(u32::MAX);
        let flip = config.flip.filter(|it| it.replica == parameters.replica);
        Self {
            kernel,
            base: arch::objects_base(parameters),
            period,
            waited: 0,
            patience: PAUSE,
            reintegrate: config.reintegrate,
            copying: None,
            coupling,
            yields: false,
            probe: config.probe,
            striker: flip.map(|it| Striker::new(it, parameters.timer, period)),
            deaf: false,
            late: matches!(config.probe, Some((_, Probe::Late))),
            soils: matches!(config.probe, Some((_, Probe::Remains))),
            parameters: *parameters,
        }
    }

    /// All replicas meet before the first kernel exit.
    pub(crate) fn start(&mut self) -> &[u64; CONTEXT_WORDS] {
        self.await_turns();
        let sphere = &mut self.kernel.sphere;
        sphere.vote();
        report::set_started();
        if sphere.is_primary() {
            sphere
                .diary()
                .line(format_args!("start {}", sphere.members()));
        }
        self.take_interrupts();
        self.leave()
    }

    /// Where cores take turns: lets interrupts through, by which the turn of this one comes.
    fn await_turns(&mut self) {
        if let Some(coupling) = &mut self.coupling
            && coupling.takes_turns()
        {
            interrupts::enable(self.period);
            coupling.begin();
        }
    }

    /// Lets interrupts through, if that was not done before.
    fn take_interrupts(&mut self) {
        if self.coupling.as_ref().is_some_and(Coupling::takes_turns) {
            return;
        }
        interrupts::enable(self.period);
        if let Some(coupling) = &mut self.coupling {
            coupling.begin();
        }
    }

    /// A thread enters the kernel; its registers are to be put here.
    pub(crate) fn enter(&mut self) -> &mut [u64; CONTEXT_WORDS] {
        self.kernel.context()
    }

    /// Its registers are there: how far has it come? Tells whether it is a virtual processor.
    pub(crate) fn entered(&mut self) -> bool {
        let guest = self.kernel.runs_guest();
        if guest {
            arch::leave_guest();
        }
        if let Some(coupling) = &mut self.coupling {
            let executed = coupling.executed(self.kernel.context());
            self.kernel.sphere.advance(executed);
        }
        guest
    }

    pub(crate) fn syscall(&mut self) {
        if self.keeps_call() {
            // It is made when the program goes on.
            let context = self.kernel.context();
            context[IP] = context[IP].wrapping_sub(CALL_BYTES);
            return;
        }
        self.kernel.syscall();
    }

    /// Is a call or a fault kept, because all are on the way to one instruction?
    fn keeps_call(&mut self) -> bool {
        self.coupling.as_mut().is_some_and(Coupling::holds_call)
    }

    pub(crate) fn page_fault(&mut self, address: u64, code: u64) {
        if self.kernel.soil(address) {
            // Others may find their page noted already.
            self.retrace();
            return;
        }
        if !self.keeps_call() {
            self.kernel.fault(Fault::Page { address, code });
        }
    }

    pub(crate) fn exception(&mut self, vector: u64, code: u64) {
        let stopped = |it: &Coupling| it.stops(vector);
        if self.coupling.as_ref().is_some_and(stopped) {
            self.retrace();
            return;
        }
        if !self.keeps_call() {
            self.kernel.fault(Fault::Exception { vector, code });
        }
    }

    /// An interrupt: flagged here, performed when all are at one point.
    pub(crate) fn interrupt(&mut self, vector: u64) {
        if vector == interrupts::VECTOR_TIMER {
            assert!(!self.breaks(), "a test has this replica break");
            if let Some(striker) = &mut self.striker {
                let diary = self.kernel.sphere.diary();
                striker.strike(self.kernel.context(), diary);
            }
            if self.coupling.as_mut().is_some_and(Coupling::took_timer) {
                return;
            }
            self.waited += 1;
            self.yields = true;
            let sphere = &mut self.kernel.sphere;
            if sphere.is_primary() || self.waited >= PATIENCE {
                self.waited = 0;
                sphere.trigger(TICK);
            }
            return;
        }
        let line = vector.wrapping_sub(interrupts::VECTOR_LINES);
        if line < u64::from(IRQ_LINES) && !self.deaf {
            let line = u32::try_from(line).expect("a small number");
            self.kernel.sphere.line_came(line);
        }
    }

    /// Does a test have this replica break now?
    fn breaks(&self) -> bool {
        self.probe == Some((self.parameters.replica, Probe::Sudden))
    }

    /// Chooses who runs; waits while nobody can. Its registers. Every kernel exit goes through here
    /// (EDCC'15, `handle_action`).
    pub(crate) fn leave(&mut self) -> &[u64; CONTEXT_WORDS] {
        loop {
            self.take_turn();
            self.kernel.sphere.settle();
            let flagged = self.kernel.sphere.is_flagged();
            let Some(actions) = self.agree() else {
                break;
            };
            if actions != 0 {
                self.perform(actions);
            }
            if actions & TICK != 0 {
                self.look_for_lost();
            }
            if actions & REPLACE != 0
                && let Some(lost) = self.kernel.sphere.lost()
            {
                self.replace(lost);
                continue;
            }
            let before = self.kernel.sphere.events();
            self.kernel.schedule();
            if self.kernel.current().is_some() {
                // Another member may stand behind this switch of threads, in the program.
                let switched = self.kernel.sphere.events() != before;
                if switched && self.coupling.is_some() && self.kernel.sphere.is_flagged() {
                    continue;
                }
                break;
            }
            if flagged && actions == 0 {
                // Somebody is missing or calls for a vote. Whoever is idle is so at this very point
                // of the trace, and stays until all perform an action: so here all can meet.
                self.kernel.sphere.vote();
                continue;
            }
            if self.kernel.sphere.idle() {
                self.interrupt(interrupts::VECTOR_TIMER);
            }
            for vector in arch::noted() {
                self.interrupt(vector);
            }
        }
        self.kernel.sphere.leaves();
        let space = self.kernel.restore();
        let entry = self.kernel.sphere.kernel_entry();
        match space.expect("who was chosen has an address space") {
            Space::Program(root) => arch::enter_space(self.base, root, entry),
            Space::Guest { root, lines } => arch::enter_guest(self.base, root, entry, lines),
        }
        if let Some(striker) = &mut self.striker {
            striker.prepare();
        }
        if let Some(coupling) = &mut self.coupling {
            coupling.arm(self.kernel.sphere.progress(), self.kernel.context());
        }
        self.kernel.context()
    }

    /// Waits for this core's turn, where cores take turns.
    fn take_turn(&mut self) {
        if core::mem::take(&mut self.yields) {
            self.kernel.sphere.pass_turn();
        }
        self.kernel.sphere.take_turn();
    }

    /// What all perform here; `None` if the program has to go on to where they do.
    fn agree(&mut self) -> Option<u64> {
        let Some(coupling) = &mut self.coupling else {
            let actions = self.kernel.sphere.actions();
            self.kernel.sphere.performs(actions);
            return Some(actions);
        };
        if coupling.is_idle() {
            let actions = self.kernel.sphere.actions();
            if actions == 0 || !self.kernel.may_race() {
                self.kernel.sphere.performs(actions);
                return Some(actions);
            }
            coupling.agree_on(actions, self.kernel.sphere.group_members());
        }
        match coupling.go_on(&mut self.kernel) {
            Ok(Next::Run) => None,
            Ok(Next::Perform(actions)) => {
                if coupling.verifies() {
                    self.verify();
                }
                self.kernel.sphere.performs(actions);
                Some(actions)
            }
            Err(why) => self.kernel.sphere.end(why),
        }
    }

    /// All of memory joins the trace.
    fn verify(&mut self) {
        self.kernel.finish();
        self.kernel.save_fpu(arch::save_fpu);
        let digest = self.digest();
        self.kernel.sphere.event(kind::ALIKE, digest);
        if self.coupling.is_some() {
            // All that took longer than from tick to tick.
            interrupts::begin_slice(0);
        }
    }

    /// A digest of what is to be copied, alike in all members unless one of them is faulty.
    pub(crate) fn digest(&self) -> u64 {
        let mut sum = Checksum::default();
        let alike = arch::with_marks(|marks| self.kernel.alike(marks));
        sum.words(&[alike, arch::image_digest(), arch::told_alike()]);
        sum.word(self.period.into());
        sum.word(self.reintegrate.into());
        sum.digest()
    }

    /// The copy, on its own core: goes on from the point at which it was made.
    pub(crate) fn revive(&mut self, parameters: &Parameters) -> &[u64; CONTEXT_WORDS] {
        let from = arch::objects_base(&self.parameters);
        self.parameters = *parameters;
        self.base = arch::objects_base(parameters);
        self.striker = None;
        self.deaf = false;
        self.waited = 0;
        self.patience = PAUSE;
        if self.late {
            pass(LATE * parameters.cycles);
        }
        self.kernel.sphere.become_copy(parameters);
        self.await_turns();
        if let Some(coupling) = &mut self.coupling {
            coupling.become_copy(self.kernel.sphere.id());
        }
        if !self.kernel.sphere.has_begun() {
            arch::retire();
        }
        let entry = arch::kernel_entry(parameters);
        self.kernel.rebase(from, self.base, entry);
        self.kernel.set_replica(parameters.replica);
        self.kernel.save_fpu(arch::load_fpu);
        if !self.kernel.sphere.admit() {
            arch::retire();
        }
        self.take_interrupts();
        self.kernel.sphere.resume_turns();
        self.leave()
    }

    /// Does a test have lost replicas leave nothing of use behind?
    pub(crate) const fn soils(&self) -> bool {
        self.soils
    }

    fn probe(&mut self, probe: Probe) {
        match probe {
            Probe::Astray | Probe::Late | Probe::Remains => self.kernel.sphere.event(kind::DATA, 1),
            Probe::Loop => loop {
                core::hint::black_box(());
            },
            Probe::Deaf => arch::go_deaf(),
            Probe::Shutdown => arch::shut_down(),
            Probe::Devices => self.deaf = true,
            Probe::Halt => arch::park(),
            Probe::Sudden => panic!("a test has this replica break"),
            Probe::Base => self.base += 1 << 20,
            Probe::Stop => self.kernel.sphere.stop(),
            Probe::Refuse => report::refuse(&"a test has this replica refuse to start"),
            Probe::Off => arch::power_off(),
            Probe::Exclude => self.kernel.sphere.exclude_others(),
            Probe::Command => {
                let sibling = (self.parameters.replica + 1) % self.parameters.replicas;
                interrupts::stop(u32::try_from(sibling).expect("replicas are few"));
            }
            Probe::Spaces => {
                if !arch::damage_spaces(&self.parameters) {
                    // There is but one as yet.
                    self.probe = Some((self.parameters.replica, probe));
                }
            }
            _ => arch::wild_store(&self.parameters, probe),
        }
    }

    fn perform(&mut self, actions: u64) {
        if actions & TICK != 0 {
            self.waited = 0;
            if let Some((victim, probe)) = self.probe.take()
                && victim == self.parameters.replica
            {
                self.probe(probe);
            }
            self.kernel.proceed();
            self.kernel.give_way();
        }
        for line in crate::sphere::lines_of(actions) {
            self.kernel.interrupt(line);
        }
    }
}
