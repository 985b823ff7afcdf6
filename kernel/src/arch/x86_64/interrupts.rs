//! Interrupt controllers: each core's local APIC, and the one I/O APIC that the primary alone
//! programs.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_abi::arch::x86_64::FIRST_CORE;

use super::cpu;
use super::layout::{IO_APIC, LOCAL_APIC};
use crate::arch::permit::spend;

/// Vector of the local timer.
pub(crate) const VECTOR_TIMER: u64 = 0x20;
/// Vector by which a replica calls the others into their kernels.
pub(crate) const VECTOR_CALL: u64 = 0x28;
/// Vector by which this core's counter interrupts it.
const VECTOR_COUNTER: u64 = 0x29;
/// Vector of interrupt line 0; those of the others follow.
pub(crate) const VECTOR_LINES: u64 = 0x30;
/// Vector of an interrupt that went away before it was taken.
pub(crate) const VECTOR_SPURIOUS: u64 = 0xff;

const ID: u64 = 0x20;
const LOGICAL_ID: u64 = 0xd0;
const END: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER: u64 = 0x320;
const OVERFLOW: u64 = 0x340;
const LINE_1: u64 = 0x360;
const INITIAL: u64 = 0x380;
const CURRENT: u64 = 0x390;
const DIVIDE: u64 = 0x3e0;

const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;
const BUSY: u32 = 1 << 12;
const DELIVER_INIT: u32 = 5 << 8;
const ASSERT: u32 = 1 << 14;
/// The destination is a set of logical names, not a name.
const LOGICAL: u32 = 1 << 11;
/// The destination is every core but this one.
const ALL_OTHERS: u32 = 3 << 18;

/// Interrupts that came while the kernel was idle, one bit each, by vector less 32.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// The static that each replica has its own of.
pub(in crate::arch) fn own_statics() -> Range<u64> {
    let start = &raw const NOTED as u64;
    start..start + size_of_val(&NOTED) as u64
}

/// An interrupt came while the kernel was idle.
pub(in crate::arch) fn note_interrupt(vector: u64) {
    let bit = vector.wrapping_sub(32);
    if bit < 64 {
        NOTED.fetch_or(1 << bit, Ordering::Relaxed);
    }
}

/// Vectors noted since last asked.
pub(crate) fn noted() -> impl Iterator<Item = u64> {
    let noted = NOTED.swap(0, Ordering::Relaxed);
    (0..64)
        .filter(move |bit| noted & 1 << bit != 0)
        .map(|bit| bit + 32)
}

