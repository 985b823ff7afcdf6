//! Turns among the processes that share memory.
//!
//! Intuition: accesses of several processes to memory that they share race. So these processes
//! run one at a time, in every replica in the same order: a machine with one core for each replica.
//! A process shares as soon as it has shared memory mapped and is a child or has forked; from then
//! on its program runs in turns only.
//!
//! A turn has a number. The group's primary claims it, FIFO, among all groups, and publishes it in
//! the group's trace; each replica then waits until its own slice has come to that turn, runs and
//! passes the slice on. A turn ends where nobody of the process can run, after so
//! many calls, or so much computing, if others wait, and with the process: always points of the
//! trace, at calls or between them ([`crate::calls::points`]).
//!
//! No deadlock: take the lowest turn that is not over in all slices. All before it are over, so
//! each replica of its group gets it as soon as it comes to the point where it takes it, and until
//! there it waits for nothing but records of its own group, whose primary has published this turn
//! or does so without waiting. Within a turn a replica waits for its siblings only, which get the
//! same turn in their slices; whoever waits for anything else gives the turn back first.
//!
//! What is kept about shared memory lies in the slice and changes in turns only, so it is alike in
//! all slices without a word between replicas.
//!
//! Not covered: without points between calls a process that computes keeps its turn, and all others
//! that share memory wait.

pub(crate) mod slice;

use core::sync::atomic::Ordering;

use rcoe_linux_abi::Control;
use rcoe_linux_abi::arena::{BOOKS_BYTES, Books, Claims, Gate, Place};

use crate::arch::entry::{interruptible_call, is_away};
use crate::calls::{shared, signals};
use crate::convert::low32;
use crate::kernel::{Kernel, kind};
use crate::lifetime::{PerProcess, Who};
use crate::memory::regions;
use crate::protocol::requests;
use crate::protocol::transfer::{Outcome, agree, agree_all};
use crate::recover::reintegration;
use crate::recover::reintegration::newcomer;
use crate::sched::schedule;
use crate::sched::threads::Slices;
use crate::sys;
use slice::claims;

/// Longest sleep before looking again.
const LOOK_NS: u64 = 100_000_000;

/// What a replica knows of turns.
pub(crate) struct Turns {
    /// Slices there are, and their bytes.
    started: usize,
    bytes: u64,
    /// Whether the program runs in turns only.
    member: bool,
    /// The turn that this replica has.
    held: Option<u64>,
    /// No claim of this group that is still open is below this number.
    least: u64,
    /// Calls left until others get a chance.
    calls: u32,
    lengths: Slices,
}

impl Turns {
    pub(crate) fn new(control: &Control) -> Self {
        Self {
            started: control.replicas.load(Ordering::Relaxed) as usize,
            bytes: control.slice_bytes.load(Ordering::Relaxed),
            member: false,
            held: None,
            least: 0,
            calls: 0,
            lengths: Slices::new(!control.seed.load(Ordering::Relaxed)),
        }
    }

    /// Bytes of a slice for the program.
    pub(crate) fn room(&self) -> u64 {
        self.bytes.saturating_sub(BOOKS_BYTES as u64)
    }

    /// Does the program run in turns only?
    pub(crate) fn is_member(&self) -> bool {
        self.member
    }

    /// Is it the program's turn?
    pub(crate) const fn has_turn(&self) -> bool {
        self.held.is_some()
    }

    /// Counts a call of the program: shall others get a chance?
    #[inline]
    pub(crate) fn count_call(&mut self) -> bool {
        if !self.member {
            return false;
        }
        self.calls = self.calls.saturating_sub(1);
        self.calls == 0
    }

    /// Does the turn go on after one call more?
    #[inline]
    pub(crate) const fn goes_on(&self) -> bool {
        !self.member || self.calls > 1
    }

    /// Counts a call with which the turn goes on.
    #[inline]
    pub(crate) const fn count_within(&mut self) {
        if self.member {
            self.calls -= 1;
        }
    }

