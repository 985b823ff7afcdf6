//! `signalfd`: signals that are read.
//!
//! Intuition: the signals are virtual, so the kernel's own signalfd would never see them. The
//! program gets an eventfd instead, which can be polled, watched, duplicated and closed like any
//! other descriptor; the primary keeps it readable as long as one of its signals waits, and reading
//! it is answered by the agent. Which descriptors are such is known from the results of the calls
//! that make, duplicate and close descriptors, so all replicas know it alike.
//!
//! A child has eventfds of its own, since it has pending signals of its own.
//!
//! Not covered: a descriptor that was sent to another process, `readv` of one, and a child's set of
//! `epoll` that it shares with its parent, which goes on to tell of the parent's.

use linux_raw_sys::errno::{EAGAIN, EBADF, EINTR, EINVAL};
use linux_raw_sys::general::{EFD_CLOEXEC, EFD_NONBLOCK, F_GETFD, F_GETFL, O_CLOEXEC, POLLIN};

use rcoe_linux_syscalls::{Arg, Descriptors, Offset, Stream};

use crate::calls::descriptors::descriptor;
use crate::calls::signals::pending::{Info, SI_TIMER, SI_TKILL};
use crate::calls::signals::targets::{acted_upon, open_for, remove_first};
use crate::calls::signals::{SI_USER, UNSTOPPABLE};
use crate::calls::{Call, PARKED, io, refuse};
use crate::convert::{Maybe, low32, size};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sched::threads::{Cause, NEVER};
use crate::sys::polling::is_ready;
use crate::sys::{self, events, fcntl, never_waits};

/// Such files at a time.
const FILES: usize = 16;
/// Descriptors of such files at a time; a bit each in one word.
const NUMBERS: usize = 64;
/// Bytes of `struct signalfd_siginfo`.
const RECORD: u64 = 128;
const CLOEXEC: u64 = 1;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// One file, which is in use while it has a descriptor.
#[derive(Clone, Copy)]
struct File {
    mask: u64,
    /// What this replica, as primary, has made of the eventfd: readable (1) or not (0).
    readable: Maybe,
}

impl File {
    const NONE: Self = Self {
        mask: 0,
        readable: Maybe::NONE,
    };
}

/// All such files and their descriptors.
pub(crate) struct SignalFiles {
    files: [File; FILES],
    numbers: [Number; NUMBERS],
    /// How many of the numbers are in use: most programs have none.
    used: usize,
}

/// A descriptor, and one more than its file, in a word without gaps; 0 for none.
#[derive(Clone, Copy)]
struct Number(u64);

impl Number {
    const NONE: Self = Self(0);

    fn new(fd: i32, file: usize) -> Self {
        Self(u64::from(fd.cast_unsigned()) | (file as u64 + 1) << 32)
    }

    fn get(self) -> Option<(i32, usize)> {
        let file = size(self.0 >> 32).checked_sub(1)?;
        Some((low32(self.0).cast_signed(), file))
    }
}

impl SignalFiles {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn numbers(&self) -> impl Iterator<Item = (i32, usize)> {
        self.numbers.iter().filter_map(|number| number.get())
    }

    fn file(&self, fd: u64) -> Option<usize> {
        let fd = descriptor(fd);
        let mut all = self.numbers();
        all.find(|(number, _)| *number == fd).map(|(_, file)| file)
    }

    fn first_number(&self, file: usize) -> Option<i32> {
        let mut all = self.numbers();
        all.find(|(_, it)| *it == file).map(|(fd, _)| fd)
    }

    /// Forgets these descriptors, and files without any.
    fn forget(&mut self, which: impl Fn(i32) -> bool) {
        for place in &mut self.numbers {
            if place.get().is_some_and(|(fd, _)| which(fd)) {
                *place = Number::NONE;
                self.used -= 1;
            }
        }
        for file in 0..FILES {
            if self.first_number(file).is_none() {
                self.files[file] = File::NONE;
            }
        }
    }

    /// The descriptor is one of the file from now on; false if there is no room.
    fn add(&mut self, fd: u64, file: usize) -> bool {
        let mut places = self.numbers.iter_mut();
        let place = places.find(|place| place.get().is_none());
        place.is_some_and(|place| {
            *place = Number::new(descriptor(fd), file);
            self.used += 1;
            true
        })
    }

    /// What this replica knows of the host's descriptors may be another's.
    pub(super) fn forget_told(&mut self) {
        for file in &mut self.files {
            file.readable = Maybe::NONE;
        }
    }

    /// Signals that any of the files takes.
    pub(super) fn taken(&self) -> u64 {
        self.files.iter().fold(0, |set, file| set | file.mask)
    }
}

