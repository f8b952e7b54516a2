//! Segments, chunk lists, positions.

use millrace_bench::requester::{Call, CallError, Data, Part, Reply, Settings};
use millrace_mempool::Slice;
use millrace_reactor::fabric::testing::loopback;
use millrace_wire::nfs3::{
    Failure, NameInDirectory, Procedure, ReadArguments, ReadOk, ReadResults, SetAttributes,
    Stability, Status, SymlinkArguments, WriteArguments,
};
use millrace_wire::rpcrdma::Segment;
use millrace_wire::xdr::{Bulk, Encode, Taken};

use crate::support::{
    Done, Peer, Raw, Seen, Step, emptied, handle, message, settings, stale, success, unbound,
};

pub fn write_arguments(count: u32) -> WriteArguments<'static> {
    WriteArguments {
        file: handle(),
        offset: 0,
        count,
        stable: Stability::FileSync,
        data: Bulk::apart(count),
    }
}

pub fn read_arguments(count: u32) -> ReadArguments {
    ReadArguments {
        file: handle(),
        offset: 0,
        count,
    }
}

/// Writes of more bytes than this go into chunks, in all tests that want chunks.
pub fn chunky() -> Settings {
    Settings {
        chunk_above: 0,
        ..settings()
    }
}

fn pieces(memory: &Slice, lengths: &[usize]) -> Vec<Slice> {
    let mut at = 0;
    lengths
        .iter()
        .map(|length| {
            at += length;
            memory.slice(at - length..at)
        })
        .collect()
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

/// Results of a READ whose data is in the write chunk.
pub fn read_ok(count: u32) -> ReadResults<'static> {
    Ok(ReadOk {
        attributes: None,
        count,
        eof: false,
        data: Bulk::apart(count),
    })
}

fn decode(done: &Done) -> Result<Result<ReadOk<'_>, Status>, CallError> {
    let (message, written) = done.result.as_ref().map_err(|error| *error)?;
    let reply = Reply { message, written };
    let results = reply.results::<ReadResults<'_>>().expect("decodes");
    Ok(results.map_err(|Failure { status, .. }| status))
}

/// A READ of so many bytes into memory in pieces of these lengths.
fn read(raw: &mut Raw, lengths: &[usize]) -> (Seen, Slice) {
    let total: usize = lengths.iter().sum();
    let memory = raw.memory(total);
    let room = pieces(&memory, lengths);
    let call = Call::nfs3(1, Procedure::Read, read_arguments(total as u32), 0);
    raw.submit(&call.with_sinks(&[&room]));
    (raw.next(), memory)
}

fn answer_read(raw: &mut Raw, call: &Seen, writes: &[Vec<Segment>], results: &dyn Encode) -> Done {
    let rpc = success(call.xid, results);
    raw.send(&message(call.xid, 8, writes, None, Some(&rpc)));
    raw.done.pop().expect("ended")
}

#[test]
fn rr1_chunk_06_rr1_chunk_10_position_is_where_the_data_would_stand() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = [raw.memory(5000)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(5000), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    // The message ends with the length word, right before the data.
    assert_eq!(call.positions(), [call.rpc.len() as u32]);
    assert!(call.rpc.ends_with(&5000_u32.to_be_bytes()));
    assert_eq!(raw.fetch_all(&call.read_segments()), pattern(5000));
}

#[test]
fn rr1_chunk_07_all_segments_of_one_argument_have_one_position() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = pieces(&raw.memory(18), &[5, 6, 7]);
    let call = Call::nfs3(1, Procedure::Write, write_arguments(18), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    let lengths: Vec<_> = call.read_segments().iter().map(|s| s.length).collect();
    assert_eq!(lengths, [5, 6, 7]);
    assert_eq!(call.positions(), [call.rpc.len() as u32; 3]);
    assert_eq!(raw.fetch_all(&call.read_segments()), pattern(18));
}

