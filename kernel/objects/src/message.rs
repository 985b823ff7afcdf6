//! Message words: the first in registers, the rest in the IPC buffer.

use rcoe_abi::{FIRST_BUFFER_WORD, IN_REGISTERS, MAX_MESSAGE, MessageInfo};
use rcoe_core::{Compare, mix};

use crate::arch::{CAP, CONTEXT_WORDS, INFO, MESSAGE};
use crate::grant::{Grant, Taken};
use crate::kernel::Kernel;
use crate::sphere::{Sphere, kind};
use crate::{Cap, Ref};

const _: () = assert!(FIRST_BUFFER_WORD + MAX_MESSAGE <= 512, "a buffer is a page");

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

    /// What a thread gets to know: badge, label and words. They join the trace.
    #[inline]
    pub(crate) fn deliver(&mut self, tcb: Ref, badge: u64, label: u64, words: &[u64]) {
        self.deliver_own(tcb, badge, label, words, words.len());
    }

    /// As [`Self::deliver`], where only the first `told` words are the same in all replicas.
    pub(crate) fn deliver_own(
        &mut self,
        tcb: Ref,
        badge: u64,
        label: u64,
        words: &[u64],
        told: usize,
    ) {
        for (index, &word) in words.iter().enumerate() {
            self.set_word(tcb, index, word);
        }
        self.set_register(tcb, CAP, badge);
        let info = MessageInfo::new(label, words.len());
        self.set_register(tcb, INFO, info.word());
        self.tell_words(tcb, told);
    }

    /// Folds what a thread is told into the trace, as it stands there now, where all is compared:
    /// label and badge, all words, and the badges that came instead of capabilities.
    #[inline]
    pub(crate) fn tell(&mut self, tcb: Ref) {
        self.tell_words(tcb, MAX_MESSAGE);
    }

    #[inline]
    fn tell_words(&mut self, tcb: Ref, most: usize) {
        if self.sphere.compare() == Compare::Every {
            self.tell_compared(tcb, most);
        }
    }

    #[inline(never)]
    fn tell_compared(&mut self, tcb: Ref, most: usize) {
        let digest = self.digest_message(tcb, most);
        self.sphere.event(kind::DELIVERED, digest);
    }

    /// A digest of the message that a thread has in its registers and its buffer, of at most so
    /// many words, with what stands for capabilities.
    #[inline]
    pub(crate) fn digest_message(&self, tcb: Ref, most: usize) -> u64 {
        let info = self.info(tcb);
        let digest = mix(mix(self.register(tcb, CAP)) ^ info.word());
        let (len, caps) = (info.len().min(most), info.caps());
        if len + caps == 0 {
            return digest;
        }
        self.digest_rest(tcb, (len, caps), digest)
    }

    #[inline(never)]
    fn digest_rest(&self, tcb: Ref, (len, caps): (usize, usize), digest: u64) -> u64 {
        let context = self.mem.words(tcb, 0, CONTEXT_WORDS);
        let mut digest = digest;
        for &register in &MESSAGE[..len.min(IN_REGISTERS)] {
            digest = mix(digest ^ context[register]);
        }
        if len <= IN_REGISTERS && caps == 0 {
            return digest;
        }
        self.digest_buffer(tcb, (len, caps), digest)
    }

    /// The rest of such a digest: what is in the buffer; zeroes without one.
    #[cold]
    #[inline(never)]
    fn digest_buffer(&self, tcb: Ref, (len, caps): (usize, usize), digest: u64) -> u64 {
        let words = (IN_REGISTERS..len).map(|index| self.word(tcb, index));
        let caps = (0..caps).map(|index| self.caps_word(tcb, index));
        let all = words.chain(caps);
        all.fold(digest, |digest, word| mix(digest ^ word))
    }

    /// Copies a message from one thread to another, with its capabilities if they are granted.
    pub(crate) fn transfer(&mut self, from: Ref, to: Ref, badge: u64, grant: Option<Grant>) {
        let info = self.info(from);
        let len = info.len();
        let registers = &MESSAGE[..len.min(IN_REGISTERS)];
        self.mem.copy_some(from, to, registers);
        if len > IN_REGISTERS {
            self.transfer_buffer(from, to, len);
        }
        let taken = grant.map_or(Taken::default(), |grant| self.grant(from, to, grant));
        self.set_register(to, CAP, badge);
        let info = MessageInfo::new(info.label(), len).with_caps(taken.caps, taken.unwrapped);
        self.set_register(to, INFO, info.word());
        self.tell(to);
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
