//! COMPOUND: order, limits and errors of operations, chunks, and replies that grow.

mod common;

use common::{encode, hex};
use millrace_wire::nfs3::{Device, Stability};
use millrace_wire::nfs4::*;
use millrace_wire::xdr::{
    BoundedBytes, Bulk, Data, Decode, Decoder, Encoder, Error, Taken, from_bytes,
};

fn reader(bytes: &[u8], minor_version: u32) -> OperationReader<'_> {
    OperationReader::new(Decoder::new(bytes), minor_version, 10)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn v4_comp_03_tags_of_up_to_1024_bytes_decode() {
    for length in [0, 1, 3, 1024, 1025, u32::MAX as usize] {
        let mut bytes = words(&[length as u32]);
        bytes.resize(4 + length.min(1025).next_multiple_of(4), b't');
        bytes.extend(words(&[1, 0]));
        let header = from_bytes::<CompoundHeader<'_>>(&bytes);
        match length {
            0..=1024 => assert_eq!(header.unwrap().tag.0.len(), length),
            _ => assert_eq!(header, Err(Error::TooLong)),
        }
    }
}

#[test]
fn undefined_operations_are_answered_under_the_number_of_illegal_ones() {
    for number in [0, 1, 2, 76, 9999, 10044, u32::MAX] {
        let bytes = words(&[24, number, 24]);
        let mut operations = reader(&bytes, 2);
        assert_eq!(operations.next(), Some(Ok(Operation::Putrootfh(()))));
        let illegal = operations.next().unwrap().unwrap();
        assert_eq!(illegal, Operation::Illegal(number));
        let status = OperationStatus::IllegalOperation;
        assert_eq!(illegal.refusal(), Some((10044, status)));
        assert_eq!(operations.next(), None);
        let results = encode(&OperationResults::Refused(OP_ILLEGAL, status));
        assert_eq!(results, words(&[10044, 10044]));
    }
}

#[test]
fn operations_of_minor_version_0_are_refused_under_their_own_number() {
    for number in [20, 30, 35, 36, 39] {
        let bytes = words(&[number]);
        let operation = reader(&bytes, 1).next().unwrap().unwrap();
        assert_eq!(
            operation.refusal(),
            Some((number, OperationStatus::NotSupported))
        );
    }
}

#[test]
fn v4_comp_08_operations_59_to_75_need_minor_version_2() {
    for number in 59..=75 {
        let bytes = words(&[number]);
        let operation = reader(&bytes, 1).next().unwrap().unwrap();
        assert_eq!(operation, Operation::Illegal(number));
        match reader(&bytes, 2).next().unwrap() {
            Ok(operation) => {
                let refusal = Some((number, OperationStatus::NotSupported));
                assert_eq!(operation.refusal(), refusal);
            }
            Err(malformed) => assert_eq!(
                (malformed.number, malformed.error),
                (number, Error::Truncated)
            ),
        }
    }
}

#[test]
fn a_malformed_operation_leaves_those_before_it() {
    let read = ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 5,
        count: 6,
    };
    let call = Compound {
        minor_version: 1,
        operations: &[
            Operation::Putfh(HandleBytes::default()),
            Operation::Read(read),
        ],
        ..Compound::default()
    };
    let bytes = encode(&call);
    for end in (0..bytes.len()).step_by(4) {
        let mut input = Decoder::new(&bytes[..end]);
        let Ok(header) = CompoundHeader::decode(&mut input) else {
            assert!(end < 12);
            continue;
        };
        let operations =
            OperationReader::<Operation<'_>>::new(input, header.minor_version, header.operations);
        let found: Vec<_> = operations.collect();
        let number = match end {
            12 | 20 => OP_ILLEGAL,
            16 => 22,
            _ => 25,
        };
        let malformed = Err(MalformedOperation {
            number,
            error: Error::Truncated,
        });
        assert_eq!(found.last(), Some(&malformed), "{end}");
        assert_eq!(found.len(), 1 + usize::from(end >= 20), "{end}");
    }
}

#[test]
fn v4_comp_20_handles_of_more_than_128_bytes_are_malformed() {
    let mut bytes = words(&[22, 129]);
    bytes.resize(8 + 132, 1);
    let malformed = MalformedOperation {
        number: 22,
        error: Error::TooLong,
    };
    assert_eq!(reader(&bytes, 1).next(), Some(Err(malformed)));
    bytes[7] = 128;
    assert!(matches!(
        reader(&bytes, 1).next(),
        Some(Ok(Operation::Putfh(_)))
    ));
}

