//! Which instructions change the way.

/// Prefixes: segments, sizes, locks and repetitions.
const PREFIXES: [u8; 11] = [
    0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3,
];

/// Does this instruction of x86-64 change the way, if only now and then? System calls and
/// exceptions do not count: the kernel sees them.
pub(crate) fn is_branch(code: &[u8]) -> bool {
    let rest = code.iter().position(|byte| !PREFIXES.contains(byte));
    let mut rest = rest.map_or(&[][..], |at| &code[at..]);
    if let [0x40..=0x4f, behind @ ..] = rest {
        rest = behind;
    }
    match rest {
        // Conditional, loops, calls and jumps, returns, also to another segment and from
        // interrupts.
        [0x70..=0x7f | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..] => true,
        [0xc2 | 0xc3 | 0xca | 0xcb | 0xcf, ..] => true,
        // Indirect calls and jumps.
        [0xff, operand, ..] => matches!(operand >> 3 & 7, 2..=5),
        [0x0f, 0x80..=0x8f, ..] => true,
        // The beginning of a transaction, which may go to where it leads when it fails.
        [0xc7, 0xf8, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_known_whatever_precedes_them() {
        for code in [
            &[0x75, 0x10][..],                     // jne
            &[0xe2, 0xfe],                         // loop
            &[0x67, 0xe3, 0x00],                   // jecxz
            &[0xe8, 0, 0, 0, 0],                   // call
            &[0xe9, 0, 0, 0, 0],                   // jmp
            &[0xeb, 0xfe],                         // jmp
            &[0xc3],                               // ret
            &[0xf3, 0xc3],                         // rep ret
            &[0xf2, 0xc3],                         // bnd ret
            &[0xc2, 8, 0],                         // ret 8
            &[0xcb],                               // far ret
            &[0x48, 0xcf],                         // iretq
            &[0xff, 0xe0],                         // jmp rax
            &[0x41, 0xff, 0xd3],                   // call r11
            &[0x3e, 0xff, 0xe0],                   // notrack jmp rax
            &[0xff, 0x25, 0, 0, 0, 0],             // jmp [rip]
            &[0x0f, 0x84, 0, 0, 0, 0],             // je
            &[0x2e, 0x0f, 0x85, 0, 0, 0, 0],       // jne, hinted
            &[0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0], // padded call of thread-local data
            &[0xc7, 0xf8, 0, 0, 0, 0],             // xbegin
        ] {
            assert!(is_branch(code), "{code:02x?}");
        }
    }

    #[test]
    fn nothing_else_is_a_branch() {
        for code in [
            &[0x90][..],                     // nop
            &[0xf3, 0xa4],                   // rep movsb
            &[0x0f, 0x05],                   // syscall
            &[0x0f, 0x1f, 0x40, 0x00],       // nop
            &[0xff, 0xc0],                   // inc eax
            &[0xff, 0x75, 0x08],             // push
            &[0xc7, 0x00, 0, 0, 0, 0],       // mov
            &[0x48, 0x8b, 0x75, 0x00],       // mov with 0x75 as operand
            &[0xc5, 0xf8, 0x77],             // vzeroupper
            &[0xc4, 0xe2, 0x78, 0xf2, 0xc3], // andn
            &[0x0f, 0x0b],                   // ud2
            &[0xcc],                         // int3
            &[0x66],
            &[],
        ] {
            assert!(!is_branch(code), "{code:02x?}");
        }
    }
}
