use super::*;
use crate::protocol::reread;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

const LENGTH: usize = 8192;

/// A file on the disk that holds this source code, at rest.
fn at_rest() -> (File, PathBuf) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/calls/io.rs");
    (File::open(&path).expect("it is there"), path)
}

/// What a primary would tell of a piece of the file, and what it keeps.
fn record(file: &File, helped: bool) -> (Record, Vec<u8>) {
    let mut bytes = vec![0; LENGTH];
    file.read_exact_at(&mut bytes, 64).expect("long enough");
    let fd = u32::try_from(file.as_raw_fd()).expect("small");
    let record = Record {
        fd,
        length: LENGTH,
        helped,
        offset: 64,
        version: unseen::present_version(fd.into()).expect("it is open"),
        digest: 0,
        place: 0,
    };
    let digest = record.digest_of(bytes.as_ptr() as u64).expect("ours");
    (Record { digest, ..record }, bytes)
}

/// What a follower has, and how it came to it.
fn held(record: &Record, kept: &[u8]) -> (Held, Vec<u8>) {
    let mut own = vec![0; LENGTH];
    let mut last = LastRead::default();
    let at = own.as_mut_ptr() as u64;
    let held = hold(record, at, kept.as_ptr() as u64, &mut last);
    (held, own)
}

#[test]
fn a_record_is_told_from_others_and_comes_through() {
    let record = Record {
        fd: 1023,
        length: LONGEST,
        helped: true,
        offset: u64::MAX >> 1,
        version: 3,
        digest: 4,
        place: kept::CHUNK,
    };
    assert_eq!(Record::of(&record.words()), Some(record));
    let first = record.words()[0];
    assert!(is_direct(first) && !brief::is_brief(first));
    assert!(![0, 1, 1 << 63, u64::MAX].into_iter().any(is_direct));
    assert_eq!(Record::of(&[0, 1, 2, 3, 4]), None);
    assert_eq!(Record::of(&record.words()[..4]), None);
}

#[test]
fn what_is_read_alike_is_taken_without_a_look_at_what_is_kept() {
    let (file, _) = at_rest();
    for helped in [false, true] {
        let (record, bytes) = record(&file, helped);
        assert_eq!(held(&record, &[0; LENGTH]), (Held::Same, bytes));
    }
}

#[test]
fn a_difference_in_a_file_that_nobody_has_changed_is_a_fault() {
    let (file, _) = at_rest();
    let (record, mut bytes) = record(&file, true);
    let own = record.digest;
    bytes[77] ^= 4;
    let digest = record.digest_of(bytes.as_ptr() as u64).expect("ours");
    let hit = Record { digest, ..record };
    let (found, held) = held(&hit, &bytes);
    assert_eq!(found, Held::Other(own));
    assert_ne!(held, bytes, "the follower keeps what it has read");
}

#[test]
fn a_changed_file_is_no_fault() {
    let (file, _) = at_rest();
    let (mut record, mut bytes) = record(&file, true);
    bytes[77] ^= 4;
    record.digest = record.digest_of(bytes.as_ptr() as u64).expect("ours");
    record.version ^= 1;
    assert_eq!(held(&record, &bytes), (Held::Same, bytes.clone()));
    let mut damaged = bytes.clone();
    damaged[9] ^= 1;
    let other = record.digest_of(damaged.as_ptr() as u64).expect("ours");
    assert_eq!(held(&record, &damaged).0, Held::Other(other));
}

#[test]
fn a_descriptor_that_cannot_be_read_gives_what_is_kept() {
    let (file, _) = at_rest();
    let (mut record, bytes) = record(&file, true);
    record.fd = 1 << 20;
    assert_eq!(held(&record, &bytes), (Held::Same, bytes.clone()));
    record.fd = u32::try_from(file.as_raw_fd()).expect("small");
    record.offset = 1 << 40;
    record.version ^= 1;
    assert_eq!(held(&record, &bytes), (Held::Same, bytes.clone()));
}

/// A follower that reads pieces of a file in a row: what it has of this one, which holds `bytes`
/// where the primary is.
fn next(last: &mut LastRead, file: &File, piece: usize, bytes: &[u8]) -> (Held, Vec<u8>) {
    let fd = u32::try_from(file.as_raw_fd()).expect("small");
    let mut record = Record {
        fd,
        length: SHORTEST,
        helped: true,
        offset: (piece * SHORTEST) as u64,
        version: unseen::present_version(fd.into()).expect("it is open"),
        digest: 0,
        place: 0,
    };
    record.digest = record.digest_of(bytes.as_ptr() as u64).expect("ours");
    let mut own = vec![0; SHORTEST];
    // Nothing is kept.
    let held = hold(&record, own.as_mut_ptr() as u64, 0, last);
    (held, own)
}

