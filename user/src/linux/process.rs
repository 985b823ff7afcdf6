//! Programs of Linux: their memory, their files, and what else the personality knows of them.

use linux_raw_sys::errno::{E2BIG, ENOMEM};
use rcoe_abi::Rights;
use rcoe_abi::bundle::{Bundle, Word};

use super::files::{FILE_NUMBERS, Files, NODES, Node};
use super::given::Given;
use super::journal::Journal;
use super::load;
use super::locks::{Locks, Owner};
use super::machine::PAGE;
use super::random::Random;
use super::rights::OnTheWay;
use super::senders::Senders;
use super::signals::Queue;
use super::sockets::{Datagrams, Socket, Sockets};
use super::space::Space;
use super::stat::SECOND;
use super::streams::{Streams, Target};
use super::tasks::{self, Each, MEMORIES, PROCESSES, Task};
use super::threads::Threads;
use super::udp::Udp;
use super::{Answer, Errno, Machine, Sparse, arch};
use crate::network::Ready;

/// Most numbers of calls that are told of one by one.
const NUMBERS: u64 = 512;

/// Calls that the process sphere carries and this one does not, and that C libraries make to see
/// whether they are there: nobody is told of them.
const PROBED: [&str; 3] = ["membarrier", "sched_getattr", "sched_setattr"];

/// Room for files.
#[derive(Debug)]
pub struct Nodes<'a>(pub(crate) [Node<'a>; NODES]);

impl Nodes<'_> {
    /// No file yet.
    #[must_use]
    pub const fn new() -> Self {
        Self([Node::FREE; NODES])
    }
}

impl Default for Nodes<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A process of Linux on a machine, with all others: whose turn it is is the one at hand.
#[derive(Debug)]
pub struct Process<'a, M> {
    pub(crate) machine: M,
    /// Pages of memory and of files.
    pub(crate) store: Sparse<'a>,
    pub(crate) space: Each<Space, MEMORIES>,
    pub(crate) task: Each<Task, PROCESSES>,
    pub(crate) files: Files<'a>,
    pub(crate) bundle: Bundle<'a>,
    pub(crate) random: Random,
    /// Signals that have come, of all processes.
    pub(crate) queue: Queue,
    pub(crate) threads: Threads,
    pub(crate) streams: Streams,
    /// Descriptors that are on their way from one process to another.
    pub(crate) rights: OnTheWay,
    pub(crate) senders: Senders,
    pub(crate) locks: Locks,
    /// Where the disk's journal stands, if there is a disk.
    pub(crate) journal: Option<Journal>,
    /// What listeners and connections have, if that was asked since anything could have changed.
    pub(crate) ready: Option<Ready>,
    /// The first process has ended, and the machine with it: the status.
    pub(crate) over: Option<u64>,
    /// Calls that the user was told of, one bit each.
    told: [u64; 8],
    /// The file whose bytes a call writes in place of those of a program, and where they begin.
    pub(crate) carried: Option<(usize, u64)>,
}

/// Where a program begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Its first instruction.
    pub entry: u64,
    /// Its stack.
    pub stack: u64,
}

