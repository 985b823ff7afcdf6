/* The functions of the program's vDSO.

   Each leaves a clock to the agent by an ordinary jump and stores what it got by itself, so that a
   bad pointer faults here, in the program, as in the host's vDSO. None touches the stack, so the
   call frame information of each is that of its first instruction throughout.

   To the agent: the clock in eax, where to go on in r11; rdi and rsi come back as they were. From
   the agent: seconds in rax and nanoseconds in rdx, whose sign bit says that the system call is to
   be made instead. Its lowest bit then says that the host's vDSO would make the call, too; else
   what the kernel calls a bad pointer is made to fault here all the same. */
    .intel_syntax noprefix

    .section .agent, "a", @progbits
    .globl agent
    .hidden agent
    .type agent, @object
    /* The agent's entry; this word is the mark by which the build finds its place. */
agent:
    .quad 0x766473006f656372
    .size agent, 8

    .macro function name, public
    .globl __vdso_\name
    .type __vdso_\name, @function
    .weak \public
    .type \public, @function
    .set \public, __vdso_\name
    .balign 16
__vdso_\name:
    .cfi_startproc
    endbr64
    .endm

    .macro end name
    .cfi_endproc
    .size __vdso_\name, . - __vdso_\name
    .endm

    .text
    function clock_gettime, clock_gettime
    mov eax, edi
    lea r11, [rip + 1f]
    jmp qword ptr [rip + agent]
1:  test rdx, rdx
    js 2f
    mov qword ptr [rsi], rax
    mov qword ptr [rsi + 8], rdx
    xor eax, eax
    xor edx, edx
    ret
2:  mov eax, 228
    syscall
    cmp eax, -14
    jne 3f
    test dl, 1
    jnz 3f
    mov qword ptr [rsi], rax
3:  ret
    end clock_gettime

    function gettimeofday, gettimeofday
    test rsi, rsi
    jnz 2f
    test rdi, rdi
    jz 3f
    xor eax, eax
    lea r11, [rip + 1f]
    jmp qword ptr [rip + agent]
1:  test rdx, rdx
    js 2f
    /* To microseconds: a division by 1000 that is exact for 32 bits. */
    imul rdx, rdx, 274877907
    shr rdx, 38
    mov qword ptr [rdi], rax
    mov qword ptr [rdi + 8], rdx
    xor edx, edx
3:  xor eax, eax
    ret
2:  mov eax, 96
    syscall
    cmp eax, -14
    jne 4f
    test rdi, rdi
    jz 5f
    mov qword ptr [rdi], rax
5:  mov qword ptr [rsi], rax
4:  ret
    end gettimeofday

    function time, time
    mov eax, 5
    lea r11, [rip + 1f]
    jmp qword ptr [rip + agent]
1:  test rdx, rdx
    js 2f
    xor edx, edx
    test rdi, rdi
    jz 3f
    mov qword ptr [rdi], rax
3:  ret
2:  mov eax, 201
    syscall
    cmp rax, -14
    jne 3b
    mov qword ptr [rdi], rax
    ret
    end time

    function clock_getres, clock_getres
    mov eax, 229
    syscall
    ret
    end clock_getres

    function getcpu, getcpu
    mov eax, 309
    syscall
    ret
    end getcpu

    .section .note.rcoe, "a", @note
    .balign 4
    .long 2f - 1f
    .long 4f - 3f
    .long 1
1:  .asciz "rcoe"
2:  .balign 4
3:  .long 1
4:  .balign 4

    .section .note.GNU-stack, "", @progbits
