//! `/proc/self/status` and `/proc/self/limits` as the program would find them without rcoe.
//!
//! The host's text speaks of the primary: its process id, its one thread, the signals and the core
//! that the supervisor gave it, limits that leave room for the agent. Whoever opens such a file
//! gets a file in memory with the same text, in which these lines are the program's.
//!
//! Not covered: other files that tell the same (`stat`, `task/`), lines about memory, which count
//! the agent's too, and changes after the file was opened.

use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EMFILE;
use linux_raw_sys::general::{MFD_CLOEXEC, O_ACCMODE, O_CLOEXEC, O_RDONLY};
use rcoe_linux_syscalls::Opens;

use crate::calls::targets::own_of;
use crate::calls::{Call, paths, scheduling};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::sched::threads::{LEADER, MASK_WORDS};
use crate::sys::{self, Errno};
use crate::text::Text;

/// More than the text is long.
const ROOM: usize = 8192;

/// A file that the primary makes.
#[derive(Clone, Copy)]
enum File {
    Status,
    Limits,
}

/// Does this call ask for such a file? Then what it opens is made by the primary.
fn wanted(pid: u32, call: &Call) -> Option<(File, u32)> {
    let Opens::Plain(path, flags) = call.what.facts.opens else {
        return None;
    };
    let [path, flags] = [path, flags].map(|index| call.arg(usize::from(index)));
    let flags = low32(flags);
    if flags & O_ACCMODE != O_RDONLY {
        return None;
    }
    let names = [(File::Status, &b"status"[..]), (File::Limits, b"limits")];
    let mut named = names.into_iter();
    let (file, _) = named.find(|(_, name)| paths::is_own(pid, path, name))?;
    Some((file, flags))
}

/// Is the file that the call opens made by the primary?
pub(crate) fn is_opened_by(kernel: &Kernel, call: &Call) -> bool {
    wanted(kernel.processes.pid, call).is_some()
}

/// Primary: opens the file if this call asks for it; `None` if it asks for something else, or the
/// host has no such file.
#[inline(never)]
pub(super) fn open(kernel: &Kernel, call: &Call) -> Option<i64> {
    let (file, flags) = wanted(kernel.processes.pid, call)?;
    let mut host = [0; ROOM];
    let text = host_text(file, &mut host)?;
    let mut page = Page::new();
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = core::str::from_utf8(line).ok()?;
        let done = match file {
            File::Status => translated(kernel, line, &mut page),
            File::Limits => limit(kernel.limits.told(number), line, &mut page),
        };
        done.ok()?;
    }
    Some(page.publish(file, flags & O_CLOEXEC != 0))
}

/// What the host says of the primary.
fn host_text(file: File, buffer: &mut [u8; ROOM]) -> Option<&[u8]> {
    let fd = match file {
        File::Status => sys::open_read(b"/proc/self/status\0"),
        File::Limits => sys::open_read(b"/proc/self/limits\0"),
    };
    let fd = fd.ok()?;
    let len = sys::pread(fd, buffer, 0);
    sys::close(fd);
    Some(&buffer[..len.ok()?])
}

/// Writes the line of `/proc/self/limits` with this limit, soft and hard, in the host's columns.
fn limit(told: Option<[u64; 2]>, line: &str, page: &mut Page) -> fmt::Result {
    const NAME: usize = 26;
    const VALUES: usize = 42;
    let (Some(limit), Some((name, rest))) = (told, line.split_at_checked(NAME)) else {
        return page.write_str(line);
    };
    let unit = rest.get(VALUES..).ok_or(fmt::Error)?;
    page.write_str(name)?;
    for value in limit {
        match value {
            u64::MAX => write!(page, "{:<20} ", "unlimited")?,
            value => write!(page, "{value:<20} ")?,
        }
    }
    page.write_str(unit)
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

    /// A descriptor of a file with this text, which can only be read.
    fn publish(&self, file: File, close_on_exec: bool) -> i64 {
        let (flags, cloexec) = match close_on_exec {
            true => (MFD_CLOEXEC, O_CLOEXEC),
            false => (0, 0),
        };
        let name = match file {
            File::Status => c"status",
            File::Limits => c"limits",
        };
        let result = sys::new_file_in_memory(name, flags);
        let Some(fd) = i32::try_from(result).ok().filter(|&fd| fd >= 0) else {
            return result;
        };
        let text = self.as_bytes();
        sys::pwrite_raw(fd, text.as_ptr() as u64, text.len(), 0);
        match opened_again(fd) {
            Ok(reader) => {
                let (from, to) = (reader.cast_unsigned(), fd.cast_unsigned());
                sys::replace(from.into(), to.into(), cloexec.into());
                sys::close(reader);
                result
            }
            Err(errno) => {
                sys::close(fd);
                -i64::from(errno.0)
            }
        }
    }
}

/// Opens an open file once more, to read it. The program need not have a descriptor left for that.
fn opened_again(fd: i32) -> Result<i32, Errno> {
    let mut path = Text::<40>::new();
    write!(path, "/proc/self/fd/{fd}\0").expect("short");
    match sys::open_read(path.as_bytes()) {
        Err(Errno(errno)) if errno == EMFILE.cast_signed() => {
            sys::with_most_descriptors(|| sys::open_read(path.as_bytes()))
        }
        done => done,
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
    fn limits_stand_in_the_hosts_columns() {
        let line =
            "Max open files            1024                 524288               files     \n";
        let told = written(|page| limit(Some([300, u64::MAX]), line, page));
        let expected = line
            .replace("1024", "300 ")
            .replace("524288   ", "unlimited");
        assert_eq!(told, expected);
        assert_eq!(written(|page| limit(None, line, page)), line);
        let bare = "Max nice priority         0                    0                    \n";
        let told = written(|page| limit(Some([0, 0]), bare, page));
        assert_eq!(told, bare);
    }

    #[test]
    fn too_much_is_an_error() {
        let mut page = Page::new();
        page.write_str(&"a".repeat(ROOM - 1)).expect("room");
        assert!(page.write_str("ab").is_err());
        assert!(page.write_str("a").is_ok());
    }
}
