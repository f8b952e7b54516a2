//! What it costs to have the kernel act on behalf of a caller, by way of doing so.
//!
//! `cargo run --release -p millrace-store --example credentials [FOLDER]`
//!
//! As root. FOLDER (by default `/dev/shm`) should be on a file system in memory, so that no device
//! hides the costs. Each figure is the median of many rounds.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_store::ClientKey;
use millrace_store::posix::engine::{Backend, Durability, Engine, EngineConfig};
use millrace_store::posix::helpers::{HelperLimits, Helpers};
use millrace_store::posix::identity::{Identity, assume, privileged};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

/// Operations at once.
const DEPTH: usize = 16;
const ROUNDS: usize = 400;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    if !privileged() {
        return Err("this takes CAP_SETUID and CAP_SETGID: run it as root".into());
    }
    let parent = std::env::args().nth(1).unwrap_or("/dev/shm".into());
    let folder = Path::new(&parent).join(format!("credentials-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let outcome = measure(&folder);
    fs::remove_dir_all(&folder)?;
    outcome
}

fn measure(folder: &Path) -> Outcome {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 })?;
    let config = EngineConfig {
        backend: Backend::Ring,
        operations: 64,
    };
    let engine = Engine::new(config, &pool, &registry.arenas(), None)?;
    heading(&format!("4 KiB writes by a ring, {DEPTH} at once, each"));
    writes(&engine, folder)?;
    heading("identities of a thread, each");
    identities();
    heading("names and attributes, each: one at once, and 16 at once");
    names(folder)
}

fn heading(text: &str) {
    println!("\n{text}");
}

fn row(name: &str, times: &[Duration]) {
    let times: Vec<String> = times
        .iter()
        .map(|time| format!("{:>9} ns", time.as_nanos()))
        .collect();
    println!("  {name:<58} {}", times.join(" "));
}

/// The median of many rounds, for one of `count` things that each does.
fn median(count: usize, mut round: impl FnMut()) -> Duration {
    let one = |round: &mut dyn FnMut()| {
        let start = Instant::now();
        round();
        start.elapsed()
    };
    round();
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| one(&mut round)).collect();
    times.sort_unstable();
    times[ROUNDS / 2] / u32::try_from(count).expect("few")
}

fn user(number: usize, groups: u32) -> Identity {
    let uid = 10_000 + u32::try_from(number).expect("few");
    let groups: Vec<u32> = (20_000..20_000 + groups).collect();
    Identity::with_groups(uid, uid, &groups)
}

fn writes(engine: &Engine, folder: &Path) -> Outcome {
    let file = open(&folder.join("data"))?;
    let slices: Vec<Slice> = (0..DEPTH)
        .filter_map(|_| engine.pool().try_acquire(Class::Control))
        .map(|buffer| buffer.into_slice(0..4096))
        .collect();
    let users = |count: usize| -> Vec<Identity> { (0..count).map(|n| user(n, 16)).collect() };
    let superuser = [Identity::with_groups(0, 0, &[])];
    let mut next = 0;
    let mut figure = |identities: &[Identity]| {
        median(DEPTH, || {
            let whose = |n: usize| &identities[(next + n) % identities.len()];
            write_all(engine, &file, &slices, whose);
            next += DEPTH;
        })
    };
    let plain = figure(&superuser);
    row("as the process itself", &[plain]);
    for (name, count) in [
        ("as one user", 1),
        ("as 16 users in turn", 16),
        ("as 1000 users in turn", 1000),
        ("as 20000 users in turn: each is registered anew", 20_000),
    ] {
        let time = figure(&users(count));
        row(name, &[time]);
    }
    Ok(())
}

fn write_all<'a>(
    engine: &Engine,
    file: &Arc<OwnedFd>,
    slices: &[Slice],
    whose: impl Fn(usize) -> &'a Identity,
) {
    let mut writes: Vec<_> = slices
        .iter()
        .enumerate()
        .map(|(n, slice)| {
            let offset = n as u64 * 4096;
            Box::pin(engine.write(file, offset, slice, Durability::None, whose(n), None))
        })
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    while !writes.is_empty() {
        writes.retain_mut(|write| match write.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => {
                assert_eq!(outcome.expect("writes"), 4096);
                false
            }
            Poll::Pending => true,
        });
        engine.poll(Instant::now());
    }
}

