//! Where functions are: what unwinding tables say of it.
//!
//! Compilers, and most who write assembly, describe each function there, and no data. The table is
//! sorted: each entry leads to a record of a function, which has its length too.
//!
//! Not covered: tables of other encodings than those that linkers write; they are taken for none.

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

/// Version and encodings of a table: a pointer from where it stands; a count; pairs of distances
/// from the table.
const TABLE: [u8; 4] = [1, 0x1b, 3, 0x3b];
/// Bytes before the pairs, and of a pair.
const BEFORE: usize = 12;
const PAIR: usize = 8;
/// Where a record has a distance to its function, and the function's length.
const DISTANCE: u64 = 8;
const LENGTH: u64 = 12;

/// Content of the file by addresses.
struct Memory<'a>(Vec<(u64, &'a [u8])>);

impl<'a> Memory<'a> {
    /// What follows from an address on.
    fn at(&self, address: u64) -> Option<&'a [u8]> {
        let mut all = self.0.iter();
        all.find_map(|(start, content)| {
            let within = usize::try_from(address.checked_sub(*start)?).ok()?;
            content.get(within..).filter(|it| !it.is_empty())
        })
    }

    fn half(&self, address: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.at(address)?.first_chunk()?))
    }

    /// An address with the distance that stands there added.
    fn far(&self, from: u64, at: u64) -> Option<u64> {
        let [a, b, c, d] = self.half(at)?.to_le_bytes();
        Some(from.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()))
    }
}

/// Beginnings and ends of functions as the file has them, in order and apart; none if it does not
/// say.
pub(super) fn functions(data: &[u8]) -> Vec<(u64, u64)> {
    let mut found = read(data).unwrap_or_default();
    found.sort_unstable();
    found.dedup_by(|next, kept| next.0 < kept.1);
    found
}

fn read(data: &[u8]) -> Option<Vec<(u64, u64)>> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let all = header.program_headers(endian, data).ok()?;
    let of_type = |kind| all.iter().filter(move |it| it.p_type(endian) == kind);
    let memory = of_type(elf::PT_LOAD);
    let memory = memory.filter_map(|it| Some((it.p_vaddr(endian), it.data(endian, data).ok()?)));
    let memory = Memory(memory.collect());
    let table = of_type(elf::PT_GNU_EH_FRAME).next()?.p_vaddr(endian);
    let content = memory.at(table)?;
    let pairs = content.get(BEFORE..)?;
    let count = usize::try_from(memory.half(table.checked_add(8)?)?).ok()?;
    if !content.starts_with(&TABLE) || count > pairs.len() / PAIR {
        return None;
    }
    let first = table.checked_add(BEFORE as u64)?;
    let entries = (0..count).map(|index| {
        let pair = first.checked_add((index * PAIR) as u64)?;
        let other = pair.checked_add(4)?;
        let (start, record) = (memory.far(table, pair)?, memory.far(table, other)?);
        // The record says the same if it is encoded as usual.
        let distance = record.checked_add(DISTANCE)?;
        let same = memory.far(distance, distance)? == start;
        let length = memory.half(record.checked_add(LENGTH)?)?;
        let end = start.checked_add(length.into())?;
        (same && end > start).then_some((start, end))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_a_program_are_found() {
        // Debug builds and release builds have such tables.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = functions(&own);
        assert!(found.len() > 100, "{}", found.len());
        assert!(found.windows(2).all(|it| it[0].1 <= it[1].0));
        assert!(found.iter().all(|it| it.0 < it.1));
    }

    #[test]
    fn whatever_a_table_says_functions_are_in_order() {
        let mut own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let (start, len) = {
            let data = own.as_slice();
            let header = elf::FileHeader64::<Endianness>::parse(data).unwrap();
            let endian = header.endian().unwrap();
            let all = header.program_headers(endian, data).unwrap();
            let mut all = all.iter();
            let table = all.find(|it| it.p_type(endian) == elf::PT_GNU_EH_FRAME);
            let table = table.unwrap();
            (table.p_offset(endian), table.p_filesz(endian))
        };
        let (start, len) = (usize::try_from(start).unwrap(), len.min(400));
        let mut seed = 11_u64;
        for _ in 0..200 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = start + usize::try_from((seed >> 33) % len).unwrap();
            let before = own[at];
            own[at] = seed.to_be_bytes()[0];
            let found = functions(&own);
            assert!(found.windows(2).all(|it| it[0].1 <= it[1].0));
            own[at] = before;
        }
    }
}
