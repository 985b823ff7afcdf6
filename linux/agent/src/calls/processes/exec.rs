//! `execve` and `execveat`: another program in the same process, by a userland exec.
//!
//! Everything that can fail is done first: the primary opens the files (program, `#!` interpreters,
//! dynamic loader), all replicas read them through the shared descriptors and gather the strings.
//! Then all vote, and from there on there is no way back: the old program's memory goes, the new
//! one is mapped where the kernel would put it, and the primary closes what is close-on-exec, the
//! files just opened among it.
//!
//! Not covered: programs that one may execute but not read, set-user-id programs and file
//! capabilities (EPERM and a note; see [`privileges`]), 32-bit programs (ENOEXEC and a note).

use core::sync::atomic::Ordering;

use linux_raw_sys::auxvec as at;
use linux_raw_sys::errno::{
    EACCES, EBADF, EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, EPERM, ETXTBSY,
};
use linux_raw_sys::general::{self as nr, MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE};
use rcoe_linux_abi::{AGENT_BASE, AGENT_END, Note, Report};
use rcoe_linux_syscalls::Special;

use crate::arch::entry::{self, Cpu, TrapFrame};
use crate::arch::known::File;
use crate::arch::tsc;
use crate::calls::memory;
use crate::calls::processes::privileges::{self, Renewed};
use crate::calls::processes::strings::{Stack, Strings};
use crate::calls::processes::twin;
use crate::calls::shared::{arena, files};
use crate::calls::{Call, clone, io, limits, paths, signals, targets};
use crate::convert;
use crate::kernel::{Kernel, kind};
use crate::lifetime::Program;
use crate::memory::guest::{self, Fault};
use crate::memory::loader::{self, Head, Image};
use crate::memory::space::space;
use crate::one_thread::OneThread;
use crate::protocol::transfer;
use crate::sched::turns;
use crate::sys::{self, Errno, TASK_END, credentials};
use crate::text::Text;

/// Longest path with its NUL.
const PATH_MAX: usize = 4096;
/// The stack that a new program begins with; the kernel lets it grow.
const FIRST_STACK: u64 = 1 << 20;
/// Scripts that may name scripts as their interpreters.
const SCRIPT_DEPTH: usize = 5;
/// Most auxiliary entries that are kept.
const AUX: usize = 32;

/// What the kernel told the first program, as far as it is true of every later one.
pub(crate) struct SavedAux {
    list: [(u64, u64); AUX],
    len: usize,
    exe: [u8; PATH_MAX],
    exe_len: usize,
    /// The file that is executed: device and inode.
    file: [u64; 2],
}

static SAVED: OneThread<SavedAux> = OneThread::new(SavedAux {
    list: [(0, 0); AUX],
    len: 0,
    exe: [0; PATH_MAX],
    exe_len: 0,
    file: [0; 2],
});

/// The path that the old program gave. Not on the stack, which all else of an exec lies above.
static GIVEN: OneThread<[u8; PATH_MAX]> = OneThread::new([0; PATH_MAX]);
/// Room for what scripts put before the arguments.
static PREFIX: OneThread<[u8; 2 * PATH_MAX]> = OneThread::new([0; 2 * PATH_MAX]);

/// Keeps the path, with its NUL, until the next exec.
fn keep_given(path: &[u8]) -> &'static [u8] {
    // SAFETY: a replica is one kernel thread, and what the last exec kept is used up.
    let place = unsafe { &mut (&mut *GIVEN.get())[..path.len()] };
    place.copy_from_slice(path);
    place
}

fn saved() -> &'static mut SavedAux {
    // SAFETY: a replica is one kernel thread, and no caller keeps the reference over another call.
    unsafe { &mut *SAVED.get() }
}

/// Bytes of the program's path with its terminating NUL, for `/proc/self/exe`.
pub(crate) fn exe_path() -> &'static [u8] {
    let saved = saved();
    &saved.exe[..saved.exe_len]
}

fn set_exe(path: &[u8]) {
    let saved = saved();
    saved.exe[..path.len()].copy_from_slice(path);
    saved.exe_len = path.len();
}

/// The same of an open file.
fn set_exe_of(fd: i32) {
    let saved = saved();
    saved.exe_len = sys::descriptor_target(fd, &mut saved.exe) + 1;
}

