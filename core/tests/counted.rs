//! Counted programs: how runs are decided on, which processors have a counter of branches, and what
//! is written into its registers. That programs are stopped so is in `sim/tests/counted.rs`.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use rcoe_core::Guards;
    use rcoe_core::counted::pmu::{Pmu, Processor, Unfit, find};
    use rcoe_core::counted::{Aim, Approach, Nature, Run, Way};
    use rcoe_core::coupling::{Standing, Stop};

    const PLACE: u64 = 0x40_1000;

    fn way(branches: bool, skid: u64, approach: Approach) -> Way {
        Way::new(Nature { branches, skid }, approach, Guards::ON)
    }

    fn run(way: &Way, end: u64) -> Run {
        Run::to((0, end), (Stop::Matched, PLACE), way, true)
    }

    #[test]
    fn an_exact_counter_of_instructions_stops_by_itself() {
        let run = run(&way(false, 0, Approach::Counter), 1_000);
        assert_eq!((run.limit(0), run.aim(0, 0)), (1_000, Aim::None));
        assert_eq!((run.limit(900), run.aim(900, PLACE)), (100, Aim::None));
        assert_eq!(
            (run.over(999, PLACE), run.over(1_000, 0)),
            (None, Some(false))
        );
    }

    #[test]
    fn a_breakpoint_follows_an_interrupt_that_comes_too_early() {
        let run = run(&way(false, 0, Approach::Breakpoint), 1_000);
        assert_eq!((run.limit(0), run.aim(0, PLACE)), (872, Aim::None));
        assert_eq!(run.aim(872, 0), Aim::At(PLACE));
        assert_eq!(run.aim(872, PLACE), Aim::Past(PLACE));
        // One that is missed is noticed.
        assert_eq!((run.limit(872), run.over(1_001, PLACE)), (256, Some(true)));
        assert_eq!(run.over(1_000, PLACE), Some(false));
    }

    #[test]
    fn branches_tell_a_straight_run_and_a_breakpoint_the_place() {
        let run = run(&way(true, 0, Approach::Counter), 1_000);
        assert_eq!((run.limit(0), run.aim(0, 0)), (1_000, Aim::None));
        assert_eq!(
            (run.over(1_000, 0), run.aim(1_000, 0)),
            (None, Aim::At(PLACE))
        );
        assert_eq!((run.limit(1_000), run.over(1_000, PLACE)), (1, Some(false)));
    }

    #[test]
    fn a_late_counter_is_armed_early_and_earlier_once_it_was_later() {
        let mut way = way(true, 512, Approach::Counter);
        assert_eq!(run(&way, 10_000).limit(0), 9_488);
        way.missed();
        assert_eq!(run(&way, 10_000).limit(0), 8_976);
        for _ in 0..100 {
            way.missed();
        }
        assert_eq!(way.early(), 1 << 16);
        // Nothing is early enough of a place that is near.
        assert_eq!(run(&way, 10_000).aim(0, 0), Aim::At(PLACE));
    }

    #[test]
    fn a_counter_that_is_never_late_stays_as_it_is() {
        for approach in [Approach::Counter, Approach::Breakpoint] {
            let mut missed = way(true, 0, approach);
            let before = missed.early();
            missed.missed();
            assert_eq!(missed.early(), before);
        }
    }

    /// What one that was hit came to others never come to, and nobody may wait for that as long as
    /// for a replica that is late.
    #[test]
    fn a_call_is_looked_for_where_the_target_made_it() {
        let standing = |progress, at_call| Standing {
            progress,
            at_call,
            ..Standing::default()
        };
        let end = |progress, at_call, most| Run::end(&standing(progress, at_call), most);
        assert_eq!(end(5_000, false, 9_000), (5_000, Stop::Matched));
        assert_eq!(end(5_000, false, 4_000), (4_000, Stop::Overran));
        assert_eq!(end(5_000, true, 6_000), (6_000, Stop::Overran));
        assert_eq!(end(u64::MAX, true, 6_000), (6_000, Stop::Overran));
        let (most, stop) = end(5_000, true, 100_000_000);
        assert_eq!(stop, Stop::Overran);
        assert!((5_001..=100_000).contains(&most), "{most}");
    }

    #[test]
    fn without_a_target_the_counter_alone_ends_a_run() {
        let way = way(true, 512, Approach::Counter);
        let run = Run::to((0, 1_000), (Stop::Overran, PLACE), &way, true);
        assert_eq!((run.limit(0), run.aim(999, PLACE)), (1_000, Aim::None));
        assert_eq!(run.over(1_200, 0), Some(false));
    }

    #[test]
    fn out_of_where_nobody_is_stopped_it_goes_on_by_so_many() {
        let way = way(false, 0, Approach::Breakpoint);
        let run = Run::on(40, 5, &way);
        assert_eq!((run.limit(40), run.aim(44, PLACE)), (5, Aim::None));
        assert_eq!((run.over(44, 0), run.over(45, 0)), (None, Some(false)));
        let further = run.at_least_to(47).at_least_to(46);
        assert_eq!(
            (further.over(46, 0), further.over(47, 0)),
            (None, Some(false))
        );
        // A target stays where it is.
        let run = Run::to((0, 30), (Stop::Matched, PLACE), &way, false).at_least_to(47);
        assert_eq!(run.over(30, 0), Some(false));
    }

    #[test]
    fn out_of_a_repetition_it_goes_to_the_next_instruction() {
        let run = Run::out(7, PLACE, &way(true, 0, Approach::Counter));
        assert_eq!(
            (run.aim(7, 0), run.over(7, PLACE)),
            (Aim::At(PLACE), Some(false))
        );
        assert_eq!(run.stop(), None);
    }

    /// A processor that tells this, and notes what is written.
    #[derive(Default)]
    struct Told {
        leaves: BTreeMap<u32, [u32; 4]>,
        capabilities: u64,
        holds: BTreeMap<u32, u64>,
        opened: u32,
        asked: RefCell<Vec<u32>>,
    }

    impl Processor for Told {
        fn cpuid(&self, leaf: u32, _part: u32) -> [u32; 4] {
            self.leaves.get(&leaf).copied().unwrap_or_default()
        }

        fn read(&self, register: u32) -> u64 {
            self.asked.borrow_mut().push(register);
            let held = self.holds.get(&register).copied();
            held.unwrap_or(if register == 0x345 {
                self.capabilities
            } else {
                0
            })
        }

        fn write(&mut self, register: u32, value: u64) {
            self.holds.insert(register, value);
        }

        fn open(&mut self) {
            self.opened += 1;
        }
    }

    fn vendor(last: u32, name: &[u8; 12]) -> [u32; 4] {
        let word = |at: usize| u32::from_le_bytes(name[at..at + 4].try_into().unwrap());
        [last, word(0), word(8), word(4)]
    }

    /// Version, counters, bits and events of leaf 10.
    const SKYLAKE: u32 = 7 << 24 | 48 << 16 | 4 << 8 | 4;

    fn intel(signature: u32, monitoring: u32) -> Told {
        let leaves = [
            (0, vendor(0x16, b"GenuineIntel")),
            (1, [signature, 0, 1 << 15, 0]),
            (0xa, [monitoring, 0, 0, 0]),
        ];
        Told {
            leaves: leaves.into(),
            capabilities: 1 << 13,
            ..Told::default()
        }
    }

    fn amd(signature: u32, more: [(u32, [u32; 4]); 2]) -> Told {
        let mut leaves = BTreeMap::from([
            (0, vendor(0x10, b"AuthenticAMD")),
            (1, [signature, 0, 0, 0]),
            (0x8000_0000, [0x8000_0022, 0, 0, 0]),
        ]);
        leaves.extend(more);
        Told {
            leaves,
            ..Told::default()
        }
    }

    const EXTENDED: (u32, [u32; 4]) = (0x8000_0001, [0, 0, 1 << 23, 0]);
    const SECOND: (u32, [u32; 4]) = (0x8000_0022, [1, 6, 0, 0]);
    const ZEN_3: u32 = 0x00a2_0f10;

    #[test]
    fn what_cannot_count_is_refused_by_name() {
        let skylake = 0x0005_06e3;
        let mut uncounted = intel(skylake, SKYLAKE);
        uncounted.leaves.insert(0xa, [SKYLAKE, 1 << 5, 0, 0]);
        let mut hybrid = intel(0x0009_0672, SKYLAKE);
        hybrid.leaves.insert(7, [0, 0, 0, 1 << 15]);
        let mut guest = amd(ZEN_3, [EXTENDED, SECOND]);
        guest.leaves.insert(1, [ZEN_3, 0, 1 << 31, 0]);
        let none = (0, [0; 4]);
        let mut other = Told::default();
        other.leaves.insert(0, vendor(0x16, b"CentaurHauls"));
        for (told, why) in [
            (intel(skylake, 0), Unfit::None),
            (intel(skylake, SKYLAKE & !0xff | 1), Unfit::Version(1)),
            (intel(skylake, SKYLAKE & !0xff00 | 1 << 8), Unfit::Few(1)),
            (
                intel(skylake, 7 << 24 | 31 << 16 | 4 << 8 | 4),
                Unfit::Width(31),
            ),
            (
                intel(skylake, 7 << 24 | 65 << 16 | 4 << 8 | 4),
                Unfit::Width(65),
            ),
            (
                intel(skylake, 5 << 24 | 48 << 16 | 4 << 8 | 4),
                Unfit::NoBranches,
            ),
            (uncounted, Unfit::NoBranches),
            // A Goldmont counts far branches by another event.
            (intel(0x0005_06c9, SKYLAKE), Unfit::Unknown(6, 0x5c)),
            (hybrid, Unfit::Hybrid),
            // What the emulator has.
            (amd(0x0006_0fb1, [none, none]), Unfit::None),
            (
                amd(0x00b4_0f40, [EXTENDED, SECOND]),
                Unfit::Unknown(0x1a, 0x44),
            ),
            (guest, Unfit::Virtual),
            (other, Unfit::None),
            (Told::default(), Unfit::None),
        ] {
            assert_eq!(find(&told), Err(why));
            assert!(
                told.asked.borrow().is_empty(),
                "no register is read: {why:?}"
            );
            assert!(!why.to_string().is_empty());
        }
    }

    /// What registers hold once this one counts, and is armed for 1,000 branches.
    fn armed(mut told: Told) -> Told {
        let mut pmu = Pmu::new(find(&told).unwrap(), Guards::ON);
        told.holds.insert(0x1d9, 1 << 12 | 1 << 11 | 1);
        pmu.begin(&mut told);
        pmu.arm(&mut told, Some(1_000));
        assert_eq!(told.opened, 2);
        told
    }

    #[track_caller]
    fn holds(told: &Told, expected: &[(u32, u64)]) {
        for &(register, value) in expected {
            let held = told.holds.get(&register);
            assert_eq!(held, Some(&value), "{register:#x}: {:#x?}", told.holds);
        }
        assert_eq!(told.holds.len(), expected.len(), "{:#x?}", told.holds);
    }

    #[test]
    fn counters_count_programs_alone_and_do_not_freeze() {
        let start = (1 << 48) - 1_000;
        // All branches with the interrupt, and far ones without.
        let controls = [(0x186, 0x51_00c4), (0x187, 0x41_40c4)];
        let global = [(0x38f, 3), (0x390, 3), (0x1d9, 1)];
        let full = armed(intel(0x0005_06e3, SKYLAKE));
        holds(
            &full,
            &[&controls[..], &global, &[(0x4c1, start), (0x4c2, 0)]].concat(),
        );
        let mut half = intel(0x0005_06e3, SKYLAKE);
        half.capabilities = 0;
        let half = armed(half);
        holds(
            &half,
            &[&controls[..], &global, &[(0xc1, start), (0xc2, 0)]].concat(),
        );

        let counters = [(0xc001_0201, start), (0xc001_0203, 0)];
        let controls = [(0xc001_0200, 0x51_00c4), (0xc001_0202, 0x41_00c6)];
        let rest = [(0x1d9, 1), (0xc001_1020, 1 << 54)];
        let first = armed(amd(ZEN_3, [EXTENDED, (0, vendor(0x10, b"AuthenticAMD"))]));
        holds(&first, &[&counters[..], &controls, &rest].concat());
        let second = armed(amd(ZEN_3, [EXTENDED, SECOND]));
        let global = [(0xc000_0301, 3), (0xc000_0302, 3)];
        holds(
            &second,
            &[&counters[..], &controls, &rest, &global].concat(),
        );
    }

    #[test]
    fn far_branches_are_taken_off_across_the_end_of_a_counter() {
        let mut told = intel(0x0005_06e3, SKYLAKE);
        let mut pmu = Pmu::new(find(&told).unwrap(), Guards::ON);
        pmu.begin(&mut told);
        pmu.arm(&mut told, Some(1_000));
        told.holds.extend([(0x4c1, 30), (0x4c2, 4)]);
        assert_eq!(pmu.executed(&told), 1_026);
        // Nobody is to be stopped: what goes on is not disturbed but for the first time.
        pmu.arm(&mut told, None);
        assert_eq!(told.holds[&0x4c1], 0);
        told.holds.extend([(0x4c1, 5), (0x4c2, 4)]);
        assert_eq!(pmu.executed(&told), 5);
        pmu.arm(&mut told, None);
        told.holds.extend([(0x4c1, 15), (0x4c2, 6)]);
        assert_eq!(pmu.executed(&told), 8);
        // More than a counter can be armed for comes in parts.
        pmu.arm(&mut told, Some(1 << 60));
        assert_eq!(told.holds[&0x4c1], 1 << 47);
    }
}
