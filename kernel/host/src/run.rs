//! Running a program in a machine: from settings to an ending.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcoe_abi::bundle::Word;
use rcoe_abi::object::PAGE;
use rcoe_core::Compare;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backlog;
use crate::build;
use crate::coupling::{self, Approach, Counting, Coupling};
use crate::diaries::Diaries;
use crate::find::{self, KERNEL};
use crate::guest::{Guest, MONITOR};
use crate::linux::{self, LinuxProgram};
use crate::live_input::LiveInput;
use crate::machine::{self, Accel, Machine, Nic, Threads};
use crate::presence::Presence;
use crate::{Arch, DiskFile, Entry, Publish, SystemError, pack};

/// What is to be run, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine.
    pub arch: Arch,
    /// Replicas: 1 to 4.
    pub replicas: usize,
    /// Where replicas act.
    pub coupling: Coupling,
    /// What stops them where they are closely coupled.
    pub approach: Approach,
    /// What counts what they execute.
    pub counting: Counting,
    /// How much is compared.
    pub compare: Compare,
    /// How late a replica may be.
    pub timeout: Duration,
    /// Time between preemption ticks; none if zero.
    pub tick: Duration,
    /// Are faults masked, where there are three replicas or more?
    pub mask: bool,
    /// Are lost replicas replaced?
    pub reintegrate: bool,
    /// What executes instructions.
    pub accel: Accel,
    /// How the emulator runs the cores.
    pub threads: Threads,
    /// Megabytes of each replica; as many as the image needs if it is not said.
    pub memory: Option<u64>,
    /// A file that holds the machine's memory, for whoever wants to look at it or change it.
    pub memory_file: Option<PathBuf>,
    /// A socket at which a debugger or fault injector reaches the machine, which waits for it.
    pub debugger: Option<PathBuf>,
    /// A socket at which the emulator's monitor is reached.
    pub monitor: Option<PathBuf>,
    /// Does the machine wait for a state, which comes by that monitor, to go on from?
    pub restored: bool,
    /// Ports of the machine that the host offers. Without any, and with nothing outgoing, the
    /// machine has no network.
    pub publish: Vec<Publish>,
    /// May programs of the machine connect to the host, and by it to others?
    pub outgoing: bool,
    /// Which card it has, if it has a network.
    pub nic: Nic,
    /// A folder for two sockets, by which frames come into the machine's network and are heard.
    pub wire: Option<PathBuf>,
    /// A file that is its disk.
    pub disk: Option<DiskFile>,
    /// Does a program of Linux read this process's standard input while the machine runs?
    pub live_input: bool,
    /// Further words for the kernel, for tests.
    pub kernel_words: String,
    /// Name of a program of the image, or an ELF file; and its argument.
    pub program: String,
    /// The program's argument.
    pub argument: Option<u64>,
    /// A program of Linux, if it is one; with its personality as the program.
    pub linux: Option<LinuxProgram>,
    /// A guest, if it is one; with its monitor as the program.
    pub guest: Option<Guest>,
}

/// Megabytes of a partition that suffice for the programs of the image; and what it must have
/// beside an image, of which there are two, one as it came and one that runs.
const PARTITION: u64 = 32;
const BESIDE: u64 = 24;
/// What a program of Linux has for its heap, if nobody says how much.
const HEAP: u64 = 32;
/// Megabytes below the first partition, and behind the last one for a boot image of the usual size.
const BELOW: u64 = 16;
const BEHIND: u64 = 4;
/// Bytes at the end of a PC's memory that its emulator keeps for tables of the firmware.
const FIRMWARE: u64 = 256 << 10;
/// Partitions are multiples of so many megabytes.
const GRAIN: u64 = 2;

/// Megabytes that hold so many bytes, and the page that precedes them on some machines.
const fn megabytes(bytes: u64) -> u64 {
    (bytes + 4096).div_ceil(1 << 20)
}

/// Megabytes outside of partitions, given the bytes of the boot image.
fn around(image: usize) -> u64 {
    BELOW + megabytes(image as u64 + FIRMWARE).max(BEHIND)
}

impl Settings {
    /// Megabytes of the machine, given the bytes of the boot image.
    ///
    /// # Errors
    /// If it cannot have so many, or a replica does not get along with those it is given.
    pub(crate) fn memory(&self, image: usize) -> Result<u64, SystemError> {
        let replicas = self.replicas as u64;
        Ok(around(image) + self.partition(image)? * replicas)
    }

