//! Files: those of the bundle, and what a program writes, in memory until the end.
//!
//! A file has a path from the root. A file of the bundle stays where it is until it is written;
//! then it is copied. Folders are there that lead to a file, and those that are made.

use rcoe_abi::bundle::{Bundle, Word};

use super::facts::{FACTS, Fact};
use super::machine::{Machine, PAGE};
use super::streams::Target;
use super::tasks::{Each, PROCESSES};
use super::{Errno, Sparse};
use linux_raw_sys::errno::{EEXIST, EFBIG, ENAMETOOLONG, ENOSPC, ENOTDIR};

mod changes;
mod descriptors;
mod io;
mod kept;
mod links;
mod mapped;
mod path;
mod times;

use descriptors::{Open, Table};
use kept::{Change, Kept};
pub(crate) use kept::{Name, Scope, Sort, Told};
pub(crate) use links::LINK;
use mapped::Mapped;
pub(crate) use mapped::Mapping;
pub(crate) use path::Path;

/// Most files and folders, most that are open, and the numbers that a process has for these.
pub(crate) const NODES: usize = 1024;
pub(crate) const OPEN: usize = 1280;
pub(crate) const FILE_NUMBERS: usize = 1024;
/// Largest file.
const LARGEST: u64 = 1 << 30;

/// What is at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind<'a> {
    /// Nothing: the place is free.
    Free,
    Folder,
    /// A file of the bundle.
    Packed(&'a [u8]),
    /// A file in memory, of so many bytes.
    Memory(u64),
    /// The program's output.
    Console,
    /// What is empty when it is read and takes all that is written.
    Null,
    /// What reads as zeroes.
    Zero,
    /// What reads as random numbers.
    Random,
    /// What has no room for anything that is written.
    Full,
    /// The name of a socket, with a number that no other one ever has.
    Socket(u32),
    /// A named pipe, and the pipe to which it leads while somebody uses it.
    Fifo(Option<usize>),
    /// A symbolic link, whose text has so many bytes.
    Link(u64),
    /// One that is there from the start.
    Fixed(&'static [u8]),
    /// A further name of another node.
    Same(usize),
    /// The folder of the descriptors of whoever asks.
    Descriptors,
    /// What tells of a process or the machine, in so many bytes once it is open; process 0 is the
    /// one that asks.
    Told {
        fact: Fact,
        whose: u64,
        bytes: u64,
    },
}

impl Kind<'_> {
    pub(crate) const fn is_folder(&self) -> bool {
        matches!(self, Self::Folder | Self::Descriptors)
    }
}

/// A file, a folder, or what else there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) path: Path,
    pub(crate) kind: Kind<'a>,
    pub(crate) mode: u32,
    times: [u64; 2],
    changed: bool,
    /// What of it the disk does not have.
    change: Change,
}

/// All files of the machine.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    nodes: &'a mut [Node<'a>],
    open: [Open; OPEN],
    tables: Each<Table, PROCESSES>,
    /// The numbers of processes, or 0.
    numbers: [u64; PROCESSES],
    kept: Kept,
    mapped: Mapped,
}

impl<'a> Node<'a> {
    pub(crate) const FREE: Self = Self {
        path: Path::ROOT,
        kind: Kind::Free,
        mode: 0,
        times: [0; 2],
        changed: false,
        change: Change::NONE,
    };
}

