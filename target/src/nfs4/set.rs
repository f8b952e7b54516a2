//! Attributes to set: SETATTR (RFC 8881 section 18.30), and what CREATE and OPEN begin with.

use millrace_gss::AccountKind;
use millrace_store::{Kind, SetAttributes, SetTime, Store, StoreError, Time};
use millrace_wire::nfs4::{
    Attributes, Bitmap, MaskedMode, OperationStatus, SetattrOperation, SetattrReply,
    SettableAttributes, TimeToSet,
};

use super::acl::GivenAcl;
use super::attributes::{OF_LISTS, check_set, settable_of};
use super::compound::CompoundRun;
use super::owners::OwnerNumbers;
use super::seam::{StateIdUse, StateSeam};
use super::status;
use crate::access::ExportedObject;
use crate::store_times::StoreClass;

/// All bits of a mode.
const MODE_BITS: u32 = 0o7777;

/// How often a change of some bits of the mode is retried when the object changes meanwhile.
const TRIES: usize = 8;

/// What to set, as the store has it.
#[derive(Clone, Debug, Default)]
pub(super) struct AttributeChanges {
    pub set: SetAttributes,
    /// Some bits of the mode, which depend on those that are there.
    pub masked: Option<MaskedMode>,
    /// The access control list.
    pub acl: Option<GivenAcl>,
    /// Which attributes that are.
    pub mask: Bitmap,
}

impl AttributeChanges {
    /// Reads what may be set, of which `allowed` is. `numbers` are those of the names in it.
    pub fn read(
        attributes: &Attributes<'_>,
        allowed: &Bitmap,
        minor_version: u32,
        numbers: &OwnerNumbers<'_>,
    ) -> Result<Self, OperationStatus> {
        check_set(&attributes.mask, allowed, minor_version)?;
        let values = SettableAttributes::decode(attributes).map_err(|_| OperationStatus::BadXdr)?;
        let modes = [
            values.mode,
            values.masked_mode.map(|mode| mode.value | mode.mask),
        ];
        let is_wide = modes.iter().flatten().any(|mode| mode & !MODE_BITS != 0);
        if is_wide || (values.mode.is_some() && values.masked_mode.is_some()) {
            return Err(OperationStatus::Invalid);
        }
        let number = |kind, text: Option<&[u8]>| {
            let number = text.map(|text| numbers.parse(kind, text));
            number.transpose()
        };
        Ok(Self {
            set: SetAttributes {
                mode: values.mode,
                uid: number(AccountKind::User, values.owner)?,
                gid: number(AccountKind::Group, values.group)?,
                size: values.size,
                accessed: time(values.accessed)?,
                modified: time(values.modified)?,
            },
            masked: values.masked_mode,
            acl: (values.acl.as_ref())
                .map(|list| GivenAcl::read(list, numbers))
                .transpose()?,
            mask: attributes.mask,
        })
    }

    /// The changes to a new object. Until it has its access control list, its mode gives nobody
    /// more than that.
    pub fn of_new(&self, is_directory: bool) -> Result<SetAttributes, OperationStatus> {
        let masked = self.masked.map(|mode| mode.value & mode.mask);
        let mode = self.set.mode.or(masked);
        let mode = match &self.acl {
            Some(acl) => {
                let least = acl.lists(is_directory)?.access.least_mode();
                Some(mode.map_or(least, |mode| mode & (least | !0o777)))
            }
            None => mode,
        };
        Ok(SetAttributes { mode, ..self.set })
    }
}

