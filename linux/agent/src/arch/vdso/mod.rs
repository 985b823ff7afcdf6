//! Clocks without a system call: the program's vDSO and what stands behind it.
//!
//! The host's vDSO would read the clock behind the agent's back. So the program gets one of our own
//! ([`image`]), whose functions jump here as an ordinary call, and the host's serves the agent
//! ([`host`]). The primary reads the clock and publishes one word; its followers take that word.
//!
//! Contract: which way a call takes is the same in all replicas. What decides is either alike in
//! all of them, or the primary's word: where it alone has seen that something rare is due (a
//! signal, a timer, an order of the supervisor) it publishes [`RARE`] instead of a time, and all
//! make the system call. Nothing of the program's memory is touched, and no register is left that
//! differs between replicas.
//!
//! Not covered: clocks of processes and threads, and those of devices; they are system calls.

pub(crate) mod host;
pub(crate) mod image;

use core::arch::global_asm;
use core::sync::atomic::Ordering;

use rcoe_core::{Compare, Consumed};
use rcoe_linux_abi::{CLOCK_VDSO, Control, StatClass};

use crate::arch::entry::{AGENT_STACK_BYTES, TrapFrame, without_vectors};
use crate::calls::signals;
use crate::kernel::{self, Kernel, kind};
use crate::sys;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Bits in which the nanoseconds of a time are published.
const NANOSECONDS: u32 = SECOND.next_power_of_two().ilog2();
/// What a primary publishes instead of a time: all make the system call. No clock ever says so.
const RARE: u64 = u64::MAX;
/// The clocks that are read here, a bit each: those that need no process and no device.
const CLOCKS: u32 = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 11;
/// The call as which readings are counted and compared.
const CALL: u64 = sys::CLOCK_GETTIME;

/// How often a follower looks for the primary's word before it waits as for any other, and how long
/// it lets it alone in between: a primary that reads clocks in a loop gets on while nobody looks,
/// and the follower then takes several words for one look.
const LOOKS: u32 = 4;
const PAUSES: u32 = 8;

/// What [`rcoe_vdso_read`] gives, in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    seconds: u64,
    /// The sign bit says that the system call is to be made.
    nanoseconds: u64,
}

impl Reading {
    /// The host's vDSO would make the call, too.
    const NOT_OURS: Self = Self {
        seconds: 0,
        nanoseconds: u64::MAX,
    };
    /// The host's vDSO would answer.
    const MAKE_THE_CALL: Self = Self {
        seconds: 0,
        nanoseconds: u64::MAX - 1,
    };

    /// So many nanoseconds.
    const fn of(time: u64) -> Self {
        Self {
            seconds: time / SECOND,
            nanoseconds: time % SECOND,
        }
    }

    /// In one word, for the next five centuries; [`RARE`] if it is no time.
    const fn pack(self) -> u64 {
        // Bits that are looked at together: more than enough nanoseconds stay what they are.
        let beyond = self.nanoseconds >> NANOSECONDS | self.seconds >> (u64::BITS - NANOSECONDS);
        if beyond == 0 {
            (self.seconds << NANOSECONDS) | self.nanoseconds
        } else {
            RARE
        }
    }

    /// The time that such a word tells.
    const fn unpack(word: u64) -> Self {
        Self {
            seconds: word >> NANOSECONDS,
            nanoseconds: word & ((1 << NANOSECONDS) - 1),
        }
    }
}

/// How this run reads clocks. The same in all replicas.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    /// Of the host's vDSO; see [`host::Reader`].
    host: host::Reader,
    /// That, unless the time stamp counter traps: then the host's vDSO cannot read it either.
    reader: host::Reader,
    /// The vDSO's functions are answered here, and not by system calls.
    on: bool,
    /// The counter does not trap.
    open: bool,
    _rest: [u8; 6],
}

