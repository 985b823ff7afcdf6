//! The `syscall` instruction with zero to six arguments.

use core::arch::asm;

/// The errno in a raw result, or `None` if the call succeeded.
#[inline]
#[must_use]
pub const fn errno_of(ret: i64) -> Option<i32> {
    if ret < 0 && ret >= -4095 {
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the test above")]
        return Some(-ret as i32);
    }
    None
}

/// System call with six arguments.
///
/// # Safety
/// The arguments must be right for the call: the kernel may read and write any memory they name,
/// unmap memory, or end the process.
#[inline(always)]
pub unsafe fn syscall6(nr: u64, a: [u64; 6]) -> i64 {
    let ret: i64;
    // SAFETY: the caller vouches for the arguments; rcx and r11 are declared clobbered.
    unsafe {
        asm!("syscall", inlateout("rax") nr.cast_signed() => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

macro_rules! shorter {
    ($name:ident, $count:literal, $($arg:ident),*) => {
        #[doc = concat!("System call with ", $count, " arguments.")]
        ///
        /// # Safety
        /// As for [`syscall6`].
        #[inline(always)]
        pub unsafe fn $name(nr: u64 $(, $arg: u64)*) -> i64 {
            let mut all = [0_u64; 6];
            let given: &[u64] = &[$($arg),*];
            let mut i = 0;
            while i < given.len() {
                all[i] = given[i];
                i += 1;
            }
            // SAFETY: forwarded from the caller.
            unsafe { syscall6(nr, all) }
        }
    };
}

shorter!(syscall0, "no",);
shorter!(syscall1, "one", a);
shorter!(syscall2, "two", a, b);
shorter!(syscall3, "three", a, b, c);
shorter!(syscall4, "four", a, b, c, d);
shorter!(syscall5, "five", a, b, c, d, e);
