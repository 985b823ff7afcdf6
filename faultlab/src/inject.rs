//! Flips one bit of a running process from outside.
//!
//! The process is seized and interrupted by ptrace, changed, and let go: some tens of microseconds
//! during which it is merely late. Its parent does not see the stop, since stops go to the tracer.
//! A signal that was about to be delivered when the stop hit is passed on.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, regset};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::entry;
use crate::maps::{self, PAGE};
use crate::plan::{Plan, Rng};
use crate::target::Target;

/// What was really changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Process that was hit.
    pub pid: i32,
    /// The program that it ran.
    #[serde(default)]
    pub program: String,
    /// When it stood still for that; what the flip did began later. Journals do not keep it.
    #[serde(skip)]
    pub at: Option<Instant>,
    /// Which replica of its process it was, as far as its memory tells.
    #[serde(default)]
    pub replica: Option<u64>,
    /// CPU time the process had used, in nanoseconds.
    pub cpu_ns: u64,
    /// Address of the instruction that was about to run.
    pub ip: u64,
    /// Whether the process was inside a system call, about to return from it.
    #[serde(default)]
    pub in_kernel: bool,
    /// Register name, or memory address and what lies there.
    pub place: String,
    /// Number of the bit within the value.
    pub bit: u32,
    /// Value before; for memory, the byte.
    pub before: u64,
    /// Value after.
    pub after: u64,
    /// How many bits were flipped until then, one after the other; this was the last.
    #[serde(default = "one")]
    pub flips: u32,
}

/// What old journals do not say.
pub(crate) const fn one() -> u32 {
    1
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The process had ended.
    Ended,
    /// The process has no present page of this class.
    NoSuchMemory(Target),
    /// The process was inside a system call whenever it was stopped.
    InKernel,
    /// The kernel did not take the change.
    Refused(String),
}

/// In which state a process may be hit.
///
/// A stop request that meets a process inside a system call takes effect at the very end of the
/// call. Every moment spent in the kernel is thus mapped to one instruction, the one at which
/// results that only the kernel knows are in memory and registers of one replica alone; and the
/// kernel is outside the sphere of replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Only while it runs its own instructions.
    User,
    /// At any time.
    Any,
    /// Only at the end of a system call: the worst case for input.
    Return,
    /// A few instructions later: what has come of it is still in one replica only, and it is being
    /// decided what that means.
    After,
    /// Right before an effect of the primary, after the vote on it: the worst case for output.
    Entry,
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "user" => Ok(Self::User),
            "any" => Ok(Self::Any),
            "return" => Ok(Self::Return),
            "after" => Ok(Self::After),
            "entry" => Ok(Self::Entry),
            _ => Err(format!(
                "unknown moment '{word}'; known: user, any, return, after, entry"
            )),
        }
    }
}

impl std::fmt::Display for Miss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended => write!(f, "the program had ended"),
            Self::NoSuchMemory(target) => write!(f, "no {target} memory is present"),
            Self::InKernel => write!(f, "it was not in the state asked for"),
            Self::Refused(why) => write!(f, "the change was refused: {why}"),
        }
    }
}

impl From<Errno> for Miss {
    fn from(errno: Errno) -> Self {
        if errno == Errno::ESRCH {
            Self::Ended
        } else {
            Self::Refused(errno.desc().to_owned())
        }
    }
}