#[test]
fn rr1_chunk_09_rr1_chunk_31_only_eligible_items_are_in_chunks() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let long = [b'n'; 200];
    let entry = NameInDirectory {
        directory: handle(),
        name: &long,
    };
    raw.submit(&Call::nfs3(1, Procedure::Lookup, entry, 0));
    let call = raw.next();
    assert!(call.reads.is_empty() && call.writes.is_empty() && call.reply.is_none());

    let text = [raw.memory(1000)];
    let arguments = SymlinkArguments {
        entry,
        attributes: SetAttributes::default(),
        text: Bulk::apart(1000),
    };
    raw.submit(&Call::nfs3(2, Procedure::Symlink, arguments, 0).with_data(&text));
    let call = raw.next();
    assert_eq!(call.positions(), [call.rpc.len() as u32]);
    assert_eq!(raw.fetch_all(&call.read_segments()), pattern(1000));

    let arguments = millrace_wire::nfs3::ReaddirArguments {
        directory: handle(),
        cookie: 0,
        verifier: [0; 8],
        count: 32768,
    };
    raw.submit(&Call::nfs3(3, Procedure::Readdir, arguments, 32768));
    let call = raw.next();
    assert!(call.reads.is_empty() && call.writes.is_empty());
    let room: u32 = call.reply.expect("offered").iter().map(|s| s.length).sum();
    assert!(room >= 32768 + 28);
}

#[test]
fn rr1_chunk_15_read_memory_stays_exposed_until_the_reply() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = [raw.memory(5000)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(5000), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    for _ in 0..3 {
        assert_eq!(raw.fetch_all(&call.read_segments()), pattern(5000));
    }
    assert!(
        !raw.steps()
            .iter()
            .any(|step| matches!(step, Step::Revoke(_)))
    );
    raw.answer(&call, 8, &stale());
    assert!(raw.fetch(&call.read_segments()[0]).is_err());
    assert!(raw.inbox.is_empty(), "no RDMA_DONE");
}

#[test]
fn rr1_chunk_15_read_memory_is_released_when_the_connection_is_lost_amid_the_fetch() {
    for keep_calls in [false, true] {
        let network = loopback();
        let settings = Settings {
            keep_calls,
            ..chunky()
        };
        let mut raw = Raw::open(settings, Peer::default(), 8);
        let data = [raw.memory(5000)];
        let call = Call::nfs3(1, Procedure::Write, write_arguments(5000), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        let whole = call.read_segments()[0];
        let part = Segment {
            length: 1000,
            ..whole
        };
        assert_eq!(raw.fetch(&part).expect("exposed"), pattern(5000)[..1000]);
        raw.break_off();
        assert_eq!(network.exposures(), 0, "the keys have died with it");
        if keep_calls {
            // The data are the call's still, and as they were.
            assert!(raw.tokens().is_empty());
            raw.reconnect();
            let again = raw.next();
            assert_eq!(again.xid, call.xid);
            assert_ne!(again.read_segments()[0].handle, whole.handle);
            assert_eq!(raw.fetch_all(&again.read_segments()), pattern(5000));
            raw.answer(&again, 8, &stale());
            assert_eq!(raw.tokens(), [1]);
            assert_eq!(network.exposures(), 0);
        } else {
            assert_eq!(raw.done[0].result, Err(CallError::Disconnected));
        }
        assert!(raw.inbox.is_empty(), "no RDMA_DONE");
        let [data] = data;
        assert!(data.try_into_buffer().is_ok(), "nothing holds the memory");
    }
}

#[test]
fn rr1_chunk_19_the_result_is_as_long_as_the_returned_lengths_say() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (call, memory) = read(&mut raw, &[3000, 3000, 3000]);
    let filled = raw.place_all(&call.writes[0], &pattern(4000));
    let done = answer_read(&mut raw, &call, &[filled], &read_ok(4000));
    let results = decode(&done).expect("a reply").expect("success");
    assert_eq!((results.count, results.data.as_inline()), (4000, None));
    let mut bytes = vec![0; 4000];
    memory.copy_to(0, &mut bytes);
    assert_eq!(bytes, pattern(4000));
}

