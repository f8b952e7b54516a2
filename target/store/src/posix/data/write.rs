//! WRITE: from memory of the pool, through the page cache or direct.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use millrace_mempool::{Class, Slice};

use super::TRANSFER_MAX;
use super::in_flight::{KernelWork, Ticket, may_be_no_space};
use super::io_mode_lock::Way;
use super::route::{self, OFFSET_MAX, Span};
use crate::posix::engine::Durability;
use crate::posix::errors::io_error;
use crate::posix::identity::Identity;
use crate::posix::objects::{Object, Use};
use crate::posix::view::ClientView;
use crate::{
    Caller, Consistency, Handle, Modified, Result, Stability, StagedWrite, StoreError, Written,
};

/// The memory of a staged write and its destination.
pub struct Reservation {
    object: Rc<Object>,
    /// None for a write without bytes.
    slice: Option<Slice>,
    identity: Identity,
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Reservation")
            .field("file", &self.object.handle)
            .finish_non_exhaustive()
    }
}

impl ClientView<'_> {
    pub(in crate::posix) async fn stage_write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Reservation>> {
        let identity = self.identity(caller).await?;
        let object = self.objects.get(self.client, file).await?;
        object.require_regular()?;
        object.permit(self.client, &identity, Use::Write).await?;
        let length = length.min(TRANSFER_MAX);
        let end = offset.checked_add(u64::from(length));
        if end.is_none_or(|end| end > OFFSET_MAX) {
            return Err(StoreError::TooLarge);
        }
        let slice = if length == 0 {
            None
        } else {
            let class = Class::for_size(length as usize).expect("cut to the largest");
            self.data.admission.check(class.size())?;
            let buffer = self.memory(length as usize).await?;
            Some(buffer.into_slice(0..length as usize))
        };
        slices.extend(slice.clone());
        Ok(StagedWrite {
            file,
            offset,
            length,
            reservation: Reservation {
                object,
                slice,
                identity,
            },
        })
    }

    pub(in crate::posix) async fn commit_write(
        &self,
        staged: StagedWrite<Reservation>,
        stability: Stability,
    ) -> Modified<Written> {
        let offset = staged.offset;
        let Reservation {
            object,
            slice,
            identity,
        } = staged.reservation;
        // Read before anything is written, so that a later error changes it.
        let verifier = self.volume.verifier();
        let written = match &slice {
            Some(slice) => {
                self.write(&object, offset, slice, stability, &identity)
                    .await
            }
            None => Ok((0, stability)),
        };
        drop(slice);
        let consistency = Consistency {
            before: None,
            after: object.attributes(self.client).await.ok(),
        };
        Modified {
            consistency,
            result: written.map(|(length, stability)| Written {
                length,
                stability,
                verifier,
            }),
        }
    }

    /// Returns the number of bytes written and their durability.
    async fn write(
        &self,
        object: &Rc<Object>,
        offset: u64,
        slice: &Slice,
        stability: Stability,
        identity: &Identity,
    ) -> Result<(u32, Stability)> {
        let span = Span::new(offset, slice.len() as u64);
        let class = Class::for_size(slice.len()).map_or(slice.len(), Class::size);
        let ticket = self
            .data
            .in_flight
            .begin(self.client, object, class)
            .await?;
        let writing = Writing {
            object,
            slice,
            span,
            identity,
            ticket: &ticket,
        };
        let direct = route::write_is_direct(self.volume.config().direct, span.length());
        let done = if direct {
            self.write_direct(&writing, stability).await?
        } else {
            None
        };
        let written = match done {
            Some(written) => written,
            None => {
                self.write_by(&writing, Way::Buffered, stability, false)
                    .await?
            }
        };
        // Other writes may proceed while this one waits for a sync.
        drop(ticket);
        if written == 0 {
            // A write must not return zero bytes; the client would repeat it for ever.
            return Err(StoreError::Io);
        }
        self.data.counters.written_bytes.add(written);
        let written = u32::try_from(written).expect("no more than a slice");
        let full = self.volume.data().dirty.load(SeqCst) > self.volume.config().limits.dirty;
        if stability == Stability::Unstable && full {
            self.data.counters.forced_syncs.add(1);
            self.sync(object).await?;
            return Ok((written, Stability::FileSync));
        }
        Ok((written, stability))
    }

    /// Direct; `None` if that is not possible.
    async fn write_direct(
        &self,
        writing: &Writing<'_>,
        stability: Stability,
    ) -> Result<Option<u64>> {
        let file = writing.object.data(self.client, Use::Write, true).await?;
        let alignment = file.direct.map(route::alignment);
        if !alignment.is_some_and(|alignment| writing.span.is_aligned(alignment)) {
            return Ok(None);
        }
        match self.write_by(writing, Way::Direct, stability, true).await {
            Err(StoreError::Invalid | StoreError::NotSupported) => Ok(None),
            written => written.map(Some),
        }
    }

    async fn write_by(
        &self,
        writing: &Writing<'_>,
        way: Way,
        stability: Stability,
        direct: bool,
    ) -> Result<u64> {
        let object = writing.object;
        let file = object.data(self.client, Use::Write, direct).await?;
        writing.ticket.enter(object, way).await;
        let durability = match stability {
            Stability::Unstable => Durability::None,
            Stability::DataSync => Durability::Data,
            Stability::FileSync => Durability::File,
        };
        let durable = durability != Durability::None;
        let hold = writing.ticket.hold(KernelWork::Write { durable });
        let (start, slice, identity) = (writing.span.start, writing.slice, writing.identity);
        let written = self
            .client_engine()
            .write(&file.file, start, slice, durability, identity, Some(hold))
            .await;
        if let Err(error) = &written
            && durable
            && let Some(errno) = may_be_no_space(error)
        {
            // Either there was no space for these bytes, which affects no other data, or syncing
            // earlier bytes failed, which the kernel reports only once. A write without a sync
            // distinguishes the two.
            let hold = Some(writing.ticket.hold(KernelWork::Probe { errno }));
            let _ = self
                .client_engine()
                .write(&file.file, start, slice, Durability::None, identity, hold)
                .await;
        }
        writing.ticket.leave(object);
        let written = written.map_err(|error| io_error(&error))? as u64;
        let counters = &self.data.counters;
        match way {
            Way::Direct => counters.writes_direct.add(1),
            Way::Buffered => counters.writes_buffered.add(1),
        }
        Ok(written)
    }
}

/// A write that is admitted.
struct Writing<'a> {
    object: &'a Rc<Object>,
    slice: &'a Slice,
    span: Span,
    identity: &'a Identity,
    ticket: &'a Ticket,
}
