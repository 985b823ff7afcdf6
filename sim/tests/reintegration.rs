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
        for (lost, donor) in [(2, 1), (2, 0), (1, 2), (1, 0), (0, 2), (0, 1)] {
            check(3, LONG, (lost, donor), &[]);
        }
    }

    #[test]
    fn a_second_replica_dies_meanwhile() {
        for (lost, donor) in [(2, 1), (0, 2), (0, 1)] {
            check(3, LONG, (lost, donor), &[Fault::Die]);
        }
    }

    #[test]
    fn a_second_replica_goes_wrong_meanwhile() {
        let flips = [Fault::FlipTrace(3), Fault::FlipData(5)];
        check(3, LONG, (2, 1), &flips);
        check(3, LONG, (0, 2), &flips);
    }

    #[test]
    fn a_latent_flip_is_not_spread() {
        for (lost, donor) in [(2, 1), (0, 1), (1, 0)] {
            check(3, SHORT, (lost, donor), &[Fault::FlipAtRest(5)]);
        }
    }

    #[test]
    fn a_second_replica_is_slow_meanwhile() {
        check(3, SHORT, (2, 1), &[Fault::Slow]);
        check(3, SHORT, (0, 2), &[Fault::Slow]);
    }

    #[test]
    fn four_replicas_mask_a_second_fault_meanwhile() {
        let crash = [Fault::FlipTrace(3), Fault::Die];
        check(4, SHORT, (3, 2), &crash);
        check(4, SHORT, (0, 3), &crash);
    }
}
