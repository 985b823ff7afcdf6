//! Messages: a label, and up to [`MAX_MESSAGE`] words of which the first few are in registers.

/// Words of a message that travel in registers.
pub const IN_REGISTERS: usize = 4;

/// Longest message, in words.
pub const MAX_MESSAGE: usize = 120;

/// Where in the IPC buffer (a page of 512 words) message word 0 would be; words that travel in
/// registers leave their places unused.
pub const FIRST_BUFFER_WORD: usize = 1;

const _: () = assert!(FIRST_BUFFER_WORD + MAX_MESSAGE <= 512, "a buffer is a page");

/// What a message is: its label and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageInfo(u64);

impl MessageInfo {
    /// A message of `len` words.
    #[must_use]
    pub const fn new(label: u64, len: usize) -> Self {
        let len = if len > MAX_MESSAGE { MAX_MESSAGE } else { len };
        Self(label << 7 | len as u64)
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
        self.0 >> 7
    }

    /// Words, at most [`MAX_MESSAGE`].
    #[must_use]
    pub const fn len(self) -> usize {
        let len = (self.0 & 0x7f) as usize;
        if len > MAX_MESSAGE { MAX_MESSAGE } else { len }
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
        assert_eq!(MessageInfo::from_word(u64::MAX).len(), MAX_MESSAGE);
        let info = MessageInfo::new(9, 3);
        assert_eq!((info.label(), info.len(), info.is_empty()), (9, 3, false));
        assert_eq!(MessageInfo::from_word(info.word()), info);
    }
}
