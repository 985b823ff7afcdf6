//! The PC: QEMU's q35.

use std::path::Path;
use std::process::Command;

use rcoe_abi::arch::x86_64::{
    DIARY_PORTS, DISK_SLOT, EDU_SLOT, FIRST_CORE, INPUT_LINE, NIC_SLOT, PORT_DIARY, PORT_INPUT,
    PORT_NOTES, PORT_OFF, PORT_PAUSE, PORT_STATUS,
};
use rcoe_abi::layout::MAX_CORES;

use super::{Accel, COUNTED, INPUT, NOTES, Threads, debugger, devices, diary};
use crate::SystemError;
use crate::run::Settings;

/// The model of its processors.
const PROCESSOR: &str = "qemu64";

/// What the emulator is told of it.
pub(super) fn machine(
    command: &mut Command,
    settings: &Settings,
    image: &[u8],
    folder: &Path,
) -> Result<(), SystemError> {
    command.args(["-M", "q35"]);
    // Firmware that does nothing but start the kernel.
    command.args(["-bios", "qboot.rom"]);
    // Neither random numbers nor any other instruction whose result differs between cores. And
    // physical addresses no wider than those of memory and devices: a wider one in a damaged page
    // table is a page fault, where the emulator would give up fetching code from nowhere.
    // By SVM a core that shuts down is no end of the machine. Where the host's processor would have
    // to run it in a machine in a machine, each entry into the kernel would be dear.
    let svm = if settings.accel == Accel::Tcg {
        '+'
    } else {
        '-'
    };
    let features = format!("{PROCESSOR},+smep,+smap,+umip,-rdrand,-rdseed,{svm}svm,phys-bits=32");
    command.args(["-cpu", &features]);
    if settings.threads == Threads::Counted {
        command.args(COUNTED);
    }
    cores(command, settings);
    if let Some(path) = &settings.debugger {
        debugger(command, path, &format!("pvpanic,ioport={PORT_PAUSE:#x}"));
    }
    let path = folder.join("image");
    std::fs::write(&path, image).map_err(SystemError::host("the boot image"))?;
    command.arg("-initrd").arg(path);
    command.args(["-append", &settings.command_line()]);
    // A device with registers, interrupts and memory access of its own, for drivers.
    command.args(["-device", &format!("edu,bus=pcie.0,addr={EDU_SLOT:#x}")]);
    devices::network(command, settings, NIC_SLOT);
    devices::disk(command, settings, DISK_SLOT);
    if settings.has_live_input() {
        let line = format!("isa-serial,chardev={INPUT},index=1,iobase={PORT_INPUT:#x}");
        let line = format!("{line},irq={INPUT_LINE}");
        command.args(["-device", &line]);
    }
    let off = format!("isa-debug-exit,iobase={PORT_OFF:#x},iosize=4");
    command.args(["-device", &off]);
    port(command, "status", PORT_STATUS);
    port(command, NOTES, PORT_NOTES);
    for (replica, place) in (0..MAX_CORES).zip((PORT_DIARY..).step_by(DIARY_PORTS.into())) {
        port(command, &diary(replica), place);
    }
    Ok(())
}

/// The machine's cores: one that starts it, and one for each replica.
///
/// Where instructions are counted, the emulator gives each core in turn all of the time up to the
/// next event of any clock, and the core after one that used it all nothing. A core that goes round
/// for ever would starve its neighbour, and no replica could find out that another is stuck. So
/// behind each replica's core stands one that is never started, to come away empty-handed.
fn cores(command: &mut Command, settings: &Settings) {
    let (first, replicas) = (FIRST_CORE as usize, settings.replicas);
    if settings.threads != Threads::Counted {
        command.args(["-smp", &(first + replicas).to_string()]);
        return;
    }
    let all = first + 2 * replicas;
    command.args([
        "-smp",
        &format!("{first},maxcpus={all},sockets={all},cores=1,threads=1"),
    ]);
    for core in (first..first + replicas).flat_map(|core| [core, core + replicas]) {
        let core = format!("{PROCESSOR}-x86_64-cpu,socket-id={core},core-id=0,thread-id=0");
        command.args(["-device", &core]);
    }
}

/// A port of the machine that writes into a pipe.
fn port(command: &mut Command, name: &str, place: u16) {
    let device = format!("isa-debugcon,iobase={place:#x},chardev={name}");
    command.args(["-device", &device]);
}
