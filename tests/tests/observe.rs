//! What an operator sees of a running job: metrics, the live view, and the events of a removal.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::{Group, LIMIT, Scene, events_of, until};
use rcoe_tests::victim::Victim;
use rcoe_tests::watched::{Watched, ask};
use rustix::process::Signal;
use serde_json::Value;

fn get(address: &str, path: &str) -> String {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    ask(
        stream,
        &format!("GET {path} HTTP/1.1\r\nHost: rcoe\r\n\r\n"),
    )
}

/// The value of a sample with these labels.
fn sample(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    value.trim().parse().unwrap()
}

/// Where a run with `--metrics` of port 0 says that it listens.
fn bound(events: &Path) -> String {
    until("the address", || {
        let event = events_of(events)
            .into_iter()
            .find(|it| it["type"] == "metrics")?;
        let address = event["address"].as_str()?;
        Some(
            address
                .strip_prefix("http://")?
                .strip_suffix("/metrics")?
                .to_owned(),
        )
    })
}

#[test]
fn metrics_tell_what_happened() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "3", "--timeout", "30s", "--metrics", "0"]);
    let address = bound(&group.events);
    assert!(
        group.running.stderr_so_far().unwrap().contains(&address),
        "told to the user"
    );
    let page = get(&address, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("Content-Type: text/plain; version=0.0.4"),
        "{page}"
    );
    assert_eq!(sample(&page, "rcoe_replicas_live "), 3.0);
    assert_eq!(sample(&page, "rcoe_faults_total{kind=\"death\"} "), 0.0);
    assert_eq!(sample(&page, "rcoe_processes "), 1.0);
    assert!(sample(&page, "rcoe_uptime_seconds ") > 0.0);
    let used = |page: &str| {
        let all = page
            .lines()
            .filter(|it| it.starts_with("rcoe_replica_cpu_seconds_total{"));
        all.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum::<f64>()
    };
    let before = used(&page);
    signal(group.replicas[0], Signal::KILL).unwrap();
    let page = until("the removal", || {
        let page = get(&address, "/metrics");
        (sample(&page, "rcoe_removals_total ") > 0.0).then_some(page)
    });
    assert_eq!(sample(&page, "rcoe_faults_total{kind=\"death\"} "), 1.0);
    assert_eq!(sample(&page, "rcoe_takeovers_total "), 1.0);
    assert!(sample(&page, "rcoe_rendezvous_total ") >= 1.0);
    assert!(
        used(&page) >= before,
        "what the killed one used still counts"
    );
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.out(), victim.expected, "{}", outcome.err());
}

