//! The system calls themselves, and the IPC buffer: all unsafe code of programs.

use core::arch::asm;

use rcoe_abi::boot::Word;
use rcoe_abi::layout::{BOOT_INFO, IMAGE, IPC_BUFFER, SCRATCH};
use rcoe_abi::{FIRST_BUFFER_WORD, IN_REGISTERS, MAX_MESSAGE, MessageInfo, Syscall};

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
}

fn buffer_word(index: usize) -> u64 {
    assert!(index < MAX_MESSAGE);
    // SAFETY: the buffer is a page that is mapped for as long as the thread lives.
    unsafe {
        (IPC_BUFFER as *const u64)
            .add(FIRST_BUFFER_WORD + index)
            .read_volatile()
    }
}

fn set_buffer_word(index: usize, word: u64) {
    assert!(index < MAX_MESSAGE);
    // SAFETY: as for reading; nothing else refers to the buffer.
    unsafe {
        (IPC_BUFFER as *mut u64)
            .add(FIRST_BUFFER_WORD + index)
            .write_volatile(word)
    }
}

/// Any system call with a message.
fn enter(number: Syscall, pointer: u64, label: u64, words: &[u64]) -> Received {
    let info = MessageInfo::new(label, words.len());
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
    let [mut a, mut b, mut c, mut d] = first;
    let (mut badge, mut answer) = (pointer, info.word());
    // SAFETY: the kernel changes the registers named here only; what it does for the call was
    // allowed by capabilities to this thread's own memory at most.
    unsafe {
        asm!("syscall",
            in("rax") number as u64,
            inlateout("rdi") badge,
            inlateout("rsi") answer,
            inlateout("r10") a,
            inlateout("r8") b,
            inlateout("r9") c,
            inlateout("r12") d,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    let answer = MessageInfo::from_word(answer);
    Received {
        badge,
        label: answer.label(),
        len: answer.len(),
        words: [a, b, c, d],
    }
}

/// Sends and waits for the answer; or invokes a kernel object.
pub fn call(pointer: u64, label: u64, words: &[u64]) -> Received {
    enter(Syscall::Call, pointer, label, words)
}

/// Sends, waiting for a receiver; or signals.
pub fn send(pointer: u64, label: u64, words: &[u64]) -> Received {
    enter(Syscall::Send, pointer, label, words)
}

/// Waits for a message or a signal.
#[must_use]
pub fn recv(pointer: u64) -> Received {
    enter(Syscall::Recv, pointer, 0, &[])
}

/// A message or a signal, if there is one now; else the badge is 0.
#[must_use]
pub fn now_message(pointer: u64) -> Received {
    enter(Syscall::NbRecv, pointer, 0, &[])
}

/// Answers the last caller and waits for the next message.
#[must_use]
pub fn reply_recv(pointer: u64, label: u64, words: &[u64]) -> Received {
    enter(Syscall::ReplyRecv, pointer, label, words)
}

/// Lets others of the same priority run.
pub fn yield_now() {
    enter(Syscall::Yield, 0, 0, &[]);
}

/// Has these words compared between replicas before anything goes out (`FT_Add_Trace`).
pub fn add_trace(words: &[u64]) {
    for chunk in words.chunks(MAX_MESSAGE) {
        enter(Syscall::AddTrace, 0, 0, chunk);
    }
}

/// Memory that was just mapped for us.
pub(crate) fn fresh(address: u64, words: usize) -> &'static mut [u64] {
    // SAFETY: the root task mapped zeroed pages there that nothing else in this program refers to,
    // and never takes them back.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u64, words) }
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

/// Root task: fills the page that it has mapped at [`SCRATCH`].
pub fn fill_scratch(content: &[u64]) {
    assert!(content.len() <= PAGE_WORDS);
    // SAFETY: the root task maps a frame there before each call, and nothing refers to it.
    unsafe { core::ptr::copy_nonoverlapping(content.as_ptr(), SCRATCH as *mut u64, content.len()) }
}
