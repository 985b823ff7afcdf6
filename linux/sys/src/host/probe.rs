//! Probes of what the machine and its kernel offer, each in a child that may die of it.

mod written;

use std::io;

use rcoe_linux_abi::RSEQ_SIGNATURE;

/// What can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Syscall User Dispatch: a blocked call raises `SIGSYS`.
    SyscallUserDispatch,
    /// CPUID can be made to fault.
    CpuidFaulting,
    /// RDTSC can be made to fault.
    TscTrapping,
    /// Addresses of a process can be the same in each run.
    FixedAddresses,
    /// Page 0 can be mapped.
    PageZero,
    /// `io_uring_setup` is allowed.
    IoUring,
    /// Restartable sequences: the kernel tells a thread that it has lost the CPU.
    RestartableSequences,
    /// A process may have timers of its own.
    Timers,
    /// `userfaultfd` tells written pages without waiting, the kernel's writes too.
    WriteProtection,
    /// The kernel has soft-dirty bits.
    SoftDirty,
    /// The processor has RDRAND.
    Rdrand,
    /// RDTSCP/RDPID reveal the core number (always so on x86-64 that has them).
    Rdpid,
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Present and working.
    Yes,
    /// Absent; the errno that said so, or 0.
    No(i32),
}

/// Asks one question of the machine.
///
/// # Errors
///
/// If no child process can be made.
pub fn probe(probe: Probe) -> io::Result<Answer> {
    let code = match probe {
        Probe::Rdrand => return Ok(yes(std::arch::is_x86_feature_detected!("rdrand"))),
        Probe::Rdpid => {
            // SAFETY: leaf 7 exists on every x86-64 processor that Linux runs rcoe on; cpuid
            // only writes registers.
            return Ok(yes(
                core::arch::x86_64::__cpuid_count(7, 0).ecx & (1 << 22) != 0
            ));
        }
        Probe::SyscallUserDispatch => in_child(try_dispatch)?,
        Probe::CpuidFaulting => in_child(try_cpuid_fault)?,
        Probe::TscTrapping => in_child(try_tsc_trap)?,
        Probe::FixedAddresses => in_child(try_fixed_addresses)?,
        Probe::PageZero => in_child(try_page_zero)?,
        Probe::IoUring => in_child(try_io_uring)?,
        Probe::RestartableSequences => in_child(try_rseq)?,
        Probe::Timers => in_child(try_timers)?,
        Probe::WriteProtection => in_child(written::by_protection)?,
        Probe::SoftDirty => in_child(written::by_soft_dirty)?,
    };
    Ok(match code {
        Some(0) => Answer::Yes,
        Some(errno) => Answer::No(i32::from(errno)),
        None => Answer::No(0),
    })
}

const fn yes(present: bool) -> Answer {
    if present { Answer::Yes } else { Answer::No(0) }
}

/// Runs `work` in a forked child and returns its result, or `None` if the child was killed.
///
/// # Errors
///
/// If fork or wait fails.
pub fn in_child(work: fn() -> u8) -> io::Result<Option<u8>> {
    // SAFETY: the child only runs `work`, which makes system calls and allocates nothing.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = work();
            // SAFETY: ends the child without running destructors or flushing the parent's buffers.
            unsafe { libc::_exit(i32::from(code)) }
        }
        _ => {
            let mut status = 0;
            // SAFETY: waits for our own child; the status is a valid place to write.
            while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            let code = u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX);
            Ok(libc::WIFEXITED(status).then_some(code))
        }
    }
}

/// 0 for success, else the errno of the call that just failed.
fn outcome(result: libc::c_long) -> u8 {
    if result >= 0 {
        return 0;
    }
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    u8::try_from(errno).unwrap_or(u8::MAX).max(1)
}

fn try_fixed_addresses() -> u8 {
    match super::starter::fix_addresses() {
        true => 0,
        false => outcome(-1),
    }
}

const PR_SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
const ARCH_SET_CPUID: libc::c_int = 0x1012;
static mut SELECTOR: u8 = 0;

