//! Calls that a process was killed in: what their repetition by the same XID is answered by the
//! next process, and what it does.

mod support;

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use millrace::call::{Peer, TransportKind};
use millrace::exports::Exports;
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::replay::{ReplayCache, ReplayLimits, SharedJournals};
use millrace::service::ReactorPrograms;
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::Clock;
use millrace_store::{Namespace, Store};
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, Device, FileHandle, LinkArguments, LinkResults,
    MkdirArguments, MknodArguments, NameInDirectory, Node, Procedure, RemoveResults,
    RenameArguments, RenameResults, SetAttributes, SetTime, SetattrArguments, SetattrResults,
    Status, SymlinkArguments,
};
use millrace_wire::xdr::{Bulk, Decode, Encode, from_bytes};
use support::lasting::{Killed, Lasting};
use support::nfs::{self, MODE};
use support::{Bench, Chunks, rules};

/// How long a journal may take to be written.
const LIMIT: Duration = Duration::from_secs(60);

/// Who serves when a process has been killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Succession {
    /// The next process of the same server.
    Restart,
    /// Another server, which shares its journals.
    Replacement,
}

/// Runs each test by both successions.
macro_rules! successions {
    ($($test:ident)*) => {
        mod restart {
            $(#[test] fn $test() { super::$test(super::Succession::Restart); })*
        }
        mod replacement {
            $(#[test] fn $test() { super::$test(super::Succession::Replacement); })*
        }
    };
}

successions! {
    what_was_answered_is_answered_the_same_by_the_next_process
    remove_that_was_executed_is_answered_with_success
    remove_that_was_not_executed_is
    remove_spares_what_another_client_made_meanwhile
    remove_whose_task_ended_spares_what_another_client_made_meanwhile
    remove_whose_task_ended_before_it_did_anything_is_executed
    remove_by_another_client_is_not_taken_for_ones_own
    remove_of_what_never_was_is_answered_so
    rmdir_follows_the_rules_of_remove
    rename_is_known_by_the_object_at_its_new_name
    what_was_made_is_answered_with_what_was_made
    what_was_not_made_is_made
    what_others_made_is_not_taken_for_ones_own
    an_object_that_is_not_as_the_call_makes_it_is_not_its_own
    calls_with_the_same_effect_are_executed_again
    setattr_with_a_guard_is_known_by_what_it_set
    link_is_known_by_its_object
    a_repetition_that_is_killed_too_is_still_known
}

/// One process after the other over the same files.
struct World {
    succession: Succession,
    registry: Registry,
    store: Lasting,
    bench: RefCell<Bench<Lasting>>,
    folder: RefCell<tempfile::TempDir>,
    /// What the present process shares.
    shared: RefCell<Option<SharedJournals>>,
}

impl World {
    fn new(succession: Succession) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let store = Lasting::new(support::memory_store(&registry));
        let folder = tempfile::tempdir().unwrap();
        let (bench, shared) = succession.process(&registry, &store, &folder);
        Self {
            succession,
            registry,
            store,
            bench: RefCell::new(bench),
            folder: RefCell::new(folder),
            shared: RefCell::new(shared),
        }
    }

    fn root(&self) -> FileHandle {
        self.bench.borrow().root()
    }

    fn entry<'a>(&self, name: &'a [u8]) -> NameInDirectory<'a> {
        NameInDirectory {
            directory: self.root(),
            name,
        }
    }

    /// Another process is started over what is in the files now.
    fn restart(&self) {
        if let Some(shared) = &*self.shared.borrow() {
            assert!(shared.flush(LIMIT));
        }
        let dead = tempfile::tempdir().unwrap();
        copy(self.folder.borrow().path(), dead.path());
        self.succeed(dead);
    }

    /// Another process is started over what one has left.
    fn succeed(&self, dead: tempfile::TempDir) {
        let (own, dead) = match self.succession {
            Succession::Restart => (dead, None),
            Succession::Replacement => (tempfile::tempdir().unwrap(), Some(dead)),
        };
        let (bench, shared) = self.succession.process(&self.registry, &self.store, &own);
        if let (Some(shared), Some(dead)) = (&shared, dead) {
            shared.take_over(dead.path(), &[]).unwrap();
        }
        bench.xid.set(self.bench.borrow().xid.get());
        self.bench.replace(bench);
        self.folder.replace(own);
        self.shared.replace(shared);
    }

    /// A call whose process is killed where `at` says. Another one has been started then.
    fn killed(&self, at: Killed, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let message = self
            .bench
            .borrow()
            .message((100_003, 3, procedure.number()), arguments);
        self.kill(at, &message);
        message
    }

    /// A call that is dropped where `at` says, as if its task had panicked.
    fn abandoned(&self, at: Killed, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let bench = self.bench.borrow();
        let message = bench.message((100_003, 3, procedure.number()), arguments);
        self.store.killed.set(at);
        bench.send_until_stopped(&message, &self.store.is_killed, || ());
        self.store.killed.set(Killed::Never);
        message
    }

    fn kill(&self, at: Killed, message: &[u8]) {
        let dead = tempfile::tempdir().unwrap();
        self.store.killed.set(at);
        let (bench, is_killed) = (self.bench.borrow(), &self.store.is_killed);
        bench.send_until_stopped(message, is_killed, || {
            copy(self.folder.borrow().path(), dead.path());
        });
        drop(bench);
        self.store.killed.set(Killed::Never);
        self.succeed(dead);
    }

    /// The same call again, from another port and by another transport.
    fn repeat<T: for<'a> Decode<'a>>(&self, message: &[u8]) -> T {
        let bench = self.bench.borrow();
        let client: SocketAddr = "192.0.2.1:2000".parse().unwrap();
        let before = bench.call_from(Peer::new(client, TransportKind::Tcp));
        let first = bench.success(message);
        assert_eq!(first, bench.success(message), "remembered by now");
        assert_eq!(bench.service.counters().replayed.get(), 1);
        bench.call_from(before.peer());
        from_bytes(&first).unwrap()
    }

    /// Something that another client does.
    fn other<T: for<'a> Decode<'a>>(&self, procedure: Procedure, arguments: &impl Encode) -> T {
        let bench = self.bench.borrow();
        let client: SocketAddr = "192.0.2.9:1000".parse().unwrap();
        let before = bench.call_from(Peer::new(client, TransportKind::Tcp));
        let results = nfs::call(&bench, procedure, arguments);
        bench.call_from(before.peer());
        results
    }

    /// Makes a file that nobody has changed for an hour.
    fn old_file(&self, name: &[u8]) -> FileHandle {
        let file = nfs::create(&self.bench.borrow(), self.root(), name);
        self.age(name);
        file
    }

    fn age(&self, name: &[u8]) {
        let (handle, _) = self.find(name).expect("it is there");
        self.store.old.borrow_mut().insert(handle);
    }

    /// Someone changes it again.
    fn touch(&self, name: &[u8]) {
        let (handle, _) = self.find(name).expect("it is there");
        self.store.old.borrow_mut().remove(&handle);
    }

    /// A client of another server makes a file, well after anything else.
    fn make_elsewhere(&self, name: &[u8]) {
        let how = millrace_store::CreateHow::Guarded(millrace_store::SetAttributes::default());
        let (caller, root) = (millrace_store::Caller::SUPERUSER, self.store.root());
        let made = support::ready(self.store.store.create(&caller, root, name, &how));
        let (file, _) = made.result.unwrap();
        self.store.young.borrow_mut().insert(file);
    }

    /// A client of another server removes a file.
    fn remove_elsewhere(&self, name: &[u8]) {
        let (caller, root) = (millrace_store::Caller::SUPERUSER, self.store.root());
        let removed = support::ready(self.store.store.remove(&caller, root, name));
        removed.result.unwrap();
    }

    fn find(&self, name: &[u8]) -> Option<(millrace_store::Handle, millrace_store::Attributes)> {
        let caller = millrace_store::Caller::SUPERUSER;
        let root = self.store.root();
        support::ready(self.store.store.lookup(&caller, root, name)).ok()
    }
}

