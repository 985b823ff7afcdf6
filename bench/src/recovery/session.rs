//! A service that answers, a client that asks, and what rcoe tells meanwhile.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::configuration::Configuration;
use crate::workshop::{Workshop, words};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the events.
const LOOK: Duration = Duration::from_millis(1);

/// What happens to a replica.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// SIGKILL.
    Killed,
    /// It adds something to its answers.
    Wrong,
}

/// Ends with everything in it when dropped.
pub(super) struct Session {
    child: Child,
    client: Option<JoinHandle<Result<()>>>,
    shared: Arc<Shared>,
    /// Where the word lies that is added to each answer.
    salt: u64,
    events: PathBuf,
    /// Bytes of the events read.
    read: u64,
    pids: BTreeMap<u64, i32>,
}

/// What the client and the session share.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Nanoseconds.
    longest: AtomicU64,
    answers: AtomicU64,
}

impl Session {
    /// Starts the service and the client; returns when both are at work.
    pub(super) fn start(
        workshop: &Workshop,
        configuration: Configuration,
        mib: u64,
    ) -> Result<Self> {
        let events = workshop.path("events");
        // What an earlier session told is not this one's.
        let _ = std::fs::remove_file(&events);
        let probe = workshop.path("probe");
        let mut line = vec![probe.into_os_string()];
        line.extend(words(&["serve", &mib.to_string()]));
        let mut command = workshop.command(configuration, Some(&events), &line);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let mut session = Self {
            child,
            client: None,
            shared: Arc::default(),
            salt: 0,
            events,
            read: 0,
            pids: BTreeMap::new(),
        };
        let mut output = BufReader::new(output);
        let mut told = String::new();
        output.read_line(&mut told)?;
        let address = told.trim().trim_start_matches("0x");
        session.salt = u64::from_str_radix(address, 16).context("the service does not start")?;
        session.until(|event| event["type"] == "start")?;
        let shared = Arc::clone(&session.shared);
        session.client = Some(thread::spawn(move || ask(input, output, &shared)));
        let deadline = Instant::now() + PATIENCE;
        while session.shared.answers.load(Ordering::Relaxed) < 100 {
            session.check(deadline)?;
            thread::sleep(LOOK);
        }
        Ok(session)
    }

    /// Forgets the gaps so far.
    pub(super) fn restart_clock(&self) {
        self.shared.longest.store(0, Ordering::Relaxed);
    }

    /// The longest time between two answers since then, in microseconds.
    pub(super) fn longest_gap(&self) -> f64 {
        let nanoseconds = self.shared.longest.load(Ordering::Relaxed);
        Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
    }

    /// Does this to a replica.
    pub(super) fn harm(&self, replica: u64, fault: Fault) -> Result<()> {
        let pid = self.pids.get(&replica).context("no such replica")?;
        match fault {
            Fault::Killed => kill(Pid::from_raw(*pid), Signal::SIGKILL)?,
            Fault::Wrong => {
                let memory = OpenOptions::new()
                    .write(true)
                    .open(format!("/proc/{pid}/mem"))?;
                memory.write_all_at(&1_u64.to_ne_bytes(), self.salt)?;
            }
        }
        Ok(())
    }

    /// Waits for an event.
    pub(super) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = self.news().into_iter().find(|event| wanted(event)) {
                return Ok(found);
            }
            self.check(deadline)?;
            thread::sleep(LOOK);
        }
    }

    /// What was told since the last look; a line that is not finished is left for the next one.
    fn news(&mut self) -> Vec<Value> {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        let Ok(file) = File::open(&self.events) else {
            return Vec::new();
        };
        while let Ok(len @ 1..) = file.read_at(&mut part, self.read + bytes.len() as u64) {
            bytes.extend_from_slice(&part[..len]);
        }
        let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        self.read += end as u64 + 1;
        let lines = bytes[..end].split(|&byte| byte == b'\n');
        let events: Vec<Value> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        events.iter().for_each(|event| self.take(event));
        events
    }

    fn take(&mut self, event: &Value) {
        let enter = |pids: &mut BTreeMap<_, _>, id: &Value, pid: &Value| {
            let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok());
            pids.extend(id.as_u64().zip(pid));
        };
        for replica in event["replicas"].as_array().into_iter().flatten() {
            enter(&mut self.pids, &replica["id"], &replica["pid"]);
        }
        if event["stage"] == "done" {
            enter(&mut self.pids, &event["replica"], &event["pid"]);
        }
    }

    /// Is all well, and is there time left?
    fn check(&mut self, deadline: Instant) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the service ended with {status}");
        }
        let client = self.client.as_ref();
        ensure!(
            !client.is_some_and(JoinHandle::is_finished),
            "the client ended: {:?}",
            self.client.take().map(JoinHandle::join)
        );
        ensure!(Instant::now() < deadline, "waited in vain");
        Ok(())
    }

    /// The client goes, and the service ends as it should; the last event.
    pub(super) fn end(mut self) -> Result<Value> {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(client) = self.client.take() {
            client.join().expect("the client does not panic")?;
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the service ended with {status}");
        let stop = self
            .news()
            .into_iter()
            .find(|event| event["type"] == "stop");
        stop.context("the end is not told")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Ok(None) = self.child.try_wait() {
            // rcoe ends its replicas when it is killed; there is nobody left to tell of a failure.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Asks as fast as it is answered, until it is enough.
fn ask(mut input: impl Write, mut output: impl Read, shared: &Shared) -> Result<()> {
    let mut before = Instant::now();
    for number in 0_u64.. {
        if shared.over.load(Ordering::Relaxed) {
            break;
        }
        input.write_all(&number.to_ne_bytes())?;
        let mut answer = [0; 8];
        output.read_exact(&mut answer)?;
        let answer = u64::from_ne_bytes(answer);
        ensure!(answer == number, "{number} was answered by {answer}");
        let now = Instant::now();
        let gap = u64::try_from((now - before).as_nanos()).unwrap_or(u64::MAX);
        before = now;
        shared.longest.fetch_max(gap, Ordering::Relaxed);
        shared.answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{Shared, ask};

    #[test]
    fn a_wrong_answer_is_no_answer() {
        let shared = Shared::default();
        let mut answers = 0_u64.to_ne_bytes().to_vec();
        answers.extend(7_u64.to_ne_bytes());
        let error = ask(std::io::sink(), answers.as_slice(), &shared).unwrap_err();
        assert_eq!(error.to_string(), "1 was answered by 7");
        assert_eq!(shared.answers.load(Ordering::Relaxed), 1);
        assert!(shared.longest.load(Ordering::Relaxed) > 0);
    }
}
