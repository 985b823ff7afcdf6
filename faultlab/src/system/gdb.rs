//! A client of the emulator's debugger protocol: as much of it as flipping bits needs.
//!
//! The machine stands still whenever this client has heard that it does. Memory is reached by
//! physical addresses, so that a flip in code counts even where the emulator has translated it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Why the machine stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A kernel asked for it, or a step is done.
    Standing,
    /// It went on and on, and was told to stand still.
    Stuck,
    /// It has ended.
    Ended,
    /// It neither stands still nor ends.
    Silent,
}

/// It has ended where something else was asked.
#[derive(Debug)]
pub(super) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the machine has ended")
    }
}

impl std::error::Error for Gone {}

/// A connection to a machine.
#[derive(Debug)]
pub(super) struct Debugger {
    stream: UnixStream,
    pending: Vec<u8>,
}

/// Time between questions whether there is any use in waiting.
const PATIENCE: Duration = Duration::from_millis(200);
/// Such times until an answer, which a machine that stands still gives at once.
const ROUNDS: u32 = 600;

/// How often a machine that seems stuck is told to go on.
const NUDGES: u32 = 3;

/// Such times in which a step of one instruction is done, if it is ever.
const STEP_ROUNDS: u32 = 5;
/// What has a machine that runs stand still.
const INTERRUPT: u8 = 3;

/// Time between looks for the socket.
const LOOK: Duration = Duration::from_millis(1);

impl Debugger {
    /// Connects as soon as the socket is there. `Ok(None)` if `over` says first that there is no
    /// use in waiting.
    ///
    /// # Errors
    /// If the machine speaks another protocol.
    pub(super) fn connect(path: &Path, mut over: impl FnMut() -> bool) -> Result<Option<Self>> {
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(_) if over() => return Ok(None),
                Err(_) => std::thread::sleep(LOOK),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut debugger = Self {
            stream,
            pending: Vec::new(),
        };
        debugger.ask("qSupported")?;
        // Registers can be written only by who has asked for their description.
        debugger.ask("qXfer:features:read:target.xml:0,ff")?;
        debugger.wants("Qqemu.PhyMemMode:1", "OK")?;
        Ok(Some(debugger))
    }

    fn send(&mut self, body: &str) -> Result<()> {
        let sum = body.bytes().fold(0_u8, u8::wrapping_add);
        self.write(format!("${body}#{sum:02x}").as_bytes())
    }

