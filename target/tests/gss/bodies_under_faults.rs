//! Results that cannot be protected, and files that change while they are read.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace::access::Security;
use millrace::call::Answer;
use millrace_wire::nfs3::{
    FileHandle, Procedure, ReadArguments, ReadResults, Stability, WriteArguments, WriteResults,
};
use millrace_wire::rpc::{AuthStatus, CallOutcome, Denied, GssService, ReplyHeader};
use millrace_wire::xdr::{Bulk, Data, from_bytes};

use super::bodies::create;
use super::{World, encoded, nfs};

const ALL: [Security; 3] = [Security::Krb5p, Security::Krb5i, Security::Krb5];
const PROTECTED: [GssService; 2] = [GssService::Integrity, GssService::Privacy];

#[test]
fn gss_int_05_gss_cred_05_results_that_cannot_be_protected_are_not_sent() {
    for service in PROTECTED {
        let world = World::new(ALL);
        let client = &world.client;
        let context = world.contexts.context(&client.handle, Instant::now());
        let context = context.unwrap();
        let root = encoded(&world.root());
        let getattr = || client.call(5, nfs(Procedure::Getattr), service, &root);
        let failures = || world.contexts.all_call_counters()[0].damaged_bodies.get();
        // A verifier, and nothing behind it.
        context.limit_tokens(1);
        let reply = world.send(&getattr());
        assert_eq!(reply.answer, Answer::Silent, "{service:?}");
        assert_eq!(failures(), 1);
        // Not even a verifier.
        context.limit_tokens(0);
        let reply = world.send(&getattr());
        let header: ReplyHeader<'_> = from_bytes(&reply.message).unwrap();
        let problem = Denied::Auth(AuthStatus::GssContextProblem);
        assert_eq!(header.outcome, CallOutcome::Denied(problem));
        assert_eq!(failures(), 1);
        context.limit_tokens(2);
        let results = world.call(nfs(Procedure::Getattr), service, &world.root());
        results.unwrap();
    }
}

/// Writes bytes of one value.
fn write(world: &World, file: FileHandle, (offset, length): (usize, usize), value: u8) {
    let data = vec![value; length];
    let arguments = WriteArguments {
        file,
        offset: offset as u64,
        count: length as u32,
        stable: Stability::FileSync,
        data: Bulk::inline(&data),
    };
    let results = world.call(nfs(Procedure::Write), GssService::None, &arguments);
    from_bytes::<WriteResults>(&results.unwrap())
        .unwrap()
        .unwrap();
}

#[test]
fn gss_int_06_data_that_is_rewritten_while_it_is_signed_goes_out_as_it_was_read() {
    const LENGTH: usize = 60_000;
    for service in PROTECTED {
        for (offset, length) in [
            (0, LENGTH),
            (4096, 8192),
            (LENGTH / 2, 100),
            (30_000, 17_000),
        ] {
            let world = World::new(ALL);
            let client = &world.client;
            let file = create(&world, client, GssService::None);
            write(&world, file, (0, LENGTH), 1);
            write(&world, file, (offset, length), 2);
            let mut expected = vec![1; LENGTH];
            expected[offset..offset + length].fill(2);
            let read = encoded(&ReadArguments {
                file,
                offset: 0,
                count: LENGTH as u32,
            });
            let message = client.call(7, nfs(Procedure::Read), service, &read);
            let sequence = client.sequence.get();
            // Between any two slices of the signature or the encryption, the file is rewritten.
            let mut reading = pin!(world.exchange(&message));
            let mut writes = 0_u8;
            let reply = loop {
                let polled = reading
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(reply) = polled {
                    break reply;
                }
                writes = writes.wrapping_add(1);
                write(&world, file, (offset, length), writes | 0x80);
            };
            assert!(writes > 0);
            let results = client.results(service, sequence, &reply).unwrap();
            let found = from_bytes::<ReadResults<'_>>(&results).unwrap().unwrap();
            let is_as_read = found.data.data == Data::Inline(&expected);
            assert!(is_as_read, "{service:?} {offset} {length}");
        }
    }
}
