//! The way from a `cpuid` to its answer without a trap.
//!
//! A dynamic loader asks some seventy times in every program that is executed, most of them in two
//! loops, and each trap costs as much as a short call of the host. So where code allows it a
//! `cpuid` becomes a jump to a stub nearby, which looks up what was answered before. What has no
//! answer yet traps there, as it would without a detour.
//!
//! The jump is longer than the instruction, so it takes the place of what follows, too, which the
//! stub executes: only instructions that name nothing but registers and constants, and so do the
//! same anywhere and cannot fault.
//!
//! Contract: the program sees the registers that `cpuid` leaves, its flags and its stack untouched.
//!
//! Not covered: who decides that no branch leads into the replaced bytes ([`branches`]), and where
//! stubs lie ([`rewrite`]).
//!
//! [`branches`]: crate::arch::branches
//! [`rewrite`]: crate::arch::rewrite

use core::arch::global_asm;

use crate::arch::cpuid;
use crate::arch::rewrite::jump;
use crate::arch::sites::PLANTED;
use crate::one_thread::OneThread;

/// Bytes of a jump.
pub(super) const JUMP: usize = 5;
/// Bytes of a stub.
pub(super) const STUB: usize = 64;
/// Where a stub traps if there is no answer yet.
pub(super) const TRAP: usize = 13;
/// Where it goes on with what follows the `cpuid`.
const ON: usize = TRAP + PLANTED.len();
/// Where it keeps the address of the look-up.
const SLOT: usize = 48;
/// Bytes of `cpuid`.
const CPUID: usize = 2;

// The displacements in a stub's first two instructions.
const _: () = assert!(TRAP == 7 + 6 && SLOT == TRAP + 35);

unsafe extern "C" {
    /// Looks up the answer; never called from Rust.
    fn rcoe_detour();
}

/// The program's stack pointer and the way back, then the stack of the look-up.
static ASIDE: OneThread<[u64; 8]> = OneThread::new([0; 8]);

global_asm!(
    r#"
    .pushsection .text.rcoe_detour, "ax", @progbits
    // Comes with the address of the stub's trap in rbx; rbx and rdx are the answer's.
    .globl rcoe_detour
    .type rcoe_detour, @function
rcoe_detour:
    mov qword ptr [rip + {aside}], rsp
    lea rsp, [rip + {aside} + 64]
    pushfq
    push rbx
    lea rdx, [rip + {answers}]
2:  cmp dword ptr [rdx + {known}], 0
    je 5f
    cmp eax, dword ptr [rdx + {leaf}]
    jne 3f
    mov ebx, ecx
    and ebx, dword ptr [rdx + {mask}]
    cmp ebx, dword ptr [rdx + {sub}]
    je 4f
3:  add rdx, {size}
    jmp 2b
4:  pop rbx
    add rbx, {planted}
    mov qword ptr [rip + {aside} + 8], rbx
    mov eax, dword ptr [rdx + {answer}]
    mov ebx, dword ptr [rdx + {answer} + 4]
    mov ecx, dword ptr [rdx + {answer} + 8]
    mov edx, dword ptr [rdx + {answer} + 12]
    jmp 6f
5:  pop rbx
    mov qword ptr [rip + {aside} + 8], rbx
6:  popfq
    mov rsp, qword ptr [rip + {aside}]
    jmp qword ptr [rip + {aside} + 8]
    .size rcoe_detour, . - rcoe_detour
    .popsection
    "#,
    aside = sym ASIDE,
    answers = sym cpuid::ANSWERS,
    leaf = const cpuid::LEAF,
    sub = const cpuid::SUB,
    mask = const cpuid::MASK,
    known = const cpuid::KNOWN,
    answer = const cpuid::ANSWER,
    size = const cpuid::ENTRY,
    planted = const PLANTED.len(),
);

/// Bytes that a jump in the place of the `cpuid` which the code begins with takes up, to the end of
/// an instruction; `None` if what follows cannot be executed elsewhere.
pub(super) fn window(code: &[u8]) -> Option<usize> {
    let mut len = code.starts_with(&[0x0f, 0xa2]).then_some(CPUID)?;
    while len < JUMP {
        len += plain(code.get(len..)?)?;
    }
    Some(len)
}

