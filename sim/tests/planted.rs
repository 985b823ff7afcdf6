//! Takes each guard of the protocol away and demands that a checker notices: tests of the tests.
//!
//! Run with `cargo test --release -p rcoe-sim --features planted --test planted`. Three more bugs,
//! of wake-ups, are planted in `schedules.rs`. One checker that notices is enough, so the model is
//! asked only about what no seed shows. With `RCOE_PLANTED_TABLE=1` both are asked about each bug:
//! the table in `docs/PLANTED-BUGS.md` is what is printed then.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rcoe_core::coupling::{Pace, States};
    use rcoe_core::{Bug, Fences, Guards, HEADER, Node, POSTS, Ports};
    use rcoe_sim::coupled;
    use rcoe_sim::coupled::fault::Fault as Strike;
    use rcoe_sim::coupled::group::PACE;
    use rcoe_sim::coupled::vm::{Ins, Meter};
    use rcoe_sim::fault::Fault;
    use rcoe_sim::model::{Scope, explore};
    use rcoe_sim::program::Op;
    use rcoe_sim::random::{
        Failure, Summary, simulate, simulate_deferring, simulate_reading, simulate_reduced,
    };

    /// Seeds tried for each bug.
    const SEEDS: u64 = 12_000;

    const BUGS: &[Bug] = &[
        Bug::SkipCompare,
        Bug::SkipAlarmCheck,
        Bug::SingleBuffer,
        Bug::SkipPhase2,
        Bug::SkipPhase3,
        Bug::AcceptMinority,
        Bug::NoDrain,
        Bug::SkipEffectCheck,
        Bug::SkipStreamCompare,
        Bug::SkipStreamChecksum,
        Bug::AbsentAgrees,
        Bug::NoLag,
        Bug::NoPassing,
        Bug::NoRingCheck,
        Bug::NoAdopt,
        Bug::NoScrub,
        Bug::EffectUntagged,
        Bug::ForgetUnread,
        Bug::IgnoreVoteNumber,
        Bug::ActionNoReady,
        Bug::ActionNoAbort,
        Bug::AdmitUnvoted,
        Bug::AdmitPartly,
        Bug::AdmitUnseen,
        Bug::AdmitUnverified,
        Bug::NewcomerLeads,
        Bug::StaleOutbox,
        Bug::ActUnchecked,
        Bug::EndAlone,
    ];

    /// Those of deferred effects, for groups that have some.
    const DEFERRING: &[Bug] = &[
        Bug::PostUnseen,
        Bug::PostUncompared,
        Bug::ReleaseUnmet,
        Bug::ReleaseTwice,
        Bug::ReleaseNewest,
        Bug::ReleaseLate,
        Bug::ReleaseChanged,
        Bug::SettleUntold,
        Bug::AwaitUnmet,
        Bug::WaitUnreleased,
        Bug::DeferByBacklog,
        Bug::KeepNothing,
        Bug::ReleaseAgain,
    ];

    /// Those of files that each replica reads by itself.
    const READING: &[Bug] = &[
        Bug::DigestUncompared,
        Bug::RingIgnored,
        Bug::DifferenceTaken,
        Bug::VersionLate,
        Bug::KeptInUse,
    ];

    /// Those of replicas that are interrupted anywhere.
    const COUPLED: &[Bug] = &[
        Bug::MemoryUncompared,
        Bug::VectorsUncompared,
        Bug::StubUnrefined,
        Bug::TargetUnchecked,
        Bug::AgreeAlone,
        Bug::OwnerAlone,
        Bug::ArrivalTrusted,
        Bug::AgreedUnheeded,
        Bug::BudgetFixed,
        Bug::StampUnread,
        Bug::ListUnsealed,
        Bug::StubUnsealed,
        Bug::SearchUnmade,
        Bug::MajorityPast,
        Bug::NewcomerVotes,
        Bug::PassUnreturned,
        Bug::PassOfOne,
    ];

    const WRITE: Op = Op::Output { repeatable: false };
    const READ: Op = Op::Input { repeatable: false };
    const PEEK: Op = Op::Input { repeatable: true };

    /// A panic in a replica is one detected fault too; here it counts as noticed.
    fn quietly<T>(what: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(what)).ok()
    }

    /// The first seed by which `run` fails.
    fn by_seed(run: impl Fn(u64) -> Result<Summary, Failure>) -> Option<String> {
        (0..SEEDS).find_map(|seed| match quietly(|| run(seed)) {
            Some(Ok(_)) => None,
            Some(Err(failure)) => Some(format!("seed {seed}: {}", failure.what)),
            None => Some(format!("seed {seed}: an assertion")),
        })
    }

    fn by_usual_seed(guards: Guards) -> Option<String> {
        by_seed(|seed| {
            simulate(seed, None, guards, false)?;
            simulate_reduced(seed, None, guards, false)
        })
    }

    fn by_model(guards: Guards) -> Option<String> {
        let crash = [Fault::FlipTrace(3), Fault::FlipData(5), Fault::Die];
        let slow = [Fault::Slow, Fault::Die];
        let flip = [Fault::FlipTrace(3)];
        let ring = [Fault::FlipRing {
            word: HEADER,
            bit: 3,
        }];
        let in_vote = [Fault::Slow];
        let scopes: [(&str, &[Op], &[Fault], u8); 8] = [
            (
                "votes",
                &[Op::Alarm, WRITE, Op::Alarm, Op::Alarm, Op::Compare],
                &flip,
                0,
            ),
            ("ring", &[READ, WRITE, Op::Compare], &ring, 0),
            ("crash", &[READ, WRITE, PEEK, WRITE, Op::Compare], &crash, 0),
            ("slow", &[READ, Op::Compare], &slow, 0),
            ("slow output", &[WRITE, Op::Compare], &slow, 0),
            ("actions", &[Op::Act, PEEK, Op::Act, Op::Compare], &slow, 1),
            ("in votes", &[Op::Alarm, WRITE, Op::Compare], &in_vote, 0),
            (
                "punctual",
                &[Op::Act, Op::Compute(3), Op::Act, Op::Compare],
                &slow,
                1,
            ),
        ];
        [2usize, 3].into_iter().find_map(|n| {
            scopes
                .iter()
                .find_map(|&(name, program, faults, triggers)| {
                    let victims: Vec<usize> = (0..n).collect();
                    let (limit, paths) = (2_000_000, false);
                    let punctual = name == "punctual";
                    let victims = &victims[..];
                    let scope = Scope {
                        n,
                        reduced: None,
                        program,
                        faults,
                        victims,
                        triggers,
                        room: POSTS,
                        punctual,
                        guards,
                        limit,
                        paths,
                    };
                    match quietly(|| explore(&scope)) {
                        Some(Ok(_)) => None,
                        Some(Err(flaw)) => Some(format!("{n} replicas, {name}: {}", flaw.what)),
                        None => Some(format!("{n} replicas, {name}: an assertion")),
                    }
                })
        })
    }

    /// Groups that get a lost replica back.
    fn by_reduced_model(guards: Guards) -> Option<String> {
        let long: &[Op] = &[
            READ,
            Op::Orders,
            WRITE,
            Op::Orders,
            PEEK,
            WRITE,
            Op::Compare,
        ];
        let recall: &[Op] = &[Op::Orders, Op::Orders, Op::Recall, WRITE, Op::Compare];
        let inputs: &[Op] = &[Op::Orders, Op::Orders, PEEK, PEEK, READ, PEEK, Op::Compare];
        let die = [Fault::Die];
        let slow = [Fault::Slow];
        let rest = [Fault::FlipAtRest(5)];
        let scopes: [(&str, &[Op], &[Fault]); 4] = [
            ("latent", recall, &rest),
            ("crash", long, &die),
            ("slow", recall, &slow),
            ("inputs", inputs, &[]),
        ];
        scopes.iter().find_map(|&(name, program, faults)| {
            let reduced = [(2, 1), (0, 2)];
            reduced.into_iter().find_map(|reduced| {
                let scope = Scope {
                    n: 3,
                    program,
                    faults,
                    victims: &[0, 1, 2],
                    reduced: Some(reduced),
                    triggers: 0,
                    room: POSTS,
                    punctual: false,
                    guards,
                    limit: 2_000_000,
                    paths: false,
                };
                match quietly(|| explore(&scope)) {
                    Some(Ok(_)) => None,
                    Some(Err(flaw)) => Some(format!("re-integration, {name}: {}", flaw.what)),
                    None => Some(format!("re-integration, {name}: an assertion")),
                }
            })
        })
    }

    /// Groups that defer effects.
    fn by_deferring_model(guards: Guards) -> Option<String> {
        const SEND: Op = Op::Deferred;
        let among: &[Op] = &[SEND, READ, SEND, WRITE, SEND, SEND, Op::Compare];
        let full: &[Op] = &[SEND, SEND, SEND, SEND, Op::Compare];
        let replies: &[Op] = &[SEND, Op::Reply, SEND, SEND, Op::Reply, Op::Compare];
        let looks: &[Op] = &[SEND, Op::Look, SEND, SEND, Op::Look, Op::Compare];
        let faults = [
            Fault::FlipData(5),
            Fault::FlipTrace(3),
            Fault::FlipDeferred(7),
            Fault::Die,
        ];
        let scopes = [
            ("deferred", among, POSTS, 2),
            ("deferred, full", full, 2, 2),
            ("deferred, replies", replies, POSTS, 2),
            ("deferred, looks", looks, POSTS, 2),
            ("deferred, three", &[SEND, SEND, WRITE], POSTS, 3),
        ];
        scopes.iter().find_map(|&(name, program, room, n)| {
            let scope = Scope {
                n,
                program,
                faults: &faults,
                victims: &[0, 1],
                reduced: None,
                triggers: 0,
                room,
                punctual: false,
                guards,
                limit: 2_000_000,
                paths: false,
            };
            match quietly(|| explore(&scope)) {
                Some(Ok(_)) => None,
                Some(Err(flaw)) => Some(format!("{name}: {}", flaw.what)),
                None => Some(format!("{name}: an assertion")),
            }
        })
    }

    /// Two replicas that read a file by themselves, which somebody changes, or one is hit.
    fn by_reading_model(guards: Guards) -> Option<String> {
        let program = &[Op::Read, Op::Read, Op::Read, Op::Read, WRITE, Op::Compare];
        let scopes = [
            ("changed", [Fault::Rewrite]),
            ("hit", [Fault::FlipPiece(5)]),
        ];
        scopes.iter().find_map(|(name, faults)| {
            let scope = Scope {
                n: 2,
                program,
                faults,
                victims: &[0, 1],
                reduced: None,
                triggers: 0,
                room: POSTS,
                punctual: false,
                guards,
                limit: 2_000_000,
                paths: false,
            };
            match quietly(|| explore(&scope)) {
                Some(Ok(_)) => None,
                Some(Err(flaw)) => Some(format!("reading, {name}: {}", flaw.what)),
                None => Some(format!("reading, {name}: an assertion")),
            }
        })
    }

    /// Replicas that are interrupted anywhere.
    fn by_coupled_model(guards: Guards) -> Option<String> {
        let silent: &[Ins] = &[Ins::Nop, Ins::LoopMemory(0, 4, 1), Ins::Call, Ins::Exit];
        let vector: &[Ins] = &[Ins::Nop, Ins::LoopVector(1, 4, 1), Ins::Call, Ins::Exit];
        let long: &[Ins] = &[Ins::Mix(0), Ins::LoopRegister(2, 900, 1), Ins::Exit];
        let far: &[Ins] = &[Ins::LoopMemory(0, 30, 1), Ins::Exit];
        let lists = [Strike::FlipList(0), Strike::FlipList(1)];
        let pages = [Strike::FlipPage(2, 0, 1)];
        let board: Vec<Strike> = (0..160).map(|word| Strike::FlipBoard(word, 1)).collect();
        let stub = [Strike::FlipStub(0, 40)];
        let lost = [Strike::LoseBranches(5)];
        let meters = [0, 2, 2].map(|others| Meter {
            others,
            ..Meter::default()
        });
        let free: &[Strike] = &[];
        // A verdict comes after the first phase that tells something.
        let once = Pace {
            base: 4000,
            phases: 1,
            undecided: 1,
            ..PACE
        };
        let scope = |program, places, faults, moves| coupled::model::Scope {
            program,
            places,
            moves,
            rates: &[1, 30, 1],
            meters: &[],
            pace: PACE,
            faults,
            victims: &[0, 1, 2][..places.len()],
            phases: 7,
            guards,
            limit: 2_000_000,
        };
        let mut board = scope(silent, &[0, 3], &board, 0);
        board.phases = 1;
        let mut stub = scope(long, &[0, 30], &stub, 0);
        (stub.pace, stub.rates) = (once, &[1, 1]);
        let mut apart = scope(long, &[30, 30, 90], free, 0);
        (apart.pace, apart.rates) = (once, &[30, 30, 1]);
        let mut counted = scope(far, &[5, 20, 12], &lost, 0);
        counted.meters = &meters;
        let scopes = [
            ("memory", scope(silent, &[0, 3], free, 2)),
            ("vectors", scope(vector, &[0, 3], free, 2)),
            ("far", scope(long, &[0, 500], free, 0)),
            ("list", scope(silent, &[0, 3], &lists, 2)),
            ("board", board),
            ("three", scope(silent, &[0, 3, 1], free, 0)),
            ("three, flip", scope(silent, &[0, 3, 1], &pages, 0)),
            ("stub", stub),
            ("one apart", apart),
            ("counted", counted),
        ];
        scopes.iter().find_map(|(name, scope)| {
            match quietly(|| coupled::model::explore::<States>(scope)) {
                Some(Ok(_)) => None,
                Some(Err(flaw)) => Some(format!("{name}: {}", flaw.what)),
                None => Some(format!("{name}: an assertion")),
            }
        })
    }

    /// What comes of each, in their order, on as many threads as there are cores.
    fn in_parallel<T, U>(all: &[T], act: impl Fn(T) -> U + Sync) -> Vec<U>
    where
        T: Copy + Sync,
        U: Send,
    {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(&one) = all.get(place) else { return };
                let answer = act(one);
                done.lock().expect("nobody panics").push((place, answer));
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(work);
            }
        });
        let mut done = done.into_inner().expect("nobody panics");
        done.sort_by_key(|&(place, _)| place);
        done.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Takes the guards away in turn and demands that one of the two notices.
    #[track_caller]
    fn noticed(
        bugs: &[Bug],
        model: impl Fn(Guards) -> Option<String> + Sync,
        seed: impl Fn(Guards) -> Option<String> + Sync,
    ) {
        let asked_always = std::env::var_os("RCOE_PLANTED_TABLE").is_some();
        let answer = |bug: Option<Bug>| {
            let guards = bug.map_or(Guards::ON, Guards::without);
            let seed = bug.and_then(|_| seed(guards));
            let asked = seed.is_none() || asked_always;
            (seed, asked.then(|| model(guards)).flatten())
        };
        std::panic::set_hook(Box::new(|_| {}));
        let all: Vec<_> = std::iter::once(None)
            .chain(bugs.iter().copied().map(Some))
            .collect();
        let answers = in_parallel(&all, answer);
        let mut unnoticed = Vec::new();
        for (bug, (seed, model)) in all.into_iter().zip(answers) {
            let Some(bug) = bug else {
                assert_eq!(model, None, "all must pass with all guards on");
                continue;
            };
            println!(
                "| {bug:?} | {} | {} |",
                seed.as_deref().unwrap_or("-"),
                model.as_deref().unwrap_or("-")
            );
            if seed.is_none() && model.is_none() {
                unnoticed.push(bug);
            }
        }
        let _ = std::panic::take_hook();
        assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:?}");
    }

    #[test]
    fn each_of_deferred_effects_is_noticed() {
        noticed(DEFERRING, by_deferring_model, |guards| {
            by_seed(|seed| simulate_deferring(seed, guards, false))
        });
    }

    #[test]
    fn each_of_files_read_by_each_is_noticed() {
        noticed(READING, by_reading_model, |guards| {
            by_seed(|seed| simulate_reading(seed, guards, false))
        });
    }

    #[test]
    fn each_of_coupling_is_noticed() {
        noticed(COUPLED, by_coupled_model, |guards| {
            by_seed(|seed| {
                coupled::random::simulate(seed, None, guards, false)?;
                Ok(coupled::random::simulate_amid(seed, guards, false)?.into())
            })
        });
    }

    /// Replicas of which one runs at a time.
    const TURNS: &[Bug] = &[
        Bug::BatonAtOnce,
        Bug::BatonUnheld,
        Bug::BatonToLoser,
        Bug::BatonUnjoined,
        Bug::BatonUnstopped,
        Bug::BatonUnchecked,
        Bug::BatonImpatient,
        Bug::BatonUnlooking,
        Bug::BatonMute,
        Bug::BatonUnforgiven,
        Bug::BatonMinority,
    ];

    fn by_turns_model(guards: Guards) -> Option<String> {
        use rcoe_sim::turns::{self, Fault};

        let flips = [0, 9, 17].map(Fault::Flip);
        let faults = [Fault::Dies, Fault::Loops, Fault::Late];
        let faults = faults.into_iter().chain(flips).map(Some);
        let faults: Vec<_> = std::iter::once(None).chain(faults).collect();
        [2, 3].into_iter().find_map(|replicas| {
            faults.iter().find_map(|&fault| {
                let scope = turns::Scope {
                    replicas,
                    fault,
                    words: if replicas == 2 { 20 } else { 14 },
                    guards,
                };
                let flaw = quietly(|| turns::explore(&scope).err());
                let flaw = flaw.unwrap_or_else(|| Some("an assertion".to_owned()))?;
                let what = flaw.split(',').next().unwrap_or_default().to_owned();
                Some(format!("{replicas} replicas, {fault:?}: {what}"))
            })
        })
    }

    #[test]
    fn each_of_turns_is_noticed() {
        noticed(TURNS, by_turns_model, |_| None);
    }

    /// Programs that are counted.
    const COUNTED: &[Bug] = &[
        Bug::CountMarginIgnored,
        Bug::CountMissUnseen,
        Bug::CountPlaceUnseen,
        Bug::CountStuck,
        Bug::CountWidthIgnored,
        Bug::CountReachIgnored,
        Bug::CountKernel,
        Bug::CountFarKept,
        Bug::CountFreezes,
        Bug::CountLocksSpeculative,
        Bug::CountUnarmed,
        Bug::CountOverflowKept,
        Bug::CountUnopened,
    ];

    /// The first seed by which it is noticed that a counter is not what it should be.
    fn by_counted_seed(guards: Guards) -> Option<String> {
        (0..1_000).find_map(|seed| {
            let flaw = quietly(|| rcoe_sim::counted::simulate(seed, guards).err());
            let flaw = flaw.unwrap_or_else(|| Some("an assertion".to_owned()))?;
            let what = flaw.split([':', ',']).next().unwrap_or_default();
            Some(format!("seed {seed}: {what}"))
        })
    }

    #[test]
    fn each_of_counters_is_noticed() {
        noticed(COUNTED, by_counted_seed, |_| None);
    }

    #[test]
    fn each_is_noticed() {
        let model = |guards| by_model(guards).or_else(|| by_reduced_model(guards));
        noticed(BUGS, model, by_usual_seed);
    }

    /// Shuttle's memory is sequentially consistent; the missing fence needs a machine whose is not.
    #[test]
    fn a_missing_fence_is_noticed_on_this_machine() {
        let trigger = |node: &mut Node, ports: &Ports<'_>| node.trigger_action(ports, 1);
        let lost =
            |guards, rounds| fence::lost_wake((guards, Fences::Each), &trigger, &|| {}, rounds);
        assert_eq!(lost(Guards::ON, 100_000), None);
        if cfg!(target_arch = "x86_64") {
            // Mostly it comes soon; where the two threads seldom run at once, it takes long.
            let lost = lost(Guards::without(Bug::NoFence), 50_000_000);
            let round = lost.expect("no store was delayed past a load");
            println!("| NoFence | - | two threads: a lost wake-up in round {round} |");
        }
    }

    /// Where the sleeper issues the fence for both, its barrier is what nothing else makes up for.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_missing_barrier_of_the_sleeper_is_noticed_on_this_machine() {
        use rustix::thread::{MembarrierCommand, membarrier};

        membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("Linux 4.14");
        let barrier = || membarrier(MembarrierCommand::PrivateExpedited).expect("registered");
        let publish = |node: &mut Node, ports: &Ports<'_>| {
            assert!(node.try_publish_word(ports, 1), "the ring has room");
        };
        let lost = |barrier: &(dyn Fn() + Sync), rounds| {
            fence::lost_wake((Guards::ON, Fences::Sleepers), &publish, barrier, rounds)
        };
        assert_eq!(lost(&barrier, 20_000), None);
        if cfg!(target_arch = "x86_64") {
            // So many records go into a ring that nobody empties.
            let mut tries = (0..100).filter_map(|_| lost(&|| {}, 500_000));
            let round = tries.next().expect("no store was delayed past a load");
            println!("| no barrier | - | two threads: a lost wake-up in round {round} |");
        }
    }

    mod fence {
        use std::sync::atomic::{AtomicU32, Ordering};
        use std::thread;

        use rcoe_core::primitive::AtomicU64;
        use rcoe_core::{Fences, Guards, Node, Outbox, Port, Ports, ReplicaId, ReplicaSet};

        /// As a turn: there is no other round.
        const OVER: u32 = u32::MAX;

        /// Lets a publisher ring while a sleeper lies down, at most so many times: the first round
        /// in which neither saw the other.
        pub(super) fn lost_wake(
            (guards, fences): (Guards, Fences),
            ring: &(dyn Fn(&mut Node, &Ports<'_>) + Sync),
            barrier: &(dyn Fn() + Sync),
            rounds: u32,
        ) -> Option<u32> {
            let outboxes = [Outbox::new(), Outbox::new()];
            let rings = [(); 2].map(|()| (0..1 << 22).map(|_| AtomicU64::new(0)).collect());
            let rings: [Vec<AtomicU64>; 2] = rings;
            let mut ports: Ports<'_> = [None; 8];
            for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
                *port = Some(Port { outbox, ring });
            }
            let (turn, asleep) = (AtomicU32::new(0), AtomicU32::new(0));
            thread::scope(|scope| {
                let sleeper = || {
                    for round in 1..=rounds {
                        let bell = outboxes[0].bell();
                        turn.store(round, Ordering::SeqCst);
                        let id = ReplicaId::new(0);
                        let sleeps = outboxes[1].begin_sleep(id, &outboxes[0], bell, barrier);
                        asleep.store(round * 2 + u32::from(sleeps), Ordering::SeqCst);
                        while turn.load(Ordering::SeqCst) == round {
                            std::hint::spin_loop();
                        }
                        outboxes[1].end_sleep();
                        if turn.load(Ordering::SeqCst) == OVER {
                            return;
                        }
                    }
                };
                scope.spawn(sleeper);
                let mut node = Node::new(ReplicaId::new(0), ReplicaSet::all(2), &ports);
                node.set_guards(guards);
                node.set_fences(fences);
                let ring = |node: &mut Node| ring(node, &ports);
                publish(node, rounds, &ring, &turn, &asleep)
            })
        }

        fn publish(
            mut node: Node,
            rounds: u32,
            ring: &dyn Fn(&mut Node),
            turn: &AtomicU32,
            asleep: &AtomicU32,
        ) -> Option<u32> {
            for round in 1..=rounds {
                while turn.load(Ordering::SeqCst) != round {
                    std::hint::spin_loop();
                }
                ring(&mut node);
                let woke = node.take_wake();
                while asleep.load(Ordering::SeqCst) / 2 != round {
                    std::hint::spin_loop();
                }
                let sleeps = asleep.load(Ordering::SeqCst) & 1 == 1;
                if sleeps && !woke {
                    turn.store(OVER, Ordering::SeqCst);
                    return Some(round);
                }
                turn.store(0, Ordering::SeqCst);
                // The sleeper's next round starts when it sees the turn given back.
            }
            None
        }
    }
}
