//! Agreement on a point on shuttle's atomics: every access to a board is a scheduling point, so
//! posts are read while they are written.
//!
//! Run with `cargo test -p rcoe-sim --features shuttle --test coupled_schedules`. A failure prints
//! the schedule that replays it.

#[cfg(test)]
mod tests {
    use rcoe_core::coupling::{
        Board, Boards, Coupler, End, LAST_PHASE, Machine, Order, Pace, Shape, Standing, States,
        Stop, Stub, list_digest,
    };
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{MAX_REPLICAS, ReplicaId, ReplicaSet};
    use shuttle::sync::Arc;
    use shuttle::thread;

    const SHAPE: Shape = Shape {
        replicas: 3,
        registers: 1,
        pages: 1,
        sheet: 1,
    };
    const PACE: Pace = Pace {
        base: 2,
        most: 1000,
        lag: 1000,
        phases: LAST_PHASE,
        undecided: LAST_PHASE,
        steep: u64::MAX,
    };
    /// Instructions before the call.
    const LENGTH: u64 = 12;

    /// A loop of two instructions that counts its turns in a page.
    #[derive(Clone, Debug)]
    struct Counting {
        at: u64,
        flip: u64,
    }

    impl Counting {
        const fn page(&self) -> u64 {
            (self.at / 2) ^ self.flip
        }
    }

    impl Machine for Counting {
        fn standing(&self) -> Standing {
            Standing {
                at_call: self.at >= LENGTH,
                progress: self.at,
                ip: self.at % 2,
                ..Standing::default()
            }
        }

        fn registers(&self, out: &mut [u64]) {
            out[0] = self.at % 2;
        }

        fn written(&mut self, list: &mut [u64]) -> Option<usize> {
            list[0] = 0;
            Some(usize::from(self.at > 1))
        }

        fn seal(&mut self, _: usize) -> Option<u64> {
            let list: &[u64] = if self.at > 1 { &[0] } else { &[] };
            Some(list_digest(list))
        }

        fn area(&self, area: u64, out: &mut [u64]) -> usize {
            out[0] = self.page();
            usize::from(area == 0)
        }

        fn within(&self, _: u64, _: usize) -> Option<u64> {
            None
        }

        fn everything(&self) -> u64 {
            self.page()
        }
    }

    /// Where a replica acts, or why it stops.
    fn life(id: ReplicaId, members: ReplicaSet, at: u64, flip: u64, boards: &Boards<'_>) -> Came {
        let mut machine = Counting { at, flip };
        let mut coupler = Coupler::<States>::new(id, members, PACE);
        coupler.begin();
        loop {
            match coupler.step(boards, &mut machine) {
                Order::Place => coupler.placed(),
                Order::Run { budget, again } => {
                    let (stop, spent) = run(&mut machine, coupler.stub(), budget, again);
                    coupler.ran(stop, spent);
                }
                Order::Agreed(point) => return Ok((point.at_call, machine.at)),
                Order::Halted(end) => return Err(end),
                Order::Wait(_) => thread::yield_now(),
                Order::Again | Order::Removed(_) => {}
                Order::Idle => unreachable!("the attempt is under way"),
            }
        }
    }

    type Came = Result<(bool, u64), End>;

    fn run(machine: &mut Counting, stub: &Stub, budget: u64, again: bool) -> (Stop, u64) {
        let from = machine.at + u64::from(again);
        for at in machine.at.. {
            machine.at = at;
            let spent = at.saturating_sub(from);
            let extra = || stub.extra().iter().all(|word| word.value == machine.page());
            if at >= LENGTH {
                return (Stop::Call, spent);
            }
            if at >= from && at % 2 == stub.registers[0] && extra() {
                return (Stop::Matched, spent);
            }
            if spent > budget {
                return (Stop::Overran, spent);
            }
        }
        unreachable!("there is a call")
    }

    /// Replicas at these places; one of them has a flip in its page.
    fn group(places: &'static [u64], flipped: Option<usize>) -> Vec<Came> {
        let cells = || (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect();
        let memory: Arc<Vec<Vec<AtomicU64>>> = Arc::new(places.iter().map(|_| cells()).collect());
        let members = ReplicaSet::all(places.len());
        let replica = |(id, &at): (ReplicaId, &u64)| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut boards: Boards<'_> = [None; MAX_REPLICAS];
                for (board, cells) in boards.iter_mut().zip(memory.iter()) {
                    *board = Some(Board::new(cells, SHAPE));
                }
                let flip = if flipped == Some(id.index()) { 64 } else { 0 };
                life(id, members, at, flip, &boards)
            })
        };
        let threads: Vec<_> = members.iter().zip(places).map(replica).collect();
        let join = |thread: thread::JoinHandle<Came>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    }

    /// Schedules of each kind.
    const RUNS: usize = 300;

    fn all_meet(places: &'static [u64]) {
        let test = move || {
            let came = group(places, None);
            assert!(came[0].is_ok(), "{came:?}");
            assert!(came.iter().all(|other| *other == came[0]), "{came:?}");
        };
        shuttle::check_random(test, RUNS);
        shuttle::check_pct(test, RUNS, 3);
    }

    #[test]
    fn two_meet() {
        all_meet(&[0, 5]);
        all_meet(&[9, 2]);
    }

    #[test]
    fn three_meet() {
        all_meet(&[0, 5, 2]);
    }

    #[test]
    fn two_that_differ_do_not_meet_between_calls() {
        let test = || {
            for came in group(&[2, 5], Some(1)) {
                assert!(matches!(came, Ok((true, _)) | Err(_)), "{came:?}");
            }
        };
        shuttle::check_random(test, RUNS);
    }
}
