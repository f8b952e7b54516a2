//! Replies with read chunks, and RDMA_DONE.

use millrace_bench::requester::{Call, CallError, Data, Reply, Settings};
use millrace_mempool::{Class, Slice};
use millrace_wire::nfs3::{Procedure, ReadResults, ReaddirArguments};
use millrace_wire::rpcrdma::Segment;

use crate::chunk::{chunky, pattern, read_arguments, read_ok, write_arguments};
use crate::support::{
    Done, Peer, Raw, Seen, at, bytes, classic, emptied, handle, settings, stale, success, unbound,
};

/// A READ of so many bytes into one piece of memory that does not hold the pattern.
pub fn read(raw: &mut Raw, count: usize) -> (Seen, Slice) {
    let memory = raw.memory(count);
    memory.fill_zero(0..count);
    let call = Call::nfs3(1, Procedure::Read, read_arguments(count as u32), 0);
    raw.submit(&call.with_sinks(&[std::slice::from_ref(&memory)]));
    (raw.next(), memory)
}

fn contents(memory: &Slice) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.copy_to(0, &mut bytes);
    bytes
}

/// The data of a READ, from the reply or from where it was to go.
pub fn data_of(done: &Done, memory: &Slice) -> Vec<u8> {
    let (message, written) = done.result.as_ref().expect("a reply");
    let reply = Reply { message, written };
    let results = reply.results::<ReadResults<'_>>().expect("decodes");
    let results = results.expect("success");
    match results.data.as_inline() {
        Some(data) => data.to_vec(),
        None => contents(memory)[..results.count as usize].to_vec(),
    }
}

pub fn readdir(token: u64, count: u32) -> Call<'static, ReaddirArguments> {
    let arguments = ReaddirArguments {
        directory: handle(),
        cookie: 0,
        verifier: [0; 8],
        count,
    };
    Call::nfs3(token, Procedure::Readdir, arguments, count)
}

/// Answers a call by a reply in a read chunk at position zero; the reply, and where it was.
fn answer_at_zero(raw: &mut Raw, call: &Seen, credits: u32, length: usize) -> (Vec<u8>, Segment) {
    let rpc = success(call.xid, &pattern(length).as_slice());
    let chunk = raw.reveal(&rpc);
    raw.send(&classic(
        call.xid,
        credits,
        &at(0, &[chunk]),
        &[],
        None,
        None,
    ));
    (rpc, chunk)
}

#[test]
fn rr1_done_03_a_result_in_a_read_chunk_is_fetched_and_done_once() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (call, memory) = read(&mut raw, 10_000);
    let rpc = success(call.xid, &read_ok(10_000));
    let chunk = raw.reveal_in(&pattern(10_000), &[4000, 1, 5999]);
    let reads = at(rpc.len() as u32, &chunk);
    let writes = vec![emptied(&call.writes[0])];
    raw.send(&classic(call.xid, 8, &reads, &writes, None, Some(&rpc)));
    let done = raw.done.pop().expect("ended");
    assert_eq!(done.result.clone().expect("a reply").1, [Some(10_000)]);
    assert_eq!(data_of(&done, &memory), pattern(10_000));
    // The Reads were over before RDMA_DONE went, for there is but one thread.
    raw.expect_done(call.xid);
    assert!(raw.inbox.is_empty(), "once");
    let counters = *raw.connection.counters();
    assert_eq!((counters.reads, counters.dones), (3, 1));
    for segment in &chunk {
        raw.conceal(segment);
    }
    raw.getattr(2);
    let call = raw.next();
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [2]);
}

#[test]
fn rr1_done_03_done_follows_the_last_read() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (call, _memory) = read(&mut raw, 5000);
    let rpc = success(call.xid, &read_ok(5000));
    let chunk = raw.reveal(&pattern(5000));
    let reads = at(rpc.len() as u32, &[chunk]);
    let before = raw.steps().len();
    raw.send(&classic(call.xid, 8, &reads, &[], None, Some(&rpc)));
    let steps = raw.steps();
    let read = steps[before..]
        .iter()
        .position(|step| matches!(step, crate::support::Step::Read(..)));
    let done = steps[before..]
        .iter()
        .position(|step| matches!(step, crate::support::Step::Send { bytes: 16, .. }));
    assert!(read.expect("read") < done.expect("done"));
    raw.expect_done(call.xid);
}

