//! Calls that watch many descriptors: `epoll`.
//!
//! Something that is told once when it comes (`EPOLLET`) is told again when a program has found it
//! gone, by reading or writing less than it wanted to.
//!
//! What watches may be watched too, a few one above the other and never in a circle.

use linux_raw_sys::errno::{EBADF, EEXIST, EINVAL, ELOOP, ENOENT, EPERM};
use linux_raw_sys::general::{
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE,
    EPOLLONESHOT, EPOLLWAKEUP, POLLIN, POLLRDNORM,
};
use rcoe_abi::Rights;

use super::poll::ALWAYS;
use crate::linux::arch::{EVENT, EVENT_DATA, nr};
use crate::linux::streams::{Interest, POLLERS, Target};
use crate::linux::threads::Limit;
use crate::linux::{Answer, Errno, Machine, Process};

/// Most events at once.
const MOST: u64 = 1 << 16;
/// Most of those that watch one another in a row.
const NESTED: usize = 5;
/// What says how an event is told, and is none.
const MANNER: u32 = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

impl<M: Machine> Process<'_, M> {
    pub(super) fn epoll_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, sixth] = words;
        let most = third & 0xffff_ffff;
        Some(match call {
            nr::__NR_epoll_create if !(1..1 << 31).contains(&(first & 0xffff_ffff)) => {
                Err(Errno(EINVAL))
            }
            nr::__NR_epoll_create => self.make_poller(0),
            nr::__NR_epoll_create1 => self.make_poller(first),
            nr::__NR_epoll_ctl => self.watch(first, second & 0xffff_ffff, third, fourth),
            nr::__NR_epoll_wait => self.events(first, [second, most], Self::millis(fourth)),
            nr::__NR_epoll_pwait => {
                let limit = self.blocking(Self::millis(fourth), fifth, sixth);
                limit.and_then(|limit| self.events(first, [second, most], limit))
            }
            nr::__NR_epoll_pwait2 => {
                let limit = self.limit_of(fourth);
                let limit = limit.and_then(|limit| self.blocking(limit, fifth, sixth));
                limit.and_then(|limit| self.events(first, [second, most], limit))
            }
            _ => return None,
        })
    }

    fn make_poller(&mut self, flags: u64) -> Answer {
        if flags & !u64::from(EPOLL_CLOEXEC) != 0 {
            return Err(Errno(EINVAL));
        }
        let poller = self.streams.add_poller()?;
        let private = flags != 0;
        self.open_stream(poller, if private { EPOLL_CLOEXEC } else { 0 })
    }

    fn poller(&mut self, file: u64) -> Result<usize, Errno> {
        match self.files.of(file)?.target {
            Target::Poller(poller) => Ok(poller),
            _ => Err(Errno(EINVAL)),
        }
    }

    fn watch(&mut self, watcher: u64, what: u64, file: u64, event: u64) -> Answer {
        self.files.of(watcher).map_err(|_| Errno(EBADF))?;
        let place = self.files.place(file)?;
        match self.files.open_at(place).target {
            Target::Poller(_) if self.files.place(watcher) == Ok(place) => {
                return Err(Errno(EINVAL));
            }
            Target::Node(_) => return Err(Errno(EPERM)),
            _ => {}
        }
        let poller = self.poller(watcher)?;
        let file = file & 0xffff_ffff;
        let what = u32::try_from(what).unwrap_or(0);
        let known = self.streams.interest(poller, place, file).is_some();
        match what {
            EPOLL_CTL_ADD => {
                if let Target::Poller(other) = self.files.open_at(place).target {
                    self.check_nesting(poller, other)?;
                }
                if known {
                    return Err(Errno(EEXIST));
                }
            }
            EPOLL_CTL_MOD | EPOLL_CTL_DEL if !known => return Err(Errno(ENOENT)),
            EPOLL_CTL_MOD => {}
            EPOLL_CTL_DEL => {
                let ended = |it: &Interest| (it.poller, it.place, it.file) == (poller, place, file);
                self.streams.forget(ended);
                return Ok(0);
            }
            _ => return Err(Errno(EINVAL)),
        }
        let (mut bytes, mut data) = ([0; EVENT], [0; 8]);
        self.read(event, &mut bytes)?;
        let [a, b, c, d, ..] = bytes;
        data.copy_from_slice(&bytes[EVENT_DATA..]);
        let interest = Interest {
            poller,
            place,
            file,
            events: u32::from_le_bytes([a, b, c, d]),
            told: 0,
            data: u64::from_le_bytes(data),
        };
        match self.streams.interest(poller, place, file) {
            Some(it) => *it = Some(interest),
            None => self.streams.add_interest(interest)?,
        }
        Ok(0)
    }

    /// May a poller watch another one?
    fn check_nesting(&self, poller: usize, other: usize) -> Result<(), Errno> {
        let all = self.streams.interests();
        let reached = |from: &[bool; POLLERS], forth: bool| {
            let mut next = [false; POLLERS];
            for it in all.iter().flatten() {
                if let Target::Poller(watched) = self.files.open_at(it.place).target {
                    let (a, b) = if forth {
                        (it.poller, watched)
                    } else {
                        (watched, it.poller)
                    };
                    next[b] |= from[a];
                }
            }
            next
        };
        // How many follow one another from there on; a circle does not come to an end.
        let mut lengths = 0;
        for (start, forth) in [(other, true), (poller, false)] {
            let mut at = [false; POLLERS];
            at[start] = true;
            while at.contains(&true) && lengths <= NESTED {
                if forth && at[poller] {
                    return Err(Errno(ELOOP));
                }
                at = reached(&at, forth);
                lengths += 1;
            }
        }
        if lengths > NESTED {
            Err(Errno(ELOOP))
        } else {
            Ok(())
        }
    }

    /// What is to be told of an interest of this poller now.
    fn due(&mut self, index: usize, poller: usize) -> u32 {
        let interest = self.streams.interests()[index].filter(|it| it.poller == poller);
        let Some(interest) = interest else {
            return 0;
        };
        let wanted = interest.events & !MANNER;
        if wanted == 0 {
            // It was told once, and nobody asked anew.
            return 0;
        }
        let has = self.readiness(interest.place) & (wanted | ALWAYS);
        if interest.events & EPOLLET == 0 {
            return has;
        }
        // What has gone is told when it comes again.
        let told = interest.told & has;
        self.streams.interests_mut()[index] = Some(Interest { told, ..interest });
        has & !told
    }

    /// Has a poller anything to tell?
    pub(super) fn has_events(&mut self, poller: usize) -> bool {
        (0..self.streams.interests().len()).any(|index| self.due(index, poller) != 0)
    }

    fn events(&mut self, watcher: u64, [to, most]: [u64; 2], limit: Limit) -> Answer {
        self.files.of(watcher)?;
        let poller = self.poller(watcher)?;
        if most == 0 || most > MOST {
            return Err(Errno(EINVAL));
        }
        self.check(to, EVENT as u64, Rights::WRITE)?;
        let all = self.streams.interests().len();
        let first = self.streams.pollers[poller].first;
        let mut count = 0;
        for step in 0..all {
            let index = (first + step) % all;
            if count == most {
                // Those that had no room are the first ones the next time.
                self.streams.pollers[poller].first = index;
                break;
            }
            let due = self.due(index, poller);
            if due != 0 {
                self.tell_event(to.wrapping_add(EVENT as u64 * count), index, due)?;
                count += 1;
            }
        }
        if count < most {
            // All was told: whoever watches this by what comes is told when more does.
            let place = self.files.place(watcher)?;
            self.streams.drained(place, POLLIN | POLLRDNORM);
        }
        if count == 0 {
            self.pause_unless(limit)?;
        }
        Ok(count)
    }

    fn tell_event(&mut self, to: u64, index: usize, due: u32) -> Result<(), Errno> {
        let Some(interest) = &mut self.streams.interests_mut()[index] else {
            return Ok(());
        };
        interest.told |= due;
        if interest.events & EPOLLONESHOT != 0 {
            interest.events &= MANNER;
        }
        let mut event = [0; EVENT];
        event[..4].copy_from_slice(&due.to_le_bytes());
        event[EVENT_DATA..].copy_from_slice(&interest.data.to_le_bytes());
        self.write(to, &event)
    }
}
