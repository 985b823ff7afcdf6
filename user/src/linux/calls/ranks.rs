//! Calls about what a process may do, and when it runs: its users, its capabilities, its rank among
//! others, the core it runs on.
//!
//! There is one user, who may do everything, one core, and one manner of taking turns. How nice a
//! process is to others is kept and told, and changes nothing: turns follow from calls.
//!
//! Not covered: real-time turns and giving up capabilities, which are refused.

use linux_raw_sys::errno::{EINVAL, EPERM, ESRCH};

use crate::linux::arch::nr;
use crate::linux::tasks::Life;
use crate::linux::{Answer, Errno, Machine, Process};

/// Whom `getpriority` means: a process, a group, a user.
const OF_PROCESS: u32 = 0;
const OF_GROUP: u32 = 1;
const OF_USER: u32 = 2;
/// Least and most that a process can be nice.
const NICE: [i32; 2] = [-20, 19];
/// Manners of taking turns: the usual one, two by which one goes on until it waits, two that are
/// for work behind the scenes, and one with deadlines.
const USUAL: i32 = 0;
const FIRST_IN: i32 = 1;
const ROUND: i32 = 2;
const BATCH: i32 = 3;
const IDLE: i32 = 5;
const DEADLINE: i32 = 6;
/// Asks that a child does not have its parent's manner.
const RESET: i32 = 0x4000_0000;
/// Most of a real-time priority.
const HIGHEST: u64 = 99;
/// Versions of what capabilities stand in, and how many halves of sets each has.
const VERSIONS: [(u32, usize); 3] = [(0x1998_0330, 1), (0x2007_1026, 2), (0x2008_0522, 2)];
/// All that there are.
pub(super) const CAPABILITIES: u64 = 41;
const ALL: u64 = (1 << CAPABILITIES) - 1;

