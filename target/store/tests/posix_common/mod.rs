//! What the tests of the posix store share: file systems of their own, and volumes in them.
//!
//! They run as the superuser, who may mount file systems and act on behalf of others.

#![allow(dead_code)] // Each test file uses its part.

use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_mempool::{Arena, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::{Alarm, Clock};
use millrace_store::posix::PosixStore;
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::volume::{Direct, Groups, Limits, Mounts, Sync, Volume, VolumeConfig};
use tempfile::TempDir;

use crate::common::drive;

/// A file system of a test's own, mounted for as long as this lives.
pub struct Backing {
    mounted: PathBuf,
    /// A folder in it that is empty at first.
    root: PathBuf,
    /// The folder that it is mounted on, and the image.
    folder: TempDir,
}

impl Backing {
    /// A file system in memory with mount options such as `size=1m`.
    pub fn tmpfs(options: &str) -> Self {
        Self::try_tmpfs(options).unwrap_or_else(|said| panic!("{said}"))
    }

    /// As [`Backing::tmpfs`]; the error tells what the kernel lacks.
    pub fn try_tmpfs(options: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = folder.path().join("mounted");
        std::fs::create_dir(&mounted).expect("a folder");
        let options = format!("mode=0777,{options}");
        let arguments = ["-t", "tmpfs", "-o", &options, "tmpfs", text(&mounted)];
        try_run("mount", &arguments)?;
        Ok(Self {
            root: mounted.clone(),
            mounted,
            folder,
        })
    }

    /// Another one in memory, on a folder that is there.
    pub fn tmpfs_at(mounted: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        run("mount", &["-t", "tmpfs", "tmpfs", text(mounted)]);
        let mounted = mounted.to_owned();
        Self {
            root: mounted.clone(),
            mounted,
            folder,
        }
    }

    /// A file system of type ext4 of so many MiB in a loop device.
    pub fn ext4(size: u32, options: &[&str]) -> Self {
        let make = [&["mkfs.ext4", "-q", "-F", "-b", "4096"], options].concat();
        Self::disk(size, &make).unwrap_or_else(|said| panic!("{said}"))
    }

    /// A file system of so many MiB in a loop device, made by a command that takes the image's
    /// name; the error tells what is lacking here.
    pub fn disk(size: u32, make: &[&str]) -> Result<Self, String> {
        // In memory, so that syncs are quick.
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let mounted = folder.path().join("mounted");
        std::fs::create_dir(&mounted).expect("a folder");
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).expect("an image");
        file.set_len(u64::from(size) << 20).expect("an image");
        try_run(make[0], &[&make[1..], &[text(&image)]].concat())?;
        try_run("mount", &["-o", "loop", text(&image), text(&mounted)])?;
        // Beside the folder that the file system is made with.
        let root = mounted.join("root");
        std::fs::create_dir(&root).expect("a folder");
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&root, mode).expect("ours");
        Ok(Self {
            mounted,
            root,
            folder,
        })
    }

    /// The folder for volumes.
    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        run("mount", &["-o", &options, text(&self.mounted)]);
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // Detached: threads of a volume may still have it open.
        let _ = Command::new("umount").arg("-l").arg(&self.mounted).output();
    }
}

/// A volume in a file system, and its store on this thread.
pub struct World {
    pub store: PosixStore,
    pub volume: Volume,
}

impl Deref for World {
    type Target = PosixStore;

    fn deref(&self) -> &PosixStore {
        &self.store
    }
}

impl World {
    /// Opens a folder; `change` changes what is otherwise the default, but for fewer helpers.
    pub fn open(root: &Path, change: impl FnOnce(&mut VolumeConfig)) -> Self {
        // Not what helpers make files with.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let mut config = config(root);
        change(&mut config);
        let volume = Volume::open(config).expect("a volume");
        let store = store_of(&volume);
        Self { store, volume }
    }
}

pub fn config(root: &Path) -> VolumeConfig {
    let mut limits = Limits::default();
    limits.helpers.threads = 4;
    VolumeConfig {
        name: "test".into(),
        root: root.to_owned(),
        direct: Direct::Auto,
        sync: Sync::Strict,
        groups: Groups::Client,
        mounts: Mounts::Hide,
        exclusive: false,
        limits,
        state: None,
    }
}

/// A store on this thread, whose waiting operations go on in [`crate::common::now`].
pub fn store_of(volume: &Volume) -> PosixStore {
    store_with(Engine::new, volume)
}

/// The same, if this thread may not act as others.
pub fn store_beside_devices(volume: &Volume) -> PosixStore {
    store_with(Engine::beside_devices, volume)
}

type MakeEngine = fn(EngineConfig, &Pool, &[Arc<Arena>], Option<Alarm>) -> std::io::Result<Engine>;

fn store_with(make: MakeEngine, volume: &Volume) -> PosixStore {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
    let config = EngineConfig {
        backend: Backend::Auto,
        operations: 64,
    };
    let engine = make(config, &pool, &registry.arenas(), None).expect("an engine");
    let clock = Clock::new(Instant::now());
    let (driven, time) = (engine.clone(), clock.clone());
    drive(move || {
        time.turn(Instant::now());
        if driven.poll(Instant::now()) == 0 {
            // Helpers that are done end the wait; completions are looked for.
            std::thread::park_timeout(Duration::from_micros(200));
        }
    });
    PosixStore::new(volume, &engine, &clock)
}

fn run(program: &str, arguments: &[&str]) {
    try_run(program, arguments).unwrap_or_else(|said| panic!("{said}"));
}

fn try_run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(arguments).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{program} {arguments:?}: {said}"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain text")
}
