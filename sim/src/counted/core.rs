//! A scripted processor: one core with the counters of a vendor, of which nothing is better than
//! its manual says, and some things are worse.

use rcoe_core::counted::pmu::Processor;

use super::vm::{Executed, Vm};
use crate::rng::Rng;

/// Whose counters it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Intel's, of so many bits, of which all can be written.
    Intel(u32),
    /// Intel's, of so many bits, of which 32 can be written.
    IntelHalf(u32),
    /// AMD's, each switched on by itself.
    Amd,
    /// AMD's, with registers for all of them.
    AmdSecond,
}

/// What goes otherwise than one would like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Script {
    /// By how many branches an interrupt is late at most.
    pub skid: u64,
    /// One in so many interrupts is lost; 0: none is.
    pub loses: u64,
    /// Far branches that the processor counts by itself at each kernel entry, at most.
    pub far: u64,
    /// Branches that the kernel executes at each of its entries, at most.
    pub kernel: u64,
    /// Instructions between other interrupts, at most; 0: there are none.
    pub ticks: u64,
    /// One in so many instructions faults first; 0: none does.
    pub faults: u64,
}

const PROGRAMS: u64 = 1 << 16;
const KERNEL: u64 = 1 << 17;
const INTERRUPTS: u64 = 1 << 20;
const ON: u64 = 1 << 22;

/// Instructions behind which a program is interrupted at the latest, whatever goes wrong, and steps
/// of this simulation.
const HORIZON: u64 = 1 << 36;
const PATIENCE: u64 = 200_000;

/// A model-specific register.
#[derive(Clone, Copy, Debug)]
enum Register {
    Control(usize),
    /// All bits of a counter can be written, or 32.
    Counter(usize, bool),
    On,
    Clear,
    Debug,
    Own,
}

/// What model-specific registers hold.
#[derive(Debug)]
struct Registers {
    controls: [u64; 2],
    counters: [u64; 2],
    /// Which counters are on, and which have overflowed, where there are registers for all.
    on: u64,
    status: u64,
    debug: u64,
    /// Intel's capabilities, or AMD's control of locks.
    own: u64,
}

/// A core.
#[derive(Debug)]
pub struct Core {
    kind: Kind,
    script: Script,
    rng: Rng,
    registers: Registers,
    /// Is the interrupt of overflows masked?
    masked: bool,
    /// An interrupt is on its way, for so many branches more.
    coming: Option<u64>,
    /// It is there.
    pending: bool,
    /// Instructions until something else interrupts.
    tick: u64,
    /// The breakpoint, and whether the next instruction is executed in spite of it.
    pub watch: Option<u64>,
    pub resume: bool,
    /// By how many branches an interrupt was late since this was cleared, and how many were lost.
    pub late: u64,
    pub lost: u64,
    /// What the processor would not have put up with.
    pub flaw: Option<&'static str>,
}

impl Core {
    /// One that somebody else has used before.
    #[must_use]
    pub fn new(kind: Kind, script: Script, mut rng: Rng) -> Self {
        let registers = Registers {
            controls: [0; 2],
            counters: [(); 2].map(|()| rng.draw() & kind.mask()),
            on: 0,
            status: 1,
            debug: 1 << 12 | 1 << 11 | 1,
            own: u64::from(matches!(kind, Kind::Intel(_))) << 13,
        };
        let mut core = Self {
            kind,
            script,
            rng,
            registers,
            masked: true,
            coming: None,
            pending: false,
            tick: 0,
            watch: None,
            resume: false,
            late: 0,
            lost: 0,
            flaw: None,
        };
        core.begin_tick();
        core
    }

    fn begin_tick(&mut self) {
        self.tick = match self.script.ticks {
            0 => HORIZON,
            most => 1 + self.rng.below(most),
        };
    }

    /// The program runs until the kernel is entered, which executes some branches itself.
    pub fn enter_from(&mut self, vm: &mut Vm) {
        for _ in 0..PATIENCE {
            if self.is_entered(vm) {
                break;
            }
            self.execute(vm);
        }
        let far = self.upto(self.script.far);
        let itself = Executed {
            steps: 0,
            branches: far,
            taken: far,
        };
        self.count(itself, far, PROGRAMS);
    }

