//! A replica passes a stub by until it has the published state, and keeps everything.

use std::cell::Cell;

use crate::arch::entry::restorer_address;
use crate::arch::frames::{SigContext, SigInfo, UContext};
use crate::coupling::decode::{Decoded, Flow, Refused};
use crate::coupling::patch::Unwritten;
use crate::coupling::place::{Choice, Window, choose, window};
use crate::coupling::site::{Site, Spot};
use crate::coupling::state::{General, Source};
use crate::coupling::stub::{Place, Stop, Stops, Stub, Wanted};
use crate::coupling::tests::harness::{Came, Fixture, machine, signal_stack};
use crate::coupling::tests::programs;
use crate::sys;

#[test]
fn a_loop_is_stopped_in_exactly_the_iteration_that_was_published() {
    let (program, place) = programs::counting();
    let mut it = Fixture::new(program);
    let window = it.window(place);
    assert!(window.instructions().count() > 1, "several instructions");
    let states = it.visits(&window, 2000);
    assert_eq!(states.len(), 2000);
    for (number, (general, image)) in states.iter().enumerate().step_by(7) {
        it.start();
        let words = &[];
        let stub = it.put_in(&window, Some(&Wanted { general, words }));
        assert_eq!(it.run(), Came::ToTheLanding, "iteration {number}");
        assert_eq!(it.data.visits(), number as u64 + 1);
        machine().general.rip = window.at;
        let (here, extended, _) = it.state();
        assert_eq!((here, &extended), (*general, image), "iteration {number}");
        machine().general.rip = stub.past();
        it.take_out();
    }
}

#[test]
fn a_stub_that_only_counts_stops_nobody() {
    for (program, place) in [
        programs::counting(),
        programs::flags(),
        programs::branching(),
        programs::by_memory(),
    ] {
        let mut it = Fixture::new(program);
        let window = it.window(place);
        let visits = it.visits(&window, usize::MAX).len() as u64;
        assert!(visits > 0, "it comes by");
        it.start();
        assert_eq!(it.run(), Came::ToItsEnd);
        let plain = it.state();
        it.start();
        it.put(&window, Stops::Never);
        assert_eq!(it.run(), Came::ToItsEnd);
        assert_eq!(it.data.visits(), visits);
        it.take_out();
        assert!(it.state() == plain, "window at {place}");
    }
}

/// Instructions of a program that can take a jump.
fn places(it: &Fixture, program: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut offset = 0;
    while offset < program.len() {
        if window(it.at(offset), &it.around()).is_ok() {
            places.push(offset);
        }
        let found = Decoded::new(&program[offset..], it.at(offset)).expect("code");
        if matches!(found.flow, Flow::To(_)) {
            break;
        }
        offset += usize::from(found.len);
    }
    places
}

#[test]
fn a_program_that_passes_a_stub_by_ends_as_one_without() {
    for (program, place) in [
        programs::counting(),
        programs::flags(),
        programs::branching(),
        programs::repeated(),
        programs::by_memory(),
    ] {
        let mut it = Fixture::new(program);
        it.start();
        machine().general.registers[8] = 0x1111_0000_0000 + 2000;
        assert_eq!(it.run(), Came::ToItsEnd);
        let plain = it.state();
        let places = places(&it, program);
        assert!(places.contains(&place) || program == programs::repeated().0);
        for place in places {
            let window = it.window(place);
            it.start();
            machine().general.registers[8] = 0x1111_0000_0000 + 2000;
            let mut general = plain.0;
            general.registers[15] ^= 1;
            let words = &[];
            it.put_in(
                &window,
                Some(&Wanted {
                    general: &general,
                    words,
                }),
            );
            assert_eq!(it.run(), Came::ToItsEnd);
            assert!(it.data.visits() > 0, "it came by");
            let code = || {
                // SAFETY: the window is mapped.
                unsafe { core::slice::from_raw_parts(window.at as *const u8, window.code().len()) }
            };
            assert_ne!(code(), window.code());
            it.take_out();
            assert_eq!(code(), window.code());
            let patched = it.state();
            assert_eq!(patched.0, plain.0, "window at {place}");
            assert!(patched == plain, "window at {place}");
        }
    }
}

