//! Data of NFS version 3 in line, in chunks and behind pads, through the seam.

#![allow(clippy::result_large_err)] // Failures of the protocol carry attributes.

use millrace::call::{Answer, BulkArgument, Limits, NO_CHUNKS, one_chunk};
use millrace::exports::{Exports, Rules, Squash};
use millrace_wire::nfs3::{
    CommitArguments, CommitResults, CreateResults, FileType, NameInDirectory, Procedure,
    ReadArguments, ReadResults, ReadlinkResults, SetAttributes, SetattrArguments, SetattrResults,
    Stability, Status, SymlinkArguments, WriteArguments, WriteResults,
};
use millrace_wire::rpc::{Accepted, CallOutcome, ReplyHeader};
use millrace_wire::xdr::{Bulk, Decode, Decoder, Encoder, from_bytes};

use crate::support::nfs::*;
use crate::support::{Bench, Chunks, LIMITS, Replied, results, rules};

/// A WRITE whose data is in a read chunk of `chunk` bytes.
fn write_by_chunk(
    bench: &Bench,
    arguments: &WriteArguments<'_>,
    chunk: &mut Chunks<'_>,
    length: u32,
) -> Replied {
    let message = bench.message((100_003, 3, 7), arguments);
    let position = message.len() as u32;
    bench.send(&message, &[BulkArgument { position, length }], chunk)
}

#[test]
fn data_is_written_and_read_in_line() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    for (offset, length) in [(0, 0), (0, 1), (3, 5), (4000, 300), (100_000, 70_001)] {
        let data: Vec<u8> = (0..length).map(|index| (index + offset) as u8).collect();
        let written = write(&bench, file, offset as u64, &data).unwrap();
        assert_eq!(written.count as usize, data.len());
        assert_eq!(written.file.after, Some(attributes(&bench, file)));
        assert_eq!(read(&bench, file, offset as u64, data.len() as u32).0, data);
    }
    assert_eq!(read(&bench, file, 50_000, 4), (vec![0; 4], false));
    assert_eq!(read(&bench, file, 170_000, 100), (vec![16], true));
    assert_eq!(read(&bench, file, 1 << 40, 100), (vec![], true));
    assert_eq!(read(&bench, file, u64::MAX, 100), (vec![], true));
    let bytes = bench.nfs(
        Procedure::Read,
        &ReadArguments {
            file: bench.root(),
            offset: 0,
            count: 1,
        },
    );
    let failure = from_bytes::<ReadResults<'_>>(&bytes).unwrap().unwrap_err();
    assert_eq!(failure.status, Status::Invalid);
    assert_eq!(failure.detail, Some(attributes(&bench, bench.root())));
}

#[test]
fn write_checks_count_against_data() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let arguments = WriteArguments {
        file,
        offset: 0,
        count: 5,
        stable: Stability::FileSync,
        data: Bulk::inline(b"four"),
    };
    let failure = call::<WriteResults>(&bench, Procedure::Write, &arguments).unwrap_err();
    assert_eq!(failure.status, Status::Invalid);
    assert_eq!(attributes(&bench, file).size, 0);
}

#[test]
fn commit_and_write_share_a_verifier() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let written = write(&bench, file, 0, b"data").unwrap();
    let arguments = CommitArguments {
        file,
        offset: 0,
        count: 0,
    };
    let committed = call::<CommitResults>(&bench, Procedure::Commit, &arguments).unwrap();
    assert_eq!(committed.verifier, written.verifier);
    assert_eq!(committed.file.after, Some(attributes(&bench, file)));
}

