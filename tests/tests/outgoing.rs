//! Writes to connections that leave later: many with one rendezvous, and nobody can tell.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rcoe_tests::launch::{self, Ended, Outcome, Running};
use rcoe_tests::memory::{of_agent, peek, poke, symbol};
use rcoe_tests::rcoe::{Group, Scene};
use rustix::process::Signal;

const SOURCE: &str = include_str!("outgoing/peer.c");
/// Within which anything that comes at all has come.
const LIMIT: Duration = Duration::from_secs(120);
/// What is written before the program does what its mode says.
const GREETING: &str = "one two three ";

/// A program in one of its modes, and where it connects to.
struct Peer {
    scene: Scene,
    program: String,
    listener: TcpListener,
}

impl Peer {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("peer", SOURCE, &["-no-pie"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            scene,
            program,
            listener,
        }
    }

    fn port(&self) -> String {
        self.listener.local_addr().unwrap().port().to_string()
    }

    fn start(&self, options: &[&str], mode: &str) -> Running {
        let port = self.port();
        let mut arguments = vec!["run", "--stats"];
        arguments.extend(options);
        arguments.extend(["--", &*self.program, &*port, mode]);
        self.scene.start(&arguments)
    }

    fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }
}

fn end(running: Running) -> Outcome {
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.survivors, 0, "{}", outcome.err());
    outcome
}

/// A counter of `--stats`, of the last replica but one.
fn counter(outcome: &Outcome, name: &str) -> u64 {
    counter_of(outcome, name, 1)
}

/// The same, of the one with so many behind it.
fn counter_of(outcome: &Outcome, name: &str, behind: usize) -> u64 {
    let errors = outcome.err();
    let line = errors.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {errors}"));
    let word = line.split_whitespace().nth_back(behind);
    word.unwrap().parse().unwrap()
}

/// Answers of sixteen connections in twenty rounds.
fn echo(peer: &Peer, options: &[&str]) -> Outcome {
    let running = peer.start(options, "rounds");
    let mut streams: Vec<TcpStream> = (0..16).map(|_| peer.accept()).collect();
    for round in 0..20 {
        let word = |at: usize| format!("round {round} of {at:02}");
        for (at, stream) in streams.iter_mut().enumerate() {
            stream.write_all(word(at).as_bytes()).unwrap();
        }
        for (at, stream) in streams.iter_mut().enumerate() {
            let expected = format!("<{}", word(at));
            let mut answer = vec![0; expected.len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(String::from_utf8_lossy(&answer), expected);
        }
    }
    drop(streams);
    let outcome = end(running);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    outcome
}

#[test]
fn a_server_answers_many_with_few_rendezvous() {
    let peer = Peer::new();
    for replicas in ["2", "3"] {
        let outcome = echo(&peer, &["-n", replicas]);
        // Each connection's first two writes are made at once, and some when room is asked for
        // anew.
        assert!(counter(&outcome, "effects released later") >= 16 * 9);
    }
    let outcome = echo(&peer, &["-n", "2", "--defer", "off"]);
    assert_eq!(counter(&outcome, "effects released later"), 0);
    assert!(counter(&outcome, "rendezvous  ") >= 16 * 20);
}

#[test]
fn a_file_for_each_answer_is_closed_without_a_rendezvous() {
    let peer = Peer::new();
    for (replicas, most) in [("1", 0), ("2", 150), ("3", 350)] {
        let running = peer.start(&["-n", replicas], "files");
        let mut said = String::new();
        peer.accept().read_to_string(&mut said).unwrap();
        assert_eq!(said.len(), GREETING.len() + 200);
        let outcome = end(running);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        // With three replicas each file is opened after a vote.
        let met = counter_of(&outcome, "rendezvous  ", 0);
        assert!(met <= most, "{replicas}: {}", outcome.err());
    }
}

#[test]
fn groups_that_cannot_defer_answer_all_the_same() {
    let peer = Peer::new();
    for options in [
        &["-n", "1"][..],
        &["-n", "2", "--compare", "every"],
        &["-n", "3", "--compare", "every"],
    ] {
        let outcome = echo(&peer, options);
        let errors = outcome.err();
        let mut lines = errors.lines();
        let line = lines.find(|line| line.starts_with("effects released later"));
        let all = line.unwrap().split_whitespace().skip(3);
        assert!(all.into_iter().all(|count| count == "0"), "{errors}");
    }
}

#[test]
fn a_program_that_computes_keeps_nothing_back() {
    let peer = Peer::new();
    for replicas in ["2", "3"] {
        let running = peer.start(&["-n", replicas], "compute");
        let mut stream = peer.accept();
        let expected = format!("{GREETING}last");
        let mut said = vec![0; expected.len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said), expected);
        assert!(!running.has_ended(), "it computes for ever");
        launch::signal(running.pid(), Signal::TERM).unwrap();
        assert_eq!(end(running).ended, Ended::Signal(15));
    }
}

