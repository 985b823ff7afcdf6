//! System V semaphores and message queues: the host's own, touched by the primary only.
//!
//! The table describes most calls. Here is what depends on more than one argument (`semctl`,
//! `msgctl`), and what the host says in its own numbers: the process that used a semaphore or queue
//! last is a replica there, and a process of the program to the program.
//!
//! What semaphores get back at the end of a process (`SEM_UNDO`) the host keeps for all replicas of
//! a process together, since they are cloned that way: so the loss of one gives nothing back.
//!
//! Not covered: setting all semaphores of a set that the program may change but not read is not
//! compared.

use core::sync::atomic::Ordering;

use rcoe_linux_syscalls::{Arg, Resolved, Special};

use crate::calls::{Call, io};
use crate::kernel::{Kernel, kind};
use crate::memory::guest::{self, Fault};
use crate::memory::regions;
use crate::protocol::{arguments, transfer};
use crate::sys::semaphores;

const IPC_SET: u64 = 1;
const IPC_STAT: u64 = 2;
const IPC_INFO: u64 = 3;
const GETPID: u64 = 11;
const GETALL: u64 = 13;
const SETVAL: u64 = 16;
const SETALL: u64 = 17;
const SEM_STAT: u64 = 18;
const SEM_INFO: u64 = 19;
const SEM_STAT_ANY: u64 = 20;
const MSG_STAT: u64 = 11;
const MSG_INFO: u64 = 12;
const MSG_STAT_ANY: u64 = 13;
/// Bytes of `struct semid_ds`.
const SEMAPHORES: u16 = 104;
/// Bytes of `struct seminfo`.
const SEMAPHORE_LIMITS: u16 = 40;
/// Bytes of `struct msqid_ds`.
const QUEUE: u16 = 120;
/// Bytes of `struct msginfo`.
const QUEUE_LIMITS: u16 = 32;
/// Where `struct msqid_ds` tells of the last sender and the last receiver.
const LAST_USERS: u64 = 96;

/// `semctl` and `msgctl`: as any output call, once it is known what the last argument is.
pub(super) fn control(kernel: &mut Kernel, call: &Call) -> i64 {
    let mut call = *call;
    let (at, what) = if call.what.special == Special::Semctl {
        (3, of_semaphores(kernel, &call))
    } else {
        (2, of_queue(call.arg(1)))
    };
    let described = call.what.described(at, what);
    let record: *const Resolved = &raw const described;
    // SAFETY: the call, and what is made of it below, ends before this function does.
    call.what = unsafe { &*record };
    if what.reads_memory() {
        match arguments::digest(kernel, &call) {
            Ok(digest) => {
                kernel.agreed.content = digest;
                kernel.event(kind::of(call.nr, kind::CONTENT), digest);
            }
            Err(Fault) => return Fault::RESULT,
        }
    }
    io::output(kernel, &call)
}

fn of_semaphores(kernel: &mut Kernel, call: &Call) -> Arg {
    match call.arg(2) {
        IPC_SET => Arg::InStruct { size: SEMAPHORES },
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => Arg::OutStruct { size: SEMAPHORES },
        IPC_INFO | SEM_INFO => Arg::OutStruct {
            size: SEMAPHORE_LIMITS,
        },
        command @ (GETALL | SETALL) => {
            let id = call.arg(0);
            let count = transfer::agree(kernel, || semaphores::count_of(id));
            // Two bytes each; the host has at most 32,000.
            let size = u16::try_from(2 * count).unwrap_or(u16::MAX);
            match (size, command) {
                // The host says what is wrong before it touches memory.
                (0, _) => Arg::Addr,
                (size, GETALL) => Arg::OutStruct { size },
                (size, _) => Arg::InStruct { size },
            }
        }
        SETVAL => Arg::Int,
        _ => Arg::Addr,
    }
}

fn of_queue(command: u64) -> Arg {
    match command {
        IPC_SET => Arg::InStruct { size: QUEUE },
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => Arg::OutStruct { size: QUEUE },
        IPC_INFO | MSG_INFO => Arg::OutStruct { size: QUEUE_LIMITS },
        _ => Arg::Addr,
    }
}

/// Primary: makes the call and puts process ids into the program's terms.
pub(super) fn execute(call: &Call) -> i64 {
    // SAFETY: the program's own call with its own memory.
    let result = unsafe { rcoe_linux_sys::syscall6(call.nr, call.raw) };
    if call.what.special == Special::Semctl {
        let told = call.arg(2) == GETPID;
        return match u32::try_from(result) {
            Ok(pid) if told => i64::from(of_program(pid)),
            _ => result,
        };
    }
    let tells = matches!(call.arg(1), IPC_STAT | MSG_STAT | MSG_STAT_ANY);
    if tells && result >= 0 {
        let address = call.arg(2) + LAST_USERS;
        let translated = guest::read::<[u32; 2]>(address)
            .and_then(|users| guest::write(address, &users.map(of_program)));
        if translated.is_err() {
            return Fault::RESULT;
        }
    }
    result
}

/// The process of the program that this process of the host is a replica of; if it is none, it is
/// itself.
pub(super) fn of_program(host: u32) -> u32 {
    for group in regions::groups() {
        let control = regions::control(group);
        let replicas = control.replicas.load(Ordering::Acquire) as usize;
        let is_replica = |index| regions::report(group, index).pid.load(Ordering::Acquire) == host;
        if host != 0 && (0..replicas.min(rcoe_linux_abi::MAX_REPLICAS)).any(is_replica) {
            return match control.pid.load(Ordering::Acquire) {
                // A child that rcoe has not taken note of yet: it is named after its first replica,
                // which makes its calls until then.
                0 => host,
                pid => pid,
            };
        }
    }
    host
}
