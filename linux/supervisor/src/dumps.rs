//! Core files of the replicas at a divergence.
//!
//! Intuition: what a replica was doing is best asked of a debugger. A core file holds the program's
//! memory and the registers with which it made its last call; the agent's memory and registers are
//! left out, as if the program ran without rcoe.
//!
//! Contract: replicas stand still while they are written, which takes a bounded time: there are
//! bounds on the bytes of a file, on the time for the files of a fault, and on the number of faults
//! of a run for which files are written.
//! The divergence was told before. Files are new, readable by their owner only, and sparse. What
//! goes wrong is told and changes nothing else.
//!
//! Not covered: the replica that has no process any more; vector registers; other threads of the
//! program than the one that had the processor.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use elfcore::{
    ArchState, CoreDumpBuilder, CoreError, Elf64_Auxv, MappedFile, ProcessInfoSource,
    ReadProcessMemory, ThreadView, VaProtection, VaRegion,
};
use linux_raw_sys::auxvec as at;
use rcoe_linux_abi::{AGENT_BASE, AGENT_END, PAGE_BYTES};

use crate::elf::Image;
use crate::events::DivergenceKind;
use crate::scene::outside::{Stopped, user_registers};
use crate::scene::{Area, Place, areas};

/// Most bytes of memory in one file.
pub const CORE_BYTES: u64 = 1 << 30;
/// Longest time that may be spent on the files of one fault.
pub(crate) const CORE_TIME: Duration = Duration::from_secs(20);
/// Faults of a run for which files are written.
pub const CORE_FAULTS: u32 = 4;

/// Checks that core files can be written into a folder.
///
/// # Errors
/// If they cannot.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    if !std::fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let probe = folder.join(format!(".rcoe-{}", std::process::id()));
    create(&probe)?;
    std::fs::remove_file(probe)
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// What a file is named after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Title {
    /// The process, as the program knows it.
    pub(crate) process: u32,
    /// Which fault of the run it is, from 1.
    pub(crate) fault: u32,
    pub(crate) kind: DivergenceKind,
    /// Number of the first event that differs.
    pub(crate) event: Option<u64>,
    pub(crate) replica: usize,
    /// The file that the process executes, by its number on its device.
    pub(crate) executes: u64,
}

impl Title {
    fn file_name(self) -> String {
        let Self {
            process,
            fault,
            kind,
            event,
            replica,
            ..
        } = self;
        let event = event.map_or_else(String::new, |event| format!("-event{event}"));
        let kind = kind.name();
        format!("core.{process}.fault{fault}.{kind}{event}.replica{replica}")
    }
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    /// Bytes of the program's memory that had no room in it.
    pub(crate) left_out: u64,
}

/// Writes a core file of a replica that stands still.
///
/// # Errors
/// A line for the user.
pub(crate) fn write(
    folder: &Path,
    title: Title,
    (pid, stopped): (u32, &Stopped),
    place: &Place,
    deadline: Instant,
) -> Result<Written, String> {
    let path = folder.join(title.file_name());
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = create(&path).map_err(|error| told(&error))?;
    let (regions, left_out) = choose(areas(pid), place.registers.rsp);
    let source = Source::new(pid, title, place, &regions);
    let core = CoreDumpBuilder::from_source(source, Memory(stopped));
    let mut sparse = Sparse {
        file,
        length: 0,
        deadline,
    };
    let result = core.write(&mut sparse);
    match result.map_err(plain).and_then(|_| sparse.finish()) {
        Ok(()) => Ok(Written { path, left_out }),
        Err(error) => {
            // A part of a core file misleads whoever looks at it.
            let _ = std::fs::remove_file(&path);
            Err(told(&error))
        }
    }
}

