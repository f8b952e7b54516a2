//! Attributes, names and directories of NFS version 3, through the seam, over a memory store.

#![allow(clippy::result_large_err)] // Failures of the protocol carry attributes.

use millrace::call::{Limits, NO_CHUNKS};
use millrace_wire::nfs3::{
    AccessArguments, AccessResults, CreateArguments, CreateHow, CreateResults, Device,
    FileAttributes, FileType, FsinfoResults, FsstatResults, LinkArguments, LinkResults,
    MknodArguments, NameInDirectory, Node, PathconfResults, Procedure, ReaddirArguments,
    ReaddirResults, ReaddirplusArguments, ReaddirplusResults, RemoveResults, RenameArguments,
    RenameResults, SetAttributes, SetTime, SetattrArguments, SetattrResults, Status, Time, access,
    properties,
};
use millrace_wire::xdr::from_bytes;

use crate::support;
use crate::support::nfs::*;
use crate::support::{Bench, LIMITS};

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
fn creation_is_unchecked_guarded_or_exclusive() {
    let bench = Bench::new();
    let make = |how| {
        let entry = NameInDirectory {
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
        let entry = NameInDirectory {
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
fn names_are_removed_renamed_and_linked() {
    let bench = Bench::new();
    let (root, directory) = (bench.root(), mkdir(&bench, bench.root(), b"directory"));
    let file = create(&bench, root, b"file");
    let link = |object, directory, name| {
        let arguments = LinkArguments {
            object,
            entry: NameInDirectory { directory, name },
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
        let from = NameInDirectory {
            directory: from,
            name: from_name,
        };
        let to = NameInDirectory {
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
        let results: RemoveResults = call(&bench, procedure, &NameInDirectory { directory, name });
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
        key.seal(export.id.0, root)
    };
    let file = create(&bench, root("/a"), b"file");
    let entry = NameInDirectory {
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
    let from = NameInDirectory {
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
            apart: NO_CHUNKS,
            tells_shortage: false,
            flattens: false,
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
