//! The system calls. Everything but IPC and replication is an invocation, sent by
//! [`Syscall::Call`].
//!
//! Registers on x86-64, at entry: `rax` number, `rdi` capability pointer, `rsi` message info,
//! `r10`, `r8`, `r9`, `r12` the first message words. At exit: `rdi` badge, `rsi` message info, and
//! the first message words where they were. `rcx` and `r11` are lost.
//!
//! On AArch64, by `svc`: `x8` number, `x0` capability pointer and badge, `x1` message info, `x2` to
//! `x5` the first message words. No register is lost.
//!
//! Further words, and capabilities that a message brings or takes, are in the IPC buffer
//! ([`crate::message`]).

/// Number of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Syscall {
    /// Send and wait for the reply; or invoke a kernel object.
    Call = 1,
    /// Answer the caller, then receive.
    ReplyRecv = 2,
    /// Send, waiting for a receiver; or signal a notification.
    Send = 3,
    /// Send if somebody receives, else nothing.
    NbSend = 4,
    /// Wait for a message or a notification.
    Recv = 5,
    /// Take a message or a notification if there is one; the badge is 0 if there is none.
    NbRecv = 6,
    /// Answer the caller.
    Reply = 7,
    /// Let others of the same priority run.
    Yield = 8,
    /// Fold message words into the trace (DSN'19, `FT_Add_Trace`). The pointer is that of the right
    /// to do so.
    AddTrace = 9,
}

impl Syscall {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "Call",
            Self::ReplyRecv => "ReplyRecv",
            Self::Send => "Send",
            Self::NbSend => "NbSend",
            Self::Recv => "Recv",
            Self::NbRecv => "NbRecv",
            Self::Reply => "Reply",
            Self::Yield => "Yield",
            Self::AddTrace => "AddTrace",
        }
    }

    /// The system call with this number; any other is an unknown system call, which becomes a
    /// message to the thread's fault handler.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Call,
            2 => Self::ReplyRecv,
            3 => Self::Send,
            4 => Self::NbSend,
            5 => Self::Recv,
            6 => Self::NbRecv,
            7 => Self::Reply,
            8 => Self::Yield,
            9 => Self::AddTrace,
            _ => return None,
        })
    }
}
