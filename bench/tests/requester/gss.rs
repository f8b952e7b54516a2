//! Calls under a context of RPCSEC_GSS with given keys: what a server sees of them, and which replies
//! are taken.

use std::sync::Arc;

use millrace_bench::requester::{
    Call, CallError, GssContext, Repetition, SecurityFault, Settings, SubmitError,
};
use millrace_gss::{ContextKeys, Enctype, Progress, Protection, Side};
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpc::{
    Accepted, AuthStatus, CallOutcome, CallWords, Denied, GssCredential, GssProcedure, GssService,
    IntegrityBody, OpaqueAuth, ReplyHeader, privacy_token, protected_content,
};
use millrace_wire::xdr::{Decoder, Encode, Encoder};

use crate::chunk::{pattern, read_arguments, write_arguments};
use crate::support::{
    Peer, Raw, SHORTEST, Seen, handle, message, settings, stale, success, unbound,
};

pub const SERVICES: [GssService; 3] =
    [GssService::None, GssService::Integrity, GssService::Privacy];
pub const WINDOW: u32 = 64;
pub const HANDLE: &[u8] = b"0123456789abcdef";

fn keys(enctype: Enctype) -> ContextKeys {
    ContextKeys {
        enctype,
        key: (0..).take(enctype.key_length()).collect::<Vec<u8>>().into(),
        acceptor_subkey: true,
        send_sequence: 7,
    }
}

/// The server's end of a context.
pub struct Acceptor {
    pub service: GssService,
    pub protection: Arc<Protection>,
}

/// A call out of its protection.
#[derive(Debug)]
struct Opened {
    xid: u32,
    sequence: u32,
    arguments: Vec<u8>,
}

/// A reply in parts, each of which a test may change.
struct Parts {
    /// The number that the verifier is of.
    verified: u32,
    /// The number in front of the results.
    inner: u32,
    status: Accepted,
    results: Vec<u8>,
}

pub fn encoded(value: &dyn Encode) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 17];
    let mut out = Encoder::new(&mut bytes);
    value.encode(&mut out).expect("room");
    let length = out.position();
    bytes.truncate(length);
    bytes
}

impl Acceptor {
    pub fn mic(&self, message: &[u8]) -> Vec<u8> {
        let mut mic = vec![0; self.protection.mic_length()];
        assert_eq!(self.protection.sign(message, &mut mic), mic.len());
        mic
    }

    /// Checks a call as a server does.
    fn open(&self, rpc: &[u8]) -> Opened {
        let mut input = Decoder::new(rpc);
        let words = CallWords::decode(&mut input).expect("a call");
        let covered = &rpc[..words.covered];
        assert!(self.protection.verify_mic(covered, words.verifier.body));
        let credential = GssCredential::from_body(words.credential.body).expect("a credential");
        assert_eq!(credential.procedure, GssProcedure::Data);
        assert_eq!(
            (credential.service, credential.handle),
            (self.service, HANDLE)
        );
        Opened {
            xid: words.xid,
            sequence: credential.sequence,
            arguments: self.opened(credential.sequence, &mut input),
        }
    }

    /// What a body holds, which is all that is left.
    pub fn opened(&self, sequence: u32, input: &mut Decoder<'_>) -> Vec<u8> {
        let content = match self.service {
            GssService::None => return input.rest().to_vec(),
            GssService::Integrity => {
                let body = IntegrityBody::decode_all(input).expect("a protected body");
                assert!(self.protection.verify_mic(body.covered, body.checksum));
                body.covered.to_vec()
            }
            GssService::Privacy => {
                let mut token = privacy_token(input).expect("a token").to_vec();
                let mut unwrapping = self.protection.unwrapping(&token).expect("a token");
                loop {
                    let step = unwrapping.step(&mut token, 1 << 20);
                    if let Progress::Done(range) = step.expect("a good token") {
                        break token[range].to_vec();
                    }
                }
            }
        };
        let (inner, content) = protected_content(&content).expect("a number");
        assert_eq!(inner, sequence);
        content.to_vec()
    }

    fn reply(&self, xid: u32, parts: &Parts) -> Vec<u8> {
        let verifier = self.mic(&parts.verified.to_be_bytes());
        let mut reply = encoded(&ReplyHeader {
            xid,
            outcome: CallOutcome::Accepted {
                verifier: OpaqueAuth::from(&verifier[..]),
                status: parts.status,
            },
        });
        reply.extend(match parts.status {
            Accepted::Success => self.body(parts.inner, &parts.results),
            _ => Vec::new(),
        });
        reply
    }

