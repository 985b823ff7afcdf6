//! Each tracker tells exactly the pages that a test writes.

use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use rcoe_linux_abi::PAGE;

use crate::convert::size;
use crate::coupling::pages::digests::{Digests, Known};
use crate::coupling::pages::protector::Protector;
use crate::coupling::pages::soft_dirty::SoftDirty;
use crate::coupling::pages::{Pages, Run, Tracker, Untracked};
use crate::sys;

const PAGES: u64 = 2000;

/// Private memory, populated but for its last tenth.
struct Memory(Run);

fn map(pages: u64) -> Run {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    let len = pages * PAGE;
    // SAFETY: a new mapping.
    let start = unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, flags, -1, 0) };
    let start = start.expect("memory");
    let end = start + len;
    Run { start, end }
}

impl Memory {
    fn new() -> Self {
        let memory = Self(map(PAGES));
        for page in 0..PAGES * 9 / 10 {
            memory.write(page, 1);
        }
        memory
    }

    fn write(&self, page: u64, value: u8) {
        let at = self.0.start + page * PAGE + page % PAGE;
        // SAFETY: the test's own memory.
        unsafe { (at as *mut u8).write_volatile(value) };
    }

    fn run(&self, pages: core::ops::Range<u64>) -> Run {
        let [start, end] = [pages.start, pages.end].map(|page| self.0.start + page * PAGE);
        Run { start, end }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the test's own memory, not used any more.
        unsafe { sys::munmap(self.0.start, self.0.end - self.0.start) }.expect("mapped");
    }
}

fn written(tracker: &mut dyn Tracker, memory: &[Run]) -> Vec<Run> {
    let mut room = vec![Run::default(); 3000];
    let mut pages = Pages::new(&mut room);
    tracker.written(memory, &mut pages).expect("told");
    pages.runs().to_vec()
}

/// Has the kernel write a byte into a page.
fn write_by_kernel(memory: &Memory, page: u64) {
    let file = sys::open_read(b"/proc/self/exe\0").expect("this program");
    sys::pread_raw(file, memory.0.start + page * PAGE, 16, 0);
    sys::close(file);
}

/// What holds for every tracker.
fn check(tracker: &mut dyn Tracker) {
    let memory = Memory::new();
    let all = &[memory.0];
    tracker.arm(all).expect("armed");
    assert_eq!(written(tracker, all), []);
    for page in [0, 7, 8, 9, 600, 1799] {
        memory.write(page, 2);
    }
    // Some that nobody had touched before, one of them by the kernel.
    memory.write(1900, 2);
    write_by_kernel(&memory, 1950);
    write_by_kernel(&memory, 300);
    let expected = [
        memory.run(0..1),
        memory.run(7..10),
        memory.run(300..301),
        memory.run(600..601),
        memory.run(1799..1800),
        memory.run(1900..1901),
        memory.run(1950..1951),
    ];
    assert_eq!(written(tracker, all), expected);
    assert_eq!(written(tracker, all), expected, "told again");
    let parts = [memory.run(5..9), memory.run(500..1800)];
    let expected = [
        memory.run(7..9),
        memory.run(600..601),
        memory.run(1799..1800),
    ];
    assert_eq!(
        written(tracker, &parts),
        expected,
        "of a part of the memory"
    );
    tracker.arm(all).expect("armed again");
    assert_eq!(written(tracker, all), []);
    for page in (0..1800).step_by(2) {
        memory.write(page, 3);
    }
    let expected: Vec<Run> = (0..1800)
        .step_by(2)
        .map(|page| memory.run(page..page + 1))
        .collect();
    assert_eq!(
        written(tracker, all),
        expected,
        "more than fit into one answer"
    );
    let mut little = [Run::default(); 899];
    let told = tracker.written(all, &mut Pages::new(&mut little));
    assert_eq!(told, Err(Untracked::Full));
    mapped_and_moved(tracker, &memory);
}

