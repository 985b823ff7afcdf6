//! Properties of the trace, with the `fletcher` crate as oracle.

#[cfg(test)]
mod tests {
    use proptest::prelude::{
        any, prop_assert, prop_assert_eq, prop_assert_ne, prop_assume, proptest,
    };
    use rcoe_core::{Kind, Signature, Trace, words};

    type Events = Vec<(u32, u64)>;

    fn signature_of(events: &[(u32, u64)]) -> Signature {
        let mut trace = Trace::new();
        for &(kind, value) in events {
            trace.add(Kind(kind), value);
        }
        trace.signature()
    }

    /// Residues modulo 2^64 - 1, by schoolbook arithmetic.
    fn schoolbook(words: &[u64]) -> (u64, u64) {
        let modulus = u128::from(u64::MAX);
        words.iter().fold((0, 0), |(a, b), &word| {
            let a = (u128::from(a) + u128::from(word)) % modulus;
            let b = (u128::from(b) + a) % modulus;
            (
                u64::try_from(a).expect("reduced"),
                u64::try_from(b).expect("reduced"),
            )
        })
    }

    fn residue(sum: u64) -> u64 {
        if sum == u64::MAX { 0 } else { sum }
    }

    proptest! {
        #[test]
        fn trace_is_fletcher_over_mixed_words(events: Events) {
            let signature = signature_of(&events);
            let all: Vec<u64> =
                events.iter().flat_map(|&(kind, value)| words(Kind(kind), value)).collect();
            let (a, b) = schoolbook(&all);
            prop_assert_eq!(residue(signature.a), a);
            prop_assert_eq!(residue(signature.b), b);
            prop_assert_eq!(signature.events, events.len() as u64);
        }

        /// The schoolbook sums are Fletcher's: checked at the widths which the oracle crate has.
        #[test]
        fn schoolbook_matches_the_oracle_at_its_width(words: Vec<u32>) {
            let modulus = u64::from(u32::MAX);
            let (a, b) = words.iter().fold((0, 0), |(a, b), &word| {
                let a = (a + u64::from(word)) % modulus;
                (a, (b + a) % modulus)
            });
            let oracle = fletcher::calc_fletcher64(&words);
            prop_assert_eq!(oracle % (1 << 32) % modulus, a);
            prop_assert_eq!((oracle >> 32) % modulus, b);
        }

        #[test]
        fn any_swap_shows(events: Events, i: usize, j: usize) {
            prop_assume!(!events.is_empty());
            let (i, j) = (i % events.len(), j % events.len());
            prop_assume!(events[i] != events[j]);
            let mut swapped = events.clone();
            swapped.swap(i, j);
            prop_assert_ne!(signature_of(&events), signature_of(&swapped));
        }

        #[test]
        fn any_flip_shows(events: Events, at: usize, bit in 0..96u32) {
            prop_assume!(!events.is_empty());
            let at = at % events.len();
            let mut flipped = events.clone();
            match bit {
                0..64 => flipped[at].1 ^= 1 << bit,
                _ => flipped[at].0 ^= 1 << (bit - 64),
            }
            prop_assert_ne!(signature_of(&events), signature_of(&flipped));
        }

        #[test]
        fn zeros_differ_from_ones(events: Events, kind in any::<u32>(), count in 1..9usize) {
            let with = |value| {
                let mut all = events.clone();
                all.extend(std::iter::repeat_n((kind, value), count));
                signature_of(&all)
            };
            prop_assert!(with(0) != with(u64::MAX));
        }

        #[test]
        fn a_missing_event_shows(events: Events, at: usize) {
            prop_assume!(!events.is_empty());
            let mut fewer = events.clone();
            fewer.remove(at % events.len());
            prop_assert_ne!(signature_of(&events), signature_of(&fewer));
        }
    }
}
