//! Connections in the machine.

use linux_raw_sys::errno::{
    EADDRINUSE, EAGAIN, ECONNREFUSED, EINVAL, ENETUNREACH, ENOENT, ENXIO, EPIPE,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{POLLHUP, POLLIN, POLLOUT, POLLRDHUP};
use linux_raw_sys::net::{AF_UNIX, SHUT_WR, SOCK_STREAM};

use super::net::{HERE, NONBLOCK, Program, address, bind, bytes, socket};
use super::threads::{call, last};
use super::{Answer, DATA, Errno, Turn, ask, with};

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
/// Where names in the machine are.
pub(super) const NAME: u64 = DATA + 0x140;

/// Puts a name in the machine where the program has data; its bytes.
pub(super) fn label(process: Program<'_, '_>, name: &[u8]) -> u64 {
    process.write(NAME, &[1, 0]).unwrap();
    process.write(NAME + 2, name).unwrap();
    2 + name.len() as u64
}

pub(super) fn unix(process: Program<'_, '_>, flags: u64) -> u64 {
    let words = [AF_UNIX.into(), u64::from(SOCK_STREAM) | flags];
    ask(process, nr::__NR_socket, &words).unwrap()
}

pub(super) fn named(process: Program<'_, '_>, what: u32, file: u64, name: &[u8]) -> Answer {
    let len = label(process, name);
    ask(process, what, &[file, NAME, len])
}

/// A socket that listens by TCP, and does not wait.
fn server(process: Program<'_, '_>, ip: [u8; 4], port: u16) -> u64 {
    let file = socket(process, NONBLOCK).unwrap();
    assert_eq!(bind(process, file, ip, port), Ok(0));
    assert_eq!(ask(process, nr::__NR_listen, &[file, 1]), Ok(0));
    file
}

fn connect(process: Program<'_, '_>, ip: [u8; 4], port: u16) -> (u64, Answer) {
    let file = socket(process, NONBLOCK).unwrap();
    let place = address(process, ip, port);
    let answer = ask(process, nr::__NR_connect, &[file, place, 16]);
    (file, answer)
}

fn write(process: Program<'_, '_>, file: u64, text: &[u8]) -> Answer {
    process.write(HERE, text).unwrap();
    let words = [
        file,
        HERE,
        text.len() as u64,
        u64::from(linux_raw_sys::net::MSG_NOSIGNAL),
    ];
    ask(process, nr::__NR_sendto, &words)
}

fn read(process: Program<'_, '_>, file: u64) -> Answer {
    ask(process, nr::__NR_read, &[file, HERE, 100])
}

/// What poll tells of a descriptor.
pub(super) fn events(process: Program<'_, '_>, file: u64) -> u64 {
    let all = u64::from(POLLIN | POLLOUT | POLLRDHUP);
    process.write_words(HERE, &[file | all << 32]).unwrap();
    ask(process, nr::__NR_poll, &[HERE, 1, 0]).unwrap();
    process.word(HERE).unwrap() >> 48
}

pub(super) fn close(process: Program<'_, '_>, file: u64) {
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
}

#[test]
fn whoever_listens_is_reached_by_the_loopback() {
    with(|process, _| {
        let listener = server(process, LOOPBACK, 80);
        // Nobody beyond the machine reaches it.
        assert!(process.machine.net.ports.is_empty());
        assert_eq!(connect(process, LOOPBACK, 81).1, Err(Errno(ECONNREFUSED)));
        let own = [10, 0, 2, 15];
        assert_eq!(connect(process, own, 80).1, Err(Errno(ECONNREFUSED)));
        let foreign = connect(process, [9, 9, 9, 9], 80).1;
        assert_eq!(foreign, Err(Errno(ENETUNREACH)));
        let (near, answer) = connect(process, LOOPBACK, 80);
        assert_eq!(answer, Ok(0));
        assert_eq!(write(process, near, b"early"), Ok(5));
        assert_eq!(events(process, listener), POLLIN.into());
        process.write(HERE + 16, &[16]).unwrap();
        let words = [listener, HERE, HERE + 16, NONBLOCK];
        let far = ask(process, nr::__NR_accept4, &words).unwrap();
        assert_eq!(bytes(process, 8), [2, 0, 128, 0, 127, 0, 0, 1]);
        assert_eq!(
            ask(process, nr::__NR_accept, &[listener]),
            Err(Errno(EAGAIN))
        );
        for (call, port) in [
            (nr::__NR_getpeername, [0, 80]),
            (nr::__NR_getsockname, [128, 0]),
        ] {
            assert_eq!(ask(process, call, &[near, HERE, HERE + 16]), Ok(0));
            assert_eq!(bytes(process, 4)[2..], port);
        }
        assert_eq!(read(process, far), Ok(5));
        assert_eq!(bytes(process, 5), b"early");
        assert_eq!(read(process, far), Err(Errno(EAGAIN)));
        assert_eq!(write(process, far, b"back"), Ok(4));
        assert_eq!(read(process, near), Ok(4));
    });
}

#[test]
fn a_connection_ends_each_way_by_itself() {
    with(|process, _| {
        let listener = server(process, [0; 4], 80);
        let used =
            |process: Program<'_, '_>| process.machine.frames.len() - process.machine.free.len();
        let before = used(process);
        let (near, _) = connect(process, [0; 4], 80);
        let far = ask(process, nr::__NR_accept4, &[listener, 0, 0, NONBLOCK]).unwrap();
        assert_eq!(events(process, near), POLLOUT.into());
        assert_eq!(write(process, near, b"last"), Ok(4));
        let shut = [near, SHUT_WR.into()];
        assert_eq!(ask(process, nr::__NR_shutdown, &shut), Ok(0));
        assert_eq!(write(process, near, b"more"), Err(Errno(EPIPE)));
        assert_eq!(
            events(process, far),
            u64::from(POLLIN | POLLOUT | POLLRDHUP)
        );
        assert_eq!((read(process, far), read(process, far)), (Ok(4), Ok(0)));
        assert_eq!(write(process, far, b"back"), Ok(4));
        close(process, far);
        assert_eq!(read(process, near), Ok(4));
        assert_eq!(read(process, near), Ok(0));
        let all = u64::from(POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
        assert_eq!(events(process, near), all);
        close(process, near);
        assert_eq!(used(process), before, "memory is back");
        // One that nobody accepts ends with who listens.
        let (near, _) = connect(process, LOOPBACK, 80);
        close(process, listener);
        assert_eq!(read(process, near), Ok(0));
        assert_eq!(write(process, near, b"x"), Err(Errno(EPIPE)));
        assert_eq!(connect(process, LOOPBACK, 80).1, Err(Errno(ECONNREFUSED)));
    });
}

#[test]
fn so_many_wait_to_be_accepted_and_come_in_their_order() {
    with(|process, _| {
        let listener = server(process, LOOPBACK, 80);
        let first = connect(process, LOOPBACK, 80).0;
        let second = connect(process, LOOPBACK, 80).0;
        let (third, answer) = connect(process, LOOPBACK, 80);
        assert_eq!(answer, Err(Errno(EAGAIN)));
        for (file, text) in [(second, b"2"), (first, b"1")] {
            assert_eq!(write(process, file, text), Ok(1));
        }
        for text in [b"1", b"2"] {
            let far = ask(process, nr::__NR_accept, &[listener]).unwrap();
            assert_eq!(
                (read(process, far), &bytes(process, 1)[..]),
                (Ok(1), &text[..])
            );
        }
        let place = address(process, LOOPBACK, 80);
        let again = ask(process, nr::__NR_connect, &[third, place, 16]);
        assert_eq!(again, Ok(0));
    });
}

#[test]
fn names_in_the_machine_are_files_or_their_own() {
    with(|process, _| {
        for name in [&b"/etc/socket\0"[..], b"\0own"] {
            let listener = unix(process, NONBLOCK);
            let early = unix(process, 0);
            let why = if name[0] == 0 { ECONNREFUSED } else { ENOENT };
            assert_eq!(
                named(process, nr::__NR_connect, early, name),
                Err(Errno(why))
            );
            let no_name = ask(process, nr::__NR_listen, &[early, 1]);
            assert_eq!(no_name, Err(Errno(EINVAL)));
            assert_eq!(named(process, nr::__NR_bind, listener, name), Ok(0));
            let again = named(process, nr::__NR_bind, early, name);
            assert_eq!(again, Err(Errno(EADDRINUSE)));
            let refused = named(process, nr::__NR_connect, early, name);
            assert_eq!(refused, Err(Errno(ECONNREFUSED)));
            assert_eq!(ask(process, nr::__NR_listen, &[listener, 1]), Ok(0));
            assert_eq!(named(process, nr::__NR_connect, early, name), Ok(0));
            assert!(ask(process, nr::__NR_accept, &[listener]).is_ok());
            process.write(HERE + 16, &[110]).unwrap();
            let words = [early, HERE, HERE + 16];
            assert_eq!(ask(process, nr::__NR_getpeername, &words), Ok(0));
            let end = name.len() - usize::from(name[0] != 0);
            assert_eq!(&bytes(process, 2 + end)[2..], &name[..end]);
        }
        // Once its name is taken away another one can have it, and the first is reached no more.
        let path = super::text(process, "/etc/socket");
        let open = ask(process, nr::__NR_open, &[path, 0]);
        assert_eq!(open, Err(Errno(ENXIO)));
        let path = super::text(process, "/etc/socket");
        assert_eq!(ask(process, nr::__NR_unlink, &[path]), Ok(0));
        let other = unix(process, 0);
        let client = unix(process, 0);
        assert_eq!(named(process, nr::__NR_bind, other, b"/etc/socket"), Ok(0));
        let refused = named(process, nr::__NR_connect, client, b"/etc/socket");
        assert_eq!(refused, Err(Errno(ECONNREFUSED)));
    });
}

#[test]
fn a_pair_is_connected_and_shared_with_children() {
    with(|process, _| {
        let pair = [AF_UNIX.into(), SOCK_STREAM.into(), 0, HERE];
        assert_eq!(ask(process, nr::__NR_socketpair, &pair), Ok(0));
        let both = process.word(HERE).unwrap();
        let (near, far) = (both & 0xffff_ffff, both >> 32);
        assert_eq!(ask(process, nr::__NR_fork, &[]), Ok(3));
        close(process, far);
        assert_eq!(
            call(process, 0, nr::__NR_read, &[near, HERE, 8]),
            Turn::Other
        );
        assert_eq!(last(process), (1, 0));
        process.write(HERE, b"child").unwrap();
        let write = [far, HERE, 5];
        assert_eq!(call(process, 1, nr::__NR_write, &write), Turn::Answer(5));
        assert_eq!(call(process, 1, nr::__NR_exit_group, &[0]), Turn::Other);
        assert_eq!(last(process), (0, 5));
        assert_eq!(bytes(process, 5), b"child");
        assert_eq!(read(process, near), Ok(0));
    });
}

#[test]
fn what_is_no_stream_is_refused_by_name() {
    with(|process, _| {
        let words = [AF_UNIX.into(), 4, 0];
        assert!(ask(process, nr::__NR_socket, &words).is_err());
        assert!(process.machine.notes.contains("carries streams"));
    });
}