/// Copies the journals in a folder.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

impl Succession {
    fn process(
        self,
        registry: &Registry,
        store: &Lasting,
        folder: &tempfile::TempDir,
    ) -> (Bench<Lasting>, Option<SharedJournals>) {
        let (limits, folder) = (ReplayLimits::default(), folder.path());
        let (mut opened, shared) = match self {
            Self::Restart => (ReplayCache::open(limits, folder, 1), None),
            Self::Replacement => {
                let opened = ReplayCache::open_shared(limits, folder, &[], [7; 16], 1, || ());
                let (opened, shared) = opened.unwrap();
                (opened, Some(shared))
            }
        };
        let writer = opened.writers.pop().expect("the file system is fit for it");
        let exports = Exports::new([(rules("/export"), store.clone())]).unwrap();
        let key = HandleKey::new(&support::SECRET);
        let service = ReactorPrograms::new(exports, key, opened.cache, MountTable::default());
        let service = service.with_journal(writer, &Clock::new(Instant::now()));
        let bench = Bench::over(registry, store.clone(), service);
        bench.waits.set(self == Self::Replacement);
        (bench, shared)
    }
}

fn status<T, F>(results: Result<T, millrace_wire::nfs3::Failure<F>>) -> Result<T, Status> {
    results.map_err(|failure| failure.status)
}

