//! The connection: its state, and what its owner asks of it.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use millrace_mempool::{Class, Pool, Slice};
use millrace_reactor::fabric::{
    ConnectParameters, Ended, Provider, QueuePairId, QueuePairLimits, ReadDepths, WorkRequest,
};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcrdma::{
    CreditWindow, MIN_INLINE, ReadSegment, Rules, Segment, Version, Versions,
};

use super::call::CallError;
use super::configuration::Configuration;
use super::extensions::Extensions;
use super::fetches::Fetches;
use super::gss::GssContext;
use super::plan::{CallLimits, HEADER_MAX, ITEMS_MAX};
use super::reverse_service::Reverse;
use super::settings::Settings;
use super::slot::{CallSlot, Stage};
use super::version_search::VersionSearch;

/// Send queue entries beyond the credits.
const SPARE_SENDS: u32 = 8;

/// The state of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequesterState {
    /// The server has not answered yet.
    #[error("the server has not answered yet")]
    Connecting,
    /// The connection is established, and the version is being determined.
    #[error("the server has not answered the first message yet")]
    Negotiating,
    /// Calls travel.
    #[error("it stands")]
    Ready,
    /// The server refused the connection.
    #[error("the server refused it")]
    Rejected,
    /// The server speaks no version that is offered. The connection is closed.
    #[error("no common version of RPC-over-RDMA: {0}")]
    NoVersion(CallError),
    /// It ended, and may be made anew by [`Connection::reconnect`].
    #[error(transparent)]
    Down(Ended),
}

/// Counters of a connection, over all its queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls sent, also those sent again.
    pub sent: u64,
    /// Calls that ended with an RPC reply.
    pub replies: u64,
    /// Calls that ended with an RDMA_ERROR.
    pub errors: u64,
    /// Messages dropped: malformed, of unknown XID, or no replies at all.
    pub dropped: u64,
    /// Replies that contradicted the offered chunks.
    pub bad_replies: u64,
    /// Keys that the server invalidated, as it was allowed to.
    pub invalidated: u64,
    /// Keys that the server invalidated though it was not allowed to: each ended a connection.
    pub surprises: u64,
    /// Calls sent a second time with larger room.
    pub retried: u64,
    /// Calls of the server's.
    pub reverse_calls: u64,
    /// Messages of the server's answered with an RDMA_ERROR.
    pub refused: u64,
    /// Keys made.
    pub exposed: u64,
    /// Calls in each form: inline, chunked, long.
    pub forms: [u64; 3],
    /// Inline calls sent as RDMA_MSGP.
    pub padded: u64,
    /// Replies with read chunks.
    pub read_chunk_replies: u64,
    /// RDMA Reads of the server's memory.
    pub reads: u64,
    /// RDMA_DONEs sent.
    pub dones: u64,
}

/// Vectors that are filled anew for each call.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub reads: Vec<ReadSegment>,
    pub writes: [Vec<Segment>; ITEMS_MAX],
    pub reply: Vec<Segment>,
    pub header: Vec<u8>,
    pub chain: Vec<WorkRequest>,
}

/// One connection to a server, and the calls in its hands.
///
/// The owner polls the provider, hands each event of this queue pair to
/// [`handle`](Self::handle), calls [`pump`](Self::pump) after submitting or handling, then flushes
/// the provider; and calls [`expire`](Self::expire) once in a while.
#[derive(Debug)]
pub struct Connection {
    pub(super) settings: Settings,
    pub(super) rules: Rules,
    pub(super) pool: Pool,
    pub(super) address: SocketAddr,
    pub(super) queue_pair: QueuePairId,
    /// The version of sent messages, and the progress of the search for it.
    pub(super) version: Version,
    pub(super) negotiation: VersionSearch,
    pub(super) falls_back: bool,
    /// The private data of the server.
    pub(super) peer: Option<PrivateData>,
    /// The newest XID of a message that is no call of an owner's.
    pub(super) own_xids: u32,
    pub(super) reverse: Reverse,
    pub(super) extensions: Extensions,
    /// Nominated keys of calls that were given up while their replies are owed.
    pub(super) forsaken: Vec<u32>,
    /// The exchange of limits, and what came of it.
    pub(super) configuration: Configuration,
    /// Zeros for alignment, if calls may be padded.
    pub(super) zeros: Option<Slice>,
    pub(super) state: RequesterState,
    pub(super) depths: ReadDepths,
    pub(super) send_limit: usize,
    pub(super) receive_limit: usize,
    pub(super) window: CreditWindow,
    pub(super) slots: Vec<CallSlot>,
    /// Bits of an XID that name the slot.
    pub(super) index_bits: u32,
    pub(super) free: Vec<u32>,
    pub(super) queue: VecDeque<u32>,
    pub(super) sequence: u64,
    /// Keys alive, and most that may be.
    pub(super) exposed: u32,
    pub(super) exposures: u32,
    /// Most slices under one key.
    pub(super) group: usize,
    /// Replies to fetch from the server's memory.
    pub(super) fetches: Fetches,
    /// Receives posted.
    pub(super) receives: u32,
    /// No deadline is earlier.
    pub(super) next_deadline: Option<Instant>,
    pub(super) scratch: Scratch,
    pub(super) counters: Counters,
}

