//! Descriptors that are sent beside the bytes of messages.

use linux_raw_sys::errno::{EAGAIN, EBADF, EINVAL, ENOBUFS, EOPNOTSUPP, EPIPE, ETOOMANYREFS};
use linux_raw_sys::general as nr;
use linux_raw_sys::net::{
    AF_INET, AF_UNIX, MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT, SO_PEERCRED, SOCK_STREAM,
    SOL_SOCKET, TCP_NODELAY,
};

use super::net::{HERE, Program, bytes};
use super::threads::{call, last};
use super::{Answer, DATA, Errno, Turn, ask, map, with};

/// Where a message is, its table of pieces, and what goes beside it.
const MESSAGE: u64 = DATA + 0x580;
const TABLE: u64 = DATA + 0x5c0;
pub(super) const BESIDE: u64 = DATA + 0x600;
const AT_ONCE: u64 = MSG_DONTWAIT as u64;

pub(super) fn pair(process: Program<'_, '_>) -> (u64, u64) {
    let words = [AF_UNIX.into(), SOCK_STREAM.into(), 0, HERE];
    assert_eq!(ask(process, nr::__NR_socketpair, &words), Ok(0));
    let both = process.word(HERE).unwrap();
    (both & 0xffff_ffff, both >> 32)
}

fn pipe(process: Program<'_, '_>) -> (u64, u64) {
    assert_eq!(ask(process, nr::__NR_pipe, &[HERE]), Ok(0));
    let both = process.word(HERE).unwrap();
    (both & 0xffff_ffff, both >> 32)
}

/// Sends text with so many descriptors, of which the program has told the kind.
pub(super) fn send_as(
    process: Program<'_, '_>,
    file: u64,
    text: &[u8],
    sent: &[u64],
    kind: u64,
) -> Answer {
    process.write(HERE, text).unwrap();
    process
        .write_words(TABLE, &[HERE, text.len() as u64])
        .unwrap();
    let len = 16 + 4 * sent.len() as u64;
    process.write_words(BESIDE, &[len, kind]).unwrap();
    for (at, &number) in sent.iter().enumerate() {
        let place = BESIDE + 16 + 4 * at as u64;
        process.write(place, &number.to_le_bytes()[..4]).unwrap();
    }
    let message = [0, 0, TABLE, 1, BESIDE, len.next_multiple_of(8), 0];
    process.write_words(MESSAGE, &message).unwrap();
    ask(process, nr::__NR_sendmsg, &[file, MESSAGE, AT_ONCE])
}

pub(super) fn send(process: Program<'_, '_>, file: u64, text: &[u8], sent: &[u64]) -> Answer {
    send_as(process, file, text, sent, 1 | 1 << 32)
}

/// Receives up to so many bytes and so much beside them: what of both there was, the flags, and
/// the first descriptors.
fn receive(process: Program<'_, '_>, file: u64, most: u64, room: u64) -> (Answer, [u64; 4]) {
    receive_as(process, file, [most, room, AT_ONCE])
}

pub(super) fn receive_as(
    process: Program<'_, '_>,
    file: u64,
    [most, room, flags]: [u64; 3],
) -> (Answer, [u64; 4]) {
    process.write_words(TABLE, &[HERE, most]).unwrap();
    process.write_words(BESIDE, &[0; 8]).unwrap();
    let message = [0, 0, TABLE, 1, BESIDE, room, 0];
    process.write_words(MESSAGE, &message).unwrap();
    let answer = ask(process, nr::__NR_recvmsg, &[file, MESSAGE, flags]);
    let words = [MESSAGE + 40, MESSAGE + 48, BESIDE, BESIDE + 16];
    (answer, words.map(|at| process.word(at).unwrap()))
}

fn close(process: Program<'_, '_>, file: u64) {
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
}

fn read(process: Program<'_, '_>, file: u64, most: u64) -> Answer {
    ask(process, nr::__NR_recvfrom, &[file, HERE, most, AT_ONCE])
}

