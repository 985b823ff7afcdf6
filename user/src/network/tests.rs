//! The ring and the stack against what no well-meaning card or peer does.

mod datagrams;
mod outgoing;

use std::boxed::Box;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use rcoe_abi::service::NIC_RING;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address};

use super::link::Port;
use super::ring::{BEHIND, Frame, Frames, Malformed, pieces};
use super::{FRAME_MAX, FRAME_MIN, Link, Ready, Received, Refused, SOCKETS, Stack, Storage};

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit
    }
}

/// How many frames of each kind the tests make up: more by `RCOE_FUZZ_FRAMES`.
fn count(usual: usize) -> usize {
    let given = std::env::var("RCOE_FUZZ_FRAMES").ok();
    given.map_or(usual, |text| text.parse().expect("a number of frames"))
}

/// A card as its documentation has it: writes frames into a ring.
struct Card {
    memory: Vec<u8>,
    written: usize,
    free: usize,
}

impl Card {
    fn new() -> Self {
        Self {
            memory: vec![0; NIC_RING + BEHIND],
            written: 0,
            free: NIC_RING,
        }
    }

    /// Writes a frame, if there is room.
    fn write(&mut self, frame: &[u8]) -> bool {
        let whole = u16::try_from(frame.len() + 4).unwrap();
        let taken = (4 + usize::from(whole)).next_multiple_of(4);
        if taken >= self.free {
            return false;
        }
        let at = self.written;
        self.memory[at..at + 2].copy_from_slice(&1_u16.to_le_bytes());
        self.memory[at + 2..at + 4].copy_from_slice(&whole.to_le_bytes());
        self.memory[at + 4..at + 4 + frame.len()].copy_from_slice(frame);
        self.written = (at + taken) % NIC_RING;
        self.free -= taken;
        true
    }

    fn header(&self) -> impl Fn(usize) -> [u8; 4] + '_ {
        |at| self.memory[at..at + 4].try_into().unwrap()
    }
}

#[test]
fn what_a_card_wrote_is_found_again_all_around_the_ring() {
    let mut numbers = Numbers(0x5eed);
    let (mut card, mut read) = (Card::new(), 0);
    for round in 0..2_000 {
        let mut wanted = Vec::new();
        loop {
            let len = FRAME_MIN + numbers.below(FRAME_MAX - FRAME_MIN + 1);
            let frame: Vec<u8> = (0..len).map(|_| numbers.next().to_le_bytes()[0]).collect();
            if !card.write(&frame) || numbers.below(5) == 0 {
                break;
            }
            wanted.push(frame);
        }
        // The last one may have been written and not noted.
        let mut frames = Frames::between(read, card.written).unwrap();
        let mut found = Vec::new();
        while let Some(Frame { at, len }) = frames.next(card.header()).unwrap() {
            let covered = pieces(read, card.written);
            let within = |&(first, end): &(usize, usize)| first <= at && at + len <= end;
            assert!(
                covered.iter().any(within),
                "round {round}: {at} {len} {covered:?}"
            );
            found.push(card.memory[at..at + len].to_vec());
        }
        found.truncate(wanted.len());
        assert!(found == wanted, "round {round}");
        (read, card.free) = (card.written, NIC_RING);
    }
}

