//! Named pipes: making them, and opening their ends.
//!
//! A name leads to a pipe as long as an end of that is open, or somebody waits to open one. Who
//! opens an end waits until somebody has opened the other one, be it that this one is gone again:
//! so it is counted how often each was opened.

use linux_raw_sys::errno::{EINVAL, ENXIO};
use linux_raw_sys::general::{
    O_ACCMODE, O_CLOEXEC, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY, POLLERR, POLLHUP, POLLIN,
    POLLOUT, POLLRDNORM, POLLWRNORM,
};

use crate::linux::errno::LATER;
use crate::linux::files::Kind;
use crate::linux::streams::{Named, Side, Target};
use crate::linux::threads::Opening;
use crate::linux::{Answer, Errno, Machine, Process};

impl<M: Machine> Process<'_, M> {
    /// Opens an end of a named pipe, or both.
    pub(super) fn open_fifo(&mut self, node: usize, flags: u32) -> Answer {
        self.tend_fifos();
        let pipe = self.pipe_of(node)?;
        match flags & O_ACCMODE {
            O_RDONLY => self.open_end(pipe, Side::Receives, flags),
            O_WRONLY => self.open_end(pipe, Side::Sends, flags),
            O_RDWR => {
                self.came(pipe, Side::Receives);
                self.came(pipe, Side::Sends);
                self.open_named(Target::Both(pipe), flags, 0)
            }
            _ => Err(Errno(EINVAL)),
        }
    }

    /// The call that waits to open an end of a named pipe, if the one at hand does.
    pub(super) fn open_later(&mut self, flags: u32) -> Option<Answer> {
        let opening = self.threads.now().wait.opening?;
        let Opening { pipe, side, seen } = opening;
        let other = other(side);
        let named = self.streams.pipes[pipe].named?;
        if named.came[other as usize] == seen {
            return Some(Err(LATER));
        }
        let opened = self.open_named(end(side, pipe), flags, 0);
        self.threads.current().wait.opening = None;
        Some(opened)
    }

    /// The pipe to which a name leads, which is a new one if there is none.
    fn pipe_of(&mut self, node: usize) -> Result<usize, Errno> {
        if let Kind::Fifo(Some(pipe)) = self.files.node(node).kind {
            return Ok(pipe);
        }
        let number = self.streams.add_pipe()?;
        let pipe = &mut self.streams.pipes[number];
        (pipe.readers, pipe.writers) = (false, false);
        pipe.named = Some(Named { node, came: [0; 2] });
        self.streams.fifos += 1;
        self.files.set_pipe(node, Some(number));
        Ok(number)
    }

    /// Somebody opens an end.
    fn came(&mut self, pipe: usize, side: Side) {
        let pipe = &mut self.streams.pipes[pipe];
        match side {
            Side::Receives => pipe.readers = true,
            Side::Sends => pipe.writers = true,
        }
        if let Some(named) = &mut pipe.named {
            named.came[side as usize] += 1;
        }
    }

    fn open_end(&mut self, pipe: usize, side: Side, flags: u32) -> Answer {
        let (ends, other) = (self.streams.pipes[pipe], other(side));
        let is_there = match other {
            Side::Receives => ends.readers,
            Side::Sends => ends.writers,
        };
        let waits = flags & O_NONBLOCK == 0;
        if !is_there && !waits && side == Side::Sends {
            return Err(Errno(ENXIO));
        }
        let seen = ends.named.map_or(0, |named| named.came[other as usize]);
        self.came(pipe, side);
        if is_there || !waits {
            // Who reads before anybody came to write is not told that all have gone.
            let seen = if is_there { 0 } else { seen };
            return self.open_named(end(side, pipe), flags, seen);
        }
        self.threads.current().wait.opening = Some(Opening { pipe, side, seen });
        Err(LATER)
    }

    fn open_named(&mut self, target: Target, flags: u32, seen: u64) -> Answer {
        let flags = flags & (O_NONBLOCK | O_CLOEXEC | O_ACCMODE);
        let number = self.files.open(target, flags)? as u64;
        self.files.of(number)?.offset = seen;
        Ok(number)
    }

    /// The name of a pipe that has one, by what is open.
    pub(in crate::linux) fn named_pipe(&self, target: Target) -> Option<usize> {
        match target {
            Target::Reader(pipe) | Target::Writer(pipe) | Target::Both(pipe) => {
                self.streams.pipes[pipe].named.map(|it| it.node)
            }
            _ => None,
        }
    }

    /// Sees which ends of named pipes are open, or about to be; one that has none is gone.
    pub(in crate::linux) fn tend_fifos(&mut self) {
        if self.streams.fifos == 0 {
            return;
        }
        for pipe in 0..self.streams.pipes.len() {
            let Some(Named { node, .. }) = self.streams.pipes[pipe].named else {
                continue;
            };
            let both = self.files.is_target(Target::Both(pipe));
            let [readers, writers] = [Side::Receives, Side::Sends].map(|side| {
                both || self.files.is_target(end(side, pipe)) || self.threads.opens(pipe, side)
            });
            let ends = &mut self.streams.pipes[pipe];
            (ends.readers, ends.writers) = (readers, writers);
            if !readers && !writers {
                ends.named = None;
                self.streams.fifos -= 1;
                self.empty_pipe(pipe);
                self.files.set_pipe(node, None);
                let (store, machine) = (&mut self.store, &mut self.machine);
                // Nothing is in it.
                let _ = self.files.forget_nameless(store, machine, node);
            }
        }
    }

    /// Events of the ends of a pipe that are open there; who opened one had seen so many writers
    /// come.
    pub(super) fn pipe_events(&self, target: Target, seen: u64) -> u32 {
        let (Target::Reader(pipe) | Target::Writer(pipe) | Target::Both(pipe)) = target else {
            return 0;
        };
        let ends = &self.streams.pipes[pipe];
        let had_writers = ends
            .named
            .is_none_or(|it| it.came[Side::Sends as usize] != seen);
        let mut events = 0;
        if !matches!(target, Target::Writer(_)) {
            events |= if ends.len > 0 { POLLIN | POLLRDNORM } else { 0 };
            events |= if !ends.writers && had_writers {
                POLLHUP
            } else {
                0
            };
        }
        if !matches!(target, Target::Reader(_)) {
            events |= if ends.has_room() {
                POLLOUT | POLLWRNORM
            } else {
                0
            };
            events |= if ends.readers { 0 } else { POLLERR };
        }
        events
    }
}

const fn other(side: Side) -> Side {
    match side {
        Side::Receives => Side::Sends,
        Side::Sends => Side::Receives,
    }
}

const fn end(side: Side, pipe: usize) -> Target {
    match side {
        Side::Receives => Target::Reader(pipe),
        Side::Sends => Target::Writer(pipe),
    }
}