    /// Arguments or results as the service has them.
    pub fn body(&self, sequence: u32, plain: &[u8]) -> Vec<u8> {
        let content = [&sequence.to_be_bytes(), plain].concat();
        match self.service {
            GssService::None => plain.to_vec(),
            GssService::Integrity => encoded(&IntegrityBody {
                covered: &content,
                checksum: &self.mic(&content),
            }),
            GssService::Privacy => {
                let mut token = vec![0; content.len() + self.protection.wrap_overhead()];
                let prefix = Protection::WRAP_PREFIX;
                token[prefix..prefix + content.len()].copy_from_slice(&content);
                let mut wrapping = self.protection.wrapping(content.len());
                while wrapping.step(&mut token, 1 << 20).expect("the length") == Progress::More {}
                let length = u32::try_from(token.len()).expect("short").to_be_bytes();
                let pad = &[0; 3][..token.len().wrapping_neg() % 4];
                [&length[..], &token, pad].concat()
            }
        }
    }
}

fn results(sequence: u32, results: &dyn Encode) -> Parts {
    Parts {
        verified: sequence,
        inner: sequence,
        status: Accepted::Success,
        results: encoded(results),
    }
}

pub fn secured(service: GssService, enctype: Enctype) -> (Settings, Acceptor) {
    let keys = keys(enctype);
    let context = GssContext::new(&keys, (HANDLE, WINDOW), service).expect("a key");
    let mine = Settings {
        context: Some(context),
        ..settings()
    };
    let protection = Protection::new(&keys, Side::Acceptor).expect("a key");
    let acceptor = Acceptor {
        service,
        protection,
    };
    (mine, acceptor)
}

/// A connection under a context, whose window is open, and the server's end of the context.
fn open(service: GssService) -> (Raw, Acceptor) {
    let (mine, acceptor) = secured(service, Enctype::Aes256Sha384);
    (Raw::open(mine, Peer::default(), 8), acceptor)
}

/// The RPC message of a call, whatever its form.
fn rpc_of(raw: &mut Raw, call: &Seen) -> Vec<u8> {
    match call.kind {
        0 => call.rpc.clone(),
        _ => raw.fetch_all(&call.read_segments()),
    }
}

/// Answers a call inline with these bytes; how the call ended.
fn answered(raw: &mut Raw, call: &Seen, rpc: &[u8]) -> Result<Vec<u8>, CallError> {
    raw.send(&message(call.xid, 8, &[], None, Some(rpc)));
    raw.done.pop().expect("ended").result.map(|reply| reply.0)
}

/// Makes a GETATTR, answers it, and tells how it ended.
fn getattr(
    raw: &mut Raw,
    acceptor: &Acceptor,
    answer: impl FnOnce(&Opened) -> Vec<u8>,
) -> Result<Vec<u8>, CallError> {
    raw.getattr(1);
    let call = raw.next();
    let opened = acceptor.open(&call.rpc);
    assert_eq!(opened.arguments, encoded(&handle()));
    let reply = answer(&opened);
    answered(raw, &call, &reply)
}

#[test]
fn calls_are_signed_under_numbers_of_their_own_and_replies_are_made_plain() {
    for service in SERVICES {
        for enctype in Enctype::ALL {
            let (mine, acceptor) = secured(service, enctype);
            let mut raw = Raw::open(mine, Peer::default(), 8);
            let mut last = 0;
            for _ in 0..5 {
                let mut xid = 0;
                let done = getattr(&mut raw, &acceptor, |call| {
                    assert!(call.sequence > last, "{service:?}");
                    (last, xid) = (call.sequence, call.xid);
                    acceptor.reply(call.xid, &results(call.sequence, &stale()))
                });
                assert_eq!(done, Ok(success(xid, &stale())), "{service:?} {enctype:?}");
            }
        }
    }
}

#[test]
fn other_statuses_than_success_are_signed_and_have_no_results() {
    let mismatch = Accepted::ProgramMismatch { low: 2, high: 4 };
    for service in SERVICES {
        let (mut raw, acceptor) = open(service);
        for status in [Accepted::GarbageArguments, mismatch] {
            let mut xid = 0;
            let done = getattr(&mut raw, &acceptor, |call| {
                xid = call.xid;
                let parts = Parts {
                    status,
                    ..results(call.sequence, &())
                };
                acceptor.reply(call.xid, &parts)
            });
            let plain = encoded(&millrace_wire::rpc::answer_to(xid, status));
            assert_eq!(done, Ok(plain), "{service:?}");
        }
    }
}