#[test]
fn flags_and_red_zone_are_those_published() {
    let (program, place) = programs::flags();
    let mut it = Fixture::new(program);
    let window = it.window(place);
    let states = it.visits(&window, 5000);
    assert_eq!(states.len(), 5000);
    const DIRECTION: u64 = 1 << 10;
    assert!(
        states
            .iter()
            .all(|(general, _)| general.flags & DIRECTION != 0)
    );
    let (mut general, _) = states[4321].clone();
    for flag in [1, 1 << 2, 1 << 4, 1 << 6, 1 << 7, 1 << 10, 1 << 11, 1 << 18] {
        general.flags ^= flag;
        it.start();
        let words = &[];
        it.put_in(
            &window,
            Some(&Wanted {
                general: &general,
                words,
            }),
        );
        assert_eq!(it.run(), Came::ToItsEnd, "another flag {flag:#x}");
        it.take_out();
        general.flags ^= flag;
    }
    it.start();
    let words = &[];
    it.put_in(
        &window,
        Some(&Wanted {
            general: &general,
            words,
        }),
    );
    assert_eq!(it.run(), Came::ToTheLanding);
    assert_eq!(it.data.visits(), 4322);
    it.take_out();
}

thread_local! {
    /// The stub and its data, how many stops within it are to come, and how many were seen.
    static WITHIN: Cell<Option<(*const Stub, *mut Fixture, u64)>> = const { Cell::new(None) };
}

const TRAP: u64 = 1 << 8;

/// At each step: takes the replica out of the stub when its turn has come.
extern "C" fn on_step(_: i32, _: *const SigInfo, context: *mut UContext) {
    let Some((stub, fixture, left)) = WITHIN.get() else {
        return;
    };
    // SAFETY: the kernel's context, and what the test below keeps.
    let (context, stub, fixture) = unsafe { (&mut *context, &*stub, &mut *fixture) };
    let mut cpu = context.machine.cpu();
    let stop = stub.original(&mut cpu, &fixture.data);
    if stop == Stop::Elsewhere {
        return;
    }
    if left > 0 {
        // Not this time.
        WITHIN.set(Some((&raw const *stub, &raw mut *fixture, left - 1)));
        return;
    }
    if stop == (Stop::AtWindow { counted: true }) {
        fixture.data.forget_visit();
    }
    WITHIN.set(None);
    fixture.take_out();
    cpu.rflags &= !TRAP;
    context.machine.set_cpu(&cpu);
}

#[test]
fn whoever_is_stopped_within_a_stub_goes_on_without_it() {
    signal_stack();
    for (program, place) in [
        programs::flags(),
        programs::branching(),
        programs::counting(),
    ] {
        let mut it = Fixture::new(program);
        sys::install_handler(5, on_step as *const () as u64, restorer_address(), 0);
        it.start();
        assert_eq!(it.run(), Came::ToItsEnd);
        let plain = it.state();
        let window = it.window(place);
        // One that all but memory fits, and one that differs at once.
        let states = it.visits(&window, 3);
        for (wanted, value) in [(2, 0), (2, 1), (1, 0)] {
            let (general, _) = &states[wanted];
            let words = &[(
                Place::Memory(it.memory + 800),
                0x1111_0000_0000 + 100 + value,
            )];
            let wanted = Wanted { general, words };
            let stops = stop_at_each_step(&mut it, &window, Stops::At(&wanted), &plain);
            assert!(stops > 60, "there are many instructions");
        }
        stop_at_each_step(&mut it, &window, Stops::Never, &plain);
    }
}

/// Stops a replica at the first instruction within the stub, and once more at each of the next,
/// takes the stub out, and has it go on to the end, which has to be as `plain`. How often that was?
fn stop_at_each_step(
    it: &mut Fixture,
    window: &Window,
    stops: Stops<'_>,
    plain: &(General, Vec<u8>, Vec<u64>),
) -> u64 {
    /// Of a stub that is passed again and again that is enough.
    const MOST: u64 = 200;
    for stop in 0..MOST {
        it.start();
        let stub = it.put(window, stops);
        WITHIN.set(Some((&raw const stub, &raw mut *it, stop)));
        machine().general.flags |= TRAP;
        let came = it.run();
        if WITHIN.take().is_some() {
            it.take_out();
            return stop;
        }
        assert_eq!(came, Came::ToItsEnd);
        assert!(it.state() == *plain, "stop {stop} of {stops:?}");
    }
    MOST
}

