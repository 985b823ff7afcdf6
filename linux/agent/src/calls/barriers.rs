//! Barriers in memory that one thread has others run through: `membarrier`.
//!
//! All threads of a replica run on its one kernel thread, and processes that share memory take
//! turns, which are handed over by atomic operations. So whoever runs has run through a barrier
//! since anybody else did, and nothing is to be done. To programs outside memory is never shared: a
//! mapped file reaches them by calls. What is kept is what a program may rely on: who has said
//! that it will ask for which barrier, and may.
//!
//! Contract: the same in all replicas; the state is that of the program's memory, so threads share
//! it, a child begins with it, and another program does without.
//!
//! Not covered: barriers for restartable sequences, which are refused as by a kernel without them,
//! as the sequences are.

use linux_raw_sys::errno::{EINVAL, EPERM};
use linux_raw_sys::general::membarrier_cmd as cmd;

use crate::calls::Call;
use crate::convert::low32;
use crate::sys;

const QUERY: u32 = cmd::MEMBARRIER_CMD_QUERY as u32;
const GLOBAL: u32 = cmd::MEMBARRIER_CMD_GLOBAL as u32;
const GLOBAL_EXPEDITED: u32 = cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32;
const REGISTER_GLOBAL: u32 = cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32;
const PRIVATE: u32 = cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32;
const REGISTER_PRIVATE: u32 = cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32;
const CORE: u32 = cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const REGISTER_CORE: u32 = cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const REGISTRATIONS: u32 = cmd::MEMBARRIER_CMD_GET_REGISTRATIONS as u32;

const KNOWN: u32 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL
    | PRIVATE
    | REGISTER_PRIVATE
    | CORE
    | REGISTER_CORE
    | REGISTRATIONS;

/// What the program's memory is registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barriers {
    /// Commands of registrations, as the program is told of them.
    told: u32,
    /// The barriers that it may ask for.
    ready: u32,
}

impl Barriers {
    pub(crate) const NONE: Self = Self { told: 0, ready: 0 };

    /// `membarrier`. On which CPU says an argument of a command that is not known.
    pub(super) fn perform(&mut self, call: &Call) -> i64 {
        let [command, flags] = [0, 1].map(|index| low32(call.arg(index)));
        let done = self.command(command, flags);
        done.map_or_else(sys::error, i64::from)
    }

    /// The result of this command.
    fn command(&mut self, command: u32, flags: u32) -> Result<u32, u32> {
        // They say something to a command that is not known here.
        if flags != 0 {
            return Err(EINVAL);
        }
        match command {
            QUERY => return Ok(KNOWN),
            REGISTRATIONS => return Ok(self.told),
            GLOBAL | GLOBAL_EXPEDITED => {}
            PRIVATE | CORE if self.ready & command != 0 => {}
            PRIVATE | CORE => return Err(EPERM),
            REGISTER_GLOBAL => self.told |= REGISTER_GLOBAL,
            REGISTER_PRIVATE => self.register(REGISTER_PRIVATE, PRIVATE),
            // The kernel tells of the plain one as well, which does not become allowed by it.
            REGISTER_CORE => self.register(REGISTER_CORE | REGISTER_PRIVATE, CORE),
            _ => return Err(EINVAL),
        }
        Ok(0)
    }

    const fn register(&mut self, told: u32, ready: u32) {
        self.told |= told;
        self.ready |= ready;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCES: u32 = cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ as u32;

    #[test]
    fn what_is_known_is_done_or_wants_to_be_registered() {
        let mut barriers = Barriers::NONE;
        assert_eq!(barriers.command(QUERY, 0), Ok(0x27f));
        for command in [GLOBAL, GLOBAL_EXPEDITED] {
            assert_eq!(barriers.command(command, 0), Ok(0));
        }
        for command in [PRIVATE, CORE] {
            assert_eq!(barriers.command(command, 0), Err(EPERM));
        }
        for command in [SEQUENCES, SEQUENCES << 1, 1024, 3, u32::MAX] {
            assert_eq!(barriers.command(command, 0), Err(EINVAL));
        }
        assert_eq!(barriers, Barriers::NONE);
    }

    #[test]
    fn flags_are_refused_first() {
        let mut barriers = Barriers::NONE;
        for command in [QUERY, GLOBAL, PRIVATE, REGISTER_PRIVATE, SEQUENCES] {
            assert_eq!(barriers.command(command, 1), Err(EINVAL));
        }
        assert_eq!(barriers, Barriers::NONE);
    }

    #[test]
    fn a_registration_allows_its_own_barrier_only() {
        let mut barriers = Barriers::NONE;
        assert_eq!(barriers.command(REGISTER_CORE, 0), Ok(0));
        assert_eq!(barriers.command(CORE, 0), Ok(0));
        assert_eq!(barriers.command(PRIVATE, 0), Err(EPERM));
        let told = REGISTER_CORE | REGISTER_PRIVATE;
        assert_eq!(barriers.command(REGISTRATIONS, 0), Ok(told));
        assert_eq!(barriers.command(REGISTER_PRIVATE, 0), Ok(0));
        assert_eq!(barriers.command(PRIVATE, 0), Ok(0));
        assert_eq!(barriers.command(REGISTER_GLOBAL, 0), Ok(0));
        assert_eq!(
            barriers.command(REGISTRATIONS, 0),
            Ok(told | REGISTER_GLOBAL)
        );
    }
}
