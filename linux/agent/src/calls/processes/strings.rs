//! Arguments and environment on their way from the old program to the new one's stack.
//!
//! They are gathered into one block, in the order in which the kernel lays them: arguments,
//! environment, the path; each with its NUL. The block lies in the agent's window, where it
//! survives the old program's memory.
//!
//! Layout of the new stack, downwards: an empty word, the block, the platform's name, random bytes,
//! the auxiliary vector, the environment's pointers, the arguments' pointers, their number.

use linux_raw_sys::auxvec as at;
use linux_raw_sys::errno::E2BIG;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE};

use crate::memory::guest::{self, Fault};
use crate::memory::loader::Image;
use crate::sys;

/// Where the block lies, within the agent's window.
const BLOCK: u64 = 0x6f38_0000_0000;
/// Most bytes of strings and pointers, whatever the stack's limit.
const LARGEST: u64 = 6 << 20;
/// Least that is allowed, whatever the stack's limit.
const SMALLEST: u64 = 128 << 10;
/// Longest single string, with its NUL.
const LONGEST: u64 = 128 << 10;

/// The gathered strings.
#[derive(Clone, Copy)]
pub(super) struct Strings {
    len: u64,
    /// Bytes and pointers together, as the limit counts them.
    charged: u64,
    limit: u64,
    argc: u64,
    envc: u64,
}

impl Strings {
    /// An empty block.
    pub(super) fn new() -> Self {
        let prot = PROT_READ | PROT_WRITE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: a part of the agent's window that is used for nothing else.
        unsafe { sys::mmap(BLOCK, LARGEST + LONGEST, prot, flags, -1, 0) }.expect("address space");
        Self {
            len: 0,
            charged: 0,
            limit: (sys::stack_limit() / 4).clamp(SMALLEST, LARGEST),
            argc: 0,
            envc: 0,
        }
    }

    /// Gives the block's memory back.
    pub(super) fn drop_block() {
        // SAFETY: the block is used up.
        let _ = unsafe { sys::munmap(BLOCK, LARGEST + LONGEST) };
    }

    fn charge(&mut self, len: u64) -> Result<(), i64> {
        self.charged += len + 8;
        if len > LONGEST || self.charged > self.limit {
            return Err(sys::error(E2BIG));
        }
        Ok(())
    }

    /// Appends the agent's own string, which ends with NUL.
    pub(super) fn push(&mut self, text: &[u8]) -> Result<(), i64> {
        assert_eq!(text.last(), Some(&0), "strings end with NUL");
        self.charge(text.len() as u64)?;
        guest::copy_out(BLOCK + self.len, text).expect("the block has room");
        self.len += text.len() as u64;
        Ok(())
    }

    /// Appends an argument of the agent's own.
    pub(super) fn push_argument(&mut self, text: &[u8]) -> Result<(), i64> {
        self.argc += 1;
        self.push(text)
    }

    /// Appends the program's strings from a vector of pointers, but for the first `skip`; returns
    /// how many.
    fn push_vector(&mut self, vector: u64, skip: u64) -> Result<u64, i64> {
        let fault = |Fault| Fault::RESULT;
        let mut count = 0;
        for at in (0..).map(|i| vector.wrapping_add(8 * i)) {
            if vector == 0 {
                break;
            }
            let pointer = guest::read::<u64>(at).map_err(fault)?;
            if pointer == 0 {
                break;
            }
            count += 1;
            if count <= skip {
                continue;
            }
            if guest::is_reserved(pointer) {
                return Err(Fault::RESULT);
            }
            let len = guest::string_len(pointer, LONGEST).map_err(fault)? + 1;
            self.charge(len)?;
            guest::copy_across(BLOCK + self.len, pointer, len).map_err(fault)?;
            self.len += len;
        }
        Ok(count)
    }

    /// Appends the program's arguments, but for the first `skip`. As Linux does since 5.18, a
    /// program that is given none gets an empty one, for the sake of those that rely on one.
    pub(super) fn push_arguments(&mut self, vector: u64, skip: u64) -> Result<(), i64> {
        let count = self.push_vector(vector, skip)?;
        self.argc += count.saturating_sub(skip);
        if self.argc == 0 {
            self.push_argument(b"\0")?;
        }
        Ok(())
    }

    /// Appends the program's environment.
    pub(super) fn push_environment(&mut self, vector: u64) -> Result<(), i64> {
        self.envc = self.push_vector(vector, 0)?;
        Ok(())
    }

    /// Digest of all strings.
    pub(super) fn digest(&self) -> u64 {
        guest::digest(BLOCK, self.len).expect("the block is ours")
    }

    /// Builds the new stack below `top`; returns the stack pointer and where the arguments'
    /// strings lie.
    pub(super) fn build(
        &self,
        top: u64,
        image: &Image,
        aux: &[(u64, u64)],
        random: [u64; 2],
    ) -> Stack {
        const PLATFORM: &[u8] = b"x86_64\0";
        let block = top - 8 - self.len;
        put_block(block, self.len);
        let platform = block - PLATFORM.len() as u64;
        guest::copy_out(platform, PLATFORM).expect("the new stack has room");
        let random_at = (platform - 16) & !15;
        guest::write(random_at, &random).expect("the new stack has room");
        let words = 1 + self.argc + 1 + self.envc + 1 + 2 * (aux.len() as u64 + 9);
        let rsp = (random_at - 8 * words) & !15;
        let mut writer = Writer { next: rsp };
        writer.push(self.argc);
        let mut string = block;
        for _ in 0..self.argc {
            writer.push_string(&mut string);
        }
        let environment = string;
        writer.push(0);
        for _ in 0..self.envc {
            writer.push_string(&mut string);
        }
        writer.push(0);
        let path = string;
        for (key, value) in aux {
            let value = match u32::try_from(*key).expect("small keys") {
                at::AT_SYSINFO_EHDR => image.vdso.0,
                at::AT_PHDR => image.phdr,
                at::AT_PHNUM => image.phnum,
                at::AT_BASE => image.interpreter_base,
                at::AT_ENTRY => image.program_entry,
                at::AT_EXECFN => string,
                at::AT_RANDOM => random_at,
                at::AT_PLATFORM => platform,
                _ => *value,
            };
            writer.push(*key);
            writer.push(value);
        }
        writer.push(0);
        writer.push(0);
        Stack {
            rsp,
            arguments: block,
            environment,
            path,
        }
    }
}

/// A new program's stack.
pub(super) struct Stack {
    pub(super) rsp: u64,
    /// First byte of the arguments' strings.
    pub(super) arguments: u64,
    /// First byte past them, and of the environment's.
    pub(super) environment: u64,
    /// First byte past these.
    pub(super) path: u64,
}

fn put_block(to: u64, len: u64) {
    guest::copy_across(to, BLOCK, len).expect("the new stack has room");
}

/// Writes words upwards.
struct Writer {
    next: u64,
}

impl Writer {
    fn push(&mut self, word: u64) {
        guest::write(self.next, &word).expect("the new stack has room");
        self.next += 8;
    }

    /// Writes where a string begins, and goes on behind it.
    fn push_string(&mut self, at: &mut u64) {
        self.push(*at);
        let len = guest::string_len(*at, u64::MAX).expect("strings end with NUL");
        *at += len + 1;
    }
}