/// `signalfd` and `signalfd4`.
pub(in crate::calls) fn create(kernel: &mut Kernel, call: &Call) -> i64 {
    const SIZE: u64 = 8;
    let flags = call.arg(3);
    if call.arg(2) != SIZE || flags & !u64::from(EFD_CLOEXEC | EFD_NONBLOCK) != 0 {
        return sys::error(EINVAL);
    }
    let Ok(mask) = guest::read::<u64>(call.arg(1)) else {
        return Fault::RESULT;
    };
    let mask = mask & !UNSTOPPABLE;
    if descriptor(call.arg(0)) != -1 {
        let fd = descriptor(call.arg(0));
        let Some(file) = kernel.signals.files.file(call.arg(0)) else {
            let other = transfer::agree(kernel, || u64::from(sys::is_open(fd))) != 0;
            return sys::error(if other { EINVAL } else { EBADF });
        };
        kernel.signals.files.files[file].mask = mask;
        return i64::from(descriptor(call.arg(0)));
    }
    let files = &kernel.signals.files;
    let free = (0..FILES).find(|&file| files.first_number(file).is_none());
    let full = files.used == NUMBERS;
    let Some(file) = free.filter(|_| !full) else {
        return refuse(kernel, call);
    };
    let fd = io::exchange(kernel, call, false);
    if fd >= 0 {
        let files = &mut kernel.signals.files;
        files.files[file] = File {
            mask,
            readable: Maybe::NONE,
        };
        files.add(fd.cast_unsigned(), file);
    }
    fd
}

/// Primary: the descriptor that stands for the file.
pub(in crate::calls) fn make(call: &Call) -> i64 {
    events::new_counter(call.arg(3))
}

/// All replicas, after any call: descriptors come and go, and signals too.
pub(in crate::calls) fn after(kernel: &mut Kernel, call: &Call, result: i64) {
    if kernel.signals.files.is_empty() {
        return;
    }
    if result >= 0 {
        follow(kernel, call, result.cast_unsigned());
    }
    refresh(kernel);
}

fn follow(kernel: &mut Kernel, call: &Call, result: u64) {
    let first = call.arg(0);
    let files = &mut kernel.signals.files;
    let copied = match call.what.facts.descriptors {
        Descriptors::Closes(_) => {
            files.forget(|fd| fd == descriptor(first));
            false
        }
        Descriptors::ClosesRange(..) if call.arg(2) & CLOSE_RANGE_CLOEXEC == 0 => {
            let last = low32(call.arg(1));
            files.forget(|fd| (low32(first)..=last).contains(&fd.cast_unsigned()));
            false
        }
        Descriptors::Copies | Descriptors::Replaces(_) => true,
        _ => false,
    };
    if !copied || descriptor(first) == descriptor(result) {
        return;
    }
    let file = files.file(first);
    files.forget(|fd| fd == descriptor(result));
    if let Some(file) = file
        && !files.add(result, file)
    {
        panic!("at most {NUMBERS} descriptors of signalfd");
    }
}

/// Primary: makes the descriptors readable of which a signal waits, and only those.
pub(in crate::calls) fn refresh(kernel: &mut Kernel) {
    if kernel.signals.files.is_empty() || !kernel.replica.is_primary() {
        return;
    }
    let waiting = kernel.signals.shared | kernel.signals.own.pending;
    let files = &mut kernel.signals.files;
    for at in 0..FILES {
        let Some(fd) = files.first_number(at) else {
            continue;
        };
        let file = &mut files.files[at];
        let readable = file.mask & waiting != 0;
        if file.readable.get() != Some(readable.into()) {
            file.readable = Maybe::some(readable.into());
            tell(i64::from(fd).cast_unsigned(), readable);
        }
    }
}

fn tell(fd: u64, readable: bool) {
    // Neither waits: readable means that there is a count, and the count is nowhere near its end.
    match (is_ready(fd, POLLIN), readable) {
        (true, false) => events::take_count(fd),
        (false, true) => events::count_one(fd),
        _ => {}
    }
}

/// `read`, if it is of such a descriptor.
pub(in crate::calls) fn read(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    if kernel.signals.files.is_empty() {
        return None;
    }
    let facts = &call.what.facts;
    if facts.stream != Stream::Read || facts.offset != Offset::Position {
        return None;
    }
    let file = kernel.signals.files.file(call.arg(0))?;
    if matches!(call.what.args[1], Arg::IovOut { .. }) {
        return Some(refuse(kernel, call));
    }
    let mask = kernel.signals.files.files[file].mask;
    if call.arg(2) < RECORD {
        return Some(sys::error(EINVAL));
    }
    crate::calls::signals::look_outside(kernel);
    let records = take(kernel, mask, call.arg(1), call.arg(2) / RECORD);
    Some(match records {
        Ok(0) => wait(kernel, call, mask),
        Ok(records) => (records * RECORD).cast_signed(),
        Err(Fault) => Fault::RESULT,
    })
}

