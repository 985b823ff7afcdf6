//! Calls about options of sockets.
//!
//! What the stack does anyway, or what changes nothing that a program could see here, is taken; an
//! option that nobody knows gets the error that Linux gives.

use linux_raw_sys::errno::{EDOM, EINVAL, ENOPROTOOPT, EOPNOTSUPP};
use linux_raw_sys::net::{
    AF_UNIX, SO_ACCEPTCONN, SO_BROADCAST, SO_DOMAIN, SO_DONTROUTE, SO_ERROR, SO_KEEPALIVE,
    SO_LINGER, SO_OOBINLINE, SO_PASSCRED, SO_PEERCRED, SO_PRIORITY, SO_PROTOCOL, SO_RCVBUF,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_RCVTIMEO_NEW, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO,
    SO_SNDTIMEO_NEW, SO_TYPE, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOL_SOCKET, TCP_CORK,
    TCP_DEFER_ACCEPT, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY,
    TCP_QUICKACK, TCP_USER_TIMEOUT,
};

use crate::linux::sockets::{Name, Socket};
use crate::linux::stat::{MICRO, SECOND};
use crate::linux::streams::{PATIENT, Side};
use crate::linux::{Answer, Errno, Machine, Process};

/// Levels besides that of sockets: IPv4, and TCP, which is a protocol of that number.
const IP: u64 = 0;
const TCP: u64 = 6;
/// UDP, by its number among protocols.
const UDP: u32 = 17;
/// Bytes of a socket's buffer, of what goes out at once, and of all datagrams that wait.
const BUFFER: u32 = 8192;
const INBOX: u32 = 65_536;
const SEGMENT: u32 = 1460;
/// The options of IPv4 that are taken: the kind of service; and whether datagrams may be cut up,
/// which they never are, and whether all is told of what comes of them.
const IP_TOS: u32 = 1;
const IP_MTU_DISCOVER: u32 = 10;
const IP_RECVERR: u32 = 11;

fn level_of(level: u64) -> u64 {
    level & 0xffff_ffff
}

fn name_of(name: u64) -> u32 {
    u32::try_from(name & 0xffff_ffff).unwrap_or(u32::MAX)
}

/// The side of a socket of which an option says how long calls wait there.
const fn side_of(name: u32) -> Option<Side> {
    match name {
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => Some(Side::Receives),
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => Some(Side::Sends),
        _ => None,
    }
}

