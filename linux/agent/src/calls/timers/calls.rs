//! The calls that set timers and ask about them.

use linux_raw_sys::errno::{EAGAIN, EINVAL, EOPNOTSUPP};
use linux_raw_sys::general::{SIGALRM, SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD, SIGEV_THREAD_ID};
use rcoe_linux_syscalls::Special;

use crate::calls::timers::{Domain, Notify, OLD, Timer, arm};
use crate::calls::{Call, limits, signals};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sched::threads::NEVER;
use crate::sched::timeouts::{self, Clock};
use crate::sys;

const SECOND: u64 = 1_000_000_000;

/// All calls on timers.
pub(in crate::calls) fn perform(kernel: &mut Kernel, call: &Call) -> i64 {
    let result = match call.what.special {
        Special::Alarm => alarm(kernel, call),
        Special::Setitimer => set_old(kernel, call),
        Special::Getitimer => get_old(kernel, call),
        Special::TimerCreate => create(kernel, call),
        Special::TimerSettime => set(kernel, call),
        Special::TimerGettime => get(kernel, call),
        Special::TimerGetoverrun => kernel
            .timers
            .find(call.arg(0))
            .map_or(sys::error(EINVAL), |timer| i64::from(timer.told)),
        _ => delete(kernel, call),
    };
    kernel.timers.schedule();
    if kernel.replica.is_primary() {
        arm(kernel);
    }
    result
}

fn now(kernel: &mut Kernel, domain: Domain) -> u64 {
    transfer::agree(kernel, || domain.now())
}

fn alarm(kernel: &mut Kernel, call: &Call) -> i64 {
    let now = now(kernel, Domain::Wall);
    let timer = &mut kernel.timers.all[0];
    let [_, left] = timer.setting(now);
    timer.interval = 0;
    timer.deadline = match call.arg(0) {
        0 => NEVER,
        seconds => now.saturating_add(seconds * SECOND).min(NEVER - 1),
    };
    // To the nearest second, but never to none.
    let seconds = (left + SECOND / 2) / SECOND;
    i64::try_from(if left == 0 { 0 } else { seconds.max(1) }).expect("few seconds")
}

/// Interval and value in nanoseconds of a structure that divides seconds into so many parts.
fn setting(address: u64, unit: u64) -> Result<Option<[u64; 2]>, Fault> {
    let [first, rest, second, more] = guest::read::<[u64; 4]>(address)?;
    let part = |seconds: u64, rest: u64| {
        let valid = seconds.cast_signed() >= 0 && rest < unit;
        valid.then(|| {
            seconds
                .saturating_mul(SECOND)
                .saturating_add(rest * (SECOND / unit))
                .min(NEVER / 4)
        })
    };
    Ok(part(first, rest)
        .zip(part(second, more))
        .map(<[u64; 2]>::from))
}

fn write_setting(address: u64, setting: [u64; 2], unit: u64) -> Result<(), Fault> {
    if address == 0 {
        return Ok(());
    }
    let [interval, left] = setting;
    // What is left is never told as nothing.
    let left = left.next_multiple_of(SECOND / unit);
    let part = |time: u64| [time / SECOND, time % SECOND / (SECOND / unit)];
    let [[a, b], [c, d]] = [part(interval), part(left)];
    guest::write(address, &[a, b, c, d])
}

const MICRO: u64 = 1_000_000;

fn set_old(kernel: &mut Kernel, call: &Call) -> i64 {
    let which = usize::try_from(call.arg(0)).unwrap_or(OLD);
    if which >= OLD {
        return sys::error(EINVAL);
    }
    let new = match call.arg(1) {
        0 => Ok(Some([0, 0])),
        address => setting(address, MICRO),
    };
    let [interval, value] = match new {
        Err(Fault) => return Fault::RESULT,
        Ok(None) => return sys::error(EINVAL),
        Ok(Some(new)) => new,
    };
    let now = now(kernel, kernel.timers.all[which].domain);
    let timer = &mut kernel.timers.all[which];
    let old = timer.setting(now);
    timer.interval = interval;
    timer.deadline = if value == 0 { NEVER } else { now + value };
    write_setting(call.arg(2), old, MICRO).map_or(Fault::RESULT, |()| 0)
}

fn get_old(kernel: &mut Kernel, call: &Call) -> i64 {
    let which = usize::try_from(call.arg(0)).unwrap_or(OLD);
    if which >= OLD {
        return sys::error(EINVAL);
    }
    let now = now(kernel, kernel.timers.all[which].domain);
    let setting = kernel.timers.all[which].setting(now);
    match call.arg(1) {
        0 => Fault::RESULT,
        address => write_setting(address, setting, MICRO).map_or(Fault::RESULT, |()| 0),
    }
}

