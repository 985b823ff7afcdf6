//! The counter of branches of emulated x86-64 processors: a plugin of the emulator
//! (`kernel/counter`), which reads and writes the machine's memory, and interrupts its cores by the
//! emulator's monitor.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::quoted;
use crate::SystemError;
use crate::run::Settings;

/// What the emulator calls memory that is no file of the user's.
const OWN_MEMORY: &str = "/memfd:memory-backend-memfd";

/// Has the emulator load the plugin.
pub(super) fn load(
    command: &mut Command,
    settings: &Settings,
    plugin: &Path,
    folder: &Path,
) -> Result<(), SystemError> {
    if !plugin.is_file() {
        return Err(SystemError::Setting(format!(
            "--coupling close needs {}, which is not there: build it with cargo xtask image, or \
             use --coupling loose",
            plugin.display()
        )));
    }
    let monitor = folder.join("monitor");
    SocketAddr::from_pathname(&monitor).map_err(SystemError::host(format!(
        "a socket at {}",
        monitor.display()
    )))?;
    let memory = match &settings.memory_file {
        None => PathBuf::from(OWN_MEMORY),
        Some(file) => as_mapped(file)?,
    };
    let (plugin, memory, monitor) = (quoted(plugin), quoted(&memory), quoted(&monitor));
    let monitor_at = format!("unix:{monitor},server=on,wait=off");
    command.args(["-qmp", &monitor_at]);
    let words = format!("{plugin},memory={memory},monitor={monitor}");
    command.args(["-plugin", &words]);
    Ok(())
}

/// Why a machine ended whose emulator was to load the plugin: what to do, if it could not.
pub(crate) fn explain(why: String) -> String {
    if !why.contains("plugin") {
        return why;
    }
    format!(
        "{why}\n--coupling close on x86_64 needs a qemu-system-x86_64 that was built with plugins, \
         whose interface has version 1 (Debian's 7.2): install that, or use --coupling loose or \
         --arch aarch64"
    )
}

/// A file's name as a process that has mapped it is told.
fn as_mapped(file: &Path) -> Result<PathBuf, SystemError> {
    let refuse = |error: io::Error| {
        SystemError::Setting(format!("--memory-file {}: {error}", file.display()))
    };
    file.canonicalize().map_err(refuse)
}
