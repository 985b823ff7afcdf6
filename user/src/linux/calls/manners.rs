//! `prctl` and `personality`: what a process says of itself.
//!
//! What it says is kept and told. From most of it nothing follows here: there are no programs that
//! give rights, no files with the memory of a process, and no addresses by chance.
//!
//! Not covered: all other requests, which get EINVAL, as Linux says of what it does not know. That
//! is told.

use linux_raw_sys::errno::{EFAULT, EINVAL};
use linux_raw_sys::prctl::{
    PR_CAPBSET_READ, PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_NAME, PR_GET_NO_NEW_PRIVS,
    PR_GET_PDEATHSIG, PR_GET_SECCOMP, PR_GET_TIMING, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NAME,
    PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_TIMING, PR_SET_VMA,
};

use super::ranks::CAPABILITIES;
use crate::linux::arch::nr;
use crate::linux::signals::LAST;
use crate::linux::tasks::Name;
use crate::linux::{Answer, Errno, Machine, Process};

/// Bytes of the name of a thread, with the zero byte behind it.
const NAME: usize = 16;
/// Asks for what `personality` is, and has addresses not be by chance.
const ASKS: u32 = u32::MAX;
const NO_CHANCE: u32 = 0x0004_0000;

impl<M: Machine> Process<'_, M> {
    pub(super) fn manner_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        Some(match call {
            nr::__NR_prctl => self.say(words),
            nr::__NR_personality => self.become_like(words[0]),
            _ => return None,
        })
    }

    fn say(&mut self, words: [u64; 6]) -> Answer {
        let [what, value, rest @ ..] = words;
        let nothing_else = rest[..3] == [0; 3];
        let manner = &mut self.task.manner;
        match u32::try_from(what & 0xffff_ffff).unwrap_or(0) {
            PR_SET_PDEATHSIG if value <= LAST.into() => manner.death = value,
            PR_SET_DUMPABLE if value <= 1 => manner.is_dumpable = value == 1,
            PR_SET_KEEPCAPS if value <= 1 => manner.keeps = value == 1,
            PR_SET_TIMING if value == 0 => {}
            PR_SET_NO_NEW_PRIVS if value == 1 && nothing_else => manner.gains_nothing = true,
            PR_SET_NAME => self.set_name(value)?,
            PR_GET_PDEATHSIG => {
                let signal = manner.death;
                self.write_half(value, signal)?;
            }
            PR_GET_DUMPABLE => return Ok(manner.is_dumpable.into()),
            PR_GET_KEEPCAPS => return Ok(manner.keeps.into()),
            PR_GET_NO_NEW_PRIVS if value == 0 && nothing_else => {
                return Ok(manner.gains_nothing.into());
            }
            PR_GET_NAME => {
                let mut bytes = [0; NAME];
                let name = self.own_name_of_thread();
                bytes[..name.bytes().len()].copy_from_slice(name.bytes());
                self.write(value, &bytes)?;
            }
            PR_GET_TIMING | PR_GET_SECCOMP => {}
            PR_CAPBSET_READ if value < CAPABILITIES => return Ok(1),
            PR_SET_PDEATHSIG | PR_SET_DUMPABLE | PR_SET_KEEPCAPS | PR_SET_TIMING
            | PR_SET_NO_NEW_PRIVS | PR_GET_NO_NEW_PRIVS | PR_CAPBSET_READ | PR_SET_SECCOMP
            | PR_SET_VMA => return Err(Errno(EINVAL)),
            other => return self.refuse_request(other),
        }
        Ok(0)
    }

    fn refuse_request(&mut self, request: u32) -> Answer {
        let text = format_args!(
            "the system sphere does not carry the request {request} of prctl: the program got \
             EINVAL"
        );
        self.tell_once(nr::__NR_prctl.into(), text);
        Err(Errno(EINVAL))
    }

    /// What the thread at hand is called.
    pub(super) fn own_name_of_thread(&self) -> Name {
        self.threads.now().name.unwrap_or(self.task.name)
    }

    /// The first thread's name is that of its process.
    fn set_name(&mut self, from: u64) -> Result<(), Errno> {
        let mut bytes = [0; NAME - 1];
        let mut len = 0;
        while len < bytes.len() {
            let at = from.checked_add(len as u64).ok_or(Errno(EFAULT))?;
            self.read(at, &mut bytes[len..=len])?;
            if bytes[len] == 0 {
                break;
            }
            len += 1;
        }
        let name = Name::exactly(&bytes[..len]);
        if self.threads.now().number == self.task.number {
            self.task.name = name;
        } else {
            self.threads.current().name = Some(name);
        }
        Ok(())
    }

    /// Addresses do not follow from chance in any case.
    fn become_like(&mut self, like: u64) -> Answer {
        let before = self.task.manner.like;
        match u32::try_from(like & 0xffff_ffff).unwrap_or(ASKS) {
            ASKS => {}
            like @ (0 | NO_CHANCE) => self.task.manner.like = like,
            other => {
                let text = format_args!(
                    "the system sphere carries programs of Linux alone (personality {other:#x}): \
                     the program got EINVAL"
                );
                self.tell_once(nr::__NR_personality.into(), text);
                return Err(Errno(EINVAL));
            }
        }
        Ok(before.into())
    }
}
