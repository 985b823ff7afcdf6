//! What of the files in one folder, that of the disk, the disk does not have as it is.
//!
//! A file there has a number that it keeps on the disk, whatever its path. Noted of it are whether
//! its name or size changed, how small it was meanwhile, and which of its pages were written; and
//! what is gone shows by numbers that lead to nothing.

use super::io::{frame, is_changed, set_changed};
use super::{EFBIG, ENOSPC, Errno, Files, Kind, Machine, NODES, Node, Path, Sparse, pages};
use linux_raw_sys::errno::{EINVAL, ENOENT};

/// No number on the disk, and no file.
const NONE: u16 = u16::MAX;

/// What of a file the disk does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// Its number on the disk.
    id: u16,
    /// Its path, mode or size.
    name: bool,
    /// The smallest size that it had meanwhile.
    least: u64,
    /// The pages among which are those that were written.
    first: u64,
    end: u64,
}

impl Change {
    pub(super) const NONE: Self = Self {
        id: NONE,
        name: false,
        least: u64::MAX,
        first: u64::MAX,
        end: 0,
    };

    const fn is_any(&self) -> bool {
        self.name || self.first < self.end
    }
}

/// The files of the disk.
#[derive(Debug)]
pub(super) struct Kept {
    /// Where they are.
    folder: Option<Path>,
    /// The files of numbers, as the disk knows them.
    files: [u16; NODES],
    /// Pages that they have, and may have.
    pages: u64,
    limit: u64,
    /// Is there anything that the disk does not have?
    changed: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            folder: None,
            files: [NONE; NODES],
            pages: 0,
            limit: 0,
            changed: false,
        }
    }
}

/// Which files the disk is told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// What changed.
    Changes,
    /// All that there is.
    All,
}

/// What the disk is told of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told<'p> {
    /// The file of this number is gone.
    Gone(u16),
    /// There is such a file or folder.
    File(u16, Name<'p>),
    /// A page of a file: its number, which one it is, and the frame that holds it.
    Page(u16, u64, u32),
}

/// What the disk has names of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    File,
    Folder,
    Link,
    /// A further name of the file of this number.
    Same(u16),
}

/// A file or what else there is, by its path in the folder of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name<'p> {
    pub(crate) path: &'p [u8],
    pub(crate) sort: Sort,
    pub(crate) mode: u32,
    /// Bytes, and the fewest that it had since the disk was told last.
    pub(crate) size: u64,
    pub(crate) least: u64,
    /// When it was used and changed.
    pub(crate) times: [u64; 2],
}

impl<'a> Files<'a> {
    /// Does the disk keep what is at this path?
    pub(crate) fn is_kept(&self, path: &Path) -> bool {
        self.within(path).is_some()
    }

    /// Is that the folder of the disk, or something in it?
    pub(crate) fn is_on_disk(&self, path: &Path) -> bool {
        self.is_disk(path) || self.is_kept(path)
    }

    /// Is that the folder of the disk?
    pub(super) fn is_disk(&self, path: &Path) -> bool {
        self.kept.folder.as_ref() == Some(path)
    }

