//! The number of calls that a client may have outstanding (RFC 5666 sections 3.3 and 11).
//!
//! The policy is pure: its input is the current state. Its output is a grant and the receives that
//! must be posted before it is announced, or that the reply is withheld.

use super::Cause;

/// Receives kept posted beyond the grant: clients that miscount by one around an error or a stray
/// message must not lose their connection (conformance row OLD-11), as a Send without a receive
/// ends it.
pub const SPARE_RECEIVES: u32 = 2;

/// Receives posted at accept. The first call may arrive at once, and old clients send more than one
/// before the first reply (conformance row OLD-09).
pub const FIRST_RECEIVES: u32 = 1 + SPARE_RECEIVES;

/// After a cut, a grant recovers in steps of this fraction of the request, one with each reply:
/// fast enough to take one or two rounds of calls, slow enough not to cause the shortage again at
/// once.
const RECOVERY_STEPS: u32 = 16;

/// Memory is short when less than this fraction of it is free.
pub(crate) const SHORT_PART: u64 = 8;

/// The state of the class of buffers that receives and replies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Buffers that are free.
    pub free: u64,
    /// Buffers that there are.
    pub total: u64,
    /// Waiting calls.
    pub waiters: u64,
}

impl Pressure {
    /// No shortage of any kind.
    pub const NONE: Self = Self {
        free: u64::MAX,
        total: 0,
        waiters: 0,
    };

    /// The most credits in this state, for a client with `limit`: proportional to the free memory,
    /// and one if calls wait.
    #[must_use]
    pub fn most(self, limit: u32) -> u32 {
        let short = self.total / SHORT_PART;
        if self.waiters > 0 {
            1
        } else if self.free >= short {
            u32::MAX
        } else {
            // Less than `limit`, as `free` is less than `short`.
            let most = u128::from(limit) * u128::from(self.free) / u128::from(short);
            (most as u32).max(1)
        }
    }
}

/// The inputs of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// The credits requested by the client: the credit word of the call being answered.
    pub wish: u32,
    /// The most credits that the configuration grants to one connection, at least one.
    pub most: u32,
    /// Receives of the connection's part of its client's share of the reactor's memory.
    pub share: u32,
    /// Calls that the client's rate can use, if a limit throttles it, and which limit.
    pub window: Option<(u32, Cause)>,
    /// The reactor's memory.
    pub pressure: Pressure,
    /// The ceiling of the latest [`Grant`] of this connection, [`u32::MAX`] at first.
    pub ceiling: u32,
    /// Unanswered calls of this connection, without the one being answered.
    pub owed: u32,
    /// Replies of this connection that were sent and wait for RDMA_DONE.
    pub exposures: u32,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The credits to announce, at least one.
    pub credits: u32,
    /// The ceiling left by cuts, for the connection's next reply.
    pub ceiling: u32,
    /// Why it is less than requested and configured.
    pub cause: Option<Cause>,
}

/// The decision on a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDecision {
    /// It may be sent.
    Reply(Grant),
    /// It is withheld until an exposure ends: exposures hold all credits, and this is the last
    /// reply that could announce a new one.
    Withhold,
}

impl Inputs {
    /// Whether nothing bounds a grant of `limit` credits, as for most replies.
    #[inline]
    fn is_unbounded(&self, limit: u32) -> bool {
        let pressure = &self.pressure;
        self.window.is_none()
            && self.exposures == 0
            && self.ceiling >= limit
            && self.share > limit.saturating_add(SPARE_RECEIVES)
            && pressure.waiters == 0
            && pressure.free >= pressure.total / SHORT_PART
    }
}

/// Decides on a reply.
#[must_use]
#[inline]
pub fn decide(inputs: &Inputs) -> ReplyDecision {
    let limit = inputs.wish.min(inputs.most).max(1);
    if inputs.is_unbounded(limit) {
        return ReplyDecision::Reply(Grant {
            credits: limit,
            ceiling: u32::MAX,
            cause: None,
        });
    }
    let bounds = [
        (inputs.share.saturating_sub(SPARE_RECEIVES), Cause::Share),
        inputs.window.unwrap_or((u32::MAX, Cause::ClientLimit)),
        (inputs.pressure.most(limit), Cause::PoolPressure),
    ];
    let (mut bound, mut cause) = (u32::MAX, None);
    for (one, of) in bounds {
        if one < bound {
            bound = one;
            cause = Some(of);
        }
    }
    let bound = bound.max(1);
    // Down at once, and up step by step.
    let ceiling = bound.min(
        inputs
            .ceiling
            .saturating_add((limit / RECOVERY_STEPS).max(1)),
    );
    let credits = limit.min(ceiling);
    let cause = cause.filter(|_| credits < limit);
    // A cut without effect ends.
    let ceiling = if ceiling >= limit && bound > limit {
        u32::MAX
    } else {
        ceiling
    };
    let grant = |credits, cause| {
        ReplyDecision::Reply(Grant {
            credits,
            ceiling,
            cause,
        })
    };
    match credits.checked_sub(inputs.exposures) {
        Some(0) | None if inputs.owed == 0 && inputs.exposures > 0 => ReplyDecision::Withhold,
        // As another reply is owed, the client has used this one.
        Some(0) | None => grant(1, Some(Cause::Exposures)),
        Some(left) if left < credits => grant(left, Some(Cause::Exposures)),
        Some(left) => grant(left, cause),
    }
}

/// Receives to be posted, counting calls in service, before `credits` are announced. `dones`
/// RDMA_DONE messages may arrive in addition to calls.
#[must_use]
pub fn receives_for(credits: u32, dones: u32) -> u32 {
    credits.saturating_add(SPARE_RECEIVES).saturating_add(dones)
}

/// The most receives of a connection, for the depth of its receive queue.
#[must_use]
pub fn receives_most(most: u32, dones: u32) -> u32 {
    receives_for(most.max(1), dones)
}

/// The credits to announce: at least one, and never more than receives cover.
#[must_use]
pub fn announced(credits: u32, covered: u32, dones: u32) -> u32 {
    let covered = covered.saturating_sub(SPARE_RECEIVES.saturating_add(dones));
    credits.min(covered).max(1)
}

/// One client's claim to a reactor's memory for receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Receives it holds.
    pub held: u32,
    /// Receives that its connections request.
    pub demand: u32,
    /// Its weight, out of [`WEIGHT`]: lower for a client with connections on other reactors too.
    pub weight: u32,
}

/// The weight of a client whose connections are all on one reactor.
pub const WEIGHT: u32 = 12;

impl Claim {
    /// The client's receives at a level.
    #[must_use]
    pub fn at(self, level: u32) -> u32 {
        let share = u64::from(level) * u64::from(self.weight) / u64::from(WEIGHT);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    fn takes(self, level: u32) -> u64 {
        u64::from(self.held.max(self.demand.min(self.at(level))))
    }
}

/// The highest level at which all claims fit into `budget` receives, with the same reserved for the
/// next client. A client that requests less leaves the rest to others; one that holds more than the
/// level keeps it until its next replies, so it counts with what it holds.
#[must_use]
pub fn level(budget: u32, claims: &[Claim]) -> u32 {
    let fits = |level: u32| {
        let taken: u64 = claims.iter().map(|claim| claim.takes(level)).sum();
        taken + u64::from(level) <= u64::from(budget)
    };
    let (mut low, mut high) = (0, budget);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests;
