//! Kernel objects: what untyped memory can become, and rights to it.

/// A kind of object, as asked for in [`crate::Label::UntypedRetype`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum ObjectType {
    /// Memory for other objects; `size_bits` is the base-two logarithm of its bytes.
    Untyped = 1,
    /// A table of capabilities; `size_bits` is the logarithm of the number of slots.
    CNode = 2,
    /// A thread.
    Tcb = 3,
    /// Where messages are handed over.
    Endpoint = 4,
    /// A word of signals.
    Notification = 5,
    /// A page of memory.
    Frame = 6,
    /// A page table of any level below the root.
    PageTable = 7,
    /// The root of an address space.
    VSpace = 8,
    /// Memory that one entry above the lowest tables maps: 2 MiB.
    LargeFrame = 9,
    /// The root of a guest's space: what a virtual processor takes for physical memory, see
    /// [`crate::guest`].
    GuestSpace = 10,
}

/// Logarithm of a page's bytes.
pub const PAGE_BITS: u32 = 12;
/// Bytes of a page.
pub const PAGE: u64 = 1 << PAGE_BITS;
/// Logarithm of the bytes of a large frame.
pub const LARGE_BITS: u32 = 21;
/// Bytes of a large frame.
pub const LARGE: u64 = 1 << LARGE_BITS;
/// Logarithm of a slot's bytes.
pub const SLOT_BITS: u32 = 5;
/// Logarithm of a thread's bytes.
pub const TCB_BITS: u32 = 11;
/// Logarithm of the bytes of an endpoint or a notification.
pub const ENDPOINT_BITS: u32 = 6;
/// Smallest untyped memory.
pub const MIN_UNTYPED_BITS: u32 = 6;
/// Largest untyped memory.
pub const MAX_UNTYPED_BITS: u32 = 36;
/// Largest capability table.
pub const MAX_CNODE_BITS: u32 = 20;

impl ObjectType {
    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Untyped,
            2 => Self::CNode,
            3 => Self::Tcb,
            4 => Self::Endpoint,
            5 => Self::Notification,
            6 => Self::Frame,
            7 => Self::PageTable,
            8 => Self::VSpace,
            9 => Self::LargeFrame,
            10 => Self::GuestSpace,
            _ => return None,
        })
    }

    /// Logarithm of the bytes of such an object, if `size_bits` is possible for it.
    #[must_use]
    pub const fn bits(self, size_bits: u32) -> Option<u32> {
        match self {
            Self::Untyped if size_bits < MIN_UNTYPED_BITS || size_bits > MAX_UNTYPED_BITS => None,
            Self::Untyped => Some(size_bits),
            Self::CNode if size_bits < 1 || size_bits > MAX_CNODE_BITS => None,
            Self::CNode => Some(size_bits + SLOT_BITS),
            Self::Tcb => Some(TCB_BITS),
            Self::Endpoint | Self::Notification => Some(ENDPOINT_BITS),
            Self::Frame | Self::PageTable | Self::VSpace | Self::GuestSpace => Some(PAGE_BITS),
            Self::LargeFrame => Some(LARGE_BITS),
        }
    }
}

/// What a capability allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Receive, or read.
    pub const READ: Self = Self(1);
    /// Send, or write.
    pub const WRITE: Self = Self(2);
    /// Execute (frames only).
    pub const EXECUTE: Self = Self(4);
    /// Read and write.
    pub const READ_WRITE: Self = Self(3);
    /// Send capabilities along (endpoints only).
    pub const GRANT: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(15);

    /// From a message word; unknown bits are dropped.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self((word & 15) as u8)
    }

    /// For a message word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0 as u64
    }

    /// What both allow.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What either allows.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Is all of `other` allowed?
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
