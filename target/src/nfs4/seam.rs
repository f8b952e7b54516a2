//! The interface to the state of clients: client IDs, sessions and their slots, opens, locks and
//! delegations. The engine uses it through [`StateSeam`] and does not depend on its implementation.
//!
//! The steps of a COMPOUND: [`StateSeam::sequence`] takes its slot, or returns the cached reply, or
//! refuses it. The value that it returns for a new request is passed to all other calls, and to
//! [`StateSeam::finish`] with the results when the last operation has been executed, or to
//! [`StateSeam::abandon`] if none had an effect and all are executed anew. A READ, WRITE
//! or change of a size begins with [`StateSeam::begin_io`] and ends when the guard that this
//! returns is dropped; both are ready at once in the steady state.

use std::net::IpAddr;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::Slice;
use millrace_store::{FileHold, FileLease, Handle, LeaseBreak};
use millrace_wire::nfs4::{
    BackchannelCtlOperation, ClientId, ConnectionBinding, CreateSessionOperation,
    CreateSessionReply, DelegationType, ExchangeIdOperation, ExchangeIdReply, LockOperation,
    LockType, LocktOperation, LockuOperation, OpenDelegation, OpenDowngradeOperation,
    OperationOutcome, OperationStatus, SequenceOperation, SequenceReply, SessionId, StateId,
    StateOwner,
};

use super::reply::SessionBounds;
use crate::access::CallIdentity;
use crate::call::BulkResults;
use crate::exports::ExportId;
use crate::rpc::ConnectionRef;

/// Where a COMPOUND comes from.
#[derive(Clone, Copy, Debug)]
pub struct CallOrigin<'c> {
    /// The connection.
    pub connection: &'c ConnectionRef,
    /// Who calls, before squashing.
    pub identity: CallIdentity<'c>,
    /// When the call arrived.
    pub arrived: Instant,
    /// The minor version.
    pub minor_version: u32,
}

impl CallOrigin<'_> {
    /// The client's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.connection.address()
    }
}

/// A file, as opens and locks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Its export.
    pub export: ExportId,
    /// The object of the export's store.
    pub object: Handle,
}

/// How large a COMPOUND is, and what its arguments are.
#[derive(Clone, Copy, Debug)]
pub struct CompoundShape<'c> {
    /// Operations, as its header counts them.
    pub operations: u32,
    /// Bytes of the call from the RPC header on, with data in chunks.
    pub request_bytes: usize,
    /// Bytes of its arguments, with data in chunks. A retry may come with another service of
    /// RPCSEC_GSS, and so with another RPC header.
    pub argument_bytes: usize,
    /// Its operations behind SEQUENCE, without data in chunks: for the comparison with a request
    /// that had the same sequence number. The hints of SEQUENCE change in true retries, as Linux
    /// encodes them anew.
    pub arguments: &'c [u8],
}

/// The outcome of SEQUENCE.
#[derive(Debug)]
pub enum SequenceOutcome<C> {
    /// A new request.
    Execute(AcceptedSequence<C>),
    /// A request that was executed before.
    Repeat(CachedCompound),
    /// A request that was executed before, without a cached reply.
    Uncached(SequenceReply),
    /// It is refused, and its slot is as it was.
    Refuse(OperationStatus),
}

/// A slot that a request holds.
#[derive(Debug)]
pub struct AcceptedSequence<C> {
    /// The value to pass to the other calls.
    pub compound: C,
    /// The results of SEQUENCE.
    pub reply: SequenceReply,
    /// The limits of the session.
    pub bounds: SessionBounds,
}

/// The results of a COMPOUND, from its status on. Positions of data count from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedCompound {
    /// The results without their data.
    pub results: Vec<u8>,
    /// Where data belongs.
    pub items: BulkResults,
    /// The data of all items, one behind the other.
    pub data: Vec<u8>,
}

/// The results of a COMPOUND that was executed, as [`CachedCompound`] keeps them.
#[derive(Clone, Copy, Debug)]
pub struct FinishedReply<'r> {
    /// The results without their data.
    pub results: &'r [u8],
    /// Where data belongs.
    pub items: &'r BulkResults,
    /// The data of all items, one behind the other.
    pub data: &'r [Slice],
    /// Whether an operation was executed that changes files or state.
    pub changes: bool,
}

