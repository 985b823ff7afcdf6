//! Calls about processes: new ones, waiting for those that have ended, their groups and sessions.
//!
//! A new process has a copy of all memory, which is made at once, but of what was mapped to be
//! shared: of that it has the same. One that shares all of its parent's memory has the parent wait
//! until it ends, as `vfork` does.
//!
//! Not covered: processes that share anything else, that end by another signal than `SIGCHLD`, or
//! that are stopped; and namespaces.

use linux_raw_sys::errno::{EACCES, EAGAIN, ECHILD, EINVAL, ENOMEM, EPERM, ESRCH};
use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED,
    CLONE_PARENT_SETTID, CLONE_SETTLS, CLONE_VFORK, CLONE_VM, P_ALL, P_PGID, P_PID, SIGCHLD,
    WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED,
};

use super::system::USAGE_WORDS;
use super::threads::New;
use crate::linux::arch::nr;
use crate::linux::arch::{CALL_WORDS, SP, set_pointer};
use crate::linux::errno::LATER;
use crate::linux::signals::{ENDED_BY, Info, Whom};
use crate::linux::space::Space;
use crate::linux::tasks::{Life, MEMORIES, NOBODY, Task};
use crate::linux::threads::{ANSWER, Thread};
use crate::linux::{Answer, Errno, Machine, Process};

/// What a process can be made with, besides the signal that it ends by.
const KNOWN: u32 = CLONE_VM
    | CLONE_VFORK
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_CHILD_SETTID
    | CLONE_DETACHED;
/// The bits of that signal.
const BY: u64 = 0xff;
/// What may be asked for when a process waits: besides, whose children of which kind are meant.
const WAITS: u32 = WNOHANG | WSTOPPED | WCONTINUED | OF_THREAD | OF_ANY_KIND | OF_OTHER_KIND;
const OF_THREAD: u32 = 0x2000_0000;
const OF_ANY_KIND: u32 = 0x4000_0000;
const OF_OTHER_KIND: u32 = 0x8000_0000;
const NUMBERED_WAITS: u32 = WAITS | WEXITED | WNOWAIT;

/// Whose end is waited for.
#[derive(Clone, Copy)]
enum Whose {
    Any,
    Number(u64),
    Group(u64),
}

impl Whose {
    fn has(self, task: &Task) -> bool {
        match self {
            Self::Any => true,
            Self::Number(number) => task.number == number,
            Self::Group(group) => task.group == group,
        }
    }
}

const fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl<'a, M: Machine> Process<'a, M> {
    pub(super) fn process_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, fifth, _] = words;
        Some(match call {
            nr::__NR_fork => self.make_process(call, &New::process(SIGCHLD)),
            nr::__NR_vfork => {
                self.make_process(call, &New::process(CLONE_VM | CLONE_VFORK | SIGCHLD))
            }
            nr::__NR_wait4 => self.wait_for([first, second, third, fourth]),
            nr::__NR_waitid => self.wait_for_id([first, second, third, fourth, fifth]),
            nr::__NR_getpid => Ok(self.task.number),
            nr::__NR_getppid => Ok(self.task.parent),
            nr::__NR_getpgrp => Ok(self.task.group),
            nr::__NR_getpgid => self.known(first).map(|at| self.task.all()[at].group),
            nr::__NR_getsid => self.known(first).map(|at| self.task.all()[at].session),
            nr::__NR_setpgid => self.set_group(low(first).into(), low(second).into()),
            nr::__NR_setsid => self.set_session(),
            _ => return None,
        })
    }

    /// The place of a process that has not been asked for, by its number; 0 is the own one.
    pub(super) fn known(&self, number: u64) -> Result<usize, Errno> {
        let number = match number & 0xffff_ffff {
            0 => self.task.number,
            number => number,
        };
        let mut all = self.task.all().iter();
        let place = all.position(|it| it.life != Life::Free && it.number == number);
        place.ok_or(Errno(ESRCH))
    }

    /// What a call comes to that made a process which has its parent wait: `None` if it has not.
    pub(super) fn held(&self) -> Option<Answer> {
        let child = self.threads.now().wait.child?;
        let place = self.process_of(child);
        let holds = place.is_some_and(|at| self.task.all()[at].holds);
        Some(if holds { Err(LATER) } else { Ok(child) })
    }

    /// A new process; what could not be shared by it is refused.
    pub(super) fn make_process(&mut self, call: u32, new: &New) -> Answer {
        if let Some(answer) = self.held() {
            return answer;
        }
        let has = |bit: u32| new.flags & u64::from(bit) != 0;
        let known = BY | u64::from(KNOWN) | CLONE_CLEAR_SIGHAND;
        let by = new.flags & BY == SIGCHLD.into();
        if !by || new.flags & !known != 0 || has(CLONE_VM) && !has(CLONE_VFORK) {
            return Err(self.refuse(call.into()));
        }
        let mut tasks = self.task.all().iter();
        let process = tasks.position(|it| it.life == Life::Free);
        let process = process.ok_or(Errno(EAGAIN))?;
        let place = self.threads.free().ok_or(Errno(EAGAIN))?;
        let own = self.task.memory;
        let memory = if has(CLONE_VM) {
            own
        } else {
            self.copy_memory()?
        };
        let mut pointers = self.threads.current().pointers;
        let mut registers = *self.threads.registers();
        if has(CLONE_SETTLS) {
            set_pointer(&mut pointers, &mut registers, new.pointer);
        }
        self.enter_memory(memory);
        let made = self.machine.make_thread(place, self.threads.index())
            && self.machine.set_pointers(place, pointers);
        self.enter_memory(own);
        if !made {
            if memory != own {
                self.drop_memory(memory);
            }
            return Err(Errno(ENOMEM));
        }
        self.files.inherit(process);
        let number = self.begin_first_thread((place, process), (pointers, registers), new);
        *self.task.at(process) = self.child(number, memory, new);
        self.tell_numbers(number, memory, new);
        if !has(CLONE_VFORK) {
            return Ok(number);
        }
        self.threads.current().wait.child = Some(number);
        Err(LATER)
    }

    /// The thread of a new process, which is like the current one; its number.
    fn begin_first_thread(
        &mut self,
        (place, process): (usize, usize),
        (pointers, mut registers): ([u64; 2], [u64; CALL_WORDS]),
        new: &New,
    ) -> u64 {
        let clears = new.flags & u64::from(CLONE_CHILD_CLEARTID) != 0;
        let thread = Thread {
            process,
            cleared: if clears { new.child } else { 0 },
            robust: 0,
            pointers,
            signals: self.threads.current().signals.of_child(),
            name: None,
            ..*self.threads.current()
        };
        registers[ANSWER] = 0;
        if new.stack != 0 {
            registers[SP] = new.stack;
        }
        self.threads.begin(place, thread, registers)
    }

    /// A child of the process at hand.
    fn child(&self, number: u64, memory: usize, new: &New) -> Task {
        let clears = new.flags & CLONE_CLEAR_SIGHAND != 0;
        Task {
            life: Life::Lives,
            number,
            parent: self.task.number,
            group: self.task.group,
            session: self.task.session,
            memory,
            holds: new.flags & u64::from(CLONE_VFORK) != 0,
            name: self.own_name_of_thread(),
            manner: self.task.manner.of_child(),
            start: self.task.start,
            executed: false,
            signals: self.task.signals.of_child(clears),
            ended: None,
        }
    }

    /// Writes the number of a new process where its maker and itself want it.
    fn tell_numbers(&mut self, number: u64, memory: usize, new: &New) {
        let has = |bit: u32| new.flags & u64::from(bit) != 0;
        // As a kernel does, which has made the process by then.
        if has(CLONE_PARENT_SETTID) {
            let _ = self.write_half(new.parent, number);
        }
        if has(CLONE_CHILD_SETTID) {
            self.enter_memory(memory);
            let _ = self.write_half(new.child, number);
            self.enter_memory(self.task.memory);
        }
    }

    /// The number of a memory that nobody has, which is empty.
    pub(super) fn free_memory(&self) -> usize {
        let has = |memory: usize| {
            let mut all = self.task.all().iter();
            all.any(|it| it.lives() && it.memory == memory)
        };
        let free = (0..MEMORIES).find(|&memory| !has(memory));
        free.expect("there are more memories than processes")
    }

    /// Gives back what is in a memory that nobody has.
    pub(in crate::linux) fn drop_memory(&mut self, memory: usize) {
        self.enter_memory(memory);
        Space::clear(&mut self.store, &mut self.machine);
        self.machine.leave_space(memory);
        self.forget_mappings(memory);
        self.enter_memory(self.task.memory);
    }

    /// A copy of the memory at hand: its number.
    fn copy_memory(&mut self) -> Result<usize, Errno> {
        let (own, memory) = (self.task.memory, self.free_memory());
        let both = [own, memory];
        let copied = self.machine.make_space(memory)
            && Space::copy(&mut self.store, &mut self.machine, both).is_ok()
            && self.files.copy_mappings(both).is_ok();
        if !copied {
            self.drop_memory(memory);
            return Err(Errno(ENOMEM));
        }
        *self.space.at(memory) = *self.space;
        // What a process locks it locks for itself.
        self.space.at(memory).locks = false;
        Ok(memory)
    }

    /// The parent of the process at hand, which ended so, is told, unless there is none or it does
    /// not care: then the process is gone.
    pub(in crate::linux) fn tell_parent(&mut self, ended: u64) {
        let info = Info::of_child(self.task.number, ended);
        let parent = self.process_of(self.task.parent);
        let gone = parent.is_none_or(|parent| {
            self.of(parent, |it| {
                let [ignores, forgets] = it.task.signals.forgets_children();
                if !ignores {
                    // A standard signal is never refused.
                    let _ = it.post(Whom::Process, info);
                }
                ignores || forgets
            })
        });
        if gone {
            self.task.life = Life::Free;
        }
    }

    /// The place of a child that has ended, if there is any, and how it did.
    ///
    /// # Errors
    /// If there is no such child at all.
    fn ended_child(&self, whose: Whose) -> Result<Option<(usize, u64)>, Errno> {
        let own = self.task.number;
        let all = self.task.all().iter().enumerate();
        let children = all.filter(|(_, it)| {
            it.life != Life::Free && it.parent == own && own != NOBODY && whose.has(it)
        });
        let mut any = Err(Errno(ECHILD));
        for (place, child) in children {
            match child.life {
                Life::Ended(ended) => return Ok(Some((place, ended))),
                _ => any = Ok(None),
            }
        }
        any
    }

    fn wait_for(&mut self, [whose, status, options, usage]: [u64; 4]) -> Answer {
        let options = low(options);
        if options & !WAITS != 0 {
            return Err(Errno(EINVAL));
        }
        let [a, b, c, d, ..] = whose.to_le_bytes();
        let whose = match i32::from_le_bytes([a, b, c, d]) {
            i32::MIN => return Err(Errno(ESRCH)),
            -1 => Whose::Any,
            0 => Whose::Group(self.task.group),
            group @ ..0 => Whose::Group(group.unsigned_abs().into()),
            number => Whose::Number(number.unsigned_abs().into()),
        };
        if options & (OF_OTHER_KIND | OF_ANY_KIND) == OF_OTHER_KIND {
            return Err(Errno(ECHILD));
        }
        let Some((place, ended)) = self.ended_child(whose)? else {
            return self.not_yet(options);
        };
        let number = self.task.at(place).number;
        self.task.at(place).life = Life::Free;
        if status != 0 {
            let told = ended.checked_sub(ENDED_BY).unwrap_or(ended << 8);
            self.write_half(status, told)?;
        }
        if usage != 0 {
            self.write_words(usage, &[0; USAGE_WORDS])?;
        }
        Ok(number)
    }

    /// No child has ended.
    fn not_yet(&self, options: u32) -> Answer {
        if options & WNOHANG == 0 {
            return Err(LATER);
        }
        Ok(0)
    }

    fn wait_for_id(&mut self, [kind, id, to, options, usage]: [u64; 5]) -> Answer {
        let options = low(options);
        let any = options & (WEXITED | WSTOPPED | WCONTINUED) != 0;
        if options & !NUMBERED_WAITS != 0 || !any {
            return Err(Errno(EINVAL));
        }
        let whose = match (low(kind), low(id)) {
            (P_ALL, _) => Whose::Any,
            (P_PID, id @ 1..0x8000_0000) => Whose::Number(id.into()),
            (P_PGID, 0) => Whose::Group(self.task.group),
            (P_PGID, id @ 1..0x8000_0000) => Whose::Group(id.into()),
            _ => return Err(Errno(EINVAL)),
        };
        let found = self.ended_child(whose)?;
        let found = found.filter(|_| options & WEXITED != 0);
        let Some((place, ended)) = found else {
            self.not_yet(options)?;
            return self.tell_child(to, None);
        };
        let info = Info::of_child(self.task.at(place).number, ended);
        if options & WNOWAIT == 0 {
            self.task.at(place).life = Life::Free;
        }
        if usage != 0 {
            self.write_words(usage, &[0; USAGE_WORDS])?;
        }
        self.tell_child(to, Some(info))
    }

    /// Tells of a child that ended, or of none.
    fn tell_child(&mut self, to: u64, info: Option<Info>) -> Answer {
        if to == 0 {
            return Ok(0);
        }
        let mut bytes = [0; 28];
        if let Some(info) = info {
            bytes.copy_from_slice(&info.bytes()[..28]);
        }
        self.write(to, &bytes[..12])?;
        self.write(to.wrapping_add(16), &bytes[16..]).map(|()| 0)
    }

    fn set_group(&mut self, whom: u64, group: u64) -> Answer {
        if group >> 31 != 0 {
            return Err(Errno(EINVAL));
        }
        let place = self.known(whom)?;
        let (own, session) = (self.task.number, self.task.session);
        let task = &self.task.all()[place];
        if task.number != own && task.parent != own {
            return Err(Errno(ESRCH));
        }
        if task.number != own && task.executed {
            return Err(Errno(EACCES));
        }
        let wanted = if group == 0 { task.number } else { group };
        let leads = task.session == task.number;
        let mut all = self.task.all().iter();
        let is_there = wanted == task.number
            || all.any(|it| it.life != Life::Free && it.group == wanted && it.session == session);
        if leads || task.session != session || !is_there {
            return Err(Errno(EPERM));
        }
        self.task.at(place).group = wanted;
        Ok(0)
    }

    fn set_session(&mut self) -> Answer {
        let own = self.task.number;
        let mut all = self.task.all().iter();
        if all.any(|it| it.life != Life::Free && it.group == own) {
            return Err(Errno(EPERM));
        }
        (self.task.group, self.task.session) = (own, own);
        Ok(own)
    }
}
