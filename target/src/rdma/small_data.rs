//! Little data of calls, fetched before the calls are served. A call that has its data may be served
//! at once, and bytes in the core's cache are copied to their place faster than a call is suspended
//! half-way.

use millrace_mempool::{Buffer, Class};
use millrace_wire::rpcrdma::{Header, ReadChunk};

use super::at_once::immediate_call;
use super::message::are_reduced;
use super::pull::Puller;
use super::{Arrived, ResponderShared};
use crate::call::{Broken, BulkArgument, Serve};

/// Most bytes that are fetched so: a buffer of the smallest class.
const SMALL: usize = Class::Control.size();

/// The only item of a call that is not in its message.
pub struct FetchedItem {
    /// Its position and length.
    pub argument: BulkArgument,
    buffer: Buffer,
}

impl FetchedItem {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.argument.length as usize]
    }
}

/// Fetches the data of a call, if that is worthwhile and needs to wait for nothing else.
///
/// # Errors
/// The data cannot be fetched any more, and the call not be answered.
pub async fn fetch<S: Serve>(
    shared: &ResponderShared<S>,
    call: &Arrived,
) -> Result<Option<FetchedItem>, Broken> {
    let Some((xid, chunk, argument)) = small_item(shared, call) else {
        return Ok(None);
    };
    let Some(buffer) = shared.pool.try_obtain(Class::Control) else {
        return Ok(None);
    };
    let memory = buffer.into_slice(0..argument.length as usize);
    let puller = Puller::new(shared, &call.connection, xid);
    let sinks = std::slice::from_ref(&memory);
    match puller.fetch(chunk, 0, sinks).await {
        // The client is told by the ordinary way.
        Err(Broken) if puller.is_refused() => Ok(None),
        Err(Broken) => Err(Broken),
        Ok(()) => {
            let buffer = memory.try_into_buffer().ok();
            Ok(buffer.map(|buffer| FetchedItem { argument, buffer }))
        }
    }
}

/// The transaction and the chunk of a call that has one small item beside its message.
fn small_item<'a, S: Serve>(
    shared: &ResponderShared<S>,
    call: &'a Arrived,
) -> Option<(u32, ReadChunk<'a>, BulkArgument)> {
    let connection = &call.connection;
    let waits = !connection.answers_at_once() || !shared.remote_access_failures.is_empty();
    if waits || !shared.programs.fetches_small_data() {
        return None;
    }
    let parsed = Header::parse_call(&call.receive[..call.length], &connection.terms().rules);
    let header = parsed.as_ref().ok()?;
    let (lists, message) = immediate_call(shared, header)?;
    let mut chunks = lists.reads.chunks();
    let (Some(chunk), None) = (chunks.next(), chunks.next()) else {
        return None;
    };
    let argument = chunk.taken()?;
    let is_small = (1..=SMALL).contains(&(argument.length as usize));
    // Also false of a chunk that holds the whole message.
    let is_reduced = argument.position > 0 && are_reduced(shared, message, lists);
    (is_small && is_reduced).then_some((header.words.xid, chunk, argument))
}
