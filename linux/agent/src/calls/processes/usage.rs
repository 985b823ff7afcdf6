//! What children have used: `getrusage` of them, and `times`.
//!
//! A child counts once it has been awaited, with its own awaited children. Each replica adds up the
//! supervisor's words, which are the same for all; only what the process itself has used is the
//! primary's to say.

use rcoe_linux_abi::Usage;

use crate::calls::Call;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sys;

/// Microseconds in a clock tick, the unit of `times`.
const TICK: u64 = 10_000;

/// A child has been awaited.
pub(super) fn add(kernel: &mut Kernel, used: &Usage) {
    let sum = kernel.processes.used.plus(used);
    kernel.processes.used = sum;
    sum.store(&kernel.report.children);
}

/// `getrusage`, if it is about the children.
pub(crate) fn of_children(kernel: &Kernel, call: &Call) -> Option<i64> {
    const RUSAGE_CHILDREN: i64 = -1;
    if call.arg(0).cast_signed() != RUSAGE_CHILDREN {
        return None;
    }
    let written = guest::write(call.arg(1), &kernel.processes.used.0);
    Some(written.map_or(Fault::RESULT, |()| 0))
}

/// Primary: `times`, where the host knows of no children.
pub(super) fn times(kernel: &Kernel, call: &Call) -> i64 {
    let mut times = [0_u64; 4];
    let result = sys::times(&mut times);
    let [program, system] = kernel.processes.used.times();
    times[2] = program / TICK;
    times[3] = system / TICK;
    if call.arg(0) != 0 && guest::write(call.arg(0), &times).is_err() {
        return Fault::RESULT;
    }
    result
}
