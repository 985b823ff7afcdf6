//! Replicas leave a core that the ledger has come to suspect while they run.
//!
//! Intuition: a core that is wrong again and again would cost a removal and a re-integration each
//! time. The cores are chosen as for a run that begins, and as few replicas move as can be, those
//! of all processes of the program. One that is lost comes back on its new core.
//!
//! Not covered: what a replica has computed on the bad core. The votes find that.

use super::Run;
use crate::cores::{assign_cores, avoid, bind, moves};
use crate::events::{Event, Observer};
use crate::ledger::News;
use crate::team::Team;

impl Run<'_> {
    /// Takes note of what has been written into the ledger.
    pub(super) fn hear_clerk(&mut self) {
        while let Some(news) = self.clerk.news() {
            match news {
                News::Complaint(text) => self.observer.warning(&text),
                News::Suspects(suspects) => self.leave(&suspects),
            }
        }
    }

    fn leave(&mut self, suspects: &[u32]) {
        let mut left = Vec::new();
        for team in self.family.teams.iter_mut().flatten() {
            let replicas = team.cores.len();
            let wanted = avoid(replicas, &self.settings.allowed, suspects);
            for (replica, to) in moves(&team.cores, &assign_cores(replicas, &wanted)) {
                let from = relocate(team, replica, to);
                left.push((from, to));
                self.observer.event(&Event::Relocation {
                    process: team.pid,
                    replica,
                    from,
                    to,
                });
            }
        }
        left.sort_unstable();
        left.dedup();
        for (from, to) in left {
            let text = format!("core {from} is suspect: a replica goes on on core {to} instead");
            self.observer.warning(&text);
        }
    }
}

/// Moves a replica, or only its place if it is lost; returns the core that it was on.
fn relocate(team: &mut Team, replica: usize, to: u32) -> u32 {
    let from = std::mem::replace(&mut team.cores[replica], to);
    team.memory.set_core(replica, to);
    if !team.group.process(replica).is_gone()
        && let Some(pid) = team.group.pid(replica)
    {
        bind(pid, to);
    }
    from
}
