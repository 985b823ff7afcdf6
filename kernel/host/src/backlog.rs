//! Room for clients that come at once to a port that is published.
//!
//! The emulator's user network listens with room for one client that it has not accepted yet. The
//! host drops the words of others, who repeat them after a second, three, seven and so on: of
//! fifty clients that come at once some wait for half a minute. A listener's room is a property of
//! the socket, and whoever has that can set it: the emulator is our child, so its sockets can be
//! had (`pidfd_getfd`), and are told to listen again.
//!
//! Not covered: hosts that do not give a parent the descriptors of its child; there it stays at
//! one.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{getsockname, listen};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::publish::{Protocol, Publish};

/// Clients that may wait to be accepted: as many as most servers let.
const ROOM: i32 = 128;

/// Gives the listeners of a child at published ports room for many clients.
///
/// # Errors
/// If the host does not let us have its sockets.
pub(crate) fn deepen(child: u32, ports: &[Publish]) -> io::Result<()> {
    let wanted = ports.iter().filter(|it| it.protocol == Protocol::Tcp);
    let wanted: Vec<SocketAddr> = wanted.map(|it| it.host.into()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    for entry in fs::read_dir(format!("/proc/{child}/fd"))? {
        let entry = entry?;
        // What is closed meanwhile is no listener.
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if !target.to_string_lossy().starts_with("socket:") {
            continue;
        }
        let number: Option<RawFd> = entry.file_name().to_str().and_then(|it| it.parse().ok());
        let number = number.ok_or(io::ErrorKind::InvalidData)?;
        let socket = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
        if listens_at(&socket, &wanted) {
            listen(&socket, ROOM)?;
        }
    }
    Ok(())
}

/// Is that a listener at one of these addresses?
fn listens_at(socket: &OwnedFd, wanted: &[SocketAddr]) -> bool {
    let address = getsockname(socket.as_fd()).ok();
    let address = address.and_then(|it| SocketAddr::try_from(it).ok());
    address.is_some_and(|it| wanted.contains(&it)) && socket_acceptconn(socket).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddrV4, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    /// With room for one the third client would not be connected before somebody accepts.
    #[test]
    fn many_clients_are_connected_before_any_is_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listen(&listener, 1).unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
            panic!("it was bound to IPv4");
        };
        let publish = |host: SocketAddrV4, protocol| Publish {
            host,
            guest: 1,
            protocol,
        };
        let ports = [publish(address, Protocol::Tcp)];
        deepen(std::process::id(), &ports).unwrap();
        let connect = || TcpStream::connect_timeout(&address.into(), Duration::from_secs(60));
        let all: Vec<_> = (0..ROOM).map(|_| connect().unwrap()).collect();
        drop(all);
    }
}
