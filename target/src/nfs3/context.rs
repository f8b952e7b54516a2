//! Whose call it is and what its handles stand for.

use std::cell::{Cell, RefCell};

use millrace_store::{Attributes, Caller, Consistency, Handle, Modified, Store, StoreError};
use millrace_wire::nfs3::{
    Failure, FileAttributes, FileHandle, PostAttributes, Procedure, Status, WeakCacheData,
};

use super::{convert, status};
use crate::call::Peer;
use crate::exports::{Export, ExportId, Exports};
use crate::handle::{HandleError, HandleKey};
use crate::replay::Again;
use crate::store_times::{StoreClass, StoreTimes, Timed};

/// One call of a procedure.
pub(crate) struct Context<'c, S> {
    pub procedure: Procedure,
    pub exports: &'c Exports<S>,
    /// The table of exports in place now, where another one has replaced the call's meanwhile.
    pub latest_exports: &'c RefCell<Exports<S>>,
    pub key: &'c HandleKey,
    pub peer: Peer,
    /// Who the caller says it is; `None` without credentials.
    pub credential: Option<&'c Caller>,
    pub times: &'c StoreTimes,
    /// The export of the first object that the call was for, once that is known.
    pub export: Cell<Option<&'c Export<S>>>,
    /// What is known of the call if an earlier process may have executed it.
    pub again: Option<Again>,
    /// Whether an export did not admit the client, or not with this flavor.
    pub turned_away: Cell<bool>,
}

/// An object that a call may use.
pub(super) struct Object<'c, S> {
    pub procedure: Procedure,
    pub export: &'c Export<S>,
    pub handle: Handle,
    /// The caller, as the export's rules leave it.
    pub caller: Caller,
    /// The export's store as the client of the call uses it, where it tells clients apart.
    view: Option<S>,
    key: &'c HandleKey,
    times: &'c StoreTimes,
}

impl<'c, S: Store> Context<'c, S> {
    /// The object behind a handle.
    pub(super) fn object(&self, handle: &FileHandle) -> Result<Object<'c, S>, Status> {
        let (export, handle) = self
            .key
            .open(handle.as_bytes())
            .map_err(|error| match error {
                HandleError::Malformed => Status::BadHandle,
                HandleError::Foreign => Status::Stale,
            })?;
        // An export that is gone took its objects with it.
        let export = self.exports.by_id(ExportId(export)).ok_or(Status::Stale)?;
        if self.export.get().is_none() {
            self.export.set(Some(export));
        }
        if !export.rules.admits(self.peer.address) || !export.rules.takes(self.credential) {
            self.turned_away.set(true);
            // Not `NFS3ERR_ACCES`, which few procedures may answer, GETATTR not among them.
            return Err(status::legal(self.procedure, Status::AccessDenied));
        }
        let caller = export.rules.squash(self.credential);
        Ok(Object {
            procedure: self.procedure,
            export,
            handle,
            caller,
            view: export.store.for_client(self.peer.address.into()),
            key: self.key,
            times: self.times,
        })
    }

    /// The object behind a handle, for a procedure that modifies it.
    pub(super) async fn writable(
        &self,
        handle: &FileHandle,
    ) -> Result<Object<'c, S>, Failure<WeakCacheData>> {
        let object = self.object(handle).map_err(untouched)?;
        if object.export.rules.read_only {
            let detail = WeakCacheData {
                before: None,
                after: object.post().await,
            };
            return Err(Failure {
                status: Status::ReadOnly,
                detail,
            });
        }
        Ok(object)
    }

    /// Whether an object that was writable still is, for a call that waited in between.
    pub(super) fn check_writable_again(&self, object: &Object<'_, S>) -> Result<(), Status> {
        let latest = self.latest_exports.borrow();
        if latest.is(self.exports) {
            return Ok(());
        }
        let export = latest.by_id(object.export.id).ok_or(Status::Stale)?;
        let rules = &export.rules;
        if !rules.admits(self.peer.address) || !rules.takes(self.credential) {
            return Err(status::legal(self.procedure, Status::AccessDenied));
        }
        if rules.read_only {
            return Err(Status::ReadOnly);
        }
        if rules.squash(self.credential) != object.caller {
            // What the caller may do was decided for another user. The client calls again.
            return Err(status::legal(self.procedure, Status::Jukebox));
        }
        Ok(())
    }
}

impl<S: Store> Object<'_, S> {
    /// The store, for one operation of this class.
    pub fn store(&self, class: StoreClass) -> Timed<'_, S> {
        self.times.begin(class, self.view())
    }

    fn view(&self) -> &S {
        self.view.as_ref().unwrap_or(&self.export.store)
    }

    /// A handle for another object of the same store.
    pub fn seal(&self, handle: Handle) -> FileHandle {
        self.key.seal(self.export.id.0, handle)
    }

    /// Attributes as the wire has them. The file system's number is that of the export, so that
    /// clients keep exports apart whatever their stores are.
    pub fn attributes(&self, attributes: &Attributes) -> FileAttributes {
        convert::attributes(attributes, self.export.id.0)
    }

    pub fn consistency(&self, consistency: &Consistency) -> WeakCacheData {
        convert::consistency(consistency, self.export.id.0)
    }

    /// The attributes now, if they can be had: what a failure tells.
    pub async fn post(&self) -> PostAttributes {
        self.view()
            .attributes(self.handle)
            .await
            .ok()
            .map(|now| self.attributes(&now))
    }

    pub fn status(&self, error: StoreError) -> Status {
        status::status(self.procedure, error)
    }

    /// A failure that tells the attributes of the object as they are now.
    pub async fn failure<T>(&self, error: StoreError) -> Result<T, Failure<PostAttributes>> {
        let status = self.status(error);
        let detail = if status == Status::Stale {
            None
        } else {
            self.post().await
        };
        Err(Failure { status, detail })
    }

    /// Splits the outcome of a modification into what the wire wants in either case.
    pub async fn modified<T>(
        &self,
        modified: Modified<T>,
    ) -> Result<(T, WeakCacheData), Failure<WeakCacheData>> {
        let mut data = self.consistency(&modified.consistency);
        match modified.result {
            Ok(result) => Ok((result, data)),
            Err(error) => {
                if data.after.is_none() {
                    data.after = self.post().await;
                }
                Err(Failure {
                    status: self.status(error),
                    detail: data,
                })
            }
        }
    }
}

/// A failure that tells no attributes.
pub(super) fn bare<F: Default>(status: Status) -> Failure<F> {
    Failure {
        status,
        detail: F::default(),
    }
}

/// A failure of a modification that tells no attributes.
pub(super) fn untouched(status: Status) -> Failure<WeakCacheData> {
    Failure {
        status,
        detail: WeakCacheData::NONE,
    }
}
