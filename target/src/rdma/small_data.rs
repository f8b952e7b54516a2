//! Little data of calls, fetched before the calls are served. A call that has its data may be served
//! at once, and bytes in the core's cache are copied to their place faster than a call is suspended
//! half-way.

use millrace_mempool::{Buffer, Class, Slice};
use millrace_reactor::fabric::WorkError;
use millrace_wire::rpcrdma::{Header, ReadChunk};
use slab::Slab;

use super::at_once::immediate_call;
use super::message::are_reduced;
use super::pull::read;
use super::{Arrived, Outcome, ResponderShared};
use crate::call::{BulkArgument, Serve};
use crate::rpc::{TasklessCall, TasklessCalls};

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

/// The calls of one reactor whose little data is being fetched. They have no task.
pub struct SmallFetches {
    under_way: Slab<SmallFetch>,
    taskless: TasklessCalls,
    /// The upper half of the token of the next one.
    next_mark: u32,
}

struct SmallFetch {
    call: Arrived,
    xid: u32,
    argument: BulkArgument,
    memory: Slice,
    /// The upper half of its token.
    mark: u32,
    _in_service: TasklessCall,
}

/// The highest bits of the tokens of fetches: neither those of replies nor of tasks.
const MARK: u32 = 0b10 << 30;

/// Whether work requests with this token fetch little data.
pub fn is_fetch(token: u64) -> bool {
    token >> 62 == 0b10
}

impl SmallFetches {
    /// None yet. They are counted in `taskless`.
    pub fn new(taskless: TasklessCalls) -> Self {
        Self {
            under_way: Slab::new(),
            taskless,
            next_mark: MARK,
        }
    }

    /// Begins to fetch the data of a call. Returns the call if it has no such data, or if that would
    /// have to wait for something.
    pub fn begin<S: Serve>(
        &mut self,
        shared: &ResponderShared<S>,
        call: Arrived,
    ) -> Option<Arrived> {
        if call.fetched.is_some() {
            return Some(call);
        }
        let Some((xid, chunk, argument)) = small_item(shared, &call) else {
            return Some(call);
        };
        let connection = &call.connection;
        let charging = shared.flow.charging(connection.memory());
        let buffer = shared.pool.try_obtain(Class::Control);
        drop(charging);
        let Some(buffer) = buffer else {
            return Some(call);
        };
        let memory = buffer.into_slice(0..argument.length as usize);
        let mut chain = shared.chain();
        let sinks = std::slice::from_ref(&memory);
        read(connection, (chunk, 0), sinks, &mut chain);
        let mark = self.next_mark;
        let place = self.under_way.vacant_entry();
        let token = u64::from(mark) << 32 | place.key() as u64;
        for request in &mut chain {
            request.token = token;
        }
        if let Some(last) = chain.last_mut() {
            last.signalled = true;
        }
        let posted = connection.try_post(shared, &mut chain);
        shared.recycle_chain(chain);
        if posted.is_err() {
            return Some(call);
        }
        self.next_mark = MARK | (mark + 1) & !(0b11 << 30);
        place.insert(SmallFetch {
            _in_service: self.taskless.enter(connection.identity()),
            call,
            xid,
            argument,
            memory,
            mark,
        });
        None
    }

    /// Ends a fetch. Returns its call, which can be served now; `None` if it cannot be answered any
    /// more.
    pub fn complete<S: Serve>(
        &mut self,
        shared: &ResponderShared<S>,
        token: u64,
        outcome: Outcome,
    ) -> Option<Arrived> {
        let (mark, index) = ((token >> 32) as u32, token as u32 as usize);
        self.under_way.get(index).filter(|one| one.mark == mark)?;
        let SmallFetch {
            mut call,
            xid,
            argument,
            memory,
            ..
        } = self.under_way.remove(index);
        let connection = &call.connection;
        match outcome {
            Ok(()) => {
                let length = u64::from(argument.length);
                connection.counters().read_bytes.add(length);
                shared.counters.read_bytes.add(length);
                let buffer = memory.try_into_buffer().ok();
                call.fetched = buffer.map(|buffer| FetchedItem { argument, buffer });
            }
            // The client is told by the task of the call.
            Err(WorkError::NoReads) => {}
            Err(error) => {
                if error == WorkError::RemoteAccess {
                    let client = connection.peer().address;
                    shared.remote_access_failures.remember(client, xid);
                }
                connection.repost(shared, call.receive);
                return None;
            }
        }
        Some(call)
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
