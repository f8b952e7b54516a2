//! Lengths and counts that a request states are no reason to take memory.

use millrace_testing::allocation::most_taken_bytes;
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    AccessControlEntry, Attribute, AttributeNumber as Number, Attributes, BackchannelCtlOperation,
    Bitmap, ChannelAttributes, ClientOwner, CompoundReplyHeader, CopyOperation, CreateMode,
    CreateSessionOperation, ExchangeIdOperation, ImplementationId, ListxattrsOperation,
    LockOperation, LockType, Locker, NewLockOwner, NewObject, OpenClaim, OpenOperation, Operation,
    OperationResults, OperationStatus, ProtectedOperations, ProtectionOffer, ReadOperation,
    RenameOperation, ResultsReader, SequenceOperation, SetSsvOperation, SetxattrOperation,
    SsvOffer, StateId, StateOwner, Timestamp, WriteOperation, share,
};
use millrace_wire::xdr::{Array, BoundedBytes, Bulk, Decode, Decoder};

use crate::support;
use crate::support::Chunks;
use crate::support::callback_client::{CallbackClient, CallbackWorld, callback_user};
use crate::support::nfs4::{create, list, put, set};

/// The most heap memory, in bytes, that one of these requests takes; they are of some hundred bytes.
const MOST: i64 = 16 << 10;

/// Lengths that no request has.
const LENGTHS: [u32; 5] = [0x2_0000, 0x10_0000, 0x0100_0000, 0x7fff_fffc, u32::MAX];

