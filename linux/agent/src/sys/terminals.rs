//! Terminals, as an open descriptor tells of them.

use linux_raw_sys::general as nr;
use linux_raw_sys::ioctl::TCGETS;
use rcoe_linux_sys::syscall3;

/// Asks a terminal for a number; the error is a negative errno.
pub(crate) fn number_of(fd: u64, request: u32) -> Result<u32, i64> {
    let mut number = 0_u32;
    let at = (&raw mut number) as u64;
    // SAFETY: requests that write one number, for which there is room.
    match unsafe { syscall3(u64::from(nr::__NR_ioctl), fd, request.into(), at) } {
        0 => Ok(number),
        error => Err(error),
    }
}

/// Is it one?
pub(crate) fn is_terminal(fd: u64) -> bool {
    local_modes(fd).is_some()
}

/// How the terminal treats what is typed and who writes (`c_lflag`); `None` if it is no terminal.
pub(crate) fn local_modes(fd: u64) -> Option<u32> {
    const LOCAL_FLAGS: usize = 3;
    let mut settings = [0_u32; 9];
    let at = settings.as_mut_ptr() as u64;
    // SAFETY: the kernel's structure is 36 bytes.
    let result = unsafe { syscall3(u64::from(nr::__NR_ioctl), fd, TCGETS.into(), at) };
    (result == 0).then_some(settings[LOCAL_FLAGS])
}