/// Takes up to so many signals; returns how many.
fn take(kernel: &mut Kernel, mask: u64, address: u64, most: u64) -> Result<u64, Fault> {
    for done in 0..most {
        let waiting = (kernel.signals.shared | kernel.signals.own.pending) & mask;
        if waiting == 0 {
            return Ok(done);
        }
        let info = remove_first(kernel, waiting);
        guest::write(address + done * RECORD, &record(&info))?;
    }
    Ok(most)
}

fn wait(kernel: &mut Kernel, call: &Call, mask: u64) -> i64 {
    let fd = call.arg(0);
    if transfer::agree(kernel, || u64::from(never_waits(fd))) != 0 {
        return sys::error(EAGAIN);
    }
    if acted_upon(kernel, open_for(kernel, kernel.threads.current_slot())) != 0 {
        return sys::error(EINTR);
    }
    kernel.threads.park(Cause::SignalSet, NEVER);
    kernel.threads.current_mut().wait.address = mask;
    PARKED
}

/// `struct signalfd_siginfo`, in words.
fn record(info: &Info) -> [u64; 16] {
    let [first, second, third] = info.words;
    let pair = |low: u64, high: u64| low & 0xffff_ffff | high << 32;
    let errno = u64::from(info.errno.cast_unsigned());
    let code = u64::from(info.code.cast_unsigned());
    let mut words = [0; 16];
    words[0] = pair(u64::from(info.signal), errno);
    // The sender's process follows the code, its user starts the next word.
    match info.code {
        SI_TIMER => {
            words[1] = pair(code, 0);
            words[3] = pair(first, 0);
            words[4] = pair(first >> 32, 0);
            words[5] = pair(0, second);
            words[6] = second;
        }
        code_of_kernel if code_of_kernel > 0 => {
            words[1] = pair(code, first);
            words[2] = first >> 32;
            words[5] = pair(second, 0);
            words[7] = third;
        }
        SI_USER | SI_TKILL => {
            words[1] = pair(code, first);
            words[2] = first >> 32;
        }
        _ => {
            words[1] = pair(code, first);
            words[2] = first >> 32;
            words[5] = pair(0, second);
            words[6] = second;
        }
    }
    words
}

/// All replicas, when descriptors have been closed for a new program.
pub(in crate::calls) fn after_exec(kernel: &mut Kernel) {
    if kernel.signals.files.is_empty() {
        return;
    }
    let numbers = kernel.signals.files.numbers;
    let open = transfer::agree(kernel, || {
        let mut open = 0;
        for (at, place) in numbers.iter().enumerate() {
            if let Some((fd, _)) = place.get()
                && sys::is_open(fd)
            {
                open |= 1 << at;
            }
        }
        open
    });
    let is_closed = |fd| {
        let is_it = |it: &Number| it.get().is_some_and(|it| it.0 == fd);
        let at = numbers.iter().position(is_it);
        at.is_some_and(|at| open >> at & 1 == 0)
    };
    kernel.signals.files.forget(is_closed);
}

/// First replica of a child, alone yet: gives the child's files descriptors that its parent's
/// signals do not touch.
pub(in crate::calls) fn part(kernel: &Kernel) {
    let files = &kernel.signals.files;
    for at in 0..FILES {
        let mut numbers = files.numbers().filter(|it| it.1 == at);
        let Some((first, _)) = numbers.next() else {
            continue;
        };
        let flags = fcntl(i64::from(first).cast_unsigned(), F_GETFL, 0);
        let flags = flags & u64::from(EFD_NONBLOCK);
        let Ok(fresh) = u64::try_from(events::new_counter(flags)) else {
            panic!("room for the descriptor of a signalfd");
        };
        for (fd, _) in core::iter::once((first, at)).chain(numbers) {
            replace(fresh, i64::from(fd).cast_unsigned());
        }
        sys::close(descriptor(fresh));
    }
}

/// Makes `fd` a copy of `fresh`, with its own flag.
fn replace(fresh: u64, fd: u64) {
    let flags = match fcntl(fd, F_GETFD, 0) & CLOEXEC {
        0 => 0,
        _ => u64::from(O_CLOEXEC),
    };
    sys::replace(fresh, fd, flags);
}
