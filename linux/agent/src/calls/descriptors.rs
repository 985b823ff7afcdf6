//! Arguments that are descriptors, and the buffers of calls that send and receive.

use rcoe_linux_syscalls::Arg;

use crate::calls::Call;
use crate::convert::{low32, size};
use crate::memory::guest::{self, Fault};
use crate::one_thread::OneThread;
use crate::protocol::arguments::IOV_MAX;
use crate::sys;

/// A descriptor argument as the kernel takes it.
pub(crate) fn descriptor(fd: u64) -> i32 {
    low32(fd).cast_signed()
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
        // SAFETY: buffers of the program, which the kernel checks.
        unsafe { sys::write_parts(fd, self.address(), self.parts) }
    }

    /// Sends it without waiting.
    pub(crate) fn send(&self, fd: u64, flags: u64) -> i64 {
        // SAFETY: buffers of the program, which the kernel checks.
        unsafe { sys::sockets::send_parts(fd, self.address(), self.parts, flags) }
    }
}
