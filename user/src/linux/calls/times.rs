//! Calls that set when files were used and changed.

use linux_raw_sys::errno::{EFAULT, EINVAL};
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, UTIME_NOW, UTIME_OMIT};

use super::names::HERE;
use crate::linux::arch::nr;
use crate::linux::stat::{MICRO, SECOND};
use crate::linux::{Answer, Errno, Machine, Process};

/// What a time is given as: no time, seconds alone, with microseconds, with nanoseconds.
#[derive(Clone, Copy)]
enum Given {
    Now,
    Seconds(u64),
    Micro(u64),
    Nano(u64),
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn time_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        let given = |place: u64, kind: fn(u64) -> Given| match place {
            0 => Given::Now,
            place => kind(place),
        };
        Some(match call {
            nr::__NR_utime => self.set_stamp([HERE, first, 0], given(second, Given::Seconds)),
            nr::__NR_utimes => self.set_stamp([HERE, first, 0], given(second, Given::Micro)),
            nr::__NR_futimesat => self.set_stamp([first, second, 0], given(third, Given::Micro)),
            nr::__NR_utimensat => {
                self.set_stamp([first, second, fourth], given(third, Given::Nano))
            }
            _ => return None,
        })
    }

    /// A file that was changed gets its time.
    pub(in crate::linux) fn give_time(&mut self, node: usize) {
        if self.files.is_changed(node) {
            let now = self.world_time();
            let [used, _] = self.files.times(node);
            let used = used.max(u64::from(used == 0) * now);
            self.files.set_times(node, [Some(used), Some(now)]);
        }
    }

    /// Nanoseconds by the clock of the world.
    fn world_time(&mut self) -> u64 {
        self.machine.now().saturating_add(self.began())
    }

    fn set_stamp(&mut self, [folder, text, flags]: [u64; 3], given: Given) -> Answer {
        if flags & !u64::from(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno(EINVAL));
        }
        let times = self.given_times(given);
        if times == Err(Errno(EFAULT)) {
            return Err(Errno(EFAULT));
        }
        let is_empty = flags & u64::from(AT_EMPTY_PATH) != 0;
        let opened = text == 0 || is_empty && self.text(text)?.bytes().is_empty();
        let node = if opened {
            self.files.of(folder)?.node()?
        } else {
            self.named_as(folder, text, flags)?
        };
        // A time that cannot be is told of a file that there is.
        self.files.set_times(node, times?);
        Ok(0)
    }

    /// Both times; one that is to stay is none.
    fn given_times(&mut self, given: Given) -> Result<[Option<u64>; 2], Errno> {
        let mut times = [None; 2];
        for (index, time) in times.iter_mut().enumerate() {
            let at = |place: u64, bytes: u64| place.wrapping_add(bytes * index as u64);
            *time = match given {
                Given::Now => Some(self.world_time()),
                Given::Seconds(place) => Some(in_world(self.word(at(place, 8))?, 0)?),
                Given::Micro(place) => {
                    let [seconds, rest] = self.pair(at(place, 16))?;
                    let rest = rest.checked_mul(MICRO).ok_or(Errno(EINVAL))?;
                    Some(in_world(seconds, rest)?)
                }
                Given::Nano(place) => {
                    let [seconds, rest] = self.pair(at(place, 16))?;
                    match u32::try_from(rest) {
                        Ok(UTIME_NOW) => Some(self.world_time()),
                        Ok(UTIME_OMIT) => None,
                        _ => Some(in_world(seconds, rest)?),
                    }
                }
            };
        }
        Ok(times)
    }

    fn pair(&self, place: u64) -> Result<[u64; 2], Errno> {
        Ok([self.word(place)?, self.word(place.wrapping_add(8))?])
    }
}

/// Nanoseconds of a time, which is none before 1970.
fn in_world(seconds: u64, rest: u64) -> Answer {
    let whole = seconds.checked_mul(SECOND).filter(|_| rest < SECOND);
    let whole = whole.and_then(|whole| whole.checked_add(rest));
    whole.ok_or(Errno(EINVAL))
}
