//! The start of a gateway.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millrace_admin::config;
use millrace_store::any::AnyVolume;

use super::folder::GatewayFolder;
use crate::service::StartError;
use crate::service::client_records::RecordFolder;
use crate::service::lock::StateLock;
use crate::state::{DurableClient, RecoveredClients};

/// How often the records of the others are read while they are waited for.
const PAUSE: Duration = Duration::from_millis(100);

/// A gateway that grants nothing yet.
#[derive(Debug)]
pub struct JoiningGateway {
    pub(super) folder: GatewayFolder,
    pub(super) lock: Arc<StateLock>,
    /// Clients of others that an earlier start has taken.
    taken: Vec<RecoveredClients>,
    has_clients: bool,
}

impl JoiningGateway {
    /// Takes the name of a gateway. Nobody grants anything from now on, if its clients may reclaim.
    ///
    /// # Errors
    /// The shared folder cannot be used, or another process has the name.
    pub fn join(gateways: &config::Gateways) -> io::Result<Self> {
        let folder = GatewayFolder::open(gateways)?;
        let lock = Arc::new(folder.take_name()?);
        let taken = folder.all_taken()?;
        let own = RecordFolder::look(&folder.own())?;
        let has_clients = !own.clients.is_empty() || !taken.is_empty();
        folder.change(|records| records.start(folder.name(), has_clients))?;
        Ok(Self {
            folder,
            lock,
            taken,
            has_clients,
        })
    }

    /// Waits until no other gateway grants anything, if that is needed. `told` is called with the
    /// names of those that are waited for, again and again.
    ///
    /// # Errors
    /// The shared folder cannot be used, or what `told` returns.
    pub fn wait_for_others(
        &self,
        mut told: impl FnMut(&str) -> Result<(), StartError>,
    ) -> Result<(), StartError> {
        while self.has_clients {
            let records = self.folder.read().map_err(StartError::Gateways)?;
            let names: Vec<&str> = records.granting(self.folder.name()).collect();
            if names.is_empty() {
                break;
            }
            told(&names.join(", "))?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// What all gateways have in common.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.folder.identity()
    }

    /// The folder of the records of this gateway's clients.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        self.folder.own()
    }

    /// The lock of that folder.
    #[must_use]
    pub fn lock(&self) -> Arc<StateLock> {
        Arc::clone(&self.lock)
    }

    /// The old sessions have ended. Clients that may not reclaim are removed from `recovered`, those
    /// that were taken from others are added.
    ///
    /// # Errors
    /// The shared folder cannot be used.
    pub fn begin_recovery<'a>(
        &self,
        volumes: impl Iterator<Item = &'a AnyVolume>,
        recovered: &mut RecoveredClients,
    ) -> io::Result<()> {
        let was_kept = volumes.map(AnyVolume::locks_were_kept).all(|kept| kept);
        let name = self.folder.name();
        let may = self
            .folder
            .change(|records| records.begin_recovery(name, was_kept))?;
        for taken in &self.taken {
            let is_new =
                |one: &&DurableClient| !recovered.clients.iter().any(|own| own.owner == one.owner);
            let new: Vec<_> = taken.clients.iter().filter(is_new).cloned().collect();
            let start = recovered.start;
            let new = new
                .into_iter()
                .map(|client| DurableClient { start, ..client });
            recovered.clients.extend(new);
            recovered.lease = recovered.lease.max(taken.lease);
        }
        if self.has_clients && !may {
            tracing::warn!(
                clients = recovered.clients.len(),
                "this gateway was not stopped in order, and others may have been granted since what \
                 its clients had: they reclaim nothing"
            );
            recovered.clients.clear();
        }
        Ok(())
    }
}

/// The name of the session in the cluster of this gateway for an export.
///
/// # Errors
/// The shared folder cannot be used.
#[cfg(feature = "ceph")]
pub fn session_name(gateways: &config::Gateways, export: &str) -> io::Result<String> {
    let folder = GatewayFolder::open(gateways)?;
    Ok(folder.session_name(&gateways.name, export))
}