fn guarded(entry: NameInDirectory<'_>) -> CreateArguments<'_> {
    CreateArguments {
        entry,
        how: CreateHow::Guarded(MODE),
    }
}

fn what_was_answered_is_answered_the_same_by_the_next_process(succession: Succession) {
    let world = World::new(succession);
    let create = guarded(world.entry(b"file"));
    let bench = world.bench.borrow();
    let call = bench.message((100_003, 3, Procedure::Create.number()), &create);
    let first = bench.send(&call, &[], &mut Chunks::default()).message;
    drop(bench);
    for _ in 0..3 {
        world.restart();
        let bench = world.bench.borrow();
        let again = bench.send(&call, &[], &mut Chunks::default()).message;
        assert_eq!(again, first);
        assert_eq!(bench.service.counters().replayed.get(), 1);
    }
}

#[test]
fn stores_that_end_with_the_process_are_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let mut opened = ReplayCache::open(ReplayLimits::default(), folder.path(), 1);
        let registry = Registry::new(HugepagePolicy::Off);
        let store = support::memory_store(&registry);
        let writer = opened.writers.pop().unwrap();
        let cache = opened.cache.clone();
        let service = support::service_with([(rules("/export"), store.clone())], opened.cache);
        let bench = Bench::over(
            &registry,
            store,
            service.with_journal(writer, &Clock::new(Instant::now())),
        );
        (bench, cache)
    };
    let (bench, cache) = open();
    nfs::create(&bench, bench.root(), b"file");
    assert_eq!(cache.usage().0, 1);
    assert_eq!(open().1.usage().0, 0);
}

fn remove_that_was_executed_is_answered_with_success(succession: Succession) {
    let world = World::new(succession);
    for name in [b"one", b"two"] {
        world.old_file(name);
    }
    let call = world.killed(Killed::After, Procedure::Remove, &world.entry(b"one"));
    assert!(world.find(b"one").is_none());
    world.repeat::<RemoveResults>(&call).unwrap();
    // Killed in the middle of the repetition too.
    let call = world.killed(Killed::After, Procedure::Remove, &world.entry(b"two"));
    world.restart();
    world.repeat::<RemoveResults>(&call).unwrap();
}

fn remove_that_was_not_executed_is(succession: Succession) {
    let world = World::new(succession);
    world.old_file(b"file");
    let call = world.killed(Killed::Before, Procedure::Remove, &world.entry(b"file"));
    world.repeat::<RemoveResults>(&call).unwrap();
    assert!(world.find(b"file").is_none());
    // Also if somebody has written to it meanwhile.
    world.old_file(b"written");
    let call = world.killed(Killed::Before, Procedure::Remove, &world.entry(b"written"));
    world.touch(b"written");
    world.repeat::<RemoveResults>(&call).unwrap();
    assert!(world.find(b"written").is_none());
}

