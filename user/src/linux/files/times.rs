//! When files were changed.
//!
//! Asking for the time costs replicas a vote, so it is not asked for at each writing. A file that
//! was changed gets its time when somebody looks at that, or it is closed.

use super::{Files, Path};

impl Files<'_> {
    /// Nanoseconds of when a file was used and when it was changed, by the clock of the world.
    pub(crate) fn times(&self, node: usize) -> [u64; 2] {
        self.nodes[node].times
    }

    /// Was it changed since the time was asked for?
    pub(crate) fn is_changed(&self, node: usize) -> bool {
        self.nodes[node].changed
    }

    /// A file was changed.
    pub(super) fn touch(&mut self, node: usize) {
        self.nodes[node].changed = true;
        self.name_changed(node);
    }

    /// What is in the folder of a path was changed.
    pub(super) fn touch_parent(&mut self, path: Path) {
        if let Some(parent) = self.find(path.parent()) {
            self.touch(parent);
        }
    }

    /// Sets the times that are given.
    pub(crate) fn set_times(&mut self, node: usize, times: [Option<u64>; 2]) {
        self.name_changed(node);
        let node = &mut self.nodes[node];
        for (kept, time) in node.times.iter_mut().zip(times) {
            *kept = time.unwrap_or(*kept);
        }
        if times[1].is_some() {
            node.changed = false;
        }
    }
}
