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
//! Contract: whoever is about to move, replace, protect or give back memory of the program, or to
//! write to it in spite of its protection, has the sites in it given up before: their bytes are
//! the program's own again ([`Rewriter::give_up`]). Stubs stay: a thread may still wait in one.
//!
//! Not covered: indirect jumps into the middle of the replaced bytes. In *before* that would be
//! the middle of an instruction; in *after* a jump to the `cmp` itself. A program that reads its
//! own code, or copies it elsewhere.

use core::sync::atomic::AtomicU64;

use rcoe_linux_abi::scene::{STUB_BYTES, STUB_CALL, STUB_ENTRY, STUB_RETURN};

use crate::arch::branches::branches_into;
use crate::arch::code::Mappings;
use crate::arch::entry::entry_address;
use crate::convert::{low32, size};
use crate::kernel::count;
use crate::lifetime::{PerProgram, Program};
use crate::memory::guest;
use crate::memory::nearby::{REACH, map_area};
pub(super) use crate::memory::nearby::{jump, patch};

/// Most sites that are known, and slots of the table that finds them (a power of two).
const SITES: usize = 1024;
/// Hits after which a site is rewritten at the earliest.
const HOT: u64 = 64;
/// Code that is searched for branches in the time of a dispatched call: in a large library the
/// search takes as long as a hundred of them.
const SEARCHED: u64 = 16 << 10;
/// Bytes of one stub.
const STUB: u64 = STUB_BYTES;
/// Bytes of one stub area.
const AREA: u64 = 16 * 1024;
/// Most stub areas.
const AREAS: usize = 32;
/// Offset within a stub of the address of the agent's entry.
const ENTRY_SLOT: u64 = STUB_ENTRY;
/// Offset within a stub of the address to restart the call at.
const RESTART_SLOT: u64 = STUB_CALL;
/// Where an *after* stub goes on when the call is done: at the `cmp`.
const AFTER_RETURN: u64 = STUB_RETURN;
/// Bytes of a jump.
const JUMP: u64 = 5;
/// How far before and behind the end of its call a site is overwritten, whatever its shape.
const OVERWRITTEN: (u64, u64) = (7, 3);

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
    area_count: usize,
    /// Start and next free stub of each area.
    areas: [(u64, u64); AREAS],
    /// By a site's address: its index plus one, or 0.
    slots: [u16; SITES],
    sites: [Site; SITES],
    code: Mappings,
    /// How often known code has come or gone.
    changes: u64,
}

impl PerProgram for Rewriter {
    /// Nothing is known. What is not in use is left untouched.
    fn in_program(&mut self, _: &Program) {
        let Self {
            slots,
            sites,
            site_count,
            code,
            areas,
            area_count,
            changes,
        } = self;
        *changes += 1;
        slots.fill(0);
        sites[..*site_count].fill(Site::default());
        code.clear();
        areas[..*area_count].fill((0, 0));
        (*site_count, *area_count) = (0, 0);
    }
}

impl Rewriter {
    /// Executable memory was mapped here.
    pub(crate) fn add_code(&mut self, start: u64, len: u64) {
        self.give_up(start, len);
        self.changes += 1;
        self.code.add(start..start.saturating_add(len));
    }

    /// Memory is about to change its place, its content or its protection, or to go. What was
    /// rewritten in it is as it was, and sites in it start anew.
    pub(crate) fn give_up(&mut self, start: u64, len: u64) {
        let gone = start..start.saturating_add(len);
        if !self.code.remove(&gone) {
            return;
        }
        self.changes += 1;
        let (before, behind) = OVERWRITTEN;
        for index in 0..self.site_count {
            let Site { after, hits, .. } = self.sites[index];
            if after - before < gone.end && gone.start < after + behind {
                if hits == u64::MAX {
                    self.restore(after);
                }
                // It keeps its address, or later ones would not be found past its slot.
                self.sites[index] = Site {
                    after,
                    ..Site::default()
                };
            }
        }
    }

    /// How often known code has come or gone: what was found out in it holds as long as this stays
    /// the same.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The known mapping of code around this address.
    pub(crate) fn code_at(&self, address: u64) -> Option<Range> {
        self.code.whole(address)
    }

    /// Where stubs are.
    pub(crate) fn stubs(&self) -> [Range; AREAS] {
        self.areas.each_ref().map(|(start, _)| match *start {
            0 => 0..0,
            start => start..start + AREA,
        })
    }

    /// Takes out the jump of a site, if there is one.
    ///
    /// # Panics
    /// If the program's code cannot be written any more: it would go astray.
    fn restore(&self, after: u64) {
        for start in [after - 7, after - 2] {
            if let Some(original) = self.original(start, after) {
                patch(start, &original).expect("what was overwritten can be again");
            }
        }
    }

    /// What was at `start` before a jump to one of our stubs; `None` if there is no such jump.
    fn original(&self, start: u64, after: u64) -> Option<[u8; size(JUMP)]> {
        let [0xe9, displacement @ ..] = guest::read::<[u8; size(JUMP)]>(start).ok()? else {
            return None;
        };
        let distance = i64::from(i32::from_le_bytes(displacement));
        let stub = (start + JUMP).wrapping_add_signed(distance);
        let area = self.area_of(stub)?;
        if !(stub - area).is_multiple_of(STUB) || restart_at(stub) != Some(start) {
            return None;
        }
        if start + JUMP < after {
            return guest::read(stub).ok();
        }
        let [a, b, c] = guest::read::<[u8; 3]>(stub + AFTER_RETURN).ok()?;
        Some([0x0f, 0x05, a, b, c])
    }

