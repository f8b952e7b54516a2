//! Values of all types, drawn from bytes that proptest makes and shrinks.

#![allow(dead_code)] // Each test file uses its part.

pub mod headers;

use arrayvec::ArrayVec;
use millrace_wire::nfs3::*;
use millrace_wire::xdr::{Bulk, Encode, Encoder};
use millrace_wire::{mount, rpc, rpcbind, rpcrdma};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes to draw a value from.
pub fn pool() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..2048)
}

/// Draws values; zeros when the bytes are used up.
pub struct Source<'p> {
    pool: &'p [u8],
}

impl<'p> Source<'p> {
    pub fn new(pool: &'p [u8]) -> Self {
        Self { pool }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.pool.split_first_chunk() {
            Some((now, later)) => {
                self.pool = later;
                *now
            }
            None => [0; N],
        }
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_be_bytes(self.array())) % end
    }

    pub fn bytes(&mut self, bound: usize) -> &'p [u8] {
        let length = self.below(bound + 1).min(self.pool.len());
        let (now, later) = self.pool.split_at(length);
        self.pool = later;
        now
    }

    pub fn draw<T: Sample<'p>>(&mut self) -> T {
        T::sample(self)
    }
}

/// A type that can be drawn.
pub trait Sample<'p> {
    fn sample(source: &mut Source<'p>) -> Self;
}

pub fn encode(value: &(impl Encode + ?Sized)) -> Vec<u8> {
    let mut bytes = vec![0xaa; 16384];
    let mut out = Encoder::new(&mut bytes);
    value.encode(&mut out).expect("a sample encodes");
    let length = out.position();
    bytes.truncate(length);
    bytes
}

/// Bytes from groups of hexadecimal digits.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

macro_rules! samples {
    ($($type:ty => |$source:ident| $draw:expr;)*) => {$(
        impl<'p> Sample<'p> for $type {
            fn sample($source: &mut Source<'p>) -> Self {
                $draw
            }
        }
    )*};
}

macro_rules! sample_structs {
    ($($type:ident $(<$lt:lifetime>)? { $($field:ident),* })*) => {$(
        impl<'p> Sample<'p> for $type $(<$lt>)? {
            fn sample(source: &mut Source<'p>) -> Self {
                Self { $($field: source.draw()),* }
            }
        }
    )*};
}

fn pick<T: Copy>(source: &mut Source<'_>, all: &[T]) -> T {
    all[source.below(all.len())]
}

samples! {
    () => |_source| ();
    u32 => |source| u32::from_be_bytes(source.array());
    u64 => |source| u64::from_be_bytes(source.array());
    bool => |source| source.below(2) == 1;
    [u8; 8] => |source| source.array();
    &'p [u8] => |source| source.bytes(300);
    Bulk<'p> => |source| Bulk::inline(source.bytes(1000));
    FileHandle => |source| FileHandle::new(source.bytes(64)).unwrap();
    FileType => |source| pick(source, FileType::ALL);
    Stability => |source| pick(source, Stability::ALL);
    SetTime => |source| match source.below(3) {
        0 => SetTime::Keep,
        1 => SetTime::ServerTime,
        _ => SetTime::To(source.draw()),
    };
    CreateHow => |source| match source.below(3) {
        0 => CreateHow::Unchecked(source.draw()),
        1 => CreateHow::Guarded(source.draw()),
        _ => CreateHow::Exclusive(source.draw()),
    };
    Node => |source| match source.below(4) {
        0 => Node::Character(source.draw(), source.draw()),
        1 => Node::Block(source.draw(), source.draw()),
        2 => Node::Socket(source.draw()),
        _ => Node::Fifo(source.draw()),
    };
    rpc::OpaqueAuth<'p> => |source| rpc::OpaqueAuth {
        flavor: source.draw(), body: source.bytes(400),
    };
    rpc::AuthSys<'p> => |source| rpc::AuthSys {
        stamp: source.draw(),
        machine: source.bytes(255),
        uid: source.draw(),
        gid: source.draw(),
        gids: (0..source.below(17)).map(|_| source.draw()).collect(),
    };
    rpc::Credential<'p> => |source| match source.below(3) {
        0 => rpc::Credential::None,
        1 => rpc::Credential::Sys(source.draw()),
        _ => rpc::Credential::Other(rpc::OpaqueAuth {
            flavor: rpc::RPCSEC_GSS, body: source.bytes(400),
        }),
    };
    rpc::CallHeader<'p> => |source| rpc::CallHeader {
        xid: source.draw(),
        program: source.draw(),
        version: source.draw(),
        procedure: source.draw(),
        credential: source.draw(),
        verifier: source.draw(),
    };
    rpc::Accepted => |source| match source.below(6) {
        0 => rpc::Accepted::Success,
        1 => rpc::Accepted::ProgramUnavailable,
        2 => rpc::Accepted::ProgramMismatch { low: source.draw(), high: source.draw() },
        3 => rpc::Accepted::ProcedureUnavailable,
        4 => rpc::Accepted::GarbageArguments,
        _ => rpc::Accepted::SystemError,
    };
    rpc::Denied => |source| match source.below(2) {
        0 => rpc::Denied::RpcMismatch { low: source.draw(), high: source.draw() },
        _ => rpc::Denied::Auth(pick(source, rpc::AuthStatus::ALL)),
    };
    rpc::ReplyHeader<'p> => |source| rpc::ReplyHeader {
        xid: source.draw(),
        outcome: match source.below(2) {
            0 => rpc::CallOutcome::Accepted { verifier: source.draw(), status: source.draw() },
            _ => rpc::CallOutcome::Denied(source.draw()),
        },
    };
    rpcrdma::Segment => |source| rpcrdma::Segment {
        handle: source.draw(),
        length: source.below(1 << 16) as u32,
        offset: source.draw::<u64>() >> 1,
    };
    rpcrdma::ReadSegment => |source| rpcrdma::ReadSegment {
        position: 4 * source.below(3) as u32, segment: source.draw(),
    };
    mount::Path<'p> => |source| mount::Path(source.bytes(1024));
    mount::Name<'p> => |source| mount::Name(source.bytes(255));
    mount::Mounted<'p> => |source| mount::Mounted { host: source.draw(), path: source.draw() };
    mount::MountResults => |source| match source.below(2) {
        0 => mount::MountResults::Err(pick(source, &mount::Status::ALL[1..])),
        _ => mount::MountResults::Ok(mount::MountOk {
            handle: source.draw(),
            flavors: (0..source.below(17)).map(|_| source.draw()).collect::<ArrayVec<u32, 16>>(),
        }),
    };
    rpcbind::Mapping => |source| rpcbind::Mapping {
        program: source.draw(), version: source.draw(), protocol: source.draw(),
        port: source.draw(),
    };
    rpcbind::Registration<'p> => |source| rpcbind::Registration {
        program: source.draw(), version: source.draw(), netid: source.draw(),
        address: source.draw(), owner: source.draw(),
    };
    rpcbind::AddressEntry<'p> => |source| rpcbind::AddressEntry {
        address: source.draw(), netid: source.draw(), semantics: source.draw(),
        family: source.draw(), protocol: source.draw(),
    };
    rpcbind::TransportAddress<'p> => |source| rpcbind::TransportAddress {
        max_length: source.draw(), address: source.draw(),
    };
}

