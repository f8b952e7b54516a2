//! One connection: its start, its end and its send queue.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use millrace_mempool::{Buffer, Class, MemoryAccount, NoMemory};
use millrace_primitives::TurnQueue;
use millrace_reactor::fabric::chain;
use millrace_reactor::fabric::{
    Access, AnyProvider, ConnectParameters, ControlPath, DataPath, ExposeError, Exposure, Key,
    PostError, QueuePairId, QueuePairLimits, ReadDepths, Revoked, SLICES_MAX, Slices, WorkError,
    WorkRequest,
};
use millrace_wire::rpcrdma::Version;

use super::ConnectionCounters;
use super::answer::Prepared;
use super::compat::Compatibility;
use super::fabrics::FabricId;
use super::receives::CreditState;
use super::reverse::Reverse;
use super::settings::{Inline, Terms, private_data};
use super::shared::{Outcome, ResponderShared};
use super::transfers::{ChainSize, TransferDirection, Transfers};
use crate::call::{Broken, Peer, TransportKind};
use crate::capture::{CapturePoint, CaptureSink};
use crate::flow::{ClientShare, Usage, policy};
use crate::rpc::ConnectionRef;
use crate::transfer::TransferLimits;

/// A provider, shared by its connections.
pub type Fabric = Rc<RefCell<AnyProvider>>;

/// A connection request to accept.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRequest<'a> {
    /// Its queue pair.
    pub queue_pair: QueuePairId,
    /// The client's address.
    pub peer: SocketAddr,
    /// The client's private data.
    pub private_data: &'a [u8],
}

/// One connection of a client.
pub struct RdmaConnection {
    identity: ConnectionRef,
    fabric: Fabric,
    /// Its listener.
    pub provider: FabricId,
    queue_pair: QueuePairId,
    terms: Terms,
    inline: Cell<Inline>,
    /// Concurrent RDMA Reads, the client's and ours.
    depths: Cell<ReadDepths>,
    /// Whether the provider can invalidate keys of the client.
    invalidates: bool,
    version: Cell<Option<Version>>,
    /// Its receives and credits.
    pub(super) credit_state: CreditState,
    /// Posted transfers that its client has not completed yet.
    transfers: Transfers,
    /// No export admits its client.
    unadmitted: Cell<bool>,
    /// It was asked to end in order.
    leaving: Cell<bool>,
    /// One of its calls was refused, and will never be answered.
    refused_calls: Cell<bool>,
    /// Kept so that a reply can always be sent, even with an empty pool (conformance row
    /// RR1-CRED-11).
    reply_reserve: RefCell<Option<Buffer>>,
    /// Entries of the send queue.
    send_depth: usize,
    /// A reply that waits for space in the send queue, ahead of the chains in line.
    unsent: RefCell<Option<Prepared>>,
    /// Chains that wait for space in the send queue.
    line: TurnQueue,
    /// The space in the send queue needed by the first waiting chain.
    room_awaited: Cell<usize>,
    /// Calls from the server to the client.
    pub(super) reverse: Reverse,
    /// Rarely used features.
    pub compat: Compatibility,
    counters: ConnectionCounters,
    /// The destination of its messages while it is captured.
    pub(super) capture: CapturePoint,
}

