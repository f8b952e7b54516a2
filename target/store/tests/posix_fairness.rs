//! A slow device that one client gives much to do: operations of others come in turn.
//!
//! The device answers one request after the other, when the test says so. It lets one client's
//! file be asked for one thing at a time, as the kernel does, so that what is under way and not
//! answered does not hold up the other client's file.

mod posix_machine;

use std::cell::Cell;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::volume::{Direct, Limits, Volume, VolumeConfig};
use millrace_store::{ClientKey, Stability, Store};
use posix_machine::fuse::Fuse;
use posix_machine::*;

const ONE: ClientKey = ClientKey::new(1);
const OTHER: ClientKey = ClientKey::new(2);

/// Answers that the device gives before the other client's operation has to be done: one of the
/// first client's that is under way, one whose turn it is, and the operation itself, if each
/// comes to the device at once.
const ANSWERS: usize = 16;

/// How long the device takes for an answer: time for a thread to make the next request.
const ANSWER_TIME: Duration = Duration::from_millis(10);

/// When a test gives up; none depends on it that passes.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Has the device answer a few requests, one by one, and turns until that is so.
fn slowly(fuse: &Fuse, mut turn: impl FnMut(), mut is_done: impl FnMut() -> bool) {
    let (mut answers, start) = (0, Instant::now());
    let mut next = start;
    while !is_done() {
        if answers < ANSWERS && Instant::now() >= next && fuse.answer_one() {
            answers += 1;
            next = Instant::now() + ANSWER_TIME;
        }
        turn();
        std::thread::yield_now();
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "the other client waits although the device has answered {answers} requests"
        );
    }
}

fn engine(backend: Backend, operations: u32) -> Option<Engine> {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).unwrap();
    let config = EngineConfig {
        backend,
        operations,
    };
    let engine = Engine::new(config, &pool, &registry.arenas(), None);
    let engine = engine.inspect_err(|error| millrace_testing::skip!("{backend:?}: {error}"));
    engine.ok()
}

fn open(path: &Path) -> Arc<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    Arc::new(options.open(path).unwrap().into())
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Of thousands of syncs of one client some wait for a place, or all have one and wait for a
/// thread.
#[test]
fn syncs_of_one_client_hold_up_those_of_another_for_a_few() {
    let Some(fuse) = Fuse::mount(&["busy", "other"]) else {
        return;
    };
    for (backend, operations) in [
        (Backend::Ring, 8),
        (Backend::Threads, 8),
        (Backend::Threads, 4096),
    ] {
        let Some(engine) = engine(backend, operations) else {
            continue;
        };
        engine.set_workers(8).unwrap();
        let [busy, file] = ["busy", "other"].map(|name| open(&fuse.path().join(name)));
        fuse.behave(|behaviour| behaviour.silent = true);
        let one = engine.for_client(ONE);
        let mut syncs: Vec<_> = (0..3000)
            .map(|_| Box::pin(one.sync(&busy, true, None)))
            .collect();
        for sync in &mut syncs {
            assert!(poll(sync.as_mut()).is_pending());
        }
        let other = engine.for_client(OTHER);
        let mut sync = pin!(other.sync(&file, true, None));
        let done = Cell::new(false);
        let turn = || {
            done.set(done.get() || poll(sync.as_mut()).is_ready());
            syncs.retain_mut(|sync| poll(sync.as_mut()).is_pending());
            engine.poll(Instant::now());
        };
        slowly(&fuse, turn, || done.get());
        fuse.behave(|behaviour| behaviour.silent = false);
    }
}

/// Of many writes of one client most wait for admission to the volume.
#[test]
fn writes_of_one_client_hold_up_those_of_another_for_a_few() {
    let Some(fuse) = Fuse::mount(&["busy", "other"]) else {
        return;
    };
    for backend in [Backend::Ring, Backend::Threads] {
        if engine(backend, 1).is_none() {
            continue;
        }
        let limits = Limits {
            operations: 8,
            ..Limits::default()
        };
        let config = VolumeConfig {
            limits,
            ..config(fuse.path(), Direct::Never)
        };
        let volume = Volume::open(config).unwrap();
        let machine = Machine::new(backend);
        let store = machine.store(&volume);
        let [one, other] = [ONE, OTHER].map(|client| store.for_client(client).unwrap());
        let (by, names) = (store.clone(), ["busy", "other"]);
        let [busy, file] =
            machine.run(async move { [lookup(&by, names[0]).await, lookup(&by, names[1]).await] });
        fuse.behave(|behaviour| behaviour.silent = true);
        let all: Vec<_> = (0..200)
            .map(|number| {
                let store = one.clone();
                machine.begin(async move {
                    let bytes = [1; 100];
                    write(
                        &store,
                        &ROOT,
                        busy,
                        number * 100,
                        &bytes,
                        Stability::Unstable,
                    )
                    .await
                })
            })
            .collect();
        // All that is admitted waits for the device, and all else for that.
        machine.until(|| volume.figures().waiting_operations == 192);
        let written = machine.begin(async move {
            write(&other, &ROOT, file, 0, &[2; 100], Stability::Unstable).await
        });
        slowly(&fuse, || machine.turn(), || written.is_done());
        assert!(written.take().result.is_ok());
        fuse.behave(|behaviour| behaviour.silent = false);
        for write in all.iter().filter(|write| !write.is_done()) {
            machine.cancel(write);
        }
    }
}
