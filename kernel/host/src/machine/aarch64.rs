//! The machine with AArch64: QEMU's virt.

use std::path::Path;
use std::process::Command;

use rcoe_abi::arch::aarch64::{DIARY_SLOT, MEMORY, START, START_MAGIC, STATUS_SLOT, Start};
use rcoe_abi::layout::MAX_CORES;
use rcoe_abi::object::PAGE;

use super::{Threads, diary};
use crate::SystemError;
use crate::run::Settings;

/// The model of its processors: the newest that has no instruction for random numbers, whose result
/// would differ between cores.
const PROCESSOR: &str = "cortex-a76";

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
    let refuse = |why: &str| Err(SystemError::Setting(why.into()));
    if settings.threads == Threads::Counted {
        return refuse("--core-threads counted is not there for AArch64; use --arch x86_64");
    }
    if settings.debugger.is_some() {
        return refuse("fault injection (--debugger) does not reach AArch64; use --arch x86_64");
    }
    // All of it below 4 GiB.
    command.args(["-M", "virt,gic-version=3,highmem=off"]);
    command.args(["-cpu", PROCESSOR, "-smp", &settings.replicas.to_string()]);
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