impl Connection {
    /// Begins to connect.
    ///
    /// # Errors
    /// As [`ControlPath::connect`](millrace_reactor::fabric::ControlPath::connect); also if the
    /// pool has no buffers for the receives.
    pub fn connect(
        provider: &mut dyn Provider,
        pool: &Pool,
        address: SocketAddr,
        settings: Settings,
        now: Instant,
    ) -> io::Result<Self> {
        let calls = settings.calls.clamp(1, 1 << 16).next_power_of_two();
        let index_bits = calls.trailing_zeros();
        let seed = settings.first_xid.unwrap_or_else(random_word) & !(calls as u32 - 1);
        let slots = (0..calls as u32).map(|index| CallSlot {
            xid: seed.wrapping_sub(1 << index_bits) | index,
            ..CallSlot::default()
        });
        // A call needs keys for its segments in both directions, but few calls need many.
        let exposures = (calls * 4).max(settings.segments * 4 * ITEMS_MAX) as u32;
        let rules = Rules {
            versions: Versions::ONE,
            segments_per_chunk: usize::MAX,
            read_chunks: usize::MAX,
            write_chunks: usize::MAX,
            read_bytes: u64::MAX,
            padding: false,
            same_xid: true,
        };
        let mut connection = Self {
            rules,
            pool: pool.clone(),
            address,
            // Replaced at once.
            queue_pair: QueuePairId {
                index: u32::MAX,
                generation: u32::MAX,
            },
            version: Version::One,
            negotiation: VersionSearch::KNOWN,
            falls_back: false,
            peer: None,
            own_xids: seed ^ (1 << 31),
            reverse: Reverse::default(),
            extensions: Extensions::default(),
            forsaken: Vec::new(),
            configuration: Configuration::default(),
            zeros: None,
            state: RequesterState::Connecting,
            depths: ReadDepths::default(),
            send_limit: MIN_INLINE,
            receive_limit: MIN_INLINE,
            window: CreditWindow::new(settings.credits),
            slots: slots.collect(),
            index_bits,
            free: (0..calls as u32).rev().collect(),
            queue: VecDeque::with_capacity(calls),
            sequence: 0,
            exposed: 0,
            exposures,
            group: provider.exposure_slices(),
            fetches: Fetches::default(),
            receives: 0,
            next_deadline: None,
            scratch: Scratch {
                header: vec![0; HEADER_MAX],
                ..Scratch::default()
            },
            counters: Counters::default(),
            settings,
        };
        connection.open(provider, now)?;
        Ok(connection)
    }

    /// Makes a new connection for the calls that survived the old one. They are sent again in the
    /// order of their issue, with the same XIDs and new keys (RFC 5666 section 8); credits begin
    /// anew.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). The calls stay.
    pub fn reconnect(&mut self, provider: &mut dyn Provider, now: Instant) -> io::Result<()> {
        if self.state == RequesterState::Connecting || self.is_up() {
            return Ok(());
        }
        self.open(provider, now)
    }

    fn open(&mut self, provider: &mut dyn Provider, now: Instant) -> io::Result<()> {
        let receives = self.settings.receives();
        let limits = QueuePairLimits {
            send_depth: self.window.wish() + SPARE_SENDS + self.settings.reverse_credits,
            receive_depth: receives,
            ird: self.settings.ird,
            ord: self.settings.ord,
            exposures: self.exposures,
            receive_size: self.settings.receive_size() as u32,
        };
        let private_data = self.settings.private_data.map(|mut message| {
            // A server that reads this may invalidate at once, and some devices then end the
            // connection.
            message.remote_invalidation &= provider.remote_invalidation().receives;
            message.to_bytes()
        });
        let parameters = ConnectParameters {
            limits,
            private_data: private_data.iter().flatten().copied().collect(),
        };
        let queue_pair = provider.connect(self.address, parameters, now)?;
        self.queue_pair = queue_pair;
        self.state = RequesterState::Connecting;
        self.peer = None;
        self.extensions.forget();
        self.reverse.forget();
        self.choose_version(now);
        self.begin_configuration();
        self.prepare_padding();
        self.window = CreditWindow::new(self.settings.credits);
        if self.settings.expect_read_chunks || self.counters.read_chunk_replies > 0 {
            self.window.keep_room();
        }
        self.exposed = 0;
        self.receives = 0;
        let class = Class::for_size(self.settings.receive_size());
        while self.receives < receives {
            let buffer = class.and_then(|class| self.pool.try_acquire(class));
            let Some(buffer) = buffer else {
                provider.abort(queue_pair);
                self.state = RequesterState::Down(Ended::Local);
                let bytes = self.settings.receive_size();
                return Err(io::Error::other(format!(
                    "no memory for {receives} receives of {bytes} bytes"
                )));
            };
            if let Err((error, _)) = provider.post_receive(queue_pair, buffer) {
                provider.abort(queue_pair);
                self.state = RequesterState::Down(Ended::Local);
                return Err(io::Error::other(error));
            }
            self.receives += 1;
        }
        Ok(())
    }

