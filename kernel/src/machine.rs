//! One replica as a whole: its kernel, entered and left.

use rcoe_core::Ports;
use rcoe_kernel_objects::arch::CONTEXT_WORDS;
use rcoe_kernel_objects::{BootInput, Fault, IRQ_LINES, Kernel, Memory, Sphere, kind};

use crate::arch::{self, Parameters, apic};
use crate::config::{self, Config};
use crate::report;
use crate::sphere::{Replicated, TICK};

/// Ticks of its own after which a follower asks for the one that the primary did not.
const PATIENCE: u32 = 8;

/// One replica.
#[derive(Debug)]
pub(crate) struct Machine {
    kernel: Kernel<'static, Replicated>,
    base: u64,
    /// Units of the local timer between ticks.
    period: u32,
    /// Own ticks since the last that all performed.
    waited: u32,
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
        let mut sphere = Replicated::new(parameters, &config, ports);
        let digest = config.timeout << 32 | config.tick << 8 | config.compare as u64;
        sphere.event(kind::START, digest);
        let mut kernel = Kernel::new(memory, sphere);
        let input = BootInput {
            image_bytes: parameters.image,
            command: config::of_root_task(command),
            replica: parameters.replica,
        };
        if kernel.boot(&input).is_none() {
            report::refuse("the boot image has no root task, or memory is too small");
        }
        let period = config.tick * parameters.timer / 1_000;
        Self {
            kernel,
            base: arch::objects_base(parameters),
            period: u32::try_from(period).unwrap_or(u32::MAX),
            waited: 0,
        }
    }

    /// All replicas meet before the first kernel exit.
    pub(crate) fn start(&mut self) -> [u64; CONTEXT_WORDS] {
        let sphere = &mut self.kernel.sphere;
        sphere.vote();
        if sphere.is_primary() {
            sphere
                .diary()
                .line(format_args!("start {}", sphere.members()));
        }
        apic::enable(self.period);
        self.leave()
    }

    /// A thread enters the kernel with these registers.
    pub(crate) fn enter(&mut self, context: &[u64; CONTEXT_WORDS]) {
        self.kernel.save(context);
    }

    pub(crate) fn syscall(&mut self) {
        self.kernel.syscall();
    }

    pub(crate) fn page_fault(&mut self, address: u64, code: u64) {
        self.kernel.fault(Fault::Page { address, code });
    }

    pub(crate) fn exception(&mut self, vector: u64, code: u64) {
        self.kernel.fault(Fault::Exception { vector, code });
    }

    /// The others have removed this replica.
    pub(crate) fn stopped_by_others(&self) -> ! {
        self.kernel.sphere.diary().line(format_args!("stopped"));
        arch::park()
    }

    /// An interrupt: flagged here, performed when all are at one point.
    pub(crate) fn interrupt(&mut self, vector: u64) {
        let sphere = &mut self.kernel.sphere;
        if vector == apic::VECTOR_TIMER {
            self.waited += 1;
            if sphere.is_primary() || self.waited >= PATIENCE {
                self.waited = 0;
                sphere.trigger(TICK);
            }
            return;
        }
        let line = vector.wrapping_sub(apic::VECTOR_LINES);
        if line < u64::from(IRQ_LINES) {
            let line = u32::try_from(line).expect("a small number");
            sphere.line_came(line);
        }
    }

    /// Chooses who runs; waits while nobody can. Every kernel exit goes through here (EDCC'15,
    /// `handle_action`).
    pub(crate) fn leave(&mut self) -> [u64; CONTEXT_WORDS] {
        loop {
            self.kernel.sphere.settle();
            let flagged = self.kernel.sphere.is_flagged();
            let actions = self.kernel.sphere.actions();
            self.perform(actions);
            self.kernel.schedule();
            if self.kernel.current().is_some() {
                break;
            }
            if flagged && actions == 0 {
                // Somebody is missing or calls for a vote. Whoever is idle is so at this very point
                // of the trace, and stays until all perform an action: so here all can meet.
                self.kernel.sphere.vote();
                continue;
            }
            arch::wait_for_interrupt();
            for vector in arch::noted() {
                self.interrupt(vector);
            }
        }
        let mut context = [0; CONTEXT_WORDS];
        let root = self.kernel.restore(&mut context);
        let root = root.expect("who was chosen has an address space");
        arch::enter_space(self.base, root);
        context
    }

    fn perform(&mut self, actions: u64) {
        if actions & TICK != 0 {
            self.waited = 0;
            self.kernel.give_way();
        }
        for line in 0..IRQ_LINES {
            if actions & crate::sphere::action_of(line) != 0 {
                self.kernel.interrupt(line);
            }
        }
    }
}
