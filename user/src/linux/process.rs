//! A program of Linux: its memory, its files, and what else the personality knows of it.

use rcoe_abi::bundle::Bundle;

use super::files::{Files, NODES, Node};
use super::random::Random;
use super::signals::Signals;
use super::space::Space;
use super::{Errno, Machine, Sparse, load};

/// Most numbers of calls that are told of one by one.
const NUMBERS: u64 = 512;

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

/// A program of Linux on a machine.
#[derive(Debug)]
pub struct Process<'a, M> {
    pub(crate) machine: M,
    /// Pages of memory and of files.
    pub(crate) store: Sparse<'a>,
    pub(crate) space: Space,
    pub(crate) files: Files<'a>,
    pub(crate) bundle: Bundle<'a>,
    pub(crate) random: Random,
    pub(crate) signals: Signals,
    pub(crate) mask: u32,
    /// Where FS and GS lead.
    pub(crate) pointers: [u64; 2],
    /// Calls that the user was told of, one bit each.
    told: [u64; 8],
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
        let end = bundle.word(rcoe_abi::bundle::Word::End).ok_or(wrong)?;
        let random = Random::new(bundle.seed().ok_or(wrong)?);
        let files = Files::new(&mut nodes.0, bundle);
        let mut process = Self {
            machine,
            store,
            space: Space::new(end),
            files: files.ok_or("there are too many files, or a path of one is too long")?,
            bundle,
            random,
            signals: Signals::default(),
            mask: 0o022,
            pointers: [0; 2],
            told: [0; 8],
        };
        let begin = load::load(&mut process)?;
        Ok((process, begin))
    }

    /// The machine that it runs on.
    pub const fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        Space::read(&self.store, &self.machine, address, bytes)
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
        let quiet = rcoe_linux_syscalls::entry(number).is_some_and(|call| call.quiet);
        if !quiet {
            let name = rcoe_linux_syscalls::name(number);
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
        Space::grow_stack(&mut self.store, &mut self.machine, address)
    }
}
