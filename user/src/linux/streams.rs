//! What descriptors lead to that is no file: sockets, pipes, counters, alarms, and what watches
//! others.
//!
//! These are tables with a place for each. A place is free again when nothing leads to it any more.

use linux_raw_sys::errno::{ENFILE, ENOSPC};

use super::Errno;
use super::sockets::{Name, Socket, Sockets};
use crate::network::SOCKETS;

/// Most of each kind.
pub(crate) const ALL_SOCKETS: usize = SOCKETS + 16;
const PIPES: usize = 64;
const COUNTERS: usize = 16;
const ALARMS: usize = 16;
pub(crate) const POLLERS: usize = 16;
const INTERESTS: usize = 256;
/// Bytes of a page, and pages of a pipe.
pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PIPE_PAGES: usize = 16;
pub(crate) const PIPE_BYTES: u64 = (PIPE_PAGES * PAGE_BYTES) as u64;

/// Calls wait without an end.
pub(crate) const PATIENT: u64 = u64::MAX;

/// A side of a socket, on which calls wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Receives,
    Sends,
}

/// What a descriptor leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A file or folder.
    Node(usize),
    Socket(usize),
    /// The ends of a pipe: where it is read, and where it is written.
    Reader(usize),
    Writer(usize),
    /// Both ends of a named pipe.
    Both(usize),
    /// A counter, as `eventfd` makes them.
    Counter(usize),
    /// A timer, as `timerfd_create` makes them.
    Alarm(usize),
    /// What watches others, as `epoll_create` makes it.
    Poller(usize),
}

/// What leads to a pipe that has a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) node: usize,
    /// How often each side was opened.
    pub(crate) came: [u64; 2],
}

/// A pipe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pipe {
    /// Ends that are open.
    pub(crate) readers: bool,
    pub(crate) writers: bool,
    pub(crate) named: Option<Named>,
    /// Its pages' frames, each one more than the frame, or 0; where its bytes begin, and how many
    /// there are.
    pub(crate) frames: [u32; PIPE_PAGES],
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// How many bytes it holds at most.
    pub(crate) most: usize,
}

impl Pipe {
    /// Is there room for what is written as a whole?
    pub(crate) const fn has_room(&self) -> bool {
        self.len + PAGE_BYTES <= self.most
    }
}

/// A counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    pub(crate) used: bool,
    pub(crate) value: u64,
    /// Each reading takes one.
    pub(crate) single: bool,
}

/// A timer: when it rings, by the machine's clock, and how often from then on; `None` if never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarm {
    pub(crate) used: bool,
    pub(crate) real: bool,
    pub(crate) next: Option<u64>,
    pub(crate) interval: u64,
}

/// What watches others: where it looks first the next time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poller {
    pub(crate) used: bool,
    pub(crate) first: usize,
}

/// What is watched: by whom, what, for which events; and of those that are told once, which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interest {
    pub(crate) poller: usize,
    /// The place of what is open, and the descriptor by which it was named.
    pub(crate) place: usize,
    pub(crate) file: u64,
    pub(crate) events: u32,
    pub(crate) told: u32,
    pub(crate) data: u64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) sockets: [Socket; ALL_SOCKETS],
    /// How many nanoseconds calls wait at each, on each side.
    pub(crate) patience: [[u64; 2]; ALL_SOCKETS],
    /// Which of them tell who sent what they receive (`SO_PASSCRED`).
    pub(crate) telling: [bool; ALL_SOCKETS],
    pub(crate) pipes: [Pipe; PIPES],
    pub(crate) counters: [Counter; COUNTERS],
    pub(crate) alarms: [Alarm; ALARMS],
    pub(crate) pollers: [Poller; POLLERS],
    /// What is watched, and behind how many places of that nothing is.
    interests: [Option<Interest>; INTERESTS],
    watched: usize,
    /// How many pipes have a name.
    pub(crate) fifos: usize,
    /// The pipe that is the input, as long as anything may come.
    pub(crate) input: Option<usize>,
    /// The next port of a program that does not care, and the next number of what has one.
    port: u16,
    number: u32,
}

/// Ports that are given to who does not care.
const OWN_PORTS: core::ops::RangeInclusive<u16> = 32_768..=60_999;

impl Streams {
    pub(crate) const fn new() -> Self {
        Self {
            sockets: [Socket::Free; ALL_SOCKETS],
            patience: [[PATIENT; 2]; ALL_SOCKETS],
            telling: [false; ALL_SOCKETS],
            pipes: [Pipe {
                readers: false,
                writers: false,
                named: None,
                frames: [0; PIPE_PAGES],
                start: 0,
                len: 0,
                most: PIPE_PAGES * PAGE_BYTES,
            }; PIPES],
            counters: [Counter {
                used: false,
                value: 0,
                single: false,
            }; COUNTERS],
            alarms: [Alarm {
                used: false,
                real: false,
                next: None,
                interval: 0,
            }; ALARMS],
            pollers: [Poller {
                used: false,
                first: 0,
            }; POLLERS],
            interests: [None; INTERESTS],
            watched: 0,
            fifos: 0,
            input: None,
            port: *OWN_PORTS.start(),
            number: 1,
        }
    }

