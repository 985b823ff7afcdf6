//! Futexes: all within the agent, since all threads of a program are.
//!
//! A futex is its address, or its place in memory that processes share ([`futexes`]). Only a wait
//! with a timeout asks the outside, namely what time it is.
//!
//! Not covered: a futex waited for as private in one place and as shared in another, and condition
//! variables with priority inheritance (`FUTEX_WAIT_REQUEUE_PI`),
//! which the C libraries no longer use.

use linux_raw_sys::errno::{EAGAIN, EDEADLK, EINVAL, ENOMEM, EPERM, ESRCH, ETIMEDOUT};
use linux_raw_sys::general::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_OWNER_DIED,
    FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_TID_MASK, FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI,
    FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAITERS, FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP,
};

use crate::calls::shared::futexes;
use crate::calls::{Call, PARKED, refuse};
use crate::sched::timeouts::{self, Clock};
use rcoe_linux_abi::arena::WaiterKind;

use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sched::threads::{Cause, NEVER};
use crate::sys;

/// `futex`.
pub(super) fn futex(kernel: &mut Kernel, call: &Call) -> i64 {
    let operation = low32(call.arg(1));
    let address = call.arg(0);
    if !address.is_multiple_of(4) {
        return sys::error(EINVAL);
    }
    let result = match operation & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) {
        FUTEX_WAIT => wait(kernel, call, u32::MAX),
        FUTEX_WAIT_BITSET => wait(kernel, call, low32(call.arg(5))),
        FUTEX_WAKE => wake_at(kernel, call, u32::MAX),
        FUTEX_WAKE_BITSET => wake_at(kernel, call, low32(call.arg(5))),
        FUTEX_REQUEUE => requeue(kernel, call, None),
        FUTEX_CMP_REQUEUE => requeue(kernel, call, Some(low32(call.arg(5)))),
        FUTEX_WAKE_OP => wake_op(kernel, call),
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => lock(kernel, call),
        FUTEX_TRYLOCK_PI => try_lock(kernel, call),
        FUTEX_UNLOCK_PI => unlock(kernel, call),
        _ => Ok(refuse(kernel, call)),
    };
    result.unwrap_or(Fault::RESULT)
}

/// What a futex is: where its waiters are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this address, among the threads of the process.
    Own(u64),
    /// At this place of the memory that processes share.
    Shared(u64),
}

impl Place {
    /// The futex whose address is in this argument.
    fn of(kernel: &Kernel, call: &Call, argument: usize) -> Self {
        if low32(call.arg(1)) & FUTEX_PRIVATE_FLAG != 0 {
            Self::Own(call.arg(argument))
        } else {
            Self::at(kernel, call.arg(argument))
        }
    }

    /// The same of one that is only looked for: of a shared one there must be memory.
    fn found(kernel: &Kernel, call: &Call, argument: usize) -> Result<Self, Fault> {
        let address = call.arg(argument);
        if low32(call.arg(1)) & FUTEX_PRIVATE_FLAG == 0 {
            word(address)?;
        } else if address >= sys::TASK_END {
            return Err(Fault);
        }
        Ok(Self::of(kernel, call, argument))
    }

    /// The futex at an address that may be shared.
    pub(super) fn at(kernel: &Kernel, address: u64) -> Self {
        match kernel.shared.key(address) {
            Some(key) => Self::Shared(key),
            None => Self::Own(address),
        }
    }
}

/// The running thread waits at a futex or for a lock.
fn park(kernel: &mut Kernel, place: Place, lock: bool, bits: u32, deadline: u64) -> i64 {
    match place {
        Place::Own(address) => {
            let cause = if lock { Cause::Lock } else { Cause::Futex };
            kernel.threads.park_at(cause, address, bits, deadline);
        }
        Place::Shared(key) => {
            let kind = if lock {
                WaiterKind::Lock
            } else {
                WaiterKind::Futex
            };
            if !futexes::park(kernel, kind, key, bits, deadline) {
                return sys::error(ENOMEM);
            }
        }
    }
    PARKED
}

/// The word at a futex.
fn word(address: u64) -> Result<u32, Fault> {
    guest::read(address)
}

fn wait(kernel: &mut Kernel, call: &Call, bits: u32) -> Result<i64, Fault> {
    if bits == 0 {
        return Ok(sys::error(EINVAL));
    }
    if word(call.arg(0))? != low32(call.arg(2)) {
        return Ok(sys::error(EAGAIN));
    }
    let deadline = match deadline(kernel, call)? {
        Ok(deadline) => deadline,
        Err(error) => return Ok(error),
    };
    let place = Place::of(kernel, call, 0);
    Ok(park(kernel, place, false, bits, deadline))
}

