//! How a replica is stopped at a published state, wherever its program computes.
//!
//! Replicas are deterministic between calls, so all pass through one sequence of states. One of
//! them publishes the state that it has at a place of the code; the others get a jump at that place
//! to a stub, which lets them go on until registers and flags are those published. Then vector
//! state and the memory written since the last common point are compared. What is equal has the
//! same future; what is not goes on, with a word more to be compared by the stub.
//!
//! * [`place`]: which place of the code, from wherever a replica was interrupted; [`loops`]: one
//!   behind the loop that it is in; `entered`: where branches lead that a jump would be in the way
//!   of.
//! * [`stub`]: the code that compares, and what a stop within it means ([`stub::original`]).
//! * [`patch`]: the jump to it, and how everybody else sees the code without it.
//! * [`state`]: registers and extended state in a form in which equal states are equal bytes.
//! * [`pages`]: which pages were written.
//! * `watch`: a breakpoint of the processor instead of the jump and the stub, for code that may
//!   change while it runs.
//! * [`counter`]: how many branches the program has made since a point.
//! * [`site`]: the one stub or breakpoint that there is at a time.
//! * [`blocks`], [`machine`]: memory and the whole state as two replicas compare them.
//!
//! Contract: everything here is mechanism of one replica on its one kernel thread. Who publishes,
//! who waits how long, and what is voted is the protocol's.

pub(crate) mod blocks;
pub(crate) mod counter;
pub(crate) mod decode;
pub(crate) mod emit;
mod entered;
pub(crate) mod loops;
pub(crate) mod machine;
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "all memory is compared, and nobody asks yet which pages were written"
    )
)]
pub(crate) mod pages;
pub(crate) mod patch;
pub(crate) mod place;
pub(crate) mod site;
pub(crate) mod state;
pub(crate) mod stub;
mod watch;

#[cfg(test)]
mod tests;
