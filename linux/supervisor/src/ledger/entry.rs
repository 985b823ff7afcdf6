//! What stands in the ledger: one JSON object a line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::events::DivergenceKind;

/// Longest text of a detail that is kept, in bytes: a line is small whatever has happened.
const DETAIL_BYTES: usize = 400;

/// How far a fault speaks against the cores it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// The faulty replica ran on this core.
    Core,
    /// One of these cores; nobody can tell which. Counts half for each.
    Shared,
    /// The cause came from outside, or the core is not known. Counts for nobody.
    Nobody,
}

/// A fault and whom it is charged to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// Seconds since 1970, UTC.
    pub time: f64,
    /// Name of the machine.
    pub host: String,
    /// How the fault was noticed.
    pub kind: DivergenceKind,
    /// The file that was run.
    pub program: String,
    /// Process id of rcoe.
    pub pid: u32,
    /// The faulty replica, if it is known.
    pub replica: Option<usize>,
    /// The core it ran on, or all that it may have been.
    pub cores: Vec<u32>,
    /// Whether that speaks against them.
    pub blame: Blame,
    /// Why it does, or why not.
    pub reason: String,
    /// What differed, in words.
    pub detail: String,
}

/// Takes back what stands before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clearing {
    /// Seconds since 1970, UTC.
    pub time: f64,
    /// Name of the machine.
    pub host: String,
    /// The core, or all of them.
    pub core: Option<u32>,
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Entry {
    /// A fault.
    Fault(Charge),
    /// Faults taken back by the user.
    Clear(Clearing),
}

impl Entry {
    /// The machine it is about.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Self::Fault(charge) => &charge.host,
            Self::Clear(clearing) => &clearing.host,
        }
    }
}

/// Seconds since 1970, to the millisecond.
#[must_use]
pub fn seconds_of(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (since.as_secs_f64() * 1e3).round() / 1e3
}

/// The name under which this machine stands in the ledger.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// As much of a text as an entry keeps.
pub(crate) fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(DETAIL_BYTES);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_a_stable_shape() {
        let entry = Entry::Fault(Charge {
            time: 1.5,
            host: "h".into(),
            kind: DivergenceKind::Mismatch,
            program: "/bin/true".into(),
            pid: 7,
            replica: Some(1),
            cores: vec![3],
            blame: Blame::Core,
            reason: "outvoted".into(),
            detail: "write".into(),
        });
        let line = serde_json::to_string(&entry).expect("json");
        assert_eq!(
            line,
            concat!(
                r#"{"type":"fault","time":1.5,"host":"h","kind":"mismatch","#,
                r#""program":"/bin/true","pid":7,"replica":1,"cores":[3],"#,
                r#""blame":"core","reason":"outvoted","detail":"write"}"#
            )
        );
        assert_eq!(serde_json::from_str::<Entry>(&line).expect("back"), entry);
    }

    #[test]
    fn long_details_are_cut_between_characters() {
        let text = "ä".repeat(DETAIL_BYTES);
        assert_eq!(shortened(&text).len(), DETAIL_BYTES);
        assert_eq!(shortened(&format!("x{text}")).len(), DETAIL_BYTES - 1);
        assert_eq!(shortened("short"), "short");
    }
}
