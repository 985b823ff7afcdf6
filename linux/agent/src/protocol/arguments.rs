//! Folding a call's number, arguments, and what they point to into the trace.
//!
//! Of an output call a second copy is kept ([`Agreed`]): the vote is on what was folded, and the
//! primary makes the call somewhat later, from registers and memory that a flip may have hit since.

use core::sync::atomic::Ordering::Relaxed;

use rcoe_linux_syscalls::{Arg, Class, Resolved, Sent};

use crate::arch::rseq::{self, Words};
use crate::calls::Call;
use crate::kernel::{Kernel, count, kind};
use crate::memory::guest::{self, Fault};

/// Longest string the kernel takes as a path, with its NUL.
const PATH_MAX: u64 = 4096;
/// Most buffers in one vector.
pub(crate) const IOV_MAX: u64 = 1024;
/// Longest message of a System V queue that any kernel takes.
const MSG_MAX: u64 = i32::MAX as u64;
/// Largest socket address.
const SOCKADDR_MAX: u64 = 128;

/// Does an argument of the program's own call point into the agent's window? That is no memory of
/// the program's: the kernel would use it, and so would the agent, without a fault.
#[inline(never)]
pub(crate) fn name_agent(call: &Call) -> bool {
    any_names_agent(call, call.what)
}

/// The same, within the caller. Each argument has a test of its own, of which none is left where it
/// is known which are pointers.
#[inline(always)]
fn any_names_agent(call: &Call, what: &Resolved) -> bool {
    let mut pointers = (0..).zip(call.raw);
    pointers.any(|(at, word)| what.pointers >> at & 1 != 0 && guest::is_reserved(word))
}

/// The same, sooner if there is one pointer at most. `what`: of the call, which is known to who
/// compiles this if `KNOWN`.
#[inline(always)]
pub(crate) fn names_agent<const KNOWN: bool>(call: &Call, what: &Resolved) -> bool {
    match call.words().get(usize::from(what.pointer)) {
        Some(&word) => guest::is_reserved(word),
        None if KNOWN => any_names_agent(call, what),
        None => name_agent(call),
    }
}

/// A pointer within a structure of the program.
///
/// # Errors
/// It points into the agent's window.
pub(crate) fn nested(pointer: u64) -> Result<u64, Fault> {
    if guest::is_reserved(pointer) {
        Err(Fault)
    } else {
        Ok(pointer)
    }
}

/// What was folded of an output call.
pub(crate) struct Agreed {
    /// Its number and its arguments.
    pub(crate) words: Words,
    /// Digest of all that its pointers lead to.
    pub(crate) content: u64,
}

impl Agreed {
    pub(crate) const NOTHING: Self = Self {
        words: [0; 7],
        content: 0,
    };

    /// The call's number.
    pub(crate) const fn number(&self) -> u64 {
        self.words[0]
    }
}

/// Folds everything the call brings with it. From here on it is noticed if this replica loses its
/// CPU.
///
/// # Errors
/// A pointer that cannot be read; the kernel would return EFAULT.
#[inline(never)]
pub(crate) fn fold_apart(kernel: &mut Kernel, call: &Call) -> Result<(), Fault> {
    fold(kernel, call)
}

/// The same, within the caller.
///
/// # Errors
/// As [`fold_apart`].
#[inline(always)]
pub(crate) fn fold(kernel: &mut Kernel, call: &Call) -> Result<(), Fault> {
    if call.what.class == Class::Output && !kernel.alone {
        keep(kernel, call, call.what);
    }
    fold_kept::<false>(kernel, call, call.what)
}

/// Keeps the second copy of what is folded next, and has a loss of the CPU noticed.
#[inline(always)]
pub(crate) fn keep(kernel: &mut Kernel, call: &Call, what: &Resolved) {
    let (words, kept) = (call.words(), &mut kernel.agreed.words);
    if rseq::is_short(what.nargs) {
        // Word by word: a loop would read from memory what is in registers.
        const { assert!(rseq::SHORT == 4) };
        (kept[0], kept[1]) = (words[0], words[1]);
        (kept[2], kept[3]) = (words[2], words[3]);
    } else {
        *kept = *words;
    }
    rseq::watch();
}

/// As [`fold`], of a call that was kept if it is to be. `what`: of the call, which is known to who
/// compiles this if `KNOWN`.
///
/// # Errors
/// As [`fold_apart`].
#[inline(always)]
pub(crate) fn fold_kept<const KNOWN: bool>(
    kernel: &mut Kernel,
    call: &Call,
    what: &Resolved,
) -> Result<(), Fault> {
    let Ok(content) = contents::<KNOWN>(kernel, call, what) else {
        return Err(fold_faulty(kernel, call));
    };
    kernel.agreed.content = content;
    add_call(kernel, call, what);
    Ok(())
}

