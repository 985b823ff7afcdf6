//! The emulated machine: its command line, and its pipes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rcoe_abi::layout::MAX_CORES;
use rustix::fs::{FileType, Mode, OFlags};

use crate::live_input::LiveInput;
use crate::run::Settings;
use crate::{Arch, SystemError, disk, find, publish};

mod aarch64;
mod counter;
mod devices;
mod x86_64;

pub(crate) use counter::explain;

/// How the emulator runs the machine's cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Threads {
    /// All on one thread of the host, in turns: right where there are fewer cores than replicas.
    #[default]
    Single,
    /// Each on a thread of its own.
    Multi,
    /// In turns, with a clock that counts instructions.
    Counted,
}

/// What executes the machine's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Accel {
    /// The emulator.
    #[default]
    Tcg,
    /// The processor of the host, by its kernel.
    Kvm,
}

/// The kind of a machine's network card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Nic {
    /// An RTL8139, which finds frames by its registers.
    #[default]
    Rtl8139,
    /// A virtio network device, which finds them by descriptors in memory.
    Virtio,
}

impl Nic {
    /// What the emulator calls it, and has it be.
    const fn model(self) -> &'static str {
        match self {
            Self::Rtl8139 => "rtl8139",
            Self::Virtio => "virtio-net-pci,disable-legacy=on,vectors=0",
        }
    }
}

/// A clock that counts instructions, each a nanosecond.
const COUNTED: [&str; 2] = ["-icount", "shift=0,sleep=off"];

/// A running machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) child: Child,
    /// The console, the exit status, the replicas' diaries, and notes of a personality.
    pub(crate) console: File,
    pub(crate) status: File,
    pub(crate) diaries: Vec<File>,
    /// What the program reads while the machine runs.
    pub(crate) input: Option<LiveInput>,
    /// What the emulator says of itself.
    words: File,
}

/// Most bytes of what the emulator said that are looked at.
const WORDS: u64 = 4096;

impl Machine {
    /// Ends it now.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// The first line that the emulator said of itself, without its name.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        let mut said = Vec::new();
        self.words.rewind().ok()?;
        (&self.words).take(WORDS).read_to_end(&mut said).ok()?;
        let said = String::from_utf8_lossy(&said);
        let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.to_owned())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It has ended, or is to: a machine does not outlive who watches it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A named pipe that is open here, so as these flags say.
fn pipe(folder: &Path, name: &str, flags: OFlags) -> Result<(PathBuf, File), SystemError> {
    let path = folder.join(name);
    let fail = |error: rustix::io::Errno| SystemError::Host {
        what: format!("a pipe at {}", path.display()),
        source: io::Error::from(error),
    };
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).map_err(fail)?;
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&path, flags, Mode::empty()).map_err(fail)?;
    Ok((path, File::from(opened)))
}

