//! The frame of a handler: what the thread was at lies on its stack, where the handler can look at
//! it and change it, until it returns (`rt_sigreturn`). How it lies there is the processor's.

use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general::{SA_NODEFER, SA_ONSTACK, SA_RESTORER, SA_SIGINFO};

use super::stack::Stack;
use super::{Action, FIXED, Info, bit};
use crate::linux::arch::{
    CALL_WORDS, FLOAT_WORDS, Places, RED_ZONE, Restored, SP, Saved, TRAMPOLINE, Wrong,
    first_floats, nr,
};
use crate::linux::{Errno, Machine, Process};

/// Where a frame is to be on a stack; none if the alternate stack has no room for it.
fn places(sp: u64, stack: &Stack, action: &Action) -> Option<Places> {
    let was_on = stack.has(sp);
    let mut sp = sp.wrapping_sub(RED_ZONE);
    let enters = action.has(SA_ONSTACK) && stack.state(sp) == 0;
    if enters {
        sp = stack.end();
    }
    let places = Places::below(sp);
    let fits = !(was_on || enters) || stack.spans(places.frame);
    fits.then_some(places)
}

/// Where a handler returns to, if anybody says.
fn way_back(action: &Action) -> Option<u64> {
    match action.has(SA_RESTORER) {
        true => Some(action.restorer),
        false => TRAMPOLINE.map(|(address, _)| address),
    }
}

impl<M: Machine> Process<'_, M> {
    /// Has the current thread, which had these registers, begin the handler of a signal.
    ///
    /// # Errors
    /// If there is no room for its frame, or the program names no way back.
    pub(super) fn begin_handler(
        &mut self,
        info: &Info,
        action: Action,
        registers: &[u64; CALL_WORDS],
    ) -> Result<(), Errno> {
        let own = self.threads.current().signals;
        let places = places(registers[SP], &own.stack, &action).ok_or(Errno(EFAULT))?;
        let way_back = way_back(&action).ok_or(Errno(EFAULT))?;
        let saved = Saved {
            registers,
            floats: self.machine.floats(self.threads.index()),
            stack: own.stack.kept(),
            mask: own.saved.unwrap_or(own.mask),
            trap: own.trap,
        };
        if action.has(SA_SIGINFO) {
            self.write(places.info, &info.bytes())?;
        }
        saved.write(&places, way_back, |address, words| {
            self.write_words(address, words)
        })?;
        let own = &mut self.threads.current().signals;
        own.stack.entered();
        own.saved = None;
        own.mask |= action.mask;
        if !action.has(SA_NODEFER) {
            own.mask |= bit(info.signal);
        }
        self.set_floats(&first_floats())?;
        let mut registers = *registers;
        places.enter(&mut registers, (info.signal, action.handler), way_back);
        self.threads.set_registers(registers);
        Ok(())
    }

    /// Ends a handler: the current thread goes on as its frame says.
    ///
    /// # Errors
    /// If that is none.
    pub(super) fn end_handler(&mut self) -> Result<(), Errno> {
        let before = *self.threads.registers();
        let restored = Restored::read(&before, |address| self.word(address));
        let restored = restored.map_err(|wrong| self.tell_wrong(wrong))?;
        self.set_floats(&restored.floats)?;
        let own = &mut self.threads.current().signals;
        own.mask = restored.mask & !FIXED;
        let [at, flags, bytes] = restored.stack;
        let registers = restored.registers;
        // What is wrong with it is nobody's concern here.
        let _ = own
            .stack
            .set([at, flags & 0xffff_ffff, bytes], registers[SP]);
        self.threads.set_registers(registers);
        Ok(())
    }

    fn tell_wrong(&mut self, wrong: Wrong) -> Errno {
        match wrong {
            Wrong::Absent(error) => error,
            Wrong::Refused(why) => {
                let text = format_args!(
                    "the system sphere {why}, which a handler of a signal wants: it ends as with a \
                     wrong frame"
                );
                self.tell_once(nr::__NR_rt_sigreturn.into(), text);
                Errno(EFAULT)
            }
        }
    }

    fn set_floats(&mut self, floats: &[u64; FLOAT_WORDS]) -> Result<(), Errno> {
        let set = self.machine.set_floats(self.threads.index(), floats);
        set.then_some(()).ok_or(Errno(EFAULT))
    }
}