impl RdmaConnection {
    /// Accepts a connection request: posts the first receives, then answers with our private data.
    /// `None` if there is no memory for that, or the client has reached its share; the request is
    /// then rejected.
    pub fn accept<S>(
        shared: &ResponderShared<S>,
        fabric: &Fabric,
        provider: FabricId,
        request: &ConnectionRequest<'_>,
        limits: QueuePairLimits,
        now: Instant,
    ) -> Option<Rc<Self>> {
        let settings = shared.settings.get();
        let peer = Peer::new(request.peer, TransportKind::Rdma);
        let queue_pair = request.queue_pair;
        let Some(client) = shared.flow.join(peer.address) else {
            fabric.borrow_mut().reject(queue_pair, &[]);
            return None;
        };
        let identity = ConnectionRef::new(&shared.flow, client, peer, now);
        let connection = Self {
            credit_state: CreditState::new(&identity, settings.receive_class()),
            identity,
            fabric: Rc::clone(fabric),
            provider,
            queue_pair,
            terms: Terms::of(&settings),
            inline: Cell::new(Inline::of_peer(request.private_data, &settings)),
            depths: Cell::default(),
            invalidates: fabric.borrow().remote_invalidation().sends,
            version: Cell::new(None),
            transfers: Transfers::new(),
            unadmitted: Cell::new(false),
            leaving: Cell::new(false),
            refused_calls: Cell::new(false),
            reply_reserve: RefCell::new(shared.keep(Class::Control)),
            send_depth: limits.send_depth as usize,
            unsent: RefCell::default(),
            line: TurnQueue::default(),
            room_awaited: Cell::new(0),
            reverse: Reverse::default(),
            compat: Compatibility::new(limits.exposures > 0),
            counters: ConnectionCounters::default(),
            capture: CapturePoint::default(),
        };
        connection.credit_state.open(&shared.flow);
        connection.post_receives(shared, policy::FIRST_RECEIVES);
        let parameters = ConnectParameters {
            limits,
            private_data: private_data(&settings),
        };
        let ready = connection.posted() == policy::FIRST_RECEIVES
            && connection.reply_reserve.borrow().is_some();
        if !ready || fabric.borrow_mut().accept(queue_pair, parameters).is_err() {
            fabric.borrow_mut().reject(queue_pair, &[]);
            connection.disconnected(shared);
            shared.flow.counters().turned_away.increment();
            return None;
        }
        Some(Rc::new(connection))
    }

    /// The identity used by its calls.
    #[must_use]
    pub fn identity(&self) -> &ConnectionRef {
        &self.identity
    }

