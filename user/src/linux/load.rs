//! Loading: the segments of a program, and what is on its stack when it begins.
//!
//! From its lowest address on a stack holds the number of arguments, pointers to them, to the
//! environment, and pairs of words that tell of program and system; behind them is what these lead
//! to.

use linux_raw_sys::auxvec;
use linux_raw_sys::errno::{E2BIG, ENOMEM};
use rcoe_abi::bundle::{Program, Word};

use super::arch::MACHINE;
use super::given::{Given, Named};
use super::machine::{Machine, PAGE};
use super::process::{Begin, Process};
use super::space::{STACK_BYTES, STACK_TOP};
use super::{Errno, arch, code};

/// Most words of the stack below what they lead to.
const WORDS: usize = 1024;
/// Bytes that a program is given at most, so that there is room for its own.
const GIVEN: u64 = STACK_BYTES / 4;
/// Bytes of a program header.
const HEADER_BYTES: u64 = 56;
/// Parts of a second by which processes count time.
const TICKS: u64 = 100;

/// Loads a program, called so and given this, into the memory at hand, where nothing is; it is to
/// begin there.
///
/// # Errors
/// If there is not enough memory, if what it is given is too much or is not there, or if nobody can
/// make sense of it.
pub(super) fn load<M: Machine>(
    process: &mut Process<'_, M>,
    program: &Program<'_>,
    name: &[u8],
    given: Given<'_>,
) -> Result<Begin, Errno> {
    let image = code::begin(process, program)?;
    let stack = Stack::build(process, program, image.base, name, given)?;
    Ok(Begin {
        entry: image.entry,
        stack,
    })
}

/// A stack that is being built: what is led to from the top down, and the words.
struct Stack<'p, 'a, M> {
    process: &'p mut Process<'a, M>,
    top: u64,
    words: [u64; WORDS],
    count: usize,
}

impl<M: Machine> Stack<'_, '_, M> {
    /// Builds the stack; where it begins.
    fn build(
        process: &mut Process<'_, M>,
        program: &Program<'_>,
        base: u64,
        name: &[u8],
        given: Given<'_>,
    ) -> Result<u64, Errno> {
        let mut stack = Stack {
            process,
            top: STACK_TOP,
            words: [0; WORDS],
            count: 1,
        };
        let name = stack.string(name)?;
        match given {
            Given::Packed => stack.packed()?,
            Given::Named(named) => stack.named(named)?,
        }
        stack.word(0)?;
        stack.about(program, base, name)?;
        stack.finish()
    }

    /// The arguments and the environment of the bundle.
    fn packed(&mut self) -> Result<(), Errno> {
        let bundle = self.process.bundle;
        for argument in bundle.strings(Word::Arguments) {
            let place = self.string(argument)?;
            self.word(place)?;
            self.words[0] += 1;
        }
        self.word(0)?;
        for variable in bundle.strings(Word::Environment) {
            let place = self.string(variable)?;
            self.word(place)?;
        }
        Ok(())
    }

    /// What a program names that executes this one.
    fn named(&mut self, named: &Named) -> Result<(), Errno> {
        for word in named.front() {
            let place = self.string(word)?;
            self.word(place)?;
        }
        let rest = named.rest(self.process)?;
        self.copied(named, rest)?;
        if self.count == 1 {
            // A program that is given no name gets an empty one.
            let place = self.string(b"")?;
            self.word(place)?;
        }
        self.words[0] = self.count as u64 - 1;
        self.word(0)?;
        self.copied(named, named.environment)
    }

    /// Copies of the words of a list.
    fn copied(&mut self, named: &Named, list: u64) -> Result<(), Errno> {
        let mut at = list;
        while let Some(word) = named.pointer(self.process, at)? {
            let len = named.length(self.process, word)?;
            if STACK_TOP - self.top + len >= GIVEN {
                return Err(Errno(E2BIG));
            }
            let end = self.put(&[0])?;
            self.top = end - len;
            let copied = named.copy(self.process, (word, self.top), len);
            copied.map_err(|_| Errno(ENOMEM))?;
            self.word(self.top)?;
            at = at.wrapping_add(8);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        self.top -= bytes.len() as u64;
        let put = self.process.write(self.top, bytes);
        put.map_err(|_| Errno(ENOMEM))?;
        Ok(self.top)
    }

    fn string(&mut self, text: &[u8]) -> Result<u64, Errno> {
        self.put(&[0])?;
        self.put(text)
    }

    fn word(&mut self, word: u64) -> Result<(), Errno> {
        let place = self.words.get_mut(self.count);
        *place.ok_or(Errno(E2BIG))? = word;
        self.count += 1;
        Ok(())
    }

    /// The pairs of words about program and system.
    fn about(&mut self, program: &Program<'_>, base: u64, name: u64) -> Result<(), Errno> {
        let mut random = [0; 16];
        self.process.random.fill(&mut random);
        let random = self.put(&random)?;
        let platform = self.string(MACHINE)?;
        let features = arch::features(&self.process.machine);
        for (kind, value) in [
            (auxvec::AT_PHDR, program.headers),
            (auxvec::AT_PHENT, HEADER_BYTES),
            (auxvec::AT_PHNUM, program.header_count),
            (auxvec::AT_PAGESZ, PAGE),
            (auxvec::AT_BASE, base),
            (auxvec::AT_FLAGS, 0),
            (auxvec::AT_ENTRY, program.entry),
            (auxvec::AT_UID, 0),
            (auxvec::AT_EUID, 0),
            (auxvec::AT_GID, 0),
            (auxvec::AT_EGID, 0),
            (auxvec::AT_SECURE, 0),
            (auxvec::AT_CLKTCK, TICKS),
            (auxvec::AT_HWCAP, features),
            (auxvec::AT_HWCAP2, 0),
            (auxvec::AT_RANDOM, random),
            (auxvec::AT_PLATFORM, platform),
            (auxvec::AT_EXECFN, name),
            (auxvec::AT_NULL, 0),
        ] {
            self.word(kind.into())?;
            self.word(value)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<u64, Errno> {
        // A stack is aligned to sixteen bytes when a program begins.
        let start = (self.top - self.count as u64 * 8) & !15;
        let put = self.process.write_words(start, &self.words[..self.count]);
        put.map_err(|_| Errno(ENOMEM))?;
        Ok(start)
    }
}
