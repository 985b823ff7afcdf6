//! When a driver may wait for the next interrupt.
//!
//! *Idea: what a primary reads is what all replicas get*, so no comparison finds a wrong reading.
//! One that says that the device wants nothing, while it does, would be its last word: where edges
//! trigger interrupts no further one follows. So nobody waits before two looks in a row have found
//! nothing. A reading that is wrong the other way costs a look.

/// Looks in a row that have to find nothing.
const LOOKS: u32 = 2;

/// Looks at a device before its driver waits.
#[derive(Debug, Default)]
pub struct Quiet(u32);

impl Quiet {
    /// A look has, or has not, found something. Tells whether the device may be taken for quiet.
    #[must_use]
    pub const fn after(&mut self, found: bool) -> bool {
        self.0 = if found { 0 } else { self.0 + 1 };
        self.0 == LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_in_a_row_have_to_find_nothing() {
        let mut quiet = Quiet::default();
        let looks = [true, false, true, true, false, false];
        let told = looks.map(|found| quiet.after(found));
        assert_eq!(told, [false, false, false, false, false, true]);
    }
}
