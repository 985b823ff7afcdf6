//! Pieces of code to be stopped, with the offsets of places in them.

use core::arch::global_asm;

/// Declares programs: their names and their code. `9:` is the place of interest.
macro_rules! programs {
    ($($(#[$about:meta])* $name:ident = $code:literal;)*) => {
        $(
            global_asm!(concat!(
                ".pushsection .text.rcoe_test, \"ax\"\n",
                ".globl rcoe_test_", stringify!($name), "\n",
                ".globl rcoe_test_", stringify!($name), "_place\n",
                ".globl rcoe_test_", stringify!($name), "_end\n",
                "rcoe_test_", stringify!($name), ":\n",
                $code,
                "\nrcoe_test_", stringify!($name), "_end:\n",
                ".set rcoe_test_", stringify!($name), "_place, 9b\n",
                ".popsection\n",
            ));
            $(#[$about])*
            pub(super) fn $name() -> (&'static [u8], usize) {
                unsafe extern "C" {
                    #[link_name = concat!("rcoe_test_", stringify!($name))]
                    static BEGIN: u8;
                    #[link_name = concat!("rcoe_test_", stringify!($name), "_place")]
                    static PLACE: u8;
                    #[link_name = concat!("rcoe_test_", stringify!($name), "_end")]
                    static END: u8;
                }
                let [begin, place, end] = [&raw const BEGIN, &raw const PLACE, &raw const END];
                let len = end as usize - begin as usize;
                // SAFETY: the code between two labels of one section.
                let code = unsafe { core::slice::from_raw_parts(begin, len) };
                (code, place as usize - begin as usize)
            }
        )*
    };
}

programs! {
    /// All registers differ from one iteration to the next; two thousand of them.
    counting = r#"
        mov ebx, 2000
        9:
        add rax, 3
        lea rcx, [rcx + rax*2]
        adc rdx, rcx
        imul r9, rdx, 7
        mov qword ptr [rdi + 64], rdx
        rol r10, 5
        dec ebx
        jne 9b
    "#;
    /// A loop in a loop.
    nested = r#"
        mov ebx, 1000
        2:
        mov ecx, 5000
        9:
        add rax, rcx
        dec ecx
        jne 9b
        add rdx, rax
        imul rdx, rdx, 77
        dec ebx
        jne 2b
    "#;
    /// A loop that goes back whatever has come of it.
    top_tested = r#"
        mov ecx, 5000
        9:
        dec ecx
        je 3f
        add rax, rcx
        imul rax, rax, 5
        jmp 9b
        3:
        add rdx, rax
        imul rdx, rdx, 77
    "#;
    /// No loop, and a call of what is ahead.
    recursive = r#"
        mov ebx, 7
        call 9f
        9:
        add rax, 1
        jmp 3f
        nop
        3:
        ret
    "#;
    /// The same registers and flags each time; a word of memory counts.
    by_memory = r#"
        9:
        mov rax, qword ptr [rdi]
        inc rax
        mov qword ptr [rdi], rax
        cmp rax, r8
        setae al
        test al, al
        mov eax, 0
        je 9b
    "#;
    /// Flags, the red zone and the direction flag live across the place.
    flags = r#"
        mov r12d, 5000
        mov qword ptr [rsp - 16], 1
        mov qword ptr [rsp - 128], 2
        2:
        std
        bt r12d, 0
        9:
        adc qword ptr [rsp - 16], 3
        seto cl
        lahf
        adc qword ptr [rsp - 128], rax
        seto r13b
        mov rsi, rdi
        lodsb
        add r13, rsi
        cld
        add r14, r13
        rol rax, 9
        sub r9, rax
        lea r12, [r12 - 1]
        push rax
        mov rax, r12
        test eax, eax
        pop rax
        jne 2b
    "#;
    /// A branch, a count and a constant within windows.
    branching = r#"
        mov r12d, 3000
        xor eax, eax
        2:
        mov ecx, r12d
        and ecx, 3
        test r12d, 4
        9:
        je 3f
        inc rax
        3:
        add rax, qword ptr [rip + 5f]
        4:
        jrcxz 4f
        nop
        loop 4b
        4:
        ror rax, 3
        dec r12d
        jne 2b
        jmp 6f
        .balign 8
        5: .quad 0x123456789abcdef
        6:
    "#;
    /// Copies a byte at a time, and counts.
    repeated = r#"
        mov r12d, 50
        2:
        mov rsi, rdi
        mov r8, rdi
        add rdi, 4096
        mov ecx, 1000
        9:
        rep movsb
        mov rdi, r8
        add rax, qword ptr [rdi + 64]
        inc qword ptr [rdi + 64]
        dec r12d
        jne 2b
    "#;
    /// Only vector registers and one of x87 count: 300 iterations by memory that is put back.
    vectors = r#"
        pcmpeqd xmm1, xmm1
        pxor xmm9, xmm9
        fldz
        2:
        9:
        mov rax, qword ptr [rdi]
        psubq xmm9, xmm1
        fld1
        faddp
        movq rax, xmm9
        cmp rax, r8
        setae al
        test al, al
        mov eax, 0
        je 2b
    "#;
    /// The same with registers of AVX and AVX-512.
    wide_vectors = r#"
        vpternlogd zmm1, zmm1, zmm1, 0xff
        vpxorq zmm20, zmm20, zmm20
        vpxorq zmm3, zmm3, zmm3
        kxorq k3, k3, k3
        2:
        9:
        mov rax, qword ptr [rdi]
        vpsubq zmm3, zmm3, zmm1
        vmovdqa xmm2, xmm3
        vmovq rax, xmm3
        vpxor xmm4, xmm4, xmm4
        vinserti32x4 zmm3, zmm3, xmm4, 0
        vpsubq zmm20, zmm20, zmm1
        vextracti32x4 xmm5, zmm20, 3
        vmovq rax, xmm5
        kmovq k3, rax
        vpxor xmm5, xmm5, xmm5
        vpxor xmm2, xmm2, xmm2
        cmp rax, r8
        setae al
        test al, al
        mov eax, 0
        je 2b
    "#;
}