/// Operations with something of variable length, and those that state how much they want.
fn operations(client: u64, show: &mut dyn FnMut(Operation<'_>)) {
    let mut values = [0; 256];
    let entry = AccessControlEntry {
        kind: 0,
        flags: 0,
        mask: 1,
        who: b"OWNER@",
    };
    let entries = [entry; 2];
    let all = [
        Attribute::Acl(Array::new(&entries)),
        Attribute::Mode(0o640),
        Attribute::Owner(b"7"),
    ];
    let attributes = Attributes::build(&all, &mut values).unwrap();
    let state = StateId::ANONYMOUS;
    let owner = StateOwner {
        client,
        owner: BoundedBytes(b"owner"),
    };
    let open = OpenOperation {
        sequence: 0,
        access: share::BOTH,
        deny: 0,
        owner,
        create: Some(CreateMode::Unchecked(attributes)),
        claim: OpenClaim::Name(b"opened"),
    };
    let lock = LockOperation {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New(NewLockOwner {
            open_sequence: 0,
            open: state,
            lock_sequence: 0,
            owner,
        }),
    };
    let protected = ProtectedOperations {
        must_enforce: Bitmap::from_words([1, 2, 3]),
        must_allow: Bitmap::from_words([1, 2, 3]),
    };
    let algorithms = [&b"one"[..], b"another"];
    let exchange = ExchangeIdOperation {
        owner: ClientOwner {
            verifier: [1; 8],
            owner: BoundedBytes(b"another"),
        },
        flags: 0,
        protection: ProtectionOffer::Ssv(SsvOffer {
            operations: protected,
            hashes: Array::new(&algorithms),
            encryptions: Array::new(&algorithms),
            window: 1,
            handles: 1,
        }),
        implementation: Some(ImplementationId {
            domain: b"example.org",
            name: b"client",
            date: Timestamp {
                seconds: 0,
                nanoseconds: 0,
            },
        }),
    };
    let channel = ChannelAttributes {
        header_padding: 0,
        request_size: 4096,
        response_size: 4096,
        cached_size: 512,
        operations: 8,
        requests: 2,
        rdma_ird: Some(1),
    };
    let security = [callback_user()];
    let session = CreateSessionOperation {
        client,
        sequence: 2,
        flags: 0,
        fore: channel,
        back: channel,
        callback_program: 0x4000_0000,
        security: Array::new(&security),
    };
    let copy = CopyOperation {
        source_state: state,
        destination_state: state,
        source_offset: 0,
        destination_offset: 0,
        count: 1,
        consecutive: true,
        synchronous: true,
        source_servers: Array::new(&[]),
    };
    let read = ReadOperation {
        state,
        offset: 0,
        count: 1,
    };
    let write = WriteOperation {
        state,
        offset: 0,
        stable: Stability::Unstable,
        data: Bulk::inline(b"some data"),
    };
    let xattr = SetxattrOperation {
        option: 0,
        name: b"name",
        value: b"value",
    };
    let wanted = Bitmap::of(&[Number::Acl, Number::Owner]);
    for operation in [
        create(NewObject::Directory, b"directory", attributes),
        create(
            NewObject::Symlink(Bulk::inline(b"text")),
            b"link",
            attributes,
        ),
        Operation::Open(open),
        set(attributes),
        Operation::Verify(attributes),
        Operation::Nverify(attributes),
        Operation::Getattr(wanted),
        Operation::Lookup(b"directory"),
        Operation::Link(b"linked"),
        Operation::Remove(b"linked"),
        Operation::Rename(RenameOperation {
            from: b"link",
            to: b"renamed",
        }),
        Operation::Secinfo(b"directory"),
        Operation::Lock(lock),
        Operation::Readdir(list(wanted)),
        Operation::Read(read),
        Operation::ReadPlus(read),
        Operation::Write(write),
        Operation::ExchangeId(exchange),
        Operation::CreateSession(session),
        Operation::BackchannelCtl(BackchannelCtlOperation {
            callback_program: 0x4000_0000,
            security: Array::new(&security),
        }),
        Operation::TestStateid(Array::new(&[state, state])),
        Operation::SetSsv(SetSsvOperation {
            ssv: b"secret",
            digest: b"digest",
        }),
        Operation::Copy(copy),
        Operation::Setxattr(xattr),
        Operation::Getxattr(b"name"),
        Operation::Removexattr(b"name"),
        Operation::Listxattrs(ListxattrsOperation {
            cookie: 0,
            maxcount: 512,
        }),
    ] {
        show(operation);
    }
}

/// A COMPOUND of a client that makes `file` the current object and has this operation.
fn message(
    world: &CallbackWorld,
    client: &CallbackClient,
    file: &[u8],
    operation: Operation<'_>,
) -> Vec<u8> {
    world.bench.call_by(&client.link.borrow().connection);
    let sequence = Operation::Sequence(SequenceOperation {
        session: client.session,
        sequence: client.sequence.get() + 1,
        slot: 0,
        highest_slot: 0,
        cache_this: true,
    });
    world
        .bench
        .compound_message(&[sequence, put(file), operation])
}

/// Whether a reply shows that the slot was used.
fn is_in_sequence(reply: &[u8]) -> bool {
    let mut input = Decoder::new(support::results(reply));
    let header = CompoundReplyHeader::decode(&mut input).expect("a header");
    let first = ResultsReader::<OperationResults<'_>>::new(input, header.results).next();
    matches!(first, Some(Ok(OperationResults::Sequence(Ok(_)))))
}

#[test]
fn v4_sec_07_stated_lengths_take_no_memory() {
    let world = CallbackWorld::new();
    world.bench.minor_version.set(2);
    let client = world.client(b"client");
    world.switch_to(&client);
    let folder = world.bench.walk("/export");
    let empty = message(&world, &client, &folder, Operation::Getfh(())).len() - 4;
    let before = world.bench.pool.gauges().in_use();
    let mut calls = 0;
    operations(client.id, &mut |operation| {
        // What it needs for the first of its kind, such as a table of opens.
        world.run(&client, &[put(&folder), operation]);
        let length = message(&world, &client, &folder, operation).len();
        for word in (empty + 4..length).step_by(4) {
            for stated in LENGTHS {
                let mut message = message(&world, &client, &folder, operation);
                message[word..word + 4].copy_from_slice(&stated.to_be_bytes());
                let mut reply = Vec::new();
                let most = most_taken_bytes(|| {
                    reply = world.bench.send(&message, &[], &mut Chunks::default()).1;
                });
                assert!(
                    most <= MOST,
                    "{operation:?} with {stated:#x} at {word}: {most} bytes"
                );
                assert_eq!(world.bench.pool.gauges().in_use(), before, "{operation:?}");
                assert!(is_in_sequence(&reply), "{operation:?}");
                client.sequence.set(client.sequence.get() + 1);
                calls += 1;
            }
        }
    });
    assert!(calls > 1000, "{calls} calls");
    let status = world.status(&client, &[put(&folder)]);
    assert_eq!(status, OperationStatus::Ok);
}
