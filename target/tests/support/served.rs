//! The programs of the service over a memory store, behind a responder.

use millrace::handle::HandleKey;
use millrace::service::ReactorPrograms;
use millrace_reactor::fabric::testing::registry;
use millrace_store::Store;
use millrace_store::memory::MemoryStore;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    ReadArguments, SetAttributes, Stability, SymlinkArguments, WriteArguments,
};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::{Bulk, Encode, from_bytes};

use super::message::{self, Parsed, parse, reads};
use super::raw::{Memory, Options, World};
use super::{SECRET, memory_store, results, rules, service};

/// A responder that serves NFS at `/export`.
pub struct Nfs {
    pub world: World<ReactorPrograms<MemoryStore>>,
    pub store: MemoryStore,
    pub root: FileHandle,
    xid: u32,
}

impl Nfs {
    /// With one connection already.
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let registry = registry();
        let store = memory_store(&registry);
        let service = service([(rules("/export"), store.clone())]);
        let exports = service.exports();
        let export = exports.iter().next().unwrap().id.0;
        let sealed = HandleKey::new(&SECRET).seal(export, store.root());
        let mut world = World::new(service, options);
        world.connect();
        Self {
            world,
            store,
            root: sealed,
            xid: 0x100,
        }
    }

    pub fn xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    /// An inline call without chunks on the first connection; the encoded results.
    #[track_caller]
    pub fn call(&mut self, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let rpc = message::nfs(self.xid(), procedure, arguments);
        let reply = self.world.exchange(0, &message::plain(&rpc));
        results(&parse(&reply).message).to_vec()
    }

    /// Makes an empty file.
    pub fn create(&mut self, name: &[u8]) -> FileHandle {
        let entry = NameInDirectory {
            directory: self.root,
            name,
        };
        let how = CreateHow::Guarded(SetAttributes::default());
        let created = self.call(Procedure::Create, &CreateArguments { entry, how });
        let created = from_bytes::<CreateResults>(&created).unwrap().unwrap();
        created.object.unwrap()
    }

    /// Makes a file with content.
    pub fn file(&mut self, name: &[u8], content: &[u8]) -> FileHandle {
        let file = self.create(name);
        for (index, part) in content.chunks(2048).enumerate() {
            let offset = 2048 * index as u64;
            self.call(Procedure::Write, &write(file, offset, Bulk::inline(part)));
        }
        file
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, name: &[u8], text: &[u8]) -> FileHandle {
        let entry = NameInDirectory {
            directory: self.root,
            name,
        };
        let attributes = SetAttributes::default();
        let text = Bulk::inline(text);
        let arguments = SymlinkArguments {
            entry,
            attributes,
            text,
        };
        let created = self.call(Procedure::Symlink, &arguments);
        let created = from_bytes::<CreateResults>(&created).unwrap().unwrap();
        created.object.unwrap()
    }

    /// The content of a file, read inline.
    pub fn content(&mut self, file: FileHandle) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let arguments = ReadArguments {
                file,
                offset: content.len() as u64,
                count: 2048,
            };
            let results = self.call(Procedure::Read, &arguments);
            let (length, eof, data) = read_results(&results);
            content.extend(&data[..length]);
            if eof {
                return content;
            }
        }
    }

    /// The RPC message of a WRITE without its data, and where the data belongs.
    pub fn write_message(&mut self, file: FileHandle, length: u32) -> (Vec<u8>, usize) {
        let rpc = message::nfs(
            self.xid(),
            Procedure::Write,
            &write(file, 0, Bulk::apart(length)),
        );
        let position = rpc.len();
        (rpc, position)
    }

    /// A WRITE of `length` bytes whose data is in these segments of `memory`.
    pub fn write_from(
        &mut self,
        file: FileHandle,
        length: u32,
        memory: &Memory,
        cut: &[u32],
    ) -> Vec<u8> {
        let (rpc, position) = self.write_message(file, length);
        let reads = reads(position, &memory.cut(cut));
        let chunks = CallChunks {
            reads: &reads,
            ..CallChunks::default()
        };
        self.world.exchange(0, &message::inline(&chunks, &rpc))
    }

    /// The RPC message of a READ.
    pub fn read_message(&mut self, file: FileHandle, count: u32) -> Vec<u8> {
        let arguments = ReadArguments {
            file,
            offset: 0,
            count,
        };
        message::nfs(self.xid(), Procedure::Read, &arguments)
    }

    /// A READ whose data goes to a write chunk of these segments.
    #[track_caller]
    pub fn read_into(
        &mut self,
        file: FileHandle,
        count: u32,
        sink: &Memory,
        cut: &[u32],
    ) -> Parsed {
        parse(&self.read_raw(file, count, sink, cut))
    }

    /// What answers such a READ.
    #[track_caller]
    pub fn read_raw(
        &mut self,
        file: FileHandle,
        count: u32,
        sink: &Memory,
        cut: &[u32],
    ) -> Vec<u8> {
        let rpc = self.read_message(file, count);
        let segments = sink.cut(cut);
        let chunks = CallChunks {
            writes: &[&segments],
            ..CallChunks::default()
        };
        self.world.exchange(0, &message::inline(&chunks, &rpc))
    }
}

pub fn write(file: FileHandle, offset: u64, data: Bulk<'_>) -> WriteArguments<'_> {
    WriteArguments {
        file,
        offset,
        count: data.length,
        stable: Stability::Unstable,
        data,
    }
}

/// The status of encoded results.
pub fn status(results: &[u8]) -> u32 {
    message::word(results, 0)
}

/// Length word, end of file and what follows, of the results of a successful READ.
#[track_caller]
pub fn read_results(results: &[u8]) -> (usize, bool, &[u8]) {
    assert_eq!(status(results), 0);
    // Status, attributes with their presence word, count, end of file, length word.
    assert_eq!(message::word(results, 1), 1);
    let after = 4 + 4 + 84;
    let length = message::word(results, after / 4 + 2) as usize;
    assert_eq!(message::word(results, after / 4) as usize, length);
    (
        length,
        message::word(results, after / 4 + 1) == 1,
        &results[after + 12..],
    )
}
