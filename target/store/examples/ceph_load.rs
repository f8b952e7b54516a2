//! How fast libcephfs does what the store in CephFS does, without a server.
//!
//! `cargo run --release -p millrace-store --features ceph --example ceph_load -- --help`
//!
//! One mount, with the store's own options of the library, and as many threads as operations in
//! flight. `bench/ceph-figures` compares it with millraced.

use std::error::Error;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_store::Caller;
use millrace_store::ceph::library::{File, Identity, Inode, Mount};
use millrace_store::ceph::volume::{CephConfig, CephLimits, MountConfig, Sync};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

const HELP: &str = "\
Usage: ceph_load --conf FILE --user NAME --root DIRECTORY --op OPERATION [OPTIONS]

Makes load on a CephFS file system by libcephfs, and prints operations, seconds and processor time
as JSON. It makes a file for that, and removes it.

  --conf FILE         configuration file of the cluster
  --user NAME         its user, without `client.`
  --keyring FILE      the user's key; by default the configuration file says where it is
  --root DIRECTORY    of the file system
  --op OPERATION      read, write, write-stable (each one synced), getattr, lookup, create (files
                      made and removed), or create-sync (durable before the next one)
  --size BYTES        of a read or write (default 4096)
  --depth NUMBER      threads, each with one operation in flight (default 1)
  --file-size BYTES   the file, a multiple of --size (default 33554432)
  --cache BYTES       the library's cache of file data (default 0: none)
  --seconds NUMBER    duration (default 1)";

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// What to do.
struct CephLoad {
    config: CephConfig,
    operation: String,
    size: usize,
    depth: u64,
    file_size: u64,
    time: Duration,
}

/// Where it is done.
struct LoadTarget {
    identity: Identity,
    root: Inode,
    name: CString,
    inode: Arc<Inode>,
    file: File,
}

fn main() -> Outcome {
    let Some(load) = CephLoad::from_arguments(std::env::args().skip(1))? else {
        println!("{HELP}");
        return Ok(());
    };
    let mount = Mount::open(&load.config.library_mount())?;
    let identity = Identity::of(&Caller::SUPERUSER);
    let root = Inode::root(&mount)?;
    let name = CString::new(format!(".ceph-load-{}", std::process::id()))?;
    let (file, _) = root.create(&identity, &name, 0o600)?;
    let target = LoadTarget {
        inode: Arc::clone(file.inode()),
        identity,
        root,
        name,
        file,
    };
    let done = fill(&target.file, load.file_size).and_then(|()| load.run(&target));
    // Its name first, so that nothing stays if the load failed.
    target.root.unlink(&target.identity, &target.name)?;
    let (operations, elapsed, processor) = done?;
    let (seconds, processor) = (elapsed.as_secs_f64(), processor.as_secs_f64());
    println!(
        "{{\"operations\": {operations}, \"seconds\": {seconds}, \"cpu_seconds\": {processor}}}"
    );
    Ok(())
}

/// Writes so many bytes, and waits until they are durable: writing them back would take part in the
/// load otherwise.
fn fill(file: &File, size: u64) -> Outcome {
    let block = vec![0x5a; 1 << 20];
    let mut at = 0;
    while at < size {
        let part = block.len().min((size - at) as usize);
        at += file.write_bytes(at, &block[..part])? as u64;
    }
    Ok(file.sync(false)?)
}

impl CephLoad {
    /// `None` if help was asked for.
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Outcome<Option<Self>> {
        let mut mount = MountConfig {
            conf: PathBuf::new(),
            user: String::new(),
            keyring: None,
            file_system: None,
            root: PathBuf::new(),
            uuid: None,
            predecessor: None,
            timeout: 30,
            options: Vec::new(),
        };
        let (mut operation, mut size, mut depth) = (String::new(), 4096, 1);
        let (mut file_size, mut seconds, mut cache) = (32 << 20, 1.0, 0);
        while let Some(option) = arguments.next() {
            if option == "--help" || option == "-h" {
                return Ok(None);
            }
            let value = arguments.next();
            let value = value.ok_or_else(|| format!("{option}: no such option, or no value"))?;
            match option.as_str() {
                "--conf" => mount.conf = value.into(),
                "--user" => mount.user = value,
                "--keyring" => mount.keyring = Some(value.into()),
                "--root" => mount.root = value.into(),
                "--op" => operation = value,
                "--size" => size = value.parse()?,
                "--depth" => depth = value.parse()?,
                "--file-size" => file_size = value.parse()?,
                "--cache" => cache = value.parse()?,
                "--seconds" => seconds = value.parse()?,
                _ => return Err(format!("{option}: no such option; see --help").into()),
            }
        }
        if mount.user.is_empty() || mount.conf.as_os_str().is_empty() {
            return Err("--conf and --user are needed; see --help".into());
        }
        if size == 0 || file_size < size as u64 {
            return Err("--file-size is smaller than --size, or --size is 0".into());
        }
        let config = CephConfig {
            name: String::new(),
            mount,
            sync: Sync::Relaxed,
            read_only: false,
            leases: false,
            limits: CephLimits {
                cache,
                ..CephLimits::default()
            },
        };
        Ok(Some(Self {
            config,
            operation,
            size,
            depth,
            file_size,
            time: Duration::try_from_secs_f64(seconds)?,
        }))
    }

    /// Operations, their time, and the processor time of this process.
    fn run(&self, target: &LoadTarget) -> Outcome<(u64, Duration, Duration)> {
        let (blocks, counter) = (AtomicU64::new(0), AtomicU64::new(0));
        let processor = processor_time();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let mut memory = vec![0; self.size];
                while start.elapsed() < self.time {
                    let block = blocks.fetch_add(1, Relaxed) % (self.file_size / self.size as u64);
                    let offset = block * self.size as u64;
                    let done = target.operate(&self.operation, offset, &mut memory, thread)?;
                    counter.fetch_add(done, Relaxed);
                }
                Ok::<_, Errno>(())
            };
            let threads: Vec<_> = (0..self.depth)
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.map_err(|_| Errno::IO)?
            })
        })
        .map_err(|error| format!("--op {}: {error}", self.operation))?;
        let elapsed = start.elapsed();
        Ok((counter.into_inner(), elapsed, processor_time() - processor))
    }
}

impl LoadTarget {
    /// Returns the number of operations.
    fn operate(
        &self,
        operation: &str,
        at: u64,
        memory: &mut [u8],
        thread: u64,
    ) -> Result<u64, Errno> {
        let Self { identity, root, .. } = self;
        match operation {
            "read" => drop(self.file.read_bytes(at, memory)?),
            "write" => drop(self.file.write_bytes(at, memory)?),
            "write-stable" => {
                self.file.write_bytes(at, memory)?;
                self.file.sync(false)?;
            }
            "getattr" => drop(self.inode.attributes(identity)?),
            "lookup" => drop(root.lookup(identity, &self.name)?),
            "create" | "create-sync" => {
                let settle = || match operation {
                    "create" => Ok(()),
                    _ => root.sync(),
                };
                let name = format!("{}.{thread}", self.name.to_string_lossy());
                let name = CString::new(name).map_err(|_| Errno::INVAL)?;
                drop(root.create(identity, &name, 0o600)?);
                settle()?;
                root.unlink(identity, &name)?;
                settle()?;
                return Ok(2);
            }
            _ => return Err(Errno::NOSYS),
        }
        Ok(1)
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
