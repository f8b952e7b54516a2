//! The responder and the connection configuration protocol (RFC 5666 section 6).

use std::cell::RefCell;
use std::rc::Rc;

use millrace::call::{Answer, Bulk, Call, Reply, Serve};
use millrace::rdma::{Ccp, Settings};
use millrace_wire::ccp::{self, Limits, Wish};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{Accepted, CallHeader, CallOutcome, Credential, OpaqueAuth};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::from_bytes;

use crate::support;
use crate::support::message::{
    PROGRAM, SUCCESS, accepted, check_chunk_error, encoded, inline, is_chunk_error, null, parse,
    plain, reads, rpc, word, words,
};
use crate::support::raw::{Options, Stated, World, inline_of};
use crate::support::script::{CallScript, Script};
use crate::support::served::Nfs;
use crate::support::trace::Trace;

const CONFIGURE: (u32, u32, u32) = (ccp::PROGRAM, ccp::VERSION, 1);

const WISH: Wish = Wish {
    call_size: 4096,
    reply_size: 4096,
    reads: 16,
};

const SERVED: Ccp = Ccp {
    program: ccp::PROGRAM,
    anonymous: false,
};

/// A client without private data, whose receives are longer than it says.
const MODEST: Stated = Stated {
    source: std::net::Ipv4Addr::LOCALHOST,
    inline: None,
    padded: 0,
    takes: Some(4096),
    invalidation: false,
    receives: 256,
    ird: 16,
};

/// Settings with the protocol, and with or without RDMA_MSGP.
fn settings(padding: bool) -> Settings {
    Settings::new(4096, 32, 1 << 20, padding).configuring(SERVED)
}

fn options(settings: Settings) -> Options {
    Options {
        settings,
        ..Options::default()
    }
}

/// A client without private data, and a program that does as told.
fn world(settings: Settings) -> (World<Script>, Script) {
    let script = Script::default();
    let mut world = World::new(script.clone(), options(settings));
    world.connect_with(MODEST);
    (world, script)
}

/// Sends a wish and returns what the server answers.
#[track_caller]
fn configure<S: Serve>(world: &mut World<S>, client: usize, wish: &Wish) -> Limits {
    let call = rpc(0xcc, CONFIGURE, &encoded(wish));
    let reply = parse(&world.exchange(client, &plain(&call)));
    assert_eq!(accepted(&reply.message), SUCCESS);
    from_bytes(support::results(&reply.message)).unwrap()
}

/// A call whose inline reply has so many bytes with its transport header; whether it comes inline.
fn fits(world: &mut World<Script>, script: &Script, client: usize, bytes: usize) -> bool {
    script.plan(CallScript {
        length: bytes - 28,
        ..CallScript::default()
    });
    let reply = world.exchange(client, &plain(&rpc(5, PROGRAM, &[])));
    let fits = !is_chunk_error(&reply);
    assert_eq!(reply.len(), if fits { bytes } else { 20 });
    fits
}

#[test]
fn rr1_ccp_01_the_program_is_served_on_its_connection() {
    let (mut world, script) = world(settings(true));
    let nothing = rpc(1, (ccp::PROGRAM, 1, 0), &[]);
    let reply = parse(&world.exchange(0, &plain(&nothing)));
    assert_eq!(
        (accepted(&reply.message), reply.message.len()),
        (SUCCESS, 24)
    );
    assert_eq!(inline_of(&world).send, 1024, "nothing was done");
    configure(&mut world, 0, &WISH);
    assert_eq!(inline_of(&world).send, 4096);
    assert!(script.seen().is_empty(), "no program has seen it");
    // It belongs to version one.
    let call = rpc(2, CONFIGURE, &encoded(&WISH));
    let two = [words(&[2, 2, 1, 0, 0, 0, 0, 0, 0]), call].concat();
    world.exchange(0, &two);
    assert_eq!(script.seen().len(), 1, "a call as any other");
    world.check_clean();
}

