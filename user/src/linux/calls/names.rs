//! Calls about files by their names.

use linux_raw_sys::errno::{
    EACCES, EBADF, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENXIO, ERANGE, EXDEV,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY,
    O_TRUNC, O_WRONLY,
};

use super::system::remain;
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
            nr::__NR_stat | nr::__NR_lstat => self.stat(HERE, first, second, 0),
            nr::__NR_newfstatat => self.stat(first, second, third, fourth),
            nr::__NR_fstat => self.stat_open(first, second),
            nr::__NR_access => self.access(HERE, first),
            nr::__NR_faccessat | nr::__NR_faccessat2 => self.access(first, second),
            nr::__NR_readlink => self.read_link(HERE, first, second, third),
            nr::__NR_readlinkat => self.read_link(first, second, third, fourth),
            nr::__NR_getcwd => self.current(first, second),
            nr::__NR_chdir => {
                let path = self.path(HERE, first);
                path.and_then(|path| self.files.set_folder(path))
                    .map(|()| 0)
            }
            nr::__NR_mkdir => self.make_folder(HERE, first, second),
            nr::__NR_mkdirat => self.make_folder(first, second, third),
            nr::__NR_unlink => self.take_away(HERE, first, false),
            nr::__NR_rmdir => self.take_away(HERE, first, true),
            nr::__NR_unlinkat => {
                self.take_away(first, second, third & u64::from(AT_REMOVEDIR) != 0)
            }
            nr::__NR_rename => self.rename([HERE, first, HERE, second]),
            nr::__NR_renameat => self.rename([first, second, third, fourth]),
            nr::__NR_renameat2 if words[4] == 0 => self.rename([first, second, third, fourth]),
            nr::__NR_chmod => self
                .named(HERE, first)
                .map(|node| self.change_mode(node, second)),
            nr::__NR_fchmod => {
                let node = self.files.of(first).and_then(|open| open.node());
                node.map(|node| self.change_mode(node, second))
            }
            nr::__NR_chown | nr::__NR_lchown => {
                let node = self.named(HERE, first);
                node.and_then(|_| remain(&[second, third]))
            }
            nr::__NR_fchown => {
                let open = self.files.of(first).map(|_| 0);
                open.and_then(|_| remain(&[second, third]))
            }
            nr::__NR_fchownat => {
                let node = self.named(first, second);
                node.and_then(|_| remain(&[third, fourth]))
            }
            nr::__NR_umask => {
                let mask = u32::try_from(first & 0o777).unwrap_or(0);
                Ok(self.files.set_mask(mask).into())
            }
            _ => return None,
        })
    }

    /// The path that a text means in an open folder.
    pub(super) fn path(&mut self, folder: u64, text: u64) -> Result<Path, Errno> {
        let text = self.text(text)?;
        if text.bytes().is_empty() {
            return Err(Errno(ENOENT));
        }
        if folder & 0xffff_ffff == HERE || text.bytes().starts_with(b"/") {
            return self.files.path(text.bytes());
        }
        let node = self.files.of(folder)?.node().map_err(|_| Errno(ENOTDIR))?;
        let folder = self.files.node(node);
        if folder.kind != Kind::Folder {
            return Err(Errno(ENOTDIR));
        }
        if folder.path == Path::NONE {
            return Err(Errno(ENOENT));
        }
        folder.path.join(text.bytes())
    }

    pub(super) fn named(&mut self, folder: u64, text: u64) -> Result<usize, Errno> {
        let path = self.path(folder, text)?;
        self.files.find(path).ok_or(Errno(ENOENT))
    }

    fn open(&mut self, [folder, text, flags, mode]: [u64; 4]) -> Answer {
        let path = self.path(folder, text)?;
        let flags = u32::try_from(flags & 0xffff_ffff).unwrap_or(0);
        let has = |bit: u32| flags & bit != 0;
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
            None => return Err(Errno(ENOENT)),
        };
        let is_folder = self.files.node(node).kind == Kind::Folder;
        if let Kind::Socket(_) = self.files.node(node).kind {
            return Err(Errno(ENXIO));
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
        self.write_words(to, &words).map(|()| 0)
    }

    fn stat_open(&mut self, file: u64, to: u64) -> Answer {
        let words = self.told_of_open(file)?;
        self.write_words(to, &words).map(|()| 0)
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
        let node = self.named(folder, text)?;
        Ok(self.stat_words(node))
    }

    fn told_of_open(&mut self, file: u64) -> Result<[u64; STAT_WORDS], Errno> {
        Ok(
            match self.files.of(file).map_err(|_| Errno(EBADF))?.target {
                Target::Node(node) => self.stat_words(node),
                target => self.stat_stream(target),
            },
        )
    }

    /// The superuser may do anything with what is there.
    fn access(&mut self, folder: u64, text: u64) -> Answer {
        self.named(folder, text).map(|_| 0)
    }

    /// There is one link: `/proc/self/exe`.
    fn read_link(&mut self, folder: u64, text: u64, to: u64, bytes: u64) -> Answer {
        if self.text(text)?.bytes() != b"/proc/self/exe" {
            self.named(folder, text)?;
            return Err(Errno(EINVAL));
        }
        let path = self.files.program();
        let len = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(path.bytes().len());
        self.write(to, &path.bytes()[..len])?;
        Ok(len as u64)
    }

    fn current(&mut self, to: u64, bytes: u64) -> Answer {
        let path = self.files.folder();
        let len = path.bytes().len() as u64 + 1;
        if len > bytes {
            return Err(Errno(ERANGE));
        }
        self.write(to, path.bytes())?;
        self.write(to + len - 1, &[0])?;
        Ok(len)
    }

    fn make_folder(&mut self, folder: u64, text: u64, mode: u64) -> Answer {
        let path = self.path(folder, text)?;
        let mode = self.files.masked(mode);
        self.files.make(path, Kind::Folder, mode).map(|_| 0)
    }

    /// Gives a file another name; what was there is gone. Folders keep theirs.
    fn rename(&mut self, [folder, text, to_folder, to]: [u64; 4]) -> Answer {
        let (from, to) = (self.path(folder, text)?, self.path(to_folder, to)?);
        let node = self.files.find(from).ok_or(Errno(ENOENT))?;
        if self.files.node(node).kind == Kind::Folder || from == self.files.program() {
            return Err(Errno(EACCES));
        }
        if from == to {
            return Ok(0);
        }
        if self.files.is_kept(&from) != self.files.is_kept(&to) {
            return Err(Errno(EXDEV));
        }
        if self.files.find(to).is_some() {
            let (store, machine) = (&mut self.store, &mut self.machine);
            self.files.take_away(store, machine, to, false)?;
        }
        self.files.set_path(node, to).map(|()| 0)
    }

    fn change_mode(&mut self, node: usize, mode: u64) -> u64 {
        self.files
            .set_mode(node, u32::try_from(mode & 0o777).unwrap_or(0));
        0
    }

    fn take_away(&mut self, folder: u64, text: u64, is_folder: bool) -> Answer {
        let path = self.path(folder, text)?;
        if path == self.files.program() {
            return Err(Errno(EACCES));
        }
        let (store, machine) = (&mut self.store, &mut self.machine);
        self.files.take_away(store, machine, path, is_folder)?;
        Ok(0)
    }
}
