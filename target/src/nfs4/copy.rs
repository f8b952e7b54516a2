//! COPY and CLONE within the server (RFC 7862 sections 15.2 and 15.13).
//!
//! Every COPY is answered when it is done, and ends early when it would take long: the client goes
//! on behind the bytes that it has copied.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use millrace_mempool::Slice;
use millrace_reactor::task::next_turn;
use millrace_store::{Attributes, CopiedRange, Kind, Stability, Store, StoreError};
use millrace_wire::nfs4::{
    CloneOperation, CopiedData, CopyOk, CopyOperation, CopyRequirements, OperationOutcome,
    OperationStatus, StateId,
};

use super::compound::CompoundRun;
use super::reply::CompoundReply;
use super::seam::{StateIdUse, StateSeam};
use super::status;
use crate::access::ExportedObject;
use crate::file_data::stability_to;
use crate::store_times::StoreClass;

/// Most bytes that one COPY copies, and for how long.
pub(super) const COPY_MAX: u64 = 64 << 20;
const COPY_TIME: Duration = Duration::from_millis(100);

/// Bytes that are copied before other calls have a turn.
const COPY_STEP: u32 = 256 << 10;

/// The files of a copy, with the guards of their states.
struct CopyFiles<'r, 'c, S, G> {
    source: &'r ExportedObject<'c, S>,
    target: &'r ExportedObject<'c, S>,
    _guards: [G; 2],
}

/// A range of the source, and where it goes.
#[derive(Clone, Copy)]
struct CopySpan {
    from: u64,
    to: u64,
    length: u64,
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// The saved file and the current one.
    async fn begin_copy(
        &self,
        source_state: StateId,
        target_state: StateId,
    ) -> OperationOutcome<CopyFiles<'_, 'c, S, H::IoGuard>> {
        let (saved, saved_state) = self.saved.as_ref().ok_or(OperationStatus::NoFileHandle)?;
        let source = self.in_export(saved, OperationStatus::WrongType)?;
        self.object(OperationStatus::WrongType)?;
        let target = self.writable()?;
        // The current stateid was saved with its file.
        let source_state = match source_state {
            StateId::CURRENT if saved_state.is_special() => {
                return Err(OperationStatus::BadStateId);
            }
            StateId::CURRENT => *saved_state,
            given => given,
        };
        let read = self.begin_io(source, source_state, StateIdUse::Read);
        let read = read.await?;
        let target_state = self.stateid(target_state)?;
        let written = self.begin_io(target, target_state, StateIdUse::Write);
        let written = written.await?;
        Ok(CopyFiles {
            source,
            target,
            _guards: [read, written],
        })
    }

    /// The attributes of a regular file.
    async fn regular(&self, file: &ExportedObject<'c, S>) -> OperationOutcome<Attributes> {
        let found = self.store(file, StoreClass::Metadata);
        let found = found.attributes(file.handle).await;
        let found = found.map_err(status::status)?;
        match found.kind {
            Kind::File => Ok(found),
            _ => Err(OperationStatus::WrongType),
        }
    }

    /// The range of a source of this size; no bytes are all to the end.
    fn copy_span(from: u64, to: u64, count: u64, size: u64) -> OperationOutcome<CopySpan> {
        let rest = size.checked_sub(from).ok_or(OperationStatus::Invalid)?;
        let length = if count == 0 { rest } else { count };
        if length > rest || to.checked_add(length).is_none() {
            return Err(OperationStatus::Invalid);
        }
        Ok(CopySpan { from, to, length })
    }

    /// CLONE.
    pub async fn clone_range(&self, arguments: &CloneOperation) -> OperationOutcome<()> {
        let states = (arguments.source_state, arguments.destination_state);
        let files = self.begin_copy(states.0, states.1).await?;
        let CopyFiles { source, target, .. } = files;
        if source.export.id != target.export.id {
            return Err(OperationStatus::CrossDevice);
        }
        let size = self.regular(source).await?.size;
        self.regular(target).await?;
        let block = source.export.store.properties().clone_block;
        let block = u64::from(block.ok_or(OperationStatus::NotSupported)?);
        let (from, to) = (arguments.source_offset, arguments.destination_offset);
        let span = Self::copy_span(from, to, arguments.count, size)?;
        let is_whole = span.length.is_multiple_of(block) || from + span.length == size;
        let is_aligned = from.is_multiple_of(block) && to.is_multiple_of(block) && is_whole;
        let overlaps = source.handle == target.handle && from.abs_diff(to) < span.length;
        if !is_aligned || overlaps {
            return Err(OperationStatus::Invalid);
        }
        if span.length == 0 {
            return Ok(());
        }
        let store = self.store(target, StoreClass::Write);
        let (from, to) = ((source.handle, from), (target.handle, to));
        let done = store.clone_range(&target.caller, from, to, span.length);
        done.await.result.map_err(status::status)
    }

