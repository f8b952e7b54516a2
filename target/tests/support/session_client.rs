//! A client with one session over TCP, and what its server keeps when it is killed.
#![allow(dead_code, reason = "every program of tests uses another part of it")]

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use millrace_admin::client::{Client, ClientToken};
use millrace_wire::nfs4::{
    Attribute, AttributeNumber, Attributes, Bitmap, COMPOUND, CallbackHeader, CallbackOperation,
    CallbackReader, CallbackResults, CallbackSecurity, CallbackSequenceReply, ChannelAttributes,
    ClientOwner, Compound, CompoundReplyHeader, CreateMode, CreateSessionOperation, DelegationType,
    ExchangeIdOperation, HasStatus, LockOperation, LockType, Locker, NewLockOwner, OpenClaim,
    OpenOperation, Operation, OperationResults, OperationStatus as Status, ProtectionOffer,
    ResultsReader, SequenceOperation, SessionId, StateId, StateOwner, exchange_flags,
    session_flags, share,
};
use millrace_wire::rpc::{
    Accepted, AuthSys, CallHeader, CallOutcome, Credential, Groups, OpaqueAuth, ReplyHeader,
    answer_to,
};
use millrace_wire::xdr::{Array, BoundedBytes, Decode, Decoder, Encode, Encoder};

use super::millraced::Server;

/// Ends a test that would wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// The token of the management plane.
const TOKEN: &str = "a-token-of-sufficient-length";

/// What outlives the server: its state, its configuration and the folder.
pub struct ServerFolders(pub tempfile::TempDir);

impl ServerFolders {
    pub fn new() -> Self {
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
             admin: {{ listen: \"127.0.0.1:0\", token_file: {} }}\n\
             state_directory: {}\n",
            path.join("data").display(),
            path.join("token").display(),
            path.join("state").display(),
        );
        let token = path.join("token");
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
        fs::write(path.join("millraced.yaml"), configuration).unwrap();
        Self(folder)
    }

    pub fn start(&self) -> (Server, SocketAddr) {
        let mut server = self.spawn();
        server.await_service();
        let address = Self::address(&server);
        (server, address)
    }

    /// A server that may not serve yet.
    pub fn spawn(&self) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
        command
            .arg("--config")
            .arg(self.0.path().join("millraced.yaml"));
        Server::spawn(command)
    }

    /// Where a server serves NFS over TCP.
    pub fn address(server: &Server) -> SocketAddr {
        let (status, listeners) = server.get("/api/v1/listeners");
        assert_eq!(status, 200);
        let (_, rest) = listeners
            .split_once("\"provider\":\"tcp\",\"address\":\"")
            .unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    }

