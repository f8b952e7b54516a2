//! Calls under RPCSEC_GSS (RFC 2203): who calls, the creation and the end of contexts, verifiers of
//! replies. Bodies with integrity and privacy are in [`super::protection`].

use std::sync::Arc;

use millrace_gss::{
    CallCounters, ContextHandle, ContextRef, Establishment, GssService as Contexts, HandleError,
    Sequence, status,
};
use millrace_primitives::CoreBlock;
use millrace_store::Caller;
use millrace_wire::rpc::{
    AUTH_NONE, Accepted, AuthStatus, CallOutcome, CallWords, GSS_SEQUENCES, GssCredential,
    GssCredentialError, GssInitResults, GssProcedure, GssService, OpaqueAuth, RPCSEC_GSS,
    ReplyHeader, gss_token,
};
use millrace_wire::xdr::{Decoder, Encode, Encoder};

use super::call::{Answer, Call, Reply};
use super::encode::encode;

/// Longest MIC token: header, and the longest checksum (RFC 4121 section 4.2.6.1, RFC 8009).
pub(super) const MIC_MAX: usize = 64;
/// Bytes of the header of an accepted reply with an empty verifier.
pub(super) const PLAIN_HEADER: usize = 24;

/// What authenticates calls under RPCSEC_GSS on one reactor.
pub struct GssAuthenticator {
    contexts: Contexts,
    counters: Arc<CoreBlock<CallCounters>>,
    limits: GssLimits,
}

/// Bounds of the work for calls under RPCSEC_GSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssLimits {
    /// Most bytes of a token.
    pub token: usize,
    /// About so many bytes are signed, verified or encrypted before other calls have their turn.
    pub slice: usize,
}

impl Default for GssLimits {
    fn default() -> Self {
        Self {
            token: 64 << 10,
            slice: 16 << 10,
        }
    }
}

/// A call whose sender was verified.
pub(super) struct GssCall {
    pub context: ContextRef,
    pub sequence: u32,
    pub service: GssService,
    /// It ends its context.
    pub destroys: bool,
}

/// A step in the creation of a context.
#[derive(Clone, Copy)]
pub(super) struct GssCreation {
    /// The context that is continued: none for a new one; none inside for a handle that is none of
    /// this server's.
    existing: Option<Option<ContextHandle>>,
}

/// What becomes of a call whose credential is of RPCSEC_GSS.
pub(super) enum GssVerdict {
    /// It is a call under a context.
    Call(GssCall),
    /// It creates a context.
    Creation(GssCreation),
    /// It is refused.
    Denied(AuthStatus),
    /// It is answered with silence (RFC 2203 section 5.3.3.1).
    Dropped,
    /// It is the last of too many that nobody signed.
    Disconnect,
}

impl GssCall {
    /// The caller that the principal is here.
    pub fn caller(&self) -> Option<Caller> {
        let user = self.context.identity().user.as_ref()?;
        Some(Caller {
            uid: user.uid,
            gid: user.gid,
            groups: (&user.groups).into(),
        })
    }

    /// The service whose bodies the call and its reply have. The end of a context has none.
    pub fn body_service(&self) -> GssService {
        match self.destroys {
            true => GssService::None,
            false => self.service,
        }
    }
}

impl GssAuthenticator {
    /// Authenticates by these contexts, on one more reactor.
    #[must_use]
    pub fn new(contexts: &Contexts, limits: GssLimits) -> Self {
        Self {
            counters: contexts.call_counters(),
            contexts: contexts.clone(),
            limits,
        }
    }

    pub(super) fn counters(&self) -> &CallCounters {
        &self.counters
    }

    pub(super) fn slice(&self) -> usize {
        self.limits.slice
    }

    /// Judges a call up to its verifier, in the order of the checks of RFC 2203 section 5.3.3.3.
    pub(super) fn judge(&self, call: &Call<'_>, words: &CallWords<'_>) -> GssVerdict {
        let counters = self.counters();
        let credential = match GssCredential::from_body(words.credential.body) {
            Ok(credential) => credential,
            Err(error) => {
                counters.malformed.add(1);
                return GssVerdict::Denied(match error {
                    GssCredentialError::Version(_) => AuthStatus::RejectedCredential,
                    GssCredentialError::Malformed(_) => AuthStatus::BadCredential,
                });
            }
        };
        let verdict = match credential.procedure {
            GssProcedure::Data => self.judge_data(call, words, &credential),
            // The rest goes with procedure NULL only.
            _ if words.called.2 != 0 => GssVerdict::Denied(AuthStatus::BadCredential),
            GssProcedure::Destroy => self.judge_data(call, words, &credential),
            GssProcedure::Init | GssProcedure::ContinueInit => judge_creation(words, &credential),
        };
        let counter = match &verdict {
            GssVerdict::Call(_) | GssVerdict::Creation(_) | GssVerdict::Dropped => return verdict,
            GssVerdict::Disconnect | GssVerdict::Denied(AuthStatus::GssCredentialProblem) => {
                &counters.credential_problems
            }
            GssVerdict::Denied(AuthStatus::GssContextProblem) => &counters.context_problems,
            GssVerdict::Denied(_) => &counters.malformed,
        };
        counter.add(1);
        verdict
    }

