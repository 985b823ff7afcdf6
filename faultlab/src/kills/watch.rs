//! Follows the events of a run while it goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;

/// What the events have told so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Process of each replica.
    pub(super) pids: BTreeMap<u64, i32>,
    /// Who has the effects.
    pub(super) primary: u64,
    /// Replicas brought back.
    pub(super) returns: u64,
    /// Events.
    pub(super) news: u64,
    /// The run is over.
    over: Option<String>,
    /// Why a replica is not brought back.
    given_up: Option<String>,
}

impl Seen {
    fn add(&mut self, event: &Value) {
        self.news += 1;
        let pid = |value: &Value| i32::try_from(value["pid"].as_i64()?).ok();
        match event["type"].as_str().unwrap_or_default() {
            "start" => {
                let replicas = event["replicas"].as_array().into_iter().flatten();
                self.pids = replicas
                    .filter_map(|replica| Some((replica["id"].as_u64()?, pid(replica)?)))
                    .collect();
            }
            "takeover" => self.primary = event["to"].as_u64().unwrap_or(self.primary),
            "reintegration" if event["stage"] == "done" => {
                if let (Some(id), Some(pid)) = (event["replica"].as_u64(), pid(event)) {
                    self.pids.insert(id, pid);
                    self.returns += 1;
                }
            }
            "reintegration" if event["stage"] == "abandoned" && event["again"] == false => {
                self.given_up = Some(event["reason"].to_string());
            }
            "stop" => self.over = Some(event.to_string()),
            _ => {}
        }
    }
}

/// A file of events that grows.
pub(super) struct Watch {
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    rest: Vec<u8>,
    /// When waiting ends.
    pub(super) deadline: Instant,
    pub(super) seen: Seen,
}

impl Watch {
    pub(super) fn new(path: &Path, deadline: Instant) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            offset: 0,
            rest: Vec::new(),
            deadline,
            seen: Seen::default(),
        }
    }

    /// Takes what has been written meanwhile.
    pub(super) fn refresh(&mut self) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &self.file else { return };
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = file.read_at(&mut bytes, self.offset) {
            self.offset += u64::try_from(len).unwrap_or(0);
            self.rest.extend_from_slice(&bytes[..len]);
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Ok(event) = serde_json::from_slice(&line) {
                self.seen.add(&event);
            }
        }
    }

    /// Waits for something to be told.
    pub(super) fn until(&mut self, what: &str, mut test: impl FnMut(&Seen) -> bool) -> Result<()> {
        loop {
            self.refresh();
            if test(&self.seen) {
                return Ok(());
            }
            if let Some(over) = &self.seen.over {
                bail!("the run ended before {what}: {over}");
            }
            if let Some(reason) = &self.seen.given_up {
                bail!("waited for {what}: {reason}");
            }
            ensure!(Instant::now() < self.deadline, "waited in vain for {what}");
            thread::sleep(Duration::from_micros(300));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_followed_as_they_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let start = r#"{"type":"start","replicas":[{"id":0,"pid":7},{"id":1,"pid":8}]}"#;
        std::fs::write(&path, format!("{start}\n{{\"type\":\"takeo")).unwrap();
        let mut watch = Watch::new(&path, Instant::now());
        watch.refresh();
        assert_eq!(watch.seen.pids[&1], 8);
        assert_eq!(watch.seen.primary, 0);
        let done = r#"{"type":"reintegration","stage":"done","replica":0,"pid":9}"#;
        let all = format!("{start}\n{{\"type\":\"takeover\",\"from\":0,\"to\":1}}\n{done}\n");
        std::fs::write(&path, all).unwrap();
        watch.refresh();
        assert_eq!((watch.seen.primary, watch.seen.returns), (1, 1));
        assert_eq!(watch.seen.pids[&0], 9);
        assert!(watch.until("nothing", |_| false).is_err());
    }
}
