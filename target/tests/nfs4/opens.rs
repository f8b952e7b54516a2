//! OPENs that fail when the file has been opened.

use millrace_mempool::{HugepagePolicy, Registry};
use millrace_wire::nfs4::{
    Attribute, Attributes, CreateMode, OpenClaim, OpenOperation, Operation,
    OperationStatus as Status, ReadOperation, StateOwner, share,
};
use millrace_wire::xdr::BoundedBytes;

use crate::support::callback_client::CallbackWorld;
use crate::support::lasting::Lasting;
use crate::support::memory_store;
use crate::support::nfs4::put;

#[test]
fn v4_open_16_an_open_whose_file_cannot_be_truncated_leaves_the_earlier_one_of_its_owner() {
    let registry = Registry::new(HugepagePolicy::Off);
    let store = Lasting::new(memory_store(&registry));
    let world = CallbackWorld::of(&registry, store.clone());
    let client = world.client(b"client");
    let file = world.open(&client, b"file", share::READ).unwrap();
    let mut given = [0; 64];
    let empty = Attributes::build(&[Attribute::Size(0)], &mut given).unwrap();
    let truncate = [
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        Operation::Open(OpenOperation {
            sequence: 0,
            access: share::WRITE,
            deny: 0,
            owner: StateOwner {
                client: client.id,
                owner: BoundedBytes(b"owner"),
            },
            create: Some(CreateMode::Unchecked(empty)),
            claim: OpenClaim::Name(b"file"),
        }),
    ];
    store.is_full.set(true);
    assert_eq!(world.status(&client, &truncate), Status::NoSpace);
    let read = [
        put(&file.handle),
        Operation::Read(ReadOperation {
            state: file.state,
            offset: 0,
            count: 4,
        }),
    ];
    assert_eq!(world.status(&client, &read), Status::Ok);
    store.is_full.set(false);
    assert_eq!(world.status(&client, &truncate), Status::Ok);
}
