//! How the server is found, before the transport is asked to connect.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Parser;
use millrace_admin::config;
use millrace_bench::client::Client;
use millrace_bench::lookup::{Service, ask_rpcbind, rdma_netid, resolve};
use millrace_bench::requester::{Alignment, Ccp, Connection, RequesterState, Settings};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::fabric::loopback::Network;
use millrace_reactor::fabric::{ConnectParameters, ControlPath, DataPath, Event, QueuePairLimits};
use millrace_wire::rpc::{Accepted, CallHeader, RecordMark, answer_to};
use millrace_wire::rpcbind::{Registration, universal_address};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct ProgramArguments {
    #[command(flatten)]
    client: Client,
}

fn client(arguments: &[&str]) -> Client {
    let line = [&["millrace-bench"], arguments].concat();
    ProgramArguments::try_parse_from(line)
        .expect("parses")
        .client
}

/// What was asked for: version of the port mapper, program, version, netid.
type Asked = (u32, u32, u32, String);

/// A port mapper that serves so many calls, each on a connection of its own, and answers what it
/// is told to.
fn mapper(
    calls: usize,
    answer: impl Fn(&Asked) -> Result<String, Accepted> + Send + 'static,
) -> (SocketAddr, JoinHandle<Vec<Asked>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let thread = thread::spawn(move || {
        (0..calls)
            .map(|_| {
                let (mut stream, _) = listener.accept().expect("a caller");
                serve(&mut stream, &answer).expect("a whole call")
            })
            .collect()
    });
    (address, thread)
}

fn serve(
    stream: &mut TcpStream,
    answer: &impl Fn(&Asked) -> Result<String, Accepted>,
) -> io::Result<Asked> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mark = RecordMark::from_bytes(mark);
    let mut call = vec![0; mark.length as usize];
    stream.read_exact(&mut call)?;
    let mut input = Decoder::new(&call);
    let header = CallHeader::decode(&mut input).expect("a call");
    assert_eq!((header.program, header.procedure), (100_000, 3), "GETADDR");
    let registration = Registration::decode(&mut input).expect("arguments");
    let netid = String::from_utf8(registration.netid.to_vec()).expect("text");
    let asked = (
        header.version,
        registration.program,
        registration.version,
        netid,
    );
    let mut reply = vec![0; 512];
    let mut out = Encoder::new(&mut reply);
    out.u32(0).expect("room");
    let answered = match answer(&asked) {
        Ok(address) => answer_to(header.xid, Accepted::Success)
            .encode(&mut out)
            .and_then(|()| out.opaque(address.as_bytes())),
        Err(status) => answer_to(header.xid, status).encode(&mut out),
    };
    answered.expect("room");
    let length = out.position();
    let mark = RecordMark::whole(length - 4).expect("short");
    reply[..4].copy_from_slice(&mark.to_bytes());
    stream.write_all(&reply[..length])?;
    Ok(asked)
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn rr1_bind_02_the_port_is_20049_where_none_is_given() {
    for (target, address) in [
        ("10.1.2.3", "10.1.2.3:20049"),
        ("10.1.2.3:999", "10.1.2.3:999"),
        ("::1", "[::1]:20049"),
        ("[::1]", "[::1]:20049"),
        ("[::1]:999", "[::1]:999"),
    ] {
        let client = client(&["--target", target]);
        assert_eq!(client.target().expect("found"), at(address));
    }
    assert_eq!(client(&[]).target().expect("found"), at("127.0.0.1:20049"));
    assert_eq!(resolve("localhost", 20049).expect("found").port(), 20049);
    assert!(resolve("10.1.2.3:port", 1).is_err());
}

#[test]
fn rr1_bind_04_the_port_mapper_tells_where_the_service_is() {
    let there = at("10.9.8.7:20123");
    let (address, thread) = mapper(1, move |_| Ok(universal_address(there).to_string()));
    let client = client(&[&format!("--rpcbind={address}")]);
    assert_eq!(client.target().expect("found"), there);
    let asked = thread.join().expect("served");
    assert_eq!(asked, [(4, 100_003, 3, "rdma".to_owned())]);
}

#[test]
fn rr1_bind_04_mount_is_asked_for_as_well_unless_it_is_given() {
    // Nobody listens where MOUNT is said to be.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let nobody = free.local_addr().expect("bound");
    drop(free);
    let (address, thread) = mapper(1, move |_| Ok(universal_address(nobody).to_string()));
    let rpcbind = format!("--rpcbind={address}");
    let error = client(&[&rpcbind]).root().expect_err("refused");
    assert!(format!("{error:#}").contains(&nobody.to_string()));
    let asked = thread.join().expect("served");
    assert_eq!(asked, [(4, 100_005, 3, "tcp".to_owned())]);
    let given = client(&[&rpcbind, "--mount", &nobody.to_string()]);
    let error = given.root().expect_err("refused");
    assert!(format!("{error:#}").contains(&format!("MOUNT at {nobody}")));
}

