//! The first instructions: PVH entry of the boot core, trampoline of the others, and the step into
//! a partition.
//!
//! Each of the others enters its partition by way of [`super::shutdown`], where the processor can.
//!
//! The boot part runs below 4 GiB with everything mapped at its physical address; the kernel proper
//! is mapped high besides. `enter_partition` is where a core leaves that world for good: the same
//! code is mapped at the same address on both sides, so only the page tables change.

use core::arch::global_asm;

use super::shutdown;

/// Where the trampoline lies; a core is started at a page below 1 MiB.
pub(in crate::arch) const TRAMPOLINE: u64 = 0x8000;
/// Where in the trampoline's page the boot page tables' address stands.
pub(in crate::arch) const TRAMPOLINE_TABLES: u64 = 0xf00;
/// Where in it a core finds its partition's page tables, by its local APIC's id.
pub(in crate::arch) const TRAMPOLINE_CORES: u64 = 0xf20;
/// Where in it the first control block's address stands, or 0: see [`super::shutdown`].
pub(in crate::arch) const TRAMPOLINE_BLOCKS: u64 = 0xf08;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .align 4
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start

    .section .boot.bss, "aw", @nobits
    .align 4096
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_pdpt_high: .skip 4096
boot_pd: .skip 4096 * 4
boot_stack: .skip 16384
boot_stack_top:

    .section .boot.data, "aw"
    .align 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
boot_gdt_pointer:
    .word 23
    .quad boot_gdt

    .section .boot.text, "awx"
    .code32
    .globl pvh_start
pvh_start:
    cli
    cld
    mov $boot_stack_top, %esp
    mov %ebx, %ebp
    # All below 4 GiB at its own address, in pages of 2 MiB.
    movl $(boot_pdpt + 3), boot_pml4
    movl $(boot_pdpt_high + 3), boot_pml4 + 511 * 8
    movl $(boot_pd + 3), boot_pdpt
    movl $(boot_pd + 4096 + 3), boot_pdpt + 8
    movl $(boot_pd + 8192 + 3), boot_pdpt + 16
    movl $(boot_pd + 12288 + 3), boot_pdpt + 24
    # The first of it also where the kernel is linked.
    movl $(boot_pd + 3), boot_pdpt_high + 510 * 8
    mov $boot_pd, %edi
    mov $0x83, %eax
1:  mov %eax, (%edi)
    movl $0, 4(%edi)
    add $0x200000, %eax
    add $8, %edi
    cmp $(boot_pd + 16384), %edi
    jne 1b
    mov $boot_pml4, %eax
    call long_mode
    lgdt boot_gdt_pointer
    ljmp $8, $boot_long

    # Long mode with the page tables at eax: PAE, NXE, LME, SCE, paging with write protection,
    # exceptions of floating-point units as such.
long_mode:
    mov %eax, %cr3
    mov %cr4, %eax
    or $0x620, %eax
    mov %eax, %cr4
    mov $0xc0000080, %ecx
    rdmsr
    or $0x901, %eax
    wrmsr
    mov %cr0, %eax
    and $0xfffffff3, %eax
    or $0x80010023, %eax
    mov %eax, %cr0
    ret

    .code64
boot_long:
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov %ebp, %edi
    xor %ebp, %ebp
    movabs $boot_main, %rax
    call *%rax
    ud2

    # Copied to TRAMPOLINE; every address in it is written for that place.
    .section .boot.data, "aw"
    .globl trampoline_start, trampoline_end
    .code16
trampoline_start:
    cli
    cld
    xor %ax, %ax
    mov %ax, %ds
    lgdtl ({base} + trampoline_gdt_pointer - trampoline_start)
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $24, $({base} + trampoline_32 - trampoline_start)
    .code32
trampoline_32:
    mov $16, %ax
    mov %ax, %ds
    mov ({base} + {tables}), %eax
    mov %eax, %cr3
    mov %cr4, %eax
    or $0x620, %eax
    mov %eax, %cr4
    mov $0xc0000080, %ecx
    rdmsr
    or $0x901, %eax
    wrmsr
    mov %cr0, %eax
    and $0xfffffff3, %eax
    or $0x80010023, %eax
    mov %eax, %cr0
    ljmpl $8, $({base} + trampoline_64 - trampoline_start)
    .code64
trampoline_64:
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov $1, %eax
    cpuid
    shr $24, %ebx
    cmp ${count}, %ebx
    jae trampoline_idle
    mov ({base} + {cores})(, %rbx, 8), %rdi
    test %rdi, %rdi
    jz trampoline_idle
    mov ({base} + {blocks}), %r8
    test %r8, %r8
    jz trampoline_enter
    # Its own control block is a copy of the first, with this core's control registers; the page
    # behind is where the processor keeps what it goes back to, and then there is a stack.
    imul ${room}, %rbx, %rbx
    lea (%r8, %rbx), %r10
    mov %rdi, %r9
    mov %r8, %rsi
    mov %r10, %rdi
    mov $512, %ecx
    rep movsq
    mov $0xc0000080, %ecx
    rdmsr
    or $0x1000, %eax
    wrmsr
    mov %eax, {efer}(%r10)
    mov %cr0, %rax
    mov %rax, {cr0}(%r10)
    mov %cr3, %rax
    mov %rax, {cr3}(%r10)
    mov %cr4, %rax
    mov %rax, {cr4}(%r10)
    lea 4096(%r10), %eax
    xor %edx, %edx
    mov ${host_state}, %ecx
    wrmsr
    mov %r9, %rdi
    mov %r10, %rax
    lea {room}(%r10), %rsp
    vmrun %rax
    # It has shut down, and of its registers only what the processor kept here is back.
    stgi
    mov %rax, %rdi
    movabs $on_shutdown, %rax
    call *%rax
    .globl trampoline_enter
trampoline_enter:
    movabs $enter_partition, %rax
    jmp *%rax
    # A core of no replica, started with all that stood still.
trampoline_idle:
    hlt
    jmp trampoline_idle
    .align 8
    .globl trampoline_gdt
trampoline_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00cf9b000000ffff
trampoline_gdt_pointer:
    .word 31
    .long {base} + trampoline_gdt - trampoline_start
trampoline_end:

    .text
    .globl enter_partition
enter_partition:
    mov %rdi, %cr3
    lea __stack_top(%rip), %rsp
    xor %ebp, %ebp
    call partition_main
    ud2
    "#,
    base = const TRAMPOLINE,
    tables = const TRAMPOLINE_TABLES,
    cores = const TRAMPOLINE_CORES,
    count = const shutdown::CORES,
    blocks = const TRAMPOLINE_BLOCKS,
    room = const shutdown::ROOM,
    efer = const shutdown::EFER,
    cr0 = const shutdown::CR0,
    cr3 = const shutdown::CR3,
    cr4 = const shutdown::CR4,
    host_state = const shutdown::HOST_STATE,
    options(att_syntax)
);
