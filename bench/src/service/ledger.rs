//! A client that counts: each operation adds one, and the answer must be one more than the last.
//!
//! An operation lost shows as an answer that is too low, one done twice as an answer too high, and
//! one answered but not done in the value read at the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

const KEY: &str = "rcoe:ledger";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the client saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ledger {
    /// Operations answered.
    pub answered: u64,
    /// The key's value at the end.
    pub value: u64,
    /// Answers that were not one more than the last.
    pub wrong: u64,
    /// The error that ended it, if one did.
    pub error: Option<String>,
    /// Milliseconds of the slowest answers, slowest first.
    pub slowest_ms: Vec<f64>,
    /// Milliseconds of the median answer.
    pub median_ms: f64,
}

impl Ledger {
    /// Counts until it is over.
    #[must_use]
    pub fn keep(port: u16, over: &AtomicBool) -> Self {
        let mut ledger = Self::default();
        let mut waits = Vec::new();
        if let Err(error) = ledger.count(port, over, &mut waits) {
            ledger.error = Some(error.to_string());
        }
        waits.sort_by(f64::total_cmp);
        ledger.median_ms = waits.get(waits.len() / 2).copied().unwrap_or(0.0);
        ledger.slowest_ms = waits.iter().rev().take(10).copied().collect();
        ledger
    }

    fn count(
        &mut self,
        port: u16,
        over: &AtomicBool,
        waits: &mut Vec<f64>,
    ) -> redis::RedisResult<()> {
        let client = redis::Client::open(("127.0.0.1", port))?;
        let mut connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        while !over.load(Ordering::Acquire) {
            let asked = Instant::now();
            let value: u64 = redis::cmd("INCR").arg(KEY).query(&mut connection)?;
            waits.push(asked.elapsed().as_secs_f64() * 1e3);
            self.answered += 1;
            if value != self.value + 1 {
                self.wrong += 1;
            }
            self.value = value;
        }
        self.value = redis::cmd("GET").arg(KEY).query(&mut connection)?;
        Ok(())
    }

    /// Every operation was done once, and answered.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.error.is_none() && self.wrong == 0 && self.value == self.answered && self.value > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn a_count_that_is_off_is_wrong() {
        let right = Ledger {
            answered: 7,
            value: 7,
            ..Ledger::default()
        };
        assert!(right.is_right());
        for wrong in [
            Ledger {
                value: 8,
                ..right.clone()
            },
            Ledger {
                wrong: 1,
                ..right.clone()
            },
            Ledger {
                error: Some("reset".into()),
                ..right
            },
            Ledger::default(),
        ] {
            assert!(!wrong.is_right(), "{wrong:?}");
        }
    }
}
