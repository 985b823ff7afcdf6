//! Rewriting of hot system-call sites, so that they enter the agent without a signal.
//!
//! A dispatched call costs a signal, more than a microsecond. After a few hits its site is
//! rewritten with a five-byte `jmp` to a stub nearby, in one of two shapes that compilers and
//! assemblers emit:
//!
//! * *before*: `mov $nr,%eax` (5 bytes) `; syscall`. The `jmp` takes the place of the `mov`;
//!   the `syscall` stays, and whoever jumps straight to it is dispatched as ever.
//! * *after*: `syscall; cmp $-4095,%rax` or `$-4096` (2 + 6 bytes). The `jmp` takes the place of
//!   the `syscall`; the stub makes up for the `cmp`.
//!
//! Neither touches the red zone. A site stays dispatched if anything that looks like a branch into
//! the replaced bytes is found: every byte of the mapping counts that could be the opcode of one,
//! whether or not an instruction begins there.
//!
//! Not covered: indirect jumps into the middle of the replaced bytes. In *before* that would be
//! the middle of an instruction; in *after* a jump to the `cmp` itself.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE,
};

use crate::arch::entry::{entry_address, guarded};
use crate::convert::{low32, size};
use crate::kernel::count;
use crate::lifetime::{PerProgram, Program};
use crate::memory::guest;
use crate::memory::loader::{page_down, page_up};
use crate::sys;

/// Most sites that are known, and slots of the table that finds them (a power of two).
const SITES: usize = 1024;
/// Hits after which a site is rewritten.
///
/// Looking for branches costs about as much as a hundred dispatched calls.
const HOT: u64 = 64;
/// Bytes of one stub.
const STUB: u64 = 64;
/// Bytes of one stub area.
const AREA: u64 = 16 * 1024;
/// Most stub areas.
const AREAS: usize = 32;
/// Most code mappings that are known.
const CODE: usize = 256;
/// A displacement must reach the stub and back.
const REACH: u64 = 0x7fff_0000;
/// Offset within a stub of the address of the agent's entry.
const ENTRY_SLOT: u64 = 48;
/// Offset within a stub of the address to restart the call at.
const RESTART_SLOT: u64 = 56;
/// Where an *after* stub goes on when the call is done.
const AFTER_RETURN: u64 = 13;

/// A half-open range of addresses.
type Range = core::ops::Range<u64>;

/// One system-call site.
#[derive(Clone, Copy, Default)]
struct Site {
    /// Address after the `syscall` instruction.
    after: u64,
    /// Dispatched calls so far; `u64::MAX` means leave alone.
    hits: u64,
    /// Where a call from here returns to if not to `after`, because that was overwritten; or 0.
    resume: u64,
}

/// Where a site is found.
enum Place {
    /// Its index.
    Known(usize),
    /// The slot to which it would go.
    Free(usize),
}

/// Sites, their hits, and where stubs go. Zeroes know none.
///
/// Sites stand in the order of their first hits, so that a short program touches few pages of them.
#[repr(C)]
pub(crate) struct Rewriter {
    site_count: usize,
    code_count: usize,
    area_count: usize,
    /// Start and next free stub of each area.
    areas: [(u64, u64); AREAS],
    /// By a site's address: its index plus one, or 0.
    slots: [u16; SITES],
    sites: [Site; SITES],
    /// Known executable mappings.
    code: [Range; CODE],
}

impl PerProgram for Rewriter {
    /// Nothing is known. What is not in use is left untouched.
    fn in_program(&mut self, _: &Program) {
        let Self {
            slots,
            sites,
            site_count,
            code,
            code_count,
            areas,
            area_count,
        } = self;
        slots.fill(0);
        sites[..*site_count].fill(Site::default());
        code[..*code_count].fill(0..0);
        areas[..*area_count].fill((0, 0));
        (*site_count, *code_count, *area_count) = (0, 0, 0);
    }
}

impl Rewriter {
    /// Executable memory was mapped here.
    pub(crate) fn add_code(&mut self, start: u64, len: u64) {
        self.forget_code(start, len);
        if self.code_count < CODE {
            self.code[self.code_count] = start..start + len;
            self.code_count += 1;
        }
    }

