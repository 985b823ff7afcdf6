//! All schedules of short programs with one fault at any step, for two, three and four replicas.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::{Guards, HEADER, POSTS, snapshot};
    use rcoe_sim::fault::Fault;
    use rcoe_sim::model::{Scope, explore};
    use rcoe_sim::program::Op;

    const READ: Op = Op::Input { repeatable: false };
    const PEEK: Op = Op::Input { repeatable: true };
    const WRITE: Op = Op::Output { repeatable: false };

    const CRASH: &[Fault] = &[Fault::FlipTrace(3), Fault::FlipData(5), Fault::Die];
    /// Arrival, alarm, position, halt word: what peers poll.
    const GARBLE: &[Fault] = &[
        Fault::Garble {
            word: snapshot::ARRIVED,
            value: u64::MAX,
        },
        Fault::Garble {
            word: snapshot::ALARM,
            value: 1,
        },
        Fault::Garble {
            word: snapshot::ALARM,
            value: 77,
        },
        Fault::Garble {
            word: snapshot::CURSOR,
            value: 3,
        },
        Fault::Garble {
            word: snapshot::CURSOR,
            value: u64::MAX,
        },
        Fault::Garble {
            word: snapshot::HALT,
            value: 1,
        },
    ];

    fn check(
        name: &str,
        n: usize,
        program: &[Op],
        faults: &[Fault],
        victims: &[usize],
        triggers: u8,
    ) {
        let start = std::time::Instant::now();
        let scope = Scope {
            n,
            program,
            faults,
            victims,
            triggers,
            room: POSTS,
            punctual: name.contains("punctual"),
            reduced: None,
            guards: Guards::ON,
            limit: 8_000_000,
            paths: std::env::var_os("RCOE_MODEL_PATHS").is_some(),
        };
        match explore(&scope) {
            Ok(explored) => println!("{name}: {explored:?} in {:.1?}", start.elapsed()),
            Err(flaw) => panic!("{name}: {flaw:#?}"),
        }
    }

    #[test]
    fn two_replicas() {
        let program = [READ, WRITE, PEEK, WRITE, Op::Compare];
        check("two, crash", 2, &program, CRASH, &[0, 1], 0);
        check("two, slow", 2, &program, &[Fault::Slow], &[0, 1], 0);
        check("two, garbled", 2, &program, GARBLE, &[0, 1], 0);
    }

    #[test]
    fn two_replicas_with_actions() {
        let program = [Op::Act, PEEK, Op::Act, Op::Compare];
        check("two, actions", 2, &program, CRASH, &[0, 1], 2);
    }

    #[test]
    fn three_replicas_one_crashed() {
        let program = [READ, WRITE, PEEK, WRITE, Op::Compare];
        check("three, crash", 3, &program, CRASH, &[0, 1, 2], 0);
    }

    #[test]
    fn three_replicas_with_a_full_ring() {
        let program = [PEEK, READ, PEEK, Op::Compare];
        check("three, ring", 3, &program, &[Fault::Die], &[0, 1, 2], 0);
    }

    #[test]
    fn three_replicas_one_slow() {
        check(
            "three, slow",
            3,
            &[READ, Op::Compare],
            &[Fault::Slow],
            &[0, 1, 2],
            0,
        );
        check(
            "three, slow",
            3,
            &[WRITE, Op::Compare],
            &[Fault::Slow],
            &[0, 1, 2],
            0,
        );
    }

    #[test]
    fn three_replicas_with_actions() {
        let program = [Op::Act, PEEK, Op::Act, Op::Compare];
        check("three, actions", 3, &program, &[Fault::Die], &[0, 1, 2], 1);
        check(
            "three, actions, slow",
            3,
            &program,
            &[Fault::Slow],
            &[0, 1, 2],
            1,
        );
    }

    #[test]
    fn replicas_with_punctual_actions() {
        let slow = [Fault::Slow];
        for program in [
            [Op::Act, Op::Compute(3), WRITE, Op::Compare],
            [Op::Act, Op::Compute(3), Op::Act, Op::Compare],
        ] {
            check("two, punctual", 2, &program, &slow, &[0, 1], 1);
            check("three, punctual", 3, &program, &slow, &[0, 1, 2], 1);
        }
        let program = [Op::Act, PEEK, Op::Act, Op::Compare];
        check("three, punctual", 3, &program, &slow, &[0, 1, 2], 1);
        check("three, punctual", 3, &program, &[Fault::Die], &[0, 1, 2], 1);
    }

    #[test]
    fn three_replicas_one_garbled() {
        check(
            "three, garbled",
            3,
            &[READ, WRITE, Op::Compare],
            GARBLE,
            &[0, 1, 2],
            0,
        );
    }

    #[test]
    fn three_replicas_in_votes() {
        let program = [Op::Alarm, WRITE, Op::Alarm, Op::Alarm, Op::Compare];
        check("two, votes", 2, &program, CRASH, &[0, 1], 0);
        check(
            "three, votes",
            3,
            &program,
            &[Fault::FlipTrace(3)],
            &[0, 1, 2],
            0,
        );
        let program = [Op::Alarm, WRITE, Op::Compare];
        check(
            "three, in votes",
            3,
            &program,
            &[Fault::Slow],
            &[0, 1, 2],
            0,
        );
    }

    #[test]
    fn three_replicas_with_a_damaged_ring() {
        let ring = [
            Fault::FlipRing {
                word: HEADER,
                bit: 3,
            },
            Fault::FlipRing { word: 0, bit: 1 },
        ];
        check(
            "three, damaged ring",
            3,
            &[READ, WRITE, Op::Compare],
            &ring,
            &[0],
            0,
        );
    }

    #[test]
    fn four_replicas() {
        check(
            "four, crash",
            4,
            &[WRITE, Op::Compare],
            CRASH,
            &[0, 1, 3],
            0,
        );
    }
}