    /// Counts a call that cannot end the turn; says no, and counts nothing, where it would.
    #[inline]
    pub(crate) const fn count_reading(&mut self) -> bool {
        let goes_on = self.goes_on();
        if goes_on {
            self.count_within();
        }
        goes_on
    }

    /// The rest of the turn is given up.
    pub(crate) fn give_way(&mut self) {
        self.calls = 0;
    }
}

/// Makes this replica's slice the only one that it can touch.
pub(crate) fn take_slice(kernel: &Kernel) {
    kernel.slice.take(kernel.turns.started, kernel.turns.bytes);
}

impl PerProcess for Turns {
    /// A child has no turn, and runs in none before it joins.
    fn in_child(&mut self, _: &Who) {
        let Self {
            started: _,
            bytes: _,
            member,
            held,
            // See [`begin_child`].
            least: _,
            calls: _,
            lengths: _,
        } = self;
        (*member, *held) = (false, None);
    }
}

/// All replicas of a child, before its first turn: claims before this one are not its own, but of
/// a process that had its group before.
pub(crate) fn begin_child(kernel: &mut Kernel) {
    kernel.turns.least = agree(kernel, || claims().next());
}

/// Primary: the turn that the supervisor has claimed for the present order, if this group runs in
/// turns and has not passed that one.
pub(crate) fn rest(kernel: &Kernel) -> Option<u64> {
    let least = kernel.control.rest.load(Ordering::Acquire);
    let least = least.max(kernel.turns.least);
    let member = kernel.turns.member;
    member.then(|| claims().find(Claims::REST, least)).flatten()
}

/// A copy of another replica has this one's place, between two turns.
pub(crate) fn become_copy(kernel: &mut Kernel) {
    take_slice(kernel);
    if kernel.turns.member {
        shared::arena::show_all(kernel);
        let slice = low32(kernel.slice.index() as u64);
        kernel.report.sharing.store(slice + 1, Ordering::SeqCst);
        settle_in(own_place(kernel));
    }
}

/// From here on this process is the one to be called.
fn settle_in(place: &Place) {
    place.idle.store(Place::NOT_IDLE, Ordering::Release);
}

fn gate(kernel: &Kernel) -> &'static Gate {
    kernel.slice.gate()
}

fn own_place(kernel: &Kernel) -> &'static Place {
    &gate(kernel).places[regions::own_group()]
}

/// A claim of this group that a lost primary has left without a word.
fn left_behind(kernel: &Kernel) -> Option<u64> {
    let lost = kernel.replica.epoch() != 0;
    lost.then(|| claims().find(regions::own_group(), kernel.turns.least))
        .flatten()
}

/// Primary: do others wait for a turn that a lost primary has claimed for the group? Then it is to
/// be taken before anything is waited for.
pub(crate) fn is_owed(kernel: &Kernel) -> bool {
    kernel.turns.member && left_behind(kernel).is_some()
}

/// Primary: claims the next turn for the group.
pub(crate) fn claim(kernel: &Kernel) -> u64 {
    left_behind(kernel).unwrap_or_else(|| claims().claim(regions::own_group()))
}

/// All replicas: waits for the turn that their primary has claimed.
pub(crate) fn begin(kernel: &mut Kernel, turn: u64) {
    assert!(kernel.turns.held.is_none(), "one turn at a time");
    kernel.event(kind::of(0, kind::TURN), turn);
    let copied = reintegration::before_turn(kernel);
    kernel.report.turn.store(turn + 1, Ordering::Relaxed);
    kernel.report.awaits_turn.store(1, Ordering::Relaxed);
    wait_for_turn(kernel);
    kernel.report.awaits_turn.store(0, Ordering::Relaxed);
    if let Some(began) = copied {
        let pause = sys::monotonic().saturating_sub(began);
        crate::kernel::count(&kernel.report.pause_ns, pause);
    }
    kernel.turns.held = Some(turn);
    kernel.turns.least = turn + 1;
    kernel.turns.calls = kernel.turns.lengths.next();
    own_place(kernel).woken.store(0, Ordering::SeqCst);
    let books = kernel.slice.books();
    shared::futexes::review(kernel, books);
    schedule::tell_held_up(kernel);
}