#[test]
fn commit_is_for_those_who_may_write() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let set = |mode, uid| {
        let arguments = SetattrArguments {
            object: file,
            attributes: SetAttributes {
                mode: Some(mode),
                uid: Some(uid),
                gid: Some(8),
                ..SetAttributes::default()
            },
            guard: None,
        };
        *bench.user.borrow_mut() = Some((0, 0));
        call::<SetattrResults>(&bench, Procedure::Setattr, &arguments).unwrap();
    };
    let commit = |file, user| {
        *bench.user.borrow_mut() = user;
        let arguments = CommitArguments {
            file,
            offset: 0,
            count: 0,
        };
        call::<CommitResults>(&bench, Procedure::Commit, &arguments)
    };
    set(0o664, 7);
    for user in [(0, 0), (7, 1), (9, 8)] {
        commit(file, Some(user)).unwrap();
    }
    for user in [Some((9, 9)), None] {
        let failure = commit(file, user).unwrap_err();
        assert_eq!(failure.status, Status::AccessDenied);
        assert!(failure.detail.after.is_some());
    }
    // Whoever has written a file that may not be written any more: its owner.
    set(0o444, 7);
    commit(file, Some((7, 1))).unwrap();
    commit(file, Some((9, 8))).unwrap_err();
    // A directory has no data.
    let failure = commit(bench.root(), Some((0, 0))).unwrap_err();
    assert_eq!(failure.status, Status::Invalid);
}

#[test]
fn rr1_chunk_10_data_of_a_write_comes_from_its_chunk() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    for length in [1_u32, 2, 3, 4, 5, 4096, 4097, 1 << 20] {
        let data: Vec<u8> = (0..length + 3).map(|index| (index % 251) as u8).collect();
        for chunk_length in [length, length.next_multiple_of(4)] {
            let arguments = WriteArguments {
                file,
                offset: 7,
                count: length,
                stable: Stability::Unstable,
                data: Bulk::apart(length),
            };
            let mut chunk = Chunks {
                chunks: vec![&data],
                ..Chunks::default()
            };
            let replied = write_by_chunk(&bench, &arguments, &mut chunk, chunk_length);
            let written = from_bytes::<WriteResults>(results(&replied.message))
                .unwrap()
                .unwrap();
            assert_eq!((written.count, chunk.pulls), (length, 1));
            let read = read(&bench, file, 7, length).0;
            let same = read.iter().zip(&data).take_while(|(a, b)| a == b).count();
            assert_eq!((read.len(), same), (length as usize, length as usize));
        }
    }
}

#[test]
fn rr1_chunk_11_length_word_and_chunk_must_agree() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let data = [1; 128];
    for chunk_length in [0, 96, 99, 101, 104, 200] {
        let arguments = WriteArguments {
            file,
            offset: 0,
            count: 100,
            stable: Stability::Unstable,
            data: Bulk::apart(100),
        };
        let mut chunk = Chunks {
            chunks: vec![&data],
            ..Chunks::default()
        };
        let replied = write_by_chunk(&bench, &arguments, &mut chunk, chunk_length);
        let header = ReplyHeader::decode(&mut Decoder::new(&replied.message)).unwrap();
        let CallOutcome::Accepted { status, .. } = header.outcome else {
            panic!("{header:?}")
        };
        assert_eq!(status, Accepted::GarbageArguments, "{chunk_length}");
        assert_eq!(chunk.pulls, 0);
    }
    assert_eq!(attributes(&bench, file).size, 0);
}

#[test]
fn chunks_where_none_may_be_execute_nothing() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"file",
    };
    let message = bench.message((100_003, 3, Procedure::Remove.number()), &entry);
    let length = message.len() as u32;
    for position in [0, 4, length - 8, length, length + 4] {
        let mut chunk = Chunks {
            chunks: vec![b"file"],
            ..Chunks::default()
        };
        let replied = bench.send(
            &message,
            &[BulkArgument {
                position,
                length: 4,
            }],
            &mut chunk,
        );
        assert_ne!(replied.answer, Answer::Broken);
        assert_eq!(chunk.pulls, 0);
    }
    attributes(&bench, file);
}

#[test]
fn a_write_whose_connection_breaks_leaves_no_trace() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let arguments = WriteArguments {
        file,
        offset: 0,
        count: 4,
        stable: Stability::FileSync,
        data: Bulk::apart(4),
    };
    let mut chunk = Chunks {
        broken: true,
        ..Chunks::default()
    };
    let replied = write_by_chunk(&bench, &arguments, &mut chunk, 4);
    assert_eq!(replied.answer, Answer::Broken);
    assert_eq!(attributes(&bench, file).size, 0);
    write(&bench, file, 0, b"data").unwrap();
    assert_eq!(read(&bench, file, 0, 10).0, b"data");
}

