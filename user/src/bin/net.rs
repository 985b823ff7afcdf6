//! The TCP/IP stack, as a process: it serves sockets to the one client of its group
//! ([`service::NET_JOIN`] and what follows), on the card of the driver `rtl8139` or `virtio-net`.
//!
//! All replicas run it on the same input. Frames come from the driver's, which took them over for
//! all. Time is the machine's clock, which the primary reads for all; so is what sequence numbers
//! begin from.
//!
//! Listeners, connections and sockets for datagrams are capabilities to this process's endpoint,
//! told apart by their badges. Bytes go through two frames that it shares with the client, which
//! waits for the answer meanwhile. Nobody but this process waits for the network: a client is
//! signalled when it should ask again.
//!
//! Not covered: more than one client, and any protocol but TCP and UDP. Sequence numbers can be
//! guessed by who knows when the machine was started.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service::{self, NIC_FRAMES};
use rcoe_abi::{Error, ObjectType, Rights};
use rcoe_user::clock::Clock;
use rcoe_user::network::ring::{Frames, Malformed};
use rcoe_user::network::{
    DATAGRAMS, FRAME_MAX, Link, Peer, Received as Taken, Refused, SOCKETS, Stack, Storage, Unmade,
    Unsent,
};
use rcoe_user::share::{BYTES, Page};
use rcoe_user::{
    Received, accept, call, call_with, make, memory_bytes, object, println, recv, reply_recv,
    reply_recv_with, send, spawn,
};

rcoe_user::program!(main);

const TABLE: u64 = service::SLOT_CNODE;

/// Drivers of cards that a machine may have.
const DRIVERS: [&str; 2] = ["rtl8139", "virtio-net"];

/// Own slots.
mod slot {
    use rcoe_abi::service;

    /// The endpoint, and what the client gets of it.
    pub(crate) const REQUESTS: u64 = service::SLOT_FREE;
    pub(crate) const CLIENT: u64 = REQUESTS + 1;
    /// The notification that wakes this process, and what the driver gets of it.
    pub(crate) const WAKE: u64 = REQUESTS + 2;
    pub(crate) const WAKER: u64 = REQUESTS + 3;
    /// From the client: its notification, and the frames of what it receives and sends.
    pub(crate) const CLIENTS: u64 = REQUESTS + 4;
    pub(crate) const TO_CLIENT: u64 = REQUESTS + 5;
    pub(crate) const FROM_CLIENT: u64 = REQUESTS + 6;
    /// From the driver: its endpoint, the frame of what is sent, and those of what came.
    pub(crate) const CARD: u64 = REQUESTS + 7;
    pub(crate) const SENT: u64 = REQUESTS + 8;
    pub(crate) const CAME: u64 = REQUESTS + 9;
    /// The client's notification, by what it is told.
    pub(crate) const CHANGED: u64 = REQUESTS + 14;
    pub(crate) const RANG: u64 = REQUESTS + 15;
    /// Listeners, connections and sockets for datagrams, of which clients get copies.
    pub(crate) const LISTENERS: u64 = REQUESTS + 16;
    pub(crate) const CONNECTIONS: u64 = LISTENERS + 16;
    pub(crate) const DATAGRAMS: u64 = CONNECTIONS + super::SOCKETS as u64;
}

/// Badges: the client's, then listeners, connections and sockets for datagrams by number.
const CLIENT: u64 = 2;
const LISTENER: u64 = 16;
const CONNECTION: u64 = 32;
const DATAGRAM: u64 = CONNECTION + SOCKETS as u64;
/// Listeners at most.
const LISTENERS: u64 = 4;

/// Pages of the window.
const TO_CLIENT: Page = Page(0);
const FROM_CLIENT: Page = Page(1);
const SENT: Page = Page(2);
const CAME: Page = Page(3);

fn main(_argument: u64) -> u64 {
    if let Err(error) = join() {
        println!("net: cannot start ({error:?})");
        return 1;
    }
    let served = match begin() {
        Ok(mut card) => serve(&mut card),
        Err(_) => refuse(),
    };
    match served {
        Ok(never) => match never {},
        Err(error) => {
            println!("net: cannot go on ({error:?})");
            1
        }
    }
}

/// What never is.
enum Never {}