/// The call was dispatched: that is success, and the end of this child.
extern "C" fn dispatched(_signal: libc::c_int) {
    // SAFETY: single-threaded child; lets calls through again, so that it can exit.
    unsafe {
        (&raw mut SELECTOR).write_volatile(0);
        libc::_exit(0)
    }
}

fn try_dispatch() -> u8 {
    // SAFETY: a child of its own: the handler is async-signal-safe, the selector is a static byte.
    unsafe {
        libc::signal(
            libc::SIGSYS,
            dispatched as extern "C" fn(libc::c_int) as libc::sighandler_t,
        );
        let mut sysset: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&raw mut sysset, libc::SIGSYS);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const sysset, core::ptr::null_mut());
        let armed = libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &raw const SELECTOR);
        if armed != 0 {
            return outcome(-1);
        }
        (&raw mut SELECTOR).write_volatile(1);
        libc::syscall(libc::SYS_getppid);
        (&raw mut SELECTOR).write_volatile(0);
    }
    u8::MAX
}

fn try_cpuid_fault() -> u8 {
    // SAFETY: affects only this child, which executes no cpuid afterwards.
    outcome(unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 0) })
}

fn try_tsc_trap() -> u8 {
    // SAFETY: affects only this child, which reads no time afterwards.
    outcome(unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) }.into())
}

fn try_page_zero() -> u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE overlaps nothing; the page is never used.
    let page = unsafe { libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0) };
    outcome(if page == libc::MAP_FAILED { -1 } else { 0 })
}

fn try_io_uring() -> u8 {
    let mut params = [0_u32; 30];
    // SAFETY: the parameters are 120 writable bytes, the size the kernel expects.
    outcome(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) })
}

/// A libc that has registered a structure of its own is refused a second one: then they are known.
fn try_rseq() -> u8 {
    #[repr(align(32))]
    struct Area([u8; BYTES]);
    const BYTES: usize = 32;
    const UNREGISTER: u32 = 1;
    let mut area = Area([0; BYTES]);
    let address = area.0.as_mut_ptr();
    // SAFETY: the kernel writes to the structure only, and not after the call that takes it back.
    let asked =
        outcome(unsafe { libc::syscall(libc::SYS_rseq, address, BYTES, 0, RSEQ_SIGNATURE) });
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_rseq, address, BYTES, UNREGISTER, RSEQ_SIGNATURE) };
    if i32::from(asked) == libc::EINVAL {
        0
    } else {
        asked
    }
}

fn try_timers() -> u8 {
    let mut id: libc::timer_t = core::ptr::null_mut();
    // SAFETY: there is room for the number; without a word on what is to be done the timer would
    // signal, but it is never started.
    outcome(unsafe {
        libc::syscall(
            libc::SYS_timer_create,
            libc::CLOCK_THREAD_CPUTIME_ID,
            core::ptr::null_mut::<libc::sigevent>(),
            &raw mut id,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_reports_its_code_or_its_death() {
        assert_eq!(in_child(|| 3).expect("forked"), Some(3));
        // SAFETY: the child sends itself a signal.
        let killed = in_child(|| unsafe { libc::raise(libc::SIGKILL) }.to_le_bytes()[0]);
        assert_eq!(killed.expect("forked"), None);
    }

    #[test]
    fn every_probe_answers() {
        use Probe::{
            CpuidFaulting, FixedAddresses, IoUring, PageZero, Rdpid, Rdrand, RestartableSequences,
            SoftDirty, SyscallUserDispatch, Timers, TscTrapping, WriteProtection,
        };
        for question in [
            SyscallUserDispatch,
            CpuidFaulting,
            TscTrapping,
            FixedAddresses,
            PageZero,
            IoUring,
            RestartableSequences,
            Timers,
            WriteProtection,
            SoftDirty,
            Rdrand,
            Rdpid,
        ] {
            probe(question).expect("answered");
        }
    }
}
