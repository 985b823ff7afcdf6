//! Descriptors that are on their way: what was sent beside the bytes of a message, as `SCM_RIGHTS`.
//!
//! Each stands by the place of what is open, which it keeps open, and by where in its pipe the
//! message begins and ends. Whoever reads the first byte of a message has what came with it, and
//! reads no further than its end at once.
//!
//! A socket can be on its way to itself, or to one that is on its way to it: nobody could ever
//! receive such. So whenever a descriptor is closed, what nobody can reach is looked for.

use linux_raw_sys::errno::ETOOMANYREFS;

use super::files::OPEN;
use super::sockets::Socket;
use super::streams::{ALL_SOCKETS, Target};
use super::{Errno, Machine, Process};

/// Most that are on their way, and most of one message.
const MOST: usize = 256;
pub(crate) const OF_ONE: usize = 253;

/// One that is on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The place of what is open, and its own among all that were sent.
    place: usize,
    order: u64,
    /// Where it is; `None` if it has arrived, or nobody will receive it.
    way: Option<Way>,
}

/// The pipe through which a message goes, and how many bytes stand there before its first one, and
/// before what follows it.
#[derive(Clone, Copy, Debug)]
struct Way {
    pipe: usize,
    start: usize,
    end: usize,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct OnTheWay {
    all: [Option<Sent>; MOST],
    count: usize,
    order: u64,
    /// How much is left of a message of which a call has read the beginning.
    left: Option<usize>,
    /// How much a call has looked at that takes nothing; `None` if it takes what it reads.
    peeked: Option<usize>,
    /// Was a descriptor closed since it was looked for what nobody can reach?
    stale: bool,
}

impl OnTheWay {
    pub(crate) const fn new() -> Self {
        Self {
            all: [None; MOST],
            count: 0,
            order: 0,
            left: None,
            peeked: None,
            stale: false,
        }
    }

    /// Is there room for so many more?
    pub(crate) const fn has_room(&self, more: usize) -> Result<(), Errno> {
        if more <= MOST - self.count {
            Ok(())
        } else {
            Err(Errno(ETOOMANYREFS))
        }
    }

    /// What is open at this place goes with the bytes of a pipe between these. There is room.
    pub(crate) fn send(&mut self, place: usize, pipe: usize, [start, end]: [usize; 2]) {
        self.add(place, Some(Way { pipe, start, end }));
    }

    fn add(&mut self, place: usize, way: Option<Way>) {
        let free = self.all.iter_mut().find(|it| it.is_none());
        self.order += 1;
        self.count += 1;
        *free.expect("there is room") = Some(Sent {
            place,
            order: self.order,
            way,
        });
    }

    /// The call at hand takes nothing of what it reads.
    pub(crate) const fn begin_peek(&mut self) {
        self.peeked = Some(0);
    }

    /// How much the call at hand has looked at, if it takes nothing.
    pub(crate) const fn peeked(&self) -> Option<usize> {
        self.peeked
    }

    /// Has the call at hand come to the end of a message?
    pub(crate) fn is_at_end(&self) -> bool {
        self.left == Some(0)
    }

    /// The call at hand has read a whole message.
    pub(crate) const fn end_message(&mut self) {
        self.left = Some(0);
    }

    /// The call at hand reads the next message.
    pub(crate) const fn begin_message(&mut self) {
        self.left = None;
    }

    /// What begins in a pipe between these bytes, in its order: places, and the end of the message.
    fn between(
        &self,
        pipe: usize,
        start: usize,
        end: usize,
    ) -> Option<([usize; MOST], usize, usize)> {
        let (mut places, mut count, mut last, mut message) = ([0; MOST], 0, 0, None);
        let here = |it: &&Sent| {
            let way = it.way.filter(|way| way.pipe == pipe);
            way.is_some_and(|way| (start..end).contains(&way.start))
        };
        let next = |last: u64| {
            let all = self.all.iter().flatten().filter(here);
            all.filter(|it| it.order > last).min_by_key(|it| it.order)
        };
        while let Some(it) = next(last) {
            (places[count], count, last) = (it.place, count + 1, it.order);
            message = it.way.map(|way| way.end);
        }
        message.map(|end| (places, count, end))
    }

    fn ways(&mut self) -> impl Iterator<Item = &mut Option<Way>> {
        self.all.iter_mut().flatten().map(|it| &mut it.way)
    }

    /// How many bytes of a pipe can be read at once, behind those that were looked at.
    pub(crate) fn most(&mut self, pipe: usize, skip: usize) -> usize {
        if let Some(left) = self.left {
            return left;
        }
        let ways = self.ways().filter_map(|it| *it);
        let ends = ways.filter(|it| it.pipe == pipe).map(|it| it.end - skip);
        ends.min().unwrap_or(usize::MAX)
    }

    /// So many bytes of a pipe were read: what came with them has arrived.
    pub(crate) fn read(&mut self, pipe: usize, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left -= bytes;
        }
        let mut arrived = None;
        for it in self.ways() {
            match it {
                Some(way) if way.pipe == pipe && way.start < bytes => {
                    arrived = Some(way.end - bytes);
                    *it = None;
                }
                Some(way) if way.pipe == pipe => {
                    way.start -= bytes;
                    way.end -= bytes;
                }
                _ => {}
            }
        }
        self.left = arrived.or(self.left);
    }

