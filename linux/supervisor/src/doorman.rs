//! Hears the doorbell while the supervisor's loop waits for descriptors.
//!
//! A thread of its own waits on the word in shared memory by which replicas call, and passes each
//! call on to an event descriptor that the loop can poll.
//!
//! Contract: after a call the descriptor is readable until it is read. Calls in between are one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

use rcoe_linux_sys::host::Bell;
use rustix::event::{EventfdFlags, eventfd};

/// What both threads know.
#[derive(Debug)]
struct Shared {
    bell: Arc<Bell>,
    event: OwnedFd,
    over: AtomicBool,
}

impl Shared {
    fn listen(&self) {
        // Replicas may have called before this thread came.
        let mut seen = 0;
        while !self.over.load(SeqCst) {
            self.bell.wait(seen);
            let now = self.bell.value();
            if now != seen {
                seen = now;
                // A counter that is full is readable, too.
                let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Doorman {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Doorman {
    /// Starts to listen. The thread blocks the signals that its maker does.
    pub(crate) fn start(bell: Arc<Bell>) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            bell,
            event,
            over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("rcoe-doorman".to_owned());
        let thread = builder.spawn(move || own.listen())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has it end soon; nobody is heard any more.
    pub(crate) fn dismiss(&self) {
        if !self.shared.over.swap(true, SeqCst) {
            self.shared.bell.ring();
        }
    }

    /// Takes all calls so far.
    pub(crate) fn hear(&self) {
        // There may have been none.
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
    }
}

impl AsFd for Doorman {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.dismiss();
        if let Some(thread) = self.thread.take() {
            // It has no way to panic that matters now.
            let _ = thread.join();
        }
    }
}
