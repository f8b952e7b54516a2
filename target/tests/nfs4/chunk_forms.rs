//! The forms in which a COMPOUND comes and goes over RDMA (RFC 8267 sections 6.1 to 6.6).

use std::cell::Cell;

use millrace::call::Serve;
use millrace_wire::nfs4::{
    AttributeNumber as Number, Bitmap, CompoundReplyHeader, HasStatus, Operation, OperationResults,
    OperationStatus as Status, ReadOperation, ResultsReader, SequenceOperation, SessionId, StateId,
};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment, Segment};
use millrace_wire::xdr::{Bulk, Decode, Decoder};

use super::data::{bytes, read, write_at};
use crate::support;
use crate::support::callback_client::{CallbackBench, CallbackWorld};
use crate::support::message::{
    SUCCESS, accepted, check_chunk_error, inline, lengths, long, parse, reads, word,
};
use crate::support::nfs4::{list, put};
use crate::support::raw::{Memory, Options, Stated, World};

/// Bytes that are written and read: more than fit inline.
const LENGTH: usize = 5000;

/// The most segments of a chunk.
const SEGMENTS: usize = 64;

/// A client with a session and a file, over RDMA. It uses one slot.
struct ChunkClient<S> {
    state: CallbackWorld,
    world: World<S>,
    connection: usize,
    file: Vec<u8>,
    session: SessionId,
    sequence: Cell<u32>,
}

fn client() -> ChunkClient<impl Serve> {
    let state = CallbackWorld::new();
    let client = state.client(b"client");
    state.switch_to(&client);
    let file = state.bench.file(b"file", 0o644);
    let mut world = World::new(state.bench.programs.clone(), Options::default());
    let connection = world.connect();
    ChunkClient {
        state,
        world,
        connection,
        file,
        session: client.session,
        sequence: Cell::new(1),
    }
}

impl<S: Serve> ChunkClient<S> {
    fn bench(&self) -> &CallbackBench {
        &self.state.bench
    }

    /// A call with the present sequence number of the slot, and these operations on the file.
    fn call(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        let sequence = Operation::Sequence(SequenceOperation {
            session: self.session,
            sequence: self.sequence.get(),
            slot: 1,
            highest_slot: 1,
            cache_this: false,
        });
        let mut all = vec![sequence, put(&self.file)];
        all.extend_from_slice(operations);
        self.bench().compound_message(&all)
    }

    fn exchange(&mut self, message: &[u8]) -> Vec<u8> {
        self.world.exchange(self.connection, message)
    }

    /// These bytes in so many segments, to be read by the server.
    fn source(&mut self, data: &[u8], count: usize) -> Vec<Segment> {
        cut(&self.world.source(self.connection, data), data.len(), count)
    }

    /// Memory of `length` bytes in so many segments, to be written by the server.
    fn sink(&mut self, length: usize, count: usize) -> (Memory, Vec<Segment>) {
        let memory = self.world.sink(self.connection, length);
        let segments = cut(&memory, length, count);
        (memory, segments)
    }

    /// Sends a call that succeeds by the present sequence number. Returns what follows the result of
    /// PUTFH.
    fn succeed(&mut self, message: &[u8]) -> Vec<u8> {
        let reply = parse(&self.exchange(message));
        self.sequence.set(self.sequence.get() + 1);
        let results = support::results(&reply.message);
        assert_eq!(word(results, 0), Status::Ok.number());
        results[12 + 44 + 8..].to_vec()
    }

    /// Whether the present sequence number was not used: a call with it is a new request.
    fn is_slot_unchanged(&mut self) -> bool {
        let wanted = Bitmap::of(&[Number::Size]);
        let message = self.call(&[Operation::Getattr(wanted)]);
        let reply = parse(&self.exchange(&inline(&CallChunks::default(), &message)));
        self.sequence.set(self.sequence.get() + 1);
        word(support::results(&reply.message), 0) == Status::Ok.number()
    }

