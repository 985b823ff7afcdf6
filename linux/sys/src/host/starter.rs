//! The birth of the starter, the process from which all replicas are made.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::vec::Vec;

use super::birth::Inherited;
use super::bootstrap::Image;
use super::signals::{set_disposition, set_mask};

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

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
    /// Forks and executes the image: address-space randomisation off if the host lets us, every
    /// signal blocked, `SIGPIPE` and descriptors 0 to 2 as they were inherited, killed when this
    /// process dies. The environment is passed on, but for what is hidden. Returns the process
    /// id; the caller reaps it.
    ///
    /// # Errors
    ///
    /// Whatever fork or exec failed with, or `InvalidInput` for an argument with a zero byte.
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
        };
        let mut command = Command::new("rcoe-agent");
        // SAFETY: between fork and exec, `run` makes only system calls and allocates nothing.
        unsafe { command.pre_exec(move || Err(birth.run())) };
        // Child drops without waiting: the supervisor's loop reaps.
        let child = command.spawn()?;
        drop(args);
        Ok(child.id())
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

/// All the child needs between fork and exec, prepared so that it allocates nothing.
struct Birth {
    image: RawFd,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    keep: Vec<RawFd>,
    inherited: Inherited,
    parent: libc::pid_t,
}

// SAFETY: the pointers lead into strings that `spawn` keeps alive until the child has executed, or
// into the environment; nobody writes them.
unsafe impl Send for Birth {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Birth {}

impl Birth {
    /// Turns the forked child into the starter; returns only the error that prevented it.
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