    /// Adds a line to the configuration.
    pub fn configure(&self, line: &str) {
        let file = self.0.path().join("millraced.yaml");
        let mut file = fs::File::options().append(true).open(file).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    /// Replaces text of the configuration, which is there.
    pub fn edit(&self, from: &str, to: &str) {
        let file = self.0.path().join("millraced.yaml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replace(from, to)).unwrap();
    }

    /// The management plane of a server, with the token.
    pub fn operator(&self, server: &Server) -> Client {
        let address = server.admin.expect("it serves");
        let token = ClientToken::read(&self.0.path().join("token")).unwrap();
        Client::new(&format!("http://{address}"))
            .unwrap()
            .with_token(token)
    }

    /// Records of clients.
    pub fn records(&self) -> Vec<PathBuf> {
        let folder = self.0.path().join("state/clients");
        let files = fs::read_dir(folder).unwrap().map(|one| one.unwrap().path());
        files
            .filter(|file| file.extension().is_some_and(|end| end == "client"))
            .collect()
    }
}

/// The results of a COMPOUND, from its status on.
pub struct Results(Vec<u8>);

impl Results {
    pub fn read<T>(&self, show: impl FnOnce(Status, Vec<OperationResults<'_>>) -> T) -> T {
        let mut input = Decoder::new(&self.0);
        let header = CompoundReplyHeader::decode(&mut input).unwrap();
        let mut reader = ResultsReader::<OperationResults<'_>>::new(input, header.results);
        let all = reader.by_ref().map(Result::unwrap).collect();
        show(header.status, all)
    }

    pub fn status(&self) -> Status {
        self.read(|status, _| status)
    }

    /// The stateid in the result with this number.
    pub fn state(&self, at: usize) -> StateId {
        self.read(|_, all| match all[at] {
            OperationResults::Open(Ok(ref reply)) => reply.open,
            OperationResults::Lock(Ok(state)) => state,
            ref other => panic!("{other:?}"),
        })
    }
}

/// A client with one slot, and a connection.
pub struct SessionClient {
    pub owner: &'static [u8],
    socket: TcpStream,
    xid: u32,
    pub id: u64,
    session: SessionId,
    sequence: u32,
    /// Whether its connection takes callbacks.
    is_callable: bool,
    /// Callbacks that came before a reply.
    callbacks: VecDeque<Vec<u8>>,
}

impl SessionClient {
    /// A client with a session.
    pub fn join(address: SocketAddr, owner: &'static [u8]) -> Self {
        Self::join_as(address, owner, false)
    }

    /// The same; with `is_callable` its connection is for callbacks, too.
    pub fn join_as(address: SocketAddr, owner: &'static [u8], is_callable: bool) -> Self {
        let mut client = Self {
            owner,
            socket: TcpStream::connect(address).unwrap(),
            xid: 0,
            id: 0,
            session: [0; 16],
            sequence: 0,
            is_callable,
            callbacks: VecDeque::new(),
        };
        client.socket.set_read_timeout(Some(LIMIT)).unwrap();
        client.begin();
        client
    }

    /// Connects to a server that was started anew, which knows neither session nor client.
    pub fn reconnect(&mut self, address: SocketAddr) {
        self.socket = TcpStream::connect(address).unwrap();
        self.socket.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(self.run(&[]).status(), Status::BadSession);
        let stale = self.compound(&[session(self.id, 9, false)]);
        assert_eq!(stale.status(), Status::StaleClientId);
        self.begin();
    }

    pub fn begin(&mut self) {
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
        let created = self.compound(&[session(id, sequence, self.is_callable)]);
        self.session = created.read(|_, all| match all[0] {
            OperationResults::CreateSession(Ok(reply)) => reply.session,
            ref other => panic!("{other:?}"),
        });
        self.sequence = 0;
    }

    /// Runs operations behind SEQUENCE.
    pub fn run(&mut self, operations: &[Operation<'_>]) -> Results {
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

    /// Repeats a request of the last number.
    pub fn repeat(&mut self, operations: &[Operation<'_>]) -> Results {
        self.sequence -= 1;
        self.run(operations)
    }

    /// Repeats the last request as it was, on a connection to another server.
    pub fn repeat_at(&mut self, address: SocketAddr, operations: &[Operation<'_>]) -> Results {
        self.socket = TcpStream::connect(address).unwrap();
        self.socket.set_read_timeout(Some(LIMIT)).unwrap();
        self.xid -= 1;
        self.repeat(operations)
    }

    /// The lease that the server tells of.
    pub fn lease(&mut self) -> u32 {
        let wanted = Bitmap::of(&[AttributeNumber::LeaseTime]);
        let results = self.run(&[Operation::Putrootfh(()), Operation::Getattr(wanted)]);
        results.read(|_, all| match all[2] {
            OperationResults::Getattr(Ok(attributes)) => {
                match attributes.get(AttributeNumber::LeaseTime) {
                    Ok(Some(Attribute::LeaseTime(seconds))) => seconds,
                    other => panic!("{other:?}"),
                }
            }
            ref other => panic!("{other:?}"),
        })
    }

    /// The flags that a lone SEQUENCE shows.
    pub fn flags(&mut self) -> u32 {
        self.run(&[]).read(|_, all| match all[0] {
            OperationResults::Sequence(Ok(reply)) => reply.status_flags,
            ref other => panic!("{other:?}"),
        })
    }

    pub fn compound(&mut self, operations: &[Operation<'_>]) -> Results {
        let compound = Compound {
            minor_version: 2,
            operations,
            ..Compound::default()
        };
        let reply = self.call((100_003, 4, COMPOUND), &compound);
        let mut input = Decoder::new(&reply);
        assert_eq!(ReplyHeader::decode(&mut input).unwrap().xid, self.xid);
        Results(input.rest().to_vec())
    }

    /// The status of the answer to a program's NULL.
    pub fn null(&mut self, program: u32, version: u32) -> Accepted {
        let reply = self.call((program, version, 0), &());
        let header = ReplyHeader::decode(&mut Decoder::new(&reply)).unwrap();
        match header.outcome {
            CallOutcome::Accepted { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    /// The reply to a call.
    fn call(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        arguments: &impl Encode,
    ) -> Vec<u8> {
        self.xid += 1;
        let header = CallHeader {
            xid: self.xid,
            program,
            version,
            procedure,
            credential: Credential::Sys(AuthSys {
                stamp: 0,
                machine: b"client",
                uid: 0,
                gid: 0,
                gids: Groups::new(),
            }),
            verifier: OpaqueAuth::NONE,
        };
        let mut bytes = vec![0; 8192];
        let mut out = Encoder::new(&mut bytes);
        header.encode(&mut out).unwrap();
        arguments.encode(&mut out).unwrap();
        let length = out.position();
        self.send(&bytes[..length]);
        loop {
            let record = self.record();
            match record[4..8] {
                [0, 0, 0, 0] => self.callbacks.push_back(record),
                _ => return record,
            }
        }
    }

    /// The next message that comes.
    fn record(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark).unwrap();
        let length = u32::from_be_bytes(mark) & !(1 << 31);
        let mut record = vec![0; length as usize];
        self.socket.read_exact(&mut record).unwrap();
        record
    }

    /// Takes the next callback. Returns the delegation that it recalls.
    pub fn recalled(&mut self) -> StateId {
        let callback = self.callbacks.pop_front();
        let callback = callback.unwrap_or_else(|| self.record());
        let mut input = Decoder::new(&callback);
        let header = CallHeader::decode(&mut input).unwrap();
        let compound = CallbackHeader::decode(&mut input).unwrap();
        let all = CallbackReader::new(input, compound.minor_version, compound.operations);
        let all: Vec<_> = all.map(Result::unwrap).collect();
        let [
            CallbackOperation::Sequence(sequence),
            CallbackOperation::Recall(recall),
        ] = &all[..]
        else {
            panic!("{all:?}")
        };
        let taken = CallbackSequenceReply {
            session: sequence.session,
            sequence: sequence.sequence,
            slot: sequence.slot,
            highest_slot: 0,
            target_highest_slot: 0,
        };
        let mut bytes = vec![0; 512];
        let mut out = Encoder::new(&mut bytes);
        answer_to(header.xid, Accepted::Success)
            .encode(&mut out)
            .unwrap();
        let results = CompoundReplyHeader {
            status: Status::Ok,
            tag: BoundedBytes(b""),
            results: 2,
        };
        results.encode(&mut out).unwrap();
        for result in [
            CallbackResults::Sequence(Ok(taken)),
            CallbackResults::Recall(Ok(())),
        ] {
            result.encode(&mut out).unwrap();
        }
        let length = out.position();
        self.send(&bytes[..length]);
        recall.delegation
    }

    /// Sends a message.
    fn send(&mut self, message: &[u8]) {
        let mark = u32::try_from(message.len()).unwrap() | 1 << 31;
        self.socket.write_all(&mark.to_be_bytes()).unwrap();
        self.socket.write_all(message).unwrap();
    }

    pub fn reclaim_complete(&mut self) -> Status {
        self.run(&[Operation::ReclaimComplete(false)]).status()
    }

    /// Opens a file of an export by its name, and returns the handle and the stateid.
    pub fn open(&mut self, export: &[u8], name: &[u8]) -> Result<(Vec<u8>, StateId), Status> {
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

    pub fn reclaim(&mut self, handle: &[u8]) -> Result<StateId, Status> {
        let results = self.reclaim_with(handle, DelegationType::None);
        match results.status() {
            Status::Ok => Ok(results.state(2)),
            status => Err(status),
        }
    }

    /// Reclaims an open and a delegation.
    pub fn reclaim_with(&mut self, handle: &[u8], delegation: DelegationType) -> Results {
        let opening = self.opening(None, OpenClaim::Previous(delegation));
        self.run(&[Operation::Putfh(BoundedBytes(handle)), opening])
    }

    pub fn opening<'a>(
        &self,
        create: Option<CreateMode<'a>>,
        claim: OpenClaim<'a>,
    ) -> Operation<'a> {
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
    pub fn lock(&mut self, handle: &[u8], open: StateId, reclaim: bool) -> Status {
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

fn session(client: u64, sequence: u32, is_callable: bool) -> Operation<'static> {
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
        flags: match is_callable {
            true => session_flags::BACKCHANNEL,
            false => 0,
        },
        fore: limits,
        back: limits,
        callback_program: 0x4000_0000,
        security: Array::new(match is_callable {
            true => &[CallbackSecurity::None],
            false => &[],
        }),
    })
}

pub fn kill(mut server: Server) {
    server.process.kill().unwrap();
    server.process.wait().unwrap();
}
