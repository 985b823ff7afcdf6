//! Calls of the firmware (PSCI): cores and power. It is above the kernel on whatever level.

use core::arch::asm;

use super::cpu::affinity;
use super::level;

const CORE_OFF: u64 = 0x8400_0002;
const CORE_ON: u64 = 0xc400_0003;
const CORE_STATE: u64 = 0xc400_0004;
pub(super) const SYSTEM_OFF: u64 = 0x8400_0008;

/// In the answer to [`CORE_STATE`].
const OFF: u64 = 1;

fn call(function: u64, arguments: [u64; 3]) -> u64 {
    let mut answer = function;
    let [a, b, c] = arguments;
    // SAFETY: the firmware keeps all registers but those named here, and touches no memory of the
    // kernel's. A core that is switched on begins where this kernel says.
    unsafe {
        asm!("cbnz {host}, 2f", "hvc #0", "b 3f", "2: smc #0", "3:",
            host = in(reg) u64::from(level::is_host()),
            inlateout("x0") answer, inlateout("x1") a => _, inlateout("x2") b => _,
            inlateout("x3") c => _, lateout("x4") _, lateout("x5") _, lateout("x6") _,
            lateout("x7") _, lateout("x8") _, lateout("x9") _, lateout("x10") _,
            lateout("x11") _, lateout("x12") _, lateout("x13") _, lateout("x14") _,
            lateout("x15") _, lateout("x16") _, lateout("x17") _, options(nostack));
    }
    answer
}

/// Switches this core off. It can be switched on again.
pub(super) fn core_off() {
    call(CORE_OFF, [0; 3]);
}

/// Switches another core on: it begins at a physical address, with `word` in its first register.
pub(super) fn core_on(core: u64, at: u64, word: u64) {
    call(CORE_ON, [affinity(core), at, word]);
}

/// Is another core off?
pub(super) fn is_off(core: u64) -> bool {
    call(CORE_STATE, [affinity(core), 0, 0]) == OFF
}

/// Switches the machine off.
pub(super) fn system_off(function: u32) {
    call(function.into(), [0; 3]);
}
