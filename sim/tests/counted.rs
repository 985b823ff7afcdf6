//! Programs that are counted by a scripted processor, and stopped at a place.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::Guards;
    use rcoe_sim::counted::{Stopped, simulate};

    #[test]
    fn programs_are_stopped_at_the_very_instruction() {
        let mut all = Stopped::default();
        // A commit has seeds of its own.
        let first = std::env::var("RCOE_SAMPLE").map_or(0, |text| text.parse().unwrap());
        for seed in (first..).take(2_000) {
            let stopped = simulate(seed, Guards::ON);
            all = all.with(stopped.unwrap_or_else(|flaw| panic!("{flaw}")));
        }
        println!("{all:?}");
        assert!(all.exactly > 5_000, "{all:?}");
        assert!(
            all.missed > 50,
            "late and lost interrupts are in it: {all:?}"
        );
    }
}
