//! What the host's scheduler tells of a process.

use std::time::Duration;

use rcoe_linux_abi::Look;

/// Looks at a process; `None` if the kernel does not tell.
pub(crate) fn look(pid: u32) -> Option<Look> {
    let page = |name| std::fs::read(format!("/proc/{pid}/{name}")).ok();
    Look::parse(&page("schedstat")?, &page("stat")?)
}

/// CPU time of a process, where the kernel tells.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    look(pid).map(|look| Duration::from_nanos(look.used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_this_process() {
        assert!(cpu_time(std::process::id()).is_some_and(|used| !used.is_zero()));
    }
}
