//! Calls of the server's, in either version.

use std::cell::RefCell;
use std::rc::Rc;

use millrace_bench::requester::{RequesterState, ReverseCall, ReverseService, Settings};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{Accepted, CallHeader, Credential, MessageType, OpaqueAuth};
use millrace_wire::rpcrdma::{CallChunks, Outgoing, ReadSegment, Segment, Version, encode_header};
use millrace_wire::xdr::{self, Encode, Encoder};

use crate::VERSION;
use crate::support::{Peer, Raw, SHORTEST, Seen, Step, settings, stale};

const PROGRAM: u32 = 0x4000_0000;
/// Gives its arguments back.
const ECHO: u32 = 1;
/// Gives as many bytes as its argument says.
const FILL: u32 = 2;

/// Notes the XIDs of its calls.
pub struct Echo(pub Rc<RefCell<Vec<u32>>>);

impl ReverseService for Echo {
    fn serve(
        &mut self,
        call: &ReverseCall<'_>,
        results: &mut Encoder<'_>,
    ) -> xdr::Result<Accepted> {
        self.0.borrow_mut().push(call.xid);
        match (call.program, call.procedure) {
            (PROGRAM, 0) => {}
            (PROGRAM, ECHO) => results.raw(call.arguments)?,
            (PROGRAM, FILL) => {
                let count = xdr::from_bytes::<u32>(call.arguments)?;
                (0..count / 4).try_for_each(|word| results.u32(word))?;
            }
            (PROGRAM, _) => return Ok(Accepted::ProcedureUnavailable),
            _ => return Ok(Accepted::ProgramUnavailable),
        }
        Ok(Accepted::Success)
    }
}

/// A requester that serves, and the calls it has served.
pub fn serving(settings: Settings, peer: Peer) -> (Raw, Rc<RefCell<Vec<u32>>>) {
    let mut raw = Raw::open(settings, peer, 8);
    let served = Rc::default();
    raw.connection
        .set_reverse_service(Box::new(Echo(Rc::clone(&served))));
    (raw, served)
}

pub fn willing() -> Settings {
    Settings {
        reverse_credits: 4,
        ..settings()
    }
}

/// A call of the server's in the version under test.
pub fn reverse_call(xid: u32, credits: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    reverse_call_with(
        VERSION,
        xid,
        credits,
        procedure,
        arguments,
        &CallChunks::default(),
        true,
    )
}

pub fn reverse_call_with(
    version: Version,
    xid: u32,
    credits: u32,
    procedure: u32,
    arguments: &[u8],
    chunks: &CallChunks<'_>,
    inline: bool,
) -> Vec<u8> {
    let mut message = vec![0; 8192];
    let mut out = Encoder::new(&mut message);
    let header = Outgoing {
        version,
        xid,
        credits,
        inline,
        direction: MessageType::Call,
        invalidate: chunks.writes.first().map_or(0, |chunk| chunk[0].handle),
    };
    encode_header(&mut out, &header, chunks).expect("room");
    if inline {
        let call = CallHeader {
            xid,
            program: PROGRAM,
            version: 1,
            procedure,
            credential: Credential::Other(OpaqueAuth::NONE),
            verifier: OpaqueAuth::NONE,
        };
        call.encode(&mut out).expect("room");
        out.raw(arguments).expect("room");
    }
    let length = out.position();
    message.truncate(length);
    message
}

