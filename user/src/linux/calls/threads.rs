//! Calls about threads: new ones, those that end, and words of memory at which they wait.
//!
//! Not covered: priorities.

use linux_raw_sys::errno::{E2BIG, EAGAIN, EFAULT, EINVAL, ENOSYS, ESRCH, ETIMEDOUT};
use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_DETACHED, CLONE_FILES, CLONE_FS,
    CLONE_PARENT_SETTID, CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM,
    FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_OWNER_DIED, FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE,
    FUTEX_TID_MASK, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAITERS, FUTEX_WAKE, FUTEX_WAKE_BITSET,
};

use crate::linux::arch::nr;
use crate::linux::arch::{SP, clone_order, set_pointer};
use crate::linux::machine::PAGE;
use crate::linux::space::Space;
use crate::linux::threads::{ANSWER, Futex, Limit, Place, Thread};
use crate::linux::{Answer, Errno, Machine, Process};

/// What a thread shares with the one that makes it, and what else can be asked for.
const SHARED: u32 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
const KNOWN: u32 = SHARED
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_CHILD_SETTID
    | CLONE_DETACHED;
/// Bytes of the list of locks, and most locks of it that are looked at.
const LIST_BYTES: u64 = 24;
const LOCKS: u32 = 2048;
/// Words of what `clone3` is asked for.
const CLONE_WORDS: usize = 8;
/// Bytes of it that Linux knows.
const CLONE_BYTES: u64 = 88;
/// Any kind of waking.
const ANY: u32 = u32::MAX;

/// What a new thread is to be, or the first one of a new process.
pub(super) struct New {
    pub(super) flags: u64,
    pub(super) stack: u64,
    pub(super) parent: u64,
    pub(super) child: u64,
    pub(super) pointer: u64,
}

