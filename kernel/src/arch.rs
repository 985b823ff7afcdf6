//! The processor. Everything that differs between processors, and all unsafe code, is below here:
//! what the kernel does with memory and statics on any of them in this folder, the rest in one
//! folder for each processor, with the same files and the same names in them.

#![expect(
    clippy::cast_possible_truncation,
    reason = "an address is as wide as a word on these processors"
)]

mod alike;
mod boards;
mod counter;
mod donate;
mod loader;
mod machine;
mod memory;
mod paging;
mod permit;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub(crate) use alike::{digest_of, image_digest, kept, publish_digest, with_marks};
pub(crate) use boards::{boards, publish_turn, turn_of};
pub(crate) use counter::Count;
pub(crate) use donate::{donate, donate_part, may_donate, reset_lost};
pub(crate) use loader::Parameters;
pub(crate) use machine::{
    core, damage_spaces, enter_guest, enter_kernel_space, enter_space, is_retired, kernel_entry,
    load_fpu, objects_base, retire, save_fpu, switch_fpu, told_alike, wild_store,
};
pub(crate) use permit::{permit, permit_off};
pub(crate) use processor::breakpoint;
pub(crate) use processor::counter::{Counter, Turns};
pub(crate) use processor::cpu::{
    cycles, flush, go_deaf, park, port_in, port_out, power_off, relax, shut_down,
};
pub(crate) use processor::device::{device_page, device_read, device_write, transfer_offset};
pub(crate) use processor::guest::{leave as leave_guest, place_of};
pub(crate) use processor::interrupts;
pub(crate) use processor::interrupts::{noted, wait_for_interrupt};
pub(crate) use processor::layout::BLANK_PAGE;
