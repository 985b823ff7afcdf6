//! Members that vote but do not get on.
//!
//! A replica that gave up waiting for somebody who then came is behind the others when the vote is
//! over, and finds at once what it waited for. One that stands behind at the same place vote after
//! vote cannot see what is there: it is broken in a way that its signature does not show. All
//! members judge by the same published entries, so all judge alike.
//!
//! Not covered: one that moves on a little between votes; the limit of votes without a verdict
//! catches it.

use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// Votes in a row that may find a member behind at the same place.
const LIMIT: u8 = 3;

/// Where members were seen behind in the last vote.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Laggards {
    seen: [Seen; MAX_REPLICAS],
}

/// Events and stream position of a member behind, and how many votes in a row it stood there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Seen {
    place: (u64, u64),
    votes: u8,
}

impl Laggards {
    /// Takes note of where each of `members` stands apart in this vote, if it does, be it behind
    /// or, as it claims, ahead. Those that stood there too often.
    pub(crate) fn note_all(
        &mut self,
        members: ReplicaSet,
        apart: impl Fn(ReplicaId) -> Option<(u64, u64)>,
    ) -> ReplicaSet {
        let stuck = members.iter().filter(|&peer| self.note(peer, apart(peer)));
        stuck.fold(ReplicaSet::empty(), ReplicaSet::with)
    }

    /// Takes note of where `peer` stands behind in this vote, or with `None` that it does not. Has
    /// it stood there too often?
    fn note(&mut self, peer: ReplicaId, behind: Option<(u64, u64)>) -> bool {
        let seen = &mut self.seen[peer.index()];
        *seen = match behind {
            None => Seen::default(),
            Some(place) if seen.votes > 0 && seen.place == place => Seen {
                place,
                votes: seen.votes.saturating_add(1),
            },
            Some(place) => Seen { place, votes: 1 },
        };
        seen.votes > LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_still_is_noticed_and_who_moves_is_not() {
        let mut laggards = Laggards::default();
        let peer = ReplicaId::new(2);
        for vote in 0..LIMIT {
            assert!(!laggards.note(peer, Some((5, 7))), "vote {vote}");
        }
        assert!(laggards.note(peer, Some((5, 7))));
        assert!(!laggards.note(peer, Some((5, 8))), "it moved");
        for _ in 0..20 {
            assert!(!laggards.note(peer, Some((5, 9))));
            assert!(!laggards.note(peer, None));
        }
    }
}
