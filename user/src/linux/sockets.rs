//! Sockets: how far they are, what they are called, and what connects them.
//!
//! A connection leads over the network, or to another socket of the machine. Those in the machine
//! are two pipes, one for each way: so they need no stack, no card and no vote.

use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::net::{AF_INET, AF_UNIX};

use super::Errno;
use super::udp::Udp;
use crate::network::Peer;

/// Longest name of a socket in the machine.
pub(crate) const LABEL: usize = 108;

/// The address of nobody in particular, the machine's own, and the first byte of those that lead
/// to itself.
pub(crate) const ANY: [u8; 4] = [0; 4];
pub(crate) const OWN: [u8; 4] = [10, 0, 2, 15];
pub(crate) const LOOPBACK: u8 = 127;
/// Who connects in the machine without saying to which of its addresses.
pub(crate) const HOME: [u8; 4] = [LOOPBACK, 0, 0, 1];

/// What a socket is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// By TCP or UDP over IPv4: address and port, of which 0 is none.
    Inet(Peer),
    /// In the machine.
    Unix(Label),
}

/// A name in the machine, as it was given: that of a file, or after a zero byte one of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label {
    bytes: [u8; LABEL],
    len: u8,
    /// The number of the file, which no other one ever has; 0 if it is none.
    pub(crate) file: u32,
    /// Is it that of a connection of whole messages (`SOCK_SEQPACKET`)? Such names are others.
    pub(crate) packets: bool,
}

impl Label {
    /// No name.
    pub(crate) const NONE: Self = Self {
        bytes: [0; LABEL],
        len: 0,
        file: 0,
        packets: false,
    };

    /// # Errors
    /// If it is too long.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let mut label = Self::NONE;
        let place = label.bytes.get_mut(..bytes.len());
        place.ok_or(Errno(EINVAL))?.copy_from_slice(bytes);
        label.len = u8::try_from(bytes.len()).map_err(|_| Errno(EINVAL))?;
        Ok(label)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Is it no file's?
    pub(crate) const fn is_abstract(&self) -> bool {
        self.len > 0 && self.bytes[0] == 0
    }
}

impl Name {
    /// That of a socket that has none yet.
    pub(crate) const fn none(family: u32) -> Option<Self> {
        match family {
            AF_INET => Some(Self::Inet((ANY, 0))),
            AF_UNIX => Some(Self::Unix(Label::NONE)),
            _ => None,
        }
    }

    pub(crate) const fn family(&self) -> u32 {
        match self {
            Self::Inet(_) => AF_INET,
            Self::Unix(_) => AF_UNIX,
        }
    }

    pub(crate) const fn is_none(&self) -> bool {
        match self {
            Self::Inet((_, port)) => *port == 0,
            Self::Unix(label) => label.len == 0,
        }
    }

    /// Does whoever is called so, and listens, mean connections to that name?
    pub(crate) fn hears(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Inet((own, port)), Self::Inet((address, wanted))) => {
                port == wanted && (*own == ANY || own == address)
            }
            (Self::Unix(own), Self::Unix(wanted)) if wanted.is_abstract() => own == wanted,
            (Self::Unix(own), Self::Unix(other)) => {
                own.packets == other.packets && self.is_file_of(wanted)
            }
            _ => false,
        }
    }

    /// Do both lead to one file?
    pub(crate) fn is_file_of(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Unix(own), Self::Unix(wanted)) => wanted.file != 0 && own.file == wanted.file,
            _ => false,
        }
    }

    /// The same, for messages or for bytes as another one is.
    pub(crate) const fn like(mut self, other: &Self) -> Self {
        if let (Self::Unix(own), Self::Unix(other)) = (&mut self, other) {
            own.packets = other.packets;
        }
        self
    }
}

/// How far a socket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Socket {
    Free,
    /// It has a name, or none yet.
    New(Name),
    Listens(Listens),
    /// It is connected in the machine to who asked for it, and nobody has accepted it yet at the
    /// one that listens; the first in order comes first.
    Waits {
        it: Connected,
        listener: usize,
        order: u64,
    },
    Connected(Connected),
    /// It has asked for a connection beyond the machine, and was not told what came of that. It was
    /// called so before.
    Asks {
        it: Connected,
        before: Name,
    },
    /// It got none, for this reason, which the program was not told.
    Refused {
        before: Name,
        why: Errno,
    },
    /// Its connection is no more.
    Broken(Connected),
    /// It is for datagrams in the machine, connected or not.
    Datagrams(Datagrams),
    /// It is for datagrams by UDP.
    Udp(Udp),
}

impl Socket {
    /// What it is called.
    pub(crate) const fn name(&self) -> Option<Name> {
        match self {
            Self::Free => None,
            Self::New(name) => Some(*name),
            Self::Listens(it) => Some(it.name),
            Self::Refused { before, .. } => Some(*before),
            Self::Waits { it, .. }
            | Self::Connected(it)
            | Self::Asks { it, .. }
            | Self::Broken(it) => Some(it.name),
            Self::Datagrams(it) => Some(Name::Unix(it.label)),
            Self::Udp(it) => Some(Name::Inet(it.name())),
        }
    }