    fn content(&mut self) -> Vec<u8> {
        let (memory, segments) = self.sink(2 * LENGTH, 1);
        let chunks = CallChunks {
            writes: &[&segments],
            ..CallChunks::default()
        };
        let message = self.call(&[read(0, 2 * LENGTH as u32)]);
        let results = self.succeed(&inline(&chunks, &message));
        // READ: number, status, end of file, length.
        memory.bytes()[..word(&results, 3) as usize].to_vec()
    }
}

fn cut(memory: &Memory, length: usize, count: usize) -> Vec<Segment> {
    let mut lengths = vec![(length / count) as u32; count];
    lengths[0] += (length % count) as u32;
    memory.cut(&lengths)
}

fn write() -> Operation<'static> {
    write_at(StateId::ANONYMOUS, 0, Bulk::apart(LENGTH as u32))
}

fn reading(reads: &[ReadSegment]) -> CallChunks<'_> {
    CallChunks {
        reads,
        ..CallChunks::default()
    }
}

/// The status of each operation of a reply.
fn statuses(message: &[u8]) -> Vec<Status> {
    let mut input = Decoder::new(support::results(message));
    let header = CompoundReplyHeader::decode(&mut input).unwrap();
    let all = ResultsReader::<OperationResults<'_>>::new(input, header.results);
    all.map(|one| one.unwrap().status()).collect()
}

#[test]
fn v4_ulb_06_each_form_of_chunk_carries_compounds() {
    for count in [1, 16] {
        let mut client = client();
        // One chunk for the data of a WRITE.
        let data = bytes(LENGTH);
        let segments = client.source(&data, count);
        let call = client.call(&[write()]);
        let entries = reads(call.len(), &segments);
        client.succeed(&inline(&reading(&entries), &call));
        assert_eq!(client.content(), data);

        // The whole call at position zero.
        let data: Vec<u8> = data.iter().rev().copied().collect();
        let whole = write_at(StateId::ANONYMOUS, 0, Bulk::inline(&data));
        let call = client.call(&[whole]);
        let segments = client.source(&call, count);
        let entries = reads(0, &segments);
        client.succeed(&long(word(&call, 0), &reading(&entries)));
        assert_eq!(client.content(), data);

        // The call at position zero without the data, which has a chunk of its own.
        let data = bytes(LENGTH);
        let call = client.call(&[write()]);
        let of_call = client.source(&call, count);
        let of_data = client.source(&data, count);
        let entries = [reads(0, &of_call), reads(call.len(), &of_data)].concat();
        client.succeed(&long(word(&call, 0), &reading(&entries)));
        assert_eq!(client.content(), data);

        // One write chunk, and a reply chunk.
        let (memory, segments) = client.sink(LENGTH, count);
        let call = client.call(&[read(0, LENGTH as u32)]);
        let chunks = CallChunks {
            writes: &[&segments],
            ..CallChunks::default()
        };
        client.succeed(&inline(&chunks, &call));
        assert_eq!(memory.bytes(), data);
        let (memory, segments) = client.sink(2 * LENGTH, count);
        let chunks = CallChunks {
            reply: Some(&segments),
            ..CallChunks::default()
        };
        let call = client.call(&[read(0, LENGTH as u32)]);
        let reply = parse(&client.exchange(&inline(&chunks, &call)));
        let written: u32 = lengths(&reply.reply.unwrap()).iter().sum();
        assert!(!reply.inline);
        let found = &memory.bytes()[..written as usize];
        assert_eq!(accepted(found), SUCCESS);
        assert_eq!(&found[found.len() - LENGTH..], data);
        client.world.check_clean();
    }
}