    /// Has the machine hear something, unless it has ended meanwhile.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        match self.stream.write_all(bytes) {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => Err(Gone.into()),
            written => written.context("the machine does not listen"),
        }
    }

    /// The next packet; nothing if the machine has ended.
    fn receive(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(body) = self.take_packet()? {
                return Ok(Some(body));
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => self.pending.extend(&buffer[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Ok(None);
                }
                Err(error) => return Err(error).context("the machine does not answer"),
            }
        }
    }

    fn take_packet(&mut self) -> Result<Option<String>> {
        let Some(start) = self.pending.iter().position(|&byte| byte == b'$') else {
            return Ok(None);
        };
        let Some(len) = self.pending[start..].iter().position(|&byte| byte == b'#') else {
            return Ok(None);
        };
        let end = start + len;
        if self.pending.len() < end + 3 {
            return Ok(None);
        }
        let body = String::from_utf8(self.pending[start + 1..end].to_vec());
        self.pending.drain(..end + 3);
        // The machine wants that. If it is gone, the next packet tells.
        self.stream.write_all(b"+").ok();
        Ok(Some(body?))
    }

    fn ask(&mut self, body: &str) -> Result<String> {
        self.send(body)?;
        for _ in 0..ROUNDS {
            match self.receive() {
                Err(error) if is_timeout(&error) => {}
                answer => return still_there(answer?),
            }
        }
        bail!("the machine does not answer {body}")
    }

    fn wants(&mut self, body: &str, answer: &str) -> Result<()> {
        let got = self.ask(body)?;
        ensure!(got == answer, "{body} was answered by {got}");
        Ok(())
    }

    fn stop(&mut self, stuck: &mut impl FnMut() -> bool) -> Result<Stop> {
        let mut nudges = 0;
        let body = loop {
            match self.receive() {
                Err(error) if is_timeout(&error) && !stuck() => {}
                Err(error) if is_timeout(&error) && nudges < NUDGES => {
                    // A pause that met a step is told once and stops twice.
                    nudges += 1;
                    self.send("c")?;
                }
                Err(error) if is_timeout(&error) => return Ok(Stop::Silent),
                body => break body?,
            }
        };
        Self::why(body)
    }

    /// Why the machine stands still that says this.
    fn why(body: Option<String>) -> Result<Stop> {
        match body {
            None => Ok(Stop::Ended),
            // What a machine that runs says when it hears anything.
            Some(body) if body.starts_with("T02") => Ok(Stop::Stuck),
            Some(body) if body.starts_with('T') || body.starts_with('S') => Ok(Stop::Standing),
            Some(body) if body.starts_with('W') || body.starts_with('X') => Ok(Stop::Ended),
            Some(body) => bail!("{body} is no reason to stand still"),
        }
    }

    /// Lets the machine run until it stands still again, or `stuck` says that it will not.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub(super) fn go(&mut self, stuck: &mut impl FnMut() -> bool) -> Result<Stop> {
        self.send("c")?;
        self.stop(stuck)
    }

    /// One instruction of one core, while the others stand still.
    ///
    /// # Errors
    /// As for [`Debugger::go`].
    pub(super) fn step(&mut self, core: usize, stuck: &mut impl FnMut() -> bool) -> Result<Stop> {
        // So that it is this one that goes on without steps when the machine stands still.
        self.wants(&format!("Hc{:x}", core + 1), "OK")?;
        self.send(&format!("vCont;s:{:x}", core + 1))?;
        for _ in 0..STEP_ROUNDS {
            match self.receive() {
                Err(error) if is_timeout(&error) && !stuck() => {}
                Err(error) if is_timeout(&error) => return Ok(Stop::Silent),
                body => return Self::why(body?),
            }
        }
        // It waits for an interrupt, which does not come while the others stand still.
        self.hold()
    }

    /// Lets the machine run, until [`Debugger::hold`].
    ///
    /// # Errors
    /// If it does not listen.
    pub(super) fn release(&mut self) -> Result<()> {
        self.send("c")
    }

    /// Has a machine that runs stand still, wherever its cores are.
    ///
    /// # Errors
    /// As for [`Debugger::go`].
    pub(super) fn hold(&mut self) -> Result<Stop> {
        self.write(&[INTERRUPT])?;
        for _ in 0..ROUNDS {
            match self.receive() {
                Err(error) if is_timeout(&error) => {}
                Ok(Some(body)) if body.starts_with("T02") => return Ok(Stop::Standing),
                body => return Self::why(body?),
            }
        }
        Ok(Stop::Silent)
    }

    fn bytes(&mut self, body: &str) -> Result<Vec<u8>> {
        let answer = self.ask(body)?;
        ensure!(
            !answer.is_empty() && answer.len() % 2 == 0,
            "{body} was answered by {answer}"
        );
        (0..answer.len())
            .step_by(2)
            .map(|at| Ok(u8::from_str_radix(&answer[at..at + 2], 16)?))
            .collect()
    }

    /// A register of a core, by the number that the emulator gives it.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn register(&mut self, core: usize, number: usize) -> Result<Vec<u8>> {
        self.wants(&format!("Hg{:x}", core + 1), "OK")?;
        self.bytes(&format!("p{number:x}"))
    }

    /// Writes a register of the core that was asked last.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn set_register(&mut self, number: usize, value: &[u8]) -> Result<()> {
        self.wants(&format!("P{number:x}={}", hex(value)), "OK")
    }

    /// A byte of memory.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn byte(&mut self, address: u64) -> Result<u8> {
        Ok(self.bytes(&format!("m{address:x},1"))?[0])
    }

    /// Writes a byte of memory.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn set_byte(&mut self, address: u64, value: u8) -> Result<()> {
        self.set_bytes(address, &[value])
    }

    /// Writes where the core that was asked last has this virtual address.
    ///
    /// # Errors
    /// If it has no memory there.
    pub(super) fn set_own_bytes(&mut self, address: u64, values: &[u8]) -> Result<()> {
        self.wants("Qqemu.PhyMemMode:0", "OK")?;
        let written = self.set_bytes(address, values);
        self.wants("Qqemu.PhyMemMode:1", "OK")?;
        written
    }

    fn set_bytes(&mut self, address: u64, values: &[u8]) -> Result<()> {
        let (len, values) = (values.len(), hex(values));
        self.wants(&format!("M{address:x},{len:x}:{values}"), "OK")
    }
}

/// An answer of a machine that has not ended.
fn still_there(answer: Option<String>) -> Result<String> {
    let answer = answer.filter(|body| !body.starts_with(['W', 'X']));
    answer.ok_or_else(|| Gone.into())
}

fn is_timeout(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| matches!(cause.kind(), TimedOut | WouldBlock))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::{Debugger, Gone, still_there};

    #[test]
    fn a_machine_that_hears_nothing_any_more_is_gone() {
        let (stream, other) = UnixStream::pair().unwrap();
        let mut debugger = Debugger {
            stream,
            pending: Vec::new(),
        };
        drop(other);
        assert!(debugger.release().unwrap_err().is::<Gone>());
        assert!(debugger.hold().unwrap_err().is::<Gone>());
    }

    #[test]
    fn a_machine_that_ends_instead_of_an_answer_is_gone() {
        for answer in [None, Some("W00".to_owned()), Some("X0f".to_owned())] {
            assert!(still_there(answer).unwrap_err().is::<Gone>());
        }
        assert_eq!(still_there(Some("OK".to_owned())).unwrap(), "OK");
    }
}
