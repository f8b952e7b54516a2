//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).

use millrace_store::{
    Attributes, CreateHow, Handle, Kind, Modified, SetAttributes, SpecialKind, Store, StoreError,
};
use millrace_wire::nfs3::{
    CreateArguments, CreateHow as How, CreateOk, CreateResults, Failure, MkdirArguments,
    MknodArguments, Node, Status, SymlinkArguments, WeakCacheData,
};

use super::context::{Context, Object};
use super::convert::set_attributes;
use crate::interrupted_call::{self, Made};
use crate::store_times::StoreClass;

pub(super) async fn create<S: Store>(
    context: &Context<'_, S>,
    arguments: &CreateArguments<'_>,
) -> CreateResults {
    let directory = context.writable().await?;
    let how = match &arguments.how {
        How::Unchecked(set) => CreateHow::Unchecked(set_attributes(set)),
        How::Guarded(set) => CreateHow::Guarded(set_attributes(set)),
        How::Exclusive(verifier) => CreateHow::Exclusive(*verifier, SetAttributes::default()),
    };
    let (store, name) = (directory.store(StoreClass::Metadata), arguments.entry.name);
    let done = store
        .create(&directory.caller, directory.handle, name, &how)
        .await;
    created(
        context,
        directory,
        name,
        interrupted_call::guarded(&how),
        done,
    )
    .await
}

pub(super) async fn mkdir<S: Store>(
    context: &Context<'_, S>,
    arguments: &MkdirArguments<'_>,
) -> CreateResults {
    let directory = context.writable().await?;
    let set = set_attributes(&arguments.attributes);
    let (store, name) = (directory.store(StoreClass::Metadata), arguments.entry.name);
    let done = store
        .make_directory(&directory.caller, directory.handle, name, &set)
        .await;
    created(
        context,
        directory,
        name,
        Some(Made {
            kind: Kind::Directory,
            set: &set,
            text: None,
        }),
        done,
    )
    .await
}

pub(super) async fn symlink<S: Store>(
    context: &Context<'_, S>,
    arguments: &SymlinkArguments<'_>,
    text: &[u8],
) -> CreateResults {
    let directory = context.writable().await?;
    let set = set_attributes(&arguments.attributes);
    let (store, name) = (directory.store(StoreClass::Metadata), arguments.entry.name);
    let done = store
        .symlink(&directory.caller, directory.handle, name, text, &set)
        .await;
    created(
        context,
        directory,
        name,
        Some(Made {
            kind: Kind::Symlink,
            set: &set,
            text: Some(text),
        }),
        done,
    )
    .await
}

pub(super) async fn mknod<S: Store>(
    context: &Context<'_, S>,
    arguments: &MknodArguments<'_>,
) -> CreateResults {
    let directory = context.writable().await?;
    let (kind, set) = match arguments.node {
        Node::Character(set, device) => (SpecialKind::Character(device.major, device.minor), set),
        Node::Block(set, device) => (SpecialKind::Block(device.major, device.minor), set),
        Node::Socket(set) => (SpecialKind::Socket, set),
        Node::Fifo(set) => (SpecialKind::Fifo, set),
        Node::Other(_) => {
            let detail = WeakCacheData {
                before: None,
                after: directory.post().await,
            };
            return Err(Failure {
                status: Status::BadType,
                detail,
            });
        }
    };
    let set = set_attributes(&set);
    let (store, name) = (directory.store(StoreClass::Metadata), arguments.entry.name);
    let done = store
        .make_node(&directory.caller, directory.handle, name, kind, &set)
        .await;
    created(
        context,
        directory,
        name,
        Some(Made {
            kind: Kind::Special(kind),
            set: &set,
            text: None,
        }),
        done,
    )
    .await
}

/// `made` is the object that an earlier process may have made for the same call, if a second
/// execution fails because it exists.
async fn created<S: Store>(
    context: &Context<'_, S>,
    directory: &Object<'_, S>,
    name: &[u8],
    made: Option<Made<'_>>,
    mut done: Modified<(Handle, Attributes)>,
) -> CreateResults {
    if let (Err(StoreError::Exists), Some(begun), Some(made)) = (&done.result, &context.again, made)
        && let Some(found) = Box::pin(interrupted_call::made(begun, directory, name, &made)).await
    {
        done.result = Ok(found);
        done.consistency.before = None;
    }
    let ((handle, attributes), data) = directory.modified(done).await?;
    Ok(CreateOk {
        object: Some(directory.seal(handle)),
        attributes: Some(directory.attributes(&attributes)),
        directory: data,
    })
}