/// The host's error within one of the writer's.
fn plain(error: CoreError) -> io::Error {
    match error {
        CoreError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

/// What of a program's memory goes into a file: the stack first, and then the smaller ones before
/// the larger, in the order of their addresses. Also how many bytes have no room.
fn choose(all: Vec<Area>, stack: u64) -> (Vec<Area>, u64) {
    let agent = AGENT_BASE as u64..AGENT_END as u64;
    let mut wanted: Vec<Area> = all
        .into_iter()
        .filter(|it| it.may.starts_with('r') && !agent.contains(&it.start))
        .filter(|it| it.name != "[vvar]" && it.name != "[vsyscall]")
        .collect();
    wanted.sort_by_key(|it| (!(it.start..it.end).contains(&stack), it.end - it.start));
    let mut room = CORE_BYTES;
    let mut left_out = 0;
    wanted.retain(|it| {
        let bytes = it.end - it.start;
        let fits = bytes <= room;
        *(if fits { &mut room } else { &mut left_out }) =
            if fits { room - bytes } else { left_out + bytes };
        fits
    });
    wanted.sort_by_key(|it| it.start);
    (wanted, left_out)
}

/// A replica as the program would be without rcoe.
struct Source {
    threads: Vec<ThreadView>,
    regions: Vec<VaRegion>,
    auxiliary: Vec<Elf64_Auxv>,
    process: i32,
}

impl Source {
    fn new(pid: u32, title: Title, place: &Place, areas: &[Area]) -> Self {
        let process = i32::try_from(title.process).unwrap_or(0);
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        Self {
            threads: vec![thread(process, place, &read("comm"), &read("cmdline"))],
            regions: areas.iter().map(region).collect(),
            auxiliary: auxiliary(areas, title.executes),
            process,
        }
    }
}

impl ProcessInfoSource for Source {
    fn pid(&self) -> i32 {
        self.process
    }
    fn threads(&self) -> &[ThreadView] {
        &self.threads
    }
    fn va_regions(&self) -> &[VaRegion] {
        &self.regions
    }
    fn mapped_files(&self) -> Option<&[MappedFile]> {
        // Debuggers find the libraries by the program's own list of them.
        None
    }
    fn aux_vector(&self) -> Option<&[Elf64_Auxv]> {
        Some(&self.auxiliary)
    }
    fn page_size(&self) -> usize {
        PAGE_BYTES
    }
}

fn thread(process: i32, place: &Place, comm: &[u8], command: &[u8]) -> ThreadView {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', " ");
    ThreadView {
        tid: process,
        cmd_line: text(command).trim_end().to_owned(),
        comm: text(comm).trim_end().to_owned(),
        state: b'T',
        ppid: 0,
        pgrp: process,
        session: 0,
        flags: 0,
        utime: 0,
        stime: 0,
        cutime: 0,
        cstime: 0,
        nice: 0,
        uid: 0,
        gid: 0,
        cursig: 0,
        sighold: 0,
        sigpend: 0,
        arch_state: Box::new(ArchState {
            gpr_state: user_registers(place),
            components: Vec::new(),
        }),
    }
}

fn region(area: &Area) -> VaRegion {
    VaRegion {
        begin: area.start,
        end: area.end,
        offset: area.offset,
        protection: VaProtection {
            is_private: area.may.contains('p'),
            read: area.may.contains('r'),
            write: area.may.contains('w'),
            execute: area.may.contains('x'),
        },
        mapped_file_name: area.is_file().then(|| area.name.clone()),
    }
}

/// What a debugger needs of the vector that the program began with: where its file lies, and its
/// loader. The host's own is that of the agent.
pub(crate) fn auxiliary(areas: &[Area], executes: u64) -> Vec<Elf64_Auxv> {
    let Some(first) = areas.iter().find(|it| it.is_file() && it.inode == executes) else {
        return Vec::new();
    };
    let Some(image) = Image::of(Path::new(&first.name)) else {
        return Vec::new();
    };
    let bias = first.start.wrapping_sub(image.first);
    let mut all = vec![
        (at::AT_PAGESZ, PAGE_BYTES as u64),
        (at::AT_PHDR, bias.wrapping_add(image.headers)),
        (at::AT_PHNUM, image.count),
        (at::AT_ENTRY, bias.wrapping_add(image.entry)),
    ];
    let loader = image.loader.and_then(|it| std::fs::metadata(it).ok());
    let loader = loader.and_then(|file| areas.iter().find(|it| it.inode == file.ino()));
    all.extend(loader.map(|it| (at::AT_BASE, it.start)));
    all.push((at::AT_NULL, 0));
    let entry = |(key, a_val)| Elf64_Auxv {
        a_type: u64::from(key),
        a_val,
    };
    all.into_iter().map(entry).collect()
}

/// Memory of a replica; what cannot be read is zeroes.
struct Memory<'a>(&'a Stopped);

impl ReadProcessMemory for Memory<'_> {
    fn read_process_memory(&mut self, base: usize, bytes: &mut [u8]) -> Result<usize, CoreError> {
        bytes.fill(0);
        self.0.read(base as u64, bytes);
        Ok(bytes.len())
    }
}

