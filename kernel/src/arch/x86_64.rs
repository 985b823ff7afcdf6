//! x86-64: boot, page tables, kernel entries, interrupt controllers, and single instructions. All
//! unsafe code of the kernel is here.

#![expect(
    clippy::cast_possible_truncation,
    reason = "an address is as wide as a word on this processor"
)]

mod alike;
pub(crate) mod apic;
mod apic_boot;
mod cpu;
mod device;
mod donate;
mod layout;
mod loader;
mod machine;
mod paging;
mod segments;
mod start;
mod trap;

use rcoe_abi::layout::PORT_OFF;

pub(crate) use alike::{digest_of, image_digest, publish_digest};
pub(crate) use cpu::{cycles, park, port_in, port_out, relax, wait_for_interrupt};
pub(crate) use device::{device_page, device_read, device_write, transfer_offset};
pub(crate) use donate::donate;
pub(crate) use layout::BLANK_PAGE;
pub(crate) use loader::Parameters;
pub(crate) use machine::{
    core, damage_spaces, declare_broken, enter_kernel_space, enter_space, flush, kernel_entry,
    load_fpu, noted, objects_base, retire, save_fpu, switch_fpu, wild_store,
};

/// Switches the machine off.
pub(crate) fn power_off() -> ! {
    port_out(PORT_OFF, 4, 0);
    park()
}