    /// Megabytes of each replica.
    fn partition(&self, image: usize) -> Result<u64, SystemError> {
        let around = around(image);
        let image = megabytes(image as u64);
        let (program, heap) = match (&self.linux, &self.guest) {
            (Some(program), _) => (megabytes(program.memory()), HEAP),
            (None, Some(guest)) => (guest.memory(), guest.room()),
            (None, None) => (0, 0),
        };
        let least = (BESIDE + 2 * image + program).next_multiple_of(GRAIN);
        let each = self.memory.unwrap_or(PARTITION.max(least + heap));
        let each = each.next_multiple_of(GRAIN);
        let replicas = self.replicas as u64;
        let most = (self.arch.memory() - around) / replicas / GRAIN * GRAIN;
        let (arch, plural) = (self.arch.name(), if replicas == 1 { "" } else { "s" });
        let said = self.memory.unwrap_or(each);
        let refuse = |why: &str| {
            Err(SystemError::Setting(format!(
                "--memory {said}M: {replicas} replica{plural} on {arch} {why}"
            )))
        };
        if each > most {
            let why = format!("can have {most}M each at most: addresses there have 32 bits");
            return refuse(&why);
        }
        if each < least {
            return refuse(&format!("need {least}M each at least"));
        }
        Ok(each)
    }

    /// Is there a line by which input comes while the machine runs?
    pub(crate) const fn has_live_input(&self) -> bool {
        self.live_input && self.linux.is_some()
    }

    /// Does a plugin of the emulator count what processors execute?
    pub(crate) fn needs_plugin(&self) -> bool {
        self.coupling == Coupling::Close
            && self.arch == Arch::X86_64
            && self.counting == Counting::Machine
    }

    /// Do programs count what they execute?
    fn counts_itself(&self) -> bool {
        self.coupling == Coupling::Close && self.counting == Counting::Compiler
    }

    fn name(&self) -> &str {
        if self.linux.is_some() {
            return linux::PERSONALITY;
        }
        if self.guest.is_some() {
            return MONITOR;
        }
        let path = Path::new(&self.program);
        path.file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("program")
    }

    pub(crate) fn command_line(&self) -> String {
        let (replicas, compare) = (self.replicas, self.compare.name());
        let word = |yes: bool| if yes { "yes" } else { "no" };
        let (mask, again) = (word(self.mask), word(self.reintegrate));
        let (timeout, tick) = (self.timeout.as_millis(), self.tick.as_micros());
        let argument = self
            .argument
            .map_or(String::new(), |number| format!(" {number}"));
        let (name, words) = (self.name(), &self.kernel_words);
        // Where an instruction takes a nanosecond, there is nothing to measure. Other processors
        // know the speed of their clock.
        let clocks = match (self.threads, self.arch) {
            (Threads::Counted, Arch::X86_64) => "cycles=1000000 units=1000000",
            _ => "",
        };
        let counter = match (self.needs_plugin(), self.counts_itself()) {
            (true, _) => "counter=plugin",
            (_, true) => "counter=compiler",
            _ => "",
        };
        format!(
            "n={replicas} compare={compare} timeout={timeout} tick={tick} mask={mask} \
             reintegrate={again} coupling={} approach={} {clocks} {words} {counter} \
             -- {name}{argument}",
            self.coupling.name(),
            self.approach.name()
        )
    }
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It was stopped, as the caller wished.
    Stopped,
    /// The program ended with this status, and the replicas agreed.
    Exit(u8),
    /// A fault that could not be masked.
    FailStop(String),
    /// The machine could not start, or ended without a word.
    Lost(String),
}

