//! Steady GETATTR, READ and WRITE of all versions take no memory from the heap on their way through dispatch.

#[path = "support/initiator.rs"]
mod initiator;
mod support;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace::access::Security;
use millrace::call::{Answer, BulkArgument, Call, Limits, Reply, Serve, one_chunk};
use millrace::nfs4::OwnerDomain;
use millrace::rpc::{ConnectionRef, GssAuthenticator, GssLimits};
use millrace_gss::{Enctype, Identity, User};
use millrace_mempool::{Class, Pool, Slice};
use millrace_reactor::Clock;
use millrace_testing::allocation::{CountingAllocator, allocated};
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    ReadArguments, SetAttributes, Stability, WriteArguments,
};
use millrace_wire::nfs4::{
    AttributeNumber as Number, Bitmap, Operation, ReadOperation, StateId, WriteOperation,
};
use millrace_wire::rpc::GssService;
use millrace_wire::xdr::{Bulk, Padding, from_bytes};

use initiator::{Initiator, contexts};
use support::accounts::FakeAccounts;
use support::message::encoded;
use support::nfs4::{Bench4, put};
use support::{Bench, Chunks};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Serves one call as a transport would, and gives the list of slices back for the next.
fn serve(
    pool: &Pool,
    programs: &impl Serve,
    connection: &ConnectionRef,
    message: &[u8],
    bulk: &[BulkArgument],
    chunks: &mut Chunks<'_>,
    list: Vec<Slice>,
) -> Vec<Slice> {
    let buffer = pool.try_acquire(Class::Control).unwrap();
    let limits = Limits {
        headroom: 512,
        message: 3500,
        apart: one_chunk(1 << 20),
        tells_shortage: false,
        flattens: false,
    };
    let mut reply = Reply::new(pool, buffer, limits, list);
    let padding = Padding::default();
    let call = Call {
        connection,
        arrived: Instant::now(),
        message,
        bulk,
        fetched: None,
        padding,
        is_authenticated: false,
    };
    let mut context = Context::from_waker(Waker::noop());
    let answer = pin!(programs.serve(call, chunks, &mut reply)).poll(&mut context);
    assert_eq!(answer, Poll::Ready(Answer::Send));
    let mut parts = reply.into_parts();
    parts.slices.clear();
    parts.slices
}

#[test]
fn steady_calls_allocate_nothing() {
    let bench = Bench::new();
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"file",
    };
    let how = CreateHow::Guarded(SetAttributes::default());
    let created = bench.nfs(Procedure::Create, &CreateArguments { entry, how });
    let created = from_bytes::<CreateResults>(&created).unwrap().unwrap();
    let file: FileHandle = created.object.unwrap();
    let data = vec![3; 64 << 10];
    let stable = Stability::Unstable;
    let count = data.len() as u32;
    let write = WriteArguments {
        file,
        offset: 0,
        count,
        stable,
        data: Bulk::apart(count),
    };
    let write = bench.message((100_003, 3, Procedure::Write.number()), &write);
    let taken = [BulkArgument {
        position: write.len() as u32,
        length: count,
    }];
    let inline = WriteArguments {
        file,
        offset: 4096,
        count: 512,
        stable,
        data: Bulk::inline(&data[..512]),
    };
    let inline = bench.message((100_003, 3, Procedure::Write.number()), &inline);
    let read = ReadArguments {
        file,
        offset: 0,
        count,
    };
    let read = bench.message((100_003, 3, Procedure::Read.number()), &read);
    let getattr = bench.message((100_003, 3, Procedure::Getattr.number()), &file);

    let mut chunks = Chunks {
        chunks: vec![&data],
        ..Chunks::default()
    };
    let mut list = Vec::new();
    let connection = bench.connection();
    let mut all = |mut list| {
        let calls = [&write, &inline, &read, &getattr];
        for (message, taken) in calls.into_iter().zip([&taken[..], &[], &[], &[]]) {
            let (pool, service) = (&bench.pool, &bench.service);
            list = serve(
                pool,
                service,
                &connection,
                message,
                taken,
                &mut chunks,
                list,
            );
        }
        list
    };
    for _ in 0..10 {
        list = all(list);
    }
    let before = allocated();
    for _ in 0..1000 {
        list = all(list);
    }
    assert_eq!(allocated() - before, 0);
}

