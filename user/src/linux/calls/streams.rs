//! Calls about what is no file: reading and writing it, and making pipes, counters and timers.

use linux_raw_sys::errno::{EAGAIN, EBADF, EINVAL, EPIPE};
use linux_raw_sys::general::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, EFD_CLOEXEC, EFD_NONBLOCK, EFD_SEMAPHORE,
    O_CLOEXEC, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY, POLLIN, POLLOUT, SIGPIPE, TFD_CLOEXEC,
    TFD_NONBLOCK, TFD_TIMER_ABSTIME,
};
use rcoe_abi::Rights;

use super::rights::Sending;
use crate::linux::arch::nr;
use crate::linux::errno::LATER;
use crate::linux::machine::PAGE;
use crate::linux::signals::{Info, Whom};
use crate::linux::stat::SECOND;
use crate::linux::streams::{PATIENT, PIPE_PAGES, Side, Target};
use crate::linux::threads::Limit;
use crate::linux::{Answer, Errno, Machine, Process};

/// Bytes of a page and of a pipe, and most that are written to one as a whole.
const PAGE_BYTES: usize = 4096;
const PIPE: usize = PIPE_PAGES * PAGE_BYTES;
const WHOLE: u64 = PAGE;
const _: () = assert!(PAGE == PAGE_BYTES as u64);
/// A counter holds less.
const COUNTER_END: u64 = u64::MAX;