    /// COPY.
    pub async fn copy(
        &self,
        arguments: &CopyOperation<'_>,
        reply: &mut CompoundReply<'_>,
    ) -> OperationOutcome<CopyOk> {
        if !arguments.source_servers.is_empty() {
            return Err(OperationStatus::NotSupported);
        }
        let states = (arguments.source_state, arguments.destination_state);
        let files = self.begin_copy(states.0, states.1).await?;
        let CopyFiles { source, target, .. } = files;
        let size = self.regular(source).await?.size;
        self.regular(target).await?;
        let is_one_export = source.export.id == target.export.id;
        if is_one_export && source.handle == target.handle {
            return Err(OperationStatus::Invalid);
        }
        let (from, to) = (arguments.source_offset, arguments.destination_offset);
        let span = Self::copy_span(from, to, arguments.count, size)?;
        let by_store = match is_one_export && span.length > 0 {
            true => self.copy_by_store(source, target, span).await,
            false => ControlFlow::Continue(()),
        };
        let copied = match by_store {
            ControlFlow::Break(copied) => copied,
            ControlFlow::Continue(()) => self.copy_bytes(source, target, span).await,
        };
        let copied = copied.map_err(status::status)?;
        let account = &mut reply.inner().account;
        let counted = u32::try_from(copied.length).unwrap_or(u32::MAX);
        account.read = account.read.saturating_add(counted);
        account.written = account.written.saturating_add(counted);
        Ok(CopyOk {
            written: CopiedData {
                callback: None,
                count: copied.length,
                committed: stability_to(copied.stability),
                verifier: copied.verifier.0,
            },
            requirements: CopyRequirements {
                consecutive: true,
                synchronous: true,
            },
        })
    }

    /// Lets the store copy, if it can.
    async fn copy_by_store(
        &self,
        source: &ExportedObject<'c, S>,
        target: &ExportedObject<'c, S>,
        span: CopySpan,
    ) -> ControlFlow<Result<CopiedRange, StoreError>> {
        let store = self.store(target, StoreClass::Write);
        let (from, to) = ((source.handle, span.from), (target.handle, span.to));
        let done = store.copy_range(&target.caller, from, to, span.length);
        match done.await.result {
            // As between file systems of one export.
            Err(StoreError::NotSupported | StoreError::CrossDevice | StoreError::Invalid) => {
                ControlFlow::Continue(())
            }
            copied => ControlFlow::Break(copied),
        }
    }

    /// Copies what a read returns to where a write wants it, piece by piece.
    async fn copy_bytes(
        &self,
        source: &ExportedObject<'c, S>,
        target: &ExportedObject<'c, S>,
        span: CopySpan,
    ) -> Result<CopiedRange, StoreError> {
        let (began, most) = (Instant::now(), span.length.min(COPY_MAX));
        let mut sum: Option<CopiedRange> = None;
        loop {
            let done = sum.map_or(0, |sum| sum.length);
            let rest = CopySpan {
                from: span.from + done,
                to: span.to + done,
                length: most - done,
            };
            let piece = match (self.copy_piece(source, target, rest).await, sum) {
                // What was copied before is answered; the client meets the error again.
                (Err(_), Some(sum)) => return Ok(sum),
                (piece, _) => piece?,
            };
            let ended = piece.length == 0;
            let sum = sum.insert(CopiedRange {
                length: done + piece.length,
                stability: match sum {
                    Some(sum) if sum.stability == Stability::Unstable => sum.stability,
                    _ => piece.stability,
                },
                // If it changed since, bytes may be lost, which the older one tells.
                verifier: sum.map_or(piece.verifier, |sum| sum.verifier),
            });
            if ended || sum.length == most || began.elapsed() >= COPY_TIME {
                return Ok(*sum);
            }
            next_turn().await;
        }
    }

    async fn copy_piece(
        &self,
        source: &ExportedObject<'c, S>,
        target: &ExportedObject<'c, S>,
        span: CopySpan,
    ) -> Result<CopiedRange, StoreError> {
        let wanted = u32::try_from(span.length).map_or(COPY_STEP, |all| all.min(COPY_STEP));
        let (mut found, mut sinks) = (Vec::new(), Vec::new());
        let store = self.store(source, StoreClass::Read);
        let read = store.read(&source.caller, source.handle, span.from, wanted, &mut found);
        let length = read.await?.length;
        let store = self.store(target, StoreClass::Write);
        let staged = store.stage_write(&target.caller, target.handle, span.to, length, &mut sinks);
        let staged = staged.await?;
        copy_slices(&found, &sinks);
        drop((found, sinks));
        let written = store.commit_write(staged, Stability::Unstable).await;
        let written = written.result?;
        Ok(CopiedRange {
            length: written.length.into(),
            stability: written.stability,
            verifier: written.verifier,
        })
    }
}

/// Copies as many bytes as both have.
fn copy_slices(from: &[Slice], to: &[Slice]) {
    let mut sinks = to.iter();
    let (mut sink, mut filled) = (sinks.next(), 0);
    for source in from {
        let mut at = 0;
        while let Some(this) = sink.filter(|_| at < source.len()) {
            let length = (source.len() - at).min(this.len() - filled);
            this.copy_from_slice(filled, source, at..at + length);
            (at, filled) = (at + length, filled + length);
            if filled == this.len() {
                (sink, filled) = (sinks.next(), 0);
            }
        }
    }
}
