//! Large memory of a new process, taken from its replica of the parent only when it is touched.
//!
//! The replicas of a child are copies of its parent's primary, but each is to hold what *its own*
//! replica of the parent held at the fork; a twin of that one keeps it (see
//! `calls::processes::twin`). Small memory is taken over at once. Large memory is made inaccessible
//! instead, and each chunk is compared with the twin's and put right when it is first touched: a
//! child that soon executes another program never pays for it. What was never touched cannot have
//! led to anything.
//!
//! Contract: [`before`] comes before every call of the program, so that the kernel finds its
//! pointers usable and its ranges settled; whatever the agent itself touches under a guard is
//! settled by the fault.

use rcoe_linux_abi::{PAGE, PAGE_BYTES};
use rcoe_linux_syscalls::{Class, Special};

use crate::calls::Call;
use crate::one_thread::OneThread;
use crate::sys;

/// Pages that are compared at a time.
pub(crate) const WINDOW: usize = 64;
const WINDOW_BYTES: u64 = WINDOW as u64 * PAGE;
/// Most areas that wait; further ones are taken over at once.
const AREAS: usize = 128;
/// Chunks of an area; its flags are as many bits.
const CHUNKS: u64 = 64 * FLAG_WORDS as u64;
const FLAG_WORDS: usize = 16;
/// Resident bytes, and bytes of address space, that one outside effect settles.
const PORTION: u64 = 4 << 20;
const SPAN: u64 = 1 << 30;

/// A mapping of the program that waits.
#[derive(Clone, Copy)]
struct Area {
    start: u64,
    end: u64,
    prot: u32,
    /// Bytes of a chunk.
    chunk: u64,
    /// Chunks that are settled.
    done: [u64; FLAG_WORDS],
}

impl Area {
    const NONE: Self = Self {
        start: 0,
        end: 0,
        prot: 0,
        chunk: 0,
        done: [0; FLAG_WORDS],
    };

    fn is_done(&self, chunk: u64) -> bool {
        self.done[crate::convert::size(chunk / 64)] & 1 << (chunk % 64) != 0
    }

    fn chunks(&self) -> u64 {
        (self.end - self.start).div_ceil(self.chunk)
    }
}

/// What one replica still has to take over.
#[repr(C, align(4096))]
struct State {
    buffer: [u8; WINDOW * PAGE_BYTES],
    resident: [u8; WINDOW],
    areas: [Area; AREAS],
    count: usize,
    /// The process that holds what is to be taken over, or 0.
    twin: u32,
}

#[unsafe(link_section = ".bss.own.1")]
static STATE: OneThread<State> = OneThread::new(State {
    buffer: [0; WINDOW * PAGE_BYTES],
    resident: [0; WINDOW],
    areas: [Area::NONE; AREAS],
    count: 0,
    twin: 0,
});

fn state() -> &'static mut State {
    // SAFETY: a replica is one kernel thread; no caller keeps the reference over code that can
    // fault on the program's memory before it is accessible again.
    unsafe { &mut *STATE.get() }
}

/// This module's own memory, which is nobody else's business.
pub(crate) fn own_memory() -> (u64, u64) {
    let start = STATE.get() as u64;
    (start, start + size_of::<State>() as u64)
}

/// Room for pages that are compared.
pub(crate) fn buffer() -> &'static mut [u8] {
    &mut state().buffer
}

/// Is anything left to be taken over?
#[inline]
pub(crate) fn is_active() -> bool {
    state().twin != 0
}

/// From here on `twin` is asked.
pub(crate) fn begin(twin: u32) {
    let state = state();
    state.twin = twin;
    state.count = 0;
}

/// Another process holds what is to be taken over.
pub(crate) fn held_by(twin: u32) {
    state().twin = twin;
}

/// Notes a mapping to be taken over later; false if there is no room for it.
pub(crate) fn add(start: u64, end: u64, prot: u32) -> bool {
    let state = state();
    let Some(area) = state.areas.get_mut(state.count) else {
        return false;
    };
    let chunk = (end - start)
        .div_ceil(CHUNKS)
        .next_multiple_of(WINDOW_BYTES);
    *area = Area {
        start,
        end,
        prot,
        chunk,
        ..Area::NONE
    };
    state.count += 1;
    true
}

/// Makes all that was noted inaccessible.
pub(crate) fn close_off() {
    let state = state();
    for area in &state.areas[..state.count] {
        // SAFETY: memory of the program, which is made accessible again before it is used.
        let closed = unsafe { sys::mprotect(area.start, area.end - area.start, 0) };
        closed.expect("a mapping of the program");
    }
}

/// Nothing is needed of the twin any more.
pub(crate) fn finish() -> Option<u32> {
    let state = state();
    let twin = core::mem::take(&mut state.twin);
    state.count = 0;
    (twin != 0).then_some(twin)
}

/// Is everything settled?
pub(crate) fn is_settled() -> bool {
    let state = state();
    state.areas[..state.count]
        .iter()
        .all(|area| (0..area.chunks()).all(|at| area.is_done(at)))
}

