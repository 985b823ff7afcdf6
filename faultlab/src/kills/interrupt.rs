//! SIGINT ends a campaign in order: after the present run, which takes no further kills. A second
//! one ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

/// Has it come?
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn set() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set
}

/// Waits for the signal in a thread of its own. To be called before there are other threads.
///
/// # Errors
///
/// If the signal cannot be blocked.
pub fn listen() -> Result<()> {
    set().thread_block().context("cannot block SIGINT")?;
    thread::spawn(|| {
        while set().wait().is_ok() {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            eprintln!("rcoe-faultlab: ends after this run; once more to end at once");
        }
    });
    Ok(())
}

/// Is the campaign to end?
#[must_use]
pub fn is_due() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Does this with the signal let through, as children are to have it.
///
/// # Errors
///
/// As `work`, or if the mask cannot be changed.
pub(crate) fn let_through<T>(work: impl FnOnce() -> std::io::Result<T>) -> Result<T> {
    set().thread_unblock()?;
    let done = work();
    set().thread_block()?;
    Ok(done?)
}