impl<'a> Files<'a> {
    /// The files of a bundle, with input and output open; `None` if there are too many.
    pub(crate) fn new(nodes: &'a mut [Node<'a>], bundle: Bundle<'a>) -> Option<Self> {
        let mut files = Self {
            nodes,
            open: [Open::FREE; OPEN],
            tables: Each::new([const { Table::FIRST }; PROCESSES]),
            numbers: [0; PROCESSES],
            kept: Kept::default(),
            mapped: Mapped::NONE,
        };
        files.add_first()?;
        for file in (0..).map_while(|index| bundle.file(index)) {
            let mode = u32::try_from(file.mode).ok()?;
            let path = Path::new(file.path).ok()?;
            files.add(path, Kind::Packed(file.content), mode).ok()?;
        }
        for [path, text] in links::FIRST_LINKS {
            // The host may have packed a file for the input.
            let _ = files.add(Path::new(path).ok()?, Kind::Fixed(text), 0o777);
        }
        let began = bundle.word(Word::Clock).unwrap_or(0);
        for node in files.nodes.iter_mut() {
            node.times = [began; 2];
        }
        let mut all = files.nodes.iter();
        let program = all.find(|it| matches!(it.kind, Kind::Packed(_)));
        files.tables.program = program.map_or(Path::ROOT, |it| it.path);
        let input = files.find(Path::new(b"/dev/stdin").ok()?);
        let input = input.filter(|&it| matches!(files.nodes[it].kind, Kind::Packed(_)));
        let input = input.or_else(|| files.find(Path::new(b"/dev/null").ok()?))?;
        let output = files.find(Path::new(b"/dev/console").ok()?)?;
        for node in [input, output, output] {
            files.open(Target::Node(node), 2).ok()?;
        }
        Some(files)
    }

    /// What is there without being packed.
    fn add_first(&mut self) -> Option<()> {
        for (path, kind, mode) in [
            (&b"/"[..], Kind::Folder, 0o755),
            (b"/tmp", Kind::Folder, 0o1777),
            (b"/dev/shm", Kind::Folder, 0o1777),
            (b"/dev/null", Kind::Null, 0o666),
            (b"/dev/zero", Kind::Zero, 0o666),
            (b"/dev/full", Kind::Full, 0o666),
            (b"/dev/random", Kind::Random, 0o666),
            (b"/dev/urandom", Kind::Random, 0o666),
            (b"/dev/console", Kind::Console, 0o666),
            (links::DESCRIPTORS, Kind::Descriptors, 0o500),
        ] {
            self.add(Path::new(path).ok()?, kind, mode).ok()?;
        }
        for (path, fact) in FACTS {
            let (whose, bytes) = (0, 0);
            let kind = Kind::Told { fact, whose, bytes };
            self.add(Path::new(path).ok()?, kind, 0o444).ok()?;
        }
        Some(())
    }

    /// The path of the program.
    pub(crate) fn program(&self) -> Path {
        self.tables.program
    }

    /// The process at hand has the program at this path from here on.
    pub(crate) fn set_program(&mut self, path: Path) {
        self.tables.program = path;
    }

    /// What others may not do with new files of the process at a place.
    pub(crate) fn mask_of(&self, process: usize) -> u32 {
        self.tables.all()[process].mask
    }

    /// These are the numbers of processes from here on.
    pub(crate) const fn set_numbers(&mut self, numbers: [u64; PROCESSES]) {
        self.numbers = numbers;
    }

    pub(crate) const fn numbers(&self) -> &[u64; PROCESSES] {
        &self.numbers
    }

    pub(super) const fn own_number(&self) -> u64 {
        self.numbers[self.tables.index()]
    }

    pub(crate) fn folder(&self) -> Path {
        self.tables.folder
    }

    /// Says what others may not do with new files; what was said before.
    pub(crate) fn set_mask(&mut self, mask: u32) -> u32 {
        core::mem::replace(&mut self.tables.mask, mask)
    }

    /// The permissions of a file that is made with these.
    pub(crate) fn masked(&self, mode: u64) -> u32 {
        u32::try_from(mode & 0o7777).unwrap_or(0) & !self.tables.mask
    }

    /// The folder that is the root for the process at hand.
    pub(crate) fn root(&self) -> Path {
        self.tables.root
    }

    /// Other paths begin from this folder now.
    pub(crate) fn set_folder(&mut self, path: Path) -> Result<(), Errno> {
        self.check_folder(path)?;
        self.tables.folder = path;
        Ok(())
    }

    /// Paths from the root begin from this folder now.
    pub(crate) fn set_root(&mut self, path: Path) -> Result<(), Errno> {
        self.check_folder(path)?;
        self.tables.root = path;
        Ok(())
    }

    /// What is at this path.
    pub(crate) fn find(&self, path: Path) -> Option<usize> {
        let place = self.name_at(path).or_else(|| self.fact_at(&path));
        place.map(|place| self.behind(place))
    }

    pub(crate) fn node(&self, node: usize) -> Node<'a> {
        self.nodes[node]
    }

    /// What is in a folder, from this place on: the next place, its number, its name.
    pub(crate) fn entry(&self, folder: usize, from: usize) -> Option<(usize, usize)> {
        let path = self.nodes[folder].path;
        let mut rest = (from..self.nodes.len()).filter(|&at| {
            let node = &self.nodes[at];
            let is_named = ![Path::ROOT, Path::NONE].contains(&node.path);
            node.kind != Kind::Free && is_named && node.path.parent() == path
        });
        rest.next().map(|at| (at + 1, at))
    }

    /// Adds something, with the folders that lead there.
    pub(crate) fn add(&mut self, path: Path, kind: Kind<'a>, mode: u32) -> Result<usize, Errno> {
        if self.find(path).is_some() {
            return Err(Errno(EEXIST));
        }
        if path != Path::ROOT && self.find(path.parent()).is_none() {
            self.add(path.parent(), Kind::Folder, 0o755)?;
        }
        let free = self.nodes.iter().position(|it| it.kind == Kind::Free);
        let place = free.ok_or(Errno(ENOSPC))?;
        self.nodes[place] = Node {
            path,
            kind,
            mode,
            ..Node::FREE
        };
        self.name_changed(place);
        Ok(place)
    }

    /// Makes an empty file that has no name.
    pub(crate) fn make_nameless(&mut self) -> Result<usize, Errno> {
        let free = self.nodes.iter().position(|it| it.kind == Kind::Free);
        let place = free.ok_or(Errno(ENOSPC))?;
        self.nodes[place] = Node {
            path: Path::NONE,
            kind: Kind::Memory(0),
            mode: 0o444,
            ..Node::FREE
        };
        Ok(place)
    }

    /// What was written to a file is what it tells.
    pub(crate) fn set_told(&mut self, node: usize, fact: Fact, whose: u64, bytes: u64) {
        self.nodes[node].kind = Kind::Told { fact, whose, bytes };
        self.nodes[node].changed = false;
    }

    /// Makes a file or folder where its parent is.
    pub(crate) fn make(&mut self, path: Path, kind: Kind<'a>, mode: u32) -> Result<usize, Errno> {
        let parent = self.find(path.parent()).ok_or_else(|| self.missing(path))?;
        if self.nodes[parent].kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        let made = self.add(path, kind, mode)?;
        self.touch(parent);
        self.touch(made);
        Ok(made)
    }

    /// A named pipe leads to this pipe from here on, or to none.
    pub(crate) fn set_pipe(&mut self, node: usize, pipe: Option<usize>) {
        self.nodes[node].kind = Kind::Fifo(pipe);
    }

    pub(crate) fn set_mode(&mut self, node: usize, mode: u32) {
        self.nodes[node].mode = mode;
        self.name_changed(node);
    }
}

/// Bytes of what there is of a file of that size.
const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}
