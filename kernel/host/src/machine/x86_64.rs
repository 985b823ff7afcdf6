//! The PC: QEMU's q35.

use std::path::Path;
use std::process::Command;

use rcoe_abi::arch::x86_64::{
    DIARY_PORTS, DISK_SLOT, EDU_SLOT, FIRST_CORE, NIC_SLOT, PORT_DIARY, PORT_NOTES, PORT_OFF,
    PORT_PAUSE, PORT_STATUS,
};
use rcoe_abi::layout::MAX_CORES;

use super::{COUNTED, NOTES, Threads, debugger, diary, quoted};
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
    let features = format!("{PROCESSOR},+smep,+smap,+umip,-rdrand,-rdseed,phys-bits=32");
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
    network(command, settings);
    disk(command, settings);
    let off = format!("isa-debug-exit,iobase={PORT_OFF:#x},iosize=4");
    command.args(["-device", &off]);
    port(command, "status", PORT_STATUS);
    port(command, NOTES, PORT_NOTES);
    for (replica, place) in (0..MAX_CORES).zip((PORT_DIARY..).step_by(DIARY_PORTS.into())) {
        port(command, &diary(replica), place);
    }
    Ok(())
}

/// A network card in a network of its own, if ports are published or programs connect to others.
/// To that network nothing leads but those ports; from there nothing to the host or beyond, unless
/// the user wants that: then the emulator makes the connections, with the rights that it has.
fn network(command: &mut Command, settings: &Settings) {
    if settings.publish.is_empty() && !settings.outgoing {
        return;
    }
    let ports = settings.publish.iter().map(|it| {
        let (host, guest, protocol) = (it.host, it.guest, it.protocol.name());
        format!(",hostfwd={protocol}:{host}-:{guest}")
    });
    let ports: String = ports.collect();
    let restrict = if settings.outgoing { "off" } else { "on" };
    command.args([
        "-netdev",
        &format!("user,id=network,restrict={restrict},ipv6=off{ports}"),
    ]);
    let card = format!("rtl8139,netdev=network,romfile=,bus=pcie.0,addr={NIC_SLOT:#x}");
    command.args(["-device", &card]);
    if let Some(folder) = &settings.wire {
        wire(command, folder);
    }
}

/// Sockets by which frames reach the card alone, and by which all frames are heard that go either
/// way; each comes with its length, four bytes, the highest first.
fn wire(command: &mut Command, folder: &Path) {
    for name in ["wire-in", "wire-out"] {
        let path = quoted(&folder.join(name));
        let socket = format!("socket,id={name},path={path},server=on,wait=off");
        command.args(["-chardev", &socket]);
    }
    let into = "filter-redirector,id=in,netdev=network,queue=tx,indev=wire-in";
    let out = "filter-mirror,id=out,netdev=network,queue=all,outdev=wire-out";
    command.args(["-object", into, "-object", out]);
}

/// A disk, if a file is to be one. Writes are cached by the host until the machine asks to have
/// them last.
fn disk(command: &mut Command, settings: &Settings) {
    let Some(disk) = &settings.disk else {
        return;
    };
    let path = quoted(&disk.host);
    let file = format!("driver=file,node-name=file,filename={path}");
    command.args(["-blockdev", &file]);
    command.args(["-blockdev", "driver=raw,node-name=disk,file=file"]);
    let device = format!(
        "virtio-blk-pci,drive=disk,disable-legacy=on,vectors=0,romfile=,bus=pcie.0,\
         addr={DISK_SLOT:#x}"
    );
    command.args(["-device", &device]);
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