/// Linux's software iWARP answers Reads of few bytes across a page with wrong ones.
#[test]
fn no_small_read_crosses_a_page_of_the_server() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let mut expected = Vec::new();
    for place in 0..70_u64 {
        // A result in a chunk of its own, and the same in three, at every place before a page's
        // end.
        for lengths in [&[60_u32][..], &[64], &[65], &[7, 40, 13]] {
            let count = lengths.iter().sum::<u32>();
            let (call, memory) = read(&mut raw, count as usize);
            let rpc = success(call.xid, &read_ok(count));
            let whole = raw.reveal(&[&[0; 4096][..], &pattern(4096 + 100)].concat());
            let page = whole.offset.next_multiple_of(4096);
            let start = page + 4096 - place;
            let seen = |at: u64, bytes: usize| {
                let from = (at - whole.offset) as usize;
                (from..from + bytes)
                    .map(|at| at.checked_sub(4096).map_or(0, |at| pattern(5000)[at]))
                    .collect::<Vec<u8>>()
            };
            let mut next = start;
            let mut segments = Vec::new();
            for &length in lengths {
                segments.push(Segment {
                    offset: next,
                    length,
                    ..whole
                });
                next += u64::from(length);
            }
            let reads = at(rpc.len() as u32, &segments);
            let writes: Vec<_> = call.writes.iter().map(|one| emptied(one)).collect();
            raw.send(&classic(call.xid, 8, &reads, &writes, None, Some(&rpc)));
            let done = raw.done.pop().expect("ended");
            assert_eq!(data_of(&done, &memory), seen(start, count as usize));
            raw.expect_done(call.xid);
            raw.conceal(&whole);
            expected.push(count as usize);
        }
    }
    let steps = raw.steps();
    let reads = steps.iter().filter_map(|step| match step {
        crate::support::Step::Read(offset, bytes) => Some((*offset, *bytes)),
        _ => None,
    });
    let (mut fetched, mut parted) = (0, 0);
    for (offset, bytes) in reads {
        let left = 4096 - (offset % 4096) as usize;
        assert!(bytes > 64 || bytes <= left, "{bytes} bytes at {offset:#x}");
        fetched += bytes;
        parted += usize::from(bytes == left);
    }
    assert_eq!(fetched, expected.iter().sum::<usize>());
    assert!(parted >= 3 * 59, "{parted}");
}

#[test]
fn rr1_done_03_any_item_in_a_chunk_is_put_back_into_the_stream() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    // Three counted items, of which the first two are in chunks: one with its pad within.
    let items = [pattern(701), pattern(1203), pattern(6)];
    let whole = |xid| {
        let mut stream = success(xid, &());
        for item in &items {
            stream.extend((item.len() as u32).to_be_bytes());
            stream.extend(item);
            stream.resize(stream.len().next_multiple_of(4), 0);
        }
        stream
    };
    raw.submit(&readdir(1, 4096));
    let call = raw.next();
    let stream = whole(call.xid);
    let first = 24 + 4;
    let second = first + 704 + 4;
    let third = second + 1204;
    let inline = [
        &stream[..first],
        &stream[second - 4..second],
        &stream[third..],
    ]
    .concat();
    let chunks = [
        at(
            second as u32,
            &raw.reveal_in(&stream[second..third], &[7, 1197]),
        ),
        at(first as u32, &raw.reveal_in(&items[0], &[701])),
    ];
    raw.send(&classic(
        call.xid,
        8,
        &chunks.concat(),
        &[],
        None,
        Some(&inline),
    ));
    let (message, _) = raw.done[0].result.clone().expect("a reply");
    assert_eq!(message, stream);
    raw.expect_done(call.xid);
}

#[test]
fn rr1_done_03_a_whole_reply_at_position_zero_is_fetched() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for (count, length) in [(1000, 600), (32_768, 20_000), (110_000, 100_000)] {
        raw.submit(&readdir(1, count));
        let call = raw.next();
        let (rpc, chunk) = answer_at_zero(&mut raw, &call, 8, length);
        let done = raw.done.pop().expect("ended");
        assert_eq!(done.result.expect("a reply").0, rpc);
        raw.expect_done(call.xid);
        raw.conceal(&chunk);
    }
}

