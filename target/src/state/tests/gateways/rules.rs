//! Rules that a run breaks, to show that it is found.

/// A rule that gateways do not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokenRule {
    /// Grants are held after the record says so.
    EnforcesBeforeHolding,
    /// Grants are let go before the records are asked.
    GrantsBeforeResuming,
    /// A gateway grants again though clients of others may reclaim.
    ResumesUnasked,
    /// A start ends the old session while others grant.
    StartsWithoutWaiting,
    /// Clients reclaim though the old session was gone.
    TrustsLostSession,
    /// A stop is proved while others grant.
    StopsWithoutWaiting,
    /// The session of a replaced gateway ends while others grant.
    TakesOverWithoutWaiting,
    /// Clients of a replaced gateway reclaim though nothing says that they may.
    AdoptsUnproved,
    /// A replaced gateway goes on.
    GoesOnReplaced,
    /// A gateway whose session has ended opens another one without a look at its record.
    ReopensUnasked,
    /// A start opens its session before its record says whether the old one was there.
    OpensBeforeRecord,
    /// Clients that may not reclaim are dropped in memory only.
    DropsInMemory,
    /// A recovery ends before it is durable who has not reclaimed.
    EndsUnrecorded,
    /// A replaced gateway that may be going on counts as one that grants nothing.
    TrustsReplaced,
    /// A recovery ends, and the records that were taken from others stay.
    KeepsTaken,
    /// Clients have locks at two gateways under one name.
    UsesTwoGateways,
}

impl BrokenRule {
    /// A seed that finds each of them.
    pub const FOUND_BY: [(Self, u64); 16] = [
        (Self::EnforcesBeforeHolding, 16),
        (Self::GrantsBeforeResuming, 924),
        (Self::ResumesUnasked, 2),
        (Self::StartsWithoutWaiting, 3),
        (Self::TrustsLostSession, 26),
        (Self::StopsWithoutWaiting, 3),
        (Self::TakesOverWithoutWaiting, 70),
        (Self::AdoptsUnproved, 67),
        (Self::GoesOnReplaced, 2),
        (Self::ReopensUnasked, 1586),
        (Self::OpensBeforeRecord, 67),
        (Self::DropsInMemory, 58),
        (Self::EndsUnrecorded, 112),
        (Self::TrustsReplaced, 6179),
        (Self::KeepsTaken, 4),
        (Self::UsesTwoGateways, 124),
    ];
}
