//! Folders of the user's that variables of the environment name.

use std::ffi::OsString;
use std::path::PathBuf;

/// The folder that a variable names; a relative one does not count.
pub(crate) fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}
