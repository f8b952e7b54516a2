//! Replies with read chunks, and RDMA_DONE (RFC 5666 sections 3.4, 3.8 and 5.2).

use millrace_mempool::Class;
use millrace_reactor::fabric::WorkError;
use millrace_reactor::fabric::testing::deferring;
use millrace_wire::nfs3::{CreateArguments, CreateHow, NameInDirectory, Procedure, SetAttributes};
use millrace_wire::rpcrdma::CallChunks;

use crate::support;
use crate::support::fetch::{done, fetch, segments};
use crate::support::message::{
    PROGRAM, Parsed, check_chunk_error, encoded, inline, is_chunk_error, lengths, long, null,
    parse, plain, reads, rpc, word, words,
};
use crate::support::raw::{Options, Stated, World};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::served::{Nfs, read_results, status};
use crate::support::trace::Trace;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8 + 1).collect()
}

fn call(xid: u32) -> Vec<u8> {
    plain(&rpc(xid, PROGRAM, &[]))
}

/// Calls and is answered by a read list.
#[track_caller]
fn exposed(world: &mut World<Script>, client: usize, xid: u32) -> Parsed {
    let reply = parse(&world.exchange(client, &call(xid)));
    assert!(reply.reads > 0);
    reply
}

/// A READ without any chunks.
#[track_caller]
fn bare_read(nfs: &mut Nfs, file: millrace_wire::nfs3::FileHandle, count: u32) -> Parsed {
    let rpc = nfs.read_message(file, count);
    parse(&nfs.world.exchange(0, &plain(&rpc)))
}

/// READDIR of the root without any chunks.
fn bare_listing(nfs: &mut Nfs, maxcount: u32) -> Vec<u8> {
    let arguments = [encoded(&nfs.root), words(&[0, 0, 0, 0, maxcount])].concat();
    let call = rpc(
        nfs.xid(),
        (100_003, 3, Procedure::Readdir.number()),
        &arguments,
    );
    nfs.world.exchange(0, &plain(&call))
}

fn exposures(world: &mut World<impl millrace::call::Serve>) -> usize {
    let trace = world.trace();
    trace.iter().filter(|&one| *one == Trace::Expose).count()
}

#[test]
fn rr1_done_01_by_default_nothing_is_offered_to_clients() {
    let mut nfs = Nfs::new();
    let content = pattern(60_000);
    let file = nfs.file(b"f", &content);
    for number in 0..200 {
        nfs.create(format!("a file of a name that is not short {number:03}").as_bytes());
    }
    // A short answer inline, and no answer at all.
    let reply = bare_read(&mut nfs, file, 60_000);
    let results = support::results(&reply.message).to_vec();
    let (length, _, data) = read_results(&results);
    assert!(reply.inline && reply.reads == 0 && length > 2000 && length < 4096);
    assert_eq!(data[..length], content[..length]);
    let listing = bare_listing(&mut nfs, 30_000);
    assert!(is_chunk_error(&listing) || parse(&listing).reads == 0);
    assert_eq!(exposures(&mut nfs.world), 0);
    assert_eq!(nfs.world.shared.exposed.budget().now(), (0, 0, 0));
    let (mut world, _) = scripted(CallScript::of_length(5000), Options::default());
    check_chunk_error(&world.exchange(0, &call(1)), 1);
    assert_eq!(exposures(&mut world), 0);
    nfs.world.check_clean();
    world.check_clean();
}

#[test]
fn rr1_done_02_data_of_a_read_without_chunks_is_a_read_chunk_at_its_position() {
    let mut nfs = Nfs::with(Options::classic());
    let content = pattern(200_001);
    let file = nfs.file(b"f", &content);
    for count in [5000_u32, 65_537, 199_999, 200_001] {
        let reply = bare_read(&mut nfs, file, count);
        // The rest is inline; the data belongs behind its length word, at the end.
        assert!(reply.inline && reply.reads > 0);
        let position = reply.chunks[0].position as usize;
        assert_eq!(position, reply.message.len());
        assert_eq!(word(&reply.message, position / 4 - 1), count);
        let segments = lengths(&segments(&reply));
        assert_eq!(
            segments.iter().sum::<u32>(),
            count,
            "data alone, no round-up"
        );
        let message = fetch(&mut nfs.world, 0, &reply).unwrap();
        let results = support::results(&message).to_vec();
        let (length, eof, data) = read_results(&results);
        assert_eq!((length, eof), (count as usize, count == 200_001));
        assert_eq!(data[..length], content[..length]);
        nfs.world.send(0, &done(reply.xid));
    }
    assert!(nfs.world.received(0).is_empty());
    nfs.world.check_clean();
}

