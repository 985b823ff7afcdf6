//! Redis as a workload, and a client of it that knows every answer.
//!
//! It counts up one key, and sets and gets others, in batches of which it then reads all answers. A
//! command that is lost or done twice shows in the next count, a value that is wrong where it is
//! read.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};

use super::load::Ends;
use super::programs::connect;
use crate::plan::Rng;

/// Most commands in one batch.
const BATCH: u64 = 50;
/// Keys beside the counter.
const KEYS: u64 = 1000;

/// The words of the server's command.
pub(super) fn prepare(folder: &Path) -> Result<Vec<String>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port().to_string();
    std::fs::write(folder.join("port"), &port)?;
    let words = [
        "redis-server",
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--logfile",
        "log",
    ];
    Ok(words.map(str::to_owned).to_vec())
}

/// All answers are right.
pub(super) fn commands(mut ends: Ends) -> Result<u64> {
    let port = std::fs::read_to_string(ends.folder.join("port"))?.parse()?;
    let mut client = Client::new(connect(port)?, "");
    while !ends.is_over() {
        let asked = Instant::now();
        client.batch(&mut ends.rng, || ())?;
        ends.slowest.note(asked);
        ends.ready.store(true, Ordering::Relaxed);
        ends.pause();
    }
    kill(ends.server, Signal::SIGTERM).context("cannot end the server")?;
    ends.finish()?;
    Ok(client.answered)
}

/// A client whose keys are its own, so that it knows every answer.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    store: Store,
    /// Answers that were right.
    pub(crate) answered: u64,
}

impl Client {
    /// The names of its keys begin with `prefix`.
    pub(crate) fn new(stream: TcpStream, prefix: &str) -> Self {
        let store = Store {
            prefix: prefix.to_owned(),
            ..Store::default()
        };
        Self {
            stream: BufReader::new(stream),
            store,
            answered: 0,
        }
    }

    /// Sends commands all at once, and reads the answers; `answered` hears of each.
    ///
    /// # Errors
    /// If an answer is wrong, or the connection breaks.
    pub(crate) fn batch(&mut self, rng: &mut Rng, mut answered: impl FnMut()) -> Result<()> {
        let batch = self.store.batch(rng);
        let text: String = batch.iter().map(|(command, _)| command.as_str()).collect();
        self.stream.get_mut().write_all(text.as_bytes())?;
        for (command, expected) in &batch {
            let told = self.answer()?;
            ensure!(told == *expected, "{command:?}: {told:?}, not {expected:?}");
            self.answered += 1;
            answered();
        }
        Ok(())
    }

    /// What is answered to one command, whatever that is.
    ///
    /// # Errors
    /// If the connection breaks.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String> {
        let line = format!("{command}\r\n");
        self.stream.get_mut().write_all(line.as_bytes())?;
        let told = self.answer()?;
        self.answered += 1;
        Ok(told)
    }

    fn answer(&mut self) -> Result<String> {
        let told = answer(&mut self.stream);
        told.with_context(|| format!("after {} answers", self.answered))
    }
}

/// What the server must hold.
#[derive(Default)]
struct Store {
    prefix: String,
    count: u64,
    values: BTreeMap<u64, String>,
}

impl Store {
    /// Commands, each with the answer that must come.
    fn batch(&mut self, rng: &mut Rng) -> Vec<(String, String)> {
        let len = 1 + rng.next() % BATCH;
        (0..len).map(|_| self.command(rng)).collect()
    }

    fn command(&mut self, rng: &mut Rng) -> (String, String) {
        let (prefix, key) = (&self.prefix, rng.next() % KEYS);
        match rng.next() % 3 {
            0 => {
                self.count += 1;
                (
                    format!("INCR {prefix}count\r\n"),
                    format!(":{}", self.count),
                )
            }
            1 => {
                let text = format!("{:016x}", rng.next());
                let value = text.repeat(1 + usize::try_from(key % 20).unwrap_or(0));
                let command = format!("SET {prefix}key:{key} {value}\r\n");
                self.values.insert(key, value);
                (command, "+OK".into())
            }
            _ => {
                let value = self.values.get(&key);
                let expected =
                    value.map_or_else(|| "$-1".into(), |it| format!("${}{it}", it.len()));
                (format!("GET {prefix}key:{key}\r\n"), expected)
            }
        }
    }
}

/// The next answer, without ends of lines.
fn answer(client: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    client.read_line(&mut line)?;
    if !line.ends_with('\n') {
        let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "the server has hung up");
        return Err(gone.into());
    }
    ensure!(line.ends_with("\r\n"), "an answer that ends otherwise");
    let mut told = line.trim_end().to_owned();
    let len = told.strip_prefix('$').map(str::parse::<usize>);
    if let Some(Ok(len)) = len {
        let mut value = vec![0; len + 2];
        client.read_exact(&mut value)?;
        told.push_str(String::from_utf8_lossy(&value).trim_end());
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_knows_its_answers() {
        let mut store = Store::default();
        let mut rng = Rng::new(&[3]);
        let all: Vec<_> = (0..100).flat_map(|_| store.batch(&mut rng)).collect();
        let counts = all.iter().filter(|(_, answer)| answer.starts_with(':'));
        assert_eq!(counts.count() as u64, store.count);
        let mut known = BTreeMap::new();
        for (command, answer) in &all {
            let words: Vec<&str> = command.split_whitespace().collect();
            match words[..] {
                ["SET", key, value] => drop(known.insert(key.to_owned(), value.to_owned())),
                ["GET", key] => match known.get(key) {
                    Some(value) => assert!(answer.ends_with(value.as_str())),
                    None => assert_eq!(answer, "$-1"),
                },
                _ => assert_eq!(words, ["INCR", "count"]),
            }
        }
    }
}
