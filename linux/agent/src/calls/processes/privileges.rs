//! What `execve` does to credentials: the kernel's rules, worked out here and then carried out on
//! the host's process, so that the host itself refuses what the new program may not do.
//!
//! [`Credentials::renewed`] is the rule (capabilities(7), "Transformation of capabilities during
//! execve()"; credentials(7)) for a file without capabilities of its own, or one that root
//! executes. It is computed from what the host says of this process, and [`apply`] brings the host
//! there with calls that need no privilege: ids are set to what they are in part already, and sets
//! are only made smaller. What the host says afterwards must not be more than the rule allows.
//!
//! A real exec can also *add* capabilities: those of the bounding set, to root that had put them
//! down. No call does that, so the program goes on without them, and the user is told.
//!
//! The host tells the bounding set one capability at a time; it is asked once and then known
//! ([`Bounding`]).
//!
//! Not covered: set-id programs, unless they are those of the user and group that the process acts
//! for already, and file capabilities for others than root, which are refused; a
//! locked SECBIT_KEEP_CAPS, which no call can clear, likewise.

mod bounding;

use core::sync::atomic::{Ordering, fence};

use linux_raw_sys::errno::{EINVAL, EPERM};
use rcoe_linux_abi::Note;

use crate::sys::numbers::PR_SET_PDEATHSIG;

pub(crate) use bounding::Bounding;

use crate::calls::Call;
use crate::kernel::{Kernel, kind};
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sys;
use crate::sys::credentials::{self, Capabilities, FileCapabilities, Ids};

/// Spreads the ids in the digest of groups.
const PRIME: u64 = 0x0100_0000_01b3;
/// Root has no capabilities by being root.
const NOROOT: u64 = 1;
/// Capabilities survive giving up root; execve clears this.
const KEEP_CAPS: u64 = 1 << 4;
/// That flag cannot be changed any more, but by execve.
const KEEP_CAPS_LOCKED: u64 = 1 << 5;

/// What stands for [`Credentials`] in the trace.
const WORDS: usize = 12;
/// What the kernel takes for a stack of the usual size, in bytes.
const USUAL_STACK: u64 = 8 << 20;

/// Who the program is and what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: Ids,
    pub(super) group: Ids,
    capabilities: Capabilities,
    ambient: u64,
    bounding: u64,
    secure_bits: u64,
    no_new_privileges: bool,
    /// Digest of the supplementary groups.
    groups: u64,
    /// Its effective group is among those it belongs to.
    in_group: bool,
}

/// What becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Renewed {
    pub(super) credentials: Credentials,
    /// What they were before: only an `execve` changes them until it is done.
    from: Credentials,
    /// The dynamic loader shall trust nothing that it is told (`AT_SECURE`).
    pub(super) secure: bool,
    /// Others of the same user may read the program's memory.
    pub(super) dumpable: bool,
    /// Capabilities that a real exec would have added.
    lacking: u64,
}

/// When kernels take an exec for a change of ids, though the file has no set-id bits: ambient
/// capabilities end with it, and the ids too if no new privileges are to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// If real and effective ids differ.
    Differing,
    /// If files are not accessed with the effective group (Linux 6.17).
    Entering,
}

impl Change {
    fn of_host() -> Self {
        match credentials::release() >= (6, 17) {
            true => Self::Entering,
            false => Self::Differing,
        }
    }
}

impl Credentials {
    /// This process's own, which has this bounding set.
    fn get(bounding: u64) -> Self {
        let group = credentials::group_ids();
        let capabilities = credentials::capabilities();
        Self {
            user: credentials::user_ids(),
            group,
            capabilities,
            ambient: credentials::ambient_set(&capabilities),
            bounding,
            secure_bits: credentials::secure_bits(),
            no_new_privileges: credentials::no_new_privileges(),
            groups: credentials::with_groups(|groups| {
                groups.iter().fold(groups.len() as u64, |all, it| {
                    all.wrapping_mul(PRIME) ^ u64::from(*it)
                })
            }),
            in_group: group.file == group.effective
                || credentials::with_groups(|groups| groups.contains(&group.effective)),
        }
    }

