//! How many calls a client may have outstanding (RFC 5666 sections 3.3 and 11).
//!
//! The policy is pure: what is known goes in; a grant and the receives that must be posted before
//! it is announced come out, or that the reply is to be held back.

use super::Cause;

/// Receives kept posted beyond the grant: clients that count one differently around an error or
/// a stray message must not lose their connection (conformance row OLD-11), as a Send that finds
/// no receive ends it.
pub const SPARE_RECEIVES: u32 = 2;

/// Receives posted at accept. The first call may come at once, and old clients send more than one
/// before the first reply (conformance row OLD-09).
pub const FIRST_RECEIVES: u32 = 1 + SPARE_RECEIVES;

/// A cut of a grant is taken back in steps of this part of what is wished for, one with each
/// reply: quick enough to be over within one round of calls or two, slow enough that what was short
/// is not short again at once.
const RECOVERY_STEPS: u32 = 16;

/// The memory is short when less than this part of it is free.
pub(crate) const SHORT_PART: u64 = 8;

/// The state of the class of buffers that receives and replies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Buffers that are free.
    pub free: u64,
    /// Buffers that there are.
    pub total: u64,
    /// Calls that wait for one.
    pub waiters: u64,
}

impl Pressure {
    /// No shortage of any kind.
    pub const NONE: Self = Self {
        free: u64::MAX,
        total: 0,
        waiters: 0,
    };

    /// Most credits while it is like that, for a client that would have `limit`: less in
    /// proportion as less is free, and one once somebody waits.
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

/// What a grant depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// The client's wish: the credit word of the call that is being answered.
    pub wish: u32,
    /// Most credits that the configuration grants to one connection, at least one.
    pub most: u32,
    /// Receives that the connection may have of its client's share of the reactor's memory.
    pub share: u32,
    /// Calls that the client's rate can use, where a limit slows it down, and whose limit.
    pub window: Option<(u32, Cause)>,
    /// The reactor's memory.
    pub pressure: Pressure,
    /// What the latest [`Grant`] of this connection left, [`u32::MAX`] at first.
    pub ceiling: u32,
    /// Calls of this connection whose replies are still owed, without the one that is being
    /// answered.
    pub owed: u32,
    /// Replies of this connection that were sent and await RDMA_DONE.
    pub exposures: u32,
}

/// What may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Most credits to announce, at least one.
    pub credits: u32,
    /// Where cuts stand, for the connection's next reply.
    pub ceiling: u32,
    /// Why it is less than was wished for and configured.
    pub cause: Option<Cause>,
}

/// What is to become of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDecision {
    /// It may leave.
    Reply(Grant),
    /// It is held back until an exposure ends: all credits are held by exposures, and this is the
    /// last reply through which the client can learn of a new one.
    Withhold,
}

/// Decides on a reply.
#[must_use]
pub fn decide(inputs: &Inputs) -> ReplyDecision {
    let limit = inputs.wish.min(inputs.most).max(1);
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
    // A cut that nothing has left of is over.
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
        // As a reply is owed yet, the client has used this one.
        Some(0) | None => grant(1, Some(Cause::Exposures)),
        Some(left) if left < credits => grant(left, Some(Cause::Exposures)),
        Some(left) => grant(left, cause),
    }
}

/// Receives that should be posted, counting calls in service, before `credits` are announced.
/// `dones` RDMA_DONE messages may come beside calls.
#[must_use]
pub fn receives_for(credits: u32, dones: u32) -> u32 {
    credits.saturating_add(SPARE_RECEIVES).saturating_add(dones)
}

/// Most receives of a connection, for the depth of its receive queue.
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

/// What one client asks of a reactor's memory for receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Receives it holds.
    pub held: u32,
    /// Receives that its connections wish for.
    pub demand: u32,
    /// Its weight, out of [`WEIGHT`]: less for a client that has connections on other reactors
    /// too.
    pub weight: u32,
}

/// The weight of a client whose connections are all on one reactor.
pub const WEIGHT: u32 = 12;

impl Claim {
    /// What the client gets at a level.
    #[must_use]
    pub fn at(self, level: u32) -> u32 {
        let share = u64::from(level) * u64::from(self.weight) / u64::from(WEIGHT);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    fn takes(self, level: u32) -> u64 {
        u64::from(self.held.max(self.demand.min(self.at(level))))
    }
}

/// The highest level at which all claims fit into `budget` receives, with as much again for one
/// who comes next. Who wishes for less leaves the rest to the others; who holds more than the level
/// holds it until its next replies, so it counts with what it holds.
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