#[test]
fn rights_of_a_write_are_checked_again_when_its_data_is_there() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    write(&bench, file, 0, b"data").unwrap();
    read(&bench, file, 0, 4);
    let before = attributes(&bench, file);
    let arguments = WriteArguments {
        file,
        offset: 2,
        count: 4,
        stable: Stability::FileSync,
        data: Bulk::apart(4),
    };
    let others = Rules {
        clients: vec!["198.51.100.0/24".parse().unwrap()],
        ..rules("/export")
    };
    let read_only = Rules {
        read_only: true,
        ..rules("/export")
    };
    let squashed = Rules {
        squash: Squash::All,
        ..rules("/export")
    };
    let elsewhere = rules("/other");
    for (rules_then, status) in [
        (read_only, Status::ReadOnly),
        (others, Status::AccessDenied),
        (squashed, Status::Jukebox),
        (elsewhere, Status::Stale),
    ] {
        let replace = |rules| {
            let exports = Exports::new([(rules, bench.store.clone())]).unwrap();
            bench.service.replace_exports(exports);
        };
        let mut chunk = Chunks {
            chunks: vec![b"DATA"],
            meanwhile: Some(Box::new(|| replace(rules_then))),
            ..Chunks::default()
        };
        let replied = write_by_chunk(&bench, &arguments, &mut chunk, 4);
        drop(chunk);
        replace(rules("/export"));
        let refused = from_bytes::<WriteResults>(results(&replied.message)).unwrap();
        assert_eq!(refused.unwrap_err().status, status);
        assert_eq!(attributes(&bench, file), before);
        assert_eq!(read(&bench, file, 0, 10).0, b"data");
    }
    // Other changes of the exports do not matter.
    let mut chunk = Chunks {
        chunks: vec![b"DATA"],
        meanwhile: Some(Box::new(|| {
            let more = [rules("/export"), rules("/more")];
            let exports = more.map(|rules| (rules, bench.store.clone()));
            bench
                .service
                .replace_exports(Exports::new(exports).unwrap());
        })),
        ..Chunks::default()
    };
    let replied = write_by_chunk(&bench, &arguments, &mut chunk, 4);
    drop(chunk);
    let written = from_bytes::<WriteResults>(results(&replied.message)).unwrap();
    assert_eq!(written.unwrap().count, 4);
    assert_eq!(read(&bench, file, 0, 10).0, b"daDATA");
}

#[test]
fn rr1_chunk_16_data_of_a_read_stands_apart_however_small() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    write(&bench, file, 0, b"abcdef").unwrap();
    bench.limits.set(Limits {
        headroom: 100,
        message: 1024,
        apart: one_chunk(1000),
        tells_shortage: false,
        flattens: false,
    });
    for count in [1, 3, 6, 100] {
        let message = bench.message(
            (100_003, 3, 6),
            &ReadArguments {
                file,
                offset: 0,
                count,
            },
        );
        let replied = bench.send(&message, &[], &mut Chunks::default());
        assert_eq!(replied.data, b"abcdef"[..(count as usize).min(6)]);
        // The length word stays, and the data would follow it.
        assert_eq!(replied.position, replied.message.len());
        let word = replied.message.last_chunk().unwrap();
        assert_eq!(u32::from_be_bytes(*word) as usize, replied.data.len());
    }
}