fn remove_spares_what_another_client_made_meanwhile(succession: Succession) {
    let world = World::new(succession);
    world.old_file(b"file");
    let call = world.killed(Killed::After, Procedure::Remove, &world.entry(b"file"));
    let create = guarded(world.entry(b"file"));
    status(world.other::<CreateResults>(Procedure::Create, &create)).unwrap();
    let again = status(world.repeat::<RemoveResults>(&call));
    assert_eq!(again, Err(Status::Io));
    assert!(world.find(b"file").is_some());
}

#[test]
fn what_clients_of_other_servers_change_after_a_takeover_is_theirs() {
    let world = World::new(Succession::Replacement);
    for name in [b"a", b"b", b"d"] {
        world.old_file(name);
    }
    let rename = |from, to| RenameArguments {
        from: world.entry(from),
        to: world.entry(to),
    };
    // Executed before the takeover; now the names are other objects'.
    let call = world.killed(Killed::After, Procedure::Remove, &world.entry(b"a"));
    world.make_elsewhere(b"a");
    let again = status(world.repeat::<RemoveResults>(&call));
    assert_eq!(again, Err(Status::Io));
    let call = world.killed(Killed::After, Procedure::Rename, &rename(b"b", b"c"));
    world.make_elsewhere(b"b");
    let again = status(world.repeat::<RenameResults>(&call));
    assert_eq!(again, Err(Status::Io));
    assert!(world.find(b"a").is_some() && world.find(b"b").is_some());
    // Not executed; others have done as much.
    let call = world.killed(Killed::Before, Procedure::Rename, &rename(b"d", b"e"));
    world.remove_elsewhere(b"d");
    world.make_elsewhere(b"e");
    let again = status(world.repeat::<RenameResults>(&call));
    assert_eq!(again, Err(Status::NoEntry));
    let create = guarded(world.entry(b"f"));
    let call = world.killed(Killed::Before, Procedure::Create, &create);
    world.make_elsewhere(b"f");
    let again = status(world.repeat::<CreateResults>(&call));
    assert_eq!(again.unwrap_err(), Status::Exists);
}

fn remove_whose_task_ended_spares_what_another_client_made_meanwhile(succession: Succession) {
    // The same process goes on; a journal is not needed.
    let world = World::new(succession);
    let remove = world.entry(b"file");
    world.old_file(b"file");
    let call = world.abandoned(Killed::After, Procedure::Remove, &remove);
    let create = guarded(remove);
    status(world.other::<CreateResults>(Procedure::Create, &create)).unwrap();
    let again = status(world.repeat::<RemoveResults>(&call));
    assert_eq!(again, Err(Status::Io));
    assert!(world.find(b"file").is_some());
}

fn remove_whose_task_ended_before_it_did_anything_is_executed(succession: Succession) {
    let world = World::new(succession);
    world.old_file(b"file");
    let call = world.abandoned(Killed::Before, Procedure::Remove, &world.entry(b"file"));
    world.repeat::<RemoveResults>(&call).unwrap();
    assert!(world.find(b"file").is_none());
}

fn remove_by_another_client_is_not_taken_for_ones_own(succession: Succession) {
    let world = World::new(succession);
    world.old_file(b"file");
    let call = world.killed(Killed::Before, Procedure::Remove, &world.entry(b"file"));
    status(world.other::<RemoveResults>(Procedure::Remove, &world.entry(b"file"))).unwrap();
    let again = status(world.repeat::<RemoveResults>(&call));
    assert_eq!(again, Err(Status::NoEntry));
}

fn remove_of_what_never_was_is_answered_so(succession: Succession) {
    let world = World::new(succession);
    world.store.old.borrow_mut().insert(world.store.root());
    let call = world.killed(Killed::Before, Procedure::Remove, &world.entry(b"none"));
    let again = status(world.repeat::<RemoveResults>(&call));
    assert_eq!(again, Err(Status::NoEntry), "the directory was not changed");
}

