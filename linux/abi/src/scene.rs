//! Where the program stood in a replica when replicas were found to differ.
//!
//! Written by the replica itself on its way out of a vote that removes a member, or into its halt;
//! read by the supervisor afterwards. Those who go on have moved by then.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// General registers in the order in which the agent's entry saves them.
pub const GENERAL: usize = 15;
/// In [`Scene::registers`]: the instruction pointer.
pub const RIP: usize = GENERAL;
/// In [`Scene::registers`]: the code segment.
pub const CS: usize = GENERAL + 1;
/// In [`Scene::registers`]: the flags.
pub const FLAGS: usize = GENERAL + 2;
/// In [`Scene::registers`]: the stack pointer.
pub const RSP: usize = GENERAL + 3;
/// In [`Scene::registers`]: the stack segment.
pub const SS: usize = GENERAL + 4;
/// In [`Scene::registers`]: the frame pointer, if the program keeps one there.
pub const RBP: usize = 10;
/// In [`Scene::registers`]: the number of the call, or its result.
pub const RAX: usize = GENERAL - 1;
/// In [`Scene::registers`]: a call's arguments.
pub const ARGUMENTS: [usize; 6] = [8, 9, 12, 5, 7, 6];
/// All saved registers.
pub const REGISTERS: usize = GENERAL + 5;
/// Beside a call's number, as the protocol knows it: it makes, replaces, awaits or ends processes.
pub const LASTING: u64 = 1 << 63;
/// How much of the program's stack is kept, in words.
pub const STACK_WORDS: usize = 1024;

/// Bytes of a stub that stands for a rewritten call, and of which it begins at a multiple.
pub const STUB_BYTES: u64 = 64;
/// Offset within a stub at which it goes on behind the call.
pub const STUB_RETURN: u64 = 13;
/// Offset within a stub of the address of the agent's entry.
pub const STUB_ENTRY: u64 = 48;
/// Offset within a stub of the address of the call that it stands for.
pub const STUB_CALL: u64 = 56;

/// In `rsi` when a replica traps for [`crate::Order::Pause`]; the address of the program's saved
/// registers is in `rdi` then.
pub const PAUSE: u64 = 0x7263_6f65_7061_7573;

/// What a replica leaves.
#[repr(C)]
#[derive(Debug)]
pub struct Scene {
    /// How many it has left; stored last.
    pub count: AtomicU32,
    /// 1 if the program stood at a system call, of which the registers tell.
    pub known: AtomicU32,
    /// Members that the vote removed, one bit each; 0 if this replica halted.
    pub gone: AtomicU32,
    /// Number of that call, as far as the protocol knows it.
    pub call: AtomicU64,
    /// Where in the agent's memory the program's registers lie during a call; told as a
    /// vote begins.
    pub frame: AtomicU64,
    /// Where in the agent's memory the number of the present call lies; told as a vote begins.
    pub asked: AtomicU64,
    /// The registers.
    pub registers: [AtomicU64; REGISTERS],
    /// Bases of the segments fs and gs.
    pub bases: [AtomicU64; 2],
    /// If the instruction pointer is in a stub: the call that the stub stands for.
    pub behind: AtomicU64,
    /// Words of the stack that could be read.
    pub stack_len: AtomicU32,
    /// The stack, from the stack pointer on.
    pub stack: [AtomicU64; STACK_WORDS],
}
