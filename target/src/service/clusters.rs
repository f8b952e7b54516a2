//! Exports in CephFS file systems: opening them, and their state for operators.

use std::fs::File;
use std::path::Path;

use millrace_admin::config::{self, Config, ConfigProblem, KeyPath};
use millrace_admin::status::ClusterStatus;
use millrace_store::any::AnyVolume;

/// Whether this program can serve them.
pub const BUILT_IN: bool = cfg!(feature = "ceph");

const UNBUILT: &str = "this program was built without CephFS (cargo feature `ceph`)";

/// All exports of a configuration that cannot be served, without asking their clusters.
#[must_use]
pub fn unserved(config: &Config) -> Vec<ConfigProblem> {
    let mut problems = unbuilt(config);
    problems.extend(unreadable(config));
    problems
}

/// Exports that this program cannot serve anywhere.
#[must_use]
pub fn unbuilt(config: &Config) -> Vec<ConfigProblem> {
    let all = stores(config).filter(|_| !BUILT_IN);
    all.map(|(path, _)| ConfigProblem::new(path.key("kind"), UNBUILT))
        .collect()
}

/// Exports whose files this process cannot read. A keyring that only the cluster's configuration
/// file names is found by the library.
#[must_use]
pub fn unreadable(config: &Config) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (path, ceph) in stores(config) {
        let files = [
            ("conf", Some(&ceph.conf)),
            ("keyring", ceph.keyring.as_ref()),
        ];
        for (key, file) in files {
            if let Some(why) = file.and_then(|file| refused(file)) {
                problems.push(ConfigProblem::new(path.key(key), why));
            }
        }
    }
    problems
}

fn refused(file: &Path) -> Option<String> {
    let shown = file.display();
    let opened = File::open(file).and_then(|file| file.metadata());
    match opened {
        Ok(found) if found.is_file() => None,
        Ok(_) => Some(format!("`{shown}` is no file")),
        Err(error) => Some(format!("`{shown}` cannot be read: {error}")),
    }
}

/// Exports in CephFS, with the paths of their stores.
fn stores(config: &Config) -> impl Iterator<Item = (KeyPath, &config::Ceph)> {
    let exports = config.exports.iter().enumerate();
    exports.filter_map(|(index, export)| match &export.store {
        config::Store::Ceph(ceph) => Some((store_key(index), ceph)),
        config::Store::Memory { .. } | config::Store::Posix(_) => None,
    })
}

fn store_key(index: usize) -> KeyPath {
    let exports = KeyPath::root().key("exports");
    exports.index(index).key("store")
}

#[cfg(not(feature = "ceph"))]
mod built {
    use super::*;

    /// Refuses the export.
    pub fn open(_: &Config, index: usize, _: &config::Ceph) -> Result<AnyVolume, ConfigProblem> {
        Err(ConfigProblem::new(store_key(index).key("kind"), UNBUILT))
    }

    /// There is no session.
    pub fn end_session(_: &Config, _: usize, _: &config::Ceph) -> Result<bool, ConfigProblem> {
        Ok(false)
    }

    /// The state of an export for operators; there is none.
    pub fn status(_: &config::Export, _: &AnyVolume) -> Option<ClusterStatus> {
        None
    }
}

#[cfg(feature = "ceph")]
mod built {
    use millrace_store::ceph::volume::{
        CephConfig, CephLimits, CephVolume, HelperLimits, MountConfig, MountError, Sync,
    };

    use super::*;
    use crate::exports::ExportId;
    use crate::service::{gateways, secret};

    /// The most seconds to wait for the cluster at a start.
    const MOUNT_TIMEOUT: u32 = 30;

    /// Mounts the file system of the export with this index. Blocks until the cluster answers, at
    /// most about a minute.
    ///
    /// # Errors
    /// It cannot be mounted: the key, and the reason.
    pub fn open(
        config: &Config,
        index: usize,
        ceph: &config::Ceph,
    ) -> Result<AnyVolume, ConfigProblem> {
        let volume = CephVolume::open(volume_config(config, index, ceph)?);
        let volume = volume.map_err(|error| unmounted(index, ceph, &error))?;
        if let Some(gateways) = config.gateways.clone() {
            volume.reopen_if(move || gateways::may_go_on(&gateways));
        }
        tracing::info!(
            path = config.exports[index].path,
            root = %ceph.root.display(),
            identity = format!("{:016x}", volume.identity()),
            "file system of a Ceph cluster"
        );
        Ok(AnyVolume::Ceph(volume))
    }

