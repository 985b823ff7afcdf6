//! Reading a file: each replica does it itself, and a record has a digest of what the primary got.
//!
//! Intuition: the host's page cache holds the bytes for everybody, so the ring need not carry them,
//! and what a follower reads itself is the second reading without which a flip in the primary's
//! memory would reach all (see [`reread`](crate::protocol::reread)). Nearly always the digests are
//! equal, and that is all.
//!
//! A follower that goes through a file reads it ahead, as [`reread`](crate::protocol::reread) does.
//! What it has so is taken if it has the digest of the record. If not, that says nothing, since the
//! file may have been changed before the primary read it, and the follower reads the piece itself.
//!
//! If digests differ, somebody has changed the file in between, or a replica was hit; which of both
//! must be certain. So files are read this way only if nobody can change them unseen ([`unseen`]):
//! whoever changes them after that moves a time stamp, of which the record holds the value. If it
//! is still the same, a replica was hit, and the follower calls for a vote. If it is another one,
//! the follower takes the bytes of the primary, which keeps the last ones where siblings can read
//! them ([`kept`]).
//!
//! Contract: a descriptor that was read this way is closed after a vote only, because a follower
//! reads by its number.
//!
//! Not covered: groups that go on without a lost primary. A primary that went astray may have moved
//! the positions of files further than its siblings know; there the ring carries the bytes.

mod kept;
mod unseen;

use rcoe_core::{Checksum, Replica, ReplicaId};

use crate::arch::digest::Digest;
use crate::convert::{low32, size};
use crate::memory::guest::{self, Fault};
use crate::memory::{deferred, regions};
use crate::protocol::brief;
use crate::protocol::env::LinuxEnv;
use crate::protocol::reread::LastRead;
use crate::protocol::segments::Segments;
use crate::sys::{self, Whence};
use kept::Kept;

/// Shorter results cost less in the ring.
const SHORTEST: usize = 4096;
/// Longer results than these are not kept.
const LONGEST: usize = kept::CHUNK;
/// Readings of one file in a row before it is looked at.
const ROW: u32 = 3;
/// Readings after which a file that can be changed unseen, or was changed, is looked at again.
const PAUSE: u32 = 256;
/// Readings after which it is looked whether the file was changed.
const OFTEN: u32 = 16;

/// In the first word of such a record.
const DIRECT: u64 = 1 << 62;
/// The digest is the one that the processor helps with.
const HELPED: u64 = 1 << 61;
/// Bits of the result in the first word; the descriptor follows.
const LENGTH_BITS: u32 = 20;
const _: () = assert!(LONGEST < 1 << LENGTH_BITS);
/// Words of such a record.
const WORDS: usize = 5;

/// What a primary knows of the file that it reads, and where its bytes are kept.
pub(crate) struct Direct {
    fd: u64,
    /// Readings until something is looked at.
    left: u32,
    /// The file's time stamp and what else tells its version, if nobody can change it unseen.
    version: Option<u64>,
    /// Where the reading before this one ended, and how many records there were then.
    end: u64,
    records: u64,
    kept: Kept,
    /// Follower: the part of the primary's kept bytes of which it has told last that it has come
    /// so far.
    told: usize,
}

impl Direct {
    /// Nothing is known.
    pub(crate) const NOTHING: Self = Self {
        fd: u64::MAX,
        left: ROW,
        version: None,
        end: 0,
        records: 0,
        kept: Kept::NOTHING,
        told: usize::MAX,
    };

    /// The version of this file if it is known and looked at often enough. `noted`: all know that
    /// it is read this way.
    fn version_of(&mut self, fd: u64, noted: bool) -> Option<u64> {
        if self.fd != fd {
            self.fd = fd;
            self.left = ROW;
            self.version = None;
        }
        self.left -= 1;
        let Some(known) = self.version else {
            if self.left == 0 {
                self.version = unseen::version(fd);
                self.left = if self.version.is_some() { OFTEN } else { PAUSE };
            }
            // It was read before anybody looked.
            return None;
        };
        if noted && self.left != 0 {
            return Some(known);
        }
        self.left = OFTEN;
        if unseen::present_version(fd) != Some(known) {
            self.version = None;
            self.left = PAUSE;
        }
        self.version
    }
}

