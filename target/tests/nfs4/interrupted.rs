//! Changes of names whose process was killed: what their clients get from the next one, by the
//! same request in the old session and by the same operations in a new one.

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace::call::{Answer, Peer, TransportKind};
use millrace::exports::Exports;
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::nfs4::{ClientState, ServerIdentity};
use millrace::replay::{JOURNAL_FILE, ReplayCache, ReplayLimits};
use millrace::service::ReactorPrograms;
use millrace::state::{HomeLink, StateConfig, StateHome};
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::Clock;
use millrace_store::{Caller, Namespace, Store};
use millrace_wire::nfs4::{
    Attributes, COMPOUND, ChannelAttributes, ClientOwner, Compound, CompoundReplyHeader,
    CreateOperation, CreateSessionOperation, ExchangeIdOperation, NewObject, Operation,
    OperationResults, OperationStatus as Status, ProtectionOffer, RenameOperation, ResultsReader,
    SequenceOperation, SessionId,
};
use millrace_wire::xdr::{Array, BoundedBytes, Decode, Decoder};

use crate::support::lasting::{Killed, Lasting};
use crate::support::{self, Bench, Chunks, results, rules};

/// A client of one process after the other over the same files.
struct World {
    registry: Registry,
    store: Lasting,
    bench: RefCell<Bench<Lasting>>,
    folder: RefCell<tempfile::TempDir>,
    session: Cell<(SessionId, u32)>,
    starts: Cell<u8>,
}

fn process(
    registry: &Registry,
    store: &Lasting,
    folder: &tempfile::TempDir,
    start: u8,
) -> Bench<Lasting> {
    let mut opened = ReplayCache::open(ReplayLimits::default(), folder.path(), 1);
    let writer = opened.writers.pop().expect("the file system is fit for it");
    let exports = Exports::new([(rules("/export"), store.clone())]).unwrap();
    let key = HandleKey::new(&support::SECRET);
    let home = StateHome::new(StateConfig {
        start: [start; 16],
        ..StateConfig::default()
    });
    let views = home.views();
    let times = (Instant::now(), Clock::new(Instant::now()));
    let link = HomeLink::here(Rc::new(RefCell::new(home)), 0, times);
    let lease = Duration::from_secs(90);
    let state = ClientState::new(
        link,
        views,
        ServerIdentity::alone([7; 16]),
        lease,
        vec![1, 2],
    );
    let service = ReactorPrograms::new(exports, key, opened.cache, MountTable::default());
    let service = service
        .with_journal(writer, &Clock::new(Instant::now()))
        .with_nfs4(state);
    Bench::over(registry, store.clone(), service)
}