    /// The kernel has looked at the counter, and executes branches before it leaves.
    pub fn leave(&mut self) {
        let branches = self.upto(self.script.kernel);
        let executed = Executed {
            steps: branches,
            branches,
            taken: branches,
        };
        self.count(executed, 0, KERNEL);
    }

    fn upto(&mut self, most: u64) -> u64 {
        self.rng.below(most + 1)
    }

    /// Is the kernel entered before the next instruction?
    fn is_entered(&mut self, vm: &Vm) -> bool {
        if std::mem::take(&mut self.pending) {
            self.masked = true;
            return true;
        }
        if self.tick == 0 {
            self.begin_tick();
            return true;
        }
        if self.script.faults > 0 && self.rng.one_in(self.script.faults) {
            return true;
        }
        self.watch == Some(vm.ip) && !self.resume
    }

    fn execute(&mut self, vm: &mut Vm) {
        let watched = self.watch.is_some() || self.script.faults > 0;
        let most = if watched { 1 } else { self.quiet() };
        let executed = vm.advance(most);
        self.resume = false;
        self.tick -= executed.steps.min(self.tick);
        if let Some(more) = &mut self.coming {
            *more -= executed.branches.min(*more);
        }
        self.count(executed, 0, PROGRAMS);
        self.speculate(executed);
        if self.coming == Some(0) {
            self.coming = None;
            self.pending = !self.masked;
        }
    }

    /// Now and then a branch is counted that is taken back.
    fn speculate(&mut self, executed: Executed) {
        let speculates = !self.kind.is_intel() && self.registers.own >> 54 & 1 == 0;
        if speculates && executed.branches > 0 && self.rng.one_in(8) {
            let back = Executed {
                steps: 0,
                branches: 1,
                taken: 1,
            };
            self.count(back, 0, PROGRAMS);
        }
    }

    /// Branches during which nothing comes of counting them.
    fn quiet(&self) -> u64 {
        let [first, second] = self.registers.counters;
        let least = (self.kind.mask() - first.max(second) + 1).min(self.tick);
        self.coming.map_or(least, |more| least.min(more)).max(1)
    }

    /// Counts what was executed at this level, `far` of it being far branches.
    fn count(&mut self, executed: Executed, far: u64, level: u64) {
        for which in 0..2 {
            let control = self.registers.controls[which];
            if control & level == 0 || !self.is_on(which, control) {
                continue;
            }
            let more = match (self.kind.is_intel(), control & 0xffff) {
                (true, 0x00c4) => executed.branches,
                (true, 0x40c4) | (false, 0xc6) => far,
                (false, 0xc4) => executed.taken,
                _ => 0,
            };
            self.add(which, more, control & INTERRUPTS != 0);
        }
    }

    fn is_on(&self, which: usize, control: u64) -> bool {
        let registers = &self.registers;
        let all = self.kind.global().is_some();
        let frozen = all && registers.debug >> 12 & 1 == 1 && registers.status != 0;
        control & ON != 0 && !frozen && (!all || registers.on >> which & 1 == 1)
    }

    fn add(&mut self, which: usize, more: u64, interrupts: bool) {
        let registers = &mut self.registers;
        let before = registers.counters[which];
        let after = before.wrapping_add(more) & self.kind.mask();
        registers.counters[which] = after;
        if after >= before || more == 0 {
            return;
        }
        let told = registers.status >> which & 1 == 1;
        registers.status |= 1 << which;
        if interrupts && !(told && self.kind.global().is_some()) {
            self.overflow();
        }
    }

    fn overflow(&mut self) {
        if self.script.loses > 0 && self.rng.one_in(self.script.loses) {
            self.lost += 1;
            return;
        }
        let late = self.upto(self.script.skid);
        self.late = self.late.max(late);
        if late == 0 {
            self.pending |= !self.masked;
            return;
        }
        self.coming = Some(self.coming.map_or(late, |sooner| sooner.min(late)));
    }
}

impl Processor for Core {
    fn cpuid(&self, leaf: u32, _part: u32) -> [u32; 4] {
        self.kind.cpuid(leaf)
    }

    fn read(&self, register: u32) -> u64 {
        match self.kind.register(register) {
            Some(Register::Control(which)) => self.registers.controls[which],
            Some(Register::Counter(which, _)) => self.registers.counters[which],
            Some(Register::Debug) => self.registers.debug,
            Some(Register::Own) => self.registers.own,
            _ => panic!("{register:#x} cannot be read"),
        }
    }

