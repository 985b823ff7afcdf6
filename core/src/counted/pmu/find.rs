//! Which counters a processor has, and how they are set up.
//!
//! Only models are taken whose two events are documented alike in all of them. Those on which the
//! paper found the difference exact are Haswell and Skylake; the rest is taken to be so, and told
//! apart by nothing here.

use core::fmt;

use super::Processor;

/// Registers of Intel's counters: controls, counters, and the same counters in full width.
const SELECT: u32 = 0x186;
const COUNT: u32 = 0xc1;
const COUNT_FULL: u32 = 0x4c1;
/// Tells whether there is full width.
const CAPABILITIES: u32 = 0x345;
const FULL_WIDTH: u64 = 1 << 13;

/// Both vendors' debugging control, and in it: what stops at an overflow.
pub(super) const DEBUG: u32 = 0x1d9;
pub(super) const FREEZES: u64 = 1 << 11 | 1 << 12;

/// Registers of AMD's first counter: control, and counter. Those of the next follow.
const AMD_SELECT: u32 = 0xc001_0200;
const AMD_COUNT: u32 = 0xc001_0201;
/// AMD's control of loads and stores, and in it: no speculation past locks.
pub(super) const AMD_LOCKS: u32 = 0xc001_1020;
pub(super) const NO_SPECULATIVE_LOCKS: u64 = 1 << 54;

/// In a control: count programs; interrupt at an overflow; on.
const PROGRAMS: u64 = 1 << 16;
const INTERRUPTS: u64 = 1 << 20;
const ON: u64 = 1 << 22;

/// All branches retired, and of them far ones (Intel).
const EVENTS: [u64; 2] = [0x00c4, 0x40c4];
/// Taken branches retired, and of them far ones (AMD).
const AMD_EVENTS: [u64; 2] = [0xc4, 0xc6];

/// Bits of AMD's counters.
const AMD_WIDTH: u32 = 48;
/// Bits that can be written of a counter that has no full width.
const HALF: u32 = 31;

/// Branches by which an interrupt is late. `rr`, which counts conditional ones, allows for 100 and
/// 125, and 10,000 on AMD's, where a few are later.
const SKID: u64 = 512;
const AMD_SKID: u64 = 16_384;

/// Intel's processors by model, all of family 6: Haswell, Broadwell, Skylake and its kin, Ice Lake
/// to Rocket Lake, Alder Lake and Raptor Lake (where all cores are of one kind), Sapphire Rapids to
/// Granite Rapids.
const MODELS: [u32; 30] = [
    0x3c, 0x3f, 0x45, 0x46, // Haswell
    0x3d, 0x47, 0x4f, 0x56, // Broadwell
    0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6, // Skylake
    0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, // Ice Lake
    0x97, 0x9a, 0xb7, 0xba, 0xbf, // Alder Lake
    0x8f, 0xcf, 0xad, // Sapphire Rapids
];
/// AMD's, by family: the first four generations of Zen.
const FAMILIES: [u32; 2] = [0x17, 0x19];

/// Registers that concern all counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Global {
    pub(super) control: u32,
    /// Clears overflows.
    pub(super) clear: u32,
    /// The two counters, in each of them.
    pub(super) bits: u64,
}

/// How a processor's branches are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Registers, of all branches first, then of far ones: controls, what they hold, and counters.
    pub(super) controls: [u32; 2],
    pub(super) events: [u64; 2],
    pub(super) counters: [u32; 2],
    pub(super) global: Option<Global>,
    /// The bits of a counter.
    pub(super) mask: u64,
    /// How many can be armed at most.
    pub(super) reach: u64,
    pub(super) skid: u64,
    /// Is speculation past locks to be switched off?
    pub(super) quiets_locks: bool,
}

impl Plan {
    /// Branches by which its interrupt is taken to be late.
    #[must_use]
    pub const fn skid(&self) -> u64 {
        self.skid
    }

    const fn new(width: u32, written: u32, counters: [u32; 2]) -> Self {
        Self {
            controls: [SELECT, SELECT + 1],
            events: [0; 2],
            counters,
            global: None,
            mask: u64::MAX >> (64 - width),
            reach: 1 << written,
            skid: SKID,
            quiets_locks: false,
        }
    }

    /// These two events: the first interrupts.
    const fn with_events(self, [all, far]: [u64; 2]) -> Self {
        let counted = PROGRAMS | ON;
        Self {
            events: [all | counted | INTERRUPTS, far | counted],
            ..self
        }
    }
}

