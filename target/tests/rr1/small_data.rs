//! Little data of a call is fetched before the call is served: once, whatever becomes of the call.

#![allow(clippy::result_large_err)] // Failures of the protocol carry attributes.

use std::rc::Rc;
use std::time::Duration;

use millrace::exports::ExportId;
use millrace::flow::rate::Rates;
use millrace::transfer::TransferLimits;
use millrace_mempool::Class;
use millrace_reactor::fabric::testing::loopback;
use millrace_wire::nfs3::{FileHandle, Status, WriteResults};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::from_bytes;

use crate::support::message::{inline, parse, reads};
use crate::support::raw::Memory;
use crate::support::results;
use crate::support::served::Nfs;
use crate::support::trace::Trace;

const LENGTH: u32 = 4096;

/// Memory of the client with as much data as is fetched first.
fn source(nfs: &mut Nfs) -> Memory {
    nfs.world.source(0, &[5; LENGTH as usize])
}

/// RDMA Reads since the last time.
fn fetches(nfs: &mut Nfs) -> usize {
    let trace = nfs.world.trace();
    let is_read = |step: &&Trace| matches!(step, Trace::Read(..));
    trace.iter().filter(is_read).count()
}

/// Sends a WRITE, which may not be answered yet.
fn begin_write(nfs: &mut Nfs, file: FileHandle, source: &Memory) {
    let (rpc, position) = nfs.write_message(file, LENGTH);
    let chunks = CallChunks {
        reads: &reads(position, &[source.whole()]),
        ..CallChunks::default()
    };
    nfs.world.post(0, &inline(&chunks, &rpc));
    nfs.world.settle();
}

#[track_caller]
fn write(nfs: &mut Nfs, file: FileHandle, source: &Memory) -> WriteResults {
    let reply = parse(&nfs.write_from(file, LENGTH, source, &[LENGTH]));
    from_bytes(results(&reply.message)).unwrap()
}

#[test]
fn little_data_is_fetched_once_and_written() {
    let mut nfs = Nfs::new();
    let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
    let used = nfs.store.usage().used_bytes;
    nfs.world.trace();
    let written = write(&mut nfs, file, &source).unwrap();
    assert_eq!((written.count, fetches(&mut nfs)), (LENGTH, 1));
    assert_eq!(nfs.content(file), [5; LENGTH as usize]);
    assert_eq!(nfs.store.usage().used_bytes, used, "in place");
    nfs.world.check_clean();
}

#[test]
fn data_of_a_write_that_fails_is_not_fetched_again() {
    let mut nfs = Nfs::new();
    let source = source(&mut nfs);
    nfs.world.trace();
    let root = nfs.root;
    let refused = write(&mut nfs, root, &source).unwrap_err();
    assert_eq!(refused.status, Status::Invalid);
    assert_eq!(fetches(&mut nfs), 1);
    nfs.world.check_clean();
}

#[test]
fn data_of_a_call_that_a_limit_may_delay_is_copied_to_its_place() {
    let mut nfs = Nfs::new();
    let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
    let rates = Rates {
        iops: Some(1_000_000),
        bandwidth: None,
    };
    let limits = [(ExportId::of("/elsewhere"), rates)];
    let flow = nfs.world.shared.flow.clone();
    let _ = nfs.world.shared.programs.clone().with_flow(&flow);
    flow.clients().set_limits(&[], limits, nfs.world.now);
    assert!(flow.has_limits());
    nfs.world.trace();
    let written = write(&mut nfs, file, &source).unwrap();
    assert_eq!((written.count, fetches(&mut nfs)), (LENGTH, 1));
    assert_eq!(nfs.content(file), [5; LENGTH as usize]);
    nfs.world.check_clean();
}

