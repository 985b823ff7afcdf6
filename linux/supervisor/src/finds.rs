//! What replicas have found in the code of files, kept from one run to the next.
//!
//! Looking through all code is a good part of the start of a short program, and most programs were
//! run before. So what is in the notebooks when a run ends is kept in a file of the user's, and the
//! notebooks of the next run begin with it.
//!
//! It is believed no more than a notebook is (`rcoe_linux_abi::Notebook`): only what two replicas
//! have found alike is kept, with the digest that they made of it, and whoever uses it makes that
//! digest anew and looks whether the instructions stand there. It is kept by the version of the
//! file that was looked through and by what was looked for, for this boot of the machine and this
//! agent; all else is found anew. A file that somebody else could have written is not read.
//!
//! Not covered: runs of one replica, which have nobody to agree with. Of runs that end at the same
//! time the last one's is kept. Trouble with the file is no trouble of the run.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcoe_linux_abi::Notebook;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::folders::absolute;
use crate::memory::Memory;
use crate::settings::Settings;

/// Words of the longest file: what is older is let go.
const MOST_WORDS: usize = 6 << 10;
/// Most words of a page.
const PAGE_WORDS: usize = 1 << 10;
/// Words before those that are kept: who may use them, and their digest.
const HEAD: usize = 2;
/// Where the machine says which of its boots this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The agent's digest, by the build script.
const AGENT: &str = env!("RCOE_AGENT_DIGEST");

/// The user's file: in `rcoe` below `XDG_CACHE_HOME`, or below `.cache` of `HOME`. Relative folders
/// do not count.
#[must_use]
pub fn finds_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| absolute(variable(name));
    let cache =
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("rcoe/finds"))
}

/// Notebooks as they were when the run began.
pub(crate) struct Finds<'a> {
    path: &'a Path,
    identity: u64,
    begun: Vec<Page>,
    /// Words that each notebook held then.
    written: [u64; 2],
}

/// A page of a notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    about: u64,
    digest: u64,
    words: Vec<u64>,
}

impl<'a> Finds<'a> {
    /// Fills the notebooks, if the settings want that; replicas may be reading them already.
    pub(crate) fn open(settings: &'a Settings, memory: &Memory) -> Option<Self> {
        let path = settings.finds().then_some(settings.finds.as_deref()?)?;
        let identity = identity()?;
        let begun = read(path, identity).unwrap_or_default();
        let [head, text] = laid_out(&begun);
        if !begun.is_empty() {
            memory
                .fill_notebooks(&[&bytes(&head), &bytes(&text)])
                .ok()?;
        }
        let written = [begun.len() as u64, text.len() as u64];
        Some(Self {
            path,
            identity,
            begun,
            written,
        })
    }

    /// Keeps what was found since.
    pub(crate) fn close(self, memory: &Memory) {
        let books: Vec<&Notebook> = memory.notebooks().collect();
        if books.iter().all(|book| book.written() == self.written) {
            return;
        }
        let now = newest(agreed(&books));
        if now != self.begun {
            // An amenity: the next run looks itself.
            let _ = write(self.path, self.identity, &now);
        }
    }
}

/// Who looks, and at which files: another one's finds are of no use.
fn identity() -> Option<u64> {
    let mut boot = Vec::new();
    File::open(BOOT)
        .ok()?
        .take(64)
        .read_to_end(&mut boot)
        .ok()?;
    let mut digest = Xxh3::new();
    digest.update(&boot);
    digest.update(AGENT.as_bytes());
    Some(digest.digest())
}

/// What two notebooks have alike, from the oldest on.
fn agreed(books: &[&Notebook]) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    for (index, book) in books.iter().enumerate() {
        for about in book.abouts() {
            let Some(page) = page(book, about) else {
                continue;
            };
            let others = books[index + 1..].iter();
            let is_known = pages.iter().any(|it| it.about == about);
            if !is_known
                && others
                    .filter_map(|it| self::page(it, about))
                    .any(|it| it == page)
            {
                pages.push(page);
            }
        }
    }
    pages
}

