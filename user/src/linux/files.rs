//! Files: those of the bundle, and what a program writes, in memory until the end.
//!
//! A file has a path from the root and no links. A file of the bundle stays where it is until it is
//! written; then it is copied. Folders are there that lead to a file, and those that are made.

use rcoe_abi::bundle::Bundle;

use super::machine::{Machine, PAGE};
use super::streams::Target;
use super::{Errno, Sparse};
use linux_raw_sys::errno::{
    EBADF, EEXIST, EFBIG, EINVAL, EISDIR, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOSPC, ENOTDIR,
    ENOTEMPTY,
};

mod io;
mod path;

pub(crate) use path::Path;

/// Most files and folders, and most that are open.
pub(crate) const NODES: usize = 128;
pub(crate) const OPEN: usize = 240;
/// No descriptor.
const CLOSED: u8 = u8::MAX;
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
}

/// A file, a folder, or what else there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) path: Path,
    pub(crate) kind: Kind<'a>,
    pub(crate) mode: u32,
}

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) target: Target,
    pub(crate) offset: u64,
    pub(crate) flags: u32,
    /// How many descriptors lead to it.
    count: u32,
}

impl Open {
    const FREE: Self = Self {
        target: Target::Node(0),
        offset: 0,
        flags: 0,
        count: 0,
    };

    /// The file or folder that it is; not what has no places, as pipes and sockets.
    pub(crate) const fn node(&self) -> Result<usize, Errno> {
        match self.target {
            Target::Node(node) => Ok(node),
            _ => Err(Errno(EINVAL)),
        }
    }
}

/// All files of a program.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    nodes: &'a mut [Node<'a>],
    open: [Open; OPEN],
    descriptors: [u8; OPEN],
    /// The folder that other paths begin from.
    folder: Path,
}

impl<'a> Node<'a> {
    pub(crate) const FREE: Self = Self {
        path: Path::ROOT,
        kind: Kind::Free,
        mode: 0,
    };
}

impl<'a> Files<'a> {
    /// The files of a bundle, with input and output open; `None` if there are too many.
    pub(crate) fn new(nodes: &'a mut [Node<'a>], bundle: Bundle<'a>) -> Option<Self> {
        let mut files = Self {
            nodes,
            open: [Open::FREE; OPEN],
            descriptors: [CLOSED; OPEN],
            folder: Path::ROOT,
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
        let path = self.folder.join(text)?;
        // The one link that there is.
        if path.bytes() == b"/proc/self/exe" {
            return Ok(self.program());
        }
        Ok(path)
    }

    /// The path of the program.
    pub(crate) fn program(&self) -> Path {
        let first = self
            .nodes
            .iter()
            .find(|it| matches!(it.kind, Kind::Packed(_)));
        first.map_or(Path::ROOT, |it| it.path)
    }

    pub(crate) const fn folder(&self) -> Path {
        self.folder
    }

    /// Other paths begin from this folder now.
    pub(crate) fn set_folder(&mut self, path: Path) -> Result<(), Errno> {
        let node = self.find(path).ok_or(Errno(ENOENT))?;
        if self.nodes[node].kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        self.folder = path;
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
        self.nodes[place] = Node { path, kind, mode };
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
        Ok(())
    }

    pub(crate) fn set_mode(&mut self, node: usize, mode: u32) {
        self.nodes[node].mode = mode;
    }

    /// Takes away what is at a path: a folder, or something else.
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
        if is_folder && (self.entry(node, 0).is_some() || path == Path::ROOT) {
            return Err(Errno(ENOTEMPTY));
        }
        let is_open = |it: &Open| it.count > 0 && it.target == Target::Node(node);
        if self.open.iter().any(is_open) {
            // It would live on without a name.
            return Err(Errno(linux_raw_sys::errno::EBUSY));
        }
        self.truncate(store, machine, node, 0)?;
        self.nodes[node] = Node::FREE;
        Ok(())
    }

    /// A new descriptor for what is opened.
    pub(crate) fn open(&mut self, target: Target, flags: u32) -> Result<usize, Errno> {
        let free = self.open.iter().position(|it| it.count == 0);
        let place = free.ok_or(Errno(ENFILE))?;
        let number = self.descriptor_from(0)?;
        self.open[place] = Open {
            target,
            offset: 0,
            flags,
            count: 1,
        };
        self.descriptors[number] = u8::try_from(place).map_err(|_| Errno(ENFILE))?;
        Ok(number)
    }

    fn descriptor_from(&self, least: usize) -> Result<usize, Errno> {
        let free = (least..OPEN).find(|&it| self.descriptors[it] == CLOSED);
        free.ok_or(Errno(EMFILE))
    }

    /// The place of what a descriptor leads to.
    pub(crate) fn place(&self, descriptor: u64) -> Result<usize, Errno> {
        let number = usize::try_from(descriptor & 0xffff_ffff).ok();
        let place = number.and_then(|it| self.descriptors.get(it)).copied();
        match place {
            Some(place) if place != CLOSED => Ok(usize::from(place)),
            _ => Err(Errno(EBADF)),
        }
    }

    /// What a descriptor leads to.
    pub(crate) fn of(&mut self, descriptor: u64) -> Result<&mut Open, Errno> {
        let place = self.place(descriptor)?;
        Ok(&mut self.open[place])
    }

    /// What is open at a place.
    pub(crate) const fn open_at(&self, place: usize) -> &Open {
        &self.open[place]
    }

    /// Closes a descriptor; the place of what it led to, and what that was, if it was the last one.
    pub(crate) fn close(&mut self, descriptor: u64) -> Result<Option<(usize, Target)>, Errno> {
        let place = self.place(descriptor)?;
        let number = usize::try_from(descriptor & 0xffff_ffff).map_err(|_| Errno(EBADF))?;
        self.descriptors[number] = CLOSED;
        let open = &mut self.open[place];
        open.count -= 1;
        Ok((open.count == 0).then_some((place, open.target)))
    }

    /// Another descriptor for the same, the lowest from `least` on.
    pub(crate) fn duplicate(&mut self, descriptor: u64, least: u64) -> Result<usize, Errno> {
        let place = self.place(descriptor)?;
        let least = usize::try_from(least).unwrap_or(OPEN);
        let number = self.descriptor_from(least)?;
        self.descriptors[number] = u8::try_from(place).map_err(|_| Errno(EBADF))?;
        self.open[place].count += 1;
        Ok(number)
    }

    /// The same as this very descriptor, which is not in use.
    pub(crate) fn duplicate_as(&mut self, descriptor: u64, to: u64) -> Result<usize, Errno> {
        let number = self.number(to)?;
        let made = self.duplicate(descriptor, number as u64)?;
        assert!(made == number, "it was closed");
        Ok(number)
    }

    /// A descriptor that can be, in use or not.
    pub(crate) fn number(&self, descriptor: u64) -> Result<usize, Errno> {
        let number = usize::try_from(descriptor & 0xffff_ffff).unwrap_or(OPEN);
        (number < OPEN).then_some(number).ok_or(Errno(EBADF))
    }
}

/// Bytes of what there is of a file of that size.
const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}
