//! A child's replica takes over the memory of its own replica of the parent: see
//! [`crate::calls::processes::twin`].
//!
//! All private memory counts, the agent's included: data, stacks, code that was rewritten. Pages
//! that come from a file unchanged are the same for all replicas anyway. Small mappings are
//! compared here and now, page by page, and only what differs is written; large ones wait
//! ([`crate::memory::deferred`]).
//!
//! It happens before the child's replicas first meet, while no program runs that could find the
//! descriptors that are open meanwhile.
//!
//! Not covered: large mappings that nobody may read; memory that is shared anyway.

use core::fmt::Write as _;

use linux_raw_sys::errno::EMFILE;
use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
use rcoe_linux_abi::{PAGE, Report};

use crate::arch::entry;
use crate::calls::processes::twin::{self, Source};
use crate::convert::size;
use crate::memory::deferred::{self};
use crate::memory::guest;
use crate::memory::space::space;
use crate::sys::{self, Errno, credentials};
use crate::text::Text;

/// Pages that are compared at a time: more would only make more of the buffer.
const PORTION: usize = 8 * size(PAGE);
/// Pages whose entries in the page tables are read at a time: one page of them, on the stack.
const ENTRIES: usize = size(PAGE) / 8;
/// Mappings up to this size are taken over at once.
const SMALL: u64 = 1 << 20;
/// Mappings that nobody may read are looked at up to this size.
const MOST_CLOSED: u64 = 64 << 20;

/// Memory that is taken over, that of this process, and what is known of the latter's pages.
struct Files<'a> {
    source: &'a mut Source,
    /// The source's, or a twin's that has been left since.
    theirs: i32,
    own: i32,
    pages: i32,
}

impl<'a> Files<'a> {
    /// Whoever may not look at the replica of the parent may look at its twin.
    fn open(source: &'a mut Source, own: &Report) -> Result<Self, Errno> {
        let theirs = match open_memory(source) {
            Err(_) if source.want_twin(own) => open_memory(source),
            opened => opened,
        }?;
        Ok(Self {
            source,
            theirs,
            own: open(format_args!("/proc/self/mem\0"), true)?,
            pages: open(format_args!("/proc/self/pagemap\0"), false)?,
        })
    }

    /// Reads memory as it was at the fork.
    ///
    /// # Panics
    /// If nobody holds it any more.
    fn read(&mut self, buffer: &mut [u8], from: u64) {
        let mut read = sys::pread(self.theirs, buffer, from);
        if self.source.has_moved() {
            let twin = open_memory(self.source).expect("what could be opened can be again");
            sys::close(core::mem::replace(&mut self.theirs, twin));
            read = sys::pread(self.theirs, buffer, from);
        }
        if read != Ok(buffer.len()) {
            crate::fail(&format_args!(
                "the parent's memory at {from:#x} cannot be read"
            ));
        }
    }

    fn close(&self) {
        for fd in [self.theirs, self.own, self.pages] {
            sys::close(fd);
        }
    }
}

/// A program may have put capabilities aside that it is permitted: the host looks at those in
/// effect, and at all that the other process is permitted.
fn open_memory(source: &Source) -> Result<i32, Errno> {
    let memory = || open(format_args!("/proc/{}/mem\0", source.process), false);
    memory().or_else(|_| credentials::with_all_permitted(memory))
}

/// One line of the kernel's list of mappings.
pub(in crate::calls) struct Mapping {
    pub(in crate::calls) start: u64,
    pub(in crate::calls) end: u64,
    prot: u32,
    private: bool,
    /// A name in brackets; the kernel's own business, but for the stack.
    special: bool,
    stack: bool,
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        let mut ends = words.next()?.split(|byte| *byte == b'-');
        let (start, end) = (hexadecimal(ends.next()?)?, hexadecimal(ends.next()?)?);
        let flags = words.next()?;
        let name = words.nth(3).unwrap_or_default();
        // One that was executed in this process has it where the kernel puts stacks.
        let stack = name == b"[stack]" || end == space().stack_top();
        let bit = |at: usize, letter: u8, bit: u32| match flags.get(at) {
            Some(found) if *found == letter => bit,
            _ => 0,
        };
        Some(Self {
            start,
            end,
            prot: bit(0, b'r', PROT_READ) | bit(1, b'w', PROT_WRITE) | bit(2, b'x', PROT_EXEC),
            private: flags.get(3) == Some(&b'p'),
            special: name.starts_with(b"["),
            stack,
        })
    }

    /// Whether it may wait until it is touched. The stack may not: the kernel makes it grow.
    fn may_wait(&self) -> bool {
        let both = PROT_READ | PROT_WRITE;
        let agent = guest::is_agent(self.start, self.end - self.start);
        self.end - self.start > SMALL && self.prot & both == both && !agent && !self.stack
    }

    fn is_taken(&self) -> bool {
        let closed = self.prot & PROT_READ == 0 && self.end - self.start > MOST_CLOSED;
        self.private && !closed && (!self.special || self.stack)
    }
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(text).ok()?, 16).ok()
}

