//! A stand-in for the state of clients: one session with one slot, and opens without conflicts. It
//! notes what it is asked.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;

use millrace::nfs4::{
    AcceptedSequence, CachedCompound, CallOrigin, CompoundShape, DeniedLock, FileIdentity,
    FinishedReply, LockRefusal, OpenGrant, OpenRequest, SequenceOutcome, SessionBounds, StateIdUse,
    StateSeam,
};
use millrace_store::{FileLease, LeaseBreak};
use millrace_wire::nfs4::{
    BackchannelCtlOperation, ClientId, ConnectionBinding, CreateSessionOperation,
    CreateSessionReply, ExchangeIdOperation, ExchangeIdReply, LockOperation, LockType, Locker,
    LocktOperation, LockuOperation, OpenDelegation, OpenDowngradeOperation, OperationOutcome,
    OperationStatus, ProtectionAgreement, SequenceOperation, SequenceReply, ServerOwner, SessionId,
    StateId, share,
};
use millrace_wire::xdr::BoundedBytes;

/// An open.
#[derive(Clone, Copy, Debug)]
pub struct DoubleOpen {
    pub file: FileIdentity,
    pub access: u32,
    pub sequence: u32,
}

#[derive(Debug)]
pub struct SessionDouble {
    pub bounds: Cell<SessionBounds>,
    /// The sequence number of the slot.
    sequence: Cell<u32>,
    /// What the slot was answered last, where it was to be kept.
    pub cached: RefCell<Option<CachedCompound>>,
    /// Opens by the last byte of their stateids.
    pub opens: RefCell<Vec<Option<DoubleOpen>>>,
    /// Checks of stateids so far.
    pub checks: RefCell<Vec<(StateId, StateIdUse)>>,
    /// Requests that were executed to their end, and those of them that changed something.
    pub finished: Cell<u32>,
    pub changed: Cell<u32>,
    pub shapes: RefCell<Vec<(u32, usize)>>,
    /// Whether clients have delegations.
    pub delegates: Cell<bool>,
    /// Whether checks of stateids wait for a turn.
    pub waits: Cell<bool>,
    /// Requests that gave their slot back.
    pub abandoned: Cell<u32>,
    /// Whether LOCK is refused.
    pub conflict: Cell<bool>,
    /// Whether nothing is noted, so that nothing is allocated.
    pub is_quiet: Cell<bool>,
}

impl Default for SessionDouble {
    fn default() -> Self {
        Self {
            bounds: Cell::new(super::nfs4::Bench4::BOUNDS),
            sequence: Cell::new(0),
            cached: RefCell::default(),
            opens: RefCell::default(),
            checks: RefCell::default(),
            delegates: Cell::default(),
            finished: Cell::new(0),
            changed: Cell::new(0),
            shapes: RefCell::default(),
            waits: Cell::new(false),
            abandoned: Cell::new(0),
            conflict: Cell::new(false),
            is_quiet: Cell::new(false),
        }
    }
}

/// Is ready when it is polled again.
async fn next_turn() {
    let mut has_waited = false;
    poll_fn(|_| match std::mem::replace(&mut has_waited, true) {
        false => Poll::Pending,
        true => Poll::Ready(()),
    })
    .await;
}

/// A request that has the slot.
#[derive(Debug)]
pub struct DoubleRequest {
    keep: bool,
}

impl SessionDouble {
    pub const SESSION: SessionId = *b"the only session";

    /// Takes a request with this sequence number for the next one.
    pub fn expect_sequence(&self, sequence: u32) {
        self.sequence.set(sequence - 1);
    }

    fn stateid(index: usize, sequence: u32) -> StateId {
        let mut other = [1; 12];
        other[11] = index as u8;
        StateId { sequence, other }
    }

    fn index(state: StateId) -> usize {
        usize::from(state.other[11])
    }

    fn find(&self, file: &FileIdentity, state: StateId) -> OperationOutcome<DoubleOpen> {
        let opens = self.opens.borrow();
        let found = opens.get(Self::index(state)).copied().flatten();
        let open = found.filter(|_| state.other[..11] == [1; 11]);
        let open = open.ok_or(OperationStatus::BadStateId)?;
        if open.file != *file {
            return Err(OperationStatus::BadStateId);
        }
        Ok(open)
    }

    fn change(&self, state: StateId, change: impl FnOnce(&mut Option<DoubleOpen>)) -> StateId {
        let mut opens = self.opens.borrow_mut();
        let open = &mut opens[Self::index(state)];
        if let Some(open) = open {
            open.sequence += 1;
        }
        change(open);
        let sequence = open.map_or(u32::MAX, |open| open.sequence);
        Self::stateid(Self::index(state), sequence)
    }
}