#[test]
fn v4_sess_14_v4_sess_35_lists_of_at_most_one_item() {
    let limits = words(&[0, 1, 2, 3, 4, 5]);
    for (count, limit) in [(0, None), (1, Some(7))] {
        let bytes = [limits.clone(), words(&[count, 7])].concat();
        assert_eq!(
            from_bytes::<ChannelAttributes>(&bytes).unwrap().rdma_ird,
            limit
        );
    }
    let bytes = [limits, words(&[2, 7, 7])].concat();
    assert_eq!(from_bytes::<ChannelAttributes>(&bytes), Err(Error::Value));
    let exchange = words(&[42, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let malformed = MalformedOperation {
        number: 42,
        error: Error::Value,
    };
    assert_eq!(reader(&exchange, 1).next(), Some(Err(malformed)));
}

#[test]
fn several_writes_have_their_data_in_chunks() {
    let write = |length| {
        Operation::Write(WriteOperation {
            state: StateId::ANONYMOUS,
            offset: 0,
            stable: Stability::Unstable,
            data: Bulk::apart(length),
        })
    };
    let symlink = Operation::Create(CreateOperation {
        object: NewObject::Symlink(Bulk::inline(b"text")),
        name: b"name",
        attributes: Attributes::NONE,
    });
    let node = Operation::Create(CreateOperation {
        object: NewObject::Block(Device { major: 1, minor: 2 }),
        name: b"",
        attributes: Attributes::NONE,
    });
    let sent = [write(4096), symlink, write(5), node];
    let mut room = [0; 512];
    let mut out = Encoder::new(&mut room);
    let call = Compound {
        minor_version: 1,
        operations: &sent,
        ..Compound::default()
    };
    millrace_wire::xdr::Encode::encode(&call, &mut out).unwrap();
    let taken: Vec<Taken> = out.taken().to_vec();
    assert_eq!(
        taken.iter().map(|item| item.length).collect::<Vec<_>>(),
        [4096, 5]
    );
    let mut input = Decoder::with_taken(out.written(), &taken);
    let header = CompoundHeader::decode(&mut input).unwrap();
    let mut operations = OperationReader::<Operation<'_>>::new(input, 1, header.operations);
    for (at, chunk) in [(0, Some(0)), (1, None), (2, Some(1)), (3, None)] {
        match (operations.next().unwrap().unwrap(), chunk) {
            (Operation::Write(found), Some(chunk)) => {
                assert_eq!(found.data.data, Data::Apart(taken[chunk].position));
            }
            (found, _) => assert_eq!(found, sent[at]),
        }
    }
    assert_eq!(operations.next(), None);
    assert_eq!(operations.input().finish(), Ok(()));
}

#[test]
fn results_stand_right_behind_data_that_is_elsewhere() {
    let mut room = [0; 256];
    let mut out = Encoder::new(&mut room);
    let mut reply = CompoundReplyWriter::begin(&mut out, BoundedBytes(b"")).unwrap();
    let read = ReadReply {
        eof: true,
        data: Bulk::apart(5),
    };
    reply.push(&OperationResults::Read(Ok(read))).unwrap();
    reply.push(&OperationResults::Putrootfh(Ok(()))).unwrap();
    assert_eq!(out.written(), words(&[0, 0, 2, 25, 0, 1, 5, 24, 0]));
    let chunks = [Some(5)];
    let mut input = Decoder::with_results(out.written(), &chunks);
    let header = CompoundReplyHeader::decode(&mut input).unwrap();
    let results: Vec<_> =
        ResultsReader::<OperationResults<'_>>::new(input, header.results).collect();
    let data = Bulk {
        length: 5,
        data: Data::Apart(28),
    };
    assert_eq!(
        results[0],
        Ok(OperationResults::Read(Ok(ReadReply { eof: true, data })))
    );
    assert_eq!(results[1], Ok(OperationResults::Putrootfh(Ok(()))));
}

#[test]
fn a_reply_without_room_keeps_the_results_before() {
    let mut room = [0; 12 + 8 + 8];
    let mut out = Encoder::new(&mut room);
    let mut reply = CompoundReplyWriter::begin(&mut out, BoundedBytes(b"")).unwrap();
    reply.push(&OperationResults::Putrootfh(Ok(()))).unwrap();
    let handle = OperationResults::Getfh(Ok(BoundedBytes(b"handle")));
    assert_eq!(reply.push(&handle), Err(Error::Full));
    let too_big = OperationStatus::ReplyTooBig;
    reply.push(&OperationResults::Refused(10, too_big)).unwrap();
    assert_eq!((reply.count(), reply.status()), (2, too_big));
    assert_eq!(out.written(), words(&[10066, 0, 2, 24, 0, 10, 10066]));
}

#[test]
fn a_refused_minor_version_has_the_tag_and_no_results() {
    let mut room = [0; 64];
    let mut out = Encoder::new(&mut room);
    let mut reply = CompoundReplyWriter::begin(&mut out, BoundedBytes(b"tag")).unwrap();
    reply.refuse(OperationStatus::MinorVersionMismatch).unwrap();
    assert_eq!(out.written(), hex("00002725 00000003 74616700 00000000"));
}

#[test]
fn a_refused_setattr_tells_that_nothing_was_set() {
    let status = OperationStatus::BadXdr;
    let bytes = encode(&OperationResults::Refused(34, status));
    assert_eq!(bytes, words(&[34, 10036, 0]));
    let set = Bitmap::EMPTY;
    let expected = OperationResults::Setattr(SetattrReply { status, set });
    assert_eq!(from_bytes(&bytes), Ok(expected));
}
