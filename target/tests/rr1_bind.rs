//! The responder and addresses (RFC 5666 section 10).

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use millrace::call::{Peer, TransportKind};
use millrace::dispatch::Service;
use millrace::rdma::Request;
use millrace::rpcbind::Offers;
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::fabric::{
    Carrier, Event, Incoming, ListenerId, PrivateData, Provider, QueuePairId,
};
use millrace_store::memory::MemoryStore;
use millrace_wire::rpcbind::{PROGRAM, Registration, RpcbindProcedure};
use millrace_wire::xdr::{Decoder, from_bytes};
use support::message::{SUCCESS, accepted, encoded, null, parse, plain, rpc, words};
use support::raw::{Options, World};
use support::{memory_store, rules, service};

const PROG_UNAVAIL: u32 = 1;

fn offers() -> Offers {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    Offers::of_service(Some(at("127.0.0.1:2049")), &[at("127.0.0.1:20049")])
}

fn programs() -> Service<MemoryStore> {
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
    bench.peer.set(Peer::new(peer, TransportKind::Tcp));
    let call = &getaddr(3)[28..];
    let replied = bench.send(call, &[], &mut support::Chunks::default());
    assert_eq!(accepted(&replied.message), PROG_UNAVAIL);
}

#[test]
fn rr1_bind_07_addresses_are_of_ip_whatever_the_network_is() {
    // What a provider tells of a client, and what the responder takes, are IP addresses and ports:
    // a network with addresses of its own has them translated below.
    type Asked = fn(&mut dyn Provider, QueuePairId, SocketAddr) -> Event;
    let asked: Asked = |_, queue_pair, peer| Event::ConnectRequest {
        queue_pair,
        listener: ListenerId(0),
        peer,
        private_data: PrivateData::new(),
        depths: millrace_reactor::fabric::ReadDepths::default(),
    };
    type Arrived = fn(&Incoming) -> SocketAddr;
    let arrived: Arrived = |incoming| incoming.peer;
    type Told = for<'a> fn(Request<'a>) -> Peer;
    let told: Told = |request| Peer::new(request.peer, TransportKind::Rdma);
    let (queue_pair, peer) = (
        QueuePairId {
            index: 0,
            generation: 0,
        },
        "[::ffff:10.1.2.3]:700".parse().unwrap(),
    );
    let network = millrace_reactor::fabric::loopback::Network::new();
    let event = asked(&mut network.provider(), queue_pair, peer);
    assert!(matches!(event, Event::ConnectRequest { peer: told, .. } if told == peer));
    let request = Request {
        queue_pair,
        peer,
        private_data: &[],
    };
    assert_eq!(told(request).address.to_string(), "10.1.2.3");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let incoming = Incoming {
        listener: ListenerId(0),
        peer,
        limits: millrace_reactor::fabric::loopback::Pair::LIMITS,
        carrier: Carrier::Socket(socket.into()),
    };
    assert_eq!(arrived(&incoming), peer);
}
