//! READ: through the page cache or direct, into memory of the pool.

use std::rc::Rc;

use millrace_mempool::{Class, Slice};

use super::TRANSFER_MAX;
use super::in_flight::{KernelWork, Ticket};
use super::route::{self, OFFSET_MAX, Span};
use crate::posix::errors::io_error;
use crate::posix::identity::Identity;
use crate::posix::objects::{DataFile, Object, Use};
use crate::posix::view::ClientView;
use crate::posix::volume::Direct;
use crate::{Attributes, Caller, Handle, ReadOutcome, Result, StoreError};

/// How often a read without bytes below the end of the file is retried: files grow.
const TRIES: usize = 3;

/// A read that is admitted and has memory.
struct Reading<'a> {
    object: &'a Rc<Object>,
    identity: &'a Identity,
    ticket: &'a Ticket,
    /// Memory from the span's start on.
    slice: &'a Slice,
}

/// The source of a read's bytes.
#[derive(Clone, Copy)]
enum Source {
    Direct,
    Cached,
    Buffered,
}

impl ClientView<'_> {
    pub(in crate::posix) async fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        let identity = self.identity(caller).await?;
        let object = self.objects.get(self.client, file).await?;
        object.require_regular()?;
        object.permit(self.client, &identity, Use::Read).await?;
        let length = u64::from(length.min(TRANSFER_MAX)).min(OFFSET_MAX.saturating_sub(offset));
        if length == 0 {
            let attributes = object.attributes(self.client).await?;
            return Ok(outcome(offset, 0, attributes));
        }
        let wanted = Span::new(offset, length);
        let (direct, span) = self.read_route(&object, wanted).await?;
        let bytes = span.length() as usize;
        let class = Class::for_size(bytes).expect("spans are cut to the largest");
        self.data.admission.check(class.size())?;
        let buffer = self.memory(bytes).await?;
        let slice = buffer.into_slice(0..bytes);
        let ticket = self
            .data
            .in_flight
            .begin(self.client, &object, class.size())
            .await?;
        let reading = Reading {
            object: &object,
            identity: &identity,
            ticket: &ticket,
            slice: &slice,
        };
        for _ in 0..TRIES {
            let read = self.read_span(&reading, span, direct.as_ref()).await?;
            // Excludes the bytes before and after the wanted range.
            let found = wanted.within(span, read);
            let attributes = object.attributes(self.client).await?;
            let outcome = outcome(offset, found, attributes);
            if found > 0 || outcome.end_of_file {
                let before = (wanted.start - span.start) as usize;
                if found > 0 {
                    slices.push(slice.slice(before..before + found as usize));
                }
                self.data.counters.read_bytes.add(found);
                return Ok(outcome);
            }
        }
        // The file is longer than the bytes found.
        Err(StoreError::Io)
    }

    /// The file to read directly, whatever the page cache holds, and the span of that read; `None`
    /// for other reads.
    async fn read_route(&self, object: &Object, wanted: Span) -> Result<(Option<DataFile>, Span)> {
        if self.volume.config().direct != Direct::Always {
            return Ok((None, wanted));
        }
        let file = object.data(self.client, Use::Read, true).await?;
        let alignment = file.direct.map(route::alignment);
        match alignment.and_then(|alignment| wanted.around(alignment)) {
            Some(span) => Ok((Some(file), span)),
            None => Ok((None, wanted)),
        }
    }

    /// Reads a span; returns the number of bytes read.
    async fn read_span(
        &self,
        reading: &Reading<'_>,
        span: Span,
        direct: Option<&DataFile>,
    ) -> Result<u64> {
        let by_config = self.volume.config().direct;
        let (read, source) = match (direct, by_config) {
            (Some(file), _) => match self.read_direct(reading, file, span, 0).await? {
                Some(read) => (read, Source::Direct),
                None => (self.read_rest(reading, span, 0).await?, Source::Buffered),
            },
            (None, Direct::Auto) if span.length() >= route::DIRECT_LEAST => {
                self.read_auto(reading, span).await?
            }
            (None, _) => (self.read_rest(reading, span, 0).await?, Source::Buffered),
        };
        let counters = &self.data.counters;
        match source {
            Source::Direct => counters.reads_direct.add(1),
            Source::Cached => counters.reads_cached.add(1),
            Source::Buffered => counters.reads_buffered.add(1),
        }
        Ok(read)
    }

    /// Reads from the page cache, and the rest directly if aligned.
    async fn read_auto(&self, reading: &Reading<'_>, span: Span) -> Result<(u64, Source)> {
        let direct = reading.object.data(self.client, Use::Read, true).await?;
        let alignment = direct.direct.map(route::alignment);
        let Some(alignment) = alignment.filter(|&alignment| span.is_aligned(alignment)) else {
            return Ok((self.read_rest(reading, span, 0).await?, Source::Buffered));
        };
        let cached = self.read_cached(reading, span).await?;
        if cached == span.length() {
            return Ok((cached, Source::Cached));
        }
        let from = cached - cached % alignment;
        match self.read_direct(reading, &direct, span, from).await? {
            Some(read) => Ok((read, Source::Direct)),
            None => Ok((self.read_rest(reading, span, from).await?, Source::Buffered)),
        }
    }

    /// Reads the bytes cached from the span's start on; none if that cannot be determined.
    async fn read_cached(&self, reading: &Reading<'_>, span: Span) -> Result<u64> {
        let file = reading.object.data(self.client, Use::Read, false).await?;
        let hold = reading.ticket.hold(KernelWork::Read);
        let (slice, identity) = (reading.slice, reading.identity);
        let read = self
            .client_engine()
            .read(&file.file, span.start, slice, true, identity, Some(hold))
            .await;
        Ok(read.map_or(0, |read| read as u64))
    }

    /// Direct, from `from` bytes after the span's start on; `None` if the file system refuses it.
    async fn read_direct(
        &self,
        reading: &Reading<'_>,
        file: &DataFile,
        span: Span,
        from: u64,
    ) -> Result<Option<u64>> {
        let slice = reading.slice.slice(from as usize..reading.slice.len());
        let hold = reading.ticket.hold(KernelWork::Read);
        let (place, identity) = (span.start + from, reading.identity);
        let read = self
            .client_engine()
            .read(&file.file, place, &slice, false, identity, Some(hold))
            .await;
        match read {
            Ok(read) => Ok(Some(from + read as u64)),
            Err(error) if route::refuses_direct(&error) => Ok(None),
            Err(error) => Err(io_error(&error)),
        }
    }

    /// Through the page cache, from `from` bytes after the span's start on.
    async fn read_rest(&self, reading: &Reading<'_>, span: Span, from: u64) -> Result<u64> {
        let file = reading.object.data(self.client, Use::Read, false).await?;
        let slice = reading.slice.slice(from as usize..reading.slice.len());
        let hold = reading.ticket.hold(KernelWork::Read);
        let (place, identity) = (span.start + from, reading.identity);
        let read = self
            .client_engine()
            .read(&file.file, place, &slice, false, identity, Some(hold))
            .await;
        match read {
            Ok(read) => Ok(from + read as u64),
            Err(error) => Err(io_error(&error)),
        }
    }
}

fn outcome(offset: u64, found: u64, attributes: Attributes) -> ReadOutcome {
    ReadOutcome {
        length: u32::try_from(found).expect("no more than was asked for"),
        end_of_file: offset.saturating_add(found) >= attributes.size,
        attributes,
    }
}
