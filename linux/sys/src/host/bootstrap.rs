//! An executable that lies within this process's own, executed without a copy.
//!
//! Intuition: the kernel executes files from their beginning only. So it is given a file of one
//! page whose code maps the parts of the real executable from where they lie in ours, and enters
//! it. Pages that the kernel has of our file serve every run; a copy would be made for each.
//!
//! Contract: the entered code finds the stack as the kernel left it, every other register may hold
//! anything, and the page is still mapped at the address that was asked for.
//!
//! Not covered: a file that is changed in place while it runs, where the kernel lets anybody do so;
//! our own code would be changed, too.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::vec;
use std::vec::Vec;

use rcoe_linux_abi::{PAGE, PAGE_BYTES};

use super::shared::{memory_file, raise};

/// Bytes of the headers, which the code follows.
const HEADERS: u64 = 64 + 2 * 56;

// It is not executed where it stands. A table follows: an address, a length, protection and flags,
// a descriptor and an offset for each part; then an entry without an address, in which the length
// is where to go on and the descriptor is closed. The status of a failure is that of a program that
// cannot be executed.
global_asm!(
    r#"
    .pushsection .rodata.rcoe_bootstrap, "a", @progbits
    .balign 8
    .globl rcoe_bootstrap
rcoe_bootstrap:
    lea rbx, [rip + rcoe_bootstrap_end]
2:
    mov rdi, [rbx]
    mov rsi, [rbx + 8]
    movsxd r8, dword ptr [rbx + 24]
    test rdi, rdi
    jz 3f
    mov edx, [rbx + 16]
    mov r10d, [rbx + 20]
    mov r9, [rbx + 32]
    mov eax, {mmap}
    syscall
    cmp rax, [rbx]
    jne 4f
    add rbx, {entry}
    jmp 2b
3:
    mov edi, r8d
    mov eax, {close}
    syscall
    jmp [rbx + 8]
4:
    mov edi, 126
    mov eax, {exit_group}
    syscall
    ud2
    .balign 8
    .globl rcoe_bootstrap_end
rcoe_bootstrap_end:
    .popsection
    "#,
    mmap = const libc::SYS_mmap,
    close = const libc::SYS_close,
    exit_group = const libc::SYS_exit_group,
    entry = const ENTRY,
);

/// Bytes of an entry of the table.
const ENTRY: usize = 40;

unsafe extern "C" {
    static rcoe_bootstrap: u8;
    static rcoe_bootstrap_end: u8;
}

/// What begins at a page of its own, here and in the executable.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Paged<T: ?Sized>(pub T);

/// A part of an executable in memory: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its address.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Can it be written?
    pub writable: bool,
    /// Can it be executed?
    pub executable: bool,
    /// Where it begins in the executable; `None` if all of it is zero.
    pub offset: Option<u64>,
}

/// What [`Starter`](super::Starter) executes.
#[derive(Debug)]
pub struct Image {
    page: OwnedFd,
    /// Our own executable.
    source: Option<OwnedFd>,
}

impl Image {
    /// The executable in these bytes, which are part of this process's own; what is executed lies
    /// at `address` for as long as it is needed.
    ///
    /// # Errors
    /// There is no memory or descriptor; or our own executable cannot be read, or is not the one
    /// that runs.
    pub fn within(
        name: &CStr,
        bytes: &'static Paged<[u8]>,
        (parts, entry): (&[Part], u64),
        address: u64,
    ) -> io::Result<Self> {
        let file = File::open("/proc/self/exe")?;
        let offset = offset_of(bytes.0.as_ptr().addr() as u64).ok_or(io::ErrorKind::NotFound)?;
        let mut found = [0; PAGE_BYTES];
        let found = &mut found[..bytes.0.len().min(PAGE_BYTES)];
        file.read_exact_at(found, offset)?;
        if *found != bytes.0[..found.len()] {
            return Err(io::Error::other("/proc/self/exe is not what runs"));
        }
        let source = raise(file.into())?;
        let page = page(
            parts,
            (source.as_raw_fd(), offset),
            entry,
            address + HEADERS,
        );
        Ok(Self {
            page: file_of(name, &page)?,
            source: Some(source),
        })
    }

    /// The file to execute.
    pub(super) fn page(&self) -> BorrowedFd<'_> {
        self.page.as_fd()
    }

    /// What it needs at the same number.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// An executable that is complete.
    #[cfg(test)]
    pub(super) fn of(name: &CStr, bytes: &[u8]) -> Self {
        Self {
            page: file_of(name, bytes).expect("a file"),
            source: None,
        }
    }
}

