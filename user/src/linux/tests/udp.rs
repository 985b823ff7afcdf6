//! Datagrams by UDP, in the machine and beyond it.

use std::vec::Vec;

use linux_raw_sys::errno::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, EDESTADDRREQ, EHOSTUNREACH, EINVAL,
    EMSGSIZE, ENETUNREACH, ENOTCONN, EOPNOTSUPP, EPIPE,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{POLLERR, POLLIN, POLLOUT};
use linux_raw_sys::net::{
    AF_INET, MSG_PEEK, MSG_TRUNC, SHUT_WR, SO_PROTOCOL, SO_TYPE, SOCK_DGRAM, SOL_SOCKET,
};

use super::datagrams::{FROM, ROOM, receive};
use super::net::{HERE, NOBODY, NONBLOCK, Program, address, bind, bytes};
use super::outgoing::{HOST, error, poll, with};
use super::threads::{begin, call, last};
use super::{Answer, BOTH, DATA, Errno, Turn, ask, machine_uses, map};
use crate::network::{DATAGRAM_MAX, Peer};

const HOME: [u8; 4] = [127, 0, 0, 1];
const OWN: [u8; 4] = [10, 0, 2, 15];
const ANY: [u8; 4] = [0; 4];

fn udp(process: Program<'_, '_>) -> u64 {
    let words = [AF_INET.into(), u64::from(SOCK_DGRAM) | NONBLOCK];
    ask(process, nr::__NR_socket, &words).unwrap()
}

fn send_to(process: Program<'_, '_>, file: u64, text: &[u8], to: Peer) -> Answer {
    let place = address(process, to.0, to.1);
    process.write(HERE, text).unwrap();
    let words = [file, HERE, text.len() as u64, 0, place, 16];
    ask(process, nr::__NR_sendto, &words)
}

fn send(process: Program<'_, '_>, file: u64, text: &[u8]) -> Answer {
    process.write(HERE, text).unwrap();
    ask(process, nr::__NR_write, &[file, HERE, text.len() as u64])
}

fn connect(process: Program<'_, '_>, file: u64, (ip, port): Peer) -> Answer {
    let place = address(process, ip, port);
    ask(process, nr::__NR_connect, &[file, place, 16])
}

/// Takes the next datagram: its bytes and its sender.
fn take(process: Program<'_, '_>, file: u64) -> (Vec<u8>, Peer) {
    let (count, room) = receive(process, file, 700, 0);
    assert_eq!(room, 16);
    let count = usize::try_from(count.unwrap()).unwrap();
    (bytes(process, count), name_at(process))
}

fn name_at(process: Program<'_, '_>) -> Peer {
    let mut told = [0; 8];
    process.read(FROM, &mut told).unwrap();
    let [2, 0, high, low, a, b, c, d] = told else {
        panic!("{told:?}");
    };
    ([a, b, c, d], u16::from_be_bytes([high, low]))
}

fn told_name(process: Program<'_, '_>, which: u32, file: u64) -> Result<Peer, Errno> {
    process.write_words(ROOM, &[16]).unwrap();
    ask(process, which, &[file, FROM, ROOM])?;
    Ok(name_at(process))
}

fn own(process: Program<'_, '_>, file: u64) -> Peer {
    told_name(process, nr::__NR_getsockname, file).unwrap()
}