/// The program does not end by writing to what nobody reads.
fn ignore(process: Program<'_, '_>) {
    process.write_words(HERE, &[1, 0, 0, 0]).unwrap();
    let words = [nr::SIGPIPE.into(), HERE, 0, 8];
    assert_eq!(ask(process, nr::__NR_rt_sigaction, &words), Ok(0));
}

/// How many places for what is open are taken.
fn open(process: Program<'_, '_>) -> usize {
    (0..super::super::files::OPEN)
        .filter(|&place| process.files.holders(place) > 0)
        .count()
}

#[test]
fn a_descriptor_that_is_sent_is_open_for_whoever_receives_it() {
    with(|process, _| {
        let (near, far) = pair(process);
        let (reader, writer) = pipe(process);
        assert_eq!(send(process, near, b"x", &[writer, reader]), Ok(1));
        close(process, writer);
        close(process, reader);
        let (answer, told) = receive(process, far, 10, 24);
        assert_eq!((answer, told[0], told[1], told[2]), (Ok(1), 24, 0, 24));
        let (writer, reader) = (told[3] & 0xffff_ffff, told[3] >> 32);
        assert_eq!(ask(process, nr::__NR_write, &[writer, HERE, 3]), Ok(3));
        close(process, writer);
        assert_eq!(ask(process, nr::__NR_read, &[reader, HERE, 9]), Ok(3));
        assert_eq!(ask(process, nr::__NR_read, &[reader, HERE, 9]), Ok(0));
        let kept = ask(process, nr::__NR_fcntl, &[reader, nr::F_GETFD.into()]);
        assert_eq!(kept, Ok(0));
        // One that is closed when another program begins.
        assert_eq!(send(process, near, b"x", &[reader]), Ok(1));
        let words = [10, 24, AT_ONCE | u64::from(MSG_CMSG_CLOEXEC)];
        let (_, told) = receive_as(process, far, words);
        assert_eq!(told[1], MSG_CMSG_CLOEXEC.into());
        let number = told[3] & 0xffff_ffff;
        assert_eq!(
            ask(process, nr::__NR_fcntl, &[number, nr::F_GETFD.into()]),
            Ok(1)
        );
    });
}

#[test]
fn a_message_with_descriptors_is_not_read_with_what_follows_it() {
    with(|process, _| {
        let (near, far) = pair(process);
        for text in [&b"ab"[..], b"cde", b"fg", b"hi"] {
            let sent = if text.len() == 3 { &[0][..] } else { &[] };
            assert_eq!(send(process, near, text, sent), Ok(text.len() as u64));
        }
        let (answer, told) = receive(process, far, 100, 24);
        assert_eq!((answer, told[2]), (Ok(5), 20));
        assert_eq!(bytes(process, 5), b"abcde");
        assert_eq!(receive(process, far, 100, 24), (Ok(4), [0; 4]));
        // Who reads its beginning has the descriptor, and its rest is like any other bytes.
        assert_eq!(send(process, near, b"abc", &[0]), Ok(3));
        assert_eq!(send(process, near, b"de", &[]), Ok(2));
        let (answer, told) = receive(process, far, 1, 24);
        assert_eq!((answer, told[2]), (Ok(1), 20));
        assert_eq!(receive(process, far, 100, 24), (Ok(4), [0; 4]));
    });
}

#[test]
fn the_pieces_of_a_message_are_one_message() {
    with(|process, _| {
        let (near, far) = pair(process);
        assert_eq!(send(process, near, b"abcd", &[0]), Ok(4));
        assert_eq!(send(process, near, b"efgh", &[1]), Ok(4));
        process.write_words(TABLE, &[HERE, 3, HERE + 8, 3]).unwrap();
        let message = [0, 0, TABLE, 2, BESIDE, 24, 0];
        process.write_words(MESSAGE, &message).unwrap();
        let words = [far, MESSAGE, AT_ONCE];
        assert_eq!(ask(process, nr::__NR_recvmsg, &words), Ok(4));
        assert_eq!(bytes(process, 3), b"abc");
        assert_eq!(process.word(BESIDE), Ok(20));
    });
}

