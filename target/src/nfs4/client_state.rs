//! The state of clients, as [`StateHome`] keeps it: translation between the protocol and the room
//! `state`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millrace_gss::GssService as Contexts;
use millrace_store::{FileLease, LeaseBreak};
use millrace_wire::nfs4::{
    BackchannelCtlOperation, Bitmap, ClientId as WireClientId, ConnectionBinding,
    CreateSessionOperation, CreateSessionReply, ExchangeIdOperation, ExchangeIdReply,
    ImplementationId, OpenDelegation, OpenDowngradeOperation, OperationOutcome, OperationStatus,
    ProtectedOperations, ProtectionAgreement, ProtectionOffer, SequenceOperation, SequenceReply,
    ServerOwner, SessionId as WireSessionId, StateId, Timestamp, exchange_flags,
};
use millrace_wire::xdr::BoundedBytes;

use super::cached_reply;
use super::callback::{self, CallbackSender};
use super::client_translation::{
    caller, fingerprint, guarded, key, stateid, status, status_flags, wire_guarded, wire_stateid,
};
use super::identity::ServerIdentity;
use super::record_waits::RecordWaits;
use super::reply::SessionBounds;
use super::seam::{
    AcceptedSequence, CallOrigin, CompoundShape, FileIdentity, FinishedReply, OpenBasis, OpenGrant,
    OpenRequest, SequenceOutcome, StateIdUse, StateSeam,
};
use crate::rpc::ConnectionRef;
use crate::state::{
    ChangedSize, ClientId, DelegationGate, ExchangeRequest, FileUse, GuardedOperation, HomeLink,
    IoKind, IoRegister, RecordProgress, ReferringRequest, RunningIo, SessionBegin, SessionClaim,
    SessionConditions, SessionDirectory, SessionId, ShareMode, StateError, StateHome, StateTerms,
    StateViews, Stateid,
};

/// Longest reply that is cached unasked, if its request changed something: clients do not ask for
/// all that must not be executed twice.
const CACHED_UNASKED: usize = 512;

/// How often a stateid is checked while other state is revoked at the same time.
const IO_CHECKS: usize = 4;

/// The state of clients as one reactor asks for it.
#[derive(Debug)]
pub struct ClientState {
    link: Rc<HomeLink>,
    views: StateViews,
    identity: ServerIdentity,
    lease: Cell<Duration>,
    minor_versions: Vec<u32>,
    callbacks: Option<CallbackSender>,
    delegations: DelegationGate,
    record_waits: RecordWaits,
    io: Rc<IoRegister>,
}

/// A request that has its slot.
pub struct ClientRequest {
    claim: SessionClaim,
    /// Whether the reply has to be cached.
    is_cached: bool,
}

impl ClientRequest {
    pub(super) fn client(&self) -> ClientId {
        self.claim.session().client()
    }

    pub(super) fn session(&self) -> SessionId {
        self.claim.session().id()
    }

    /// The request as a callback refers to it.
    pub(super) fn referring(&self) -> ReferringRequest {
        ReferringRequest {
            session: self.session(),
            slot: self.claim.slot(),
            sequence: self.claim.sequence(),
        }
    }
}

impl ClientState {
    /// The state that a home keeps.
    #[must_use]
    pub fn new(
        link: HomeLink,
        views: StateViews,
        identity: ServerIdentity,
        lease: Duration,
        minor_versions: Vec<u32>,
    ) -> Self {
        let io = Rc::new(IoRegister::new(Arc::clone(&views.fences), link.reactor()));
        let link = Rc::new(link.behind(Rc::clone(&io)));
        Self {
            delegations: DelegationGate::new(Rc::clone(&link), Arc::clone(&views.delegations)),
            record_waits: RecordWaits::default(),
            io,
            link,
            views,
            identity,
            lease: Cell::new(lease),
            minor_versions,
            callbacks: None,
        }
    }

    /// With callbacks to clients; without, sessions have no backchannel.
    #[must_use]
    pub fn with_callbacks(mut self, sender: CallbackSender) -> Self {
        self.callbacks = Some(sender);
        self
    }

    /// With security contexts for callbacks, for clients that offer theirs.
    #[must_use]
    pub fn with_contexts(mut self, contexts: &Contexts) -> Self {
        self.callbacks = (self.callbacks).map(|sender| sender.with_contexts(contexts));
        self
    }

    /// What other protocols ask before they use a file.
    #[must_use]
    pub fn delegations(&self) -> DelegationGate {
        self.delegations.clone()
    }

    /// The sessions.
    pub(super) fn sessions(&self) -> &SessionDirectory {
        &self.views.sessions
    }

