//! From an RPC message to the program that serves it, and back to an RPC message.
//!
//! Every program, version or procedure that the table does not have is answered as RFC 5531
//! section 9 says, and never with silence: a client that waits for an answer in vain gives up its
//! whole connection.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use millrace_mempool::Class;
use millrace_reactor::Clock;
use millrace_store::Caller;
use millrace_wire::rpc::{
    Accepted, AuthStatus, CallError, CallWords, GssService, RPCSEC_GSS, answer_to,
    has_protected_body,
};
use millrace_wire::xdr::Decoder;

use super::admission::{AdmissionControl, CallSubject};
use super::call::{Account, Answer, Bulk, Call, NoBulk, Reply, Serve, TurnEnd};
use super::counters::{CallKind, ProgramsCounters, Size};
use super::credential::{caller, denied_to};
use super::encode::{executed, refusal, repeat};
use super::gss::{GssAuthenticator, GssCall, GssCreation, GssVerdict};
use super::program::{
    Lookup, ProcedureInfo, ProgramAnswer, ProgramCall, Programs, Unserved, called,
};
use super::protection::{Unopened, keep_room, seal_header};
use crate::access::CallIdentity;
use crate::flow::Flow;
use crate::latency::LatencyBatch;
use crate::replay::{ReplayCache, Writer};

/// The programs of one reactor. Clones share everything.
pub struct Dispatcher<P> {
    inner: Rc<Inner<P>>,
}

impl<P> Clone for Dispatcher<P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

struct Inner<P> {
    programs: P,
    control: AdmissionControl,
    /// What authenticates calls under RPCSEC_GSS, if that is served.
    gss: OnceCell<GssAuthenticator>,
    counters: Arc<ProgramsCounters>,
    answered: LatencyBatch<CallKind>,
}

impl<P: Programs> Dispatcher<P> {
    /// A dispatcher to these programs. All dispatchers of the process share `replay`.
    #[must_use]
    pub fn over(programs: P, replay: ReplayCache) -> Self {
        let mut infos = Vec::new();
        P::infos(&mut infos);
        Self {
            inner: Rc::new(Inner {
                programs,
                control: AdmissionControl {
                    replay,
                    journal: OnceCell::new(),
                    flow: OnceCell::new(),
                },
                gss: OnceCell::new(),
                counters: Arc::new(ProgramsCounters::new(infos)),
                answered: LatencyBatch::default(),
            }),
        }
    }

    /// Records calls that must not be executed twice in a journal, if their changes outlive the
    /// process. Only the first journal given is used. `clock` is that of the reactor.
    #[must_use]
    pub fn with_journal(self, journal: Writer, clock: &Clock) -> Self {
        let journal = (RefCell::new(journal), clock.clone());
        let _ = self.inner.control.journal.set(journal);
        self
    }

    /// Lets the limits of `flow` hold for all calls from here on. The first one given counts.
    #[must_use]
    pub fn with_flow(self, flow: &Flow) -> Self {
        let _ = self.inner.control.flow.set(flow.clone());
        self
    }

    /// Serves calls under RPCSEC_GSS too. The first one given counts.
    #[must_use]
    pub fn with_gss(self, gss: GssAuthenticator) -> Self {
        let _ = self.inner.gss.set(gss);
        self
    }

    /// The programs themselves.
    #[must_use]
    pub fn programs(&self) -> &P {
        &self.inner.programs
    }

    /// What this reactor's programs have done.
    #[must_use]
    pub fn counters(&self) -> Arc<ProgramsCounters> {
        self.inner.counters.clone()
    }