/// Gets to know the client.
fn join() -> Result<(), Error> {
    let made =
        make(ObjectType::Endpoint, slot::REQUESTS) && make(ObjectType::Notification, slot::WAKE);
    if !made {
        return Err(Error::NotEnoughMemory);
    }
    let asker = Rights::WRITE.or(Rights::GRANT);
    object::mint(TABLE, slot::CLIENT, slot::REQUESTS, asker, CLIENT)?;
    object::mint(
        TABLE,
        slot::WAKER,
        slot::WAKE,
        Rights::WRITE,
        service::NIC_CAME,
    )?;
    object::bind(service::SLOT_TCB, slot::WAKE)?;
    for (first, badge, count) in [
        (slot::LISTENERS, LISTENER, LISTENERS),
        (slot::CONNECTIONS, CONNECTION, SOCKETS as u64),
        (slot::DATAGRAMS, DATAGRAM, DATAGRAMS as u64),
    ] {
        for number in 0..count {
            object::mint(TABLE, first + number, slot::REQUESTS, asker, badge + number)?;
        }
    }
    accept(TABLE, slot::CLIENTS, 3);
    let answer = call_with(service::SLOT_PEER, service::NET_JOIN, &[], &[slot::CLIENT]);
    if answer.label != 0 || answer.caps != 3 {
        return Err(Error::InvalidCapability);
    }
    for (to, signal) in [
        (slot::CHANGED, service::NET_CHANGED),
        (slot::RANG, service::NET_RANG),
    ] {
        object::mint(TABLE, to, slot::CLIENTS, Rights::WRITE, signal)?;
    }
    TO_CLIENT.map(slot::TO_CLIENT, Rights::READ_WRITE)?;
    FROM_CLIENT.map(slot::FROM_CLIENT, Rights::READ)
}

/// Starts the drivers until one has its card; its first message.
fn find() -> Result<Received, Error> {
    accept(TABLE, slot::CARD, 2);
    for driver in DRIVERS {
        if !spawn(driver, 0) {
            return Err(Error::FailedLookup);
        }
        let message = recv(service::SLOT_PEER);
        if message.label == service::NIC_JOIN {
            return Ok(message);
        }
    }
    Err(Error::FailedLookup)
}

/// Starts the driver, and learns what it has; the card.
fn begin() -> Result<Card, Error> {
    let mut message = find()?;
    for index in 0..NIC_FRAMES {
        if message.label != service::NIC_JOIN {
            return Err(Error::FailedLookup);
        }
        accept(TABLE, slot::CAME + index, 1);
        message = reply_recv(service::SLOT_PEER, 0, &[]);
    }
    accept(TABLE, 0, 0);
    let [_, address, ..] = message.words;
    SENT.map(slot::SENT, Rights::READ_WRITE)?;
    for index in 0..NIC_FRAMES {
        Page(CAME.0 + index).map(slot::CAME + index, Rights::READ)?;
    }
    let clock = Clock::start(service::SLOT_DEVICE)?;
    Ok(Card {
        address,
        clock,
        frames: Frames::default(),
        came: true,
        alarm: None,
        asked: None,
    })
}

/// There is no card: whoever wants a socket learns that.
fn refuse() -> Result<Never, Error> {
    let mut message = recv(slot::REQUESTS);
    loop {
        let label = match message.badge {
            CLIENT => service::NET_NO_CARD,
            _ => service::NET_REFUSED,
        };
        message = reply_recv(slot::REQUESTS, label, &[]);
    }
}

/// Serves the client and the card.
fn serve(card: &mut Card) -> Result<Never, Error> {
    let memory = memory_bytes(Stack::MEMORY).ok_or(Error::NotEnoughMemory)?;
    let mut storage = Storage::EMPTY;
    let [a, b, c, d, e, f, ..] = card.address.to_le_bytes();
    let seed = seed(&mut card.clock)? ^ card.address;
    let address = [a, b, c, d, e, f];
    let mut stack = Stack::new(card, address, seed, &mut storage, memory);
    // The driver is answered last of all who said who they are: from here on it may signal.
    let mut message = reply_to_driver();
    loop {
        let woken = message.badge == service::NIC_CAME;
        let answer = if woken {
            card.came = true;
            card.alarm = None;
            None
        } else {
            Some(answer(&mut stack, card, &message))
        };
        let (reply, bytes) = answer.unwrap_or((Reply::default(), false));
        turn(&mut stack, card, woken || bytes)?;
        message = if woken {
            recv(slot::REQUESTS)
        } else {
            reply.give()
        };
    }
}

