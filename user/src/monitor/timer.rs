//! The guest's timer: the processor's physical one, whose registers are the monitor's, so that the
//! time is one that all replicas agreed on.

/// Registers, by their last two parts: the counter, the time left, control, the time.
const COUNTER: [u64; 2] = [0, 1];
const LEFT: [u64; 2] = [2, 0];
const CONTROL: [u64; 2] = [2, 1];
const TIME: [u64; 2] = [2, 2];

/// In control: on, its interrupt kept back, and due.
const ON: u64 = 1;
const MASKED: u64 = 2;
const DUE: u64 = 4;

/// The timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer {
    control: u64,
    time: u64,
}

impl Timer {
    /// Is this one of its registers?
    #[must_use]
    pub(super) const fn has([op0, op1, n, m, _]: [u64; 5]) -> bool {
        op0 == 3 && op1 == 3 && n == 14 && m < 3
    }

    /// Reads a register; none if there is none of that name.
    #[must_use]
    pub(super) fn read(&self, [.., m, op2]: [u64; 5], now: u64) -> Option<u64> {
        Some(match [m, op2] {
            COUNTER => now,
            LEFT => self.time.wrapping_sub(now) & 0xffff_ffff,
            CONTROL if self.is_due(now) => self.control | DUE,
            CONTROL => self.control,
            TIME => self.time,
            _ => return None,
        })
    }

    /// Writes a register; none if there is none of that name to be written.
    pub(super) fn write(&mut self, [.., m, op2]: [u64; 5], value: u64, now: u64) -> Option<()> {
        match [m, op2] {
            LEFT => {
                let left = (value << 32).cast_signed() >> 32;
                self.time = now.wrapping_add_signed(left);
            }
            CONTROL => self.control = value & (ON | MASKED),
            TIME => self.time = value,
            _ => return None,
        }
        Some(())
    }

    const fn is_due(&self, now: u64) -> bool {
        self.control & ON != 0 && now >= self.time
    }

    /// Does it interrupt?
    #[must_use]
    pub(super) const fn interrupts(&self, now: u64) -> bool {
        self.is_due(now) && self.control & MASKED == 0
    }

    /// When it is going to, if it is.
    #[must_use]
    pub(super) fn deadline(&self) -> Option<u64> {
        (self.control & (ON | MASKED) == ON).then_some(self.time)
    }
}
