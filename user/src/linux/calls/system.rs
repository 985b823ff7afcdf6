//! Calls about the process itself, the time, and the system.

use linux_raw_sys::errno::{EFAULT, EINVAL, ENODEV, ENOSYS, EOPNOTSUPP, EPERM, ESRCH};
use linux_raw_sys::general::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW,
    CLOCK_PROCESS_CPUTIME_ID, CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_THREAD_CPUTIME_ID,
    GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM, RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_NPROC,
    RLIMIT_SIGPENDING, RLIMIT_STACK, TIMER_ABSTIME,
};

use super::sockets::low;
use super::{PORTION, portion_of};
use crate::linux::arch::{MACHINE, nr};
use crate::linux::files::FILE_NUMBERS;
use crate::linux::signals::QUEUE;
use crate::linux::space::STACK_BYTES;
use crate::linux::stat::SECOND;
use crate::linux::tasks::NOBODY;
use crate::linux::tasks::PROCESSES;
use crate::linux::threads::Limit;
use crate::linux::{Answer, Errno, Machine, Process};

/// Requests of `arch_prctl`.
const SET_GS: u64 = 0x1001;
const SET_FS: u64 = 0x1002;
const GET_FS: u64 = 0x1003;
const GET_GS: u64 = 0x1004;
const GET_IDENTITY: u64 = 0x1011;
const SET_IDENTITY: u64 = 0x1012;
/// Whose times are told: a process's, its children's, a thread's.
const WHOSE: [u64; 3] = [0, u32::MAX as u64, 1];
/// Ways of asking for random numbers, and two that exclude each other.
const WAYS: u64 = (GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE) as u64;
const EITHER: u64 = (GRND_RANDOM | GRND_INSECURE) as u64;
/// Bytes of each part of what `uname` tells.
const NAME: usize = 65;
/// What it tells: system, node, release, version, machine, domain.
pub(super) const NAMES: [&[u8]; 6] = [
    b"Linux",
    b"rcoe",
    b"6.1.0-rcoe",
    b"#1 rcoe",
    MACHINE,
    b"(none)",
];
/// Clocks by which nobody sleeps.
const SLEEPLESS: [u32; 4] = [
    CLOCK_THREAD_CPUTIME_ID,
    CLOCK_MONOTONIC_RAW,
    CLOCK_REALTIME_COARSE,
    CLOCK_MONOTONIC_COARSE,
];
/// Words of the times that a process took.
pub(super) const USAGE_WORDS: usize = 18;

