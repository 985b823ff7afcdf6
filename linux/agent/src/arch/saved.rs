//! What a program that saves the extended state is told of registers that it does not use.
//!
//! `xsave` notes in the header which components are in use (`XSTATE_BV`). A processor may call one
//! used whose registers are all zero, until its process has left it once: so what is noted depends
//! on when that was, and replicas differ in a word of memory that means nothing. The loader saves
//! the state at the first call of nearly every function, and its words stay below the stack.
//! Replicas that are compared between calls would never agree then. So an `xsave` becomes a jump to
//! a stub nearby, where components of zeroes are noted as unused, and x87 as used: what is restored
//! from there is the same, and so is the word.
//!
//! Only `xsave` writes all bytes of what it is asked for, so `cpuid` offers none of its kin
//! ([`cpuid`](crate::arch::cpuid)).
//!
//! Contract: the program sees its registers and its flags untouched; of its stack what is below the
//! red zone is written, with values that are alike in all replicas.
//!
//! Not covered: an `xsave` for which there is no room for a jump, one whose address depends on its
//! own or on a segment, those of code that is not looked through, and components that are neither
//! x87 nor vectors or masks.

use core::arch::global_asm;

use crate::arch::cpuid::Answer;
use crate::arch::detour::{JUMP, STUB, plain};
use crate::arch::rewrite::jump;
use crate::one_thread::OneThread;

/// Where a stub keeps the address of what sets the note right.
const SLOT: usize = STUB - 8;
/// Bytes below the stack pointer that belong to the program.
const RED_ZONE: i32 = 128;
/// Components whose registers may be zero: that of SSE, which has a fixed place, and the numbers of
/// AVX, of masks and of both of AVX-512.
const SSE: [u32; 3] = [1 << 1, 160, 32];
const OTHERS: [u32; 4] = [2, 5, 6, 7];

unsafe extern "C" {
    /// Sets the note right; never called from Rust.
    fn rcoe_settle_saved();
}

/// Bit, place and number of words of each component; zeroes end them.
static COMPONENTS: OneThread<[[u32; 3]; OTHERS.len() + 2]> =
    OneThread::new([[0; 3]; OTHERS.len() + 2]);

/// Asks by `cpuid` where components lie.
pub(crate) fn measure(cpuid: impl Fn(u32, u32) -> Answer) {
    // SAFETY: one kernel thread, before the program starts; nobody keeps a reference.
    let components = unsafe { &mut *COMPONENTS.get() };
    let others = OTHERS.map(|number| {
        let [bytes, start, ..] = cpuid(0xd, number);
        [1 << number, start, bytes / 8]
    });
    let known = others.into_iter().filter(|[.., words]| *words != 0);
    for (place, component) in components.iter_mut().zip([SSE].into_iter().chain(known)) {
        *place = component;
    }
}

global_asm!(
    r#"
    .pushsection .text.rcoe_saved, "ax", @progbits
    // Comes with the address of what was saved in rax; above the way back is the program's rax,
    // the components that were asked for.
    .globl rcoe_settle_saved
    .type rcoe_settle_saved, @function
rcoe_settle_saved:
    pushfq
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    mov edx, dword ptr [rsp + 56]
    mov ecx, edx
    and ecx, 1
    or dword ptr [rax + 512], ecx
    and edx, dword ptr [rax + 512]
    lea rsi, [rip + {components}]
2:  mov ecx, dword ptr [rsi]
    test ecx, ecx
    jz 5f
    test edx, ecx
    jz 4f
    mov edi, dword ptr [rsi + 4]
    mov ebx, dword ptr [rsi + 8]
    add rdi, rax
3:  cmp qword ptr [rdi], 0
    jne 4f
    add rdi, 8
    dec ebx
    jnz 3b
    not ecx
    and dword ptr [rax + 512], ecx
4:  add rsi, 12
    jmp 2b
5:  pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    popfq
    ret
    .size rcoe_settle_saved, . - rcoe_settle_saved
    .popsection
    "#,
    components = sym COMPONENTS,
);

