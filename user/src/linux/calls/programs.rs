//! Calls that have a process go on with another program (`execve`).
//!
//! The new program is loaded beside the old one, which goes on if that fails. Programs are those
//! that the host packed: it has read their code. Scripts name a program that is given their path.
//!
//! Not covered: programs that were written in the machine, or changed there.

use linux_raw_sys::errno::{EACCES, EINVAL, ELOOP, ENOEXEC, ENOMEM};
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use rcoe_abi::bundle::Program;

use super::{Next, Text};
use crate::linux::arch::{CALL_WORDS, FIRST_STATUS, IP, SP, first_floats};
use crate::linux::code::Readable;
use crate::linux::files::{FILE_NUMBERS, Kind, Path};
use crate::linux::given::{Given, Named};
use crate::linux::load::load;
use crate::linux::process::Begin;
use crate::linux::tasks::Name;
use crate::linux::{Errno, Machine, Process};

/// What a script begins with, and bytes of a file that are looked at.
const SCRIPT: &[u8] = b"#!";
const HEAD: usize = 256;
/// What a program begins with.
const ELF: &[u8] = b"\x7fELF";
/// Permissions to execute.
const EXECUTE: u32 = 0o111;

/// The interpreter that a script names, and a word for it, which may be empty.
fn interpreter(head: &[u8]) -> Result<[&[u8]; 2], Errno> {
    let line = head.strip_prefix(SCRIPT).ok_or(Errno(ENOEXEC))?;
    let is_blank = |&byte: &u8| byte == b' ' || byte == b'\t';
    let end = line.iter().position(|&byte| byte == b'\n' || byte == 0);
    // What is cut off could be the rest of the interpreter's path, or of its word.
    let cut = end.is_none() && head.len() == HEAD;
    let line = line[..end.unwrap_or(line.len())].trim_ascii();
    let name = line.iter().position(is_blank);
    let (name, word) = line.split_at(name.unwrap_or(line.len()));
    if name.is_empty() || cut {
        return Err(Errno(ENOEXEC));
    }
    Ok([name, word.trim_ascii()])
}

impl<'a, M: Machine> Process<'a, M> {
    /// `execve` and `execveat`: folder, path, arguments, environment, flags.
    pub(super) fn execute(&mut self, words: [u64; 5]) -> Next {
        match self.try_execute(words) {
            Ok(()) => Next::Resume,
            Err(error) => Next::Answer(Err(error)),
        }
    }

    fn try_execute(
        &mut self,
        [folder, text, arguments, environment, flags]: [u64; 5],
    ) -> Result<(), Errno> {
        let (empty, itself) = (u64::from(AT_EMPTY_PATH), u64::from(AT_SYMLINK_NOFOLLOW));
        if flags & 0xffff_ffff & !(empty | itself) != 0 {
            return Err(Errno(EINVAL));
        }
        let mut name = self.text(text)?;
        let path = if flags & empty != 0 && name.bytes().is_empty() {
            let node = self.files.of(folder)?.node().map_err(|_| Errno(EACCES))?;
            let path = self.files.node(node).path;
            name = Text::new(path.bytes())?;
            path
        } else if flags & itself != 0 {
            let path = self.path_itself(folder, text)?;
            if self
                .files
                .link_at((&self.store, &self.machine), path)
                .is_some()
            {
                return Err(Errno(ELOOP));
            }
            path
        } else {
            self.path(folder, text)?
        };
        let mut named = Named::new(self.task.memory, arguments, environment);
        let (path, program) = self.program_at(path, &name, &mut named)?;
        let (memory, begin) = self.load_beside(&program, &name, Given::Named(&named))?;
        self.become_program((path, &name), memory, begin);
        Ok(())
    }

    /// The program that is to run for what is at a path, which is called by this name, and where
    /// that is; the words that it is given.
    fn program_at(
        &mut self,
        mut path: Path,
        name: &Text,
        named: &mut Named,
    ) -> Result<(Path, Program<'a>), Errno> {
        loop {
            let found = self.files.find(path);
            let node = found.ok_or_else(|| self.files.missing(path))?;
            let found = self.files.node(node);
            let is_file = matches!(found.kind, Kind::Packed(_) | Kind::Memory(_));
            if !is_file || found.mode & EXECUTE == 0 {
                return Err(Errno(EACCES));
            }
            let mut head = [0; HEAD];
            let len = self
                .files
                .read(&self.store, &self.machine, (node, 0), &mut head);
            let head = &head[..len];
            if !head.starts_with(SCRIPT) {
                let program = self.packed_program(path, found.kind, head)?;
                return Ok((path, program));
            }
            let own = interpreter(head)?;
            named.interpret(name.bytes(), own)?;
            path = self.meant(self.files.folder(), own[0], true)?;
        }
    }

