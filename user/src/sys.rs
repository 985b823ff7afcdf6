//! The system calls themselves, and the memory that the kernel maps.

use rcoe_abi::boot::Word;
use rcoe_abi::layout::{
    BOOT_INFO, BUNDLE, IMAGE, IPC_BUFFER, LARGE_WINDOW, LARGE_WINDOW_FRAMES, PROGRAM_END, SCRATCH,
    WINDOW,
};
#[cfg(feature = "linux")]
use rcoe_abi::layout::{SHADOW, SHADOW_PAGES};
use rcoe_abi::object::{LARGE, PAGE};
use rcoe_abi::service::SLOT_TRACE;
use rcoe_abi::{
    CAPS_WORD, Error, FIRST_BUFFER_WORD, IN_REGISTERS, MAX_CAPS, MAX_MESSAGE, MessageInfo,
    RECEIVE_WORD, Syscall, bundle,
};

use crate::arch;

/// Pages of both windows.
const ALL_PAGES: u64 = (LARGE_WINDOW - WINDOW + LARGE_WINDOW_FRAMES * LARGE) / PAGE;

/// Words of a page.
const PAGE_WORDS: usize = 512;

/// A message as it was received: who from, what about, and its first words.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Badge of the capability it was sent by; of a notification, its signals.
    pub badge: u64,
    /// Its label; in an answer of the kernel 0 or an [`rcoe_abi::Error`].
    pub label: u64,
    /// Its length.
    pub len: usize,
    /// Capabilities that came with it, into the slots given to [`accept`].
    pub caps: usize,
    /// Those of which only the badge came, one bit each.
    pub unwrapped: u64,
    /// The words that came in registers.
    pub words: [u64; IN_REGISTERS],
}

impl Received {
    /// Word `index`. Those beyond the registers are there until the next message.
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        match self.words.get(index) {
            Some(&word) => word,
            None if index < self.len => buffer_word(index),
            None => 0,
        }
    }

    /// The badge of capability `index`, if it was unwrapped: until the next message.
    #[must_use]
    pub fn unwrapped_badge(&self, index: usize) -> Option<u64> {
        let badge_only = index < MAX_CAPS && self.unwrapped & 1 << index != 0;
        badge_only.then(|| page_word(CAPS_WORD + index))
    }
}

/// Word `index` of the page that is the IPC buffer.
fn page_word(index: usize) -> u64 {
    assert!(index < PAGE_WORDS);
    // SAFETY: the buffer is a page that is mapped for as long as the thread lives.
    unsafe { (IPC_BUFFER as *const u64).add(index).read_volatile() }
}

fn set_page_word(index: usize, word: u64) {
    assert!(index < PAGE_WORDS);
    // SAFETY: as for reading; nothing else refers to the buffer.
    unsafe { (IPC_BUFFER as *mut u64).add(index).write_volatile(word) }
}

fn buffer_word(index: usize) -> u64 {
    assert!(index < MAX_MESSAGE);
    page_word(FIRST_BUFFER_WORD + index)
}

fn set_buffer_word(index: usize, word: u64) {
    assert!(index < MAX_MESSAGE);
    set_page_word(FIRST_BUFFER_WORD + index, word);
}

/// Says which slots of `table` are to take capabilities that messages bring: `count` from `first`
/// on. It holds until said otherwise; a slot that is not empty takes none.
pub fn accept(table: u64, first: u64, count: u64) {
    for (index, word) in [table, first, count].into_iter().enumerate() {
        set_page_word(RECEIVE_WORD + index, word);
    }
}

/// Word `index` of a page of the windows in which shared frames are mapped: that for large ones is
/// behind that for pages. Without a frame there this is a fault of the program.
#[must_use]
pub fn window_word(page: u64, index: usize) -> u64 {
    assert!(page < ALL_PAGES && index < PAGE_WORDS);
    // SAFETY: nothing of this program lies in the window, so a read there faults or reads a frame;
    // whatever another program writes meanwhile, a word is a word.
    unsafe {
        ((WINDOW + page * 4096) as *const u64)
            .add(index)
            .read_volatile()
    }
}

