//! The shared memory objects of a run.

use std::ffi::CString;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use rcoe_core::Outbox;
use rcoe_linux_abi::arena::{
    BOOKS_OFFSET, CLAIMS_BYTES, Claims, DOORBELL_OFFSET, Gate, LEAST_SLICE, SLICE_STRIDE,
};
use rcoe_linux_abi::{
    CONTROL_BYTES, Control, GATE_CLOSED, GATE_OPEN, GROUPS, JobState, LAYOUT_VERSION,
    NOTEBOOK_OFFSET, Notebook, OUTBOX_OFFSET, Queued, REGION_STRIDE, ReplicaState, Report,
    SIGNAL_SLOTS,
};
use rcoe_linux_sys::host::{self, Access, Bell, Inherited, SharedObject, SignalInfo};
use rustix::io::pwrite;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CpuSet, futex, sched_getaffinity};

use crate::error::{Doing, ProgramError, RunError};
use crate::limits::{Given, SHARES, space_for};
use crate::program::refused;
use crate::settings::{Places, Settings, Slice};
use crate::slices::{self, Arena};

/// The supervisor's own object and those of the replicas, with room for every group.
#[derive(Debug)]
struct Pool {
    control: SharedObject,
    /// What processes of the program share with each other: a slice for each replica.
    arena: SharedObject,
    objects: Vec<SharedObject>,
    /// Groups that there is room for.
    groups: usize,
}

/// How many groups fit under the limit on the size of files, against which shared memory counts.
fn room_for_groups() -> usize {
    let limit = getrlimit(Resource::Fsize).current;
    let stride = REGION_STRIDE as u64;
    let fitting = limit.map_or(GROUPS as u64, |bytes| bytes / stride);
    usize::try_from(fitting).map_or(GROUPS, |groups| groups.clamp(1, GROUPS))
}

/// Bytes of each slice of memory that processes share, so that all fit under the limits on files
/// and on address space with much to spare; 0 if none is worth having.
fn room_for_slice(replicas: usize) -> usize {
    let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let space = limit(Resource::As).saturating_sub(space_for(replicas)) / SHARES;
    let fitting = usize::try_from(limit(Resource::Fsize).min(space)).unwrap_or(usize::MAX);
    let all = fitting.saturating_sub(CLAIMS_BYTES);
    let slice = (all / replicas).min(SLICE_STRIDE) & !0xfff;
    if slice < LEAST_SLICE { 0 } else { slice }
}

/// Which request an answer is to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) attempt: u8,
}

