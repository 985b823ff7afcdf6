use super::*;

/// The instructions of a counted text, with each count as one word.
fn counted(arch: Arch, text: &str) -> Vec<String> {
    let (count, end) = match arch {
        Arch::X86_64 => (COUNT_X86_64, ONE_X86_64),
        Arch::Aarch64 => (COUNT_AARCH64, ""),
    };
    let counted = add_counts(arch, text).unwrap();
    let counted = counted.strip_suffix(end).unwrap();
    let counted = counted.replace(count, "COUNT\n");
    counted.lines().map(|it| it.trim().to_owned()).collect()
}

#[test]
fn every_branch_of_x86_64_is_counted() {
    for branch in [
        "jmp .L1",
        "jmpq *%rax",
        "jne 1b",
        "jrcxz 1f",
        "call f",
        "callq *8(%rax)",
        "ret",
        "retq",
        "rep ret",
        "bnd jmp f",
        "notrack jmp *%rdx",
        "loop 1b",
        "loopne 1b",
    ] {
        let text = format!("\t{branch}");
        assert_eq!(counted(Arch::X86_64, &text), ["COUNT", branch]);
    }
    for other in [
        "movq %rax, %rbx",
        "rep movsb",
        "syscall",
        "lock cmpxchgq %rax, (%rbx)",
        ".long 5",
        "leaq call(%rip), %rax",
        ".cfi_return_column 16",
        "# jmp nowhere",
        "ud2",
        ".asciz \"a; jmp b\"",
    ] {
        assert_eq!(counted(Arch::X86_64, &format!("\t{other}")), [other]);
    }
}

#[test]
fn every_branch_of_aarch64_is_counted() {
    for branch in [
        "b .L1",
        "b.ne 1b",
        "beq 1b",
        "bl f",
        "blr x8",
        "br x16",
        "ret",
        "ret x1",
        "cbz x0, 1f",
        "cbnz w1, 1f",
        "tbz x0, #3, 1f",
        "tbnz w0, #3, 1f",
    ] {
        let text = format!("\t{branch}");
        assert_eq!(counted(Arch::Aarch64, &text), ["COUNT", branch]);
    }
    for other in [
        "bic x0, x0, x1",
        "bfi x0, x1, #3, #4",
        "brk #1",
        "bsl v0.16b, v1.16b, v2.16b",
        "svc #0",
        "bfc w0, #1, #2",
        ".word 5",
        "// b nowhere",
    ] {
        assert_eq!(counted(Arch::Aarch64, &format!("\t{other}")), [other]);
    }
}

#[test]
fn lines_of_sources_are_left_out() {
    let text = "\t.file 1 \"a\" \"b.rs\"\n\t.loc 1 2 3\n\tnop\n\t.local f";
    assert_eq!(counted(Arch::X86_64, text), ["nop", ".local f"]);
}

/// Whoever goes to a branch by its label counts it.
#[test]
fn labels_stand_before_the_count() {
    assert_eq!(
        counted(Arch::X86_64, "1:\tdec %ecx; jnz 1b # again"),
        ["1:", "dec %ecx", "COUNT", "jnz 1b"]
    );
    assert_eq!(
        counted(Arch::Aarch64, ".Lx: y: b .Lx // for ever"),
        [".Lx:", "y:", "COUNT", "b .Lx"]
    );
}

#[test]
fn a_text_that_uses_what_counts_is_refused_by_its_line() {
    for (arch, text) in [
        (Arch::X86_64, "\tpaddq %xmm15, %xmm0"),
        (Arch::X86_64, "\tvmovaps (%rax), %ymm15"),
        (Arch::Aarch64, "\tadd v31.2d, v1.2d, v2.2d"),
        (Arch::Aarch64, "\tst1 { v29.16b, v30.16b }, [x0]"),
        (Arch::Aarch64, "\tldr q31, [x0]"),
    ] {
        let refused = add_counts(arch, &format!("\tnop\n{text}\n")).unwrap_err();
        assert_eq!((refused.line, refused.text.as_str()), (2, text.trim()));
    }
    assert!(add_counts(Arch::X86_64, "\tmovq xmm15_of(%rip), %rax").is_ok());
    assert!(add_counts(Arch::Aarch64, "\tadd x30, x30, x29").is_ok());
}
