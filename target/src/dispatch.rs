//! From an RPC message to the procedure that serves it, and back to an RPC message.
//!
//! Served are NFS version 3 and MOUNT version 3. Every other program, version or procedure is
//! answered as RFC 5531 section 9 says, and never with silence: a client that waits for an answer
//! in vain gives up its whole connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use millrace_store::{Caller, Store};
use millrace_wire::rpc::{
    AUTH_SHORT, Accepted, AuthStatus, CallError, CallHeader, Credential, Denied, Outcome,
    ReplyHeader, answer_to,
};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder, Error};
use millrace_wire::{mount, nfs3, rpcbind};

use crate::call::{
    Account, Answer, Bulk, BulkResult, Call, Reply, Serve, Shortage, TransportKind, TurnEnd,
};
use crate::counters::{Counters, Program, Size, Whose};
use crate::exports::{Exports, ExportsCounters};
use crate::flow::Flow;
use crate::handle::HandleKey;
use crate::latency::Noted;
use crate::mount3::Clients;
use crate::replay::{Entered, ReplayCache, Writer};
use crate::rpcbind::Offers;

mod journal;
mod mounts;
mod procedures;
mod throttle;

/// Bytes that the encoding of an answer that does not fit begins with, and gives up at: no answer
/// without its data is as long.
const OVERLONG_LEAST: usize = 1024;
const OVERLONG_MOST: usize = 256 << 10;

/// The programs of one reactor. Clones share everything.
pub struct Service<S> {
    inner: Rc<Inner<S>>,
}

impl<S> Clone for Service<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

struct Inner<S> {
    exports: RefCell<Exports<S>>,
    key: HandleKey,
    replay: ReplayCache,
    /// What this reactor's part of the cache is made to outlive the process with.
    journal: OnceCell<RefCell<Writer>>,
    clients: Clients,
    counters: Arc<Counters>,
    export_counters: ExportsCounters,
    answered: Noted<Whose>,
    /// What the port mapper tells over RDMA, where it is served there.
    offers: OnceCell<Arc<OnceLock<Offers>>>,
    /// The same after listeners have changed.
    later_offers: RefCell<Option<Arc<Offers>>>,
    /// What meters clients and exports, where anything does.
    flow: OnceCell<Flow>,
}

impl<S: Store> Service<S> {
    /// The programs over a table of exports. `replay` and `clients` are those of the whole
    /// process.
    #[must_use]
    pub fn new(exports: Exports<S>, key: HandleKey, replay: ReplayCache, clients: Clients) -> Self {
        let export_counters = ExportsCounters::default();
        export_counters.count(&exports);
        let exports = RefCell::new(exports);
        let counters = Arc::default();
        Self {
            inner: Rc::new(Inner {
                exports,
                key,
                replay,
                journal: OnceCell::new(),
                clients,
                counters,
                export_counters,
                answered: Noted::default(),
                offers: OnceCell::new(),
                later_offers: RefCell::default(),
                flow: OnceCell::new(),
            }),
        }
    }

    /// With the port mapper's programs for calls over RDMA (RFC 5666 section 10). Before `offers`
    /// is set nothing is told. The first one given counts.
    #[must_use]
    pub fn with_rpcbind(self, offers: &Arc<OnceLock<Offers>>) -> Self {
        let _ = self.inner.offers.set(Arc::clone(offers));
        self
    }

    /// Lets the port mapper's programs, where they are served, tell other offers from now on.
    pub fn replace_offers(&self, offers: &Arc<Offers>) {
        self.inner.later_offers.replace(Some(Arc::clone(offers)));
    }

    /// Records calls that must not be executed twice in a journal, where their exports outlive the
    /// process. The first one given counts.
    #[must_use]
    pub fn with_journal(self, journal: Writer) -> Self {
        let _ = self.inner.journal.set(RefCell::new(journal));
        self
    }

    /// Lets the limits of `flow` hold for all calls from here on. The first one given counts.
    #[must_use]
    pub fn with_flow(self, flow: &Flow) -> Self {
        let _ = self.inner.flow.set(flow.clone());
        self
    }

