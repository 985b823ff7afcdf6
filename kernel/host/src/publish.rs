//! Ports of the machine that the host offers, as containers have them: `[ADDRESS:]HOST:GUEST`, and
//! with `/udp` at the end for datagrams.
//!
//! QEMU's user network takes connections and datagrams at a port of the host and makes them in the
//! machine; it needs no rights. Only what is named is offered, at the loopback unless another
//! address is named, and nothing leads from the machine to the host or beyond it. An answer to a
//! datagram is none to that network, but one more datagram: it leaves the machine only where others
//! do.
//!
//! Not covered: addresses that are not IPv4.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::str::FromStr;

use crate::SystemError;

/// A port of the host that leads to one of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Where the host offers it.
    pub host: SocketAddrV4,
    /// The machine's port.
    pub guest: u16,
    /// By which protocol.
    pub protocol: Protocol,
}

/// How whoever is at the port is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// By connections.
    Tcp,
    /// By datagrams.
    Udp,
}

impl Protocol {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What the option has to look like.
const SHAPE: &str = "[ADDRESS:]HOST:GUEST[/udp] with an IPv4 address and two ports, like \
                     127.0.0.1:6379:6379, 8007:7 or 8053:53/udp";

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; write {SHAPE}");
        let (ports, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => return Err(wrong(&format!("'{other}' is neither tcp nor udp"))),
        };
        let mut parts = ports.rsplit(':');
        let (guest, host) = (parts.next(), parts.next());
        let host =
            host.ok_or_else(|| wrong("the port of the host or of the machine is missing"))?;
        let address = parts.next();
        if parts.next().is_some() {
            return Err(wrong("there are too many parts"));
        }
        let address = match address {
            None => Ipv4Addr::LOCALHOST,
            Some(address) => address
                .parse()
                .map_err(|_| wrong(&format!("'{address}' is no IPv4 address")))?,
        };
        let port = |text: &str| match text.parse() {
            Ok(0) => Err(wrong("port 0 is none")),
            Ok(port) => Ok(port),
            Err(_) => Err(wrong(&format!("'{text}' is no port"))),
        };
        Ok(Self {
            host: SocketAddrV4::new(address, port(host)?),
            guest: port(guest.unwrap_or_default())?,
            protocol,
        })
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.guest)?;
        match self.protocol {
            Protocol::Tcp => Ok(()),
            Protocol::Udp => write!(f, "/{}", self.protocol.name()),
        }
    }
}

/// Refuses what the emulator could not offer.
///
/// # Errors
/// If a port is named twice or cannot be had now, or no answer from there would leave the machine.
pub(crate) fn check(all: &[Publish], outgoing: bool) -> Result<(), SystemError> {
    let refuse = |it: &Publish, why: &dyn fmt::Display| {
        Err(SystemError::Setting(format!("--publish {it}: {why}")))
    };
    for (index, it) in all.iter().enumerate() {
        let same = |other: &Publish| (other.host, other.protocol) == (it.host, it.protocol);
        if all[..index].iter().any(same) {
            return refuse(it, &"this port of the host is published already");
        }
        if it.protocol == Protocol::Udp && !outgoing {
            return refuse(it, &"no answer would leave the machine: add --outgoing");
        }
        // Given back at once, and taken by the emulator: should somebody else be quicker, the
        // emulator says so.
        let taken = match it.protocol {
            Protocol::Tcp => TcpListener::bind(it.host).map(drop),
            Protocol::Udp => UdpSocket::bind(it.host).map(drop),
        };
        if let Err(error) = taken {
            let why = format!("{} cannot be offered: {error}", it.host);
            return refuse(it, &why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_meant_unless_another_address_is_named() {
        let short: Publish = "8007:7".parse().unwrap();
        assert_eq!(short.to_string(), "127.0.0.1:8007:7");
        let long: Publish = "0.0.0.0:8007:7".parse().unwrap();
        assert_eq!(long.to_string(), "0.0.0.0:8007:7");
        let datagrams: Publish = "8053:53/udp".parse().unwrap();
        assert_eq!(datagrams.to_string(), "127.0.0.1:8053:53/udp");
        assert_eq!("8007:7/tcp".parse(), Ok(short));
    }

    #[test]
    fn what_is_no_port_is_refused_by_name() {
        for (text, why) in [
            ("7", "is missing"),
            ("", "is missing"),
            (":7", "'' is no port"),
            ("8007:", "'' is no port"),
            ("8007:0", "port 0 is none"),
            ("8007:65536", "'65536' is no port"),
            ("8007:7/sctp", "'sctp' is neither tcp nor udp"),
            ("8007:7/udp/udp", "'7/udp' is no port"),
            (":8007:7", "'' is no IPv4 address"),
            ("localhost:8007:7", "'localhost' is no IPv4 address"),
            ("[::1]:8007:7", "too many parts"),
            ("1:2:3:4", "too many parts"),
        ] {
            let error = text.parse::<Publish>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("[ADDRESS:]HOST:GUEST"), "{text}: {error}");
        }
    }

    #[test]
    fn ports_that_cannot_be_had_are_refused_by_name() {
        // An address that no other test has.
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = Ipv4Addr::new(127, high, low, 53);
        let taken = TcpListener::bind((own, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let busy: Publish = format!("{own}:{port}:7").parse().unwrap();
        let error = check(&[busy], false).unwrap_err().to_string();
        assert!(
            error.contains(&format!("--publish {own}:{port}:7")),
            "{error}"
        );
        // Ports of UDP are others.
        let datagrams: Publish = format!("{own}:{port}:7/udp").parse().unwrap();
        assert!(check(&[datagrams], true).is_ok());
        let taken_too = UdpSocket::bind((own, port)).unwrap();
        let error = check(&[datagrams], true).unwrap_err().to_string();
        assert!(error.contains("cannot be offered"), "{error}");
        drop((taken, taken_too));
        let twice = check(&[busy, busy], false).unwrap_err().to_string();
        assert!(twice.contains("published already"), "{twice}");
        assert!(check(&[busy, datagrams], true).is_ok());
        let mute = check(&[datagrams], false).unwrap_err().to_string();
        assert!(
            mute.contains("7/udp") && mute.contains("add --outgoing"),
            "{mute}"
        );
    }
}
