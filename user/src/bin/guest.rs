//! A small guest: an operating system in a few lines, which has what a large one begins with.
//!
//! It sets translation up and switches it on, runs a program on level 0 that makes calls, and
//! computes on level 1, with exclusive loads and stores too, while its timer interrupts it. What it
//! prints does not depend on how fast any of that is. Argument, in its first register: interrupts
//! that it waits for (5), or where the description of the board is, of which it prints what is not
//! the same on each.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_abi::guest::{CLOCK, CONTROLLER, MEMORY, SERIAL};

global_asm!(
    r#"
    .section .text._start, "ax", @progbits
    .globl _start
_start:
    adrp x1, guest_stack_top
    mov sp, x1
    adr x1, guest_vectors
    msr vbar_el1, x1
    mov x1, #3 << 20
    msr cpacr_el1, x1
    // The first GiB is devices, the second memory, each at its own address.
    adrp x1, guest_table
    ldr x2, ={devices}
    str x2, [x1]
    ldr x2, ={memory}
    str x2, [x1, #8]
    // The same memory once more, for programs.
    ldr x2, ={programs}
    str x2, [x1, #16]
    msr ttbr0_el1, x1
    ldr x1, =0xff00
    msr mair_el1, x1
    ldr x1, ={control}
    msr tcr_el1, x1
    dsb sy
    isb
    mrs x1, sctlr_el1
    mov x2, #0x1005
    orr x1, x1, x2
    msr sctlr_el1, x1
    isb
    bl guest_main
1:  b 1b

    // All that a handler may change: general registers, and those of floating point.
    .macro each_pair do
    \do x2, x3, 16
    \do x4, x5, 32
    \do x6, x7, 48
    \do x8, x9, 64
    \do x10, x11, 80
    \do x12, x13, 96
    \do x14, x15, 112
    \do x16, x17, 128
    \do x18, x29, 144
    \do q0, q1, 176
    \do q2, q3, 208
    \do q4, q5, 240
    \do q6, q7, 272
    \do q16, q17, 304
    \do q18, q19, 336
    \do q20, q21, 368
    \do q22, q23, 400
    \do q24, q25, 432
    \do q26, q27, 464
    \do q28, q29, 496
    \do q30, q31, 528
    .endm
    .macro push first second place
    stp \first, \second, [sp, #\place]
    .endm
    .macro pop first second place
    ldp \first, \second, [sp, #\place]
    .endm
    .macro vector handler
    .balign 128
    sub sp, sp, #560
    stp x0, x1, [sp]
    str x30, [sp, #160]
    adr x0, \handler
    b guest_entered
    .endm
    .balign 2048
guest_vectors:
    .rept 4
    vector guest_lost
    .endr
    vector guest_trap
    vector guest_interrupt
    vector guest_lost
    vector guest_lost
    vector guest_call
    vector guest_interrupt
    vector guest_lost
    vector guest_lost
    .rept 4
    vector guest_lost
    .endr
guest_entered:
    each_pair push
    blr x0
    each_pair pop
    ldr x30, [sp, #160]
    ldp x0, x1, [sp]
    add sp, sp, #560
    eret

    // The program, to which its number of calls is given; the last one does not return there.
    .globl guest_program, guest_run
guest_program:
    svc #0
    subs x0, x0, #1
    b.ne guest_program
    svc #1
    // Runs it, on level 0.
guest_run:
    stp x29, x30, [sp, #-96]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    mov x2, sp
    adrp x3, guest_kept
    str x2, [x3, :lo12:guest_kept]
    msr spsr_el1, xzr
    msr elr_el1, x1
    isb
    eret
    .globl guest_ended
guest_ended:
    adrp x3, guest_kept
    ldr x2, [x3, :lo12:guest_kept]
    mov sp, x2
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp x29, x30, [sp], #96
    ret

    .bss
    .balign 4096
guest_table: .skip 4096
guest_stack: .skip 16384
guest_stack_top: .skip 8
guest_kept: .skip 8
    "#,
    // Blocks: used, shared, and of the second kind of memory, which is cached; what may not be
    // executed, and what programs have.
    devices = const 1_u64 | 1 << 10 | 3 << 53,
    memory = const 0x4000_0000_u64 | 1 | 1 << 2 | 3 << 8 | 1 << 10,
    programs = const 0x4000_0000_u64 | 1 | 1 << 2 | 1 << 6 | 3 << 8 | 1 << 10,
    // The lower half alone, of 39 bits in pages of 4 KiB; 40 bits of physical address.
    control = const 25_u64 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32,
);

unsafe extern "C" {
    fn guest_program();
    fn guest_run(calls: u64, entry: u64);
    fn guest_ended() -> !;
}

/// Where programs find memory: a GiB further.
const FURTHER: u64 = 1 << 30;
/// Calls of the program, interrupts that are waited for if nobody says how many, and the time
/// between them: a hundredth of a second.
const CALLS: u64 = 1_000;
const TICKS: u64 = 5;
const PERIOD: u64 = 625_000;
/// The timer's interrupt.
const TIMER: u64 = 30;

/// Additions by exclusive loads and stores at a time.
const ROUNDS: u64 = 1_000;

static EXCLUSIVE: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
static CALLED: AtomicU64 = AtomicU64::new(0);
static UNKNOWN: AtomicU64 = AtomicU64::new(0);

fn store(address: u64, value: u32) {
    // SAFETY: a register of the board, which is mapped at its own address.
    unsafe { (address as *mut u32).write_volatile(value) }
}

fn load(address: u64) -> u32 {
    // SAFETY: as for a store.
    unsafe { (address as *const u32).read_volatile() }
}

/// The serial line.
struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| store(SERIAL, byte.into()));
        Ok(())
    }
}

fn say(text: fmt::Arguments<'_>) {
    // The line takes anything.
    let _ = Line.write_fmt(format_args!("{text}\n"));
}

/// The timer interrupts after a period.
fn set_timer() {
    // SAFETY: the timer is nobody else's.
    unsafe {
        asm!("msr cntp_tval_el0, {}", "msr cntp_ctl_el0, {}", "isb",
            in(reg) PERIOD, in(reg) 1_u64, options(nomem, nostack));
    }
}

/// An interrupt: the timer's, as there is no other.
#[unsafe(no_mangle)]
extern "C" fn guest_interrupt() {
    let number = load(CONTROLLER + 0x1_000c);
    assert!(u64::from(number) == TIMER, "an interrupt {number}");
    COUNTED.fetch_add(1, Ordering::Relaxed);
    set_timer();
    store(CONTROLLER + 0x1_0010, number);
}

fn syndrome() -> u64 {
    let why: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, esr_el1", out(reg) why, options(nomem, nostack)) };
    why
}

/// A call of the program, or its end.
#[unsafe(no_mangle)]
extern "C" fn guest_call() {
    let why = syndrome();
    assert!(why >> 26 == 0x15, "the program faults: {why:#x}");
    if why & 1 == 0 {
        CALLED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: `guest_run` waits for it.
    unsafe { guest_ended() }
}

/// An instruction that this processor does not have is gone past.
#[unsafe(no_mangle)]
extern "C" fn guest_trap() {
    let why = syndrome();
    assert!(why >> 26 == 0, "the guest faults: {why:#x}");
    UNKNOWN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: it was one instruction.
    unsafe {
        asm!("mrs {0}, elr_el1", "add {0}, {0}, #4", "msr elr_el1, {0}", out(reg) _,
            options(nomem, nostack));
    }
}

#[unsafe(no_mangle)]
extern "C" fn guest_lost() {
    panic!(
        "an exception that there is no handler for: {:#x}",
        syndrome()
    );
}

/// Lets the timer's interrupt through.
fn open() {
    store(CONTROLLER, 1);
    store(CONTROLLER + 0x100, 1 << TIMER);
    store(CONTROLLER + 0x1_0004, 0xf0);
    store(CONTROLLER + 0x1_0000, 1);
    set_timer();
    // SAFETY: there is a handler.
    unsafe { asm!("msr daifclr, #2", options(nomem, nostack)) };
}

/// Adds one to a number so many times by exclusive loads and stores, of which an interruption
/// between the two has the store fail: then both are made again.
fn count_exclusively(rounds: u64) {
    // SAFETY: the number is nobody else's; the store is made if nobody interrupted.
    unsafe {
        asm!(
            "2: ldxr {value}, [{place}]",
            "eor {other}, {value}, #1",
            "add {other}, {other}, {value}",
            "add {value}, {value}, #1",
            "cbz {value}, 3f",
            "stlxr {failed:w}, {value}, [{place}]",
            "cbnz {failed:w}, 2b",
            "3: subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            place = in(reg) EXCLUSIVE.as_ptr(),
            rounds = inout(reg) rounds => _,
            value = out(reg) _,
            other = out(reg) _,
            failed = out(reg) _,
            options(nostack),
        );
    }
}

/// Waits for so many interrupts: computing, and every second time in the processor.
fn wait_for(ticks: u64) -> f64 {
    loop {
        let before = EXCLUSIVE.load(Ordering::Relaxed);
        count_exclusively(ROUNDS);
        let counted = EXCLUSIVE.load(Ordering::Relaxed) - before;
        assert!(counted == ROUNDS, "{counted} of {ROUNDS} additions");
        if ticks.is_multiple_of(2) {
            // SAFETY: an interrupt will come.
            unsafe { asm!("wfi", options(nomem, nostack)) };
        }
        let sum = black_box((1..=1_000).map(|it| 1.0 / f64::from(it)).sum());
        if COUNTED.load(Ordering::Relaxed) >= ticks {
            return sum;
        }
    }
}

/// The description of the board (a flattened device tree).
struct Tree(&'static [u8]);

impl Tree {
    /// The description at this place, if there is one.
    fn at(place: u64) -> Option<Self> {
        let place = place as *const u8;
        // SAFETY: it is in memory, which is mapped; nobody writes what is there.
        let header = unsafe { core::slice::from_raw_parts(place, 40) };
        let tree = Self(header);
        let len = tree.word(4)? as usize;
        let is = tree.word(0)? == 0xd00d_feed && len <= 1 << 16;
        // SAFETY: as for its header, which says how long it is.
        is.then(|| Self(unsafe { core::slice::from_raw_parts(place, len) }))
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// The value of the first property of this name.
    fn property(&self, name: &[u8]) -> Option<&'static [u8]> {
        let (mut at, strings) = (self.word(8)? as usize, self.word(12)? as usize);
        loop {
            match self.word(at)? {
                // A node begins, with its name.
                1 => at += 4 + (text(self.0.get(at + 4..)?).len() + 1).next_multiple_of(4),
                3 => {
                    let (len, place) = (self.word(at + 4)? as usize, self.word(at + 8)? as usize);
                    if text(self.0.get(strings + place..)?) == name {
                        return self.0.get(at + 12..at + 12 + len);
                    }
                    at += 12 + len.next_multiple_of(4);
                }
                9 => return None,
                _ => at += 4,
            }
        }
    }

    /// A number of a property.
    fn number(&self, name: &[u8], index: usize) -> Option<u64> {
        let bytes = self.property(name)?.get(index * 8..index * 8 + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    }
}

/// Bytes up to a zero.
fn text(bytes: &[u8]) -> &[u8] {
    let len = bytes.iter().position(|&byte| byte == 0);
    &bytes[..len.unwrap_or(bytes.len())]
}

/// Prints what the description of the board says of memory, the command line, and the first files.
fn describe(tree: &Tree) -> Option<()> {
    let (start, bytes) = (tree.number(b"reg", 0)?, tree.number(b"reg", 1)?);
    say(format_args!("{} MiB of memory at {start:#x}", bytes >> 20));
    let line = str::from_utf8(text(tree.property(b"bootargs")?)).ok()?;
    say(format_args!("the command line is {line:?}"));
    let Some(first) = tree.number(b"linux,initrd-start", 0) else {
        say(format_args!("there are no files"));
        return Some(());
    };
    let len = usize::try_from(tree.number(b"linux,initrd-end", 0)? - first).ok()?;
    // SAFETY: the host put them there, into memory.
    let files = unsafe { core::slice::from_raw_parts(first as *const u8, len) };
    let sum: u64 = files.iter().map(|&byte| u64::from(byte)).sum();
    say(format_args!("files of {len} bytes, whose sum is {sum}"));
    Some(())
}

/// The clock, which goes on.
fn clock() -> u64 {
    let now: u64;
    // SAFETY: the monitor goes on behind it, with the clock in that register.
    unsafe { asm!("brk {}", const CLOCK, out("x0") now, options(nomem, nostack)) };
    now
}

#[unsafe(no_mangle)]
extern "C" fn guest_main(argument: u64) {
    let level: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, currentel", out(reg) level, options(nomem, nostack)) };
    say(format_args!(
        "a guest on level {}, with translation",
        level >> 2
    ));
    // SAFETY: programs find the same code there, and come back by a call.
    unsafe { guest_run(CALLS, guest_program as *const () as u64 + FURTHER) };
    let called = CALLED.load(Ordering::Relaxed);
    say(format_args!("{called} calls of a program on level 0"));
    // SAFETY: a register of the controller that this board does not have; the trap goes past it.
    unsafe { asm!("msr s3_0_c12_c12_7, xzr", options(nomem, nostack)) };
    let unknown = UNKNOWN.load(Ordering::Relaxed);
    say(format_args!("{unknown} instruction that is unknown here"));
    let is_tree = argument >= MEMORY;
    if is_tree {
        let told = Tree::at(argument).and_then(|tree| describe(&tree));
        told.expect("the description of the board");
    }
    let before = clock();
    assert!(clock() > before, "the clock stands still");
    open();
    let ticks = if argument == 0 || is_tree {
        TICKS
    } else {
        argument
    };
    for ticks in 1..=ticks {
        let sum = wait_for(ticks);
        say(format_args!("tick {ticks}: {sum:.12}"));
    }
    off()
}

/// Switches the machine off, by a call of the firmware.
fn off() -> ! {
    loop {
        // SAFETY: the call does not return.
        unsafe { asm!("smc #0", in("x0") 0x8400_0008_u64, options(nomem, nostack)) };
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("{info}"));
    off()
}
