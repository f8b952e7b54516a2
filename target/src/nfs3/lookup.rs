//! LOOKUP and READLINK (RFC 1813 sections 3.3.3 and 3.3.5).

use millrace_mempool::Class;
use millrace_store::{Attributes, Handle, Store};
use millrace_wire::nfs3::{
    EntryArguments, Failure, LookupOk, LookupResults, PostAttributes, ReadlinkOk, ReadlinkResults,
    Status,
};
use millrace_wire::xdr::Bulk;

use super::context::{Context, Object, bare};
use crate::call::Reply;
use crate::store_times::StoreClass;

pub(super) async fn lookup<S: Store>(
    context: &Context<'_, S>,
    arguments: &EntryArguments<'_>,
) -> LookupResults {
    let directory = context.subject().map_err(bare)?;
    let store = directory.store(StoreClass::Metadata);
    match store
        .lookup(&directory.caller, directory.handle, arguments.name)
        .await
    {
        Ok(found) => Ok(lookup_results(directory, found, directory.post().await)),
        Err(error) => directory.failure(error).await,
    }
}

pub(super) fn lookup_at_once<S: Store>(
    context: &Context<'_, S>,
    arguments: &EntryArguments<'_>,
) -> Option<LookupResults> {
    let directory = context.subject().ok()?;
    let store = directory.immediate(StoreClass::Metadata)?;
    let found = store.lookup(&directory.caller, directory.handle, arguments.name);
    let post = store.attributes(directory.handle);
    let post = post.map(|now| directory.attributes(&now));
    Some(Ok(lookup_results(directory, found?, post)))
}

fn lookup_results<S: Store>(
    directory: &Object<'_, S>,
    (handle, attributes): (Handle, Attributes),
    post: PostAttributes,
) -> LookupOk {
    LookupOk {
        object: directory.seal(handle),
        attributes: Some(directory.attributes(&attributes)),
        directory: post,
    }
}

/// The text is in `reply`'s slices.
pub(super) async fn readlink<S: Store>(
    context: &Context<'_, S>,
    reply: &mut Reply,
) -> ReadlinkResults<'static> {
    let link = context.subject().map_err(bare)?;
    let mut text = Vec::new();
    let attributes = match link
        .store(StoreClass::Metadata)
        .read_link(&link.caller, link.handle, &mut text)
        .await
    {
        Ok(attributes) => Some(link.attributes(&attributes)),
        Err(error) => return link.failure(error).await,
    };
    let length = u32::try_from(text.len()).ok();
    let Some(length) = length.filter(|_| text.len() <= Class::Large.size()) else {
        return Err(Failure {
            status: Status::ServerFault,
            detail: attributes,
        });
    };
    // A text cannot be shortened: if it does not fit, the answer is too large.
    if length > 0 {
        let Ok(mut buffer) = reply.pool().obtain_another(text.len()).await else {
            return Err(Failure {
                status: Status::Jukebox,
                detail: attributes,
            });
        };
        buffer[..text.len()].copy_from_slice(&text);
        reply.slices.push(buffer.into_slice(0..text.len()));
    }
    Ok(ReadlinkOk {
        attributes,
        text: Bulk::apart(length),
    })
}