    /// The area of stubs that has this address.
    fn area_of(&self, address: u64) -> Option<u64> {
        let mut starts = self.areas[..self.area_count]
            .iter()
            .map(|(start, _)| *start);
        starts.find(|start| address.wrapping_sub(*start) < AREA)
    }

    /// Are stubs in this range, which the program does not know of?
    pub(crate) fn owns(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        let mut areas = self.areas[..self.area_count].iter();
        areas.any(|(area, _)| start < area + AREA && *area < end)
    }

    /// A call was dispatched; `after` is the address behind the `syscall` instruction. Returns
    /// where the call must return to. `sites` counts rewritten sites.
    pub(crate) fn hit(&mut self, after: u64, sites: &AtomicU64) -> u64 {
        let Some(site) = self.site(after) else {
            return after;
        };
        if site.hits != u64::MAX {
            site.hits += 1;
            let hits = site.hits;
            if hits >= HOT && self.is_worth(after, hits) {
                self.heat(after, sites);
            }
        }
        self.translate(after)
    }

    /// Have so many hits taken as long as looking for branches would?
    fn is_worth(&self, after: u64, hits: u64) -> bool {
        let lengths = self.code.around(after).map(|code| code.end - code.start);
        lengths.sum::<u64>() / SEARCHED <= hits
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
        let code = self.code.whole(after)?;
        if after < code.start + 16 || after + 16 > code.end {
            return None;
        }
        let around = guest::read::<[u8; 24]>(after - 16).ok()?;
        let undisturbed = |window: Range| {
            let mut all = self.code.around(after);
            !all.any(|code| branches_into(&code, window.clone()))
        };
        if is_before(&around) && undisturbed(after - 6..after - 2) {
            self.rewrite_before(after, &around)
        } else if is_after(&around) && undisturbed(after - 1..after + 6) {
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
        Stub::after(stub, start, &around[16..22]).store()?;
        patch(start, &jump(start, stub))?;
        Some(stub + AFTER_RETURN)
    }

    /// The stub at `stub` for an *after* shape, which is about to be rewritten; `None` if there is
    /// no room for its site.
    pub(super) fn adopt(
        &mut self,
        stub: u64,
        start: u64,
        shape: &[u8],
    ) -> Option<[u8; size(STUB)]> {
        let site = self.site(start + 2)?;
        site.hits = u64::MAX;
        site.resume = stub + AFTER_RETURN;
        Some(Stub::after(stub, start, &shape[2..8]).code)
    }

    /// Room for a stub within reach of `site`.
    fn allocate(&mut self, site: u64) -> Option<u64> {
        self.allocate_row(site, 1)
    }

    /// Room for so many stubs in a row within reach of `site`, of which there is room in one area.
    pub(super) fn allocate_row(&mut self, site: u64, stubs: usize) -> Option<u64> {
        let bytes = stubs as u64 * STUB;
        for (start, next) in &mut self.areas[..self.area_count] {
            if start.abs_diff(site) < REACH && *next + bytes <= *start + AREA {
                *next += bytes;
                return Some(*next - bytes);
            }
        }
        if self.area_count == AREAS {
            return None;
        }
        let start = map_area(site, AREA)?;
        self.areas[self.area_count] = (start, start + bytes);
        self.area_count += 1;
        Some(start)
    }

    /// Where to resume so that the call which would return to `rip` is made again.
    pub(crate) fn restart_address(&self, rip: u64) -> u64 {
        match self.area_of(rip) {
            Some(_) => restart_at(rip - AFTER_RETURN).expect("a stub of ours"),
            None => rip - 2,
        }
    }
}

/// Reads code; `None` if it cannot be.
pub(super) fn read_code(code: &mut [u8], at: u64) -> Option<()> {
    guest::copy_in(code, at).ok()
}

/// Writes code where it can be written to.
pub(super) fn write_code(at: u64, code: &[u8]) -> Option<()> {
    guest::copy_out(at, code).ok()
}

/// Where the call of a stub is made again.
fn restart_at(stub: u64) -> Option<u64> {
    guest::read(stub + RESTART_SLOT).ok()
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

    /// One for the shape at `start` that ends with this comparison.
    fn after(stub: u64, start: u64, comparison: &[u8]) -> Self {
        let mut code = Self::new(stub, start);
        code.load_return(stub + AFTER_RETURN);
        code.enter();
        assert_eq!(
            code.at(),
            stub + AFTER_RETURN,
            "the return address of an after stub"
        );
        code.bytes(comparison);
        let back = code.at();
        code.bytes(&jump(back, start + 8));
        code
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
    use crate::arch::code::Mappings;
    use crate::arch::rewrite::{
        AREAS, HOT, Place, Rewriter, SEARCHED, SITES, Site, is_after, is_before,
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
            code: Mappings::NONE,
            changes: 0,
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
    fn large_code_is_searched_after_more_hits() {
        let mut rewriter = Box::new(Rewriter::UNUSED);
        rewriter.add_code(0x10000, 100 * SEARCHED);
        rewriter.add_code(0x1000_0000, SEARCHED);
        assert!(!rewriter.is_worth(0x10010, 99));
        assert!(rewriter.is_worth(0x10010, 100));
        assert!(rewriter.is_worth(0x1000_0010, HOT));
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
}
