//! The connection configuration protocol (RFC 5666 section 6), asked as the first call.
//!
//! It is a call like any other under the rules of the start: one message of at most 1024 bytes, and
//! no other before its reply. Whatever but results comes back leaves the limits as they were. A
//! server that answers nothing at all is given up, and the next connection begins without it.

use millrace_reactor::fabric::Provider;
use millrace_wire::ccp::{self, Limits, Wish};
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth};
use millrace_wire::rpcrdma::{Body, Header, Version};

use super::call::Reply;
use super::configuration::{Configuration, ExchangeStep};
use super::connection::{Connection, RequesterState};

impl Connection {
    /// The agreed values were valid for the previous connection only.
    pub(super) fn begin_configuration(&mut self) {
        let wanted = self.settings.ccp.is_some() && self.settings.identity.is_somebody();
        let lost = matches!(
            self.configuration.step,
            ExchangeStep::Sent | ExchangeStep::Lost
        );
        self.configuration = Configuration::default();
        if wanted && !lost {
            self.configuration.step = ExchangeStep::ToSend;
            self.configuration.xid = self.own_xid();
        }
    }

    /// Sends the call when it may be sent. Returns the messages sent.
    pub(super) fn configure(&mut self, provider: &mut dyn Provider) -> usize {
        if self.state != RequesterState::Ready {
            return 0;
        }
        if self.version != Version::One {
            self.configuration.step = ExchangeStep::Over;
            return 0;
        }
        let may_send = self.configuration.step == ExchangeStep::ToSend
            && self.window.has_room()
            && self.receives > self.window.in_flight()
            && provider.send_room(self.queue_pair) > 0;
        if !may_send || self.ask(provider).is_none() {
            return 0;
        }
        self.configuration.step = ExchangeStep::Sent;
        self.window.sent();
        1
    }

    fn ask(&mut self, provider: &mut dyn Provider) -> Option<()> {
        let settings = self.settings.ccp?;
        let call = CallHeader {
            xid: self.configuration.xid,
            program: settings.program,
            version: ccp::VERSION,
            procedure: ccp::Procedure::Configure.number(),
            credential: Credential::Other(self.settings.identity.auth()),
            verifier: OpaqueAuth::NONE,
        };
        let wish = Wish {
            call_size: u32::try_from(settings.call_size).unwrap_or(u32::MAX),
            reply_size: u32::try_from(settings.reply_size).unwrap_or(u32::MAX),
            reads: u32::from(self.depths.ird),
        };
        let message = self.own_call(Version::One, &call, &wish)?;
        self.post_message(provider, message)
    }

    /// The answer is here: results, or anything else.
    pub(super) fn on_configuration(&mut self, header: &Header<'_>) {
        self.configuration.step = ExchangeStep::Over;
        self.configuration.deadline = None;
        let Body::Message { message, .. } = header.body else {
            // An RDMA_ERROR does not open the window.
            self.counters.errors += 1;
            self.window.answered(header.words.credits, false);
            return;
        };
        self.negotiation.confirm();
        self.window.answered(header.words.credits, true);
        let reply = Reply {
            message,
            written: &[],
        };
        if let (Ok(limits), Some(asked)) = (reply.results::<Limits>(), self.settings.ccp) {
            self.configuration.limits = Some(limits);
            self.send_limit = asked.call_size.min(limits.call_size as usize);
            // The server has not said how much it sends at most, unless by private data.
            let told = self.peer.map_or(usize::MAX, |peer| peer.send_size);
            self.receive_limit = asked.reply_size.min(told);
        }
    }
}