#[test]
fn rr1_done_02_a_whole_reply_is_a_read_chunk_at_position_zero() {
    let mut nfs = Nfs::with(Options::classic());
    for number in 0..200 {
        nfs.create(format!("a file of a name that is not short {number:03}").as_bytes());
    }
    let reply = parse(&bare_listing(&mut nfs, 30_000));
    assert!(!reply.inline && reply.message.is_empty());
    let message = fetch(&mut nfs.world, 0, &reply).unwrap();
    assert_eq!(word(&message, 0), reply.xid);
    assert_eq!(status(support::results(&message)), 0);
    assert!(message.windows(3).any(|window| window == b"199"));
    nfs.world.send(0, &done(reply.xid));

    // A READ whose other results do not fit beside the lists that it returns: a second write chunk
    // fills the header, and as the first one is empty, data and round-up are in the stream.
    let content = pattern(3001);
    let file = nfs.file(b"f", &content);
    let client = nfs.world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    let filling = nfs.world.sink(client, 56).cut(&[1; 56]);
    let chunks = CallChunks {
        writes: &[&[], &filling],
        ..CallChunks::default()
    };
    let rpc = nfs.read_message(file, 3001);
    let reply = parse(&nfs.world.exchange(client, &inline(&chunks, &rpc)));
    assert!(!reply.inline);
    assert_eq!(reply.writes.len(), 2);
    let message = fetch(&mut nfs.world, client, &reply).unwrap();
    assert_eq!(message.len() % 4, 0);
    let results = support::results(&message).to_vec();
    let (length, eof, data) = read_results(&results);
    assert_eq!((length, eof), (3001, true));
    assert_eq!(data, [&content[..], &[0; 3]].concat());
    nfs.world.send(client, &done(reply.xid));
    nfs.world.check_clean();
}

#[test]
fn rr1_done_06_done_ends_the_exposure_and_has_no_answer() {
    for deferred in [false, true] {
        let _network = deferred.then(deferring);
        let (mut world, _) = scripted(CallScript::of_length(5000), Options::classic());
        // As many receives are posted then as ever will be.
        exposed(&mut world, 0, 6);
        world.send(0, &done(6));
        let before = world.in_use();
        let reply = exposed(&mut world, 0, 7);
        assert_eq!(
            fetch(&mut world, 0, &reply).unwrap(),
            Script::reply(7, 5000)
        );
        assert!(world.in_use() > before, "held until RDMA_DONE");
        assert_eq!(world.connections()[0].compat.awaited_dones(), 1);
        world.trace();
        world.send(0, &done(7));
        assert!(world.received(0).is_empty());
        let trace = world.trace();
        // Devices end keys as they can.
        let later = deferred || (world.wire.is_real() && trace.contains(&Trace::Revoked));
        let mut expected = vec![Trace::Received, Trace::PostReceive, Trace::Revoke(!later)];
        expected.extend(later.then_some(Trace::Revoked));
        assert_eq!(trace, expected);
        assert_eq!(world.in_use(), before, "the buffer is back");
        assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
        assert_eq!(world.connections()[0].compat.awaited_dones(), 0);
        // The key is dead.
        assert!(world.is_open(0));
        let late = world.fetch(0, segments(&reply));
        assert_eq!(late, Err(WorkError::RemoteAccess));
        assert!(!world.is_open(0));
        world.check_clean();
    }
}

#[test]
fn rr1_done_07_stray_dones_are_dropped() {
    for options in [Options::default(), Options::classic()] {
        let (mut world, script) = scripted(CallScript::default(), options);
        let strays: Vec<u32> = (0..1000).step_by(world.stride()).collect();
        for xid in &strays {
            world.send(0, &done(*xid));
        }
        assert!(world.received(0).is_empty());
        let counted = world.shared.counters.dones_stray.get();
        assert_eq!(counted, strays.len() as u64);
        assert!(parse(&world.exchange(0, &call(5))).inline);
        if options.exposures > 0 {
            // A second one, and one for a call whose reply has not been sent.
            script.plan(CallScript::of_length(5000));
            let (first, second) = (exposed(&mut world, 0, 8), exposed(&mut world, 0, 9));
            for _ in 0..3 {
                world.send(0, &done(8));
            }
            world.send(0, &done(10));
            assert_eq!(world.connections()[0].compat.awaited_dones(), 1);
            assert_eq!(
                fetch(&mut world, 0, &second).unwrap(),
                Script::reply(9, 5000)
            );
            assert!(world.fetch(0, segments(&first)).is_err());
        }
        world.check_clean();
    }
}

