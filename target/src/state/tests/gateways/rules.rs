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
    /// A gateway that takes the place of another one counts as proved by that.
    ProvesSuccessor,
    /// The session of a replaced gateway ends while others grant.
    TakesOverWithoutWaiting,
    /// Clients of a replaced gateway reclaim though nothing says that they may.
    AdoptsUnproved,
    /// A replaced gateway goes on.
    GoesOnReplaced,
    /// A gateway whose session has ended opens another one without a look at its record.
    ReopensUnasked,
    /// A gateway whose session has ended opens another one before it is durable which clients have
    /// lost locks with it.
    ReopensUnrecorded,
    /// A start opens its session before its record says whether the old one was there.
    OpensBeforeRecord,
    /// Clients that may not reclaim are dropped in memory only.
    DropsInMemory,
    /// A recovery ends before it is durable who has not reclaimed.
    EndsUnrecorded,
    /// A gateway starts while another one takes its place.
    StartsDuringTakeOver,
    /// A replaced gateway that may be going on counts as one that grants nothing.
    TrustsReplaced,
    /// A take-over that was given up and is repeated relies on the session.
    RepeatsTakeOver,
    /// A recovery ends before the records that were taken from others are gone.
    ForgetsTakenLate,
    /// Clients have locks at two gateways under one name.
    UsesTwoGateways,
    /// An address returns to a gateway that has started again, while the one that served it is gone.
    MovesAddress,
}

impl BrokenRule {
    pub const ALL: [Self; 21] = [
        Self::EnforcesBeforeHolding,
        Self::GrantsBeforeResuming,
        Self::ResumesUnasked,
        Self::StartsWithoutWaiting,
        Self::TrustsLostSession,
        Self::StopsWithoutWaiting,
        Self::ProvesSuccessor,
        Self::TakesOverWithoutWaiting,
        Self::AdoptsUnproved,
        Self::GoesOnReplaced,
        Self::ReopensUnasked,
        Self::ReopensUnrecorded,
        Self::OpensBeforeRecord,
        Self::DropsInMemory,
        Self::EndsUnrecorded,
        Self::StartsDuringTakeOver,
        Self::TrustsReplaced,
        Self::RepeatsTakeOver,
        Self::ForgetsTakenLate,
        Self::UsesTwoGateways,
        Self::MovesAddress,
    ];
}
