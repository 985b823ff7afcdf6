//! What stands on the disk.
//!
//! Blocks 0 and 1 are *roots*, the rest is two halves. The root of generation `g` is block `g % 2`,
//! and what it says is that half `g % 2` counts. A half holds *transactions*, one behind the other,
//! each from a block's beginning on: a header, then records. The first one of a half is all that
//! there is, what follows are changes.
//!
//! All numbers are words of eight bytes, the lowest first. Digests are XXH3 with 64 bits.

use xxhash_rust::xxh3::xxh3_64;

use crate::disk::Block;

/// Blocks before the halves, and bytes of one.
pub(super) const ROOTS: u64 = 2;
pub(super) const BLOCK: usize = rcoe_abi::service::DISK_BLOCK;
/// Fewest blocks of a disk.
pub(super) const FEWEST: u64 = 256;

const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"rcoeroot");
const TRANSACTION_MAGIC: u64 = u64::from_le_bytes(*b"rcoetran");
const VERSION: u64 = 1;

/// Bytes of the header of a transaction, and of a record without what follows it.
pub(super) const HEADER: usize = 64;
pub(super) const RECORD: usize = 48;

/// What a place on the disk says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found<T> {
    /// Nothing of this kind.
    Nothing,
    /// This.
    Whole(T),
    /// Something of this kind that is not as it was written.
    Damaged,
}

/// Which half counts, of a disk of so many blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Root {
    pub(super) generation: u64,
    pub(super) blocks: u64,
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    core::array::from_fn(|index| {
        let word = bytes[8 * index..].first_chunk();
        u64::from_le_bytes(*word.expect("there are as many words"))
    })
}

/// Writes words, and behind them their digest.
fn seal(into: &mut [u8], words: &[u64]) {
    for (place, word) in into.chunks_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let end = 8 * words.len();
    let digest = xxh3_64(&into[..end]);
    into[end..end + 8].copy_from_slice(&digest.to_le_bytes());
}

/// Is the word behind so many words their digest?
fn is_sealed(bytes: &[u8], count: usize) -> bool {
    let [digest] = words(&bytes[8 * count..]);
    digest == xxh3_64(&bytes[..8 * count])
}

impl Root {
    pub(super) fn write(self, into: &mut Block) {
        into.fill(0);
        seal(into, &[ROOT_MAGIC, VERSION, self.generation, self.blocks]);
    }

    pub(super) fn read(block: &Block) -> Found<Self> {
        if block.iter().all(|&byte| byte == 0) {
            return Found::Nothing;
        }
        let [magic, version, generation, blocks] = words(block);
        if (magic, version) != (ROOT_MAGIC, VERSION) || !is_sealed(block, 4) {
            return Found::Damaged;
        }
        Found::Whole(Self { generation, blocks })
    }
}

/// The header of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) generation: u64,
    /// Its number in its half.
    pub(super) sequence: u64,
    /// Bytes of its records, and their digest.
    pub(super) bytes: u64,
    pub(super) digest: u64,
}

impl Header {
    pub(super) fn write(self, into: &mut Block) {
        let Self {
            generation,
            sequence,
            bytes,
            digest,
        } = self;
        let words = [TRANSACTION_MAGIC, generation, sequence, bytes, digest];
        seal(into, &words);
        into[8 * (words.len() + 1)..HEADER].fill(0);
    }

    pub(super) fn read(block: &Block) -> Found<Self> {
        let [magic, generation, sequence, bytes, digest] = words(block);
        match (magic == TRANSACTION_MAGIC, is_sealed(block, 5)) {
            (false, _) => Found::Nothing,
            (true, false) => Found::Damaged,
            (true, true) => Found::Whole(Self {
                generation,
                sequence,
                bytes,
                digest,
            }),
        }
    }
}

/// Blocks of a transaction with so many bytes of records.
pub(super) const fn blocks_of(bytes: u64) -> u64 {
    (HEADER as u64 + bytes).div_ceil(BLOCK as u64)
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Kind {
    /// A file is gone.
    Gone = 1,
    /// There is a file.
    File = 2,
    /// There is a folder.
    Folder = 3,
    /// A page of a file holds what follows.
    Page = 4,
    /// There is a symbolic link.
    Link = 5,
    /// There is a further name of a file.
    Same = 6,
}

/// The words of a record, behind that of its kind and of the number of its file: mode and bytes of
/// the path, size, least size, and both times; or which page. Of a further name the size is the
/// number of the file. A path follows, filled up with zeroes, or a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) id: u16,
    pub(super) words: [u64; 5],
}

impl Record {
    pub(super) fn bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let first = self.kind as u64 | u64::from(self.id) << 32;
        let all = core::iter::once(first).chain(self.words);
        for (place, word) in bytes.chunks_mut(8).zip(all) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8; RECORD]) -> Option<Self> {
        let [first, rest @ ..]: [u64; 6] = words(bytes);
        let kind = match first & 0xffff_ffff {
            1 => Kind::Gone,
            2 => Kind::File,
            3 => Kind::Folder,
            4 => Kind::Page,
            5 => Kind::Link,
            6 => Kind::Same,
            _ => return None,
        };
        Some(Self {
            kind,
            id: u16::try_from(first >> 32).ok()?,
            words: rest,
        })
    }
}
