//! Loading: the segments of a program, and what is on its stack when it begins.
//!
//! From its lowest address on a stack holds the number of arguments, pointers to them, to the
//! environment, and pairs of words that tell of program and system; behind them is what these lead
//! to.

use linux_raw_sys::auxvec;
use rcoe_abi::Rights;
use rcoe_abi::bundle::Word;

use super::machine::{Machine, PAGE};
use super::process::{Begin, Process};
use super::space::{Range, STACK_TOP, Space};
use super::{Errno, identity};

/// The instruction that identifies the processor, and an undefined one of the same length.
const IDENTITY: [u8; 2] = [0x0f, 0xa2];
const UNDEFINED: [u8; 2] = [0x0f, 0x0b];
/// Most words of the stack below what they lead to.
const WORDS: usize = 1024;
/// Bytes of a program header.
const HEADER_BYTES: u64 = 56;
/// Parts of a second by which processes count time.
const TICKS: u64 = 100;

const DAMAGED: &str = "the bundle is damaged";
const FULL: &str = "there is not enough memory: give it more by --memory";
const MANY: &str = "it has too many arguments, or too much of an environment";

pub(super) fn load<M: Machine>(process: &mut Process<'_, M>) -> Result<Begin, &'static str> {
    for index in 0.. {
        let Some(segment) = process.bundle.segment(index) else {
            break;
        };
        let first = segment.address / PAGE * PAGE;
        let range = Range::new(first, segment.bytes + (segment.address - first));
        let range = range.map_err(|_| DAMAGED)?;
        let rights = Rights::from_word(segment.rights);
        let (store, machine) = (&mut process.store, &mut process.machine);
        Space::add(store, machine, range, rights).map_err(|_| FULL)?;
        let content = segment.content;
        Space::put(store, machine, segment.address, content, Rights::READ).map_err(|_| FULL)?;
    }
    replace(process)?;
    let entry = process.bundle.word(Word::Entry).ok_or(DAMAGED)?;
    let stack = Stack::build(process, entry).map_err(|_| MANY)?;
    Ok(Begin { entry, stack })
}

/// Puts an undefined instruction where one identifies the processor.
fn replace<M: Machine>(process: &mut Process<'_, M>) -> Result<(), &'static str> {
    for index in 0.. {
        let Some(address) = process.bundle.identity(index) else {
            break;
        };
        let mut found = [0; 2];
        process.read(address, &mut found).map_err(|_| DAMAGED)?;
        if found != IDENTITY {
            return Err(DAMAGED);
        }
        let (store, machine) = (&mut process.store, &mut process.machine);
        let put = Space::put(store, machine, address, &UNDEFINED, Rights::READ);
        put.map_err(|_| DAMAGED)?;
    }
    Ok(())
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
    fn build(process: &mut Process<'_, M>, entry: u64) -> Result<u64, Errno> {
        let bundle = process.bundle;
        let mut stack = Stack {
            process,
            top: STACK_TOP,
            words: [0; WORDS],
            count: 1,
        };
        let name = stack.process.files.program();
        let name = stack.string(name.bytes())?;
        for argument in bundle.strings(Word::Arguments) {
            let place = stack.string(argument)?;
            stack.word(place)?;
            stack.words[0] += 1;
        }
        stack.word(0)?;
        for variable in bundle.strings(Word::Environment) {
            let place = stack.string(variable)?;
            stack.word(place)?;
        }
        stack.word(0)?;
        stack.about(entry, name)?;
        stack.finish()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        self.top -= bytes.len() as u64;
        self.process.write(self.top, bytes)?;
        Ok(self.top)
    }

    fn string(&mut self, text: &[u8]) -> Result<u64, Errno> {
        self.put(&[0])?;
        self.put(text)
    }

    fn word(&mut self, word: u64) -> Result<(), Errno> {
        let place = self.words.get_mut(self.count);
        *place.ok_or(Errno(linux_raw_sys::errno::E2BIG))? = word;
        self.count += 1;
        Ok(())
    }

    /// The pairs of words about program and system.
    fn about(&mut self, entry: u64, name: u64) -> Result<(), Errno> {
        let mut random = [0; 16];
        self.process.random.fill(&mut random);
        let random = self.put(&random)?;
        let platform = self.string(b"x86_64")?;
        let [_, _, _, features] = identity::of(&self.process.machine, 1, 0);
        let bundle = self.process.bundle;
        let header = |word| bundle.word(word).unwrap_or(0);
        for (kind, value) in [
            (auxvec::AT_PHDR, header(Word::Headers)),
            (auxvec::AT_PHENT, HEADER_BYTES),
            (auxvec::AT_PHNUM, header(Word::HeaderCount)),
            (auxvec::AT_PAGESZ, PAGE),
            (auxvec::AT_BASE, 0),
            (auxvec::AT_FLAGS, 0),
            (auxvec::AT_ENTRY, entry),
            (auxvec::AT_UID, 0),
            (auxvec::AT_EUID, 0),
            (auxvec::AT_GID, 0),
            (auxvec::AT_EGID, 0),
            (auxvec::AT_SECURE, 0),
            (auxvec::AT_CLKTCK, TICKS),
            (auxvec::AT_HWCAP, features.into()),
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
        self.process.write_words(start, &self.words[..self.count])?;
        Ok(start)
    }
}
