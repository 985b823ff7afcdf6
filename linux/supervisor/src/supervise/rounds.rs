//! The phases of a round of the supervisor's loop.

use rcoe_linux_abi::Ending;

use super::{Outcome, Run};
use crate::error::RunError;
use crate::numbers::SIGKILL;

impl Run<'_> {
    /// Rounds, until one of them ends the run: learn what became of replicas, tell of it, settle
    /// who has come or gone, decide, restore what was lost, and wait for more.
    pub(super) fn watch(&mut self) -> Result<Outcome, RunError> {
        loop {
            self.learn()?;
            self.follow_debugger()?;
            self.tell();
            self.settle()?;
            self.check();
            if self.is_killed {
                return Ok(Outcome::Ended(Ending::Signal((SIGKILL & 0x7f) as u8)));
            }
            if let Some(outcome) = self.decide_all()? {
                return Ok(outcome);
            }
            self.restore();
            self.sleep()?;
            self.hear()?;
        }
    }

    /// Who has ended, and what replicas say of that themselves.
    fn learn(&mut self) -> Result<(), RunError> {
        self.reaper.reap(&mut self.family.teams)?;
        for team in self.family.teams.iter_mut().flatten() {
            team.group.hear_of_ends(&team.memory);
        }
        Ok(())
    }

    /// The user and the service manager hear what is new.
    fn tell(&mut self) {
        self.tell_recoveries();
        self.tell_scene_when_left();
        self.announce();
        self.notifier
            .tick(&self.family, &self.happened, self.settings.replicas());
        self.tell_notes();
    }

    /// Processes of the program are born, end, and stand still together.
    fn settle(&mut self) -> Result<(), RunError> {
        self.family.settle()?;
        if self.family.has_newborn() {
            self.family.hear_requests()?;
        }
        self.family.stand_still();
        Ok(())
    }

    /// What nobody reports by itself: loops without a call, limits, cores under suspicion.
    fn check(&mut self) {
        self.watch_threads();
        self.watch_limits();
        self.hear_clerk();
    }

    /// What was lost comes back, and what lies latent is looked for.
    fn restore(&mut self) {
        // One that was dead already is no work: the time is not that of the next round.
        self.tell_recoveries();
        self.reintegrate();
        self.scrub();
    }
}
