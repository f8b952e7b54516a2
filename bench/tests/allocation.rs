//! Steady calls allocate nothing: counted at the allocator, without what the provider does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use millrace_bench::requester::{
    Call, Connection, Data, GssContext, Repetition, RequesterState, Settings, SubmitError,
};
use millrace_gss::{ContextKeys, Enctype, Protection, Side};
use millrace_mempool::{Buffer, Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::fabric::loopback::{Loopback, Network};
use millrace_reactor::fabric::testing::Wrapper;
use millrace_reactor::fabric::{
    Access, ConnectParameters, ControlPath, DataPath, Event, ExposeError, Exposure, Key, Operation,
    PostError, PrivateData, Provider, QueuePairId, QueuePairLimits, Revoked, Slices, WorkRequest,
};
use millrace_testing::allocation::{CountingAllocator, allocations, uncounted};
use millrace_wire::nfs3::{
    FileHandle, Procedure, ReadArguments, ReaddirArguments, Stability, WriteArguments,
};
use millrace_wire::private_data;
use millrace_wire::rpc::{GssService, RPCSEC_GSS};
use millrace_wire::rpcrdma::{Version, Versions};
use millrace_wire::xdr::Bulk;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The loopback provider, whose own allocations do not count.
struct Uncounted(Loopback);

impl Wrapper for Uncounted {
    fn inner(&self) -> &dyn Provider {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut dyn Provider {
        &mut self.0
    }
    fn post_receive(&mut self, id: QueuePairId, buffer: Buffer) -> Result<(), (PostError, Buffer)> {
        uncounted(|| self.0.post_receive(id, buffer))
    }
    fn post(&mut self, id: QueuePairId, chain: &mut Vec<WorkRequest>) -> Result<(), PostError> {
        uncounted(|| self.0.post(id, chain))
    }
    fn expose(
        &mut self,
        id: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let mut exposed = None;
        uncounted(|| exposed = Some(self.0.expose(id, local, access)));
        exposed.expect("just done")
    }
    fn revoke(&mut self, id: QueuePairId, key: Key) -> Revoked {
        uncounted(|| self.0.revoke(id, key))
    }
}

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 64,
    ird: 16,
    ord: 16,
    exposures: 64,
    receive_size: 4096,
};

struct Bench {
    client: Uncounted,
    server: Loopback,
    connection: Connection,
    pool: Pool,
    server_pool: Pool,
    now: Instant,
    ended: u64,
    /// Allocations by the requester.
    allocated: u64,
    /// The last call as the server received it.
    received: Vec<u8>,
    /// The server's end of the calls' security context.
    acceptor: Option<Arc<Protection>>,
}

impl Bench {
    fn new(version: Version) -> Self {
        Self::with(version, None)
    }

    /// With calls under a security context of these keys.
    fn with(version: Version, keys: Option<&ContextKeys>) -> Self {
        let network = Network::new();
        let mut server = network.provider();
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = || Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
        let (pool, server_pool) = (pool(), pool());
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = server.listen(anywhere, LIMITS, false).expect("a free port");
        let address = server.listener_address(listener).expect("listening");
        let mut client = Uncounted(network.provider());
        let settings = Settings {
            versions: Versions::new(version, version),
            credits: 4,
            calls: 4,
            context: keys.and_then(|keys| GssContext::new(keys, (&[5; 16], 64), GssService::None)),
            ..Settings::default()
        };
        let now = Instant::now();
        let connection =
            Connection::connect(&mut client, &pool, address, settings, now).expect("connects");
        let mut bench = Self {
            client,
            server,
            connection,
            pool,
            server_pool,
            now,
            ended: 0,
            received: Vec::new(),
            allocated: 0,
            acceptor: keys.and_then(|keys| Protection::new(keys, Side::Acceptor)),
        };
        for _ in 0..10 {
            bench.turn();
        }
        assert_eq!(bench.connection.state(), &RequesterState::Ready);
        bench
    }

    /// Every call is answered at once by a failure, its write list and reply chunk left out.
    fn turn(&mut self) {
        let mut events = Vec::with_capacity(64);
        self.server.poll(self.now, &mut events);
        for event in events {
            match event {
                Event::ConnectRequest { queue_pair, .. } => {
                    for _ in 0..32 {
                        self.receive(queue_pair);
                    }
                    let told = private_data::PrivateData {
                        remote_invalidation: false,
                        send_size: 4096,
                        receive_size: 4096,
                    };
                    let parameters = ConnectParameters {
                        limits: LIMITS,
                        private_data: told.to_bytes().into_iter().collect::<PrivateData>(),
                    };
                    self.server.accept(queue_pair, parameters).expect("asked");
                }
                Event::Received {
                    queue_pair,
                    buffer,
                    length,
                    ..
                } => {
                    self.received.clear();
                    self.received.extend(&buffer[..length as usize]);
                    self.receive(queue_pair);
                    self.answer(queue_pair, buffer);
                }
                _ => {}
            }
        }
        self.server.flush(self.now);
        let mut events = Vec::with_capacity(64);
        DataPath::poll(&mut self.client, self.now, &mut events);
        let (connection, client) = (&mut self.connection, &mut self.client);
        let mut ended = 0;
        for event in events {
            self.allocated += allocations(|| {
                connection.handle(client, event, self.now, &mut |completion| {
                    assert!(completion.result.is_ok());
                    ended += 1;
                });
            });
        }
        self.allocated += allocations(|| connection.pump(client, &mut |_| {}));
        self.ended += ended;
        DataPath::flush(&mut self.client, self.now);
    }

    fn receive(&mut self, queue_pair: QueuePairId) {
        let buffer = self.server_pool.try_acquire(Class::Control).expect("free");
        self.server.post_receive(queue_pair, buffer).expect("room");
    }

    fn answer(&mut self, queue_pair: QueuePairId, mut buffer: Buffer) {
        let xid = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
        // RDMA_MSG without chunks; accepted, NFS3ERR_STALE.
        // Version two repeats the key in its reply, and asks for it to be invalidated.
        let version = u32::from(buffer[7]);
        let key = u32::from_be_bytes([buffer[20], buffer[21], buffer[22], buffer[23]]);
        let key = if version == 2 { key } else { 0 };
        let second = [1, key];
        let second = if version == 2 { &second[..] } else { &[] };
        let front = [xid, version, 4, 0];
        let verifier = self.verifier(xid);
        let reply = [0, 0, 0, xid, 1, 0];
        let words = front.iter().chain(second).chain(&reply);
        let words = words.chain(&verifier).chain(&[0, 70]);
        let mut length = 0;
        for (place, word) in buffer.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
            length += 4;
        }
        let local = std::iter::once(buffer.into_slice(0..length)).collect();
        let mut chain = vec![WorkRequest {
            token: 0,
            operation: Operation::Send {
                invalidate: (key != 0).then_some(Key(key)),
                solicited: false,
            },
            local,
            signalled: false,
        }];
        self.server.post(queue_pair, &mut chain).expect("room");
    }

    /// The verifier of the reply to the call received last: the MIC of its sequence number.
    fn verifier(&self, xid: u32) -> Vec<u32> {
        let Some(acceptor) = &self.acceptor else {
            return vec![0, 0];
        };
        // The RPC message begins with the XID once more.
        let mut words = self.received[4..].windows(4);
        let at = words.position(|word| word == xid.to_be_bytes());
        let number = 4 + at.expect("a message") + 40;
        let mut mic = vec![0; acceptor.mic_length()];
        let length = acceptor.sign(&self.received[number..number + 4], &mut mic);
        let words = mic
            .chunks(4)
            .map(|word| word.try_into().expect("four bytes"));
        let words = words.map(u32::from_be_bytes);
        [RPCSEC_GSS, length as u32]
            .into_iter()
            .chain(words)
            .collect()
    }

    fn memory(&self, length: usize) -> Slice {
        let class = Class::for_size(length).expect("not too large");
        let buffer = self.pool.try_acquire(class).expect("free");
        buffer.into_slice(0..length)
    }
}