    fn judge_data(
        &self,
        call: &Call<'_>,
        words: &CallWords<'_>,
        credential: &GssCredential<'_>,
    ) -> GssVerdict {
        let counters = self.counters();
        let context = match self.contexts.context(credential.handle, call.arrived) {
            Ok(context) => context,
            Err(HandleError::Unknown) => {
                return GssVerdict::Denied(AuthStatus::GssCredentialProblem);
            }
            Err(HandleError::Expired) => return GssVerdict::Denied(AuthStatus::GssContextProblem),
        };
        let sequence = credential.sequence;
        let verified = GssCall {
            context,
            sequence,
            service: credential.service,
            destroys: credential.procedure == GssProcedure::Destroy,
        };
        if call.is_authenticated {
            return GssVerdict::Call(verified);
        }
        if sequence >= GSS_SEQUENCES {
            return GssVerdict::Denied(AuthStatus::GssContextProblem);
        }
        let context = &verified.context;
        match context.sequence(sequence) {
            Sequence::Fresh => {}
            Sequence::TooLarge => return GssVerdict::Denied(AuthStatus::GssContextProblem),
            Sequence::Old => {
                counters.dropped_old.add(1);
                return GssVerdict::Dropped;
            }
            Sequence::Seen => {
                counters.dropped_seen.add(1);
                return GssVerdict::Dropped;
            }
        }
        if words.verifier.flavor != RPCSEC_GSS {
            return GssVerdict::Denied(AuthStatus::BadVerifier);
        }
        // The bytes as they came, which another encoding of the same need not be.
        let covered = call.message.get(..words.covered).unwrap_or_default();
        let is_good = context.verify_mic(covered, words.verifier.body);
        if !call.connection.verified(is_good) {
            return GssVerdict::Disconnect;
        }
        if !is_good {
            return GssVerdict::Denied(AuthStatus::GssCredentialProblem);
        }
        if !context.mark(sequence) {
            counters.dropped_seen.add(1);
            return GssVerdict::Dropped;
        }
        counters.calls[credential.service as usize - 1].add(1);
        GssVerdict::Call(verified)
    }

    /// Takes one step of the creation of a context, and encodes the reply.
    pub(super) async fn create(
        &self,
        creation: GssCreation,
        call: &Call<'_>,
        mut input: Decoder<'_>,
        xid: u32,
        reply: &mut Reply,
    ) -> Option<Answer> {
        let token = gss_token(&mut input, self.limits.token).ok()?;
        let made = match creation.existing {
            Some(None) => unknown_context(),
            existing => {
                let client = call.connection.address();
                let contexts = &self.contexts;
                contexts
                    .establish(token.to_vec(), existing.flatten(), client)
                    .await
            }
        };
        let mut mic = [0; MIC_MAX];
        let window = made.window.to_be_bytes();
        let signed = made.context.as_ref().map(|context| {
            let length = context.sign(&window, &mut mic);
            &mic[..length]
        });
        let results = GssInitResults {
            handle: made.handle.as_ref().map_or(&[], |handle| handle.as_bytes()),
            major: made.major,
            minor: made.minor,
            window: made.window,
            token: &made.token,
        };
        let header = ReplyHeader {
            xid,
            outcome: CallOutcome::Accepted {
                verifier: signed.map_or(OpaqueAuth::NONE, OpaqueAuth::from),
                status: Accepted::Success,
            },
        };
        reply.reserve(made.token.len() + 1024).await;
        Some(encode(reply, &header, &results))
    }

    /// The call has been served: its context ends now, if that is what it was for.
    pub(super) fn end(&self, call: &GssCall) {
        if call.destroys {
            self.contexts.destroy(&call.context);
        }
    }
}

/// A creation has no handle yet, or a handle to continue, and no verifier (RFC 2203 section 5.2.2).
fn judge_creation(words: &CallWords<'_>, credential: &GssCredential<'_>) -> GssVerdict {
    let is_new = credential.procedure == GssProcedure::Init;
    if is_new && !credential.handle.is_empty() {
        return GssVerdict::Denied(AuthStatus::BadCredential);
    }
    if words.verifier.flavor != AUTH_NONE {
        return GssVerdict::Denied(AuthStatus::BadVerifier);
    }
    GssVerdict::Creation(GssCreation {
        existing: (!is_new).then(|| ContextHandle::from_bytes(credential.handle)),
    })
}

fn unknown_context() -> Establishment {
    Establishment {
        handle: None,
        major: status::NO_CONTEXT,
        minor: 0,
        window: 0,
        token: Vec::new(),
        context: None,
    }
}

/// Bytes that the verifier of a reply has more than an empty one.
pub(super) fn verifier_room(context: &ContextRef) -> usize {
    context.mic_length().next_multiple_of(4)
}

/// Writes the header of a reply with the verifier of the call in front of the results, which begin
/// at `results` of the room. Returns where the header ends; `None` if there is no verifier.
pub(super) fn write_header(
    call: &GssCall,
    plain: &[u8; PLAIN_HEADER],
    room: &mut [u8],
) -> Option<usize> {
    let mut mic = [0; MIC_MAX];
    let length = call.context.sign(&call.sequence.to_be_bytes(), &mut mic);
    let mic = mic.get(..length).filter(|mic| !mic.is_empty())?;
    let mut out = Encoder::new(room);
    // XID, direction and status of acceptance; then the verifier; then the status.
    out.raw(&plain[..12]).ok()?;
    OpaqueAuth::from(mic).encode(&mut out).ok()?;
    out.raw(&plain[20..]).ok()?;
    Some(out.position())
}