    /// Memory was unmapped, or mapped over, here. Sites in it start anew.
    pub(crate) fn forget_code(&mut self, start: u64, len: u64) {
        let gone = start..start.saturating_add(len);
        let mut i = 0;
        let mut touched = false;
        while i < self.code_count {
            if self.code[i].start < gone.end && gone.start < self.code[i].end {
                self.code_count -= 1;
                self.code.swap(i, self.code_count);
                self.code[self.code_count] = 0..0;
                touched = true;
            } else {
                i += 1;
            }
        }
        if touched {
            for site in &mut self.sites[..self.site_count] {
                if gone.contains(&site.after) {
                    // It keeps its address, or later ones would not be found past its slot.
                    *site = Site {
                        after: site.after,
                        ..Site::default()
                    };
                }
            }
        }
    }

    /// A call was dispatched; `after` is the address behind the `syscall` instruction. Returns
    /// where the call must return to. `sites` counts rewritten sites.
    pub(crate) fn hit(&mut self, after: u64, sites: &AtomicU64) -> u64 {
        let Some(site) = self.site(after) else {
            return after;
        };
        if site.hits != u64::MAX {
            site.hits += 1;
            if site.hits >= HOT {
                self.heat(after, sites);
            }
        }
        self.translate(after)
    }

    /// Where to go on instead of `rip`, if a rewritten site has overwritten that place.
    pub(crate) fn translate(&mut self, rip: u64) -> u64 {
        match self.find(rip) {
            Some(Place::Known(index)) if self.sites[index].resume != 0 => self.sites[index].resume,
            _ => rip,
        }
    }

    /// The site is hot: rewrite it, once and for all.
    fn heat(&mut self, after: u64, sites: &AtomicU64) {
        let resume = self.rewrite(after);
        if resume.is_some() {
            count(sites, 1);
        }
        if let Some(site) = self.site(after) {
            site.hits = u64::MAX;
            site.resume = resume.filter(|resume| *resume != after).unwrap_or(0);
        }
    }

    /// Where this site is or could be; `None` if there is no room for it.
    fn find(&self, after: u64) -> Option<Place> {
        const PROBES: usize = 16;
        let hash = size(after.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54);
        let mut slots = (0..PROBES).map(|probe| (hash + probe) % SITES);
        slots.find_map(|slot| match usize::from(self.slots[slot]).checked_sub(1) {
            None => Some(Place::Free(slot)),
            Some(index) if self.sites[index].after == after => Some(Place::Known(index)),
            Some(_) => None,
        })
    }

    /// The site, known from now on; `None` if the table is full of others.
    fn site(&mut self, after: u64) -> Option<&mut Site> {
        let index = match self.find(after)? {
            Place::Known(index) => index,
            Place::Free(slot) => {
                let index = self.site_count;
                self.sites.get_mut(index)?.after = after;
                self.site_count += 1;
                self.slots[slot] = u16::try_from(self.site_count).ok()?;
                index
            }
        };
        Some(&mut self.sites[index])
    }

    /// Rewrites a site; returns where its calls return to from now on.
    fn rewrite(&mut self, after: u64) -> Option<u64> {
        let code = self.code[..self.code_count]
            .iter()
            .find(|code| code.contains(&after))?
            .clone();
        if after < code.start + 16 || after + 16 > code.end {
            return None;
        }
        let around = guest::read::<[u8; 24]>(after - 16).ok()?;
        if is_before(&around) && !branches_into(&code, after - 6..after - 2) {
            self.rewrite_before(after, &around)
        } else if is_after(&around) && !branches_into(&code, after - 1..after + 6) {
            self.rewrite_after(after, &around)
        } else {
            None
        }
    }

    fn rewrite_before(&mut self, after: u64, around: &[u8; 24]) -> Option<u64> {
        let stub = self.allocate(after)?;
        let start = after - 7;
        let mut code = Stub::new(stub, start);
        code.bytes(&around[9..14]);
        code.load_return(after);
        code.enter();
        code.store()?;
        patch(start, &jump(start, stub))?;
        Some(after)
    }

    fn rewrite_after(&mut self, after: u64, around: &[u8; 24]) -> Option<u64> {
        let stub = self.allocate(after)?;
        let start = after - 2;
        let mut code = Stub::new(stub, start);
        code.load_return(stub + AFTER_RETURN);
        code.enter();
        assert_eq!(
            code.at(),
            stub + AFTER_RETURN,
            "the return address of an after stub"
        );
        code.bytes(&around[16..22]);
        let back = code.at();
        code.bytes(&jump(back, after + 6));
        code.store()?;
        patch(start, &jump(start, stub))?;
        Some(stub + AFTER_RETURN)
    }

    /// Room for a stub within reach of `site`.
    fn allocate(&mut self, site: u64) -> Option<u64> {
        for (start, next) in &mut self.areas[..self.area_count] {
            if start.abs_diff(site) < REACH && *next + STUB <= *start + AREA {
                *next += STUB;
                return Some(*next - STUB);
            }
        }
        if self.area_count == AREAS {
            return None;
        }
        let start = map_area(site)?;
        self.areas[self.area_count] = (start, start + STUB);
        self.area_count += 1;
        Some(start)
    }