/// The files to be packed: all of the image's, and the program if it is none of them.
fn files(settings: &Settings, folder: &Path) -> Result<Vec<(String, PathBuf)>, SystemError> {
    let mut programs = if settings.counts_itself() {
        counted_programs(folder)?
    } else {
        find::programs(folder)?
    };
    if settings.linux.is_none() {
        // By far the largest one, of which others have no use.
        programs.retain(|(name, _)| name != linux::PERSONALITY);
    }
    if settings.guest.is_none() {
        programs.retain(|(name, _)| name != MONITOR);
    }
    let names = programs.iter().map(|(name, _)| name.as_str());
    let names = names.filter(|name| find::is_whole(name));
    let known = settings.linux.is_some() || settings.guest.is_some();
    if known || names.clone().any(|name| name == settings.program) {
        return Ok(programs);
    }
    let path = PathBuf::from(&settings.program);
    if !path.is_file() {
        let names = names.collect::<Vec<_>>().join(", ");
        if settings.counts_itself() && find::offers(folder, &settings.program)? {
            let name = &settings.program;
            let why =
                format!("--count-by compiler: {name} of the image does not count its branches");
            return Err(SystemError::Setting(format!("{why}; these do: {names}")));
        }
        return Err(SystemError::NotFound(settings.program.clone(), names));
    }
    programs.retain(|(name, _)| name != settings.name());
    programs.push((settings.name().to_owned(), path));
    Ok(programs)
}

/// Programs of the image that count their own branches.
fn counted_programs(folder: &Path) -> Result<Vec<(String, PathBuf)>, SystemError> {
    let folder = folder.join(find::COUNTED);
    if !folder.is_dir() {
        return Err(SystemError::Setting(format!(
            "--count-by compiler needs {}, which is not there: build it with cargo xtask image, \
             which needs a compiler of C for the machine, or leave out --count-by",
            folder.display()
        )));
    }
    find::programs(&folder)
}

/// The boot image with a program of Linux.
fn with_bundle(
    settings: &Settings,
    programs: &[(String, &Path)],
    program: &LinuxProgram,
) -> Result<Vec<u8>, SystemError> {
    let network = match (settings.outgoing, settings.publish.is_empty()) {
        (true, _) => 2,
        (false, false) => 1,
        (false, true) => 0,
    };
    let pack = |pages| {
        let bundle = program.bundle(&[
            (Word::Pages, pages),
            (Word::Network, network),
            (Word::Input, settings.has_live_input().into()),
        ]);
        pack(settings.arch, programs, Some((linux::PERSONALITY, bundle)))
    };
    // How much memory there is follows from the size of the image, which is the same either way.
    let image = pack(0)?;
    let pages = (settings.partition(image.len())? << 20) / PAGE;
    pack(pages)
}

/// The boot image with a guest: it has what memory its replica does not need itself.
fn with_guest(
    settings: &Settings,
    programs: &[(String, &Path)],
    guest: &Guest,
) -> Result<Vec<u8>, SystemError> {
    let pack = |memory| {
        let bundle = Some((MONITOR, guest.bundle(memory)));
        pack(settings.arch, programs, bundle)
    };
    // The size of the image is the same, however much memory there is.
    let image = pack(0)?.len();
    let needed = BESIDE + 2 * megabytes(image as u64);
    pack(settings.partition(image)?.saturating_sub(needed))
}

/// Runs a program to its end, or until `stop` can be read. Its output goes to `out`; what replicas
/// tell goes to `tell`, with the number of the one that wrote it.
///
/// # Errors
/// If the machine cannot be started or watched.
pub fn run(
    settings: &Settings,
    folder: &Path,
    stop: BorrowedFd<'_>,
    out: &mut dyn Write,
    tell: &mut dyn FnMut(usize, &Entry),
) -> Result<Ending, SystemError> {
    build::check(&folder.join(KERNEL))?;
    coupling::check(settings)?;
    let files = files(settings, folder)?;
    if settings.counts_itself() {
        for (name, path) in &files {
            coupling::check_counts(name, path)?;
        }
    }
    if settings.coupling == Coupling::Close && settings.arch == Arch::Aarch64 {
        for (name, path) in &files {
            coupling::check_program(name, path)?;
        }
        if let Some(program) = &settings.linux {
            program.check_coupling()?;
        }
    }
    let programs: Vec<(String, &Path)> = files
        .iter()
        .map(|(name, path)| (name.clone(), path.as_path()))
        .collect();
    let image = match (&settings.linux, &settings.guest) {
        (Some(program), _) => with_bundle(settings, &programs, program)?,
        (None, Some(guest)) => with_guest(settings, &programs, guest)?,
        (None, None) => pack(settings.arch, &programs, None)?,
    };
    let own = tempfile::tempdir().map_err(SystemError::host("a folder for the machine"))?;
    let machine = machine::start(settings, &folder.join(KERNEL), &image, own.path())?;
    let mut folder = Some(own);
    let emulator = machine.child.id();
    let ending = watch(settings.arch, machine, stop, out, &mut |replica, entry| {
        // Once a replica speaks, the machine has opened all that is there.
        if folder.take().is_some()
            && let Err(error) = backlog::deepen(emulator, &settings.publish)
        {
            let text = format!("of clients that come at once some will wait: {error}");
            tell(replica, &Entry::Note(text));
        }
        tell(replica, entry);
    })?;
    Ok(match ending {
        Ending::Lost(why) if settings.needs_plugin() => Ending::Lost(machine::explain(why)),
        ending => ending,
    })
}

