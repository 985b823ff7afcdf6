//! Primary: what a program has read of a file, a second time.
//!
//! What the host put into the primary's memory exists once until it is published: a flip there
//! would reach all replicas alike, and no vote would see it. So long results of reading a file are
//! not copied but read again, and the two compared.
//!
//! A program that goes through a file in pieces would have each of them cost one more call of the
//! host's, which for a page is most of its price. So when some have come in a row, the file is read
//! ahead into a buffer, many pieces by one call, and later ones are taken from there. That is a
//! second reading like any other: only what equals the program's memory is published, and what
//! differs, since somebody has changed the file or the buffer was hit, is read anew.
//!
//! A follower that reads a file by itself (see [`direct`](crate::protocol::direct)) reads it ahead
//! in the same way: replicas share what the host keeps of an open file and of its pages, and each
//! call for a piece takes those words away from the core of the primary, which wants them next.
//!
//! Contract: reading ahead neither waits nor has an effect. It takes what the host has in memory,
//! of files that can tell (`RWF_NOWAIT`), which devices that do something at a read, and files that
//! are made up as they are read, cannot.
//!
//! Not covered: results below [`SHORTEST`], which are copied.

use core::sync::atomic::AtomicU64;

use crate::convert::size;
use crate::memory::guest;
use crate::one_thread::OneThread;
use crate::sys::{self, Whence};

/// Results from so many bytes on are read twice. Shorter ones are copied in less time than a
/// system call takes, and so are exposed less.
const SHORTEST: u64 = 4096;
/// Results up to so many bytes are taken from the buffer. Of longer ones reading costs more than
/// the call, and the detour by the buffer as much as it saves.
const LONGEST: u64 = 16 * 1024;
/// Bytes that are read ahead at once.
const BYTES: usize = 64 * 1024;
/// Pieces in a row after which the next ones are read ahead.
const ROW: i32 = 4;
/// Pieces for which nothing is read ahead once that was in vain.
const PAUSE: i32 = 64;

#[unsafe(link_section = ".bss.own.1")]
static BUFFER: OneThread<[u8; BYTES]> = OneThread::new([0; BYTES]);

/// The file read last and where it was left: most programs go on from there. A wrong guess costs
/// time and nothing else, since only equal content is published.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastRead {
    fd: u64,
    end: u64,
    /// Pieces that came in a row; below 0, so many are waited for.
    row: i32,
    /// What is in the buffer: from where on in this file, and how much.
    ahead: Ahead,
}

#[derive(Clone, Copy, Default)]
struct Ahead {
    fd: i32,
    start: u64,
    len: usize,
}

/// A file whose content the host can give a second time.
#[derive(Clone, Copy)]
pub(crate) struct File {
    fd: i32,
    /// Where in it the result begins, and how long it is.
    offset: u64,
    length: u64,
    /// The offset was only guessed.
    guessed: bool,
    /// Where in the buffer the result begins, if it is there.
    ahead: Option<usize>,
}

impl Ahead {
    /// Where in the buffer a result begins that is there as a whole.
    fn place(&self, file: &File) -> Option<usize> {
        let place = size(file.offset.checked_sub(self.start)?);
        let end = place.checked_add(size(file.length))?;
        (self.fd == file.fd && end <= self.len).then_some(place)
    }

    /// Reads the file from the result's offset on.
    fn of(file: &File) -> Self {
        // SAFETY: a replica is one kernel thread, and no other reference lives.
        let buffer = unsafe { &mut *BUFFER.get() };
        Self {
            fd: file.fd,
            start: file.offset,
            len: sys::read_cached(file.fd, buffer, file.offset),
        }
    }
}

impl LastRead {
    /// The file of which `length` bytes were read at this offset, or at its position, if they are
    /// enough. One that only seems to have a position gives other content, and the result is
    /// copied after all.
    pub(super) fn file(&mut self, fd: u64, at: Option<u64>, length: u64) -> Option<File> {
        if length < SHORTEST {
            return None;
        }
        let (offset, guessed) = match at {
            Some(offset) => (offset, false),
            None if self.fd == fd && self.end != 0 => (self.end, true),
            None => (start_of(fd, length)?, false),
        };
        let goes_on = self.fd == fd && self.end == offset;
        self.row = if goes_on {
            self.row.saturating_add(1)
        } else {
            self.row.min(0)
        };
        self.fd = fd;
        self.end = offset + length;
        let mut file = File {
            fd: i32::try_from(fd).ok()?,
            offset,
            length,
            guessed,
            ahead: None,
        };
        file.ahead = self.look_ahead(&file);
        Some(file)
    }

    /// Where in the buffer the result begins. Fills the buffer if that is worth while.
    fn look_ahead(&mut self, file: &File) -> Option<usize> {
        if file.length > LONGEST || self.row < ROW {
            return None;
        }
        let place = self.ahead.place(file);
        if place.is_some() {
            return place;
        }
        self.ahead = Ahead::of(file);
        let place = self.ahead.place(file);
        if place.is_none() {
            self.row = -PAUSE;
        }
        place
    }
}

