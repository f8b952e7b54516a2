//! Calls that need not wait are answered at once, and as those in tasks are. Others are left alone.

#![allow(clippy::result_large_err)] // Failures of the protocol carry attributes.

mod support;

use millrace::call::{Answer, one_chunk};
use millrace_wire::nfs3::{
    AccessArguments, CreateArguments, CreateHow, FileHandle, NameInDirectory, Procedure,
    ReadArguments, ReaddirArguments, SetAttributes, Stability, WriteArguments, WriteResults,
};
use millrace_wire::xdr::{Bulk, Encode, from_bytes};
use support::nfs::*;
use support::{Bench, Chunks, LIMITS, Replied, results};

fn message(bench: &Bench, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
    bench.message((100_003, 3, procedure.number()), arguments)
}

/// Answered calls of a procedure.
fn calls(bench: &Bench, procedure: Procedure) -> u64 {
    let counters = bench.service.counters();
    let procedures = &counters.programs[0].procedures;
    procedures[procedure.number() as usize].calls.get()
}

fn range(file: FileHandle, offset: u64, count: u32) -> ReadArguments {
    ReadArguments {
        file,
        offset,
        count,
    }
}

/// A file whose data is in several pieces of memory, and which was read before.
fn file(bench: &Bench) -> FileHandle {
    let file = create(bench, bench.root(), b"file");
    write(bench, file, 0, &[7; 10_000]).unwrap();
    read(bench, file, 0, 10);
    file
}

fn reading_messages(bench: &Bench, file: FileHandle) -> Vec<(Procedure, Vec<u8>)> {
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"file",
    };
    let access = AccessArguments {
        object: file,
        access: 0x3f,
    };
    let mut list = vec![
        (
            Procedure::Getattr,
            message(bench, Procedure::Getattr, &file),
        ),
        (Procedure::Lookup, message(bench, Procedure::Lookup, &entry)),
        (
            Procedure::Access,
            message(bench, Procedure::Access, &access),
        ),
    ];
    for (offset, count) in [(0, 0), (0, 4096), (4000, 1000), (9_999, 100), (1 << 40, 1)] {
        let read = message(bench, Procedure::Read, &range(file, offset, count));
        list.push((Procedure::Read, read));
    }
    list
}

#[test]
fn calls_are_answered_at_once_as_in_tasks() {
    let bench = Bench::new();
    let file = file(&bench);
    let seen = |replied: &Replied| {
        let Replied { message, data, .. } = replied;
        (message.clone(), data.clone(), replied.position)
    };
    for apart in [LIMITS.apart, one_chunk(1 << 20)] {
        bench.limits.set(millrace::call::Limits { apart, ..LIMITS });
        for (procedure, message) in reading_messages(&bench, file) {
            let before = calls(&bench, procedure);
            let at_once = bench.send_at_once(&message);
            let at_once = at_once.unwrap_or_else(|| panic!("{procedure} waits"));
            assert_eq!(calls(&bench, procedure), before + 1, "{procedure}");
            let in_task = bench.send(&message, &[], &mut Chunks::default());
            assert_eq!(calls(&bench, procedure), before + 2, "{procedure}");
            assert_eq!(
                (at_once.answer, in_task.answer),
                (Answer::Send, Answer::Send)
            );
            assert_eq!(seen(&at_once), seen(&in_task), "{procedure}");
        }
    }
}

#[test]
fn data_in_messages_is_written_at_once() {
    let bench = Bench::new();
    let file = file(&bench);
    let arguments = WriteArguments {
        file,
        offset: 9_000,
        count: 3_000,
        stable: Stability::FileSync,
        data: Bulk::inline(&[9; 3_000]),
    };
    let replied = bench
        .send_at_once(&message(&bench, Procedure::Write, &arguments))
        .unwrap();
    let written = from_bytes::<WriteResults>(results(&replied.message)).unwrap();
    let written = written.unwrap();
    assert_eq!(
        (written.count, written.committed),
        (3_000, Stability::FileSync)
    );
    assert_eq!(written.file.before.unwrap().size, 10_000);
    assert_eq!(written.file.after, Some(attributes(&bench, file)));
    assert_eq!(calls(&bench, Procedure::Write), 2);
    let (data, is_end) = read(&bench, file, 8_999, 3_001);
    assert_eq!((data, is_end), ([&[7; 1][..], &[9; 3_000]].concat(), true));
}

#[test]
fn calls_that_may_wait_have_no_effect_at_once() {
    let bench = Bench::new();
    let (root, file) = (bench.root(), file(&bench));
    let entry = |name| NameInDirectory {
        directory: root,
        name,
    };
    let made = CreateArguments {
        entry: entry(b"other"),
        how: CreateHow::Guarded(SetAttributes::default()),
    };
    let listed = ReaddirArguments {
        directory: root,
        cookie: 0,
        verifier: [0; 8],
        count: 1000,
    };
    // The count differs from the data.
    let wrong = WriteArguments {
        file,
        offset: 0,
        count: 5,
        stable: Stability::FileSync,
        data: Bulk::inline(b"four"),
    };
    let before = attributes(&bench, file);
    for (procedure, message) in [
        (Procedure::Create, message(&bench, Procedure::Create, &made)),
        (
            Procedure::Readdir,
            message(&bench, Procedure::Readdir, &listed),
        ),
        (Procedure::Write, message(&bench, Procedure::Write, &wrong)),
        (
            Procedure::Lookup,
            message(&bench, Procedure::Lookup, &entry(b"other")),
        ),
        (
            Procedure::Read,
            message(&bench, Procedure::Read, &range(root, 0, 1)),
        ),
        (
            Procedure::Getattr,
            message(&bench, Procedure::Getattr, &&b"short"[..]),
        ),
        (Procedure::Getattr, message(&bench, Procedure::Getattr, &())),
    ] {
        let before = calls(&bench, procedure);
        assert!(bench.send_at_once(&message).is_none(), "{procedure}");
        assert_eq!(calls(&bench, procedure), before, "{procedure}");
    }
    assert!(lookup(&bench, root, b"other").is_err());
    assert_eq!(attributes(&bench, file), before);
}