/// An `xsave`: its bytes, and of what its address is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Save {
    len: usize,
    /// The extensions of base and index.
    rex: u8,
    register: u8,
    sib: Option<u8>,
    displacement: i32,
}

impl Save {
    /// The one that the code begins with, if it is the same elsewhere.
    fn of(code: &[u8]) -> Option<Self> {
        let (rex, prefix, rest) = match code {
            [rex @ 0x40..=0x4f, rest @ ..] => (*rex & 3, 1, rest),
            _ => (0, 0, code),
        };
        let [0x0f, 0xae, kind, rest @ ..] = rest else {
            return None;
        };
        let (form, register) = (kind >> 6, kind & 7);
        if kind >> 3 & 7 != 4 || form == 3 || form == 0 && register == 5 {
            return None;
        }
        let (sib, rest) = match (register, rest) {
            (4, [sib, rest @ ..]) => (Some(*sib), rest),
            (4, []) => return None,
            _ => (None, rest),
        };
        if form == 0 && sib.is_some_and(|sib| sib & 7 == 5) {
            return None;
        }
        let (bytes, displacement) = match (form, rest) {
            (1, [near, ..]) => (1, i32::from(near.cast_signed())),
            (2, [a, b, c, d, ..]) => (4, i32::from_le_bytes([*a, *b, *c, *d])),
            (0, _) => (0, 0),
            _ => return None,
        };
        Some(Self {
            len: prefix + 3 + usize::from(sib.is_some()) + bytes,
            rex,
            register,
            sib,
            displacement,
        })
    }

    /// Is the address told by the stack pointer?
    fn is_on_stack(self) -> bool {
        self.rex & 1 == 0 && self.sib.is_some_and(|sib| sib & 7 == 4)
    }

    /// `lea address,%rax` once the stack pointer is lower by `moved`.
    fn address(self, moved: i32) -> Option<([u8; 8], usize)> {
        let moved = if self.is_on_stack() { moved } else { 0 };
        let [a, b, c, d] = self.displacement.checked_add(moved)?.to_le_bytes();
        let (rex, kind) = (0x48 | self.rex, 0x80 | self.register);
        Some(match self.sib {
            Some(sib) => ([rex, 0x8d, kind, sib, a, b, c, d], 8),
            None => ([rex, 0x8d, kind, a, b, c, d, 0], 7),
        })
    }
}

/// Bytes that a jump in the place of the `xsave` which the code begins with takes up, to the end of
/// an instruction; `None` if there is none, or if it cannot be executed elsewhere.
pub(super) fn window(code: &[u8]) -> Option<usize> {
    let mut len = Save::of(code)?.len;
    while len < JUMP {
        len += plain(code.get(len..)?)?;
    }
    Some(len)
}

/// The stub at `at` for a window that stands at `site`; `None` if its address is too far from what
/// it is told by.
pub(super) fn stub(at: u64, site: u64, window: &[u8]) -> Option<[u8; STUB]> {
    let save = Save::of(window)?;
    let (address, len) = save.address(RED_ZONE + 8)?;
    let (code, behind) = window.split_at(save.len);
    let mut stub = Bytes::default();
    stub.put(code);
    // `lea -128(%rsp),%rsp; push %rax`
    stub.put(&[0x48, 0x8d, 0x64, 0x24, 0x80, 0x50]);
    stub.put(&address[..len]);
    // `call *slot(%rip)`
    let next = i32::try_from(SLOT - (stub.len + 6)).ok()?;
    stub.put(&[0xff, 0x15]);
    stub.put(&next.to_le_bytes());
    // `pop %rax; lea 128(%rsp),%rsp`
    stub.put(&[0x58, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
    stub.put(behind);
    stub.put(&jump(at + stub.len as u64, site + window.len() as u64));
    assert!(stub.len <= SLOT, "what is behind is short");
    stub.bytes[SLOT..].copy_from_slice(&settle());
    Some(stub.bytes)
}

/// What stood in the place of the jump, by its stub; `None` if it is none.
pub(super) fn original(stub: &[u8; STUB]) -> Option<[u8; JUMP]> {
    let save = Save::of(stub).filter(|_| stub[SLOT..] == settle())?;
    let (_, address) = save.address(RED_ZONE + 8)?;
    let behind = save.len + 6 + address + 6 + 9;
    let mut original = [0; JUMP];
    let first = save.len.min(JUMP);
    original[..first].copy_from_slice(&stub[..first]);
    original[first..].copy_from_slice(&stub[behind..behind + JUMP - first]);
    Some(original)
}

/// Where stubs call.
fn settle() -> [u8; 8] {
    (rcoe_settle_saved as *const () as u64).to_le_bytes()
}

/// A stub that is being made.
struct Bytes {
    bytes: [u8; STUB],
    len: usize,
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            bytes: [0xcc; STUB],
            len: 0,
        }
    }
}

