//! Datagrams in the machine.

use linux_raw_sys::errno::{
    EADDRINUSE, EAGAIN, ECONNREFUSED, EMSGSIZE, ENOENT, ENOTCONN, EOPNOTSUPP, EPERM, EPIPE,
    EPROTOTYPE,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{POLLIN, POLLOUT};
use linux_raw_sys::net::{
    AF_UNIX, MSG_PEEK, MSG_TRUNC, SHUT_RD, SHUT_WR, SO_TYPE, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET,
};

use super::local::{NAME, close, events, label, named, unix};
use super::net::{HERE, NONBLOCK, Program, bytes};
use super::rights::{receive_as, send};
use super::threads::{begin, call, last};
use super::{Answer, BOTH, DATA, Errno, Turn, ask, machine_uses, map, with};

pub(super) const FROM: u64 = DATA + 0x700;
pub(super) const ROOM: u64 = DATA + 0x780;

fn datagrams(process: Program<'_, '_>) -> u64 {
    let words = [AF_UNIX.into(), u64::from(SOCK_DGRAM) | NONBLOCK];
    ask(process, nr::__NR_socket, &words).unwrap()
}

fn two(process: Program<'_, '_>) -> (u64, u64) {
    let words = [AF_UNIX.into(), u64::from(SOCK_DGRAM) | NONBLOCK, 0, HERE];
    assert_eq!(ask(process, nr::__NR_socketpair, &words), Ok(0));
    let both = process.word(HERE).unwrap();
    (both & 0xffff_ffff, both >> 32)
}

fn write(process: Program<'_, '_>, file: u64, text: &[u8]) -> Answer {
    process.write(HERE, text).unwrap();
    ask(process, nr::__NR_write, &[file, HERE, text.len() as u64])
}

fn send_to(process: Program<'_, '_>, file: u64, text: &[u8], name: &[u8]) -> Answer {
    let len = label(process, name);
    process.write(HERE, text).unwrap();
    let words = [file, HERE, text.len() as u64, 0, NAME, len];
    ask(process, nr::__NR_sendto, &words)
}

/// Receives, and tells how long the name of the sender is.
pub(super) fn receive(process: Program<'_, '_>, file: u64, most: u64, flags: u32) -> (Answer, u64) {
    process.write_words(ROOM, &[110]).unwrap();
    let words = [file, HERE, most, flags.into(), FROM, ROOM];
    let answer = ask(process, nr::__NR_recvfrom, &words);
    (answer, process.word(ROOM).unwrap())
}

#[test]
fn each_message_comes_by_itself_and_is_cut_to_what_there_is_room_for() {
    with(|process, _| {
        let before = machine_uses(process);
        let (near, far) = two(process);
        assert_eq!(receive(process, far, 9, 0).0, Err(Errno(EAGAIN)));
        assert_eq!(events(process, far), POLLOUT.into());
        for text in [&b"one"[..], b"", b"three", b"four"] {
            assert_eq!(write(process, near, text), Ok(text.len() as u64));
        }
        assert_eq!(events(process, far), (POLLIN | POLLOUT).into());
        assert_eq!(receive(process, far, 2, MSG_PEEK | MSG_TRUNC), (Ok(3), 0));
        assert_eq!(receive(process, far, 9, 0), (Ok(3), 0));
        assert_eq!(bytes(process, 3), b"one");
        assert_eq!(receive(process, far, 9, 0), (Ok(0), 0));
        let (answer, told) = receive_as(process, far, [2, 0, 0]);
        assert_eq!(
            (answer, told[1], bytes(process, 2)),
            (Ok(2), MSG_TRUNC.into(), b"th".to_vec())
        );
        assert_eq!(ask(process, nr::__NR_read, &[far, HERE, 9]), Ok(4));
        assert_eq!(
            ask(process, nr::__NR_read, &[far, HERE, 9]),
            Err(Errno(EAGAIN))
        );
        assert_eq!(write(process, near, b"lost"), Ok(4));
        close(process, near);
        close(process, far);
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn pieces_are_one_message_each_way() {
    with(|process, _| {
        let (near, far) = two(process);
        process.write(HERE, b"abcdef").unwrap();
        process.write_words(FROM, &[HERE, 2, HERE + 3, 3]).unwrap();
        assert_eq!(ask(process, nr::__NR_writev, &[near, FROM, 2]), Ok(5));
        assert_eq!(write(process, near, b"more"), Ok(4));
        process
            .write_words(FROM, &[HERE + 8, 3, HERE + 16, 9])
            .unwrap();
        let words = [FROM - 0x80, 0];
        process
            .write_words(words[0], &[0, 0, FROM, 2, 0, 0, 0])
            .unwrap();
        assert_eq!(ask(process, nr::__NR_recvmsg, &[far, words[0], 0]), Ok(5));
        assert_eq!(&bytes(process, 18)[8..11], b"abd");
        assert_eq!(&bytes(process, 18)[16..], b"ef");
        process.write_words(FROM, &[HERE, 2, HERE + 8, 9]).unwrap();
        assert_eq!(ask(process, nr::__NR_readv, &[far, FROM, 2]), Ok(4));
    });
}

#[test]
fn names_lead_to_datagrams_and_senders_are_told() {
    with(|process, _| {
        for name in [&b"/etc/log\0"[..], b"\0log"] {
            let (server, client) = (datagrams(process), datagrams(process));
            let missing = if name[0] == 0 { ECONNREFUSED } else { ENOENT };
            let early = send_to(process, client, b"x", name);
            assert_eq!(early, Err(Errno(missing)));
            assert_eq!(named(process, nr::__NR_bind, server, name), Ok(0));
            let again = named(process, nr::__NR_bind, client, name);
            assert_eq!(again, Err(Errno(EADDRINUSE)));
            assert_eq!(send_to(process, client, b"hi", name), Ok(2));
            assert_eq!(receive(process, server, 9, 0), (Ok(2), 0));
            assert_eq!(named(process, nr::__NR_bind, client, b"\0me"), Ok(0));
            assert_eq!(write(process, client, b"x"), Err(Errno(ENOTCONN)));
            assert_eq!(named(process, nr::__NR_connect, client, name), Ok(0));
            assert_eq!(write(process, client, b"hello"), Ok(5));
            assert_eq!(receive(process, server, 9, 0), (Ok(5), 5));
            let mut told = [0; 5];
            process.read(FROM, &mut told).unwrap();
            assert_eq!(&told, b"\x01\0\0me");
            // A stream is something else.
            let stream = unix(process, 0);
            let wrong = named(process, nr::__NR_connect, stream, name);
            let why = if name[0] == 0 {
                ECONNREFUSED
            } else {
                EPROTOTYPE
            };
            assert_eq!(wrong, Err(Errno(why)));
            close(process, server);
            assert_eq!(write(process, client, b"x"), Err(Errno(ECONNREFUSED)));
            assert_eq!(write(process, client, b"x"), Err(Errno(ENOTCONN)));
            for file in [client, stream] {
                close(process, file);
            }
        }
        let (listener, client) = (unix(process, 0), datagrams(process));
        for file in [listener, client] {
            assert_eq!(named(process, nr::__NR_bind, file, b"\0both"), Ok(0));
        }
        close(process, listener);
        let listener = unix(process, 0);
        assert_eq!(
            named(process, nr::__NR_bind, listener, b"/etc/stream\0"),
            Ok(0)
        );
        let wrong = named(process, nr::__NR_connect, client, b"/etc/stream\0");
        assert_eq!(wrong, Err(Errno(EPROTOTYPE)));
        assert_eq!(
            ask(process, nr::__NR_listen, &[client, 1]),
            Err(Errno(EOPNOTSUPP))
        );
        assert_eq!(
            ask(process, nr::__NR_accept, &[client]),
            Err(Errno(EOPNOTSUPP))
        );
        process.write_words(ROOM, &[4]).unwrap();
        let words = [client, SOL_SOCKET.into(), SO_TYPE.into(), HERE, ROOM];
        assert_eq!(ask(process, nr::__NR_getsockopt, &words), Ok(0));
        assert_eq!(process.word(HERE).unwrap() & 0xffff_ffff, SOCK_DGRAM.into());
        assert_ne!(SOCK_DGRAM, SOCK_STREAM);
    });
}

#[test]
fn one_that_is_connected_hears_its_peer_alone() {
    with(|process, _| {
        let (a, b, c) = (datagrams(process), datagrams(process), datagrams(process));
        assert_eq!(named(process, nr::__NR_bind, a, b"\0a"), Ok(0));
        assert_eq!(named(process, nr::__NR_bind, b, b"\0b"), Ok(0));
        assert_eq!(named(process, nr::__NR_connect, a, b"\0b"), Ok(0));
        assert_eq!(send_to(process, c, b"x", b"\0a"), Err(Errno(EPERM)));
        let wrong = named(process, nr::__NR_connect, c, b"\0a");
        assert_eq!(wrong, Err(Errno(EPERM)));
        assert_eq!(send_to(process, b, b"x", b"\0a"), Ok(1));
        // An address of no family ends that.
        process.write(NAME, &[0, 0]).unwrap();
        assert_eq!(ask(process, nr::__NR_connect, &[a, NAME, 2]), Ok(0));
        assert_eq!(send_to(process, c, b"x", b"\0a"), Ok(1));
        let words = [a, FROM, ROOM];
        assert_eq!(
            ask(process, nr::__NR_getpeername, &words),
            Err(Errno(ENOTCONN))
        );
    });
}

#[test]
fn what_is_full_has_its_sender_wait_and_what_is_too_long_is_refused() {
    with(|process, _| {
        let (near, far) = two(process);
        let start = map(process, 17 * 4096, BOTH).unwrap();
        let put = |process: Program<'_, '_>, bytes: u64| {
            ask(process, nr::__NR_write, &[near, start, bytes])
        };
        assert_eq!(put(process, 65_536), Err(Errno(EMSGSIZE)));
        assert!(process.machine.notes.contains("datagrams"));
        assert_eq!(put(process, 40_000), Ok(40_000));
        assert_eq!(put(process, 40_000), Err(Errno(EAGAIN)));
        assert_eq!(put(process, 24_000), Ok(24_000));
        assert_eq!(events(process, near), 0);
        let none = ask(process, nr::__NR_fcntl, &[near, nr::F_SETFL.into(), 0]);
        assert_eq!(none, Ok(0));
        begin(process, 0);
        let words = [near, start, 30_000];
        assert_eq!(call(process, 0, nr::__NR_write, &words), Turn::Other);
        let words = [far, start, 65_000];
        let read = call(process, 1, nr::__NR_read, &words);
        assert_eq!(read, Turn::Answer(40_000));
        assert_eq!(call(process, 1, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (0, 30_000));
        for length in [24_000, 30_000] {
            let words = [far, start, 65_000];
            assert_eq!(ask(process, nr::__NR_read, &words), Ok(length));
        }
        assert_eq!(ask(process, nr::__NR_read, &words), Err(Errno(EAGAIN)));
    });
}

#[test]
fn sides_are_closed_and_descriptors_go_with_datagrams() {
    with(|process, _| {
        let (near, far) = two(process);
        assert_eq!(send(process, near, b"", &[0, 1]), Ok(0));
        assert_eq!(send(process, near, b"next", &[]), Ok(4));
        let (answer, told) = receive_as(process, far, [9, 24, 0]);
        assert_eq!((answer, told[2]), (Ok(0), 24));
        assert_eq!(receive_as(process, far, [9, 24, 0]), (Ok(4), [0; 4]));
        let shut = |process: Program<'_, '_>, file: u64, how: u32| {
            ask(process, nr::__NR_shutdown, &[file, how.into()])
        };
        assert_eq!(shut(process, near, SHUT_WR), Ok(0));
        assert_eq!(write(process, near, b"x"), Err(Errno(EPIPE)));
        assert_eq!(write(process, far, b"x"), Ok(1));
        assert_eq!(shut(process, near, SHUT_RD), Ok(0));
        assert_eq!(write(process, far, b"x"), Err(Errno(EPIPE)));
        assert_eq!(receive(process, near, 9, 0).0, Ok(1));
        assert_eq!(receive(process, near, 9, 0).0, Ok(0));
        let alone = datagrams(process);
        assert_eq!(shut(process, alone, SHUT_RD), Err(Errno(ENOTCONN)));
    });
}
