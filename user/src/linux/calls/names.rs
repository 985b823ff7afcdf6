//! Calls about files by their names.

use linux_raw_sys::errno::{
    EACCES, EBADF, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO, EOPNOTSUPP, EPERM, ERANGE,
};
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, O_ACCMODE,
    O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_TRUNC, O_WRONLY, R_OK,
    S_IFDIR, S_IFMT, S_ISGID, S_ISUID, S_IXGRP, W_OK, X_OK,
};

use super::system::remain;
use crate::linux::arch::{file_words, nr};
use crate::linux::files::{Kind, Path};
use crate::linux::stat::STAT_WORDS;
use crate::linux::streams::Target;
use crate::linux::{Answer, Errno, Machine, Process};

/// The folder of calls that name none.
#[expect(
    clippy::cast_sign_loss,
    reason = "a negative descriptor, as it comes in a register"
)]
pub(super) const HERE: u64 = AT_FDCWD as u32 as u64;

/// How it may be asked what a file is like.
pub(super) const STAT_FLAGS: u64 =
    AT_NO_AUTOMOUNT as u64 | AT_SYMLINK_NOFOLLOW as u64 | AT_EMPTY_PATH as u64;
/// How it may be asked what may be done with a file.
const ACCESS_FLAGS: u64 = AT_EACCESS as u64 | AT_SYMLINK_NOFOLLOW as u64 | AT_EMPTY_PATH as u64;