fn identities() {
    let figure = |name: &str, identity: &Identity| {
        let time = median(100, || {
            for _ in 0..100 {
                assume(identity, || black_box(())).expect("privileged");
            }
        });
        row(name, &[time]);
    };
    figure("taken on and put back, no other groups", &user(0, 0));
    figure("taken on and put back, 16 other groups", &user(0, 16));
    figure("taken on and put back, 1000 other groups", &user(0, 1000));
    for groups in [1, 16, 1000] {
        let two = [user(0, groups), user(1, groups + 1)];
        let time = median(100, || {
            for identity in two.iter().cycle().take(100) {
                assume(identity, || black_box(())).expect("privileged");
            }
        });
        let name = format!("two users in turn with {groups} other groups");
        row(&name, &[time]);
    }
    let ring = io_uring::IoUring::new(8).expect("a ring");
    let person = user(0, 16);
    let register = || ring.submitter().register_personality().expect("a number");
    let time = median(100, || {
        for _ in 0..100 {
            let number = assume(&person, register).expect("privileged");
            let _ = ring.submitter().unregister_personality(number);
        }
    });
    row("the same, registered with a ring and forgotten", &[time]);
}

fn names(folder: &Path) -> Outcome {
    let limits = HelperLimits {
        threads: DEPTH,
        queue: 1024,
    };
    let helpers = Helpers::new("helper", limits);
    let person = user(0, 16);
    let directory = Arc::new(open_path(folder)?);
    fs::write(folder.join("file"), b"text")?;
    let mine = folder.join("mine");
    fs::create_dir(&mine)?;
    std::os::unix::fs::chown(&mine, Some(person.uid()), Some(person.gid()))?;
    let mine = Arc::new(open_path(&mine)?);

    let mut ring = raw::Ring::new(&person)?;
    row(
        "a helper's job that does nothing",
        &by_helper(&helpers, |_| ()),
    );
    let job = {
        let person = person.clone();
        move |_| assume(&person, || ()).expect("privileged")
    };
    row(
        "a helper's job that does nothing as a user",
        &by_helper(&helpers, job),
    );

    let job = {
        let (person, directory) = (person.clone(), Arc::clone(&directory));
        move |_| assume(&person, || stat(&directory)).expect("privileged")
    };
    row("statx: a helper", &by_helper(&helpers, job));
    row(
        "statx: a ring",
        &ring.figure(|entry, _| entry.statx(&directory, c"file"))?,
    );

    let job = {
        let (person, directory) = (person.clone(), Arc::clone(&directory));
        move |_| drop(assume(&person, || open_at(&directory)).expect("privileged"))
    };
    row("open and close: a helper", &by_helper(&helpers, job));
    row(
        "open: a ring; close: by the reactor",
        &ring.figure(|entry, _| entry.open(&directory, c"file"))?,
    );

    let job = {
        let (person, mine) = (person.clone(), Arc::clone(&mine));
        move |n| assume(&person, || make_and_remove(&mine, n)).expect("privileged")
    };
    row(
        "mkdir and rmdir: a helper, one job",
        &by_helper(&helpers, job),
    );
    let make = ring.figure_of_two(&mine)?;
    row("mkdir and rmdir: a ring, one after the other", &make);

    let job = {
        let (person, mine) = (person.clone(), Arc::clone(&mine));
        move |n| assume(&person, || create(&mine, n)).expect("privileged")
    };
    row(
        "create, stat, sync folder, remove: a helper, one job",
        &by_helper(&helpers, job),
    );
    Ok(())
}

/// Time by job, one at once and [`DEPTH`] at once, from the call until the caller has the outcome.
fn by_helper(helpers: &Helpers, job: impl Fn(usize) + Clone + Send + 'static) -> [Duration; 2] {
    [1, DEPTH].map(|depth| {
        median(depth, || {
            let jobs: Vec<_> = (0..depth)
                .map(|n| {
                    let job = job.clone();
                    helpers.run(ClientKey::OWN, move || job(n))
                })
                .collect();
            for job in jobs {
                wait(pin!(job)).expect("room for it");
            }
        })
    })
}

fn wait<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

fn stat(directory: &OwnedFd) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(directory, c"file", flags, StatxFlags::BASIC_STATS).expect("a file");
}

fn open_at(directory: &OwnedFd) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, c"file", flags, Mode::empty()).expect("a file")
}

fn make_and_remove(directory: &OwnedFd, number: usize) {
    let name = format!("{number}");
    rustix::fs::mkdirat(directory, &name, Mode::RWXU).expect("made");
    rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR).expect("removed");
}