/// The results of a reply that succeeded.
fn results(reply: &Seen) -> &[u8] {
    assert_eq!((reply.kind, reply.direction), (0, Some(MessageType::Reply)));
    assert_eq!((reply.version, reply.invalidate), (VERSION.number(), 0));
    // XID, REPLY, accepted, no verifier, success.
    let header = [reply.xid, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    reply.rpc.strip_prefix(header.as_slice()).expect("success")
}

/// The words of an error, up to what is the code's own.
fn error(message: &Seen) -> [u32; 4] {
    let words = message.words();
    assert_eq!(words[3], 4, "RDMA_ERROR");
    [words[0], words[1], words[2], words[4]]
}

const BAD_HEADER: u32 = 2;
const CANNOT_REPLY: u32 = match VERSION {
    Version::One => 2,
    Version::Two => 3,
};

#[test]
fn rr2_dir_01_the_server_calls_on_the_same_connection() {
    let (mut raw, served) = serving(willing(), Peer::default());
    raw.send(&reverse_call(77, 1, ECHO, b"four more"[..8].as_ref()));
    let reply = raw.next();
    assert_eq!((reply.xid, results(&reply)), (77, &b"four mor"[..]));
    assert_eq!(*served.borrow(), [77]);
    // Calls that fail are answered as well.
    raw.send(&reverse_call(78, 1, 99, &[]));
    let reply = raw.next();
    assert!(reply.rpc.ends_with(&3_u32.to_be_bytes()), "PROC_UNAVAIL");
    assert_eq!(reply.rpc.len(), 24, "and nothing but the status");
    raw.send(&reverse_call(79, 1, FILL, &[]));
    assert!(raw.next().rpc.ends_with(&5_u32.to_be_bytes()), "SYSTEM_ERR");
    // Forward calls go on.
    raw.getattr(1);
    raw.answer_all(8);
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr2_dir_01_without_credits_for_the_server_its_calls_are_dropped() {
    let (mut raw, served) = serving(settings(), Peer::default());
    let receives = raw.connection.receives();
    raw.send(&reverse_call(77, 1, ECHO, &[]));
    assert!(raw.inbox.is_empty() && served.borrow().is_empty());
    assert_eq!(raw.connection.counters().dropped, 1);
    assert_eq!(raw.connection.receives(), receives);
}

#[test]
fn rr2_dir_01_without_a_service_no_program_is_available() {
    let mut raw = Raw::open(willing(), Peer::default(), 8);
    raw.send(&reverse_call(77, 1, 0, &[]));
    let reply = raw.next();
    assert!(reply.rpc.ends_with(&1_u32.to_be_bytes()), "PROG_UNAVAIL");
}

#[test]
fn rr2_dir_03_equal_xids_in_both_directions_do_not_meet() {
    let (mut raw, served) = serving(willing(), Peer::default());
    raw.getattr(1);
    let forward = raw.next();
    raw.send(&reverse_call(forward.xid, 1, ECHO, b"same"));
    let reply = raw.next();
    assert_eq!((reply.xid, results(&reply)), (forward.xid, &b"same"[..]));
    assert_eq!(*served.borrow(), [forward.xid]);
    assert!(raw.done.is_empty(), "the forward call is still out");
    raw.answer(&forward, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr2_dir_04_each_direction_has_its_own_wish_and_grant() {
    let (mut raw, _) = serving(willing(), Peer::default());
    assert_eq!(raw.connection.window().limit(), 8);
    for (wish, granted) in [(1, 1), (3, 3), (4, 4), (100, 4), (0, 1)] {
        raw.send(&reverse_call(wish, wish, 0, &[]));
        assert_eq!(raw.next().credits, granted, "wish {wish}");
        assert_eq!(
            raw.connection.window().limit(),
            8,
            "the forward grant stays"
        );
    }
    raw.getattr(1);
    let call = raw.next();
    assert_eq!(call.credits, 16, "the forward wish stays");
    raw.answer(&call, 2, &stale());
    assert_eq!(raw.connection.window().limit(), 2);
    raw.send(&reverse_call(9, 4, 0, &[]));
    assert_eq!(raw.next().credits, 4, "the reverse grant stays");
}

#[test]
fn rr1_cred_24_reverse_calls_are_served_when_forward_credits_are_used_up() {
    let (mut raw, served) = serving(willing(), Peer::default());
    for token in 0..20 {
        raw.getattr(token);
    }
    let forward: Vec<_> = raw.inbox.drain(..).collect();
    assert_eq!(forward.len(), 8, "the whole grant is out");
    for xid in 0..10 {
        raw.send(&reverse_call(xid, 1, ECHO, b"word"));
        assert_eq!(results(&raw.next()), b"word");
        assert_eq!(raw.connection.window().in_flight(), 8);
    }
    assert_eq!(served.borrow().len(), 10);
    for call in &forward {
        raw.answer(call, 8, &stale());
    }
    raw.answer_all(8);
    assert_eq!(raw.done.len(), 20);
}

#[test]
fn rr2_dir_05_both_limits_may_be_used_fully_at_once() {
    let mine = Settings {
        spare_receives: 0,
        credits: 8,
        ..willing()
    };
    let (mut raw, served) = serving(mine, Peer::default());
    assert_eq!(raw.connection.receives(), 8 + 4, "posted from the start");
    for round in 0..5_u32 {
        for token in 0..8 {
            raw.getattr(token);
        }
        let forward: Vec<_> = raw.inbox.drain(..).collect();
        assert_eq!(forward.len(), 8);
        // Everything at once, before the client looks once.
        for call in &forward {
            let rpc = crate::support::success(call.xid, &stale());
            let reply = crate::support::message(call.xid, 8, &[], None, Some(&rpc));
            raw.post_send(&reply);
        }
        for call in 0..4 {
            raw.post_send(&reverse_call(4 * round + call, 4, ECHO, b"full"));
        }
        raw.settle();
        assert_eq!(raw.connection.state(), &RequesterState::Ready);
        assert_eq!(raw.inbox.drain(..).count(), 4);
        assert_eq!(raw.done.drain(..).count(), 8);
    }
    assert_eq!(*served.borrow(), (0..20).collect::<Vec<_>>());
}

/// A segment of the server's, though there is no memory behind it.
const SEGMENT: Segment = Segment {
    handle: 0x1234,
    length: 64,
    offset: 0,
};

fn chunky_calls(xid: u32) -> [Vec<u8>; 4] {
    let read = |position| ReadSegment {
        position,
        segment: SEGMENT,
    };
    let chunk: &[Segment] = &[SEGMENT];
    let with = |chunks: CallChunks<'_>, inline| {
        reverse_call_with(VERSION, xid, 1, ECHO, b"word", &chunks, inline)
    };
    let none = CallChunks::default();
    [
        with(
            CallChunks {
                reads: &[read(40)],
                ..none
            },
            true,
        ),
        with(
            CallChunks {
                writes: &[chunk],
                ..none
            },
            true,
        ),
        with(
            CallChunks {
                reply: Some(chunk),
                ..none
            },
            true,
        ),
        with(
            CallChunks {
                reads: &[read(0)],
                ..none
            },
            false,
        ),
    ]
}

#[test]
fn rr2_dir_07_reverse_calls_with_chunks_are_refused() {
    let (mut raw, served) = serving(willing(), Peer::default());
    for call in chunky_calls(5) {
        raw.send(&call);
        let answer = raw.next();
        assert_eq!(error(&answer), [5, VERSION.number(), 1, BAD_HEADER]);
        assert_eq!(answer.bytes.len(), 20);
    }
    assert!(
        served.borrow().is_empty(),
        "refused before anybody is asked"
    );
    assert_eq!(raw.connection.counters().refused, 4);
}

#[test]
fn rr2_dir_08_chunks_in_reverse_calls_end_nothing_but_the_call() {
    let (mut raw, served) = serving(willing(), Peer::default());
    let receives = raw.connection.receives();
    raw.getattr(1);
    let forward = raw.next();
    // In version one a long message that has the XID of a call that is out can only be its reply.
    let xid = match VERSION {
        Version::One => 5,
        Version::Two => forward.xid,
    };
    for call in chunky_calls(xid) {
        raw.send(&call);
        assert_eq!(error(&raw.next())[3], BAD_HEADER);
    }
    assert!(raw.done.is_empty());
    assert_eq!(raw.connection.receives(), receives);
    raw.send(&reverse_call(6, 1, ECHO, b"word"));
    assert_eq!(results(&raw.next()), b"word");
    raw.answer(&forward, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
    assert_eq!(*served.borrow(), [6]);
}

#[test]
fn rr2_inv_11_keys_of_the_server_are_not_invalidated_as_reverse_chunks_are_not_taken() {
    let (mut raw, _) = serving(willing(), Peer::default());
    let before = raw.steps().len();
    // The second one nominates its key.
    for call in chunky_calls(5) {
        raw.send(&call);
    }
    let steps = raw.steps().split_off(before);
    let sends = steps.iter().filter_map(|step| match step {
        Step::Send { invalidate, .. } => Some(*invalidate),
        _ => None,
    });
    assert_eq!(sends.collect::<Vec<_>>(), [None; 4]);
}

#[test]
fn rr2_dir_09_reverse_messages_keep_to_the_forward_thresholds() {
    let told = |send_size, receive_size| {
        Some(PrivateData {
            remote_invalidation: false,
            send_size,
            receive_size,
        })
    };
    for (ours, peers, (send, receive)) in [
        (told(1024, 4096), told(4096, 4096), (1024, 4096)),
        (told(4096, 4096), told(1024, 4096), (4096, 1024)),
        (told(4096, 1024), told(4096, 2048), (2048, 1024)),
    ] {
        let mine = Settings {
            private_data: ours,
            ..willing()
        };
        let peer = Peer {
            private_data: peers,
            ..Peer::default()
        };
        let (mut raw, _) = serving(mine, peer);
        let limits = raw.connection.limits();
        assert_eq!((limits.send, limits.receive), (send, receive));
        // The longest call that may come.
        let frame = reverse_call(1, 1, ECHO, &[]).len();
        let fill = send - SHORTEST - 24;
        let mut arguments = (fill as u32).to_be_bytes().to_vec();
        arguments.resize(receive - frame, 0);
        raw.send(&reverse_call(1, 1, FILL, &arguments[..4]));
        let reply = raw.next();
        assert_eq!((results(&reply).len(), reply.bytes.len()), (fill, send));
        raw.send(&reverse_call(2, 1, FILL, &(fill as u32 + 4).to_be_bytes()));
        assert_eq!(error(&raw.next())[3], CANNOT_REPLY);
        raw.send(&reverse_call(3, 1, 0, &arguments));
        assert!(results(&raw.next()).is_empty());
    }
}

#[test]
fn rr2_dir_10_without_private_data_the_default_of_the_version_holds_in_reverse() {
    let mine = Settings {
        private_data: None,
        ..willing()
    };
    let peer = Peer {
        private_data: None,
        ..Peer::default()
    };
    let (mut raw, _) = serving(mine, peer);
    raw.send(&reverse_call(1, 1, FILL, &3000_u32.to_be_bytes()));
    let answer = raw.next();
    match VERSION {
        Version::One => assert_eq!(error(&answer), [1, 1, 1, CANNOT_REPLY]),
        Version::Two => {
            assert_eq!(results(&answer).len(), 3000);
            let call = reverse_call(2, 1, ECHO, &[7; 3000]);
            raw.send(&call);
            assert_eq!(results(&raw.next()), [7; 3000]);
        }
    }
}

#[test]
fn rr2_dir_11_only_the_version_used_forward_is_served_in_reverse() {
    let (mut raw, served) = serving(willing(), Peer::default());
    let other = match VERSION {
        Version::One => Version::Two,
        Version::Two => Version::One,
    };
    let none = CallChunks::default();
    raw.send(&reverse_call_with(other, 1, 1, ECHO, b"word", &none, true));
    assert!(raw.inbox.is_empty() && served.borrow().is_empty());
    raw.send(&reverse_call_with(
        VERSION, 1, 1, ECHO, b"word", &none, true,
    ));
    assert_eq!(raw.next().version, VERSION.number());
    assert_eq!(*served.borrow(), [1]);
}

#[test]
fn answers_in_reverse_wait_for_room_in_the_send_queue() {
    let (mut raw, served) = serving(willing(), Peer::default());
    let receives = raw.connection.receives();
    raw.client.full = true;
    raw.send(&reverse_call(1, 4, ECHO, b"word"));
    raw.send(&chunky_calls(2)[0]);
    raw.send(&reverse_call(3, 4, 99, &[]));
    raw.send(&reverse_call(4, 4, FILL, &8_u32.to_be_bytes()));
    assert!(raw.inbox.is_empty(), "nothing can be sent");
    assert_eq!(*served.borrow(), [1, 3, 4], "but all are served");
    assert_eq!(raw.connection.receives(), receives);
    assert_eq!(raw.connection.counters().dropped, 0);
    // A server that has not got its answers has no credit for another call.
    raw.send(&reverse_call(5, 4, ECHO, b"word"));
    assert_eq!(raw.connection.counters().dropped, 1);
    raw.client.full = false;
    raw.settle();
    let xids: Vec<_> = raw.inbox.iter().map(|answer| answer.xid).collect();
    assert_eq!(xids, [1, 2, 3, 4], "in the order of the calls");
    assert_eq!(results(&raw.next()), b"word");
    assert_eq!(error(&raw.next())[3], BAD_HEADER);
    assert!(raw.next().rpc.ends_with(&3_u32.to_be_bytes()));
    assert_eq!(results(&raw.next()).len(), 8);
    // Its credits are its own again.
    raw.send(&reverse_call(6, 4, ECHO, b"more"));
    assert_eq!(results(&raw.next()), b"more");
    assert_eq!(*served.borrow(), [1, 3, 4, 5, 6], "none is served twice");
}

#[test]
fn answers_in_reverse_wait_for_memory() {
    let (mut raw, served) = serving(willing(), Peer::default());
    let hoard = raw.hoard();
    raw.send(&reverse_call(1, 4, ECHO, b"word"));
    raw.send(&chunky_calls(2)[0]);
    assert!(raw.inbox.is_empty());
    assert_eq!(*served.borrow(), [1]);
    drop(hoard);
    raw.settle();
    assert_eq!(results(&raw.next()), b"word");
    assert_eq!(error(&raw.next())[3], BAD_HEADER);
    assert_eq!(raw.connection.counters().dropped, 0);
    assert_eq!(*served.borrow(), [1]);
}

#[test]
fn answers_in_reverse_do_not_outlive_their_connection() {
    let (mut raw, _) = serving(willing(), Peer::default());
    raw.client.full = true;
    raw.send(&reverse_call(1, 4, ECHO, b"word"));
    raw.break_off();
    raw.client.full = false;
    raw.reconnect();
    let strays = raw.inbox.iter().filter(|message| message.xid == 1);
    assert_eq!(strays.count(), 0, "nobody on the new connection has asked");
}

#[test]
fn reverse_calls_that_are_no_sound_rpc_are_answered_or_dropped() {
    let (mut raw, served) = serving(willing(), Peer::default());
    // Another XID inside.
    let mut call = reverse_call(1, 1, ECHO, &[]);
    call[SHORTEST + 3] ^= 0xff;
    raw.send(&call);
    assert_eq!(error(&raw.next())[3], BAD_HEADER);
    // Another version of RPC.
    let mut call = reverse_call(2, 1, ECHO, &[]);
    call[SHORTEST + 11] = 3;
    raw.send(&call);
    let denied = [2_u32, 1, 1, 0, 2, 2].map(u32::to_be_bytes).concat();
    assert_eq!(raw.next().rpc, denied, "RPC_MISMATCH");
    // An end within the RPC header.
    let call = reverse_call(3, 1, ECHO, &[]);
    raw.send(&call[..SHORTEST + 16]);
    let denied = [3_u32, 1, 1, 1, 1].map(u32::to_be_bytes).concat();
    assert_eq!(raw.next().rpc, denied, "AUTH_ERROR");
    assert!(served.borrow().is_empty());
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
}
