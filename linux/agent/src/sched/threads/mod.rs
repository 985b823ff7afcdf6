//! The program's threads: green threads of the agent, all on the one kernel thread of a replica.
//!
//! Intuition: the agent is a little uniprocessor kernel without a stack for each thread. A system
//! call enters on the one agent stack; a thread that cannot go on is a saved register frame and a
//! note of what it waits for, and its call is made again, or answered, when that has come. So
//! nothing of the agent is ever suspended in the middle, and a thread costs a slot of this table.
//!
//! A thread gives way only at points of the trace: when it has to wait, yields, ends, or has made
//! as many calls as its slice holds. The lengths of slices come from a seed that all replicas
//! share, so they interleave alike, while runs with different seeds differ.
//!
//! Contract: everything here is a function of the trace and of what the primary has published; no
//! clock, no address that differs, no number of the host.
//!
//! Not covered: a thread that spins in user space for another one keeps it waiting for ever, for
//! there is no preemption. The supervisor notices that and tells the user.

mod waiting;

use crate::arch::context;
use rcoe_linux_abi::Control;

use crate::arch::entry::TrapFrame;
use crate::calls::targets::Own;
use crate::lifetime::{PerProcess, PerProgram, Program, Who};

pub(crate) use waiting::{Cause, NEVER, Next, Wait};

/// Most threads of a program at a time.
pub(crate) const MAX_THREADS: usize = 1024;
/// Words of a set of threads.
pub(crate) const SET_WORDS: usize = MAX_THREADS / 64;
/// First thread id that is not a process id: above all that Linux gives to processes.
const FIRST_TID: u32 = 1 << 24;
/// Thread ids of each group: as locks that processes share name threads by them, no two processes
/// have the same. All stay below the bits that futex words keep for other purposes.
const GROUP_TIDS: u32 = 1 << 22;
const _: () = assert!(FIRST_TID as usize + rcoe_linux_abi::GROUPS * GROUP_TIDS as usize <= 1 << 30);
/// Slices between two looks at what others wait for outside, while there is work to do.
const LOOK_EVERY: u32 = 8;
/// Words of a set of CPUs.
pub(crate) const MASK_WORDS: usize = 16;
/// The first thread of the program.
pub(crate) const LEADER: usize = 0;
/// No thread.
pub(crate) const NOBODY: usize = usize::MAX;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// The slot is free.
    Vacant,
    /// It has the processor.
    Running,
    /// It stands in the queue.
    Ready,
    /// It waits; see [`Thread::wait`].
    Waiting,
}

/// One thread of the program. Zero bytes are a vacant slot, so the table costs no space in the
/// image.
pub(crate) struct Thread {
    state: State,
    /// Its registers while it has not got the processor, but for the extended state.
    pub(crate) frame: TrapFrame,
    /// Bases of the segments fs and gs.
    pub(crate) bases: [u64; 2],
    /// All registers are to be loaded when it goes on, not only those a call preserves.
    pub(crate) full: bool,
    /// The call it is in: number and arguments.
    pub(crate) call: (u64, [u64; 6]),
    pub(crate) wait: Wait,
    /// How it goes on once it is ready.
    pub(crate) next: Next,
    /// What of its signals is its own, while it has not got the processor.
    pub(crate) signals: Own,
    pub(crate) tid: u32,
    /// Where to write 0 and wake a waiter when it ends, or 0.
    pub(crate) clear_tid: u64,
    /// Head of its list of robust futexes, or 0.
    pub(crate) robust: u64,
    /// Its name; of the leader the host keeps it.
    pub(crate) name: [u8; 16],
    /// The CPUs it has asked for, or none.
    pub(crate) affinity: [u64; MASK_WORDS],
}

impl Thread {
    pub(crate) const VACANT: Self = Self {
        state: State::Vacant,
        frame: TrapFrame::ZERO,
        bases: [0; 2],
        full: false,
        call: (0, [0; 6]),
        wait: Wait::NOTHING,
        next: Next::Return(0),
        signals: Own::NONE,
        tid: 0,
        clear_tid: 0,
        robust: 0,
        name: [0; 16],
        affinity: [0; MASK_WORDS],
    };

    pub(crate) fn is_live(&self) -> bool {
        self.state != State::Vacant
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }
}