#[test]
fn whoever_is_within_the_window_goes_on_in_the_stub() {
    let (program, place) = programs::counting();
    let mut it = Fixture::new(program);
    it.start();
    it.run();
    let plain = it.state();
    let window = it.window(place);
    let inner: Vec<u64> = window.instructions().map(|(at, ..)| at).skip(1).collect();
    assert!(!inner.is_empty());
    for inner in inner {
        it.start();
        // Stop right before, by hand: the instruction in front of it is `add $3,%rax`.
        let stub = it.put_in(&window, None);
        assert_eq!(it.run(), Came::ToTheLanding);
        machine().general.registers[0] += 3;
        machine().general.rip = stub.resumed(inner);
        assert_ne!(machine().general.rip, inner);
        let mut visits = 1;
        while it.run() == Came::ToTheLanding {
            visits += 1;
            machine().general.rip = stub.past();
        }
        assert_eq!(visits, 2000);
        assert_eq!(stub.resumed(window.at), window.at);
        assert_eq!(stub.resumed(window.end()), window.end());
        it.take_out();
        let flags = |general: &General| general.registers;
        let after = it.state();
        assert_eq!(flags(&after.0), flags(&plain.0));
        assert!(after.2 == plain.2);
    }
}

#[test]
fn places_are_behind_what_is_repeated_and_never_lead_into_a_window() {
    let (program, place) = programs::repeated();
    let it = Fixture::new(program);
    let at = it.at(place);
    assert_eq!(window(at, &it.around()), Err(Refused::Repeated));
    let Choice::At(found) = choose(at, &it.around()) else {
        panic!("there is a place behind it");
    };
    assert!(found.at >= at + 2);
    drop(it);
    // `inc eax; dec ecx; jne` back to the `dec`; `ret`.
    let inner = [0xff, 0xc0, 0xff, 0xc9, 0x75, 0xfc, 0xc3];
    let it = Fixture::new(&inner);
    assert_eq!(window(it.at(0), &it.around()), Err(Refused::InnerBranch));
    let Choice::At(found) = choose(it.at(0), &it.around()) else {
        panic!("the second is a place");
    };
    assert_eq!(found.at, it.at(2), "whose branch leads to itself");
}

#[test]
fn what_cannot_take_a_jump_is_refused_by_name() {
    let refused: [(&[u8], Refused); 7] = [
        (&[0xe8, 0, 0, 0, 0], Refused::Call),
        (&[0x0f, 0x05, 0x90, 0x90, 0x90], Refused::SystemCall),
        (&[0x90, 0xd9, 0xe8, 0x90, 0x90], Refused::X87),
        (&[0x90, 0xcc, 0x90, 0x90, 0x90], Refused::Traps),
        (&[0x0f, 0xa2, 0x90, 0x90, 0x90], Refused::Traps),
        (&[0x90, 0xc3, 0x90, 0x90, 0x90], Refused::TooShort),
        (&[0x06, 0x90, 0x90, 0x90, 0x90], Refused::Unknown),
    ];
    for (code, why) in refused {
        let it = Fixture::new(code);
        assert_eq!(window(it.at(0), &it.around()), Err(why), "{code:x?}");
    }
    let it = Fixture::new(&[0x90; 16]);
    let (code, others) = (it.around().code, &[it.at(0)..it.at(8), 0..1]);
    let around = crate::coupling::place::Surroundings {
        code,
        others,
        made: None,
        changes: None,
    };
    assert_eq!(
        choose(it.at(0), &around),
        Choice::Refused(Refused::NotTheProgram)
    );
    assert_eq!(choose(it.memory, &around), Choice::Refused(Refused::NoCode));
    drop(it);
    let it = Fixture::new(&[0x90, 0x0f, 0x05]);
    assert_eq!(choose(it.at(0), &it.around()), Choice::Call(it.at(1)));
    drop(it);
    let it = Fixture::new(&[0x75, 0x00, 0xc3]);
    assert!(matches!(
        choose(it.at(2), &it.around()),
        Choice::Step(Refused::TooShort)
    ));
}

