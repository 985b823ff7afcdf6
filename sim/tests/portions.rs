//! Copies in portions: a fixed range of seeds, and mistakes that they must find.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_sim::portions::{Mistake, copy_once};

    const SEEDS: u64 = 20_000;

    #[test]
    fn copies_are_what_the_group_has() {
        let (mut copied, mut many, mut again) = (0, 0, 0);
        for seed in 0..SEEDS {
            let outcome = copy_once(seed, Mistake::None)
                .unwrap_or_else(|why| panic!("copy_once({seed}): {why}"));
            copied += u64::from(outcome.copied);
            many += u64::from(outcome.copied && outcome.portions > 4);
            again += u64::from(outcome.copied && outcome.again);
        }
        assert!(copied > SEEDS / 2, "{copied}");
        assert!(many > SEEDS / 10, "portions must be many: {many}");
        assert!(again > SEEDS / 100, "donors must be found odd: {again}");
    }

    #[test]
    fn mistakes_are_found() {
        for mistake in [
            Mistake::TrustApart,
            Mistake::NoteNothing,
            Mistake::LeaveOwn,
            Mistake::HandUnnoted,
            Mistake::ZeroUnnoted,
            Mistake::NoJudge,
        ] {
            let found = (0..SEEDS).find(|&seed| copy_once(seed, mistake).is_err());
            assert!(found.is_some(), "{mistake:?} was not found");
        }
    }
}