#[test]
fn whatever_is_in_the_ring_no_frame_lies_outside_of_what_was_written() {
    let mut numbers = Numbers(0xf00d);
    let mut memory = vec![0_u8; NIC_RING + BEHIND];
    let (mut seen, mut refused) = (0, 0);
    while seen + refused < count(300_000) {
        // Headers that are nearly right, at any place.
        for _ in 0..64 {
            let at = numbers.below(NIC_RING / 4) * 4;
            let state = [1, 1, 1, 0x8001, 3, 0][numbers.below(6)];
            let len = match numbers.below(4) {
                0 => u16::try_from(numbers.below(1 << 16)).unwrap(),
                _ => u16::try_from(18 + numbers.below(120)).unwrap(),
            };
            memory[at..at + 2].copy_from_slice(&u16::to_le_bytes(state));
            memory[at + 2..at + 4].copy_from_slice(&len.to_le_bytes());
        }
        let (first, end) = (
            numbers.below(NIC_RING / 4) * 4,
            numbers.below(NIC_RING / 4) * 4,
        );
        let mut frames = Frames::between(first, end).unwrap();
        let (mut left, covered) = ((end + NIC_RING - first) % NIC_RING, pieces(first, end));
        loop {
            let found = frames.next(|at| memory[at..at + 4].try_into().unwrap());
            match found {
                Ok(Some(Frame { at, len })) => {
                    seen += 1;
                    assert!((FRAME_MIN..=FRAME_MAX).contains(&len) && len + 8 <= left);
                    let within = |&(first, end): &(usize, usize)| first <= at && at + len <= end;
                    assert!(covered.iter().any(within), "{first} {end}: {at} {len}");
                    left -= (len + 8).next_multiple_of(4);
                }
                Ok(None) => break,
                Err(Malformed) => {
                    refused += 1;
                    assert!(frames.is_empty());
                    break;
                }
            }
        }
    }
}

#[test]
fn places_that_are_none_are_refused() {
    for (first, end) in [
        (1, 8),
        (8, 2),
        (NIC_RING, 0),
        (0, NIC_RING),
        (usize::MAX, 0),
    ] {
        assert_eq!(Frames::between(first, end), Err(Malformed), "{first} {end}");
    }
    assert!(Frames::between(64, 64).unwrap().is_empty());
}

/// Frames on their way.
type Wire = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// An end of a network that loses some frames.
struct End {
    incoming: Wire,
    outgoing: Wire,
    numbers: Numbers,
    /// One frame of so many is lost; none if 0.
    loses: usize,
    /// What was sent of late.
    samples: VecDeque<Vec<u8>>,
}

impl Link for End {
    fn receive(&mut self, into: &mut [u8; FRAME_MAX]) -> Option<usize> {
        let frame = self.incoming.borrow_mut().pop_front()?;
        into[..frame.len()].copy_from_slice(&frame);
        Some(frame.len())
    }

    fn send(&mut self, frame: &[u8]) {
        self.samples.push_back(frame.to_vec());
        if self.samples.len() > 64 {
            self.samples.pop_front();
        }
        if self.loses == 0 || self.numbers.below(self.loses) != 0 {
            self.outgoing.borrow_mut().push_back(frame.to_vec());
        }
    }
}

const SERVER: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);

/// The stack, and a peer as QEMU's user network is one.
struct Pair {
    stack: Stack<'static>,
    card: End,
    peer: Interface,
    sockets: SocketSet<'static>,
    theirs: End,
    now: i64,
    next_port: u16,
}

impl Pair {
    fn new(seed: u64, loses: usize) -> Self {
        let wires: [Wire; 2] = Default::default();
        let end = |from: &Wire, to: &Wire, seed| End {
            incoming: from.clone(),
            outgoing: to.clone(),
            numbers: Numbers(seed),
            loses,
            samples: VecDeque::new(),
        };
        let mut card = end(&wires[0], &wires[1], seed | 1);
        let mut theirs = end(&wires[1], &wires[0], seed | 2);
        let storage = Box::leak(Box::new(Storage::EMPTY));
        let memory = Box::leak(vec![0; Stack::MEMORY].into_boxed_slice());
        let stack = Stack::new(&mut card, [2, 0, 0, 0, 0, 1], seed, storage, memory);
        let address = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut port = port(&mut theirs);
        let mut peer = Interface::new(Config::new(address.into()), &mut port, Instant::ZERO);
        peer.update_ip_addrs(|all| {
            let own = IpCidr::new(Ipv4Address::new(10, 0, 2, 2).into(), 24);
            all.push(own).unwrap();
        });
        Self {
            stack,
            card,
            peer,
            sockets: SocketSet::new(Vec::new()),
            theirs,
            now: 0,
            next_port: 50_000,
        }
    }

