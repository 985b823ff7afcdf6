//! `kill` within the program: whom it means, and whether the sender may.
//!
//! The supervisor hands the signal over itself, so it has to keep the kernel's rule (kill(2)): who
//! has not the right user, nor CAP_KILL, may not, but for SIGCONT within the session. Who a process
//! is the host says of one of its replicas. As long as no process of the program has changed its
//! credentials all are alike, and nobody is asked.
//!
//! Not covered: namespaces of users, and the rules of security modules.

use std::sync::atomic::Ordering::Relaxed;

use rcoe_linux_abi::NOT_OURS;
use rcoe_linux_sys::host::SignalInfo;
use rustix::process::getuid;

use super::Family;
use crate::judge::Process;
use crate::numbers::{EPERM, ESRCH, SIGCONT};

/// Who a process is, as far as signals go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    real: u32,
    effective: u32,
    saved: u32,
    /// It has CAP_KILL.
    may_all: bool,
}

impl Standing {
    /// Of a process of the host, by its `status`.
    fn parse(status: &str) -> Option<Self> {
        const CAP_KILL: u64 = 1 << 5;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let mut ids = field("Uid:")?.split_ascii_whitespace().map(str::parse);
        let mut id = || ids.next()?.ok();
        let capabilities = u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?;
        Some(Self {
            real: id()?,
            effective: id()?,
            saved: id()?,
            may_all: capabilities & CAP_KILL != 0,
        })
    }

    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn may_signal(&self, other: &Self) -> bool {
        let own = [self.real, self.effective];
        self.may_all || own.contains(&other.real) || own.contains(&other.saved)
    }
}

impl Family {
    /// Notices that processes of the program are not all alike any more.
    fn learn_standings(&mut self) -> bool {
        self.mixed |= self.teams.iter().flatten().any(|team| {
            let mut members = team.members();
            members.any(|index| team.memory.report(index).changed.load(Relaxed) != 0)
        });
        self.mixed
    }

    /// A replica of a process that lives.
    fn living_replica(&self, group: usize) -> Option<u32> {
        let team = self.team(group);
        let mut members = team.members();
        let living = members.find(|&index| team.group.process(index) == Process::Alive);
        living.and_then(|index| team.group.pid(index))
    }

    /// Whether the kernel would let a process signal another one.
    fn may_signal(&self, sender: usize, own: Option<Standing>, group: usize, signal: u8) -> bool {
        let continues = u32::from(signal) == SIGCONT && self.session(sender) == self.session(group);
        if sender == group || continues {
            return true;
        }
        // One that has ended hears of nothing.
        let Some(pid) = self.living_replica(group) else {
            return true;
        };
        let other = Standing::of(pid);
        own.zip(other)
            .is_some_and(|(own, other)| own.may_signal(&other))
    }

    pub(super) fn kill(
        &mut self,
        sender: usize,
        target: i32,
        signal: u8,
        enclosed: Option<SignalInfo>,
    ) -> i64 {
        let id = target.unsigned_abs();
        let meant = |family: &Self, group: usize| match target {
            1.. => family.team(group).pid == id,
            -1 => group != sender,
            0 => family.group_id(group) == family.group_id(sender),
            _ => family.group_id(group) == id,
        };
        let mut groups = self.groups();
        groups.retain(|&group| self.team(group).pid != 0 && meant(self, group));
        if groups.is_empty() {
            let gone = target == -1 || id == std::process::id();
            return if gone { ESRCH } else { NOT_OURS };
        }
        let mut user = getuid().as_raw();
        if self.learn_standings() {
            let own = self.living_replica(sender).and_then(Standing::of);
            user = own.map_or(user, |own| own.real);
            groups.retain(|&group| self.may_signal(sender, own, group, signal));
            if groups.is_empty() {
                return if target == -1 { 0 } else { EPERM };
            }
        }
        let plain = SignalInfo {
            number: 0,
            code: 0,
            sender: self.team(sender).pid,
            user,
            value: 0,
        };
        if signal != 0 {
            for group in groups {
                let signal = SignalInfo {
                    number: u32::from(signal),
                    ..enclosed.unwrap_or(plain)
                };
                self.hand_to(group, signal);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Standing {
        Standing {
            real: id,
            effective: id,
            saved: id,
            may_all: false,
        }
    }

    #[test]
    fn who_has_the_user_or_the_capability_may() {
        let root = Standing {
            may_all: true,
            ..user(0)
        };
        assert!(root.may_signal(&user(7)));
        assert!(!user(0).may_signal(&user(7)));
        assert!(user(7).may_signal(&user(7)));
        assert!(!user(7).may_signal(&root));
        let half = Standing {
            effective: 7,
            ..user(0)
        };
        assert!(half.may_signal(&user(7)) && half.may_signal(&user(0)));
        // The effective user of the other one does not count.
        assert!(!user(7).may_signal(&half));
    }

    #[test]
    fn a_process_is_who_the_host_says() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nCapEff:\t0000000000000020\n";
        let parsed = Standing {
            real: 1,
            effective: 2,
            saved: 3,
            may_all: true,
        };
        assert_eq!(Standing::parse(status), Some(parsed));
        assert_eq!(Standing::parse("Uid:\t1\t2\n"), None);
        assert!(Standing::of(std::process::id()).is_some());
    }
}
