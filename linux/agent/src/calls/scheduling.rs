//! How the program is scheduled, as it sees it: affinity, policy, priority, clocks of CPU time.
//!
//! Where replicas run is the supervisor's business. The mask that a thread sets is kept and shown,
//! and does nothing. Threads are the agent's own, so the host does not know their ids: what
//! concerns one of them is asked of the replica's only kernel thread.
//!
//! Turns on the CPU are as short as the agent wants them, and told of as long as the program does.
//!
//! Not covered: deadlines, of which the host would grant one to each replica; changing the
//! scheduling of other processes, which are not found (ESRCH) where the kernel would do it, and of
//! groups and users; and CPU time of a single thread, which reads as that of all.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EINVAL, ESRCH};
use linux_raw_sys::general::{
    PRIO_PGRP, PRIO_PROCESS, PRIO_USER, SCHED_BATCH, SCHED_DEADLINE, SCHED_EXT,
    SCHED_FLAG_KEEP_PARAMS, SCHED_FLAG_KEEP_POLICY, SCHED_FLAG_RESET_ON_FORK, SCHED_IDLE,
    SCHED_NORMAL, SCHED_RESET_ON_FORK,
};
use rcoe_linux_syscalls::Special;

use crate::calls::memory::local;
use crate::calls::{Call, io, processes, refuse};
use crate::convert;
use crate::kernel::Kernel;
use crate::lifetime::{PerProcess, Who};
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sched::threads::MASK_WORDS;
use crate::sys::{self, Attributes};

/// What the host does not keep for the program as it means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// How long its turns on a CPU are to be, in nanoseconds; 0 if it has not said so.
    turn_ns: u64,
    /// Nothing of it is for children (`SCHED_FLAG_RESET_ON_FORK`).
    resets: bool,
}

impl Scheduling {
    /// All is as the host says.
    pub(crate) const OF_HOST: Self = Self {
        turn_ns: 0,
        resets: false,
    };

    /// What a copy of this replica needs to be given again, as the host takes it for a child.
    pub(crate) fn before_copy(self) -> Option<Attributes> {
        if self.resets { Attributes::of(0) } else { None }
    }
}

impl PerProcess for Scheduling {
    fn in_child(&mut self, _who: &Who) {
        if self.resets {
            *self = Self::OF_HOST;
        }
    }
}

/// Tells other processes.
pub(super) fn publish(kernel: &Kernel) {
    let turn_ns = kernel.scheduling.turn_ns;
    kernel.report.turn_ns.store(turn_ns, Ordering::Relaxed);
}

/// CPUs, one bit each.
type Mask = [u64; MASK_WORDS];

/// The thread that argument `index` names; `None` if it is not one of this process.
fn named(kernel: &Kernel, call: &Call, index: usize) -> Option<usize> {
    match convert::low32(call.arg(index)) {
        0 => Some(kernel.threads.current_slot()),
        id => kernel.threads.find(id),
    }
}

/// A question about the program itself is for each replica, one about another process for the
/// primary. `index`: the argument that tells.
pub(super) fn ask(kernel: &mut Kernel, call: &Call, index: usize) -> i64 {
    match named(kernel, call, index) {
        Some(_) => local(call.nr, of_self(call, index).raw),
        None => io::input(kernel, call),
    }
}

/// `sched_setparam` and `sched_setscheduler`.
pub(super) fn change_policy(kernel: &mut Kernel, call: &Call) -> i64 {
    if named(kernel, call, 0).is_none() {
        return match judge(call) {
            NOBODY => refuse_policy(kernel, call),
            error => error,
        };
    }
    let result = local(call.nr, of_self(call, 0).raw);
    note_reset(kernel);
    result
}

/// The same of another process, with arguments that can be read.
fn refuse_policy(kernel: &mut Kernel, call: &Call) -> i64 {
    let (policy, place) = match call.what.special {
        Special::SchedSetscheduler => (Some(convert::low32(call.arg(1))), 2),
        _ => (None, 1),
    };
    match guest::read(call.arg(place)) {
        Ok(priority) => refuse_other(kernel, call, Some(Asked { policy, priority })),
        Err(Fault) => Fault::RESULT,
    }
}

/// There is no such process.
const NOBODY: i64 = -(ESRCH as i64);

/// A priority, by a policy or by the one that a process has.
#[derive(Clone, Copy, Debug)]
struct Asked {
    policy: Option<u32>,
    priority: u32,
}

