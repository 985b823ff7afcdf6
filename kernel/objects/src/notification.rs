//! Notifications: a word of signals, for which threads wait.
//!
//! Signals that nobody waits for are kept, or-ed together. A notification can be bound to one
//! thread, whose receives on endpoints it then ends too, so that a driver waits for interrupts and
//! clients at once.

use crate::Ref;
use crate::field;
use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::tcb::State;

/// Words of a notification: signals, queue (as in endpoints), bound thread.
const SIGNALS: usize = 0;
const BOUND: usize = 2;

impl<S: Sphere> Kernel<'_, S> {
    /// Signals.
    pub(crate) fn signal(&mut self, notification: Ref, badge: u64) {
        if let Some(first) = self.waiters(notification).first() {
            self.leave_queue(first);
            self.deliver(first, badge, 0, &[]);
            self.make_ready(first);
            return;
        }
        let bound = self.held(notification, BOUND);
        if !bound.is_none() && self.state(bound) == State::Receiving {
            self.leave_queue(bound);
            self.deliver(bound, badge, 0, &[]);
            self.make_ready(bound);
            return;
        }
        let signals = self.mem.get(notification, SIGNALS) | badge;
        self.mem.set(notification, SIGNALS, signals);
    }

    /// Waits for a signal, or takes those that are there.
    pub(crate) fn wait(&mut self, tcb: Ref, notification: Ref, blocking: bool) {
        if self.take_signals(tcb, notification) {
            return;
        }
        if blocking {
            self.wait_at(tcb, notification, State::Waiting);
        } else {
            self.deliver(tcb, 0, 0, &[]);
        }
    }

    fn take_signals(&mut self, tcb: Ref, notification: Ref) -> bool {
        let signals = self.mem.get(notification, SIGNALS);
        if signals != 0 {
            self.mem.set(notification, SIGNALS, 0);
            self.deliver(tcb, signals, 0, &[]);
        }
        signals != 0
    }

    /// Takes the signals of the notification bound to `tcb`, if there are any.
    pub(crate) fn take_bound(&mut self, tcb: Ref) -> bool {
        let bound = self.held(tcb, field::BOUND);
        !bound.is_none() && self.take_signals(tcb, bound)
    }

    pub(crate) fn is_bound(&self, notification: Ref) -> bool {
        !self.held(notification, BOUND).is_none()
    }

    pub(crate) fn bind(&mut self, tcb: Ref, notification: Ref) {
        self.hold(notification, BOUND, tcb);
        self.hold(tcb, field::BOUND, notification);
    }

    pub(crate) fn unbind(&mut self, notification: Ref) {
        let bound = self.held(notification, BOUND);
        if !bound.is_none() {
            self.hold(bound, field::BOUND, Ref::NONE);
            self.hold(notification, BOUND, Ref::NONE);
        }
    }
}