/// All threads, and whose turn it is.
pub(crate) struct Threads {
    slots: &'static mut [Thread; MAX_THREADS],
    /// Slots that have ever been used: the others need no look.
    used: usize,
    live: usize,
    current: usize,
    /// Whose registers the processor holds.
    pub(crate) loaded: usize,
    queue: Queue,
    /// Thread ids of this process begin here, and the next one is so much higher.
    first_tid: u32,
    next_tid: u32,
    /// Calls left in the present slice.
    slice: u32,
    slices: Slices,
    /// Slices until the next look outside.
    until_look: u32,
    /// Threads that wait until some time at most.
    timed: u64,
    /// Threads that wait for something that only the outside tells, a time included.
    outside: u64,
    /// Waits begun, to wake the longest waiting first.
    waits: u64,
    /// Status of a leader that has ended before its threads.
    pub(crate) leader_status: Option<u8>,
    /// Other processes wait while this one runs, so its calls must not block.
    pub(crate) shares: bool,
}

impl Threads {
    /// A program of one thread, which is running, with this id.
    pub(crate) fn new(slots: &'static mut [Thread; MAX_THREADS], tid: u32, seed: u64) -> Self {
        let mut slices = Slices(seed);
        slots[LEADER].state = State::Running;
        slots[LEADER].tid = tid;
        Self {
            slots,
            used: 1,
            live: 1,
            current: LEADER,
            loaded: LEADER,
            queue: Queue::new(),
            first_tid: FIRST_TID,
            next_tid: 0,
            slice: slices.next(),
            slices,
            until_look: 0,
            timed: 0,
            outside: 0,
            waits: 0,
            leader_status: None,
            shares: false,
        }
    }

    /// With the table of this replica and the seed of the run.
    pub(crate) fn of_replica(control: &Control) -> Self {
        use core::sync::atomic::Ordering::Relaxed;
        let tid = control.supervisor.load(Relaxed);
        Self::new(context::table(), tid, control.seed.load(Relaxed))
    }

    /// The running thread is the only one from now on, and the leader of a process with this id.
    fn become_only(&mut self, tid: u32) {
        if self.current != LEADER {
            crate::sys::set_name(&self.current().name);
        }
        let affinity = self.current().affinity;
        for slot in &mut self.slots[..self.used] {
            *slot = Thread::VACANT;
        }
        self.slots[LEADER] = Thread {
            state: State::Running,
            tid,
            affinity,
            ..Thread::VACANT
        };
        let Self {
            slots: _,
            used,
            live,
            current,
            loaded,
            queue,
            // Numbers go on, and so do the lengths of slices.
            first_tid: _,
            next_tid: _,
            slice: _,
            slices: _,
            until_look: _,
            timed,
            outside,
            waits: _,
            leader_status,
            // That follows from what is mapped.
            shares: _,
        } = self;
        (*used, *live) = (1, 1);
        (*current, *loaded) = (LEADER, LEADER);
        *queue = Queue::new();
        (*timed, *outside) = (0, 0);
        *leader_status = None;
    }

    /// Is there more than one thread?
    #[inline]
    pub(crate) fn many(&self) -> bool {
        self.live > 1
    }

    /// Are there other threads, or processes that wait for this one's turn to end?
    #[inline]
    pub(crate) fn others_wait(&self) -> bool {
        self.many() || self.shares
    }

    /// Is the running thread in no call that it was parked in?
    pub(crate) fn are_calm(&self) -> bool {
        self.is_running() && !self.current().wait.parked
    }

    /// Must the present call not hold up the replica: are there other threads, or processes that
    /// wait for this one's turn to end, or was it parked before?
    pub(crate) fn must_not_block(&self) -> bool {
        self.others_wait() || self.current().wait.parked
    }

    /// Has the thread that entered the agent not ended meanwhile?
    pub(crate) fn is_running(&self) -> bool {
        self.current != NOBODY
    }

    /// The slot of the running thread.
    pub(crate) fn current_slot(&self) -> usize {
        self.current
    }

    /// The running thread.
    pub(crate) fn current(&self) -> &Thread {
        &self.slots[self.current]
    }

    /// The running thread, to change it.
    pub(crate) fn current_mut(&mut self) -> &mut Thread {
        &mut self.slots[self.current]
    }