/// Whoever is the superuser stays it, and so does what belongs to it: nobody else is there. That a
/// number is not to change is said by the highest one.
pub(super) fn remain(numbers: &[u64]) -> Answer {
    let remains = |it: &u64| [0, u64::from(u32::MAX)].contains(&(it & 0xffff_ffff));
    let all = numbers.iter().all(remains);
    if all { Ok(0) } else { Err(Errno(EPERM)) }
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn system_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_arch_prctl => self.pointers(first, second),
            nr::__NR_getuid | nr::__NR_geteuid | nr::__NR_getgid | nr::__NR_getegid => Ok(0),
            nr::__NR_getgroups => Ok(0),
            nr::__NR_setuid | nr::__NR_setgid => remain(&[first]),
            nr::__NR_setreuid | nr::__NR_setregid => remain(&[first, second]),
            nr::__NR_setresuid | nr::__NR_setresgid => remain(&[first, second, third]),
            nr::__NR_setgroups if first == 0 => Ok(0),
            nr::__NR_sched_getaffinity => self.cores(first, second & 0xffff_ffff, third),
            nr::__NR_uname => self.names(first),
            nr::__NR_prlimit64 => self.limit([first, second, third, fourth]),
            nr::__NR_setrlimit => self.limit([0, first, second, 0]),
            nr::__NR_getrlimit => self.limit([0, first, 0, second]),
            nr::__NR_getrusage if !WHOSE.contains(&(first & 0xffff_ffff)) => Err(Errno(EINVAL)),
            nr::__NR_getrusage => self.write_words(second, &[0; USAGE_WORDS]).map(|()| 0),
            nr::__NR_times => self.ticks(first),
            nr::__NR_getrandom if third & !WAYS != 0 || third & EITHER == EITHER => {
                Err(Errno(EINVAL))
            }
            nr::__NR_getrandom => self.random_bytes(first, second),
            nr::__NR_clock_gettime => self.clock(first, second),
            nr::__NR_clock_getres => self.resolution(first, second),
            nr::__NR_gettimeofday => self.time_of_day(first, second),
            nr::__NR_time => self.time(first),
            nr::__NR_nanosleep => self.sleep(first, None),
            nr::__NR_clock_nanosleep if SLEEPLESS.contains(&low(first)) => Err(Errno(EOPNOTSUPP)),
            nr::__NR_clock_nanosleep => {
                let absolute = second & u64::from(TIMER_ABSTIME) != 0;
                self.sleep(third, absolute.then_some(first))
            }
            // Its purpose is a thread that moves between cores: the library does without.
            nr::__NR_rseq => Err(Errno(ENOSYS)),
            _ => return None,
        })
    }

    fn pointers(&mut self, request: u64, value: u64) -> Answer {
        let index = usize::from(request == SET_GS || request == GET_GS);
        match request {
            SET_FS | SET_GS => {
                let place = self.threads.index();
                let mut wanted = self.threads.current().pointers;
                wanted[index] = value;
                if !self.machine.set_pointers(place, wanted) {
                    return Err(Errno(EPERM));
                }
                self.threads.current().pointers = wanted;
                Ok(0)
            }
            GET_FS | GET_GS => {
                let pointer = self.threads.current().pointers[index];
                self.write_words(value, &[pointer]).map(|()| 0)
            }
            // What a processor is cannot be kept from a program.
            GET_IDENTITY => Ok(1),
            SET_IDENTITY => Err(Errno(ENODEV)),
            _ => Err(Errno(EINVAL)),
        }
    }

    /// The set of cores of a thread: there is one, also for the parent of those that have
    /// none.
    fn cores(&mut self, whom: u64, bytes: u64, to: u64) -> Answer {
        let whom = whom & 0xffff_ffff;
        if bytes == 0 || !bytes.is_multiple_of(8) {
            return Err(Errno(EINVAL));
        }
        if ![0, NOBODY].contains(&whom) && self.threads.anywhere(whom).is_none() {
            return Err(Errno(ESRCH));
        }
        self.write_words(to, &[1]).map(|()| 8)
    }

    fn names(&mut self, to: u64) -> Answer {
        let mut bytes = [0; 6 * NAME];
        for (place, name) in bytes.chunks_exact_mut(NAME).zip(NAMES) {
            place[..name.len()].copy_from_slice(name);
        }
        self.write(to, &bytes).map(|()| 0)
    }

    /// There are limits to the stack, to open files, processes and signals that wait, and none to
    /// anything else. That of open files can be lowered, and raised again within what there is; the
    /// others stay what they are.
    fn limit(&mut self, [process, resource, new, old]: [u64; 4]) -> Answer {
        if ![0, self.task.number].contains(&process) {
            return Err(Errno(ESRCH));
        }
        let resource = u32::try_from(resource).unwrap_or(u32::MAX);
        let limits = match resource {
            16.. => return Err(Errno(EINVAL)),
            RLIMIT_STACK => [STACK_BYTES; 2],
            RLIMIT_NOFILE => self.files.limits(),
            RLIMIT_SIGPENDING => [QUEUE as u64; 2],
            RLIMIT_NPROC => [PROCESSES as u64; 2],
            _ => [u64::MAX; 2],
        };
        if new != 0 {
            let wanted = [self.word(new)?, self.word(new.wrapping_add(8))?];
            self.set_limit(resource, limits, wanted)?;
        }
        if old != 0 {
            self.write_words(old, &limits)?;
        }
        Ok(0)
    }

    fn set_limit(&mut self, which: u32, had: [u64; 2], wanted: [u64; 2]) -> Result<(), Errno> {
        let [soft, hard] = wanted;
        if soft > hard {
            return Err(Errno(EINVAL));
        }
        match which {
            RLIMIT_NOFILE if hard <= FILE_NUMBERS as u64 => self.files.set_limits(wanted),
            // Nobody writes the memory of one that ends to a file.
            RLIMIT_CORE => {}
            _ if wanted == had => {}
            _ => return Err(Errno(EPERM)),
        }
        Ok(())
    }

    fn random_bytes(&mut self, to: u64, bytes: u64) -> Answer {
        let mut portion = [0; PORTION];
        let mut done = 0;
        while done < bytes {
            let len = portion_of(bytes - done);
            self.random.fill(&mut portion[..len]);
            let to = to.checked_add(done).ok_or(Errno(EFAULT))?;
            self.write(to, &portion[..len])?;
            done += len as u64;
        }
        Ok(done)
    }

    /// What a clock showed when the machine began.
    fn since(&self, clock: u64) -> Answer {
        Ok(
            match u32::try_from(clock & 0xffff_ffff).unwrap_or(u32::MAX) {
                CLOCK_REALTIME | CLOCK_REALTIME_COARSE => self.began(),
                CLOCK_MONOTONIC | CLOCK_MONOTONIC_COARSE | CLOCK_MONOTONIC_RAW | CLOCK_BOOTTIME => {
                    0
                }
                CLOCK_PROCESS_CPUTIME_ID | CLOCK_THREAD_CPUTIME_ID => 0,
                _ => return Err(Errno(EINVAL)),
            },
        )
    }

    /// Nanoseconds by a clock.
    fn nanoseconds(&mut self, clock: u64) -> Answer {
        let since = self.since(clock)?;
        Ok(self.machine.now().saturating_add(since))
    }

    fn clock(&mut self, clock: u64, to: u64) -> Answer {
        let now = self.nanoseconds(clock)?;
        self.write_words(to, &[now / SECOND, now % SECOND])
            .map(|()| 0)
    }

    fn resolution(&mut self, clock: u64, to: u64) -> Answer {
        self.nanoseconds(clock)?;
        if to != 0 {
            self.write_words(to, &[0, 1])?;
        }
        Ok(0)
    }

    /// The time, and that of a zone, which is that of the clock.
    fn time_of_day(&mut self, to: u64, zone: u64) -> Answer {
        let now = self.nanoseconds(CLOCK_REALTIME.into())?;
        if to != 0 {
            self.write_words(to, &[now / SECOND, now % SECOND / 1000])?;
        }
        if zone != 0 {
            self.write_words(zone, &[0])?;
        }
        Ok(0)
    }

    fn time(&mut self, to: u64) -> Answer {
        let now = self.nanoseconds(CLOCK_REALTIME.into())? / SECOND;
        if to != 0 {
            self.write_words(to, &[now])?;
        }
        Ok(now)
    }

    /// Hundredths of a second of the machine; of processes no time is told that they took.
    fn ticks(&mut self, to: u64) -> Answer {
        if to != 0 {
            self.write_words(to, &[0; 4])?;
        }
        Ok(self.machine.now() / (SECOND / 100))
    }

    /// Sleeps for a time, or until a clock shows it.
    fn sleep(&mut self, time: u64, until: Option<u64>) -> Answer {
        let wanted = self.time_at(time)?;
        let limit = match until {
            Some(clock) => Limit::At(wanted.saturating_sub(self.since(clock)?)),
            None => Limit::In(wanted),
        };
        self.pause(limit).map(|()| 0)
    }
}
