//! The personality on the host, with a machine of vectors.

mod code;
mod copies;
mod datagrams;
mod disk;
mod facts;
mod fifos;
mod handlers;
mod links;
mod live;
mod local;
mod mapped;
mod net;
mod outgoing;
mod packets;
mod processes;
mod programs;
mod ranks;
mod receive;
mod reserve;
mod rights;
mod senders;
mod shared;
mod signals;
mod threads;
mod told;
mod udp;

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::string::String;
use std::vec;
use std::vec::Vec;

use linux_raw_sys::auxvec::{AT_ENTRY, AT_NULL, AT_PAGESZ, AT_RANDOM};
use linux_raw_sys::errno::{
    EACCES, EBADF, EEXIST, EFAULT, EINVAL, EMFILE, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTDIR,
    ENOTEMPTY, EPERM,
};
use linux_raw_sys::general as nr;
use rcoe_abi::Rights;
use rcoe_abi::bundle::{
    Bundle, FILE_WORDS, HEADER_WORDS, MAGIC, PROGRAM_WORDS, SEGMENT_WORDS, Word,
};

use super::arch::FLOAT_WORDS;
use super::machine::PAGE;
use super::{
    Answer, Begin, CALL_WORDS, Errno, Machine, Network, Next, Nodes, Process, Sparse, Turn,
};
use crate::input::Came;

/// Frames of the machine, and chunks of the array.
const FRAMES: usize = 64;
const CHUNKS: usize = 16;

#[derive(Debug, Default)]
struct Mock {
    frames: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// Address spaces that are made, and the one at hand.
    spaces: BTreeSet<usize>,
    space: usize,
    aliases: super::aliases::Aliases,
    /// Where frames and aliases are mapped: the address space, and where there.
    mapped: BTreeMap<u32, (usize, u64, Rights)>,
    console: Vec<u8>,
    /// What came for the program at once each time, and whether more may come.
    input: VecDeque<Vec<u8>>,
    may_come: bool,
    notes: String,
    now: u64,
    pointers: BTreeMap<usize, [u64; 2]>,
    /// Threads that were made, like which; and those that went on, with what registers.
    made: Vec<(usize, usize)>,
    /// The address spaces of threads.
    lives: BTreeMap<usize, usize>,
    gone: Vec<(usize, [u64; CALL_WORDS])>,
    floats: BTreeMap<usize, [u64; FLOAT_WORDS]>,
    net: net::Wires,
    disk: disk::Platter,
}

impl Machine for Mock {
    fn take(&mut self) -> Option<u32> {
        let frame = self.take_as_it_is()?;
        self.frames[frame as usize].fill(0);
        Some(frame)
    }

    fn take_as_it_is(&mut self) -> Option<u32> {
        /// What is in a frame of which it does not matter.
        const LEFT: u8 = 0xa5;
        if let Some(frame) = self.free.pop() {
            return Some(frame);
        }
        let frame = u32::try_from(self.frames.len()).ok()?;
        (self.frames.len() < FRAMES).then(|| self.frames.push(vec![LEFT; 4096]))?;
        Some(frame)
    }

    fn give_back(&mut self, frame: u32) {
        assert!(!self.mapped.contains_key(&frame) && !self.free.contains(&frame));
        self.free.push(frame);
    }

    fn left(&self) -> u64 {
        (FRAMES - self.frames.len() + self.free.len()) as u64
    }

    fn make_space(&mut self, space: usize) -> bool {
        self.spaces.insert(space);
        true
    }

    fn enter(&mut self, space: usize) {
        self.space = space;
    }

    fn leave_space(&mut self, space: usize) {
        assert!(self.spaces.contains(&space), "it was made");
    }

    fn share(&mut self, frame: u32, like: Option<u16>) -> Option<u16> {
        assert!(!self.mapped.contains_key(&frame) && !self.free.contains(&frame));
        self.aliases.add(like)
    }

    fn unshare(&mut self, alias: u16) -> bool {
        assert!(
            !self
                .mapped
                .contains_key(&super::aliases::mapped_as(0, alias))
        );
        self.aliases.remove(alias)
    }

    fn number_of(&self, alias: u16) -> u32 {
        self.aliases.number(alias)
    }

