//! READ_PLUS (RFC 7862 section 15.10): data and holes.
//!
//! Linux reads with it by version 4.2 over TCP. A range without holes is answered as by READ, with
//! data from the store's memory. Otherwise, and where a call has chunks for results of READ, data
//! is copied into the message: it is never in a chunk of its own (RFC 8267 section 6.1).

use arrayvec::ArrayVec;
use millrace_store::{RangeContent, Store, StoreError};
use millrace_wire::nfs4::{OperationNumber, OperationStatus, ReadOperation};
use millrace_wire::xdr::Encode;

use super::compound::CompoundRun;
use super::position::gather;
use super::reply::CompoundReply;
use super::seam::StateSeam;
use super::table::BARE;
use crate::access::ExportedObject;
use crate::file_data::TRANSFER_MAX;
use crate::store_times::StoreClass;

/// Most parts of one answer, and most bytes of its data; a client asks for the rest.
const SEGMENTS_MAX: usize = 16;
const DATA_MAX: u32 = 256 << 10;

/// A shorter hole, which a range begins or ends with, is told as data. Linux receives an answer into
/// the space that READ's would take, and fails (EIO) if the heads of parts take more than holes save.
const HOLE_MIN: u64 = 512;

/// Bytes around the data of a range without holes: end of file, count, kind, offset and length.
const AROUND_WHOLE: usize = BARE + 24;
/// Bytes around data and holes: end of file, count, and for each part its kind, offset and length, with
/// the round-up of data.
const AROUND: usize = BARE + 8 + SEGMENTS_MAX * 20;

/// Kinds of parts (`data_content4`).
const DATA: u32 = 0;
const HOLE: u32 = 1;

/// A part of a file.
struct FilePart {
    offset: u64,
    /// Bytes of a hole.
    hole: u64,
    data: Vec<u8>,
}

/// What was found.
#[derive(Default)]
struct FileParts {
    parts: ArrayVec<FilePart, SEGMENTS_MAX>,
    eof: bool,
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// READ_PLUS.
    pub async fn read_plus(
        &self,
        arguments: &ReadOperation,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let number = OperationNumber::ReadPlus.number();
        let (file, _guard) = match self.begin_range(arguments.state).await {
            Ok(begun) => begun,
            Err(status) => return reply.refuse(number, status),
        };
        let before = reply.inner().slices.len();
        let whole = match reply.has_chunks() || reply.is_data_copied() {
            true => Ok(None),
            false => self.read_without_holes(file, arguments, reply).await,
        };
        match whole {
            Ok(Some((0, eof))) => {
                reply.inner().slices.truncate(before);
                reply.push_with(number, |out| {
                    OperationStatus::Ok.encode(out)?;
                    out.bool(eof)?;
                    out.u32(0).map(|()| OperationStatus::Ok)
                })
            }
            Ok(Some((length, eof))) => {
                reply.inner().account.read += length;
                reply.push_data(number, length as usize, |out| {
                    out.bool(eof)?;
                    out.u32(1)?;
                    out.u32(DATA)?;
                    out.u64(arguments.offset)
                })
            }
            Ok(None) => {
                reply.inner().slices.truncate(before);
                Box::pin(self.read_parts(file, arguments, reply)).await
            }
            Err(status) => {
                reply.inner().slices.truncate(before);
                reply.refuse(number, status)
            }
        }
    }

    /// Reads a range: the number of bytes, whose slices are appended to the reply's, and whether
    /// they reach the end of the file. `None` if it has holes.
    async fn read_without_holes(
        &self,
        file: &ExportedObject<'c, S>,
        arguments: &ReadOperation,
        reply: &mut CompoundReply<'_>,
    ) -> Result<Option<(u32, bool)>, OperationStatus> {
        let (offset, count) = (
            arguments.offset,
            reply.data_count(arguments.count, AROUND_WHOLE)?,
        );
        let slices = &mut reply.inner().slices;
        let read = self.store(file, StoreClass::Read);
        let read = read.read(&file.caller, file.handle, offset, count, slices);
        let outcome = match read.await {
            Ok(outcome) => outcome,
            Err(error) => return Err(self.range_status(file, error).await),
        };
        let found = Some((outcome.length, outcome.end_of_file));
        if outcome.attributes.used >= outcome.attributes.size {
            return Ok(found);
        }
        let end = offset.saturating_add(outcome.length.into());
        match self.next_content(file, offset, RangeContent::Hole).await {
            Ok(hole) => Ok(found.filter(|_| hole.is_none_or(|hole| hole >= end))),
            Err(error) => Err(self.range_status(file, error).await),
        }
    }