#[test]
fn a_reply_whose_verifier_is_not_the_servers_for_the_call_is_refused() {
    let refused = Err(CallError::Security(SecurityFault::Verifier));
    for service in SERVICES {
        let (mut raw, acceptor) = open(service);
        // A byte of the MIC; its flavor; the number of the call before.
        for at in [15, 20, 27, 28, 36, 59] {
            let done = getattr(&mut raw, &acceptor, |call| {
                let mut reply = acceptor.reply(call.xid, &results(call.sequence, &stale()));
                reply[at] ^= 1;
                reply
            });
            assert_eq!(done, refused, "{service:?}: byte {at}");
        }
        let done = getattr(&mut raw, &acceptor, |call| {
            let parts = Parts {
                verified: call.sequence - 1,
                ..results(call.sequence, &stale())
            };
            acceptor.reply(call.xid, &parts)
        });
        assert_eq!(done, refused, "{service:?}: another number");
        let done = getattr(&mut raw, &acceptor, |call| success(call.xid, &stale()));
        assert_eq!(done, refused, "{service:?}: none");
        assert_eq!(raw.connection.counters().bad_replies, 8 + 1);
        // The connection goes on.
        let done = getattr(&mut raw, &acceptor, |call| {
            acceptor.reply(call.xid, &results(call.sequence, &stale()))
        });
        done.expect("a good reply");
    }
}

#[test]
fn results_that_are_not_protected_for_the_call_are_refused() {
    let refused = Err(CallError::Security(SecurityFault::Results));
    for service in [GssService::Integrity, GssService::Privacy] {
        let (mut raw, acceptor) = open(service);
        let length = acceptor.reply(0, &results(1, &stale())).len();
        for at in 64..length {
            let done = getattr(&mut raw, &acceptor, |call| {
                let mut reply = acceptor.reply(call.xid, &results(call.sequence, &stale()));
                reply[at] ^= 0x10;
                reply
            });
            // A rotation that turns the token to where it was.
            let is_same = service == GssService::Privacy && at == 74;
            assert_eq!(done != refused, is_same, "{service:?}: byte {at}");
        }
        let done = getattr(&mut raw, &acceptor, |call| {
            let parts = Parts {
                inner: call.sequence + 1,
                ..results(call.sequence, &stale())
            };
            acceptor.reply(call.xid, &parts)
        });
        assert_eq!(done, refused, "{service:?}: another number");
        let plain = Acceptor {
            service: GssService::None,
            protection: Arc::clone(&acceptor.protection),
        };
        let done = getattr(&mut raw, &acceptor, |call| {
            plain.reply(call.xid, &results(call.sequence, &stale()))
        });
        assert_eq!(done, refused, "{service:?}: not protected");
    }
}

#[test]
fn a_context_that_the_server_has_lost_or_ended_is_an_error_of_its_own() {
    let (mut raw, acceptor) = open(GssService::Integrity);
    let denied = |status| {
        move |call: &Opened| {
            encoded(&ReplyHeader {
                xid: call.xid,
                outcome: CallOutcome::Denied(Denied::Auth(status)),
            })
        }
    };
    let lost = getattr(
        &mut raw,
        &acceptor,
        denied(AuthStatus::GssCredentialProblem),
    );
    let fault = SecurityFault::ContextUnknown;
    assert_eq!(lost, Err(CallError::Security(fault)));
    assert!(fault.to_string().contains("RPCSEC_GSS_CREDPROBLEM"));
    let ended = getattr(&mut raw, &acceptor, denied(AuthStatus::GssContextProblem));
    let fault = SecurityFault::ContextEnded;
    assert_eq!(ended, Err(CallError::Security(fault)));
    assert!(fault.to_string().contains("kinit"));
    // Others are the owner's to read.
    let weak = getattr(&mut raw, &acceptor, denied(AuthStatus::TooWeak));
    assert_eq!(weak.map(|message| message.len()), Ok(20));
}

#[test]
fn gss_rdma_03_protected_data_travels_in_the_message_only() {
    for service in SERVICES {
        let (mine, acceptor) = secured(service, Enctype::Aes256Sha1);
        let mut raw = Raw::open(mine, Peer::default(), 8);
        raw.pool.grow(8 << 20).expect("memory");
        for count in [100, 5001, 65_536] {
            let data = [raw.memory(count)];
            let call = Call::nfs3(1, Procedure::Write, write_arguments(count as u32), 0);
            raw.submit(&call.with_data(&data));
            let call = raw.next();
            let chunked = service == GssService::None && count > 4000;
            let rpc = match chunked {
                true => call.rpc.clone(),
                false => rpc_of(&mut raw, &call),
            };
            assert_eq!(call.kind == 1, service != GssService::None && count > 4000);
            let opened = acceptor.open(&rpc);
            let pads = count.wrapping_neg() % 4;
            if chunked {
                assert_eq!(raw.fetch_all(&call.read_segments()), pattern(count));
            } else {
                let data = [pattern(count), vec![0; pads]].concat();
                assert!(opened.arguments.ends_with(&data), "{service:?} {count}");
            }
            let reply = acceptor.reply(call.xid, &results(opened.sequence, &stale()));
            answered(&mut raw, &call, &reply).expect("a reply");

            let room = [raw.memory(count)];
            let read = Call::nfs3(2, Procedure::Read, read_arguments(count as u32), 0);
            raw.submit(&read.with_sinks(&[&room]));
            let call = raw.next();
            let opened = acceptor.open(&call.rpc);
            assert_eq!(opened.arguments, encoded(&read_arguments(count as u32)));
            assert_eq!(
                call.writes.is_empty(),
                count == 100 || service != GssService::None
            );
            assert_eq!(
                call.reply.is_some(),
                count > 4000 && service != GssService::None
            );
            // Any results of the size that was asked for.
            let long = vec![0x5a; count.next_multiple_of(4) + 100];
            let parts = Parts {
                results: long.clone(),
                ..results(opened.sequence, &())
            };
            let Some(segments) = &call.reply else {
                let reply = acceptor.reply(call.xid, &results(opened.sequence, &stale()));
                answered(&mut raw, &call, &reply).expect("a reply");
                continue;
            };
            let filled = raw.place_all(segments, &acceptor.reply(call.xid, &parts));
            raw.send(&message(call.xid, 8, &[], Some(&filled), None));
            let done = raw.done.pop().expect("ended").result.expect("a reply");
            assert_eq!(done.0[24..], long, "{service:?} {count}");
        }
    }
}

