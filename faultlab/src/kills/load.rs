//! The other side of a workload: sends, receives, and keeps the ledger.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::answers::Slowest;
use super::{database, programs, redis};
use crate::plan::Rng;

/// A workload by the effects that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Reads from a pipe and writes to one.
    Pipe,
    /// Accepts connections, receives and sends.
    Socket,
    /// The same, driven by edge-triggered events.
    Edge,
    /// Receives and sends datagrams.
    Datagram,
    /// Appends to files, writes and reads them.
    File,
    /// Makes, renames and removes files, links and directories.
    Names,
    /// Makes and closes descriptors of all kinds.
    Numbers,
    /// A pipeline of three programs, made by a shell.
    Shell,
    /// A pipeline of programs of three users, of which one starts others all the time.
    Users,
    /// A Python program with threads.
    Python,
    /// A web server in one process.
    Nginx,
    /// The same with a master and two workers, as it usually runs.
    Web,
    /// A store in memory, with threads.
    Redis,
    /// Python processes that share memory.
    Pool,
    /// A database whose processes share memory.
    Postgres,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Pipe,
        Self::Socket,
        Self::Edge,
        Self::Datagram,
        Self::File,
        Self::Names,
        Self::Numbers,
        Self::Shell,
        Self::Users,
        Self::Python,
        Self::Nginx,
        Self::Web,
        Self::Redis,
        Self::Pool,
        Self::Postgres,
    ];

    /// Is it somebody else's program?
    pub(super) const fn is_program(self) -> bool {
        matches!(self, Self::Python | Self::Nginx | Self::Redis) || self.is_family()
    }

    /// Has it several processes?
    pub(super) const fn is_family(self) -> bool {
        matches!(
            self,
            Self::Shell | Self::Users | Self::Web | Self::Pool | Self::Postgres
        )
    }

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::Edge => "edge",
            Self::Datagram => "datagram",
            Self::File => "file",
            Self::Names => "names",
            Self::Numbers => "numbers",
            Self::Shell => "shell",
            Self::Users => "users",
            Self::Python => "python",
            Self::Nginx => "nginx",
            Self::Web => "web",
            Self::Redis => "redis",
            Self::Pool => "pool",
            Self::Postgres => "postgres",
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == word);
        found.ok_or_else(|| format!("there is no workload `{word}`"))
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Effects counted: bytes, connections, datagrams, lines.
    pub(super) effects: u64,
    /// What was lost, doubled or wrong.
    pub(super) wrong: Option<String>,
}

/// A peer at work.
pub(super) struct Peer {
    pub(super) slowest: Slowest,
    over: Arc<AtomicBool>,
    ready: Arc<AtomicBool>,
    work: JoinHandle<Result<u64>>,
}

/// What a peer has to do with.
pub(super) struct Ends {
    pub(super) input: ChildStdin,
    pub(super) output: BufReader<ChildStdout>,
    pub(super) folder: PathBuf,
    pub(super) rng: Rng,
    pub(super) over: Arc<AtomicBool>,
    /// All processes of the workload are at work.
    pub(super) ready: Arc<AtomicBool>,
    /// Who runs the workload, and hands signals on to it.
    pub(super) server: Pid,
    pub(super) slowest: Slowest,
}

/// A peer that hears nothing for so long gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

impl Peer {
    pub(super) fn start(
        workload: Workload,
        folder: &Path,
        (input, output): (ChildStdin, ChildStdout),
        server: Pid,
        seed: u64,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let of_itself = !workload.is_program();
        let ready = Arc::new(AtomicBool::new(of_itself));
        let slowest = Slowest::new();
        let ends = Ends {
            input,
            output: BufReader::new(output),
            folder: folder.to_owned(),
            rng: Rng::new(&[seed]),
            over: Arc::clone(&over),
            ready: Arc::clone(&ready),
            server,
            slowest: slowest.clone(),
        };
        let work = thread::spawn(move || match workload {
            Workload::Pipe => pipe(ends),
            Workload::Socket => connections(ends, 1),
            Workload::Edge => connections(ends, 4),
            Workload::Datagram => datagrams(ends),
            Workload::File => files(ends),
            Workload::Names | Workload::Numbers => by_itself(ends),
            Workload::Shell | Workload::Users | Workload::Python | Workload::Pool => {
                programs::lines(ends)
            }
            Workload::Nginx | Workload::Web => programs::pages(ends),
            Workload::Redis => redis::commands(ends),
            Workload::Postgres => database::transactions(ends),
        });
        Self {
            slowest,
            over,
            ready,
            work,
        }
    }