#[test]
fn rr1_chunk_19_two_results_use_two_chunks() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let rooms = [[raw.memory(6000)], [raw.memory(7000)]];
    let arguments: &[u8] = b"two reads";
    let call = Call {
        sinks: &[&rooms[0], &rooms[1]],
        ..unbound(arguments, 100)
    };
    raw.submit(&call);
    let call = raw.next();
    assert_eq!(call.writes.len(), 2);
    let filled = [
        raw.place_all(&call.writes[0], &pattern(5)),
        raw.place_all(&call.writes[1], &pattern(7000)),
    ];
    let rpc = success(call.xid, &());
    raw.send(&message(call.xid, 8, &filled, None, Some(&rpc)));
    let (_, written) = raw.done[0].result.clone().expect("a reply");
    assert_eq!(written, [Some(5), Some(7000)]);
}

#[test]
fn rr1_chunk_21_whatever_is_returned_with_a_failed_read_is_ignored() {
    let failed: ReadResults<'_> = Err(Failure {
        status: Status::Stale,
        detail: None,
    });
    for variant in 0..4 {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let (call, _) = read(&mut raw, &[8192, 8192]);
        let writes = match variant {
            0 => call.writes.clone(),
            1 => vec![Vec::new()],
            2 => vec![emptied(&call.writes[0])],
            _ => Vec::new(),
        };
        let done = answer_read(&mut raw, &call, &writes, &failed);
        assert_eq!(decode(&done), Ok(Err(Status::Stale)), "variant {variant}");
    }
}

#[test]
fn rr1_chunk_22_what_a_peer_wrote_into_unused_room_is_no_result() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (call, _memory) = read(&mut raw, &[16384]);
    raw.place(&call.writes[0][0], &[0xee; 16384])
        .expect("writable");
    let writes = vec![Segment {
        length: 10,
        ..call.writes[0][0]
    }];
    let done = answer_read(&mut raw, &call, &[writes], &read_ok(10));
    assert_eq!(decode(&done).expect("reply").expect("success").count, 10);
    assert_eq!(done.result.expect("reply").1, [Some(10)]);
}

#[test]
fn rr1_chunk_23_rr1_chunk_40_a_read_offers_all_that_was_asked_for() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for count in [4097, 65536, 1 << 20] {
        let memory = raw.memory(count);
        let call = Call::nfs3(1, Procedure::Read, read_arguments(count as u32), 0);
        raw.submit(&call.with_sinks(&[&[memory]]));
        let call = raw.next();
        assert_eq!(call.writes.len(), 1);
        let room: u32 = call.writes[0].iter().map(|segment| segment.length).sum();
        assert_eq!(room as usize, count);
        assert!(call.reply.is_none());
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr1_chunk_25_offers_are_judged_and_revoked_by_our_own_copy() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    // Altered handles and offsets do not matter.
    let (call, _) = read(&mut raw, &[8192]);
    let altered = Segment {
        handle: !call.writes[0][0].handle,
        offset: 7,
        length: 100,
    };
    let done = answer_read(&mut raw, &call, &[vec![altered]], &read_ok(100));
    assert_eq!(decode(&done).expect("reply").expect("success").count, 100);
    assert!(raw.place(&call.writes[0][0], &[1]).is_err(), "revoked");

    // Lengths beyond the offer, more segments, more chunks, gaps.
    for bad in 0..4 {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let (call, _) = read(&mut raw, &[8192, 8192]);
        let offered = &call.writes[0];
        let longer = Segment {
            length: 8192 + 4,
            ..offered[0]
        };
        let writes = match bad {
            0 => vec![vec![longer, offered[1]]],
            1 => vec![[offered.as_slice(), offered].concat()],
            2 => vec![offered.clone(), offered.clone()],
            _ => vec![vec![emptied(offered)[0], offered[1]]],
        };
        let done = answer_read(&mut raw, &call, &writes, &read_ok(8192));
        assert_eq!(done.result, Err(CallError::BadReply), "{bad}");
        assert!(raw.place(&offered[0], &[1]).is_err(), "revoked");
    }
}

#[test]
fn rr1_chunk_28_rr1_chunk_35_positions_are_aligned_and_empty_slices_cost_no_segment() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = pieces(&raw.memory(100), &[0, 50, 0, 50]);
    let call = Call::nfs3(1, Procedure::Write, write_arguments(100), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    assert_eq!(call.reads.len(), 2);
    assert!(call.positions()[0].is_multiple_of(4));
}

