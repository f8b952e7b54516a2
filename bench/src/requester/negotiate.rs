//! Which version a connection speaks (version two draft section 6).
//!
//! If version two is offered, the first message of a connection is a NULL call in version two,
//! short enough for every server, and nothing else is sent until its answer is here. NULL changes
//! nothing, so it may be lost or come twice.
//!
//! | answer | with version one offered as well | version two alone |
//! | --- | --- | --- |
//! | a reply | version two | version two |
//! | ERR_VERS with version one in its range | version one, on the same connection | [`State::NoVersion`] |
//! | ERR_VERS without any version that is left to try | [`State::NoVersion`] | [`State::NoVersion`] |
//! | another error: no server of version two sends it for a sound NULL | version one, on the same connection | [`State::NoVersion`] |
//! | none, or the end of the connection | [`State::Down`], and the next connection begins with version one | [`State::Down`] |

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_mempool::Class;
use millrace_reactor::fabric::{Operation, Provider, WorkRequest};
use millrace_wire::nfs3;
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{CallHeader, Credential, MessageType, OpaqueAuth};
use millrace_wire::rpcrdma::{CallChunks, MIN_INLINE, Outgoing, Version, Versions, encode_header};
use millrace_wire::xdr::{Encode, Encoder};

use super::call::CallError;
use super::connection::{Connection, State};
use super::deliver::Sink;
use super::send::NOBODY;
use super::slot::{Ending, Stage};

/// Most servers that are remembered; the oldest makes room.
const SERVERS_MAX: usize = 1024;

/// Servers that seem to speak version one only, for a while. Clones share what they know.
#[derive(Clone, Debug)]
pub struct VersionMemory {
    period: Duration,
    servers: Arc<Mutex<Vec<(SocketAddr, Instant)>>>,
}

impl VersionMemory {
    /// An empty memory that keeps a server for so long.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            servers: Arc::default(),
        }
    }

    /// Whether a server is remembered.
    #[must_use]
    pub fn holds(&self, address: SocketAddr, now: Instant) -> bool {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut servers = servers.iter();
        servers.any(|&(server, until)| server == address && now < until)
    }

    fn keep(&self, address: SocketAddr, now: Instant) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|&(server, until)| server != address && now < until);
        if servers.len() >= SERVERS_MAX {
            servers.remove(0);
        }
        servers.push((address, now + self.period));
    }
}

impl Default for VersionMemory {
    /// Ten minutes.
    fn default() -> Self {
        Self::new(Duration::from_secs(600))
    }
}

/// How far a connection is with finding its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The version is known.
    Known,
    /// The first message has not left.
    ToSend,
    /// Its answer is awaited.
    Sent,
    /// No answer in time: the connection is ending.
    Lost,
    /// The answer was an error, and version one has not brought a reply yet.
    FellBack,
}

/// The search for the version of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiation {
    step: Step,
    xid: u32,
    /// By when the answer must be here.
    deadline: Option<Instant>,
}

impl Negotiation {
    pub const KNOWN: Self = Self {
        step: Step::Known,
        xid: 0,
        deadline: None,
    };

    /// Whether this is the answer that is awaited.
    pub fn awaits(&self, xid: u32) -> bool {
        self.step == Step::Sent && self.xid == xid
    }

