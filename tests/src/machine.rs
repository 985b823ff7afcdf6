//! The memory of whole systems in QEMU, reached from outside while they run, and what is expected
//! of the program `sleep`.
//!
//! Not covered: registers and exact moments, which the fault lab reaches by a debugger.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::process::Signal;
use serde_json::Value;

use crate::launch::{self, Outcome};
use crate::rcoe::{LIMIT, Scene, events_of, until};
use crate::system::words;

/// Bytes of a partition of the machine, and where the first one begins.
const PARTITION: usize = 32 << 20;
const FIRST: usize = 16 << 20;
/// Where in a partition object memory begins.
pub const OBJECTS: usize = 4 << 20;
/// Where in a partition the kernel's page tables begin, up to object memory.
pub const TABLES: usize = 2 << 20;
/// Where in object memory the root task's capabilities begin: at the first multiple of 512 KiB
/// behind the boot image.
pub const CAPABILITIES: usize = 1 << 20;

/// A running system whose memory can be reached.
#[derive(Debug)]
pub struct Reached {
    /// Its folder.
    pub scene: Scene,
    /// Its rcoe.
    pub running: launch::Running,
    /// Bytes of a partition.
    partition: usize,
}

impl Reached {
    /// Starts a program and waits for its first output.
    pub fn start(options: &[&str], command: &[&str]) -> Self {
        Self::begin(Scene::new(), PARTITION, options, command)
    }

    /// As [`Self::start`], with replicas of so many megabytes, in a scene in which the program is.
    pub fn start_sized(scene: Scene, megabytes: usize, options: &[&str], command: &[&str]) -> Self {
        let memory = format!("{megabytes}M");
        let options = [&["--memory", &memory], options].concat();
        Self::begin(scene, megabytes << 20, &options, command)
    }

    fn begin(scene: Scene, partition: usize, options: &[&str], command: &[&str]) -> Self {
        let memory = ["--memory-file", "memory", "--events", "e"];
        let words = words(&[&memory, options].concat(), command);
        let running = launch::start(&words, scene.path(), None).unwrap();
        until("the first output", || {
            running
                .stdout_so_far()
                .unwrap()
                .contains('\n')
                .then_some(())
        });
        Self {
            scene,
            running,
            partition,
        }
    }

    /// Stops the emulator, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        let rcoe = self.running.pid();
        let children = format!("/proc/{rcoe}/task/{rcoe}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        for pid in children.split_whitespace() {
            let _ = launch::signal(pid.parse().unwrap(), signal);
        }
    }

    /// Changes bytes of a replica's partition, from `offset` on, by `change`, while the machine
    /// stands still.
    pub fn change(&self, replica: usize, offset: usize, len: usize, change: impl Fn(&mut [u8])) {
        self.signal(Signal::STOP);
        self.change_live(replica, offset, len, change);
        self.signal(Signal::CONT);
    }

    pub fn change_live(
        &self,
        replica: usize,
        offset: usize,
        len: usize,
        change: impl Fn(&mut [u8]),
    ) {
        let path = self.scene.path().join("memory");
        let file = File::options().read(true).write(true).open(path).unwrap();
        let at = u64::try_from(FIRST + replica * self.partition + offset).unwrap();
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).unwrap();
        let before = bytes.clone();
        change(&mut bytes);
        // Nothing but that: the machine may not stand still yet, and all else would be set back.
        let differs = |index: &usize| before[*index] != bytes[*index];
        let mut next = 0;
        while let Some(first) = (next..len).find(differs) {
            next = (first..len).find(|index| !differs(index)).unwrap_or(len);
            let place = at + u64::try_from(first).unwrap();
            file.write_all_at(&bytes[first..next], place).unwrap();
        }
    }

    /// Flips a bit of every copy of a text that a replica has, outside of its kernel.
    pub fn flip(&self, replica: usize, text: &[u8]) {
        self.change(replica, OBJECTS, self.partition - OBJECTS, |bytes| {
            flip_text(bytes, text);
        });
    }

    /// How many replicas have been brought back so far.
    #[must_use]
    pub fn brought_back(&self) -> usize {
        let events = events_of(&self.scene.path().join("e"));
        let back = events.iter().filter(|event| event["stage"] == "done");
        back.count()
    }

    /// A byte of a replica's partition.
    ///
    /// # Panics
    /// If the memory cannot be read.
    #[must_use]
    pub fn byte(&self, replica: usize, offset: usize) -> u8 {
        let path = self.scene.path().join("memory");
        let file = File::open(path).unwrap();
        let at = u64::try_from(FIRST + replica * self.partition + offset).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0]
    }

    pub fn finish(self) -> (Outcome, Vec<Value>) {
        let outcome = self.running.finish(LIMIT).unwrap();
        assert_eq!(outcome.survivors, 0, "nothing outlives rcoe");
        (outcome, events_of(&self.scene.path().join("e")))
    }
}

/// Flips a bit of every copy of a text in memory.
pub fn flip_text(bytes: &mut [u8], text: &[u8]) {
    let found: Vec<usize> = bytes
        .windows(text.len())
        .enumerate()
        .filter_map(|(at, window)| (window == text).then_some(at))
        .collect();
    assert!(!found.is_empty(), "the text is in memory");
    for at in found {
        bytes[at] ^= 1;
    }
}

/// What `sleep` prints in a hundred ticks, a second.
pub fn slept() -> String {
    (1..=10)
        .map(|tens| format!("slept {tens}0 ticks\n"))
        .collect()
}

/// Types of events, with the replica that was removed.
pub fn story(events: &[Value]) -> Vec<(String, Option<u64>)> {
    let told = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        (kind, event["removed"].as_u64())
    };
    events.iter().map(told).collect()
}

/// The replicas that were removed, one after the other.
pub fn removed(events: &[Value]) -> Vec<u64> {
    let removed = story(events).into_iter();
    removed.filter_map(|(_, removed)| removed).collect()
}
