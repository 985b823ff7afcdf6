//! Deferred effects: all schedules of short programs of two and three replicas with one fault at
//! any step, and all moments at which the primary may release.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::{Guards, POSTS, snapshot};
    use rcoe_sim::fault::Fault;
    use rcoe_sim::model::{Scope, explore};
    use rcoe_sim::program::Op;
    use rcoe_sim::random::simulate_deferring;

    const READ: Op = Op::Input { repeatable: false };
    const WRITE: Op = Op::Output { repeatable: false };
    const SEND: Op = Op::Deferred;

    const CRASH: &[Fault] = &[
        Fault::FlipTrace(3),
        Fault::FlipData(5),
        Fault::FlipDeferred(7),
        Fault::Skip,
        Fault::Die,
    ];
    /// Arrival, alarm, position, halt word, count of posts, and the posts.
    const GARBLE: &[Fault] = &[
        Fault::Garble {
            word: snapshot::ARRIVED,
            value: u64::MAX,
        },
        Fault::Garble {
            word: snapshot::ARRIVED,
            value: 1,
        },
        Fault::Garble {
            word: snapshot::ALARM,
            value: 1,
        },
        Fault::Garble {
            word: snapshot::CURSOR,
            value: u64::MAX,
        },
        Fault::Garble {
            word: snapshot::HALT,
            value: 1,
        },
        Fault::Garble {
            word: snapshot::POSTED,
            value: 0,
        },
        Fault::Garble {
            word: snapshot::POSTED,
            value: 1,
        },
        Fault::Garble {
            word: snapshot::POSTED,
            value: 2,
        },
        Fault::Garble {
            word: snapshot::POSTED,
            value: 5,
        },
        Fault::Garble {
            word: snapshot::POSTED,
            value: u64::MAX,
        },
        Fault::GarblePost { at: 0, value: 0 },
        Fault::GarblePost { at: 1, value: 9 },
    ];

    /// What two replicas do.
    const fn scope<'a>(program: &'a [Op], faults: &'a [Fault], room: usize) -> Scope<'a> {
        Scope {
            n: 2,
            program,
            faults,
            victims: &[0, 1],
            triggers: 0,
            room,
            punctual: false,
            reduced: None,
            guards: Guards::ON,
            limit: 4_000_000,
            paths: false,
        }
    }

    fn check(name: &str, program: &[Op], faults: &[Fault], room: usize, triggers: u8) {
        let two = scope(program, faults, room);
        run(name, Scope { triggers, ..two });
    }

    fn run(name: &str, scope: Scope<'_>) {
        let start = std::time::Instant::now();
        let paths = std::env::var_os("RCOE_MODEL_PATHS").is_some();
        match explore(&Scope { paths, ..scope }) {
            Ok(explored) => println!("{name}: {explored:?} in {:.1?}", start.elapsed()),
            Err(flaw) => panic!("{name}: {flaw:#?}"),
        }
    }

    #[test]
    fn among_other_effects() {
        let program = [SEND, READ, SEND, WRITE, SEND, SEND, Op::Compare];
        check("crash", &program, CRASH, POSTS, 0);
        check("slow", &program, &[Fault::Slow], POSTS, 0);
        check("garbled", &program, GARBLE, POSTS, 0);
    }

    #[test]
    fn when_the_posts_are_used_up() {
        let program = [SEND, SEND, SEND, SEND, SEND, Op::Compare];
        for room in [1, 2] {
            check("crash, full", &program, CRASH, room, 0);
            check("slow, full", &program, &[Fault::Slow], room, 0);
            check("garbled, full", &program, GARBLE, room, 0);
        }
    }

    #[test]
    fn before_answers_to_them() {
        let program = [SEND, Op::Reply, SEND, SEND, Op::Reply, WRITE, Op::Compare];
        check("crash, replies", &program, CRASH, POSTS, 0);
        check("slow, replies", &program, &[Fault::Slow], POSTS, 0);
        check("garbled, replies", &program, GARBLE, POSTS, 0);
    }

    #[test]
    fn before_looks_that_tell_whether_they_are_out() {
        let program = [SEND, Op::Look, SEND, SEND, Op::Look, WRITE, Op::Compare];
        check("crash, looks", &program, CRASH, POSTS, 0);
        check("slow, looks", &program, &[Fault::Slow], POSTS, 0);
        check("garbled, looks", &program, GARBLE, POSTS, 0);
        let full = [SEND, SEND, Op::Look, SEND, SEND, SEND, Op::Look];
        check("crash, looks, full", &full, CRASH, 2, 0);
    }

    #[test]
    fn among_actions() {
        let program = [SEND, Op::Act, SEND, Op::Act, SEND, Op::Compare];
        check("crash, actions", &program, CRASH, POSTS, 1);
        check("slow, actions", &program, &[Fault::Slow], POSTS, 1);
    }

    #[test]
    fn among_votes() {
        let program = [SEND, Op::Alarm, SEND, WRITE, SEND, Op::Alarm, Op::Compare];
        check("crash, votes", &program, CRASH, POSTS, 0);
    }

    #[test]
    fn before_the_last_effect() {
        let program = [SEND, SEND, Op::Compute(3), WRITE];
        check("crash, end", &program, &[Fault::Die, Fault::Slow], POSTS, 0);
    }

    /// What three replicas do, one of which is lost at any step.
    fn check_three(name: &str, program: &[Op], faults: &[Fault], room: usize) {
        let three = Scope {
            n: 3,
            victims: &[0, 2],
            ..scope(program, faults, room)
        };
        run(name, three);
    }

    #[test]
    fn whose_primary_is_lost() {
        let program = [SEND, SEND, WRITE, SEND, Op::Compare];
        check_three("three, crash", &program, CRASH, POSTS);
        let slow = [Fault::Slow];
        check_three("three, slow", &[SEND, SEND, WRITE], &slow, POSTS);
        let full = [SEND, SEND, SEND, Op::Compare];
        check_three("three, full", &full, &[Fault::Die], 1);
        let looks = [SEND, READ, SEND, Op::Look];
        check_three("three, looks", &looks, CRASH, POSTS);
        let answers = [SEND, READ, SEND, Op::Reply];
        check_three("three, replies", &answers, CRASH, POSTS);
    }

    #[test]
    fn that_a_copy_of_a_replica_follows() {
        let program = [SEND, Op::Orders, SEND, SEND, Op::Orders, SEND, Op::Compare];
        for reduced in [(2, 1), (0, 2)] {
            let scope = Scope {
                n: 3,
                victims: &[0, 1, 2],
                reduced: Some(reduced),
                ..scope(&program, &[Fault::Die], POSTS)
            };
            run("a lost one comes back", scope);
        }
    }

    #[test]
    fn seeds_pass() {
        let mut noticed = 0;
        for seed in 0..3000 {
            match simulate_deferring(seed, Guards::ON, false) {
                Ok(summary) => noticed += u32::from(summary.noticed),
                Err(failure) => {
                    panic!("cargo run -p rcoe-sim -- --deferred --seed {seed}: {failure:?}")
                }
            }
        }
        assert!(noticed > 300, "faults must matter: {noticed}");
    }
}
