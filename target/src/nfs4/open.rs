//! OPEN (RFC 8881 section 18.16): the file is found or made here and the caller's rights are
//! checked; shares, stateids and delegations are those of the state of clients.

use std::sync::Once;

use millrace_store::{
    AccessMask, Attributes, Consistency, CreateHow, Handle, Kind, Modified, Properties,
    SetAttributes, Store, StoreError,
};
use millrace_wire::nfs4::{
    AttributeNumber, Bitmap, ChangeInfo, CreateMode, OpenClaim, OpenDelegation, OpenOperation,
    OpenReply, OperationStatus, StateId, share,
};

use super::attributes::{exclusive_of, settable_of};
use super::compound::CompoundRun;
use super::lookup::FOLDER_NAME_MAX;
use super::owners::OwnerNumbers;
use super::position::FilePosition;
use super::seam::{OpenBasis, OpenRequest, StateSeam};
use super::set::AttributeChanges;
use super::{names, status};
use crate::access::ExportedObject;
use crate::store_times::StoreClass;

/// How often an OPEN that creates looks again when the name comes or goes meanwhile.
const TRIES: usize = 4;

/// All bits that `share_access` may have.
const ACCESS_BITS: u32 = share::BOTH | share::WANT_MASK | share::HINTS;

/// Says once for all exports for whom denials hold.
#[cold]
fn tell_of_denials(export: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(
            export,
            "a client denies others the use of a file that it opens; this holds for clients of \
             version 4 of this server only, not for processes of the host and other servers"
        );
    });
}

/// The file of an OPEN.
struct OpenedFile<'c, S> {
    object: ExportedObject<'c, S>,
    directory: ChangeInfo,
    /// Whether this OPEN has made it.
    is_new: bool,
    /// Attributes that were set, and those that are still to be set once the file is open.
    set: Bitmap,
    pending: Option<AttributeChanges>,
}

/// How a file is created.
enum Creation {
    Unchecked(AttributeChanges),
    Guarded(AttributeChanges),
    Exclusive([u8; 8], AttributeChanges),
}