#[test]
fn rr1_ccp_01_elsewhere_it_is_not_available() {
    // Switched off; over TCP the same programs answer.
    let bench = support::Bench::new();
    let call = rpc(1, CONFIGURE, &encoded(&WISH));
    let mut none = support::Chunks::default();
    let replied = bench.send(&call, &[], &mut none);
    assert!(matches!(
        support::outcome(&replied.message),
        CallOutcome::Accepted {
            status: Accepted::ProgramUnavailable,
            ..
        }
    ));
    let mut nfs = Nfs::new();
    let reply = parse(&nfs.world.exchange(0, &plain(&call)));
    assert_eq!(accepted(&reply.message), 1);
}

#[test]
fn rr1_ccp_03_the_size_of_calls_is_what_the_server_takes() {
    for (padding, most) in [(true, 4068), (false, 4096)] {
        for (wish, returned) in [(0, 1024), (1024, 1024), (2000, 2000), (1 << 20, most)] {
            let (mut world, _) = world(settings(padding));
            let call_size = wish;
            let limits = configure(&mut world, 0, &Wish { call_size, ..WISH });
            assert_eq!(limits.call_size, returned, "{wish} wished for");
            // It is taken to the last byte.
            let head = plain(&rpc(9, PROGRAM, &[]));
            let rest = vec![0; returned as usize - head.len()];
            for _ in 0..40 {
                world.exchange(0, &[&head[..], &rest].concat());
            }
            world.check_clean();
        }
    }
}

#[test]
fn rr1_ccp_06_inline_replies_keep_to_the_size_stated() {
    for stated in [1024, 1500, 4096] {
        let (mut world, script) = world(settings(true));
        let reply_size = stated;
        configure(&mut world, 0, &Wish { reply_size, ..WISH });
        let stated = stated as usize;
        for (bytes, inline) in [(stated - 4, true), (stated, true), (stated + 4, false)] {
            assert_eq!(
                fits(&mut world, &script, 0, bytes),
                inline,
                "{bytes} of {stated}"
            );
        }
        world.check_clean();
    }
}

#[test]
fn rr1_ccp_07_receives_are_as_long_before_the_reply_says_so() {
    let (mut world, _) = world(settings(false));
    world.trace();
    world.notes.borrow_mut().places.clear();
    let limits = configure(&mut world, 0, &WISH);
    let trace = world.trace();
    let sent = trace
        .iter()
        .position(|step| matches!(step, Trace::Send { .. }));
    let posted = trace.iter().position(|step| *step == Trace::PostReceive);
    assert!(posted < sent && sent.is_some(), "{trace:?}");
    let notes = world.notes.borrow();
    assert!(!notes.places.is_empty());
    let long = |(_, capacity): &(usize, usize)| *capacity >= limits.call_size as usize;
    assert!(notes.places.iter().all(long));
}

#[test]
fn rr1_ccp_07_receives_of_the_first_moment_are_as_long() {
    let (world, _) = world(settings(true));
    let notes = world.notes.borrow();
    assert!(notes.places.iter().all(|place| *place == (0, 4096)));
}

#[test]
fn rr1_ccp_08_reads_keep_to_the_number_stated() {
    let mut nfs = Nfs::with(options(settings(true)));
    let limits = configure(&mut nfs.world, 0, &Wish { reads: 2, ..WISH });
    // None of the client's are served here, but the client may offer read chunks.
    assert_eq!(limits.reads, 16);
    // What the provider makes of it, its own tests show.
    assert_eq!(nfs.world.notes.borrow().read_limits, [2]);
    let file = nfs.create(b"f");
    let source = nfs.world.source(0, &[7; 500]);
    let reply = parse(&nfs.write_from(file, 500, &source, &[100; 5]));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(nfs.content(file), [7; 500]);
    configure(
        &mut nfs.world,
        0,
        &Wish {
            reads: u32::MAX,
            ..WISH
        },
    );
    assert_eq!(nfs.world.notes.borrow().read_limits, [2, u16::MAX]);
    nfs.world.check_clean();
}

