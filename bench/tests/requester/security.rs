//! What a server can reach, and for how long; protected calls.

use std::collections::HashSet;

use millrace_bench::requester::{
    Call, CallError, CallId, Data, Identity, RequesterState, Settings,
};
use millrace_reactor::fabric::testing::{deferring, loopback};
use millrace_reactor::fabric::{Access, Ended, Key};
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpc::RPCSEC_GSS;
use millrace_wire::rpcrdma::Segment;

use crate::chunk::{chunky, pattern, read_arguments, write_arguments};
use crate::support::{
    Peer, Raw, SHORTEST, Seen, Step, message, settings, small_sizes, stale, success, unbound,
};

pub fn protected() -> Settings {
    Settings {
        identity: Identity::opaque(RPCSEC_GSS, &[5; 120]).expect("short"),
        ..settings()
    }
}

/// A call with chunks of all kinds: data, room for a result, and for a long reply.
pub fn everything(raw: &mut Raw, token: u64) -> CallId {
    let data = [raw.memory(5000)];
    let room = [raw.memory(6000)];
    raw.submit(&Call {
        token,
        program: 400_000,
        version: 1,
        procedure: 1,
        arguments: write_arguments(5000),
        data: Data::One(&data),
        sinks: &[&room],
        largest_reply: 20_000,
    })
}

pub fn segments(call: &Seen) -> Vec<Segment> {
    let mut all = call.read_segments();
    all.extend(call.writes.iter().flatten());
    all.extend(call.reply.iter().flatten());
    all
}