    /// Answers with data and holes.
    async fn read_parts(
        &self,
        file: &ExportedObject<'c, S>,
        arguments: &ReadOperation,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let number = OperationNumber::ReadPlus.number();
        reply
            .reserve(AROUND + arguments.count.min(DATA_MAX) as usize)
            .await;
        let room = reply.room().saturating_sub(AROUND) & !3;
        let room = u32::try_from(room).unwrap_or(u32::MAX).min(DATA_MAX);
        if room == 0 && arguments.count > 0 {
            let status = reply.too_big(AROUND + 4);
            return reply.refuse(number, status);
        }
        let found = match self.find_parts(file, arguments, room).await {
            Ok(found) => found,
            Err(error) => {
                let status = self.range_status(file, error).await;
                return reply.refuse(number, status);
            }
        };
        reply.inner().account.read += found
            .parts
            .iter()
            .map(|part| part.data.len() as u32)
            .sum::<u32>();
        reply.push_with(number, |out| {
            OperationStatus::Ok.encode(out)?;
            out.bool(found.eof)?;
            out.u32(found.parts.len() as u32)?;
            for part in &found.parts {
                out.u32(if part.hole > 0 { HOLE } else { DATA })?;
                out.u64(part.offset)?;
                match part.hole {
                    0 => out.opaque(&part.data)?,
                    hole => out.u64(hole)?,
                }
            }
            Ok(OperationStatus::Ok)
        })
    }

    /// The parts of the range, as many as there is room for.
    async fn find_parts(
        &self,
        file: &ExportedObject<'c, S>,
        arguments: &ReadOperation,
        mut room: u32,
    ) -> Result<FileParts, StoreError> {
        let mut found = FileParts::default();
        let count = arguments.count.min(TRANSFER_MAX);
        let end = arguments.offset.saturating_add(count.into());
        let mut at = arguments.offset;
        let mut slices = Vec::new();
        loop {
            let is_full = found.parts.is_full() || room == 0;
            let next = match is_full || at >= end {
                true => None,
                false => self.next_content(file, at, RangeContent::Data).await?,
            };
            let Some(data) = next else {
                // Like READ of no bytes, it tells whether the file ends here.
                let length = 0;
                let read = self.store(file, StoreClass::Read);
                let read = read.read(&file.caller, file.handle, at, length, &mut slices);
                found.eof = read.await?.end_of_file;
                return Ok(found);
            };
            let data = data.min(end);
            let hole = data - at;
            if hole >= HOLE_MIN {
                found.parts.push(FilePart {
                    offset: at,
                    hole,
                    data: Vec::new(),
                });
                at += hole;
                continue;
            }
            let hole = self.next_content(file, data, RangeContent::Hole).await?;
            let mut until = hole.unwrap_or(end).min(end);
            if end - until < HOLE_MIN {
                until = end;
            }
            let length = u32::try_from(until - at).unwrap_or(u32::MAX).min(room);
            let read = self.store(file, StoreClass::Read);
            let read = read.read(&file.caller, file.handle, at, length, &mut slices);
            let length = read.await?.length;
            let mut data = vec![0; length as usize];
            gather(&slices, &mut data);
            slices.clear();
            if length == 0 {
                // It has become shorter.
                found.eof = true;
                return Ok(found);
            }
            found.parts.push(FilePart {
                offset: at,
                hole: 0,
                data,
            });
            at += u64::from(length);
            room -= length.next_multiple_of(4).min(room);
        }
    }

    /// Where data or a hole begins: `None` behind the end of the file.
    async fn next_content(
        &self,
        file: &ExportedObject<'c, S>,
        at: u64,
        content: RangeContent,
    ) -> Result<Option<u64>, StoreError> {
        let store = self.store(file, StoreClass::Metadata);
        let found = store.seek(&file.caller, file.handle, at, content);
        match found.await {
            Ok(found) => Ok(Some(found.offset)),
            Err(StoreError::NoDevice) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
