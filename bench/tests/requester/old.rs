//! What servers of the time before the standard do (the draft of 2004).

use std::time::Duration;

use millrace_bench::requester::{Call, CallError, Settings};
use millrace_wire::nfs3::Procedure;

use crate::chunk::{chunky, pattern, read_arguments, read_ok, write_arguments};
use crate::done::{data_of, read, readdir};
use crate::support::{Peer, Raw, at, bytes, classic, emptied, settings, stale, success};

#[test]
fn old_01_a_done_for_the_chunks_of_a_call_changes_nothing() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = [raw.memory(5000)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(5000), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    assert_eq!(raw.fetch_all(&call.read_segments()), pattern(5000));
    raw.send(&bytes(&[call.xid, 1, 8, 3]));
    // The memory stays until the reply.
    assert_eq!(raw.fetch_all(&call.read_segments()), pattern(5000));
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
    assert!(raw.fetch(&call.read_segments()[0]).is_err());
}

#[test]
fn old_02_data_in_read_chunks_is_fetched_though_no_binding_was_asked() {
    // The answer of an early server to a READ without a write list.
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (call, memory) = read(&mut raw, 3000);
    assert!(call.writes.is_empty());
    let rpc = success(call.xid, &read_ok(3000));
    let chunk = raw.reveal(&pattern(3000));
    let reads = at(rpc.len() as u32, &[chunk]);
    raw.send(&classic(call.xid, 8, &reads, &[], None, Some(&rpc)));
    let done = raw.done.pop().expect("ended");
    assert_eq!(data_of(&done, &memory), pattern(3000));
    raw.expect_done(call.xid);
}

#[test]
fn old_03_a_long_reply_is_fetched_though_a_reply_chunk_was_offered() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for returned in 0..3 {
        raw.submit(&readdir(1, 32_768));
        let call = raw.next();
        let offered = call.reply.clone().expect("offered");
        let rpc = success(call.xid, &pattern(25_000).as_slice());
        let chunk = raw.reveal_in(&rpc, &[10_000, 15_000, rpc.len() - 25_000]);
        // The reply chunk may come back emptied, as it was, or not at all.
        let empty = emptied(&offered);
        let reply = [Some(empty.as_slice()), Some(offered.as_slice()), None][returned];
        raw.send(&classic(call.xid, 8, &at(0, &chunk), &[], reply, None));
        let done = raw.done.pop().expect("ended");
        assert_eq!(done.result.expect("a reply").0, rpc);
        raw.expect_done(call.xid);
    }
}

#[test]
fn old_05_pads_may_be_in_the_chunk_in_a_segment_or_nowhere() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let data = pattern(5001);
    let padded = [data.as_slice(), &[0xff; 3]].concat();
    let forms: [(&[u8], &[usize]); 3] = [
        (&data, &[5001]),
        (&padded, &[5004]),
        (&padded, &[2000, 3001, 3]),
    ];
    for (bytes, lengths) in forms {
        // The memory is as long as the data, and then longer.
        for room in [5001, 6000] {
            let memory = raw.memory(room);
            memory.fill_zero(0..room);
            let call = Call::nfs3(1, Procedure::Read, read_arguments(room as u32), 0);
            raw.submit(&call.with_sinks(&[std::slice::from_ref(&memory)]));
            let call = raw.next();
            let rpc = success(call.xid, &read_ok(5001));
            let chunk = raw.reveal_in(bytes, lengths);
            let reads = at(rpc.len() as u32, &chunk);
            raw.send(&classic(call.xid, 8, &reads, &[], None, Some(&rpc)));
            let done = raw.done.pop().expect("ended");
            assert_eq!(data_of(&done, &memory), data);
            raw.expect_done(call.xid);
        }
    }
}

#[test]
fn old_07_a_server_that_answers_no_faulty_call_runs_into_the_timeout() {
    let hasty = Settings {
        timeout: Duration::from_secs(5),
        ..settings()
    };
    let mut raw = Raw::open(hasty, Peer::default(), 4);
    let (call, _memory) = read(&mut raw, 9000);
    raw.advance(Duration::from_secs(5));
    assert_eq!(raw.done[0].result, Err(CallError::TimedOut));
    // Others go on meanwhile, and the memory is out of the server's reach.
    raw.getattr(2);
    let other = raw.next();
    raw.answer(&other, 4, &stale());
    assert_eq!(raw.tokens(), [1, 2]);
    assert!(raw.place(&call.writes[0][0], &[1]).is_err());
}
