//! Delegations of files that others change as well: each has a lease of the store.

use std::rc::Rc;

use millrace_mempool::{HugepagePolicy, Registry};
use millrace_wire::nfs4::{
    NoDelegation, OpenClaim, OpenDelegation, OpenOperation, Operation, OperationResults,
    OperationStatus as Status, StateOwner, share,
};
use millrace_wire::xdr::BoundedBytes;

use crate::support::callback_client::{CallbackClient, CallbackWorld, OpenedFile};
use crate::support::lasting::{GivenLease, Lasting};
use crate::support::memory_store;
use crate::support::nfs4::put;

const READ: u32 = share::READ | share::WANT_READ;

/// A server whose store is changed elsewhere, too.
struct LeasedWorld {
    world: CallbackWorld<Lasting>,
    store: Lasting,
    client: CallbackClient,
}

impl LeasedWorld {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let mut store = Lasting::new(memory_store(&registry));
        store.leases = Some(Rc::default());
        let world = CallbackWorld::of(&registry, store.clone());
        let client = world.client(b"client");
        Self {
            world,
            store,
            client,
        }
    }

    fn open(&self, name: &[u8], access: u32) -> OpenedFile {
        self.world.open(&self.client, name, access).unwrap()
    }

    /// The number of leases that were given so far.
    fn given(&self) -> usize {
        self.store.leases.as_ref().unwrap().borrow().len()
    }

    fn of_lease<T>(&self, index: usize, show: impl FnOnce(&GivenLease) -> T) -> T {
        show(&self.store.leases.as_ref().unwrap().borrow()[index])
    }
}

#[test]
fn a_delegation_is_granted_with_a_lease_and_recalled_when_that_has_to_end() {
    let world = LeasedWorld::new();
    let file = world.open(b"file", READ);
    let Some((state, false)) = file.delegation else {
        panic!("{file:?}")
    };
    assert_eq!(world.given(), 1);
    assert!(!world.of_lease(0, GivenLease::has_ended));
    world.of_lease(0, |lease| lease.end.announce());
    world.world.turn();
    let call = world.client.callback();
    assert_eq!(call.recall(), (state, file.handle.clone(), false));
    call.answer(Status::Ok);
    let give_back = [put(&file.handle), Operation::Delegreturn(state)];
    assert_eq!(world.world.status(&world.client, &give_back), Status::Ok);
    assert!(world.of_lease(0, GivenLease::has_ended));
}

#[test]
fn files_that_are_changed_elsewhere_are_delegated_for_reading_only() {
    let world = LeasedWorld::new();
    for access in [
        share::BOTH,
        share::BOTH | share::WANT_WRITE,
        share::BOTH | share::WANT_ANY,
        share::READ | share::WANT_NONE,
        share::READ,
    ] {
        let file = world.open(format!("{access:x}").as_bytes(), access);
        assert_eq!(file.delegation, None, "{access:x}");
    }
    assert_eq!(world.given(), 0, "nothing is asked in vain");
    // The second open shows that it is of use.
    let file = world.open(format!("{:x}", share::READ).as_bytes(), share::READ);
    assert!(matches!(file.delegation, Some((_, false))), "{file:?}");
}

#[test]
fn without_a_lease_there_is_no_delegation() {
    let world = LeasedWorld::new();
    let made = world.open(b"file", share::READ | share::WANT_NONE);
    world.store.delayed.set(true);
    let operations = [
        put(&made.handle),
        Operation::Open(OpenOperation {
            sequence: 0,
            access: READ,
            deny: 0,
            owner: StateOwner {
                client: world.client.id,
                owner: BoundedBytes(b"owner"),
            },
            create: None,
            claim: OpenClaim::File,
        }),
    ];
    let results = world.world.run(&world.client, &operations);
    let (_, all) = results.read();
    let OperationResults::Open(Ok(reply)) = &all[1] else {
        panic!("{all:?}")
    };
    let refused = OpenDelegation::NoneBecause(NoDelegation::Contention(false));
    assert_eq!(reply.delegation, refused);
}