#[test]
fn v4_ulb_01_only_some_items_have_chunks_of_their_own() {
    let mut client = client();
    // The name of a file is none of them.
    let name = b"name";
    let call = client.call(&[Operation::Lookup(name)]);
    let segments = client.source(name, 1);
    let position = call.len() - name.len();
    let entries = reads(position, &segments);
    let reply = parse(&client.exchange(&inline(&reading(&entries), &call[..position])));
    client.sequence.set(client.sequence.get() + 1);
    assert_eq!(
        statuses(&reply.message),
        [Status::Ok, Status::Ok, Status::BadXdr]
    );

    // Results of other operations do not use a write chunk.
    let call = client.call(&[write_at(StateId::ANONYMOUS, 0, Bulk::inline(&[7; 100]))]);
    client.succeed(&inline(&CallChunks::default(), &call));
    let (memory, segments) = client.sink(LENGTH, 1);
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    let read_plus = Operation::ReadPlus(ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 0,
        count: 100,
    });
    let readdir = Operation::Readdir(list(Bitmap::of(&[Number::Size])));
    let root = client.bench().walk("/export");
    for operation in [read_plus, readdir] {
        let call = client.call(&[operation]);
        let reply = parse(&client.exchange(&inline(&chunks, &call)));
        assert_eq!(
            reply.writes.iter().map(|one| lengths(one)).next(),
            Some(vec![0])
        );
        assert!(reply.inline && statuses(&reply.message) == [Status::Ok; 3]);
        assert_eq!(memory.bytes(), [0xee; LENGTH]);
        client.sequence.set(client.sequence.get() + 1);
        client.file.clone_from(&root);
    }
    client.world.check_clean();
}

#[test]
fn v4_ulb_07_and_16_what_is_refused_leaves_the_slot() {
    let mut client = client();
    let data = bytes(LENGTH);
    // More segments than are allowed: the header shows it.
    let segments = client.source(&data, SEGMENTS + 1);
    let call = client.call(&[write()]);
    let entries = reads(call.len(), &segments);
    let reply = client.exchange(&inline(&reading(&entries), &call));
    check_chunk_error(&reply, word(&call, 0));
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    let call = client.call(&[read(0, 10)]);
    let reply = client.exchange(&inline(&chunks, &call));
    check_chunk_error(&reply, word(&call, 0));
    assert!(client.is_slot_unchanged());
    // A whole call at position zero that is none.
    let call = client.call(&[]);
    let segments = client.source(&call[..4], 1);
    let entries = reads(0, &segments);
    let reply = client.exchange(&long(word(&call, 0), &reading(&entries)));
    check_chunk_error(&reply, word(&call, 0));
    assert!(client.is_slot_unchanged());
    // Data at a place where none begins, within SEQUENCE: its operation does not decode, which has a
    // status of NFS (RFC 8881 section 15.1.1.1) in place of GARBAGE_ARGS.
    let call = client.call(&[]);
    let segments = client.source(&data[..64], 1);
    let entries = reads(call.len() - 60, &segments);
    let reply = parse(&client.exchange(&inline(&reading(&entries), &call)));
    assert_eq!(statuses(&reply.message), [Status::BadXdr]);
    assert!(client.is_slot_unchanged());
    client.world.check_clean();
}

#[test]
fn v4_ulb_12_a_reply_is_inline_or_in_its_chunk() {
    for inline_limit in [1024, 4096] {
        let mut client = client();
        client.connection = client.world.connect_with(Stated {
            inline: Some(inline_limit),
            ..Stated::default()
        });
        let (memory, segments) = client.sink(2 * LENGTH, 2);
        let chunks = CallChunks {
            reply: Some(&segments),
            ..CallChunks::default()
        };
        let wanted = Bitmap::of(&[Number::Size]);
        let call = client.call(&[Operation::Getattr(wanted)]);
        let short = parse(&client.exchange(&inline(&chunks, &call)));
        client.sequence.set(client.sequence.get() + 1);
        assert!(short.inline, "with {inline_limit} bytes inline");
        assert_eq!(statuses(&short.message), [Status::Ok; 3]);
        assert_eq!(lengths(&short.reply.unwrap()), [0, 0]);
        assert_eq!(memory.bytes(), [0xee; 2 * LENGTH]);
    }
}
