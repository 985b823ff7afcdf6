//! What the loader does on this machine: learning what there is, clocks, and the start of cores,
//! with the interrupt controllers at their physical addresses.

use rcoe_abi::arch::x86_64::FIRST_CORE;

use super::super::loader::{COMMAND_MAX, Given, give_up};
use super::super::memory::{copy_physical, read_physical, write_physical, zero_physical};
use super::cpu::{self, cycles, port_in, port_out, relax};
use super::interrupts;
use super::layout::{LOCAL_APIC_PHYSICAL, PARTITIONS, SHARED_PHYSICAL};
use super::shutdown;
use super::start::{TRAMPOLINE, TRAMPOLINE_CORES, TRAMPOLINE_TABLES};
use crate::arch::permit::spend;
use crate::config;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
}

const START_MAGIC: u64 = 0x336e_c578;

/// Reads what the machine's loader left us (`hvm_start_info` of PVH).
pub(in crate::arch) fn given(info: u64) -> Given {
    let half = |offset: u64| read_physical(info + (offset & !7)) >> ((offset & 4) * 8);
    let half = |offset| half(offset) & 0xffff_ffff;
    if half(0) != START_MAGIC || half(4) < 1 || half(12) < 1 {
        give_up(format_args!("the machine's loader gave no boot image"));
    }
    let module = read_physical(info + 16);
    let image = (read_physical(module), read_physical(module + 8));
    let text = read_physical(info + 24);
    let mut len = 0;
    while len < COMMAND_MAX
        && read_physical((text + len) & !7) >> ((text + len) % 8 * 8) & 0xff != 0
    {
        len += 1;
    }
    let mut end = memory_end(read_physical(info + 40), half(48));
    if image.0 >= PARTITIONS {
        end = end.min(image.0);
    }
    Given {
        image,
        command: (text, len),
        end,
    }
}

/// Where the memory ends in which the partitions begin.
fn memory_end(map: u64, entries: u64) -> u64 {
    for index in 0..entries.min(64) {
        let entry = map + index * 24;
        let (start, size) = (read_physical(entry), read_physical(entry + 8));
        let ram = read_physical(entry + 16) & 0xffff_ffff == 1;
        if ram && start <= SHARED_PHYSICAL && PARTITIONS < start + size {
            return start + size;
        }
    }
    give_up(format_args!("no memory for partitions"))
}

/// Speeds, by the millisecond.
pub(in crate::arch) struct Clocks {
    /// Processor cycles.
    pub(in crate::arch) cycles: u64,
    /// Units of the local timer.
    pub(in crate::arch) timer: u64,
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
/// So often both clocks are measured.
const MEASUREMENTS: usize = 4;

/// Both clocks: as the command line says, else measured against the interval timer.
pub(in crate::arch) fn calibrate(command: &[u8]) -> Clocks {
    if let Some((cycles, timer)) = config::clocks(command) {
        return Clocks { cycles, timer };
    }
    write(SPURIOUS, 0x1ff);
    write(DIVIDE, 0b1011);
    write(TIMER, 1 << 16);
    let measured = [(); MEASUREMENTS].map(|()| ten_milliseconds());
    write(INITIAL, 0);
    let [cycles, timer] = [0, 1].map(|which| measured.map(|both| both[which]));
    // An emulator that gets no time from its host makes any of them longer than it is.
    let least = |of: [u64; MEASUREMENTS]| of.into_iter().fold(u64::MAX, u64::min);
    Clocks {
        cycles: (least(cycles) / 10).max(1),
        timer: (least(timer) / 10).max(1),
    }
}

/// Processor cycles, and units of the local timer, of 10 ms of the interval timer.
fn ten_milliseconds() -> [u64; 2] {
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
    [cycles() - start, u64::from(u32::MAX - read(CURRENT))]
}

/// Masks the old interrupt controllers, which the firmware leaves open.
fn quiet_old_controllers() {
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

/// Starts the cores of all replicas, each to enter the partition with its root table. This one has
/// done its work.
pub(in crate::arch) fn start_replicas(roots: &[u64], clocks: &Clocks) -> ! {
    zero_physical(TRAMPOLINE, 4096);
    let code = &raw const trampoline_start as u64;
    copy_physical(code, TRAMPOLINE, &raw const trampoline_end as u64 - code);
    write_physical(TRAMPOLINE + TRAMPOLINE_TABLES, cpu::root_table());
    let first = TRAMPOLINE + TRAMPOLINE_CORES + 8 * u64::from(FIRST_CORE);
    for (place, &root) in (first..).step_by(8).zip(roots) {
        write_physical(place, root);
    }
    shutdown::prepare(roots.len() as u64);
    quiet_old_controllers();
    start_at(roots.len() as u64, TRAMPOLINE, clocks);
    // No interrupt reaches this core from here on, whatever the firmware has let through.
    write(SPURIOUS, 0xff);
    cpu::park()
}

/// Starts so many cores at the page `at`, as the processor's manual prescribes.
fn start_at(count: u64, at: u64, clocks: &Clocks) {
    let first = u64::from(FIRST_CORE);
    let cores = first..first + count;
    for core in cores.clone() {
        send(core, 0x4500);
    }
    pause(10, clocks);
    for _ in 0..2 {
        for core in cores.clone() {
            send(core, 0x4600 | (at >> 12) as u32);
        }
        pause(1, clocks);
    }
}

/// Can a core be started again? Each of a replica can be reset, whatever it does.
pub(in crate::arch) const fn may_restart(_core: u32) -> bool {
    true
}

/// Resets a core whose replica was lost, before its partition is filled. `cycles`: those of a
/// millisecond.
///
/// # Panics
/// If there is no permit for it.
pub(in crate::arch) fn reset(core: u32, cycles: u64) {
    interrupts::stop(core);
    pass(10 * cycles);
}

/// Starts a core that was reset, in the copy that its partition holds; `is_only`: no other core of
/// a replica stands still. `cycles`: those of a millisecond.
///
/// # Panics
/// If there is no permit for it.
pub(in crate::arch) fn restart(core: u32, is_only: bool, _root: u64, cycles: u64) {
    spend(core);
    for whom in [Some(core), Some(core).filter(|_| !is_only)] {
        interrupts::start(whom, TRAMPOLINE);
        pass(cycles);
    }
}

fn pass(cycles: u64) {
    let start = cpu::cycles();
    while cpu::cycles() - start < cycles {
        relax();
    }
}