#[test]
fn what_there_is_no_room_for_is_closed_and_told() {
    with(|process, _| {
        let before = open(process);
        let (near, far) = pair(process);
        for (room, made) in [(0, 0), (16, 0), (20, 1), (24, 2), (64, 2)] {
            let (reader, writer) = pipe(process);
            assert_eq!(send(process, near, b"x", &[reader, writer]), Ok(1));
            close(process, reader);
            close(process, writer);
            let (answer, told) = receive(process, far, 1, room);
            let lost = if made < 2 { MSG_CTRUNC } else { 0 };
            assert_eq!((answer, told[1]), (Ok(1), lost.into()), "{room}");
            let used: u64 = if made > 0 { 16 + 4 * made } else { 0 };
            assert_eq!(
                (told[0], told[2]),
                (used.next_multiple_of(8).min(room), used)
            );
            for at in 0..made {
                close(process, told[3] >> (32 * at) & 0xffff_ffff);
            }
            assert_eq!(open(process), before + 2);
        }
        // As many as it may have: nothing more.
        let limits = [16, 16];
        process.write_words(HERE, &limits).unwrap();
        let words = [0, nr::RLIMIT_NOFILE.into(), HERE, 0];
        assert_eq!(ask(process, nr::__NR_prlimit64, &words), Ok(0));
        while ask(process, nr::__NR_dup, &[0]).is_ok() {}
        assert_eq!(send(process, near, b"x", &[1]), Ok(1));
        let (answer, told) = receive(process, far, 1, 24);
        assert_eq!((answer, told[0], told[1]), (Ok(1), 0, MSG_CTRUNC.into()));
        // By a call that has no room for any they are closed too.
        assert_eq!(send(process, near, b"x", &[1]), Ok(1));
        assert_eq!(read(process, far, 9), Ok(1));
        close(process, near);
        close(process, far);
        assert_eq!(open(process), before);
    });
}

#[test]
fn what_nobody_received_ends_with_the_socket() {
    with(|process, _| {
        ignore(process);
        let before = open(process);
        let (near, far) = pair(process);
        let (reader, writer) = pipe(process);
        assert_eq!(send(process, near, b"x", &[reader]), Ok(1));
        close(process, reader);
        assert_eq!(ask(process, nr::__NR_write, &[writer, HERE, 1]), Ok(1));
        close(process, far);
        let words = [writer, HERE, 1];
        assert_eq!(ask(process, nr::__NR_write, &words), Err(Errno(EPIPE)));
        close(process, near);
        close(process, writer);
        assert_eq!(open(process), before);
        // What has no bytes is not sent, and neither is what nobody would receive.
        let (near, far) = pair(process);
        assert_eq!(send(process, near, b"", &[0]), Ok(0));
        close(process, far);
        assert_eq!(send(process, near, b"x", &[0]), Err(Errno(EPIPE)));
        close(process, near);
        assert_eq!(open(process), before);
    });
}

