//! Agreement on a point by a counter of branches, against a scripted one: this machine has none.

#[cfg(test)]
mod tests {
    use rcoe_core::coupling::{
        Backend, Board, Boards, Counted, Counter, Coupler, End, LAST_PHASE, Machine, Order, Pace,
        Shape, Standing, Stop, list_digest,
    };
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{MAX_REPLICAS, ReplicaId, ReplicaSet};

    const SHAPE: Shape = Shape {
        replicas: 3,
        registers: 2,
        pages: 4,
        sheet: 4,
    };
    const PACE: Pace = Pace {
        base: 4,
        most: 1000,
        lag: 1000,
        phases: LAST_PHASE,
        undecided: LAST_PHASE,
        steep: u64::MAX,
    };

    /// Branches, instruction pointer and iterations left of all places on the way to a call: a loop
    /// of two instructions, in which a third is repeated three times.
    fn script() -> Vec<(u64, u64, u64)> {
        let turn = |branches| {
            let repeated = (1..=3).rev().map(move |left| (branches, 0x12, left));
            let rest = [(branches, 0x10, 0)].into_iter().chain(repeated);
            rest.chain([(branches, 0x14, 0)])
        };
        (0..4).flat_map(turn).collect()
    }

    /// A replica at a place of the script; its only register counts places.
    #[derive(Clone)]
    struct Scripted {
        script: Vec<(u64, u64, u64)>,
        at: usize,
        flip: u64,
    }

    impl Scripted {
        const fn register(&self) -> u64 {
            (self.at as u64 * 7) ^ self.flip
        }
    }

    impl Machine for Scripted {
        fn standing(&self) -> Standing {
            let place = self.script.get(self.at).copied();
            let (progress, ip, left) = place.unwrap_or((4, 0x20, 0));
            Standing {
                events: 1,
                signature: [5, 6 ^ self.flip],
                at_call: place.is_none(),
                progress,
                ip,
                left,
                counted: Counted::default(),
            }
        }

        fn registers(&self, out: &mut [u64]) {
            out.copy_from_slice(&[self.standing().ip, self.register()]);
        }

        fn written(&mut self, _: &mut [u64]) -> Option<usize> {
            Some(0)
        }

        fn seal(&mut self, _: usize) -> Option<u64> {
            Some(list_digest(&[]))
        }

        fn area(&self, _: u64, _: &mut [u64]) -> usize {
            0
        }

        fn within(&self, _: u64, _: usize) -> Option<u64> {
            None
        }

        fn everything(&self) -> u64 {
            0
        }
    }

    struct Replica {
        machine: Scripted,
        coupler: Coupler<Counter>,
        came: Option<Result<usize, End>>,
    }

    impl Replica {
        /// Runs until the counter and what orders places within a branch are the target's.
        fn run(&mut self) {
            let from = self.machine.standing().progress;
            let target = Counter::time(self.coupler.target());
            let stop = loop {
                let standing = self.machine.standing();
                if standing.at_call {
                    break Stop::Call;
                }
                if Counter::time(&standing) >= target {
                    break Stop::Matched;
                }
                self.machine.at += 1;
            };
            let spent = self.machine.standing().progress - from;
            self.coupler.ran(stop, spent);
        }

        fn step(&mut self, boards: &Boards<'_>) {
            match self.coupler.step(boards, &mut self.machine) {
                Order::Place => self.coupler.placed(),
                Order::Run { .. } => self.run(),
                Order::Agreed(_) => self.came = Some(Ok(self.machine.at)),
                Order::Halted(end) => self.came = Some(Err(end)),
                _ => {}
            }
        }
    }

    /// Words of so many fresh boards.
    fn memory(boards: usize) -> Vec<Vec<AtomicU64>> {
        let words = || (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect();
        (0..boards).map(|_| words()).collect()
    }

    fn boards(memory: &[Vec<AtomicU64>]) -> Boards<'_> {
        let mut boards: Boards<'_> = [None; MAX_REPLICAS];
        for (board, cells) in boards.iter_mut().zip(memory) {
            *board = Some(Board::new(cells, SHAPE));
        }
        boards
    }

