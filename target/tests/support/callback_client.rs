//! Clients of version 4 that answer callbacks as a test wants it, over the state of clients as the
//! service keeps it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use millrace::call::{Peer, TransportKind};
use millrace::handle::HandleKey;
use millrace::nfs4::{CallbackSender, ClientState, ServerIdentity};
use millrace::rpc::ConnectionRef;
use millrace::rpc::reverse::{ReverseCall, ReverseError, ReversePath, ReverseReply};
use millrace::state::{HomeLink, StateConfig, StateHome};
use millrace_gss::GssService as Contexts;
use millrace_mempool::Registry;
use millrace_reactor::Clock;
use millrace_store::Store;
use millrace_store::memory::MemoryStore;
use millrace_wire::nfs4::{
    Attribute, Attributes, CallbackHeader, CallbackOperation, CallbackReader, CallbackResults,
    CallbackSecurity, CallbackSequence, CallbackSequenceReply, ChannelAttributes, ClientOwner,
    CompoundReplyHeader, CreateMode, CreateSessionOperation, CreateSessionReply,
    ExchangeIdOperation, OpenClaim, OpenDelegation, OpenOperation, OpenReply, Operation,
    OperationResults, OperationStatus, ProtectionOffer, SequenceReply, SessionId, StateId,
    StateOwner, sequence_flags,
};
use millrace_wire::rpc::{
    Accepted, AuthSys, CallHeader, Credential, Groups, ReplyHeader, answer_to,
};
use millrace_wire::xdr::{Array, BoundedBytes, Decode, Decoder, Encode, Encoder};

use super::nfs4::{Bench4, Results4};
use super::{SECRET, connection, rules};

pub type CallbackBench<S = MemoryStore> = Bench4<ClientState, S>;

/// The user that the clients want to be called as.
pub const CALLBACK_USER: u32 = 77;

/// A server without clients.
pub struct CallbackWorld<S: Store = MemoryStore> {
    pub bench: CallbackBench<S>,
    pub clock: Clock,
    now: Cell<Instant>,
}

/// A call that a client has received.
#[derive(Debug)]
struct ReceivedCall {
    message: Vec<u8>,
    repeats: Option<u32>,
    reply: Option<Result<Vec<u8>, ReverseError>>,
    is_seen: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct ReceivedCalls {
    is_allowed: Cell<bool>,
    calls: RefCell<Vec<ReceivedCall>>,
}

struct TestPath(Rc<ReceivedCalls>);

impl ReversePath for TestPath {
    fn allow(&self) {
        self.0.is_allowed.set(true);
    }

    fn call<'a>(&'a self, call: ReverseCall<'a>) -> ReverseReply<'a> {
        if !self.0.is_allowed.get() {
            return Box::pin(std::future::ready(Err(ReverseError::NotReady)));
        }
        let mut calls = self.0.calls.borrow_mut();
        let index = calls.len();
        // Any that a client cannot tell from those of other calls.
        let xid = call.repeats.unwrap_or(index as u32);
        calls.push(ReceivedCall {
            message: call.message_under(xid).unwrap().into(),
            repeats: call.repeats,
            reply: None,
            is_seen: false,
            waker: None,
        });
        Box::pin(poll_fn(move |context| {
            let call = &mut self.0.calls.borrow_mut()[index];
            call.waker = Some(context.waker().clone());
            call.reply.take().map_or(Poll::Pending, Poll::Ready)
        }))
    }
}

/// A connection of a client, which can be called.
#[derive(Clone)]
pub struct CallableConnection {
    pub connection: ConnectionRef,
    calls: Rc<ReceivedCalls>,
}

/// What makes the reply of a plain one.
pub type ReplyProtection = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A callback that is not answered yet.
pub struct ReceivedCallback {
    calls: Rc<ReceivedCalls>,
    index: usize,
    pub message: Vec<u8>,
    pub repeats: Option<u32>,
    pub protect: Option<ReplyProtection>,
}

/// A client with a session.
pub struct CallbackClient {
    pub id: u64,
    pub session: SessionId,
    pub sequence: Cell<u32>,
    pub link: RefCell<CallableConnection>,
}

/// What a client asks for with CREATE_SESSION.
#[derive(Clone, Copy)]
pub struct SessionWish<'a> {
    pub flags: u32,
    pub security: &'a [CallbackSecurity<'a>],
    pub program: u32,
    pub slots: u32,
    /// Longest callback.
    pub size: u32,
}