impl StateSeam for SessionDouble {
    type Compound = DoubleRequest;
    type IoGuard = ();

    fn minor_versions(&self) -> &[u32] {
        &[1, 2]
    }

    fn lease_seconds(&self) -> u32 {
        90
    }

    fn sequence(
        &self,
        _: &CallOrigin<'_>,
        arguments: &SequenceOperation,
        shape: &CompoundShape<'_>,
    ) -> SequenceOutcome<DoubleRequest> {
        if !self.is_quiet.get() {
            let noted = (shape.operations, shape.request_bytes);
            self.shapes.borrow_mut().push(noted);
        }
        let reply = SequenceReply {
            session: arguments.session,
            sequence: arguments.sequence,
            slot: arguments.slot,
            highest_slot: 0,
            target_highest_slot: 0,
            status_flags: 0,
        };
        if arguments.session != Self::SESSION {
            return SequenceOutcome::Refuse(OperationStatus::BadSession);
        }
        if arguments.sequence == self.sequence.get() {
            return match self.cached.borrow().clone() {
                Some(cached) => SequenceOutcome::Repeat(cached),
                None => SequenceOutcome::Uncached(reply),
            };
        }
        if arguments.sequence != self.sequence.get() + 1 {
            return SequenceOutcome::Refuse(OperationStatus::SequenceMisordered);
        }
        self.sequence.set(arguments.sequence);
        *self.cached.borrow_mut() = None;
        let mut bounds = self.bounds.get();
        let most = bounds.cached.unwrap_or(bounds.reply);
        bounds.cached = arguments.cache_this.then_some(most);
        SequenceOutcome::Execute(AcceptedSequence {
            compound: DoubleRequest {
                keep: arguments.cache_this,
            },
            reply,
            bounds,
        })
    }

    fn finish(&self, compound: DoubleRequest, reply: Option<&FinishedReply<'_>>) {
        self.finished.set(self.finished.get() + 1);
        let Some(reply) = reply else { return };
        self.changed
            .set(self.changed.get() + u32::from(reply.changes));
        if compound.keep {
            *self.cached.borrow_mut() = Some(CachedCompound {
                results: reply.results.to_vec(),
                items: reply.items.clone(),
                data: super::raw::gather(reply.data),
            });
        }
    }

    fn abandon(&self, _: DoubleRequest) {
        self.sequence.set(self.sequence.get() - 1);
        self.abandoned.set(self.abandoned.get() + 1);
        self.shapes.borrow_mut().pop();
    }

