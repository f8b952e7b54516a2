//! The responder and version two's headers and thresholds (version two draft sections 2 and 5.2).
//! The rules that are those of version one are tested in `carried_over`.

use millrace_wire::nfs3::Procedure;
use millrace_wire::rpcrdma::{CallChunks, Version};

use crate::support::message::{
    self, BAD_XDR, PROGRAM, SUCCESS, accepted, check_error, encoded, header, inline, long, null,
    parse, plain, reads, rpc, word, words,
};
use crate::support::raw::{Options, Stated, World};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::served::Nfs;
use crate::support::trace::Trace;

/// A reply of so many bytes of RPC message.
fn of_length(script: &Script, length: usize) {
    script.plan(CallScript {
        length,
        ..CallScript::default()
    });
}

#[test]
fn rr2_hdr_01_a_reply_has_36_bytes_before_its_message() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    let reply = world.exchange(0, &plain(&rpc(0x99, PROGRAM, &[])));
    let mut expected = words(&[0x99, 2, word(&reply, 2), 0, 1, 0, 0, 0, 0]);
    assert_eq!(expected.len(), 36);
    expected.extend(Script::reply(0x99, 24));
    assert_eq!(reply, expected);
}

#[test]
fn rr2_hdr_03_a_message_follows_its_header() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    for behind in 0..8 {
        let mut message = plain(&rpc(8, PROGRAM, &[]));
        message.truncate(36 + behind);
        check_error(&world.exchange(0, &message), 8, BAD_XDR);
    }
    assert!(script.seen().is_empty());
}

#[test]
fn rr2_hdr_04_no_message_follows_where_it_is_in_chunks() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let call = rpc(8, PROGRAM, &[1; 100]);
    let source = world.source(0, &call);
    let chunks = CallChunks {
        reads: &reads(0, &[source.whole()]),
        ..CallChunks::default()
    };
    // A message would be in two places.
    let message = [long(8, &chunks), rpc(8, PROGRAM, &[2; 50])].concat();
    check_error(&world.exchange(0, &message), 8, BAD_XDR);
    assert!(script.seen().is_empty());
    assert_eq!(parse(&world.exchange(0, &long(8, &chunks))).xid, 8);
    assert_eq!(script.seen().remove(0).message, call);
    // Nor does anything follow in a reply.
    of_length(&script, 5000);
    let sink = world.sink(0, 5000);
    let chunks = CallChunks {
        reply: Some(&[sink.whole()]),
        ..CallChunks::default()
    };
    let reply = world.exchange(0, &inline(&chunks, &rpc(9, PROGRAM, &[])));
    assert_eq!((word(&reply, 3), word(&reply, 4)), (1, 1));
    assert_eq!(reply.len(), 36 + 4 + 16);
    assert_eq!(sink.bytes(), Script::reply(9, 5000));
    world.check_clean();
}

#[test]
fn rr2_hdr_05_errors_end_with_what_they_say() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let mut version = plain(&rpc(1, PROGRAM, &[0; 100]));
    version[7] = 3;
    assert_eq!(world.exchange(0, &version).len(), 28);
    let mut kind = plain(&rpc(1, PROGRAM, &[0; 100]));
    kind[15] = 2;
    assert_eq!(world.exchange(0, &kind).len(), 20);
    let mut presence = plain(&rpc(1, PROGRAM, &[0; 100]));
    presence[27] = 2;
    assert_eq!(world.exchange(0, &presence).len(), 20);
    of_length(&script, 5000);
    let call = plain(&rpc(1, PROGRAM, &[0; 100]));
    assert_eq!(world.exchange(0, &call).len(), 32);
}

#[test]
fn rr2_hdr_06_chunks_work_as_in_version_one() {
    let mut nfs = Nfs::new();
    assert_eq!(message::version(), Version::Two);
    let file = nfs.create(b"f");
    let data: Vec<u8> = (0..3000_u32).map(|index| (index % 251) as u8).collect();
    let source = nfs.world.source(0, &data);
    let reply = parse(&nfs.write_from(file, 3000, &source, &[1000, 13, 1987]));
    assert_eq!(accepted(&reply.message), SUCCESS);
    let sink = nfs.world.sink(0, 3000);
    nfs.read_into(file, 3000, &sink, &[100, 2900]);
    assert_eq!(sink.bytes(), data);
    for trace in nfs.world.trace() {
        if let Trace::Send { bytes, .. } = trace {
            assert_eq!((word(&bytes, 1), word(&bytes, 4)), (2, 1));
        }
    }
    nfs.world.check_clean();
}