    /// Where to resume so that the call which would return to `rip` is made again.
    pub(crate) fn restart_address(&self, rip: u64) -> u64 {
        let in_area = |(start, _): &&(u64, u64)| rip >= *start && rip < *start + AREA;
        match self.areas[..self.area_count].iter().find(in_area) {
            Some(_) => {
                let slot = rip - AFTER_RETURN + RESTART_SLOT;
                guest::read::<u64>(slot).expect("a stub of ours")
            }
            None => rip - 2,
        }
    }
}

/// `mov $nr,%eax; syscall` ends at offset 16?
fn is_before(around: &[u8; 24]) -> bool {
    let rex = |byte: u8| byte & 0xf0 == 0x40;
    // `mov $imm32,%eax`, not the tail of a longer move, with a sensible number.
    around[9] == 0xb8 && !rex(around[8]) && around[12] == 0 && around[13] == 0
}

/// `syscall; cmp $-4095,%rax` (or -4096) around offset 16?
fn is_after(around: &[u8; 24]) -> bool {
    matches!(around[16..22], [0x48, 0x3d, 0x00 | 0x01, 0xf0, 0xff, 0xff])
}

/// Could anything in `code` be a direct branch to an address in `window`?
fn branches_into(code: &Range, window: Range) -> bool {
    let verdict = guarded(|| {
        let near = long_branch(code, &window) || short_branch(code, &window);
        i64::from(near)
    });
    verdict != 0
}

/// Does a long branch lead into the window? Any four bytes that would, as a displacement, are a
/// suspicion; what stands before them must be the opcode of a branch.
fn long_branch(code: &Range, window: &Range) -> bool {
    /// Bytes looked at without a decision in between, so that the loop becomes vector code.
    const BLOCK: u64 = 1024;
    let mut at = code.start;
    while at + BLOCK + 4 <= code.end {
        let suspicious = (0..4).any(|phase| block_may_lead(at + phase, size(BLOCK), window));
        if suspicious && (at..at + BLOCK).any(|at| is_long_branch(at, code, window)) {
            return true;
        }
        at += BLOCK;
    }
    (at..code.end - 4).any(|at| is_long_branch(at, code, window))
}

/// Is there the displacement at `at` of a `call`, `jmp` or `jcc` into the window?
fn is_long_branch(at: u64, code: &Range, window: &Range) -> bool {
    let byte_before = |distance: u64| {
        let place = at
            .checked_sub(distance)
            .filter(|place| *place >= code.start);
        // SAFETY: mapped code; a hole faults, which the caller's guard catches.
        place.map_or(0, |place| unsafe { (place as *const u8).read() })
    };
    displacement_in(at, window)
        && (matches!(byte_before(1), 0xe8 | 0xe9)
            || (byte_before(2) == 0x0f && byte_before(1) & 0xf0 == 0x80))
}

/// Does the word at `at`, as a displacement, lead into the window?
fn displacement_in(at: u64, window: &Range) -> bool {
    // SAFETY: mapped code; a hole faults, which the caller's guard catches.
    let displacement = unsafe { (at as *const u32).read_unaligned() };
    let target = displacement.wrapping_add(low32(at)).wrapping_add(4);
    target.wrapping_sub(low32(window.start)) < low32(window.end - window.start)
}

/// Could any of the words in `len` bytes from `at` on, as displacements, lead to the window or
/// right behind it? Simple enough to become vector code.
fn block_may_lead(at: u64, len: usize, window: &Range) -> bool {
    const WIDTH_BITS: u32 = 3;
    debug_assert!(window.end - window.start <= 1 << WIDTH_BITS);
    // SAFETY: mapped code that nobody changes meanwhile; a hole faults, which the caller's guard
    // catches.
    let code = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let mut place = low32(at).wrapping_add(4).wrapping_sub(low32(window.start));
    let mut hits = 0;
    for word in code.chunks_exact(4) {
        let displacement = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hits |= u32::from(displacement.wrapping_add(place) >> WIDTH_BITS == 0);
        place = place.wrapping_add(4);
    }
    hits != 0
}

