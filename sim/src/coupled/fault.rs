//! What goes wrong in one replica, once.

use rcoe_core::coupling::Backend;

use super::group::Group;
use super::vm::{AREAS, REGISTERS, VECTOR, WORDS};
use crate::rng::Rng;

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// One bit of a register, or of the instruction pointer.
    FlipRegister(usize, u32),
    /// One bit of the vector state.
    FlipVector(usize, u32),
    /// One bit of memory, which marks no page as written.
    FlipPage(usize, usize, u32),
    /// One bit of the running signature.
    FlipTrace(u32),
    /// One bit of what the replica looks for.
    FlipStub(usize, u32),
    /// One bit of its next list of pages.
    FlipList(u32),
    /// One bit of its board.
    FlipBoard(usize, u32),
    /// A word of its board is overwritten.
    Garble(usize, u64),
    /// Its next run to a target finds nothing, the first time that it is there.
    Blind,
    /// Its counter stops.
    StopCounter,
    /// Its counter loses so many branches.
    LoseBranches(u64),
    /// It ends.
    Die,
    /// It stops for a while.
    Slow,
}

impl Fault {
    /// A random fault.
    #[must_use]
    pub fn random(rng: &mut Rng) -> Self {
        let bit = u32::try_from(rng.below(64)).expect("below 64");
        let low = bit % [64, 4][rng.index(2)];
        match rng.below(24) {
            0 | 1 => Self::FlipRegister(rng.index(REGISTERS + 1), low),
            2 | 3 => Self::FlipVector(rng.index(VECTOR), low),
            4 | 5 => Self::FlipPage(rng.index(AREAS), rng.index(WORDS), low),
            6 => Self::FlipTrace(bit),
            7 | 8 => Self::FlipStub(rng.index(64), low),
            9 | 10 => Self::FlipList(bit),
            11..=13 => Self::FlipBoard(rng.index(1024), bit),
            14 => Self::Garble(rng.index(1024), [0, u64::MAX, rng.draw()][rng.index(3)]),
            15..=17 => Self::Die,
            20 => Self::Blind,
            21 => Self::StopCounter,
            22 | 23 => Self::LoseBranches(1 + rng.below(40)),
            _ => Self::Slow,
        }
    }

    /// A random flip in registers or vector state.
    #[must_use]
    pub fn of_registers(rng: &mut Rng) -> Self {
        let bit = u32::try_from(rng.below(64)).expect("below 64");
        match rng.one_in(2) {
            true => Self::FlipRegister(rng.index(REGISTERS), bit),
            false => Self::FlipVector(rng.index(VECTOR), bit),
        }
    }

    /// Must nobody notice anything?
    #[must_use]
    pub const fn is_masked(self) -> bool {
        matches!(
            self,
            Self::FlipStub(..)
                | Self::FlipList(_)
                | Self::FlipBoard(..)
                | Self::Garble(..)
                | Self::Blind
        )
    }

    /// Applies it; false if it makes no sense there.
    #[must_use]
    pub fn strike<T: Backend>(self, group: &mut Group<T>, victim: usize) -> bool {
        if !group.runs(victim) {
            return false;
        }
        let process = &mut group.processes[victim];
        let vm = &mut process.replica.vm;
        let board = &mut group.boards[victim];
        match self {
            Self::FlipRegister(at, bit) if at < REGISTERS => vm.registers[at] ^= 1 << bit,
            Self::FlipRegister(_, bit) => {
                let ip = (vm.ip ^ 1 << (bit % 5)) % process.replica.program.len();
                if ip == vm.ip {
                    return false;
                }
                vm.ip = ip;
            }
            Self::FlipVector(at, bit) => vm.vector[at] ^= 1 << bit,
            Self::FlipPage(page, word, bit) => vm.pages[page][word] ^= 1 << bit,
            Self::FlipTrace(bit) => {
                let mut signature = vm.trace.signature();
                signature.a ^= 1 << bit;
                vm.trace = rcoe_core::Trace::resume(signature);
            }
            Self::FlipStub(_, _) if process.running.is_none() => return false,
            Self::FlipStub(word, bit) => process.coupler.stub_mut().flip(word, bit),
            Self::FlipList(bit) => process.replica.bad_list = Some(bit),
            Self::FlipBoard(word, bit) => {
                let at = word % board.len();
                board[at] ^= 1 << bit;
            }
            Self::Garble(word, value) => {
                let at = word % board.len();
                board[at] = value;
            }
            Self::Blind if process.running.is_none() => return false,
            Self::Blind => process.blind = true,
            Self::StopCounter => {
                let branches = process.replica.branches;
                let Some(meter) = &mut process.replica.meter else {
                    return false;
                };
                meter.stopped = Some(branches);
            }
            Self::LoseBranches(lost) => {
                let Some(meter) = &mut process.replica.meter else {
                    return false;
                };
                meter.lost += lost;
            }
            Self::Die => process.alive = false,
            Self::Slow => process.slow = true,
        }
        true
    }
}
