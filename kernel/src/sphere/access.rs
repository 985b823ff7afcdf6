//! Access to devices and ports, as the papers have it (EDCC'15, IV-D; DSN'19, `FT_Mem_Access`).
//! What is written is voted first; the primary alone touches the device; its result reaches the
//! others through the results stream and joins every trace.

use rcoe_core::{Consumed, mix};
use rcoe_kernel_objects::{Sphere as _, kind};

use super::Replicated;
use crate::arch;

/// In the place of an access: it is device memory, not a port.
pub(crate) const DEVICE: u64 = 1 << 63;
/// In a place at which a test has a replica break: while it reads.
pub(crate) const READ: u64 = 1 << 62;
/// In a place at which a test has a replica err: so many words of transfer memory, wherever.
pub(crate) const TRANSFER: u64 = 1 << 61;

/// Words of the longest input that is copied: a page.
const PAGE_WORDS: usize = 512;

impl Replicated {
    /// The primary does it, which may concern itself, and tells what came of it; all get that.
    pub(super) fn effect(&mut self, repeatable: bool, perform: impl Fn(&Self) -> u64) -> u64 {
        loop {
            if self.replica.is_primary() {
                self.replica.begin_effect(repeatable);
                let value = perform(self);
                let result = self.replica.publish(&[value]);
                self.go_on(result);
                return value;
            }
            let mut record = [0];
            let result = self.replica.consume(&mut record);
            match self.go_on(result) {
                Consumed::Record(_) => return record[0],
                Consumed::TakeOver => {}
            }
        }
    }

    /// All get what is in the primary's transfer memory, unless it is not the primary that is
    /// meant: a device stored nothing into a successor's. That can be told twice, so a primary that
    /// is lost here harms nobody.
    pub(super) fn exchange(&mut self, place: u64, words: &mut [u64], generation: u64) -> bool {
        let mut record = [0; 1 + PAGE_WORDS];
        let record = &mut record[..=words.len()];
        loop {
            if self.replica.is_primary() {
                self.replica.begin_effect(true);
                record[0] = u64::from(self.generation() == generation);
                for (word, at) in record[1..].iter_mut().zip((place..).step_by(8)) {
                    *word = arch::device_read(at, 8);
                }
                if self.misreads_now(TRANSFER | words.len() as u64) {
                    record[1..].fill(0);
                }
                let result = self.replica.publish(record);
                self.go_on(result);
                break;
            }
            let result = self.replica.consume(record);
            match self.go_on(result) {
                Consumed::Record(_) => break,
                Consumed::TakeOver => {}
            }
        }
        let good = record[0] == 1;
        if good {
            words.copy_from_slice(&record[1..]);
        }
        good
    }

    /// What the primary alone reads, by a number that stands for where.
    pub(super) fn input(&mut self, place: u64, repeatable: bool, perform: impl Fn() -> u64) -> u64 {
        self.event(kind::OUTPUT, place);
        if !repeatable {
            // A primary that went astray is found before it reads what cannot be read again.
            self.vote();
        }
        let value = self.effect(repeatable, |sphere| {
            let value = perform();
            let breaks = sphere.breaks_at == Some(READ | place);
            assert!(!breaks, "a test has this replica break while it reads");
            if sphere.misreads_now(place) { 0 } else { value }
        });
        self.event(kind::INPUT, value);
        value
    }

    /// Does a test have this reading go wrong?
    fn misreads_now(&self, place: u64) -> bool {
        let Some((at, left)) = self.misreads.get().filter(|&(at, _)| at == place) else {
            return false;
        };
        self.misreads
            .set(left.checked_sub(1).map(|left| (at, left)));
        left == 0
    }

    /// What the primary alone writes, by a number that stands for where.
    pub(super) fn output(&mut self, place: u64, digest: u64, repeatable: bool, perform: impl Fn()) {
        self.event(kind::OUTPUT, digest);
        self.vote();
        self.effect(repeatable, |sphere| {
            perform();
            let breaks = sphere.breaks_at == Some(place);
            assert!(!breaks, "a test has this replica break while it writes");
            0
        });
    }
}

/// A digest of words in which every word and its place count.
pub(super) fn digest_of(place: u64, words: &[u64]) -> u64 {
    words.iter().fold(
        mix(place),
        |digest, &word| mix(digest.rotate_left(9) ^ word),
    )
}
