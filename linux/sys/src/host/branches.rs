//! Which event of the processor counts the conditional branches of a program, and whether it does
//! so exactly here.
//!
//! Conditional branches are what all replicas make alike; of other branches processors count some
//! more for each interrupt. A counter is taken for exact if a known loop gives the known count
//! again and again, undisturbed and while signals interrupt it.
//!
//! Contract: what is not known, or not exact, is refused by name.
//!
//! Not covered: processors with cores of two kinds, whose events have two numbers.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, CpuidResult};
use std::format;
use std::io;
use std::string::{String, ToString as _};
use std::time::Duration;
use std::vec::Vec;

use super::in_child;
use crate::perf::{Attributes, CLOSE_ON_EXEC, DISABLE, ENABLE, RESET, complete};

/// An event in the words of `perf_event_open`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The type.
    pub kind: u32,
    /// Which one of that; of breakpoints the address of an instruction.
    pub event: u64,
}

impl Event {
    /// How often the instruction at this address is executed: exact on any processor, and slow.
    #[must_use]
    pub const fn visits(address: u64) -> Self {
        Self {
            kind: Attributes::BREAKPOINT,
            event: address,
        }
    }

    const fn raw(event: u64) -> Self {
        Self {
            kind: Attributes::RAW,
            event,
        }
    }
}

/// Models of family 6 whose event 0xc4 has retired conditional branches for mask 1, and for 0x11.
const FIRST: [u8; 25] = [
    0x1a, 0x1e, 0x2e, 0x25, 0x2c, 0x2f, 0x2a, 0x2d, 0x3a, 0x3e, 0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47,
    0x4f, 0x56, 0x4e, 0x55, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6,
];
const LATER: [u8; 9] = [0x7e, 0x6a, 0x6c, 0x8c, 0x8d, 0xa7, 0x8f, 0xcf, 0xad];

/// Retired conditional branches of this processor.
///
/// # Errors
/// It is not known which event that is.
pub fn conditional_branches() -> Result<Event, String> {
    let vendor = __cpuid(0);
    let signature = __cpuid(1).eax;
    event_of(vendor, signature)
}

fn event_of(vendor: CpuidResult, signature: u32) -> Result<Event, String> {
    let (ebx, edx, ecx) = (vendor.ebx, vendor.edx, vendor.ecx);
    let name: Vec<u8> = [ebx, edx, ecx]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let field = |from: u32, bits: u32| signature >> from & ((1 << bits) - 1);
    let base = field(8, 4);
    let family = base + if base == 15 { field(20, 8) } else { 0 };
    let model = u8::try_from(field(16, 4) << 4 | field(4, 4)).unwrap_or(0);
    match (name.as_slice(), family) {
        (b"GenuineIntel", 6) if FIRST.contains(&model) => Ok(Event::raw(0x01c4)),
        (b"GenuineIntel", 6) if LATER.contains(&model) => Ok(Event::raw(0x11c4)),
        (b"AuthenticAMD", 0x17 | 0x19 | 0x1a) => Ok(Event::raw(0xd1)),
        _ => Err(format!(
            "no event is known for {} family {family:#x} model {model:#x}",
            String::from_utf8_lossy(&name)
        )),
    }
}

/// The event of this processor, if it counts exactly here.
///
/// # Errors
/// Why it cannot be used.
pub fn exact_branches() -> Result<Event, String> {
    let event = conditional_branches()?;
    // A filter of system calls may forbid it even on pain of death; so a child asks first.
    if !matches!(in_child(try_open), Ok(Some(_))) {
        return Err("perf_event_open: nobody comes back from it (a filter of system calls)".into());
    }
    if is_amd() {
        let taken_back = Counter::open(Event::raw(0x0825)).map_err(refused)?;
        if taken_back.over_locks() != Some(0) {
            return Err("branches count that are taken back behind locks (SpecLockMap)".into());
        }
    }
    let counter = Counter::open(event).map_err(refused)?;
    verify(|disturbed| counter.over_loop(disturbed))?;
    Ok(event)
}

/// Whatever comes of it.
fn try_open() -> u8 {
    u8::from(Counter::open(Event::visits(0)).is_err())
}

fn is_amd() -> bool {
    __cpuid(0).ebx == u32::from_le_bytes(*b"Auth")
}

fn refused(error: io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os").next().unwrap_or_default();
    format!("perf_event_open: {text}")
}

/// Iterations of the loop, each with one conditional branch.
const ROUNDS: u64 = 4_000_000;
/// Runs of each kind.
const RUNS: usize = 5;

/// Is the loop counted as what it is, each time? `count`: undisturbed, or while signals come.
fn verify(mut count: impl FnMut(bool) -> Option<u64>) -> Result<(), String> {
    for (disturbed, how) in [(false, "undisturbed"), (true, "interrupted")] {
        for _ in 0..RUNS {
            match count(disturbed) {
                Some(ROUNDS) => {}
                Some(other) => {
                    return Err(format!(
                        "it is not exact: {other} branches of {ROUNDS}, {how}"
                    ));
                }
                None => return Err(format!("it was taken away meanwhile, {how}")),
            }
        }
    }
    Ok(())
}

/// A counter of this thread that stands still.
struct Counter(libc::c_int);