    /// A thread by its slot.
    pub(crate) fn get(&mut self, slot: usize) -> &mut Thread {
        &mut self.slots[slot]
    }

    /// A thread by its slot, to look at.
    pub(crate) fn at(&self, slot: usize) -> &Thread {
        &self.slots[slot]
    }

    /// Slots below this have been used; none from here on.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Slots of all threads, in order.
    pub(crate) fn live_slots(&self) -> impl Iterator<Item = usize> {
        let slots = self.slots[..self.used].iter().enumerate();
        slots.filter(|(_, it)| it.is_live()).map(|(slot, _)| slot)
    }

    /// Slot of the thread with this id.
    pub(crate) fn find(&self, tid: u32) -> Option<usize> {
        self.slots[..self.used]
            .iter()
            .position(|thread| thread.is_live() && thread.tid == tid)
    }

    /// A slot for a new thread, ready to run; the caller fills it. `None` if all are taken.
    pub(crate) fn spawn(&mut self) -> Option<&mut Thread> {
        let slot = self.slots.iter().position(|thread| !thread.is_live())?;
        self.used = self.used.max(slot + 1);
        self.live += 1;
        let maker = self.slots.get(self.current);
        let affinity = maker.map_or([0; MASK_WORDS], |maker| maker.affinity);
        let tid = self.first_tid + self.next_tid;
        // Enough ids that none comes back while a thread lives.
        self.next_tid = (self.next_tid + 1) % GROUP_TIDS;
        self.slots[slot] = Thread {
            state: State::Ready,
            tid,
            affinity,
            ..Thread::VACANT
        };
        self.queue.push(slot);
        Some(&mut self.slots[slot])
    }

    /// Slot of the thread that [`Self::spawn`] made last.
    pub(crate) fn newest(&self) -> usize {
        self.queue.last().expect("a new thread stands in the queue")
    }

    /// The running thread ends.
    pub(crate) fn vacate(&mut self) {
        self.slots[self.current].state = State::Vacant;
        self.live -= 1;
        self.current = NOBODY;
        self.loaded = NOBODY;
    }

    /// Does nobody wait for the end of a slice or of a turn?
    #[inline]
    pub(crate) fn runs_alone(&self) -> bool {
        self.queue.len as u64 | self.outside | u64::from(self.shares) == 0
    }

    /// Counts a call of the running thread: is its slice over, with another one ready, or one that
    /// a look outside may make so?
    #[inline]
    pub(crate) fn count_call(&mut self) -> bool {
        if self.queue.is_empty() && self.outside == 0 {
            return false;
        }
        self.slice = self.slice.saturating_sub(1);
        self.slice == 0
    }

    /// Counts a call that cannot end the slice; says no, and counts nothing, where it would.
    #[inline]
    pub(crate) fn count_reading(&mut self) -> bool {
        if self.queue.is_empty() && self.outside == 0 {
            return true;
        }
        if self.slice <= 1 {
            return false;
        }
        self.slice -= 1;
        true
    }

    /// The running thread gives up the rest of its slice.
    pub(crate) fn give_way(&mut self) {
        self.slice = 0;
    }

    /// The running thread goes to the end of the queue.
    pub(crate) fn step_back(&mut self, next: Next) {
        let slot = self.current;
        self.slots[slot].next = next;
        self.slots[slot].state = State::Ready;
        self.queue.push(slot);
    }

    /// Is there a thread that can run?
    pub(crate) fn someone_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next thread in turn gets the processor and a fresh slice; returns its slot.
    ///
    /// # Panics
    /// If nobody is ready.
    pub(crate) fn dispatch(&mut self) -> usize {
        let slot = self.queue.pop().expect("someone is ready");
        self.slots[slot].state = State::Running;
        self.current = slot;
        self.slice = self.slices.next();
        self.until_look = self.until_look.saturating_sub(1);
        slot
    }

    /// Is it time to look outside, though there is work to do?
    pub(crate) fn look_is_due(&mut self) -> bool {
        if self.until_look > 0 {
            return false;
        }
        self.until_look = LOOK_EVERY;
        true
    }
}

impl PerProcess for Threads {
    /// The thread that forked is alone, and thread ids are those of the new group.
    fn in_child(&mut self, who: &Who) {
        self.become_only(who.pid);
        let group = crate::convert::low32(who.group as u64);
        self.first_tid = FIRST_TID + group * GROUP_TIDS;
        self.next_tid = 0;
        self.shares = false;
    }
}

