//! The part of `rcoe run --events` that the lab needs.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// A replica as announced by the `start` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Replica number, from 0.
    pub id: u64,
    /// Process id on the host.
    pub pid: i32,
    /// Core it is pinned to, if any.
    pub core: Option<u64>,
}

/// A detected difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// `mismatch`, `timeout`, `fault` or `death`.
    pub kind: String,
    /// When it was told, on rcoe's clock.
    pub at: Option<Duration>,
    /// The replica named as culprit, if the others agree on one.
    pub replica: Option<u64>,
    /// The core that it ran on, if that is known.
    pub core: Option<u64>,
    /// What differed, in words.
    pub detail: String,
}

/// All events of a run that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Replicas of the run; empty before the start.
    pub replicas: Vec<Replica>,
    /// When they were announced, on rcoe's clock, which begins with the run.
    pub started: Option<Duration>,
    /// Detected differences, in order.
    pub divergences: Vec<Divergence>,
    /// Ids of replicas that were voted out and removed.
    pub removed: Vec<u64>,
    /// Who has the effects.
    pub primary: u64,
    /// Replicas that were brought back, in order, with when that was told.
    pub returned: Vec<(u64, Option<Duration>)>,
    /// The `stop` event as written, if the run got that far.
    pub stop: Option<Value>,
}

impl Events {
    /// Reads an events file, which may still be growing; an unfinished last line is left out.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Self::parse(whole)
    }

    /// Parses newline-delimited JSON; lines that are not understood are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut events = Self::default();
        for line in text.lines() {
            if let Ok(value) = serde_json::from_str::<Value>(line) {
                events.add(value);
            }
        }
        events
    }

    fn add(&mut self, value: Value) {
        match value["type"].as_str() {
            Some("start") => {
                let list = value["replicas"].as_array().map_or(&[][..], Vec::as_slice);
                self.replicas = list.iter().filter_map(replica).collect();
                self.started = time(&value);
            }
            Some("divergence") => self.divergences.push(Divergence {
                kind: value["kind"].as_str().unwrap_or("unknown").to_owned(),
                at: time(&value),
                replica: value["replica"].as_u64(),
                core: value["core"].as_u64(),
                detail: plain(&value["detail"]),
            }),
            Some("downgrade") => self.removed.extend(value["removed"].as_u64()),
            Some("takeover") => self.primary = value["to"].as_u64().unwrap_or(self.primary),
            Some("reintegration") if value["stage"] == "done" => {
                let who = value["replica"].as_u64();
                self.returned.extend(who.map(|who| (who, time(&value))));
            }
            Some("stop") => self.stop = Some(value),
            _ => {}
        }
    }
}

/// When an event was told; whoever writes another clock than ours may write nonsense.
fn time(event: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(event["t"].as_f64()?).ok()
}

fn replica(value: &Value) -> Option<Replica> {
    Some(Replica {
        id: value["id"].as_u64()?,
        pid: i32::try_from(value["pid"].as_i64()?).ok()?,
        core: value["core"].as_u64(),
    })
}

/// A string without its quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Events, Replica};

    const RUN: &str = r#"
{"t":0.1,"type":"start","replicas":[{"id":0,"pid":7,"core":0},{"id":1,"pid":8,"core":null}]}
{"t":0.25,"type":"divergence","kind":"mismatch","replica":1,"core":1,"event":12,"detail":"write"}
{"t":-3,"type":"divergence","kind":"death"}
{"type":"downgrade","removed":1,"primary":0}
{"t":0.3,"type":"reintegration","replica":1,"stage":"begun"}
{"t":0.5,"type":"reintegration","replica":1,"stage":"done"}
{"type":"takeover","from":0,"to":1}
{"type":"news","from":"a later version"}
{"type":"stop","status":0}
"#;

    #[test]
    fn a_whole_run_is_read() {
        let events = Events::parse(RUN);
        assert_eq!(
            events.replicas[1],
            Replica {
                id: 1,
                pid: 8,
                core: None
            }
        );
        assert_eq!(events.divergences[0].kind, "mismatch");
        assert_eq!(events.divergences[0].replica, Some(1));
        assert_eq!(events.divergences[0].core, Some(1));
        let times = [events.started, events.divergences[0].at];
        assert_eq!(times, [100, 250].map(|ms| Some(Duration::from_millis(ms))));
        assert_eq!(events.divergences[1].at, None, "no time of a run");
        assert_eq!(events.removed, [1]);
        assert_eq!(events.returned, [(1, Some(Duration::from_millis(500)))]);
        assert_eq!(events.primary, 1);
        assert!(events.stop.is_some());
    }

    #[test]
    fn an_unfinished_line_is_not_believed() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        std::fs::write(
            file.path(),
            r#"{"type":"start","replicas":[{"id":0,"pid":7"#,
        )
        .expect("written");
        assert_eq!(Events::read(file.path()), Events::default());
    }
}
