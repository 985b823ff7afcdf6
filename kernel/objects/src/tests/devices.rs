//! Device memory: ranges, widths, and frames that devices write into.

use rcoe_abi::layout::DEVICE_PAGES;
use rcoe_abi::{Error, Label, ObjectType, Rights, boot};

use super::invariants::check;
use super::world::{BASE, FREE, FROM_PRIMARY, memory, world};
use crate::Cap;

const SOME: u64 = FREE;
const FRAME: u64 = FREE + 1;
const READ_ONLY: u64 = FREE + 2;

#[test]
fn device_memory_is_reached_within_its_pages_and_by_whole_registers() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let pages = 3 | 4 << 32;
    assert_eq!(kernel.mint(SOME, boot::SLOT_DEVICES, Rights::ALL, pages), 0);
    // Counted from the capability's own first page.
    assert_eq!(kernel.ask(SOME, Label::DeviceRead, &[8, 8]), (0, 0x3008));
    assert_eq!(
        kernel.ask(SOME, Label::DeviceRead, &[0x1ffc, 4]),
        (0, 0x4ffc)
    );
    for (offset, width, error) in [
        (0x2000, 4, Error::RangeError),
        (u64::MAX - 3, 4, Error::RangeError),
        (2, 4, Error::AlignmentError),
        (0, 3, Error::InvalidArgument),
        (0, 0, Error::InvalidArgument),
        (0, 16, Error::InvalidArgument),
    ] {
        let refused = kernel.ask(SOME, Label::DeviceRead, &[offset, width]).0;
        assert_eq!(refused, error as u64, "{offset:#x} {width}");
        assert_ne!(
            kernel.ask(SOME, Label::DeviceWrite, &[offset, width, 0]).0,
            0
        );
    }
    assert_eq!(kernel.ask(SOME, Label::DeviceWrite, &[16, 2, 0xffff]).0, 0);
    let wide = kernel.ask(SOME, Label::DeviceWrite, &[16, 2, 0x1_0000]).0;
    assert_eq!(wide, Error::RangeError as u64);
    assert_eq!(kernel.sphere.written, [(0x3010, 0xffff)]);
    for wider in [2 | 4 << 32, 3 | 5 << 32, 4 | 3 << 32] {
        let refused = kernel.mint(FREE + 9, SOME, Rights::ALL, wider);
        assert_eq!(refused, Error::RangeError as u64, "{wider:#x}");
    }
    check(&mut kernel);
    // What was narrowed ends with what it came from.
    let all = [boot::SLOT_DEVICES];
    assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeRevoke, &all).0, 0);
    assert_eq!(kernel.root_cap(SOME), Cap::Null);
    let last = (DEVICE_PAGES << 12) - 4;
    let read = kernel.ask(boot::SLOT_DEVICES, Label::DeviceRead, &[last, 4]);
    assert_eq!(read, (0, last));
    let behind = kernel.ask(boot::SLOT_DEVICES, Label::DeviceRead, &[last + 4, 4]);
    assert_eq!(behind.0, Error::RangeError as u64);
}

#[test]
fn a_device_is_told_of_frames_and_programs_of_generations() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Frame, 0, FRAME, 1);
    let devices = boot::SLOT_DEVICES;
    kernel.sphere.generation = 7;
    let told = kernel.ask(
        devices,
        Label::DeviceWriteAddress,
        &[0x80, 8, FRAME, 64, 128],
    );
    assert_eq!(told, (0, 7), "the generation, and no address");
    let Cap::Frame { obj, .. } = kernel.root_cap(FRAME) else {
        panic!("a frame");
    };
    let address = BASE + obj.bytes() + 64;
    assert_eq!(kernel.sphere.written, [(0x80, address)]);
    let replicated = kernel.ask(FRAME, Label::FrameReplicate, &[64, 128, 7]);
    assert_eq!(replicated, (0, 1));
    let words = kernel.mem.words(obj, 0, 512);
    assert!(words[..8].iter().chain(&words[24..]).all(|&word| word == 0));
    assert!(words[8..24].iter().all(|&word| word == FROM_PRIMARY));
    // Another primary's memory is not where the device wrote.
    kernel.sphere.generation = 8;
    let late = kernel.ask(FRAME, Label::FrameReplicate, &[0, 4096, 7]);
    assert_eq!(late, (0, 0));
    assert_eq!(kernel.mem.get(obj, 0), 0);
    check(&mut kernel);
}

#[test]
fn what_the_device_is_to_read_is_in_the_trace() {
    let digest = |content: u64, bytes: u64| {
        let mut words = memory();
        let mut kernel = world(&mut words);
        kernel.make(ObjectType::Frame, 0, FRAME, 1);
        let Cap::Frame { obj, .. } = kernel.root_cap(FRAME) else {
            panic!("a frame");
        };
        kernel.mem.set(obj, 3, content);
        let message = [0x80, 8, FRAME, 0, bytes];
        let asked = kernel.ask(boot::SLOT_DEVICES, Label::DeviceWriteAddress, &message);
        assert_eq!(asked.0, 0);
        kernel.sphere.digest
    };
    assert_ne!(digest(1, 32), digest(2, 32));
    assert_eq!(digest(1, 24), digest(2, 24), "beyond it nothing counts");
}

#[test]
fn frames_for_devices_are_checked() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Frame, 0, FRAME, 1);
    let copy = [READ_ONLY, FRAME, Rights::READ.word()];
    assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeCopy, &copy).0, 0);
    let devices = boot::SLOT_DEVICES;
    for (words, error) in [
        ([0x80, 8, READ_ONLY, 0, 8], Error::AccessDenied),
        ([0x80, 8, boot::SLOT_CNODE, 0, 8], Error::InvalidCapability),
        ([0x80, 2, FRAME, 0, 8], Error::InvalidArgument),
        ([0x80, 8, FRAME, 4096, 0], Error::RangeError),
        ([0x80, 8, FRAME, 4088, 16], Error::RangeError),
        ([0x80, 8, FRAME, 8, u64::MAX - 7], Error::RangeError),
        ([0x80, 8, FRAME, 4, 8], Error::AlignmentError),
    ] {
        let refused = kernel.ask(devices, Label::DeviceWriteAddress, &words).0;
        assert_eq!(refused, error as u64, "{words:x?}");
    }
    assert_eq!(kernel.sphere.written, []);
    for (frame, words, error) in [
        (READ_ONLY, [0, 8, 0], Error::AccessDenied),
        (FRAME, [0, 0, 0], Error::RangeError),
        (FRAME, [0, 4104, 0], Error::RangeError),
        (FRAME, [4, 8, 0], Error::AlignmentError),
    ] {
        let refused = kernel.ask(frame, Label::FrameReplicate, &words).0;
        assert_eq!(refused, error as u64, "{words:x?}");
    }
}
