//! What one call works with: the objects behind its handles, and its failures.

use std::cell::Cell;
use std::ops::Deref;

use millrace_store::{Attributes, Consistency, Handle, Immediate, Modified, Store, StoreError};
use millrace_wire::nfs3::{
    Failure, FileAttributes, FileHandle, PostAttributes, Procedure, Status, WeakCacheData,
};

use super::{convert, status};
use crate::access::{Access, AccessError, ExportedObject};
use crate::exports::Export;
use crate::replay::InterruptedCall;
use crate::store_times::{StoreClass, StoreTimes, Timed};

/// One call of a procedure.
pub(crate) struct Context<'c, S> {
    pub procedure: Procedure,
    pub access: Access<'c, S>,
    pub times: &'c StoreTimes,
    /// The export of the first object that the call is for, if it has one.
    pub export: Option<&'c Export<S>>,
    /// That object.
    pub subject: Result<Object<'c, S>, Status>,
    /// The known facts about the call if an earlier process may have executed it.
    pub again: Option<InterruptedCall>,
    /// Whether an export did not admit the client, or not with this security.
    pub turned_away: Cell<bool>,
}

/// An object that a call may use.
pub(super) struct Object<'c, S> {
    pub procedure: Procedure,
    object: ExportedObject<'c, S>,
    times: &'c StoreTimes,
}

impl<'c, S> Deref for Object<'c, S> {
    type Target = ExportedObject<'c, S>;

    fn deref(&self) -> &Self::Target {
        &self.object
    }
}

impl<'c, S: Store> Context<'c, S> {
    /// The context of a call that is for the object behind `handle` first.
    #[inline]
    pub(super) fn new(
        procedure: Procedure,
        access: Access<'c, S>,
        times: &'c StoreTimes,
        handle: &FileHandle,
    ) -> Self {
        let turned_away = Cell::new(false);
        let found = access.find(handle.as_bytes());
        let export = found.ok().map(|(export, _)| export);
        let mut object = found.and_then(|found| access.object(found));
        if let (Err(AccessError::NotAdmitted), Ok(found)) = (&object, found)
            && matches!(procedure, Procedure::Getattr | Procedure::Fsinfo)
        {
            object = access.root(found);
        }
        let subject = match object {
            Ok(object) => Ok(Object {
                procedure,
                object,
                times,
            }),
            Err(error) => Err(status_of(procedure, error, &turned_away)),
        };
        Self {
            procedure,
            access,
            times,
            export,
            subject,
            again: None,
            turned_away,
        }
    }

    fn refused(&self, error: AccessError) -> Status {
        status_of(self.procedure, error, &self.turned_away)
    }

    /// The object that the call is for first.
    pub(super) fn subject(&self) -> Result<&Object<'c, S>, Status> {
        self.subject.as_ref().map_err(|status| *status)
    }

    /// The same, for a procedure that modifies it.
    pub(super) async fn writable(&self) -> Result<&Object<'c, S>, Failure<WeakCacheData>> {
        let object = self.subject().map_err(untouched)?;
        object.check_writable().await?;
        Ok(object)
    }

    /// Another object, which the procedure modifies too.
    pub(super) async fn other_writable(
        &self,
        handle: &FileHandle,
    ) -> Result<Object<'c, S>, Failure<WeakCacheData>> {
        let found = self.access.find(handle.as_bytes());
        let object = found.and_then(|found| self.access.object(found));
        let object = Object {
            procedure: self.procedure,
            object: object.map_err(|error| untouched(self.refused(error)))?,
            times: self.times,
        };
        object.check_writable().await?;
        Ok(object)
    }

    /// Whether an object that was writable still is, for a call that waited in between.
    pub(super) fn check_writable_again(&self, object: &Object<'_, S>) -> Result<(), Status> {
        let checked = self.access.check_writable_again(object);
        checked.map_err(|error| self.refused(error))
    }
}

impl<S: Store> Object<'_, S> {
    async fn check_writable(&self) -> Result<(), Failure<WeakCacheData>> {
        if self.export.rules.read_only {
            return Err(Failure {
                status: Status::ReadOnly,
                detail: WeakCacheData {
                    before: None,
                    after: self.post().await,
                },
            });
        }
        Ok(())
    }

    /// The store, for one operation of this class.
    pub fn store(&self, class: StoreClass) -> Timed<'_, &S> {
        self.times.begin(class, self.view())
    }

    /// The same, if it carries out operations at once.
    #[inline]
    pub fn immediate(&self, class: StoreClass) -> Option<Timed<'_, Immediate<'_>>> {
        let store = self.view().immediate()?;
        Some(self.times.begin(class, store))
    }

    /// A handle for another object of the same store.
    pub fn seal(&self, handle: Handle) -> FileHandle {
        self.key.seal(self.export.id.0, handle)
    }

    /// Attributes in wire format. The export's number serves as the file system's, so that clients
    /// distinguish exports of any stores.
    pub fn attributes(&self, attributes: &Attributes) -> FileAttributes {
        convert::attributes(attributes, self.export.id.0)
    }

    pub fn consistency(&self, consistency: &Consistency) -> WeakCacheData {
        convert::consistency(consistency, self.export.id.0)
    }

    /// The current attributes, if they are available, for the results of failures.
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

    /// A failure with the current attributes of the object.
    pub async fn failure<T>(&self, error: StoreError) -> Result<T, Failure<PostAttributes>> {
        let status = self.status(error);
        let detail = if status == Status::Stale {
            None
        } else {
            self.post().await
        };
        Err(Failure { status, detail })
    }

    /// Converts the outcome of a modification into the results of success or failure.
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

/// The status of a call that may not use its object.
#[cold]
fn status_of(procedure: Procedure, error: AccessError, turned_away: &Cell<bool>) -> Status {
    let status = match error {
        AccessError::BadHandle => Status::BadHandle,
        AccessError::Stale => Status::Stale,
        AccessError::ReadOnly => Status::ReadOnly,
        // The client calls again.
        AccessError::OtherCaller => Status::Jukebox,
        AccessError::NotAdmitted => {
            turned_away.set(true);
            Status::AccessDenied
        }
    };
    // Few procedures may answer `NFS3ERR_ACCES`, GETATTR not among them.
    status::legal(procedure, status)
}

/// A failure without attributes.
pub(super) fn bare<F: Default>(status: Status) -> Failure<F> {
    Failure {
        status,
        detail: F::default(),
    }
}

/// A failure of a modification, without attributes.
pub(super) fn untouched(status: Status) -> Failure<WeakCacheData> {
    Failure {
        status,
        detail: WeakCacheData::NONE,
    }
}