/// What was learnt of how it ends.
#[derive(Default)]
struct Learnt {
    status: Option<u8>,
    fail_stop: Option<String>,
    trouble: Option<String>,
    presence: Presence,
    /// What the emulator said of itself.
    emulator: Option<String>,
}

impl Learnt {
    fn note(&mut self, replica: usize, entry: &Entry) {
        self.presence.note(replica, entry);
        match entry {
            Entry::FailStop(why) => self.fail_stop = Some(why.clone()),
            Entry::Refused(why) | Entry::Unhandled(why) => self.trouble = Some(why.clone()),
            Entry::Broken(why) if self.trouble.is_none() => {
                self.trouble = Some(format!("replica {replica}: {why}"));
            }
            _ => {}
        }
    }

    fn ending(self, arch: Arch, code: Option<i32>) -> Ending {
        // A fail-stop is the machine's last word, whatever was written before.
        if let Some(why) = self.fail_stop {
            return Ending::FailStop(why);
        }
        let is_off = code == Some(arch.switched_off());
        match (self.status, self.trouble) {
            (Some(status), _) if is_off => Ending::Exit(status),
            (None, Some(why)) if is_off => Ending::Lost(why),
            (_, trouble) => {
                // Replicas may have gone on since one of them told of trouble.
                let before = trouble.map(|why| format!(" (first trouble: {why})"));
                let how = match self.emulator {
                    Some(said) if code.is_none_or(|code| arch.reset() != Some(code)) => {
                        format!("the machine ended: {said}")
                    }
                    _ => untold(arch, code),
                };
                Ending::Lost(how + &before.unwrap_or_default())
            }
        }
    }
}

/// How a machine ended whose replicas did not switch it off.
fn untold(arch: Arch, code: Option<i32>) -> String {
    match code {
        Some(code) if arch.reset() == Some(code) => {
            "a processor faulted so deeply that it reset the machine".to_owned()
        }
        Some(code) => format!("the machine ended without telling why (qemu status {code})"),
        None => "the machine ended without telling why (killed)".to_owned(),
    }
}

/// Why a machine is ended that does not end itself.
const NOBODY: &str = "no replica is left";

/// How often the emulator is looked at while it says nothing.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

fn watch(
    arch: Arch,
    mut machine: Machine,
    stop: BorrowedFd<'_>,
    out: &mut dyn Write,
    tell: &mut dyn FnMut(usize, &Entry),
) -> Result<Ending, SystemError> {
    let mut learnt = Learnt::default();
    let mut diaries = Diaries::new(std::mem::take(&mut machine.diaries));
    let mut ended = None;
    let mut stopped = false;
    loop {
        // Looked at first, so that the last round reads what was written before the end.
        let over = ended.is_some();
        if !over {
            wait(&machine, &diaries, stop);
            let state = machine.child.try_wait();
            ended = state.map_err(SystemError::host("waiting for qemu"))?;
            // Looked at last: what ends us may have ended the emulator too.
            stopped = can_be_read(stop);
            if stopped && ended.is_none() {
                ended = Some(machine.end().map_err(SystemError::host("ending qemu"))?);
            }
        }
        copy_console(&mut machine.console, out)?;
        if let Some(input) = &mut machine.input {
            input.round()?;
        }
        read_status(&mut machine.status, &mut learnt)?;
        for (replica, entry) in diaries.round()? {
            learnt.note(replica, &entry);
            tell(replica, &entry);
        }
        if ended.is_none() && learnt.presence.nobody_is_left() {
            ended = Some(machine.end().map_err(SystemError::host("ending qemu"))?);
            learnt.fail_stop.get_or_insert_with(|| NOBODY.to_owned());
        }
        if over && diaries.told_all() {
            break;
        }
    }
    learnt.emulator = machine.last_words();
    let ending = learnt.ending(arch, ended.and_then(|status| status.code()));
    // What was told before the wish is how it ended all the same.
    Ok(match ending {
        Ending::Lost(_) if stopped => Ending::Stopped,
        ending => ending,
    })
}

