//! The scheduler: strict priorities, round robin within one.
//!
//! All ready threads are in a queue, the running one included; it runs because it is the first of
//! the highest priority. Queues are doubly linked through the threads, so every operation takes
//! constant time. Endpoints and notifications keep their waiting threads in queues of the same
//! make.

use crate::Ref;
use crate::arch::INFO;
use crate::field;
use crate::kernel::Kernel;
use crate::queue::{PRIORITIES, Queue};
use crate::sphere::{Sphere, kind};
use crate::tcb::State;

impl<S: Sphere> Kernel<'_, S> {
    fn neighbours(&self, tcb: Ref) -> Queue {
        Queue::from_word(self.mem.get(tcb, field::QUEUE))
    }

    /// Who comes behind a thread in its queue.
    pub(crate) fn behind(&self, tcb: Ref) -> Option<Ref> {
        Ref::from_units(self.neighbours(tcb).tail).some()
    }

    fn set_neighbours(&mut self, tcb: Ref, neighbours: Queue) {
        self.mem.set(tcb, field::QUEUE, neighbours.word());
    }

    /// Adds a thread at the end of a queue.
    pub(crate) fn append(&mut self, queue: Queue, tcb: Ref) -> Queue {
        self.set_neighbours(
            tcb,
            Queue {
                head: queue.tail,
                tail: 0,
            },
        );
        let own = tcb.units();
        match Ref::from_units(queue.tail).some() {
            None => Queue {
                head: own,
                tail: own,
            },
            Some(last) => {
                let mut its = self.neighbours(last);
                its.tail = own;
                self.set_neighbours(last, its);
                Queue {
                    head: queue.head,
                    tail: own,
                }
            }
        }
    }

    /// Takes a thread out of the queue it is in.
    pub(crate) fn unlink(&mut self, mut queue: Queue, tcb: Ref) -> Queue {
        let Queue {
            head: before,
            tail: behind,
        } = self.neighbours(tcb);
        match Ref::from_units(before).some() {
            None => queue.head = behind,
            Some(previous) => {
                let mut its = self.neighbours(previous);
                its.tail = behind;
                self.set_neighbours(previous, its);
            }
        }
        match Ref::from_units(behind).some() {
            None => queue.tail = before,
            Some(next) => {
                let mut its = self.neighbours(next);
                its.head = before;
                self.set_neighbours(next, its);
            }
        }
        self.set_neighbours(tcb, Queue::EMPTY);
        queue
    }

    /// The thread's priority, as an index.
    fn priority(&self, tcb: Ref) -> usize {
        let priority = self.mem.get(tcb, field::PRIORITY);
        assert!(priority < PRIORITIES, "priorities are bounded");
        usize::try_from(priority).expect("below 64")
    }

    /// Makes a thread ready that is in no queue.
    pub(crate) fn make_ready(&mut self, tcb: Ref) {
        self.set_state(tcb, State::Ready);
        let priority = self.priority(tcb);
        let queue = self.append(self.ready.queue(priority), tcb);
        self.ready.set_queue(priority, queue);
    }

    /// Takes a ready thread off its queue; the caller says what it does from here on.
    pub(crate) fn unready(&mut self, tcb: Ref) {
        assert!(self.state(tcb) == State::Ready, "it is in that queue");
        let priority = self.priority(tcb);
        let queue = self.unlink(self.ready.queue(priority), tcb);
        self.ready.set_queue(priority, queue);
    }

    pub(crate) fn set_priority(&mut self, tcb: Ref, priority: u64) {
        let ready = self.state(tcb) == State::Ready;
        if ready {
            self.unready(tcb);
        }
        self.mem.set(tcb, field::PRIORITY, priority);
        if ready {
            self.make_ready(tcb);
        }
    }

    /// The running thread gives way to others of its priority: by its own wish, or at a tick.
    pub fn give_way(&mut self) {
        if let Some(tcb) = self.current.some()
            && self.state(tcb) == State::Ready
        {
            self.unready(tcb);
            self.make_ready(tcb);
        }
    }

    /// Chooses who runs next and makes it the running thread. At every kernel exit.
    pub fn schedule(&mut self) {
        let next = loop {
            let Some(tcb) = self.ready.first() else {
                break Ref::NONE;
            };
            if self.has_space(tcb) {
                break tcb;
            }
            self.unready(tcb);
            self.set_state(tcb, State::Inactive);
        };
        if next == self.current {
            return;
        }
        self.current = next;
        self.sphere.event(kind::SWITCH, u64::from(next.units()));
        if !next.is_none() && next != self.fpu {
            let from = self.fpu.some();
            self.sphere.switch_fpu(&mut self.mem, from, next);
            self.fpu = next;
        }
    }

    /// Stops a thread, whatever it does.
    pub(crate) fn suspend(&mut self, tcb: Ref) {
        match self.state(tcb) {
            State::Inactive => {}
            State::Ready => self.unready(tcb),
            State::Sending | State::Receiving | State::Waiting => self.leave_queue(tcb),
            State::Calling => self.forget_call(tcb),
        }
        self.set_state(tcb, State::Inactive);
        self.forget_rest(tcb);
    }

    /// Lets a stopped thread run. One that waited makes its system call anew only if it is asked to
    /// by its registers: what it waited for is given up.
    pub(crate) fn resume(&mut self, tcb: Ref) {
        if self.state(tcb) == State::Inactive {
            self.mem.set(tcb, field::FAULT, 0);
            self.make_ready(tcb);
        }
    }

    /// A thread that waits at an endpoint or a notification goes on with an error, because that is
    /// gone. One that is in a fault stays where it is.
    pub(crate) fn cancel(&mut self, tcb: Ref) {
        self.leave_queue(tcb);
        if self.mem.get(tcb, field::FAULT) != 0 {
            self.set_state(tcb, State::Inactive);
            return;
        }
        let gone = rcoe_abi::Error::InvalidCapability as u64;
        let info = rcoe_abi::MessageInfo::new(gone, 0).word();
        self.set_register(tcb, INFO, info);
        self.set_register(tcb, crate::arch::CAP, 0);
        self.make_ready(tcb);
    }

    /// A thread ends: nobody refers to it any more.
    pub(crate) fn end_thread(&mut self, tcb: Ref) {
        self.suspend(tcb);
        self.forget_caller(tcb);
        self.shares.forget_driver(tcb);
        let bound = self.held(tcb, field::BOUND);
        if !bound.is_none() {
            self.unbind(bound);
        }
        if self.current == tcb {
            self.current = Ref::NONE;
        }
        if self.fpu == tcb {
            self.fpu = Ref::NONE;
        }
    }
}