impl Bytes {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::cpuid;
    use crate::memory::nearby::{map_area, patch};

    const AREA: u64 = rcoe_linux_abi::PAGE;
    /// Where the stub is within the area.
    const STUB_AT: u64 = 2048;
    /// `xsave 0x40(%rsp)`, as loaders have it.
    const LOADERS: [u8; 5] = [0x0f, 0xae, 0x64, 0x24, 0x40];

    #[test]
    fn what_is_the_same_elsewhere_has_room_for_a_jump() {
        let window = |code: &[u8]| window(&[code, &[0x90; 8]].concat());
        assert_eq!(window(&LOADERS), Some(5));
        assert_eq!(window(&[0x48, 0x0f, 0xae, 0x67, 0x10]), Some(5), "rdi");
        assert_eq!(window(&[0x0f, 0xae, 0xa4, 0x24, 0, 1, 0, 0]), Some(8));
        assert_eq!(window(&[0x0f, 0xae, 0x27, 0x89, 0xc2]), Some(5), "mov");
        assert_eq!(window(&[0x0f, 0xae, 0x27]), None, "no room");
        assert_eq!(window(&[0x0f, 0xae, 0x25, 0, 0, 0, 0]), None, "by its own");
        assert_eq!(window(&[0x0f, 0xae, 0x24, 0x25, 0, 0, 0, 0]), None);
        assert_eq!(window(&[0x0f, 0xae, 0x6c, 0x24, 0x40]), None, "xrstor");
        assert_eq!(window(&[0x0f, 0xae, 0xe8, 0x90, 0x90]), None, "lfence");
        assert_eq!(super::window(&LOADERS[..4]), None, "cut off");
    }

    #[test]
    fn what_stood_there_is_found_again() {
        for window in [
            &LOADERS[..],
            &[0x0f, 0xae, 0xa4, 0x24, 0, 1, 0, 0],
            &[0x49, 0x0f, 0xae, 0x24, 0xc8, 0x89, 0xc2],
            &[0x0f, 0xae, 0x27, 0x89, 0xc2],
            &[0x0f, 0xae, 0x27, 0x48, 0x81, 0xc7, 0, 1, 0, 0],
        ] {
            let stub = stub(0x1000, 0x2000, window).expect("a stub");
            assert_eq!(original(&stub).unwrap(), window[..JUMP], "{window:x?}");
        }
        assert_eq!(original(&[0xcc; STUB]), None);
        assert!(stub(0, 0, &[0x0f, 0xae, 0xa4, 0x24, 0xff, 0xff, 0xff, 0x7f]).is_none());
    }

    /// A stack, an area as `xsave` writes it, and registers and flags behind that.
    #[repr(C, align(64))]
    struct Saved {
        stack: [u8; 1024],
        area: [u8; 4096],
        told: [u64; 3],
    }

    /// Where what is loaded into a register comes from, in the area.
    const LOADED: usize = 4096 - 32;
    const FIRST: u8 = 1;
    const SECOND: u8 = 1 << 1;
    const THIRD: u8 = 1 << 2;