/// The clock's domain; `None` if timers cannot run on it.
fn domain(kernel: &Kernel, clock: i32) -> Option<Domain> {
    const WALL: [i32; 4] = [0, 1, 7, 11];
    const CPU: [i32; 2] = [2, 3];
    let own = !kernel.processes.pid.cast_signed() << 3;
    match clock {
        _ if WALL.contains(&clock) => Some(Domain::Wall),
        _ if CPU.contains(&clock) => Some(Domain::Cpu),
        // Clocks of a process by its number: user time, and CPU time in two manners.
        _ if clock == -7 || clock == own | 1 => Some(Domain::User),
        _ if [-8, -6, own, own | 2].contains(&clock) => Some(Domain::Cpu),
        _ => None,
    }
}

fn create(kernel: &mut Kernel, call: &Call) -> i64 {
    /// These wake a machine that sleeps, if it has a clock that can. No timer here does.
    const WAKING: [i32; 2] = [8, 9];
    let clock = low32(call.arg(0)).cast_signed();
    let Some(domain) = domain(kernel, clock) else {
        let waking = WAKING.contains(&clock);
        return sys::error(if waking { EOPNOTSUPP } else { EINVAL });
    };
    let Some(at) = kernel.timers.all.iter().position(|timer| !timer.used) else {
        return sys::error(EAGAIN);
    };
    if !limits::allow_timer(kernel) {
        return sys::error(EAGAIN);
    }
    let id = (at - OLD) as u64;
    // The structure's words: value, signal and manner, thread.
    let event = match call.arg(1) {
        0 => Ok([id, u64::from(SIGALRM), 0]),
        address => guest::read::<[u64; 3]>(address),
    };
    let Ok([value, what, thread]) = event else {
        return Fault::RESULT;
    };
    let (signal, manner) = (low32(what), low32(what >> 32));
    let notify = match manner {
        SIGEV_NONE => Notify::Nobody,
        // Libraries make threads for their timers themselves; to the kernel that is a signal.
        SIGEV_SIGNAL | SIGEV_THREAD => Notify::Program,
        SIGEV_THREAD_ID if kernel.threads.find(low32(thread)).is_some() => Notify::Thread,
        _ => return sys::error(EINVAL),
    };
    if notify != Notify::Nobody && !(1..=signals::LAST).contains(&signal) {
        return sys::error(EINVAL);
    }
    if guest::write(call.arg(2), &low32(id)).is_err() {
        return Fault::RESULT;
    }
    kernel.timers.all[at] = Timer {
        used: true,
        domain,
        clock,
        deadline: NEVER,
        notify,
        thread: low32(thread),
        signal,
        value,
        ..Timer::UNUSED
    };
    0
}

fn set(kernel: &mut Kernel, call: &Call) -> i64 {
    const TIMER_ABSTIME: u64 = 1;
    let Some(timer) = kernel.timers.find(call.arg(0)).copied() else {
        return sys::error(EINVAL);
    };
    if call.arg(2) == 0 {
        return sys::error(EINVAL);
    }
    let [interval, value] = match setting(call.arg(2), SECOND) {
        Err(Fault) => return Fault::RESULT,
        Ok(None) => return sys::error(EINVAL),
        Ok(Some(new)) => new,
    };
    let now = now(kernel, timer.domain);
    let absolute = call.arg(1) & TIMER_ABSTIME != 0;
    let deadline = match value {
        0 => NEVER,
        _ if !absolute => now + value,
        _ if timer.domain == Domain::Wall => {
            timeouts::at(kernel, Clock(timer.clock), value).unwrap_or(now)
        }
        _ => value,
    };
    let old = timer.setting(now);
    if let Some(timer) = kernel.timers.find(call.arg(0)) {
        timer.interval = interval;
        timer.deadline = deadline;
        timer.missed = 0;
        timer.told = 0;
    }
    write_setting(call.arg(3), old, SECOND).map_or(Fault::RESULT, |()| 0)
}

fn get(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(timer) = kernel.timers.find(call.arg(0)).copied() else {
        return sys::error(EINVAL);
    };
    let now = now(kernel, timer.domain);
    match call.arg(1) {
        0 => Fault::RESULT,
        address => write_setting(address, timer.setting(now), SECOND).map_or(Fault::RESULT, |()| 0),
    }
}

fn delete(kernel: &mut Kernel, call: &Call) -> i64 {
    match kernel.timers.find(call.arg(0)) {
        Some(timer) => {
            *timer = Timer::UNUSED;
            0
        }
        None => sys::error(EINVAL),
    }
}
