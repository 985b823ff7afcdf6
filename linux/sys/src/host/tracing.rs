//! What a tracer asks of the host that no safe library offers.

/// Leaves a traced process that job control has stopped as it is, so that it hears when it may go
/// on. Nothing if it is gone, or none of ours.
pub fn listen_traced(pid: i32) {
    let none = core::ptr::null_mut::<libc::c_void>();
    // SAFETY: a number; neither address nor data are used.
    unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid, none, none) };
}