    fn write(&mut self, register: u32, value: u64) {
        let mask = self.kind.mask();
        match self.kind.register(register) {
            Some(Register::Control(which)) => self.registers.controls[which] = value,
            // What is above the width is reserved.
            Some(Register::Counter(_, true)) if value & !mask != 0 => {
                self.flaw = Some("reserved bits of a counter");
            }
            Some(Register::Counter(which, true)) => self.registers.counters[which] = value,
            Some(Register::Counter(which, false)) => {
                let half = value << 32;
                let filled = half.cast_signed() >> 32;
                self.registers.counters[which] = filled.cast_unsigned() & mask;
            }
            Some(Register::On) => self.registers.on = value,
            Some(Register::Clear) => self.registers.status &= !value,
            Some(Register::Debug) => self.registers.debug = value,
            Some(Register::Own) if !self.kind.is_intel() => self.registers.own = value,
            _ => self.flaw = Some("a register that it does not have"),
        }
    }

    fn open(&mut self) {
        self.masked = false;
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Intel(48),
        Self::IntelHalf(40),
        Self::IntelHalf(48),
        Self::Amd,
        Self::AmdSecond,
    ];

    const fn is_intel(self) -> bool {
        matches!(self, Self::Intel(_) | Self::IntelHalf(_))
    }

    const fn mask(self) -> u64 {
        match self {
            Self::Intel(width) | Self::IntelHalf(width) => (1 << width) - 1,
            Self::Amd | Self::AmdSecond => (1 << 48) - 1,
        }
    }

    /// Are there registers for all counters? Which are on, and what clears overflows.
    const fn global(self) -> Option<[u32; 2]> {
        match self {
            Self::Intel(_) | Self::IntelHalf(_) => Some([0x38f, 0x390]),
            Self::AmdSecond => Some([0xc000_0301, 0xc000_0302]),
            Self::Amd => None,
        }
    }

    /// What register has this number.
    fn register(self, number: u32) -> Option<Register> {
        let own = match (self.is_intel(), number) {
            (_, 0x1d9) => Register::Debug,
            (true, 0x345) | (false, 0xc001_1020) => Register::Own,
            (true, 0x186) | (false, 0xc001_0200) => Register::Control(0),
            (true, 0x187) | (false, 0xc001_0202) => Register::Control(1),
            (true, 0xc1) => Register::Counter(0, false),
            (true, 0xc2) => Register::Counter(1, false),
            (true, 0x4c1) if matches!(self, Self::Intel(_)) => Register::Counter(0, true),
            (true, 0x4c2) if matches!(self, Self::Intel(_)) => Register::Counter(1, true),
            (false, 0xc001_0201) => Register::Counter(0, true),
            (false, 0xc001_0203) => Register::Counter(1, true),
            _ => {
                let [on, clear] = self.global()?;
                return match number {
                    _ if number == on => Some(Register::On),
                    _ if number == clear => Some(Register::Clear),
                    _ => None,
                };
            }
        };
        Some(own)
    }

    /// What `cpuid` tells: a Skylake or a Zen 3.
    fn cpuid(self, leaf: u32) -> [u32; 4] {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        match (self, leaf) {
            (Self::Intel(_) | Self::IntelHalf(_), 0) => {
                [0x16, word(b"Genu"), word(b"ntel"), word(b"ineI")]
            }
            (_, 0) => [0x10, word(b"Auth"), word(b"cAMD"), word(b"enti")],
            (Self::Intel(_) | Self::IntelHalf(_), 1) => [0x0005_06e3, 0, 1 << 15, 0],
            (_, 1) => [0x00a2_0f10, 0, 0, 0],
            (Self::Intel(width) | Self::IntelHalf(width), 0xa) => {
                [7 << 24 | width << 16 | 4 << 8 | 4, 0, 0, 0]
            }
            (_, 0x8000_0000) => [0x8000_0022, 0, 0, 0],
            (Self::Amd | Self::AmdSecond, 0x8000_0001) => [0, 0, 1 << 23, 0],
            (Self::AmdSecond, 0x8000_0022) => [1, 6, 0, 0],
            _ => [0; 4],
        }
    }
}
