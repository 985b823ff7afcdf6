//! For tests: a processor's own counter, as far as the emulator's can stand in for one. So what
//! makes real counters inexact comes to a kernel that runs: interrupts are late, some more than is
//! allowed for, and far branches are in the count.

use rcoe_core::counted::pmu::Processor;

use super::super::interrupts;
use super::plugin::Plugin;

/// This core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    /// What the counter of all branches holds beyond those that the plugin has counted.
    beyond: u64,
    /// What that of far ones holds.
    far: u64,
    /// How often it was armed.
    times: u64,
}

/// The counter of all branches, and that of far ones.
const ALL: u32 = 0xc1;
const FAR: u32 = 0xc2;
/// Bits that a counter has.
const WIDTH: u32 = 48;

/// That of the core on which this is.
fn plugin() -> Plugin {
    Plugin::new()
}

impl Late {
    pub(super) const fn new() -> Self {
        Self {
            beyond: 0,
            far: 0,
            times: 0,
        }
    }

    /// By how many branches the next interrupt is late: mostly by fewer than is allowed for.
    const fn skid(self) -> u64 {
        match self.times % 8 {
            7 => 3_000,
            times => self.times.wrapping_mul(37) % 64 * times,
        }
    }
}

impl Processor for Late {
    /// A Skylake's answers, without counters that can be written as a whole.
    fn cpuid(&self, leaf: u32, _part: u32) -> [u32; 4] {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        match leaf {
            0 => [0x16, word(b"Genu"), word(b"ntel"), word(b"ineI")],
            1 => [0x0005_06e3, 0, 0, 0],
            0xa => [7 << 24 | WIDTH << 16 | 4 << 8 | 4, 0, 0, 0],
            _ => [0; 4],
        }
    }

    fn read(&self, register: u32) -> u64 {
        let held = match register {
            ALL => plugin().count().wrapping_add(self.beyond),
            FAR => self.far,
            _ => 0,
        };
        held & ((1 << WIDTH) - 1)
    }

    fn write(&mut self, register: u32, value: u64) {
        match register {
            ALL => {
                let value = ((value << 32).cast_signed() >> 32).cast_unsigned();
                self.times += 1;
                self.beyond = value.wrapping_sub(plugin().count());
                plugin().stop_behind(value.wrapping_neg().wrapping_add(self.skid()));
            }
            FAR => self.far = value,
            _ => {}
        }
    }

    fn open(&mut self) {
        // A transfer to the kernel that is to come.
        self.far += 1;
        self.beyond = self.beyond.wrapping_add(1);
        interrupts::open_counter();
    }
}