/// The page about this, if it is whole.
fn page(book: &Notebook, about: u64) -> Option<Page> {
    let mut words = vec![0; PAGE_WORDS];
    let page = book.read(about, &mut words)?;
    words.truncate(page.len);
    let digest = Notebook::digest(about, &words);
    (digest == page.digest).then_some(Page {
        about,
        digest,
        words,
    })
}

/// As many of the last ones as a file may hold.
fn newest(mut pages: Vec<Page>) -> Vec<Page> {
    let mut room = MOST_WORDS;
    let kept = pages.iter().rev().take_while(|page| {
        let need = page.words.len() + Notebook::ENTRY_WORDS;
        let fits = need <= room;
        room -= need.min(room);
        fits
    });
    let gone = pages.len() - kept.count();
    pages.drain(..gone);
    pages
}

/// A notebook of these pages: its head and its text.
fn laid_out(pages: &[Page]) -> [Vec<u64>; 2] {
    let mut text = Vec::new();
    let mut head = vec![pages.len() as u64, 0];
    for page in pages {
        let (from, len) = (text.len() as u64, page.words.len() as u64);
        head.extend([page.about, page.digest, from, len]);
        text.extend(&page.words);
    }
    head[1] = text.len() as u64;
    [head, text]
}

/// The pages that were laid out so.
fn taken_up(words: &[u64]) -> Option<Vec<Page>> {
    let [count, length, rest @ ..] = words else {
        return None;
    };
    let count = usize::try_from(*count).ok()?;
    if count > Notebook::MOST_PAGES {
        return None;
    }
    let (index, text) = rest.split_at_checked(count * Notebook::ENTRY_WORDS)?;
    let (index, []) = index.as_chunks::<{ Notebook::ENTRY_WORDS }>() else {
        return None;
    };
    if text.len() as u64 != *length {
        return None;
    }
    let pages = index.iter().map(|&[about, digest, from, len]| {
        let from = usize::try_from(from).ok()?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        let words = text.get(from..to)?.to_vec();
        Some(Page {
            about,
            digest,
            words,
        })
    });
    pages.collect()
}

/// What the file keeps, if it is this user's and of this identity.
fn read(path: &Path, identity: u64) -> Option<Vec<Page>> {
    const OTHERS_WRITE: u32 = 0o022;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = flags.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.uid() == geteuid().as_raw() && metadata.mode() & OTHERS_WRITE == 0;
    if !metadata.is_file() || !is_own {
        return None;
    }
    let most = 8 * (MOST_WORDS + HEAD + 2);
    let mut content = Vec::with_capacity(usize::try_from(metadata.len()).ok()?.min(most));
    file.take(most as u64).read_to_end(&mut content).ok()?;
    let (words, []) = content.as_chunks::<8>() else {
        return None;
    };
    let words: Vec<u64> = words.iter().map(|it| u64::from_le_bytes(*it)).collect();
    let [of, digest, kept @ ..] = &words[..] else {
        return None;
    };
    let is_whole = xxh3_64(&content[8 * HEAD..]) == *digest;
    if *of == identity && is_whole {
        taken_up(kept)
    } else {
        None
    }
}

