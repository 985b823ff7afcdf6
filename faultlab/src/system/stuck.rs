//! Whether a machine will ever end: judged by the CPU time that its emulator has used, so that a
//! loaded host makes no machine hang.

use std::fs;
use std::time::{Duration, Instant};

/// Clock ticks of `/proc` in a second.
const TICKS: u64 = 100;
/// An emulator that sleeps for so long has nothing to do any more.
const SLEEP: Duration = Duration::from_secs(10);

/// Watches the emulator that an rcoe has started.
#[derive(Debug)]
pub(super) struct Stuck {
    rcoe: u32,
    limit: Duration,
    /// CPU time when it was last seen to be awake, and when that was.
    awake: (u64, Instant),
    /// Has it ended, or not begun?
    gone: bool,
}

/// State, and CPU time in ticks, of a process.
fn state_of(pid: &str) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text[text.rfind(')')? + 2..].split(' ');
    let state = fields.next()?.chars().next()?;
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((state, user + system))
}

impl Stuck {
    pub(super) fn new(rcoe: u32, limit: Duration) -> Self {
        Self {
            rcoe,
            limit,
            awake: (0, Instant::now()),
            gone: true,
        }
    }

    /// Is any thread of the emulator about to run?
    fn is_awake(pid: &str) -> bool {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        let mut states = threads.flatten().filter_map(|thread| {
            let name = thread.file_name();
            state_of(&format!("{pid}/task/{}", name.to_str()?))
        });
        states.any(|(state, _)| state != 'S')
    }

    /// Ticks that it had used when it was looked at last.
    pub(super) const fn used(&self) -> u64 {
        self.awake.0
    }

    /// Was there none when it was looked at last?
    pub(super) const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Has it used up its time, or been asleep for long?
    pub(super) fn look(&mut self) -> bool {
        let rcoe = self.rcoe;
        let children = fs::read_to_string(format!("/proc/{rcoe}/task/{rcoe}/children"));
        let children = children.unwrap_or_default();
        let pid = children.split_whitespace().next();
        self.gone = pid.is_none();
        let Some(pid) = pid else {
            self.awake.1 = Instant::now();
            return false;
        };
        let used = state_of(pid).map_or(0, |(_, used)| used);
        if used != self.awake.0 || Self::is_awake(pid) {
            self.awake = (used, Instant::now());
        }
        used > self.limit.as_secs() * TICKS || self.awake.1.elapsed() > SLEEP
    }
}
