//! Calls that make, read and take away names of files: links, renaming, unlinking.

use linux_raw_sys::errno::{EACCES, EEXIST, EINVAL, ENAMETOOLONG, ENOENT, EPERM, EXDEV};
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, S_IFBLK,
    S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK,
};

use super::names::HERE;
use super::sockets::low;
use crate::linux::arch::nr;
use crate::linux::files::{Kind, LINK, Path};
use crate::linux::streams::Target;
use crate::linux::{Answer, Errno, Machine, Process};

impl<M: Machine> Process<'_, M> {
    pub(super) fn link_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, _] = words;
        Some(match call {
            nr::__NR_symlink => self.make_link(first, HERE, second),
            nr::__NR_symlinkat => self.make_link(first, second, third),
            nr::__NR_link => self.add_name([HERE, first, HERE, second], 0),
            nr::__NR_linkat => self.add_name([first, second, third, fourth], fifth),
            nr::__NR_readlink => self.read_link(HERE, first, second, third),
            nr::__NR_readlinkat => self.read_link(first, second, third, fourth),
            nr::__NR_unlink => self.take_away(HERE, first, false),
            nr::__NR_rmdir => self.take_away(HERE, first, true),
            nr::__NR_unlinkat if low(third) & !AT_REMOVEDIR != 0 => Err(Errno(EINVAL)),
            nr::__NR_unlinkat => {
                self.take_away(first, second, third & u64::from(AT_REMOVEDIR) != 0)
            }
            nr::__NR_rename => self.rename([HERE, first, HERE, second], 0),
            nr::__NR_renameat => self.rename([first, second, third, fourth], 0),
            nr::__NR_renameat2 => self.rename([first, second, third, fourth], fifth),
            nr::__NR_mknod => return self.make_file(HERE, first, second),
            nr::__NR_mknodat => return self.make_file(first, second, third),
            _ => return None,
        })
    }

    /// Makes a link to whatever its text names.
    fn make_link(&mut self, text: u64, folder: u64, name: u64) -> Answer {
        let named = self.text(text)?;
        match named.bytes().len() {
            0 => return Err(Errno(ENOENT)),
            len if len > LINK => return Err(Errno(ENAMETOOLONG)),
            _ => {}
        }
        let path = self.path_itself(folder, name)?;
        let node = self.files.make(path, Kind::Memory(0), 0o777)?;
        let (store, machine) = (&mut self.store, &mut self.machine);
        let written = self.files.write(store, machine, (node, 0), named.bytes());
        if let Err(error) = written {
            // It was made just now.
            let _ = self.files.take_away(store, machine, path, false);
            return Err(error);
        }
        self.files.become_link(node);
        Ok(0)
    }

    /// Gives a file a further name.
    fn add_name(&mut self, [folder, text, to_folder, to]: [u64; 4], flags: u64) -> Answer {
        if flags & !u64::from(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno(EINVAL));
        }
        let is_empty = flags & u64::from(AT_EMPTY_PATH) != 0 && self.text(text)?.bytes().is_empty();
        let node = if is_empty {
            self.files.of(folder)?.node().map_err(|_| Errno(ENOENT))?
        } else if flags & u64::from(AT_SYMLINK_FOLLOW) != 0 {
            self.named(folder, text)?
        } else {
            self.named_itself(folder, text)?
        };
        let path = self.path_itself(to_folder, to)?;
        if self.files.name_at(path).is_some() {
            return Err(Errno(EEXIST));
        }
        let from = self.files.node(node).path;
        let is_told = matches!(self.files.node(node).kind, Kind::Told { .. });
        if is_told || self.files.is_kept(&from) != self.files.is_kept(&path) {
            return Err(Errno(EXDEV));
        }
        self.files.add_name(node, path).map(|()| 0)
    }

    /// Reads a link's text.
    fn read_link(&mut self, folder: u64, text: u64, to: u64, bytes: u64) -> Answer {
        let room = usize::try_from(bytes & 0xffff_ffff).unwrap_or(0);
        if room == 0 || bytes >> 31 & 1 != 0 {
            return Err(Errno(EINVAL));
        }
        let path = self.path_itself(folder, text)?;
        let kept = (&self.store, &self.machine);
        if let Some(named) = self.files.link_at(kept, path) {
            let len = named.bytes().len().min(room);
            self.write(to, &named.bytes()[..len])?;
            return Ok(len as u64);
        }
        let Some(file) = self.files.descriptor_at(&path) else {
            let found = self.files.find(path);
            return Err(found.map_or_else(|| self.files.missing(path), |_| Errno(EINVAL)));
        };
        let Target::Node(node) = self.files.of(file)?.target else {
            // What has no name is called by its kind.
            let name = b"anon_inode:[stream]";
            let len = name.len().min(room);
            self.write(to, &name[..len])?;
            return Ok(len as u64);
        };
        let path = self.files.node(node).path;
        let len = path.bytes().len().min(room);
        self.write(to, &path.bytes()[..len])?;
        Ok(len as u64)
    }

    /// Gives something another name; what was there is gone.
    fn rename(&mut self, [folder, text, to_folder, to]: [u64; 4], flags: u64) -> Answer {
        let flags = flags & 0xffff_ffff;
        let exchanges = flags & u64::from(RENAME_EXCHANGE) != 0;
        let known = u64::from(RENAME_NOREPLACE | RENAME_EXCHANGE);
        if flags & !known != 0 || flags == known {
            return Err(Errno(EINVAL));
        }
        let (from, to) = (
            self.path_itself(folder, text)?,
            self.path_itself(to_folder, to)?,
        );
        if exchanges {
            return self.exchange(from, to);
        }
        if from == self.files.program() {
            return Err(Errno(EACCES));
        }
        let found = self.files.find(from);
        let node = found.ok_or_else(|| self.files.missing(from))?;
        let there = self.files.find(to);
        if there.is_some() && flags != 0 {
            return Err(Errno(EEXIST));
        }
        if there == Some(node) {
            return Ok(0);
        }
        if self.files.is_kept(&from) != self.files.is_kept(&to) {
            return Err(Errno(EXDEV));
        }
        self.files.check_move(from, to)?;
        if let Some(there) = there {
            let (store, machine) = (&mut self.store, &mut self.machine);
            let is_folder = self.files.node(there).kind.is_folder();
            self.files.take_away(store, machine, to, is_folder)?;
        }
        self.files.set_path(from, to).map(|()| 0)
    }

    /// Has two names that there are mean what the other one did.
    fn exchange(&mut self, from: Path, to: Path) -> Answer {
        if [from, to].contains(&self.files.program()) {
            return Err(Errno(EACCES));
        }
        if self.files.name_at(from) == self.files.name_at(to) && self.files.name_at(to).is_some() {
            return Ok(0);
        }
        self.files.check_exchange(from, to)?;
        if self.files.is_kept(&from) != self.files.is_kept(&to) {
            return Err(Errno(EXDEV));
        }
        self.files.exchange(from, to).map(|()| 0)
    }

    fn take_away(&mut self, folder: u64, text: u64, is_folder: bool) -> Answer {
        let path = self.path_itself(folder, text)?;
        if path == self.files.program() {
            return Err(Errno(EACCES));
        }
        let (store, machine) = (&mut self.store, &mut self.machine);
        self.files.take_away(store, machine, path, is_folder)?;
        Ok(0)
    }

    /// `mknod`: an empty file, a named pipe, or one of those that are not carried.
    fn make_file(&mut self, folder: u64, text: u64, mode: u64) -> Option<Answer> {
        let kind = match u32::try_from(mode & 0xffff_ffff).unwrap_or(u32::MAX) & S_IFMT {
            0 | S_IFREG => Kind::Memory(0),
            S_IFIFO => Kind::Fifo(None),
            S_IFCHR | S_IFBLK | S_IFSOCK => return None,
            S_IFDIR => return Some(Err(Errno(EPERM))),
            _ => return Some(Err(Errno(EINVAL))),
        };
        let path = match self.path_itself(folder, text) {
            Ok(path) => path,
            Err(error) => return Some(Err(error)),
        };
        let mode = self.files.masked(mode);
        Some(self.files.make(path, kind, mode).map(|_| 0))
    }
}
