//! The machine with AArch64: QEMU's virt.

use std::path::Path;
use std::process::Command;

use rcoe_abi::arch::aarch64::{
    CORES_EACH, COUNTER_SLOT, DIARY_SLOT, DISK_SLOT, EDU_SLOT, INPUT_SLOT, MEMORY, NIC_SLOT,
    NOTES_SLOT, PAUSE_SLOT, START, START_MAGIC, STATUS_SLOT, Start,
};
use rcoe_abi::layout::MAX_CORES;
use rcoe_abi::object::PAGE;

use super::{Accel, COUNTED, INPUT, NOTES, Threads, debugger, devices, diary};
use crate::SystemError;
use crate::run::Settings;

/// The model of its processors: the newest that has no instruction for random numbers, whose result
/// would differ between cores.
const PROCESSOR: &str = "cortex-a76";

/// Something that happens each millisecond: a release of packets that nobody sends. Where
/// instructions are counted a core has its turn up to the next event of any clock, and cores that
/// are stuck or wait in their kernels, interrupts masked, leave their own timers as they ran out. A
/// PC has clocks that go on.
const BEAT: [&str; 4] = [
    "-netdev",
    "hubport,id=nothing,hubid=0",
    "-object",
    "filter-buffer,id=beat,netdev=nothing,interval=1000",
];

/// Bytes of what precedes the boot image.
const FIRST_PAGE: usize = 4096;
const _: () = assert!(FIRST_PAGE as u64 == PAGE);

/// What the emulator is told of it.
pub(super) fn machine(
    command: &mut Command,
    settings: &Settings,
    image: &[u8],
    folder: &Path,
) -> Result<(), SystemError> {
    // All of it below 4 GiB.
    let machine = "virt,gic-version=3,highmem=off";
    // With a processor of its own a machine cannot have level 2.
    let (machine, processor) = match settings.accel {
        Accel::Tcg => (format!("{machine},virtualization=on"), PROCESSOR),
        Accel::Kvm => (machine.to_owned(), "host"),
    };
    command.args(["-M", &machine]);
    let cores = settings.replicas as u64 * CORES_EACH;
    command.args(["-cpu", processor, "-smp", &cores.to_string()]);
    if settings.threads == Threads::Counted {
        command.args(COUNTED).args(BEAT);
    }
    if let Some(path) = &settings.debugger {
        debugger(command, path, &format!("pvpanic-pci,addr={PAUSE_SLOT:#x}"));
    }
    let path = folder.join("start");
    let blob = blob(&settings.command_line(), image);
    let end = MEMORY + (settings.memory(image.len())? << 20);
    let place = (end - blob.len() as u64) / PAGE * PAGE;
    std::fs::write(&path, blob).map_err(SystemError::host("the boot image"))?;
    let path = super::quoted(&path);
    let loader = format!("loader,file={path},addr={place:#x},force-raw=on");
    command.args(["-device", &loader]);
    let loader = format!("loader,addr={START:#x},data={place:#x},data-len=8");
    command.args(["-device", &loader]);
    let mut serial = format!("pci-serial-4x,addr={DIARY_SLOT:#x}");
    for replica in 0..MAX_CORES {
        serial += &format!(",chardev{}={}", replica + 1, diary(replica));
    }
    command.args(["-device", &serial]);
    let serial = format!("pci-serial,addr={STATUS_SLOT:#x},chardev=status");
    command.args(["-device", &serial]);
    let notes = format!("pci-serial,addr={NOTES_SLOT:#x},chardev={NOTES}");
    command.args(["-device", &notes]);
    if settings.has_live_input() {
        let line = format!("pci-serial,addr={INPUT_SLOT:#x},chardev={INPUT}");
        command.args(["-device", &line]);
    }
    // A device with registers, interrupts and memory access of its own, for drivers, which reaches
    // all memory; and one with a counter.
    let edu = format!("edu,addr={EDU_SLOT:#x},dma_mask=0xffffffff");
    command.args(["-device", &edu]);
    let counter = format!("intel-hda,addr={COUNTER_SLOT:#x}");
    command.args(["-device", &counter]);
    devices::network(command, settings, NIC_SLOT);
    devices::disk(command, settings, DISK_SLOT);
    Ok(())
}

/// What the kernel finds at the start: a page with the command line, then the boot image.
fn blob(text: &str, image: &[u8]) -> Vec<u8> {
    let words = [
        (Start::Magic, START_MAGIC),
        (Start::ImageBytes, image.len() as u64),
        (Start::CommandBytes, text.len() as u64),
    ];
    let mut blob = vec![0; FIRST_PAGE];
    for (word, value) in words {
        blob[word as usize * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    let room = &mut blob[Start::Command as usize * 8..];
    let len = text.len().min(room.len());
    room[..len].copy_from_slice(&text.as_bytes()[..len]);
    blob.extend(image);
    blob
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_begins_behind_a_page_with_the_command_line() {
        let blob = blob("n=1 -- hello", b"image");
        let word = |word: Start| {
            let at = word as usize * 8;
            u64::from_le_bytes(blob[at..at + 8].try_into().unwrap())
        };
        assert_eq!(word(Start::Magic), START_MAGIC);
        assert_eq!(
            (word(Start::ImageBytes), word(Start::CommandBytes)),
            (5, 12)
        );
        assert_eq!(&blob[Start::Command as usize * 8..][..12], b"n=1 -- hello");
        assert_eq!(&blob[4096..], b"image");
    }
}
