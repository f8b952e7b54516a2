//! Credentials, verifiers, sequence numbers, and the end of contexts.

use millrace::access::Security;
use millrace::call::Answer;
use millrace_gss::Enctype;
use millrace_wire::nfs3::{GetattrResults, Procedure};
use millrace_wire::rpc::{
    Accepted, AuthStatus, CallOutcome, Denied, GssCredential, GssProcedure, GssService,
    ReplyHeader, answer_to,
};
use millrace_wire::xdr::from_bytes;

use super::initiator::{Called, Initiator, user};
use super::{NULL, SERVICES, World, encoded, nfs};

const ALL: [Security; 3] = [Security::Krb5p, Security::Krb5i, Security::Krb5];

/// The reply to a call that is denied.
fn denied(reply: &[u8]) -> AuthStatus {
    let header: ReplyHeader<'_> = from_bytes(reply).unwrap();
    match header.outcome {
        CallOutcome::Denied(Denied::Auth(status)) => status,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn gss_cred_05_every_accepted_reply_has_the_verifier_of_its_call() {
    for enctype in Enctype::ALL {
        let world = World::new(ALL);
        let client = Initiator::new(&world.contexts, user(7), enctype);
        for service in SERVICES {
            let call =
                |called, arguments: &[u8]| world.call_by(&client, called, service, &Raw(arguments));
            assert_eq!(call(NULL, &[]), Ok(Vec::new()));
            let xid = || world.xid.get();
            let mismatch = Accepted::ProgramMismatch { low: 3, high: 3 };
            for (called, status) in [
                ((100_003, 9, 0), mismatch),
                ((100_099, 3, 0), Accepted::ProgramUnavailable),
                ((100_003, 3, 99), Accepted::ProcedureUnavailable),
                (nfs(Procedure::Getattr), Accepted::GarbageArguments),
            ] {
                let refused = call(called, &[1, 2, 3, 4]).unwrap_err();
                let expected = answer_to(xid(), status);
                if !matches!(status, Accepted::ProgramMismatch { .. }) {
                    assert_eq!(refused, expected, "{called:?}");
                }
            }
            let root = world.root();
            let results = world
                .call_by(&client, nfs(Procedure::Getattr), service, &root)
                .unwrap();
            assert!(from_bytes::<GetattrResults>(&results).unwrap().is_ok());
        }
    }
}

/// Bytes as they are.
pub struct Raw<'b>(pub &'b [u8]);

impl millrace_wire::xdr::Encode for Raw<'_> {
    fn encode(
        &self,
        out: &mut millrace_wire::xdr::Encoder<'_>,
    ) -> Result<(), millrace_wire::xdr::Error> {
        out.raw(self.0)
    }
}

#[test]
fn gss_cred_03_gss_seq_04_a_changed_header_is_refused_and_changes_nothing() {
    let world = World::new(ALL);
    let client = &world.client;
    let sequence = client.next();
    let message = client.header(5, NULL, &client.credential(GssService::None, sequence));
    let before = message.len() - (8 + 28);
    let forged = |at: usize, bit: u8| {
        let mut message = message.clone();
        message[at] ^= 1 << bit;
        // A connection of its own: a hundred in a row would end one.
        world.bench.call_from(world.bench.connection().peer());
        world.send(&message)
    };
    // Under the verifier, behind RPC version: the program is not even looked up.
    for at in (0..4).chain(12..24).chain(36..40).chain(44 + 4..before) {
        for bit in 0..8 {
            let reply = forged(at, bit);
            // A bit of the length of the handle makes the credential another one.
            let continues = (at, bit) == (39, 1);
            if reply.answer == Answer::Send && !(48..52).contains(&at) && !continues {
                assert_eq!(
                    denied(&reply.message),
                    match at {
                        36..40 => AuthStatus::BadCredential,
                        _ => AuthStatus::GssCredentialProblem,
                    },
                    "{at} {bit}"
                );
            }
        }
    }
    // The verifier itself, whatever its bit.
    for at in before + 8..message.len() {
        assert_eq!(
            denied(&forged(at, 3).message),
            AuthStatus::GssCredentialProblem
        );
    }
    let mut unsealed = message.clone();
    unsealed[before..before + 4].fill(0);
    assert_eq!(
        denied(&world.send(&unsealed).message),
        AuthStatus::BadVerifier
    );
    // None of them has used the number up, nor moved the window: far numbers neither.
    let far = GssCredential {
        sequence: 0x7fff_ffff,
        ..client.credential(GssService::None, sequence)
    };
    let mut far = client.header(5, NULL, &far);
    *far.last_mut().unwrap() ^= 1;
    assert_eq!(
        denied(&world.send(&far).message),
        AuthStatus::GssCredentialProblem
    );
    let reply = world.send(&message).message;
    assert_eq!(
        client.results(GssService::None, sequence, &reply),
        Ok(Vec::new())
    );
}

