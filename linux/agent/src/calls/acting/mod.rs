//! Files of `/proc` and of control groups that act on the process that writes to them.
//!
//! The host's process that writes is one replica, so what it writes would reach only that. Which
//! files these are, and what is done about each, is in the table of system calls. What a descriptor
//! leads to is asked of the host when it is opened for writing: refused files are closed again, and
//! from the first other one on it is asked once more whenever something is written, by whatever
//! descriptor that comes. So it is from the start, or from a message, that brings a descriptor of
//! such a file. The primary asks, and all replicas get the answer with the result.
//!
//! A file remembers the process of the host that opened it. So each replica writes to its own file
//! instead, which it opens aside, and keeps in mind which processes have been its primaries.
//!
//! Contract: nothing here depends on one replica, but for what is published.
//!
//! Not covered: such files of other processes of the program, which are refused; and reading, where
//! the primary's file is as good as any, as long as that primary lives.

mod target;

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EACCES, EINVAL, EIO};
use linux_raw_sys::general::{O_ACCMODE, O_RDONLY};
use rcoe_linux_abi::{MAX_REPLICAS, Note, OF_OTHER};
use rcoe_linux_syscalls::{Arg, Class, Content, FILES, Ids, Offset, Opens, Treatment};

use crate::arch::tsc;
use crate::aside::with_own_descriptors;
use crate::calls::descriptors::descriptor;
use crate::calls::{Call, PARKED, credentials, processes, refuse_with};
use crate::convert::{low32, size};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::{deferred, regions};
use crate::protocol::transfer::{agree, agree_all};
use crate::recover::reintegration::newcomer;
use crate::sched::threads::LEADER;
use crate::sys::{self, Whence};
use crate::text::Text;
use target::{Target, UNKNOWN};

/// Result of opening a file that is refused, less the number of its row. No program ever sees it.
const REFUSED: i64 = 2 * PARKED;
/// Set in the row of a file of another process of the program.
const FOREIGN: usize = OF_OTHER as usize;
/// Set in the result of opening a file that acts; above the descriptor stands who opened it.
const ACTS: i64 = 1 << 62;
/// Set in the result of a call that received the descriptor of such a file.
const BROUGHT: i64 = 1 << 61;
/// Most processes of the host that are remembered to have opened such files.
const OPENERS: usize = 16;

/// What a process knows of such files that it may have open. The same in all replicas.
pub(crate) struct Acting {
    open: bool,
    /// Processes of the host that opened such files, and the process of the program they were.
    openers: [(u32, u32); OPENERS],
    next: usize,
}

impl Acting {
    /// What the first process of the program has from whoever started it. Nobody else may have its
    /// descriptors yet.
    pub(crate) fn inherited() -> Self {
        let mut open = false;
        sys::each_descriptor(|fd| open |= u64::try_from(fd).is_ok_and(may_act));
        Self {
            open,
            openers: [(0, 0); OPENERS],
            next: 0,
        }
    }

    /// May a file that acts be open?
    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    fn remember(&mut self, opener: u32, process: u32) {
        self.open = true;
        let known = self.openers.iter_mut().find(|known| known.0 == opener);
        match known {
            Some(known) => known.1 = process,
            None if opener != 0 => {
                self.openers[self.next % OPENERS] = (opener, process);
                self.next += 1;
            }
            None => {}
        }
    }

    fn recall(&self, opener: u32) -> Option<u32> {
        let known = self.openers.iter().find(|known| known.0 == opener);
        known.map(|known| known.1).filter(|_| opener != 0)
    }
}

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// This process's.
    Own,
    /// Another process's of the program.
    Other,
    /// Nobody's of the program.
    Outside,
}

fn owner(kernel: &Kernel, target: Target) -> Owner {
    if target.process == 0 {
        return Owner::Own;
    }
    if is_replica(regions::own_group(), target.process) {
        return Owner::Own;
    }
    let past = || kernel.acting.recall(target.process);
    match of_present_replica(target.process).or_else(past) {
        Some(process) if process == kernel.processes.pid => Owner::Own,
        Some(_) => Owner::Other,
        None => Owner::Outside,
    }
}