#[test]
fn rr1_chunk_38_inline_calls_register_nothing() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let data = [raw.memory(100)];
    for _ in 0..10 {
        let call = Call::nfs3(1, Procedure::Write, write_arguments(100), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        raw.answer(&call, 8, &stale());
    }
    assert_eq!(raw.connection.counters().exposed, 0);
}

#[test]
fn rr1_chunk_39_small_data_stays_inline_with_its_pad() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for length in [0, 1, 2, 3, 4, 100, 101] {
        let data = [raw.memory(length)];
        let call = Call::nfs3(1, Procedure::Write, write_arguments(length as u32), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        assert!(call.reads.is_empty());
        let mut expected = (length as u32).to_be_bytes().to_vec();
        expected.extend(pattern(length));
        expected.resize(4 + length.next_multiple_of(4), 0);
        assert!(call.rpc.ends_with(&expected), "{length} bytes");
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr1_chunk_39_the_size_above_which_data_is_in_chunks_can_be_set() {
    let mine = Settings {
        chunk_above: 100,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    for (length, chunks) in [(100, 0), (101, 1)] {
        let data = [raw.memory(length)];
        let call = Call::nfs3(1, Procedure::Write, write_arguments(length as u32), 0);
        raw.submit(&call.with_data(&data));
        assert_eq!(raw.next().reads.len(), chunks);
    }
}

#[test]
fn rr1_chunk_41_a_program_without_binding_goes_long_not_into_chunks() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let arguments = pattern(100_000);
    let call = unbound(arguments.as_slice(), 32);
    raw.submit(&call);
    let call = raw.next();
    assert_eq!((call.kind, call.positions()), (1, vec![0]));
    let rpc = raw.fetch_all(&call.read_segments());
    assert!(rpc.starts_with(&call.xid.to_be_bytes()));
    assert!(rpc.ends_with(&arguments));
}

#[test]
fn rr1_pad_05_positions_of_later_chunks_count_the_omitted_pad() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    // Two counted items of five and seven bytes with a word between them.
    let words: [u32; 3] = [5, 99, 7];
    struct Words([u32; 3]);
    impl Encode for Words {
        fn encode(
            &self,
            out: &mut millrace_wire::xdr::Encoder<'_>,
        ) -> millrace_wire::xdr::Result<()> {
            self.0.iter().try_for_each(|&word| out.u32(word))
        }
    }
    let (first, second) = ([raw.memory(5)], [raw.memory(7)]);
    let part = |position, length, slices| Part {
        taken: Taken { position, length },
        slices,
    };
    let parts = [part(4, 5, &first[..]), part(4 + 8 + 8, 7, &second[..])];
    let call = Call {
        data: Data::Parts(&parts),
        ..unbound(Words(words), 32)
    };
    raw.submit(&call);
    let seen = raw.next();
    let positions = seen.positions();
    assert_eq!(positions[1] - positions[0], 8 + 8);
    let lengths: Vec<_> = seen.read_segments().iter().map(|s| s.length).collect();
    assert_eq!(lengths, [5, 7]);
    // The same call inline is the stream that the positions speak of.
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.submit(&call);
    let whole = raw.next();
    assert!(whole.reads.is_empty());
    for (position, length) in positions.iter().zip([5, 7]) {
        let at = *position as usize;
        assert_eq!(whole.rpc[at..at + length], pattern(length));
    }
}

#[test]
fn rr1_chunk_40_results_that_may_not_fit_inline_have_a_write_chunk() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for count in (0..9000).step_by(250) {
        for procedure in [Procedure::Read, Procedure::Readlink] {
            let room = [raw.memory(count)];
            let call = Call::nfs3(1, procedure, read_arguments(count as u32), 0);
            let largest = call.largest_reply;
            raw.submit(&call.with_sinks(&[&room]));
            let call = raw.next();
            let fits = 28 + largest + count.next_multiple_of(4) <= 4096;
            assert_eq!(call.writes.len(), usize::from(!fits), "{count} bytes");
            assert!(call.reply.is_none(), "not left to other ways");
            raw.answer(&call, 8, &stale());
        }
    }
}