impl World {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let store = Lasting::new(support::memory_store(&registry));
        let folder = tempfile::tempdir().unwrap();
        let bench = RefCell::new(process(&registry, &store, &folder, 1));
        let world = Self {
            registry,
            store,
            bench,
            folder: RefCell::new(folder),
            session: Cell::default(),
            starts: Cell::new(1),
        };
        world.join(b"client");
        world
    }

    /// Begins a session, which is the client's from now on.
    fn join(&self, owner: &[u8]) {
        let exchange = Operation::ExchangeId(ExchangeIdOperation {
            owner: ClientOwner {
                verifier: [1; 8],
                owner: BoundedBytes(owner),
            },
            flags: 0,
            protection: ProtectionOffer::Unprotected,
            implementation: None,
        });
        let reply = self.send(&self.message(&[exchange]));
        let (client, sequence) = read(&reply, |_, all| match all[0] {
            OperationResults::ExchangeId(Ok(reply)) => (reply.client, reply.sequence),
            ref other => panic!("{other:?}"),
        });
        let limits = ChannelAttributes {
            header_padding: 0,
            request_size: 8192,
            response_size: 8192,
            cached_size: 1024,
            operations: 8,
            requests: 1,
            rdma_ird: None,
        };
        let create = Operation::CreateSession(CreateSessionOperation {
            client,
            sequence,
            flags: 0,
            fore: limits,
            back: limits,
            callback_program: 0x4000_0000,
            security: Array::new(&[]),
        });
        let reply = self.send(&self.message(&[create]));
        let session = read(&reply, |_, all| match all[0] {
            OperationResults::CreateSession(Ok(reply)) => reply.session,
            ref other => panic!("{other:?}"),
        });
        self.session.set((session, 0));
    }

    fn message(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        let compound = Compound {
            minor_version: 1,
            operations,
            ..Compound::default()
        };
        self.bench
            .borrow()
            .message((100_003, 4, COMPOUND), &compound)
    }

    /// A request in the session.
    fn request(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        let (session, sequence) = self.session.get();
        self.session.set((session, sequence + 1));
        let mut all = vec![Operation::Sequence(SequenceOperation {
            session,
            sequence: sequence + 1,
            slot: 0,
            highest_slot: 0,
            cache_this: true,
        })];
        all.extend_from_slice(operations);
        self.message(&all)
    }

    fn send(&self, message: &[u8]) -> Vec<u8> {
        let bench = self.bench.borrow();
        let replied = bench.send(message, &[], &mut Chunks::default());
        assert_eq!(replied.answer, Answer::Send);
        replied.message
    }

    fn run(&self, operations: &[Operation<'_>]) -> Status {
        status(&self.send(&self.request(operations)))
    }

    /// The same by another client. The session stays that of the first one.
    fn run_by_another(&self, operations: &[Operation<'_>]) -> Status {
        let session = self.session.get();
        let other: SocketAddr = "192.0.2.9:1000".parse().unwrap();
        let peer = Peer::new(other, TransportKind::Tcp);
        let before = self.bench.borrow().call_from(peer);
        self.join(b"another");
        let done = self.run(operations);
        self.bench.borrow().call_from(before.peer());
        self.session.set(session);
        done
    }

    /// Another process is started over what is in the files now.
    fn restart(&self) {
        let next = tempfile::tempdir().unwrap();
        let journal = self.folder.borrow().path().join(JOURNAL_FILE);
        fs::copy(journal, next.path().join(JOURNAL_FILE)).unwrap();
        self.folder.replace(next);
        self.starts.set(self.starts.get() + 1);
        let (folder, start) = (self.folder.borrow(), self.starts.get());
        let bench = process(&self.registry, &self.store, &folder, start);
        bench.xid.set(self.bench.borrow().xid.get());
        self.bench.replace(bench);
    }

    /// The process is killed in a request. The next one has been started then.
    fn killed(&self, at: Killed, operations: &[Operation<'_>]) -> Vec<u8> {
        let message = self.request(operations);
        let before = self.folder.borrow().path().join(JOURNAL_FILE);
        let next = tempfile::tempdir().unwrap();
        self.store.killed.set(at);
        self.bench.borrow().send_waiting(&message, || {
            fs::copy(before, next.path().join(JOURNAL_FILE)).unwrap();
        });
        self.store.killed.set(Killed::Never);
        self.folder.replace(next);
        self.restart();
        message
    }

    /// The process is killed in a request when it looks for the state of the objects.
    fn killed_in_lookup(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.store.hung.set(true);
        let message = self.killed(Killed::Never, operations);
        self.store.hung.set(false);
        message
    }

    /// What a client does when it finds another process: it repeats its request, begins a session,
    /// and sends the operations again.
    fn recover(&self, message: &[u8], operations: &[Operation<'_>]) -> Status {
        assert_eq!(status(&self.send(message)), Status::BadSession);
        self.join(b"client");
        self.run(operations)
    }

    /// Makes an object that nobody has changed for an hour.
    fn old(&self, name: &[u8]) {
        assert_eq!(self.run(&in_export(&[fifo(name)])), Status::Ok);
        self.age(name);
    }

    fn age(&self, name: &[u8]) {
        let handle = self.find(name).expect("it is there");
        self.store.old.borrow_mut().insert(handle);
    }

    /// It has been changed now.
    fn touch(&self, name: &[u8]) {
        let handle = self.find(name).expect("it is there");
        self.store.old.borrow_mut().remove(&handle);
    }

    fn find(&self, name: &[u8]) -> Option<millrace_store::Handle> {
        let (caller, root) = (Caller::SUPERUSER, self.store.root());
        let found = support::ready(self.store.store.lookup(&caller, root, name));
        found.ok().map(|(handle, _)| handle)
    }
}

fn read<T>(message: &[u8], show: impl FnOnce(Status, &[OperationResults<'_>]) -> T) -> T {
    let mut input = Decoder::new(results(message));
    let header = CompoundReplyHeader::decode(&mut input).unwrap();
    let mut reader = ResultsReader::<OperationResults<'_>>::new(input, header.results);
    let all: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    show(header.status, &all)
}

fn status(message: &[u8]) -> Status {
    read(message, |status, _| status)
}

/// Operations in the only export.
fn in_export<'a>(operations: &[Operation<'a>]) -> Vec<Operation<'a>> {
    let mut all = vec![Operation::Putrootfh(()), Operation::Lookup(b"export")];
    all.extend_from_slice(operations);
    all
}

fn make<'a>(object: NewObject<'a>, name: &'a [u8]) -> Operation<'a> {
    Operation::Create(CreateOperation {
        object,
        name,
        attributes: Attributes::NONE,
    })
}

fn mkdir(name: &[u8]) -> Operation<'_> {
    make(NewObject::Directory, name)
}

fn fifo(name: &[u8]) -> Operation<'_> {
    make(NewObject::Fifo, name)
}

