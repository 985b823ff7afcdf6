//! The program of a replica that is interrupted anywhere: a small machine with registers, vector
//! state and pages, whose next state is a function of its present one.
//!
//! Loops count in a register, in memory or in the vector state. In the latter two all registers are
//! equal at each turn, so a look at registers alone takes one turn for another.

use rcoe_core::coupling::{Counted, Extra, Machine, Standing, States, Stub, VECTORS, list_digest};
use rcoe_core::{Kind, Trace, mix};

use crate::rng::Rng;

/// Registers beside the instruction pointer.
pub const REGISTERS: usize = 4;
/// Pages.
pub const AREAS: usize = 4;
/// Words of a page.
pub const WORDS: usize = 4;
/// Words of vector state.
pub const VECTOR: usize = 3;
/// Where an agreed point leaves its mark: page and word.
pub const MARK: (usize, usize) = (3, 3);

/// An event: the program calls.
const CALL: Kind = Kind(1);
/// An event: a point was agreed on.
const POINT: Kind = Kind(2);

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ins {
    /// Does nothing.
    Nop,
    /// Scrambles a register.
    Mix(usize),
    /// A register goes to memory.
    Store(usize, usize, usize),
    /// A word of memory joins a register.
    Load(usize, usize, usize),
    /// A word of memory counts up; registers stay.
    Bump(usize, usize),
    /// A word of the vector state changes; registers stay.
    BumpVector,
    /// A register counts; goes back that far unless it is a multiple.
    LoopRegister(usize, u64, usize),
    /// A word of memory counts, likewise.
    LoopMemory(usize, u64, usize),
    /// A word of the vector state counts, likewise.
    LoopVector(usize, u64, usize),
    /// Waits in a loop until that many points were agreed on.
    Spin(u64),
    /// A call: an event that depends on a register.
    Call,
    /// The last call, which never returns.
    Exit,
}

/// The state of one replica's program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Vm {
    /// Instruction pointer.
    pub ip: usize,
    /// Registers.
    pub registers: [u64; REGISTERS],
    /// Vector state.
    pub vector: [u64; VECTOR],
    /// Memory.
    pub pages: [[u64; WORDS]; AREAS],
    /// The trace.
    pub trace: Trace,
}

/// A replica's program and what a sphere knows about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    /// The program.
    pub program: std::rc::Rc<[Ins]>,
    /// Its state.
    pub vm: Vm,
    /// Pages written since the last event, one bit each.
    pub dirty: u8,
    /// CPU time since the last event, as far as it counts as the program's, without the run to a
    /// stub that is under way.
    pub spent: u64,
    /// What that took so far.
    pub stubbed: Stubbed,
    /// Loop instructions since the last event.
    pub branches: u64,
    /// CPU time of an instruction.
    pub rate: u64,
    /// CPU time of a visit to a stub.
    pub visit: u64,
    /// Whether progress is counted in branches.
    pub counts: bool,
    /// A counter beside CPU time, if there is one.
    pub meter: Option<Meter>,
    /// The attempt that found the last point, if no call is behind that.
    pub since: u32,
    /// A fault: the next list of pages has this bit flipped.
    pub bad_list: Option<u32>,
}

/// What a counter of branches makes of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Meter {
    /// So many branches are counted that are not the program's, or none of them.
    pub others: u64,
    /// So many were lost.
    pub lost: u64,
    /// It counts no more than that.
    pub stopped: Option<u64>,
}

/// What a run took since its stub was put there. Nobody knows which part of it visits took.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stubbed {
    /// CPU time, of the program and of visits.
    time: u64,
    /// How often the stub was entered.
    visits: u64,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// At what was looked for.
    Matched,
    /// At a call.
    Call,
    /// The steps or the budget are used up.
    Paused,
}

impl Replica {
    /// A replica at the start of `program`.
    #[must_use]
    pub fn new(program: &std::rc::Rc<[Ins]>, counts: bool) -> Self {
        Self {
            program: program.clone(),
            vm: Vm {
                ip: 0,
                registers: [1, 2, 0, 0],
                vector: [0; VECTOR],
                pages: [[0; WORDS]; AREAS],
                trace: Trace::new(),
            },
            dirty: 0,
            spent: 0,
            stubbed: Stubbed::default(),
            branches: 0,
            rate: 1,
            visit: 0,
            counts,
            meter: None,
            since: 0,
            bad_list: None,
        }
    }

    /// The instruction at which it is.
    #[must_use]
    pub fn next(&self) -> Ins {
        self.program[self.vm.ip]
    }

    /// Is it at a call?
    #[must_use]
    pub fn at_call(&self) -> bool {
        matches!(self.next(), Ins::Call | Ins::Exit)
    }

    /// Has it come to the end?
    #[must_use]
    pub fn at_exit(&self) -> bool {
        self.next() == Ins::Exit
    }

