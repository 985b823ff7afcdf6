//! Device memory: ranges, widths, and memory that devices move data to and from.

use std::vec::Vec;

use rcoe_abi::layout::{DEVICE_PAGES, DMA_PAGE, DMA_PAGES};
use rcoe_abi::{Error, Label, ObjectType, Rights, boot};

use super::invariants::check;
use super::world::{FREE, memory, world};
use crate::Cap;

/// Where transfer memory begins.
const DMA: u64 = DMA_PAGE << 12;

const SOME: u64 = FREE;
const FRAME: u64 = FREE + 1;
const READ_ONLY: u64 = FREE + 2;

#[test]
fn what_is_written_is_repeatable_only_where_the_driver_says_so() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let all = boot::SLOT_DEVICES;
    for (label, words) in [
        (Label::DeviceWrite, [0, 4, 7]),
        (Label::DeviceWriteAddress, [0, 8, DMA]),
    ] {
        for (last, expected) in [
            (None, false),
            (Some(0), false),
            (Some(2), false),
            (Some(1), true),
        ] {
            let words: Vec<u64> = words.into_iter().chain(last).collect();
            assert_eq!(kernel.ask(all, label, &words).0, 0, "{label:?} {last:?}");
            let told = kernel.sphere.repeatable.pop();
            assert_eq!(told, Some(expected), "{label:?} {last:?}");
        }
    }
    for (last, expected) in [(None, false), (Some(1), true)] {
        let words: Vec<u64> = [0x80, 1, 7].into_iter().chain(last).collect();
        assert_eq!(kernel.ask(boot::SLOT_PORTS, Label::PortOut, &words).0, 0);
        assert_eq!(kernel.sphere.repeatable.pop(), Some(expected), "{last:?}");
    }
}

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
fn a_device_is_told_of_transfer_memory_and_programs_of_generations() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let devices = boot::SLOT_DEVICES;
    kernel.sphere.generation = 7;
    let told = kernel.ask(devices, Label::DeviceWriteAddress, &[0x80, 8, DMA + 64]);
    assert_eq!(told, (0, 7), "the generation, and no address");
    let stored = kernel.ask(devices, Label::DeviceWriteAddress, &[DMA, 8, DMA + 128]);
    assert_eq!(
        stored,
        (0, 7),
        "in transfer memory itself, as in descriptors"
    );
    assert_eq!(kernel.sphere.written, [(0x80, DMA + 64), (DMA, DMA + 128)]);
    let end = (DMA_PAGE + DMA_PAGES) << 12;
    for (words, error) in [
        ([0x80, 2, DMA], Error::InvalidArgument),
        ([0x80, 8, 0], Error::RangeError),
        ([0x80, 8, DMA - 1], Error::RangeError),
        ([0x80, 8, end], Error::RangeError),
        ([DMA, 4, DMA], Error::InvalidArgument),
        ([DMA, 8, 0x80], Error::RangeError),
        ([DMA + 4, 8, DMA], Error::AlignmentError),
        ([0x84, 8, DMA], Error::AlignmentError),
    ] {
        let refused = kernel.ask(devices, Label::DeviceWriteAddress, &words).0;
        assert_eq!(refused, error as u64, "{words:x?}");
    }
    // Nor of what its driver has no capability to.
    assert_eq!(kernel.mint(SOME, devices, Rights::ALL, DMA_PAGE << 32), 0);
    let own = kernel.ask(SOME, Label::DeviceWriteAddress, &[0x80, 8, DMA]);
    assert_eq!(own.0, 0);
    let other = kernel.ask(SOME, Label::DeviceWriteAddress, &[0x80, 8, DMA + 4096]);
    assert_eq!(other.0, Error::RangeError as u64);
}

#[test]
fn data_goes_from_frames_to_transfer_memory_and_back() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Frame, 0, FRAME, 1);
    let Cap::Frame { obj, .. } = kernel.root_cap(FRAME) else {
        panic!("a frame");
    };
    kernel.mem.set(obj, 8, 11);
    kernel.mem.set(obj, 9, 12);
    kernel.sphere.generation = 7;
    let devices = boot::SLOT_DEVICES;
    let out = kernel.ask(devices, Label::DeviceCopyOut, &[DMA + 4080, FRAME, 64, 16]);
    assert_eq!(out.0, 0);
    let written = [(DMA + 4080, 11), (DMA + 4088, 12)];
    assert_eq!(kernel.sphere.written, written);
    let place = DMA + 128;
    let came = kernel.ask(devices, Label::DeviceCopyIn, &[place, FRAME, 64, 16, 7]);
    assert_eq!(came, (0, 1));
    let words = kernel.mem.words(obj, 0, 512);
    assert_eq!(words[8..10], [place, place]);
    assert!(words[..8].iter().chain(&words[10..]).all(|&word| word == 0));
    // Another primary's memory is not where the device stored.
    kernel.sphere.generation = 8;
    let late = kernel.ask(devices, Label::DeviceCopyIn, &[DMA, FRAME, 0, 4096, 7]);
    assert_eq!(late, (0, 0));
    assert_eq!(kernel.mem.get(obj, 0), 0);
    check(&mut kernel);
}

#[test]
fn what_is_copied_is_checked() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Frame, 0, FRAME, 1);
    let copy = [READ_ONLY, FRAME, Rights::READ.word()];
    assert_eq!(kernel.ask(boot::SLOT_CNODE, Label::CNodeCopy, &copy).0, 0);
    let devices = boot::SLOT_DEVICES;
    for (words, error) in [
        ([DMA, boot::SLOT_CNODE, 0, 8, 0], Error::InvalidCapability),
        ([DMA, FRAME, 4096, 8, 0], Error::RangeError),
        ([DMA, FRAME, 4088, 16, 0], Error::RangeError),
        ([DMA + 4088, FRAME, 0, 16, 0], Error::RangeError),
        ([DMA, FRAME, 8, u64::MAX - 7, 0], Error::RangeError),
        ([DMA, FRAME, 0, 0, 0], Error::RangeError),
        ([0, FRAME, 0, 8, 0], Error::RangeError),
        ([DMA, FRAME, 4, 8, 0], Error::AlignmentError),
        ([DMA, FRAME, 0, 4, 0], Error::AlignmentError),
        ([DMA + 4, FRAME, 0, 8, 0], Error::AlignmentError),
    ] {
        for label in [Label::DeviceCopyOut, Label::DeviceCopyIn] {
            let refused = kernel.ask(devices, label, &words).0;
            assert_eq!(refused, error as u64, "{words:x?}");
        }
    }
    assert_eq!(kernel.sphere.written, []);
    // What may be read only can be sent, but not filled.
    let words = [DMA, READ_ONLY, 0, 8, 0];
    let into = kernel.ask(devices, Label::DeviceCopyIn, &words).0;
    assert_eq!(into, Error::AccessDenied as u64);
    assert_eq!(kernel.ask(devices, Label::DeviceCopyOut, &words).0, 0);
}