fn rename<'a>(from: &'a [u8], to: &'a [u8]) -> Vec<Operation<'a>> {
    in_export(&[
        Operation::Savefh(()),
        Operation::Rename(RenameOperation { from, to }),
    ])
}

#[test]
fn v4_sess_81_what_was_answered_is_answered_the_same_by_the_next_process() {
    let world = World::new();
    let all = [
        in_export(&[mkdir(b"made")]),
        rename(b"made", b"renamed"),
        in_export(&[Operation::Remove(b"renamed")]),
    ];
    let mut replies = Vec::new();
    for operations in &all {
        let message = world.request(operations);
        let reply = world.send(&message);
        assert_eq!(status(&reply), Status::Ok);
        replies.push((message, reply));
    }
    for _ in 0..2 {
        world.restart();
        for (message, reply) in &replies {
            assert_eq!(world.send(message), *reply);
        }
    }
    // Operations without an earlier request are executed.
    world.join(b"client");
    assert_eq!(world.run(&all[2]), Status::NoEntry);
}

#[test]
fn v4_sess_81_a_change_that_was_executed_without_an_answer_is_answered_with_success() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let message = world.killed(Killed::After, &remove);
    assert!(world.find(b"one").is_none());
    assert_eq!(world.recover(&message, &remove), Status::Ok);
    assert_eq!(world.run(&remove), Status::NoEntry, "once only");

    world.old(b"from");
    let renaming = rename(b"from", b"to");
    let message = world.killed(Killed::After, &renaming);
    world.touch(b"to");
    assert_eq!(world.recover(&message, &renaming), Status::Ok);
    assert!(world.find(b"to").is_some());
    assert_eq!(world.run(&renaming), Status::NoEntry);

    let making = in_export(&[mkdir(b"made"), Operation::Getfh(())]);
    let message = world.killed(Killed::After, &making);
    assert_eq!(world.recover(&message, &making), Status::Ok);
    assert_eq!(world.run(&making), Status::Exists);

    world.old(b"fifo");
    let linking = in_export(&[
        Operation::Lookup(b"fifo"),
        Operation::Savefh(()),
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        Operation::Link(b"link"),
    ]);
    let message = world.killed(Killed::After, &linking);
    world.touch(b"fifo");
    assert_eq!(world.recover(&message, &linking), Status::Ok);
    assert_eq!(world.run(&linking), Status::Exists);
}

#[test]
fn v4_sess_81_a_second_kill_in_the_repetition_changes_nothing() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let first = world.killed(Killed::After, &remove);
    assert_eq!(status(&world.send(&first)), Status::BadSession);
    world.join(b"client");
    // The process ends before it has found out.
    let again = world.request(&remove);
    world.restart();
    assert_eq!(status(&world.send(&first)), Status::BadSession);
    assert_eq!(status(&world.send(&again)), Status::BadSession);
    world.join(b"client");
    assert_eq!(world.run(&remove), Status::Ok);
}

/// Linux encodes a request anew for its next connection: by then it may use other slots.
#[test]
fn v4_sess_81_a_request_that_is_encoded_anew_is_known() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let mut message = world.killed(Killed::After, &remove);
    let (session, _) = world.session.get();
    let found = message.windows(16).position(|bytes| bytes == session);
    // Behind the session, the sequence number and the slot.
    let highest = found.expect("it is in the request") + 24;
    message[highest..highest + 4].copy_from_slice(&3_u32.to_be_bytes());
    assert_eq!(world.recover(&message, &remove), Status::Ok);
    assert_eq!(world.run(&remove), Status::NoEntry, "once only");
}

