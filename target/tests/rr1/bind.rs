//! The responder and addresses (RFC 5666 section 10).

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use millrace::call::{Peer, TransportKind};
use millrace::handle::HandleKey;
use millrace::rpcbind::Offers;
use millrace::service::ReactorPrograms;
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_store::Store;
use millrace_store::memory::MemoryStore;
use millrace_wire::mount::{self, MountResults};
use millrace_wire::nfs3::{FileType, GetattrResults, Procedure};
use millrace_wire::rpcbind::{PROGRAM, Registration, RpcbindProcedure};
use millrace_wire::xdr::{Decoder, from_bytes};

use crate::support;
use crate::support::message::{SUCCESS, accepted, encoded, nfs, null, parse, plain, rpc, words};
use crate::support::raw::{Options, Stated, World};
use crate::support::{SECRET, memory_store, rules, service};

const PROG_UNAVAIL: u32 = 1;

fn offers() -> Offers {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    Offers::of_service(&[3], Some(at("127.0.0.1:2049")), &[at("127.0.0.1:20049")])
}

fn programs() -> ReactorPrograms<MemoryStore> {
    let registry = Registry::new(HugepagePolicy::Off);
    service([(rules("/export"), memory_store(&registry))])
}

/// GETADDR for NFS version 3.
fn getaddr(version: u32) -> Vec<u8> {
    let wanted = Registration {
        program: 100_003,
        version: 3,
        netid: b"rdma",
        address: b"",
        owner: b"",
    };
    let procedure = RpcbindProcedure::GetAddress.number();
    plain(&rpc(7, (PROGRAM, version, procedure), &encoded(&wanted)))
}

#[test]
fn rr1_bind_06_the_port_mapper_answers_over_rdma() {
    let known = Arc::new(OnceLock::new());
    let programs = programs().with_rpcbind(&known);
    let mut world = World::new(programs, Options::default());
    world.connect();
    // Not before it knows.
    let reply = parse(&world.exchange(0, &getaddr(3)));
    assert_eq!(accepted(&reply.message), PROG_UNAVAIL);
    known.set(offers()).unwrap();
    for version in [3, 4] {
        let reply = parse(&world.exchange(0, &getaddr(version)));
        assert_eq!(accepted(&reply.message), SUCCESS);
        let mut input = Decoder::new(support::results(&reply.message));
        let address = String::from_utf8(input.string(100).unwrap().to_vec()).unwrap();
        assert!(address.ends_with(".78.81"), "port 20049: {address}");
    }
    // The port mapper's second version, and one that is none.
    let getport = rpc(8, (PROGRAM, 2, 3), &words(&[100_003, 3, 6, 0]));
    let reply = parse(&world.exchange(0, &plain(&getport)));
    let port = from_bytes::<u32>(support::results(&reply.message));
    assert_eq!(port, Ok(2049));
    let reply = parse(&world.exchange(0, &getaddr(9)));
    assert_eq!(accepted(&reply.message), 2);
    // NFS is there as ever.
    let reply = parse(&world.exchange(0, &plain(&null(9))));
    assert_eq!(accepted(&reply.message), SUCCESS);
    world.check_clean();
}

#[test]
fn rr1_bind_06_elsewhere_it_is_no_program_of_ours() {
    let mut world = World::new(programs(), Options::default());
    world.connect();
    let reply = parse(&world.exchange(0, &getaddr(3)));
    assert_eq!(accepted(&reply.message), PROG_UNAVAIL);
    // Over TCP it has sockets of its own.
    let known = Arc::new(OnceLock::from(offers()));
    let registry = Registry::new(HugepagePolicy::Off);
    let store = memory_store(&registry);
    let programs = service([(rules("/export"), store.clone())]).with_rpcbind(&known);
    let bench = support::Bench::over(&registry, store, programs);
    let peer = "127.0.0.1:700".parse().unwrap();
    bench.call_from(Peer::new(peer, TransportKind::Tcp));
    let call = &getaddr(3)[28..];
    let replied = bench.send(call, &[], &mut support::Chunks::default());
    assert_eq!(accepted(&replied.message), PROG_UNAVAIL);
}

