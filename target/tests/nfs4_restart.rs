//! What clients of NFS version 4 keep when `millraced` is killed and started again, over TCP.

#[path = "support/millraced.rs"]
mod millraced;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attributes, COMPOUND, ChannelAttributes, ClientOwner, Compound, CompoundReplyHeader,
    CreateMode, CreateSessionOperation, DelegationType, ExchangeIdOperation, HasStatus,
    LockOperation, LockType, Locker, NewLockOwner, OpenClaim, OpenOperation, Operation,
    OperationResults, OperationStatus as Status, ProtectionOffer, ReadOperation, ResultsReader,
    SequenceOperation, SessionId, StateId, StateOwner, WriteOperation, exchange_flags,
    sequence_flags, share,
};
use millrace_wire::rpc::{AuthSys, CallHeader, Credential, Groups, OpaqueAuth, ReplyHeader};
use millrace_wire::xdr::{Array, BoundedBytes, Bulk, Decode, Decoder, Encode, Encoder};
use millraced::Server;

/// Ends a test that would wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// What outlives the server: its state, its configuration and the folder.
struct ServerFolders(tempfile::TempDir);

impl ServerFolders {
    fn new() -> Self {
        // On a file system with handles; temporary folders need not be.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path();
        fs::create_dir(path.join("data")).unwrap();
        let configuration = format!(
            "reactors: {{ cores: auto, poll: adaptive }}\n\
             mempool: {{ hugepages: off, size: 16MiB }}\n\
             fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
             rpc: {{ listen: \"127.0.0.1:0\" }}\n\
             nfs4: {{ minor_versions: [1, 2] }}\n\
             exports:\n- {{ path: /data, store: {{ kind: posix, root: {} }} }}\n\
             - {{ path: /memory, store: {{ kind: memory, size: 1MiB }} }}\n\
             admin: {{ listen: \"127.0.0.1:0\" }}\n\
             state_directory: {}\n",
            path.join("data").display(),
            path.join("state").display(),
        );
        fs::write(path.join("millraced.yaml"), configuration).unwrap();
        Self(folder)
    }

    fn start(&self) -> (Server, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
        command
            .arg("--config")
            .arg(self.0.path().join("millraced.yaml"));
        let server = Server::serving(command);
        let (status, listeners) = server.get("/api/v1/listeners");
        assert_eq!(status, 200);
        let (_, rest) = listeners
            .split_once("\"provider\":\"tcp\",\"address\":\"")
            .unwrap();
        let rpc = rest.split('"').next().unwrap().parse().unwrap();
        (server, rpc)
    }

    /// Records of clients.
    fn records(&self) -> Vec<PathBuf> {
        let folder = self.0.path().join("state/clients");
        let files = fs::read_dir(folder).unwrap().map(|one| one.unwrap().path());
        files
            .filter(|file| file.extension().is_some_and(|end| end == "client"))
            .collect()
    }
}

/// The results of a COMPOUND, from its status on.
struct Results(Vec<u8>);

impl Results {
    fn read<T>(&self, show: impl FnOnce(Status, Vec<OperationResults<'_>>) -> T) -> T {
        let mut input = Decoder::new(&self.0);
        let header = CompoundReplyHeader::decode(&mut input).unwrap();
        let mut reader = ResultsReader::<OperationResults<'_>>::new(input, header.results);
        let all = reader.by_ref().map(Result::unwrap).collect();
        show(header.status, all)
    }

    fn status(&self) -> Status {
        self.read(|status, _| status)
    }

    /// The stateid in the result with this number.
    fn state(&self, at: usize) -> StateId {
        self.read(|_, all| match all[at] {
            OperationResults::Open(Ok(ref reply)) => reply.open,
            OperationResults::Lock(Ok(state)) => state,
            ref other => panic!("{other:?}"),
        })
    }
}

/// A client with one slot, and a connection.
struct Client {
    owner: &'static [u8],
    socket: TcpStream,
    xid: u32,
    id: u64,
    session: SessionId,
    sequence: u32,
}

impl Client {
    /// A client with a session.
    fn join(address: SocketAddr, owner: &'static [u8]) -> Self {
        let mut client = Self {
            owner,
            socket: TcpStream::connect(address).unwrap(),
            xid: 0,
            id: 0,
            session: [0; 16],
            sequence: 0,
        };
        client.socket.set_read_timeout(Some(LIMIT)).unwrap();
        client.begin();
        client
    }

    /// Connects to a server that was started anew, which knows neither session nor client.
    fn reconnect(&mut self, address: SocketAddr) {
        self.socket = TcpStream::connect(address).unwrap();
        self.socket.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(self.run(&[]).status(), Status::BadSession);
        let stale = self.compound(&[session(self.id, 9)]);
        assert_eq!(stale.status(), Status::StaleClientId);
        self.begin();
    }

    fn begin(&mut self) {
        let exchange = Operation::ExchangeId(ExchangeIdOperation {
            owner: ClientOwner {
                verifier: [1; 8],
                owner: BoundedBytes(self.owner),
            },
            flags: 0,
            protection: ProtectionOffer::Unprotected,
            implementation: None,
        });
        let (id, sequence) = self.compound(&[exchange]).read(|_, all| match all[0] {
            OperationResults::ExchangeId(Ok(reply)) => {
                assert_eq!(reply.flags & exchange_flags::CONFIRMED, 0);
                (reply.client, reply.sequence)
            }
            ref other => panic!("{other:?}"),
        });
        self.id = id;
        let created = self.compound(&[session(id, sequence)]);
        self.session = created.read(|_, all| match all[0] {
            OperationResults::CreateSession(Ok(reply)) => reply.session,
            ref other => panic!("{other:?}"),
        });
        self.sequence = 0;
    }

    /// Runs operations behind SEQUENCE.
    fn run(&mut self, operations: &[Operation<'_>]) -> Results {
        self.sequence += 1;
        let mut all = vec![Operation::Sequence(SequenceOperation {
            session: self.session,
            sequence: self.sequence,
            slot: 0,
            highest_slot: 0,
            cache_this: false,
        })];
        all.extend_from_slice(operations);
        self.compound(&all)
    }

    /// The flags that a lone SEQUENCE shows.
    fn flags(&mut self) -> u32 {
        self.run(&[]).read(|_, all| match all[0] {
            OperationResults::Sequence(Ok(reply)) => reply.status_flags,
            ref other => panic!("{other:?}"),
        })
    }

    fn compound(&mut self, operations: &[Operation<'_>]) -> Results {
        self.xid += 1;
        let header = CallHeader {
            xid: self.xid,
            program: 100_003,
            version: 4,
            procedure: COMPOUND,
            credential: Credential::Sys(AuthSys {
                stamp: 0,
                machine: b"client",
                uid: 0,
                gid: 0,
                gids: Groups::new(),
            }),
            verifier: OpaqueAuth::NONE,
        };
        let compound = Compound {
            minor_version: 2,
            operations,
            ..Compound::default()
        };
        let mut bytes = vec![0; 8192];
        let mut out = Encoder::new(&mut bytes);
        header.encode(&mut out).unwrap();
        compound.encode(&mut out).unwrap();
        let length = out.position();
        let mark = u32::try_from(length).unwrap() | 1 << 31;
        self.socket.write_all(&mark.to_be_bytes()).unwrap();
        self.socket.write_all(&bytes[..length]).unwrap();
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark).unwrap();
        let length = u32::from_be_bytes(mark) & !(1 << 31);
        let mut reply = vec![0; length as usize];
        self.socket.read_exact(&mut reply).unwrap();
        let mut input = Decoder::new(&reply);
        assert_eq!(ReplyHeader::decode(&mut input).unwrap().xid, self.xid);
        Results(input.rest().to_vec())
    }

    fn reclaim_complete(&mut self) -> Status {
        self.run(&[Operation::ReclaimComplete(false)]).status()
    }

    /// Opens a file of an export by its name, and returns the handle and the stateid.
    fn open(&mut self, export: &[u8], name: &[u8]) -> Result<(Vec<u8>, StateId), Status> {
        let create = CreateMode::Unchecked(Attributes::NONE);
        let results = self.run(&[
            Operation::Putrootfh(()),
            Operation::Lookup(export),
            self.opening(Some(create), OpenClaim::Name(name)),
            Operation::Getfh(()),
        ]);
        match results.status() {
            Status::Ok => {}
            status => return Err(status),
        }
        let handle = results.read(|_, all| match all[4] {
            OperationResults::Getfh(Ok(handle)) => handle.0.to_vec(),
            ref other => panic!("{other:?}"),
        });
        Ok((handle, results.state(3)))
    }

    fn reclaim(&mut self, handle: &[u8]) -> Result<StateId, Status> {
        let claim = OpenClaim::Previous(DelegationType::None);
        let opening = self.opening(None, claim);
        let results = self.run(&[Operation::Putfh(BoundedBytes(handle)), opening]);
        match results.status() {
            Status::Ok => Ok(results.state(2)),
            status => Err(status),
        }
    }

    fn opening<'a>(&self, create: Option<CreateMode<'a>>, claim: OpenClaim<'a>) -> Operation<'a> {
        Operation::Open(OpenOperation {
            sequence: 0,
            access: share::BOTH,
            deny: 0,
            owner: StateOwner {
                client: self.id,
                owner: BoundedBytes(b"owner"),
            },
            create,
            claim,
        })
    }

    /// Locks the first bytes of a file.
    fn lock(&mut self, handle: &[u8], open: StateId, reclaim: bool) -> Status {
        let lock = Operation::Lock(LockOperation {
            kind: LockType::Write,
            reclaim,
            offset: 0,
            length: 10,
            locker: Locker::New(NewLockOwner {
                open_sequence: 0,
                open,
                lock_sequence: 0,
                owner: StateOwner {
                    client: self.id,
                    owner: BoundedBytes(b"locker"),
                },
            }),
        });
        let results = self.run(&[Operation::Putfh(BoundedBytes(handle)), lock]);
        results.read(|status, all| {
            assert_eq!(all.last().unwrap().status(), status);
            status
        })
    }
}

fn session(client: u64, sequence: u32) -> Operation<'static> {
    let limits = ChannelAttributes {
        header_padding: 0,
        request_size: 8192,
        response_size: 8192,
        cached_size: 1024,
        operations: 8,
        requests: 1,
        rdma_ird: None,
    };
    Operation::CreateSession(CreateSessionOperation {
        client,
        sequence,
        flags: 0,
        fore: limits,
        back: limits,
        callback_program: 0x4000_0000,
        security: Array::new(&[]),
    })
}

fn kill(mut server: Server) {
    server.process.kill().unwrap();
    server.process.wait().unwrap();
}

#[test]
fn v4_lease_11_to_26_opens_and_locks_outlive_a_killed_server() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = Client::join(address, b"first");
    assert_eq!(client.open(b"data", b"early"), Err(Status::Grace));
    let early = folders.0.path().join("data/early");
    assert!(!early.exists(), "nothing is made for an OPEN that waits");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    assert!(folders.records().is_empty());
    let (handle, open) = client.open(b"data", b"file").unwrap();
    assert_eq!(folders.records().len(), 1, "V4-LEASE-25");
    assert_eq!(client.lock(&handle, open, false), Status::Ok);
    assert_eq!(client.lock(&handle, open, true), Status::NoGrace);
    kill(server);

    // Killed once more before all is reclaimed.
    let (server, address) = folders.start();
    client.reconnect(address);
    client.reclaim(&handle).unwrap();
    kill(server);

    let (server, address) = folders.start();
    let (_, metrics) = server.get("/metrics");
    for line in ["grace_clients 1", "records_damaged 0"] {
        let line = format!("\nmillrace_nfs4_{line}\n");
        assert!(metrics.contains(&line), "V4-PERF-08: {line}");
    }
    client.reconnect(address);
    assert_eq!(client.flags(), sequence_flags::RESTART_RECLAIM);
    let mut other = Client::join(address, b"second");
    assert_eq!(other.flags(), 0);
    assert_eq!(other.reclaim_complete(), Status::Ok);
    assert_eq!(other.open(b"data", b"early"), Err(Status::Grace));
    assert!(!early.exists());
    assert_eq!(other.reclaim(&handle), Err(Status::NoGrace));
    let open = client.reclaim(&handle).unwrap();
    assert_eq!(client.lock(&handle, open, false), Status::Grace);
    assert_eq!(client.lock(&handle, open, true), Status::Ok);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    assert_eq!(client.flags(), 0);
    assert_eq!(client.reclaim(&handle), Err(Status::NoGrace));
    // The grace period has ended with the last client.
    let (_, open) = other.open(b"data", b"file").unwrap();
    assert_eq!(other.lock(&handle, open, false), Status::Denied);
    assert_eq!(folders.records().len(), 2);
    kill(server);
}

#[test]
fn v4_lease_29_opens_in_memory_are_not_recorded_and_handles_are_stale_after_a_restart() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = Client::join(address, b"first");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, _) = client.open(b"memory", b"file").unwrap();
    assert!(folders.records().is_empty());
    kill(server);
    let (server, address) = folders.start();
    client.reconnect(address);
    assert_eq!(client.reclaim(&handle), Err(Status::Stale));
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"memory", b"file").unwrap();
    kill(server);
}

