//! The start of a gateway.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::config::{self, Config};

use super::folder::GatewayFolder;
use super::settings::SHARED_SETTINGS;
use super::{replies, secrets, shares};
use crate::handle::HandleSecrets;
use crate::log_limit::LogLimit;
use crate::replay::{OpenedCache, SharedJournals};
use crate::service::client_records::RecordFolder;
use crate::service::lock::StateLock;
use crate::service::startup::StartProgress;
use crate::service::{StartError, clusters};
use crate::state::RecoveredClients;

/// How often the records of the others are read while they are waited for.
const PAUSE: Duration = Duration::from_millis(100);

/// A gateway that grants nothing yet.
#[derive(Debug)]
pub struct JoiningGateway {
    pub(super) folder: GatewayFolder,
    pub(super) lock: Arc<StateLock>,
    has_clients: bool,
    announces_shares: bool,
    shares_replies: bool,
}

impl JoiningGateway {
    /// Takes the name of a gateway. Nobody grants anything from now on, if its clients may reclaim.
    ///
    /// # Errors
    /// The shared folder cannot be used, or another process has the name.
    pub fn join(gateways: &config::Gateways, handles: &HandleSecrets) -> io::Result<Self> {
        let folder = GatewayFolder::open(gateways)?;
        let lock = Arc::new(folder.take_name()?);
        let taken = folder.all_taken()?;
        let own = RecordFolder::look(&folder.own())?;
        let has_clients = !own.clients.is_empty() || !taken.is_empty();
        let announces_shares = gateways.share_reservations.is_on();
        if announces_shares {
            shares::try_locks(&folder)?;
        }
        let (stale, others) = folder.change(|records| {
            records.start(folder.name(), has_clients);
            let stale = secrets::compare(&folder, handles);
            let others = SHARED_SETTINGS.map(|setting| {
                let others = setting.compare(&folder, records, gateways);
                (setting, others)
            });
            (stale, others)
        })?;
        secrets::warn_of(&stale?);
        for (setting, others) in others {
            for gateway in others? {
                tracing::warn!(
                    gateway,
                    "gateways.{}: that gateway has another setting; {}",
                    setting.key,
                    setting.consequence
                );
            }
        }
        Ok(Self {
            folder,
            lock,
            has_clients,
            announces_shares,
            shares_replies: gateways.shared_replies.is_on(),
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
        if !self.has_clients {
            return Ok(());
        }
        loop {
            let records = self.folder.read().map_err(StartError::Gateways)?;
            let names: Vec<&str> = records.granting(self.folder.name()).collect();
            if names.is_empty() {
                return Ok(());
            }
            told(&names.join(", "))?;
            thread::sleep(PAUSE);
        }
    }

    /// What all gateways have in common.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.folder.identity()
    }

    /// The folder in which gateways announce what opens access and deny, if this one does.
    #[must_use]
    pub fn announcements(&self) -> Option<PathBuf> {
        self.announces_shares.then(|| shares::folder(&self.folder))
    }

    /// The replies of all gateways, as this one knows them, if gateways share them.
    ///
    /// # Errors
    /// The shared folder cannot be used.
    pub fn open_replies(
        &self,
        reactors: usize,
    ) -> io::Result<Option<(OpenedCache, SharedJournals)>> {
        let opened = self
            .shares_replies
            .then(|| replies::open(&self.folder, reactors));
        opened.transpose()
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

    /// Ends what an earlier start has left in the cluster, and drops the clients that may not reclaim:
    /// for good, before there is a session that the next start could find.
    ///
    /// # Errors
    /// The shared folder, or a cluster, cannot be used.
    pub fn begin_recovery(&self, config: &Config) -> Result<(), StartError> {
        let mut was_kept = true;
        for (index, export) in config.exports.iter().enumerate() {
            was_kept &= match &export.store {
                config::Store::Memory { .. } => true,
                // Locks on the host ended with the process.
                config::Store::Posix(posix) => posix.exclusive,
                config::Store::Ceph(ceph) => {
                    clusters::end_session(config, index, ceph).map_err(StartError::Store)?
                }
            };
        }
        let name = self.folder.name();
        let begun = self
            .folder
            .change(|records| records.begin_recovery(name, was_kept));
        if !begun.map_err(StartError::Gateways)? && self.has_clients {
            tracing::warn!(
                "this gateway was not stopped in order, and others may have been granted since what \
                 its clients had: they reclaim nothing"
            );
            let dropped = RecordFolder::drop_clients(&self.folder.own());
            let dropped = dropped.and_then(|()| self.folder.forget_taken());
            dropped.map_err(StartError::Gateways)?;
        }
        Ok(())
    }

    /// The clients that an earlier start has taken from others. They are not recorded here yet.
    ///
    /// # Errors
    /// The shared folder cannot be used.
    pub fn taken(&self) -> io::Result<Vec<RecoveredClients>> {
        self.folder.all_taken()
    }
}

/// Joins the other gateways, if there are any, and waits until none of them grants what clients of
/// this one may reclaim.
///
/// # Errors
/// The shared folder, or a cluster, cannot be used, or the start is given up.
pub fn join_gateways(
    config: &Config,
    secrets: &HandleSecrets,
    progress: &StartProgress,
) -> Result<Option<JoiningGateway>, StartError> {
    let Some(gateways) = &config.gateways else {
        return Ok(None);
    };
    progress.enter("joining the other gateways")?;
    let joined = JoiningGateway::join(gateways, secrets).map_err(StartError::Gateways)?;
    tracing::info!(
        name = gateways.name,
        directory = %gateways.directory.display(),
        "one of several gateways"
    );
    if joined.announcements().is_none() {
        tracing::info!(
            "opens of shared files that deny access to others are refused; with \
             gateways.share_reservations: on, gateways know what each other's opens deny"
        );
    }
    let mut warnings = LogLimit::default();
    joined.wait_for_others(|names| {
        if warnings.is_due(Instant::now()) {
            tracing::warn!(
                gateways = names,
                "waiting until these grant nothing, as clients of this one may reclaim; if one is \
                 gone, let a gateway that serves take its place (millracectl gateways take-over), or \
                 make sure that it is off and remove its folder in {}",
                gateways.directory.display()
            );
        }
        progress.enter(format!("waiting until {names} grants no opens and locks"))
    })?;
    progress.enter("ending earlier sessions with the cluster")?;
    joined.begin_recovery(config)?;
    Ok(Some(joined))
}

/// Whether no other gateway has taken the place of this one, as far as can be told.
#[cfg(feature = "ceph")]
pub fn may_go_on(gateways: &config::Gateways) -> bool {
    let records = GatewayFolder::open(gateways).and_then(|folder| folder.read());
    let own = records.map(|records| records.0.get(&gateways.name).copied());
    own.is_ok_and(|own| own.is_some_and(|own| !own.is_replaced))
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