/// Waits until the slice has come to the turn that the report names. It is read there again at each
/// look, as this may last, and a flip in a register meanwhile would make it another for good.
fn wait_for_turn(kernel: &mut Kernel) {
    loop {
        let wanted = low32(kernel.report.turn.load(Ordering::Relaxed) - 1);
        let gate = gate(kernel);
        let now = gate.turn.load(Ordering::Acquire);
        if now == wanted {
            return;
        }
        if kernel.replica.is_newcomer() && !reintegration::is_wanted(kernel) {
            newcomer::give_up(kernel);
        }
        gate.sleepers.fetch_add(1, Ordering::SeqCst);
        if gate.turn.load(Ordering::SeqCst) == now {
            sys::futex_wait_bit(gate.turn.as_ptr(), now, bit_of(wanted), LOOK_NS);
        }
        gate.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

const fn bit_of(turn: u32) -> u32 {
    1 << (turn % 32)
}

/// All replicas: take the next turn.
pub(crate) fn take(kernel: &mut Kernel) {
    let [turn, due, taken, order] = agree_all(kernel, true, |kernel| {
        let turn = claim(kernel);
        let [due, taken] = signals::collect(kernel);
        [turn, due, taken, reintegration::next_at_turn(kernel, turn)]
    });
    kernel.orders.take(order);
    begin(kernel, turn);
    take_signals(kernel, due, taken);
}

fn take_signals(kernel: &mut Kernel, due: u64, taken: u64) {
    let outcome = Outcome {
        result: 0,
        due,
        taken,
        order: 0,
    };
    signals::take(kernel, outcome);
}

/// All replicas: the turn is over.
pub(crate) fn release(kernel: &mut Kernel) {
    let books = kernel.slice.books();
    shared::futexes::review(kernel, books);
    let turn = kernel.turns.held.take().expect("it has the turn");
    let next = low32(turn + 1);
    let gate = gate(kernel);
    gate.turn.store(next, Ordering::SeqCst);
    if gate.sleepers.load(Ordering::SeqCst) != 0 {
        sys::futex_wake_bit(gate.turn.as_ptr(), bit_of(next));
    }
}

/// Primary: does the program keep others from a turn that they have claimed?
pub(crate) fn are_wanted(kernel: &Kernel) -> bool {
    let held = kernel.turns.held;
    held.is_some_and(|held| claims().next() > held + 1)
}

/// All replicas: give the turn back and take another, if somebody waits for one.
pub(crate) fn pass(kernel: &mut Kernel) {
    assert!(kernel.turns.has_turn(), "a member runs in its turn");
    let [next, due, taken, order] = agree_all(kernel, true, |kernel| {
        let next = match left_behind(kernel) {
            Some(turn) => turn + 1,
            None if are_wanted(kernel) => claim(kernel) + 1,
            None => 0,
        };
        let [due, taken] = signals::collect(kernel);
        let turn = next.saturating_sub(1);
        [next, due, taken, reintegration::next_at_turn(kernel, turn)]
    });
    kernel.orders.take(order);
    if let Some(turn) = next.checked_sub(1) {
        release(kernel);
        begin(kernel, turn);
    } else {
        kernel.turns.calls = kernel.turns.lengths.next();
    }
    take_signals(kernel, due, taken);
}

/// All replicas: does something with the books, in a turn.
pub(crate) fn with_books<R>(
    kernel: &mut Kernel,
    work: impl FnOnce(&mut Kernel, &mut Books) -> R,
) -> R {
    let borrowed = kernel.turns.held.is_none();
    if borrowed {
        // The slice of a copy has perhaps missed turns.
        newcomer::give_up(kernel);
        announce(kernel);
        take(kernel);
    }
    let books = kernel.slice.books();
    let result = work(kernel, books);
    if borrowed && !kernel.turns.member {
        release(kernel);
        kernel.report.sharing.store(0, Ordering::SeqCst);
    }
    result
}

/// In a turn: has any process of those that share memory a file mapped shared?
pub(crate) fn have_files(kernel: &Kernel) -> bool {
    assert!(kernel.turns.has_turn(), "the books are read in turns");
    kernel.slice.books().pieces.has_files()
}

/// All replicas: from here on the program runs in turns only.
pub(crate) fn join(kernel: &mut Kernel) {
    if kernel.turns.member {
        return;
    }
    newcomer::give_up(kernel);
    announce(kernel);
    if kernel.turns.held.is_none() {
        take(kernel);
    }
    kernel.turns.member = true;
    kernel.threads.shares = true;
    schedule::tell_held_up(kernel);
    settle_in(own_place(kernel));
}

/// Before a turn: the supervisor does not end this process at any other place than a point of its
/// trace from here on, unless it is about to do so.
pub(crate) fn announce(kernel: &Kernel) {
    let slice = kernel.slice.index() + 1;
    let own = low32(slice as u64);
    kernel.report.sharing.store(own, Ordering::SeqCst);
    loop {
        let bell = kernel.control.bell.load(Ordering::Acquire);
        if kernel.control.doomed.load(Ordering::SeqCst) == 0 {
            return;
        }
        sys::futex_wait(kernel.control.bell.as_ptr(), bell, LOOK_NS);
    }
}

/// All replicas: the program shares nothing any more.
pub(crate) fn leave(kernel: &mut Kernel) {
    if kernel.turns.member {
        kernel.turns.member = false;
        kernel.threads.shares = false;
        schedule::tell_held_up(kernel);
        release(kernel);
        kernel.report.sharing.store(0, Ordering::SeqCst);
    }
}

/// Without the turn, if the program runs in turns: `work` may take for ever.
pub(crate) fn outside<R>(kernel: &mut Kernel, work: impl FnOnce(&mut Kernel) -> R) -> R {
    if !kernel.turns.member {
        return work(kernel);
    }
    release(kernel);
    let result = work(kernel);
    take(kernel);
    result
}

/// In a turn: another group's threads were woken, so its replica in this slice must look.
pub(crate) fn rouse(kernel: &Kernel, group: u32) {
    let place = &gate(kernel).places[group as usize % rcoe_linux_abi::GROUPS];
    place.woken.store(1, Ordering::SeqCst);
    let called = place.idle.compare_exchange(
        Place::POLLS,
        Place::CALLED,
        Ordering::SeqCst,
        Ordering::SeqCst,
    );
    match called {
        Ok(_) => requests::call(),
        Err(Place::SLEEPS) => sys::futex_wake(place.woken.as_ptr()),
        Err(_) => {}
    }
}

/// Primary, outside a turn: waits, by `poll` or, with nothing to poll for, until another process
/// wakes a thread. Returns whether a signal ended the wait.
pub(crate) fn idle(
    kernel: &Kernel,
    timeout: Option<u64>,
    poll: Option<impl FnOnce() -> bool>,
) -> bool {
    let place = own_place(kernel);
    let manner = match poll {
        Some(_) => Place::POLLS,
        None => Place::SLEEPS,
    };
    place.idle.store(manner, Ordering::SeqCst);
    let interrupted = match poll {
        _ if place.woken.load(Ordering::SeqCst) != 0 => false,
        Some(poll) => poll(),
        None => sleep(place, timeout),
    };
    place.idle.store(Place::NOT_IDLE, Ordering::SeqCst);
    interrupted && place.woken.load(Ordering::SeqCst) == 0
}

/// Sleeps until the place is called; returns whether a signal came first.
fn sleep(place: &Place, timeout: Option<u64>) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let time = timeout.map(|time| [time / SECOND, time % SECOND]);
    let time = time.as_ref().map_or(0, |time| time.as_ptr() as u64);
    let args = [place.woken.as_ptr() as u64, 0, 0, time, 0, 0];
    // SAFETY: a futex wait on a word that is mapped for good, with a timespec or none.
    let result = unsafe { interruptible_call(sys::FUTEX, &args) };
    is_away(result)
}
