//! The network, by the TCP/IP stack's process, if the machine has any.

use super::{Kernel, NETWORK};
use crate::linux::machine::Network;
use crate::network::{DATAGRAMS, Peer, Ready, SOCKETS};
use crate::socket::{Connection, Datagrams, Incoming, Listener, Network as Stack, SocketError};

/// Most listeners; connections have the slots behind theirs, and then sockets for datagrams.
const LISTENERS: usize = 4;
/// The page of the window where what comes is.
const PAGE: u64 = 0;
/// Nanoseconds of a microsecond.
const MICRO: u64 = 1000;

/// What is known of it.
#[derive(Debug)]
pub(super) struct Net {
    stack: Option<Stack>,
    listeners: [Option<Listener>; LISTENERS],
    connections: [Option<Connection>; SOCKETS],
    datagrams: [Option<Datagrams>; DATAGRAMS],
    /// When the stack signals at the latest.
    alarm: Option<u64>,
}

impl Default for Net {
    fn default() -> Self {
        Self {
            stack: None,
            listeners: [None; LISTENERS],
            connections: [None; SOCKETS],
            datagrams: [None; DATAGRAMS],
            alarm: None,
        }
    }
}

impl Net {
    /// Starts the stack, before there is a thread to be answered: its process joins by a call of
    /// its own.
    pub(super) fn start(&mut self) {
        self.stack = Stack::start(NETWORK, PAGE).ok();
    }

    /// A capability in this slot by which others say that something changed, if there is a stack,
    /// which says it too.
    pub(super) fn other_signal(&self, slot: u64) -> Option<u64> {
        let stack = self.stack.as_ref()?;
        stack.lend_signal(slot).is_ok().then_some(slot)
    }

    fn connection(&self, number: usize) -> Result<(&Stack, Connection), SocketError> {
        let connection = self.connections.get(number).copied().flatten();
        let connection = connection.ok_or(SocketError::Broken)?;
        let stack = self.stack.as_ref().ok_or(SocketError::NoStack)?;
        Ok((stack, connection))
    }

    fn datagrams(&self, number: usize) -> Result<(&Stack, Datagrams), SocketError> {
        let socket = self.datagrams.get(number).copied().flatten();
        let socket = socket.ok_or(SocketError::Refused)?;
        let stack = self.stack.as_ref().ok_or(SocketError::NoStack)?;
        Ok((stack, socket))
    }

    /// Waits until anything changed, or a time comes, which it is `now` or later. Tells whether
    /// there is a network to wait for.
    pub(super) fn wait(&mut self, now: u64, until: Option<u64>) -> bool {
        let Some(stack) = &self.stack else {
            return false;
        };
        if let Some(until) = until
            && self.alarm.is_none_or(|alarm| alarm > until)
        {
            let micros = until.saturating_sub(now).div_ceil(MICRO);
            if stack.alarm(micros).is_err() {
                return false;
            }
            self.alarm = Some(until);
        }
        if stack.wait().rang {
            self.alarm = None;
        }
        true
    }
}

impl Network for Kernel {
    fn listen(&mut self, port: u16) -> Result<usize, SocketError> {
        let free = self.net.listeners.iter().position(Option::is_none);
        let number = free.ok_or(SocketError::Refused)?;
        let stack = self.net.stack.as_ref().ok_or(SocketError::NoStack)?;
        let listener = stack.listen(port, number as u64)?;
        self.net.listeners[number] = Some(listener);
        Ok(number)
    }

    fn unlisten(&mut self, listener: usize) {
        if let (Some(stack), Some(place)) = (&self.net.stack, self.net.listeners.get_mut(listener))
            && let Some(listener) = place.take()
        {
            stack.unlisten(listener);
        }
    }

    fn accept(&mut self, listener: usize) -> Option<(usize, Peer)> {
        let net = &mut self.net;
        let listener = net.listeners.get(listener).copied().flatten()?;
        let free = net.connections.iter().position(Option::is_none)?;
        let slot = (LISTENERS + free) as u64;
        let accepted = net.stack.as_ref()?.accept(listener, slot);
        let connection = accepted.ok()??;
        net.connections[free] = Some(connection);
        Some((free, connection.peer()))
    }

    fn connect(&mut self, peer: Peer, port: u16) -> Result<usize, SocketError> {
        let net = &mut self.net;
        let free = net.connections.iter().position(Option::is_none);
        let free = free.ok_or(SocketError::Refused)?;
        let stack = net.stack.as_ref().ok_or(SocketError::NoStack)?;
        let slot = (LISTENERS + free) as u64;
        net.connections[free] = Some(stack.connect(peer, port, slot)?);
        Ok(free)
    }

    fn is_made(&mut self, connection: usize) -> Result<bool, SocketError> {
        let (stack, connection) = self.net.connection(connection)?;
        stack.is_made(connection)
    }

    fn receive(&mut self, connection: usize, into: &mut [u8]) -> Result<Incoming, SocketError> {
        let (stack, connection) = self.net.connection(connection)?;
        stack.receive(connection, into)
    }

    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<usize, SocketError> {
        let (stack, connection) = self.net.connection(connection)?;
        stack.send(connection, bytes)
    }

    fn shut_down(&mut self, connection: usize) {
        if let Ok((stack, connection)) = self.net.connection(connection) {
            stack.shut_down(connection);
        }
    }

    fn hang_up(&mut self, connection: usize) {
        if let Ok((stack, ended)) = self.net.connection(connection) {
            stack.close(ended);
            self.net.connections[connection] = None;
        }
    }

    fn open(&mut self, port: u16) -> Result<usize, SocketError> {
        let net = &mut self.net;
        let stack = net.stack.as_ref().ok_or(SocketError::NoStack)?;
        let free = net.datagrams.iter().position(Option::is_none);
        let free = free.ok_or(SocketError::Refused)?;
        let slot = (LISTENERS + SOCKETS + free) as u64;
        net.datagrams[free] = Some(stack.open(port, slot)?);
        Ok(free)
    }

    fn send_to(&mut self, socket: usize, peer: Peer, bytes: &[u8]) -> Result<(), SocketError> {
        let (stack, socket) = self.net.datagrams(socket)?;
        stack.send_to(socket, peer, bytes)
    }

    fn take_from(&mut self, socket: usize, into: &mut [u8]) -> Option<(usize, Peer)> {
        let (stack, socket) = self.net.datagrams(socket).ok()?;
        stack.take(socket, into).ok()?
    }

    fn shut(&mut self, socket: usize) {
        if let Ok((stack, closed)) = self.net.datagrams(socket) {
            stack.shut(closed);
            self.net.datagrams[socket] = None;
        }
    }

    fn ready(&mut self) -> Ready {
        let net = &self.net;
        let Some(Ok(told)) = net.stack.as_ref().map(Stack::ready) else {
            return Ready::default();
        };
        let mut ready = Ready::default();
        for (number, listener) in net.listeners.iter().enumerate() {
            if let Some(listener) = listener {
                ready.arrived |= (told.arrived >> listener.number() & 1) << number;
            }
        }
        for (number, connection) in net.connections.iter().enumerate() {
            if let Some(connection) = connection {
                let bit = |bits: u64| (bits >> connection.number() & 1) << number;
                ready.receives |= bit(told.receives);
                ready.sends |= bit(told.sends);
                ready.ended |= bit(told.ended);
            }
        }
        for (number, socket) in net.datagrams.iter().enumerate() {
            if let Some(socket) = socket {
                ready.came |= (told.came >> socket.number() & 1) << number;
            }
        }
        ready
    }
}