/// Length of an instruction that works on registers and constants only.
pub(super) fn plain(code: &[u8]) -> Option<usize> {
    let (wide, prefix, rest) = match code {
        [rex @ 0x40..=0x4f, rest @ ..] => (rex & 8 != 0, 1, rest),
        _ => (false, 0, code),
    };
    let len = match rest {
        // Arithmetic, `test` and `mov` between registers.
        [
            0x01 | 0x03 | 0x09 | 0x0b | 0x21 | 0x23 | 0x29 | 0x2b,
            0xc0..=0xff,
            ..,
        ]
        | [
            0x31 | 0x33 | 0x39 | 0x3b | 0x85 | 0x89 | 0x8b,
            0xc0..=0xff,
            ..,
        ] => 2,
        // With a constant: `cmp`, `and` and `test` of al or eax, arithmetic, shifts, `mov`.
        [0x24 | 0x3c | 0xa8, _, ..] => 2,
        [0x83 | 0xc1, 0xc0..=0xff, _, ..] => 3,
        [0x25 | 0x3d | 0xa9, _, _, _, _, ..] => 5,
        [0xb8..=0xbf, _, _, _, _, ..] if !wide => 5,
        [0x81, 0xc0..=0xff, _, _, _, _, ..] => 6,
        _ => return None,
    };
    Some(prefix + len)
}

/// The stub at `at` for a window that stands at `site`.
pub(super) fn stub(at: u64, site: u64, window: &[u8]) -> [u8; STUB] {
    let mut stub = [0xcc; STUB];
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        stub[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
        len
    };
    // `lea trap(%rip),%rbx; jmp *slot(%rip)`
    put(&[0x48, 0x8d, 0x1d, 6, 0, 0, 0]);
    put(&[0xff, 0x25, 35, 0, 0, 0]);
    put(&PLANTED);
    let moved = put(&window[CPUID..]);
    put(&jump(at + moved as u64, site + window.len() as u64));
    stub[SLOT..SLOT + 8].copy_from_slice(&look_up());
    stub
}

/// What stood behind the `cpuid` of a window of this length, by its stub; `None` if it is none.
pub(super) fn moved(stub: &[u8; STUB], len: usize) -> Option<&[u8]> {
    let ours = stub[TRAP..ON] == PLANTED && stub[SLOT..SLOT + 8] == look_up();
    ours.then(|| &stub[ON..ON + len - CPUID])
}

/// Where stubs jump to.
fn look_up() -> [u8; 8] {
    (rcoe_detour as *const () as u64).to_le_bytes()
}

/// Where a jump leads; `None` if it is none.
pub(super) fn target(at: u64, jump: [u8; JUMP]) -> Option<u64> {
    let [0xe9, a, b, c, d] = jump else {
        return None;
    };
    let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
    Some((at + JUMP as u64).wrapping_add_signed(distance))
}

#[cfg(test)]
mod tests {
    use core::arch::x86_64::__cpuid_count;

    use super::*;
    use crate::convert::size;
    use crate::memory::nearby::{map_area, patch};

    const AREA: u64 = rcoe_linux_abi::PAGE;
    /// Where the stub is within the area.
    const STUB_AT: usize = 2048;
    /// `cpuid; mov %eax,%r8d`
    const WINDOW: [u8; 5] = [0x0f, 0xa2, 0x41, 0x89, 0xc0];

    #[test]
    fn only_what_does_the_same_anywhere_is_taken_along() {
        let window = |behind: &[u8]| window(&[&[0x0f, 0xa2], behind, &[0x90; 8]].concat());
        assert_eq!(window(&[0x89, 0xc2, 0x83, 0xe2, 0x1f]), Some(7), "mov, and");
        assert_eq!(window(&[0x41, 0x89, 0xd6]), Some(5), "mov %edx,%r14d");
        assert_eq!(window(&[0x81, 0xe1, 0, 0xff, 0, 0]), Some(8), "and $,%ecx");
        assert_eq!(window(&[0x3c, 0x01, 0x85, 0xc0]), Some(6), "cmp, test");
        assert_eq!(window(&[0x48, 0xb8, 0, 0, 0]), None, "ten bytes");
        assert_eq!(window(&[0x89, 0x07, 0x85, 0xc0]), None, "mov %eax,(%rdi)");
        assert_eq!(window(&[0x85, 0xc0, 0x74, 0x10]), None, "a branch");
        assert_eq!(window(&[0x8b, 0x05, 0, 0, 0, 0]), None, "by its address");
        assert_eq!(super::window(&[0x0f, 0xa2, 0x89, 0xc2]), None, "cut off");
        assert_eq!(super::window(&[0x0f, 0x31, 0x89, 0xc2, 0x90]), None);
    }

