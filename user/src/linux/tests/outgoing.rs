//! Connections that a program asks others for: made, refused, never answered, and given up.

use linux_raw_sys::errno::{
    EADDRNOTAVAIL, EAGAIN, EALREADY, ECONNREFUSED, EINPROGRESS, EISCONN, ENETUNREACH, ENOTCONN,
    EOPNOTSUPP, ETIMEDOUT,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT};
use linux_raw_sys::net::{MSG_PEEK, SO_ERROR, SO_SNDTIMEO_NEW, SOL_SOCKET};
use rcoe_abi::bundle::Word;

use super::net::{HERE, NONBLOCK, Program, address, bind, bytes, socket};
use super::{Answer, DATA, Errno, ask, bundle, with_bundle};
use crate::socket::SocketError;

/// The host, as the machine sees it.
pub(super) const HOST: [u8; 4] = [10, 0, 2, 2];

/// A program of a machine that leads to others.
pub(super) fn with(act: impl FnOnce(Program<'_, '_>)) {
    let mut bytes = bundle();
    bytes[Word::Network as usize * 8..][..8].copy_from_slice(&2_u64.to_le_bytes());
    with_bundle(&bytes, |process, _| act(process));
}

fn connect(process: Program<'_, '_>, file: u64) -> Answer {
    let place = address(process, HOST, 80);
    ask(process, nr::__NR_connect, &[file, place, 16])
}

/// A socket that asks and does not wait; its descriptor, and its wire.
fn asking(process: Program<'_, '_>) -> (u64, usize) {
    let file = socket(process, NONBLOCK).unwrap();
    assert_eq!(connect(process, file), Err(Errno(EINPROGRESS)));
    (file, process.machine.net.wires.len() - 1)
}

fn came(process: Program<'_, '_>, wire: usize, of: Result<(), SocketError>) {
    process.machine.net.wires[wire].came = Some(of);
    process.ready = None;
}

pub(super) fn poll(process: Program<'_, '_>, file: u64) -> u32 {
    let wanted = u64::from(POLLIN | POLLOUT);
    let table = DATA + 0x200;
    process.write_words(table, &[file | wanted << 32]).unwrap();
    ask(process, nr::__NR_poll, &[table, 1, 0]).unwrap();
    u32::try_from(process.word(table).unwrap() >> 48).unwrap()
}

pub(super) fn error(process: Program<'_, '_>, file: u64) -> u32 {
    process.write(HERE + 8, &[4, 0, 0, 0]).unwrap();
    let words = [file, SOL_SOCKET.into(), SO_ERROR.into(), HERE, HERE + 8];
    assert_eq!(ask(process, nr::__NR_getsockopt, &words), Ok(0));
    u32::try_from(process.word(HERE).unwrap() & 0xffff_ffff).unwrap()
}

#[test]
fn who_waits_is_connected_or_told_why_not() {
    with(|process| {
        for (of, answer) in [
            (Ok(()), Ok(0)),
            (Err(SocketError::Refused), Err(Errno(ECONNREFUSED))),
            (Err(SocketError::Unanswered), Err(Errno(ETIMEDOUT))),
        ] {
            let file = socket(process, 0).unwrap();
            process.machine.net.promised.push_back(of);
            assert_eq!(connect(process, file), answer);
            let wire = process.machine.net.wires.len() - 1;
            assert_eq!(process.machine.net.wires[wire].asked.unwrap().0, (HOST, 80));
            assert_eq!(process.machine.net.wires[wire].gone, of.is_err());
            if of.is_ok() {
                assert_eq!(connect(process, file), Err(Errno(EISCONN)));
                continue;
            }
            // One that was refused can ask again.
            process.machine.net.promised.push_back(Ok(()));
            assert_eq!(connect(process, file), Ok(0));
            assert!(!process.machine.net.wires[wire + 1].gone);
        }
        // Nobody waits longer than the program says.
        let file = socket(process, 0).unwrap();
        process.write_words(HERE, &[3, 0]).unwrap();
        let words = [file, SOL_SOCKET.into(), SO_SNDTIMEO_NEW.into(), HERE, 16];
        assert_eq!(ask(process, nr::__NR_setsockopt, &words), Ok(0));
        let before = process.machine.now;
        assert_eq!(connect(process, file), Err(Errno(EINPROGRESS)));
        assert!(process.machine.now - before >= 3_000_000_000);
    });
}

