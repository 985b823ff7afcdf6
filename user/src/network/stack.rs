//! TCP/IP for one machine on one card: listeners, connections and sockets for datagrams, by number.
//!
//! The library has no queue of connections that wait to be accepted: a socket that listens becomes
//! the connection. So there is a pool of sockets, of which each listener has a few listening, and
//! gets new ones for those that became connections. Sockets of connections that ended come back.
//!
//! A connection that the machine makes itself is one from the start, and has a word to say for
//! itself as soon as it is known what came of it.
//!
//! Nothing here waits. Time and the seed of sequence numbers are arguments, which replicas have to
//! be given alike. Addresses are those of QEMU's user network.

mod datagrams;

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint, Ipv4Address};

use super::link::{FRAME_MAX, Link, Port};
pub use datagrams::{DATAGRAM_MAX, DATAGRAMS, Unsent};
use datagrams::{Headers, NO_HEADERS};

/// Sockets.
pub const SOCKETS: usize = 64;
/// Bytes of each of a socket's two buffers.
const BUFFER: usize = 8 << 10;
/// Listeners, and sockets that each has listening as long as there are some.
const LISTENERS: usize = 4;
const BACKLOG: usize = 8;
/// More listen, for many clients that come at once, as long as so many are free: who finds none is
/// reset.
const RESERVE: usize = 8;
/// A peer that is gone without a word is asked after so long, and given up after so much silence.
const ASK: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(180);
/// A peer that does not answer who wants to connect is given up after so long: as Linux does, which
/// asks seven times.
const UNANSWERED: Duration = Duration::from_secs(127);
const UNANSWERED_MICROS: i64 = 127_000_000;

/// The machine's address, that of its router, and of whom names are asked.
const ADDRESS: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);
const ROUTER: Ipv4Address = Ipv4Address::new(10, 0, 2, 2);
const NAMES: Ipv4Address = Ipv4Address::new(10, 0, 2, 3);
const PREFIX: u8 = 24;

/// It cannot be had: no such thing, no room, or the connection is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// Why a connection was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmade {
    /// The peer does not want it, or there is no such connection.
    Refused,
    /// Nobody has answered.
    Unanswered,
}

/// What a connection received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes, maybe none as yet.
    Bytes(usize),
    /// All; the peer sends no more.
    End,
}

/// What listeners, connections and sockets for datagrams have, one bit for each by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Listeners: a connection that nobody accepted.
    pub arrived: u64,
    /// Connections: something to receive, or nothing more ever.
    pub receives: u64,
    /// Connections: room for what is to be sent, or they are broken.
    pub sends: u64,
    /// Connections: the peer sends no more, or they are broken.
    pub ended: u64,
    /// Sockets for datagrams: one that came.
    pub came: u64,
}
const _: () = assert!(SOCKETS <= 64, "one bit each");

/// Address and port of a peer.
pub type Peer = ([u8; 4], u16);

/// What a socket is to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    /// It listens for the listener of this number, or has become a connection that nobody accepted.
    Listens(usize),
    Connection,
    /// The machine asked for it then, in microseconds, and was not told yet what came of it.
    Asks(i64),
    /// Nobody refers to it any more; it says goodbye to its peer.
    Ends,
}

/// What the stack keeps of its sockets beside their bytes.
#[derive(Debug)]
pub struct Storage<'a> {
    sockets: [SocketStorage<'a>; SOCKETS + DATAGRAMS],
    headers: [Headers; DATAGRAMS],
}

impl Storage<'_> {
    /// That of none.
    pub const EMPTY: Self = Self {
        sockets: [SocketStorage::EMPTY; SOCKETS + DATAGRAMS],
        headers: [NO_HEADERS; DATAGRAMS],
    };
}

/// The stack.
pub struct Stack<'a> {
    interface: Interface,
    sockets: SocketSet<'a>,
    handles: [SocketHandle; SOCKETS],
    uses: [Use; SOCKETS],
    datagrams: [SocketHandle; DATAGRAMS],
    /// Ports of listeners.
    ports: [Option<u16>; LISTENERS],
}

impl core::fmt::Debug for Stack<'_> {
    /// What sockets are and do; the library says nothing of the interface.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let state = |handle: &SocketHandle| self.sockets.get::<Socket<'_>>(*handle).state();
        let states = self.handles.iter().map(state);
        f.debug_list()
            .entries(self.uses.iter().zip(states))
            .finish()
    }
}