/// The process of the program of which a process of the host is a replica. The first one's number
/// is the supervisor's.
fn of_present_replica(host: u32) -> Option<u32> {
    if host == regions::control(0).supervisor.load(Ordering::Relaxed) {
        return Some(host);
    }
    let group = regions::groups().find(|group| is_replica(*group, host))?;
    Some(regions::control(group).pid.load(Ordering::Acquire))
}

/// Is this process of the host a replica of the group?
fn is_replica(group: usize, host: u32) -> bool {
    let started = regions::control(0).replicas.load(Ordering::Relaxed) as usize;
    let is_it = |index| regions::report(group, index).pid.load(Ordering::Acquire) == host;
    (0..started.min(MAX_REPLICAS)).any(is_it)
}

/// Can something be written by this descriptor to a file that acts on some process?
fn may_act(fd: u64) -> bool {
    sys::can_be_written(fd) && target::of_descriptor(fd).is_some()
}

/// Primary, with the result of any call: if it has opened or received a file that acts, the result
/// says so. A file that is refused when it is opened is closed again.
pub(super) fn judge(kernel: &Kernel, call: &Call, result: i64) -> i64 {
    if result < 0 {
        return result;
    }
    if !opens_for_writing(call) {
        let mut brought = false;
        credentials::each_descriptor(call, result, |fd| brought |= may_act(fd.into()));
        return if brought { result | BROUGHT } else { result };
    }
    let Some(target) = target::of_descriptor(result.cast_unsigned()) else {
        return result;
    };
    let refuse = |row: usize| {
        sys::close(i32::try_from(result).expect("descriptors are small"));
        REFUSED - i64::try_from(row).expect("few rows")
    };
    let treatment = FILES.get(target.row).map(|file| file.treatment);
    match (owner(kernel, target), treatment) {
        (Owner::Outside, _) | (_, Some(Treatment::Once)) => result,
        (Owner::Other, _) => refuse(target.row | FOREIGN),
        (Owner::Own, None | Some(Treatment::Refused)) => refuse(target.row),
        // The host knows only the first of the program's threads.
        (Owner::Own, _) if target.of_thread && kernel.threads.current_slot() != LEADER => {
            refuse(target.row)
        }
        (Owner::Own, Some(_)) => ACTS | i64::from(target.process) << 32 | result,
    }
}

/// One whose flags are in memory is output whatever they say.
fn opens_for_writing(call: &Call) -> bool {
    let writes = match call.what.facts.opens {
        Opens::Described(_, how) => guest::read::<u64>(call.arg(usize::from(how)))
            .is_ok_and(|flags| low32(flags) & O_ACCMODE != O_RDONLY),
        _ => true,
    };
    writes && call.what.class == Class::Output && call.what.facts.opens.path().is_some()
}

/// What the host returned, of a result that brought descriptors.
#[inline]
pub(crate) fn of_host(call: &Call, result: i64) -> i64 {
    if result >= BROUGHT && receives(call) {
        result & !BROUGHT
    } else {
        result
    }
}

fn receives(call: &Call) -> bool {
    matches!(call.what.facts.ids, Ids::Received(_) | Ids::ReceivedMany(_))
}

/// All replicas, with the published result of any call: what the program gets.
#[inline]
pub(super) fn opened(kernel: &mut Kernel, call: &Call, result: i64) -> i64 {
    if result > REFUSED && result < BROUGHT {
        return result;
    }
    if opens_for_writing(call) {
        return of_opening(kernel, result);
    }
    let plain = of_host(call, result);
    kernel.acting.open |= plain != result;
    plain
}