/// What a follower has to know of a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    fd: u32,
    length: usize,
    helped: bool,
    offset: u64,
    version: u64,
    digest: u64,
    /// Where the bytes are kept.
    place: usize,
}

impl Record {
    fn words(&self) -> [u64; WORDS] {
        let helped = if self.helped { HELPED } else { 0 };
        let first = DIRECT | helped | u64::from(self.fd) << LENGTH_BITS | self.length as u64;
        [
            first,
            self.offset,
            self.version,
            self.digest,
            self.place as u64,
        ]
    }

    fn of(words: &[u64]) -> Option<Self> {
        let &[first, offset, version, digest, place] = words else {
            return None;
        };
        is_direct(first).then_some(Self {
            fd: low32(first >> LENGTH_BITS),
            length: size(first & ((1 << LENGTH_BITS) - 1)),
            helped: first & HELPED != 0,
            offset,
            version,
            digest,
            place: size(place),
        })
    }

    fn digest_of(&self, address: u64) -> Result<u64, Fault> {
        let digest = Digest::new(self.helped).of(address, self.length);
        digest.ok_or(Fault)
    }
}

/// Is this how such a record begins?
#[inline]
pub(crate) const fn is_direct(first: u64) -> bool {
    first >> 62 == 1
}

/// What a call has read.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) fd: u64,
    /// Where in the file; none if at its position.
    pub(crate) at: Option<u64>,
    pub(crate) result: i64,
    /// It is noted that each replica reads this file by itself.
    pub(crate) noted: bool,
}

impl Direct {
    /// Primary: publishes it in such a record, if that can be. None if nothing was done.
    pub(crate) fn publish(
        &mut self,
        replica: &mut Replica<'_, LinuxEnv>,
        segments: &Segments,
        reading: Reading,
    ) -> Option<()> {
        let (address, length) = place_of(segments, reading.result)?;
        let version = self.version_of(reading.fd, reading.noted)?;
        let offset = self.offset_of(replica, reading, length)?;
        let (place, digest, helped) = self.keep(replica, address, length)?;
        let record = Record {
            fd: low32(reading.fd),
            length,
            helped,
            offset,
            version,
            digest,
            place,
        };
        if !put(replica, &record) {
            return None;
        }
        replica.env_mut().add_work();
        self.kept.filled(replica, length);
        self.end = offset + length as u64;
        self.records = replica.records();
        Some(())
    }

    /// Where in the file the result begins. If nothing has been read or asked of anything since,
    /// where the reading before ended: what is noted of a descriptor is forgotten when it is
    /// copied, moved or shared.
    fn offset_of(
        &self,
        replica: &Replica<'_, LinuxEnv>,
        reading: Reading,
        length: usize,
    ) -> Option<u64> {
        match reading.at {
            Some(offset) => Some(offset),
            None if self.records == replica.records() => Some(self.end),
            None => sys::seek(reading.fd, 0, Whence::Current)?.checked_sub(length as u64),
        }
    }

    /// Keeps the bytes; where, their digest, and which digest that is.
    fn keep(
        &mut self,
        replica: &mut Replica<'_, LinuxEnv>,
        address: u64,
        length: usize,
    ) -> Option<(usize, u64, bool)> {
        let place = self.kept.place(replica, length, WORDS)?;
        let fastest = Digest::fastest();
        let to = bytes_of(replica.id()) + place as u64;
        let digest = fastest.of_copy(address, length, to)?;
        Some((place, digest, fastest.is_helped()))
    }