/// Puts a file in the place of the old one.
fn write(path: &Path, identity: u64, pages: &[Page]) -> io::Result<()> {
    let kept = bytes(&laid_out(pages).concat());
    let head = bytes(&[identity, xxh3_64(&kept)]);
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut make = DirBuilder::new();
    make.recursive(true).mode(0o700).create(folder)?;
    let making = path.with_extension(std::process::id().to_string());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&making)?;
    let written = file
        .write_all(&[head, kept].concat())
        .and_then(|()| std::fs::rename(&making, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&making);
    }
    written
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A page as an agent would write it.
    fn sound(about: u64, words: &[u64]) -> Page {
        Page {
            about,
            digest: Notebook::digest(about, words),
            words: words.to_vec(),
        }
    }

    fn book(pages: &[Page]) -> Box<Notebook> {
        let book = Notebook::empty();
        for page in pages {
            book.write(page.about, &page.words, page.digest);
        }
        Box::new(book)
    }

    #[test]
    fn the_file_is_in_the_folder_for_caches() {
        let place = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|it| it.0 == name).map(|it| it.1.into());
            finds_file(value).map(|path| path.to_str().expect("text").to_owned())
        };
        let home = ("HOME", "/people/one");
        let expected = Some("/people/one/.cache/rcoe/finds");
        assert_eq!(place(&[home]).as_deref(), expected);
        assert_eq!(
            place(&[home, ("XDG_CACHE_HOME", "here")]).as_deref(),
            expected
        );
        let own = ("XDG_CACHE_HOME", "/var/own");
        assert_eq!(place(&[home, own]).as_deref(), Some("/var/own/rcoe/finds"));
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn what_is_kept_is_read_by_the_same_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/rcoe/finds");
        let pages = [sound(7, &[1, 2]), sound(9, &[])];
        assert_eq!(read(&path, 5), None);
        write(&path, 5, &pages).unwrap();
        assert_eq!(read(&path, 5).as_deref(), Some(&pages[..]));
        assert_eq!(read(&path, 6), None, "another agent's");
        write(&path, 6, &pages[1..]).unwrap();
        assert_eq!(read(&path, 6).as_deref(), Some(&pages[1..]));
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn a_file_that_others_could_write_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("finds");
        write(&path, 5, &[sound(7, &[1])]).unwrap();
        assert!(read(&path, 5).is_some());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&link, 5), None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(read(&path, 5), None);
    }

    #[test]
    fn a_file_that_was_hit_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("finds");
        write(&path, 5, &[sound(7, &[1]), sound(8, &[4, 5])]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..8 * whole.len() {
            let mut hit = whole.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, hit).unwrap();
            assert_eq!(read(&path, 5), None, "bit {bit}");
        }
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(read(&path, 5), None, "{len} bytes");
        }
    }

    #[test]
    fn lengths_and_places_are_not_believed() {
        let words = laid_out(&[sound(7, &[1]), sound(8, &[4, 5])]).concat();
        assert!(taken_up(&words).is_some());
        for at in [0, 1, 4, 5, 8, 9] {
            for wrong in [u64::MAX, 1 << 61, 100] {
                let mut words = words.clone();
                words[at] = wrong;
                assert_eq!(taken_up(&words), None, "{at}: {wrong}");
            }
        }
    }

    #[test]
    fn only_what_two_notebooks_have_alike_is_kept() {
        let (ours, hit) = (sound(7, &[1, 2]), sound(7, &[1, 3]));
        let alone = sound(8, &[4]);
        let torn = Page {
            digest: 1,
            ..sound(9, &[5])
        };
        let first = book(&[ours.clone(), alone, torn.clone()]);
        let second = book(&[hit, torn]);
        assert_eq!(agreed(&[&first, &second]), []);
        let third = book(std::slice::from_ref(&ours));
        assert_eq!(agreed(&[&second, &third, &first]), [ours]);
    }

    #[test]
    fn what_is_older_is_let_go() {
        let most = MOST_WORDS / (100 + Notebook::ENTRY_WORDS);
        let all: Vec<Page> = (0..2 * most as u64)
            .map(|it| sound(it + 1, &[it; 100]))
            .collect();
        let kept = newest(all.clone());
        assert_eq!(kept, all[all.len() - most..]);
        assert!(laid_out(&kept).concat().len() <= MOST_WORDS + 2);
        assert_eq!(newest(kept.clone()), kept);
    }

    #[test]
    fn a_notebook_is_laid_out_as_it_is_written() {
        let pages = [sound(7, &[1, 2]), sound(8, &[]), sound(9, &[3])];
        let (book, [head, text]) = (book(&pages), laid_out(&pages));
        assert_eq!(book.written(), [head[0], head[1]]);
        let access = rcoe_linux_sys::host::Access::ReadOnly;
        let len = size_of::<Notebook>().next_multiple_of(4096);
        let object = rcoe_linux_sys::host::SharedObject::create(c"finds", len, access).unwrap();
        crate::memory::fill_notebook(&object, 0, &[&bytes(&head), &bytes(&text)]).unwrap();
        let copy: &Notebook = object.view(0);
        assert!(copy.abouts().eq(book.abouts()));
        for about in copy.abouts() {
            assert_eq!(page(copy, about), page(&book, about));
        }
    }
}
