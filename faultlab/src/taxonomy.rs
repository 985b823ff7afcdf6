//! What became of an injection: exactly one verdict each.

use serde::{Deserialize, Serialize};

use crate::child::{Exit, Finished};

/// rcoe's exit status after a detected fault.
pub const FAIL_STOP: i32 = 86;
/// rcoe's exit status for a failure of its own.
pub const RCOE_FAILURE: i32 = 125;

/// Outcome of one injection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Right output, right status, nothing noticed.
    Masked,
    /// A fault was detected, the faulty replica removed, and output and status are right.
    Corrected(String),
    /// The same, but the replica did not come back in time: the others serve on without it.
    Unreturned(String),
    /// A fault was detected and the run stopped with no wrong byte out.
    FailStop(String),
    /// Wrong output with the right status: silent data corruption.
    Sdc,
    /// The run stopped for a detected fault, but wrong output had left before.
    Leak,
    /// The run ended otherwise than it should, with no fault detected.
    Crash,
    /// The run did not end within the outer deadline.
    Hang,
    /// A fault was detected although no bit had been flipped.
    FalseAlarm,
    /// rcoe itself failed (status 125).
    RcoeFailure,
    /// No bit was flipped, in spite of several attempts.
    NotApplied,
}

impl Verdict {
    /// The word used in reports.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Masked => "masked".into(),
            Self::Corrected(kind) => format!("detected, corrected ({kind})"),
            Self::Unreturned(kind) => format!("detected, masked, not back ({kind})"),
            Self::FailStop(kind) => format!("detected, fail-stop ({kind})"),
            Self::Sdc => "silent data corruption".into(),
            Self::Leak => "fail-stop after wrong output".into(),
            Self::Crash => "crash".into(),
            Self::Hang => "hang".into(),
            Self::FalseAlarm => "false alarm".into(),
            Self::RcoeFailure => "rcoe's own failure".into(),
            Self::NotApplied => "not applied".into(),
        }
    }

    /// Whether the flip showed at all: what the share per observed error is taken of.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Masked | Self::NotApplied | Self::FalseAlarm)
    }

    /// Whether a protected run may never end like this.
    #[must_use]
    pub fn is_uncontrolled(&self) -> bool {
        !matches!(
            self,
            Self::Masked
                | Self::NotApplied
                | Self::Corrected(_)
                | Self::Unreturned(_)
                | Self::FailStop(_)
        )
    }

    /// Whether a replica is still missing for which others serve on.
    #[must_use]
    pub fn is_unreturned(&self) -> bool {
        matches!(self, Self::Unreturned(_))
    }
}

/// What a run without faults does.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Status.
    pub exit: Exit,
    /// Output.
    pub stdout: Vec<u8>,
}