/// Makes this process's private memory equal to the source's, but for what may wait: a twin holds
/// that.
///
/// # Errors
/// The host does not let this process see the twin, or has no descriptor left.
pub(super) fn adopt(source: &mut Source, own: &Report) -> Result<(), Errno> {
    let mut files = Files::open(source, own)?;
    deferred::begin(files.source.process);
    let listed = each_mapping(|mapping| {
        if mapping.is_taken() {
            let waits =
                mapping.may_wait() && deferred::add(mapping.start, mapping.end, mapping.prot);
            if !waits {
                take_over(&mut files, mapping);
            }
        }
    });
    files.close();
    listed?;
    if deferred::is_settled() || !source.want_twin(own) {
        // Nothing waits, or the parent's replica is lost, and with it what this one differs in.
        deferred::finish();
        twin::tell_adopted(own);
        return Ok(());
    }
    deferred::held_by(source.process);
    deferred::close_off();
    Ok(())
}

fn open(path: core::fmt::Arguments, write: bool) -> Result<i32, Errno> {
    let mut name = Text::<40>::new();
    name.write_fmt(path).expect("short");
    let path = name.as_bytes();
    match sys::open_file(path, write) {
        Err(Errno(errno)) if errno == EMFILE.cast_signed() => {
            sys::with_most_descriptors(|| sys::open_file(path, write))
        }
        done => done,
    }
}

/// Goes through the kernel's list of this process's mappings.
#[inline(never)]
pub(in crate::calls) fn each_mapping(mut visit: impl FnMut(&Mapping)) -> Result<(), Errno> {
    let list = open(format_args!("/proc/self/maps\0"), false)?;
    let mut text = [0_u8; 8 << 10];
    let mut len = 0;
    let result = loop {
        match sys::read(list, &mut text[len..]) {
            Ok(0) => break Ok(()),
            Ok(read) => len += read,
            Err(errno) => break Err(errno),
        }
        let whole = text[..len].iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |end| end + 1);
        let lines = text[..whole].split(|byte| *byte == b'\n');
        lines
            .filter_map(Mapping::parse)
            .for_each(|mapping| visit(&mapping));
        text.copy_within(whole..len, 0);
        len -= whole;
    };
    sys::close(list);
    result
}

/// Takes over all anonymous pages of a mapping.
fn take_over(files: &mut Files, mapping: &Mapping) {
    let mut entries = [0_u64; ENTRIES];
    let mut window = mapping.start;
    while window < mapping.end {
        let pages = size((mapping.end - window) / PAGE).min(ENTRIES);
        let entries = &mut entries[..pages];
        sys::read_words(files.pages, entries, window / PAGE * 8);
        for (at, entry) in entries.iter_mut().enumerate() {
            *entry = u64::from(is_own(*entry) && !is_exempt(window + at as u64 * PAGE));
        }
        let mut from = window;
        for run in entries.chunk_by(|a, b| a == b) {
            let len = run.len() as u64 * PAGE;
            let pages = if run[0] == 1 { size(len) } else { 0 };
            for at in (0..pages).step_by(PORTION) {
                let portion = PORTION.min(pages - at);
                let readable = mapping.prot & PROT_READ != 0;
                take_run(files, from + at as u64, portion, readable);
            }
            from += len;
        }
        window = from;
    }
}

/// Is there a page at all, and one that is no file's?
fn is_own(entry: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
}

/// Memory that is in use for this very work.
fn is_exempt(page: u64) -> bool {
    let ranges = [
        deferred::own_memory(),
        entry::stack_range(),
        entry::signal_stack_range(),
    ];
    ranges
        .iter()
        .any(|&(start, end)| (start..end).contains(&page))
}

fn take_run(files: &mut Files, from: u64, len: usize, readable: bool) {
    let buffer = &mut deferred::buffer()[..len];
    files.read(buffer, from);
    for (place, page) in (from..).step_by(4096).zip(buffer.chunks_exact(4096)) {
        let mut copy = [0; 4096];
        let own = if readable {
            // SAFETY: a present, readable page that nobody changes now.
            unsafe { core::slice::from_raw_parts(place as *const u8, copy.len()) }
        } else {
            let read = sys::pread(files.own, &mut copy, place);
            assert_eq!(read, Ok(copy.len()), "own memory can be read");
            &copy
        };
        if !deferred::same(own, page) {
            let written = sys::pwrite_raw(files.own, page.as_ptr() as u64, page.len(), place);
            assert_eq!(written, 0, "own memory can be written");
        }
    }
}
