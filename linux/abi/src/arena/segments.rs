//! System V shared memory segments, private to the run.
//!
//! Identifiers are numbers counted up, so none comes back.

/// Most segments at a time.
const MOST: usize = 4096;

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Segment {
    /// Where its piece begins.
    pub piece: u64,
    /// Its size as asked for.
    pub size: u64,
    /// Seconds since 1970 of the last attach, detach and change.
    pub times: [u64; 3],
    /// Its identifier; 0 for an empty place.
    pub id: u32,
    /// Its key; 0 if it is private.
    pub key: u32,
    /// Permissions; [`Segment::REMOVED`] if it is to go with its last user.
    pub mode: u32,
    /// User and group id of the owner, then of the creator.
    pub owners: [u32; 4],
    /// Process ids of the creator and of the last that attached or detached it.
    pub pids: [u32; 2],
    /// How often it is attached.
    pub attached: u32,
}

impl Segment {
    /// The kernel's `SHM_DEST`.
    pub const REMOVED: u32 = 0o1000;
    /// The kernel's `SHM_LOCKED`.
    pub const LOCKED: u32 = 0o2000;

    /// Is it to go with its last user?
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.mode & Self::REMOVED != 0
    }

    /// Is it locked in memory, as far as the program can tell?
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        self.mode & Self::LOCKED != 0
    }

    const fn is_there(&self) -> bool {
        self.id != 0
    }
}

/// All segments.
#[repr(C)]
#[derive(Debug)]
pub struct Segments {
    last_id: u32,
    padding: u32,
    list: [Segment; MOST],
}

impl Segments {
    /// The segment with this identifier.
    pub fn by_id(&mut self, id: u32) -> Option<&mut Segment> {
        self.list.iter_mut().find(|it| id != 0 && it.id == id)
    }

    /// The segment with this key, if it can still be found by it.
    #[must_use]
    pub fn by_key(&self, key: u32) -> Option<Segment> {
        let mut found = self.list.iter().filter(|it| it.id != 0 && key != 0);
        found.find(|it| it.key == key && !it.is_removed()).copied()
    }

    /// The segment whose memory this is.
    pub fn by_piece(&mut self, piece: u64) -> Option<&mut Segment> {
        self.list
            .iter_mut()
            .find(|it| it.id != 0 && it.piece == piece)
    }

    /// The segment at this place of the list, as the kernel lists them.
    #[must_use]
    pub fn at(&self, place: u32) -> Option<Segment> {
        let found = self.list.get(usize::try_from(place).ok()?)?;
        found.is_there().then_some(*found)
    }

    /// The last place that is not empty; 0 if all are.
    #[must_use]
    pub fn last_place(&self) -> u32 {
        let last = self.list.iter().rposition(Segment::is_there);
        last.and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
    }

    /// How many there are, and how many pages they have together.
    #[must_use]
    pub fn usage(&self) -> [u64; 2] {
        let there = self.list.iter().filter(|it| it.is_there());
        there.fold([0, 0], |[count, pages], it| {
            [count + 1, pages + it.size.div_ceil(4096)]
        })
    }

    /// Bytes of all that are locked, in whole pages.
    #[must_use]
    pub fn locked(&self) -> u64 {
        let there = self.list.iter().filter(|it| it.is_there());
        let locked = there.filter(|it| it.is_locked());
        locked.map(|it| it.size.next_multiple_of(4096)).sum()
    }

    /// Is there room for one more?
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.list.iter().any(|it| it.id == 0)
    }

    /// Adds a segment and gives it its identifier; `None` if there is no room.
    pub fn add(&mut self, segment: Segment) -> Option<u32> {
        let place = self.list.iter_mut().find(|it| it.id == 0)?;
        self.last_id += 1;
        *place = Segment {
            id: self.last_id,
            ..segment
        };
        Some(self.last_id)
    }

    /// Forgets a segment.
    pub fn remove(&mut self, id: u32) {
        if let Some(segment) = self.by_id(id) {
            *segment = Segment::default();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;

    fn none() -> Box<Segments> {
        Box::new(Segments {
            last_id: 0,
            padding: 0,
            list: [Segment::default(); MOST],
        })
    }

    #[test]
    fn segments_are_found_by_key_until_removed() {
        let mut all = none();
        let segment = Segment {
            key: 9,
            piece: 4096,
            ..Segment::default()
        };
        let id = all.add(segment).expect("room");
        assert_eq!(all.by_key(9).map(|it| it.id), Some(id));
        assert_eq!(all.by_key(0), None);
        all.by_id(id).expect("there").mode |= Segment::REMOVED;
        assert_eq!(all.by_key(9), None);
        assert_eq!(all.by_piece(4096).map(|it| it.id), Some(id));
        all.remove(id);
        assert!(all.by_id(id).is_none());
    }

    #[test]
    fn what_there_is_is_counted() {
        let mut all = none();
        assert_eq!((all.usage(), all.last_place()), ([0, 0], 0));
        let sized = |size, mode| Segment {
            size,
            mode,
            ..Segment::default()
        };
        let first = all.add(sized(1, 0)).expect("room");
        let second = all.add(sized(4097, Segment::LOCKED)).expect("room");
        assert_eq!((all.usage(), all.last_place()), ([2, 3], 1));
        assert_eq!(all.locked(), 8192);
        all.remove(first);
        assert_eq!(all.usage(), [1, 2]);
        assert_eq!(all.at(0), None);
        assert_eq!(all.at(1).map(|it| it.id), Some(second));
        assert_eq!(all.at(u32::MAX), None);
    }

    #[test]
    fn identifiers_do_not_come_back() {
        let mut all = none();
        let first = all.add(Segment::default());
        all.remove(first.expect("room"));
        assert_ne!(all.add(Segment::default()), first);
        let made = (0..2 * MOST).take_while(|_| all.add(Segment::default()).is_some());
        assert_eq!(made.count(), MOST - 1);
        assert!(!all.has_room());
    }
}
