//! The guest's serial line (PL011): what it sends goes out at once, and it receives nothing.

/// Registers: data, flags, interrupts that are let through, that came, both, and to be cleared.
const DATA: u64 = 0x00;
const FLAGS: u64 = 0x18;
const MASK: u64 = 0x38;
const RAW: u64 = 0x3c;
const MASKED: u64 = 0x40;
const CLEAR: u64 = 0x44;
/// Where the registers are that say what device it is.
const IDENTITY: u64 = 0xfe0;

/// In the flags: nothing was received, and nothing waits to be sent.
const IDLE: u64 = 0x10 | 0x80;
/// The interrupt of a queue that has room.
const ROOM: u64 = 0x20;
/// What the device says of itself: a PL011 of the third revision.
const NAMES: [u64; 8] = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// The line. How fast it is and the like is kept and has no effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Serial {
    mask: u64,
    raw: u64,
    /// Divisors, line control, control, levels: 0x24 to 0x34.
    kept: [u64; 5],
}

impl Serial {
    /// Reads a register.
    #[must_use]
    pub(super) fn read(&self, place: u64) -> u64 {
        match place {
            FLAGS => IDLE,
            MASK => self.mask,
            RAW => self.raw,
            MASKED => self.raw & self.mask,
            IDENTITY.. => self.identity(place),
            _ => kept(place).map_or(0, |index| self.kept[index]),
        }
    }

    fn identity(&self, place: u64) -> u64 {
        let index = usize::try_from((place - IDENTITY) / 4).unwrap_or(usize::MAX);
        NAMES.get(index).copied().unwrap_or(0)
    }

    /// Writes a register; the byte that goes out by that.
    pub(super) fn write(&mut self, place: u64, value: u64) -> Option<u8> {
        match place {
            DATA => {
                self.raw |= ROOM;
                return Some(value.to_le_bytes()[0]);
            }
            MASK => {
                // There is always room, and whoever begins to wait for it is told.
                self.mask = value;
                self.raw |= ROOM;
            }
            CLEAR => self.raw &= !value,
            _ => {
                if let Some(index) = kept(place) {
                    self.kept[index] = value;
                }
            }
        }
        None
    }

    /// Does it interrupt?
    #[must_use]
    pub(super) const fn interrupts(&self) -> bool {
        self.raw & self.mask != 0
    }
}

/// Which of the registers that are kept is there.
fn kept(place: u64) -> Option<usize> {
    let index = usize::try_from(place.checked_sub(0x24)? / 4).ok()?;
    (index < 5).then_some(index)
}
