//! Calls about files that are open: reading, writing, and where that is.

use linux_raw_sys::errno::{
    EBADF, EBUSY, EFAULT, EINVAL, EISDIR, ENOSPC, ENOTDIR, ENOTTY, EPERM, ESPIPE,
};
use linux_raw_sys::general::{
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_GETPIPE_SZ, F_SETFD, F_SETFL, F_SETPIPE_SZ,
    FASYNC, FD_CLOEXEC, O_ACCMODE, O_APPEND, O_CLOEXEC, O_DSYNC, O_NONBLOCK, O_RDONLY, O_WRONLY,
    SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET,
};
use linux_raw_sys::ioctl::{FIONBIO, FIONREAD};

use super::names::HERE;
use super::streams::Pieces;
use super::{PARTS, PORTION, portion_of};
use crate::linux::arch::nr;
use crate::linux::facts::ALL;
use crate::linux::files::{FILE_NUMBERS, Kind, NODES, Path};
use crate::linux::streams::{PAGE_BYTES, PIPE_BYTES, Target};
use crate::linux::{Answer, Errno, Machine, Process};

/// Where the addresses end that a program can name.
const END: u64 = 0x7fff_ffff_f000;
/// Where a call reads or writes: where the file is, or a place of its own.
type Offset = Option<u64>;

