//! Datagrams, between the stack and a peer, by a network that loses frames and by one that means
//! nothing well.

use std::vec;
use std::vec::Vec;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};

use super::{Numbers, Pair, count, mend, spoil};
use crate::network::{DATAGRAM_MAX, DATAGRAMS, Ready, Refused, Unsent};

/// The peer's address, and one that nobody has.
const PEER: [u8; 4] = [10, 0, 2, 2];
const NOBODY: [u8; 4] = [10, 0, 2, 77];

/// A datagram that is known again: its number, and bytes that follow from it.
fn datagram(number: usize) -> Vec<u8> {
    let len = 8 + number * 97 % (DATAGRAM_MAX - 7);
    let body = (8..len).map(|at| (at * 31 + number * 7).to_le_bytes()[0]);
    number.to_le_bytes().into_iter().chain(body).collect()
}

fn number_of(bytes: &[u8]) -> usize {
    usize::from_le_bytes(*bytes.first_chunk().unwrap())
}

impl Pair {
    /// The peer has a port for datagrams.
    fn post(&mut self, port: u16) -> SocketHandle {
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 64], vec![0; 64 << 10]);
        let handle = self.sockets.add(Socket::new(buffer(), buffer()));
        self.posted(handle).bind(port).unwrap();
        handle
    }

    fn posted(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Takes a datagram, which has to be whole.
    fn taken(&mut self, own: usize) -> Option<Vec<u8>> {
        let mut room = [0; 2000];
        let (count, peer) = self.stack.take(own, &mut room).unwrap()?;
        assert_eq!(peer, (PEER, 53));
        Some(room[..count].to_vec())
    }
}

#[test]
fn datagrams_are_whole_or_lost_and_never_doubled() {
    for (seed, loses) in [(41, 0), (42, 6), (43, 3)] {
        let mut pair = Pair::new(seed, loses);
        let theirs = pair.post(53);
        let own = pair.stack.open(4000).unwrap();
        let mut came = Vec::new();
        for number in 0..500 {
            let sent = datagram(number);
            assert_eq!(pair.stack.send_to(own, (PEER, 53), &sent), Ok(()));
            for _ in 0..200 {
                pair.step();
                // The peer sends back what it gets.
                if let Ok((bytes, from)) = pair.posted(theirs).recv() {
                    let bytes = bytes.to_vec();
                    assert_eq!(from.endpoint.port, 4000);
                    pair.posted(theirs).send_slice(&bytes, from).unwrap();
                }
                if let Some(bytes) = pair.taken(own) {
                    assert_eq!(bytes, datagram(number_of(&bytes)));
                    came.push(number_of(&bytes));
                    break;
                }
                if loses > 0 && pair.theirs.incoming.borrow().is_empty() && number > 0 {
                    break;
                }
            }
        }
        assert!(came.is_sorted_by(|one, other| one < other), "{loses}");
        match loses {
            0 => assert_eq!(came.len(), 500),
            _ => assert!((50..500).contains(&came.len()), "{} of {loses}", came.len()),
        }
    }
}

#[test]
fn what_comes_is_told_and_kept_up_to_a_bound() {
    let mut pair = Pair::new(44, 0);
    let theirs = pair.post(53);
    let own = pair.stack.open(4000).unwrap();
    let other = pair.stack.open(4001).unwrap();
    assert_eq!(pair.stack.ready(), Ready::default());
    let to = (super::SERVER, 4000);
    for number in 0..64_usize {
        let sent = number.to_le_bytes();
        pair.posted(theirs).send_slice(&sent, to).unwrap();
        pair.step();
    }
    pair.step();
    let came = Ready {
        came: 1 << own,
        ..Ready::default()
    };
    assert_eq!(pair.stack.ready(), came);
    let kept: Vec<_> = std::iter::from_fn(|| pair.taken(own)).collect();
    assert!((16..64).contains(&kept.len()), "{}", kept.len());
    // The first ones are kept.
    let wanted: Vec<_> = (0..kept.len()).collect();
    let numbers: Vec<_> = kept.iter().map(|it| number_of(it)).collect();
    assert_eq!(numbers, wanted);
    assert_eq!(pair.taken(other), None);
    // Whole sockets are given back.
    assert_eq!(pair.stack.shut(own), Ok(()));
    assert_eq!(pair.stack.shut(own), Err(Refused));
    assert_eq!(pair.stack.take(own, &mut [0]), Err(Refused));
    let all: Vec<_> = (5000..)
        .map_while(|port| pair.stack.open(port).ok())
        .collect();
    assert_eq!(all.len(), DATAGRAMS - 1);
    for &number in &all {
        assert_eq!(pair.stack.shut(number), Ok(()));
    }
}

