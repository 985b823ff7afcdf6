//! Endpoints: messages are handed over when sender and receiver meet.
//!
//! An endpoint is one word that says who waits there, and one for their queue. A call makes the
//! receiver remember its caller; a reply goes to whom it remembers. A caller whose receiver forgets
//! it by receiving again waits for ever, as in seL4.

use crate::field;
use crate::grant::Grant;
use crate::kernel::Kernel;
use crate::queue::Queue;
use crate::sphere::Sphere;
use crate::tcb::State;
use crate::{Cap, Ref};

/// Words of an endpoint or a notification.
pub(crate) const WAITERS: usize = 1;

impl<S: Sphere> Kernel<'_, S> {
    pub(crate) fn waiters(&self, place: Ref) -> Queue {
        Queue::from_word(self.mem.get(place, WAITERS))
    }

    pub(crate) fn set_waiters(&mut self, place: Ref, queue: Queue) {
        self.mem.set(place, WAITERS, queue.word());
    }

    /// The first who waits at an endpoint, if it does what is asked for.
    fn first_waiter(&self, endpoint: Ref, state: State) -> Option<Ref> {
        let first = self.waiters(endpoint).first()?;
        (self.state(first) == state).then_some(first)
    }

    /// Takes a thread out of the queue of what it waits at.
    pub(crate) fn leave_queue(&mut self, tcb: Ref) {
        let place = self.held(tcb, field::WAITS_AT);
        let queue = self.waiters(place);
        let queue = self.unlink(queue, tcb);
        self.set_waiters(place, queue);
        self.hold(tcb, field::WAITS_AT, Ref::NONE);
    }

    /// A ready or faulting thread waits from here on.
    pub(crate) fn wait_at(&mut self, tcb: Ref, place: Ref, state: State) {
        if self.state(tcb) == State::Ready {
            self.unready(tcb);
        }
        self.set_state(tcb, state);
        self.hold(tcb, field::WAITS_AT, place);
        let queue = self.waiters(place);
        let queue = self.append(queue, tcb);
        self.set_waiters(place, queue);
    }

    /// Sends the message of `tcb`, whose right to grant has been noted.
    pub(crate) fn send(&mut self, tcb: Ref, endpoint: Ref, badge: u64, blocking: bool, call: bool) {
        match self.first_waiter(endpoint, State::Receiving) {
            Some(receiver) => {
                self.leave_queue(receiver);
                self.hand_over(tcb, receiver, (endpoint, badge), call);
                self.make_ready(receiver);
            }
            None if blocking => {
                self.mem.set(tcb, field::BADGE, badge);
                self.mem.set(tcb, field::CALLS, u64::from(call));
                self.wait_at(tcb, endpoint, State::Sending);
            }
            None => {}
        }
    }

    /// The message itself; a caller waits for the reply.
    fn hand_over(&mut self, sender: Ref, receiver: Ref, through: (Ref, u64), call: bool) {
        let (endpoint, badge) = through;
        if self.mem.get(sender, field::FAULT) == 0 {
            let grants = self.mem.get(sender, field::GRANTS) != 0;
            let grant = grants.then_some(Grant::Through(endpoint));
            self.transfer(sender, receiver, badge, grant);
        } else {
            self.transfer_fault(sender, receiver, badge);
        }
        if call {
            if self.state(sender) == State::Ready {
                self.unready(sender);
            }
            self.set_state(sender, State::Calling);
            self.forget_caller(receiver);
            self.hold(receiver, field::CALLER, sender);
            self.hold(sender, field::CALLED, receiver);
        }
    }

    /// Receives for `tcb` at an endpoint, or from the notification bound to it.
    pub(crate) fn receive(&mut self, tcb: Ref, endpoint: Ref, blocking: bool) {
        if self.take_bound(tcb) {
            return;
        }
        match self.first_waiter(endpoint, State::Sending) {
            Some(sender) => {
                self.leave_queue(sender);
                let badge = self.mem.get(sender, field::BADGE);
                let call = self.mem.get(sender, field::CALLS) != 0;
                self.hand_over(sender, tcb, (endpoint, badge), call);
                if !call {
                    self.make_ready(sender);
                }
            }
            None if blocking => self.wait_at(tcb, endpoint, State::Receiving),
            None => self.deliver(tcb, 0, 0, &[]),
        }
    }

    /// Answers whom `tcb` remembers, if anybody.
    pub(crate) fn reply(&mut self, tcb: Ref) {
        let caller = self.held(tcb, field::CALLER);
        if caller.is_none() {
            return;
        }
        self.forget_caller(tcb);
        if self.mem.get(caller, field::FAULT) != 0 {
            self.reply_to_fault(tcb, caller);
        } else {
            let granted = self.mem.get(caller, field::GRANTS) != 0;
            self.transfer(tcb, caller, 0, granted.then_some(Grant::Reply));
            self.make_ready(caller);
        }
    }

    /// `tcb` will not answer.
    pub(crate) fn forget_caller(&mut self, tcb: Ref) {
        let caller = self.held(tcb, field::CALLER);
        if !caller.is_none() {
            self.hold(caller, field::CALLED, Ref::NONE);
            self.hold(tcb, field::CALLER, Ref::NONE);
        }
    }

    /// `tcb` does not wait for an answer any more.
    pub(crate) fn forget_call(&mut self, tcb: Ref) {
        let called = self.held(tcb, field::CALLED);
        if !called.is_none() {
            self.hold(called, field::CALLER, Ref::NONE);
            self.hold(tcb, field::CALLED, Ref::NONE);
        }
    }

    /// Nobody can wait at an endpoint or a notification any more.
    pub(crate) fn cancel_all(&mut self, place: Ref) {
        while let Some(first) = self.waiters(place).first() {
            self.cancel(first);
        }
    }

    /// Revoking a badge: messages that carry it are not delivered any more.
    pub(crate) fn cancel_badge(&mut self, cap: Cap) {
        let Cap::Endpoint { obj, badge, .. } = cap else {
            return;
        };
        let mut next = self.waiters(obj).first();
        while let Some(tcb) = next {
            let behind = Queue::from_word(self.mem.get(tcb, field::QUEUE)).tail;
            next = Ref::from_units(behind).some();
            let sends = self.state(tcb) == State::Sending;
            if sends && self.mem.get(tcb, field::BADGE) == badge {
                self.cancel(tcb);
            }
        }
    }
}
