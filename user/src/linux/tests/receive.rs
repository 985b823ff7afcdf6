//! Receiving the whole of what was asked for, looking at it without taking it, and for how long.

use linux_raw_sys::errno::{EAGAIN, EDOM, EINVAL, EOPNOTSUPP};
use linux_raw_sys::general as nr;
use linux_raw_sys::net::{
    AF_UNIX, MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, SO_RCVTIMEO, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET,
};

use super::net::{HERE, NONBLOCK, Program, bytes, client, server};
use super::rights::{BESIDE, pair, receive_as, send};
use super::threads::{begin, call, failed, last};
use super::{Answer, DATA, Errno, Turn, ask, with};

const TIME: u64 = DATA + 0x700;
const PEEK: u64 = MSG_PEEK as u64;
const ALL: u64 = MSG_WAITALL as u64;
const AT_ONCE: u64 = MSG_DONTWAIT as u64;

fn receive(process: Program<'_, '_>, file: u64, most: u64, flags: u64) -> Answer {
    ask(process, nr::__NR_recvfrom, &[file, HERE, most, flags])
}

#[test]
fn what_is_looked_at_is_there_yet_with_what_came_beside_it() {
    with(|process, _| {
        let (near, far) = pair(process);
        assert_eq!(receive(process, far, 9, PEEK | AT_ONCE), Err(Errno(EAGAIN)));
        assert_eq!(send(process, near, b"ab", &[]), Ok(2));
        assert_eq!(send(process, near, b"cd", &[0, 1]), Ok(2));
        assert_eq!(send(process, near, b"ef", &[]), Ok(2));
        assert_eq!(receive(process, far, 1, PEEK), Ok(1));
        for _ in 0..2 {
            let (answer, told) = receive_as(process, far, [9, 24, PEEK]);
            assert_eq!((answer, told[2]), (Ok(4), 24));
            assert_eq!(bytes(process, 4), b"abcd");
            for number in [told[3] & 0xffff_ffff, told[3] >> 32] {
                assert_eq!(ask(process, nr::__NR_close, &[number]), Ok(0));
            }
        }
        // Pieces of one look lie behind each other.
        process
            .write_words(BESIDE, &[HERE, 1, HERE + 1, 2])
            .unwrap();
        let message = BESIDE + 0x40;
        process
            .write_words(message, &[0, 0, BESIDE, 2, 0, 0, 0])
            .unwrap();
        let words = [far, message, PEEK];
        assert_eq!(ask(process, nr::__NR_recvmsg, &words), Ok(3));
        assert_eq!(bytes(process, 3), b"abc");
        let (answer, told) = receive_as(process, far, [9, 24, 0]);
        assert_eq!((answer, told[2]), (Ok(4), 24));
        assert_eq!(receive(process, far, 9, 0), Ok(2));
        assert_eq!(process.files.holders(0), 2);
    });
}

