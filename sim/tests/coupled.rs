//! Replicas that are interrupted anywhere agree on a point: seeds, and all schedules of one
//! attempt with a fault at any step.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::Guards;
    use rcoe_core::coupling::{Counter, Machine as _, States};
    use rcoe_sim::coupled::fault::Fault;
    use rcoe_sim::coupled::group::{Arena, Group, PACE};
    use rcoe_sim::coupled::model::{Explored, Flaw, Scope, explore};
    use rcoe_sim::coupled::random::{Summary, simulate, simulate_amid};
    use rcoe_sim::coupled::vm::{Ins, Meter};

    /// Counts in memory: registers are equal at each turn.
    const SILENT: &[Ins] = &[Ins::Nop, Ins::LoopMemory(0, 4, 1), Ins::Call, Ins::Exit];
    /// Counts in the vector state, within a loop in memory.
    const VECTOR: &[Ins] = &[
        Ins::Nop,
        Ins::LoopVector(1, 2, 1),
        Ins::LoopMemory(0, 2, 2),
        Ins::Call,
        Ins::Exit,
    ];
    /// Goes through a call on its way.
    const CALLS: &[Ins] = &[
        Ins::Mix(0),
        Ins::Call,
        Ins::Store(0, 0, 0),
        Ins::Nop,
        Ins::Exit,
    ];
    /// Waits for the point.
    const SPIN: &[Ins] = &[Ins::Bump(0, 0), Ins::Spin(1), Ins::Call, Ins::Exit];

    const LOSS: &[Fault] = &[Fault::Die];
    const SLOW: &[Fault] = &[Fault::Slow];
    const FLIPS: &[Fault] = &[
        Fault::FlipRegister(0, 3),
        Fault::FlipRegister(4, 0),
        Fault::FlipVector(1, 1),
        Fault::FlipPage(2, 0, 1),
        Fault::FlipTrace(3),
    ];
    const MASKED: &[Fault] = &[
        Fault::FlipStub(0, 0),
        Fault::FlipStub(1, 1),
        Fault::FlipStub(5, 0),
        Fault::FlipList(0),
        Fault::FlipList(1),
    ];

    const fn scope<'a>(
        program: &'a [Ins],
        places: &'a [usize],
        faults: &'a [Fault],
        victims: &'a [usize],
    ) -> Scope<'a> {
        Scope {
            program,
            places,
            moves: 2,
            rates: &[1, 2, 1],
            meters: &[],
            pace: PACE,
            faults,
            victims,
            phases: 7,
            guards: Guards::ON,
            limit: 3_000_000,
        }
    }

    fn report(name: &str, explored: Result<Explored, Flaw>) -> Explored {
        match explored {
            Ok(explored) => {
                println!("{name}: {explored:?}");
                assert!(explored.acted > 0, "{name}: points are agreed on");
                explored
            }
            Err(flaw) => panic!("{name}: {flaw:#?}"),
        }
    }

    fn check(name: &str, scope: &Scope<'_>) -> Explored {
        let start = std::time::Instant::now();
        let explored = report(name, explore::<States>(scope));
        println!("  in {:.1?}", start.elapsed());
        explored
    }

    #[test]
    fn two_agree() {
        for program in [SILENT, VECTOR, CALLS, SPIN] {
            for places in [[0, 0], [0, 3], [4, 1]] {
                check("two", &scope(program, &places, &[], &[]));
            }
        }
    }

    #[test]
    fn two_with_a_fault() {
        for program in [SILENT, VECTOR, CALLS] {
            for faults in [LOSS, SLOW, FLIPS, MASKED] {
                check("two, fault", &scope(program, &[0, 3], faults, &[0, 1]));
            }
        }
    }

    #[test]
    fn three_agree() {
        for program in [SILENT, VECTOR, CALLS] {
            let all = scope(program, &[0, 3, 1], &[], &[]);
            check("three", &Scope { moves: 0, ..all });
        }
    }

    #[test]
    fn three_with_a_fault() {
        for faults in [LOSS, SLOW, FLIPS, MASKED] {
            let all = scope(SILENT, &[0, 3, 1], faults, &[0, 1, 2]);
            check("three, fault", &Scope { moves: 0, ..all });
        }
    }

    #[test]
    fn damage_to_a_board_costs_no_phase() {
        let words = Group::<States>::new(2, &SILENT.into(), Guards::ON).boards[0].len();
        let faults: Vec<Fault> = (0..words).map(|word| Fault::FlipBoard(word, 1)).collect();
        let all = scope(SILENT, &[0, 3], &[], &[]);
        let all = Scope { moves: 0, ..all };
        let without = check("whole", &all);
        let damaged = Scope {
            faults: &faults,
            victims: &[0, 1],
            phases: without.phases,
            ..all
        };
        let with = check("damaged", &damaged);
        assert!(with.ends > words, "it was damaged everywhere: {with:?}");
    }

    #[test]
    fn a_counter_finds_the_place_at_once() {
        for program in [SILENT, VECTOR, CALLS] {
            let places = [0, 3];
            let found = scope(program, &places, MASKED, &[0, 1]);
            let name = "counter";
            let explored = report(name, explore::<Counter>(&found));
            assert!(explored.phases <= 2, "{explored:?}");
        }
    }

    /// Counts all branches of the program, and up to one of others.
    const METER: Meter = Meter {
        others: 1,
        lost: 0,
        stopped: None,
    };

    #[test]
    fn with_a_counter_two_meet() {
        for program in [SILENT, VECTOR, CALLS] {
            for faults in [&[][..], MASKED, &[Fault::Blind]] {
                let all = scope(program, &[0, 3], faults, &[0, 1]);
                check(
                    "counted",
                    &Scope {
                        meters: &[METER; 2],
                        ..all
                    },
                );
            }
        }
    }

    #[test]
    fn with_a_counter_faults_are_found() {
        let bad = [
            Fault::LoseBranches(1),
            Fault::LoseBranches(5),
            Fault::StopCounter,
        ];
        for faults in [FLIPS, &bad] {
            let all = scope(SILENT, &[0, 3], faults, &[0, 1]);
            let all = Scope {
                meters: &[METER; 3],
                ..all
            };
            check("counted, fault", &all);
            let places = &[0, 3, 1];
            let three = Scope {
                places,
                moves: 0,
                victims: &[0, 1, 2],
                ..all
            };
            check("counted, fault, three", &three);
        }
    }

    /// Bounds differ, so that two of three may meet at a target of the one that lies, and the third
    /// takes itself to have passed it.
    #[test]
    fn one_counter_alone_convicts_nobody() {
        let program = [Ins::LoopMemory(0, 30, 1), Ins::Exit];
        for others in [[0, 2, 2], [2, 0, 0], [0, 0, 2]] {
            let meters = others.map(|others| Meter {
                others,
                ..Meter::default()
            });
            for lost in [5, 10, 20] {
                let faults = [Fault::LoseBranches(lost)];
                for places in [[5, 20, 12], [10, 20, 5]] {
                    let all = scope(&program, &places, &faults, &[0, 1, 2]);
                    let all = Scope {
                        moves: 0,
                        meters: &meters,
                        ..all
                    };
                    check("one lies", &all);
                }
            }
        }
        let ended = simulate(60_067_016, None, Guards::ON, false);
        assert!(ended.is_ok(), "{ended:?}");
    }

    /// The phases after which two of which one was hit know that they cannot meet.
    fn phases_to_a_verdict(meter: Option<Meter>) -> u8 {
        let program = [Ins::Nop, Ins::LoopMemory(0, u64::MAX, 1), Ins::Exit];
        let mut group = Group::<States>::new(2, &program.into(), Guards::ON);
        let mut arena = Arena::new(2);
        for (process, steps) in group.processes.iter_mut().zip([400, 100]) {
            process.replica.meter = meter;
            process.replica.since = 1;
            (0..steps).for_each(|_| process.replica.step());
            process.coupler.begin();
        }
        group.processes[0].replica.vm.vector[0] ^= 1;
        while group.processes.iter().any(|it| it.end().is_none()) {
            (0..2).for_each(|index| {
                group.advance(&mut arena, index, 500);
            });
        }
        group.processes[0].coupler.stamp().phase
    }

    #[test]
    fn a_counter_saves_phases_to_a_verdict() {
        assert_eq!(phases_to_a_verdict(Some(METER)), 2);
        assert_eq!(phases_to_a_verdict(None), rcoe_core::coupling::LAST_PHASE);
    }

    #[test]
    fn two_meet_although_the_counter_of_one_stands_still() {
        let program = [Ins::Nop, Ins::LoopMemory(0, u64::MAX, 1), Ins::Exit];
        for (still, steps) in [(0, [400, 100]), (1, [400, 100]), (1, [400, 399])] {
            let mut group = Group::<States>::new(2, &program.into(), Guards::ON);
            let mut arena = Arena::new(2);
            for (index, steps) in steps.into_iter().enumerate() {
                let process = &mut group.processes[index];
                process.replica.since = 1;
                process.replica.meter = Some(METER);
                (0..steps).for_each(|_| process.replica.step());
                process.coupler.begin();
            }
            let meter = &mut group.processes[still].replica.meter;
            meter.as_mut().expect("it counts").stopped = Some(7);
            while group.processes.iter().any(|it| it.acted.is_none()) {
                for index in 0..2 {
                    group.advance(&mut arena, index, 500);
                    assert_eq!(group.processes[index].end(), None, "{still} {steps:?}");
                }
            }
        }
    }

    #[test]
    fn seeds_pass_and_go_through_all_that_can_happen() {
        let mut sum = Summary::default();
        let (mut noticed, mut admitted, mut amid, mut late) = (0, 0, 0, 0);
        for seed in 0..8000 {
            match simulate(seed, None, Guards::ON, false) {
                Ok(summary) => {
                    sum.points += summary.points;
                    sum.calls += summary.calls;
                    late += u32::from(summary.phases > 2);
                    noticed += u32::from(summary.noticed);
                    admitted += u32::from(summary.admitted);
                    amid += u32::from(summary.amid);
                }
                Err(failure) => {
                    panic!("cargo run -p rcoe-sim -- --coupled --seed {seed}: {failure:?}")
                }
            }
        }
        println!("{sum:?}, noticed {noticed}, admitted {admitted}, amid {amid}, late {late}");
        assert!(sum.points > 20_000, "between calls: {}", sum.points);
        assert!(sum.calls > 10_000, "at calls: {}", sum.calls);
        assert!(late > 1000, "more than two phases: {late}");
        assert!(noticed > 300, "faults must matter: {noticed}");
        assert!(admitted > 200, "copies must be taken in: {admitted}");
        assert!(amid > 100, "during an attempt, too: {amid}");
    }

    #[test]
    fn a_majority_of_which_one_was_hit_since_convicts_nobody() {
        let ended = simulate(60_383_832, None, Guards::ON, false);
        assert!(ended.is_ok(), "{ended:?}");
        for seed in [10_077, 16_134, 87_510, 119_073, 153_390, 162_114] {
            let ended = simulate_amid(seed, Guards::ON, false);
            assert!(ended.is_ok(), "{seed}: {ended:?}");
        }
    }

    #[test]
    fn a_majority_that_meets_in_every_third_phase_only_is_right() {
        let ended = simulate(1_009_281, Some(3), Guards::ON, false);
        assert!(ended.is_ok(), "{ended:?}");
    }

    #[test]
    fn seeds_in_which_one_is_hit_when_others_have_met_it_pass() {
        let mut noticed = 0;
        for seed in 0..3000 {
            match simulate_amid(seed, Guards::ON, false) {
                Ok(summary) => noticed += u32::from(summary.noticed),
                Err(failure) => {
                    panic!("cargo run -p rcoe-sim -- --amid --seed {seed}: {failure:?}")
                }
            }
        }
        assert!(noticed > 100, "faults must matter: {noticed}");
    }

    /// How far the one that is behind takes itself to have come when it meets the other.
    fn progress_with(visit: u64) -> u64 {
        let program = [Ins::Nop, Ins::LoopMemory(0, 4000, 1), Ins::Exit];
        let mut group = Group::<States>::new(2, &program.into(), Guards::ON);
        let mut arena = Arena::new(2);
        for _ in 0..400 {
            group.processes[0].replica.step();
        }
        group.processes[1].replica.visit = visit;
        for process in &mut group.processes {
            process.coupler.begin();
        }
        let mut most = 0;
        while group.processes[1].acted.is_none() {
            for index in 0..2 {
                group.advance(&mut arena, index, 10);
            }
            most = most.max(group.processes[1].replica.standing().progress);
        }
        most
    }

    #[test]
    fn long_visits_to_a_stub_are_no_progress() {
        assert_eq!(progress_with(6), progress_with(13));
        for seed in [
            100_134_030,
            100_156_362,
            100_324_236,
            200_171_004,
            200_265_138,
        ] {
            let ended = simulate(seed, None, Guards::ON, false);
            assert!(ended.is_ok(), "{seed}: {ended:?}");
        }
    }

    #[test]
    fn a_seed_replays() {
        for seed in 0..100 {
            let run = || format!("{:?}", simulate(seed, Some(3), Guards::ON, false));
            assert_eq!(run(), run());
        }
    }
}
