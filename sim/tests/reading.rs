//! Files that each replica reads by itself: all schedules of short programs of two replicas, and of
//! three that get the bytes from the primary, with one fault or changes of the file at any step.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::{Guards, POSTS};
    use rcoe_sim::fault::Fault;
    use rcoe_sim::model::{Explored, Scope, explore};
    use rcoe_sim::program::Op;

    const PROGRAM: &[Op] = &[
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Output { repeatable: false },
        Op::Compare,
    ];
    /// One that reads again after others were heard.
    const AMONG: &[Op] = &[
        Op::Read,
        Op::Read,
        Op::Output { repeatable: false },
        Op::Read,
        Op::Read,
        Op::Compare,
    ];

    fn check(n: usize, program: &[Op], faults: &[Fault]) -> Explored {
        let victims: Vec<usize> = (0..n).collect();
        let scope = Scope {
            n,
            program,
            faults,
            victims: &victims,
            triggers: 0,
            room: POSTS,
            punctual: false,
            reduced: None,
            guards: Guards::ON,
            limit: 4_000_000,
            paths: std::env::var_os("RCOE_MODEL_PATHS").is_some(),
        };
        let explored = explore(&scope).unwrap_or_else(|flaw| panic!("{n}: {flaw:#?}"));
        println!("{n} {faults:?}: {explored:?}");
        explored
    }

    #[test]
    fn whoever_changes_the_file_nobody_is_at_fault() {
        for program in [PROGRAM, AMONG] {
            let quiet = check(2, program, &[]);
            let changed = check(2, program, &[Fault::Rewrite]);
            assert!(changed.ends > quiet.ends, "what is read must differ");
        }
        check(3, &[Op::Read, Op::Read, Op::Compare], &[Fault::Rewrite]);
    }

    #[test]
    fn what_was_hit_never_goes_out() {
        for bit in [0, 47] {
            check(2, PROGRAM, &[Fault::FlipPiece(bit)]);
        }
        let three = [Op::Read, Op::Output { repeatable: false }, Op::Compare];
        check(3, &three, &[Fault::FlipPiece(5)]);
    }

    #[test]
    fn other_faults_and_changes_at_once() {
        let others = [
            Fault::FlipTrace(3),
            Fault::FlipData(5),
            Fault::Skip,
            Fault::Die,
        ];
        for fault in others {
            check(2, PROGRAM, &[fault, Fault::Rewrite]);
        }
        check(2, PROGRAM, &[Fault::Slow]);
    }
}
