//! GETATTR, SETATTR and ACCESS (RFC 1813 sections 3.3.1, 3.3.2 and 3.3.4).

use millrace_store::{AccessMask, Store, StoreError};
use millrace_wire::nfs3::{
    AccessArguments, AccessOk, AccessResults, Failure, GetattrResults, SetattrArguments,
    SetattrResults, access as rights,
};

use super::context::Context;
use super::context::bare;
use super::convert::{set_attributes, time_from};
use super::interrupted_call;
use crate::store_times::StoreClass;

pub(super) async fn getattr<S: Store>(context: &Context<'_, S>) -> GetattrResults {
    let object = context.subject().map_err(bare)?;
    match object
        .store(StoreClass::Metadata)
        .attributes(object.handle)
        .await
    {
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
    let mut wanted = arguments.access & rights::ALL;
    if object.export.rules.read_only {
        wanted &= !(rights::MODIFY | rights::EXTEND | rights::DELETE);
    }
    match object
        .store(StoreClass::Metadata)
        .access(&object.caller, object.handle, AccessMask(wanted))
        .await
    {
        Ok((granted, attributes)) => Ok(AccessOk {
            attributes: Some(object.attributes(&attributes)),
            access: granted.0 & wanted,
        }),
        Err(error) => object.failure(error).await,
    }
}