/// Does a short branch nearby lead into the window?
///
/// Any two bytes that look like one are only a suspicion; instructions are then decoded from
/// several starting points, which agree after a few.
fn short_branch(code: &Range, window: &Range) -> bool {
    /// Bytes within which decoding falls into step.
    const LEAD: u64 = 64;
    let from = window.start.saturating_sub(130).max(code.start);
    let to = (window.end + 130).min(code.end - 16);
    if !(from..to).any(|at| is_short_branch(at, window)) {
        return false;
    }
    let low = from.saturating_sub(LEAD).max(code.start);
    (0..4).any(|start| {
        let mut at = low + start;
        let mut found = false;
        while at < to && !found {
            found = at >= from && is_short_branch(at, window);
            at += crate::arch::instructions::length_at(at);
        }
        found
    })
}

/// Is there a short branch at `at` that leads into the window, if an instruction begins there?
fn is_short_branch(at: u64, window: &Range) -> bool {
    // SAFETY: mapped code; a hole faults, which the caller's guard catches.
    let [opcode, displacement] = unsafe { (at as *const [u8; 2]).read_unaligned() };
    let target = (at + 2).wrapping_add_signed(i64::from(displacement.cast_signed()));
    matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb) && window.contains(&target)
}

/// Maps a stub area within reach of `site`, below it if possible.
fn map_area(site: u64) -> Option<u64> {
    const STEP: u64 = 1 << 20;
    const TRIES: u64 = 1024;
    let base = page_down(site);
    let below = (1..TRIES).filter_map(|i| base.checked_sub(i * STEP));
    let above = (1..TRIES).filter_map(|i| base.checked_add(i * STEP));
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    for hint in below.chain(above).filter(|hint| *hint >= STEP) {
        // SAFETY: a new mapping; it replaces nothing.
        match unsafe { sys::mmap(hint, AREA, PROT_READ | PROT_EXEC, flags, -1, 0) } {
            Ok(start) if start == hint => return Some(start),
            Ok(other) => {
                // SAFETY: mapped just now: a kernel that took the address for a hint only.
                let _ = unsafe { sys::munmap(other, AREA) };
            }
            Err(_) => {}
        }
    }
    None
}