#[test]
fn what_cannot_be_sent_is_refused_and_a_peer_that_is_not_there_yet_blocks_nobody() {
    let mut pair = Pair::new(45, 0);
    assert_eq!(pair.stack.open(0), Err(Refused));
    let own = pair.stack.open(4000).unwrap();
    assert_eq!(pair.stack.open(4000), Err(Refused));
    let send = |pair: &mut Pair, peer, bytes: &[u8]| pair.stack.send_to(own, peer, bytes);
    let long = [1; DATAGRAM_MAX + 1];
    assert_eq!(send(&mut pair, (PEER, 53), &long), Err(Unsent::Long));
    for address in [
        NOBODY,
        [127, 0, 0, 1],
        [0; 4],
        [255; 4],
        [10, 0, 2, 255],
        [224, 0, 0, 1],
    ] {
        let sent = send(&mut pair, (address, 53), b"x");
        assert_eq!(sent, Err(Unsent::Refused), "{address:?}");
    }
    assert_eq!(send(&mut pair, (PEER, 0), b"x"), Err(Unsent::Refused));
    assert_eq!(
        pair.stack.send_to(own + 1, (PEER, 53), b"x"),
        Err(Unsent::Refused)
    );
    assert_eq!(
        pair.stack.send_to(usize::MAX, (PEER, 53), b"x"),
        Err(Unsent::Refused)
    );
    // While nobody knows where the peer is more are dropped, not refused.
    for number in 0..100 {
        assert_eq!(send(&mut pair, (PEER, 53), &datagram(number)), Ok(()));
    }
    let theirs = pair.post(53);
    let first = pair.until(|pair| Some(pair.posted(theirs).recv().ok()?.0.to_vec()));
    assert_eq!(first, datagram(0));
}

/// Frames that nobody means well with reach a socket for datagrams: whatever it is given has come
/// in such a frame, and it works on.
#[test]
fn malformed_frames_neither_end_a_socket_nor_bring_it_more_than_came() {
    let mut pair = Pair::new(46, 0);
    let theirs = pair.post(53);
    let own = pair.stack.open(4000).unwrap();
    let to = (super::SERVER, 4000);
    let mut numbers = Numbers(0xda7a);
    let mut given = 0;
    let mut room = [0; 2000];
    while given < count(50_000) {
        for _ in 0..4 {
            let sent = datagram(numbers.below(5000));
            pair.posted(theirs).send_slice(&sent, to).unwrap();
            pair.step();
        }
        let samples = &pair.theirs.samples;
        for _ in 0..256 {
            let mut frame = samples[numbers.below(samples.len())].clone();
            spoil(&mut numbers, &mut frame);
            mend(&mut frame);
            pair.card.incoming.borrow_mut().push_back(frame);
            given += 1;
        }
        pair.step();
        pair.card.outgoing.borrow_mut().clear();
        while let Some((count, _)) = pair.stack.take(own, &mut room).unwrap() {
            assert!(count <= DATAGRAM_MAX);
        }
    }
    // An honest one comes through.
    let honest = datagram(5000);
    pair.posted(theirs).send_slice(&honest, to).unwrap();
    pair.until(|pair| {
        let (count, _) = pair.stack.take(own, &mut room).unwrap()?;
        (room[..count] == honest).then_some(())
    });
}
