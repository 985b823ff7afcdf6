//! Files: those of the bundle, and what a program writes, in memory until the end.
//!
//! A file has a path from the root and no links. A file of the bundle stays where it is until it is
//! written; then it is copied. Folders are there that lead to a file, and those that are made. What
//! is open when its name is taken away lives on without one until it is closed.

use rcoe_abi::bundle::Bundle;

use super::machine::{Machine, PAGE};
use super::streams::Target;
use super::tasks::{Each, PROCESSES};
use super::{Errno, Sparse};
use linux_raw_sys::errno::{
    EBUSY, EEXIST, EFBIG, EISDIR, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY,
};

mod kept;
mod descriptors;
mod io;
mod path;

use kept::{Change, Kept};
pub(crate) use kept::{Name, Scope, Told};
use descriptors::{Open, Table};
pub(crate) use path::Path;

/// Most files and folders, and most that are open.
pub(crate) const NODES: usize = 1024;
pub(crate) const OPEN: usize = 240;
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
    /// The name of a socket, with a number that no other one ever has.
    Socket(u32),
}

/// A file, a folder, or what else there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) path: Path,
    pub(crate) kind: Kind<'a>,
    pub(crate) mode: u32,
    /// What of it the disk does not have.
    change: Change,
}

/// All files of the machine.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    nodes: &'a mut [Node<'a>],
    open: [Open; OPEN],
    tables: Each<Table, PROCESSES>,
    kept: Kept,
}

impl<'a> Node<'a> {
    pub(crate) const FREE: Self = Self {
        path: Path::ROOT,
        kind: Kind::Free,
        mode: 0,
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
            kept: Kept::default(),
        };
        for (path, kind) in [
            (&b"/"[..], Kind::Folder),
            (b"/tmp", Kind::Folder),
            (b"/dev/null", Kind::Null),
            (b"/dev/zero", Kind::Zero),
            (b"/dev/random", Kind::Random),
            (b"/dev/urandom", Kind::Random),
            (b"/dev/console", Kind::Console),
        ] {
            files.add(Path::new(path).ok()?, kind, 0o666).ok()?;
        }
        for file in (0..).map_while(|index| bundle.file(index)) {
            let mode = u32::try_from(file.mode).ok()?;
            let path = Path::new(file.path).ok()?;
            files.add(path, Kind::Packed(file.content), mode).ok()?;
        }
        let mut all = files.nodes.iter();
        let program = all.find(|it| matches!(it.kind, Kind::Packed(_)));
        files.tables.program = program.map_or(Path::ROOT, |it| it.path);
        let input = files.find(Path::new(b"/dev/stdin").ok()?);
        let input = input.or_else(|| files.find(Path::new(b"/dev/null").ok()?))?;
        let output = files.find(Path::new(b"/dev/console").ok()?)?;
        for node in [input, output, output] {
            files.open(Target::Node(node), 2).ok()?;
        }
        Some(files)
    }

    /// The path that a program means.
    pub(crate) fn path(&self, text: &[u8]) -> Result<Path, Errno> {
        let path = self.tables.folder.join(text)?;
        // The one link that there is.
        if path.bytes() == b"/proc/self/exe" {
            return Ok(self.program());
        }
        Ok(path)
    }

    /// The path of the program.
    pub(crate) fn program(&self) -> Path {
        self.tables.program
    }

    /// The process at hand has the program at this path from here on.
    pub(crate) fn set_program(&mut self, path: Path) {
        self.tables.program = path;
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
        u32::try_from(mode & 0o777).unwrap_or(0) & !self.tables.mask
    }

    /// Other paths begin from this folder now.
    pub(crate) fn set_folder(&mut self, path: Path) -> Result<(), Errno> {
        let node = self.find(path).ok_or(Errno(ENOENT))?;
        if self.nodes[node].kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        self.tables.folder = path;
        Ok(())
    }

    /// What is at this path.
    pub(crate) fn find(&self, path: Path) -> Option<usize> {
        let mut all = self.nodes.iter();
        all.position(|it| it.kind != Kind::Free && it.path == path)
    }

    pub(crate) fn node(&self, node: usize) -> Node<'a> {
        self.nodes[node]
    }

    /// What is in a folder, from this place on: the next place, its number, its name.
    pub(crate) fn entry(&self, folder: usize, from: usize) -> Option<(usize, usize)> {
        let path = self.nodes[folder].path;
        let mut rest = (from..self.nodes.len()).filter(|&at| {
            let node = &self.nodes[at];
            node.kind != Kind::Free && node.path != Path::ROOT && node.path.parent() == path
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
            change: Change::NONE,
        };
        self.name_changed(place);
        Ok(place)
    }

    /// Makes a file or folder where its parent is.
    pub(crate) fn make(&mut self, path: Path, kind: Kind<'a>, mode: u32) -> Result<usize, Errno> {
        let parent = self.find(path.parent()).ok_or(Errno(ENOENT))?;
        if self.nodes[parent].kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        self.add(path, kind, mode)
    }

    /// Gives a file another path, in a folder that is there.
    pub(crate) fn set_path(&mut self, node: usize, path: Path) -> Result<(), Errno> {
        let parent = self.find(path.parent()).ok_or(Errno(ENOENT))?;
        if self.nodes[parent].kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        self.nodes[node].path = path;
        self.name_changed(node);
        Ok(())
    }

    pub(crate) fn set_mode(&mut self, node: usize, mode: u32) {
        self.nodes[node].mode = mode;
        self.name_changed(node);
    }

    /// Takes away what is at a path: a folder, or something else. What is open loses its name.
    pub(crate) fn take_away(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        path: Path,
        folder: bool,
    ) -> Result<(), Errno> {
        let node = self.find(path).ok_or(Errno(ENOENT))?;
        let is_folder = self.nodes[node].kind == Kind::Folder;
        if is_folder != folder {
            return Err(Errno(if folder { ENOTDIR } else { EISDIR }));
        }
        if self.is_disk(&path) {
            return Err(Errno(EBUSY));
        }
        if is_folder && (self.entry(node, 0).is_some() || path == Path::ROOT) {
            return Err(Errno(ENOTEMPTY));
        }
        self.name_goes(store, node);
        self.nodes[node].path = Path::NONE;
        self.forget(store, machine, node);
        Ok(())
    }

    /// What has no name and is not open any more is gone.
    pub(crate) fn forget(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
    ) {
        let is_open = |it: &Open| it.is_used() && it.target == Target::Node(node);
        if self.nodes[node].path != Path::NONE || self.open.iter().any(is_open) {
            return;
        }
        let emptied = self.truncate(store, machine, node, 0);
        assert!(emptied.is_ok(), "what gets smaller needs nothing");
        self.nodes[node] = Node::FREE;
    }
}

/// Bytes of what there is of a file of that size.
const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}