#[test]
fn rr1_done_08_read_chunks_of_calls_need_none() {
    let mut nfs = Nfs::with(Options::classic());
    let data = pattern(8000);
    let (file, source) = (nfs.create(b"f"), nfs.world.source(0, &data));
    nfs.world.trace();
    for _ in 0..10 {
        let reply = parse(&nfs.write_from(file, 8000, &source, &[8000]));
        assert_eq!((reply.inline, reply.reads), (true, 0));
    }
    for trace in nfs.world.trace() {
        assert_ne!(trace, Trace::Expose);
        if let Trace::Send { bytes, .. } = trace {
            assert_ne!(word(&bytes, 3), 3);
        }
    }
    assert_eq!(nfs.world.connections()[0].compat.awaited_dones(), 0);
    assert_eq!(nfs.content(file), data);
    nfs.world.check_clean();
}

#[test]
fn rr1_done_14_the_end_of_a_connection_frees_what_it_exposed_at_once() {
    for deferred in [false, true] {
        let _network = deferred.then(deferring);
        let (mut world, _) = scripted(CallScript::of_length(5000), Options::classic());
        let other = world.connect();
        exposed(&mut world, other, 100);
        let before = world.in_use();
        for xid in 0..10 {
            exposed(&mut world, 0, xid);
        }
        assert_eq!(world.shared.exposed.budget().now().0, 11);
        world.abort(0);
        world.settle();
        assert_eq!(world.connections().len(), 1);
        let (replies, bytes, clients) = world.shared.exposed.budget().now();
        assert_eq!((replies, clients), (1, 1));
        assert_eq!(bytes, Class::Medium.size() as u64);
        assert!(world.in_use() <= before);
        // Its timers are gone: what is left is the other's.
        world.pass(std::time::Duration::from_secs(11));
        assert_eq!(world.shared.counters.exposures_expired.get(), 1);
        assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
        world.check_clean();
    }
}

#[test]
fn rr1_done_15_read_and_write_chunks_of_the_call_and_read_chunks_of_the_reply() {
    let mut nfs = Nfs::with(Options::classic());
    let content = pattern(50_000);
    let file = nfs.file(b"f", &content);
    let client = nfs.world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    // So many segments that nothing else fits beside them.
    let sink = nfs.world.sink(client, 56_000);
    let cut = sink.cut(&[1000; 56]);
    let message = nfs.read_message(file, 50_000);
    let source = nfs.world.source(client, &message);
    let chunks = CallChunks {
        reads: &reads(0, &[source.whole()]),
        writes: &[&cut],
        ..CallChunks::default()
    };
    nfs.world.trace();
    let call = long(word(&message, 0), &chunks);
    let reply = parse(&nfs.world.exchange(client, &call));
    assert!(!reply.inline && reply.reads == 1);
    let filled = [vec![1000; 50], vec![0; 6]].concat();
    assert_eq!(lengths(&reply.writes[0]), filled);
    assert_eq!(sink.bytes()[..50_000], content);
    let fetched = fetch(&mut nfs.world, client, &reply).unwrap();
    let results = support::results(&fetched).to_vec();
    let (length, eof, rest) = read_results(&results);
    assert_eq!((length, eof, rest), (50_000, true, &[][..]));
    let trace = nfs.world.trace();
    assert!(trace.iter().any(|one| matches!(one, Trace::Read(..))));
    assert!(trace.iter().any(|one| matches!(one, Trace::Write(..))));
    assert!(trace.contains(&Trace::Expose));
    nfs.world.send(client, &done(reply.xid));
    nfs.world.check_clean();
}

#[test]
fn old_04_a_client_that_never_offers_a_reply_chunk_is_served_by_the_switch() {
    for (options, served) in [(Options::classic(), true), (Options::default(), false)] {
        let mut nfs = Nfs::with(options);
        for number in 0..200 {
            nfs.create(format!("a file of a name that is not short {number:03}").as_bytes());
        }
        let answer = bare_listing(&mut nfs, 30_000);
        if served {
            let reply = parse(&answer);
            let message = fetch(&mut nfs.world, 0, &reply).unwrap();
            assert!(message.windows(3).any(|window| window == b"199"));
            nfs.world.send(0, &done(reply.xid));
        } else if !is_chunk_error(&answer) {
            // A listing may be short.
            let reply = parse(&answer);
            assert_eq!(reply.reads, 0);
            assert!(!reply.message.windows(3).any(|window| window == b"199"));
        }
        nfs.world.check_clean();
    }
    let (mut world, _) = scripted(CallScript::of_length(5000), Options::default());
    check_chunk_error(&world.exchange(0, &call(3)), 3);
    world.check_clean();
}

