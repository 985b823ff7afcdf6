//! Writing a transaction.
//!
//! Its first block is written last, when all that it says is there already: then a machine that is
//! lost on the way leaves the transaction or nothing of it.

use xxhash_rust::xxh3::Xxh3;

use super::format::{BLOCK, HEADER, Header, Kind, RECORD, Record};
use crate::disk::{Block, DiskError};
use crate::linux::files::{Sort, Told};
use crate::linux::machine::{Machine, PAGE};

/// A transaction that is being written, from this block on.
pub(super) struct Writer {
    start: u64,
    first: Block,
    block: Block,
    /// Bytes of header and records so far, and their digest.
    at: usize,
    digest: Xxh3,
}

/// Bytes that a path takes.
const fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// Bytes of the records that tell this.
pub(super) const fn bytes_of(told: &Told<'_>) -> u64 {
    let more = match told {
        Told::Gone(_) => 0,
        Told::File(_, name) => padded(name.path.len()) as u64,
        Told::Page(..) => PAGE,
    };
    RECORD as u64 + more
}

fn record_of(told: &Told<'_>) -> Record {
    match *told {
        Told::Gone(id) => Record {
            kind: Kind::Gone,
            id,
            words: [0; 5],
        },
        Told::File(id, name) => {
            let (kind, size) = match name.sort {
                Sort::File => (Kind::File, name.size),
                Sort::Folder => (Kind::Folder, name.size),
                Sort::Link => (Kind::Link, name.size),
                Sort::Same(file) => (Kind::Same, file.into()),
            };
            let first = u64::from(name.mode) | (name.path.len() as u64) << 32;
            let [used, changed] = name.times;
            Record {
                kind,
                id,
                words: [first, size, name.least, used, changed],
            }
        }
        Told::Page(id, page, _) => Record {
            kind: Kind::Page,
            id,
            words: [page, 0, 0, 0, 0],
        },
    }
}

impl Writer {
    pub(super) fn new(start: u64) -> Self {
        Self {
            start,
            first: [0; BLOCK],
            block: [0; BLOCK],
            at: HEADER,
            digest: Xxh3::new(),
        }
    }

    /// Adds what is told.
    pub(super) fn put(
        &mut self,
        machine: &mut impl Machine,
        told: &Told<'_>,
    ) -> Result<(), DiskError> {
        self.bytes(machine, &record_of(told).bytes())?;
        match told {
            Told::Gone(_) => Ok(()),
            Told::File(_, name) => {
                self.bytes(machine, name.path)?;
                let zeros = padded(name.path.len()) - name.path.len();
                self.bytes(machine, &[0; 8][..zeros])
            }
            &Told::Page(_, _, frame) => {
                let mut page = [0; BLOCK];
                machine.read(frame, 0, &mut page);
                self.bytes(machine, &page)
            }
        }
    }

    fn bytes(&mut self, machine: &mut impl Machine, mut bytes: &[u8]) -> Result<(), DiskError> {
        self.digest.update(bytes);
        while !bytes.is_empty() {
            let at = self.at % BLOCK;
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - at));
            self.block[at..at + now.len()].copy_from_slice(now);
            self.at += now.len();
            bytes = rest;
            if self.at.is_multiple_of(BLOCK) {
                self.full(machine)?;
            }
        }
        Ok(())
    }

    /// The block at hand is full, or the last one.
    fn full(&mut self, machine: &mut impl Machine) -> Result<(), DiskError> {
        let number = (self.at - 1) / BLOCK;
        if number == 0 {
            self.first = self.block;
        } else {
            machine.write_block(self.start + number as u64, &self.block)?;
        }
        self.block.fill(0);
        Ok(())
    }

    /// Ends the transaction, which is on the disk for good then.
    pub(super) fn end(
        mut self,
        machine: &mut impl Machine,
        generation: u64,
        sequence: u64,
    ) -> Result<(), DiskError> {
        if !self.at.is_multiple_of(BLOCK) {
            self.full(machine)?;
        }
        if self.at > BLOCK {
            machine.flush()?;
        }
        let header = Header {
            generation,
            sequence,
            bytes: (self.at - HEADER) as u64,
            digest: self.digest.digest(),
        };
        header.write(&mut self.first);
        machine.write_block(self.start, &self.first)?;
        machine.flush()
    }
}
