//! `rcoe top --web` and the report of a campaign in a browser: headless Chromium.
//!
//! What pages hold is tested as text where it is made, and in `web.rs`. Here a browser has to load
//! them under their own policy, run the script, and paint them in the colours that the reader
//! prefers. How that looks is for people: `cargo xtask shots`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use rcoe_tests::launch::{self, Ended, signal};
use rcoe_tests::rcoe::{LIMIT, Scene, until};
use rcoe_tests::site::{Site, body};
use rcoe_tests::watched::Watched;
use rustix::process::Signal;
use serde_json::Value;

/// Colours, as Chromium counts them.
const DARK: &str = "0";
const LIGHT: &str = "1";

/// Has Chromium open a page; what it writes to standard output.
fn open(scene: &Scene, page: &str, colours: &str, what: &str) -> String {
    let profile = scene.path().join(format!("profile-{colours}"));
    let scheme = format!("--blink-settings=preferredColorScheme={colours}");
    let profile = format!("--user-data-dir={}", profile.display());
    let argv = [
        "chromium",
        "--headless",
        // Root runs it without a sandbox only; the pages are our own.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        "--window-size=1200,1200",
        // The page's own clock runs so long, and not while it waits for an answer.
        "--virtual-time-budget=4000",
        &scheme,
        &profile,
        what,
        page,
    ];
    let argv: Vec<String> = argv.map(str::to_owned).to_vec();
    let outcome = launch::run(&argv, scene.path(), None, LIMIT)
        .expect("chromium: `cargo xtask test --only packages` installs it");
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    outcome.out()
}

/// Answers a browser with what a site has, and does something before it first passes a view on.
fn stand_between(site: &Site, listener: &TcpListener, mut before: Option<impl FnOnce()>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let Some(path) = path_of(&stream) else {
            return;
        };
        if path == "/view"
            && let Some(act) = before.take()
        {
            act();
        }
        // A browser that has seen enough does not wait for the last answer.
        let _ = stream.write_all(site.get(&path).as_bytes());
    }
}

/// The path that is asked for; none if this is the end.
fn path_of(stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    lines.find(String::is_empty);
    Some(path)
}

/// Mean brightness of a picture, from 0 to 255, and how many brightnesses it has.
fn brightness(scene: &Scene, name: &str) -> (f64, usize) {
    let file = BufReader::new(File::open(scene.path().join(name)).unwrap());
    let mut decoder = png::Decoder::new(file);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let picture = reader.next_frame(&mut bytes).unwrap();
    let mut counts = [0_u32; 256];
    for pixel in bytes[..picture.buffer_size()].chunks(picture.color_type.samples()) {
        // Green is most of what the eye sees.
        counts[usize::from(pixel[1])] += 1;
    }
    let sum: f64 = (0..)
        .zip(counts)
        .map(|(it, n)| f64::from(it) * f64::from(n))
        .sum();
    let all: f64 = counts.into_iter().map(f64::from).sum();
    (
        sum / all,
        counts.into_iter().filter(|&count| count > 0).count(),
    )
}

/// A page is bright or dark as the reader prefers, and not empty.
fn is_painted_in_both(scene: &Scene, page: &str) {
    let [dark, light] = [(DARK, "dark.png"), (LIGHT, "light.png")].map(|(colours, name)| {
        let place = scene.path().join(name);
        open(
            scene,
            page,
            colours,
            &format!("--screenshot={}", place.display()),
        );
        brightness(scene, name)
    });
    assert!(dark.0 < 80.0 && light.0 > 175.0, "{dark:?} {light:?}");
    assert!(dark.1 > 20 && light.1 > 20, "{dark:?} {light:?}");
}

#[test]
fn a_fault_appears_on_a_page_that_is_open() {
    let watched = Watched::new();
    let job = watched.start_job(&["-n", "3", "--no-reintegrate"], &[]);
    let site = Site::open(&watched, &[]);
    let jobs: Value = serde_json::from_str(body(&site.get("/jobs.json"))).unwrap();
    let victim = jobs[0]["processes"][0]["replicas"][2]["pid"].as_u64();
    let victim = u32::try_from(victim.unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shown = std::thread::scope(|scope| {
        scope.spawn(|| {
            let lose = || {
                signal(victim, Signal::KILL).unwrap();
                until("the fault on the page", || {
                    site.get("/view").contains("2 of 3 replicas").then_some(())
                });
            };
            stand_between(&site, &listener, Some(lose));
        });
        let page = format!("http://{address}/");
        let shown = std::panic::catch_unwind(|| open(&watched.scene, &page, DARK, "--dump-dom"));
        // Nothing is asked for: the end.
        drop(TcpStream::connect(address));
        shown
    });
    let shown = shown.unwrap();
    assert!(shown.contains(">live<"), "the script runs: {shown}");
    for text in ["2 of 3 replicas", "removed; going on with 2", "mark fault"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    is_painted_in_both(&watched.scene, &format!("http://{}/", site.address));
    site.close();
    Watched::end(job);
}

#[test]
fn the_report_of_a_campaign_is_a_page() {
    let scene = Scene::new();
    let lab = rcoe_tests::rcoe::binary()
        .unwrap()
        .with_file_name("rcoe-faultlab");
    let lab = lab.display().to_string();
    let words = "campaign -n 3 --count 2 --seed 1 --program sha256sum --html report.html";
    let argv: Vec<String> = std::iter::once(lab.as_str())
        .chain(words.split(' '))
        .map(str::to_owned)
        .collect();
    let outcome = launch::run(&argv, scene.path(), None, LIMIT).unwrap();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let page = format!("file://{}", scene.path().join("report.html").display());
    let shown = open(&scene, &page, LIGHT, "--dump-dom");
    assert!(shown.contains("sha256sum"), "{shown}");
    is_painted_in_both(&scene, &page);
}
