//! Giving files other names, further ones, or none.
//!
//! A file is where its first name is; other ones lead there. One that has lost its last name stays
//! as long as it is open.

use linux_raw_sys::errno::{
    EBUSY, EEXIST, EINVAL, EISDIR, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, EPERM,
};

use super::{Errno, Files, Kind, Machine, Node, Open, Path, Sparse, Target};

/// Most names of a file.
const NAMES: usize = 255;

impl Files<'_> {
    /// The node to which one leads that is only a further name.
    pub(crate) fn behind(&self, place: usize) -> usize {
        match self.nodes[place].kind {
            Kind::Same(node) => node,
            _ => place,
        }
    }

    /// The name at this path, which may be a further one.
    pub(crate) fn name_at(&self, path: Path) -> Option<usize> {
        let mut all = self.nodes.iter();
        all.position(|it| it.kind != Kind::Free && it.path == path)
    }

    /// Names of a file.
    pub(crate) fn names(&self, node: usize) -> usize {
        let own = usize::from(self.nodes[node].path != Path::NONE);
        let is_other = |it: &&Node<'_>| it.kind == Kind::Same(node);
        own + self.nodes.iter().filter(is_other).count()
    }

    /// Gives a file a further name.
    pub(crate) fn add_name(&mut self, node: usize, path: Path) -> Result<(), Errno> {
        let kind = self.nodes[node].kind;
        if kind.is_folder() || matches!(kind, Kind::Told { .. }) {
            return Err(Errno(EPERM));
        }
        match self.names(node) {
            0 => return Err(Errno(ENOENT)),
            NAMES.. => return Err(Errno(EMLINK)),
            _ => {}
        }
        self.make(path, Kind::Same(node), 0).map(|_| ())
    }

    /// Takes away the name at a path: that of a folder, or of something else.
    pub(crate) fn take_away(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        path: Path,
        folder: bool,
    ) -> Result<(), Errno> {
        let place = self.name_at(path).ok_or_else(|| self.missing(path))?;
        let kind = self.nodes[place].kind;
        match (kind.is_folder(), folder) {
            (true, false) => return Err(Errno(EISDIR)),
            (false, true) => return Err(Errno(ENOTDIR)),
            _ if matches!(kind, Kind::Told { .. }) => return Err(Errno(EPERM)),
            (true, true) if path == Path::ROOT || kind != Kind::Folder || self.is_disk(&path) => {
                return Err(Errno(EBUSY));
            }
            (true, true) if self.entry(place, 0).is_some() => return Err(Errno(ENOTEMPTY)),
            _ => {}
        }
        self.touch_parent(path);
        if let Kind::Same(_) = kind {
            self.name_goes(store, place);
            self.nodes[place] = Node::FREE;
            return Ok(());
        }
        let mut all = self.nodes.iter();
        if let Some(other) = all.position(|it| it.kind == Kind::Same(place)) {
            self.name_goes(store, other);
            self.nodes[place].path = self.nodes[other].path;
            self.nodes[other] = Node::FREE;
            self.name_changed(place);
            return Ok(());
        }
        self.name_goes(store, place);
        self.nodes[place].path = Path::NONE;
        self.forget_nameless(store, machine, place)
    }

    /// Gives back a file that has no name and is not open.
    pub(crate) fn forget_nameless(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
    ) -> Result<(), Errno> {
        let is_open = |it: &Open| it.is_used() && it.target == Target::Node(node);
        let found = &self.nodes[node];
        let is_kept = found.path != Path::NONE || self.open.iter().any(is_open);
        let is_kept = is_kept || matches!(found.kind, Kind::Fifo(Some(_)));
        let is_kept = is_kept || self.is_mapped(node);
        if is_kept || found.kind == Kind::Free {
            return Ok(());
        }
        self.truncate(store, machine, node, 0)?;
        self.nodes[node] = Node::FREE;
        Ok(())
    }

    /// May something get this path, in place of what is there?
    pub(crate) fn check_move(&self, from: Path, to: Path) -> Result<(), Errno> {
        let place = self.name_at(from).ok_or_else(|| self.missing(from))?;
        let kind = self.nodes[place].kind;
        let is_fixed = [from, to].contains(&Path::ROOT) || self.leads_to_disk(from);
        let is_told = matches!(kind, Kind::Descriptors | Kind::Told { .. });
        if is_told || is_fixed {
            return Err(Errno(EBUSY));
        }
        if to.is_in(from) {
            return Err(Errno(EINVAL));
        }
        if from.is_in(to) {
            return Err(Errno(ENOTEMPTY));
        }
        let parent = self.find(to.parent()).ok_or_else(|| self.missing(to))?;
        if self.nodes[parent].kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        let Some(there) = self.name_at(to) else {
            return Ok(());
        };
        match (kind.is_folder(), self.nodes[there].kind.is_folder()) {
            (true, false) => Err(Errno(ENOTDIR)),
            (false, true) => Err(Errno(EISDIR)),
            (true, true) if self.entry(there, 0).is_some() => Err(Errno(ENOTEMPTY)),
            _ => Ok(()),
        }
    }

    /// Gives what is at a path another one, at which there is nothing, with all that is in it.
    pub(crate) fn set_path(&mut self, from: Path, to: Path) -> Result<(), Errno> {
        if self.name_at(to).is_some() {
            return Err(Errno(EEXIST));
        }
        let all = self.nodes.iter();
        let mut inside = all.filter(|it| it.path.is_in(from));
        if inside.any(|it| it.path.moved(from, to).is_none()) {
            return Err(Errno(ENAMETOOLONG));
        }
        let moved = |path: &mut Path| *path = path.moved(from, to).unwrap_or(*path);
        for node in 0..self.nodes.len() {
            if self.nodes[node].path.is_in(from) {
                moved(&mut self.nodes[node].path);
                self.name_changed(node);
            }
        }
        for process in 0..super::PROCESSES {
            let table = self.tables.at(process);
            moved(&mut table.folder);
            moved(&mut table.root);
            moved(&mut table.program);
        }
        self.touch_parent(from);
        self.touch_parent(to);
        Ok(())
    }

    /// May two names be exchanged?
    pub(crate) fn check_exchange(&self, from: Path, to: Path) -> Result<(), Errno> {
        for path in [from, to] {
            let place = self.find(path).ok_or_else(|| self.missing(path))?;
            let kind = self.nodes[self.name_at(path).unwrap_or(place)].kind;
            let is_told = matches!(kind, Kind::Descriptors | Kind::Told { .. });
            if path == Path::ROOT || is_told || self.leads_to_disk(path) {
                return Err(Errno(EBUSY));
            }
            if self.is_kept(&path) {
                // A disk learns names one after the other, and of none twice.
                return Err(Errno(EINVAL));
            }
        }
        if to.is_in(from) || from.is_in(to) {
            return Err(Errno(EINVAL));
        }
        Ok(())
    }

    /// Exchanges two names of which neither is in the other, with all that is in them.
    pub(crate) fn exchange(&mut self, from: Path, to: Path) -> Result<(), Errno> {
        let moved = |path: Path| match path.is_in(from) {
            true => path.moved(from, to),
            false => path.moved(to, from),
        };
        if self.nodes.iter().any(|it| moved(it.path).is_none()) {
            return Err(Errno(ENAMETOOLONG));
        }
        let set = |path: &mut Path| *path = moved(*path).unwrap_or(*path);
        for node in self.nodes.iter_mut() {
            set(&mut node.path);
        }
        for process in 0..super::PROCESSES {
            let table = self.tables.at(process);
            set(&mut table.folder);
            set(&mut table.root);
            set(&mut table.program);
        }
        self.touch_parent(from);
        self.touch_parent(to);
        Ok(())
    }

    /// A file that was written is a link from here on, of what was written.
    pub(crate) fn become_link(&mut self, node: usize) {
        self.nodes[node].kind = Kind::Link(self.size(node));
    }
}
