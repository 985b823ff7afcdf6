//! The agent's own system calls, by meaning.

pub(crate) mod credentials;
mod labels;
mod limits;
mod memory;
mod process;
mod scheduling;
mod sharing;
pub(crate) mod sockets;
mod streams;
pub(crate) mod ticks;

use core::mem::MaybeUninit;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall0, syscall1, syscall2, syscall3, syscall4, syscall6};

pub(crate) use labels::set_string_ranges;
pub(crate) use limits::{TASK_END, file_size_limit, locked_memory_limit, may_lock_all, unlock_all};
pub(crate) use memory::{
    let_go, may_not_be_dropped, open_file, open_memory, read, read_process, read_words, resident,
    set_dumpable, with_most_descriptors, with_open_memory, with_own_memory,
};
pub(crate) use process::{
    advise_clones, clear_personality, close_on_exec, descriptor_target, each_descriptor, file_at,
    file_of, file_version, fork_replica, getgid, getpgrp, getuid, has_terminal,
    is_open_for_writing, may_execute, may_write, mode, open_executable, random, set_limit,
    set_thread_pointer, stack_limit, unlock_all_memory,
};
pub(crate) use scheduling::{pin, prefer_short_turns, register_rseq, sched_yield};
pub(crate) use sharing::{
    futex_wait_bit, futex_wake_bit, give_back, is_in_memory, is_unmapped, map_again, seals,
};
pub(crate) use streams::{read_cached, read_now, read_parts, write_now};

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

/// Maps memory.
///
/// # Safety
/// With `MAP_FIXED` whatever was there is gone; the caller must own that range.
pub(crate) unsafe fn mmap(
    addr: u64,
    len: u64,
    prot: u32,
    flags: u32,
    fd: i32,
    offset: u64,
) -> Result<u64, Errno> {
    let args = [
        addr,
        len,
        u64::from(prot),
        u64::from(flags),
        i64::from(fd).cast_unsigned(),
        offset,
    ];
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall6(u64::from(nr::__NR_mmap), args) })
}

/// Unmaps memory.
///
/// # Safety
/// Nothing may use the range any more.
pub(crate) unsafe fn munmap(addr: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall2(u64::from(nr::__NR_munmap), addr, len) }).map(drop)
}

/// Changes the protection of memory.
///
/// # Safety
/// Whoever uses the range must be content with the new protection.
pub(crate) unsafe fn mprotect(addr: u64, len: u64, prot: u32) -> Result<(), Errno> {
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall3(u64::from(nr::__NR_mprotect), addr, len, u64::from(prot)) }).map(drop)
}

/// Closes a descriptor.
pub(crate) fn close(fd: i32) {
    // SAFETY: closing touches no memory. An error leaves nothing to be done.
    let _ = unsafe { syscall1(u64::from(nr::__NR_close), i64::from(fd).cast_unsigned()) };
}

/// Closes a descriptor; false if it was not open.
pub(crate) fn close_open(fd: u32) -> bool {
    // SAFETY: closing touches no memory.
    let done = unsafe { syscall1(u64::from(nr::__NR_close), fd.into()) };
    done != error(linux_raw_sys::errno::EBADF)
}

/// Opens a file read-only, close-on-exec; `path` ends with NUL.
pub(crate) fn open_read(path: &[u8]) -> Result<i32, Errno> {
    open_file(path, false)
}

/// Reads at an offset; returns the bytes read.
pub(crate) fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    // SAFETY: the buffer is valid for its length.
    let read = unsafe {
        syscall4(
            u64::from(nr::__NR_pread64),
            i64::from(fd).cast_unsigned(),
            buffer.as_mut_ptr() as u64,
            buffer.len() as u64,
            offset,
        )
    };
    check(read).map(|read| usize::try_from(read).expect("64-bit"))
}

/// What an offset is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Whence {
    Start = 0,
    Current = 1,
}

/// Moves, or only tells, the position of an open file; `None` if it has none.
pub(crate) fn seek(fd: u64, offset: u64, whence: Whence) -> Option<u64> {
    // SAFETY: no memory involved.
    let at = unsafe { syscall3(u64::from(nr::__NR_lseek), fd, offset, whence as u64) };
    u64::try_from(at).ok()
}

/// Does the open file have a position that reading and writing move? That is so for regular files,
/// directories and block devices; others may answer `lseek` all the same.
pub(crate) fn keeps_position(fd: u64) -> bool {
    const TYPE: u32 = 0o170_000;
    const KEEPING: [u32; 3] = [0o100_000, 0o040_000, 0o060_000];
    file_status(fd).is_some_and(|stat| KEEPING.contains(&(stat.st_mode & TYPE)))
}

/// Mode and device number of an open file; `None` if there is none.
pub(crate) fn file_type(fd: u64) -> Option<(u32, u64)> {
    file_status(fd).map(|stat| (stat.st_mode, stat.st_rdev))
}

