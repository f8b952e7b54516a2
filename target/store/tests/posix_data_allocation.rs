//! Steady READ, WRITE and COMMIT of the posix store allocate nothing on the reactor.

mod posix_machine;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::Slice;
use millrace_reactor::task::TaskSet;
use millrace_store::posix::PosixStore;
use millrace_store::posix::engine::Backend;
use millrace_store::posix::volume::{Direct, Limits, Volume, VolumeConfig};
use millrace_store::{Caller, FileData, Handle, Stability, Store};
use millrace_testing::allocation::{CountingAllocator, allocated, allocations};
use posix_machine::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const LARGE: u32 = 128 << 10;
const TASKS: usize = 8;
/// A permission is asked for again every second, which a helper does, and takes a few allocations.
/// So most rounds have none, rather than all.
const ROUNDS: usize = 60;
const CLEAN: usize = 40;

type Vectors = Rc<RefCell<Vec<Vec<Slice>>>>;

/// What a client does with its file: small and large, both ways, unstable and not.
async fn client(store: PosixStore, file: Handle, number: usize, vectors: Vectors) {
    let mut slices = vectors.borrow_mut().pop().expect("one for each");
    let base = number as u64 * u64::from(LARGE);
    for (offset, length) in [(base, LARGE), (base + 100, 1000)] {
        let staged = store
            .stage_write(&Caller::SUPERUSER, file, offset, length, &mut slices)
            .await
            .expect("staged");
        slices.clear();
        let stability = if number == 0 {
            Stability::DataSync
        } else {
            Stability::Unstable
        };
        let written = store.commit_write(staged, stability).await.result;
        assert_eq!(written.expect("written").length, length);
        let read = store
            .read(&Caller::SUPERUSER, file, offset, length, &mut slices)
            .await;
        assert_eq!(read.expect("read").length, length);
        slices.clear();
    }
    let committed = store.commit(file, 0, 0).await.result;
    assert!(committed.is_ok());
    vectors.borrow_mut().push(slices);
}

#[test]
fn steady_reads_writes_and_commits_allocate_nothing() {
    let folder = Folder::new(Path::new("/dev/shm"), "allocation");
    for direct in [Direct::Auto, Direct::Always, Direct::Never] {
        let machine = Machine::new(Backend::Auto);
        let limits = Limits {
            // Some wait to be admitted.
            operations: TASKS - 2,
            ..Limits::default()
        };
        let volume = Volume::open(VolumeConfig {
            limits,
            ..config(&folder.0, direct)
        });
        let store = machine.store(&volume.unwrap());
        let (by, name) = (store.clone(), format!("{direct:?}"));
        let file = machine.run(async move { create(&by, &name).await });
        let vectors: Vectors = Rc::new(RefCell::new(
            (0..TASKS).map(|_| Vec::with_capacity(4)).collect(),
        ));
        let mut tasks = TaskSet::new(TASKS, None);
        let mut ended = Vec::with_capacity(TASKS);
        let mut round = || {
            let before = allocated();
            for number in 0..TASKS {
                let client = client(store.clone(), file, number, Rc::clone(&vectors));
                assert!(tasks.spawn(client).is_ok());
            }
            while !tasks.is_empty() {
                machine.engine.poll(Instant::now());
                machine.clock.turn(Instant::now());
                tasks.run(&mut ended);
                for task in ended.drain(..) {
                    assert!(task.outcome.is_ok());
                }
            }
            allocated() - before
        };
        // Tables grow to their sizes.
        for _ in 0..5 {
            round();
        }
        let counts: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
        let clean = counts.iter().filter(|&&count| count == 0).count();
        assert!(clean >= CLEAN, "{direct:?}: {counts:?}");
    }
}

#[test]
fn counting_works() {
    let before = allocated();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocated() - before, 1);
}

#[test]
fn reads_and_attributes_at_once_allocate_nothing() {
    let folder = Folder::new(Path::new("/dev/shm"), "at-once-allocation");
    let machine = Machine::new(Backend::Auto);
    let store = machine.store(&Volume::open(config(&folder.0, Direct::Auto)).unwrap());
    let by = store.clone();
    let file = machine.run(async move {
        let file = create(&by, "file").await;
        let done = write(
            &by,
            &Caller::SUPERUSER,
            file,
            0,
            &[7; 8192],
            Stability::Unstable,
        )
        .await;
        done.result.expect("written");
        file
    });
    let at_once = store.immediate().expect("folders have that");
    let mut slices = Vec::with_capacity(1);
    let mut reads = 0;
    let count = allocations(|| {
        for _ in 0..1000 {
            let read = at_once.read(&Caller::SUPERUSER, file, 0, 4096, &mut slices);
            reads += usize::from(read.is_some());
            slices.clear();
            assert!(at_once.attributes(file).is_some());
        }
    });
    // Where something may be swapped out, none is read at once.
    assert!(reads == 1000 || rustix::system::sysinfo().totalswap > 0);
    assert_eq!(count, 0);
}