#[test]
fn code_is_written_only_where_it_is_what_was_looked_at() {
    let (program, place) = programs::counting();
    let mut it = Fixture::new(program);
    let window = it.window(place);
    let shared = crate::coupling::patch::Protection {
        is_private: false,
        ..crate::coupling::tests::harness::CODE
    };
    let put = it.patch.put_in(&window, it.text, shared);
    assert_eq!(put, Err(Unwritten::Shared));
    crate::coupling::patch::write(window.at, &[0x90], super::harness::CODE).expect("written");
    let put = it.patch.put_in(&window, it.text, super::harness::CODE);
    assert_eq!(put, Err(Unwritten::Changed));
    let by_protection = crate::coupling::patch::write_unprotected;
    let bits = super::harness::CODE.bits;
    by_protection(window.at, &window.code()[..1], bits).expect("written in the other way");
    it.patch
        .put_in(&window, it.text, super::harness::CODE)
        .expect("as before");
    it.patch.take_out(super::harness::CODE).expect("taken out");
    assert_eq!(it.window(place), window);
}

/// Tells what a visit costs, roughly, by what differs first: with `cargo test --release --lib`,
/// `a_visit_costs --ignored --nocapture`.
#[test]
#[ignore = "tells of the speed of a machine"]
fn a_visit_costs() {
    const VISITS: u64 = 1_000_000;
    let (program, place) = programs::by_memory();
    let mut it = Fixture::new(program);
    let window = it.window(place);
    it.start();
    machine().general.registers[8] = 0x1111_0000_0000 + VISITS;
    let stub = it.put_in(&window, None);
    for _ in 0..2 {
        assert_eq!(it.run(), Came::ToTheLanding);
        machine().general.rip = stub.past();
    }
    it.take_out();
    let general = machine().general;
    let memory = it.memory;
    let mut timed = |wanted: Option<&Wanted<'_>>| {
        let mut best = f64::MAX;
        for _ in 0..10 {
            it.start();
            machine().general.registers[8] = 0x1111_0000_0000 + VISITS;
            if let Some(wanted) = wanted {
                it.put_in(&window, Some(wanted));
            }
            let begun = std::time::Instant::now();
            assert_eq!(it.run(), Came::ToItsEnd);
            best = best.min(begun.elapsed().as_secs_f64());
            it.take_out();
        }
        best * 1e9 / VISITS as f64
    };
    let plain = timed(None);
    println!("an iteration without a stub: {plain:.2} ns");
    for (what, register) in [("rcx", 1), ("r15", 15), ("rax", 0)] {
        let mut general = general;
        general.registers[register] ^= 1 << 40;
        let general = &general;
        let cost = timed(Some(&Wanted {
            general,
            words: &[],
        })) - plain;
        println!("{what}: {cost:.2} ns a visit");
    }
    let vector = Source::Vector {
        register: 7,
        bytes: 16,
        offset: 0,
    };
    for (what, word) in [
        ("a word of memory", Place::Memory(memory)),
        ("a word of xmm7", Place::Extended(vector)),
        ("a word of x87", Place::Extended(Source::Legacy(32))),
    ] {
        let words = &[(word, 1)];
        let general = &general;
        let cost = timed(Some(&Wanted { general, words })) - plain;
        println!("{what}: {cost:.2} ns a visit");
    }
}

#[test]
fn only_the_breakpoint_that_is_to_stop_it_stops_who_goes_on() {
    const RESUME: u64 = 1 << 16;
    let mut cpu = SigContext::default().cpu();
    (cpu.rip, cpu.rflags) = (restorer_address(), RESUME);
    let mut site = Site::EMPTY;
    site.resume(&mut cpu);
    assert_eq!(
        cpu.rflags, RESUME,
        "a visit that was counted is not counted twice"
    );
    if site.watch(cpu.rip, 0).is_ok() {
        site.resume(&mut cpu);
        assert_eq!(cpu.rflags, 0);
        site.take_out();
    }
}

#[test]
fn a_spot_takes_the_place_of_what_the_jump_overwrites() {
    let (program, place) = programs::counting();
    let it = Fixture::new(program);
    let window = it.window(place);
    let jump = Spot::Jump(window);
    assert!(window.instructions().all(|(at, ..)| jump.takes(at)));
    assert!(!jump.takes(window.at - 1) && !jump.takes(window.end()));
    let breakpoint = Spot::Breakpoint(7);
    assert!(breakpoint.takes(7) && !breakpoint.takes(8));
}