/// The purpose of a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateIdUse {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// SETATTR of a size.
    Resize,
    /// SETATTR of anything else.
    SetAttributes,
}

/// By what right a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenBasis {
    /// The permissions of the caller, which were checked.
    Rights,
    /// The open is one from before the server's restart, with this kind of delegation.
    Reclaim(DelegationType),
    /// A delegation.
    Delegation(StateId),
}

/// The part of OPEN that is about shares.
#[derive(Clone, Debug)]
pub struct OpenRequest<'a> {
    /// The file.
    pub file: FileIdentity,
    /// Keeps it when its last name is removed.
    pub hold: FileHold,
    /// `share_access` with the wishes for a delegation.
    pub access: u32,
    /// `share_deny`.
    pub deny: u32,
    /// The open owner.
    pub owner: StateOwner<'a>,
    /// By what right.
    pub basis: OpenBasis,
    /// Whether this OPEN has made the file.
    pub is_new: bool,
    /// Whether it truncates the file to nothing.
    pub truncates: bool,
    /// Whether the file is changed by this server only.
    pub is_sole_server: bool,
    /// Whether there are leases of the file.
    pub has_leases: bool,
    /// Whether the file outlives the process.
    pub is_lasting: bool,
}

/// An open that was granted.
#[derive(Clone, Copy, Debug)]
pub struct OpenGrant {
    /// Its stateid.
    pub open: StateId,
    /// Flags of the reply that depend on the session.
    pub flags: u32,
    /// The delegation that comes with it.
    pub delegation: OpenDelegation<'static>,
    /// Whether there is one with a lease of the file ([`StateSeam::delegate`]).
    pub needs_lease: bool,
}

/// A conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedLock {
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones for the rest of the file.
    pub length: u64,
    /// Type.
    pub kind: LockType,
    /// The client of its owner.
    pub client: ClientId,
    /// Its owner.
    pub owner: ArrayVec<u8, 1024>,
}

/// Why a lock is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// Another lock conflicts.
    Conflict(Box<DeniedLock>),
    /// Any status but OK and `NFS4ERR_DENIED`.
    Status(OperationStatus),
}

