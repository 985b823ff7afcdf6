//! What a program is given by the one that executes it: its arguments and its environment.
//!
//! The words lie in the memory of the program that makes the call, and are copied from there when
//! the stack of the new one is built. A script puts words of its own in front of the arguments.

use linux_raw_sys::errno::{E2BIG, EFAULT, ELOOP};

use super::calls::Text;
use super::{Errno, Machine, Process};

/// Words that scripts put in front: two for each, and the first one's name.
const FRONT: usize = 2 * SCRIPTS + 1;
/// Most scripts that are interpreted by one another.
const SCRIPTS: usize = 4;
/// Longest word.
const LONGEST: u64 = 128 << 10;
/// Bytes that are copied at once.
const PORTION: usize = 256;

/// What a program is given.
#[derive(Clone, Copy)]
pub(super) enum Given<'g> {
    /// What the bundle says.
    Packed,
    /// What a program says that executes it.
    Named(&'g Named),
}

/// Words in a memory, with others in front of the first list.
pub(super) struct Named {
    memory: usize,
    pub(super) arguments: u64,
    pub(super) environment: u64,
    /// The words in front, the last one first: they stand in place of the first argument.
    front: [Text; FRONT],
    count: usize,
}

impl Named {
    /// The words that two lists lead to in a memory; one at 0 has none.
    pub(super) fn new(memory: usize, arguments: u64, environment: u64) -> Self {
        Self {
            memory,
            arguments,
            environment,
            front: core::array::from_fn(|_| Text::EMPTY),
            count: 0,
        }
    }

    /// The words are given to the interpreter of a script, of that name, whose own words these
    /// are: the interpreter and at most one for it.
    ///
    /// # Errors
    /// If there were too many scripts before it, or a word is too long.
    pub(super) fn interpret(&mut self, name: &[u8], own: [&[u8]; 2]) -> Result<(), Errno> {
        if self.count == 0 {
            self.push(name)?;
        }
        let [interpreter, word] = own;
        if !word.is_empty() {
            self.push(word)?;
        }
        self.push(interpreter)
    }

    fn push(&mut self, word: &[u8]) -> Result<(), Errno> {
        let place = self.front.get_mut(self.count).ok_or(Errno(ELOOP))?;
        *place = Text::new(word)?;
        self.count += 1;
        Ok(())
    }

    /// The words in front, in their order.
    pub(super) fn front(&self) -> impl Iterator<Item = &[u8]> {
        self.front[..self.count].iter().rev().map(Text::bytes)
    }

    /// Where the rest of the arguments is named: words in front stand for the first one.
    pub(super) fn rest<M: Machine>(&self, process: &mut Process<'_, M>) -> Result<u64, Errno> {
        let has_first = self.count > 0 && self.pointer(process, self.arguments)?.is_some();
        Ok(self.arguments + if has_first { 8 } else { 0 })
    }

    /// The word that is named at this place of a list; none at its end.
    pub(super) fn pointer<M: Machine>(
        &self,
        process: &mut Process<'_, M>,
        at: u64,
    ) -> Result<Option<u64>, Errno> {
        if at == 0 {
            return Ok(None);
        }
        let word = process.within(self.memory, |it| it.word(at))?;
        Ok((word != 0).then_some(word))
    }

    /// Bytes of the word at an address, without the zero byte at its end.
    ///
    /// # Errors
    /// If it is too long, or not all there.
    pub(super) fn length<M: Machine>(
        &self,
        process: &mut Process<'_, M>,
        word: u64,
    ) -> Result<u64, Errno> {
        process.within(self.memory, |it| {
            let mut byte = [0];
            for len in 0..LONGEST {
                let at = word.checked_add(len).ok_or(Errno(EFAULT))?;
                it.read(at, &mut byte)?;
                if byte[0] == 0 {
                    return Ok(len);
                }
            }
            Err(Errno(E2BIG))
        })
    }

    /// Copies so many bytes of a word into the memory at hand.
    pub(super) fn copy<M: Machine>(
        &self,
        process: &mut Process<'_, M>,
        (word, to): (u64, u64),
        len: u64,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            let mut bytes = [0; PORTION];
            let portion = usize::try_from(len - done).map_or(PORTION, |left| left.min(PORTION));
            let part = &mut bytes[..portion];
            process.within(self.memory, |it| it.read(word + done, part))?;
            process.write(to + done, part)?;
            done += portion as u64;
        }
        Ok(())
    }
}
