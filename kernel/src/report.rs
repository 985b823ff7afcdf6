//! The end of a replica: what it leaves in its diary, and whether the machine goes on.

use core::fmt::Display;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use rcoe_core::{Cause, Halt};

use crate::arch;
use crate::diary::Diary;

/// Is there nobody left who would miss this replica?
static ALONE: AtomicBool = AtomicBool::new(false);

/// Have all replicas met, so that the machine has started?
static STARTED: AtomicBool = AtomicBool::new(false);

/// Has this replica begun to tell that it is broken? What that takes may be broken, too: telling of
/// a fault that telling of one has caused would never end, and keep the host busy with the words.
static FAILING: AtomicBool = AtomicBool::new(false);

/// Whether this replica is the only one.
pub(crate) fn set_alone(alone: bool) {
    ALONE.store(alone, Ordering::Relaxed);
}

/// The end of a replica that found itself broken. The others find it missing; without others the
/// machine ends.
fn give_up() -> ! {
    arch::permit_off(ALONE.load(Ordering::Relaxed));
    if ALONE.load(Ordering::Relaxed) {
        arch::power_off();
    }
    arch::retire()
}

#[expect(clippy::cast_possible_truncation, reason = "cores are few")]
fn own_diary() -> Diary {
    Diary::of(arch::core() as u16)
}

/// A broken invariant: this replica is faulty. The others find it missing.
#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    if FAILING.swap(true, Ordering::Relaxed) {
        give_up();
    }
    let (file, line) = info
        .location()
        .map_or(("", 0), |place| (place.file(), place.line()));
    let why = info.message();
    own_diary().line(format_args!("panic {why} at {file}:{line}"));
    give_up()
}

/// An exception in the kernel itself: this replica is faulty. The others find it missing.
pub(crate) fn exception(vector: u64, code: u64, ip: u64, address: u64) -> ! {
    if FAILING.swap(true, Ordering::Relaxed) {
        give_up();
    }
    own_diary().line(format_args!(
        "exception vector={vector} code={code:#x} ip={ip:#x} address={address:#x}"
    ));
    give_up()
}

/// The protocol's last word for this replica: where others go on without it, it ends alone. Else
/// there is a permit to switch the machine off.
pub(crate) fn halt(halt: Halt, others_go_on: bool) -> ! {
    let diary = own_diary();
    let why = match halt {
        Halt::Convicted => {
            diary.line(format_args!("convicted"));
            arch::retire();
        }
        Halt::FailStop(Cause::Mismatch) => "mismatch",
        Halt::FailStop(Cause::Timeout) => "timeout",
        Halt::FailStop(Cause::Disagreement) => "disagreement",
        Halt::FailStop(Cause::NoMajority) => "no-majority",
        Halt::FailStop(Cause::Livelock) => "livelock",
        Halt::LostEffect => "lost-effect",
        Halt::NotAdmitted => {
            diary.line(format_args!("not admitted"));
            arch::retire();
        }
        Halt::Broken => "broken",
    };
    if others_go_on {
        diary.line(format_args!("withdraws {why}"));
        arch::retire();
    }
    diary.line(format_args!("fail-stop {why}"));
    arch::power_off()
}

/// The machine has started: it can be refused no more.
pub(crate) fn set_started() {
    STARTED.store(true, Ordering::Relaxed);
}

/// Has it?
pub(crate) fn has_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// The machine cannot start.
///
/// # Panics
/// If it has: a kernel that comes here then is astray, and ends alone.
pub(crate) fn refuse(why: &dyn Display) -> ! {
    let astray = has_started();
    arch::permit_off(!has_started());
    assert!(!astray, "a machine that has started is refused ({why})");
    own_diary().line(format_args!("refused {why}"));
    arch::power_off()
}
