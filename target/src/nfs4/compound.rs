//! The engine: executes the operations of a COMPOUND in order, until one fails (RFC 8881 section
//! 16.2).

use millrace_reactor::task::next_turn;
use millrace_store::Store;
use millrace_wire::nfs4::{
    CompoundHeader, CompoundOperation, OP_ILLEGAL, Operation, OperationNumber, OperationReader,
    OperationStatus, SecinfoReply, SequenceOperation, SessionId, StateId,
};
use millrace_wire::xdr::{Array, Decoder};

use super::copy::COPY_MAX;
use super::export_tree::ExportTree;
use super::interrupted::uses_names;
use super::owners::{OwnerNames, ReactorOwners};
use super::position::FilePosition;
use super::reply::CompoundReply;
use super::seam::{
    AcceptedSequence, CallOrigin, CompoundShape, FinishedReply, SequenceOutcome, StateSeam,
};
use super::table::{HandleNeed, OperationPosition, OperationRule, rule};
use crate::access::Access;
use crate::call::Bulk;
use crate::exports::Export;
use crate::file_data::{TRANSFER_MAX, largest_transfer};
use crate::replay::InterruptedCall;
use crate::rpc::CallSubject;
use crate::rpc::program::{ProgramCall, RepeatableRequest, Unserved};
use crate::store_times::StoreTimes;

/// Bytes around the data of SEQUENCE, PUTFH and READ in a reply, and of SEQUENCE, PUTFH, WRITE and
/// GETATTR in a call with the longest credentials.
const AROUND_READ: usize = 256;
const AROUND_WRITE: usize = 1024;

/// Bytes at the end of SEQUENCE's arguments that may differ when a request is sent again: the
/// highest slot in use, and whether to cache the reply (RFC 8881 section 18.46.1).
const SLOT_HINTS: usize = 8;

/// Operations of a COMPOUND that are executed before other calls get a turn, unless one of them is
/// long. Clients send fewer.
const OPERATIONS_AT_ONCE: u32 = 8;

/// Most bytes of data in a message of a session.
fn transfer_max(message: usize, around: usize) -> u64 {
    let room = message.saturating_sub(around);
    room.min(TRANSFER_MAX as usize) as u64
}

/// The bytes that an operation moves, if it moves any.
fn moved_bytes(operation: &Operation<'_>) -> Option<u64> {
    let transfer = |bytes: u32| u64::from(bytes.min(TRANSFER_MAX));
    // No bytes are all to the end, which is not known yet.
    let range = |bytes: u64| match bytes {
        0 => u64::from(TRANSFER_MAX),
        bytes => bytes.min(COPY_MAX),
    };
    Some(match operation {
        Operation::Read(read) | Operation::ReadPlus(read) => transfer(read.count),
        Operation::Write(write) => transfer(write.data.length),
        Operation::Copy(copy) => range(copy.count),
        Operation::Clone(clone) => range(clone.count),
        Operation::Allocate(space) | Operation::Deallocate(space) => range(space.length),
        _ => return None,
    })
}

/// A COMPOUND that is executed.
pub(super) struct CompoundRun<'c, S, H: StateSeam> {
    pub access: Access<'c, S>,
    pub tree: &'c ExportTree,
    pub seam: &'c H,
    pub origin: CallOrigin<'c>,
    pub times: &'c StoreTimes,
    /// Owners by name, if they may have names.
    pub owners: Option<OwnerNames<'c>>,
    /// The current file handle and its stateid.
    pub current: Option<FilePosition<'c, S>>,
    pub current_state: StateId,
    /// The saved ones.
    pub saved: Option<(FilePosition<'c, S>, StateId)>,
    /// The request as its session knows it.
    pub session: Option<RequestInSession<H::Compound>>,
    /// The export of the first object that is used.
    pub export: Option<&'c Export<S>>,
    /// Whether an export did not admit the client, or not with this flavor.
    pub turned_away: bool,
    /// Most bytes of READ and WRITE, as clients are told them.
    pub read_max: u64,
    pub write_max: u64,
    /// What identifies the request.
    pub request: RepeatableRequest<'c>,
    /// The known facts about the present operation if an earlier process may have executed it.
    pub again: Option<InterruptedCall>,
    /// Whether it is given up where its store would have to wait.
    pub is_at_once: bool,
    /// Whether an operation was executed that changes something.
    pub changes: bool,
    is_admitted: bool,
}

