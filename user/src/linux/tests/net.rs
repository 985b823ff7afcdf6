//! A network of vectors, and programs that use sockets, pipes and what watches them.

use std::collections::VecDeque;
use std::vec::Vec;

use linux_raw_sys::errno::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, ECONNREFUSED, ECONNRESET, EEXIST, ENETUNREACH,
    ENOENT, ENOTCONN, ENOTSOCK, EPERM, EPIPE,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::net::{AF_INET, SOCK_STREAM};

use super::{Answer, DATA, Errno, Mock, Network, Process, ask, with};
use crate::linux::Turn;
use crate::network::{Peer, Ready};
use crate::socket::{Incoming, SocketError};

/// An address in the machine's network at which nobody is.
pub(super) const NOBODY: [u8; 4] = [10, 0, 2, 77];
/// Bytes that a connection takes before its peer reads.
const ROOM: usize = 5000;

#[derive(Debug, Default)]
pub(super) struct Wires {
    pub(super) ports: Vec<Option<u16>>,
    /// Connections that nobody accepted.
    arrived: VecDeque<usize>,
    pub(super) wires: Vec<Wire>,
    /// What comes of what the program asked for last, as soon as nobody but the network can go on.
    pub(super) promised: VecDeque<Result<(), SocketError>>,
    /// Sockets for datagrams; and whether there is no card.
    pub(super) posts: Vec<Post>,
    pub(super) is_cut_off: bool,
}

/// A socket for datagrams: what came and from whom, and what was sent and to whom.
#[derive(Debug, Default)]
pub(super) struct Post {
    pub(super) port: u16,
    pub(super) came: VecDeque<(Peer, Vec<u8>)>,
    pub(super) sent: Vec<(Peer, Vec<u8>)>,
    pub(super) gone: bool,
}

#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) incoming: VecDeque<u8>,
    pub(super) outgoing: Vec<u8>,
    /// The peer sends no more; or the connection is no more.
    pub(super) ended: bool,
    pub(super) broken: bool,
    pub(super) shut: bool,
    pub(super) gone: bool,
    /// Whom the program asked for it, and from which port.
    pub(super) asked: Option<(Peer, u16)>,
    /// What came of that; a wire that was accepted is there.
    pub(super) came: Option<Result<(), SocketError>>,
}

impl Wire {
    /// May it be used?
    fn is_there(&self) -> bool {
        self.asked.is_none() || self.came == Some(Ok(()))
    }
}

impl Wires {
    /// Something comes of what was asked for, if there is something promised.
    pub(super) fn hear(&mut self) -> bool {
        let Some(came) = self.promised.pop_front() else {
            return false;
        };
        self.wires.last_mut().expect("a wire").came = Some(came);
        true
    }

    /// A client connects.
    fn connect(&mut self) -> usize {
        self.wires.push(Wire::default());
        self.arrived.push_back(self.wires.len() - 1);
        self.wires.len() - 1
    }
}

impl Network for Mock {
    fn listen(&mut self, port: u16) -> Result<usize, SocketError> {
        if self.net.ports.contains(&Some(port)) {
            return Err(SocketError::Refused);
        }
        self.net.ports.push(Some(port));
        Ok(self.net.ports.len() - 1)
    }

    fn unlisten(&mut self, listener: usize) {
        self.net.ports[listener] = None;
    }

    fn accept(&mut self, _listener: usize) -> Option<(usize, Peer)> {
        let wire = self.net.arrived.pop_front()?;
        Some((wire, ([10, 0, 2, 2], 4000 + u16::try_from(wire).unwrap())))
    }

    fn connect(&mut self, peer: Peer, port: u16) -> Result<usize, SocketError> {
        if self
            .net
            .wires
            .iter()
            .any(|it| it.asked == Some((peer, port)))
        {
            return Err(SocketError::Refused);
        }
        self.net.wires.push(Wire {
            asked: Some((peer, port)),
            ..Wire::default()
        });
        Ok(self.net.wires.len() - 1)
    }

