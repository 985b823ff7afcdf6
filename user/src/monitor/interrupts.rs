//! The guest's interrupt controller (GICv2), for one processor: the distributor and the processor's
//! part of it, of which the guest reads which interrupt is pending.

#![expect(
    clippy::cast_possible_truncation,
    reason = "interrupts are 64, and an access has eight bytes at most"
)]

/// Interrupts: 16 between processors, 16 of the processor's own, and shared ones.
const COUNT: u64 = 64;
/// There is none.
const NONE: u64 = 1023;
/// The lowest priority: of a processor that handles nothing.
const IDLE: u64 = 0x100;

/// Registers of the distributor, by where the first of their kind is. Those with a bit for each
/// interrupt are words of 32; priorities and targets are bytes.
const CONTROL: u64 = 0x000;
const KIND: u64 = 0x004;
const MAKER: u64 = 0x008;
const ENABLE: u64 = 0x100;
const DISABLE: u64 = 0x180;
const PEND: u64 = 0x200;
const FORGET: u64 = 0x280;
const ACTIVATE: u64 = 0x300;
const DEACTIVATE: u64 = 0x380;
const PRIORITIES: u64 = 0x400;
const PRIORITIES_END: u64 = PRIORITIES + COUNT;
const TARGETS: u64 = 0x800;
const TARGETS_END: u64 = TARGETS + COUNT;
const TRIGGERS: u64 = 0xc00;
const TRIGGERS_END: u64 = TRIGGERS + COUNT / 4;
const CALL: u64 = 0xf00;
/// What says that this is the second version of the controller.
const VERSION: u64 = 0xfe8;

/// Registers of the processor's part: control, lowest priority, point, take, end, present
/// priority, pending, maker.
const OWN_CONTROL: u64 = 0x00;
const LIMIT: u64 = 0x04;
const POINT: u64 = 0x08;
const TAKE: u64 = 0x0c;
const END: u64 = 0x10;
const PRESENT: u64 = 0x14;
const PENDING: u64 = 0x18;
const OWN_MAKER: u64 = 0xfc;

/// What both parts say of who made them: Arm, version 2.
const ARM: u64 = 0x0002_043b;

/// The controller. Sets of interrupts are words with a bit for each.
#[derive(Clone, Debug)]
pub(super) struct Interrupts {
    distributes: bool,
    enabled: u64,
    /// Raised and not taken yet, whatever the line does.
    latched: u64,
    /// Lines that are up.
    lines: u64,
    active: u64,
    /// Those that are latched when their lines go up.
    edges: [u64; 4],
    priorities: [u8; COUNT as usize],
    receives: bool,
    limit: u64,
    point: u64,
}

impl Default for Interrupts {
    fn default() -> Self {
        Self {
            distributes: false,
            enabled: 0,
            latched: 0,
            lines: 0,
            active: 0,
            edges: [0; 4],
            priorities: [0; COUNT as usize],
            receives: false,
            limit: 0,
            point: 0,
        }
    }
}

/// The word of 32 interrupts in which this register is, among those from `first` on.
const fn half(set: u64, place: u64, first: u64) -> u64 {
    let shift = (place - first) * 8;
    if shift < COUNT {
        set >> shift & 0xffff_ffff
    } else {
        0
    }
}

/// What such a register's value is in the whole set.
const fn whole(value: u64, place: u64, first: u64) -> u64 {
    let shift = (place - first) * 8;
    if shift < COUNT {
        (value & 0xffff_ffff) << shift
    } else {
        0
    }
}

impl Interrupts {
    /// A line goes up or down.
    pub(super) fn set_line(&mut self, number: u64, up: bool) {
        let bit = 1 << number;
        if up {
            let word = self.edges[number as usize / 16];
            let edge = word >> (2 * (number % 16) + 1) & 1 != 0;
            if edge && self.lines & bit == 0 {
                self.latched |= bit;
            }
            self.lines |= bit;
        } else {
            self.lines &= !bit;
        }
    }

    /// Interrupts that are pending, whether they are let through or not.
    fn raised(&self) -> u64 {
        let edges = (0..COUNT)
            .filter(|number| self.edges[*number as usize / 16] >> (2 * (number % 16) + 1) & 1 != 0);
        let edges = edges.fold(0, |set, number| set | 1 << number);
        self.latched | self.lines & !edges
    }

    fn priority(&self, number: u64) -> u64 {
        self.priorities[number as usize].into()
    }

    /// Of a set, the one that comes first, and its priority.
    fn first(&self, set: u64) -> Option<(u64, u64)> {
        (0..COUNT)
            .filter(|number| set >> number & 1 != 0)
            .map(|number| (self.priority(number), number))
            .min()
    }