/// What was mapped or moved since counts as written, as far as there are pages.
fn mapped_and_moved(tracker: &mut dyn Tracker, memory: &Memory) {
    let other = Memory(map(64));
    tracker.arm(&[memory.0]).expect("armed");
    memory.write(3, 4);
    other.write(1, 4);
    let mut ranges = [memory.0, other.0];
    ranges.sort_by_key(|run| run.start);
    let mut expected = [memory.run(3..4), other.run(1..2)];
    expected.sort_by_key(|run| run.start);
    assert_eq!(written(tracker, &ranges), expected);
    // Eight pages go from the one to the other.
    let len = 8 * PAGE;
    let (from, to) = (memory.0.start + 16 * PAGE, other.0.start + 32 * PAGE);
    // SAFETY: both are the test's.
    let moved = unsafe { sys::move_mapping(from, len, to) };
    assert_eq!(moved, Ok(to));
    let told = written(tracker, &[other.0]);
    assert_eq!(told, [other.run(1..2), other.run(32..40)]);
    tracker.arm(&[other.0]).expect("armed again");
    assert_eq!(written(tracker, &[other.0]), []);
    other.write(33, 5);
    assert_eq!(written(tracker, &[other.0]), [other.run(33..34)]);
    // SAFETY: the hole that is left belongs to the test.
    let filled = unsafe {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | linux_raw_sys::general::MAP_FIXED;
        sys::mmap(from, len, PROT_READ | PROT_WRITE, flags, -1, 0)
    };
    assert_eq!(filled, Ok(from));
}

/// Soft-dirty bits are the whole process's, and trackers see what tests beside them do.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn write_protection_tells_the_pages_that_were_written() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match Protector::new() {
        Ok(mut tracker) => {
            check(&mut tracker);
            assert!(tracker.descriptors().iter().all(|fd| *fd >= 0));
            tracker.close();
        }
        Err(refused) => assert!(matches!(refused, Untracked::Refused(..)), "{refused:?}"),
    }
}

#[test]
fn soft_dirty_bits_tell_the_pages_that_were_written() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match SoftDirty::new(&mut 0) {
        Ok(mut tracker) => {
            check(&mut tracker);
            assert!(tracker.descriptors().iter().all(|fd| *fd >= 0));
            tracker.close();
        }
        Err(refused) => assert!(matches!(refused, Untracked::Refused(..)), "{refused:?}"),
    }
}

#[test]
fn digests_tell_the_pages_that_were_changed() {
    let mut table = vec![Known::default(); 4000];
    let mut tracker = Digests::new(&mut table).expect("the host tells of memory");
    check(&mut tracker);
    assert!(tracker.descriptors()[0] >= 0);
    tracker.close();
    let memory = Memory::new();
    let mut table = vec![Known::default(); size(PAGES * 9 / 10) - 1];
    let mut tracker = Digests::new(&mut table).expect("as before");
    assert_eq!(tracker.arm(&[memory.0]), Err(Untracked::Full));
    tracker.close();
}

#[test]
fn lists_are_united() {
    let run = |start: u64, end: u64| Run {
        start: start * PAGE,
        end: end * PAGE,
    };
    let one = [run(1, 2), run(4, 8), run(20, 21)];
    let other = [run(2, 3), run(5, 6), run(7, 10), run(30, 31)];
    let mut room = [Run::default(); 4];
    let mut pages = Pages::new(&mut room);
    pages.unite(&one, &other).expect("room");
    assert_eq!(
        pages.runs(),
        [run(1, 3), run(4, 10), run(20, 21), run(30, 31)]
    );
    assert_eq!(pages.count(), 10);
    let mut little = [Run::default(); 3];
    assert_eq!(
        Pages::new(&mut little).unite(&one, &other),
        Err(Untracked::Full)
    );
    let mut room = [Run::default(); 3];
    let mut pages = Pages::new(&mut room);
    pages.unite(&[], &one).expect("room");
    assert_eq!(pages.runs(), one);
}
