//! Locks that programs have on parts of files.
//!
//! A process that has a lock keeps others from one that conflicts, if they ask; nothing else is
//! kept from anybody. Those of a process end when it closes the file, whatever else leads to it.

use linux_raw_sys::errno::ENOLCK;

use super::Errno;

/// Most locks.
const LOCKS: usize = 64;

/// Who has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The process of this number.
    Process(u64),
    /// What is open at this place.
    Open(usize),
    /// The same, by locks of whole files (`flock`), which the others know nothing of.
    Whole(usize),
}

impl Owner {
    const fn is_whole(self) -> bool {
        matches!(self, Self::Whole(_))
    }
}

/// A lock of the bytes of a file from `start` to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    pub(crate) node: usize,
    pub(crate) owner: Owner,
    pub(crate) exclusive: bool,
    pub(crate) start: u64,
    pub(crate) last: u64,
}

impl Lock {
    const fn overlaps(&self, other: &Self) -> bool {
        self.node == other.node && self.start <= other.last && other.start <= self.last
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.overlaps(other)
            && self.owner != other.owner
            && self.owner.is_whole() == other.owner.is_whole()
            && (self.exclusive || other.exclusive)
    }
}

/// All locks of the machine.
#[derive(Debug)]
pub(crate) struct Locks([Option<Lock>; LOCKS]);

impl Locks {
    pub(crate) const fn new() -> Self {
        Self([None; LOCKS])
    }

    /// Who keeps this one from being had, if anybody does: the first in the file.
    pub(crate) fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        let all = self.0.iter().flatten().copied();
        let others = all.filter(|it| it.conflicts(wanted));
        others.min_by_key(|it| it.start)
    }

    /// The owner has these bytes locked so, and not as before; or not at all.
    ///
    /// # Errors
    /// If there are too many locks.
    pub(crate) fn set(&mut self, wanted: &Lock, locks: bool) -> Result<(), Errno> {
        let is_old = |it: &Lock| it.owner == wanted.owner && it.overlaps(wanted);
        let old = self.0.iter().flatten().filter(|it| is_old(it));
        // Locks of one owner do not overlap: what is left are the ends of the first and the last.
        let (mut before, mut behind) = (None, None);
        for it in old {
            if it.start < wanted.start {
                let last = wanted.start - 1;
                before = Some(Lock { last, ..*it });
            }
            if it.last > wanted.last {
                let start = wanted.last + 1;
                behind = Some(Lock { start, ..*it });
            }
        }
        let new = [before, locks.then_some(*wanted), behind];
        let free = |it: &&Option<Lock>| it.as_ref().is_none_or(is_old);
        if self.0.iter().filter(free).count() < new.iter().flatten().count() {
            return Err(Errno(ENOLCK));
        }
        self.forget(|it| is_old(it));
        for lock in new.into_iter().flatten() {
            if let Some(place) = self.0.iter_mut().find(|it| it.is_none()) {
                *place = Some(lock);
            }
        }
        Ok(())
    }

    /// Takes some away.
    pub(crate) fn forget(&mut self, which: impl Fn(&Lock) -> bool) {
        for it in &mut self.0 {
            if it.as_ref().is_some_and(&which) {
                *it = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(process: u64, exclusive: bool, start: u64, last: u64) -> Lock {
        Lock {
            node: 1,
            owner: Owner::Process(process),
            exclusive,
            start,
            last,
        }
    }

    #[test]
    fn locks_of_others_conflict_if_one_is_exclusive() {
        let mut locks = Locks::new();
        locks.set(&lock(1, false, 10, 19), true).unwrap();
        assert_eq!(locks.conflict(&lock(2, false, 0, 99)), None);
        assert_eq!(locks.conflict(&lock(1, true, 0, 99)), None);
        assert_eq!(locks.conflict(&lock(2, true, 0, 9)), None);
        let met = locks.conflict(&lock(2, true, 19, 30));
        assert_eq!(met, Some(lock(1, false, 10, 19)));
        let whole = Lock {
            owner: Owner::Whole(3),
            ..lock(0, true, 0, u64::MAX)
        };
        assert_eq!(locks.conflict(&whole), None);
    }

    #[test]
    fn a_part_is_locked_otherwise_or_not_at_all() {
        let mut locks = Locks::new();
        locks.set(&lock(1, true, 0, u64::MAX), true).unwrap();
        locks.set(&lock(1, false, 10, 19), true).unwrap();
        assert_eq!(locks.conflict(&lock(2, false, 12, 15)), None);
        let before = locks.conflict(&lock(2, false, 0, 50));
        assert_eq!(before, Some(lock(1, true, 0, 9)));
        let behind = locks.conflict(&lock(2, false, 15, 50));
        assert_eq!(behind, Some(lock(1, true, 20, u64::MAX)));
        locks.set(&lock(1, false, 5, 30), false).unwrap();
        assert_eq!(locks.conflict(&lock(2, true, 5, 30)), None);
        locks.forget(|_| true);
        assert_eq!(locks.conflict(&lock(2, true, 0, u64::MAX)), None);
    }

    #[test]
    fn there_are_so_many() {
        let mut locks = Locks::new();
        for at in 0..LOCKS as u64 {
            locks
                .set(&lock(1, true, 10 * at, 10 * at + 5), true)
                .unwrap();
        }
        let more = lock(1, true, 9999, 9999);
        assert_eq!(locks.set(&more, true), Err(Errno(ENOLCK)));
        // Taking away a piece in the middle makes two of one.
        assert_eq!(locks.set(&lock(1, true, 2, 3), false), Err(Errno(ENOLCK)));
        assert!(locks.conflict(&lock(2, true, 2, 3)).is_some());
        assert_eq!(locks.set(&lock(1, true, 0, 9999), true), Ok(()));
    }
}
