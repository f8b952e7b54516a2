//! NFS and MOUNT over TCP, as an independent client sees them, and as hostile peers do.

mod support;
#[path = "support/tcp_client.rs"]
mod tcp_client;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace::flow::rate::Rates;
use millrace::flow::{ClientLimit, ClientTable, Flow};
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use nfs3_types::nfs3 as n;
use nfs3_types::xdr_codec::Opaque;

use tcp_client::{Connection, block_on, create, name, write};

/// A server on a thread of its own, which stops with the value.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(config: TcpConfig) -> Self {
        Self::start_with(config, |now| now)
    }

    /// `clock` makes time, for deadlines.
    fn start_with(config: TcpConfig, clock: impl Fn(Instant) -> Instant + Send + 'static) -> Self {
        Self::start_limited(config, clock, &[])
    }

    fn start_limited(
        config: TcpConfig,
        clock: impl Fn(Instant) -> Instant + Send + 'static,
        limits: &[ClientLimit],
    ) -> Self {
        let clients = ClientTable::new(1);
        clients.set_limits(limits, [], Instant::now());
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let registry = Registry::new(HugepagePolicy::Off);
            let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
            let store = support::memory_store(&registry);
            let time = Clock::new(Instant::now());
            let flow = Flow::new(&clients, 0, &pool, Class::Control, &time);
            let service = support::service([(support::rules("/export"), store)]).with_flow(&flow);
            let mut server = TcpServer::new(config, &pool, service, &flow, None).unwrap();
            sender
                .send(server.listen("127.0.0.1:0".parse().unwrap()).unwrap())
                .unwrap();
            while !stopped.load(Ordering::Relaxed) {
                let now = clock(Instant::now());
                time.turn(now);
                if server.poll(now) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let address = receiver.recv().unwrap();
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    fn connect(&self) -> TcpStream {
        self.connect_from(Ipv4Addr::LOCALHOST)
    }

    fn connect_from(&self, source: Ipv4Addr) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().unwrap().join();
        assert!(
            outcome.is_ok() || std::thread::panicking(),
            "the server panicked"
        );
    }
}

async fn mount(server: &Server, path: &str) -> Result<Connection, nfs3_client::ConnectError> {
    tcp_client::mount(server.address, path).await
}

async fn read(client: &mut Connection, file: &n::nfs_fh3, offset: u64, count: u32) -> Vec<u8> {
    let arguments = n::READ3args {
        file: file.clone(),
        offset,
        count,
    };
    let read = client.read(&arguments).await.unwrap().unwrap();
    assert_eq!(read.count as usize, read.data.len());
    read.data.to_vec()
}

#[test]
fn rr1_bind_09_independent_client_mounts_and_works() {
    let server = Server::start(TcpConfig::default());
    block_on(async {
        let mut client = mount(&server, "/export").await.unwrap();
        client.null().await.unwrap();
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "file").await;
        for (offset, length) in [(0, 1), (1, 3), (4, 4093), (5000, 1 << 20), (3 << 20, 777)] {
            let data: Vec<u8> = (0..length)
                .map(|index| (index * 7 + offset) as u8)
                .collect();
            write(&mut client, &file, offset as u64, &data).await;
            assert_eq!(
                read(&mut client, &file, offset as u64, length as u32).await,
                data
            );
        }
        assert_eq!(read(&mut client, &file, 2 << 20, 16).await, [0; 16]);
        let attributes = client
            .getattr(&n::GETATTR3args {
                object: file.clone(),
            })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(attributes.obj_attributes.size, (3 << 20) + 777);
        let committed = n::COMMIT3args {
            file: file.clone(),
            offset: 0,
            count: 0,
        };
        client.commit(&committed).await.unwrap().unwrap();
        for index in 0..300 {
            create(&mut client, &root, &format!("entry {index:03}")).await;
        }
        let mut names = Vec::new();
        let (mut cookie, mut verifier) = (0, n::cookieverf3::default());
        loop {
            let arguments = n::READDIRPLUS3args {
                dir: root.clone(),
                cookie,
                cookieverf: verifier,
                dircount: 2000,
                maxcount: 8000,
            };
            let listed = client.readdirplus(&arguments).await.unwrap().unwrap();
            verifier = listed.cookieverf;
            for entry in &listed.reply.entries.0 {
                cookie = entry.cookie;
                names.push(String::from_utf8(entry.name.0.to_vec()).unwrap());
                assert!(entry.name_attributes.is_some() && entry.name_handle.is_some());
            }
            if listed.reply.eof {
                break;
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 303);
        let object = n::diropargs3 {
            dir: root.clone(),
            name: name("file"),
        };
        client
            .remove(&n::REMOVE3args { object })
            .await
            .unwrap()
            .unwrap();
        let gone = client
            .getattr(&n::GETATTR3args { object: file })
            .await
            .unwrap();
        assert!(matches!(
            gone,
            n::Nfs3Result::Err((n::nfsstat3::NFS3ERR_STALE, _))
        ));
        client.unmount().await.unwrap();
    });
}

