//! Re-integration: all schedules of short programs in a group that gets a lost replica back, with
//! one fault more at any step.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::{Guards, POSTS};
    use rcoe_sim::fault::Fault;
    use rcoe_sim::model::{Explored, Scope, explore};
    use rcoe_sim::program::Op;

    const WRITE: Op = Op::Output { repeatable: false };
    const READ: Op = Op::Input { repeatable: false };
    const PEEK: Op = Op::Input { repeatable: true };

    /// Copied and admitted at the first questions for orders; data at rest is used after.
    const SHORT: &[Op] = &[Op::Orders, Op::Orders, Op::Recall, WRITE, Op::Compare];
    /// Effects before, during and after the admission.
    const LONG: &[Op] = &[
        READ,
        Op::Orders,
        WRITE,
        Op::Orders,
        PEEK,
        WRITE,
        Op::Compare,
    ];

    /// Of these groups, those that a commit tries: half, by its hash; all where it is not said.
    fn sampled(groups: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let Ok(seed) = std::env::var("RCOE_SAMPLE") else {
            return groups.to_vec();
        };
        let seed: usize = seed.parse().expect("RCOE_SAMPLE is a number");
        let kept: Vec<_> = groups.iter().copied().skip(seed % 2).step_by(2).collect();
        println!("sample {seed}: lost and donor {kept:?}");
        kept
    }

    #[track_caller]
    fn check(
        n: usize,
        program: &[Op],
        (lost, donor): (usize, usize),
        faults: &[Fault],
    ) -> Explored {
        let start = std::time::Instant::now();
        let victims: Vec<usize> = (0..n).collect();
        let scope = Scope {
            n,
            program,
            faults,
            victims: &victims,
            reduced: Some((lost, donor)),
            triggers: 0,
            room: POSTS,
            punctual: false,
            guards: Guards::ON,
            limit: 12_000_000,
            paths: std::env::var_os("RCOE_MODEL_PATHS").is_some(),
        };
        match explore(&scope) {
            Ok(explored) => {
                println!(
                    "{n} replicas, R{lost} from R{donor}, {faults:?}: {explored:?} in {:.1?}",
                    start.elapsed()
                );
                assert!(explored.admitted > 0, "nobody was ever taken in");
                explored
            }
            Err(flaw) => panic!("{n} replicas, R{lost} from R{donor}: {flaw:#?}"),
        }
    }

    #[test]
    fn a_lost_replica_comes_back() {
        for pair in sampled(&[(2, 1), (2, 0), (1, 2), (1, 0), (0, 2), (0, 1)]) {
            check(3, LONG, pair, &[]);
        }
    }

    #[test]
    fn a_second_replica_dies_meanwhile() {
        for pair in sampled(&[(2, 1), (0, 2), (0, 1)]) {
            check(3, LONG, pair, &[Fault::Die]);
        }
    }

    #[test]
    fn a_second_replica_goes_wrong_meanwhile() {
        let flips = [Fault::FlipTrace(3), Fault::FlipData(5)];
        for pair in sampled(&[(2, 1), (0, 2)]) {
            check(3, LONG, pair, &flips);
        }
    }

    #[test]
    fn a_latent_flip_is_not_spread() {
        for pair in sampled(&[(2, 1), (0, 1), (1, 0)]) {
            check(3, SHORT, pair, &[Fault::FlipAtRest(5)]);
        }
    }

    #[test]
    fn a_second_replica_is_slow_meanwhile() {
        for pair in sampled(&[(2, 1), (0, 2)]) {
            check(3, SHORT, pair, &[Fault::Slow]);
        }
    }

    #[test]
    fn four_replicas_mask_a_second_fault_meanwhile() {
        let crash = [Fault::FlipTrace(3), Fault::Die];
        for pair in sampled(&[(3, 2), (0, 3)]) {
            check(4, SHORT, pair, &crash);
        }
    }
}
