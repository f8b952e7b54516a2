//! The creation of contexts.

use std::time::Duration;

use millrace_gss::{
    Accepted as TokenAccepted, Enctype, Established, Failure, FailureReason, PartialContext,
    Settings, status,
};
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpc::{
    AUTH_NONE, Accepted, AuthStatus, CallOutcome, Denied, GssCredential, GssInitResults,
    GssProcedure, GssService, RPCSEC_GSS, ReplyHeader,
};
use millrace_wire::xdr::{Decode, Decoder};

use super::calls::Raw;
use super::initiator::{Called, Initiator, contexts_with, keys};
use super::{NULL, World, encoded, nfs};
use millrace::access::Security;

/// A token decides by its first letter what becomes of it.
fn accept(token: &[u8]) -> TokenAccepted {
    match token.first() {
        Some(b'c') => TokenAccepted::Continue {
            context: Box::new(SecondLeg),
            token: b"more".to_vec(),
        },
        Some(b'f') => TokenAccepted::Failed(Failure {
            major: status::BAD_MECH,
            minor: 42,
            reason: FailureReason::Mechanism,
            text: "no Kerberos".to_owned(),
        }),
        _ => established(),
    }
}

fn established() -> TokenAccepted {
    TokenAccepted::Complete(Box::new(Established {
        keys: keys(Enctype::Aes256Sha384),
        principal: "alice@EXAMPLE.COM".to_owned(),
        lifetime: Duration::from_secs(600),
        token: b"reply".to_vec(),
    }))
}

struct SecondLeg;

impl PartialContext for SecondLeg {
    fn proceed(self: Box<Self>, token: &[u8]) -> TokenAccepted {
        assert_eq!(token, b"second");
        established()
    }
}

fn world() -> World {
    let settings = Settings {
        realms: vec!["EXAMPLE.COM".to_owned()],
        ..Settings::default()
    };
    World::with(contexts_with(settings, Box::new(accept)), [Security::Krb5])
}

/// A call with the credential of a creation, and no verifier.
fn creation(called: Called, procedure: GssProcedure, handle: &[u8], arguments: &[u8]) -> Vec<u8> {
    let credential = GssCredential {
        procedure,
        sequence: 99,
        service: GssService::None,
        handle,
    };
    let client = Initiator::with(&keys(Enctype::Aes256Sha1), handle);
    let sealed = client.header(7, called, &credential);
    let mut message = sealed[..sealed.len() - 36].to_vec();
    message.extend([0; 8]);
    message.extend(arguments);
    message
}

fn token(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let pad = &[0; 3][..bytes.len().wrapping_neg() % 4];
    [&length, bytes, pad].concat()
}

fn init(bytes: &[u8]) -> Vec<u8> {
    creation(NULL, GssProcedure::Init, &[], &token(bytes))
}

/// The verifier's flavor and body, and the results.
fn results(reply: &[u8]) -> (u32, Vec<u8>, Vec<u8>) {
    let mut input = Decoder::new(reply);
    let header = ReplyHeader::decode(&mut input).unwrap();
    match header.outcome {
        CallOutcome::Accepted {
            verifier,
            status: Accepted::Success,
        } => (
            verifier.flavor,
            verifier.body.to_vec(),
            input.rest().to_vec(),
        ),
        outcome => panic!("{outcome:?}"),
    }
}

fn refused(world: &World, message: &[u8]) -> CallOutcome<'static> {
    let reply = world.send_until_done(message);
    match ReplyHeader::decode(&mut Decoder::new(&reply))
        .unwrap()
        .outcome
    {
        CallOutcome::Denied(denied) => CallOutcome::Denied(denied),
        CallOutcome::Accepted { status, verifier } => {
            assert_eq!(verifier.flavor, AUTH_NONE);
            millrace_wire::rpc::answer_to(0, status).outcome
        }
    }
}

#[test]
fn gss_ctx_01_gss_ctx_05_a_context_that_is_made_serves_calls() {
    let world = world();
    // Service and number mean nothing (GSS-CTX-01), and any program will do.
    for (called, service) in [(NULL, 0), ((100_005, 3, 0), 9)] {
        let mut message = creation(called, GssProcedure::Init, &[], &token(b"token"));
        message[44..48].copy_from_slice(&u32::to_be_bytes(service));
        let reply = world.send_until_done(&message);
        let (flavor, verifier, bytes) = results(&reply);
        let made = GssInitResults::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!((made.major, made.handle.len()), (status::COMPLETE, 16));
        assert_eq!((made.window, made.token), (2048, &b"reply"[..]));
        let client = Initiator::with(&keys(Enctype::Aes256Sha384), made.handle);
        assert_eq!(flavor, RPCSEC_GSS);
        assert!(client.verifies(&made.window.to_be_bytes(), &verifier));
        assert_eq!(
            world.call_by(&client, NULL, GssService::Privacy, &()),
            Ok(Vec::new())
        );
    }
}

