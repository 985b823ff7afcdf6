//! Machines that go on from one state: what comes before is done once.
//!
//! A machine runs until its guest has printed a line. Then it stands still; its memory is copied,
//! and all else the emulator writes to a file (as when a machine moves to another host). Each run
//! gets a copy of that memory, and has the emulator read the rest.
//!
//! *Not covered*: what rcoe itself knows of a machine, which is nothing but what replicas tell; and
//! the emulator's device for exercises (`edu`), whose state is that of the start.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::{Whence, lseek};
use serde_json::{Value, json};

use super::guest::printed;
use super::run::Running;

/// Time between looks.
const LOOK: Duration = Duration::from_millis(5);
/// How long the emulator may take to read or write a state, and to open its monitor.
const PATIENCE: Duration = Duration::from_secs(120);

/// The state of a machine.
#[derive(Clone, Debug)]
pub struct Kept {
    memory: PathBuf,
    state: PathBuf,
}

/// Names of a machine's files, in its folder.
pub(super) const MEMORY: &str = "memory";
pub(super) const MONITOR: &str = "monitor";

impl Kept {
    /// Runs a machine that was just started until its guest has printed `line`, and keeps what it
    /// is then in `folder`.
    ///
    /// # Errors
    /// If it never does, or its state cannot be kept.
    pub(super) fn keep(mut running: Running, line: &str, folder: &Path) -> Result<Self> {
        while !has_printed(&fs::read(running.file("out"))?, line) {
            ensure!(!running.is_over()?, "the guest never printed {line:?}");
            std::thread::sleep(LOOK);
        }
        fs::create_dir_all(folder)?;
        let kept = Self {
            memory: folder.join("kept-memory"),
            state: folder.join("kept-state"),
        };
        let mut monitor = Monitor::connect(&running.file(MONITOR))?;
        monitor.ask("stop", json!({}))?;
        monitor.shares_memory()?;
        let to = format!("exec:cat > '{}'", kept.state.display());
        monitor.ask("migrate", json!({ "uri": to }))?;
        monitor.until("query-migrate", |status| match status {
            "completed" => Ok(true),
            "failed" | "cancelled" => bail!("the emulator cannot write the machine's state"),
            _ => Ok(false),
        })?;
        copy(&running.file(MEMORY), &kept.memory)?;
        Ok(kept)
    }

    /// Has rcoe begin with it, in such a folder.
    pub(super) fn tell(&self, command: &mut Command, folder: &Path) -> Result<()> {
        copy(&self.memory, &folder.join(MEMORY))?;
        command.args(["--monitor", MONITOR, "--restored"]);
        Ok(())
    }

    /// Has the emulator of such a machine read it; the machine stands still then.
    pub(super) fn load(&self, folder: &Path) -> Result<()> {
        let mut monitor = Monitor::connect(&folder.join(MONITOR))?;
        monitor.shares_memory()?;
        let from = format!("exec:cat '{}'", self.state.display());
        monitor.ask("migrate-incoming", json!({ "uri": from }))?;
        monitor.until("query-status", |status| Ok(status != "inmigrate"))
    }

    /// Lets a machine go on that nobody else reaches.
    pub(super) fn go_on(folder: &Path) -> Result<()> {
        Monitor::connect(&folder.join(MONITOR))?.ask("cont", json!({}))?;
        Ok(())
    }
}

/// Has a guest printed this line?
fn has_printed(out: &[u8], line: &str) -> bool {
    let own = printed(out);
    let mut lines = own.split_inclusive(|&byte| byte == b'\n');
    lines.any(|it| it.ends_with(b"\n") && it.trim_ascii() == line.as_bytes())
}

/// Copies memory, of which most was never written.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let len = source.metadata()?.len();
    target.set_len(len)?;
    let mut at = 0;
    let find = |file: &File, at: u64, whence| lseek(file, at.cast_signed(), whence);
    while let Ok(start) = find(&source, at, Whence::SeekData) {
        let end = find(&source, start.cast_unsigned(), Whence::SeekHole)?;
        lseek(&source, start, Whence::SeekSet)?;
        lseek(&target, start, Whence::SeekSet)?;
        let bytes = (end - start).cast_unsigned();
        std::io::copy(&mut std::io::Read::take(&mut source, bytes), &mut target)?;
        at = end.cast_unsigned();
    }
    Ok(())
}

/// The emulator's monitor (QMP).
struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(path: &Path) -> Result<Self> {
        let began = Instant::now();
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                Err(error) => return Err(error).context("the emulator's monitor"),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        monitor.line()?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the emulator has ended");
        Ok(serde_json::from_str(&line)?)
    }

    /// What it answers; events are passed over.
    fn ask(&mut self, what: &str, with: Value) -> Result<Value> {
        let asked = json!({ "execute": what, "arguments": with });
        writeln!(self.stream.get_mut(), "{asked}")?;
        loop {
            let mut answer = self.line()?;
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("the emulator's monitor: {what}: {error}");
            }
        }
    }

    /// Memory in a file is no part of a state.
    fn shares_memory(&mut self) -> Result<()> {
        let shares = json!({ "capability": "x-ignore-shared", "state": true });
        let all = json!({ "capabilities": [shares] });
        self.ask("migrate-set-capabilities", all).map(drop)
    }

    /// Asks again and again, until this is true of the status.
    fn until(&mut self, what: &str, is_so: impl Fn(&str) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let answer = self.ask(what, json!({}))?;
            if is_so(answer["status"].as_str().unwrap_or_default())? {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("the emulator's monitor: {what}: it takes too long")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn a_line_counts_when_it_is_whole() {
        assert!(has_printed(b"[ 0.1] up\r\nready\r\n", "ready"));
        assert!(!has_printed(b"ready", "ready"));
        assert!(!has_printed(b"[ 0.1] ready\nalready\n", "ready"));
    }

    #[test]
    fn a_copy_of_memory_has_what_was_written_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(1 << 24).unwrap();
        file.write_all_at(b"first", 5).unwrap();
        file.write_all_at(b"last", (1 << 24) - 4).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
        use std::os::unix::fs::MetadataExt as _;
        assert!(fs::metadata(&to).unwrap().blocks() < 1 << 12);
    }
}