/// What identifies an open file, and its size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FileFacts {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
}

/// The facts of an open file; `None` if there is none.
pub(crate) fn file_facts(fd: u64) -> Option<FileFacts> {
    let stat = file_status(fd)?;
    Some(FileFacts {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
    })
}

fn file_status(fd: u64) -> Option<nr::stat> {
    let mut stat = MaybeUninit::<nr::stat>::uninit();
    // SAFETY: the structure is the kernel's, and valid for writing.
    let done = unsafe { syscall2(u64::from(nr::__NR_fstat), fd, stat.as_mut_ptr() as u64) };
    // SAFETY: the kernel has filled it if it says so.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

/// Was the file opened for reading and writing?
pub(crate) fn is_open_for_both(fd: u64) -> bool {
    access_mode(fd) == Some(nr::O_RDWR)
}

/// Was the file opened for writing?
pub(crate) fn can_be_written(fd: u64) -> bool {
    matches!(access_mode(fd), Some(nr::O_WRONLY | nr::O_RDWR))
}

fn access_mode(fd: u64) -> Option<u32> {
    let get = u64::from(nr::F_GETFL);
    // SAFETY: no memory involved.
    let flags = unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, get, 0) };
    let flags = u64::try_from(flags).ok()?;
    u32::try_from(flags & u64::from(nr::O_ACCMODE)).ok()
}

/// Duplicates a descriptor to a free number from `least` on, to be closed at `execve`.
pub(crate) fn duplicate(fd: u64, least: u64) -> i64 {
    let command = u64::from(nr::F_DUPFD_CLOEXEC);
    // SAFETY: no memory involved.
    unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, command, least) }
}

/// Is there such a descriptor?
pub(crate) fn is_open(fd: i32) -> bool {
    let fd = i64::from(fd).cast_unsigned();
    // SAFETY: no memory involved.
    unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, u64::from(nr::F_GETFD), 0) >= 0 }
}

/// Writes the program's memory to a file; 0 or an error.
pub(crate) fn pwrite_raw(fd: i32, from: u64, len: usize, offset: u64) -> i64 {
    let fd = i64::from(fd).cast_unsigned();
    // SAFETY: the kernel checks the address and only reads there.
    let written = unsafe { syscall4(u64::from(nr::__NR_pwrite64), fd, from, len as u64, offset) };
    match u64::try_from(written) {
        Ok(all) if all == len as u64 => 0,
        Ok(_) => error(linux_raw_sys::errno::ENOSPC),
        Err(_) => written,
    }
}

/// Drops the private copies of a private file mapping, so that it shows the file again.
pub(crate) fn forget_changes(start: u64, len: u64) {
    let advice = u64::from(nr::MADV_DONTNEED);
    // SAFETY: the caller has made the file hold what the pages hold. Locked pages stay, which does
    // no harm: they hold the same.
    let _ = unsafe { syscall3(u64::from(nr::__NR_madvise), start, len, advice) };
}

/// Reads at an offset to any address; the caller finds out by comparing what came.
pub(crate) fn pread_raw(fd: i32, to: u64, len: usize, offset: u64) {
    // SAFETY: the kernel checks the address; callers name memory that this call may change.
    let _ = unsafe {
        syscall4(
            u64::from(nr::__NR_pread64),
            i64::from(fd).cast_unsigned(),
            to,
            len as u64,
            offset,
        )
    };
}

/// This process's id in the host.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { syscall0(u64::from(nr::__NR_getpid)) };
    u32::try_from(pid).expect("process ids are positive")
}

/// The parent's id in the host.
pub(crate) fn getppid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { syscall0(u64::from(nr::__NR_getppid)) };
    u32::try_from(pid).expect("process ids are positive")
}

/// Ends the process.
pub(crate) fn exit_group(status: u8) -> ! {
    loop {
        // SAFETY: ends everything.
        unsafe { syscall1(u64::from(nr::__NR_exit_group), u64::from(status)) };
    }
}

/// Nanoseconds on a clock.
pub(crate) fn clock(id: i32) -> Option<u64> {
    let mut time = [0_i64; 2];
    let id = i64::from(id).cast_unsigned();
    // SAFETY: the result buffer is a timespec.
    let ret = unsafe {
        syscall2(
            u64::from(nr::__NR_clock_gettime),
            id,
            time.as_mut_ptr() as u64,
        )
    };
    check(ret).ok()?;
    Some(
        time[0]
            .cast_unsigned()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(time[1].cast_unsigned()),
    )
}

/// CPU time of a process in nanoseconds; `None` if it is gone.
pub(crate) fn cpu_time(pid: u32) -> Option<u64> {
    // MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel's posix-timers interface.
    clock((!pid.cast_signed() << 3) | 2)
}

