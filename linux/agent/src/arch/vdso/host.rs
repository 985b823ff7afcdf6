//! The host's vDSO, in the agent's service.
//!
//! At the start it lies where the program's memory will be, with the pages from which it reads the
//! time. All of them move below the agent's text: there no `execve` of the program unmaps them, a
//! fork passes them on, and a system call that the vDSO makes where it cannot tell the time by
//! itself counts as one of the agent's own, for the range of addresses that is let through begins
//! there.
//!
//! Where they cannot be moved (no `/proc`, a host without a vDSO, one that seals it) they are
//! unmapped as far as possible, and the agent asks by a system call.

use rcoe_linux_abi::{AGENT_BASE, AGENT_TEXT};

use crate::arch::vdso::{Reading, by_call};
use crate::convert::size;
use crate::sys;

/// Most bytes of `/proc/self/maps` at the start: the agent's own mappings and the vDSO's.
const MAPS_BYTES: usize = 8 * 1024;
/// The vDSO and its data are at most so many mappings.
const PARTS: usize = 4;
/// Bytes of an ELF symbol and of a dynamic entry.
const SYMBOL: u64 = 24;

/// A half-open range of addresses.
type Range = core::ops::Range<u64>;

/// Reads a clock of the host: `__vdso_clock_gettime`, or 0 to ask by a system call.
#[derive(Clone, Copy)]
pub(crate) struct Reader(u64);

impl Reader {
    /// By system calls.
    pub(crate) const CALLS: Self = Self(0);

    pub(crate) const fn is_calls(self) -> bool {
        self.0 == 0
    }

    /// The time of a clock that needs neither a process nor a device. It is the host's code that
    /// finds it, and that may change vector registers.
    #[inline(always)]
    pub(crate) fn read(self, clock: u32) -> Reading {
        type Function = unsafe extern "C" fn(u64, *mut Reading) -> i64;
        if self.0 == 0 {
            return by_call(clock);
        }
        let mut time = Reading::of(0);
        // SAFETY: the address of that function, found in the host's vDSO, which stays mapped; it
        // writes one timespec.
        let result = unsafe {
            let function = core::mem::transmute::<u64, Function>(self.0);
            function(u64::from(clock), &raw mut time)
        };
        if result != 0 {
            return by_call(clock);
        }
        time
    }
}

/// At the start: takes the vDSO whose header is at `header` into the agent's service.
pub(crate) fn adopt(header: u64) -> Reader {
    let Some(moved) = move_below_agent(header) else {
        drop_all(header);
        return Reader::CALLS;
    };
    find(moved, b"__vdso_clock_gettime").map_or(Reader::CALLS, Reader)
}

/// Unmaps the vDSO and its data pages, so that no clock is read behind the agent's back.
fn drop_all(header: u64) {
    /// Room for the data pages before and the code pages behind the ELF header.
    const AROUND: u64 = 16 * 4096;
    // SAFETY: besides the vDSO and its data nothing is mapped there: the agent lies elsewhere and
    // the program is not loaded yet. Unmapping holes is no error.
    let _ = unsafe { sys::munmap(header - AROUND, 2 * AROUND) };
}

