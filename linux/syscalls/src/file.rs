//! Files that act on the process that writes to them.
//!
//! Whoever writes to such a file changes itself, and each replica is a process of its own. Which
//! file an open descriptor leads to is for the agent to find out; this says what is to be done.

use crate::FILES;

/// Where such a file lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the folder of a process in a proc file system, or in that of one of its threads.
    Process,
    /// In the folder of a control group.
    Cgroup,
}

/// What is done when the program writes to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Every replica writes to its own memory.
    Memory,
    /// Every replica writes to its own file.
    Each,
    /// Every replica joins the group.
    Join,
    /// It acts on what all replicas share: the primary writes.
    Once,
    /// It cannot be opened for writing.
    Refused,
}

/// One such file, or a folder of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name in its folder.
    pub name: &'static str,
    /// Its folder.
    pub place: Place,
    /// What is done.
    pub treatment: Treatment,
    /// What it is for, or why it is refused.
    pub doc: &'static str,
}

/// The number of the row in [`FILES`] that has this name and place.
#[must_use]
pub fn file(place: Place, name: &[u8]) -> Option<usize> {
    FILES
        .iter()
        .position(|file| file.place == place && file.name.as_bytes() == name)
}
