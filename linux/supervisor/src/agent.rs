//! The agent's executable, carried inside this one.

use std::os::fd::OwnedFd;

use rcoe_linux_sys::host::image_from_bytes;

use crate::error::{Doing, RunError};

static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rcoe-agent"));

/// Puts the agent where it can be executed.
pub(crate) fn image() -> Result<OwnedFd, RunError> {
    image_from_bytes(c"rcoe-agent", AGENT).doing("unpacking the agent")
}
