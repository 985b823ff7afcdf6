//! Where the page is served, and by which names it may be asked for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Where `--web` listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebAddress(pub(super) SocketAddr);

impl FromStr for WebAddress {
    type Err = String;

    /// Reads `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `8080` (on the loopback).
    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        let port = port.strip_prefix(':').unwrap_or(port);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Self((Ipv4Addr::LOCALHOST, port).into()));
        }
        text.parse().map(Self).map_err(|_| {
            "expected ADDRESS:PORT with a numeric address, or a port from 0 to 65535".to_owned()
        })
    }
}

/// Whether a request for this host is for us, who listen at `own`.
///
/// A page of another site can have its own name lead to this address, and would then be allowed to
/// read what we answer. It cannot have its requests name the address itself.
pub(super) fn is_ours(host: Option<&str>, own: IpAddr) -> bool {
    let Some(name) = host.and_then(without_port) else {
        return false;
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = name.parse::<IpAddr>();
    address.is_ok_and(|address| !own.is_loopback() || address.is_loopback())
}

/// The name or address before a port, if what follows it can be one.
fn without_port(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(text) => text.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = rest.strip_prefix(':').map(str::parse::<u16>);
    (rest.is_empty() || matches!(port, Some(Ok(_)))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_the_loopback_is_the_default() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("8080", "127.0.0.1:8080"),
            (":0", "127.0.0.1:0"),
            ("[::1]:1", "[::1]:1"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(text.parse(), Ok(WebAddress(address)), "{text}");
        }
        for text in ["", "1.2.3.4", "99999", "-1", "name:1", "localhost", "::1:x"] {
            assert!(text.parse::<WebAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_addresses_and_localhost_name_us() {
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost:1",
            "LocalHost",
            "[::1]:80",
        ] {
            assert!(is_ours(Some(host), own), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1:8080",
            "",
            ":80",
            "[::1",
            "[::1]x",
            "127.0.0.1:port",
            "127.0.0.1:80:80",
            "user@127.0.0.1",
            "0x7f.1",
        ] {
            assert!(!is_ours(Some(host), own), "{host}");
        }
        assert!(!is_ours(None, own));
        let public = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        assert!(is_ours(Some("10.0.0.1:8080"), public));
        assert!(!is_ours(Some("evil.example"), public));
    }
}
