//! What the loop does for a debugger on the program.

use std::os::unix::ffi::OsStrExt as _;

use super::{Outcome, Run};
use crate::error::RunError;
use crate::events::{Event, Observer};
use crate::gdb::{Debugger, Wish};
use crate::reaper::tell_stops;
use crate::settings::Settings;

/// Listens for gdb, if the user wants one, and tells where.
pub(super) fn open(
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Option<Debugger>, RunError> {
    let Some(port) = settings.gdb else {
        return Ok(None);
    };
    let program = settings.program.exe.as_os_str().as_bytes().to_vec();
    let why = |error| RunError::Setting(format!("--gdb {port}: {error}"));
    let (debugger, address) = Debugger::listen(port, program).map_err(why)?;
    observer.event(&Event::Debugger {
        address: address.to_string(),
    });
    Ok(Some(debugger))
}

impl Run<'_> {
    /// Watches the program; gdb and the service manager hear of its end.
    pub(super) fn watch_to_the_end(&mut self) -> Result<Outcome, RunError> {
        let outcome = self.watch();
        if let Some(debugger) = &mut self.debugger {
            debugger.tell_end(outcome.as_ref().ok());
        }
        self.notifier.stopping();
        outcome
    }

    /// The debugger hears of stops, and gdb of what came of them.
    pub(super) fn follow_debugger(&mut self) -> Result<(), RunError> {
        let Some(debugger) = &mut self.debugger else {
            return Ok(());
        };
        let others = debugger.hear(self.reaper.take_stops());
        tell_stops(&mut self.family.teams, others);
        let told = debugger.follow(self.family.root());
        told.map_err(|error| RunError::Setting(format!("--gdb: {error}")))
    }

    /// Gdb has said something.
    pub(super) fn attend_debugger(&mut self) {
        let wish = self.debugger.as_mut().map(Debugger::attend);
        self.is_killed |= wish == Some(Wish::Kill);
    }
}