#[test]
fn sockets_that_are_on_their_way_to_themselves_are_closed() {
    with(|process, _| {
        ignore(process);
        let before = open(process);
        let pipes = |process: Program<'_, '_>| {
            process
                .streams
                .pipes
                .iter()
                .filter(|it| it.readers || it.writers)
                .count()
        };
        // To itself, and two that are on their way to each other.
        let (near, far) = pair(process);
        assert_eq!(send(process, near, b"x", &[far]), Ok(1));
        assert_eq!(open(process), before + 2);
        close(process, far);
        assert_eq!(open(process), before + 1);
        close(process, near);
        assert_eq!((open(process), pipes(process)), (before, 0));
        let ((a, b), (c, d)) = (pair(process), pair(process));
        let (reader, writer) = pipe(process);
        assert_eq!(send(process, a, b"x", &[d, reader]), Ok(1));
        assert_eq!(send(process, c, b"x", &[b]), Ok(1));
        // A descriptor leads there yet.
        for file in [reader, b] {
            close(process, file);
        }
        assert_eq!((open(process), pipes(process)), (before + 6, 5));
        assert_eq!(ask(process, nr::__NR_write, &[writer, HERE, 1]), Ok(1));
        close(process, d);
        assert_eq!((open(process), pipes(process)), (before + 3, 5));
        let words = [writer, HERE, 1];
        assert_eq!(ask(process, nr::__NR_write, &words), Err(Errno(EPIPE)));
        close(process, a);
        close(process, c);
        close(process, writer);
        assert_eq!((open(process), pipes(process)), (before, 0));
    });
}

#[test]
fn a_circle_to_which_only_a_message_led_is_closed_with_the_message() {
    with(|process, _| {
        let ((near, far), (sender, itself)) = (pair(process), pair(process));
        let before = open(process);
        assert_eq!(send(process, sender, b"x", &[itself]), Ok(1));
        assert_eq!(send(process, near, b"x", &[itself]), Ok(1));
        close(process, itself);
        assert_eq!(open(process), before);
        // Who reads without room for descriptors loses the last one that anybody could have.
        assert_eq!(read(process, far, 9), Ok(1));
        assert_eq!(open(process), before - 1);
    });
}

#[test]
fn what_is_sent_outlives_its_sender() {
    with(|process, _| {
        let (near, far) = pair(process);
        let words = [far, MESSAGE, 0];
        process.write_words(TABLE, &[HERE, 9]).unwrap();
        let message = [0, 0, TABLE, 1, BESIDE, 24, 0];
        process.write_words(MESSAGE, &message).unwrap();
        assert_eq!(ask(process, nr::__NR_fork, &[]), Ok(3));
        close(process, near);
        assert_eq!(call(process, 0, nr::__NR_recvmsg, &words), Turn::Other);
        let file = [super::text(process, "/etc/text"), 0];
        let Turn::Answer(file) = call(process, 1, nr::__NR_open, &file) else {
            panic!("it is there");
        };
        process
            .write_words(BESIDE, &[20, 1 | 1 << 32, file])
            .unwrap();
        let words = [near, MESSAGE, AT_ONCE];
        assert_eq!(call(process, 1, nr::__NR_sendmsg, &words), Turn::Answer(9));
        assert_eq!(call(process, 1, nr::__NR_exit_group, &[0]), Turn::Other);
        assert_eq!(last(process), (0, 9));
        let number = process.word(BESIDE + 16).unwrap() & 0xffff_ffff;
        assert_eq!(ask(process, nr::__NR_read, &[number, HERE, 4]), Ok(4));
        assert_eq!(bytes(process, 4), b"0123");
    });
}

#[test]
fn what_cannot_be_sent_gets_the_error_of_linux() {
    with(|process, _| {
        let (near, far) = pair(process);
        assert_eq!(send(process, near, b"x", &[77]), Err(Errno(EBADF)));
        let unknown = send_as(process, near, b"x", &[1], 1 | 9 << 32);
        assert_eq!(unknown, Err(Errno(EINVAL)));
        assert_eq!(send_as(process, near, b"x", &[1], 6), Ok(1));
        for (len, room, error) in [(40, 24, EINVAL), (8, 24, EINVAL), (20, 1 << 20, ENOBUFS)] {
            process.write_words(BESIDE, &[len, 1 | 1 << 32]).unwrap();
            process.write_words(MESSAGE + 40, &[room]).unwrap();
            let sent = ask(process, nr::__NR_sendmsg, &[near, MESSAGE, 0]);
            assert_eq!(sent, Err(Errno(error)));
        }
        assert_eq!(receive(process, far, 9, 24), (Ok(1), [0; 4]));
        assert_eq!(receive(process, far, 9, 24).0, Err(Errno(EAGAIN)));
    });
}

