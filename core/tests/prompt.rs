//! Operations without waiting: they agree with the step machine, and stand back from all that is
//! not as it should be.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::{AtomicU64, Ordering};
    use rcoe_core::{Checksum, Done, HEADER, Kind, Meeting, Node, Outbox, Ports, Step};

    use super::common::group;

    fn outbox<'a>(ports: &Ports<'a>, id: usize) -> &'a Outbox {
        ports[id].expect("a member has a port").outbox
    }

    fn publish(node: &mut Node, ports: &Ports<'_>, payload: &[u64]) {
        let mut call = node.begin_publish(payload.len());
        while node.step(&mut call, ports, &mut []) != Step::Ready(Done::Room) {
            assert!(!call.in_vote(), "there is room");
        }
        node.commit(ports, payload);
    }

    #[test]
    fn each_side_may_take_either_way_with_records_of_any_length() {
        group(|[mut primary, mut follower], ports| {
            for round in 0..2000_u64 {
                for (node, id) in [(&mut primary, 0), (&mut follower, 1)] {
                    node.add_event(outbox(ports, id), Kind(5), round);
                }
                let len = 1 + (round % 40) as usize;
                match primary.place(ports, len).filter(|_| round % 3 != 0) {
                    Some(place) => {
                        let add = |sum: Checksum, cell: &AtomicU64| {
                            cell.store(round, Ordering::Relaxed);
                            sum.add(round)
                        };
                        let sum = place.payload().iter().fold(Checksum::EMPTY, add);
                        primary.publish_at(ports, &place, sum);
                    }
                    None => publish(&mut primary, ports, &[round; 40][..len]),
                }
                let mut words = [0; 64];
                let prompt = match round % 5 {
                    0 => None,
                    _ => follower.try_consume(ports, &mut words),
                };
                if prompt.is_none() {
                    let mut call = follower.begin_consume();
                    let step = follower.step(&mut call, ports, &mut words);
                    assert_eq!(step, Step::Ready(Done::Record(len)));
                }
                assert_eq!(prompt.unwrap_or(len), len);
                assert!(words[..len].iter().all(|word| *word == round));
            }
        });
    }

    #[test]
    fn a_record_that_is_not_right_in_all_is_not_taken() {
        let payload = [3, 5, 7];
        for at in 0..HEADER + payload.len() {
            for bit in [0, 1, 31, 32, 63] {
                group(|[mut primary, mut follower], ports| {
                    publish(&mut primary, ports, &payload);
                    let cell = &ports[0].expect("a member has a port").ring[at];
                    cell.fetch_xor(1 << bit, Ordering::Relaxed);
                    let taken = follower.try_consume(ports, &mut [0; 64]);
                    assert_eq!(taken, None, "bit {bit} of word {at}");
                    assert_eq!(follower.records(), 0);
                });
            }
        }
    }

    #[test]
    fn a_record_that_does_not_fit_or_is_of_another_trace_is_not_taken() {
        group(|[mut primary, mut follower], ports| {
            assert_eq!(follower.try_consume(ports, &mut [0; 8]), None, "too early");
            publish(&mut primary, ports, &[1; 9]);
            assert_eq!(follower.try_consume(ports, &mut [0; 8]), None, "too long");
            follower.add_event(outbox(ports, 1), Kind(5), 1);
            assert_eq!(follower.try_consume(ports, &mut [0; 9]), None, "astray");
        });
    }

    #[test]
    fn who_finds_the_others_has_met_them() {
        group(|[mut first, mut second, mut third], ports| {
            for _ in 0..3 {
                assert_eq!(first.try_meet(ports), Meeting::Arrived);
                assert_eq!(second.try_meet(ports), Meeting::Arrived);
                assert!(!first.all_met(ports), "one is missing");
                assert_eq!(third.try_meet(ports), Meeting::Met);
                assert!(first.all_met(ports));
                let mut call = second.begin_inspection();
                let mut step = Step::Again;
                while step == Step::Again {
                    step = second.step(&mut call, ports, &mut []);
                }
                assert_eq!(step, Step::Ready(Done::Met), "as the step machine says");
            }
        });
    }

    #[test]
    fn who_differs_is_left_to_the_vote() {
        group(|[mut first, mut second], ports| {
            second.add_event(outbox(ports, 1), Kind(5), 1);
            assert_eq!(second.try_meet(ports), Meeting::Arrived);
            assert_eq!(first.try_meet(ports), Meeting::Arrived);
            let mut call = first.begin_inspection();
            while !call.in_vote() {
                assert_eq!(first.step(&mut call, ports, &mut []), Step::Again);
            }
        });
    }
}
