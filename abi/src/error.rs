//! How an invocation fails: the label of its reply. 0 is success.

/// Why the kernel refused; nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Error {
    /// No capability where the pointer leads, or not of the type that is needed.
    InvalidCapability = 1,
    /// An argument is out of its range.
    InvalidArgument = 2,
    /// The object has no such operation, or the message is too short for it.
    IllegalOperation = 3,
    /// The pointer leads nowhere in this capability space.
    FailedLookup = 4,
    /// The destination slot is occupied, or the place is mapped already.
    DeleteFirst = 5,
    /// The untyped memory is used up.
    NotEnoughMemory = 6,
    /// The capability has children.
    RevokeFirst = 7,
    /// An address that is not aligned.
    AlignmentError = 8,
    /// An address or number beyond the limits.
    RangeError = 9,
    /// Too few rights.
    AccessDenied = 10,
    /// An intermediate page table is missing.
    MissingTable = 11,
}

impl Error {
    /// The error with this label, if it is one.
    #[must_use]
    pub const fn from_label(label: u64) -> Option<Self> {
        Some(match label {
            1 => Self::InvalidCapability,
            2 => Self::InvalidArgument,
            3 => Self::IllegalOperation,
            4 => Self::FailedLookup,
            5 => Self::DeleteFirst,
            6 => Self::NotEnoughMemory,
            7 => Self::RevokeFirst,
            8 => Self::AlignmentError,
            9 => Self::RangeError,
            10 => Self::AccessDenied,
            11 => Self::MissingTable,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip() {
        for label in 1..=11 {
            assert_eq!(
                Error::from_label(label).map(|error| error as u64),
                Some(label)
            );
        }
        assert_eq!(Error::from_label(0), None);
        assert_eq!(Error::from_label(12), None);
    }
}
