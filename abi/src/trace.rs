//! Kinds of events in a trace, and what they are in words.

/// The start; the value is what the run was configured to.
pub const START: u32 = 1;
/// A system call ([`of_call`] says which); the value is a digest of its arguments, if they are
/// compared.
pub const SYSCALL: u32 = 2;
/// Another thread runs.
pub const SWITCH: u32 = 3;
/// A slot has another capability: what is in it now.
pub const CAPABILITY: u32 = 4;
/// A page table entry changed: what is in it now, as if the partition were at 0.
pub const PAGE: u32 = 5;
/// A program's own data (`FT_Add_Trace`).
pub const DATA: u32 = 6;
/// Something goes out.
pub const OUTPUT: u32 = 7;
/// Something came in.
pub const INPUT: u32 = 8;
/// Asynchronous actions are performed.
pub const ACTION: u32 = 9;
/// A thread faults.
pub const FAULT: u32 = 10;
/// A bounded number of system calls went by without a vote.
pub const CHECK: u32 = 11;
/// Which members hold the same, found before one of them is copied.
pub const ALIKE: u32 = 12;
/// What a thread is told: a message, or the result of its call, as it stands there.
pub const DELIVERED: u32 = 13;

/// Where in a kind the number of a system call begins.
const NUMBER: u32 = 8;

/// The kind of a system call with this number; of 0, of one that is not the kernel's.
#[must_use]
#[inline]
pub const fn of_call(number: u32) -> u32 {
    SYSCALL | number << NUMBER
}

/// What an event of this kind is, and of a system call the number; `None` if there is no such kind.
#[must_use]
pub const fn in_words(kind: u32) -> Option<(&'static str, u32)> {
    let number = kind >> NUMBER;
    let text = match kind & ((1 << NUMBER) - 1) {
        SYSCALL => return Some(("the system call", number)),
        _ if number != 0 => return None,
        START => "the start",
        SWITCH => "a switch to another thread",
        CAPABILITY => "a capability that was written",
        PAGE => "a page table entry that was written",
        DATA => "data that a program added to the trace",
        OUTPUT => "output",
        INPUT => "input",
        ACTION => "the interrupts and ticks performed",
        FAULT => "a fault of a thread",
        CHECK => "a check after many system calls",
        ALIKE => "which replicas hold the same",
        DELIVERED => "what a thread is told",
        _ => return None,
    };
    Some((text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_words_of_its_own() {
        let texts: std::vec::Vec<_> = (START..=DELIVERED).map(in_words).collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(text.is_some(), "{index}");
            assert!(!texts[..index].contains(text), "{text:?}");
        }
        assert_eq!(in_words(of_call(9)), Some(("the system call", 9)));
        for none in [0, DELIVERED + 1, 255, DATA | 1 << NUMBER, u32::MAX] {
            assert_eq!(in_words(none), None, "{none}");
        }
    }
}
