//! The interrupt controller (GICv3): each core's own part, and the distributor, whose lines the
//! primary alone programs; and the core's two timers.
//!
//! Interrupts of group 1 come as IRQs, which the kernel keeps masked. The one of group 0 comes as
//! FIQ, which it does not mask: by it a replica that was removed is stopped whatever it does.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use super::cpu;
use super::layout::{DISTRIBUTOR, REDISTRIBUTOR};
use super::level;
use crate::arch::permit::spend;

/// Vector of the local timer.
pub(crate) const VECTOR_TIMER: u64 = 0x20;
/// Vector by which a replica calls the others into their kernels.
const VECTOR_CALL: u64 = 0x28;
/// Vector of the counter of instructions.
const VECTOR_COUNTER: u64 = 0x29;
/// Vector of interrupt line 0; those of the others follow.
pub(crate) const VECTOR_LINES: u64 = 0x30;

/// Numbers of the controller's: between cores, this core's timers, shared lines, none.
const CALL: u32 = 1;
const STOP: u32 = 2;
const BATON: u32 = 3;
const COUNTER: u32 = 23;
const LINES: u32 = 32;
const NONE: u32 = 1020;

/// Of the tick's timer, which is that of this kernel's own level, and of the interval timer, which
/// is another one of the core's.
const TICK: [u32; 2] = [30, 26];
const TIMER: [u32; 2] = [27, 30];

/// The number that an interrupt has on the kernel's level: 1 or 2.
fn on_level(numbers: [u32; 2]) -> u32 {
    numbers[usize::from(level::is_host())]
}

/// Registers of this core's part; all but the first two in its second half.
const WAKER: u64 = 0x14;
const OWN: u64 = 0x1_0000;
/// Registers by group of 32 interrupts: group, enable, disable, not pending, not being handled.
const GROUP: u64 = 0x80;
const ENABLE: u64 = 0x100;
const DISABLE: u64 = 0x180;
const FORGET: u64 = 0x280;
const NOT_ACTIVE: u64 = 0x380;
/// By interrupt, in bytes: lower ones come first.
const PRIORITY: u64 = 0x400;
/// By interrupt, to which core it goes.
const ROUTE: u64 = 0x6000;

/// Interrupts of lower priorities, which are larger numbers, stay pending: none; all but the baton
/// and this core's tick.
const ALL: u64 = 0xff;
const DOZING: u64 = 0x60;
/// And all but the one that stops this core.
const PARKED: u64 = 0x10;

/// Units of the timer between ticks. The same in all replicas.
static PERIOD: AtomicU32 = AtomicU32::new(0);

/// There is no static that each replica has its own of.
pub(in crate::arch) const fn own_statics() -> Range<u64> {
    0..0
}