/// A request that holds a slot of its session.
pub(super) struct RequestInSession<C> {
    pub compound: C,
    pub id: SessionId,
}

/// The progress of a COMPOUND after an operation.
enum Progress {
    /// An operation was answered so.
    Answered(OperationStatus),
    /// The results are those of an earlier execution. Whether they fit.
    Repeated(bool),
    /// It was executed before, and its results are not known: the next operation is refused.
    Uncached,
}

/// A decoded operation, and its position.
struct Step<'o, 'a> {
    operation: &'o Operation<'a>,
    known: OperationNumber,
    rule: OperationRule,
    /// What follows it.
    behind: Decoder<'a>,
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    pub fn new(
        access: Access<'c, S>,
        tree: &'c ExportTree,
        seam: &'c H,
        origin: CallOrigin<'c>,
        times: &'c StoreTimes,
        owners: Option<&'c ReactorOwners>,
    ) -> Self {
        Self {
            owners: owners.map(|owners| OwnerNames::new(owners, &origin)),
            access,
            tree,
            seam,
            origin,
            times,
            current: None,
            current_state: StateId::ANONYMOUS,
            saved: None,
            session: None,
            export: None,
            turned_away: false,
            read_max: u64::from(largest_transfer(origin.identity.security)),
            write_max: u64::from(largest_transfer(origin.identity.security)),
            request: RepeatableRequest::default(),
            again: None,
            is_at_once: false,
            changes: false,
            is_admitted: false,
        }
    }