/// Moves code and data; returns where the header is then.
// Its buffer is to be on the stack for as long as it is needed.
#[inline(never)]
fn move_below_agent(header: u64) -> Option<u64> {
    let mut text = [0; MAPS_BYTES];
    let len = read_maps(&mut text)?;
    let mut parts = [const { 0..0 }; PARTS];
    let mut count = 0;
    for part in text[..len].split(|byte| *byte == b'\n').filter_map(part_of) {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    let parts = &parts[..count];
    let start = parts.first()?.start;
    let end = parts.last()?.end;
    let room = (AGENT_TEXT - AGENT_BASE) as u64;
    if end - start > room || !(start..end).contains(&header) {
        return None;
    }
    let distance = AGENT_TEXT as u64 - end;
    for part in parts {
        move_part(part, part.start.wrapping_add(distance))?;
    }
    Some(header.wrapping_add(distance))
}

fn read_maps(text: &mut [u8]) -> Option<usize> {
    let file = sys::open_file(b"/proc/self/maps\0", false).ok()?;
    let mut len = 0;
    let read = loop {
        match sys::read(file, &mut text[len..]) {
            Ok(0) => break Some(len),
            Ok(read) => len += read,
            Err(_) => break None,
        }
    };
    sys::close(file);
    // A list that may be longer is none.
    read.filter(|len| *len < text.len())
}

/// The range of a line that is part of the vDSO.
fn part_of(line: &[u8]) -> Option<Range> {
    const NAMES: [&[u8]; 3] = [b"[vdso]", b"[vvar]", b"[vvar_vclock]"];
    if !NAMES.iter().any(|name| line.ends_with(name)) {
        return None;
    }
    let dash = line.iter().position(|byte| *byte == b'-')?;
    let space = line.iter().position(|byte| *byte == b' ')?;
    Some(hexadecimal(&line[..dash])?..hexadecimal(line.get(dash + 1..space)?)?)
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    u64::from_str_radix(text, 16).ok()
}

fn move_part(part: &Range, to: u64) -> Option<()> {
    let len = part.end - part.start;
    // SAFETY: nothing is mapped there yet, and nobody has an address in what moves.
    let moved = unsafe { sys::move_mapping(part.start, len, to) };
    (moved == Ok(to)).then_some(())
}

/// The address of a function of the vDSO at `header`.
fn find(header: u64, name: &[u8]) -> Option<u64> {
    let [symbols, strings, hash] = tables(header)?;
    // The second word of this table is the number of symbols.
    let count = u64::from(word(hash + 4));
    let matches = |symbol: &u64| {
        let text = strings + u64::from(word(*symbol));
        name.iter()
            .chain(&[0])
            .zip(text..)
            .all(|(byte, at)| *byte == read::<u8>(at))
    };
    let mut all = (0..count).map(|index| symbols + index * SYMBOL);
    all.find(matches)
        .map(|symbol| header + read::<u64>(symbol + 8))
}

/// Where symbols, their names and the hash table are.
fn tables(header: u64) -> Option<[u64; 3]> {
    const PT_DYNAMIC: u32 = 2;
    const DT_HASH: u64 = 4;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    let headers = header + read::<u64>(header + 32);
    let count = u64::from(read::<u16>(header + 56));
    let mut all = (0..count).map(|index| headers + index * 56);
    let dynamic = all.find(|at| word(*at) == PT_DYNAMIC)?;
    let mut at = header + read::<u64>(dynamic + 16);
    let mut found = [0; 3];
    loop {
        let (tag, value) = (read::<u64>(at), read::<u64>(at + 8));
        match tag {
            0 => break,
            DT_SYMTAB => found[0] = header + value,
            DT_STRTAB => found[1] = header + value,
            DT_HASH => found[2] = header + value,
            _ => {}
        }
        at += 16;
    }
    found.iter().all(|table| *table != 0).then_some(found)
}

fn word(address: u64) -> u32 {
    read(address)
}

/// A value in the vDSO.
fn read<T: Copy>(address: u64) -> T {
    // SAFETY: only called with addresses within the vDSO, whose own headers say where its tables
    // are; the kernel made it.
    unsafe { core::ptr::with_exposed_provenance::<T>(size(address)).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_vdso_are_told_by_their_names() {
        let line = |text: &str| part_of(text.as_bytes());
        let code = "7ffff7fc7000-7ffff7fc9000 r-xp 00000000 00:00 0                [vdso]";
        assert_eq!(line(code), Some(0x7fff_f7fc_7000..0x7fff_f7fc_9000));
        let clocks = "7fd51351f000-7fd513521000 r--p 00000000 00:00 0       [vvar_vclock]";
        assert!(line(clocks).is_some());
        for other in [
            "",
            "[vdso]",
            "1-2 rw-p 00000000 00:00 0 [stack]",
            "x-2 r [vvar]",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
    }
}
