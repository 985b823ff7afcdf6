//! What the loader does on this machine: learning what there is, devices, clocks, and the start of
//! cores, with the interrupt controller at its physical addresses.

use rcoe_abi::layout::{
    COUNTER_SLOT, DIARY_SLOT, INPUT_SLOT, NOTES_SLOT, PAUSE_SLOT, PORT_DIARY, PORT_INPUT,
    PORT_NOTES, PORT_STATUS, START, START_MAGIC, STATUS_SLOT, Start,
};

use super::super::loader::{COMMAND_MAX, Given, give_up};
use super::super::memory::{read_physical, write_register};
use super::layout::{
    COUNTER_PHYSICAL, DISTRIBUTOR_PHYSICAL, PARTITIONS, PAUSE_PHYSICAL, PCI_PHYSICAL,
};
use super::start::CORE_START;
use super::{cpu, psci};
use crate::arch::permit::spend;
use crate::config;

unsafe extern "C" {
    fn enter_partition(root: u64) -> !;
}

/// Speeds, by the millisecond.
pub(in crate::arch) struct Clocks {
    /// The generic timer's count, which is what this kernel takes for cycles.
    pub(in crate::arch) cycles: u64,
    /// Units of the local timer.
    pub(in crate::arch) timer: u64,
}

/// Reads what the host left us.
pub(in crate::arch) fn given(_info: u64) -> Given {
    prepare_devices();
    let blob = read_physical(START);
    let word = |word: Start| read_physical(blob + word as u64 * 8);
    if blob < PARTITIONS || !blob.is_multiple_of(4096) || word(Start::Magic) != START_MAGIC {
        give_up(format_args!("the host gave no boot image"));
    }
    Given {
        image: (blob + 4096, word(Start::ImageBytes)),
        command: (
            blob + Start::Command as u64 * 8,
            word(Start::CommandBytes).min(COMMAND_MAX),
        ),
        end: blob,
    }
}

/// Gives devices their places that no driver finds on the bus: ports to those that take diaries,
/// status and notes and to the line of the input, memory to the counter and to what has the machine
/// stand still. Where none is, nothing happens.
fn prepare_devices() {
    const PORTS: u64 = 1;
    const MEMORY: u64 = 2;
    for (slot, place, kind) in [
        (DIARY_SLOT, u64::from(PORT_DIARY), PORTS),
        (STATUS_SLOT, u64::from(PORT_STATUS), PORTS),
        (NOTES_SLOT, u64::from(PORT_NOTES), PORTS),
        (INPUT_SLOT, u64::from(PORT_INPUT), PORTS),
        (COUNTER_SLOT, COUNTER_PHYSICAL, MEMORY),
        (PAUSE_SLOT, PAUSE_PHYSICAL, MEMORY),
    ] {
        let device = PCI_PHYSICAL + (slot << 15);
        // SAFETY: the loader runs with the bus's configuration mapped at its physical address. The
        // devices do nothing by themselves.
        unsafe {
            write_register(device + 0x10, 4, place | (kind & PORTS));
            write_register(device + 4, 2, kind);
        }
    }
}

/// Both clocks are one, whose speed the processor knows, unless the command line says it.
pub(in crate::arch) fn calibrate(command: &[u8]) -> Clocks {
    if let Some((cycles, timer)) = config::clocks(command) {
        return Clocks { cycles, timer };
    }
    let speed = (cpu::frequency() / 1_000).max(1);
    Clocks {
        cycles: speed,
        timer: speed,
    }
}

/// Starts the cores of all replicas, each to enter the partition with its root table; this one is
/// that of the first.
pub(in crate::arch) fn start_replicas(roots: &[u64], _clocks: &Clocks) -> ! {
    // SAFETY: the loader runs with the controller mapped at its physical address. Nothing comes
    // through before a core opens it.
    let set = |register, value| unsafe {
        write_register(DISTRIBUTOR_PHYSICAL + register, 4, value);
    };
    // The first shared lines: of group 1, and with the priority of all but one interrupt.
    set(0x84, 0xffff_ffff);
    for lines in (0x420..0x440).step_by(4) {
        set(lines, 0x8080_8080);
    }
    // Both groups are on, and cores are known by their numbers.
    set(0, 0x13);
    for (core, &root) in (0..).zip(roots).skip(1) {
        start(core, root);
    }
    // SAFETY: the partition's tables map the kernel's text, data and stack at the same addresses.
    unsafe { enter_partition(roots[0]) }
}

/// Can a core be started again? Each can that is off; one that is not may run in the memory that a
/// copy would go to.
pub(in crate::arch) fn may_restart(core: u32) -> bool {
    psci::is_off(core.into())
}

/// Resets a core whose replica was lost, before its partition is filled: it is off.
///
/// # Panics
/// If there is no permit for it.
pub(in crate::arch) fn reset(core: u32, _cycles: u64) {
    spend(core);
}

/// Starts a core whose replica was lost, in the copy that its partition holds, with its root table.
///
/// # Panics
/// If there is no permit for it.
pub(in crate::arch) fn restart(core: u32, _is_only: bool, root: u64, _cycles: u64) {
    spend(core);
    start(core, root);
}

fn start(core: u32, root: u64) {
    // SAFETY: a constant.
    let place = unsafe { CORE_START };
    psci::core_on(core.into(), place, root);
}
