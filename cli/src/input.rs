//! What a program of Linux in a machine reads from its standard input.
//!
//! It is packed with the program's files before the machine starts, so that it is the same for all
//! replicas and whoever comes back. A file to which this command's standard input is redirected is
//! passed on by itself; of anything else the end may never come, so it has to be asked for.
//!
//! Not covered: what comes while the machine runs, as from a terminal.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anstyle::AnsiColor;
use rcoe_system::SystemError;

use crate::args::RunArgs;
use crate::reporter::say;

/// Where the personality looks for it.
const PLACE: &str = "/dev/stdin";
/// This command's own.
const OWN: &str = "-";
/// Bytes of it, at most: all of it is in memory, for each replica.
const MOST: u64 = 1 << 30;

/// All of it; `None` if there is nothing to be read, or it is among the files (`--file`).
///
/// # Errors
/// If it is named twice, cannot be read, or does not end.
pub(crate) fn read(args: &RunArgs) -> Result<Option<Vec<u8>>, SystemError> {
    if args.file.iter().any(|file| file.guest == Path::new(PLACE)) {
        let why = "--input is what --file gives as /dev/stdin: leave out one of them";
        return match args.input {
            Some(_) => Err(SystemError::Setting(why.into())),
            None => Ok(None),
        };
    }
    let refuse = |name: &str, why: &dyn std::fmt::Display| {
        SystemError::Setting(format!("--input {name}: {why}"))
    };
    match &args.input {
        Some(path) if path == Path::new(OWN) => own()
            .and_then(whole)
            .map(Some)
            .map_err(|error| refuse(OWN, &error)),
        Some(path) => {
            let content = File::open(path).and_then(whole);
            let name = path.display().to_string();
            content.map(Some).map_err(|error| refuse(&name, &error))
        }
        None => redirected().map_err(|error| refuse("(standard input)", &error)),
    }
}

fn own() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// What this command's standard input is redirected to, if that is a file.
fn redirected() -> io::Result<Option<Vec<u8>>> {
    // A closed one is empty.
    let Ok(file) = own() else {
        return Ok(None);
    };
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        let text = "the program gets nothing of the pipe that is the standard input: --input - \
                    reads it to its end before the machine starts";
        say(AnsiColor::Yellow, "warning: ", text);
    }
    kind.is_file().then(|| whole(file)).transpose()
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