#[test]
fn who_does_not_wait_is_told_by_polls_and_by_the_next_call() {
    with(|process| {
        let (file, wire) = asking(process);
        assert_eq!(connect(process, file), Err(Errno(EALREADY)));
        assert_eq!(poll(process, file), 0);
        assert_eq!(error(process, file), 0);
        for call in [nr::__NR_read, nr::__NR_write] {
            assert_eq!(ask(process, call, &[file, HERE, 1]), Err(Errno(EAGAIN)));
        }
        let name = [file, HERE, HERE + 16];
        assert_eq!(
            ask(process, nr::__NR_getpeername, &name),
            Err(Errno(ENOTCONN))
        );
        process.write(HERE + 16, &[16]).unwrap();
        assert_eq!(ask(process, nr::__NR_getsockname, &name), Ok(0));
        assert_eq!(bytes(process, 8)[4..], [10, 0, 2, 15]);
        came(process, wire, Ok(()));
        assert_eq!(poll(process, file), POLLOUT);
        assert_eq!(error(process, file), 0);
        assert_eq!(connect(process, file), Ok(0));
        assert_eq!(connect(process, file), Err(Errno(EISCONN)));
        assert_eq!(ask(process, nr::__NR_getpeername, &name), Ok(0));
        assert_eq!(bytes(process, 8), [2, 0, 0, 80, 10, 0, 2, 2]);
        // And whoever just uses it needs no word.
        let (file, wire) = asking(process);
        came(process, wire, Ok(()));
        process.machine.net.wires[wire].incoming.extend(b"abc");
        let peek = [file, HERE, 3, MSG_PEEK.into()];
        assert_eq!(
            ask(process, nr::__NR_recvfrom, &peek),
            Err(Errno(EOPNOTSUPP))
        );
        assert_eq!(ask(process, nr::__NR_read, &[file, HERE, 9]), Ok(3));
        process.write(HERE, b"word").unwrap();
        assert_eq!(ask(process, nr::__NR_write, &[file, HERE, 4]), Ok(4));
        assert_eq!(process.machine.net.wires[wire].outgoing, b"word");
        assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        assert!(process.machine.net.wires[wire].gone);
    });
}

#[test]
fn who_was_refused_is_told_once_and_may_ask_again() {
    with(|process| {
        let tellers: [fn(Program<'_, '_>, u64) -> Answer; 4] = [
            |process, file| Err(Errno(error(process, file))),
            connect,
            |process, file| ask(process, nr::__NR_read, &[file, HERE, 1]),
            |process, file| ask(process, nr::__NR_write, &[file, HERE, 1]),
        ];
        for tell in tellers {
            let (file, wire) = asking(process);
            came(process, wire, Err(SocketError::Refused));
            let events = poll(process, file);
            let all = POLLIN | POLLOUT | POLLERR | POLLHUP;
            assert_eq!(events & all, all);
            assert!(process.machine.net.wires[wire].gone);
            assert_eq!(tell(process, file), Err(Errno(ECONNREFUSED)));
            assert_eq!(error(process, file), 0);
            let read = [file, HERE, 1];
            assert_eq!(ask(process, nr::__NR_read, &read), Err(Errno(ENOTCONN)));
            assert_eq!(connect(process, file), Err(Errno(EINPROGRESS)));
        }
        // Without a poll, too.
        let (file, wire) = asking(process);
        came(process, wire, Err(SocketError::Unanswered));
        assert_eq!(error(process, file), ETIMEDOUT);
        assert_eq!(error(process, file), 0);
    });
}

#[test]
fn who_shuts_down_or_closes_asks_no_more() {
    with(|process| {
        let (file, wire) = asking(process);
        assert_eq!(
            ask(process, nr::__NR_shutdown, &[file, 2]),
            Err(Errno(ENOTCONN))
        );
        assert!(process.machine.net.wires[wire].gone);
        assert_eq!(connect(process, file), Err(Errno(EINPROGRESS)));
        assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        assert!(process.machine.net.wires[wire + 1].gone);
    });
}

#[test]
fn a_name_is_kept_and_nobody_else_gets_it() {
    with(|process| {
        let file = socket(process, NONBLOCK).unwrap();
        assert_eq!(bind(process, file, [0; 4], 4000), Ok(0));
        assert_eq!(connect(process, file), Err(Errno(EINPROGRESS)));
        let wire = process.machine.net.wires.len() - 1;
        assert_eq!(
            process.machine.net.wires[wire].asked,
            Some(((HOST, 80), 4000))
        );
        came(process, wire, Err(SocketError::Refused));
        assert_eq!(error(process, file), ECONNREFUSED);
        // The same peer from the same port: the machine has such a connection still.
        assert_eq!(connect(process, file), Err(Errno(EADDRNOTAVAIL)));
        let other = socket(process, 0).unwrap();
        let taken = bind(process, other, [0; 4], 4000);
        assert_eq!(taken, Err(Errno(linux_raw_sys::errno::EADDRINUSE)));
    });
}

#[test]
fn nothing_leads_out_of_a_machine_unless_the_user_wants_that() {
    super::with(|process, _| {
        let file = socket(process, 0).unwrap();
        assert_eq!(connect(process, file), Err(Errno(ENETUNREACH)));
        let noted = process.machine.notes.clone();
        assert!(noted.contains("add --outgoing"), "{noted}");
        assert!(process.machine.net.wires.is_empty());
    });
}