    #[test]
    fn a_jump_is_found_again() {
        for to in [0x1000_u64, 0x7000_0000, 0x10_0000] {
            assert_eq!(target(0x2000_0000, jump(0x2000_0000, to)), Some(to));
        }
        assert_eq!(target(0x1000, [0xf4, 0x90, 0, 0, 0]), None);
        let stub = stub(0x1000, 0x2000, &WINDOW);
        assert_eq!(moved(&stub, WINDOW.len()), Some(&WINDOW[2..]));
        assert_eq!(moved(&[0xcc; STUB], WINDOW.len()), None);
    }

    /// Asks by a detour: what the four registers, `r8d` and the flags are behind it. Where there is
    /// no answer the stub asks the machine, in the place of a trap.
    fn asked(leaf: u32, sub: u32) -> [u32; 6] {
        // `push %rbx; mov %edi,%eax; mov %esi,%ecx; mov %rdx,%r9; stc`
        let before = [0x53, 0x89, 0xf8, 0x89, 0xf1, 0x49, 0x89, 0xd1, 0xf9];
        // `pushfq; pop %r10`, and all is stored at `(%r9)`; `pop %rbx; ret`
        let behind = [
            0x9c, 0x41, 0x5a, 0x41, 0x89, 0x01, 0x41, 0x89, 0x59, 0x04, 0x41, 0x89, 0x49, 0x08,
            0x41, 0x89, 0x51, 0x0c, 0x45, 0x89, 0x41, 0x10, 0x45, 0x89, 0x51, 0x14, 0x5b, 0xc3,
        ];
        let area = map_area(0x2000_0000, AREA).expect("memory");
        let site = area + before.len() as u64;
        let at = area + STUB_AT as u64;
        let mut stub = stub(at, site, &WINDOW);
        stub[TRAP..ON].copy_from_slice(&WINDOW[..CPUID]);
        let code = [&before[..], &jump(site, at), &behind].concat();
        patch(area, &code).expect("its own memory");
        patch(at, &stub).expect("its own memory");
        let mut told = [0; 6];
        // SAFETY: the function was just written, and keeps to the convention.
        let run: extern "C" fn(u32, u32, *mut u32) = unsafe { core::mem::transmute(area) };
        run(leaf, sub, told.as_mut_ptr());
        // SAFETY: mapped above, and not executed any more.
        unsafe { crate::sys::munmap(area, AREA) }.expect("its own memory");
        told
    }

    #[test]
    fn an_answer_that_was_given_before_comes_without_a_trap() {
        let unknown = asked(0x4000_0000, 7);
        let machine = __cpuid_count(0x4000_0000, 7);
        assert_eq!(
            unknown[..4],
            [machine.eax, machine.ebx, machine.ecx, machine.edx]
        );
        for (leaf, sub) in [(0, 0), (1, 0), (4, 0), (4, 1), (7, 0)] {
            let answer = cpuid::answer(leaf, sub);
            let garbage = if leaf < 4 { 0x1234 } else { sub };
            let [answers @ .., moved, flags] = asked(leaf, garbage);
            assert_eq!(answers, answer, "{leaf} {sub}");
            assert_eq!(moved, answer[0], "what follows is executed");
            assert_eq!(flags & 1, 1, "carry is as it was");
        }
        // No core is named, so it was not the machine that answered.
        assert_eq!(asked(1, 0)[1] >> 24, 0);
        assert!(size(AREA) > STUB_AT + STUB);
    }
}