/// A number as it comes in a register.
const fn signed(word: u64) -> i32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn rank_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, ..] = words;
        Some(match call {
            nr::__NR_getresuid | nr::__NR_getresgid => self.halves(&[first, second, third], 0),
            // Both tell what it was, whatever comes of it.
            nr::__NR_setfsuid | nr::__NR_setfsgid => Ok(0),
            nr::__NR_getcpu => {
                let wanted = [first, second].map(|to| (to != 0).then_some(to));
                let mut places = wanted.into_iter().flatten();
                places.try_fold(0, |_, to| self.halves(&[to], 0))
            }
            nr::__NR_getpriority => self.rank(signed(first), second),
            nr::__NR_setpriority => self.set_rank(signed(first), second, signed(third)),
            nr::__NR_sched_getscheduler => self.scheduled(first).map(|()| 0),
            nr::__NR_sched_getparam => self.priority(first, second),
            nr::__NR_sched_setscheduler if signed(second) < 0 => Err(Errno(EINVAL)),
            nr::__NR_sched_setscheduler => self.schedule(first, signed(second), third),
            nr::__NR_sched_setparam => self.schedule(first, USUAL, second),
            nr::__NR_sched_get_priority_max => Self::bound(signed(first), HIGHEST),
            nr::__NR_sched_get_priority_min => Self::bound(signed(first), 1),
            nr::__NR_sched_rr_get_interval => {
                // Turns have no time.
                let scheduled = self.scheduled(first);
                scheduled.and_then(|()| self.write_words(second, &[0, 0]).map(|()| 0))
            }
            nr::__NR_capget => self.capabilities(first, second),
            nr::__NR_capset => self.set_capabilities(first, second),
            _ => return None,
        })
    }

    /// Writes a half of a word to each of these places.
    fn halves(&mut self, places: &[u64], word: u64) -> Answer {
        for &to in places {
            self.write_half(to, word)?;
        }
        Ok(0)
    }

    /// The places of the processes that are meant so.
    fn ranked(&self, which: i32, whom: u64) -> Result<u16, Errno> {
        let whom = whom & 0xffff_ffff;
        let own = |own: u64| if whom == 0 { own } else { whom };
        let wanted = match u32::try_from(which) {
            Ok(OF_PROCESS) => (own(self.task.number), true),
            Ok(OF_GROUP) => (own(self.task.group), false),
            Ok(OF_USER) if whom == 0 => (0, false),
            Ok(OF_USER) => return Err(Errno(ESRCH)),
            _ => return Err(Errno(EINVAL)),
        };
        let all = self.task.all().iter().enumerate();
        let found = all.filter(|(_, it)| {
            let fits = match wanted {
                (number, true) => it.number == number,
                (0, false) => true,
                (group, false) => it.group == group,
            };
            it.life != Life::Free && fits
        });
        match found.fold(0, |places, (at, _)| places | 1 << at) {
            0 => Err(Errno(ESRCH)),
            places => Ok(places),
        }
    }

    /// The rank of the least nice of some processes, from 1 to 40.
    fn rank(&self, which: i32, whom: u64) -> Answer {
        let places = self.ranked(which, whom)?;
        let all = self.task.all().iter().enumerate();
        let meant = all.filter(|(at, _)| places & 1 << at != 0);
        let least = meant.map(|(_, it)| it.manner.nice).min();
        let nice = least.ok_or(Errno(ESRCH))?;
        u64::try_from(NICE[1] + 1 - nice).map_err(|_| Errno(EINVAL))
    }

    fn set_rank(&mut self, which: i32, whom: u64, nice: i32) -> Answer {
        let places = self.ranked(which, whom)?;
        for place in 0..self.task.all().len() {
            if places & 1 << place != 0 {
                self.task.at(place).manner.nice = nice.clamp(NICE[0], NICE[1]);
            }
        }
        Ok(0)
    }

    /// Is there such a thread?
    fn scheduled(&self, whom: u64) -> Result<(), Errno> {
        match signed(whom) {
            ..0 => Err(Errno(EINVAL)),
            0 => Ok(()),
            _ => {
                let thread = self.threads.anywhere(whom & 0xffff_ffff);
                thread.map(|_| ()).ok_or(Errno(ESRCH))
            }
        }
    }

    fn priority(&mut self, whom: u64, to: u64) -> Answer {
        if to == 0 {
            return Err(Errno(EINVAL));
        }
        self.scheduled(whom)?;
        self.halves(&[to], 0)
    }

    /// Threads take turns as they do; another manner is refused.
    fn schedule(&mut self, whom: u64, manner: i32, from: u64) -> Answer {
        if from == 0 || signed(whom) < 0 {
            return Err(Errno(EINVAL));
        }
        let mut priority = [0; 4];
        self.read(from, &mut priority)?;
        let priority = i32::from_le_bytes(priority);
        self.scheduled(whom)?;
        match (manner & !RESET, priority) {
            (USUAL, 0) => return Ok(0),
            (BATCH | IDLE, 0) | (FIRST_IN | ROUND, 1..100) => {}
            _ => return Err(Errno(EINVAL)),
        }
        let text = format_args!(
            "the system sphere has one manner of taking turns (SCHED_OTHER): the program got EPERM"
        );
        self.tell_once(nr::__NR_sched_setscheduler.into(), text);
        Err(Errno(EPERM))
    }

    /// A bound of the priorities that there are with a manner of taking turns.
    const fn bound(manner: i32, of_real_time: u64) -> Answer {
        match manner {
            FIRST_IN | ROUND => Ok(of_real_time),
            USUAL | BATCH | IDLE | DEADLINE => Ok(0),
            _ => Err(Errno(EINVAL)),
        }
    }

    /// How many halves of sets are meant, and of which process; what is wrong with the version, if
    /// anything is, is told where it stands.
    fn capabilities_of(&mut self, header: u64) -> Result<(Option<usize>, u64), Errno> {
        let both = self.word(header)?;
        let mut versions = VERSIONS.iter();
        let found = versions.find(|(version, _)| u64::from(*version) == both & 0xffff_ffff);
        if found.is_none() {
            self.halves(&[header], VERSIONS[2].0.into())?;
        }
        Ok((found.map(|(_, halves)| *halves), both >> 32))
    }

    fn capabilities(&mut self, header: u64, to: u64) -> Answer {
        let (halves, whom) = self.capabilities_of(header)?;
        let Some(halves) = halves else {
            return if to == 0 { Ok(0) } else { Err(Errno(EINVAL)) };
        };
        self.scheduled(whom)?;
        if to == 0 {
            return Ok(0);
        }
        for half in 0..halves as u64 {
            let all = ALL >> (32 * half) & 0xffff_ffff;
            let place = to.wrapping_add(12 * half);
            self.halves(&[place, place.wrapping_add(4)], all)?;
            self.halves(&[place.wrapping_add(8)], 0)?;
        }
        Ok(0)
    }

    /// The superuser keeps what it has.
    fn set_capabilities(&mut self, header: u64, from: u64) -> Answer {
        let (halves, whom) = self.capabilities_of(header)?;
        let halves = halves.ok_or(Errno(EINVAL))?;
        if ![0, self.task.number].contains(&whom) {
            return Err(Errno(EPERM));
        }
        let mut keeps = true;
        for half in 0..halves as u64 {
            let all = ALL >> (32 * half) & 0xffff_ffff;
            let sets = self.word(from.wrapping_add(12 * half))?;
            let (effective, permitted) = (sets & 0xffff_ffff, sets >> 32);
            if effective & !permitted != 0 || permitted & !all != 0 {
                return Err(Errno(EPERM));
            }
            keeps &= effective == all && permitted == all;
        }
        if keeps {
            return Ok(0);
        }
        let text = format_args!(
            "the system sphere has no program give up what it may do (capset): it got EPERM"
        );
        self.tell_once(nr::__NR_capset.into(), text);
        Err(Errno(EPERM))
    }
}
