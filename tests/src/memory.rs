//! Looking into a running replica, and changing what is there.

use std::fs::{File, OpenOptions, read_to_string};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

/// Address of a symbol of a program that is not relocated.
///
/// # Panics
/// If it has none of that name.
#[must_use]
pub fn symbol(program: &str, name: &str) -> u64 {
    let is_named = |line: &str| line.ends_with(&format!(" {name}"));
    let line = symbols(program, &[]).into_iter().find(|it| is_named(it));
    hex(line.expect("the symbol").split(' ').next())
}

/// Start and end of what the agent of a replica calls so: a part of the symbol's mangled name.
///
/// # Panics
/// If there is no such symbol, or more than one.
#[must_use]
pub fn of_agent(pid: u32, part: &str) -> (u64, u64) {
    let mut lines = symbols_of_agent(pid, &["--print-size"]);
    lines.retain(|line| line.contains(part));
    assert_eq!(lines.len(), 1, "{part}: {lines:?}");
    let mut words = lines[0].split(' ');
    let (start, len) = (hex(words.next()), hex(words.next()));
    (start, start + len)
}

/// Names and addresses of all that the agent of a replica can write and has a name for.
///
/// # Panics
/// If its file cannot be read.
#[must_use]
pub fn statics_of_agent(pid: u32) -> Vec<(String, u64)> {
    let lines = symbols_of_agent(pid, &[]);
    let parts = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let written = parts.filter(|words| matches!(words[..], [_, "b" | "B" | "d" | "D", _]));
    let named = written.map(|words| (words[2].to_owned(), hex(words.first().copied())));
    named.collect()
}

/// The agent's, whose image is part of the file of which a replica has mapped it: its section list
/// ends it.
fn symbols_of_agent(pid: u32, options: &[&str]) -> Vec<String> {
    let maps = read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let line = maps.lines().find(|line| line.starts_with("6f0000020000-"));
    let line = line.expect("the agent");
    let offset = hex(line.split_ascii_whitespace().nth(2));
    let file = &line[line.find('/').expect("of a file")..];
    let all = std::fs::read(file).expect("the executable of rcoe");
    let image = &all[usize::try_from(offset).expect("an offset")..];
    let number = |from: usize, len: usize| {
        let bytes = image[from..from + len].iter().rev();
        bytes.fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let end = number(40, 8) + number(60, 2) * 64;
    std::fs::write(file.path(), &image[..end]).expect("room");
    symbols(file.path().to_str().expect("a name"), options)
}

fn symbols(program: &str, options: &[&str]) -> Vec<String> {
    let mut command = Command::new("nm");
    let output = command.args(options).arg(program).output();
    let text = String::from_utf8(output.expect("binutils").stdout);
    text.expect("names").lines().map(str::to_owned).collect()
}

fn hex(digits: Option<&str>) -> u64 {
    let digits = digits.expect("a number");
    u64::from_str_radix(digits, 16).expect("an address")
}

/// Addresses of the aligned words of a process in this range that hold this value.
///
/// # Panics
/// If the range cannot be read.
#[must_use]
pub fn find(pid: u32, (start, end): (u64, u64), value: u64) -> Vec<u64> {
    let start = start.next_multiple_of(8);
    let words = usize::try_from((end - start) / 8).expect("a size");
    let mut bytes = vec![0; words * 8];
    let read = memory(pid).and_then(|memory| memory.read_exact_at(&mut bytes, start));
    read.expect("mapped memory");
    let (words, _) = bytes.as_chunks();
    let found = words.iter().zip((start..).step_by(8));
    let found = found.filter(|(word, _)| u64::from_le_bytes(**word) == value);
    found.map(|(_, address)| address).collect()
}

fn memory(pid: u32) -> io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    OpenOptions::new().read(true).write(true).open(path)
}

/// A word of a process.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn peek(pid: u32, address: u64) -> u64 {
    let mut word = [0; 8];
    let read = memory(pid).and_then(|memory| memory.read_exact_at(&mut word, address));
    read.expect("mapped memory");
    u64::from_le_bytes(word)
}

/// Changes memory of a process, whatever the process itself may do there.
///
/// # Errors
/// If it cannot be written: there is no such process, or no such memory.
pub fn poke(pid: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    memory(pid)?.write_all_at(bytes, address)
}

/// How the line of `maps` with the agent's code begins: the linker aligns it.
pub const AGENT_CODE: &str = "6f0000050000-";

/// Start and end of the first line of `maps` that holds all of `words`.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn area(pid: u32, words: &[&str]) -> (u64, u64) {
    let maps = read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let mut lines = maps.lines();
    let line = lines.find(|line| words.iter().all(|word| line.contains(word)));
    let range = line
        .and_then(|line| line.split_once(' '))
        .expect("an area")
        .0;
    let (start, end) = range.split_once('-').expect("a range");
    let number = |digits| u64::from_str_radix(digits, 16).expect("an address");
    (number(start), number(end))
}
