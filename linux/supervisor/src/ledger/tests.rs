use std::fs;

use super::*;

fn clearing(core: u32) -> Entry {
    Entry::Clear(Clearing {
        time: 1.0,
        host: "h".into(),
        core: Some(core),
    })
}

fn ledger() -> (tempfile::TempDir, Ledger) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let ledger = Ledger::new(folder.path().join("state/rcoe"));
    (folder, ledger)
}

#[test]
fn what_is_appended_is_read_in_order() {
    let (_folder, ledger) = ledger();
    assert_eq!(ledger.read().expect("nothing yet"), Content::default());
    for core in 0..3 {
        ledger.append(&clearing(core)).expect("written");
    }
    let content = ledger.read().expect("read");
    assert_eq!(content.entries, [clearing(0), clearing(1), clearing(2)]);
    assert_eq!(content.unreadable, 0);
}

#[test]
fn a_line_cut_short_by_a_crash_costs_only_itself() {
    let (_folder, ledger) = ledger();
    ledger.append(&clearing(0)).expect("written");
    let text = fs::read(ledger.path()).expect("read");
    for cut in 1..text.len() {
        let torn = [&text[..], &text[..cut]].concat();
        fs::write(ledger.path(), torn).expect("written");
        ledger.append(&clearing(7)).expect("written");
        let content = ledger.read().expect("read");
        let whole = cut == text.len() - 1;
        let expected = if whole { vec![0, 0, 7] } else { vec![0, 7] };
        let expected = expected.into_iter().map(clearing).collect::<Vec<_>>();
        assert_eq!(content.entries, expected, "cut at {cut}");
        assert_eq!(content.unreadable, usize::from(!whole), "cut at {cut}");
    }
}

#[test]
fn many_writers_lose_no_line() {
    let (_folder, ledger) = ledger();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || {
                for number in 0..50 {
                    ledger
                        .append(&clearing(writer * 100 + number))
                        .expect("written");
                }
            });
        }
    });
    let content = ledger.read().expect("read");
    let mut cores = content
        .entries
        .iter()
        .map(|entry| match entry {
            Entry::Clear(clearing) => clearing.core.expect("a core"),
            Entry::Fault(_) => unreachable!(),
        })
        .collect::<Vec<_>>();
    cores.sort_unstable();
    let expected = (0..4).flat_map(|writer| (0..50).map(move |number| writer * 100 + number));
    assert!(cores.into_iter().eq(expected));
    assert_eq!(content.unreadable, 0);
}

#[test]
fn the_file_is_bounded_and_the_last_generation_is_kept() {
    let (_folder, ledger) = ledger();
    ledger.append(&clearing(0)).expect("written");
    let filler = format!("{}\n", " ".repeat(1023)).repeat(1024);
    for core in 1..4 {
        let mut file = OpenOptions::new()
            .append(true)
            .open(ledger.path())
            .expect("there");
        file.write_all(filler.as_bytes()).expect("written");
        ledger.append(&clearing(core)).expect("written");
        assert!(fs::metadata(ledger.path()).expect("there").len() < MOST_BYTES);
    }
    let content = ledger.read().expect("read");
    assert_eq!(content.entries, [clearing(2), clearing(3)]);
}

#[test]
fn a_folder_that_cannot_be_is_an_error() {
    let ledger = Ledger::new(PathBuf::from("/dev/null/rcoe"));
    assert!(ledger.append(&clearing(0)).is_err());
    assert!(ledger.read().is_err(), "not taken for an empty one");
}

#[test]
fn the_users_folder_is_found() {
    let find = |state: &'static str, home: &'static str| {
        Ledger::of_user(move |name| {
            let value = if name == "HOME" { home } else { state };
            (!value.is_empty()).then(|| value.into())
        })
        .map(|ledger| ledger.path())
    };
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(find("/s", "/h"), path("/s/rcoe/cores.ndjson"));
    assert_eq!(find("", "/h"), path("/h/.local/state/rcoe/cores.ndjson"));
    assert_eq!(
        find("relative", "/h"),
        path("/h/.local/state/rcoe/cores.ndjson")
    );
    assert_eq!(find("", ""), None);
}