    /// The priority of what is being handled.
    fn present(&self) -> u64 {
        self.first(self.active)
            .map_or(IDLE, |(priority, _)| priority)
    }

    /// The interrupt that the processor is to take.
    #[must_use]
    pub(super) fn pending(&self) -> Option<u64> {
        if !self.distributes || !self.receives {
            return None;
        }
        let (priority, number) = self.first(self.raised() & self.enabled & !self.active)?;
        (priority < self.limit.min(self.present())).then_some(number)
    }

    fn take(&mut self) -> u64 {
        let Some(number) = self.pending() else {
            return NONE;
        };
        self.active |= 1 << number;
        self.latched &= !(1 << number);
        number
    }

    /// Reads bytes of the distributor, from this place on.
    #[must_use]
    pub(super) fn read(&self, place: u64, width: u64) -> u64 {
        let bytes = |bytes: &[u8], first: u64| {
            let at = (place - first) as usize;
            let word = (0..width as usize).rev();
            word.fold(0, |word, next| {
                word << 8 | u64::from(bytes.get(at + next).copied().unwrap_or(0))
            })
        };
        match place {
            CONTROL => self.distributes.into(),
            KIND => COUNT / 32 - 1,
            MAKER => ARM,
            ENABLE..DISABLE => half(self.enabled, place, ENABLE),
            DISABLE..PEND => half(self.enabled, place, DISABLE),
            PEND..FORGET => half(self.raised(), place, PEND),
            FORGET..ACTIVATE => half(self.raised(), place, FORGET),
            ACTIVATE..DEACTIVATE => half(self.active, place, ACTIVATE),
            DEACTIVATE..PRIORITIES => half(self.active, place, DEACTIVATE),
            PRIORITIES..PRIORITIES_END => bytes(&self.priorities, PRIORITIES),
            // There is one processor.
            TARGETS..TARGETS_END => bytes(&[1; COUNT as usize], TARGETS),
            TRIGGERS..TRIGGERS_END => self.edges[((place - TRIGGERS) / 4) as usize],
            VERSION => 0x2b,
            _ => 0,
        }
    }

    /// Writes bytes of the distributor.
    pub(super) fn write(&mut self, place: u64, width: u64, value: u64) {
        match place {
            CONTROL => self.distributes = value & 1 != 0,
            ENABLE..DISABLE => self.enabled |= whole(value, place, ENABLE),
            DISABLE..PEND => self.enabled &= !whole(value, place, DISABLE),
            PEND..FORGET => self.latched |= whole(value, place, PEND),
            FORGET..ACTIVATE => self.latched &= !whole(value, place, FORGET),
            ACTIVATE..DEACTIVATE => self.active |= whole(value, place, ACTIVATE),
            DEACTIVATE..PRIORITIES => self.active &= !whole(value, place, DEACTIVATE),
            PRIORITIES..PRIORITIES_END => {
                let at = (place - PRIORITIES) as usize;
                let bytes = value.to_le_bytes();
                let room = self.priorities.iter_mut().skip(at).zip(bytes);
                for (priority, byte) in room.take(width as usize) {
                    // So many are told apart as the controller has to.
                    *priority = byte & 0xf0;
                }
            }
            TRIGGERS..TRIGGERS_END => {
                self.edges[((place - TRIGGERS) / 4) as usize] = value & 0xaaaa_aaaa;
            }
            // To this processor, by name or as itself.
            CALL if value >> 24 & 3 == 2 || value >> 24 & 3 == 0 && value >> 16 & 1 != 0 => {
                self.latched |= 1 << (value & 0xf);
            }
            _ => {}
        }
    }

    /// Reads a register of the processor's part. Taking an interrupt is one.
    pub(super) fn read_own(&mut self, place: u64) -> u64 {
        match place {
            OWN_CONTROL => self.receives.into(),
            LIMIT => self.limit,
            POINT => self.point,
            TAKE => self.take(),
            PRESENT => self.present().min(0xff),
            PENDING => self.pending().unwrap_or(NONE),
            OWN_MAKER => ARM,
            _ => 0,
        }
    }

    /// Writes a register of the processor's part.
    pub(super) fn write_own(&mut self, place: u64, value: u64) {
        match place {
            OWN_CONTROL => self.receives = value & 1 != 0,
            LIMIT => self.limit = value & 0xf0,
            POINT => self.point = value & 7,
            END if value & 0x3ff < COUNT => self.active &= !(1 << (value & 0x3ff)),
            _ => {}
        }
    }
}
