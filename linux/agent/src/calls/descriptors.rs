//! What the primary asks the host about descriptors before it lets a call wait for them.

use core::mem::MaybeUninit;

use linux_raw_sys::general as nr;
use linux_raw_sys::general::{F_GETFL, O_NONBLOCK};

use rcoe_linux_syscalls::Arg;

use crate::calls::Call;
use crate::convert::{low32, size};
use crate::memory::guest::{self, Fault};
use crate::one_thread::OneThread;
use crate::protocol::arguments::IOV_MAX;

/// Types of files, as in `st_mode`.
pub(crate) const S_IFSOCK: u32 = 0o140_000;
pub(crate) const S_IFIFO: u32 = 0o010_000;

/// A timespec of no time at all.
pub(crate) const NOW: [u64; 2] = [0; 2];

/// A raw call of the agent's own.
///
/// # Safety
/// As for any raw system call: the arguments must be right for it.
pub(crate) unsafe fn raw(nr: u32, args: [u64; 6]) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { rcoe_linux_sys::syscall6(u64::from(nr), args) }
}

/// The kernel's `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollFd {
    pub(crate) fd: i32,
    pub(crate) events: u16,
    pub(crate) revents: u16,
}

/// A condition of `poll` as its 16 bits.
pub(crate) fn condition(bits: u32) -> u16 {
    u16::try_from(bits).expect("conditions have 16 bits")
}

/// A descriptor argument as the kernel takes it.
pub(crate) fn descriptor(fd: u64) -> i32 {
    low32(fd).cast_signed()
}

/// Would a call that waits for this condition go on at once?
pub(crate) fn is_ready(fd: u64, events: u32) -> bool {
    let mut poll = PollFd {
        fd: descriptor(fd),
        events: condition(events),
        revents: 0,
    };
    // SAFETY: one valid structure.
    let found = unsafe { raw(nr::__NR_poll, [(&raw mut poll) as u64, 1, 0, 0, 0, 0]) };
    found != 0
}

/// Waits until a descriptor has one of these conditions, for so many milliseconds at most.
pub(crate) fn wait_until(fd: u32, events: u32, milliseconds: u64) {
    let mut poll = PollFd {
        fd: fd.cast_signed(),
        events: condition(events),
        revents: 0,
    };
    let args = [(&raw mut poll) as u64, 1, milliseconds, 0, 0, 0];
    // SAFETY: one valid structure. Whatever came of it, the caller tries again.
    let _ = unsafe { raw(nr::__NR_poll, args) };
}

/// Ends a connection in both directions.
pub(crate) fn end_connection(fd: u32) {
    const BOTH: u64 = 2;
    // SAFETY: numbers only. One that has ended already is what is wanted.
    let _ = unsafe { raw(nr::__NR_shutdown, [fd.into(), BOTH, 0, 0, 0, 0]) };
}

/// `fcntl` with a number; what it returns, or 0.
pub(crate) fn fcntl(fd: u64, command: u32, value: u64) -> u64 {
    // SAFETY: commands that take a number only.
    let result = unsafe { raw(nr::__NR_fcntl, [fd, u64::from(command), value, 0, 0, 0]) };
    u64::try_from(result).unwrap_or(0)
}

/// Has the program made it non-blocking?
pub(crate) fn never_waits(fd: u64) -> bool {
    fcntl(fd, F_GETFL, 0) & u64::from(O_NONBLOCK) != 0
}

