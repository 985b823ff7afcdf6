//! Cycles of what happens too seldom for a program to measure it: the delivery of an interrupt, the
//! removal of a replica, the copy that takes its place, and the agreement on one instruction.
//!
//! For reports only: cycles differ between replicas, so nothing that is done may depend on them.

use core::fmt;

/// How often something happened, and how many cycles it took in all.
#[derive(Clone, Copy, Default, Debug)]
struct Figure {
    count: u64,
    cycles: u64,
}

impl Figure {
    const fn add(&mut self, cycles: u64) {
        self.count += 1;
        self.cycles += cycles;
    }
}

/// The figures of one replica.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Meter {
    deliveries: Figure,
    downgrades: Figure,
    copies: Figure,
    /// The portions in which copies were made.
    portions: Figure,
    /// Cycles that the longest of them took.
    longest: u64,
    /// Points at which closely coupled replicas stood at one instruction.
    points: Figure,
    /// Those of them right behind an event, or at the call that is the next.
    events: u64,
    /// When the interrupt came that is on its way.
    came: Option<u64>,
    /// It has reached the point of the trace at which it is delivered.
    delivered: bool,
}

impl Meter {
    /// An interrupt has entered the primary's kernel.
    pub(crate) const fn interrupt_came(&mut self, cycles: u64) {
        self.came = Some(cycles);
    }

    /// All perform it.
    pub(crate) const fn delivers(&mut self) {
        self.delivered = true;
    }

    /// All stand at one point, to which they were on the way for so long.
    pub(crate) const fn agreed(&mut self, cycles: u64, at_event: bool) {
        self.points.add(cycles);
        self.events += at_event as u64;
    }

    /// A program runs: the driver, if an interrupt was delivered.
    pub(crate) fn left(&mut self) {
        if core::mem::take(&mut self.delivered)
            && let Some(came) = self.came.take()
        {
            self.deliveries.add(crate::arch::cycles() - came);
        }
    }

    /// A vote removed somebody and took so long.
    pub(crate) const fn downgraded(&mut self, cycles: u64) {
        self.downgrades.add(cycles);
    }

    /// A portion of a copy was made, for which all others waited so long.
    pub(crate) const fn portion(&mut self, cycles: u64) {
        self.portions.add(cycles);
        if cycles > self.longest {
            self.longest = cycles;
        }
    }

    /// A replica was brought back, for which all others waited so long.
    pub(crate) const fn copied(&mut self, cycles: u64) {
        self.copies.add(cycles);
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [&self.deliveries, &self.downgrades, &self.copies];
        for (index, figure) in all.into_iter().enumerate() {
            let between = if index == 0 { "" } else { " " };
            write!(f, "{between}{} {}", figure.count, figure.cycles)?;
        }
        write!(f, " {} {}", self.portions.count, self.longest)?;
        let points = &self.points;
        write!(f, " {} {} {}", points.count, points.cycles, self.events)
    }
}