fn time(set: Option<TimeToSet>) -> Result<SetTime, OperationStatus> {
    Ok(match set {
        None => SetTime::Keep,
        Some(TimeToSet::Server) => SetTime::Now,
        Some(TimeToSet::Client(time)) if time.nanoseconds > 999_999_999 => {
            return Err(OperationStatus::Invalid);
        }
        // Stores have no times before 1970.
        Some(TimeToSet::Client(time)) => SetTime::To(Time {
            seconds: u64::try_from(time.seconds).map_err(|_| OperationStatus::Invalid)?,
            nanoseconds: time.nanoseconds,
        }),
    })
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// SETATTR.
    pub async fn set_attributes(&self, arguments: &SetattrOperation<'_>) -> SetattrReply {
        match self.try_set_attributes(arguments).await {
            Ok(set) => SetattrReply {
                status: OperationStatus::Ok,
                set,
            },
            Err(status) => SetattrReply {
                status,
                set: Bitmap::EMPTY,
            },
        }
    }

    async fn try_set_attributes(
        &self,
        arguments: &SetattrOperation<'_>,
    ) -> Result<Bitmap, OperationStatus> {
        let minor_version = self.origin.minor_version;
        let object = self.writable()?;
        let allowed = settable_of(&object.export.store.properties());
        let given = &arguments.attributes;
        let numbers = self.owner_numbers(given).await?;
        let changes = AttributeChanges::read(given, &allowed, minor_version, &numbers)?;
        let state = self.stateid(arguments.state)?;
        let kind = match changes.set.size {
            Some(_) => StateIdUse::Resize,
            None => StateIdUse::SetAttributes,
        };
        let _guard = self.begin_io(object, state, kind).await?;
        let set = self.apply(object, &changes).await;
        match set {
            Ok(()) => Ok(changes.mask),
            // A size is for files only.
            Err(StoreError::IsDirectory | StoreError::Invalid) if changes.set.size.is_some() => {
                Err(self.no_file(object, OperationStatus::Invalid).await)
            }
            Err(error) => Err(status::status(error)),
        }
    }

    /// Why an object is no regular file; `otherwise` if it is one.
    pub async fn no_file(
        &self,
        object: &ExportedObject<'c, S>,
        otherwise: OperationStatus,
    ) -> OperationStatus {
        match object.view().attributes(object.handle).await {
            Ok(found) => match status::no_file(found.kind) {
                OperationStatus::Ok => otherwise,
                status => status,
            },
            Err(error) => status::status(error),
        }
    }

    /// Makes changes of attributes: all of them or none.
    pub async fn apply(
        &self,
        object: &ExportedObject<'c, S>,
        changes: &AttributeChanges,
    ) -> Result<(), StoreError> {
        let is_list_alone = changes.mask.without(&OF_LISTS).is_empty();
        if changes.acl.is_none() || !is_list_alone {
            self.apply_plain(object, changes).await?;
        }
        // The list follows the mode (RFC 8881 section 6.4.1.3).
        Box::pin(self.apply_list(object, changes)).await
    }

    /// Sets the access control list, if that is to be set.
    pub async fn apply_list(
        &self,
        object: &ExportedObject<'c, S>,
        changes: &AttributeChanges,
    ) -> Result<(), StoreError> {
        let Some(acl) = &changes.acl else {
            return Ok(());
        };
        let store = self.store(object, StoreClass::Metadata);
        let found = store.attributes(object.handle).await?;
        let lists = acl.lists(found.kind == Kind::Directory);
        let lists = lists.map_err(|_| StoreError::Invalid)?;
        let (caller, handle) = (&object.caller, object.handle);
        let done = store.set_access_lists(caller, handle, &lists).await;
        done.result
    }

    async fn apply_plain(
        &self,
        object: &ExportedObject<'c, S>,
        changes: &AttributeChanges,
    ) -> Result<(), StoreError> {
        let store = self.store(object, StoreClass::Metadata);
        let (caller, handle) = (&object.caller, object.handle);
        let Some(masked) = changes.masked else {
            let done = store.set_attributes(caller, handle, &changes.set, None);
            return done.await.result;
        };
        let mut set = changes.set;
        for _ in 0..TRIES {
            let found = store.attributes(handle).await?;
            set.mode = Some((found.mode & !masked.mask) | (masked.value & masked.mask));
            let guard = Some(found.changed);
            let done = store.set_attributes(caller, handle, &set, guard).await;
            if done.result != Err(StoreError::NotSync) {
                return done.result;
            }
        }
        Err(StoreError::Delay)
    }

    /// Checks a stateid for an operation on the data or the attributes of an object, which goes on
    /// until the guard is dropped.
    pub async fn begin_io(
        &self,
        object: &ExportedObject<'c, S>,
        state: millrace_wire::nfs4::StateId,
        kind: StateIdUse,
    ) -> Result<H::IoGuard, OperationStatus> {
        let session = self.session.as_ref();
        let session = session.ok_or(OperationStatus::OperationNotInSession)?;
        let file = Self::identity(object);
        self.seam
            .begin_io(&session.compound, &file, state, kind)
            .await
    }
}
