//! The blocking API on shuttle's atomics: every atomic access is a scheduling point, and a replica
//! whose wait is not woken deadlocks, which shuttle reports.
//!
//! Run with `cargo test -p rcoe-sim --features shuttle --test schedules`. A failure prints the
//! schedule that replays it.

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{
        Consumed, Env, Halt, Kind, Outbox, POSTS, Port, Ports, Replica, ReplicaId, ReplicaSet,
        Wait, Waited,
    };
    use shuttle::sync::{Arc, Condvar, Mutex};
    use shuttle::thread;

    const ANY: Kind = Kind(1);

    /// A futex word's queue: who stops sets the flag.
    struct Bed {
        gone: Mutex<bool>,
        woken: Condvar,
    }

    struct Memory {
        outboxes: Vec<Outbox>,
        rings: Vec<Vec<AtomicU64>>,
        beds: Vec<Bed>,
        /// Deferred effects that the follower has asked for: what a test knows and no replica
        /// does, so not among the atomics whose accesses are scheduled.
        asked: std::sync::atomic::AtomicU64,
    }

    /// Sleeps by the handshake of the outboxes, on a condition variable for each doorbell.
    struct Sleeper<'a> {
        id: usize,
        memory: &'a Memory,
    }

    impl Env for Sleeper<'_> {
        fn wait(&mut self, own: &Outbox, w: &Wait) -> Waited {
            let bed = &self.memory.beds[w.peer.index()];
            let peer = &self.memory.outboxes[w.peer.index()];
            let gone = bed.gone.lock().expect("no poison");
            if *gone {
                return if peer.bell() == w.bell {
                    Waited::Overdue
                } else {
                    Waited::Retry
                };
            }
            drop(gone);
            if own.begin_sleep(w.peer, peer, w.bell, || {}) {
                let mut gone = bed.gone.lock().expect("no poison");
                while !*gone && peer.bell() == w.bell {
                    gone = bed.woken.wait(gone).expect("no poison");
                }
                drop(gone);
                own.end_sleep();
            }
            Waited::Retry
        }

        fn wake(&mut self, _own: &Outbox) {
            let bed = &self.memory.beds[self.id];
            let _held = bed.gone.lock().expect("no poison");
            bed.woken.notify_all();
        }
    }

    fn memory(n: usize) -> Memory {
        Memory {
            outboxes: (0..n).map(|_| Outbox::new()).collect(),
            rings: (0..n)
                .map(|_| (0..16).map(|_| AtomicU64::new(0)).collect())
                .collect(),
            beds: (0..n)
                .map(|_| Bed {
                    gone: Mutex::new(false),
                    woken: Condvar::new(),
                })
                .collect(),
            asked: std::sync::atomic::AtomicU64::new(0),
        }
    }

    fn ports(memory: &Memory) -> Ports<'_> {
        let mut ports: Ports<'_> = [None; 8];
        for (index, port) in ports.iter_mut().enumerate().take(memory.outboxes.len()) {
            let (outbox, ring) = (&memory.outboxes[index], &memory.rings[index][..]);
            *port = Some(Port { outbox, ring });
        }
        ports
    }

    /// Runs `life` in `n` replicas and gives their results.
    fn group(
        n: usize,
        life: fn(&mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt>,
    ) -> Vec<Result<(), Halt>> {
        let memory = Arc::new(memory(n));
        let threads: Vec<_> = (0..n)
            .map(|id| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    let number = ReplicaId::new(u8::try_from(id).expect("few"));
                    let env = Sleeper {
                        id,
                        memory: &memory,
                    };
                    let mut replica = Replica::new(number, ReplicaSet::all(n), ports(&memory), env);
                    guard(&mut replica);
                    let result = life(&mut replica);
                    *memory.beds[id].gone.lock().expect("no poison") = true;
                    memory.beds[id].woken.notify_all();
                    result
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    }

    #[cfg(not(feature = "planted"))]
    fn guard(_replica: &mut Replica<'_, Sleeper<'_>>) {}

    #[cfg(feature = "planted")]
    fn guard(replica: &mut Replica<'_, Sleeper<'_>>) {
        replica.node_mut().set_guards(planted::current());
    }

    fn meets(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        for round in 0..3 {
            replica.add_compare_event(ANY, round)?;
        }
        Ok(())
    }

    fn streams(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        for index in 0..4 {
            replica.add_event(ANY, index);
            let mut out = [0; 2];
            if replica.is_primary() {
                replica.publish(&[index + 10, index + 20])?;
            } else {
                assert_eq!(replica.consume(&mut out)?, Consumed::Record(2));
                assert_eq!(out, [index + 10, index + 20]);
            }
            replica.add_event(ANY, index + 10);
        }
        replica.rendezvous()
    }

    /// Records so long that the ring holds one: the primary blocks with nothing more to say.
    fn fills(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        for index in 0..3 {
            let mut out = [0; 8];
            if replica.is_primary() {
                replica.publish(&[index; 8])?;
            } else {
                assert_eq!(replica.consume(&mut out)?, Consumed::Record(8));
                assert_eq!(out, [index; 8]);
            }
        }
        replica.rendezvous()
    }

    fn one_differs(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        let wrong = u64::from(replica.id() == ReplicaId::new(0));
        replica.add_compare_event(ANY, 7)?;
        replica.add_compare_event(ANY, wrong)?;
        replica.add_compare_event(ANY, 8)
    }

    fn one_dies(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        replica.add_event(ANY, 1);
        let mut out = [0; 2];
        if replica.is_primary() {
            replica.publish(&[5])?;
            return Ok(());
        }
        assert_eq!(replica.consume(&mut out)?, Consumed::Record(1));
        replica.add_event(ANY, out[0]);
        match replica.consume(&mut out)? {
            Consumed::TakeOver => replica.publish(&[6])?,
            Consumed::Record(len) => assert_eq!((len, out[0]), (1, 6)),
        }
        replica.add_compare_event(ANY, 6)
    }

    fn acts(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        if replica.is_primary() {
            replica.trigger_action(1);
        }
        let mut performed = 0;
        for round in 0..3 {
            let set = replica.handle_action()?;
            if set.0 != 0 {
                performed += 1;
                replica.add_event(ANY, set.0);
            }
            replica.add_compare_event(ANY, round)?;
        }
        assert!(performed <= 1, "an action is performed once");
        Ok(())
    }

    /// Posts before the first effect, so that the words of the last ones stand where those of
    /// earlier ones stood.
    const EARLIER: u64 = POSTS as u64 - 2;
    const EFFECTS: u64 = 4;

    /// Two ask for effects of which those from `astray` on differ, post them and go on. The primary
    /// finds posts alike for what the other has asked for, too, and for nothing else.
    fn defers(replica: &mut Replica<'_, Sleeper<'_>>, astray: u64) -> Result<(), Halt> {
        for _ in 0..EARLIER {
            replica.post();
        }
        replica.rendezvous()?;
        let mut released = 0;
        for effect in 0..EFFECTS {
            let wrong = effect >= astray && !replica.is_primary();
            replica.add_event(ANY, effect + 10 * u64::from(wrong));
            if !replica.is_primary() {
                replica.env().memory.asked.store(effect + 1, SeqCst);
            }
            assert_eq!(replica.post(), EARLIER + effect);
            released += u64::from(is_agreed(replica, released, astray));
        }
        while released < astray && replica.is_primary() {
            thread::yield_now();
            released += u64::from(is_agreed(replica, released, astray));
        }
        replica.rendezvous()
    }

    /// Does the primary find that the other has posted this effect alike?
    fn is_agreed(replica: &Replica<'_, Sleeper<'_>>, effect: u64, astray: u64) -> bool {
        let agreed = replica.is_primary() && replica.is_posted_alike(EARLIER + effect);
        if agreed {
            let asked = replica.env().memory.asked.load(SeqCst);
            assert!(effect < asked, "nobody else has asked for it");
            assert!(effect < astray, "the other has asked for something else");
        }
        agreed
    }

    fn all_defer(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        defers(replica, EFFECTS)
    }

    fn one_goes_astray(replica: &mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt> {
        defers(replica, 1)
    }

    fn all_well(n: usize, life: fn(&mut Replica<'_, Sleeper<'_>>) -> Result<(), Halt>) {
        let results = group(n, life);
        assert!(
            results.iter().all(|result| *result == Ok(())),
            "{results:?}"
        );
    }

    const RUNS: usize = 3000;
    const DEPTH: usize = 3;

    fn both(test: impl Fn() + Send + Sync + Copy + 'static) {
        shuttle::check_random(test, RUNS);
        shuttle::check_pct(test, RUNS, DEPTH);
    }

    #[cfg(not(feature = "planted"))]
    mod sound {
        use super::{
            Halt, acts, all_defer, all_well, both, fills, group, meets, one_dies, one_differs,
            one_goes_astray, streams,
        };

        #[test]
        fn rendezvous() {
            both(|| all_well(2, meets));
            both(|| all_well(3, meets));
        }

        #[test]
        fn stream() {
            both(|| all_well(2, streams));
            both(|| all_well(3, streams));
            both(|| all_well(2, fills));
            both(|| all_well(3, fills));
        }

        #[test]
        fn actions() {
            both(|| all_well(2, acts));
            both(|| all_well(3, acts));
        }

        #[test]
        fn vote() {
            both(|| {
                let results = group(3, one_differs);
                assert_eq!(results, [Err(Halt::Convicted), Ok(()), Ok(())]);
            });
        }

        #[test]
        fn takeover() {
            both(|| {
                assert!(group(3, one_dies).iter().all(|result| *result == Ok(())));
            });
        }

        #[test]
        fn two_stop() {
            for life in [one_differs, one_goes_astray] {
                both(move || {
                    let results = group(2, life);
                    assert!(
                        results
                            .iter()
                            .all(|result| matches!(result, Err(Halt::FailStop(_))))
                    );
                });
            }
        }

        #[test]
        fn deferral() {
            both(|| all_well(2, all_defer));
        }
    }

    /// Takes guards away and demands that the schedules above notice.
    #[cfg(feature = "planted")]
    mod planted {
        use std::panic::catch_unwind;
        use std::sync::atomic::{AtomicU8, Ordering};

        use rcoe_core::{Bug, Guards};

        use super::{all_defer, all_well, both, fills, group, meets, one_goes_astray};

        static BUG: AtomicU8 = AtomicU8::new(0);
        const BUGS: [Bug; 5] = [
            Bug::DoorbellFirst,
            Bug::SkipReread,
            Bug::NoBell,
            Bug::PostUnseen,
            Bug::PostUncompared,
        ];

        pub(super) fn current() -> Guards {
            Guards::without(BUGS[usize::from(BUG.load(Ordering::Relaxed))])
        }

        #[test]
        fn each_is_noticed() {
            for (index, bug) in BUGS.into_iter().enumerate() {
                BUG.store(u8::try_from(index).expect("few"), Ordering::Relaxed);
                let rendezvous = catch_unwind(|| both(|| all_well(2, meets))).is_err();
                let stream = catch_unwind(|| both(|| all_well(2, fills))).is_err();
                let deferral = catch_unwind(|| {
                    both(|| all_well(2, all_defer));
                    both(|| drop(group(2, one_goes_astray)));
                })
                .is_err();
                println!("{bug:?}: rendezvous {rendezvous}, stream {stream}, deferral {deferral}");
                assert!(rendezvous || stream || deferral, "{bug:?} goes unnoticed");
            }
        }
    }
}