    /// It has given up, or seen what is wrong.
    pub(super) fn is_finished(&self) -> bool {
        self.work.is_finished()
    }

    /// Waits until the workload is at work, or the peer has given up.
    pub(super) fn wait_until_ready(&self, deadline: Instant) -> Result<()> {
        while !self.ready.load(Ordering::Relaxed) && !self.work.is_finished() {
            ensure!(Instant::now() < deadline, "the workload does not begin");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends the traffic and closes the books. A workload that does not come to its end is ended by
    /// force when the time is over, and the books then are not in order.
    pub(super) fn close(self, deadline: Instant, force: impl FnOnce()) -> Ledger {
        self.over.store(true, Ordering::Relaxed);
        while !self.work.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if !self.work.is_finished() {
            force();
            let late = self.work.join().is_ok_and(|result| result.is_ok());
            let ended = if late {
                "all was right by then"
            } else {
                "it has lost its peer"
            };
            return Ledger {
                effects: 0,
                wrong: Some(format!("the workload did not end in time; {ended}")),
            };
        }
        match self.work.join() {
            Ok(Ok(effects)) => Ledger {
                effects,
                wrong: None,
            },
            Ok(Err(error)) => Ledger {
                effects: 0,
                wrong: Some(format!("{error:#}")),
            },
            Err(_) => Ledger {
                effects: 0,
                wrong: Some("the peer panicked".into()),
            },
        }
    }
}

impl Ends {
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sometimes lets the workload wait for more.
    pub(super) fn pause(&mut self) {
        if self.rng.next().is_multiple_of(4) {
            thread::sleep(Duration::from_micros(self.rng.next() % 2000));
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Closes the workload's input; it says nothing more.
    pub(super) fn finish(self) -> Result<()> {
        let Self {
            input, mut output, ..
        } = self;
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest)?;
        ensure!(rest.is_empty(), "the workload says {rest:?}");
        Ok(())
    }
}

/// Byte number `at` of the stream: eight bytes each tell where they belong.
fn stream(at: u64, len: usize) -> Vec<u8> {
    let first = at / 8;
    let words = first..first + len as u64 / 8 + 2;
    let bytes = words.flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let skip = usize::try_from(at % 8).unwrap_or(0);
    bytes.skip(skip).take(len).collect()
}

fn below(rng: &mut Rng, most: u64) -> usize {
    usize::try_from(rng.next() % most).unwrap_or(0)
}

/// What goes in comes out, in order and once.
fn pipe(mut ends: Ends) -> Result<u64> {
    let mut output = ends.output;
    let reader = thread::spawn(move || -> Result<u64> {
        let mut got = 0;
        let mut bytes = vec![0; 1 << 16];
        loop {
            let len = output.read(&mut bytes)?;
            if len == 0 {
                return Ok(got);
            }
            let expected = stream(got, len);
            if let Some(at) = (0..len).find(|&at| bytes[at] != expected[at]) {
                bail!("byte {} is not the one that was sent", got + at as u64);
            }
            got += len as u64;
        }
    });
    let mut sent = 0;
    let mut broken = None;
    while !ends.over.load(Ordering::Relaxed) && broken.is_none() {
        let len = match ends.rng.next() % 4 {
            0 => 1 + below(&mut ends.rng, 100_000),
            _ => 1 + below(&mut ends.rng, 3000),
        };
        broken = ends.input.write_all(&stream(sent, len)).err();
        sent += len as u64;
        if ends.rng.next().is_multiple_of(4) {
            thread::sleep(Duration::from_micros(ends.rng.next() % 2000));
        }
    }
    drop(ends.input);
    let got = match reader.join() {
        Ok(got) => got?,
        Err(_) => bail!("the reader panicked"),
    };
    ensure!(broken.is_none(), "the input was closed: {broken:?}");
    ensure!(got == sent, "{sent} bytes were sent, {got} came back");
    Ok(got)
}

/// So many connections at a time; each is greeted with its number.
fn connections(mut ends: Ends, at_once: u64) -> Result<u64> {
    let port = ends.line()?.parse().context("no port")?;
    let mut number = 0;
    while !ends.is_over() {
        let mut clients = Vec::new();
        for _ in 0..at_once {
            let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
            client.set_read_timeout(Some(PATIENCE))?;
            client.set_nodelay(true)?;
            clients.push(client);
        }
        for client in &mut clients {
            let mut greeting = [0; 8];
            client.read_exact(&mut greeting).context("the greeting")?;
            let told = u64::from_le_bytes(greeting);
            ensure!(told == number, "connection {number} is greeted as {told}");
            number += 1;
        }
        for _ in 0..1 + ends.rng.next() % 4 {
            let most = if at_once > 1 { 4000 } else { 60_000 };
            for (client, at) in clients.iter_mut().zip((0..).step_by(8)) {
                let sent = stream(number * 8 + at, 1 + below(&mut ends.rng, most));
                let mut got = vec![0; sent.len()];
                client.write_all(&sent).context("sending")?;
                client.read_exact(&mut got).context("receiving")?;
                ensure!(got == sent, "connection {number}: other bytes came back");
            }
            ends.pause();
        }
        for mut client in clients {
            client.shutdown(std::net::Shutdown::Write)?;
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).context("the end")?;
            ensure!(rest.is_empty(), "{} bytes too many came back", rest.len());
        }
    }
    ends.finish()?;
    Ok(number)
}

/// Each datagram comes back once.
fn datagrams(mut ends: Ends) -> Result<u64> {
    let port: u16 = ends.line()?.parse().context("no port")?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut number: u64 = 0;
    let mut got = vec![0; 1 << 16];
    while !ends.is_over() {
        // Few enough that no buffer overflows.
        let burst = 1 + ends.rng.next() % 4;
        let sent: Vec<Vec<u8>> = (number..number + burst)
            .map(|at| {
                let len = 8 + below(&mut ends.rng, 8000);
                let mut datagram = at.to_le_bytes().to_vec();
                datagram.extend(stream(at, len));
                datagram
            })
            .collect();
        for datagram in &sent {
            socket.send(datagram)?;
        }
        for datagram in &sent {
            let len = socket
                .recv(&mut got)
                .with_context(|| format!("datagram {number} was lost"))?;
            ensure!(
                got[..len] == **datagram,
                "datagram {number} was doubled, or is another one"
            );
            number += 1;
        }
        ends.pause();
    }
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    ensure!(socket.recv(&mut got).is_err(), "a datagram too many");
    ends.finish()?;
    Ok(number)
}

/// Waits until the traffic is to end.
fn idle(ends: &Ends) {
    while !ends.is_over() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Files hold all lines once; the workload says how many.
fn files(ends: Ends) -> Result<u64> {
    idle(&ends);
    let Ends {
        input,
        mut output,
        folder,
        ..
    } = ends;
    drop(input);
    let mut told = String::new();
    output.read_to_string(&mut told)?;
    let count: u64 = told
        .trim()
        .parse()
        .with_context(|| format!("the workload says {told:?}"))?;
    let mut expected = String::new();
    for line in 0..count {
        writeln!(expected, "{line:08}")?;
    }
    for name in ["appended", "written", "placed"] {
        let got = std::fs::read_to_string(folder.join(name))?;
        if got != expected {
            let same = got
                .lines()
                .zip(expected.lines())
                .take_while(|(a, b)| a == b);
            bail!(
                "file `{name}` differs at line {} of {count}; it has {}",
                same.count(),
                got.lines().count()
            );
        }
    }
    Ok(3 * count)
}

/// The workload checks itself.
fn by_itself(ends: Ends) -> Result<u64> {
    idle(&ends);
    ends.finish()?;
    Ok(0)
}
