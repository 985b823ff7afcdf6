//! Finds what `execvp` would run, and refuses what the agent could not run faithfully.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::elf;
use crate::error::ProgramError;

/// What the kernel reads of a file to find out what it is.
const HEAD_BYTES: usize = 256;
/// How often one script may name another as its interpreter.
const SCRIPT_DEPTH: usize = 4;
/// Where `execvp` looks if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A program that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Absolute path without symbolic links of the ELF file to load.
    pub exe: PathBuf,
    /// The path as `execve` would get it, for `AT_EXECFN`.
    pub path: PathBuf,
    /// Its arguments, the zeroth included.
    pub argv: Vec<OsString>,
}

impl Program {
    /// Resolves a command line as `execvp` and the kernel's script rules do.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] names what is missing or why it cannot be run.
    pub fn resolve(command: &[OsString], path: Option<&OsStr>) -> Result<Self, ProgramError> {
        let Some(name) = command.first().filter(|name| !name.is_empty()) else {
            return Err(ProgramError::NotFound(OsString::new()));
        };
        let file = if name.as_bytes().contains(&b'/') {
            let file = PathBuf::from(name);
            if is_missing(&file) {
                return Err(ProgramError::NotFound(name.clone()));
            }
            file
        } else {
            search(name, path.unwrap_or(OsStr::new(DEFAULT_PATH)))?
        };
        let mut program = Self {
            exe: file.clone(),
            path: file,
            argv: command.to_vec(),
        };
        for _ in 0..=SCRIPT_DEPTH {
            if !program.follow_script()? {
                return program.finish();
            }
        }
        Err(refused(
            &program.path,
            "scripts name each other as interpreters too deeply",
        ))
    }

    /// If the file is a script, puts its interpreter in its place.
    fn follow_script(&mut self) -> Result<bool, ProgramError> {
        check_executable(&self.exe)?;
        let head = read_head(&self.exe)?;
        let Some(line) = head.strip_prefix(b"#!") else {
            return Ok(false);
        };
        let (interpreter, argument) = parse_script_line(line).ok_or_else(|| {
            refused(
                &self.exe,
                "its #! line names no interpreter, or a too long one",
            )
        })?;
        let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
        if is_missing(&interpreter) {
            return Err(ProgramError::NoScriptInterpreter {
                script: self.exe.clone(),
                interpreter,
            });
        }
        let mut argv = vec![interpreter.clone().into_os_string()];
        argv.extend(argument.map(|text| OsString::from_vec(text.to_vec())));
        argv.push(self.exe.clone().into_os_string());
        argv.extend(self.argv.drain(..).skip(1));
        self.argv = argv;
        self.exe = interpreter;
        Ok(true)
    }

    /// Checks the ELF file and makes its path canonical.
    fn finish(mut self) -> Result<Self, ProgramError> {
        let loader = elf::check(&self.exe)?;
        check_privileges(&self.exe)?;
        if let Some(loader) = loader.filter(|loader| is_missing(loader)) {
            return Err(ProgramError::NoLoader {
                program: self.exe,
                loader,
            });
        }
        self.exe = self
            .exe
            .canonicalize()
            .map_err(|error| unreadable(&self.exe, error))?;
        Ok(self)
    }
}

pub(crate) fn refused(path: &Path, why: impl Into<String>) -> ProgramError {
    ProgramError::Refused(path.to_path_buf(), why.into())
}

pub(crate) fn unreadable(path: &Path, error: io::Error) -> ProgramError {
    ProgramError::Unreadable(path.to_path_buf(), error)
}

fn is_missing(path: &Path) -> bool {
    let error = path.metadata().err();
    error.is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    })
}

/// `execvp`'s search: the first that may be executed; else tell of one that may not.
fn search(name: &OsStr, path: &OsStr) -> Result<PathBuf, ProgramError> {
    let mut first_refusal = None;
    for folder in path.as_bytes().split(|&byte| byte == b':') {
        let folder = if folder.is_empty() {
            b".".as_slice()
        } else {
            folder
        };
        let file = Path::new(OsStr::from_bytes(folder)).join(name);
        if is_missing(&file) {
            continue;
        }
        match check_executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) => {
                first_refusal.get_or_insert(error);
            }
        }
    }
    Err(first_refusal.unwrap_or_else(|| ProgramError::NotFound(name.to_os_string())))
}

fn check_executable(path: &Path) -> Result<(), ProgramError> {
    let metadata = path
        .metadata()
        .map_err(|error| refused(path, reason(&error)))?;
    if metadata.is_dir() {
        return Err(refused(path, "is a directory"));
    }
    if !metadata.is_file() {
        return Err(refused(path, "is not a regular file"));
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(|_| {
        refused(
            path,
            "permission denied: you may not execute it (chmod +x?)",
        )
    })
}

/// The kernel's words for an error, without Rust's error number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

/// A binary that changes privileges on `execve` would silently run without them. Bits for the ids
/// that rcoe has change nothing.
fn check_privileges(path: &Path) -> Result<(), ProgramError> {
    use rustix::process::{getegid, geteuid};

    let metadata = path.metadata().map_err(|error| unreadable(path, error))?;
    let own = [geteuid().as_raw(), getegid().as_raw()];
    let owner = [metadata.uid(), metadata.gid()];
    let Some(bits) = changes_ids(metadata.mode(), owner, own) else {
        return check_capabilities(path);
    };
    let why = format!("is a {bits} program; under rcoe it would run without its privilege change");
    Err(refused(path, why))
}

/// The bits by which a file of this mode, user and group gives other effective ids than the own
/// ones.
const fn changes_ids(mode: u32, owner: [u32; 2], own: [u32; 2]) -> Option<&'static str> {
    if mode & 0o4000 != 0 && owner[0] != own[0] {
        Some("setuid")
    } else if mode & 0o2010 == 0o2010 && owner[1] != own[1] {
        Some("setgid")
    } else {
        None
    }
}

fn check_capabilities(path: &Path) -> Result<(), ProgramError> {
    let mut value = [0_u8; 64];
    let found = rustix::fs::getxattr(path, "security.capability", &mut value).is_ok();
    if found && !rustix::process::geteuid().is_root() {
        let why = "has file capabilities; under rcoe it would run without them";
        return Err(refused(path, why));
    }
    Ok(())
}

fn read_head(path: &Path) -> Result<Vec<u8>, ProgramError> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
    let mut head = vec![0; HEAD_BYTES];
    let mut length = 0;
    while length < HEAD_BYTES {
        let at = u64::try_from(length).unwrap_or(u64::MAX);
        match file
            .read_at(&mut head[length..], at)
            .map_err(|error| unreadable(path, error))?
        {
            0 => break,
            got => length += got,
        }
    }
    head.truncate(length);
    Ok(head)
}

/// The interpreter and the one optional argument of what follows `#!`.
fn parse_script_line(rest: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let end = rest.iter().position(|&byte| byte == b'\n');
    let line = rest[..end.unwrap_or(rest.len())].trim_ascii();
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let (interpreter, argument) = match line.iter().position(blank) {
        Some(at) => (&line[..at], Some(line[at..].trim_ascii())),
        None => (line, None),
    };
    // Without an end of line in what was read, a path may have been cut off.
    let cut = end.is_none() && argument.is_none() && rest.len() + 2 >= HEAD_BYTES;
    (!interpreter.is_empty() && !cut)
        .then_some((interpreter, argument.filter(|text| !text.is_empty())))
}

#[cfg(test)]
mod tests;
