//! What else is known of a call, one column of the table each: how it waits, how a lost effect of
//! it is found out about, what it does to descriptors and files.
//!
//! Numbers in variants are indices of arguments, if not said otherwise. The agent asks these
//! columns and never the number of a call or its name.

/// How a call waits, hence how to try it and what to poll for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Not in a way that is known; it is made as it is.
    Plain,
    /// Until its first argument is readable; the kernel may be asked not to wait.
    Read,
    /// The same for a connection.
    Accept,
    /// Until its first argument is writable, perhaps in several parts.
    Write,
    /// From one descriptor to another.
    Move(u8, u8),
    /// The same with a pipe, and flags that may say not to wait.
    Splice(u8, u8, u8),
    /// A socket's own flag says not to wait; the flags are in this argument.
    Receive(u8),
    /// The same for what is sent.
    Send(u8),
    /// For a connection that is made.
    Connect,
    /// For many descriptors.
    Poll,
    /// For many descriptors.
    Select,
    /// For many descriptors.
    Epoll,
    /// For a lock; only trying again helps.
    Flock,
    /// For a lock; the number is that of the command which does not wait.
    FileLock(u8),
    /// For a child; as a lock.
    Child,
    /// For semaphores; as a lock, but for a time at most.
    Semaphores,
    /// For a message queue; as a lock. The flags are in this argument.
    Queue(u8),
    /// For a message queue of POSIX that is not full; with a time of its own.
    MailOut,
    /// For a message queue of POSIX that is not empty; with a time of its own.
    MailIn,
}

/// An argument with any of these bits says that the call does not wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unless {
    /// There is no such argument.
    Never,
    /// The argument, and the bits.
    Bits(u8, u32),
}

/// Where a call says how long it waits at most.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Time {
    /// Nowhere.
    None,
    /// In the argument itself; a negative one means for ever.
    Milliseconds(u8),
    /// Behind a pointer.
    Timespec(u8),
    /// Behind a pointer, where what is left of it is told.
    TimespecRest(u8),
    /// The same in microseconds.
    TimevalRest(u8),
}

/// What a call does to the position of the file that is its first argument.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Nothing, as far as is known.
    Stays,
    /// On by what it reads, at most this argument; reading again from the same place is as good.
    Reads(u8),
    /// The same without a bound that would be worth its cost.
    ReadsSome,
    /// On by what it writes, at most this argument.
    Writes(u8),
    /// The same without such a bound.
    WritesSome,
}

/// How a call moves bytes of a stream, if its first argument is one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// It does not.
    None,
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It receives a message; the flags are in this argument.
    Receive(u8),
    /// It sends a message; the flags are in this argument.
    Send(u8),
}

/// What a call may do while effects wait to be released.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Nothing: they are released first. It may change what its descriptors are.
    Waits,
    /// It passes them: it neither waits nor could tell, and changes no descriptor. One that reads
    /// a stream passes only if it is known not to wait.
    Passes,
    /// It may be such an effect.
    Sends,
    /// Its result is a socket that no other process has.
    Connects,
    /// It opens a file, and passes if this argument, its flags, says that it does not wait.
    Opens(u8),
    /// It passes, and says in this argument, a `struct stat`, of which type a descriptor is.
    Describes(u8),
}

/// How a successor finds out what became of an effect on no stream and no position.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Not at all.
    None,
    /// It may be made again.
    Again,
    /// It may, if this argument has none of these bits.
    AgainWithout(u8, u32),
    /// It may, unless the first argument has this value and the second has that.
    AgainBut(u8, u32, u8, u32),
    /// It may, if this argument is null.
    AgainIfNull(u8),
    /// It may, unless both arguments are the same.
    AgainUnlessSame(u8, u8),
    /// The lowest free descriptor is open.
    Descriptor,
    /// The lowest free descriptor from this argument on is open.
    DescriptorFrom(u8),
    /// The two lowest free descriptors are open; this argument is told them.
    Pair(u8),
    /// The descriptor that is the first argument is not open.
    Closed,
    /// The working directory is another one.
    Directory,
    /// The socket has another address.
    Bound,
    /// The socket has a peer.
    Connected,
    /// Events that are told once are armed again.
    Events,
    /// The supervisor knows; 0 in this argument, a signal, only asks.
    Asked(u8),
    /// Names: old and new.
    RingRename(u8, u8),
    /// The same below open folders.
    RingRenameAt(u8, u8, u8, u8),
    /// The same with flags.
    RingRenameAtFlags(u8, u8, u8, u8, u8),
    /// A name.
    RingUnlink(u8),
    /// The name of a folder.
    RingRmdir(u8),
    /// Folder, name and flags.
    RingUnlinkAt(u8, u8, u8),
    /// Name and mode.
    RingMkdir(u8, u8),
    /// Folder, name and mode.
    RingMkdirAt(u8, u8, u8),
    /// Target and name.
    RingSymlink(u8, u8),
    /// Target, folder and name.
    RingSymlinkAt(u8, u8, u8),
    /// Old and new name.
    RingLink(u8, u8),
    /// The same below open folders, and flags.
    RingLinkAt(u8, u8, u8, u8, u8),
    /// Set, operation, descriptor and event.
    RingEpollCtl(u8, u8, u8, u8),
    /// Socket and direction.
    RingShutdown(u8, u8),
}