impl SavedAux {
    /// Puts down who the new program is.
    fn tell(&mut self, renewed: &Renewed) {
        let own = &renewed.credentials;
        for (key, value) in &mut self.list[..self.len] {
            *value = match u32::try_from(*key).expect("small keys") {
                at::AT_UID => own.user.real.into(),
                at::AT_EUID => own.user.effective.into(),
                at::AT_GID => own.group.real.into(),
                at::AT_EGID => own.group.effective.into(),
                at::AT_SECURE => renewed.secure.into(),
                _ => *value,
            };
        }
    }
}

/// Tells others which file this process executes: they do not write to it.
pub(crate) fn publish_file(report: &Report) {
    for (cell, word) in report.executes.iter().zip(saved().file) {
        cell.store(word, Ordering::Release);
    }
}

/// Keeps what the first program found, for its successors.
pub(crate) fn save_start(exe: &[u8], aux: impl Iterator<Item = (u64, u64)>) {
    set_exe(exe);
    let saved = saved();
    saved.file = sys::file_at(nr::AT_FDCWD, exe.as_ptr() as u64, 0).unwrap_or_default();
    for entry in aux {
        if let Some(slot) = saved.list.get_mut(saved.len) {
            *slot = entry;
            saved.len += 1;
        }
    }
}

/// What is to be opened next, and what was opened.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    path: [u8; PATH_MAX],
    len: usize,
    /// The path is relative to this.
    dir: i64,
    /// Its last part may be no symbolic link.
    nofollow: bool,
    /// It is that of the descriptor `dir`.
    is_descriptor: bool,
    /// Nothing is to be opened any more, but all closed that is close-on-exec.
    sweep: bool,
    /// These are to be closed again.
    drop: [i32; 2],
}

impl Plan {
    /// Nothing is to be opened. The path's bytes are left: they say nothing without its length.
    pub(super) fn clear(&mut self) {
        (self.len, self.dir, self.sweep, self.drop) = (0, 0, false, [-1; 2]);
        (self.nofollow, self.is_descriptor) = (false, false);
    }

    /// The path with its NUL.
    fn path(&self) -> &[u8] {
        &self.path[..self.len]
    }

    fn set_path(&mut self, path: &[u8]) {
        self.path[..path.len()].copy_from_slice(path);
        self.path[path.len()] = 0;
        self.len = path.len() + 1;
    }

    /// The next one is that of an interpreter, of which no flag of the call says anything.
    fn set_interpreter(&mut self, path: &[u8]) {
        self.set_path(path);
        self.dir = i64::from(nr::AT_FDCWD);
        (self.nofollow, self.is_descriptor) = (false, false);
    }

    /// Opens it, on the primary.
    fn open(&self) -> Result<i32, Errno> {
        let opened = sys::open_executable(self.dir, self.path(), !self.nofollow);
        opened.map_err(|error| {
            let closed = || !i32::try_from(self.dir).is_ok_and(sys::is_open);
            match self.is_descriptor && error.0 == ENOENT.cast_signed() && closed() {
                true => Errno(EBADF.cast_signed()),
                false => error,
            }
        })
    }
}

/// All replicas: replaces the program; returns only its errors.
pub(super) fn perform(kernel: &mut Kernel, call: &Call, frame: &mut TrapFrame) -> i64 {
    let prepared = prepare(kernel, call);
    let result = match prepared {
        Ok((files, strings)) => {
            commit(kernel, call, &files, &strings, frame);
            0
        }
        Err(result) => result,
    };
    Strings::drop_block();
    result
}

/// The files of the new program.
struct Files {
    /// The path that the old program gave, with its NUL.
    given: &'static [u8],
    program: i32,
    interpreter: Option<i32>,
}

impl Files {
    /// Program and interpreter as this replica sees them.
    fn versions(&self) -> [File; 2] {
        [self.program, self.interpreter.unwrap_or(-1)].map(File::of)
    }
}