    fn connect(&mut self) -> SocketHandle {
        let buffer = || SocketBuffer::new(vec![0; 4096]);
        let handle = self.sockets.add(Socket::new(buffer(), buffer()));
        self.next_port = 1024 + (self.next_port + 1) % 60_000;
        let socket = self.sockets.get_mut::<Socket<'_>>(handle);
        let context = self.peer.context();
        socket
            .connect(context, (SERVER, 7), self.next_port)
            .unwrap();
        handle
    }

    fn theirs(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Ten milliseconds pass.
    fn step(&mut self) {
        self.now += 10_000;
        let now = Instant::from_micros(self.now);
        let mut port = port(&mut self.theirs);
        self.peer.poll(now, &mut port, &mut self.sockets);
        self.stack.poll(self.now, &mut self.card);
    }

    /// Steps until there is something.
    fn until<T>(&mut self, mut there: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..100_000 {
            self.step();
            if let Some(found) = there(self) {
                return found;
            }
        }
        let states = self.sockets.iter().map(|(_, socket)| match socket {
            smoltcp::socket::Socket::Tcp(socket) => Some(socket.state()),
            smoltcp::socket::Socket::Udp(_) => None,
        });
        let states: Vec<Option<State>> = states.collect();
        panic!(
            "it never came; the peer's sockets: {states:?}, ours: {:?}",
            self.stack
        );
    }

    /// A client of so many bytes, whom the server sends them back.
    fn echo(&mut self, listener: usize, count: usize) {
        let client = self.connect();
        let (own, _) = self.until(|pair| pair.stack.accept(listener));
        let sent: Vec<u8> = (0..count)
            .map(|at| (at * 7 + at / 251).to_le_bytes()[0])
            .collect();
        let (mut to_send, mut back) = (&sent[..], Vec::new());
        let (mut held, mut ended) = (Vec::new(), false);
        self.until(|pair| {
            let socket = pair.theirs(client);
            if socket.can_send() && !to_send.is_empty() {
                let taken = socket.send_slice(to_send).unwrap();
                to_send = &to_send[taken..];
            } else if to_send.is_empty() && socket.may_send() {
                socket.close();
            }
            let _ = socket.recv(|bytes| {
                back.extend_from_slice(bytes);
                (bytes.len(), ())
            });
            if held.is_empty() && !ended {
                let mut room = [0; 777];
                match pair.stack.receive(own, &mut room).unwrap() {
                    Received::Bytes(count) => held.extend_from_slice(&room[..count]),
                    Received::End => {
                        ended = true;
                        pair.stack.close(own).unwrap();
                    }
                }
            }
            if !held.is_empty() {
                let taken = pair.stack.send(own, &held).unwrap();
                held.drain(..taken);
            }
            let state = pair.theirs(client).state();
            matches!(state, State::TimeWait | State::Closed).then_some(())
        });
        assert!(back == sent, "{} of {count} bytes came back", back.len());
        self.sockets.remove(client);
        assert_eq!(self.stack.receive(own, &mut [0]), Err(Refused));
    }
}

fn port(link: &mut End) -> Port<'_, End> {
    Port {
        link,
        received: [0; FRAME_MAX],
        sent: [0; FRAME_MAX],
    }
}

#[test]
fn a_network_that_loses_frames_loses_and_doubles_no_byte() {
    for (seed, loses) in [(1, 0), (2, 20), (3, 7), (4, 5)] {
        let mut pair = Pair::new(seed, loses);
        let listener = pair.stack.listen(7).unwrap();
        for count in [1, 5_000, 60_000] {
            pair.echo(listener, count);
        }
    }
}

#[test]
fn more_connections_than_sockets_follow_each_other() {
    let mut pair = Pair::new(9, 0);
    let listener = pair.stack.listen(7).unwrap();
    for count in 0..5 * SOCKETS {
        pair.echo(listener, count);
    }
}

#[test]
fn sockets_in_which_the_server_ends_first_are_reused() {
    let mut pair = Pair::new(10, 0);
    let listener = pair.stack.listen(7).unwrap();
    for _ in 0..3 * SOCKETS {
        let client = pair.connect();
        let (own, _) = pair.until(|pair| pair.stack.accept(listener));
        pair.stack.close(own).unwrap();
        pair.until(|pair| {
            let socket = pair.theirs(client);
            socket.close();
            (socket.state() == State::Closed).then_some(())
        });
        pair.sockets.remove(client);
    }
}