#[test]
fn rr1_bind_07_a_client_is_known_by_its_ip_address() {
    let mut world = World::new(programs(), Options::default());
    let sources = [[192, 0, 2, 7], [198, 51, 100, 9]].map(Ipv4Addr::from);
    for source in sources {
        world.connect_with(Stated {
            source,
            ..Stated::default()
        });
    }
    let known: Vec<Peer> = world.connections().iter().map(|one| one.peer()).collect();
    assert_eq!(known.len(), 2);
    for (peer, source) in known.iter().zip(sources) {
        assert_eq!(peer.address, IpAddr::V4(source));
        assert_eq!(peer.transport, TransportKind::Rdma);
    }
    // Rules of exports are about these addresses.
    let registry = Registry::new(HugepagePolicy::Off);
    let mut narrow = rules("/export");
    narrow.clients = vec!["192.0.2.0/24".parse().unwrap()];
    let store = memory_store(&registry);
    let programs = service([(narrow, store.clone())]);
    let export = programs.exports().iter().next().unwrap().id;
    let root = HandleKey::new(&SECRET).seal(export.0, store.root());
    let mut world = World::new(programs, Options::default());
    let answers = sources.map(|source| {
        let client = world.connect_with(Stated {
            source,
            ..Stated::default()
        });
        let reply = parse(&world.exchange(client, &plain(&nfs(9, Procedure::Getattr, &root))));
        from_bytes::<GetattrResults>(support::results(&reply.message))
            .unwrap()
            .is_ok()
    });
    assert_eq!(answers, [true, false]);
}

/// One call over TCP, by a client on a thread of its own.
fn call_by_tcp(programs: ReactorPrograms<MemoryStore>, pool: &Pool, call: Vec<u8>) -> Vec<u8> {
    let flow = support::flow(pool);
    let mut server = TcpServer::new(TcpConfig::default(), pool, programs, &flow, None).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let deadline = Some(Duration::from_secs(20));
        stream.set_read_timeout(deadline).unwrap();
        let last = 0x8000_0000 | call.len() as u32;
        stream.write_all(&last.to_be_bytes()).unwrap();
        stream.write_all(&call).unwrap();
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let length = u32::from_be_bytes(mark) & !0x8000_0000;
        let mut reply = vec![0; length as usize];
        stream.read_exact(&mut reply).unwrap();
        reply
    });
    while !client.is_finished() {
        if server.poll(Instant::now()) == 0 {
            std::thread::yield_now();
        }
    }
    client.join().unwrap()
}

#[test]
fn rr1_bind_11_mount_over_tcp_then_nfs_over_rdma() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
    let store = memory_store(&registry);
    let programs = || service([(rules("/export"), store.clone())]);
    let number = mount::Procedure::Mount.number();
    let path = encoded(&mount::Path(b"/export"));
    let call = rpc(5, (mount::PROGRAM, mount::VERSION, number), &path);
    let reply = call_by_tcp(programs(), &pool, call);
    let MountResults::Ok(mounted) = from_bytes(support::results(&reply)).unwrap() else {
        panic!("refused");
    };
    let mut world = World::new(programs(), Options::default());
    world.connect();
    let getattr = plain(&nfs(6, Procedure::Getattr, &mounted.handle));
    let reply = parse(&world.exchange(0, &getattr));
    let results = support::results(&reply.message);
    let attributes = from_bytes::<GetattrResults>(results).unwrap().unwrap();
    assert_eq!(attributes.kind, FileType::Directory);
    // Version 4 is not served, and that is said at this port, without rpcbind.
    let reply = parse(&world.exchange(0, &plain(&rpc(7, (100_003, 4, 0), &[]))));
    assert_eq!(accepted(&reply.message), 2);
    world.check_clean();
}
