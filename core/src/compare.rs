//! How much of what a replica does is compared.

/// What joins the signature, and when it is voted ("RCoE", DSN'19: the modes N, A and S). Each
/// mode compares all that those before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compare {
    /// What leaves the sphere of replication.
    Io,
    /// Also every system call and its arguments.
    Args,
    /// As `Args`, with a vote at every system call.
    Every,
}

impl Compare {
    /// All modes, each at the place of its word.
    pub const ALL: [Self; 3] = [Self::Io, Self::Args, Self::Every];

    /// The mode as a word, for memory that is shared.
    #[must_use]
    pub const fn word(self) -> u32 {
        self as u32
    }

    /// The mode of a word; of one that is none, that which compares most.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Io,
            1 => Self::Args,
            _ => Self::Every,
        }
    }

    /// The mode's name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Args => "args",
            Self::Every => "every",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name().as_bytes() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Compare;

    #[test]
    fn words_and_names_are_those_of_the_modes() {
        for mode in Compare::ALL {
            assert_eq!(Compare::from_word(mode.word()), mode);
            assert_eq!(Compare::from_name(mode.name().as_bytes()), Some(mode));
        }
        assert_eq!(Compare::from_name(b"all"), None);
    }

    #[test]
    fn a_word_that_is_damaged_compares_most() {
        assert_eq!(Compare::from_word(u32::MAX), Compare::Every);
        assert!(Compare::Io < Compare::Args && Compare::Args < Compare::Every);
    }
}
