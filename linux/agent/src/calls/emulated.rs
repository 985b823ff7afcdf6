//! Calls that the agent answers itself or makes on this replica alone.

use linux_raw_sys::errno::{EINVAL, ENOENT, EPERM, ESRCH};
use linux_raw_sys::prctl::PR_TSC_ENABLE;
use rcoe_linux_abi::Ending;
use rcoe_linux_syscalls::{Class, Resolved, Special};

use crate::arch::entry::TrapFrame;
use crate::calls::memory::{self, local};
use crate::calls::processes::{self, exe_path};
use crate::calls::shared::{files, segments};
use crate::calls::{
    Call, acting, clone, credentials, futex, io, ipc, limits, not_carried, order, paths, refuse,
    scheduling, signals, timers,
};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sched::threads::LEADER;
use crate::sched::{blocking, schedule};
use crate::sys;
use crate::sys::numbers::PR_SET_NAME;

/// Is this the return from a signal handler, which replaces all registers?
pub(super) fn is_sigreturn(call: &Call) -> bool {
    call.what.special == Special::RtSigreturn
}

/// As [`perform`], without a search for those that are answered by a word. `what`: of the call,
/// where more is known of it.
#[inline(always)]
pub(super) fn answer(kernel: &mut Kernel, frame: &TrapFrame, call: &Call, what: &Resolved) -> i64 {
    match what.special {
        Special::Getpid => i64::from(own_pid(kernel)),
        Special::Gettid => i64::from(kernel.threads.current().tid),
        Special::Getppid => processes::parent(kernel),
        _ => perform(kernel, frame, call),
    }
}

/// Calls of the classes local and emulated.
pub(super) fn perform(kernel: &mut Kernel, frame: &TrapFrame, call: &Call) -> i64 {
    match call.what.special {
        Special::None if call.what.class == Class::Local => local(call.nr, call.raw),
        Special::Brk => memory::brk(kernel, call),
        Special::Mmap => memory::mmap(kernel, call),
        Special::Munmap => memory::munmap(kernel, call),
        Special::Mprotect => memory::mprotect(kernel, call),
        Special::Mremap => memory::mremap(kernel, call),
        Special::Personality => memory::personality(kernel, call),
        Special::Madvise => memory::madvise(kernel, call),
        Special::Mlock => memory::locking::lock(kernel, call),
        Special::Mlockall => memory::locking::lock_all(kernel, call),
        Special::Mincore => memory::locking::mincore(kernel, call),
        Special::Msync => memory::msync(kernel, call),
        Special::RtSigaction => signals::sigaction(kernel, call),
        Special::RtSigprocmask => signals::sigprocmask(kernel, call),
        Special::RtSigpending => signals::sigpending(kernel, call),
        Special::Sigaltstack => signals::sigaltstack(kernel, call, frame.cpu.rsp),
        Special::RtSigtimedwait => signals::wait_for(kernel, call),
        Special::RtSigsuspend | Special::Pause => signals::wait(kernel, call),
        Special::Exit => clone::exit(kernel, call),
        Special::Alarm
        | Special::Setitimer
        | Special::Getitimer
        | Special::TimerCreate
        | Special::TimerSettime
        | Special::TimerGettime
        | Special::TimerGetoverrun
        | Special::TimerDelete => timers::perform(kernel, call),
        Special::Futex => futex::futex(kernel, call),
        Special::Unshare => not_carried(kernel, call),
        Special::Shmget => segments::get(kernel, call),
        Special::Shmat => segments::attach(kernel, call),
        Special::Shmdt => segments::detach(kernel, call),
        Special::Shmctl => segments::control(kernel, call),
        _ => identity(kernel, call),
    }
}

/// The ending that `exit` and `exit_group` ask for.
pub(super) fn exit_status(call: &Call) -> Ending {
    Ending::Exit((call.arg(0) & 0xff) as u8)
}