    pub(super) fn callbacks(&self) -> Option<&CallbackSender> {
        self.callbacks.as_ref()
    }

    /// The sender of callbacks, if a connection can carry them.
    pub(super) fn callbacks_by(&self, connection: &ConnectionRef) -> Option<&CallbackSender> {
        self.callbacks.as_ref().filter(|_| connection.has_reverse())
    }

    /// The same with clients that are recorded: how far the records are durable.
    #[must_use]
    pub fn with_records(mut self, progress: Arc<RecordProgress>) -> Self {
        self.record_waits = RecordWaits::new(progress);
        self
    }

    /// Tells clients of this lease from now on, and changes the terms of the home if it is on this
    /// reactor.
    pub fn change_terms(&self, terms: StateTerms) {
        self.lease.set(terms.lease);
        let _ = self.link.ask_here(|home, _| home.change_terms(terms));
    }

    /// Wakes all reactors by this when one of them may have to pass a fence.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.views.fences.wake_by(wake);
    }

    /// The way to the home.
    #[must_use]
    pub fn link(&self) -> &HomeLink {
        &self.link
    }

    /// Those who wait for records.
    #[must_use]
    pub fn record_waits(&self) -> &RecordWaits {
        &self.record_waits
    }
}

impl StateSeam for ClientState {
    type Compound = ClientRequest;
    type IoGuard = RunningIo;

    fn minor_versions(&self) -> &[u32] {
        &self.minor_versions
    }

    fn lease_seconds(&self) -> u32 {
        u32::try_from(self.lease.get().as_secs()).unwrap_or(u32::MAX)
    }

    fn sequence(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &SequenceOperation,
        shape: &CompoundShape<'_>,
    ) -> SequenceOutcome<ClientRequest> {
        let found = self.views.sessions.find(SessionId(arguments.session));
        let session = match found {
            Ok(session) => session,
            Err(error) => return SequenceOutcome::Refuse(status(&error)),
        };
        let id = &arguments.session;
        if session.needs_bound_connections() && !origin.connection.is_surely_associated(id) {
            return SequenceOutcome::Refuse(OperationStatus::ConnectionNotBound);
        }
        let fore = *session.fore();
        if shape.operations > fore.operations {
            return SequenceOutcome::Refuse(OperationStatus::TooManyOperations);
        }
        if shape.request_bytes > fore.request_size as usize {
            return SequenceOutcome::Refuse(OperationStatus::RequestTooBig);
        }
        let highest = session.highest_slots();
        let mut reply = SequenceReply {
            session: arguments.session,
            sequence: arguments.sequence,
            slot: arguments.slot,
            highest_slot: highest.enforced,
            target_highest_slot: highest.target,
            status_flags: status_flags(session.conditions()),
        };
        let fingerprint = fingerprint(&origin.identity, shape);
        let heard = (self.link.reactor(), self.link.now());
        match session.begin_request(arguments.slot, arguments.sequence, fingerprint, heard) {
            Ok(SessionBegin::New(claim)) => {
                // Requests bind their connection (RFC 8881 section 2.10.3.1).
                origin.connection.associate(&arguments.session);
                let cached = arguments.cache_this.then_some(fore.cached_size as usize);
                let highest = claim.highest_slots(arguments.highest_slot);
                reply.highest_slot = highest.enforced;
                reply.target_highest_slot = highest.target;
                SequenceOutcome::Execute(AcceptedSequence {
                    compound: ClientRequest {
                        claim,
                        is_cached: arguments.cache_this,
                    },
                    reply,
                    bounds: SessionBounds {
                        request: fore.request_size as usize,
                        reply: fore.response_size as usize,
                        cached,
                    },
                })
            }
            Ok(SessionBegin::Replay(known)) => {
                match known.and_then(|known| cached_reply::decode(&known)) {
                    Some(cached) => SequenceOutcome::Repeat(cached),
                    None => SequenceOutcome::Uncached(reply),
                }
            }
            Ok(SessionBegin::InProgress) => SequenceOutcome::Refuse(OperationStatus::Delay),
            Ok(SessionBegin::Misordered) => {
                SequenceOutcome::Refuse(OperationStatus::SequenceMisordered)
            }
            Ok(SessionBegin::FalseRetry) => {
                SequenceOutcome::Refuse(OperationStatus::SequenceFalseRetry)
            }
            Err(error) => SequenceOutcome::Refuse(status(&error)),
        }
    }

    fn keep(&self, compound: &mut ClientRequest) {
        compound.claim.keep();
    }

