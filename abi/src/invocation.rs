//! Invocations: what can be asked of a kernel object, by [`crate::Syscall::Call`] on a capability
//! to it with one of these labels. Arguments are message words, in the order given; a *pointer* is
//! looked up in the caller's capability space. The reply's label is 0 or a [`crate::Error`].

/// Label of an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Label {
    /// Makes objects: type, size bits, pointer to a capability table, first slot, number.
    UntypedRetype = 16,
    /// Copies a capability: destination slot, pointer to the source, rights.
    CNodeCopy = 17,
    /// As copy, with a badge (or for I/O ports a narrower range) too: slot, pointer, rights, badge.
    CNodeMint = 18,
    /// Moves a capability: destination slot, pointer to the source.
    CNodeMove = 19,
    /// Deletes a capability: slot.
    CNodeDelete = 20,
    /// Deletes all that was derived from a capability: slot.
    CNodeRevoke = 21,
    /// Sets where its own data is: the bases of FS and GS on x86-64, on AArch64 the thread's own
    /// register and 0. Addresses of programs.
    TcbWritePointers = 22,
    /// Sets a thread's capability table, with a guard: pointer to the table; in the low six bits
    /// the number of bits that a pointer must begin with, above them those bits. What is left of a
    /// pointer behind guard and table is looked up in what that slot holds.
    TcbSetTable = 23,
    /// Sets a thread's spaces: pointer to a capability table, in which pointers are slots; pointer
    /// to an address space, pointer to the frame of its IPC buffer, the fault handler's pointer in
    /// the thread's own space.
    TcbConfigure = 24,
    /// Sets the priority: 0 to 63, and at most the caller's own.
    TcbSetPriority = 25,
    /// Sets where it runs: instruction pointer, stack pointer, first and second argument.
    TcbWriteRegisters = 26,
    /// Reads instruction and stack pointer.
    TcbReadRegisters = 27,
    /// Lets it run.
    TcbResume = 28,
    /// Stops it.
    TcbSuspend = 29,
    /// Binds a notification: what is signalled there also ends a receive on an endpoint. Pointer.
    TcbBindNotification = 30,
    /// Sets how it runs: a [`ThreadFlags`] word.
    TcbSetFlags = 31,
    /// Maps a frame: pointer to an address space, address, rights.
    FrameMap = 32,
    /// Unmaps it.
    FrameUnmap = 33,
    /// Makes a page table part of an address space: pointer to the space, address.
    TableMap = 34,
    /// Takes it out again, with all that is mapped in it.
    TableUnmap = 35,
    /// Stops a thread, whatever it waits for, sets its registers as the reply to a fault does, and
    /// lets it run: so a server answers it that did not at once. All registers, in the order of
    /// the kernel's context. Not the caller's own thread.
    TcbWriteContext = 36,
    /// Copies floating-point state from another thread: pointer to that.
    TcbCopyFloats = 37,
    /// Reads floating-point state: all its words are the reply's.
    TcbReadFloats = 38,
    /// Sets floating-point state: all its words, of which none may be one that the processor cannot
    /// hold.
    TcbWriteFloats = 39,
    /// Makes the handler of an interrupt: line, destination slot in the caller's root table.
    IrqControlGet = 40,
    /// Says where the interrupt is signalled: pointer to a notification.
    IrqSetNotification = 41,
    /// The interrupt has been handled, the next one may come.
    IrqAck = 42,
    /// It is signalled nowhere any more.
    IrqClear = 43,
    /// Reads what a virtual processor keeps for its own kernel: the words of [`crate::guest`].
    TcbReadGuest = 44,
    /// Sets all these words.
    TcbWriteGuest = 45,
    /// Reads a port: port, width in bytes, and 1 if reading twice is as good as once, so that it
    /// can be done again should the primary be lost. The value is the first word of the reply.
    PortIn = 48,
    /// Writes a port, once: port, width in bytes, value, and 1 if writing twice is as good as once,
    /// so that the next primary can do it again should this one be lost.
    PortOut = 49,
    /// Writes bytes to one port, one after the other: port, number of bytes, then eight a word.
    PortOutBytes = 50,
    /// Reads device memory (DSN'19, `FT_Mem_Access`): the primary does, all get the value. Place,
    /// counted from the capability's first page, width in bytes (1, 2, 4, 8), and 1 if reading
    /// twice is as good as once. The value is the first word of the reply.
    DeviceRead = 52,
    /// Writes device memory, once, after a vote: place, width, value, and 1 if writing twice is as
    /// good as once. Without that the loss of the primary while it writes ends the run.
    DeviceWrite = 53,
    /// Tells a device where transfer memory is, that of the primary: place of the register, width
    /// (4 or 8), the place to be told, and 1 if writing twice is as good as once. The reply's first
    /// word is the generation: which primary's that is. A place in transfer memory itself is one
    /// where the device will find the address (width 8): there each replica stores its own.
    DeviceWriteAddress = 54,
    /// Copies from a frame into transfer memory, for a device to fetch: place, pointer to the
    /// frame, byte in it, number of bytes.
    DeviceCopyOut = 55,
    /// What a device stored into the primary's transfer memory goes into a frame of all replicas
    /// (DSN'19, `FT_Mem_Rep`): as for copying out, and the generation. The reply's first word is 1,
    /// or 0 if another replica is the primary by now, into whose memory the device did not store.
    DeviceCopyIn = 56,
    /// Makes a capability to one page of device memory that can be mapped (EDCC'15, IV-D): page,
    /// counted from the capability's first, and destination slot in the caller's root table.
    /// [`Self::FrameMap`] and [`Self::FrameUnmap`] are its invocations too. Of transfer memory the
    /// primary's page is mapped in all replicas, writable in the primary only; of registers the
    /// primary sees the page, for reading, and the others one that is blank.
    DeviceFrame = 57,
    /// On such a capability: all replicas meet and compare. What the primary wrote before is there
    /// for all behind it, and the pages mapped in the caller's address space are from here on those
    /// of the present primary. The reply's first word is the generation, the second 1 in the
    /// primary: the one answer that differs between replicas, for drivers only.
    SharedMeet = 58,
}

