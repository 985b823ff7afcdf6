//! One table of all x86-64 Linux system calls: what each does to the world, and which bytes go in
//! and come out.
//!
//! 1. `table.toml` is the only place where such knowledge is written. The build script checks it
//!    and makes it constants; `docs/SYSCALLS.md` is made from the same constants.
//! 2. The table fails closed: what it does not describe is not done. An unknown number has no
//!    [`entry`], an unknown request of `ioctl` and its kin leaves the call [`Class::Unsupported`].
//! 3. Arguments have their true width and sign ([`Arg::canonical`]): a process number of -1 arrives
//!    as `0xffff_ffff` in a 64-bit register, and replicas must neither differ over the upper half
//!    nor pass it on.
//! 4. This crate looks at numbers only. It never follows a pointer: the agent does.
//!
//! The agent's path is `entry(nr)?.resolve(&args)`: two array accesses for most calls, to a record
//! that was made when the table was compiled.
#![no_std]
#![forbid(unsafe_code)]

mod arg;
mod call;
mod facts;
mod file;
mod request;
mod table;
mod text;

pub use arg::{Arg, Valid};
pub use call::{Buffer, Class, OutputIf, Resolved, Sent, Syscall};
pub use facts::{
    Content, Descriptors, Facts, Ids, Moves, Offset, Opens, Outgoing, Position, Sigpipe, Size,
    Stream, Takeover, Terminal, Time, Unless, Waits,
};
pub use file::{File, Place, Treatment, file};
pub use request::{Request, Requests};
pub use table::{
    ALL, FACTS, FCNTL, FILES, IOCTL, LSEEK, NOTES, NUMBERS, PRCTL, Special, Table, entry, fcntl,
    ioctl, lseek, name, prctl, straight, straight_if,
};