/// Starts a machine in `folder`, with a kernel and a boot image.
pub(crate) fn start(
    settings: &Settings,
    kernel: &Path,
    image: &[u8],
    folder: &Path,
) -> Result<Machine, SystemError> {
    let emulator = settings.arch.emulator();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join(emulator).is_file()) {
        return Err(SystemError::NoEmulator(settings.arch));
    }
    check_places(settings)?;
    publish::check(&settings.publish, settings.outgoing)?;
    if let Some(disk) = &settings.disk {
        disk::prepare(disk)?;
    }
    // The machine ends with us, however we end.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", emulator]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-monitor", "none"]);
    command.args(["-accel", accelerator(settings)?]);
    let memory = settings.memory(image.len())?;
    command.args(["-m", &format!("{memory}M")]);
    let counts = settings.needs_plugin();
    let backend = match &settings.memory_file {
        Some(path) => Some(format!("memory-backend-file,mem-path={}", quoted(path))),
        None => counts.then(|| "memory-backend-memfd".to_owned()),
    };
    if let Some(backend) = backend {
        let backend = format!("{backend},id=ram,size={memory}M,share=on");
        command.args(["-object", &backend]);
        command.args(["-machine", "memory-backend=ram"]);
    }
    if counts {
        let plugin = kernel.with_file_name(find::COUNTER);
        counter::load(&mut command, settings, &plugin, folder)?;
    }
    command.arg("-kernel").arg(kernel);
    monitor(&mut command, settings);
    let console = chardev(&mut command, folder, "console")?;
    command.args(["-serial", "chardev:console"]);
    let status = chardev(&mut command, folder, "status")?;
    let mut diaries = Vec::new();
    for replica in 0..MAX_CORES {
        diaries.push(chardev(&mut command, folder, &diary(replica))?);
    }
    // Read as if it were one more diary.
    diaries.push(chardev(&mut command, folder, NOTES)?);
    let input = settings.has_live_input();
    let input = input.then(|| line(&mut command, folder)).transpose()?;
    match settings.arch {
        Arch::X86_64 => x86_64::machine(&mut command, settings, image, folder)?,
        Arch::Aarch64 => aarch64::machine(&mut command, settings, image, folder)?,
    }
    let telling = SystemError::host("a file for what the emulator says");
    let (words, hers) = words(folder).map_err(telling)?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(hers);
    let starting = SystemError::host(format!("starting {emulator} by setpriv"));
    let child = command.spawn().map_err(starting)?;
    Ok(Machine {
        child,
        console,
        status,
        diaries,
        input,
        words,
    })
}

/// Who executes instructions, and on how many threads of the host.
fn accelerator(settings: &Settings) -> Result<&'static str, SystemError> {
    let refuse = |why: &str| Err(SystemError::Setting(format!("--accel kvm {why}")));
    match (settings.accel, settings.threads) {
        (Accel::Tcg, Threads::Single | Threads::Counted) => Ok("tcg,thread=single"),
        (Accel::Tcg, Threads::Multi) => Ok("tcg,thread=multi"),
        (Accel::Kvm, _) if settings.arch.name() != std::env::consts::ARCH => {
            refuse(&format!("runs machines of {} only", std::env::consts::ARCH))
        }
        (Accel::Kvm, Threads::Multi) => match kvm() {
            Ok(()) => Ok("kvm"),
            Err(why) => refuse(&format!("is not possible here: {why}")),
        },
        (Accel::Kvm, _) => refuse("gives each core a thread of its own; add --core-threads multi"),
    }
}

/// By what the host's kernel is asked to run machines.
const KVM: &str = "/dev/kvm";

/// Can the host's processor run machines for us?
///
/// # Errors
/// Why not.
pub fn kvm() -> Result<(), String> {
    let opened = File::options().read(true).write(true).open(KVM);
    opened.map_err(|error| format!("{KVM}: {error}"))?;
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if cfg!(target_arch = "x86_64") && !virtualises(&processor) {
        // Such a kernel runs programs of the machine in a mode of their own that a kernel which
        // does not know of it cannot tell from a fault.
        return Err("this processor has neither vmx nor svm".to_owned());
    }
    Ok(())
}

/// Does a PC's processor, of which the host's kernel says this, run machines by itself?
fn virtualises(processor: &str) -> bool {
    let mut lines = processor.lines();
    let flags = lines.find(|line| line.starts_with("flags"));
    let mut flags = flags.unwrap_or_default().split_whitespace();
    flags.any(|flag| flag == "vmx" || flag == "svm")
}

/// Lets a debugger reach the machine at a socket. The machine waits for it at the start, and stands
/// still whenever a kernel says so by `device`.
fn debugger(command: &mut Command, path: &Path, device: &str) {
    let path = quoted(path);
    command.args(["-S", "-gdb", &format!("unix:{path},server=on,wait=off")]);
    command.args(["-device", device, "-action", "panic=pause"]);
}