/// The verdict on a run with `replicas` replicas (0 for bare) in which a flip was `applied` or not.
#[must_use]
pub fn classify(replicas: usize, applied: bool, expected: &Expected, run: &Finished) -> Verdict {
    let Some(exit) = run.exit else {
        return Verdict::Hang;
    };
    let right = exit == expected.exit && run.stdout == expected.stdout;
    let noticed = !run.events.divergences.is_empty() || exit == Exit::Code(FAIL_STOP);
    if !applied && replicas > 0 && noticed {
        return Verdict::FalseAlarm;
    }
    if !applied && right {
        return Verdict::NotApplied;
    }
    let kind = || {
        let first = run.events.divergences.first();
        first.map_or_else(
            || "unreported".to_owned(),
            |divergence| divergence.kind.clone(),
        )
    };
    match exit {
        _ if right && noticed => Verdict::Corrected(kind()),
        _ if right => Verdict::Masked,
        Exit::Code(FAIL_STOP) if replicas > 1 => {
            if expected.stdout.starts_with(&run.stdout) {
                Verdict::FailStop(kind())
            } else {
                Verdict::Leak
            }
        }
        Exit::Code(RCOE_FAILURE) if replicas > 0 => Verdict::RcoeFailure,
        _ if exit == expected.exit => Verdict::Sdc,
        _ => Verdict::Crash,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Expected, FAIL_STOP, RCOE_FAILURE, Verdict, classify};
    use crate::child::{Exit, Finished};
    use crate::events::{Divergence, Events};

    fn expected() -> Expected {
        Expected {
            exit: Exit::Code(0),
            stdout: b"right\n".to_vec(),
        }
    }

    fn run(exit: Option<Exit>, stdout: &str, kind: Option<&str>) -> Finished {
        let divergence = |kind: &str| Divergence {
            kind: kind.to_owned(),
            at: None,
            replica: Some(1),
            core: None,
            detail: String::new(),
        };
        Finished {
            exit,
            stdout: stdout.into(),
            stderr: String::new(),
            events: Events {
                divergences: kind.map(divergence).into_iter().collect(),
                ..Events::default()
            },
            wall: Duration::ZERO,
            clock: None,
            leftovers: 0,
        }
    }

    fn verdict(replicas: usize, code: i32, stdout: &str, kind: Option<&str>) -> Verdict {
        classify(
            replicas,
            true,
            &expected(),
            &run(Some(Exit::Code(code)), stdout, kind),
        )
    }

    #[test]
    fn protected_runs() {
        assert_eq!(verdict(2, 0, "right\n", None), Verdict::Masked);
        assert_eq!(
            verdict(3, 0, "right\n", Some("timeout")),
            Verdict::Corrected("timeout".into())
        );
        assert_eq!(
            verdict(2, FAIL_STOP, "", Some("fault")),
            Verdict::FailStop("fault".into())
        );
        assert_eq!(
            verdict(2, FAIL_STOP, "rig", None),
            Verdict::FailStop("unreported".into())
        );
        assert_eq!(
            verdict(2, FAIL_STOP, "rot", Some("mismatch")),
            Verdict::Leak
        );
        assert_eq!(
            verdict(2, FAIL_STOP, "right\nand more", Some("mismatch")),
            Verdict::Leak
        );
        assert_eq!(verdict(2, 0, "wrong\n", None), Verdict::Sdc);
        assert_eq!(verdict(2, 0, "", None), Verdict::Sdc);
        assert_eq!(verdict(2, RCOE_FAILURE, "", None), Verdict::RcoeFailure);
        assert_eq!(verdict(2, 1, "", None), Verdict::Crash);
    }

    #[test]
    fn bare_runs() {
        assert_eq!(verdict(0, 0, "right\n", None), Verdict::Masked);
        assert_eq!(verdict(0, 0, "wrong\n", None), Verdict::Sdc);
        assert_eq!(verdict(0, FAIL_STOP, "", None), Verdict::Crash);
        let killed = run(Some(Exit::Signal(11)), "", None);
        assert_eq!(classify(0, true, &expected(), &killed), Verdict::Crash);
    }

    #[test]
    fn a_hang_is_a_hang_whatever_came_out() {
        assert_eq!(
            classify(2, true, &expected(), &run(None, "right\n", None)),
            Verdict::Hang
        );
    }

    #[test]
    fn without_a_flip_every_detection_is_a_false_alarm() {
        let alarm = run(Some(Exit::Code(FAIL_STOP)), "", Some("timeout"));
        assert_eq!(classify(2, false, &expected(), &alarm), Verdict::FalseAlarm);
        let fine = run(Some(Exit::Code(0)), "right\n", None);
        assert_eq!(classify(2, false, &expected(), &fine), Verdict::NotApplied);
        let wrong = run(Some(Exit::Code(0)), "wrong\n", None);
        assert_eq!(classify(2, false, &expected(), &wrong), Verdict::Sdc);
    }

    #[test]
    fn verdicts_survive_the_journal() {
        for verdict in [
            Verdict::Masked,
            Verdict::Corrected("death".into()),
            Verdict::RcoeFailure,
        ] {
            let text = serde_json::to_string(&verdict).expect("serialises");
            assert_eq!(
                serde_json::from_str::<Verdict>(&text).expect("parses"),
                verdict
            );
        }
    }

    #[test]
    fn only_detections_and_masks_are_controlled() {
        assert!(!Verdict::FailStop("timeout".into()).is_uncontrolled());
        for verdict in [Verdict::Sdc, Verdict::Leak, Verdict::Crash, Verdict::Hang] {
            assert!(verdict.is_uncontrolled() && verdict.is_error());
        }
    }
}