/// Monotonic time in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    clock(1).expect("CLOCK_MONOTONIC always works")
}

/// Sleeps while `*word == expected`, at most `timeout_ns`; says whether that time is over.
pub(crate) fn futex_wait(word: *const u32, expected: u32, timeout_ns: u64) -> bool {
    let timeout = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
    // SAFETY: the word is in memory shared by the replicas, the timeout is a timespec. Shared
    // futex: processes, not threads, meet here.
    let ended = unsafe {
        syscall4(
            u64::from(nr::__NR_futex),
            word as u64,
            0,
            u64::from(expected),
            timeout.as_ptr() as u64,
        )
    };
    ended == error(linux_raw_sys::errno::ETIMEDOUT)
}

/// Wakes all sleepers on `word`.
pub(crate) fn futex_wake(word: *const u32) {
    // SAFETY: waking touches no memory.
    let _ = unsafe {
        syscall3(
            u64::from(nr::__NR_futex),
            word as u64,
            1,
            u64::from(i32::MAX.cast_unsigned()),
        )
    };
}

/// Sleeps until one of the words no longer has its expected value or is woken, at most
/// `timeout_ns`; says whether that time is over.
pub(crate) fn futex_wait_any(words: &[(*const u32, u32)], timeout_ns: u64) -> bool {
    /// `struct futex_waitv` of the kernel.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const SIZE_U32: u32 = 2;
    let mut waiters = [Waiter::default(); 3];
    for (waiter, (word, expected)) in waiters.iter_mut().zip(words) {
        *waiter = Waiter {
            value: u64::from(*expected),
            address: *word as u64,
            flags: SIZE_U32,
            reserved: 0,
        };
    }
    let end = monotonic() + timeout_ns;
    let end = [end / 1_000_000_000, end % 1_000_000_000];
    // SAFETY: waiters and timeout are valid; the words lie in memory the replicas share.
    let ret = unsafe {
        rcoe_linux_sys::syscall5(
            u64::from(nr::__NR_futex_waitv),
            waiters.as_ptr() as u64,
            words.len() as u64,
            0,
            end.as_ptr() as u64,
            1,
        )
    };
    if ret == error(linux_raw_sys::errno::ENOSYS) {
        // Kernels before 5.16: one word, and a short sleep for the other's sake.
        return futex_wait(words[0].0, words[0].1, timeout_ns.min(10_000_000));
    }
    ret == error(linux_raw_sys::errno::ETIMEDOUT)
}

/// Clones this process as a replica: separate memory, the same parent, and shared what the host
/// keeps for the program: descriptors, file system state, what semaphores get back at its end.
/// Returns 0 in the new replica.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn clone_replica() -> Result<u64, Errno> {
    clone_with(nr::CLONE_SYSVSEM)
}

/// The same of a twin, whose end is none of the program's business.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn clone_twin() -> Result<u64, Errno> {
    clone_with(0)
}

fn clone_with(more: u32) -> Result<u64, Errno> {
    const SIGCHLD: u64 = 17;
    let flags = nr::CLONE_FILES | nr::CLONE_FS | nr::CLONE_PARENT | more;
    let flags = u64::from(flags) | SIGCHLD;
    // SAFETY: as fork: no stack is given, so the child goes on with a copy of this one.
    let ret = unsafe { rcoe_linux_sys::syscall5(u64::from(nr::__NR_clone), flags, 0, 0, 0, 0) };
    check(ret)
}

/// Makes this process die with its parent, which must be `supervisor`.
pub(crate) fn die_with_supervisor(supervisor: u32) {
    const SIGKILL: u64 = 9;
    prctl(linux_raw_sys::prctl::PR_SET_PDEATHSIG, [SIGKILL, 0, 0, 0])
        .expect("every kernel can do this");
    leave_if_orphaned(supervisor);
}

/// Ends this process if its parent, which was `supervisor`, is gone.
pub(crate) fn leave_if_orphaned(supervisor: u32) {
    if getppid() != supervisor {
        exit_group(1);
    }
}

/// `prctl` with up to four arguments.
pub(crate) fn prctl(option: u32, args: [u64; 4]) -> Result<u64, Errno> {
    // SAFETY: every use in the agent passes numbers or pointers that are valid for the option.
    check(unsafe {
        rcoe_linux_sys::syscall5(
            u64::from(nr::__NR_prctl),
            u64::from(option),
            args[0],
            args[1],
            args[2],
            args[3],
        )
    })
}

/// Has the kernel go through this list when the process begins to end.
pub(crate) fn set_robust_list(will: &rcoe_linux_abi::LastWill) {
    let head = &raw const will.head;
    // SAFETY: the list lies in this replica's region, which stays mapped and writable for it. On a
    // kernel without such lists its end is heard of later.
    unsafe {
        syscall2(
            u64::from(nr::__NR_set_robust_list),
            head as u64,
            size_of_val(&will.head) as u64,
        )
    };
}