    /// A good reply has come.
    pub fn confirm(&mut self) {
        if self.step == Step::FellBack {
            self.step = Step::Known;
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives up waiting when it is time, and says so: the connection is to end.
    pub fn expire(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        if late {
            self.deadline = None;
            self.step = Step::Lost;
        }
        late
    }
}

impl Connection {
    /// The version in use, once it is known.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        (self.state == State::Ready).then_some(self.version)
    }

    /// Whether the connection was lost in a way that makes the next one begin with version one.
    #[must_use]
    pub const fn falls_back(&self) -> bool {
        self.falls_back
    }

    /// Chooses what a new connection begins with.
    pub(super) fn choose_version(&mut self, now: Instant) {
        let versions = self.settings.versions;
        let remembered =
            versions == Versions::BOTH && self.settings.version_memory.holds(self.address, now);
        self.falls_back = false;
        self.negotiation = Negotiation::KNOWN;
        if !versions.serves(Version::Two) || remembered {
            self.speak(Version::One);
            return;
        }
        self.speak(Version::Two);
        self.negotiation.step = Step::ToSend;
        self.negotiation.xid = self.own_xid();
    }

    /// An XID of the connection's own messages: far away from those of calls.
    pub(super) fn own_xid(&mut self) -> u32 {
        self.own_xids = self.own_xids.wrapping_add(1);
        self.own_xids
    }

    fn speak(&mut self, version: Version) {
        self.version = version;
        self.rules.versions = Versions::new(version, version);
    }

    /// The connection stands: calls may travel, or the search begins.
    pub(super) fn stand(&mut self, now: Instant) {
        self.measure();
        let mut wait = self.settings.settle + self.settings.negotiation;
        if self.negotiation.step == Step::ToSend {
            wait += self.settings.negotiation;
        }
        let deadline = self.configuration.wait_until(now + wait);
        self.note_deadline(deadline);
        if self.negotiation.step == Step::ToSend {
            // Time is left for another connection.
            let patience = self.settings.negotiation.min(self.settings.timeout / 2);
            let deadline = now + self.settings.settle + patience;
            self.negotiation.deadline = Some(deadline);
            self.note_deadline(Some(deadline));
            self.state = State::Negotiating;
        } else {
            self.state = State::Ready;
        }
    }

    /// Sizes of Sends: as both sides told them in private data (RFC 8797 section 4); else the
    /// version's own, and never more than the one side that spoke said of itself.
    fn measure(&mut self) {
        let (ours, peer) = (self.settings.private_data, self.peer);
        let (send, receive) = match (ours, peer) {
            (Some(ours), Some(peer)) => (ours.inline_to(&peer), peer.inline_to(&ours)),
            (None, Some(peer)) if self.version == Version::Two => {
                let all = PrivateData {
                    remote_invalidation: false,
                    send_size: self.version.min_inline(),
                    receive_size: self.version.min_inline(),
                };
                (all.inline_to(&peer), peer.inline_to(&all))
            }
            _ => (self.version.min_inline(), self.version.min_inline()),
        };
        self.send_limit = send;
        self.receive_limit = receive;
    }

    /// Sends the first message. Returns the messages sent.
    pub(super) fn negotiate(&mut self, provider: &mut dyn Provider) -> usize {
        let may_send = self.negotiation.step == Step::ToSend
            && self.receives > 0
            && provider.send_room(self.queue_pair) > 0;
        if !may_send || self.send_null(provider).is_none() {
            return 0;
        }
        self.negotiation.step = Step::Sent;
        self.window.sent();
        1
    }

    fn send_null(&mut self, provider: &mut dyn Provider) -> Option<()> {
        let mut buffer = self.pool.try_acquire(Class::Control)?;
        let mut out = Encoder::new(&mut buffer[..MIN_INLINE]);
        let xid = self.negotiation.xid;
        let header = Outgoing {
            version: Version::Two,
            xid,
            credits: self.window.wish(),
            inline: true,
            direction: MessageType::Call,
            invalidate: 0,
        };
        let call = CallHeader {
            xid,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: nfs3::Procedure::Null as u32,
            credential: Credential::Other(OpaqueAuth::NONE),
            verifier: OpaqueAuth::NONE,
        };
        encode_header(&mut out, &header, &CallChunks::default()).ok()?;
        call.encode(&mut out).ok()?;
        let length = out.position();
        self.post_message(provider, buffer.into_slice(0..length))
    }

    /// Posts one message of the connection's own.
    pub(super) fn post_message(
        &mut self,
        provider: &mut dyn Provider,
        message: millrace_mempool::Slice,
    ) -> Option<()> {
        self.scratch.chain.push(WorkRequest {
            token: NOBODY,
            operation: Operation::Send {
                invalidate: None,
                solicited: false,
            },
            local: std::iter::once(message).collect(),
            signalled: false,
        });
        let posted = provider.post(self.queue_pair, &mut self.scratch.chain);
        self.scratch.chain.clear();
        posted.ok()
    }

    /// The answer to the first message is here: its grant, and the error if it is one.
    pub(super) fn on_version(
        &mut self,
        provider: &mut dyn Provider,
        grant: u32,
        error: Option<CallError>,
        sink: Sink<'_>,
    ) {
        self.negotiation.deadline = None;
        self.window.answered(grant, error.is_none());
        let Some(error) = error else {
            self.negotiation.step = Step::Known;
            self.state = State::Ready;
            return;
        };
        self.counters.errors += 1;
        let fits = match error {
            CallError::Version { low, high } => (low..=high).contains(&Version::One.number()),
            _ => true,
        };
        if fits && self.settings.versions.serves(Version::One) {
            self.negotiation.step = Step::FellBack;
            self.speak(Version::One);
            self.measure();
            self.state = State::Ready;
            return;
        }
        self.negotiation.step = Step::Known;
        self.state = State::NoVersion(error);
        provider.close(self.queue_pair);
        self.fail_queue(provider, error, sink);
    }

    /// Ends the calls that wait, for there is nobody to send them to.
    fn fail_queue(&mut self, provider: &mut dyn Provider, error: CallError, sink: Sink<'_>) {
        while let Some(index) = self.queue.pop_front() {
            self.slots[index as usize].stage = Stage::Ending(Ending::Failed(error));
            self.deliver(provider, index, sink);
        }
    }

    /// The connection is lost: what that tells of the server.
    pub(super) fn judge_loss(&mut self, now: Instant) {
        let suspicious = matches!(
            self.negotiation.step,
            Step::Sent | Step::Lost | Step::FellBack
        );
        if suspicious && self.settings.versions == Versions::BOTH {
            self.settings.version_memory.keep(self.address, now);
            self.falls_back = true;
        }
        self.negotiation = Negotiation::KNOWN;
    }
}
