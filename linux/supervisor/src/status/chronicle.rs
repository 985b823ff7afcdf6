//! What has happened lately in a run, for those who ask: the observer is told through here.

use std::collections::VecDeque;
use std::time::Instant;

use super::snapshot::Happening;
use crate::events::{Event, Observer, Reintegrated};

/// Happenings that are kept; older ones are forgotten.
const MOST: usize = 64;

/// Hands everything on to an observer and keeps what is of interest for longer.
pub(crate) struct Chronicle<'a> {
    observer: &'a mut dyn Observer,
    start: Instant,
    recent: VecDeque<Happening>,
}

impl<'a> Chronicle<'a> {
    /// Of a run that begins now.
    pub(crate) fn new(observer: &'a mut dyn Observer) -> Self {
        Self {
            observer,
            start: Instant::now(),
            recent: VecDeque::new(),
        }
    }

    /// The last happenings, in order.
    pub(crate) fn recent(&self) -> Vec<Happening> {
        self.recent.iter().cloned().collect()
    }
}

impl Observer for Chronicle<'_> {
    fn event(&mut self, event: &Event) {
        if let Some(happening) = happening(event) {
            if self.recent.len() == MOST {
                self.recent.pop_front();
            }
            self.recent.push_back(Happening {
                t: self.start.elapsed().as_secs_f64(),
                ..happening
            });
        }
        self.observer.event(event);
    }

    fn warning(&mut self, text: &str) {
        self.observer.warning(text);
    }

    fn error(&mut self, text: &str) {
        self.observer.error(text);
    }
}

/// The event in a line, if it is of interest for longer; without its time.
fn happening(event: &Event) -> Option<Happening> {
    let (what, process, replica, core, detail) = match event {
        Event::Divergence {
            process,
            kind,
            replica,
            core,
            detail,
            ..
        } => (kind.name(), process, *replica, *core, detail.clone()),
        Event::Downgrade {
            process,
            removed,
            left,
            ..
        } => {
            let detail = format!("removed; going on with {left}");
            ("removal", process, Some(*removed), None, detail)
        }
        Event::Takeover { process, from, to } => {
            let detail = format!("replica {to} is the primary after {from}");
            ("takeover", process, Some(*to), None, detail)
        }
        Event::Reintegration {
            process,
            replica,
            what: Reintegrated::Done { core, .. },
            ..
        } => {
            let detail = "back as a copy of another".to_owned();
            ("return", process, Some(*replica), Some(*core), detail)
        }
        Event::Scrub {
            process,
            replica,
            address,
            repaired,
        } => {
            let outcome = if *repaired {
                "repaired"
            } else {
                "not repaired"
            };
            let detail = format!("memory at {address:#x} differed: {outcome}");
            ("scrub", process, *replica, None, detail)
        }
        Event::Relocation {
            process,
            replica,
            from,
            to,
        } => {
            let detail = format!("from core {from}, which is suspect");
            ("relocation", process, Some(*replica), Some(*to), detail)
        }
        _ => return None,
    };
    Some(Happening {
        t: 0.0,
        what: what.to_owned(),
        process: *process,
        replica,
        core,
        detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it is told.
    #[derive(Default)]
    struct Counter(usize);

    impl Observer for Counter {
        fn event(&mut self, _: &Event) {
            self.0 += 1;
        }
        fn warning(&mut self, _: &str) {}
        fn error(&mut self, _: &str) {}
    }

    #[test]
    fn the_last_happenings_are_kept_and_all_events_handed_on() {
        let mut counter = Counter::default();
        let mut chronicle = Chronicle::new(&mut counter);
        for process in 0..100 {
            chronicle.event(&Event::Takeover {
                process,
                from: 0,
                to: 1,
            });
            chronicle.event(&Event::Recovery {
                process,
                removed: 0,
                us: 1,
            });
        }
        let recent = chronicle.recent();
        assert_eq!(recent.len(), MOST);
        assert_eq!((recent[0].process, recent[MOST - 1].process), (36, 99));
        assert!(recent.iter().all(|it| it.what == "takeover"));
        assert!(recent.is_sorted_by(|a, b| a.t <= b.t));
        assert_eq!(counter.0, 200);
    }
}