/// Who the program is, and how it is scheduled.
fn identity(kernel: &mut Kernel, call: &Call) -> i64 {
    let pid = i64::from(own_pid(kernel));
    match call.what.special {
        Special::Getpid => pid,
        Special::Gettid => i64::from(kernel.threads.current().tid),
        Special::SetTidAddress => clone::set_tid_address(kernel, call),
        Special::Getppid => processes::parent(kernel),
        Special::Getpgrp | Special::Getpgid | Special::Getsid => processes::get_group(kernel, call),
        Special::Setpgid | Special::Setsid => processes::set_group(kernel, call),
        Special::SetRobustList => clone::set_robust_list(kernel, call),
        Special::GetRobustList => clone::get_robust_list(kernel, call),
        Special::Membarrier => kernel.barriers.perform(call),
        Special::SchedYield => schedule::give_way(kernel),
        Special::Getcpu => scheduling::getcpu(kernel, call),
        Special::SchedGetaffinity => scheduling::get_affinity(kernel, call),
        Special::SchedSetaffinity => scheduling::set_affinity(kernel, call),
        Special::ArchPrctl => arch_prctl(call),
        Special::Getpriority => scheduling::ask_priority(kernel, call),
        Special::Setpriority => scheduling::change_priority(kernel, call),
        Special::IoprioGet => scheduling::ask_io(kernel, call),
        Special::IoprioSet => scheduling::change_io(kernel, call),
        Special::SchedGetattr => scheduling::get_attributes(kernel, call),
        Special::SchedSetattr => scheduling::set_attributes(kernel, call),
        Special::SchedGetparam | Special::SchedGetscheduler => scheduling::ask(kernel, call, 0),
        Special::Getrlimit | Special::Setrlimit | Special::Prlimit64 => {
            limits::perform(kernel, call)
        }
        Special::SchedSetparam | Special::SchedSetscheduler => {
            scheduling::change_policy(kernel, call)
        }
        Special::Capget => capabilities(kernel, call),
        Special::Capset => processes::with_credentials(kernel, call, capabilities),
        Special::Credentials => {
            processes::with_credentials(kernel, call, |_, call| local(call.nr, call.raw))
        }
        Special::PrctlName => prctl_name(kernel, call),
        Special::PrctlSeccomp => 0,
        Special::PrctlPdeathsig => processes::death_signal(kernel, call),
        Special::PrctlSubreaper => processes::subreaper(kernel, call),
        Special::PrctlTsc => {
            guest::write(call.arg(1), &PR_TSC_ENABLE).map_or(Fault::RESULT, |()| 0)
        }
        _ => refuse(kernel, call),
    }
}

/// The program's process id.
pub(super) fn own_pid(kernel: &Kernel) -> u32 {
    kernel.processes.pid
}

/// Thread pointers; everything else of `arch_prctl` is not the program's business.
fn arch_prctl(call: &Call) -> i64 {
    const ARCH_SET_GS: u64 = 0x1001;
    const ARCH_GET_GS: u64 = 0x1004;
    const ARCH_GET_CPUID: u64 = 0x1011;
    match call.arg(0) {
        ARCH_SET_GS..=ARCH_GET_GS => local(call.nr, call.raw),
        ARCH_GET_CPUID => 1,
        _ => sys::error(EINVAL),
    }
}

/// Capabilities, of the program itself only: each replica has them, under a number of its own.
fn capabilities(kernel: &mut Kernel, call: &Call) -> i64 {
    let Ok([version, pid]) = guest::read::<[u32; 2]>(call.arg(0)) else {
        return Fault::RESULT;
    };
    if pid != 0 && kernel.threads.find(pid).is_none() {
        return sys::error(match call.what.special {
            Special::Capget if pid.cast_signed() < 0 => EINVAL,
            Special::Capget => ESRCH,
            _ => EPERM,
        });
    }
    let mut header = [version, 0];
    let result = local(
        call.nr,
        [header.as_mut_ptr() as u64, call.arg(1), 0, 0, 0, 0],
    );
    // A version that the kernel does not know comes back as the one it prefers.
    match guest::write(call.arg(0), &[header[0], pid]) {
        Ok(()) => result,
        Err(Fault) => Fault::RESULT,
    }
}

