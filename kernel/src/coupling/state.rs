//! A stopped replica, as the protocol compares it.

use rcoe_core::coupling::{Counted, Machine, Standing, VECTORS, list_digest};
use rcoe_kernel_objects::arch::{CONTEXT_WORDS, FLOAT_WORDS, FPU_WORDS, IP, SP, STATUS, STEPPING};
use rcoe_kernel_objects::{Checksum, Kernel, fpu_words};

use crate::arch;
use crate::sphere::Replicated;

/// Where a replica is, and its program's registers there.
#[derive(Clone, Debug)]
pub(super) struct State {
    standing: Standing,
    context: [u64; CONTEXT_WORDS],
    vectors: [u64; FPU_WORDS],
}

impl State {
    /// The present one.
    pub(super) fn of(kernel: &mut Kernel<'static, Replicated>, at_call: bool) -> Self {
        let mut vectors = [0; FPU_WORDS];
        kernel.save_fpu(|memory, of| {
            arch::save_fpu(memory, of);
            vectors.copy_from_slice(fpu_words(memory, of));
        });
        let mut context = *kernel.context();
        kernel.tame(&mut context);
        let signature = kernel.sphere.signature();
        let standing = Standing {
            events: signature.events,
            signature: [signature.a, signature.b],
            at_call,
            progress: kernel.sphere.progress(),
            ip: context[IP],
            left: 0,
            counted: Counted::default(),
        };
        Self {
            standing,
            context,
            vectors,
        }
    }

    /// Is the thread stepped?
    pub(super) fn steps(&self) -> bool {
        let word = STEPPING.map(|_| self.vectors[FLOAT_WORDS]);
        word.is_some_and(|word| word != 0)
    }
}

impl Machine for State {
    fn standing(&self) -> Standing {
        self.standing
    }

    fn registers(&self, out: &mut [u64]) {
        let mut sum = Checksum::default();
        sum.words(&self.context);
        let words = [
            self.context[IP],
            self.context[SP],
            self.context[STATUS],
            sum.digest(),
        ];
        out.copy_from_slice(&words);
    }

    fn written(&mut self, _list: &mut [u64]) -> Option<usize> {
        Some(0)
    }

    fn seal(&mut self, _room: usize) -> Option<u64> {
        Some(list_digest(&[]))
    }

    fn area(&self, area: u64, out: &mut [u64]) -> usize {
        let words = if area == VECTORS { FPU_WORDS } else { 0 };
        let len = words.min(out.len());
        out[..len].copy_from_slice(&self.vectors[..len]);
        len
    }

    fn within(&self, _area: u64, _at: usize) -> Option<u64> {
        None
    }

    fn everything(&self) -> u64 {
        0
    }
}
