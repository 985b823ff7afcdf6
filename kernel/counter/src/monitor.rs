//! The emulator's monitor, by which cores are interrupted.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a core is held until the interrupt is pending. The emulator may be about to stop the
/// machine, and wait for this very core: then it goes on.
const PATIENCE: Duration = Duration::from_millis(200);

const BEGIN: &[u8] = b"{\"execute\":\"qmp_capabilities\"}\n";
const INTERRUPT: &[u8] = b"{\"execute\":\"inject-nmi\"}\n";

/// A connection to it.
#[derive(Debug)]
pub(crate) struct Monitor {
    stream: UnixStream,
    /// Has a conversation begun?
    begun: bool,
    /// Commands that were not answered yet.
    open: usize,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl Monitor {
    /// Connects to the monitor at a socket, which need not answer yet.
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self {
            stream: UnixStream::connect(socket)?,
            begun: false,
            open: 0,
            line: Vec::new(),
        })
    }

    /// Interrupts all cores by local line 1; waits for that, but not for ever.
    pub(crate) fn interrupt(&mut self) -> io::Result<()> {
        if !self.begun {
            self.begun = true;
            self.say(BEGIN)?;
        }
        self.say(INTERRUPT)?;
        let end = Instant::now() + PATIENCE;
        while self.open > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.hear(left)? {
                break;
            }
        }
        Ok(())
    }

    fn say(&mut self, command: &[u8]) -> io::Result<()> {
        self.stream.write_all(command)?;
        self.open += 1;
        Ok(())
    }

    /// Hears what the monitor says within this time. Did it say anything?
    fn hear(&mut self, within: Duration) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(within))?;
        let mut bytes = [0; 512];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        for &byte in &bytes[..count] {
            if byte == b'\n' {
                self.take_line()?;
            } else {
                self.line.push(byte);
            }
        }
        Ok(true)
    }

    /// A line is complete: an answer, or something that happened.
    fn take_line(&mut self) -> io::Result<()> {
        let line = core::mem::take(&mut self.line);
        if line.starts_with(b"{\"return\"") {
            self.open = self.open.saturating_sub(1);
        } else if line.starts_with(b"{\"error\"") {
            return Err(io::Error::other(
                String::from_utf8_lossy(&line).into_owned(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::thread;

    /// A monitor at the other end, which answers with these lines.
    fn monitor(answers: &'static [&'static str]) -> (Monitor, thread::JoinHandle<Vec<String>>) {
        let (stream, other) = UnixStream::pair().expect("a pair");
        let monitor = Monitor {
            stream,
            begun: false,
            open: 0,
            line: Vec::new(),
        };
        let teller = thread::spawn(move || {
            let mut lines = BufReader::new(&other).lines();
            let mut heard = Vec::new();
            for answer in answers {
                heard.push(lines.next().expect("a command").expect("readable"));
                (&other).write_all(answer.as_bytes()).expect("a reader");
            }
            heard
        });
        (monitor, teller)
    }

    #[test]
    fn a_conversation_begins_once_and_every_interrupt_is_awaited() {
        let (mut monitor, teller) = monitor(&[
            "{\"QMP\": {}}\r\n{\"return\": {}}\r\n",
            "{\"event\": \"RTC_CHANGE\"}\r\n{\"return\": {}}\r\n",
            "{\"return\": {}}\r\n",
        ]);
        monitor.interrupt().expect("answered");
        assert_eq!((monitor.begun, monitor.open), (true, 0));
        monitor.interrupt().expect("answered");
        assert_eq!(monitor.open, 0);
        let heard = teller.join().expect("no panic");
        let interrupts = heard.iter().filter(|line| line.contains("inject-nmi"));
        assert_eq!((heard.len(), interrupts.count()), (3, 2));
    }

    #[test]
    fn a_monitor_that_refuses_or_is_gone_is_an_error() {
        let (mut refused, teller) = monitor(&["{\"error\": {\"desc\": \"no\"}}\n"]);
        assert!(refused.interrupt().is_err());
        teller.join().expect("no panic");
        let (mut gone, teller) = monitor(&[]);
        teller.join().expect("no panic");
        assert!(gone.interrupt().is_err());
    }
}