#[test]
fn steady_calls_allocate_nothing() {
    let bench = steady(Bench::new(Version::One));
    assert_eq!(bench.connection.counters().invalidated, 0);
}

#[test]
fn steady_calls_of_version_two_allocate_nothing() {
    let bench = steady(Bench::new(Version::Two));
    let counters = bench.connection.counters();
    assert_eq!(counters.invalidated, 300, "a key of each call with chunks");
}

#[test]
fn gss_lim_08_steady_calls_that_are_signed_allocate_nothing() {
    for enctype in [Enctype::Aes256Sha1, Enctype::Aes256Sha384] {
        let keys = ContextKeys {
            enctype,
            key: vec![3; enctype.key_length()].into(),
            acceptor_subkey: true,
            send_sequence: 0,
        };
        steady(Bench::with(Version::One, Some(&keys)));
    }
}

/// Bytes of a READ without credential from behind its XID to its end.
const READ_TAIL: usize = 36 + 36 + 12;

#[test]
fn repeated_calls_are_the_bytes_of_encoded_ones_and_allocate_nothing() {
    let mut bench = Bench::new(Version::One);
    let file = FileHandle::new(&[1; 32]).expect("short");
    let memory = [bench.memory(65_536)];
    let read = |offset| ReadArguments {
        file,
        offset,
        count: 65_536,
    };
    let call = Call::nfs3(0, Procedure::Read, read(7), 0);
    let template = bench.connection.template(&call, &[36]);
    let template = template.expect("encodes");
    for offset in 0..40 {
        if offset == 20 {
            bench.allocated = 0;
        }
        let now = bench.now;
        let sinks = [&memory[..]];
        let repetition = Repetition {
            token: 1,
            arguments: [offset, 0],
            data: Data::None,
            sinks: &sinks,
        };
        let connection = &mut bench.connection;
        bench.allocated += allocations(|| {
            let repeated = connection.repeat(&template, &repetition, now);
            repeated.expect("taken");
        });
        while bench.connection.pending() > 0 {
            bench.turn();
        }
        let repeated = std::mem::take(&mut bench.received);
        let call = Call::nfs3(1, Procedure::Read, read(offset), 0).with_sinks(&sinks);
        bench.connection.submit(&call, now).expect("taken");
        while bench.connection.pending() > 0 {
            bench.turn();
        }
        let encoded = &bench.received;
        assert_eq!(repeated.len(), encoded.len());
        let tail = encoded.len() - READ_TAIL;
        assert_eq!(repeated[tail..], encoded[tail..], "offset {offset}");
        assert_ne!(repeated[..tail], encoded[..tail], "other XIDs");
    }
    assert_eq!(bench.allocated, 0, "allocations in 40 calls");
    let past = bench.connection.template(&call, &[41]);
    assert_eq!(past.err(), Some(SubmitError::Data), "past the arguments");
}