/// Everything that can fail.
fn prepare(kernel: &mut Kernel, call: &Call) -> Result<(Files, Strings), i64> {
    let (argv, envp) = match call.what.special {
        Special::Execveat => (call.arg(2), call.arg(3)),
        _ => (call.arg(1), call.arg(2)),
    };
    first_path(kernel, call)?;
    if let Some(errno) = privileges::refusal(kernel) {
        return Err(sys::error(errno));
    }
    let given = keep_given(kernel.processes.plan.path());
    follow_own_link(kernel, call);
    let mut prefix = Prefix::new();
    let program = open_program(kernel, call, &mut prefix)?;
    let mut strings = Strings::new();
    let gathered = gather(&mut strings, &prefix, argv, envp, given);
    if let Err(result) = gathered {
        return Err(give_up(kernel, call, [program.0, -1], result));
    }
    let digest = strings.digest();
    kernel.event(kind::of(call.nr, kind::CONTENT), digest);
    let interpreter = match program.1.interpreter() {
        None => None,
        Some(path) => {
            kernel.processes.plan.set_interpreter(path);
            let fd = open(kernel, call)
                .map_err(|result| give_up(kernel, call, [program.0, -1], result))?;
            if let Err(Errno(errno)) = loader::inspect(fd) {
                let files = [program.0, fd];
                return Err(give_up(kernel, call, files, -i64::from(errno)));
            }
            Some(fd)
        }
    };
    let program = program.0;
    Ok((
        Files {
            given,
            program,
            interpreter,
        },
        strings,
    ))
}

fn gather(
    strings: &mut Strings,
    prefix: &Prefix,
    argv: u64,
    envp: u64,
    path: &[u8],
) -> Result<(), i64> {
    let mut skip = 0;
    for text in prefix.strings() {
        strings.push_argument(text)?;
        skip = 1;
    }
    strings.push_arguments(argv, skip)?;
    strings.push_environment(envp)?;
    strings.push(path)
}

/// Takes the path from the call.
fn first_path(kernel: &mut Kernel, call: &Call) -> Result<(), i64> {
    const EMPTY_PATH: u64 = nr::AT_EMPTY_PATH as u64;
    const NOFOLLOW: u64 = nr::AT_SYMLINK_NOFOLLOW as u64;
    let at = call.what.special == Special::Execveat;
    let (dir, pointer) = match at {
        true => (call.arg(0).cast_signed(), call.arg(1)),
        false => (i64::from(nr::AT_FDCWD), call.arg(0)),
    };
    let plan = &mut kernel.processes.plan;
    plan.clear();
    plan.dir = dir;
    let len = guest::string_len(pointer, PATH_MAX as u64).map_err(|Fault| Fault::RESULT)?;
    let len = convert::size(len);
    if len >= PATH_MAX {
        return Err(sys::error(ENAMETOOLONG));
    }
    guest::copy_in(&mut plan.path[..len], pointer).map_err(|Fault| Fault::RESULT)?;
    plan.path[len] = 0;
    plan.len = len + 1;
    let flags = if at { call.arg(4) } else { 0 };
    if len == 0 && flags & EMPTY_PATH == 0 {
        return Err(sys::error(ENOENT));
    }
    // The kernel looks at the lower half only.
    if flags & u64::from(u32::MAX) & !(EMPTY_PATH | NOFOLLOW) != 0 {
        return Err(sys::error(EINVAL));
    }
    match len {
        0 => by_descriptor(plan),
        _ => {
            plan.nofollow = flags & NOFOLLOW != 0;
            Ok(())
        }
    }
}

/// The path is empty: the program is what the descriptor leads to, and no folder is one.
fn by_descriptor(plan: &mut Plan) -> Result<(), i64> {
    if plan.dir == i64::from(nr::AT_FDCWD) {
        return Err(sys::error(EACCES));
    }
    plan.is_descriptor = true;
    plan.len = descriptor_path(&mut plan.path, plan.dir);
    Ok(())
}

/// The program's link to its own file leads to that file, not to the agent's.
fn follow_own_link(kernel: &mut Kernel, call: &Call) {
    let at = usize::from(call.what.special == Special::Execveat);
    if !kernel.processes.plan.nofollow && paths::is_own_exe(kernel.processes.pid, call.arg(at)) {
        let exe = exe_path();
        kernel.processes.plan.set_path(&exe[..exe.len() - 1]);
    }
}

/// `/dev/fd/N`; returns its length with the NUL.
fn descriptor_path(path: &mut [u8; PATH_MAX], fd: i64) -> usize {
    use core::fmt::Write as _;
    let mut text = Text::<32>::new();
    write!(text, "/dev/fd/{fd}\0").expect("short");
    let text = text.as_bytes();
    path[..text.len()].copy_from_slice(text);
    text.len()
}

