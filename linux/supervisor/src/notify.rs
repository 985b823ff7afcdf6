//! Tells systemd how the run gets on: `sd_notify` and its watchdog.
//!
//! The watchdog is fed as long as every process of the program gets on or waits for something
//! outside. One that does neither for longer than the protocol itself ever waits for a replica is
//! stuck, and so is a supervisor that does not come here: then systemd hears nothing and acts.
//!
//! Not covered: whether the program does anything useful. A program that waits for ever, or loops,
//! does so with rcoe's blessing, as it would without rcoe.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::family::Family;
use crate::status::Happened;
use crate::team::{State, Team};

/// Whom to tell, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifySettings {
    /// The value of `NOTIFY_SOCKET`: a path, or a name after `@`.
    pub socket: OsString,
    /// Time within which the watchdog wants to be fed.
    pub watchdog: Option<Duration>,
}

/// Variables of systemd's that are for whoever speaks with it, which is rcoe.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The line to systemd.
#[derive(Debug)]
pub(crate) struct Notifier {
    line: Option<(UnixDatagram, SocketAddr)>,
    /// Nothing else is told before readiness.
    is_ready: bool,
    /// Time between two feedings.
    period: Option<Duration>,
    fed: Instant,
    /// For how long a process may stand still.
    allowance: Duration,
    /// By group: what it had done when it last got on, and when that was.
    marks: Vec<Option<(u64, Instant)>>,
    status: String,
}

impl Notifier {
    /// A line to whom the settings name; without any, all is silence. Also a warning.
    pub(crate) fn open(
        settings: Option<&NotifySettings>,
        allowance: Duration,
    ) -> (Self, Option<String>) {
        let line = settings
            .map(|settings| connect(&settings.socket))
            .transpose();
        let (line, warning) = match line {
            Ok(line) => (line, None),
            Err(error) => (None, Some(format!("NOTIFY_SOCKET: {error}"))),
        };
        let period = settings.and_then(|settings| settings.watchdog);
        let notifier = Self {
            line,
            is_ready: false,
            period: period.map(|period| period / 2),
            fed: Instant::now(),
            allowance,
            marks: Vec::new(),
            status: String::new(),
        };
        (notifier, warning)
    }

    /// Sends a message; one that cannot be sent at once is lost, and the next one may do.
    fn say(&self, message: &str) {
        if let Some((socket, address)) = &self.line {
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }

    /// The replicas run.
    pub(crate) fn ready(&mut self) {
        self.is_ready = true;
        self.say("READY=1");
    }

    /// The run is over.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// When to be here again.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.line.as_ref()?;
        Some(self.period?.saturating_sub(self.fed.elapsed()))
    }

    /// Tells what has changed, and feeds the watchdog if it is time and all is well.
    pub(crate) fn tick(&mut self, family: &Family, happened: &Happened, configured: usize) {
        if self.line.is_none() || !self.is_ready {
            return;
        }
        let living = family.teams.iter().flatten();
        let living = living.filter(|team| team.state == State::Living);
        let live = living.map(|team| team.members().count()).min();
        let status = format!(
            "STATUS={} of {configured} replicas, {} faults",
            live.unwrap_or(0),
            happened.faults.total()
        );
        if status != self.status {
            self.say(&status);
            self.status = status;
        }
        if self
            .period
            .is_some_and(|period| self.fed.elapsed() >= period)
        {
            self.fed = Instant::now();
            if self.all_get_on(family) {
                self.say("WATCHDOG=1");
            }
        }
    }

    fn all_get_on(&mut self, family: &Family) -> bool {
        self.marks.resize(family.teams.len(), None);
        let mut all = true;
        for (team, mark) in family.teams.iter().zip(&mut self.marks) {
            let running = |team: &&Team| team.state == State::Living && !team.is_stopped();
            let Some(team) = team.as_deref().filter(running) else {
                *mark = None;
                continue;
            };
            let done = done(team);
            match mark {
                Some((before, since)) if *before == done && !waits_outside(team) => {
                    all &= since.elapsed() <= self.allowance;
                }
                _ => *mark = Some((done, Instant::now())),
            }
        }
        all
    }
}

/// A number that changes whenever a process gets on: calls, rendezvous, and CPU time that its
/// primary spends in the program itself.
fn done(team: &Team) -> u64 {
    let Some(primary) = team.primary() else {
        return 0;
    };
    let report = team.memory.report(primary);
    // CPU time inside a call may be that of waiting.
    let in_program = report.in_call.load(Relaxed) == 0;
    let computing = team.group.cpu_time(primary).filter(|_| in_program);
    let computed = computing.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(0));
    team.done(primary).wrapping_add(computed)
}

/// Whether the primary is in the host's part of a call.
fn waits_outside(team: &Team) -> bool {
    team.primary().is_some_and(|primary| {
        let in_call = team.memory.report(primary).in_call.load(Relaxed);
        in_call != 0 && !team.memory.is_stopped(primary)
    })
}

fn connect(name: &OsString) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_a_path_and_an_abstract_name() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("notify");
        let name = format!("rcoe-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).expect("a name");
        for (listener, socket) in [
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&by_name), format!("@{name}").into()),
        ] {
            let listener = listener.expect("bound");
            let settings = NotifySettings {
                socket,
                watchdog: None,
            };
            let (mut notifier, warning) = Notifier::open(Some(&settings), Duration::ZERO);
            assert_eq!((warning, notifier.due()), (None, None));
            notifier.ready();
            let mut buffer = [0; 64];
            let got = listener.recv(&mut buffer).expect("a message");
            assert_eq!(&buffer[..got], b"READY=1");
        }
    }

    #[test]
    fn nobody_to_tell_is_silence_and_a_bad_name_a_warning() {
        let (mut notifier, warning) = Notifier::open(None, Duration::ZERO);
        notifier.ready();
        assert_eq!(warning, None);
        let settings = NotifySettings {
            socket: "x".repeat(200).into(),
            watchdog: None,
        };
        let (_, warning) = Notifier::open(Some(&settings), Duration::ZERO);
        assert!(warning.expect("a warning").contains("NOTIFY_SOCKET"));
    }
}