    /// Reads a call's header: the procedure that it is for and who calls it, or the answer to a
    /// call that gets to none. Who calls is judged before what is called.
    #[inline]
    fn accept(
        &self,
        call: &Call<'_>,
        input: &mut Decoder<'_>,
        who: &mut Sender,
        reply: &mut Reply,
    ) -> Result<AcceptedCall, Answer> {
        let counters = &*self.inner.counters;
        let header = match CallWords::decode(input) {
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
        let (xid, called) = (header.xid, header.called);
        if header.credential.flavor == RPCSEC_GSS {
            self.accept_gss(call, &header, who, reply)?;
        } else {
            match caller(header.credential.into()) {
                Ok(caller) => who.caller = caller,
                Err(denied) => {
                    counters.auth_errors.add(1);
                    return Err(refusal(reply, &denied_to(xid, denied)));
                }
            }
        }
        let refused = match self.inner.programs.find(called.0, called.1) {
            Lookup::Found(index, info) => match info.procedure(called) {
                Some(procedure) => {
                    return Ok(AcceptedCall {
                        xid,
                        index,
                        called,
                        procedure,
                    });
                }
                None => (
                    answer_to(xid, Accepted::ProcedureUnavailable),
                    &counters.procedure_unavailable,
                ),
            },
            Lookup::Versions(served) => {
                let (low, high) = served.into_inner();
                let status = Accepted::ProgramMismatch { low, high };
                (answer_to(xid, status), &counters.program_mismatch)
            }
            Lookup::Unknown => (
                answer_to(xid, Accepted::ProgramUnavailable),
                &counters.program_unavailable,
            ),
        };
        refused.1.add(1);
        Err(refusal(reply, &refused.0))
    }

    /// Judges who sends a call under RPCSEC_GSS.
    #[inline(never)]
    fn accept_gss(
        &self,
        call: &Call<'_>,
        header: &CallWords<'_>,
        who: &mut Sender,
        reply: &mut Reply,
    ) -> Result<(), Answer> {
        let verdict = match self.inner.gss.get() {
            Some(gss) => gss.judge(call, header),
            None => GssVerdict::Denied(AuthStatus::RejectedCredential),
        };
        match verdict {
            GssVerdict::Call(verified) => {
                reply.is_authenticated = true;
                keep_room(&verified, reply);
                who.caller = verified.caller();
                who.gss = GssRole::Call(verified);
                Ok(())
            }
            GssVerdict::Creation(creation) => {
                who.gss = GssRole::Creation(creation);
                Ok(())
            }
            GssVerdict::Denied(status) => {
                self.inner.counters.auth_errors.add(1);
                Err(refusal(reply, &denied_to(header.xid, status)))
            }
            GssVerdict::Dropped => Err(Answer::Silent),
            GssVerdict::Disconnect => Err(Answer::Disconnect),
        }
    }

    /// A call as its program sees it.
    fn program_call<'c, B: Bulk>(
        &'c self,
        accepted: &AcceptedCall,
        identity: CallIdentity<'c>,
        call: &Call<'c>,
        input: Decoder<'c>,
        bulk: &'c mut B,
    ) -> ProgramCall<'c, B> {
        let (program, version, number) = accepted.called;
        ProgramCall {
            connection: call.connection,
            arrived: call.arrived,
            xid: accepted.xid,
            version,
            number,
            procedure: accepted.procedure,
            identity,
            message: call.message,
            bulk,
            taken: call.bulk,
            fetched: call.fetched,
            input,
            program,
            control: &self.inner.control,
            is_admitted: false,
            admission: None,
            names_in_use: None,
        }
    }

    /// Has a call served by its program, once only where that matters.
    async fn run<B: Bulk>(
        &self,
        accepted: &AcceptedCall,
        identity: CallIdentity<'_>,
        call: &Call<'_>,
        input: Decoder<'_>,
        bulk: &mut B,
        reply: &mut Reply,
    ) -> Answer {
        let mut program_call = self.program_call(accepted, identity, call, input, bulk);
        let served = self
            .inner
            .programs
            .serve(accepted.index, &mut program_call, reply)
            .await;
        let is_once = accepted.procedure.once;
        let admission = program_call.admission.take();
        match served {
            Ok(done) => {
                debug_assert!(
                    admission.is_some() || !is_once,
                    "a call that must not be repeated was not admitted"
                );
                self.count(accepted, &done, reply.account, call);
                // The call was executed, so its reply is remembered although it did not fit: the
                // client may repeat the call with more room.
                if let Some(admission) = admission
                    && executed(done.answer)
                {
                    admission.executed(reply.remembered(), call.arrived);
                }
                done.answer
            }
            Err(unserved) => {
                // Of several operations, some may have been executed: dropped, it is unknown.
                if let Some(admission) = admission.filter(|_| is_once) {
                    admission.void();
                }
                if matches!(unserved, Unserved::Garbage)
                    && accepted.procedure.metered
                    && !program_call.is_admitted
                {
                    // It counts as a call all the same.
                    let subject = CallSubject::default();
                    let control = &self.inner.control;
                    if control.pass(call.connection, &subject).await.is_err() {
                        return Answer::Broken;
                    }
                }
                self.refuse(unserved, accepted.xid, reply)
            }
        }
    }

    /// The same for a call that need not wait; `None` if it has to.
    fn run_at_once(
        &self,
        accepted: &AcceptedCall,
        identity: CallIdentity<'_>,
        call: &Call<'_>,
        input: Decoder<'_>,
        reply: &mut Reply,
    ) -> Option<Answer> {
        let bulk = &mut NoBulk;
        let mut program_call = self.program_call(accepted, identity, call, input, bulk);
        if !accepted.procedure.immediate || !program_call.is_admitted_at_once() {
            return None;
        }
        let programs = &self.inner.programs;
        let done = programs.serve_at_once(accepted.index, &mut program_call, reply)?;
        self.count(accepted, &done, reply.account, call);
        Some(done.answer)
    }

    /// Has a call under RPCSEC_GSS served: takes its body out of its protection, and protects the
    /// reply.
    async fn run_under_gss<B: Bulk>(
        &self,
        accepted: &AcceptedCall,
        who: &Sender,
        call: &Call<'_>,
        input: Decoder<'_>,
        bulk: &mut B,
        reply: &mut Reply,
    ) -> Answer {
        let Some(authenticator) = self.inner.gss.get() else {
            return Answer::Broken;
        };
        let xid = accepted.xid;
        let gss = match &who.gss {
            GssRole::Call(gss) => gss,
            GssRole::None => return Answer::Broken,
            GssRole::Creation(creation) => {
                let created = authenticator.create(*creation, call, input, xid, reply);
                return match created.await {
                    Some(answer) => answer,
                    None => self.refuse(Unserved::Garbage, xid, reply),
                };
            }
        };
        let answer = match gss.body_service() {
            GssService::None => {
                self.run(accepted, who.identity(), call, input, bulk, reply)
                    .await
            }
            GssService::Integrity | GssService::Privacy => {
                let is_whole = call.bulk.is_empty();
                let opened = authenticator.open(gss, input, reply.pool()).await;
                match opened {
                    Ok(opened) if is_whole => {
                        let within = Call {
                            message: opened.bytes(),
                            ..*call
                        };
                        let (identity, input) = (who.identity(), opened.arguments());
                        self.run(accepted, identity, &within, input, bulk, reply)
                            .await
                    }
                    // The client repeats the call by its next connection.
                    Err(Unopened::NoMemory) => Answer::Broken,
                    Ok(_) | Err(Unopened::Damaged) => {
                        authenticator.counters().damaged_bodies.add(1);
                        self.refuse(Unserved::Garbage, xid, reply)
                    }
                }
            }
        };
        authenticator.end(gss);
        authenticator.seal(gss, reply, answer).await
    }

    /// Adds the verifier to the answer of a call that gets to no procedure, if it has one.
    #[inline]
    fn seal_refusal(&self, who: &Sender, reply: &mut Reply, answer: Answer) -> Answer {
        match &who.gss {
            GssRole::Call(gss) => seal_header(gss, reply, answer),
            GssRole::None | GssRole::Creation(_) => answer,
        }
    }

    /// Counts what a call came to.
    fn ended(&self, answer: Answer, reply: &Reply) -> Answer {
        let counters = &*self.inner.counters;
        counters.bytes_read.add(u64::from(reply.account.read));
        counters.bytes_written.add(u64::from(reply.account.written));
        if matches!(answer, Answer::TooLarge(_)) {
            counters.too_large.add(1);
        }
        answer
    }

    fn count(
        &self,
        accepted: &AcceptedCall,
        done: &ProgramAnswer,
        moved: Account,
        call: &Call<'_>,
    ) {
        let counters = &*self.inner.counters;
        counters.record(accepted.index, accepted.called.2, done.success);
        if !done.success {
            call.connection.usage().failed();
        }
        if done.turned_away {
            counters.not_admitted.add(1);
        }
        // One of the two is zero.
        let size = done.success.then(|| Size::of(moved.read | moved.written));
        let kind = CallKind::new(accepted.index, accepted.called.2, size);
        let observe = |kind: &CallKind, took, calls| counters.observe(*kind, took, calls);
        self.inner.answered.note(&kind, call.arrived, observe);
    }

    #[cold]
    fn refuse(&self, unserved: Unserved, xid: u32, reply: &mut Reply) -> Answer {
        let counters = &*self.inner.counters;
        let (status, counter) = match unserved {
            Unserved::Broken => return Answer::Broken,
            Unserved::Silent => return Answer::Silent,
            Unserved::Replay(message) => {
                counters.replayed.add(1);
                return repeat(reply, &message);
            }
            Unserved::Garbage => (Accepted::GarbageArguments, &counters.garbage_arguments),
            Unserved::NoProgram => (Accepted::ProgramUnavailable, &counters.program_unavailable),
            Unserved::NoProcedure => (
                Accepted::ProcedureUnavailable,
                &counters.procedure_unavailable,
            ),
        };
        counter.add(1);
        refusal(reply, &answer_to(xid, status))
    }
}

