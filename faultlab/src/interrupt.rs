//! SIGINT ends a campaign in order: after the present run, in which no further faults are made.
//! What was found until then is told. A second one ends it at once.
//!
//! It is blocked, so that it interrupts nothing, and awaited by a thread. Children are to have it,
//! so it is let through where one is started; a handler takes it then, and no child keeps that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// Has it come?
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Status of one that is ended at once.
const ENDED: i32 = 130;

fn set() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set
}

/// Waits for the signal in a thread of its own. To be called before there are other threads.
///
/// # Errors
///
/// If the signal cannot be blocked or handled.
pub fn listen() -> Result<()> {
    set().thread_block().context("cannot block SIGINT")?;
    flag::register_conditional_shutdown(SIGINT, ENDED, Arc::clone(&INTERRUPTED))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&INTERRUPTED)))
        .context("cannot handle SIGINT")?;
    thread::spawn(|| {
        while set().wait().is_ok() {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(ENDED);
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
    let mask = set().thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
    let done = work();
    mask.thread_set_mask()?;
    Ok(done?)
}
