//! A reply to COMPOUND in the making: results one behind the other, within all bounds.
//!
//! Results are encoded straight into the message of the [`Reply`]. Each leaves room for the next
//! operation to fail in, so that a result that does not fit is answered `NFS4ERR_REP_TOO_BIG` at
//! its place. Data stays in the reply's slices; where no chunk is left for it, it is gathered into
//! the message and counts there.

use millrace_mempool::Slice;
use millrace_wire::nfs4::{HasStatus, OperationNumber, OperationStatus, Verifier};
use millrace_wire::rpc::ReplyHeader;
use millrace_wire::xdr::{Encode, Encoder, Error, ITEMS_MAX, Result as XdrResult};

use super::counters::Nfs4Counters;
use super::table::BARE;
use crate::call::{BulkResult, BulkResults, Reply};
use crate::file_data::TRANSFER_MAX;

/// Bytes of the largest failure of any operation: a failed SETATTR returns the attributes that were
/// set.
const FAILURE: usize = BARE + 4;

/// Most bytes of a COMPOUND and its reply, as its session has agreed on them: from the RPC header
/// on, with all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionBounds {
    /// ca_maxrequestsize.
    pub request: usize,
    /// ca_maxresponsesize.
    pub reply: usize,
    /// ca_maxresponsesize_cached, if the reply has to be cached.
    pub cached: Option<usize>,
}

/// A reply to COMPOUND in the making.
pub(super) struct CompoundReply<'r> {
    reply: &'r mut Reply,
    counters: &'r Nfs4Counters,
    bounds: SessionBounds,
    /// Bytes encoded so far.
    length: usize,
    /// Where the results begin: the status of the COMPOUND.
    start: usize,
    count_at: usize,
    count: u32,
    status: OperationStatus,
    items: BulkResults,
    /// Bytes of data that goes into the message, with its round-up, and in chunks.
    gathered: usize,
    apart: usize,
    /// Whether the results are those of an earlier execution.
    is_repeated: bool,
    /// Whether results are counted as they are appended.
    counts: bool,
    /// Whether no operation follows the one that is executed.
    pub is_last: bool,
}