    /// Puts another table of exports in place. Calls that run finish with the one they began with.
    pub fn replace_exports(&self, exports: Exports<S>) {
        self.inner.export_counters.count(&exports);
        *self.inner.exports.borrow_mut() = exports;
    }

    /// The table of exports now.
    #[must_use]
    pub fn exports(&self) -> Exports<S> {
        self.inner.exports.borrow().clone()
    }

    /// What this reactor's programs have done.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.inner.counters.clone()
    }

    /// What calls have done with each export.
    #[must_use]
    pub fn export_counters(&self) -> ExportsCounters {
        self.inner.export_counters.clone()
    }
}

impl<S: Store> Serve for Service<S> {
    async fn serve<B: Bulk>(&self, call: Call<'_>, bulk: &mut B, reply: &mut Reply) -> Answer {
        let counters = &*self.inner.counters;
        let mut input = Decoder::with_taken(call.message, call.bulk).padded(call.padding);
        let admitted = self.admit(&mut input, reply);
        reply.is_call_valid = admitted.is_ok();
        let answer = match admitted {
            Ok((xid, Admitted::Nfs(procedure, caller))) => {
                let caller = caller.as_ref();
                self.nfs(&call, xid, caller, procedure, &mut input, bulk, reply)
                    .await
            }
            Ok((xid, Admitted::Mount(procedure))) => {
                self.mount(&call, xid, procedure, &mut input, reply).await
            }
            Ok((xid, Admitted::Rpcbind)) => self.rpcbind(&call, xid, reply),
            Err(answer) => answer,
        };
        counters.bytes_read.add(u64::from(reply.account.read));
        counters.bytes_written.add(u64::from(reply.account.written));
        if matches!(answer, Answer::TooLarge(_)) {
            counters.too_large.add(1);
        }
        answer
    }

    fn admits(&self, client: IpAddr) -> bool {
        let exports = self.inner.exports.borrow();
        exports.iter().any(|export| export.rules.admits(client))
    }

    fn turned(&self, end: &TurnEnd) {
        let counters = &*self.inner.counters;
        let observe = |whose: &Whose, took| counters.observe(*whose, took);
        self.inner.answered.settle(end, observe);
    }
}

/// The procedure that a call with a sound header is for.
enum Admitted {
    Nfs(nfs3::Procedure, Option<Caller>),
    Mount(mount::Procedure),
    Rpcbind,
}

/// The end of a call that a program has served.
struct Done {
    answer: Answer,
    /// Whether its status was success.
    success: bool,
    /// The status of NFS that it failed with.
    status: Option<nfs3::Status>,
}

impl Done {
    /// Without a status of NFS.
    fn plain(answer: Answer, success: bool) -> Self {
        Self {
            answer,
            success,
            status: None,
        }
    }
}

/// A call that a program did not get to serve.
#[derive(Clone, Copy)]
enum Refused {
    Garbage,
    Broken,
}

impl From<Error> for Refused {
    fn from(_: Error) -> Self {
        Self::Garbage
    }
}

