//! Calls that wait for any of several descriptors: `poll` and `select`.

use linux_raw_sys::errno::{EBADF, EINVAL};
use linux_raw_sys::general::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM,
};

use crate::linux::arch::nr;
use crate::linux::errno::LATER;
use crate::linux::files::{FILE_NUMBERS, Kind};
use crate::linux::sockets::{Connected, Link, Socket, Sockets};
use crate::linux::stat::MICRO;
use crate::linux::streams::Target;
use crate::linux::threads::Limit;
use crate::linux::{Answer, Errno, Machine, Process};
use crate::network::Ready;

/// Bytes of what `poll` asks about one descriptor.
const ASKED: u64 = 8;
/// Words of a set of descriptors of `select`, and how many sets there are.
const SET_WORDS: usize = FILE_NUMBERS.div_ceil(64);
const SETS: usize = 3;
/// What a descriptor has for a set to have it.
const OF_SETS: [u32; SETS] = [POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI];
/// What is told whether it was asked for or not.
pub(super) const ALWAYS: u32 = POLLERR | POLLHUP;
/// Whole milliseconds in nanoseconds.
const MILLI: u64 = 1_000_000;

impl<M: Machine> Process<'_, M> {
    pub(super) fn poll_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, sixth] = words;
        Some(match call {
            nr::__NR_poll => self.poll(first, second, Self::millis(third)),
            nr::__NR_ppoll => {
                let limit = self.limit_of(third);
                let limit = limit.and_then(|limit| self.blocking(limit, fourth, fifth));
                let answer = limit.and_then(|limit| self.poll(first, second, limit));
                self.telling_left(answer)
            }
            nr::__NR_select => {
                let limit = self.limit_of_micros(fifth);
                let sets = [second, third, fourth];
                let answer = limit.and_then(|limit| self.select(first, sets, limit));
                self.telling_left(answer)
            }
            nr::__NR_pselect6 => {
                let limit = self.limit_of(fifth);
                let limit = limit.and_then(|limit| self.blocking_pair(limit, sixth));
                let sets = [second, third, fourth];
                let answer = limit.and_then(|limit| self.select(first, sets, limit));
                self.telling_left(answer)
            }
            _ => return None,
        })
    }

    /// So many milliseconds; without an end if that is negative.
    pub(super) fn millis(word: u64) -> Limit {
        let [a, b, c, d, ..] = word.to_le_bytes();
        match u64::try_from(i32::from_le_bytes([a, b, c, d])) {
            Ok(millis) => Limit::In(millis * MILLI),
            Err(_) => Limit::Never,
        }
    }

    /// A time in memory, or none.
    pub(in crate::linux) fn limit_of(&self, place: u64) -> Result<Limit, Errno> {
        match place {
            0 => Ok(Limit::Never),
            place => Ok(Limit::In(self.time_at(place)?)),
        }
    }

    /// Has a call block other signals while it waits.
    pub(super) fn blocking(&mut self, limit: Limit, set: u64, size: u64) -> Result<Limit, Errno> {
        self.block_meanwhile(set, size).map(|()| limit)
    }

    /// The same, where set and size are in memory.
    fn blocking_pair(&mut self, limit: Limit, pair: u64) -> Result<Limit, Errno> {
        if pair == 0 {
            return Ok(limit);
        }
        let (set, size) = (self.word(pair)?, self.word(pair.wrapping_add(8))?);
        self.blocking(limit, set, size)
    }

    fn limit_of_micros(&self, place: u64) -> Result<Limit, Errno> {
        if place == 0 {
            return Ok(Limit::Never);
        }
        let (seconds, micros) = (self.word(place)?, self.word(place.wrapping_add(8))?);
        if seconds >> 63 != 0 || micros >> 63 != 0 {
            return Err(Errno(EINVAL));
        }
        let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(Limit::In(micros.saturating_mul(MICRO)))
    }

    /// Has a call that is over, and waited, tell what is left of its time. What it says of a time
    /// for which it did not have to wait stays as it is.
    fn telling_left(&mut self, answer: Answer) -> Answer {
        if answer != Err(LATER) {
            // The call is over, whether that can be written or not.
            let _ = self.tell_left();
        }
        answer
    }

    /// Waits, unless the program says that it does not want to; `Ok` if that is over.
    pub(in crate::linux) fn pause_unless(&mut self, limit: Limit) -> Result<(), Errno> {
        match limit {
            Limit::In(0) => Ok(()),
            limit => self.pause(limit),
        }
    }

    fn poll(&mut self, table: u64, count: u64, limit: Limit) -> Answer {
        if count > FILE_NUMBERS as u64 {
            return Err(Errno(EINVAL));
        }
        let mut ready = 0;
        for index in 0..count {
            let place = table.wrapping_add(ASKED * index);
            let [a, b, c, d, low, high, ..] = self.word(place)?.to_le_bytes();
            let wanted = u32::from(u16::from_le_bytes([low, high])) | ALWAYS;
            let has = match u64::try_from(i32::from_le_bytes([a, b, c, d])) {
                Err(_) => 0,
                Ok(file) => match self.files.place(file) {
                    Err(_) => POLLNVAL,
                    Ok(open) => self.readiness(open) & wanted,
                },
            };
            self.write(place.wrapping_add(6), &has.to_le_bytes()[..2])?;
            ready += u64::from(has != 0);
        }
        if ready == 0 {
            self.pause_unless(limit)?;
        }
        Ok(ready)
    }

    fn select(&mut self, count: u64, sets: [u64; SETS], limit: Limit) -> Answer {
        let count = usize::try_from(count & 0xffff_ffff).unwrap_or(usize::MAX);
        if count > 1 << 20 {
            return Err(Errno(EINVAL));
        }
        let count = count.min(FILE_NUMBERS);
        let words = count.div_ceil(64);
        let mut asked = [[0; SET_WORDS]; SETS];
        for (set, place) in asked.iter_mut().zip(sets) {
            for (index, word) in set[..words].iter_mut().enumerate() {
                if place != 0 {
                    *word = self.word(place.wrapping_add(8 * index as u64))?;
                }
            }
        }
        let (has, ready) = self.selected(count, &asked)?;
        if ready == 0 {
            self.pause_unless(limit)?;
        }
        for (set, place) in has.iter().zip(sets) {
            if place != 0 {
                self.write_words(place, &set[..words])?;
            }
        }
        Ok(ready)
    }

    fn selected(
        &mut self,
        count: usize,
        asked: &[[u64; SET_WORDS]; SETS],
    ) -> Result<([[u64; SET_WORDS]; SETS], u64), Errno> {
        let mut has = [[0; SET_WORDS]; SETS];
        let mut ready = 0;
        for file in 0..count {
            let (word, bit) = (file / 64, 1 << (file % 64));
            if asked.iter().all(|set| set[word] & bit == 0) {
                continue;
            }
            let place = self.files.place(file as u64).map_err(|_| Errno(EBADF))?;
            let events = self.readiness(place);
            for ((set, asked), wanted) in has.iter_mut().zip(asked).zip(OF_SETS) {
                if asked[word] & bit != 0 && events & wanted != 0 {
                    set[word] |= bit;
                    ready += 1;
                }
            }
        }
        Ok((has, ready))
    }

    /// What listeners and connections have now.
    pub(super) fn network(&mut self) -> Ready {
        match self.ready {
            Some(ready) => ready,
            None => {
                let ready = self.machine.ready();
                self.ready = Some(ready);
                ready
            }
        }
    }

    /// What something has that is open, as events of `poll`.
    pub(super) fn readiness(&mut self, place: usize) -> u32 {
        const READ: u32 = POLLIN | POLLRDNORM;
        const WRITE: u32 = POLLOUT | POLLWRNORM;
        let when = |does: bool, events: u32| if does { events } else { 0 };
        let open = *self.files.open_at(place);
        match open.target {
            Target::Node(node) if self.files.node(node).kind == Kind::Console => WRITE,
            Target::Node(_) => READ | WRITE,
            Target::Socket(socket) => self.socket_readiness(socket),
            target @ (Target::Reader(pipe) | Target::Writer(pipe) | Target::Both(pipe)) => {
                self.tend_input(pipe);
                self.pipe_events(target, open.offset)
            }
            Target::Counter(counter) => {
                let value = self.streams.counters[counter].value;
                when(value > 0, READ) | when(value < u64::MAX - 1, WRITE)
            }
            Target::Alarm(alarm) => match self.streams.alarms[alarm].next {
                Some(next) => when(next <= self.machine.now(), READ),
                None => 0,
            },
            Target::Poller(poller) => when(self.has_events(poller), READ),
        }
    }

    fn socket_readiness(&mut self, socket: usize) -> u32 {
        const READ: u32 = POLLIN | POLLRDNORM;
        const WRITE: u32 = POLLOUT | POLLWRNORM;
        match self.streams.sockets[socket] {
            Socket::Free | Socket::New(_) | Socket::Waits { .. } => WRITE | POLLHUP,
            Socket::Datagrams(it) => self.datagram_events(&it),
            Socket::Udp(_) => self.udp_events(socket),
            Socket::Asks { .. } | Socket::Refused { .. } => self.events_of_asking(socket),
            Socket::Broken(_) => READ | WRITE | POLLRDHUP | POLLHUP,
            Socket::Listens(it) => {
                let near = self.streams.sockets.first_at(socket).is_some();
                let arrived = |card: usize| self.network().arrived >> card & 1 != 0;
                if near || it.card.is_some_and(arrived) {
                    READ
                } else {
                    0
                }
            }
            Socket::Connected(it) => match it.link {
                Link::Card(connection) => connection_events(self.network(), connection, &it),
                Link::Pipes { receives, sends } => self.link_events(&it, receives, sends),
            },
        }
    }
}

pub(super) fn connection_events(ready: Ready, connection: usize, it: &Connected) -> u32 {
    let has = |bits: u64| bits >> connection & 1 != 0;
    let mut events = 0;
    if has(ready.receives) || it.deaf {
        events |= POLLIN | POLLRDNORM;
    }
    if has(ready.sends) || it.mute {
        events |= POLLOUT | POLLWRNORM;
    }
    let ended = has(ready.ended) || it.deaf;
    if ended {
        events |= POLLRDHUP;
    }
    if ended && it.mute {
        events |= POLLHUP;
    }
    events
}