/// The driver waits for what it is to signal; the first message, of whoever.
fn reply_to_driver() -> Received {
    reply_recv_with(slot::REQUESTS, 0, &[], &[slot::WAKER])
}

/// Has the stack do what is to be done now, and wakes it when something is to be done later; the
/// client, if it should look.
fn turn(stack: &mut Stack<'_>, card: &mut Card, due: bool) -> Result<(), Error> {
    if !due {
        return Ok(());
    }
    let now = micros(&mut card.clock)?;
    if stack.poll(now, card) {
        send(slot::CHANGED, 0, &[]);
    }
    if card.asked.is_some_and(|at| at <= now) {
        card.asked = None;
        send(slot::RANG, 0, &[]);
    }
    let asked = card.asked.map(|at| at.abs_diff(now));
    if let Some(pause) = stack.pause(now).into_iter().chain(asked).min() {
        card.wake_in(now, pause)?;
    }
    Ok(())
}

/// What a client is answered with.
#[derive(Default)]
struct Reply {
    label: u64,
    words: [u64; 4],
    capability: Option<u64>,
}

impl Reply {
    fn refusal(label: u64) -> Self {
        Self {
            label,
            ..Self::default()
        }
    }

    /// The socket of this number, as this capability.
    fn socket(number: usize, first: u64) -> Self {
        Self {
            words: [number as u64, 0, 0, 0],
            capability: Some(first + number as u64),
            ..Self::default()
        }
    }

    fn words(words: [u64; 4]) -> Self {
        Self {
            words,
            ..Self::default()
        }
    }

    /// Answers, and waits for the next message.
    fn give(&self) -> Received {
        match self.capability {
            Some(slot) => reply_recv_with(slot::REQUESTS, self.label, &self.words, &[slot]),
            None => reply_recv(slot::REQUESTS, self.label, &self.words),
        }
    }
}

/// What a request comes to, and whether the stack has something to do because of it.
fn answer(stack: &mut Stack<'_>, card: &mut Card, message: &Received) -> (Reply, bool) {
    let number =
        |first: u64| usize::try_from(message.badge.wrapping_sub(first)).unwrap_or(usize::MAX);
    match message.badge {
        CLIENT => answer_client(stack, card, message),
        LISTENER..CONNECTION => answer_listener(stack, number(LISTENER), message.label),
        DATAGRAM.. => answer_datagrams(stack, number(DATAGRAM), message),
        CONNECTION.. if message.label == service::NET_MADE => {
            (made(stack, card, number(CONNECTION)), false)
        }
        CONNECTION.. => answer_connection(stack, number(CONNECTION), message),
        _ => (Reply::refusal(service::NET_REFUSED), false),
    }
}

fn refused(_: Refused) -> (Reply, bool) {
    (Reply::refusal(service::NET_REFUSED), false)
}

/// Nobody has the capability any more.
fn revoke(slot: u64) {
    let revoked = object::revoke(TABLE, slot).is_ok();
    assert!(revoked, "own capabilities can be revoked");
}

fn answer_client(stack: &mut Stack<'_>, card: &mut Card, message: &Received) -> (Reply, bool) {
    let word = message.words[0];
    match message.label {
        service::NET_LISTEN => {
            let listener = stack.listen(u16::try_from(word).unwrap_or_default());
            let reply = |number| (Reply::socket(number, slot::LISTENERS), true);
            listener.map_or_else(refused, reply)
        }
        service::NET_OPEN => {
            let opened = stack.open(u16::try_from(word).unwrap_or_default());
            let reply = |number| (Reply::socket(number, slot::DATAGRAMS), false);
            opened.map_or_else(refused, reply)
        }
        service::NET_READY => {
            let ready = stack.ready();
            let arrived = ready.arrived | ready.came << service::NET_CAME;
            let words = [arrived, ready.receives, ready.sends, ready.ended];
            (Reply::words(words), false)
        }
        service::NET_CONNECT => match micros(&mut card.clock) {
            Ok(now) => connect(stack, message.words, now).map_or_else(refused, |it| (it, true)),
            Err(_) => refused(Refused),
        },
        service::NET_ALARM => match micros(&mut card.clock) {
            Ok(now) => {
                card.asked = Some(now.saturating_add_unsigned(word));
                (Reply::default(), true)
            }
            Err(_) => refused(Refused),
        },
        _ => refused(Refused),
    }
}

