//! How clients find the ports: the port mapper inside the service, and registration with another.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace::rpcbind::{Offers, Registration, Rendezvous, RpcbindServer};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_wire::rpc::{
    Accepted, CallHeader, CallOutcome, Credential, OpaqueAuth, RecordMark, ReplyHeader, answer_to,
};
use millrace_wire::rpcbind::{
    AddressEntry, AddressList, Mapping, PortmapDump, PortmapProcedure, Registration as Entry,
    RpcbindDump, RpcbindProcedure, parse_address,
};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let registry = Registry::new(HugepagePolicy::Off);
            let pool = Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap();
            let any = "127.0.0.1:0".parse().unwrap();
            let mut server = RpcbindServer::new(any, offers(), &pool, None).unwrap();
            sender.send(server.address()).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                if server.poll(Instant::now()) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        Self {
            address: receiver.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    fn ask_stream(&self, call: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .write_all(&RecordMark::whole(call.len()).unwrap().to_bytes())
            .unwrap();
        stream.write_all(call).unwrap();
        read_record(&mut stream).unwrap()
    }

    fn ask_datagram(&self, call: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        socket.send_to(call, self.address).unwrap();
        let mut reply = vec![0; 4096];
        let length = socket.recv(&mut reply).unwrap();
        reply.truncate(length);
        reply
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

fn offers() -> Offers {
    let tcp = "127.0.0.1:2049".parse().unwrap();
    let rdma = [
        "127.0.0.1:20049".parse().unwrap(),
        "[::1]:20050".parse().unwrap(),
    ];
    Offers::of_service(&[3], Some(tcp), &rdma)
}

fn read_record(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut record = vec![0; RecordMark::from_bytes(mark).length as usize];
    stream.read_exact(&mut record)?;
    Ok(record)
}

fn call(version: u32, procedure: u32, arguments: &impl Encode) -> Vec<u8> {
    let header = CallHeader {
        xid: 77,
        program: 100_000,
        version,
        procedure,
        credential: Credential::None,
        verifier: OpaqueAuth::NONE,
    };
    let mut bytes = vec![0; 1024];
    let mut out = Encoder::new(&mut bytes);
    header.encode(&mut out).unwrap();
    arguments.encode(&mut out).unwrap();
    let length = out.position();
    bytes.truncate(length);
    bytes
}

fn entry(program: u32, version: u32, netid: &str) -> Entry<'_> {
    Entry {
        program,
        version,
        netid: netid.as_bytes(),
        address: b"",
        owner: b"",
    }
}

fn status(reply: &[u8]) -> Accepted {
    match ReplyHeader::decode(&mut Decoder::new(reply))
        .unwrap()
        .outcome
    {
        CallOutcome::Accepted { status, .. } => status,
        denied @ CallOutcome::Denied(_) => panic!("{denied:?}"),
    }
}

fn decode<'a, T: Decode<'a>>(reply: &'a [u8]) -> T {
    millrace_wire::xdr::from_bytes(support::results(reply)).unwrap()
}

#[test]
fn rr1_bind_01_getaddr_knows_rdma_and_rdma6() {
    let server = Server::start();
    let cases = [
        (100_003, 3, "rdma", Some("127.0.0.1:20049")),
        (100_003, 3, "rdma6", Some("[::1]:20050")),
        (100_003, 3, "tcp", Some("127.0.0.1:2049")),
        (100_005, 3, "tcp", Some("127.0.0.1:2049")),
        (100_005, 1, "tcp", Some("127.0.0.1:2049")),
        (100_005, 3, "rdma", None),
        (100_003, 3, "udp", None),
        (100_021, 4, "tcp", None),
        (100_003, 3, "none", None),
    ];
    for (program, version, netid, expected) in cases {
        for rpcbind in [3, 4] {
            let number = RpcbindProcedure::GetAddress.number();
            let call = call(rpcbind, number, &entry(program, version, netid));
            for reply in [server.ask_stream(&call), server.ask_datagram(&call)] {
                let address: &[u8] = decode(&reply);
                let expected = expected.map(|text| text.parse().unwrap());
                assert_eq!(
                    parse_address(address),
                    expected,
                    "{program} {version} {netid}"
                );
            }
        }
    }
    let exact = RpcbindProcedure::GetVersionAddress.number();
    let reply = server.ask_stream(&call(4, exact, &entry(100_005, 1, "tcp")));
    assert_eq!(decode::<&[u8]>(&reply), b"");
}

#[test]
fn port_mapper_answers_what_version_two_asks() {
    let server = Server::start();
    let ask = |program, version, protocol| {
        let wanted = Mapping {
            program,
            version,
            protocol,
            port: 0,
        };
        let reply = server.ask_datagram(&call(2, PortmapProcedure::GetPort.number(), &wanted));
        decode::<u32>(&reply)
    };
    assert_eq!(ask(100_003, 3, 6), 2049);
    assert_eq!(ask(100_005, 3, 6), 2049);
    assert_eq!(ask(100_000, 2, 17), u32::from(server.address.port()));
    assert_eq!(ask(100_003, 3, 17), 0);
    assert_eq!(ask(100_024, 1, 6), 0);
    let reply = server.ask_stream(&call(2, PortmapProcedure::Dump.number(), &()));
    let list: PortmapDump<'_> = decode(&reply);
    assert!(
        list.iter()
            .any(|m| (m.program, m.protocol, m.port) == (100_005, 6, 2049))
    );
    let reply = server.ask_stream(&call(3, RpcbindProcedure::Dump.number(), &()));
    let list: RpcbindDump<'_> = decode(&reply);
    assert!(
        list.iter()
            .any(|e| (e.program, e.netid) == (100_003, b"rdma6"))
    );
    let number = RpcbindProcedure::GetAddressList.number();
    let reply = server.ask_stream(&call(4, number, &entry(100_003, 3, "")));
    let list: AddressList<'_> = decode(&reply);
    let netids: Vec<&[u8]> = list
        .iter()
        .map(|entry: AddressEntry<'_>| entry.netid)
        .collect();
    assert_eq!(netids, [&b"tcp"[..], b"rdma", b"rdma6"]);
}

#[test]
fn port_mapper_serves_no_attacker() {
    let server = Server::start();
    let set = Mapping {
        program: 100_003,
        version: 3,
        protocol: 6,
        port: 666,
    };
    let reply = server.ask_stream(&call(2, PortmapProcedure::Set.number(), &set));
    assert!(!decode::<bool>(&reply));
    let evil = Entry {
        address: b"192.0.2.1.2.154",
        ..entry(100_003, 3, "tcp")
    };
    let reply = server.ask_stream(&call(4, RpcbindProcedure::Unset.number(), &evil));
    assert!(!decode::<bool>(&reply));
    // Long answers to datagrams would be a weapon against whoever they pretend to come from.
    for (version, procedure) in [(2, 4), (3, 4), (4, 4), (4, 11)] {
        let reply = server.ask_datagram(&call(version, procedure, &entry(100_003, 3, "")));
        assert_eq!(status(&reply), Accepted::ProcedureUnavailable);
    }
    let reply = server.ask_datagram(&call(5, 0, &()));
    assert_eq!(
        status(&reply),
        Accepted::ProgramMismatch { low: 2, high: 4 }
    );
    let mut garbage = call(2, PortmapProcedure::GetPort.number(), &());
    garbage.truncate(44);
    assert_eq!(
        status(&server.ask_datagram(&garbage)),
        Accepted::GarbageArguments
    );
}

/// What a port mapper was told: procedure, program, version, netid, address.
type Told = (u32, u32, u32, String, String);

/// A port mapper that takes everything and reports it.
fn fake_mapper() -> (SocketAddr, mpsc::Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Ok(record) = read_record(&mut stream) {
                let mut input = Decoder::new(&record);
                let header = CallHeader::decode(&mut input).unwrap();
                assert_eq!((header.program, header.version), (100_000, 4));
                let entry = Entry::decode(&mut input).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let (netid, address) = (text(entry.netid), text(entry.address));
                let told = (
                    header.procedure,
                    entry.program,
                    entry.version,
                    netid,
                    address,
                );
                let mut reply = vec![0; 64];
                let mut out = Encoder::new(&mut reply);
                answer_to(header.xid, Accepted::Success)
                    .encode(&mut out)
                    .unwrap();
                out.bool(true).unwrap();
                let length = out.position();
                stream
                    .write_all(&RecordMark::whole(length).unwrap().to_bytes())
                    .unwrap();
                stream.write_all(&reply[..length]).unwrap();
                if sender.send(told).is_err() {
                    return;
                }
            }
        }
    });
    (address, receiver)
}