impl Creation {
    fn read(
        mode: &CreateMode<'_>,
        minor_version: u32,
        properties: &Properties,
        numbers: &OwnerNumbers<'_>,
    ) -> Result<Self, OperationStatus> {
        let settable = settable_of(properties);
        let read = |attributes, allowed| {
            AttributeChanges::read(attributes, allowed, minor_version, numbers)
        };
        Ok(match mode {
            CreateMode::Unchecked(attributes) => Self::Unchecked(read(attributes, &settable)?),
            CreateMode::Guarded(attributes) => Self::Guarded(read(attributes, &settable)?),
            CreateMode::Exclusive(verifier) => {
                Self::Exclusive(*verifier, AttributeChanges::default())
            }
            CreateMode::ExclusiveWithAttributes(create) => Self::Exclusive(
                create.verifier,
                read(&create.attributes, &exclusive_of(properties))?,
            ),
        })
    }
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// OPEN. The file becomes the current one.
    pub async fn open(
        &mut self,
        arguments: &OpenOperation<'_>,
    ) -> Result<OpenReply<'static>, OperationStatus> {
        let (access, deny) = (arguments.access & share::BOTH, arguments.deny);
        if access == 0
            || deny > share::BOTH
            || arguments.access & !ACCESS_BITS != 0
            || arguments.access & share::WANT_MASK > share::WANT_CANCEL
        {
            return Err(OperationStatus::Invalid);
        }
        let basis = match &arguments.claim {
            OpenClaim::Name(_) | OpenClaim::File => OpenBasis::Rights,
            OpenClaim::Previous(kind) => OpenBasis::Reclaim(*kind),
            OpenClaim::DelegatedName(claim) => {
                OpenBasis::Delegation(self.stateid(claim.delegation)?)
            }
            OpenClaim::DelegatedFile(delegation) => {
                OpenBasis::Delegation(self.stateid(*delegation)?)
            }
            OpenClaim::PreviousDelegatedName(_) | OpenClaim::PreviousDelegatedFile => {
                return Err(OperationStatus::NotSupported);
            }
        };
        let session = self.session.as_ref();
        let session = session.ok_or(OperationStatus::OperationNotInSession)?;
        self.seam.check_open(&session.compound, basis).await?;
        let minor_version = self.origin.minor_version;
        let creation = match &arguments.create {
            Some(mode) => {
                let properties = self.current_properties();
                let numbers = match mode {
                    CreateMode::Unchecked(given) | CreateMode::Guarded(given) => {
                        self.owner_numbers(given).await?
                    }
                    CreateMode::ExclusiveWithAttributes(create) => {
                        self.owner_numbers(&create.attributes).await?
                    }
                    CreateMode::Exclusive(_) => OwnerNumbers::default(),
                };
                let creation = Creation::read(mode, minor_version, &properties, &numbers)?;
                Some(creation)
            }
            None => None,
        };
        let file = match &arguments.claim {
            OpenClaim::Name(name) => self.open_name(name, creation.as_ref(), access).await?,
            OpenClaim::DelegatedName(claim) if creation.is_none() => {
                self.open_name(claim.name, None, access).await?
            }
            _ if creation.is_some() => return Err(OperationStatus::Invalid),
            _ => self.open_current(access, basis).await?,
        };
        self.share(arguments, basis, file).await
    }

    /// Reserves the shares of a file that was found or made.
    async fn share(
        &mut self,
        arguments: &OpenOperation<'_>,
        basis: OpenBasis,
        file: OpenedFile<'c, S>,
    ) -> Result<OpenReply<'static>, OperationStatus> {
        let session = self.session.as_ref();
        let session = session.ok_or(OperationStatus::OperationNotInSession)?;
        // It stays readable until it is closed, whoever removes it.
        let held = file.object.view().hold(file.object.handle).await;
        let request = OpenRequest {
            file: Self::identity(&file.object),
            hold: held.map_err(status::status)?,
            access: arguments.access,
            deny: arguments.deny,
            owner: arguments.owner,
            basis,
            is_new: file.is_new,
            truncates: file.pending.is_some(),
            is_sole_server: !file.object.export.store.properties().changes_elsewhere,
            has_leases: file.object.export.store.properties().leases,
            is_lasting: file.object.export.store.outlives_process(),
        };
        let mut grant = self.seam.open(&session.compound, &request).await?;
        if grant.needs_lease {
            let end = self.seam.lease_break(&request.file);
            let lease = Box::pin(file.object.view().lease(file.object.handle, end)).await;
            let lease = lease.unwrap_or_default();
            let granted = self.seam.delegate(&session.compound, &request, lease);
            grant.delegation = Box::pin(granted).await;
        }
        if arguments.deny != 0 && !request.is_sole_server {
            tell_of_denials(&file.object.export.rules.path);
        }
        // Others' denials have been asked by now, so that a file may be truncated.
        let mut set = file.set;
        if let Some(changes) = &file.pending {
            if let Err(error) = self.apply(&file.object, changes).await {
                let compound = &session.compound;
                let undone = self.seam.undo_open(compound, &request.file, grant.open);
                undone.await;
                if let Some(state) = delegated(&grant.delegation) {
                    let file = &request.file;
                    let _ = self.seam.return_delegation(compound, file, state).await;
                }
                return Err(status::status(error));
            }
            set = changes.mask;
        }
        if let OpenDelegation::Write(delegation) = &grant.delegation {
            let found = file.object.view().attributes(file.object.handle).await;
            if let Ok(found) = found {
                let (compound, state) = (&session.compound, delegation.state);
                self.seam
                    .note_delegated_change(compound, state, found.change);
            }
        }
        self.set_current(FilePosition::Object(file.object));
        self.current_state = grant.open;
        Ok(OpenReply {
            open: grant.open,
            directory: file.directory,
            flags: grant.flags,
            attributes_set: set,
            delegation: grant.delegation,
        })
    }

    /// The current file, which is opened by its handle.
    async fn open_current(
        &self,
        access: u32,
        basis: OpenBasis,
    ) -> Result<OpenedFile<'c, S>, OperationStatus> {
        let object = self.object(OperationStatus::IsDirectory)?;
        let found = self
            .store(object, StoreClass::Metadata)
            .attributes(object.handle)
            .await
            .map_err(status::status)?;
        match status::no_file(found.kind) {
            OperationStatus::Ok => {}
            status => return Err(status),
        }
        // Reclaimed opens were checked before.
        if !matches!(basis, OpenBasis::Reclaim(_)) {
            self.check_rights(object, access).await?;
        }
        Ok(OpenedFile {
            object: object.clone(),
            directory: ChangeInfo {
                atomic: true,
                before: found.change,
                after: found.change,
            },
            is_new: false,
            set: Bitmap::EMPTY,
            pending: None,
        })
    }

    /// Finds or makes a file by name.
    async fn open_name(
        &self,
        name: &[u8],
        creation: Option<&Creation>,
        access: u32,
    ) -> Result<OpenedFile<'c, S>, OperationStatus> {
        let directory = match self.position()? {
            FilePosition::Folder(folder) => {
                names::check(name, FOLDER_NAME_MAX)?;
                // All names in it are folders.
                let child = self
                    .tree
                    .child(*folder, name)
                    .filter(|child| self.sees(*child));
                return Err(match (child, creation) {
                    (Some(_), _) => OperationStatus::IsDirectory,
                    (None, Some(_)) => OperationStatus::ReadOnly,
                    (None, None) => OperationStatus::NoEntry,
                });
            }
            position @ FilePosition::Object(_) => {
                self.in_export(position, OperationStatus::IsDirectory)?
            }
        };
        names::check(name, directory.export.store.properties().name_max)?;
        if self.mount_point(directory, name).await.is_some() {
            return Err(OperationStatus::IsDirectory);
        }
        for _ in 0..TRIES {
            let store = self.store(directory, StoreClass::Metadata);
            let before = store
                .attributes(directory.handle)
                .await
                .map_err(status::status)?;
            if let Some(Creation::Exclusive(verifier, changes)) = creation {
                return self
                    .create_exclusive(directory, name, *verifier, changes)
                    .await;
            }
            let found = store
                .lookup(&directory.caller, directory.handle, name)
                .await;
            match (found, creation) {
                (Ok(_), Some(Creation::Guarded(_))) => return Err(OperationStatus::Exists),
                (Ok(found), creation) => {
                    return self
                        .open_existing(directory, &before, found, creation, access)
                        .await;
                }
                (
                    Err(StoreError::NotFound),
                    Some(Creation::Unchecked(changes) | Creation::Guarded(changes)),
                ) => {
                    let done = self
                        .make_file(directory, name, &CreateHow::Guarded(changes.of_new(false)?))
                        .await?;
                    match done.result {
                        // Another one was faster.
                        Err(StoreError::Exists) => {}
                        Err(error) => return Err(status::status(error)),
                        Ok((handle, _)) => {
                            let object = directory.at(handle);
                            let listed = Box::pin(self.apply_list(&object, changes)).await;
                            listed.map_err(status::status)?;
                            return Ok(OpenedFile {
                                object,
                                directory: self.change_info(directory, &done.consistency).await,
                                is_new: true,
                                set: changes.mask,
                                pending: None,
                            });
                        }
                    }
                }
                (Err(StoreError::NotDirectory), _) => {
                    return Err(self.no_directory(directory).await);
                }
                (Err(error), _) => return Err(status::status(error)),
            }
        }
        Err(OperationStatus::Delay)
    }

    async fn make_file(
        &self,
        directory: &ExportedObject<'c, S>,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<Modified<(Handle, Attributes)>, OperationStatus> {
        if directory.export.rules.read_only {
            return Err(OperationStatus::ReadOnly);
        }
        let store = self.store(directory, StoreClass::Metadata);
        let (caller, handle) = (&directory.caller, directory.handle);
        Ok(store.create(caller, handle, name, how).await)
    }

    async fn open_existing(
        &self,
        directory: &ExportedObject<'c, S>,
        before: &Attributes,
        (handle, found): (Handle, Attributes),
        creation: Option<&Creation>,
        access: u32,
    ) -> Result<OpenedFile<'c, S>, OperationStatus> {
        match status::no_file(found.kind) {
            OperationStatus::Ok => {}
            status => return Err(status),
        }
        let object = directory.at(handle);
        self.check_rights(&object, access).await?;
        // Of the attributes for a new file only a size of nothing counts.
        let pending = match creation {
            Some(Creation::Unchecked(changes)) if changes.set.size == Some(0) => {
                self.check_rights(&object, share::WRITE).await?;
                Some(AttributeChanges {
                    set: SetAttributes {
                        size: Some(0),
                        ..SetAttributes::default()
                    },
                    mask: Bitmap::of(&[AttributeNumber::Size]),
                    ..AttributeChanges::default()
                })
            }
            _ => None,
        };
        Ok(OpenedFile {
            object,
            directory: ChangeInfo {
                atomic: true,
                before: before.change,
                after: before.change,
            },
            is_new: false,
            set: Bitmap::EMPTY,
            pending,
        })
    }

    async fn create_exclusive(
        &self,
        directory: &ExportedObject<'c, S>,
        name: &[u8],
        verifier: [u8; 8],
        changes: &AttributeChanges,
    ) -> Result<OpenedFile<'c, S>, OperationStatus> {
        let done = self
            .make_file(
                directory,
                name,
                &CreateHow::Exclusive(verifier, changes.of_new(false)?),
            )
            .await?;
        let (handle, found) = done.result.map_err(status::status)?;
        if found.kind != Kind::File {
            return Err(OperationStatus::Exists);
        }
        let object = directory.at(handle);
        let listed = Box::pin(self.apply_list(&object, changes)).await;
        listed.map_err(status::status)?;
        // Where the verifier may be held, clients are to set the times anew.
        let mut set = changes.mask;
        for times in [AttributeNumber::TimeAccess, AttributeNumber::TimeModify] {
            set.insert(times.number());
        }
        Ok(OpenedFile {
            object,
            directory: self.change_info(directory, &done.consistency).await,
            is_new: is_changed(&done.consistency),
            set,
            pending: None,
        })
    }

    /// Whether the caller may have a file open for this access. Who may execute a file may read it:
    /// clients read programs.
    async fn check_rights(
        &self,
        object: &ExportedObject<'c, S>,
        access: u32,
    ) -> Result<(), OperationStatus> {
        let writes = access & share::WRITE != 0;
        if writes && object.export.rules.read_only {
            return Err(OperationStatus::ReadOnly);
        }
        let mask = AccessMask::READ | AccessMask::EXECUTE | AccessMask::MODIFY;
        let granted = self
            .store(object, StoreClass::Metadata)
            .access(&object.caller, object.handle, AccessMask(mask))
            .await;
        let (granted, _) = granted.map_err(status::status)?;
        let may_read = granted.0 & (AccessMask::READ | AccessMask::EXECUTE) != 0;
        let may_write = granted.0 & AccessMask::MODIFY != 0;
        if (access & share::READ != 0 && !may_read) || (writes && !may_write) {
            return Err(OperationStatus::AccessDenied);
        }
        Ok(())
    }
}

/// The stateid of a delegation.
fn delegated(delegation: &OpenDelegation<'_>) -> Option<StateId> {
    match delegation {
        OpenDelegation::Read(delegation) => Some(delegation.state),
        OpenDelegation::Write(delegation) => Some(delegation.state),
        OpenDelegation::None | OpenDelegation::NoneBecause(_) => None,
    }
}

/// Whether an operation has changed a directory.
fn is_changed(consistency: &Consistency) -> bool {
    match (consistency.before, consistency.after) {
        (Some(before), Some(after)) => before.change != after.change,
        _ => true,
    }
}