    /// Its identifier, unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.identity.id()
    }

    /// Its client's share of the reactor.
    #[must_use]
    pub fn share(&self) -> &Rc<ClientShare> {
        self.identity.share()
    }

    /// Its usage counters.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        self.identity.usage()
    }

    /// The name of the provider that carries it.
    #[must_use]
    pub fn provider_name(&self) -> &'static str {
        self.fabric.borrow().name()
    }

    /// Our address and port, if the provider reports them.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.fabric.borrow().local_address(self.queue_pair)
    }

    /// The name of its device, if the provider has devices.
    #[must_use]
    pub fn device_name(&self) -> Option<String> {
        self.fabric.borrow().device_name(self.queue_pair)
    }

    /// Its queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePairId {
        self.queue_pair
    }

    /// The client.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.identity.peer()
    }

    /// The settings it was made with.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The limits agreed by private data, or later by the configuration protocol.
    #[must_use]
    pub fn inline(&self) -> Inline {
        self.inline.get()
    }

    /// Concurrent RDMA Reads, the client's and ours.
    pub(super) fn depths(&self) -> ReadDepths {
        self.depths.get()
    }

    /// Records the read depths of the established connection.
    pub(super) fn established(&self, depths: ReadDepths) {
        self.depths.set(depths);
    }

    /// Applies limits set by the client: bytes of a Send, and concurrent RDMA Reads.
    pub(super) fn limit(&self, send: usize, reads: u16) {
        self.inline.set(Inline {
            send,
            ..self.inline.get()
        });
        let mut fabric = self.fabric.borrow_mut();
        fabric.limit_reads(self.queue_pair, reads);
    }

    /// The version of the latest call (RFC 8167 section 5.1), if there was one.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version.get()
    }

    /// Records the version of a call.
    pub(super) fn spoke<S>(&self, shared: &ResponderShared<S>, version: Version) {
        if self.version.get() != Some(version) && !self.is_broken() {
            let counters = shared.flow.counters();
            counters.count_version(self.version.replace(Some(version)), Some(version));
        }
    }

    /// Whether replies can invalidate keys of the client, if the client agrees.
    #[must_use]
    pub fn invalidates(&self) -> bool {
        self.invalidates
    }

    /// When it was accepted.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.identity.since()
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> &ConnectionCounters {
        &self.counters
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.identity.has_ended()
    }

    /// Whether no export admits its client, which then gets one credit only.
    #[must_use]
    pub fn is_unadmitted(&self) -> bool {
        self.unadmitted.get()
    }

    /// Records whether an export admits its client.
    pub(super) fn set_unadmitted(&self, unadmitted: bool) {
        self.unadmitted.set(unadmitted);
    }

    /// Whether it has no call in service, no unsent reply, and no reply to be fetched.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let (_, _, in_service) = self.credits();
        in_service == 0 && !self.has_waiting_senders() && self.compat.exposed_replies() == 0
    }

    /// Ends the connection in order; repeated calls have no effect.
    pub fn leave(&self) {
        if !self.leaving.replace(true) {
            self.close(false);
        }
    }

    /// Whether one of its calls was refused. Its client waits for the answer until the connection
    /// ends, and repeats the call on the next one, so no further call is accepted.
    pub(super) fn has_refused_calls(&self) -> bool {
        self.refused_calls.get()
    }

    /// Records that a call was refused. Returns whether it was the first one.
    pub(super) fn set_refused_calls(&self) -> bool {
        !self.refused_calls.replace(true)
    }

    /// Permits more posted receives than when it was made.
    pub(super) fn deepen_receives(&self, receive_depth: u32) {
        let mut fabric = self.fabric.borrow_mut();
        fabric.deepen_receives(self.queue_pair, receive_depth);
    }

    /// Ends the connection in order, or at once.
    pub fn close(&self, at_once: bool) {
        let mut fabric = self.fabric.borrow_mut();
        if at_once {
            fabric.abort(self.queue_pair);
        } else {
            fabric.close(self.queue_pair);
        }
    }

    /// Copies its messages from now on. False if it has ended, or another capture is in progress.
    pub fn capture(&self, sink: CaptureSink) -> bool {
        !self.is_broken() && self.capture.attach(sink)
    }

    /// Records the end of the connection, and wakes all its waiters.
    pub fn disconnected<S>(&self, shared: &ResponderShared<S>) {
        self.identity.end();
        self.credit_state.close(shared);
        let counters = shared.flow.counters();
        counters.count_version(self.version.get(), None);
        self.reply_reserve.borrow_mut().take();
        self.unsent.take();
        self.line.end();
        self.reverse.end(shared);
        self.compat.disconnected(shared, self);
        self.capture.end();
    }

    /// Posts a waiting reply, and wakes the first waiting chain, if there is space for them.
    pub fn wake_sender<S>(self: &Rc<Self>, shared: &ResponderShared<S>) {
        if self.has_unsent() {
            self.post_unsent(shared);
        }
        if !self.line.is_empty()
            && !self.has_unsent()
            && self.send_room() >= self.room_awaited.get()
        {
            self.line.wake();
        }
    }

    /// Posts a reply whose call has no task. If there is no space for it in the send queue, it is
    /// kept until there is.
    pub(super) fn send_at_once<S>(
        self: &Rc<Self>,
        shared: &ResponderShared<S>,
        mut reply: Prepared,
    ) {
        if reply.chain.len() <= self.send_depth {
            match self.try_post(shared, &mut reply.chain) {
                Ok(()) => return reply.sent(shared, self, Ok(())),
                Err(PostError::Closed) => return reply.sent(shared, self, Err(Broken)),
                Err(PostError::Full) => {}
            }
        }
        self.keep_unsent(shared, reply);
    }

    #[cold]
    fn keep_unsent<S>(self: &Rc<Self>, shared: &ResponderShared<S>, reply: Prepared) {
        if !self.is_broken() {
            self.counters.send_waits.add(1);
            shared.counters.send_waits.add(1);
            *self.unsent.borrow_mut() = Some(reply);
            shared.note_full(self);
        }
    }

    /// Posts as much of the waiting reply as there is space for.
    #[cold]
    fn post_unsent<S>(self: &Rc<Self>, shared: &ResponderShared<S>) {
        let Some(mut reply) = self.unsent.take() else {
            return;
        };
        while !reply.chain.is_empty() {
            let part = chain::separable(&reply.chain, self.send_depth);
            if self.send_room() < part {
                *self.unsent.borrow_mut() = Some(reply);
                return;
            }
            if self.post_part(shared, &mut reply.chain, part).is_err() {
                return reply.sent(shared, self, Err(Broken));
            }
        }
        reply.sent(shared, self, Ok(()));
    }

    fn has_unsent(&self) -> bool {
        self.unsent.borrow().is_some()
    }

    /// Whether replies can be posted without waiting for others, and without read chunks.
    #[inline]
    pub(super) fn answers_at_once(&self) -> bool {
        !self.has_waiting_senders() && !self.compat.exposes(Version::One)
    }

    fn send_room(&self) -> usize {
        self.fabric.borrow().send_room(self.queue_pair)
    }

    /// Whether chains wait for space.
    #[must_use]
    pub fn has_waiting_senders(&self) -> bool {
        !self.line.is_empty() || self.has_unsent()
    }

    /// A buffer for a reply. There is always one, at the latest when an earlier reply has been
    /// sent.
    ///
    /// # Errors
    /// The connection has ended, or ends because its client does not complete earlier replies.
    pub(super) async fn reply_buffer<S>(
        &self,
        shared: &ResponderShared<S>,
    ) -> Result<Buffer, Broken> {
        if let Some(buffer) = shared.pool.try_obtain(Class::Control) {
            return Ok(buffer);
        }
        // The reserve is for an empty pool, not for exceeding the client's share.
        if self.identity.memory().share().has_room(Class::Control)
            && let Some(reserve) = self.reply_reserve.take()
        {
            self.identity.memory().charge(&reserve);
            return Ok(reserve);
        }
        self.counters.buffer_waits.add(1);
        shared.counters.buffer_waits.add(1);
        let obtained = shared.pool.obtain(Class::Control).await;
        obtained.map_err(|error| self.no_memory(error))
    }

    /// Records that memory needed to answer a call was not available in time.
    #[cold]
    pub(super) fn no_memory(&self, error: NoMemory) -> Broken {
        if error == NoMemory::Late && !self.is_broken() {
            tracing::warn!(
                client = %self.peer().address,
                port = self.peer().port,
                "connection closed: {error}"
            );
            self.close(true);
        }
        Broken
    }

    /// The memory account of its calls.
    #[must_use]
    pub fn memory(&self) -> &Rc<MemoryAccount> {
        self.identity.memory()
    }

    /// Posts a chain, waiting in turn for space in the send queue. A chain longer than the queue is
    /// posted in parts and stays first in line until its last part, so chains end in the order of
    /// their arrival.
    pub(super) async fn post<S>(
        self: &Rc<Self>,
        shared: &ResponderShared<S>,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), Broken> {
        if !self.has_waiting_senders() && chain.len() <= self.send_depth {
            match self.try_post(shared, chain) {
                Ok(()) => return Ok(()),
                Err(PostError::Closed) => return Err(Broken),
                Err(PostError::Full) => {}
            }
        }
        if self.is_broken() {
            return Err(Broken);
        }
        self.counters.send_waits.add(1);
        shared.counters.send_waits.add(1);
        let turn = self.line.join();
        shared.note_full(self);
        while !chain.is_empty() {
            let part = chain::separable(chain, self.send_depth);
            let turn = turn.until(|_| {
                self.room_awaited.set(part);
                let may = !self.has_unsent() && self.send_room() >= part;
                match self.is_broken() || may {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            turn.await;
            if self.is_broken() {
                return Err(Broken);
            }
            self.post_part(shared, chain, part)?;
        }
        Ok(())
    }

    /// Posts the first `part` work requests of a chain, which leaves the others.
    fn post_part<S>(
        &self,
        shared: &ResponderShared<S>,
        chain: &mut Vec<WorkRequest>,
        part: usize,
    ) -> Result<(), Broken> {
        let rest = match part == chain.len() {
            true => None,
            false => Some(chain.split_off(part)),
        };
        self.try_post(shared, chain).map_err(|_| Broken)?;
        if let Some(rest) = rest {
            *chain = rest;
        }
        Ok(())
    }

    /// Posts a chain and waits for its last work request, or the first failed one.
    pub(super) async fn post_and_wait<S>(
        self: &Rc<Self>,
        shared: &ResponderShared<S>,
        chain: &mut Vec<WorkRequest>,
    ) -> Outcome {
        let (token, wait) = shared.completions.register();
        for request in chain.iter_mut() {
            request.token = token;
        }
        match chain.last_mut() {
            Some(last) => last.signalled = true,
            None => return Ok(()),
        }
        self.post(shared, chain)
            .await
            .map_err(|Broken| WorkError::Flushed)?;
        wait.await
    }

    /// Makes memory readable for the client.
    pub(super) fn expose(&self, local: Slices) -> Result<Exposure, ExposeError> {
        let mut fabric = self.fabric.borrow_mut();
        let exposed = fabric.expose(self.queue_pair, local, Access::RemoteRead);
        exposed.map_err(|(error, _)| error)
    }

    /// The most slices that one RDMA Read fills. The work requests of a Read are posted together,
    /// so all of them must fit into the send queue.
    pub(super) fn read_slices(&self) -> usize {
        let most = self.fabric.borrow().read_slices(self.queue_pair);
        most.min(self.send_depth.saturating_mul(SLICES_MAX)).max(1)
    }

    /// The most slices that one key covers.
    pub(super) fn exposure_slices(&self) -> usize {
        self.fabric.borrow().exposure_slices().clamp(1, SLICES_MAX)
    }

    /// Ends an exposure by [`RdmaConnection::expose`].
    pub(super) fn revoke(&self, key: Key) -> Revoked {
        self.fabric.borrow_mut().revoke(self.queue_pair, key)
    }

    /// Posts a chain if there is space for it in the send queue.
    pub(super) fn try_post<S>(
        &self,
        shared: &ResponderShared<S>,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let size = ChainSize::of(chain);
        self.hand_over(chain)?;
        self.transfers.posted(size, || self.in_send_queue());
        shared.transfers.begin(|| shared.clock.now());
        Ok(())
    }

    /// Requests in its send queue.
    fn in_send_queue(&self) -> usize {
        let room = self.fabric.borrow().send_room(self.queue_pair);
        self.send_depth.saturating_sub(room)
    }

    /// Whether posted transfers are not completed.
    pub(super) fn has_transfers(&self) -> bool {
        self.transfers.has_some()
    }

    /// The direction of the oldest of these, if it is too slow.
    pub(super) fn too_slow(
        &self,
        now: Instant,
        limits: &TransferLimits,
    ) -> Option<TransferDirection> {
        if self.is_broken() || !self.transfers.has_some() {
            return None;
        }
        self.transfers.too_slow(self.in_send_queue(), now, limits)
    }

    fn hand_over(&self, chain: &mut Vec<WorkRequest>) -> Result<(), PostError> {
        let post = |chain: &mut Vec<WorkRequest>| {
            let mut fabric = self.fabric.borrow_mut();
            fabric.post(self.queue_pair, chain)
        };
        if self.capture.is_on() {
            return self.capture.post(chain, post);
        }
        post(chain)
    }

    /// Passes a receive to the provider; returns whether it was accepted.
    pub(super) fn push_receive(&self, mut buffer: Buffer) -> bool {
        buffer.indent(self.compat.indent());
        let mut fabric = self.fabric.borrow_mut();
        fabric.post_receive(self.queue_pair, buffer).is_ok()
    }

    pub(super) fn refill_reserve<S>(&self, shared: &ResponderShared<S>) {
        let mut reserve = self.reply_reserve.borrow_mut();
        if reserve.is_none() && !self.is_broken() {
            *reserve = shared.keep(Class::Control);
        }
    }
}