impl Asked {
    /// Does the host know that policy, and has it that priority?
    fn is_valid(self, current: impl FnOnce() -> Option<u32>) -> bool {
        let policy = match self.policy {
            Some(policy) => Some(policy & !SCHED_RESET_ON_FORK),
            None => current(),
        };
        // Who asks so tells of no deadline.
        let policy = policy.filter(|policy| *policy != SCHED_DEADLINE);
        let known = policy.and_then(sys::priorities);
        known.is_some_and(|known| known.contains(&self.priority.into()))
    }
}

/// Another process shall be scheduled in another way. All replicas get what the primary finds that
/// the kernel says, and that there is none where it would do it.
fn refuse_other(kernel: &mut Kernel, call: &Call, asked: Option<Asked>) -> i64 {
    let index = usize::from(call.what.special == Special::Setpriority);
    let pid = convert::low32(call.arg(index));
    sys::error(convert::low32(transfer::agree(kernel, || {
        errno_of_other(pid, asked).into()
    })))
}

/// Primary: the error. Whether it would be allowed is asked in a way that changes nothing.
fn errno_of_other(pid: u32, asked: Option<Asked>) -> u32 {
    let process = processes::replica_of(pid).unwrap_or(pid);
    let allowed = sys::may_schedule(process);
    if allowed == Err(ESRCH) {
        return ESRCH;
    }
    let current = || Attributes::of(process).map(|it| it.policy);
    match asked {
        Some(asked) if !asked.is_valid(current) => EINVAL,
        _ => allowed.err().unwrap_or(ESRCH),
    }
}

/// What the host keeps for whoever begins is found out as soon as it may have changed.
fn note_reset(kernel: &mut Kernel) {
    let own = Attributes::of(0);
    let reset = u64::from(SCHED_FLAG_RESET_ON_FORK);
    kernel.scheduling.resets = own.is_some_and(|own| own.flags & reset != 0);
}

/// What the kernel says of `sched_setattr` before it looks at who may do that: ESRCH if there is
/// nothing else to be said. No process of any host has the number that it is asked for.
pub(super) fn judge(call: &Call) -> i64 {
    let mut raw = call.raw;
    if convert::low32(raw[0]).cast_signed() >= 0 {
        raw[0] = u64::from(i32::MAX.cast_unsigned());
    }
    local(call.nr, raw)
}

/// `struct sched_attr` as `sched_setattr` takes it, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish([u64; 7]);

impl Wish {
    /// Without what came with Linux 5.3.
    const FIRST_BYTES: u32 = 48;

    /// What the kernel has found no fault with.
    fn read(address: u64) -> Result<Self, Fault> {
        let first = guest::read::<[u64; 6]>(address)?;
        let mut words = [0; 7];
        words[..6].copy_from_slice(&first);
        let size = if convert::low32(first[0]) > Self::FIRST_BYTES {
            words[6] = guest::read(address + u64::from(Self::FIRST_BYTES))?;
            Self::FIRST_BYTES + 8
        } else {
            Self::FIRST_BYTES
        };
        words[0] = first[0] >> 32 << 32 | u64::from(size);
        Ok(Self(words))
    }

    /// The policy that results where this one is kept.
    fn policy(&self, current: u32) -> u32 {
        if self.has(SCHED_FLAG_KEEP_POLICY) {
            current
        } else {
            convert::low32(self.0[0] >> 32)
        }
    }

    fn has(&self, flag: u32) -> bool {
        self.0[1] & u64::from(flag) != 0
    }

    /// Asks for other turns; how long the wished ones are.
    const fn exchange_turn(&mut self, turn_ns: u64) -> u64 {
        core::mem::replace(&mut self.0[3], turn_ns)
    }
}

/// Is this a policy whose parameters are those of turns? Of who is idle they stay as they were.
const fn sets_turns(policy: u32) -> bool {
    matches!(policy, SCHED_NORMAL | SCHED_BATCH | SCHED_EXT)
}

/// Is this a policy by which processes share a CPU in turns?
const fn is_fair(policy: u32) -> bool {
    matches!(policy, SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE | SCHED_EXT)
}

/// The turns that the kernel grants to who wishes such.
fn granted(turn_ns: u64) -> u64 {
    const LONGEST_NS: u64 = 100_000_000;
    if turn_ns == 0 {
        return 0;
    }
    turn_ns.clamp(sys::TURN_NS, LONGEST_NS)
}