#[test]
fn v4_lease_27_the_client_of_a_damaged_record_is_not_waited_for() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = Client::join(address, b"first");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, _) = client.open(b"data", b"file").unwrap();
    kill(server);
    let [record] = &folders.records()[..] else {
        panic!("one record")
    };
    let mut bytes = fs::read(record).unwrap();
    bytes[20] ^= 1;
    fs::write(record, bytes).unwrap();
    let (server, address) = folders.start();
    assert!(server.read.contains("damaged"), "{}", server.read);
    client.reconnect(address);
    assert_eq!(client.reclaim(&handle), Err(Status::NoGrace));
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"data", b"file").unwrap();
    kill(server);
}

/// Owner and scope of a server.
fn identity(client: &mut Client) -> (Vec<u8>, Vec<u8>) {
    let exchange = Operation::ExchangeId(ExchangeIdOperation {
        owner: ClientOwner {
            verifier: [1; 8],
            owner: BoundedBytes(client.owner),
        },
        flags: 0,
        protection: ProtectionOffer::Unprotected,
        implementation: None,
    });
    client.compound(&[exchange]).read(|_, all| match all[0] {
        OperationResults::ExchangeId(Ok(reply)) => {
            (reply.owner.major.0.to_vec(), reply.scope.0.to_vec())
        }
        ref other => panic!("{other:?}"),
    })
}

