//! GETATTR, SETATTR and ACCESS (RFC 1813 sections 3.3.1, 3.3.2 and 3.3.4).

use millrace_store::{AccessMask, Attributes, Store, StoreError};
use millrace_wire::nfs3::{
    AccessArguments, AccessOk, AccessResults, Failure, GetattrResults, SetattrArguments,
    SetattrResults, access as rights,
};

use super::context::{Context, Object, bare};
use super::convert::{set_attributes, time_from};
use crate::interrupted_call;
use crate::store_times::StoreClass;

pub(super) async fn getattr<S: Store>(context: &Context<'_, S>) -> GetattrResults {
    let object = context.subject().map_err(bare)?;
    let store = object.store(StoreClass::Metadata);
    getattr_results(object, store.attributes(object.handle).await)
}

pub(super) fn getattr_at_once<S: Store>(context: &Context<'_, S>) -> Option<GetattrResults> {
    let object = context.subject().ok()?;
    let store = object.immediate(StoreClass::Metadata)?;
    let found = store.attributes(object.handle)?;
    Some(getattr_results(object, Ok(found)))
}

#[inline]
fn getattr_results<S: Store>(
    object: &Object<'_, S>,
    found: Result<Attributes, StoreError>,
) -> GetattrResults {
    match found {
        Ok(attributes) => Ok(object.attributes(&attributes)),
        Err(error) => Err(Failure {
            status: object.status(error),
            detail: (),
        }),
    }
}

pub(super) async fn setattr<S: Store>(
    context: &Context<'_, S>,
    arguments: &SetattrArguments,
) -> SetattrResults {
    let object = context.writable().await?;
    let set = set_attributes(&arguments.attributes);
    let guard = arguments.guard.map(time_from);
    let mut done = object
        .store(StoreClass::Metadata)
        .set_attributes(&object.caller, object.handle, &set, guard)
        .await;
    if let (Err(StoreError::NotSync), Some(begun)) = (&done.result, &context.again)
        && Box::pin(interrupted_call::set(begun, object, &set)).await
    {
        done.result = Ok(());
    }
    object.modified(done).await.map(|((), data)| data)
}

pub(super) async fn access<S: Store>(
    context: &Context<'_, S>,
    arguments: &AccessArguments,
) -> AccessResults {
    let object = context.subject().map_err(bare)?;
    let wanted = wanted(object, arguments);
    let store = object.store(StoreClass::Metadata);
    match store.access(&object.caller, object.handle, wanted).await {
        Ok(found) => Ok(access_results(object, wanted, found)),
        Err(error) => object.failure(error).await,
    }
}

pub(super) fn access_at_once<S: Store>(
    context: &Context<'_, S>,
    arguments: &AccessArguments,
) -> Option<AccessResults> {
    let object = context.subject().ok()?;
    let wanted = wanted(object, arguments);
    let store = object.immediate(StoreClass::Metadata)?;
    let found = store.access(&object.caller, object.handle, wanted)?;
    Some(Ok(access_results(object, wanted, found)))
}

/// The rights that are asked about and may be granted in an export.
fn wanted<S>(object: &Object<'_, S>, arguments: &AccessArguments) -> AccessMask {
    let mut wanted = arguments.access & rights::ALL;
    if object.export.rules.read_only {
        wanted &= !(rights::MODIFY | rights::EXTEND | rights::DELETE);
    }
    AccessMask(wanted)
}

fn access_results<S: Store>(
    object: &Object<'_, S>,
    wanted: AccessMask,
    (granted, attributes): (AccessMask, Attributes),
) -> AccessOk {
    AccessOk {
        attributes: Some(object.attributes(&attributes)),
        access: granted.0 & wanted.0,
    }
}
