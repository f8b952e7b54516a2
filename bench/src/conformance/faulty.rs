//! Tests of the probe against faulty servers: it has to detect each fault.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::cases;
use super::fpdu;
use super::message::{Caller, words};
use super::peer::ProbeOptions;
use super::probe::{Probe, ProbeTarget};
use super::verdict::{Difference, Stop, word};
use crate::client::pool;

/// The answers of a faulty server: to a request frame, and to a message.
#[derive(Clone, Copy)]
struct Script {
    frame: fn(&[u8]) -> Vec<u8>,
    message: fn(&[u8]) -> Option<Vec<u8>>,
}

/// A sound reply frame without CRCs.
fn sound_frame(request: &[u8]) -> Vec<u8> {
    let mut reply = b"MPA ID Rep Frame".to_vec();
    reply.extend_from_slice(&[request[16] & 0x10, request[17], 0, 4]);
    reply.extend_from_slice(&request[20..24]);
    reply
}

/// The reply to a NULL call.
fn sound_reply(message: &[u8]) -> Option<Vec<u8>> {
    let xid = word(message, 0)?;
    Some(words(&[xid, 1, 32, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0]))
}

/// Serves any number of connections, until the process ends.
fn serve(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(move || converse(socket, script));
        }
    });
    address
}

fn converse(mut socket: TcpStream, script: Script) -> Option<()> {
    let mut head = [0; 20];
    socket.read_exact(&mut head).ok()?;
    let private = usize::from(u16::from_be_bytes([head[18], head[19]]));
    let mut request = head.to_vec();
    request.resize(20 + private, 0);
    socket.read_exact(&mut request[20..]).ok()?;
    socket.write_all(&(script.frame)(&request)).ok()?;
    let (mut bytes, mut sent) = (Vec::new(), 0);
    loop {
        let mut buffer = [0; 4096];
        let count = socket.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        while let Some((taken, arrived)) = fpdu::parse(&bytes) {
            bytes.drain(..taken);
            if let Some(answer) = (script.message)(&arrived.payload) {
                sent += 1;
                let frame = fpdu::frame(&fpdu::send(sent, &answer), true);
                socket.write_all(&frame).ok()?;
            }
        }
    }
}

fn probe(script: Script) -> Probe {
    let address = serve(script);
    let place = ProbeTarget {
        rdma: address,
        mount: address,
        nfs: address,
        export: "/none".to_owned(),
    };
    let options = ProbeOptions {
        timeout: Duration::from_secs(2),
        settle: Duration::ZERO,
    };
    let caller = Caller { uid: 0, gid: 0 };
    Probe::new(place, options, caller, pool(8 << 20).expect("memory"))
}

/// The result of the first case of a row.
fn found(probe: &mut Probe, row: &str) -> Result<(), Stop> {
    let case = cases::all().into_iter().find(|case| case.row == row);
    case.expect("a row of the probe").run(probe)
}

fn fault(probe: &mut Probe, row: &str) -> Difference {
    match found(probe, row) {
        Err(Stop::Fail(difference)) => difference,
        other => panic!("{row}: {other:?}"),
    }
}

const SOUND: Script = Script {
    frame: sound_frame,
    message: sound_reply,
};

#[test]
fn a_sound_reply_passes() {
    let mut probe = probe(SOUND);
    for row in ["RR1-HDR-02", "RR1-HDR-12", "RR1-CRED-03", "MPA-REQ-01"] {
        assert!(found(&mut probe, row).is_ok(), "{row}");
    }
}

#[test]
fn a_wrong_word_is_named_with_its_place() {
    let mut probe = probe(Script {
        message: |message| {
            let mut reply = sound_reply(message)?;
            reply[7] = 2;
            Some(reply)
        },
        ..SOUND
    });
    let difference = fault(&mut probe, "RR1-HDR-12");
    assert_eq!(difference.what, "rdma_vers is wrong");
    assert_eq!(difference.at, Some(4));
    assert_eq!(difference.expected.as_deref(), Some("00000001"));
    assert!(
        difference
            .got
            .is_some_and(|got| got.starts_with("00000002 in "))
    );
}

#[test]
fn answers_to_what_deserves_none_are_noticed() {
    let mut probe = probe(SOUND);
    // This server takes whatever comes for a NULL call.
    for row in [
        "RR1-DONE-07",
        "RR1-HDR-16",
        "RR1-HDR-18",
        "RR1-HDR-13",
        "RR1-HDR-20",
    ] {
        fault(&mut probe, row);
    }
}

#[test]
fn a_server_that_hangs_ends_its_case_only() {
    let mut probe = probe(Script {
        message: |message| (word(message, 3) == Some(0)).then(|| sound_reply(message))?,
        ..SOUND
    });
    let difference = fault(&mut probe, "RR1-HDR-20");
    assert!(
        difference.what.starts_with("no answer within"),
        "{difference}"
    );
    assert!(found(&mut probe, "RR1-HDR-12").is_ok());
}

#[test]
fn a_server_that_closes_ends_its_case_only() {
    let mut probe = probe(Script {
        frame: |request| {
            let mut reply = sound_frame(request);
            reply[3] ^= u8::from(request[17] == 1);
            reply
        },
        ..SOUND
    });
    assert!(found(&mut probe, "MPA-REQ-01").is_ok());
    fault(&mut probe, "MPA-REQ-14");
    assert!(found(&mut probe, "MPA-REQ-04").is_ok());
}

#[test]
fn wrong_frames_are_noticed() {
    let mut probe = probe(Script {
        frame: |request| {
            let mut reply = sound_frame(request);
            // Another connection model, no reads at all, reserved flags.
            reply[16] |= 1;
            reply.truncate(20);
            reply.extend_from_slice(&[0x80, 0, 0, 0]);
            reply
        },
        ..SOUND
    });
    for row in [
        "MPA-REQ-02",
        "MPA-RTR-02",
        "MPA-RTR-03",
        "MPA-IRD-09",
        "MPA-IRD-10",
    ] {
        fault(&mut probe, row);
    }
}

#[test]
fn a_server_without_a_directory_for_the_probe_fails() {
    let mut probe = probe(SOUND);
    let difference = fault(&mut probe, "RR1-CHUNK-16");
    assert!(
        difference.what.starts_with("no directory to work in: "),
        "{difference}"
    );
}

#[test]
fn what_is_not_offered_is_skipped() {
    let mut probe = probe(SOUND);
    for row in ["RR2-HDR-01", "RR1-BIND-02"] {
        match found(&mut probe, row) {
            Err(Stop::Skip(why)) => assert!(!why.is_empty()),
            other => panic!("{row}: {other:?}"),
        }
    }
}
