//! The responder and hostile clients (RFC 5666 section 11).

use millrace::rdma::{Ccp, Settings};
use millrace_wire::ccp;
use millrace_wire::nfs3::{FileHandle, Procedure};
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth, RPCSEC_GSS};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment};

use crate::support::message::{
    PROGRAM, SUCCESS, accepted, encoded, header, inline, long, nfs, null, parse, plain, reads, rpc,
    words,
};
use crate::support::raw::{Options, World};
use crate::support::script::{CallScript, Script};
use crate::support::served::Nfs;
use crate::support::trace::Trace;

fn with_reads(reads: &[ReadSegment]) -> CallChunks<'_> {
    CallChunks {
        reads,
        ..CallChunks::default()
    }
}

/// Everything on that bears with old clients.
fn tolerant() -> Options {
    let mut settings = Settings::new(4096, 32, 1 << 20, true).configuring(Ccp {
        program: ccp::PROGRAM,
        anonymous: true,
    });
    settings.rules.same_xid = false;
    Options {
        settings,
        ..Options::classic()
    }
}

#[test]
fn rr1_sec_03_protected_calls_and_replies_are_long_both_ways() {
    let script = Script::default();
    let mut world = World::new(script.clone(), Options::default());
    world.connect();
    // What is under the credential is one opaque item to everyone but its mechanism, a WRITE too.
    let body = [7; 50_000];
    let call = CallHeader {
        xid: 5,
        program: 100_003,
        version: 3,
        procedure: Procedure::Write.number(),
        credential: Credential::Other(OpaqueAuth {
            flavor: RPCSEC_GSS,
            body: &[1; 24],
        }),
        verifier: OpaqueAuth {
            flavor: RPCSEC_GSS,
            body: &[2; 20],
        },
    };
    let call = [encoded(&call), words(&[body.len() as u32]), body.to_vec()].concat();
    let length = 40_000;
    script.plan(CallScript {
        length,
        ..CallScript::default()
    });
    let (source, sink) = (world.source(0, &call), world.sink(0, 60_000));
    let (whole, room) = (reads(0, &[source.whole()]), sink.cut(&[30_000, 30_000]));
    let chunks = CallChunks {
        reply: Some(&room),
        ..with_reads(&whole)
    };
    let reply = parse(&world.exchange(0, &long(5, &chunks)));
    assert!(!reply.inline);
    let seen = script.seen().remove(0);
    assert_eq!(seen.message, call);
    assert!(seen.bulk.is_empty(), "nothing is taken out");
    assert_eq!(sink.bytes()[..length], Script::reply(5, length));
    world.check_clean();
}

/// A client that names memory which is not there any more.
fn vanished_memory(options: Options) {
    let mut nfs = Nfs::with(options);
    let file = nfs.file(b"f", b"before");
    let other = nfs.world.connect();
    let source = nfs.world.source(0, &[9; 100]);
    let (call, position) = nfs.write_message(file, 100);
    let entries = reads(position, &[source.whole()]);
    nfs.world.revoke(0, &source);
    for _ in 0..5 {
        let call = null(nfs.xid());
        nfs.world.post(0, &plain(&call));
    }
    nfs.world.send(0, &inline(&with_reads(&entries), &call));
    assert!(!nfs.world.is_open(0));
    assert_eq!(nfs.world.calls(), 0, "its calls are cleaned up");
    let reply = parse(&nfs.world.exchange(other, &plain(&null(3))));
    assert_eq!(accepted(&reply.message), SUCCESS);
    nfs.world.check_clean();
}

#[test]
fn rr1_sec_17_vanished_memory_ends_its_own_connection_only() {
    vanished_memory(Options::default());
}

