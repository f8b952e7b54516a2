//! The engine of COMPOUND: minor versions, order, errors, handles, bounds and repetitions.

use std::cell::Cell;

use millrace::call::Answer;
use millrace::nfs4::SessionBounds;
use millrace_wire::nfs4::{
    Bitmap, CompoundHeader, ConnectionBinding, HasStatus, Operation, OperationNumber,
    OperationResults, OperationStatus as Status, SequenceOperation, StateId,
};
use millrace_wire::rpc::{Accepted, CallOutcome};
use millrace_wire::xdr::{BoundedBytes, Encode, Encoder, Error};

use crate::support::nfs4::{Bench4, list, put};
use crate::support::session_double::SessionDouble;
use crate::support::{Chunks, outcome};

/// Arguments of a COMPOUND of which only the first words are sound.
struct RawCompound<'a> {
    header: CompoundHeader<'a>,
    operations: &'a [u8],
}

impl Encode for RawCompound<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<(), Error> {
        self.header.encode(out)?;
        out.raw(self.operations)
    }
}

fn raw<'a>(tag: &'a [u8], minor_version: u32, count: u32, operations: &'a [u8]) -> RawCompound<'a> {
    RawCompound {
        header: CompoundHeader {
            tag: BoundedBytes(tag),
            minor_version,
            operations: count,
        },
        operations,
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The number and status of each result, also of operations that are not known.
fn answered(bytes: &[u8]) -> (Status, u32, Vec<u8>) {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let tag = word(4) as usize;
    let count = 8 + tag.next_multiple_of(4);
    let status = Status::from_number(word(0)).unwrap();
    (status, word(count), bytes[count + 4..].to_vec())
}

/// SEQUENCE as it stands in arguments.
fn sequence_bytes(bench: &Bench4) -> Vec<u8> {
    let mut bytes = [0; 64];
    let length = millrace_wire::xdr::to_bytes(&bench.next_sequence(), &mut bytes).unwrap();
    bytes[..length].to_vec()
}

/// Bytes of the result of SEQUENCE.
const SEQUENCE_RESULT: usize = 8 + 36;

#[test]
fn v4_comp_01_other_minor_versions_are_refused() {
    let bench = Bench4::new();
    for minor_version in [0, 3, u32::MAX] {
        let operations = words(&[OperationNumber::Putrootfh.number()]);
        let arguments = raw(b"tag", minor_version, 1, &operations);
        let results = bench.results(&bench.message(1, &arguments));
        let (header, all) = results.read();
        assert_eq!(header.status, Status::MinorVersionMismatch);
        assert_eq!((header.tag.0, all.len()), (&b"tag"[..], 0));
    }
    assert!(bench.state.shapes.borrow().is_empty());
    for minor_version in [1, 2] {
        bench.minor_version.set(minor_version);
        assert_eq!(bench.run(&[Operation::Putrootfh(())]).status(), Status::Ok);
    }
}

#[test]
fn v4_comp_02_no_operations_need_no_session() {
    let bench = Bench4::new();
    let results = bench.compound(&[]);
    let (header, all) = results.read();
    assert_eq!((header.status, all.len()), (Status::Ok, 0));
}

#[test]
fn v4_comp_03_tags_come_back_byte_for_byte() {
    let bench = Bench4::new();
    for length in [0, 1, 3, 1024] {
        let tag = vec![b't'; length];
        let results = bench.results(&bench.message(1, &raw(&tag, 1, 0, &[])));
        assert_eq!(results.read().0.tag.0, tag);
    }
    for length in [1025, u32::MAX] {
        let mut arguments = words(&[length]);
        arguments.resize(1040, 0);
        let mut message = bench.message(1, &());
        message.extend(arguments);
        let (answer, reply, _) = bench.send(&message, &[], &mut Chunks::default());
        assert_eq!(answer, Answer::Send);
        let CallOutcome::Accepted { status, .. } = outcome(&reply) else {
            panic!("denied");
        };
        assert_eq!(status, Accepted::GarbageArguments);
    }
}

#[test]
fn v4_comp_04_tags_are_utf8() {
    let bench = Bench4::new();
    for tag in [&b"\xc0\xaf"[..], b"\xe2\x82", b"\xed\xa0\x80"] {
        let results = bench.results(&bench.message(1, &raw(tag, 1, 0, &[])));
        let header = results.read().0;
        assert_eq!((header.status, header.tag.0), (Status::Invalid, tag));
    }
}

#[test]
fn v4_comp_05_the_first_error_ends_it() {
    let bench = Bench4::new();
    let results = bench.run(&[
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        Operation::Lookup(b"none"),
        Operation::Putrootfh(()),
        Operation::Getfh(()),
    ]);
    let (header, all) = results.read();
    let statuses: Vec<_> = all.iter().map(HasStatus::status).collect();
    assert_eq!(statuses, [Status::Ok, Status::Ok, Status::NoEntry]);
    assert_eq!((header.status, header.results), (Status::NoEntry, 4));
    assert_eq!(bench.state.finished.get(), 1);
}

#[test]
fn v4_comp_06_undefined_operations_are_illegal() {
    let bench = Bench4::new();
    for number in [0, 1, 2, 76, 9999] {
        let bytes = [sequence_bytes(&bench), words(&[number])].concat();
        let results = bench.results(&bench.message(1, &raw(b"", 2, 2, &bytes)));
        let (status, count, rest) = answered(&results.bytes);
        assert_eq!((status, count), (Status::IllegalOperation, 2));
        assert_eq!(rest[SEQUENCE_RESULT..], words(&[10044, 10044]));
    }
}

#[test]
fn v4_comp_07_operations_of_version_0_are_not_supported() {
    let bench = Bench4::new();
    for operation in [
        OperationNumber::Setclientid,
        OperationNumber::Renew,
        OperationNumber::OpenConfirm,
    ] {
        let bytes = [sequence_bytes(&bench), words(&[operation.number()])].concat();
        let results = bench.results(&bench.message(1, &raw(b"", 1, 2, &bytes)));
        let (status, count, rest) = answered(&results.bytes);
        assert_eq!((status, count), (Status::NotSupported, 2));
        assert_eq!(rest[SEQUENCE_RESULT..], words(&[operation.number(), 10004]));
    }
}

#[test]
fn v4_comp_08_and_v4_v42_23_operations_of_minor_version_2_are_illegal_in_1() {
    let bench = Bench4::new();
    for number in 59..=75_u32 {
        let bytes = [sequence_bytes(&bench), words(&[number])].concat();
        let results = bench.results(&bench.message(1, &raw(b"", 1, 2, &bytes)));
        let (status, _, rest) = answered(&results.bytes);
        assert_eq!(status, Status::IllegalOperation);
        assert_eq!(rest[SEQUENCE_RESULT..], words(&[10044, 10044]), "{number}");
        // In minor version 2 they have names.
        let bytes = [sequence_bytes(&bench), words(&[number])].concat();
        let results = bench.results(&bench.message(1, &raw(b"", 2, 2, &bytes)));
        let (_, _, rest) = answered(&results.bytes);
        assert_eq!(rest[SEQUENCE_RESULT..][..4], words(&[number]));
    }
}

#[test]
fn v4_comp_21_a_long_compound_lets_others_run() {
    let bench = Bench4::new();
    let root = Operation::Putrootfh(());
    let long = |bench: &Bench4, operations: usize| {
        let mut all = vec![bench.next_sequence()];
        all.resize(operations, root);
        bench.compound_message(&all)
    };
    let turns = Cell::new(0);
    let message = long(&bench, 40);
    let results = bench.results_after(&message, || {
        // Somebody else is served meanwhile.
        assert_eq!(bench.compound(&[]).status(), Status::Ok);
        turns.set(turns.get() + 1);
    });
    assert_eq!((results.status(), turns.get()), (Status::Ok, 1));
    assert_eq!(results.read().1.len(), 39);
    // What clients usually send is executed in one turn.
    assert_eq!(bench.turns(&long(&bench, 8)), 1);
    assert_eq!(bench.turns(&long(&bench, 9)), 2);
    assert_eq!(bench.turns(&long(&bench, 40)), 5);
}

#[test]
fn v4_comp_21_a_listing_is_the_last_operation_of_its_turn() {
    let bench = Bench4::new();
    let turns = |rest: &[Operation<'_>]| {
        let mut all = vec![bench.next_sequence(), Operation::Putrootfh(())];
        all.extend_from_slice(rest);
        bench.turns(&bench.compound_message(&all))
    };
    let listing = Operation::Readdir(list(Bitmap::default()));
    let root = Operation::Putrootfh(());
    assert_eq!(turns(&[listing]), 1);
    assert_eq!(turns(&[root, listing]), 1);
    assert_eq!(turns(&[listing, root, root, root]), 2);
    assert_eq!(turns(&[listing, listing, listing]), 3);
}

#[test]
fn v4_v42_21_and_22_layouts_and_copies_between_servers_are_not_supported() {
    let bench = Bench4::new();
    // GETDEVICEINFO to LAYOUTRETURN, COPY_NOTIFY, LAYOUTERROR, LAYOUTSTATS and WRITE_SAME. Their
    // arguments are not looked at.
    for (minor, number) in (47..=51)
        .map(|number| (1, number))
        .chain([61, 64, 65, 70].map(|number| (2, number)))
    {
        let bytes = [sequence_bytes(&bench), words(&[number, u32::MAX, u32::MAX])].concat();
        let results = bench.results(&bench.message(1, &raw(b"", minor, 2, &bytes)));
        let (status, _, rest) = answered(&results.bytes);
        assert_eq!(status, Status::NotSupported, "{number}");
        assert_eq!(rest[SEQUENCE_RESULT..], words(&[number, 10004]), "{number}");
    }
}

#[test]
fn v4_comp_09_operations_need_a_session() {
    let bench = Bench4::new();
    let all = [
        Operation::Putrootfh(()),
        Operation::Getfh(()),
        Operation::Lookup(b"export"),
        Operation::ReclaimComplete(false),
        Operation::FreeStateid(StateId::ANONYMOUS),
        Operation::Savefh(()),
    ];
    for operation in all {
        let results = bench.compound(&[operation]);
        let (header, all) = results.read();
        assert_eq!(header.status, Status::OperationNotInSession);
        assert_eq!(all[0].number(), number(&operation));
    }
    // What is not served at all as well.
    let bytes = words(&[OperationNumber::Renew.number()]);
    let results = bench.results(&bench.message(1, &raw(b"", 1, 1, &bytes)));
    assert_eq!(answered(&results.bytes).0, Status::OperationNotInSession);
    // These stand alone.
    let destroyed = bench.compound(&[Operation::DestroySession(SessionDouble::SESSION)]);
    assert_eq!(destroyed.status(), Status::Ok);
    let results = bench.compound(&[Operation::DestroyClientid(1)]);
    assert_eq!(results.status(), Status::ClientIdBusy);
    assert_eq!(bench.compound(&[bind()]).status(), Status::Ok);
}

fn number(operation: &Operation<'_>) -> u32 {
    millrace_wire::nfs4::CompoundOperation::number(operation)
}

fn bind() -> Operation<'static> {
    Operation::BindConnToSession(ConnectionBinding {
        session: SessionDouble::SESSION,
        direction: 1,
        rdma_mode: false,
    })
}

#[test]
fn v4_comp_10_sequence_stands_first() {
    let bench = Bench4::new();
    let again = bench.this_sequence();
    assert_eq!(
        bench.statuses(&[Operation::Putrootfh(()), again]),
        [Status::Ok, Status::SequencePosition]
    );
    assert_eq!(
        bench.statuses(&[again, Operation::Putrootfh(())]),
        [Status::SequencePosition]
    );
}

#[test]
fn v4_comp_11_what_needs_no_session_stands_alone() {
    let bench = Bench4::new();
    let root = Operation::Putrootfh(());
    for operation in [
        Operation::DestroySession(SessionDouble::SESSION),
        Operation::DestroyClientid(1),
        bind(),
    ] {
        let results = bench.compound(&[operation, root]);
        let (header, all) = results.read();
        assert_eq!((header.status, all.len()), (Status::NotOnlyOperation, 1));
    }
    assert_eq!(bench.statuses(&[bind()]), [Status::NotOnlyOperation]);
    // Behind SEQUENCE of the same session it ends the COMPOUND.
    let destroy = Operation::DestroySession(SessionDouble::SESSION);
    assert_eq!(bench.statuses(&[destroy, root]), [Status::NotOnlyOperation]);
    assert_eq!(bench.statuses(&[root, destroy]), [Status::Ok, Status::Ok]);
}

#[test]
fn v4_comp_12_and_13_the_session_is_told_how_large_a_request_is() {
    let bench = Bench4::new();
    let operations = [bench.next_sequence(), Operation::Putrootfh(())];
    let message = bench.compound_message(&operations);
    bench.results(&message);
    assert_eq!(*bench.state.shapes.borrow(), [(2, message.len())]);
}

#[test]
fn v4_comp_14_a_result_that_does_not_fit_is_too_big() {
    let bench = Bench4::new();
    // RPC header 24, COMPOUND header 12, SEQUENCE 44, PUTROOTFH 8, GETFH 12 and its handle.
    let operations = [Operation::Putrootfh(()), Operation::Getfh(())];
    let whole = 24 + bench.run(&operations).bytes.len();
    let bounds = |reply, cached| SessionBounds {
        reply,
        cached,
        ..Bench4::BOUNDS
    };
    bench.state.bounds.set(bounds(whole, None));
    assert_eq!(bench.statuses(&operations), [Status::Ok, Status::Ok]);
    bench.state.bounds.set(bounds(whole - 4, None));
    assert_eq!(
        bench.statuses(&operations),
        [Status::Ok, Status::ReplyTooBig]
    );
    // What is to be cached has a bound of its own.
    bench.state.bounds.set(bounds(whole, Some(whole - 4)));
    assert_eq!(bench.statuses(&operations), [Status::Ok, Status::Ok]);
    bench.cache_this.set(true);
    assert_eq!(
        bench.statuses(&operations),
        [Status::Ok, Status::ReplyTooBigToCache]
    );
    // So has the transport.
    bench.state.bounds.set(Bench4::BOUNDS);
    let mut limits = bench.limits.get();
    limits.message = whole - 4;
    bench.limits.set(limits);
    assert_eq!(
        bench.statuses(&operations),
        [Status::Ok, Status::ReplyTooBig]
    );
}

#[test]
fn v4_comp_16_what_does_not_decode_is_answered_at_its_place() {
    let bench = Bench4::new();
    let lookup = words(&[15, 100, 0]);
    let whole = [words(&[24]), lookup].concat();
    for cut in (4..whole.len()).step_by(4) {
        let bytes = [sequence_bytes(&bench), whole[..cut].to_vec()].concat();
        let results = bench.results(&bench.message(1, &raw(b"", 1, 3, &bytes)));
        let (status, count, rest) = answered(&results.bytes);
        assert_eq!((status, count), (Status::BadXdr, 3));
        let number = if cut > 4 { 15 } else { 10044 };
        assert_eq!(rest[SEQUENCE_RESULT..], words(&[24, 0, number, 10036]));
    }
    for cut in [0, 4, 8] {
        let mut message = bench.message(1, &());
        message.extend(&words(&[0, 1, 1])[..cut]);
        let (_, reply, _) = bench.send(&message, &[], &mut Chunks::default());
        let CallOutcome::Accepted { status, .. } = outcome(&reply) else {
            panic!("denied");
        };
        assert_eq!(status, Accepted::GarbageArguments);
    }
}

#[test]
fn v4_comp_17_handles_start_empty() {
    let bench = Bench4::new();
    for operation in [
        Operation::Getfh(()),
        Operation::Savefh(()),
        Operation::Restorefh(()),
        Operation::Lookup(b"export"),
        Operation::Lookupp(()),
        Operation::Readlink(()),
        Operation::Remove(b"name"),
    ] {
        assert_eq!(bench.statuses(&[operation]), [Status::NoFileHandle]);
    }
    let root = Operation::Putrootfh(());
    assert_eq!(
        bench.statuses(&[root, Operation::Restorefh(())]),
        [Status::Ok, Status::NoFileHandle]
    );
    assert_eq!(
        bench.statuses(&[root, Operation::Link(b"name")]),
        [Status::Ok, Status::NoFileHandle]
    );
    let export = bench.walk("/export");
    let results = bench.run(&[
        put(&export),
        Operation::Savefh(()),
        root,
        Operation::Restorefh(()),
        Operation::Getfh(()),
    ]);
    assert_eq!(results.handle(), export);
}

#[test]
fn v4_comp_20_handles_that_are_not_ours_are_bad() {
    let bench = Bench4::new();
    assert_eq!(bench.statuses(&[put(b"")]), [Status::BadHandle]);
    assert_eq!(bench.statuses(&[put(b"foreign")]), [Status::BadHandle]);
    assert_eq!(bench.statuses(&[put(&[7; 128])]), [Status::BadHandle]);
    // One whose tag is wrong may be from before a restart with another secret.
    let mut handle = bench.walk("/export");
    *handle.last_mut().unwrap() ^= 1;
    assert_eq!(bench.statuses(&[put(&handle)]), [Status::Stale]);
    let long = [words(&[22, 132]), vec![0; 132]].concat();
    let bytes = [sequence_bytes(&bench), long].concat();
    let results = bench.results(&bench.message(1, &raw(b"", 1, 2, &bytes)));
    assert_eq!(answered(&results.bytes).0, Status::BadXdr);
}

#[test]
fn v4_sess_45_to_47_repetitions_are_not_executed() {
    let bench = Bench4::new();
    bench.cache_this.set(true);
    let operations = [
        bench.next_sequence(),
        Operation::Putrootfh(()),
        Operation::Getfh(()),
    ];
    let first = bench.compound(&operations);
    let again = bench.compound(&operations);
    assert_eq!(first.bytes, again.bytes);
    assert_eq!(bench.state.finished.get(), 1);
    // What was not cached is told so, under the number of the second operation.
    bench.cache_this.set(false);
    let operations = [
        bench.next_sequence(),
        Operation::Putrootfh(()),
        Operation::Getfh(()),
    ];
    bench.compound(&operations);
    let results = bench.compound(&operations);
    let (header, all) = results.read();
    assert_eq!(header.status, Status::RetryUncached);
    assert_eq!(all[0].number(), OperationNumber::Putrootfh.number());
    assert_eq!(bench.compound(&operations[..1]).status(), Status::Ok);
    let illegal = [sequence_bytes(&bench), words(&[9999])].concat();
    for _ in 0..2 {
        let results = bench.results(&bench.message(1, &raw(b"", 2, 2, &illegal)));
        assert_eq!(answered(&results.bytes).0, Status::IllegalOperation);
    }
}

#[test]
fn a_refused_sequence_executes_nothing() {
    let bench = Bench4::new();
    let wrong = Operation::Sequence(SequenceOperation {
        session: [0; 16],
        sequence: 1,
        slot: 0,
        highest_slot: 0,
        cache_this: false,
    });
    let results = bench.compound(&[wrong, Operation::Putrootfh(())]);
    let (header, all) = results.read();
    assert_eq!((header.status, all.len()), (Status::BadSession, 1));
    assert!(matches!(
        all[0],
        OperationResults::Sequence(Err(Status::BadSession))
    ));
    assert_eq!(bench.state.finished.get(), 0);
}