/// Whether there is something to be read now.
fn can_be_read(file: BorrowedFd<'_>) -> bool {
    let now = Timespec::default();
    let mut files = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    poll(&mut files, Some(&now)).is_ok_and(|count| count > 0)
}

/// Waits until something can be read, or for a moment.
fn wait(machine: &Machine, diaries: &Diaries, stop: BorrowedFd<'_>) {
    let begun = Instant::now();
    let mut files: Vec<PollFd<'_>> = [&machine.console, &machine.status]
        .map(|file| PollFd::new(file, PollFlags::IN))
        .into_iter()
        .chain(diaries.polled())
        .chain([PollFd::from_borrowed_fd(stop, PollFlags::IN)])
        .chain(machine.input.iter().flat_map(LiveInput::polled))
        .collect();
    // Interrupted or not, the caller looks at everything.
    let _ = poll(&mut files, Some(&LOOK));
    let hung_up = files
        .iter()
        .any(|file| file.revents().contains(PollFlags::HUP));
    let pause = Duration::from_millis(1);
    if hung_up && begun.elapsed() < pause {
        // Pipes that nobody writes yet, or any more, are always ready.
        std::thread::sleep(pause);
    }
}

fn copy_console(console: &mut File, out: &mut dyn Write) -> Result<(), SystemError> {
    let mut buffer = [0; 4096];
    loop {
        match console.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                let written = out.write_all(&buffer[..len]).and_then(|()| out.flush());
                written.map_err(SystemError::host("writing the output"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SystemError::host("reading the console")(error)),
        }
    }
}

fn read_status(file: &mut File, learnt: &mut Learnt) -> Result<(), SystemError> {
    let mut buffer = [0; 16];
    match file.read(&mut buffer) {
        Ok(len) => {
            if let Some(&last) = buffer[..len].last() {
                learnt.status = Some(last);
            }
            Ok(())
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(SystemError::host("reading the status")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(status: Option<u8>, entries: &[&str], code: Option<i32>) -> Ending {
        let mut learnt = Learnt {
            status,
            ..Learnt::default()
        };
        for entry in entries {
            learnt.note(0, &Entry::parse(entry));
        }
        learnt.ending(Arch::X86_64, code)
    }

    /// The emulator puts the image before the tables that its firmware has at the end of memory.
    #[test]
    fn an_image_of_whatever_size_takes_nothing_from_partitions() {
        const TABLES: u64 = 160 << 10;
        for image in (1..40 << 20).step_by(65_521) {
            let beside = (around(image) - BELOW) << 20;
            assert!(image as u64 + 4096 + TABLES <= beside, "{image}");
        }
    }

    #[test]
    fn only_a_machine_that_switched_itself_off_has_a_status() {
        assert_eq!(ending(Some(7), &["start 2"], Some(1)), Ending::Exit(7));
        for code in [Some(0), None] {
            assert!(matches!(ending(Some(7), &[], code), Ending::Lost(_)));
        }
        assert!(matches!(ending(None, &[], Some(1)), Ending::Lost(_)));
        let refused = Learnt {
            emulator: Some("no memory".into()),
            ..Learnt::default()
        };
        let Ending::Lost(why) = refused.ending(Arch::X86_64, Some(1)) else {
            panic!("no status was told");
        };
        assert!(why.contains("no memory"), "{why}");
        let stop = Ending::FailStop("mismatch".into());
        assert_eq!(ending(Some(7), &["fail-stop mismatch"], Some(1)), stop);
        let refused = ending(None, &["refused no disk"], Some(1));
        assert_eq!(refused, Ending::Lost("no disk".into()));
        // What a replica told of that others went on without is not how it ended.
        let Ending::Lost(why) = ending(None, &["panic here"], Some(0)) else {
            panic!("no status was told");
        };
        assert!(
            why.contains("reset the machine") && why.contains("panic here"),
            "{why}"
        );
    }
}
