//! Every procedure of NFS version 3, through the seam, over a memory store.

#![allow(clippy::result_large_err)] // Failures of the protocol carry attributes.

mod support;

use millrace::call::{Answer, BulkArgument, Limits};
use millrace_wire::nfs3::{
    AccessArguments, AccessResults, CommitArguments, CommitResults, CreateArguments, CreateHow,
    CreateResults, Device, Entry, FileAttributes, FileHandle, FileType, FsinfoResults,
    FsstatResults, GetattrResults, LinkArguments, LinkResults, LookupResults, MkdirArguments,
    MknodArguments, Node, PathconfResults, Procedure, ReadArguments, ReadResults, ReaddirArguments,
    ReaddirResults, ReaddirplusArguments, ReaddirplusResults, ReadlinkResults, RemoveResults,
    RenameArguments, RenameResults, SetAttributes, SetTime, SetattrArguments, SetattrResults,
    Stability, Status, SymlinkArguments, Time, WriteArguments, WriteResults, access, properties,
};
use millrace_wire::rpc::{Accepted, Outcome, ReplyHeader};
use millrace_wire::xdr::{Bulk, Decode, Decoder, Encoder, from_bytes};
use support::{Bench, Chunks, LIMITS, Replied, results};

const MODE: SetAttributes = SetAttributes {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    accessed: SetTime::Keep,
    modified: SetTime::Keep,
};

fn call<T: for<'a> Decode<'a>>(
    bench: &Bench,
    procedure: Procedure,
    arguments: &impl millrace_wire::xdr::Encode,
) -> T {
    from_bytes(&bench.nfs(procedure, arguments)).unwrap()
}

fn attributes(bench: &Bench, object: FileHandle) -> FileAttributes {
    call::<GetattrResults>(bench, Procedure::Getattr, &object).unwrap()
}

fn create(bench: &Bench, directory: FileHandle, name: &[u8]) -> FileHandle {
    let arguments = CreateArguments {
        entry: Entry { directory, name },
        how: CreateHow::Guarded(MODE),
    };
    call::<CreateResults>(bench, Procedure::Create, &arguments)
        .unwrap()
        .object
        .unwrap()
}

fn mkdir(bench: &Bench, directory: FileHandle, name: &[u8]) -> FileHandle {
    let arguments = MkdirArguments {
        entry: Entry { directory, name },
        attributes: SetAttributes {
            mode: Some(0o755),
            ..MODE
        },
    };
    call::<CreateResults>(bench, Procedure::Mkdir, &arguments)
        .unwrap()
        .object
        .unwrap()
}

fn lookup(bench: &Bench, directory: FileHandle, name: &[u8]) -> LookupResults {
    call(bench, Procedure::Lookup, &Entry { directory, name })
}

fn write(bench: &Bench, file: FileHandle, offset: u64, data: &[u8]) -> WriteResults {
    let count = data.len() as u32;
    let data = Bulk::inline(data);
    let arguments = WriteArguments {
        file,
        offset,
        count,
        stable: Stability::Unstable,
        data,
    };
    call(bench, Procedure::Write, &arguments)
}

fn read(bench: &Bench, file: FileHandle, offset: u64, count: u32) -> (Vec<u8>, bool) {
    let bytes = bench.nfs(
        Procedure::Read,
        &ReadArguments {
            file,
            offset,
            count,
        },
    );
    let read = from_bytes::<ReadResults<'_>>(&bytes).unwrap().unwrap();
    let data = read.data.as_inline().unwrap();
    assert_eq!(data.len(), read.count as usize);
    (data.to_vec(), read.eof)
}

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
fn attributes_are_set_and_guarded() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let before = attributes(&bench, file);
    assert_eq!(
        (before.kind, before.mode, before.links, before.size),
        (FileType::Regular, 0o644, 1, 0)
    );
    let set = SetAttributes {
        mode: Some(0o4600),
        uid: Some(5),
        gid: Some(6),
        size: Some(10),
        accessed: SetTime::To(Time {
            seconds: 1,
            nanoseconds: 2,
        }),
        modified: SetTime::To(Time {
            seconds: 3,
            nanoseconds: 4,
        }),
    };
    let mut arguments = SetattrArguments {
        object: file,
        attributes: set,
        guard: None,
    };
    let data = call::<SetattrResults>(&bench, Procedure::Setattr, &arguments).unwrap();
    assert_eq!(data.before.unwrap().changed, before.changed);
    let now = attributes(&bench, file);
    assert_eq!(data.after, Some(now));
    assert_eq!((now.mode, now.uid, now.gid, now.size), (0o4600, 5, 6, 10));
    assert_eq!(
        now.accessed,
        Time {
            seconds: 1,
            nanoseconds: 2
        }
    );
    assert_eq!(
        now.modified,
        Time {
            seconds: 3,
            nanoseconds: 4
        }
    );
    arguments.guard = Some(before.changed);
    let failure = call::<SetattrResults>(&bench, Procedure::Setattr, &arguments).unwrap_err();
    assert_eq!(failure.status, Status::NotSync);
    assert_eq!(failure.detail.after, Some(now));
    arguments.guard = Some(now.changed);
    call::<SetattrResults>(&bench, Procedure::Setattr, &arguments).unwrap();
}

