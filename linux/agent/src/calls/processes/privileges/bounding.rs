//! The bounding set of a process, as far as it is known.
//!
//! Intuition: to read the set takes a call for each capability, and every exec needs it, twice. But
//! it belongs to the process, passes to children and to programs executed, and nobody else can
//! change it. So the host is asked before the first child is made, and again only after a call that
//! may have changed it.
//!
//! Contract: whoever lets a call through that changes credentials forgets the set around it
//! ([`super::with_credentials`] does so for all of them, not just for `PR_CAPBSET_DROP`). A new
//! user namespace, in which the set would be full again, is had by no program: `unshare` and
//! `setns` are refused, and so is a `clone` that asks for one.

use crate::sys::credentials;

/// What is known of the bounding set. The same in all replicas: each asks at the same calls.
pub(crate) struct Bounding(Option<u64>);

impl Bounding {
    pub(crate) const UNKNOWN: Self = Self(None);

    /// The set, one bit for each capability; asks the host if it is not known.
    pub(crate) fn get(&mut self) -> u64 {
        self.or_ask(credentials::bounding_set)
    }

    fn or_ask(&mut self, ask: impl FnOnce() -> u64) -> u64 {
        *self.0.get_or_insert_with(ask)
    }

    /// A call may change it.
    pub(crate) const fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::Bounding;

    #[test]
    fn the_host_is_asked_once_and_again_after_a_call_that_may_change_the_set() {
        let mut bounding = Bounding::UNKNOWN;
        assert_eq!(bounding.or_ask(|| 7), 7);
        assert_eq!(bounding.or_ask(|| unreachable!("it is known")), 7);
        bounding.forget();
        assert_eq!(bounding.or_ask(|| 5), 5);
    }

    #[test]
    fn an_empty_set_is_known_too() {
        let mut bounding = Bounding::UNKNOWN;
        assert_eq!(bounding.or_ask(|| 0), 0);
        assert_eq!(bounding.or_ask(|| unreachable!("it is known")), 0);
    }
}