/// A RENAME without an answer, whose repetitions have none either: `repeat` sends one to a process
/// that ends.
fn without_an_answer(repeat: impl Fn(&World, &[Operation<'_>]) -> Vec<u8>) {
    let world = World::new();
    let renaming = rename(b"from", b"to");
    for kills in 1..4 {
        world.old(b"from");
        let mut last = world.killed(Killed::After, &renaming);
        world.touch(b"to");
        for _ in 0..kills {
            // The client sends only its latest request to the next process.
            assert_eq!(status(&world.send(&last)), Status::BadSession);
            world.join(b"client");
            last = repeat(&world, &renaming);
        }
        assert_eq!(world.recover(&last, &renaming), Status::Ok);
        assert_eq!(world.run(&renaming), Status::NoEntry, "once only");
        let remove = in_export(&[Operation::Remove(b"to")]);
        assert_eq!(world.run(&remove), Status::Ok);
    }
}

#[test]
fn v4_sess_81_a_kill_before_the_repetition_changes_nothing() {
    without_an_answer(|world, renaming| {
        // It does not reach the process.
        let lost = world.request(renaming);
        world.restart();
        lost
    });
}

#[test]
fn v4_sess_81_kills_in_repetitions_change_nothing() {
    without_an_answer(World::killed_in_lookup);
}

#[test]
fn v4_sess_81_a_change_that_is_put_off_is_still_known() {
    let world = World::new();
    world.old(b"from");
    let renaming = rename(b"from", b"to");
    let message = world.killed(Killed::After, &renaming);
    world.touch(b"to");
    world.store.delayed.set(true);
    assert_eq!(world.recover(&message, &renaming), Status::Delay);
    // Another process is asked next.
    let last = world.request(&renaming);
    world.restart();
    assert_eq!(world.recover(&last, &renaming), Status::Delay);
    assert_eq!(world.run(&renaming), Status::Delay);
    world.store.delayed.set(false);
    assert_eq!(world.run(&renaming), Status::Ok);
    assert_eq!(world.run(&renaming), Status::NoEntry, "once only");

    // What others do meanwhile is seen.
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let message = world.killed(Killed::After, &remove);
    world.store.delayed.set(true);
    assert_eq!(world.recover(&message, &remove), Status::Delay);
    world.store.delayed.set(false);
    let make = in_export(&[mkdir(b"one")]);
    assert_eq!(world.run_by_another(&make), Status::Ok);
    assert_eq!(world.run(&remove), Status::Io);
    assert!(world.find(b"one").is_some());
}

#[test]
fn v4_sess_81_a_change_that_was_not_executed_is() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let message = world.killed(Killed::Before, &remove);
    assert!(world.find(b"one").is_some());
    assert_eq!(world.recover(&message, &remove), Status::Ok);
    assert!(world.find(b"one").is_none());
}

#[test]
fn v4_sess_81_a_client_that_does_not_repeat_its_request_has_its_answer() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    world.killed(Killed::After, &remove);
    world.join(b"client");
    assert_eq!(world.run(&remove), Status::NoEntry);
}

#[test]
fn v4_sess_81_what_another_client_made_meanwhile_is_spared() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let message = world.killed(Killed::After, &remove);
    let make = in_export(&[mkdir(b"one")]);
    assert_eq!(world.run_by_another(&make), Status::Ok);
    assert_eq!(world.recover(&message, &remove), Status::Io);
    assert!(world.find(b"one").is_some());
    // Two make the same name: one of them is told that it did.
    let make = in_export(&[mkdir(b"lock")]);
    let message = world.killed(Killed::Before, &make);
    assert_eq!(world.run_by_another(&make), Status::Ok);
    assert_eq!(world.recover(&message, &make), Status::Exists);
}

#[test]
fn v4_sess_81_all_changes_of_a_request_are_known_to_the_next_process() {
    let world = World::new();
    world.old(b"one");
    let remove = in_export(&[Operation::Remove(b"one")]);
    let message = world.killed(Killed::After, &remove);
    let make = in_export(&[
        mkdir(b"other"),
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        mkdir(b"one"),
    ]);
    assert_eq!(world.run_by_another(&make), Status::Ok);
    assert_eq!(world.recover(&message, &remove), Status::Io);
    assert!(world.find(b"one").is_some());
}
