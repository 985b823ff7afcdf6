//! Frames that programs share: mapped in a window of their own, read and written word by word.
//!
//! A frame travels as a capability in a message ([`crate::call_with`]); its receiver maps it here.
//! There are no references into the window, because somebody else may write the frame meanwhile;
//! who may do so when is for the programs to agree on, by messages.

use rcoe_abi::object::{LARGE, PAGE};
use rcoe_abi::{Error, Rights, layout, service};

use crate::object::{self, Outcome};
use crate::{call, set_window_word, window_word};

/// Times that input is fetched anew because replicas were lost or came back meanwhile.
const ATTEMPTS: u64 = 16;

/// Input of a driver, replicated by the driver itself (EDCC'15, IV-D): the primary's replica
/// fetches it with `fill`, which writes it into pages that replicas share and makes no system call;
/// then all are at the same point and can read it. A primary that is lost in the midst of it leaves
/// half of it: then the next one begins anew. Tells how often that was.
///
/// What was read is to be copied, and the copy given to [`crate::add_trace`], before anything
/// depends on it: then replicas that read it differently are found.
///
/// # Errors
/// The kernel's, and `IllegalOperation` if it came to nothing again and again.
pub fn input(shared: u64, fill: impl Fn()) -> Result<u64, Error> {
    for attempt in 0..ATTEMPTS {
        let begun = object::meet(shared)?;
        if begun.writes {
            fill();
        }
        if object::meet(shared)?.generation == begun.generation {
            return Ok(attempt);
        }
    }
    Err(Error::IllegalOperation)
}

/// Bytes of a frame.
pub const BYTES: usize = 4096;

/// Maps a frame in a window, whose page tables the root task makes.
fn map_at(address: u64, slot: u64, rights: Rights) -> Outcome {
    match object::map_frame(slot, service::SLOT_VSPACE, address, rights) {
        Err(Error::MissingTable) => {
            let answer = call(service::SLOT_ROOT, service::ROOT_WINDOW, &[]);
            if answer.label != 0 {
                return Err(Error::NotEnoughMemory);
            }
            object::map_frame(slot, service::SLOT_VSPACE, address, rights)
        }
        other => other,
    }
}

/// A place of the window for large frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Large(pub u64);

impl Large {
    /// Words of a large frame.
    pub const WORDS: u64 = LARGE / 8;

    /// Where it is.
    #[must_use]
    pub const fn address(self) -> u64 {
        layout::LARGE_WINDOW + self.0 * LARGE
    }

    /// Maps the large frame in `slot` here, for reading or for both.
    ///
    /// # Errors
    /// As for a page.
    pub fn map(self, slot: u64, rights: Rights) -> Outcome {
        map_at(self.address(), slot, rights)
    }

    /// The page of the windows in which a word is, and which one of that it is.
    fn at(self, word: u64) -> (u64, usize) {
        let place = self.address() - layout::WINDOW + word * 8;
        let index = usize::try_from(place % PAGE / 8).unwrap_or_default();
        (place / PAGE, index)
    }

    /// A word of it.
    #[must_use]
    pub fn word(self, word: u64) -> u64 {
        let (page, index) = self.at(word);
        window_word(page, index)
    }

    /// Writes a word of it.
    pub fn set_word(self, word: u64, value: u64) {
        let (page, index) = self.at(word);
        set_window_word(page, index, value);
    }
}

/// A page of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page(pub u64);

impl Page {
    /// Maps the frame in `slot` here, for reading or for both.
    ///
    /// # Errors
    /// The kernel's, and `NotEnoughMemory` if there are no page tables for the window.
    pub fn map(self, slot: u64, rights: Rights) -> Outcome {
        map_at(layout::WINDOW + self.0 * PAGE, slot, rights)
    }

    /// Copies bytes from the beginning of the page.
    pub fn read(self, bytes: &mut [u8]) {
        assert!(bytes.len() <= BYTES, "a frame has no more");
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = window_word(self.0, index).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Copies bytes to the beginning of the page; the rest of the last word becomes zero.
    pub fn write(self, bytes: &[u8]) {
        assert!(bytes.len() <= BYTES, "a frame has no more");
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            set_window_word(self.0, index, u64::from_le_bytes(word));
        }
    }

    /// Copies bytes from `at` on, in this page and those that follow it.
    pub fn read_at(self, at: usize, bytes: &mut [u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let place = at + done;
            let page = self.0 + (place / BYTES) as u64;
            let word = window_word(page, place % BYTES / 8).to_le_bytes();
            let rest = &word[place % 8..];
            let count = rest.len().min(bytes.len() - done);
            bytes[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
    }
}