    /// Ends the session that an earlier start of this gateway has left for the export with this
    /// index. Returns whether there was one. Blocks as `open` does.
    ///
    /// # Errors
    /// As for `open`.
    pub fn end_session(
        config: &Config,
        index: usize,
        ceph: &config::Ceph,
    ) -> Result<bool, ConfigProblem> {
        let volume = volume_config(config, index, ceph)?;
        let session = volume.mount.uuid.clone().unwrap_or_default();
        let ended = CephVolume::end_session(&volume, &session);
        ended.map_err(|error| unmounted(index, ceph, &error))
    }

    fn unmounted(index: usize, ceph: &config::Ceph, error: &MountError) -> ConfigProblem {
        let text = format!(
            "the file system of {} cannot be mounted as client.{}: {error}",
            ceph.conf.display(),
            ceph.user
        );
        ConfigProblem::new(store_key(index), text)
    }

    fn volume_config(
        config: &Config,
        index: usize,
        ceph: &config::Ceph,
    ) -> Result<CephConfig, ConfigProblem> {
        let export = &config.exports[index];
        let uuid = session_name(config, export)
            .map_err(|error| ConfigProblem::new(store_key(index), error.to_string()))?;
        Ok(CephConfig {
            name: export.path.clone(),
            mount: MountConfig {
                conf: ceph.conf.clone(),
                user: ceph.user.clone(),
                keyring: ceph.keyring.clone(),
                file_system: ceph.file_system.clone(),
                root: ceph.root.clone(),
                predecessor: uuid.clone(),
                uuid,
                timeout: MOUNT_TIMEOUT,
                options: Vec::new(),
            },
            sync: match ceph.sync {
                config::SyncMode::Strict => Sync::Strict,
                config::SyncMode::Relaxed => Sync::Relaxed,
            },
            read_only: ceph.read_only,
            leases: ceph.delegations,
            limits: CephLimits {
                open_files: ceph.limits.open_files as usize,
                helpers: HelperLimits {
                    threads: ceph.limits.threads as usize,
                    queue: ceph.limits.queue as usize,
                },
                cache: ceph.limits.cache.bytes(),
            },
        })
    }

    /// Names the session with the cluster, so that the next start ends the session that a crash
    /// left behind. Without a state directory that is left to the cluster's timeout.
    fn session_name(config: &Config, export: &config::Export) -> std::io::Result<Option<String>> {
        if let Some(gateways) = &config.gateways {
            return gateways::session_name(gateways, &export.path).map(Some);
        }
        let Some(directory) = config.state_directory.as_deref() else {
            return Ok(None);
        };
        let identity = secret::load(Some(directory), secret::SERVER_IDENTITY)?;
        let identity = u128::from_be_bytes(identity);
        let export = ExportId::of(&export.path).0;
        Ok(Some(format!("millrace-{identity:032x}-{export:016x}")))
    }

    /// The state of an export for operators.
    pub fn status(export: &config::Export, volume: &AnyVolume) -> Option<ClusterStatus> {
        let (config::Store::Ceph(ceph), AnyVolume::Ceph(volume)) = (&export.store, volume) else {
            return None;
        };
        let (figures, load) = (volume.figures(), volume.load());
        Some(ClusterStatus {
            conf: ceph.conf.display().to_string(),
            user: ceph.user.clone(),
            root: ceph.root.display().to_string(),
            identity: format!("{:016x}", volume.identity()),
            sync: ceph.sync.name().to_owned(),
            read_only: ceph.read_only,
            mounted: figures.is_mounted,
            lost_sessions: figures.lost_sessions,
            helper_threads: load.threads as u64,
            helper_jobs: load.running as u64,
            helper_queue: load.queued as u64,
            stuck_seconds: load.stuck.as_secs_f64(),
            known_objects: figures.known_objects,
            open_files: figures.open_files,
            delays: figures.delays,
            sync_errors: figures.sync_errors,
            verifier_changes: figures.verifier_changes,
        })
    }
}

pub use built::{end_session, open, status};
