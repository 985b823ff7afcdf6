//! What the personality needs of the machine: memory, threads, a clock, the console, the network,
//! the disk.

use rcoe_abi::Rights;

use super::arch::{CALL_WORDS, FLOAT_WORDS};
use crate::disk::{Block, DiskError};
use crate::input::Came;
use crate::network::{Peer, Ready};
use crate::socket::{Incoming, SocketError};

/// Bytes of a page.
pub(crate) const PAGE: u64 = rcoe_abi::object::PAGE;

/// The machine, as the personality sees it. All that it says is the same in all replicas.
pub trait Machine: Network + Disk {
    /// The number of a zeroed frame of memory that nobody has; `None` if there is no more.
    fn take(&mut self) -> Option<u32>;
    /// The same with whatever is in it, for what is written before it is read.
    fn take_as_it_is(&mut self) -> Option<u32>;
    /// A frame that is mapped nowhere is needed no more.
    fn give_back(&mut self, frame: u32);
    /// How many frames are left.
    fn left(&self) -> u64;
    /// Makes an address space of this number, unless it is made. Tells whether that is possible.
    fn make_space(&mut self, space: usize) -> bool;
    /// The address space at hand is this one from here on.
    fn enter(&mut self, space: usize);
    /// Nothing is mapped in an address space any more.
    fn leave_space(&mut self, space: usize);
    /// Another place for a frame that is shared, beside that of this alias or as its first one: an
    /// alias; `None` if there are too many. The frame itself is mapped nowhere.
    fn share(&mut self, frame: u32, like: Option<u16>) -> Option<u16>;
    /// An alias that is mapped nowhere is needed no more. Tells whether it was the last one of its
    /// frame.
    fn unshare(&mut self, alias: u16) -> bool;
    /// The number of what an alias shares, which nothing else has.
    fn number_of(&self, alias: u16) -> u32;
    /// Maps a frame or an alias in the address space at hand. Tells whether that is possible.
    fn map(&mut self, frame: u32, address: u64, rights: Rights) -> bool;
    /// Takes it out again.
    fn unmap(&mut self, frame: u32);
    /// Bytes of a frame, from `at` on.
    fn read(&self, frame: u32, at: usize, bytes: &mut [u8]);
    /// Writes such bytes.
    fn write(&mut self, frame: u32, at: usize, bytes: &[u8]);
    /// Makes a frame like another one.
    fn copy(&mut self, from: u32, to: u32);
    /// Output of the program.
    fn console(&mut self, bytes: &[u8]);
    /// Takes what came for the program to read, and has more fetched if nothing did.
    fn input(&mut self, into: &mut [u8]) -> Came;
    /// Something for the user beside that: a line.
    fn note(&mut self, text: core::fmt::Arguments<'_>);
    /// Nanoseconds since the start.
    fn now(&mut self) -> u64;
    /// Waits until the clock shows this, if it is said, anything changed in the network, or input
    /// came that was wanted.
    fn wait(&mut self, until: Option<u64>);
    /// Makes thread `number` one of the address space at hand, with the floating-point state of
    /// another one. Tells whether that is possible.
    fn make_thread(&mut self, number: usize, like: usize) -> bool;
    /// Lets a thread that is made run, with these registers.
    fn go(&mut self, thread: usize, registers: &[u64; CALL_WORDS]);
    /// Says where a thread's own data is: the bases of FS and GS.
    fn set_pointers(&mut self, thread: usize, pointers: [u64; 2]) -> bool;
    /// The floating-point state of a thread.
    fn floats(&mut self, thread: usize) -> [u64; FLOAT_WORDS];
    /// Sets it. Tells whether the processor can hold that.
    fn set_floats(&mut self, thread: usize, floats: &[u64; FLOAT_WORDS]) -> bool;
    /// What the processor says of itself, by leaf and part: these bits of eax, ebx, ecx, edx.
    fn identity(&self, leaf: u32, part: u32, kept: [u32; 4]) -> [u32; 4];
}

/// Listeners, connections and sockets for datagrams of the machine, by number. Nothing of it waits.
pub trait Network {
    /// Listens at a port; the listener's number.
    ///
    /// # Errors
    /// If there is no network, or somebody listens there.
    fn listen(&mut self, port: u16) -> Result<usize, SocketError>;
    /// Listens no more.
    fn unlisten(&mut self, listener: usize);
    /// A connection that arrived: its number and its peer.
    fn accept(&mut self, listener: usize) -> Option<(usize, Peer)>;
    /// Asks a peer for a connection, from this port; its number.
    ///
    /// # Errors
    /// If there is no network, no room, or such a connection already.
    fn connect(&mut self, peer: Peer, port: u16) -> Result<usize, SocketError>;
    /// Is a connection made that was asked for? As soon as that is known it counts as one that can
    /// send.
    ///
    /// # Errors
    /// If it never will be; it is to be hung up all the same.
    fn is_made(&mut self, connection: usize) -> Result<bool, SocketError>;
    /// Takes what a connection received.
    ///
    /// # Errors
    /// If it is no more.
    fn receive(&mut self, connection: usize, into: &mut [u8]) -> Result<Incoming, SocketError>;
    /// Sends bytes; how many of them were taken.
    ///
    /// # Errors
    /// If the connection is no more.
    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<usize, SocketError>;
    /// Sends no more.
    fn shut_down(&mut self, connection: usize);
    /// Ends a connection, once what was taken is sent.
    fn hang_up(&mut self, connection: usize);
    /// A socket for datagrams at a port; its number.
    ///
    /// # Errors
    /// If there is no network, no room, or somebody has the port.
    fn open(&mut self, port: u16) -> Result<usize, SocketError>;
    /// Sends a datagram, or drops it.
    ///
    /// # Errors
    /// If it is too long, or nobody can be there.
    fn send_to(&mut self, socket: usize, peer: Peer, bytes: &[u8]) -> Result<(), SocketError>;
    /// Takes the next datagram that came, if there is one: its bytes, and who sent it.
    fn take_from(&mut self, socket: usize, into: &mut [u8]) -> Option<(usize, Peer)>;
    /// Closes a socket for datagrams.
    fn shut(&mut self, socket: usize);
    /// What all of them have, one bit for each by its number.
    fn ready(&mut self) -> Ready;
}

/// The disk of the machine, if it has any.
pub trait Disk {
    /// How many blocks there are; none without a disk.
    fn blocks(&self) -> u64;
    /// Reads a block.
    ///
    /// # Errors
    /// If that is not possible.
    fn read_block(&mut self, block: u64, into: &mut Block) -> Result<(), DiskError>;
    /// Writes a block.
    ///
    /// # Errors
    /// If that is not possible.
    fn write_block(&mut self, block: u64, from: &Block) -> Result<(), DiskError>;
    /// Has all that was written outlive the machine.
    ///
    /// # Errors
    /// If that is not possible.
    fn flush(&mut self) -> Result<(), DiskError>;
}
