//! The disk of the machine, by its driver (`user/src/bin/virtio_blk.rs`), for the driver's client.
//!
//! Everything here waits until the driver answers. A block goes through a frame that the driver has
//! too, which it uses only while a request waits for its answer.
//!
//! One program of a machine can be the client.

use rcoe_abi::service::DISK_BLOCK;
use rcoe_abi::{Rights, service};

use crate::share::Page;
use crate::{accept, call, recv, reply_with, spawn};

/// Slots that this takes from the first one it is given: the driver's endpoint, and the frame.
const DRIVER: u64 = 0;
const DATA: u64 = 1;

/// Why something cannot be read or written, or what was written cannot be made to last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// There is no disk.
    NoDisk,
    /// The disk, or what it is on, says that it could not.
    Broken,
}

/// A block.
pub type Block = [u8; DISK_BLOCK];

/// The disk, with the slots and the page of the window that its client uses for it.
#[derive(Debug)]
pub struct Disk {
    first: u64,
    data: Page,
    blocks: u64,
}

impl Disk {
    /// Starts the driver, and uses these slots of the own table, from the first one on, and a page
    /// of the window.
    ///
    /// # Errors
    /// If there is no disk, or it does not work.
    pub fn start(first: u64, page: u64) -> Result<Self, DiskError> {
        accept(service::SLOT_CNODE, first + DRIVER, 2);
        if !spawn("virtio-blk", 0) {
            return Err(DiskError::NoDisk);
        }
        let message = recv(service::SLOT_PEER);
        accept(service::SLOT_CNODE, 0, 0);
        if message.label != service::DISK_JOIN || message.caps != 2 {
            return Err(DiskError::NoDisk);
        }
        // Whoever sends to the group next does not mean this program.
        reply_with(&[], &[]);
        let data = Page(page);
        let mapped = data.map(first + DATA, Rights::READ_WRITE);
        mapped.map_err(|_| DiskError::Broken)?;
        let [blocks, ..] = message.words;
        Ok(Self {
            first,
            data,
            blocks,
        })
    }

    /// How many blocks it has.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    fn ask(&self, label: u64, block: u64) -> Result<(), DiskError> {
        match call(self.first + DRIVER, label, &[block]).label {
            0 => Ok(()),
            _ => Err(DiskError::Broken),
        }
    }

    /// Reads a block.
    ///
    /// # Errors
    /// If there is no such block, or the disk could not.
    pub fn read(&self, block: u64, into: &mut Block) -> Result<(), DiskError> {
        self.ask(service::DISK_READ, block)?;
        self.data.read(into);
        Ok(())
    }

    /// Writes a block.
    ///
    /// # Errors
    /// If there is no such block, or the disk could not.
    pub fn write(&self, block: u64, from: &Block) -> Result<(), DiskError> {
        self.data.write(from);
        self.ask(service::DISK_WRITE, block)
    }

    /// Has all that was written outlive the machine.
    ///
    /// # Errors
    /// If the disk could not.
    pub fn flush(&self) -> Result<(), DiskError> {
        self.ask(service::DISK_FLUSH, 0)
    }
}
