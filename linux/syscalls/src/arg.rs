//! How one argument enters the trace, and which memory it reads or writes.

/// How many bytes or elements of an output buffer a successful call has filled.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Valid {
    /// As many as the call returns, but never more than the buffer holds: calls that report the
    /// length they would have needed (`MSG_TRUNC`, `getxattr` with a size of zero) return more.
    Ret,
    /// All that the length argument says.
    Arg,
}

/// The kind of one argument.
///
/// A null pointer always means "no buffer". `*_arg` fields are indices into the same call's
/// arguments, whose [canonical](Arg::canonical) value is the length or count. Output is valid only
/// if the call succeeded, unless the variant says otherwise.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// The call has no such argument; what the register holds means nothing.
    None,
    /// A file descriptor: 32 bits, signed, since `AT_FDCWD` and -1 are legal.
    Fd,
    /// A virtual process, thread or group number: 32 bits, signed. Translated before it reaches
    /// the host.
    Pid,
    /// A C `int`: 32 bits, signed.
    Int,
    /// A C `unsigned int`, also flags and user ids: 32 bits.
    Uint,
    /// A file mode: the kernel takes 16 bits.
    Mode,
    /// All 64 bits, as a value: `long`, `loff_t`, flags of that width.
    Long,
    /// All 64 bits, as a length.
    Size,
    /// An address that is only a value.
    Addr,
    /// A pointer to memory that the table does not describe: folded as a value.
    Pointer,
    /// A NUL-terminated string that the call reads.
    Path,
    /// A null-terminated array of pointers to NUL-terminated strings that the call reads.
    StrVec,
    /// Bytes that the call reads.
    InBuf {
        /// Argument with the length.
        len_arg: u8,
    },
    /// A message of a System V queue that the call reads: a word and then so many bytes.
    InMsg {
        /// Argument with the length.
        len_arg: u8,
    },
    /// The same that the call writes: a word and then as many bytes as it returns.
    OutMsg {
        /// Argument with the length of the room for bytes.
        len_arg: u8,
    },
    /// A structure that the call reads.
    InStruct {
        /// Bytes in it.
        size: u16,
    },
    /// Bytes that the call writes.
    OutBuf {
        /// Argument with the length.
        len_arg: u8,
        /// How many of them it filled.
        valid: Valid,
    },
    /// Bytes that the call writes: the least of `*lenptr` before and after it.
    OutBufLenPtr {
        /// Argument of kind [`Arg::SockLenPtr`].
        lenptr_arg: u8,
    },
    /// A structure that the call writes.
    OutStruct {
        /// Bytes in it.
        size: u16,
    },
    /// A structure that the call writes only if it fails with `EINTR`: the time left.
    OutStructOnError {
        /// Bytes in it.
        size: u16,
    },
    /// A structure that the call reads and writes, even if it fails (not with `EFAULT`).
    InOutStruct {
        /// Bytes in it.
        size: u16,
    },
    /// An array that the call reads.
    InArray {
        /// Argument with the number of elements.
        count_arg: u8,
        /// Bytes in an element.
        elem: u16,
    },
    /// An array that the call writes.
    OutArray {
        /// Argument with the number of elements.
        count_arg: u8,
        /// Bytes in an element.
        elem: u16,
        /// How many elements it filled.
        valid: Valid,
    },
    /// An array that the call reads and writes.
    InOutArray {
        /// Argument with the number of elements.
        count_arg: u8,
        /// Bytes in an element.
        elem: u16,
    },
    /// An array of `struct iovec` whose buffers the call reads.
    IovIn {
        /// Argument with the number of buffers.
        count_arg: u8,
    },
    /// An array of `struct iovec` whose buffers the call fills; it returns the sum of bytes.
    IovOut {
        /// Argument with the number of buffers.
        count_arg: u8,
    },
    /// A socket address that the call reads.
    SockaddrIn {
        /// Argument with its length.
        len_arg: u8,
    },
    /// A socket address that the call writes: the least of `*lenptr` before and after it, since the
    /// kernel reports the full length of an address that it had to cut.
    SockaddrOut {
        /// Argument of kind [`Arg::SockLenPtr`].
        lenptr_arg: u8,
    },
    /// A pointer to a `u32` length that the call reads and writes.
    SockLenPtr,
    /// A `struct msghdr` (56 bytes) whose name, control data and buffers the call reads.
    MsghdrIn,
    /// A `struct msghdr` whose name, control data, flags and buffers the call writes.
    MsghdrOut,
    /// An array of `struct mmsghdr` (64 bytes) to be sent; the call writes `msg_len` of as many as
    /// it returns.
    MmsghdrIn {
        /// Argument with the number of messages.
        count_arg: u8,
    },
    /// An array of `struct mmsghdr` to be received; the call fills as many as it returns.
    MmsghdrOut {
        /// Argument with the number of messages.
        count_arg: u8,
    },
    /// A bitmap that the call reads and writes, [`Arg::fd_set_bytes`] long.
    FdSet {
        /// Argument with the number of descriptors.
        nfds_arg: u8,
    },
}