    fn is_made(&mut self, wire: usize) -> Result<bool, SocketError> {
        let wire = &self.net.wires[wire];
        assert!(!wire.gone, "it was hung up");
        match wire.came {
            Some(Err(why)) => Err(why),
            came => Ok(came.is_some() || wire.asked.is_none()),
        }
    }

    fn receive(&mut self, wire: usize, into: &mut [u8]) -> Result<Incoming, SocketError> {
        let wire = &mut self.net.wires[wire];
        assert!(wire.is_there(), "it is no connection");
        if wire.broken {
            return Err(SocketError::Broken);
        }
        if wire.incoming.is_empty() && wire.ended {
            return Ok(Incoming::End);
        }
        let count = into.len().min(wire.incoming.len());
        for (to, byte) in into.iter_mut().zip(wire.incoming.drain(..count)) {
            *to = byte;
        }
        Ok(Incoming::Bytes(count))
    }

    fn send(&mut self, wire: usize, bytes: &[u8]) -> Result<usize, SocketError> {
        let wire = &mut self.net.wires[wire];
        if wire.broken {
            return Err(SocketError::Broken);
        }
        let count = bytes.len().min(ROOM - wire.outgoing.len());
        wire.outgoing.extend(&bytes[..count]);
        Ok(count)
    }

    fn shut_down(&mut self, wire: usize) {
        self.net.wires[wire].shut = true;
    }

    fn hang_up(&mut self, wire: usize) {
        self.net.wires[wire].gone = true;
    }

    fn open(&mut self, port: u16) -> Result<usize, SocketError> {
        if self.net.is_cut_off {
            return Err(SocketError::NoCard);
        }
        let mut all = self.net.posts.iter();
        assert!(
            !all.any(|it| it.port == port && !it.gone),
            "{port} is taken"
        );
        self.net.posts.push(Post {
            port,
            ..Post::default()
        });
        Ok(self.net.posts.len() - 1)
    }

    fn send_to(&mut self, post: usize, peer: Peer, bytes: &[u8]) -> Result<(), SocketError> {
        assert!(!self.net.posts[post].gone, "it was closed");
        if peer.0 == NOBODY {
            return Err(SocketError::Refused);
        }
        self.net.posts[post].sent.push((peer, bytes.to_vec()));
        Ok(())
    }

    fn take_from(&mut self, post: usize, into: &mut [u8]) -> Option<(usize, Peer)> {
        assert!(!self.net.posts[post].gone, "it was closed");
        let (peer, bytes) = self.net.posts[post].came.pop_front()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Some((count, peer))
    }

    fn shut(&mut self, post: usize) {
        self.net.posts[post].gone = true;
    }

    fn ready(&mut self) -> Ready {
        let mut ready = Ready {
            arrived: u64::from(!self.net.arrived.is_empty()),
            ..Ready::default()
        };
        for (number, post) in self.net.posts.iter().enumerate().filter(|it| !it.1.gone) {
            ready.came |= u64::from(!post.came.is_empty()) << number;
        }
        for (number, wire) in self.net.wires.iter().enumerate().filter(|it| !it.1.gone) {
            let bit = |has: bool| u64::from(has) << number;
            if !wire.is_there() {
                ready.sends |= bit(wire.came.is_some());
                continue;
            }
            let ended = wire.broken || wire.ended && wire.incoming.is_empty();
            ready.receives |= bit(ended || !wire.incoming.is_empty());
            ready.sends |= bit(wire.broken || wire.outgoing.len() < ROOM);
            ready.ended |= bit(ended);
        }
        ready
    }
}

pub(super) type Program<'p, 'a> = &'p mut Process<'a, Mock>;

pub(super) const NONBLOCK: u64 = nr::O_NONBLOCK as u64;
/// Where the program keeps what calls read and write.
pub(super) const HERE: u64 = DATA + 0x400;

pub(super) fn socket(process: Program<'_, '_>, flags: u64) -> Answer {
    let words = [AF_INET.into(), u64::from(SOCK_STREAM) | flags];
    ask(process, nr::__NR_socket, &words)
}

