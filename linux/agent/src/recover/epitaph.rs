//! Last words of a replica whose agent broke an invariant.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

use rcoe_linux_abi::{Phase, Report};

use crate::protocol::scene;
use crate::sys;

/// Exit status of a failed agent; only the supervisor sees it.
const FAILED: u8 = 70;

/// Writes text into the report's epitaph words.
struct Epitaph<'a> {
    report: &'a Report,
    len: usize,
}

impl Write for Epitaph<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(word) = self.report.epitaph.get(self.len / 8) else {
                return Ok(());
            };
            let shift = (self.len % 8) * 8;
            let value = word.load(Ordering::Relaxed) | u64::from(byte) << shift;
            word.store(value, Ordering::Relaxed);
            self.len += 1;
        }
        Ok(())
    }
}

/// Leaves `message` and ends this replica as a detected faulty one.
pub fn fail(message: &dyn fmt::Display) -> ! {
    if let Some(report) = crate::memory::regions::own_report() {
        let mut epitaph = Epitaph { report, len: 0 };
        // Writing into memory of our own cannot fail.
        let _ = write!(epitaph, "{message}");
        let len = u32::try_from(epitaph.len).unwrap_or(0);
        report.epitaph_len.store(len, Ordering::Relaxed);
        scene::leave_unasked(&report.scene);
        report.phase.store(Phase::Failed as u32, Ordering::Release);
    }
    sys::exit_group(FAILED)
}
