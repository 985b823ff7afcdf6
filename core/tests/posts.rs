//! Posts: an effect is agreed on when all have passed it alike, and not before.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{prop_assert_eq, proptest};
    use rcoe_core::{Kind, Node, POSTS, Ports, snapshot};

    use super::common::group;

    const LATEST: u64 = POSTS as u64;

    /// An effect of this value, asked for.
    fn ask(node: &mut Node, ports: &Ports<'_>, value: u64) -> u64 {
        let own = ports[node.id().index()].expect("a port").outbox;
        node.add_event(own, Kind(3), value);
        node.post(ports)
    }

    #[test]
    fn an_effect_is_agreed_on_once_all_others_have_passed_it() {
        group(|[mut primary, mut second, mut third], ports| {
            let index = ask(&mut primary, ports, 7);
            assert!(!primary.is_posted_alike(index, ports), "nobody else");
            ask(&mut third, ports, 7);
            assert!(!primary.is_posted_alike(index, ports), "not all");
            for value in [7, 8, 9] {
                ask(&mut second, ports, value);
            }
            assert!(primary.is_posted_alike(index, ports), "one is further");
        });
    }

    #[test]
    fn one_that_differs_is_not_agreed_with_then_or_later() {
        group(|[mut primary, mut second], ports| {
            ask(&mut second, ports, 6);
            let first = ask(&mut primary, ports, 7);
            assert!(!primary.is_posted_alike(first, ports));
            ask(&mut second, ports, 5);
            let next = ask(&mut primary, ports, 5);
            assert!(
                !primary.is_posted_alike(next, ports),
                "all of the past counts"
            );
        });
    }

    #[test]
    fn posts_stay_readable_until_so_many_later_ones() {
        group(|[mut primary, mut second], ports| {
            let index = ask(&mut primary, ports, 1);
            ask(&mut second, ports, 1);
            for value in 1..POSTS as u64 {
                ask(&mut second, ports, value);
                assert!(primary.is_posted_alike(index, ports), "after {value} more");
            }
            ask(&mut second, ports, 99);
            assert!(!primary.is_posted_alike(index, ports), "it is overwritten");
        });
    }

    #[test]
    fn garbage_in_the_count_is_no_agreement() {
        group(|[mut primary, mut second], ports| {
            let index = ask(&mut primary, ports, 1);
            ask(&mut second, ports, 1);
            let outbox = ports[1].expect("a port").outbox;
            for count in [0, u64::MAX, 1 << 40] {
                outbox.overwrite(snapshot::POSTED, count);
                assert!(!primary.is_posted_alike(index, ports), "{count}");
            }
            outbox.overwrite(snapshot::POSTED, 1);
            assert!(primary.is_posted_alike(index, ports));
        });
    }

    proptest! {
        /// What counts is all of the past up to the effect, and that it was not long ago.
        #[test]
        fn agreement_is_an_equal_past_that_is_still_there(
            effects in vec(0..3u64, 1..150),
            astray in 0..300usize,
            ahead in 0..150usize,
        ) {
            group(|[mut primary, mut second], ports| {
                for &value in &effects {
                    ask(&mut primary, ports, value);
                }
                for (at, &value) in effects.iter().take(ahead).enumerate() {
                    ask(&mut second, ports, value + 7 * u64::from(at == astray));
                }
                let (own, other) = (primary.posted(), second.posted());
                for index in own.saturating_sub(LATEST)..own {
                    let there = index < other && other - index <= LATEST;
                    let alike = there && index < astray as u64;
                    prop_assert_eq!(primary.is_posted_alike(index, ports), alike, "{}", index);
                }
                Ok(())
            })?;
        }
    }
}
