//! What a core is set to once: segments, task state and interrupt descriptors, and protection.
//! Every replica has its own, at the same addresses, because they are statics of its copy of the
//! kernel.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::cpu::{read_msr, write_msr};
use super::trap::{HANDLERS, VECTORS, syscall_entry};

/// Selector of the kernel's code.
pub(in crate::arch) const KERNEL_CODE: u64 = 0x08;
/// Selector of programs' data.
pub(in crate::arch) const USER_DATA: u64 = 0x1b;
/// Selector of programs' code.
pub(in crate::arch) const USER_CODE: u64 = 0x23;
const TASK: u16 = 0x28;

/// A static that only boot code writes, before anything reads it.
#[repr(C, align(16))]
struct Table<T>(UnsafeCell<T>);

// SAFETY: a replica has one core, and writes it once before the processor reads it.
unsafe impl<T> Sync for Table<T> {}

static GDT: Table<[u64; 7]> = Table(UnsafeCell::new([
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_f300_0000_ffff,
    0x00af_fb00_0000_ffff,
    0,
    0,
]));

/// Words of the task state segment.
static TASK_STATE: Table<[u32; 26]> = Table(UnsafeCell::new([0; 26]));

static IDT: Table<[[u64; 2]; 256]> = Table(UnsafeCell::new([[0; 2]; 256]));

unsafe extern "C" {
    static __stack_top: u8;
    static __fault_stack_top: u8;
}

/// The vector of the instruction for breakpoints, which programs may execute.
const BREAKPOINT: usize = 3;

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Vectors that get the second stack: they may come when the first one is broken.
const ON_FAULT_STACK: [usize; 3] = [2, 8, 18];

/// Sets everything up for this core.
///
/// # Safety
/// Once, in a partition, with interrupts off.
#[expect(
    clippy::cast_possible_truncation,
    reason = "descriptors are put together from parts"
)]
pub(in crate::arch) unsafe fn install() {
    let (gdt, task, idt) = (GDT.0.get(), TASK_STATE.0.get(), IDT.0.get());
    let stack = &raw const __stack_top as u64;
    let fault_stack = &raw const __fault_stack_top as u64;
    let base = task as u64;
    // SAFETY: nothing else refers to these statics yet.
    unsafe {
        (*task)[1] = stack as u32;
        (*task)[2] = (stack >> 32) as u32;
        (*task)[9] = fault_stack as u32;
        (*task)[10] = (fault_stack >> 32) as u32;
        // No map of I/O ports: programs reach none.
        (*task)[25] = 104 << 16;
        (*gdt)[5] = 103 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        (*gdt)[6] = base >> 32;
        for (vector, handler) in HANDLERS.iter().enumerate().take(VECTORS) {
            let address = *handler as u64;
            let stack = u64::from(ON_FAULT_STACK.contains(&vector));
            let kind = if vector == BREAKPOINT { 0xee } else { 0x8e };
            (*idt)[vector] = [
                address & 0xffff
                    | KERNEL_CODE << 16
                    | stack << 32
                    | kind << 40
                    | (address >> 16 & 0xffff) << 48,
                address >> 32,
            ];
        }
        load(gdt as u64, idt as u64);
        enable_syscalls();
        protect();
    }
}

/// # Safety
/// Both tables are complete and stay.
unsafe fn load(gdt: u64, idt: u64) {
    let gdt = Pointer {
        limit: 7 * 8 - 1,
        base: gdt,
    };
    let idt = Pointer {
        limit: 256 * 16 - 1,
        base: idt,
    };
    // SAFETY: the code segment is where it was, so that execution goes on; the caller vouches for
    // the tables.
    unsafe {
        asm!(
            "lgdt [{gdt}]",
            "lidt [{idt}]",
            "ltr {task:x}",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            gdt = in(reg) &raw const gdt,
            idt = in(reg) &raw const idt,
            task = in(reg) u64::from(TASK),
            code = in(reg) KERNEL_CODE,
            scratch = out(reg) _,
        );
    }
}

/// # Safety
/// The entry is complete.
unsafe fn enable_syscalls() {
    const EFER: u32 = 0xc000_0080;
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const FMASK: u32 = 0xc000_0084;
    // Interrupts, traps, direction and alignment checks are off in the kernel.
    let mask = 0x4_7700;
    let selectors = KERNEL_CODE << 32 | (USER_DATA - 8) << 48;
    // SAFETY: these registers say where system calls go, which is the caller's promise.
    unsafe {
        write_msr(EFER, read_msr(EFER) | 1);
        write_msr(STAR, selectors);
        write_msr(LSTAR, syscall_entry as *const () as u64);
        write_msr(FMASK, mask);
    }
}

/// Sets control bits: protection of the kernel from user memory, no time stamps in programs.
///
/// # Safety
/// Once, by a kernel that never touches memory that programs can.
unsafe fn protect() {
    const UMIP: u64 = 1 << 11;
    const TSD: u64 = 1 << 2;
    const SMEP: u64 = 1 << 20;
    const SMAP: u64 = 1 << 21;
    let features: u32;
    let more: u32;
    // SAFETY: CPUID changes nothing but its registers; rbx is kept.
    unsafe {
        asm!("push rbx", "cpuid", "mov {0:e}, ebx", "pop rbx", out(reg) features,
            inout("eax") 7 => _, inout("ecx") 0 => more, out("edx") _);
    }
    let mut bits = TSD;
    if features & 1 << 7 != 0 {
        bits |= SMEP;
    }
    if features & 1 << 20 != 0 {
        bits |= SMAP;
    }
    if more & 1 << 2 != 0 {
        bits |= UMIP;
    }
    // SAFETY: the kernel executes its own text only and touches no user page, so none of these bits
    // changes what it does.
    unsafe {
        asm!("mov {0}, cr4", "or {0}, {1}", "mov cr4, {0}", out(reg) _, in(reg) bits,
            options(nostack));
    }
}
