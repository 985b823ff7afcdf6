//! `rcoe top --web`: what a browser is given, and what everybody else is not.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use rcoe_tests::launch::{Ended, signal};
use rcoe_tests::rcoe::until;
use rcoe_tests::site::{Site, body};
use rcoe_tests::watched::{Watched, ask};
use rustix::process::Signal;
use serde_json::Value;

/// An argument that would be a script of the page if it were taken for more than text.
const HOSTILE: &str = "</code><script>alert(1)</script>\"'&";

#[test]
fn a_browser_sees_jobs_faults_and_cores_and_every_text_is_a_text() {
    let watched = Watched::new();
    let job = watched.start_job(&["-n", "3", "--no-reintegrate"], &[HOSTILE]);
    let site = Site::open(&watched, &[]);
    let page = site.get("/");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for header in [
        "Content-Type: text/html; charset=utf-8",
        "X-Content-Type-Options: nosniff",
    ] {
        assert!(page.contains(&format!("\r\n{header}\r\n")), "{page}");
    }
    let policy = page
        .lines()
        .find(|it| it.starts_with("Content-Security-Policy: "));
    let policy = policy.expect("a policy");
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(
        page.contains("&#60;script&#62;alert(1)") && !page.contains("<script>"),
        "{page}"
    );
    assert!(
        page.contains("3 of 3 replicas") && page.contains("Cores and their ledger"),
        "{page}"
    );
    let jobs: Value = serde_json::from_str(body(&site.get("/jobs.json"))).unwrap();
    assert_eq!(jobs[0]["arguments"][1], HOSTILE);

    let victim = jobs[0]["processes"][0]["replicas"][2]["pid"]
        .as_u64()
        .unwrap();
    signal(u32::try_from(victim).unwrap(), Signal::KILL).unwrap();
    let view = until("the fault on the page", || {
        let answer = site.get("/view");
        answer.contains("2 of 3 replicas").then_some(answer)
    });
    for text in [
        "class=\"mark fault\"",
        "class=\"mark gone\"",
        "<td class=\"word\">death</td>",
        "removed; going on with 2",
        "replica 2, signs: 2",
    ] {
        assert!(view.contains(text), "{text}: {view}");
    }
    assert!(!view.contains("<html"), "only what changes: {view}");
    site.close();
    Watched::end(job);
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let watched = Watched::new();
    let site = Site::open(&watched, &[]);
    assert!(site.get("/").contains("No jobs of this user run."));
    for (path, kind) in [("/style.css", "text/css"), ("/top.js", "text/javascript")] {
        let answer = site.get(path);
        let content = format!("\r\nContent-Type: {kind}; charset=utf-8\r\n");
        assert!(answer.contains(&content), "{answer}");
    }
    for path in ["/", "/style.css", "/top.js"] {
        let answer = site.get(path);
        let text = body(&answer);
        assert!(!text.contains("://") && !text.contains("@import"), "{text}");
    }
    site.close();
}

#[test]
fn nobody_gets_more_than_the_pages_nor_by_another_name() {
    let watched = Watched::new();
    let site = Site::open(&watched, &[]);
    let port = site.address.rsplit(':').next().unwrap();
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "10.0.0.1",
        "",
    ] {
        let answer = site.get_as("/", host);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
    }
    assert!(ask(site.connect(), "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 403 "));
    for host in ["localhost", &format!("127.0.0.1:{port}"), "[::1]:80"] {
        let answer = site.get_as("/", host);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    for path in [
        "/../../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/style.css/..",
        "//",
        "/top",
        "*",
    ] {
        let answer = site.get(path);
        assert!(answer.starts_with("HTTP/1.1 40"), "{path}: {answer}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: {}\r\n\r\n", site.address);
        let answer = ask(site.connect(), &request);
        assert!(answer.starts_with("HTTP/1.1 405 "), "{method}: {answer}");
    }
    let request = format!("HEAD / HTTP/1.1\r\nHost: {}\r\n\r\n", site.address);
    assert_eq!(body(&ask(site.connect(), &request)), "");
    site.close();
}

#[test]
fn slow_and_many_clients_are_let_go() {
    let watched = Watched::new();
    let site = Site::open(&watched, &[]);
    let mut silent: Vec<TcpStream> = (0..40).map(|_| site.connect()).collect();
    for stream in &mut silent[..20] {
        stream.write_all(b"GET / HT").unwrap();
    }
    let mut flood = site.connect();
    // It is cut off at some point; how much fits before does not matter.
    let _ = (0..1000).try_for_each(|_| flood.write_all(&[b'x'; 4096]));
    assert!(
        site.get("/").starts_with("HTTP/1.1 200 "),
        "after their time is over"
    );
    site.close();
}

#[test]
fn the_page_of_one_job_tells_that_it_has_ended() {
    let watched = Watched::new();
    let job = watched.start_job(&["-n", "2"], &[]);
    let other = watched.start_job(&["-n", "1"], &[]);
    let site = Site::open(&watched, &[&job.pid().to_string()]);
    let page = site.get("/");
    assert!(
        page.contains(&format!("id=\"job-{}\"", job.pid())),
        "{page}"
    );
    assert!(
        !page.contains(&format!("id=\"job-{}\"", other.pid())),
        "{page}"
    );
    Watched::end(job);
    until("the end", || {
        site.get("/view")
            .contains("The job has ended.")
            .then_some(())
    });
    site.close();
    Watched::end(other);
}

#[test]
fn addresses_that_cannot_or_may_not_be_served_are_told() {
    let watched = Watched::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, told) in [
        (&["--web", &taken][..], taken.as_str()),
        (&["--web", "0.0.0.0:0"], "--web-public"),
        (&["--web", "[::]:0"], "--web-public"),
        (&["--web", "99999"], "a port from 0 to 65535"),
        (&["--web", "evil.example:80"], "a numeric address"),
        (&["--web", "0", "--json"], "cannot be used with"),
        (&["--web-public"], "--web <ADDR>"),
        (&["--web", "0", "1"], "no job 1"),
    ] {
        let outcome = watched.top(arguments);
        assert_eq!(outcome.ended, Ended::Exit(125), "{arguments:?}");
        assert!(outcome.err().contains(told), "{told}: {}", outcome.err());
    }
}