#[test]
fn rr1_chunk_24_reads_are_short_where_the_room_is() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    write(&bench, file, 0, &[7; 200]).unwrap();
    bench.limits.set(Limits {
        apart: one_chunk(100),
        tells_shortage: false,
        flattens: false,
        ..LIMITS
    });
    let (data, eof) = read(&bench, file, 0, 200);
    assert_eq!((data.len(), eof), (100, false));
    // In line, data and padding have to fit with the rest.
    for message in [129, 131, 132, 133, 200, 327, 328, 400] {
        bench.limits.set(Limits {
            headroom: 64,
            message,
            apart: NO_CHUNKS,
            tells_shortage: false,
            flattens: false,
        });
        let call = bench.message(
            (100_003, 3, 6),
            &ReadArguments {
                file,
                offset: 0,
                count: 200,
            },
        );
        let replied = bench.send(&call, &[], &mut Chunks::default());
        let gathered = replied.gathered();
        assert!(gathered.len() <= message, "{} in {message}", gathered.len());
        let results = from_bytes::<ReadResults<'_>>(results(&gathered)).unwrap();
        if message < 132 {
            assert_eq!(results.unwrap_err().status, Status::Invalid);
        } else {
            let expected = ((message - 128) & !3).min(200);
            assert_eq!(results.unwrap().count as usize, expected);
        }
    }
}

#[test]
fn links_keep_their_text_wherever_it_travels() {
    let bench = Bench::new();
    let entry = |name| NameInDirectory {
        directory: bench.root(),
        name,
    };
    let inline = SymlinkArguments {
        entry: entry(b"inline"),
        attributes: MODE,
        text: Bulk::inline(b"a/b"),
    };
    let made = call::<CreateResults>(&bench, Procedure::Symlink, &inline).unwrap();
    assert_eq!(made.attributes.unwrap().kind, FileType::Symlink);
    let text = [b'x'; 1023];
    let long = SymlinkArguments {
        entry: entry(b"long"),
        attributes: MODE,
        text: Bulk::inline(&text),
    };
    let long = call::<CreateResults>(&bench, Procedure::Symlink, &long).unwrap();
    for (link, text) in [(made, &b"a/b"[..]), (long, &text)] {
        let link = link.object.unwrap();
        let bytes = bench.nfs(Procedure::Readlink, &link);
        let read = from_bytes::<ReadlinkResults<'_>>(&bytes).unwrap().unwrap();
        assert_eq!(read.text.as_inline(), Some(text));
        bench.limits.set(Limits {
            apart: one_chunk(1023),
            ..LIMITS
        });
        let message = bench.message((100_003, 3, Procedure::Readlink.number()), &link);
        let replied = bench.send(&message, &[], &mut Chunks::default());
        assert_eq!(replied.data, text);
        bench.limits.set(LIMITS);
    }
    bench.limits.set(Limits {
        apart: one_chunk(1022),
        ..LIMITS
    });
    // A text cannot be cut short.
    let handle = long.object.unwrap();
    let message = bench.message((100_003, 3, Procedure::Readlink.number()), &handle);
    let replied = bench.send(&message, &[], &mut Chunks::default());
    let Answer::TooLarge(shortage) = replied.answer else {
        panic!("{replied:?}");
    };
    assert_eq!((shortage.processed, shortage.bulk), (true, 1023));
    let bytes = bench.nfs(Procedure::Readlink, &bench.root());
    let failure = from_bytes::<ReadlinkResults<'_>>(&bytes)
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.status, Status::Invalid);
}

#[test]
fn messages_with_alignment_pads_are_understood() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let padding = millrace_wire::xdr::Padding {
        align: 512,
        threshold: 64,
    };
    let data = [9; 100];
    let arguments = WriteArguments {
        file,
        offset: 0,
        count: 100,
        stable: Stability::Unstable,
        data: Bulk::inline(&data),
    };
    // The plain message, encoded again with its pads.
    let plain = bench.message((100_003, 3, 7), &arguments);
    let arguments_length = plain.len() - 100;
    let mut padded = vec![0; 4096];
    let mut out = Encoder::new(&mut padded).padded(padding);
    out.raw(&plain[..arguments_length - 4]).unwrap();
    out.opaque(&data).unwrap();
    let length = out.position();
    assert_eq!(length, 512 + 100);
    let replied = bench.send_padded(&padded[..length], padding);
    let written = from_bytes::<WriteResults>(results(&replied.message))
        .unwrap()
        .unwrap();
    assert_eq!(written.count, 100);
    assert_eq!(read(&bench, file, 0, 200).0, data);
}
