//! Calls under RPCSEC_GSS (RFC 2203), with contexts of given keys.

#[path = "../support/initiator.rs"]
mod initiator;
#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod bodies_under_faults;
mod calls;
mod creation;
mod exports;
mod repetitions;
mod transports;

use std::cell::Cell;
use std::ops::Deref;

use millrace::access::SecurityList;
use millrace::rpc::{GssAuthenticator, GssLimits};
use millrace_gss::{Enctype, GssService as Contexts};
use millrace_wire::nfs3::{self, Procedure};
use millrace_wire::rpc::{GssService, ReplyHeader};
use millrace_wire::xdr::Encode;

use initiator::{Called, Initiator, user};
use support::message::encoded;
use support::{Bench, Chunks, Replied};

/// All services.
const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];

const NULL: Called = (nfs3::PROGRAM, nfs3::VERSION, 0);

/// A server of contexts with given keys, and a client with one of them.
struct World {
    bench: Bench,
    contexts: Contexts,
    client: Initiator,
    xid: Cell<u32>,
}

impl Deref for World {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl World {
    fn new(security: impl Into<SecurityList>) -> Self {
        Self::with(initiator::contexts(), security)
    }

    fn with(contexts: Contexts, security: impl Into<SecurityList>) -> Self {
        let mut rules = support::rules("/export");
        rules.security = security.into();
        Self::over(contexts, Bench::with(rules))
    }

    fn over(contexts: Contexts, bench: Bench) -> Self {
        // A slice that even short bodies have many of.
        let limits = GssLimits {
            slice: 64,
            ..GssLimits::default()
        };
        let gss = GssAuthenticator::new(&contexts, limits);
        let _ = bench.service.clone().with_gss(gss);
        let client = Initiator::new(&contexts, user(0), Enctype::Aes256Sha1);
        Self {
            bench,
            contexts,
            client,
            xid: Cell::new(100),
        }
    }

    fn xid(&self) -> u32 {
        self.xid.set(self.xid.get() + 1);
        self.xid.get()
    }

    fn send(&self, message: &[u8]) -> Replied {
        self.bench.send(message, &[], &mut Chunks::default())
    }

    /// Sends a message whose call waits for helper threads.
    fn send_until_done(&self, message: &[u8]) -> Vec<u8> {
        self.bench.send_until_done(message)
    }

    /// The results of a call of the client.
    fn call(
        &self,
        called: Called,
        service: GssService,
        arguments: &impl Encode,
    ) -> Result<Vec<u8>, ReplyHeader<'static>> {
        self.call_by(&self.client, called, service, arguments)
    }

    fn call_by(
        &self,
        client: &Initiator,
        called: Called,
        service: GssService,
        arguments: &impl Encode,
    ) -> Result<Vec<u8>, ReplyHeader<'static>> {
        let message = client.call(self.xid(), called, service, &encoded(arguments));
        let reply = self.send(&message).gathered();
        client.results(service, client.sequence.get(), &reply)
    }
}

fn nfs(procedure: Procedure) -> Called {
    (nfs3::PROGRAM, nfs3::VERSION, procedure.number())
}
