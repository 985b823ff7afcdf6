//! Whether the kernel tells which pages were written, found out by writing some.
//!
//! Each probe is for a child of its own: it returns 0 or an errno, and leaves everything open.

use rcoe_linux_abi::PAGE_BYTES;

use crate::tracking::{
    self, Region, SCAN_AND_PROTECT, SCAN_CHECKED, Scan, category, clear_soft_dirty, entry,
};

/// The kernel does it, and tells something else than what was written.
const WRONG: u8 = 95;

/// The errno that the kernel's word is.
fn errno(word: i64) -> u8 {
    u8::try_from(word.unsigned_abs()).unwrap_or(u8::MAX)
}

/// Five populated pages; `None` with the kernel's errno if there is no memory.
fn pages() -> Option<*mut u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), 5 * PAGE_BYTES, prot, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    for page in 0..5 {
        // SAFETY: mapped just now.
        unsafe { start.add(page * PAGE_BYTES).write_volatile(1) };
    }
    Some(start)
}

/// Writes the second page, and has the kernel write the fourth.
fn write(pages: *mut u8) {
    let zeroes = tracking::open(c"/dev/zero", false);
    // SAFETY: memory of this child.
    unsafe { pages.add(PAGE_BYTES).write_volatile(2) };
    let fd = i32::try_from(zeroes).unwrap_or(-1);
    // SAFETY: as above; the kernel checks the descriptor.
    unsafe { libc::read(fd, pages.add(3 * PAGE_BYTES).cast(), 8) };
}

/// By `userfaultfd`.
pub(super) fn by_protection() -> u8 {
    let Some(memory) = pages() else {
        return WRONG;
    };
    let (start, len) = (memory as u64, 5 * PAGE_BYTES as u64);
    let protector = tracking::write_protector();
    if protector < 0 {
        return errno(protector);
    }
    let registered = tracking::register(protector, start, len);
    if registered < 0 {
        return errno(registered);
    }
    let pagemap = tracking::open(c"/proc/self/pagemap", false);
    if pagemap < 0 {
        return errno(pagemap);
    }
    let scan = |flags: u64, regions: &mut [Region]| {
        let mut what = Scan::new(flags, category::WRITTEN, 0, category::WRITTEN);
        (what.start, what.end) = (start, start + len);
        tracking::scan(pagemap, &mut what, regions)
    };
    let mut regions = [Region::default(); 4];
    let armed = scan(SCAN_AND_PROTECT | SCAN_CHECKED, &mut regions);
    if armed < 0 {
        return errno(armed);
    }
    write(memory);
    let told = scan(SCAN_CHECKED, &mut regions);
    let is_page = |region: &Region, page: u64| {
        let from = start + page * PAGE_BYTES as u64;
        (region.start, region.end) == (from, from + PAGE_BYTES as u64)
    };
    let right = told == 2 && is_page(&regions[0], 1) && is_page(&regions[1], 3);
    if right { 0 } else { WRONG }
}

/// By soft-dirty bits.
pub(super) fn by_soft_dirty() -> u8 {
    let Some(memory) = pages() else {
        return WRONG;
    };
    let clear_refs = tracking::open(c"/proc/self/clear_refs", true);
    if clear_refs < 0 {
        return errno(clear_refs);
    }
    let pagemap = tracking::open(c"/proc/self/pagemap", false);
    if pagemap < 0 {
        return errno(pagemap);
    }
    let cleared = clear_soft_dirty(clear_refs);
    if cleared < 0 {
        return errno(cleared);
    }
    write(memory);
    let mut words = [0; 5];
    let read = tracking::read_entries(pagemap, memory as u64, &mut words);
    if read < 0 {
        return errno(read);
    }
    let dirty = words.map(|word| word & entry::SOFT_DIRTY != 0);
    if dirty == [false, true, false, true, false] {
        0
    } else {
        WRONG
    }
}