#[test]
fn many_clients_come_at_once_and_nobody_is_reset() {
    let mut pair = Pair::new(11, 0);
    let listener = pair.stack.listen(7).unwrap();
    // Sockets of earlier connections are had again.
    for count in 0..SOCKETS {
        pair.echo(listener, count);
    }
    let clients: Vec<_> = (0..50).map(|_| pair.connect()).collect();
    for _ in &clients {
        pair.until(|pair| pair.stack.accept(listener));
    }
    let all = clients.iter().all(|&client| pair.theirs(client).may_send());
    assert!(all, "all are connected");
}

#[test]
fn a_listener_that_comes_later_has_sockets_that_listened_for_another() {
    let mut pair = Pair::new(12, 0);
    let first = pair.stack.listen(8).unwrap();
    let second = pair.stack.listen(9).unwrap();
    pair.until(|_| Some(()));
    let listener = pair.stack.listen(7).unwrap();
    for count in 0..10 {
        pair.echo(listener, count);
    }
    pair.stack.unlisten(first).unwrap();
    pair.stack.unlisten(second).unwrap();
    pair.echo(listener, 10);
}

#[test]
fn what_listeners_and_connections_have_is_told() {
    let mut pair = Pair::new(13, 0);
    let listener = pair.stack.listen(7).unwrap();
    assert_eq!(pair.stack.ready(), Ready::default());
    let client = pair.connect();
    pair.until(|pair| (pair.stack.ready().arrived == 1 << listener).then_some(()));
    let (own, peer) = pair.stack.accept(listener).unwrap();
    assert_eq!(peer, ([10, 0, 2, 2], pair.next_port));
    let bit = 1 << own;
    let sends = Ready {
        sends: bit,
        ..Ready::default()
    };
    assert_eq!(pair.stack.ready(), sends);
    pair.theirs(client).send_slice(b"abc").unwrap();
    pair.until(|pair| (pair.stack.ready().receives == bit).then_some(()));
    // Half of a connection can end: what comes is received.
    pair.stack.shut_down(own).unwrap();
    pair.until(|pair| (!pair.theirs(client).may_recv()).then_some(()));
    pair.theirs(client).send_slice(b"def").unwrap();
    let mut all = Vec::new();
    pair.until(|pair| {
        let mut room = [0; 2];
        if let Ok(Received::Bytes(count)) = pair.stack.receive(own, &mut room) {
            all.extend_from_slice(&room[..count]);
        }
        (all.len() == 6).then_some(())
    });
    assert_eq!(all, b"abcdef");
    assert_eq!(pair.stack.send(own, b"x"), Err(Refused));
    assert_eq!(pair.stack.ready().ended, 0);
    pair.theirs(client).close();
    pair.until(|pair| (pair.stack.ready().ended == bit).then_some(()));
    assert_eq!(pair.stack.ready().receives, bit);
}

#[test]
fn a_port_is_free_when_nobody_listens_there_any_more() {
    let mut pair = Pair::new(14, 0);
    for _ in 0..SOCKETS {
        let listener = pair.stack.listen(7).unwrap();
        pair.echo(listener, 10);
        let lost = pair.connect();
        pair.until(|pair| (pair.stack.ready().arrived != 0).then_some(()));
        pair.stack.unlisten(listener).unwrap();
        assert_eq!(pair.stack.unlisten(listener), Err(Refused));
        assert_eq!(pair.stack.accept(listener), None);
        pair.until(|pair| (!pair.theirs(lost).is_open()).then_some(()));
        let none = pair.connect();
        pair.until(|pair| (!pair.theirs(none).is_open()).then_some(()));
        pair.sockets.remove(lost);
        pair.sockets.remove(none);
    }
}