/// The thread's name. The host keeps the leader's, for each replica alike.
fn prctl_name(kernel: &mut Kernel, call: &Call) -> i64 {
    if kernel.threads.current_slot() == LEADER {
        return local(call.nr, call.raw);
    }
    let name = &mut kernel.threads.current_mut().name;
    if call.arg(0) != PR_SET_NAME {
        return guest::write(call.arg(1), name).map_or(Fault::RESULT, |()| 0);
    }
    let most = name.len() as u64 - 1;
    let Ok(len) = guest::string_len(call.arg(1), most) else {
        return Fault::RESULT;
    };
    *name = [0; 16];
    guest::copy_in(&mut name[..convert::size(len)], call.arg(1)).map_or(Fault::RESULT, |()| 0)
}

/// Input calls of which the table does not tell enough; `None` to do as the table says.
pub(super) fn special_input(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    if let Some(error) = order::of_mask(call) {
        return Some(error);
    }
    signals::suspend_for(kernel, call);
    if let Some(result) = blocking::sleep(kernel, call) {
        return Some(result);
    }
    if let Some(translated) = scheduling::translate(kernel, call) {
        return Some(io::input(kernel, &translated));
    }
    if let Some(result) = signals::signalfd::read(kernel, call) {
        return Some(result);
    }
    match call.what.special {
        Special::Signalfd | Special::Signalfd4 => {
            return Some(signals::signalfd::create(kernel, call));
        }
        Special::PidfdOpen => return Some(processes::pidfd::open(kernel, call)),
        Special::Getrusage => return processes::usage::of_children(kernel, call),
        _ => {}
    }
    let (path, buffer) = match call.what.call.nargs {
        3 => (0, 1),
        _ => (1, 2),
    };
    if call.what.special != Special::Readlink
        || !paths::is_own_exe(kernel.processes.pid, call.arg(path))
    {
        return None;
    }
    let exe = exe_path();
    let text = &exe[..exe.len() - 1];
    let len = text.len().min(convert::size(call.arg(buffer + 1)));
    if text.is_empty() {
        return Some(sys::error(ENOENT));
    }
    match guest::copy_out(call.arg(buffer), &text[..len]) {
        Ok(()) => i64::try_from(len).ok(),
        Err(Fault) => Some(Fault::RESULT),
    }
}

/// Output calls of which the table does not tell enough; `None` to do as the table says.
pub(super) fn special_output(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    if kernel.acting.is_open()
        && let Some(result) = acting::output(kernel, call)
    {
        return Some(result);
    }
    if credentials::tells_too_many(call) {
        return Some(refuse(kernel, call));
    }
    match call.what.special {
        Special::ExitGroup => kernel.end(exit_status(call)),
        Special::Kill
        | Special::Tkill
        | Special::Tgkill
        | Special::RtSigqueueinfo
        | Special::RtTgsigqueueinfo
        | Special::PidfdSendSignal => signals::send(kernel, call),
        Special::Semctl | Special::Msgctl => Some(ipc::control(kernel, call)),
        Special::CloseRange => close_range(call),
        Special::FcntlSeals => Some(files::add_seals(kernel, call)),
        Special::Tiocspgrp => Some(processes::jobs::set_foreground(kernel, call)),
        Special::Tiocsctty | Special::Tiocnotty => Some(processes::terminals::change(kernel, call)),
        _ => None,
    }
}

/// The replicas share one table of descriptors; parting with it is not for the program to do.
fn close_range(call: &Call) -> Option<i64> {
    const CLOSE_RANGE_UNSHARE: u64 = 2;
    (call.arg(2) & CLOSE_RANGE_UNSHARE != 0).then(|| sys::error(EINVAL))
}
