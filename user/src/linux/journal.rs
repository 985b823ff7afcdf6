//! The files of the disk outlive the machine: a journal of them.
//!
//! All files are in memory; those in one folder are on the disk too. `fsync` and its like write a
//! *transaction* that holds whatever of any file there changed since the last one, then have the
//! disk make it last. So what is on the disk is what the folder was at one moment, whenever the
//! machine is lost. A half of the disk that is full is left for the other one, into which all that
//! there is is written first ([`format`]).
//!
//! Contract: `fsync` is answered when all that the folder held is on the disk for good, or with an
//! error. A disk on which anything is not as it was written is refused, but for the last
//! transaction: where a header is missing, the machine was lost while it wrote.
//!
//! Not covered: files that do not fit into memory, and sockets' names.

mod format;
mod read;
mod write;

use linux_raw_sys::errno::{EIO, ENOSPC};

use super::files::{NODES, Path, Scope, Told};
use super::machine::PAGE;
use super::stat::SECOND;
use super::{Errno, Machine, Process};
use crate::disk::Block;
use format::{BLOCK, FEWEST, Found, HEADER, Header, RECORD, ROOTS, Root, blocks_of};
use read::{Reader, Trouble};
use write::{Writer, bytes_of};

/// Blocks behind the last transaction that are looked at for a later one: if there is one, what is
/// in between is damaged.
const LOOKED_AT: u64 = 256;
/// Bytes of the longest path, as it is written.
const PATH: u64 = 120;
/// How long a change may wait for the disk if nobody asks, in nanoseconds.
const LATEST: u64 = 5 * SECOND;

/// Where the journal stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Journal {
    /// Blocks of a half.
    half: u64,
    generation: u64,
    /// Blocks of the half that are written, and transactions in it.
    used: u64,
    count: u64,
    /// When the first change was seen that the disk does not have.
    since: Option<u64>,
}

impl Journal {
    /// The first block of the half that counts in a generation.
    const fn first(&self, generation: u64) -> u64 {
        ROOTS + generation % 2 * self.half
    }

    /// Pages that files may have, so that all fit into a half.
    const fn room(&self) -> u64 {
        let all = self.half * BLOCK as u64;
        let names = NODES as u64 * (RECORD as u64 + PATH);
        all.saturating_sub(HEADER as u64 + names) / (RECORD as u64 + PAGE)
    }
}

