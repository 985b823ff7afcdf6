//! How long each part of the state lasts.
//!
//! A replica's state meets four turns: the start, a fork (it goes on in a child), an exec (the
//! process gets another program) and, at re-integration, a copy that becomes another replica. What
//! becomes of a field at each of them is said where the field is declared ([`state`]), and nowhere
//! else: who starts, forks, execs or copies says only that it does, and a new field cannot be
//! forgotten. Statics say it by the section they stand in.
//!
//! | word | what becomes of the field |
//! |---|---|
//! | `stays` | nothing |
//! | `anew` | it gets the value again that it had at the start |
//! | `renewed` | its type says what goes ([`PerProcess`], [`PerProgram`], [`PerCopy`]) |
//!
//! A field that begins with `zeroes` is not written at all: most of the state is tables that few
//! programs fill, and pages of them that are not written need neither be made nor copied to
//! children nor compared. For the same reason tables are renewed in place, and a field with a table
//! that begins with `[function]` is zeroes, too, of which the function writes what is none.
//!
//! Contract: a copy of a replica differs from its original in its own part only, so the others stay
//! at a copy; and what is a replica's own is no program's, so it stays at an exec.
//!
//! Not covered: what the host keeps for a process (timers, mappings, the CPU it is bound to).

use core::sync::atomic::Ordering;

use rcoe_core::{ReplicaId, ReplicaSet};
use rcoe_linux_abi::{Control, Report};

use crate::convert::size;

/// Which replica this is, of which process.
pub(crate) struct Who {
    pub(crate) group: usize,
    pub(crate) id: ReplicaId,
    /// Of the group as it begins.
    pub(crate) members: ReplicaSet,
    /// The id of the process, as the program knows it.
    pub(crate) pid: u32,
    pub(crate) control: &'static Control,
    pub(crate) report: &'static Report,
}

impl Who {
    /// Replicas that the group was begun with, or has an empty place for.
    pub(crate) fn places(&self) -> usize {
        size(self.control.replicas.load(Ordering::Relaxed).into())
    }
}

/// Which program begins.
pub(crate) struct Program {
    /// The id of the process that executes it.
    pub(crate) pid: u32,
    pub(crate) brk_start: u64,
}

/// What a child does not get of its parent.
pub(crate) trait PerProcess {
    fn in_child(&mut self, who: &Who);
}

/// What a program does not leave to its successor.
pub(crate) trait PerProgram {
    fn in_program(&mut self, program: &Program);
}

/// What a replica's copy does not have of it.
pub(crate) trait PerCopy {
    fn in_copy(&mut self, who: &Who);
}

/// Where what is a replica's own begins.
#[derive(Debug)]
pub(crate) struct Mark([u64; 0]);

/// Declares the state, each field with its lifetime: see the module.
macro_rules! state {
    (
        $(#[$about:meta])*
        struct $State:ident, from ($start:ident: $Start:ty, $who:ident, $program:ident);
        alike { $(
            $(#[$note:meta])*
            $a:ident: $A:ty = $first:tt, child $child:ident, program $next:ident;
        )* }
        own { $(
            $(#[$own_note:meta])*
            $o:ident: $O:ty = $own_first:tt, child $own_child:ident, copy $copy:ident;
        )* }
    ) => {
        $(#[$about])*
        #[repr(C)]
        pub(crate) struct $State {
            $($(#[$note])* pub(crate) $a: $A,)*
            /// What is this replica's own begins here.
            own: $crate::lifetime::Mark,
            $($(#[$own_note])* pub(crate) $o: $O,)*
        }

        impl $State {
            /// At the start.
            ///
            /// # Safety
            /// The place is zeroes, and nobody holds a reference to it.
            unsafe fn begin(
                place: *mut Self,
                $start: $Start,
                $who: &$crate::lifetime::Who,
                $program: &$crate::lifetime::Program,
            ) {
                $($crate::lifetime::begin!(place, $a, $first);)*
                $($crate::lifetime::begin!(place, $o, $own_first);)*
            }

            /// In a child of this process.
            pub(crate) fn in_child(&mut self, $who: &$crate::lifetime::Who) {
                $crate::lifetime::forget_statics();
                use PerProcess as Part;
                $($crate::lifetime::turn!($child, self.$a, $first, Part::in_child, $who);)*
                $($crate::lifetime::turn!($own_child, self.$o, $own_first, Part::in_child, $who);)*
            }

            /// This process executes another program.
            pub(crate) fn in_program(&mut self, $program: &$crate::lifetime::Program) {
                use PerProgram as Part;
                $($crate::lifetime::turn!($next, self.$a, $first, Part::in_program, $program);)*
            }

            /// A copy of a replica is another one of the same process.
            pub(crate) fn in_copy(&mut self, $who: &$crate::lifetime::Who) {
                $crate::lifetime::forget_statics();
                $($crate::lifetime::turn!($copy, self.$o, $own_first, PerCopy::in_copy, $who);)*
            }
        }
    };
}

/// One field at the start.
macro_rules! begin {
    ($place:ident, $field:ident, zeroes) => {};
    ($place:ident, $field:ident, ($first:expr)) => {
        let value = $first;
        // SAFETY: nobody holds a reference yet, as the caller says.
        unsafe { (&raw mut (*$place).$field).write(value) };
    };
    ($place:ident, $field:ident, [$with:expr]) => {
        // SAFETY: zeroes, of which a field that begins so may consist; nobody else has a reference.
        $crate::lifetime::fill(unsafe { &mut (*$place).$field }, $with);
    };
}

/// Writes what does not begin as zeroes.
pub(crate) fn fill<T>(field: &mut T, with: impl FnOnce(&mut T)) {
    with(field);
}

/// One field at a turn.
macro_rules! turn {
    (stays, $field:expr, $first:tt, $renew:path, $with:ident) => {};
    (anew, $field:expr, ($first:expr), $renew:path, $with:ident) => {
        $field = $first;
    };
    (renewed, $field:expr, $first:tt, $renew:path, $with:ident) => {
        $renew(&mut $field, $with);
    };
}

pub(crate) use {begin, state, turn};

/// In a child or a copy: statics that stand in the section `.bss.own.2` begin anew, as zeroes.
#[cfg(not(test))]
pub(crate) fn forget_statics() {
    unsafe extern "C" {
        static mut RCOE_ANEW: u8;
        static RCOE_ANEW_END: u8;
    }
    let (start, end) = (&raw mut RCOE_ANEW, &raw const RCOE_ANEW_END);
    let len = end as usize - start as usize;
    // SAFETY: the linker puts these statics, and nothing else, between the two; zeroes are valid
    // for each of them, since that is how it began, and no caller holds a reference to one.
    unsafe { start.write_bytes(0, len) };
}

#[cfg(test)]
pub(crate) const fn forget_statics() {}