#[test]
fn clients_that_are_slow_or_malicious_hold_up_nobody() {
    let victim = Victim::new();
    let group = victim.start(&["-n", "3", "--timeout", "30s", "--metrics", "127.0.0.1:0"]);
    let address = bound(&group.events);
    let connect = || TcpStream::connect(&address).unwrap();
    let mut silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    for stream in &mut silent[..20] {
        stream.write_all(b"GET /metr").unwrap();
    }
    let mut flood = connect();
    // It is cut off at some point; how much fits before does not matter.
    let _ = (0..1000).try_for_each(|_| flood.write_all(&[b'x'; 4096]));
    signal(group.replicas[2], Signal::KILL).unwrap();
    until("the removal", || {
        let all = events_of(&group.events);
        all.into_iter().find(|event| event["type"] == "recovery")
    });
    assert!(
        get(&address, "/metrics").starts_with("HTTP/1.1 200 "),
        "after their time is over"
    );
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /status HTTP/1.1\r\n\r\n", "404"),
        ("GET /metrics HTTP/2\r\n\r\n", "505"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(connect(), request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
    }
    victim.release(&group);
    let (outcome, _) = group.finish();
    assert_eq!(outcome.out(), victim.expected, "{}", outcome.err());
}

#[test]
fn metrics_can_be_had_by_a_unix_socket() {
    let watched = Watched::new();
    let path = watched.scene.path().join("metrics");
    let running = watched.start_job(&["-n", "2", "--metrics", &path.display().to_string()], &[]);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let page = ask(
        UnixStream::connect(&path).unwrap(),
        "GET /metrics HTTP/1.0\r\n\r\n",
    );
    assert_eq!(sample(&page, "rcoe_replicas_configured "), 2.0);
    Watched::end(running);
    assert!(!path.exists(), "removed at the end");
}

#[test]
fn an_address_that_cannot_be_bound_stops_before_the_start() {
    let scene = Scene::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let outcome = scene.rcoe(&["run", "--metrics", &address, "--", "touch", "made"]);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    assert!(outcome.err().contains(&address), "{}", outcome.err());
    assert!(!scene.path().join("made").exists());
}

#[test]
fn top_finds_and_shows_jobs() {
    let watched = Watched::new();
    assert!(watched.top(&["--once"]).out().contains("No jobs"));
    let first = watched.start_job(&["-n", "3"], &[]);
    let snapshot = watched.snapshot(first.pid());
    assert_eq!(snapshot["pid"], first.pid());
    assert_eq!(
        (&snapshot["configured"], &snapshot["live"]),
        (&3.into(), &3.into())
    );
    let replicas = snapshot["processes"][0]["replicas"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(replicas.len(), 3);
    assert!(
        replicas.iter().all(|it| it["state"] == "running"),
        "{snapshot}"
    );
    assert_eq!(replicas[0]["primary"], true);
    let by_replica = replicas[1]["pid"].as_u64().unwrap().to_string();
    let shown = watched.top(&[&by_replica]).out();
    assert!(
        shown.contains(&watched.program) && shown.contains("primary"),
        "{shown}"
    );

    let second = watched.start_job(&["-n", "2"], &[]);
    let all = watched.top(&["--all"]).out();
    assert_eq!(all.lines().count(), 3, "{all}");
    let list: Value = serde_json::from_slice(&watched.top(&["--json"]).stdout).unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(2));

    signal(
        u32::try_from(replicas[2]["pid"].as_u64().unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    until("the removal", || {
        let snapshot = watched.snapshot(first.pid());
        (snapshot["totals"]["removals"] == 1).then_some(())
    });
    Watched::end(first);
    Watched::end(second);
    assert!(
        !watched.runtime().join("rcoe").exists(),
        "the last one takes the folder along"
    );
}

#[test]
fn what_a_killed_rcoe_left_is_cleaned_up() {
    let watched = Watched::new();
    let running = watched.start_job(&["-n", "1"], &[]);
    let pid = running.pid();
    let socket = watched.runtime().join("rcoe").join(pid.to_string());
    assert_eq!(
        socket.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    signal(pid, Signal::KILL).unwrap();
    running.finish(LIMIT).unwrap();
    assert!(socket.exists(), "nobody could remove it");
    // Who has it from the killed one may not have ended yet.
    until("the socket's end", || {
        assert!(watched.top(&[]).out().contains("No jobs"));
        (!socket.exists()).then_some(())
    });
    assert_eq!(watched.top(&[&pid.to_string()]).ended, Ended::Exit(125));
    // A socket of a stopped rcoe is left alone: it does not answer, but somebody listens.
    let folder = watched.runtime().join("rcoe");
    let deaf = UnixListener::bind(folder.join("1")).unwrap();
    assert!(watched.top(&[]).out().contains("No jobs"));
    assert!(folder.join("1").exists());
    drop(deaf);
}

#[test]
fn without_status_nobody_finds_the_job() {
    let watched = Watched::new();
    let running = watched.start_job(&["-n", "1", "--no-status"], &[]);
    assert!(!watched.runtime().join("rcoe").exists());
    Watched::end(running);
}

/// What is told of the removal, in order.
fn told(group: &Group) -> Vec<Value> {
    let mut all = events_of(&group.events);
    let about = ["divergence", "downgrade", "takeover", "recovery"];
    all.retain(|event| about.iter().any(|&it| event["type"] == it));
    all
}

#[test]
fn a_removal_is_told_with_takeover_and_duration() {
    let victim = Victim::new();
    for (id, led) in [(0, true), (2, false)] {
        let group = victim.start(&["-n", "3", "--timeout", "30s"]);
        signal(group.replicas[id], Signal::KILL).unwrap();
        let told = until("the recovery", || {
            let told = told(&group);
            (told.last()?["type"] == "recovery").then_some(told)
        });
        let expected: &[&str] = if led {
            &["divergence", "downgrade", "takeover", "recovery"]
        } else {
            &["divergence", "downgrade", "recovery"]
        };
        assert!(told.iter().map(|it| &it["type"]).eq(expected), "{told:?}");
        let pid = group.running.pid();
        assert!(told.iter().all(|it| it["process"] == pid), "{told:?}");
        let recovery = &told[told.len() - 1];
        assert_eq!(recovery["removed"], id);
        assert!(recovery["us"].is_u64(), "{recovery}");
        victim.release(&group);
        let (outcome, _) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
    }
}