    async fn exchange_id(
        &self,
        _: &CallOrigin<'_>,
        _: &ExchangeIdOperation<'_>,
    ) -> OperationOutcome<ExchangeIdReply<'_>> {
        Ok(ExchangeIdReply {
            client: 1,
            sequence: 1,
            flags: 0x1_0000,
            protection: ProtectionAgreement::Unprotected,
            owner: ServerOwner {
                minor: 0,
                major: BoundedBytes(b"server"),
            },
            scope: BoundedBytes(b"scope"),
            implementation: None,
        })
    }

    async fn create_session(
        &self,
        _: &CallOrigin<'_>,
        arguments: &CreateSessionOperation<'_>,
    ) -> OperationOutcome<CreateSessionReply> {
        Ok(CreateSessionReply {
            session: Self::SESSION,
            sequence: arguments.sequence,
            flags: 0,
            fore: arguments.fore,
            back: arguments.back,
        })
    }

    async fn bind_connection(
        &self,
        _: &CallOrigin<'_>,
        arguments: &ConnectionBinding,
    ) -> OperationOutcome<ConnectionBinding> {
        Ok(*arguments)
    }

    async fn destroy_session(
        &self,
        _: &CallOrigin<'_>,
        _: Option<&DoubleRequest>,
        session: SessionId,
    ) -> OperationOutcome<()> {
        match session == Self::SESSION {
            true => Ok(()),
            false => Err(OperationStatus::BadSession),
        }
    }

    async fn destroy_client(
        &self,
        _: &CallOrigin<'_>,
        _: Option<&DoubleRequest>,
        _: ClientId,
    ) -> OperationOutcome<()> {
        Err(OperationStatus::ClientIdBusy)
    }

    async fn control_backchannel(
        &self,
        _: &CallOrigin<'_>,
        _: &DoubleRequest,
        _: &BackchannelCtlOperation<'_>,
    ) -> OperationOutcome<()> {
        Ok(())
    }

    async fn reclaim_complete(&self, _: &DoubleRequest, _: bool) -> OperationOutcome<()> {
        Ok(())
    }

    async fn open(
        &self,
        _: &DoubleRequest,
        request: &OpenRequest<'_>,
    ) -> OperationOutcome<OpenGrant> {
        let mut opens = self.opens.borrow_mut();
        opens.push(Some(DoubleOpen {
            file: request.file,
            access: request.access & share::BOTH,
            sequence: 1,
        }));
        Ok(OpenGrant {
            open: Self::stateid(opens.len() - 1, 1),
            flags: 4,
            delegation: OpenDelegation::None,
            needs_lease: false,
        })
    }

    async fn downgrade(
        &self,
        _: &DoubleRequest,
        file: &FileIdentity,
        arguments: &OpenDowngradeOperation,
    ) -> OperationOutcome<StateId> {
        self.find(file, arguments.open)?;
        Ok(self.change(arguments.open, |open| {
            if let Some(open) = open {
                open.access = arguments.access;
            }
        }))
    }

    async fn undo_open(&self, _: &DoubleRequest, _: &FileIdentity, open: StateId) {
        self.change(open, |open| *open = None);
    }

    async fn close(
        &self,
        _: &DoubleRequest,
        file: &FileIdentity,
        open: StateId,
    ) -> OperationOutcome<StateId> {
        self.find(file, open)?;
        self.change(open, |open| *open = None);
        Ok(StateId::INVALID)
    }

    async fn lock(
        &self,
        _: &DoubleRequest,
        (file, _): (&FileIdentity, bool),
        arguments: &LockOperation<'_>,
    ) -> Result<StateId, LockRefusal> {
        let state = match arguments.locker {
            Locker::New(owner) => owner.open,
            Locker::Existing(owner) => owner.lock,
        };
        self.find(file, state).map_err(LockRefusal::Status)?;
        if self.conflict.get() {
            return Err(LockRefusal::Conflict(Box::new(DeniedLock {
                offset: 1,
                length: 2,
                kind: LockType::Write,
                client: 3,
                owner: b"owner".iter().copied().collect(),
            })));
        }
        Ok(self.change(state, |_| {}))
    }

    async fn test_lock(
        &self,
        _: &DoubleRequest,
        _: (&FileIdentity, bool),
        _: &LocktOperation<'_>,
    ) -> Result<(), LockRefusal> {
        Ok(())
    }

    async fn unlock(
        &self,
        _: &DoubleRequest,
        file: &FileIdentity,
        arguments: &LockuOperation,
    ) -> OperationOutcome<StateId> {
        self.find(file, arguments.lock)?;
        Ok(self.change(arguments.lock, |_| {}))
    }

    fn lease_break(&self, _: &FileIdentity) -> LeaseBreak {
        LeaseBreak::new(|| ())
    }

    async fn delegate(
        &self,
        _: &DoubleRequest,
        _: &OpenRequest<'_>,
        _: Option<FileLease>,
    ) -> OpenDelegation<'static> {
        OpenDelegation::None
    }

    async fn return_delegation(
        &self,
        _: &DoubleRequest,
        _: &FileIdentity,
        _: StateId,
    ) -> OperationOutcome<()> {
        Err(OperationStatus::BadStateId)
    }

    fn has_delegations(&self) -> bool {
        self.delegates.get()
    }

    async fn begin_change(&self, _: &DoubleRequest, _: &FileIdentity) -> OperationOutcome<()> {
        Ok(())
    }

    async fn free_stateid(&self, _: &DoubleRequest, _: StateId) -> OperationOutcome<()> {
        Err(OperationStatus::BadStateId)
    }

    async fn test_stateids(
        &self,
        _: &DoubleRequest,
        states: Vec<StateId>,
    ) -> OperationOutcome<Vec<OperationStatus>> {
        let opens = self.opens.borrow();
        let test = |state| match opens.get(Self::index(state)).copied().flatten() {
            Some(_) => OperationStatus::Ok,
            None => OperationStatus::BadStateId,
        };
        Ok(states.into_iter().map(test).collect())
    }

    async fn begin_io(
        &self,
        _: &DoubleRequest,
        file: &FileIdentity,
        state: StateId,
        kind: StateIdUse,
    ) -> OperationOutcome<()> {
        if !self.is_quiet.get() {
            self.checks.borrow_mut().push((state, kind));
        }
        if self.waits.get() {
            next_turn().await;
        }
        if state == StateId::ANONYMOUS || state == StateId::READ_BYPASS {
            return Ok(());
        }
        let open = self.find(file, state)?;
        let needs = match kind {
            StateIdUse::Write | StateIdUse::Resize => share::WRITE,
            StateIdUse::Read | StateIdUse::SetAttributes => 0,
        };
        if open.access & needs != needs {
            return Err(OperationStatus::OpenMode);
        }
        Ok(())
    }
}
