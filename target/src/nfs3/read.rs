//! READ (RFC 1813 section 3.3.6).

use millrace_store::{ReadOutcome, Store};
use millrace_wire::nfs3::{Failure, ReadArguments, ReadOk, ReadResults, Status};
use millrace_wire::xdr::Bulk;

use super::TRANSFER_MAX;
use super::context::{Context, Object, bare};
use crate::call::{Limits, Reply, Shortage};
use crate::store_times::StoreClass;

/// Reply header, status, attributes, count, end of file and length word around the data.
const AROUND_DATA: usize = 24 + 4 + 88 + 4 + 4 + 4;

/// The room that a READ needs beyond what the client offered, if the transport can report that.
/// Otherwise a short answer is better than none.
pub(super) fn shortage<S: Store>(
    context: &Context<'_, S>,
    arguments: &ReadArguments,
    limits: Limits,
) -> Option<Shortage> {
    if !limits.tells_shortage || context.subject().is_err() {
        return None;
    }
    let count = arguments.count.min(TRANSFER_MAX) as usize;
    let short = limits.apart[0].is_some_and(|room| (room as usize) < count);
    short.then_some(Shortage {
        bulk: count,
        ..Shortage::default()
    })
}

/// The data is in `reply`'s slices.
pub(super) async fn read<S: Store>(
    context: &Context<'_, S>,
    arguments: &ReadArguments,
    reply: &mut Reply,
) -> ReadResults<'static> {
    let file = context.subject().map_err(bare)?;
    let count = count(arguments, reply);
    if count == 0 && arguments.count > 0 {
        // Success without data would have the client ask again for ever.
        return Err(Failure {
            status: Status::Invalid,
            detail: file.post().await,
        });
    }
    let (store, offset) = (file.store(StoreClass::Read), arguments.offset);
    match store
        .read(&file.caller, file.handle, offset, count, &mut reply.slices)
        .await
    {
        Ok(outcome) => Ok(results(file, &outcome, reply)),
        Err(error) => {
            reply.slices.clear();
            file.failure(error).await
        }
    }
}

/// The same at once; failures are left to [`read`].
pub(super) fn read_at_once<S: Store>(
    context: &Context<'_, S>,
    arguments: &ReadArguments,
    reply: &mut Reply,
) -> Option<ReadResults<'static>> {
    let file = context.subject().ok()?;
    let (count, offset) = (count(arguments, reply), arguments.offset);
    if (count == 0 && arguments.count > 0) || shortage(context, arguments, reply.limits()).is_some()
    {
        return None;
    }
    let store = file.immediate(StoreClass::Read)?;
    if !store.expects_bytes_of(file.handle) {
        return None;
    }
    let slices = &mut reply.slices;
    let outcome = store.read(&file.caller, file.handle, offset, count, slices)?;
    Some(Ok(results(file, &outcome, reply)))
}

/// The bytes to read. A short answer is always allowed: no more than the transport can carry.
fn count(arguments: &ReadArguments, reply: &Reply) -> u32 {
    let room = u32::try_from(reply.bulk_room(0, AROUND_DATA)).unwrap_or(u32::MAX);
    arguments.count.min(TRANSFER_MAX).min(room)
}

#[inline]
fn results<S: Store>(
    file: &Object<'_, S>,
    outcome: &ReadOutcome,
    reply: &mut Reply,
) -> ReadOk<'static> {
    reply.account.read = outcome.length;
    ReadOk {
        attributes: Some(file.attributes(&outcome.attributes)),
        count: outcome.length,
        eof: outcome.end_of_file,
        data: Bulk::apart(outcome.length),
    }
}
