//! What was found in the code of files, so that a file is looked through once.
//!
//! Nearly every program maps the same loader and the same C library, and looking through their code
//! is dear: all of it has to be brought in. So what was found is kept, by the version of the file
//! and the part that is mapped. As the agent outlives exec and is inherited at fork, a process
//! looks only into what no ancestor has looked into; and it leaves what it has found to all other
//! processes of the program ([`rcoe_linux_abi::Notebook`]), of which it believes what replicas of
//! two numbers have found alike. A wrong page of one is thus no more than one that is missing.
//!
//! Each replica keeps this in memory that replicas have alike: a wrong entry is found as any flip
//! is. Which file it is, is the primary's word; before a site is used its bytes are compared with
//! what is said to stand there, and code in which they differ is looked through as if unknown.
//!
//! The supervisor may keep what is in notebooks for the next run, so that may have been any time
//! since the machine was started.
//!
//! Not covered: a file that keeps its size and its times while it changes: within a tick of a file
//! system whose clock is more than [`FRESH_NS`] behind ours, or by stores through a mapping.

use linux_raw_sys::general::CLOCK_REALTIME;
use rcoe_linux_abi::Notebook;
use xxhash_rust::xxh3::xxh3_64;

use crate::one_thread::OneThread;
use crate::sys;

/// Most parts of files that are kept.
const PARTS: usize = 64;
/// Most sites that are kept of all of them.
const SITES: usize = 1024;
/// A file that changed as lately as this could change again without a trace.
const FRESH_NS: u64 = 2_000_000_000;

/// A file as the primary sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct File(u64);

impl File {
    /// There is no such descriptor.
    pub(crate) const CLOSED: Self = Self(0);
    /// There is a file, and no more is known of it.
    pub(crate) const UNKNOWN: Self = Self(1);
    /// No file, or one that its program alone knows or shares, and may change while it is mapped.
    pub(crate) const FLEETING: Self = Self(2);

    /// The file of a descriptor of this process.
    pub(crate) fn of(fd: i32) -> Self {
        let Some(version) = sys::file_version(fd) else {
            return Self::CLOSED;
        };
        if !version.is_regular() || version.names() == 0 {
            return Self::FLEETING;
        }
        let now = sys::clock(CLOCK_REALTIME.cast_signed()).unwrap_or(0);
        if version.changed_ns().saturating_add(FRESH_NS) > now {
            return Self::UNKNOWN;
        }
        Self(digest(&version.words()).max(Self::FLEETING.0 + 1))
    }

    /// As a word of a record.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// From such a word.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The part that begins at this offset and has this length.
    pub(crate) fn part(self, offset: u64, len: u64) -> Part {
        match self {
            Self::CLOSED | Self::UNKNOWN => Part::NONE,
            Self::FLEETING => Part::FLEETING,
            Self(file) => Part(digest(&[file, offset, len]).max(Part::FLEETING.0 + 1)),
        }
    }
}

fn digest(words: &[u64]) -> u64 {
    xxh3_64(bytes(words))
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words are eight bytes each, and bytes have no alignment.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// A mapped part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part(u64);

impl Part {
    /// Part of a file of which no more is known.
    pub(crate) const NONE: Self = Self(0);
    /// Memory that may have changed, or may yet change, by other ways than a file of a name.
    pub(crate) const FLEETING: Self = Self(1);

    /// The same, where this was looked for: what was found says nothing of what was not.
    pub(crate) fn sought(self, what: u64) -> Self {
        match self {
            Self::NONE | Self::FLEETING => self,
            Self(part) => Self(digest(&[part, what]).max(Self::FLEETING.0 + 1)),
        }
    }

    /// Can it be told from other versions of the file?
    pub(crate) const fn is_of_a_version(self) -> bool {
        self.0 > Self::FLEETING.0
    }
}

/// What is known of the parts. Words without gaps.
struct Known {
    /// The part, and where its sites begin and end.
    parts: [[u64; 3]; PARTS],
    part_count: usize,
    sites: [u64; SITES],
    site_count: usize,
}

static KNOWN: OneThread<Known> = OneThread::new(Known::NEW);

fn known() -> &'static mut Known {
    // SAFETY: a replica is one kernel thread, and no caller keeps the reference over another call.
    unsafe { &mut *KNOWN.get() }
}

/// The sites found in this part, in order, as [`keep`] got them; `None` if nobody has looked.
pub(crate) fn sites(part: Part) -> Option<&'static [u64]> {
    known().sites_of(part)
}

/// Keeps what was found in a part.
pub(crate) fn keep(part: Part, sites: &[u64]) {
    known().keep(part, sites);
}

/// Writes the sites found in this part into a notebook.
pub(crate) fn write(notebook: &Notebook, part: Part, sites: &[u64]) {
    if part.is_of_a_version() {
        notebook.write(part.0, sites, Notebook::digest(part.0, sites));
    }
}

/// The sites that so many notebooks tell alike of this part, and how many they are.
pub(crate) fn alike<'a>(
    part: Part,
    notebooks: impl Iterator<Item = &'a Notebook> + Clone,
    wanted: usize,
    sites: &mut [u64],
) -> Option<usize> {
    let mut whole = |notebook: &Notebook| {
        let page = notebook.read(part.0, sites)?;
        let digest = Notebook::digest(part.0, &sites[..page.len]);
        (digest == page.digest).then_some(page)
    };
    let first = notebooks.clone().find_map(|it| {
        let page = whole(it)?;
        let same = notebooks
            .clone()
            .filter(|it| whole(it) == Some(page))
            .count();
        (same >= wanted).then_some((it, page))
    });
    let (notebook, page) = first?;
    (whole(notebook) == Some(page)).then_some(page.len)
}