impl File {
    /// The result was not what the buffer holds. Is there anything left to be read?
    pub(super) fn read_anew(&mut self, last: &mut LastRead) -> bool {
        let tried = self.ahead.take().is_some();
        if tried {
            last.ahead = Ahead::default();
            last.row = -PAUSE;
        }
        tried
    }

    /// The offset is not guessed any more; false if there is none. That the guess was wrong says
    /// nothing against the file: it was opened, or its position moved.
    pub(super) fn make_sure(&mut self, last: &mut LastRead) -> bool {
        if !self.guessed {
            return true;
        }
        let Some(offset) = start_of(last.fd, self.length) else {
            return false;
        };
        self.guessed = false;
        self.offset = offset;
        last.end = offset + self.length;
        last.row = 0;
        true
    }

    /// Where the bytes of the result stand, if they were read ahead.
    pub(super) fn stand_at(&self) -> Option<u64> {
        Some(BUFFER.get() as u64 + self.ahead? as u64)
    }

    /// Puts `len` bytes of the result into cells, of which so many come `before`.
    pub(super) fn put(&self, cells: &[AtomicU64], before: u64, len: usize) {
        let Some(place) = self.ahead else {
            let to = cells.as_ptr() as u64;
            return sys::pread_raw(self.fd, to, len, self.offset + before);
        };
        // SAFETY: a replica is one kernel thread, and nobody writes them meanwhile.
        let buffer = unsafe { &*BUFFER.get() };
        let bytes = &buffer[place + size(before)..][..len];
        guest::copy_to_cells(cells, bytes.as_ptr() as u64, len).expect("the buffer is there");
    }

    /// Reads them into the program's memory once more.
    pub(super) fn restore(&self, address: u64, before: u64, len: usize) {
        sys::pread_raw(self.fd, address, len, self.offset + before);
    }
}

/// Where `length` bytes that were read last begin.
fn start_of(fd: u64, length: u64) -> Option<u64> {
    sys::seek(fd, 0, Whence::Current)?.checked_sub(length)
}

/// Held by tests that have something read ahead: they share the buffer.
#[cfg(test)]
pub(super) static READING_AHEAD: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File as Opened;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::Ordering;

    const PIECE: usize = 4096;

    /// A file in memory, each page of it filled with its number.
    fn numbered(pages: u8) -> Opened {
        let name = format!("rcoe-reread-{}-{pages}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = Opened::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).expect("a new file");
        std::fs::remove_file(path).expect("it is there");
        for page in 0..pages {
            let at = u64::from(page) * PIECE as u64;
            file.write_all_at(&[page; PIECE], at).expect("room");
        }
        file
    }

    /// The program has read this page.
    fn has_read(last: &mut LastRead, file: &Opened, page: u64) -> File {
        let fd = i64::from(file.as_raw_fd()).cast_unsigned();
        let read = last.file(fd, Some(page * SHORTEST), SHORTEST);
        read.expect("it can be read again")
    }

    /// The second word of the result.
    fn second_word(file: &File) -> u64 {
        let cells = [const { AtomicU64::new(0) }; 2];
        file.put(&cells, 8, 16);
        cells[1].load(Ordering::Relaxed)
    }

    fn filled(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }

    #[test]
    fn pieces_in_a_row_come_from_the_buffer_until_the_file_is_changed() {
        let _alone = READING_AHEAD.lock();
        let file = numbered(40);
        let mut last = LastRead::default();
        let row = u64::try_from(ROW).expect("a few");
        for page in 0..40 {
            let read = has_read(&mut last, &file, page);
            assert_eq!(read.ahead.is_some(), page >= row, "page {page}");
            assert_eq!(second_word(&read), filled(u8::try_from(page).expect("few")));
        }
        let at = 34 * PIECE as u64;
        let mut last = LastRead::default();
        for page in 28..=34 {
            if page == 34 {
                file.write_all_at(&[99; PIECE], at).expect("room");
            }
            let mut read = has_read(&mut last, &file, page);
            if page == 34 {
                assert_eq!(second_word(&read), filled(34), "read ahead before");
                assert!(read.read_anew(&mut last));
                assert_eq!(second_word(&read), filled(99));
                assert!(!read.read_anew(&mut last), "there is nothing else to try");
                assert_eq!(last.row, -PAUSE);
            }
        }
    }

    #[test]
    fn here_and_there_nothing_is_read_ahead() {
        let file = numbered(20);
        let mut last = LastRead::default();
        for page in (0..20).map(|at| at * 7 % 20) {
            assert_eq!(has_read(&mut last, &file, page).ahead, None);
        }
    }

    #[test]
    fn what_cannot_be_read_without_waiting_is_not_read_ahead() {
        let file = Opened::open("/proc/self/maps").expect("it is there");
        let mut last = LastRead::default();
        for page in 0..20 {
            assert_eq!(has_read(&mut last, &file, page).ahead, None);
        }
    }
}