#[test]
fn gss_ctx_06_a_second_token_completes_it() {
    let world = world();
    let reply = world.send_until_done(&init(b"continue"));
    let (flavor, _, bytes) = results(&reply);
    let made = GssInitResults::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!((made.major, flavor), (status::CONTINUE_NEEDED, AUTH_NONE));
    assert_eq!(made.token, b"more");
    // The handle is none of a context yet.
    let client = Initiator::with(&keys(Enctype::Aes256Sha384), made.handle);
    let early = client.call(8, NULL, GssService::None, &[]);
    let problem = CallOutcome::Denied(Denied::Auth(AuthStatus::GssCredentialProblem));
    assert_eq!(refused(&world, &early), problem);
    let second = creation(
        NULL,
        GssProcedure::ContinueInit,
        made.handle,
        &token(b"second"),
    );
    let reply = world.send_until_done(&second);
    let (flavor, _, bytes) = results(&reply);
    let made = GssInitResults::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!((made.major, flavor), (status::COMPLETE, RPCSEC_GSS));
    let client = Initiator::with(&keys(Enctype::Aes256Sha384), made.handle);
    assert!(world.call_by(&client, NULL, GssService::None, &()).is_ok());
}

#[test]
fn gss_ctx_07_and_08_failures_are_results() {
    let world = world();
    for (message, major) in [
        (init(b"f"), status::BAD_MECH),
        (
            creation(
                NULL,
                GssProcedure::ContinueInit,
                &[5; 16],
                &token(b"second"),
            ),
            status::NO_CONTEXT,
        ),
        (
            creation(
                NULL,
                GssProcedure::ContinueInit,
                b"short",
                &token(b"second"),
            ),
            status::NO_CONTEXT,
        ),
    ] {
        let reply = world.send_until_done(&message);
        let (flavor, verifier, bytes) = results(&reply);
        let made = GssInitResults::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!(made.major, major);
        assert!(made.handle.is_empty() && made.token.is_empty());
        assert_eq!((flavor, verifier.len()), (AUTH_NONE, 0));
    }
}

#[test]
fn gss_ctx_02_03_and_04_creations_that_are_refused() {
    let world = world();
    let denied = |status| CallOutcome::Denied(Denied::Auth(status));
    let garbage = millrace_wire::rpc::answer_to(0, Accepted::GarbageArguments).outcome;
    let bad = denied(AuthStatus::BadCredential);
    let getattr = creation(
        nfs(Procedure::Getattr),
        GssProcedure::Init,
        &[],
        &token(b"t"),
    );
    assert_eq!(refused(&world, &getattr), bad, "not NULL");
    let handle = creation(NULL, GssProcedure::Init, b"handle", &token(b"t"));
    assert_eq!(refused(&world, &handle), bad, "with a handle");
    let mut sealed = init(b"t");
    let verifier = sealed.len() - 16;
    sealed[verifier + 3] = 6;
    assert_eq!(refused(&world, &sealed), denied(AuthStatus::BadVerifier));
    let unknown = creation((100_099, 1, 0), GssProcedure::Init, &[], &token(b"t"));
    let none = millrace_wire::rpc::answer_to(0, Accepted::ProgramUnavailable).outcome;
    assert_eq!(refused(&world, &unknown), none);
    let most = 64 << 10;
    for (arguments, is_taken) in [
        (Vec::new(), false),
        (u32::MAX.to_be_bytes().to_vec(), false),
        (token(&vec![b't'; most + 1]), false),
        ([token(b"t"), vec![0; 4]].concat(), false),
        (token(&vec![b't'; most]), true),
    ] {
        let message = creation(NULL, GssProcedure::Init, &[], &arguments);
        if is_taken {
            let _ = results(&world.send_until_done(&message));
        } else {
            assert_eq!(refused(&world, &message), garbage);
        }
    }
    let _ = encoded(&Raw(&[]));
}
