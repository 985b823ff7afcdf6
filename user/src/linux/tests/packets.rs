//! Connections of whole messages.

use linux_raw_sys::errno::{EAGAIN, ECONNREFUSED, EINVAL, EMSGSIZE, ENOTCONN, EPIPE, EPROTOTYPE};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{POLLHUP, POLLIN, POLLOUT, POLLRDHUP};
use linux_raw_sys::net::{AF_UNIX, SHUT_RD, SHUT_WR, SO_TYPE, SOCK_SEQPACKET, SOL_SOCKET};

use super::local::{close, events, named, unix};
use super::net::{HERE, NONBLOCK, Program, bytes};
use super::rights::{receive_as, send};
use super::{Answer, BOTH, DATA, Errno, ask, machine_uses, map, with};

fn packets(process: Program<'_, '_>) -> u64 {
    let words = [AF_UNIX.into(), u64::from(SOCK_SEQPACKET) | NONBLOCK];
    ask(process, nr::__NR_socket, &words).unwrap()
}

fn two(process: Program<'_, '_>) -> (u64, u64) {
    let words = [
        AF_UNIX.into(),
        u64::from(SOCK_SEQPACKET) | NONBLOCK,
        0,
        HERE,
    ];
    assert_eq!(ask(process, nr::__NR_socketpair, &words), Ok(0));
    let both = process.word(HERE).unwrap();
    (both & 0xffff_ffff, both >> 32)
}

fn write(process: Program<'_, '_>, file: u64, text: &[u8]) -> Answer {
    process.write(HERE, text).unwrap();
    ask(process, nr::__NR_write, &[file, HERE, text.len() as u64])
}

fn read(process: Program<'_, '_>, file: u64, most: u64) -> Answer {
    ask(process, nr::__NR_read, &[file, HERE, most])
}

#[test]
fn messages_of_a_connection_stay_whole() {
    with(|process, _| {
        let before = machine_uses(process);
        let (near, far) = two(process);
        assert_eq!(read(process, far, 9), Err(Errno(EAGAIN)));
        for text in [&b"one"[..], b"", b"three"] {
            assert_eq!(write(process, near, text), Ok(text.len() as u64));
        }
        assert_eq!(read(process, far, 9), Ok(3));
        assert_eq!(bytes(process, 3), b"one");
        assert_eq!(read(process, far, 9), Ok(0));
        assert_eq!(read(process, far, 2), Ok(2));
        assert_eq!(read(process, far, 9), Err(Errno(EAGAIN)));
        // Descriptors go with them, once each.
        assert_eq!(send(process, near, b"with", &[0, 1]), Ok(4));
        let (answer, told) = receive_as(process, far, [9, 24, 0]);
        assert_eq!((answer, told[2]), (Ok(4), 24));
        assert_eq!(send(process, near, b"lost", &[0, 1]), Ok(4));
        for file in [told[3] & 0xffff_ffff, told[3] >> 32, near, far] {
            close(process, file);
        }
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn each_end_learns_of_the_other_one() {
    with(|process, _| {
        let (near, far) = two(process);
        let start = map(process, 17 * 4096, BOTH).unwrap();
        let put = |process: Program<'_, '_>, bytes: u64| {
            ask(process, nr::__NR_write, &[near, start, bytes])
        };
        assert_eq!(put(process, 65_401), Err(Errno(EMSGSIZE)));
        assert_eq!(put(process, 65_400), Ok(65_400));
        assert_eq!(events(process, near), 0);
        assert_eq!(put(process, 0), Err(Errno(EAGAIN)));
        assert_eq!(read(process, far, 1), Ok(1));
        assert_eq!(events(process, near), POLLOUT.into());
        assert_eq!(write(process, near, b"last"), Ok(4));
        let shut = |process: Program<'_, '_>, file: u64, how: u32| {
            ask(process, nr::__NR_shutdown, &[file, how.into()])
        };
        assert_eq!(shut(process, near, SHUT_WR), Ok(0));
        assert_eq!(write(process, near, b"x"), Err(Errno(EPIPE)));
        assert_eq!(read(process, far, 9), Ok(4));
        assert_eq!(read(process, far, 9), Ok(0));
        assert_eq!(shut(process, far, SHUT_RD), Ok(0));
        assert_eq!(read(process, far, 9), Ok(0));
        assert_eq!(write(process, far, b"back"), Ok(4));
        close(process, far);
        let all = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
        assert_eq!(events(process, near), all.into());
        assert_eq!(read(process, near, 9), Ok(4));
        assert_eq!(read(process, near, 9), Ok(0));
    });
}

#[test]
fn names_lead_to_sockets_of_their_kind() {
    with(|process, _| {
        for name in [&b"/etc/packets\0"[..], b"\0packets"] {
            let is_file = name[0] != 0;
            let (server, client) = (packets(process), packets(process));
            assert_eq!(write(process, client, b"x"), Err(Errno(ENOTCONN)));
            assert_eq!(read(process, client, 9), Err(Errno(ENOTCONN)));
            let early = ask(process, nr::__NR_listen, &[server, 1]);
            assert_eq!(early, Err(Errno(EINVAL)));
            assert_eq!(named(process, nr::__NR_bind, server, name), Ok(0));
            let early = named(process, nr::__NR_connect, client, name);
            assert_eq!(early, Err(Errno(ECONNREFUSED)));
            assert_eq!(ask(process, nr::__NR_listen, &[server, 1]), Ok(0));
            let stream = unix(process, 0);
            let wrong = named(process, nr::__NR_connect, stream, name);
            let why = if is_file { EPROTOTYPE } else { ECONNREFUSED };
            assert_eq!(wrong, Err(Errno(why)));
            if !is_file {
                // A name that is no file's is another one for each kind.
                assert_eq!(named(process, nr::__NR_bind, stream, name), Ok(0));
            }
            assert_eq!(named(process, nr::__NR_bind, client, b"\0me"), Ok(0));
            assert_eq!(named(process, nr::__NR_connect, client, name), Ok(0));
            let far = ask(process, nr::__NR_accept4, &[server, 0, 0, NONBLOCK]).unwrap();
            assert_eq!(write(process, client, b"hi"), Ok(2));
            let room = DATA + 0x780;
            process.write_words(room, &[110]).unwrap();
            let words = [far, HERE, 9, 0, DATA + 0x700, room];
            assert_eq!(ask(process, nr::__NR_recvfrom, &words), Ok(2));
            assert_eq!(process.word(room), Ok(5));
            process.write_words(room, &[4]).unwrap();
            let words = [far, SOL_SOCKET.into(), SO_TYPE.into(), HERE, room];
            assert_eq!(ask(process, nr::__NR_getsockopt, &words), Ok(0));
            assert_eq!(process.word(HERE).unwrap() & 0xffff_ffff, 5);
            for file in [server, client, stream, far] {
                close(process, file);
            }
        }
    });
}