    fn map(&mut self, frame: u32, address: u64, rights: Rights) -> bool {
        assert!(self.spaces.contains(&self.space));
        assert!(
            !rights.contains(Rights::WRITE.or(Rights::EXECUTE)) && address.is_multiple_of(PAGE)
        );
        let mut others = self.mapped.values();
        assert!(!others.any(|it| (it.0, it.1) == (self.space, address)));
        let place = (self.space, address, rights);
        assert_eq!(self.mapped.insert(frame, place), None);
        true
    }

    fn unmap(&mut self, frame: u32) {
        self.mapped.remove(&frame);
    }

    fn read(&self, frame: u32, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.frames[frame as usize][at..at + bytes.len()]);
    }

    fn write(&mut self, frame: u32, at: usize, bytes: &[u8]) {
        self.frames[frame as usize][at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.frames[to as usize] = self.frames[from as usize].clone();
    }

    fn console(&mut self, bytes: &[u8]) {
        self.console.extend(bytes);
    }

    fn input(&mut self, into: &mut [u8]) -> Came {
        let Some(came) = self.input.front_mut() else {
            return if self.may_come {
                Came::Nothing
            } else {
                Came::End
            };
        };
        let count = came.len().min(into.len()).min(100);
        into[..count].copy_from_slice(&came[..count]);
        came.drain(..count);
        let more = !came.is_empty();
        if !more {
            self.input.pop_front();
        }
        Came::Bytes(count, more)
    }

    fn note(&mut self, text: core::fmt::Arguments<'_>) {
        writeln!(self.notes, "{text}").unwrap();
    }

    fn now(&mut self) -> u64 {
        self.now = self.now.wrapping_add(1);
        self.now
    }

    fn wait(&mut self, until: Option<u64>) {
        if !self.net.hear() {
            self.now = until.expect("something happens by itself").max(self.now);
        }
    }

    fn make_thread(&mut self, number: usize, like: usize) -> bool {
        assert!(self.spaces.contains(&self.space));
        self.made.push((number, like));
        self.lives.insert(number, self.space);
        true
    }

    fn go(&mut self, thread: usize, registers: &[u64; CALL_WORDS]) {
        self.gone.push((thread, *registers));
    }

    fn set_pointers(&mut self, thread: usize, pointers: [u64; 2]) -> bool {
        self.pointers.insert(thread, pointers);
        true
    }

    fn floats(&mut self, thread: usize) -> [u64; FLOAT_WORDS] {
        *self.floats.entry(thread).or_insert([0; FLOAT_WORDS])
    }

    fn set_floats(&mut self, thread: usize, floats: &[u64; FLOAT_WORDS]) -> bool {
        let holds = floats[3] >> 16 & 0xffff == 0;
        if holds {
            self.floats.insert(thread, *floats);
        }
        holds
    }

    fn identity(&self, leaf: u32, part: u32, kept: [u32; 4]) -> [u32; 4] {
        let told = [leaf, 0x0700_0000 | part, u32::MAX, 0x0700_0000];
        core::array::from_fn(|index| told[index] & kept[index])
    }
}

/// Where the program's code and data are.
const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x40_1000;

