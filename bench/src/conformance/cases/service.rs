//! RR1-BIND and RR1-SEC: where a server is, and what it guards.

use std::io::{Read, Write};
use std::net::TcpStream;

use millrace_wire::nfs3::{GetattrResults, Procedure};
use millrace_wire::rpcrdma::Segment;
use millrace_wire::xdr::from_bytes;

use super::bulk::{in_chunk, read};
use super::chunk::{with_reads, write_call};
use super::{Question, case};
use crate::conformance::message::{inline, is_chunk_error, nfs, parse, plain, results, rpc, words};
use crate::conformance::peer::entries;
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{Done, ensure, fail, same, skip};

pub(super) const CASES: &[Question] = &[
    case("RR1-BIND-02", "the service is at port 20049", usual_port),
    case(
        "RR1-BIND-09",
        "the same program is served on TCP and on RDMA",
        both_transports,
    ),
    case(
        "RR1-BIND-11",
        "a handle of MOUNT over TCP is good over RDMA",
        mounted,
    ),
    case(
        "RR1-SEC-05",
        "keys of another connection are of no use",
        foreign_key,
    ),
    case(
        "RR1-SEC-08",
        "nothing is read or written beside a chunk",
        beside_a_chunk,
    ),
    case(
        "RR1-SEC-19",
        "a server decides by the credential it is shown",
        credentials,
    ),
];

fn usual_port(probe: &mut Probe) -> Done {
    let port = probe.place.rdma.port();
    if port != 20049 {
        return Err(skip(format!("the probe was sent to port {port}")));
    }
    let mut peer = probe.peer()?;
    probe.lives(&mut peer)
}

fn both_transports(probe: &mut Probe) -> Done {
    let (caller, xid) = (probe.caller, probe.xid());
    let call = rpc(caller, xid, nfs(Procedure::Null), &[]);
    let expected = {
        let mut peer = probe.peer()?;
        parse(&peer.exchange(&plain(&call))?)?.message
    };
    let address = probe.place.nfs;
    match over_tcp(probe, address, &call) {
        Ok(found) => same("the reply over TCP", &expected, &found),
        Err(error) => Err(skip(format!("no NFS over TCP at {address}: {error}"))),
    }
}

fn over_tcp(probe: &Probe, address: std::net::SocketAddr, call: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect_timeout(&address, probe.options.timeout)?;
    socket.set_read_timeout(Some(probe.options.timeout))?;
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap_or(0);
    socket.write_all(&[&mark.to_be_bytes(), call].concat())?;
    let mut mark = [0; 4];
    socket.read_exact(&mut mark)?;
    let length = (u32::from_be_bytes(mark) & 0x7fff_ffff).min(4096);
    let mut reply = vec![0; length as usize];
    socket.read_exact(&mut reply)?;
    Ok(reply)
}

fn mounted(probe: &mut Probe) -> Done {
    let root = probe.fixture()?.root;
    let mut peer = probe.peer()?;
    let found = probe.run::<GetattrResults>(&mut peer, Procedure::Getattr, &root)?;
    found
        .map(|_| ())
        .map_err(|failure| fail(format!("GETATTR of the root: {:?}", failure.status)))
}

fn foreign_key(probe: &mut Probe) -> Done {
    let fixture = probe.fixture()?;
    let mut owner = probe.peer()?;
    probe.warm(&mut owner)?;
    let theirs = owner.sink(512)?;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    // The server writes under a key that this connection does not have: its own adapter's
    // business is to write on this connection, ours to refuse it.
    let _ = read(
        probe,
        &mut peer,
        (fixture.file, 0, 512),
        &[&[theirs.whole()]],
        None,
    );
    same(
        "memory of another connection",
        &[0xee; 512],
        &theirs.bytes(),
    )?;
    probe.lives(&mut owner)?;
    let mut fresh = probe.peer()?;
    probe.lives(&mut fresh)
}

fn beside_a_chunk(probe: &mut Probe) -> Done {
    let fixture = probe.fixture()?;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(1000)?;
    let middle: [Segment; 1] = [sink.segment(300, 400)];
    let answer = read(probe, &mut peer, (fixture.file, 0, 400), &[&middle], None)?;
    in_chunk(&parse(&answer)?, 400)?;
    let bytes = sink.bytes();
    same("memory before the chunk", &[0xee; 300], &bytes[..300])?;
    same("memory behind the chunk", &[0xee; 300], &bytes[700..])?;
    let source = peer.source(&[0xaa; 1000])?;
    let (call, position) = write_call(probe, fixture.scratch, 0, 400);
    let reads = entries(position, &[source.segment(300, 400)]);
    let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
    ensure(
        !is_chunk_error(&answer),
        "a WRITE from the middle of memory is refused",
    )?;
    same("memory of the source", &[0xaa; 1000], &source.bytes())
}

fn credentials(probe: &mut Probe) -> Done {
    let fixture = probe.fixture()?;
    let mut peer = probe.peer()?;
    // A flavor that does not exist is denied, or at least not taken for the owner.
    let mut call = rpc(probe.caller, probe.xid(), nfs(Procedure::Getattr), &[]);
    let handle = crate::conformance::message::encoded(&fixture.root);
    call[24..28].copy_from_slice(&0x7777_u32.to_be_bytes());
    call.extend(handle);
    let answer = peer.exchange(&plain(&call))?;
    let message = parse(&answer)?.message;
    let denied = words(&[1, 1, 1]);
    if message.get(4..16) == Some(&denied[..]) {
        return probe.lives(&mut peer);
    }
    let taken =
        results(&message).is_ok_and(|results| from_bytes::<GetattrResults>(results).is_ok());
    ensure(!taken, "a credential of no known flavor is taken")
}