    /// Replicas at these places that begin an attempt; a register of one of them is another.
    fn replicas(places: &[usize], flip: (usize, u64)) -> Vec<Replica> {
        let members = ReplicaSet::all(places.len());
        let replica = |(id, &at): (ReplicaId, &usize)| Replica {
            machine: Scripted {
                script: script(),
                at,
                flip: if id.index() == flip.0 { flip.1 } else { 0 },
            },
            coupler: Coupler::new(id, members, PACE),
            came: None,
        };
        let mut all: Vec<Replica> = members.iter().zip(places).map(replica).collect();
        all.iter_mut().for_each(|replica| replica.coupler.begin());
        all
    }

    /// Lets replicas at these places agree; where each then is.
    fn agree(places: &[usize], flip: (usize, u64)) -> Vec<Result<usize, End>> {
        let memory = memory(places.len());
        let boards = boards(&memory);
        let mut all = replicas(places, flip);
        for _ in 0..1000 {
            for replica in all.iter_mut().filter(|replica| replica.came.is_none()) {
                replica.step(&boards);
            }
        }
        let came = |replica: &Replica| replica.came.expect("an end within a thousand steps");
        all.iter().map(came).collect()
    }

    #[test]
    fn who_begins_anew_at_once_leaves_nobody_behind_in_the_attempt_before() {
        for first in [0, 1] {
            let memory = memory(2);
            let boards = boards(&memory);
            let mut all = replicas(&[7, 7], (1, 1));
            // The other one makes its last step only when the first one is further.
            while all[first].came.is_none() {
                all[1 - first].step(&boards);
                all[first].step(&boards);
            }
            let [before, after] = [first, 1 - first];
            if all[after].came.is_none() {
                all[before].coupler.give_up();
                all[before].coupler.begin();
                (0..10).for_each(|_| all[before].step(&boards));
            }
            (0..10).for_each(|_| all[after].step(&boards));
            assert_eq!(all[after].came, Some(Err(End::Diverged)), "{first} first");
        }
    }

    #[test]
    fn all_meet_at_the_place_of_the_one_that_is_ahead() {
        let places = script().len() + 1;
        for one in 0..places {
            for other in 0..places {
                let ahead = Ok(one.max(other));
                assert_eq!(agree(&[one, other], (9, 0)), [ahead; 2], "{one} {other}");
                let third = (one * 5 + other) % places;
                let ahead = Ok(one.max(other).max(third));
                let came = agree(&[one, other, third], (9, 0));
                assert_eq!(came, [ahead; 3], "{one} {other} {third}");
            }
        }
    }

    /// Who is in a hurry and misses all others goes by that alone: those do not charge each other
    /// on its word.
    #[test]
    fn nobody_takes_over_a_charge_against_all() {
        let memory = memory(3);
        let boards = boards(&memory);
        let mut all = replicas(&[7, 7, 7], (9, 0));
        let hasty = &mut all[1];
        while hasty.came.is_none() {
            match hasty.coupler.step(&boards, &mut hasty.machine) {
                Order::Wait(peer) => hasty.coupler.overdue(peer),
                Order::Halted(end) => hasty.came = Some(Err(end)),
                _ => {}
            }
        }
        assert_eq!(hasty.came, Some(Err(End::Missing)));
        for _ in 0..1000 {
            for number in [0, 2] {
                let replica = &mut all[number];
                match replica.coupler.step(&boards, &mut replica.machine) {
                    // What has ended is soon found to be.
                    Order::Wait(peer) if peer.index() == 1 => replica.coupler.overdue(peer),
                    Order::Place => replica.coupler.placed(),
                    Order::Run { .. } => replica.run(),
                    Order::Agreed(_) => replica.came = Some(Ok(replica.machine.at)),
                    Order::Halted(end) => replica.came = Some(Err(end)),
                    _ => {}
                }
            }
        }
        assert_eq!([0, 2].map(|it| all[it].came), [Some(Ok(7)); 2]);
    }

    #[test]
    fn two_that_differ_stop_wherever_they_are() {
        for (one, other) in [(0, 3), (3, 0), (7, 7), (20, 20), (2, 20)] {
            let ends = agree(&[one, other], (1, 1));
            assert_eq!(ends, [Err(End::Diverged); 2], "{one} {other}");
        }
    }
}
