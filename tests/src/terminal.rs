//! A command on a terminal of its own: what is typed, and what it shows.
//!
//! The command leads a session of which a new pseudo-terminal is the controlling one, as in a
//! window. Tests wait for what it shows, never for time; a text that a test waits for must not be
//! in what it types, because the terminal shows that too.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::launch::{Ended, environment, in_new_session, kill_session};

/// Ctrl-C.
pub const INTERRUPT: &str = "\x03";
/// Ctrl-D at the beginning of a line.
pub const END: &str = "\x04";
/// Ctrl-Z.
pub const SUSPEND: &str = "\x1a";

/// A command on a terminal.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    child: Child,
    shown: String,
    /// How much of it has been looked at.
    seen: usize,
    deadline: Instant,
}

impl Terminal {
    /// Starts `argv` on a terminal of 24 lines by 200 columns.
    ///
    /// # Errors
    /// If there is no terminal, or the command does not start.
    pub fn start(argv: &[&str], directory: &Path, limit: Duration) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(open(&name, flags, Mode::empty())?);
        let child = in_new_session()
            .arg("--ctty")
            .args(argv)
            .current_dir(directory)
            .env_clear()
            .envs(environment())
            .env("HOME", directory)
            .env("PS1", "prompt> ")
            .stdin(Stdio::from(slave.try_clone()?))
            .stdout(Stdio::from(slave.try_clone()?))
            .stderr(Stdio::from(slave))
            .spawn()
            .with_context(|| format!("starting {argv:?}"))?;
        let terminal = Self {
            master: master.into(),
            child,
            shown: String::new(),
            seen: 0,
            deadline: Instant::now() + limit,
        };
        terminal.resize(24, 200)?;
        Ok(terminal)
    }

    /// Makes it another size.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(tcsetwinsize(&self.master, size)?)
    }

    /// Types.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn send(&mut self, text: &str) -> Result<()> {
        Ok(self.master.write_all(text.as_bytes())?)
    }

    /// Waits until it shows this, after all that was waited for before; returns what came before.
    ///
    /// # Errors
    /// If it ends, or the time does, without that.
    pub fn expect(&mut self, text: &str) -> Result<String> {
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                let before = self.shown[self.seen..self.seen + at].to_owned();
                self.seen += at + text.len();
                return Ok(before);
            }
            let more = self.read()?;
            ensure!(more, "ended without {text:?}: {:?}", self.shown);
        }
    }

    /// Reads on; false at the end.
    fn read(&mut self) -> Result<bool> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left)?;
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&left))?;
        ensure!(ready > 0, "too late; shown so far: {:?}", self.shown);
        let mut buffer = [0; 4096];
        // EIO: nobody has the terminal open any more.
        let got = self.master.read(&mut buffer).unwrap_or(0);
        self.shown += &String::from_utf8_lossy(&buffer[..got]);
        Ok(got > 0)
    }

    /// Reads to the end; returns how the command ended and all that was shown.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn finish(mut self) -> Result<(Ended, String)> {
        while self.read()? {}
        let status = self.child.wait()?;
        Ok((status.into(), std::mem::take(&mut self.shown)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        kill_session(self.child.id());
        // Already waited for, in the ordinary case.
        let _ = self.child.wait();
    }
}