/// The bundle of a program whose code has `cpuid` and `rdtsc`, with a file.
fn bundle() -> Vec<u8> {
    let tail = HEADER_WORDS + 2 * SEGMENT_WORDS + 1 + 2 * FILE_WORDS + PROGRAM_WORDS;
    let mut text = vec![0x0f, 0xa2, 0x0f, 0x31, 0xc3, 0, 0, 0];
    let mut put = |bytes: &[u8]| {
        let at = (tail * 8 + text.len()) as u64;
        text.extend(bytes);
        at
    };
    let words_at = put(b"name\0one\0");
    let environment = put(b"A=b\0");
    let paths = put(b"/bin/name/etc/text");
    let content = put(b"0123456789");
    let end = put(b"");
    let table = |index: usize| (index * 8) as u64;
    let segments = table(HEADER_WORDS);
    let identities = table(HEADER_WORDS + 2 * SEGMENT_WORDS);
    let code = table(tail);
    let mut words = vec![0_u64; tail];
    for (word, value) in [
        (Word::Magic as usize, MAGIC),
        (Word::Bytes as usize, end),
        (Word::Clock as usize, 7_000_000_000),
        (Word::Programs as usize, table(tail - PROGRAM_WORDS)),
        (Word::Programs as usize + 1, 1),
        (Word::Arguments as usize, words_at),
        (Word::Arguments as usize + 1, 2),
        (Word::Environment as usize, environment),
        (Word::Environment as usize + 1, 1),
        (Word::Files as usize, identities + 8),
        (Word::Files as usize + 1, 2),
    ] {
        words[word] = value;
    }
    let records = [[CODE, 8, code, 8, 5], [DATA, 0x1800, code, 4, 3]];
    words[HEADER_WORDS..][..10].copy_from_slice(records.as_flattened());
    words[HEADER_WORDS + 10] = CODE;
    let files = [
        [paths, 9, code, 8, 0o755],
        [paths + 9, 9, content, 10, 0o644],
    ];
    words[HEADER_WORDS + 11..][..10].copy_from_slice(files.as_flattened());
    let program = [
        0,
        CODE + 4,
        0,
        0,
        DATA + 0x1800,
        segments,
        2,
        identities,
        1,
        0,
        0,
        0,
    ];
    words[tail - PROGRAM_WORDS..].copy_from_slice(&program);
    let words = words.into_iter().flat_map(u64::to_le_bytes);
    words.chain(text).collect()
}