#[test]
fn rr1_bind_04_an_address_of_all_is_that_of_the_host_asked() {
    let (address, thread) = mapper(1, |_| Ok("0.0.0.0.78.81".to_owned()));
    let service = Service {
        program: 100_003,
        version: 3,
        netid: "rdma",
    };
    let found = ask_rpcbind(address, service, TEST_TIMEOUT).expect("found");
    assert_eq!(found, at("127.0.0.1:20049"));
    thread.join().expect("served");
}

#[test]
fn rr1_bind_04_an_old_port_mapper_is_asked_in_version_three() {
    let (address, thread) = mapper(2, |(version, ..)| match version {
        4 => Err(Accepted::ProgramMismatch { low: 2, high: 3 }),
        _ => Ok("10.0.0.1.78.82".to_owned()),
    });
    let service = Service {
        program: 100_003,
        version: 3,
        netid: "rdma",
    };
    let found = ask_rpcbind(address, service, TEST_TIMEOUT).expect("found");
    assert_eq!(found, at("10.0.0.1:20050"));
    let versions: Vec<_> = thread.join().expect("served").iter().map(|a| a.0).collect();
    assert_eq!(versions, [4, 3]);
}

#[test]
fn rr1_bind_04_what_is_not_registered_is_not_found() {
    for (answer, says) in [
        (Ok(String::new()), "knows no program 100003"),
        (Ok("somewhere".to_owned()), "is no address"),
        (Err(Accepted::ProgramUnavailable), "ProgramUnavailable"),
    ] {
        let (address, thread) = mapper(1, move |_| answer.clone());
        let service = Service {
            program: 100_003,
            version: 3,
            netid: "rdma",
        };
        let error = ask_rpcbind(address, service, TEST_TIMEOUT).expect_err("none");
        let error = format!("{error:#}");
        assert!(error.contains(says), "{error}");
        assert!(error.contains(&address.to_string()), "{error}");
        thread.join().expect("served");
    }
}

#[test]
fn rr1_bind_05_without_being_told_no_port_mapper_is_asked() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let here = listener.local_addr().expect("bound");
    let client = client(&["--target", &here.to_string()]);
    assert!(client.place.rpcbind.is_none());
    assert_eq!(client.target().expect("found"), here);
    let nobody = listener.accept().expect_err("nobody came");
    assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
}

#[test]
fn rr1_bind_01_the_netid_follows_the_family_of_the_address() {
    assert_eq!(rdma_netid(IpAddr::V4(Ipv4Addr::LOCALHOST)), "rdma");
    assert_eq!(rdma_netid(IpAddr::V6(Ipv6Addr::LOCALHOST)), "rdma6");
}

#[test]
fn rr1_bind_08_the_netid_is_a_setting() {
    let (address, thread) = mapper(1, |_| Ok("10.0.0.1.78.81".to_owned()));
    let rpcbind = format!("--rpcbind={address}");
    let own = client(&[&rpcbind, "--netid", "opa"]);
    assert_eq!(own.target().expect("found"), at("10.0.0.1:20049"));
    assert_eq!(thread.join().expect("served")[0].3, "opa");
    // By default it follows the address.
    assert_eq!(rdma_netid(at("10.0.0.1:1").ip()), "rdma");
    assert_eq!(rdma_netid(at("[::1]:1").ip()), "rdma6");
    let (address, thread) = mapper(1, |_| Ok("::1.78.81".to_owned()));
    let six = client(&[&format!("--rpcbind={address}"), "--target", "::1"]);
    assert_eq!(six.target().expect("found"), at("[::1]:20049"));
    assert_eq!(thread.join().expect("served")[0].3, "rdma6");
}

#[test]
fn old_10_servers_at_port_2049_are_reached_by_setting() {
    let client = client(&["--target", "10.1.2.3:2049"]);
    assert_eq!(client.target().expect("found"), at("10.1.2.3:2049"));
    let (port, state) = connect_to(at("127.0.0.1:2049"));
    assert_eq!((port, state), (2049, RequesterState::Ready));
}