#[test]
fn a_message_that_fits_into_no_buffer_once_it_is_protected_is_not_taken() {
    for (service, is_taken) in [(GssService::None, true), (GssService::Privacy, false)] {
        let (mut raw, _) = open(service);
        raw.pool.grow(8 << 20).expect("memory");
        let data = [raw.memory(1 << 20)];
        let call = Call::nfs3(1, Procedure::Write, write_arguments(1 << 20), 0);
        let taken = raw.try_submit(&call.with_data(&data)).map(drop);
        let expected = if is_taken {
            Ok(())
        } else {
            Err(SubmitError::TooLong)
        };
        assert_eq!(taken, expected);
    }
}

#[test]
fn gss_rdma_05_replies_are_expected_with_all_that_protects_them() {
    for (service, added) in [
        (GssService::None, 28),
        (GssService::Integrity, 28 + 8 + 4 + 28),
        (GssService::Privacy, 28 + 8 + 60),
    ] {
        let limit = 4096 - SHORTEST - added;
        for (largest_reply, chunk) in [(limit, false), (limit + 4, true)] {
            let (mine, _) = secured(service, Enctype::Aes256Sha1);
            let mut raw = Raw::open(mine, Peer::default(), 8);
            raw.submit(&unbound((), largest_reply));
            assert_eq!(raw.next().reply.is_some(), chunk, "{service:?}");
        }
    }
}

#[test]
fn a_call_that_is_sent_again_has_its_xid_and_another_number() {
    for service in SERVICES {
        let (mine, acceptor) = secured(service, Enctype::Aes128Sha256);
        let keep = Settings {
            keep_calls: true,
            ..mine
        };
        let mut raw = Raw::open(keep, Peer::default(), 8);
        raw.getattr(1);
        let first = acceptor.open(&raw.next().rpc);
        raw.break_off();
        raw.reconnect();
        let call = raw.next();
        let second = acceptor.open(&call.rpc);
        assert_eq!(first.xid, second.xid);
        assert_eq!(first.arguments, second.arguments);
        assert!(second.sequence > first.sequence);
        // A reply to the first transmission is none to the second.
        let late = acceptor.reply(call.xid, &results(first.sequence, &stale()));
        let done = answered(&mut raw, &call, &late);
        assert_eq!(done, Err(CallError::Security(SecurityFault::Verifier)));
    }
}

#[test]
fn repeated_templates_are_signed_with_their_arguments() {
    for service in SERVICES {
        let (mut raw, acceptor) = open(service);
        let arguments = read_arguments(100);
        let call = Call::nfs3(0, Procedure::Read, arguments, 0);
        let offset = encoded(&arguments).len() - 12;
        let template = raw.connection.template(&call, &[offset]).expect("encodes");
        let mut last = 0;
        for value in [5, u64::MAX] {
            let room = [raw.memory(100)];
            let repetition = Repetition {
                token: 1,
                arguments: [value, 0],
                data: millrace_bench::requester::Data::None,
                sinks: &[&room],
            };
            let now = raw.now;
            let taken = raw.connection.repeat(&template, &repetition, now);
            taken.expect("taken");
            raw.settle();
            let call = raw.next();
            let opened = acceptor.open(&call.rpc);
            assert_eq!(opened.arguments[offset..offset + 8], value.to_be_bytes());
            assert!(opened.sequence > last);
            last = opened.sequence;
            let reply = acceptor.reply(call.xid, &results(last, &stale()));
            answered(&mut raw, &call, &reply).expect("a reply");
        }
    }
}
