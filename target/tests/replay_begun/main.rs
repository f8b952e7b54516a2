//! Calls that a process was killed in: what their repetition by the same XID is answered by the
//! next process, and what it does.

#[path = "../support/mod.rs"]
mod support;
mod world;

use std::time::Instant;

use millrace::handle::HandleKey;
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::Clock;
use millrace_store::{Namespace, Store};
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, Device, LinkArguments, LinkResults, MkdirArguments,
    MknodArguments, NameInDirectory, Node, Procedure, RemoveResults, RenameArguments,
    RenameResults, SetAttributes, SetTime, SetattrArguments, SetattrResults, Status,
    SymlinkArguments,
};
use millrace_wire::xdr::Bulk;
use support::lasting::Killed;
use support::nfs::{self, MODE};
use support::{Bench, Chunks, rules};
use world::{Succession, World};

/// Runs each test by both successions.
macro_rules! successions {
    ($($test:ident)*) => {
        mod restart {
            $(#[test] fn $test() { crate::$test(crate::Succession::Restart); })*
        }
        mod replacement {
            $(#[test] fn $test() { crate::$test(crate::Succession::Replacement); })*
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
