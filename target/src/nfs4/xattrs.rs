//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 section 8.4).

use millrace_store::{
    Kind, Modified, SetXattrHow, Store, StoreError, XATTR_NAME_MAX, XATTR_VALUE_MAX,
};
use millrace_wire::nfs4::{
    ChangeInfo, ListxattrsOperation, OperationNumber, OperationOutcome, OperationStatus,
    SetxattrOperation, xattr_option,
};
use millrace_wire::xdr::Encode;

use super::compound::CompoundRun;
use super::reply::CompoundReply;
use super::seam::StateSeam;
use super::status;
use super::table::BARE;
use crate::access::ExportedObject;
use crate::store_times::StoreClass;

/// Bytes of a listing without its names: cookie, count, end.
const LISTING: usize = 16;

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// The current object, whose export keeps extended attributes.
    fn with_xattrs(&self) -> OperationOutcome<&ExportedObject<'c, S>> {
        let object = self.object(OperationStatus::NotSupported)?;
        match object.export.store.properties().xattrs {
            true => Ok(object),
            false => Err(OperationStatus::NotSupported),
        }
    }

    /// The status of a failed operation: objects of other kinds have no extended attributes.
    async fn xattr_status(
        &self,
        object: &ExportedObject<'c, S>,
        error: StoreError,
    ) -> OperationStatus {
        if error != StoreError::Invalid {
            return status::status(error);
        }
        match object.view().attributes(object.handle).await {
            Ok(found) if matches!(found.kind, Kind::File | Kind::Directory) => {
                OperationStatus::Invalid
            }
            Ok(_) => OperationStatus::WrongType,
            Err(error) => status::status(error),
        }
    }

    /// GETXATTR.
    pub async fn get_xattr(&self, name: &[u8], reply: &mut CompoundReply<'_>) -> OperationStatus {
        let number = OperationNumber::Getxattr.number();
        let mut value = Vec::new();
        if let Err(status) = self.find_xattr(name, &mut value).await {
            return reply.refuse(number, status);
        }
        reply.reserve(BARE + 8 + value.len()).await;
        reply.push_with(number, |out| {
            OperationStatus::Ok.encode(out)?;
            out.opaque(&value).map(|()| OperationStatus::Ok)
        })
    }

    async fn find_xattr(&self, name: &[u8], value: &mut Vec<u8>) -> OperationOutcome<()> {
        let object = self.with_xattrs()?;
        check_name(name)?;
        let store = self.store(object, StoreClass::Metadata);
        let found = store.xattr(&object.caller, object.handle, name, value);
        match found.await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.xattr_status(object, error).await),
        }
    }

    /// SETXATTR.
    pub async fn set_xattr(
        &self,
        arguments: &SetxattrOperation<'_>,
    ) -> OperationOutcome<ChangeInfo> {
        self.with_xattrs()?;
        let object = self.writable()?;
        let how = match arguments.option {
            xattr_option::EITHER => SetXattrHow::Either,
            xattr_option::CREATE => SetXattrHow::Create,
            xattr_option::REPLACE => SetXattrHow::Replace,
            _ => return Err(OperationStatus::Invalid),
        };
        check_name(arguments.name)?;
        if arguments.value.len() > XATTR_VALUE_MAX {
            return Err(OperationStatus::ExtendedAttributeTooBig);
        }
        let store = self.store(object, StoreClass::Metadata);
        let (name, value) = (arguments.name, arguments.value);
        let done = store.set_xattr(&object.caller, object.handle, name, value, how);
        self.xattr_changed(object, done.await).await
    }

    /// REMOVEXATTR.
    pub async fn remove_xattr(&self, name: &[u8]) -> OperationOutcome<ChangeInfo> {
        self.with_xattrs()?;
        let object = self.writable()?;
        check_name(name)?;
        let store = self.store(object, StoreClass::Metadata);
        let done = store.remove_xattr(&object.caller, object.handle, name);
        self.xattr_changed(object, done.await).await
    }

    async fn xattr_changed(
        &self,
        object: &ExportedObject<'c, S>,
        done: Modified<()>,
    ) -> OperationOutcome<ChangeInfo> {
        match done.result {
            Ok(()) => Ok(self.change_info(object, &done.consistency).await),
            Err(error) => Err(self.xattr_status(object, error).await),
        }
    }

    /// LISTXATTRS. A cookie counts the names before.
    pub async fn list_xattrs(
        &self,
        arguments: ListxattrsOperation,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let number = OperationNumber::Listxattrs.number();
        let mut list = Vec::new();
        if let Err(status) = self.find_xattrs(&mut list).await {
            return reply.refuse(number, status);
        }
        let mut names = list.split_inclusive(|byte| *byte == 0);
        let first = usize::try_from(arguments.cookie).unwrap_or(usize::MAX);
        if first > 0 && names.nth(first - 1).is_none() {
            return reply.refuse(number, OperationStatus::BadCookie);
        }
        let most = arguments.maxcount as usize;
        reply
            .reserve(BARE + most.min(LISTING + 2 * list.len()))
            .await;
        let room = reply.room().saturating_sub(BARE);
        let (mut bytes, mut count, mut eof) = (LISTING, 0, true);
        let rest = names.clone();
        for name in names {
            let longer = bytes + 4 + (name.len() - 1).next_multiple_of(4);
            if longer > most.min(room) {
                eof = false;
                break;
            }
            (bytes, count) = (longer, count + 1);
        }
        if bytes > most || (count == 0 && !eof) {
            let status = match bytes > room || (count == 0 && room < most) {
                true => reply.too_big(BARE + bytes),
                false => OperationStatus::TooSmall,
            };
            return reply.refuse(number, status);
        }
        reply.push_with(number, |out| {
            OperationStatus::Ok.encode(out)?;
            out.u64((first + count) as u64)?;
            out.u32(count as u32)?;
            for name in rest.take(count) {
                out.opaque(&name[..name.len() - 1])?;
            }
            out.bool(eof).map(|()| OperationStatus::Ok)
        })
    }

    async fn find_xattrs(&self, list: &mut Vec<u8>) -> OperationOutcome<()> {
        let object = self.with_xattrs()?;
        let store = self.store(object, StoreClass::Metadata);
        let found = store.xattrs(&object.caller, object.handle, list);
        match found.await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.xattr_status(object, error).await),
        }
    }
}

fn check_name(name: &[u8]) -> OperationOutcome<()> {
    match name.len() {
        0 => Err(OperationStatus::Invalid),
        length if length > XATTR_NAME_MAX => Err(OperationStatus::NameTooLong),
        _ => Ok(()),
    }
}
