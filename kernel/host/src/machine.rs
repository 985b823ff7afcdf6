//! The emulated machine: its command line, and its pipes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcoe_abi::layout::{EDU_SLOT, MAX_CORES, PORT_DIARY, PORT_OFF, PORT_PAUSE, PORT_STATUS};
use rustix::fs::{FileType, Mode, OFlags};

use crate::SystemError;
use crate::run::Settings;

/// The emulator.
const EMULATOR: &str = "qemu-system-x86_64";

/// The model of its processors.
const PROCESSOR: &str = "qemu64";

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

/// A running machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) child: Child,
    /// The console, the exit status, and the replicas' diaries.
    pub(crate) console: File,
    pub(crate) status: File,
    pub(crate) diaries: Vec<File>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It has ended, or is to: a machine does not outlive who watches it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A named pipe that is open for reading here, and that the emulator will write.
fn pipe(folder: &Path, name: &str) -> Result<(PathBuf, File), SystemError> {
    let path = folder.join(name);
    let fail = |error: rustix::io::Errno| SystemError::Host {
        what: format!("a pipe at {}", path.display()),
        source: io::Error::from(error),
    };
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).map_err(fail)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let reader = rustix::fs::open(&path, flags, Mode::empty()).map_err(fail)?;
    Ok((path, File::from(reader)))
}

/// Starts a machine in `folder`, which holds the boot image.
pub(crate) fn start(
    settings: &Settings,
    kernel: &Path,
    image: &Path,
    folder: &Path,
) -> Result<Machine, SystemError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join(EMULATOR).is_file()) {
        return Err(SystemError::NoEmulator);
    }
    // The machine ends with us, however we end.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", EMULATOR]);
    command.args(["-M", "q35", "-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-monitor", "none"]);
    // Firmware that does nothing but start the kernel.
    command.args(["-bios", "qboot.rom"]);
    // Neither random numbers nor any other instruction whose result differs between cores. And
    // physical addresses no wider than those of memory and devices: a wider one in a damaged page
    // table is a page fault, where the emulator would give up fetching code from nowhere.
    let features = format!("{PROCESSOR},+smep,+smap,+umip,-rdrand,-rdseed,phys-bits=32");
    command.args(["-cpu", &features]);
    let threads = match settings.threads {
        Threads::Single | Threads::Counted => "tcg,thread=single",
        Threads::Multi => "tcg,thread=multi",
    };
    command.args(["-accel", threads]);
    if settings.threads == Threads::Counted {
        command.args(["-icount", "shift=0,sleep=off"]);
    }
    cores(&mut command, settings);
    let memory = settings.memory();
    command.args(["-m", &format!("{memory}M")]);
    if let Some(path) = &settings.memory_file {
        let path = path.display();
        let backend = format!("memory-backend-file,id=ram,size={memory}M,mem-path={path},share=on");
        command.args(["-object", &backend]);
        command.args(["-machine", "memory-backend=ram"]);
    }
    if let Some(path) = &settings.debugger {
        debugger(&mut command, path);
    }
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(image);
    command.args(["-append", &settings.command_line()]);
    // A device with registers, interrupts and memory access of its own, for drivers.
    command.args(["-device", &format!("edu,bus=pcie.0,addr={EDU_SLOT:#x}")]);
    let off = format!("isa-debug-exit,iobase={PORT_OFF:#x},iosize=4");
    command.args(["-device", &off]);
    let (path, console) = pipe(folder, "console")?;
    let path = path.display();
    command.args(["-chardev", &format!("file,id=console,path={path}")]);
    command.args(["-serial", "chardev:console"]);
    let status = port(&mut command, folder, "status", PORT_STATUS)?;
    let mut diaries = Vec::new();
    for (replica, place) in (PORT_DIARY..).take(MAX_CORES).enumerate() {
        let name = format!("diary{replica}");
        diaries.push(port(&mut command, folder, &name, place)?);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let starting = SystemError::host(format!("starting {EMULATOR} by setpriv"));
    let child = command.spawn().map_err(starting)?;
    Ok(Machine {
        child,
        console,
        status,
        diaries,
    })
}

/// The machine's cores, one for each replica, whose numbers are those of the replicas.
///
/// Where instructions are counted, the emulator gives each core in turn all of the time up to the
/// next event of any clock, and the core after one that used it all nothing. A core that goes round
/// for ever would starve its neighbour, and no replica could find out that another is stuck. So
/// behind each replica's core stands one that is never started, to come away empty-handed.
fn cores(command: &mut Command, settings: &Settings) {
    if settings.threads != Threads::Counted {
        command.args(["-smp", &settings.replicas.to_string()]);
        return;
    }
    let all = 2 * settings.replicas;
    command.args([
        "-smp",
        &format!("1,maxcpus={all},sockets={all},cores=1,threads=1"),
    ]);
    let idle = |replica: usize| settings.replicas + replica;
    let rest = (1..settings.replicas).flat_map(|replica| [replica, idle(replica)]);
    for core in [idle(0)].into_iter().chain(rest) {
        let core = format!("{PROCESSOR}-x86_64-cpu,socket-id={core},core-id=0,thread-id=0");
        command.args(["-device", &core]);
    }
}

/// Lets a debugger reach the machine at a socket. The machine waits for it at the start, and stands
/// still whenever a kernel says so.
fn debugger(command: &mut Command, path: &Path) {
    let path = path.display();
    command.args(["-S", "-gdb", &format!("unix:{path},server=on,wait=off")]);
    let device = format!("pvpanic,ioport={PORT_PAUSE:#x}");
    command.args(["-device", &device, "-action", "panic=pause"]);
}

/// A port of the machine that writes into a pipe.
fn port(command: &mut Command, folder: &Path, name: &str, place: u16) -> Result<File, SystemError> {
    let (path, reader) = pipe(folder, name)?;
    let path = path.display();
    command.args(["-chardev", &format!("file,id={name},path={path}")]);
    let device = format!("isa-debugcon,iobase={place:#x},chardev={name}");
    command.args(["-device", &device]);
    Ok(reader)
}