impl Clock {
    /// As the user wants it.
    pub(crate) fn new(control: &Control, reader: host::Reader) -> Self {
        let alone = control.replicas.load(Ordering::Relaxed) == 1;
        // Where every call is voted, these are, too.
        let every = Compare::from_word(control.compare.load(Ordering::Relaxed)) == Compare::Every;
        Self {
            host: reader,
            reader: if alone { reader } else { host::Reader::CALLS },
            on: is_wanted(control) && !every,
            open: alone,
            _rest: [0; 6],
        }
    }

    /// Does the host's vDSO answer where the counter does not trap?
    pub(crate) const fn could_be_open(&self) -> bool {
        self.on && !self.host.is_calls()
    }

    /// The host's monotonic time in ns, for this replica alone.
    pub(crate) fn now(&self) -> u64 {
        const MONOTONIC: u32 = 1;
        let Reading {
            seconds,
            nanoseconds,
        } = without_vectors(|| self.reader.read(MONOTONIC));
        match nanoseconds < SECOND {
            true => seconds * SECOND + nanoseconds,
            false => sys::monotonic(),
        }
    }

    /// Does the counter not trap?
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// From now on it does, or does not.
    pub(crate) const fn set_open(&mut self, open: bool) {
        self.open = open;
        self.reader = if open { self.host } else { host::Reader::CALLS };
    }
}

/// Does the program get a vDSO?
pub(crate) fn is_wanted(control: &Control) -> bool {
    control.clock.load(Ordering::Relaxed) == CLOCK_VDSO
}

unsafe extern "C" {
    /// Where the program's vDSO enters; never called from Rust.
    fn rcoe_vdso_entry();
    /// The same where there is only one replica.
    fn rcoe_vdso_entry_alone();
}

/// The address of the right one, for the program's vDSO.
fn entry_address(control: &Control) -> u64 {
    if control.replicas.load(Ordering::Relaxed) == 1 {
        rcoe_vdso_entry_alone as *const () as u64
    } else {
        rcoe_vdso_entry as *const () as u64
    }
}

// The program's registers at the top of the stack are those of its last system call, which all
// replicas have alike. They stay.
global_asm!(
    r#"
    .pushsection .text.rcoe_vdso_entry, "ax", @progbits
    .macro clock_entry name, function
    .globl \name
    .type \name, @function
\name:
    mov qword ptr [rip + RCOE_PROGRAM_STACK], rsp
    lea rsp, [rip + RCOE_AGENT_STACK + {stack}]
    push r11
    push rsi
    push rdi
    pushfq
    test dword ptr [rsp], {unusual}
    jnz 3f
    mov edx, eax
    call \function
2:  add rsp, 8
    pop rdi
    pop rsi
    pop r11
    mov rsp, qword ptr [rip + RCOE_PROGRAM_STACK]
    .endm

    .macro no_clock
3:  mov rdx, -2
    xor eax, eax
    jmp 2b
    .endm

    clock_entry rcoe_vdso_entry_alone, rcoe_vdso_read_alone
    jmp r11
    no_clock

    clock_entry rcoe_vdso_entry, rcoe_vdso_read
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    pxor xmm\n, xmm\n
    .endr
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor ecx, ecx
    jmp r11
    no_clock
    .popsection
    "#,
    stack = const AGENT_STACK_BYTES - size_of::<TrapFrame>(),
    unusual = const ALIGNMENT_CHECK | BACKWARDS,
);

/// Flags with which no compiled code runs: what is not aligned faults, and strings go backwards.
const ALIGNMENT_CHECK: u32 = 1 << 18;
const BACKWARDS: u32 = 1 << 10;

/// A lone replica reads a clock.
#[unsafe(no_mangle)]
extern "C" fn rcoe_vdso_read_alone(_first: u64, _second: u64, clock: u32) -> Reading {
    if !is_ours(clock) {
        return Reading::NOT_OURS;
    }
    let kernel = kernel::kernel();
    let simple = kernel.calm.is_simple_alone() && kernel.clock.on;
    if !simple && !is_ordinary(kernel) || signals::is_anything_due(kernel) {
        return Reading::MAKE_THE_CALL;
    }
    count(kernel);
    kernel.clock.reader.read(clock)
}