/// AUTH_SYS, as Linux offers it.
pub fn callback_user() -> CallbackSecurity<'static> {
    CallbackSecurity::Sys(AuthSys {
        stamp: 5,
        machine: b"node",
        uid: CALLBACK_USER,
        gid: 0,
        gids: Groups::new(),
    })
}

impl CallbackWorld {
    pub fn new() -> Self {
        Self::with(true)
    }

    /// One that grants delegations, or none.
    pub fn with(delegations: bool) -> Self {
        Self::under(&StateConfig {
            delegations,
            ..StateConfig::default()
        })
    }

    /// One with these limits.
    pub fn under(config: &StateConfig) -> Self {
        Self::build(config, None)
    }

    /// One that knows these security contexts.
    pub fn with_contexts(contexts: &Contexts) -> Self {
        Self::build(&StateConfig::default(), Some(contexts))
    }

    fn build(config: &StateConfig, contexts: Option<&Contexts>) -> Self {
        Self::serving(config, contexts, |state| {
            Bench4::over([rules("/export")], state)
        })
    }
}

impl<S: Store> CallbackWorld<S> {
    /// One that serves `/export` from a store.
    pub fn of(registry: &Registry, store: S) -> Self {
        Self::serving(&StateConfig::default(), None, |state| {
            Bench4::over_stores(registry, vec![(rules("/export"), store)], state)
        })
    }

    fn serving(
        config: &StateConfig,
        contexts: Option<&Contexts>,
        serve: impl FnOnce(Rc<ClientState>) -> CallbackBench<S>,
    ) -> Self {
        let epoch = Instant::now();
        let clock = Clock::new(epoch);
        let config = StateConfig {
            start: [7; 16],
            ..config.clone()
        };
        let lease = config.lease;
        let home = StateHome::new(config);
        let views = home.views();
        let link = HomeLink::here(Rc::new(RefCell::new(home)), 0, (epoch, clock.clone()));
        let identity = ServerIdentity::alone([9; 16]);
        let sender = CallbackSender::new(0, HandleKey::new(&SECRET), &clock, None);
        let state =
            ClientState::new(link, views, identity, lease, vec![1, 2]).with_callbacks(sender);
        let state = match contexts {
            Some(contexts) => state.with_contexts(contexts),
            None => state,
        };
        Self {
            bench: serve(Rc::new(state)),
            clock,
            now: Cell::new(epoch),
        }
    }

    /// Lets callbacks go on until nothing changes.
    pub fn turn(&self) {
        let link = self.bench.state.link();
        link.ask_here(StateHome::end_broken_leases);
        link.ask_here(|home, _| home.sweep_states());
        for _ in 0..8 {
            let other = |_, order| panic!("there is one reactor: {order:?}");
            self.bench.state.run_callbacks(other);
        }
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
        self.clock.turn(self.now.get());
        let link = self.bench.state.link();
        link.end_waits();
        link.ask_here(|home, now| {
            home.end_recalls(now);
            home.divide_slots(now);
            home.relieve(now);
        });
        self.bench.state.check_callback_contexts();
        self.turn();
    }

    /// A connection that nothing has come by yet.
    pub fn connect(&self) -> CallableConnection {
        let address: SocketAddr = "192.0.2.1:1000".parse().unwrap();
        let connection = connection(&self.bench.flow, Peer::new(address, TransportKind::Rdma));
        let calls = Rc::<ReceivedCalls>::default();
        connection.set_reverse(TestPath(Rc::clone(&calls)));
        CallableConnection { connection, calls }
    }

    /// A client ID, and the sequence number of its first session.
    pub fn exchange(&self, owner: &[u8]) -> (u64, u32) {
        let exchange = Operation::ExchangeId(ExchangeIdOperation {
            owner: ClientOwner {
                verifier: [1; 8],
                owner: BoundedBytes(owner),
            },
            flags: 0,
            protection: ProtectionOffer::Unprotected,
            implementation: None,
        });
        match self.bench.compound(&[exchange]).read().1[..] {
            [OperationResults::ExchangeId(Ok(reply))] => (reply.client, reply.sequence),
            ref other => panic!("{other:?}"),
        }
    }

    /// Makes a session by the connection in use.
    pub fn create_session(&self, numbers: (u64, u32), wish: SessionWish<'_>) -> CreateSessionReply {
        match self.bench.compound(&[wish.operation(numbers)]).read().1[..] {
            [OperationResults::CreateSession(Ok(reply))] => reply,
            ref other => panic!("{other:?}"),
        }
    }