#[test]
fn only_so_many_are_on_their_way() {
    with(|process, _| {
        let (near, far) = pair(process);
        let start = map(process, 8192, super::BOTH).unwrap();
        let many = |process: Program<'_, '_>, count: u64| {
            process.write_words(TABLE, &[HERE, 1]).unwrap();
            let message = [0, 0, TABLE, 1, start, 16 + 4 * count, 0];
            process.write_words(MESSAGE, &message).unwrap();
            let kind = [16 + 4 * count, 1 | 1 << 32];
            process.write_words(start, &kind).unwrap();
            ask(process, nr::__NR_sendmsg, &[near, MESSAGE, AT_ONCE])
        };
        assert_eq!(many(process, 254), Err(Errno(EINVAL)));
        assert_eq!(many(process, 253), Ok(1));
        assert_eq!(many(process, 4), Err(Errno(ETOOMANYREFS)));
        assert_eq!(many(process, 3), Ok(1));
        assert_eq!(read(process, far, 9), Ok(1));
        assert_eq!(many(process, 253), Ok(1));
        close(process, far);
        close(process, near);
        assert_eq!(process.files.holders(0), 1);
    });
}

#[test]
fn the_process_at_the_other_end_is_told() {
    with(|process, _| {
        let (near, _) = pair(process);
        let peer = |process: Program<'_, '_>, file: u64, room: u8| {
            process.write(HERE, &[0xff; 24]).unwrap();
            process.write(HERE + 16, &[room, 0, 0, 0]).unwrap();
            let words = [file, SOL_SOCKET.into(), SO_PEERCRED.into(), HERE, HERE + 16];
            let told = ask(process, nr::__NR_getsockopt, &words);
            assert_eq!(told, Ok(0));
            let words = [0, 8, 16].map(|at| process.word(HERE + at).unwrap());
            [words[0], words[1] & 0xffff_ffff, words[2] & 0xffff_ffff]
        };
        assert_eq!(peer(process, near, 100), [2, 0, 12]);
        assert_eq!(
            peer(process, near, 4),
            [2 | 0xffff_ffff << 32, 0xffff_ffff, 4]
        );
        for family in [AF_INET, AF_UNIX] {
            let words = [family.into(), SOCK_STREAM.into(), 0];
            let file = ask(process, nr::__NR_socket, &words).unwrap();
            assert_eq!(
                peer(process, file, 12),
                [0xffff_ffff << 32, 0xffff_ffff, 12]
            );
            let words = [file, 6, TCP_NODELAY.into(), HERE, 4];
            let set = ask(process, nr::__NR_setsockopt, &words);
            let taken = family == AF_INET;
            assert_eq!(set, if taken { Ok(0) } else { Err(Errno(EOPNOTSUPP)) });
        }
    });
}

#[test]
fn a_message_of_which_no_byte_is_wanted_gives_its_descriptors_all_the_same() {
    with(|process, _| {
        let (near, far) = pair(process);
        assert_eq!(send(process, near, b"ab", &[0]), Ok(2));
        assert_eq!(send(process, near, b"c", &[0]), Ok(1));
        let (answer, told) = receive(process, far, 0, 24);
        assert_eq!((answer, told[0], told[2]), (Ok(0), 24, 20));
        // Its bytes are there yet, and the next one is as ever.
        assert_eq!(receive(process, far, 0, 24).1[2], 0);
        let (answer, told) = receive(process, far, 1, 24);
        assert_eq!((answer, told[2]), (Ok(1), 0));
        let (answer, told) = receive(process, far, 10, 24);
        assert_eq!((answer, told[2]), (Ok(2), 20));
        assert_eq!(bytes(process, 2), b"bc");
    });
}
