//! Process groups and sessions, which read as 0 where they are another PID namespace's: `rustix`
//! has no number for that.

/// Process group of a process, 0 being the caller; `None` if there is no such process.
#[must_use]
pub fn process_group(pid: u32) -> Option<u32> {
    // SAFETY: a number only.
    let group = unsafe { libc::getpgid(libc::pid_t::try_from(pid).ok()?) };
    u32::try_from(group).ok()
}

/// Session of a process, 0 being the caller; `None` if there is no such process.
#[must_use]
pub fn session(pid: u32) -> Option<u32> {
    // SAFETY: a number only.
    let session = unsafe { libc::getsid(libc::pid_t::try_from(pid).ok()?) };
    u32::try_from(session).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_a_session_are_told_of_processes_that_are_there() {
        let own = std::process::id();
        assert_eq!(process_group(0), process_group(own));
        assert_eq!(session(0), session(own));
        // In a container the first process may have those of another namespace.
        assert!(session(1).is_some() && process_group(1).is_some());
        assert_eq!((session(u32::MAX), process_group(1 << 30)), (None, None));
    }
}
