//! Mappings shared between replicas: who may write them, and where changes of the primary show.

use rcoe_abi::layout::{DMA_PAGE, HPET_PAGE};
use rcoe_abi::{Error, Label, ObjectType, Rights, boot};

use super::invariants::check;
use super::world::{Alone, BLANK, FREE, device_page, memory, world, world_at};
use crate::arch::{self, MESSAGE};
use crate::kernel::Kernel;
use crate::sphere::Sphere as _;
use crate::{Cap, Ref};

const PLACE: u64 = 0x1000_0000_0000;
const TRANSFER: u64 = FREE;
const REGISTERS: u64 = FREE + 1;

/// A page of transfer memory, and one of registers, in the root task's space.
fn furnish(kernel: &mut Kernel<'_, Alone>) {
    let devices = boot::SLOT_DEVICES;
    for (page, slot) in [(DMA_PAGE + 2, TRANSFER), (HPET_PAGE, REGISTERS)] {
        assert_eq!(kernel.ask(devices, Label::DeviceFrame, &[page, slot]).0, 0);
    }
    kernel.make(ObjectType::PageTable, 0, FREE + 4, 3);
    for table in FREE + 4..FREE + 7 {
        let words = [boot::SLOT_VSPACE, PLACE];
        assert_eq!(kernel.ask(table, Label::TableMap, &words).0, 0);
    }
    for (slot, address) in [(TRANSFER, PLACE), (REGISTERS, PLACE + 4096)] {
        assert_eq!(kernel.map(slot, address, Rights::ALL), 0);
    }
}

impl Kernel<'_, Alone> {
    fn map(&mut self, slot: u64, address: u64, rights: Rights) -> u64 {
        let words = [boot::SLOT_VSPACE, address, rights.word()];
        self.ask(slot, Label::FrameMap, &words).0
    }

    /// The root task meets; generation, and whether it is the primary's.
    fn meets(&mut self) -> (u64, bool) {
        let (label, generation) = self.ask(TRANSFER, Label::SharedMeet, &[]);
        assert_eq!(label, 0);
        let tcb = self.current().expect("the root task runs");
        (generation, self.register(tcb, MESSAGE[1]) == 1)
    }

    fn primary_is(&mut self, primary: u64) {
        self.sphere.primary = primary;
        self.sphere.generation += 1;
    }
}

/// The entry at an address of the running thread's space.
fn entry(kernel: &Kernel<'_, Alone>, address: u64) -> u64 {
    let root = kernel.space_of(kernel.current().unwrap()).unwrap();
    let table = kernel.walk(root, address, 0).unwrap();
    kernel.mem.get(table, arch::index(address, 0))
}

fn transfer(owner: u64, rights: Rights) -> u64 {
    let page = u32::try_from(DMA_PAGE + 2).unwrap();
    arch::leaf(device_page(page, owner), rights)
}

fn registers(primary: bool) -> u64 {
    let page = u32::try_from(HPET_PAGE).unwrap();
    let place = if primary { device_page(page, 0) } else { BLANK };
    arch::register_leaf(place)
}

#[test]
fn the_primary_alone_writes_and_all_map_its_page() {
    for own in 0..3 {
        let mut words = memory();
        let mut kernel = world_at(&mut words, own);
        kernel.sphere.primary = 1;
        furnish(&mut kernel);
        let rights = if own == 1 {
            Rights::READ_WRITE
        } else {
            Rights::READ
        };
        assert_eq!(entry(&kernel, PLACE), transfer(1, rights), "{own}");
        assert_eq!(entry(&kernel, PLACE + 4096), registers(own == 1), "{own}");
        assert_eq!(kernel.meets(), (0, own == 1));
    }
}