#[test]
fn v4_sess_17_and_v4_data_07_a_server_and_what_it_wrote_outlive_its_restart() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = Client::join(address, b"client");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let known = identity(&mut client);
    let (handle, state) = client.open(b"data", b"file").unwrap();
    for (offset, stable) in [(0, Stability::DataSync), (4, Stability::FileSync)] {
        let write = Operation::Write(WriteOperation {
            state,
            offset,
            stable,
            data: Bulk::inline(b"data"),
        });
        let written = client.run(&[Operation::Putfh(BoundedBytes(&handle)), write]);
        written.read(|_, all| match &all[2] {
            OperationResults::Write(Ok(reply)) => {
                assert_ne!(reply.committed, Stability::Unstable);
                assert!(stable == Stability::DataSync || reply.committed == stable);
            }
            other => panic!("{other:?}"),
        });
    }
    // Another server on the same host is another one.
    let others = ServerFolders::new();
    let (other, elsewhere) = others.start();
    let mut stranger = Client::join(elsewhere, b"client");
    let foreign = identity(&mut stranger);
    assert_ne!((&foreign.0, &foreign.1), (&known.0, &known.1));
    assert_ne!(foreign.0, known.0);
    assert_ne!(foreign.1, known.1);
    drop(other);
    // It is killed.
    drop(server);
    let (_server, address) = folders.start();
    client.reconnect(address);
    assert_eq!(identity(&mut client), known);
    let read = Operation::Read(ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 0,
        count: 16,
    });
    let found = client.run(&[Operation::Putfh(BoundedBytes(&handle)), read]);
    found.read(|_, all| match &all[2] {
        OperationResults::Read(Ok(reply)) => {
            assert_eq!(reply.data.as_inline(), Some(&b"datadata"[..]));
        }
        other => panic!("{other:?}"),
    });
}
