//! Where the kernel and the programs of the system image are.

use std::path::{Path, PathBuf};

use crate::{Arch, SystemError};

/// Variable that names the folder of the system image.
pub const IMAGE_VARIABLE: &str = "RCOE_SYSTEM_IMAGE";

/// File name of the kernel.
pub(crate) const KERNEL: &str = "rcoe-kernel";
/// The folder of programs that count their own branches, in that of the image.
pub(crate) const COUNTED: &str = "counted";
/// File name of the emulator's plugin that counts branches.
pub(crate) const COUNTER: &str = "librcoe_counter.so";
/// What the file names of programs begin with.
pub(crate) const PREFIX: &str = "system-";

/// Programs of the image that are no use alone: others start them, or the kernel does.
const PARTS: [&str; 14] = [
    "compress",
    "edu",
    "generate",
    "input",
    "linux",
    "monitor",
    "net",
    "pong",
    "root",
    "rtl8139",
    "serial",
    "timer",
    "virtio-blk",
    "virtio-net",
];

/// Whether somebody may want to run a program of the image.
pub(crate) fn is_whole(name: &str) -> bool {
    !PARTS.contains(&name)
}

/// Does the image have a program of this name that somebody may want to run?
///
/// # Errors
/// If the image cannot be read.
pub fn offers(folder: &Path, name: &str) -> Result<bool, SystemError> {
    let has = programs(folder)?.iter().any(|(known, _)| known == name);
    Ok(has && is_whole(name))
}

/// Where an installed image is, seen from the folder that `bin` is in.
const INSTALLED: &str = "lib/rcoe/system";

/// Where an image may be for an executable: beside it, where a package has it, or in the build
/// folder that the executable lies in.
fn places(own: &Path) -> Vec<PathBuf> {
    let folder = own.parent().unwrap_or(Path::new("."));
    let above = folder.parent().unwrap_or(Path::new("."));
    vec![
        folder.join("rcoe-system"),
        above.join(INSTALLED),
        above.join("system/image"),
    ]
}

/// The folder with the system image for a machine: what the environment names, else the first of
/// [`places`] that has one.
///
/// # Errors
/// If no kernel is there.
pub fn folder(arch: Arch) -> Result<PathBuf, SystemError> {
    let named = std::env::var_os(IMAGE_VARIABLE).map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let candidates = named.map_or_else(|| places(&own), |folder| vec![folder]);
    let candidates: Vec<PathBuf> = candidates
        .iter()
        .map(|folder| folder.join(arch.subfolder()))
        .collect();
    let found = candidates
        .iter()
        .find(|folder| folder.join(KERNEL).is_file());
    match (found, candidates.last()) {
        (Some(folder), _) => Ok(folder.clone()),
        (None, last) => Err(SystemError::NoImage(last.cloned().unwrap_or_default())),
    }
}

/// All programs of the image, by name.
pub(crate) fn programs(folder: &Path) -> Result<Vec<(String, PathBuf)>, SystemError> {
    let listing = std::fs::read_dir(folder);
    let listing = listing.map_err(SystemError::host(folder.display().to_string()))?;
    let mut found: Vec<(String, PathBuf)> = listing
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.to_owned();
            Some((name, path))
        })
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_command_finds_the_image_of_its_package() {
        let found = places(Path::new("/usr/bin/rcoe"));
        assert!(found.contains(&PathBuf::from("/usr/lib/rcoe/system")));
        let built = places(Path::new("/src/target/release/rcoe"));
        assert!(built.contains(&PathBuf::from("/src/target/system/image")));
    }
}
