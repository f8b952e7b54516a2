//! COMPOUNDs with wrong bytes: each is answered within its bounds, and a sound one after it is served.

use millrace::call::{Answer, Limits};
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Attributes, Bitmap, CommitOperation, CreateMode,
    NewObject, OpenClaim, OpenOperation, Operation, OperationStatus as Status, ReadOperation,
    RenameOperation, StateId, StateOwner, WriteOperation, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};
use proptest::prelude::*;

use crate::support::nfs4::{Bench4, create, list, put, set};
use crate::support::{Chunks, LIMITS};

/// Operations that each decode something else.
fn messages(bench: &Bench4, file: &[u8], root: &[u8]) -> Vec<Vec<u8>> {
    let mut values = [0; 64];
    let attributes = [Attribute::Mode(0o640), Attribute::Owner(b"7")];
    let attributes = Attributes::build(&attributes, &mut values).unwrap();
    let state = StateId::ANONYMOUS;
    let open = Operation::Open(OpenOperation {
        sequence: 0,
        access: share::BOTH,
        deny: 0,
        owner: StateOwner {
            client: 1,
            owner: BoundedBytes(b"owner"),
        },
        create: Some(CreateMode::Unchecked(attributes)),
        claim: OpenClaim::Name(b"opened"),
    });
    let wanted = Bitmap::from_words([0x0018_091a, 0x00b0_a23a, 0]);
    let all: [&[Operation<'_>]; 4] = [
        &[
            put(file),
            set(attributes),
            Operation::Getattr(wanted),
            Operation::Access(63),
            Operation::Verify(attributes),
            Operation::Nverify(attributes),
        ],
        &[
            put(file),
            Operation::Write(WriteOperation {
                state,
                offset: 3,
                stable: Stability::FileSync,
                data: Bulk::inline(b"some data"),
            }),
            Operation::Read(ReadOperation {
                state,
                offset: 1,
                count: 9,
            }),
            Operation::Commit(CommitOperation {
                offset: 0,
                count: 0,
            }),
            Operation::Getfh(()),
        ],
        &[
            put(root),
            Operation::Savefh(()),
            open,
            Operation::Restorefh(()),
            create(
                NewObject::Symlink(Bulk::inline(b"text")),
                b"link",
                attributes,
            ),
            Operation::Readlink(()),
            Operation::Lookupp(()),
        ],
        &[
            put(root),
            Operation::Savefh(()),
            Operation::Readdir(list(Bitmap::of(&[Number::Type, Number::Handle]))),
            Operation::Rename(RenameOperation {
                from: b"opened",
                to: b"renamed",
            }),
            Operation::Link(b"linked"),
            Operation::Remove(b"renamed"),
            Operation::Secinfo(b"file"),
        ],
    ];
    all.into_iter()
        .map(|operations| {
            let all = [&[bench.next_sequence()], operations].concat();
            bench.compound_message(&all)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn v4_comp_16_mutated_operations_do_no_harm(
        seed in prop::collection::vec((0_usize..4, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), any::<Option<prop::sample::Index>>(), 100_usize..500), 1..8),
    ) {
        let bench = Bench4::new();
        let (file, root) = (bench.file(b"file", 0o644), bench.walk("/export"));
        for (which, flips, cut, message_max) in seed {
            let first = bench.sequence.get();
            let mut message = messages(&bench, &file, &root).swap_remove(which);
            // The others are not sent, so their sequence numbers are not used.
            bench.sequence.set(first + which as u32 + 1);
            bench.state.expect_sequence(bench.sequence.get());
            // Behind the RPC header, the header of COMPOUND and SEQUENCE.
            let start = message.len().min(72 + 12 + 36);
            for (at, value) in flips {
                let at = start + at.index(message.len() - start);
                message[at] = value;
            }
            if let Some(cut) = cut {
                message.truncate(start + cut.index(message.len() - start));
            }
            bench.limits.set(Limits { message: message_max, ..LIMITS });
            let (answer, reply, _) = bench.send(&message, &[], &mut Chunks::default());
            prop_assert_eq!(answer, Answer::Send);
            prop_assert!(reply.len() <= message_max);
        }
        bench.limits.set(LIMITS);
        let statuses = bench.statuses(&[put(&root), Operation::Getfh(())]);
        prop_assert_eq!(statuses, [Status::Ok, Status::Ok]);
    }
}
