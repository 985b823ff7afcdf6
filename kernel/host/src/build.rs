//! Is a system image of the same build as this command?
//!
//! The kernel carries a digest of the sources of its image, in a section of its own; this crate has
//! the digest of the sources that it was built beside. See `kernel/identity.rs`.

use std::path::Path;

use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, elf};

use crate::SystemError;

/// The sources that this was built beside.
const OWN: &str = env!("RCOE_BUILD");

/// Where a kernel has its own.
const SECTION: &[u8] = b".rcoe.build";

/// Fails unless this kernel was built from the same sources as this command.
///
/// # Errors
/// It was not, tells nothing of its build, or cannot be read.
pub(crate) fn check(kernel: &Path) -> Result<(), SystemError> {
    let file = std::fs::read(kernel).map_err(SystemError::host(kernel.display().to_string()))?;
    let told = told(&file);
    if told == Some(OWN.as_bytes()) {
        return Ok(());
    }
    let found = told.map_or_else(
        || "of a build that does not say which".to_owned(),
        |told| format!("of build {}", told.escape_ascii()),
    );
    Err(SystemError::OtherBuild {
        path: kernel.parent().unwrap_or(Path::new(".")).to_owned(),
        found,
        own: OWN,
    })
}

/// What a kernel tells.
fn told(file: &[u8]) -> Option<&[u8]> {
    let header = elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    let (_, section) = sections.section_by_name(endian, SECTION)?;
    section.data(endian, file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_says_nothing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("rcoe-kernel");
        let own = std::env::current_exe().unwrap();
        for content in [Vec::new(), b"no ELF".to_vec(), std::fs::read(own).unwrap()] {
            std::fs::write(&kernel, content).unwrap();
            let refused = check(&kernel).unwrap_err().to_string();
            assert!(refused.contains("does not say which"), "{refused}");
            assert!(refused.contains("cargo xtask image"), "{refused}");
        }
    }

    #[test]
    fn the_identity_is_a_digest() {
        assert_eq!(OWN.len(), 16);
        assert!(OWN.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }
}
