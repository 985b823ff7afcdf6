//! Re-integration: a replica is copied, and the copy becomes a replica, while the program goes on.
//!
//! The supervisor orders the steps, the primary publishes each order with its next record, and all
//! replicas carry it out at the end of the call or the look at the outside with which it came:
//!
//! * *Copy.* All meet. The donor clones itself, as the starter does; the copy takes its own number,
//!   region and traps, and follows the stream as a newcomer without a vote
//!   ([`rcoe_core::Replica::become_newcomer`]). Threads, signals, children and whatever else the
//!   program has are in the memory that was copied, or in the table of descriptors that all share.
//! * *Comparison.* At the same point every other member, and the newcomer before it goes on, clones
//!   a *twin*: a process that never runs. The supervisor compares the twins at its leisure, so a
//!   flip that lies unused in the donor is not spread. Of the agent's own memory only what belongs
//!   to one replica alone is left out: see [`own`].
//! * *Admit.* All vote, and the newcomer is a member.
//!
//! A group that shares memory is copied, with all others that share, at its first turn after one
//! that the supervisor has claimed: while that turn lasts the slices are at rest, the supervisor
//! makes the lost one anew, and the newcomers map that.
//!
//! Contract: nothing here is decided by one replica. Nobody waits for the newcomer, but where each
//! replica does something with an open file by itself ([`newcomer`]), and a primary for a while
//! where it is a whole ring behind ([`crate::protocol::courtesy`]).
//!
//! Not covered: the upper halves of vector registers are copied without having been compared.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use rcoe_core::ReplicaId;
use rcoe_linux_abi::{Control, NOT_COPYABLE, Order, Phase, Report, SerialOrder};

use crate::arch::{faults, mem_functions};
use crate::calls::processes::release_twin;
use crate::kernel::{Kernel, kind};
use crate::memory::{deferred, own, regions};
use crate::protocol::requests;
use crate::recover::scrub;
use crate::sched::turns;
use crate::{boot, sys};

pub(crate) mod newcomer;

/// Orders of the supervisor. The same in all replicas.
pub(crate) struct Orders {
    /// The last one published.
    taken: u64,
    /// Not carried out yet, or 0.
    pending: u64,
    /// Number of the re-integration for which the last copy was made.
    copied: u32,
    /// How often a newcomer was made.
    copies: u64,
}

impl Orders {
    pub(crate) const NONE: Self = Self {
        taken: 0,
        pending: 0,
        copied: 0,
        copies: 0,
    };

    /// Number of the re-integration for which the last copy was made.
    pub(crate) const fn copied(&self) -> u32 {
        self.copied
    }

    /// How often a newcomer was made.
    pub(crate) const fn copies(&self) -> u64 {
        self.copies
    }

    /// Is one to be carried out?
    #[inline]
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending != 0
    }

    /// Primary: the order to publish with a record, or 0. One that waits for a turn is left for
    /// [`next_at_turn`].
    #[inline]
    pub(crate) fn next(&self, control: &Control) -> u64 {
        let order = control.order.load(Ordering::Acquire);
        if order == self.taken || waits_for_turn(order) {
            0
        } else {
            order
        }
    }

    /// Primary: is there an order that was not published, whatever it waits for?
    #[inline]
    pub(crate) fn is_anything_new(&self, control: &Control) -> bool {
        control.order.load(Ordering::Acquire) != self.taken
    }

    /// All replicas, with a record.
    #[inline]
    pub(crate) const fn take(&mut self, order: u64) {
        if order != 0 {
            self.taken = order;
            self.pending = order;
        }
    }
}

fn waits_for_turn(order: u64) -> bool {
    let order = SerialOrder::unpack(order).map(|it| it.order);
    matches!(order, Some(Order::CopySharer { .. }))
}

/// Primary: is there an order to publish with a record?
pub(crate) fn is_due(kernel: &Kernel) -> bool {
    kernel.orders.next(kernel.control) != 0
}

/// Primary, before a turn: is there an order to publish with a record or with the turn?
pub(crate) fn is_due_at_turn(kernel: &Kernel) -> bool {
    let order = kernel.control.order.load(Ordering::Acquire);
    order != kernel.orders.taken && (!waits_for_turn(order) || turns::rest(kernel).is_some())
}