/// The state of clients, as one reactor's engine asks for it.
#[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
pub trait StateSeam: 'static {
    /// A request that has its slot. Dropped without [`StateSeam::finish`], the request was not
    /// executed.
    type Compound: 'static;
    /// An operation on a file's data while it goes on.
    type IoGuard: 'static;

    /// The minor versions that are served.
    fn minor_versions(&self) -> &[u32];

    /// The lease in seconds.
    fn lease_seconds(&self) -> u32;

    /// SEQUENCE.
    fn sequence(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &SequenceOperation,
        shape: &CompoundShape<'_>,
    ) -> SequenceOutcome<Self::Compound>;

    /// A request that has its slot may wait from here on.
    fn keep(&self, _compound: &mut Self::Compound) {}

    /// A request has been executed: its slot is free for the next one. Without the reply of one
    /// that changed nothing, if it need not be cached.
    fn finish(&self, compound: Self::Compound, reply: Option<&FinishedReply<'_>>);

    /// A request is executed anew from its SEQUENCE on: its slot is as before that.
    fn abandon(&self, compound: Self::Compound);

    /// EXCHANGE_ID.
    async fn exchange_id(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &ExchangeIdOperation<'_>,
    ) -> OperationOutcome<ExchangeIdReply<'_>>;

    /// CREATE_SESSION.
    async fn create_session(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &CreateSessionOperation<'_>,
    ) -> OperationOutcome<CreateSessionReply>;

    /// BIND_CONN_TO_SESSION.
    async fn bind_connection(
        &self,
        origin: &CallOrigin<'_>,
        arguments: &ConnectionBinding,
    ) -> OperationOutcome<ConnectionBinding>;

    /// DESTROY_SESSION, alone or behind a SEQUENCE.
    async fn destroy_session(
        &self,
        origin: &CallOrigin<'_>,
        current: Option<&Self::Compound>,
        session: SessionId,
    ) -> OperationOutcome<()>;

    /// DESTROY_CLIENTID, alone or behind a SEQUENCE.
    async fn destroy_client(
        &self,
        origin: &CallOrigin<'_>,
        current: Option<&Self::Compound>,
        client: ClientId,
    ) -> OperationOutcome<()>;

    /// BACKCHANNEL_CTL.
    async fn control_backchannel(
        &self,
        origin: &CallOrigin<'_>,
        compound: &Self::Compound,
        arguments: &BackchannelCtlOperation<'_>,
    ) -> OperationOutcome<()>;

    /// RECLAIM_COMPLETE.
    async fn reclaim_complete(
        &self,
        compound: &Self::Compound,
        one_file_system: bool,
    ) -> OperationOutcome<()>;

    /// Whether the client may open files now, before one is found or made.
    async fn check_open(
        &self,
        compound: &Self::Compound,
        basis: OpenBasis,
    ) -> OperationOutcome<()> {
        let _ = (compound, basis);
        Ok(())
    }

    /// The share reservation of OPEN, once the file is found or made and the caller's rights are
    /// checked.
    async fn open(
        &self,
        compound: &Self::Compound,
        request: &OpenRequest<'_>,
    ) -> OperationOutcome<OpenGrant>;

    /// OPEN_DOWNGRADE.
    async fn downgrade(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
        arguments: &OpenDowngradeOperation,
    ) -> OperationOutcome<StateId>;

    /// Undoes an OPEN whose client is answered that it has failed.
    async fn undo_open(&self, compound: &Self::Compound, file: &FileIdentity, open: StateId);

    /// CLOSE.
    async fn close(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
        open: StateId,
    ) -> OperationOutcome<StateId>;

    /// LOCK of a file, and whether the host takes locks of it as well.
    async fn lock(
        &self,
        compound: &Self::Compound,
        file: (&FileIdentity, bool),
        arguments: &LockOperation<'_>,
    ) -> Result<StateId, LockRefusal>;

    /// LOCKT, likewise.
    async fn test_lock(
        &self,
        compound: &Self::Compound,
        file: (&FileIdentity, bool),
        arguments: &LocktOperation<'_>,
    ) -> Result<(), LockRefusal>;

    /// LOCKU.
    async fn unlock(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
        arguments: &LockuOperation,
    ) -> OperationOutcome<StateId>;

    /// How the state is told that a lease of a file has to end.
    fn lease_break(&self, file: &FileIdentity) -> LeaseBreak;

    /// The delegation that comes with an open, if there is a lease for it.
    async fn delegate(
        &self,
        compound: &Self::Compound,
        request: &OpenRequest<'_>,
        lease: Option<FileLease>,
    ) -> OpenDelegation<'static>;

    /// DELEGRETURN.
    async fn return_delegation(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
        delegation: StateId,
    ) -> OperationOutcome<()>;

    /// Whether any file has a delegation.
    fn has_delegations(&self) -> bool;

    /// Makes sure that no other client has a delegation of a file that is renamed, linked or
    /// removed.
    async fn begin_change(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
    ) -> OperationOutcome<()>;

    /// The size of a file that another client changes under a delegation; `None` if what the store
    /// has is valid.
    async fn changed_size(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
    ) -> OperationOutcome<Option<u64>> {
        let _ = (compound, file);
        Ok(None)
    }

    /// The change number of a file that was delegated for writing, as its holder gets to know it.
    fn note_delegated_change(&self, compound: &Self::Compound, delegation: StateId, change: u64) {
        let _ = (compound, delegation, change);
    }

    /// FREE_STATEID.
    async fn free_stateid(&self, compound: &Self::Compound, state: StateId)
    -> OperationOutcome<()>;

    /// TEST_STATEID: the status of each stateid, in order.
    async fn test_stateids(
        &self,
        compound: &Self::Compound,
        states: Vec<StateId>,
    ) -> OperationOutcome<Vec<OperationStatus>>;

    /// Checks the stateid of an operation on a file's data or attributes. The operation ends when
    /// the guard is dropped.
    async fn begin_io(
        &self,
        compound: &Self::Compound,
        file: &FileIdentity,
        state: StateId,
        kind: StateIdUse,
    ) -> OperationOutcome<Self::IoGuard>;
}
