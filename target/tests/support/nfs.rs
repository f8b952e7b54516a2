//! Calls of NFS that several tests make.

use super::Bench;
use millrace_store::Store;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileAttributes, FileHandle, GetattrResults,
    LookupResults, MkdirArguments, NameInDirectory, Procedure, ReadArguments, ReadResults,
    SetAttributes, SetTime, Stability, WriteArguments, WriteResults,
};
use millrace_wire::xdr::{Bulk, Decode, from_bytes};

pub const MODE: SetAttributes = SetAttributes {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    accessed: SetTime::Keep,
    modified: SetTime::Keep,
};

pub fn call<T: for<'a> Decode<'a>>(
    bench: &Bench<impl Store>,
    procedure: Procedure,
    arguments: &impl millrace_wire::xdr::Encode,
) -> T {
    from_bytes(&bench.nfs(procedure, arguments)).unwrap()
}

pub fn attributes(bench: &Bench<impl Store>, object: FileHandle) -> FileAttributes {
    call::<GetattrResults>(bench, Procedure::Getattr, &object).unwrap()
}

pub fn create(bench: &Bench<impl Store>, directory: FileHandle, name: &[u8]) -> FileHandle {
    let arguments = CreateArguments {
        entry: NameInDirectory { directory, name },
        how: CreateHow::Guarded(MODE),
    };
    call::<CreateResults>(bench, Procedure::Create, &arguments)
        .unwrap()
        .object
        .unwrap()
}

pub fn mkdir(bench: &Bench<impl Store>, directory: FileHandle, name: &[u8]) -> FileHandle {
    let arguments = MkdirArguments {
        entry: NameInDirectory { directory, name },
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

pub fn lookup(bench: &Bench<impl Store>, directory: FileHandle, name: &[u8]) -> LookupResults {
    call(
        bench,
        Procedure::Lookup,
        &NameInDirectory { directory, name },
    )
}

#[allow(clippy::result_large_err)] // Failures of the protocol carry attributes.
pub fn write(
    bench: &Bench<impl Store>,
    file: FileHandle,
    offset: u64,
    data: &[u8],
) -> WriteResults {
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

pub fn read(
    bench: &Bench<impl Store>,
    file: FileHandle,
    offset: u64,
    count: u32,
) -> (Vec<u8>, bool) {
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
