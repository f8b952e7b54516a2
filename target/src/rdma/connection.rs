//! One connection: its beginning, its end and its place in the send queue.

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

/// A provider, shared by the connections that it carries.
pub type Fabric = Rc<RefCell<AnyProvider>>;

/// A connection request to be accepted.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRequest<'a> {
    /// The queue pair it came with.
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
    /// Which listener it came by.
    pub provider: FabricId,
    queue_pair: QueuePairId,
    terms: Terms,
    inline: Cell<Inline>,
    /// RDMA Reads at once, the client's and ours.
    depths: Cell<ReadDepths>,
    /// Whether the provider can invalidate keys of the client's.
    invalidates: bool,
    version: Cell<Option<Version>>,
    /// Its receives and credits.
    pub(super) credit_state: CreditState,
    /// What its client has not let go of yet.
    transfers: Transfers,
    /// No export admits its client.
    unadmitted: Cell<bool>,
    /// It was told to end in order.
    leaving: Cell<bool>,
    /// A call of its was refused, and will never be answered.
    refused_calls: Cell<bool>,
    /// Kept so that a reply can always be sent, however empty the pool (conformance row
    /// RR1-CRED-11).
    reply_reserve: RefCell<Option<Buffer>>,
    /// Entries of the send queue.
    send_depth: usize,
    /// Chains that wait for room in the send queue.
    line: TurnQueue,
    /// The room in the send queue that the chain at the head of the line needs.
    room_awaited: Cell<usize>,
    /// Calls from here to the client.
    pub(super) reverse: Reverse,
    /// What few peers use.
    pub compat: Compatibility,
    counters: ConnectionCounters,
    /// Where its messages are copied, while it is captured.
    pub(super) capture: CapturePoint,
}

impl RdmaConnection {
    /// Accepts a connection request: posts the first receives, then answers with our private
    /// data. `None` if there is no memory for even that, or the client holds all that it may have
    /// already; the request is rejected then.
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

    /// What its calls know of it.
    #[must_use]
    pub fn identity(&self) -> &ConnectionRef {
        &self.identity
    }

