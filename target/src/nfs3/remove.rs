//! REMOVE, RMDIR, RENAME and LINK (RFC 1813 sections 3.3.12 to 3.3.15).

use millrace_store::{Consistency, Modified, Renamed, Store, StoreError};
use millrace_wire::nfs3::{
    EntryArguments, Failure, LinkArguments, LinkObjects, LinkResults, Procedure, RemoveResults,
    RenameArguments, RenameDirectories, RenameResults, Status, WeakCacheData,
};

use super::context::{Context, Object};
use crate::interrupted_call::{self, Verdict};
use crate::replay::InterruptedCall;
use crate::store_times::StoreClass;

/// REMOVE or RMDIR.
pub(super) async fn remove<S: Store>(
    context: &Context<'_, S>,
    arguments: &EntryArguments<'_>,
) -> RemoveResults {
    let directory = context.writable().await?;
    if let Some(begun) = &context.again
        && let Some(done) = Box::pin(removed_before(begun, directory, arguments.name)).await
    {
        return directory.modified(done).await.map(|((), data)| data);
    }
    let store = directory.store(StoreClass::Metadata);
    let (caller, handle, name) = (&directory.caller, directory.handle, arguments.name);
    let done = match context.procedure {
        Procedure::Rmdir => store.remove_directory(caller, handle, name).await,
        _ => store.remove(caller, handle, name).await,
    };
    directory.modified(done).await.map(|((), data)| data)
}

/// The outcome of a removal that is not to be executed, as an earlier process may have done so.
async fn removed_before<S: Store>(
    again: &InterruptedCall,
    directory: &Object<'_, S>,
    name: &[u8],
) -> Option<Modified<()>> {
    let result = match interrupted_call::removed(again, directory, name).await {
        Verdict::Execute => return None,
        Verdict::Executed => Ok(()),
        Verdict::Refuse(error) => Err(error),
    };
    Some(Modified {
        consistency: now(directory).await,
        result,
    })
}

/// The consistency data of a directory that is not changed.
async fn now<S: Store>(directory: &Object<'_, S>) -> Consistency {
    let store = directory.store(StoreClass::Metadata);
    Consistency {
        before: None,
        after: store.attributes(directory.handle).await.ok(),
    }
}

pub(super) async fn rename<S: Store>(
    context: &Context<'_, S>,
    arguments: &RenameArguments<'_>,
) -> RenameResults {
    let fail = |status, from, to| Failure {
        status,
        detail: RenameDirectories { from, to },
    };
    let from = match context.writable().await {
        Ok(from) => from,
        Err(failure) => return Err(fail(failure.status, failure.detail, WeakCacheData::NONE)),
    };
    let to = match context.other_writable(&arguments.to.directory).await {
        Ok(to) => to,
        Err(failure) => return Err(fail(failure.status, WeakCacheData::NONE, failure.detail)),
    };
    if from.export.id != to.export.id {
        let after = |after| WeakCacheData {
            before: None,
            after,
        };
        let (from, to) = (from.post().await, to.post().await);
        return Err(fail(Status::CrossDevice, after(from), after(to)));
    }
    let names = (arguments.from.name, arguments.to.name);
    let verdict = match &context.again {
        Some(begun) => {
            Box::pin(interrupted_call::renamed(
                begun,
                (&**from, names.0),
                (&*to, names.1),
            ))
            .await
        }
        None => Verdict::Execute,
    };
    let done = match verdict {
        Verdict::Execute => {
            let (old, new) = ((from.handle, names.0), (to.handle, names.1));
            let store = from.store(StoreClass::Metadata);
            store.rename(&from.caller, old, new).await
        }
        known => Renamed {
            from: now(from).await,
            to: now(&to).await,
            result: match known {
                Verdict::Refuse(error) => Err(error),
                _ => Ok(()),
            },
        },
    };
    let mut data = RenameDirectories {
        from: from.consistency(&done.from),
        to: to.consistency(&done.to),
    };
    match done.result {
        Ok(()) => Ok(data),
        Err(error) => {
            if data.from.after.is_none() {
                data.from.after = from.post().await;
            }
            if data.to.after.is_none() {
                data.to.after = to.post().await;
            }
            Err(Failure {
                status: from.status(error),
                detail: data,
            })
        }
    }
}

pub(super) async fn link<S: Store>(
    context: &Context<'_, S>,
    arguments: &LinkArguments<'_>,
) -> LinkResults {
    let fail = |status, attributes, directory| Failure {
        status,
        detail: LinkObjects {
            attributes,
            directory,
        },
    };
    let object = match context.writable().await {
        Ok(object) => object,
        Err(failure) => {
            return Err(fail(
                failure.status,
                failure.detail.after,
                WeakCacheData::NONE,
            ));
        }
    };
    let directory = match context.other_writable(&arguments.entry.directory).await {
        Ok(directory) => directory,
        Err(failure) => return Err(fail(failure.status, object.post().await, failure.detail)),
    };
    if object.export.id != directory.export.id {
        let after = WeakCacheData {
            before: None,
            after: directory.post().await,
        };
        return Err(fail(Status::CrossDevice, object.post().await, after));
    }
    let mut done = directory
        .store(StoreClass::Metadata)
        .link(
            &directory.caller,
            object.handle,
            directory.handle,
            arguments.entry.name,
        )
        .await;
    if let (Err(StoreError::Exists), Some(begun)) = (&done.result, &context.again)
        && Box::pin(interrupted_call::linked(
            begun,
            object,
            &directory,
            arguments.entry.name,
        ))
        .await
    {
        done.directory = now(&directory).await;
        done.object = now(object).await.after;
        done.result = Ok(());
    }
    let mut data = LinkObjects {
        attributes: done.object.map(|attributes| object.attributes(&attributes)),
        directory: directory.consistency(&done.directory),
    };
    match done.result {
        Ok(()) => Ok(data),
        Err(error) => {
            if data.attributes.is_none() {
                data.attributes = object.post().await;
            }
            if data.directory.after.is_none() {
                data.directory.after = directory.post().await;
            }
            Err(Failure {
                status: object.status(error),
                detail: data,
            })
        }
    }
}
