//! Which build a system image is of: a digest of the sources that it is made from.
//!
//! Who starts a machine and what runs in it speak of diaries, memory and boot parameters as their
//! sources have them. Of two builds one may not hear what the other one tells, such as that a
//! replica was lost. So the kernel carries the identity of its build, the command has its own, and
//! one that meets another refuses it.
//!
//! This file is a part of two build scripts, that of the kernel and that of `rcoe-system`.
//!
//! Not covered: sources of other packages, and the compiler.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Folders whose sources are in the image.
const PARTS: [&str; 7] = [
    "abi",
    "core",
    "kernel/counter",
    "kernel/objects",
    "kernel/src",
    "linux/syscalls",
    "user",
];

/// Files that are sources.
const KINDS: [&str; 5] = ["c", "h", "ld", "rs", "toml"];

/// Has cargo run the script again if a source changes, and gives the identity to the crate as the
/// variable `RCOE_BUILD` of its compilation.
///
/// # Errors
/// A source cannot be read.
pub(crate) fn tell(manifest: &Path) -> Result<()> {
    let root = manifest.ancestors().find(|it| it.join("xtask").is_dir());
    let root = root.ok_or_else(|| Error::new(ErrorKind::NotFound, "no workspace"))?;
    let mut paths = Vec::new();
    for part in PARTS {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
        sources(root, Path::new(part), &mut paths)?;
    }
    paths.sort();
    let mut digest = Digest::new();
    for path in paths {
        digest.add(path.as_os_str().as_encoded_bytes());
        digest.add(&std::fs::read(root.join(&path))?);
    }
    println!("cargo:rustc-env=RCOE_BUILD={:016x}", digest.0);
    Ok(())
}

/// Adds the paths of all sources in a folder, from the root.
fn sources(root: &Path, folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = path.extension().and_then(|kind| kind.to_str());
        if entry.file_type()?.is_dir() {
            sources(root, &path, paths)?;
        } else if kind.is_some_and(|kind| KINDS.contains(&kind)) {
            paths.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, 64 bits: builds are told apart, nobody forges one.
struct Digest(u64);

impl Digest {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Takes bytes in, and how many they are.
    fn add(&mut self, bytes: &[u8]) {
        let len = (bytes.len() as u64).to_le_bytes();
        for byte in bytes.iter().chain(&len) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
