//! Malformed frames for a machine that serves: no replica differs, none dies, and the client is
//! served on.
//!
//! A server (`echo`) runs in a machine with a network card. What reaches that card beside what its
//! client sends are [frames](frame) of strangers, by the emulator's own way into the network
//! (`rcoe run --wire`). The client gets one answer after every few frames, by one connection from
//! the beginning to the end: so frames come no faster than the machine takes them, and it is seen
//! that it lives. At the end another client comes, and is served too.
//!
//! Contract: the seed decides the frames that are made up; what the others are made from is what
//! the machine said, which follows from time, too.
//!
//! Not covered: damage between the card and the driver, which `user/src/network/tests.rs` tries.

mod frame;

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::{Process, rcoe};
use crate::interrupt;
use crate::plan::Rng;

/// Frames between two answers: fewer bytes than the card's ring has.
const BATCH: u64 = 32;
/// Frames that others are made from: so many of the first ones, and of the last.
const SAMPLES: usize = 32;
/// The port at which the server listens in the machine.
const PORT: u16 = 7;
/// Bytes that the last client gets back.
const LAST: usize = 20_000;
/// Time between looks at what cannot be waited for.
const LOOK: Duration = Duration::from_millis(5);

/// What is done.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What `--arch` names.
    pub arch: String,
    /// Seed.
    pub seed: u64,
    /// Replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// Frames to send.
    pub frames: u64,
}

/// Where the machine runs, and how.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `rcoe` binary.
    pub rcoe: PathBuf,
    /// Folder for the machine.
    pub folder: PathBuf,
    /// How long to wait for an answer.
    pub deadline: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Frames that were sent.
    pub frames: u64,
    /// Right answers that the client got meanwhile.
    pub answers: u64,
    /// Frames with which the machine answered strangers.
    pub replies: u64,
    /// What was wrong; empty if nothing was.
    pub wrong: String,
}

/// Starts a machine, sends all frames, and tells after each batch how many that were.
///
/// # Errors
///
/// If the machine cannot be started.
pub fn run(campaign: &Campaign, setup: &Setup, tell: impl FnMut(u64)) -> Result<Run> {
    let folder = setup.folder.join("machine");
    let port = free_port()?;
    let mut process = Process::start(command(campaign, setup, port), &folder)?;
    begin(&mut process, setup.deadline)?;
    let mut run = Run::default();
    let done = send_all(campaign, setup, (&folder, port), &mut run, tell);
    run.wrong = match done.and_then(|()| finish(process, setup.deadline)) {
        Ok(()) => String::new(),
        Err(error) => format!("{error:#}"),
    };
    Ok(run)
}

fn command(campaign: &Campaign, setup: &Setup, port: u16) -> Command {
    let mut command = rcoe(&setup.rcoe);
    command.args(["run", "--sphere", "system", "--events", "events"]);
    command.args(["--arch", &campaign.arch]);
    command.args(["-n", &campaign.replicas.to_string()]);
    command.args(["--compare", &campaign.compare]);
    command.args(["--publish", &format!("127.0.0.1:{port}:{PORT}")]);
    command.args(["--wire", ".", "--", "echo"]);
    command
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until the server listens.
fn begin(process: &mut Process, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !fs::read_to_string(process.file("out"))?.contains("listens") {
        let ended = process.has_ended();
        ensure!(!ended, "the machine does not start: {}", process.told());
        ensure!(Instant::now() < deadline, "the server does not start");
        thread::sleep(LOOK);
    }
    Ok(())
}

/// A client's connection, by which bytes come back.
struct Client(TcpStream);

impl Client {
    fn connect(port: u16, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self(stream))
    }

    fn exchange(&mut self, bytes: &[u8]) -> Result<()> {
        let mut back = vec![0; bytes.len()];
        self.0.write_all(bytes).context("the client's connection")?;
        self.0
            .read_exact(&mut back)
            .context("the client's connection")?;
        ensure!(back == bytes, "the client got {back:02x?} for {bytes:02x?}");
        Ok(())
    }
}

/// Sends frames as long as the client is answered.
fn send_all(
    campaign: &Campaign,
    setup: &Setup,
    (folder, port): (&Path, u16),
    run: &mut Run,
    mut tell: impl FnMut(u64),
) -> Result<()> {
    let wire = Wire::connect(folder)?;
    let mut client = Client::connect(port, setup.deadline)?;
    client.exchange(b"begins")?;
    let mut rng = Rng::new(&[campaign.seed]);
    while run.frames < campaign.frames && !interrupt::is_due() {
        let batch = BATCH.min(campaign.frames - run.frames);
        let samples = wire.samples();
        for _ in 0..batch {
            wire.send(&frame::next(&mut rng, &samples))?;
        }
        run.frames += batch;
        client.exchange(&run.frames.to_le_bytes())?;
        run.answers += 1;
        run.replies = wire.replies();
        tell(run.frames);
    }
    let last: Vec<u8> = (0..LAST).map(|at| (at * 31 / 7).to_le_bytes()[0]).collect();
    let mut another = Client::connect(port, setup.deadline)?;
    for part in last.chunks(1000) {
        another
            .exchange(part)
            .context("another client, at the end")?;
    }
    client.exchange(b"ends")?;
    ensure!(run.replies > 0, "no frame got as far as the stack");
    Ok(())
}