/// Where memory is that is written: one piece, or a table of pieces.
#[derive(Clone, Copy)]
pub(super) enum Pieces {
    One(u64, u64),
    Table(u64, u64),
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn stream_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_pipe => self.make_pipe(first, 0),
            nr::__NR_pipe2 => self.make_pipe(first, second),
            nr::__NR_eventfd => self.make_counter(first, 0),
            nr::__NR_eventfd2 => self.make_counter(first, second),
            nr::__NR_timerfd_create => self.make_alarm(first, second),
            nr::__NR_timerfd_settime => self.set_alarm([first, second, third, fourth]),
            nr::__NR_timerfd_gettime => {
                let alarm = self.alarm(first);
                alarm.and_then(|alarm| self.tell_alarm(alarm, second))
            }
            _ => return None,
        })
    }

    /// What has to wait does, unless the program does not want that, or not any longer: it may have
    /// said how long a socket waits on this side.
    pub(super) fn later(&mut self, file: u64, side: Side) -> Errno {
        let open = match self.files.of(file) {
            Ok(open) if open.flags & O_NONBLOCK == 0 => *open,
            _ => return Errno(EAGAIN),
        };
        let Target::Socket(socket) = open.target else {
            return LATER;
        };
        match self.streams.patience[socket][side as usize] {
            PATIENT => LATER,
            0 => Errno(EAGAIN),
            time => self.pause(Limit::In(time)).err().unwrap_or(Errno(EAGAIN)),
        }
    }

    /// Reads what is no file.
    pub(super) fn take(&mut self, file: u64, address: u64, bytes: u64) -> Answer {
        let target = self.files.of(file)?.target;
        if self.rights.is_at_end() {
            return Ok(0);
        }
        if self.has_messages(file) {
            return self.read_datagram(file, Pieces::One(address, bytes));
        }
        if bytes == 0 {
            return Ok(0);
        }
        let done = match target {
            Target::Socket(socket) => self.receive(socket, address, bytes),
            Target::Reader(pipe) | Target::Both(pipe) => self.read_pipe(pipe, address, bytes),
            Target::Counter(_) | Target::Alarm(_) if bytes < 8 => return Err(Errno(EINVAL)),
            Target::Counter(counter) => self.read_counter(counter, address),
            Target::Alarm(alarm) => self.read_alarm(alarm, address),
            Target::Writer(_) => return Err(Errno(EBADF)),
            Target::Poller(_) | Target::Node(_) => return Err(Errno(EINVAL)),
        };
        let place = self.files.place(file)?;
        match done {
            Err(LATER) => {
                self.streams.drained(place, POLLIN);
                Err(self.later(file, Side::Receives))
            }
            Ok(done) if done < bytes => {
                self.streams.drained(place, POLLIN);
                Ok(done)
            }
            other => other,
        }
    }

    /// Writes what is no file: all of it, waiting if need be.
    pub(super) fn put_all(&mut self, file: u64, pieces: Pieces, silent: bool) -> Answer {
        if self.has_messages(file) {
            return self.send_datagram(file, pieces, [0; 2], &Sending::NONE);
        }
        let (mut skip, mut all) = (self.threads.current().wait.done, 0);
        let mut short = false;
        let count = self.count_of(pieces)?;
        for index in 0..count {
            let (address, bytes) = self.piece(pieces, index)?;
            let before = skip.min(bytes);
            skip -= before;
            all += before;
            if before == bytes {
                continue;
            }
            match self.put(file, address.wrapping_add(before), bytes - before) {
                Ok(done) => {
                    all += done;
                    short = done < bytes - before;
                }
                Err(LATER) => short = true,
                Err(error) => return self.put_failed(error, all, silent),
            }
            if short {
                break;
            }
        }
        if !short {
            return Ok(all);
        }
        let place = self.files.place(file)?;
        self.streams.drained(place, POLLOUT);
        let later = self.later(file, Side::Sends);
        if later == LATER {
            self.threads.current().wait.done = all;
        } else if all > 0 {
            return Ok(all);
        }
        Err(later)
    }

    pub(super) fn piece(&self, pieces: Pieces, index: u64) -> Result<(u64, u64), Errno> {
        match pieces {
            Pieces::One(address, bytes) => Ok((address, bytes)),
            Pieces::Table(table, _) => {
                let part = table.wrapping_add(16 * index);
                Ok((self.word(part)?, self.word(part.wrapping_add(8))?))
            }
        }
    }

    /// What was written before counts. Else the program is told by a signal too.
    fn put_failed(&mut self, error: Errno, all: u64, silent: bool) -> Answer {
        if all > 0 {
            return Ok(all);
        }
        if error == Errno(EPIPE) && !silent {
            let whom = Whom::Thread(self.threads.index());
            // A standard signal is never refused.
            let _ = self.post(whom, Info::sent(SIGPIPE, false, self.task.number));
        }
        Err(error)
    }

    fn put(&mut self, file: u64, address: u64, bytes: u64) -> Answer {
        match self.files.of(file)?.target {
            Target::Socket(socket) => self.send(socket, address, bytes),
            Target::Writer(pipe) | Target::Both(pipe) => self.write_pipe(pipe, address, bytes),
            Target::Counter(_) if bytes < 8 => Err(Errno(EINVAL)),
            Target::Counter(counter) => self.write_counter(counter, address),
            Target::Reader(_) => Err(Errno(EBADF)),
            Target::Alarm(_) | Target::Poller(_) | Target::Node(_) => Err(Errno(EINVAL)),
        }
    }

    fn make_pipe(&mut self, to: u64, flags: u64) -> Answer {
        let flags = u32::try_from(flags & 0xffff_ffff).unwrap_or(0);
        if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
            return Err(Errno(EINVAL));
        }
        self.check(to, 8, Rights::WRITE)?;
        let pipe = self.streams.add_pipe()?;
        let flags = flags & (O_NONBLOCK | O_CLOEXEC);
        let reader = self.files.open(Target::Reader(pipe), flags | O_RDONLY);
        let Ok(reader) = reader else {
            self.streams.pipes[pipe].readers = false;
            self.streams.pipes[pipe].writers = false;
            return reader.map(|_| 0);
        };
        let writer = self.files.open(Target::Writer(pipe), flags | O_WRONLY);
        let Ok(writer) = writer else {
            self.streams.pipes[pipe].writers = false;
            self.close(reader as u64)?;
            return writer.map(|_| 0);
        };
        self.write_words(to, &[reader as u64 | (writer as u64) << 32])
            .map(|()| 0)
    }

    pub(super) fn read_pipe(&mut self, number: usize, address: u64, bytes: u64) -> Answer {
        if self.rights.is_at_end() {
            return Ok(0);
        }
        self.tend_input(number);
        let pipe = self.streams.pipes[number];
        let peeked = self.rights.peeked();
        let skip = peeked.unwrap_or(0);
        if pipe.len == skip {
            return if pipe.writers { Err(LATER) } else { Ok(0) };
        }
        let all = (pipe.len - skip).min(usize::try_from(bytes).unwrap_or(PIPE));
        let all = all.min(self.rights.most(number, skip));
        let Some(most) = self.senders.most(number, skip) else {
            return Ok(0);
        };
        let all = all.min(most);
        self.check(address, all as u64, Rights::WRITE)?;
        let mut done = 0;
        let mut portion = [0; PAGE_BYTES];
        while done < all {
            let at = (pipe.start + skip + done) % PIPE;
            let len = (all - done).min(PAGE_BYTES - at % PAGE_BYTES);
            let frame = pipe.frames[at / PAGE_BYTES] - 1;
            self.machine
                .read(frame, at % PAGE_BYTES, &mut portion[..len]);
            self.write(address.wrapping_add(done as u64), &portion[..len])?;
            done += len;
        }
        match peeked {
            Some(_) => self.peek(number, all)?,
            None => self.take_from_pipe(number, all),
        }
        Ok(all as u64)
    }

    /// So many bytes of a pipe were read, and are there no more.
    pub(super) fn take_from_pipe(&mut self, number: usize, bytes: usize) {
        let pipe = &mut self.streams.pipes[number];
        pipe.start = (pipe.start + bytes) % PIPE;
        pipe.len -= bytes;
        self.rights.read(number, bytes);
        self.senders.read(number, bytes);
        if pipe.len == 0 {
            self.empty_pipe(number);
        }
    }

    /// Gives back the memory of a pipe.
    pub(in crate::linux) fn empty_pipe(&mut self, number: usize) {
        let pipe = &mut self.streams.pipes[number];
        (pipe.start, pipe.len) = (0, 0);
        for frame in &mut pipe.frames {
            if let Some(frame) = frame.checked_sub(1) {
                self.machine.give_back(frame);
            }
            *frame = 0;
        }
    }

    pub(super) fn write_pipe(&mut self, number: usize, address: u64, bytes: u64) -> Answer {
        let pipe = self.streams.pipes[number];
        if !pipe.readers {
            return Err(Errno(EPIPE));
        }
        let room = pipe.most.saturating_sub(pipe.len);
        if room == 0 || bytes <= WHOLE && (room as u64) < bytes {
            return Err(LATER);
        }
        let all = room.min(usize::try_from(bytes).unwrap_or(PIPE));
        let mut done = 0;
        let mut portion = [0; PAGE_BYTES];
        while done < all {
            let at = (pipe.start + pipe.len + done) % PIPE;
            let len = (all - done).min(PAGE_BYTES - at % PAGE_BYTES);
            self.outgoing(address.wrapping_add(done as u64), &mut portion[..len])?;
            let frame = self.pipe_frame(number, at / PAGE_BYTES)?;
            self.machine.write(frame, at % PAGE_BYTES, &portion[..len]);
            done += len;
            self.streams.pipes[number].len += len;
        }
        Ok(done as u64)
    }

    /// Appends bytes for which a pipe has room.
    pub(super) fn append(&mut self, number: usize, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let pipe = self.streams.pipes[number];
            let at = (pipe.start + pipe.len) % PIPE;
            let len = (bytes.len() - done).min(PAGE_BYTES - at % PAGE_BYTES);
            let frame = self.pipe_frame(number, at / PAGE_BYTES)?;
            let part = &bytes[done..done + len];
            self.machine.write(frame, at % PAGE_BYTES, part);
            self.streams.pipes[number].len += len;
            done += len;
        }
        Ok(())
    }

    /// Bytes that are in a pipe, behind so many others.
    pub(super) fn fetch(&self, number: usize, skip: usize, bytes: &mut [u8]) {
        let pipe = &self.streams.pipes[number];
        let mut done = 0;
        while done < bytes.len() {
            let at = (pipe.start + skip + done) % PIPE;
            let len = (bytes.len() - done).min(PAGE_BYTES - at % PAGE_BYTES);
            let frame = pipe.frames[at / PAGE_BYTES] - 1;
            let part = &mut bytes[done..done + len];
            self.machine.read(frame, at % PAGE_BYTES, part);
            done += len;
        }
    }

    pub(super) fn pipe_frame(&mut self, number: usize, page: usize) -> Result<u32, Errno> {
        let kept = self.streams.pipes[number].frames[page];
        if let Some(frame) = kept.checked_sub(1) {
            return Ok(frame);
        }
        // What is read was written.
        let frame = self.machine.take_as_it_is();
        let frame = frame.ok_or(Errno(linux_raw_sys::errno::ENOMEM))?;
        self.streams.pipes[number].frames[page] = frame + 1;
        Ok(frame)
    }

    fn make_counter(&mut self, value: u64, flags: u64) -> Answer {
        let flags = u32::try_from(flags & 0xffff_ffff).unwrap_or(0);
        if flags & !(EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE) != 0 {
            return Err(Errno(EINVAL));
        }
        let single = flags & EFD_SEMAPHORE != 0;
        let counter = self.streams.add_counter(value & 0xffff_ffff, single)?;
        self.open_stream(counter, flags)
    }

    /// A descriptor for something new, which is gone again if there is none.
    pub(super) fn open_stream(&mut self, target: Target, flags: u32) -> Answer {
        let opened = self
            .files
            .open(target, flags & (O_NONBLOCK | O_CLOEXEC) | O_RDWR);
        if opened.is_err() {
            self.release(target);
        }
        opened.map(|number| number as u64)
    }

    fn read_counter(&mut self, counter: usize, address: u64) -> Answer {
        self.check(address, 8, Rights::WRITE)?;
        let counter = &mut self.streams.counters[counter];
        if counter.value == 0 {
            return Err(LATER);
        }
        let taken = if counter.single { 1 } else { counter.value };
        counter.value -= taken;
        self.write_words(address, &[taken]).map(|()| 8)
    }

    fn write_counter(&mut self, counter: usize, address: u64) -> Answer {
        let more = self.word(address)?;
        if more == COUNTER_END {
            return Err(Errno(EINVAL));
        }
        let counter = &mut self.streams.counters[counter];
        if more >= COUNTER_END - counter.value {
            return Err(LATER);
        }
        counter.value += more;
        Ok(8)
    }

    fn make_alarm(&mut self, clock: u64, flags: u64) -> Answer {
        let flags = u32::try_from(flags & 0xffff_ffff).unwrap_or(u32::MAX);
        let real = match u32::try_from(clock & 0xffff_ffff) {
            Ok(CLOCK_REALTIME) => true,
            Ok(CLOCK_MONOTONIC | CLOCK_BOOTTIME) => false,
            _ => return Err(Errno(EINVAL)),
        };
        if flags & !(TFD_CLOEXEC | TFD_NONBLOCK) != 0 {
            return Err(Errno(EINVAL));
        }
        let alarm = self.streams.add_alarm(real)?;
        self.open_stream(alarm, flags)
    }

    fn alarm(&mut self, file: u64) -> Result<usize, Errno> {
        match self.files.of(file)?.target {
            Target::Alarm(alarm) => Ok(alarm),
            _ => Err(Errno(EINVAL)),
        }
    }

    fn set_alarm(&mut self, [file, flags, new, old]: [u64; 4]) -> Answer {
        let alarm = self.alarm(file)?;
        let absolute = flags & u64::from(TFD_TIMER_ABSTIME) != 0;
        if flags & !u64::from(TFD_TIMER_ABSTIME) != 0 {
            return Err(Errno(EINVAL));
        }
        let (interval, first) = (self.time_at(new)?, self.time_at(new.wrapping_add(16))?);
        if old != 0 {
            self.tell_alarm(alarm, old)?;
        }
        let next = match (absolute, self.streams.alarms[alarm].real) {
            (false, _) => self.machine.now().saturating_add(first),
            (true, true) => first.saturating_sub(self.began()),
            (true, false) => first,
        };
        let alarm = &mut self.streams.alarms[alarm];
        (alarm.next, alarm.interval) = ((first != 0).then_some(next), interval);
        Ok(0)
    }

    fn tell_alarm(&mut self, alarm: usize, to: u64) -> Answer {
        let alarm = self.streams.alarms[alarm];
        let left = match alarm.next {
            Some(next) => next.saturating_sub(self.machine.now()).max(1),
            None => 0,
        };
        let words = [alarm.interval, left].map(|time| [time / SECOND, time % SECOND]);
        self.write_words(to, words.as_flattened()).map(|()| 0)
    }

    fn read_alarm(&mut self, number: usize, address: u64) -> Answer {
        self.check(address, 8, Rights::WRITE)?;
        let alarm = self.streams.alarms[number];
        let Some(next) = alarm.next else {
            return Err(LATER);
        };
        let late = self.machine.now().checked_sub(next).ok_or(LATER)?;
        let times = 1 + late.checked_div(alarm.interval).unwrap_or(0);
        let following = next.saturating_add(times.saturating_mul(alarm.interval));
        self.streams.alarms[number].next = (alarm.interval != 0).then_some(following);
        self.write_words(address, &[times]).map(|()| 8)
    }
}
