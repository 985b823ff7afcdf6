//! A replica's diary: lines of text that the host reads at a port of its own for each replica.
//!
//! It is for reports only. The host is outside the sphere: nothing in the system depends on what is
//! written here, and a faulty replica may write anything.

use core::fmt::{self, Write as _};

use rcoe_abi::layout::{DIARY_PORTS, PORT_DIARY};

use crate::arch::port_out;

/// Where one replica writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diary(u16);

impl Diary {
    /// The diary of this replica.
    pub(crate) const fn of(replica: u16) -> Self {
        Self(PORT_DIARY + replica * DIARY_PORTS)
    }

    /// Something is wrong, and this is the cycle at which that was found.
    pub(crate) fn noticed(self) {
        self.line(format_args!("noticed {}", crate::arch::cycles()));
    }

    /// Writes a line.
    pub(crate) fn line(mut self, text: fmt::Arguments<'_>) {
        // Writing to a port cannot fail.
        let _ = self.write_fmt(text);
        let _ = self.write_char('\n');
    }
}

impl fmt::Write for Diary {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            port_out(self.0, 1, u32::from(byte));
        }
        Ok(())
    }
}
