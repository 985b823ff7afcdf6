//! Records of one word: the straight way and the long one agree, and the straight one stands back
//! from all that is not as it should be.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::{AtomicU64, Ordering};
    use rcoe_core::{
        Done, HEADER, Kind, MAX_REPLICAS, Node, Outbox, Port, Ports, ReplicaId, ReplicaSet, Step,
        snapshot,
    };

    const RING: usize = 1024;
    const WORDS: usize = HEADER + 1;

    /// A primary and a follower, with what they share.
    fn pair(test: impl FnOnce([Node; 2], &Ports<'_>)) {
        let outboxes = [const { Outbox::new() }; 2];
        let rings = [const { [const { AtomicU64::new(0) }; RING] }; 2];
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let node = |id| Node::new(ReplicaId::new(id), ReplicaSet::all(2), &ports);
        test([node(0), node(1)], &ports);
    }

    fn outbox<'a>(ports: &Ports<'a>, id: usize) -> &'a Outbox {
        ports[id].expect("a member has a port").outbox
    }

    fn publish_long(node: &mut Node, ports: &Ports<'_>, payload: &[u64]) {
        let mut call = node.begin_publish(payload.len());
        while node.step(&mut call, ports, &mut []) != Step::Ready(Done::Room) {
            assert!(!call.in_vote(), "there is room");
        }
        node.commit(ports, payload);
    }

    fn consume_long(node: &mut Node, ports: &Ports<'_>) -> u64 {
        let mut word = [0];
        let mut call = node.begin_consume();
        let step = node.step(&mut call, ports, &mut word);
        assert_eq!(step, Step::Ready(Done::Record(1)));
        word[0]
    }

    #[test]
    fn who_has_taken_a_record_is_done_with_those_before() {
        pair(|[mut primary, mut follower], ports| {
            for word in 0..3 {
                publish_long(&mut primary, ports, &[word]);
            }
            let passed = |primary: &Node, records: usize| {
                primary.all_have_passed(ports, (records * WORDS) as u64)
            };
            assert!(!passed(&primary, 0));
            consume_long(&mut follower, ports);
            assert!(passed(&primary, 0));
            assert!(!passed(&primary, 1), "it may still use the first one");
            consume_long(&mut follower, ports);
            assert!(passed(&primary, 1) && !passed(&primary, 2));
        });
    }

    #[test]
    fn a_primary_waits_until_a_position_is_passed() {
        pair(|[mut primary, mut follower], ports| {
            for word in 0..3 {
                publish_long(&mut primary, ports, &[word]);
            }
            let mut call = primary.begin_publish_past(ports, 1, WORDS as u64);
            for taken in 0..2 {
                let step = primary.step(&mut call, ports, &mut []);
                assert!(matches!(step, Step::Pending(_)), "{taken}: {step:?}");
                consume_long(&mut follower, ports);
            }
            while primary.step(&mut call, ports, &mut []) != Step::Ready(Done::Room) {
                assert!(!call.in_vote(), "it is passed");
            }
            assert!(primary.all_have_passed(ports, WORDS as u64));
            assert!(!primary.all_have_passed(ports, 2 * WORDS as u64));
            primary.commit(ports, &[3]);
        });
    }

    #[test]
    fn a_wait_for_a_position_is_one_for_room_too() {
        pair(|[mut primary, mut follower], ports| {
            let room = ports[0].expect("a member has a port").ring.len() / WORDS;
            for word in 0..room as u64 {
                publish_long(&mut primary, ports, &[word]);
            }
            consume_long(&mut follower, ports);
            assert!(primary.all_have_passed(ports, 0));
            publish_long(&mut primary, ports, &[0]);
            let mut call = primary.begin_publish_past(ports, 1, 0);
            let step = primary.step(&mut call, ports, &mut []);
            assert!(matches!(step, Step::Pending(_)), "{step:?}");
            consume_long(&mut follower, ports);
            while primary.step(&mut call, ports, &mut []) != Step::Ready(Done::Room) {
                assert!(!call.in_vote(), "there is room");
            }
        });
    }

    #[test]
    #[should_panic = "a record to pass it by"]
    fn what_nobody_can_pass_is_not_awaited() {
        pair(|[primary, _], ports| {
            let _ = primary.begin_publish_past(ports, 1, primary.position());
        });
    }

    #[test]
    fn each_side_may_take_either_way() {
        pair(|[mut primary, mut follower], ports| {
            let mut straight = 0;
            for round in 0..2000_u64 {
                if round % 7 == 0 {
                    for (node, id) in [(&mut primary, 0), (&mut follower, 1)] {
                        node.add_event(outbox(ports, id), Kind(5), round);
                    }
                }
                if round % 3 == 0 || !primary.try_publish_word(ports, round) {
                    publish_long(&mut primary, ports, &[round]);
                }
                let word = match round % 5 {
                    0 => None,
                    _ => follower.try_consume_word(ports),
                };
                straight += u32::from(word.is_some());
                let word = word.unwrap_or_else(|| consume_long(&mut follower, ports));
                assert_eq!(word, round);
            }
            assert_eq!(primary.records(), follower.records());
            assert!(straight > 1000, "{straight}");
        });
    }

    #[test]
    fn nothing_is_taken_before_it_is_there() {
        pair(|[mut primary, mut follower], ports| {
            assert_eq!(follower.try_consume_word(ports), None);
            assert!(primary.try_publish_word(ports, 7));
            assert_eq!(follower.try_consume_word(ports), Some(7));
            assert_eq!(follower.try_consume_word(ports), None);
        });
    }

    #[test]
    fn a_full_ring_is_left_to_who_can_wait() {
        pair(|[mut primary, mut follower], ports| {
            let published = (0..RING as u64)
                .take_while(|word| primary.try_publish_word(ports, *word))
                .count();
            assert!(published <= RING / WORDS && published > RING / WORDS / 2);
            for word in 0..published as u64 {
                assert_eq!(follower.try_consume_word(ports), Some(word));
            }
            publish_long(&mut primary, ports, &[1; 2]);
        });
    }

    #[test]
    fn a_follower_says_how_far_it_is_after_a_while() {
        pair(|[mut primary, mut follower], ports| {
            let told = || outbox(ports, 1).snapshot()[snapshot::CURSOR];
            for word in 0..31 {
                assert!(primary.try_publish_word(ports, word));
                assert_eq!(follower.try_consume_word(ports), Some(word));
            }
            assert_eq!(told(), 0);
            assert!(primary.try_publish_word(ports, 31));
            assert_eq!(follower.try_consume_word(ports), Some(31));
            assert_eq!(told(), Node::LAZY_WORDS);
        });
    }

    #[test]
    fn whatever_is_wrong_is_left_to_who_can_vote() {
        for at in 0..WORDS {
            for bit in [0, 1, 31, 32, 63] {
                pair(|[mut primary, mut follower], ports| {
                    assert!(primary.try_publish_word(ports, 7));
                    let cell = &ports[0].expect("a member has a port").ring[at];
                    cell.fetch_xor(1 << bit, Ordering::Relaxed);
                    let taken = follower.try_consume_word(ports);
                    assert_eq!(taken, None, "bit {bit} of word {at}");
                    assert_eq!(follower.records(), 0);
                });
            }
        }
        pair(|[mut primary, mut follower], ports| {
            primary.add_event(outbox(ports, 0), Kind(5), 1);
            assert!(primary.try_publish_word(ports, 7));
            assert_eq!(follower.try_consume_word(ports), None, "another trace");
        });
        pair(|[mut primary, mut follower], ports| {
            publish_long(&mut primary, ports, &[7, 8]);
            assert_eq!(follower.try_consume_word(ports), None, "another length");
        });
        pair(|[_, mut follower], ports| {
            outbox(ports, 0).overwrite(snapshot::CURSOR, 1 << 40);
            assert_eq!(follower.try_consume_word(ports), None, "no position");
        });
    }

    #[test]
    fn an_effect_is_ended_by_the_long_way() {
        pair(|[mut primary, _], ports| {
            primary.begin_effect(ports, true);
            assert!(!primary.try_publish_word(ports, 7));
            publish_long(&mut primary, ports, &[7]);
            assert!(primary.try_publish_word(ports, 8));
        });
    }
}
