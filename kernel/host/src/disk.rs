//! The disk of a machine: a file of the host, whose content outlives the machine.
//!
//! What is on it is the business of the personality, which keeps the files of one folder there
//! (`user/src/linux/journal.rs`).

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::SystemError;

/// Where the program finds the files of the disk, unless another folder is named.
const FOLDER: &str = "/disk";
/// Bytes of a new disk, which takes no more of the host than was written; and of the smallest one.
const NEW: u64 = 256 << 20;
const LEAST: u64 = 1 << 20;

/// A file of the host as the machine's disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskFile {
    /// The file.
    pub host: PathBuf,
    /// The folder whose files are on it.
    pub guest: PathBuf,
}

impl FromStr for DiskFile {
    type Err = String;

    /// `FILE` or `FILE:FOLDER`, the second from the root.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, guest) = text.rsplit_once(':').unwrap_or((text, FOLDER));
        if host.is_empty() {
            return Err("a file of the host is missing".into());
        }
        let guest = crate::linux::absolute(Path::new(guest));
        if guest == Path::new("/") {
            return Err(format!(
                "'{text}' names no folder behind the colon but the root"
            ));
        }
        Ok(Self {
            host: host.into(),
            guest,
        })
    }
}

impl fmt::Display for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host.display(), self.guest.display())
    }
}

/// Makes sure that there is such a file, which the machine can have. One that is new or empty gets
/// the usual size.
///
/// # Errors
/// Why there cannot be.
pub(crate) fn prepare(disk: &DiskFile) -> Result<(), SystemError> {
    let refuse = |why: &dyn fmt::Display| SystemError::Setting(format!("--disk {disk}: {why}"));
    let bytes = open(&disk.host).map_err(|error| refuse(&error))?;
    match bytes {
        LEAST.. => Ok(()),
        _ => Err(refuse(&format!(
            "has {bytes} bytes, where {LEAST} are needed: truncate -s 64M makes it larger, and \
             an empty file is given {NEW}"
        ))),
    }
}

/// Opens the file, makes it or gives it its size; how many bytes it has.
fn open(path: &Path) -> io::Result<u64> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    if found.len() == 0 {
        file.set_len(NEW)?;
        return Ok(NEW);
    }
    Ok(found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_may_be_named() {
        let named: DiskFile = "data.img:/var/lib/redis".parse().unwrap();
        assert_eq!(named.to_string(), "data.img:/var/lib/redis");
        let usual: DiskFile = "data.img".parse().unwrap();
        assert_eq!(usual.to_string(), "data.img:/disk");
        for (text, why) in [
            ("", "is missing"),
            (":/a", "is missing"),
            ("a:/", "the root"),
        ] {
            let error = text.parse::<DiskFile>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_new_disk_has_the_usual_size_and_a_small_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = |name: &str| DiskFile {
            host: folder.path().join(name),
            guest: FOLDER.into(),
        };
        prepare(&disk("new")).unwrap();
        prepare(&disk("new")).unwrap();
        assert_eq!(std::fs::metadata(disk("new").host).unwrap().len(), NEW);
        std::fs::write(disk("small").host, "x").unwrap();
        let error = prepare(&disk("small")).unwrap_err().to_string();
        assert!(error.contains("truncate -s"), "{error}");
        let error = prepare(&disk("")).unwrap_err().to_string();
        assert!(error.contains("--disk"), "{error}");
    }
}