#[test]
fn rr1_ccp_09_who_serves_no_reads_gets_chunk_errors() {
    let mut nfs = Nfs::with(options(settings(true)));
    let file = nfs.create(b"f");
    configure(&mut nfs.world, 0, &Wish { reads: 0, ..WISH });
    let source = nfs.world.source(0, &[7; 100]);
    let answer = nfs.write_from(file, 100, &source, &[100]);
    assert!(is_chunk_error(&answer));
    let long = support::message::long(
        3,
        &CallChunks {
            reads: &reads(0, &[source.whole()]),
            ..CallChunks::default()
        },
    );
    check_chunk_error(&nfs.world.exchange(0, &long), 3);
    // What needs no Reads goes on.
    let reply = parse(&nfs.world.exchange(0, &plain(&null(4))));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(nfs.content(file), b"");
    nfs.world.check_clean();
}

#[test]
fn rr1_ccp_12_without_it_and_private_data_replies_have_1024_bytes() {
    let (mut world, script) = world(settings(true));
    for (bytes, inline) in [(1020, true), (1024, true), (1028, false), (4096, false)] {
        assert_eq!(fits(&mut world, &script, 0, bytes), inline, "{bytes}");
    }
    world.check_clean();
}

/// InfiniBand and RoCE pass on all 56 bytes of the field in a request.
#[test]
fn zeros_behind_private_data_mean_nothing() {
    for padded in [0, 56] {
        for (inline, reply) in [(None, 1024), (Some(2048), 2048), (Some(4096), 4096)] {
            let mut world = World::new(Script::default(), options(settings(true)));
            let client = world.connect_with(Stated {
                inline,
                padded,
                ..MODEST
            });
            assert_eq!(inline_of(&world).send, reply);
            let told = PrivateData::find(&world.clients[client].private_data);
            assert_eq!(told.expect("always told").receive_size, 4096);
        }
    }
}

/// A call of the protocol by nobody.
fn anonymous(xid: u32, procedure: u32) -> Vec<u8> {
    let header = CallHeader {
        xid,
        program: ccp::PROGRAM,
        version: ccp::VERSION,
        procedure,
        credential: Credential::None,
        verifier: OpaqueAuth::NONE,
    };
    plain(&[encoded(&header), encoded(&WISH)].concat())
}

#[test]
fn rr1_ccp_14_nobody_sets_no_limits() {
    let (mut world, _) = world(settings(true));
    let reply = parse(&world.exchange(0, &anonymous(3, 1)));
    // A reply that is denied for its credential, which is too weak.
    assert_eq!(reply.message, words(&[3, 1, 1, 1, 5]));
    assert_eq!(inline_of(&world).send, 1024);
    // A flavor that this server cannot check is no better.
    let mut gss = rpc(4, CONFIGURE, &encoded(&WISH));
    gss[24..28].copy_from_slice(&6_u32.to_be_bytes());
    let reply = parse(&world.exchange(0, &plain(&gss)));
    assert_eq!(reply.message, words(&[4, 1, 1, 1, 1]));
    assert_eq!(inline_of(&world).send, 1024);
    // Asking whether it is there changes nothing.
    let reply = parse(&world.exchange(0, &anonymous(5, 0)));
    assert_eq!(accepted(&reply.message), SUCCESS);
}

#[test]
fn rr1_ccp_14_a_setting_lets_nobody_in() {
    let (mut world, _) = world(settings(true).configuring(Ccp {
        anonymous: true,
        ..SERVED
    }));
    let reply = parse(&world.exchange(0, &anonymous(3, 1)));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(inline_of(&world).send, 4096);
}

#[test]
fn rr1_ccp_15_values_are_clamped() {
    let (mut world, _) = world(settings(true));
    for (size, call, reply) in [(0, 1024, 1024), (1023, 1024, 1024), (u32::MAX, 4068, 4096)] {
        let limits = configure(
            &mut world,
            0,
            &Wish {
                call_size: size,
                reply_size: size,
                reads: u32::MAX,
            },
        );
        assert_eq!((limits.call_size, limits.reads), (call, 16));
        assert_eq!(inline_of(&world).send, reply);
    }
}

