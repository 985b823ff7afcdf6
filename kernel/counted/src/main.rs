//! Puts counts into a program's text, or looks whether a program is counted:
//! `rcoe-counted text x86_64|aarch64 IN.s OUT.s`, `rcoe-counted scan PROGRAM`. `cargo xtask` calls
//! it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use rcoe_counted::{Arch, add_counts, scan};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["text", arch, from, to] => text(arch, from, to),
        ["scan", program] => look(program),
        _ => Err("text x86_64|aarch64 IN.s OUT.s, or scan PROGRAM".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rcoe-counted: {why}");
            ExitCode::FAILURE
        }
    }
}

fn text(arch: &str, from: &str, to: &str) -> Result<(), String> {
    let arch = Arch::from_name(arch).ok_or_else(|| format!("{arch}: no such processor"))?;
    let text = std::fs::read_to_string(from).map_err(|why| format!("{from}: {why}"))?;
    let counted = add_counts(arch, &text).map_err(|why| format!("{from}: {why}"))?;
    std::fs::write(to, counted).map_err(|why| format!("{to}: {why}"))
}

fn look(program: &str) -> Result<(), String> {
    let content = std::fs::read(program).map_err(|why| format!("{program}: {why}"))?;
    scan(&content).map_err(|why| format!("{program}: {why}"))
}
