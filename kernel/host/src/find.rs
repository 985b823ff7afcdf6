//! Where the kernel and the programs of the system image are.

use std::path::{Path, PathBuf};

use crate::{Arch, SystemError};

/// Variable that names the folder of the system image.
pub const IMAGE_VARIABLE: &str = "RCOE_SYSTEM_IMAGE";

/// File name of the kernel.
pub(crate) const KERNEL: &str = "rcoe-kernel";
/// What the file names of programs begin with.
pub(crate) const PREFIX: &str = "system-";

/// Programs of the image that are no use alone: others start them, or the kernel does.
const PARTS: [&str; 7] = [
    "compress", "edu", "generate", "pong", "root", "serial", "timer",
];

/// Whether somebody may want to run a program of the image.
pub(crate) fn is_whole(name: &str) -> bool {
    !PARTS.contains(&name)
}

/// The folder with the system image for a machine: what the environment names, else the one beside
/// this executable, or that of the build folder the executable lies in.
///
/// # Errors
/// If no kernel is there.
pub fn folder(arch: Arch) -> Result<PathBuf, SystemError> {
    let named = std::env::var_os(IMAGE_VARIABLE).map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new(".")).join("rcoe-system");
    let built = own
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
        .join("system/image");
    let candidates = match named {
        Some(folder) => vec![folder],
        None => vec![beside, built],
    };
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
