//! What a program of Linux in a machine reads from its standard input.
//!
//! A file to which this command's standard input is redirected, or that is named, is packed with
//! the program's files before the machine starts. Of a pipe or a terminal the end may never come:
//! what comes there is handed over while the machine runs, as the program asks for it, unless it is
//! asked for that it be read to its end first.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rcoe_system::SystemError;

use crate::args::RunArgs;

/// Where the personality looks for it.
const PLACE: &str = "/dev/stdin";
/// This command's own.
const OWN: &str = "-";
/// Bytes of it, at most: all of it is in memory, for each replica.
const MOST: u64 = 1 << 30;

/// What there is of it at the start.
pub(crate) enum Input {
    /// Nothing, or it is among the files (`--file`).
    None,
    /// All of it.
    Whole(Vec<u8>),
    /// It comes while the machine runs.
    Live,
}

/// Reads it, if all of it is there.
///
/// # Errors
/// If it is named twice, cannot be read, or does not end.
pub(crate) fn read(args: &RunArgs) -> Result<Input, SystemError> {
    if args.file.iter().any(|file| file.guest == Path::new(PLACE)) {
        let why = "--input is what --file gives as /dev/stdin: leave out one of them";
        return match args.input {
            Some(_) => Err(SystemError::Setting(why.into())),
            None => Ok(Input::None),
        };
    }
    let refuse = |name: &str, why: &dyn std::fmt::Display| {
        SystemError::Setting(format!("--input {name}: {why}"))
    };
    match &args.input {
        Some(path) if path == Path::new(OWN) => own()
            .and_then(whole)
            .map(Input::Whole)
            .map_err(|error| refuse(OWN, &error)),
        Some(path) => {
            let content = File::open(path).and_then(whole);
            let name = path.display().to_string();
            content
                .map(Input::Whole)
                .map_err(|error| refuse(&name, &error))
        }
        None => redirected().map_err(|error| refuse("(standard input)", &error)),
    }
}

fn own() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// What this command's own standard input is.
fn redirected() -> io::Result<Input> {
    // A closed one is empty.
    let Ok(file) = own() else {
        return Ok(Input::None);
    };
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return whole(file).map(Input::Whole);
    }
    let comes = kind.is_fifo() || kind.is_socket() || file.is_terminal();
    Ok(if comes { Input::Live } else { Input::None })
}

/// From where it is to its end.
fn whole(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MOST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST {
        return Err(io::Error::other("it has more than 1 GiB"));
    }
    Ok(content)
}