#[test]
fn rr1_ccp_15_calls_that_deserve_an_error() {
    let (mut world, script) = world(settings(true));
    let mut results = |program, arguments: &[u8]| {
        let reply = parse(&world.exchange(0, &plain(&rpc(1, program, arguments))));
        reply.message[20..].to_vec()
    };
    for procedure in [2, 99, u32::MAX] {
        assert_eq!(results((ccp::PROGRAM, 1, procedure), &[]), words(&[3]));
    }
    for version in [0, 2, u32::MAX] {
        let mismatch = results((ccp::PROGRAM, version, 1), &encoded(&WISH));
        assert_eq!(mismatch, words(&[2, 1, 1]));
    }
    for length in [0, 4, 8, 11] {
        assert_eq!(results(CONFIGURE, &encoded(&WISH)[..length]), words(&[4]));
    }
    assert_eq!(inline_of(&world).send, 1024);
    assert!(script.seen().is_empty());
    world.check_clean();
}

#[test]
fn rr1_ccp_16_calls_in_service_end_by_the_limits_they_began_with() {
    let script = Script::default();
    let mut world = World::new(script.clone(), options(settings(true)));
    world.connect();
    // Ten calls whose replies have 3000 bytes, and then less is agreed on.
    script.plan(CallScript {
        length: 3000 - 28,
        hold: true,
        ..CallScript::default()
    });
    for xid in 0..10 {
        // The first reply grants the credits for the others.
        world.send(0, &plain(&rpc(xid, PROGRAM, &[])));
        if xid == 0 {
            script.release(1);
            world.settle();
        }
    }
    let wish = Wish {
        reply_size: 1024,
        ..WISH
    };
    world.received(0);
    configure(&mut world, 0, &wish);
    script.release(9);
    world.settle();
    let replies = world.received(0);
    assert_eq!(replies.len(), 9);
    assert!(replies.iter().all(|reply| reply.len() == 3000));
    script.plan(CallScript::default());
    assert!(!fits(&mut world, &script, 0, 1028));
    // And the other way: what began under 1024 does not get more.
    script.plan(CallScript {
        length: 3000 - 28,
        hold: true,
        ..CallScript::default()
    });
    world.send(0, &plain(&rpc(20, PROGRAM, &[])));
    configure(&mut world, 0, &WISH);
    script.release(1);
    world.settle();
    check_chunk_error(&world.received(0)[0], 20);
    assert!(fits(&mut world, &script.clone(), 0, 1028));
    world.check_clean();
}

#[test]
fn rr1_ccp_17_other_connections_keep_their_limits() {
    let (mut world, script) = world(settings(true));
    configure(&mut world, 0, &WISH);
    world.close(0);
    let (one, other) = (world.connect_with(MODEST), world.connect_with(MODEST));
    assert!(!fits(&mut world, &script, one, 1028));
    configure(&mut world, one, &WISH);
    assert!(fits(&mut world, &script, one, 1028));
    assert!(!fits(&mut world, &script, other, 1028));
    world.check_clean();
}

#[test]
fn rr1_ccp_18_it_replaces_what_private_data_said() {
    let script = Script::default();
    let mut world = World::new(script.clone(), options(settings(true)));
    world.connect();
    assert!(fits(&mut world, &script, 0, 4096));
    let wish = Wish {
        reply_size: 2048,
        ..WISH
    };
    configure(&mut world, 0, &wish);
    assert!(fits(&mut world, &script, 0, 2048));
    assert!(!fits(&mut world, &script, 0, 2052));
    configure(&mut world, 0, &WISH);
    assert!(fits(&mut world, &script, 0, 4096));
    world.check_clean();
}

