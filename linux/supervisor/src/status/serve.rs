//! Answers those who ask about a run, in a thread of its own.
//!
//! Contract: nothing that a client does or leaves undone holds up the supervisor. There are at most
//! [`MOST_CLIENTS`] at a time; each has [`CLIENT_TIME`] for everything; requests are short; and the
//! supervisor is asked for a fresh snapshot at most once per [`FRESH`], however many ask.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::board::Board;
use super::http::{MOST_REQUEST, Request, parse, refusal, response};
use super::listen::{Listener, Offer, Stream};
use super::prometheus;

/// Clients served at a time; more wait to be accepted.
const MOST_CLIENTS: usize = 16;
/// Time for a client from first to last byte.
const CLIENT_TIME: Duration = Duration::from_secs(2);
/// Age up to which a snapshot is given out again.
pub(super) const FRESH: Duration = Duration::from_millis(200);
/// Bytes after the request that are read and dropped, so that closing does not cut off the answer.
const MOST_REST: usize = 64 * 1024;

/// Serves until the process ends.
pub(super) fn serve(listeners: &[Listener], board: &Arc<Board>) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        if wait(listeners, &clients).is_err() {
            return;
        }
        for listener in listeners {
            while clients.len() < MOST_CLIENTS
                && let Some(stream) = listener.accept()
            {
                clients.push(Client::new(stream, listener.offer));
            }
        }
        clients.retain_mut(|client| client.get_on(board));
    }
}

/// Waits until somebody has something to say, or has run out of time.
fn wait(listeners: &[Listener], clients: &[Client]) -> rustix::io::Result<()> {
    let accepting = clients.len() < MOST_CLIENTS;
    let mut fds = Vec::new();
    for listener in listeners.iter().filter(|_| accepting) {
        fds.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
    }
    for client in clients {
        fds.push(PollFd::from_borrowed_fd(
            client.stream.as_fd(),
            client.wants(),
        ));
    }
    let left = clients.iter().map(|client| {
        let deadline = client.since + CLIENT_TIME;
        deadline.saturating_duration_since(Instant::now())
    });
    // A moment more, so that the deadline has passed when we wake.
    let left = left.min().map(|left| left + Duration::from_millis(1));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// How far a client has come.
enum Stage {
    /// Its request so far.
    Asking(Vec<u8>),
    /// The answer, and how much of it has been sent.
    Answering(Vec<u8>, usize),
    /// All is said; bytes that it sent beyond its request.
    Leaving(usize),
}

struct Client {
    stream: Stream,
    offer: Offer,
    since: Instant,
    stage: Stage,
}

impl Client {
    fn new(stream: Stream, offer: Offer) -> Self {
        Self {
            stream,
            offer,
            since: Instant::now(),
            stage: Stage::Asking(Vec::new()),
        }
    }

    const fn wants(&self) -> PollFlags {
        match self.stage {
            Stage::Asking(_) | Stage::Leaving(_) => PollFlags::IN,
            Stage::Answering(..) => PollFlags::OUT,
        }
    }

    /// Does what can be done without waiting; false if the client is to be let go.
    fn get_on(&mut self, board: &Board) -> bool {
        if self.since.elapsed() >= CLIENT_TIME {
            return false;
        }
        loop {
            let step = match &mut self.stage {
                Stage::Asking(_) => self.listen(board),
                Stage::Answering(..) => self.answer(),
                Stage::Leaving(_) => self.see_off(),
            };
            match step {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn listen(&mut self, board: &Board) -> std::io::Result<()> {
        let Stage::Asking(request) = &mut self.stage else {
            return Ok(());
        };
        let mut buffer = [0; 1024];
        let room = buffer.len().min(MOST_REQUEST - request.len());
        let got = self.stream.read(&mut buffer[..room])?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&buffer[..got]);
        let answer = match parse(request) {
            Request::Partial => return Ok(()),
            Request::Bad(status) => refusal(status),
            Request::Get { path, head_only } => page(self.offer, path, head_only, board),
        };
        self.stage = Stage::Answering(answer, 0);
        Ok(())
    }

    fn answer(&mut self) -> std::io::Result<()> {
        let Stage::Answering(answer, sent) = &mut self.stage else {
            return Ok(());
        };
        if *sent < answer.len() {
            *sent += self.stream.write(&answer[*sent..])?;
            return Ok(());
        }
        self.stream.finish()?;
        self.stage = Stage::Leaving(0);
        Ok(())
    }

    /// Waits for the client to close first.
    fn see_off(&mut self) -> std::io::Result<()> {
        let Stage::Leaving(dropped) = &mut self.stage else {
            return Ok(());
        };
        let got = self.stream.read(&mut [0; 4096])?;
        *dropped += got;
        if got == 0 || *dropped > MOST_REST {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn page(offer: Offer, path: &str, head_only: bool, board: &Board) -> Vec<u8> {
    let known = path == "/metrics" || (path == "/status" && offer == Offer::Everything);
    if !known {
        return refusal(404);
    }
    let Some(snapshot) = board.ask() else {
        return refusal(503);
    };
    if path == "/metrics" {
        let text = prometheus::page(&snapshot);
        return response(200, prometheus::CONTENT_TYPE, &text, head_only);
    }
    match serde_json::to_string(&*snapshot) {
        Ok(text) => response(200, "application/json", &text, head_only),
        Err(_) => refusal(503),
    }
}
