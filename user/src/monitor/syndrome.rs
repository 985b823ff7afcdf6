//! What an exit of the guest was about, as the processor's syndrome says it.

/// An access to memory that is not there: to a register of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    /// Bytes: 1, 2, 4 or 8.
    pub(super) width: u64,
    /// The register that is stored or loaded; 31 is zero.
    pub(super) register: usize,
    /// Is it stored?
    pub(super) writes: bool,
    /// Is what is loaded a number with a sign, and made as wide as a whole register or half of one?
    sign: bool,
    whole: bool,
}

impl Access {
    /// Of a data abort's syndrome; none if the processor does not say what it was.
    #[must_use]
    pub(super) fn of(syndrome: u64) -> Option<Self> {
        let bit = |bit: u32| syndrome >> bit & 1 != 0;
        // It says so; and it was no access of a translation itself.
        let told = bit(24) && !bit(7);
        told.then(|| Self {
            width: 1 << (syndrome >> 22 & 3),
            register: (syndrome >> 16 & 0x1f) as usize,
            writes: bit(6),
            sign: bit(21),
            whole: bit(15),
        })
    }

    /// What a register holds behind a load of these bytes.
    #[must_use]
    pub(super) fn loaded(&self, value: u64) -> u64 {
        let unused = 64 - 8 * u32::try_from(self.width).unwrap_or(8);
        let zeros = value << unused >> unused;
        if !self.sign {
            return zeros;
        }
        let signed = ((value << unused).cast_signed() >> unused).cast_unsigned();
        if self.whole {
            signed
        } else {
            signed & 0xffff_ffff
        }
    }

    /// What is stored of a register.
    #[must_use]
    pub(super) fn stored(&self, register: u64) -> u64 {
        let unused = 64 - 8 * u32::try_from(self.width).unwrap_or(8);
        register << unused >> unused
    }
}

/// A read or write of a register of the processor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct System {
    /// Which: the five parts of its name, `op0`, `op1`, `CRn`, `CRm`, `op2`.
    pub(super) name: [u64; 5],
    /// The general register; 31 is zero.
    pub(super) register: usize,
    /// Is it read?
    pub(super) reads: bool,
}

impl System {
    /// Of the syndrome of such an exit.
    #[must_use]
    pub(super) const fn of(syndrome: u64) -> Self {
        Self {
            name: [
                syndrome >> 20 & 3,
                syndrome >> 14 & 7,
                syndrome >> 10 & 0xf,
                syndrome >> 1 & 0xf,
                syndrome >> 17 & 7,
            ],
            register: (syndrome >> 5 & 0x1f) as usize,
            reads: syndrome & 1 != 0,
        }
    }
}
