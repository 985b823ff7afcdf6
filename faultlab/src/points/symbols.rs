//! Where the agent has what the observer looks for: symbols of the image that a replica executes.
//!
//! The agent is linked to fixed addresses, and mapped from the executable of rcoe, which holds its
//! image, symbols included.

use anyhow::{Context, Result};
use rcoe_linux_abi::AGENT_TEXT;

/// Address of the agent's entry at a point. All registers there are the program's, but for the
/// instruction pointer, which has been put away.
const ENTRY: &str = "rcoe_point";
/// Address of the word with the program's instruction pointer.
const POINTER: &str = "RCOE_POINT";

/// What the observer has to know of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where a replica is stopped.
    pub entry: u64,
    /// Where the program's instruction pointer is then.
    pub pointer: u64,
}

/// Reads them from the image that a replica executes.
///
/// # Errors
///
/// If the process is gone, or the image has no such symbols.
pub fn places(pid: i32) -> Result<Places> {
    let image = agent_image(pid)?.context("it has no agent")?;
    let find =
        |name: &str| address(&image, name).with_context(|| format!("no {name} in the agent"));
    Ok(Places {
        entry: find(ENTRY)?,
        pointer: find(POINTER)?,
    })
}

/// The agent's image, from the file of which this process has mapped it; `None` if it has no agent.
///
/// # Errors
///
/// If the process is gone, or the file cannot be read.
pub fn agent_image(pid: i32) -> Result<Option<Vec<u8>>> {
    let path = format!("/proc/{pid}/maps");
    let maps = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let begin = format!("{AGENT_TEXT:x}-");
    let Some(line) = maps.lines().find(|line| line.starts_with(&begin)) else {
        return Ok(None);
    };
    let offset = line.split_ascii_whitespace().nth(2);
    let offset = offset.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let place = offset.zip(line.find('/').map(|at| &line[at..]));
    let (offset, file) = place.with_context(|| format!("no agent in {path}"))?;
    let all = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    let image = all.get(offset..);
    // The list of its sections ends it.
    let whole = image.and_then(|image| {
        let sections = image.get(60..62)?.try_into().ok()?;
        image.get(..word(image, 40)? + usize::from(u16::from_le_bytes(sections)) * 64)
    });
    let whole = whole.with_context(|| format!("no agent in {file}"))?;
    Ok(Some(whole.to_vec()))
}

fn word(image: &[u8], at: usize) -> Option<usize> {
    let bytes = image.get(at..at.checked_add(8)?)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

fn half(image: &[u8], at: usize) -> Option<usize> {
    let bytes = image.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// A section: its kind, where it begins in the file, its length, and the section it belongs to.
fn section(image: &[u8], index: usize) -> Option<[usize; 4]> {
    const HEADER: usize = 64;
    let at = word(image, 40)? + index * HEADER;
    Some([
        half(image, at + 4)?,
        word(image, at + 24)?,
        word(image, at + 32)?,
        half(image, at + 40)?,
    ])
}

/// The value of a symbol of a 64-bit ELF image.
fn address(image: &[u8], name: &str) -> Option<u64> {
    const SYMBOLS: usize = 2;
    const SYMBOL: usize = 24;
    let count = usize::from(u16::from_le_bytes([*image.get(60)?, *image.get(61)?]));
    let table = (0..count).find_map(|index| {
        let found = section(image, index)?;
        (found[0] == SYMBOLS).then_some(found)
    });
    let [_, start, length, names] = table?;
    let [_, names, names_length, _] = section(image, names)?;
    let names = image.get(names..names.checked_add(names_length)?)?;
    let is_it = |at: usize| {
        let rest = names.get(half(image, at)?..)?;
        let rest = rest.strip_prefix(name.as_bytes())?;
        (rest.first() == Some(&0)).then_some(())
    };
    let mut symbols = (start..start.checked_add(length)?).step_by(SYMBOL);
    let found = symbols.find(|at| is_it(*at).is_some())?;
    word(image, found + 8).and_then(|value| u64::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn own_symbols_are_found_and_others_are_not() {
        let image = std::fs::read("/proc/self/exe").expect("it runs");
        let main = address(&image, "main").expect("every program has one");
        assert_ne!(main, 0);
        assert_eq!(address(&image, "mai"), None);
        assert_eq!(address(&image[..4096], "main"), None);
        assert_eq!(address(b"\x7fELF", "main"), None);
    }
}
