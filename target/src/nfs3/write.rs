//! WRITE and COMMIT (RFC 1813 sections 3.3.7 and 3.3.21).

use millrace_store::{Store, Written};
use millrace_wire::nfs3::{
    CommitArguments, CommitOk, CommitResults, Failure, Status, WeakCacheData, WriteArguments,
    WriteOk, WriteResults,
};
use millrace_wire::xdr::Data;

use super::TRANSFER_MAX;
use super::context::Context;
use crate::call::{Bulk, NoBulk, Reply, scatter};
use crate::file_data::{stability, stability_to};
use crate::rpc::program::{ProgramCall, Unserved};
use crate::store_times::StoreClass;

pub(super) async fn write<S: Store, B: Bulk>(
    context: &Context<'_, S>,
    arguments: &WriteArguments<'_>,
    call: &mut ProgramCall<'_, B>,
    reply: &mut Reply,
) -> Result<WriteResults, Unserved> {
    let file = match context.writable().await {
        Ok(file) => file,
        Err(failure) => return Ok(Err(failure)),
    };
    if arguments.count != arguments.data.length {
        let detail = WeakCacheData {
            before: None,
            after: file.post().await,
        };
        return Ok(Err(Failure {
            status: Status::Invalid,
            detail,
        }));
    }
    // Writing less than asked is allowed, and the client goes on from there.
    let (offset, length) = (arguments.offset, arguments.count.min(TRANSFER_MAX));
    let sinks = &mut reply.slices;
    let staged = file
        .store(StoreClass::Write)
        .stage_write(&file.caller, file.handle, offset, length, sinks)
        .await;
    let staged = match staged {
        Ok(staged) => staged,
        Err(error) => {
            sinks.clear();
            let status = file.status(error);
            let detail = WeakCacheData {
                before: None,
                after: file.post().await,
            };
            return Ok(Err(Failure { status, detail }));
        }
    };
    match arguments.data.data {
        Data::Inline(bytes) => scatter(&bytes[..length as usize], sinks),
        Data::Apart(_) if length == 0 => {}
        Data::Apart(position) => call.pull(position, sinks).await?,
    }
    // The data may have been long on its way. The store looks at its own rights again.
    if let Err(status) = context.check_writable_again(file) {
        reply.slices.clear();
        let detail = WeakCacheData {
            before: None,
            after: file.post().await,
        };
        return Ok(Err(Failure { status, detail }));
    }
    let done = file
        .store(StoreClass::Write)
        .commit_write(staged, stability(arguments.stable))
        .await;
    reply.slices.clear();
    Ok(match file.modified(done).await {
        Ok((written, data)) => Ok(results(&written, data, reply)),
        Err(failure) => Err(failure),
    })
}

/// The same at once, of data that is at hand; failures are left to [`write`].
pub(super) fn write_at_once<'c, S: Store>(
    context: &Context<'_, S>,
    arguments: &WriteArguments<'c>,
    call: &ProgramCall<'c, NoBulk>,
    reply: &mut Reply,
) -> Option<WriteResults> {
    let file = context.subject().ok()?;
    if file.export.rules.read_only || arguments.count != arguments.data.length {
        return None;
    }
    let length = arguments.count.min(TRANSFER_MAX) as usize;
    let bytes = call.bytes(arguments.data.data)?.get(..length)?;
    let (caller, offset) = (&file.caller, arguments.offset);
    let store = file.immediate(StoreClass::Write)?;
    let done = store.write(caller, file.handle, offset, bytes)?;
    let data = file.consistency(&done.consistency);
    let written = done.result.ok()?;
    Some(Ok(results(&written, data, reply)))
}

fn results(written: &Written, file: WeakCacheData, reply: &mut Reply) -> WriteOk {
    reply.account.written = written.length;
    WriteOk {
        file,
        count: written.length,
        committed: stability_to(written.stability),
        verifier: written.verifier.0,
    }
}

pub(super) async fn commit<S: Store>(
    context: &Context<'_, S>,
    arguments: &CommitArguments,
) -> CommitResults {
    let file = context.writable().await?;
    // Who may not write has nothing to make durable, and would have the disk work for nothing. A
    // WRITE of no bytes is refused to the same callers.
    let mut none = Vec::new();
    let staged = file
        .export
        .store
        .stage_write(&file.caller, file.handle, 0, 0, &mut none);
    if let Err(error) = staged.await {
        let detail = WeakCacheData {
            before: None,
            after: file.post().await,
        };
        let status = file.status(error);
        return Err(Failure { status, detail });
    }
    let done = file
        .store(StoreClass::Commit)
        .commit(file.handle, arguments.offset, arguments.count)
        .await;
    let (verifier, data) = file.modified(done).await?;
    Ok(CommitOk {
        file: data,
        verifier: verifier.0,
    })
}