#[test]
fn without_memory_for_it_data_is_fetched_to_its_place() {
    let mut nfs = Nfs::new();
    let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
    // All buffers, so that the reply takes the connection's own; then all but one.
    let pool = nfs.world.shared.pool.clone();
    let mut taken: Vec<_> = std::iter::from_fn(|| pool.try_acquire(Class::Control)).collect();
    nfs.world.trace();
    for _ in 0..3 {
        assert!(write(&mut nfs, file, &source).is_ok());
        taken.pop();
    }
    assert!(fetches(&mut nfs) >= 3);
    assert_eq!(nfs.content(file), [5; LENGTH as usize]);
    drop((taken, pool));
    nfs.world.check_clean();
}

#[test]
fn data_under_way_is_charged_to_its_client() {
    let network = loopback();
    let mut nfs = Nfs::new();
    let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
    let client = Rc::clone(nfs.world.connections()[0].share());
    let held = || client.memory().held(Class::Control);
    let before = held();
    network.set_latency(Duration::from_millis(1));
    begin_write(&mut nfs, file, &source);
    nfs.world.pass(Duration::from_millis(1));
    assert_eq!((nfs.world.calls(), fetches(&mut nfs)), (1, 1));
    assert_eq!(held(), before + 1);
    for _ in 0..10 {
        nfs.world.pass(Duration::from_millis(1));
    }
    assert_eq!(held(), before);
    network.set_latency(Duration::ZERO);
    nfs.world.check_clean();
}

#[test]
fn a_connection_that_refuses_calls_answers_the_one_whose_data_comes() {
    let network = loopback();
    let mut nfs = Nfs::new();
    let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
    network.set_latency(Duration::from_millis(1));
    begin_write(&mut nfs, file, &source);
    nfs.world.pass(Duration::from_millis(1));
    assert_eq!((nfs.world.calls(), fetches(&mut nfs)), (1, 1));
    // A call after that is refused, with all that come later on its connection.
    nfs.world.refuse();
    begin_write(&mut nfs, file, &source);
    for _ in 0..10 {
        nfs.world.pass(Duration::from_millis(1));
    }
    assert_eq!(nfs.world.received(0).len(), 1);
    network.set_latency(Duration::ZERO);
    nfs.world.check_clean();
}

#[test]
fn nothing_is_left_of_a_connection_that_ends_while_data_comes() {
    let mut fetching = 0;
    for turns in 0..12 {
        let network = loopback();
        let mut nfs = Nfs::new();
        let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
        network.set_latency(Duration::from_millis(1));
        begin_write(&mut nfs, file, &source);
        for _ in 0..turns {
            nfs.world.pass(Duration::from_micros(500));
        }
        fetching += nfs.world.calls();
        nfs.world.abort(0);
        for _ in 0..40 {
            nfs.world.pass(Duration::from_micros(500));
        }
        nfs.world.pass(Duration::from_secs(20));
        assert_eq!(nfs.world.calls(), 0, "{turns} turns");
        assert_eq!(nfs.world.shared.completions.pending(), 0);
        assert_eq!(nfs.world.in_use(), 0, "{turns} turns");
        network.set_latency(Duration::ZERO);
        nfs.world.check_clean();
    }
    assert!(fetching > 2, "{fetching} ended while data was on its way");
}

#[test]
fn a_client_that_never_sends_its_data_loses_the_connection_and_nothing_is_left() {
    let network = loopback();
    let mut nfs = Nfs::new();
    let (file, source) = (nfs.file(b"f", b"before"), source(&mut nfs));
    network.set_latency(Duration::from_millis(1));
    begin_write(&mut nfs, file, &source);
    // The call arrives, its data does not.
    network.set_latency(Duration::from_secs(3600));
    nfs.world.pass(Duration::from_millis(1));
    let window = TransferLimits::default().window.as_secs();
    let mut seconds = 0;
    while nfs.world.calls() > 0 && seconds < 2 * window {
        assert!(nfs.world.in_use() > 0);
        nfs.world.pass(Duration::from_secs(1));
        seconds += 1;
    }
    assert!((window..window + 3).contains(&seconds), "{seconds} s");
    assert!(nfs.world.connections().is_empty());
    assert_eq!(nfs.world.in_use(), 0);
}
