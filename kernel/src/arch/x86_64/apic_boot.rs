//! Clocks and the start of cores: what the loader alone does with the interrupt controllers, at
//! their physical addresses.

use super::cpu::{cycles, port_in, port_out, relax};
use super::layout::LOCAL_APIC_PHYSICAL;
use crate::config;

/// Speeds, by the millisecond.
pub(super) struct Clocks {
    /// Processor cycles.
    pub(super) cycles: u64,
    /// Units of the local timer.
    pub(super) timer: u64,
}

const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER: u64 = 0x320;
const INITIAL: u64 = 0x380;
const CURRENT: u64 = 0x390;
const DIVIDE: u64 = 0x3e0;
const SPURIOUS: u64 = 0xf0;

fn read(register: u64) -> u32 {
    // SAFETY: the loader runs with the local APIC mapped at its physical address.
    unsafe { ((LOCAL_APIC_PHYSICAL + register) as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as for reading; nothing here raises an interrupt on this core, where they are off.
    unsafe { ((LOCAL_APIC_PHYSICAL + register) as *mut u32).write_volatile(value) }
}

/// The frequency of the interval timer, and the count of 10 ms.
const PIT_COUNT: u32 = 11_932;

/// Both clocks: as the command line says, else measured against 10 ms of the interval timer.
pub(super) fn calibrate(command: &[u8]) -> Clocks {
    if let Some((cycles, timer)) = config::clocks(command) {
        return Clocks { cycles, timer };
    }
    write(SPURIOUS, 0x1ff);
    write(DIVIDE, 0b1011);
    write(TIMER, 1 << 16);
    // Channel 2, gate off, one count to zero.
    let gate = port_in(0x61, 1) & !3;
    port_out(0x61, 1, gate);
    port_out(0x43, 1, 0b1011_0000);
    port_out(0x42, 1, PIT_COUNT & 0xff);
    port_out(0x42, 1, PIT_COUNT >> 8);
    write(INITIAL, u32::MAX);
    let start = cycles();
    port_out(0x61, 1, gate | 1);
    // Bounded, should the timer be missing: longer than 10 ms on any machine.
    for _ in 0..10_000_000 {
        if port_in(0x61, 1) & 0x20 != 0 {
            break;
        }
        relax();
    }
    let spent = cycles() - start;
    let units = u32::MAX - read(CURRENT);
    write(INITIAL, 0);
    Clocks {
        cycles: (spent / 10).max(1),
        timer: u64::from(units / 10).max(1),
    }
}

/// Masks the old interrupt controllers, which the firmware leaves open.
pub(super) fn quiet_old_controllers() {
    port_out(0x21, 1, 0xff);
    port_out(0xa1, 1, 0xff);
}

/// Nobody else has anything to do meanwhile, so it seldom looks at the clock.
fn pause(milliseconds: u64, clocks: &Clocks) {
    let start = cycles();
    while cycles() - start < milliseconds * clocks.cycles {
        for round in 0..1_000 {
            core::hint::black_box(round);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a core's id")]
fn send(core: u64, what: u32) {
    write(COMMAND_HIGH, (core as u32) << 24);
    write(COMMAND_LOW, what);
}

/// Starts all cores but this one at the page `at`, as the processor's manual prescribes.
#[expect(clippy::cast_possible_truncation, reason = "a low page")]
pub(super) fn start_cores(count: u64, at: u64, clocks: &Clocks) {
    if count < 2 {
        return;
    }
    for core in 1..count {
        send(core, 0x4500);
    }
    pause(10, clocks);
    for _ in 0..2 {
        for core in 1..count {
            send(core, 0x4600 | (at >> 12) as u32);
        }
        pause(1, clocks);
    }
}
