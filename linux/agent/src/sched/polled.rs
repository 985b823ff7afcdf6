//! One poll by the primary for all threads that wait for descriptors.

use linux_raw_sys::general::{POLLIN, POLLOUT, POLLPRI};

use crate::calls::Call;
use rcoe_linux_syscalls::Waits;

use crate::arch::entry::{interruptible_call, is_away};
use crate::calls::descriptors::descriptor;
use crate::memory::guest;
use crate::one_thread::OneThread;
use crate::sched::blocking::manner;
use crate::sched::threads::Threads;
use crate::sys::polling::{PPOLL, PollFd, condition, is_ready, poll_now};

/// Most descriptors in one poll.
const MOST: usize = 8192;
/// How often those are looked at that had no room.
const CROWDED_NS: u64 = 10_000_000;

/// The arrays of the present poll.
#[unsafe(link_section = ".bss.own.1")]
static ARRAYS: OneThread<([PollFd; MOST], [u16; MOST])> = OneThread::new((
    [PollFd {
        fd: 0,
        events: 0,
        revents: 0,
    }; MOST],
    [0; MOST],
));

/// What is being polled for, and for whom.
pub(crate) struct Polled {
    fds: &'static mut [PollFd; MOST],
    owners: &'static mut [u16; MOST],
    count: usize,
    /// The first thread that had no room, and all after it: they just try again.
    crowded_from: Option<usize>,
}

impl Polled {
    /// All that the waiting threads wait for.
    pub(crate) fn gather(threads: &Threads) -> Self {
        // SAFETY: a replica is one kernel thread, and one poll is over before the next is made.
        let (fds, owners) = unsafe { &mut *ARRAYS.get() };
        let mut polled = Self {
            fds,
            owners,
            count: 0,
            crowded_from: None,
        };
        for slot in threads.waiting_for_files() {
            let (nr, raw) = threads.at(slot).call;
            let call = Call::new(nr, raw).expect("the call has been made before");
            let before = polled.count;
            if polled.add_call(slot, &call).is_none() {
                polled.count = before;
                polled.crowded_from.get_or_insert(slot);
            }
        }
        polled
    }

    fn add_call(&mut self, slot: usize, call: &Call) -> Option<()> {
        let fd = descriptor(call.arg(0));
        match manner(call) {
            Waits::Read | Waits::Accept | Waits::Receive(_) | Waits::Epoll | Waits::MailIn => {
                self.add(slot, fd, POLLIN)
            }
            // Whichever is missing; both are looked at when the call is made again.
            Waits::Move(from, to) | Waits::Splice(from, to, _) => {
                let [from, to] = [from, to].map(|index| call.arg(usize::from(index)));
                if is_ready(from, POLLIN) {
                    self.add(slot, descriptor(to), POLLOUT)
                } else {
                    self.add(slot, descriptor(from), POLLIN)
                }
            }
            Waits::Write | Waits::Send(_) | Waits::Connect | Waits::MailOut => {
                self.add(slot, fd, POLLOUT)
            }
            Waits::Poll => self.add_array(slot, call.arg(0), call.arg(1)),
            Waits::Select => self.add_sets(slot, call),
            Waits::Flock
            | Waits::FileLock(_)
            | Waits::Child
            | Waits::Semaphores
            | Waits::Queue(_)
            | Waits::Plain => Some(()),
        }
    }

    fn add(&mut self, slot: usize, fd: i32, events: u32) -> Option<()> {
        let place = self.fds.get_mut(self.count)?;
        *place = PollFd {
            fd,
            events: condition(events),
            revents: 0,
        };
        self.owners[self.count] = u16::try_from(slot).expect("slots are few");
        self.count += 1;
        Some(())
    }

    fn add_array(&mut self, slot: usize, address: u64, count: u64) -> Option<()> {
        for i in 0..count.min(MOST as u64) {
            // An array that is gone is found out when the call is made again.
            let word = guest::read::<u64>(address + 8 * i).ok()?;
            let fd = descriptor(word);
            self.add(slot, fd, crate::convert::low32(word >> 32) & 0xffff)?;
        }
        Some(())
    }

    fn add_sets(&mut self, slot: usize, call: &Call) -> Option<()> {
        for (index, events) in [(1, POLLIN), (2, POLLOUT), (3, POLLPRI)] {
            let (set, count) = (call.arg(index), call.arg(0));
            if set == 0 {
                continue;
            }
            for word in 0..count.div_ceil(64) {
                let mut bits = guest::read::<u64>(set + 8 * word).ok()?;
                while bits != 0 {
                    let fd = word * 64 + u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    if fd < count {
                        self.add(slot, descriptor(fd), events)?;
                    }
                }
            }
        }
        Some(())
    }

    /// Is there nothing to poll for?
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.crowded_from.is_none()
    }

    /// Looks without waiting.
    pub(crate) fn now(&mut self) {
        if self.count == 0 {
            return;
        }
        // SAFETY: the array has that many entries. Without an answer nobody is ready.
        let _ = unsafe { poll_now(self.fds.as_mut_ptr() as u64, self.count as u64) };
    }

    /// Waits until something is ready, at most so many nanoseconds. Returns whether a signal came
    /// first.
    pub(crate) fn wait(&mut self, timeout: Option<u64>) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let timeout = match (timeout, self.crowded_from) {
            (timeout, None) => timeout,
            (timeout, Some(_)) => Some(timeout.unwrap_or(CROWDED_NS).min(CROWDED_NS)),
        };
        let time = timeout.map(|time| [time / SECOND, time % SECOND]);
        let args = [
            self.fds.as_mut_ptr() as u64,
            self.count as u64,
            time.as_ref().map_or(0, |time| time.as_ptr() as u64),
            0,
            0,
            0,
        ];
        // SAFETY: the array has that many entries, the time is a timespec or absent.
        let result = unsafe { interruptible_call(PPOLL, &args) };
        is_away(result)
    }

    /// Puts those into the set for whom something is ready.
    pub(crate) fn ready(&self, threads: &Threads, set: &mut [u64]) {
        let mut insert = |slot: usize| set[slot / 64] |= 1 << (slot % 64);
        for (fd, owner) in self.fds[..self.count].iter().zip(self.owners.iter()) {
            if fd.revents != 0 {
                insert(usize::from(*owner));
            }
        }
        if let Some(first) = self.crowded_from {
            let waiting = threads.waiting_for_files();
            waiting.filter(|slot| *slot >= first).for_each(insert);
        }
    }
}