/// Has a notebook begin with this head and this text. Whoever reads it meanwhile finds nothing, or
/// what does not have its digest.
pub(crate) fn fill_notebook(
    object: &SharedObject,
    offset: usize,
    [head, text]: &[&[u8]; 2],
) -> io::Result<()> {
    for (part, at) in [(text, Notebook::TEXT_OFFSET), (head, 0)] {
        let written = pwrite(object.as_fd(), part, (offset + at) as u64)?;
        if written != part.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Groups whose pages stay when they end, some dozen for each replica.
const KEPT: usize = 4;

/// One group's part of the shared objects.
#[derive(Debug)]
pub(crate) struct Memory {
    pool: Rc<Pool>,
    group: usize,
    replicas: usize,
}

impl Memory {
    /// Makes all objects and fills in what is fixed for the run.
    pub(crate) fn create(settings: &Settings, inherited: Inherited) -> Result<Self, RunError> {
        let given = Given::take(settings.replicas())?;
        let groups = room_for_groups();
        let bytes = GROUPS * CONTROL_BYTES;
        let control = SharedObject::create(c"rcoe-control", bytes, Access::ReadWrite)
            .doing("making the control memory")?;
        let slice = room_for_slice(settings.replicas());
        let bytes = CLAIMS_BYTES + settings.replicas() * slice;
        let arena = SharedObject::create(c"rcoe-arena", bytes, Access::ReadWrite)
            .doing("making the memory that processes share")?;
        let mut objects = Vec::new();
        for index in 0..settings.replicas() {
            let name = CString::new(format!("rcoe-replica-{index}")).unwrap_or_default();
            let object = SharedObject::create(&name, groups * REGION_STRIDE, Access::ReadOnly)
                .doing("making the memory of a replica")?;
            objects.push(object);
        }
        let memory = Self {
            pool: Rc::new(Pool {
                control,
                arena,
                objects,
                groups,
            }),
            group: 0,
            replicas: settings.replicas(),
        };
        memory
            .control()
            .slice_bytes
            .store(u64::try_from(slice).unwrap_or(0), Relaxed);
        memory.fill(settings, inherited)?;
        for (cells, limit) in memory.control().limits.iter().zip(given.pairs()) {
            cells[0].store(limit[0], Relaxed);
            cells[1].store(limit[1], Relaxed);
        }
        Ok(memory)
    }

    /// Groups that there is room for, the first included.
    pub(crate) fn groups(&self) -> usize {
        self.pool.groups
    }

    /// The part of a new group, with as many replicas as there are cores; all other settings are
    /// those of this group.
    pub(crate) fn for_child(&self, group: usize, serial: u32, cores: &[u32]) -> Self {
        let child = Self {
            pool: Rc::clone(&self.pool),
            group,
            replicas: cores.len(),
        };
        let (from, to) = (self.control(), child.control());
        for (from, to) in [
            (&from.version, &to.version),
            (&from.compare, &to.compare),
            (&from.strict, &to.strict),
            (&from.defer, &to.defer),
            (&from.mask, &to.mask),
            (&from.points, &to.points),
            (&from.counter, &to.counter),
            (&from.milestones, &to.milestones),
            (&from.crowded, &to.crowded),
            (&from.supervisor, &to.supervisor),
            (&from.pgid, &to.pgid),
            (&from.sid, &to.sid),
            (&from.job.terminal, &to.job.terminal),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        to.timeout_ns.store(from.timeout_ns.load(Relaxed), Relaxed);
        to.slice_ns.store(from.slice_ns.load(Relaxed), Relaxed);
        to.slice_auto.store(from.slice_auto.load(Relaxed), Relaxed);
        to.tick_ns.store(from.tick_ns.load(Relaxed), Relaxed);
        to.counter_event
            .store(from.counter_event.load(Relaxed), Relaxed);
        to.slice_bytes
            .store(from.slice_bytes.load(Relaxed), Relaxed);
        to.wall_cap_ns
            .store(from.wall_cap_ns.load(Relaxed), Relaxed);
        for (from, to) in from.affinity.iter().zip(&to.affinity) {
            to.store(from.load(Relaxed), Relaxed);
        }
        for (at, cell) in to.cores.iter().enumerate() {
            cell.store(cores.get(at).copied().unwrap_or(u32::MAX), Relaxed);
        }
        let replicas = u32::try_from(cores.len()).unwrap_or(u32::MAX);
        to.replicas.store(replicas, Relaxed);
        let reach = u32::try_from(group + 1).unwrap_or(u32::MAX);
        self.first().reach.fetch_max(reach, Release);
        to.serial.store(serial, Release);
        child
    }

    /// Gives the group's part back: it reads as zero, as a new group must find it, but for how many
    /// rings were made in pages that stay. The host may still write to rings of those who are gone,
    /// so whoever comes next has others.
    pub(crate) fn clear(&self) -> Result<(), RunError> {
        const MADE: Range<usize> = {
            let at = offset_of!(Report, journal.ring.made);
            at..at + size_of::<AtomicU32>()
        };
        let failed = "clearing the memory of a process";
        let (own, control) = (self.group * REGION_STRIDE, self.group * CONTROL_BYTES);
        // The lowest parts are the next to be used again.
        if self.group >= KEPT {
            for object in &self.pool.objects {
                object.clear(own, REGION_STRIDE).doing(failed)?;
            }
            return (self.pool.control.clear(control, CONTROL_BYTES)).doing(failed);
        }
        for object in &self.pool.objects {
            object.wipe(own, MADE.start).doing(failed)?;
            let rest = REGION_STRIDE - MADE.end;
            object.wipe(own + MADE.end, rest).doing(failed)?;
        }
        (self.pool.control.wipe(control, CONTROL_BYTES)).doing(failed)
    }

    fn fill(&self, settings: &Settings, inherited: Inherited) -> Result<(), RunError> {
        let control = self.control();
        let replicas = u32::try_from(settings.replicas()).unwrap_or(u32::MAX);
        control.replicas.store(replicas, Relaxed);
        control.compare.store(settings.compare.word(), Relaxed);
        control.clock.store(settings.clock.word(), Relaxed);
        control.strict.store(settings.strict.into(), Relaxed);
        control.defer.store(settings.defer.into(), Relaxed);
        control.mask.store(settings.mask.into(), Relaxed);
        control.finds.store(settings.finds().into(), Relaxed);
        control.points.store(settings.points().into(), Relaxed);
        control
            .gate
            .store(settings.gdb.map_or(0, |_| GATE_CLOSED), Relaxed);
        let (slice, auto) = match settings.slice {
            Slice::Off => (0, false),
            Slice::Least(time) => (nanoseconds(time), true),
            Slice::Always(time) => (nanoseconds(time), false),
        };
        control.slice_ns.store(slice, Relaxed);
        control.slice_auto.store(auto.into(), Relaxed);
        control
            .tick_ns
            .store(settings.tick.map_or(0, nanoseconds), Relaxed);
        tell_places(control, settings);
        control.scenes.store(settings.scenes().into(), Relaxed);
        control.hold.store(settings.dumps.is_some().into(), Relaxed);
        control.seed.store(settings.seed, Relaxed);
        control.crowded.store(settings.is_crowded().into(), Relaxed);
        control
            .timeout_ns
            .store(nanoseconds(settings.timeout), Relaxed);
        control
            .wall_cap_ns
            .store(nanoseconds(settings.wall_cap()), Relaxed);
        for cell in &control.cores {
            cell.store(u32::MAX, Relaxed);
        }
        for (cell, &core) in control.cores.iter().zip(&settings.cores) {
            cell.store(core, Relaxed);
        }
        control.supervisor.store(std::process::id(), Relaxed);
        let own = [host::process_group(0), host::session(0)].map(Option::unwrap_or_default);
        control.pgid.store(own[0], Relaxed);
        control.sid.store(own[1], Relaxed);
        let (group, session) = (control.pgid.load(Relaxed), control.sid.load(Relaxed));
        let terminal = &control.terminals[0];
        terminal.foreground.store(group, Relaxed);
        let device = controlling_terminal(std::process::id());
        if let Some(device) = device.filter(|&device| device != 0) {
            terminal.device.store(device, Relaxed);
            terminal.session.store(session, Relaxed);
            control.job.terminal.store(1, Relaxed);
        }
        control.serial.store(1, Relaxed);
        control
            .ppid
            .store(std::os::unix::process::parent_id(), Relaxed);
        control.ignored.store(inherited.ignored, Relaxed);
        control.blocked.store(inherited.blocked, Relaxed);
        let affinity = sched_getaffinity(None).doing("reading the CPU affinity")?;
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| affinity.is_set(cpu)) {
            control.affinity[cpu / 64].fetch_or(1 << (cpu % 64), Relaxed);
        }
        store_path(&settings.program.exe, &control.exe, &control.exe_len)?;
        store_path(&settings.program.path, &control.execfn, &control.execfn_len)?;
        control.version.store(LAYOUT_VERSION, Release);
        Ok(())
    }

    /// The group's number.
    pub(crate) const fn group(&self) -> usize {
        self.group
    }

    /// The supervisor's words.
    pub(crate) fn control(&self) -> &Control {
        self.pool.control.view(self.group * CONTROL_BYTES)
    }

    /// Its words for the first group, and for all of them.
    fn first(&self) -> &Control {
        self.pool.control.view(0)
    }

    /// Binds replica `index` to another CPU from its birth, or its rebirth, on.
    pub(crate) fn set_core(&self, index: usize, core: u32) {
        self.control().cores[index].store(core, Relaxed);
    }

    /// The facts that replica `index` tells.
    pub(crate) fn report(&self, index: usize) -> &Report {
        self.pool.objects[index].view(self.group * REGION_STRIDE)
    }

    /// What replica `index` publishes for the protocol.
    pub(crate) fn outbox(&self, index: usize) -> &Outbox {
        self.pool.objects[index].view(self.group * REGION_STRIDE + OUTBOX_OFFSET)
    }

    /// What replicas of each number have found in files.
    pub(crate) fn notebooks(&self) -> impl Iterator<Item = &Notebook> {
        let objects = self.pool.objects.iter();
        objects.map(|object| object.view(NOTEBOOK_OFFSET))
    }

    /// Has all notebooks begin with this head and this text.
    pub(crate) fn fill_notebooks(&self, parts: &[&[u8]; 2]) -> io::Result<()> {
        let mut objects = self.pool.objects.iter();
        objects.try_for_each(|object| fill_notebook(object, NOTEBOOK_OFFSET, parts))
    }

    /// What replica `index` says of the protocol's state.
    pub(crate) fn protocol(&self, index: usize) -> rcoe_core::diagnose::Report {
        rcoe_core::diagnose::report(self.outbox(index))
    }

    /// Bytes of a slice of the memory that processes share; 0 if there is none.
    fn slice_bytes(&self) -> u64 {
        self.control().slice_bytes.load(Relaxed)
    }

    /// The ring of claims of turns.
    pub(crate) fn claims(&self) -> &Claims {
        self.pool.arena.view(0)
    }

    /// Slices that there are.
    pub(crate) fn slices(&self) -> usize {
        if self.slice_bytes() == 0 {
            0
        } else {
            self.pool.objects.len()
        }
    }

    /// The word by which replicas call the supervisor.
    pub(crate) fn doorbell(&self) -> io::Result<Bell> {
        Bell::map(self.pool.arena.as_fd(), DOORBELL_OFFSET)
    }

    /// Whose turn it is in a slice.
    pub(crate) fn gate(&self, slice: usize) -> &Gate {
        self.pool
            .arena
            .view(slice_offset(slice, self.slice_bytes()))
    }

    /// The object in which the slices lie.
    pub(crate) fn arena(&self) -> io::Result<Arena> {
        Arena::new(self.pool.arena.as_fd(), self.slice_bytes())
    }

    /// Empties a slice that nobody uses, all but its gate.
    pub(crate) fn clear_slice(&self, slice: usize) -> io::Result<()> {
        let start = slice_offset(slice, self.slice_bytes()) + BOOKS_OFFSET;
        let end = slice_offset(slice + 1, self.slice_bytes());
        self.pool.arena.clear(start, end - start)
    }

    /// Orders something for the group to carry out at a point of its trace.
    pub(crate) fn order(&self, order: u64) {
        self.control().order.store(order, Release);
        self.ring();
    }

    /// The same of an order that comes with whatever the group publishes next: nobody is woken.
    pub(crate) fn order_quietly(&self, order: u64) {
        self.control().order.store(order, Release);
    }

    /// Number of replicas.
    pub(crate) const fn replicas(&self) -> usize {
        self.replicas
    }

    /// The descriptors in the order of the agent's first argument.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [&self.pool.control, &self.pool.arena]
            .into_iter()
            .chain(&self.pool.objects)
            .map(AsFd::as_fd)
            .collect()
    }

    /// The agent's first argument.
    pub(crate) fn descriptor_list(&self) -> String {
        let numbers = self
            .descriptors()
            .iter()
            .map(|fd| fd.as_raw_fd().to_string())
            .collect::<Vec<_>>();
        numbers.join(",")
    }

    /// Publishes what became of a replica's process.
    pub(crate) fn set_state(&self, index: usize, state: ReplicaState) {
        self.control().state[index].store(state as u32, Release);
        self.ring();
    }

    /// Whether a replica was last told to be stopped.
    pub(crate) fn is_stopped(&self, index: usize) -> bool {
        self.control().state[index].load(Relaxed) == ReplicaState::Stopped as u32
    }

    /// Appends a signal to the queue; false if it has no room before `taken` entries are more.
    pub(crate) fn push_signal(&self, signal: SignalInfo, taken: u64) -> bool {
        let control = self.control();
        let head = control.signal_head.load(Relaxed);
        if head.saturating_sub(taken) >= SIGNAL_SLOTS as u64 {
            return false;
        }
        let slot = usize::try_from(head).unwrap_or(0) % SIGNAL_SLOTS;
        let queued = Queued {
            signal: signal.number,
            code: signal.code,
            pid: signal.sender,
            uid: signal.user,
            value: signal.value,
        };
        for (cell, word) in control.signals[slot].iter().zip(queued.pack()) {
            cell.store(word, Relaxed);
        }
        control.signal_head.store(head.wrapping_add(1), Release);
        self.ring();
        true
    }

    /// Publishes that the process was stopped or continued.
    pub(crate) fn set_job(&self, state: JobState) {
        self.control().job.state.store(state.pack(), Release);
        self.ring();
    }

    /// Answers a request of the group's primary.
    pub(crate) fn answer(&self, to: u32, request: Numbered, answer: i64) {
        let control = self.control();
        let Numbered { number, attempt } = request;
        control.answer.store(answer.cast_unsigned(), Relaxed);
        control.answered_attempt.store(attempt.into(), Release);
        control.answered.store(number, Release);
        control.answered_to.store(to, Release);
        self.ring();
    }

    /// Changes a live word.
    pub(crate) fn set(&self, word: impl Fn(&Control) -> &AtomicU32, value: u32) {
        word(self.control()).store(value, Release);
        self.ring();
    }

    /// Adds to the time for which the whole group was stopped on purpose.
    pub(crate) fn add_pause(&self, pause: Duration) {
        self.control()
            .paused_ns
            .fetch_add(nanoseconds(pause), Release);
        self.ring();
    }

    /// Lets replicas enter the program that wait for a debugger.
    pub(crate) fn open_gate(&self) {
        let gate = &self.control().gate;
        gate.store(GATE_OPEN, Release);
        // As in `ring`.
        let _ = futex::wake(gate, futex::Flags::empty(), i32::MAX.cast_unsigned());
    }

    /// Wakes whoever waits for a change of a live word.
    pub(crate) fn ring(&self) {
        let bell = &self.control().bell;
        bell.fetch_add(1, Release);
        // Nobody waiting is no error, and nothing else can fail for a mapped word.
        let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX.cast_unsigned());
    }
}