#[test]
fn rr1_done_03_a_reply_longer_than_the_largest_buffer_is_joined() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.pool.grow(8 << 20).expect("memory");
    let (call, memory) = read(&mut raw, 1 << 20);
    // The data is in the stream again, at position zero.
    let data = pattern(1 << 20);
    let mut rpc = success(call.xid, &());
    rpc.extend(bytes(&[0, 0, 1 << 20, 1, 1 << 20]));
    rpc.extend(&data);
    let chunk = raw.reveal_in(&rpc, &[500_000, 500_002, rpc.len() - 1_000_002]);
    let writes = vec![emptied(&call.writes[0])];
    raw.send(&classic(call.xid, 8, &at(0, &chunk), &writes, None, None));
    let done = raw.done.pop().expect("ended");
    assert_eq!(data_of(&done, &memory), data);
    raw.expect_done(call.xid);
}

#[test]
fn rr1_done_04_done_is_sent_for_a_call_that_was_given_up_before_its_reply() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let id = raw.submit(&readdir(1, 32_768));
    let call = raw.next();
    assert!(raw.cancel(id));
    assert_eq!(
        raw.done.pop().expect("told").result,
        Err(CallError::Cancelled)
    );
    answer_at_zero(&mut raw, &call, 8, 20_000);
    raw.expect_done(call.xid);
    assert!(raw.done.is_empty(), "told once");
    assert_eq!(raw.connection.counters().reads, 0, "nobody wants it");
    assert_eq!(raw.connection.pending(), 0);
}

#[test]
fn rr1_done_04_done_is_sent_for_a_call_that_is_given_up_while_the_reads_run() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (call, memory) = read(&mut raw, 5000);
    let rpc = success(call.xid, &read_ok(5000));
    let chunk = raw.reveal(&pattern(5000));
    let reply = classic(
        call.xid,
        8,
        &at(rpc.len() as u32, &[chunk]),
        &[],
        None,
        Some(&rpc),
    );
    raw.post_send(&reply);
    // As far as to the posted Read.
    while raw.connection.counters().reads == 0 {
        raw.client_turn();
        raw.server_turn();
    }
    let id = raw.last.expect("submitted");
    assert!(raw.cancel(id));
    assert!(raw.done.is_empty(), "the Read still fills the memory");
    assert!(!raw.cancel(id), "once");
    raw.settle();
    assert_eq!(
        raw.done.pop().expect("told").result,
        Err(CallError::Cancelled)
    );
    assert_eq!(contents(&memory), pattern(5000));
    raw.expect_done(call.xid);
    assert!(raw.inbox.is_empty() && raw.connection.pending() == 0);
}

#[test]
fn rr1_done_04_done_is_sent_when_the_reply_cannot_be_decoded() {
    for variant in 0..7 {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let (call, _memory) = read(&mut raw, 5000);
        let rpc = success(call.xid, &read_ok(5000));
        let chunk = raw.reveal(&pattern(5000));
        let large = raw.reveal(&vec![0; 70_000]);
        let longer = vec![Segment {
            length: 9000,
            ..call.writes[0][0]
        }];
        let reads = |position: usize, segment| at(position as u32, &[segment]);
        let end = rpc.len();
        let (reads, writes, rpc) = match variant {
            // Far too much, at a result's place and at position zero.
            0 => (reads(end, large), Vec::new(), Some(&rpc)),
            1 => (reads(0, large), Vec::new(), None),
            // Behind the end of the stream.
            2 => (reads(end + 4, chunk), Vec::new(), Some(&rpc)),
            // The message in two places, and in none.
            3 => (reads(0, chunk), Vec::new(), Some(&rpc)),
            4 => (reads(end, chunk), Vec::new(), None),
            // More written than was offered.
            5 => (reads(end, chunk), vec![longer], Some(&rpc)),
            // Another call's reply within.
            _ => (reads(0, chunk), Vec::new(), None),
        };
        let rpc = rpc.map(Vec::as_slice);
        raw.send(&classic(call.xid, 8, &reads, &writes, None, rpc));
        assert_eq!(
            raw.done.pop().expect("ended").result,
            Err(CallError::BadReply),
            "variant {variant}"
        );
        raw.expect_done(call.xid);
        assert!(raw.inbox.is_empty());
        raw.getattr(2);
        let call = raw.next();
        raw.answer(&call, 8, &stale());
        assert_eq!(raw.tokens(), [2]);
    }
}

