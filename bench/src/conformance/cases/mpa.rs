//! MPA-REQ, MPA-ERR and MPA-INTEROP: frames of the connection setup.

use std::time::Duration;

use super::{Question, case};
use crate::conformance::fpdu;
use crate::conformance::message::plain;
use crate::conformance::probe::Probe;
use crate::conformance::stream::{Stream, data, enhanced, flag, request};
use crate::conformance::verdict::{Done, ensure, fail, fail_by, same};

/// How long half a request may be left lying about.
const TRICKLE_MAX: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Question] = &[
    case(
        "MPA-REQ-01",
        "a reply is key, flags, revision, length, private data",
        layout,
    ),
    case(
        "MPA-REQ-02",
        "reserved flags are sent as zero and not looked at",
        reserved_flags,
    ),
    case(
        "MPA-REQ-04",
        "an enhanced reply has revision 2",
        enhanced_revision,
    ),
    case(
        "MPA-REQ-06",
        "requests of revision 1 are accepted",
        revision_one,
    ),
    case(
        "MPA-REQ-07",
        "more than 512 bytes of private data end the connection",
        too_much_private_data,
    ),
    case(
        "MPA-REQ-08",
        "an enhanced request without its four bytes is closed on",
        missing_data,
    ),
    case(
        "MPA-REQ-11",
        "CRCs are used if the request asks for them",
        crc,
    ),
    case(
        "MPA-REQ-12",
        "the reject flag of a request is not looked at",
        reject_flag,
    ),
    case("MPA-REQ-14", "another key is closed on", other_key),
    case(
        "MPA-REQ-15",
        "half a request is not waited on for ever",
        half_a_request,
    ),
    case("MPA-REQ-16", "a request may arrive in pieces", in_pieces),
    case(
        "MPA-REQ-17",
        "revision 0 is closed on, a later one is taken for 2",
        other_revisions,
    ),
    case(
        "MPA-REQ-18",
        "the enhanced flag means nothing in revision 1",
        flag_in_revision_one,
    ),
    case(
        "MPA-REQ-19",
        "revision 2 without enhancement is answered without",
        plain_revision_two,
    ),
    case(
        "MPA-ERR-03",
        "a wrong CRC ends the connection, by code 2 if at all",
        wrong_crc,
    ),
    case(
        "MPA-INTEROP-01",
        "an enhanced request gets an enhanced reply",
        enhanced_reply,
    ),
    case(
        "MPA-INTEROP-02",
        "an unenhanced request gets an unenhanced reply",
        plain_reply,
    ),
    case(
        "MPA-INTEROP-07",
        "initiators of revision 1 are served",
        old_initiator,
    ),
    case(
        "MPA-INTEROP-08",
        "private data of RPC-over-RDMA is answered, and not needed",
        private_data,
    ),
];

/// The last of all, as it may take a server a while to forget it.
pub(super) const IDLE: &[Question] = &[case(
    "MPA-INTEROP-10",
    "connections that never send a request do no harm",
    half_open,
)];

fn layout(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    let reply = stream.ask(&enhanced(data(0, 16, 16)))?;
    same("key", b"MPA ID Rep Frame", &reply.bytes[..16])?;
    ensure(!reply.is_rejected(), "the request was rejected")?;
    stream.stays_silent(Duration::from_millis(100))
}

fn reserved_flags(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    let reply = stream.ask(&request(flag::ENHANCED | 0x0f, 2, &data(0, 16, 16)))?;
    ensure(!reply.is_rejected(), "the request was rejected")?;
    if reply.flags & 0x0f != 0 {
        return Err(fail_by("reserved flags are set in", &reply.bytes));
    }
    stream.settle();
    stream.serves(probe)
}

fn enhanced_revision(probe: &mut Probe) -> Done {
    let reply = Stream::connect(probe)?.ask(&enhanced(data(0, 16, 16)))?;
    ensure(
        reply.revision == 2,
        format!("revision {} in an enhanced reply", reply.revision),
    )
}

fn revision_one(probe: &mut Probe) -> Done {
    let reply = Stream::connect(probe)?.ask(&request(0, 1, b""))?;
    ensure(!reply.is_rejected(), "the request was rejected")
}

fn too_much_private_data(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    stream.write(&request(0, 1, &[0; 513]));
    stream.refuses()
}

fn missing_data(probe: &mut Probe) -> Done {
    for length in 0..4 {
        let mut stream = Stream::connect(probe)?;
        stream.write(&request(flag::ENHANCED, 2, &[0; 4][..length]));
        stream.refuses()?;
    }
    Ok(())
}

fn crc(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    let reply = stream.ask(&request(flag::ENHANCED | flag::CRC, 2, &data(0, 16, 16)))?;
    ensure(
        reply.flags & flag::CRC != 0,
        "the reply does not say that CRCs are used",
    )?;
    stream.settle();
    stream.serves(probe)
}

fn reject_flag(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    let reply = stream.ask(&request(flag::ENHANCED | flag::REJECT, 2, &data(0, 16, 16)))?;
    ensure(!reply.is_rejected(), "the request was rejected")
}

