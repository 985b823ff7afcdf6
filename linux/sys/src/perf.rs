//! What `perf_event_open` is asked for: breakpoints and counters of one thread.
//!
//! Contract: numbers and layout are Linux'. Whoever asks makes the calls itself.

/// The kernel's `struct perf_event_attr`, as far as it goes up to the data of a signal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// The type of the event.
    pub kind: u32,
    /// How long the structure is: [`Attributes::BYTES`].
    pub size: u32,
    /// Which event of the type.
    pub config: u64,
    /// After how many events there is a sample.
    pub period: u64,
    /// What a sample tells.
    pub samples: u64,
    /// What is read beside the value.
    pub reads: u64,
    /// Bits that say how it counts.
    pub flags: u64,
    /// After how many samples somebody is woken.
    pub wakeup: u32,
    /// Of a breakpoint: at what it stops.
    pub breakpoint: u32,
    /// Of a breakpoint: where.
    pub address: u64,
    /// Of a breakpoint: of how many bytes.
    pub len: u64,
    /// What nobody here asks for.
    pub rest: [u64; 7],
}

const _: () = assert!(size_of::<Attributes>() == Attributes::BYTES as usize);

impl Attributes {
    /// What the kernel takes for the length.
    pub const BYTES: u32 = 128;
    /// Type of an event by its number in the processor.
    pub const RAW: u32 = 4;
    /// Type of a breakpoint.
    pub const BREAKPOINT: u32 = 5;
    /// A breakpoint stops before an instruction is executed.
    pub const EXECUTION: u32 = 4;
    /// Among the flags: it stands still until it is enabled.
    pub const DISABLED: u64 = 1 << 0;
    /// It always counts, or says that it has not.
    pub const PINNED: u64 = 1 << 2;
    /// Neither the kernel nor a hypervisor counts.
    pub const OF_USER: u64 = 1 << 5 | 1 << 6;
    /// It is gone with `execve`.
    pub const REMOVE_ON_EXEC: u64 = 1 << 36;
    /// Read with the value: how long it was wanted, and how long it has counted.
    pub const TIMES: u64 = 1 << 0 | 1 << 1;

    /// A counter of this type and number that stands still; of breakpoints the number is an
    /// address.
    #[must_use]
    pub fn counter(kind: u32, event: u64) -> Self {
        let mut attributes = Self {
            kind,
            size: Self::BYTES,
            config: event,
            reads: Self::TIMES,
            flags: Self::OF_USER | Self::DISABLED | Self::PINNED,
            ..Self::default()
        };
        if kind == Self::BREAKPOINT {
            (attributes.config, attributes.address) = (0, event);
            attributes.breakpoint = Self::EXECUTION;
            attributes.len = size_of::<usize>() as u64;
        }
        attributes
    }
}

/// Close the descriptor at `execve`, among the flags of the call.
pub const CLOSE_ON_EXEC: u64 = 1 << 3;
/// Orders by `ioctl`: it counts from here on, no more, and from 0 again.
pub const ENABLE: u64 = 0x2400;
/// See [`ENABLE`].
pub const DISABLE: u64 = 0x2401;
/// See [`ENABLE`].
pub const RESET: u64 = 0x2403;

/// What was counted, by the three words that are read with [`Attributes::TIMES`]; `None` if
/// something was missed.
#[must_use]
pub fn complete([count, wanted, counted]: [u64; 3]) -> Option<u64> {
    (wanted == counted).then_some(count)
}
