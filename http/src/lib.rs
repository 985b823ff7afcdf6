//! Answers short requests of HTTP in one thread: for scrapers, `rcoe top` and browsers.
//!
//! 1. Nothing that a client does or leaves undone takes more than its share: there are at most
//!    [`MOST_CLIENTS`] at a time, each has [`CLIENT_TIME`] for everything, and requests are short.
//! 2. One request a connection, `GET` and `HEAD` only; no body is ever read.
//! 3. Pages are given out by the path that was asked for, letter by letter: no file is looked up.
//!
//! Not covered: encryption, passwords, and how a page is made, which must not take long.
#![forbid(unsafe_code)]

mod door;
mod request;
mod response;
mod serve;

pub use door::Door;
pub use request::Request;
pub use response::Response;
pub use serve::{CLIENT_TIME, MOST_CLIENTS, serve};
