//! How fast the engine of the posix store reads and writes one file.
//!
//! `cargo run --release -p millrace-store --example posix_engine FILE [SECONDS]`
//!
//! FILE is made (512 MiB) unless it is there; then its content is overwritten. Each figure takes
//! SECONDS (by default 1): random offsets, by a ring and by threads, with and without the page
//! cache. `reactor` is the processor time that the reactor's thread took for each operation,
//! without its waiting.

use std::cell::Cell;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::task::TaskSet;
use millrace_store::posix::engine::{Backend, Durability, Engine, EngineConfig};
use millrace_store::posix::identity::Identity;
use rustix::time::{ClockId, clock_gettime};

const SIZE: u64 = 512 << 20;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file?")?;
    let seconds = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let path = Path::new(&path);
    prepare(path)?;
    println!("backend  cache   what   length  depth   operations/s      MiB/s   reactor");
    for backend in [Backend::Ring, Backend::Threads] {
        for direct in [false, true] {
            let file = match open(path, direct) {
                Ok(file) => file,
                Err(error) => {
                    println!("{backend:?}: not without the page cache: {error}");
                    continue;
                }
            };
            for writes in [false, true] {
                for class in [Class::Control, Class::Large] {
                    for depth in [1, 16] {
                        let stage = Stage::new(backend, &file, class, depth, writes)?;
                        let figures = stage.run(Duration::from_secs_f64(seconds))?;
                        print(&stage, direct, &figures);
                    }
                }
            }
        }
    }
    Ok(())
}

fn prepare(path: &Path) -> Outcome {
    let there = std::fs::metadata(path).is_ok_and(|found| found.len() >= SIZE);
    if there {
        return Ok(());
    }
    let mut file = File::create(path)?;
    for _ in 0..SIZE >> 20 {
        file.write_all(&[1; 1 << 20])?;
    }
    Ok(file.sync_all()?)
}

fn open(path: &Path, direct: bool) -> std::io::Result<Arc<OwnedFd>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    Ok(Arc::new(options.open(path)?.into()))
}

/// What one figure is measured with.
struct Stage {
    engine: Engine,
    slices: Vec<Slice>,
    file: Arc<OwnedFd>,
    writes: bool,
}

struct Figures {
    operations: u64,
    time: Duration,
    /// Processor time of the reactor's turns that had work.
    busy: Duration,
}

impl Stage {
    fn new(
        backend: Backend,
        file: &Arc<OwnedFd>,
        class: Class,
        depth: usize,
        writes: bool,
    ) -> Outcome<Self> {
        let registry = Registry::new(HugepagePolicy::Auto);
        let pool = Pool::new(&registry, PoolConfig { bytes: 64 << 20 })?;
        let config = EngineConfig {
            backend,
            operations: 64,
        };
        let engine = Engine::new(config, &pool, &registry.arenas(), None)?;
        let buffers = (0..depth).filter_map(|_| pool.try_acquire(class));
        let slices: Vec<Slice> = buffers
            .map(|buffer| buffer.into_slice(0..class.size()))
            .collect();
        for slice in &slices {
            slice.fill_zero(0..slice.len());
        }
        Ok(Self {
            engine,
            slices,
            file: Arc::clone(file),
            writes,
        })
    }

    fn run(&self, time: Duration) -> Outcome<Figures> {
        let count = Rc::new(Cell::new(0));
        let stop = Rc::new(Cell::new(false));
        let mut tasks = TaskSet::new(self.slices.len(), None);
        for (number, slice) in self.slices.iter().enumerate() {
            let task = work(
                self.engine.clone(),
                Arc::clone(&self.file),
                slice.clone(),
                self.writes,
                number as u64,
                Rc::clone(&count),
                Rc::clone(&stop),
            );
            if tasks.spawn(task).is_err() {
                return Err("more tasks than places".into());
            }
        }
        let (start, mut busy) = (Instant::now(), Duration::ZERO);
        let mut ended = Vec::new();
        while !tasks.is_empty() {
            let before = thread_time();
            let work = tasks.run(&mut ended) + self.engine.poll(Instant::now());
            if work > 0 {
                busy += thread_time() - before;
            } else {
                std::thread::yield_now();
            }
            stop.set(start.elapsed() >= time);
        }
        for task in ended {
            task.outcome.map_err(|_| "a task panicked")??;
        }
        Ok(Figures {
            operations: count.get(),
            time: start.elapsed(),
            busy,
        })
    }
}

/// Reads or writes one slice at random places until it shall stop.
async fn work(
    engine: Engine,
    file: Arc<OwnedFd>,
    slice: Slice,
    writes: bool,
    number: u64,
    count: Rc<Cell<u64>>,
    stop: Rc<Cell<bool>>,
) -> std::io::Result<()> {
    let superuser = Identity::with_groups(0, 0, &[]);
    let length = slice.len() as u64;
    let mut state = number;
    while !stop.get() {
        // Numbers of no pattern (Knuth's constants of a linear congruential generator).
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 33) % (SIZE / length) * length;
        let done = if writes {
            let durability = Durability::None;
            engine
                .write(&file, offset, &slice, durability, &superuser, None)
                .await?
        } else {
            engine
                .read(&file, offset, &slice, false, &superuser, None)
                .await?
        };
        assert_eq!(done, slice.len());
        count.set(count.get() + 1);
    }
    Ok(())
}

/// Processor time that this thread has used.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn print(stage: &Stage, direct: bool, figures: &Figures) {
    let length = stage.slices[0].len();
    let rate = figures.operations as f64 / figures.time.as_secs_f64();
    let each = figures.busy.as_nanos() / u128::from(figures.operations.max(1));
    println!(
        "{:<8} {:<7} {:<6} {:>4} KiB {:>6} {:>14.0} {:>10.0} {:>6} ns",
        format!("{:?}", stage.engine.backend()),
        if direct { "without" } else { "with" },
        if stage.writes { "write" } else { "read" },
        length >> 10,
        stage.slices.len(),
        rate,
        rate * length as f64 / f64::from(1 << 20),
        each,
    );
}