#[test]
fn gss_cred_04_our_own_verifier_is_no_verifier_of_a_client() {
    let world = World::new(ALL);
    let client = &world.client;
    let message = client.call(5, NULL, GssService::None, &[]);
    let reply = world.send(&message).message;
    // The MIC of the number is at hand; a header of that content is not. So is any other token.
    let sequence = client.next();
    let mut reflected = client.header(6, NULL, &client.credential(GssService::None, sequence));
    let length = reflected.len();
    reflected[length - 28..].copy_from_slice(&reply[20..48]);
    assert_eq!(
        denied(&world.send(&reflected).message),
        AuthStatus::GssCredentialProblem
    );
}

#[test]
fn gss_seq_01_and_03_numbers_are_taken_once_and_have_a_bound() {
    let world = World::new(ALL);
    let client = &world.client;
    let send = |sequence| {
        let credential = client.credential(GssService::None, sequence);
        world.send(&client.header(9, NULL, &credential))
    };
    for sequence in [0, 5000, 4000, 0x7fff_ffff] {
        let reply = send(sequence).message;
        assert!(client.results(GssService::None, sequence, &reply).is_ok());
        assert_eq!(send(sequence).answer, Answer::Silent, "once");
    }
    assert_eq!(send(5001).answer, Answer::Silent, "below the window");
    for sequence in [0x8000_0000, u32::MAX] {
        let reply = send(sequence).message;
        assert_eq!(denied(&reply), AuthStatus::GssContextProblem);
    }
    let counters = world.contexts.all_call_counters();
    assert_eq!(counters[0].dropped_seen.get(), 4);
    assert_eq!(counters[0].dropped_old.get(), 1);
    assert_eq!(counters[0].context_problems.get(), 2);
}

#[test]
fn gss_hdl_01_unknown_handles_are_refused_before_anything_else() {
    let world = World::new(ALL);
    let client = &world.client;
    for handle in [
        &[][..],
        &[0; 15],
        &[0; 16],
        &[0xff; 16],
        &[0; 17],
        &[7; 300],
    ] {
        let credential = GssCredential {
            handle,
            // Not even the number is looked at.
            ..client.credential(GssService::None, u32::MAX)
        };
        let reply = world.send(&client.header(9, NULL, &credential)).message;
        assert_eq!(denied(&reply), AuthStatus::GssCredentialProblem);
    }
}

/// Both have the same keys, in the same slot of their tables.
#[test]
fn gss_hdl_04_a_restarted_server_knows_no_context_and_calls_are_repeated_by_new_ones() {
    let (before, restarted) = (World::new(ALL), World::new(ALL));
    let root = encoded(&restarted.root());
    for service in SERVICES {
        let xid = restarted.xid();
        let called = nfs(Procedure::Getattr);
        let repeated = before.client.call(xid, called, service, &root);
        assert_eq!(
            denied(&restarted.send(&repeated).message),
            AuthStatus::GssCredentialProblem
        );
        let renewed = restarted.client.call(xid, called, service, &root);
        let reply = restarted.send(&renewed).gathered();
        let sequence = restarted.client.sequence.get();
        let results = restarted.client.results(service, sequence, &reply).unwrap();
        assert!(from_bytes::<GetattrResults>(&results).unwrap().is_ok());
    }
    let ended = restarted.send(&destroy(&before.client, NULL)).message;
    assert_eq!(denied(&ended), AuthStatus::GssCredentialProblem);
}