/// Sets the process's short name from a NUL-terminated string.
pub(crate) fn set_name(name: &[u8]) {
    assert_eq!(name.last(), Some(&0), "the kernel needs a terminated name");
    // Only a label: failure does not matter.
    let _ = prctl(
        linux_raw_sys::prctl::PR_SET_NAME,
        [name.as_ptr() as u64, 0, 0, 0],
    );
}

/// The process's short name, as it is in all replicas alike.
pub(crate) fn name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: the name has room for what the kernel writes.
    let _ = prctl(
        linux_raw_sys::prctl::PR_GET_NAME,
        [name.as_mut_ptr() as u64, 0, 0, 0],
    );
    name
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

fn set_action(signal: u32, action: &Action) {
    // SAFETY: a handler of the agent (or SIG_IGN) with the kernel's layout.
    let ret = unsafe {
        syscall4(
            u64::from(nr::__NR_rt_sigaction),
            u64::from(signal),
            (&raw const *action) as u64,
            0,
            8,
        )
    };
    check(ret).expect("only SIGKILL and SIGSTOP refuse a handler");
}

/// Installs a handler of the agent, on its signal stack, re-entrant.
pub(crate) fn install_handler(signal: u32, handler: u64, restorer: u64) {
    let flags = nr::SA_SIGINFO | nr::SA_ONSTACK | nr::SA_NODEFER | nr::SA_RESTORER;
    set_action(
        signal,
        &Action {
            handler,
            flags: u64::from(flags),
            restorer,
            mask: 0,
        },
    );
}

/// Ignores a signal in this process.
pub(crate) fn ignore_signal(signal: u32) {
    set_action(
        signal,
        &Action {
            handler: 1,
            flags: 0,
            restorer: 0,
            mask: 0,
        },
    );
}

/// Gives the agent's handlers their stack.
pub(crate) fn set_signal_stack(base: u64, len: u64) {
    let stack = [base, 0, len];
    // SAFETY: memory of the agent's own, used for nothing else.
    let ret = unsafe { syscall2(u64::from(nr::__NR_sigaltstack), stack.as_ptr() as u64, 0) };
    check(ret).expect("the stack is large enough");
}

/// Sets which signals are blocked; returns which were.
pub(crate) fn exchange_signal_mask(blocked: u64) -> u64 {
    const SIG_SETMASK: u64 = 2;
    let mut before = 0_u64;
    // SAFETY: both masks are eight bytes.
    let ret = unsafe {
        syscall4(
            u64::from(nr::__NR_rt_sigprocmask),
            SIG_SETMASK,
            (&raw const blocked) as u64,
            (&raw mut before) as u64,
            8,
        )
    };
    check(ret).expect("a valid mask");
    before
}

/// Sets which signals are blocked for this process.
pub(crate) fn set_signal_mask(blocked: u64) {
    exchange_signal_mask(blocked);
}

/// One of the timers that every process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum HostTimer {
    Real = 0,
    Virtual = 1,
    Prof = 2,
}

/// Sets a timer of this process to so many nanoseconds, and then again and again; 0 stops it.
pub(crate) fn set_timer(timer: HostTimer, nanoseconds: u64, again: u64) {
    let part = |time: u64| [time / 1_000_000_000, time % 1_000_000_000 / 1000];
    let again = if nanoseconds == 0 { 0 } else { again };
    let [[a, b], [c, d]] = [part(again), part(nanoseconds)];
    let setting = [a, b, c, d];
    // SAFETY: the setting is a whole itimerval.
    let done = unsafe {
        syscall3(
            u64::from(nr::__NR_setitimer),
            timer as u64,
            setting.as_ptr() as u64,
            0,
        )
    };
    check(done).expect("a valid time");
}

/// Turns every system call from outside of this range into SIGSYS.
pub(crate) fn dispatch_outside(start: u64, len: u64) {
    const PR_SET_SYSCALL_USER_DISPATCH: u32 = 59;
    const ON: u64 = 1;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, [ON, start, len, 0])
        .expect("Linux 5.11 or later; `rcoe doctor` tells");
}

/// Lets `cpuid` through, or makes it fault, in this process.
///
/// # Errors
/// The machine cannot make it fault.
pub(crate) fn set_cpuid(enabled: bool) -> Result<(), Errno> {
    const ARCH_SET_CPUID: u64 = 0x1012;
    // SAFETY: changes an attribute of this process only.
    check(unsafe {
        syscall2(
            u64::from(nr::__NR_arch_prctl),
            ARCH_SET_CPUID,
            u64::from(enabled),
        )
    })
    .map(drop)
}
