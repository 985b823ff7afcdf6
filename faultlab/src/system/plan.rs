//! What is done to one machine: a pure function of (campaign seed, index).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::Rng;

/// Classes of state of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// General-purpose registers, instruction pointer, flags: of program or kernel, wherever the
    /// replica is.
    Gpr,
    /// Vector registers.
    Xmm,
    /// The kernel's code and constants.
    KernelCode,
    /// The kernel's data and stack.
    KernelData,
    /// The kernel's page tables.
    KernelTables,
    /// Object memory that is neither a program's page nor a page table: capabilities, threads.
    Objects,
    /// Page tables of programs.
    UserTables,
    /// Memory of programs: root task, drivers, programs.
    User,
    /// The replica's own slice of the shared region.
    Shared,
    /// Memory of a guest: an operating system and its programs.
    Guest,
    /// Memory of drivers.
    Drivers,
    /// Memory of the TCP/IP stack.
    Network,
    /// Memory of the Linux personality.
    Personality,
    /// Memory of programs of Linux.
    Linux,
    /// Transfer memory, which devices read and write: outside of what is replicated.
    Transfer,
}

/// Classes with their weights.
pub(super) const TARGETS: [(Target, u64); 9] = [
    (Target::Gpr, 8),
    (Target::Xmm, 1),
    (Target::KernelCode, 2),
    (Target::KernelData, 2),
    (Target::KernelTables, 1),
    (Target::Objects, 3),
    (Target::UserTables, 2),
    (Target::User, 4),
    (Target::Shared, 1),
];

/// The same for machines that serve, where it is known whose memory is hit.
pub(super) const OF_SERVICE: [(Target, u64); 12] = [
    (Target::Gpr, 8),
    (Target::Xmm, 1),
    (Target::KernelCode, 2),
    (Target::KernelData, 2),
    (Target::KernelTables, 1),
    (Target::Objects, 2),
    (Target::UserTables, 1),
    (Target::Drivers, 1),
    (Target::Network, 2),
    (Target::Personality, 2),
    (Target::Linux, 2),
    (Target::Shared, 1),
];
/// Transfer memory alone.
pub(super) const OF_TRANSFER: [(Target, u64); 1] = [(Target::Transfer, 1)];

/// The same for machines with a guest, of which it is that is hit.
pub(super) const OF_GUEST: [(Target, u64); 3] =
    [(Target::Gpr, 8), (Target::Xmm, 1), (Target::Guest, 3)];
/// Its general registers only, as in DSN'19, table VIII.
pub(super) const REGISTERS: [(Target, u64); 1] = [(Target::Gpr, 1)];

impl Target {
    fn pick(random: u64, targets: &[(Self, u64)]) -> Self {
        let total: u64 = targets.iter().map(|(_, weight)| weight).sum();
        let mut left = random % total;
        for &(target, weight) in targets {
            if left < weight {
                return target;
            }
            left -= weight;
        }
        unreachable!("the weights add up")
    }

    /// Is it a register?
    #[must_use]
    pub const fn is_register(self) -> bool {
        matches!(self, Self::Gpr | Self::Xmm)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpr => "gpr",
            Self::Xmm => "xmm",
            Self::KernelCode => "kernel code",
            Self::KernelData => "kernel data",
            Self::KernelTables => "kernel page tables",
            Self::Objects => "kernel objects",
            Self::UserTables => "user page tables",
            Self::User => "user memory",
            Self::Shared => "shared region",
            Self::Guest => "guest memory",
            Self::Drivers => "drivers",
            Self::Network => "network stack",
            Self::Personality => "personality",
            Self::Linux => "programs of Linux",
            Self::Transfer => "transfer memory",
        })
    }
}

/// Instructions that a replica is at most stepped on from the event at which it stands still.
const STEPS: u64 = 400;

/// One flip as drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// Which class of state is hit.
    pub target: Target,
    /// Selects the register, or the page and byte.
    pub place: u64,
    /// Selects the bit.
    pub bit: u64,
    /// Instructions that the victim goes on by itself from where it stands.
    pub steps: u64,
}

/// What is done to one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Index in the campaign.
    pub index: u64,
    /// Which program runs.
    pub program: usize,
    /// Which replica is hit: one only, because one is what can be masked.
    pub victim: usize,
    /// Which replica has the machine stand still at events of its own.
    pub pauser: usize,
    /// When first: share of the interval between flips.
    pub moment: f64,
    /// The flips, until one shows.
    pub flips: Vec<Flip>,
}

impl Plan {
    /// Draws what is done to machine `index`.
    #[must_use]
    pub fn derive(
        seed: u64,
        index: u64,
        [programs, replicas, flips]: [usize; 3],
        targets: &[(Target, u64)],
    ) -> Self {
        let mut rng = Rng::new(&[seed, index]);
        let mut below = |limit: usize| {
            usize::try_from(rng.next() % limit as u64).expect("below a small number")
        };
        let (program, victim, pauser) = (below(programs), below(replicas), below(replicas));
        let moment = rng.unit();
        let alone = victim == pauser;
        let flips = (0..flips).map(|_| Flip::draw(&mut rng, alone, targets));
        let flips = flips.collect();
        Self {
            index,
            program,
            victim,
            pauser,
            moment,
            flips,
        }
    }
}

impl Flip {
    /// Of a replica that stands wherever it is.
    pub(super) fn anywhere(rng: &mut Rng) -> Self {
        Self::among(rng, &TARGETS)
    }

    /// The same, of some classes.
    pub(super) fn among(rng: &mut Rng, targets: &[(Target, u64)]) -> Self {
        Self::draw(rng, false, targets)
    }

    /// A victim that pauses by itself stands in its kernel, so it is led on from there.
    fn draw(rng: &mut Rng, alone: bool, targets: &[(Target, u64)]) -> Self {
        let target = Target::pick(rng.next(), targets);
        let (place, bit, steps) = (rng.next(), rng.next(), rng.next() % STEPS);
        let led = alone && target.is_register();
        Self {
            target,
            place,
            bit,
            steps: if led { steps } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_plan_is_a_function_of_seed_and_index() {
        let draw = |seed, index| Plan::derive(seed, index, [5, 3, 2], &TARGETS);
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3).flips, draw(8, 3).flips);
        assert_ne!(draw(7, 3).flips, draw(7, 4).flips);
    }

    #[test]
    fn everything_is_drawn() {
        let plans: Vec<Plan> = (0..2000)
            .map(|index| Plan::derive(1, index, [2, 3, 1], &TARGETS))
            .collect();
        let seen: BTreeSet<_> = plans
            .iter()
            .map(|plan| (plan.victim, plan.pauser, plan.flips[0].target))
            .collect();
        assert_eq!(seen.len(), 81);
        assert!(plans.iter().all(|plan| plan.flips[0].steps < STEPS));
        assert!(plans.iter().any(|plan| plan.flips[0].steps > 0));
    }
}