#[test]
fn mount_refuses_what_is_not_exported() {
    let server = Server::start(TcpConfig::default());
    block_on(async {
        assert!(mount(&server, "/other").await.is_err());
        assert!(mount(&server, "/export/none").await.is_err());
        assert!(mount(&server, "/export/../export").await.is_err());
        mount(&server, "/export/").await.unwrap();
    });
}

/// A NULL call of NFS as one record in the given fragments.
fn null_call(xid: u32, fragments: &[usize]) -> Vec<u8> {
    let words = [xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut record = Vec::new();
    let mut start = 0;
    for (index, &length) in fragments.iter().enumerate() {
        let last = index + 1 == fragments.len();
        let end = if last { message.len() } else { start + length };
        let mark = (end - start) as u32 | if last { 1 << 31 } else { 0 };
        record.extend_from_slice(&mark.to_be_bytes());
        record.extend_from_slice(&message[start..end]);
        start = end;
    }
    record
}

/// A WRITE of user 0 at the beginning of a file, as one record in fragments of these lengths and a last one.
fn write_call(file: &n::nfs_fh3, data: &[u8], fragments: &[usize]) -> Vec<u8> {
    let user = [1, 20, 0, 0, 0, 0, 0, 0, 0];
    let call = [6, 0, 2, 100_003, 3, 7];
    let words = [&call[..], &user, &[file.data.len() as u32]].concat();
    let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    message.extend_from_slice(file.data.as_ref());
    let length = data.len() as u32;
    for word in [0, 0, length, 0, length] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.extend_from_slice(data);
    let mut record = Vec::new();
    let mut rest = &message[..];
    for &length in fragments {
        let (fragment, later) = rest.split_at(length);
        record.extend_from_slice(&(length as u32).to_be_bytes());
        record.extend_from_slice(fragment);
        rest = later;
    }
    record.extend_from_slice(&(rest.len() as u32 | 1 << 31).to_be_bytes());
    record.extend_from_slice(rest);
    record
}

fn read_reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let length = u32::from_be_bytes(mark);
    assert!(length & 1 << 31 != 0);
    let mut reply = vec![0; (length & !(1 << 31)) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn records_may_come_in_fragments_and_crumbs() {
    let server = Server::start(TcpConfig::default());
    let mut stream = server.connect();
    stream.write_all(&null_call(7, &[4, 8, 0])).unwrap();
    assert_eq!(read_reply(&mut stream)[..8], [0, 0, 0, 7, 0, 0, 0, 1]);
    stream.set_nodelay(true).unwrap();
    for byte in null_call(8, &[40]) {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(read_reply(&mut stream)[..4], [0, 0, 0, 8]);
}

#[test]
fn long_records_are_read_to_their_end_and_no_further() {
    let server = Server::start(TcpConfig::default());
    block_on(async {
        let mut client = mount(&server, "/export").await.unwrap();
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "long").await;
        let mut stream = server.connect();
        for (round, fragments) in [&[][..], &[40_000, 600_000], &[100, 20_000, 30]]
            .into_iter()
            .enumerate()
        {
            let data: Vec<u8> = (0..1 << 20)
                .map(|at| (at * 7 + at / 251 + round) as u8)
                .collect();
            let mut bytes = write_call(&file, &data, fragments);
            bytes.extend(null_call(8, &[40]));
            for part in bytes.chunks(50_001) {
                stream.write_all(part).unwrap();
            }
            let mut replies = [read_reply(&mut stream), read_reply(&mut stream)];
            replies.sort();
            assert_eq!(replies.each_ref().map(|reply| reply[3]), [6, 8]);
            assert_eq!(read(&mut client, &file, 0, 1 << 20).await, data);
        }
    });
}

#[test]
fn calls_are_pipelined_beyond_what_is_served_at_once() {
    let config = TcpConfig {
        calls_per_connection: 4,
        calls: 2,
        ..TcpConfig::default()
    };
    let server = Server::start(config);
    let mut stream = server.connect();
    let calls: Vec<u8> = (0..1000).flat_map(|xid| null_call(xid, &[40])).collect();
    stream.write_all(&calls).unwrap();
    let mut xids: Vec<u32> = (0..1000)
        .map(|_| u32::from_be_bytes(*read_reply(&mut stream).first_chunk().unwrap()))
        .collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..1000).collect::<Vec<_>>());
    // What was sent before the end is answered after it.
    stream.write_all(&null_call(5, &[40])).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_reply(&mut stream)[..4], [0, 0, 0, 5]);
    assert!(is_closed(&mut stream));
}