#[test]
fn rr1_done_04_a_read_that_is_never_answered_ends_with_the_time_of_its_call() {
    for cancelled in [false, true] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let (call, _memory) = read(&mut raw, 5000);
        let rpc = success(call.xid, &read_ok(5000));
        let chunk = raw.reveal(&pattern(5000));
        let reads = at(rpc.len() as u32, &[chunk]);
        raw.post_send(&classic(call.xid, 8, &reads, &[], None, Some(&rpc)));
        raw.server_turn();
        while raw.connection.counters().reads == 0 {
            raw.client_turn();
        }
        // From here on the server does nothing.
        if cancelled {
            let id = raw.last.expect("submitted");
            assert!(raw.cancel(id));
        }
        raw.client_turn();
        assert!(raw.done.is_empty());
        raw.now += settings().timeout;
        // A device gives its requests back in its own time.
        while raw.done.is_empty() {
            raw.client_turn();
        }
        let error = match cancelled {
            false => CallError::TimedOut,
            true => CallError::Cancelled,
        };
        assert_eq!(raw.done[0].result, Err(error));
        assert_eq!(raw.connection.pending(), 0);
    }
}

#[test]
fn a_fetch_waits_for_memory() {
    for cancelled in [false, true] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let id = raw.submit(&readdir(1, 32_768));
        let call = raw.next();
        let rpc = success(call.xid, &pattern(20_000).as_slice());
        let chunk = raw.reveal(&rpc);
        let taken: Vec<_> = std::iter::from_fn(|| raw.pool.try_acquire(Class::Medium)).collect();
        raw.send(&classic(call.xid, 8, &at(0, &[chunk]), &[], None, None));
        assert!(raw.done.is_empty() && raw.connection.is_fetching());
        assert_eq!(raw.connection.counters().reads, 0);
        if cancelled {
            assert!(raw.cancel(id));
        } else {
            drop(taken);
        }
        raw.settle();
        let done = raw.done.pop().expect("ended");
        match cancelled {
            false => assert!(done.result.expect("a reply").0 == rpc),
            true => assert_eq!(done.result, Err(CallError::Cancelled)),
        }
        raw.expect_done(call.xid);
    }
}

#[test]
fn rr1_done_05_done_is_sixteen_bytes() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.submit(&readdir(1, 4096));
    let call = raw.next();
    answer_at_zero(&mut raw, &call, 8, 3000);
    // XID, version one, the wish for credits, type 3, and nothing else.
    assert_eq!(raw.next().bytes, bytes(&[call.xid, 1, 16, 3]));
}

#[test]
fn rr1_done_08_read_chunks_of_calls_need_no_done() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    for token in 0..50 {
        let data = [raw.memory(5000)];
        let call = Call::nfs3(token, Procedure::Write, write_arguments(5000), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        assert_eq!((call.kind, call.reads.len()), (0, 1));
        raw.fetch_all(&call.read_segments());
        raw.answer(&call, 8, &stale());
        assert!(raw.inbox.is_empty(), "neither sent nor awaited");
    }
    assert_eq!(raw.done.len(), 50);
    assert_eq!(raw.connection.counters().dones, 0);
}

#[test]
fn rr1_done_09_a_done_that_arrives_is_dropped() {
    let mut raw = Raw::open(settings(), Peer::default(), 1);
    raw.getattr(1);
    raw.getattr(2);
    let call = raw.next();
    let receives = raw.connection.receives();
    raw.send(&bytes(&[call.xid, 1, 9, 3]));
    assert!(raw.done.is_empty(), "no reply");
    assert!(raw.inbox.is_empty(), "no credit either");
    assert_eq!(raw.connection.window().limit(), 1);
    assert_eq!(raw.connection.receives(), receives);
    raw.answer(&call, 1, &stale());
    assert_eq!(raw.tokens(), [1]);
    assert_eq!(raw.inbox.len(), 1);
}