#[test]
fn what_was_read_ahead_is_taken_if_it_is_what_the_primary_has() {
    let _alone = reread::READING_AHEAD.lock();
    let own = Own::new("ahead");
    std::fs::write(&own.0, [7; 16 * SHORTEST]).expect("room");
    let file = File::options().read(true).write(true).open(&own.0);
    let file = file.expect("ours");
    let mut last = LastRead::default();
    let (before, after) = ([7; SHORTEST], [8; SHORTEST]);
    for piece in 0..8 {
        let held = next(&mut last, &file, piece, &before);
        assert_eq!(held, (Held::Same, before.to_vec()), "piece {piece}");
    }
    let changed = 8 * SHORTEST as u64;
    file.write_all_at(&after.repeat(8), changed).expect("room");
    let held = next(&mut last, &file, 8, &before);
    assert_eq!(
        held,
        (Held::Same, before.to_vec()),
        "as the primary read it"
    );
    let held = next(&mut last, &file, 9, &after);
    assert_eq!(held, (Held::Same, after.to_vec()), "it is read anew");
    let held = next(&mut last, &file, 10, &after);
    assert_eq!(held, (Held::Same, after.to_vec()));
}

#[test]
fn a_difference_from_what_was_read_ahead_is_a_fault_if_the_file_has_it_too() {
    let _alone = reread::READING_AHEAD.lock();
    let own = Own::new("ahead-hit");
    std::fs::write(&own.0, [7; 16 * SHORTEST]).expect("room");
    let file = File::open(&own.0).expect("it is there");
    let mut last = LastRead::default();
    let mut bytes = [7; SHORTEST];
    for piece in 0..8 {
        let (held, _) = next(&mut last, &file, piece, &bytes);
        assert_eq!(held, Held::Same, "piece {piece}");
    }
    let right = Digest::new(true).of(bytes.as_ptr() as u64, SHORTEST);
    bytes[77] ^= 4;
    let (held, _) = next(&mut last, &file, 8, &bytes);
    assert_eq!(held, Held::Other(right.expect("ours")));
}

/// A file of its own in a folder on the disk, changed long ago.
struct Own(PathBuf);

impl Own {
    fn new(name: &str) -> Self {
        let name = format!("direct-{}-{name}", std::process::id());
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("target")
            .join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        std::fs::write(&path, [7; LENGTH]).expect("room");
        Self(path)
    }

    /// Its version once it can be told; files that were just changed cannot.
    fn version(&self) -> Option<u64> {
        let file = File::open(&self.0).expect("it is there");
        let fd = u64::try_from(file.as_raw_fd()).expect("small");
        let changed = || {
            sys::file_version(file.as_raw_fd())
                .expect("open")
                .changed_ns()
        };
        while sys::coarse_real_time().expect("a clock") < changed() + 30_000_000 {
            std::thread::yield_now();
        }
        unseen::version(fd)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_that_somebody_has_open_for_writing_can_be_changed_unseen() {
    let own = Own::new("writer");
    assert!(own.version().is_some());
    let writer = File::options().append(true).open(&own.0).expect("ours");
    assert_eq!(own.version(), None);
    drop(writer);
    let before = own.version();
    assert!(before.is_some());
    let writer = File::options().write(true).open(&own.0).expect("ours");
    writer.write_all_at(b"x", 5).expect("room");
    drop(writer);
    assert_ne!(own.version(), before);
}

#[test]
fn what_was_changed_just_now_may_be_again_within_a_tick() {
    let own = Own::new("fresh");
    let file = File::open(&own.0).expect("it is there");
    let fd = u64::try_from(file.as_raw_fd()).expect("small");
    std::fs::write(&own.0, [8; LENGTH]).expect("room");
    let soon = unseen::version(fd);
    let changed = sys::file_version(file.as_raw_fd())
        .expect("open")
        .changed_ns();
    let late = sys::coarse_real_time().expect("a clock") > changed + 20_000_000;
    assert!(soon.is_none() || late, "unless this test was slow");
}

#[test]
fn memory_devices_and_files_open_for_writing_are_read_by_the_primary() {
    for path in ["/proc/self/maps", "/dev/zero", "/sys/kernel/uevent_seqnum"] {
        let file = File::open(path).expect("it is there");
        let fd = u64::try_from(file.as_raw_fd()).expect("small");
        assert_eq!(unseen::version(fd), None, "{path}");
    }
    let own = Own::new("both");
    let both = File::options()
        .read(true)
        .write(true)
        .open(&own.0)
        .expect("ours");
    let fd = u64::try_from(both.as_raw_fd()).expect("small");
    assert_eq!(unseen::version(fd), None);
}