impl<'r> CompoundReply<'r> {
    /// Begins the results of a COMPOUND behind the RPC header.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn begin(
        reply: &'r mut Reply,
        counters: &'r Nfs4Counters,
        header: &ReplyHeader<'_>,
        tag: &[u8],
    ) -> Result<Self, Error> {
        let mut out = Encoder::new(reply.room());
        header.encode(&mut out)?;
        let start = out.position();
        out.u32(OperationStatus::Ok.number())?;
        out.opaque(tag)?;
        let count_at = out.position();
        out.u32(0)?;
        let length = out.position();
        Ok(Self {
            reply,
            counters,
            bounds: SessionBounds {
                request: usize::MAX,
                reply: usize::MAX,
                cached: None,
            },
            length,
            start,
            count_at,
            count: 0,
            status: OperationStatus::Ok,
            items: BulkResults::new_const(),
            gathered: 0,
            apart: 0,
            is_repeated: false,
            counts: true,
            is_last: false,
        })
    }

    /// Lets the bounds of the session hold from here on.
    pub fn set_bounds(&mut self, bounds: SessionBounds) {
        self.bounds = bounds;
    }

    /// Has results counted by [`count`](Self::count) only.
    pub fn count_later(&mut self) {
        self.counts = false;
    }

    /// Counts the results, which are those of operations with these numbers.
    #[inline]
    pub fn count(&self, numbers: impl Iterator<Item = u32>) {
        let mut left = self.count;
        for number in numbers {
            left -= 1;
            if left == 0 {
                // Only the last one may have failed.
                self.counters.operations.count(number, self.status);
                return;
            }
            self.counters.operations.count(number, OperationStatus::Ok);
        }
    }

    /// The status of the last result.
    pub fn status(&self) -> OperationStatus {
        self.status
    }

    /// The reply itself.
    pub fn inner(&mut self) -> &mut Reply {
        self.reply
    }

    /// What has to be left for operations behind this one.
    fn kept(&self) -> usize {
        if self.is_last { 0 } else { FAILURE }
    }

    /// Bytes of the message that remain within the limits of the transport and of the session.
    fn left(&self) -> usize {
        let inline = self.length + self.gathered;
        let message = self.reply.limits().message.saturating_sub(inline);
        let bound = self.bounds.cached.unwrap_or(usize::MAX);
        let session = bound
            .min(self.bounds.reply)
            .saturating_sub(inline + self.apart);
        message.min(session)
    }

    /// Bytes that the next result may take in the message.
    pub fn room(&self) -> usize {
        self.left().saturating_sub(self.kept())
    }

    /// The status of an operation whose result does not fit: `needed` bytes, with its data.
    pub fn too_big(&self, needed: usize) -> OperationStatus {
        let inline = self.length + self.gathered;
        let whole = inline + self.apart + needed + self.kept();
        let fits = whole <= self.bounds.reply && inline + needed <= self.reply.limits().message;
        match self.bounds.cached {
            Some(bound) if fits && whole > bound => OperationStatus::ReplyTooBigToCache,
            _ => OperationStatus::ReplyTooBig,
        }
    }

    /// Makes the buffer long enough for a result of so many bytes, as far as the bounds allow.
    pub async fn reserve(&mut self, bytes: usize) {
        let room = self.reply.room_length();
        if self.length + bytes + FAILURE > room {
            let bytes = self.length + bytes.min(self.left()) + FAILURE;
            if bytes > room {
                self.reply.extend(self.length, bytes).await;
            }
        }
    }

    /// Appends a result.
    pub fn push<R: Encode + HasStatus>(&mut self, number: u32, results: &R) -> OperationStatus {
        self.push_with(number, |out| results.encode(out).map(|()| results.status()))
    }

    /// Appends a failure that has nothing but a status, or nothing at all where that is OK.
    pub fn push_status(&mut self, number: u32, status: OperationStatus) -> OperationStatus {
        self.push_with(number, |out| status.encode(out).map(|()| status))
    }

    /// Appends a result: `fill` writes the status and what follows it, and returns the status. If
    /// it does not fit, an error status is appended instead.
    pub fn push_with(
        &mut self,
        number: u32,
        fill: impl FnOnce(&mut Encoder<'_>) -> XdrResult<OperationStatus>,
    ) -> OperationStatus {
        let room = self.room();
        let buffer = self.free(room);
        let most = buffer.len();
        let mut out = Encoder::new(buffer);
        let filled = out.u32(number).and_then(|()| fill(&mut out));
        let length = out.position();
        match filled {
            Ok(status) => self.appended(number, status, length),
            Err(Error::Full) => self.refuse(number, self.too_big(most + 4)),
            Err(_) => self.refuse(number, OperationStatus::ServerFault),
        }
    }

    /// Appends a failure in the room that was kept for it.
    pub fn refuse(&mut self, number: u32, status: OperationStatus) -> OperationStatus {
        let room = self.left();
        let mut out = Encoder::new(self.free(room));
        let encoded = out.u32(number).and_then(|()| status.encode(&mut out));
        // A failed SETATTR returns the attributes that were set: none.
        let is_setattr = number == OperationNumber::Setattr.number();
        let encoded = encoded.and_then(|()| if is_setattr { out.u32(0) } else { Ok(()) });
        let length = out.position();
        debug_assert!(encoded.is_ok() || self.count == 0, "room is kept for it");
        if encoded.is_err() {
            self.status = status;
            return status;
        }
        self.appended(number, status, length)
    }

    /// An encoder for a listing of at most `room` bytes, behind the operation's number, and the
    /// position behind that number.
    pub fn begin_listing(&mut self, room: usize) -> (Encoder<'_>, usize) {
        let mut out = Encoder::new(self.free(room));
        // If the number does not fit, the listing does not fit either.
        let _ = out.u32(OperationNumber::Readdir.number());
        let start = out.position();
        (out, start)
    }

    /// Takes a listing of so many bytes behind the number as the result.
    pub fn push_listing(&mut self, verifier: Verifier, length: usize) -> OperationStatus {
        // Behind number and status.
        let at = self.length + BARE;
        let room = self.reply.room();
        room[at..at + verifier.len()].copy_from_slice(&verifier);
        let number = OperationNumber::Readdir.number();
        self.appended(number, OperationStatus::Ok, 4 + length)
    }

    /// The free part of the message, at most `bytes` of it.
    fn free(&mut self, bytes: usize) -> &mut [u8] {
        let room = self.reply.room();
        let end = room.len().min(self.length.saturating_add(bytes));
        &mut room[self.length..end]
    }

    fn appended(&mut self, number: u32, status: OperationStatus, length: usize) -> OperationStatus {
        if self.counts {
            self.counters.operations.count(number, status);
        }
        self.length += length;
        self.count += 1;
        self.status = status;
        status
    }

    /// Most bytes of data that the next result may have, which has `around` other bytes.
    pub fn data_room(&self, around: usize) -> usize {
        let (limits, index) = (self.reply.limits(), self.items.len());
        let inline = self.room().saturating_sub(around) & !3;
        match limits.apart.get(index) {
            Some(Some(chunk)) => {
                let whole = self.length + self.gathered + self.apart + around + self.kept();
                let cached = self.bounds.cached.unwrap_or(usize::MAX);
                let session = cached.min(self.bounds.reply).saturating_sub(whole) & !3;
                session.min(*chunk as usize)
            }
            // What has no place beside the message is copied into it.
            None => {
                let buffer = self.reply.limits().message.min(crate::nfs4::COPIED_MAX);
                inline.min(buffer)
            }
            Some(None) => inline,
        }
    }

    /// The number of bytes to read for an operation that asks for `count`, and whose result has
    /// `around` other bytes. A short answer is always allowed; what cannot be carried must not be
    /// tried.
    ///
    /// # Errors
    /// There is no room for any: success without data would have the client ask again for ever.
    #[inline]
    pub fn data_count(&self, count: u32, around: usize) -> Result<u32, OperationStatus> {
        let room = u32::try_from(self.data_room(around)).unwrap_or(u32::MAX);
        match count.min(TRANSFER_MAX).min(room) {
            0 if count > 0 => Err(self.too_big(around + 4)),
            count => Ok(count),
        }
    }

    /// Whether the call has chunks for results.
    pub fn has_chunks(&self) -> bool {
        self.reply.limits().apart.iter().any(Option::is_some)
    }

    /// Whether the next data has no place beside the message, so that it has to be encoded.
    pub fn is_data_copied(&self) -> bool {
        self.items.len() >= ITEMS_MAX
    }

    /// Appends a result that ends with data, of which `length` bytes are the last of the reply's
    /// slices: `fill` writes status and values, up to the length word of the data.
    pub fn push_data(
        &mut self,
        number: u32,
        length: usize,
        fill: impl FnOnce(&mut Encoder<'_>) -> XdrResult<()>,
    ) -> OperationStatus {
        let word = u32::try_from(length).unwrap_or(u32::MAX);
        let status = self.push_with(number, |out| {
            OperationStatus::Ok.encode(out)?;
            fill(out)?;
            out.u32(word).map(|()| OperationStatus::Ok)
        });
        if status == OperationStatus::Ok {
            let index = self.items.len();
            let rounded = length.next_multiple_of(4);
            match self.reply.limits().apart.get(index) {
                Some(Some(_)) => self.apart += rounded,
                _ => self.gathered += rounded,
            }
            self.items.push(BulkResult {
                position: self.length,
                length,
            });
        }
        status
    }

    /// Whether the reply may take a larger buffer before it is sent.
    pub fn may_take_buffer(&self) -> bool {
        self.reply.may_take_buffer(self.length, self.gathered)
    }

    /// Whether the client asked for a copy of the reply to be kept for it.
    pub fn is_to_be_cached(&self) -> bool {
        self.bounds.cached.is_some()
    }

    /// The results so far, from the status of the COMPOUND on, the data that they leave out
    /// (positions count from the first byte of the results), and that data.
    pub fn results(&mut self) -> (&[u8], BulkResults, &[Slice]) {
        self.patch();
        let start = self.start;
        let items = self.items.iter().map(|item| BulkResult {
            position: item.position - start,
            length: item.length,
        });
        let (results, slices) = self.reply.encoded(start..self.length);
        (results, items.collect(), slices)
    }

    fn patch(&mut self) {
        if self.is_repeated {
            return;
        }
        let (start, count_at) = (self.start, self.count_at);
        let (status, count) = (self.status.number(), self.count);
        let room = self.reply.room();
        room[start..start + 4].copy_from_slice(&status.to_be_bytes());
        room[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
    }

    /// Puts results in place that were given before, with their data in the reply's slices. Whether
    /// they fit.
    pub fn repeat(&mut self, results: &[u8], items: &BulkResults) -> bool {
        let (start, end) = (self.start, self.start + results.len());
        let mut around = end;
        for (item, room) in items.iter().zip(self.reply.limits().apart) {
            match room {
                Some(room) if item.length > room as usize => return false,
                Some(_) => {}
                None => around += item.length.next_multiple_of(4),
            }
        }
        if around > self.reply.limits().message {
            return false;
        }
        let Some(place) = self.reply.room().get_mut(start..end) else {
            return false;
        };
        place.copy_from_slice(results);
        let status = results.first_chunk().map(|word| u32::from_be_bytes(*word));
        self.status = status
            .and_then(OperationStatus::from_number)
            .unwrap_or(OperationStatus::ServerFault);
        self.is_repeated = true;
        self.counters.replays.increment();
        self.length = end;
        self.items = items
            .iter()
            .map(|item| BulkResult {
                position: item.position + start,
                length: item.length,
            })
            .collect();
        true
    }

    /// Ends the reply.
    pub fn finish(mut self) {
        self.patch();
        // Empty ones at the end need no place.
        while self.items.last().is_some_and(|item| item.length == 0) {
            self.items.pop();
        }
        self.reply.set_length(self.length);
        if !self.items.is_empty() {
            self.reply.set_bulk(self.items);
        }
    }
}