fn other_key(probe: &mut Probe) -> Done {
    for key in [b"MPA ID Rep Frame", b"GET / HTTP/1.1\r\n"] {
        let mut stream = Stream::connect(probe)?;
        let mut frame = enhanced(data(0, 16, 16));
        frame[..16].copy_from_slice(key);
        stream.write(&frame);
        stream.refuses()?;
    }
    Ok(())
}

fn half_a_request(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    stream.write(&enhanced(data(0, 16, 16))[..17]);
    stream.closes_within(TRICKLE_MAX)
}

fn in_pieces(probe: &mut Probe) -> Done {
    let frame = enhanced(data(0, 16, 16));
    let mut stream = Stream::connect(probe)?;
    for piece in frame[..22].chunks(5) {
        stream.write(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    let reply = stream.ask(&frame[22..])?;
    ensure(!reply.is_rejected(), "the request was rejected")?;
    stream.settle();
    stream.serves(probe)
}

fn other_revisions(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    stream.write(&request(0, 0, b""));
    stream.refuses()?;
    let reply = Stream::connect(probe)?.ask(&request(flag::ENHANCED, 3, &data(0, 16, 16)))?;
    ensure(
        reply.revision == 2 && !reply.is_rejected(),
        format!("revision {} answers revision 3", reply.revision),
    )
}

fn flag_in_revision_one(probe: &mut Probe) -> Done {
    let reply = Stream::connect(probe)?.ask(&request(flag::ENHANCED, 1, &data(0, 16, 16)))?;
    if reply.flags & flag::ENHANCED != 0 || reply.is_rejected() {
        return Err(fail_by(
            "an unenhanced accepting reply expected, not",
            &reply.bytes,
        ));
    }
    Ok(())
}

fn plain_revision_two(probe: &mut Probe) -> Done {
    let reply = Stream::connect(probe)?.ask(&request(0, 2, b""))?;
    if reply.flags & flag::ENHANCED != 0 || reply.is_rejected() {
        return Err(fail_by(
            "an unenhanced accepting reply expected, not",
            &reply.bytes,
        ));
    }
    Ok(())
}

fn wrong_crc(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    stream.ask(&request(flag::ENHANCED | flag::CRC, 2, &data(0, 16, 16)))?;
    stream.settle();
    let call = probe.null();
    let mut frame = fpdu::frame(&fpdu::send(1, &plain(&call)), true);
    let last = frame.len() - 1;
    frame[last] ^= 1;
    stream.write(&frame);
    match stream.segment() {
        Ok(arrived) => match arrived.termination() {
            Some((2, 0, 2)) => {}
            Some(found) => return Err(fail(format!("Terminate {found:?} instead of (2, 0, 2)"))),
            None => {
                return Err(fail_by(
                    "a call with a wrong CRC was answered",
                    &arrived.payload,
                ));
            }
        },
        // Closing without a word is allowed.
        Err(_) => return Ok(()),
    }
    stream.closes_within(probe.options.timeout)
}

fn enhanced_reply(probe: &mut Probe) -> Done {
    let reply = Stream::connect(probe)?.ask(&enhanced(data(0, 16, 16)))?;
    reply.data().map(|_| ())
}

fn plain_reply(probe: &mut Probe) -> Done {
    let reply = Stream::connect(probe)?.ask(&request(0, 1, b""))?;
    if reply.flags & flag::ENHANCED != 0 || reply.revision != 1 {
        return Err(fail_by(
            "an unenhanced reply of revision 1 expected, not",
            &reply.bytes,
        ));
    }
    Ok(())
}

fn old_initiator(probe: &mut Probe) -> Done {
    let mut stream = Stream::connect(probe)?;
    stream.ask(&request(0, 1, b""))?;
    stream.settle();
    stream.serves(probe)
}

/// Private data of RFC 8797: nothing but inline limits of 4096 bytes.
const RPC_PRIVATE_DATA: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3];

fn private_data(probe: &mut Probe) -> Done {
    let connection_data = data(0, 16, 16);
    for before in [&[][..], &[0x11], &[0x11, 0x22, 0x33]] {
        let private = [&connection_data[..], before, &RPC_PRIVATE_DATA].concat();
        let mut stream = Stream::connect(probe)?;
        let reply = stream.ask(&request(flag::ENHANCED, 2, &private))?;
        let found = millrace_wire::private_data::PrivateData::find(
            reply.private.get(4..).unwrap_or_default(),
        );
        let found = found.ok_or_else(|| fail_by("no private data of RFC 8797 in", &reply.bytes))?;
        ensure(
            found.receive_size >= 1024,
            format!("receives of {} bytes", found.receive_size),
        )?;
        stream.settle();
        stream.serves(probe)?;
    }
    let mut stream = Stream::connect(probe)?;
    stream.ask(&enhanced(connection_data))?;
    stream.settle();
    stream.serves(probe)
}

fn half_open(probe: &mut Probe) -> Done {
    let mut idle = Vec::new();
    for _ in 0..100 {
        match Stream::connect(probe) {
            Ok(stream) => idle.push(stream),
            // More may be refused.
            Err(_) => break,
        }
    }
    let mut peer = probe.peer()?;
    probe.lives(&mut peer)
}
