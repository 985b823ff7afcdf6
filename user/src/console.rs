//! Text for the console: collected in the message, and sent to the serial driver.

use core::fmt;

use rcoe_abi::{MAX_MESSAGE, service};

use crate::sys::call;

/// Bytes of one message.
const ROOM: usize = 8 * (MAX_MESSAGE - 1);

/// A message that is being put together.
#[derive(Debug)]
pub struct Text {
    words: [u64; MAX_MESSAGE],
    len: usize,
}

impl Text {
    /// No text yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: [0; MAX_MESSAGE],
            len: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        if self.len == ROOM {
            self.flush();
        }
        self.words[1 + self.len / 8] |= u64::from(byte) << (self.len % 8 * 8);
        self.len += 1;
    }

    /// Adds these bytes.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.push(byte);
        }
    }

    /// Sends what was collected.
    pub fn flush(&mut self) {
        if self.len > 0 {
            self.words[0] = self.len as u64;
            let words = 1 + self.len.div_ceil(8);
            call(
                service::SLOT_CONSOLE,
                service::CONSOLE_WRITE,
                &self.words[..words],
            );
        }
        *self = Self::new();
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_bytes(text.as_bytes());
        Ok(())
    }
}

/// Writes formatted text to the console.
pub fn write(arguments: fmt::Arguments<'_>) {
    let mut text = Text::new();
    // Collecting text cannot fail.
    let _ = fmt::write(&mut text, arguments);
    text.flush();
}

/// Writes a line to the console.
#[macro_export]
macro_rules! println {
    ($($arguments:tt)*) => {
        $crate::console::write(format_args!("{}\n", format_args!($($arguments)*)))
    };
}