#[test]
fn a_change_of_the_primary_shows_where_the_driver_meets() {
    let (mut one, mut other) = (memory(), memory());
    let mut one = world_at(&mut one, 1);
    let mut other = world_at(&mut other, 2);
    for kernel in [&mut one, &mut other] {
        furnish(kernel);
        assert_eq!(kernel.meets(), (0, false));
        kernel.primary_is(1);
        // Until then the driver reads on in what was written by the one that is gone.
        assert_eq!(entry(kernel, PLACE), transfer(0, Rights::READ));
        assert_eq!(entry(kernel, PLACE + 4096), registers(false));
    }
    let flushes = one.sphere.flushes;
    assert_eq!(one.meets(), (1, true));
    assert_eq!(other.meets(), (1, false));
    assert_eq!(entry(&one, PLACE), transfer(1, Rights::READ_WRITE));
    assert_eq!(entry(&one, PLACE + 4096), registers(true));
    assert_eq!(entry(&other, PLACE), transfer(1, Rights::READ));
    assert!(one.sphere.flushes > flushes, "the processor hears of it");
    // The first primary, lost and back as a copy, does not write before it is the primary again
    // and its driver meets.
    one.sphere.own = 0;
    let (base, kernel) = (one.sphere.base(), one.sphere.kernel_entry());
    one.rebase(base, base, kernel);
    assert_eq!(entry(&one, PLACE), transfer(1, Rights::READ));
    one.primary_is(0);
    assert_eq!(entry(&one, PLACE), transfer(1, Rights::READ));
    assert_eq!(one.meets(), (2, true));
    assert_eq!(entry(&one, PLACE), transfer(0, Rights::READ_WRITE));
}

#[test]
fn capabilities_to_shared_pages_are_checked() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let (devices, some) = (boot::SLOT_DEVICES, FREE + 8);
    let pages = DMA_PAGE | (DMA_PAGE + 1) << 32;
    assert_eq!(kernel.mint(some, devices, Rights::ALL, pages), 0);
    let mut ask = |words: &[u64]| kernel.ask(some, Label::DeviceFrame, words).0;
    assert_eq!(ask(&[2, FREE + 9]), Error::RangeError as u64);
    assert_eq!(ask(&[u64::MAX, FREE + 9]), Error::RangeError as u64);
    assert_eq!(ask(&[0, some]), Error::DeleteFirst as u64);
    assert_eq!(ask(&[0]), Error::IllegalOperation as u64);
    assert_eq!(ask(&[1, FREE + 9]), 0);
    let missing = kernel.map(FREE + 9, PLACE, Rights::READ);
    assert_eq!(missing, Error::MissingTable as u64);
    furnish(&mut kernel);
    assert_eq!(
        kernel.map(FREE + 9, PLACE, Rights::READ),
        Error::DeleteFirst as u64
    );
    let nothing = kernel.map(FREE + 9, PLACE + 8192, Rights::WRITE);
    assert_eq!(nothing, Error::AccessDenied as u64);
    // What may only be read is not written, not even by the primary; registers never are.
    let copy = [FREE + 10, TRANSFER, Rights::READ.word()];
    assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeCopy, &copy).0, 0);
    assert_eq!(kernel.map(FREE + 10, PLACE + 8192, Rights::ALL), 0);
    assert!(!arch::is_writable(entry(&kernel, PLACE + 8192)));
    assert!(!arch::is_writable(entry(&kernel, PLACE + 4096)));
    assert_eq!(
        kernel.map(TRANSFER, PLACE + 12288, Rights::READ),
        Error::DeleteFirst as u64
    );
    check(&mut kernel);
    // Revoking the pages they were made of ends them, where they are mapped too.
    assert_eq!(
        kernel
            .ask(boot::SLOT_CNODE, Label::CNodeRevoke, &[devices])
            .0,
        0
    );
    for (slot, page) in [(TRANSFER, 0), (REGISTERS, 1), (FREE + 10, 2)] {
        assert_eq!(kernel.root_cap(slot), Cap::Null);
        assert_eq!(entry(&kernel, PLACE + page * 4096), 0);
    }
    check(&mut kernel);
}

