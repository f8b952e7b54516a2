//! A WRITE that is given up leaves the file as it was, for every other client.

mod support;

#[path = "../../reactor/tests/support/mod.rs"]
mod scripted;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use millrace::handle::HandleKey;
use millrace::rdma::{FabricSlot, Responder, ResponderShared, Settings, work};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};
use millrace_reactor::fabric::{AnyProvider, ControlPath, QueuePairLimits};
use millrace_store::Store;
use millrace_store::memory::MemoryStore;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    ReadArguments, SetAttributes,
};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcrdma::{CallChunks, Segment};
use millrace_wire::xdr::{Bulk, Encode, from_bytes};
use scripted::Peer;
use scripted::fpdu;
use scripted::frames::{self, ENHANCED};
use support::message::{inline, nfs, parse, plain, reads};
use support::served::{Nfs, read_results, status, write};
use support::{SECRET, memory_store, results, rules, service};

/// Turns within which what one side sends arrives at the other, whatever the machine does.
const TURNS_MAX: usize = 10_000_000;
/// Bytes of a large extent of the store.
const BLOCK: usize = 64 * 1024;
/// Bytes that a READ or WRITE without chunks moves.
const PART: usize = 2048;
const KEY: u32 = 0x1234;

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 64,
    ird: 4,
    ord: 4,
    exposures: 0,
    receive_size: 4096,
};

/// A responder that serves NFS over software iWARP.
struct Server {
    turn: Box<dyn FnMut()>,
    address: SocketAddr,
    store: MemoryStore,
    root: FileHandle,
}

impl Server {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let store = memory_store(&registry);
        let programs = service([(rules("/export"), store.clone())]);
        let export = programs.exports().iter().next().unwrap().id.0;
        let root = HandleKey::new(&SECRET).seal(export, store.root());
        let pool = Pool::new(&registry, PoolConfig { bytes: 32 << 20 }).unwrap();
        let now = Instant::now();
        let settings = Settings::new(4096, 32, 1 << 20, true);
        let shared = Rc::new(ResponderShared::new(
            programs,
            pool,
            Clock::new(now),
            settings,
        ));
        let config = IwarpConfig {
            crc: CrcPolicy::Off,
            ..IwarpConfig::default()
        };
        let mut provider = Iwarp::new(config).unwrap();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = provider.listen(anywhere, LIMITS, false).unwrap();
        let address = provider.listener_address(listener).unwrap();
        let fabric = AnyProvider::Dynamic(Box::new(provider));
        let slot = FabricSlot::new(Rc::new(RefCell::new(fabric)), LIMITS, Some(listener));
        let mut responder = Responder::new(shared, vec![slot], work, None);
        let turn = move || {
            responder.poll(now, |_, incoming| panic!("handed over: {incoming:?}"));
            responder.run();
            responder.flush(now);
        };
        Self {
            turn: Box::new(turn),
            address,
            store,
            root,
        }
    }

    #[track_caller]
    fn until<T>(&mut self, mut attempt: impl FnMut() -> Option<T>) -> T {
        for _ in 0..TURNS_MAX {
            (self.turn)();
            if let Some(answer) = attempt() {
                return answer;
            }
            std::thread::yield_now();
        }
        panic!("it never comes to be");
    }
}

/// A client that sends what a test tells it to.
struct Client {
    peer: Peer,
    sent: u32,
}

impl Client {
    fn connect(server: &mut Server) -> Self {
        let private = PrivateData {
            remote_invalidation: false,
            send_size: 4096,
            receive_size: 4096,
        };
        let data = [&frames::data(0, 4, 4)[..], &private.to_bytes()].concat();
        let mut peer = Peer::connect(server.address);
        peer.send(&frames::request(ENHANCED, 2, &data));
        let reply = server.until(|| peer.take_frame());
        peer.crc = reply.flags & frames::CRC != 0;
        Self { peer, sent: 0 }
    }

    fn send(&mut self, message: &[u8]) {
        self.sent += 1;
        self.peer
            .send_segment(&fpdu::Segment::send(self.sent, message));
    }

    #[track_caller]
    fn segment(&mut self, server: &mut Server) -> fpdu::Segment {
        server.until(|| self.peer.take_segment())
    }

