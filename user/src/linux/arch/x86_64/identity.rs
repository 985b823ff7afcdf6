//! Instructions whose answers differ between cores, or between moments: the personality answers.
//!
//! `cpuid` was replaced by an undefined instruction; `rdtsc` and `rdtscp` fault by themselves. A
//! processor says of itself what all say alike: no number of a core, and one core in all.

use linux_raw_sys::errno::EFAULT;

use super::layout::REPLACED;
use super::registers::{CALL_WORDS, IP};
use crate::linux::{Errno, Machine, Process};

const AX: usize = 0;
const BX: usize = 1;
const CX: usize = 2;
const DX: usize = 3;

/// Exceptions: an undefined instruction, and one that is not allowed.
const UNDEFINED: u64 = 6;
const PROTECTION: u64 = 13;
/// Reads the time stamp; the second also says which core it is.
const STAMP: [u8; 2] = [0x0f, 0x31];
const STAMP_AND_CORE: [u8; 3] = [0x0f, 0x01, 0xf9];
/// The second byte of the instruction that identifies the processor.
const REST: u8 = 0xa2;

/// What a processor says of itself, without what differs between cores: the number of a core, how
/// many there are, and whether that is to be looked at.
pub(super) fn of(machine: &impl Machine, leaf: u32, part: u32) -> [u32; 4] {
    const ALL: u32 = u32::MAX;
    let kept = match leaf {
        1 => [ALL, 0xffff, ALL, !(1 << 28)],
        4 | 0x8000_001d => [0x3fff, ALL, ALL, ALL],
        0x8000_0001 => [ALL, ALL, !2, ALL],
        0xb | 0x1f | 0x8000_001e => [0; 4],
        0x8000_0008 => [ALL, ALL, 0, ALL],
        _ => [ALL; 4],
    };
    let [ax, bx, cx, dx] = machine.identity(leaf, part, kept);
    match leaf {
        1 => [ax, bx | 1 << 16, cx, dx],
        0xb | 0x1f => [ax, bx, part & 0xff, dx],
        _ => [ax, bx, cx, dx],
    }
}

impl<M: Machine> Process<'_, M> {
    /// Does for a program what an instruction could not. Its registers then; `None` if that is no
    /// such instruction.
    pub(crate) fn exception(
        &mut self,
        (vector, _code): (u64, u64),
        registers: &[u64; CALL_WORDS],
    ) -> Option<[u64; CALL_WORDS]> {
        let mut after = *registers;
        let ip = registers[IP];
        if vector == UNDEFINED && self.identifies(ip) {
            let half = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(0);
            let told = of(&self.machine, half(registers[AX]), half(registers[CX]));
            for (register, value) in [AX, BX, CX, DX].into_iter().zip(told) {
                after[register] = value.into();
            }
            after[IP] = ip.wrapping_add(2);
            return Some(after);
        }
        if vector != PROTECTION {
            return None;
        }
        let len = self.stamp(ip).ok()?;
        let now = self.machine.now();
        (after[AX], after[DX]) = (now & 0xffff_ffff, now >> 32);
        if len > STAMP.len() {
            after[CX] = 0;
        }
        after[IP] = ip.wrapping_add(len as u64);
        Some(after)
    }

    /// Did the host put an undefined instruction there, for one that identifies the processor?
    fn identifies(&self, ip: u64) -> bool {
        let mut found = [0; 2];
        let replaced = REPLACED.map(|[_, by]| [by, REST]);
        self.read(ip, &mut found).is_ok() && Some(found) == replaced
    }

    /// The length of an instruction that reads the time stamp, if one is there.
    fn stamp(&self, ip: u64) -> Result<usize, Errno> {
        let mut bytes = [0; 3];
        self.read(ip, &mut bytes[..2])?;
        if bytes[..2] == STAMP {
            return Ok(2);
        }
        self.read(ip, &mut bytes)?;
        if bytes == STAMP_AND_CORE {
            return Ok(3);
        }
        Err(Errno(EFAULT))
    }
}