/// Why a processor cannot count branches for close coupling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It has no counters of events, or none that are known of.
    None,
    /// They are of a version in which they cannot be switched on together.
    Version(u32),
    /// There are fewer than two.
    Few(u32),
    /// They have so many bits, too few or more than a register has.
    Width(u32),
    /// They count no branches.
    NoBranches,
    /// This family and model: nobody has told whether it counts exactly.
    Unknown(u32, u32),
    /// It has cores of two kinds.
    Hybrid,
    /// It counts too much behind locks, and in a virtual machine that cannot be switched off.
    Virtual,
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(out, "it has no counters of events"),
            Self::Version(version) => {
                write!(
                    out,
                    "its performance monitoring has version {version}, not 2 or later"
                )
            }
            Self::Few(counters) => write!(out, "it has {counters} counters of events, not two"),
            Self::Width(bits) => write!(out, "its counters of events have {bits} bits"),
            Self::NoBranches => write!(out, "its counters do not count branches"),
            Self::Unknown(family, model) => write!(
                out,
                "family {family:#x}, model {model:#x} is not known to count branches exactly"
            ),
            Self::Hybrid => write!(out, "it has cores of two kinds, which count differently"),
            Self::Virtual => write!(
                out,
                "it counts branches that it takes back behind locks, and in a virtual machine that \
                 cannot be switched off"
            ),
        }
    }
}

/// The part of a word from bit `low` on, of so many bits.
const fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

/// Family and model, as vendors number them.
fn signature(core: &impl Processor) -> (u32, u32) {
    let [word, ..] = core.cpuid(1, 0);
    let (family, model) = (bits(word, 8, 4), bits(word, 4, 4));
    let extended = bits(word, 16, 4) << 4;
    match family {
        0xf => (family + bits(word, 20, 8), extended | model),
        6 => (family, extended | model),
        _ => (family, model),
    }
}

/// Is it a processor of a virtual machine?
fn is_virtual(core: &impl Processor) -> bool {
    bits(core.cpuid(1, 0)[2], 31, 1) == 1
}

/// How this processor's branches are counted.
///
/// # Errors
/// Why they cannot be.
pub fn find(core: &impl Processor) -> Result<Plan, Unfit> {
    let [last, b, c, d] = core.cpuid(0, 0);
    let vendor = [b, d, c].map(u32::to_le_bytes);
    match vendor.as_flattened() {
        b"GenuineIntel" => find_intel(core, last),
        b"AuthenticAMD" => find_amd(core),
        _ => Err(Unfit::None),
    }
}

fn find_intel(core: &impl Processor, last: u32) -> Result<Plan, Unfit> {
    /// The leaf of performance monitoring, and in it: the event of branches.
    const LEAF: u32 = 0xa;
    const BRANCHES: u32 = 5;
    if last < LEAF {
        return Err(Unfit::None);
    }
    let [a, b, ..] = core.cpuid(LEAF, 0);
    let (version, counters, width) = (bits(a, 0, 8), bits(a, 8, 8), bits(a, 16, 8));
    let (family, model) = signature(core);
    let wanting = [
        (version == 0, Unfit::None),
        (version < 2, Unfit::Version(version)),
        (counters < 2, Unfit::Few(counters)),
        (!(HALF + 1..=64).contains(&width), Unfit::Width(width)),
        (bits(a, 24, 8) <= BRANCHES, Unfit::NoBranches),
        (bits(b, BRANCHES, 1) == 1, Unfit::NoBranches),
        (family != 6, Unfit::Unknown(family, model)),
        (!MODELS.contains(&model), Unfit::Unknown(family, model)),
        (bits(core.cpuid(7, 0)[3], 15, 1) == 1, Unfit::Hybrid),
    ];
    if let Some(&(_, why)) = wanting.iter().find(|(wants, _)| *wants) {
        return Err(why);
    }
    let tells = bits(core.cpuid(1, 0)[2], 15, 1) == 1;
    let full = tells && core.read(CAPABILITIES) & FULL_WIDTH != 0;
    let (first, written) = if full {
        (COUNT_FULL, width - 1)
    } else {
        (COUNT, HALF)
    };
    Ok(Plan {
        global: Some(Global {
            control: 0x38f,
            clear: 0x390,
            bits: 0b11,
        }),
        ..Plan::new(width, written, [first, first + 1]).with_events(EVENTS)
    })
}

fn find_amd(core: &impl Processor) -> Result<Plan, Unfit> {
    /// Leaves of what AMD's processors have, and of their counters.
    const FEATURES: u32 = 0x8000_0001;
    const MONITORING: u32 = 0x8000_0022;
    let [last, ..] = core.cpuid(0x8000_0000, 0);
    if last < FEATURES || bits(core.cpuid(FEATURES, 0)[2], 23, 1) == 0 {
        return Err(Unfit::None);
    }
    let (family, model) = signature(core);
    if !FAMILIES.contains(&family) {
        return Err(Unfit::Unknown(family, model));
    }
    if is_virtual(core) {
        return Err(Unfit::Virtual);
    }
    let second = last >= MONITORING && bits(core.cpuid(MONITORING, 0)[0], 0, 1) == 1;
    let global = second.then_some(Global {
        control: 0xc000_0301,
        clear: 0xc000_0302,
        bits: 0b11,
    });
    let counters = [AMD_COUNT, AMD_COUNT + 2];
    Ok(Plan {
        controls: [AMD_SELECT, AMD_SELECT + 2],
        global,
        skid: AMD_SKID,
        quiets_locks: true,
        ..Plan::new(AMD_WIDTH, AMD_WIDTH - 1, counters).with_events(AMD_EVENTS)
    })
}
