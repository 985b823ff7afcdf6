//! The first instructions: of the boot core, of the others, and the step into a partition.
//!
//! The boot part runs where it was loaded. It maps everything at its physical address, and the
//! kernel proper, as it was loaded, high besides. `enter_partition` is where a core leaves that
//! world for good: the kernel's code is mapped at the same address on both sides.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .boot.bss, "aw", @nobits
    .balign 4096
boot_low: .skip 4096
boot_low_1: .skip 4096
boot_high: .skip 4096
boot_high_1: .skip 4096
boot_stack: .skip 16384
boot_stack_top:

    .section .boot.text, "awx"
    .globl boot_start
    .balign 2048
boot_vectors:
    .rept 16
    // Nothing can be told yet: the machine goes off.
    ldr x0, ={off}
    mrs x1, currentel
    tbz x1, #3, 1f
    smc #0
1:  hvc #0
    .balign 128
    .endr
boot_start:
    msr daifset, #15
    // All below 4 GiB at its own address, in blocks of 1 GiB: devices, then memory.
    adrp x0, boot_low
    adrp x1, boot_low_1
    add x2, x1, #3
    str x2, [x0]
    ldr x2, ={device}
    str x2, [x1]
    ldr x2, ={memory}
    mov x3, #0x40000000
    add x2, x2, x3
    str x2, [x1, #8]
    add x4, x2, x3
    str x4, [x1, #16]
    add x4, x4, x3
    str x4, [x1, #24]
    // The first of memory also where the kernel is linked.
    adrp x0, boot_high
    adrp x1, boot_high_1
    add x3, x1, #3
    str x3, [x0, #511 * 8]
    str x2, [x1, #511 * 8]
    // And ports where they are in partitions.
    ldr x2, ={device}
    str x2, [x1, #480 * 8]
    bl translate
    adrp x0, boot_stack_top
    mov sp, x0
    mov x29, xzr
    mov x30, xzr
    ldr x1, =boot_main
    br x1

    // Another core, with its partition's root table in x0.
core_start:
    msr daifset, #15
    bl translate
    b boot_switch

    // Translation on, with the boot tables. Memory kinds: ordinary, registers.
    // On level 2 the registers of level 1 that are named from here on are those of level 2.
translate:
    mrs x1, currentel
    tbz x1, #3, 1f
    ldr x1, ={host}
    msr hcr_el2, x1
    isb
1:
    msr spsel, #1
    adr x1, boot_vectors
    msr vbar_el1, x1
    adrp x1, boot_low
    msr ttbr0_el1, x1
    adrp x1, boot_high
    msr ttbr1_el1, x1
    ldr x1, ={kinds}
    msr mair_el1, x1
    ldr x1, ={control}
    msr tcr_el1, x1
    isb
    tlbi vmalle1
    dsb nsh
    ic iallu
    dsb nsh
    isb
    mrs x1, sctlr_el1
    mov x2, #0x1005
    orr x1, x1, x2
    msr sctlr_el1, x1
    isb
    ret

boot_switch:
    dsb sy
    msr ttbr1_el1, x0
    isb
    tlbi vmalle1
    dsb nsh
    ic iallu
    dsb nsh
    isb
    ldr x1, =partition_start
    br x1
    .ltorg

    .text
    .globl enter_partition
enter_partition:
    ldr x1, =boot_switch
    br x1
partition_start:
    ldr x1, ={room}
    add x0, x0, x1
    msr ttbr0_el1, x0
    isb
    tlbi vmalle1
    dsb nsh
    isb
    adrp x1, __stack_top
    add x1, x1, :lo12:__stack_top
    mov sp, x1
    mov x29, xzr
    mov x30, xzr
    bl partition_main
    udf #0
    .ltorg

    .section .rodata
    .balign 8
    .globl core_start_place
core_start_place: .quad core_start
    "#,
    off = const super::psci::SYSTEM_OFF,
    host = const super::level::HOST,
    // Read and written, executed by the kernel: until there is a partition.
    memory = const 1_u64 | 3 << 8 | 1 << 10 | 1 << 54,
    device = const 1_u64 | 1 << 2 | 1 << 10 | 3 << 53,
    kinds = const 0x04ff_u64,
    // Both halves of 48 bits in pages of 4 KiB, cached and shared; 40 bits of physical address.
    control = const 16_u64 | 1 << 8 | 1 << 10 | 3 << 12
        | 16 << 16 | 1 << 24 | 1 << 26 | 3 << 28 | 2 << 30 | 2 << 32,
    room = const super::tables::ROOM,
);

unsafe extern "C" {
    /// The physical address at which a core begins, with a partition's root table in its first
    /// register.
    #[link_name = "core_start_place"]
    pub(super) static CORE_START: u64;
}

const _: () = assert!(
    super::layout::PORTS == 0xffff_fff8_0000_0000 + super::layout::PORTS_PHYSICAL
        && super::layout::PORTS >> 30 & 511 == 480,
    "the boot tables map ports so"
);
