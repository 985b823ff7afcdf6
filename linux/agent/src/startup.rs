//! The initial stack: what the kernel left for the agent, and what the program will find.
//!
//! The kernel lays out `argc`, `argv`, `envp` and the auxiliary vector, with the strings above
//! them. The agent's own two arguments come first, so the program's strings are already in their
//! place; only the vectors are built anew, just below.

use linux_raw_sys::auxvec as at;

use crate::memory::loader::Image;

/// The kernel's initial stack, parsed.
#[derive(Debug)]
pub(crate) struct InitialStack {
    start: *const u64,
    argc: usize,
    envc: usize,
    auxc: usize,
}

/// Number of arguments that are the agent's own: its name and the list of descriptors.
const OWN_ARGS: usize = 2;

impl InitialStack {
    /// Parses the stack `exec` set up.
    ///
    /// # Safety
    /// `start` must be the stack pointer at the process's entry point.
    pub(crate) unsafe fn new(start: *const u64) -> Self {
        // SAFETY: the kernel's layout: a count, that many pointers, NULL, environment, NULL,
        // pairs up to AT_NULL.
        let word = |i: usize| unsafe { start.add(i).read() };
        let argc = usize::try_from(word(0)).expect("64-bit");
        let env = argc + 2;
        let envc = (0..).take_while(|i| word(env + i) != 0).count();
        let aux = env + envc + 1;
        let auxc = (0..).take_while(|i| word(aux + 2 * i) != 0).count();
        assert!(
            argc > OWN_ARGS,
            "the supervisor passes descriptors and a program"
        );
        Self {
            start,
            argc,
            envc,
            auxc,
        }
    }

    fn word(&self, index: usize) -> u64 {
        assert!(index < self.argc + self.envc + 3 + 2 * (self.auxc + 1));
        // SAFETY: within the vectors counted in `new`.
        unsafe { self.start.add(index).read() }
    }

    /// The agent's own argument: the list of descriptors.
    pub(crate) fn descriptors(&self) -> &'static [u8] {
        let text = self.word(2) as *const u8;
        // SAFETY: the kernel terminates argument strings; they stay for the process's life.
        unsafe { core::ffi::CStr::from_ptr(text.cast()) }.to_bytes()
    }

    fn aux(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let base = self.argc + self.envc + 3;
        (0..self.auxc).map(move |i| (self.word(base + 2 * i), self.word(base + 2 * i + 1)))
    }

    /// A value of the auxiliary vector.
    pub(crate) fn aux_value(&self, key: u32) -> Option<u64> {
        self.aux()
            .find(|(k, _)| *k == u64::from(key))
            .map(|(_, value)| value)
    }

    /// First and last byte of the program's argument strings (as for `/proc/self/cmdline`).
    pub(crate) fn argument_strings(&self) -> (u64, u64) {
        let first = self.word(1 + OWN_ARGS);
        let end = if self.envc > 0 {
            self.word(self.argc + 2)
        } else {
            first
        };
        (first, end)
    }

    /// First byte past the environment's strings.
    pub(crate) fn end_of_environment(&self) -> u64 {
        let Some(last) = self.envc.checked_sub(1) else {
            return self.argument_strings().1;
        };
        let last = self.word(self.argc + 2 + last);
        // SAFETY: the kernel has put a string there that ends with NUL.
        let text = unsafe { core::ffi::CStr::from_ptr(last as *const core::ffi::c_char) };
        last + text.to_bytes_with_nul().len() as u64
    }

    /// Where the stack ends: the kernel has put the path of the image there, and a word of zeros.
    pub(crate) fn top(&self) -> u64 {
        let path = self.aux_value(at::AT_EXECFN).expect("the kernel tells it");
        // SAFETY: a string that ends with NUL, on the stack.
        let text = unsafe { core::ffi::CStr::from_ptr(path as *const core::ffi::c_char) };
        (path + text.to_bytes_with_nul().len() as u64).next_multiple_of(4096)
    }

    /// The auxiliary vector as a program finds it; its paths are those of this one.
    pub(crate) fn program_aux(&self, image: &Image) -> impl Iterator<Item = (u64, u64)> {
        self.aux().filter_map(move |(key, value)| {
            program_aux(key, value, image, 0).map(|value| (key, value))
        })
    }

    /// Builds the program's vectors below the kernel's and returns its stack pointer.
    ///
    /// `exe_string` is the address of the program's path, for `AT_EXECFN`.
    pub(crate) fn build(&self, image: &Image, exe_string: u64) -> u64 {
        let words = 1 + (self.argc - OWN_ARGS + 1) + (self.envc + 1) + 2 * (self.auxc + 8);
        let bottom = (self.start as u64 - 8 * words as u64) & !15;
        let mut writer = Writer {
            next: bottom as *mut u64,
            end: self.start,
        };
        writer.push((self.argc - OWN_ARGS) as u64);
        for i in OWN_ARGS..self.argc {
            writer.push(self.word(1 + i));
        }
        writer.push(0);
        for i in 0..=self.envc {
            writer.push(self.word(self.argc + 2 + i));
        }
        for (key, value) in self.aux() {
            if let Some(value) = program_aux(key, value, image, exe_string) {
                writer.push(key);
                writer.push(value);
            }
        }
        writer.push(0);
        writer.push(0);
        bottom
    }
}

/// The program's value of one auxiliary entry; `None` to leave it out.
fn program_aux(key: u64, value: u64, image: &Image, exe_string: u64) -> Option<u64> {
    // AT_RSEQ_FEATURE_SIZE and AT_RSEQ_ALIGN: rseq is refused, see the system call table.
    const RSEQ: [u64; 2] = [27, 28];
    match u32::try_from(key).expect("small keys") {
        // The host's would read the clock behind the agent's back.
        at::AT_SYSINFO_EHDR => (image.vdso.0 != 0).then_some(image.vdso.0),
        _ if RSEQ.contains(&key) => None,
        at::AT_PHDR => Some(image.phdr),
        at::AT_PHENT => Some(56),
        at::AT_PHNUM => Some(image.phnum),
        at::AT_BASE => Some(image.interpreter_base),
        at::AT_ENTRY => Some(image.program_entry),
        at::AT_EXECFN => Some(exe_string),
        _ => Some(value),
    }
}

/// Writes words upwards, never past `end`.
struct Writer {
    next: *mut u64,
    end: *const u64,
}

impl Writer {
    fn push(&mut self, word: u64) {
        assert!(
            self.next.cast_const() < self.end,
            "the program's vectors fit"
        );
        // SAFETY: between the new stack pointer and the kernel's vectors; the stack grows on
        // touch.
        unsafe {
            self.next.write(word);
            self.next = self.next.add(1);
        }
    }
}
