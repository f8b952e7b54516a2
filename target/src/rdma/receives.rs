//! A connection's receives and credits, and replies withheld for lack of credits.

use std::cell::Cell;
use std::time::Instant;

use millrace_mempool::{Buffer, Class};

use super::{RdmaConnection, ResponderShared};
use crate::call::Broken;
use crate::flow::policy::{self, Grant, Inputs, ReplyDecision};
use crate::flow::{Cause, Flow, InFlightPeak};
use crate::rpc::ConnectionRef;

/// The least grant.
const LEAST: Grant = Grant {
    credits: 1,
    ceiling: u32::MAX,
    cause: None,
};

/// The state of a connection's receives and credits.
pub(super) struct CreditState {
    identity: ConnectionRef,
    class: Class,
    /// Receives posted.
    posted: Cell<u32>,
    /// Calls in service: their receives are not posted, but will be before they are answered.
    in_service: Cell<u32>,
    peak: InFlightPeak,
    /// Credits announced last.
    granted: Cell<u32>,
    /// The credits requested by the client.
    wish: Cell<u32>,
    /// The corresponding number of receives, as counted in the client's sum.
    demand: Cell<u32>,
    /// The ceiling left by cuts of the grant.
    ceiling: Cell<u32>,
}

impl CreditState {
    pub fn new(identity: &ConnectionRef, class: Class) -> Self {
        Self {
            identity: identity.clone(),
            class,
            posted: Cell::new(0),
            in_service: Cell::new(0),
            peak: InFlightPeak::new(identity.since()),
            granted: Cell::new(1),
            wish: Cell::new(1),
            demand: Cell::new(0),
            ceiling: Cell::new(u32::MAX),
        }
    }

    fn covered(&self) -> u32 {
        self.posted.get() + self.in_service.get()
    }

    /// The connection is established.
    pub fn open(&self, flow: &Flow) {
        let counters = flow.counters();
        counters.granted.add(u64::from(self.granted.get()));
        self.identity.usage().granted(0, self.granted.get());
        counters.requested.add(u64::from(self.wish.get()));
        self.set_demand(flow, policy::FIRST_RECEIVES);
    }

    /// The connection has ended: posted receives are returned.
    pub fn close<S>(&self, shared: &ResponderShared<S>) {
        let counters = shared.flow.counters();
        counters.granted.sub(u64::from(self.granted.get()));
        self.identity.usage().granted(self.granted.get(), 0);
        counters.requested.sub(u64::from(self.wish.get()));
        self.set_demand(&shared.flow, 0);
        self.identity.share().note_held(self.posted.replace(0), 0);
        shared.flow.leave(self.identity.share());
    }

    fn set_demand(&self, flow: &Flow, demand: u32) {
        let before = self.demand.replace(demand);
        if before != demand {
            flow.note_demand(self.identity.share(), before, demand);
        }
    }
}

/// Returns the receive of a call. If its task panics, the receive is removed from the state.
#[must_use]
pub(super) struct InService<'a, S> {
    shared: &'a ResponderShared<S>,
    connection: &'a RdmaConnection,
    is_over: bool,
}

impl<S> InService<'_, S> {
    /// From here on the holder of the receive returns it.
    pub fn over(mut self) {
        self.is_over = true;
    }
}

impl<S> Drop for InService<'_, S> {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.end_service(self.shared);
            self.connection.share().note_held(1, 0);
        }
    }
}

impl RdmaConnection {
    /// Guards a call while code outside of the transport runs.
    pub(super) fn in_service<'a, S>(&'a self, shared: &'a ResponderShared<S>) -> InService<'a, S> {
        InService {
            shared,
            connection: self,
            is_over: false,
        }
    }

    /// Credits requested, credits granted, and calls in service.
    #[must_use]
    pub fn credits(&self) -> (u32, u32, u32) {
        let state = &self.credit_state;
        (
            state.wish.get(),
            state.granted.get(),
            state.in_service.get(),
        )
    }

    /// The most calls in service at once in the latest one to two seconds before `now`.
    #[must_use]
    pub fn in_service_peak(&self, now: Instant) -> u32 {
        let state = &self.credit_state;
        state.peak.most(now, state.in_service.get())
    }

    /// Records that a posted receive was filled.
    pub(super) fn received<S>(&self, shared: &ResponderShared<S>) {
        let state = &self.credit_state;
        state.posted.set(state.posted.get() - 1);
        state.peak.note(shared.clock.now(), state.in_service.get());
        state.in_service.set(state.in_service.get() + 1);
        shared.flow.called(self.share());
    }

    /// Returns a served call's receive, adjusts the posted receives to the policy, and returns the
    /// credits to announce: never more than receives now cover. Waits while the reply is withheld
    /// (RFC 5666 section 11).
    pub(super) async fn repost_and_grant<S>(
        &self,
        shared: &ResponderShared<S>,
        receive: Buffer,
        wish: u32,
    ) -> u32 {
        self.note_wish(shared, wish);
        let grant = match self.decide(shared) {
            ReplyDecision::Reply(grant) => grant,
            ReplyDecision::Withhold => self.withhold(shared).await,
        };
        self.repost_for(shared, receive, grant)
    }

    /// The same of a connection without exposures, whose replies are never withheld.
    pub(super) fn repost_and_grant_at_once<S>(
        &self,
        shared: &ResponderShared<S>,
        receive: Buffer,
        wish: u32,
    ) -> u32 {
        self.note_wish(shared, wish);
        let grant = match self.decide(shared) {
            ReplyDecision::Reply(grant) => grant,
            ReplyDecision::Withhold => LEAST,
        };
        self.repost_for(shared, receive, grant)
    }