#[test]
fn names_are_looked_up() {
    let bench = Bench::new();
    let directory = mkdir(&bench, bench.root(), b"directory");
    let file = create(&bench, directory, b"file");
    let found = lookup(&bench, directory, b"file").unwrap();
    assert_eq!(found.object, file);
    assert_eq!(found.attributes, Some(attributes(&bench, file)));
    assert_eq!(found.directory, Some(attributes(&bench, directory)));
    assert_eq!(lookup(&bench, directory, b".").unwrap().object, directory);
    assert_eq!(
        lookup(&bench, directory, b"..").unwrap().object,
        bench.root()
    );
    assert_eq!(
        lookup(&bench, bench.root(), b"..").unwrap().object,
        bench.root()
    );
    let failure = lookup(&bench, directory, b"none").unwrap_err();
    assert_eq!(failure.status, Status::NoEntry);
    assert_eq!(failure.detail, Some(attributes(&bench, directory)));
    assert_eq!(
        lookup(&bench, file, b"x").unwrap_err().status,
        Status::NotDirectory
    );
    assert_eq!(
        lookup(&bench, directory, &[b'x'; 256]).unwrap_err().status,
        Status::NameTooLong
    );
    assert!(lookup(&bench, directory, b"").is_err());
}

#[test]
fn access_is_granted_by_permission() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    let ask = |bench: &Bench| {
        let arguments = AccessArguments {
            object: file,
            access: u32::MAX,
        };
        call::<AccessResults>(bench, Procedure::Access, &arguments)
            .unwrap()
            .access
    };
    assert_eq!(
        ask(&bench) & (access::READ | access::MODIFY),
        access::READ | access::MODIFY
    );
    *bench.user.borrow_mut() = Some((1000, 1000));
    assert_eq!(ask(&bench), access::READ);
    let failure = write(&bench, file, 0, b"no").unwrap_err();
    assert_eq!(failure.status, Status::AccessDenied);
    assert!(failure.detail.after.is_some());
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
        let Outcome::Accepted { status, .. } = header.outcome else {
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
    let entry = Entry {
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
fn rr1_chunk_16_data_of_a_read_stands_apart_however_small() {
    let bench = Bench::new();
    let file = create(&bench, bench.root(), b"file");
    write(&bench, file, 0, b"abcdef").unwrap();
    bench.limits.set(Limits {
        headroom: 100,
        message: 1024,
        apart: Some(1000),
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
        apart: Some(100),
        ..LIMITS
    });
    let (data, eof) = read(&bench, file, 0, 200);
    assert_eq!((data.len(), eof), (100, false));
    // In line, data and padding have to fit with the rest.
    for message in [129, 131, 132, 133, 200, 327, 328, 400] {
        bench.limits.set(Limits {
            headroom: 64,
            message,
            apart: None,
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
fn creation_is_unchecked_guarded_or_exclusive() {
    let bench = Bench::new();
    let make = |how| {
        let entry = Entry {
            directory: bench.root(),
            name: b"file",
        };
        call::<CreateResults>(&bench, Procedure::Create, &CreateArguments { entry, how })
    };
    let first = make(CreateHow::Exclusive(*b"verifier")).unwrap();
    let again = make(CreateHow::Exclusive(*b"verifier")).unwrap();
    assert_eq!(first.object, again.object);
    assert!(first.directory.before.is_some() && first.directory.after.is_some());
    let failure = make(CreateHow::Exclusive(*b"otherone")).unwrap_err();
    assert_eq!(failure.status, Status::Exists);
    assert_eq!(
        make(CreateHow::Guarded(MODE)).unwrap_err().status,
        Status::Exists
    );
    write(&bench, first.object.unwrap(), 0, b"data").unwrap();
    let truncating = SetAttributes {
        size: Some(0),
        ..MODE
    };
    let same = make(CreateHow::Unchecked(truncating)).unwrap();
    assert_eq!(same.object, first.object);
    assert_eq!(same.attributes.unwrap().size, 0);
}

#[test]
fn special_nodes_are_made() {
    let bench = Bench::new();
    let make = |name: &[u8], node| {
        let entry = Entry {
            directory: bench.root(),
            name,
        };
        call::<CreateResults>(&bench, Procedure::Mknod, &MknodArguments { entry, node })
    };
    let device = Device { major: 3, minor: 4 };
    for (name, node, kind) in [
        (b"a", Node::Character(MODE, device), FileType::Character),
        (b"b", Node::Block(MODE, device), FileType::Block),
        (b"c", Node::Socket(MODE), FileType::Socket),
        (b"d", Node::Fifo(MODE), FileType::Fifo),
    ] {
        let made = make(name, node).unwrap().attributes.unwrap();
        assert_eq!(made.kind, kind);
        let expected = if name < b"c" {
            device
        } else {
            Device { major: 0, minor: 0 }
        };
        assert_eq!(made.device, expected);
    }
    let failure = make(b"e", Node::Other(FileType::Regular)).unwrap_err();
    assert_eq!(failure.status, Status::BadType);
    assert!(failure.detail.after.is_some());
}

#[test]
fn links_keep_their_text_wherever_it_travels() {
    let bench = Bench::new();
    let entry = |name| Entry {
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
    let apart = SymlinkArguments {
        entry: entry(b"apart"),
        attributes: MODE,
        text: Bulk::apart(1023),
    };
    let message = bench.message((100_003, 3, Procedure::Symlink.number()), &apart);
    let taken = BulkArgument {
        position: message.len() as u32,
        length: 1023,
    };
    let mut chunk = Chunks {
        chunks: vec![&text],
        ..Chunks::default()
    };
    let replied = bench.send(&message, &[taken], &mut chunk);
    let long = from_bytes::<CreateResults>(results(&replied.message))
        .unwrap()
        .unwrap();
    for (link, text) in [(made, &b"a/b"[..]), (long, &text)] {
        let link = link.object.unwrap();
        let bytes = bench.nfs(Procedure::Readlink, &link);
        let read = from_bytes::<ReadlinkResults<'_>>(&bytes).unwrap().unwrap();
        assert_eq!(read.text.as_inline(), Some(text));
        bench.limits.set(Limits {
            apart: Some(1023),
            ..LIMITS
        });
        let message = bench.message((100_003, 3, Procedure::Readlink.number()), &link);
        let replied = bench.send(&message, &[], &mut Chunks::default());
        assert_eq!(replied.data, text);
        bench.limits.set(LIMITS);
    }
    bench.limits.set(Limits {
        apart: Some(1022),
        ..LIMITS
    });
    let bytes = bench.nfs(Procedure::Readlink, &long.object.unwrap());
    let failure = from_bytes::<ReadlinkResults<'_>>(&bytes)
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.status, Status::ServerFault);
    let bytes = bench.nfs(Procedure::Readlink, &bench.root());
    let failure = from_bytes::<ReadlinkResults<'_>>(&bytes)
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.status, Status::Invalid);
}

#[test]
fn names_are_removed_renamed_and_linked() {
    let bench = Bench::new();
    let (root, directory) = (bench.root(), mkdir(&bench, bench.root(), b"directory"));
    let file = create(&bench, root, b"file");
    let link = |object, directory, name| {
        let arguments = LinkArguments {
            object,
            entry: Entry { directory, name },
        };
        call::<LinkResults>(&bench, Procedure::Link, &arguments)
    };
    let linked = link(file, directory, b"link").unwrap();
    assert_eq!(linked.attributes.unwrap().links, 2);
    assert!(linked.directory.before.is_some());
    let failure = link(file, directory, b"link").unwrap_err();
    assert_eq!(failure.status, Status::Exists);
    assert!(failure.detail.attributes.is_some() && failure.detail.directory.after.is_some());

    let rename = |from, from_name, to, to_name| {
        let from = Entry {
            directory: from,
            name: from_name,
        };
        let to = Entry {
            directory: to,
            name: to_name,
        };
        call::<RenameResults>(&bench, Procedure::Rename, &RenameArguments { from, to })
    };
    let renamed = rename(root, b"file", directory, b"moved").unwrap();
    assert_eq!(renamed.from.after, Some(attributes(&bench, root)));
    assert_eq!(renamed.to.after, Some(attributes(&bench, directory)));
    let failure = rename(root, b"file", directory, b"moved").unwrap_err();
    assert_eq!(failure.status, Status::NoEntry);
    assert!(failure.detail.from.after.is_some() && failure.detail.to.after.is_some());

    let remove = |procedure, directory, name| {
        let results: RemoveResults = call(&bench, procedure, &Entry { directory, name });
        results.map(|data| data.after.unwrap()).map_err(|failure| {
            assert!(failure.detail.after.is_some());
            failure.status
        })
    };
    let (rm, rmdir) = (Procedure::Remove, Procedure::Rmdir);
    assert_eq!(remove(rmdir, root, b"directory"), Err(Status::NotEmpty));
    assert_eq!(remove(rm, root, b"directory"), Err(Status::IsDirectory));
    remove(rm, directory, b"link").unwrap();
    assert_eq!(
        remove(rmdir, directory, b"moved"),
        Err(Status::NotDirectory)
    );
    remove(rm, directory, b"moved").unwrap();
    assert_eq!(remove(rm, directory, b"moved"), Err(Status::NoEntry));
    remove(rmdir, root, b"directory").unwrap();
    let stale = lookup(&bench, directory, b"x").unwrap_err();
    assert_eq!((stale.status, stale.detail), (Status::Stale, None));
}

#[test]
fn exports_are_not_left_by_links_or_renames() {
    let registry = millrace_mempool::Registry::new(millrace_mempool::HugepagePolicy::Off);
    let store = support::memory_store(&registry);
    let exports = ["/a", "/b"].map(|path| (support::rules(path), store.clone()));
    let bench = Bench::over(&registry, store.clone(), support::service(exports));
    let table = bench.service.exports();
    let root = |path| {
        let export = table.by_path(path).unwrap().0;
        let key = millrace::handle::HandleKey::new(&support::SECRET);
        let root = millrace_store::Store::root(&store);
        FileHandle::new(&key.seal(export.id.0, root)).unwrap()
    };
    let file = create(&bench, root("/a"), b"file");
    let entry = Entry {
        directory: root("/b"),
        name: b"link",
    };
    let linked: LinkResults = call(
        &bench,
        Procedure::Link,
        &LinkArguments {
            object: file,
            entry,
        },
    );
    assert_eq!(linked.unwrap_err().status, Status::CrossDevice);
    let from = Entry {
        directory: root("/a"),
        name: b"file",
    };
    let renamed: RenameResults = call(
        &bench,
        Procedure::Rename,
        &RenameArguments { from, to: entry },
    );
    assert_eq!(renamed.unwrap_err().status, Status::CrossDevice);
}

fn names(count: usize) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (0..count)
        .map(|index| format!("entry number {index}").into_bytes())
        .collect();
    names.extend([b".".to_vec(), b"..".to_vec()]);
    names.sort();
    names
}

#[test]
fn directories_are_listed_in_parts() {
    let bench = Bench::new();
    let directory = mkdir(&bench, bench.root(), b"directory");
    for name in names(200).iter().filter(|name| name.len() > 2) {
        create(&bench, directory, name);
    }
    for (count, room) in [
        (200, 1 << 20),
        (1000, 1 << 20),
        (u32::MAX, 1 << 20),
        (u32::MAX, 600),
    ] {
        bench.limits.set(Limits {
            headroom: 300,
            message: room,
            apart: None,
        });
        let (mut listed, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
        loop {
            let arguments = ReaddirArguments {
                directory,
                cookie,
                verifier,
                count,
            };
            let bytes = bench.nfs(Procedure::Readdir, &arguments);
            assert!(bytes.len() - 4 <= count as usize && bytes.len() + 24 <= room);
            let part = from_bytes::<ReaddirResults<'_>>(&bytes).unwrap().unwrap();
            assert_eq!(
                part.attributes.unwrap().fileid,
                attributes(&bench, directory).fileid
            );
            verifier = part.verifier;
            for entry in part.entries.iter() {
                cookie = entry.cookie;
                listed.push(entry.name.to_vec());
            }
            if part.eof {
                break;
            }
        }
        listed.sort();
        assert_eq!(listed, names(200), "{count} {room}");
    }
    bench.limits.set(LIMITS);
    let arguments = ReaddirArguments {
        directory,
        cookie: 0,
        verifier: [0; 8],
        count: 110,
    };
    let bytes = bench.nfs(Procedure::Readdir, &arguments);
    let failure = from_bytes::<ReaddirResults<'_>>(&bytes)
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.status, Status::TooSmall);
    assert!(failure.detail.is_some());
}

#[test]
fn directories_are_listed_with_attributes_and_handles() {
    let bench = Bench::new();
    let directory = mkdir(&bench, bench.root(), b"directory");
    for name in names(200).iter().filter(|name| name.len() > 2) {
        create(&bench, directory, name);
    }
    for (dircount, maxcount) in [(100, 1 << 20), (4096, 4096), (u32::MAX, u32::MAX)] {
        let (mut listed, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
        loop {
            let arguments = ReaddirplusArguments {
                directory,
                cookie,
                verifier,
                dircount,
                maxcount,
            };
            let bytes = bench.nfs(Procedure::Readdirplus, &arguments);
            let part = from_bytes::<ReaddirplusResults<'_>>(&bytes)
                .unwrap()
                .unwrap();
            verifier = part.verifier;
            for entry in part.entries.iter() {
                cookie = entry.cookie;
                let now = attributes(&bench, entry.handle.unwrap());
                // Listing a directory is an access to it.
                let accessed = entry.attributes.unwrap().accessed;
                assert_eq!(entry.attributes, Some(FileAttributes { accessed, ..now }));
                assert_eq!(entry.fileid, now.fileid);
                listed.push(entry.name.to_vec());
            }
            if part.eof {
                break;
            }
        }
        listed.sort();
        assert_eq!(listed, names(200), "{dircount} {maxcount}");
    }
    let file = lookup(&bench, directory, b"entry number 7").unwrap().object;
    let arguments = ReaddirplusArguments {
        directory: file,
        cookie: 0,
        verifier: [0; 8],
        dircount: 1000,
        maxcount: 1000,
    };
    let bytes = bench.nfs(Procedure::Readdirplus, &arguments);
    let failure = from_bytes::<ReaddirplusResults<'_>>(&bytes)
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.status, Status::NotDirectory);
}

#[test]
fn limits_and_figures_are_told() {
    let bench = Bench::new();
    let root = bench.root();
    let info = call::<FsinfoResults>(&bench, Procedure::Fsinfo, &root).unwrap();
    assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
    assert_eq!(info.properties, 0x1b);
    assert_ne!(info.properties & properties::HOMOGENEOUS, 0);
    let figures = call::<FsstatResults>(&bench, Procedure::Fsstat, &root).unwrap();
    assert_eq!(figures.total_bytes, 16 << 20);
    assert!(figures.free_bytes <= figures.total_bytes);
    let limits = call::<PathconfResults>(&bench, Procedure::Pathconf, &root).unwrap();
    assert_eq!(limits.name_max, 255);
    assert!(limits.no_truncation && limits.case_preserving && !limits.case_insensitive);
    let root_attributes = Some(attributes(&bench, root));
    assert_eq!(
        [info.attributes, figures.attributes, limits.attributes],
        [root_attributes; 3]
    );
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
