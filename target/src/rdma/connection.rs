//! One connection: its receives, its credits and its place in the send queue.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Class};
use millrace_reactor::fabric::{
    Access, ConnectParameters, ExposeError, Exposure, Key, PostError, Provider, QueuePairId,
    QueuePairLimits, Revoked, Slices, WorkError, WorkRequest,
};

use super::exposures::{Exposures, Refused};
use super::line::{Line, Place};
use super::settings::{Inline, private_data};
use super::shared::{Outcome, Shared};
use super::{ConnectionCounters, credits};
use crate::call::{Broken, Peer, TransportKind};

/// A provider, shared by the connections that it carries.
pub type Fabric = Rc<RefCell<Box<dyn Provider>>>;

/// A connection request to be accepted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The queue pair it came with.
    pub queue_pair: QueuePairId,
    /// The client's address.
    pub peer: SocketAddr,
    /// The client's private data.
    pub private_data: &'a [u8],
}

/// One connection of a client.
pub struct Connection {
    fabric: Fabric,
    /// Which provider of the reactor carries it, for status.
    pub provider: usize,
    queue_pair: QueuePairId,
    peer: Peer,
    inline: Inline,
    since: Instant,
    receive_class: Class,
    /// Receives posted.
    posted: Cell<u32>,
    /// Calls in service: their receives are not posted, but will be before they are answered.
    in_service: Cell<u32>,
    /// Credits announced last.
    granted: Cell<u32>,
    /// The client's wish.
    wish: Cell<u32>,
    broken: Cell<bool>,
    /// Kept so that a reply can always be sent, however empty the pool (conformance row
    /// RR1-CRED-11).
    reply_reserve: RefCell<Option<Buffer>>,
    /// Entries of the send queue.
    send_depth: usize,
    /// Chains that wait for room in the send queue.
    line: Line,
    /// Replies that the client fetches; without any but in classic mode.
    pub exposures: Exposures,
    counters: ConnectionCounters,
}

impl Connection {
    /// Accepts a connection request: posts the first receives, then answers with our private
    /// data. `None` if there is no memory for even that; the request is rejected then.
    pub fn accept<S>(
        shared: &Shared<S>,
        fabric: &Fabric,
        provider: usize,
        request: &Request<'_>,
        limits: QueuePairLimits,
        now: Instant,
    ) -> Option<Rc<Self>> {
        let settings = shared.settings.get();
        let connection = Self {
            fabric: Rc::clone(fabric),
            provider,
            queue_pair: request.queue_pair,
            peer: Peer::new(request.peer, TransportKind::Rdma),
            inline: Inline::of_peer(request.private_data, &settings),
            since: now,
            receive_class: Class::for_size(settings.inline).unwrap_or(Class::Large),
            posted: Cell::new(0),
            in_service: Cell::new(0),
            granted: Cell::new(1),
            wish: Cell::new(1),
            broken: Cell::new(false),
            reply_reserve: RefCell::new(shared.keep(Class::Control)),
            send_depth: limits.send_depth as usize,
            line: Line::default(),
            exposures: Exposures::new(limits.exposures > 0),
            counters: ConnectionCounters::default(),
        };
        connection.post_receives(shared, credits::FIRST_RECEIVES);
        let parameters = ConnectParameters {
            limits,
            private_data: private_data(&settings),
        };
        let ready = connection.posted.get() == credits::FIRST_RECEIVES
            && connection.reply_reserve.borrow().is_some();
        let queue_pair = request.queue_pair;
        if !ready || fabric.borrow_mut().accept(queue_pair, parameters).is_err() {
            fabric.borrow_mut().reject(queue_pair, &[]);
            return None;
        }
        Some(Rc::new(connection))
    }

