//! The birth of the starter, the process from which all replicas are made.

use core::ffi::{c_int, c_void};
use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::vec::Vec;
use std::{io, vec};

use super::birth::Inherited;
use super::bootstrap::Image;
use super::signals::{set_disposition, set_mask};

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Words of the stack that the child has until it executes; it calls a few functions deep.
const STACK_WORDS: usize = 4096;

/// How to start the starter.
#[derive(Debug)]
pub struct Starter<'a> {
    /// The executable.
    pub image: &'a Image,
    /// Its arguments, the zeroth included.
    pub args: Vec<OsString>,
    /// Descriptors it keeps, under the same numbers.
    pub keep: Vec<BorrowedFd<'a>>,
    /// What the program shall find as we found it.
    pub inherited: Inherited,
    /// Variables of the environment that it does not get.
    pub hidden: &'a [&'a str],
}

impl Starter<'_> {
    /// Makes a process that executes the image: address-space randomisation off if the host lets
    /// us, every signal blocked, `SIGPIPE` and descriptors 0 to 2 as they were inherited, killed
    /// when this process dies. The environment is passed on, but for what is hidden. Returns the
    /// process id; the caller reaps it. Blocks all signals of the calling thread, as the supervisor
    /// has done anyway.
    ///
    /// Until then the child has our memory, of which a fork would copy the page table, and each
    /// page that either of us writes next.
    ///
    /// # Errors
    ///
    /// Whatever clone or exec failed with, or `InvalidInput` for an argument with a zero byte.
    pub fn spawn(self) -> io::Result<u32> {
        let args = self
            .args
            .into_iter()
            .map(|arg| CString::new(arg.into_vec()));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let keep = self.keep.into_iter().chain(self.image.source());
        let mut birth = Birth {
            image: self.image.page().as_raw_fd(),
            argv: args
                .iter()
                .map(|arg| arg.as_ptr())
                .chain([core::ptr::null()])
                .collect(),
            envp: environment(self.hidden),
            keep: keep.map(|fd| fd.as_raw_fd()).collect(),
            inherited: self.inherited,
            // SAFETY: getpid cannot fail and touches no memory.
            parent: unsafe { libc::getpid() },
            failure: None,
        };
        let child = birth.begin();
        drop(args);
        child
    }
}

/// The process's own environment without these variables, ended by a null pointer.
fn environment(hidden: &[&str]) -> Vec<*const libc::c_char> {
    let is_hidden = |entry: &CStr| {
        let entry = entry.to_bytes();
        hidden.iter().any(|name| {
            entry
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="))
        })
    };
    let mut found = Vec::new();
    // SAFETY: environ is null or an array of strings that ends with a null pointer; nothing in this
    // program changes it.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            if !is_hidden(CStr::from_ptr(*at)) {
                found.push(*at);
            }
            at = at.add(1);
        }
    }
    found.push(core::ptr::null());
    found
}

/// All the child needs until it executes, prepared so that it allocates nothing.
struct Birth {
    image: RawFd,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    keep: Vec<RawFd>,
    inherited: Inherited,
    parent: libc::pid_t,
    /// What kept the child from executing.
    failure: Option<io::Error>,
}

impl Birth {
    /// Makes the child, and goes on when it has executed or ended.
    fn begin(&mut self) -> io::Result<u32> {
        set_mask(u64::MAX);
        let mut stack = vec![0_u128; STACK_WORDS / 2];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the stack is the child's alone, and both it and `self` stay until the child has
        // executed or ended, since this thread stands still until then. The child catches no signal
        // since it inherits a mask that blocks all, makes only system calls and allocates nothing;
        // of libc's it touches `errno`, which nobody reads across this call.
        let pid = unsafe {
            libc::clone(
                be_born,
                stack.as_mut_ptr_range().end.cast(),
                flags,
                (&raw mut *self).cast(),
            )
        };
        let Ok(child) = u32::try_from(pid) else {
            return Err(io::Error::last_os_error());
        };
        match self.failure.take() {
            None => Ok(child),
            Some(failure) => {
                let mut status = 0;
                // SAFETY: waits for our own child; the status is a valid place to write.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                Err(failure)
            }
        }
    }

    /// Turns the child into the starter; returns only the error that prevented it.
    fn run(&mut self) -> io::Error {
        set_mask(u64::MAX);
        set_disposition(libc::SIGPIPE, self.inherited.ignores(13));
        set_disposition(libc::SIGCHLD, self.inherited.ignores(17));
        // SAFETY: prctl and getppid change or read only our own process.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return io::Error::last_os_error();
            }
            if libc::getppid() != self.parent {
                return io::ErrorKind::ConnectionAborted.into();
            }
        }
        // Filters of containers refuse this. All replicas descend from one process, so that their
        // addresses are alike anyhow; they are others in the next run then.
        let _ = fix_addresses();
        for &fd in &self.keep {
            // SAFETY: clears close-on-exec of a descriptor of our own copy of the table.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0 {
                return io::Error::last_os_error();
            }
        }
        for fd in (0..3).filter(|fd| self.inherited.closed & (1 << fd) != 0) {
            // SAFETY: closes what the runtime had opened; nothing in this child uses it.
            unsafe { libc::close(fd) };
        }
        // SAFETY: argv and envp end with a null pointer and their strings are alive (see Send); the
        // empty path means the image itself.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                self.image,
                c"".as_ptr(),
                self.argv.as_ptr(),
                self.envp.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        io::Error::last_os_error()
    }
}

/// The child's life until it executes.
extern "C" fn be_born(birth: *mut c_void) -> c_int {
    // SAFETY: what `begin` has passed on, which nobody else touches meanwhile.
    let birth = unsafe { &mut *birth.cast::<Birth>() };
    birth.failure = Some(birth.run());
    // SAFETY: ends this process without what others have set up for its end.
    unsafe { libc::_exit(127) }
}

/// Has the process that is executed next get the same addresses each time, if the host lets it.
pub(super) fn fix_addresses() -> bool {
    // SAFETY: reads and changes what this process alone is run as.
    let persona = unsafe { libc::personality(0xffff_ffff) };
    let wanted = persona.cast_unsigned() | libc::ADDR_NO_RANDOMIZE.cast_unsigned();
    // SAFETY: as above.
    persona >= 0 && unsafe { libc::personality(libc::c_ulong::from(wanted)) } >= 0
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn status_of(pid: u32) -> i32 {
        let pid = i32::try_from(pid).expect("pid");
        let mut status = 0;
        // SAFETY: waits for our own child; the status is a valid place to write.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    #[test]
    fn image_runs_with_its_arguments() {
        let bytes = std::fs::read("/bin/sh").expect("a shell");
        let image = Image::of(c"shell", &bytes);
        let starter = Starter {
            image: &image,
            args: ["sh", "-c", "exit $1", "sh", "7"]
                .map(OsString::from)
                .to_vec(),
            keep: vec![],
            inherited: Inherited::get(),
            hidden: &[],
        };
        let status = status_of(starter.spawn().expect("spawned"));
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }

    #[test]
    fn broken_image_is_an_error() {
        let image = Image::of(c"nothing", b"not an executable");
        let starter = Starter {
            image: &image,
            args: vec![OsString::from("x")],
            keep: vec![],
            inherited: Inherited::get(),
            hidden: &[],
        };
        let error = starter.spawn().expect_err("must fail");
        assert_eq!(error.raw_os_error(), Some(libc::ENOEXEC));
    }
}