/// The same of a call whose pointers cannot be read.
#[cold]
#[inline(never)]
fn fold_faulty(kernel: &mut Kernel, call: &Call) -> Fault {
    kernel.agreed.content = 0;
    add_call(kernel, call, call.what);
    Fault
}

/// Adds the event of a call.
#[inline(always)]
fn add_call(kernel: &mut Kernel, call: &Call, what: &Resolved) {
    match what.nargs {
        1..=3 => add::<3, 5>(kernel, call, what),
        0 => add::<0, 2>(kernel, call, what),
        4 => add::<4, 6>(kernel, call, what),
        _ => add::<6, 8>(kernel, call, what),
    }
}

/// Adds the event of a call with at most `N` arguments, beside which it has two values: a known
/// number takes a third of the instructions.
#[inline(always)]
fn add<const N: usize, const ALL: usize>(kernel: &mut Kernel, call: &Call, what: &Resolved) {
    let mut values = [0; ALL];
    values[(kind::BEFORE - kind::CALL) as usize] = kernel.outcome.take();
    values[(kind::CONTENT - kind::CALL) as usize] = kernel.agreed.content;
    let arguments = values.iter_mut().skip((kind::ARG - kind::CALL) as usize);
    for (i, value) in (0..N).zip(arguments) {
        *value = what.cut(i, &call.raw);
    }
    kernel
        .replica
        .add_wide_event(kind::of_known(call.nr, kind::CALL), &values);
}

/// A digest of all that the call reads by its arguments.
#[inline(always)]
fn contents<const KNOWN: bool>(
    kernel: &Kernel,
    call: &Call,
    what: &Resolved,
) -> Result<u64, Fault> {
    let Some(Sent { at, len }) = what.sent else {
        return if what.reads == 0 {
            Ok(0)
        } else if KNOWN {
            known_contents(kernel, call, what)
        } else {
            all_contents(kernel, call)
        };
    };
    let Some(&address) = call.raw.get(usize::from(at)) else {
        return all_contents(kernel, call);
    };
    let bytes = what.canonical(usize::from(len), &call.raw);
    if address == 0 {
        return Ok(0);
    }
    counted(kernel, address, bytes)
}

#[inline(never)]
fn all_contents(kernel: &Kernel, call: &Call) -> Result<u64, Fault> {
    let (mut all, mut left) = (0, call.what.reads);
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        // A pointer fills its register.
        let value = call.raw[i];
        if value != 0 {
            all = mix(all, content(kernel, call, call.what.args[i], value)?);
        }
    }
    Ok(all)
}

/// The same of a call that is known to who compiles this: what is not among its arguments is left
/// out, and only bytes are looked at here.
#[inline(always)]
fn known_contents(kernel: &Kernel, call: &Call, what: &Resolved) -> Result<u64, Fault> {
    let with = |all, i| known_content(kernel, call, what, all, i);
    // Not in a loop, in which the index would not be known.
    with(with(with(with(with(with(0, 0)?, 1)?, 2)?, 3)?, 4)?, 5)
}

/// With what argument `i` leads to.
#[inline(always)]
fn known_content(
    kernel: &Kernel,
    call: &Call,
    what: &Resolved,
    all: u64,
    i: usize,
) -> Result<u64, Fault> {
    let value = call.raw[i];
    if what.reads >> i & 1 == 0 || value == 0 {
        return Ok(all);
    }
    let digest = match what.args[i] {
        Arg::InBuf { len_arg } => {
            counted(kernel, value, what.canonical(len_arg.into(), &call.raw))?
        }
        Arg::Path => path(kernel, value)?,
        other => rarer_content(kernel, call, other, value)?,
    };
    Ok(mix(all, digest))
}

#[inline(never)]
fn rarer_content(kernel: &Kernel, call: &Call, arg: Arg, address: u64) -> Result<u64, Fault> {
    content(kernel, call, arg, address)
}

/// The digest that [`fold`] left in [`Agreed::content`], taken anew.
///
/// # Errors
/// A pointer that cannot be read.
pub(crate) fn digest(kernel: &Kernel, call: &Call) -> Result<u64, Fault> {
    let counted = kernel.report.bytes_voted.load(Relaxed);
    let all = contents::<false>(kernel, call, call.what)?;
    kernel.report.bytes_voted.store(counted, Relaxed);
    Ok(all)
}

