//! The agent's own system calls, by meaning: a file a topic.
//!
//! Contract: nobody else names a call by its number. Where one has to be made in another way (ended
//! by a signal, watched, from assembly) or only told of, its topic has a constant for it.

mod attributes;
pub(crate) mod breakpoints;
pub(crate) mod counters;
pub(crate) mod credentials;
mod descriptors;
pub(crate) mod events;
mod files;
mod futex;
mod labels;
mod limits;
mod mapping;
mod memory;
pub(crate) mod numbers;
mod perf;
pub(crate) mod polling;
mod process;
mod replicas;
pub(crate) mod rings;
mod scheduling;
mod segments;
pub(crate) mod semaphores;
mod sharing;
mod signals;
pub(crate) mod sockets;
mod streams;
pub(crate) mod terminals;
pub(crate) mod ticks;
mod time;

pub(crate) use attributes::{
    dispatch_outside, prctl, segment_bases, set_cpuid, set_segment_bases, set_thread_pointer,
};
pub(crate) use credentials::{capabilities, group_ids, user_ids, with_all_groups};
pub(crate) use descriptors::{
    FIRST_OWN, can_be_written, close, close_open, duplicate, fcntl, is_open, is_open_for_both,
    is_open_for_reading, never_waits, replace,
};
pub(crate) use files::{
    FileFacts, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK, Whence, file_facts, file_system, file_type,
    has_no_writer, is_in_memory, is_plain_file_on_disk, keeps_position, new_file_in_memory,
    open_file, open_read, pread, pread_at, pread_raw, pwrite_raw, read, read_words, seek,
    type_bits,
};
pub(crate) use futex::{
    FUTEX, accept_barriers, barrier, futex_wait, futex_wait_any, futex_wait_bit, futex_wake,
    futex_wake_bit,
};
pub(crate) use labels::set_string_ranges;
pub(crate) use limits::{TASK_END, file_size_limit, locked_memory_limit, may_lock_all, unlock_all};
pub(crate) use mapping::{
    advise_clones, forget_changes, lock, mmap, move_mapping, mprotect, munmap,
};
pub(crate) use memory::{
    let_go, may_not_be_dropped, open_memory, read_process, resident, set_dumpable,
    with_most_descriptors, with_open_memory, with_own_memory,
};
pub(crate) use process::{
    clear_personality, close_on_exec, descriptor_of, descriptor_target, each_descriptor, file_at,
    file_of, file_version, getpgrp, getuid, has_terminal, is_open_for_writing, may_execute,
    may_write, mode_and_owner, open_executable, random, set_limit, stack_limit, times,
};
pub(crate) use replicas::{
    CLONE, EXIT, clone_replica, clone_twin, die_with_supervisor, exit_group, fork_replica, getpid,
    leave_if_orphaned, name, set_name, set_robust_list,
};
pub(crate) use scheduling::{
    Attributes, TURN_NS, has_thread, may_schedule, pin, prefer_short_turns, priorities,
    register_rseq, sched_yield,
};
pub(crate) use segments::{SegmentLimits, segment_limits};
pub(crate) use sharing::{give_back, is_unmapped, map_again, seals};
pub(crate) use signals::{
    PAUSE, exchange_signal_mask, ignore_signal, install_handler, set_signal_mask, set_signal_stack,
};
pub(crate) use streams::{
    PWRITE, PWRITEV, read_at_now, read_cached, read_nothing, read_now, read_parts, write_nothing,
    write_now, write_parts,
};
pub(crate) use time::{
    CLOCK_GETTIME, HostTimer, clock, coarse_real_time, cpu_time, monotonic, set_timer,
};

/// A raw kernel error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Turns the kernel's word into a value or an error.
pub(crate) fn check(ret: i64) -> Result<u64, Errno> {
    match rcoe_linux_sys::errno_of(ret) {
        Some(errno) => Err(Errno(errno)),
        None => Ok(ret.cast_unsigned()),
    }
}

/// `-errno` as a system call returns it.
pub(crate) const fn error(errno: u32) -> i64 {
    -(errno as i64)
}