/// Opens the program, following `#!` lines; returns its descriptor and what its head says.
fn open_program(kernel: &mut Kernel, call: &Call, prefix: &mut Prefix) -> Result<(i32, Head), i64> {
    for _ in 0..=SCRIPT_DEPTH {
        let fd = open(kernel, call)?;
        let mut line = [0; loader::LINE_BYTES];
        let read = sys::pread(fd, &mut line, 0).unwrap_or(0);
        let line = &line[..read];
        kernel.event(
            kind::of(call.nr, kind::CONTENT),
            xxhash_rust::xxh3::xxh3_64(line),
        );
        if !line.starts_with(b"#!") {
            return match loader::inspect(fd) {
                Ok(head) => Ok((fd, head)),
                Err(Errno(errno)) => {
                    if line.starts_with(b"\x7fELF") {
                        kernel.note(Note::NotLoadable, u64::from(errno.unsigned_abs()));
                    }
                    Err(give_up(kernel, call, [fd, -1], -i64::from(errno)))
                }
            };
        }
        let script = loader::parse_script_line(line);
        let known = script.filter(|_| prefix.has_room());
        give_up(kernel, call, [fd, -1], 0);
        let Some((interpreter, argument)) = known else {
            return Err(sys::error(ENOEXEC));
        };
        prefix.put_first(kernel.processes.plan.path());
        if let Some(argument) = argument {
            prefix.put_first_text(argument);
        }
        prefix.put_first_text(interpreter);
        kernel.processes.plan.set_interpreter(interpreter);
    }
    Err(sys::error(ELOOP))
}

/// All replicas: the descriptor of the plan's path.
fn open(kernel: &mut Kernel, call: &Call) -> Result<i32, i64> {
    let result = io::exchange(kernel, call, true);
    i32::try_from(result)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or(result)
}

/// All replicas: closes what was opened once all have read it, and passes on `result`.
fn give_up(kernel: &mut Kernel, call: &Call, files: [i32; 2], result: i64) -> i64 {
    kernel.rendezvous();
    kernel.processes.plan.drop = files;
    io::exchange(kernel, call, true);
    kernel.processes.plan.drop = [-1; 2];
    result
}

/// Primary: carries out the plan.
pub(super) fn open_next(kernel: &Kernel, _call: &Call) -> i64 {
    let plan = &kernel.processes.plan;
    if plan.drop[0] >= 0 {
        for fd in plan.drop.into_iter().filter(|fd| *fd >= 0) {
            sys::close(fd);
        }
        return 0;
    }
    if plan.sweep {
        sys::close_on_exec();
        return 0;
    }
    match plan.open() {
        Ok(fd) => match refused(fd) {
            None => i64::from(fd),
            Some(errno) => {
                sys::close(fd);
                if errno == EPERM {
                    kernel.note(Note::Privileged, 0);
                }
                sys::error(errno)
            }
        },
        Err(Errno(errno)) => -i64::from(errno),
    }
}

/// Why a file is not executed.
fn refused(fd: i32) -> Option<u32> {
    const TYPE: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    let (mode, owner) = sys::mode_and_owner(fd)?;
    if mode & TYPE != REGULAR || !sys::may_execute(fd) {
        Some(EACCES)
    } else if privileges::changes_ids(mode, owner) {
        Some(EPERM)
    } else {
        let refused = privileges::refused_for(credentials::file_capabilities(fd));
        refused.or_else(|| sys::is_open_for_writing(fd).then_some(ETXTBSY))
    }
}

