//! Calls that ask what files, folders and the machine are like, and what programs say of what they
//! are going to do with them, from which nothing follows here.

use linux_raw_sys::errno::{EINVAL, ENOENT, ENOMEM, ENOTDIR, EOPNOTSUPP, ESPIPE};
use linux_raw_sys::general::{AT_STATX_SYNC_TYPE, STATX__RESERVED, STATX_BASIC_STATS};
use rcoe_abi::bundle::Word;

use super::names::{HERE, STAT_FLAGS};
use crate::linux::arch::nr;
use crate::linux::files::{Kind, NODES, Path};
use crate::linux::machine::PAGE;
use crate::linux::space::Space;
use crate::linux::stat::{SECOND, STAT_WORDS};
use crate::linux::{Answer, Errno, Machine, Process};

/// Words of `struct sysinfo`, `struct statfs` and `struct statx`.
const SYSTEM_WORDS: usize = 14;
const STORE_WORDS: usize = 15;
const STATX_WORDS: usize = 32;
/// How fresh what `statx` tells is to be, and what may not be asked of it.
const SYNC: u64 = AT_STATX_SYNC_TYPE as u64;
const RESERVED: u64 = STATX__RESERVED as u64;
/// What Linux calls files in memory.
const IN_MEMORY: u64 = 0x0102_1994;
/// Kinds of advice about a file.
const ADVICE: u64 = 5;
/// Most pages that are asked for at once.
const PAGES: u64 = 1 << 20;

/// The words of `struct statx` that say what those of `struct stat` do.
fn statx_words(told: &[u64; STAT_WORDS]) -> [u64; STATX_WORDS] {
    let [
        device,
        number,
        links,
        mode,
        group,
        _,
        size,
        block,
        blocks,
        ..,
    ] = *told;
    let (owner, mode) = (mode >> 32, mode & 0xffff);
    let mut words = [0; STATX_WORDS];
    words[..8].copy_from_slice(&[
        u64::from(STATX_BASIC_STATS) | block << 32,
        0,
        links | owner << 32,
        group & 0xffff_ffff | mode << 32,
        number,
        size,
        blocks,
        0,
    ]);
    // Of access; none of birth; of change and of content.
    words[8..10].copy_from_slice(&told[9..11]);
    words[12..14].copy_from_slice(&told[13..15]);
    words[14..16].copy_from_slice(&told[11..13]);
    words[17] = device << 32;
    words
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn fact_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, _] = words;
        Some(match call {
            nr::__NR_statx if third & !(STAT_FLAGS | SYNC) != 0 || fourth & RESERVED != 0 => {
                Err(Errno(EINVAL))
            }
            nr::__NR_statx => {
                let told = self.told(first, second, third);
                told.and_then(|told| self.write_words(fifth, &statx_words(&told)))
                    .map(|()| 0)
            }
            nr::__NR_statfs => {
                let named = self.named(HERE, first);
                named.and_then(|node| self.store_facts(Some(node), second))
            }
            nr::__NR_fstatfs => {
                let node = self.files.of(first).map(|open| open.node().ok());
                node.and_then(|node| self.store_facts(node, second))
            }
            nr::__NR_sysinfo => self.system_facts(first),
            nr::__NR_fchdir => self.go_to(first),
            nr::__NR_fadvise64 => match self.files.of(first) {
                Err(error) => Err(error),
                Ok(open) if open.node().is_err() => Err(Errno(ESPIPE)),
                Ok(_) if fourth > ADVICE => Err(Errno(EINVAL)),
                Ok(_) => Ok(0),
            },
            nr::__NR_sched_setaffinity => self.choose_cores([first, second, third]),
            nr::__NR_mincore => self.are_there(first, second, third),
            // Files have no attributes that have names.
            nr::__NR_lgetxattr | nr::__NR_llistxattr => {
                let named = self.named_itself(HERE, first);
                named.and(Err(Errno(EOPNOTSUPP)))
            }
            nr::__NR_getxattr | nr::__NR_listxattr => {
                let named = self.named(HERE, first);
                named.and(Err(Errno(EOPNOTSUPP)))
            }
            nr::__NR_fgetxattr | nr::__NR_flistxattr => {
                let open = self.files.of(first).map(|_| ());
                open.and(Err(Errno(EOPNOTSUPP)))
            }
            _ => return None,
        })
    }

    /// Bytes of memory of a replica.
    pub(super) fn memory(&self) -> u64 {
        self.bundle.word(Word::Pages).unwrap_or(0) * PAGE
    }

    /// What holds files: memory, and of some the disk.
    fn store_facts(&mut self, node: Option<usize>, to: u64) -> Answer {
        let files = NODES as u64;
        let (mut pages, mut left) = (self.memory() / PAGE, self.machine.left());
        if node.is_some_and(|node| self.files.is_on_disk(&self.files.node(node).path)) {
            let (all, used) = self.files.kept_pages();
            (pages, left) = (all, left.min(all.saturating_sub(used)));
        }
        let mut words = [0; STORE_WORDS];
        words[..7].copy_from_slice(&[IN_MEMORY, PAGE, pages, left, left, files, files]);
        words[8..10].copy_from_slice(&[Path::MOST, PAGE]);
        self.write_words(to, &words).map(|()| 0)
    }

    /// The time since the start, memory, and how many processes there are.
    fn system_facts(&mut self, to: u64) -> Answer {
        let mut words = [0; SYSTEM_WORDS];
        let memory = self.memory();
        let all = self.task.all().iter();
        let processes = all.filter(|it| it.lives()).count();
        words[0] = self.machine.now() / SECOND;
        (words[4], words[5]) = (memory, self.machine.left() * PAGE);
        (words[10], words[13]) = (processes as u64, 1);
        self.write_words(to, &words).map(|()| 0)
    }

    /// Other paths begin from a folder that is open.
    fn go_to(&mut self, file: u64) -> Answer {
        let node = self.files.of(file)?.node().map_err(|_| Errno(ENOTDIR))?;
        let node = self.files.node(node);
        match node.kind {
            Kind::Folder if node.path == Path::NONE => Err(Errno(ENOENT)),
            Kind::Folder | Kind::Descriptors => self.files.set_folder(node.path).map(|()| 0),
            _ => Err(Errno(ENOTDIR)),
        }
    }

    /// There is one core; a process that is to run on others only cannot.
    fn choose_cores(&mut self, [process, bytes, cores]: [u64; 3]) -> Answer {
        self.known(process)?;
        let mut first = [0];
        if bytes > 0 {
            self.read(cores, &mut first)?;
        }
        (first[0] & 1 != 0).then_some(0).ok_or(Errno(EINVAL))
    }

    /// Says of pages whether they have memory, if all are mapped.
    fn are_there(&mut self, start: u64, bytes: u64, to: u64) -> Answer {
        let pages = bytes.div_ceil(PAGE);
        if !start.is_multiple_of(PAGE) {
            return Err(Errno(EINVAL));
        }
        if pages > PAGES {
            return Err(Errno(ENOMEM));
        }
        for page in 0..pages {
            let address = start.checked_add(page * PAGE).ok_or(Errno(ENOMEM))?;
            if !Space::has(&self.store, address) {
                return Err(Errno(ENOMEM));
            }
        }
        for page in 0..pages {
            let promised = Space::has_promised(&self.store, start + page * PAGE);
            self.write(to.wrapping_add(page), &[u8::from(!promised)])?;
        }
        Ok(0)
    }
}