#[test]
fn calls_that_wait_for_a_limit_hold_up_no_other_client() {
    let rates = Rates {
        iops: Some(1),
        bandwidth: Some(1),
    };
    let limits = ["127.0.0.2", "127.0.0.3", "127.0.0.4"].map(|network| ClientLimit {
        networks: vec![network.parse::<std::net::IpAddr>().unwrap().into()],
        rates,
    });
    let server = Server::start_limited(TcpConfig::default(), |now| now, &limits);
    let file = n::nfs_fh3 {
        data: Opaque::owned(vec![0; 32]),
    };
    let mut slow = Vec::new();
    for last in [2, 3, 4] {
        let mut stream = server.connect_from(Ipv4Addr::new(127, 0, 0, last));
        stream.write_all(&read_call(&file)).unwrap();
        // The only one whose time comes in this test.
        read_reply(&mut stream);
        for _ in 0..4 {
            let mut stream = server.connect_from(Ipv4Addr::new(127, 0, 0, last));
            for _ in 0..32 {
                stream.write_all(&read_call(&file)).unwrap();
            }
            slow.push(stream);
        }
    }
    let mut other = server.connect();
    for xid in 0..100 {
        other.write_all(&null_call(xid, &[40])).unwrap();
        assert_eq!(read_reply(&mut other)[..4], xid.to_be_bytes());
    }
}

#[test]
fn hostile_bytes_end_their_own_connection_only() {
    let server = Server::start(TcpConfig::default());
    let mut honest = server.connect();
    let oversized = 0x7fff_ffff_u32.to_be_bytes().to_vec();
    let empty = [0; 4].repeat(100);
    let garbage: Vec<u8> = (0..200)
        .map(|index: u32| (index * 131 + 255) as u8)
        .collect();
    for bytes in [oversized, empty, garbage] {
        let mut hostile = server.connect();
        hostile.write_all(&bytes).unwrap();
        assert!(is_closed(&mut hostile), "{:?}", &bytes[..4]);
        honest.write_all(&null_call(9, &[40])).unwrap();
        assert_eq!(read_reply(&mut honest)[..4], [0, 0, 0, 9]);
    }
}

#[test]
fn messages_that_are_no_calls_get_no_answer() {
    let server = Server::start(TcpConfig::default());
    let mut stream = server.connect();
    let reply: Vec<u8> = [0x8000_0008_u32, 1, 1]
        .iter()
        .flat_map(|w| w.to_be_bytes())
        .collect();
    stream.write_all(&reply).unwrap();
    stream.write_all(&null_call(3, &[40])).unwrap();
    assert_eq!(read_reply(&mut stream)[..4], [0, 0, 0, 3]);
}

#[test]
fn connections_are_bounded() {
    let config = TcpConfig {
        connections: 2,
        ..TcpConfig::default()
    };
    // A clock that runs a thousand times as slow: none of them is idle for long.
    let start = Instant::now();
    let server = Server::start_with(config, move |now| {
        start + now.saturating_duration_since(start) / 1000
    });
    let mut kept: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut kept {
        stream.write_all(&null_call(1, &[40])).unwrap();
        read_reply(stream);
    }
    assert!(is_closed(&mut server.connect()));
    for stream in &mut kept {
        stream.write_all(&null_call(2, &[40])).unwrap();
        read_reply(stream);
    }
}

#[test]
fn partial_records_and_idle_connections_end_in_time() {
    // A clock that runs a thousand times as fast.
    let start = Instant::now();
    let server = Server::start_with(TcpConfig::default(), move |now| {
        start + now.saturating_duration_since(start) * 1000
    });
    let mut partial = server.connect();
    partial.write_all(&null_call(1, &[40])[..20]).unwrap();
    assert!(is_closed(&mut partial));
    let mut idle = server.connect();
    assert!(is_closed(&mut idle));
}

/// A READ of the first MiB of a file, as one record.
fn read_call(file: &n::nfs_fh3) -> Vec<u8> {
    let words = [7, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, file.data.len() as u32];
    let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    message.extend_from_slice(file.data.as_ref());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&(1_u32 << 20).to_be_bytes());
    let mark = (message.len() as u32 | 1 << 31).to_be_bytes();
    [&mark[..], &message].concat()
}

#[test]
fn slow_readers_hold_up_nobody_else() {
    let server = Server::start(TcpConfig::default());
    block_on(async {
        let mut client = mount(&server, "/export").await.unwrap();
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "big").await;
        write(&mut client, &file, 0, &vec![5; 1 << 20]).await;
        // Asks for much and reads nothing: its replies wait, its calls are not read on.
        let mut slow = server.connect();
        for _ in 0..200 {
            slow.write_all(&read_call(&file)).unwrap();
        }
        for _ in 0..20 {
            assert_eq!(read(&mut client, &file, 0, 4096).await, [5; 4096]);
        }
        for _ in 0..200 {
            assert_eq!(read_reply(&mut slow).len(), (1 << 20) + 128);
        }
    });
}
