//! What lies in memory otherwise than on another processor.

/// Bytes of an event of `epoll`, and where in it the program's own word is.
pub(crate) const EVENT: usize = 12;
/// See [`EVENT`].
pub(crate) const EVENT_DATA: usize = 4;

/// The first byte of an instruction that is replaced in code, and what is put there: that of the
/// one that identifies the processor. The other byte is undefined in this mode of the processor,
/// whatever follows.
pub(crate) const REPLACED: Option<[u8; 2]> = Some([0x0f, 0x06]);

/// Where code is by which a handler returns that names no way back, and that code: there is none.
pub(crate) const TRAMPOLINE: Option<(u64, [u8; 8])> = None;

/// Words of `struct stat`: they are as the rest knows them.
pub(crate) const fn file_words(words: &[u64; 18]) -> [u64; 18] {
    *words
}