/// A client that names memory of another.
fn stolen_memory(options: Options) {
    let mut nfs = Nfs::with(options);
    let file = nfs.file(b"f", b"before");
    let thief = nfs.world.connect();
    let source = nfs.world.source(0, &[9; 100]);
    let (call, position) = nfs.write_message(file, 100);
    let entries = reads(position, &[source.whole()]);
    nfs.world.send(thief, &inline(&with_reads(&entries), &call));
    assert!(!nfs.world.is_open(thief));
    assert!(nfs.world.received(thief).is_empty());
    assert!(nfs.world.is_open(0));
    assert_eq!(nfs.content(file), b"before");
    nfs.world.check_clean();
}

/// Without agreement no key is invalidated, and unasked for none is exposed.
fn no_keys(options: Options) {
    let mut nfs = Nfs::with(options);
    let file = nfs.file(b"f", &[5; 3000]);
    let sink = nfs.world.sink(0, 3000);
    nfs.world.trace();
    let reply = nfs.read_into(file, 3000, &sink, &[3000]);
    assert_eq!(accepted(&reply.message), SUCCESS);
    let mut sends = 0;
    for trace in nfs.world.trace() {
        assert_ne!(trace, Trace::Expose);
        if let Trace::Send { invalidate, .. } = trace {
            assert_eq!(invalidate, None);
            sends += 1;
        }
    }
    assert_eq!(sends, 1);
    nfs.world.check_clean();
}

#[test]
fn old_14_vanished_memory_with_tolerant_settings() {
    vanished_memory(tolerant());
}

#[test]
fn old_14_memory_of_others_with_tolerant_settings() {
    stolen_memory(tolerant());
}

#[test]
fn old_14_no_keys_unasked_for_with_tolerant_settings() {
    no_keys(tolerant());
}

#[test]
fn old_14_any_bytes_with_tolerant_settings() {
    any_bytes(tolerant(), 0x5eed_0014);
}

#[test]
fn old_05_pads_of_a_write_may_be_in_the_chunk_in_a_segment_or_nowhere() {
    let mut nfs = Nfs::with(tolerant());
    let data: Vec<u8> = (0..5001).map(|at| (at % 253) as u8).collect();
    let source = nfs.world.source(0, &[&data[..], &[0xff; 3]].concat());
    let forms: [&[u32]; 4] = [&[5001], &[5004], &[5001, 3], &[2000, 3001, 1, 2]];
    for (number, cut) in forms.into_iter().enumerate() {
        let file = nfs.create(format!("{number}").as_bytes());
        let reply = parse(&nfs.write_from(file, 5001, &source, cut));
        assert_eq!(accepted(&reply.message), SUCCESS);
        assert_eq!(nfs.content(file), data);
    }
    // And room for the pad of a READ, which comes back unused.
    let file = nfs.file(b"odd", &data[..5]);
    let sink = nfs.world.sink(0, 8);
    for cut in [&[8][..], &[5, 3], &[5]] {
        let reply = nfs.read_into(file, 5, &sink, cut);
        let returned: u32 = reply.writes[0].iter().map(|segment| segment.length).sum();
        assert_eq!((returned, &sink.bytes()[..5]), (5, &data[..5]));
        assert_eq!(sink.bytes()[5..], [0xee; 3]);
    }
    nfs.world.check_clean();
}

/// A generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A sound message of any kind, to be spoiled.
fn sound(nfs: &mut Nfs, client: usize, numbers: &mut Numbers) -> Vec<u8> {
    let file = nfs.root;
    let (source, sink) = (
        nfs.world.source(client, &null(0x77)),
        nfs.world.sink(client, 4096),
    );
    let xid = numbers.next() as u32;
    let lookup = [encoded(&file), words(&[1]), b"a\0\0\0".to_vec()].concat();
    let call = rpc(xid, (100_003, 3, numbers.below(22) as u32), &lookup);
    let whole = reads(0, &[source.whole()]);
    let item = reads(call.len() & !3, &source.cut(&[8, 8]));
    let reply = [sink.whole()];
    let chunks = CallChunks {
        writes: &[&[sink.segment(0, 2048)]],
        reply: Some(&reply),
        ..CallChunks::default()
    };
    match numbers.below(8) {
        0 => plain(&call),
        1 => inline(&chunks, &call),
        2 => inline(&with_reads(&item), &call),
        3 => long(0x77, &with_reads(&whole)),
        4 => [words(&[xid, 1, 16, 2, 64, 8, 0, 0, 0]), call].concat(),
        5 => plain(&rpc(xid, (ccp::PROGRAM, 1, 1), &words(&[4096, 4096, 3]))),
        6 => [words(&[xid, 2, 16, 0, 0, 0, 0, 0, 0]), getattr(xid, file)].concat(),
        _ => header(xid, numbers.below(7) as u32, &chunks),
    }
}

