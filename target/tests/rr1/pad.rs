//! The responder and padding: round-up of read chunks, and RDMA_MSGP (RFC 5666 sections 3.7
//! and 3.9). Round-up of write chunks is tested in `rr1_write`.

use millrace::rdma::Settings;
use millrace_wire::nfs3::{
    CreateResults, NameInDirectory, Procedure, ReadlinkResults, SetAttributes, SymlinkArguments,
};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment, Version};
use millrace_wire::xdr::{Bulk, from_bytes};

use crate::support;
use crate::support::message::{
    self, PROGRAM, SUCCESS, accepted, check_chunk_error, encoded, inline, is_chunk_error, parse,
    reads, rpc, word, words,
};
use crate::support::raw::{Options, World};
use crate::support::script::Script;
use crate::support::served::{Nfs, status, write};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8 + 1).collect()
}

fn with_reads(reads: &[ReadSegment]) -> CallChunks<'_> {
    CallChunks {
        reads,
        ..CallChunks::default()
    }
}

#[test]
fn rr1_pad_02_chunks_with_and_without_their_round_up_are_the_same() {
    let mut nfs = Nfs::new();
    // What stands in the pad is never looked at (RR1-PAD-07).
    let source = nfs.world.source(0, b"01234\xff\xff\xff");
    for (number, cut) in [&[5][..], &[8], &[5, 3], &[2, 3, 1, 2], &[4, 4]]
        .iter()
        .enumerate()
    {
        let file = nfs.create(format!("{number}").as_bytes());
        let reply = parse(&nfs.write_from(file, 5, &source, cut));
        assert_eq!(accepted(&reply.message), SUCCESS);
        assert_eq!(status(support::results(&reply.message)), 0);
        assert_eq!(nfs.content(file), b"01234");
    }
    for length in [6, 7] {
        let file = nfs.create(format!("odd{length}").as_bytes());
        let reply = parse(&nfs.write_from(file, 5, &source, &[length]));
        assert_ne!(accepted(&reply.message), SUCCESS);
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_pad_03_a_text_of_any_length_is_put_back_with_its_round_up() {
    let mut nfs = Nfs::new();
    for length in 1..=9 {
        let text = pattern(length);
        let source = nfs.world.source(0, &[&text[..], &[0xff; 3]].concat());
        let round_up = length.next_multiple_of(4) as u32;
        for (form, chunk) in [length as u32, round_up].into_iter().enumerate() {
            let name = format!("link{length}-{form}");
            let arguments = SymlinkArguments {
                entry: NameInDirectory {
                    directory: nfs.root,
                    name: name.as_bytes(),
                },
                attributes: SetAttributes::default(),
                text: Bulk::apart(length as u32),
            };
            let rpc = nfs_message(nfs.xid(), Procedure::Symlink, &encoded(&arguments));
            let entries = reads(rpc.len(), &[source.segment(0, chunk)]);
            let answer = nfs.world.exchange(0, &inline(&with_reads(&entries), &rpc));
            let reply = parse(&answer);
            let made = from_bytes::<CreateResults>(support::results(&reply.message));
            let link = made.unwrap().unwrap().object.unwrap();
            let read = nfs.call(Procedure::Readlink, &link);
            let read = from_bytes::<ReadlinkResults<'_>>(&read).unwrap().unwrap();
            assert_eq!(read.text.as_inline(), Some(&text[..]));
        }
    }
    nfs.world.check_clean();
}

fn nfs_message(xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    rpc(xid, (100_003, 3, procedure.number()), arguments)
}

#[test]
fn rr1_pad_05_rr1_pad_06_positions_count_the_pads_left_out() {
    let script = Script::default();
    let mut world = World::new(script.clone(), Options::default());
    world.connect();
    let source = world.source(0, &pattern(64));
    let head = rpc(1, PROGRAM, &pattern(20));
    // An inline item of 5 bytes whose pad is left out is followed by a chunk of 5 bytes, and that
    // at once by one of 6: each begins on a boundary.
    let message = [&head[..], b"inlin"].concat();
    let first = head.len() + 8;
    let entries = [
        reads(first, &[source.segment(0, 5)]),
        reads(first + 8, &[source.segment(10, 6)]),
    ]
    .concat();
    let reply = world.exchange(0, &inline(&with_reads(&entries), &message));
    assert!(!is_chunk_error(&reply));
    let seen = script.seen().remove(0).message;
    let expected = [
        &head[..],
        b"inlin\0\0\0",
        &pattern(64)[..5],
        &[0; 3],
        &pattern(64)[10..16],
        &[0; 2],
    ];
    assert_eq!(seen, expected.concat());
    // A gap of four bytes is no pad.
    let entries = reads(first + 4, &[source.segment(0, 5)]);
    check_chunk_error(
        &world.exchange(0, &inline(&with_reads(&entries), &message)),
        1,
    );
    world.check_clean();
}

#[test]
fn rr1_pad_13_a_reply_chunk_holds_the_whole_stream_with_pads() {
    let mut nfs = Nfs::new();
    for name in [&b"a"[..], b"bc", b"def", b"ghij", b"klmno"] {
        nfs.create(name);
    }
    let text = nfs.link(b"link", &pattern(5));
    // The reply to READDIR with pads of names; that of READLINK ends with one.
    let readdir = [encoded(&nfs.root), words(&[0, 0, 0, 0, 4096])].concat();
    for (procedure, arguments) in [
        (Procedure::Readdir, readdir),
        (Procedure::Readlink, encoded(&text)),
    ] {
        let xid = nfs.xid();
        let rpc = nfs_message(xid, procedure, &arguments);
        let inline_reply = parse(&nfs.world.exchange(0, &message::plain(&rpc)));
        // The same through a Reply chunk, from a client that takes little inline.
        let mut long_reply = long_reply(&mut nfs, &rpc, inline_reply.message.len());
        // Time of access is the one thing that the first call changed.
        let accessed = 92..100;
        long_reply[accessed.clone()].copy_from_slice(&inline_reply.message[accessed]);
        assert_eq!(long_reply, inline_reply.message, "{procedure:?}");
    }
    nfs.world.check_clean();
}

/// The reply to a call as it stands in a Reply chunk: the header is made so long that the reply
/// does not fit inline.
fn long_reply(nfs: &mut Nfs, rpc: &[u8], length: usize) -> Vec<u8> {
    let client = nfs.world.connect_with(support::raw::Stated {
        inline: Some(1024),
        ..support::raw::Stated::default()
    });
    let (sink, filler) = (nfs.world.sink(client, 8000), nfs.world.sink(client, 100));
    // Write chunks that nothing goes to take room in the reply's header; an empty one first leaves
    // an eligible result in the message.
    let unused = filler.cut(&vec![1; (1024 - 28 - length.min(900)) / 16]);
    let chunks = CallChunks {
        writes: &[&[], &unused],
        reply: Some(&[sink.whole()]),
        ..CallChunks::default()
    };
    let reply = parse(&nfs.world.exchange(client, &inline(&chunks, rpc)));
    assert!(!reply.inline);
    let written = reply.reply.unwrap()[0].length as usize;
    assert_eq!(sink.bytes()[written..], vec![0xee; 8000 - written]);
    sink.bytes()[..written].to_vec()
}

/// A padded WRITE by hand: the data begins at a multiple of `align` of the RPC message.
fn padded(rpc: &[u8], data: &[u8], align: u32, threshold: u32, pad: usize) -> Vec<u8> {
    [
        words(&[word(rpc, 0), 1, 16, 2, align, threshold, 0, 0, 0]),
        rpc.to_vec(),
        vec![0xaa; pad],
        data.to_vec(),
    ]
    .concat()
}

fn padding_before(rpc: &[u8], align: u32) -> usize {
    rpc.len().next_multiple_of(align.max(1) as usize) - rpc.len()
}

#[test]
fn rr1_pad_14_rr1_pad_15_padded_writes_are_executed() {
    if message::version() == Version::Two {
        return; // It has no RDMA_MSGP.
    }
    let mut nfs = Nfs::new();
    for align in [0, 1, 4, 8, 60, 512, 1024] {
        let file = nfs.create(format!("file{align}").as_bytes());
        let data = pattern(2000);
        let (rpc, _) = nfs.write_message(file, 2000);
        let pad = padding_before(&rpc, align);
        let message = padded(&rpc, &data, align, 1024, pad);
        let reply = parse(&nfs.world.exchange(0, &message));
        assert_eq!(accepted(&reply.message), SUCCESS, "{align}");
        assert!(reply.inline);
        assert_eq!(nfs.content(file), data, "{align}");
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_pad_17_opaques_below_the_threshold_have_no_pads() {
    if message::version() == Version::Two {
        return; // It has no RDMA_MSGP.
    }
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let data = pattern(500);
    let (rpc, _) = nfs.write_message(file, 500);
    // Handle and credential are below the threshold; so is the data in the second message.
    let message = padded(&rpc, &data, 256, 500, padding_before(&rpc, 256));
    assert_eq!(
        accepted(&parse(&nfs.world.exchange(0, &message)).message),
        SUCCESS
    );
    assert_eq!(nfs.content(file), data);
    let message = padded(&rpc, &pattern(500), 256, 501, 0);
    assert_eq!(
        accepted(&parse(&nfs.world.exchange(0, &message)).message),
        SUCCESS
    );
    assert_eq!(nfs.content(file), data);
}

#[test]
fn rr1_pad_18_any_align_and_threshold_has_one_answer() {
    if message::version() == Version::Two {
        return; // It has no RDMA_MSGP.
    }
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let (rpc, _) = nfs.write_message(file, 40);
    let values = [0, 1, 2, 3, 7, 4096, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    for align in values {
        for threshold in values {
            let answer = nfs
                .world
                .exchange(0, &padded(&rpc, &pattern(40), align, threshold, 0));
            assert_eq!(word(&answer, 0), word(&rpc, 0));
            assert!(nfs.world.is_open(0));
        }
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_pad_19_positions_in_a_padded_message_count_no_pads() {
    if message::version() == Version::Two {
        return; // It has no RDMA_MSGP.
    }
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let data = pattern(100);
    let source = nfs.world.source(0, &data);
    // A WRITE whose handle is padded and whose data is in a chunk.
    let handle = file.as_bytes();
    let plain_rpc = nfs_message(
        nfs.xid(),
        Procedure::Write,
        &encoded(&write(file, 0, Bulk::apart(100))),
    );
    let at = plain_rpc.len() - 20 - handle.len();
    let pad = at.next_multiple_of(64) - at;
    let (head, tail) = plain_rpc.split_at(at);
    let mut message = words(&[word(&plain_rpc, 0), 1, 16, 2, 64, handle.len() as u32]);
    message.extend(encoded(&with_reads(&reads(
        plain_rpc.len(),
        &[source.whole()],
    ))));
    message.extend([head, &vec![0xaa; pad], tail].concat());
    let reply = parse(&nfs.world.exchange(0, &message));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(nfs.content(file), data);
    // An item that has to be put back among pads is refused, and nothing is lost silently.
    let entry = NameInDirectory {
        directory: nfs.root,
        name: b"f",
    };
    let lookup = nfs_message(9, Procedure::Lookup, &encoded(&entry));
    let name = nfs.world.source(0, b"f").whole();
    let position = lookup.len() - 4;
    let mut message = words(&[9, 1, 16, 2, 64, 8]);
    message.extend(encoded(&with_reads(&reads(position, &[name]))));
    message.extend(&lookup[..position]);
    check_chunk_error(&nfs.world.exchange(0, &message), 9);
    nfs.world.check_clean();
}

#[test]
fn rr1_pad_21_padding_switched_off_is_a_chunk_error() {
    if message::version() == Version::Two {
        return; // It has no RDMA_MSGP.
    }
    let options = Options {
        settings: Settings::new(4096, 32, 1 << 20, false),
        ..Options::default()
    };
    let mut nfs = Nfs::with(options);
    let file = nfs.create(b"f");
    let (rpc, _) = nfs.write_message(file, 40);
    let message = padded(&rpc, &pattern(40), 0, 4096, 0);
    check_chunk_error(&nfs.world.exchange(0, &message), word(&rpc, 0));
    assert_eq!(nfs.content(file), b"");
}