    /// Events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.vm.trace.events()
    }

    fn event(&mut self, kind: Kind, value: u64) {
        self.vm.trace.add(kind, value);
        (self.dirty, self.spent, self.branches) = (0, 0, 0);
        self.since = 0;
    }

    /// What the counter tells.
    fn counted(&self) -> Counted {
        let Some(meter) = self.meter else {
            return Counted::default();
        };
        let seen = self.branches.saturating_sub(meter.lost);
        let seen = meter.stopped.map_or(seen, |most| seen.min(most));
        Counted {
            since: self.since,
            least: seen,
            most: seen + meter.others,
        }
    }

    /// Is it behind the target, before which it was?
    #[must_use]
    pub fn is_past(&self, target: &Standing) -> bool {
        target.events == self.events() && target.counted.is_before(&self.counted())
    }

    /// Goes through the call at which it is; not through the last one.
    pub fn call(&mut self) {
        if self.next() == Ins::Call {
            self.event(CALL, self.vm.registers[0]);
            self.vm.registers[1] = mix(self.vm.registers[1] ^ self.events());
            self.vm.ip += 1;
        }
    }

    /// Does what is to be done at a point that all agreed on.
    pub fn act(&mut self, generation: u32) {
        self.event(POINT, u64::from(generation));
        self.since = generation;
        self.write(MARK.0, MARK.1, self.vm.pages[MARK.0][MARK.1] + 1);
    }

    const fn write(&mut self, page: usize, word: usize, value: u64) {
        self.vm.pages[page][word] = value;
        self.dirty |= 1 << page;
    }

    /// One instruction that is no call.
    pub fn step(&mut self) {
        let ins = self.next();
        self.spent += self.rate;
        let vm = &mut self.vm;
        let mut back = None;
        match ins {
            Ins::Nop | Ins::Call | Ins::Exit => {}
            Ins::Mix(r) => vm.registers[r] = mix(vm.registers[r]),
            Ins::Store(r, page, word) => {
                let value = vm.registers[r];
                self.write(page, word, value);
            }
            Ins::Load(r, page, word) => vm.registers[r] ^= vm.pages[page][word],
            Ins::Bump(page, word) => {
                let value = vm.pages[page][word].wrapping_add(1);
                self.write(page, word, value);
            }
            Ins::BumpVector => vm.vector[0] = vm.vector[0].wrapping_add(3),
            Ins::LoopRegister(r, times, by) => {
                vm.registers[r] = vm.registers[r].wrapping_add(1);
                back = Some(if vm.registers[r].is_multiple_of(times) {
                    0
                } else {
                    by
                });
            }
            Ins::LoopMemory(word, times, by) => {
                let value = vm.pages[2][word].wrapping_add(1);
                self.write(2, word, value);
                back = Some(if value.is_multiple_of(times) { 0 } else { by });
            }
            Ins::LoopVector(word, times, by) => {
                vm.vector[word] = vm.vector[word].wrapping_add(1);
                back = Some(if vm.vector[word].is_multiple_of(times) {
                    0
                } else {
                    by
                });
            }
            Ins::Spin(marks) => {
                let met = vm.pages[MARK.0][MARK.1] >= marks;
                self.branches += 1;
                self.vm.ip += usize::from(met);
                return;
            }
        }
        self.branches += u64::from(back.is_some());
        match back {
            Some(by) if by > 0 => self.vm.ip -= by.min(self.vm.ip),
            _ => self.vm.ip += 1,
        }
    }

    /// Goes on to a place where code can be patched, or to a call.
    pub fn place(&mut self) {
        const FAR: usize = 40;
        for _ in 0..FAR {
            if self.at_call() || self.vm.ip % 4 != 3 {
                return;
            }
            self.step();
        }
    }

    /// Goes on to where `stub` finds its words, within a budget and so many steps, through calls
    /// before the events of `target`. What was spent is added to `spent`; `again` says that the
    /// present place does not count.
    pub fn run(
        &mut self,
        stub: &Stub,
        target: &Standing,
        (budget, spent): (u64, &mut u64),
        again: &mut bool,
        steps: usize,
    ) -> Ran {
        for _ in 0..steps {
            if self.at_call() {
                if self.events() >= target.events || self.at_exit() {
                    return Ran::Call;
                }
                self.call();
                continue;
            }
            let before = self.progress();
            let has_stub = !target.at_call && self.events() == target.events;
            let comes = has_stub && self.vm.ip as u64 == stub.registers[0];
            let matches = comes && !std::mem::take(again) && self.visit(stub, target);
            if !matches && *spent < budget {
                self.pass(has_stub);
                *spent += self.progress().saturating_sub(before);
                continue;
            }
            *spent += self.progress().saturating_sub(before);
            return if matches { Ran::Matched } else { Ran::Paused };
        }
        Ran::Paused
    }

    /// The stub is entered: does it find its words?
    fn visit(&mut self, stub: &Stub, target: &Standing) -> bool {
        self.stubbed.visits += 1;
        self.stubbed.time += self.visit;
        self.is_at(stub, target)
    }

    /// One instruction. While a stub stands its time is not told from that of visits.
    fn pass(&mut self, has_stub: bool) {
        let spent = self.spent;
        self.step();
        if has_stub {
            self.stubbed.time += self.spent - spent;
            self.spent = spent;
        }
    }

    /// The stub is gone: what counts of the time since it was put there is progress.
    pub fn uproot(&mut self) {
        let Stubbed { time, visits } = std::mem::take(&mut self.stubbed);
        self.spent += States::progress(visits, time);
    }

    const fn progress(&self) -> u64 {
        let Stubbed { time, visits } = self.stubbed;
        match self.counts {
            true => self.branches,
            false => self.spent + States::progress(visits, time),
        }
    }

    fn is_at(&self, stub: &Stub, target: &Standing) -> bool {
        if self.counts {
            return self.events() == target.events && self.branches == target.progress;
        }
        let mut own = [0; REGISTERS + 1];
        self.registers(&mut own);
        let has = |word: &Extra| self.word(word.area, word.at) == word.value;
        own == stub.registers[..=REGISTERS] && stub.extra().iter().all(has)
    }

    fn word(&self, area: u64, at: usize) -> u64 {
        match usize::try_from(area) {
            Ok(page) if page < AREAS => self.vm.pages[page][at],
            _ => self.vm.vector[at % VECTOR],
        }
    }

    fn list(&self) -> Vec<u64> {
        let dirty = |&page: &u64| self.dirty & 1 << page != 0;
        (0..AREAS as u64).filter(dirty).collect()
    }
}

