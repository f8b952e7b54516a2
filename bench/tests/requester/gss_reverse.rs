//! Calls of the server under the context of the client's calls.

use std::cell::RefCell;
use std::rc::Rc;

use millrace_bench::requester::Settings;
use millrace_gss::{Enctype, SEQUENCE_MAX};
use millrace_wire::rpc::{
    Accepted, AuthStatus, CallHeader, CallOutcome, Credential, Denied, GssCredential, GssProcedure,
    GssService, MessageType, OpaqueAuth, RPCSEC_GSS, ReplyHeader,
};
use millrace_wire::rpcrdma::{CallChunks, Outgoing, encode_header};
use millrace_wire::xdr::{Decode, Decoder, Encoder};

use crate::VERSION;
use crate::gss::{Acceptor, SERVICES, WINDOW, encoded, secured};
use crate::reverse::{Echo, willing};
use crate::support::{Peer, Raw};

const PROGRAM: u32 = 0x4000_0000;
const ECHO: u32 = 1;
const ARGUMENTS: &[u8] = b"eight by";
/// The handle that the requester gives its context.
const HANDLE: &[u8] = b"millrace-bench";

/// A requester that serves calls under its context, what it has served, and the server's end.
struct ProtectedWorld {
    raw: Raw,
    served: Rc<RefCell<Vec<u32>>>,
    acceptor: Acceptor,
}

/// A call in parts, each of which a test may change.
struct CallParts<'a> {
    credential: GssCredential<'a>,
    procedure: u32,
    /// The number in front of the arguments.
    inner: u32,
}

impl ProtectedWorld {
    fn new(service: GssService) -> Self {
        let (mine, acceptor) = secured(service, Enctype::Aes256Sha384);
        let mine = Settings {
            reverse_credits: willing().reverse_credits,
            ..mine
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let served = Rc::default();
        let context = raw.connection.context().cloned();
        raw.connection.protect_reverse(context.as_ref());
        let echo = Echo(Rc::clone(&served));
        raw.connection.set_reverse_service(Box::new(echo));
        Self {
            raw,
            served,
            acceptor,
        }
    }

    fn parts(&self, sequence: u32) -> CallParts<'static> {
        CallParts {
            credential: GssCredential {
                procedure: GssProcedure::Data,
                sequence,
                service: self.acceptor.service,
                handle: HANDLE,
            },
            procedure: ECHO,
            inner: sequence,
        }
    }

    fn message(&self, xid: u32, parts: &CallParts<'_>) -> Vec<u8> {
        let credential = encoded(&parts.credential);
        let mut call = encoded(&CallHeader {
            xid,
            program: PROGRAM,
            version: 1,
            procedure: parts.procedure,
            credential: Credential::Other(OpaqueAuth {
                flavor: RPCSEC_GSS,
                body: &credential[8..],
            }),
            verifier: OpaqueAuth::NONE,
        });
        call.truncate(call.len() - 8);
        let mic = self.acceptor.mic(&call);
        call.extend(encoded(&OpaqueAuth::from(&mic[..])));
        call.extend(self.acceptor.body(parts.inner, ARGUMENTS));
        call
    }

    /// Sends a call, and shows what comes back.
    fn send(&mut self, xid: u32, call: &[u8]) -> Option<Vec<u8>> {
        let mut message = vec![0; 4096];
        let mut out = Encoder::new(&mut message);
        let header = Outgoing {
            version: VERSION,
            xid,
            credits: 1,
            inline: true,
            direction: MessageType::Call,
            invalidate: 0,
        };
        encode_header(&mut out, &header, &CallChunks::default()).expect("room");
        out.raw(call).expect("room");
        let length = out.position();
        self.raw.send(&message[..length]);
        (!self.raw.inbox.is_empty()).then(|| self.raw.next().rpc)
    }

    /// The results of a reply to the call of a number, out of their protection.
    fn results(&self, sequence: u32, reply: &[u8]) -> Result<Vec<u8>, Accepted> {
        let mut input = Decoder::new(reply);
        let header = ReplyHeader::decode(&mut input).expect("a reply");
        let CallOutcome::Accepted { verifier, status } = header.outcome else {
            panic!("{header:?}")
        };
        let number = sequence.to_be_bytes();
        assert_eq!(verifier.flavor, RPCSEC_GSS);
        assert!(self.acceptor.protection.verify_mic(&number, verifier.body));
        match status {
            Accepted::Success => Ok(self.acceptor.opened(sequence, &mut input)),
            status => {
                assert_eq!(input.remaining(), 0);
                Err(status)
            }
        }
    }
}