/// No way back.
fn commit(
    kernel: &mut Kernel,
    call: &Call,
    files: &Files,
    strings: &Strings,
    frame: &mut TrapFrame,
) {
    clone::give_up_all_robust(kernel);
    files::flush_all(kernel);
    kernel.rendezvous();
    kernel.outgoing.forget_all();
    let [words @ .., program, interpreter] = transfer::agree_all(kernel, true, |_| {
        let [program, interpreter] = files.versions();
        [
            sys::random(),
            sys::random(),
            program.word(),
            interpreter.word(),
        ]
    });
    let versions = [program, interpreter].map(File::from_word);
    let renewed = privileges::after_exec(kernel, files.program);
    saved().file = sys::file_of(files.program).unwrap_or_default();
    publish_file(kernel.report);
    kernel.processes.programs += 1;
    let programs = kernel.processes.programs;
    kernel.report.replaced.store(programs, Ordering::Release);
    sys::futex_wake(kernel.report.replaced.as_ptr());
    kernel.processes.lent = 0;
    set_exe_of(files.program);
    twin::release(kernel);
    arena::forget_all(kernel);
    tear_down();
    privileges::prepare_host(kernel, &renewed);
    let Ok(image) = loader::load_open(files.program, files.interpreter, versions) else {
        kernel.end_by(nr::SIGKILL);
    };
    map_stack();
    space().add_new_stack();
    let saved = saved();
    saved.tell(&renewed);
    let stack = strings.build(space().stack_top(), &image, &saved.list[..saved.len], words);
    kernel.processes.plan.sweep = true;
    kernel.rendezvous();
    io::exchange(kernel, call, true);
    kernel.processes.plan.sweep = false;
    signals::signalfd::after_exec(kernel);
    let Ok(words) = privileges::apply(kernel, &renewed) else {
        kernel.end_by(nr::SIGKILL);
    };
    for word in words {
        kernel.event(kind::of(call.nr, kind::CONTENT), word);
    }
    renew(kernel, &image);
    name_process(files.given, &stack);
    for value in [image.entry, image.phdr, image.interpreter_base, stack.rsp] {
        kernel.event(kind::of(call.nr, kind::LAYOUT), value);
    }
    *frame = TrapFrame {
        cpu: Cpu::at(image.entry, stack.rsp),
    };
    entry::reset_extended();
    sys::set_thread_pointer(0);
    kernel.processes.replaced = true;
    turns::leave(kernel);
}

/// Unmaps the old program; only the agent's window stays.
fn tear_down() {
    let (low, high) = (AGENT_BASE as u64, AGENT_END as u64);
    // SAFETY: the old program never runs again, and nothing of the agent lies outside its window.
    let done = unsafe { sys::munmap(0, low).and_then(|()| sys::munmap(high, TASK_END - high)) };
    done.expect("the program's memory can be unmapped");
    space().clear();
}

/// The new program's stack, which grows as far as the limit of the moment allows.
fn map_stack() {
    let prot = nr::PROT_READ | nr::PROT_WRITE;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | nr::MAP_GROWSDOWN;
    let start = space().stack_top() - FIRST_STACK;
    // SAFETY: all of the old program is unmapped, and the new one lies lower.
    unsafe { sys::mmap(start, FIRST_STACK, prot, flags, -1, 0) }.expect("room for a stack");
}

/// What a new program finds changed.
fn renew(kernel: &mut Kernel, image: &Image) {
    let program = Program {
        pid: kernel.processes.pid,
        brk_start: image.brk_start,
    };
    kernel.in_program(&program);
    sys::unlock_all();
    targets::publish(kernel);
    limits::check_new_program(kernel);
    for code in image.code() {
        memory::adopt_code(kernel, code);
    }
    tsc::settle(kernel);
}

/// Makes the kernel's labels read as the program's.
fn name_process(path: &[u8], stack: &Stack) {
    let name = path[..path.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'/');
    sys::set_name(&path[name.map_or(0, |at| at + 1)..]);
    sys::set_string_ranges(stack.arguments, stack.environment, stack.path);
}

/// Arguments that `#!` lines put before the program's own, in order.
struct Prefix {
    bytes: &'static mut [u8; 2 * PATH_MAX],
    len: usize,
}

impl Prefix {
    fn new() -> Self {
        Self {
            // SAFETY: a replica is one kernel thread, and executes one program at a time.
            bytes: unsafe { &mut *PREFIX.get() },
            len: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.len + PATH_MAX + 2 * loader::LINE_BYTES <= self.bytes.len()
    }

    /// Puts a string, with its NUL, before the others. What was first is the script's name that
    /// the caller gave, which its path replaces.
    fn put_first(&mut self, text: &[u8]) {
        if self.len != 0 {
            self.drop_first();
        }
        self.insert(text);
    }

    /// Puts a string before the others, with a NUL behind it.
    fn put_first_text(&mut self, text: &[u8]) {
        self.insert(&[0]);
        self.insert(text);
    }

    fn insert(&mut self, text: &[u8]) {
        self.bytes.copy_within(..self.len, text.len());
        self.bytes[..text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn drop_first(&mut self) {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(0) + 1;
        self.bytes.copy_within(end..self.len, 0);
        self.len -= end;
    }

    /// The strings, each with its NUL.
    fn strings(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[..self.len].split_inclusive(|byte| *byte == 0)
    }
}