impl<'a, M: Machine> Process<'a, M> {
    /// Loads the program of a bundle; it is to begin there.
    ///
    /// # Errors
    /// What there is not enough of, or what is wrong with the bundle.
    pub fn load(
        machine: M,
        store: Sparse<'a>,
        nodes: &'a mut Nodes<'a>,
        bundle: Bundle<'a>,
    ) -> Result<(Self, Begin), &'static str> {
        let wrong = "the bundle is damaged";
        let program = bundle.program(0).ok_or(wrong)?;
        let random = Random::new(bundle.seed().ok_or(wrong)?);
        let files = Files::new(&mut nodes.0, bundle);
        let mut process = Self {
            machine,
            store,
            space: Each::new([Space::new(program.end); MEMORIES]),
            task: tasks::all(),
            files: files.ok_or("there are too many files, or a path of one is too long")?,
            bundle,
            random,
            queue: Queue::default(),
            threads: Threads::new(),
            streams: Streams::new(),
            rights: OnTheWay::new(),
            senders: Senders::new(),
            locks: Locks::new(),
            journal: None,
            ready: None,
            over: None,
            told: [0; 8],
            carried: None,
        };
        let name = process.files.program();
        let full = "there is not enough memory: give it more by --memory";
        let folder = bundle.disk().ok_or(wrong)?;
        if !folder.is_empty() {
            process.mount(folder)?;
        }
        if bundle.word(Word::Input).ok_or(wrong)? != 0 {
            process.connect_input().map_err(|_| wrong)?;
        }
        let made = process.machine.make_space(0);
        made.then_some(()).ok_or(full)?;
        let begin = load::load(&mut process, &program, name.bytes(), Given::Packed);
        let begin = begin.map_err(|error| match error {
            Errno(ENOMEM) => full,
            Errno(E2BIG) => "it has too many arguments, or too much of an environment",
            _ => wrong,
        })?;
        process.task.start = begin.stack;
        process.task.name = tasks::Name::new(name.bytes());
        Ok((process, begin))
    }

    /// The machine that it runs on.
    pub const fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        Space::read(&self.store, &self.machine, address, bytes)
    }

    /// Reads as many bytes as there are in the page of an address; how many that are.
    pub(crate) fn read_some(&self, address: u64, bytes: &mut [u8]) -> usize {
        let left = usize::try_from(PAGE - address % PAGE).unwrap_or(0);
        let len = left.min(bytes.len());
        let read = self.read(address, &mut bytes[..len]);
        if read.is_ok() { len } else { 0 }
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        Space::write(&mut self.store, &mut self.machine, address, bytes)
    }

    /// Writes words, one after the other.
    pub(crate) fn write_words(&mut self, address: u64, words: &[u64]) -> Result<(), Errno> {
        for (index, word) in words.iter().enumerate() {
            let at = address.wrapping_add(8 * index as u64);
            self.write(at, &word.to_le_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn word(&self, address: u64) -> Result<u64, Errno> {
        Space::word(&self.store, &self.machine, address)
    }

    /// Tells the user once that a call is refused, unless programs probe for it and have another
    /// way.
    pub(crate) fn refuse(&mut self, number: u64) -> Errno {
        let name = arch::name_of(number);
        if !arch::is_quiet(number) && !PROBED.contains(&name) {
            let text = format_args!(
                "the system sphere does not carry the system call {name} ({number}): \
                 the program got ENOSYS"
            );
            self.tell_once(number, text);
        }
        Errno(linux_raw_sys::errno::ENOSYS)
    }

    /// Tells the user something about a call, once for each number.
    pub(crate) fn tell_once(&mut self, number: u64, text: core::fmt::Arguments<'_>) {
        let at = number.min(NUMBERS - 1);
        let (place, bit) = (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64));
        if self.told[place] & bit == 0 {
            self.told[place] |= bit;
            self.machine.note(text);
        }
    }

    /// A page fault of the program at an address: can it go on?
    pub fn page_fault(&mut self, address: u64) -> bool {
        Space::fault(&mut self.store, &mut self.machine, address)
    }

    /// Is this the program's, with such rights?
    pub(crate) fn check(&mut self, at: u64, bytes: u64, rights: Rights) -> Result<(), Errno> {
        Space::check(&mut self.store, &mut self.machine, (at, bytes), rights)
    }

    /// Nanoseconds of the host's clock when the machine began.
    pub(crate) fn began(&self) -> u64 {
        self.bundle.word(Word::Clock).unwrap_or(0)
    }

    /// A time in the program's memory, in nanoseconds.
    pub(crate) fn time_at(&self, place: u64) -> Answer {
        let (seconds, rest) = (self.word(place)?, self.word(place.wrapping_add(8))?);
        if rest >= SECOND || seconds >> 63 != 0 {
            return Err(Errno(linux_raw_sys::errno::EINVAL));
        }
        Ok(seconds.saturating_mul(SECOND).saturating_add(rest))
    }

    /// Closes a descriptor, and what it led to if it was the last one.
    pub(crate) fn close(&mut self, file: u64) -> Result<(), Errno> {
        let target = self.files.of(file)?.target;
        let closed = self.files.close(file)?;
        self.rights.closed();
        if let Target::Node(node) = target {
            let owner = Owner::Process(self.task.number);
            self.locks.forget(|it| it.node == node && it.owner == owner);
        }
        if let Some((place, target)) = closed {
            self.closed(place, target);
        }
        Ok(())
    }

    /// Nothing leads any more to what was open at this place.
    pub(crate) fn closed(&mut self, place: usize, target: Target) {
        let owners = [Owner::Open(place), Owner::Whole(place)];
        self.locks.forget(|it| owners.contains(&it.owner));
        self.streams.forget(|it| it.place == place);
        self.release(target);
    }

    /// Closes all descriptors of the process at hand.
    pub(crate) fn close_all(&mut self) {
        for file in 0..FILE_NUMBERS as u64 {
            // Most are not open.
            let _ = self.close(file);
        }
        self.tend_rights();
    }

    /// Nothing leads to this any more.
    pub(crate) fn release(&mut self, target: Target) {
        match target {
            Target::Node(node) => {
                self.give_time(node);
                let (store, machine) = (&mut self.store, &mut self.machine);
                // What is given back is a file in memory, and that is always possible.
                let _ = self.files.forget_nameless(store, machine, node);
            }
            Target::Socket(socket) => self.release_socket(socket),
            Target::Reader(_) | Target::Writer(_) | Target::Both(_)
                if self.named_pipe(target).is_some() =>
            {
                self.tend_fifos();
            }
            Target::Reader(pipe) | Target::Writer(pipe) | Target::Both(pipe) => {
                let ends = &mut self.streams.pipes[pipe];
                match target {
                    Target::Reader(_) => {
                        ends.readers = false;
                        self.rights.lose(pipe);
                        self.senders.lose(pipe);
                    }
                    _ => ends.writers = false,
                }
                if !ends.readers && !ends.writers {
                    self.empty_pipe(pipe);
                }
            }
            Target::Counter(counter) => self.streams.counters[counter].used = false,
            Target::Alarm(alarm) => {
                let alarm = &mut self.streams.alarms[alarm];
                (alarm.used, alarm.next) = (false, None);
            }
            Target::Poller(poller) => {
                self.streams.pollers[poller].used = false;
                self.streams.forget(|it| it.poller == poller);
            }
        }
    }

    fn release_socket(&mut self, socket: usize) {
        self.ready = None;
        match self.streams.sockets[socket] {
            Socket::Free | Socket::New(_) | Socket::Refused { .. } => {}
            Socket::Listens(it) => {
                if let Some(card) = it.card {
                    self.machine.unlisten(card);
                }
                while let Some(place) = self.streams.sockets.first_at(socket) {
                    self.release_socket(place);
                }
            }
            Socket::Waits { it, .. }
            | Socket::Connected(it)
            | Socket::Asks { it, .. }
            | Socket::Broken(it) => {
                self.release_link(&it);
            }
            Socket::Datagrams(Datagrams { inbox, .. }) | Socket::Udp(Udp { inbox, .. }) => {
                self.shut_udp(socket);
                self.release(Target::Reader(inbox));
                self.release(Target::Writer(inbox));
            }
        }
        self.streams.sockets[socket] = Socket::Free;
    }
}
