//! Linux's constants as wide as the arguments of calls, each once.
//!
//! Contract: where Linux's headers have a constant, nobody writes its number by hand.

use linux_raw_sys::{errno, general, net, prctl};

macro_rules! wide {
    ($($from:ident: $($name:ident)*;)*) => {
        $($(pub(crate) const $name: u64 = $from::$name as u64;)*)*
    };
}

wide! {
    general: CLOCK_THREAD_CPUTIME_ID SIG_SETMASK;
    net: MSG_DONTWAIT MSG_NOSIGNAL MSG_PEEK MSG_TRUNC MSG_WAITALL SCM_CREDENTIALS SCM_RIGHTS
        SOL_SOCKET SO_ACCEPTCONN SO_PEERCRED SO_PEERPIDFD SO_RCVTIMEO SO_SNDTIMEO;
    prctl: PR_SET_CHILD_SUBREAPER PR_SET_NAME PR_SET_PDEATHSIG;
}

/// Numbers of the commonest calls.
pub(crate) mod common {
    use linux_raw_sys::general as nr;

    pub(crate) const READ: usize = nr::__NR_read as usize;
    pub(crate) const WRITE: usize = nr::__NR_write as usize;
    pub(crate) const SEND: usize = nr::__NR_sendto as usize;
    pub(crate) const RECEIVE: usize = nr::__NR_recvfrom as usize;
    pub(crate) const READ_AT: usize = nr::__NR_pread64 as usize;
    pub(crate) const WRITE_PARTS: usize = nr::__NR_writev as usize;
    pub(crate) const DESCRIBE: usize = nr::__NR_fstat as usize;
    pub(crate) const DESCRIBE_AT: usize = nr::__NR_newfstatat as usize;
    pub(crate) const OPEN_AT: usize = nr::__NR_openat as usize;
    pub(crate) const CLOSE: usize = nr::__NR_close as usize;
    pub(crate) const PARENT: usize = nr::__NR_getppid as usize;
    pub(crate) const EPOLL_WAIT: usize = nr::__NR_epoll_wait as usize;
}

/// A result of a call: an argument that it does not take.
pub(crate) const EINVAL: i64 = -(errno::EINVAL as i64);
/// A result of a call: a signal came before anything was done.
pub(crate) const EINTR: i64 = -(errno::EINTR as i64);
