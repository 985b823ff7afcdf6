//! The processor. Everything that differs between processors, and all unsafe code, is below here.

mod x86_64;

pub(crate) use x86_64::*;
