//! What is told of a run, one JSON object a line.

use serde::{Deserialize, Serialize};

use crate::scene::{Mapping, Seen};

/// What readers of events must know to understand them. It grows when something is told in another
/// way, and not when something is added.
pub const SCHEMA: u32 = 1;

/// One replica, as told at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaInfo {
    /// Its number.
    pub id: usize,
    /// Its process.
    pub pid: u32,
    /// The CPU it is bound to.
    pub core: u32,
}

/// How a divergence was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DivergenceKind {
    /// Signatures differ.
    Mismatch,
    /// A replica did not come in time.
    Timeout,
    /// A processor exception or an agent failure in one replica only.
    Fault,
    /// A replica's process ended.
    Death,
}

impl DivergenceKind {
    /// The word used in messages and in the events file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mismatch => "mismatch",
            Self::Timeout => "timeout",
            Self::Fault => "fault",
            Self::Death => "death",
        }
    }
}

/// Totals of a run, told at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// System calls and trapped instructions of the primary.
    pub calls: u64,
    /// Rendezvous of the primary.
    pub rendezvous: u64,
    /// Bytes of output content voted by the primary.
    pub bytes_voted: u64,
    /// Divergences found.
    pub divergences: u64,
    /// Replicas removed.
    pub downgrades: u64,
    /// Replicas brought back.
    pub reintegrations: u64,
    /// Pages repaired.
    pub repairs: u64,
    /// Replicas alive at the end.
    pub replicas: usize,
    /// Nanoseconds for which votes that removed replicas held up the primary, in all, their waits
    /// for those that did not come included.
    pub removals_ns: u64,
    /// Removed replicas that were the primary.
    pub takeovers: u64,
    /// Microseconds of the longest removal, as `recovery` tells them.
    pub longest_removal_us: u64,
    /// Microseconds of the longest re-integration from beginning to end.
    pub longest_reintegration_us: u64,
    /// Most microseconds for which a re-integration has kept a primary from the program.
    pub longest_pause_us: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Event {
    /// All replicas live.
    Start {
        /// [`SCHEMA`].
        schema: u32,
        /// Version of rcoe.
        version: &'static str,
        /// The file that is run.
        program: String,
        /// What the interleaving of its threads follows from.
        seed: u64,
        /// The replicas.
        replicas: Vec<ReplicaInfo>,
        /// CPUs that were not used because the ledger of cores suspects them.
        avoided: Vec<u32>,
    },
    /// The replicas differ.
    Divergence {
        /// The process, as the program knows it.
        process: u32,
        /// How that was noticed.
        kind: DivergenceKind,
        /// The faulty replica, if it is known.
        replica: Option<usize>,
        /// The CPU it ran on.
        core: Option<u32>,
        /// The number of the event in the trace, if it is known.
        event: Option<u64>,
        /// What differed, in words.
        detail: String,
    },
    /// Where the program stood in each replica when they were found to differ.
    Scene {
        /// The process, as the program knows it.
        process: u32,
        /// The number of the event in the trace, if it is known.
        event: Option<u64>,
        /// What is known of each replica.
        replicas: Vec<Seen>,
        /// The code that is mapped in all of them.
        mappings: Vec<Mapping>,
    },
    /// A core file was written.
    Core {
        /// The process, as the program knows it.
        process: u32,
        /// Whose it is.
        replica: usize,
        /// The file.
        file: String,
        /// Bytes of memory that had no room in it.
        left_out: u64,
    },
    /// The group goes on without a replica.
    Downgrade {
        /// The process, as the program knows it.
        process: u32,
        /// The replica that was removed.
        removed: usize,
        /// The primary from now on.
        primary: usize,
        /// Replicas that are left.
        left: usize,
    },
    /// The replica that was removed was the primary: another one carries out the effects.
    Takeover {
        /// The process, as the program knows it.
        process: u32,
        /// The primary until now.
        from: usize,
        /// The primary from now on.
        to: usize,
    },
    /// A removed replica is gone, and the others are told.
    Recovery {
        /// The process, as the program knows it.
        process: u32,
        /// The replica that was removed.
        removed: usize,
        /// Microseconds from the moment when the supervisor was woken by the fault.
        us: u64,
    },
    /// Metrics can be had.
    Metrics {
        /// Where: `http://ADDRESS:PORT/metrics` or `unix:PATH`.
        address: String,
    },
    /// A debugger is waited for.
    Debugger {
        /// Where: `127.0.0.1:PORT`.
        address: String,
    },
    /// A lost replica is being brought back.
    Reintegration {
        /// Which one.
        replica: usize,
        /// The member that is copied.
        donor: usize,
        /// The process of the program, as the program knows it.
        process: u32,
        /// How far it is.
        #[serde(flatten)]
        what: Reintegrated,
    },
    /// A page of a replica is not what most have.
    Scrub {
        /// The process, as the program knows it.
        process: u32,
        /// Whose page it is; `None` if no majority has the same.
        replica: Option<usize>,
        /// The first byte that was not; of a page that nobody could repair its first byte.
        address: u64,
        /// Whether it is right again.
        repaired: bool,
    },
    /// A replica leaves a CPU that the ledger of cores has come to suspect.
    Relocation {
        /// The process, as the program knows it.
        process: u32,
        /// The replica that moves.
        replica: usize,
        /// The CPU it was bound to.
        from: u32,
        /// The CPU it is bound to from now on.
        to: u32,
    },
    /// The run is over.
    Stop {
        /// Exit status of rcoe.
        status: u8,
        /// Why it ended.
        reason: String,
        /// Totals.
        counts: Counts,
    },
}