/// When the wait ends by itself, or the error to return at once.
fn deadline(kernel: &mut Kernel, call: &Call) -> Result<Result<u64, i64>, Fault> {
    if call.arg(3) == 0 {
        return Ok(Ok(NEVER));
    }
    let Some(time) = timeouts::timespec(call.arg(3))? else {
        return Ok(Err(sys::error(EINVAL)));
    };
    let operation = low32(call.arg(1));
    let command = operation & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    let real = operation & FUTEX_CLOCK_REALTIME != 0 || command == FUTEX_LOCK_PI;
    let clock = if real { Clock::REAL } else { Clock::MONOTONIC };
    Ok(if command == FUTEX_WAIT {
        Ok(timeouts::after(kernel, time))
    } else {
        timeouts::at(kernel, clock, time).ok_or(sys::error(ETIMEDOUT))
    })
}

fn wake_at(kernel: &mut Kernel, call: &Call, bits: u32) -> Result<i64, Fault> {
    if bits == 0 {
        return Ok(sys::error(EINVAL));
    }
    let place = Place::found(kernel, call, 0)?;
    Ok(wake(kernel, place, call.arg(2), bits))
}

pub(super) fn wake(kernel: &mut Kernel, place: Place, most: u64, bits: u32) -> i64 {
    // The kernel wakes one even if asked for none, and takes the number as signed.
    let most = if low32(most).cast_signed() < 1 {
        1
    } else {
        most
    };
    wake_most(kernel, place, most, bits).cast_signed()
}

fn wake_most(kernel: &mut Kernel, place: Place, most: u64, bits: u32) -> u64 {
    match place {
        Place::Own(address) => kernel.threads.wake_futex(address, most, bits),
        Place::Shared(key) => futexes::wake(kernel, key, most, bits),
    }
}

/// Wakes some waiters and moves others to the second futex, if the first is as expected.
fn requeue(kernel: &mut Kernel, call: &Call, expected: Option<u32>) -> Result<i64, Fault> {
    let [wakes, moves] = [call.arg(2), call.arg(3)].map(|most| low32(most).cast_signed());
    let (Ok(wakes), Ok(moves)) = (u64::try_from(wakes), u64::try_from(moves)) else {
        return Ok(sys::error(EINVAL));
    };
    let from = Place::found(kernel, call, 0)?;
    if !call.arg(4).is_multiple_of(4) {
        return Ok(sys::error(EINVAL));
    }
    let to = Place::found(kernel, call, 4)?;
    if let Some(expected) = expected
        && word(call.arg(0))? != expected
    {
        return Ok(sys::error(EAGAIN));
    }
    let woken = wake_most(kernel, from, wakes, u32::MAX);
    let moved = match (from, to) {
        (Place::Own(from), Place::Own(to)) => kernel.threads.move_waiters(from, to, moves),
        (Place::Shared(from), Place::Shared(to)) => futexes::requeue(kernel, from, to, moves),
        // They look again at what they wait for, which every waiter must be ready to do.
        _ => wake_most(kernel, from, moves, u32::MAX),
    };
    Ok((woken + moved).cast_signed())
}

/// Changes the second futex, wakes waiters of the first, and of the second if its old value was
/// as asked for.
fn wake_op(kernel: &mut Kernel, call: &Call) -> Result<i64, Fault> {
    let (second, code) = (call.arg(4), low32(call.arg(5)));
    let first = Place::found(kernel, call, 0)?;
    if !second.is_multiple_of(4) {
        return Ok(sys::error(EINVAL));
    }
    let other = Place::found(kernel, call, 4)?;
    let old = word(second)?;
    let (Some(new), Some(due)) = (changed(code, old), compared(code, old)) else {
        return Ok(sys::error(linux_raw_sys::errno::ENOSYS));
    };
    guest::write(second, &new)?;
    let mut woken = wake(kernel, first, call.arg(2), u32::MAX);
    if due {
        woken += wake(kernel, other, call.arg(3), u32::MAX);
    }
    Ok(woken)
}

/// A 12-bit signed field of the code.
const fn field(code: u32, shift: u32) -> i32 {
    ((code << (20 - shift)).cast_signed()) >> 20
}

/// The new value that the code of FUTEX_WAKE_OP makes of the old.
fn changed(code: u32, old: u32) -> Option<u32> {
    let operand = field(code, 12);
    let operand = if code >> 31 != 0 {
        1 << (operand & 31)
    } else {
        operand.cast_unsigned()
    };
    Some(match code >> 28 & 7 {
        0 => operand,
        1 => old.wrapping_add(operand),
        2 => old | operand,
        3 => old & !operand,
        4 => old ^ operand,
        _ => return None,
    })
}

