//! Where a run can be asked: addresses, and sockets bound to them.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rcoe_http::Door;

/// Where `--metrics` listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    /// Reads `127.0.0.1:9464`, `[::1]:9464`, `9464` (on the loopback), `unix:PATH`, or a path with
    /// a slash in it.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            return Ok(Self::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            "expected ADDRESS:PORT with a numeric address, a port, or unix:PATH".to_owned()
        })
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What a listener answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// `/metrics`.
    Metrics,
    /// `/status` and `/metrics`.
    Everything,
}

/// A bound socket; the file of a unix socket goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    door: Door,
    pub(crate) offer: Offer,
    file: Option<PathBuf>,
}

impl Listener {
    /// Listens for scrapers.
    pub(crate) fn metrics(address: &MetricsAddress) -> io::Result<Self> {
        let (door, file) = match address {
            MetricsAddress::Tcp(address) => (Door::tcp(*address)?, None),
            MetricsAddress::Unix(path) => {
                clear_stale(path)?;
                let path = std::path::absolute(path)?;
                (bind_private(&path)?, Some(path))
            }
        };
        Ok(Self {
            door,
            offer: Offer::Metrics,
            file,
        })
    }

    /// Listens under a path that is free or holds what nobody needs.
    pub(crate) fn status(path: PathBuf) -> io::Result<Self> {
        let making = path.with_extension("new");
        // Left by one that had this process id and was killed here.
        let _ = std::fs::remove_file(&making);
        let door = bind_private(&making)?;
        // Whoever finds the name can connect.
        std::fs::rename(&making, &path)?;
        Ok(Self {
            door,
            offer: Offer::Everything,
            file: Some(path),
        })
    }

    /// The address as bound: a port of 0 has become a real one.
    pub(crate) fn address(&self) -> io::Result<MetricsAddress> {
        match &self.file {
            None => self.door.address().map(MetricsAddress::Tcp),
            Some(file) => Ok(MetricsAddress::Unix(file.clone())),
        }
    }

    /// Removes the file of a unix socket; who is connected stays so.
    pub(crate) fn unlink(&self) {
        if let Some(file) = &self.file {
            // Somebody may have removed it before.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl AsRef<Door> for Listener {
    fn as_ref(&self) -> &Door {
        &self.door
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// A unix socket that only this user can connect to.
fn bind_private(path: &Path) -> io::Result<Door> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Door::unix(listener)
}

/// Removes a socket on which nobody listens; anything else under the name is an error.
fn clear_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
            std::fs::remove_file(path)
        }
        // Whatever else is there, binding tells.
        Err(_) => Ok(()),
    }
}

/// Whether the file itself is a socket.
pub(super) fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.symlink_metadata()
        .is_ok_and(|it| it.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_the_loopback_is_the_default() {
        let tcp = |text: &str| MetricsAddress::Tcp(text.parse().expect("an address"));
        for (text, address) in [
            ("127.0.0.1:9464", tcp("127.0.0.1:9464")),
            ("9464", tcp("127.0.0.1:9464")),
            (":0", tcp("127.0.0.1:0")),
            ("[::1]:1", tcp("[::1]:1")),
            ("0.0.0.0:80", tcp("0.0.0.0:80")),
            ("unix:m", MetricsAddress::Unix("m".into())),
            ("/run/m", MetricsAddress::Unix("/run/m".into())),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        for text in ["", "localhost:1", "1.2.3.4", "unix:", "99999", "name"] {
            assert!(text.parse::<MetricsAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("m");
        let address = MetricsAddress::Unix(path.clone());
        drop(UnixListener::bind(&path).expect("bound"));
        let listener = Listener::metrics(&address).expect("the stale one is replaced");
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = Listener::metrics(&address).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists(), "the file goes with the listener");
        std::fs::write(&path, "data").expect("written");
        assert!(Listener::metrics(&address).is_err());
        assert_eq!(std::fs::read(&path).expect("still there"), b"data");
    }
}