/// Lets a fault injector reach the emulator's monitor at a socket, by which the machine may get the
/// state from which it goes on.
fn monitor(command: &mut Command, settings: &Settings) {
    if let Some(path) = &settings.monitor {
        let path = quoted(path);
        command.args(["-qmp", &format!("unix:{path},server=on,wait=off")]);
    }
    if settings.restored {
        command.args(["-incoming", "defer"]);
    }
}

/// A file for what the emulator says of itself: read by us, written by the emulator.
fn words(folder: &Path) -> io::Result<(File, File)> {
    let path = folder.join("words");
    let hers = File::options().create(true).append(true).open(&path)?;
    Ok((File::open(&path)?, hers))
}

/// Refuses places that the user names and the emulator could not use.
fn check_places(settings: &Settings) -> Result<(), SystemError> {
    let refuse = |option: &str, path: &Path, why: &dyn std::fmt::Display| {
        SystemError::Setting(format!("{option} {}: {why}", path.display()))
    };
    if let Some(path) = &settings.memory_file {
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let kind = opened
            .and_then(|file| file.metadata())
            .map_err(|error| refuse("--memory-file", path, &error))?;
        if !kind.is_file() {
            return Err(refuse("--memory-file", path, &"is no regular file"));
        }
        // Replicas count on memory that nobody has written.
        if kind.len() > 0 && !settings.restored {
            return Err(refuse("--memory-file", path, &"is not empty: remove it"));
        }
    }
    // The emulator replaces a socket that is there.
    let check = |option: &str, path: &Path| {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(refuse(option, path, &"there is no such folder"));
        }
        let address = std::os::unix::net::SocketAddr::from_pathname(path);
        address
            .map(drop)
            .map_err(|error| refuse(option, path, &error))
    };
    for (option, path) in [
        ("--debugger", &settings.debugger),
        ("--monitor", &settings.monitor),
    ] {
        if let Some(path) = path {
            check(option, path)?;
        }
    }
    if let Some(folder) = &settings.wire {
        if settings.publish.is_empty() && !settings.outgoing {
            let why = "the machine has no network: add --publish or --outgoing";
            return Err(refuse("--wire", folder, &why));
        }
        check("--wire", &folder.join("wire-out"))?;
    }
    Ok(())
}

/// A path as a value in one of the emulator's lists, where a comma ends a value unless doubled.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Name of what a replica's diary is written to.
fn diary(replica: usize) -> String {
    format!("diary{replica}")
}

/// Name of what a personality's notes are written to.
const NOTES: &str = "notes";

/// A way out of the machine, by name, that leads into a pipe.
fn chardev(command: &mut Command, folder: &Path, name: &str) -> Result<File, SystemError> {
    let (path, reader) = pipe(folder, name, OFlags::RDONLY)?;
    let path = quoted(&path);
    command.args(["-chardev", &format!("file,id={name},path={path}")]);
    Ok(reader)
}

/// Name of the line of the input.
const INPUT: &str = "input";

/// A way into the machine and out of it, for the input: two pipes, which the emulator knows by what
/// their names begin with.
fn line(command: &mut Command, folder: &Path) -> Result<LiveInput, SystemError> {
    let (_, asked) = pipe(folder, &format!("{INPUT}.out"), OFlags::RDONLY)?;
    // Open for both, as nobody reads it yet.
    let (_, given) = pipe(folder, &format!("{INPUT}.in"), OFlags::RDWR)?;
    let path = quoted(&folder.join(INPUT));
    command.args(["-chardev", &format!("pipe,id={INPUT},path={path}")]);
    LiveInput::new(asked, given).map_err(SystemError::host("this process's standard input"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_says_whether_it_runs_machines() {
        let said = |flags: &str| format!("processor\t: 0\nflags\t\t: fpu {flags}\nbugs\t: svm\n");
        assert!(virtualises(&said("vmx sse")) && virtualises(&said("svm")));
        assert!(!virtualises(&said("svm_lock sse")) && !virtualises(""));
    }
}
