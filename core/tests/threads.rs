//! The blocking API on real threads: fault-free runs, one diverging replica, one dead one.
//!
//! Not with shuttle's atomics, which know its own threads only; `sim` has their schedules.

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use rcoe_core::{
        Cause, Consumed, Env, Halt, Kind, Outbox, Port, Ports, Replica, ReplicaId, ReplicaSet,
        Wait, Waited,
    };

    const IO: Kind = Kind(1);
    const OUTPUT: Kind = Kind(2);

    /// Spins; a peer whose flag is down is overdue.
    #[derive(Debug)]
    struct Spin<'a> {
        alive: &'a [AtomicBool],
    }

    impl Env for Spin<'_> {
        fn wait(&mut self, _own: &Outbox, w: &Wait) -> Waited {
            if !self.alive[w.peer.index()].load(Ordering::Acquire) {
                return Waited::Overdue;
            }
            thread::yield_now();
            Waited::Retry
        }
        fn wake(&mut self, _own: &Outbox) {}
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        None,
        Flip(u8, u64),
        Die(u8, u64),
        /// Leaves the input of this round out.
        Skip(u8, u64),
    }

    fn input(index: u64) -> u64 {
        index * 7 + 1
    }

    /// One replica's life: an input and a voted output in turn; its final sum of inputs.
    fn life(
        replica: &mut Replica<'_, Spin<'_>>,
        rounds: u64,
        fault: Fault,
        effects: &AtomicU64,
    ) -> Result<u64, Halt> {
        let number = u8::try_from(replica.id().index()).expect("below 8");
        let mut sum = 0;
        for round in 0..rounds {
            if fault == Fault::Die(number, round) {
                return Ok(u64::MAX);
            }
            let flip = u64::from(fault == Fault::Flip(number, round));
            replica.add_event(IO, round ^ flip);
            let mut buffer = [0; 4];
            let value = if fault == Fault::Skip(number, round) {
                0
            } else if replica.is_primary() {
                replica.publish(&[input(round), round])?;
                input(round)
            } else {
                match replica.consume(&mut buffer)? {
                    Consumed::Record(len) => {
                        assert_eq!(len, 2);
                        buffer[0]
                    }
                    Consumed::TakeOver => {
                        replica.publish(&[input(round), round])?;
                        input(round)
                    }
                }
            };
            replica.add_event(IO, value);
            sum += value;
            replica.add_compare_event(OUTPUT, sum)?;
            if replica.is_primary() {
                effects.fetch_add(sum, Ordering::Relaxed);
            }
        }
        Ok(sum)
    }

    fn run(n: usize, rounds: u64, fault: Fault) -> (Vec<Result<u64, Halt>>, u64) {
        let outboxes: Vec<_> = (0..n).map(|_| Outbox::new()).collect();
        let rings: Vec<Vec<_>> = (0..n)
            .map(|_| (0..16).map(|_| AtomicU64::new(0)).collect())
            .collect();
        let mut ports: Ports<'_> = [None; 8];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let alive: Vec<_> = (0..n).map(|_| AtomicBool::new(true)).collect();
        let effects = AtomicU64::new(0);
        let results = thread::scope(|scope| {
            let run = |id: u8| {
                let (alive, effects) = (&alive[..], &effects);
                scope.spawn(move || {
                    let members = ReplicaSet::all(n);
                    let mut replica =
                        Replica::new(ReplicaId::new(id), members, ports, Spin { alive });
                    let result = life(&mut replica, rounds, fault, effects);
                    if result == Ok(u64::MAX) || result.is_err() {
                        alive[usize::from(id)].store(false, Ordering::Release);
                    }
                    result
                })
            };
            let threads: Vec<_> = (0u8..).take(n).map(run).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        (results, effects.into_inner())
    }

    fn expected(rounds: u64) -> (u64, u64) {
        let sums = (0..rounds).scan(0, |sum, round| {
            *sum += input(round);
            Some(*sum)
        });
        sums.fold((0, 0), |(_, total), sum| (sum, total + sum))
    }

    #[test]
    fn healthy_groups_finish() {
        for n in 1..=4 {
            let (results, effects) = run(n, 200, Fault::None);
            let (sum, total) = expected(200);
            assert!(
                results.iter().all(|&result| result == Ok(sum)),
                "{results:?}"
            );
            assert_eq!(effects, total);
        }
    }

    #[test]
    fn three_mask_one_that_diverges() {
        for victim in 0..3u8 {
            let (results, effects) = run(3, 60, Fault::Flip(victim, 30));
            let (sum, total) = expected(60);
            for (id, &result) in results.iter().enumerate() {
                let right = if id == usize::from(victim) {
                    Err(Halt::Convicted)
                } else {
                    Ok(sum)
                };
                assert_eq!(result, right, "replica {id}, victim {victim}");
            }
            assert_eq!(effects, total);
        }
    }

    #[test]
    fn three_mask_one_that_dies() {
        for victim in 0..3u8 {
            let (results, effects) = run(3, 60, Fault::Die(victim, 30));
            let (sum, total) = expected(60);
            for (id, &result) in results.iter().enumerate() {
                let right = if id == usize::from(victim) {
                    u64::MAX
                } else {
                    sum
                };
                assert_eq!(result, Ok(right), "replica {id}, victim {victim}");
            }
            assert_eq!(effects, total);
        }
    }

    /// One waits for the stream, the other at a rendezvous: nobody is late, and yet it shows.
    #[test]
    fn different_ways_are_noticed_without_a_timeout() {
        for id in 0..2 {
            let (results, _) = run(2, 9, Fault::Skip(id, 4));
            let mismatch = Err(Halt::FailStop(Cause::Mismatch));
            assert_eq!(results, [mismatch; 2], "replica {id}");
        }
        for id in 0..3u8 {
            let (results, effects) = run(3, 9, Fault::Skip(id, 4));
            let (sum, total) = expected(9);
            for (index, result) in results.into_iter().enumerate() {
                let right = if index == usize::from(id) {
                    Err(Halt::Convicted)
                } else {
                    Ok(sum)
                };
                assert_eq!(result, right, "replica {index} when {id} errs");
            }
            assert_eq!(effects, total);
        }
    }

    #[test]
    fn two_stop() {
        let (results, _) = run(2, 60, Fault::Flip(1, 30));
        for result in results {
            assert!(matches!(result, Err(Halt::FailStop(_))), "{result:?}");
        }
        let (results, _) = run(2, 60, Fault::Die(0, 30));
        assert_eq!(results[1], Err(Halt::FailStop(Cause::Timeout)));
    }
}
