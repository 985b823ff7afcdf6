//! What a program that the root task starts is given, and what it can ask.

/// What a driver is given besides what every program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// I/O ports: the first, and how many.
    pub ports: Option<(u16, u16)>,
    /// Pages of device memory: first and last.
    pub pages: Option<(u64, u64)>,
    /// An interrupt line.
    pub line: Option<u64>,
}

impl Device {
    /// Nothing.
    pub const NONE: Self = Self {
        ports: None,
        pages: None,
        line: None,
    };
}

/// Slot of the endpoint to the root task, badged with the program's number.
pub const SLOT_ROOT: u64 = 1;
/// Slot of the endpoint to the console.
pub const SLOT_CONSOLE: u64 = 2;
/// Slot of the program's own thread.
pub const SLOT_TCB: u64 = 3;
/// Slot of an endpoint that it shares with the other programs of its group.
pub const SLOT_PEER: u64 = 4;
/// Slot of the program's own capability table.
pub const SLOT_CNODE: u64 = 5;
/// Slot of the program's own address space.
pub const SLOT_VSPACE: u64 = 6;
/// Slot of I/O ports, in drivers.
pub const SLOT_PORTS: u64 = 7;
/// Slot of the notification of a driver's interrupts.
pub const SLOT_NOTIFICATION: u64 = 8;
/// Slot of a driver's interrupt handler.
pub const SLOT_IRQ: u64 = 9;
/// Slot of the endpoint to the timer.
pub const SLOT_TIMER: u64 = 10;
/// Slot of a driver's device memory.
pub const SLOT_DEVICE: u64 = 11;
/// Slot of the right to add to the trace.
pub const SLOT_TRACE: u64 = 12;
/// First slot that is free for the program itself.
pub const SLOT_FREE: u64 = 32;
/// Logarithm of the slots of a program's table.
pub const CNODE_BITS: u32 = 8;

/// Ask the root task: the program ends. Word: exit status.
pub const ROOT_EXIT: u64 = 32;
/// Ask the root task: start another program with the same peer endpoint. Words: name, eight bytes a
/// word. The reply's first word is 0 if there is none.
pub const ROOT_SPAWN: u64 = 33;
/// Ask the root task: map zeroed pages. Words: address, number.
pub const ROOT_MAP: u64 = 34;
/// Ask the root task: make an object, of which the reply brings a capability. Words: type, which is
/// that of untyped memory, an endpoint, a notification, a frame of either size or a thread; and the
/// logarithm of the bytes of untyped memory.
pub const ROOT_MAKE: u64 = 35;
/// Ask the root task: make the page tables of the windows for shared frames.
pub const ROOT_WINDOW: u64 = 36;
/// Ask the console: write. Words: number of bytes, then eight a word.
pub const CONSOLE_WRITE: u64 = 32;
/// Ask the timer: wait. Word: ticks of a hundredth of a second.
pub const TIMER_SLEEP: u64 = 32;

/// Tell the pipeline: this stage is ready. Word: its number. The reply brings its endpoints: where
/// it takes blocks from, and where it hands them on.
pub const PIPE_READY: u64 = 40;
/// Hand a block to the next stage: a frame, as a capability to be read. Words: its number, bytes,
/// and the digest of the original. The last one has no bytes and no frame.
pub const PIPE_BLOCK: u64 = 41;

/// Ask the driver `edu`: the factorial of a word.
pub const EDU_FACTORIAL: u64 = 44;
/// Ask the driver `edu`: have the device fetch bytes from a frame and store them into another one.
/// Word: bytes, at most [`EDU_BYTES`]. Capabilities: the first frame, to be read, and the second.
pub const EDU_COPY: u64 = 45;
/// Most bytes of a copy.
pub const EDU_BYTES: usize = 2048;

/// The driver of the network card tells the group: it has the card. Words: which part of this
/// message it is, and the card's address in the network, its first byte the lowest. Capabilities
/// of the parts, in turn: the endpoint that it serves and the frame that it sends from; then
/// frames that hold what the card received, as many as it takes. The reply to the last part brings
/// the notification that it signals with [`NIC_CAME`].
pub const NIC_JOIN: u64 = 48;
/// The driver tells the group: there is no card.
pub const NIC_ABSENT: u64 = 49;
/// Ask the driver: take over what the card received since. Reply: from where to where in its
/// ring, of which the frames are an image; twice the same if there is nothing.
pub const NIC_RECEIVE: u64 = 50;
/// Ask the driver: send what is at the beginning of its frame. Word: bytes.
pub const NIC_SEND: u64 = 51;
/// Ask the driver: signal once in so many microseconds. Word: those.
pub const NIC_ALARM: u64 = 52;
/// Ask the driver: begin anew, because what the card received makes no sense.
pub const NIC_RESET: u64 = 53;
/// Frames that hold what the card received: its ring, with room behind it for one that begins at
/// its end.
pub const NIC_FRAMES: u64 = 5;
/// Bytes of the ring.
pub const NIC_RING: usize = 16 << 10;
/// Signal of the driver: look what came.
pub const NIC_CAME: u64 = 1;