#[test]
fn rr1_bind_03_registers_at_start_and_unregisters_at_stop() {
    let (address, told) = fake_mapper();
    let wait = || told.recv_timeout(Duration::from_secs(20)).unwrap();
    let expected = [
        (100_003, 3, "tcp", "127.0.0.1.8.1"),
        (100_005, 3, "tcp", "127.0.0.1.8.1"),
        (100_003, 3, "rdma", "127.0.0.1.78.81"),
        (100_003, 3, "rdma6", "::1.78.82"),
    ];
    let nowhere = Rendezvous::Local("/nonexistent/rpcbind.sock".into());
    let registration =
        Registration::start(vec![nowhere, Rendezvous::Tcp(address)], offers(), vec![]).unwrap();
    let says = |procedure: RpcbindProcedure,
                (program, version, netid, address): (_, _, &str, &str)| {
        (
            procedure.number(),
            program,
            version,
            netid.to_owned(),
            address.to_owned(),
        )
    };
    for offer in expected {
        assert_eq!(wait(), says(RpcbindProcedure::Unset, offer));
        assert_eq!(wait(), says(RpcbindProcedure::Set, offer));
    }
    drop(registration);
    for offer in expected {
        assert_eq!(wait(), says(RpcbindProcedure::Unset, offer));
    }
}

#[test]
fn offers_are_replaced_one_after_the_other() {
    let (address, told) = fake_mapper();
    let registration =
        Registration::start(vec![Rendezvous::Tcp(address)], offers(), vec![]).unwrap();
    let moved = Offers::of_service(&[3], None, &["127.0.0.1:20050".parse().unwrap()]);
    let before = offers().iter().count();
    assert_eq!(registration.replace(moved), Ok(()));
    let [unset, set] =
        [RpcbindProcedure::Unset, RpcbindProcedure::Set].map(RpcbindProcedure::number);
    let procedures: Vec<_> = told.try_iter().map(|(procedure, ..)| procedure).collect();
    let expected = [
        [unset, set].repeat(before),
        vec![unset; before],
        vec![unset, set],
    ];
    assert_eq!(procedures, expected.concat());
}

#[test]
fn whoever_replaces_offers_is_told_that_no_port_mapper_answers() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let registration =
        Registration::start(vec![Rendezvous::Tcp(closed)], offers(), vec![]).unwrap();
    let error = registration.replace(offers()).unwrap_err();
    assert_eq!(error, "no port mapper answers");
}

#[test]
fn rr1_bind_03_an_unreachable_port_mapper_is_not_fatal() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let registration =
        Registration::start(vec![Rendezvous::Tcp(closed)], offers(), vec![]).unwrap();
    drop(registration);
}
