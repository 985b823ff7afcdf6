//! What the host shows of a process to others: where its arguments and its environment are.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as nr;
use linux_raw_sys::prctl::{
    PR_SET_MM, PR_SET_MM_ARG_END, PR_SET_MM_ARG_START, PR_SET_MM_ENV_END, PR_SET_MM_ENV_START,
    PR_SET_MM_MAP,
};

use crate::sys::{close, open_read, prctl, pread};

/// Bytes of `/proc/self/stat`, which is much shorter.
const ROOM: usize = 2048;
/// Numbers in that file up to the last one of interest, from the third on.
const FIELDS: usize = 49;

/// The kernel's `struct prctl_mm_map`.
#[repr(C)]
struct Layout {
    code: [u64; 2],
    data: [u64; 2],
    heap: [u64; 2],
    stack: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
    auxiliary: u64,
    auxiliary_bytes: u32,
    executable: u32,
}

/// Tells the kernel where the program's strings are: arguments, and from their end on the
/// environment. On kernels that can only do so for
/// those with a capability, and do not for this process, `/proc/self/cmdline` shows what lies where
/// the agent's arguments were.
pub(crate) fn set_string_ranges(start: u64, end: u64, environment_end: u64) {
    if set_whole(start, end, environment_end).is_some() {
        return;
    }
    // The kernel takes no start beyond the present end: that must move first, or after it.
    for (what, place) in [
        (PR_SET_MM_ARG_START, start),
        (PR_SET_MM_ARG_END, end),
        (PR_SET_MM_ARG_START, start),
        (PR_SET_MM_ENV_START, end),
        (PR_SET_MM_ENV_END, environment_end),
        (PR_SET_MM_ENV_START, end),
    ] {
        let _ = prctl(PR_SET_MM, [u64::from(what), place, 0, 0]);
    }
}

/// Needs no capability, but all of the layout at once.
fn set_whole(start: u64, end: u64, environment_end: u64) -> Option<()> {
    let [
        code_start,
        code_end,
        stack,
        data_start,
        data_end,
        heap_start,
    ] = kept()?;
    // SAFETY: asks for the present end.
    let heap = unsafe { rcoe_linux_sys::syscall1(u64::from(nr::__NR_brk), 0) };
    let layout = Layout {
        code: [code_start, code_end],
        data: [data_start, data_end],
        heap: [heap_start, heap.cast_unsigned()],
        stack,
        arguments: [start, end],
        environment: [end, environment_end],
        auxiliary: 0,
        auxiliary_bytes: 0,
        executable: u32::MAX,
    };
    let args = [
        u64::from(PR_SET_MM_MAP),
        (&raw const layout) as u64,
        size_of::<Layout>() as u64,
        0,
    ];
    prctl(PR_SET_MM, args).ok().map(drop)
}

/// What of the layout stays as it is: numbers of [`fields`], asked for once. The host executes
/// nothing after the agent, and children inherit it all.
const KEPT: [usize; 6] = [26, 27, 28, 45, 46, 47];
/// Their values; zeroes if not asked for yet.
static LAYOUT: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

#[inline(never)]
fn kept() -> Option<[u64; 6]> {
    let kept = LAYOUT.each_ref().map(|word| word.load(Ordering::Relaxed));
    if kept != [0; 6] {
        return Some(kept);
    }
    let mut buffer = [0; ROOM];
    let fields = fields(&mut buffer)?;
    let values = KEPT.map(|number| fields[number - 3]);
    for (word, value) in LAYOUT.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
    Some(values)
}

/// The numbers that the host tells of this process, from the third on; what is none reads as zero.
fn fields(buffer: &mut [u8; ROOM]) -> Option<[u64; FIELDS]> {
    let file = open_read(b"/proc/self/stat\0").ok()?;
    let len = pread(file, buffer, 0);
    close(file);
    let text = core::str::from_utf8(buffer.get(..len.ok()?)?).ok()?;
    // The name may hold anything, also parentheses.
    let rest = &text[text.rfind(')')? + 1..];
    let mut fields = [0; FIELDS];
    let mut words = rest.split_ascii_whitespace();
    for field in &mut fields {
        *field = words.next()?.parse().unwrap_or(0);
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_lies_where_the_host_says() {
        let mut buffer = [0; ROOM];
        let fields = fields(&mut buffer).expect("a host that tells");
        let own = core::hint::black_box(&buffer).as_ptr() as u64;
        // Tests run in threads, whose stacks lie below the first one's.
        assert!(fields[28 - 3] > own, "{fields:x?}");
        assert!(fields[26 - 3] < fields[27 - 3]);
    }

    #[test]
    fn what_stays_is_what_the_host_says() {
        let mut buffer = [0; ROOM];
        let fields = fields(&mut buffer).expect("a host that tells");
        for _ in 0..2 {
            assert_eq!(kept(), Some(KEPT.map(|number| fields[number - 3])));
        }
    }
}
