//! Who sent a message.

use linux_raw_sys::errno::{EINVAL, ESRCH, ETOOMANYREFS};
use linux_raw_sys::general as nr;
use linux_raw_sys::net::{
    AF_UNIX, MSG_CTRUNC, SO_PASSCRED, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOL_SOCKET,
};

use super::local::close;
use super::net::{HERE, Program};
use super::rights::{BESIDE, receive_as, send_as};
use super::{Answer, Errno, ask, machine_uses, with};

/// What a program says of who sends.
const SAID: u64 = 1 | 2 << 32;

fn two(process: Program<'_, '_>, kind: u32) -> (u64, u64) {
    let words = [AF_UNIX.into(), kind.into(), 0, HERE];
    assert_eq!(ask(process, nr::__NR_socketpair, &words), Ok(0));
    let both = process.word(HERE).unwrap();
    (both & 0xffff_ffff, both >> 32)
}

fn set(process: Program<'_, '_>, file: u64, on: u64) {
    process.write_words(HERE, &[on]).unwrap();
    let words = [file, SOL_SOCKET.into(), SO_PASSCRED.into(), HERE, 4];
    assert_eq!(ask(process, nr::__NR_setsockopt, &words), Ok(0));
}

/// Says that some process sends, of some user and group.
fn say(process: Program<'_, '_>, file: u64, who: [u64; 3]) -> Answer {
    send_as(process, file, b"said", &who, SAID)
}

/// Receives; the flags, and who sent it.
fn hear(process: Program<'_, '_>, file: u64, room: u64) -> (u64, [u64; 3]) {
    let (answer, told) = receive_as(process, file, [9, room, 0]);
    assert_eq!(answer, Ok(4));
    let group = process.word(BESIDE + 24).unwrap() & 0xffff_ffff;
    (told[1], [told[3] & 0xffff_ffff, told[3] >> 32, group])
}

#[test]
fn a_program_says_who_sends_if_that_can_be() {
    for kind in [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET] {
        with(|process, _| {
            let before = machine_uses(process);
            let (near, far) = two(process, kind);
            set(process, far, 1);
            for (who, error) in [
                ([77, 0, 0], ESRCH),
                ([2, u32::MAX.into(), 0], EINVAL),
                ([2, 0, u32::MAX.into()], EINVAL),
            ] {
                assert_eq!(say(process, near, who), Err(Errno(error)));
            }
            let short = send_as(process, near, b"said", &[2, 0], SAID);
            assert_eq!(short, Err(Errno(EINVAL)));
            assert_eq!(say(process, near, [2, 5, 6]), Ok(4));
            assert_eq!(hear(process, far, 64), (0, [2, 5, 6]));
            let plain = |process: Program<'_, '_>, file: u64| {
                assert_eq!(ask(process, nr::__NR_write, &[file, HERE, 4]), Ok(4));
            };
            plain(process, near);
            assert_eq!(hear(process, far, 64), (0, [2, 0, 0]));
            plain(process, near);
            assert_eq!(hear(process, far, 20), (MSG_CTRUNC.into(), [2, 0, 0]));
            plain(process, near);
            assert_eq!(hear(process, far, 8).0, MSG_CTRUNC.into());
            plain(process, far);
            set(process, near, 1);
            // Nobody had asked for it when that was sent, but who sent it tells.
            assert_eq!(hear(process, near, 64), (0, [2, 0, 0]));
            set(process, far, 0);
            set(process, near, 0);
            plain(process, far);
            set(process, near, 1);
            assert_eq!(hear(process, near, 64), (0, [0, 65_534, 65_534]));
            close(process, near);
            close(process, far);
            assert_eq!(machine_uses(process), before);
        });
    }
}

#[test]
fn senders_of_one_stream_are_told_apart_up_to_a_limit() {
    with(|process, _| {
        let (near, far) = two(process, SOCK_STREAM);
        set(process, far, 1);
        for user in 0..256 {
            assert_eq!(say(process, near, [2, user, 0]), Ok(4));
        }
        assert_eq!(say(process, near, [2, 255, 0]), Ok(4));
        let more = say(process, near, [2, 256, 0]);
        assert_eq!(more, Err(Errno(ETOOMANYREFS)));
        assert_eq!(hear(process, far, 64), (0, [2, 0, 0]));
        assert_eq!(say(process, near, [2, 256, 0]), Ok(4));
        // What two have sent comes by two calls; what one has, by one.
        set(process, far, 0);
        assert_eq!(ask(process, nr::__NR_read, &[far, HERE, 12]), Ok(12));
        set(process, far, 1);
        let (answer, told) = receive_as(process, far, [90, 64, 0]);
        assert_eq!((answer, told[3] >> 32), (Ok(4), 4));
    });
}
