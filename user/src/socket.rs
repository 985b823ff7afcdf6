//! Sockets of the TCP/IP stack (`user/src/bin/net.rs`), for its client.
//!
//! Nothing here waits but [`Network::wait`], which does until anything changed; then a client asks
//! all of its listeners and connections again. Bytes go through two frames that the stack maps too,
//! which it uses only while a request of the client waits for its answer.
//!
//! One program of a machine can be the client.

use rcoe_abi::{ObjectType, Rights, service};

use crate::network::{Peer, Ready};
use crate::share::{BYTES, Page};
use crate::{Received, accept, call, make, object, recv, reply_with, spawn};

/// Slots that this takes from the first one it is given: the stack's endpoint, the notification,
/// what the stack gets of it, the two frames, then listeners, connections and sockets for
/// datagrams.
const STACK: u64 = 0;
const CHANGED: u64 = 1;
const CHANGER: u64 = 2;
const RECEIVED: u64 = 3;
const SENT: u64 = 4;
const FURTHER: u64 = 5;

/// Why there is no socket, or no more bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketError {
    /// The machine has no network card.
    NoCard,
    /// The connection is no more.
    Broken,
    /// There is no room for that, there is such a listener already, or the peer does not want it.
    Refused,
    /// The peer did not answer.
    Unanswered,
    /// The network does not carry so much at once.
    Long,
    /// The stack cannot be started.
    NoStack,
}

fn outcome(answer: Received) -> Result<Received, SocketError> {
    match answer.label {
        0 => Ok(answer),
        service::NET_NO_CARD => Err(SocketError::NoCard),
        service::NET_BROKEN => Err(SocketError::Broken),
        service::NET_LATE => Err(SocketError::Unanswered),
        service::NET_LONG => Err(SocketError::Long),
        _ => Err(SocketError::Refused),
    }
}

/// The stack, with the slots and pages of the window that a client uses for it.
#[derive(Debug)]
pub struct Network {
    first: u64,
    received: Page,
    sent: Page,
}

/// A place at which connections arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    slot: u64,
    number: u64,
}

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    slot: u64,
    number: u64,
    peer: u64,
}

/// A socket for datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    slot: u64,
    number: u64,
}

impl Datagrams {
    /// Its number, by which [`Network::ready`] knows it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl Listener {
    /// Its number, by which [`Network::ready`] knows it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl Connection {
    /// Its number, by which [`Network::ready`] knows it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Address and port of the peer.
    #[must_use]
    pub const fn peer(self) -> Peer {
        peer_of(self.peer)
    }
}

/// Address and port, of a word.
const fn peer_of(word: u64) -> Peer {
    let [a, b, c, d, low, high, ..] = word.to_le_bytes();
    ([a, b, c, d], u16::from_le_bytes([low, high]))
}

/// The word of an address and port.
const fn word_of(peer: Peer) -> u64 {
    let ([a, b, c, d], [low, high]) = (peer.0, peer.1.to_le_bytes());
    u64::from_le_bytes([a, b, c, d, low, high, 0, 0])
}

/// Why a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Woken {
    /// The alarm rang, and is to be set anew.
    pub rang: bool,
}

/// What a connection has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// So many bytes; none if there are none as yet.
    Bytes(usize),
    /// The peer sends no more, and all was received.
    End,
}

impl Network {
    /// Starts the stack, and uses these slots of the own table, from the first one on, and two
    /// pages of the window.
    ///
    /// # Errors
    /// If it cannot be started. Whether there is a card is said by [`Self::listen`].
    pub fn start(first: u64, page: u64) -> Result<Self, SocketError> {
        let table = service::SLOT_CNODE;
        let network = Self {
            first,
            received: Page(page),
            sent: Page(page + 1),
        };
        let made = make(ObjectType::Notification, first + CHANGED)
            && make(ObjectType::Frame, first + RECEIVED)
            && make(ObjectType::Frame, first + SENT);
        let (from, to) = (first + CHANGED, first + CHANGER);
        let changer = object::copy(table, to, from, Rights::WRITE);
        let mapped = network.received.map(first + RECEIVED, Rights::READ_WRITE);
        let sent = network.sent.map(first + SENT, Rights::READ_WRITE);
        if !made || changer.is_err() || mapped.is_err() || sent.is_err() || !spawn("net", 0) {
            return Err(SocketError::NoStack);
        }
        network.join()?;
        Ok(network)
    }

