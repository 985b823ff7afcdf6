//! What happened when, from the events that rcoe writes while it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

/// A kind of thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A bit was flipped.
    Flip,
    /// A fault was noticed.
    Fault,
    /// A replica was removed.
    Removed,
    /// The removed one was the primary.
    Takeover,
    /// A replica is back.
    Back,
    /// A page that a replica had other than most was repaired.
    Repaired,
    /// The run ended.
    Stop,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flip => "flip",
            Self::Fault => "fault",
            Self::Removed => "removed",
            Self::Takeover => "takeover",
            Self::Back => "back",
            Self::Repaired => "repaired",
            Self::Stop => "stop",
        })
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Seconds since the start.
    pub at: f64,
    /// Of which kind it is.
    pub what: What,
    /// The replica it happened to.
    pub replica: Option<u64>,
    /// In words.
    pub detail: String,
}

/// Follows an events file.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Bytes of the file read.
    read: u64,
    /// Process ids of the replicas that are present.
    pids: BTreeMap<u64, i32>,
    moments: Vec<Moment>,
    /// What to add to rcoe's times to get ours: rcoe tells the time, and is read a little later.
    ahead: Option<f64>,
    over: bool,
}

impl Watch {
    /// Replicas that are present.
    pub(super) fn present(&self) -> usize {
        self.pids.len()
    }

    /// Process id of a replica that is present.
    pub(super) fn pid(&self, replica: usize) -> Option<i32> {
        self.pids.get(&u64::try_from(replica).ok()?).copied()
    }

    pub(super) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// The server has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Reads what was added to the file; a line that is not finished is left for the next time.
    pub(super) fn follow(&mut self, path: &Path, started: Instant) -> Vec<Moment> {
        let mut text = String::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_string(&mut text)
        });
        let Some(end) = read.ok().and_then(|_| text.rfind('\n')) else {
            return Vec::new();
        };
        self.read += end as u64 + 1;
        let values = text[..end].lines().map(serde_json::from_str::<Value>);
        let now = started.elapsed().as_secs_f64();
        let new: Vec<Moment> = values
            .filter_map(|value| self.take(&value.ok()?, now))
            .collect();
        self.moments.extend(new.iter().cloned());
        new
    }

    fn take(&mut self, event: &Value, now: f64) -> Option<Moment> {
        let told = event["t"].as_f64().unwrap_or(now);
        let ahead = self.ahead.unwrap_or(f64::MAX).min(now - told);
        self.ahead = Some(ahead);
        let (what, replica) = match event["type"].as_str()? {
            "start" => {
                for replica in event["replicas"].as_array()? {
                    self.enter(&replica["id"], &replica["pid"]);
                }
                return None;
            }
            "divergence" => (What::Fault, &event["replica"]),
            "downgrade" => {
                self.pids.remove(&event["removed"].as_u64()?);
                (What::Removed, &event["removed"])
            }
            "takeover" => (What::Takeover, &event["to"]),
            "reintegration" if event["stage"] == "done" => {
                self.enter(&event["replica"], &event["pid"]);
                (What::Back, &event["replica"])
            }
            "scrub" if event["repaired"] == true => (What::Repaired, &event["replica"]),
            "stop" => {
                self.over = true;
                (What::Stop, &event["none"])
            }
            _ => return None,
        };
        Some(Moment {
            at: told + ahead,
            what,
            replica: replica.as_u64(),
            detail: event.to_string(),
        })
    }

    fn enter(&mut self, replica: &Value, pid: &Value) {
        let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok());
        if let (Some(id), Some(pid)) = (replica.as_u64(), pid) {
            self.pids.insert(id, pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::{Watch, What};

    #[test]
    fn a_replica_is_lost_and_back() {
        let folder = std::env::temp_dir().join(format!("rcoe-watch-{}", std::process::id()));
        let started = Instant::now();
        let mut watch = Watch::default();
        let mut text = String::from(
            "{\"type\":\"start\",\"replicas\":[{\"id\":0,\"pid\":5},{\"id\":1,\"pid\":6}]}\n",
        );
        fs::write(&folder, &text).unwrap();
        assert!(watch.follow(&folder, started).is_empty());
        assert_eq!((watch.present(), watch.pid(1)), (2, Some(6)));
        text += "{\"type\":\"downgrade\",\"removed\":1}\n{\"type\":\"reinteg";
        fs::write(&folder, &text).unwrap();
        let seen = watch.follow(&folder, started);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].what, seen[0].replica), (What::Removed, Some(1)));
        assert_eq!(watch.present(), 1);
        text += "ration\",\"stage\":\"done\",\"replica\":1,\"pid\":9}\n{\"type\":\"stop\"}\n";
        fs::write(&folder, &text).unwrap();
        assert_eq!(watch.follow(&folder, started)[0].what, What::Back);
        assert_eq!(watch.pid(1), Some(9));
        assert!(watch.is_over());
        fs::remove_file(&folder).unwrap();
    }
}