    /// What comes with the next bytes of a pipe has arrived before them.
    pub(crate) fn arrive(&mut self, pipe: usize) {
        for it in self.ways() {
            if it.is_some_and(|it| it.pipe == pipe && it.start == 0) {
                *it = None;
            }
        }
    }

    /// Nobody reads this pipe any more.
    pub(crate) fn lose(&mut self, pipe: usize) {
        for it in self.ways() {
            if it.is_some_and(|it| it.pipe == pipe) {
                *it = None;
            }
        }
    }

    /// The place of what has arrived first and nobody has taken yet.
    pub(crate) fn first(&self) -> Option<usize> {
        let arrived = self.all.iter().flatten().filter(|it| it.way.is_none());
        arrived.min_by_key(|it| it.order).map(|it| it.place)
    }

    /// That one is on its way no more.
    fn take(&mut self) -> Option<usize> {
        let arrived = self.all.iter_mut().filter(|it| match it {
            Some(it) => it.way.is_none(),
            None => false,
        });
        let first = arrived.min_by_key(|it| it.map(|it| it.order))?;
        self.count -= 1;
        first.take().map(|it| it.place)
    }

    /// A descriptor was closed: others may be out of reach.
    pub(crate) const fn closed(&mut self) {
        self.stale = self.count > 0;
    }
}

impl<M: Machine> Process<'_, M> {
    /// What has arrived first becomes a descriptor of the process at hand.
    pub(crate) fn take_right(&mut self, private: bool) -> Option<Result<usize, Errno>> {
        let place = self.rights.first()?;
        let made = self.files.receive(place, private);
        if made.is_ok() {
            self.rights.take();
        }
        Some(made)
    }

    /// So many bytes of a pipe were looked at, and not taken: what came with them comes once more.
    pub(crate) fn peek(&mut self, pipe: usize, bytes: usize) -> Result<(), Errno> {
        let start = self.rights.peeked.unwrap_or(0);
        let end = start + bytes;
        if let Some(left) = &mut self.rights.left {
            *left -= bytes;
        }
        if let Some((places, count, message)) = self.rights.between(pipe, start, end) {
            self.rights.has_room(count)?;
            for &place in &places[..count] {
                self.files.hold(place);
                self.rights.add(place, None);
            }
            self.rights.left = Some(message - end);
        }
        self.rights.peeked = Some(end);
        Ok(())
    }

    /// A call is over: what arrived and was not taken is closed, and what nobody can receive.
    pub(crate) fn tend_rights(&mut self) {
        (self.rights.left, self.rights.peeked) = (None, None);
        self.senders.end_call();
        while self.rights.count > 0 {
            if let Some(place) = self.rights.take() {
                // It may have been all that led to others.
                self.rights.closed();
                if let Some(target) = self.files.drop_at(place) {
                    self.closed(place, target);
                }
            } else if core::mem::take(&mut self.rights.stale) {
                self.lose_unreachable();
            } else {
                break;
            }
        }
    }

    /// Whatever is on its way to sockets that no process can reach is lost.
    fn lose_unreachable(&mut self) {
        let mut known: [bool; OPEN] = core::array::from_fn(|place| {
            let sent = self.rights.all.iter().flatten();
            let sent = sent.filter(|it| it.place == place).count();
            self.files.holders(place) > sent
        });
        loop {
            let sockets = self.reached(&known);
            let all = self.rights.all.iter().flatten();
            let leads = |way: Way| receives(&self.streams.sockets, way.pipe, &sockets);
            let mut found = all.filter(|it| it.way.is_some_and(leads) && !known[it.place]);
            match found.next().map(|it| it.place) {
                Some(place) => known[place] = true,
                None => break,
            }
        }
        let sockets = self.reached(&known);
        for index in 0..MOST {
            let way = self.rights.all[index].and_then(|it| it.way);
            if let (Some(way), Some(sent)) = (way, &mut self.rights.all[index])
                && !receives(&self.streams.sockets, way.pipe, &sockets)
            {
                sent.way = None;
            }
        }
    }

    /// The sockets that are open at known places, and those that wait to be accepted there.
    fn reached(&self, known: &[bool; OPEN]) -> [bool; ALL_SOCKETS] {
        let mut sockets = [false; ALL_SOCKETS];
        for (place, _) in known.iter().enumerate().filter(|(_, known)| **known) {
            if let Target::Socket(socket) = self.files.open_at(place).target {
                sockets[socket] = true;
            }
        }
        core::array::from_fn(|at| match self.streams.sockets[at] {
            Socket::Waits { listener, .. } => sockets[listener],
            _ => sockets[at],
        })
    }
}

/// Is a pipe read by one of these sockets?
fn receives(all: &[Socket], pipe: usize, sockets: &[bool; ALL_SOCKETS]) -> bool {
    let mut all = all.iter().zip(sockets).filter(|(_, reached)| **reached);
    all.any(|(socket, _)| match socket {
        Socket::Waits { it, .. } | Socket::Connected(it) | Socket::Broken(it) => {
            it.is_receiver(pipe)
        }
        Socket::Datagrams(it) => it.inbox == pipe,
        _ => false,
    })
}