    /// Saves what is asked for by a jump to the stub of this code, once all vectors are zero but
    /// one that was loaded. The area is at `%rdi`, and where loaders have it on their stack.
    fn saved(window: &[u8], asked: u8, loaded: [u8; 32]) -> Box<Saved> {
        let wide = asked & THIRD != 0;
        // `push %rbp; mov %rsp,%rbp; lea -64(%rdi),%rsp; mov %esi,%eax; xor %edx,%edx`
        let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x67, 0xc0];
        code.extend([0x89, 0xf0, 0x31, 0xd2]);
        if wide {
            // `vzeroall; vmovdqu LOADED(%rdi),%ymm3`
            code.extend([0xc5, 0xfc, 0x77, 0xc5, 0xfe, 0x6f, 0x9f]);
        } else {
            for register in (0..8).map(|it| 0xc0 | it << 3 | it) {
                // `pxor` of the eight low ones, and of the others.
                code.extend([0x66, 0x0f, 0xef, register]);
                code.extend([0x66, 0x45, 0x0f, 0xef, register]);
            }
            // `movdqu LOADED(%rdi),%xmm3`
            code.extend([0xf3, 0x0f, 0x6f, 0x9f]);
        }
        code.extend(u32::try_from(LOADED).unwrap().to_le_bytes());
        // `stc`
        code.push(0xf9);
        let area = map_area(0x2000_0000, AREA).expect("memory");
        let (site, at) = (area + code.len() as u64, area + STUB_AT);
        code.extend(jump(site, at));
        code.resize(code.len() + window.len() - JUMP, 0xcc);
        // `mov %rbp,%rsp; pushfq; pop %rcx`; rax, rdx and rcx go behind the area; `pop %rbp; ret`
        code.extend([
            0x48, 0x89, 0xec, 0x9c, 0x59, 0x48, 0x89, 0x87, 0, 0x10, 0, 0,
        ]);
        code.extend([
            0x48, 0x89, 0x97, 8, 0x10, 0, 0, 0x48, 0x89, 0x8f, 0x10, 0x10,
        ]);
        code.extend([0, 0, 0x5d, 0xc3]);
        patch(area, &code).expect("its own memory");
        patch(at, &stub(at, site, window).expect("a stub")).expect("its own memory");
        let mut saved = Box::new(Saved {
            stack: [0; 1024],
            area: [0; 4096],
            told: [0; 3],
        });
        saved.area[LOADED..].copy_from_slice(&loaded);
        measure(cpuid::machine);
        // SAFETY: the function was just written, and keeps to the convention.
        let run: extern "C" fn(*mut u8, u64) = unsafe { core::mem::transmute(area) };
        let start = &raw mut *saved;
        // SAFETY: within the same allocation, whose pointer this is.
        let at = unsafe { start.cast::<u8>().add(core::mem::offset_of!(Saved, area)) };
        run(at, asked.into());
        // SAFETY: mapped above, and not executed any more.
        unsafe { crate::sys::munmap(area, AREA) }.expect("its own memory");
        saved
    }

    #[test]
    fn registers_of_zeroes_are_noted_as_unused_however_they_became_so() {
        let wide = if std::is_x86_feature_detected!("avx") {
            THIRD
        } else {
            0
        };
        let (mut low, mut high) = ([0; 32], [0; 32]);
        (low[3], high[31]) = (7, 9);
        // `xsave 0x40(%rsp)`; `xsave (%rdi); mov %eax,%edx`
        for (window, rdx) in [(LOADERS, 0), ([0x0f, 0xae, 0x27, 0x89, 0xc2], 1)] {
            for (asked, loaded, used) in [
                (FIRST | SECOND, [0; 32], FIRST),
                (FIRST | SECOND, low, FIRST | SECOND),
                (SECOND, [0; 32], 0),
                (FIRST | SECOND | wide, [0; 32], FIRST),
                (FIRST | SECOND | wide, low, FIRST | SECOND),
                (FIRST | SECOND | wide, high, FIRST | wide),
            ] {
                let saved = saved(&window, asked, loaded);
                assert_eq!(saved.area[512..520], [used, 0, 0, 0, 0, 0, 0, 0], "{asked}");
                assert_eq!(saved.area[160 + 3 * 16..][..16], loaded[..16]);
                let [eax, edx, flags] = saved.told;
                assert_eq!((eax, edx), (asked.into(), rdx * eax), "registers");
                assert_eq!(flags & 1, 1, "carry is as it was");
            }
        }
    }
}