#[test]
fn old_08_the_program_number_is_a_setting() {
    let program = 0x2000_1234;
    let (mut world, script) = world(settings(true).configuring(Ccp { program, ..SERVED }));
    let call = rpc(1, (program, 1, 1), &encoded(&WISH));
    let reply = parse(&world.exchange(0, &plain(&call)));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(inline_of(&world).send, 4096);
    assert!(script.seen().is_empty());
    world.exchange(0, &plain(&rpc(2, CONFIGURE, &encoded(&WISH))));
    assert_eq!(script.seen().len(), 1, "a program as any other");
}

/// Notes where in memory messages begin.
#[derive(Clone, Default)]
struct Places(Rc<RefCell<Vec<usize>>>);

impl Serve for Places {
    async fn serve<B: Bulk>(&self, call: Call<'_>, _: &mut B, reply: &mut Reply) -> Answer {
        self.0.borrow_mut().push(call.message.as_ptr().addr());
        let message = Script::reply(word(call.message, 0), 24);
        reply.room()[..24].copy_from_slice(&message);
        reply.set_length(24);
        Answer::Send
    }
}

#[test]
fn rr1_pad_15_streams_of_padded_messages_begin_on_the_alignment() {
    for (inline, wanted) in [(4096, 64), (1024, 64), (8192, 4096), (64 << 10, 64)] {
        let places = Places::default();
        let settings = Settings::new(inline, 32, 1 << 20, true).configuring(SERVED);
        let mut world = World::new(places.clone(), options(settings));
        world.connect();
        let limits = configure(&mut world, 0, &WISH);
        assert_eq!(limits.alignment, wanted, "with {inline}");
        let message = |xid| {
            let head = words(&[xid, 1, 16, 2, limits.alignment, 1024, 0, 0, 0]);
            [head, rpc(xid, PROGRAM, &[])].concat()
        };
        // Receives that were posted before are used up first.
        for xid in 0..40 {
            world.exchange(0, &message(xid));
        }
        places.0.borrow_mut().clear();
        for xid in 0..40 {
            world.exchange(0, &message(xid));
        }
        let aligned = |place: &usize| place.is_multiple_of(wanted as usize);
        assert!(places.0.borrow().iter().all(aligned));
        world.check_clean();
    }
}

#[test]
fn rr1_pad_15_padded_writes_by_the_announced_alignment_are_executed() {
    let mut nfs = Nfs::with(options(settings(true)));
    let align = configure(&mut nfs.world, 0, &WISH).alignment;
    for number in 0..50_u8 {
        let file = nfs.create(format!("{number}").as_bytes());
        let data = vec![number; 2000];
        let (call, _) = nfs.write_message(file, 2000);
        let pad = call.len().next_multiple_of(align as usize) - call.len();
        let head = words(&[word(&call, 0), 1, 16, 2, align, 1024, 0, 0, 0]);
        let message = [&head[..], &call, &vec![0xaa; pad], &data].concat();
        let reply = parse(&nfs.world.exchange(0, &message));
        assert_eq!(accepted(&reply.message), SUCCESS);
        assert_eq!(nfs.content(file), data);
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_ccp_10_no_alignment_is_announced_where_padding_is_not_understood() {
    let (mut world, _) = world(settings(false));
    assert_eq!(configure(&mut world, 0, &WISH).alignment, 0);
    let notes = world.notes.borrow();
    assert!(notes.places.iter().all(|place| *place == (0, 4096)));
}

#[test]
fn old_06_two_xids_are_served_by_a_setting() {
    let mut lenient = settings(true);
    lenient.rules.same_xid = false;
    for (settings, served) in [(settings(true), false), (lenient, true)] {
        let mut nfs = Nfs::with(options(settings));
        let mut message = inline(&CallChunks::default(), &null(0x1111));
        message[..4].copy_from_slice(&0x2222_u32.to_be_bytes());
        let answer = nfs.world.exchange(0, &message);
        if served {
            // Each XID comes back where it was.
            let reply = parse(&answer);
            assert_eq!((reply.xid, word(&reply.message, 0)), (0x2222, 0x1111));
            assert_eq!(accepted(&reply.message), SUCCESS);
        } else {
            check_chunk_error(&answer, 0x2222);
        }
        nfs.world.check_clean();
    }
}
