//! Clients of Redis on the host: each knows every answer, and all count up one key.
//!
//! Contract: each keeps one connection from beginning to end. A command that is lost or done twice
//! shows in the next answer of the client that sent it; of the key that all count up, the answers
//! of all clients together must be each number once, up to what the server holds at the end.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::kills::answers::Slowest;
use crate::kills::redis::Client;
use crate::plan::Rng;

/// Clients at a time.
const CLIENTS: u64 = 3;
/// The key that all count up.
const COUNT_ALL: &str = "INCR all";
/// For how long answers are counted together.
const TENTH: Duration = Duration::from_millis(100);

/// Answers in each tenth of a second since a beginning.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    began: Instant,
    tenths: Arc<Mutex<Vec<u32>>>,
}

impl Pace {
    fn new(began: Instant) -> Self {
        Self {
            began,
            tenths: Arc::default(),
        }
    }

    fn note(&self) {
        let tenth = self.began.elapsed().as_millis() / TENTH.as_millis();
        let tenth = usize::try_from(tenth).unwrap_or(usize::MAX);
        let mut tenths = self.tenths.lock().expect("nobody panics holding the pace");
        if tenths.len() <= tenth {
            tenths.resize(tenth + 1, 0);
        }
        tenths[tenth] += 1;
    }

    /// All of them.
    pub(super) fn tenths(&self) -> Vec<u32> {
        let tenths = self.tenths.lock().expect("nobody panics holding the pace");
        tenths.clone()
    }

    /// Answers so far.
    fn sum(&self) -> u64 {
        self.tenths().iter().copied().map(u64::from).sum()
    }
}

/// Clients at work.
pub(super) struct Clients {
    port: u16,
    patience: Duration,
    over: Arc<AtomicBool>,
    work: Vec<JoinHandle<Books>>,
    pub(super) pace: Pace,
    pub(super) slowest: Slowest,
}

/// What a client has seen.
struct Books {
    answered: u64,
    /// Answers to [`COUNT_ALL`].
    counts: Vec<u64>,
    /// Why it ended.
    ended: Result<()>,
}

/// Why a wait is over.
pub(super) enum Waited {
    /// So many answers have come.
    Answered,
    /// A client has ended.
    Ended,
    /// Nothing came in time.
    Silent,
    /// What was asked besides is so.
    Else,
}

/// A connection to the server, once it answers. Whoever stands between takes connections before.
///
/// # Errors
/// If it does not in time, or `over` says that there is no use in waiting.
pub(super) fn connect(
    port: u16,
    patience: Duration,
    mut over: impl FnMut() -> bool,
) -> Result<TcpStream> {
    let deadline = Instant::now() + patience;
    loop {
        match try_connect(port, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) if over() || Instant::now() > deadline => {
                return Err(error).context("the server does not answer");
            }
            Err(_) => thread::sleep(TENTH),
        }
    }
}

fn try_connect(port: u16, patience: Duration) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    let told = Client::new(stream.try_clone()?, "").ask("PING")?;
    ensure!(told == "+PONG", "the server says {told:?}");
    Ok(stream)
}

impl Clients {
    /// Begins: `began` is when the machine's events have their zero.
    pub(super) fn start(port: u16, began: Instant, patience: Duration, seed: u64) -> Result<Self> {
        let mut all = Self {
            port,
            patience,
            over: Arc::default(),
            work: Vec::new(),
            pace: Pace::new(began),
            slowest: Slowest::new(),
        };
        for number in 0..CLIENTS {
            let stream = connect(port, patience, || false)?;
            let client = Client::new(stream, &format!("{number}:"));
            let rng = Rng::new(&[seed, number]);
            let (over, pace, slowest) =
                (Arc::clone(&all.over), all.pace.clone(), all.slowest.clone());
            let work = move || count(client, rng, &over, &pace, &slowest);
            all.work.push(thread::spawn(work));
        }
        Ok(all)
    }

    /// One has given up, or seen what is wrong.
    pub(super) fn have_ended(&self) -> bool {
        self.work.iter().any(JoinHandle::is_finished)
    }

    /// Waits until so many more answers have come, or a client has ended.
    pub(super) fn wait_for(&self, answers: u64) -> Result<()> {
        let silent = matches!(self.wait(answers, || false), Waited::Silent);
        ensure!(!silent, "no client is answered");
        Ok(())
    }