/// The program or the agent has touched this address and may not: settles its chunk if that is
/// why.
pub(crate) fn on_fault(address: u64) -> bool {
    let state = state();
    let areas = &state.areas[..state.count];
    let found = areas
        .iter()
        .position(|area| (area.start..area.end).contains(&address))
        .map(|at| (at, (address - areas[at].start) / areas[at].chunk));
    match found {
        Some((at, chunk)) if !areas[at].is_done(chunk) => {
            settle_chunk(at, chunk);
            true
        }
        _ => false,
    }
}

/// Settles all chunks that the range touches.
pub(crate) fn settle(start: u64, len: u64) {
    let end = start.saturating_add(len);
    for at in 0..state().count {
        let area = state().areas[at];
        if area.start >= end || start >= area.end {
            continue;
        }
        let first = (start.max(area.start) - area.start) / area.chunk;
        let last = (end.min(area.end) - 1 - area.start) / area.chunk;
        for chunk in first..=last {
            if !area.is_done(chunk) {
                settle_chunk(at, chunk);
            }
        }
    }
}

/// Settles everything.
pub(crate) fn settle_all() {
    settle(0, u64::MAX);
}

/// Settles some more, so that the twin is not needed for ever.
fn settle_portion() {
    let (mut copied, mut walked) = (0, 0);
    for at in 0..state().count {
        let area = state().areas[at];
        for chunk in (0..area.chunks()).filter(|chunk| !area.is_done(*chunk)) {
            if copied >= PORTION || walked >= SPAN {
                return;
            }
            copied += settle_chunk(at, chunk);
            walked += area.chunk;
        }
    }
}

/// Makes one chunk accessible, with the content that the twin has; returns the bytes compared.
fn settle_chunk(at: usize, chunk: u64) -> u64 {
    let state = state();
    let area = &mut state.areas[at];
    area.done[crate::convert::size(chunk / 64)] |= 1 << (chunk % 64);
    let start = area.start + chunk * area.chunk;
    let end = (start + area.chunk).min(area.end);
    let (prot, twin) = (area.prot, state.twin);
    // SAFETY: as the program had it.
    let opened = unsafe { sys::mprotect(start, end - start, prot) };
    opened.expect("a mapping of the program");
    let mut compared = 0;
    let mut window = start;
    while window < end {
        let len = (end - window).min(WINDOW_BYTES);
        compared += settle_window(state, twin, window, len);
        window += len;
    }
    compared
}

fn settle_window(state: &mut State, twin: u32, start: u64, len: u64) -> u64 {
    let pages = crate::convert::size(len / PAGE);
    let asked = sys::resident(start, &mut state.resident[..pages]);
    assert_eq!(asked, 0, "a mapping of ours");
    let mut compared = 0;
    let resident = &state.resident[..pages];
    for run in resident.chunk_by(|a, b| a & 1 == b & 1) {
        let first = run.as_ptr().addr() - resident.as_ptr().addr();
        if run[0] & 1 == 0 {
            continue;
        }
        let from = start + first as u64 * PAGE;
        let buffer = &mut state.buffer[..run.len() * PAGE_BYTES];
        if sys::read_process(twin, from, buffer) != buffer.len() {
            crate::fail(&format_args!(
                "the parent's memory at {from:#x} cannot be read"
            ));
        }
        for (place, page) in (from..).step_by(PAGE_BYTES).zip(buffer.chunks_exact(4096)) {
            take(place, page);
        }
        compared += run.len() as u64 * PAGE;
    }
    compared
}

/// Writes a page of the program if it differs; an equal one stays shared with its siblings.
fn take(address: u64, page: &[u8]) {
    // SAFETY: a resident page of the program, readable and writable, that nobody else uses now.
    let own = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, page.len()) };
    if !same(own, page) {
        own.copy_from_slice(page);
    }
}

/// Do two pages hold the same?
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    let word = |bytes: &[u8]| {
        let fold = |word: u64, &byte: &u8| word << 8 | u64::from(byte);
        bytes.iter().rev().fold(0, fold)
    };
    let pairs = a.chunks_exact(8).zip(b.chunks_exact(8));
    pairs.fold(0, |all, (a, b)| all | word(a) ^ word(b)) == 0
}

/// May the twin be out of reach after this call, which makes this process another user's?
pub(crate) fn changes_credentials(call: &Call) -> bool {
    matches!(call.what.special, Special::Credentials | Special::Capset)
}

/// A call of the program comes: settles what the kernel may touch for it, and on the way out to
/// the world a portion of the rest. Tells whether everything is settled.
pub(crate) fn before(call: &Call) -> bool {
    if changes_credentials(call) {
        settle_all();
        return true;
    }
    match call.what.special {
        Special::Munmap
        | Special::Mprotect
        | Special::Madvise
        | Special::Mlock
        | Special::Mmap
        | Special::Msync => {
            settle(call.arg(0), call.arg(1));
        }
        // They may reach further than their arguments say.
        Special::Mremap | Special::Brk | Special::Mlockall => settle_all(),
        Special::None if call.what.class == Class::Local => {
            settle(call.arg(0), call.arg(1));
        }
        _ => {}
    }
    match call.what.class {
        Class::Local | Class::Emulated => {
            for value in call.raw {
                settle(value, PAGE);
            }
        }
        Class::Output if call.what.special != Special::ExitGroup => {
            settle_portion();
            return is_settled();
        }
        _ => {}
    }
    false
}