/// Loads the program and does something with it.
fn with(act: impl FnOnce(&mut Process<'_, Mock>, Begin)) {
    with_bundle(&bundle(), act);
}

/// Loads the program of a bundle and does something with it.
fn with_bundle(bytes: &[u8], act: impl FnOnce(&mut Process<'_, Mock>, Begin)) {
    let bundle = Bundle::new(bytes).unwrap();
    let mut table = vec![0; Sparse::table_words(CHUNKS)];
    let mut pool = vec![0; Sparse::pool_words(CHUNKS)];
    let store = Sparse::new(&mut table, &mut pool);
    let mut nodes = Nodes::new();
    let loaded = Process::load(Mock::default(), store, &mut nodes, bundle);
    let (mut process, begin) = loaded.unwrap();
    act(&mut process, begin);
}

/// Makes a call of the first thread that is answered.
fn ask(process: &mut Process<'_, Mock>, call: u32, words: &[u64]) -> Answer {
    let mut all = [0; 6];
    all[..words.len()].copy_from_slice(words);
    match process.called(0, call.into(), all, &[0; CALL_WORDS]) {
        Turn::Answer(answer) => match answer.wrapping_neg() {
            error @ 1..4096 => Err(Errno(u32::try_from(error).unwrap())),
            _ => Ok(answer),
        },
        other => panic!("{other:?}"),
    }
}

/// How much of the machine the program uses: frames, and how many of them and of their aliases are
/// mapped.
fn machine_uses(process: &Process<'_, Mock>) -> (usize, usize) {
    let machine = &process.machine;
    (
        machine.frames.len() - machine.free.len(),
        machine.mapped.len(),
    )
}

/// Puts a string where the program has data.
fn text(process: &mut Process<'_, Mock>, text: &str) -> u64 {
    let place = DATA + 0x800;
    process.write(place, text.as_bytes()).unwrap();
    process.write(place + text.len() as u64, &[0]).unwrap();
    place
}

#[test]
fn a_program_begins_with_its_segments_and_its_stack() {
    with(|process, begin| {
        assert_eq!(begin.entry, CODE + 4);
        assert!(begin.stack.is_multiple_of(16));
        let string = |process: &Process<'_, Mock>, at: u64| {
            let mut bytes = [0; 8];
            process.read(at, &mut bytes).unwrap();
            let end = bytes.iter().position(|&byte| byte == 0).unwrap();
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let words: Vec<u64> = (0..50)
            .map_while(|at| process.word(begin.stack + 8 * at).ok())
            .collect();
        assert_eq!((words[0], words[3], words[5]), (2, 0, 0));
        let texts = [1, 2, 4].map(|at| string(process, words[at]));
        assert_eq!(texts, ["name", "one", "A=b"]);
        let pairs: BTreeMap<u64, u64> = words[6..].chunks(2).map(|it| (it[0], it[1])).collect();
        assert_eq!(pairs[&AT_PAGESZ.into()], 4096);
        assert_eq!(pairs[&AT_ENTRY.into()], CODE + 4);
        assert!(pairs.contains_key(&AT_NULL.into()));
        assert_ne!(process.word(pairs[&AT_RANDOM.into()]), Ok(0));
        let mut code = [0; 4];
        process.read(CODE, &mut code).unwrap();
        assert_eq!(code, [0x06, 0xa2, 0x0f, 0x31]);
        assert_eq!(process.write(CODE, &[0]), Err(Errno(EFAULT)));
        assert_eq!(process.word(DATA + 0x17f8), Ok(0));
    });
}

#[test]
fn instructions_that_differ_between_cores_are_answered_alike() {
    with(|process, _| {
        let mut registers = [0; 18];
        (registers[0], registers[15]) = (1, CODE);
        let after = process.exception((6, 0), &registers).unwrap();
        assert_eq!(&after[..4], &[1, 1 << 16, u32::MAX.into(), 0x0700_0000]);
        assert_eq!(after[15], CODE + 2);
        registers[15] = CODE + 2;
        assert_eq!(process.exception((6, 0), &registers), None);
        let after = process.exception((13, 0), &registers).unwrap();
        assert_eq!(
            (after[0], after[3], after[15]),
            (process.machine.now, 0, CODE + 4)
        );
        registers[15] = CODE + 4;
        assert_eq!(process.exception((13, 0), &registers), None);
        registers[15] = 0x10;
        assert_eq!(process.exception((13, 0), &registers), None);
    });
}

const BOTH: u32 = nr::PROT_READ | nr::PROT_WRITE;

/// Maps memory that is no file's, wherever it may be.
fn map(process: &mut Process<'_, Mock>, bytes: u64, protection: u32) -> Answer {
    let private = (nr::MAP_PRIVATE | nr::MAP_ANONYMOUS).into();
    ask(
        process,
        nr::__NR_mmap,
        &[0, bytes, protection.into(), private],
    )
}

#[test]
fn memory_of_machine_and_program_is_told() {
    with(|process, _| {
        let told = DATA + 0x200;
        assert_eq!(ask(process, nr::__NR_sysinfo, &[told]), Ok(0));
        let left = process.machine.left() * PAGE;
        let words = [5, 10, 13].map(|at| process.word(told + 8 * at).unwrap());
        assert_eq!(words, [left, 1, 1]);
        let start = map(process, 2 * PAGE, BOTH).unwrap();
        let words = [start, 2 * PAGE, told];
        assert_eq!(ask(process, nr::__NR_mincore, &words), Ok(0));
        assert_eq!(process.word(told).unwrap() & 0xffff, 0x101);
        let words = [start, 3 * PAGE, told];
        assert_eq!(ask(process, nr::__NR_mincore, &words), Err(Errno(ENOMEM)));
    });
}

#[test]
fn there_are_as_many_descriptors_as_a_program_says() {
    with(|process, _| {
        let (limits, resource) = (DATA + 0x200, nr::RLIMIT_NOFILE.into());
        let set = |process: &mut _, soft: u64, hard: u64| {
            let process: &mut Process<'_, Mock> = process;
            process.write_words(limits, &[soft, hard]).unwrap();
            ask(process, nr::__NR_prlimit64, &[0, resource, limits, 0])
        };
        assert_eq!(set(process, 4, 100), Ok(0));
        assert_eq!(ask(process, nr::__NR_dup, &[1]), Ok(3));
        assert_eq!(ask(process, nr::__NR_dup, &[1]), Err(Errno(EMFILE)));
        assert_eq!(ask(process, nr::__NR_dup2, &[1, 4]), Err(Errno(EBADF)));
        assert_eq!(set(process, 101, 100), Err(Errno(EINVAL)));
        assert_eq!(set(process, 100, 10_000), Err(Errno(EPERM)));
        assert_eq!(set(process, 5, 100), Ok(0));
        assert_eq!(ask(process, nr::__NR_dup, &[1]), Ok(4));
        let words = [0, resource, 0, limits];
        assert_eq!(ask(process, nr::__NR_prlimit64, &words), Ok(0));
        assert_eq!(process.word(limits), Ok(5));
        // Nobody but the superuser is there.
        assert_eq!(ask(process, nr::__NR_setuid, &[5]), Err(Errno(EPERM)));
        assert_eq!(ask(process, nr::__NR_fchown, &[1, 0, u64::MAX]), Ok(0));
    });
}

#[test]
fn the_heap_grows_and_shrinks() {
    with(|process, _| {
        let start = ask(process, nr::__NR_brk, &[0]).unwrap();
        let brk = |process: &mut _, bytes| ask(process, nr::__NR_brk, &[start + bytes]);
        assert_eq!(brk(process, 5000), Ok(start + 5000));
        process.write(start, &[1; 5000]).unwrap();
        assert_eq!(brk(process, 1), Ok(start + 1));
        assert!(process.write(start + 4096, &[1]).is_err());
        // More than there is changes nothing.
        assert_eq!(brk(process, FRAMES as u64 * PAGE), Ok(start + 1));
    });
}

#[test]
fn memory_has_the_rights_that_are_asked_for() {
    with(|process, _| {
        let place = map(process, 3 * PAGE, BOTH).unwrap();
        let protect = |process: &mut _, pages, protection: u32| {
            let words = [place, pages * PAGE, protection.into()];
            ask(process, nr::__NR_mprotect, &words)
        };
        assert_eq!(map(process, FRAMES as u64 * PAGE, BOTH), Err(Errno(ENOMEM)));
        assert_eq!(map(process, 0, BOTH), Err(Errno(EINVAL)));
        assert_eq!(protect(process, 1, nr::PROT_READ), Ok(0));
        assert_eq!(process.write(place, &[1]), Err(Errno(EFAULT)));
        assert_eq!(protect(process, 1, 0), Ok(0));
        assert_eq!(process.word(place), Err(Errno(EFAULT)));
        assert_eq!(protect(process, 9, nr::PROT_READ), Err(Errno(ENOMEM)));
        assert_eq!(protect(process, 1, nr::PROT_READ), Ok(0));
        // Code that nobody has looked at is none.
        assert_eq!(protect(process, 1, nr::PROT_EXEC), Err(Errno(EACCES)));
        assert_eq!(map(process, PAGE, nr::PROT_EXEC), Err(Errno(EACCES)));
        assert_eq!(map(process, PAGE, BOTH | nr::PROT_EXEC), Err(Errno(EACCES)));
        let code = [CODE, PAGE, nr::PROT_EXEC.into()];
        assert_eq!(ask(process, nr::__NR_mprotect, &code), Ok(0));
        assert_eq!(process.machine.notes.lines().count(), 1);
    });
}

#[test]
fn memory_moves_and_what_is_given_back_is_zero_when_it_is_had_again() {
    with(|process, _| {
        let taken = process.machine.mapped.len();
        let place = map(process, 3 * PAGE, BOTH).unwrap();
        process.write(place + PAGE - 1, &[5, 6]).unwrap();
        let words = [place, 3 * PAGE, 5 * PAGE, nr::MREMAP_MAYMOVE.into()];
        let moved = ask(process, nr::__NR_mremap, &words).unwrap();
        assert_eq!(process.word(moved + PAGE - 1).unwrap() & 0xffff, 0x0605);
        assert!(process.word(place).is_err());
        let forget = nr::MADV_DONTNEED.into();
        assert_eq!(
            ask(process, nr::__NR_madvise, &[moved, 2 * PAGE, forget]),
            Ok(0)
        );
        assert_eq!(process.word(moved + PAGE - 1), Ok(0));
        assert_eq!(
            ask(process, nr::__NR_madvise, &[CODE, PAGE, forget]),
            Err(Errno(EINVAL))
        );
        process.write(moved, &[7; 5000]).unwrap();
        assert_eq!(ask(process, nr::__NR_munmap, &[moved, 5 * PAGE]), Ok(0));
        assert_eq!(process.machine.mapped.len(), taken);
        let again = map(process, 5 * PAGE, BOTH).unwrap();
        assert_eq!(again, place, "the lowest is used again");
        assert!(
            (again..again + 5 * PAGE)
                .step_by(8)
                .all(|at| process.word(at) == Ok(0))
        );
    });
}

#[test]
fn a_stack_grows_to_its_end() {
    with(|process, begin| {
        assert!(process.page_fault(begin.stack - 3 * PAGE));
        assert!(!process.page_fault(begin.stack - 3 * PAGE), "it is there");
        assert!(!process.page_fault(begin.stack - (9 << 20)));
        // A call may look at what of it nobody has used.
        let mut bytes = [1; 8];
        let below = begin.stack - 5 * PAGE;
        assert_eq!(process.read(below, &mut bytes), Ok(()));
        assert_eq!(bytes, [0; 8]);
        let far = process.read(begin.stack - (9 << 20), &mut bytes);
        assert_eq!(far, Err(Errno(EFAULT)));
        assert!(!process.page_fault(0x10));
    });
}

#[test]
fn files_are_read_written_and_taken_away() {
    with(|process, _| {
        let path = text(process, "/etc/text");
        let file = ask(process, nr::__NR_open, &[path, nr::O_RDWR.into()]).unwrap();
        assert_eq!(file, 3);
        let to = DATA + 0x100;
        assert_eq!(ask(process, nr::__NR_read, &[file, to, 4]), Ok(4));
        assert_eq!(process.word(to).unwrap().to_le_bytes()[..4], *b"0123");
        // Two descriptors share a place.
        assert_eq!(ask(process, nr::__NR_dup2, &[file, 9]), Ok(9));
        process.write(to, b"ab").unwrap();
        assert_eq!(ask(process, nr::__NR_write, &[9, to, 2]), Ok(2));
        assert_eq!(ask(process, nr::__NR_pread64, &[file, to, 99, 2]), Ok(8));
        assert_eq!(process.word(to).unwrap().to_le_bytes(), *b"23ab6789");
        assert_eq!(
            ask(process, nr::__NR_lseek, &[file, 1 << 20, 0]),
            Ok(1 << 20)
        );
        assert_eq!(ask(process, nr::__NR_write, &[file, to, 1]), Ok(1));
        assert_eq!(ask(process, nr::__NR_pread64, &[file, to, 8, 5000]), Ok(8));
        assert_eq!(process.word(to), Ok(0), "what was never written is zero");
        assert_eq!(ask(process, nr::__NR_ftruncate, &[file, 3]), Ok(0));
        assert_eq!(ask(process, nr::__NR_pread64, &[file, to, 8, 0]), Ok(3));
        assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        assert_eq!(ask(process, nr::__NR_close, &[9]), Ok(0));
        assert_eq!(ask(process, nr::__NR_close, &[9]), Err(Errno(EBADF)));
        assert_eq!(ask(process, nr::__NR_unlink, &[path]), Ok(0));
        assert_eq!(ask(process, nr::__NR_open, &[path]), Err(Errno(ENOENT)));
        let new = u64::from(nr::O_CREAT | nr::O_EXCL | nr::O_WRONLY);
        let path = text(process, "/etc/../new/x");
        assert_eq!(
            ask(process, nr::__NR_open, &[path, new]),
            Err(Errno(ENOENT))
        );
        let path = text(process, "/new");
        assert_eq!(ask(process, nr::__NR_mkdir, &[path, 0o777]), Ok(0));
        let path = text(process, "/new/x");
        assert_eq!(ask(process, nr::__NR_open, &[path, new, 0o666]), Ok(3));
        assert_eq!(
            ask(process, nr::__NR_open, &[path, new]),
            Err(Errno(EEXIST))
        );
        assert_eq!(ask(process, nr::__NR_read, &[3, to, 1]), Err(Errno(EBADF)));
        let path = text(process, "/new");
        assert_eq!(ask(process, nr::__NR_rmdir, &[path]), Err(Errno(ENOTEMPTY)));
        let (from, to) = (text(process, "/new/x"), DATA + 0x400);
        process.write(to, b"/etc/z\0").unwrap();
        assert_eq!(ask(process, nr::__NR_rename, &[from, to]), Ok(0));
        assert_eq!(ask(process, nr::__NR_access, &[from]), Err(Errno(ENOENT)));
        assert_eq!(ask(process, nr::__NR_chmod, &[to, 0o600]), Ok(0));
        assert_eq!(ask(process, nr::__NR_rename, &[to, from]), Ok(0));
        let path = text(process, "/new/x/y");
        assert_eq!(ask(process, nr::__NR_mkdir, &[path]), Err(Errno(ENOTDIR)));
    });
}

#[test]
fn output_goes_to_the_console_and_input_is_at_its_end() {
    with(|process, _| {
        let place = text(process, "out");
        process.write_words(DATA, &[place, 3, place, 1]).unwrap();
        assert_eq!(ask(process, nr::__NR_writev, &[1, DATA, 2]), Ok(4));
        assert_eq!(
            ask(process, nr::__NR_write, &[2, 0x10, 5]),
            Err(Errno(EFAULT))
        );
        assert_eq!(process.machine.console, b"outo");
        assert_eq!(ask(process, nr::__NR_read, &[0, DATA, 9]), Ok(0));
        assert_eq!(
            process.call(u64::from(nr::__NR_exit_group), [0x1ff, 0, 0, 0, 0, 0]),
            Next::Exit(255)
        );
    });
}

#[test]
fn a_call_that_is_not_carried_is_told_once() {
    with(|process, _| {
        for _ in 0..3 {
            assert_eq!(ask(process, nr::__NR_ptrace, &[]), Err(Errno(ENOSYS)));
            assert_eq!(ask(process, 100_000, &[]), Err(Errno(ENOSYS)));
            for number in [nr::__NR_rseq, nr::__NR_membarrier, nr::__NR_sched_getattr] {
                assert_eq!(ask(process, number, &[]), Err(Errno(ENOSYS)));
            }
        }
        let notes = &process.machine.notes;
        assert_eq!(notes.lines().count(), 2, "{notes}");
        assert!(notes.contains("ptrace (101)"));
    });
}

#[test]
fn there_are_so_many_descriptors() {
    with(|process, _| {
        let duplicate = |process: &mut _, least: u64| {
            ask(process, nr::__NR_fcntl, &[1, nr::F_DUPFD.into(), least])
        };
        // A shell has one for itself above any that its user named.
        assert_eq!(duplicate(process, 256), Ok(256));
        assert_eq!(duplicate(process, 1024), Err(Errno(EINVAL)));
        let last = (3..1024)
            .filter(|&it| it != 256)
            .map(|_| ask(process, nr::__NR_dup, &[1]));
        assert_eq!(last.last(), Some(Ok(1023)));
        assert_eq!(ask(process, nr::__NR_dup, &[1]), Err(Errno(EMFILE)));
        let path = text(process, "/etc/text");
        assert_eq!(ask(process, nr::__NR_open, &[path, 0]), Err(Errno(EMFILE)));
        for file in 3..1024 {
            assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        }
        let opened = (0..1000).map(|_| ask(process, nr::__NR_open, &[path, 0]));
        // As many as it has numbers for: others may have more open.
        assert_eq!(opened.last(), Some(Ok(1002)));
    });
}

#[test]
fn whatever_a_program_asks_for_it_gets_an_answer() {
    let mut seed = 4711_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 24
    };
    for _ in 0..60 {
        with(|process, begin| {
            let mut places = vec![
                0,
                1,
                3,
                DATA,
                DATA + 0x7fc,
                begin.stack,
                CODE,
                u64::MAX,
                4096,
            ];
            for _ in 0..400 {
                let words = core::array::from_fn(|_| {
                    let place = places[usize::try_from(next()).unwrap() % places.len()];
                    place.wrapping_add(
                        [0, 0, 1, 8, 4096, next()][usize::try_from(next()).unwrap() % 6],
                    )
                });
                let answer = process.call(next() % 340, words);
                if let Next::Answer(Ok(place @ 0x1000..)) = answer {
                    places.push(place);
                }
                let _ = process.page_fault(words[0]);
            }
            // What is mapped is what the arrays say, once each.
            for (frame, (memory, address, _)) in process.machine.mapped.clone() {
                process.store.enter(memory);
                let word = process.store.get(address / PAGE);
                assert_eq!(word & 0xffff_ffff, u64::from(frame) + 1);
            }
        });
    }
}
