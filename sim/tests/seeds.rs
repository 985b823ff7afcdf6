//! A fixed range of seeds; the command line runs as many as one likes.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::Guards;
    use rcoe_sim::random::{simulate, simulate_reading, simulate_reduced};

    #[test]
    fn seeds_pass() {
        let mut noticed = 0;
        for seed in 0..3000 {
            match simulate(seed, None, Guards::ON, false) {
                Ok(summary) => noticed += u32::from(summary.noticed),
                Err(failure) => panic!("cargo run -p rcoe-sim -- --seed {seed}: {failure:?}"),
            }
        }
        assert!(noticed > 300, "faults must matter: {noticed}");
    }

    /// Punctual members of which one breaks and halts: others had passed the action in which the
    /// last waits, and called for the vote from where they were.
    #[test]
    fn who_waits_in_an_action_joins_a_vote_that_is_called_from_elsewhere() {
        for seed in [239_625, 280_977, 288_903, 331_221, 345_757, 20_893_195] {
            let summary = simulate(seed, None, Guards::ON, false)
                .unwrap_or_else(|failure| panic!("rcoe-sim --seed {seed}: {failure:?}"));
            assert!(summary.noticed, "{seed}: the fault must strike");
        }
    }

    #[test]
    fn seeds_of_reduced_groups_pass() {
        let (mut noticed, mut admitted) = (0, 0);
        for seed in 0..3000 {
            match simulate_reduced(seed, None, Guards::ON, false) {
                Ok(summary) => {
                    noticed += u32::from(summary.noticed);
                    admitted += u32::from(summary.admitted);
                }
                Err(failure) => {
                    panic!("cargo run -p rcoe-sim -- --reduced --seed {seed}: {failure:?}")
                }
            }
        }
        assert!(noticed > 300, "faults must matter: {noticed}");
        assert!(admitted > 300, "copies must be taken in: {admitted}");
    }

    #[test]
    fn seeds_of_groups_that_read_a_file_pass() {
        let mut noticed = 0;
        for seed in 0..3000 {
            match simulate_reading(seed, Guards::ON, false) {
                Ok(summary) => noticed += u32::from(summary.noticed),
                Err(failure) => {
                    panic!("cargo run -p rcoe-sim -- --reading --seed {seed}: {failure:?}")
                }
            }
        }
        assert!(noticed > 300, "faults must matter: {noticed}");
    }

    #[test]
    fn a_seed_replays() {
        for seed in 0..100 {
            let run = || format!("{:?}", simulate(seed, Some(3), Guards::ON, false));
            assert_eq!(run(), run());
        }
    }
}