impl<S: Store> Service<S> {
    /// Reads a call's header: its XID and the procedure, or the answer to a call that gets to
    /// none. Of the header, which is large, no more is kept while the call is served.
    fn admit(&self, input: &mut Decoder<'_>, reply: &mut Reply) -> Result<(u32, Admitted), Answer> {
        let counters = &*self.inner.counters;
        let header = match CallHeader::decode(input) {
            Ok(header) => header,
            Err(error) => {
                match error {
                    CallError::NotACall => counters.not_calls.add(1),
                    CallError::Version { .. } => counters.rpc_mismatch.add(1),
                    CallError::Malformed { .. } => counters.auth_errors.add(1),
                }
                return Err(match error.answer() {
                    Some(answer) => refusal(reply, &answer),
                    None => Answer::Silent,
                });
            }
        };
        let xid = header.xid;
        let mismatch = |version| {
            let status = Accepted::ProgramMismatch {
                low: version,
                high: version,
            };
            (answer_to(xid, status), &counters.program_mismatch)
        };
        let refused = match (header.program, header.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => {
                match nfs3::Procedure::from_number(header.procedure) {
                    Some(procedure) => match caller(&header.credential) {
                        Ok(caller) => return Ok((xid, Admitted::Nfs(procedure, caller))),
                        Err(denied) => (denied_to(xid, denied), &counters.auth_errors),
                    },
                    None => procedure_unavailable(xid, counters),
                }
            }
            (mount::PROGRAM, mount::VERSION) => {
                match mount::Procedure::from_number(header.procedure) {
                    Some(procedure) => match caller(&header.credential) {
                        Ok(_) => return Ok((xid, Admitted::Mount(procedure))),
                        Err(denied) => (denied_to(xid, denied), &counters.auth_errors),
                    },
                    None => procedure_unavailable(xid, counters),
                }
            }
            (rpcbind::PROGRAM, _) if self.inner.offers.get().is_some() => {
                return Ok((xid, Admitted::Rpcbind));
            }
            (nfs3::PROGRAM, _) => mismatch(nfs3::VERSION),
            (mount::PROGRAM, _) => mismatch(mount::VERSION),
            _ => (
                answer_to(xid, Accepted::ProgramUnavailable),
                &counters.program_unavailable,
            ),
        };
        refused.1.add(1);
        Err(refusal(reply, &refused.0))
    }

    /// Serves a call of NFS, once only where that matters.
    #[allow(clippy::too_many_arguments)] // The parts of one call, each borrowed on its own.
    async fn nfs<B: Bulk>(
        &self,
        call: &Call<'_>,
        xid: u32,
        credential: Option<&Caller>,
        procedure: nfs3::Procedure,
        input: &mut Decoder<'_>,
        bulk: &mut B,
        reply: &mut Reply,
    ) -> Answer {
        let counters = &*self.inner.counters;
        let exports = self.exports();
        let mut context = crate::nfs3::Context {
            procedure,
            exports: &exports,
            latest_exports: &self.inner.exports,
            key: &self.inner.key,
            peer: call.peer,
            credential,
            times: &counters.store,
            export: Cell::new(None),
            again: None,
            turned_away: Cell::new(false),
        };
        let mut text = Vec::new();
        let ticket = if must_not_repeat(procedure) {
            if procedure == nfs3::Procedure::Symlink && !call.bulk.is_empty() {
                // Boxed, so that other calls do not become larger.
                text = match Box::pin(self.link_text(call, *input, bulk, reply)).await {
                    Ok(text) => text,
                    Err(refused) => return self.refuse(refused, xid, reply),
                };
            }
            let program = (nfs3::PROGRAM, nfs3::VERSION, procedure.number());
            let arguments = [input.rest(), &text];
            let address = call.peer.address;
            let key = self
                .inner
                .replay
                .key(address, xid, program, credential, arguments);
            match self.inner.replay.enter(key, call.arrived).await {
                Entered::Execute(ticket) => Some(ticket),
                Entered::Crowded => return Answer::Silent,
                Entered::Replay(message) => {
                    counters.replayed.add(1);
                    return repeat(reply, &message);
                }
            }
        } else {
            None
        };
        if let Some(flow) = self.limits() {
            let passed = throttle::throttle(flow, &context, input.rest(), bulk).await;
            if passed.is_err() {
                return Answer::Broken;
            }
        }
        let mut noted = None;
        if let Some(ticket) = &ticket {
            context.again = ticket.again();
            noted = self.note(&context, ticket, input.rest());
        }
        match self
            .procedure(&context, call, xid, input, &text, bulk, reply)
            .await
        {
            Ok(done) => {
                let number = procedure.number();
                counters.nfs[number as usize].record(done.success);
                if let Some(status) = done.status {
                    counters.statuses.count(status);
                }
                if context.turned_away.get() {
                    counters.not_admitted.add(1);
                }
                let export = context.export.get();
                if let Some(export) = export.and_then(|export| export.counters.get()) {
                    export.record(done.success, reply.account);
                }
                let size = size(&done, reply.account);
                self.answered(Whose::new(Program::Nfs, number, size), call.arrived);
                // What was executed is remembered although its answer found no room: the client
                // may offer more and ask again.
                if let Some(ticket) = ticket
                    && executed(done.answer)
                {
                    if let Some(noted) = noted {
                        noted.done(reply.remembered());
                    }
                    ticket.finish(reply.remembered(), call.arrived);
                }
                done.answer
            }
            Err(refused) => {
                if let Some(noted) = noted {
                    noted.void();
                }
                self.refuse(refused, xid, reply)
            }
        }
    }