#[test]
fn datagrams_stay_whole_between_programs_of_the_machine() {
    with(|process| {
        let before = machine_uses(process);
        let (server, client) = (udp(process), udp(process));
        assert_eq!(bind(process, server, ANY, 53), Ok(0));
        assert_eq!(receive(process, server, 9, 0).0, Err(Errno(EAGAIN)));
        assert_eq!(poll(process, server), POLLOUT);
        for text in [&b"one"[..], b"", b"three"] {
            let len = text.len() as u64;
            assert_eq!(send_to(process, client, text, (HOME, 53)), Ok(len));
        }
        let (_, port) = own(process, client);
        assert_ne!(port, 0);
        assert_eq!(poll(process, server), POLLIN | POLLOUT);
        let peek = receive(process, server, 2, MSG_PEEK | MSG_TRUNC);
        assert_eq!(peek, (Ok(3), 16));
        assert_eq!(take(process, server), (b"one".to_vec(), (HOME, port)));
        assert_eq!(take(process, server), (Vec::new(), (HOME, port)));
        assert_eq!(receive(process, server, 2, MSG_TRUNC), (Ok(5), 16));
        assert_eq!(bytes(process, 2), b"th");
        assert_eq!(receive(process, server, 9, 0).0, Err(Errno(EAGAIN)));
        // The answer finds its way, and comes from the address that was asked.
        for (at, from) in [(HOME, HOME), (ANY, HOME), (OWN, OWN)] {
            assert_eq!(send_to(process, client, b"?", (at, 53)), Ok(1));
            assert_eq!(take(process, server).1, (from, port));
            assert_eq!(send_to(process, server, b"!", (from, port)), Ok(1));
            assert_eq!(take(process, client), (b"!".to_vec(), (from, 53)));
        }
        assert!(process.machine.net.posts[0].sent.is_empty());
        for file in [server, client] {
            assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        }
        assert!(process.machine.net.posts[0].gone);
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn who_is_connected_hears_its_peer_alone_and_is_told_that_nobody_is_there() {
    with(|process| {
        let (server, client, other) = (udp(process), udp(process), udp(process));
        let empty = send(process, client, b"x");
        assert_eq!(empty, Err(Errno(EDESTADDRREQ)));
        let none = told_name(process, nr::__NR_getpeername, client);
        assert_eq!(none, Err(Errno(ENOTCONN)));
        assert_eq!(bind(process, server, HOME, 53), Ok(0));
        assert_eq!(connect(process, client, (HOME, 53)), Ok(0));
        let client_name = own(process, client);
        assert_eq!(client_name.0, HOME);
        let peer = told_name(process, nr::__NR_getpeername, client);
        assert_eq!(peer, Ok((HOME, 53)));
        assert_eq!(send(process, client, b"hello"), Ok(5));
        assert_eq!(take(process, server), (b"hello".to_vec(), client_name));
        // A stranger's is dropped, the peer's is not.
        assert_eq!(send_to(process, other, b"x", client_name), Ok(1));
        assert_eq!(receive(process, client, 9, 0).0, Err(Errno(EAGAIN)));
        assert_eq!(send_to(process, server, b"yes", client_name), Ok(3));
        assert_eq!(take(process, client).0, b"yes");
        assert_eq!(ask(process, nr::__NR_close, &[server]), Ok(0));
        for tell in [
            |process: Program<'_, '_>, file| receive(process, file, 9, 0).0,
            |process: Program<'_, '_>, file| send(process, file, b"x"),
            |process: Program<'_, '_>, file| Err(Errno(error(process, file))),
        ] {
            assert_eq!(send(process, client, b"x"), Ok(1));
            assert_eq!(poll(process, client), POLLOUT | POLLERR);
            assert_eq!(tell(process, client), Err(Errno(ECONNREFUSED)));
            assert_eq!(receive(process, client, 9, 0).0, Err(Errno(EAGAIN)));
        }
        // Who is not connected is not told.
        assert_eq!(send_to(process, other, b"x", (HOME, 53)), Ok(1));
        assert_eq!(receive(process, other, 9, 0).0, Err(Errno(EAGAIN)));
        // An address of no family ends a connection.
        process.write(HERE, &[0; 16]).unwrap();
        let words = [client, HERE, 16];
        assert_eq!(ask(process, nr::__NR_connect, &words), Ok(0));
        assert_eq!(own(process, client), (ANY, client_name.1));
        assert_eq!(send_to(process, other, b"x", client_name), Ok(1));
        assert_eq!(take(process, client).0, b"x");
    });
}

#[test]
fn what_the_network_brings_and_takes_is_whole() {
    with(|process| {
        let file = udp(process);
        assert_eq!(bind(process, file, ANY, 4000), Ok(0));
        let net = &mut process.machine.net;
        assert_eq!(net.posts[0].port, 4000);
        for text in [&b"first"[..], b"", &[7; DATAGRAM_MAX]] {
            net.posts[0].came.push_back(((HOST, 9), text.to_vec()));
        }
        assert_eq!(poll(process, file), POLLIN | POLLOUT);
        assert_eq!(take(process, file), (b"first".to_vec(), (HOST, 9)));
        assert_eq!(take(process, file), (Vec::new(), (HOST, 9)));
        let whole = receive(process, file, 9, MSG_TRUNC);
        assert_eq!(whole, (Ok(DATAGRAM_MAX as u64), 16));
        assert_eq!(bytes(process, 9), [7; 9]);
        assert_eq!(poll(process, file), POLLOUT);
        assert_eq!(send_to(process, file, b"back", (HOST, 9)), Ok(4));
        let sent = &process.machine.net.posts[0].sent;
        assert_eq!(sent[..], [((HOST, 9), b"back".to_vec())]);
        // Who says to be the machine itself is not.
        for strange in [HOME, OWN, ANY] {
            let came = &mut process.machine.net.posts[0].came;
            came.push_back(((strange, 9), b"lie".to_vec()));
            process.ready = None;
            assert_eq!(receive(process, file, 9, 0).0, Err(Errno(EAGAIN)));
        }
        let client = udp(process);
        assert_eq!(connect(process, client, (HOST, 53)), Ok(0));
        assert_eq!(own(process, client).0, OWN);
        assert_eq!(send(process, client, b"ask"), Ok(3));
        // Of strangers it hears nothing, not even that something came.
        let came = &mut process.machine.net.posts[1].came;
        came.push_back(((HOST, 54), b"no".to_vec()));
        process.ready = None;
        assert_eq!(poll(process, client), POLLOUT);
        let came = &mut process.machine.net.posts[1].came;
        came.push_back(((HOST, 53), b"yes".to_vec()));
        process.ready = None;
        assert_eq!(poll(process, client), POLLIN | POLLOUT);
        assert_eq!(take(process, client), (b"yes".to_vec(), (HOST, 53)));
    });
}

#[test]
fn names_that_others_have_or_nobody_can_have_are_refused() {
    with(|process| {
        let (one, two, three) = (udp(process), udp(process), udp(process));
        assert_eq!(bind(process, one, HOME, 53), Ok(0));
        assert_eq!(bind(process, one, HOME, 54), Err(Errno(EINVAL)));
        for ip in [HOME, ANY] {
            assert_eq!(bind(process, two, ip, 53), Err(Errno(EADDRINUSE)));
        }
        assert_eq!(bind(process, two, OWN, 53), Ok(0));
        let foreign = bind(process, three, [9; 4], 53);
        assert_eq!(foreign, Err(Errno(EADDRNOTAVAIL)));
        assert_eq!(bind(process, three, ANY, 0), Ok(0));
        assert_ne!(own(process, three).1, 0);
        // Ports of TCP are others.
        let stream = super::net::socket(process, NONBLOCK).unwrap();
        assert_eq!(bind(process, stream, ANY, 53), Ok(0));
        for call in [nr::__NR_listen, nr::__NR_accept] {
            assert_eq!(ask(process, call, &[one, 1]), Err(Errno(EOPNOTSUPP)));
        }
        for (name, value) in [(SO_TYPE, SOCK_DGRAM), (SO_PROTOCOL, 17)] {
            process.write_words(ROOM, &[4]).unwrap();
            let words = [one, SOL_SOCKET.into(), name.into(), HERE, ROOM];
            assert_eq!(ask(process, nr::__NR_getsockopt, &words), Ok(0));
            assert_eq!(process.word(HERE).unwrap() & 0xffff_ffff, value.into());
        }
    });
}

#[test]
fn what_cannot_be_sent_is_refused_by_name_and_what_has_no_room_is_dropped() {
    with(|process| {
        let (server, client) = (udp(process), udp(process));
        assert_eq!(bind(process, server, HOME, 53), Ok(0));
        for (to, why) in [
            ((NOBODY, 9), EHOSTUNREACH),
            (([255; 4], 9), EACCES),
            (([10, 0, 2, 255], 9), EACCES),
            (([224, 0, 0, 251], 9), ENETUNREACH),
            ((HOME, 0), EINVAL),
        ] {
            let sent = send_to(process, client, b"x", to);
            assert_eq!(sent, Err(Errno(why)), "{to:?}");
        }
        assert!(process.machine.notes.contains("datagrams to all"));
        // What is bound to the machine's loopback does not leave it.
        assert_eq!(
            send_to(process, server, b"x", (HOST, 9)),
            Err(Errno(EINVAL))
        );
        let start = map(process, 17 * 4096, BOTH).unwrap();
        let put = |process: Program<'_, '_>, to: Peer, bytes: u64| {
            let place = address(process, to.0, to.1);
            ask(
                process,
                nr::__NR_sendto,
                &[client, start, bytes, 0, place, 16],
            )
        };
        let long = DATAGRAM_MAX as u64 + 1;
        assert_eq!(put(process, (HOST, 9), long), Err(Errno(EMSGSIZE)));
        assert_eq!(put(process, (HOST, 9), long - 1), Ok(long - 1));
        assert_eq!(put(process, (HOME, 53), 65_508), Err(Errno(EMSGSIZE)));
        for _ in 0..4 {
            assert_eq!(put(process, (HOME, 53), 30_000), Ok(30_000));
        }
        for _ in 0..2 {
            let words = [server, start, 65_000];
            assert_eq!(ask(process, nr::__NR_read, &words), Ok(30_000));
        }
        assert_eq!(receive(process, server, 9, 0).0, Err(Errno(EAGAIN)));
        assert_eq!(connect(process, client, (HOME, 53)), Ok(0));
        let shut = [client, SHUT_WR.into()];
        assert_eq!(ask(process, nr::__NR_shutdown, &shut), Ok(0));
        assert_eq!(send(process, client, b"x"), Err(Errno(EPIPE)));
    });
}

#[test]
fn without_the_users_word_nothing_leaves_and_what_is_not_reached_is_said() {
    super::with(|process, _| {
        process.machine.net.is_cut_off = true;
        let file = udp(process);
        assert_eq!(bind(process, file, ANY, 4000), Ok(0));
        let notes = process.machine.notes.clone();
        assert!(notes.contains("--publish HOST:4000/udp"), "{notes}");
        let unreached = Err(Errno(ENETUNREACH));
        assert_eq!(send_to(process, file, b"x", (HOST, 9)), unreached);
        assert_eq!(connect(process, file, (HOST, 9)), unreached);
        let notes = process.machine.notes.clone();
        assert!(notes.contains("add --outgoing"), "{notes}");
        assert_eq!(send_to(process, file, b"self", (HOME, 4000)), Ok(4));
        assert_eq!(take(process, file), (b"self".to_vec(), (HOME, 4000)));
    });
}

#[test]
fn many_datagrams_go_and_come_by_one_call() {
    with(|process| {
        let (server, client) = (udp(process), udp(process));
        assert_eq!(bind(process, server, HOME, 53), Ok(0));
        assert_eq!(connect(process, client, (HOME, 53)), Ok(0));
        // Two messages of a table, of a piece each, in a room of which they share the bytes.
        let (table, pieces) = (DATA + 0x500, DATA + 0x600);
        process.write(HERE, b"abcdef").unwrap();
        process
            .write_words(pieces, &[HERE, 2, HERE + 2, 4])
            .unwrap();
        for at in 0..2 {
            let message = [0, 0, pieces + 16 * at, 1, 0, 0, 0, 0];
            process.write_words(table + 64 * at, &message).unwrap();
        }
        let sent = [client, table, 2, 0];
        assert_eq!(ask(process, nr::__NR_sendmmsg, &sent), Ok(2));
        assert_eq!(process.word(table + 64 + 56), Ok(4));
        let waiting = |process: Program<'_, '_>| {
            let words = [server, linux_raw_sys::ioctl::FIONREAD.into(), ROOM];
            assert_eq!(ask(process, nr::__NR_ioctl, &words), Ok(0));
            process.word(ROOM).unwrap() & 0xffff_ffff
        };
        assert_eq!(waiting(process), 2);
        let came = [server, table, 3, 0x10000, 0];
        assert_eq!(ask(process, nr::__NR_recvmmsg, &came), Ok(2));
        assert_eq!(waiting(process), 0);
        let none = ask(process, nr::__NR_recvmmsg, &came);
        assert_eq!(none, Err(Errno(EAGAIN)));
        let refused = [server, table, 3, MSG_PEEK.into(), 0];
        let answer = ask(process, nr::__NR_recvmmsg, &refused);
        assert_eq!(answer, Err(Errno(EOPNOTSUPP)));
        // When its time is over it takes no more than it has to wait for.
        assert_eq!(ask(process, nr::__NR_sendmmsg, &sent), Ok(2));
        let time = DATA + 0x700;
        process.write_words(time, &[0, 0]).unwrap();
        let first = [server, table, 2, 0, time];
        assert_eq!(ask(process, nr::__NR_recvmmsg, &first), Ok(1));
        process.write_words(time, &[9, 0]).unwrap();
        let rest = [server, table, 1, 0, time];
        assert_eq!(ask(process, nr::__NR_recvmmsg, &rest), Ok(1));
        assert_eq!(process.word(time), Ok(8));
        process.write_words(time, &[0, 1_000_000_000]).unwrap();
        let wrong = ask(process, nr::__NR_recvmmsg, &first);
        assert_eq!(wrong, Err(Errno(EINVAL)));
        // Nothing goes beside a datagram.
        process.write_words(table + 32, &[DATA, 32]).unwrap();
        let beside = ask(process, nr::__NR_sendmsg, &[client, table, 0]);
        assert_eq!(beside, Err(Errno(EINVAL)));
    });
}

#[test]
fn who_waits_for_a_datagram_gets_it_and_one_that_closes_disturbs_nobody() {
    with(|process| {
        let (server, client) = (udp(process), udp(process));
        assert_eq!(bind(process, server, ANY, 53), Ok(0));
        let patient = [server, nr::F_SETFL.into(), 0];
        assert_eq!(ask(process, nr::__NR_fcntl, &patient), Ok(0));
        begin(process, 0);
        let words = [server, HERE, 9];
        assert_eq!(call(process, 0, nr::__NR_read, &words), Turn::Other);
        let place = address(process, HOME, 53);
        let words = [client, DATA, 4, 0, place, 16];
        let sent = call(process, 1, nr::__NR_sendto, &words);
        assert_eq!(sent, Turn::Answer(4));
        let close = call(process, 1, nr::__NR_close, &[client]);
        assert_eq!(close, Turn::Answer(0));
        assert_eq!(call(process, 1, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (0, 4));
    });
}

#[test]
fn a_name_without_bytes_is_no_name() {
    const MESSAGE: u64 = DATA + 0x580;
    with(|process| {
        let (server, client) = (udp(process), udp(process));
        assert_eq!(bind(process, server, ANY, 53), Ok(0));
        let place = address(process, HOME, 53);
        let send = |process: Program<'_, '_>, bytes: u64| {
            let table = MESSAGE + 56;
            let message = [place, bytes, table, 1, 0, 0, 0, HERE, 2];
            process.write_words(MESSAGE, &message).unwrap();
            ask(process, nr::__NR_sendmsg, &[client, MESSAGE, 0])
        };
        assert_eq!(send(process, 0), Err(Errno(EDESTADDRREQ)));
        assert_eq!(send(process, 15), Err(Errno(EINVAL)));
        assert_eq!(send(process, u64::from(u32::MAX)), Err(Errno(EINVAL)));
        assert_eq!(connect(process, client, (HOME, 53)), Ok(0));
        assert_eq!(send(process, 0), Ok(2));
        // As if by `sendto`, which takes a name for one however short it is.
        let words = [client, HERE, 2, 0, place, 0];
        let sent = ask(process, nr::__NR_sendto, &words);
        assert_eq!(sent, Err(Errno(EINVAL)));
    });
}