/// Nobody differed, nobody was lost, and nothing was said.
fn finish(mut process: Process, patience: Duration) -> Result<()> {
    let seen = process.seen();
    let differed = seen.divergences.first();
    ensure!(differed.is_none(), "a divergence: {differed:?}");
    ensure!(seen.removed.is_empty(), "removed: {:?}", seen.removed);
    ensure!(
        !process.has_ended(),
        "the machine has ended: {}",
        process.told()
    );
    kill(
        Pid::from_raw(i32::try_from(process.child.id())?),
        Signal::SIGTERM,
    )?;
    let deadline = Instant::now() + patience;
    while !process.has_ended() {
        ensure!(Instant::now() < deadline, "the machine does not end");
        thread::sleep(LOOK);
    }
    let told = process.told();
    ensure!(told.is_empty(), "{told}");
    Ok(())
}

/// The way into the machine's network, and what is heard there.
struct Wire {
    into: Arc<Mutex<UnixStream>>,
    ear: Arc<Mutex<Ear>>,
}

/// What a thread has heard.
#[derive(Default)]
struct Ear {
    replies: u64,
    /// Of those that machine and client exchange, the first ones, which make a connection, and the
    /// last.
    first: Vec<Vec<u8>>,
    last: VecDeque<Vec<u8>>,
}

impl Ear {
    /// Keeps a frame that others may be made from.
    fn keep(&mut self, frame: Vec<u8>) {
        if !frame::is_sample(&frame) {
            return;
        }
        if self.first.len() < SAMPLES {
            self.first.push(frame);
            return;
        }
        self.last.push_back(frame);
        if self.last.len() > SAMPLES {
            self.last.pop_front();
        }
    }
}

impl Wire {
    fn connect(folder: &Path) -> Result<Self> {
        let open = |name: &str| {
            let path = folder.join(name);
            UnixStream::connect(&path).with_context(|| path.display().to_string())
        };
        let into = Arc::new(Mutex::new(open("wire-in")?));
        let (out, ear) = (open("wire-out")?, Arc::new(Mutex::new(Ear::default())));
        let (own, back) = (Arc::clone(&ear), Arc::clone(&into));
        // It ends with the machine, which closes its end.
        thread::spawn(move || listen(out, &own, &back));
        Ok(Self { into, ear })
    }

    fn ear(&self) -> std::sync::MutexGuard<'_, Ear> {
        self.ear.lock().expect("nobody panics who listens")
    }

    /// Frames that others are made from.
    fn samples(&self) -> Vec<Vec<u8>> {
        let ear = self.ear();
        ear.first.iter().chain(&ear.last).cloned().collect()
    }

    fn replies(&self) -> u64 {
        self.ear().replies
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        send(&self.into, frame).context("the machine's network")
    }
}

/// Each frame goes with its length.
fn send(into: &Mutex<UnixStream>, frame: &[u8]) -> Result<()> {
    let len = u32::try_from(frame.len())?.to_be_bytes();
    let whole = [&len[..], frame].concat();
    let mut into = into.lock().expect("nobody panics who sends");
    Ok(into.write_all(&whole)?)
}

/// Takes all that is said in the network, so that the emulator never waits for that, and says what
/// strangers have to say to it.
fn listen(mut out: impl Read, ear: &Mutex<Ear>, back: &Mutex<UnixStream>) {
    while let Ok(frame) = hear(&mut out) {
        // Who cannot be answered any more has ended.
        let _ = frame::answer(&frame).map(|answer| send(back, &answer));
        let mut ear = ear.lock().expect("nobody panics who takes");
        ear.replies += u64::from(frame::is_reply(&frame));
        ear.keep(frame);
    }
}

fn hear(out: &mut impl Read) -> Result<Vec<u8>> {
    let mut len = [0; 4];
    out.read_exact(&mut len)?;
    let len = usize::try_from(u32::from_be_bytes(len))?;
    if len > 2 * frame::MAX {
        bail!("{}", ErrorKind::InvalidData);
    }
    let mut frame = vec![0; len];
    out.read_exact(&mut frame)?;
    Ok(frame)
}