    /// Its queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePairId {
        self.queue_pair
    }

    /// The client.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What private data settled.
    #[must_use]
    pub fn inline(&self) -> Inline {
        self.inline
    }

    /// When it was accepted.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> &ConnectionCounters {
        &self.counters
    }

    /// Credits: wished for, granted, and calls in service.
    #[must_use]
    pub fn credits(&self) -> (u32, u32, u32) {
        (self.wish.get(), self.granted.get(), self.in_service.get())
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Notes that a posted receive was filled.
    pub fn received(&self) {
        self.posted.set(self.posted.get() - 1);
        self.in_service.set(self.in_service.get() + 1);
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

    /// Notes that the connection has ended, and wakes all who wait for it.
    pub fn disconnected<S>(&self, shared: &Shared<S>) {
        self.broken.set(true);
        self.posted.set(0);
        self.reply_reserve.borrow_mut().take();
        self.line.end(&shared.completions);
        self.exposures.disconnected(shared, self);
    }

    /// Wakes the chain at the head of the queue once there is room for it.
    pub fn wake_sender<S>(&self, shared: &Shared<S>) {
        if !self.line.is_empty() {
            let room = self.fabric.borrow().send_room(self.queue_pair);
            self.line.wake(room, &shared.completions);
        }
    }

    /// Whether chains wait for room.
    #[must_use]
    pub fn has_waiting_senders(&self) -> bool {
        !self.line.is_empty()
    }

    /// A buffer for a reply: there is always one, at the latest when an earlier reply has left.
    pub(super) async fn reply_buffer<S>(&self, shared: &Shared<S>) -> Buffer {
        if let Some(buffer) = shared.pool.try_acquire(Class::Control) {
            return buffer;
        }
        if let Some(reserve) = self.reply_reserve.take() {
            return reserve;
        }
        self.counters.buffer_waits.add(1);
        shared.counters.buffer_waits.add(1);
        shared.pool.acquire(Class::Control).await
    }

    /// Gives a served call's receive back, posts more or fewer as the client's wish asks, and
    /// returns the credits to announce: never more than receives now cover.
    pub(super) fn settle<S>(&self, shared: &Shared<S>, receive: Buffer, wish: u32) -> u32 {
        let most = shared.settings.get().credits;
        self.wish.set(wish);
        // Beyond the grant there is one for every RDMA_DONE that may come.
        let dones = self.exposures.receives();
        let wanted = credits::receives_wanted(wish, most) + dones;
        let announced = self.granted.get() + credits::SPARE_RECEIVES + dones;
        self.in_service.set(self.in_service.get() - 1);
        // A lower grant frees receives only once it has been announced.
        if self.covered() < wanted.max(announced) {
            self.post_receive(receive);
        }
        self.refill_reserve(shared);
        self.post_receives(shared, wanted);
        let covered = self.covered().saturating_sub(dones);
        let granted = credits::grant(credits::Inputs {
            wish,
            most,
            covered,
        });
        self.granted.set(granted);
        granted
    }

    /// Gives the receive of a message that gets no answer back.
    pub(super) fn settle_unanswered(&self, receive: Buffer) {
        self.in_service.set(self.in_service.get() - 1);
        self.post_receive(receive);
    }

    /// Posts a chain, waiting in line for room in the send queue. A chain longer than the queue
    /// leaves in parts and stays at the head of the line until its last part is posted, so chains
    /// end in the order in which they came.
    pub(super) async fn post<S>(
        self: &Rc<Self>,
        shared: &Shared<S>,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), Broken> {
        if self.line.is_empty() && chain.len() <= self.send_depth {
            match self.try_post(chain) {
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
        let mut place = Place::at_the_end(&self.line);
        shared.note_full(self);
        while !chain.is_empty() {
            let part = chain.len().min(self.send_depth);
            if place.wait(part, &shared.completions).await.is_err() || self.is_broken() {
                return Err(Broken);
            }
            if part == chain.len() {
                self.try_post(chain).map_err(|_| Broken)?;
            } else {
                let rest = chain.split_off(part);
                self.try_post(chain).map_err(|_| Broken)?;
                *chain = rest;
            }
        }
        drop(place);
        self.wake_sender(shared);
        Ok(())
    }

    /// Posts a chain and waits for its last work request, or the first that fails.
    pub(super) async fn post_and_wait<S>(
        self: &Rc<Self>,
        shared: &Shared<S>,
        chain: &mut Vec<WorkRequest>,
    ) -> Outcome {
        let (token, wait) = shared.completions.register();
        for request in chain.iter_mut() {
            request.token = token;
        }
        match chain.last_mut() {
            Some(last) => last.signalled = true,
            None => return Ok(Slices::new()),
        }
        self.post(shared, chain)
            .await
            .map_err(|Broken| WorkError::Flushed)?;
        wait.await
    }

    /// Makes memory readable for the client.
    pub(super) fn expose(&self, local: Slices) -> Result<Exposure, Refused> {
        let mut fabric = self.fabric.borrow_mut();
        let exposed = fabric.expose(self.queue_pair, local, Access::RemoteRead);
        exposed.map_err(|(error, _)| match error {
            ExposeError::Full => Refused::Full,
            ExposeError::Closed => Refused::Closed,
        })
    }

    /// Ends what [`Connection::expose`] began.
    pub(super) fn revoke(&self, key: Key) -> Revoked {
        self.fabric.borrow_mut().revoke(self.queue_pair, key)
    }

    fn try_post(&self, chain: &mut Vec<WorkRequest>) -> Result<(), PostError> {
        self.fabric.borrow_mut().post(self.queue_pair, chain)
    }

    fn covered(&self) -> u32 {
        self.posted.get() + self.in_service.get()
    }

    fn post_receives<S>(&self, shared: &Shared<S>, wanted: u32) {
        while self.covered() < wanted {
            let Some(buffer) = shared.keep(self.receive_class) else {
                return;
            };
            if !self.post_receive(buffer) {
                return;
            }
        }
    }

    fn post_receive(&self, buffer: Buffer) -> bool {
        let posted = self
            .fabric
            .borrow_mut()
            .post_receive(self.queue_pair, buffer)
            .is_ok();
        if posted {
            self.posted.set(self.posted.get() + 1);
        }
        posted
    }

    fn refill_reserve<S>(&self, shared: &Shared<S>) {
        let mut reserve = self.reply_reserve.borrow_mut();
        if reserve.is_none() && !self.is_broken() {
            *reserve = shared.keep(Class::Control);
        }
    }
}