fn rmdir_follows_the_rules_of_remove(succession: Succession) {
    let world = World::new(succession);
    for name in [b"a", b"b", b"c"] {
        nfs::mkdir(&world.bench.borrow(), world.root(), name);
        world.age(name);
    }
    let call = world.killed(Killed::After, Procedure::Rmdir, &world.entry(b"a"));
    world.repeat::<RemoveResults>(&call).unwrap();
    let call = world.killed(Killed::Before, Procedure::Rmdir, &world.entry(b"b"));
    world.repeat::<RemoveResults>(&call).unwrap();
    assert!(world.find(b"b").is_none());
    let call = world.killed(Killed::After, Procedure::Rmdir, &world.entry(b"c"));
    let mkdir = MkdirArguments {
        entry: world.entry(b"c"),
        attributes: MODE,
    };
    status(world.other::<CreateResults>(Procedure::Mkdir, &mkdir)).unwrap();
    assert_eq!(
        status(world.repeat::<RemoveResults>(&call)),
        Err(Status::Io)
    );
    assert!(world.find(b"c").is_some());
}

fn rename_is_known_by_the_object_at_its_new_name(succession: Succession) {
    let world = World::new(succession);
    let rename = |from, to| RenameArguments {
        from: world.entry(from),
        to: world.entry(to),
    };
    world.old_file(b"a");
    let call = world.killed(Killed::After, Procedure::Rename, &rename(b"a", b"b"));
    world.touch(b"b");
    world.repeat::<RenameResults>(&call).unwrap();
    assert!(world.find(b"b").is_some());
    // Not executed: it is now.
    world.age(b"b");
    let call = world.killed(Killed::Before, Procedure::Rename, &rename(b"b", b"c"));
    world.repeat::<RenameResults>(&call).unwrap();
    assert!(world.find(b"b").is_none() && world.find(b"c").is_some());
    // The old name is another client's file by now: it stays.
    world.age(b"c");
    let call = world.killed(Killed::After, Procedure::Rename, &rename(b"c", b"d"));
    let create = guarded(world.entry(b"c"));
    status(world.other::<CreateResults>(Procedure::Create, &create)).unwrap();
    assert_eq!(
        status(world.repeat::<RenameResults>(&call)),
        Err(Status::Io)
    );
    assert!(world.find(b"c").is_some() && world.find(b"d").is_some());
    // Neither name is there, or what is at the new one was there before.
    let call = world.killed(Killed::Before, Procedure::Rename, &rename(b"x", b"y"));
    assert_eq!(
        status(world.repeat::<RenameResults>(&call)),
        Err(Status::NoEntry)
    );
    world.age(b"d");
    let call = world.killed(Killed::Before, Procedure::Rename, &rename(b"x", b"d"));
    assert_eq!(
        status(world.repeat::<RenameResults>(&call)),
        Err(Status::NoEntry)
    );
    // Another client took the name away and gave the new one to its own.
    world.old_file(b"e");
    let call = world.killed(Killed::Before, Procedure::Rename, &rename(b"e", b"f"));
    status(world.other::<RemoveResults>(Procedure::Remove, &world.entry(b"e"))).unwrap();
    let create = guarded(world.entry(b"f"));
    status(world.other::<CreateResults>(Procedure::Create, &create)).unwrap();
    assert_eq!(
        status(world.repeat::<RenameResults>(&call)),
        Err(Status::NoEntry)
    );
}

/// Each procedure that makes an object that must not exist: its arguments for a name.
fn makers(
    world: &World,
    test: impl Fn(&World, Procedure, &dyn Fn(&World, &[u8], Killed) -> Vec<u8>),
) {
    test(world, Procedure::Create, &|world, name, at| {
        world.killed(at, Procedure::Create, &guarded(world.entry(name)))
    });
    test(world, Procedure::Mkdir, &|world, name, at| {
        let arguments = MkdirArguments {
            entry: world.entry(name),
            attributes: MODE,
        };
        world.killed(at, Procedure::Mkdir, &arguments)
    });
    test(world, Procedure::Symlink, &|world, name, at| {
        let arguments = SymlinkArguments {
            entry: world.entry(name),
            attributes: MODE,
            text: Bulk::inline(b"text"),
        };
        world.killed(at, Procedure::Symlink, &arguments)
    });
    test(world, Procedure::Mknod, &|world, name, at| {
        let device = Device { major: 1, minor: 3 };
        let arguments = MknodArguments {
            entry: world.entry(name),
            node: Node::Character(MODE, device),
        };
        world.killed(at, Procedure::Mknod, &arguments)
    });
}