impl Label {
    /// The invocation with this label.
    #[must_use]
    pub const fn from_label(label: u64) -> Option<Self> {
        Some(match label {
            16 => Self::UntypedRetype,
            17 => Self::CNodeCopy,
            18 => Self::CNodeMint,
            19 => Self::CNodeMove,
            20 => Self::CNodeDelete,
            21 => Self::CNodeRevoke,
            22 => Self::TcbWritePointers,
            23 => Self::TcbSetTable,
            24 => Self::TcbConfigure,
            25 => Self::TcbSetPriority,
            26 => Self::TcbWriteRegisters,
            27 => Self::TcbReadRegisters,
            28 => Self::TcbResume,
            29 => Self::TcbSuspend,
            30 => Self::TcbBindNotification,
            31 => Self::TcbSetFlags,
            32 => Self::FrameMap,
            33 => Self::FrameUnmap,
            34 => Self::TableMap,
            35 => Self::TableUnmap,
            36 => Self::TcbWriteContext,
            37 => Self::TcbCopyFloats,
            38 => Self::TcbReadFloats,
            39 => Self::TcbWriteFloats,
            40 => Self::IrqControlGet,
            41 => Self::IrqSetNotification,
            42 => Self::IrqAck,
            43 => Self::IrqClear,
            44 => Self::TcbReadGuest,
            45 => Self::TcbWriteGuest,
            48 => Self::PortIn,
            49 => Self::PortOut,
            50 => Self::PortOutBytes,
            52 => Self::DeviceRead,
            53 => Self::DeviceWrite,
            54 => Self::DeviceWriteAddress,
            55 => Self::DeviceCopyOut,
            56 => Self::DeviceCopyIn,
            57 => Self::DeviceFrame,
            58 => Self::SharedMeet,
            _ => return None,
        })
    }
}

/// How a thread runs; for debuggers, and for personalities of other systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadFlags(u64);

impl ThreadFlags {
    /// As any thread.
    pub const NONE: Self = Self(0);
    /// Every system call of it, whatever its number, is one that is not the kernel's.
    pub const CALLS_ARE_FAULTS: Self = Self(1);
    /// Each instruction is followed by the processor's exception for that. A system call is one
    /// with what follows it, where the processor has it so.
    pub const STEPS: Self = Self(2);

    /// From a message word, if all its bits are known.
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & !3 == 0 {
            Some(Self(word))
        } else {
            None
        }
    }

    /// For a message word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// What either says.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Is all of `other` said?
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Label of a message that the kernel sends on behalf of a thread that cannot go on. Labels of
/// faults are below those of invocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum FaultLabel {
    /// A page fault: instruction pointer, address, error code of the processor.
    Page = 1,
    /// A system call that is not the kernel's, or of a thread whose calls are all taken to be so
    /// ([`ThreadFlags`]): its number, then all registers of the thread in the
    /// order of the kernel's context. A reply with label 0 sets the registers to what it holds.
    UnknownSyscall = 2,
    /// An exception: instruction pointer, vector, error code, stack pointer, then all registers of
    /// the thread as for a system call, which a reply sets in the same way.
    Exception = 3,
}
