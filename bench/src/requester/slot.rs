//! The calls in a connection's hands.

use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Slice};
use millrace_reactor::fabric::Key;
use millrace_wire::xdr::{Taken, round_up};

use super::call::CallError;
use super::gss::CallProtection;
use super::plan::{Extent, HEADER_MAX, ITEMS_MAX, Shape};

/// Where the RPC message begins in its buffer: the header goes before it.
pub const START: usize = HEADER_MAX;

/// Which memory a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A read chunk.
    Read,
    /// The write chunk of this index.
    Write(usize),
    /// The reply chunk.
    Reply,
}

/// A segment as it was offered: our own copy, by which replies are judged (RFC 5666 section 3.6).
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    pub key: Key,
    pub length: u32,
    pub purpose: Purpose,
    /// The key's end was asked for.
    pub asked: bool,
    /// The key is dead.
    pub revoked: bool,
}

/// The owner's view of a call's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// It waits for the completion.
    #[default]
    Waits,
    /// It has given up, and is notified when its memory is inaccessible to the server.
    Leaves(CallError),
    /// It has been told, while the reply is still owed.
    Told,
}

/// The progress of a call.
#[derive(Debug, Default)]
pub enum Stage {
    /// The slot is free.
    #[default]
    Free,
    /// It waits for credits.
    Queued,
    /// Its reply is awaited.
    Sent,
    /// A reply with read chunks is here, in a message of so many bytes; no RDMA Read was posted.
    Arrived(Buffer, usize),
    /// RDMA Reads of the reply's chunks are underway.
    Fetching(Ending),
    /// Its reply is here, and keys are still dying.
    Ending(Ending),
}

/// What came of a call.
#[derive(Debug)]
pub enum Ending {
    /// A reply in a receive buffer, the message standing at this range.
    Inline(Buffer, usize, usize),
    /// A reply of so many bytes in the reply chunk.
    Long(usize),
    /// A reply of so many bytes that was fetched into memory of ours.
    Gathered(usize),
    /// No reply.
    Failed(CallError),
    /// An error that asks for more room: the call goes out once more.
    Again,
}

/// One call.
#[derive(Debug, Default)]
pub struct CallSlot {
    pub xid: u32,
    pub token: u64,
    pub sequence: u64,
    pub deadline: Option<Instant>,
    pub stage: Stage,
    /// The owner's view of the end.
    pub owner: Owner,
    /// The buffer with the RPC message, room for a header before it.
    pub message: Option<Slice>,
    /// Bytes of the RPC message without its items.
    pub length: usize,
    pub items: ArrayVec<Taken, ITEMS_MAX>,
    /// What signs and protects the message, if it has a security context.
    pub protection: Option<CallProtection>,
    /// Slices of the items, in order; `shape` tells how many belong to each.
    pub data: Vec<Slice>,
    /// Slices of the sinks, in order.
    pub room: Vec<Slice>,
    pub shape: Shape,
    pub offers: Vec<Offered>,
    /// The key that the reply may invalidate, zero for none.
    pub nominated: u32,
    /// Lengths of the reply chunk's segments in the second try.
    pub reply_room: Vec<u32>,
    /// The second try has been made.
    pub retried: bool,
    /// Memory that gathers sinks in too many pieces, for each sink.
    pub bounce: Vec<(usize, Slice)>,
    /// Memory of the reply chunk, once its keys are dead.
    pub reply: Option<Slice>,
    /// The bytes that the reply states for the write chunks.
    pub written: ArrayVec<Option<u32>, ITEMS_MAX>,
    /// Memory in which a fetched reply is put together.
    pub gathered: Vec<Slice>,
    /// RDMA Reads of the reply that have not completed.
    pub reads: usize,
}

impl CallSlot {
    /// Makes room for the next call. Allocations stay.
    pub fn clear(&mut self) {
        self.stage = Stage::Free;
        self.owner = Owner::Waits;
        self.deadline = None;
        self.message = None;
        self.length = 0;
        self.items.clear();
        self.protection = None;
        self.data.clear();
        self.room.clear();
        self.shape.items.clear();
        self.shape.sinks.clear();
        self.offers.clear();
        self.nominated = 0;
        self.reply_room.clear();
        self.shape.reply_room = 0;
        self.retried = false;
        self.bounce.clear();
        self.reply = None;
        self.written.clear();
        self.gathered.clear();
        self.reads = 0;
    }

    /// What is sent from its XID on, and its length: the message, to which items belong that are
    /// apart, or the protected one with all in it.
    pub fn outgoing(&self) -> Option<(&Slice, usize)> {
        let protected = self.protection.as_ref().and_then(CallProtection::message);
        protected.or_else(|| Some((self.message.as_ref()?, self.length)))
    }

    /// Bytes of the plain message with its items in place.
    pub fn plain_length(&self) -> usize {
        let items = self.items.iter().map(|item| round_up(item.length.into()));
        self.length + items.sum::<u64>() as usize
    }

    /// Whether items are sent apart from the message.
    pub fn has_items_apart(&self) -> bool {
        let protected = self.protection.as_ref().and_then(CallProtection::message);
        protected.is_none() && !self.items.is_empty()
    }

    /// The slices of item `index`.
    pub fn item(&self, index: usize) -> &[Slice] {
        part(&self.data, &self.shape.items, index)
    }

    /// The slices of sink `index`.
    pub fn sink(&self, index: usize) -> &[Slice] {
        part(&self.room, &self.shape.sinks, index)
    }

    /// Whether all keys are dead.
    pub fn is_revoked(&self) -> bool {
        self.offers.iter().all(|offer| offer.revoked)
    }

    /// Whether it has not come to its end yet.
    pub const fn may_be_given_up(&self) -> bool {
        matches!(
            self.stage,
            Stage::Queued | Stage::Sent | Stage::Arrived(..) | Stage::Fetching(_)
        )
    }

    /// Queues a call to be sent once more that was sent before.
    pub fn repeat(&mut self) {
        if let Some(protection) = &mut self.protection {
            protection.renew();
        }
        self.requeue();
    }

    /// Drops the offers on a lost connection, and queues the call to be sent.
    pub fn requeue(&mut self) {
        self.offers.clear();
        self.nominated = 0;
        self.bounce.clear();
        self.reply = None;
        self.written.clear();
        self.gathered.clear();
        self.reads = 0;
        self.stage = Stage::Queued;
    }
}

fn part<'a>(slices: &'a [Slice], extents: &[Extent], index: usize) -> &'a [Slice] {
    let start: usize = extents[..index].iter().map(|extent| extent.pieces).sum();
    &slices[start..start + extents[index].pieces]
}
