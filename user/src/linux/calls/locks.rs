//! Calls about locks of files.

use linux_raw_sys::errno::{EAGAIN, EBADF, EDEADLK, EINVAL, EOVERFLOW};
use linux_raw_sys::general::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLK, F_SETLKW, F_UNLCK, F_WRLCK,
    LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, O_ACCMODE, O_RDONLY, O_WRONLY, SEEK_CUR, SEEK_END,
    SEEK_SET,
};

use crate::linux::errno::LATER;
use crate::linux::locks::{Lock, Owner};
use crate::linux::tasks::PROCESSES;
use crate::linux::{Answer, Errno, Machine, Process};

/// Words of what tells of a lock: kind and from where it counts, start, bytes, process.
const WORDS: usize = 4;
/// Nobody in particular has it.
const NOBODY: u64 = 0xffff_ffff;

/// A lock that a program asks for or tells of, and its kind.
struct Asked {
    lock: Lock,
    kind: u32,
}

impl<M: Machine> Process<'_, M> {
    /// Requests of `fcntl` about locks.
    pub(super) fn lock_call(&mut self, file: u64, request: u64, place: u64) -> Option<Answer> {
        let request = u32::try_from(request & 0xffff_ffff).ok()?;
        let open = matches!(request, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
        Some(match request {
            F_GETLK | F_OFD_GETLK => self.tell_lock(file, place, open),
            F_SETLK | F_OFD_SETLK => self.set_lock(file, place, open, Errno(EAGAIN)),
            F_SETLKW | F_OFD_SETLKW => self.set_lock(file, place, open, LATER),
            _ => return None,
        })
    }

    /// The lock that words in memory tell of.
    fn asked(&mut self, file: u64, place: u64, open: bool) -> Result<Asked, Errno> {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(place.wrapping_add(8 * index as u64))?;
        }
        let [kinds, start, bytes, process] = words;
        if open && process & NOBODY != 0 {
            return Err(Errno(EINVAL));
        }
        let (kind, from) = (kinds & 0xffff, kinds >> 16 & 0xffff);
        let place = self.files.place(file)?;
        let node = self.files.open_at(place).node().map_err(|_| Errno(EBADF))?;
        let before = match u32::try_from(from) {
            Ok(SEEK_SET) => 0,
            Ok(SEEK_CUR) => self.files.open_at(place).offset,
            Ok(SEEK_END) => self.files.size(node),
            _ => return Err(Errno(EINVAL)),
        };
        let (start, last) = range(before, start.cast_signed(), bytes.cast_signed())?;
        let owner = match open {
            true => Owner::Open(place),
            false => Owner::Process(self.task.number),
        };
        let kind = u32::try_from(kind).map_err(|_| Errno(EINVAL))?;
        if ![F_RDLCK, F_WRLCK, F_UNLCK].contains(&kind) {
            return Err(Errno(EINVAL));
        }
        let lock = Lock {
            node,
            owner,
            exclusive: kind == F_WRLCK,
            start,
            last,
        };
        Ok(Asked { lock, kind })
    }

    fn tell_lock(&mut self, file: u64, place: u64, open: bool) -> Answer {
        let Asked { lock, kind } = self.asked(file, place, open)?;
        if kind == F_UNLCK {
            return Err(Errno(EINVAL));
        }
        let Some(met) = self.locks.conflict(&lock) else {
            let none = F_UNLCK.to_le_bytes();
            return self.write(place, &none[..2]).map(|()| 0);
        };
        let kind = if met.exclusive { F_WRLCK } else { F_RDLCK };
        let bytes = match met.last {
            u64::MAX => 0,
            last => last - met.start + 1,
        };
        let process = match met.owner {
            Owner::Process(number) => number,
            _ => NOBODY,
        };
        self.write_words(place, &[kind.into(), met.start, bytes])?;
        self.write_half(place.wrapping_add(24), process)?;
        Ok(0)
    }

    fn set_lock(&mut self, file: u64, place: u64, open: bool, held: Errno) -> Answer {
        let Asked { lock, kind } = self.asked(file, place, open)?;
        let way = self.files.of(file)?.flags & O_ACCMODE;
        let cannot = match kind {
            F_RDLCK => way == O_WRONLY,
            F_WRLCK => way == O_RDONLY,
            _ => false,
        };
        if cannot {
            return Err(Errno(EBADF));
        }
        let locks = kind != F_UNLCK;
        if locks && self.locks.conflict(&lock).is_some() {
            if held == LATER && self.waits_for_itself(&lock) {
                return Err(Errno(EDEADLK));
            }
            self.threads.current().wait.lock = Some(lock);
            return Err(held);
        }
        self.locks.set(&lock, locks).map(|()| 0)
    }

    /// Would a process wait for a lock of one that waits for it, be it by others?
    fn waits_for_itself(&self, wanted: &Lock) -> bool {
        let mut wanted = *wanted;
        // No row of those that wait is longer than there are processes.
        for _ in 0..PROCESSES {
            let Some(Owner::Process(holder)) = self.locks.conflict(&wanted).map(|it| it.owner)
            else {
                return false;
            };
            if Owner::Process(holder) == self.own_locks() {
                return true;
            }
            let Some(next) = self.lock_waited_for(holder) else {
                return false;
            };
            wanted = next;
        }
        false
    }

    fn own_locks(&self) -> Owner {
        Owner::Process(self.task.number)
    }

    /// The lock that a thread of this process waits for.
    fn lock_waited_for(&self, process: u64) -> Option<Lock> {
        let place = self.process_of(process)?;
        let all = self.threads.waits_of(place);
        let mut locks = all.filter_map(|it| it.lock);
        locks.find(|it| it.owner == Owner::Process(process))
    }

    /// `flock`: locks a whole file for what is open.
    pub(super) fn lock_whole(&mut self, file: u64, operation: u64) -> Answer {
        let place = self.files.place(file)?;
        let node = self.files.open_at(place).node().map_err(|_| Errno(EBADF))?;
        let operation = u32::try_from(operation & 0xffff_ffff).unwrap_or(0);
        let exclusive = match operation & !LOCK_NB {
            LOCK_SH | LOCK_UN => false,
            LOCK_EX => true,
            _ => return Err(Errno(EINVAL)),
        };
        let lock = Lock {
            node,
            owner: Owner::Whole(place),
            exclusive,
            start: 0,
            last: u64::MAX,
        };
        let locks = operation & LOCK_UN == 0;
        if locks && self.locks.conflict(&lock).is_some() {
            let waits = operation & LOCK_NB == 0;
            return Err(if waits { LATER } else { Errno(EAGAIN) });
        }
        self.locks.set(&lock, locks).map(|()| 0)
    }
}

/// The first and the last byte of so many from a place on; all behind it if there are none, and
/// those before it if there are less.
fn range(before: u64, start: i64, bytes: i64) -> Result<(u64, u64), Errno> {
    let wraps = Errno(EOVERFLOW);
    let place = i64::try_from(before)
        .ok()
        .and_then(|it| it.checked_add(start));
    let place = place.ok_or(wraps)?;
    let (first, last) = match bytes {
        0 => (place, None),
        1.. => (place, Some(place.checked_add(bytes - 1).ok_or(wraps)?)),
        _ => (place.checked_add(bytes).ok_or(wraps)?, Some(place - 1)),
    };
    let first = u64::try_from(first).map_err(|_| Errno(EINVAL))?;
    Ok((first, last.map_or(u64::MAX, i64::cast_unsigned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_from_a_place_both_ways() {
        assert_eq!(range(5, 5, 10), Ok((10, 19)));
        assert_eq!(range(5, -5, 0), Ok((0, u64::MAX)));
        assert_eq!(range(20, 0, -10), Ok((10, 19)));
        assert_eq!(range(5, -6, 1), Err(Errno(EINVAL)));
        assert_eq!(range(5, i64::MAX, 1), Err(Errno(EOVERFLOW)));
    }
}