    /// As words, for the trace.
    fn words(&self) -> [u64; WORDS] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [
            pair(self.user.real, self.user.effective),
            pair(self.user.saved, self.user.file),
            pair(self.group.real, self.group.effective),
            pair(self.group.saved, self.group.file),
            self.capabilities.effective,
            self.capabilities.permitted,
            self.capabilities.inheritable,
            self.ambient,
            self.bounding,
            self.secure_bits,
            u64::from(self.no_new_privileges),
            self.groups,
        ]
    }

    /// Root is what it was before there were capabilities.
    fn root_counts(&self) -> bool {
        self.secure_bits & NOROOT == 0
    }

    /// Real and effective ids differ.
    fn differs(&self) -> bool {
        self.user.effective != self.user.real || self.group.effective != self.group.real
    }

    /// After the execution of a file that has no capabilities, or that root executes.
    fn renewed(&self, file_has_capabilities: bool, rule: Change) -> Renewed {
        let mut new = *self;
        let old = self.capabilities.permitted;
        let effective = self.root_counts() && self.user.effective == 0;
        let mut permitted = match self.root_counts() && (effective || self.user.real == 0) {
            true => self.bounding | self.capabilities.inheritable,
            false => 0,
        };
        let changes = match rule {
            Change::Differing => self.differs(),
            Change::Entering => !self.in_group,
        };
        if self.no_new_privileges && (changes || permitted & !old != 0) {
            new.user.effective = self.user.real;
            new.group.effective = self.group.real;
            permitted &= old;
        }
        for ids in [&mut new.user, &mut new.group] {
            (ids.saved, ids.file) = (ids.effective, ids.effective);
        }
        if file_has_capabilities || changes {
            new.ambient = 0;
        }
        permitted |= new.ambient;
        new.capabilities.permitted = permitted & old;
        new.capabilities.effective = match effective {
            true => new.capabilities.permitted,
            false => new.ambient,
        };
        new.secure_bits &= !KEEP_CAPS;
        let by_file = effective || permitted & !new.ambient != 0;
        let differs = match rule {
            Change::Differing => false,
            Change::Entering => new.differs(),
        };
        let lacking = permitted & !old;
        Renewed {
            from: *self,
            credentials: new,
            secure: changes || differs || (self.user.real != 0 && by_file),
            dumpable: !self.differs() && self.acts_as(&new) && lacking == 0,
            lacking,
        }
    }

    /// Are these, to whoever asks whom a process acts for, the same?
    fn acts_as(&self, other: &Self) -> bool {
        let who = |of: &Self| [of.user, of.group].map(|ids| [ids.effective, ids.file]);
        who(self) == who(other)
    }

    /// Nothing that `allowed` does not allow, and the rest as there.
    fn is_within(&self, allowed: &Self) -> bool {
        let mut reduced = *allowed;
        reduced.capabilities.permitted &= self.capabilities.permitted;
        reduced.capabilities.effective &= self.capabilities.effective;
        reduced.ambient &= self.ambient;
        // Of a group that is left and one that is entered only the latter is asked about.
        reduced.in_group = self.in_group;
        reduced == *self
    }
}

/// All replicas: this process's own.
fn own(kernel: &mut Kernel) -> Credentials {
    Credentials::get(kernel.bounding.get())
}

/// What the execution of an open file does to this process, before it is done.
pub(super) fn after_exec(kernel: &mut Kernel, file: i32) -> Renewed {
    let has_any = || credentials::file_capabilities(file) != FileCapabilities::None;
    let has_any = transfer::agree(kernel, || u64::from(has_any())) != 0;
    own(kernel).renewed(has_any, Change::of_host())
}

/// Why this process may execute nothing at all.
pub(super) fn refusal(kernel: &Kernel) -> Option<u32> {
    const BOTH: u64 = KEEP_CAPS | KEEP_CAPS_LOCKED;
    (credentials::secure_bits() & BOTH == BOTH).then(|| {
        kernel.note(Note::CapabilitiesLocked, 0);
        EPERM
    })
}

/// Would a file with this mode, of this user and group, change this process's effective ids? Bits
/// for those that it has already change nothing.
pub(super) fn changes_ids(mode: u32, [user, group]: [u32; 2]) -> bool {
    let to_user = mode & 0o4000 != 0;
    let to_group = mode & 0o2010 == 0o2010;
    to_user && user != credentials::user_ids().effective
        || to_group && group != credentials::group_ids().effective
}

