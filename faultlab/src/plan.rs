//! What one injection will do: a pure function of (campaign seed, index, attempt).
//!
//! An attempt that could not be carried out (the program had ended, the class held no memory) is
//! followed by the next one of the same index, which draws anew.

use serde::{Deserialize, Serialize};

use crate::target::{Target, Targets};

/// What a campaign draws from.
#[derive(Clone, Debug)]
pub struct Space {
    /// Campaign seed.
    pub seed: u64,
    /// Number of programs.
    pub programs: usize,
    /// Number of replicas.
    pub replicas: usize,
    /// Classes of state.
    pub targets: Targets,
    /// Bits that are flipped in a run, one after the other, of what an effect has at its entry.
    pub flips: u32,
}

/// One injection as drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Index in the campaign.
    pub index: u64,
    /// How often this index was drawn before.
    pub attempt: u32,
    /// Which of the campaign's programs runs.
    pub program: usize,
    /// Which replica is hit.
    pub replica: usize,
    /// Which class of state is hit.
    pub target: Target,
    /// Uniformly random word that selects the register, or the page and byte.
    pub place: u64,
    /// Uniformly random word that selects the bit.
    pub bit: u64,
    /// When: share of the replica's fault-free life time, `0.0..1.0`.
    pub moment: f64,
    /// Uniformly random word that selects the process, of a program that has several.
    #[serde(default)]
    pub process: u64,
    /// How many bits are flipped, one after the other; all but the first are drawn on the way.
    #[serde(default = "crate::inject::one")]
    pub flips: u32,
}

impl Plan {
    /// Draws attempt `attempt` of injection `index`.
    ///
    /// # Panics
    ///
    /// If there is no program, no replica or no target to draw from.
    #[must_use]
    pub fn derive(space: &Space, index: u64, attempt: u32) -> Self {
        assert!(space.programs > 0 && space.replicas > 0 && !space.targets.is_empty());
        let program = below(Rng::new(&[space.seed, index]).next(), space.programs);
        let mut rng = Rng::new(&[space.seed, index, u64::from(attempt)]);
        Self {
            index,
            attempt,
            program,
            replica: below(rng.next(), space.replicas),
            target: space.targets.pick(rng.next()),
            place: rng.next(),
            bit: rng.next(),
            moment: rng.unit(),
            process: rng.next(),
            flips: space.flips,
        }
    }
}

/// A uniformly random number in `0..limit`; the bias of the remainder is below 2^-50 here.
fn below(random: u64, limit: usize) -> usize {
    usize::try_from(random % limit as u64).unwrap_or(0)
}

/// `SplitMix64`: small, well distributed, and the same for ever on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose stream is given by all of `words`.
    #[must_use]
    pub fn new(words: &[u64]) -> Self {
        let mut rng = Self(0x7263_6f65_6c61_6221);
        for &word in words {
            rng.0 ^= word;
            rng.0 = rng.next();
        }
        rng
    }

    /// The next 64 random bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "an endless stream, not an iterator"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0.0..1.0`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Plan, Rng, Space};
    use crate::target::Targets;

    fn space(seed: u64) -> Space {
        Space {
            seed,
            programs: 3,
            replicas: 2,
            targets: Targets::default(),
            flips: 1,
        }
    }

    #[test]
    fn same_seed_and_index_give_the_same_plan() {
        for index in 0..100 {
            assert_eq!(
                Plan::derive(&space(7), index, 0),
                Plan::derive(&space(7), index, 0)
            );
        }
    }

    #[test]
    fn seed_index_and_attempt_all_matter() {
        let base = Plan::derive(&space(7), 5, 0);
        assert_ne!(base.place, Plan::derive(&space(8), 5, 0).place);
        assert_ne!(base.place, Plan::derive(&space(7), 6, 0).place);
        assert_ne!(base.place, Plan::derive(&space(7), 5, 1).place);
    }

    #[test]
    fn retries_keep_the_program() {
        for index in 0..50 {
            let programs: BTreeSet<_> = (0..4)
                .map(|attempt| Plan::derive(&space(7), index, attempt).program)
                .collect();
            assert_eq!(programs.len(), 1);
        }
    }

    /// The stream must never change: a published (seed, index) would replay something else.
    #[test]
    fn stream_is_pinned() {
        let plan = Plan::derive(&space(1), 0, 0);
        assert_eq!((plan.place, plan.bit), PINNED);
    }

    const PINNED: (u64, u64) = (4_596_251_336_174_259_903, 4_113_570_594_777_367_448);

    #[test]
    fn draws_cover_replicas_targets_and_time() {
        let plans: Vec<_> = (0..2000)
            .map(|index| Plan::derive(&space(3), index, 0))
            .collect();
        let seen: BTreeSet<_> = plans
            .iter()
            .map(|plan| (plan.replica, plan.target))
            .collect();
        assert_eq!(seen.len(), 16);
        let early = plans.iter().filter(|plan| plan.moment < 0.5).count();
        assert!((900..1100).contains(&early), "{early}");
        assert!(plans.iter().all(|plan| (0.0..1.0).contains(&plan.moment)));
    }

    #[test]
    fn unit_is_below_one() {
        let mut rng = Rng::new(&[42]);
        assert!((0..10_000).all(|_| rng.unit() < 1.0));
    }
}
