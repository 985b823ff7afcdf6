//! Words of a thread, by place. Registers come first.

/// See [`crate::tcb::State`].
pub(crate) const STATE: usize = 36;
pub(crate) const PRIORITY: usize = 37;
/// Neighbours in the one queue it is in: previous and next.
pub(crate) const QUEUE: usize = 38;
/// The endpoint or notification it waits at.
pub(crate) const WAITS_AT: usize = 39;
/// The badge of the message it sends.
pub(crate) const BADGE: usize = 40;
/// Who waits for its reply.
pub(crate) const CALLER: usize = 41;
/// Whose reply it waits for.
pub(crate) const CALLED: usize = 42;
/// Pointer to its fault handler, in its own space.
pub(crate) const HANDLER: usize = 43;
/// The fault it is in: label, or 0.
pub(crate) const FAULT: usize = 44;
/// Two further words of the fault.
pub(crate) const FAULT_WORDS: usize = 45;
/// How it runs ([`rcoe_abi::ThreadFlags`]).
pub(crate) const FLAGS: usize = 47;
/// Is the call that it makes next the rest of one that is done but for what it ended?
pub(crate) const REST: usize = 48;
/// The notification that is bound to it.
pub(crate) const BOUND: usize = 49;
/// Does the message it sends want a reply?
pub(crate) const CALLS: usize = 50;
/// May capabilities travel with the message it sends, and with the reply to it?
pub(crate) const GRANTS: usize = 51;
/// What stays in the processor until another thread runs: floating-point state and more.
pub(crate) const FPU: usize = 64;