#[test]
fn rr2_hdr_07_a_call_of_4096_bytes_is_served() {
    // Whatever is configured, and whether private data says so or not.
    for inline in [1024, 4096] {
        let settings = millrace::rdma::Settings::new(inline, 32, 1 << 20, true);
        let script = Script::default();
        let options = Options {
            settings,
            ..Options::default()
        };
        let mut world = World::new(script.clone(), options);
        for stated in [None, Some(1024), Some(4096)] {
            let client = world.connect_with(Stated {
                inline: stated,
                ..Stated::default()
            });
            let message = plain(&rpc(1, PROGRAM, &[1; 4096 - 36 - 68]));
            assert_eq!(message.len(), 4096);
            assert_eq!(parse(&world.exchange(client, &message)).xid, 1);
            assert_eq!(script.seen().len(), 1);
        }
        world.check_clean();
    }
}

#[test]
fn rr2_hdr_08_replies_use_4096_bytes_where_nothing_else_is_known() {
    let script = Script::default();
    let mut world = World::new(script.clone(), Options::default());
    for (stated, limit) in [(None, 4096), (Some(2048), 2048), (Some(8192), 4096)] {
        let client = world.connect_with(Stated {
            inline: stated,
            ..Stated::default()
        });
        let sink = world.sink(client, 8000);
        for length in [limit - 56, limit - 52] {
            of_length(&script, length);
            let chunks = CallChunks {
                reply: Some(&[sink.whole()]),
                ..CallChunks::default()
            };
            let reply = world.exchange(client, &inline(&chunks, &rpc(1, PROGRAM, &[])));
            assert_eq!(parse(&reply).inline, length == limit - 56, "{stated:?}");
            assert!(reply.len() <= limit);
        }
    }
    world.check_clean();
}

#[test]
fn rr2_hdr_09_calls_and_replies_have_thresholds_of_their_own() {
    // The client takes 1024 bytes, the server 4096.
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let client = world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    let settings = world.shared.settings.get();
    let limits = world.connections()[1].inline();
    assert_eq!(
        (settings.receive_size(), limits.limit(Version::Two)),
        (4096, 1024)
    );
    let call = plain(&rpc(1, PROGRAM, &[1; 3000]));
    of_length(&script, 1024 - 36);
    assert_eq!(world.exchange(client, &call).len(), 1024);
    of_length(&script, 1028 - 36);
    assert_eq!(word(&world.exchange(client, &call), 3), 4);
    world.check_clean();
}

#[test]
fn rr2_hdr_12_memory_of_another_connection_ends_its_user_only() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"before");
    let thief = nfs.world.connect();
    let source = nfs.world.source(0, &[5; 100]);
    let (rpc, position) = nfs.write_message(file, 100);
    let chunks = CallChunks {
        reads: &reads(position, &[source.whole()]),
        ..CallChunks::default()
    };
    nfs.world.send(thief, &inline(&chunks, &rpc));
    assert!(!nfs.world.is_open(thief));
    assert_eq!(nfs.content(file), b"before");
    // Nothing is registered for remote access.
    assert!(!nfs.world.trace().contains(&Trace::Expose));
    nfs.world.check_clean();
}

#[test]
fn rr2_hdr_15_credits_are_granted_as_in_version_one() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    for (wish, grant) in [(0, 1), (7, 7), (33, 32), (u32::MAX, 32)] {
        let mut call = plain(&rpc(1, PROGRAM, &[]));
        call[8..12].copy_from_slice(&u32::to_be_bytes(wish));
        assert_eq!(word(&world.exchange(0, &call), 2), grant);
        call[27] = 2;
        let error = world.exchange(0, &call);
        check_error(&error, 1, BAD_XDR);
        assert_eq!(word(&error, 2), grant);
    }
    world.check_clean();
}

#[test]
fn rr2_hdr_11_no_extra_words_are_tolerated_in_the_lists() {
    let mut nfs = Nfs::new();
    let getattr = encoded(&nfs.root);
    let call = rpc(5, (100_003, 3, Procedure::Getattr.number()), &getattr);
    // A word more before the message is taken for a part of it, and the XIDs differ.
    let message = [header(5, 0, &CallChunks::default()), words(&[0]), call].concat();
    check_error(&nfs.world.exchange(0, &message), 5, BAD_XDR);
    assert_eq!(parse(&nfs.world.exchange(0, &plain(&null(6)))).xid, 6);
    nfs.world.check_clean();
}
