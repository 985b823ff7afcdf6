//! Messages: a label, up to [`MAX_MESSAGE`] words of which the first few are in registers, and up
//! to [`MAX_CAPS`] capabilities.
//!
//! Capabilities travel as in seL4: the sender names them by pointers in its IPC buffer, and needs
//! the grant right on the endpoint (for a reply, the caller needed it). The receiver names in its
//! own buffer the slots that are to take them. One to the very endpoint that the message goes
//! through is *unwrapped*: instead of it the receiver learns its badge.

/// Words of a message that travel in registers.
pub const IN_REGISTERS: usize = 4;

/// Longest message, in words.
pub const MAX_MESSAGE: usize = 120;

/// Most capabilities of a message.
pub const MAX_CAPS: usize = 3;

/// Where in the IPC buffer (a page of 512 words) message word 0 would be; words that travel in
/// registers leave their places unused.
pub const FIRST_BUFFER_WORD: usize = 1;

/// Where in the buffer the pointers of capabilities to be sent are, and the badges of those that
/// were unwrapped.
pub const CAPS_WORD: usize = FIRST_BUFFER_WORD + MAX_MESSAGE;

/// Where in the buffer a receiver says which slots are to take capabilities: pointer to a
/// capability table, first slot, number of slots. They are read when a message is handed over.
pub const RECEIVE_WORD: usize = CAPS_WORD + MAX_CAPS;

const _: () = assert!(RECEIVE_WORD + 3 <= 512, "a buffer is a page");

/// Bits of the length, of the number of capabilities, and of the unwrapped ones; then the label.
const LENGTH: u32 = 7;
const CAPS: u32 = 2;
const UNWRAPPED: u32 = 3;
const SHIFT: u32 = LENGTH + CAPS + UNWRAPPED;

const _: () = assert!(MAX_MESSAGE < 1 << LENGTH && MAX_CAPS < 1 << CAPS);
const _: () = assert!(MAX_CAPS == UNWRAPPED as usize, "one bit each");

/// What a message is: its label, its length, and how many capabilities come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageInfo(u64);

impl MessageInfo {
    /// A message of `len` words.
    #[must_use]
    pub const fn new(label: u64, len: usize) -> Self {
        let len = if len > MAX_MESSAGE { MAX_MESSAGE } else { len };
        Self(label << SHIFT | len as u64)
    }

    /// The same with so many capabilities, of which bit `i` of `unwrapped` says that the i-th was
    /// unwrapped. A sender leaves those bits zero.
    #[must_use]
    pub const fn with_caps(self, caps: usize, unwrapped: u64) -> Self {
        let caps = if caps > MAX_CAPS { MAX_CAPS } else { caps };
        let kept = self.0 & !((1 << SHIFT) - (1 << LENGTH));
        let unwrapped = unwrapped & ((1 << MAX_CAPS) - 1);
        Self(kept | (caps as u64) << LENGTH | unwrapped << (LENGTH + CAPS))
    }

    /// As it came in a register.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// For a register.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The label: what is asked for, or how it went.
    #[must_use]
    pub const fn label(self) -> u64 {
        self.0 >> SHIFT
    }

    /// Words, at most [`MAX_MESSAGE`].
    #[must_use]
    pub const fn len(self) -> usize {
        let len = (self.0 & ((1 << LENGTH) - 1)) as usize;
        if len > MAX_MESSAGE { MAX_MESSAGE } else { len }
    }

    /// Capabilities, at most [`MAX_CAPS`].
    #[must_use]
    pub const fn caps(self) -> usize {
        (self.0 >> LENGTH & ((1 << CAPS) - 1)) as usize
    }

    /// Which of them were unwrapped, one bit each.
    #[must_use]
    pub const fn unwrapped(self) -> u64 {
        self.0 >> (LENGTH + CAPS) & ((1 << MAX_CAPS) - 1)
    }

    /// No words?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_whatever_a_register_holds() {
        assert_eq!(MessageInfo::new(7, 500).len(), MAX_MESSAGE);
        let wild = MessageInfo::from_word(u64::MAX);
        assert_eq!((wild.len(), wild.caps()), (MAX_MESSAGE, MAX_CAPS));
        let info = MessageInfo::new(9, 3);
        assert_eq!((info.label(), info.len(), info.is_empty()), (9, 3, false));
        assert_eq!(MessageInfo::from_word(info.word()), info);
    }

    #[test]
    fn capabilities_are_counted_beside_label_and_length() {
        let info = MessageInfo::new(9, 5).with_caps(3, 5);
        let parts = (info.label(), info.len(), info.caps(), info.unwrapped());
        assert_eq!(parts, (9, 5, 3, 5));
        assert_eq!(info.with_caps(0, 0), MessageInfo::new(9, 5));
        assert_eq!(info.with_caps(9, 0).caps(), MAX_CAPS);
    }
}