#[test]
fn whatever_ends_a_connection_comes_after_what_was_written() {
    let peer = Peer::new();
    for (mode, ended) in [
        ("exit", Ended::Exit(0)),
        ("close", Ended::Exit(0)),
        ("fault", Ended::Signal(11)),
        ("kill", Ended::Signal(9)),
        ("exec", Ended::Exit(0)),
        ("replace", Ended::Exit(0)),
    ] {
        for replicas in ["2", "3"] {
            let running = peer.start(&["-n", replicas], mode);
            let mut said = String::new();
            peer.accept().read_to_string(&mut said).unwrap();
            assert_eq!(said, format!("{GREETING}last"), "{mode}");
            assert_eq!(end(running).ended, ended, "{mode}");
        }
    }
}

#[test]
fn half_a_connection_is_closed_after_what_was_written() {
    let peer = Peer::new();
    let running = peer.start(&["-n", "2"], "shutdown");
    let mut said = String::new();
    peer.accept().read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{GREETING}last"));
    assert!(!running.has_ended(), "it is only its end of writing");
    launch::signal(running.pid(), Signal::TERM).unwrap();
    assert_eq!(end(running).ended, Ended::Signal(15));
}

#[test]
fn a_child_speaks_in_its_turn() {
    let peer = Peer::new();
    let running = peer.start(&["-n", "2"], "family");
    let mut said = String::new();
    peer.accept().read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{GREETING}parent child parent again"));
    assert_eq!(end(running).ended, Ended::Exit(0));
}

#[test]
fn nothing_waits_on_a_connection_that_was_sent_to_somebody() {
    let peer = Peer::new();
    let running = peer.start(&["-n", "2"], "sent");
    let mut said = String::new();
    peer.accept().read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{GREETING}{}", "more ".repeat(50)));
    let outcome = end(running);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(
        counter(&outcome, "effects released later"),
        1,
        "the third word"
    );
}

#[test]
fn a_program_reads_at_once_what_it_wrote_to_itself() {
    let scene = Scene::new();
    let program = scene.compile("peer", SOURCE, &[]);
    let native = scene.like_native("exec \"$@\"", &[&program, "0", "own"]);
    assert_eq!(native.out(), "read all\n", "{}", native.err());
}

#[test]
fn a_program_finds_ready_what_it_wrote_to_itself() {
    let scene = Scene::new();
    let program = scene.compile("peer", SOURCE, &["-pthread"]);
    for mode in ["looks", "thread"] {
        let native = scene.like_native("exec \"$@\"", &[&program, "0", mode]);
        assert_eq!(native.out(), "all ready\n", "{mode}: {}", native.err());
    }
}