impl<P: Programs> Serve for Dispatcher<P> {
    async fn serve<B: Bulk>(&self, call: Call<'_>, bulk: &mut B, reply: &mut Reply) -> Answer {
        let mut input = Decoder::with_taken(call.message, call.bulk).padded(call.padding);
        let mut who = Sender::default();
        let accepted = self.accept(&call, &mut input, &mut who, reply);
        reply.is_call_valid = accepted.is_ok();
        let answer = match accepted {
            Ok(accepted) if matches!(who.gss, GssRole::None) => {
                let identity = who.identity();
                self.run(&accepted, identity, &call, input, bulk, reply)
                    .await
            }
            Ok(accepted) => {
                self.run_under_gss(&accepted, &who, &call, input, bulk, reply)
                    .await
            }
            Err(answer) => self.seal_refusal(&who, reply, answer),
        };
        self.ended(answer, reply)
    }

    fn serve_at_once(&self, call: Call<'_>, reply: &mut Reply) -> Option<Answer> {
        let mut input = Decoder::with_taken(call.message, call.bulk);
        let mut who = Sender::default();
        let accepted = self.accept(&call, &mut input, &mut who, reply);
        reply.is_call_valid = accepted.is_ok();
        let answer = match (accepted, &who.gss) {
            (Ok(accepted), GssRole::None) => {
                self.run_at_once(&accepted, who.identity(), &call, input, reply)?
            }
            (Ok(accepted), GssRole::Call(gss)) => {
                if gss.destroys || gss.service != GssService::None {
                    return None;
                }
                let answer = self.run_at_once(&accepted, who.identity(), &call, input, reply)?;
                seal_header(gss, reply, answer)
            }
            (Ok(_), GssRole::Creation(_)) => return None,
            (Err(answer), _) => self.seal_refusal(&who, reply, answer),
        };
        Some(self.ended(answer, reply))
    }