    /// Serves a call of MOUNT.
    async fn mount(
        &self,
        call: &Call<'_>,
        xid: u32,
        procedure: mount::Procedure,
        input: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Answer {
        match self
            .mount_procedure(call, xid, procedure, input, reply)
            .await
        {
            Ok(done) => {
                let counters = &*self.inner.counters;
                let number = procedure.number();
                counters.mount[number as usize].record(done.success);
                self.answered(Whose::new(Program::Mount, number, None), call.arrived);
                done.answer
            }
            Err(refused) => self.refuse(refused, xid, reply),
        }
    }

    /// Answers a call of the port mapper over RDMA; over TCP it has sockets of its own.
    #[cold]
    fn rpcbind(&self, call: &Call<'_>, xid: u32, reply: &mut Reply) -> Answer {
        let later = self.inner.later_offers.borrow();
        let first = || self.inner.offers.get().and_then(|offers| offers.get());
        let offers = later.as_deref().or_else(first);
        let (TransportKind::Rdma, Some(offers)) = (call.peer.transport, offers) else {
            self.inner.counters.program_unavailable.add(1);
            return refusal(reply, &answer_to(xid, Accepted::ProgramUnavailable));
        };
        let address = call.peer.address;
        match crate::rpcbind::answer(offers, address, call.message, reply.room()) {
            Some(length) => {
                reply.set_length(length);
                Answer::Send
            }
            None => Answer::Silent,
        }
    }

    /// Notes a call that was answered, to be timed at the end of the turn.
    fn answered(&self, whose: Whose, arrived: Instant) {
        let counters = &*self.inner.counters;
        let observe = |whose: &Whose, took| counters.observe(*whose, took);
        self.inner.answered.note(whose, arrived, observe);
    }

    fn refuse(&self, refused: Refused, xid: u32, reply: &mut Reply) -> Answer {
        match refused {
            Refused::Broken => Answer::Broken,
            Refused::Garbage => {
                self.inner.counters.garbage_arguments.add(1);
                refusal(reply, &answer_to(xid, Accepted::GarbageArguments))
            }
        }
    }
}

/// The size of what a READ or WRITE moved.
fn size(done: &Done, moved: Account) -> Option<Size> {
    // Of others nobody asks; one of the two is zero.
    done.success.then(|| Size::of(moved.read | moved.written))
}

/// Encodes a reply message. Data that the results leave out stands in the reply's slices.
fn encode(reply: &mut Reply, header: &impl Encode, results: &impl Encode) -> Answer {
    let mut out = Encoder::new(reply.room());
    if header
        .encode(&mut out)
        .and_then(|()| results.encode(&mut out))
        .is_err()
    {
        return too_large(reply, header, results);
    }
    let (length, taken) = (out.position(), out.taken());
    let bulk = taken.filter(|taken| taken.length > 0).map(|taken| {
        let (position, length) = (taken.position as usize, taken.length as usize);
        BulkResult { position, length }
    });
    if let Some(bulk) = bulk.filter(|bulk| !reply.takes_bulk(length, bulk.length)) {
        reply.clear();
        return Answer::TooLarge(Shortage {
            processed: true,
            message: length,
            bulk: bulk.length,
        });
    }
    reply.set_length(length);
    if let Some(bulk) = bulk {
        reply.set_bulk(bulk);
    }
    Answer::Send
}

/// Encodes an answer that does not fit to its end, to know its length and to remember it.
#[cold]
fn too_large(reply: &mut Reply, header: &impl Encode, results: &impl Encode) -> Answer {
    let bulk = reply.slices.iter().map(millrace_mempool::Slice::len).sum();
    let mut bytes = vec![0; 2 * reply.room().len().max(OVERLONG_LEAST)];
    loop {
        let mut out = Encoder::new(&mut bytes);
        let encoded = header
            .encode(&mut out)
            .and_then(|()| results.encode(&mut out));
        if encoded.is_ok() {
            let length = out.position();
            bytes.truncate(length);
            reply.set_overlong(bytes);
            return Answer::TooLarge(Shortage {
                processed: true,
                message: length,
                bulk,
            });
        }
        if bytes.len() >= OVERLONG_MOST {
            reply.clear();
            return Answer::TooLarge(Shortage {
                processed: true,
                ..Shortage::default()
            });
        }
        bytes = vec![0; 4 * bytes.len()];
    }
}

/// Answers a call that no procedure gets to see.
fn refusal(reply: &mut Reply, header: &impl Encode) -> Answer {
    match encode(reply, header, &()) {
        Answer::TooLarge(shortage) => Answer::TooLarge(Shortage {
            processed: false,
            ..shortage
        }),
        answer => answer,
    }
}

/// Whether a procedure ran to its end.
fn executed(answer: Answer) -> bool {
    match answer {
        Answer::Send => true,
        Answer::TooLarge(shortage) => shortage.processed,
        Answer::Silent | Answer::Broken => false,
    }
}

/// Sends a remembered reply again.
fn repeat(reply: &mut Reply, message: &[u8]) -> Answer {
    match reply.room().get_mut(..message.len()) {
        Some(room) => room.copy_from_slice(message),
        None => {
            return Answer::TooLarge(Shortage {
                processed: true,
                message: message.len(),
                bulk: 0,
            });
        }
    }
    reply.set_length(message.len());
    Answer::Send
}

/// Decodes arguments to the last: what was taken out of the message has to belong to them.
fn arguments<'a, T: Decode<'a>>(input: &mut Decoder<'a>) -> Result<T, Refused> {
    let arguments = T::decode(input)?;
    input.finish()?;
    Ok(arguments)
}

fn procedure_unavailable(
    xid: u32,
    counters: &Counters,
) -> (ReplyHeader<'static>, &millrace_primitives::Counter) {
    (
        answer_to(xid, Accepted::ProcedureUnavailable),
        &counters.procedure_unavailable,
    )
}

pub(crate) fn denied_to(xid: u32, status: AuthStatus) -> ReplyHeader<'static> {
    ReplyHeader {
        xid,
        outcome: Outcome::Denied(Denied::Auth(status)),
    }
}

/// Who a credential says is calling; `None` for nobody in particular.
pub(crate) fn caller(credential: &Credential<'_>) -> Result<Option<Caller>, AuthStatus> {
    match credential {
        Credential::None => Ok(None),
        Credential::Sys(auth) => Ok(Some(Caller {
            uid: auth.uid,
            gid: auth.gid,
            groups: auth.gids.clone(),
        })),
        // No short hands are given out, so this one is of another server or another time.
        Credential::Other(auth) if auth.flavor == AUTH_SHORT => Err(AuthStatus::RejectedCredential),
        Credential::Malformed | Credential::Other(_) => Err(AuthStatus::BadCredential),
    }
}

/// Whether a second execution of the same call would do harm or answer something else. READ, WRITE
/// and whatever only looks may be executed again.
fn must_not_repeat(procedure: nfs3::Procedure) -> bool {
    use nfs3::Procedure::{Create, Link, Mkdir, Mknod, Remove, Rename, Rmdir, Setattr, Symlink};
    matches!(
        procedure,
        Setattr | Create | Mkdir | Symlink | Mknod | Remove | Rmdir | Rename | Link
    )
}
