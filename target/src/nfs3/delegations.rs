//! Delegations of clients of other versions that a call conflicts with: they are recalled, and the
//! call is to be repeated.

use millrace_store::{Handle, Store};
use millrace_wire::nfs3::{CreateHow, EntryArguments, Status};

use super::arguments::Arguments;
use super::context::{Context, Object};
use crate::state::{DelegationGate, FileKey, FileUse};
use crate::store_times::StoreClass;

/// Makes sure that nothing that a call uses is delegated in a way that conflicts with it.
pub(super) async fn settle<S: Store>(
    context: &Context<'_, S>,
    arguments: &Arguments<'_>,
    gate: &DelegationGate,
) -> Result<(), Status> {
    let Ok(subject) = context.subject() else {
        return Ok(());
    };
    let check = async |object: Handle, file_use| {
        let file = FileKey {
            export: subject.export.id.0,
            object,
        };
        let checked = gate.check(None, &file, file_use).await;
        checked.map_err(|_| Status::Jukebox)
    };
    let check_name =
        async |directory: Handle, name: &[u8]| match find(subject, directory, name).await {
            Some(object) => check(object, FileUse::Change).await,
            None => Ok(()),
        };
    match arguments {
        Arguments::Read(_) => check(subject.handle, FileUse::Read).await,
        Arguments::Write(_) | Arguments::Setattr(_) | Arguments::Link(_) => {
            check(subject.handle, FileUse::Change).await
        }
        Arguments::Remove(EntryArguments { name, .. }) => check_name(subject.handle, name).await,
        // An existing file may be truncated.
        Arguments::Create(create) if !matches!(create.how, CreateHow::Exclusive(_)) => {
            check_name(subject.handle, create.entry.name).await
        }
        Arguments::Rename(rename) => {
            check_name(subject.handle, rename.from.name).await?;
            let found = context.access.find(rename.to.directory.as_bytes());
            match found.and_then(|found| context.access.object(found)) {
                Ok(to) if to.export.id == subject.export.id => {
                    check_name(to.handle, rename.to.name).await
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// The object of a name. One that cannot be found is left to the call.
async fn find<S: Store>(subject: &Object<'_, S>, directory: Handle, name: &[u8]) -> Option<Handle> {
    let store = subject.store(StoreClass::Metadata);
    let found = store.lookup(&subject.caller, directory, name).await;
    found.ok().map(|(object, _)| object)
}