/// `sched_setattr`, of the program itself.
pub(super) fn set_attributes(kernel: &mut Kernel, call: &Call) -> i64 {
    let judged = judge(call);
    if judged != NOBODY {
        return judged;
    }
    let Ok(mut wish) = Wish::read(call.arg(1)) else {
        return Fault::RESULT;
    };
    if named(kernel, call, 0).is_none() {
        return refuse_other(kernel, call, None);
    }
    let Some(own) = Attributes::of(0) else {
        return refuse(kernel, call);
    };
    let policy = wish.policy(own.policy);
    // Who may not have one is told so by the host.
    if policy == SCHED_DEADLINE && may_schedule() {
        return refuse(kernel, call);
    }
    let keeps_turn = wish.has(SCHED_FLAG_KEEP_PARAMS) && is_fair(own.policy);
    let turn_ns = match sets_turns(policy) {
        true => wish.exchange_turn(sys::TURN_NS),
        false => 0,
    };
    let result = local(call.nr, [0, wish.0.as_ptr() as u64, 0, 0, 0, 0]);
    if result == 0 {
        if sets_turns(policy) && !keeps_turn {
            kernel.scheduling.turn_ns = granted(turn_ns);
            publish(kernel);
        }
        note_reset(kernel);
    }
    result
}

fn may_schedule() -> bool {
    const CAP_SYS_NICE: u32 = 23;
    sys::capabilities().effective & 1 << CAP_SYS_NICE != 0
}

/// `sched_getattr`.
pub(super) fn get_attributes(kernel: &mut Kernel, call: &Call) -> i64 {
    if named(kernel, call, 0).is_none() {
        return io::input(kernel, call);
    }
    let result = local(call.nr, of_self(call, 0).raw);
    let turn_ns = match (result, kernel.scheduling.turn_ns) {
        (0, 0) => {
            let supervisor = kernel.control.supervisor.load(Ordering::Relaxed);
            transfer::agree(kernel, || usual_turn(supervisor))
        }
        (0, turn_ns) => turn_ns,
        _ => return result,
    };
    tell_turn(call.arg(1), turn_ns).map_or(Fault::RESULT, |()| 0)
}

/// The turns of a process that has wished no others, as those of the supervisor are.
fn usual_turn(supervisor: u32) -> u64 {
    Attributes::of(supervisor).map_or(0, |usual| usual.runtime)
}

/// Of attributes that the host has told: the turns are these. Hosts that know of none say 0.
fn tell_turn(address: u64, turn_ns: u64) -> Result<(), Fault> {
    const PLACE: u64 = 24;
    let told = guest::read::<[u64; 6]>(address)?;
    if is_fair(convert::low32(told[0] >> 32)) && told[3] != 0 {
        guest::write(address + PLACE, &turn_ns)?;
    }
    Ok(())
}

/// Primary: how another process is scheduled, which is one of its replicas to the host if it is the
/// program's; `None` if a group or a user is asked for.
pub(super) fn of_other(kernel: &Kernel, call: &Call) -> Option<i64> {
    let index = match (call.what.special, call.arg(0)) {
        (Special::Getpriority, which) if which == u64::from(PRIO_PROCESS) => 1,
        (Special::IoprioGet, OF_PROCESS) => 1,
        (Special::Getpriority | Special::IoprioGet, _) => return None,
        _ => 0,
    };
    let pid = convert::low32(call.arg(index));
    let mut raw = call.raw;
    raw[index] = processes::replica_of(pid)?.into();
    let result = local(call.nr, raw);
    if call.what.special != Special::SchedGetattr || result != 0 {
        return Some(result);
    }
    let turn_ns = match processes::report_of(pid)?.turn_ns.load(Ordering::Relaxed) {
        0 => usual_turn(kernel.control.supervisor.load(Ordering::Relaxed)),
        turn_ns => turn_ns,
    };
    Some(tell_turn(call.arg(1), turn_ns).map_or(Fault::RESULT, |()| 0))
}

/// `getpriority`. Of a group or a user the primary asks: replicas that ask one after the other may
/// be told of what one of them has changed meanwhile.
pub(super) fn ask_priority(kernel: &mut Kernel, call: &Call) -> i64 {
    match convert::low32(call.arg(0)) {
        PRIO_PROCESS => ask(kernel, call, 1),
        _ => io::input(kernel, call),
    }
}