/// Writes such a word.
pub fn set_window_word(page: u64, index: usize, word: u64) {
    assert!(page < ALL_PAGES && index < PAGE_WORDS);
    // SAFETY: as for reading: nothing of this program lies there.
    unsafe {
        ((WINDOW + page * 4096) as *mut u64)
            .add(index)
            .write_volatile(word)
    }
}

/// Any system call with a message.
fn enter(number: Syscall, pointer: u64, label: u64, words: &[u64], caps: &[u64]) -> Received {
    let info = MessageInfo::new(label, words.len()).with_caps(caps.len(), 0);
    for (index, &cap) in caps.iter().enumerate().take(MAX_CAPS) {
        set_page_word(CAPS_WORD + index, cap);
    }
    let mut first = [0; IN_REGISTERS];
    for (index, &word) in words.iter().enumerate().take(MAX_MESSAGE) {
        match first.get_mut(index) {
            Some(register) => *register = word,
            None => set_buffer_word(index, word),
        }
    }
    raw(number, pointer, info, first)
}

fn raw(number: Syscall, pointer: u64, info: MessageInfo, first: [u64; IN_REGISTERS]) -> Received {
    let registers = arch::Registers {
        pointer,
        info: info.word(),
        words: first,
    };
    let arch::Registers {
        pointer: badge,
        info: answer,
        words,
    } = arch::enter(number, registers);
    let answer = MessageInfo::from_word(answer);
    Received {
        badge,
        label: answer.label(),
        len: answer.len(),
        caps: answer.caps(),
        unwrapped: answer.unwrapped(),
        words,
    }
}

/// Sends and waits for the answer; or invokes a kernel object.
pub fn call(pointer: u64, label: u64, words: &[u64]) -> Received {
    enter(Syscall::Call, pointer, label, words, &[])
}

/// As [`call`], with capabilities. The endpoint must allow that.
pub fn call_with(pointer: u64, label: u64, words: &[u64], caps: &[u64]) -> Received {
    enter(Syscall::Call, pointer, label, words, caps)
}

/// As [`reply_recv`], with capabilities for a caller that could have sent some.
#[must_use]
pub fn reply_recv_with(pointer: u64, label: u64, words: &[u64], caps: &[u64]) -> Received {
    enter(Syscall::ReplyRecv, pointer, label, words, caps)
}

/// Answers the last caller, with capabilities if it could have sent some, and waits for nobody.
pub fn reply_with(words: &[u64], caps: &[u64]) {
    enter(Syscall::Reply, 0, 0, words, caps);
}

/// Sends, waiting for a receiver; or signals.
pub fn send(pointer: u64, label: u64, words: &[u64]) -> Received {
    enter(Syscall::Send, pointer, label, words, &[])
}

/// Waits for a message or a signal.
#[must_use]
pub fn recv(pointer: u64) -> Received {
    enter(Syscall::Recv, pointer, 0, &[], &[])
}

/// A message or a signal, if there is one now; else the badge is 0.
#[must_use]
pub fn now_message(pointer: u64) -> Received {
    enter(Syscall::NbRecv, pointer, 0, &[], &[])
}

/// Answers the last caller and waits for the next message.
#[must_use]
pub fn reply_recv(pointer: u64, label: u64, words: &[u64]) -> Received {
    enter(Syscall::ReplyRecv, pointer, label, words, &[])
}

/// Lets others of the same priority run.
pub fn yield_now() {
    enter(Syscall::Yield, 0, 0, &[], &[]);
}

/// Has these words compared between replicas before anything goes out (`FT_Add_Trace`).
///
/// # Panics
/// If this program has no right to that: it may not go on as if they were compared.
pub fn add_trace(words: &[u64]) {
    assert!(
        add_trace_by(SLOT_TRACE, words).is_ok(),
        "the right to add to the trace is missing"
    );
}

/// The same by a right that stands in another slot.
///
/// # Errors
/// The kernel's, if there is no such right.
pub fn add_trace_by(slot: u64, words: &[u64]) -> Result<(), Error> {
    for chunk in words.chunks(MAX_MESSAGE) {
        let answer = enter(Syscall::AddTrace, slot, 0, chunk, &[]);
        if answer.label != 0 {
            return Err(Error::from_label(answer.label).unwrap_or(Error::IllegalOperation));
        }
    }
    Ok(())
}