impl Counter {
    fn open(event: Event) -> io::Result<Self> {
        let attributes = Attributes::counter(event.kind, event.event);
        // SAFETY: the attributes are whole, and tell how long they are.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        match libc::c_int::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(Self(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What it has counted; `None` if it was not there all the time.
    fn read(&self) -> Option<u64> {
        let mut words = [0_u64; 3];
        let bytes = size_of_val(&words);
        // SAFETY: there is room for the words.
        let read = unsafe { libc::read(self.0, words.as_mut_ptr().cast(), bytes) };
        let whole = usize::try_from(read) == Ok(bytes);
        whole.then(|| complete(words)).flatten()
    }

    fn reset(&self) {
        // SAFETY: no memory involved.
        unsafe { libc::ioctl(self.0, RESET, 0) };
    }

    /// Counts the loop, perhaps while signals interrupt it, whose handler makes no such branch.
    fn over_loop(&self, disturbed: bool) -> Option<u64> {
        self.reset();
        let _signals = disturbed.then(Signals::every);
        // SAFETY: orders to the kernel without memory, and a loop of registers.
        unsafe {
            asm!(
                "syscall",
                "2: dec {rounds}",
                "jnz 2b",
                "mov eax, {ioctl}",
                "mov esi, {disable}",
                "syscall",
                rounds = inout(reg) ROUNDS => _,
                ioctl = const libc::SYS_ioctl,
                disable = const DISABLE,
                inout("rax") libc::SYS_ioctl => _,
                in("rdi") i64::from(self.0),
                inout("rsi") ENABLE => _,
                in("rdx") 0,
                out("rcx") _,
                out("r11") _,
            );
        }
        self.read()
    }

    /// Counts over an addition with a lock.
    fn over_locks(&self) -> Option<u64> {
        self.reset();
        let mut word = 0_u32;
        // SAFETY: orders to the kernel without memory.
        unsafe { libc::ioctl(self.0, ENABLE, 0) };
        // SAFETY: the word is this function's own.
        unsafe { asm!("lock add dword ptr [{word}], 1", word = in(reg) &raw mut word) };
        // SAFETY: as above.
        unsafe { libc::ioctl(self.0, DISABLE, 0) };
        self.read()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: a descriptor of its own.
        unsafe { libc::close(self.0) };
    }
}

/// Signals come every so often, up to the end of this; and what else would handle them.
struct Signals(libc::sighandler_t);

impl Signals {
    fn every() -> Self {
        const EVERY: Duration = Duration::from_micros(200);
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing.
        let before = unsafe {
            libc::signal(
                libc::SIGALRM,
                nothing as extern "C" fn(_) as libc::sighandler_t,
            )
        };
        Self::set(EVERY);
        Self(before)
    }

    fn set(every: Duration) {
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: every.subsec_micros().into(),
        };
        let both = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: the setting is whole.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const both, core::ptr::null_mut()) };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        Self::set(Duration::ZERO);
        // One that is pending for another thread would end the process: who ignores it takes it
        // away.
        // SAFETY: what it was before, in the end.
        unsafe {
            libc::signal(libc::SIGALRM, libc::SIG_IGN);
            libc::signal(libc::SIGALRM, self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vendor(name: &[u8; 12]) -> CpuidResult {
        let word = |at: usize| u32::from_le_bytes(name[at..at + 4].try_into().expect("four"));
        CpuidResult {
            eax: 0,
            ebx: word(0),
            edx: word(4),
            ecx: word(8),
        }
    }

    #[test]
    fn events_are_those_of_known_processors() {
        let event = |name, signature| event_of(vendor(name), signature);
        assert_eq!(
            event(b"GenuineIntel", 0x50654),
            Ok(Event::raw(0x1c4)),
            "Skylake"
        );
        assert_eq!(
            event(b"GenuineIntel", 0x806f8),
            Ok(Event::raw(0x11c4)),
            "Sapphire"
        );
        assert_eq!(
            event(b"AuthenticAMD", 0xa10f11),
            Ok(Event::raw(0xd1)),
            "Zen 4"
        );
        assert!(
            event(b"GenuineIntel", 0x90672).is_err(),
            "cores of two kinds"
        );
        assert!(event(b"AuthenticAMD", 0x600f20).is_err(), "before Zen");
        assert!(event(b"ThirdVendorX", 0x50654).is_err());
    }

    #[test]
    fn a_counter_is_exact_or_it_is_refused_by_name() {
        assert_eq!(verify(|_| Some(ROUNDS)), Ok(()));
        let told = |count: fn(bool) -> Option<u64>| verify(count).expect_err("refused");
        assert!(told(|_| Some(ROUNDS + 1)).contains("4000001 branches of 4000000, undisturbed"));
        let interrupted = told(|disturbed| Some(ROUNDS - u64::from(disturbed)));
        assert!(interrupted.contains("3999999 branches of 4000000, interrupted"));
        assert!(told(|_| None).contains("taken away"));
        let mut run = 0;
        let once = verify(|_| {
            run += 1;
            Some(ROUNDS + u64::from(run == 2 * RUNS))
        });
        assert!(once.is_err(), "each time counts");
    }

    /// The loop under a counter that any processor has: of visits to the branch of another loop.
    #[test]
    fn a_loop_without_the_event_has_none_of_it() {
        let Ok(counter) = Counter::open(Event::visits(refused as *const () as u64)) else {
            return;
        };
        assert_eq!(counter.over_loop(false), Some(0));
        assert_eq!(counter.over_loop(true), Some(0));
    }

    #[test]
    fn this_machine_has_an_exact_counter_or_says_why_not() {
        match exact_branches() {
            Ok(event) => assert_eq!(Ok(event), conditional_branches()),
            Err(why) => {
                let reasons = ["perf_event_open: ", "no event is known", "exact", "taken"];
                assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
            }
        }
    }
}
