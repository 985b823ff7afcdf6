//! What the kernel told the root task.

use rcoe_abi::boot::{COMMAND_LINE, MAGIC, Word};
use rcoe_user::{boot_image, boot_page};

/// The boot page and the boot image.
pub(crate) struct Boot {
    page: &'static [u64],
    /// The boot image.
    pub(crate) image: &'static [u64],
}

impl Boot {
    pub(crate) fn read() -> Self {
        let page = boot_page();
        assert!(page[0] == MAGIC, "the kernel left a boot page");
        Self {
            page,
            image: boot_image(),
        }
    }

    /// Number of untyped memories.
    pub(crate) fn untyped(&self) -> u64 {
        self.page[Word::UntypedCount as usize]
    }

    fn command_byte(&self, index: usize) -> Option<u8> {
        let len = self.page[Word::CommandBytes as usize];
        if index as u64 >= len {
            return None;
        }
        let word = self.page.get(COMMAND_LINE + index / 8)?;
        Some(word.to_le_bytes()[index % 8])
    }

    /// The program to start, and its argument: a number, 0 if there is none.
    pub(crate) fn command(&self) -> ([u8; 32], usize, u64) {
        let mut name = [0; 32];
        let mut len = 0;
        let mut at = 0;
        while let Some(byte) = self.command_byte(at) {
            at += 1;
            if byte == b' ' {
                break;
            }
            if let Some(place) = name.get_mut(len) {
                *place = byte;
                len += 1;
            }
        }
        let mut argument = 0_u64;
        while let Some(byte @ b'0'..=b'9') = self.command_byte(at) {
            argument = argument
                .wrapping_mul(10)
                .wrapping_add(u64::from(byte - b'0'));
            at += 1;
        }
        (name, len, argument)
    }
}