fn write(address: u64, value: u32) {
    // SAFETY: the controller is mapped here in every partition; the kernel lets only interrupts
    // through that it handles.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// This core's number.
#[must_use]
pub(crate) fn id() -> u32 {
    cpu::number() as u32
}

/// Nothing that could be written says what a core is called by.
pub(crate) const fn forget_name() {}

/// Lets interrupts through; with `period` in timer units, a periodic one of its own.
pub(crate) fn enable(period: u32) {
    PERIOD.store(period, Ordering::Relaxed);
    write(REDISTRIBUTOR + WAKER, 0);
    let own = REDISTRIBUTOR + OWN;
    // What came for a replica that is lost does not concern its copy, nor does what that was
    // handling when it broke.
    write(own + DISABLE, u32::MAX);
    write(own + FORGET, u32::MAX);
    write(own + NOT_ACTIVE, u32::MAX);
    write(own + GROUP, !(1 << STOP));
    for interrupts in (0..32).step_by(4) {
        write(own + PRIORITY + interrupts, 0x8080_8080);
    }
    // Comes whatever is being handled; and what ends a doze.
    write(own + PRIORITY, 0x4000_8080);
    let tick = on_level(TICK);
    let (word, place) = (tick / 4, 8 * (tick % 4));
    write(
        own + PRIORITY + u64::from(4 * word),
        0x8080_8080 ^ 0xc0 << place,
    );
    write(
        own + ENABLE,
        1 << CALL | 1 << STOP | 1 << BATON | u32::from(period != 0) << tick,
    );
    start_timer(0);
    // SAFETY: the handlers are installed; IRQs stay masked in the kernel, and an FIQ ends it.
    unsafe {
        asm!(
            "msr s3_0_c12_c12_5, {one}",
            "msr s3_0_c12_c8_4, xzr", // ICC_AP0R0_EL1
            "msr s3_0_c12_c9_0, xzr", // ICC_AP1R0_EL1
            "isb",
            "msr s3_0_c4_c6_0, {all}", // ICC_PMR_EL1
            "msr s3_0_c12_c12_6, {one}",
            "msr s3_0_c12_c12_7, {one}",
            "msr cntp_tval_el0, {period}",
            "msr cntp_ctl_el0, {run}",
            "isb",
            "msr daifclr, #1",
            one = in(reg) 1_u64,
            all = in(reg) ALL,
            period = in(reg) u64::from(period),
            run = in(reg) u64::from(period != 0),
            options(nostack),
        );
    }
}

/// Has the interval timer interrupt once after so many microseconds; 0 stops it.
pub(in crate::arch) fn start_timer(microseconds: u64) {
    let frequency: u64;
    // SAFETY: reading the register changes nothing.
    unsafe {
        asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags));
    }
    let units = (microseconds & 0xff_ffff) * frequency / 1_000_000;
    level::start_timer(units.min(i32::MAX as u64));
}

/// Takes an interrupt that came: its vector, until it is ended. 0 has no handler.
fn take() -> Option<(u64, u64)> {
    let number: u64;
    // SAFETY: what is taken is ended below.
    unsafe { asm!("mrs {}, s3_0_c12_c12_0", "dsb sy", out(reg) number, options(nostack)) };
    let vector = match number as u32 {
        NONE.. => return None,
        CALL => VECTOR_CALL,
        COUNTER => VECTOR_COUNTER,
        tick if tick == on_level(TICK) => {
            again();
            VECTOR_TIMER
        }
        timer if timer == on_level(TIMER) => VECTOR_LINES,
        line @ LINES.. => VECTOR_LINES + u64::from(line - LINES),
        _ => 0,
    };
    Some((number, vector))
}

/// The next tick.
fn again() {
    begin_slice(0);
}

/// Units of the timer until the next tick; 0 if it is due.
pub(in crate::arch) fn rest_of_slice() -> u64 {
    let rest: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, cntp_tval_el0", out(reg) rest, options(nomem, nostack)) };
    u64::from((rest as u32).cast_signed().max(0).unsigned_abs())
}

/// Units of the timer between ticks.
pub(in crate::arch) fn period() -> u64 {
    PERIOD.load(Ordering::Relaxed).into()
}

/// The next tick comes after these units of the timer, or after a whole period if they are none.
pub(crate) fn begin_slice(rest: u64) {
    let period = match rest {
        0 => u64::from(PERIOD.load(Ordering::Relaxed)),
        rest => rest,
    };
    // SAFETY: the timer is this kernel's.
    unsafe { asm!("msr cntp_tval_el0, {}", "isb", in(reg) period, options(nostack)) };
}

fn end(number: u64) {
    // SAFETY: it was taken.
    unsafe { asm!("msr s3_0_c12_c12_1, {}", "isb", in(reg) number, options(nostack)) };
}

/// Takes an interrupt, if there is one, and has it handled.
pub(in crate::arch) fn handle(handler: impl FnOnce(u64)) {
    if let Some((number, vector)) = take() {
        handler(vector);
        end(number);
    }
}

