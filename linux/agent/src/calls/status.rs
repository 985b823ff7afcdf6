//! `/proc/self/status` as the program would find it without rcoe.
//!
//! The host's text speaks of the primary: its process id, its one thread, the signals and the core
//! that the supervisor gave it. Whoever opens that file gets a file in memory with the same text,
//! in which these lines are the program's.
//!
//! Not covered: other files that tell the same (`stat`, `task/`), lines about memory, which count
//! the agent's too, and changes after the file was opened.

use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering;

use linux_raw_sys::general as nr;
use linux_raw_sys::general::{MFD_CLOEXEC, O_ACCMODE, O_CLOEXEC, O_RDONLY};

use super::descriptors::raw;
use super::targets::own_of;
use super::{Call, paths, scheduling};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::sys;
use crate::text::Text;
use crate::threads::{LEADER, MASK_WORDS};

/// More than the text is long.
const ROOM: usize = 8192;

/// Does this call ask for the file? Then what it opens is made by the primary.
fn flags_of(pid: u32, call: &Call) -> Option<u32> {
    let (path, flags) = match u32::try_from(call.nr).ok()? {
        nr::__NR_open => (call.arg(0), call.arg(1)),
        nr::__NR_openat => (call.arg(1), call.arg(2)),
        _ => return None,
    };
    let flags = low32(flags);
    let wanted = flags & O_ACCMODE == O_RDONLY && paths::is_own(pid, path, b"status");
    wanted.then_some(flags)
}

/// Is the file that the call opens made by the primary?
pub(super) fn is_opened_by(kernel: &Kernel, call: &Call) -> bool {
    flags_of(kernel.processes.pid, call).is_some()
}

/// Primary: opens the file if this call asks for it; `None` if it asks for something else, or the
/// host has no such file.
pub(super) fn open(kernel: &Kernel, call: &Call) -> Option<i64> {
    let flags = flags_of(kernel.processes.pid, call)?;
    let mut host = [0; ROOM];
    let text = host_text(&mut host)?;
    let mut page = Page::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let line = core::str::from_utf8(line).ok()?;
        translated(kernel, line, &mut page).ok()?;
    }
    Some(page.publish(flags & O_CLOEXEC != 0))
}

/// What the host says of the primary.
fn host_text(buffer: &mut [u8; ROOM]) -> Option<&[u8]> {
    let fd = sys::open_read(b"/proc/self/status\0").ok()?;
    let len = sys::pread(fd, buffer, 0);
    sys::close(fd);
    Some(&buffer[..len.ok()?])
}

/// Writes the line as it is for the program.
fn translated(kernel: &Kernel, line: &str, page: &mut Page) -> fmt::Result {
    let Some((key, value)) = line.split_once(':') else {
        return page.write_str(line);
    };
    let (control, signals) = (kernel.control, &kernel.signals);
    let leader = own_of(kernel, LEADER);
    let [ignored, caught] = signals.dispositions();
    match key {
        "Tgid" | "Pid" | "NStgid" | "NSpid" => writeln!(page, "{key}:\t{}", kernel.processes.pid),
        "PPid" => writeln!(page, "{key}:\t{}", control.ppid.load(Ordering::Relaxed)),
        "NSpgid" => writeln!(page, "{key}:\t{}", control.pgid.load(Ordering::Relaxed)),
        "NSsid" => writeln!(page, "{key}:\t{}", control.sid.load(Ordering::Relaxed)),
        "Threads" => writeln!(page, "{key}:\t{}", kernel.threads.live_slots().count()),
        "SigPnd" => writeln!(page, "{key}:\t{:016x}", leader.pending),
        "ShdPnd" => writeln!(page, "{key}:\t{:016x}", signals.shared),
        "SigBlk" => writeln!(page, "{key}:\t{:016x}", leader.mask),
        "SigIgn" => writeln!(page, "{key}:\t{ignored:016x}"),
        "SigCgt" => writeln!(page, "{key}:\t{caught:016x}"),
        "Cpus_allowed" => {
            page.write_str("Cpus_allowed:")?;
            page.mask(value, &scheduling::mask(kernel, LEADER))
        }
        "Cpus_allowed_list" => {
            page.write_str("Cpus_allowed_list:\t")?;
            page.list(&scheduling::mask(kernel, LEADER))
        }
        _ => page.write_str(line),
    }
}

/// The program's text.
type Page = Text<ROOM>;

impl Page {
    /// A mask with as many digits as the host shows, in its groups.
    fn mask(&mut self, host: &str, mask: &[u64; MASK_WORDS]) -> fmt::Result {
        let mut digit = host.bytes().filter(u8::is_ascii_hexdigit).count();
        for character in host.chars() {
            if character.is_ascii_hexdigit() {
                digit -= 1;
                let word = mask.get(digit / 16).copied().unwrap_or(0);
                write!(self, "{:x}", word >> (digit % 16 * 4) & 0xf)?;
            } else {
                self.write_char(character)?;
            }
        }
        Ok(())
    }

    /// The same as a list of ranges.
    fn list(&mut self, mask: &[u64; MASK_WORDS]) -> fmt::Result {
        let has = |cpu: usize| {
            mask.get(cpu / 64)
                .is_some_and(|word| word >> (cpu % 64) & 1 != 0)
        };
        let mut separator = "";
        for first in (0..64 * MASK_WORDS).filter(|&cpu| has(cpu) && (cpu == 0 || !has(cpu - 1))) {
            let last = (first..).find(|&cpu| !has(cpu + 1)).unwrap_or(first);
            write!(self, "{separator}{first}")?;
            if last > first {
                write!(self, "-{last}")?;
            }
            separator = ",";
        }
        self.write_char('\n')
    }

    /// A descriptor of a file with this text.
    fn publish(&self, close_on_exec: bool) -> i64 {
        let flags = if close_on_exec { MFD_CLOEXEC } else { 0 };
        let args = [c"status".as_ptr() as u64, u64::from(flags), 0, 0, 0, 0];
        // SAFETY: a name that ends with NUL.
        let result = unsafe { raw(nr::__NR_memfd_create, args) };
        if let Ok(fd) = i32::try_from(result)
            && fd >= 0
        {
            let text = self.as_bytes();
            sys::pwrite_raw(fd, text.as_ptr() as u64, text.len(), 0);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Page) -> fmt::Result) -> String {
        let mut page = Page::new();
        write(&mut page).expect("room");
        String::from_utf8(page.as_bytes().to_vec()).expect("text")
    }

    #[test]
    fn masks_are_shown_as_the_host_shows_them() {
        let mut mask = [0; MASK_WORDS];
        mask[0] = 0b1011;
        assert_eq!(written(|page| page.mask("\t3\n", &mask)), "\tb\n");
        assert_eq!(
            written(|page| page.mask("\tff,ffffffff\n", &mask)),
            "\t00,0000000b\n"
        );
        assert_eq!(written(|page| page.list(&mask)), "0-1,3\n");
        mask[1] = 1;
        mask[0] |= 1 << 63;
        assert_eq!(written(|page| page.list(&mask)), "0-1,3,63-64\n");
    }

    #[test]
    fn too_much_is_an_error() {
        let mut page = Page::new();
        page.write_str(&"a".repeat(ROOM - 1)).expect("room");
        assert!(page.write_str("ab").is_err());
        assert!(page.write_str("a").is_ok());
    }
}
