//! Connections that the machine makes itself, to a peer that takes them, refuses, or says nothing.

use std::vec;
use std::vec::Vec;

use smoltcp::socket::tcp::{Socket, SocketBuffer, State};

use super::{Pair, SOCKETS};
use crate::network::stack::Unmade;
use crate::network::{Ready, Received, Refused};

/// The peer's address, and one that nobody has.
const PEER: [u8; 4] = [10, 0, 2, 2];
const NOBODY: [u8; 4] = [10, 0, 2, 77];

impl Pair {
    /// The peer listens at a port, once.
    fn listens(&mut self, port: u16) -> smoltcp::iface::SocketHandle {
        let buffer = || SocketBuffer::new(vec![0; 4096]);
        let handle = self.sockets.add(Socket::new(buffer(), buffer()));
        self.theirs(handle).listen(port).unwrap();
        handle
    }

    fn asks(&mut self, peer: [u8; 4], to: u16, from: u16) -> usize {
        self.stack.connect((peer, to), from, self.now).unwrap()
    }

    /// What comes of a connection that was asked for.
    fn came(&mut self, number: usize) -> Result<(), Unmade> {
        self.until(|pair| match pair.stack.made(number, pair.now) {
            Ok(false) => {
                assert_eq!(pair.stack.ready().receives, 0);
                None
            }
            Ok(true) => Some(Ok(())),
            Err(why) => Some(Err(why)),
        })
    }
}

#[test]
fn a_peer_that_listens_is_connected_and_bytes_go_both_ways() {
    for (seed, loses) in [(31, 0), (32, 6), (33, 3)] {
        let mut pair = Pair::new(seed, loses);
        let theirs = pair.listens(80);
        let own = pair.asks(PEER, 80, 40_000);
        assert_eq!(pair.stack.ready(), Ready::default(), "nothing is known yet");
        assert_eq!(pair.stack.send(own, b"x"), Err(Refused));
        assert_eq!(pair.came(own), Ok(()));
        assert_eq!(pair.stack.ready().sends, 1 << own);
        assert_eq!(pair.stack.send(own, b"question"), Ok(8));
        let mut heard = Vec::new();
        pair.until(|pair| {
            let socket = pair.theirs(theirs);
            let _ = socket.recv(|bytes| {
                heard.extend_from_slice(bytes);
                (bytes.len(), ())
            });
            (heard == b"question").then_some(())
        });
        pair.theirs(theirs).send_slice(b"answer").unwrap();
        pair.theirs(theirs).close();
        let mut all = Vec::new();
        pair.until(|pair| {
            let mut room = [0; 4];
            match pair.stack.receive(own, &mut room).unwrap() {
                Received::Bytes(count) => {
                    all.extend_from_slice(&room[..count]);
                    None
                }
                Received::End => Some(()),
            }
        });
        assert_eq!(all, b"answer");
        pair.stack.close(own).unwrap();
        pair.until(|pair| (pair.theirs(theirs).state() == State::Closed).then_some(()));
    }
}

#[test]
fn a_peer_that_does_not_listen_refuses_and_one_that_is_not_there_is_waited_for() {
    let mut pair = Pair::new(34, 0);
    let own = pair.asks(PEER, 81, 40_000);
    assert_eq!(pair.came(own), Err(Unmade::Refused));
    assert_eq!(pair.stack.ready().sends, 1 << own, "something is known");
    assert_eq!(pair.came(own), Err(Unmade::Refused), "told again");
    pair.stack.close(own).unwrap();
    assert_eq!(pair.stack.made(own, pair.now), Err(Unmade::Refused));
    let before = pair.now;
    let own = pair.asks(NOBODY, 80, 40_001);
    assert_eq!(pair.came(own), Err(Unmade::Unanswered));
    let took = (pair.now - before) / 1_000_000;
    assert!((120..140).contains(&took), "{took} s");
    pair.stack.close(own).unwrap();
    // Both places are free again.
    for number in 0..SOCKETS {
        let port = 41_000 + u16::try_from(number).unwrap();
        pair.asks(PEER, 80, port);
    }
    assert_eq!(
        pair.stack.connect((PEER, 80), 42_000, pair.now),
        Err(Refused)
    );
}

#[test]
fn no_two_connections_have_the_same_ends_and_ports_are_numbers() {
    let mut pair = Pair::new(35, 0);
    let now = pair.now;
    let own = pair.asks(PEER, 80, 40_000);
    assert_eq!(pair.stack.connect((PEER, 80), 40_000, now), Err(Refused));
    let other = pair.asks(PEER, 82, 40_000);
    assert_ne!(own, other);
    for (to, from) in [(0, 40_001), (80, 0)] {
        assert_eq!(pair.stack.connect((PEER, to), from, now), Err(Refused));
    }
    // One that is given up before anything came of it.
    pair.stack.close(own).unwrap();
    assert_eq!(pair.stack.connect((PEER, 80), 40_000, now), Ok(own));
    // A listener's sockets are none of these.
    let listener = pair.stack.listen(7).unwrap();
    let client = pair.connect();
    pair.until(|pair| (pair.stack.ready().arrived == 1 << listener).then_some(()));
    assert!(pair.theirs(client).may_send());
    assert!((0..SOCKETS).all(|it| it == own || it == other || pair.stack.made(it, 0).is_err()));
}