fn denied(reply: &[u8]) -> AuthStatus {
    match ReplyHeader::decode(&mut Decoder::new(reply)).map(|header| header.outcome) {
        Ok(CallOutcome::Denied(Denied::Auth(status))) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn gss_sec_08_calls_of_the_server_are_served_and_the_answers_are_signed() {
    for service in SERVICES {
        let mut world = ProtectedWorld::new(service);
        // In any order within the window, and at any place of it.
        for sequence in [1, 3, 2, 100, 100 - WINDOW + 1] {
            let call = world.message(sequence, &world.parts(sequence));
            let reply = world.send(sequence, &call).expect("answered");
            assert_eq!(world.results(sequence, &reply), Ok(ARGUMENTS.to_vec()));
        }
        let unknown = CallParts {
            procedure: 99,
            ..world.parts(101)
        };
        let call = world.message(9, &unknown);
        let reply = world.send(9, &call).expect("answered");
        let unavailable = Err(Accepted::ProcedureUnavailable);
        assert_eq!(world.results(101, &reply), unavailable);
        assert_eq!(*world.served.borrow(), [1, 3, 2, 100, 37, 9]);
    }
}

#[test]
fn gss_sec_08_calls_of_the_server_that_do_not_verify_are_refused() {
    for service in SERVICES {
        let mut world = ProtectedWorld::new(service);
        let good = world.parts(1);
        let other = match service {
            GssService::None => GssService::Integrity,
            _ => GssService::None,
        };
        let with = |change: fn(&mut GssCredential<'_>, GssService)| {
            let mut parts = CallParts { ..good };
            change(&mut parts.credential, other);
            parts
        };
        let refused = [
            (
                with(|credential, other| credential.service = other),
                AuthStatus::BadCredential,
            ),
            (
                with(|credential, _| credential.procedure = GssProcedure::Destroy),
                AuthStatus::BadCredential,
            ),
            (
                with(|credential, _| credential.handle = b"another"),
                AuthStatus::GssCredentialProblem,
            ),
            (
                with(|credential, _| credential.sequence = SEQUENCE_MAX),
                AuthStatus::GssContextProblem,
            ),
        ];
        for (parts, status) in refused {
            let call = world.message(5, &parts);
            let reply = world.send(5, &call).expect("answered");
            assert_eq!(denied(&reply), status, "{service:?}");
        }
        // Another call than what was signed, which uses up no number.
        let whole = world.message(5, &good);
        for at in [15, 19, 23, 43] {
            let mut call = whole.clone();
            call[at] ^= 1;
            let reply = world.send(5, &call).expect("answered");
            let expected = AuthStatus::GssCredentialProblem;
            assert_eq!(denied(&reply), expected, "{service:?} {at}");
        }
        // No signature at all.
        let plain = encoded(&CallHeader {
            xid: 5,
            program: PROGRAM,
            version: 1,
            procedure: ECHO,
            credential: Credential::None,
            verifier: OpaqueAuth::NONE,
        });
        let reply = world.send(5, &plain).expect("answered");
        assert_eq!(denied(&reply), AuthStatus::TooWeak);
        assert!(world.served.borrow().is_empty());
        // Once only.
        assert!(world.send(5, &whole).is_some());
        assert!(world.send(5, &whole).is_none());
        assert_eq!(*world.served.borrow(), [5]);
        if service == GssService::None {
            continue;
        }
        let garbage = Err(Accepted::GarbageArguments);
        let call = world.message(6, &world.parts(2));
        let changed = [&call[..call.len() - 1], &[!call[call.len() - 1]]].concat();
        let reply = world.send(6, &changed).expect("answered");
        assert_eq!(world.results(2, &reply), garbage);
        let of_another = CallParts {
            inner: 4,
            ..world.parts(3)
        };
        let call = world.message(7, &of_another);
        let reply = world.send(7, &call).expect("answered");
        assert_eq!(world.results(3, &reply), garbage);
        assert_eq!(*world.served.borrow(), [5]);
    }
}