/// `setpriority`: each replica has the one that it would have without the others. Groups and users
/// have processes that are not this one, among them those of rcoe.
pub(super) fn change_priority(kernel: &mut Kernel, call: &Call) -> i64 {
    match convert::low32(call.arg(0)) {
        PRIO_PROCESS if named(kernel, call, 1).is_none() => refuse_other(kernel, call, None),
        PRIO_PROCESS => local(call.nr, of_self(call, 1).raw),
        PRIO_PGRP | PRIO_USER => sys::error(ESRCH),
        _ => sys::error(EINVAL),
    }
}

/// `ioprio_get`.
pub(super) fn ask_io(kernel: &mut Kernel, call: &Call) -> i64 {
    match call.arg(0) {
        OF_PROCESS => ask(kernel, call, 1),
        _ => io::input(kernel, call),
    }
}

/// `ioprio_set`: each replica has the priority that it would have without the others.
pub(super) fn change_io(kernel: &Kernel, call: &Call) -> i64 {
    match call.arg(0) {
        OF_PROCESS if named(kernel, call, 1).is_some() => local(call.nr, of_self(call, 1).raw),
        _ => NOBODY,
    }
}

/// Priorities of input and output are asked for, or set, of one process.
const OF_PROCESS: u64 = 1;

/// The same call for whoever makes it.
fn of_self(call: &Call, index: usize) -> Call {
    let mut call = *call;
    call.raw[index] = 0;
    call
}

/// The program runs on one CPU, the lowest that the thread may use.
pub(super) fn getcpu(kernel: &Kernel, call: &Call) -> i64 {
    let mask = mask(kernel, kernel.threads.current_slot());
    let word = mask.iter().position(|word| *word != 0).unwrap_or(0);
    let cpu = convert::low32(word as u64) * 64 + mask[word].trailing_zeros() % 64;
    for (pointer, value) in [(call.arg(0), cpu), (call.arg(1), 0)] {
        if pointer != 0 && guest::write(pointer, &value).is_err() {
            return Fault::RESULT;
        }
    }
    0
}

/// The mask rcoe was started with, not the replica's own core.
fn given(kernel: &Kernel) -> Mask {
    core::array::from_fn(|i| kernel.control.affinity[i].load(Ordering::Relaxed))
}

/// The mask that the thread in this slot sees.
pub(super) fn mask(kernel: &Kernel, slot: usize) -> Mask {
    let own = kernel.threads.at(slot).affinity;
    if own == [0; MASK_WORDS] {
        given(kernel)
    } else {
        own
    }
}

/// `sched_getaffinity`.
pub(super) fn get_affinity(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(slot) = named(kernel, call, 0) else {
        return io::input(kernel, call);
    };
    // The kernel gives as many words as it supports CPUs; a mask without them is too short.
    let last = given(kernel).iter().rposition(|word| *word != 0);
    let used = last.map_or(1, |last| last + 1);
    let room = convert::size(call.arg(1) / 8);
    if !call.arg(1).is_multiple_of(8) || room < used {
        return sys::error(EINVAL);
    }
    for (i, word) in mask(kernel, slot)[..used].iter().enumerate() {
        if guest::write(call.arg(2) + 8 * i as u64, word).is_err() {
            return Fault::RESULT;
        }
    }
    i64::try_from(used * 8).expect("at most 128")
}

