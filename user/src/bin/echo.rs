//! A server that sends back what it receives (RFC 862), over TCP. Argument: the port (7).
//!
//! The program is one of several that can use the network: it starts the TCP/IP stack, which starts
//! the driver of the network card. It serves until the machine is stopped.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::println;
use rcoe_user::socket::{Connection, Incoming, Listener, Network, SocketError};

rcoe_user::program!(main);

/// The port of the protocol.
const PORT: u16 = 7;

/// Connections at a time; more wait until one ends.
const CLIENTS: usize = 8;

/// Bytes of one that are on their way at a time.
const BYTES: usize = 2048;

/// Status of a server that cannot serve.
const FAILED: u64 = 2;

fn main(argument: u64) -> u64 {
    let Some(port) = port(argument) else {
        println!("echo: {argument} is no port: ports are 1 to 65535");
        return FAILED;
    };
    let network = Network::start(service::SLOT_FREE, 0);
    let begun = network.and_then(|network| Ok((network.listen(port, 0)?, network)));
    let (listener, network) = match begun {
        Ok(begun) => begun,
        Err(SocketError::NoCard) => {
            println!("echo: this machine has no network; add --publish HOST:{port} to rcoe run");
            return FAILED;
        }
        Err(error) => {
            println!("echo: cannot listen at port {port}: {error:?}");
            return FAILED;
        }
    };
    println!("echo: listens at port {port}");
    let mut clients = [const { None }; CLIENTS];
    loop {
        welcome(&network, listener, &mut clients);
        let mut moved = false;
        for place in &mut clients {
            let Some(client) = place else {
                continue;
            };
            match client.serve(&network) {
                Ok(Served::Moved) => moved = true,
                Ok(Served::Nothing) => {}
                Ok(Served::Ended) | Err(_) => {
                    network.close(client.connection);
                    *place = None;
                    moved = true;
                }
            }
        }
        if !moved {
            network.wait();
        }
    }
}

fn port(argument: u64) -> Option<u16> {
    match argument {
        0 => Some(PORT),
        number => u16::try_from(number).ok(),
    }
}

/// Takes in those who arrived, as long as there is room.
fn welcome(network: &Network, listener: Listener, clients: &mut [Option<Client>; CLIENTS]) {
    for (number, place) in (1..).zip(clients) {
        if place.is_some() {
            continue;
        }
        match network.accept(listener, number) {
            Ok(Some(connection)) => *place = Some(Client::of(connection)),
            _ => return,
        }
    }
}

/// What came of looking after a client.
enum Served {
    Moved,
    Nothing,
    Ended,
}

/// A client, and what it sent and did not get back yet.
struct Client {
    connection: Connection,
    bytes: [u8; BYTES],
    sent: usize,
    len: usize,
}

impl Client {
    const fn of(connection: Connection) -> Self {
        Self {
            connection,
            bytes: [0; BYTES],
            sent: 0,
            len: 0,
        }
    }

    fn serve(&mut self, network: &Network) -> Result<Served, SocketError> {
        if self.sent == self.len {
            match network.receive(self.connection, &mut self.bytes)? {
                Incoming::End => return Ok(Served::Ended),
                Incoming::Bytes(0) => return Ok(Served::Nothing),
                Incoming::Bytes(count) => (self.sent, self.len) = (0, count),
            }
        }
        let taken = network.send(self.connection, &self.bytes[self.sent..self.len])?;
        self.sent += taken;
        Ok(if taken > 0 {
            Served::Moved
        } else {
            Served::Nothing
        })
    }
}