fn create(directory: &OwnedFd, number: usize) {
    let name = format!("{number}");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &name, flags, Mode::RUSR).expect("created");
    rustix::fs::fstat(&file).expect("open");
    let itself = rustix::fs::openat(directory, c".", OFlags::RDONLY, Mode::empty());
    rustix::fs::fsync(itself.expect("a folder")).expect("durable");
    rustix::fs::unlinkat(directory, &name, AtFlags::empty()).expect("removed");
}

fn open(path: &PathBuf) -> Outcome<Arc<OwnedFd>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true);
    Ok(Arc::new(file.open(path)?.into()))
}

fn open_path(path: &Path) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[allow(unsafe_code)]
mod raw {
    //! Names and attributes by a ring, as the store does not do it.

    use std::ffi::{CStr, CString};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::time::Duration;

    use io_uring::types::Fd;
    use io_uring::{IoUring, opcode, squeue};
    use millrace_store::posix::identity::{Identity, assume};

    use super::{DEPTH, Outcome, median};

    pub struct Ring {
        ring: IoUring,
        personality: u16,
        found: Box<[libc::statx; DEPTH]>,
    }

    /// Makes the entries of one place.
    pub struct StatxBuffer(*mut libc::statx);

    impl StatxBuffer {
        pub fn statx(&self, directory: &OwnedFd, name: &CStr) -> squeue::Entry {
            let directory = Fd(directory.as_raw_fd());
            opcode::Statx::new(directory, name.as_ptr(), self.0.cast())
                .flags(libc::AT_SYMLINK_NOFOLLOW | libc::AT_STATX_DONT_SYNC)
                .mask(libc::STATX_BASIC_STATS)
                .build()
        }

        pub fn open(&self, directory: &OwnedFd, name: &CStr) -> squeue::Entry {
            let directory = Fd(directory.as_raw_fd());
            opcode::OpenAt::new(directory, name.as_ptr())
                .flags(libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .build()
        }
    }

    impl Ring {
        pub fn new(identity: &Identity) -> Outcome<Self> {
            let mut builder = IoUring::builder();
            builder.setup_single_issuer().setup_defer_taskrun();
            let ring: IoUring = builder.build(64)?;
            let personality = assume(identity, || ring.submitter().register_personality())??;
            Ok(Self {
                ring,
                personality,
                // SAFETY: plain numbers, for which zero is a value.
                found: Box::new(unsafe { std::mem::zeroed() }),
            })
        }

        /// Time by operation, one at once and [`DEPTH`] at once.
        pub fn figure(
            &mut self,
            make: impl Fn(&StatxBuffer, usize) -> squeue::Entry,
        ) -> Outcome<[Duration; 2]> {
            Ok([1, DEPTH].map(|depth| median(depth, || self.round(depth, &make))))
        }

        /// The same for a directory that is made and then removed.
        pub fn figure_of_two(&mut self, directory: &OwnedFd) -> Outcome<[Duration; 2]> {
            let names: Result<Vec<_>, _> =
                (0..DEPTH).map(|n| CString::new(n.to_string())).collect();
            let names = names?;
            let directory = Fd(directory.as_raw_fd());
            Ok([1, DEPTH].map(|depth| {
                median(depth, || {
                    self.round(depth, &|_, n| {
                        opcode::MkDirAt::new(directory, names[n].as_ptr())
                            .mode(0o700)
                            .build()
                    });
                    self.round(depth, &|_, n| {
                        opcode::UnlinkAt::new(directory, names[n].as_ptr())
                            .flags(libc::AT_REMOVEDIR)
                            .build()
                    });
                })
            }))
        }

        fn round(&mut self, depth: usize, make: &impl Fn(&StatxBuffer, usize) -> squeue::Entry) {
            for n in 0..depth {
                let entry = make(&StatxBuffer(&raw mut self.found[n]), n);
                let opens = entry.get_opcode() == u32::from(opcode::OpenAt::CODE);
                let entry = entry.personality(self.personality).user_data(opens.into());
                // SAFETY: names and places outlive this call, which waits for all.
                unsafe { self.ring.submission().push(&entry) }.expect("room");
            }
            self.ring.submit_and_wait(depth).expect("a ring");
            for completion in self.ring.completion() {
                let outcome = completion.result();
                assert!(outcome >= 0, "error {}", -outcome);
                if completion.user_data() == 1 {
                    // SAFETY: the kernel has just opened it for us.
                    drop(unsafe { OwnedFd::from_raw_fd(outcome) });
                }
            }
        }
    }
}
