//! Files that tell of the machine: what is in them is put together when they are opened, and again
//! when they are read from their beginning.
//!
//! What nobody counts here, as the time that processes took, is told to be none.

use core::fmt::{self, Write as _};

use linux_raw_sys::errno::{EACCES, ENOMEM, ENOTDIR, ESRCH};
use linux_raw_sys::general::{O_ACCMODE, O_DIRECTORY, O_RDONLY};

use super::system::NAMES;
use crate::linux::arch::{Cpu, nr};
use crate::linux::facts::Fact;
use crate::linux::machine::PAGE;
use crate::linux::stat::SECOND;
use crate::linux::streams::Target;
use crate::linux::tasks::Life;
use crate::linux::{Answer, Errno, Machine, Process};

/// Numbers of processes are lower.
const NUMBERS: u64 = 1 << 22;
/// Writes what is told into a file.
pub(super) struct Teller<'p, 'a, M> {
    pub(super) process: &'p mut Process<'a, M>,
    node: usize,
    at: u64,
}

impl<M: Machine> Teller<'_, '_, M> {
    /// How much there is by now.
    pub(super) const fn length(&self) -> u64 {
        self.at
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> fmt::Result {
        let it = &mut *self.process;
        let place = (self.node, self.at);
        let written = it.files.write(&mut it.store, &mut it.machine, place, bytes);
        self.at += bytes.len() as u64;
        written.map_err(|_| fmt::Error)
    }
}

impl<M: Machine> fmt::Write for Teller<'_, '_, M> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes())
    }
}

impl<M: Machine> Process<'_, M> {
    /// Opens a file that tells something, of a process or of the machine.
    pub(super) fn open_told(&mut self, fact: Fact, whose: u64, flags: u32) -> Answer {
        if flags & O_ACCMODE != O_RDONLY {
            return Err(Errno(EACCES));
        }
        if flags & O_DIRECTORY != 0 {
            return Err(Errno(ENOTDIR));
        }
        let node = self.files.make_nameless()?;
        let opened = self
            .tell(node, fact, whose)
            .and_then(|()| self.files.open(Target::Node(node), flags));
        if opened.is_err() {
            self.release(Target::Node(node));
        }
        opened.map(|number| number as u64)
    }

    /// Whoever opens the folder of another process would look into that of its own.
    pub(super) fn refuse_folder(&mut self) -> Errno {
        let text = format_args!(
            "the system sphere does not open the folders of other processes below /proc: the \
             program got EACCES"
        );
        self.tell_once(nr::__NR_getdents64.into(), text);
        Errno(EACCES)
    }

    /// Puts together what a file tells of a process, or of the machine.
    pub(super) fn tell(&mut self, node: usize, fact: Fact, whose: u64) -> Result<(), Errno> {
        let mut all = self.task.all().iter();
        let place = all.position(|it| it.life != Life::Free && it.number == whose);
        let place = place.ok_or(Errno(ESRCH))?;
        let (store, machine) = (&mut self.store, &mut self.machine);
        self.files.truncate(store, machine, node, 0)?;
        let mut out = Teller {
            process: self,
            node,
            at: 0,
        };
        let told = match fact {
            Fact::Status => out.status(place),
            Fact::Stat => out.stat(place),
            Fact::Statm => out.sizes(place),
            Fact::Cmdline => out.arguments(place),
            Fact::Comm => out.name(place).and_then(|()| out.write_str("\n")),
            Fact::Maps => out.maps(place, |_, _| Ok(())),
            Fact::SizedMaps => out.maps(place, Teller::sizes_of),
            other => out.of_machine(other),
        };
        let bytes = out.at;
        self.files.set_told(node, fact, whose, bytes);
        told.map_err(|_| Errno(ENOMEM))
    }
}

impl<M: Machine> Teller<'_, '_, M> {
    fn of_machine(&mut self, fact: Fact) -> fmt::Result {
        let text = |at: usize| core::str::from_utf8(NAMES[at]).unwrap_or_default();
        match fact {
            Fact::Memory => self.memory(),
            Fact::Processor => {
                let cpu = Cpu::new(&self.process.machine);
                write!(self, "{cpu}")
            }
            Fact::Uptime => {
                let now = self.process.machine.now() / (SECOND / 100);
                let (seconds, rest) = (now / 100, now % 100);
                writeln!(self, "{seconds}.{rest:02} 0.00")
            }
            Fact::Load => {
                let all = self.process.task.all().iter();
                let numbers = all.filter(|it| it.life != Life::Free).map(|it| it.number);
                let (count, last) = (numbers.clone().count(), numbers.max().unwrap_or(0));
                writeln!(self, "0.00 0.00 0.00 1/{count} {last}")
            }
            Fact::Counts => self.counts(),
            Fact::Version => writeln!(self, "{} version {} {}", text(0), text(2), text(3)),
            Fact::Name(at) => writeln!(self, "{}", text(at)),
            Fact::LastProcess => writeln!(self, "{NUMBERS}"),
            Fact::Limit(most) => writeln!(self, "{most}"),
            Fact::Mounts => self.mounts(),
            _ => Ok(()),
        }
    }

    /// Files are in memory, and some of them on the disk too.
    fn mounts(&mut self) -> fmt::Result {
        self.write_str("tmpfs / tmpfs rw 0 0\nproc /proc proc ro 0 0\n")?;
        let disk = self.process.bundle.disk().unwrap_or_default();
        if disk.is_empty() {
            return Ok(());
        }
        self.write_str("disk ")?;
        self.bytes(disk)?;
        self.write_str(" rcoe rw 0 0\n")
    }

    fn memory(&mut self) -> fmt::Result {
        let (all, left) = (self.process.memory(), self.process.machine.left() * PAGE);
        for (what, bytes) in [
            ("MemTotal", all),
            ("MemFree", left),
            ("MemAvailable", left),
            ("Buffers", 0),
            ("Cached", 0),
            ("SwapCached", 0),
            ("SwapTotal", 0),
            ("SwapFree", 0),
        ] {
            let kilobytes = bytes / 1024;
            // The column of the names is as wide as Linux has it.
            let width = 23 - what.len();
            writeln!(self, "{what}:{kilobytes:width$} kB")?;
        }
        Ok(())
    }

    fn counts(&mut self) -> fmt::Result {
        for core in ["cpu ", "cpu0"] {
            writeln!(self, "{core} 0 0 0 0 0 0 0 0 0 0")?;
        }
        let began = self.process.began() / SECOND;
        writeln!(self, "intr 0\nctxt 0\nbtime {began}")?;
        let made = self.process.threads.made();
        writeln!(self, "processes {made}\nprocs_running 1\nprocs_blocked 0")
    }
}