#[test]
fn old_10_a_server_listens_and_serves_at_port_2049_by_setting() {
    // An address of this process alone, as several of them test at once.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = SocketAddr::from(([127, 49, high, low], 2049));
    if TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
        return millrace_testing::skip!("a server of this machine has port 2049 of all addresses");
    }
    let text = format!(
        "reactors: {{ cores: [0], poll: adaptive }}\n\
         mempool: {{ hugepages: off, size: 16MiB }}\n\
         fabric: [{{ provider: iwarp, listen: \"{address}\" }}]\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         exports: [{{ path: /scratch, store: {{ kind: memory, size: 8MiB }} }}]\n"
    );
    let config = Arc::new(config::parse(&text, "test").expect("good"));
    let service = millrace::service::Service::start(config).expect("starts");
    assert_eq!(service.addresses().fabric, [address]);
    let mount = service.addresses().rpc.expect("a listener").to_string();
    let client = client(&["--target", &address.to_string(), "--mount", &mount]);
    client.root().expect("mounts");
    let settings = client.settings(4);
    let mut session = client.session(&pool(), settings).expect("connects");
    session.null().expect("an answer");
    drop(session);
    service.drain(Duration::ZERO);
}

#[test]
fn rr1_bind_07_rr1_bind_10_the_transport_connects_to_an_ip_address_and_a_port() {
    // By whom they were found does not matter: there is no name service on this network. Whoever
    // listens beside them is not asked.
    for (address, beside) in [
        ("192.0.2.1:4711", ["192.0.2.1:20049", "192.0.2.2:4711"]),
        (
            "[2001:db8::1]:20049",
            ["[2001:db8::1]:4711", "[2001:db8::2]:20049"],
        ),
    ] {
        let network = Network::new();
        let mut others = beside.map(|beside| {
            let mut provider = network.provider();
            provider.listen(at(beside), LIMITS, false).expect("free");
            provider
        });
        let client = Ipv4Addr::new(198, 51, 100, 7);
        let (asked, state) = connect_over(&network, at(address), client);
        assert_eq!((asked, state), (vec![client.into()], RequesterState::Ready));
        for other in &mut others {
            let mut events = Vec::new();
            other.poll(Instant::now(), &mut events);
            assert!(events.is_empty(), "{events:?}");
        }
    }
}

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 16,
    receive_depth: 16,
    ird: 4,
    ord: 4,
    exposures: 16,
    receive_size: 4096,
};

fn pool() -> Pool {
    let registry = Registry::new(HugepagePolicy::Off);
    Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory")
}

fn small() -> Settings {
    Settings {
        credits: 4,
        calls: 4,
        ..Settings::default()
    }
}

/// Connects to a server that listens there on the loopback network.
fn connect_to(address: SocketAddr) -> (u16, RequesterState) {
    let network = Network::new();
    let (asked, state) = connect_over(&network, address, Ipv4Addr::LOCALHOST);
    assert_eq!(asked.len(), 1);
    (address.port(), state)
}

/// Connects from `client` to a server that listens there. The addresses of those who asked it, and
/// what became of the connection.
fn connect_over(
    network: &Network,
    address: SocketAddr,
    client: Ipv4Addr,
) -> (Vec<IpAddr>, RequesterState) {
    let (mut server, mut provider) = (network.provider(), network.provider_at(client));
    server.listen(address, LIMITS, false).expect("free");
    let mut asked = Vec::new();
    let now = Instant::now();
    let mut connection =
        Connection::connect(&mut provider, &pool(), address, small(), now).expect("begins");
    for _ in 0..100 {
        let mut events = Vec::with_capacity(16);
        server.poll(now, &mut events);
        for event in events {
            if let Event::ConnectRequest {
                queue_pair, peer, ..
            } = event
            {
                asked.push(peer.ip());
                let parameters = ConnectParameters {
                    limits: LIMITS,
                    private_data: millrace_reactor::fabric::PrivateData::new(),
                };
                server.accept(queue_pair, parameters).expect("asked");
            }
        }
        let mut events = Vec::with_capacity(16);
        provider.poll(now, &mut events);
        for event in events {
            connection.handle(&mut provider, event, now, &mut |_| {});
        }
    }
    (asked, connection.state().clone())
}

#[test]
fn options_lead_to_settings() {
    let plain = client(&[]).settings(4);
    assert_eq!((plain.ccp, plain.alignment), (None, Alignment::Off));
    assert!(!plain.expect_read_chunks && plain.offer_results);
    let mine = client(&["--ccp", "--padding", "ccp", "--classic"]).settings(4);
    assert_eq!(mine.ccp, Some(Ccp::default()));
    assert_eq!(mine.alignment, Alignment::Learnt { threshold: 512 });
    assert!(mine.expect_read_chunks && !mine.offer_results);
    let own = client(&["--ccp=536871959", "--padding", "4KiB"]).settings(4);
    assert_eq!(own.ccp.expect("asked for").program, 536_871_959);
    let fixed = Alignment::Fixed {
        align: 4096,
        threshold: 512,
    };
    assert_eq!(own.alignment, fixed);
    for wrong in [
        ["--padding", "some"].as_slice(),
        &["--ccp=x"],
        &["--netid", "rdma"],
    ] {
        let line = [&["millrace-bench"], wrong].concat();
        assert!(ProgramArguments::try_parse_from(line).is_err(), "{wrong:?}");
    }
}