/// Puts an address where the program has data.
pub(super) fn address(process: Program<'_, '_>, ip: [u8; 4], port: u16) -> u64 {
    let [high, low] = port.to_be_bytes();
    let [a, b, c, d] = ip;
    let bytes = [2, 0, high, low, a, b, c, d];
    process.write(DATA + 0x100, &bytes).unwrap();
    DATA + 0x100
}

pub(super) fn bind(process: Program<'_, '_>, file: u64, ip: [u8; 4], port: u16) -> Answer {
    let place = address(process, ip, port);
    ask(process, nr::__NR_bind, &[file, place, 16])
}

/// A socket that listens at port 7 and does not wait.
pub(super) fn server(process: Program<'_, '_>) -> u64 {
    let file = socket(process, NONBLOCK).unwrap();
    assert_eq!(bind(process, file, [0; 4], 7), Ok(0));
    assert_eq!(ask(process, nr::__NR_listen, &[file, 9]), Ok(0));
    file
}

/// A client that the program accepted, whose calls wait unless the flags say otherwise; its wire
/// and its descriptor.
pub(super) fn client(process: Program<'_, '_>, server: u64, flags: u64) -> (usize, u64) {
    let wire = process.machine.net.connect();
    let words = [server, 0, 0, flags];
    (wire, ask(process, nr::__NR_accept4, &words).unwrap())
}