fn steady(mut bench: Bench) -> Bench {
    let file = FileHandle::new(&[1; 32]).expect("short");
    let large = [bench.memory(65_536)];
    let small = [bench.memory(1001)];
    let read = ReadArguments {
        file,
        offset: 0,
        count: 65_536,
    };
    let write = |count| WriteArguments {
        file,
        offset: 0,
        count,
        stable: Stability::Unstable,
        data: Bulk::apart(count),
    };
    let readdir = ReaddirArguments {
        directory: file,
        cookie: 0,
        verifier: [0; 8],
        count: 32_768,
    };
    for round in 0..100 {
        if round == 20 {
            bench.allocated = 0;
        }
        let now = bench.now;
        let connection = &mut bench.connection;
        let mut submit = || {
            let call = Call::nfs3(1, Procedure::Read, read, 0);
            connection.submit(&call.with_sinks(&[&large]), now)?;
            let call = Call::nfs3(2, Procedure::Write, write(65_536), 0);
            connection.submit(&call.with_data(&large), now)?;
            let call = Call::nfs3(3, Procedure::Write, write(1001), 0);
            connection.submit(&call.with_data(&small), now)?;
            connection.submit(&Call::nfs3(4, Procedure::Readdir, readdir, 32_768), now)
        };
        bench.allocated += allocations(|| {
            submit().expect("taken");
        });
        while bench.connection.pending() > 0 {
            bench.turn();
        }
    }
    assert_eq!(bench.ended, 400);
    let forms = bench.connection.counters().forms;
    assert_eq!(forms, [300, 100, 0], "each form that is meant to be steady");
    assert_eq!(bench.allocated, 0, "allocations in 320 calls");
    bench
}