impl PerProgram for Threads {
    /// The thread that called `execve` is alone.
    fn in_program(&mut self, program: &Program) {
        self.become_only(program.pid);
    }
}

/// Threads that can run, in turn.
struct Queue {
    slots: [u16; MAX_THREADS],
    first: usize,
    len: usize,
}

impl Queue {
    const fn new() -> Self {
        Self {
            slots: [0; MAX_THREADS],
            first: 0,
            len: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, slot: usize) {
        assert!(self.len < MAX_THREADS, "each thread stands here once");
        let at = (self.first + self.len) % MAX_THREADS;
        self.slots[at] = u16::try_from(slot).expect("slots are few");
        self.len += 1;
    }

    fn pop(&mut self) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let slot = self.slots[self.first];
        self.first = (self.first + 1) % MAX_THREADS;
        self.len -= 1;
        Some(usize::from(slot))
    }

    fn last(&self) -> Option<usize> {
        let at = (self.first + self.len.checked_sub(1)?) % MAX_THREADS;
        Some(usize::from(self.slots[at]))
    }
}

/// Lengths of slices: a sequence that looks random and follows from its seed (splitmix64).
pub(crate) struct Slices(u64);

impl Slices {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Calls in the next slice. Short and long ones are about equally likely, so that races of
    /// few and of many calls both come out in different ways.
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let magnitude = word % 8;
        1 + crate::convert::low32(word >> 32) % (1 << magnitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn threads(seed: u64) -> Threads {
        let slots: Vec<Thread> = (0..MAX_THREADS).map(|_| Thread::VACANT).collect();
        let slots: Box<[Thread; MAX_THREADS]> =
            slots.into_boxed_slice().try_into().ok().expect("as many");
        Threads::new(Box::leak(slots), 77, seed)
    }

    #[test]
    fn threads_take_turns() {
        let mut all = threads(1);
        assert!(!all.many());
        for _ in 0..3 {
            all.spawn().expect("room");
        }
        assert!(all.many());
        all.step_back(Next::Return(5));
        let order: Vec<usize> = (0..4).map(|_| all.dispatch()).collect();
        assert_eq!(order, [1, 2, 3, 0]);
        assert_eq!(all.current().next, Next::Return(5));
    }

    #[test]
    fn a_slot_is_used_again_but_an_id_is_not() {
        let mut all = threads(1);
        let first = all.spawn().expect("room").tid;
        all.step_back(Next::Return(0));
        all.dispatch();
        all.vacate();
        let second = all.spawn().expect("room").tid;
        assert_ne!(first, second);
        assert_eq!(all.find(first), None);
        assert_eq!(all.find(second), Some(1));
        assert_eq!(all.find(77), Some(LEADER));
    }

    #[test]
    fn there_is_an_end_to_threads() {
        let mut all = threads(1);
        let made = (0..2 * MAX_THREADS)
            .take_while(|_| all.spawn().is_some())
            .count();
        assert_eq!(made, MAX_THREADS - 1);
    }

    #[test]
    fn slices_follow_from_the_seed() {
        let lengths = |seed| {
            let mut slices = Slices(seed);
            (0..200).map(|_| slices.next()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(7), lengths(7));
        assert_ne!(lengths(7), lengths(8));
        let some = lengths(9);
        assert!(some.iter().all(|len| (1..=128).contains(len)));
        assert!(some.contains(&1) && some.iter().any(|len| *len > 50));
    }

    #[test]
    fn nobody_gives_way_when_alone() {
        let mut all = threads(3);
        assert!((0..1000).all(|_| !all.count_call()));
        all.spawn().expect("room");
        assert!((0..129).any(|_| all.count_call()));
    }

    #[test]
    fn who_waits_for_the_outside_is_looked_after() {
        for (deadline, looked_after) in [(NEVER, false), (5, true)] {
            let mut all = threads(3);
            all.spawn().expect("room");
            all.step_back(Next::Return(0));
            all.dispatch();
            all.park_at(Cause::Futex, 64, u32::MAX, deadline);
            all.dispatch();
            assert_eq!((0..129).any(|_| all.count_call()), looked_after);
            all.expire(5);
            assert_eq!(all.someone_ready(), looked_after);
        }
    }
}
