//! Reads `table.toml`, checks it and writes it out as Rust `const` data.
//!
//! The table is data so that one file answers every question about a system call; the checks run
//! here, so that a table that contradicts itself does not compile.
#![forbid(unsafe_code)]

mod check;
mod columns;
mod emit;
mod model;
mod pools;
mod signature;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

const TABLE: &str = "table.toml";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={TABLE}");
    println!("cargo::rerun-if-changed=build");
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("linux/syscalls/{TABLE}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let text = fs::read_to_string(TABLE).map_err(|e| e.to_string())?;
    let table: model::Table = toml::from_str(&text).map_err(|e| e.to_string())?;
    check::table(&table)?;
    let code = emit::table(&table)?;
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    fs::write(Path::new(&out).join("generated.rs"), code).map_err(|e| e.to_string())
}