    fn finish(&self, compound: ClientRequest, reply: Option<&FinishedReply<'_>>) {
        let is_wanted = |reply: &&FinishedReply<'_>| {
            let is_small = reply.data.is_empty() && reply.results.len() <= CACHED_UNASKED;
            compound.is_cached || (reply.changes && is_small)
        };
        let Some(reply) = reply.filter(is_wanted) else {
            compound.claim.finish(None);
            return;
        };
        let data = cached_reply::data(reply);
        let head = cached_reply::head(reply);
        compound.claim.finish(Some(&[&head, reply.results, &data]));
    }

    fn abandon(&self, compound: ClientRequest) {
        compound.claim.abandon();
    }

    async fn exchange_id(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &ExchangeIdOperation<'_>,
    ) -> OperationOutcome<ExchangeIdReply<'_>> {
        if arguments.flags & !exchange_flags::ARGUMENTS != 0 {
            return Err(OperationStatus::Invalid);
        }
        let caller = caller(&origin.identity);
        let guarded = match arguments.protection {
            ProtectionOffer::Unprotected => None,
            ProtectionOffer::MachineCredential(offer) if caller.has_integrity => {
                Some(guarded(&offer.must_enforce))
            }
            // A machine credential has integrity (RFC 8881 section 18.35.3).
            ProtectionOffer::MachineCredential(_) => return Err(OperationStatus::Invalid),
            ProtectionOffer::Ssv(offer)
                if offer.hashes.is_empty() || offer.encryptions.is_empty() =>
            {
                return Err(OperationStatus::Invalid);
            }
            ProtectionOffer::Ssv(_) => return Err(OperationStatus::EncryptionNotSupported),
        };
        let owner: Box<[u8]> = arguments.owner.owner.0.into();
        let verifier = arguments.owner.verifier;
        let update = arguments.flags & exchange_flags::UPDATE != 0;
        let outcome = self
            .ask(move |home, now| {
                let request = ExchangeRequest {
                    owner: &owner,
                    verifier,
                    caller: &caller,
                    guarded,
                    update,
                };
                home.exchange_id(&request, now)
            })
            .await
            .map_err(|error| status(&error))?;
        let confirmed = if outcome.confirmed {
            exchange_flags::CONFIRMED
        } else {
            0
        };
        Ok(ExchangeIdReply {
            client: outcome.client_id.0,
            sequence: outcome.sequence_id,
            flags: exchange_flags::NON_PNFS | confirmed,
            protection: match outcome.guarded {
                None => ProtectionAgreement::Unprotected,
                // Nobody is bound to a stateid, so nothing has to be allowed in addition.
                Some(guarded) => ProtectionAgreement::MachineCredential(ProtectedOperations {
                    must_enforce: wire_guarded(guarded),
                    must_allow: Bitmap::EMPTY,
                }),
            },
            owner: ServerOwner {
                minor: 0,
                major: BoundedBytes(&self.identity.owner),
            },
            scope: BoundedBytes(&self.identity.scope),
            implementation: Some(ImplementationId {
                domain: b"",
                name: concat!("Millrace ", env!("CARGO_PKG_VERSION")).as_bytes(),
                date: Timestamp {
                    seconds: 0,
                    nanoseconds: 0,
                },
            }),
        })
    }

    async fn create_session(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &CreateSessionOperation<'_>,
    ) -> OperationOutcome<CreateSessionReply> {
        super::client_sessions::create(self, origin, arguments).await
    }

    async fn bind_connection(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &ConnectionBinding,
    ) -> OperationOutcome<ConnectionBinding> {
        super::client_sessions::bind(self, origin, arguments).await
    }

    async fn destroy_session(
        &self,
        origin: &CallOrigin<'_>,
        current: Option<&ClientRequest>,
        session: WireSessionId,
    ) -> OperationOutcome<()> {
        let is_bound = origin.connection.is_associated(&session);
        let session = SessionId(session);
        let found = self.sessions().find(session);
        let found = found.map_err(|error| status(&error))?;
        if !is_bound {
            return Err(OperationStatus::ConnectionNotBound);
        }
        let caller = caller(&origin.identity);
        let checked = found.check_caller(GuardedOperation::DestroySession, &caller);
        checked.map_err(|error| status(&error))?;
        let current = current.map(|request| &request.claim);
        let own = current.filter(|claim| claim.session().id() == session);
        let own = own.map(SessionClaim::slot);
        self.ask(move |home, now| home.destroy_session(session, own, now))
            .await
            .map_err(|error| status(&error))
    }

    async fn destroy_client(
        &self,
        origin: &CallOrigin<'_>,
        _: Option<&ClientRequest>,
        client: WireClientId,
    ) -> OperationOutcome<()> {
        let (client, caller) = (ClientId(client), caller(&origin.identity));
        self.ask(move |home, now| {
            home.check_caller(client, GuardedOperation::DestroyClient, &caller)?;
            home.destroy_client(client, now)
        })
        .await
        .map_err(|error| status(&error))
    }

    async fn control_backchannel(
        &self,
        origin: &CallOrigin<'_>,
        compound: &ClientRequest,
        arguments: &BackchannelCtlOperation<'_>,
    ) -> OperationOutcome<()> {
        let session = compound.claim.session();
        let caller = caller(&origin.identity);
        let checked = session.check_caller(GuardedOperation::ControlBackchannel, &caller);
        checked.map_err(|error| status(&error))?;
        let program = arguments.callback_program;
        let changed = callback::parameters(self, origin, program, &arguments.security);
        let changed = changed.map_err(|error| status(&error))?;
        let session = compound.session();
        self.ask(move |home, _| home.control_backchannel(session, changed))
            .await
            .map_err(|error| status(&error))
    }

    async fn reclaim_complete(
        &self,
        compound: &ClientRequest,
        one_file_system: bool,
    ) -> OperationOutcome<()> {
        if one_file_system {
            // File systems do not move here, so nothing is reclaimed from another server.
            return Ok(());
        }
        let client = compound.client();
        self.ask_recorded(None, move |home, now| home.reclaim_complete(client, now))
            .await
            .map_err(|error| status(&error))
    }

    async fn check_open(&self, compound: &ClientRequest, basis: OpenBasis) -> OperationOutcome<()> {
        let conditions = compound.claim.session().conditions();
        let is_grantable = !conditions.contains(SessionConditions::RECLAIMS_ONLY);
        if basis != OpenBasis::Rights || is_grantable {
            return Ok(());
        }
        // The home knows whether that is still so.
        let client = compound.client();
        self.ask_recorded(None, move |home, now| {
            home.check_grant(client, false, now).map(drop)
        })
        .await
        .map_err(|error| status(&error))
    }

    async fn open(
        &self,
        compound: &ClientRequest,
        request: &OpenRequest<'_>,
    ) -> OperationOutcome<OpenGrant> {
        super::client_opens::open(self, compound, request).await
    }

    async fn downgrade(
        &self,
        compound: &ClientRequest,
        file: &FileIdentity,
        arguments: &OpenDowngradeOperation,
    ) -> OperationOutcome<StateId> {
        let (client, file, open) = (compound.client(), key(file), stateid(arguments.open));
        let access = ShareMode::from_bits(arguments.access).ok_or(OperationStatus::Invalid)?;
        let deny = ShareMode::from_bits(arguments.deny).ok_or(OperationStatus::Invalid)?;
        self.ask(move |home, _| home.open_downgrade(client, &file, &open, access, deny))
            .await
            .map(wire_stateid)
            .map_err(|error| status(&error))
    }

    async fn undo_open(&self, compound: &ClientRequest, file: &FileIdentity, open: StateId) {
        let (client, file, open) = (compound.client(), key(file), stateid(open));
        let undone = self
            .link
            .ask(None, move |home, _| home.undo_open(client, &file, &open));
        undone.await;
    }

    async fn close(
        &self,
        compound: &ClientRequest,
        file: &FileIdentity,
        open: StateId,
    ) -> OperationOutcome<StateId> {
        let (client, file, open) = (compound.client(), key(file), stateid(open));
        self.ask(move |home, now| home.close(client, &file, &open, now))
            .await
            .map(wire_stateid)
            .map_err(|error| status(&error))
    }

    async fn lock(
        &self,
        compound: &ClientRequest,
        file: (&FileIdentity, bool),
        arguments: &millrace_wire::nfs4::LockOperation<'_>,
    ) -> Result<StateId, super::seam::LockRefusal> {
        super::client_locks::lock(self, compound.client(), file, arguments).await
    }

    async fn test_lock(
        &self,
        compound: &ClientRequest,
        file: (&FileIdentity, bool),
        arguments: &millrace_wire::nfs4::LocktOperation<'_>,
    ) -> Result<(), super::seam::LockRefusal> {
        super::client_locks::test_lock(self, compound.client(), file, arguments).await
    }

    async fn unlock(
        &self,
        compound: &ClientRequest,
        file: &FileIdentity,
        arguments: &millrace_wire::nfs4::LockuOperation,
    ) -> OperationOutcome<StateId> {
        super::client_locks::unlock(self, compound.client(), file, arguments).await
    }

    fn lease_break(&self, file: &FileIdentity) -> LeaseBreak {
        let (file, broken) = (key(file), Arc::clone(&self.views.broken_leases));
        LeaseBreak::new(move || broken.tell(file))
    }

    async fn delegate(
        &self,
        compound: &ClientRequest,
        request: &OpenRequest<'_>,
        lease: Option<FileLease>,
    ) -> OpenDelegation<'static> {
        super::client_opens::delegate(self, compound, request, lease).await
    }

    async fn return_delegation(
        &self,
        compound: &ClientRequest,
        file: &FileIdentity,
        delegation: StateId,
    ) -> OperationOutcome<()> {
        let (client, file, delegation) = (compound.client(), key(file), stateid(delegation));
        let returned = self.ask(move |home, _| home.return_delegation(client, &file, &delegation));
        returned.await.map_err(|error| status(&error))
    }

    fn has_delegations(&self) -> bool {
        !self.delegations.is_idle()
    }

    async fn begin_change(
        &self,
        compound: &ClientRequest,
        file: &FileIdentity,
    ) -> OperationOutcome<()> {
        let (client, file) = (Some(compound.client()), key(file));
        let checked = self.delegations.check(client, &file, FileUse::Change);
        checked.await.map_err(|error| status(&error))
    }

    async fn changed_size(
        &self,
        compound: &ClientRequest,
        file: &FileIdentity,
    ) -> OperationOutcome<Option<u64>> {
        let (client, file) = (compound.client(), key(file));
        if !self.delegations.may_have(&file) {
            return Ok(None);
        }
        let answer = self
            .link
            .ask_for_later::<ChangedSize>(Some(file), move |home, now, asker| {
                home.ask_holder(Some(client), &file, asker, now)
            });
        let answer = answer.await.unwrap_or(Err(StateError::Delay));
        answer.map_err(|error| status(&error))
    }

    fn note_delegated_change(&self, compound: &ClientRequest, delegation: StateId, change: u64) {
        let (client, delegation) = (compound.client(), stateid(delegation));
        self.link
            .tell(move |home, _| home.note_delegated_change(client, &delegation, change));
    }

    async fn free_stateid(&self, compound: &ClientRequest, state: StateId) -> OperationOutcome<()> {
        let (client, state) = (compound.client(), stateid(state));
        let freed = self.ask(move |home, _| home.free_stateid(client, &state));
        freed.await.map_err(|error| status(&error))
    }

    async fn test_stateids(
        &self,
        compound: &ClientRequest,
        states: Vec<StateId>,
    ) -> OperationOutcome<Vec<OperationStatus>> {
        let client = compound.client();
        let states: Vec<Stateid> = states.into_iter().map(stateid).collect();
        let tested = self.ask(move |home, _| Ok(home.test_stateids(client, &states)));
        let tested = tested.await.map_err(|error| status(&error))?;
        let shown = |one: &Result<(), StateError>| {
            one.as_ref().map_or_else(status, |()| OperationStatus::Ok)
        };
        Ok(tested.iter().map(shown).collect())
    }

    async fn begin_io(
        &self,
        compound: &ClientRequest,
        identity: &FileIdentity,
        state: StateId,
        kind: StateIdUse,
    ) -> OperationOutcome<RunningIo> {
        let (client, file, state) = (compound.client(), key(identity), stateid(state));
        let kind = match kind {
            StateIdUse::Read => IoKind::Read,
            StateIdUse::Write => IoKind::Write,
            StateIdUse::Resize => IoKind::SetSize,
            StateIdUse::SetAttributes => {
                self.begin_change(compound, identity).await?;
                return Ok(self.io.begin(client, &file));
            }
        };
        // Before the check, so that a revocation between the two does not miss it.
        let guard = self.io.begin(client, &file);
        if self
            .views
            .stateids
            .allows(client, &file, &state, kind.access())
        {
            return Ok(guard);
        }
        // The answer may wait for I/O of this client with the file, and this has not begun yet.
        drop(guard);
        let check = move |home: &mut StateHome, now| {
            home.check_io(client, &file, &state, kind, now).map(drop)
        };
        for _ in 0..IO_CHECKS {
            let fence = self.io.newest_fence();
            let checked = self.ask_recorded(Some(file), check).await;
            checked.map_err(|error| status(&error))?;
            let guard = self.io.begin(client, &file);
            if self.io.newest_fence() == fence {
                return Ok(guard);
            }
        }
        Err(OperationStatus::Delay)
    }
}