/// Primary, having claimed a turn: the order to publish with it, or 0.
pub(crate) fn next_at_turn(kernel: &Kernel, turn: u64) -> u64 {
    let order = kernel.control.order.load(Ordering::Acquire);
    let comes = || turns::rest(kernel).is_some_and(|rest| rest < turn);
    if order == kernel.orders.taken || waits_for_turn(order) && !comes() {
        0
    } else {
        order
    }
}

/// All replicas, before a turn, whose number has come with a record: carries out what waits for
/// that. Returns when it began if it did.
pub(crate) fn before_turn(kernel: &mut Kernel) -> Option<u64> {
    waits_for_turn(kernel.orders.pending).then(|| {
        let began = sys::monotonic();
        carry_out_now(kernel);
        began
    })
}

/// Newcomer, while it waits for a turn: does the supervisor still want it?
pub(crate) fn is_wanted(kernel: &Kernel) -> bool {
    let order = SerialOrder::unpack(kernel.control.order.load(Ordering::Acquire));
    order.is_some_and(|it| it.serial == kernel.orders.copied && it.order != Order::Forget)
}

/// All replicas, where nothing else is under way: carries out what has come with a record.
#[inline]
pub(crate) fn carry_out(kernel: &mut Kernel) {
    if kernel.orders.pending != 0 {
        carry_out_now(kernel);
    }
}

#[cold]
#[inline(never)]
fn carry_out_now(kernel: &mut Kernel) {
    let word = core::mem::take(&mut kernel.orders.pending);
    let Some(SerialOrder { serial, order }) = SerialOrder::unpack(word) else {
        return;
    };
    let began = sys::monotonic();
    kernel.event(kind::of(0, kind::ORDER), word);
    match order {
        Order::Copy {
            newcomer, donor, ..
        } => {
            kernel.orders.copied = serial;
            kernel.report.pause_ns.store(0, Ordering::Relaxed);
            copy(kernel, serial, newcomer, donor, false);
        }
        Order::CopySharer {
            newcomer, donor, ..
        } => {
            kernel.orders.copied = serial;
            kernel.report.pause_ns.store(0, Ordering::Relaxed);
            copy(kernel, serial, newcomer, donor, true);
            // The pause lasts until the turn begins.
            return kernel.notify();
        }
        Order::Digest { page, count } => return scrub::digest(kernel, word, page, count),
        Order::Scrub { page, count, right } => {
            let right = right.map(ReplicaId::new);
            return scrub::scrub(kernel, word, (page, count), right);
        }
        Order::Pause => return crate::protocol::scene::pause(),
        _ if kernel.orders.copied != serial => return,
        Order::Admit => admit(kernel),
        Order::Forget => forget(kernel),
    }
    let pause = sys::monotonic().saturating_sub(began);
    crate::kernel::count(&kernel.report.pause_ns, pause);
    kernel.notify();
}

fn copy(kernel: &mut Kernel, serial: u32, newcomer: u8, donor: u8, sharer: bool) {
    kernel.rendezvous();
    let (newcomer, donor) = (ReplicaId::new(newcomer & 7), ReplicaId::new(donor & 7));
    let members = kernel.replica.members();
    if members.contains(newcomer) || !members.contains(donor) {
        return;
    }
    let fits = kernel.turns.is_member() == sharer;
    if !fits || !kernel.withheld.is_known() {
        let refused = u64::from(serial) << 32 | u64::from(NOT_COPYABLE);
        kernel.report.copy.store(refused, Ordering::Release);
        return;
    }
    if deferred::is_active() {
        deferred::settle_all();
        release_twin(kernel);
    }
    kernel.signals.forget_told();
    kernel.timers.forget_armed();
    tell_own_range(kernel);
    kernel.replica.expect_newcomer(newcomer);
    kernel.replica.env_mut().expect_newcomer(serial);
    kernel.orders.copies += 1;
    let donates = kernel.replica.id() == donor;
    kernel.withheld.lift();
    // As of the clone: the original goes on at once, and its copy may begin much later.
    let told = Told::by(kernel.report);
    let attributes = kernel.scheduling.before_copy();
    let made = sys::clone_replica();
    if made != Ok(0) {
        kernel.withheld.restore();
    }
    let made = match made {
        Ok(0) if donates => {
            if let Some(attributes) = attributes {
                attributes.take();
            }
            return become_newcomer(kernel, serial, newcomer, &told);
        }
        Ok(0) => hibernate(kernel.control),
        Ok(pid) => pid,
        // No room for another process: the supervisor is told so.
        Err(_) => 0,
    };
    let made = u64::from(serial) << 32 | made;
    kernel.report.copy.store(made, Ordering::Release);
}

