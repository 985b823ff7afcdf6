//! Who waits for whom inside `handle_action`.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{
        Call, Done, Kind, MAX_REPLICAS, Node, Outbox, Port, Ports, ReplicaId, ReplicaSet, Step,
    };

    const RING: usize = 1024;

    struct Memory {
        outboxes: Vec<Outbox>,
        rings: Vec<Vec<AtomicU64>>,
    }

    impl Memory {
        fn new() -> Self {
            let ring = || (0..RING).map(|_| AtomicU64::new(0)).collect();
            Self {
                outboxes: (0..3).map(|_| Outbox::new()).collect(),
                rings: (0..3).map(|_| ring()).collect(),
            }
        }

        fn ports(&self) -> Ports<'_> {
            let mut ports = [None; MAX_REPLICAS];
            for (index, port) in ports.iter_mut().enumerate().take(3) {
                *port = Some(Port {
                    outbox: &self.outboxes[index],
                    ring: &self.rings[index],
                });
            }
            ports
        }
    }

    /// Steps until the call waits or is over.
    fn run(node: &mut Node, call: &mut Call, ports: &Ports<'_>) -> Step {
        for _ in 0..100 {
            match node.step(call, ports, &mut [0; 8]) {
                Step::Again => {}
                other => return other,
            }
        }
        panic!("a call goes on for ever: {call}");
    }

    fn nodes(ports: &Ports<'_>) -> [Node; 3] {
        let node = |id| Node::new(ReplicaId::new(id), ReplicaSet::all(3), ports);
        [node(0), node(1), node(2)]
    }

    fn events(node: &mut Node, memory: &Memory, count: u64) {
        for event in 0..count {
            let own = &memory.outboxes[node.id().index()];
            node.add_event(own, Kind(1), event);
        }
    }

    fn is_waiting_for(step: Step, peer: u8) -> bool {
        matches!(step, Step::Pending(what) if what.peer == ReplicaId::new(peer))
    }

    /// The primary waits for a follower behind it, that one for a follower ahead of both, and that
    /// one for the primary's next record: whoever sees another one ahead does not wait.
    #[test]
    fn nobody_waits_for_one_that_is_ahead_and_waits_for_a_record() {
        let memory = Memory::new();
        let ports = memory.ports();
        let [mut first, mut second, mut third] = nodes(&ports);
        events(&mut first, &memory, 1);
        events(&mut second, &memory, 1);
        first.trigger_action(&ports, 1);
        let mut lead = first.begin_action();
        assert!(is_waiting_for(run(&mut first, &mut lead, &ports), 1));
        let mut behind = second.begin_action();
        assert!(is_waiting_for(run(&mut second, &mut behind, &ports), 2));
        // The primary gives up there, and waits again further on.
        assert!(is_waiting_for(run(&mut first, &mut lead, &ports), 2));
        lead.overdue(ReplicaId::new(2));
        let left = run(&mut first, &mut lead, &ports);
        assert_eq!(left, Step::Ready(Done::Actions(0)));
        events(&mut first, &memory, 1);
        let mut lead = first.begin_action();
        assert!(is_waiting_for(run(&mut first, &mut lead, &ports), 1));
        events(&mut third, &memory, 3);
        let mut ahead = third.begin_consume();
        assert!(is_waiting_for(run(&mut third, &mut ahead, &ports), 0));
        let left = run(&mut second, &mut behind, &ports);
        assert_eq!(left, Step::Ready(Done::Actions(0)));
    }

    /// Who is far behind comes to `handle_action` at each of its points. It says nothing there: the
    /// leader would have to look at it each time.
    #[test]
    fn who_is_behind_passes_by_unsaid() {
        let memory = Memory::new();
        let ports = memory.ports();
        let [mut first, mut second, _] = nodes(&ports);
        events(&mut first, &memory, 9);
        first.trigger_action(&ports, 1);
        let mut lead = first.begin_action();
        assert!(is_waiting_for(run(&mut first, &mut lead, &ports), 1));
        let before = memory.outboxes[1].snapshot();
        for _ in 0..8 {
            let mut behind = second.begin_action();
            let step = second.step(&mut behind, &ports, &mut []);
            assert_eq!(step, Step::Ready(Done::Actions(0)));
            events(&mut second, &memory, 1);
        }
        assert_eq!(memory.outboxes[1].snapshot(), before);
        events(&mut second, &memory, 1);
        let mut here = second.begin_action();
        assert!(is_waiting_for(run(&mut second, &mut here, &ports), 2));
    }

    /// The first one is behind the third, so it does not wait for the second, who may be stuck.
    #[test]
    fn nobody_waits_for_one_that_is_missing_while_another_is_ahead() {
        let memory = Memory::new();
        let ports = memory.ports();
        let [mut first, _, mut third] = nodes(&ports);
        events(&mut third, &memory, 1);
        third.trigger_action(&ports, 1);
        let mut ahead = third.begin_action();
        assert!(is_waiting_for(run(&mut third, &mut ahead, &ports), 0));
        let mut behind = first.begin_action();
        let left = run(&mut first, &mut behind, &ports);
        assert_eq!(left, Step::Ready(Done::Actions(0)));
    }

    /// Where members are punctual, those who are here vote out the one that is not.
    #[test]
    fn punctual_members_vote_where_they_stand() {
        for punctual in [false, true] {
            let memory = Memory::new();
            let ports = memory.ports();
            let [mut first, mut second, _] = nodes(&ports);
            first.set_punctual(punctual);
            second.set_punctual(punctual);
            first.trigger_action(&ports, 1);
            let mut calls = [first.begin_action(), second.begin_action()];
            run(&mut first, &mut calls[0], &ports);
            assert!(is_waiting_for(run(&mut second, &mut calls[1], &ports), 2));
            assert!(is_waiting_for(run(&mut first, &mut calls[0], &ports), 2));
            calls[0].overdue(ReplicaId::new(2));
            let step = run(&mut first, &mut calls[0], &ports);
            if !punctual {
                assert_eq!(step, Step::Ready(Done::Actions(0)));
                continue;
            }
            assert!(calls[0].in_vote());
            run(&mut second, &mut calls[1], &ports);
            assert!(calls[1].in_vote(), "whoever is called from here joins");
        }
    }

    /// Three punctual members at one point, of which the first two wait for the third in an action
    /// that was flagged after it had passed.
    fn passed_by_the_third(memory: &Memory, ports: &Ports<'_>) -> ([Node; 3], [Call; 3]) {
        let mut nodes = nodes(ports);
        for node in &mut nodes {
            node.set_punctual(true);
            events(node, memory, 1);
        }
        let mut early = nodes[2].begin_action();
        let passed = run(&mut nodes[2], &mut early, ports);
        assert_eq!(passed, Step::Ready(Done::Actions(0)), "nothing is flagged");
        nodes[0].trigger_action(ports, 1);
        events(&mut nodes[2], memory, 2);
        let calls = [
            nodes[0].begin_action(),
            nodes[1].begin_action(),
            nodes[2].begin_rendezvous(),
        ];
        (nodes, calls)
    }

    /// Lets the first two step; whom they miss if it is the third. Says who was removed, if so.
    fn step_and_miss(
        nodes: &mut [Node; 3],
        calls: &mut [Call; 3],
        ports: &Ports<'_>,
    ) -> Option<ReplicaSet> {
        for at in 0..2 {
            match nodes[at].step(&mut calls[at], ports, &mut [0; 8]) {
                Step::Exclude(gone) => return Some(gone),
                Step::Pending(what) if !calls[at].in_vote() && what.peer.index() == 2 => {
                    calls[at].overdue(what.peer);
                }
                Step::Again | Step::Pending(_) => {}
                other => panic!("R{at}: {other:?}"),
            }
        }
        None
    }

    /// One that passed an action before it was flagged, and is late, is ahead of those who wait:
    /// it is not taken for one that differs, and they meet further on.
    #[test]
    fn who_passed_an_action_before_it_was_flagged_is_ahead() {
        let memory = Memory::new();
        let ports = memory.ports();
        let (mut nodes, mut calls) = passed_by_the_third(&memory, &ports);
        while !calls[0].in_vote() || !calls[1].in_vote() {
            assert_eq!(step_and_miss(&mut nodes, &mut calls, &ports), None);
        }
        let mut met = [false; 3];
        for _ in 0..1000 {
            for at in 0..3 {
                let step = nodes[at].step(&mut calls[at], &ports, &mut [0; 8]);
                match step {
                    Step::Ready(Done::Actions(0)) => {
                        events(&mut nodes[at], &memory, 2);
                        calls[at] = nodes[at].begin_rendezvous();
                    }
                    Step::Ready(Done::Met) => met[at] = true,
                    Step::Again | Step::Pending(_) => {}
                    other => panic!("R{at}: {other:?}"),
                }
            }
            if met == [true; 3] {
                return;
            }
        }
        panic!("met: {met:?}: {}", calls[0]);
    }

    /// One that claims to be ahead vote after vote, but is never seen there, is voted out.
    #[test]
    fn who_only_claims_to_be_ahead_is_stuck() {
        let memory = Memory::new();
        let ports = memory.ports();
        let (mut nodes, mut calls) = passed_by_the_third(&memory, &ports);
        let mut joined = false;
        for _ in 0..10_000 {
            if let Some(gone) = step_and_miss(&mut nodes, &mut calls, &ports) {
                assert_eq!(gone, ReplicaSet::empty().with(ReplicaId::new(2)));
                return;
            }
            let voting = calls[..2].iter().filter(|call| call.in_vote()).count();
            if voting == 2 && !joined {
                calls[2] = nodes[2].begin_alarm();
                joined = true;
            }
            joined &= voting > 0;
            // Outside of votes it is nowhere.
            if calls[2].in_vote() {
                nodes[2].step(&mut calls[2], &ports, &mut [0; 8]);
            }
        }
        panic!("nobody is voted out: {}", calls[0]);
    }

    /// One that stood further on, missed all others and halted, is nowhere: those who come here
    /// whatever they do would pass by for it for ever, if they never come to where it stood.
    #[test]
    fn nobody_passes_by_for_one_that_has_halted_further_on() {
        let memory = Memory::new();
        let ports = memory.ports();
        let (mut nodes, mut calls) = passed_by_the_third(&memory, &ports);
        let end = loop {
            match run(&mut nodes[2], &mut calls[2], &ports) {
                Step::Pending(what) => calls[2].overdue(what.peer),
                end => break end,
            }
        };
        assert!(matches!(end, Step::Halted(_)), "{end:?}");
        // Nobody leaves before all that are left have come.
        for _ in 0..3 {
            assert!(is_waiting_for(run(&mut nodes[0], &mut calls[0], &ports), 1));
        }
        for _ in 0..1_000 {
            if let Some(gone) = step_and_miss(&mut nodes, &mut calls, &ports) {
                assert_eq!(gone, ReplicaSet::empty().with(ReplicaId::new(2)));
                return;
            }
        }
        panic!("nobody is voted out: {}", calls[0]);
    }

    /// Three members at one point, of which the first is ready and looks at the second, which has
    /// performed the action; the third is ready.
    fn performed_by_the_second(memory: &Memory, ports: &Ports<'_>) -> ([Node; 3], [Call; 3]) {
        let mut nodes = nodes(ports);
        nodes[0].trigger_action(ports, 1);
        let mut calls = [0, 1, 2].map(|at| {
            events(&mut nodes[at], memory, 1);
            nodes[at].begin_action()
        });
        for (at, awaited) in [(0, 1), (1, 2), (2, 0), (0, 1)] {
            let step = run(&mut nodes[at], &mut calls[at], ports);
            assert!(is_waiting_for(step, awaited), "R{at}: {step:?}");
        }
        let step = run(&mut nodes[1], &mut calls[1], ports);
        assert_eq!(step, Step::Ready(Done::Actions(1)));
        (nodes, calls)
    }

    /// A member that is ready and seems to have come further has a damaged outbox. Who would leave
    /// for it would leave those who have performed before it was hit.
    #[test]
    fn nobody_leaves_for_one_that_is_ready_and_seems_further_on() {
        const ARRIVED: usize = 0;
        let memory = Memory::new();
        let ports = memory.ports();
        let (mut nodes, mut calls) = performed_by_the_second(&memory, &ports);
        memory.outboxes[2].overwrite(ARRIVED, u64::MAX / 2);
        calls[1] = nodes[1].begin_rendezvous();
        let mut performed = [false, true, false];
        for _ in 0..1000 {
            for at in 0..3 {
                match nodes[at].step(&mut calls[at], &ports, &mut [0; 8]) {
                    Step::Ready(Done::Actions(set)) => {
                        assert_eq!(set, 1, "R{at} has left");
                        performed[at] = true;
                        calls[at] = nodes[at].begin_rendezvous();
                    }
                    Step::Ready(Done::Met) if performed == [true; 3] => return,
                    Step::Again | Step::Pending(_) => {}
                    other => panic!("R{at}: {other:?}"),
                }
            }
        }
        panic!("performed: {performed:?}: {}", calls[0]);
    }
}
