//! Turns by the baton: all schedules, with one fault at any step.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::Guards;
    use rcoe_sim::turns::{Explored, Fault, Scope, explore};

    /// Words of a run, by number of replicas.
    const WORDS: [u64; 5] = [0, 0, 20, 14, 6];

    #[track_caller]
    fn holds(replicas: usize, fault: Option<Fault>) -> Explored {
        let scope = Scope {
            replicas,
            fault,
            words: WORDS[replicas],
            guards: Guards::ON,
        };
        let explored = explore(&scope).unwrap_or_else(|why| panic!("{scope:?}: {why}"));
        println!("{replicas} replicas, {fault:?}: {explored:?}");
        explored
    }

    #[test]
    fn turns_go_round() {
        for replicas in 2..=4 {
            assert_eq!(holds(replicas, None).stopped, 0);
        }
    }

    #[test]
    fn one_that_is_lost_is_passed_over() {
        for replicas in 2..=4 {
            for fault in [Fault::Dies, Fault::Loops, Fault::Late] {
                let stopped = holds(replicas, Some(fault)).stopped;
                // Of two there is no majority.
                let stops = replicas > 2 && fault != Fault::Dies;
                assert!(!stops || stopped > 0, "{replicas} {fault:?}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_of_a_word_has_nobody_stopped() {
        for replicas in [2, 3] {
            for bit in [0, 1, 7, 8, 9, 16, 17, 20, 50, 60] {
                holds(replicas, Some(Fault::Flip(bit)));
            }
        }
    }
}