    /// Follower: reads what the primary has read, if this record is such a one.
    ///
    /// # Panics
    /// If the record is not of this call.
    pub(crate) fn take(
        &mut self,
        replica: &mut Replica<'_, LinuxEnv>,
        segments: &Segments,
        last: &mut LastRead,
        words: &[u64],
    ) -> Option<Taken> {
        let record = Record::of(words)?;
        let room = segments.room(0);
        let (address, room) = room.expect("the record holds this call's result");
        assert!(
            record.length as u64 <= room && segments.room(1).is_none(),
            "the record holds this call's result"
        );
        // The primary may wait for it.
        let part = kept::part_of(record.place);
        if self.told != part {
            self.told = part;
            replica.tell_position();
        }
        let kept = bytes_of(replica.primary()) + record.place as u64;
        Some(Taken {
            fd: record.fd.into(),
            result: record.length.cast_signed() as i64,
            held: hold(&record, address, kept, last),
        })
    }
}

/// What a follower has read.
pub(crate) struct Taken {
    pub(crate) fd: u64,
    pub(crate) result: i64,
    pub(crate) held: Held,
}

/// Where a call has put what it has read, if that is one piece of a fitting length.
fn place_of(segments: &Segments, result: i64) -> Option<(u64, usize)> {
    let length = usize::try_from(result).ok()?;
    let mut filled = segments.filled();
    let (address, bytes) = filled.next()?;
    let fits = (SHORTEST..=LONGEST).contains(&length) && bytes == length as u64;
    (fits && filled.next().is_none()).then_some((address, length))
}

/// Where a replica keeps bytes.
fn bytes_of(id: ReplicaId) -> u64 {
    regions::intake(regions::own_group(), id.index())
}

/// Publishes the record; false if nothing was done.
fn put(replica: &mut Replica<'_, LinuxEnv>, record: &Record) -> bool {
    let words = || core::hint::black_box(record).words();
    let Some(place) = replica.place(WORDS) else {
        return false;
    };
    let cells = place.payload().first_chunk();
    let Some(checksum) =
        cells.and_then(|cells| brief::put_all::<WORDS>(cells, words, Checksum::EMPTY))
    else {
        return false;
    };
    replica.publish_at(place, checksum);
    true
}

/// What a follower holds after a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// What the primary holds.
    Same,
    /// Something else of the same file, or nothing that can be trusted; its digest.
    Other(u64),
}

/// Times that a follower reads: one flip spoils one of them.
const ATTEMPTS: usize = 2;

/// Follower: gets the bytes by itself, or from where the primary keeps them.
fn hold(record: &Record, address: u64, kept: u64, last: &mut LastRead) -> Held {
    let mut own = Err(Fault);
    // The host touches memory that is there only.
    if !deferred::is_active() {
        if take_ahead(record, address, last) {
            return Held::Same;
        }
        for _ in 0..ATTEMPTS {
            own = read(record, address);
            if own == Ok(record.digest) {
                return Held::Same;
            }
        }
    }
    // Looked at after reading: who changes the file moves its stamp first.
    if let Ok(digest) = own
        && unseen::present_version(record.fd.into()) == Some(record.version)
    {
        return Held::Other(digest);
    }
    let copied = guest::copy_across(address, kept, record.length as u64);
    let digest = copied.and_then(|()| record.digest_of(address));
    match digest {
        Ok(digest) if digest == record.digest => Held::Same,
        _ => Held::Other(digest.unwrap_or(0)),
    }
}

/// Takes the same piece of what this follower has read ahead, if it has, and that is what the
/// primary holds. Nothing follows if it is not: the file may have been changed since.
fn take_ahead(record: &Record, address: u64, last: &mut LastRead) -> bool {
    let file = last.file(record.fd.into(), Some(record.offset), record.length as u64);
    let Some(mut file) = file else {
        return false;
    };
    let Some(from) = file.stand_at() else {
        return false;
    };
    let digest = Digest::new(record.helped).of_copy(from, record.length, address);
    let same = digest == Some(record.digest);
    if !same {
        file.read_anew(last);
    }
    same
}

/// Reads the same piece of the file; its digest, if all of it came.
fn read(record: &Record, address: u64) -> Result<u64, Fault> {
    let read = sys::pread_at(record.fd, address, record.length, record.offset);
    if read != Some(record.length) {
        return Err(Fault);
    }
    record.digest_of(address)
}

#[cfg(test)]
mod tests;