pub(super) fn bytes(process: Program<'_, '_>, len: usize) -> Vec<u8> {
    let mut bytes = std::vec![0; len];
    process.read(HERE, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_server_has_addresses_and_refuses_what_it_cannot_have() {
    with(|process, _| {
        let file = server(process);
        let other = socket(process, 0).unwrap();
        assert_eq!(bind(process, other, [0; 4], 7), Err(Errno(EADDRINUSE)));
        let loopback = [127, 0, 0, 1];
        let foreign = [9, 9, 9, 9];
        assert_eq!(bind(process, other, foreign, 9), Err(Errno(EADDRNOTAVAIL)));
        for (ip, why) in [(loopback, ECONNREFUSED), (foreign, ENETUNREACH)] {
            let place = address(process, ip, 80);
            let words = [other, place, 16];
            assert_eq!(ask(process, nr::__NR_connect, &words), Err(Errno(why)));
        }
        let six = [10, SOCK_STREAM.into()];
        assert_eq!(
            ask(process, nr::__NR_socket, &six),
            Err(Errno(EAFNOSUPPORT))
        );
        assert_eq!(ask(process, nr::__NR_accept, &[file]), Err(Errno(EAGAIN)));
        assert_eq!(ask(process, nr::__NR_listen, &[1]), Err(Errno(ENOTSOCK)));
        assert_eq!(
            ask(process, nr::__NR_recvfrom, &[other, HERE, 1]),
            Err(Errno(ENOTCONN))
        );
        let wire = process.machine.net.connect();
        process.write(HERE + 16, &[16]).unwrap();
        let words = [file, HERE, HERE + 16, 0];
        let taken = ask(process, nr::__NR_accept4, &words).unwrap();
        let low = u8::try_from((4000 + wire) % 256).unwrap();
        assert_eq!(bytes(process, 8), [2, 0, 15, low, 10, 0, 2, 2]);
        let words = [taken, HERE, HERE + 16];
        assert_eq!(ask(process, nr::__NR_getsockname, &words), Ok(0));
        assert_eq!(bytes(process, 8), [2, 0, 0, 7, 10, 0, 2, 15]);
        assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        assert_eq!(process.machine.net.ports, [None]);
        assert_eq!(ask(process, nr::__NR_close, &[taken]), Ok(0));
        assert!(process.machine.net.wires[wire].gone);
    });
}

#[test]
fn bytes_go_both_ways_until_a_connection_ends() {
    with(|process, _| {
        let listener = server(process);
        let (wire, file) = client(process, listener, NONBLOCK);
        let read = [file, HERE, 100];
        assert_eq!(ask(process, nr::__NR_read, &read), Err(Errno(EAGAIN)));
        process.machine.net.wires[wire].incoming.extend(b"hello");
        assert_eq!(ask(process, nr::__NR_read, &read), Ok(5));
        assert_eq!(bytes(process, 5), b"hello");
        process
            .write_words(HERE, &[HERE + 64, 2, HERE + 65, 3])
            .unwrap();
        process.write(HERE + 64, b"abcd").unwrap();
        assert_eq!(ask(process, nr::__NR_writev, &[file, HERE, 2]), Ok(5));
        assert_eq!(process.machine.net.wires[wire].outgoing, b"abbcd");
        // What is taken of more than there is room for is told.
        assert_eq!(
            ask(process, nr::__NR_write, &[file, DATA, 0x1000]),
            Ok(0x1000)
        );
        let rest = ROOM as u64 - 0x1005;
        assert_eq!(
            ask(process, nr::__NR_write, &[file, DATA, 0x1000]),
            Ok(rest)
        );
        assert_eq!(
            ask(process, nr::__NR_write, &[file, DATA, 1]),
            Err(Errno(EAGAIN))
        );
        assert_eq!(ask(process, nr::__NR_shutdown, &[file, 1]), Ok(0));
        assert!(process.machine.net.wires[wire].shut);
        process.machine.net.wires[wire].ended = true;
        assert_eq!(ask(process, nr::__NR_read, &read), Ok(0));
        let nosignal = linux_raw_sys::net::MSG_NOSIGNAL.into();
        let send = [file, DATA, 1, nosignal];
        assert_eq!(ask(process, nr::__NR_sendto, &send), Err(Errno(EPIPE)));
        let (wire, file) = client(process, listener, 0);
        process.machine.net.wires[wire].broken = true;
        let read = [file, HERE, 1];
        assert_eq!(ask(process, nr::__NR_read, &read), Err(Errno(ECONNRESET)));
        assert_eq!(ask(process, nr::__NR_read, &read), Ok(0));
        // By a signal too, which ends who does not handle it.
        let words = [file, DATA, 1, 0, 0, 0];
        let turn = process.called(0, nr::__NR_write.into(), words, &[0; 18]);
        assert_eq!(turn, Turn::End(141));
    });
}

/// Watches a descriptor for these events.
fn watch(process: Program<'_, '_>, poller: u64, what: u32, file: u64, events: u32) -> Answer {
    process.write(HERE, &events.to_le_bytes()).unwrap();
    process.write_words(HERE + 4, &[1000 + file]).unwrap();
    let words = [poller, what.into(), file, HERE];
    ask(process, nr::__NR_epoll_ctl, &words)
}

/// Events that there are now, and whose.
fn events(process: Program<'_, '_>, poller: u64) -> Vec<(u32, u64)> {
    let words = [poller, HERE, 8, 0];
    let count = ask(process, nr::__NR_epoll_wait, &words).unwrap();
    let events = (0..count).map(|at| {
        let place = HERE + 12 * at;
        let events = process.word(place).unwrap() & 0xffff_ffff;
        let whose = process.word(place + 4).unwrap() - 1000;
        (u32::try_from(events).unwrap(), whose)
    });
    events.collect()
}

#[test]
fn what_is_watched_is_told_as_long_as_it_is_there_or_once() {
    use linux_raw_sys::general::{
        EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLONESHOT, POLLIN, POLLOUT,
    };
    with(|process, _| {
        let poller = ask(process, nr::__NR_epoll_create1, &[0]).unwrap();
        let listener = server(process);
        assert_eq!(
            watch(process, poller, EPOLL_CTL_ADD, listener, POLLIN),
            Ok(0)
        );
        assert_eq!(
            watch(process, poller, EPOLL_CTL_ADD, listener, POLLIN),
            Err(Errno(EEXIST))
        );
        assert_eq!(
            watch(process, poller, EPOLL_CTL_MOD, 1, POLLIN),
            Err(Errno(EPERM))
        );
        assert_eq!(events(process, poller), []);
        process.machine.net.connect();
        assert_eq!(events(process, poller), [(POLLIN, listener)]);
        assert_eq!(events(process, poller), [(POLLIN, listener)]);
        let taken = ask(process, nr::__NR_accept4, &[listener, 0, 0, NONBLOCK]).unwrap();
        assert_eq!(events(process, poller), []);
        let both = POLLIN | POLLOUT | EPOLLET;
        assert_eq!(watch(process, poller, EPOLL_CTL_ADD, taken, both), Ok(0));
        assert_eq!(events(process, poller), [(POLLOUT, taken)]);
        assert_eq!(events(process, poller), []);
        process.machine.net.wires[0].incoming.extend([1; 20]);
        assert_eq!(events(process, poller), [(POLLIN, taken)]);
        assert_eq!(events(process, poller), []);
        // It is told again when less came than was wanted, and then more.
        assert_eq!(ask(process, nr::__NR_read, &[taken, HERE, 20]), Ok(20));
        process.machine.net.wires[0].incoming.extend([1; 10]);
        assert_eq!(ask(process, nr::__NR_read, &[taken, HERE, 20]), Ok(10));
        process.machine.net.wires[0].incoming.extend([1; 10]);
        assert_eq!(events(process, poller), [(POLLIN, taken)]);
        let once = POLLOUT | EPOLLONESHOT;
        assert_eq!(watch(process, poller, EPOLL_CTL_MOD, taken, once), Ok(0));
        assert_eq!(events(process, poller), [(POLLOUT, taken)]);
        assert_eq!(events(process, poller), []);
        assert_eq!(watch(process, poller, EPOLL_CTL_DEL, taken, 0), Ok(0));
        assert_eq!(
            watch(process, poller, EPOLL_CTL_DEL, taken, 0),
            Err(Errno(ENOENT))
        );
        // What is closed is watched no more.
        process.machine.net.connect();
        assert_eq!(ask(process, nr::__NR_close, &[listener]), Ok(0));
        assert_eq!(events(process, poller), []);
    });
}

#[test]
fn pipes_hold_so_much_and_have_two_ends() {
    with(|process, _| {
        let taken = process.machine.free.len();
        assert_eq!(ask(process, nr::__NR_pipe2, &[HERE, NONBLOCK]), Ok(0));
        let both = process.word(HERE).unwrap();
        let (reader, writer) = (both & 0xffff, both >> 32);
        let read = [reader, HERE, 0x800];
        assert_eq!(ask(process, nr::__NR_read, &read), Err(Errno(EAGAIN)));
        let write = [writer, DATA, 0x1001];
        for _ in 0..15 {
            assert_eq!(ask(process, nr::__NR_write, &write), Ok(0x1001));
        }
        // A page goes in as a whole or not at all, more in parts.
        let page = [writer, DATA, 0x1000];
        assert_eq!(ask(process, nr::__NR_write, &page), Err(Errno(EAGAIN)));
        assert_eq!(ask(process, nr::__NR_write, &write), Ok(0xff1));
        assert_eq!(ask(process, nr::__NR_write, &write), Err(Errno(EAGAIN)));
        let mut all = 0;
        while let Ok(count) = ask(process, nr::__NR_read, &read) {
            all += count;
        }
        assert_eq!(all, 0x1_0000);
        assert!(process.machine.free.len() >= taken + 16, "memory is back");
        assert_eq!(ask(process, nr::__NR_close, &[writer]), Ok(0));
        assert_eq!(ask(process, nr::__NR_read, &read), Ok(0));
        assert_eq!(ask(process, nr::__NR_read, &[reader, HERE, 0]), Ok(0));
    });
}

#[test]
fn polls_wait_for_their_time_and_see_counters_and_timers() {
    with(|process, _| {
        let counter = ask(process, nr::__NR_eventfd2, &[0, NONBLOCK]).unwrap();
        let timer = ask(process, nr::__NR_timerfd_create, &[1, NONBLOCK]).unwrap();
        let entry = |file: u64| file | u64::from(nr::POLLIN) << 32;
        let table = DATA + 0x200;
        let poll = |process: Program<'_, '_>, millis: u64| {
            let words = [entry(counter), entry(timer)];
            process.write_words(table, &words).unwrap();
            let count = ask(process, nr::__NR_poll, &[table, 2, millis]).unwrap();
            let has = |at: u64| process.word(table + 8 * at).unwrap() >> 48;
            (count, has(0), has(1))
        };
        let before = process.machine.now;
        assert_eq!(poll(process, 50), (0, 0, 0));
        assert!(process.machine.now - before >= 50_000_000);
        process.write_words(HERE, &[3]).unwrap();
        assert_eq!(ask(process, nr::__NR_write, &[counter, HERE, 8]), Ok(8));
        assert_eq!(poll(process, 1000), (1, 1, 0));
        assert_eq!(ask(process, nr::__NR_read, &[counter, HERE, 8]), Ok(8));
        assert_eq!(process.word(HERE), Ok(3));
        assert_eq!(
            ask(process, nr::__NR_read, &[counter, HERE, 8]),
            Err(Errno(EAGAIN))
        );
        // Every ten milliseconds, from five on.
        process
            .write_words(HERE, &[0, 10_000_000, 0, 5_000_000])
            .unwrap();
        let words = [timer, 0, HERE, 0];
        assert_eq!(ask(process, nr::__NR_timerfd_settime, &words), Ok(0));
        let before = process.machine.now;
        assert_eq!(poll(process, u64::MAX), (1, 0, 1));
        assert!((5_000_000..6_000_000).contains(&(process.machine.now - before)));
        process.machine.now += 31_000_000;
        assert_eq!(ask(process, nr::__NR_read, &[timer, HERE, 8]), Ok(8));
        assert_eq!(process.word(HERE), Ok(4));
        assert_eq!(
            ask(process, nr::__NR_read, &[timer, HERE, 8]),
            Err(Errno(EAGAIN))
        );
        // The same by sets.
        process.write_words(HERE, &[1 << timer]).unwrap();
        let select = [timer + 1, HERE, 0, 0, 0];
        assert_eq!(ask(process, nr::__NR_select, &select), Ok(1));
        assert_eq!(process.word(HERE), Ok(1 << timer));
    });
}

#[test]
fn what_is_left_of_a_time_is_told() {
    with(|process, _| {
        let timer = ask(process, nr::__NR_timerfd_create, &[1, NONBLOCK]).unwrap();
        // Every ten milliseconds, and it has rung.
        process
            .write_words(HERE, &[0, 10_000_000, 0, 5_000_000])
            .unwrap();
        let words = [timer, 0, HERE, 0];
        assert_eq!(ask(process, nr::__NR_timerfd_settime, &words), Ok(0));
        process.machine.now += 6_000_000;
        // All of it is left, some, or nothing.
        let limit = HERE + 8;
        let select = [timer + 1, HERE, 0, 0, limit];
        process.write_words(HERE, &[1 << timer, 1, 2]).unwrap();
        assert_eq!(ask(process, nr::__NR_select, &select), Ok(1));
        assert_eq!(process.word(limit), Ok(1));
        assert_eq!(process.word(limit + 8), Ok(2));
        assert_eq!(ask(process, nr::__NR_read, &[timer, HERE + 32, 8]), Ok(8));
        for (call, unit) in [(nr::__NR_select, 1000), (nr::__NR_pselect6, 1)] {
            process.write_words(HERE, &[1 << timer, 1, 0]).unwrap();
            assert_eq!(ask(process, call, &select), Ok(1));
            assert_eq!(process.word(limit), Ok(0));
            let left = process.word(limit + 8).unwrap() * unit;
            assert!((989_000_000..1_000_000_000).contains(&left), "{left}");
            assert_eq!(ask(process, nr::__NR_read, &[timer, HERE + 32, 8]), Ok(8));
        }
        for call in [nr::__NR_select, nr::__NR_pselect6] {
            process.write_words(limit, &[0, 900]).unwrap();
            assert_eq!(ask(process, call, &[0, 0, 0, 0, limit]), Ok(0));
            assert_eq!(process.word(limit + 8), Ok(0));
        }
        process.write_words(limit, &[0, 900]).unwrap();
        assert_eq!(ask(process, nr::__NR_ppoll, &[0, 0, limit, 0]), Ok(0));
        assert_eq!(process.word(limit + 8), Ok(0));
    });
}
