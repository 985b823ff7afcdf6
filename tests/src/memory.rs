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
    let output = Command::new("nm").arg(program).output().expect("binutils");
    let text = String::from_utf8(output.stdout).expect("names");
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")))
        .expect("the symbol");
    let digits = line.split(' ').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).expect("an address")
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