/// A close-on-exec memory file that holds these bytes.
fn file_of(name: &CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(raise(memory_file(name, 0)?)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Headers, code and table.
fn page(parts: &[Part], (source, start): (i32, u64), entry: u64, code: u64) -> Vec<u8> {
    // SAFETY: both are labels of the same piece of constant memory.
    let text = unsafe {
        let first = &raw const rcoe_bootstrap;
        let len = (&raw const rcoe_bootstrap_end).offset_from(first);
        core::slice::from_raw_parts(first, len.unsigned_abs())
    };
    let mut all = headers(code);
    all.extend(text);
    for part in parts {
        let protection = libc::PROT_READ
            | if part.writable { libc::PROT_WRITE } else { 0 }
            | if part.executable { libc::PROT_EXEC } else { 0 };
        let anonymous = if part.offset.is_none() {
            libc::MAP_ANONYMOUS
        } else {
            0
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE | anonymous;
        let from = part.offset.map_or((-1, 0), |at| (source, start + at));
        put(
            &mut all,
            (part.address, part.len),
            (protection, flags),
            from,
        );
    }
    put(&mut all, (0, entry), (0, 0), (source, 0));
    assert!(all.len() <= PAGE_BYTES, "few parts");
    all.resize(PAGE_BYTES, 0);
    all
}

/// Adds an entry to the table.
fn put(all: &mut Vec<u8>, range: (u64, u64), how: (i32, i32), from: (i32, u64)) {
    all.extend(range.0.to_le_bytes());
    all.extend(range.1.to_le_bytes());
    all.extend(how.0.to_le_bytes());
    all.extend(how.1.to_le_bytes());
    all.extend(i64::from(from.0).to_le_bytes());
    all.extend(from.1.to_le_bytes());
}

/// Headers of an executable of one page whose code is at this address, behind them.
fn headers(code: u64) -> Vec<u8> {
    const EXECUTABLE: u16 = 2;
    const X86_64: u16 = 62;
    let mut all = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    all.resize(16, 0);
    all.extend([EXECUTABLE, X86_64].map(u16::to_le_bytes).as_flattened());
    all.extend(1_u32.to_le_bytes());
    // Entry, program headers, section headers.
    all.extend([code, 64, 0].map(u64::to_le_bytes).as_flattened());
    all.extend(0_u32.to_le_bytes());
    all.extend([64, 56, 2, 0, 0, 0].map(u16::to_le_bytes).as_flattened());
    let segments = [
        (
            libc::PT_LOAD,
            libc::PF_R | libc::PF_X,
            [0, code - HEADERS, code - HEADERS, PAGE, PAGE],
        ),
        // The stack cannot be executed.
        (libc::PT_GNU_STACK, libc::PF_R | libc::PF_W, [0; 5]),
    ];
    for (kind, may, words) in segments {
        all.extend([kind, may].map(u32::to_le_bytes).as_flattened());
        all.extend(words.map(u64::to_le_bytes).as_flattened());
        all.extend(PAGE.to_le_bytes());
    }
    all
}

/// Where what lies at this address stands in the file of our own executable.
fn offset_of(address: u64) -> Option<u64> {
    /// The question, and its answer.
    struct Search(u64, Option<u64>);
    /// Called for our own executable first, and for it alone.
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the C library passes a description that is valid now, and what `offset_of` gave.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
        // SAFETY: the headers of an object that is loaded.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let distance = search.0.wrapping_sub(info.dlpi_addr);
        let found = headers.iter().find(|header| {
            let part = header.p_vaddr..header.p_vaddr + header.p_filesz;
            header.p_type == libc::PT_LOAD && part.contains(&distance)
        });
        search.1 = found.map(|header| header.p_offset + (distance - header.p_vaddr));
        1
    }
    let mut search = Search(address, None);
    // SAFETY: the function is called before this returns, with this pointer.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.1.filter(|offset| offset.is_multiple_of(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    static BYTES: &Paged<[u8]> = &Paged(*b"the beginning of a page of its own");

    #[test]
    fn what_is_part_of_the_executable_is_found_in_its_file() {
        let offset = offset_of(BYTES.0.as_ptr().addr() as u64).expect("a constant");
        let file = File::open("/proc/self/exe").expect("our own");
        let mut found = [0; BYTES.0.len()];
        file.read_exact_at(&mut found, offset).expect("read");
        assert_eq!(&found, &BYTES.0);
        let on_the_stack = (&raw const found).addr() as u64;
        assert_eq!(offset_of(on_the_stack), None);
    }
}
