//! The loop that serves: waits for all clients at once, and for none of them.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::door::{Door, Stream};
use crate::request::{Asked, MOST_REQUEST, Request, parse};
use crate::response::Response;

/// Clients served at a time; more wait to be accepted.
pub const MOST_CLIENTS: usize = 16;
/// Time for a client from first to last byte.
pub const CLIENT_TIME: Duration = Duration::from_secs(2);
/// Bytes after the request that are read and dropped, so that closing does not cut off the answer.
const MOST_REST: usize = 64 * 1024;

/// Serves until the process ends, or the host refuses to wait. `answer` is told by which door the
/// client came.
pub fn serve<D: AsRef<Door>>(doors: &[D], mut answer: impl FnMut(&D, &Request<'_>) -> Response) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        if wait(doors, &clients).is_err() {
            return;
        }
        for (index, door) in doors.iter().enumerate() {
            while clients.len() < MOST_CLIENTS
                && let Some(stream) = door.as_ref().accept()
            {
                clients.push(Client::new(stream, index));
            }
        }
        clients.retain_mut(|client| {
            let door = &doors[client.door];
            client.get_on(&mut |request| answer(door, request))
        });
    }
}

/// Waits until somebody has something to say, or has run out of time.
fn wait<D: AsRef<Door>>(doors: &[D], clients: &[Client]) -> rustix::io::Result<()> {
    let accepting = clients.len() < MOST_CLIENTS;
    let mut fds = Vec::new();
    for door in doors.iter().filter(|_| accepting) {
        fds.push(PollFd::from_borrowed_fd(
            door.as_ref().as_fd(),
            PollFlags::IN,
        ));
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
    /// Number of the door by which it came.
    door: usize,
    since: Instant,
    stage: Stage,
}

impl Client {
    fn new(stream: Stream, door: usize) -> Self {
        Self {
            stream,
            door,
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
    fn get_on(&mut self, answer: &mut dyn FnMut(&Request<'_>) -> Response) -> bool {
        if self.since.elapsed() >= CLIENT_TIME {
            return false;
        }
        loop {
            let step = match &mut self.stage {
                Stage::Asking(_) => self.listen(answer),
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

    fn listen(&mut self, answer: &mut dyn FnMut(&Request<'_>) -> Response) -> std::io::Result<()> {
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
            Asked::Partial => return Ok(()),
            Asked::Bad(status) => Response::refusal(status).bytes(false),
            Asked::For(request) => answer(&request).bytes(request.head_only),
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