#[test]
fn ports_and_numbers_that_are_none_are_refused() {
    let mut pair = Pair::new(11, 0);
    assert_eq!(pair.stack.listen(0), Err(Refused));
    for port in 1..5 {
        assert!(pair.stack.listen(port).is_ok());
    }
    assert_eq!(pair.stack.listen(1), Err(Refused));
    assert_eq!(pair.stack.listen(5), Err(Refused));
    for number in [0, SOCKETS, usize::MAX] {
        assert_eq!(pair.stack.receive(number, &mut [0]), Err(Refused));
        assert_eq!(pair.stack.send(number, &[0]), Err(Refused));
        assert_eq!(pair.stack.close(number), Err(Refused));
    }
    assert_eq!(pair.stack.accept(usize::MAX), None);
}

/// Changes a frame a little, or makes one up.
fn spoil(numbers: &mut Numbers, frame: &mut Vec<u8>) {
    match numbers.below(4) {
        0 => {
            let len = FRAME_MIN + numbers.below(100);
            *frame = (0..len).map(|_| numbers.next().to_le_bytes()[0]).collect();
            // For this card, and IPv4 or ARP.
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            frame[12..14].copy_from_slice(&[8, [0, 6][numbers.below(2)]]);
        }
        1 => frame.truncate(FRAME_MIN.max(numbers.below(frame.len() + 1))),
        2 => frame.resize((frame.len() + numbers.below(200)).min(FRAME_MAX), 0xa5),
        _ => {}
    }
    for _ in 0..numbers.below(4) {
        let at = numbers.below(frame.len());
        frame[at] ^= 1 << numbers.below(8);
    }
    if numbers.below(2) == 0 {
        mend(frame);
    }
}

/// Makes the checksums of an IPv4 frame right, so that it gets further.
fn mend(frame: &mut [u8]) {
    use smoltcp::wire::{EthernetFrame, IpAddress, IpProtocol, Ipv4Packet, TcpPacket, UdpPacket};
    let Ok(mut ethernet) = EthernetFrame::new_checked(frame) else {
        return;
    };
    let Ok(mut packet) = Ipv4Packet::new_checked(ethernet.payload_mut()) else {
        return;
    };
    packet.fill_checksum();
    let ends = [packet.src_addr(), packet.dst_addr()].map(IpAddress::Ipv4);
    if packet.next_header() == IpProtocol::Udp {
        if let Ok(mut datagram) = UdpPacket::new_checked(packet.payload_mut()) {
            datagram.fill_checksum(&ends[0], &ends[1]);
        }
    } else if let Ok(mut segment) = TcpPacket::new_checked(packet.payload_mut()) {
        segment.fill_checksum(&ends[0], &ends[1]);
    }
}

/// Frames that nobody means well with reach the stack while it works; it works on.
#[test]
fn malformed_frames_neither_end_the_stack_nor_what_it_serves() {
    let mut pair = Pair::new(12, 0);
    let listener = pair.stack.listen(7).unwrap();
    let mut numbers = Numbers(0xbad);
    let mut given = 0;
    while given < count(100_000) {
        // Real frames, which what follows begins from.
        let client = pair.connect();
        for _ in 0..6 {
            pair.step();
            let mut room = [0; 64];
            pair.theirs(client).send_slice(&[1; 32]).ok();
            for number in 0..SOCKETS {
                let _ = pair.stack.receive(number, &mut room);
            }
        }
        pair.theirs(client).abort();
        pair.step();
        pair.sockets.remove(client);
        let samples = &pair.theirs.samples;
        for _ in 0..512 {
            let mut frame = samples[numbers.below(samples.len())].clone();
            spoil(&mut numbers, &mut frame);
            pair.card.incoming.borrow_mut().push_back(frame);
            given += 1;
        }
        pair.step();
        // Nobody answers what the stack said to that.
        pair.card.outgoing.borrow_mut().clear();
        while let Some((own, _)) = pair.stack.accept(listener) {
            let _ = pair.stack.send(own, b"?");
            pair.stack.close(own).unwrap();
        }
        assert!(
            pair.stack
                .pause(pair.now)
                .is_none_or(|pause| pause < 100_000_000)
        );
    }
    // Half a connection of somebody who is gone ends by itself in time.
    pair.now += 600_000_000;
    pair.echo(listener, 3_000);
}
