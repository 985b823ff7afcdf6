//! Device memory, in one run of pages: the console's registers, a page that stands for registers of
//! the processor itself, PCI devices, and transfer memory, which is ordinary memory that devices
//! reach too.

use core::arch::asm;

use rcoe_abi::layout::{
    CONFIGURATION_PAGE, CONSOLE_PAGE, COUNTER_PAGE, DEVICE_PAGES, DMA_PAGE, PCI_PAGE, STAMP_COUNT,
    STAMP_FREQUENCY, STAMP_PAGE, TIMER_LINE, TIMER_PAGE, TIMER_START,
};

use super::super::Parameters;
use super::super::memory::{read_register, write_register};
use super::layout::{
    BLANK_PAGE, CONSOLE_PHYSICAL, COUNTER_PHYSICAL, DEVICES, DMA_BYTES, DMA_PHYSICAL, PCI_PHYSICAL,
    WINDOW_PHYSICAL,
};
use super::{cpu, interrupts};

const _: () = assert!(CONSOLE_PAGE == 0 && TIMER_PAGE == 1 && TIMER_LINE == 0);

/// What a byte of device memory that is transfer memory is away from this replica's address of it
/// on the bus.
pub(crate) const fn transfer_offset(parameters: &Parameters) -> u64 {
    DMA_PHYSICAL + parameters.replica * DMA_BYTES - DMA_PAGE * 4096
}

/// Where a page of device memory is on the bus; of transfer memory, that of replica `owner`. The
/// pages that stand for registers of the processor are nowhere on it, and read as zeros.
pub(crate) fn device_page(page: u32, owner: u64) -> u64 {
    let page = u64::from(page);
    assert!(page < DEVICE_PAGES, "decoding checked the page");
    match page {
        CONSOLE_PAGE => CONSOLE_PHYSICAL,
        TIMER_PAGE | STAMP_PAGE => BLANK_PAGE,
        COUNTER_PAGE => COUNTER_PHYSICAL,
        DMA_PAGE.. => DMA_PHYSICAL + owner * DMA_BYTES + (page - DMA_PAGE) * 4096,
        PCI_PAGE.. => WINDOW_PHYSICAL + (page - PCI_PAGE) * 4096,
        _ => PCI_PHYSICAL + (page - CONFIGURATION_PAGE) * 4096,
    }
}

/// The address of a register, or `None` for one of a page that stands for the processor's own.
fn register(place: u64, width: u8) -> Option<u64> {
    let whole = place.is_multiple_of(u64::from(width));
    assert!(
        whole && place < DEVICE_PAGES * 4096,
        "decoding checked the register"
    );
    let is_own = matches!(place / 4096, TIMER_PAGE | STAMP_PAGE);
    (!is_own).then_some(DEVICES + place)
}

/// What stands for a register of the processor reads as: all but those of the clock as zero.
fn own_register(place: u64, width: u8) -> u64 {
    match (place / 4096, place % 4096, width) {
        (STAMP_PAGE, STAMP_COUNT, 8) => cpu::cycles(),
        (STAMP_PAGE, STAMP_FREQUENCY, 8) => cpu::frequency(),
        _ => 0,
    }
}

/// What a device is to find in transfer memory is there before it is told to look, and what it left
/// there is read after it said so.
fn order() {
    // SAFETY: it changes nothing.
    unsafe { asm!("dmb sy", options(nostack, preserves_flags)) };
}

/// Reads a register of 1, 2, 4 or 8 bytes.
pub(crate) fn device_read(place: u64, width: u8) -> u64 {
    // SAFETY: all device memory but the processor's own is mapped here in every partition, and no
    // Rust object lies in it. A register within its page is read as a whole; which ones a program
    // may use is decided by capability.
    let read = |address| unsafe { read_register(address, width) };
    let value = register(place, width).map_or_else(|| own_register(place, width), read);
    order();
    value
}

/// Writes a register of 1, 2, 4 or 8 bytes.
pub(crate) fn device_write(place: u64, width: u8, value: u64) {
    order();
    match register(place, width) {
        // SAFETY: as for reading. What a device does by itself that a driver configured is the
        // driver's to get right.
        Some(address) => unsafe { write_register(address, width, value) },
        None if place == TIMER_PAGE * 4096 + TIMER_START => interrupts::start_timer(value),
        // Nothing is there.
        None => {}
    }
}