impl New {
    /// Of a new process, with such flags and what its maker has.
    pub(super) fn process(flags: u32) -> Self {
        Self {
            flags: flags.into(),
            stack: 0,
            parent: 0,
            child: 0,
            pointer: 0,
        }
    }
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn thread_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, ..] = words;
        Some(match call {
            nr::__NR_futex => self.futex(words),
            nr::__NR_clone => {
                let [parent, child, pointer] = clone_order(words);
                let new = New {
                    flags: first,
                    stack: second,
                    parent,
                    child,
                    pointer,
                };
                self.clone(call, &new)
            }
            nr::__NR_clone3 => self.clone_by_words(first, second),
            nr::__NR_gettid => Ok(self.threads.current().number),
            nr::__NR_set_tid_address => {
                let thread = self.threads.current();
                thread.cleared = first;
                Ok(thread.number)
            }
            nr::__NR_set_robust_list if second == LIST_BYTES => {
                self.threads.current().robust = first;
                Ok(0)
            }
            nr::__NR_set_robust_list => Err(Errno(EINVAL)),
            nr::__NR_get_robust_list => self.robust_list(first, second, third),
            nr::__NR_sched_yield => {
                self.threads.give_way();
                Ok(0)
            }
            _ => return None,
        })
    }

    fn clone_by_words(&mut self, place: u64, bytes: u64) -> Answer {
        if let Some(answer) = self.held() {
            return answer;
        }
        if bytes < 8 * CLONE_WORDS as u64 {
            return Err(Errno(EINVAL));
        }
        self.check_rest(place, bytes)?;
        let mut words = [0; CLONE_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(place.wrapping_add(8 * index as u64))?;
        }
        let [flags, _, child, parent, signal, stack, size, pointer] = words;
        let new = New {
            flags: flags | signal,
            stack: stack.wrapping_add(size),
            parent,
            child,
            pointer,
        };
        self.clone(nr::__NR_clone3, &new)
    }

    /// What a program says beyond what is known has to say nothing: neither what Linux knows and is
    /// not carried, nor what Linux does not know.
    fn check_rest(&mut self, place: u64, bytes: u64) -> Result<(), Errno> {
        if bytes > PAGE {
            return Err(Errno(E2BIG));
        }
        let mut is_more = false;
        for at in 8 * CLONE_WORDS as u64..bytes {
            let mut byte = [0];
            let address = place.checked_add(at).ok_or(Errno(EFAULT))?;
            self.read(address, &mut byte)?;
            match byte {
                [0] => {}
                _ if at < CLONE_BYTES => is_more = true,
                _ => return Err(Errno(E2BIG)),
            }
        }
        match is_more {
            true => Err(self.refuse(nr::__NR_clone3.into())),
            false => Ok(()),
        }
    }

    /// A new thread, or a new process.
    fn clone(&mut self, call: u32, new: &New) -> Answer {
        let has = |bit: u32| new.flags & u64::from(bit) != 0;
        let shared = new.flags & u64::from(SHARED) == u64::from(SHARED);
        if !has(CLONE_THREAD) {
            return self.make_process(call, new);
        }
        if !shared || new.flags & !u64::from(KNOWN) != 0 {
            return Err(self.refuse(call.into()));
        }
        if new.stack == 0 {
            return Err(Errno(EINVAL));
        }
        let place = self.threads.free().ok_or(Errno(EAGAIN))?;
        let mut thread = Thread {
            cleared: if has(CLONE_CHILD_CLEARTID) {
                new.child
            } else {
                0
            },
            robust: 0,
            signals: self.threads.current().signals.of_new(),
            name: Some(self.own_name_of_thread()),
            ..*self.threads.current()
        };
        let mut registers = *self.threads.registers();
        if has(CLONE_SETTLS) {
            set_pointer(&mut thread.pointers, &mut registers, new.pointer);
        }
        let made = self.machine.make_thread(place, self.threads.index())
            && self.machine.set_pointers(place, thread.pointers);
        if !made {
            return Err(Errno(EAGAIN));
        }
        (registers[ANSWER], registers[SP]) = (0, new.stack);
        let number = self.threads.begin(place, thread, registers);
        for (bit, to) in [
            (CLONE_PARENT_SETTID, new.parent),
            (CLONE_CHILD_SETTID, new.child),
        ] {
            if has(bit) {
                // As a kernel does, which has made the thread by then.
                let _ = self.write_half(to, number);
            }
        }
        Ok(number)
    }

    /// The lower half of a word.
    pub(super) fn write_half(&mut self, to: u64, word: u64) -> Result<(), Errno> {
        self.write(to, &word.to_le_bytes()[..4])
    }

    fn half(&self, address: u64) -> Result<u32, Errno> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn robust_list(&mut self, whom: u64, head: u64, bytes: u64) -> Answer {
        let thread = *self.threads.current();
        if ![0, thread.number].contains(&whom) {
            return Err(Errno(if self.threads.place_of(whom).is_some() {
                ENOSYS
            } else {
                ESRCH
            }));
        }
        self.write_words(head, &[thread.robust])?;
        self.write_words(bytes, &[LIST_BYTES]).map(|()| 0)
    }

    /// The thread at a place, of the process at hand, ends: whoever waits for that, or for locks
    /// that it held, goes on.
    pub(in crate::linux) fn leave(&mut self, place: usize) {
        let thread = *self.threads.at(place);
        if thread.robust != 0 {
            // A list that cannot be read ends there.
            let _ = self.release_locks(thread.robust, thread.number);
        }
        if thread.cleared != 0 && self.write_half(thread.cleared, 0).is_ok() {
            self.wake(self.word_at(thread.cleared, false), 1, ANY);
        }
    }

    fn release_locks(&mut self, head: u64, owner: u64) -> Result<(), Errno> {
        let offset = self.word(head.wrapping_add(8))?;
        let pending = self.word(head.wrapping_add(16))?;
        let mut lock = self.word(head)?;
        for _ in 0..LOCKS {
            if lock == head {
                break;
            }
            let next = self.word(lock)?;
            if lock != pending {
                self.release_lock(lock.wrapping_add(offset), owner)?;
            }
            lock = next;
        }
        if pending != 0 {
            self.release_lock(pending.wrapping_add(offset), owner)?;
        }
        Ok(())
    }

    /// Whoever gets a lock next is told that its owner is gone.
    fn release_lock(&mut self, address: u64, owner: u64) -> Result<(), Errno> {
        let held = self.half(address)?;
        if u64::from(held & FUTEX_TID_MASK) != owner {
            return Ok(());
        }
        let released = held & FUTEX_WAITERS | FUTEX_OWNER_DIED;
        self.write_half(address, released.into())?;
        if held & FUTEX_WAITERS != 0 {
            self.wake(self.word_at(address, false), 1, ANY);
        }
        Ok(())
    }

    fn futex(&mut self, words: [u64; 6]) -> Answer {
        let [address, operation, value, fourth, other, third] = words;
        let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(0);
        let operation = low(operation);
        let real = operation & FUTEX_CLOCK_REALTIME != 0;
        if !address.is_multiple_of(4) {
            return Err(Errno(EINVAL));
        }
        let private = operation & FUTEX_PRIVATE_FLAG != 0;
        let (place, to) = (self.word_at(address, private), self.word_at(other, private));
        let command = operation & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
        if matches!(command, FUTEX_REQUEUE | FUTEX_CMP_REQUEUE) {
            if (value | fourth) >> 31 & 1 != 0 || !other.is_multiple_of(4) {
                return Err(Errno(EINVAL));
            }
            self.check_shared(other, private)?;
        }
        if !matches!(command, FUTEX_WAIT | FUTEX_WAIT_BITSET) {
            self.check_shared(address, private)?;
        }
        match command {
            FUTEX_WAIT | FUTEX_WAIT_BITSET => {
                let absolute = command == FUTEX_WAIT_BITSET;
                let kinds = if absolute { low(third) } else { ANY };
                let limit = match fourth {
                    0 => Limit::Never,
                    place if absolute => self.limit_at(place, real)?,
                    place => Limit::In(self.time_at(place)?),
                };
                self.wait_at((address, place), low(value), kinds, limit)
            }
            FUTEX_WAKE => Ok(self.wake(place, low(value), ANY)),
            FUTEX_WAKE_BITSET if low(third) == 0 => Err(Errno(EINVAL)),
            FUTEX_WAKE_BITSET => Ok(self.wake(place, low(value), low(third))),
            FUTEX_REQUEUE => Ok(self.requeue(place, low(value), low(fourth), to)),
            FUTEX_CMP_REQUEUE if self.half(address)? != low(third) => Err(Errno(EAGAIN)),
            FUTEX_CMP_REQUEUE => Ok(self.requeue(place, low(value), low(fourth), to)),
            _ => {
                let text = format_args!(
                    "the system sphere does not carry operation {command} of the system call \
                     futex: the program got ENOSYS"
                );
                self.tell_once(nr::__NR_futex.into(), text);
                Err(Errno(ENOSYS))
            }
        }
    }

    /// A word that processes may share is looked for, so that it has to be there.
    fn check_shared(&self, address: u64, private: bool) -> Result<(), Errno> {
        if !private {
            self.half(address).map_err(|_| Errno(EFAULT))?;
        }
        Ok(())
    }

    /// A time that a clock shows when a wait is over.
    fn limit_at(&self, place: u64, real: bool) -> Result<Limit, Errno> {
        let time = self.time_at(place)?;
        let began = if real { self.began() } else { 0 };
        Ok(Limit::At(time.saturating_sub(began)))
    }

    /// What the word at an address is: what processes share is the same for all of them, unless a
    /// program says that it uses it within one.
    fn word_at(&self, address: u64, private: bool) -> Place {
        match Space::alias_at(&self.store, address) {
            Some(alias) if !private => Place::Shared(self.machine.number_of(alias), address % PAGE),
            _ => Place::Own(self.task.memory, address),
        }
    }

    fn wait_at(
        &mut self,
        (address, place): (u64, Place),
        value: u32,
        kinds: u32,
        limit: Limit,
    ) -> Answer {
        let wait = self.threads.current().wait;
        if wait.woken {
            return Ok(0);
        }
        if kinds == 0 {
            return Err(Errno(EINVAL));
        }
        if !wait.again {
            if self.half(address).map_err(|_| Errno(EFAULT))? != value {
                return Err(Errno(EAGAIN));
            }
            let order = self.threads.queue();
            self.threads.current().wait.futex = Some(Futex {
                place,
                order,
                kinds,
            });
        }
        self.pause(limit)?;
        self.threads.current().wait.futex = None;
        Err(Errno(ETIMEDOUT))
    }

    /// Wakes so many of those who wait at a word, the first ones first; how many there were.
    fn wake(&mut self, place: Place, most: u32, kinds: u32) -> u64 {
        let mut count = 0;
        while count < u64::from(most)
            && let Some(wait) = self.threads.first_at(place, kinds)
        {
            (wait.futex, wait.woken) = (None, true);
            count += 1;
        }
        count
    }

    /// Wakes some, and has others wait at another word from here on.
    fn requeue(&mut self, place: Place, most: u32, others: u32, to: Place) -> u64 {
        let woken = self.wake(place, most, ANY);
        let mut moved = 0;
        while moved < u64::from(others)
            && to != place
            && let Some(wait) = self.threads.first_at(place, ANY)
            && let Some(futex) = &mut wait.futex
        {
            futex.place = to;
            moved += 1;
        }
        woken + moved
    }
}