/// The device number of the controlling terminal of a process of the host, as `TIOCGDEV` would tell
/// it; 0 if it has none.
pub(crate) fn controlling_terminal(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // State, parent, group and session come before it, after the name in parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let device = rest.split_ascii_whitespace().nth(4)?.parse::<i32>().ok()?;
    Some(device.cast_unsigned())
}

fn slice_offset(slice: usize, bytes: u64) -> usize {
    usize::try_from(slices::start(slice, bytes)).unwrap_or(usize::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn store_path(path: &Path, words: &[AtomicU64], length: &AtomicU32) -> Result<(), ProgramError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > words.len() * 8 {
        return Err(refused(path, "has a path that is too long"));
    }
    for (cell, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        cell.store(u64::from_le_bytes(word), Relaxed);
    }
    length.store(u32::try_from(bytes.len()).unwrap_or(0), Relaxed);
    Ok(())
}

/// What is counted between points.
fn tell_places(control: &Control, settings: &Settings) {
    let places = settings.places;
    let (kind, event) = match places {
        Places::Counter(it) => (it.kind + 1, it.event),
        Places::States | Places::Milestones => (0, 0),
    };
    control.counter.store(kind, Relaxed);
    control.counter_event.store(event, Relaxed);
    // Slices are short: there a stub at each would cost more than it tells.
    let milestones = settings.tick.is_some() && places == Places::Milestones;
    control.milestones.store(milestones.into(), Relaxed);
}
