//! The pages that `rcoe top --web` serves, as a client gets them.

use std::net::TcpStream;

use rustix::process::Signal;

use crate::launch::{Ended, Running, signal};
use crate::rcoe::{LIMIT, until};
use crate::watched::{Watched, ask};

/// A page being served.
#[derive(Debug)]
pub struct Site {
    running: Running,
    /// Address and port.
    pub address: String,
}

impl Site {
    /// Serves what the jobs of a scene do.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn open(watched: &Watched, arguments: &[&str]) -> Self {
        let running = watched.start(&[&["top", "--web", "0"], arguments].concat());
        let address = until("the address", || {
            let said = running.stdout_so_far().unwrap();
            let (address, _) = said.strip_prefix("http://")?.split_once("/ (")?;
            Some(address.to_owned())
        });
        Self { running, address }
    }

    /// A connection to it.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// The answer for a path, asked for by this name of the host.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn get_as(&self, path: &str, host: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        ask(self.connect(), &request)
    }

    /// The answer for a path.
    ///
    /// # Panics
    /// If that does not work.
    #[must_use]
    pub fn get(&self, path: &str) -> String {
        self.get_as(path, &self.address)
    }

    /// Ends it.
    ///
    /// # Panics
    /// If it does not end as it should.
    pub fn close(self) {
        signal(self.running.pid(), Signal::INT).unwrap();
        let outcome = self.running.finish(LIMIT).unwrap();
        assert_eq!(outcome.ended, Ended::Signal(2), "{}", outcome.err());
        assert_eq!(outcome.survivors, 0);
    }
}

/// What stands behind the head of an answer.
///
/// # Panics
/// If it has no end.
#[must_use]
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a whole answer").1
}