#[test]
fn gss_lim_08_steady_calls_under_kerberos_allocate_nothing() {
    const ROUNDS: usize = 100;
    let contexts = contexts();
    let mut rules = support::rules("/export");
    rules.security = [Security::Sys, Security::Krb5].into();
    let bench = Bench::with(rules);
    let gss = GssAuthenticator::new(&contexts, GssLimits::default());
    let _ = bench.service.clone().with_gss(gss);
    // In more groups than AUTH_SYS carries.
    let identity = Identity {
        principal: "user@EXAMPLE.COM".into(),
        user: Some(User {
            uid: 0,
            gid: 0,
            groups: (1..=100).collect(),
        }),
    };
    let client = Initiator::new(&contexts, identity, Enctype::Aes256Sha384);
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"file",
    };
    let how = CreateHow::Guarded(SetAttributes::default());
    let created = bench.nfs(Procedure::Create, &CreateArguments { entry, how });
    let created = from_bytes::<CreateResults>(&created).unwrap().unwrap();
    let file: FileHandle = created.object.unwrap();
    let data = vec![3; 64 << 10];
    let count = data.len() as u32;
    let write = encoded(&WriteArguments {
        file,
        offset: 0,
        count,
        stable: Stability::Unstable,
        data: Bulk::apart(count),
    });
    let read = encoded(&ReadArguments {
        file,
        offset: 0,
        count,
    });
    // Each call has a number of its own, so that they are made before.
    let round = || {
        let call = |procedure: Procedure, arguments: &[u8]| {
            let called = (100_003, 3, procedure.number());
            client.call(7, called, GssService::None, arguments)
        };
        [
            call(Procedure::Write, &write),
            call(Procedure::Read, &read),
            call(Procedure::Getattr, &encoded(&file)),
        ]
    };
    let rounds: Vec<_> = (0..2 * ROUNDS).map(|_| round()).collect();
    let mut chunks = Chunks {
        chunks: vec![&data],
        ..Chunks::default()
    };
    let connection = bench.connection();
    let mut all = |mut list, [write, read, getattr]: &[Vec<u8>; 3]| {
        let taken = [BulkArgument {
            position: write.len() as u32,
            length: count,
        }];
        for (message, taken) in [(write, &taken[..]), (read, &[]), (getattr, &[])] {
            let (pool, service) = (&bench.pool, &bench.service);
            let chunks = &mut chunks;
            list = serve(pool, service, &connection, message, taken, chunks, list);
        }
        list
    };
    let (first, steady) = rounds.split_at(ROUNDS);
    let list = first.iter().fold(Vec::new(), &mut all);
    let before = allocated();
    let list = steady.iter().fold(list, &mut all);
    assert_eq!(allocated() - before, 0);
    drop(list);
    let counters = contexts.all_call_counters();
    assert_eq!(counters[0].calls[0].get(), 6 * ROUNDS as u64);
}

/// What Linux asks of a file with each WRITE.
const WANTED: Bitmap = Bitmap::of(&[
    Number::Type,
    Number::Change,
    Number::Size,
    Number::FileSystem,
    Number::FileId,
    Number::Mode,
    Number::Links,
    Number::Owner,
    Number::OwnerGroup,
    Number::SpaceUsed,
    Number::TimeAccess,
    Number::TimeMetadata,
    Number::TimeModify,
    Number::MountedOnFileId,
]);

#[test]
fn v4_perf_01_and_v4_attr_28_steady_compounds_allocate_nothing() {
    let bench = Bench4::new();
    // Callers without Kerberos are told numbers.
    let domain = OwnerDomain::new("example.org", FakeAccounts::default());
    let program = &bench.programs.programs().0;
    program.name_owners(domain, &Clock::new(Instant::now()));
    let file = bench.file(b"file", 0o644);
    bench.state.is_quiet.set(true);
    let data = vec![3; 64 << 10];
    let count = data.len() as u32;
    let write = |data| {
        Operation::Write(WriteOperation {
            state: StateId::ANONYMOUS,
            offset: 0,
            stable: Stability::Unstable,
            data,
        })
    };
    let read = Operation::Read(ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 0,
        count,
    });
    let getattr = Operation::Getattr(WANTED);
    let message = |operations: &[Operation<'_>]| {
        let all = [&[bench.next_sequence(), put(&file)], operations].concat();
        let mut message = bench.compound_message(&all);
        message.shrink_to_fit();
        message
    };
    let rounds: Vec<_> = (0..60)
        .map(|_| {
            let apart = message(&[write(Bulk::apart(count)), getattr]);
            let inline = message(&[write(Bulk::inline(&data[..512])), getattr]);
            [apart, inline, message(&[read]), message(&[getattr])]
        })
        .collect();
    // GETATTR behind the data: number, the count of words and the two words.
    let taken = [BulkArgument {
        position: (rounds[0][0].len() - 16) as u32,
        length: count,
    }];
    let mut chunks = Chunks {
        chunks: vec![&data],
        ..Chunks::default()
    };
    let connection = bench.connection();
    let (mut list, mut before) = (Vec::new(), 0);
    for (at, [apart, inline, read, getattr]) in rounds.iter().enumerate() {
        if at == 10 {
            before = allocated();
        }
        let calls = [apart, inline, read, getattr];
        for (message, taken) in calls.into_iter().zip([&taken[..], &[], &[], &[]]) {
            let (pool, programs) = (&bench.pool, &bench.programs);
            list = serve(
                pool,
                programs,
                &connection,
                message,
                taken,
                &mut chunks,
                list,
            );
        }
    }
    assert_eq!(allocated() - before, 0);
    assert_eq!(bench.state.finished.get(), 240);
    assert_eq!(chunks.pulls, 60);
}