/// The driver of the disk tells the group: it has the disk. Word: its blocks of [`DISK_BLOCK`]
/// bytes. Capabilities: the endpoint that it serves, and the frame for what is read and written.
pub const DISK_JOIN: u64 = 72;
/// The driver tells the group: there is no disk.
pub const DISK_ABSENT: u64 = 73;
/// Ask the driver: read a block into its frame. Word: its number.
pub const DISK_READ: u64 = 74;
/// Ask the driver: write a block, which is in its frame. Word: its number.
pub const DISK_WRITE: u64 = 75;
/// Ask the driver: have what was written outlive the machine.
pub const DISK_FLUSH: u64 = 76;
/// Bytes of a block.
pub const DISK_BLOCK: usize = 4096;

/// The driver of the input tells the group: it has the line. Capability: the endpoint that it
/// serves.
pub const INPUT_JOIN: u64 = 80;
/// The driver tells the group: there is no line.
pub const INPUT_ABSENT: u64 = 81;
/// Ask the driver: what came next, which it has the host send if there is nothing. Word:
/// bytes at most. Reply: [`INPUT_NOTHING`], [`INPUT_BYTES`], [`INPUT_MORE`] or [`INPUT_END`]; how
/// many bytes, and these, eight a word.
pub const INPUT_TAKE: u64 = 82;
/// Ask the driver: wait until something came that was asked for, or ticks of a hundredth of a
/// second have passed. Word: how many; 0 if it does not matter.
pub const INPUT_WAIT: u64 = 83;
/// Ask the driver: signal whenever something came that was asked for. Capability: by which.
pub const INPUT_TELL: u64 = 84;
/// In an answer: nothing came as yet.
pub const INPUT_NOTHING: u64 = 0;
/// In an answer: bytes, the last of those that were given at once.
pub const INPUT_BYTES: u64 = 1;
/// In an answer: bytes, and there are more to be taken.
pub const INPUT_MORE: u64 = 2;
/// In an answer: nothing will come any more.
pub const INPUT_END: u64 = 3;

/// The TCP/IP stack tells the group: it serves. Capability: the endpoint that it serves. The reply
/// brings the notification of its client that it signals when anything changes, and two frames:
/// for what the client receives, and for what it sends.
pub const NET_JOIN: u64 = 56;
/// Ask the stack: accept connections at a port. Word: the port. The reply brings a listener. Word:
/// its number.
pub const NET_LISTEN: u64 = 57;
/// Ask a listener: a connection that was made. The reply brings it, if there is one. Words: the
/// connection's number, and the peer's address, its first byte the lowest, with its port above.
pub const NET_ACCEPT: u64 = 58;
/// Ask a connection: put what was received into the client's first frame. Word: bytes at most.
/// Reply: bytes, and 1 if
/// the peer sends no more and all was received.
pub const NET_RECEIVE: u64 = 59;
/// Ask a connection: send what is at the beginning of the client's second frame. Word: bytes.
/// Reply: how many of them were taken.
pub const NET_SEND: u64 = 60;
/// Ask a connection: send what was taken, then no more; or a listener: listen no more; or a socket
/// for datagrams: have no port any more. Its capabilities end.
pub const NET_CLOSE: u64 = 61;
/// Ask a connection: send what was taken, then no more, and go on receiving.
pub const NET_SHUT_DOWN: u64 = 62;
/// Ask the stack: what listeners and connections have. Reply: listeners with a connection, and from
/// bit [`NET_CAME`] on sockets for datagrams to which one came; then connections that have
/// something to receive or nothing more ever, that have room to send or are broken, and whose peer
/// sends no more. One bit each, by the number of the capability.
pub const NET_READY: u64 = 63;
/// Ask the stack: signal the client in so many microseconds at the latest. Word: those. There is
/// one such time, that of the last request.
pub const NET_ALARM: u64 = 64;
/// Ask the stack: connect to a peer. Words: the peer's address, its first byte the lowest, with its
/// port above; and the port to connect from. The reply brings the connection, which may not be made
/// yet. Word: its number. It counts as one that has room to send as soon as it is known what came
/// of it.
pub const NET_CONNECT: u64 = 65;
/// Ask a connection that the client asked for: is it made? Reply: 1 if it is, 0 if nobody knows
/// yet. If it never will be, the answer is [`NET_REFUSED`] or [`NET_LATE`].
pub const NET_MADE: u64 = 66;
/// Ask the stack: a socket for datagrams at a port. Word: the port. The reply brings it. Word: its
/// number.
pub const NET_OPEN: u64 = 67;
/// Ask a socket for datagrams: send what is at the beginning of the client's second frame, or drop
/// it if there is no room. Words: bytes, and the peer's address, its first byte the lowest, with
/// its port above.
pub const NET_SEND_TO: u64 = 68;
/// Ask a socket for datagrams: put the next one that came into the client's first frame. Reply: 1
/// if there is one, its bytes, and the address and port of whoever sent it.
pub const NET_TAKE: u64 = 69;
/// The bit of the first socket for datagrams in the answer to [`NET_READY`].
pub const NET_CAME: u32 = 32;
/// Signal to the client: look at listeners and connections.
pub const NET_CHANGED: u64 = 1;
/// Signal to the client: the time that it asked for has come.
pub const NET_RANG: u64 = 2;
/// In an answer: there is no network card.
pub const NET_NO_CARD: u64 = 32;
/// In an answer: the connection is no more.
pub const NET_BROKEN: u64 = 33;
/// In an answer: there is no room for that, or no such thing.
pub const NET_REFUSED: u64 = 34;
/// In an answer: nobody said anything for as long as one waits for that.
pub const NET_LATE: u64 = 35;
/// In an answer: that has more bytes than the network carries at once.
pub const NET_LONG: u64 = 36;
