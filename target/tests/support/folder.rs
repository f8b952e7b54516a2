//! A store of a folder, with threads instead of a ring.

use std::path::Path;
use std::time::Instant;

use millrace_mempool::{Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use millrace_store::posix::PosixStore;
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::helpers::HelperLimits;
use millrace_store::posix::volume::{Direct, Groups, Limits, Mounts, Sync, Volume, VolumeConfig};

pub struct Folder {
    pub volume: Volume,
    pub engine: Engine,
    pub store: PosixStore,
}

impl Folder {
    /// With one helper thread.
    pub fn open(root: &Path, registry: &Registry) -> Self {
        let helpers = HelperLimits {
            threads: 1,
            queue: 100,
        };
        let config = VolumeConfig {
            name: "test".to_owned(),
            root: root.to_owned(),
            direct: Direct::Never,
            sync: Sync::Relaxed,
            groups: Groups::Client,
            mounts: Mounts::Hide,
            exclusive: false,
            limits: Limits {
                helpers,
                ..Limits::default()
            },
            state: None,
        };
        let volume = Volume::open(config).unwrap();
        let pool = Pool::new(registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let config = EngineConfig {
            backend: Backend::Threads,
            operations: 4,
        };
        let engine = Engine::new(config, &pool, &registry.arenas(), None).unwrap();
        let store = PosixStore::new(&volume, &engine, &Clock::new(Instant::now()));
        Self {
            volume,
            engine,
            store,
        }
    }
}