    /// The queue pair of this connection.
    #[must_use]
    pub const fn queue_pair(&self) -> QueuePairId {
        self.queue_pair
    }

    /// The server's address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection's state.
    #[must_use]
    pub const fn state(&self) -> &RequesterState {
        &self.state
    }

    /// Whether messages can be sent and received.
    pub(super) const fn is_up(&self) -> bool {
        matches!(
            self.state,
            RequesterState::Negotiating | RequesterState::Ready
        )
    }

    /// The credit window.
    #[must_use]
    pub const fn window(&self) -> &CreditWindow {
        &self.window
    }

    /// The counters of the connection.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether calls survive the loss of the connection.
    #[must_use]
    pub const fn keeps_calls(&self) -> bool {
        self.settings.keep_calls
    }

    /// The server's limits on this connection, if it told them by the connection configuration
    /// protocol (RFC 5666 section 6).
    #[must_use]
    pub const fn configured(&self) -> Option<millrace_wire::ccp::Limits> {
        self.configuration.limits
    }

    /// The channel bindings given in [`Settings::channel_bindings`].
    #[must_use]
    pub fn channel_bindings(&self) -> Option<&[u8]> {
        self.settings.channel_bindings.as_deref()
    }

    /// The security context that calls are made under.
    #[must_use]
    pub const fn context(&self) -> Option<&Arc<GssContext>> {
        self.settings.context.as_ref()
    }

    /// Read depths in force.
    #[must_use]
    pub const fn depths(&self) -> ReadDepths {
        self.depths
    }

    /// Receives posted and not filled.
    #[must_use]
    pub const fn receives(&self) -> u32 {
        self.receives
    }

    /// Calls in the connection's hands: queued, sent, or given up while their reply is owed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether replies are being fetched, or RDMA_DONEs wait to be sent.
    #[must_use]
    pub fn is_fetching(&self) -> bool {
        !self.fetches.is_idle()
    }

    /// Calls that could be submitted now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// What decides on the form of the next call. Before the first good reply a call has at most
    /// 1024 bytes, whatever the peer told of itself (RFC 5666 section 6.1).
    #[must_use]
    pub fn limits(&self) -> CallLimits {
        let send = if self.window.is_open() {
            self.send_limit
        } else {
            self.send_limit.min(MIN_INLINE)
        };
        CallLimits {
            shortest: self.version.shortest(),
            send,
            receive: self.receive_limit,
            segments: self.settings.segments,
            reply_segments: self.settings.reply_segments,
            group: self.group,
            chunk_above: self.settings.chunk_above,
            long_calls: self.settings.long_calls,
            whole: match &self.settings.context {
                Some(context) => context.protects_bodies(),
                None => self.settings.identity.protects(),
            },
            offer_results: self.settings.offer_results,
            read_chunks: self.configuration.allows_read_chunks(),
        }
    }

    /// Closes in order. Calls end when [`Event::Disconnected`] comes.
    ///
    /// [`Event::Disconnected`]: millrace_reactor::fabric::Event::Disconnected
    pub fn close(&mut self, provider: &mut dyn Provider) {
        provider.close(self.queue_pair);
    }

    /// The slot that awaits a reply with this XID.
    pub(super) fn find(&self, xid: u32) -> Option<u32> {
        let index = xid & ((1 << self.index_bits) - 1);
        let slot = self.slots.get(index as usize)?;
        (slot.xid == xid && matches!(slot.stage, Stage::Sent)).then_some(index)
    }
}

/// XIDs of separate connections, and of separate runs, should not be the same: servers remember
/// the recent ones by client.
fn random_word() -> u32 {
    RandomState::new().hash_one(0_u8) as u32
}