/// Whether the old value is as the code of FUTEX_WAKE_OP asks for.
fn compared(code: u32, old: u32) -> Option<bool> {
    let (old, operand) = (old.cast_signed(), field(code, 0));
    Some(match code >> 24 & 15 {
        0 => old == operand,
        1 => old != operand,
        2 => old < operand,
        3 => old <= operand,
        4 => old > operand,
        5 => old >= operand,
        _ => return None,
    })
}

/// Takes a lock that nobody holds; `None` if somebody does.
fn take(kernel: &Kernel, place: Place, address: u64) -> Result<Option<i64>, Fault> {
    let alone = matches!(place, Place::Own(_));
    let own = kernel.threads.current().tid;
    let now = word(address)?;
    match now & FUTEX_TID_MASK {
        0 => {
            guest::write(address, &(own | now & (FUTEX_OWNER_DIED | FUTEX_WAITERS)))?;
            Ok(Some(0))
        }
        owner if owner == own => Ok(Some(sys::error(EDEADLK))),
        owner if alone && kernel.threads.find(owner).is_none() => Ok(Some(sys::error(ESRCH))),
        _ => Ok(None),
    }
}

fn lock(kernel: &mut Kernel, call: &Call) -> Result<i64, Fault> {
    let address = call.arg(0);
    let place = Place::of(kernel, call, 0);
    if let Some(result) = take(kernel, place, address)? {
        return Ok(result);
    }
    let deadline = match deadline(kernel, call)? {
        Ok(deadline) => deadline,
        Err(error) => return Ok(error),
    };
    guest::write(address, &(word(address)? | FUTEX_WAITERS))?;
    Ok(park(kernel, place, true, u32::MAX, deadline))
}

fn try_lock(kernel: &Kernel, call: &Call) -> Result<i64, Fault> {
    let place = Place::of(kernel, call, 0);
    Ok(take(kernel, place, call.arg(0))?.unwrap_or(sys::error(EAGAIN)))
}

fn unlock(kernel: &mut Kernel, call: &Call) -> Result<i64, Fault> {
    let address = call.arg(0);
    if word(address)? & FUTEX_TID_MASK != kernel.threads.current().tid {
        return Ok(sys::error(EPERM));
    }
    let place = Place::of(kernel, call, 0);
    hand_over(kernel, place, address, 0);
    Ok(0)
}

/// Gives a lock to whoever waits for it, or frees it; `mark` tells the next owner something.
pub(super) fn hand_over(kernel: &mut Kernel, place: Place, address: u64, mark: u32) {
    let next = match place {
        Place::Own(address) => {
            let next = kernel.threads.next_owner(address);
            next.map(|(slot, more)| (kernel.threads.at(slot).tid, more))
        }
        Place::Shared(key) => futexes::next_owner(kernel, key),
    };
    let new = match next {
        None => mark,
        Some((tid, more)) => {
            let waiters = if more { FUTEX_WAITERS } else { 0 };
            tid | waiters | mark
        }
    };
    // It was read just now, or belongs to a thread that is gone and cannot mind.
    let _ = guest::write(address, &new);
}

#[cfg(test)]
mod tests {
    use crate::calls::futex::{changed, compared};

    /// FUTEX_OP of the kernel's header.
    fn code(op: u32, operand: u32, cmp: u32, with: u32) -> u32 {
        op << 28 | cmp << 24 | (operand & 0xfff) << 12 | with & 0xfff
    }

    #[test]
    fn the_second_futex_is_changed_as_the_code_says() {
        assert_eq!(changed(code(0, 7, 0, 0), 1), Some(7));
        assert_eq!(changed(code(1, 7, 0, 0), 1), Some(8));
        assert_eq!(changed(code(1, 0xfff, 0, 0), 1), Some(0), "signed operand");
        assert_eq!(changed(code(2, 6, 0, 0), 1), Some(7));
        assert_eq!(changed(code(3, 1, 0, 0), 3), Some(2));
        assert_eq!(changed(code(4, 1, 0, 0), 3), Some(2));
        assert_eq!(changed(code(8, 5, 0, 0), 0), Some(32), "shifted operand");
        assert_eq!(changed(code(5, 1, 0, 0), 3), None);
    }

    #[test]
    fn the_old_value_is_compared_as_the_code_says() {
        assert_eq!(compared(code(0, 0, 0, 5), 5), Some(true));
        assert_eq!(compared(code(0, 0, 1, 5), 5), Some(false));
        assert_eq!(compared(code(0, 0, 2, 5), 4), Some(true));
        assert_eq!(compared(code(0, 0, 4, 1), 2), Some(true));
        assert_eq!(compared(code(0, 0, 2, 0), u32::MAX), Some(true), "signed");
        assert_eq!(compared(code(0, 0, 6, 0), 0), None);
    }
}