impl<'p, T: Sample<'p>> Sample<'p> for Option<T> {
    fn sample(source: &mut Source<'p>) -> Self {
        source.draw::<bool>().then(|| source.draw())
    }
}

impl<'p, T: Sample<'p>, F: Sample<'p>> Sample<'p> for Outcome<T, F> {
    fn sample(source: &mut Source<'p>) -> Self {
        if source.draw() {
            return Ok(source.draw());
        }
        Err(Failure {
            status: pick(source, &Status::ALL[1..]),
            detail: source.draw(),
        })
    }
}

sample_structs! {
    Time { seconds, nanoseconds }
    Device { major, minor }
    FileAttributes {
        kind, mode, links, uid, gid, size, used, device, fsid, fileid, accessed, modified, changed
    }
    BeforeAttributes { size, modified, changed }
    WeakCacheData { before, after }
    SetAttributes { mode, uid, gid, size, accessed, modified }
    NameInDirectory<'p> { directory, name }
    SetattrArguments { object, attributes, guard }
    AccessArguments { object, access }
    ReadArguments { file, offset, count }
    WriteArguments<'p> { file, offset, count, stable, data }
    CreateArguments<'p> { entry, how }
    MkdirArguments<'p> { entry, attributes }
    SymlinkArguments<'p> { entry, attributes, text }
    MknodArguments<'p> { entry, node }
    RenameArguments<'p> { from, to }
    LinkArguments<'p> { object, entry }
    ReaddirArguments { directory, cookie, verifier, count }
    ReaddirplusArguments { directory, cookie, verifier, dircount, maxcount }
    CommitArguments { file, offset, count }
    LookupOk { object, attributes, directory }
    AccessOk { attributes, access }
    ReadlinkOk<'p> { attributes, text }
    ReadOk<'p> { attributes, count, eof, data }
    WriteOk { file, count, committed, verifier }
    CreateOk { object, attributes, directory }
    RenameDirectories { from, to }
    LinkObjects { attributes, directory }
    FsstatOk {
        attributes, total_bytes, free_bytes, available_bytes, total_files, free_files,
        available_files, invariant_seconds
    }
    FsinfoOk {
        attributes, read_max, read_preferred, read_multiple, write_max, write_preferred,
        write_multiple, readdir_preferred, max_file_size, time_delta, properties
    }
    PathconfOk {
        attributes, link_max, name_max, no_truncation, chown_restricted, case_insensitive,
        case_preserving
    }
    CommitOk { file, verifier }
    Name<'p> { fileid, name, cookie }
    NamePlus<'p> { fileid, name, cookie, attributes, handle }
}