/// Why a file with these capabilities is not executed. To root they make no difference, unless
/// they are more than it can have.
pub(super) fn refused_for(file: FileCapabilities) -> Option<u32> {
    if file == FileCapabilities::None {
        return None;
    }
    // The primary alone comes here, and what it knows is to stay what its siblings know.
    let own = Credentials::get(credentials::bounding_set());
    let root = own.root_counts() && own.user.real == 0 && own.user.effective == 0;
    let within = match file {
        FileCapabilities::Some {
            permitted,
            inheritable,
            effective,
        } => {
            let possible = own.bounding | (inheritable & own.capabilities.inheritable);
            !effective || permitted & !possible == 0
        }
        _ => false,
    };
    (!root || !within).then_some(EPERM)
}

/// Makes this process what the new program is to be; returns what the host then says, for the
/// trace.
///
/// # Errors
/// The host left it more than that.
pub(super) fn apply(kernel: &mut Kernel, renewed: &Renewed) -> Result<[u64; WORDS], ()> {
    let new = &renewed.credentials;
    let mut now = renewed.from;
    if now != *new {
        change(&now, new);
        now = own(kernel);
        // A change of user unties this process from its parent.
        sys::die_with_supervisor(kernel.control.supervisor.load(Ordering::Relaxed));
    }
    sys::set_dumpable(renewed.dumpable);
    if renewed.secure || !renewed.dumpable {
        want_at_death(kernel, 0);
    }
    if renewed.lacking != 0 || (now.ambient, now.capabilities) != (new.ambient, new.capabilities) {
        kernel.note(Note::FewerCapabilities, 0);
    }
    match now.is_within(new) {
        true => Ok(now.words()),
        false => Err(()),
    }
}

/// What else of this process an `execve` changes before it maps the new program: nothing of it is
/// locked or executable for being readable, and one that is not to trust its surroundings has a
/// stack of the usual size.
pub(super) fn prepare_host(kernel: &mut Kernel, renewed: &Renewed) {
    sys::unlock_all();
    sys::clear_personality(renewed.lacking != 0);
    if renewed.secure {
        kernel.limits.lower_stack(USUAL_STACK);
    }
}

/// All replicas: a call that changes who the process is. What the host then says joins the trace,
/// so that no replica can be another's.
pub(crate) fn with_credentials(
    kernel: &mut Kernel,
    call: &Call,
    perform: impl FnOnce(&mut Kernel, &Call) -> i64,
) -> i64 {
    let before = own(kernel);
    kernel.bounding.forget();
    let result = perform(kernel, call);
    let after = own(kernel);
    for word in after.words() {
        kernel.event(kind::of(call.nr, kind::CONTENT), word);
    }
    let gained = after.capabilities.permitted & !before.capabilities.permitted != 0;
    if gained || !after.acts_as(&before) {
        want_at_death(kernel, 0);
    }
    result
}

/// All replicas: the signal that the program wants when its parent ends.
pub(crate) fn death_signal(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(0) != PR_SET_PDEATHSIG {
        let own = kernel.processes.death_signal;
        return guest::write(call.arg(1), &own).map_or(Fault::RESULT, |()| 0);
    }
    match u32::try_from(call.arg(1)) {
        Ok(signal @ 0..=64) => want_at_death(kernel, signal),
        _ => return sys::error(EINVAL),
    }
    0
}

/// Keeps the signal, and tells the supervisor, which sends it.
fn want_at_death(kernel: &mut Kernel, signal: u32) {
    kernel.processes.death_signal = signal;
    kernel.report.death_signal.store(signal, Ordering::Relaxed);
    // A parent that still counts when the program asks next has an end that the supervisor is yet
    // to come to: it looks at the word after it has said that the parent is gone.
    fence(Ordering::SeqCst);
}

/// Takes the way there. What the host refuses is seen at its end.
fn change(old: &Credentials, new: &Credentials) {
    // Who parts with the last id of root would lose all; an exec takes what the rule says.
    let _ = credentials::keep_capabilities(new.capabilities.permitted != 0);
    let _ = credentials::set_effective_group(new.group.effective);
    let _ = credentials::set_effective_user(new.user.effective);
    let _ = credentials::keep_capabilities(false);
    if new.ambient == 0 && old.ambient != 0 {
        let _ = credentials::clear_ambient();
    }
    let left = credentials::capabilities().permitted & new.capabilities.permitted;
    let _ = credentials::set_capabilities(&Capabilities {
        effective: new.capabilities.effective & left,
        permitted: left,
        inheritable: new.capabilities.inheritable,
    });
    credentials::raise_ambient(new.ambient & left);
}

#[cfg(test)]
mod tests;