/// What a call does to the content of the files whose descriptors are its arguments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing that a mapping would show.
    None,
    /// It needs what is there.
    Reads,
    /// It changes what is there.
    Writes,
}

/// Whether another call can go on with moving bytes between files where one was interrupted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Moves {
    /// It moves none, or takes none away from where they are.
    None,
    /// As many as this argument says, or all that there are.
    By(u8),
    /// At most that many: those that are there, for which the second argument has the flag.
    WhatIsThere(u8, u8, u32),
}

/// Where in its file a call acts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Offset {
    /// At the file's position, if it has one.
    Position,
    /// At this argument.
    At(u8),
    /// At this argument, or the position if that is -1.
    AtOrOn(u8),
    /// It moves the position there.
    To(u8),
}

/// What a call opens.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Opens {
    /// Nothing by name.
    None,
    /// Path and flags.
    Plain(u8, u8),
    /// Path, and a structure that begins with the flags.
    Described(u8, u8),
    /// Path, always to write.
    Created(u8),
    /// The other end of a pseudo-terminal; flags.
    Peer(u8),
}

/// Where a call is told, or tells, ids of processes beside its result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Nowhere.
    None,
    /// Level, name and value of a socket's option.
    Option(u8, u8, u8),
    /// The owner of a lock.
    Owner(u8),
    /// A message that is received.
    Received(u8),
    /// Several.
    ReceivedMany(u8),
    /// A message that is sent.
    Sent(u8),
    /// Several, and how many.
    SentMany(u8, u8),
}

/// What a call does to a terminal, as far as job control minds it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Nothing.
    None,
    /// Processes in the background may not.
    Reads,
    /// Processes in the background may not, if the terminal is set so.
    Writes,
    /// Processes in the background may not.
    Sets,
}

/// What a call does to descriptors beside making new ones.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// Nothing.
    Stay,
    /// This one is closed.
    Closes(u8),
    /// This one becomes a copy of the first argument.
    Replaces(u8),
    /// The result is a copy of the first argument.
    Copies,
    /// From one number to another, with flags.
    ClosesRange(u8, u8, u8),
    /// Those that are marked for it.
    ClosesMarked,
    /// The agent may close some of its own.
    ClosesOwn,
}

/// Whether EPIPE brings SIGPIPE.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sigpipe {
    /// It does not.
    Silent,
    /// It does.
    Raises,
    /// It does if this argument has none of these bits.
    RaisesWithout(u8, u32),
}

/// How far a call would make a file grow, for EFBIG.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// From its position, which comes to the limit before it comes to where files end.
    Position,
    /// EFBIG means something else.
    None,
    /// To this size.
    To(u8),
    /// By an offset and a length.
    By(u8, u8),
    /// From this offset.
    From(u8),
}

/// The columns together.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How it waits.
    pub waits: Waits,
    /// When it does not.
    pub unless: Unless,
    /// How long it waits at most.
    pub time: Time,
    /// What it does to the position of its file.
    pub position: Position,
    /// How it moves bytes of a stream.
    pub stream: Stream,
    /// How a successor finds out about it.
    pub takeover: Takeover,
    /// What it may do while effects wait to be released.
    pub outgoing: Outgoing,
    /// What it does to the content of files.
    pub content: Content,
    /// How it moves bytes between files.
    pub moves: Moves,
    /// Where in its file it acts.
    pub offset: Offset,
    /// What it opens.
    pub opens: Opens,
    /// Where ids of processes are told.
    pub ids: Ids,
    /// What it does to a terminal.
    pub terminal: Terminal,
    /// What it does to descriptors.
    pub descriptors: Descriptors,
    /// Whether EPIPE brings SIGPIPE.
    pub sigpipe: Sigpipe,
    /// How far it would make a file grow.
    pub size: Size,
}

impl Facts {
    /// Of a call of which none of this is so.
    pub const NONE: Self = Self {
        waits: Waits::Plain,
        unless: Unless::Never,
        time: Time::None,
        position: Position::Stays,
        stream: Stream::None,
        takeover: Takeover::None,
        outgoing: Outgoing::Waits,
        content: Content::None,
        moves: Moves::None,
        offset: Offset::Position,
        opens: Opens::None,
        ids: Ids::None,
        terminal: Terminal::None,
        descriptors: Descriptors::Stay,
        sigpipe: Sigpipe::Silent,
        size: Size::Position,
    };
}

impl Unless {
    /// Does an argument say that the call does not wait?
    #[inline]
    #[must_use]
    pub const fn applies(self, raw: &[u64; 6]) -> bool {
        match self {
            Self::Never => false,
            Self::Bits(arg, bits) => raw[arg as usize] & bits as u64 != 0,
        }
    }
}

impl Opens {
    /// The argument that is the path.
    #[must_use]
    pub const fn path(self) -> Option<u8> {
        match self {
            Self::Plain(path, _) | Self::Described(path, _) | Self::Created(path) => Some(path),
            Self::None | Self::Peer(_) => None,
        }
    }
}
