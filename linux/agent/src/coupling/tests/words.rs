//! States whose registers are alike are told apart by a word more.

use std::cell::Cell;

use crate::arch::entry::restorer_address;
use crate::arch::frames::{SigInfo, UContext};
use crate::coupling::state::{Source, digest, first_word};
use crate::coupling::stub::{Place, Stub, Wanted};
use crate::coupling::tests::harness::{Came, Fixture, machine, signal_stack};
use crate::coupling::tests::programs;
use crate::sys;

const FIRST: u64 = 0x1111_0000_0000;
const ITERATIONS: u64 = 300;

/// Starts with a limit for programs that count in something else than general registers.
fn start(it: &mut Fixture, limit: u64) {
    it.start();
    machine().general.registers[8] = limit;
}

#[test]
fn alike_registers_are_refused_by_memory_and_refined_by_a_word() {
    let (program, place) = programs::by_memory();
    let mut it = Fixture::new(program);
    let window = it.window(place);
    start(&mut it, FIRST + ITERATIONS);
    let stub = it.put_in(&window, None);
    let mut states = Vec::new();
    while it.run() == Came::ToTheLanding {
        machine().general.rip = window.at;
        states.push(it.state());
        machine().general.rip = stub.past();
    }
    it.take_out();
    assert_eq!(states.len() as u64, ITERATIONS);
    for number in [3, 77, 299] {
        let (general, image, memory) = &states[number];
        let published: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        start(&mut it, FIRST + ITERATIONS);
        let stub = it.put_in(
            &window,
            Some(&Wanted {
                general,
                words: &[],
            }),
        );
        // The registers are alike at the second visit already.
        assert_eq!(it.run(), Came::ToTheLanding);
        assert_eq!(it.data.visits(), 2);
        machine().general.rip = window.at;
        let (here, extended, memory) = it.state();
        assert_eq!(digest(&here, &extended), digest(general, image));
        let memory: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (offset, value) = first_word(&published, &memory).expect("memory differs");
        it.take_out();
        let word = (Place::Memory(it.memory + offset as u64), value);
        let words = &[word];
        machine().general.rip = stub.window().at;
        it.put_in(&window, Some(&Wanted { general, words }));
        assert_eq!(it.run(), Came::ToTheLanding);
        assert_eq!(it.data.visits(), number as u64 - 1 + 1);
        machine().general.rip = window.at;
        assert!(it.state() == states[number], "iteration {number}");
        it.take_out();
    }
}

/// Stops a program at visits that differ in the word at this offset of the extended state only.
fn refine((program, place): (&[u8], usize), offset: usize, source: Source) {
    let mut it = Fixture::new(program);
    let window = it.window(place);
    assert_eq!(it.layout.source(offset), Some(source));
    start(&mut it, ITERATIONS);
    let stub = it.put_in(&window, None);
    let mut states = Vec::new();
    while it.run() == Came::ToTheLanding {
        machine().general.rip = window.at;
        let (general, image, _) = it.state();
        states.push((general, image));
        machine().general.rip = stub.past();
    }
    it.take_out();
    assert_eq!(states.len() as u64, ITERATIONS);
    for number in [5, 121, 299] {
        let (general, image) = &states[number];
        let (first, _) = first_word(image, &states[number - 1].1).expect("the images differ");
        assert!(first <= offset);
        let value = u64::from_le_bytes(image[offset..offset + 8].try_into().expect("a word"));
        start(&mut it, ITERATIONS);
        let words = &[(Place::Extended(source), value)];
        it.put_in(&window, Some(&Wanted { general, words }));
        assert_eq!(it.run(), Came::ToTheLanding, "{source:?}");
        assert_eq!(it.data.visits(), number as u64 + 1, "{source:?}");
        machine().general.rip = window.at;
        let (here, extended, _) = it.state();
        assert!((here, extended) == (*general, image.clone()), "{source:?}");
        it.take_out();
    }
}

#[test]
fn a_word_of_x87_or_sse_tells_states_apart() {
    refine(programs::vectors(), 32, Source::Legacy(32));
    let vector = |register, offset| Source::Vector {
        register,
        bytes: 16,
        offset,
    };
    refine(programs::vectors(), 160 + 9 * 16, vector(9, 0));
    refine(programs::vectors(), 160 + 9 * 16 + 8, vector(9, 8));
}

#[test]
fn a_word_of_a_wide_register_or_a_mask_tells_states_apart() {
    if !std::arch::is_x86_feature_detected!("avx512bw") {
        return;
    }
    let component = |number| {
        let start = core::arch::x86_64::__cpuid_count(0xd, number).ebx;
        usize::try_from(start).expect("small")
    };
    let vector = |register, bytes, offset| Source::Vector {
        register,
        bytes,
        offset,
    };
    refine(
        programs::wide_vectors(),
        component(2) + 3 * 16,
        vector(3, 32, 16),
    );
    refine(
        programs::wide_vectors(),
        component(5) + 3 * 8,
        Source::Mask(3),
    );
    refine(
        programs::wide_vectors(),
        component(6) + 3 * 32 + 8,
        vector(3, 64, 40),
    );
    refine(
        programs::wide_vectors(),
        component(7) + 4 * 64 + 48,
        vector(20, 64, 48),
    );
}

thread_local! {
    static FAULTING: Cell<*const Stub> = const { Cell::new(core::ptr::null()) };
}

extern "C" fn on_fault(_: i32, _: *const SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's context, and the stub that the test below keeps.
    let (context, stub) = unsafe { (&mut *context, FAULTING.get().as_ref()) };
    let landing = stub.and_then(|stub| stub.after_fault(context.machine.rip));
    context.machine.rip = landing.unwrap_or_else(|| std::process::abort());
}

#[test]
fn a_word_that_is_not_there_differs() {
    let (program, place) = programs::by_memory();
    let mut it = Fixture::new(program);
    start(&mut it, FIRST + ITERATIONS);
    assert_eq!(it.run(), Came::ToItsEnd);
    let plain = it.state();
    let window = it.window(place);
    it.start();
    let general = {
        start(&mut it, FIRST + ITERATIONS);
        let stub = it.put_in(&window, None);
        it.run();
        machine().general.rip = stub.past();
        it.run();
        it.take_out();
        machine().general
    };
    signal_stack();
    sys::install_handler(11, on_fault as *const () as u64, restorer_address(), 0);
    start(&mut it, FIRST + ITERATIONS);
    let words = &[(Place::Memory(0x1000), 0)];
    let stub = it.put_in(
        &window,
        Some(&Wanted {
            general: &general,
            words,
        }),
    );
    FAULTING.set(&raw const stub);
    assert_eq!(it.run(), Came::ToItsEnd);
    FAULTING.set(core::ptr::null());
    assert_eq!(it.data.visits(), ITERATIONS);
    it.take_out();
    assert!(it.state() == plain);
}
