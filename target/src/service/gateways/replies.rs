//! The replies of changes that gateways share, so that none is executed twice.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::folder::GatewayFolder;
use crate::replay::{OpenedCache, ReplayCache, ReplayLimits, SharedJournals};
use crate::service::hardening::{ThreadKind, confine_thread};
use crate::service::secret;

/// The file of the key that all gateways know calls by.
const KEY: &str = "replies-key";

/// How long the last replies may take to be recorded when a gateway stops.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Opens the replies that earlier starts have left, and those of gateways that this one has taken
/// the place of.
///
/// # Errors
/// Those of the file system.
pub(super) fn open(
    folder: &GatewayFolder,
    reactors: usize,
) -> io::Result<(OpenedCache, SharedJournals)> {
    // Made by the first gateway.
    let key = folder.change(|_| secret::load(Some(folder.path()), KEY))??;
    ReplayCache::open_shared(
        ReplayLimits::default(),
        &folder.own(),
        &others(folder)?,
        key,
        reactors,
        || confine_thread(ThreadKind::StoreHelper),
    )
}

/// Takes over the replies of another gateway, which is fenced. If that fails, calls that are
/// repeated may fail.
pub(super) fn take_over(replies: &SharedJournals, folder: &GatewayFolder, of: &str) {
    let theirs = folder.path().join(of);
    let taken = others(folder).and_then(|mut others| {
        others.retain(|other| *other != theirs);
        replies.take_over(&theirs, &others)
    });
    match taken {
        Ok(taken) => tracing::info!(
            gateway = of,
            done = taken.done,
            begun = taken.begun,
            "executed and begun calls of the other gateway are known"
        ),
        Err(error) => tracing::warn!(
            gateway = of,
            %error,
            "the replies of the other gateway cannot be taken over: calls that are repeated may fail"
        ),
    }
}

/// Waits until the last replies are recorded.
pub(super) fn flush(replies: &SharedJournals) {
    if !replies.flush(LAST_WAIT) {
        tracing::warn!("gateways.shared_replies: the last replies may not have been recorded");
    }
}

fn others(folder: &GatewayFolder) -> io::Result<Vec<PathBuf>> {
    let others = folder.others()?;
    Ok(others.into_iter().map(|(_, path)| path).collect())
}