impl<M: Machine> Process<'_, M> {
    pub(super) fn file_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_read => self.read_file(first, second, third, None),
            nr::__NR_write if self.is_stream(first) => {
                self.put_all(first, Pieces::One(second, third), false)
            }
            nr::__NR_write => self.write_file(first, second, third, None),
            nr::__NR_pread64 | nr::__NR_pwrite64 | nr::__NR_preadv | nr::__NR_pwritev
                if fourth >> 63 != 0 =>
            {
                Err(Errno(EINVAL))
            }
            nr::__NR_pread64 => self.read_file(first, second, third, Some(fourth)),
            nr::__NR_pwrite64 => self.write_file(first, second, third, Some(fourth)),
            nr::__NR_readv if self.has_messages(first) => {
                self.read_datagram(first, Pieces::Table(second, third))
            }
            nr::__NR_readv => self.parts([first, second, third], None, Self::read_file),
            nr::__NR_writev if self.is_stream(first) => {
                self.put_all(first, Pieces::Table(second, third), false)
            }
            nr::__NR_writev => self.parts([first, second, third], None, Self::write_file),
            nr::__NR_preadv => self.parts([first, second, third], Some(fourth), Self::read_file),
            nr::__NR_pwritev => self.parts([first, second, third], Some(fourth), Self::write_file),
            nr::__NR_close => self.close(first).map(|()| 0),
            nr::__NR_lseek => self.seek(first, second, third),
            nr::__NR_dup => self.files.duplicate(first, 0, false).map(|it| it as u64),
            nr::__NR_dup2 => self.duplicate_as(first, second, false),
            nr::__NR_dup3 if first & 0xffff_ffff == second & 0xffff_ffff => Err(Errno(EINVAL)),
            nr::__NR_dup3 if third & !u64::from(O_CLOEXEC) != 0 => Err(Errno(EINVAL)),
            nr::__NR_dup3 => self.duplicate_as(first, second, third != 0),
            nr::__NR_fcntl => match self.lock_call(first, second, third) {
                Some(answer) => answer,
                None => match self.control(first, second, third) {
                    Some(answer) => answer,
                    None => self.refuse_control(first, second),
                },
            },
            nr::__NR_flock => self.lock_whole(first, second),
            nr::__NR_ioctl => self.manage(first, second, third),
            nr::__NR_ftruncate => self.resize(first, second),
            nr::__NR_truncate => self.resize_named(first, second),
            nr::__NR_fsync | nr::__NR_fdatasync | nr::__NR_syncfs => self.keep(first),
            nr::__NR_sync => {
                // Nobody is told of what comes of it.
                let _ = self.commit();
                Ok(0)
            }
            nr::__NR_getdents64 => self.entries(first, second, third),
            _ => return None,
        })
    }

    /// Does a descriptor lead to what is no file?
    fn is_stream(&mut self, file: u64) -> bool {
        let open = self.files.of(file);
        open.is_ok_and(|open| !matches!(open.target, Target::Node(_)))
    }

    /// Has another descriptor lead to the same; what it led to is closed.
    fn duplicate_as(&mut self, file: u64, to: u64, private: bool) -> Answer {
        self.files.of(file)?;
        let number = self.files.number(to)? as u64;
        if number >= self.files.limits()[0] {
            return Err(Errno(EBADF));
        }
        if file & 0xffff_ffff != number {
            // It may be closed already.
            let _ = self.close(number);
            self.files.duplicate_as(file, number, private)?;
        }
        Ok(number)
    }

    /// `ioctl`: whether calls wait can be said so too.
    fn manage(&mut self, file: u64, request: u64, place: u64) -> Answer {
        self.files.of(file)?;
        match u32::try_from(request & 0xffff_ffff) {
            Ok(FIONBIO) => {}
            Ok(FIONREAD) if let Some(bytes) = self.next_udp(file)? => {
                return self.write_half(place, bytes).map(|()| 0);
            }
            _ => return Err(Errno(ENOTTY)),
        }
        let mut wanted = [0; 4];
        self.read(place, &mut wanted)?;
        let open = self.files.of(file)?;
        let flag = if wanted == [0; 4] { 0 } else { O_NONBLOCK };
        open.flags = open.flags & !O_NONBLOCK | flag;
        Ok(0)
    }

    fn read_file(&mut self, file: u64, address: u64, bytes: u64, offset: Offset) -> Answer {
        let open = *self.files.of(file)?;
        if open.flags & O_ACCMODE == O_WRONLY {
            return Err(Errno(EBADF));
        }
        let Target::Node(node) = open.target else {
            return match offset {
                Some(_) => Err(Errno(ESPIPE)),
                None => self.take(file, address, bytes),
            };
        };
        let kind = self.files.node(node).kind;
        if kind.is_folder() {
            return Err(Errno(EISDIR));
        }
        let start = offset.unwrap_or(open.offset);
        if let (Kind::Told { fact, whose, .. }, 0) = (kind, start) {
            self.tell(node, fact, whose)?;
        }
        let mut portion = [0; PORTION];
        let mut done = 0;
        while done < bytes {
            let len = portion_of(bytes - done);
            let part = &mut portion[..len];
            let len = match kind {
                Kind::Zero | Kind::Full => {
                    part.fill(0);
                    len
                }
                Kind::Random => {
                    self.random.fill(part);
                    len
                }
                _ => {
                    let place = (node, start.saturating_add(done));
                    self.files.read(&self.store, &self.machine, place, part)
                }
            };
            if len == 0 {
                break;
            }
            match self.write(address.wrapping_add(done), &portion[..len]) {
                // What was read before counts.
                Err(_) if done > 0 => break,
                written => written?,
            }
            done += len as u64;
        }
        if offset.is_none() {
            self.files.of(file)?.offset = start + done;
        }
        Ok(done)
    }

    pub(super) fn write_file(
        &mut self,
        file: u64,
        address: u64,
        bytes: u64,
        offset: Offset,
    ) -> Answer {
        let open = *self.files.of(file)?;
        if open.flags & O_ACCMODE == O_RDONLY {
            return Err(Errno(EBADF));
        }
        let node = open.node().map_err(|_| Errno(ESPIPE))?;
        let end = open.flags & O_APPEND != 0;
        let start = match offset {
            // Wherever a program wants it: Linux does the same.
            _ if end => self.files.size(node),
            Some(offset) => offset,
            None => open.offset,
        };
        let mut portion = [0; PORTION];
        let mut done = 0;
        while done < bytes {
            let len = portion_of(bytes - done);
            let part = &mut portion[..len];
            let place = (node, start.saturating_add(done));
            let from = address.wrapping_add(done);
            let written = self
                .outgoing(from, part)
                .and_then(|()| self.put_in(place, part));
            match written {
                // What was written before counts.
                Err(_) if done > 0 => break,
                written => written?,
            }
            done += len as u64;
        }
        if offset.is_none() {
            self.files.of(file)?.offset = start + done;
        }
        if open.flags & O_DSYNC != 0 {
            self.keep(file)?;
        }
        Ok(done)
    }

    /// Writes bytes to what has a name.
    fn put_in(&mut self, place: (usize, u64), part: &[u8]) -> Result<(), Errno> {
        match self.files.node(place.0).kind {
            Kind::Console => self.machine.console(part),
            Kind::Full => return Err(Errno(ENOSPC)),
            Kind::Packed(_) | Kind::Memory(_) => {
                let (store, machine) = (&mut self.store, &mut self.machine);
                self.files.write(store, machine, place, part)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Can there be memory that a table names? It is looked at as a whole before anything is done.
    pub(super) fn check_parts(&self, table: u64, count: u64) -> Result<(), Errno> {
        if count > PARTS {
            return Err(Errno(EINVAL));
        }
        for index in 0..count {
            let part = table.wrapping_add(16 * index);
            let (address, bytes) = (self.word(part)?, self.word(part.wrapping_add(8))?);
            if bytes >> 63 != 0 {
                return Err(Errno(EINVAL));
            }
            if address.checked_add(bytes).is_none_or(|end| end > END) {
                return Err(Errno(EFAULT));
            }
        }
        Ok(())
    }

    /// A call for each part of memory that a table names.
    pub(super) fn parts(
        &mut self,
        [file, table, count]: [u64; 3],
        offset: Offset,
        call: fn(&mut Self, u64, u64, u64, Offset) -> Answer,
    ) -> Answer {
        self.files.of(file)?;
        self.check_parts(table, count)?;
        let mut all = 0;
        for index in 0..count {
            let part = table.wrapping_add(16 * index);
            let (address, bytes) = (self.word(part)?, self.word(part.wrapping_add(8))?);
            let offset = offset.map(|it| it.saturating_add(all));
            let done = match call(self, file, address, bytes, offset) {
                // What was done before counts.
                Err(_) if all > 0 => return Ok(all),
                other => other?,
            };
            all += done;
            if done < bytes {
                break;
            }
        }
        Ok(all)
    }

    /// Has the disk keep a file, if it is there: all that is.
    fn keep(&mut self, file: u64) -> Answer {
        let node = self.files.of(file)?.node().map_err(|_| Errno(EINVAL))?;
        match self.files.node(node).kind {
            Kind::Packed(_) | Kind::Memory(_) => {}
            kind if kind.is_folder() => {}
            _ => return Err(Errno(EINVAL)),
        }
        if self.files.is_on_disk(&self.files.node(node).path) {
            self.commit()?;
        }
        Ok(0)
    }

    fn seek(&mut self, file: u64, offset: u64, from: u64) -> Answer {
        let open = *self.files.of(file)?;
        let node = open.node().map_err(|_| Errno(ESPIPE))?;
        if self.files.node(node).kind == Kind::Console {
            return Err(Errno(ESPIPE));
        }
        let base = match u32::try_from(from & 0xffff_ffff) {
            Ok(what @ (SEEK_DATA | SEEK_HOLE)) => {
                let place = self
                    .files
                    .seek(&self.store, (node, offset), what == SEEK_DATA)?;
                self.files.of(file)?.offset = place;
                return Ok(place);
            }
            Ok(SEEK_SET) => 0,
            Ok(SEEK_CUR) => open.offset,
            Ok(SEEK_END) => self.files.size(node),
            _ => return Err(Errno(EINVAL)),
        };
        let place = base.wrapping_add(offset);
        if place >> 63 != 0 {
            return Err(Errno(EINVAL));
        }
        self.files.of(file)?.offset = place;
        Ok(place)
    }

    fn control(&mut self, file: u64, what: u64, argument: u64) -> Option<Answer> {
        Some(match u32::try_from(what).ok()? {
            what @ (F_DUPFD | F_DUPFD_CLOEXEC) => {
                let private = what == F_DUPFD_CLOEXEC;
                let made = self.files.duplicate(file, argument, private);
                made.map(|it| it as u64)
            }
            F_GETFD => self.files.is_private(file).map(u64::from),
            F_SETFD => {
                let private = argument & u64::from(FD_CLOEXEC) != 0;
                self.files.set_private(file, private).map(|()| 0)
            }
            F_GETPIPE_SZ | F_SETPIPE_SZ => self.pipe_size(file, what, argument),
            F_GETFL => self.files.of(file).map(|it| it.flags.into()),
            // Nobody is told of what comes by a signal.
            F_SETFL if argument & u64::from(FASYNC) != 0 => return None,
            F_SETFL => self.files.of(file).map(|it| {
                const SET: u32 = O_APPEND | O_NONBLOCK;
                let wanted = u32::try_from(argument & u64::from(SET)).unwrap_or(0);
                it.flags = it.flags & !SET | wanted;
                0
            }),
            _ => return None,
        })
    }

    /// What is not carried gets what Linux says of what it does not know.
    fn refuse_control(&mut self, file: u64, what: u64) -> Answer {
        self.files.of(file)?;
        let text = format_args!(
            "the system sphere does not carry the command {what} of fcntl, with this value: the \
             program got EINVAL"
        );
        self.tell_once(nr::__NR_fcntl.into(), text);
        Err(Errno(EINVAL))
    }

    /// How much a pipe holds: whole pages, and no more than all do at first.
    fn pipe_size(&mut self, file: u64, what: u64, wanted: u64) -> Answer {
        let sets = what == u64::from(F_SETPIPE_SZ);
        let pipe = match self.files.of(file)?.target {
            Target::Reader(pipe) | Target::Writer(pipe) | Target::Both(pipe) => pipe,
            _ => return Err(Errno(EBADF)),
        };
        let pipe = &mut self.streams.pipes[pipe];
        if !sets {
            return Ok(pipe.most as u64);
        }
        let wanted = match wanted & 0xffff_ffff {
            0x8000_0001.. => return Err(Errno(EINVAL)),
            wanted if wanted > PIPE_BYTES => return Err(Errno(EPERM)),
            wanted => wanted.max(PAGE_BYTES as u64).next_power_of_two(),
        };
        let most = usize::try_from(wanted).map_err(|_| Errno(EINVAL))?;
        if pipe.len > most {
            return Err(Errno(EBUSY));
        }
        pipe.most = most;
        Ok(wanted)
    }

    fn resize(&mut self, file: u64, bytes: u64) -> Answer {
        let open = *self.files.of(file)?;
        if open.flags & O_ACCMODE == O_RDONLY || bytes >> 63 != 0 {
            return Err(Errno(EINVAL));
        }
        let (store, machine) = (&mut self.store, &mut self.machine);
        self.files.truncate(store, machine, open.node()?, bytes)?;
        Ok(0)
    }

    fn resize_named(&mut self, text: u64, bytes: u64) -> Answer {
        let node = self.named(HERE, text)?;
        match self.files.node(node).kind {
            Kind::Packed(_) | Kind::Memory(_) if bytes >> 63 == 0 => {}
            kind if kind.is_folder() => return Err(Errno(EISDIR)),
            _ => return Err(Errno(EINVAL)),
        }
        let (store, machine) = (&mut self.store, &mut self.machine);
        self.files.truncate(store, machine, node, bytes)?;
        Ok(0)
    }

    /// `getdents64`: what is in a folder, as far as it fits.
    fn entries(&mut self, file: u64, address: u64, bytes: u64) -> Answer {
        let open = *self.files.of(file)?;
        let node = open.node().map_err(|_| Errno(ENOTDIR))?;
        let kind = self.files.node(node).kind;
        if !kind.is_folder() {
            return Err(Errno(ENOTDIR));
        }
        let mut done = 0;
        let mut next = usize::try_from(open.offset).unwrap_or(usize::MAX);
        while let Some(record) = self.entry(node, kind, next) {
            if done + record.len as u64 > bytes {
                if done == 0 {
                    return Err(Errno(EINVAL));
                }
                break;
            }
            self.write(address.wrapping_add(done), &record.bytes[..record.len])?;
            done += record.len as u64;
            next = record.next;
        }
        self.files.of(file)?.offset = next as u64;
        Ok(done)
    }

    /// The folders of processes, behind all files of the folder of all of them.
    fn process_entry(&self, folder: Path, from: usize) -> Option<Entry> {
        if folder.bytes() != ALL {
            return None;
        }
        let numbers = self.files.numbers();
        let place = (from - NODES..numbers.len()).find(|&at| numbers[at] != 0)?;
        let (digits, start) = digits(numbers[place]);
        let next = NODES + place + 3;
        Some(Entry::new(NODES + place, next, 4, &digits[start..]))
    }

    /// The first entry of a folder from a place on: it itself, what it is in, what is in it.
    fn entry(&self, folder: usize, kind: Kind<'_>, from: usize) -> Option<Entry> {
        let own = self.files.node(folder).path;
        if own == Path::NONE {
            return None;
        }
        if let Some(name) = [&b"."[..], b".."].get(from) {
            let path = [own, own.parent()][from];
            let node = self.files.find(path)?;
            return Some(Entry::new(node, from + 1, 4, name));
        }
        let from = from - 2;
        if kind == Kind::Descriptors {
            let file =
                (from as u64..FILE_NUMBERS as u64).find(|&it| self.files.place(it).is_ok())?;
            let number = usize::try_from(file).ok()?;
            let digits = [1000, 100, 10, 1].map(|unit| b"0123456789"[number / unit % 10]);
            let zeros = digits[..3].iter().take_while(|&&it| it == b'0').count();
            return Some(Entry::new(NODES + number, number + 3, 10, &digits[zeros..]));
        }
        let Some((after, found)) = self.files.entry(folder, from) else {
            return self.process_entry(own, from.max(NODES));
        };
        let node = self.files.behind(found);
        let kind = match self.files.node(node).kind {
            Kind::Folder | Kind::Descriptors => 4,
            Kind::Link(_) | Kind::Fixed(_) => 10,
            Kind::Socket(_) => 12,
            Kind::Fifo(_) => 1,
            Kind::Null | Kind::Zero | Kind::Full | Kind::Random => 2,
            _ => 8,
        };
        let name = self.files.node(found).path;
        Some(Entry::new(node, after + 2, kind, name.name()))
    }
}

/// A number in decimal digits, which begin at a place.
fn digits(mut number: u64) -> ([u8; 20], usize) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b"0123456789"[(number % 10) as usize];
        number /= 10;
        if number == 0 {
            return (digits, at);
        }
    }
}

/// One entry of a folder, as a program gets it.
struct Entry {
    bytes: [u8; 160],
    len: usize,
    /// Where the next one is.
    next: usize,
}

impl Entry {
    fn new(number: usize, next: usize, kind: u8, name: &[u8]) -> Self {
        let len = (19 + name.len() + 1).next_multiple_of(8);
        let mut bytes = [0; 160];
        bytes[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        bytes[8..16].copy_from_slice(&(next as u64).to_le_bytes());
        bytes[16..18].copy_from_slice(&u16::try_from(len).unwrap_or(0).to_le_bytes());
        bytes[18] = kind;
        bytes[19..19 + name.len()].copy_from_slice(name);
        Self { bytes, len, next }
    }
}
