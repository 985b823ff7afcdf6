//! Device memory, in one run of pages whatever device is where on the bus: registers, and transfer
//! memory, which is ordinary memory that devices reach too.

use rcoe_abi::layout::{DEVICE_PAGES, DMA_PAGE, DMA_PAGES, HPET_PAGE};

use super::super::Parameters;
use super::super::memory::{read_register, write_register};
use super::layout::{DEVICES, DMA_BYTES, DMA_PHYSICAL, HPET_PHYSICAL, PCI_PHYSICAL};

/// What a byte of device memory that is transfer memory is away from this replica's address of it
/// on the bus.
pub(crate) const fn transfer_offset(parameters: &Parameters) -> u64 {
    DMA_PHYSICAL + parameters.replica * DMA_BYTES - DMA_PAGE * 4096
}

/// Where a page of device memory is on the bus; of transfer memory, that of replica `owner`.
pub(crate) fn device_page(page: u32, owner: u64) -> u64 {
    let page = u64::from(page);
    assert!(page < DEVICE_PAGES, "decoding checked the page");
    if page == HPET_PAGE {
        return HPET_PHYSICAL;
    }
    match page.checked_sub(DMA_PAGE) {
        Some(own) if own < DMA_PAGES => DMA_PHYSICAL + owner * DMA_BYTES + own * 4096,
        _ => PCI_PHYSICAL + page * 4096,
    }
}

/// The address of a register.
fn register(place: u64, width: u8) -> u64 {
    let whole = place.is_multiple_of(u64::from(width));
    assert!(
        whole && place < DEVICE_PAGES * 4096,
        "decoding checked the register"
    );
    DEVICES + place
}

/// Reads a register of 1, 2, 4 or 8 bytes.
pub(crate) fn device_read(place: u64, width: u8) -> u64 {
    // SAFETY: all device memory is mapped here in every partition, and no Rust object lies in it.
    // A register within its page is read as a whole; which ones a program may use is decided by
    // capability.
    unsafe { read_register(register(place, width), width) }
}

/// Writes a register of 1, 2, 4 or 8 bytes.
pub(crate) fn device_write(place: u64, width: u8, value: u64) {
    // SAFETY: as for reading. A device that moves data by itself moves it where a driver says: that
    // is for drivers to get right, which are part of what is trusted.
    unsafe { write_register(register(place, width), width, value) }
}
