//! Ports of the machine that the host offers, as containers have them: `[ADDRESS:]HOST:GUEST`.
//!
//! QEMU's user network takes connections at a port of the host and makes them in the machine; it
//! needs no rights. Only what is named is offered, at the loopback unless another address is named,
//! and nothing leads from the machine to the host or beyond it.
//!
//! Not covered: UDP, and addresses that are not IPv4.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::str::FromStr;

use crate::SystemError;

/// A port of the host that leads to one of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Where the host offers it.
    pub host: SocketAddrV4,
    /// The machine's port.
    pub guest: u16,
}

/// What the option has to look like.
const SHAPE: &str = "[ADDRESS:]HOST:GUEST with an IPv4 address and two TCP ports, like \
                     127.0.0.1:6379:6379 or 8007:7";

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; write {SHAPE}");
        let mut parts = text.rsplit(':');
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
            Err(_) => Err(wrong(&format!("'{text}' is no TCP port"))),
        };
        Ok(Self {
            host: SocketAddrV4::new(address, port(host)?),
            guest: port(guest.unwrap_or_default())?,
        })
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.guest)
    }
}

/// Refuses what the emulator could not offer.
///
/// # Errors
/// If a port is named twice, or cannot be had now.
pub(crate) fn check(all: &[Publish]) -> Result<(), SystemError> {
    let refuse = |it: &Publish, why: &dyn fmt::Display| {
        Err(SystemError::Setting(format!("--publish {it}: {why}")))
    };
    for (index, it) in all.iter().enumerate() {
        if all[..index].iter().any(|other| other.host == it.host) {
            return refuse(it, &"this port of the host is published already");
        }
        // Given back at once, and taken by the emulator: should somebody else be quicker, the
        // emulator says so.
        if let Err(error) = TcpListener::bind(it.host) {
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
    }

    #[test]
    fn what_is_no_port_is_refused_by_name() {
        for (text, why) in [
            ("7", "is missing"),
            ("", "is missing"),
            (":7", "'' is no TCP port"),
            ("8007:", "'' is no TCP port"),
            ("8007:0", "port 0 is none"),
            ("8007:65536", "'65536' is no TCP port"),
            ("8007:7/udp", "'7/udp' is no TCP port"),
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
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let busy: Publish = format!("{port}:7").parse().unwrap();
        let error = check(&[busy]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("--publish 127.0.0.1:{port}:7")),
            "{error}"
        );
        drop(taken);
        let twice = check(&[busy, busy]).unwrap_err().to_string();
        assert!(twice.contains("published already"), "{twice}");
    }
}
