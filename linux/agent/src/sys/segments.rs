//! Limits of System V shared memory.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::syscall3;

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct SegmentLimits {
    /// Bytes of one segment.
    pub(crate) bytes: u64,
    /// Segments.
    pub(crate) segments: u64,
    /// Pages of all together.
    pub(crate) pages: u64,
}

impl From<[u64; 3]> for SegmentLimits {
    fn from([bytes, segments, pages]: [u64; 3]) -> Self {
        Self {
            bytes,
            segments,
            pages,
        }
    }
}

impl From<SegmentLimits> for [u64; 3] {
    fn from(limits: SegmentLimits) -> Self {
        [limits.bytes, limits.segments, limits.pages]
    }
}

/// The host's limits; of one that has no such memory, or does not tell, nothing.
pub(crate) fn segment_limits() -> SegmentLimits {
    const IPC_INFO: u64 = 3;
    const WORDS: usize = 9;
    let mut facts = [0_u64; WORDS];
    let at = facts.as_mut_ptr() as u64;
    // SAFETY: room for the kernel's `struct shminfo64`.
    let result = unsafe { syscall3(u64::from(nr::__NR_shmctl), 0, IPC_INFO, at) };
    if result < 0 {
        return SegmentLimits::default();
    }
    let [bytes, _, segments, _, pages, ..] = facts;
    SegmentLimits {
        bytes,
        segments,
        pages,
    }
}
