//! Planted bugs: every check of the protocol that a test can take away.
//!
//! Without feature `planted` a [`Guards`] has no size and [`Guards::off`] is the constant `false`:
//! nothing of this is in a normal build. The test that removes each guard and demands that a
//! checker notices lives in `rcoe-sim`.

/// One removable check. The name says what is left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Bug {
    /// A rendezvous does not compare signatures.
    SkipCompare,
    /// A waiting replica does not look at alarms.
    SkipAlarmCheck,
    /// Both rounds share one signature slot.
    SingleBuffer,
    /// The verdicts of the others are not compared (phase 2).
    SkipPhase2,
    /// The vote ends without confirmation (phase 3).
    SkipPhase3,
    /// The largest group wins, majority or not.
    AcceptMinority,
    /// A follower joins a vote without draining the stream.
    NoDrain,
    /// The doorbell is rung before the data is stored.
    DoorbellFirst,
    /// The effect word of a lost primary is not read.
    SkipEffectCheck,
    /// A publication does not ring the doorbell.
    NoBell,
    /// The publisher looks for sleepers before it rings.
    SkipReread,
    /// The publisher has no fence between its store and its look at the sleepers.
    NoFence,
    /// A record is consumed without comparing its signature.
    SkipStreamCompare,
    /// A record is consumed without checking its checksum.
    SkipStreamChecksum,
    /// An absent replica counts as an agreeing one.
    AbsentAgrees,
    /// A late replica is not told apart from a faulty one.
    NoLag,
    /// Who passed an action before it was flagged is not told apart either.
    NoPassing,
    /// The publisher never asks whether the ring has room.
    NoRingCheck,
    /// An absence that another replica saw is not adopted.
    NoAdopt,
    /// The outbox is not rewritten on entry to a vote.
    NoScrub,
    /// The effect word does not say which record it belongs to.
    EffectUntagged,
    /// Records of a lost primary that nobody took are forgotten.
    ForgetUnread,
    /// The vote number is not part of what is waited for.
    IgnoreVoteNumber,
    /// An action is performed by the first that sees all inside, without the ready phase.
    ActionNoReady,
    /// The leader inside an action does not give way to a rendezvous.
    ActionNoAbort,
    /// A newcomer is taken in without a vote.
    AdmitUnvoted,
    /// A newcomer is taken in although not all members ask for it.
    AdmitPartly,
    /// A newcomer takes itself in without looking whether the members do.
    AdmitUnseen,
    /// A newcomer is taken in before its copy was verified. For the sphere to leave out.
    AdmitUnverified,
    /// A newcomer with the lowest number leads at once.
    NewcomerLeads,
    /// A newcomer keeps what somebody who was lost left in its outbox.
    StaleOutbox,
    /// A replica removes others, or stops, without evidence.
    ActUnchecked,
    /// A replica that halts ends all of the group without looking whether others go on.
    EndAlone,
    /// A post that a replica has not made yet counts as equal.
    PostUnseen,
    /// Posts are not compared.
    PostUncompared,
    /// Deferred effects go out when the primary arrives at a rendezvous, before all have met. This
    /// and those below are for the sphere to leave out.
    ReleaseUnmet,
    /// A deferred effect stays in the queue when it goes out.
    ReleaseTwice,
    /// The newest deferred effect goes out first.
    ReleaseNewest,
    /// An effect that is not deferred overtakes those that are.
    ReleaseLate,
    /// A deferred effect goes out although it is not what was taken into the queue.
    ReleaseChanged,
    /// Nobody waits to hear that all deferred effects have gone out.
    SettleUntold,
    /// The primary waits for the world without a rendezvous, although effects were deferred.
    AwaitUnmet,
    /// The primary waits for the world although not all agree on what is deferred.
    WaitUnreleased,
    /// Whether an effect is deferred depends on how many the primary still has to release.
    DeferByBacklog,
    /// Who may become the primary keeps nothing of what is deferred.
    KeepNothing,
    /// A new primary releases what the lost one may have released.
    ReleaseAgain,
    /// Who has said that it took a record counts as having done with what is kept for that.
    KeptInUse,
    /// What a follower has read by itself is not compared with the primary's digest. This and those
    /// below are for the sphere to leave out.
    DigestUncompared,
    /// A follower takes what it has read itself although the record has the bytes.
    RingIgnored,
    /// A follower takes the primary's bytes although nobody has changed the file.
    DifferenceTaken,
    /// The version of a file is looked at after it was read.
    VersionLate,
    /// Replicas that agree on a point do not compare pages. This and those below are of
    /// [`crate::coupling`].
    MemoryUncompared,
    /// Nor vector state.
    VectorsUncompared,
    /// A word by which a replica was refused does not join what it looks for.
    StubUnrefined,
    /// A target is taken before its checksum fits.
    TargetUnchecked,
    /// Who has come to the target acts without the reports of the others.
    AgreeAlone,
    /// Each is compared with the target's owner only, not all with all.
    OwnerAlone,
    /// Who takes itself to be at the target does not look at the target's registers and signature
    /// once more.
    ArrivalTrusted,
    /// A replica does not adopt it if another has seen that all agreed.
    AgreedUnheeded,
    /// Each phase has the budget of the first.
    BudgetFixed,
    /// A post counts whichever attempt, membership and phase it is of.
    StampUnread,
    /// A list of pages is not compared with a second look.
    ListUnsealed,
    /// A search with a damaged stub counts like any other.
    StubUnsealed,
    /// Who was not where a majority met last is not looked for any more.
    SearchUnmade,
    /// A majority that met before counts although it does not meet any more.
    MajorityPast,
    /// A newcomer has a vote at points.
    NewcomerVotes,
    /// Of two replicas it is enough that one has passed the other.
    PassUnreturned,
    /// Who is outside of a majority goes although one member alone of that says so, both ways.
    PassOfOne,
    /// All wait for the baton equally long before they take it.
    BatonAtOnce,
    /// Who has the baton does not look whether another has taken it.
    BatonUnheld,
    /// It is handed on to one that has lost it, too.
    BatonToLoser,
    /// Nobody joins in with those who accuse one.
    BatonUnjoined,
    /// Programs run although one that is accused may run.
    BatonUnstopped,
    /// A word counts although a bit of it flipped.
    BatonUnchecked,
    /// Who waits for the baton counts time in which others have told something.
    BatonImpatient,
    /// Who waits for the baton looks when it is woken, or when its time is over.
    BatonUnlooking,
    /// Who is accused, and waits, does not say that it is there.
    BatonMute,
    /// Who speaks again stays accused.
    BatonUnforgiven,
    /// One accuser is enough for another to be stopped.
    BatonMinority,
    /// A counter that interrupts late is armed for the very count. This and those below are of
    /// [`crate::counted`].
    CountMarginIgnored,
    /// A place that was missed is not told from one that was reached.
    CountMissUnseen,
    /// A count alone is a place.
    CountPlaceUnseen,
    /// Who stands at a breakpoint and has to go on is stopped there again.
    CountStuck,
    /// Differences of counts are taken in more bits than counters have.
    CountWidthIgnored,
    /// More is armed than can be written into a counter.
    CountReachIgnored,
    /// The kernel's branches are counted, too.
    CountKernel,
    /// Far branches stay in the count.
    CountFarKept,
    /// Counters stop at an overflow until the interrupt is there.
    CountFreezes,
    /// Branches count that are taken back behind locks.
    CountLocksSpeculative,
    /// What is counted in parts is armed for the first one only.
    CountUnarmed,
    /// An overflow is not cleared before the next.
    CountOverflowKept,
    /// The interrupt stays masked after the first.
    CountUnopened,
}

/// Which guards are off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guards {
    #[cfg(feature = "planted")]
    bits: u128,
}

impl Guards {
    /// All guards on.
    pub const ON: Self = Self {
        #[cfg(feature = "planted")]
        bits: 0,
    };

    /// All guards but the one of `bug`.
    #[cfg(feature = "planted")]
    #[must_use]
    pub const fn without(bug: Bug) -> Self {
        Self {
            bits: 1 << bug as u8,
        }
    }

    /// Is none taken away?
    #[must_use]
    pub const fn all_on(self) -> bool {
        #[cfg(feature = "planted")]
        return self.bits == 0;
        #[cfg(not(feature = "planted"))]
        true
    }

    /// Is the guard against `bug` taken away?
    #[inline(always)]
    #[must_use]
    pub const fn off(self, bug: Bug) -> bool {
        #[cfg(feature = "planted")]
        return self.bits & (1 << bug as u8) != 0;
        #[cfg(not(feature = "planted"))]
        {
            let _ = bug;
            false
        }
    }
}