/// Asks for a connection to this peer, from this port.
fn connect(stack: &mut Stack<'_>, words: [u64; 4], now: i64) -> Result<Reply, Refused> {
    let port = u16::try_from(words[1]).map_err(|_| Refused)?;
    let connection = stack.connect(peer_of(words[0]), port, now)?;
    Ok(Reply::socket(connection, slot::CONNECTIONS))
}

/// Address and port, of a word.
const fn peer_of(word: u64) -> Peer {
    let [a, b, c, d, low, high, ..] = word.to_le_bytes();
    ([a, b, c, d], u16::from_le_bytes([low, high]))
}

/// The word of an address and port.
fn word_of((address, port): Peer) -> u64 {
    u64::from(u32::from_le_bytes(address)) | u64::from(port) << 32
}

/// Whether a connection is made.
fn made(stack: &mut Stack<'_>, card: &mut Card, connection: usize) -> Reply {
    let Ok(now) = micros(&mut card.clock) else {
        return Reply::refusal(service::NET_REFUSED);
    };
    match stack.made(connection, now) {
        Ok(made) => Reply::words([made.into(), 0, 0, 0]),
        Err(Unmade::Refused) => Reply::refusal(service::NET_REFUSED),
        Err(Unmade::Unanswered) => Reply::refusal(service::NET_LATE),
    }
}

fn answer_listener(stack: &mut Stack<'_>, listener: usize, label: u64) -> (Reply, bool) {
    match label {
        service::NET_ACCEPT => {
            let Some((connection, peer)) = stack.accept(listener) else {
                return (Reply::default(), false);
            };
            let reply = Reply {
                words: [connection as u64, word_of(peer), 0, 0],
                capability: Some(slot::CONNECTIONS + connection as u64),
                ..Reply::default()
            };
            (reply, true)
        }
        service::NET_CLOSE => stack.unlisten(listener).map_or_else(refused, |()| {
            revoke(slot::LISTENERS + listener as u64);
            (Reply::default(), true)
        }),
        _ => refused(Refused),
    }
}

fn answer_connection(
    stack: &mut Stack<'_>,
    connection: usize,
    message: &Received,
) -> (Reply, bool) {
    let broken = |_: Refused| (Reply::refusal(service::NET_BROKEN), true);
    let mut bytes = [0; BYTES];
    let count = usize::try_from(message.words[0])
        .unwrap_or(BYTES)
        .min(BYTES);
    let bytes = &mut bytes[..count];
    match message.label {
        service::NET_RECEIVE => {
            let narrow = stack.is_narrow(connection);
            match stack.receive(connection, bytes) {
                Ok(Taken::Bytes(count)) => {
                    TO_CLIENT.write(&bytes[..count]);
                    // What was taken makes room, which a peer has to learn that has hardly any.
                    (Reply::words([count as u64, 0, 0, 0]), narrow && count > 0)
                }
                Ok(Taken::End) => (Reply::words([0, 1, 0, 0]), false),
                Err(error) => broken(error),
            }
        }
        service::NET_SEND => {
            FROM_CLIENT.read(bytes);
            let taken = stack.send(connection, bytes);
            taken.map_or_else(broken, |taken| {
                (Reply::words([taken as u64, 0, 0, 0]), taken > 0)
            })
        }
        service::NET_SHUT_DOWN => stack
            .shut_down(connection)
            .map_or_else(refused, |()| (Reply::default(), true)),
        service::NET_CLOSE => stack.close(connection).map_or_else(refused, |()| {
            revoke(slot::CONNECTIONS + connection as u64);
            (Reply::default(), true)
        }),
        _ => refused(Refused),
    }
}