    /// The path in the folder of the disk.
    fn within<'p>(&self, path: &'p Path) -> Option<&'p [u8]> {
        let folder = self.kept.folder.as_ref()?;
        path.bytes()
            .strip_prefix(folder.bytes())?
            .strip_prefix(b"/")
    }

    /// Does a path lead to the folder of the disk, or is it that?
    pub(super) fn leads_to_disk(&self, path: Path) -> bool {
        let folder = self.kept.folder;
        folder.is_some_and(|folder| folder.is_in(path))
    }

    fn keeps(&self, node: usize) -> bool {
        self.kept.folder.is_some() && self.is_kept(&self.nodes[node].path)
    }

    /// A file is new, or has another path or mode.
    pub(super) fn name_changed(&mut self, node: usize) {
        if self.keeps(node) {
            self.nodes[node].change.name = true;
            self.kept.changed = true;
        }
    }

    pub(super) fn size_changed(&mut self, node: usize, size: u64) {
        if self.keeps(node) {
            self.name_changed(node);
            let change = &mut self.nodes[node].change;
            change.least = change.least.min(size);
        }
    }

    /// The path of a file is about to be taken away, and it with that.
    pub(super) fn name_goes(&mut self, store: &Sparse<'_>, node: usize) {
        if self.keeps(node) {
            self.kept.changed = true;
            self.kept.pages -= self.count(store, node);
            self.nodes[node].change = Change::NONE;
        }
    }

    /// How many pages a file has.
    fn count(&self, store: &Sparse<'_>, node: usize) -> u64 {
        let all = 0..pages(self.size(node));
        all.filter(|&page| frame(store, node, page).is_some())
            .count() as u64
    }

    /// A file is to have one page more.
    pub(super) fn page_comes(&mut self, node: usize) -> Result<(), Errno> {
        if self.keeps(node) {
            if self.kept.pages >= self.kept.limit {
                return Err(Errno(ENOSPC));
            }
            self.kept.pages += 1;
        }
        Ok(())
    }

    pub(super) fn page_goes(&mut self, node: usize) {
        if self.keeps(node) {
            self.kept.pages -= 1;
        }
    }

    pub(super) fn page_changed(&mut self, store: &mut Sparse<'_>, node: usize, page: u64) {
        if self.keeps(node) {
            set_changed(store, node, page, true);
            let change = &mut self.nodes[node].change;
            (change.first, change.end) = (change.first.min(page), change.end.max(page + 1));
            self.kept.changed = true;
        }
    }

    /// Is there anything that the disk does not have?
    pub(crate) const fn has_changed(&self) -> bool {
        self.kept.changed
    }

    /// Pages that the files of the disk may have, and have.
    pub(crate) const fn kept_pages(&self) -> (u64, u64) {
        (self.kept.limit, self.kept.pages)
    }

    /// All that the disk said is there: from here on changes are noted.
    pub(crate) fn keep(&mut self, store: &Sparse<'_>, folder: Path, limit: u64) {
        self.kept.folder = Some(folder);
        self.kept.limit = limit;
        let kept = (0..self.nodes.len()).filter(|&node| self.keeps(node));
        self.kept.pages = kept.map(|node| self.count(store, node)).sum();
    }

    /// Gives each file of the disk a number. If there are not enough, as the disk does not know yet
    /// of all that are gone, all have other ones then, and it has to be told everything: which it
    /// tells.
    pub(crate) fn assign_numbers(&mut self) -> Scope {
        let known = self.kept.files.map(|node| node != NONE);
        if self.number_but(known) {
            return Scope::Changes;
        }
        for node in self.nodes.iter_mut() {
            node.change.id = NONE;
        }
        let all = self.number_but([false; NODES]);
        assert!(all, "there are as many numbers as files");
        Scope::All
    }

    /// Gives each file that has none a number that is not used; tells whether there are enough.
    fn number_but(&mut self, mut used: [bool; NODES]) -> bool {
        for node in self.nodes.iter() {
            if let Some(used) = used.get_mut(usize::from(node.change.id)) {
                *used = true;
            }
        }
        let mut free = (0..NODES).filter(|&id| !used[id]);
        for node in 0..self.nodes.len() {
            if self.sort_of(node).is_some() && self.nodes[node].change.id == NONE {
                let Some(id) = free.next().and_then(|id| u16::try_from(id).ok()) else {
                    return false;
                };
                self.nodes[node].change.id = id;
            }
        }
        true
    }

    /// What a node is on the disk. Sockets have no place there.
    fn sort_of(&self, node: usize) -> Option<Sort> {
        let sort = match self.nodes[node].kind {
            Kind::Folder => Sort::Folder,
            Kind::Memory(_) => Sort::File,
            Kind::Link(_) => Sort::Link,
            Kind::Same(file) => Sort::Same(self.nodes[file].change.id),
            _ => return None,
        };
        self.keeps(node).then_some(sort)
    }

    /// Tells of what the disk is to know: first what is gone, then of each file its name and its
    /// pages, and then further names.
    pub(crate) fn tell<E>(
        &self,
        store: &Sparse<'_>,
        scope: Scope,
        hear: &mut impl FnMut(Told<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if scope == Scope::Changes {
            for (id, &node) in (0..).zip(&self.kept.files) {
                let is_there = |node: &Node<'a>| node.change.id == id;
                if node != NONE && !self.nodes.get(usize::from(node)).is_some_and(is_there) {
                    hear(Told::Gone(id))?;
                }
            }
        }
        for further in [false, true] {
            for node in 0..self.nodes.len() {
                let is_further = matches!(self.nodes[node].kind, Kind::Same(_));
                if let (true, Some(sort)) = (is_further == further, self.sort_of(node)) {
                    self.tell_of(store, (node, sort), scope, hear)?;
                }
            }
        }
        Ok(())
    }

    fn tell_of<E>(
        &self,
        store: &Sparse<'_>,
        (node, sort): (usize, Sort),
        scope: Scope,
        hear: &mut impl FnMut(Told<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Node {
            path, mode, change, ..
        } = &self.nodes[node];
        if scope == Scope::Changes && !change.is_any() {
            return Ok(());
        }
        let size = self.size(node);
        let name = Name {
            path: self.within(path).unwrap_or_default(),
            sort,
            mode: *mode,
            size,
            least: if scope == Scope::All {
                0
            } else {
                change.least.min(size)
            },
            times: self.times(node),
        };
        hear(Told::File(change.id, name))?;
        let (first, end) = match scope {
            Scope::All => (0, u64::MAX),
            Scope::Changes => (change.first, change.end),
        };
        for page in first..end.min(pages(size)) {
            let is_wanted = scope == Scope::All || is_changed(store, node, page);
            if let (true, Some(frame)) = (is_wanted, frame(store, node, page)) {
                hear(Told::Page(change.id, page, frame))?;
            }
        }
        Ok(())
    }

    /// The disk has all that it was told.
    pub(crate) fn settle(&mut self, store: &mut Sparse<'_>) {
        self.kept.files = [NONE; NODES];
        for node in 0..self.nodes.len() {
            let Change { id, first, end, .. } = self.nodes[node].change;
            for page in first..end.min(pages(self.size(node))) {
                set_changed(store, node, page, false);
            }
            if let Some(place) = self.kept.files.get_mut(usize::from(id)) {
                *place = u16::try_from(node).unwrap_or(NONE);
            }
            self.nodes[node].change = Change { id, ..Change::NONE };
        }
        self.kept.changed = false;
    }
}

/// What the disk says, before changes are noted. It is from outside, so all of it is checked.
impl Files<'_> {
    /// The file of a number is gone. Tells whether there was any.
    pub(crate) fn hear_gone(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        id: u16,
    ) -> bool {
        let Some(node) = self.heard(id) else {
            return false;
        };
        self.kept.files[usize::from(id)] = NONE;
        self.nodes[node].path = Path::NONE;
        self.nodes[node].change = Change::NONE;
        self.forget_nameless(store, machine, node).is_ok()
    }

    /// The file of a number, if there is one.
    fn heard(&self, id: u16) -> Option<usize> {
        let node = *self.kept.files.get(usize::from(id))?;
        (node != NONE).then_some(usize::from(node))
    }

    /// There is such a file or folder, with this number.
    ///
    /// # Errors
    /// If there cannot be, or there is no room for it.
    pub(crate) fn hear_name(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        folder: Path,
        (id, name): (u16, Name<'_>),
    ) -> Result<(), Errno> {
        let path = folder.join(name.path)?;
        let within = path.bytes().strip_prefix(folder.bytes());
        if !within.is_some_and(|rest| rest.starts_with(b"/")) {
            return Err(Errno(ENOENT));
        }
        let kind = match name.sort {
            Sort::Folder => Kind::Folder,
            Sort::File => Kind::Memory(name.size),
            Sort::Link => Kind::Link(name.size),
            Sort::Same(file) => Kind::Same(self.heard(file).ok_or(Errno(ENOENT))?),
        };
        let node = match self.heard(id) {
            Some(node) => node,
            None => self.hear_of_new(id, kind)?,
        };
        let found = self.nodes[node].kind;
        if core::mem::discriminant(&found) != core::mem::discriminant(&kind) {
            return Err(Errno(EINVAL));
        }
        self.nodes[node].path = path;
        self.nodes[node].mode = name.mode & 0o7777;
        if let Kind::Memory(_) | Kind::Link(_) = kind {
            self.truncate(store, machine, node, name.least)?;
            self.truncate(store, machine, node, name.size)?;
        }
        self.nodes[node].kind = kind;
        self.set_times(node, name.times.map(Some));
        Ok(())
    }

    fn hear_of_new(&mut self, id: u16, kind: Kind<'_>) -> Result<usize, Errno> {
        let free = self.nodes.iter().position(|it| it.kind == Kind::Free);
        let node = free.ok_or(Errno(ENOSPC))?;
        let place = self.kept.files.get_mut(usize::from(id));
        *place.ok_or(Errno(EINVAL))? = u16::try_from(node).unwrap_or(NONE);
        self.nodes[node] = Node {
            // Nothing of it is there as yet.
            kind: match kind {
                Kind::Memory(_) => Kind::Memory(0),
                Kind::Link(_) => Kind::Link(0),
                Kind::Same(file) => Kind::Same(file),
                _ => Kind::Folder,
            },
            change: Change { id, ..Change::NONE },
            ..Node::FREE
        };
        Ok(node)
    }

    /// A page of a file holds this.
    ///
    /// # Errors
    /// If the file has no such page, or there is no room for it.
    pub(crate) fn hear_page(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        (id, page): (u16, u64),
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let node = self.heard(id).ok_or(Errno(ENOENT))?;
        if page >= pages(self.size(node)) {
            return Err(Errno(EFBIG));
        }
        self.put(store, machine, (node, page * super::PAGE), bytes)
    }
}