impl Arg {
    /// Is there no such argument?
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, Arg::None)
    }

    /// The value that the kernel sees in a raw register: cut to the argument's width and extended
    /// by its sign. Pointers keep all their bits; an argument that does not exist is zero.
    #[inline]
    #[must_use]
    pub const fn canonical(self, raw: u64) -> u64 {
        self.width().canonical(raw)
    }

    /// The same without regard to its sign.
    #[inline]
    #[must_use]
    pub const fn cut(self, raw: u64) -> u64 {
        self.width().cut(raw)
    }

    /// By which [`Arg::canonical`] goes, decided.
    #[must_use]
    pub(crate) const fn width(self) -> Width {
        let (mask, sign) = match self {
            Arg::None => (0, 0),
            Arg::Fd | Arg::Pid | Arg::Int => (0xffff_ffff, 1 << 31),
            Arg::Uint => (0xffff_ffff, 0),
            Arg::Mode => (0xffff, 0),
            _ => (u64::MAX, 0),
        };
        Width { mask, sign }
    }

    /// Whether the call reads memory through this argument, so that its content is voted.
    #[inline]
    #[must_use]
    pub const fn reads_memory(self) -> bool {
        !self.is_scalar()
            && !matches!(
                self,
                Arg::OutBuf { .. }
                    | Arg::OutMsg { .. }
                    | Arg::OutBufLenPtr { .. }
                    | Arg::OutStruct { .. }
                    | Arg::OutStructOnError { .. }
                    | Arg::OutArray { .. }
                    | Arg::SockaddrOut { .. }
            )
    }

    /// Whether the call writes memory through this argument, so that followers need the bytes.
    #[inline]
    #[must_use]
    pub const fn writes_memory(self) -> bool {
        !self.is_scalar()
            && !matches!(
                self,
                Arg::Path
                    | Arg::StrVec
                    | Arg::InBuf { .. }
                    | Arg::InMsg { .. }
                    | Arg::InStruct { .. }
                    | Arg::InArray { .. }
                    | Arg::IovIn { .. }
                    | Arg::SockaddrIn { .. }
                    | Arg::MsghdrIn
            )
    }

    /// Whether the register alone is the argument, as for [`Arg::Addr`]: nothing behind it counts.
    #[inline]
    #[must_use]
    pub const fn is_scalar(self) -> bool {
        matches!(
            self,
            Arg::None
                | Arg::Fd
                | Arg::Pid
                | Arg::Int
                | Arg::Uint
                | Arg::Mode
                | Arg::Long
                | Arg::Size
                | Arg::Addr
                | Arg::Pointer
        )
    }

    /// Whether the kernel or the agent uses what the argument points to, so that it must be the
    /// program's memory.
    #[inline]
    #[must_use]
    pub const fn is_pointer(self) -> bool {
        matches!(self, Arg::Pointer) || !self.is_scalar()
    }

    /// Bytes of an `fd_set` for `nfds` descriptors: whole words, as the kernel copies them.
    /// `nfds` is a canonical `int`; a negative one has no bitmap, since the call fails.
    #[inline]
    #[must_use]
    pub const fn fd_set_bytes(nfds: u64) -> u64 {
        if nfds > i32::MAX as u64 {
            0
        } else {
            nfds.div_ceil(64) * 8
        }
    }
}

/// How many bits of a register an argument has, and its sign. Applied without a branch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    /// Of the bits that count.
    mask: u64,
    /// The bit that is extended over all above it, or 0.
    sign: u64,
}

impl Width {
    #[inline]
    pub(crate) const fn cut(self, raw: u64) -> u64 {
        raw & self.mask
    }

    #[inline]
    pub(crate) const fn canonical(self, raw: u64) -> u64 {
        ((raw & self.mask) ^ self.sign).wrapping_sub(self.sign)
    }
}

/// The widths of all arguments.
pub(crate) const fn widths(args: &[Arg; 6]) -> [Width; 6] {
    let mut all = [Arg::None.width(); 6];
    let mut i = 0;
    while i < 6 {
        all[i] = args[i].width();
        i += 1;
    }
    all
}

/// Which arguments are pointers, one bit each.
pub(crate) const fn pointers(args: &[Arg; 6]) -> u8 {
    let mut bits = 0;
    let mut i = 0;
    while i < 6 {
        bits |= (args[i].is_pointer() as u8) << i;
        i += 1;
    }
    bits
}

/// Which arguments lead to memory that is read, one bit each.
pub(crate) const fn reading(args: &[Arg; 6]) -> u8 {
    let mut bits = 0;
    let mut i = 0;
    while i < 6 {
        bits |= (args[i].reads_memory() as u8) << i;
        i += 1;
    }
    bits
}

/// Which arguments lead to memory that is written, one bit each.
pub(crate) const fn writing(args: &[Arg; 6]) -> u8 {
    let mut bits = 0;
    let mut i = 0;
    while i < 6 {
        bits |= (args[i].writes_memory() as u8) << i;
        i += 1;
    }
    bits
}

/// Which arguments are paths, one bit each.
pub(crate) const fn paths(args: &[Arg; 6]) -> u8 {
    let mut bits = 0;
    let mut i = 0;
    while i < 6 {
        bits |= (matches!(args[i], Arg::Path) as u8) << i;
        i += 1;
    }
    bits
}

/// Does any argument lead to a structure with pointers?
pub(crate) const fn nested(args: &[Arg; 6]) -> bool {
    let mut i = 0;
    while i < 6 {
        if matches!(
            args[i],
            Arg::StrVec
                | Arg::IovIn { .. }
                | Arg::IovOut { .. }
                | Arg::MsghdrIn
                | Arg::MsghdrOut
                | Arg::MmsghdrIn { .. }
                | Arg::MmsghdrOut { .. }
        ) {
            return true;
        }
        i += 1;
    }
    false
}