#[test]
fn rr1_done_13_a_window_that_was_missed_means_to_call_again() {
    let keep = Settings {
        keep_calls: true,
        ..settings()
    };
    let mut raw = Raw::open(keep, Peer::default(), 8);
    raw.submit(&readdir(1, 32_768));
    let call = raw.next();
    let rpc = success(call.xid, &pattern(20_000).as_slice());
    let chunk = raw.reveal(&rpc);
    // The server takes its memory back before the Read comes.
    raw.conceal(&chunk);
    raw.send(&classic(call.xid, 8, &at(0, &[chunk]), &[], None, None));
    assert_eq!(raw.disconnects, 1);
    assert!(raw.done.is_empty() && raw.inbox.is_empty(), "no RDMA_DONE");
    raw.reconnect();
    let again = raw.next();
    assert_eq!(again.xid, call.xid);
    let (rpc, _) = answer_at_zero(&mut raw, &again, 8, 20_000);
    let done = raw.done.pop().expect("ended");
    assert_eq!(done.result.expect("a reply").0, rpc);
    raw.expect_done(call.xid);
}

#[test]
fn rr1_done_13_a_call_that_is_not_kept_ends_with_the_connection() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.submit(&readdir(1, 32_768));
    let call = raw.next();
    let chunk = raw.reveal(&success(call.xid, &pattern(20_000).as_slice()));
    raw.conceal(&chunk);
    raw.send(&classic(call.xid, 8, &at(0, &[chunk]), &[], None, None));
    assert_eq!(raw.done[0].result, Err(CallError::Disconnected));
    assert_eq!(raw.connection.pending(), 0);
    assert!(!raw.connection.is_fetching());
}

#[test]
fn rr1_done_15_chunks_of_all_kinds_in_one_exchange() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = [raw.memory(3001)];
    let rooms = [[raw.memory(6000)], [raw.memory(7000)]];
    for room in &rooms {
        room[0].fill_zero(0..room[0].len());
    }
    let arguments = millrace_wire::xdr::Bulk::apart(3001);
    struct Item(millrace_wire::xdr::Bulk<'static>);
    impl millrace_wire::xdr::Encode for Item {
        fn encode(
            &self,
            out: &mut millrace_wire::xdr::Encoder<'_>,
        ) -> millrace_wire::xdr::Result<()> {
            out.bulk(&self.0)
        }
    }
    let call = Call {
        data: Data::One(&data),
        sinks: &[&rooms[0], &rooms[1]],
        ..unbound(Item(arguments), 100)
    };
    raw.submit(&call);
    let call = raw.next();
    assert_eq!((call.reads.len(), call.writes.len()), (1, 2));
    assert_eq!(raw.fetch_all(&call.read_segments()), pattern(3001));
    // The first result by RDMA Write, the second by read chunk, whose position counts the first.
    let writes = vec![
        raw.place_all(&call.writes[0], &pattern(5)),
        emptied(&call.writes[1]),
    ];
    let mut rpc = success(call.xid, &());
    rpc.extend(bytes(&[5, 6999]));
    let chunk = raw.reveal(&pattern(6999));
    let reads = at(rpc.len() as u32 + 8, &[chunk]);
    raw.send(&classic(call.xid, 8, &reads, &writes, None, Some(&rpc)));
    let (message, written) = raw.done[0].result.clone().expect("a reply");
    assert_eq!((message, written), (rpc, vec![Some(5), Some(6999)]));
    assert_eq!(contents(&rooms[0][0])[..5], pattern(5));
    assert_eq!(contents(&rooms[1][0])[..6999], pattern(6999));
    raw.expect_done(call.xid);
}

#[test]
fn rr1_done_16_who_never_saw_a_read_list_never_sends_done() {
    let expecting = Settings {
        expect_read_chunks: true,
        ..chunky()
    };
    for mine in [settings(), chunky(), expecting] {
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let mut types = Vec::new();
        for token in 0..20 {
            let data = [raw.memory(100 + 400 * token)];
            let count = data[0].len() as u32;
            let call = Call::nfs3(token as u64, Procedure::Write, write_arguments(count), 0);
            raw.submit(&call.with_data(&data));
            let call = raw.next();
            types.push(call.kind);
            raw.answer(&call, 8, &stale());
            let (call, _memory) = read(&mut raw, 10_000);
            types.push(call.kind);
            raw.answer(&call, 8, &stale());
            raw.submit(&readdir(1, 32_768));
            let call = raw.next();
            types.push(call.kind);
            raw.answer(&call, 8, &stale());
        }
        assert!(raw.inbox.is_empty());
        assert!(types.iter().all(|&kind| kind == 0));
    }
}