fn getattr(xid: u32, file: FileHandle) -> Vec<u8> {
    nfs(xid, Procedure::Getattr, &file)
}

/// Sends what no client would, from one connection after the other.
fn any_bytes(options: Options, seed: u64) {
    let mut numbers = Numbers(seed);
    let mut nfs = Nfs::with(options);
    nfs.file(b"a", b"content");
    let bystander = 0;
    let in_use = nfs.world.in_use();
    let mut ended = 0;
    // Connections of devices that software pretends in an emulated machine take their time.
    let connections = if nfs.world.wire.is_real() { 15 } else { 60 };
    for _ in 0..connections {
        let client = nfs.world.connect();
        for _ in 0..20 {
            let mut message = if numbers.below(4) == 0 {
                let length = numbers.below(600);
                numbers.bytes(length)
            } else {
                sound(&mut nfs, client, &mut numbers)
            };
            for _ in 0..numbers.below(4) {
                if !message.is_empty() {
                    let at = numbers.below(message.len());
                    message[at] ^= 1 << numbers.below(8);
                }
            }
            let cut = numbers.below(4);
            if cut == 0 {
                let length = numbers.below(message.len() + 1);
                message.truncate(length);
            }
            nfs.world.post(client, &message);
            if numbers.below(3) == 0 {
                nfs.world.settle();
            }
            if !nfs.world.is_open(client) {
                break;
            }
        }
        nfs.world.settle();
        ended += usize::from(!nfs.world.is_open(client));
        nfs.world.abort(client);
        nfs.world.settle();
        nfs.world.clients.truncate(1);
        nfs.world.trace();
        assert!(nfs.world.is_open(bystander), "another connection suffered");
        assert_eq!(nfs.world.calls(), 0, "a call is left");
        assert_eq!(nfs.world.in_use(), in_use, "buffers are left");
    }
    assert!(ended < connections, "not every one did harm");
    let reply = parse(&nfs.world.exchange(bystander, &plain(&null(1))));
    assert_eq!(accepted(&reply.message), SUCCESS);
    nfs.world.check_clean();
}

#[test]
fn rr1_sec_20_no_bytes_panic_loop_or_keep_memory() {
    for seed in 1..=4 {
        any_bytes(Options::default(), 0x5eed_0000 + seed);
    }
}

#[test]
fn rr1_sec_20_nothing_unread_is_promised() {
    // A reply beyond all bounds of a call that claims much: refused, and no memory kept.
    let mut world = World::new(Script::default(), Options::default());
    world.connect();
    let in_use = world.in_use();
    let sink = world.sink(0, 64);
    let claim = vec![sink.segment(0, u32::MAX); 40];
    let chunks = CallChunks {
        reply: Some(&claim),
        ..CallChunks::default()
    };
    for xid in 0..50 {
        world.exchange(0, &inline(&chunks, &rpc(xid, PROGRAM, &[])));
    }
    // One receive for each credit, and no more.
    let credits = parse(&world.exchange(0, &plain(&rpc(60, PROGRAM, &[])))).credits;
    assert!(world.in_use() <= in_use + u64::from(credits) + 4);
    world.check_clean();
}