#[test]
fn rr1_sec_09_what_is_exposed_is_the_payload_and_nothing_beside_it() {
    let mut nfs = Nfs::with(Options::classic());
    let content = pattern(70_001);
    let file = nfs.file(b"f", &content);
    let reply = bare_read(&mut nfs, file, 70_001);
    assert_eq!(nfs.world.fetch(0, segments(&reply)).unwrap(), content);
    // Not one byte before or behind.
    for client in [0, 1] {
        nfs.world.connect();
        let rpc = nfs.read_message(file, 70_001);
        let reply = parse(&nfs.world.exchange(client, &plain(&rpc)));
        let mut outside = segments(&reply)[reply.reads - 1];
        if client == 0 {
            outside.offset = outside.offset.wrapping_sub(1);
        } else {
            outside.length += 1;
        }
        assert!(nfs.world.fetch(client, [outside]).is_err());
        assert!(!nfs.world.is_open(client));
    }
    nfs.world.check_clean();
    // A whole message, and no key of another connection.
    let (mut world, _) = scripted(CallScript::of_length(5003), Options::classic());
    let stranger = world.connect();
    let reply = exposed(&mut world, 0, 9);
    let all = world.fetch(0, segments(&reply)).unwrap();
    assert_eq!(all, Script::reply(9, 5003));
    assert!(world.fetch(stranger, segments(&reply)).is_err());
    assert!(world.is_open(0) && !world.is_open(stranger));
    world.check_clean();
}

#[test]
fn a_call_that_must_not_be_executed_twice_is_remembered_beside_its_exposure() {
    let mut nfs = Nfs::with(Options::classic());
    let entry = NameInDirectory {
        directory: nfs.root,
        name: b"once",
    };
    let how = CreateHow::Guarded(SetAttributes::default());
    let rpc = support::message::nfs(0x77, Procedure::Create, &CreateArguments { entry, how });
    let mut replies = Vec::new();
    // On one connection before RDMA_DONE, then on another after the first has ended.
    for round in 0..3 {
        let stated = Stated {
            inline: Some(1024),
            ..Stated::default()
        };
        if round != 1 {
            nfs.world.connect_with(stated);
        }
        let client = nfs.world.clients.len() - 1;
        let filling = nfs.world.sink(client, 52).cut(&[1; 52]);
        let chunks = CallChunks {
            writes: &[&filling],
            ..CallChunks::default()
        };
        let reply = parse(&nfs.world.exchange(client, &inline(&chunks, &rpc)));
        assert!(!reply.inline, "exposed as a whole");
        replies.push(fetch(&mut nfs.world, client, &reply).unwrap());
        if round == 1 {
            nfs.world.abort(client);
            nfs.world.settle();
        }
    }
    assert_eq!(status(support::results(&replies[0])), 0);
    assert!(replies.iter().all(|reply| *reply == replies[0]));
    nfs.world.check_clean();
}

#[test]
fn a_connection_serves_ordinary_calls_as_ever_in_classic_mode() {
    let mut nfs = Nfs::with(Options::classic());
    let content = pattern(40_000);
    let file = nfs.file(b"f", &content);
    let sink = nfs.world.sink(0, 40_000);
    nfs.world.trace();
    let reply = nfs.read_into(file, 40_000, &sink, &[40_000]);
    assert_eq!((reply.inline, reply.reads), (true, 0));
    assert_eq!(sink.bytes(), content);
    assert!(parse(&nfs.world.exchange(0, &plain(&null(3)))).inline);
    assert_eq!(exposures(&mut nfs.world), 0);
    nfs.world.check_clean();
}

#[test]
fn a_responder_that_takes_no_more_calls_lets_replies_be_fetched() {
    let (mut world, _) = scripted(CallScript::of_length(5000), Options::classic());
    let (first, second) = (exposed(&mut world, 0, 1), exposed(&mut world, 0, 2));
    world.refuse();
    for (reply, left) in [(first, true), (second, false)] {
        assert!(!world.is_idle());
        let fetched = fetch(&mut world, 0, &reply);
        assert_eq!(fetched, Ok(Script::reply(reply.xid, 5000)));
        world.send(0, &done(reply.xid));
        assert_eq!(world.is_idle(), !left);
    }
    world.check_clean();
}