    /// Results of a call without chunks.
    #[track_caller]
    fn call(
        &mut self,
        server: &mut Server,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> Vec<u8> {
        let xid = self.sent + 1;
        self.send(&plain(&nfs(xid, procedure, arguments)));
        let mut reply = Vec::new();
        loop {
            let segment = self.segment(server);
            assert_eq!(segment.opcode, fpdu::opcode::SEND);
            reply.extend(segment.payload);
            if segment.last {
                return results(&parse(&reply).message).to_vec();
            }
        }
    }

    /// A file with content.
    fn file(&mut self, server: &mut Server, content: &[u8]) -> FileHandle {
        let entry = NameInDirectory {
            directory: server.root,
            name: b"file",
        };
        let how = CreateHow::Guarded(SetAttributes::default());
        let created = self.call(server, Procedure::Create, &CreateArguments { entry, how });
        let created = from_bytes::<CreateResults>(&created).unwrap();
        let file = created.unwrap().object.unwrap();
        for (index, part) in content.chunks(PART).enumerate() {
            let offset = (PART * index) as u64;
            let arguments = write(file, offset, Bulk::inline(part));
            assert_eq!(status(&self.call(server, Procedure::Write, &arguments)), 0);
        }
        file
    }

    /// The content of a file, and its attributes as they are encoded.
    fn look(&mut self, server: &mut Server, file: FileHandle) -> (Vec<u8>, Vec<u8>) {
        let mut content = Vec::new();
        loop {
            let arguments = ReadArguments {
                file,
                offset: content.len() as u64,
                count: PART as u32,
            };
            let results = self.call(server, Procedure::Read, &arguments);
            let (length, eof, data) = read_results(&results);
            content.extend(&data[..length]);
            if eof {
                break;
            }
        }
        (content, self.call(server, Procedure::Getattr, &file))
    }

    /// Begins a WRITE whose data is in the client's memory, and takes the first RDMA Read for it:
    /// sink key and offset, and length.
    fn begin_write(
        &mut self,
        server: &mut Server,
        file: FileHandle,
        offset: u64,
        length: u32,
    ) -> (u32, u64, u32) {
        let xid = self.sent + 1;
        let rpc = nfs(
            xid,
            Procedure::Write,
            &write(file, offset, Bulk::apart(length)),
        );
        let source = Segment {
            handle: KEY,
            length,
            offset: 0,
        };
        let chunks = CallChunks {
            reads: &reads(rpc.len(), &[source]),
            ..CallChunks::default()
        };
        self.send(&inline(&chunks, &rpc));
        let request = self.segment(server);
        let ((key, sink), length, source) = request.read_of().expect("an RDMA Read");
        assert_eq!(source, (KEY, 0));
        (key, sink, length)
    }

    fn answer(&mut self, key: u32, offset: u64, payload: &[u8], last: bool) {
        let mut segment = fpdu::Segment::read_response(key, offset, payload);
        segment.last = last;
        self.peer.send_segment(&segment);
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8).collect()
}

/// Where the WRITEs go: whole extents and parts, and the end of the file.
const WRITES: [(u64, u32); 4] = [
    (BLOCK as u64, BLOCK as u32),
    (0, 4096),
    (BLOCK as u64 + 100, 40_000),
    (3 * BLOCK as u64 - 4000, 9000),
];

/// Has a client begin WRITEs that `end` ends badly, and another look at the file after each.
fn spoil(end: impl Fn(Client, (u32, u64, u32)) -> Option<Client>) {
    let mut server = Server::new();
    let mut other = Client::connect(&mut server);
    let content = pattern(3 * BLOCK);
    let file = other.file(&mut server, &content);
    let before = other.look(&mut server, file);
    assert!(before.0 == content);
    let taken = server.store.usage().used_bytes;
    for (offset, length) in WRITES {
        let mut client = Client::connect(&mut server);
        let read = client.begin_write(&mut server, file, offset, length);
        let is_staged = server.store.usage().used_bytes > taken;
        assert_eq!(is_staged, length > 4096, "less is fetched first");
        // Once the server has noticed, it lets the connection go.
        let mut client = end(client, read);
        let store = server.store.clone();
        server.until(|| {
            if client
                .as_mut()
                .is_some_and(|client| client.peer.is_closed())
            {
                client = None;
            }
            (store.usage().used_bytes == taken).then_some(())
        });
        let after = other.look(&mut server, file);
        assert!(after.0 == before.0, "the bytes, after a WRITE at {offset}");
        assert!(
            after.1 == before.1,
            "the attributes, after a WRITE at {offset}"
        );
    }
}

#[test]
fn a_client_that_leaves_after_part_of_a_read_changes_nothing() {
    spoil(|mut client, (key, sink, length)| {
        let part = vec![0xee; length.min(3000) as usize - 8];
        client.answer(key, sink, &part, false);
        None
    });
}

#[test]
fn a_read_response_that_is_too_long_changes_nothing() {
    spoil(|mut client, (key, sink, length)| {
        let mut at = 0;
        while at < length {
            let part = vec![0xee; 1000.min((length - at) as usize)];
            client.answer(key, sink + u64::from(at), &part, false);
            at += part.len() as u32;
        }
        client.answer(key, sink + u64::from(length), &[0xee; 8], true);
        Some(client)
    });
}

#[test]
fn a_write_that_loses_a_part_of_its_data_changes_nothing() {
    let mut nfs = Nfs::new();
    let content = pattern(3 * BLOCK);
    let file = nfs.file(b"file", &content);
    assert!(nfs.content(file) == content);
    let attributes = nfs.call(Procedure::Getattr, &file);
    for first in [1000, BLOCK as u32, BLOCK as u32 + 5] {
        let client = nfs.world.connect();
        let (good, lost) = (
            nfs.world.source(client, &vec![0xee; 2 * BLOCK]),
            nfs.world.source(client, &[0xee; BLOCK]),
        );
        nfs.world.revoke(client, &lost);
        let (rpc, position) = nfs.write_message(file, first + BLOCK as u32);
        let segments = [good.segment(0, first), lost.segment(0, BLOCK as u32)];
        let chunks = CallChunks {
            reads: &reads(position, &segments),
            ..CallChunks::default()
        };
        nfs.world.send(client, &inline(&chunks, &rpc));
        assert!(!nfs.world.is_open(client));
        assert!(
            nfs.content(file) == content,
            "a WRITE with {first} good bytes"
        );
        assert_eq!(nfs.call(Procedure::Getattr, &file), attributes);
    }
    nfs.world.check_clean();
}
