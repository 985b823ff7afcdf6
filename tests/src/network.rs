//! Clients on the host of servers in a machine, for the behaviour tests.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crate::rcoe::LIMIT;

/// The card's address in the network, which is in each frame that the stack sends.
pub const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

/// The host's port of this number, at an address of the loopback that no other test has.
pub fn address(port: u16) -> SocketAddrV4 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddrV4::new(Ipv4Addr::new(127, high, low, last), port)
}

/// A byte of the stream that a client sends: from its place alone.
fn byte(place: u64) -> u8 {
    let mixed = (place / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_le_bytes()[usize::try_from(place % 8).unwrap()]
}

/// The bytes from a place on.
#[must_use]
pub fn bytes(from: u64, count: usize) -> Vec<u8> {
    (from..).take(count).map(byte).collect()
}

/// A client, which does not wait for ever.
#[must_use]
pub fn connect(host: SocketAddrV4) -> TcpStream {
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// A client that the server has answered: what it sends next is sent by a connection that is made.
#[must_use]
pub fn welcomed(host: SocketAddrV4) -> TcpStream {
    let mut stream = connect(host);
    let mut back = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    stream
}

/// Sends bytes while it takes them back; the peer has to close after the last one.
pub fn exchange(mut stream: TcpStream, count: usize) {
    let sent = bytes(0, count);
    let mut writer = stream.try_clone().unwrap();
    let all = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&all).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == sent, "{} bytes came back of {count}", back.len());
}