/// Memory that was just mapped for us.
pub(crate) fn fresh(address: u64, words: usize) -> &'static mut [u64] {
    // SAFETY: the root task mapped zeroed pages there that nothing else in this program refers to,
    // and never takes them back.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u64, words) }
}

/// The first bytes of words.
pub(crate) fn as_bytes(words: &'static mut [u64], bytes: usize) -> &'static mut [u8] {
    assert!(bytes <= size_of_val(words));
    // SAFETY: these bytes lie within the words, which nobody can refer to any more, and any byte
    // is a byte.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), bytes) }
}

/// Root task: the boot page.
#[must_use]
pub fn boot_page() -> &'static [u64] {
    // SAFETY: the kernel mapped it for reading, for as long as the root task lives.
    unsafe { core::slice::from_raw_parts(BOOT_INFO as *const u64, PAGE_WORDS) }
}

/// Root task: the boot image, as long as the boot page says.
#[must_use]
pub fn boot_image() -> &'static [u64] {
    let bytes = boot_page()[Word::ImageBytes as usize];
    let words = usize::try_from(bytes / 8).unwrap_or_default();
    // SAFETY: the kernel mapped so much of it for reading, for as long as the root task lives.
    unsafe { core::slice::from_raw_parts(IMAGE as *const u64, words) }
}

/// Personality of Linux: the bundle of its program, as long as it says.
///
/// # Panics
/// If it says that it is longer than any.
#[must_use]
pub fn bundle() -> &'static [u8] {
    const WORD: u64 = BUNDLE + 8 * bundle::Word::Bytes as u64;
    // SAFETY: the host has the bundle mapped there for reading, for as long as the program lives;
    // without one the read faults.
    let bytes = unsafe { (WORD as *const u64).read() };
    assert!(
        bytes <= PROGRAM_END - BUNDLE,
        "a bundle ends where programs do"
    );
    // SAFETY: the host has so much of it mapped there, and nobody writes it.
    unsafe { core::slice::from_raw_parts(BUNDLE as *const u8, usize::try_from(bytes).unwrap_or(0)) }
}

/// Where a byte of the program's memory is in the personality of Linux, for so many bytes of one
/// page.
#[cfg(feature = "linux")]
fn shadow(page: u64, at: usize, bytes: usize) -> u64 {
    assert!(page < SHADOW_PAGES && at + bytes <= 8 * PAGE_WORDS);
    SHADOW + page * PAGE + at as u64
}

/// Personality of Linux: reads from a page of its program's memory.
#[cfg(feature = "linux")]
pub(crate) fn read_shadow(page: u64, at: usize, bytes: &mut [u8]) {
    let from = shadow(page, at, bytes.len()) as *const u8;
    // SAFETY: nothing of this program lies in that window, so a read there faults or reads a frame
    // whose program waits for an answer.
    unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
}

/// Personality of Linux: writes to such a page.
#[cfg(feature = "linux")]
pub(crate) fn write_shadow(page: u64, at: usize, bytes: &[u8]) {
    let to = shadow(page, at, bytes.len()) as *mut u8;
    // SAFETY: as for reading: nothing of this program lies there.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
}

/// Personality of Linux: makes such a page zero.
#[cfg(feature = "linux")]
pub(crate) fn zero_shadow(page: u64) {
    let bytes = 8 * PAGE_WORDS;
    // SAFETY: as for writing.
    unsafe { core::ptr::write_bytes(shadow(page, 0, bytes) as *mut u8, 0, bytes) }
}

/// Root task: fills the page that it has mapped at [`SCRATCH`].
pub fn fill_scratch(content: &[u64]) {
    assert!(content.len() <= PAGE_WORDS);
    // SAFETY: the root task maps a frame there before each call, and nothing refers to it.
    unsafe { core::ptr::copy_nonoverlapping(content.as_ptr(), SCRATCH as *mut u64, content.len()) }
}
