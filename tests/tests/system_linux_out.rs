//! Programs of Linux in the system sphere that connect to servers of the host.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use rcoe_tests::launch::Ended;
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::machine::{Reached, removed};
use rcoe_tests::network::CARD;
use rcoe_tests::rcoe::{LIMIT, Scene, until};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system};

/// The host's loopback, as the machine sees it.
const HOST: &str = "10.0.2.2";

const CLIENT: &str = include_str!("system_linux_out/client.c");

fn compile(scene: &Scene, name: &str, compiler: &[&str], source: &str) {
    let file = format!("{name}.c");
    scene.write(&file, source);
    let words = [compiler, &["-O1", "-w", "-o", name, &file, "-pthread"]].concat();
    let compiled = scene.run(&words);
    assert_eq!(compiled.ended, Ended::Exit(0), "{}", compiled.err());
}

/// A server at a port of the loopback that nobody else has.
fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends back what comes, so many clients one after the other.
fn echo(listener: &TcpListener, clients: usize) {
    for _ in 0..clients {
        let mut stream = accept(listener);
        let mut all = Vec::new();
        let mut reader = stream.try_clone().unwrap();
        thread::scope(|scope| {
            let (to, from) = std::sync::mpsc::channel::<Vec<u8>>();
            scope.spawn(move || {
                for part in from {
                    stream.write_all(&part).unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
            });
            let mut room = [0; 4096];
            loop {
                let count = reader.read(&mut room).unwrap();
                all.extend_from_slice(&room[..count]);
                if count == 0 {
                    break;
                }
                to.send(room[..count].to_vec()).unwrap();
            }
        });
        assert_eq!(all.len(), 150_000);
    }
}

#[test]
fn a_client_of_linux_is_served_and_refused_as_on_the_host() {
    if is_aarch64() {
        return;
    }
    for (compiler, replicas) in sampled(pairs(&[MUSL, GLIBC], &["1", "2", "3"])) {
        let scene = Scene::new();
        compile(&scene, "client", compiler, CLIENT);
        let (server, port) = listener();
        // Somebody has this port, and does not listen where it is asked for.
        let taken = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap();
        let closed = taken.local_addr().unwrap().port().to_string();
        let serving = thread::spawn(move || echo(&server, 6));
        let native = scene.run(&["./client", "127.0.0.1", &port, &closed]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let words = ["./client", HOST, &port, &closed];
        let carried = system(&scene, &["-n", replicas, "--outgoing"], &words);
        assert_alike(&carried, &native, &format!("{compiler:?} {replicas}"));
        serving.join().unwrap();
        assert!(native.out().contains("refused first: 150000 of 150000"));
    }
}

/// Asks a server to say one number after the other until it ends.
const ASKS: &str = include_str!("system_linux_out/asks.c");

/// Megabytes of a replica.
const MEGABYTES: usize = 64;

#[test]
fn replicas_of_a_client_of_linux_are_lost_and_its_server_sees_nothing_of_it() {
    if is_aarch64() {
        return;
    }
    // The first one is the primary.
    for victims in sampled(vec![[0, 1], [2, 0]]) {
        let scene = Scene::new();
        compile(&scene, "asks", MUSL, ASKS);
        let (server, port) = listener();
        let options = ["-n", "3", "--outgoing"];
        let reached = Reached::start_sized(scene, MEGABYTES, &options, &["./asks", &port]);
        let mut stream = accept(&server);
        let mut count = 0_u64;
        let mut answer = || {
            let mut asked = [0; 8];
            stream.read_exact(&mut asked).unwrap();
            assert_eq!(asked, count.to_le_bytes());
            stream.write_all(&asked).unwrap();
            count += 1;
        };
        answer();
        for (index, victim) in victims.into_iter().enumerate() {
            // It sends other frames than its siblings.
            reached.flip(victim, &CARD);
            until("the replica to be back", || {
                answer();
                (reached.brought_back() == index + 1).then_some(())
            });
        }
        answer();
        // The last question is not answered.
        let mut asked = [0; 8];
        stream.read_exact(&mut asked).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        let (outcome, events) = reached.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(removed(&events), victims.map(|victim| victim as u64));
    }
}

/// A client as people have it: busybox gets a page by HTTP.
#[test]
fn busybox_gets_a_page_from_the_host() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let (server, port) = listener();
    let page = "all of it\n".repeat(2_000);
    let text = page.clone();
    let serving = thread::spawn(move || {
        let mut stream = accept(&server);
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    });
    let address = format!("http://{HOST}:{port}/page");
    let words = ["busybox", "wget", "-q", "-O", "-", &address];
    let outcome = system(&scene, &["-n", "2", "--outgoing"], &words);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.out(), page);
    assert!(
        serving
            .join()
            .unwrap()
            .starts_with("GET /page HTTP/1.1\r\n")
    );
}

#[test]
fn without_the_option_nothing_leads_out_of_the_machine() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "asks", MUSL, ASKS);
    let (server, port) = listener();
    server.set_nonblocking(true).unwrap();
    // A port that another address has is free at this one.
    let published = format!("127.0.0.8:{port}:7");
    let without = [&["-n", "2", "--publish", &published][..], &["-n", "2"]];
    for options in without {
        let outcome = system(&scene, options, &["./asks", &port]);
        assert_eq!(outcome.ended, Ended::Exit(3), "{}", outcome.err());
        let err = outcome.err();
        assert!(err.contains("add --outgoing"), "{err}");
    }
    assert!(server.accept().is_err(), "somebody came");
    let foreign = system(&scene, &["-n", "2", "--outgoing"], &["hello"]);
    assert_eq!(foreign.ended, Ended::Exit(125));
    assert!(
        foreign.err().contains("programs of Linux"),
        "{}",
        foreign.err()
    );
}
