//! How fast the posix store reads and writes one file, without a network.
//!
//! `cargo run --release -p millrace-store --example posix_data FOLDER [SECONDS]`
//!
//! A file of 256 MiB is made in FOLDER and removed again. Each figure takes SECONDS (by default
//! 1): random offsets, on one reactor, through the page cache and past it. Writes are unstable; a
//! sync follows each figure and does not count. `/dev/shm` shows what the store itself costs.

use std::cell::Cell;
use std::error::Error;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use millrace_reactor::task::TaskSet;
use millrace_store::posix::PosixStore;
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::volume::{Direct, Groups, Limits, Mounts, Sync, Volume, VolumeConfig};
use millrace_store::{
    Caller, CreateHow, FileData, Handle, Namespace, SetAttributes, Stability, Store,
};

const SIZE: u64 = 256 << 20;
const NAME: &[u8] = b"millrace-posix-data";
const CALLER: Caller = Caller::SUPERUSER;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let seconds = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    println!("cache   what   length  depth   operations/s      MiB/s");
    for direct in [Direct::Never, Direct::Always] {
        let bench = Bench::new(Path::new(&folder), direct)?;
        for length in [4 << 10, 64 << 10, 1 << 20] {
            for writes in [false, true] {
                for depth in [1, 16] {
                    let rate = bench.rate(length, writes, depth, time)?;
                    let cache = if direct == Direct::Never {
                        "through"
                    } else {
                        "past"
                    };
                    let what = if writes { "write" } else { "read" };
                    let bytes = rate * f64::from(length) / f64::from(1 << 20);
                    println!(
                        "{cache:<7} {what:<5} {length:>8} {depth:>6} {rate:>14.0} {bytes:>10.1}"
                    );
                }
            }
        }
        let store = bench.store.clone();
        let root = store.root();
        bench.run(store.remove(&CALLER, root, NAME)).result?;
    }
    Ok(())
}

struct Bench {
    engine: Engine,
    clock: Clock,
    store: PosixStore,
    file: Handle,
}

impl Bench {
    fn new(folder: &Path, direct: Direct) -> Outcome<Self> {
        let registry = Registry::new(HugepagePolicy::Auto);
        let pool = Pool::new(&registry, PoolConfig { bytes: 64 << 20 })?;
        let config = EngineConfig {
            backend: Backend::Auto,
            operations: 64,
        };
        let engine = Engine::new(config, &pool, &registry.arenas(), None)?;
        let clock = Clock::new(Instant::now());
        let volume = Volume::open(VolumeConfig {
            name: "example".to_owned(),
            root: folder.to_owned(),
            direct,
            sync: Sync::Relaxed,
            groups: Groups::Client,
            mounts: Mounts::Hide,
            exclusive: false,
            limits: Limits::default(),
            state: None,
        })?;
        let store = PosixStore::new(&volume, &engine, &clock);
        let mut bench = Self {
            file: store.root(),
            engine,
            clock,
            store: store.clone(),
        };
        let how = CreateHow::Unchecked(SetAttributes::default());
        let made = bench.run(store.create(&CALLER, store.root(), NAME, &how));
        bench.file = made.result?.0;
        for offset in (0..SIZE).step_by(1 << 20) {
            bench.run(transfer(&store, bench.file, offset, 1 << 20, true))?;
        }
        bench.run(store.commit(bench.file, 0, 0)).result?;
        Ok(bench)
    }

    fn turn(&self) {
        let now = Instant::now();
        self.engine.poll(Instant::now());
        self.clock.turn(now);
        self.store.poll(now);
    }

    /// Turns the reactor's loop until a future has come to its end.
    fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.turn();
        }
    }

    /// Operations per second.
    fn rate(&self, length: u32, writes: bool, depth: usize, time: Duration) -> Outcome<f64> {
        let done = Rc::new(Cell::new(0_u32));
        let start = Instant::now();
        let mut tasks = TaskSet::new(depth, None);
        for number in 0..depth {
            let (store, file, done) = (self.store.clone(), self.file, Rc::clone(&done));
            let mut random = 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1) << 32;
            let task = async move {
                while start.elapsed() < time {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let offset = random % (SIZE / u64::from(length)) * u64::from(length);
                    transfer(&store, file, offset, length, writes).await?;
                    done.set(done.get() + 1);
                }
                Ok::<_, millrace_store::StoreError>(())
            };
            assert!(tasks.spawn(task).is_ok(), "one place each");
        }
        let mut ended = Vec::new();
        while !tasks.is_empty() {
            self.turn();
            tasks.run(&mut ended);
        }
        let rate = f64::from(done.get()) / start.elapsed().as_secs_f64();
        for task in ended {
            task.outcome.map_err(|_| "a panic")??;
        }
        self.run(self.store.commit(self.file, 0, 0)).result?;
        Ok(rate)
    }
}

async fn transfer(
    store: &PosixStore,
    file: Handle,
    offset: u64,
    length: u32,
    writes: bool,
) -> Result<(), millrace_store::StoreError> {
    let mut slices = Vec::with_capacity(2);
    if writes {
        let staged = store
            .stage_write(&CALLER, file, offset, length, &mut slices)
            .await?;
        store
            .commit_write(staged, Stability::Unstable)
            .await
            .result?;
    } else {
        store
            .read(&CALLER, file, offset, length, &mut slices)
            .await?;
    }
    Ok(())
}