/// `sched_setaffinity`.
pub(super) fn set_affinity(kernel: &mut Kernel, call: &Call) -> i64 {
    let mut mask = [0; MASK_WORDS];
    for (i, word) in mask.iter_mut().enumerate() {
        let bytes = call.arg(1).saturating_sub(8 * i as u64).min(8);
        let mut wanted = [0; 8];
        let wanted = &mut wanted[..convert::size(bytes)];
        if guest::copy_in(wanted, call.arg(2).wrapping_add(8 * i as u64)).is_err() {
            return Fault::RESULT;
        }
        *word = wanted
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    let Some(slot) = named(kernel, call, 0) else {
        return refuse_other(kernel, call, None);
    };
    for (word, given) in mask.iter_mut().zip(given(kernel)) {
        *word &= given;
    }
    if mask == [0; MASK_WORDS] {
        return sys::error(EINVAL);
    }
    kernel.threads.get(slot).affinity = mask;
    0
}

/// Input calls that name the program by an id, as the host would have to know them; `None` if the
/// call is right as it is.
pub(super) fn translate(kernel: &Kernel, call: &Call) -> Option<Call> {
    match call.what.special {
        Special::SchedRrGetInterval => named(kernel, call, 0).map(|_| of_self(call, 0)),
        Special::CpuClock => {
            let clock = own_clock(kernel, convert::low32(call.arg(0)).cast_signed())?;
            let mut call = *call;
            call.raw[0] = clock;
            Some(call)
        }
        _ => None,
    }
}

/// The clock of the caller's own CPU time, if this one is that of the program or of its threads.
fn own_clock(kernel: &Kernel, clock: i32) -> Option<u64> {
    /// The clock is an open file.
    const OF_FILE: i32 = 3;
    const OF_THREAD: i32 = 4;
    const PROCESS_TIME: u64 = 2;
    const THREAD_TIME: u64 = 3;
    if clock >= 0 || clock & 3 == OF_FILE {
        return None;
    }
    let id = (!(clock >> 3)).cast_unsigned();
    if clock & OF_THREAD != 0 {
        let own = id == 0 || kernel.threads.find(id).is_some();
        return own.then_some(THREAD_TIME);
    }
    (id == 0 || id == kernel.processes.pid).then_some(PROCESS_TIME)
}

#[cfg(test)]
mod tests {
    use linux_raw_sys::general::SCHED_FIFO;

    use super::*;

    const SIZE: u32 = Wish::FIRST_BYTES;

    fn first_word(size: u32, policy: u32) -> u64 {
        u64::from(policy) << 32 | u64::from(size)
    }

    #[test]
    fn attributes_are_read_as_far_as_they_say() {
        let words = [first_word(0, SCHED_BATCH), 0, 5, 6, 0, 0, 99];
        let read = |words: &[u64; 7]| Wish::read(words.as_ptr() as u64).expect("readable");
        let short = read(&words);
        assert_eq!(short.0, [first_word(SIZE, SCHED_BATCH), 0, 5, 6, 0, 0, 0]);
        let mut words = words;
        words[0] = first_word(SIZE + 8, SCHED_BATCH);
        assert_eq!(read(&words).0, words);
    }

    #[test]
    fn a_policy_may_be_kept() {
        let mut wish = Wish([first_word(SIZE, SCHED_BATCH), 0, 0, 7, 0, 0, 0]);
        assert_eq!(wish.policy(SCHED_IDLE), SCHED_BATCH);
        wish.0[1] = u64::from(SCHED_FLAG_KEEP_POLICY);
        assert_eq!(wish.policy(SCHED_IDLE), SCHED_IDLE);
        assert_eq!(wish.exchange_turn(9), 7);
        assert_eq!(wish.0[3], 9);
    }

    #[test]
    fn a_priority_is_one_of_its_policy() {
        let is_valid = |policy, priority| {
            let policy = Some(policy);
            Asked { policy, priority }.is_valid(|| None)
        };
        assert!(is_valid(SCHED_NORMAL, 0) && is_valid(SCHED_IDLE | SCHED_RESET_ON_FORK, 0));
        assert!(is_valid(SCHED_FIFO, 1) && is_valid(SCHED_FIFO, 99));
        assert!(!is_valid(SCHED_NORMAL, 1) && !is_valid(SCHED_FIFO, 0));
        assert!(!is_valid(SCHED_FIFO, 100) && !is_valid(99, 0) && !is_valid(SCHED_DEADLINE, 0));
        let kept = |priority| Asked {
            policy: None,
            priority,
        };
        assert!(kept(5).is_valid(|| Some(SCHED_FIFO)) && !kept(5).is_valid(|| None));
    }

    #[test]
    fn who_is_not_there_is_not_found_and_the_own_process_can_be_scheduled() {
        let nobody = i32::MAX.cast_unsigned();
        assert_eq!(sys::may_schedule(nobody), Err(ESRCH));
        let before = Attributes::of(0).map(|it| (it.policy, it.runtime));
        assert_eq!(sys::may_schedule(sys::getpid()), Ok(()));
        assert_eq!(Attributes::of(0).map(|it| (it.policy, it.runtime)), before);
    }

    #[test]
    fn turns_are_granted_within_bounds() {
        let grants = [0, 1, 200_000, u64::MAX].map(granted);
        assert_eq!(grants, [0, sys::TURN_NS, 200_000, 100_000_000]);
    }

    #[test]
    fn a_wish_that_is_not_for_children_ends_with_the_parent() {
        let own = Scheduling {
            turn_ns: 5,
            resets: true,
        };
        assert!(own.before_copy().is_some());
        assert!(Scheduling::OF_HOST.before_copy().is_none());
    }
}
