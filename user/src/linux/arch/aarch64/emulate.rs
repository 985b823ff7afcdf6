//! Instructions that are not for programs, and whose effect they get all the same: the counter of
//! time, which differs between moments, and the ways to wait, which are no more than that.

use super::registers::{CALL_BYTES, CALL_WORDS, IP};
use crate::linux::{Machine, Process};

/// Classes of exceptions: waiting, and access to a register of the system.
const WAITS: u64 = 0x01;
const SYSTEM: u64 = 0x18;

/// In the code of an access: which register (op0, op2, op1, CRn, CRm), and that it is read.
const REGISTER: u64 = 0x3f_fc1e;
const READS: u64 = 1;
/// Which register of the program's.
const TARGET: u32 = 5;
/// The one that is always zero.
const ZERO: u64 = 31;

/// How a register is encoded there.
const fn register(op0: u64, op1: u64, n: u64, m: u64, op2: u64) -> u64 {
    op0 << 20 | op2 << 17 | op1 << 14 | n << 10 | m << 1
}

/// The counter's frequency, and the two counters.
const FREQUENCY: u64 = register(3, 3, 14, 0, 0);
const PHYSICAL: u64 = register(3, 3, 14, 0, 1);
const VIRTUAL: u64 = register(3, 3, 14, 0, 2);
/// What caches are like: lines of 64 bytes, which have to be maintained by nobody.
const CACHES: u64 = register(3, 3, 0, 0, 1);
const CACHE_TYPE: u64 = 1 << 31 | 1 << 29 | 1 << 28 | 4 << 24 | 4 << 20 | 4 << 16 | 3 << 14 | 4;
/// Ticks of a second: the counter counts nanoseconds.
const SECOND: u64 = 1_000_000_000;

impl<M: Machine> Process<'_, M> {
    /// Does for a program what an instruction could not. Its registers then; `None` if that is no
    /// such instruction.
    pub(crate) fn exception(
        &mut self,
        (class, code): (u64, u64),
        registers: &[u64; CALL_WORDS],
    ) -> Option<[u64; CALL_WORDS]> {
        let mut after = *registers;
        match class {
            WAITS => {}
            SYSTEM if code & READS != 0 => {
                let value = match code & REGISTER {
                    FREQUENCY => SECOND,
                    PHYSICAL | VIRTUAL => self.machine.now(),
                    CACHES => CACHE_TYPE,
                    _ => return None,
                };
                let target = code >> TARGET & 31;
                if target != ZERO {
                    after[usize::try_from(target).ok()?] = value;
                }
            }
            _ => return None,
        }
        after[IP] = registers[IP].wrapping_add(CALL_BYTES);
        Some(after)
    }
}