    /// Waits for the stack, and gives it what it needs.
    fn join(&self) -> Result<(), SocketError> {
        let first = self.first;
        accept(service::SLOT_CNODE, first + STACK, 1);
        let message = recv(service::SLOT_PEER);
        accept(service::SLOT_CNODE, 0, 0);
        if message.label != service::NET_JOIN || message.caps != 1 {
            return Err(SocketError::NoStack);
        }
        let caps = [first + CHANGER, first + RECEIVED, first + SENT];
        // Whoever sends to the group next does not mean this program.
        reply_with(&[], &caps);
        Ok(())
    }

    /// Listens at a port.
    ///
    /// # Errors
    /// If there is no card, or somebody listens there.
    pub fn listen(&self, port: u16, number: u64) -> Result<Listener, SocketError> {
        let (slot, number) = self.ask(service::NET_LISTEN, &[port.into()], number)?;
        Ok(Listener { slot, number })
    }

    /// Asks the stack for a socket, which is `number` of this client: its slot, and its number in
    /// the stack.
    fn ask(&self, label: u64, words: &[u64], number: u64) -> Result<(u64, u64), SocketError> {
        let slot = self.first + FURTHER + number;
        accept(service::SLOT_CNODE, slot, 1);
        let answer = call(self.first + STACK, label, words);
        accept(service::SLOT_CNODE, 0, 0);
        let answer = outcome(answer)?;
        match answer.caps {
            1 => Ok((slot, answer.words[0])),
            _ => Err(SocketError::Refused),
        }
    }

    /// Listens no more. The slot is empty then.
    pub fn unlisten(&self, listener: Listener) {
        // What is no listener needs no end.
        call(listener.slot, service::NET_CLOSE, &[]);
    }

    /// What listeners, connections and sockets for datagrams have, by their numbers.
    ///
    /// # Errors
    /// If there is no card.
    pub fn ready(&self) -> Result<Ready, SocketError> {
        let answer = outcome(call(self.first + STACK, service::NET_READY, &[]))?;
        let [arrived, receives, sends, ended] = answer.words;
        Ok(Ready {
            arrived: arrived & ((1 << service::NET_CAME) - 1),
            receives,
            sends,
            ended,
            came: arrived >> service::NET_CAME,
        })
    }

    /// Has [`Self::wait`] come back in so many microseconds at the latest.
    ///
    /// # Errors
    /// If there is no card.
    pub fn alarm(&self, micros: u64) -> Result<(), SocketError> {
        outcome(call(self.first + STACK, service::NET_ALARM, &[micros])).map(|_| ())
    }

    /// A connection that arrived, if there is one, as socket `number` of this client, which must
    /// not be in use.
    ///
    /// # Errors
    /// If that is no listener.
    pub fn accept(
        &self,
        listener: Listener,
        number: u64,
    ) -> Result<Option<Connection>, SocketError> {
        let slot = self.first + FURTHER + number;
        accept(service::SLOT_CNODE, slot, 1);
        let answer = call(listener.slot, service::NET_ACCEPT, &[]);
        accept(service::SLOT_CNODE, 0, 0);
        let answer = outcome(answer)?;
        let [number, peer, ..] = answer.words;
        Ok((answer.caps == 1).then_some(Connection { slot, number, peer }))
    }

    /// Asks a peer for a connection, from this port, as socket `number` of this client, which must
    /// not be in use.
    ///
    /// # Errors
    /// If there is no card, no room, or such a connection already.
    pub fn connect(&self, peer: Peer, port: u16, number: u64) -> Result<Connection, SocketError> {
        let peer = word_of(peer);
        let words = [peer, port.into()];
        let (slot, number) = self.ask(service::NET_CONNECT, &words, number)?;
        Ok(Connection { slot, number, peer })
    }

    /// Is a connection made that was asked for? If not it may be later.
    ///
    /// # Errors
    /// If it never will be.
    pub fn is_made(&self, connection: Connection) -> Result<bool, SocketError> {
        let answer = outcome(call(connection.slot, service::NET_MADE, &[]))?;
        Ok(answer.words[0] == 1)
    }

