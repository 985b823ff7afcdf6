//! Whether a fault speaks against the core that the replica ran on.
//!
//! The rule is conservative: what somebody outside can have done, or a busy machine, counts for
//! nobody. A replica blocks all signals, so one that dies by a signal was either killed by SIGKILL,
//! which only comes from outside (a user, the kernel out of memory), or met an exception that its
//! own instructions raised. One that is stopped was stopped from outside. One that is late is at
//! fault only if it ran all the time and still did not come.
//!
//! Not covered: who writes into a replica's memory, or runs a program whose replicas differ by
//! themselves, makes cores look guilty.

use linux_raw_sys::general::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

use crate::events::DivergenceKind;
use crate::judge::Process;

use super::entry::Blame;

/// Signals by which the kernel ends a process for what its own instructions did.
const EXCEPTIONS: [u32; 6] = [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];

/// What is known of a faulty replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    pub(crate) kind: DivergenceKind,
    pub(crate) process: Process,
    /// It was stopped by a signal.
    pub(crate) stopped: bool,
    /// It used much more CPU time than its siblings, if that can be told.
    pub(crate) ran_on: bool,
    /// It was bound to its core, as far as can be told.
    pub(crate) bound: bool,
}

/// Whether the replica's core is charged, and why.
pub(crate) fn judge_core(it: Circumstances) -> (Blame, &'static str) {
    if !it.bound {
        return (Blame::Nobody, "it was not bound to one core");
    }
    match (it.kind, it.process) {
        (_, Process::Killed(signal)) if EXCEPTIONS.contains(&signal.cast_unsigned()) => {
            (Blame::Core, "its instructions raised an exception")
        }
        (_, Process::Killed(_)) => (Blame::Nobody, "it was killed from outside"),
        (DivergenceKind::Death, Process::Exited(_)) => (Blame::Core, "it ended by itself"),
        (DivergenceKind::Death, _) => (Blame::Nobody, "its end was not seen"),
        (DivergenceKind::Timeout, _) if it.stopped => {
            (Blame::Nobody, "it was stopped from outside")
        }
        (DivergenceKind::Timeout, _) if !it.ran_on => {
            (Blame::Nobody, "it may just not have had the processor")
        }
        (DivergenceKind::Timeout, _) => (Blame::Core, "it ran on and did not come"),
        (DivergenceKind::Mismatch, _) => (Blame::Core, "it was outvoted"),
        (DivergenceKind::Fault, _) => (Blame::Core, "it alone met a fault"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: Circumstances = Circumstances {
        kind: DivergenceKind::Mismatch,
        process: Process::Alive,
        stopped: false,
        ran_on: false,
        bound: true,
    };

    fn blame(it: Circumstances) -> Blame {
        judge_core(it).0
    }

    #[test]
    fn wrong_values_and_own_exceptions_are_the_cores() {
        for kind in [DivergenceKind::Mismatch, DivergenceKind::Fault] {
            assert_eq!(blame(Circumstances { kind, ..ALIVE }), Blame::Core);
        }
        for signal in [4, 7, 8, 11] {
            let process = Process::Killed(signal);
            let kind = DivergenceKind::Death;
            let it = Circumstances {
                kind,
                process,
                ..ALIVE
            };
            assert_eq!(blame(it), Blame::Core, "signal {signal}");
        }
    }

    #[test]
    fn what_comes_from_outside_is_nobodys() {
        for kind in [
            DivergenceKind::Death,
            DivergenceKind::Mismatch,
            DivergenceKind::Timeout,
        ] {
            for signal in [9, 15, 24] {
                let process = Process::Killed(signal);
                let it = Circumstances {
                    kind,
                    process,
                    ..ALIVE
                };
                assert_eq!(blame(it), Blame::Nobody, "{kind:?} signal {signal}");
            }
        }
        let stopped = Circumstances {
            kind: DivergenceKind::Timeout,
            stopped: true,
            ran_on: true,
            ..ALIVE
        };
        assert_eq!(blame(stopped), Blame::Nobody);
        let unbound = Circumstances {
            bound: false,
            ..ALIVE
        };
        assert_eq!(blame(unbound), Blame::Nobody);
    }

    #[test]
    fn late_is_only_who_ran() {
        let late = Circumstances {
            kind: DivergenceKind::Timeout,
            ..ALIVE
        };
        assert_eq!(blame(late), Blame::Nobody);
        let looping = Circumstances {
            ran_on: true,
            ..late
        };
        assert_eq!(blame(looping), Blame::Core);
    }
}