impl<'a> Stack<'a> {
    /// Bytes of memory that the sockets need.
    pub const MEMORY: usize = 2 * SOCKETS * BUFFER + datagrams::MEMORY;

    /// A stack on the card with this address, on which sequence numbers follow from `seed`.
    ///
    /// # Panics
    /// If `memory` has less than [`Self::MEMORY`] bytes.
    pub fn new<L: Link>(
        link: &mut L,
        address: [u8; 6],
        seed: u64,
        storage: &'a mut Storage<'a>,
        mut memory: &'a mut [u8],
    ) -> Self {
        let mut config = Config::new(EthernetAddress(address).into());
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut port(link), Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(ADDRESS.into(), PREFIX);
            assert!(addresses.push(own).is_ok(), "there is room for one address");
        });
        let route = interface.routes_mut().add_default_ipv4_route(ROUTER);
        assert!(route.is_ok(), "there is room for one route");
        let mut sockets = SocketSet::new(&mut storage.sockets[..]);
        let mut part = |bytes| memory.split_off_mut(..bytes).expect("memory as agreed");
        let handles = core::array::from_fn(|_| {
            let mut buffer = || SocketBuffer::new(part(BUFFER));
            sockets.add(Socket::new(buffer(), buffer()))
        });
        let datagrams = storage.headers.each_mut();
        let datagrams = datagrams.map(|it| sockets.add(datagrams::socket(it, &mut part)));
        Self {
            interface,
            sockets,
            handles,
            uses: [Use::Free; SOCKETS],
            datagrams,
            ports: [None; LISTENERS],
        }
    }

    /// Takes what came and sends what is due, at so many microseconds. Tells whether anything may
    /// have changed for those who use sockets.
    pub fn poll<L: Link>(&mut self, micros: i64, link: &mut L) -> bool {
        let now = Instant::from_micros(micros);
        let result = self.interface.poll(now, &mut port(link), &mut self.sockets);
        let turned = self.turn_over();
        turned || result == PollResult::SocketStateChanged
    }

    /// Microseconds until there is something to do, if nothing comes before.
    pub fn pause(&mut self, micros: i64) -> Option<u64> {
        let now = Instant::from_micros(micros);
        let delay = self.interface.poll_delay(now, &self.sockets);
        delay.map(|delay| delay.total_micros())
    }

    /// Listens at a port; the listener's number.
    ///
    /// # Errors
    /// If somebody does, there are too many listeners, or port 0 is asked for.
    pub fn listen(&mut self, port: u16) -> Result<usize, Refused> {
        if port == 0 || self.ports.contains(&Some(port)) {
            return Err(Refused);
        }
        let listener = self.ports.iter().position(Option::is_none).ok_or(Refused)?;
        self.ports[listener] = Some(port);
        self.turn_over();
        Ok(listener)
    }

    /// Listens no more: who was not accepted is reset.
    ///
    /// # Errors
    /// If that is no listener.
    pub fn unlisten(&mut self, listener: usize) -> Result<(), Refused> {
        let port = self.ports.get_mut(listener).ok_or(Refused)?;
        port.take().ok_or(Refused)?;
        for number in 0..SOCKETS {
            if self.uses[number] == Use::Listens(listener) {
                self.socket(number).abort();
                self.uses[number] = Use::Ends;
            }
        }
        self.turn_over();
        Ok(())
    }

    /// A connection that a listener has got; its number and its peer.
    pub fn accept(&mut self, listener: usize) -> Option<(usize, Peer)> {
        let found = (0..SOCKETS).find(|&number| {
            let waits = self.uses[number] == Use::Listens(listener);
            waits && is_made(self.socket(number).state())
        })?;
        self.uses[found] = Use::Connection;
        let peer = self.socket(found).remote_endpoint();
        self.turn_over();
        let peer = peer.map(|peer| match peer.addr {
            IpAddress::Ipv4(address) => (address.octets(), peer.port),
        });
        Some((found, peer.unwrap_or_default()))
    }

    /// Asks a peer for a connection, from this port, at so many microseconds; its number.
    ///
    /// # Errors
    /// If there is no room, a port is 0, or there is such a connection already.
    pub fn connect(&mut self, peer: Peer, port: u16, micros: i64) -> Result<usize, Refused> {
        let address = IpAddress::Ipv4(Ipv4Address::from(peer.0));
        let to = IpEndpoint::new(address, peer.1);
        if self.has(port, to) {
            return Err(Refused);
        }
        let number = self.free().ok_or(Refused)?;
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handles[number]);
        let asked = socket.connect(self.interface.context(), to, port);
        asked.map_err(|_| Refused)?;
        prepare(socket);
        socket.set_timeout(Some(UNANSWERED));
        self.uses[number] = Use::Asks(micros);
        Ok(number)
    }

    /// Does a socket lead from this port to this peer? What comes could be meant for it.
    fn has(&self, port: u16, peer: IpEndpoint) -> bool {
        self.handles.iter().any(|handle| {
            let socket = self.sockets.get::<Socket<'_>>(*handle);
            let from = socket.local_endpoint().map(|own| own.port);
            socket.is_open() && from == Some(port) && socket.remote_endpoint() == Some(peer)
        })
    }

    /// Is a connection made that was asked for, as far as is known at so many microseconds?
    ///
    /// # Errors
    /// If it never will be. Nothing but [`Self::close`] is left for it then.
    pub fn made(&mut self, number: usize, micros: i64) -> Result<bool, Unmade> {
        let since = match self.uses.get(number) {
            Some(Use::Connection) => return Ok(true),
            Some(&Use::Asks(since)) => since,
            _ => return Err(Unmade::Refused),
        };
        let socket = self.socket(number);
        match socket.state() {
            State::Closed if micros.saturating_sub(since) < UNANSWERED_MICROS => {
                Err(Unmade::Refused)
            }
            State::Closed => Err(Unmade::Unanswered),
            state if is_made(state) => {
                socket.set_timeout(Some(SILENCE));
                self.uses[number] = Use::Connection;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// What all sockets have.
    pub fn ready(&mut self) -> Ready {
        let mut ready = Ready {
            came: self.came(),
            ..Ready::default()
        };
        for number in 0..SOCKETS {
            let bit = 1 << number;
            let uses = self.uses[number];
            let socket = self.socket(number);
            let state = socket.state();
            match uses {
                Use::Listens(listener) if is_made(state) => ready.arrived |= 1 << listener,
                Use::Asks(_) if is_made(state) || state == State::Closed => ready.sends |= bit,
                Use::Connection => {
                    let ended = !socket.can_recv() && !socket.may_recv();
                    let takes = if socket.can_recv() || ended { bit } else { 0 };
                    ready.receives |= takes;
                    ready.ended |= if ended { bit } else { 0 };
                    let sends = socket.can_send() || state == State::Closed;
                    ready.sends |= if sends { bit } else { 0 };
                }
                _ => {}
            }
        }
        ready
    }

    /// Takes what a connection received.
    ///
    /// # Errors
    /// If it is no connection, or is broken.
    pub fn receive(&mut self, number: usize, into: &mut [u8]) -> Result<Received, Refused> {
        let socket = self.connection(number)?;
        if socket.can_recv() {
            let count = socket.recv_slice(into).map_err(|_| Refused)?;
            return Ok(Received::Bytes(count));
        }
        match socket.state() {
            State::Closed => Err(Refused),
            _ if socket.may_recv() => Ok(Received::Bytes(0)),
            _ => Ok(Received::End),
        }
    }

    /// Does a connection hold so much that its peer has to learn when there is room again? Whoever
    /// has room for half a buffer sends that first.
    pub fn is_narrow(&mut self, number: usize) -> bool {
        let socket = self.connection(number);
        socket.is_ok_and(|socket| 2 * socket.recv_queue() > socket.recv_capacity())
    }

    /// Sends bytes by a connection; how many of them it took.
    ///
    /// # Errors
    /// If it is no connection, or is broken.
    pub fn send(&mut self, number: usize, bytes: &[u8]) -> Result<usize, Refused> {
        let socket = self.connection(number)?;
        socket.send_slice(bytes).map_err(|_| Refused)
    }

    /// Sends no more by a connection, once all that it took is sent. What comes is received.
    ///
    /// # Errors
    /// If it is no connection.
    pub fn shut_down(&mut self, number: usize) -> Result<(), Refused> {
        self.connection(number)?.close();
        Ok(())
    }

    /// Ends a connection, once all that it took is sent.
    ///
    /// # Errors
    /// If it is no connection.
    pub fn close(&mut self, number: usize) -> Result<(), Refused> {
        match self.uses.get(number) {
            Some(Use::Connection | Use::Asks(_)) => self.socket(number).close(),
            _ => return Err(Refused),
        }
        self.uses[number] = Use::Ends;
        self.turn_over();
        Ok(())
    }

    fn socket(&mut self, number: usize) -> &mut Socket<'a> {
        self.sockets.get_mut(self.handles[number])
    }

    fn connection(&mut self, number: usize) -> Result<&mut Socket<'a>, Refused> {
        match self.uses.get(number) {
            Some(Use::Connection) => Ok(self.socket(number)),
            _ => Err(Refused),
        }
    }

    /// Takes back sockets whose connections ended, and gives listeners what they lack. Tells
    /// whether any listener has a connection that nobody accepted.
    fn turn_over(&mut self) -> bool {
        let mut waiting = false;
        for number in 0..SOCKETS {
            let state = self.socket(number).state();
            match self.uses[number] {
                Use::Ends | Use::Listens(_) if state == State::Closed => {
                    self.uses[number] = Use::Free;
                }
                Use::Listens(_) => waiting |= is_made(state),
                _ => {}
            }
        }
        for listener in 0..LISTENERS {
            if let Some(port) = self.ports[listener] {
                self.fill(listener, port);
            }
        }
        waiting
    }

    /// Sockets of one use.
    fn count(&self, which: Use) -> usize {
        self.uses.iter().filter(|&&it| it == which).count()
    }

    fn fill(&mut self, listener: usize, port: u16) {
        let has = self.count(Use::Listens(listener));
        let unused = (0..SOCKETS).filter(|&number| self.is_unused(number));
        let more = unused.count().saturating_sub(RESERVE);
        for _ in has..BACKLOG.max(has + more) {
            let Some(number) = self.free() else {
                return;
            };
            let socket = self.socket(number);
            if socket.listen(port).is_err() {
                return;
            }
            prepare(socket);
            self.uses[number] = Use::Listens(listener);
        }
    }

    /// A socket that nobody needs: at worst one that listens beside enough others.
    fn free(&mut self) -> Option<usize> {
        self.unused().or_else(|| {
            let number = (0..SOCKETS).find(|&number| match self.uses[number] {
                it @ Use::Listens(_) => {
                    self.state(number) == State::Listen && self.count(it) > BACKLOG
                }
                _ => false,
            })?;
            self.socket(number).abort();
            Some(number)
        })
    }

    fn state(&self, number: usize) -> State {
        self.sockets.get::<Socket<'_>>(self.handles[number]).state()
    }

    /// One that is free, or is made so.
    fn unused(&mut self) -> Option<usize> {
        let mut all = 0..SOCKETS;
        let free = all.find(|&number| self.uses[number] == Use::Free);
        free.or_else(|| {
            let number = (0..SOCKETS).find(|&number| self.is_unused(number))?;
            self.socket(number).abort();
            Some(number)
        })
    }

    /// Is it free, or does it wait but for stray frames of a connection that both sides have ended?
    fn is_unused(&self, number: usize) -> bool {
        match self.uses[number] {
            Use::Free => true,
            Use::Ends => self.state(number) == State::TimeWait,
            _ => false,
        }
    }
}

/// What holds for every connection.
fn prepare(socket: &mut Socket<'_>) {
    // An acknowledgement goes out at once: what is saved by waiting for more costs an interrupt.
    socket.set_ack_delay(None);
    socket.set_keep_alive(Some(ASK));
    socket.set_timeout(Some(SILENCE));
}

fn port<L>(link: &mut L) -> Port<'_, L> {
    Port {
        link,
        received: [0; FRAME_MAX],
        sent: [0; FRAME_MAX],
    }
}

/// Is this the state of a connection that was made, even if its peer has ended it since?
const fn is_made(state: State) -> bool {
    !matches!(
        state,
        State::Closed | State::Listen | State::SynSent | State::SynReceived
    )
}