impl<M: Machine> Process<'_, M> {
    /// Takes over what is on the disk: its files are in this folder from here on.
    ///
    /// # Errors
    /// What is wrong with the disk.
    pub(super) fn mount(&mut self, folder: &[u8]) -> Result<(), &'static str> {
        let folder = Path::new(folder).map_err(|_| "the path of the disk's folder is too long")?;
        let root = self.root()?;
        let mut journal = Journal {
            half: (root.blocks - ROOTS) / 2,
            generation: root.generation,
            used: 0,
            count: 0,
            since: None,
        };
        if self.files.find(folder).is_none() {
            let made = self.files.add(folder, super::files::Kind::Folder, 0o755);
            made.map_err(|_| "there are too many files")?;
        }
        while let Some(blocks) = self.replay(&journal, folder)? {
            journal.used += blocks;
            journal.count += 1;
        }
        self.look_behind(&journal)?;
        self.files.keep(&self.store, folder, journal.room());
        self.journal = Some(journal);
        Ok(())
    }

    /// The root that counts; a disk that holds nothing gets one.
    fn root(&mut self) -> Result<Root, &'static str> {
        let blocks = self.machine.blocks();
        match blocks {
            0 => return Err("there is no disk, or it does not work"),
            1..FEWEST => return Err("the disk is too small: it needs 1 MiB at least"),
            _ => {}
        }
        let mut newest = None;
        for number in 0..ROOTS {
            let mut block = [0; BLOCK];
            let read = self.machine.read_block(number, &mut block);
            read.map_err(|_| UNREADABLE)?;
            match Root::read(&block) {
                Found::Nothing => {}
                Found::Whole(root) if root.generation % ROOTS == number => {
                    let is_newer = |it: Root| it.generation < root.generation;
                    if newest.is_none_or(is_newer) {
                        newest = Some(root);
                    }
                }
                _ => return Err("the disk holds what rcoe did not write, or is damaged"),
            }
        }
        match newest {
            Some(root) if root.blocks < FEWEST => Err(DAMAGED),
            Some(root) if root.blocks > blocks => Err("the disk is smaller than it was"),
            Some(root) => Ok(root),
            None => self.format(blocks),
        }
    }

    fn format(&mut self, blocks: u64) -> Result<Root, &'static str> {
        let root = Root {
            generation: 1,
            blocks,
        };
        let written = self.write_root(root);
        written.map_err(|_| "the disk cannot be written")?;
        Ok(root)
    }

    fn write_root(&mut self, root: Root) -> Result<(), Errno> {
        let mut block = [0; BLOCK];
        root.write(&mut block);
        let written = self.machine.write_block(root.generation % ROOTS, &block);
        let lasts = written.and_then(|()| self.machine.flush());
        lasts.map_err(|_| Errno(EIO))
    }

    /// The header at the end of what was read so far, or behind it, if there is one of a
    /// transaction of this half.
    fn header(
        &mut self,
        journal: &Journal,
        behind: u64,
        block: &mut Block,
    ) -> Result<Option<Header>, &'static str> {
        let place = journal.used + behind;
        if place >= journal.half {
            return Ok(None);
        }
        let at = journal.first(journal.generation) + place;
        let read = self.machine.read_block(at, block);
        read.map_err(|_| UNREADABLE)?;
        match Header::read(block) {
            Found::Whole(header) if header.generation == journal.generation => Ok(Some(header)),
            // What was there before does not count.
            Found::Whole(_) | Found::Nothing => Ok(None),
            Found::Damaged if behind == 0 => Err(DAMAGED),
            Found::Damaged => Ok(None),
        }
    }

    /// Takes over the next transaction, if there is one; its blocks.
    fn replay(&mut self, journal: &Journal, folder: Path) -> Result<Option<u64>, &'static str> {
        let mut block = [0; BLOCK];
        let header = self.header(journal, 0, &mut block)?;
        let Some(header) = header.filter(|it| it.sequence == journal.count) else {
            return Ok(None);
        };
        let blocks = blocks_of(header.bytes.min(u64::MAX / 2));
        if blocks > journal.half - journal.used {
            return Err(DAMAGED);
        }
        let start = journal.first(journal.generation) + journal.used;
        let reader = Reader::new(&mut block, start, &header);
        let into = (&mut self.files, &mut self.store);
        let replayed = reader.replay(&mut self.machine, into, folder, header.digest);
        replayed.map_err(|trouble| match trouble {
            Trouble::Damaged => DAMAGED,
            Trouble::Unreadable => UNREADABLE,
            Trouble::Full => "the disk's files do not fit into memory: give it more by --memory",
        })?;
        Ok(Some(blocks))
    }

    /// Makes sure that no later transaction follows what is taken for the end.
    fn look_behind(&mut self, journal: &Journal) -> Result<(), &'static str> {
        let mut block = [0; BLOCK];
        for behind in 0..LOOKED_AT {
            let header = self.header(journal, behind, &mut block)?;
            if header.is_some_and(|it| it.sequence >= journal.count) {
                return Err(DAMAGED);
            }
        }
        Ok(())
    }

    /// Has the disk keep all that there is in its folder.
    ///
    /// # Errors
    /// If the disk cannot.
    pub(super) fn commit(&mut self) -> Result<(), Errno> {
        let Some(journal) = self.journal else {
            return Ok(());
        };
        self.files.all_written_in_memory(&mut self.store);
        if !self.files.has_changed() {
            return Ok(());
        }
        for node in 0..NODES {
            if self.files.is_changed(node) && self.files.is_kept(&self.files.node(node).path) {
                self.give_time(node);
            }
        }
        let scope = self.files.assign_numbers();
        let blocks = self.measure(scope);
        let written = match scope {
            Scope::Changes if blocks <= journal.half - journal.used => {
                let start = journal.first(journal.generation) + journal.used;
                self.write_transaction(scope, start, (journal.generation, journal.count))?;
                Journal {
                    used: journal.used + blocks,
                    count: journal.count + 1,
                    ..journal
                }
            }
            _ => self.begin_half(&journal)?,
        };
        self.journal = Some(Journal {
            since: None,
            ..written
        });
        self.files.settle(&mut self.store);
        Ok(())
    }

    /// Writes all that there is into the other half, which counts then.
    fn begin_half(&mut self, journal: &Journal) -> Result<Journal, Errno> {
        let blocks = self.measure(Scope::All);
        if blocks > journal.half {
            return Err(Errno(ENOSPC));
        }
        let generation = journal.generation + 1;
        self.write_transaction(Scope::All, journal.first(generation), (generation, 0))?;
        self.write_root(Root {
            generation,
            blocks: ROOTS + 2 * journal.half,
        })?;
        Ok(Journal {
            generation,
            used: blocks,
            count: 1,
            ..*journal
        })
    }

    /// Blocks of a transaction that tells this.
    fn measure(&self, scope: Scope) -> u64 {
        let mut bytes = 0;
        let count = &mut |told: Told<'_>| {
            bytes += bytes_of(&told);
            Ok::<_, core::convert::Infallible>(())
        };
        let Ok(()) = self.files.tell(&self.store, scope, count);
        blocks_of(bytes)
    }

    fn write_transaction(
        &mut self,
        scope: Scope,
        start: u64,
        (of, number): (u64, u64),
    ) -> Result<(), Errno> {
        let mut writer = Writer::new(start);
        let machine = &mut self.machine;
        let put = &mut |told: Told<'_>| writer.put(machine, &told);
        let told = self.files.tell(&self.store, scope, put);
        let ended = told.and_then(|()| writer.end(&mut self.machine, of, number));
        ended.map_err(|_| Errno(EIO))
    }

    /// Has the disk keep what waits for it for too long. Tells when it is to be looked at again.
    pub(super) fn commit_late(&mut self) -> Option<u64> {
        let journal = self.journal.as_ref()?;
        if !self.files.has_changed() {
            return None;
        }
        let now = self.machine.now();
        let due = journal.since.unwrap_or(now) + LATEST;
        if due > now {
            self.journal.as_mut()?.since.get_or_insert(now);
            return Some(due);
        }
        // One that cannot is told of at the end, or by what is asked of it.
        let committed = self.commit();
        if committed.is_err() {
            self.journal.as_mut()?.since = Some(now);
        }
        committed.is_err().then_some(now + LATEST)
    }

    /// The machine is about to end: has the disk keep all.
    pub fn unmount(&mut self) {
        if let Err(Errno(error)) = self.commit() {
            self.machine.note(format_args!(
                "the disk could not keep what changed last (error {error})"
            ));
        }
    }
}

const UNREADABLE: &str = "the disk cannot be read";
const DAMAGED: &str = "the disk is damaged: what is on it is not what was written";
