//! Where the instructions of one iteration go: counts by function.
//!
//! Functions are found in the symbol tables of the images that a replica executes: the agent's and
//! the program's, which are linked at fixed addresses. What was inlined counts for the function
//! that it was inlined into, and what lies in no symbol (stubs at rewritten sites, the vDSO) for
//! none.

use std::collections::HashMap;
use std::fmt::Write as _;

use elf::ElfBytes;
use elf::abi::STT_FUNC;
use elf::endian::AnyEndian;

/// Stands for all that belongs to no function.
const NOWHERE: &str = "(no symbol)";

/// One function's place in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    name: String,
}

/// Instructions by function, most first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile(Vec<(String, u64)>);

impl Profile {
    /// From how often the instruction at each address was executed.
    pub(super) fn new(visits: &HashMap<u64, u64>, images: &[Vec<u8>]) -> Self {
        let functions = images.iter().flat_map(|image| functions(image));
        let functions: Vec<Function> = functions.collect();
        let mut sums = HashMap::<&str, u64>::new();
        for (&address, &count) in visits {
            let holds = |it: &&Function| (it.start..it.end).contains(&address);
            let name = functions.iter().find(holds).map(|it| it.name.as_str());
            *sums.entry(name.unwrap_or(NOWHERE)).or_default() += count;
        }
        let mut rows: Vec<_> = sums
            .into_iter()
            .map(|(name, n)| (name.to_owned(), n))
            .collect();
        rows.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
        Self(rows)
    }

    /// As a table.
    pub(super) fn table(&self) -> String {
        let mut text = String::from("| function | instructions |\n|---|---|\n");
        for (name, count) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| `{name}` | {count} |");
        }
        text
    }
}

/// The functions of an image that says where they are.
fn functions(image: &[u8]) -> Vec<Function> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(image);
    let Some((symbols, names)) = file
        .ok()
        .and_then(|file| file.symbol_table().ok().flatten())
    else {
        return Vec::new();
    };
    let functions = symbols
        .iter()
        .filter(|it| it.st_symtype() == STT_FUNC && it.st_size != 0);
    let named = functions.map(|it| Function {
        start: it.st_value,
        end: it.st_value + it.st_size,
        name: short(names.get(it.st_name as usize).unwrap_or(NOWHERE)),
    });
    named.collect()
}

/// Where an image has the symbol of this name.
pub(super) fn address_of(image: &[u8], name: &str) -> Option<u64> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(image).ok()?;
    let (symbols, names) = file.symbol_table().ok()??;
    let found = symbols
        .iter()
        .find(|it| names.get(it.st_name as usize).is_ok_and(|it| it == name));
    found.map(|it| it.st_value)
}

/// The path in a mangled name, without crate and hash: the identifiers that stand in it.
fn short(mangled: &str) -> String {
    let Some(mut rest) = mangled.strip_prefix("_ZN") else {
        return mangled.to_owned();
    };
    let mut path = Vec::new();
    while let Some(digits) = rest
        .find(|c: char| !c.is_ascii_digit())
        .filter(|at| *at > 0)
    {
        let (count, tail) = rest.split_at(digits);
        let Some((name, tail)) = count
            .parse()
            .ok()
            .and_then(|n: usize| tail.split_at_checked(n))
        else {
            break;
        };
        path.push(name);
        rest = tail;
    }
    path.pop();
    path.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_paths() {
        let mangled = "_ZN10rcoe_agent5calls8straight4make17h0123456789abcdefE";
        assert_eq!(short(mangled), "rcoe_agent::calls::straight::make");
        assert_eq!(short("rcoe_entry"), "rcoe_entry");
    }

    #[test]
    fn what_is_in_no_image_counts_for_no_function() {
        let visits = HashMap::from([(16, 3), (32, 4)]);
        let profile = Profile::new(&visits, &[b"no image".to_vec()]);
        assert_eq!(profile.0, [(NOWHERE.to_owned(), 7)]);
    }

    #[test]
    fn this_program_knows_its_functions() {
        let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(functions(&image).iter().any(|it| it.name == "main"));
    }
}
