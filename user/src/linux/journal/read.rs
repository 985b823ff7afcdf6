//! Reading a transaction: what is on the disk is from outside, so nothing of it is trusted but what
//! has its digest.

use xxhash_rust::xxh3::Xxh3;

use super::format::{BLOCK, HEADER, Header, Kind, RECORD, Record};
use crate::disk::Block;
use crate::linux::files::{Files, Name, Path, Sort};
use crate::linux::machine::Machine;
use crate::linux::{Errno, Sparse};
use linux_raw_sys::errno::ENOSPC;

/// Why a transaction cannot be taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// It is not what was written.
    Damaged,
    /// The disk cannot be read.
    Unreadable,
    /// There is no room for it.
    Full,
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        match error {
            Errno(ENOSPC) => Self::Full,
            _ => Self::Damaged,
        }
    }
}

/// A transaction that is being read.
pub(super) struct Reader<'b> {
    block: &'b mut Block,
    /// Its first block, and bytes of header and records so far and in all.
    start: u64,
    at: u64,
    end: u64,
    digest: Xxh3,
}

impl<'b> Reader<'b> {
    /// That with this header, from its first block on, which is read.
    pub(super) fn new(block: &'b mut Block, start: u64, header: &Header) -> Self {
        Self {
            block,
            start,
            at: HEADER as u64,
            end: HEADER as u64 + header.bytes,
            digest: Xxh3::new(),
        }
    }

    fn take(&mut self, machine: &mut impl Machine, into: &mut [u8]) -> Result<(), Trouble> {
        let mut done = 0;
        while done < into.len() {
            let within = usize::try_from(self.at % BLOCK as u64).unwrap_or(0);
            if within == 0 {
                let block = self.start + self.at / BLOCK as u64;
                let read = machine.read_block(block, self.block);
                read.map_err(|_| Trouble::Unreadable)?;
            }
            let count = (BLOCK - within).min(into.len() - done);
            if self.at + count as u64 > self.end {
                return Err(Trouble::Damaged);
            }
            into[done..done + count].copy_from_slice(&self.block[within..within + count]);
            self.at += count as u64;
            done += count;
        }
        self.digest.update(into);
        Ok(())
    }

    /// Takes all over.
    pub(super) fn replay(
        mut self,
        machine: &mut impl Machine,
        (files, store): (&mut Files<'_>, &mut Sparse<'_>),
        folder: Path,
        digest: u64,
    ) -> Result<(), Trouble> {
        while self.at < self.end {
            let mut bytes = [0; RECORD];
            self.take(machine, &mut bytes)?;
            let record = Record::read(&bytes).ok_or(Trouble::Damaged)?;
            match record.kind {
                Kind::Gone => {
                    let there = files.hear_gone(store, machine, record.id);
                    there.then_some(()).ok_or(Trouble::Damaged)?;
                }
                Kind::Page => {
                    let mut page = [0; BLOCK];
                    self.take(machine, &mut page)?;
                    let place = (record.id, record.words[0]);
                    files.hear_page(store, machine, place, &page)?;
                }
                Kind::File | Kind::Folder | Kind::Link | Kind::Same => {
                    self.name(machine, (files, store), folder, &record)?;
                }
            }
        }
        match self.digest.digest() == digest {
            true => Ok(()),
            false => Err(Trouble::Damaged),
        }
    }

    fn name(
        &mut self,
        machine: &mut impl Machine,
        (files, store): (&mut Files<'_>, &mut Sparse<'_>),
        folder: Path,
        record: &Record,
    ) -> Result<(), Trouble> {
        let [first, size, least, used, changed] = record.words;
        let mut path = [0; 128];
        let len = usize::try_from(first >> 32).unwrap_or(usize::MAX);
        let whole = len.checked_next_multiple_of(8).unwrap_or(usize::MAX);
        let path = path.get_mut(..whole).ok_or(Trouble::Damaged)?;
        self.take(machine, path)?;
        let name = Name {
            path: &path[..len],
            sort: match record.kind {
                Kind::Folder => Sort::Folder,
                Kind::Link => Sort::Link,
                Kind::Same => Sort::Same(u16::try_from(size).map_err(|_| Trouble::Damaged)?),
                _ => Sort::File,
            },
            mode: u32::try_from(first & 0xffff_ffff).unwrap_or(0),
            size,
            least,
            times: [used, changed],
        };
        Ok(files.hear_name(store, machine, folder, (record.id, name))?)
    }
}