    /// Takes what a connection received, a frame of it at most.
    ///
    /// # Errors
    /// If it is no more.
    pub fn receive(
        &self,
        connection: Connection,
        into: &mut [u8],
    ) -> Result<Incoming, SocketError> {
        let most = into.len().min(BYTES);
        let answer = outcome(call(connection.slot, service::NET_RECEIVE, &[most as u64]))?;
        let [count, ended, ..] = answer.words;
        if ended == 1 {
            return Ok(Incoming::End);
        }
        let count = usize::try_from(count).unwrap_or(most).min(most);
        self.received.read(&mut into[..count]);
        Ok(Incoming::Bytes(count))
    }

    /// Sends bytes, a frame of them at most; how many of them were taken.
    ///
    /// # Errors
    /// If the connection is no more.
    pub fn send(&self, connection: Connection, bytes: &[u8]) -> Result<usize, SocketError> {
        let bytes = &bytes[..bytes.len().min(BYTES)];
        self.sent.write(bytes);
        let count = bytes.len() as u64;
        let answer = outcome(call(connection.slot, service::NET_SEND, &[count]))?;
        Ok(usize::try_from(answer.words[0]).unwrap_or_default())
    }

    /// Sends no more by a connection, once what was taken is sent.
    pub fn shut_down(&self, connection: Connection) {
        // What is no connection sends nothing.
        call(connection.slot, service::NET_SHUT_DOWN, &[]);
    }

    /// Ends a connection, once what was taken is sent. Its slot is empty then.
    pub fn close(&self, connection: Connection) {
        // What is no connection needs no end.
        call(connection.slot, service::NET_CLOSE, &[]);
    }

    /// A socket for datagrams at a port, as socket `number` of this client, which must not be in
    /// use.
    ///
    /// # Errors
    /// If there is no card, no room, or somebody has the port.
    pub fn open(&self, port: u16, number: u64) -> Result<Datagrams, SocketError> {
        let (slot, number) = self.ask(service::NET_OPEN, &[port.into()], number)?;
        Ok(Datagrams { slot, number })
    }

    /// Sends a datagram, or drops it as networks do.
    ///
    /// # Errors
    /// If it is too long, or nobody can be there.
    pub fn send_to(&self, from: Datagrams, peer: Peer, bytes: &[u8]) -> Result<(), SocketError> {
        if bytes.len() > BYTES {
            return Err(SocketError::Long);
        }
        self.sent.write(bytes);
        let words = [bytes.len() as u64, word_of(peer)];
        outcome(call(from.slot, service::NET_SEND_TO, &words)).map(|_| ())
    }

    /// Takes the next datagram that came, if there is one: its bytes, as far as there is room, and
    /// who sent it.
    ///
    /// # Errors
    /// If there is no such socket.
    pub fn take(
        &self,
        at: Datagrams,
        into: &mut [u8],
    ) -> Result<Option<(usize, Peer)>, SocketError> {
        let answer = outcome(call(at.slot, service::NET_TAKE, &[]))?;
        let [there, count, peer, _] = answer.words;
        if there == 0 {
            return Ok(None);
        }
        let most = into.len().min(BYTES);
        let count = usize::try_from(count).unwrap_or(most).min(most);
        self.received.read(&mut into[..count]);
        Ok(Some((count, peer_of(peer))))
    }

    /// Closes a socket for datagrams. Its slot is empty then.
    pub fn shut(&self, at: Datagrams) {
        // What is none needs no end.
        call(at.slot, service::NET_CLOSE, &[]);
    }

    /// Makes a capability in this slot by which others have [`Self::wait`] return.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lend_signal(&self, slot: u64) -> object::Outcome {
        let from = self.first + CHANGED;
        let badge = service::NET_CHANGED;
        object::mint(service::SLOT_CNODE, slot, from, Rights::WRITE, badge)
    }

    /// Waits until anything changed since the last time, or the alarm rings.
    #[expect(clippy::must_use_candidate, reason = "most only wait")]
    pub fn wait(&self) -> Woken {
        let signals = recv(self.first + CHANGED).badge;
        Woken {
            rang: signals & service::NET_RANG != 0,
        }
    }
}