fn what_was_made_is_answered_with_what_was_made(succession: Succession) {
    makers(&World::new(succession), |world, procedure, killed| {
        let name = procedure.name().as_bytes();
        let call = killed(world, name, Killed::After);
        let (handle, _) = world.find(name).expect("it was made");
        let made = status(world.repeat::<CreateResults>(&call)).unwrap();
        let handle_of = |results: millrace_wire::nfs3::CreateOk| results.object.unwrap();
        let export = world
            .bench
            .borrow()
            .service
            .exports()
            .iter()
            .next()
            .unwrap()
            .id;
        let sealed = HandleKey::new(&support::SECRET).seal(export.0, handle);
        assert_eq!(handle_of(made), sealed, "{procedure:?}");
    });
}

fn what_was_not_made_is_made(succession: Succession) {
    makers(&World::new(succession), |world, procedure, killed| {
        let name = procedure.name().as_bytes();
        let call = killed(world, name, Killed::Before);
        assert!(world.find(name).is_none());
        status(world.repeat::<CreateResults>(&call)).unwrap();
        assert!(world.find(name).is_some(), "{procedure:?}");
    });
}

fn what_others_made_is_not_taken_for_ones_own(succession: Succession) {
    // Before the call began.
    makers(&World::new(succession), |world, procedure, killed| {
        let name = procedure.name().as_bytes();
        let first = killed(world, name, Killed::Before);
        status(world.repeat::<CreateResults>(&first)).unwrap();
        world.age(name);
        let call = killed(world, name, Killed::Before);
        let again = status(world.repeat::<CreateResults>(&call));
        assert_eq!(again.unwrap_err(), Status::Exists, "{procedure:?}");
    });
    // Meanwhile: of two that compete for a name one gets it.
    makers(&World::new(succession), |world, procedure, killed| {
        let name = procedure.name().as_bytes();
        let call = killed(world, name, Killed::Before);
        let create = guarded(world.entry(name));
        status(world.other::<CreateResults>(Procedure::Create, &create)).unwrap();
        let again = status(world.repeat::<CreateResults>(&call));
        assert_eq!(again.unwrap_err(), Status::Exists, "{procedure:?}");
    });
}

fn an_object_that_is_not_as_the_call_makes_it_is_not_its_own(succession: Succession) {
    let world = World::new(succession);
    let create = |name| guarded(world.entry(name));
    // In use already: written to.
    let call = world.killed(Killed::After, Procedure::Create, &create(b"used"));
    let file = nfs::lookup(&world.bench.borrow(), world.root(), b"used")
        .unwrap()
        .object;
    nfs::write(&world.bench.borrow(), file, 0, b"data").unwrap();
    let again = status(world.repeat::<CreateResults>(&call));
    assert_eq!(again.unwrap_err(), Status::Exists);
    // Of another kind.
    let call = world.killed(Killed::Before, Procedure::Create, &create(b"kind"));
    let (caller, root) = (millrace_store::Caller::SUPERUSER, world.store.root());
    let set = millrace_store::SetAttributes::default();
    let made = world
        .store
        .store
        .make_directory(&caller, root, b"kind", &set);
    support::ready(made).result.unwrap();
    let again = status(world.repeat::<CreateResults>(&call));
    assert_eq!(again.unwrap_err(), Status::Exists);
}

fn calls_with_the_same_effect_are_executed_again(succession: Succession) {
    let world = World::new(succession);
    for how in [CreateHow::Unchecked(MODE), CreateHow::Exclusive([7; 8])] {
        for (at, name) in [(Killed::Before, b"before"), (Killed::After, b"after_")] {
            let arguments = CreateArguments {
                entry: world.entry(name),
                how,
            };
            let call = world.killed(at, Procedure::Create, &arguments);
            status(world.repeat::<CreateResults>(&call)).unwrap();
            status(world.other::<RemoveResults>(Procedure::Remove, &world.entry(name))).unwrap();
        }
    }
    let file = world.old_file(b"file");
    for at in [Killed::Before, Killed::After] {
        let arguments = SetattrArguments {
            object: file,
            attributes: SetAttributes {
                size: Some(10),
                ..MODE
            },
            guard: None,
        };
        let call = world.killed(at, Procedure::Setattr, &arguments);
        status(world.repeat::<SetattrResults>(&call)).unwrap();
        assert_eq!(world.find(b"file").unwrap().1.size, 10);
    }
}

