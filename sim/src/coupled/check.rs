//! What must hold in every state of a group that agrees on points.

use rcoe_core::ReplicaSet;
use rcoe_core::coupling::{Backend, End};

use super::fault::Fault;
use super::group::{Acted, Group};
use super::vm::{AREAS, Replica};

/// What was meant to be.
#[derive(Clone, Debug)]
pub struct Charge {
    /// A replica without fault, up to the last point that was agreed on.
    reference: Replica,
    /// The last point, as the first healthy replica came to it.
    last: Option<Acted>,
    /// Who is hit by what.
    pub struck: Option<(usize, Fault)>,
    /// The attempts that the victim had begun by then.
    pub generation: u32,
    /// The victim was replaced by a copy of a healthy replica.
    pub replaced: bool,
    /// A replica that was hit before it was copied, and its copy.
    pub copied: ReplicaSet,
}

impl Charge {
    /// For a group that starts like this.
    #[must_use]
    pub const fn new(reference: Replica) -> Self {
        Self {
            reference,
            last: None,
            struck: None,
            generation: 0,
            replaced: false,
            copied: ReplicaSet::empty(),
        }
    }

    /// Who is healthy.
    #[must_use]
    pub fn is_healthy(&self, index: usize) -> bool {
        let copied = self.copied.iter().any(|id| id.index() == index);
        let struck = self
            .struck
            .is_some_and(|(victim, fault)| victim == index && !fault.is_masked() && !self.replaced);
        !copied && !struck
    }

    /// The last point on which anybody acted.
    #[must_use]
    pub const fn last(&self) -> Option<&Acted> {
        self.last.as_ref()
    }

    /// A replica has acted on a point.
    ///
    /// # Errors
    /// It was no point of a fault-free run, or not that of the others.
    pub fn acted(&mut self, index: usize, acted: &Acted) -> Result<(), String> {
        if !self.is_healthy(index) {
            return self.victim_acted(index, acted);
        }
        match &self.last {
            Some(last) if last.point.generation >= acted.point.generation => {
                if last.point != acted.point || last.vm != acted.vm {
                    return Err(format!(
                        "false agreement: R{index} acts in another state: {:?}, {:?}",
                        acted.point, last.point
                    ));
                }
            }
            _ => {
                self.reach(acted)?;
                self.last = Some(acted.clone());
            }
        }
        Ok(())
    }

    /// One that was hit before the attempt differs in what is compared, or does not act at it.
    fn victim_acted(&self, index: usize, acted: &Acted) -> Result<(), String> {
        let before = acted.point.generation > self.generation;
        let Some(last) = self.last.as_ref().filter(|last| last.point == acted.point) else {
            return Ok(());
        };
        let written = last.dirty | acted.dirty;
        let differs = |page: &usize| last.vm.pages[*page] != acted.vm.pages[*page];
        let pages = (0..AREAS).any(|page| written & 1 << page != 0 && differs(&page));
        let same = last.vm.ip == acted.vm.ip
            && last.vm.registers == acted.vm.registers
            && last.vm.vector == acted.vm.vector
            && last.vm.trace == acted.vm.trace;
        if before && !acted.point.at_call && (pages || !same) {
            return Err(format!(
                "false agreement with R{index}, which was hit: {:?}",
                acted.point
            ));
        }
        Ok(())
    }

    /// Runs the reference to there.
    fn reach(&mut self, acted: &Acted) -> Result<(), String> {
        const STEPS: usize = 400_000;
        let reference = &mut self.reference;
        for _ in 0..STEPS {
            if reference.vm == acted.vm {
                reference.act(acted.point.generation);
                return Ok(());
            }
            if reference.at_exit() {
                break;
            }
            match reference.at_call() {
                true => reference.call(),
                false => reference.step(),
            }
        }
        Err(format!("no fault-free run comes to {:?}", acted.point))
    }

    /// Holds in every state.
    ///
    /// # Errors
    /// What does not.
    pub fn always<T: Backend>(&self, group: &Group<T>) -> Result<(), String> {
        let faultless =
            self.copied.is_empty() && self.struck.is_none_or(|(_, fault)| fault.is_masked());
        for (index, process) in group.processes.iter().enumerate() {
            let Some(end) = process.end() else {
                continue;
            };
            if faultless {
                return Err(format!("R{index} ends without a fault: {end:?}"));
            }
            // Of a replica that was hit and its copy, one alone has a vote.
            let votes = group.processes.len() - usize::from(!self.copied.is_empty());
            if self.is_healthy(index) && (votes > 2 || end == End::Convicted) {
                return Err(format!("healthy R{index} ends: {end:?}"));
            }
        }
        Ok(())
    }

    /// A replica found that these are to go.
    ///
    /// # Errors
    /// One of them is healthy.
    pub fn removed(&self, by: usize, gone: ReplicaSet) -> Result<(), String> {
        if !self.is_healthy(by) {
            return Ok(());
        }
        match gone.iter().find(|id| self.is_healthy(id.index())) {
            None => Ok(()),
            Some(id) => Err(format!("healthy {id} is removed")),
        }
    }
}
