//! Flips at the last instruction before an effect: argument registers, the call's number, or a bit
//! of what goes out.
//!
//! The primary is stopped right before the `syscall` of an effect, after all replicas have voted
//! on it. Where that instruction is shows when an effect is seen to enter the kernel; a breakpoint
//! of the processor stops the next one that comes by.
//!
//! Not covered: a stop takes the CPU away, as the scheduler does. What a flip does there while the
//! CPU is kept cannot be tried from outside.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use rcoe_linux_abi::{AGENT_BASE, AGENT_END};

use crate::inject::{Hit, Miss, Register, Seized, bit_below, choose, whereabouts};
use crate::plan::{Plan, Rng};
use crate::target::Target;

/// Calls by which the program `effects` reaches the outside; through a ring, where its primary may
/// be lost.
const EFFECTS: [libc::c_long; 8] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_ftruncate,
    libc::SYS_fsetxattr,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_io_uring_enter,
];

/// What tells the kernel which call to make, and of what.
const ARGUMENTS: [Register; 7] = [
    ("rax", |r| &mut r.rax),
    ("rdi", |r| &mut r.rdi),
    ("rsi", |r| &mut r.rsi),
    ("rdx", |r| &mut r.rdx),
    ("r10", |r| &mut r.r10),
    ("r8", |r| &mut r.r8),
    ("r9", |r| &mut r.r9),
];

/// Where the program `effects` has what goes out, and how many bytes of it every effect takes.
const CONTENT: u64 = 0x5000_0000;
const CONTENT_BYTES: u64 = 64;
/// Where `struct user` has the first debug register and the one that controls them.
const BREAKPOINT: u64 = 848;
const CONTROL: u64 = 848 + 7 * 8;
/// Length of `syscall`.
const INSTRUCTION: u64 = 2;
/// Most stops in search of an effect.
const STOPS: u32 = 20_000;

/// Flips as `plan` says before some effect of process `pid`; where it asks for several flips, each
/// before another effect, until the process ends. The last one is told.
///
/// # Errors
///
/// If the process comes to no effect any more, or the change is refused.
pub fn flip(pid: i32, plan: &Plan) -> Result<Hit, Miss> {
    let mut seized = Seized::stop(pid)?;
    ptrace::setoptions(seized.pid, ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
    let mut random = Rng::new(&[plan.place, plan.bit]);
    let mut hit = flip_once(&mut seized, plan)?;
    while hit.flips < plan.flips {
        let next = Plan {
            place: random.next(),
            bit: random.next(),
            ..plan.clone()
        };
        let flips = hit.flips + 1;
        match flip_once(&mut seized, &next) {
            Ok(last) => hit = Hit { flips, ..last },
            // No effect comes any more, which those before this one may have done.
            Err(_) => break,
        }
    }
    Ok(hit)
}

fn flip_once(seized: &mut Seized, plan: &Plan) -> Result<Hit, Miss> {
    let site = find_site(seized)?;
    breakpoint(seized, Some(site))?;
    let stopped = run_to(seized, site);
    breakpoint(seized, None)?;
    let registers = stopped?;
    let mut hit = whereabouts(seized, &registers)?;
    match plan.target {
        Target::Argument => flip_argument(seized, registers, plan, &mut hit)?,
        Target::Content => flip_content(seized, plan, &mut hit)?,
        other => return Err(Miss::NoSuchMemory(other)),
    }
    Ok(hit)
}

fn is_effect(number: u64) -> bool {
    EFFECTS
        .iter()
        .any(|effect| effect.cast_unsigned() == number)
}

/// Lets the process run until an effect enters the kernel from rcoe's agent; address of the
/// instruction.
fn find_site(seized: &mut Seized) -> Result<u64, Miss> {
    const NOT_YET_MADE: i64 = -(libc::ENOSYS as i64);
    let agent = AGENT_BASE as u64..AGENT_END as u64;
    for _ in 0..STOPS {
        ptrace::syscall(seized.pid, seized.pending.take())?;
        if let WaitStatus::PtraceSyscall(_) = seized.wait()? {
            let registers = ptrace::getregs(seized.pid)?;
            let entering = registers.rax.cast_signed() == NOT_YET_MADE;
            if entering && is_effect(registers.orig_rax) && agent.contains(&registers.rip) {
                return Ok(registers.rip - INSTRUCTION);
            }
        }
    }
    Err(Miss::InKernel)
}

/// Lets the process run until it is about to execute that instruction with an effect's number.
fn run_to(seized: &mut Seized, site: u64) -> Result<user_regs_struct, Miss> {
    for _ in 0..STOPS {
        ptrace::cont(seized.pid, seized.pending.take())?;
        if let WaitStatus::Stopped(_, Signal::SIGTRAP) = seized.wait()? {
            seized.pending = None;
            let registers = ptrace::getregs(seized.pid)?;
            if registers.rip == site && is_effect(registers.rax) {
                return Ok(registers);
            }
        }
    }
    Err(Miss::InKernel)
}

/// Sets the first breakpoint of the processor for this process, or none.
pub(crate) fn breakpoint(seized: &Seized, at: Option<u64>) -> Result<(), Miss> {
    let set = |register: u64, value: u64| {
        ptrace::write_user(
            seized.pid,
            register as ptrace::AddressType,
            value.cast_signed(),
        )
    };
    set(CONTROL, 0)?;
    if let Some(at) = at {
        set(BREAKPOINT, at)?;
        // Enabled for this task; an instruction, hence of length 1.
        set(CONTROL, 1)?;
    }
    Ok(())
}

fn flip_argument(
    seized: &Seized,
    mut registers: user_regs_struct,
    plan: &Plan,
    hit: &mut Hit,
) -> Result<(), Miss> {
    let number = registers.rax;
    let (name, access) = ARGUMENTS[choose(plan.place, ARGUMENTS.len())];
    hit.bit = bit_below(plan.bit, 64);
    hit.place = format!("{name} of call {number}");
    let register = access(&mut registers);
    hit.before = *register;
    hit.after = hit.before ^ (1 << hit.bit);
    *register = hit.after;
    Ok(ptrace::setregs(seized.pid, registers)?)
}

fn flip_content(seized: &Seized, plan: &Plan, hit: &mut Hit) -> Result<(), Miss> {
    let address = CONTENT + plan.place % CONTENT_BYTES;
    let path = format!("/proc/{}/mem", seized.pid);
    let memory = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0_u8];
    memory.read_exact_at(&mut byte, address)?;
    hit.bit = bit_below(plan.bit, 8);
    hit.before = u64::from(byte[0]);
    byte[0] ^= 1 << hit.bit;
    hit.after = u64::from(byte[0]);
    hit.place = format!("byte {} of what goes out", address - CONTENT);
    memory.write_all_at(&byte, address)?;
    Ok(())
}