    /// Is it for datagrams?
    pub(crate) const fn is_for_datagrams(&self) -> bool {
        matches!(self, Self::Datagrams(_) | Self::Udp(_))
    }

    /// Is it for connections of whole messages?
    pub(crate) const fn has_packets(&self) -> bool {
        matches!(self.name(), Some(Name::Unix(label)) if label.packets)
    }
}

/// A socket for datagrams in the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagrams {
    pub(crate) label: Label,
    /// The pipe of all that it receives.
    pub(crate) inbox: usize,
    /// Its number, which no other one ever has; and the place and the number of its peer.
    pub(crate) number: u32,
    pub(crate) peer: Option<(usize, u32)>,
    /// The process that made it as one of a pair, or 0.
    pub(crate) with: u64,
    /// The program receives no more, and sends no more.
    pub(crate) deaf: bool,
    pub(crate) mute: bool,
}

impl Datagrams {
    /// One that has no name and no peer.
    pub(crate) const fn new(inbox: usize, number: u32) -> Self {
        Self {
            label: Label::NONE,
            inbox,
            number,
            peer: None,
            with: 0,
            deaf: false,
            mute: false,
        }
    }

    /// May the one of this number send to it? One that is connected hears its peer alone.
    pub(crate) fn hears(&self, number: u32) -> bool {
        self.peer.is_none_or(|(_, peer)| peer == number)
    }
}

/// A socket that listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Listens {
    pub(crate) name: Name,
    /// The process that had it listen.
    pub(crate) by: u64,
    /// Its number in the network, if it listens there too.
    pub(crate) card: Option<usize>,
    /// Most that wait there, of those in the machine.
    pub(crate) most: usize,
}

/// A connection of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connected {
    pub(crate) name: Name,
    pub(crate) peer: Name,
    /// The process at the other end when the connection was made; 0 if that is in another machine.
    pub(crate) with: u64,
    pub(crate) link: Link,
    /// The program receives no more, and sends no more.
    pub(crate) deaf: bool,
    pub(crate) mute: bool,
}

impl Connected {
    /// Does it receive what is in this pipe?
    pub(crate) const fn is_receiver(&self, pipe: usize) -> bool {
        match self.link {
            Link::Pipes { receives, .. } => receives == pipe && !self.deaf,
            Link::Card(_) => false,
        }
    }
}

/// What a connection leads over: a number in the network, or two pipes, of which an end is the
/// connection's that receives, until it is deaf, and one that sends, until it is mute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Card(usize),
    Pipes { receives: usize, sends: usize },
}

/// What a table of sockets tells.
pub(crate) trait Sockets {
    /// Is anybody called so, or would get connections that are meant for that name?
    fn has_name(&self, name: &Name) -> bool;
    /// Who gets connections that are meant for this name.
    fn listener(&self, wanted: &Name) -> Option<usize>;
    /// Who waits at a listener the longest.
    fn first_at(&self, listener: usize) -> Option<usize>;
    /// How many wait there.
    fn count_at(&self, listener: usize) -> usize;
    /// The connection that receives what is in a pipe.
    fn receiver_of(&self, pipe: usize) -> Option<usize>;
    /// Who by UDP gets what this peer sends to a name.
    fn hearer(&self, to: Peer, from: Peer) -> Option<usize>;
}

impl Sockets for [Socket] {
    fn has_name(&self, wanted: &Name) -> bool {
        self.iter().any(|it| match it {
            Socket::New(name)
            | Socket::Refused { before: name, .. }
            | Socket::Listens(Listens { name, .. }) => match (name, wanted) {
                (Name::Inet((_, port)), Name::Inet((_, wanted))) => port == wanted,
                _ => name == wanted,
            },
            _ => false,
        })
    }

    fn listener(&self, wanted: &Name) -> Option<usize> {
        let hears = |it: &Socket| matches!(it, Socket::Listens(it) if it.name.hears(wanted));
        self.iter().position(hears)
    }

    fn first_at(&self, listener: usize) -> Option<usize> {
        let waiting = self.iter().enumerate().filter_map(|(place, it)| match it {
            Socket::Waits {
                listener: at,
                order,
                ..
            } if *at == listener => Some((*order, place)),
            _ => None,
        });
        waiting.min().map(|(_, place)| place)
    }

    fn count_at(&self, listener: usize) -> usize {
        let waits =
            |it: &&Socket| matches!(it, Socket::Waits { listener: at, .. } if *at == listener);
        self.iter().filter(waits).count()
    }

    fn receiver_of(&self, pipe: usize) -> Option<usize> {
        self.iter().position(|it| match it {
            Socket::Waits { it, .. } | Socket::Connected(it) => it.is_receiver(pipe),
            _ => false,
        })
    }

    fn hearer(&self, to: Peer, from: Peer) -> Option<usize> {
        let hears = |it: &Socket| matches!(it, Socket::Udp(it) if it.hears(to, from));
        self.iter().position(hears)
    }
}
