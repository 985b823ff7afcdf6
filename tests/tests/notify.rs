//! What systemd is told: readiness, status, the end, and the watchdog's food.

use std::os::unix::net::UnixDatagram;

use rcoe_tests::launch::{self, Ended, Running, signal};
use rcoe_tests::rcoe::{LIMIT, Scene, binary, events_of, until};
use rustix::process::Signal;

/// Tells what it finds of the variables, and waits.
const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n
int main(void) {
  const char *names[] = { \"NOTIFY_SOCKET\", \"WATCHDOG_USEC\", \"WATCHDOG_PID\", \"OTHER\" };
  for (int i = 0; i < 4; i++) printf(\"%d\", getenv(names[i]) != 0);
  puts(\"\");
  fflush(stdout);
  for (;;) pause();
}";

/// A service manager of our own.
struct Manager {
    scene: Scene,
    socket: UnixDatagram,
    program: String,
}

impl Manager {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("program", PROGRAM, &[]);
        let socket = UnixDatagram::bind(scene.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self {
            scene,
            socket,
            program,
        }
    }

    fn start(&self, options: &[&str]) -> Running {
        let words = [
            "/usr/bin/env".to_owned(),
            format!("NOTIFY_SOCKET={}/notify", self.scene.path().display()),
            "WATCHDOG_USEC=40000".to_owned(),
            "OTHER=1".to_owned(),
            binary().unwrap().display().to_string(),
        ];
        let rest = [
            &["run", "--events", "events"],
            options,
            &["--", &self.program],
        ]
        .concat();
        let mut argv = words.to_vec();
        argv.extend(rest.into_iter().map(str::to_owned));
        launch::start(&argv, self.scene.path(), None).unwrap()
    }

    fn next(&self) -> String {
        let mut buffer = [0; 256];
        let got = self.socket.recv(&mut buffer).expect("a message in time");
        String::from_utf8(buffer[..got].to_vec()).unwrap()
    }

    /// Waits for a message; the others up to it.
    fn expect(&self, message: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let next = self.next();
            if next == message {
                return before;
            }
            before.push(next);
        }
    }

    fn replica(&self, index: usize) -> u32 {
        let events = events_of(&self.scene.path().join("events"));
        let pid = events[0]["replicas"][index]["pid"].as_u64().unwrap();
        u32::try_from(pid).unwrap()
    }
}

fn line_of(running: &Running) -> String {
    until("the program's line", || {
        let text = running.stdout_so_far().unwrap();
        text.ends_with('\n').then_some(text)
    })
}

fn end(running: Running) {
    signal(running.pid(), Signal::TERM).unwrap();
    let outcome = running.finish(LIMIT).unwrap();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    assert_eq!(outcome.survivors, 0);
}

#[test]
fn a_service_manager_is_told_from_start_to_end() {
    let manager = Manager::new();
    let running = manager.start(&["-n", "3"]);
    manager.expect("READY=1");
    manager.expect("STATUS=3 of 3 replicas, 0 faults");
    assert_eq!(
        line_of(&running),
        "0001\n",
        "the program sees nothing of it"
    );
    manager.expect("WATCHDOG=1");
    signal(manager.replica(2), Signal::KILL).unwrap();
    manager.expect("STATUS=2 of 3 replicas, 1 faults");
    manager.expect("WATCHDOG=1");
    end(running);
    let before = manager.expect("STOPPING=1");
    assert!(!before.contains(&"READY=1".to_owned()), "{before:?}");
}

#[test]
fn the_watchdog_goes_hungry_while_nothing_gets_on() {
    let manager = Manager::new();
    // The shortest time that a replica may stand still: 30 times the timeout.
    let running = manager.start(&["-n", "1", "--timeout", "1ms"]);
    manager.expect("READY=1");
    line_of(&running);
    manager.expect("WATCHDOG=1");
    signal(manager.replica(0), Signal::STOP).unwrap();
    manager
        .socket
        .set_read_timeout(Some(std::time::Duration::from_millis(500)))
        .unwrap();
    // The last food may be under way for as long as the supervisor has not heard of the stop.
    until("silence", || manager.socket.recv(&mut [0; 256]).err());
    manager.socket.set_read_timeout(Some(LIMIT)).unwrap();
    signal(manager.replica(0), Signal::CONT).unwrap();
    manager.expect("WATCHDOG=1");
    end(running);
}

#[test]
fn the_program_can_speak_for_itself() {
    let manager = Manager::new();
    let running = manager.start(&["-n", "2", "--notify", "program"]);
    assert_eq!(line_of(&running), "1101\n");
    end(running);
    manager.socket.set_nonblocking(true).unwrap();
    assert!(
        manager.socket.recv(&mut [0; 16]).is_err(),
        "rcoe says nothing"
    );
}