/// `jmp rel32` from `at` to `to`.
fn jump(at: u64, to: u64) -> [u8; 5] {
    let displacement = low32(to.wrapping_sub(at + 5));
    let [a, b, c, d] = displacement.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Overwrites code of the program.
fn patch(at: u64, bytes: &[u8]) -> Option<()> {
    let page = page_down(at);
    let span = page_up(at + bytes.len() as u64) - page;
    // Executable throughout: the interrupted program's own page may be this one.
    let open = PROT_READ | PROT_WRITE | PROT_EXEC;
    // SAFETY: code of the program, which is not running; its protection is restored below.
    unsafe { sys::mprotect(page, span, open) }.ok()?;
    let written = guest::copy_out(at, bytes).ok();
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { sys::mprotect(page, span, PROT_READ | PROT_EXEC) }.ok()?;
    written
}

/// A stub under construction.
struct Stub {
    address: u64,
    code: [u8; size(STUB)],
    len: usize,
}

impl Stub {
    fn new(address: u64, restart: u64) -> Self {
        let mut code = [0xcc; size(STUB)];
        let slot = |offset: u64| size(offset)..size(offset) + 8;
        code[slot(ENTRY_SLOT)].copy_from_slice(&entry_address().to_le_bytes());
        code[slot(RESTART_SLOT)].copy_from_slice(&restart.to_le_bytes());
        Self {
            address,
            code,
            len: 0,
        }
    }

    fn at(&self) -> u64 {
        self.address + self.len as u64
    }

    fn bytes(&mut self, bytes: &[u8]) {
        assert!(
            self.len + bytes.len() <= size(ENTRY_SLOT),
            "the stub is long enough"
        );
        self.code[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// `lea target(%rip),%rcx`
    fn load_return(&mut self, target: u64) {
        let displacement = low32(target.wrapping_sub(self.at() + 7)).to_le_bytes();
        self.bytes(&[0x48, 0x8d, 0x0d]);
        self.bytes(&displacement);
    }

    /// `jmp *entry_slot(%rip)`
    fn enter(&mut self) {
        let slot = self.address + ENTRY_SLOT;
        let displacement = low32(slot.wrapping_sub(self.at() + 6)).to_le_bytes();
        self.bytes(&[0xff, 0x25]);
        self.bytes(&displacement);
    }

    fn store(&self) -> Option<()> {
        patch(self.address, &self.code)
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::rewrite::{
        AREAS, CODE, Place, Rewriter, SITES, Site, branches_into, is_after, is_before, jump,
    };
    use crate::lifetime::{PerProgram as _, Program};

    impl Rewriter {
        const UNUSED: Self = Self {
            slots: [0; SITES],
            sites: [Site {
                after: 0,
                hits: 0,
                resume: 0,
            }; SITES],
            site_count: 0,
            code: [const { 0..0 }; CODE],
            code_count: 0,
            areas: [(0, 0); AREAS],
            area_count: 0,
        };
    }

    /// Code around a call: `offset` is where the bytes go, the rest is `nop`.
    fn code(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut code = vec![0x90; len];
        for (offset, bytes) in parts {
            code[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        code
    }

    fn around(parts: &[(usize, &[u8])]) -> [u8; 24] {
        code(24, parts).try_into().expect("24 bytes")
    }

    #[test]
    fn shapes_are_told_apart() {
        let mov: (usize, &[u8]) = (9, &[0xb8, 1, 0, 0, 0]);
        let syscall: (usize, &[u8]) = (14, &[0x0f, 0x05]);
        assert!(is_before(&around(&[mov, syscall])));
        assert!(!is_after(&around(&[mov, syscall])));
        for constant in [0x00, 0x01] {
            let cmp: &[u8] = &[0x48, 0x3d, constant, 0xf0, 0xff, 0xff];
            assert!(is_after(&around(&[syscall, (16, cmp)])));
        }
    }

    #[test]
    fn the_tail_of_a_longer_move_is_no_site() {
        let wide: &[u8] = &[0x41, 0xb8, 1, 0, 0, 0];
        assert!(!is_before(&around(&[(8, wide)])), "mov $1,%r8d");
        assert!(
            !is_before(&around(&[(9, &[0xb8, 0, 0, 1, 0])])),
            "no such call"
        );
    }

    #[test]
    fn jumps_reach_both_ways() {
        assert_eq!(jump(0x1000, 0x2000), [0xe9, 0xfb, 0x0f, 0, 0]);
        assert_eq!(jump(0x2000, 0x1000), [0xe9, 0xfb, 0xef, 0xff, 0xff]);
    }

    /// Is a branch into bytes 4001 to 4004 of this code seen?
    fn seen(parts: &[(usize, &[u8])]) -> bool {
        let code = code(8192, parts);
        let start = code.as_ptr() as u64;
        branches_into(&(start..start + 8192), start + 4001..start + 4005)
    }

    #[test]
    fn sites_are_found_again_and_forgotten() {
        let mut rewriter = Box::new(Rewriter::UNUSED);
        let told = core::sync::atomic::AtomicU64::new(0);
        // Sites of a few pages, as of one library.
        let sites: Vec<u64> = (0..300).map(|at| 0x7000_0000 + at * 37).collect();
        for hits in 1..3 {
            for &site in &sites {
                assert_eq!(rewriter.hit(site, &told), site);
                let Some(Place::Known(index)) = rewriter.find(site) else {
                    panic!("{site:#x} is not known");
                };
                assert_eq!(
                    (rewriter.sites[index].after, rewriter.sites[index].hits),
                    (site, hits)
                );
            }
        }
        assert_eq!(rewriter.site_count, sites.len());
        rewriter.in_program(&Program {
            pid: 0,
            brk_start: 0,
        });
        assert!(
            sites
                .iter()
                .all(|site| matches!(rewriter.find(*site), Some(Place::Free(_))))
        );
        assert!(rewriter.sites.iter().all(|site| site.after == 0));
    }

    #[test]
    fn branches_are_seen() {
        assert!(!seen(&[]));
        for target in 4001..4005_u64 {
            let near = u8::try_from(target - 3952).expect("near");
            assert!(seen(&[(3950, &[0x74, near])]), "je to {target}");
            for from in [0, 1001, 2002, 8000] {
                let mut long = jump(from as u64, target);
                assert!(seen(&[(from, &long)]), "jmp from {from} to {target}");
                long[0] = 0xe8;
                assert!(seen(&[(from, &long)]), "call from {from} to {target}");
            }
        }
        for target in [4000, 4005] {
            assert!(
                !seen(&[(0, &jump(0, target))]),
                "jmp to {target} is harmless"
            );
        }
    }

    #[test]
    fn constants_are_no_branches() {
        // mov $imm32,%edx, whose constant would lead into the window as a displacement.
        let displacement = jump(2000, 4002);
        let constant = [
            0xba,
            displacement[1],
            displacement[2],
            displacement[3],
            displacement[4],
        ];
        assert!(!seen(&[(2000, &constant)]));
        // mov $0x33740000,%eax, whose constant holds what would be a short branch.
        assert!(!seen(&[(3947, &[0xb8, 0, 0, 0x74, 0x33])]));
    }
}
