//! Queues of threads, which are linked through their words: those that are ready, and those that
//! wait for something.

use crate::Ref;
use crate::digest::Checksum;

/// Priorities, 0 the lowest.
pub(crate) const PRIORITIES: u64 = 64;

/// As many queues.
const QUEUES: usize = 64;
const _: () = assert!(QUEUES as u64 == PRIORITIES);

/// First and last of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { head: 0, tail: 0 };

    pub(crate) const fn from_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        Self {
            head: u32::from_le_bytes([a, b, c, d]),
            tail: u32::from_le_bytes([e, f, g, h]),
        }
    }

    pub(crate) const fn word(self) -> u64 {
        self.head as u64 | (self.tail as u64) << 32
    }

    /// The last; of a thread's links, who comes behind it.
    #[cfg(test)]
    pub(crate) const fn last(self) -> Option<Ref> {
        Ref::from_units(self.tail).some()
    }

    pub(crate) const fn first(self) -> Option<Ref> {
        Ref::from_units(self.head).some()
    }
}

/// The queues of ready threads.
#[derive(Debug)]
pub(crate) struct Ready {
    queues: [Queue; QUEUES],
    /// One bit for each queue that is not empty.
    occupied: u64,
}

impl Ready {
    pub(crate) const fn new() -> Self {
        Self {
            queues: [Queue::EMPTY; QUEUES],
            occupied: 0,
        }
    }

    /// The first thread of each queue.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = Ref> {
        self.queues.iter().filter_map(|queue| queue.first())
    }

    /// Adds all of it to a checksum.
    pub(crate) fn sum(&self, sum: &mut Checksum) {
        for queue in &self.queues {
            sum.word(queue.word());
        }
        sum.word(self.occupied);
    }

    /// The queue of a priority.
    pub(crate) const fn queue(&self, priority: usize) -> Queue {
        self.queues[priority]
    }

    pub(crate) fn set_queue(&mut self, priority: usize, queue: Queue) {
        self.queues[priority] = queue;
        if queue == Queue::EMPTY {
            self.occupied &= !(1 << priority);
        } else {
            self.occupied |= 1 << priority;
        }
    }

    /// The thread that is to run.
    pub(crate) fn first(&self) -> Option<Ref> {
        let highest = self.occupied.checked_ilog2()?;
        self.queues[highest as usize].first()
    }
}
