//! How long a peer waits for answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for an answer, and the present one.
#[derive(Clone, Debug)]
pub(crate) struct Slowest {
    began: Instant,
    /// In microseconds: the longest wait, and when the last answer came, or 0 if none has.
    longest: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
}

impl Slowest {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            longest: Arc::default(),
            last: Arc::default(),
        }
    }

    /// An answer came to what was asked then.
    pub(crate) fn note(&self, asked: Instant) {
        self.longest
            .fetch_max(us(asked.elapsed()), Ordering::Relaxed);
        self.last.store(us(self.began.elapsed()), Ordering::Relaxed);
    }

    pub(crate) fn us(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }

    /// How long ago the last answer came; no time at all before the first.
    pub(crate) fn silent_for(&self) -> Duration {
        match self.last.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            last => self
                .began
                .elapsed()
                .saturating_sub(Duration::from_micros(last)),
        }
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_with_the_first_answer() {
        let slowest = Slowest::new();
        assert_eq!((slowest.us(), slowest.silent_for()), (0, Duration::ZERO));
        let asked = slowest.began;
        while us(asked.elapsed()) == 0 {}
        slowest.note(asked);
        let longest = slowest.us();
        assert!(longest > 0);
        slowest.note(Instant::now() + Duration::from_secs(1));
        assert_eq!(slowest.us(), longest, "a shorter one");
        let silent = slowest.silent_for();
        assert!(silent <= asked.elapsed());
    }
}