    /// A client with a backchannel that has reclaimed all that it wants to.
    pub fn client(&self, owner: &[u8]) -> CallbackClient {
        let security = [callback_user()];
        self.client_with(owner, SessionWish::linux(&security))
    }

    pub fn client_with(&self, owner: &[u8], wish: SessionWish<'_>) -> CallbackClient {
        let link = self.connect();
        self.bench.call_by(&link.connection);
        let (id, sequence) = self.exchange(owner);
        let made = self.create_session((id, sequence), wish);
        let client = CallbackClient {
            id,
            session: made.session,
            sequence: Cell::new(0),
            link: RefCell::new(link),
        };
        let done = self.statuses(&client, &[Operation::ReclaimComplete(false)]);
        assert_eq!(done, [OperationStatus::Ok]);
        client
    }

    /// Has the next calls be those of a client.
    pub fn switch_to(&self, client: &CallbackClient) {
        self.bench.session.set(client.session);
        self.bench.sequence.set(client.sequence.get());
        self.bench.call_by(&client.link.borrow().connection);
        client.sequence.set(client.sequence.get() + 1);
    }

    /// Executes operations of a client, and lets callbacks go out.
    pub fn run(&self, client: &CallbackClient, operations: &[Operation<'_>]) -> Results4 {
        self.switch_to(client);
        let results = self.bench.run(operations);
        self.turn();
        results
    }

    /// The results of operations that wait for callbacks of other clients, which `meanwhile` answers.
    pub fn run_after(
        &self,
        client: &CallbackClient,
        operations: &[Operation<'_>],
        meanwhile: impl FnOnce(),
    ) -> Results4 {
        self.switch_to(client);
        let mut all = vec![self.bench.next_sequence()];
        all.extend_from_slice(operations);
        let message = self.bench.compound_message(&all);
        let results = self.bench.results_after(&message, || {
            self.turn();
            meanwhile();
            self.turn();
        });
        self.turn();
        results
    }

    /// The status of each of the operations that were executed.
    pub fn statuses(
        &self,
        client: &CallbackClient,
        operations: &[Operation<'_>],
    ) -> Vec<OperationStatus> {
        let results = self.run(client, operations);
        let (_, all) = results.read();
        let statuses = all.iter().map(millrace_wire::nfs4::HasStatus::status);
        statuses.collect()
    }

    /// The status of the last of the operations.
    pub fn status(&self, client: &CallbackClient, operations: &[Operation<'_>]) -> OperationStatus {
        self.run(client, operations).status()
    }

    /// The status flags that SEQUENCE shows a client.
    pub fn flags(&self, client: &CallbackClient) -> u32 {
        self.switch_to(client);
        let results = self.bench.compound(&[self.bench.next_sequence()]);
        let mut input = Decoder::new(&results.bytes);
        CompoundReplyHeader::decode(&mut input).unwrap();
        match OperationResults::decode(&mut input).unwrap() {
            OperationResults::Sequence(Ok(SequenceReply { status_flags, .. })) => status_flags,
            other => panic!("{other:?}"),
        }
    }

    /// The flags of them that are about the path of callbacks.
    pub fn path_flags(&self, client: &CallbackClient) -> u32 {
        use sequence_flags::{BACKCHANNEL_FAULT, CALLBACK_PATH_DOWN, CALLBACK_PATH_DOWN_SESSION};
        self.flags(client) & (CALLBACK_PATH_DOWN | CALLBACK_PATH_DOWN_SESSION | BACKCHANNEL_FAULT)
    }

    /// Opens a file of the export by name, and makes it if there is none. Shows the reply.
    pub fn try_open<T>(
        &self,
        client: &CallbackClient,
        (name, owner): (&[u8], &[u8]),
        access: u32,
        show: impl FnOnce(&[u8], &OpenReply<'_>) -> T,
    ) -> Result<T, OperationStatus> {
        let operations = [
            Operation::Putrootfh(()),
            Operation::Lookup(b"export"),
            Operation::Open(OpenOperation {
                sequence: 0,
                access,
                deny: 0,
                owner: StateOwner {
                    client: client.id,
                    owner: BoundedBytes(owner),
                },
                create: Some(CreateMode::Unchecked(Attributes::NONE)),
                claim: OpenClaim::Name(name),
            }),
            Operation::Getfh(()),
        ];
        let results = self.run(client, &operations);
        let (header, all) = results.read();
        match &all[..] {
            [
                ..,
                OperationResults::Open(Ok(reply)),
                OperationResults::Getfh(Ok(handle)),
            ] => Ok(show(handle.0, reply)),
            _ => Err(header.status),
        }
    }

    /// Handle, open and delegation of a file.
    pub fn open(
        &self,
        client: &CallbackClient,
        name: &[u8],
        access: u32,
    ) -> Result<OpenedFile, OperationStatus> {
        self.try_open(client, (name, b"owner"), access, |handle, reply| {
            OpenedFile {
                handle: handle.to_vec(),
                state: reply.open,
                flags: reply.flags,
                delegation: match &reply.delegation {
                    OpenDelegation::Read(delegation) => Some((delegation.state, false)),
                    OpenDelegation::Write(delegation) => Some((delegation.state, true)),
                    OpenDelegation::None | OpenDelegation::NoneBecause(_) => None,
                },
            }
        })
    }
}

/// A file that was opened.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    pub handle: Vec<u8>,
    pub state: StateId,
    pub flags: u32,
    /// The delegation, and whether it is for writing.
    pub delegation: Option<(StateId, bool)>,
}

impl OpenedFile {
    /// The stateid of the delegation that there has to be.
    #[track_caller]
    pub fn delegated(&self) -> StateId {
        self.delegation.expect("there is a delegation").0
    }
}

impl<'a> SessionWish<'a> {
    /// As Linux asks.
    pub fn linux(security: &'a [CallbackSecurity<'a>]) -> Self {
        Self {
            flags: 3,
            security,
            program: 0x4000_0000,
            slots: 16,
            size: 4068,
        }
    }

    /// CREATE_SESSION of a client ID with a sequence number.
    pub fn operation(self, (client, sequence): (u64, u32)) -> Operation<'a> {
        let limits = |requests| ChannelAttributes {
            header_padding: 0,
            request_size: 1 << 20,
            response_size: 1 << 20,
            cached_size: 4096,
            operations: 8,
            requests,
            rdma_ird: None,
        };
        Operation::CreateSession(CreateSessionOperation {
            client,
            sequence,
            flags: self.flags,
            fore: limits(64),
            back: ChannelAttributes {
                request_size: self.size,
                response_size: self.size,
                ..limits(self.slots)
            },
            callback_program: self.program,
            security: Array::new(self.security),
        })
    }
}

impl CallbackClient {
    /// The callbacks that came by the connection and were not seen before.
    pub fn callbacks(&self) -> Vec<ReceivedCallback> {
        self.link.borrow().callbacks()
    }

    /// The only callback that came.
    #[track_caller]
    pub fn callback(&self) -> ReceivedCallback {
        let mut all = self.callbacks();
        assert_eq!(all.len(), 1, "callbacks");
        all.remove(0)
    }
}

impl CallableConnection {
    /// The callbacks that were not seen before.
    pub fn callbacks(&self) -> Vec<ReceivedCallback> {
        let mut calls = self.calls.calls.borrow_mut();
        let new = calls
            .iter_mut()
            .enumerate()
            .filter(|(_, call)| !call.is_seen);
        new.map(|(index, call)| {
            call.is_seen = true;
            ReceivedCallback {
                calls: Rc::clone(&self.calls),
                index,
                message: call.message.clone(),
                repeats: call.repeats,
                protect: None,
            }
        })
        .collect()
    }
}

impl ReceivedCallback {
    /// The header, and the operations with their header.
    pub fn read<T>(
        &self,
        show: impl FnOnce(&CallHeader<'_>, &CallbackHeader<'_>, &[CallbackOperation<'_>]) -> T,
    ) -> T {
        let mut input = Decoder::new(&self.message);
        let header = CallHeader::decode(&mut input).unwrap();
        let compound = CallbackHeader::decode(&mut input).unwrap();
        let reader = CallbackReader::new(input, compound.minor_version, compound.operations);
        let operations: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(operations.len(), compound.operations as usize);
        show(&header, &compound, &operations)
    }

    /// The user that it was sent as; `None` for AUTH_NONE.
    pub fn user(&self) -> Option<u32> {
        self.read(|header, _, _| match &header.credential {
            Credential::Sys(user) => Some(user.uid),
            _ => None,
        })
    }

    /// Its slot and sequence number.
    pub fn slot(&self) -> (u32, u32) {
        self.sequence(|sequence| (sequence.slot, sequence.sequence))
    }

    pub fn sequence<T>(&self, show: impl FnOnce(&CallbackSequence<'_>) -> T) -> T {
        self.read(|_, _, operations| match &operations[0] {
            CallbackOperation::Sequence(sequence) => show(sequence),
            other => panic!("{other:?}"),
        })
    }

    /// Shows the operation behind CB_SEQUENCE.
    pub fn operation<T>(&self, show: impl FnOnce(&CallbackOperation<'_>) -> T) -> T {
        self.read(|_, _, operations| show(&operations[1]))
    }

    /// The delegation that is recalled, its file, and whether that will be truncated.
    pub fn recall(&self) -> (StateId, Vec<u8>, bool) {
        self.operation(|operation| match operation {
            CallbackOperation::Recall(recall) => {
                (recall.delegation, recall.handle.0.to_vec(), recall.truncate)
            }
            other => panic!("{other:?}"),
        })
    }

    fn end(&self, outcome: Result<Vec<u8>, ReverseError>) {
        let mut calls = self.calls.calls.borrow_mut();
        let call = &mut calls[self.index];
        call.reply = Some(outcome);
        let waker = call.waker.take();
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// No reply comes.
    pub fn fail(&self, error: ReverseError) {
        self.end(Err(error));
    }

    fn reply(&self, header: ReplyHeader<'_>, results: Option<&[CallbackResults<'_>]>) {
        let mut bytes = vec![0; 4096];
        let mut out = Encoder::new(&mut bytes);
        header.encode(&mut out).unwrap();
        if let Some(results) = results {
            let status = results.last().map(millrace_wire::nfs4::HasStatus::status);
            let header = CompoundReplyHeader {
                status: status.unwrap_or(OperationStatus::Ok),
                tag: BoundedBytes(b""),
                results: results.len() as u32,
            };
            header.encode(&mut out).unwrap();
            for result in results {
                result.encode(&mut out).unwrap();
            }
        }
        let length = out.position();
        bytes.truncate(length);
        let protect = self.protect.as_ref();
        let bytes = protect.map_or_else(|| bytes.clone(), |protect| protect(&bytes));
        self.end(Ok(bytes));
    }

    /// Refuses CB_SEQUENCE.
    pub fn refuse(&self, status: OperationStatus) {
        let results = [CallbackResults::Sequence(Err(status))];
        self.reply(answer_to(0, Accepted::Success), Some(&results));
    }

    /// Refuses the call as such.
    pub fn reject(&self, status: Accepted) {
        self.reply(answer_to(0, status), None);
    }

    /// Takes it, and answers the operation with a status.
    pub fn answer(&self, status: OperationStatus) {
        self.answer_with(status, 15);
    }

    /// The same, with the highest slot that is wanted.
    pub fn answer_with(&self, status: OperationStatus, target: u32) {
        let sequence = self.sequence(|sequence| CallbackSequenceReply {
            session: sequence.session,
            sequence: sequence.sequence,
            slot: sequence.slot,
            highest_slot: 15,
            target_highest_slot: target,
        });
        let outcome = match status {
            OperationStatus::Ok => Ok(()),
            status => Err(status),
        };
        let result = self.operation(|operation| match operation {
            CallbackOperation::Recall(_) => CallbackResults::Recall(outcome),
            CallbackOperation::NotifyLock(_) => CallbackResults::NotifyLock(outcome),
            CallbackOperation::RecallAny(_) => CallbackResults::RecallAny(outcome),
            CallbackOperation::RecallSlot(_) => CallbackResults::RecallSlot(outcome),
            CallbackOperation::Getattr(_) => {
                let status = outcome.expect_err("attributes are told otherwise");
                CallbackResults::Getattr(Err(status))
            }
            other => panic!("{other:?}"),
        });
        let results = [CallbackResults::Sequence(Ok(sequence)), result];
        self.reply(answer_to(0, Accepted::Success), Some(&results));
    }

    /// Takes CB_GETATTR, and tells change and size.
    pub fn answer_attributes(&self, change: u64, size: u64) {
        let sequence = self.sequence(|sequence| CallbackSequenceReply {
            session: sequence.session,
            sequence: sequence.sequence,
            slot: sequence.slot,
            highest_slot: 15,
            target_highest_slot: 15,
        });
        let mut room = [0; 64];
        let list = [Attribute::Change(change), Attribute::Size(size)];
        let attributes = Attributes::build(&list, &mut room).unwrap();
        let results = [
            CallbackResults::Sequence(Ok(sequence)),
            CallbackResults::Getattr(Ok(attributes)),
        ];
        self.reply(answer_to(0, Accepted::Success), Some(&results));
    }
}