    pub(crate) fn add_socket(&mut self, socket: Socket) -> Result<Target, Errno> {
        let mut all = self.sockets.iter();
        let place = all.position(|it| matches!(it, Socket::Free));
        let place = place.ok_or(Errno(ENFILE))?;
        (self.sockets[place], self.patience[place]) = (socket, [PATIENT; 2]);
        self.telling[place] = false;
        Ok(Target::Socket(place))
    }

    /// A pipe with both ends open.
    pub(crate) fn add_pipe(&mut self) -> Result<usize, Errno> {
        let free = |it: &Pipe| !it.readers && !it.writers && it.named.is_none();
        let place = self.pipes.iter().position(free).ok_or(Errno(ENFILE))?;
        let pipe = &mut self.pipes[place];
        (pipe.readers, pipe.writers) = (true, true);
        pipe.most = PIPE_PAGES * PAGE_BYTES;
        Ok(place)
    }

    pub(crate) fn add_counter(&mut self, value: u64, single: bool) -> Result<Target, Errno> {
        let place = self.counters.iter().position(|it| !it.used);
        let place = place.ok_or(Errno(ENFILE))?;
        self.counters[place] = Counter {
            used: true,
            value,
            single,
        };
        Ok(Target::Counter(place))
    }

    pub(crate) fn add_alarm(&mut self, real: bool) -> Result<Target, Errno> {
        let place = self.alarms.iter().position(|it| !it.used);
        let place = place.ok_or(Errno(ENFILE))?;
        self.alarms[place] = Alarm {
            used: true,
            real,
            next: None,
            interval: 0,
        };
        Ok(Target::Alarm(place))
    }

    pub(crate) fn add_poller(&mut self) -> Result<Target, Errno> {
        let place = self.pollers.iter().position(|it| !it.used);
        let place = place.ok_or(Errno(ENFILE))?;
        self.pollers[place] = Poller {
            used: true,
            first: 0,
        };
        Ok(Target::Poller(place))
    }

    /// When the first alarm rings.
    pub(crate) fn next_alarm(&self) -> Option<u64> {
        self.alarms.iter().filter_map(|it| it.next).min()
    }

    /// A port that no socket has.
    pub(crate) fn free_port(&mut self) -> u16 {
        for _ in OWN_PORTS {
            let port = self.port;
            let next = port.wrapping_add(1);
            self.port = if OWN_PORTS.contains(&next) {
                next
            } else {
                *OWN_PORTS.start()
            };
            if !self.has_port(port) {
                return port;
            }
        }
        // There are more ports than sockets.
        self.port
    }

    fn has_port(&self, wanted: u16) -> bool {
        let has = |name: &Name| matches!(name, Name::Inet((_, port)) if *port == wanted);
        self.sockets.has_name(&Name::Inet(([0; 4], wanted)))
            || self.sockets.iter().any(|it| match it {
                Socket::Waits { it, .. }
                | Socket::Connected(it)
                | Socket::Asks { it, .. }
                | Socket::Broken(it) => has(&it.name),
                Socket::Udp(it) => it.own.1 == wanted,
                _ => false,
            })
    }

    /// A number that nothing had before.
    pub(crate) const fn number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    /// What is watched, with gaps.
    pub(crate) fn interests(&self) -> &[Option<Interest>] {
        &self.interests[..self.watched]
    }

    pub(crate) fn interests_mut(&mut self) -> &mut [Option<Interest>] {
        &mut self.interests[..self.watched]
    }

    /// What a poller knows of something that is open, by that descriptor.
    pub(crate) fn interest(
        &mut self,
        poller: usize,
        place: usize,
        file: u64,
    ) -> Option<&mut Option<Interest>> {
        self.interests_mut().iter_mut().find(|it| {
            it.is_some_and(|it| it.poller == poller && it.place == place && it.file == file)
        })
    }

    pub(crate) fn add_interest(&mut self, interest: Interest) -> Result<(), Errno> {
        let free = self.interests.iter().position(Option::is_none);
        let free = free.ok_or(Errno(ENOSPC))?;
        self.interests[free] = Some(interest);
        self.watched = self.watched.max(free + 1);
        Ok(())
    }

    /// Takes away what is known of something that is open no more, or by a poller.
    pub(crate) fn forget(&mut self, which: impl Fn(&Interest) -> bool) {
        for it in self.interests_mut() {
            if it.as_ref().is_some_and(&which) {
                *it = None;
            }
        }
        let last = self.interests().iter().rposition(Option::is_some);
        self.watched = last.map_or(0, |last| last + 1);
    }

    /// Something that is open has these events no more until they come again: whoever is told of
    /// each once is told then.
    pub(crate) fn drained(&mut self, place: usize, events: u32) {
        for it in self.interests_mut().iter_mut().flatten() {
            if it.place == place {
                it.told &= !events;
            }
        }
    }
}
