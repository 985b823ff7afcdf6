//! Message words: the first in registers, the rest in the IPC buffer.

use rcoe_abi::{FIRST_BUFFER_WORD, IN_REGISTERS, MAX_MESSAGE, MessageInfo};

use crate::arch::{CAP, INFO, MESSAGE};
use crate::grant::{Grant, Taken};
use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

impl<S: Sphere> Kernel<'_, S> {
    /// What the thread sends.
    pub(crate) fn info(&self, tcb: Ref) -> MessageInfo {
        MessageInfo::from_word(self.register(tcb, INFO))
    }

    pub(crate) fn buffer(&self, tcb: Ref) -> Option<Ref> {
        match self.cap(Self::buffer_slot(tcb)) {
            Cap::Frame { obj, .. } => Some(obj),
            _ => None,
        }
    }

    /// Message word `index`; 0 where there is no buffer to hold it.
    pub(crate) fn word(&self, tcb: Ref, index: usize) -> u64 {
        assert!(index < MAX_MESSAGE);
        match MESSAGE.get(index) {
            Some(&register) => self.register(tcb, register),
            None => self
                .buffer(tcb)
                .map_or(0, |buffer| self.mem.get(buffer, FIRST_BUFFER_WORD + index)),
        }
    }

    pub(crate) fn set_word(&mut self, tcb: Ref, index: usize, value: u64) {
        assert!(index < MAX_MESSAGE);
        match MESSAGE.get(index) {
            Some(&register) => self.set_register(tcb, register, value),
            None => {
                if let Some(buffer) = self.buffer(tcb) {
                    self.mem.set(buffer, FIRST_BUFFER_WORD + index, value);
                }
            }
        }
    }

    /// What a thread gets to know: badge, label and words.
    pub(crate) fn deliver(&mut self, tcb: Ref, badge: u64, label: u64, words: &[u64]) {
        for (index, &word) in words.iter().enumerate() {
            self.set_word(tcb, index, word);
        }
        self.set_register(tcb, CAP, badge);
        let info = MessageInfo::new(label, words.len());
        self.set_register(tcb, INFO, info.word());
    }

    /// Copies a message from one thread to another, with its capabilities if they are granted.
    pub(crate) fn transfer(&mut self, from: Ref, to: Ref, badge: u64, grant: Option<Grant>) {
        let info = self.info(from);
        let len = info.len();
        for index in 0..len.min(IN_REGISTERS) {
            let word = self.word(from, index);
            self.set_word(to, index, word);
        }
        if len > IN_REGISTERS {
            self.transfer_buffer(from, to, len);
        }
        let taken = grant.map_or(Taken::default(), |grant| self.grant(from, to, grant));
        self.set_register(to, CAP, badge);
        let info = MessageInfo::new(info.label(), len).with_caps(taken.caps, taken.unwrapped);
        self.set_register(to, INFO, info.word());
    }

    fn transfer_buffer(&mut self, from: Ref, to: Ref, len: usize) {
        let first = FIRST_BUFFER_WORD + IN_REGISTERS;
        match (self.buffer(from), self.buffer(to)) {
            (Some(source), Some(target)) => {
                self.mem
                    .copy((source, first), (target, first), len - IN_REGISTERS);
            }
            (None, Some(target)) => {
                let words = self.mem.words_mut(target, first, len - IN_REGISTERS);
                words.fill(0);
            }
            (_, None) => {}
        }
    }
}