fn answer_datagrams(stack: &mut Stack<'_>, number: usize, message: &Received) -> (Reply, bool) {
    let mut bytes = [0; BYTES];
    match message.label {
        service::NET_SEND_TO => {
            let count = usize::try_from(message.words[0]).unwrap_or(BYTES);
            let bytes = &mut bytes[..count.min(BYTES)];
            FROM_CLIENT.read(bytes);
            match stack.send_to(number, peer_of(message.words[1]), bytes) {
                Ok(()) => (Reply::default(), true),
                Err(Unsent::Refused) => refused(Refused),
                Err(Unsent::Long) => (Reply::refusal(service::NET_LONG), false),
            }
        }
        service::NET_TAKE => match stack.take(number, &mut bytes) {
            Ok(Some((count, peer))) => {
                TO_CLIENT.write(&bytes[..count]);
                (Reply::words([1, count as u64, word_of(peer), 0]), false)
            }
            Ok(None) => (Reply::default(), false),
            Err(error) => refused(error),
        },
        service::NET_CLOSE => stack.shut(number).map_or_else(refused, |()| {
            revoke(slot::DATAGRAMS + number as u64);
            (Reply::default(), false)
        }),
        _ => refused(Refused),
    }
}

/// The card, by its driver.
struct Card {
    address: u64,
    clock: Clock,
    /// What was taken over of what came.
    frames: Frames,
    /// May there be more?
    came: bool,
    /// When the driver signals at the latest.
    alarm: Option<i64>,
    /// When the client is to be signalled at the latest.
    asked: Option<i64>,
}

impl Card {
    /// Has the driver wake this process in so many microseconds, unless it does so before.
    fn wake_in(&mut self, now: i64, pause: u64) -> Result<(), Error> {
        let at = now.saturating_add_unsigned(pause);
        if self.alarm.is_none_or(|alarm| at < alarm) {
            self.ask(service::NIC_ALARM, pause)?;
            self.alarm = Some(at);
        }
        Ok(())
    }

    fn ask(&self, label: u64, word: u64) -> Result<[u64; 2], Error> {
        let answer = call(slot::CARD, label, &[word]);
        match answer.label {
            0 => Ok([answer.words[0], answer.words[1]]),
            label => Err(Error::from_label(label).unwrap_or(Error::IllegalOperation)),
        }
    }

    /// The next frame of those that were taken over, copied out.
    fn next(&mut self, into: &mut [u8; FRAME_MAX]) -> Result<Option<usize>, Malformed> {
        let header = |at: usize| {
            let mut header = [0; 4];
            CAME.read_at(at, &mut header);
            header
        };
        let frame = self.frames.next(header)?;
        Ok(frame.map(|frame| {
            CAME.read_at(frame.at, &mut into[..frame.len]);
            frame.len
        }))
    }

    /// Has the driver take over what came since. A card that says what makes no sense is to begin
    /// anew.
    fn take_over(&mut self) {
        self.came = false;
        let place = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
        let between = self.ask(service::NIC_RECEIVE, 0);
        let frames = between.map(|[first, end]| Frames::between(place(first), place(end)));
        match frames {
            Ok(Ok(frames)) => {
                self.came = !frames.is_empty();
                self.frames = frames;
            }
            Ok(Err(Malformed)) => self.begin_anew(),
            // It told of that.
            Err(_) => {}
        }
    }

    fn begin_anew(&mut self) {
        self.frames = Frames::default();
        if self.ask(service::NIC_RESET, 0).is_err() {
            println!("net: the card cannot be reset");
        }
    }
}

impl Link for Card {
    fn receive(&mut self, into: &mut [u8; FRAME_MAX]) -> Option<usize> {
        loop {
            match self.next(into) {
                Ok(Some(len)) => return Some(len),
                Ok(None) if self.came => self.take_over(),
                Ok(None) => return None,
                Err(Malformed) => {
                    self.begin_anew();
                    return None;
                }
            }
        }
    }

    fn send(&mut self, frame: &[u8]) {
        SENT.write(frame);
        // One that could not be sent is lost, as frames may be.
        let _ = self.ask(service::NIC_SEND, frame.len() as u64);
    }
}

/// What sequence numbers begin from: another number in each run.
fn seed(clock: &mut Clock) -> Result<u64, Error> {
    let _ = clock.nanoseconds()?;
    Ok(clock
        .count()
        .wrapping_mul(6_364_136_223_846_793_005)
        .rotate_left(32))
}

/// Microseconds since the start.
fn micros(clock: &mut Clock) -> Result<i64, Error> {
    let micros = clock.nanoseconds()? / 1000;
    Ok(i64::try_from(micros).unwrap_or(i64::MAX))
}