/// Waits for an interrupt, with interrupts on for just that long.
pub(crate) fn wait_for_interrupt() {
    // SAFETY: an interrupt that comes here finds the kernel idle: its handler takes a note and
    // returns.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

fn read(register: u64) -> u32 {
    // SAFETY: the page of the local APIC is mapped here in every partition.
    unsafe { ((LOCAL_APIC + register) as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as for reading; the kernel writes registers that raise interrupts only on vectors
    // which it handles.
    unsafe { ((LOCAL_APIC + register) as *mut u32).write_volatile(value) }
}

/// The number by which controllers know the core of a replica.
const fn number_of(core: u32) -> u32 {
    core + FIRST_CORE
}

/// The one of a set of cores by which they know it too, a bit each as after a reset: INIT reaches a
/// core by either.
const fn logical_name_of(core: u32) -> u32 {
    1 << number_of(core)
}

/// This core's number: that of its replica. The processor tells, since its controller can be made
/// to forget.
#[must_use]
pub(crate) fn id() -> u32 {
    cpu::first_id().wrapping_sub(FIRST_CORE)
}

/// Has the controller forget what it is called, where a test says so.
pub(crate) fn forget_name() {
    write(ID, 0);
}

/// Lets interrupts through; with `period` in timer units, a periodic one of its own.
pub(crate) fn enable(period: u32) {
    write(ID, number_of(id()) << 24);
    write(LOGICAL_ID, logical_name_of(id()) << 24);
    write(SPURIOUS, 0x100 | low(VECTOR_SPURIOUS));
    write(DIVIDE, 0b1011);
    if period == 0 {
        write(TIMER, MASKED);
    } else {
        write(TIMER, PERIODIC | low(VECTOR_TIMER));
        write(INITIAL, period);
    }
}

/// The next tick comes after these units of the timer, as do those that follow; if they are none,
/// after the period that there is.
pub(crate) fn begin_slice(rest: u64) {
    let rest = u32::try_from(rest).unwrap_or(u32::MAX);
    write(INITIAL, if rest == 0 { read(INITIAL) } else { rest });
}

/// Units of the timer between ticks, unless a slice was begun that is shorter.
pub(in crate::arch) fn period() -> u64 {
    read(INITIAL).into()
}

/// Units of the timer until the next tick.
pub(in crate::arch) fn rest_of_slice() -> u64 {
    read(CURRENT).into()
}

/// Lets the interrupts of the emulator's counter through.
pub(in crate::arch) fn open_counter() {
    write(LINE_1, low(VECTOR_COUNTER));
}

/// Lets an interrupt of the processor's own counter through, which masks itself when it comes.
pub(in crate::arch) fn open_overflow() {
    write(OVERFLOW, low(VECTOR_COUNTER));
}

#[expect(clippy::cast_possible_truncation, reason = "vectors are bytes")]
const fn low(vector: u64) -> u32 {
    vector as u32
}

/// The interrupt was taken note of.
pub(crate) fn end_of_interrupt() {
    write(END, 0);
}

fn wait_until_free() {
    // Bounded: a command is accepted within microseconds, or the controller is broken and the
    // command lost, which a timeout finds.
    for _ in 0..100_000 {
        if read(COMMAND_LOW) & BUSY == 0 {
            break;
        }
        cpu::relax();
    }
}

/// Inlined, so that a kernel that comes to one command astray does not give another.
#[inline(always)]
fn command(whom: u32, what: u32) {
    write(COMMAND_HIGH, whom << 24);
    write(COMMAND_LOW, what);
}

/// Calls another core into its kernel.
pub(crate) fn call(core: u32) {
    wait_until_free();
    command(number_of(core), ASSERT | low(VECTOR_CALL));
}

/// Stops another core whatever it does: by INIT, under both of its names. One store astray can
/// have its controller forget one.
///
/// # Panics
/// If there is no permit for it.
#[inline(never)]
pub(crate) fn stop(core: u32) {
    wait_until_free();
    spend(core);
    command(number_of(core), ASSERT | DELIVER_INIT);
    wait_until_free();
    command(logical_name_of(core), ASSERT | LOGICAL | DELIVER_INIT);
}

/// Starts a core that was stopped by INIT at a page below 1 MiB; without one, all that were, which
/// needs no name.
pub(in crate::arch) fn start(core: Option<u32>, page: u64) {
    const DELIVER_STARTUP: u32 = 6 << 8;
    wait_until_free();
    let what = ASSERT | DELIVER_STARTUP | low(page >> 12);
    match core {
        Some(core) => command(number_of(core), what),
        None => command(0, what | ALL_OTHERS),
    }
}

fn io_write(register: u32, value: u32) {
    // SAFETY: the page of the I/O APIC is mapped here in every partition; only the primary comes
    // here.
    unsafe {
        (IO_APIC as *mut u32).write_volatile(register);
        ((IO_APIC + 0x10) as *mut u32).write_volatile(value);
    }
}

/// Routes an interrupt line to this core, open or masked.
pub(crate) fn route(line: u32, open: bool) {
    let masked = if open { 0 } else { MASKED };
    io_write(0x11 + 2 * line, number_of(id()) << 24);
    io_write(0x10 + 2 * line, masked | (low(VECTOR_LINES) + line));
}
