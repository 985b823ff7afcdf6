//! Paths from the root, without anything that means another place.

use super::{ENAMETOOLONG, Errno};

/// Longest path.
pub(crate) const LONGEST: usize = 120;

/// A path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    bytes: [u8; LONGEST],
    len: u8,
}

impl Path {
    /// Bytes of the longest name.
    pub(crate) const MOST: u64 = LONGEST as u64 - 1;

    /// The root.
    pub(crate) const ROOT: Self = {
        let mut bytes = [0; LONGEST];
        bytes[0] = b'/';
        Self { bytes, len: 1 }
    };

    /// The path of what has lost its name.
    pub(crate) const NONE: Self = Self {
        bytes: [0; LONGEST],
        len: 0,
    };

    /// The path that a text from the root means.
    pub(crate) fn new(text: &[u8]) -> Result<Self, Errno> {
        Self::ROOT.join(text)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The path that a text means in this folder.
    pub(crate) fn join(self, text: &[u8]) -> Result<Self, Errno> {
        let mut path = if text.starts_with(b"/") {
            Self::ROOT
        } else {
            self
        };
        for part in text.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => path = path.parent(),
                name => path.push(name)?,
            }
        }
        Ok(path)
    }

    /// Adds a name.
    pub(super) fn push(&mut self, name: &[u8]) -> Result<(), Errno> {
        let slash = usize::from(*self != Self::ROOT);
        let start = usize::from(self.len);
        let end = start + slash + name.len();
        let place = self.bytes.get_mut(start..end).ok_or(Errno(ENAMETOOLONG))?;
        place[..slash].fill(b'/');
        place[slash..].copy_from_slice(name);
        self.len = u8::try_from(end).map_err(|_| Errno(ENAMETOOLONG))?;
        Ok(())
    }

    fn last_slash(&self) -> usize {
        self.bytes()
            .iter()
            .rposition(|&byte| byte == b'/')
            .unwrap_or(0)
    }

    /// The folder that it is in; the root is in itself.
    pub(crate) fn parent(self) -> Self {
        let end = self.last_slash().max(1);
        let mut parent = Self::ROOT;
        parent.bytes[..end].copy_from_slice(&self.bytes[..end]);
        parent.len = u8::try_from(end).unwrap_or(1);
        parent
    }

    /// Is it this very path, or one in a folder there?
    pub(crate) fn is_in(&self, folder: Self) -> bool {
        let rest = self.bytes().strip_prefix(folder.bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || folder == Self::ROOT)
    }

    /// Where it is when what is at a path gets another one; `None` if that is too long.
    pub(super) fn moved(&self, from: Self, to: Self) -> Option<Self> {
        if !self.is_in(from) {
            return Some(*self);
        }
        let rest = &self.bytes()[usize::from(from.len)..];
        to.join(rest.strip_prefix(b"/").unwrap_or(rest)).ok()
    }

    /// Its last part.
    pub(crate) fn name(&self) -> &[u8] {
        &self.bytes()[self.last_slash() + 1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_means_one_path() {
        let folder = Path::new(b"/a/b").unwrap();
        for (text, path) in [
            (&b"c"[..], &b"/a/b/c"[..]),
            (b"./c//d/", b"/a/b/c/d"),
            (b"../c", b"/a/c"),
            (b"../../../c", b"/c"),
            (b"/x/./y/..", b"/x"),
            (b"", b"/a/b"),
            (b"..", b"/a"),
            (b"/", b"/"),
        ] {
            assert_eq!(folder.join(text).unwrap().bytes(), path);
        }
        let path = |text: &[u8]| Path::new(text).unwrap();
        for (inside, is_in) in [(&b"/a/b"[..], true), (b"/a/b/c", true), (b"/a/bc", false)] {
            assert_eq!(path(inside).is_in(folder), is_in);
        }
        let to = path(b"/x");
        assert_eq!(path(b"/a/b/c").moved(folder, to), Some(path(b"/x/c")));
        assert_eq!(path(b"/a/b").moved(folder, to), Some(to));
        assert_eq!(path(b"/a/bc").moved(folder, to), Some(path(b"/a/bc")));
        let long = path(&[b'y'; LONGEST - 1]);
        assert_eq!(path(b"/a/b/c").moved(folder, long), None);
        assert!(!Path::NONE.is_in(folder));
        assert_eq!(folder.name(), b"b");
        assert_eq!(folder.parent().parent().parent(), Path::ROOT);
        assert!(Path::new(&[b'x'; LONGEST]).is_err());
        assert!(Path::new(&[b'x'; LONGEST - 1]).is_ok());
    }
}