/// Digest of bytes of the program, which count as voted.
#[inline(always)]
fn counted(kernel: &Kernel, address: u64, bytes: u64) -> Result<u64, Fault> {
    count(&kernel.report.bytes_voted, bytes);
    guest::digest(address, bytes)
}

/// Digest of what an argument points to.
fn content(kernel: &Kernel, call: &Call, arg: Arg, address: u64) -> Result<u64, Fault> {
    let len = |index: u8| call.arg(usize::from(index));
    let bytes = match arg {
        Arg::InBuf { len_arg } => len(len_arg),
        Arg::Path => return path(kernel, address),
        // A length that is out of bounds the kernel refuses before it reads.
        Arg::InMsg { len_arg } if len(len_arg) > MSG_MAX => 0,
        Arg::InMsg { len_arg } => 8 + len(len_arg),
        Arg::SockaddrIn { len_arg } => len(len_arg).min(SOCKADDR_MAX),
        Arg::InStruct { size } | Arg::InOutStruct { size } => u64::from(size),
        Arg::InArray { count_arg, elem } | Arg::InOutArray { count_arg, elem } => {
            len(count_arg).checked_mul(u64::from(elem)).ok_or(Fault)?
        }
        Arg::SockLenPtr => 4,
        Arg::FdSet { nfds_arg } => Arg::fd_set_bytes(len(nfds_arg)),
        Arg::IovIn { count_arg } => return vector(kernel, address, len(count_arg)),
        Arg::IovOut { count_arg } if len(count_arg) > IOV_MAX => 0,
        Arg::IovOut { count_arg } => len(count_arg) * 16,
        Arg::MsghdrIn => return message(kernel, address),
        Arg::MsghdrOut => 56,
        Arg::MmsghdrIn { count_arg } => return messages(kernel, address, len(count_arg)),
        Arg::MmsghdrOut { count_arg } => len(count_arg).min(IOV_MAX) * 64,
        _ => return Ok(0),
    };
    counted(kernel, address, bytes)
}

/// Digest of a path.
#[inline(never)]
fn path(kernel: &Kernel, address: u64) -> Result<u64, Fault> {
    counted(kernel, address, guest::string_len(address, PATH_MAX)?)
}

/// Mixes digests of parts, in order.
fn mix(state: u64, digest: u64) -> u64 {
    (state.rotate_left(23) ^ digest).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Does the kernel refuse a vector before it looks at what its parts lead to? There are too many,
/// or one has a length that is out of bounds.
///
/// # Errors
/// The vector itself cannot be read.
pub(crate) fn is_refused(address: u64, parts: u64) -> Result<bool, Fault> {
    if parts > IOV_MAX {
        return Ok(true);
    }
    let mut refused = false;
    for i in 0..parts {
        let [_, len] = guest::read::<[u64; 2]>(address + 16 * i)?;
        refused |= len.cast_signed() < 0;
    }
    Ok(refused)
}

fn vector(kernel: &Kernel, address: u64, parts: u64) -> Result<u64, Fault> {
    if is_refused(address, parts)? {
        return Ok(mix(parts, 0));
    }
    let mut state = mix(parts, guest::digest(address, parts * 16)?);
    for i in 0..parts {
        let [base, len] = guest::read::<[u64; 2]>(address + 16 * i)?;
        count(&kernel.report.bytes_voted, len);
        state = mix(state, guest::digest(nested(base)?, len)?);
    }
    Ok(state)
}

/// `struct msghdr`: name, namelen, iov, iovlen, control, controllen, flags.
fn message(kernel: &Kernel, address: u64) -> Result<u64, Fault> {
    let [name, name_len, iov, iov_len, control, control_len, flags] =
        guest::read::<[u64; 7]>(address)?;
    let mut state = mix(name, name_len & 0xffff_ffff);
    state = mix(state, flags & 0xffff_ffff);
    if name != 0 {
        state = mix(
            state,
            guest::digest(nested(name)?, (name_len & 0xffff_ffff).min(SOCKADDR_MAX))?,
        );
    }
    if control != 0 {
        state = mix(
            state,
            guest::digest(nested(control)?, control_len.min(1 << 20))?,
        );
    }
    Ok(mix(state, vector(kernel, nested(iov)?, iov_len)?))
}

fn messages(kernel: &Kernel, address: u64, count: u64) -> Result<u64, Fault> {
    let mut state = count;
    for i in 0..count.min(IOV_MAX) {
        state = mix(state, message(kernel, address + 64 * i)?);
    }
    Ok(state)
}