    fn repost_for<S>(&self, shared: &ResponderShared<S>, receive: Buffer, grant: Grant) -> u32 {
        let state = &self.credit_state;
        state.ceiling.set(grant.ceiling);
        let dones = self.beyond();
        let wanted = policy::receives_for(grant.credits, dones);
        let before = state.granted.get();
        // Until this reply is sent, the client uses the previous grant.
        let kept = policy::receives_for(before, dones);
        self.give_back(shared, receive, |covered| covered < wanted.max(kept));
        self.refill_reserve(shared);
        self.post_receives(shared, wanted);
        let granted = policy::announced(grant.credits, state.covered(), dones);
        if granted != before && !self.is_broken() {
            state.granted.set(granted);
            let counters = shared.flow.counters();
            counters.granted.add(u64::from(granted));
            counters.granted.sub(u64::from(before));
            state.identity.usage().granted(before, granted);
            if let (true, Some(cause)) = (granted < before, grant.cause) {
                counters.add_cut(cause);
            }
        }
        granted
    }

    /// Returns the receive of a message without an answer.
    pub(super) fn repost<S>(&self, shared: &ResponderShared<S>, receive: Buffer) {
        self.give_back(shared, receive, |_| true);
    }

    /// Ends a call's service. Its receive is posted again if `keep` says so, given the number of
    /// other receives.
    fn give_back<S>(
        &self,
        shared: &ResponderShared<S>,
        receive: Buffer,
        keep: impl FnOnce(u32) -> bool,
    ) {
        let state = &self.credit_state;
        self.end_service(shared);
        if self.is_broken() || !keep(state.covered()) || !self.post_receive(receive) {
            self.share().note_held(1, 0);
        }
    }

    fn end_service<S>(&self, shared: &ResponderShared<S>) {
        let state = &self.credit_state;
        state.in_service.set(state.in_service.get() - 1);
        shared.flow.ended(self.share());
    }

    fn note_wish<S>(&self, shared: &ResponderShared<S>, wish: u32) {
        let state = &self.credit_state;
        if self.is_broken() {
            return;
        }
        let before = state.wish.replace(wish);
        if wish != before {
            let requested = &shared.flow.counters().requested;
            requested.add(u64::from(wish));
            requested.sub(u64::from(before));
        }
        let most = self.credits_most(shared);
        state.set_demand(&shared.flow, policy::receives_for(wish.min(most).max(1), 0));
    }

    /// The most credits that it may have.
    fn credits_most<S>(&self, shared: &ResponderShared<S>) -> u32 {
        if self.is_unadmitted() {
            return 1;
        }
        shared.settings.get().credits
    }

    fn decide<S>(&self, shared: &ResponderShared<S>) -> ReplyDecision {
        let state = &self.credit_state;
        policy::decide(&Inputs {
            wish: state.wish.get(),
            most: self.credits_most(shared),
            share: shared.flow.share(self.share()),
            window: self.share().window(),
            pressure: shared.flow.pressure(),
            ceiling: state.ceiling.get(),
            owed: state.in_service.get() - 1,
            exposures: self.compat.awaited_dones(),
        })
    }

    /// Withholds a reply until an exposure or the connection has ended.
    #[cold]
    async fn withhold<S>(&self, shared: &ResponderShared<S>) -> Grant {
        let counters = shared.flow.counters();
        let since = shared.clock.now();
        counters.withheld.add(1);
        counters.withheld_total.add(1);
        // The grant of an ended connection is irrelevant.
        let mut grant = LEAST;
        let enough = || match self.decide(shared) {
            ReplyDecision::Reply(decided) => {
                grant = decided;
                true
            }
            ReplyDecision::Withhold => false,
        };
        let _ = self.compat.until_exposures_end(enough).await;
        counters.withheld.sub(1);
        let waited = shared.clock.now().saturating_duration_since(since);
        counters.add_throttled(Cause::Exposures, waited);
        grant
    }

    /// Posts receives until `wanted` are posted or in service, as far as memory permits.
    pub(super) fn post_receives<S>(&self, shared: &ResponderShared<S>, wanted: u32) {
        let state = &self.credit_state;
        while state.covered() < wanted {
            let Some(buffer) = shared.keep(state.class) else {
                return;
            };
            if !self.post_receive(buffer) {
                return;
            }
            self.share().note_held(0, 1);
        }
    }

    /// The buffer class of its receives.
    pub(super) fn receive_class(&self) -> Class {
        self.credit_state.class
    }

    /// Receives kept beyond those for the grant: for RDMA_DONE, and for replies to reverse calls
    /// (RFC 8167 section 4.3.2).
    fn beyond(&self) -> u32 {
        self.compat.receives() + self.reverse.receives()
    }

    /// Posts the receives for replies to reverse calls, waiting for memory.
    ///
    /// # Errors
    /// The connection ended.
    pub(super) async fn cover_reverse<S>(&self, shared: &ResponderShared<S>) -> Result<(), Broken> {
        loop {
            if self.is_broken() {
                return Err(Broken);
            }
            let state = &self.credit_state;
            let wanted = policy::receives_for(state.granted.get(), self.beyond());
            self.post_receives(shared, wanted);
            if state.covered() >= wanted {
                return Ok(());
            }
            let buffer = shared.pool.acquire(state.class).await;
            if self.is_broken() || !self.post_receive(buffer) {
                return Err(Broken);
            }
            self.share().note_held(0, 1);
        }
    }

    /// Posted receives.
    #[must_use]
    pub fn posted(&self) -> u32 {
        self.credit_state.posted.get()
    }

    fn post_receive(&self, buffer: Buffer) -> bool {
        let posted = self.push_receive(buffer);
        if posted {
            let state = &self.credit_state;
            state.posted.set(state.posted.get() + 1);
        }
        posted
    }
}