/// A file in which pages of zeroes take no room.
struct Sparse {
    file: File,
    length: u64,
    /// When it is given up.
    deadline: Instant,
}

impl Sparse {
    /// Gives it its full length.
    fn finish(self) -> io::Result<()> {
        self.file.set_len(self.length)
    }
}

impl Write for &mut Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if Instant::now() > self.deadline {
            return Err(io::Error::other("given up: it takes too long"));
        }
        let length = u64::try_from(bytes.len()).unwrap_or(0);
        if bytes.len() >= PAGE_BYTES && bytes.iter().all(|&byte| byte == 0) {
            self.file.seek(SeekFrom::Current(length.cast_signed()))?;
        } else {
            self.file.write_all(bytes)?;
        }
        self.length += length;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, end: u64, may: &str) -> Area {
        Area {
            start,
            end,
            may: may.to_owned(),
            offset: 0,
            inode: 0,
            name: String::new(),
        }
    }

    #[test]
    fn names_tell_replica_and_event() {
        let mut title = Title {
            process: 9,
            fault: 2,
            kind: DivergenceKind::Mismatch,
            event: Some(17),
            replica: 1,
            executes: 0,
        };
        assert_eq!(title.file_name(), "core.9.fault2.mismatch-event17.replica1");
        title.event = None;
        assert_eq!(title.file_name(), "core.9.fault2.mismatch.replica1");
    }

    #[test]
    fn the_stack_comes_first_and_the_agent_not_at_all() {
        let agent = AGENT_BASE as u64;
        let all = vec![
            area(0x1000, 0x2000, "r-xp"),
            area(0x3000, 0x3000 + CORE_BYTES, "rw-p"),
            area(agent, agent + 0x1000, "rw-p"),
            area(1 << 46, (1 << 46) + 0x2000, "rw-p"),
            area(0x5000 + CORE_BYTES, 0x6000 + CORE_BYTES, "---p"),
        ];
        let (chosen, left_out) = choose(all, (1 << 46) + 8);
        let starts: Vec<u64> = chosen.iter().map(|it| it.start).collect();
        assert_eq!(starts, [0x1000, 1 << 46]);
        assert_eq!(left_out, CORE_BYTES);
    }

    #[test]
    fn zeroes_take_no_room_and_time_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("core");
        let mut sparse = Sparse {
            file: create(&path).expect("a new file"),
            length: 0,
            deadline: Instant::now() + Duration::from_secs(3600),
        };
        for _ in 0..1000 {
            (&mut sparse).write_all(&[0; PAGE_BYTES]).expect("room");
        }
        (&mut sparse).write_all(b"end").expect("room");
        (&mut sparse).write_all(&[0; PAGE_BYTES]).expect("room");
        sparse.deadline = Instant::now();
        let late = loop {
            // The clock may not have moved on yet.
            if let Err(error) = (&mut sparse).write_all(&[0; PAGE_BYTES]) {
                break error;
            }
        };
        assert!(late.to_string().contains("too long"), "{late}");
        let length = sparse.length;
        assert!(length >= 1001 * PAGE_BYTES as u64 + 3);
        sparse.finish().expect("a length");
        let file = std::fs::metadata(&path).expect("the file");
        assert_eq!(file.len(), length);
        assert!(
            file.blocks() * 512 < 100 * PAGE_BYTES as u64,
            "{}",
            file.blocks()
        );
        let content = std::fs::read(&path).expect("the file");
        assert_eq!(&content[1000 * PAGE_BYTES..][..3], b"end");
    }

    #[test]
    fn a_folder_is_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        check_folder(folder.path()).expect("a good folder");
        assert_eq!(folder.path().read_dir().expect("readable").count(), 0);
        assert!(check_folder(&folder.path().join("none")).is_err());
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("writable");
        assert!(check_folder(&file).is_err());
    }
}
