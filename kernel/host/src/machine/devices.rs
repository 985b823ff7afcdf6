//! Devices that machines have on their PCI bus if they are asked for: a network card and a disk.

use std::path::Path;
use std::process::Command;

use super::quoted;
use crate::run::Settings;

/// A network card in a network of its own, if ports are published or programs connect to others.
/// To that network nothing leads but those ports; from there nothing to the host or beyond, unless
/// the user wants that: then the emulator makes the connections, with the rights that it has.
pub(super) fn network(command: &mut Command, settings: &Settings, slot: u64) {
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
    let model = settings.nic.model();
    let card = format!("{model},netdev=network,romfile=,bus=pcie.0,addr={slot:#x}");
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
pub(super) fn disk(command: &mut Command, settings: &Settings, slot: u64) {
    let Some(disk) = &settings.disk else {
        return;
    };
    let path = quoted(&disk.host);
    let file = format!("driver=file,node-name=file,filename={path}");
    command.args(["-blockdev", &file]);
    command.args(["-blockdev", "driver=raw,node-name=disk,file=file"]);
    let device = format!(
        "virtio-blk-pci,drive=disk,disable-legacy=on,vectors=0,romfile=,bus=pcie.0,\
         addr={slot:#x}"
    );
    command.args(["-device", &device]);
}
