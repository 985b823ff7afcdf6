//! The disk, by its driver's process, if the machine has any.

use super::{DISK, Kernel};
use crate::disk::{Block, Disk, DiskError};
use crate::linux::machine::Disk as Blocks;

/// The page of the window where a block is: behind those of the network.
const PAGE: u64 = 2;

impl Kernel {
    /// Starts the driver, before there is a thread to be answered: its process joins by a call of
    /// its own. That there is no disk shows when it is asked for its blocks.
    pub(super) fn start_disk(&mut self) {
        self.disk = Disk::start(DISK, PAGE).ok();
    }

    fn disk(&self) -> Result<&Disk, DiskError> {
        self.disk.as_ref().ok_or(DiskError::NoDisk)
    }
}

impl Blocks for Kernel {
    fn blocks(&self) -> u64 {
        self.disk.as_ref().map_or(0, Disk::blocks)
    }

    fn read_block(&mut self, block: u64, into: &mut Block) -> Result<(), DiskError> {
        self.disk()?.read(block, into)
    }

    fn write_block(&mut self, block: u64, from: &Block) -> Result<(), DiskError> {
        self.disk()?.write(block, from)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.disk()?.flush()
    }
}
