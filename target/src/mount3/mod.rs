//! MOUNT version 3 (RFC 1813 appendix I), a [program](crate::rpc::program): paths to file handles,
//! and who mounted what.
//!
//! Mounting is a courtesy, not a gate: every NFS call checks its export's rules again. So the list
//! of clients is kept for people to look at, within bounds, and lost with the process.

mod program;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_store::{Caller, Handle, Kind, Store, StoreError};
use millrace_wire::mount::Status;

use crate::exports::{Export, Exports};

pub use program::{INFO, Mount3};

/// Most mounts remembered; beyond it the oldest is forgotten.
const MOUNTS_MAX: usize = 1024;

/// A client's mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The client.
    pub client: IpAddr,
    /// The path as the client gave it.
    pub path: String,
}

/// The mounts of all clients; clones share the list, which covers the whole process.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Arc<Mutex<VecDeque<Mounted>>>,
}

impl MountTable {
    /// Remembers a mount.
    pub(crate) fn add(&self, client: IpAddr, path: &str) {
        let mount = Mounted {
            client,
            path: path.to_owned(),
        };
        let mut mounts = self.lock();
        if !mounts.contains(&mount) {
            if mounts.len() == MOUNTS_MAX {
                mounts.pop_front();
            }
            mounts.push_back(mount);
        }
    }

    /// Forgets a mount, or all of a client.
    pub(crate) fn remove(&self, client: IpAddr, path: Option<&str>) {
        self.lock()
            .retain(|mount| mount.client != client || path.is_some_and(|path| mount.path != path));
    }

    /// All mounts, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Mounted> {
        self.lock().iter().cloned().collect()
    }

    /// Every change is one call, so a poisoned lock guards a sound list.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Mounted>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the directory that a client asks to mount: an export, or a directory inside one.
pub(crate) async fn resolve<S: Store>(
    exports: &Exports<S>,
    client: IpAddr,
    path: &str,
) -> Result<(Rc<Export<S>>, Handle), Status> {
    let path = match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/",
        path => path,
    };
    let (export, below) = exports.by_path(path).ok_or(Status::NoEntry)?;
    // Whatever the security of the call: clients mount with AUTH_SYS, and learn here what the export
    // takes (RFC 2623 section 2.7).
    if !export.rules.admits(client) {
        return Err(Status::AccessDenied);
    }
    let view = export.store.for_client(client.into());
    let store = view.as_ref().unwrap_or(&export.store);
    let mut directory = store.root();
    for name in below
        .split('/')
        .filter(|name| !name.is_empty() && *name != ".")
    {
        if name == ".." {
            return Err(Status::Invalid);
        }
        // The client's users come with their own rights later, with each call.
        let found = store
            .lookup(&Caller::SUPERUSER, directory, name.as_bytes())
            .await;
        let (handle, attributes) = found.map_err(status)?;
        if attributes.kind != Kind::Directory {
            return Err(Status::NotDirectory);
        }
        directory = handle;
    }
    Ok((export.clone(), directory))
}

fn status(error: StoreError) -> Status {
    match error {
        StoreError::NotFound | StoreError::Stale => Status::NoEntry,
        StoreError::Denied | StoreError::NotOwner => Status::AccessDenied,
        StoreError::NotDirectory => Status::NotDirectory,
        StoreError::NameTooLong => Status::NameTooLong,
        StoreError::Invalid => Status::Invalid,
        StoreError::Io => Status::Io,
        _ => Status::ServerFault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_clients_is_bounded() {
        let clients = MountTable::default();
        for index in 0..2 * MOUNTS_MAX {
            clients.add(IpAddr::from([192, 0, 2, 1]), &format!("/{index}"));
            clients.add(IpAddr::from([192, 0, 2, 1]), &format!("/{index}"));
        }
        assert_eq!(clients.list().len(), MOUNTS_MAX);
        assert_eq!(clients.list()[0].path, format!("/{MOUNTS_MAX}"));
        clients.remove(IpAddr::from([192, 0, 2, 1]), Some("/1500"));
        clients.remove(IpAddr::from([192, 0, 2, 2]), None);
        assert_eq!(clients.list().len(), MOUNTS_MAX - 1);
        clients.remove(IpAddr::from([192, 0, 2, 1]), None);
        assert!(clients.list().is_empty());
    }
}
