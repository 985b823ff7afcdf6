//! Code that a program has made at run time, and may read, write and move.

use std::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::arch::entry::restorer_address;
use crate::arch::frames::{SigInfo, UContext};
use crate::coupling::decode::Refused;
use crate::coupling::patch::{Protection, Unwritten};
use crate::coupling::place::{Made, Surroundings, Window, window};
use crate::coupling::tests::harness::{Came, Fixture, machine, signal_stack};
use crate::coupling::tests::programs;
use crate::coupling::watch::Watch;
use crate::memory::loader::page_down;
use crate::sys;

/// How such code is mapped.
const MADE: Protection = Protection {
    bits: PROT_READ | PROT_WRITE | PROT_EXEC,
    is_private: true,
};

/// A program that has made this code.
fn fixture(program: &[u8]) -> Fixture {
    let it = Fixture::new(program);
    let page = page_down(it.at(0));
    // SAFETY: the fixture's own code, which does not run.
    unsafe { sys::mprotect(page, 4096, MADE.bits) }.expect("its own");
    it
}

fn window_at(it: &Fixture, offset: usize) -> Result<Window, Refused> {
    let made = Some(Made { is_writable: true });
    let around = Surroundings {
        made,
        ..it.around()
    };
    window(it.at(offset), &around)
}

/// What the page with this address allows.
fn allowed(at: u64) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let mut ranges = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|it| u64::from_str_radix(it, 16).expect("a number"));
        (start..end).contains(&at).then(|| rest[..3].to_owned())
    });
    ranges.next().expect("mapped")
}

#[test]
fn a_jump_takes_the_place_of_one_instruction_that_holds_no_constant() {
    let all: [(&[u8], Option<Refused>); 9] = [
        (&[0x0f, 0x1f, 0x44, 0, 0], None),
        (&[0x48, 0x8b, 0x05, 0, 1, 0, 0], None),
        (&[0x0f, 0x84, 0, 1, 0, 0], None),
        (&[0x90, 0x90, 0x90, 0x90, 0x90], Some(Refused::TooShort)),
        (&[0xb8, 1, 0, 0, 0], Some(Refused::Constant)),
        (
            &[0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0],
            Some(Refused::Constant),
        ),
        (&[0x81, 0x3f, 1, 0, 0, 0], Some(Refused::Constant)),
        (&[0xe9, 0, 1, 0, 0], Some(Refused::Constant)),
        (&[0xe8, 0, 1, 0, 0], Some(Refused::Call)),
    ];
    for (program, refused) in all {
        let it = fixture(program);
        assert_eq!(window_at(&it, 0).err(), refused, "{program:x?}");
    }
}

#[test]
fn what_a_program_writes_to_its_code_stays() {
    let (program, place) = programs::counting();
    let wide = [&[0x0f, 0x1f, 0x44, 0, 0], program].concat();
    let mut it = fixture(&wide);
    let window = window_at(&it, 0).expect("a long instruction");
    assert!(place > 0 && window.is_writable);
    it.patch
        .put_in(&window, it.text, MADE)
        .expect("as it was looked at");
    assert_eq!(allowed(window.at), "r-x");
    it.patch.lift().expect("for one instruction");
    assert_eq!(allowed(window.at), "rwx");
    let displacement = (window.at + 4) as *mut u8;
    it.patch.put_back(&window).expect("nothing was changed");
    assert_eq!(allowed(window.at), "r-x");
    it.patch.lift().expect("once more");
    // SAFETY: the fixture's own code, which does not run.
    unsafe { displacement.write(8) };
    assert_eq!(it.patch.put_back(&window), Err(Unwritten::Changed));
    it.patch.take_out(MADE).expect("not in");
    assert_eq!(allowed(window.at), "rwx");
    // SAFETY: as above.
    assert_eq!(unsafe { displacement.read() }, 8);
}

static TRAPS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_trap(_: i32, info: *const SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's frame on the handler's own stack.
    let (info, context) = unsafe { (&*info, &*context) };
    let here = info.is_breakpoint() && context.machine.rip == TRAPS_AT.load(Ordering::Relaxed);
    TRAPS.fetch_add(u64::from(here), Ordering::Relaxed);
}

static TRAPS_AT: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_breakpoint_stops_at_each_visit_and_is_passed_by() {
    let (program, place) = programs::counting();
    let mut it = fixture(program);
    let window = it.window(place);
    let visits = it.visits(&window, usize::MAX).len() as u64;
    signal_stack();
    sys::install_handler(5, on_trap as *const () as u64, restorer_address(), 0);
    TRAPS_AT.store(window.at, Ordering::Relaxed);
    TRAPS.store(0, Ordering::Relaxed);
    let Ok(watch) = Watch::set(window.at, 0) else {
        eprintln!("skipped: this host offers no breakpoints");
        return;
    };
    it.start();
    let came = it.run();
    watch.end();
    assert_eq!(came, Came::ToItsEnd);
    assert_eq!(TRAPS.load(Ordering::Relaxed), visits);
    it.start();
    assert_eq!(it.run(), Came::ToItsEnd, "without it");
    assert_eq!(
        TRAPS.load(Ordering::Relaxed),
        visits,
        "{:?}",
        machine().general
    );
}