#[test]
fn mappings_and_drivers_are_few_and_given_back() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    furnish(&mut kernel);
    let mut mapped = 2;
    loop {
        let slot = FREE + 20 + mapped;
        let copy = [slot, TRANSFER, Rights::ALL.word()];
        assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeCopy, &copy).0, 0);
        match kernel.map(slot, PLACE + mapped * 4096, Rights::READ) {
            0 => mapped += 1,
            error => {
                assert_eq!(error, Error::NotEnoughMemory as u64);
                break;
            }
        }
    }
    assert_eq!(mapped, 16);
    let last = FREE + 20 + mapped;
    assert_eq!(kernel.ask(REGISTERS, Label::FrameUnmap, &[]).0, 0);
    assert_eq!(entry(&kernel, PLACE + 4096), 0);
    assert_eq!(kernel.map(last, PLACE + 4096, Rights::READ), 0);
    // A space that ends takes its mappings along; deleting a capability to one later is harmless.
    for _ in 0..20 {
        kernel.make(ObjectType::VSpace, 0, FREE + 60, 1);
        assert_eq!(kernel.meets(), (0, true));
        let slot = [FREE + 60];
        assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeDelete, &slot).0, 0);
    }
    assert_eq!(
        kernel.ask(boot::SLOT_CNODE, Label::CNodeDelete, &[last]).0,
        0
    );
    check(&mut kernel);
}

#[test]
fn a_page_whose_table_was_taken_away_is_mapped_and_unmapped_again() {
    let mut words = memory();
    let mut kernel = world_at(&mut words, 1);
    furnish(&mut kernel);
    let copy = [FREE + 8, TRANSFER, Rights::ALL.word()];
    assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeCopy, &copy).0, 0);
    let lowest = (FREE + 4..FREE + 7)
        .find(|&slot| matches!(kernel.root_cap(slot), Cap::Table { level: 0, .. }))
        .unwrap();
    assert_eq!(kernel.ask(lowest, Label::TableUnmap, &[]).0, 0);
    let again = [boot::SLOT_VSPACE, PLACE];
    assert_eq!(kernel.ask(lowest, Label::TableMap, &again).0, 0);
    assert_eq!(entry(&kernel, PLACE), 0);
    kernel.primary_is(2);
    assert_eq!(kernel.map(FREE + 8, PLACE, Rights::READ), 0);
    assert_eq!(entry(&kernel, PLACE), transfer(2, Rights::READ));
    assert_eq!(kernel.ask(FREE + 8, Label::FrameUnmap, &[]).0, 0);
    assert_eq!(entry(&kernel, PLACE), 0);
    check(&mut kernel);
}

/// The root task as a driver that met: its thread, and a page that it can write.
fn driver(kernel: &mut Kernel<'_, Alone>) -> (Ref, Ref) {
    furnish(kernel);
    kernel.meets();
    let tcb = kernel.current().unwrap();
    let Some(page) = kernel.buffer(tcb) else {
        panic!("a buffer");
    };
    (tcb, page)
}

#[test]
fn what_drivers_know_does_not_make_replicas_differ() {
    let (mut one, mut other) = (memory(), memory());
    let mut one = world_at(&mut one, 0);
    let mut other = world_at(&mut other, 2);
    let places = [&mut one, &mut other].map(driver);
    assert_eq!(one.digest(), other.digest());
    // They wait, and remember in registers and in memory that they can write.
    one.suspend(places[0].0);
    other.suspend(places[1].0);
    assert_eq!(one.digest(), other.digest());
    one.mem.set(places[0].0, 3, 1);
    one.mem.set(places[0].1, 99, 1);
    assert_eq!(one.digest(), other.digest());
    // But that a follower can write the page, or sees the registers, is a difference.
    let root = other.space_of(places[1].0).unwrap();
    let table = other.walk(root, PLACE, 0).unwrap();
    let right = other.digest();
    for (address, wrong) in [
        (PLACE, transfer(0, Rights::READ_WRITE)),
        (PLACE, transfer(3, Rights::READ)),
        (PLACE + 4096, registers(true)),
    ] {
        let index = arch::index(address, 0);
        let entry = other.mem.get(table, index);
        other.mem.set(table, index, wrong);
        assert_ne!(other.digest(), right, "{wrong:#x}");
        other.mem.set(table, index, entry);
    }
    assert_eq!(other.digest(), right);
}