impl Machine for Replica {
    fn standing(&self) -> Standing {
        let signature = self.vm.trace.signature();
        Standing {
            events: signature.events,
            signature: [signature.a, signature.b],
            at_call: self.at_call(),
            progress: self.progress(),
            ip: self.vm.ip as u64,
            left: 0,
            counted: self.counted(),
        }
    }

    fn registers(&self, out: &mut [u64]) {
        out[0] = self.vm.ip as u64;
        out[1..=REGISTERS].copy_from_slice(&self.vm.registers);
    }

    fn written(&mut self, list: &mut [u64]) -> Option<usize> {
        let mut found = self.list();
        if let Some(bit) = self.bad_list.filter(|_| !found.is_empty()) {
            // A page that was written is named as another.
            self.bad_list = None;
            let at = bit as usize % found.len();
            found[at] ^= 1 << (bit % 2);
        }
        list.get_mut(..found.len())?.copy_from_slice(&found);
        Some(found.len())
    }

    fn seal(&mut self, room: usize) -> Option<u64> {
        let list = self.list();
        (list.len() <= room).then(|| list_digest(&list))
    }

    fn area(&self, area: u64, out: &mut [u64]) -> usize {
        if area == VECTORS {
            out[..VECTOR].copy_from_slice(&self.vm.vector);
            return VECTOR;
        }
        let page = usize::try_from(area)
            .ok()
            .and_then(|at| self.vm.pages.get(at));
        page.map_or(0, |page| {
            out[..WORDS].copy_from_slice(page);
            WORDS
        })
    }

    fn within(&self, _: u64, _: usize) -> Option<u64> {
        None
    }

    fn everything(&self) -> u64 {
        list_digest(self.vm.pages.as_flattened())
    }
}

/// A random program: loops of all kinds, one within another, with calls between them.
#[must_use]
pub fn random(rng: &mut Rng) -> std::rc::Rc<[Ins]> {
    let mut program = Vec::new();
    for _ in 0..1 + rng.index(4) {
        let silent = rng.one_in(2);
        let start = program.len();
        body(rng, &mut program, silent);
        if rng.one_in(2) {
            let inner = program.len();
            body(rng, &mut program, silent);
            let by = program.len() - inner;
            program.push(looping(rng, 0, by, silent));
        }
        if !rng.one_in(6) {
            let by = program.len() - start;
            program.push(looping(rng, 1, by, silent));
        }
        if rng.one_in(8) {
            program.push(Ins::Spin(1 + rng.below(2)));
        }
        if rng.one_in(2) {
            program.push(Ins::Call);
        }
    }
    program.push(Ins::Exit);
    program.into()
}

fn body(rng: &mut Rng, program: &mut Vec<Ins>, silent: bool) {
    if silent && rng.one_in(4) {
        program.push(Ins::Nop);
        return;
    }
    for _ in 0..1 + rng.index(4) {
        let (r, page, word) = (rng.index(2), rng.index(2), rng.index(WORDS));
        program.push(match rng.below(if silent { 4 } else { 7 }) {
            0 => Ins::Nop,
            1 => Ins::Bump(page, word),
            2 => Ins::BumpVector,
            3 => Ins::Store(r, page, word),
            4 => Ins::Load(r, page, word),
            _ => Ins::Mix(r),
        });
    }
}

fn looping(rng: &mut Rng, depth: usize, by: usize, silent: bool) -> Ins {
    let most = if rng.one_in(4) { 60 } else { 12 };
    let times = 2 + rng.below(most);
    match rng.below(4) {
        0 => Ins::LoopVector(1 + depth, times, by),
        1 if !silent => Ins::LoopRegister(2 + depth, times, by),
        _ => Ins::LoopMemory(depth, times, by),
    }
}