/// The type bits of an open file, or 0.
pub(crate) fn file_type(fd: u64) -> u32 {
    const TYPE: u32 = 0o170_000;
    let mut stat = MaybeUninit::<nr::stat>::uninit();
    // SAFETY: the structure is the kernel's, and valid for writing.
    let done = unsafe { raw(nr::__NR_fstat, [fd, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    if done != 0 {
        return 0;
    }
    // SAFETY: the kernel has filled it.
    unsafe { stat.assume_init() }.st_mode & TYPE
}

const SOL_SOCKET: u64 = 1;

fn socket_option(fd: u64, option: u64) -> Option<[u64; 2]> {
    let (mut value, mut len) = ([0_u64; 2], 16_u32);
    let args = [
        fd,
        SOL_SOCKET,
        option,
        value.as_mut_ptr() as u64,
        (&raw mut len) as u64,
        0,
    ];
    // SAFETY: the value has room for `len` bytes.
    let done = unsafe { raw(nr::__NR_getsockopt, args) };
    (done == 0).then_some(value)
}

/// Result of a connection that was begun without waiting.
pub(crate) fn socket_error(fd: u64) -> i64 {
    const SO_ERROR: u64 = 4;
    socket_option(fd, SO_ERROR).map_or(0, |[error, _]| -i64::from(low32(error)))
}

/// Does this socket take connections?
pub(crate) fn listens(fd: u64) -> bool {
    const SO_ACCEPTCONN: u64 = 30;
    socket_option(fd, SO_ACCEPTCONN).is_some_and(|[listens, _]| low32(listens) != 0)
}

/// How long calls on this descriptor wait at most, in nanoseconds; 0 for ever.
pub(crate) fn socket_timeout(fd: u64, sending: bool) -> u64 {
    const SO_RCVTIMEO: u64 = 20;
    const SO_SNDTIMEO: u64 = 21;
    let option = if sending { SO_SNDTIMEO } else { SO_RCVTIMEO };
    socket_option(fd, option).map_or(0, |[seconds, microseconds]| {
        let rest = microseconds.saturating_mul(1000);
        seconds.saturating_mul(1_000_000_000).saturating_add(rest)
    })
}

/// Room for the vector of one call.
#[unsafe(link_section = ".bss.own.1")]
static PARTS: OneThread<[[u64; 2]; size(IOV_MAX)]> = OneThread::new([[0; 2]; size(IOV_MAX)]);

/// What is left of the buffers of a call that sends or receives.
pub(crate) struct Vector {
    pub(crate) parts: u64,
    pub(crate) bytes: u64,
}

impl Vector {
    /// The buffers of `call` without the first `skip` bytes, at most `most` bytes of them.
    pub(crate) fn of(call: &Call, skip: u64, most: u64) -> Result<Self, Fault> {
        let mut vector = Self { parts: 0, bytes: 0 };
        let mut skip = skip;
        let mut add = |base: u64, len: u64| {
            let skipped = skip.min(len);
            skip -= skipped;
            vector.push(base + skipped, (len - skipped).min(most - vector.bytes));
        };
        let (list, count) = match call.what.args[1] {
            Arg::InBuf { .. } | Arg::OutBuf { .. } => {
                add(call.arg(1), call.arg(2));
                return Ok(vector);
            }
            Arg::IovIn { .. } | Arg::IovOut { .. } => (call.arg(1), call.arg(2)),
            Arg::MsghdrIn | Arg::MsghdrOut => {
                let [_, _, list, count] = guest::read::<[u64; 4]>(call.arg(1))?;
                (list, count)
            }
            _ => return Ok(vector),
        };
        for i in 0..count.min(IOV_MAX) {
            let [base, len] = guest::read::<[u64; 2]>(list + 16 * i)?;
            add(base, len);
        }
        Ok(vector)
    }

    fn push(&mut self, base: u64, len: u64) {
        if len == 0 {
            return;
        }
        // SAFETY: a replica is one kernel thread, and only one vector is in use at a time.
        let parts = unsafe { &mut *PARTS.get() };
        if let Some(part) = parts.get_mut(size(self.parts)) {
            *part = [base, len];
            self.parts += 1;
            self.bytes += len;
        }
    }

    /// The buffers.
    pub(crate) fn parts(&self) -> &[[u64; 2]] {
        // SAFETY: a replica is one kernel thread, and only one vector is in use at a time.
        let parts = unsafe { &*PARTS.get() };
        &parts[..size(self.parts)]
    }

    /// Where the kernel finds the buffers.
    pub(crate) fn address(&self) -> u64 {
        PARTS.get() as u64
    }

    /// How many buffers there are.
    pub(crate) fn count(&self) -> u32 {
        low32(self.parts)
    }

    /// Can all buffers be written, as far as their ends tell?
    pub(crate) fn is_writable(&self) -> bool {
        // SAFETY: a replica is one kernel thread, and only one vector is in use at a time.
        let parts = unsafe { &*PARTS.get() };
        let mut parts = parts[..size(self.parts)].iter();
        parts.all(|[base, len]| {
            !guest::is_agent(*base, *len) && guest::ends_are_writable(*base, *len)
        })
    }

    /// Fills the buffers with so many bytes from one place.
    ///
    /// # Errors
    /// A buffer that cannot be written.
    pub(crate) fn scatter(&self, mut from: u64, mut len: u64) -> Result<(), Fault> {
        // SAFETY: a replica is one kernel thread, and only one vector is in use at a time.
        let parts = unsafe { &*PARTS.get() };
        for [base, room] in &parts[..size(self.parts)] {
            let part = len.min(*room);
            if part > 0 && guest::is_agent(*base, part) {
                return Err(Fault);
            }
            guest::copy_across(*base, from, part)?;
            from += part;
            len -= part;
        }
        Ok(())
    }

    /// Writes it.
    pub(crate) fn write(&self, fd: u64) -> i64 {
        let args = [fd, PARTS.get() as u64, self.parts, 0, 0, 0];
        // SAFETY: buffers of the program, which the kernel checks.
        unsafe { raw(nr::__NR_writev, args) }
    }

    /// Sends it without waiting.
    pub(crate) fn send(&self, fd: u64, flags: u64) -> i64 {
        const MSG_DONTWAIT: u64 = 0x40;
        let message = [0, 0, PARTS.get() as u64, self.parts, 0, 0, 0];
        let args = [fd, message.as_ptr() as u64, flags | MSG_DONTWAIT, 0, 0, 0];
        // SAFETY: a valid message; its buffers are the program's, which the kernel checks.
        unsafe { raw(nr::__NR_sendmsg, args) }
    }
}