#[test]
fn a_peer_that_does_not_read_gets_what_was_accepted_and_no_more() {
    let peer = Peer::new();
    let running = peer.start(&["-n", "2"], "full");
    let mut stream = peer.accept();
    let total: usize = loop {
        let told = running.stdout_so_far().unwrap();
        if let Some(line) = told.strip_suffix('\n') {
            break line.parse().unwrap();
        }
        assert!(!running.has_ended(), "{}", running.stderr_so_far().unwrap());
        std::thread::yield_now();
    };
    let mut said = vec![0; total];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said[..GREETING.len()], GREETING.as_bytes());
    let blocks = said[GREETING.len()..].chunks(1000);
    for (block, letter) in blocks.zip((b'a'..=b'z').cycle()) {
        assert!(block.iter().all(|&byte| byte == letter), "in order");
    }
    stream.set_nonblocking(true).unwrap();
    let more = stream.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(more, Err(std::io::ErrorKind::WouldBlock), "nothing else");
    stream.write_all(b"go").unwrap();
    let outcome = end(running);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert!(counter(&outcome, "effects released later") > 0);
}

#[test]
fn a_program_hears_that_its_peer_has_gone() {
    let peer = Peer::new();
    for options in [&["-n", "2", "--defer", "off"][..], &["-n", "2"]] {
        let running = peer.start(options, "gone");
        let mut stream = peer.accept();
        let mut said = [0; GREETING.len()];
        stream.read_exact(&mut said).unwrap();
        // All was read, so this is no reset; what is written from here on is answered by one.
        drop(stream);
        let outcome = end(running);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), "2 errors, signalled\n", "{options:?}");
    }
}

#[test]
fn a_stream_hears_nothing_of_one_that_had_its_number() {
    let source = include_str!("outgoing/reused.c");
    Scene::new().program_like_native("reused", source, &[]);
}

/// A program of three replicas that has greeted and computes until it is told to go on.
struct Told {
    group: Group,
    stream: TcpStream,
    /// Where it looks whether it is told.
    go: u64,
}

impl Told {
    /// It has said so much before.
    fn start(peer: &Peer, options: &[&str], mode: &str, said: usize) -> Self {
        let port = peer.port();
        let command = [&*peer.program, &*port, mode];
        let group = peer.scene.start_group(options, &command);
        let mut stream = peer.accept();
        stream.read_exact(&mut vec![0; said]).unwrap();
        let go = symbol(&peer.program, "go");
        Self { group, stream, go }
    }

    fn tell(&self, replica: u32, word: u64) {
        poke(replica, self.go, &word.to_le_bytes()).unwrap();
    }

    /// Waits until this replica keeps the last word; where it does.
    fn await_last(&self, replica: u32) -> u64 {
        self.await_word(replica, 0, b"last")
    }

    /// The same of any word, behind so many bytes.
    fn await_word(&self, replica: u32, behind: usize, word: &[u8]) -> u64 {
        let (buffer, _) = of_agent(replica, "5queue6BUFFER");
        let buffer = buffer + behind as u64;
        let began = Instant::now();
        while !peek(replica, buffer).to_le_bytes().starts_with(word) {
            assert!(!self.group.running.has_ended() && began.elapsed() < LIMIT);
            std::thread::yield_now();
        }
        buffer
    }

    /// Its primary is lost, and the others go on; the rest of what it says.
    #[track_caller]
    fn without(self, primary: u32, others: &[u32]) -> String {
        launch::signal(primary, Signal::KILL).unwrap();
        for &replica in others {
            launch::signal(replica, Signal::CONT).unwrap();
            self.tell(replica, 2);
        }
        let (more, outcome) = self.finish();
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        more
    }

    /// The rest of what it says, and how it ends.
    fn finish(mut self) -> (String, Outcome) {
        let (outcome, _) = self.group.finish();
        let mut more = String::new();
        self.stream.read_to_string(&mut more).unwrap();
        (more, outcome)
    }
}

/// Bytes that it has said before it is told anything.
const LONG: usize = GREETING.len() + 20_000 + "four five ".len();
const THREE: &[&str] = &["-n", "3", "--no-reintegrate", "--timeout", "60s"];

#[test]
fn a_successor_releases_what_a_lost_primary_has_not() {
    let told = Told::start(&Peer::new(), THREE, "told", LONG);
    let [primary, successor, other] = told.group.replicas[..] else {
        panic!("three replicas");
    };
    // One does not come to the write, so it waits.
    launch::signal(other, Signal::STOP).unwrap();
    for replica in [primary, successor] {
        told.tell(replica, 1);
        told.await_last(replica);
    }
    assert_eq!(told.without(primary, &[successor, other]), "last");
}

