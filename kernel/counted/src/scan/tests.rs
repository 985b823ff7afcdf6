use super::*;

const NOP: [u8; 1] = [0x90];
const COUNT: [u8; 9] = [0x66, 0x44, 0x0f, 0xd4, 0x3d, 1, 2, 3, 4];
const JUMP: [u8; 2] = [0xeb, 0xfe];

fn scan_x86_64(parts: &[&[u8]]) -> Option<Found> {
    x86_64::find(0x40_0000, &parts.concat())
}

#[test]
fn a_branch_of_x86_64_must_follow_its_count() {
    assert_eq!(scan_x86_64(&[&NOP, &COUNT, &JUMP, &NOP]), None);
    assert_eq!(scan_x86_64(&[&NOP, &JUMP]), Some((0x40_0001, BRANCH)));
    assert_eq!(
        scan_x86_64(&[&COUNT, &NOP, &JUMP]),
        Some((0x40_000a, BRANCH))
    );
    assert_eq!(
        scan_x86_64(&[&COUNT, &JUMP, &JUMP]),
        Some((0x40_000b, BRANCH))
    );
    // jz, call, call *%rax, jmp *%rax, ret, loop, jrcxz, jz with four bytes, repz ret
    for branch in [
        &[0x74, 0][..],
        &[0xe8, 0, 0, 0, 0],
        &[0xff, 0xd0],
        &[0xff, 0xe0],
        &[0xc3],
        &[0xe2, 0xfe],
        &[0xe3, 0xfe],
        &[0x0f, 0x84, 0, 0, 0, 0],
        &[0xf3, 0xc3],
    ] {
        assert_eq!(
            scan_x86_64(&[branch]),
            Some((0x40_0000, BRANCH)),
            "{branch:x?}"
        );
        assert_eq!(scan_x86_64(&[&COUNT, branch]), None, "{branch:x?}");
    }
}

#[test]
fn what_cannot_be_counted_on_x86_64_is_found() {
    // retf, iretq
    for far in [&[0xcb][..], &[0x48, 0xcf]] {
        assert_eq!(
            scan_x86_64(&[&COUNT, far]),
            Some((0x40_0009, FAR)),
            "{far:x?}"
        );
    }
    // vzeroall, fxrstor (%rax), xrstor (%rax); paddq xmm15, xmm0; movq rax, xmm15; pxor xmm15,
    // xmm15
    for used in [
        &[0xc5, 0xfc, 0x77][..],
        &[0x0f, 0xae, 0x08],
        &[0x0f, 0xae, 0x28],
        &[0x66, 0x44, 0x0f, 0xd4, 0xf8],
        &[0x66, 0x4c, 0x0f, 0x7e, 0xf8],
        &[0x66, 0x45, 0x0f, 0xef, 0xff],
    ] {
        assert_eq!(
            scan_x86_64(&[used]),
            Some((0x40_0000, REGISTER)),
            "{used:x?}"
        );
    }
    assert_eq!(scan_x86_64(&[&NOP, &[0x06]]), Some((0x40_0001, NO_CODE)));
    // rep movsb, syscall, ud2, padding
    let other = [&[0xf3, 0xa4][..], &[0x0f, 5], &[0x0f, 0x0b], &[0xcc; 3]];
    assert_eq!(scan_x86_64(&other), None);
}

fn scan_aarch64(words: &[u32]) -> Option<Found> {
    let code: Vec<u8> = words.iter().flat_map(|it| it.to_le_bytes()).collect();
    aarch64::find(0x40_0000, &code)
}

const ARM_COUNT: [u32; 2] = [0x2f07_e7fe, 0x7efe_87ff];
const ARM_NOP: u32 = 0xd503_201f;

#[test]
fn a_branch_of_aarch64_must_follow_its_count() {
    // b, bl, b.ne, cbz, cbnz, tbz, tbnz, br, blr, ret
    for branch in [
        0x17ff_ffff,
        0x9400_0001,
        0x54ff_ffe1,
        0xb400_0020,
        0x35ff_ffe0,
        0x3600_0020,
        0x37ff_ffe0,
        0xd61f_0200,
        0xd63f_0100,
        0xd65f_03c0,
    ] {
        let alone = scan_aarch64(&[ARM_NOP, branch]);
        assert_eq!(alone, Some((0x40_0004, BRANCH)), "{branch:x}");
        let [ones, less] = ARM_COUNT;
        assert_eq!(scan_aarch64(&[ones, less, branch]), None, "{branch:x}");
        let apart = scan_aarch64(&[ones, less, ARM_NOP, branch]);
        assert_eq!(apart, Some((0x40_000c, BRANCH)), "{branch:x}");
    }
}

#[test]
fn what_cannot_be_counted_on_aarch64_is_found() {
    let [ones, less] = ARM_COUNT;
    // eret, and each half of a count alone
    for (words, what) in [
        (&[0xd69f_03e0][..], FAR),
        (&[ones], REGISTER),
        (&[less], REGISTER),
    ] {
        assert_eq!(scan_aarch64(words), Some((0x40_0000, what)), "{words:x?}");
    }
    // add v31.2d, v1.2d, v2.2d; fmov x0, d31; ldr q30, [x0]; ldp d30, d29, [x0]; str s31, [x0];
    // ld1 { v31.16b }, [x0]; movi v30.2d, #0
    for used in [
        0x4ee2_843f,
        0x9e66_03e0,
        0x3dc0_001e,
        0x6d40_741e,
        0xbd00_001f,
        0x4c40_701f,
        0x6f00_e41e,
    ] {
        assert_eq!(
            scan_aarch64(&[used]),
            Some((0x40_0000, REGISTER)),
            "{used:x}"
        );
    }
    // add x30, x30, x30; ldr x30, [x0]; ldp x29, x30, [sp]; fmov d0, x30; ldr q0, [x30];
    // scvtf d0, x30; cas x0, x1, [x2]; svc #0; bic x0, x0, x1
    for other in [
        0x8b1e_03de,
        0xf940_001e,
        0xa940_7bfd,
        0x9e67_03c0,
        0x3dc0_03c0,
        0x9e62_03c0,
        0xc8a0_7c41,
        0xd400_0001,
        0x8a21_0000,
    ] {
        assert_eq!(scan_aarch64(&[other]), None, "{other:x}");
    }
}

#[test]
fn what_is_no_program_is_refused() {
    assert_eq!(scan(b"text"), Err(Uncounted::NoProgram));
}