/// The program reads a clock. `first` and `second` are its own arguments, for the trace.
#[unsafe(no_mangle)]
extern "C" fn rcoe_vdso_read(first: u64, second: u64, clock: u32) -> Reading {
    if !is_ours(clock) {
        return Reading::NOT_OURS;
    }
    let kernel = kernel::kernel();
    if kernel.calm.is_simple_together() && kernel.clock.on {
        read::<true>(kernel, [first, second], clock)
    } else {
        read_any(kernel, [first, second], clock)
    }
}

/// The same where more is to be asked first.
#[inline(never)]
fn read_any(kernel: &mut Kernel, arguments: [u64; 2], clock: u32) -> Reading {
    if is_ordinary(kernel) {
        read::<false>(kernel, arguments, clock)
    } else {
        Reading::MAKE_THE_CALL
    }
}

/// All replicas read it. `SIMPLE`: the arguments of calls are compared.
#[inline(always)]
fn read<const SIMPLE: bool>(kernel: &mut Kernel, arguments: [u64; 2], clock: u32) -> Reading {
    if SIMPLE || kernel.compare >= Compare::Args {
        let [first, second] = arguments;
        let asked = first ^ second.rotate_left(32) ^ u64::from(clock).rotate_left(56);
        let before = kernel.outcome.take();
        let kind = kind::of(CALL, kind::CALL);
        kernel.replica.add_wide_event(kind, &[before, asked]);
    }
    kernel.step();
    match agree(kernel, clock) {
        RARE => Reading::MAKE_THE_CALL,
        time => {
            count(kernel);
            Reading::unpack(time)
        }
    }
}

/// Is it one that the host's vDSO answers?
#[inline]
const fn is_ours(clock: u32) -> bool {
    clock < u32::BITS && CLOCKS >> clock & 1 != 0
}

/// Is there nothing that needs the system call, as far as all replicas know?
#[inline(never)]
fn is_ordinary(kernel: &mut Kernel) -> bool {
    // One that is calm has no signals.
    let quiet = kernel.calm.is_calm() || kernel.signals.is_idle();
    kernel.clock.on && quiet && kernel.turns.count_reading() && kernel.threads.count_reading()
}

/// Counts it as the call that it stands for.
#[inline]
fn count(kernel: &mut Kernel) {
    kernel.count_call(StatClass::Input);
    kernel.signals.hear_nothing();
}

/// The time, or [`RARE`]: the same in all replicas.
#[inline(always)]
fn agree(kernel: &mut Kernel, clock: u32) -> u64 {
    if !kernel.replica.is_primary() {
        return follow(kernel);
    }
    let time = if signals::is_anything_due(kernel) {
        RARE
    } else {
        kernel.clock.reader.read(clock).pack()
    };
    publish(kernel, time)
}

/// Follower: the primary's word.
#[inline(never)]
fn follow(kernel: &mut Kernel) -> u64 {
    for _ in 0..LOOKS {
        if let Some(word) = kernel.replica.try_consume_word() {
            return word;
        }
        (0..PAUSES).for_each(|_| core::hint::spin_loop());
    }
    kernel.replica.env_mut().enter(CALL);
    let mut word = [RARE];
    match kernel.replica.consume(&mut word) {
        Ok(Consumed::Record(1)) => word[0],
        Ok(Consumed::Record(_)) => panic!("a reading is one word"),
        // The system call finds out what a lost primary left.
        Ok(Consumed::TakeOver) => publish(kernel, RARE),
        Err(halt) => kernel.park(halt),
    }
}

/// Primary: its word for all.
#[inline(always)]
fn publish(kernel: &mut Kernel, word: u64) -> u64 {
    if let Err(halt) = kernel.replica.publish_word(word) {
        kernel.park(halt);
    }
    word
}

/// A clock of the host by a call of the agent's own.
fn by_call(clock: u32) -> Reading {
    sys::clock(clock.cast_signed()).map_or(Reading::MAKE_THE_CALL, Reading::of)
}