#[test]
fn a_successor_does_not_release_again() {
    let mut told = Told::start(&Peer::new(), THREE, "told", LONG);
    let [primary, successor, other] = told.group.replicas[..] else {
        panic!("three replicas");
    };
    for replica in [primary, successor, other] {
        told.tell(replica, 1);
    }
    let mut last = [0; 4];
    told.stream.read_exact(&mut last).unwrap();
    assert_eq!(&last, b"last");
    let more = told.without(primary, &[successor, other]);
    assert_eq!(more, "", "it has left before");
}

#[test]
fn a_successor_takes_out_what_was_read_and_not_more() {
    for early in [false, true] {
        let mut told = Told::start(&Peer::new(), THREE, "reads", GREETING.len());
        let [primary, successor, other] = told.group.replicas[..] else {
            panic!("three replicas");
        };
        told.stream.write_all(b"hello").unwrap();
        if early {
            told.tell(other, 1);
        } else {
            // One does not come to the read, so nothing is taken out yet.
            launch::signal(other, Signal::STOP).unwrap();
        }
        for replica in [primary, successor] {
            told.tell(replica, 1);
            told.await_word(replica, "three ".len(), b"word, ");
        }
        let mut word = vec![0; if early { "word, ".len() } else { 0 }];
        told.stream.read_exact(&mut word).unwrap();
        let more = told.without(primary, &[successor, other]);
        let said = format!("{}{more}", String::from_utf8_lossy(&word));
        assert_eq!(said, "word, no more", "early: {early}");
    }
}

#[test]
fn a_successor_closes_what_a_lost_primary_has_not() {
    for early in [false, true] {
        let mut told = Told::start(&Peer::new(), THREE, "closes", GREETING.len());
        let [primary, successor, other] = told.group.replicas[..] else {
            panic!("three replicas");
        };
        if early {
            told.tell(other, 1);
        } else {
            // One does not come to the end of the file, so that is still open.
            launch::signal(other, Signal::STOP).unwrap();
        }
        for replica in [primary, successor] {
            told.tell(replica, 1);
            told.await_last(replica);
        }
        let mut word = vec![0; if early { "last".len() } else { 0 }];
        told.stream.read_exact(&mut word).unwrap();
        let more = told.without(primary, &[successor, other]);
        let said = format!("{}{more}", String::from_utf8_lossy(&word));
        assert_eq!(said, "last same", "early: {early}");
    }
}

#[test]
fn what_changes_in_a_primary_leaves_as_it_was() {
    let told = Told::start(&Peer::new(), THREE, "told", LONG);
    let [primary, successor, other] = told.group.replicas[..] else {
        panic!("three replicas");
    };
    launch::signal(other, Signal::STOP).unwrap();
    for replica in [primary, successor] {
        told.tell(replica, 1);
        told.await_last(replica);
    }
    poke(primary, told.await_last(primary), b"m").unwrap();
    launch::signal(other, Signal::CONT).unwrap();
    told.tell(other, 1);
    for &replica in &told.group.replicas {
        told.tell(replica, 2);
    }
    let (more, outcome) = told.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(more, "last");
}

#[test]
fn what_changes_while_it_waits_does_not_leave() {
    let told = Told::start(&Peer::new(), &["-n", "2", "--timeout", "60s"], "told", LONG);
    let [primary, follower] = told.group.replicas[..] else {
        panic!("two replicas");
    };
    // The follower does not come to the write, so it waits in the primary.
    launch::signal(follower, Signal::STOP).unwrap();
    told.tell(primary, 1);
    poke(primary, told.await_last(primary), b"m").unwrap();
    told.tell(follower, 1);
    launch::signal(follower, Signal::CONT).unwrap();
    told.tell(follower, 2);
    told.tell(primary, 2);
    let (more, outcome) = told.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    assert_eq!(more, "", "neither the wrong word nor the right one");
}