    /// The program that the host packed as this file; what is none is told of, if it looks like
    /// one.
    fn packed_program(
        &mut self,
        path: Path,
        kind: Kind<'a>,
        head: &[u8],
    ) -> Result<Program<'a>, Errno> {
        let program = match kind {
            Kind::Packed(content) => self.bundle.program_in(content),
            _ => None,
        };
        let written = b"it was written here; only programs of the host are carried: use --file";
        let why = match program {
            Some(program) if program.why.is_empty() => return Ok(program),
            Some(program) => program.why,
            None if head.starts_with(ELF) => written,
            None => return Err(Errno(ENOEXEC)),
        };
        let (name, why) = (Readable(path.bytes()), Readable(why));
        let text = format_args!("{name} cannot be executed: {why}: the program got ENOEXEC");
        self.machine.note(text);
        Err(Errno(ENOEXEC))
    }

    /// Loads a program into a memory of its own, where the current thread is to begin: the number
    /// of that memory.
    fn load_beside(
        &mut self,
        program: &Program<'a>,
        name: &Text,
        given: Given<'_>,
    ) -> Result<(usize, Begin), Errno> {
        let (own, memory, thread) = (self.task.memory, self.free_memory(), self.threads.index());
        if !self.machine.make_space(memory) {
            return Err(Errno(ENOMEM));
        }
        self.enter_memory(memory);
        let loaded = load(self, program, name.bytes(), given);
        let loaded = loaded.and_then(|begin| {
            let moved = self.machine.make_thread(thread, thread);
            moved.then_some(begin).ok_or(Errno(ENOMEM))
        });
        self.enter_memory(own);
        match loaded {
            Ok(begin) => Ok((memory, begin)),
            Err(error) => {
                self.drop_memory(memory);
                Err(error)
            }
        }
    }

    /// The process at hand has another program from here on, and the current thread alone.
    fn become_program(&mut self, (path, name): (Path, &Text), memory: usize, begin: Begin) {
        let place = self.threads.index();
        self.leave(place);
        self.end_threads(Some(place));
        self.leave_memory();
        (self.task.memory, self.task.executed) = (memory, true);
        self.task.start = begin.stack;
        self.task.name = Name::new(name.bytes());
        self.task.manner = self.task.manner.executed();
        self.enter_memory(memory);
        self.files.set_program(path);
        self.close_private();
        self.execute_signals();
        let number = self.task.number;
        let thread = self.threads.current();
        (thread.number, thread.cleared, thread.robust) = (number, 0, 0);
        (thread.pointers, thread.name) = ([0; 2], None);
        let begins = self.machine.set_pointers(place, [0; 2])
            && self.machine.set_floats(place, &first_floats());
        assert!(begins, "any thread can have what programs begin with");
        let mut registers = [0; CALL_WORDS];
        (registers[IP], registers[SP]) = (begin.entry, begin.stack);
        let (status, flags) = FIRST_STATUS;
        registers[status] = flags;
        self.threads.set_registers(registers);
    }

    /// Closes the descriptors that are the old program's alone.
    fn close_private(&mut self) {
        for file in 0..FILE_NUMBERS as u64 {
            if self.files.is_private(file) == Ok(true) {
                // It is open.
                let _ = self.close(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter_and_a_word() {
        for (head, own) in [
            (&b"#!/bin/sh\nexit"[..], [&b"/bin/sh"[..], b""]),
            (b"#! /bin/sh -e  -x \n", [b"/bin/sh", b"-e  -x"]),
            (b"#!\t/bin/awk\t-f", [b"/bin/awk", b"-f"]),
        ] {
            assert_eq!(interpreter(head), Ok(own));
        }
        let long = [b"#!/", &[b'x'; HEAD][..]].concat();
        for head in [&b"#!\n/bin/sh"[..], b"#!   ", &long[..HEAD]] {
            assert_eq!(interpreter(head), Err(Errno(ENOEXEC)));
        }
    }
}