impl Known {
    const NEW: Self = Self {
        parts: [[0; 3]; PARTS],
        part_count: 0,
        sites: [0; SITES],
        site_count: 0,
    };

    fn sites_of(&self, part: Part) -> Option<&[u64]> {
        let mut live = self.parts[..self.part_count].iter();
        let [_, from, to] = *live.find(|known| part.is_of_a_version() && known[0] == part.0)?;
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        self.sites.get(from..to)
    }

    fn keep(&mut self, part: Part, sites: &[u64]) {
        if !part.is_of_a_version() || sites.len() > SITES || self.sites_of(part) == Some(sites) {
            return;
        }
        if self.part_count == PARTS || self.site_count + sites.len() > SITES {
            self.forget();
        }
        let (from, to) = (self.site_count, self.site_count + sites.len());
        self.sites[from..to].copy_from_slice(sites);
        self.site_count = to;
        let known = self.parts[..self.part_count].iter_mut();
        let place = known.into_iter().position(|known| known[0] == part.0);
        let place = place.unwrap_or_else(|| {
            self.part_count += 1;
            self.part_count - 1
        });
        self.parts[place] = [part.0, from as u64, to as u64];
    }

    /// All anew; replicas forget at the same point.
    fn forget(&mut self) {
        self.parts[..self.part_count].fill([0; 3]);
        self.part_count = 0;
        self.sites[..self.site_count].fill(0);
        self.site_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u64) -> Part {
        File(100).part(number, 4096)
    }

    #[test]
    fn what_was_kept_is_found_by_file_offset_and_length() {
        let mut known = Known::NEW;
        known.keep(part(0), &[7, 8]);
        known.keep(part(4096), &[]);
        assert_eq!(known.sites_of(part(0)), Some(&[7, 8][..]));
        assert_eq!(known.sites_of(part(4096)), Some(&[][..]), "nothing in it");
        assert_eq!(known.sites_of(part(8192)), None);
        assert_eq!(known.sites_of(File(100).part(0, 8192)), None);
        assert_eq!(known.sites_of(File(101).part(0, 4096)), None);
    }

    #[test]
    fn what_was_found_says_nothing_of_what_was_not_looked_for() {
        let mut known = Known::NEW;
        known.keep(part(0).sought(1), &[7, 8]);
        assert_eq!(known.sites_of(part(0).sought(1)), Some(&[7, 8][..]));
        assert_eq!(known.sites_of(part(0).sought(3)), None);
        assert_eq!(known.sites_of(part(0)), None);
        for fleeting in [Part::NONE, Part::FLEETING] {
            assert_eq!(fleeting.sought(1), fleeting);
        }
    }

    #[test]
    fn what_was_found_anew_takes_the_place() {
        let mut known = Known::NEW;
        known.keep(part(0), &[7, 8]);
        known.keep(part(0), &[9]);
        assert_eq!(known.sites_of(part(0)), Some(&[9][..]));
        assert_eq!(known.part_count, 1);
    }

    #[test]
    fn nothing_is_known_of_what_has_no_identity() {
        let mut known = Known::NEW;
        for file in [File::CLOSED, File::UNKNOWN] {
            known.keep(file.part(0, 4096), &[7]);
            assert_eq!(known.sites_of(file.part(0, 4096)), None);
        }
        assert_eq!(known.part_count, 0);
    }

    /// An empty notebook, too large for a test's stack in numbers.
    fn notebook() -> Box<Notebook> {
        // SAFETY: zeroes are an empty notebook.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn what_two_notebooks_say_alike_is_believed() {
        let books = [notebook(), notebook(), notebook()];
        let told = |wanted| {
            let mut sites = [0; 8];
            let len = alike(part(0), books.iter().map(|it| &**it), wanted, &mut sites)?;
            Some(sites[..len].to_vec())
        };
        write(&books[0], part(0), &[7, 8]);
        assert_eq!(told(1), Some(vec![7, 8]), "a single replica");
        assert_eq!(told(2), None, "nobody else has looked");
        write(&books[2], part(0), &[7]);
        assert_eq!(told(2), None, "one of them was hit");
        write(&books[1], part(0), &[7]);
        assert_eq!(told(2), Some(vec![7]), "and is outvoted");
        books[1].write(part(0).0, &[9], 1);
        assert_eq!(told(2), None, "torn");
        write(&books[0], part(0), &[7]);
        assert_eq!(told(2), Some(vec![7]), "found anew");
        write(&books[0], Part::NONE, &[7]);
        assert_eq!(books[0].read(0, &mut [0; 8]), None);
    }

    #[test]
    fn a_full_table_begins_anew() {
        let mut known = Known::NEW;
        for number in 0..PARTS as u64 {
            known.keep(part(number), &[number]);
        }
        assert!(known.sites_of(part(0)).is_some());
        known.keep(part(1000), &[1]);
        assert_eq!(known.sites_of(part(0)), None);
        assert_eq!(known.sites_of(part(1000)), Some(&[1][..]));
        known.keep(part(1001), &[5; SITES]);
        assert_eq!(known.sites_of(part(1000)), None);
        assert_eq!(known.sites_of(part(1001)).map(<[u64]>::len), Some(SITES));
        known.keep(part(1002), &[5; SITES + 1]);
        assert_eq!(known.sites_of(part(1002)), None, "more than there is room");
    }

    #[test]
    fn a_file_that_changed_lately_is_not_known() {
        let path = std::env::temp_dir().join(format!("rcoe-known-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!(File::of(fd), File::UNKNOWN);
        std::fs::remove_file(path).unwrap();
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        assert_ne!(
            File::of(std::os::fd::AsRawFd::as_raw_fd(&own)),
            File::CLOSED
        );
        assert_eq!(File::of(-1), File::CLOSED);
    }
}