impl Event {
    /// What of it the user is told.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (replica, what) = match self {
            Self::Reintegration { replica, what, .. } => (replica, what),
            Self::Scrub {
                process,
                address,
                repaired: false,
                ..
            } => {
                let what = "the replicas' memory differs and cannot be repaired";
                return Some(format!("process {process}: {what}, at {address:#x}"));
            }
            _ => return None,
        };
        match what {
            Reintegrated::Done { .. } => Some(format!("replica {replica} is back")),
            Reintegrated::Abandoned {
                reason, news: true, ..
            } => Some(format!(
                "replica {replica} cannot be brought back yet: {reason}"
            )),
            _ => None,
        }
    }
}

/// How far a re-integration is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum Reintegrated {
    /// A copy was ordered.
    Begun,
    /// The copy is there, and follows the group.
    Copied {
        /// Its process.
        pid: u32,
    },
    /// The copy is what the other members have.
    Verified {
        /// Pages compared.
        pages: u64,
        /// Microseconds that the comparison took, while the program went on.
        us: u64,
    },
    /// The copy is a member.
    Done {
        /// Its process.
        pid: u32,
        /// The CPU it is bound to.
        core: u32,
        /// Microseconds for which the primary was kept from the program, copy and admission
        /// together.
        pause_us: u64,
        /// Microseconds from beginning to end.
        us: u64,
    },
    /// Nothing came of it.
    Abandoned {
        /// Why.
        reason: String,
        /// Whether it will be tried again.
        again: bool,
        /// Whether the user has to know.
        #[serde(skip)]
        news: bool,
    },
}

/// An event with its time.
#[derive(Clone, Debug, Serialize)]
pub struct Stamped<'a> {
    /// Seconds since the start of the run, on a monotonic clock.
    pub t: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: &'a Event,
}

/// Who is told about a run while it runs.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event);
    /// The user should know this; one line, without prefix.
    fn warning(&mut self, text: &str);
    /// Something went wrong; one line, without prefix.
    fn error(&mut self, text: &str);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_a_stable_shape() {
        let event = Event::Divergence {
            process: 9,
            kind: DivergenceKind::Mismatch,
            replica: Some(1),
            core: Some(3),
            event: Some(17),
            detail: "write".into(),
        };
        let line = serde_json::to_string(&Stamped {
            t: 0.5,
            event: &event,
        })
        .expect("json");
        assert_eq!(
            line,
            concat!(
                r#"{"t":0.5,"type":"divergence","process":9,"kind":"mismatch","#,
                r#""replica":1,"core":3,"event":17,"detail":"write"}"#
            )
        );
    }

    #[test]
    fn start_and_end_have_a_stable_shape() {
        let event = Event::Start {
            schema: SCHEMA,
            version: "1",
            program: "/bin/true".into(),
            seed: 7,
            replicas: vec![ReplicaInfo {
                id: 0,
                pid: 2,
                core: 1,
            }],
            avoided: vec![3],
        };
        let line = serde_json::to_string(&Stamped {
            t: 0.0,
            event: &event,
        })
        .expect("json");
        assert_eq!(
            line,
            concat!(
                r#"{"t":0.0,"type":"start","schema":1,"version":"1","#,
                r#""program":"/bin/true","seed":7,"#,
                r#""replicas":[{"id":0,"pid":2,"core":1}],"avoided":[3]}"#
            )
        );
        let event = Event::Downgrade {
            process: 9,
            removed: 0,
            primary: 1,
            left: 2,
        };
        let line = serde_json::to_string(&Stamped {
            t: 1.0,
            event: &event,
        })
        .expect("json");
        assert_eq!(
            line,
            r#"{"t":1.0,"type":"downgrade","process":9,"removed":0,"primary":1,"left":2}"#
        );
        let event = Event::Stop {
            status: 86,
            reason: "r".into(),
            counts: Counts::default(),
        };
        let line = serde_json::to_string(&Stamped {
            t: 1.0,
            event: &event,
        })
        .expect("json");
        assert!(line.starts_with(r#"{"t":1.0,"type":"stop","status":86,"reason":"r","counts":{"#));
    }
}