/// Can it be set?
const fn is_taken(level: u64, name: u32) -> bool {
    const SOCKET: u64 = SOL_SOCKET as u64;
    match level {
        SOCKET => matches!(
            name,
            SO_BROADCAST
                | SO_DONTROUTE
                | SO_KEEPALIVE
                | SO_LINGER
                | SO_OOBINLINE
                | SO_PASSCRED
                | SO_PRIORITY
                | SO_RCVBUF
                | SO_RCVLOWAT
                | SO_REUSEADDR
                | SO_REUSEPORT
                | SO_SNDBUF
        ),
        TCP => matches!(
            name,
            TCP_CORK
                | TCP_DEFER_ACCEPT
                | TCP_KEEPCNT
                | TCP_KEEPIDLE
                | TCP_KEEPINTVL
                | TCP_NODELAY
                | TCP_QUICKACK
                | TCP_USER_TIMEOUT
        ),
        IP => matches!(name, IP_TOS | IP_MTU_DISCOVER | IP_RECVERR),
        _ => false,
    }
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn set_option(&mut self, file: u64, words: [u64; 4]) -> Answer {
        let [level, name, place, bytes] = words;
        let socket = self.socket(file)?;
        let is_near = matches!(self.streams.sockets[socket].name(), Some(Name::Unix(_)));
        if is_near && level_of(level) != SOL_SOCKET.into() {
            return Err(Errno(EOPNOTSUPP));
        }
        if let (1, Some(side)) = (level_of(level), side_of(name_of(name))) {
            return self.set_patience(socket, side, place, bytes);
        }
        let is_udp = matches!(self.streams.sockets[socket], Socket::Udp(_));
        if !is_taken(level_of(level), name_of(name)) || is_udp && level_of(level) == TCP {
            return Err(Errno(ENOPROTOOPT));
        }
        if bytes & 0xffff_ffff < 4 {
            return Err(Errno(EINVAL));
        }
        let mut value = [0; 4];
        self.read(place, &mut value)?;
        if (level_of(level), name_of(name)) == (1, SO_PASSCRED) {
            self.streams.telling[socket] = value != [0; 4];
        }
        Ok(0)
    }

    pub(super) fn option(&mut self, file: u64, words: [u64; 4]) -> Answer {
        let [level, name, to, room] = words;
        let socket = self.socket(file)?;
        let (level, name) = (level_of(level), name_of(name));
        self.check_level(socket, level)?;
        let mut has = [0; 4];
        self.read(room, &mut has)?;
        let len = u32::from_le_bytes(has);
        if len >> 31 != 0 {
            return Err(Errno(EINVAL));
        }
        let told = match (level, name) {
            (1, SO_PEERCRED) => self.peer(socket),
            (1, SO_ERROR) => [self.take_error(socket), 0, 0, 0],
            (1, name) if let Some(side) = side_of(name) => self.patience(socket, side),
            _ => [self.value(socket, level, name)?, 0, 0, 0],
        };
        let most = match (level, name) {
            (1, SO_PEERCRED) => 12,
            (1, name) if side_of(name).is_some() => 16,
            _ => 4,
        };
        let end = usize::try_from(len).unwrap_or(most).min(most);
        self.write(to, &told.map(u32::to_le_bytes).as_flattened()[..end])?;
        self.write_half(room, end as u64).map(|()| 0)
    }

    /// Has a socket options of a level that can be asked for?
    fn check_level(&self, socket: usize, level: u64) -> Result<(), Errno> {
        let it = self.streams.sockets[socket];
        let own = it.name().ok_or(Errno(ENOPROTOOPT))?;
        let protocol = match it {
            Socket::Udp(_) => UDP.into(),
            _ => TCP,
        };
        let is_near = matches!(own, Name::Unix(_));
        match level {
            1 => Ok(()),
            IP if !is_near => Ok(()),
            level if level == protocol && !is_near => Ok(()),
            _ => Err(Errno(EOPNOTSUPP)),
        }
    }

    /// The process at the other end, its user and its group; of those in the machine all are the
    /// superuser's.
    fn peer(&self, socket: usize) -> [u32; 4] {
        let with = match self.streams.sockets[socket] {
            Socket::Listens(it) if it.name.family() == AF_UNIX => it.by,
            Socket::Datagrams(it) if it.with != 0 => it.with,
            Socket::Waits { it, .. } | Socket::Connected(it) | Socket::Broken(it)
                if it.name.family() == AF_UNIX =>
            {
                it.with
            }
            _ => return [0, u32::MAX, u32::MAX, 0],
        };
        [u32::try_from(with).unwrap_or(0), 0, 0, 0]
    }

    /// Says how long calls wait at a socket on one side: without an end if that is no time.
    fn set_patience(&mut self, socket: usize, side: Side, place: u64, bytes: u64) -> Answer {
        if bytes & 0xffff_ffff < 16 || bytes >> 31 & 1 != 0 {
            return Err(Errno(EINVAL));
        }
        let (seconds, micros) = (self.word(place)?, self.word(place.wrapping_add(8))?);
        if micros >= 1_000_000 {
            return Err(Errno(EDOM));
        }
        self.streams.patience[socket][side as usize] = match (seconds, micros) {
            (0, 0) => PATIENT,
            (seconds, _) if seconds >> 63 != 0 => 0,
            (seconds, micros) => {
                let time = seconds.saturating_mul(SECOND);
                time.saturating_add(micros * MICRO)
            }
        };
        Ok(0)
    }

    /// How long they wait: seconds, and what is left in microseconds.
    fn patience(&self, socket: usize, side: Side) -> [u32; 4] {
        let time = match self.streams.patience[socket][side as usize] {
            PATIENT => 0,
            time => time,
        };
        let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(0);
        let seconds = time / SECOND;
        [
            low(seconds),
            low(seconds >> 32),
            low(time % SECOND / MICRO),
            0,
        ]
    }

    fn value(&self, socket: usize, level: u64, name: u32) -> Result<u32, Errno> {
        let it = self.streams.sockets[socket];
        let own = it.name().ok_or(Errno(ENOPROTOOPT))?;
        let listens = matches!(it, Socket::Listens(_));
        match (level, name) {
            (1, SO_DOMAIN) => Ok(own.family()),
            (1, SO_PROTOCOL) if matches!(own, Name::Unix(_)) => Ok(0),
            (1, SO_TYPE) if it.is_for_datagrams() => Ok(SOCK_DGRAM),
            (1, SO_PROTOCOL) if matches!(it, Socket::Udp(_)) => Ok(UDP),
            (1, SO_RCVBUF | SO_SNDBUF) if matches!(it, Socket::Udp(_)) => Ok(INBOX),
            (1, SO_TYPE) if it.has_packets() => Ok(SOCK_SEQPACKET),
            (1, SO_TYPE) => Ok(SOCK_STREAM),
            (1, SO_PASSCRED) => Ok(self.streams.telling[socket].into()),
            (1, SO_PROTOCOL) => Ok(6),
            (1, SO_ACCEPTCONN) => Ok(listens.into()),
            (1, SO_RCVBUF | SO_SNDBUF) => Ok(BUFFER),
            // The stack asks after silent peers, and sends at once.
            (1, SO_KEEPALIVE) | (TCP, TCP_NODELAY) => Ok(1),
            (TCP, TCP_MAXSEG) => Ok(SEGMENT),
            _ if is_taken(level, name) => Ok(0),
            _ => Err(Errno(ENOPROTOOPT)),
        }
    }
}