    /// Executes the operations that follow the header. Returns false if a cached reply does not
    /// fit.
    pub async fn execute<B: Bulk>(
        &mut self,
        call: &mut ProgramCall<'_, B>,
        header: &CompoundHeader<'_>,
        input: Decoder<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<bool, Unserved> {
        let count = header.operations;
        self.request.body = input.rest();
        let mut operations =
            OperationReader::<Operation<'c>>::new(input, header.minor_version, header.operations);
        let (mut at, mut at_once, mut is_uncached) = (0, 0, false);
        while let Some(next) = operations.next() {
            if at_once >= OPERATIONS_AT_ONCE {
                next_turn().await;
                at_once = 0;
            }
            at += 1;
            at_once += 1;
            reply.is_last = at == count;
            // In place: operations are large to move.
            let operation = match &next {
                Ok(operation) => operation,
                Err(malformed) => {
                    reply.refuse(malformed.number, OperationStatus::BadXdr);
                    break;
                }
            };
            if let Some(status) = self.misplaced(operation, at, count) {
                let number = operation
                    .refusal()
                    .map_or(operation.number(), |(number, _)| number);
                reply.refuse(number, status);
                break;
            }
            if is_uncached {
                reply.refuse(operation.number(), OperationStatus::RetryUncached);
                break;
            }
            let Some(known) = OperationNumber::from_number(operation.number()) else {
                break;
            };
            let rule = rule(known);
            if rule.is_long {
                at_once = OPERATIONS_AT_ONCE;
            }
            let step = Step {
                operation,
                known,
                rule,
                behind: *operations.input(),
            };
            match self.step(&step, call, header, reply).await {
                Ok(Progress::Answered(OperationStatus::Ok)) => {}
                Ok(Progress::Answered(_)) => break,
                Ok(Progress::Repeated(fits)) => return Ok(fits),
                Ok(Progress::Uncached) => is_uncached = true,
                Err(unserved) => {
                    // The executed operations must not be executed again: a retry on another
                    // connection gets NFS4ERR_DELAY.
                    reply.refuse(operation.number(), OperationStatus::Delay);
                    self.finish(reply);
                    return Err(unserved);
                }
            }
        }
        self.finish(reply);
        Ok(true)
    }

    /// Hands the results to the session.
    pub fn finish(&mut self, reply: &mut CompoundReply<'_>) {
        if let Some(session) = self.session.take() {
            if !self.changes && !reply.is_to_be_cached() {
                self.seam.finish(session.compound, None);
                return;
            }
            let (results, items, data) = reply.results();
            let finished = FinishedReply {
                results,
                items: &items,
                data,
                changes: self.changes,
            };
            self.seam.finish(session.compound, Some(&finished));
        }
    }

    /// The error of an operation that is not allowed at its position (RFC 8881 section 2.10.2.1).
    fn misplaced(&self, operation: &Operation<'_>, at: u32, count: u32) -> Option<OperationStatus> {
        let (is_first, is_alone) = (at == 1, count == 1);
        if let Operation::Illegal(_) = operation {
            return Some(OperationStatus::IllegalOperation);
        }
        let position = OperationNumber::from_number(operation.number())
            .map_or(OperationPosition::InSession, |known| rule(known).position);
        let allowed = match position {
            OperationPosition::First if is_first => Ok(()),
            OperationPosition::First => Err(OperationStatus::SequencePosition),
            OperationPosition::InSession if is_first => Err(OperationStatus::OperationNotInSession),
            OperationPosition::InSessionOrAlone if is_first && !is_alone => {
                Err(OperationStatus::NotOnlyOperation)
            }
            OperationPosition::Alone if !is_alone => Err(OperationStatus::NotOnlyOperation),
            _ => Ok(()),
        };
        let refused = operation.refusal().map(|(_, status)| status);
        allowed.err().or(refused)
    }

    async fn step<B: Bulk>(
        &mut self,
        step: &Step<'_, 'c>,
        call: &mut ProgramCall<'_, B>,
        header: &CompoundHeader<'_>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<Progress, Unserved> {
        let (number, rule) = (step.known.number(), &step.rule);
        if let Operation::Sequence(sequence) = step.operation {
            let (all, body) = (self.request.body, step.behind.rest());
            let same = (all.len() - body.len()).saturating_sub(SLOT_HINTS);
            self.request = RepeatableRequest {
                slot: &all[..same],
                body,
            };
            return self.sequence(sequence, call, header, reply).await;
        }
        let (current, saved) = (self.current.is_some(), self.saved.is_some());
        let has_handles = match rule.handles {
            HandleNeed::Nothing => true,
            HandleNeed::Current => current,
            HandleNeed::Saved => saved,
            HandleNeed::Both => current && saved,
        };
        if !has_handles {
            let status = reply.refuse(number, OperationStatus::NoFileHandle);
            return Ok(Progress::Answered(status));
        }
        let moved = moved_bytes(step.operation);
        let waits = rule.handles != HandleNeed::Nothing && (moved.is_some() || !self.is_admitted);
        if waits && !call.is_admitted_at_once() {
            self.admit(moved, call).await?;
        }
        reply.reserve(rule.result_bytes).await;
        if rule.changes && reply.room() < rule.result_bytes {
            // The client knows by this that the operation was not executed.
            let status = reply.too_big(rule.result_bytes);
            return Ok(Progress::Answered(reply.refuse(number, status)));
        }
        self.changes |= rule.changes;
        let uses_names = uses_names(step.operation);
        if uses_names {
            Box::pin(self.record_names(step.operation, call)).await?;
        }
        let status = self.perform(step, call, reply).await?;
        if uses_names {
            if self.again.take().is_some() && status == OperationStatus::Delay {
                call.put_off_change(&self.request);
            }
            call.end_use();
        }
        Ok(Progress::Answered(status))
    }

    /// Waits for the limits of client and export: for each operation that moves data, else once.
    async fn admit<B: Bulk>(
        &mut self,
        moved: Option<u64>,
        call: &mut ProgramCall<'_, B>,
    ) -> Result<(), Unserved> {
        self.is_admitted |= moved.is_none();
        let subject = CallSubject {
            export: self.export.map(|export| export.id),
            bytes: moved.unwrap_or(0),
            ..CallSubject::default()
        };
        call.admit(subject).await.map(drop)
    }

    async fn sequence<B: Bulk>(
        &mut self,
        arguments: &SequenceOperation,
        call: &ProgramCall<'_, B>,
        header: &CompoundHeader<'_>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<Progress, Unserved> {
        let number = OperationNumber::Sequence.number();
        Ok(match self.ask_for_slot(arguments, call, header) {
            SequenceOutcome::Execute(mut accepted) => {
                self.seam.keep(&mut accepted.compound);
                Progress::Answered(self.begin_request(arguments.session, accepted, reply))
            }
            SequenceOutcome::Repeat(cached) => {
                Progress::Repeated(Box::pin(super::session::repeat(&cached, reply)).await)
            }
            SequenceOutcome::Uncached(results) => {
                match reply.push(number, &Ok::<_, OperationStatus>(results)) {
                    OperationStatus::Ok => Progress::Uncached,
                    status => Progress::Answered(status),
                }
            }
            SequenceOutcome::Refuse(status) => {
                if status == OperationStatus::BadSession
                    && let Some(message) = call.earlier_reply(&self.request)
                {
                    return Err(Unserved::Replay(message));
                }
                Progress::Answered(reply.refuse(number, status))
            }
        })
    }

    /// Asks for the slot of a SEQUENCE.
    pub fn ask_for_slot<B: Bulk>(
        &self,
        arguments: &SequenceOperation,
        call: &ProgramCall<'_, B>,
        header: &CompoundHeader<'_>,
    ) -> SequenceOutcome<H::Compound> {
        let input = call.input();
        let all = input.rest();
        let shape = CompoundShape {
            operations: header.operations,
            request_bytes: call.length(),
            argument_bytes: call.length() - input.position(),
            arguments: all.get(behind_sequence(header)..).unwrap_or_default(),
        };
        self.seam.sequence(&self.origin, arguments, &shape)
    }

    /// Begins a request that has its slot, with the results of its SEQUENCE.
    pub fn begin_request(
        &mut self,
        session: SessionId,
        accepted: AcceptedSequence<H::Compound>,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        self.session = Some(RequestInSession {
            compound: accepted.compound,
            id: session,
        });
        let bounds = accepted.bounds;
        self.read_max = self.read_max.min(transfer_max(bounds.reply, AROUND_READ));
        self.write_max = (self.write_max).min(transfer_max(bounds.request, AROUND_WRITE));
        reply.set_bounds(bounds);
        let number = OperationNumber::Sequence.number();
        reply.push(number, &Ok::<_, OperationStatus>(accepted.reply))
    }

    /// Executes an operation that may be executed.
    async fn perform<B: Bulk>(
        &mut self,
        step: &Step<'_, '_>,
        call: &mut ProgramCall<'_, B>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<OperationStatus, Unserved> {
        let number = step.known.number();
        let outcome = match step.operation {
            Operation::Getattr(wanted) => {
                return Ok(self.get_attributes(wanted, number, reply).await);
            }
            Operation::Read(arguments) => return Ok(self.read(arguments, reply).await),
            Operation::Write(arguments) => {
                let results = self.write(arguments, call, reply).await?;
                return Ok(reply.push(number, &results));
            }
            Operation::Commit(arguments) => {
                let results = self.commit(arguments).await;
                return Ok(reply.push(number, &results));
            }
            Operation::Access(asked) => {
                let results = self.access(*asked).await;
                return Ok(reply.push(number, &results));
            }
            Operation::Putfh(handle) => self.put_handle(handle.0, step.behind),
            Operation::Putrootfh(()) | Operation::Putpubfh(()) => self.put_root(step.behind),
            Operation::Savefh(()) => self.save(),
            Operation::Restorefh(()) => self.restore(step.behind),
            Operation::Lookup(name) => self.lookup(name).await,
            Operation::Lookupp(()) => Box::pin(self.lookup_parent()).await,
            Operation::Getfh(()) => return Ok(self.get_handle(reply)),
            // Less frequent operations are boxed, so that they do not enlarge all tasks.
            operation => {
                let pool = reply.inner().pool().clone();
                if let Operation::Create(create) = operation {
                    let made = Box::pin(self.create(create, &pool, call)).await?;
                    return Ok(reply.push(number, &made));
                }
                if let Some(status) =
                    Box::pin(self.perform_on_names(operation, number, reply)).await
                {
                    return Ok(status);
                }
                if let Some(status) =
                    Box::pin(self.perform_in_version_2(operation, number, reply)).await
                {
                    return Ok(status);
                }
                return Ok(Box::pin(self.perform_in_session(operation, number, reply)).await);
            }
        };
        let status = outcome.err().unwrap_or(OperationStatus::Ok);
        Ok(reply.push_status(number, status))
    }

    /// Executes an operation on names and attributes, if it is one.
    async fn perform_on_names(
        &mut self,
        operation: &Operation<'_>,
        number: u32,
        reply: &mut CompoundReply<'_>,
    ) -> Option<OperationStatus> {
        Some(match operation {
            Operation::Readlink(()) => self.read_link(reply).await,
            Operation::Readdir(arguments) => self.read_directory(arguments, reply).await,
            Operation::Setattr(arguments) => {
                let results = self.set_attributes(arguments).await;
                reply.push(number, &results)
            }
            Operation::Verify(given) => {
                let outcome = self.compare(given, false).await;
                reply.push(number, &outcome)
            }
            Operation::Nverify(given) => {
                let outcome = self.compare(given, true).await;
                reply.push(number, &outcome)
            }
            Operation::Open(arguments) => {
                let results = self.open(arguments).await;
                reply.push(number, &results)
            }
            Operation::Remove(name) => {
                let results = self.remove(name).await;
                reply.push(number, &results)
            }
            Operation::Rename(arguments) => {
                let results = self.rename(arguments).await;
                reply.push(number, &results)
            }
            Operation::Link(name) => {
                let results = self.link(name).await;
                reply.push(number, &results)
            }
            Operation::Secinfo(name) => {
                let flavors = self.security_of_name(name).await;
                reply.push::<SecinfoReply<'_>>(
                    number,
                    &flavors.as_deref().map_err(|error| *error).map(Array::new),
                )
            }
            Operation::SecinfoNoName(style) => {
                let flavors = self.security_of_handle(*style).await;
                reply.push::<SecinfoReply<'_>>(
                    number,
                    &flavors.as_deref().map_err(|error| *error).map(Array::new),
                )
            }
            _ => return None,
        })
    }

    /// The answer to an operation that is known and not served.
    pub fn not_served(&self, number: u32, reply: &mut CompoundReply<'_>) -> OperationStatus {
        debug_assert_ne!(number, OP_ILLEGAL);
        reply.refuse(number, OperationStatus::NotSupported)
    }
}

/// Bytes of a COMPOUND before those behind its SEQUENCE.
fn behind_sequence(header: &CompoundHeader<'_>) -> usize {
    // The length of the tag, the minor version, the number of operations, and SEQUENCE.
    const AROUND_TAG: usize = 12 + 4 + size_of::<SessionId>() + 16;
    header.tag.0.len().next_multiple_of(4) + AROUND_TAG
}