fn of_opening(kernel: &mut Kernel, result: i64) -> i64 {
    if result >= ACTS {
        let opener = low32((result & !ACTS).cast_unsigned() >> 32);
        kernel.acting.remember(opener, kernel.processes.pid);
        return i64::from(low32(result.cast_unsigned()));
    }
    if result > REFUSED || result < REFUSED - i64::try_from(FOREIGN * 2).expect("small") {
        return result;
    }
    let row = (REFUSED - result).cast_unsigned();
    refuse_with(kernel, Note::ActingFile, row);
    sys::error(EACCES)
}

/// Primary: the result of a call that would read the agent's memory through a file, or move there.
pub(super) fn conceal(call: &Call) -> Option<i64> {
    let raw = |index: u8| call.raw[usize::from(index)];
    let facts = &call.what.facts;
    let (position, error) = match (facts.offset, facts.content) {
        (Offset::At(at) | Offset::AtOrOn(at), Content::Reads) => (raw(at), EIO),
        (Offset::To(position), _) => (raw(position), EINVAL),
        _ => return None,
    };
    if !guest::is_reserved(position) {
        return None;
    }
    let row = target::of_descriptor(call.arg(0))?.row;
    let memory = FILES.get(row)?.treatment == Treatment::Memory;
    memory.then(|| sys::error(error))
}

/// How and where a call writes.
#[derive(Clone, Copy)]
struct Write {
    number: u64,
    args: [u64; 6],
    /// From several buffers.
    is_vector: bool,
    /// It goes on at the file's position.
    at_position: bool,
}

impl Write {
    fn of(call: &Call) -> Option<Self> {
        let facts = &call.what.facts;
        // Not the ends of what is moved between files, nor their sizes.
        let is_vector = matches!(call.what.args[1], Arg::IovIn { .. });
        let is_plain = matches!(call.what.args[1], Arg::InBuf { .. });
        if facts.content != Content::Writes || !is_vector && !is_plain {
            return None;
        }
        let at_position = match facts.offset {
            Offset::Position => true,
            Offset::AtOrOn(at) => call.raw[usize::from(at)] == u64::MAX,
            Offset::At(_) | Offset::To(_) => false,
        };
        Some(Self {
            number: call.nr,
            is_vector,
            args: call.raw,
            at_position,
        })
    }

    /// The same at this position.
    fn at(&self, position: u64) -> Self {
        if !self.at_position {
            return *self;
        }
        let number = if self.is_vector {
            sys::PWRITEV
        } else {
            sys::PWRITE
        };
        let [fd, buffer, len, ..] = self.args;
        Self {
            number,
            args: [fd, buffer, len, position, 0, 0],
            at_position: false,
            is_vector: self.is_vector,
        }
    }

    /// The first bytes that are written.
    fn beginning<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Fault> {
        let [base, len] = match self.is_vector {
            false => [self.args[1], self.args[2]],
            true if self.args[2] == 0 => [0, 0],
            true => guest::read::<[u64; 2]>(self.args[1])?,
        };
        let len = size(len.min(buffer.len() as u64));
        guest::copy_in(&mut buffer[..len], base)?;
        Ok(&buffer[..len])
    }

    /// Makes the call on another descriptor.
    fn on(&self, fd: i64) -> i64 {
        let mut args = self.args;
        args[0] = fd.cast_unsigned();
        // SAFETY: the program's own call; the kernel checks its buffers.
        unsafe { rcoe_linux_sys::syscall6(self.number, args) }
    }
}

