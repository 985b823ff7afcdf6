//! The limits of resources that rcoe was started under: the program's, and what rcoe needs itself.
//!
//! The program starts with these limits and its agent keeps them for it. For rcoe's own processes
//! soft limits are raised to the hard ones, since the host counts all replicas and what rcoe adds
//! to each. A hard limit that has no room for that is refused before anything starts.

use rcoe_linux_abi::arena::{CLAIMS_BYTES, LEAST_SLICE};
use rcoe_linux_abi::limits::{RESOURCES, UNLIMITED};
use rcoe_linux_abi::{CONTROL_BYTES, GROUPS, OBJECT_BYTES, REGION_STRIDE};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::RunError;

/// All resources, in the kernel's order.
const ALL: [Resource; RESOURCES] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// Those that are raised for rcoe's processes.
const RAISED: [Resource; 8] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Nproc,
    Resource::Nofile,
    Resource::As,
    Resource::Sigpending,
    Resource::Rttime,
];

/// Address space of a replica beside what it shares: agent, stacks, and a small program.
const OWN_SPACE: u64 = 64 << 20;
/// Private memory of a replica beside the program's.
const OWN_DATA: u64 = 32 << 20;

/// The limits that the program starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given([[u64; 2]; RESOURCES]);

impl Given {
    /// Reads the limits, and raises those of this process.
    ///
    /// # Errors
    ///
    /// [`RunError::Setting`] if a hard limit has no room for so many replicas.
    pub(crate) fn take(replicas: usize) -> Result<Self, RunError> {
        let given = Self(ALL.map(|resource| {
            let limit = getrlimit(resource);
            [limit.current, limit.maximum].map(|limit| limit.unwrap_or(UNLIMITED))
        }));
        given.refuse(replicas)?;
        for resource in RAISED {
            let hard = getrlimit(resource).maximum;
            // Up to the hard limit anybody may.
            let _ = setrlimit(
                resource,
                Rlimit {
                    current: hard,
                    maximum: hard,
                },
            );
        }
        Ok(given)
    }

    /// Soft and hard limit of each resource, in the kernel's order.
    pub(crate) const fn pairs(&self) -> &[[u64; 2]; RESOURCES] {
        &self.0
    }

    fn refuse(&self, replicas: usize) -> Result<(), RunError> {
        let needs = [
            (Resource::As, "address space", "v", least_space(replicas)),
            (Resource::Data, "data", "d", OWN_DATA),
            (
                Resource::Fsize,
                "the size of files",
                "f",
                largest_file(replicas),
            ),
        ];
        for (resource, name, letter, need) in needs {
            let at = ALL.iter().position(|it| *it == resource).unwrap_or(0);
            let hard = self.0[at][1];
            if hard < need {
                return Err(RunError::Setting(format!(
                    "the hard limit on {name} (ulimit -H -{letter}) is {} KiB, and {replicas} \
                     replicas need at least {} KiB; the program can be given a lower one by \
                     `rcoe run -- sh -c 'ulimit -{letter} KIB; exec \"$@\"' sh PROGRAM`",
                    hard / 1024,
                    need.div_ceil(1024),
                )));
            }
        }
        Ok(())
    }
}

/// Address space that a replica needs beside the program.
pub(crate) fn space_for(replicas: usize) -> u64 {
    let shared = GROUPS * CONTROL_BYTES + CLAIMS_BYTES + replicas * OBJECT_BYTES;
    u64::try_from(shared).unwrap_or(u64::MAX) + OWN_SPACE
}

/// Parts of the address space that are left after that, of which memory shared by processes of the
/// program takes one.
pub(crate) const SHARES: u64 = 4;

/// The least of it that has room for such memory.
fn least_space(replicas: usize) -> u64 {
    let shared = u64::try_from(least_shared(replicas)).unwrap_or(u64::MAX);
    space_for(replicas).saturating_add(SHARES.saturating_mul(shared))
}

/// Memory without which processes of the program, or a replica and its successor, share nothing.
const fn least_shared(replicas: usize) -> usize {
    CLAIMS_BYTES + replicas * LEAST_SLICE
}

/// Size of the largest file in memory that rcoe cannot do without.
fn largest_file(replicas: usize) -> u64 {
    let fixed = REGION_STRIDE.max(GROUPS * CONTROL_BYTES);
    u64::try_from(fixed.max(least_shared(replicas))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_limit_without_room_is_refused_with_what_is_needed() {
        let free = [[UNLIMITED; 2]; RESOURCES];
        assert!(Given(free).refuse(8).is_ok());
        for (at, letter) in [(9, "-v"), (2, "-d"), (1, "-f")] {
            let mut tight = free;
            tight[at] = [1 << 20; 2];
            let text = Given(tight).refuse(2).unwrap_err().to_string();
            assert!(text.contains(letter), "{text}");
            // A soft limit is the program's own.
            tight[at][1] = UNLIMITED;
            assert!(Given(tight).refuse(2).is_ok());
        }
        let mut tight = free;
        tight[9] = [0, least_space(2)];
        assert!(Given(tight).refuse(2).is_ok());
        assert!(Given(tight).refuse(3).is_err());
        let mut tight = free;
        tight[1] = [0, largest_file(3)];
        assert!(Given(tight).refuse(3).is_ok());
        assert!(Given(tight).refuse(4).is_err());
    }
}