#[test]
fn gss_cred_01_gss_ctx_13_credentials_that_are_none() {
    let world = World::new(ALL);
    let client = &world.client;
    let good = client.header(9, NULL, &client.credential(GssService::None, 1));
    for (at, value, status) in [
        (32, 0, AuthStatus::RejectedCredential),
        (32, 2, AuthStatus::RejectedCredential),
        (32, 3, AuthStatus::RejectedCredential),
        (36, 4, AuthStatus::BadCredential),
        (44, 0, AuthStatus::BadCredential),
        (44, 4, AuthStatus::BadCredential),
        (48, 12, AuthStatus::BadCredential),
        (48, 20, AuthStatus::BadCredential),
    ] {
        let mut message = good.clone();
        message[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
        assert_eq!(
            denied(&world.send(&message).message),
            status,
            "{at} {value}"
        );
    }
}

fn destroy(client: &Initiator, called: Called) -> Vec<u8> {
    let credential = GssCredential {
        procedure: GssProcedure::Destroy,
        ..client.credential(GssService::Integrity, client.next())
    };
    client.header(77, called, &credential)
}

#[test]
fn gss_ctx_15_a_destroyed_context_is_unknown() {
    let world = World::new(ALL);
    let client = &world.client;
    // Forged, it lives on; on another procedure too (GSS-CTX-02).
    let mut forged = destroy(client, NULL);
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(
        denied(&world.send(&forged).message),
        AuthStatus::GssCredentialProblem
    );
    let elsewhere = destroy(client, nfs(Procedure::Getattr));
    assert_eq!(
        denied(&world.send(&elsewhere).message),
        AuthStatus::BadCredential
    );
    let reply = world.send(&destroy(client, NULL)).message;
    let sequence = client.sequence.get();
    assert_eq!(
        client.results(GssService::None, sequence, &reply),
        Ok(Vec::new())
    );
    let next = client.call(78, NULL, GssService::None, &[]);
    assert_eq!(
        denied(&world.send(&next).message),
        AuthStatus::GssCredentialProblem
    );
}

#[test]
fn gss_ctx_16_a_call_that_runs_is_answered_with_the_keys_it_came_with() {
    let world = World::new(ALL);
    let client = &world.client;
    let called = nfs(Procedure::Getattr);
    let root = encoded(&world.root());
    // The context ends between two slices of the body.
    let message = client.call(5, called, GssService::Privacy, &root);
    let sequence = client.sequence.get();
    let reply = world.send_and(&message, || {
        assert_eq!(world.contexts.flush(None), 1);
    });
    let results = client.results(GssService::Privacy, sequence, &reply);
    assert!(results.is_ok());
    let next = client.call(6, NULL, GssService::None, &[]);
    assert_eq!(
        denied(&world.send(&next).message),
        AuthStatus::GssCredentialProblem
    );
}

#[test]
fn an_attempt_at_once_uses_the_number_up_once() {
    let world = World::new(ALL);
    let client = &world.client;
    let root = encoded(&world.root());
    // GETATTR is answered at once, without a task.
    let message = client.call(5, nfs(Procedure::Getattr), GssService::None, &root);
    let sequence = client.sequence.get();
    let reply = world.bench.send_at_once(&message).unwrap();
    let results = client.results(GssService::None, sequence, &reply.message);
    assert!(results.is_ok());
    assert_eq!(world.send(&message).answer, Answer::Silent);
    // PATHCONF is not: the attempt has verified it, so that the task need not.
    let message = client.call(6, nfs(Procedure::Pathconf), GssService::None, &root);
    let sequence = client.sequence.get();
    let reply = world.send_after_attempt(&message);
    let results = client.results(GssService::None, sequence, &reply);
    assert!(results.is_ok());
    // Protected bodies are left to tasks, and stay fresh.
    for service in [GssService::Integrity, GssService::Privacy] {
        let message = client.call(7, nfs(Procedure::Getattr), service, &root);
        let sequence = client.sequence.get();
        let reply = world.send_after_attempt(&message);
        assert!(client.results(service, sequence, &reply).is_ok());
    }
}