/// All replicas: a call that writes to a file that acts; `None` if it does not.
pub(super) fn output(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let write = Write::of(call)?;
    let [row, position] = look(kernel, call.arg(0), write.at_position);
    let row = size(row.checked_sub(1)?);
    kernel.rendezvous();
    if deferred::is_active() {
        deferred::settle_all();
        processes::release_twin(kernel);
    }
    let treatment = FILES.get(row).map(|file| file.treatment);
    let result = match treatment {
        Some(Treatment::Memory) => to_memory(kernel, &write.at(position)),
        Some(Treatment::Each) => to_own(&write, FILES[row].name),
        Some(Treatment::Join) => join(kernel, &write, call.arg(0)),
        _ => {
            refuse_with(kernel, Note::ActingFile, row as u64);
            sys::error(EACCES)
        }
    };
    if write.at_position && treatment == Some(Treatment::Memory) && result > 0 {
        let next = position.wrapping_add(result.cast_unsigned());
        agree(kernel, || {
            sys::seek(call.arg(0), next, Whence::Start).unwrap_or(0)
        });
    }
    Some(result)
}

/// All replicas: the row of the file plus one, or 0 if writing to it is as to any other; and its
/// position.
fn look(kernel: &mut Kernel, fd: u64, at_position: bool) -> [u64; 2] {
    agree_all(kernel, true, |kernel| {
        let Some(target) = target::of_descriptor(fd) else {
            return [0, 0];
        };
        let treatment = FILES.get(target.row).map(|file| file.treatment);
        if treatment == Some(Treatment::Memory) && is_before_start(target) {
            return [0, 0];
        }
        let once = treatment == Some(Treatment::Once);
        let row = match owner(kernel, target) {
            Owner::Outside => return [0, 0],
            Owner::Own if once => return [0, 0],
            Owner::Own => target.row,
            Owner::Other => target.row | FOREIGN,
        };
        let position = at_position.then(|| sys::seek(fd, 0, Whence::Current));
        [row as u64 + 1, position.flatten().unwrap_or(0)]
    })
}

/// Was the file opened before the program was started? Memory is then that of what ran before.
fn is_before_start(target: Target) -> bool {
    target.process == regions::control(0).supervisor.load(Ordering::Relaxed)
}

/// Writes to this replica's memory.
fn to_memory(kernel: &mut Kernel, write: &Write) -> i64 {
    let start = write.args[3];
    if guest::is_reserved(start) {
        return sys::error(EIO);
    }
    tsc::distrust(kernel);
    let most = if write.is_vector {
        u64::MAX
    } else {
        write.args[2]
    };
    kernel.rewriter.give_up(start, most);
    to_own(write, "mem")
}

/// Writes to this replica's own file of this name.
fn to_own(write: &Write, name: &str) -> i64 {
    use core::fmt::Write as _;
    let mut path = Text::<64>::new();
    write!(path, "/proc/self/{name}\0").expect("names are short");
    let replaced = low32(write.args[0]).cast_signed();
    let work = || {
        // Leaves a place for the file, however few there are.
        sys::close(replaced);
        let fd = match sys::open_file(path.as_bytes(), true) {
            Ok(fd) => fd,
            Err(errno) => return -i64::from(errno.0),
        };
        write.on(fd.into())
    };
    let done = sys::with_own_memory(|| with_own_descriptors(work));
    done.unwrap_or_else(|errno| -i64::from(errno.0))
}

/// Joins a control group with this replica.
fn join(kernel: &mut Kernel, write: &Write, fd: u64) -> i64 {
    let mut text = [0; 24];
    let who = match write.beginning(&mut text) {
        Ok(text) => core::str::from_utf8(text).unwrap_or_default(),
        Err(Fault) => return Fault::RESULT,
    };
    let own = match who.trim_matches(['\0', '\n', ' ', '\t']).parse::<u32>() {
        Ok(pid) => pid == 0 || kernel.threads.find(pid).is_some(),
        Err(_) => false,
    };
    if !own {
        refuse_with(kernel, Note::ActingFile, (UNKNOWN | FOREIGN) as u64);
        return sys::error(EACCES);
    }
    let len = who.len();
    // The number 0 means the writer.
    let done = sys::pwrite_raw(descriptor(fd), b"0".as_ptr() as u64, 1, 0);
    newcomer::wait_for(kernel);
    if done < 0 {
        done
    } else {
        i64::try_from(len).expect("short")
    }
}