    fn fetches_small_data(&self) -> bool {
        self.inner.programs.fetches_small_data()
    }

    fn procedure(&self, message: &[u8]) -> Option<&'static ProcedureInfo> {
        let called = called(message)?;
        if has_protected_body(message) {
            return Some(&PROTECTED);
        }
        match self.inner.programs.find(called.0, called.1) {
            Lookup::Found(_, info) => info.procedure(called),
            _ => None,
        }
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.inner.programs.admits(client)
    }

    fn turned(&self, end: &TurnEnd) {
        let counters = &*self.inner.counters;
        let observe = |kind: &CallKind, took, calls| counters.observe(*kind, took, calls);
        self.inner.answered.settle(end, observe);
        self.inner.programs.turned(end);
    }
}

/// The description of a call whose body only its service can take apart (RFC 8166 section 8.2.2.3):
/// nothing of it may be in chunks, and it is put together as a whole.
static PROTECTED: ProcedureInfo = ProcedureInfo::plain("protected").with_whole(Class::Large.size());

/// Who sends a call.
#[derive(Default)]
struct Sender {
    caller: Option<Caller>,
    gss: GssRole,
}

/// What RPCSEC_GSS has to do with a call.
#[derive(Default)]
enum GssRole {
    /// Nothing.
    #[default]
    None,
    /// It is under a context.
    Call(GssCall),
    /// It creates one.
    Creation(GssCreation),
}

impl Sender {
    #[inline]
    fn identity(&self) -> CallIdentity<'_> {
        let caller = self.caller.as_ref();
        match &self.gss {
            GssRole::Call(gss) => CallIdentity {
                security: gss.service.into(),
                caller,
                principal: gss.context.identity().principal.as_bytes(),
            },
            GssRole::None | GssRole::Creation(_) => caller.into(),
        }
    }
}

/// A call with a sound header.
struct AcceptedCall {
    xid: u32,
    /// The index of its program in the list.
    index: usize,
    /// Program, version and procedure.
    called: (u32, u32, u32),
    procedure: &'static ProcedureInfo,
}