fn setattr_with_a_guard_is_known_by_what_it_set(succession: Succession) {
    let world = World::new(succession);
    let file = nfs::create(&world.bench.borrow(), world.root(), b"file");
    let guarded = |mode, size| SetattrArguments {
        object: file,
        attributes: SetAttributes {
            mode: Some(mode),
            size,
            modified: SetTime::ServerTime,
            ..MODE
        },
        guard: Some(nfs::attributes(&world.bench.borrow(), file).changed),
    };
    let call = world.killed(Killed::After, Procedure::Setattr, &guarded(0o600, Some(5)));
    status(world.repeat::<SetattrResults>(&call)).unwrap();
    let call = world.killed(Killed::Before, Procedure::Setattr, &guarded(0o640, None));
    status(world.repeat::<SetattrResults>(&call)).unwrap();
    assert_eq!(world.find(b"file").unwrap().1.mode, 0o640);
    // Somebody else came first, and what the call sets is not there.
    let call = world.killed(Killed::Before, Procedure::Setattr, &guarded(0o644, None));
    let other = SetattrArguments {
        object: file,
        attributes: SetAttributes {
            mode: Some(0o777),
            ..MODE
        },
        guard: None,
    };
    status(world.other::<SetattrResults>(Procedure::Setattr, &other)).unwrap();
    let again = status(world.repeat::<SetattrResults>(&call));
    assert_eq!(again.unwrap_err(), Status::NotSync);
    assert_eq!(world.find(b"file").unwrap().1.mode, 0o777);
}

fn link_is_known_by_its_object(succession: Succession) {
    let world = World::new(succession);
    let (one, two) = (world.old_file(b"one"), world.old_file(b"two"));
    let link = |object, name| LinkArguments {
        object,
        entry: world.entry(name),
    };
    let call = world.killed(Killed::Before, Procedure::Link, &link(one, b"a"));
    status(world.repeat::<LinkResults>(&call)).unwrap();
    assert_eq!(world.find(b"one").unwrap().1.links, 2);
    let call = world.killed(Killed::After, Procedure::Link, &link(one, b"b"));
    world.touch(b"one");
    status(world.repeat::<LinkResults>(&call)).unwrap();
    assert_eq!(world.find(b"one").unwrap().1.links, 3);
    // The name was there before, for this object or another one.
    world.age(b"one");
    let call = world.killed(Killed::Before, Procedure::Link, &link(one, b"b"));
    assert_eq!(
        status(world.repeat::<LinkResults>(&call)).unwrap_err(),
        Status::Exists
    );
    let call = world.killed(Killed::Before, Procedure::Link, &link(two, b"b"));
    assert_eq!(
        status(world.repeat::<LinkResults>(&call)).unwrap_err(),
        Status::Exists
    );
    // Two that compete for a lock by links to files of their own: the one whose file it is has it,
    // whoever asks first after the restart.
    let call = world.killed(Killed::After, Procedure::Link, &link(one, b"lock"));
    world.touch(b"one");
    let other = world.other::<LinkResults>(Procedure::Link, &link(two, b"lock"));
    assert_eq!(status(other).unwrap_err(), Status::Exists);
    status(world.repeat::<LinkResults>(&call)).unwrap();
}

fn a_repetition_that_is_killed_too_is_still_known(succession: Succession) {
    let world = World::new(succession);
    let call = world.killed(
        Killed::After,
        Procedure::Mkdir,
        &MkdirArguments {
            entry: world.entry(b"new"),
            attributes: MODE,
        },
    );
    // Executed again, and killed before that is answered.
    world.kill(Killed::After, &call);
    status(world.repeat::<CreateResults>(&call)).unwrap();
}