impl<M: Machine> Process<'_, M> {
    pub(super) fn name_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_open => self.open([HERE, first, second, third]),
            nr::__NR_creat => {
                let flags = u64::from(O_CREAT | O_WRONLY | O_TRUNC);
                self.open([HERE, first, flags, second])
            }
            nr::__NR_openat => self.open([first, second, third, fourth]),
            nr::__NR_stat => self.stat(HERE, first, second, 0),
            nr::__NR_lstat => self.stat(HERE, first, second, AT_SYMLINK_NOFOLLOW.into()),
            nr::__NR_newfstatat if fourth & !STAT_FLAGS != 0 => Err(Errno(EINVAL)),
            nr::__NR_newfstatat => self.stat(first, second, third, fourth),
            nr::__NR_fstat => self.stat_open(first, second),
            nr::__NR_access => self.access([HERE, first, second, 0]),
            nr::__NR_faccessat => self.access([first, second, third, 0]),
            nr::__NR_faccessat2 if fourth & !ACCESS_FLAGS != 0 => Err(Errno(EINVAL)),
            nr::__NR_faccessat2 => self.access([first, second, third, fourth]),
            nr::__NR_getcwd => self.current(first, second),
            nr::__NR_chdir => {
                let path = self.path(HERE, first);
                path.and_then(|path| self.files.set_folder(path))
                    .map(|()| 0)
            }
            nr::__NR_chroot => {
                let path = self.path(HERE, first);
                path.and_then(|path| self.files.set_root(path)).map(|()| 0)
            }
            nr::__NR_mkdir => self.make_folder(HERE, first, second),
            nr::__NR_mkdirat => self.make_folder(first, second, third),
            nr::__NR_umask => {
                let mask = u32::try_from(first & 0o777).unwrap_or(0);
                Ok(self.files.set_mask(mask).into())
            }
            _ => return self.right_call(call, words),
        })
    }

    /// Whose files are, and what may be done with them.
    fn right_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_chmod => self
                .named(HERE, first)
                .and_then(|node| self.change_mode(node, second)),
            nr::__NR_fchmodat => self
                .named(first, second)
                .and_then(|node| self.change_mode(node, third)),
            nr::__NR_fchmodat2 if fourth & !u64::from(AT_SYMLINK_NOFOLLOW) != 0 => {
                Err(Errno(EINVAL))
            }
            nr::__NR_fchmodat2 => {
                let node = self.named_as(first, second, fourth);
                node.and_then(|node| match self.files.node(node).kind {
                    // Links have all rights.
                    Kind::Link(_) | Kind::Fixed(_) => Err(Errno(EOPNOTSUPP)),
                    _ => self.change_mode(node, third),
                })
            }
            nr::__NR_fchmod => self
                .node_of_open(first)
                .and_then(|node| self.change_mode(node, second)),
            nr::__NR_chown => {
                let node = self.named(HERE, first);
                node.and_then(|node| self.change_owner(node, [second, third]))
            }
            nr::__NR_lchown => {
                let node = self.named_itself(HERE, first);
                node.and_then(|node| self.change_owner(node, [second, third]))
            }
            nr::__NR_fchown => {
                let node = self.files.of(first).map(|open| open.node().ok());
                node.and_then(|node| match node {
                    Some(node) => self.change_owner(node, [second, third]),
                    None => remain(&[second, third]),
                })
            }
            nr::__NR_fchownat => {
                let node = self.named_as(first, second, words[4]);
                node.and_then(|node| self.change_owner(node, [third, fourth]))
            }
            _ => return None,
        })
    }

    /// The path that a text means in an open folder, behind all links.
    pub(super) fn path(&mut self, folder: u64, text: u64) -> Result<Path, Errno> {
        self.path_as(folder, text, true)
    }

    /// The same, of a link itself if it is one.
    pub(super) fn path_itself(&mut self, folder: u64, text: u64) -> Result<Path, Errno> {
        self.path_as(folder, text, false)
    }

    fn path_as(&mut self, folder: u64, text: u64, follows: bool) -> Result<Path, Errno> {
        let text = self.text(text)?;
        if text.bytes().is_empty() {
            return Err(Errno(ENOENT));
        }
        let rooted = text.bytes().starts_with(b"/");
        let base = if folder & 0xffff_ffff == HERE || rooted {
            self.files.folder()
        } else {
            self.open_folder(folder)?
        };
        self.meant(base, text.bytes(), follows)
    }

    /// The path of a folder that is open.
    fn open_folder(&mut self, folder: u64) -> Result<Path, Errno> {
        let node = self.files.of(folder)?.node().map_err(|_| Errno(ENOTDIR))?;
        let folder = self.files.node(node);
        match folder.kind.is_folder() {
            true if folder.path == Path::NONE => Err(Errno(ENOENT)),
            true => Ok(folder.path),
            false => Err(Errno(ENOTDIR)),
        }
    }

    /// The path that bytes mean from a folder.
    pub(super) fn meant(&self, base: Path, text: &[u8], follows: bool) -> Result<Path, Errno> {
        let kept = (&self.store, &self.machine);
        self.files.resolve(kept, (base, text), follows)
    }

    pub(super) fn named(&mut self, folder: u64, text: u64) -> Result<usize, Errno> {
        self.named_as(folder, text, 0)
    }

    pub(super) fn named_itself(&mut self, folder: u64, text: u64) -> Result<usize, Errno> {
        self.named_as(folder, text, AT_SYMLINK_NOFOLLOW.into())
    }

    /// What a text names, with flags that say whether a link itself is meant.
    pub(super) fn named_as(&mut self, folder: u64, text: u64, flags: u64) -> Result<usize, Errno> {
        let itself = flags & u64::from(AT_SYMLINK_NOFOLLOW) != 0;
        let path = self.path_as(folder, text, !itself)?;
        if let Some(file) = self.files.descriptor_at(&path) {
            // What has no node has nothing that could be asked or changed by its name.
            return self.files.of(file)?.node().map_err(|_| Errno(ENOENT));
        }
        let found = self.files.find(path);
        found.ok_or_else(|| self.files.missing(path))
    }

    fn open(&mut self, [folder, text, flags, mode]: [u64; 4]) -> Answer {
        let flags = u32::try_from(flags & 0xffff_ffff).unwrap_or(0);
        if let Some(answer) = self.open_later(flags) {
            return answer;
        }
        let has = |bit: u32| flags & bit != 0;
        let itself = has(O_NOFOLLOW) || has(O_CREAT) && has(O_EXCL);
        let path = self.path_as(folder, text, !itself)?;
        if let Some(file) = self.files.descriptor_at(&path) {
            return self.open_again(file, flags);
        }
        let found = self.files.find(path);
        if found.is_some() && has(O_CREAT) && has(O_EXCL) {
            return Err(Errno(EEXIST));
        }
        let node = match found {
            Some(node) => node,
            None if has(O_CREAT) => {
                let mode = self.files.masked(mode);
                self.files.make(path, Kind::Memory(0), mode)?
            }
            None => return Err(self.files.missing(path)),
        };
        let whose = self.files.whose(&path);
        match (self.files.node(node).kind, whose) {
            (Kind::Told { fact, whose: 0, .. }, _) => {
                self.open_told(fact, whose.unwrap_or(self.task.number), flags)
            }
            (kind, Some(_)) if kind.is_folder() => Err(self.refuse_folder()),
            _ => self.open_node(node, flags),
        }
    }

    /// Opens what a descriptor leads to, by the name that this has.
    fn open_again(&mut self, file: u64, flags: u32) -> Answer {
        let open = *self.files.of(file)?;
        if let Some(node) = self.named_pipe(open.target) {
            return self.open_node(node, flags);
        }
        let can = open.flags & O_ACCMODE == flags & O_ACCMODE;
        match open.target {
            Target::Node(node) => self.open_node(node, flags),
            Target::Reader(_) | Target::Writer(_) if can => {
                let private = flags & O_CLOEXEC != 0;
                let made = self.files.duplicate(file, 0, private);
                made.map(|it| it as u64)
            }
            _ => Err(Errno(ENXIO)),
        }
    }

    fn open_node(&mut self, node: usize, flags: u32) -> Answer {
        let has = |bit: u32| flags & bit != 0;
        let kind = self.files.node(node).kind;
        let is_folder = kind.is_folder();
        match kind {
            Kind::Socket(_) => return Err(Errno(ENXIO)),
            Kind::Fifo(_) if has(O_DIRECTORY) => return Err(Errno(ENOTDIR)),
            Kind::Told { fact, whose, .. } => return self.open_told(fact, whose, flags),
            Kind::Fifo(_) => return self.open_fifo(node, flags),
            Kind::Link(_) | Kind::Fixed(_) => return Err(Errno(ELOOP)),
            _ => {}
        }
        let writes = flags & O_ACCMODE != O_RDONLY;
        if is_folder && writes {
            return Err(Errno(EISDIR));
        }
        if !is_folder && has(O_DIRECTORY) {
            return Err(Errno(ENOTDIR));
        }
        let number = self.files.open(Target::Node(node), flags)?;
        if has(O_TRUNC) && writes {
            let (store, machine) = (&mut self.store, &mut self.machine);
            self.files.truncate(store, machine, node, 0)?;
        }
        Ok(number as u64)
    }

    fn stat(&mut self, folder: u64, text: u64, to: u64, flags: u64) -> Answer {
        let words = self.told(folder, text, flags)?;
        self.write_words(to, &file_words(&words)).map(|()| 0)
    }

    fn stat_open(&mut self, file: u64, to: u64) -> Answer {
        let words = self.told_of_open(file)?;
        self.write_words(to, &file_words(&words)).map(|()| 0)
    }

    /// What is told of a file, by its name in a folder or as the open one that the folder is.
    pub(super) fn told(
        &mut self,
        folder: u64,
        text: u64,
        flags: u64,
    ) -> Result<[u64; STAT_WORDS], Errno> {
        if flags & u64::from(AT_EMPTY_PATH) != 0 && self.text(text)?.bytes().is_empty() {
            return self.told_of_open(folder);
        }
        let itself = flags & u64::from(AT_SYMLINK_NOFOLLOW) != 0;
        let path = self.path_as(folder, text, !itself)?;
        match self.files.descriptor_at(&path) {
            Some(file) if itself => Ok(self.stat_of_link(file)),
            Some(file) => self.told_of_open(file),
            None => {
                let found = self.files.find(path);
                let node = found.ok_or_else(|| self.files.missing(path))?;
                self.give_time(node);
                Ok(self.stat_words(node))
            }
        }
    }

    fn told_of_open(&mut self, file: u64) -> Result<[u64; STAT_WORDS], Errno> {
        Ok(
            match self.files.of(file).map_err(|_| Errno(EBADF))?.target {
                Target::Node(node) => {
                    self.give_time(node);
                    self.stat_words(node)
                }
                target => match self.named_pipe(target) {
                    Some(node) => self.stat_words(node),
                    None => self.stat_stream(target),
                },
            },
        )
    }

    /// The superuser may do anything with what is there, but execute what nobody may.
    fn access(&mut self, [folder, text, wanted, flags]: [u64; 4]) -> Answer {
        let wanted = u32::try_from(wanted & 0xffff_ffff).unwrap_or(u32::MAX);
        if wanted & !(R_OK | W_OK | X_OK) != 0 {
            return Err(Errno(EINVAL));
        }
        let told = self.told(folder, text, flags)?;
        let mode = u32::try_from(told[3] & 0xffff_ffff).unwrap_or(0);
        let executes = mode & S_IFMT == S_IFDIR || mode & 0o111 != 0;
        if wanted & X_OK != 0 && !executes {
            return Err(Errno(EACCES));
        }
        Ok(0)
    }

    fn current(&mut self, to: u64, bytes: u64) -> Answer {
        let (path, root) = (self.files.folder(), self.files.root());
        let parts: [&[u8]; 2] = match path.bytes().strip_prefix(root.bytes()) {
            _ if root == Path::ROOT => [b"", path.bytes()],
            Some(b"") => [b"", b"/"],
            Some(rest) if path.is_in(root) => [b"", rest],
            // It has been left behind.
            _ => [b"(unreachable)", path.bytes()],
        };
        let [first, rest] = parts.map(|part| part.len() as u64);
        let len = first + rest + 1;
        if len > bytes {
            return Err(Errno(ERANGE));
        }
        self.write(to, parts[0])?;
        self.write(to.wrapping_add(first), parts[1])?;
        self.write(to.wrapping_add(len - 1), &[0])?;
        Ok(len)
    }

    fn make_folder(&mut self, folder: u64, text: u64, mode: u64) -> Answer {
        let path = self.path_itself(folder, text)?;
        let mode = self.files.masked(mode & 0o1777);
        self.files.make(path, Kind::Folder, mode).map(|_| 0)
    }

    /// What an open file is, or the name of an open pipe.
    fn node_of_open(&mut self, file: u64) -> Result<usize, Errno> {
        let open = *self.files.of(file)?;
        self.named_pipe(open.target).map_or(open.node(), Ok)
    }

    /// The owner stays the same. A file that is said to have one gives nobody rights any more.
    fn change_owner(&mut self, node: usize, owners: [u64; 2]) -> Answer {
        remain(&owners)?;
        let (kind, mode) = (self.files.node(node).kind, self.files.node(node).mode);
        let group = if mode & S_IXGRP == 0 { 0 } else { S_ISGID };
        let kept = mode & !(S_ISUID | group);
        if kept != mode && matches!(kind, Kind::Packed(_) | Kind::Memory(_)) {
            self.files.set_mode(node, kept);
        }
        Ok(0)
    }

    fn change_mode(&mut self, node: usize, mode: u64) -> Answer {
        if matches!(self.files.node(node).kind, Kind::Told { .. }) {
            return Err(Errno(EPERM));
        }
        self.files
            .set_mode(node, u32::try_from(mode & 0o7777).unwrap_or(0));
        Ok(0)
    }
}