    /// The same, or until something else is so.
    pub(super) fn wait(&self, answers: u64, mut other: impl FnMut() -> bool) -> Waited {
        let (wanted, deadline) = (self.pace.sum() + answers, Instant::now() + self.patience);
        loop {
            if other() {
                return Waited::Else;
            }
            if self.have_ended() {
                return Waited::Ended;
            }
            if self.pace.sum() >= wanted {
                return Waited::Answered;
            }
            if Instant::now() > deadline {
                return Waited::Silent;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the traffic and closes the books: the number of right answers.
    pub(super) fn close(self) -> Result<u64> {
        self.stop().settle()
    }

    /// Ends the traffic.
    pub(super) fn stop(self) -> Closed {
        self.over.store(true, Ordering::Relaxed);
        Closed {
            port: self.port,
            patience: self.patience,
            books: books_of(self.work),
        }
    }
}

/// Clients that have ended.
pub(super) struct Closed {
    port: u16,
    patience: Duration,
    books: Vec<Books>,
}

impl Closed {
    /// Asks the server what it holds: the number of right answers.
    pub(super) fn settle(&self) -> Result<u64> {
        if let Some(error) = self.books.iter().find_map(|it| it.ended.as_ref().err()) {
            bail!("{error:#}");
        }
        let mut client = Client::new(connect(self.port, self.patience, || true)?, "");
        let held = client.ask("GET all")?;
        check(self.counts(), &held)?;
        Ok(self.answers() + client.answered)
    }

    /// Answers, all of them right but for what is wrong.
    pub(super) fn answers(&self) -> u64 {
        self.books.iter().map(|it| it.answered).sum()
    }

    /// What was wrong as far as clients of a machine that is gone can tell: each may have had a
    /// command done of which the answer was lost, and that connections broke is not wrong.
    pub(super) fn wrong(&self) -> Option<String> {
        let ended = self.books.iter().filter_map(|it| it.ended.as_ref().err());
        let mut wrong = ended.filter(|it| !it.chain().any(|it| it.is::<io::Error>()));
        let first = wrong.next().map(|it| format!("{it:#}"));
        first.or_else(|| check_left(self.counts()).err().map(|it| it.to_string()))
    }

    /// How a client lost its connection, if one did: `TimedOut` if it got no answer any more.
    pub(super) fn lost(&self) -> Option<io::ErrorKind> {
        let ended = self.books.iter().filter_map(|it| it.ended.as_ref().err());
        let mut kinds = ended
            .flat_map(|it| it.chain())
            .filter_map(|it| it.downcast_ref::<io::Error>())
            .map(io::Error::kind);
        kinds.next().map(|kind| match kind {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut,
            kind => kind,
        })
    }

    fn counts(&self) -> Vec<u64> {
        let all = self.books.iter().flat_map(|it| &it.counts);
        all.copied().collect()
    }
}

fn books_of(work: Vec<JoinHandle<Books>>) -> Vec<Books> {
    let all = work.into_iter();
    all.map(|work| work.join().expect("clients do not panic"))
        .collect()
}

/// No count was answered twice, and none is missing but for as many as there are clients.
fn check_left(mut counts: Vec<u64>) -> Result<()> {
    counts.sort_unstable();
    if let Some(pair) = counts.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("the number {} was answered twice", pair[0]);
    }
    let (most, answered) = (counts.last().copied().unwrap_or(0), counts.len() as u64);
    ensure!(
        most <= answered + CLIENTS,
        "{answered} counts were answered, and {most} made"
    );
    Ok(())
}

/// Every answered count was made once, and there is none besides.
fn check(mut counts: Vec<u64>, held: &str) -> Result<()> {
    counts.sort_unstable();
    let numbers = 1..=counts.len() as u64;
    if let Some((found, expected)) = counts.iter().zip(numbers).find(|(a, b)| **a != *b) {
        bail!("the number {expected} was answered to nobody, or {found} twice");
    }
    let told = counts.len().to_string();
    let expected = format!("${}{told}", told.len());
    ensure!(
        held == expected,
        "{told} counts, but the server holds {held}"
    );
    Ok(())
}

/// One client, until it is over.
fn count(
    mut client: Client,
    mut rng: Rng,
    over: &AtomicBool,
    pace: &Pace,
    slowest: &Slowest,
) -> Books {
    let mut counts = Vec::new();
    let mut ended = Ok(());
    while ended.is_ok() && !over.load(Ordering::Relaxed) {
        let counted = once(&mut client, &mut rng, pace, slowest);
        ended = counted.map(|number| counts.push(number));
    }
    Books {
        answered: client.answered,
        counts,
        ended,
    }
}

/// Some commands, then one more of [`COUNT_ALL`]: its number.
fn once(client: &mut Client, rng: &mut Rng, pace: &Pace, slowest: &Slowest) -> Result<u64> {
    let asked = Instant::now();
    client.batch(rng, || pace.note())?;
    slowest.note(asked);
    let asked = Instant::now();
    let told = client.ask(COUNT_ALL)?;
    slowest.note(asked);
    pace.note();
    let number = told.strip_prefix(':').and_then(|it| it.parse().ok());
    number.with_context(|| format!("{COUNT_ALL}: {told:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::{Books, Closed, Duration, check, check_left};

    #[test]
    fn who_is_not_answered_any_more_has_seen_nothing_wrong() {
        for (kind, lost) in [
            (ErrorKind::WouldBlock, ErrorKind::TimedOut),
            (ErrorKind::ConnectionReset, ErrorKind::ConnectionReset),
        ] {
            let error = anyhow::Error::new(Error::from(kind)).context("after 1 answer");
            let books = Books {
                answered: 1,
                counts: vec![1],
                ended: Err(error),
            };
            let closed = Closed {
                port: 0,
                patience: Duration::ZERO,
                books: vec![books],
            };
            assert_eq!((closed.wrong(), closed.lost()), (None, Some(lost)));
        }
    }

    #[test]
    fn of_a_machine_that_is_gone_each_client_may_miss_one_answer() {
        for right in [vec![], vec![2, 1, 3], vec![4, 5], vec![3]] {
            assert!(check_left(right).is_ok());
        }
        for wrong in [vec![1, 2, 2], vec![4, 6], vec![5]] {
            assert!(check_left(wrong).is_err());
        }
    }

    #[test]
    fn each_number_is_answered_once_and_is_what_the_server_holds() {
        assert!(check(vec![2, 1, 3], "$13").is_ok());
        for (counts, held) in [
            (vec![1, 2, 2], "$13"),
            (vec![1, 3, 4], "$14"),
            (vec![1, 2, 3], "$14"),
        ] {
            assert!(check(counts, held).is_err());
        }
    }
}
