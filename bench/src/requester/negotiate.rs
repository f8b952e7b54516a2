//! Which version a connection speaks (version two draft section 6).
//!
//! If version two is offered, the first message of a connection is a NULL call in version two,
//! short enough for every server, and nothing else is sent until its answer is here. NULL changes
//! nothing, so it may be lost or come twice.
//!
//! | answer | with version one offered as well | version two alone |
//! | --- | --- | --- |
//! | a reply | version two | version two |
//! | ERR_VERS with version one in its range | version one, on the same connection | [`RequesterState::NoVersion`] |
//! | ERR_VERS without any version that is left to try | [`RequesterState::NoVersion`] | [`RequesterState::NoVersion`] |
//! | another error: no server of version two sends it for a sound NULL | version one, on the same connection | [`RequesterState::NoVersion`] |
//! | none, or the end of the connection | [`RequesterState::Down`], and the next connection begins with version one | [`RequesterState::Down`] |

use std::time::Instant;

use millrace_mempool::{Class, Slice};
use millrace_reactor::fabric::{Provider, chain};
use millrace_wire::nfs3;
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{CallHeader, Credential, MessageType, OpaqueAuth};
use millrace_wire::rpcrdma::{MIN_INLINE, Version, Versions, encode_plain_header};
use millrace_wire::xdr::{Encode, Encoder};

use super::call::{CallError, Sink};
use super::connection::{Connection, RequesterState};
use super::slot::{Ending, Stage};
use super::version_search::{SearchStep, VersionSearch};

impl Connection {
    /// The version in use, once it is known.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        (self.state == RequesterState::Ready).then_some(self.version)
    }

    /// Whether the connection was lost in a way that makes the next one begin with version one.
    #[must_use]
    pub const fn falls_back(&self) -> bool {
        self.falls_back
    }

    /// Chooses the version that a new connection begins with.
    pub(super) fn choose_version(&mut self, now: Instant) {
        let versions = self.settings.versions;
        let remembered =
            versions == Versions::BOTH && self.settings.version_memory.holds(self.address, now);
        self.falls_back = false;
        self.negotiation = VersionSearch::KNOWN;
        if !versions.serves(Version::Two) || remembered {
            self.speak(Version::One);
            return;
        }
        self.speak(Version::Two);
        self.negotiation.step = SearchStep::ToSend;
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

    /// Handles the establishment of the connection: calls may be sent, or the search begins.
    pub(super) fn stand(&mut self, now: Instant) {
        self.measure();
        let mut wait = self.settings.settle + self.settings.negotiation;
        if self.negotiation.step == SearchStep::ToSend {
            wait += self.settings.negotiation;
        }
        let deadline = self.configuration.wait_until(now + wait);
        self.note_deadline(deadline);
        if self.negotiation.step == SearchStep::ToSend {
            // Time is left for another connection.
            let patience = self.settings.negotiation.min(self.settings.timeout / 2);
            let deadline = now + self.settings.settle + patience;
            self.negotiation.deadline = Some(deadline);
            self.note_deadline(Some(deadline));
            self.state = RequesterState::Negotiating;
        } else {
            self.state = RequesterState::Ready;
        }
    }

    /// Sizes of Sends: as both sides told them in private data (RFC 8797 section 4). A side that told
    /// nothing has the version's own.
    fn measure(&mut self) {
        let unstated = PrivateData::unstated(self.version);
        let ours = self.settings.private_data.unwrap_or(unstated);
        let peer = self.peer.unwrap_or(unstated);
        self.send_limit = ours.inline_to(&peer);
        self.receive_limit = peer.inline_to(&ours);
    }

    /// Sends the first message. Returns the messages sent.
    pub(super) fn negotiate(&mut self, provider: &mut dyn Provider) -> usize {
        let may_send = self.negotiation.step == SearchStep::ToSend
            && self.receives > 0
            && provider.send_room(self.queue_pair) > 0;
        if !may_send || self.send_null(provider).is_none() {
            return 0;
        }
        self.negotiation.step = SearchStep::Sent;
        self.window.sent();
        1
    }

    fn send_null(&mut self, provider: &mut dyn Provider) -> Option<()> {
        let call = CallHeader {
            xid: self.negotiation.xid,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: nfs3::Procedure::Null as u32,
            credential: Credential::Other(OpaqueAuth::NONE),
            verifier: OpaqueAuth::NONE,
        };
        let message = self.own_call(Version::Two, &call, &())?;
        self.post_message(provider, message)
    }

    /// Makes a call of the connection's own, under the rules of the start: one message of at most
    /// 1024 bytes.
    pub(super) fn own_call(
        &self,
        version: Version,
        call: &CallHeader<'_>,
        arguments: &impl Encode,
    ) -> Option<Slice> {
        let mut buffer = self.pool.try_acquire(Class::Control)?;
        let mut out = Encoder::new(&mut buffer[..MIN_INLINE]);
        let (xid, wish) = (call.xid, self.window.wish());
        encode_plain_header(&mut out, version, xid, wish, MessageType::Call).ok()?;
        call.encode(&mut out).ok()?;
        arguments.encode(&mut out).ok()?;
        let length = out.position();
        Some(buffer.into_slice(0..length))
    }

    /// Posts one message of the connection's own.
    pub(super) fn post_message(
        &mut self,
        provider: &mut dyn Provider,
        message: Slice,
    ) -> Option<()> {
        let local = std::iter::once(message).collect();
        self.scratch.chain.push(chain::plain_send(local));
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
            self.negotiation.step = SearchStep::Known;
            self.state = RequesterState::Ready;
            return;
        };
        self.counters.errors += 1;
        let fits = match error {
            CallError::Version { low, high } => (low..=high).contains(&Version::One.number()),
            _ => true,
        };
        if fits && self.settings.versions.serves(Version::One) {
            self.negotiation.step = SearchStep::FellBack;
            self.speak(Version::One);
            self.measure();
            self.state = RequesterState::Ready;
            return;
        }
        self.negotiation.step = SearchStep::Known;
        self.state = RequesterState::NoVersion(error);
        provider.close(self.queue_pair);
        self.fail_queue(provider, error, sink);
    }

    /// Ends the waiting calls, because there is no connection to send them on.
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
            SearchStep::Sent | SearchStep::Lost | SearchStep::FellBack
        );
        if suspicious && self.settings.versions == Versions::BOTH {
            self.settings.version_memory.keep(self.address, now);
            self.falls_back = true;
        }
        self.negotiation = VersionSearch::KNOWN;
    }
}