/// Vectors of interrupts that came while the kernel was idle. One that stays is handled and shut
/// before the next is taken.
pub(crate) fn noted() -> impl Iterator<Item = u64> {
    let mut last = None;
    core::iter::from_fn(move || {
        if let Some(number) = last.take() {
            end(number);
        }
        let (number, vector) = take()?;
        last = Some(number);
        Some(vector)
    })
}

/// Waits for an interrupt, which stays pending.
pub(crate) fn wait_for_interrupt() {
    // SAFETY: it changes nothing.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// The interrupt that stops this core was taken note of.
pub(in crate::arch) fn end_of_stop() {
    // SAFETY: an interrupt of group 0 brought the core here.
    unsafe {
        asm!("mrs {0}, s3_0_c12_c8_0", "msr s3_0_c12_c8_1, {0}", "isb", out(reg) _,
            options(nostack));
    }
}

/// Calls another core into its kernel.
pub(crate) fn call(core: u32) {
    let what = u64::from(CALL) << 24 | 1 << cpu::affinity(core.into());
    // SAFETY: the other core handles it.
    unsafe { asm!("dsb ish", "msr s3_0_c12_c11_5, {}", "isb", in(reg) what, options(nostack)) };
}

/// Lets the interrupt of this core's counter through.
pub(in crate::arch) fn open_counter() {
    write(REDISTRIBUTOR + OWN + ENABLE, 1 << COUNTER);
}

/// Lets nothing through any more but what stops this core.
pub(in crate::arch) fn close() {
    // SAFETY: this core does nothing from here on.
    unsafe { asm!("msr s3_0_c4_c6_0, {}", "isb", in(reg) PARKED, options(nostack)) };
}

/// Hands the baton on to another core.
pub(in crate::arch) fn hand_on(core: u32) {
    let what = u64::from(BATON) << 24 | 1 << cpu::affinity(core.into());
    // SAFETY: the other core waits for that or takes note of it.
    unsafe { asm!("dsb ish", "msr s3_0_c12_c11_5, {}", "isb", in(reg) what, options(nostack)) };
}

/// Waits for the baton, for at most so many cycles; what comes meanwhile stays pending.
pub(in crate::arch) fn doze(cycles: u64) {
    // SAFETY: the timer is this kernel's; what is masked here is let through again below.
    unsafe {
        asm!(
            "msr s3_0_c4_c6_0, {dozing}",
            "msr cntp_tval_el0, {cycles}",
            "isb",
            "dsb sy",
            "wfi",
            dozing = in(reg) DOZING,
            cycles = in(reg) cycles.min(i32::MAX as u64),
            options(nostack, preserves_flags),
        );
    }
    if let Some((number, _)) = take() {
        end(number);
    }
    // SAFETY: as at the start.
    unsafe { asm!("msr s3_0_c4_c6_0, {}", "isb", in(reg) ALL, options(nostack, preserves_flags)) };
}

/// Stops another core, unless it masks even that.
///
/// # Panics
/// If there is no permit for it.
#[inline(never)]
pub(crate) fn stop(core: u32) {
    spend(core);
    let what = u64::from(STOP) << 24 | 1 << cpu::affinity(core.into());
    // SAFETY: the other core was removed.
    unsafe { asm!("dsb ish", "msr s3_0_c12_c11_7, {}", "isb", in(reg) what, options(nostack)) };
}

/// Routes an interrupt line to this core, open or masked. Line 0 is this core's interval timer.
pub(crate) fn route(line: u32, open: bool) {
    let register = if open { ENABLE } else { DISABLE };
    if line == 0 {
        write(REDISTRIBUTOR + OWN + register, 1 << on_level(TIMER));
        return;
    }
    let number = u64::from(LINES + line);
    let core = cpu::affinity(cpu::number()) as u32;
    write(DISTRIBUTOR + ROUTE + number * 8, core);
    write(DISTRIBUTOR + register + 4, 1 << line);
}