/// A twin: lies still until the supervisor has read its memory and kills it.
fn hibernate(control: &Control) -> ! {
    sys::set_signal_mask(u64::MAX);
    let supervisor = control.supervisor.load(Ordering::Relaxed);
    sys::die_with_supervisor(supervisor);
    sys::open_memory(supervisor);
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        requests::wait(control, bell);
    }
}

/// The copy of the donor: makes its own twin first, and is another replica from then on.
fn become_newcomer(kernel: &mut Kernel, serial: u32, id: ReplicaId, told: &Told) {
    kernel.withheld.lift();
    let twin = match sys::clone_twin() {
        Ok(0) => hibernate(kernel.control),
        made => made.unwrap_or(0),
    };
    let (group, index) = (regions::own_group(), id.index());
    regions::set_own(group, index);
    regions::protect(group, index);
    regions::board(group, index).clear();
    let who = regions::who(group, id, kernel.replica.members(), kernel.processes.pid);
    inherit_report(told, who.report);
    kernel.in_copy(&who);
    boot::become_replica(group, index);
    turns::become_copy(kernel);
    kernel.withheld.restore();
    faults::arm();
    crate::protocol::meeting::arm(kernel);
    let twin = u64::from(serial) << 32 | twin;
    kernel.report.twin.store(twin, Ordering::Release);
    kernel
        .report
        .phase
        .store(Phase::Running as u32, Ordering::Release);
}

/// What a replica tells of itself, as it stood at some moment.
struct Told(MaybeUninit<Report>);

impl Told {
    fn by(report: &Report) -> Self {
        let mut told = Self(MaybeUninit::uninit());
        let (from, to) = ((&raw const *report).cast(), told.0.as_mut_ptr().cast());
        // SAFETY: a mapped report, and room for one.
        unsafe { mem_functions::copy_forward(to, from, size_of::<Report>()) };
        told
    }
}

/// The newcomer has done what its original had done when it was copied, children among it. Not
/// what that one has done since: the supervisor would not keep for it what it has yet to read.
fn inherit_report(told: &Told, own: &Report) {
    let (from, to) = (told.0.as_ptr().cast(), (&raw const *own).cast_mut());
    let rings = own.journal.ring.made.load(Ordering::Relaxed);
    // SAFETY: the one is a report, and the other is mapped and writable for this replica alone; its
    // fields are atomic, so that it may change behind a shared reference.
    unsafe { mem_functions::copy_forward(to.cast(), from, size_of::<Report>()) };
    own.pid.store(0, Ordering::Relaxed);
    own.copy.store(0, Ordering::Relaxed);
    own.twin.store(0, Ordering::Relaxed);
    own.step.store(0, Ordering::Relaxed);
    own.meeting.store(0, Ordering::Relaxed);
    for letter in [&own.wish, &own.plan, &own.background, &own.expired] {
        letter.clear();
    }
    own.journal.ring.count.store(0, Ordering::Relaxed);
    own.journal.ring.made.store(rings, Ordering::Relaxed);
    own.phase.store(Phase::Loading as u32, Ordering::Relaxed);
}

fn admit(kernel: &mut Kernel) {
    if let Err(halt) = kernel.replica.admit() {
        kernel.park(halt);
    }
}

fn forget(kernel: &mut Kernel) {
    newcomer::give_up(kernel);
    kernel.replica.forget_newcomer();
}

/// Publishes where the supervisor must not compare.
fn tell_own_range(kernel: &Kernel) {
    let (start, end) = own::range(kernel);
    kernel.report.own[0].store(start, Ordering::Relaxed);
    kernel.report.own[1].store(end, Ordering::Relaxed);
}