#[test]
fn rr1_sec_02_protected_calls_have_nothing_taken_out() {
    let mut raw = Raw::open(protected(), Peer::default(), 8);
    raw.pool.grow(4 << 20).expect("memory");
    let data = [raw.memory(65_536)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(65_536), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    assert_eq!(call.kind, 1);
    assert!(call.positions().iter().all(|&position| position == 0));
    assert!(call.writes.is_empty() && call.rpc.is_empty());
    let rpc = raw.fetch_all(&call.read_segments());
    assert!(rpc.ends_with(&pattern(65_536)), "one protected body");
    raw.answer(&call, 8, &stale());

    // Results come back in the message, so a READ has a reply chunk and no write list.
    for count in [100, 5000, 65_536] {
        let room = [raw.memory(count)];
        let call = Call::nfs3(2, Procedure::Read, read_arguments(count as u32), 0);
        raw.submit(&call.with_sinks(&[&room]));
        let call = raw.next();
        assert!(call.reads.is_empty() && call.writes.is_empty());
        let offered: u32 = call.reply.iter().flatten().map(|s| s.length).sum();
        assert!(offered as usize >= count || count == 100);
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr1_sec_02_small_protected_calls_are_inline_whatever_is_set() {
    let mine = Settings {
        chunk_above: 0,
        ..protected()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    let data = [raw.memory(1000)];
    let room = [raw.memory(500)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(1000), 0);
    raw.submit(&call.with_data(&data).with_sinks(&[&room]));
    let call = raw.next();
    assert_eq!(call.kind, 0);
    assert!(call.reads.is_empty() && call.writes.is_empty());
    assert!(call.rpc.ends_with(&pattern(1000)));
}

#[test]
fn rr1_sec_04_control_messages_are_never_reduced() {
    // A context is created with a token of 900 bytes, inline and in a long call.
    for private_data in [settings().private_data, small_sizes()] {
        let mine = Settings {
            private_data,
            ..protected()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let token = pattern(900);
        struct Token<'a>(&'a [u8]);
        impl millrace_wire::xdr::Encode for Token<'_> {
            fn encode(
                &self,
                out: &mut millrace_wire::xdr::Encoder<'_>,
            ) -> millrace_wire::xdr::Result<()> {
                out.opaque(self.0)
            }
        }
        let call = Call {
            token: 1,
            program: 100_003,
            version: 3,
            procedure: 0,
            arguments: Token(&token),
            data: Data::None,
            sinks: &[],
            largest_reply: 1000,
        };
        raw.submit(&call);
        let call = raw.next();
        assert!(call.writes.is_empty());
        let rpc = if private_data != small_sizes() {
            assert_eq!((call.kind, call.reads.len()), (0, 0));
            call.rpc.clone()
        } else {
            assert_eq!((call.kind, call.positions()), (1, vec![0]));
            raw.fetch_all(&call.read_segments())
        };
        // Credential and token stand there whole.
        assert_eq!(rpc[24..32], [0, 0, 0, 6, 0, 0, 0, 120]);
        assert_eq!(rpc[32..152], [5; 120]);
        assert!(rpc.ends_with(&token));
    }
}

#[test]
fn rr1_sec_04_reply_estimates_include_the_largest_verifier() {
    // A reply that fits exactly, and one that does not when its verifier has 400 bytes.
    let limit = 4096 - SHORTEST;
    for (identity, verifier) in [
        (settings().identity, 0),
        (protected().identity, 400),
        (Identity::opaque(390, &[]).expect("short"), 400),
    ] {
        for (largest_reply, chunk) in [(limit - verifier, false), (limit - verifier + 4, true)] {
            let mine = Settings {
                identity: identity.clone(),
                ..settings()
            };
            let mut raw = Raw::open(mine, Peer::default(), 8);
            raw.submit(&unbound((), largest_reply));
            let call = raw.next();
            assert_eq!(call.reply.is_some(), chunk);
            let offered: u32 = call.reply.iter().flatten().map(|s| s.length).sum();
            assert!(!chunk || offered as usize >= largest_reply + verifier);
        }
    }
}

#[test]
fn rr1_sec_07_memory_is_fenced_before_the_owner_sees_the_result() {
    let mut raw = Raw::open(chunky(), Peer::default(), 4);
    everything(&mut raw, 1);
    let call = raw.next();
    let named = segments(&call);
    assert!(named.len() >= 3);
    raw.answer(&call, 4, &stale());
    let done = raw.done.first().expect("ended").clone();
    for segment in &named {
        let fenced = raw
            .steps()
            .iter()
            .position(|step| matches!(step, Step::Revoke(key) if key.0 == segment.handle));
        assert!(fenced.expect("revoked") < done.step);
    }
    // What the server writes now reaches nothing, and is the end of the connection.
    assert!(raw.place(&call.writes[0][0], &[1]).is_err());
}

#[test]
fn rr1_sec_08_handles_are_for_their_chunk_alone_and_end_with_it() {
    let mut raw = Raw::open(chunky(), Peer::default(), 4);
    let exposed = |raw: &Raw| -> Vec<(u32, u32)> {
        let step = |step: &Step| match step {
            Step::Expose(key, _, length) => Some((key.0, *length)),
            _ => None,
        };
        raw.steps().iter().filter_map(step).collect()
    };
    assert_eq!(exposed(&raw), [], "nothing is reachable before a call");
    everything(&mut raw, 1);
    let call = raw.next();
    let mut named: Vec<_> = segments(&call)
        .iter()
        .map(|segment| (segment.handle, segment.length))
        .collect();
    let mut reachable = exposed(&raw);
    named.sort_unstable();
    reachable.sort_unstable();
    assert_eq!(reachable, named, "as large as its chunk");
    let beyond = Segment {
        length: call.writes[0][0].length + 1,
        ..call.writes[0][0]
    };
    let bytes = vec![1; beyond.length as usize];
    assert!(raw.place(&beyond, &bytes).is_err());
}

#[test]
fn rr1_sec_09_what_can_be_read_is_the_payload_of_the_call_and_nothing_else() {
    // Data in many odd pieces, in chunks as they are, merged, copied, and at position zero.
    for (segments, long_calls) in [(64, false), (3, false), (1, false), (1, true)] {
        let mine = Settings {
            segments,
            long_calls,
            ..chunky()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let memory = raw.memory(3001);
        let data: Vec<_> = (0..10)
            .map(|at| memory.slice(at * 300..(at * 300 + 300).min(3001)))
            .chain([memory.slice(3000..3001)])
            .collect();
        let before = raw.steps().len();
        let call = Call::nfs3(1, Procedure::Write, write_arguments(3001), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        let seen = raw.fetch_all(&call.read_segments());
        if call.kind == 1 {
            assert!(seen.starts_with(&call.xid.to_be_bytes()));
            assert!(seen.ends_with(&[pattern(3001).as_slice(), &[0; 3]].concat()));
            assert_eq!(seen.len(), 72 + 56 + 3004);
        } else {
            assert_eq!(seen, pattern(3001));
        }
        // All that is readable was named in the call, with exactly these lengths.
        let readable: Vec<_> = raw.steps()[before..]
            .iter()
            .filter_map(|step| match step {
                Step::Expose(key, Access::RemoteRead, length) => Some((key.0, *length)),
                _ => None,
            })
            .collect();
        let named: Vec<_> = call
            .read_segments()
            .iter()
            .map(|segment| (segment.handle, segment.length))
            .collect();
        assert_eq!(readable, named);
        // A byte more is out of reach.
        let last = *call.read_segments().last().expect("some");
        let beyond = Segment {
            length: last.length + 1,
            ..last
        };
        assert!(raw.fetch(&beyond).is_err());
    }
}

#[test]
fn rr1_sec_09_room_for_results_cannot_be_read() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    everything(&mut raw, 1);
    let call = raw.next();
    assert!(raw.fetch(&call.writes[0][0]).is_err());
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    everything(&mut raw, 1);
    let call = raw.next();
    assert!(raw.fetch(&call.reply.expect("offered")[0]).is_err());
}

#[test]
fn rr1_sec_14_no_handle_comes_again_while_a_reply_could_invalidate_it() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    everything(&mut raw, 0);
    let slow = raw.next();
    let old: HashSet<_> = segments(&slow)
        .iter()
        .map(|segment| segment.handle)
        .collect();
    let mut all = old.clone();
    for token in 1..300 {
        everything(&mut raw, token);
        let call = raw.next();
        for segment in segments(&call) {
            assert!(all.insert(segment.handle), "a handle came twice");
        }
        raw.answer(&call, 8, &stale());
    }
    // The slow reply invalidates one of its own at last.
    let key = Key(slow.read_segments()[0].handle);
    let rpc = success(slow.xid, &stale());
    raw.send_with(&message(slow.xid, 8, &[], None, Some(&rpc)), Some(key));
    assert_eq!(raw.done.len(), 300);
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
}

#[test]
fn rr1_sec_15_cancelling_fences_the_memory_before_the_owner_is_told() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let id = everything(&mut raw, 1);
    let call = raw.next();
    let before = raw.steps().len();
    assert!(raw.cancel(id));
    let revoked = raw.steps()[before..]
        .iter()
        .filter(|step| matches!(step, Step::Revoke(_)))
        .count();
    assert_eq!(revoked, 3);
    assert_eq!(raw.done[0].result, Err(CallError::Cancelled));
    assert!(!raw.cancel(id), "once");
    // Slot and credit stay in use until the reply, which goes to nobody.
    assert_eq!(raw.connection.pending(), 1);
    assert_eq!(raw.connection.window().in_flight(), 1);
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.connection.pending(), 0);
    assert_eq!(raw.connection.window().in_flight(), 0);
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr1_sec_15_the_owner_waits_for_keys_that_die_later() {
    let _network = deferring();
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let id = everything(&mut raw, 1);
    let call = raw.next();
    assert!(raw.cancel(id));
    assert!(raw.done.is_empty(), "the memory is still in reach");
    raw.settle();
    assert_eq!(raw.done[0].result, Err(CallError::Cancelled));
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
    assert_eq!(raw.connection.pending(), 0);
    // The reply may also come while they die.
    let id = everything(&mut raw, 2);
    let call = raw.next();
    let rpc = success(call.xid, &stale());
    raw.post_send(&message(call.xid, 8, &[], None, Some(&rpc)));
    assert!(raw.cancel(id));
    raw.settle();
    assert_eq!(raw.done.len(), 2);
    assert_eq!(raw.done[1].result, Err(CallError::Cancelled));
    assert_eq!(raw.connection.pending(), 0);
}

#[test]
fn rr1_sec_15_calls_are_cancelled_at_every_stage() {
    // Queued.
    let mut raw = Raw::open(chunky(), Peer::default(), 1);
    everything(&mut raw, 1);
    let id = everything(&mut raw, 2);
    let exposed = raw.connection.counters().exposed;
    assert!(raw.cancel(id));
    assert_eq!(raw.tokens(), [2]);
    assert_eq!(
        raw.connection.counters().exposed,
        exposed,
        "never was in reach"
    );
    let call = raw.next();
    raw.answer(&call, 1, &stale());
    assert!(raw.inbox.is_empty());
    // Ended.
    assert!(!raw.cancel(id));
    // Sent, and the connection ends before the reply.
    let keep = Settings {
        keep_calls: true,
        ..chunky()
    };
    let mut raw = Raw::open(keep, Peer::default(), 4);
    let id = everything(&mut raw, 3);
    assert!(raw.cancel(id));
    raw.break_off();
    raw.reconnect();
    assert!(
        raw.inbox.len() == 1 && raw.connection.pending() == 0,
        "not sent again"
    );
    assert_eq!(raw.tokens(), [3]);
}

#[test]
fn rr1_sec_15_a_server_at_work_on_cancelled_memory_ends_the_connection_alone() {
    let keep = Settings {
        keep_calls: true,
        ..chunky()
    };
    let mut raw = Raw::open(keep, Peer::default(), 4);
    let id = everything(&mut raw, 1);
    let call = raw.next();
    raw.getattr(2);
    raw.next();
    assert!(raw.cancel(id));
    assert!(raw.place(&call.writes[0][0], &[1]).is_err());
    assert_eq!(raw.disconnects, 1);
    raw.reconnect();
    let again = raw.next();
    raw.answer(&again, 4, &stale());
    assert_eq!(raw.tokens(), [1, 2], "other calls are made again");
}

#[test]
fn rr1_sec_16_memory_that_cannot_be_fenced_ends_the_connection_before_the_call() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    everything(&mut raw, 1);
    let call = raw.next();
    raw.client.holds_on = true;
    raw.answer(&call, 8, &stale());
    let closed = raw.steps().iter().position(|step| *step == Step::Close);
    let done = raw.done.first().expect("ended");
    assert!(closed.expect("closed") < done.step);
    assert!(done.result.is_ok(), "the reply had come");
    assert_eq!(raw.connection.state(), &RequesterState::Down(Ended::Local));
    assert_eq!(raw.disconnects, 1);
}

#[test]
fn rr1_sec_16_also_where_a_call_is_cancelled() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let id = everything(&mut raw, 1);
    raw.client.holds_on = true;
    assert!(raw.cancel(id));
    assert!(raw.done.is_empty(), "not before the connection has ended");
    raw.settle();
    assert_eq!(raw.done[0].result, Err(CallError::Cancelled));
    assert_eq!(raw.connection.state(), &RequesterState::Down(Ended::Local));
}

#[test]
fn rr1_sec_18_channel_bindings_are_kept_and_not_sent() {
    let bindings = b"tls-exporter:\x00\xff".to_vec();
    let mine = Settings {
        channel_bindings: Some(bindings.clone()),
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    assert_eq!(raw.connection.channel_bindings(), Some(bindings.as_slice()));
    raw.getattr(1);
    let with = raw.next();
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    assert_eq!(raw.connection.channel_bindings(), None);
    raw.getattr(1);
    assert_eq!(raw.next().bytes, with.bytes, "nothing of it is sent");
}