#[test]
fn who_wants_all_waits_until_it_is_there_or_will_never_be() {
    with(|process, _| {
        let (near, far) = pair(process);
        begin(process, 0);
        let wait = [far, HERE + 8, 6, ALL];
        let write = |process: Program<'_, '_>, text: &[u8]| {
            process.write(HERE, text).unwrap();
            let words = [near, HERE, text.len() as u64];
            let sent = call(process, 1, nr::__NR_write, &words);
            assert_eq!(sent, Turn::Answer(text.len() as u64));
        };
        assert_eq!(call(process, 0, nr::__NR_recvfrom, &wait), Turn::Other);
        write(process, b"abc");
        // The other thread is the only one that can go on.
        let turn = call(process, 1, nr::__NR_sched_yield, &[]);
        assert_eq!(turn, Turn::Answer(0));
        write(process, b"defgh");
        assert_eq!(call(process, 1, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (0, 6));
        assert_eq!(&bytes(process, 14)[8..], b"abcdef");
        // What is there is not all, for one that does not wait; and what ends is all there is.
        assert_eq!(receive(process, far, 9, ALL | AT_ONCE), Ok(2));
        assert_eq!(call(process, 0, nr::__NR_recvfrom, &wait), Turn::Other);
        write(process, b"xy");
        let turn = call(process, 1, nr::__NR_close, &[near]);
        assert_eq!(turn, Turn::Answer(0));
        assert_eq!(call(process, 1, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (0, 2));
    });
}

#[test]
fn a_message_with_descriptors_is_all_that_there_is() {
    with(|process, _| {
        let (near, far) = pair(process);
        assert_eq!(send(process, near, b"abc", &[0]), Ok(3));
        let (answer, told) = receive_as(process, far, [9, 24, ALL]);
        assert_eq!((answer, told[2]), (Ok(3), 20));
    });
}

#[test]
fn a_socket_waits_as_long_as_its_program_says() {
    with(|process, _| {
        let (near, far) = pair(process);
        let set = |process: Program<'_, '_>, name: u32, time: [u64; 2], bytes: u64| {
            process.write_words(TIME, &time).unwrap();
            let words = [far, SOL_SOCKET.into(), name.into(), TIME, bytes];
            ask(process, nr::__NR_setsockopt, &words)
        };
        assert_eq!(
            set(process, SO_RCVTIMEO, [0, 1_000_000], 16),
            Err(Errno(EDOM))
        );
        assert_eq!(set(process, SO_RCVTIMEO, [0, 1], 8), Err(Errno(EINVAL)));
        assert_eq!(set(process, SO_RCVTIMEO, [2, 5000], 16), Ok(0));
        process.write_words(TIME + 16, &[100]).unwrap();
        let words = [far, SOL_SOCKET.into(), SO_RCVTIMEO.into(), TIME, TIME + 16];
        assert_eq!(ask(process, nr::__NR_getsockopt, &words), Ok(0));
        let told = [0, 8, 16].map(|at| process.word(TIME + at).unwrap());
        assert_eq!(told, [2, 5000, 16]);
        let began = process.machine.now;
        assert_eq!(receive(process, far, 9, 0), Err(Errno(EAGAIN)));
        let waited = process.machine.now - began;
        assert!((2_005_000_000..2_005_001_000).contains(&waited), "{waited}");
        assert_eq!(send(process, near, b"ab", &[]), Ok(2));
        assert_eq!(receive(process, far, 9, ALL), Ok(2));
        // The other side has its own; and one that does not wait at all is there too.
        let minus = u64::MAX;
        assert_eq!(set(process, SO_SNDTIMEO, [minus, 0], 16), Ok(0));
        let words = [far, DATA, 4096];
        while ask(process, nr::__NR_write, &words).is_ok() {}
        let words = [far, DATA, 4096];
        assert_eq!(ask(process, nr::__NR_write, &words), Err(Errno(EAGAIN)));
        // Another socket at the same place waits without an end.
        for file in [near, far] {
            assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        }
        let words = [AF_UNIX.into(), SOCK_STREAM.into(), 0, HERE];
        assert_eq!(ask(process, nr::__NR_socketpair, &words), Ok(0));
        let far = process.word(HERE).unwrap() >> 32;
        begin(process, 0);
        let words = [far, HERE, 9, 0];
        assert_eq!(call(process, 0, nr::__NR_recvfrom, &words), Turn::Other);
        assert_ne!(last(process), (0, failed(EAGAIN)));
    });
}

#[test]
fn what_came_from_beyond_the_machine_is_taken_at_once() {
    with(|process, _| {
        let listener = server(process);
        let (wire, file) = client(process, listener, NONBLOCK);
        process.machine.net.wires[wire].incoming.extend(b"hello");
        assert_eq!(receive(process, file, 9, PEEK), Err(Errno(EOPNOTSUPP)));
        assert!(process.machine.notes.contains("MSG_PEEK"));
        assert_eq!(receive(process, file, 5, ALL), Ok(5));
    });
}
