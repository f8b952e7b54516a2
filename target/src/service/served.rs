//! The status of exports for the management plane.

use millrace_admin::config;
use millrace_admin::status::{ExportStatus, FolderStatus, RateLimits};
use millrace_store::any::AnyVolume;
use millrace_store::memory::Usage;
use millrace_store::posix::engine::Backend;
use millrace_store::posix::identity::privileged;
use millrace_store::posix::volume::Volume;

use super::clusters;
use super::control::ServiceControl;
use super::folders;
use crate::exports::{ExportId, Squash};

impl ServiceControl {
    /// All exports, in the order of the configuration. Queries no reactor, and waits only briefly
    /// for file systems.
    pub(super) fn exports_now(&self) -> Vec<ExportStatus> {
        let in_force = self.in_force();
        let exports = in_force.exports.iter().map(|(rules, volume)| {
            let id = ExportId::of(&rules.path);
            let usage = self.usage_of(id, volume);
            let done = self.export_totals(id);
            let mut configured = in_force.config.exports.iter();
            let configured = configured.find(|export| export.path == rules.path);
            let limits = configured.and_then(|export| export.limits.as_ref());
            let folder = configured.and_then(|export| match (&export.store, volume) {
                (config::Store::Posix(posix), AnyVolume::Posix(volume)) => {
                    Some(self.folder(posix, volume))
                }
                _ => None,
            });
            ExportStatus {
                path: rules.path.clone(),
                store: volume.kind().to_owned(),
                access: if rules.read_only { "ro" } else { "rw" }.to_owned(),
                squash: match rules.squash {
                    Squash::None => "none",
                    Squash::Root => "root",
                    Squash::All => "all",
                }
                .to_owned(),
                clients: rules.clients.iter().map(ToString::to_string).collect(),
                capacity_bytes: usage.map(|usage| usage.total_bytes),
                used_bytes: usage.map(|usage| usage.used_bytes),
                files: usage.map(|usage| usage.inodes),
                capacity_files: usage.and_then(|usage| usage.total_inodes),
                requests: done.requests,
                bytes_read: done.bytes_read,
                bytes_written: done.bytes_written,
                limits: RateLimits {
                    iops: limits.and_then(|limits| limits.iops),
                    bandwidth_bytes: limits
                        .and_then(|limits| limits.bandwidth)
                        .map(|rate| rate.0),
                },
                folder,
                cluster: configured.and_then(|export| clusters::status(export, volume)),
            }
        });
        exports.collect()
    }

    /// The usage of an export, or of its folder's file system, if known.
    pub(super) fn usage_of(&self, export: ExportId, volume: &AnyVolume) -> Option<Usage> {
        match volume {
            AnyVolume::Memory(store) => Some(store.usage()),
            kept => {
                let space = self.spaces.of(export, kept)?;
                Some(Usage {
                    total_bytes: space.total_bytes,
                    used_bytes: space.used_bytes,
                    names_bytes: 0,
                    inodes: space.inodes,
                    total_inodes: space.total_inodes,
                })
            }
        }
    }

    fn folder(&self, posix: &config::Posix, volume: &Volume) -> FolderStatus {
        // Known since it was opened.
        let about = volume.info();
        let (direct, sync) = folders::modes(volume);
        let figures = volume.figures();
        let load = volume.helpers().load();
        let backend = self.parts.iter().find_map(|parts| parts.backend.get());
        let missing = about.missing.iter().map(|(name, _)| (*name).to_owned());
        FolderStatus {
            root: posix.root.display().to_string(),
            file_system: about.file_system.clone(),
            identity: format!("{:016x}", about.identity),
            lasting_handles: about.lasting_handles,
            read_only: about.read_only,
            direct: direct.to_owned(),
            direct_alignment: about.direct_alignment,
            sync: sync.to_owned(),
            backend: backend.map_or("", |one| backend_name(*one)).to_owned(),
            acts_as: if privileged() { "caller" } else { "server" }.to_owned(),
            missing_capabilities: missing.collect(),
            helper_threads: load.threads as u64,
            helper_jobs: load.running as u64,
            helper_queue: load.queued as u64,
            stuck_seconds: load.stuck.as_secs_f64(),
            operations: figures.operations,
            operations_waiting: figures.waiting_operations,
            open_objects: figures.open_objects,
            dirty_bytes: figures.dirty_bytes,
            write_back_errors: figures.write_back_errors,
            verifier_changes: figures.verifier_changes,
        }
    }
}

/// The name of a backend.
pub fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Ring => "ring",
        Backend::Threads => "threads",
    }
}