impl From<io::Error> for Miss {
    fn from(error: io::Error) -> Self {
        let gone = [Errno::ESRCH as i32, Errno::ENOENT as i32];
        match error.raw_os_error() {
            Some(code) if gone.contains(&code) => Self::Ended,
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// CPU time a process has used so far, in nanoseconds; `None` once it is gone.
///
/// Exact for a stopped process; for a running one of the last scheduler tick, some milliseconds
/// ago, which is why a moment cannot be waited for by it.
#[must_use]
pub fn cpu_time(pid: i32) -> Option<u64> {
    let now = clock_getcpuclockid(Pid::from_raw(pid)).ok()?.now().ok()?;
    u64::try_from(Duration::from(now).as_nanos()).ok()
}

/// True while the process runs, sleeps or is stopped; false for a zombie.
#[must_use]
pub fn alive(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// True if the process has, or could have, a processor.
#[must_use]
pub fn is_running(pid: i32) -> bool {
    state(pid) == Some('R')
}

fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// How often a process is stopped in search of the state asked for.
pub const STOPS: u32 = 40;

/// Most instructions between the end of a system call and a flip after it.
const AFTER: u64 = 32;

/// Carries out the flip of `plan` in process `pid` as soon as it is in the state asked for; gives
/// up after so many stops.
///
/// # Errors
///
/// If nothing was changed; the process then runs on as if nothing had happened.
pub fn flip(pid: i32, when: When, plan: &Plan, stops: u32) -> Result<Hit, Miss> {
    if when == When::Entry {
        return entry::flip(pid, plan);
    }
    let mut pauses = Rng::new(&[plan.place, plan.bit]);
    for _ in 0..stops {
        let mut seized = Seized::stop(pid)?;
        let registers = ptrace::getregs(seized.pid)?;
        // The number of the system call, or -1 when stopped elsewhere.
        let in_kernel = registers.orig_rax.cast_signed() >= 0;
        if when == When::Any || matches!(when, When::Return | When::After) == in_kernel {
            if when == When::After {
                seized.step(1 + pauses.next() % AFTER)?;
            }
            return flip_stopped(&seized, plan);
        }
        drop(seized);
        thread::sleep(Duration::from_micros(pauses.next() % 200));
    }
    Err(Miss::InKernel)
}

/// General registers of a process, in words; `None` if it is gone. It is stopped for a moment.
#[must_use]
pub fn registers(pid: i32) -> Option<String> {
    let seized = Seized::stop(pid).ok()?;
    let all = ptrace::getregs(seized.pid).ok()?;
    let named = [
        ("rip", all.rip),
        ("rsp", all.rsp),
        ("rax", all.rax),
        ("rbx", all.rbx),
        ("rcx", all.rcx),
        ("rdx", all.rdx),
        ("rsi", all.rsi),
        ("rdi", all.rdi),
        ("rbp", all.rbp),
        ("r8", all.r8),
        ("r9", all.r9),
        ("r10", all.r10),
        ("r11", all.r11),
        ("r12", all.r12),
        ("r13", all.r13),
        ("r14", all.r14),
        ("r15", all.r15),
    ];
    let words = named.map(|(name, value)| format!("{name} {value:#x}"));
    Some(words.join(", "))
}

fn flip_stopped(seized: &Seized, plan: &Plan) -> Result<Hit, Miss> {
    let registers = ptrace::getregs(seized.pid)?;
    let mut hit = whereabouts(seized, &registers)?;
    match plan.target {
        Target::Gpr => flip_gpr(seized, registers, plan, &mut hit)?,
        Target::Xmm => flip_xmm(seized, plan, &mut hit)?,
        _ => flip_memory(seized, registers.rsp, plan, &mut hit)?,
    }
    Ok(hit)
}

/// Which process was stopped, and where; nothing is flipped yet.
pub(crate) fn whereabouts(seized: &Seized, registers: &user_regs_struct) -> Result<Hit, Miss> {
    let pid = seized.pid.as_raw();
    let regions = maps::read(pid)?;
    Ok(Hit {
        pid,
        program: maps::program(&regions).map_or_else(String::new, |path| file_name(path).into()),
        at: Some(Instant::now()),
        replica: maps::replica(&regions),
        cpu_ns: cpu_time(pid).unwrap_or(0),
        ip: registers.rip,
        in_kernel: registers.orig_rax.cast_signed() >= 0,
        place: String::new(),
        bit: 0,
        before: 0,
        after: 0,
        flips: 1,
    })
}

/// A stopped tracee; dropping it lets it go.
pub(crate) struct Seized {
    pub(crate) pid: Pid,
    /// Signal about to be delivered when the stop hit.
    pub(crate) pending: Option<Signal>,
}

impl Seized {
    pub(crate) fn stop(pid: i32) -> Result<Self, Miss> {
        let pid = Pid::from_raw(pid);
        ptrace::seize(pid, ptrace::Options::empty()).map_err(|errno| match errno {
            // A zombie cannot be seized.
            Errno::EPERM => Miss::Ended,
            other => other.into(),
        })?;
        // From here on dropping detaches, whatever fails.
        let mut seized = Self { pid, pending: None };
        ptrace::interrupt(pid)?;
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        let ended = matches!(
            waitid(Id::Pid(pid), peek)?,
            WaitStatus::Exited(..) | WaitStatus::Signaled(..)
        );
        // A dead replica must be waited for by its tracer before its parent hears of the death,
        // but a child of our own would lose its exit status that way.
        if ended && parent(pid) == Some(Pid::this()) {
            return Err(Miss::Ended);
        }
        match waitpid(pid, Some(WaitPidFlag::__WALL))? {
            WaitStatus::PtraceEvent(..) => Ok(seized),
            WaitStatus::Stopped(_, signal) => {
                seized.pending = Some(signal);
                Ok(seized)
            }
            _ => Err(Miss::Ended),
        }
    }

    /// Waits for the next stop; a signal is kept to be passed on.
    pub(crate) fn wait(&mut self) -> Result<WaitStatus, Miss> {
        let status = waitpid(self.pid, Some(WaitPidFlag::__WALL))?;
        match status {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => Err(Miss::Ended),
            WaitStatus::Stopped(_, signal) => {
                self.pending = Some(signal);
                Ok(status)
            }
            _ => Ok(status),
        }
    }
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(Pid::from_raw)
}

impl Drop for Seized {
    fn drop(&mut self) {
        // Fails only if the tracee was killed meanwhile: then there is nothing to let go.
        let _ = ptrace::detach(self.pid, self.pending);
    }
}

/// Name of a register and how to reach it.
pub(crate) type Register = (&'static str, fn(&mut user_regs_struct) -> &mut u64);

const REGISTERS: [Register; 18] = [
    ("rax", |r| &mut r.rax),
    ("rbx", |r| &mut r.rbx),
    ("rcx", |r| &mut r.rcx),
    ("rdx", |r| &mut r.rdx),
    ("rsi", |r| &mut r.rsi),
    ("rdi", |r| &mut r.rdi),
    ("rbp", |r| &mut r.rbp),
    ("rsp", |r| &mut r.rsp),
    ("r8", |r| &mut r.r8),
    ("r9", |r| &mut r.r9),
    ("r10", |r| &mut r.r10),
    ("r11", |r| &mut r.r11),
    ("r12", |r| &mut r.r12),
    ("r13", |r| &mut r.r13),
    ("r14", |r| &mut r.r14),
    ("r15", |r| &mut r.r15),
    ("rip", |r| &mut r.rip),
    ("rflags", |r| &mut r.eflags),
];

/// Flags a program can change: CF PF AF ZF SF TF DF OF NT AC. The kernel refuses the others.
const FLAG_BITS: [u32; 10] = [0, 2, 4, 6, 7, 8, 10, 11, 14, 18];

fn flip_gpr(
    seized: &Seized,
    mut registers: user_regs_struct,
    plan: &Plan,
    hit: &mut Hit,
) -> Result<(), Miss> {
    let (name, access) = REGISTERS[choose(plan.place, REGISTERS.len())];
    hit.bit = if name == "rflags" {
        FLAG_BITS[choose(plan.bit, FLAG_BITS.len())]
    } else {
        bit_below(plan.bit, 64)
    };
    name.clone_into(&mut hit.place);
    let register = access(&mut registers);
    hit.before = *register;
    hit.after = hit.before ^ (1 << hit.bit);
    *register = hit.after;
    ptrace::setregs(seized.pid, registers)?;
    let mut seen = ptrace::getregs(seized.pid)?;
    if *access(&mut seen) == hit.after {
        Ok(())
    } else {
        Err(Miss::Refused(format!("{name} kept its value")))
    }
}

fn flip_xmm(seized: &Seized, plan: &Plan, hit: &mut Hit) -> Result<(), Miss> {
    let mut registers = ptrace::getregset::<regset::NT_PRFPREG>(seized.pid)?;
    let register = choose(plan.place, 16);
    let bit = bit_below(plan.bit, 128);
    let word = &mut registers.xmm_space[register * 4 + choose(u64::from(bit / 32), 4)];
    hit.place = format!("xmm{register}");
    hit.bit = bit;
    hit.before = u64::from(*word);
    *word ^= 1 << (bit % 32);
    hit.after = u64::from(*word);
    ptrace::setregset::<regset::NT_PRFPREG>(seized.pid, registers)?;
    Ok(())
}

fn flip_memory(
    seized: &Seized,
    stack_pointer: u64,
    plan: &Plan,
    hit: &mut Hit,
) -> Result<(), Miss> {
    let pid = seized.pid.as_raw();
    let regions = maps::read(pid)?;
    let heap = maps::heap_start(&regions);
    let regions = maps::split_at(regions, heap);
    let classes = maps::classify(&regions, stack_pointer, heap);
    let mut pages = Vec::new();
    for (region, class) in regions.iter().zip(classes) {
        if class == Some(plan.target) {
            let present = maps::present_pages(pid, &region.range)?;
            pages.extend(present.into_iter().map(|page| (page, region)));
        }
    }
    if pages.is_empty() {
        return Err(Miss::NoSuchMemory(plan.target));
    }
    let (page, region) = pages[choose(plan.place / PAGE, pages.len())];
    let address = page + plan.place % PAGE;
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    let mut byte = [0_u8];
    memory.read_exact_at(&mut byte, address)?;
    hit.bit = bit_below(plan.bit, 8);
    hit.before = u64::from(byte[0]);
    byte[0] ^= 1 << hit.bit;
    hit.after = u64::from(byte[0]);
    hit.place = format!("{address:#x} ({} {})", plan.target, file_name(&region.name));
    memory.write_all_at(&byte, address)?;
    Ok(())
}

/// Last part of a path, for reports that are the same on every machine.
fn file_name(path: &str) -> &str {
    path.rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or("anonymous")
}

pub(crate) fn choose(random: u64, limit: usize) -> usize {
    usize::try_from(random % limit as u64).unwrap_or(0)
}

pub(crate) fn bit_below(random: u64, limit: u32) -> u32 {
    u32::try_from(random % u64::from(limit)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Child, Command, Stdio};

    use super::{Hit, Miss, STOPS, When, alive, cpu_time, flip};
    use crate::plan::{Plan, Space};
    use crate::target::{Target, Targets};

    struct Victim(Child);

    impl Victim {
        fn start() -> Self {
            let mut command = Command::new("sh");
            command
                .args(["-c", "echo; while :; do :; done"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            let mut victim = Self(command.spawn().expect("sh starts"));
            let mut output = victim.0.stdout.take().expect("a pipe");
            output.read_exact(&mut [0]).expect("its first word");
            victim
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a pid")
        }
    }

    impl Drop for Victim {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn hit(victim: &Victim, plan: &Plan) -> Result<Hit, Miss> {
        flip(victim.pid(), When::User, plan, STOPS)
    }

    fn plan(targets: &str, index: u64) -> Plan {
        let targets: Targets = targets.parse().expect("valid list");
        let space = Space {
            seed: 1,
            programs: 1,
            replicas: 1,
            targets,
            flips: 1,
        };
        Plan::derive(&space, index, 0)
    }

    #[test]
    fn each_class_of_a_live_process_can_be_hit() {
        for class in ["gpr", "xmm", "text", "data", "heap", "stack", "mmap"] {
            let victim = Victim::start();
            let hit = hit(&victim, &plan(class, 3)).expect(class);
            assert_eq!((hit.before ^ hit.after).count_ones(), 1, "{hit:?}");
            assert!(hit.cpu_ns > 0 && hit.ip > 0);
        }
    }

    #[test]
    fn flipped_memory_stays_flipped() {
        let victim = Victim::start();
        let first = hit(&victim, &plan("text", 0)).expect("text is present");
        let second = hit(&victim, &plan("text", 0)).expect("text is present");
        assert_eq!((first.before, first.after), (second.after, second.before));
    }

    #[test]
    fn classes_that_do_not_exist_are_named() {
        let victim = Victim::start();
        let miss = hit(&victim, &plan("agent", 0)).expect_err("no agent in sh");
        assert_eq!(miss, Miss::NoSuchMemory(Target::Agent));
        assert!(alive(victim.pid()));
    }

    #[test]
    fn the_state_asked_for_is_waited_for() {
        let victim = Victim::start();
        let stops = |when| flip(victim.pid(), when, &plan("xmm", 1), STOPS);
        assert!(!stops(When::User).expect("a busy loop").in_kernel);
        assert_eq!(stops(When::Return), Err(Miss::InKernel));
    }

    #[test]
    fn the_dead_are_noticed() {
        let mut victim = Victim::start();
        // The kernel accounts for what a process has used now and then only.
        while cpu_time(victim.pid()).expect("a process that lives") == 0 {
            std::thread::yield_now();
        }
        victim.0.kill().expect("own child");
        assert_eq!(hit(&victim, &plan("gpr", 0)), Err(Miss::Ended));
        victim.0.wait().expect("its status is still ours to read");
        assert_eq!(cpu_time(victim.pid()), None);
    }
}
