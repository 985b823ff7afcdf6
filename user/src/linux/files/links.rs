//! Paths that lead over symbolic links, and what is at them.
//!
//! A link holds a text that stands in its place in a path. What it names need not be there. Two
//! kinds are no files: that of the program at hand, and those of its descriptors.

use linux_raw_sys::errno::{ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR};

use super::{Errno, Files, Kind, Machine, Path, Sparse};
use crate::linux::facts::OWN;

/// Most links on the way of one path.
const LINKS: usize = 40;
/// Longest text of a link.
pub(crate) const LINK: usize = 255;
/// Bytes of a path whose links are being replaced.
const ROOM: usize = 512;
/// The link to the program of whoever asks, and the folder of its descriptors.
const PROGRAM: &[u8] = b"/proc/self/exe";
pub(crate) const DESCRIPTORS: &[u8] = b"/proc/self/fd";
/// Links that are there, and what they name; that to the program has no text of its own.
pub(super) const FIRST_LINKS: [[&[u8]; 2]; 5] = [
    [PROGRAM, b""],
    [b"/dev/fd", DESCRIPTORS],
    [b"/dev/stdin", b"/proc/self/fd/0"],
    [b"/dev/stdout", b"/proc/self/fd/1"],
    [b"/dev/stderr", b"/proc/self/fd/2"],
];

/// What is left of a path. It ends where its place does, so there is room for a link's text.
struct Rest {
    bytes: [u8; ROOM],
    start: usize,
    /// Were there slashes behind the last name?
    slashed: bool,
}

impl Rest {
    fn new(text: &[u8]) -> Result<Self, Errno> {
        let mut rest = Self {
            bytes: [0; ROOM],
            start: ROOM,
            slashed: false,
        };
        rest.prepend(text)?;
        Ok(rest)
    }

    fn prepend(&mut self, text: &[u8]) -> Result<(), Errno> {
        let start = self.start.checked_sub(text.len());
        let start = start.ok_or(Errno(ENAMETOOLONG))?;
        self.bytes[start..self.start].copy_from_slice(text);
        self.start = start;
        Ok(())
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Takes the next name.
    fn take(&mut self) -> Option<core::ops::Range<usize>> {
        let is_slash = |&&byte: &&u8| byte == b'/';
        let slashes = self.left().iter().take_while(is_slash).count();
        self.start += slashes;
        let left = self.left();
        let end = left.iter().position(|&byte| byte == b'/');
        let name = self.start..self.start + end.unwrap_or(left.len());
        self.start = name.end;
        if name.is_empty() {
            self.slashed = slashes > 0;
            return None;
        }
        Some(name)
    }
}

/// A text, as far as it goes.
pub(crate) struct Named {
    bytes: [u8; LINK],
    len: usize,
}

impl Named {
    fn new(text: &[u8]) -> Self {
        let mut bytes = [0; LINK];
        let len = text.len().min(LINK);
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Files<'_> {
    /// What a link at this path names, if there is one.
    pub(crate) fn link_at(
        &self,
        (store, machine): (&Sparse<'_>, &impl Machine),
        path: Path,
    ) -> Option<Named> {
        let mut all = self.nodes.iter();
        let place = all.position(|it| {
            let is_link = matches!(it.kind, Kind::Link(_) | Kind::Fixed(_) | Kind::Same(_));
            is_link && it.path == path
        })?;
        let node = self.behind(place);
        match self.nodes[node].kind {
            Kind::Fixed(b"") => Some(Named::new(self.program().bytes())),
            Kind::Fixed(text) => Some(Named::new(text)),
            Kind::Link(_) => {
                let mut bytes = [0; LINK];
                let len = self.read(store, machine, (node, 0), &mut bytes);
                Some(Named { bytes, len })
            }
            _ => None,
        }
    }

    /// The path that a text means from a folder; whether what is at its end is looked behind if it
    /// is a link.
    pub(crate) fn resolve(
        &self,
        kept: (&Sparse<'_>, &impl Machine),
        (base, text): (Path, &[u8]),
        follows: bool,
    ) -> Result<Path, Errno> {
        let mut rest = Rest::new(text)?;
        let rooted = text.starts_with(b"/");
        let root = self.root();
        let mut path = if rooted { root } else { base };
        let mut links = 0;
        while let Some(name) = rest.take() {
            let folder = path;
            match &rest.bytes[name] {
                b"." => self.check_folder(path)?,
                b".." => {
                    self.check_folder(path)?;
                    path = if path == root { root } else { path.parent() };
                }
                name => path.push(name)?,
            }
            if self.is_own(&path) {
                path = Path::new(OWN)?;
            }
            let ends = rest.left().is_empty();
            if ends && !follows || path == folder {
                continue;
            }
            let Some(named) = self.link_at(kept, path) else {
                continue;
            };
            links += 1;
            if links > LINKS {
                return Err(Errno(ELOOP));
            }
            rest.prepend(named.bytes())?;
            let rooted = named.bytes().starts_with(b"/");
            path = if rooted { root } else { folder };
        }
        if rest.slashed && self.find(path).is_some() {
            self.check_folder(path)?;
        }
        Ok(path)
    }

    /// What is at a path has to be a folder.
    pub(super) fn check_folder(&self, path: Path) -> Result<(), Errno> {
        let node = self.find(path).ok_or_else(|| self.missing(path))?;
        let is_folder = self.node(node).kind.is_folder();
        is_folder.then_some(()).ok_or(Errno(ENOTDIR))
    }

    /// Why nothing is at a path.
    pub(crate) fn missing(&self, mut path: Path) -> Errno {
        while path != Path::ROOT {
            path = path.parent();
            if let Some(node) = self.find(path) {
                let is_folder = self.node(node).kind.is_folder();
                return Errno(if is_folder { ENOENT } else { ENOTDIR });
            }
        }
        Errno(ENOENT)
    }

    /// The descriptor that a path names.
    pub(crate) fn descriptor_at(&self, path: &Path) -> Option<u64> {
        let number = path.bytes().strip_prefix(DESCRIPTORS)?.strip_prefix(b"/")?;
        let number = core::str::from_utf8(number).ok()?.parse().ok()?;
        self.place(number).is_ok().then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_one_after_the_other() {
        let mut rest = Rest::new(b"//a/bc//").unwrap();
        for (name, left) in [(&b"a"[..], &b"/bc//"[..]), (b"bc", b"//")] {
            let taken = rest.take().unwrap();
            assert_eq!((&rest.bytes[taken], rest.left()), (name, left));
        }
        rest.prepend(b"x/y").unwrap();
        assert_eq!(rest.left(), b"x/y//");
        assert!(rest.prepend(&[b'x'; ROOM]).is_err());
        while rest.take().is_some() {}
        assert!(rest.slashed);
        assert!(Rest::new(&[b'x'; ROOM + 1]).is_err());
    }
}