    /// Its identifier, unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.identity.id()
    }

    /// Its client's part of the reactor.
    #[must_use]
    pub fn share(&self) -> &Rc<ClientShare> {
        self.identity.share()
    }

    /// What it has used.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        self.identity.usage()
    }

    /// The name of the provider that carries it.
    #[must_use]
    pub fn provider_name(&self) -> &'static str {
        self.fabric.borrow().name()
    }

    /// Our address and port, if the provider tells.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.fabric.borrow().local_address(self.queue_pair)
    }

    /// The name of the device that it is on, if the provider has devices.
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

    /// What it was made with.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What private data settled, or the configuration protocol later.
    #[must_use]
    pub fn inline(&self) -> Inline {
        self.inline.get()
    }

    /// RDMA Reads at once, the client's and ours.
    pub(super) fn depths(&self) -> ReadDepths {
        self.depths.get()
    }

    /// Notes the read depths of the connection, which now stands.
    pub(super) fn established(&self, depths: ReadDepths) {
        self.depths.set(depths);
    }

    /// Takes up limits that the client has set: bytes of a Send, and RDMA Reads at once.
    pub(super) fn limit(&self, send: usize, reads: u16) {
        self.inline.set(Inline {
            send,
            ..self.inline.get()
        });
        let mut fabric = self.fabric.borrow_mut();
        fabric.limit_reads(self.queue_pair, reads);
    }

    /// The version of the latest call (RFC 8167 section 5.1), once there was one.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version.get()
    }

    /// Notes the version of a call.
    pub(super) fn spoke<S>(&self, shared: &ResponderShared<S>, version: Version) {
        if self.version.get() != Some(version) && !self.is_broken() {
            let counters = shared.flow.counters();
            counters.count_version(self.version.replace(Some(version)), Some(version));
        }
    }

    /// Whether replies can invalidate keys of the client's, where the client agrees.
    #[must_use]
    pub fn invalidates(&self) -> bool {
        self.invalidates
    }

    /// When it was accepted.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.identity.since()
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> &ConnectionCounters {
        &self.counters
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.identity.has_ended()
    }

    /// Whether no export admits its client, which therefore gets one credit only.
    #[must_use]
    pub fn is_unadmitted(&self) -> bool {
        self.unadmitted.get()
    }

    /// Notes whether an export admits its client.
    pub(super) fn set_unadmitted(&self, unadmitted: bool) {
        self.unadmitted.set(unadmitted);
    }

    /// Whether no call is being served, no reply waits to leave, and none is yet to be fetched.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let (_, _, in_service) = self.credits();
        in_service == 0 && !self.has_waiting_senders() && self.compat.exposed_replies() == 0
    }

    /// Ends the connection in order; once, however often it is asked.
    pub fn leave(&self) {
        if !self.leaving.replace(true) {
            self.close(false);
        }
    }

    /// Whether a call of its was refused. Its client waits for the answer until the connection
    /// ends, and sends the call again on the next one, so no other call is taken either.
    pub(super) fn has_refused_calls(&self) -> bool {
        self.refused_calls.get()
    }

    /// Notes that a call was refused. Whether it was the first one.
    pub(super) fn set_refused_calls(&self) -> bool {
        !self.refused_calls.replace(true)
    }

    /// Lets it have more receives posted than it was made for.
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

    /// Notes that the connection has ended, and wakes all who wait for it.
    pub fn disconnected<S>(&self, shared: &ResponderShared<S>) {
        self.identity.end();
        self.credit_state.close(shared);
        let counters = shared.flow.counters();
        counters.count_version(self.version.get(), None);
        self.reply_reserve.borrow_mut().take();
        self.line.end();
        self.reverse.end(shared);
        self.compat.disconnected(shared, self);
        self.capture.end();
    }

    /// Wakes the chain at the head of the queue once there is room for it.
    pub fn wake_sender(&self) {
        if !self.line.is_empty() && self.send_room() >= self.room_awaited.get() {
            self.line.wake();
        }
    }

    fn send_room(&self) -> usize {
        self.fabric.borrow().send_room(self.queue_pair)
    }

    /// Whether chains wait for room.
    #[must_use]
    pub fn has_waiting_senders(&self) -> bool {
        !self.line.is_empty()
    }

    /// A buffer for a reply: there is always one, at the latest when an earlier reply has left.
    ///
    /// # Errors
    /// The connection has ended, or ends because its client does not let go of earlier replies.
    pub(super) async fn reply_buffer<S>(
        &self,
        shared: &ResponderShared<S>,
    ) -> Result<Buffer, Broken> {
        if let Some(buffer) = shared.pool.try_obtain(Class::Control) {
            return Ok(buffer);
        }
        // The reserve is for when the pool has none, not for more than the client's share.
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

    /// Memory without which a call cannot be answered did not come.
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

    /// What its calls hold of its client's memory.
    #[must_use]
    pub fn memory(&self) -> &Rc<MemoryAccount> {
        self.identity.memory()
    }

    /// Posts a chain, waiting in line for room in the send queue. A chain longer than the queue
    /// leaves in parts and stays at the head of the line until its last part is posted, so chains
    /// end in the order in which they came.
    pub(super) async fn post<S>(
        self: &Rc<Self>,
        shared: &ResponderShared<S>,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), Broken> {
        if self.line.is_empty() && chain.len() <= self.send_depth {
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
                match self.is_broken() || self.send_room() >= part {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            turn.await;
            if self.is_broken() {
                return Err(Broken);
            }
            if part == chain.len() {
                self.try_post(shared, chain).map_err(|_| Broken)?;
            } else {
                let rest = chain.split_off(part);
                self.try_post(shared, chain).map_err(|_| Broken)?;
                *chain = rest;
            }
        }
        Ok(())
    }

    /// Posts a chain and waits for its last work request, or the first that fails.
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

    /// Most slices that one RDMA Read fills. The work requests of a Read are posted together, so
    /// all of them have room in the send queue.
    pub(super) fn read_slices(&self) -> usize {
        let most = self.fabric.borrow().read_slices(self.queue_pair);
        most.min(self.send_depth.saturating_mul(SLICES_MAX)).max(1)
    }

    /// Most slices that one key covers.
    pub(super) fn exposure_slices(&self) -> usize {
        self.fabric.borrow().exposure_slices().clamp(1, SLICES_MAX)
    }

    /// Ends what [`RdmaConnection::expose`] began.
    pub(super) fn revoke(&self, key: Key) -> Revoked {
        self.fabric.borrow_mut().revoke(self.queue_pair, key)
    }

    fn try_post<S>(
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

    /// Whether something is posted that its client has not let go of.
    pub(super) fn has_transfers(&self) -> bool {
        self.transfers.has_some()
    }

    /// Which way the oldest of that goes, if it moves too slowly.
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

    /// Hands a receive to the provider; whether it took it.
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
