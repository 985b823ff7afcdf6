//! How the end of a replica is heard of before the kernel has given back its memory, which takes
//! milliseconds where there is much of it.
//!
//! Idea: a process that begins to end first has the kernel go through its list of robust futexes:
//! each that it holds is marked, and who waits for it is woken. Every replica holds one, in its own
//! region. The program's own lists are the agent's affair, so the kernel's place for one is free.
//!
//! Contract: the mark alone proves nothing, since a replica can write anything into its region. It
//! has siblings call the supervisor, which asks the kernel.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The kernel wakes a waiter only if the futex says that there may be one.
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;

/// A list of one futex.
#[derive(Debug)]
#[repr(C)]
pub struct LastWill {
    /// `struct robust_list_head`: the first entry, how far behind an entry its futex lies, and an
    /// entry about to be added.
    pub head: [AtomicU64; 3],
    /// The only entry: where the next one is, which is the head.
    pub entry: AtomicU64,
    /// The futex: the process's id while it lives.
    pub life: AtomicU32,
}

impl LastWill {
    /// Takes the futex for the process with this id. The head is then to be told to the kernel.
    pub fn write(&self, pid: u32) {
        let entry = self.entry.as_ptr() as u64;
        self.life.store(pid | WAITERS, Ordering::Release);
        self.entry
            .store(self.head.as_ptr() as u64, Ordering::Relaxed);
        let distance = self.life.as_ptr() as u64 - entry;
        for (cell, word) in self.head.iter().zip([entry, distance, 0]) {
            cell.store(word, Ordering::Release);
        }
    }

    /// Does it say that its replica ends?
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.life.load(Ordering::Acquire) & OWNER_DIED != 0
    }
}
